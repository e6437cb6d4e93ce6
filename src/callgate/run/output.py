"""What a run must come to: a Python type in, the JSON Schema that a model is told and a reader of its answer out.

The schema is an object at its root, because not every server takes another: a number, a list or a choice is asked for as
`{"answer": ...}`. Text comes in, a value or sentences that let the model correct itself go out. This file asks no model and
knows nothing of how one is held to a schema.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from callgate import strict_json
from callgate.definitions.json_forms import reader_of
from callgate.definitions.python_types import NotExpressible, adapter_for, schema_of, sentences_of
from callgate.definitions.typed_dicts import TypedDictConversion
from callgate.errors import JsonError, ToolNotDeclarable, UsageError
from callgate.machine.facts import OutputChecked
from callgate.schema import check_arguments
from callgate.types import JsonObject, ToolDefinition

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["ANSWER", "Output", "output_of"]

ANSWER = "answer"
"""The property that holds an answer which is no object."""

PROBLEMS_MAX = 10

_FENCE = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\n(.*?)```", re.DOTALL)


def output_of(kind: Any) -> Output:
    """What `output=` of a run means: a Python type, or a JSON Schema as a mapping.

    Raises:
        UsageError: there is no JSON form of the type, or the schema is none.
    """
    if isinstance(kind, Mapping):
        return Output(cast("Mapping[str, Any]", kind))
    return _kept(kind) if isinstance(kind, Hashable) else _of_type(kind)


def _of_type(kind: Any) -> Output:
    try:
        adapter = adapter_for(TypedDictConversion({}).usable(kind), {})
        return Output(schema_of(adapter), adapter)
    except NotExpressible as error:
        raise UsageError(
            f"output={_named(kind)} cannot be asked of a model: {error}; use a pydantic model, a dataclass, a TypedDict, "
            "a Literal, or lists and dicts of these"
        ) from None


_kept = functools.lru_cache(maxsize=256)(_of_type)


def _named(kind: Any) -> str:
    return getattr(kind, "__name__", None) or repr(kind)[:100]


class Output:
    """The form that an answer must have. Without an adapter the answer is checked by the schema, and stays plain JSON."""

    def __init__(self, schema: Mapping[str, Any], adapter: TypeAdapter[Any] | None = None) -> None:
        self.is_wrapped = schema.get("type") != "object"
        self.schema: JsonObject = _wrapped(schema) if self.is_wrapped else dict(schema)
        self._read = adapter and reader_of(adapter)
        self._definition = ToolDefinition(name=ANSWER, input_schema=self.schema)
        if adapter is None:
            try:
                check_arguments(self._definition, {})
            except ToolNotDeclarable as error:
                told = str(error).removeprefix(f"tool {ANSWER!r}: ").replace("its input schema", "the schema")
                raise UsageError(f"output= is not a JSON Schema that can be used: {told}") from None

    @classmethod
    def told(cls, schema: Mapping[str, Any]) -> Output:
        """What a run must come to, by the schema that its journal holds."""
        output = cls(schema)
        output.is_wrapped = list(schema.get("properties") or ()) == [ANSWER] and schema.get("required") == [ANSWER]
        return output

    def read(self, text: str) -> OutputChecked:
        """Whether an answer fits; the first reading of it that does is its value."""
        problems: tuple[str, ...] = ()
        for value in self._values(text):
            wrong = self._problems(value)
            if isinstance(wrong, OutputChecked):
                return wrong
            problems = problems or wrong
        return OutputChecked(problems=problems or (_not_json(text),))

    def value(self, plain: Any) -> Any:
        """The value of the type, out of the JSON that was found to fit.

        Raises:
            UsageError: it does not fit the type any more.
        """
        if self._read is None:
            return plain
        from pydantic import ValidationError

        try:
            return self._read(strict_json.dump(plain))
        except ValidationError as error:
            told = "; ".join(sentences_of(error, plain))
            raise UsageError(f"the answer that is kept does not fit output= any more: {told}") from None

    def _problems(self, value: Any) -> OutputChecked | tuple[str, ...]:
        if self._read is None:
            checked = check_arguments(self._definition, {ANSWER: value} if self.is_wrapped else _object(value))
            if checked.problems or not (self.is_wrapped or isinstance(value, dict)):
                return tuple(checked.problems[:PROBLEMS_MAX]) or ("the answer should be an object",)
            return OutputChecked(value=checked.args[ANSWER] if self.is_wrapped else dict(checked.args))
        from pydantic import ValidationError

        try:
            self._read(strict_json.dump(value))
        except ValidationError as error:
            return sentences_of(error, value)[:PROBLEMS_MAX]
        return OutputChecked(value=value)

    def _values(self, text: str) -> Iterator[Any]:
        """What an answer may be meant to say, the likeliest first: as it is, out of a fence, out of the words around it."""
        seen: list[str] = []
        for written in _readings(text):
            if written in seen:
                continue
            seen.append(written)
            try:
                value = strict_json.parse(written)
            except JsonError:
                continue
            if self.is_wrapped and isinstance(value, dict) and list(cast("JsonObject", value)) == [ANSWER]:
                yield value[ANSWER]
            yield value
        if self.is_wrapped:
            yield strict_json.without_surrogates(text.strip())  # A word or a sentence, without its quotes.


def _object(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _readings(text: str) -> Iterator[str]:
    stripped = text.strip()
    yield stripped
    for found in reversed(_FENCE.findall(text)):
        yield found.strip()
    for opening, closing in ("{}", "[]"):
        first, last = stripped.find(opening), stripped.rfind(closing)
        if 0 <= first < last:
            yield stripped[first : last + 1]


def _not_json(text: str) -> str:
    return "the answer is not JSON" if text.strip() else "the answer is empty"


def _wrapped(schema: Mapping[str, Any]) -> JsonObject:
    """The schema of an object with one property; what is defined for `$ref`s moves to its root."""
    inner = dict(schema)
    shared = {key: inner.pop(key) for key in ("$defs", "definitions", "$schema") if key in inner}
    return {
        **shared,
        "type": "object",
        "properties": {ANSWER: inner},
        "required": [ANSWER],
        "additionalProperties": False,
    }
