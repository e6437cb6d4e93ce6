"""The grammar of valid answers: prose, or calls of the declared tools with arguments that fit their schemas.

Tools and the prompt's own spellings come in; text in llama.cpp's GBNF goes out. A call that the grammar lets through is
well-formed, names a real tool and fits the tool's schema in types, choices, required keys, bounds of lists, small bounds of
numbers and of text. What GBNF cannot say, or only in a grammar that is too large (see `NODES_MAX`), is left to the check of
the arguments before the tool runs. This file knows nothing of llama.cpp but its grammar language.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from callgate.embedded.gbnf import json_literal, literal, one_of
from callgate.embedded.patterns import FORMATS, pattern_rule
from callgate.embedded.prompt import CALL
from callgate.embedded.shapes import alternatives, as_object, properties_of, required_of, resolved, types_of
from callgate.embedded.spelling import spelled_rules
from callgate.types import ToolChoice, ToolDefinition

__all__ = ["CALLS_MAX", "GRAMMAR_CHARS_MAX", "NothingOfferedError", "answer_grammar", "grammar_of", "value_grammar"]

CALLS_MAX = 8
"""Calls in one answer."""
DEPTH_MAX = 12
"""Levels of a schema that are spelled out; below them stands any value of the right type."""
NODES_MAX = 400
"""Parts of one tool's schema that are spelled out."""
CHOICES_MAX = 256
CHARS_MAX = 256
"""Longest `maxLength` that is held; llama.cpp writes every repetition out."""
ITEMS_MAX = 64
ENUMERATED_MAX = 128
GRAMMAR_CHARS_MAX = 200_000

Offered = Callable[[str, Mapping[str, Any]], Sequence[str] | None]
"""A function from the name and schema of a place to the JSON texts that may stand there."""

_CHAR = r'[^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u00" [01] [0-9a-f])'
_BASE = {
    "char": _CHAR,
    "text": r'"\"" char* "\""',
    "string": r'"\"" char* "\""',
    "integer": '"0" | "-"? [1-9] [0-9]{0,14}',
    "number": '"-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,12})? ([eE] [-+]? [0-9]{1,2})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "array": '"[" (value (", " value)*)? "]"',
    "object": '"{" (text ": " value (", " text ": " value)*)? "}"',
    "value": "string | number | boolean | null | array | object",
}
"""A rule for any value of each type. `text` is a string that is no word of the prompt, such as a key."""

# Prose never holds the beginning of a call line, so that what is read as a call was made as one, nor begins with
# its first letters.
_PROSE = {
    "prose": '[^T] prose-0 | "T" first-1',
    "prose-0": '[^T] prose-0 | "T" prose-1 | ""',
    "prose-1": '"T" prose-1 | "O" prose-2 | [^TO] prose-0 | ""',
    "prose-2": '"T" prose-1 | "O" prose-3 | [^TO] prose-0 | ""',
    "prose-3": '"T" prose-1 | "L" prose-4 | [^TL] prose-0 | ""',
    "prose-4": '"T" prose-1 | [A-SU-Za-z0-9] prose-0',
    "first-1": '"T" prose-1 | [^TO] prose-0 | ""',
}


def grammar_of(tools: Sequence[ToolDefinition], *, tool_choice: ToolChoice = "auto", words: Iterable[str] = ()) -> str:
    """The grammar for these tools. `words` are spellings of the prompt that strings copy exactly (see `spelling`).

    With `tool_choice` `required` prose is not possible, with `none` calls are not, and a tool's name leaves only that tool.
    """
    named = [tool for tool in tools if tool.name == tool_choice]
    offered = [] if tool_choice == "none" else named or list(tools)
    if not offered:
        return _written({"root": "prose", **_PROSE})
    rules = _Rules(words)
    calls = [rules.add(f"call-{index}", _call(tool, rules, index)) for index, tool in enumerate(offered)]
    rules.add("call", f"{literal(f'{CALL} ')} ({' | '.join(calls)})")
    several = rf'call ("\n" call){{0,{CALLS_MAX - 1}}}'
    must_call = bool(named) or tool_choice == "required"
    root = several if must_call else f"{several} | prose"
    text = _written({"root": root, **({} if must_call else _PROSE), **rules.rules})
    if len(text) <= GRAMMAR_CHARS_MAX:
        return text
    loose = [
        ToolDefinition(name=tool.name, input_schema={"type": "object", "additionalProperties": True}) for tool in offered
    ]
    return grammar_of(loose, tool_choice=tool_choice, words=words)


def answer_grammar(schema: Mapping[str, Any], *, words: Iterable[str] = ()) -> str:
    """The grammar for one JSON object that fits a schema, and nothing else."""
    rules = _Rules(words)
    root = as_object(schema)
    form = _Maker(rules, root, "a").object_of(resolved(root, root), 0)
    text = _written({"root": form, **rules.rules})
    return text if len(text) <= GRAMMAR_CHARS_MAX else _written({"root": "object", **_Rules(words).rules})


