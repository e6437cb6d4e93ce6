"""Partial typed output: the text of an answer so far in, a validated value of the type so far out.

Fields that have not arrived are None or their default; values that are there are validated as the type says. A number counts
when something follows it, a date or a member of an enumeration when its string is complete.
Knows nothing of models and runs.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import re
import types
import typing
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias, Union, cast

from callgate import user_code
from callgate.definitions.json_decoding import reader_of
from callgate.definitions.python_types import NotExpressibleError, adapter_for
from callgate.definitions.typed_dicts import TypedDictConversion
from callgate.schema import check_arguments
from callgate.types import JsonObject, ToolDefinition

__all__ = ["PartialOutput", "partial_type"]

ANSWER = "answer"
CHARS_MAX = 1_000_000
"""Characters of an answer up to which it is read while it arrives."""
NUMBER_CHARS = 400
"""Characters of the longest number."""
STEPS = 64
"""A long answer is read again when it has grown by one part in so many, so that the work stays linear."""
_DROPPED = frozenset({"required", "minItems", "minProperties", "minContains", "contains", "dependentRequired"})
_CONTAINERS: tuple[Any, ...] = (list, set, frozenset, dict, tuple, abc.Sequence, abc.Mapping)

_Trailing: TypeAlias = Literal[True, "trailing-strings"]


class PartialOutput:
    """The output of one answer while it arrives.

    Args:
        kind: The type, or a JSON Schema.
        is_wrapped: True if the value is asked for as `{"answer": value}`.
    """

    def __init__(self, kind: Any, *, is_wrapped: bool) -> None:
        is_schema = isinstance(kind, Mapping)
        self._validate = _schema_check(cast("Mapping[str, Any]", kind)) if is_schema else _type_check(kind)
        self._is_wrapped = is_wrapped
        self.begin()

    def begin(self) -> None:
        """Begin another answer."""
        self._pieces: list[str] = []
        self._chars = self._read_at = 0
        self._last: Any = _NOTHING

    def feed(self, text: str) -> tuple[Any] | None:
        """Take a piece of the answer; return the value so far, if it has changed and is valid."""
        self._pieces.append(text)
        self._chars += len(text)
        if self._chars > CHARS_MAX or self._chars - self._read_at < self._chars // STEPS:
            return None
        self._read_at = self._chars
        whole = "".join(self._pieces)
        self._pieces = [whole]
        if (escape := _ESCAPE.search(whole)) is not None:  # Its string would be dropped, though it was shown already.
            whole = whole[: escape.start("half")]
        if whole[-1:] in _NUMBER_ENDS:
            whole = _without_number(whole)
        start = min((place for sign in "{[" if (place := whole.find(sign)) >= 0), default=None)
        if start is None:
            return None
        text = whole[start:]
        complete, grown = self._parsed(text, True), self._parsed(text, "trailing-strings")
        is_open = grown is not _NOTHING and grown != complete
        for value in (grown, complete) if is_open else (complete,):
            if value is _NOTHING:
                continue
            if value == self._last:
                return None
            outcome = user_code.call(functools.partial(self._validate, value))
            if outcome.error is None and (value is complete or self._is_text(text, outcome.value)):
                self._last = value
                return (outcome.value,)
        return None

    def _is_text(self, text: str, value: Any) -> bool:
        """True if the string at the end of an answer is text in the value, and so may grow; not the beginning of a date."""
        marked = self._parsed(text + _MARK, "trailing-strings")
        outcome = user_code.call(functools.partial(self._validate, marked))
        if outcome.error is not None:
            return False
        found = [*_texts(outcome.value)]
        return any(_MARK in one for one in found) and len(found) == len([*_texts(value)])

    def _parsed(self, text: str, trailing: _Trailing) -> Any:
        from pydantic_core import from_json

        try:
            value: Any = from_json(text, allow_partial=trailing)
        except ValueError:  # It goes on after its end, as with a fence, or it is not JSON.
            return _NOTHING
        if not isinstance(value, dict):
            return value if self._is_wrapped else _NOTHING
        fields = cast("JsonObject", value)
        if not self._is_wrapped:
            return fields
        # As with a whole answer, a model may write an object without the wrapper.
        return fields.get(ANSWER, fields or _NOTHING)


_NOTHING = object()
_MARK = "\ue0f1\ue0f2"
"""Characters for private use, which no date, number or name of an enumeration has."""
_NUMBER_ENDS = frozenset("0123456789.eE+-")
_NUMBER = re.compile(r"(?<![\w.+-])-?\d[\d.eE+-]*\Z")
# The beginning of an escape, and the first half of a pair of them: whether a backslash opens one depends on those before it.
_ESCAPE = re.compile(
    r"(?<!\\)(?:\\\\)*(?P<half>(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?|\\(?:u[0-9a-fA-F]{0,3})?))\Z"
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def _without_number(text: str) -> str:
    """Return a text without the number at its end, which may go on; one inside of a string is text."""
    found = _NUMBER.search(text, max(0, len(text) - NUMBER_CHARS))
    if found is None or '"' in _STRING.sub("", text[: found.start()]):
        return text
    return text[: found.start()]


def _texts(value: Any) -> Iterator[str]:
    """The plain texts in a value."""
    if type(value) is str:
        yield value
        return
    inner: Any = ()
    if isinstance(value, Mapping):
        inner = (*cast("Mapping[Any, Any]", value), *cast("Mapping[Any, Any]", value).values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = cast("list[Any]", value)
    elif dataclasses.is_dataclass(value) or hasattr(cast("object", type(value)), "model_fields"):
        inner = vars(value).values() if hasattr(value, "__dict__") else ()
    for one in inner:
        yield from _texts(one)


def _schema_check(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    definition = ToolDefinition(
        name=ANSWER, input_schema={"type": "object", "properties": {ANSWER: _relaxed(schema)}, "required": [ANSWER]}
    )

    def check(value: Any) -> Any:
        checked = check_arguments(definition, {ANSWER: value})
        if checked.problems:
            raise ValueError(checked.problems[0])
        return checked.args[ANSWER]

    return check


def _relaxed(schema: Any) -> Any:
    """The schema without what demands that something is there."""
    if isinstance(schema, Mapping):
        found = cast("Mapping[str, Any]", schema)
        return {key: _relaxed(value) for key, value in found.items() if key not in _DROPPED or isinstance(value, Mapping)}
    return [_relaxed(item) for item in cast("list[Any]", schema)] if isinstance(schema, list) else schema


@functools.lru_cache(maxsize=256)
def _adapter(kind: Any) -> Any:
    try:
        return adapter_for(TypedDictConversion({}).usable(partial_type(kind)), {})
    except Exception:  # Types bring their own code along, which may raise anything.
        return adapter_for(TypedDictConversion({}).usable(kind), {})


def _type_check(kind: Any) -> Callable[[Any], Any]:
    try:
        adapter = _adapter(kind)
    except TypeError:  # It has no hash.
        adapter = _adapter.__wrapped__(kind)
    except NotExpressibleError:
        return _refused
    from pydantic_core import to_json

    # From JSON, as the whole answer will be: a strict model takes "2026-01-31" for a date from JSON only.
    read = reader_of(adapter)
    return lambda value: read(to_json(value))


def _refused(value: Any) -> Any:
    raise ValueError("the type has no JSON form")


# Types --------------------------------------------------------------------------------------------------------------------


def partial_type(kind: Any, inside: tuple[Any, ...] = ()) -> Any:
    """The type with every field optional; one of its own kind, so that `isinstance` holds.

    Types inside of themselves stay as they are from the second level on.
    """
    from pydantic import BaseModel

    if any(kind is one for one in inside):
        return kind
    inner = functools.partial(partial_type, inside=(*inside, kind))
    origin: Any = typing.get_origin(kind)
    args = typing.get_args(kind)
    if origin is Annotated:
        return Annotated[(inner(args[0]), *kind.__metadata__)]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(inner, args))]  # noqa: UP007 - the members are known only now
    if origin in _CONTAINERS:
        return origin[tuple(arg if arg is Ellipsis else inner(arg) for arg in args)]
    if not inspect.isclass(kind) or origin is not None:
        return kind
    if issubclass(kind, BaseModel):
        return _partial_model(kind, inner)
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        made: Any = typing.TypedDict
        return made(kind.__name__, {name: inner(_bare(hint)) for name, hint in hints.items()}, total=False)
    return _partial_dataclass(kind, inner) if dataclasses.is_dataclass(kind) else kind


def _bare(hint: Any) -> Any:
    is_marked = typing.get_origin(hint) in (typing.Required, typing.NotRequired)
    return typing.get_args(hint)[0] if is_marked else hint


def _partial_model(kind: Any, inner: Callable[[Any], Any]) -> Any:
    from pydantic import create_model

    fields: dict[str, Any] = {}
    for name, known in kind.model_fields.items():
        field = copy.copy(known)
        annotation = inner(field.annotation)
        if field.is_required():
            field.default, annotation = None, annotation | None
        field.annotation = annotation
        fields[name] = (annotation, field)
    return create_model(kind.__name__, __base__=_with_safe_properties(kind), __module__=kind.__module__, **fields)


def _with_safe_properties(kind: Any) -> Any:
    """The model, with computed fields that are None while they raise: `repr` and JSON ask for them."""
    from pydantic import computed_field

    def safe(info: Any) -> Any:
        def value(self: Any) -> Any:
            return user_code.call(functools.partial(info.wrapped_property.__get__, self, type(self))).value

        return computed_field(return_type=Any, alias=info.alias, repr=info.repr)(property(value))

    computed: dict[str, Any] = {name: safe(info) for name, info in kind.model_computed_fields.items()}
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind)(kind.__name__, (kind,), named | computed) if computed else kind


def _partial_dataclass(kind: Any, inner: Callable[[Any], Any]) -> Any:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        is_required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        hint = inner(hints[field.name])
        if is_required:
            fields.append((field.name, Union[hint, None], dataclasses.field(default=None, kw_only=True)))  # noqa: UP007
    frozen = kind.__dataclass_params__.frozen
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), frozen=frozen, kw_only=True)
