"""Slots: the places of a call that hold a value, and the kind of value that belongs there.

A tool comes in; its slots go out, one for each parameter, with the kind that the schema, the name or the description says:
choices, numbers with their unit, dates, times, addresses, paths, identifiers, composed text, or plain text. Pure text work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from callgate.embedded.numbers import UNITS, stem, unit_for, unit_word
from callgate.embedded.shapes import alternatives, as_object, properties_of, required_of, resolved, types_of
from callgate.embedded.vocabulary import STOP_WORDS
from callgate.types import ToolDefinition

__all__ = ["Kind", "Slot", "ToolSlots", "slot_of", "slots_of", "topic_words"]

Kind = Literal[
    "choice",
    "boolean",
    "number",
    "date",
    "time",
    "date-time",
    "email",
    "url",
    "path",
    "phone",
    "identifier",
    "composed",
    "text",
    "array",
    "object",
    "any",
]

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_WORDS = re.compile(r"[^\W\d_]+", re.UNICODE)

_BY_FORMAT: dict[str, Kind] = {
    "date": "date", "time": "time", "date-time": "date-time", "email": "email", "idn-email": "email", "uri": "url",
    "url": "url", "iri": "url", "uri-reference": "url", "uuid": "identifier",
}  # fmt: skip
_COMPOSED = """
message body text content contents summary query question search term terms keyword keywords code script sql
expression formula equation prompt regex pattern glob caption tweet comment html markdown template command subject
note notes reason description title instructions statement sentence paragraph poem story reply answer explanation
details feedback function snippet q
"""
_IDENTIFIERS = """
id ids code number no ref reference sku isbn iban plate serial barcode ticket token uuid guid hash sha vin imei
account pin zip zipcode postcode version
"""
_BY_NAME: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("email", frozenset({"email", "mail", "emails"})),
    ("url", frozenset({"url", "uri", "link", "website", "webpage", "homepage", "endpoint"})),
    ("phone", frozenset({"phone", "mobile", "telephone", "fax"})),
    (
        "composed",
        frozenset(_COMPOSED.split()),
    ),
    ("date-time", frozenset({"datetime", "timestamp"})),
    (
        "date",
        frozenset({"date", "day", "deadline", "birthday", "dob", "birthdate", "until", "since", "checkin", "checkout"}),
    ),
    ("time", frozenset({"time", "oclock"})),
    ("path", frozenset({"path", "file", "filename", "filepath", "folder", "directory", "dir"})),
    (
        "identifier",
        frozenset(_IDENTIFIERS.split()),
    ),
)
_BY_DESCRIPTION: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("date-time", re.compile(r"\bdate[- ]?time\b|\bdate and time\b|T(?:HH|hh)|\btimestamp\b", re.IGNORECASE)),
    ("date", re.compile(r"YYYY|yyyy-|\b(?:the|a)?\s*date\b(?! range)|\bday of\b|^day\b", re.IGNORECASE)),
    (
        "time",
        re.compile(
            r"\bHH:MM\b|\btime of (?:the )?day\b"
            r"|^(?:the )?(?:start |end )?time\b(?! ?(?:zone|frame|period|range|span|unit|display|format|limit|step|series))",
            re.IGNORECASE,
        ),
    ),
    ("email", re.compile(r"\be-?mail address\b", re.IGNORECASE)),
    ("url", re.compile(r"^(?:[Tt]he |[Aa]n? )?(?:\w+ ){0,3}URL\b(?![- ]?(?:slug|friendly))")),
    (
        "composed",
        re.compile(r"\b(?:glob pattern|regular expression|search query|sql|source code|expression to)\b", re.IGNORECASE),
    ),
)
_BY_FORM: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("date-time", re.compile(r"(?:YYYY.{1,8}|dd[-/. ]mm[-/. ]yyyy.{1,3})HH", re.IGNORECASE)),
    ("date", re.compile(r"\b(?:YYYY[-/.]MM[-/.]DD|DD[-/.]MM[-/.]YYYY|MM[-/.]DD[-/.]YYYY)\b", re.IGNORECASE)),
)
"""A form that a description spells out says more than a name."""
_BY_TYPE: dict[str, Kind] = {
    "integer": "number", "number": "number", "boolean": "boolean", "array": "array", "object": "object",
}  # fmt: skip
_TYPED = frozenset({"date", "time", "date-time", "path", "email", "url"})
_DIMENSIONS = {
    "weight": "mass", "mass": "mass", "distance": "length", "length": "length", "height": "length", "width": "length",
    "depth": "length", "duration": "time", "amount": "", "price": "money", "cost": "money", "budget": "money",
    "fare": "money",
    "salary": "money", "fee": "money", "temperature": "temperature", "percent": "percent", "percentage": "percent",
    "volume": "volume", "discount": "percent",
}  # fmt: skip
_SQUARE = re.compile(r"\b(?:square|sq\.?)\s+[^\W\d_]+", re.IGNORECASE)
_IN_UNIT = re.compile(r"^([^\W\d_]+) |\b(?:in|of|as)\s+([^\W\d_]+²?)|\(([^\W\d_]+)\)|\bnumber of ([^\W\d_]+)", re.IGNORECASE)
_ASIDE = re.compile(r"\(.*?\)|\b(?:e\.g\.|such as|for example|like|i\.e\.).*?(?:\.\s|$)|'[^']*'|\"[^\"]*\"", re.IGNORECASE)
_CODE_EXAMPLE = re.compile(r"(?:such as|e\.g\.|like|for example)\s+['\"`]?[A-Za-z]*[-_.]?\d[\w-]*", re.IGNORECASE)
_LISTED = re.compile(r"['\"`]([^'\"`\n]{1,40})['\"`]")
_BARE_LIST = re.compile(
    r"(?:one of|either|options? (?:are|is)|possible values(?: are)?|can be|must be|values?) ?:? ?"
    r"((?:[\w-]{1,60}(?:, (?:or )?|,| or | ?\| ?)){1,60}[\w-]{1,60})",
    re.IGNORECASE,
)


_DEFAULT = re.compile(r"\bdefaults?(?: value)?(?: is| to|:| =)? (-?\d+(?:\.\d+)?)(?![\w-])", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A parameter of a tool."""

    name: str
    kind: Kind
    schema: Mapping[str, Any]
    is_required: bool
    description: str = ""
    words: frozenset[str] = frozenset()
    """Stems of the words of its name."""
    unit: str = ""
    dimension: str = ""
    choices: tuple[Any, ...] = ()
    item: Slot | None = None

    @property
    def default(self) -> Any:
        """The default value of the schema, or else the number that its description calls the default."""
        told = _DEFAULT.search(self.description) if self.kind == "number" else None
        return self.schema.get("default", float(told[1]) if told else None)


