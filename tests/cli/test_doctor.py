"""`callgate doctor`: every fault is named, with what to do about it."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate.cli import doctor, findings, main
from callgate.cli.findings import Answer, Finding
from callgate.mcp import ServersFile, ServerStatus
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_openai import FakeOpenAI
from callgate.types import ToolDefinition

SCRIPT = Path(__file__).parent.parent / "mcp" / "scripted_server.py"
GOLDEN = Path(__file__).parent / "golden" / "doctor.txt"
STABLE = ("Model", "MCP servers", "Tools", "Sessions")
"""The areas whose findings are the same on every machine."""


def scripted(**options: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", str(SCRIPT), json.dumps(options)]}


def servers_file(folder: Path, **rows: Any) -> str:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": rows}))
    return str(path)


def areas(text: str) -> dict[str, list[str]]:
    """The lines of each area."""
    return {block.splitlines()[0]: block.splitlines()[1:] for block in text.strip().split("\n\n")}


@pytest.fixture(autouse=True)
def a_whole_embedded_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is installed must not decide what these tests see."""
    whole = findings.of_embedded(None, has_engine=True, is_needed=False)
    monkeypatch.setattr(doctor, "_embedded_finding", lambda is_needed: whole)


def test_a_configuration_with_many_faults_is_told_fault_by_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    endless = {"name": "endless", "inputSchema": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}}
    no_schema = {"name": "sum", "inputSchema": {"type": "object", "properties": {"a": {"type": "nmber"}}}}
    lossy = {
        "name": "shorten",
        "inputSchema": {"type": "object", "properties": {"n": {"type": "string", "pattern": "(?=x)", "minLength": 2}}},
    }
    shady = tmp_path / "shady.json"  # Not in the file itself, where $ stands before variables.
    twice = {"name": "re\u0430d_file", "inputSchema": {}}
    shady.write_text(json.dumps({"tools": ["re\u0430d_file"], "more": [endless, no_schema, twice]}))
    file = servers_file(
        tmp_path,
        fine=scripted(tools=["echo"], more=[lossy]),
        gone={"command": "no-such-program-here"},
        dies=scripted(refuse=True),
        unset={"url": "https://docs.example/mcp", "headers": {"Authorization": "Bearer $NOT_SET_ANYWHERE"}},
        shady={"command": sys.executable, "args": ["-I", str(SCRIPT), f"@{shady}"]},
        misspelt={**scripted(tools=["look"]), "timeOut": 5},
        off={"command": "x", "disabled": True},
    )
    store = tmp_path / "sessions.db"
    store.write_text("This is no database, but a letter to my aunt, which is long enough to be taken for one.\n" * 20)
    monkeypatch.setenv("GEMINI_API_KEY", "wr0ng-key")
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    with FakeGemini.in_thread([], api_key="right") as fake:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
        assert main(["doctor", "--mcp", file, "--store", str(store)]) == 1
        shown = capsys.readouterr().out
        assert main(["doctor", "--mcp", file, "--store", str(store), "-o", "json"]) == 1
    assert "wr0ng-key" not in shown
    told = areas(shown)
    text = "\n\n".join("\n".join([area, *told[area]]) for area in STABLE) + "\n"
    text = text.replace(str(tmp_path), "FOLDER").replace(fake.base_url, "http://FAKE")
    if os.environ.get("CALLGATE_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    broken = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["level"] == "broken"]
    assert len(broken) >= 6
    assert all(one["remedy"] for one in broken)


def test_where_nothing_is_broken_the_exit_code_is_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("GEMINI_API_KEY", "right")
    with FakeGemini.in_thread([], api_key="right") as fake:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
        file = servers_file(tmp_path, box=scripted(tools=["echo"]))
        assert main(["doctor", "--mcp", file, "--store", str(tmp_path / "none.db"), "-m", "gemini-3.8-flash"]) == 0
    told = areas(capsys.readouterr().out)
    assert told["Model"] == [
        "  + key: GEMINI_API_KEY is set", f"  + gemini-3.8-flash at {fake.base_url}: can be reached",
        "  + embedded: is installed and intact",
    ]  # fmt: skip
    assert told["MCP servers"] == ["  + box: works: scripted 1, protocol 2025-06-18, 1 tools"]
    assert told["Tools"] == ["  + echo (box): declared whole"]
    assert told["Sessions"] == [f"  + {tmp_path}/none.db: does not exist yet, and will be made"]
    assert not (tmp_path / "none.db").exists()


def test_the_weaknesses_of_the_sandbox_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    said = ["There is no openat2: paths are opened name by name, which is as safe and a little slower."]
    monkeypatch.setattr("callgate.files.weaknesses", lambda: said)
    assert main(["doctor", "--offline"]) == 0
    assert areas(capsys.readouterr().out)["Sandbox"] == [f"  - file tools: {said[0]}"]
    monkeypatch.setattr("callgate.files.weaknesses", list)
    assert main(["doctor", "--offline"]) == 0
    assert areas(capsys.readouterr().out)["Sandbox"] == ["  + file tools: everything that guards them is here"]


def test_tools_that_cannot_be_loaded_and_files_that_cannot_be_read_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert main(["doctor", "--mcp", str(tmp_path / "none.json"), "-T", str(tmp_path / "broken.py")]) == 1
    told = areas(capsys.readouterr().out)
    assert (
        told["MCP servers"][0]
        == f"  x {tmp_path}/none.json: '{tmp_path}/none.json' cannot be read: No such file or directory"
    )
    assert told["Tools"][0].startswith("  x -T: ")
    (tmp_path / "fine.py").write_text("def shout(text: str) -> str:\n    'Shouts.'\n    return text.upper()\n")
    assert main(["doctor", "-T", f"{tmp_path}/fine.py:shout"]) == 0
    assert areas(capsys.readouterr().out)["Tools"] == ["  + shout: declared whole"]


def test_a_store_with_sessions_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store = str(tmp_path / "s.db")
    assert main(["chat", "--provider", "demo", "--store", store, "What is 2 + 2?"]) == 0
    assert main(["doctor", "--store", store]) == 0
    assert f"  + {store}: works, 1 sessions" in capsys.readouterr().out


# Servers of models -------------------------------------------------------------------------------------------------------


def model_line(env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    main(["doctor", *words])
    (line,) = [line for line in areas(capsys.readouterr().out)["Model"] if re.match(r"  [+x] .* at |  x \w+:", line)]
    return line[2:]


def test_a_server_of_chat_completions_is_asked_for_its_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with FakeOpenAI.in_thread([], api_key="right", models=("a", "b")) as fake:
        ours = {"CALLGATE_OPENAI_API_KEY": "right", "CALLGATE_OPENAI_BASE_URL": fake.base_url}
        with monkeypatch.context() as only:
            assert model_line(ours, only, capsys, "-m", "openai:b") == f"+ b at {fake.base_url}: can be reached"
        env = {"OPENAI_API_KEY": "right", "OPENAI_BASE_URL": fake.base_url}
        assert model_line(env, monkeypatch, capsys, "-m", "openai:b") == f"+ b at {fake.base_url}: can be reached"
        assert model_line(env, monkeypatch, capsys, "-m", "openai:c") == (
            f"x c at {fake.base_url}: does not know the model: it has a, b"
        )
        assert model_line(env, monkeypatch, capsys, "--provider", "openai") == (
            "x openai: an OpenAI-compatible server has many models: name one with -m"
        )
        refused = model_line(env | {"OPENAI_API_KEY": "wrong"}, monkeypatch, capsys, "-m", "openai:b")
        assert refused.startswith(f"x b at {fake.base_url}: refuses the key")


def test_a_server_that_nobody_reaches_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}
    assert "cannot be reached: ConnectError" in model_line(env, monkeypatch, capsys)


def test_a_provider_without_a_key_says_what_to_set(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert model_line({}, monkeypatch, capsys, "--provider", "gemini").startswith("x gemini: no key for Gemini: set")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(status=200), "can be reached"), (Answer(words="no route"), "cannot be reached: no route"),
        (Answer(status=400, words="API key not valid."), "refuses the key: API key not valid."),
        (Answer(status=403), "refuses the key"), (Answer(status=404), "does not know the model"),
        (Answer(status=429), "allows no more requests now"),
        (Answer(status=500, words="oops"), "answers with status 500: oops"),
    ],
)  # fmt: skip
def test_every_answer_of_a_server_has_its_words(answer: Answer, said: str):
    found = findings.of_model("m", "http://x", answer)
    assert (found.message, found.level) == (said, "ok" if answer.status == 200 else "broken")
    assert bool(found.remedy) is (found.level == "broken")


