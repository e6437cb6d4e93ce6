"""The fields of a form that a server asks for, to be shown on a terminal or a page.

The schema of a question comes in, fields go out; and a text that a person typed for a field becomes its value, or a sentence
on why it cannot be. Forms are flat: texts, numbers, yes or no, one of several, some of several. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from callgate.errors import ToolNotDeclarableError
from callgate.schema import check_arguments
from callgate.types import JsonObject, ToolDefinition

__all__ = ["Field", "fields_of", "value_of"]

Kind: TypeAlias = Literal["text", "number", "integer", "boolean", "choice", "choices"]
_KINDS: Mapping[str, Kind] = {"number": "number", "integer": "integer", "boolean": "boolean"}
_WORDS = {"y": True, "yes": True, "true": True, "1": True, "n": False, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One thing that a form asks for."""

    name: str
    kind: Kind
    schema: JsonObject
    title: str = ""
    description: str = ""
    required: bool = False
    options: tuple[tuple[str, str], ...] = ()
    """The choices: each a value and its label."""

    @property
    def default(self) -> Any:
        """The default; None if there is none."""
        return self.schema.get("default")


def fields_of(schema: Mapping[str, Any]) -> list[Field]:
    """The fields of a form, in its order."""
    properties: Any = schema.get("properties")
    required = _items(dict(schema), "required")
    if not isinstance(properties, Mapping):
        return []
    return [
        _field(name, dict(cast("JsonObject", inner)), required=name in required)
        for name, inner in cast("Mapping[str, Any]", properties).items()
        if isinstance(inner, Mapping)
    ]


def _field(name: str, schema: JsonObject, *, required: bool) -> Field:
    items: Any = schema.get("items")
    is_list = schema.get("type") == "array"
    options = _options(cast("JsonObject", items) if is_list and isinstance(items, dict) else schema)
    kind: Kind = ("choices" if is_list else "choice") if options else _KINDS.get(str(schema.get("type")), "text")
    return Field(
        name=name, kind=kind, schema=schema, title=str(schema.get("title") or ""), required=required,
        description=str(schema.get("description") or ""), options=options,
    )  # fmt: skip


def _options(schema: JsonObject) -> tuple[tuple[str, str], ...]:
    for key in ("oneOf", "anyOf"):
        rows = [cast("JsonObject", row) for row in _items(schema, key) if isinstance(row, dict)]
        if rows and all("const" in row for row in rows):
            return tuple((str(row["const"]), str(row.get("title") or row["const"])) for row in rows)
    values = _items(schema, "enum")
    names = _items(schema, "enumNames")
    named = names if len(names) == len(values) else values
    return tuple((str(value), str(name)) for value, name in zip(values, named, strict=True))


def _items(schema: JsonObject, key: str) -> list[Any]:
    items: Any = schema.get(key)
    return cast("list[Any]", items) if isinstance(items, list) else []


def value_of(field: Field, text: str) -> tuple[Any, str | None]:
    """The value that a text stands for, and None; or nothing, and a sentence on what is wrong with it."""
    value, problem = _READ[field.kind](field, text.strip())
    if problem is not None:
        return None, problem
    whole = ToolDefinition(name="field", input_schema={"type": "object", "properties": {field.name: field.schema}})
    try:
        problems = check_arguments(whole, {field.name: value}).problems
    except ToolNotDeclarableError as error:
        return None, str(error)
    return (None, problems[0]) if problems else (value, None)


def _text(field: Field, text: str) -> tuple[Any, str | None]:
    return text, None


def _number(field: Field, text: str) -> tuple[Any, str | None]:
    try:
        return (int(text) if field.kind == "integer" else float(text)), None
    except ValueError:
        return None, "a whole number is expected" if field.kind == "integer" else "a number is expected"


def _boolean(field: Field, text: str) -> tuple[Any, str | None]:
    value = _WORDS.get(text.lower())
    return value, "yes or no is expected" if value is None else None


def _choice(field: Field, text: str) -> tuple[Any, str | None]:
    for number, (value, title) in enumerate(field.options, 1):
        if text in (str(number), value) or text.casefold() in (value.casefold(), title.casefold()):
            return value, None
    return None, f"one of 1 to {len(field.options)} is expected"


def _choices(field: Field, text: str) -> tuple[Any, str | None]:
    found: list[Any] = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        value, problem = _choice(field, piece)
        if problem is not None:
            return None, f"numbers of 1 to {len(field.options)} are expected, with commas between them"
        found += [value] if value not in found else []
    return found, None


_READ = {
    "text": _text, "number": _number, "integer": _number, "boolean": _boolean, "choice": _choice, "choices": _choices,
}  # fmt: skip
