"""The script that judges a file of tools: zeros for our own cases, and a figure for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).resolve().parent / "cases"


@pytest.mark.parametrize("name", ["schema_cases", "keywords", "nasty"])
def test_nothing_is_wrong_with_our_own_cases_in_any_form(corpus, name, scale) -> None:
    rows = corpus.judged_rows(json.loads((CASES / f"{name}.json").read_text("utf-8")), 5 * scale)
    assert {form: row.found for form, row in rows.items()} == {form: [] for form in corpus.FORMS}
    assert all(row.counts["legal"] > 100 and row.counts["illegal"] > 100 for row in rows.values())


def test_tools_are_found_in_lists_servers_and_objects(corpus) -> None:
    tool = {"name": "f", "description": "d", "inputSchema": {"type": "object"}}
    for whole in ([tool], {"tools": [tool]}, [{"server": "s", "tools": [tool]}]):
        assert [definition.name for definition, _ in corpus.tools_of(whole)] == ["f"]


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("sent", "column"),
    [
        ({"type": "object", "properties": {"x": {"type": "integer", "const": 1}}}, "undocumented keywords"),
        ({"type": "object", "properties": {"x": {"type": "string"}}}, "legal refused"),
        ({"type": "object", "properties": {"x": {"type": ["integer"]}}}, "against the rules"),
    ],
)
def test_a_wrong_form_is_counted(corpus, monkeypatch, sent, column) -> None:
    monkeypatch.setattr(corpus, "compile_schema", lambda *_, **__: corpus.Compiled(sent))
    monkeypatch.setattr(corpus, "upper", lambda schema: schema)
    row = corpus.Row()
    definition = corpus.ToolDefinition(name="f", description="d", input_schema=SCHEMA)
    corpus.judge(definition, [{"x": 1}], ("parameters", "developer"), row)
    assert row.counts[column] == 1


def test_an_exception_an_illegal_pass_and_a_tool_left_out_are_counted(corpus, monkeypatch) -> None:
    row, form = corpus.Row(), ("parametersJsonSchema", "developer")
    never = corpus.ToolDefinition(name="f", description="d", input_schema={"not": {}})
    corpus.judge(never, [], form, row)
    definition = corpus.ToolDefinition(name="f", description="d", input_schema=SCHEMA)
    monkeypatch.setattr(corpus, "check_arguments", lambda tool, args: _passed(args))
    corpus.judge(definition, [{"x": "a"}], form, row)
    monkeypatch.setattr(corpus, "compile_schema", lambda *_, **__: 1 / 0)
    corpus.judge(definition, [], form, row)
    assert {column: row.counts[column] for column in corpus.COLUMNS if row.counts[column]} == {
        "exceptions": 1,
        "quarantined": 1,
        "illegal passed": 1,
    }


def _passed(args: Any) -> Any:
    from callgate.types import Checked

    return Checked(args=args, problems=[])


def test_the_script_prints_a_table_and_its_status_says_whether_all_is_well(corpus, tmp_path, capsys) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"name": "f", "description": "d", "inputSchema": SCHEMA}]))
    assert corpus.main([str(file), "--arguments", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["tools", "1", "1", "1", "1"]
    file.write_text(json.dumps([{"name": "f", "description": "d", "inputSchema": {"not": {}}}]))
    assert corpus.main([str(file)]) == 1
    assert "quarantined: f: tool 'f': its input schema accepts no object" in capsys.readouterr().out
