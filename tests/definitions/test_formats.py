"""Every shape of every format, by files: `cases/<format>/<case>/{in,out,losses}.json`. A new case needs no Python.

`in.json` is an object of the format. `out.json` says what must come of it: its `kind`, its `definitions` if it is tools
(fields that have their default are left out), and its value in other formats. `losses.json` has the place and keyword of
every loss, under the same keys. The format must be detected, and naming it must change nothing; `"named": true` in
`out.json` says that it must be named. A value in the case's own format is what comes if the format is not named: if it is,
nothing changes at all.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest

from callgate import ToolDefinition, convert, definitions_from
from callgate.definitions import FORMATS
from callgate.definitions.detection import read
from callgate.definitions.json_node import plain

CASES = Path(__file__).parent / "cases"
ALL = sorted(path.parent for path in CASES.glob("*/*/in.json"))


def loaded(case: Path, name: str) -> Any:
    return json.loads((case / name).read_text("utf-8"))


def default_of(item: Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


def shortened(definition: ToolDefinition) -> dict[str, Any]:
    """The fields of a definition that differ from their default, and the schema always."""
    found = {item.name: getattr(definition, item.name) for item in fields(definition)}
    defaults = {item.name: default_of(item) for item in fields(definition)}
    return {name: value for name, value in found.items() if name == "input_schema" or value != defaults[name]}


def brief(losses: Any) -> list[list[str]]:
    return [[loss.pointer, loss.keyword] for loss in losses]


def outcome(given: Any, out: dict[str, Any], source: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a case comes to: the values, and the losses, under the keys that it has an opinion of."""
    kind = read(plain(given), source=source, kind=None).kind
    values: dict[str, Any] = {"kind": kind}
    losses: dict[str, Any] = {}
    for key in out:
        if key == "definitions":
            values[key] = [shortened(definition) for definition in definitions_from(given, source)]
            losses[key] = brief(read(plain(given), source=source, kind="tool").losses)
        elif key in FORMATS:
            converted = convert(given, source=source, target=key)
            values[key] = converted.value
            losses[key] = brief(converted.losses)
    return values, {key: found for key, found in losses.items() if found}


@pytest.mark.rows("case", ALL, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_case(case: Path) -> None:
    given, out = loaded(case, "in.json"), loaded(case, "out.json")
    must_be_named = out.pop("named", False)
    told = loaded(case, "losses.json")
    own = case.parent.name
    elsewhere = tuple({key: value for key, value in each.items() if key != own} for each in (out, told))
    assert outcome(given, elsewhere[0], own) == elsewhere
    if not must_be_named:
        assert outcome(given, out, None) == (out, told)
    assert given == loaded(case, "in.json"), "the input was changed"


@pytest.mark.rows("case", ALL, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_what_is_converted_to_the_format_that_it_is_said_to_have_stays_as_it_is(case: Path) -> None:
    given, own = loaded(case, "in.json"), case.parent.name
    converted = convert(given, source=own, target=own)
    assert (converted.value, converted.losses) == (given, [])


def test_every_format_that_has_a_shape_in_json_has_cases() -> None:
    assert {case.parent.name for case in ALL} == {*FORMATS} - {"function"}


def test_every_case_says_something() -> None:
    assert [case.name for case in ALL if not {*loaded(case, "out.json")} - {"kind", "named"}] == []
