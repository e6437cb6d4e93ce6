"""An MCP client from npm, the inspector's command line, on `callgate mcp serve` by both transports."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).with_name("served_tools.py")
SERVE = [sys.executable, "-m", "callgate", "mcp", "serve", "-T", str(TOOLS)]

pytestmark = [pytest.mark.slow, pytest.mark.judge("MCP inspector")]

Inspect = Callable[..., tuple[int, Any, str]]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    command = [*SERVE, "--http", "--port", "0", "--root", str(TOOLS.parent)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        try:
            said = b""
            while not (found := re.search(rb"http://\S+\n", said)):
                assert process.poll() is None, said
                if select.select([process.stderr], [], [], 30)[0]:
                    said += os.read(process.stderr.fileno(), 4096)
            yield found[0].decode().strip()
        finally:
            process.kill()


@pytest.fixture(params=["pipes", "http"])
def inspect(request: pytest.FixtureRequest, npm_program: Callable[[str], str], address: str) -> Inspect:
    """Runs the inspector: exit code, what it printed as JSON, what it said besides."""
    program = npm_program("mcp-inspector")
    server = [*SERVE, "--root", str(TOOLS.parent)] if request.param == "pipes" else [address, "--transport", "http"]

    def run(method: str, *options: str) -> tuple[int, Any, str]:
        # Its own options come after the server's command, which has some that look like them.
        file = request.getfixturevalue("tmp_path") / "servers.json"
        if request.param == "pipes":
            file.write_text(json.dumps({"mcpServers": {"it": {"command": server[0], "args": server[1:]}}}))
            target = ["--config", str(file), "--server", "it"]
        else:
            target = server
        command = [program, "--cli", *target, "--method", method, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

    return run


def test_the_inspector_lists_and_calls_our_tools(inspect: Inspect):
    code, listed, said = inspect("tools/list")
    assert code == 0, said
    tools = {tool["name"]: tool for tool in listed["tools"]}
    assert {"add", "fail", "picture", "wait", "read_file", "write_file"} <= set(tools)
    assert tools["add"]["inputSchema"]["required"] == ["a", "b"]
    assert tools["add"]["annotations"]["readOnlyHint"] is True

    code, result, said = inspect("tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3")
    assert (code, result["structuredContent"], result["content"]) == (
        0,
        {"result": 5},
        [{"type": "text", "text": "5"}],
    ), said

    _, result, said = inspect("tools/call", "--tool-name", "write_file", "--tool-arg", "path=x.txt", "content=x")
    assert result["isError"] is True, said
    assert "--approval-mode" in result["content"][0]["text"]
    assert not (TOOLS.parent / "x.txt").exists()
