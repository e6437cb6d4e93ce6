"""Each extra in an environment of its own: the wheel and what it asks for, nothing else, and one real use."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FAKE = """
import asyncio
from callgate import Gate, GeminiModel, OpenAIModel
from callgate.gemini.surface import GoogleTokens, Surface
from callgate.testing.fake_gemini import FakeGemini
"""
ASK = (
    FAKE
    + """
async def main():
    async with FakeGemini(["Hello."]) as fake:
        surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
        print((await Gate(GeminiModel("m", surface=surface)).run("Go.")).text)
asyncio.run(main())
"""
)
USES = {
    "": ASK,
    "cli": "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'callgate', '--help'])\nprint('Hello.')",
    "mcp": "import mcp, callgate.mcp; from callgate import McpServer; McpServer('files', command=['true']); print('Hello.')",
    "server": "import callgate.server.app, uvicorn; print('Hello.')",
    "vertex": FAKE + """
from google.auth import exceptions
from callgate.errors import AuthError
async def main():
    try:
        await GoogleTokens().token()
    except AuthError as error:
        assert "not installed" not in str(error), error
    print("Hello.")
asyncio.run(main())
""",
    "postgres": "import psycopg, callgate.store.postgres; print('Hello.')",
    "otel": "import opentelemetry.trace; from callgate import telemetry; telemetry.inject({}); print('Hello.')",
    "local": "import xllamacpp, callgate.models.embedded; print('Hello.')",
    "socks": "import os\nos.environ['ALL_PROXY'] = 'socks://127.0.0.1:9'\nos.environ['NO_PROXY'] = '127.0.0.1'\n" + ASK,
    "all": ASK,
}  # fmt: skip
DEV_ONLY = ("pytest", "hypothesis", "google.genai", "openai", "ruff", "numpy", "uvloop")
"""Packages of the dev group that no extra brings: what works only with them does not work."""


def run(*command: object, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, cwd="/")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
@pytest.mark.parametrize("extra", USES)
def test_an_extra_works_with_nothing_but_what_it_asks_for(extra: str, wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    wanted = f"callgate[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    installed = run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)
    if installed.returncode:
        last = (installed.stderr.strip().splitlines() or ["no reason was given"])[-1]
        pytest.skip(f"callgate[{extra}] cannot be installed here ({last[:200]}); it was not tested")
    absent = (
        "import importlib.util as u, sys\n"
        "def has(name):\n"
        "    try: return u.find_spec(name) is not None\n"
        "    except ModuleNotFoundError: return False\n"
        f"sys.exit(', '.join(name for name in {DEV_ONLY!r} if has(name)) or 0)"
    )
    there = run(python, "-I", "-c", absent)
    unexpected = there.stderr.strip()
    # xllamacpp and mcp may bring numpy or the like along; what is asked for must not be missing, so only strangers count.
    assert not (set(unexpected.split(", ")) & {"pytest", "hypothesis", "google.genai", "ruff", "uvloop"}), unexpected
    used = run(python, "-I", "-c", USES[extra])
    assert used.returncode == 0, used.stderr[-3_000:]
    assert used.stdout.strip().endswith("Hello."), used.stdout