def value_grammar(
    schema: Mapping[str, Any],
    *,
    endings: Sequence[str],
    begun: bool = False,
    name: str = "",
    offered: Offered | None = None,
) -> str:
    """The grammar for one value and one of the texts that may follow it.

    With `begun` the value is a string of which some is written already; with `offered` the strings and numbers of a nested
    value are among those that this function returns for the name and schema of their place; None is any.

    Raises:
        NothingOfferedError: nothing is offered for a required place.
    """
    after = f"({' | '.join(map(literal, endings))})"
    rules = _Rules(())
    if begun:
        return _written({"root": f'char* "\\"" {after}', **rules.rules})
    value = _Maker(rules, schema, "v", offered).value_of(schema, 0, name)
    return _written({"root": f'" " {value} {after}', **rules.rules})


class NothingOfferedError(Exception):
    """A place of a nested value for which nothing is offered."""


class _Rules:
    """Rules by name. The same rule is written once."""

    def __init__(self, words: Iterable[str]) -> None:
        self.rules: dict[str, str] = {**_BASE, **spelled_rules(words)}
        self._names: dict[str, str] = {}
        self.nodes_left = NODES_MAX

    def add(self, name: str, body: str) -> str:
        """Add a rule and return its name: that of an equal rule if there is one."""
        known = self._names.setdefault(body, name)
        if known == name:
            self.rules[name] = body
        return known


def _written(rules: Mapping[str, str]) -> str:
    return "\n".join(f"{name} ::= {body}" for name, body in rules.items()) + "\n"


def _call(tool: ToolDefinition, rules: _Rules, index: int) -> str:
    rules.nodes_left = NODES_MAX
    root = as_object(tool.input_schema)
    schema = resolved(root, root)
    maker = _Maker(rules, root, f"t{index}")
    return f"{literal(f'{tool.name}(')} {maker.object_of(schema, 0)} {literal(')')}"


class _Maker:
    """A translator from one tool's schema to rules."""

    def __init__(self, rules: _Rules, root: Mapping[str, Any], prefix: str, offered: Offered | None = None) -> None:
        self._offered = offered
        self._rules = rules
        self._root = root
        self._prefix = prefix
        self._count = 0

    def value_of(self, raw: object, depth: int, name: str = "") -> str:
        """An expression for the values of a schema."""
        schema = resolved(raw, self._root)
        self._rules.nodes_left -= 1
        types = types_of(schema)
        if depth > DEPTH_MAX or self._rules.nodes_left < 0:
            return f"({' | '.join(types)})" if types else "value"
        choices = _choices(schema)
        if choices is not None:
            return f"({' | '.join(map(json_literal, choices))})"
        members = alternatives(schema)
        if members:
            outer = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
            forms = [self.value_of({**outer, **resolved(member, self._root)}, depth + 1, name) for member in members]
            return f"({' | '.join(dict.fromkeys(forms))})"
        if self._offered is not None and types and types[0] in ("string", "integer", "number"):
            listed = self._offered(name, schema)
            if listed is not None:
                if not listed:
                    raise NothingOfferedError(name)
                return self._named(one_of(listed))
        forms = [self._of_type(kind, schema, depth, name) for kind in types] or ["value"]
        return forms[0] if len(forms) == 1 else f"({' | '.join(dict.fromkeys(forms))})"

    def _of_type(self, kind: str, schema: Mapping[str, Any], depth: int, name: str) -> str:
        match kind:
            case "string":
                return _string(schema)
            case "integer":
                return _integer(schema)
            case "number":
                return _number(schema)
            case "array":
                return self._array(schema, depth, name)
            case "object":
                return self.object_of(schema, depth)
            case _:
                return kind

    def _array(self, schema: Mapping[str, Any], depth: int, name: str) -> str:
        first: object = schema.get("prefixItems")
        items: object = schema.get("items")
        if isinstance(first, (list, tuple)) and first:
            fixed = [self.value_of(item, depth + 1, name) for item in cast("Sequence[object]", first)]
            return f'"[" {" {} ".format(literal(", ")).join(fixed)} "]"'
        item = self.value_of(cast("object", items), depth + 1, name) if isinstance(items, Mapping) else "value"
        lowest, highest = _count(schema.get("minItems"), 0), _count(schema.get("maxItems"), None)
        if (highest is not None and highest > ITEMS_MAX) or (lowest or 0) > ITEMS_MAX:
            lowest, highest = min(lowest or 0, ITEMS_MAX), None
        if highest == 0:
            return '"[]"'
        more = f'(", " {item}){{{max((lowest or 0) - 1, 0)},{"" if highest is None else highest - 1}}}'
        body = f"{item} {more}"
        return self._named(f'"[" {body} "]"' if lowest else f'"[" ({body})? "]"')

    def object_of(self, schema: Mapping[str, Any], depth: int) -> str:
        """An expression for an object: its properties in order, the required ones always."""
        properties, required = properties_of(schema), required_of(schema)
        names = list(dict.fromkeys([*properties, *required]))
        if not names:
            more: object = schema.get("additionalProperties")
            if more is False:
                return '"{}"'
            if isinstance(more, Mapping) and more:
                value = self.value_of(cast("Mapping[str, Any]", more), depth + 1)
                return self._named(f'"{{" (text ": " {value} (", " text ": " {value})*)? "}}"')
            return "object" if depth or more is True or not _is_closed(schema) else '"{}"'
        pairs: dict[str, str] = {}
        for name in names:
            try:
                value = self.value_of(properties.get(name), depth + 1, name)
            except NothingOfferedError:
                if name in required:
                    raise
                continue
            pairs[name] = f"{literal(json.dumps(name, ensure_ascii=False) + ': ')} {value}"
        return f'"{{" {self._members(list(pairs), list(pairs.values()), required)} "}}"'

    def _members(self, names: Sequence[str], pairs: Sequence[str], required: Sequence[str]) -> str:
        """The pairs in order with commas between them: one rule before the first pair and one after it, for each place."""
        self._count += 1
        stem = f"{self._prefix}-{self._count}"
        first, later = '""', '""'
        for place in range(len(names) - 1, -1, -1):
            name, pair = names[place], self._named(pairs[place])
            skip_first, skip_later = ("", "") if name in required else (f" | {first}", f" | {later}")
            following = later
            first = self._rules.add(f"{stem}-a{place}", f"{pair} {following}{skip_first}")
            later = self._rules.add(f"{stem}-b{place}", f'", " {pair} {following}{skip_later}')
        return first

    def _named(self, body: str) -> str:
        self._count += 1
        return self._rules.add(f"{self._prefix}-{self._count}", body)


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """True if a tool's own object, without a single property, takes nothing: so it does unless it says otherwise."""
    return schema.get("patternProperties") is None and schema.get("propertyNames") is None


