"""`callgate config`, and that a chat goes by the settings that it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callgate.cli import main
from callgate.config import is_trusted


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CALLGATE_PROVIDER", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def user_file(home: Path) -> Path:
    return home / "config" / "callgate" / "config.toml"


def write(home: Path, text: str) -> None:
    user_file(home).parent.mkdir(parents=True, exist_ok=True)
    user_file(home).write_text(text, "utf-8")


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["config", "show", "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_show_says_where_each_value_comes_from(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, 'model = "gemini-x"\ngemini.api_key = "AIza-very-secret"\n')
    monkeypatch.setenv("CALLGATE_MODE", "prompted")
    told = shown(capsys)
    assert told["settings"]["model"] == {"value": "gemini-x", "source": "user", "where": f"{user_file(home)}:1"}
    assert told["settings"]["mode"] == {"value": "prompted", "source": "environment", "where": "CALLGATE_MODE"}
    assert told["settings"]["output"] == {"value": "text", "source": "default", "where": ""}
    assert told["settings"]["gemini.api_key"]["value"] == "********"
    assert main(["config", "show", "--all"]) == 0
    out = capsys.readouterr().out
    assert "very-secret" not in out
    (line,) = (line for line in out.splitlines() if line.startswith("limits.turns "))
    assert line.split() == ["limits.turns", "25", "default"]
    assert main(["config", "show"]) == 0
    assert "limits.turns" not in capsys.readouterr().out


def test_a_wrong_key_is_told_with_file_line_and_the_right_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, '\nmodle = "x"\n')
    for command in (["config", "show"], ["chat", "Hi."], ["sessions", "list"], ["tools", "list"]):
        assert main(command) == 42
        assert f"{user_file(home)}:2: 'modle' is not a setting: did you mean 'model'?" in capsys.readouterr().err


def test_set_get_and_unset_change_one_line_of_the_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, "# mine\n")
    assert main(["config", "set", "limits.turns", "7"]) == 0
    assert main(["config", "set", "tools", "a.py,b"]) == 0
    assert main(["config", "set", "trace.content", "yes"]) == 0
    capsys.readouterr()
    assert user_file(home).read_text().startswith("# mine\n")
    assert main(["config", "get", "limits.turns"]) == 0
    assert main(["config", "get", "trace.content"]) == 0
    assert main(["config", "get", "model"]) == 0
    assert capsys.readouterr().out == "7\ntrue\n"
    assert main(["config", "get", "tools"]) == 0
    assert json.loads(capsys.readouterr().out) == [f"{user_file(home).parent}/a.py", "b"]
    assert main(["config", "unset", "limits.turns"]) == 0
    assert shown_source(capsys, "limits.turns") == "default"


def shown_source(capsys: pytest.CaptureFixture[str], key: str) -> str:
    capsys.readouterr()
    return shown(capsys)["settings"][key]["source"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["set", "modle", "x"], 42, "did you mean 'model'?"),
        (["get", "modle"], 42, "did you mean 'model'?"),
        (["set", "limits.turns", "many"], 42, "expected a whole number"),
        (["set", "mode", "nativ"], 42, "did you mean 'native'?"),
        (["set", "gemini.api_key", "k"], 2, "others can see a command line"),
        (["set", "--project", "store", "x"], 42, "a project's file cannot set store"),
        (["unset", "model"], 42, "is not set there"),
        (["trust", "nowhere"], 42, "is not a folder"),
    ],
)
def test_what_cannot_be_set_is_one_sentence(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, sentence: str
) -> None:
    assert main(["config", *words]) == code
    assert sentence in capsys.readouterr().err


def test_a_project_is_trusted_by_a_command_and_not_read_before(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "--project", "model", "theirs"]) == 0
    assert "its folder is not trusted" in capsys.readouterr().err
    assert shown(capsys)["settings"]["model"]["source"] == "default"
    assert main(["config", "path"]) == 0
    assert "not trusted, so it is not read" in capsys.readouterr().out
    assert main(["config", "trust"]) == 0
    assert is_trusted(Path.cwd(), {"XDG_STATE_HOME": str(home / "state")})
    capsys.readouterr()
    told = shown(capsys)
    assert (told["settings"]["model"]["value"], told["is_trusted"]) == ("theirs", True)
    assert main(["config", "untrust", "--list"]) == 0
    assert str(Path.cwd()) in capsys.readouterr().out
    assert main(["config", "untrust"]) == 0
    assert main(["config", "untrust", "."]) == 0
    assert "was not trusted" in capsys.readouterr().out


def test_paths_are_told_where_there_is_no_project(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "path"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("project  none")


# A chat ------------------------------------------------------------------------------------------------------------------


def test_a_chat_goes_by_the_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, 'provider = "demo"\noutput = "json"\nstore = "mine.db"\n[policy]\nrules = ["deny calculate*"]\n')
    assert main(["chat", "What is 12 * 7?"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    assert told["calls"] == [], "what is denied altogether is not even declared"
    assert (user_file(home).parent / "mine.db").exists()
    assert main(["sessions", "list", "-o", "json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == [told["session"]]


def test_a_flag_and_set_beat_the_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, 'provider = "gemini"\noutput = "text"\nlimits.turns = 1\n')
    words = [
        "chat",
        "What is 12 * 7?",
        "--provider",
        "demo",
        "--set",
        "output=json",
        "--set",
        "limits.turns=9",
        "--ephemeral",
    ]
    assert main(words) == 0
    assert "84" in json.loads(capsys.readouterr().out)["response"]


def test_limits_of_the_file_hold(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, 'provider = "demo"\nlimits.turns = 1\n')
    assert main(["chat", "What is 12 * 7?", "--ephemeral"]) == 53


@pytest.mark.parametrize(("words", "sentence"), [("output", "write KEY=VALUE"), ("outptu=json", "did you mean 'output'?")])
def test_a_wrong_set_is_told(home: Path, capsys: pytest.CaptureFixture[str], words: str, sentence: str) -> None:
    assert main(["chat", "Hi.", "--set", words]) in (2, 42)
    assert sentence in capsys.readouterr().err


def test_a_model_of_a_flag_beats_a_weaker_provider(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from callgate.cli.settings import settled

    def provider(file: str, model: str | None) -> Any:
        write(home, file)
        given: dict[str, Any] = {"provider": None, "model": model}
        settled(given)
        return given["provider"], given["model"]

    assert provider('provider = "openai"\n', "gpt-x") == ("openai", "gpt-x")
    assert provider('provider = "openai"\n', "gemini:x") == (None, "gemini:x")
    assert provider('provider = "demo"\n', "gemini-x") == (None, "gemini-x")
    assert provider('provider = "openai"\nmodel = "a"\n', None) == ("openai", "a")
    assert provider('model = "a"\n', None) == (None, "a")


def test_rules_of_a_policy_file_and_of_the_settings_add_up(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, '[policy]\nrules = ["deny calculate*"]\ndefault = "ask"\n')
    (home / "p.toml").write_text('rules = ["deny write_file"]\n')
    assert main(["tools", "list", "--policy", str(home / "p.toml"), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["tools"]
    assert told["write_file"]["verdict"] == "deny"
    assert {name: row["verdict"] for name, row in told.items() if name.startswith("calc")} in (
        {"calculate": "deny"},
        {"calculator": "deny"},
    )


def test_servers_of_the_settings_are_used(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, 'provider = "demo"\n[mcp.servers.gone]\ncommand = ["/no/such/program"]\n[mcp.servers.odd]\nwhat = 1\n')
    assert main(["chat", "Hello", "--ephemeral"]) == 0
    err = capsys.readouterr().err
    assert "'gone'" in err
    assert "MCP server 'odd'" in err


def test_debug_shows_requests_answers_and_calls_without_secrets(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, 'provider = "demo"\ngemini.api_key = "AIzaSyA-0123456789-0123456789-abcdefg"\n')
    user_file(home).chmod(0o600)
    prompt = "What is 12 * 7? My key is AIzaSyA-0123456789-0123456789-abcdefg"
    assert main(["chat", prompt, "--debug", "--ephemeral"]) == 0
    err = capsys.readouterr().err
    assert "DEBUG callgate.run: asking" in err
    assert "DEBUG callgate.run: answer" in err
    assert "DEBUG callgate.calls: call" in err
    assert "AIzaSyA" not in err


@pytest.mark.parametrize("group", ["mcp", "store", "audit"])
def test_a_group_without_a_command_shows_its_commands_line_by_line(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([group])
    told = "".join(capsys.readouterr())
    assert told.startswith(f"Usage: callgate {group} ")
    assert "\nCommands:\n" in told
