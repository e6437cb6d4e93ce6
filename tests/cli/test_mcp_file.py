"""`callgate mcp add`, `callgate mcp remove`, and what `callgate mcp serve` refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from callgate.cli import main, mcp_serve
from callgate.mcp import read_servers


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def servers(file: str = "mcp.json") -> dict[str, object]:
    return json.loads(Path(file).read_text())["mcpServers"]


def test_servers_are_added_as_commands_and_as_addresses(capsys: pytest.CaptureFixture[str]):
    assert main(["mcp", "add", "git", "--env", "A=b=c", "--", "uvx", "mcp-server-git", "--repository", "."]) == 0
    assert main(["mcp", "add", "docs", "--url", "https://x.y/mcp", "--header", "Authorization: Bearer $TOKEN"]) == 0
    assert main(["mcp", "add", "old", "--url", "http://localhost/sse", "--sse"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "git was added to mcp.json; to try it: callgate mcp test mcp.json git"
    assert err == ""
    assert servers() == {
        "git": {"command": "uvx", "args": ["mcp-server-git", "--repository", "."], "env": {"A": "b=c"}},
        "docs": {"type": "http", "url": "https://x.y/mcp", "headers": {"Authorization": "Bearer $TOKEN"}},
        "old": {"type": "sse", "url": "http://localhost/sse"},
    }
    read = read_servers("mcp.json", {"TOKEN": "t"})
    assert ([server.name for server in read.servers], read.warnings) == (["git", "docs", "old"], [])


def test_the_file_of_another_program_is_used_if_it_is_there():
    Path(".mcp.json").write_text('{"mcpServers": {}, "mine": 1}')
    assert main(["mcp", "add", "a", "--", "x"]) == 0
    assert json.loads(Path(".mcp.json").read_text())["mine"] == 1
    assert main(["mcp", "add", "a", "--file", "other.json", "--", "x"]) == 0
    assert list(servers("other.json")) == ["a"]


def test_a_duplicate_is_refused_unless_it_is_forced(capsys: pytest.CaptureFixture[str]):
    assert main(["mcp", "add", "a", "--", "x"]) == 0
    assert main(["mcp", "add", "a", "--", "y"]) == 42
    assert "--force" in capsys.readouterr().err
    assert main(["mcp", "add", "a", "--force", "--", "y"]) == 0
    assert servers() == {"a": {"command": "y", "args": []}}


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--env", "API_KEY=abc", "--", "x"], "the variable API_KEY looks like a secret"),
        (["--env", "OTHER=ghp_" + "a" * 36, "--", "x"], "write '$OTHER' instead"),
        (["--url", "https://x.y/mcp", "--header", "X-Api-Key: abc"], "write '$X_API_KEY' instead"),
        (["--url", "https://me:pw@x.y/mcp"], "the address looks like a secret"),
        (["--", "x", "--token", "ghp_" + "a" * 36], "an argument of the command"),
    ],
)
def test_what_looks_like_a_secret_is_advised_to_be_a_variable(
    words: list[str], where: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["mcp", "add", "a", *words]) == 0
    assert where in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--env", "API_KEY=$API_KEY", "--", "x"], ["--env", "TOKENS=${N}", "--", "x"], ["--", "x"]]
)
def test_what_is_no_secret_is_not_remarked_on(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["mcp", "add", "a", *words]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["a"], 2),
        (["a", "--url", "http://x", "--", "y"], 2),
        (["a", "--url", "http://x", "--env", "A=b"], 2),
        (["a", "--header", "A: b", "--", "x"], 2),
        (["a", "--env", "A", "--", "x"], 2),
        (["a b", "--", "x"], 42),
        (["a", "--url", "ftp://x"], 42),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(words: list[str], code: int):
    assert main(["mcp", "add", *words]) == code
    assert not Path("mcp.json").exists()


def test_removing_prints_what_puts_it_back(capsys: pytest.CaptureFixture[str]):
    main(["mcp", "add", "a", "--env", "A=$B", "--", "x"])
    capsys.readouterr()
    assert main(["mcp", "remove", "a"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"mcpServers": {"a": {"command": "x", "args": [], "env": {"A": "$B"}}}}
    assert "is removed from mcp.json" in err
    assert servers() == {}
    assert main(["mcp", "remove", "a"]) == 42
    assert main(["mcp", "remove", "a", "--file", "gone.json"]) == 42


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ([], 2, "there is nothing to serve"),
        (["-T", "no_such_module_here"], 42, "there is no module"),
        (["--mcp", "gone.json"], 42, "cannot be read"),
        (["--root", "gone"], 42, "gone"),
        (["--root", ".", "--policy", "gone.toml"], 42, "gone.toml"),
        (["--root", ".", "--http", "--token-env", "NOT_SET_HERE"], 42, "NOT_SET_HERE"),
        (["--root", ".", "--http", "--host", "0.0.0.0"], 42, "--token-env"),
    ],
)
def test_serve_says_why_it_cannot(words: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]):
    assert main(["mcp", "serve", *words]) == code
    out, err = capsys.readouterr()
    assert (out, sentence in err) == ("", True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_serve_by_http_goes_on_until_a_signal(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    said: list[str] = []

    def say(sentence: str) -> None:
        said.append(sentence)
        if sentence.startswith("MCP server at"):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(mcp_serve, "_say", say)
    Path("policy.toml").write_text("rules = ['deny write_file', 'nonsense']\n")
    Path("mcp.json").write_text('{"mcpServers": {"a": {"command": "no-such-program-here", "zz": 1}}}')
    words = ["--http", "--port", "0", "--root", ".", "--policy", "policy.toml", "--mcp", "mcp.json", "--debug"]
    assert main(["mcp", "serve", *words]) == code
    assert any("'zz' is not known" in sentence for sentence in said)
    assert any("nonsense" in sentence for sentence in said)
    out, err = capsys.readouterr()
    assert out == ""
    assert "no-such-program-here" in err


def test_serve_on_pipes_ends_with_its_input():
    done = subprocess.run(
        [sys.executable, "-m", "callgate", "mcp", "serve", "--root", "."],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