def _choices(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    listed: object = schema.get("enum")
    if not isinstance(listed, (list, tuple)) or not 0 < len(cast("Sequence[Any]", listed)) <= CHOICES_MAX:
        return None
    types = types_of(schema)
    fit = [choice for choice in cast("Sequence[Any]", listed) if not types or _is_of(choice, types)]
    return fit or None


def _is_of(value: object, types: Sequence[str]) -> bool:
    match value:
        case bool():
            return "boolean" in types
        case int():
            return "integer" in types or "number" in types
        case float():
            return "number" in types or ("integer" in types and value.is_integer())
        case str():
            return "string" in types
        case None:
            return "null" in types
        case list() | tuple():
            return "array" in types
        case _:
            return "object" in types


def _count(value: object, default: int | None) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def _string(schema: Mapping[str, Any]) -> str:
    form: object = schema.get("format")
    if isinstance(form, str) and form in FORMATS:
        return f'"\\"" {FORMATS[form]} "\\""'
    pattern: object = schema.get("pattern")
    made = pattern_rule(pattern) if isinstance(pattern, str) else None
    if made is not None:
        return f'"\\"" {made} "\\""'
    shortest, longest = _count(schema.get("minLength"), 0) or 0, _count(schema.get("maxLength"), None)
    if longest is not None and longest <= CHARS_MAX and shortest <= longest:
        return f'"\\"" char{{{shortest},{longest}}} "\\""'
    return "string" if not shortest else f'"\\"" char{{{min(shortest, CHARS_MAX)},}} "\\""'


def _integer(schema: Mapping[str, Any]) -> str:
    lowest, highest = _bounds(schema)
    if lowest is not None and highest is not None and 0 <= highest - lowest < ENUMERATED_MAX:
        step: object = schema.get("multipleOf")
        step = step if isinstance(step, int) and step > 0 else 1
        values = [number for number in range(lowest, highest + 1) if number % step == 0]
        return f"({' | '.join(literal(str(number)) for number in values)})" if values else "integer"
    if lowest is not None and lowest >= 0:
        return '("0" | [1-9] [0-9]{0,14})' if lowest == 0 else "([1-9] [0-9]{0,14})"
    return "integer"


def _number(schema: Mapping[str, Any]) -> str:
    lowest: object = schema.get("minimum", schema.get("exclusiveMinimum"))
    if isinstance(lowest, (int, float)) and not isinstance(lowest, bool) and lowest >= 0:
        return '(("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,12})?)'
    return "number"


def _bounds(schema: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The lowest and the highest whole number that are allowed, where they are said."""
    lowest, highest = _whole(schema.get("minimum"), up=True), _whole(schema.get("maximum"), up=False)
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(above, (int, float)) and not isinstance(above, bool):
        lowest = max(filter(lambda n: n is not None, [lowest, int(above // 1) + 1]), default=None)  # pyright: ignore[reportArgumentType, reportUnknownLambdaType]
    if isinstance(below, (int, float)) and not isinstance(below, bool):
        highest = min(filter(lambda n: n is not None, [highest, -int(-below // 1) - 1]), default=None)  # pyright: ignore[reportArgumentType, reportUnknownLambdaType]
    return lowest, highest


def _whole(value: object, *, up: bool) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e15:
        return None
    return -int(-value // 1) if up else int(value // 1)
