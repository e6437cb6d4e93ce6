"""The parts of messages that each API's clients may send; everything else is refused, and nothing is left out in silence.

Every endpoint has one table: the name of a part -> how it is carried. A part that no model would see is answered with 400,
its place in the request and what to send instead, so that nobody takes an answer for one that knows it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, cast

from callgate.definitions.json_node import ShapeError
from callgate.definitions.transfer import STANDS_IN
from callgate.server.errors import HttpError
from callgate.setting_values import SHARED_FORMS, ValueForm, flag, whole
from callgate.types import JsonObject, Loss

__all__ = [
    "Carry", "PartTable", "as_is", "check_data", "check_ids", "checked_setting", "needs", "reading", "refuse",
    "refuse_left_out", "skipped",
]  # fmt: skip

Carry: TypeAlias = "Callable[[JsonObject, str], list[JsonObject]]"
"""A part and its place -> the parts that it is carried as.

Raises:
    HttpError: it cannot be carried.
"""
SHOWN_CHARS = 100


def refuse(where: str, why: str) -> NoReturn:
    """Refuse a field of a request.

    Raises:
        HttpError: always.
    """
    raise HttpError(400, "invalid_request", f"{where}: {why}", param=where)


def check_ids(item: JsonObject, where: str) -> None:
    """Refuse an id that is no text, by which nothing could be found.

    Raises:
        HttpError: there is one.
    """
    for name in _IDS:
        if not isinstance(item.get(name), (str, type(None))):
            refuse(f"{where}.{name}", "an id is a text")


def checked_setting(field: str, setting: str, value: Any) -> Any:
    """The value of a setting, as the field of a request gives it.

    Raises:
        HttpError: it is not of the form that every model takes.
    """
    form = _FORMS.get(setting)
    if form is not None and not form.fits(value):
        refuse(field, f"expected {form.words}")
    return value


_BYTES = ("data", "file_data")
"""Fields with bytes."""
_IDS = ("id", "call_id", "tool_call_id", "tool_use_id", "toolCallId")
"""Fields with ids, in all the APIs."""
_FORMS: Mapping[str, ValueForm] = {
    **SHARED_FORMS,
    "seed": whole(-(2**63), 2**63 - 1),
    "stop_sequences": ValueForm(
        "a text, or a list of texts",
        lambda value: isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value)),  # pyright: ignore[reportUnknownVariableType]
    ),
    "parallel_tool_calls": flag(),
    "logit_bias": ValueForm("an object", lambda value: isinstance(value, dict)),
    "user": ValueForm("a text", lambda value: isinstance(value, str)),
    "thinking": ValueForm("a text or a whole number", lambda value: isinstance(value, str) or type(value) is int),
}
"""Setting -> the form of its value."""
_DATA_URL = re.compile(r"data:[^,]*;base64,(?P<data>[A-Za-z0-9+/_=\s-]+)", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_=\s-]+")


def check_data(value: Any, where: str, *, is_base64: bool) -> None:
    """Refuse media in an address, or in a field of bytes, that are not base64.

    Raises:
        HttpError: they are not.
    """
    if not isinstance(value, str):
        return
    if value[:5].lower() == "data:":
        if _DATA_URL.fullmatch(value) is None:
            refuse(where, "a data URL is 'data:', a type, ';base64,' and the bytes in base64")
    elif is_base64 and _BASE64.fullmatch(value) is None:
        refuse(where, "expected bytes in base64")


def as_is(part: JsonObject, where: str) -> list[JsonObject]:
    """Carry a part as it is."""
    return [part]


def skipped(part: JsonObject, where: str) -> list[JsonObject]:
    """Carry nothing: a record of an earlier answer that says nothing to a model."""
    return []


def needs(*fields: str, within: str | None = None, instead: str = "") -> Carry:
    """Carry a part that has one of the fields, in the object `within` it or in itself.

    `instead` is what to do about a part that has none, as one that names a file kept elsewhere.
    """

    def carry(part: JsonObject, where: str) -> list[JsonObject]:
        inner: Any = part if within is None else part.get(within)
        place = where if within is None else f"{where}.{within}"
        if isinstance(inner, str) and within is not None:  # A bare address.
            check_data(inner, place, is_base64=False)
            return [part]
        if not isinstance(inner, dict):
            refuse(place, f"expected an object with {' or '.join(fields)}")
        given = cast("JsonObject", inner)
        if any(isinstance(given.get(field), (str, dict)) and given[field] for field in fields):
            for field in fields:
                check_data(given.get(field), f"{place}.{field}", is_base64=field in _BYTES)
            return [part]
        other = next((name for name in given if name.endswith("_id") and given[name]), None)
        if other is not None:
            refuse(f"{place}.{other}", f"what is kept elsewhere cannot be read here; {instead or f'send {fields[0]}'}")
        refuse(place, f"it has neither content nor an address; {instead or 'send ' + ' or '.join(fields)}")

    return carry


@dataclass(frozen=True, slots=True)
class PartTable:
    """The parts that an endpoint takes."""

    noun: str
    """The word for one of them in messages."""
    taken: Mapping[str, Carry]
    index: str = "[{}]"
    """Notation of the API for a place in a list."""
    kind_of: Callable[[JsonObject], str | None] = lambda part: cast("str | None", part.get("type"))
    field: str = ".type"
    """The field of a part that says what it is."""

    def carried(self, parts: Any, where: str) -> Any:
        """The parts of a list as they are carried; what is no list of objects is left to those who read it.

        Raises:
            HttpError: one of them cannot be carried.
        """
        if not isinstance(parts, list):
            return parts
        carried: list[Any] = []
        for number, part in enumerate(cast("list[Any]", parts)):
            place = where + self.index.format(number)
            carried += self.one(cast("JsonObject", part), place) if isinstance(part, dict) else [part]
        return carried

    def one(self, part: JsonObject, where: str) -> list[JsonObject]:
        """One part as it is carried."""
        check_ids(part, where)
        kind = self.kind_of(part)
        if kind is None:  # Those who read it say what is missing.
            return [part]
        carry = self.taken.get(kind) if isinstance(cast("Any", kind), str) else None
        if carry is None:
            known = ", ".join(repr(name) for name in self.taken)
            shown = str(kind)[:SHOWN_CHARS]
            refuse(
                f"{where}{self.field}",
                f"a {self.noun} of type {shown!r} cannot be carried to the model; the types that can are {known}",
            )
        return carry(part, where)


@contextlib.contextmanager
def reading(base: str, index: str = "[{}]", *, before: int = 0) -> Generator[None]:
    """Name the field of the request when what is read in the context has not the shape that it must have.

    Raises:
        HttpError: it has not.
    """
    try:
        yield
    except ShapeError as error:
        refuse(_place(error.pointer, base, index, before) or "the body", error.problem)


def _place(pointer: str, base: str, index: str, before: int) -> str:
    """The place of a JSON pointer below a field of the request, as its API writes it."""
    first, *rest = pointer.removeprefix("/").split("/")
    steps = [str(int(first) - before) if first.isdecimal() else first, *rest]
    where = "".join(index.format(step) if step.isdecimal() else f".{step}" for step in steps if step)
    return f"{base}{where}".removeprefix(".")


def refuse_left_out(losses: Iterable[Loss], base: str, index: str = "[{}]", *, before: int = 0) -> None:
    """Refuse media that a model would get a sentence for, and not the media.

    Args:
        losses: What a conversion says that it could not carry.
        base: The field of the request that was converted.
        index: How the API writes a place in a list.
        before: How many entries were put before those of the request.

    Raises:
        HttpError: there are such media.
    """
    for loss in losses:
        if loss.instead != STANDS_IN:
            continue
        refuse(
            _place(loss.pointer, base, index, before),
            f"media of type {loss.keyword!r} cannot be carried to the model ({loss.reason}); send the bytes in base64, "
            "in a type that models take, or an http, https or gs address",
        )
