"""JSON Schema's own test suite, each of its schemas as a property of a tool: declared in every form, and checked alike.

The cases are fetched by `scripts/judge_packages.py` (which `make test` runs) and are no part of this repository.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callgate.declaration import declare
from callgate.schema import check_arguments, compile_schema
from callgate.schema.validator import validator_of
from callgate.types import ToolDefinition

SUITE = Path(__file__).resolve().parents[2] / ".venv" / "json-schema-suite"
CASES = Path(__file__).resolve().parent / "cases"
DIALECTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
FORMS = [(field, surface) for field in ("parametersJsonSchema", "parameters") for surface in ("developer", "vertex")]

REMOTE: dict[str, dict[str, list[str]]] = json.loads((CASES / "suite_remote.json").read_text("utf-8"))["groups"]
"""Groups whose schemas can be judged only by fetching others, which is never done: what those ask for is not asked for."""


def groups(draft: str) -> list[tuple[str, dict[str, Any]]]:
    files = sorted((SUITE / draft).glob("*.json"))
    if not files:
        pytest.skip("JSON Schema's test suite is not installed (python scripts/judge_packages.py); this was not tested")
    return [(file.stem, group) for file in files for group in json.loads(file.read_text("utf-8"))]


def tool(draft: str, schema: Any) -> ToolDefinition:
    """The schema as a property. One that refers to itself as a whole stays a whole of its own by an identifier."""
    if isinstance(schema, dict) and '"#"' in json.dumps(schema):
        schema = {"id" if draft == "draft4" else "$id": "urn:callgate:test", **schema}
    whole = {"$schema": DIALECTS[draft], "type": "object", "properties": {"value": schema}}
    return ToolDefinition(name="f", input_schema=whole)


def agrees(definition: ToolDefinition, data: Any, *, valid: bool) -> bool:
    """Whether the check says what the suite says. What was lossless to mend is legal then."""
    checked = check_arguments(definition, {"value": data})
    if checked.coercions and not valid:
        root = validator_of(definition).root
        return not root.is_valid({"value": data}) and (bool(checked.problems) or root.is_valid(checked.args))
    return valid is not bool(checked.problems)


@pytest.mark.parametrize("draft", DIALECTS)
@pytest.mark.parametrize(("field", "surface"), FORMS)
def test_every_schema_has_a_legal_form_that_is_never_narrower(wire, draft, field, surface) -> None:
    narrower: list[Any] = []
    for _, group in groups(draft):
        definition = tool(draft, group["schema"])
        assert declare([definition], schema_field=field, surface=surface).quarantined == {}, group["schema"]
        compiled = compile_schema(definition.input_schema, field=field, surface=surface)
        assert wire.faults(compiled, field, surface) == [], group["schema"]
        narrower += [
            (group["description"], test["description"], compiled.schema)
            for test in group["tests"]
            if test["valid"] and not wire.accepts(compiled, field, {"value": test["data"]})
        ]
    assert narrower == []


@pytest.mark.judge("JSON Schema")
@pytest.mark.parametrize("draft", DIALECTS)
def test_the_check_says_what_the_suite_says_but_for_what_would_have_to_be_fetched(draft, record_property) -> None:
    apart: dict[str, list[str]] = {}
    asked = groups(draft)
    for file, group in asked:
        definition = tool(draft, group["schema"])
        if not all(agrees(definition, test["data"], valid=test["valid"]) for test in group["tests"]):
            assert "http://localhost:1234/" in json.dumps(group["schema"]), group["description"]
            apart.setdefault(file, []).append(group["description"])
    remote = sum(map(len, apart.values()))
    record_property("judged", [len(asked) - remote, len(asked)])
    record_property("judge_known", {"groups of schemas that would have to be fetched": remote})
    assert apart == REMOTE[draft]
