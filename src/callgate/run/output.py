"""Typed output: a Python type in, the declared JSON Schema and a parser of the answer out.

The schema is an object at its root, because not every server accepts another: a number, a list or a choice is requested
as `{"answer": ...}`. Takes text, returns a value or sentences that let the model correct itself. Asks no model and knows
nothing of constrained decoding.
"""

from __future__ import annotations

import functools
import json
import re
import types
from collections.abc import Hashable, Iterator, Mapping
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, cast

from callgate import strict_json, user_code
from callgate.definitions.json_decoding import has_decimals, reader_of
from callgate.definitions.python_types import NotExpressibleError, adapter_for, schema_of, sentences_of
from callgate.definitions.typed_dicts import TypedDictConversion
from callgate.errors import JsonError, ToolNotDeclarableError, UsageError
from callgate.machine.facts import OutputChecked
from callgate.schema import check_arguments
from callgate.schema.refs import Place, Source, as_mapping, with_references
from callgate.threads import error_sentence
from callgate.types import JsonObject, ToolDefinition

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from callgate.run.partial_output import PartialOutput

__all__ = ["ANSWER", "Output", "output_of"]

ANSWER = "answer"
"""The property for an answer that is not an object."""

PROBLEMS_MAX = 10

_READINGS_MAX = 100
_TAG = re.compile(r"[\w+-]*+\s*+")
_OPENING = re.compile(r"\{\s*+[\"}]|\[\s*+[\[\]{\"\w-]")
_DECODER = json.JSONDecoder()
_ESCAPE_CHARS_MAX = 6
"""Characters of the longest token besides strings and numbers: of an escape, and of `false`."""


def output_of(kind: Any) -> Output:
    """Interpret `output=` of a run: a Python type, or a JSON Schema as a mapping.

    Raises:
        UsageError: the type has no JSON form, or the schema is invalid.
    """
    if isinstance(kind, Mapping):
        return Output(cast("Mapping[str, Any]", kind))
    if isinstance(kind, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        raise UsageError(f"output={_named(kind)} is a function: pass a type, such as a pydantic model, or a JSON Schema")
    return _kept(kind) if isinstance(kind, Hashable) else _of_type(kind)


def _of_type(kind: Any) -> Output:
    try:
        adapter = adapter_for(TypedDictConversion({}).usable(kind), {})
        return Output(schema_of(adapter), adapter, kind)
    except NotExpressibleError as error:
        raise UsageError(
            f"output={_named(kind)} cannot be asked of a model: {error}; use a pydantic model, a dataclass, a TypedDict, "
            "a Literal, or lists and dicts of these"
        ) from None


_kept = functools.lru_cache(maxsize=256)(_of_type)


def _named(kind: Any) -> str:
    return getattr(kind, "__name__", None) or repr(kind)[:100]


class Output:
    """The form that an answer must have. Without an adapter the answer is checked by the schema, and stays plain JSON."""

    def __init__(self, schema: Mapping[str, Any], adapter: TypeAdapter[Any] | None = None, kind: Any = None) -> None:
        self._kind = schema if kind is None else kind
        self.is_wrapped = schema.get("type") != "object"
        self.schema: JsonObject = _wrapped(schema) if self.is_wrapped else dict(schema)
        self._has_format = any("format" in as_mapping(place.schema) for place in Source(schema).places())
        self._read = adapter and reader_of(adapter)
        self._has_decimals = adapter is not None and has_decimals(adapter)
        self._definition = ToolDefinition(name=ANSWER, input_schema=self.schema)
        try:
            check_arguments(self._definition, {})
        except ToolNotDeclarableError as error:
            told = str(error).removeprefix(f"tool {ANSWER!r}: ").replace("its input schema", "the schema")
            raise UsageError(f"output= is not a JSON Schema that can be used: {told}") from None

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any]) -> Output:
        """Restore the output of a run from the schema in its journal."""
        output = cls(schema)
        output.is_wrapped = list(schema.get("properties") or ()) == [ANSWER] and schema.get("required") == [ANSWER]
        return output

    def partial(self) -> PartialOutput:
        """Return a reader of the answer while it arrives."""
        from callgate.run.partial_output import PartialOutput

        return PartialOutput(self._kind, is_wrapped=self.is_wrapped)

    def read(self, text: str) -> OutputChecked:
        """True if an answer fits; the first reading of it that does is its value."""
        problems: tuple[str, ...] = ()
        for value in self._values(text):
            wrong = self._problems(value)
            if isinstance(wrong, OutputChecked):
                return wrong
            problems = problems or wrong
        return OutputChecked(problems=problems or (_not_json(text),))

    def value(self, plain: Any) -> Any:
        """Return the value of the type from checked JSON.

        Raises:
            UsageError: it does not fit the type any more.
        """
        if self._read is None:
            return plain
        read = self._read
        outcome = user_code.call(lambda: read(strict_json.dump(plain)))
        if outcome.error is not None:
            told = "; ".join(_sentences(outcome.error, plain))
            raise UsageError(f"the answer that is kept does not fit output= any more: {told}") from None
        return outcome.value

    def _problems(self, value: Any) -> OutputChecked | tuple[str, ...]:
        """The value as the schema and then the type take it, or what is wrong with it."""
        if not self.is_wrapped and not isinstance(value, dict):
            return ("the answer should be an object",)
        checked = check_arguments(self._definition, {ANSWER: value} if self.is_wrapped else cast("JsonObject", value))
        if checked.problems:
            return tuple(checked.problems[:PROBLEMS_MAX])
        fitting: Any = checked.args[ANSWER] if self.is_wrapped else dict(checked.args)
        read = self._read
        outcome = None if read is None else user_code.call(lambda: read(strict_json.dump(fitting)))
        if outcome is not None and outcome.error is not None:
            return tuple(_sentences(outcome.error, fitting)[:PROBLEMS_MAX])
        return OutputChecked(value=fitting)

    def _values(self, text: str) -> Iterator[Any]:
        """Return candidate values of an answer, the likeliest first: the whole text, from a fence, from inside prose."""
        is_json = is_answer = False
        read: list[str] = []
        for number, written in enumerate(dict.fromkeys(_readings(text))):
            if any(written in whole for whole in read):
                continue  # A part of an answer is not the answer: `[]` of `{"error": "none found", "items": []}`.
            try:
                value = strict_json.parse(written)
            except JsonError:
                continue
            read.append(written)
            is_json = is_json or not number
            if self._has_decimals and "digits" in strict_json.lost_by_reading(written):
                # A `Decimal` has the digits that a double loses; if a float stands beside it, what is rounded fits.
                exact = strict_json.parse_inexact_as_text(written)
                yield exact[ANSWER] if self._is_answer(exact) else exact
            if self._is_answer(value):
                is_answer = is_answer or not number
                yield value[ANSWER]
            yield value
        if self.is_wrapped and not is_answer and not (is_json and self._has_format):
            yield strict_json.without_surrogates(text.strip())  # A word or a sentence, without its quotes.

    def _is_answer(self, value: Any) -> bool:
        """True if the value is the object around an answer that is none itself."""
        return self.is_wrapped and isinstance(value, dict) and list(cast("JsonObject", value)) == [ANSWER]


