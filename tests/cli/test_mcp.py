"""`callgate mcp` and `callgate chat --mcp`: servers from a file."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callgate.cli import main
from callgate.cli.mcp import OWN_TOOLS
from callgate.files import FileTools
from callgate.files.command import CommandTool
from callgate.tools.executor import Executor
from callgate.tools.toolsets import RESERVED

SCRIPT = Path(__file__).parent.parent / "mcp" / "scripted_server.py"
ECHO = {"command": sys.executable, "args": ["-I", str(SCRIPT), '{"tools": ["echo"]}']}


@pytest.fixture
def servers(tmp_path: Path):
    def write(**rows: Any) -> str:
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": rows}))
        return str(path)

    return write


def test_servers_are_listed_without_their_secrets_and_without_starting_them(servers, capsys: pytest.CaptureFixture[str]):
    file = servers(web={"url": "https://me:pw@x.y/mcp?key=1"}, off={"command": "x", "disabled": True}, odd={"zz": 1})
    assert main(["mcp", "list", file]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["web  https://x.y/mcp", "off  disabled"]
    assert len(err.splitlines()) == 2
    assert main(["mcp", "list", file, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["servers"] == [{"name": "web", "where": "https://x.y/mcp"}]


def test_a_test_says_which_servers_work(servers, capsys: pytest.CaptureFixture[str]):
    file = servers(box=ECHO, gone={"command": "no-such-program-here"})
    assert main(["mcp", "test", file]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "+ box  1 tool",
        "    echo  Does echo.",
        "x gone  there is no program 'no-such-program-here': install it, or give its whole path",
    ]
    assert main(["mcp", "test", file, "box", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["look_alikes"] == []
    assert told["servers"] == [
        {
            "name": "box",
            "problem": None,
            "tools": [{"name": "echo", "description": "Does echo.", "problem": None, "losses": 0}],
            "remarks": [],
        }
    ]


def test_a_file_or_a_server_that_is_not_there_is_bad_input(servers, capsys: pytest.CaptureFixture[str]):
    assert main(["mcp", "list", "no-such-file.json"]) == 42
    assert main(["mcp", "test", servers(box=ECHO), "other"]) == 42
    assert main(["chat", "--mcp", "no-such-file.json", "Hi"]) == 42
    assert "cannot be read" in capsys.readouterr().err


def test_a_chat_calls_tools_of_servers(servers, capsys: pytest.CaptureFixture[str]):
    file = servers(box=ECHO, gone={"command": "no-such-program-here"})
    assert main(["chat", "--provider", "demo", "--mcp", file, "--approval-mode", "yolo", "-o", "json", "echo word=hi"]) == 0
    out, _ = capsys.readouterr()
    (made,) = json.loads(out)["calls"]
    assert (made["call"]["name"], made["state"], made["result"]["value"]) == ("echo", "finished", '{"word": "hi"}')


def test_a_test_warns_of_tools_that_look_like_others(servers, capsys: pytest.CaptureFixture[str]):
    shady = {"command": sys.executable, "args": ["-I", str(SCRIPT), json.dumps({"tools": ["re\u0430d_file"]})]}
    assert main(["mcp", "test", servers(box=shady)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "! The tool 're\\u0430d_file' of the MCP server 'box' looks like 'read_file' of this program: letters of another "
        "script, or invisible characters."
    )


def test_the_names_that_servers_are_compared_with_are_those_of_our_tools(tmp_path: Path):
    own = Executor([FileTools(tmp_path), CommandTool(tmp_path, allow=["git"])]).definitions
    assert {*OWN_TOOLS} == {*(definition.name for definition in own), *RESERVED}


def test_a_chat_without_servers_does_not_import_the_sdk():
    story = (
        "import sys\n"
        "from callgate.cli import main\n"
        "code = main(['chat', '--provider', 'demo', '--ephemeral', 'What is 2 + 2?'])\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types')], code, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[] 0"


# Logging in --------------------------------------------------------------------------------------------------------------


def _oauth_server() -> ModuleType:
    spec = importlib.util.spec_from_file_location("oauth_server", SCRIPT.with_name("oauth_server.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# A path may have a blank, which no first line of a script can.
VISIT = """#!/bin/sh
exec "{python}" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()' "$1"
"""


def test_a_login_is_made_in_a_browser_kept_and_forgotten(
    servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    browser = tmp_path / "browser"
    browser.write_text(VISIT.format(python=sys.executable))
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    oauth = _oauth_server()
    with oauth.serving(oauth.Authority()) as url:
        file = servers(web={"httpUrl": url})
        assert main(["mcp", "login", file, "web"]) == 1
        assert "run this at a terminal" in capsys.readouterr().err
        assert main(["mcp", "test", file]) == 1
        assert "it requires a login" in capsys.readouterr().out
        monkeypatch.setattr("callgate.cli.mcp_login.is_terminal", lambda stream: True)
        assert main(["mcp", "login", file, "web"]) == 0
        out, err = capsys.readouterr()
        assert out == "web: works, 1 tools\n"
        assert 'The MCP server "web" wants you to log in, at a page of "127.0.0.1":' in err
        assert main(["mcp", "test", file]) == 0
        assert [main(["mcp", "logout", file, "web"]) for _ in range(2)] == [0, 0]
        assert capsys.readouterr().out.splitlines()[-2:] == ["web: token deleted", "web: there was no login"]
        assert main(["mcp", "test", file]) == 1


def test_only_servers_with_an_address_can_be_logged_in_at(servers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callgate.cli.mcp_login.is_terminal", lambda stream: True)
    assert main(["mcp", "login", servers(box=ECHO), "box"]) == 42
    assert main(["mcp", "logout", servers(box=ECHO), "other"]) == 42
    assert main(["mcp", "login", "no-such-file.json", "box"]) == 42


def test_a_login_that_fails_is_told(servers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("callgate.cli.mcp_login.is_terminal", lambda stream: True)
    assert main(["mcp", "login", servers(web={"httpUrl": "http://127.0.0.1:9/mcp"}), "web"]) == 1
    assert capsys.readouterr().err.startswith("callgate: web: ")
