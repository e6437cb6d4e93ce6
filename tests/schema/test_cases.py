"""Every schema of the case file, in every form: nothing raised, nothing unknown sent, nothing legal forbidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callgate.declaration import declare
from callgate.schema import check_arguments
from callgate.schema.validator import validator_of
from callgate.types import ToolDefinition

HERE = Path(__file__).resolve().parent / "cases"
CASES: list[dict[str, Any]] = json.loads((HERE / "schema_cases.json").read_text("utf-8"))["cases"]
KEYWORDS: list[dict[str, Any]] = json.loads((HERE / "keywords.json").read_text("utf-8"))["cases"]
NASTY: list[dict[str, Any]] = json.loads((HERE / "nasty.json").read_text("utf-8"))["cases"]
FORMS = [("parametersJsonSchema", "developer"), ("parameters", "developer"), ("parameters", "vertex")]


def definition(case: dict[str, Any]) -> ToolDefinition:
    tool = case.get("tool") or {"name": "f", "inputSchema": case["schema"]}
    return ToolDefinition(name=tool["name"], description="d", input_schema=tool["inputSchema"])


@pytest.mark.rows(("field", "surface"), FORMS)
@pytest.mark.rows("case", [*CASES, *KEYWORDS, *NASTY], ids=lambda case: case["id"])
def test_a_form_is_legal_and_forbids_nothing_that_the_schema_allows(wire, case, field, surface) -> None:
    compiled = wire.compile(definition(case).input_schema, field=field, surface=surface)
    assert wire.faults(compiled, field, surface) == []
    for args in case["valid_args"]:
        assert wire.accepts(compiled, field, args), (args, compiled.schema)
        assert compiled.decode(compiled.encode(args)) == args
        assert tuple(check_arguments(definition(case), compiled.encode(args)).problems) == ()


@pytest.mark.rows("case", [*CASES, *KEYWORDS, *NASTY], ids=lambda case: case["id"])
def test_what_is_sent_compiles_to_itself(wire, case) -> None:
    sent = wire.compile(definition(case).input_schema).schema
    assert sent is None or wire.compile(sent).schema == sent


@pytest.mark.rows("case", [*CASES, *KEYWORDS, *NASTY], ids=lambda case: case["id"])
def test_illegal_arguments_do_not_pass_the_check(case) -> None:
    tool = definition(case)
    for args in case["invalid_args"]:
        assert not validator_of(tool).root.is_valid(args)
        checked = check_arguments(tool, args)
        # What passes after all was lossless to mend, and is legal now.
        assert checked.problems or (checked.coercions and validator_of(tool).root.is_valid(checked.args)), args


@pytest.mark.parametrize(("field", "surface"), FORMS)
def test_all_cases_are_declared_together(field, surface) -> None:
    tools = {case["tool"]["name"]: definition(case) for case in CASES}
    declaration = declare(tools.values(), schema_field=field, surface=surface)
    assert declaration.quarantined == {}
    assert list(declaration.names.values()) == list(tools)
    assert {loss.tool for loss in declaration.losses} <= set(tools)
