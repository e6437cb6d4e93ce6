"""Facts as lines of JSON and back: what the journal holds."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, cast

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
    Fact,
    HistoryGiven,
    HistoryShortened,
    KnownTool,
    ModelAnswered,
    ModelFailed,
    NestedCall,
    OutputChecked,
    Recovered,
    Renamed,
    Rewound,
    RunStarted,
    ToolsKnown,
)
from callgate.types import (
    Decision,
    FunctionCall,
    JsonObject,
    Limits,
    PlainJson,
    SessionRule,
    ToolResult,
    Usage,
)

__all__ = ["SCHEMA_VERSION", "decode", "encode"]

SCHEMA_VERSION = 1


# To JSON and back --------------------------------------------------------------------------------------------------------

_KINDS: dict[str, type[Any]] = {
    "tools_known": ToolsKnown, "history_given": HistoryGiven, "run_started": RunStarted, "model_answered": ModelAnswered,
    "model_failed": ModelFailed, "call_checked": CallChecked, "call_decided": CallDecided,
    "approval_answered": ApprovalAnswered, "always_revoked": AlwaysRevoked, "call_started": CallStarted,
    "call_ended": CallEnded, "cancelled": Cancelled, "recovered": Recovered, "history_shortened": HistoryShortened,
    "rewound": Rewound, "adopted": Adopted, "output_checked": OutputChecked, "inner_call": NestedCall,
    "renamed": Renamed,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}

# Fields of facts that hold words rather than plain JSON. Words hold no further words, so their own fields are plain.
_WORDS: dict[str, type[Any]] = {
    "calls": FunctionCall, "salvaged": FunctionCall, "result": ToolResult, "decision": Decision, "usage": Usage,
    "limits": Limits, "tools": KnownTool, "rule": SessionRule,
}  # fmt: skip
_SELDOM = frozenset({"at_s", "request"})
"""Fields that are not written where they are empty."""
_TUPLES = frozenset({"calls", "salvaged", "problems", "coercions", "notes", "media"})


def encode(fact: Fact) -> bytes:
    """The fact as one line of JSON, with its kind and the version of the schema."""
    record: JsonObject = {"v": SCHEMA_VERSION, "kind": _NAMES[type(fact)], **_plain_fields(fact)}
    result = fact.result if isinstance(fact, (CallEnded, NestedCall)) else None
    known = result.known_json if result is not None else None
    if known is None or known.encoded is None:
        return strict_json.dump(record)
    # The JSON of a long value is there already: it is put where the value ends the result, and the result ends the record.
    short = {name: value for name, value in record.pop("result").items() if name != "value"}
    return strict_json.dump({**record, "result": short})[:-2] + b',"value":' + known.encoded + b"}}"


def decode(line: bytes | str) -> Fact:
    """The fact that `encode` wrote. Fields of later versions of the same schema are ignored.

    Raises:
        JsonError: not a fact, or one of a schema that this version does not know.
    """
    # Contents nest as deep as a tool's result may, so the journal allows somewhat more than the wire.
    raw = strict_json.parse(line, depth_max=2 * strict_json.DEPTH_MAX)
    record = cast("JsonObject", raw) if isinstance(raw, dict) else {}
    kind, version = record.get("kind"), record.get("v")
    if not isinstance(kind, str) or version is None:
        raise JsonError("the journal holds a line that is not a fact")
    if version != SCHEMA_VERSION:
        raise JsonError(f"the journal has schema version {version!r}; this callgate reads version {SCHEMA_VERSION}")
    if kind not in _KINDS:
        raise JsonError(f"the journal holds a fact of the unknown kind {kind!r}")
    try:
        return _built(_KINDS[kind], record)
    except (TypeError, ValueError, AttributeError) as error:
        raise JsonError(f"the journal holds a {kind!r} that cannot be read: {error}") from None


def _plain_fields(fact: Fact) -> JsonObject:
    return {
        f.name: _plain(f.name, getattr(fact, f.name))
        for f in fields(fact)
        if f.name not in _SELDOM or getattr(fact, f.name) is not None
    }


def _plain(name: str, value: Any) -> Any:
    if name not in _WORDS or not _is_word(value):
        return value
    if name == "tools":
        return {key: _plain_word(item) for key, item in value.items()}
    return [_plain_word(item) for item in value] if name in _TUPLES else _plain_word(value)


def _is_word(value: Any) -> bool:
    # A rule is a word where an answer makes one, and the name of one where it is revoked.
    return value is not None and not isinstance(value, str)


def _plain_word(word: Any) -> JsonObject:
    return {f.name: getattr(word, f.name) for f in fields(word) if f.name != "plain_json"}


def _built(kind: type[Any], record: JsonObject) -> Any:
    return kind(**{f.name: _read(f.name, record[f.name]) for f in fields(kind) if f.name in record})


def _read(name: str, value: Any) -> Any:
    word = _WORDS.get(name)
    if word is None or not _is_word(value):
        return tuple(value) if name in _TUPLES else value
    if name == "tools":
        return {key: _built_word(word, item) for key, item in value.items()}
    return tuple(_built_word(word, item) for item in value) if name in _TUPLES else _built_word(word, value)


def _built_word(word: type[Any], record: JsonObject) -> Any:
    known = {f.name: record[f.name] for f in fields(word) if f.name in record}
    built = word(**{name: tuple(value) if name in ("notes", "media", "paths") else value for name, value in known.items()})
    if isinstance(built, ToolResult):
        return replace(built, plain_json=PlainJson(built.value))  # It was just read from JSON.
    # The first usage of a run is taken as it is, and only added to later: what cannot be added must not come in.
    if isinstance(built, Usage) and not all(isinstance(count, int) for count in known.values()):
        raise ValueError("what was used is not counted in whole numbers")
    return built