# Findings ----------------------------------------------------------------------------------------------------------------


def test_a_python_that_is_too_old_and_extras_that_are_missing_are_told():
    found = list(findings.of_python((3, 9, 1), {"mcp": False, "otel": True}))
    assert found == [
        Finding(
            area="Python", subject="Python 3.9.1", level="warning", message="is not supported",
            remedy="Use Python 3.11 to 3.14.",
        ),
        Finding(
            area="Python", subject="mcp", level="note", message="is not installed; MCP servers would need it",
            remedy="pip install 'callgate[mcp]'",
        ),
    ]  # fmt: skip


def test_two_keys_that_differ_are_told_and_never_shown():
    (found,) = findings.of_key({"GOOGLE_API_KEY": "a1", "GEMINI_API_KEY": "b2"})
    assert found.level == "warning"
    assert "a1" not in found.message + found.remedy
    assert [found.level for found in findings.of_key({"GOOGLE_API_KEY": "a", "GEMINI_API_KEY": "a "})] == ["ok"]
    assert list(findings.of_key({})) == []


@pytest.mark.parametrize(
    ("problem", "has_engine", "is_needed", "level", "remedy"),
    [
        (None, True, True, "ok", ""), ("gone", True, False, "note", "Run `callgate model fetch`."),
        ("gone", True, True, "warning", "Run `callgate model fetch`."),
        (None, False, True, "warning", "pip install 'callgate[local]', then `callgate model fetch`."),
    ],
)  # fmt: skip
def test_the_embedded_model_matters_most_where_nobody_else_answers(problem, has_engine, is_needed, level, remedy):
    found = findings.of_embedded(problem, has_engine=has_engine, is_needed=is_needed)
    assert (found.level, found.remedy) == (level, remedy)


