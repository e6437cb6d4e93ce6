"""`callgate mcp install`: the right file of each client, what is written there, the diff, and the way back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate.cli import main
from callgate.cli.mcp_install import CLIENTS
from callgate.mcp import read_servers


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


FILES = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "gemini-cli": ".gemini/settings.json",
}


def written(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.mark.parametrize("client", FILES)
def test_a_client_starts_our_tools_with_absolute_paths(client: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("tools.py").write_text("")
    assert main(["mcp", "install", client, "--", "-T", "tools.py:add", "--root", "docs", "--approval-mode", "plan"]) == 0
    out, err = capsys.readouterr()
    file = home / FILES[client]
    (row,) = written(file)[CLIENTS[client].key].values()
    here = Path.cwd()
    assert row["command"] == sys.executable
    assert row["args"] == [
        "-m", "callgate", "mcp", "serve", "--tool", f"{here}/tools.py:add", "--root", f"{here}/docs", "--approval-mode",
        "plan",
    ]  # fmt: skip
    assert f"+++ {file}" in out
    assert '+      "command":' in out
    assert f"callgate mcp install {client} --undo" in err
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("client", "row"),
    [
        ("cursor", {"url": "http://127.0.0.1:8081/mcp", "headers": {"Authorization": "Bearer ${env:T}"}}),
        ("vscode", {"type": "http", "url": "http://127.0.0.1:8081/mcp", "headers": {"Authorization": "Bearer ${env:T}"}}),
        ("gemini-cli", {"httpUrl": "http://127.0.0.1:8081/mcp", "headers": {"Authorization": "Bearer ${env:T}"}}),
    ],
)
def test_a_running_service_is_named_by_its_address_in_the_project(client: str, row: dict[str, Any]) -> None:
    words = ["--project", "--url", "http://127.0.0.1:8081/mcp", "--header", "Authorization: Bearer ${env:T}"]
    assert main(["mcp", "install", client, *words]) == 0
    project = CLIENTS[client].project
    assert project is not None
    assert written(Path(project))[CLIENTS[client].key] == {"callgate": row}


def test_the_rest_of_a_file_stays_and_undo_restores_it_to_the_byte(home: Path) -> None:
    file = home / FILES["gemini-cli"]
    file.parent.mkdir(parents=True)
    text = '{\n   "theme": "dark",  "mcpServers": {"git": {"command": "uvx"}}\n}'
    file.write_text(text)
    assert main(["mcp", "install", "gemini-cli", "--", "--root", "."]) == 0
    assert written(file)["theme"] == "dark"
    assert [*written(file)["mcpServers"]] == ["git", "callgate"]
    assert {server.name for server in read_servers(str(file), {}).servers} == {"git", "callgate"}
    assert main(["mcp", "install", "gemini-cli", "--undo"]) == 0
    assert file.read_text() == text
    assert main(["mcp", "install", "gemini-cli", "--undo"]) == 42


def test_undo_removes_a_file_that_was_made_and_keeps_what_others_wrote_since(home: Path) -> None:
    file = home / FILES["cursor"]
    assert main(["mcp", "install", "cursor", "--", "--root", "."]) == 0
    assert main(["mcp", "install", "cursor", "--undo"]) == 0
    assert not file.exists()
    assert main(["mcp", "install", "cursor", "--", "--root", "."]) == 0
    file.write_text(json.dumps(written(file) | {"mine": 1}))
    assert main(["mcp", "install", "cursor", "--undo"]) == 0
    assert written(file) == {"mcpServers": {}, "mine": 1}


def test_undo_puts_an_entry_back_that_was_replaced(home: Path) -> None:
    file = home / FILES["cursor"]
    file.parent.mkdir(parents=True)
    file.write_text('{"mcpServers": {"callgate": {"command": "old"}}}')
    assert main(["mcp", "install", "cursor", "--", "--root", "."]) == 42
    assert main(["mcp", "install", "cursor", "--force", "--", "--root", "."]) == 0
    file.write_text(json.dumps(written(file) | {"mine": 1}))
    assert main(["mcp", "install", "cursor", "--undo"]) == 0
    assert written(file) == {"mcpServers": {"callgate": {"command": "old"}}, "mine": 1}


def test_a_dry_run_shows_the_diff_and_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "install", "cursor", "--dry-run", "--", "--root", "."]) == 0
    assert '"mcpServers": {' in capsys.readouterr().out
    assert not (home / FILES["cursor"]).exists()
    assert main(["mcp", "install", "cursor", "--undo"]) == 42


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["cursor"], 2, "either options"),
        (["cursor", "--url", "http://x/mcp", "--", "--root", "."], 2, "either options"),
        (["cursor", "--header", "A: b", "--", "--root", "."], 2, "--header goes with --url"),
        (["cursor", "--", "--http", "--root", "."], 2, "leave out --http"),
        (["cursor", "--", "--nonsense"], 2, "--nonsense"),
        (["claude-desktop", "--url", "http://x/mcp"], 42, "Claude Desktop starts its servers itself"),
        (["claude-desktop", "--project", "--", "--root", "."], 42, "has no file in a project"),
        (["emacs", "--", "--root", "."], 2, "emacs"),
        (["cursor", "--url", "ftp://x/mcp"], 2, "http or https"),
        (["cursor", "--url", ""], 2, "http or https"),
        (["cursor", "--url", "http://[/mcp"], 2, "http or https"),
        (["cursor", "--name", "", "--", "--root", "."], 2, "--name is empty"),
        (["cursor", "--name", "a\x1b[2J", "--", "--root", "."], 2, "no control characters"),
        (["cursor", "--", "-T", "nofile.py"], 2, "there is no file"),
        (["cursor", "--", "-T", "nofile.py:add"], 2, "there is no file"),
        (["cursor", "--url", "http://x/mcp", "--header", "A: b\nC: d"], 2, "one line"),
    ],
)
def test_what_cannot_be_installed_is_refused(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "install", *words]) == code
    assert said in capsys.readouterr().err


def test_a_file_with_comments_is_left_alone(home: Path) -> None:
    file = home / FILES["vscode"]
    file.parent.mkdir(parents=True)
    file.write_text('{\n  // mine\n  "servers": {}\n}')
    assert main(["mcp", "install", "vscode", "--", "--root", "."]) == 42
    assert "// mine" in file.read_text()


def test_undo_takes_back_one_installation_after_another(home: Path) -> None:
    file = home / FILES["cursor"]
    file.parent.mkdir(parents=True)
    texts = ['{"mcpServers": {}}']
    file.write_text(texts[0])
    for words in (["--name", "a"], ["--name", "b"], ["--name", "b", "--force"]):
        root = str(len(texts))
        assert main(["mcp", "install", "cursor", *words, "--", "--root", root]) == 0
        texts.append(file.read_text())
    for text in reversed(texts[:-1]):
        assert main(["mcp", "install", "cursor", "--undo"]) == 0
        assert file.read_text() == text
    assert main(["mcp", "install", "cursor", "--undo"]) == 42


def test_an_installation_that_changes_nothing_is_not_taken_back(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["mcp", "install", "cursor", "--force", "--", "--root", "."]
    assert main(words) == 0
    assert main(words) == 0
    assert "nothing was changed" in capsys.readouterr().err
    assert main(["mcp", "install", "cursor", "--undo"]) == 0
    assert not (home / FILES["cursor"]).exists()


def test_an_entry_that_somebody_removed_does_not_keep_the_one_before_from_being_taken_back(home: Path) -> None:
    file = home / FILES["cursor"]
    for name in ("a", "b"):
        assert main(["mcp", "install", "cursor", "--name", name, "--", "--root", "."]) == 0
    file.write_text(json.dumps({"mcpServers": {"a": written(file)["mcpServers"]["a"]}}))
    assert main(["mcp", "install", "cursor", "--undo"]) == 42
    assert main(["mcp", "install", "cursor", "--undo"]) == 0
    assert written(file) == {"mcpServers": {}}


def test_a_file_in_another_encoding_is_left_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / FILES["cursor"]
    file.parent.mkdir(parents=True)
    data = '{"theme": "d\u00fcster"}'.encode("latin-1")
    file.write_bytes(data)
    assert main(["mcp", "install", "cursor", "--", "--root", "."]) == 42
    assert "is not UTF-8 text" in capsys.readouterr().err
    assert file.read_bytes() == data


@pytest.mark.parametrize("text", [b'{\r\n  "mcpServers": {\r\n    "git": {"command": "uvx"}\r\n  }\r\n}\r\n', b"{\r\n}\r\n"])
def test_the_ends_of_lines_stay_as_they_are(text: bytes, home: Path) -> None:
    file = home / FILES["cursor"]
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    assert main(["mcp", "install", "cursor", "--", "--root", "."]) == 0
    data = file.read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n") > text.count(b"\n")
    assert main(["mcp", "install", "cursor", "--undo"]) == 0
    assert file.read_bytes() == text
