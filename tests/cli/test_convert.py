"""`callgate convert` and `callgate tools lint` as a shell and a person see them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate.cli import COMMANDS, FILES, main
from callgate.cli import convert as convert_module
from callgate.definitions import FORMATS

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = {
    "tools": [
        {"name": "git.log", "description": "Shows commits.", "inputSchema": CITY, "annotations": {"openWorldHint": True}},
        {"name": "clock", "description": "Tells the time.", "inputSchema": {"type": "object", "properties": {}}},
    ]
}


@pytest.fixture
def write(tmp_path: Path):
    def write(value: Any, name: str = "in.json") -> str:
        path = tmp_path / name
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return str(path)

    return write


def test_the_result_is_json_with_names_and_losses(write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "--from", "mcp", "--to", "openai", write(TOOLS)]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {
        "value": [
            {"type": "function", "function": {"name": "git_log", "description": "Shows commits.", "parameters": CITY}},
            {
                "type": "function",
                "function": {
                    "name": "clock",
                    "description": "Tells the time.",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
        "names": {"git_log": "git.log", "clock": "clock"},
        "losses": [
            {
                "pointer": "/tools/0/annotations/openWorldHint",
                "keyword": "openWorldHint",
                "reason": "OpenAI: it has no such field",
                "instead": "",
                "tool": "git.log",
            }
        ],
    }
    assert shown.err == ""


def test_stdin_is_read_and_everything_is_detected(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    history = [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "Hallo"}]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(history).encode())))
    assert main(["convert", "--to", "gemini", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["value"][0] == {"role": "user", "parts": [{"text": "Grüße"}]}


def test_somebody_at_the_terminal_sees_the_losses(write, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_module, "is_terminal", lambda stream: True)
    result = [{"type": "tool_result", "tool_use_id": "c1", "content": "No.", "is_error": True}]
    assert main(["convert", "--to", "openai", write(result)]) == 0
    assert capsys.readouterr().err == (
        "1 loss:\n  /0  is_error  OpenAI: a result has no error flag -> the text begins with 'Error: '\n"
    )


def test_what_a_file_says_cannot_steer_the_terminal(write, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_module, "is_terminal", lambda stream: True)
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "\x1b[31m": 1}
    assert main(["convert", "--to", "gemini", write(call)]) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "<U+001B>[31m" in shown.err


def test_the_kind_can_be_said(write, capsys) -> None:
    message = {
        "role": "assistant",
        "content": "x",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f"}}],
    }
    assert main(["convert", "--from", "openai", "--kind", "call", "--to", "gemini", write(message)]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == [{"functionCall": {"id": "a", "name": "f", "args": {}}}]


BAD = {
    "not_json": (b'{"a": [1,\n 2', "not valid JSON: EOF while parsing a list at line 2 column 2"),
    "number": (b'{"a": NaN}', "not valid JSON: expected value at line 1 column 7"),
    "utf8": (b'{"a":\n "\xff"}', "is not UTF-8 text: the byte 0xff at line 2 column 3"),
    "utf16": ('{"a": 1}'.encode("utf-16"), "is not UTF-8 text: the byte 0xff at line 1 column 1"),
    "empty": (b" \n", "is empty: it must hold JSON"),
    "deep": (b"[" * 150 + b"]" * 150, "JSON nested deeper than 100 levels"),
    "deeper": (b"[" * 3000 + b"]" * 3000, "nested deeper than 100 levels at line 1 column"),
    "no_shape": (b'{"a": 1}', "no format has a tool, call, result or history like"),
    "wrong_shape": (b'[{"role": "user", "content": "x"}, {"role": "user", "content": 4}]', "at /1/content: expected a list"),
    "ambiguous": (
        b'{"name": "x", "parameters": {"properties": {"a": {"nullable": true}}}}',
        "this tool may be of 'openai' or 'gemini', which read it differently: say which, as in --from 'openai'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_sentence_with_the_place(name: str, write, capsys) -> None:
    data, sentence = BAD[name]
    path = write(data)
    assert main(["convert", "--to", "openai", path]) == 42
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"callgate: {path!r}")
    assert sentence in shown.err
    assert shown.err.count("\n") == 1


def test_a_format_that_does_not_fit_is_told_with_the_place(write, capsys) -> None:
    assert main(["convert", "--from", "snakepit", "--kind", "tool", "--to", "openai", write(TOOLS)]) == 0
    capsys.readouterr()
    path = write([{"name": "x", "parameters": {}}])
    assert main(["convert", "--from", "snakepit", "--to", "openai", path]) == 42
    assert "at /0/parameters: expected a list, found an object" in capsys.readouterr().err


def test_files_that_are_not_there_and_formats_that_do_not_exist(write, tmp_path: Path, capsys) -> None:
    assert main(["convert", "--to", "openai", str(tmp_path / "none.json")]) == 42
    assert "there is no file" in capsys.readouterr().err
    assert main(["convert", "--to", "openai", str(tmp_path)]) == 42
    assert "cannot be read: Is a directory" in capsys.readouterr().err
    assert main(["convert", "--to", "soap", write(TOOLS)]) == 2
    assert "'soap' is not one of 'amazon_q'" in capsys.readouterr().err
    assert main(["convert", write(TOOLS)]) == 2


def test_the_formats_of_the_command_are_those_of_the_table() -> None:
    assert list(convert_module.FORMAT_NAMES) == sorted({*FORMATS} - {"function"})


def test_every_command_has_its_file() -> None:
    folder = Path(convert_module.__file__).parent
    assert all((folder / f"{FILES.get(name, name)}.py").is_file() for name in COMMANDS)


def test_help_is_quick_and_imports_no_format() -> None:
    code = (
        "import sys; from callgate.cli import main; assert main(['convert', '--help']) == 0;"
        "heavy = [name for name in sys.modules if name.startswith('callgate.definitions') or name == 'pydantic'];"
        "print(heavy, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "[]\n"
    assert "--from" in done.stdout


# --- tools lint ----------------------------------------------------------------------------------------------------------


def test_lint_says_what_is_sent_and_what_is_wrong(write, capsys) -> None:
    broken = {"name": "broken", "inputSchema": {"type": "object", "properties": {}, "required": ["x"]}}
    given = {"tools": [*TOOLS["tools"], broken]}
    assert main(["tools", "lint", write(given)]) == 1
    assert capsys.readouterr().out == (
        "3 tools, 2 without losses or problems\n"
        "+ git.log  sent as git_log\n"
        "+ clock\n"
        "x broken\n"
        "    problem  it has no description, so that a model must guess what it does\n"
        "    problem  'x' is required, but not among its properties\n"
    )


def test_lint_as_json(write, capsys) -> None:
    given = [
        {"name": "a.b", "description": "A.", "inputSchema": CITY},
        {"name": "a.b", "description": "B.", "inputSchema": CITY},
    ]
    assert main(["tools", "lint", "-o", "json", "--format", "mcp", write(given)]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "tools": [{"name": "a.b", "sent": "a_b", "losses": [], "problems": ["2 tools have this name"]}] * 2,
        "losses": [],
        "problems": [],
    }


def test_lint_of_good_tools_is_a_success(write, capsys) -> None:
    assert main(["tools", "lint", write(TOOLS)]) == 0
    assert capsys.readouterr().out.startswith("2 tools, 2 without losses or problems\n")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array"}, "its arguments are declared as 'array', and can only be an object"),
        ({"type": "object", "properties": {"a": {"type": "nothing"}}}, "x x  cannot be declared"),
        (
            {"type": "object", "properties": {"a": {"type": "STRING"}}},
            "its schema is not quite JSON Schema: /properties/a/type: 'STRING' is read as 'string'",
        ),
    ],
)
def test_lint_finds_schemas_that_cannot_be(schema: dict[str, Any], problem: str, write, capsys) -> None:
    assert main(["tools", "lint", write([{"name": "x", "description": "X.", "inputSchema": schema}])]) == 1
    assert problem in capsys.readouterr().out


def test_lint_shows_losses_and_too_many_tools(write, capsys) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}}
    tools = [{"name": f"t{n}", "description": "d" * (10_001 if n == 1 else 1), "inputSchema": schema} for n in range(130)]
    assert main(["tools", "lint", write(tools)]) == 1
    shown = capsys.readouterr().out
    assert "problem  there are 130 tools; models choose badly among so many" in shown
    assert "! t0" in shown
    assert "loss     /properties/a/minLength  minLength" in shown
    assert "problem  its description has 10001 characters" in shown


def test_lint_refuses_bad_files_in_one_sentence(write, capsys) -> None:
    assert main(["tools", "lint", write({"a": 1})]) == 42
    assert "no tool format fits 'dict' object {'a': 1}; if it is one, name its format, as in --format 'openai'" in (
        capsys.readouterr().err
    )


def test_tools_alone_shows_its_help(capsys) -> None:
    assert main(["tools", "--help"]) == 0
    assert "lint" in capsys.readouterr().out