_QUERY_WORDS = """
get find show list search look lookup tell check read fetch retrieve query view calculate compute count compare track
report estimate convert describe analyze analyse identify determine locate predict provide return ask answer give
"""
_QUERIES = frozenset(map(stem, _QUERY_WORDS.split()))
"""Stems of what tools do that change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSlots:
    """The slots of a tool in the order of its schema."""

    tool: ToolDefinition
    slots: tuple[Slot, ...]
    words: frozenset[str] = field(default=frozenset())
    """Stems of the words that name the tool and what it does: a request has them without giving a value."""
    about: frozenset[str] = field(default=frozenset())
    """Beginnings of all words that the tool and its parameters are described with."""

    @property
    def is_query(self) -> bool:
        """True if the tool tells something, by its first word or that of its description."""
        first = [*_PARTS.findall(self.tool.name)[:1], *_WORDS.findall(self.tool.description)[:1]]
        return bool({stem(word) for word in first} & _QUERIES)

    @property
    def required(self) -> list[Slot]:
        """The slots that a call must have."""
        return [slot for slot in self.slots if slot.is_required]


def slots_of(tool: ToolDefinition) -> ToolSlots:
    """The slots of a tool."""
    root = as_object(tool.input_schema)
    schema = resolved(root, root)
    required = required_of(schema)
    properties: dict[str, Any] = {**dict.fromkeys(required), **properties_of(schema)}
    properties = {name: properties[name] for name in [*properties_of(schema), *required]}
    slots = tuple(slot_of(name, raw, root, is_required=name in required) for name, raw in properties.items())
    described = _ASIDE.sub(" ", tool.description.partition(". ")[0])
    words = {stem(word) for word in [*_PARTS.findall(tool.name), *_WORDS.findall(described)]}
    texts = [*_PARTS.findall(tool.name), tool.description]
    for slot in slots:
        texts += [*_PARTS.findall(slot.name), slot.description, *map(str, slot.choices)]
    return ToolSlots(tool=tool, slots=slots, words=frozenset(words), about=topic_words(" ".join(texts)))


def topic_words(text: str) -> frozenset[str]:
    """Beginnings of the words of a text that say what it is about."""
    words = (word for word in _WORDS.findall(text) if len(word) > 2 and word.casefold() not in STOP_WORDS)
    return frozenset(stem(word)[:6] for word in words)


def slot_of(name: str, raw: object, root: Mapping[str, Any], *, is_required: bool = True) -> Slot:
    """One slot."""
    schema = _one_form(resolved(raw, root), root)
    description = str(schema.get("description") or "")
    parts = [part.casefold() for part in _PARTS.findall(name)]
    types = [kind for kind in types_of(schema) if kind != "null"]
    choices = _choices(schema)
    kind = _kind(parts, schema, types, description, choices)
    if kind == "text" and _CODE_EXAMPLE.search(description):
        kind = "identifier"
    if kind in ("text", "identifier") and (listed := _listed(description)):
        kind, choices = "choice", listed
    unit, dimension = _unit(parts, description) if kind == "number" else ("", "")
    return Slot(
        name=name,
        kind=kind,
        schema=schema,
        is_required=is_required,
        description=description,
        words=frozenset(map(stem, parts)),
        unit=unit,
        dimension=dimension,
        choices=choices,
        item=slot_of(name, schema.get("items"), root) if kind == "array" else None,
    )


def _one_form(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    members = [resolved(member, root) for member in alternatives(schema)]
    real = [member for member in members if types_of(member) != ["null"]]
    if not real:
        return schema
    outer = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
    return {**real[0], **outer}


def _choices(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    if "const" in schema:
        return (schema["const"],)
    listed: object = schema.get("enum")
    return tuple(cast("Sequence[Any]", listed)) if isinstance(listed, (list, tuple)) else ()


def _kind(
    parts: Sequence[str], schema: Mapping[str, Any], types: Sequence[str], description: str, choices: Sequence[Any]
) -> Kind:
    if choices:
        return "choice"
    first = types[0] if types else "any"
    if first != "string":
        return _BY_TYPE.get(first, "any")
    form: object = schema.get("format")
    if isinstance(form, str) and form in _BY_FORMAT:
        return _BY_FORMAT[form]
    if spelt := [kind for kind, pattern in _BY_FORM if pattern.search(description)]:
        return cast("Kind", spelt[0])
    # The last word of a name says what it is: `file_name` is a name, `note_id` an identifier.
    found = [kind for kind, words in _BY_NAME if parts and parts[-1] in words]
    found += [kind for kind, pattern in _BY_DESCRIPTION if pattern.search(description)]
    if parts[-1:] != ["name"]:
        found += [kind for kind, words in _BY_NAME if kind in _TYPED and words & set(parts)]
    return cast("Kind", found[0]) if found else "text"


def _listed(description: str) -> tuple[str, ...]:
    """Choices that a description lists in quotes or after "one of"; a single one is an example, and so is an e.g."""
    if re.search(r"\be\.?g\b|\bsuch as\b|\bfor example\b|\blike\b|\bin the form", description, re.IGNORECASE):
        return ()
    quoted = tuple(dict.fromkeys(text for text in _LISTED.findall(description) if text[0].isalnum()))
    if len(quoted) > 1:
        return quoted
    bare = _BARE_LIST.search(description)
    return tuple(dict.fromkeys(re.split(r",\s*or\s+|,\s*|\s+or\s+|\s*\|\s*", bare[1]))) if bare else ()


def _unit(parts: Sequence[str], description: str) -> tuple[str, str]:
    """The unit of a number and its dimension, as far as the name or the description says them."""
    dimension = next((_DIMENSIONS[part] for part in reversed(parts) if part in _DIMENSIONS), "")
    for part in reversed(parts):
        if part in UNITS and len(part) > 1:
            unit = unit_for(part, dimension)
            return unit, UNITS[unit][0]
    for hit in _IN_UNIT.finditer(_SQUARE.sub(lambda square: unit_word(square[0]), description)):
        word = next(group for group in hit.groups() if group).casefold()
        is_ordinal = word == "second" and hit[1] is not None
        if word in UNITS and len(word) > 1 and not is_ordinal:
            unit = unit_for(word, dimension)
            return unit, UNITS[unit][0]
    return "", dimension
