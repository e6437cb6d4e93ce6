"""Definitions are read once for equal content, and never given out changed."""

from __future__ import annotations

import copy
import enum
import json
from typing import Any

import pytest

from callgate import UsageError, definition_from, definitions_from
from callgate.definitions.known_tools import KnownTools
from callgate.types import ToolDefinition


def raw(name: str = "look_up", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {"number": {"type": "integer", "minimum": 1}}}
    return {"type": "function", "function": {"name": name, "description": "Looks up.", "parameters": schema}}


def test_equal_definitions_are_read_once() -> None:
    assert definition_from(raw("once")) is definition_from(copy.deepcopy(raw("once")))
    assert definition_from(raw("once")) is not definition_from(raw("once", other={"type": "string"}))
    assert definitions_from([raw("a"), raw("b")])[0] is definitions_from([raw("a"), raw("b")])[0]


def test_values_that_are_equal_and_of_other_types_are_read_apart() -> None:
    one, true, whole = (definition_from(raw("typed", x={"type": "number", "default": value})) for value in (1, True, 1.0))
    defaults = [json.dumps(found.input_schema["properties"]["x"]["default"]) for found in (one, true, whole)]
    assert defaults == ["1", "true", "1.0"]


def test_a_definition_whose_schema_was_changed_is_read_anew() -> None:
    first = definition_from(raw("changed"))
    first.input_schema["properties"]["number"]["minimum"] = 99
    again = definition_from(raw("changed"))
    assert again.input_schema == raw("changed")["function"]["parameters"]


def test_a_changed_source_does_not_change_its_definition() -> None:
    given = raw("source")
    found = definition_from(given)
    given["function"]["parameters"]["properties"]["number"]["minimum"] = 99
    assert found.input_schema["properties"]["number"]["minimum"] == 1


def test_what_is_not_plain_is_converted_each_time() -> None:
    class Kind(enum.Enum):
        WHOLE = "integer"

    given = raw("enums", number={"type": Kind.WHOLE})
    assert definition_from(given) == definition_from(raw("enums", number={"type": "integer"}))
    assert definition_from(raw("tuples", number={"enum": (1, 2)})).input_schema["properties"]["number"] == {"enum": [1, 2]}


def test_an_object_that_cannot_be_read_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(UsageError):
            definition_from({"strange": 1})


def test_the_oldest_definitions_are_forgotten() -> None:
    known, reads = KnownTools(definitions_max=3), list[str]()

    def ask(name: str) -> None:
        known.read({"name": name}, None, lambda *_: (reads.append(name) or [ToolDefinition(name=name)], None))

    for name in "abcdabcd":
        ask(name)
    assert reads == ["a", "b", "c", "d", "a", "b", "c", "d"]
    ask("d")
    assert len(reads) == 8


def test_definitions_of_a_list_that_were_changed_are_read_anew() -> None:
    given = [raw("a_of_list"), raw("b_of_list")]
    definitions_from(given)[1].input_schema["properties"].clear()
    assert [found.input_schema for found in definitions_from(given)] == [raw()["function"]["parameters"]] * 2