def _sentences(error: BaseException, value: Any) -> list[str]:
    """Return the errors of a value; the validators of a type may raise anything."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return list(sentences_of(error, value))
    return [strict_json.without_surrogates(error_sentence(error))]


def _readings(text: str) -> Iterator[str]:
    stripped = text.strip()
    yield stripped
    yield from _fenced(text)
    found, end = _among_words(stripped)
    yield from found
    for opening, closing in ("{}", "[]"):
        first, last = stripped.find(opening, 0, end), stripped.rfind(closing, 0, end)
        if 0 <= first < last:
            yield stripped[first : last + 1]


def _fenced(text: str) -> list[str]:
    """Return the text after lines that open or close code fences, the last first."""
    found = (piece.partition("\n") for piece in text.split("```")[: -2 * _READINGS_MAX : -1])
    return [inside.strip() for tag, _, inside in found if _TAG.fullmatch(tag)]


def _among_words(text: str) -> tuple[list[str], int]:
    """Return objects and lists inside prose, the last first, and where the prose ends: at a value that was cut off, if
    there is one, whose parts are not looked for. Each false start costs a pass over the text, so only a few are tried.
    """
    found: list[str] = []
    place, misread = 0, 0
    while misread < _READINGS_MAX and (opening := _OPENING.search(text, place)) is not None:
        begin = opening.start()
        try:
            _, place = _DECODER.raw_decode(text, begin)
            found.append(text[begin:place])
        except (RecursionError, ValueError) as error:
            if isinstance(error, JSONDecodeError) and _is_cut_off(text, error):
                return found[: -_READINGS_MAX - 1 : -1], begin
            place = begin + 1
            misread += 1
    return found[: -_READINGS_MAX - 1 : -1], len(text)


def _is_cut_off(text: str, error: JSONDecodeError) -> bool:
    """True if the text ends before the value does: within a string, or within the last characters."""
    return error.msg.startswith("Unterminated string") or len(text) - error.pos <= _ESCAPE_CHARS_MAX


def _not_json(text: str) -> str:
    return "the answer is not JSON" if text.strip() else "the answer is empty"


def _wrapped(schema: Mapping[str, Any]) -> JsonObject:
    """Wrap a schema in an object with one property, and adjust its references.

    Definitions for `$ref`s move to the root, unless the schema has its own `$id`: then they resolve there.
    """
    source = Source(schema)
    moved = ("$schema",) if source.root.base else ("$schema", "$defs", "definitions")

    def reference(place: Place, keyword: str) -> str | None:
        named: Any = place.schema[keyword]
        if place.base or not isinstance(named, str) or not named.startswith("#"):
            return None
        if keyword != "$ref" and source.target(place, keyword) is None:
            return None
        is_pointer = named == "#" or (named.startswith("#/") and named.split("/")[1] not in moved)
        return f"#/properties/{ANSWER}{named[1:]}" if is_pointer else None

    inner = with_references(source, reference) or dict(schema)
    shared = {key: inner.pop(key) for key in moved if key in inner}
    return {
        **shared,
        "type": "object",
        "properties": {ANSWER: inner},
        "required": [ANSWER],
        "additionalProperties": False,
    }