def test_every_way_in_which_a_server_fails_has_a_remedy():
    for words in ("it requires a login", "HTTPStatusError: 404", "ConnectError: refused", "it is still starting", "odd"):
        status = ServerStatus(name="s", where="", problem=words, about={}, tools=(), remarks=())
        (found,) = findings.of_server(status)
        assert found.level == "broken"
        assert found.remedy
    read = ServersFile(warnings=["MCP server 'x' was left out: McpServer('x'): MCP servers need the package mcp; install"])
    (missing,) = findings.of_servers_file("f", read)
    assert missing.remedy == "pip install 'callgate[mcp]'"


def test_a_tool_that_has_to_be_called_otherwise_is_told():
    (found,) = findings.of_tools([ToolDefinition(name="read file!", input_schema={"type": "object"}, server="s")])
    assert re.fullmatch(r"declared as '[A-Za-z0-9_]+' whole", found.message)


def test_a_password_in_the_address_of_a_store_is_not_shown():
    assert findings.of_store("postgresql://me:pw@db/x", "no", None).subject == "postgresql://me:***@db/x"


def test_the_real_embedded_model_is_looked_at(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.undo()
    monkeypatch.setenv("CALLGATE_PROVIDER", "demo")
    main(["doctor"])
    assert re.search(r"^  [+!-] embedded: ", capsys.readouterr().out, re.MULTILINE)
