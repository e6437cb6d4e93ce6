"""Ten things that people meet in their first hour: each message says what happened, where, and what to do.

The messages are in `golden/error_hints.txt`, so that a change shows all of them; CALLGATE_GOLDEN=1 writes it anew.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from callgate.cli.error_hints import place_of, port_in_use, with_hint
from callgate.errors import AuthError, ConnectionLostError, UsageError
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.faults import fault, refused_url

PATIENCE_S = 60
GOLDEN = Path(__file__).parent / "golden" / "error_hints.txt"
SRC = Path(__file__).resolve().parent.parent.parent / "src" / "callgate"

RUN = "import sys; from callgate.cli import main; sys.exit(main(sys.argv[1:]))"
# Tried once, so that nobody has to wait for five attempts.
ONCE = f"from callgate.types import Limits; Limits.__init__.__kwdefaults__['attempts'] = 1; {RUN}"
READ_ONLY = f"""
import errno, os
def refuse(path, *rest, **more):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))
os.mkdir = refuse
{RUN}
"""
OLD_PYTHON = f"import sys; sys.version_info = (3, 9, 2, 'final', 0); sys.argv[0] = 'callgate'; {RUN}"


@dataclass(frozen=True)
class Trouble:
    """A command that fails: what is run, and what its message must say."""

    words: tuple[str, ...]
    happened: str
    where: str
    to_do: str
    program: str = RUN
    env: tuple[tuple[str, str], ...] = ()


KEY = (("GEMINI_API_KEY", "not-the-key"), ("GOOGLE_GEMINI_BASE_URL", "SERVER"))
HI = ("chat", "--no-stdin", "hi")

TROUBLES = {
    "no key": Trouble((*HI, "--provider", "gemini"), "no key for Gemini", "in the environment", "--provider embedded"),
    "wrong key": Trouble(
        (*HI, "--provider", "gemini"), "refused the key", "comes from GEMINI_API_KEY", "make a new one", env=KEY
    ),
    "unknown model": Trouble(
        (*HI, "-m", "gemini-nope"), "is not found", "(the model is 'gemini-nope')", "-m gemini-", env=KEY
    ),
    "bad tool file": Trouble(
        (*HI, "-T", "bad.py"), "cannot be imported", "'bad.py' cannot be imported: line 2", "Fix it there"
    ),
    "exception in a tool": Trouble(
        ("chat", "--no-stdin", "boom", "-T", "boom.py"), "ZeroDivisionError", "boom.py line 6, in boom", "--debug shows"
    ),
    "MCP server missing": Trouble(
        (*HI, "--mcp", "servers.json"), "is not available: there is no program 'no-such-server'", "'git'", "install it"
    ),
    "read-only disk": Trouble(HI, "Read-only file system", "/state/callgate", "--store PATH", program=READ_ONLY),
    "no network": Trouble(
        (*HI, "--provider", "gemini"),
        "no connection",
        "GOOGLE_GEMINI_BASE_URL",
        "start the server there",
        program=ONCE,
        env=KEY,
    ),
    "Python too old": Trouble(HI, "needs Python 3.11", "this is Python 3.9", "Install a newer one", program=OLD_PYTHON),
}


@contextlib.contextmanager
def server_for(name: str) -> Iterator[str]:
    """What the command of this trouble talks to."""
    if name == "no network":
        with refused_url() as url:
            yield url
    elif name == "unknown model":
        with FakeGemini.in_thread([fault("model_not_found")]) as fake:
            yield fake.base_url
    else:
        with FakeGemini.in_thread(["Hi."], api_key="right") as fake:
            yield fake.base_url


def said(name: str, folder: Path) -> str:
    """What a command prints, with what differs from machine to machine replaced by a word."""
    trouble = TROUBLES[name]
    (folder / "bad.py").write_text("def fine(): ...\ndef f(:\n    pass\n")
    (folder / "boom.py").write_text(
        "from callgate import tool\n\n@tool\ndef boom() -> float:\n    '''Fails.'''\n    return 1 / 0\n"
    )
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"git": {"command": "no-such-server"}}}))
    stored = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    with server_for(name) as url:
        env = stored | {key: value.replace("SERVER", url) for key, value in trouble.env}
        env |= {"TERM": "dumb", "PYTHONUTF8": "1", "XDG_STATE_HOME": str(folder / "state")}
        done = subprocess.run(
            [sys.executable, "-c", trouble.program, *trouble.words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, cwd=folder, env=env, check=False,
        )  # fmt: skip
        text = done.stderr.replace(url, "SERVER")
    lines = [line for line in text.splitlines() if not line.startswith("demo: ")]
    text = "\n".join(lines).replace(str(folder), "FOLDER").replace(sys.executable, "PYTHON")
    return f"{re.sub(r'127.0.0.1:[0-9]+', 'HOST', text)}\nexit code {done.returncode}"


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = {name: said(name, tmp_path_factory.mktemp("trouble")) for name in TROUBLES}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-c", RUN, "serve", "--provider", "demo", "--ephemeral", "--port", str(port)],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    said_of = done.stderr.replace(str(port + 1), "ANOTHER").replace(str(port), "PORT").strip()
    found["port in use"] = f"{said_of}\nexit code {done.returncode}"
    return found


def test_the_messages_are_those_that_were_agreed_on(messages: dict[str, str]) -> None:
    text = "\n\n".join(f"== {name} ==\n{messages[name]}" for name in sorted(messages)) + "\n"
    if os.environ.get("CALLGATE_GOLDEN") == "1":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize("name", TROUBLES)
def test_a_message_says_what_happened_where_and_what_to_do(messages: dict[str, str], name: str) -> None:
    trouble = TROUBLES[name]
    for words in (trouble.happened, trouble.where, trouble.to_do):
        assert words in messages[name]
    assert "Traceback" not in messages[name]
    assert "not-the-key" not in messages[name]


def test_a_port_that_is_taken_is_named_with_the_next_one() -> None:
    sentence = port_in_use("127.0.0.1", 8081)
    assert "port 8081 of 127.0.0.1 is in use" in sentence
    assert "--port 8082" in sentence


def test_an_import_on_an_old_python_is_an_error_that_can_be_caught() -> None:
    code = "import sys; sys.version_info = (3, 9, 2, 'final', 0); import callgate"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: callgate needs Python 3.11 or newer")


def test_an_old_python_can_read_the_file_that_says_so() -> None:
    ast.parse((SRC / "__init__.py").read_text(), feature_version=(3, 7))


def test_advice_names_only_what_is_set() -> None:
    assert "The key comes from GEMINI_API_KEY" in with_hint(AuthError("no"), {"GEMINI_API_KEY": "x"})
    assert with_hint(AuthError("no."), {}).startswith("no. Set GEMINI_API_KEY")
    assert "HTTPS_PROXY" in with_hint(ConnectionLostError("gone"), {})
    assert with_hint(UsageError("as it is"), {}) == "as it is"


def test_the_place_of_a_failure_is_in_somebodys_own_code(tmp_path: Path) -> None:
    code = compile("import json\ndef f():\n    json.loads('{')\n", str(tmp_path / "mine.py"), "exec")
    names: dict[str, object] = {}
    exec(code, names)
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - what it says is not the point
        names["f"]()  # type: ignore[operator]
    assert place_of(raised.tb) == f"{tmp_path / 'mine.py'} line 3, in f"
