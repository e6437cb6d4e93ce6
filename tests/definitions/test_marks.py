"""Nothing vanishes untold: every string and every added field of every case is found again in each target, or reported."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate.definitions import FORMATS, convert
from callgate.definitions.detection import read
from callgate.definitions.json_node import pointer
from callgate.errors import CallgateError
from callgate.types import Loss

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
CASES = Path(__file__).parent / "cases"
ALL = sorted(path.parent for path in CASES.glob("*/*/in.json"))
MARK = "markq7"
# Losses that say how something is carried, and not that it is not.
CARRIED = ("joined", "moved", "the order", "the parts", "the texts", "written", "stands", "carried", "merged", "they follow")
# Words of the formats' own grammar: what they say stands in the shape of what comes out.
GRAMMAR = (
    "$schema",
    "type",
    "role",
    "status",
    "jsonrpc",
    "method",
    "object",
    "format",
    "media_type",
    "mimeType",
    "mime_type",
)


# Names of properties that are not there: a schema says nothing by them.
NAMES = re.compile(r"/(required|propertyOrdering|property_ordering)/\d+$")


def places(value: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every item of a JSON value: its pointer, what holds it, and its key there."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield pointer(at, key), value, key
        yield from places(item, pointer(at, key))


def variants(given: Any) -> Iterator[tuple[str, Any]]:
    """The value with a mark behind one of its strings, or in a new field of one of its objects; and where that is."""
    text = json.dumps(given)
    strings = [(at, key) for at, holder, key in places(given) if isinstance(holder[key], str)]
    for at in (at for at, key in strings if key not in GRAMMAR and not NAMES.search(at)):
        changed = json.loads(text)
        _, holder, key = next(spot for spot in places(changed) if spot[0] == at)
        holder[key] += MARK
        yield at, changed
    for at in ["", *(at for at, holder, key in places(given) if isinstance(holder[key], dict))]:
        changed = json.loads(text)
        target = changed if not at else next(holder[key] for spot, holder, key in places(changed) if spot == at)
        if isinstance(target, dict):
            target["zz"] = {"type": "string", "description": MARK} if at.endswith("/properties") else MARK
            yield f"{at}/zz", changed


def is_told(at: str, losses: list[Loss]) -> bool:
    # A schema of another make is reported as the JSON Schema that it is read as.
    spellings = (at, at.replace("any_of", "anyOf"), at.replace("default_value", "default"))
    not_carried = [loss for loss in losses if not loss.instead.startswith(CARRIED)]
    return any(f"{spelled}/".startswith(f"{loss.pointer}/") for loss in not_carried for spelled in spellings)


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_what_is_neither_carried_nor_reported_is_nowhere(case: Path) -> None:
    source = case.parent.name
    given = json.loads((case / "in.json").read_text("utf-8"))
    untold: list[tuple[str, str]] = []
    for at, changed in variants(given):
        for target in FORMATS:
            try:
                converted = convert(changed, source=source, target=target)
            except CallgateError:
                continue
            if MARK not in json.dumps([converted.value, dict(converted.names)]) and not is_told(at, converted.losses):
                untold.append((target, at))
    assert untold == []


def written_in(name: str) -> Iterator[tuple[Any, Any]]:
    """Every case of another format as this one writes it, each once, with its kind."""
    seen: set[str] = set()
    for case in (case for case in ALL if case.parent.name != name):
        given = json.loads((case / "in.json").read_text("utf-8"))
        kind = read(given, source=case.parent.name, kind=None).kind
        try:
            value = convert(given, source=case.parent.name, target=name, kind=kind).value
        except CallgateError:
            continue
        if (text := json.dumps(value, sort_keys=True)) not in seen:
            seen.add(text)
            yield value, kind


@pytest.mark.parametrize("source", [name for name in FORMATS if name != "function"])
def test_what_a_format_has_written_of_others_is_carried_or_reported_by_all(source: str) -> None:
    dice = random.Random(source)
    untold: list[tuple[str, str, Any]] = []
    count = 0
    for value, kind in written_in(source):
        marked = list(variants(value))
        for at, changed in dice.sample(marked, min(len(marked), 1 if SCALE == 1 else SCALE)):
            for target in FORMATS:
                try:
                    converted = convert(changed, source=source, target=target, kind=kind)
                except CallgateError:
                    continue
                count += 1
                if MARK not in json.dumps([converted.value, dict(converted.names)]) and not is_told(at, converted.losses):
                    untold.append((target, at, changed))
    assert untold == []
    assert count > 20


@pytest.mark.rows("case", ALL, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_what_a_format_has_written_it_detects_and_writes_as_it_is(case: Path) -> None:
    given = json.loads((case / "in.json").read_text("utf-8"))
    kind = read(given, source=case.parent.name, kind=None).kind
    for target in FORMATS:
        try:
            value = convert(given, source=case.parent.name, target=target).value
            again = convert(value, target=target, kind=kind)
        except CallgateError:
            continue
        if target != case.parent.name:  # What was not written, but was given so, may be spelled in another way.
            assert (again.value, again.losses) == (value, []), target
