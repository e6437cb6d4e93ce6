"""Encode facts as lines of JSON, the format of the journal, and decode them."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from callgate import strict_json
from callgate.errors import JsonError
from callgate.machine.facts import (
    Adopted,
    AlwaysRevoked,
    ApprovalAnswered,
    CallChecked,
    CallDecided,
    CallEnded,
    CallStarted,
    Cancelled,
    ExchangeForgotten,
    Fact,
    HistoryGiven,
    HistoryShortened,
    JournalledFact,
    ModelAccepted,
    ModelAnswered,
    ModelFailed,
    ModelLent,
    NestedCall,
    OutputChecked,
    Recovered,
    Renamed,
    Rewound,
    RunStarted,
    ToolsKnown,
    Unreadable,
)
from callgate.types import JsonObject, PlainJson, ToolResult, Usage

__all__ = ["SCHEMA_VERSION", "NewerSchemaError", "decode", "decode_line", "encode", "kind_name", "kind_of", "line_start"]

SCHEMA_VERSION = 1
_GO_ON = "a newer version wrote it, and can continue the session"


_KINDS: dict[str, type[Any]] = {
    "tools_known": ToolsKnown, "history_given": HistoryGiven, "run_started": RunStarted, "model_answered": ModelAnswered,
    "model_failed": ModelFailed, "call_checked": CallChecked, "call_decided": CallDecided,
    "approval_answered": ApprovalAnswered, "always_revoked": AlwaysRevoked, "call_started": CallStarted,
    "call_ended": CallEnded, "cancelled": Cancelled, "recovered": Recovered, "history_shortened": HistoryShortened,
    "rewound": Rewound, "adopted": Adopted, "output_checked": OutputChecked, "inner_call": NestedCall,
    "renamed": Renamed, "model_accepted": ModelAccepted, "exchange_forgotten": ExchangeForgotten,
    "model_lent": ModelLent,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}

_KIND = re.compile(rb'\{"v": ?\d+, ?"kind": ?"(\w+)"')

_SELDOM = frozenset({"at_s", "request", "metadata", "uploads", "preview", "confirm", "background"})
"""Fields that are omitted when empty."""


class NewerSchemaError(JsonError):
    """A line was written by a later version of callgate, and cannot be interpreted."""


def kind_of(start: bytes) -> str:
    """The kind of the fact whose line begins like that; empty if it cannot be seen."""
    found = _KIND.match(start)
    return found[1].decode() if found else ""


def line_start(kind: str) -> bytes:
    """The beginning of the lines of facts of a kind, as this version writes them."""
    return f'{{"v":{SCHEMA_VERSION},"kind":"{kind}",'.encode()


def kind_name(kind: type[Fact]) -> str:
    """The name of a kind of facts in the journal."""
    return _NAMES[kind]


def encode(fact: Fact) -> bytes:
    """Encode a fact as one line of JSON, with its kind and the version of the schema; an unreadable line stays as it was.

    Raises:
        JsonError: a field contains something that is not JSON.
    """
    if isinstance(fact, Unreadable):
        return fact.body
    held = {f.name: getattr(fact, f.name) for f in fields(fact)}
    record = {name: value for name, value in held.items() if value is not None or name not in _SELDOM}
    record = {"v": SCHEMA_VERSION, "kind": _NAMES[type(fact)], **record}
    result = record.get("result")
    if not isinstance(result, ToolResult):
        return strict_json.dump(record)
    del record["result"]
    known = result.known_json
    encoded = None if known is None else known.encoded
    left_out = ("plain_json",) if encoded is None else ("plain_json", "value")
    plain = {f.name: getattr(result, f.name) for f in fields(result) if f.name not in left_out}
    if known is not None and encoded is None:
        plain["value"] = known.short
    line = strict_json.dump({**record, "result": plain})
    # The JSON of a long value is there already: the value ends the result, and the result ends the line.
    return line if encoded is None else line[:-2] + b',"value":' + encoded + b"}}"


def decode(line: bytes | str) -> JournalledFact:
    """Decode a fact written by `encode`. Fields of later versions of the same schema are ignored.

    Raises:
        NewerSchemaError: a fact of a newer schema, or of a kind that is not known.
        JsonError: not a fact.
    """
    # Whatever could be written can be read again, though neither a result nor the wire may be nested as deep.
    raw = strict_json.parse(line, depth_max=strict_json.WRITTEN_DEPTH_MAX)
    record = cast("JsonObject", raw) if isinstance(raw, dict) else {}
    kind, version = record.get("kind"), record.get("v")
    if not isinstance(kind, str) or version is None:
        raise JsonError("the journal holds a line that is not a fact")
    if version != SCHEMA_VERSION:
        problem = f"the journal has schema version {version!r}; this callgate reads version {SCHEMA_VERSION}"
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise NewerSchemaError(f"{problem}: {_GO_ON}")
        raise JsonError(problem)
    if kind not in _KINDS and not kind.isidentifier():
        raise JsonError(f"the journal holds a fact of the unknown kind {kind!r}")
    if kind not in _KINDS:  # A newer version has it; a process of this one must not go on as if it had not happened.
        raise NewerSchemaError(f"the journal has a fact of the kind {kind!r}, which this callgate does not know: {_GO_ON}")
    try:
        return _reader(_KINDS[kind])(record)
    except (TypeError, ValueError) as error:
        raise JsonError(f"the journal holds a {kind!r} that cannot be read: {error}") from None


def decode_line(line: bytes) -> Fact:
    """Decode a line of the journal, whatever it contains.

    Raises:
        NewerSchemaError: a fact of a newer schema, or of a kind that is not known.
    """
    try:
        return decode(line)
    except NewerSchemaError:
        raise
    except JsonError as error:
        return Unreadable(problem=str(error), body=line)


# Reading -----------------------------------------------------------------------------------------------------------------

_Reader: TypeAlias = Callable[[Any], Any]
_INT_BITS_MAX = 1_000
"""Larger integers are no floats, and cannot be added to one or divided."""


@functools.cache
def _reader(form: Any) -> _Reader:
    """Make the decoder of a field from its declared type.

    It enforces the type: an id that is a list would break every lookup. It raises `TypeError` or `ValueError`.
    """
    if form is Any:
        return _same
    if is_dataclass(form):
        return _word_reader(cast("type[Any]", form))
    origin, inner = get_origin(form), get_args(form)
    if origin in (Union, types.UnionType):
        # Every union here is with None, or names words that a text usually is.
        some = [one for one in inner if one is not types.NoneType]
        is_text = all(one is str or get_origin(one) is Literal for one in some)
        read = _read_text if is_text else _reader(*some)
        if len(some) == len(inner):
            return read
        return lambda value: None if value is None else read(value)
    if origin in (tuple, list):
        return functools.partial(_read_items, _reader(inner[0]), tuple if origin is tuple else _same)
    if origin in (dict, Mapping):
        return functools.partial(_read_mapping, _reader(inner[1]))
    if form in (int, float):
        return _read_number
    return _read_text if form is str or origin is Literal else _read_scalar


def _word_reader(word: type[Any]) -> _Reader:
    hints = get_type_hints(word)
    readers = [(f.name, _reader(hints[f.name])) for f in fields(word) if f.name != "plain_json"]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"{_shown(value)} is not an object")
        record = cast("JsonObject", value)
        if word is Usage and "prompt_tokens" in record:
            record = {"input_tokens": record["prompt_tokens"], **record}  # The name in journals written before the rename.
        given = {name: reader(record[name]) for name, reader in readers if name in record}
        if word is ToolResult:
            known = given["plain_json"] = PlainJson.of(given.get("value"))  # It was just read from JSON.
            given["value"] = known.shown
        return word(**given)

    return read


def _same(value: Any) -> Any:
    return value


def _read_items(read: _Reader, made: Callable[[list[Any]], Any], value: Any) -> Any:
    if not isinstance(value, list):
        raise TypeError(f"{_shown(value)} is not a list")
    items = cast("list[Any]", value)
    return made(items if read is _same else [read(item) for item in items])


def _read_mapping(read: _Reader, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{_shown(value)} is not an object")
    items = cast("dict[str, Any]", value)
    return items if read is _same else {key: read(item) for key, item in items.items()}


def _read_number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{_shown(value)} is not a number")
    if isinstance(value, int) and value.bit_length() > _INT_BITS_MAX:
        raise ValueError(f"{_shown(value)} is too large a number")
    return value


def _read_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise TypeError(f"{_shown(value)} is not a text")
    return value


def _read_scalar(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        raise TypeError(f"{_shown(cast('object', value))} is not a single value")
    return value


def _shown(value: object) -> str:
    return repr(value)[:100]
