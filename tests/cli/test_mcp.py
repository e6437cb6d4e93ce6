"""`callgate mcp` and `callgate chat --mcp`: servers from a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate.cli import main

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
        "+ box  1 tools",
        "    echo  Does echo.",
        "x gone  there is no program 'no-such-program-here': install it, or give its whole path",
    ]
    assert main(["mcp", "test", file, "box", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["servers"] == [
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
