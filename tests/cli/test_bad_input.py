"""Bad input at the command line: one sentence that says what is wrong and what to do, and never a traceback."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from callgate.cli import main

RUN = "import sys; from callgate.cli import main; sys.exit(main(sys.argv[1:]))"
CHAT = ("chat", "--no-stdin", "--provider", "demo")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, with a file for each command that takes one."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("tools.py").write_text("from callgate import tool\n\n@tool\ndef f(n: int, unit: str = 'c') -> int:\n    'F.'\n")
    Path("odd.json").write_text(json.dumps({"foo": 1}))
    return Path()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("chta",), 2, "No such command 'chta'. Did you mean 'chat'?"),
        (("xyzzy",), 2, "No such command 'xyzzy'. (see: callgate --help)"),
        ((*CHAT, "-a", "missing.txt", "hi"), 42, "'missing.txt' is not attached: There is no file 'missing.txt'."),
        ((*CHAT, "-a", "https://x.y/z.png", "hi"), 42, "is a URL, and only files can be attached"),
        ((*CHAT, "-a", "/etc/hosts", "hi"), 42, "is not below"),
        (("chat", "--no-stdin", "-m", "foo:bar", "hi"), 2, "unknown provider 'foo'"),
        ((*CHAT, "--store", "typo/x.db", "hi"), 42, "is in a folder that does not exist"),
        (("sessions", "list", "--store", "typo/x.db"), 42, "is in a folder that does not exist"),
        (("convert", "--to", "gemini", "odd.json"), 42, "as in --from 'openai' ('mcp', 'openai',"),
        (("sessions", "import", "odd.json"), 42, "as in --from 'openai' ('mcp', 'openai',"),
        (("convert", "--to", "gemini", "tools.py"), 42, "this command reads JSON"),
    ],
)
def test_bad_input_is_explained(words: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(words)) == code
    error = capsys.readouterr().err
    assert said in error
    assert "@" not in error
    assert "Traceback" not in error
    assert not Path("typo").exists()


def test_a_settings_file_that_does_not_exist_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CALLGATE_CONFIG", "nosuch.toml")
    assert main([*CHAT, "hi"]) == 42
    assert "there is no file" in capsys.readouterr().err
    assert main(["config", "set", "model", "gemini-x"]) == 0  # This makes it.
    assert main(["config", "get", "model"]) == 0


def test_a_folder_in_place_of_the_settings_file_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CALLGATE_CONFIG", str(tmp_path))
    assert main([*CHAT, "hi"]) == 42
    assert "is a folder; correct or unset the variable" in capsys.readouterr().err


def test_a_deleted_folder_and_a_full_disk_are_explained(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); {RUN}"
    done = subprocess.run([sys.executable, "-c", code, *CHAT, "hi"], capture_output=True, text=True, check=False)
    assert (done.returncode, "the current folder was deleted" in done.stderr) == (1, True)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, "-c", RUN, "--help"], stdout=full, stderr=-1, text=True, check=False)
        assert (done.returncode, "no space left on the disk of the output" in done.stderr) == (1, True)


def test_one_value_of_a_table_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--set", "settings.temperature=0", "--set", "settings.thinking.level=low"]
    assert main([*CHAT, *given, "hi"]) == 0
    assert main(["chat", "--no-stdin", "--set", "nosuch.table=0", "hi"]) == 42
    assert "is not a setting" in capsys.readouterr().err


def test_tools_of_a_python_file_are_listed_with_types_and_linted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tools", "list", "-T", "tools.py"]) == 0
    assert 'f(n: integer, unit: string = "c")' in capsys.readouterr().out
    assert main(["tools", "lint", "tools.py"]) == 0
    assert "1 tool," in capsys.readouterr().out


def test_servers_are_read_from_the_file_that_add_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "add", "git", "--", "mcp-server-git"]) == 0
    assert main(["mcp", "list"]) == 0
    assert "git  mcp-server-git" in capsys.readouterr().out
    assert main(["mcp", "test", "other"]) == 42
    assert "has no server 'other'" in capsys.readouterr().err


def test_a_store_of_an_unknown_kind_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CHAT, "--store", "mysql://x/y", "hi"]) == 42
    assert "begins with postgresql://" in capsys.readouterr().err


def test_a_login_at_a_server_that_was_left_out_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"url": "https://example.com/mcp", "headers": {"A": "$NO_SUCH_VARIABLE"}}
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"docs": entry, "open": {"url": "https://example.com/mcp"}}}))
    for words in (["docs"], ["mcp.json", "docs"]):
        assert main(["mcp", "logout", *words]) == 42
        assert "the environment does not have NO_SUCH_VARIABLE" in capsys.readouterr().err
    assert main(["mcp", "logout", "other"]) == 42
    assert "'mcp.json' has no server 'other' with a url" in capsys.readouterr().err
    assert main(["mcp", "logout", "open"]) == 0
    assert main(["mcp", "logout"]) == 2


def test_groups_without_a_command_show_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CHAT, "--store", "kept.db", "hi"]) == 0
    capsys.readouterr()
    assert main(["config"]) == 0
    assert "durable" in capsys.readouterr().out
    assert main(["sessions"]) == 0
    assert main(["sessions", "show", "latest", "--store", "kept.db"]) == 0
    assert ": 1 exchange, " in capsys.readouterr().out
    assert main(["sessions", "list", "-o", "json", "--store", "kept.db"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert datetime.datetime.fromisoformat(row["updated"]).tzinfo is not None
