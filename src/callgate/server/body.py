"""The body of a request: bytes in, a JSON object that fits its schema out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from starlette.requests import ClientDisconnect, Request

from callgate import strict_json
from callgate.server.errors import HttpError
from callgate.types import JsonObject

__all__ = ["MESSAGES_MAX", "header_of", "int_of", "off_loop", "read_json"]

OFF_LOOP_BYTES = 32 * 1024
"""Larger bodies are parsed and converted in a thread, so that other clients do not wait."""
VALUES_MAX = 100_000
"""Commas and colons between the values of one body: what has more is refused before anybody parses it."""
MESSAGES_MAX = 2_000
"""Messages in one conversation that a client sends."""
SIZE = "callgate.body_bytes"
"""In a scope: the size of the body."""
SHOWN_CHARS = 300
DESCRIBED_VALUES = 200
DESCRIBED_FIELDS = 30
DESCRIBED_CHARS = 20_000
"""The part of a body that is looked at to say why it does not fit; texts with a limit of their own have a lower one."""
SENTENCE = "x-otherwise"
"""In a schema: what to say of a value that fits none of its alternatives."""


T = TypeVar("T")

_VALIDATORS: dict[int, tuple[JsonObject, Any]] = {}
"""Schemas are constants of their modules, so what they are is who they are: kept with them, their ids stay theirs."""


def _validator(schema: JsonObject) -> Any:
    known = _VALIDATORS.get(id(schema))
    if known is None:
        import jsonschema_rs

        known = _VALIDATORS[id(schema)] = (schema, jsonschema_rs.Draft202012Validator(schema))
    return known[1]


async def read_json(request: Request, schema: JsonObject, *, required: bool = True) -> JsonObject:
    """The body as an object that fits the schema.

    Raises:
        HttpError: it is not JSON, or does not fit.
    """
    data = await _whole(request)
    if not data.strip():
        if not required:
            return {}
        raise HttpError(400, "invalid_json", "The body is empty: send a JSON object.")
    request.scope[SIZE] = len(data)
    return await off_loop(request, partial(_parse, data, schema))


def _parse(data: bytes, schema: JsonObject) -> JsonObject:
    if strict_json.has_more_separators(data, VALUES_MAX):
        raise HttpError(413, "too_large", f"The body has too many values: at most {VALUES_MAX} commas and colons are read.")
    value = strict_json.parse(data)
    if strict_json.has_duplicate_keys(data, value):  # A proxy may have gone by the other one.
        raise HttpError(400, "invalid_json", f"A key stands twice in one object: {_twice(data)!r}. Send each once.")
    if not _validator(schema).is_valid(value):
        raise HttpError(422, "invalid_request", _misfit(value, schema))
    return value


def _twice(data: bytes) -> str:
    """The first key that an object has twice."""
    found: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        found.extend(key for key, _ in pairs if key in seen or seen.add(key))

    json.loads(data, object_pairs_hook=members)
    return found[0][:SHOWN_CHARS]


def _misfit(value: Any, schema: JsonObject) -> str:
    """A sentence about a value that does not fit the schema.

    Describing an error takes much longer than finding that there is one, so only the beginning of a long value is looked at.
    """
    for name, wanted in schema.get("properties", {}).items() if isinstance(value, dict) else ():
        items, most = cast("JsonObject", value).get(name), wanted.get("maxItems")
        if isinstance(items, list) and most is not None and len(cast("list[Any]", items)) > most:
            return f"{name}: at most {most} items are taken, and these are {len(cast('list[Any]', items))}"
    error = next(iter(_validator(schema).iter_errors(_Beginning().of(value))), None)
    if error is None:
        return "the body: a list or an object in it is too long, or one of its later items does not fit"
    where = "/".join(map(str, error.instance_path)) or "the body"
    return f"{_short(where)}: {_short(_own_sentence(schema, error.schema_path) or str(error.message))}"


class _Beginning:
    """Copy of the beginning of a value."""

    def __init__(self) -> None:
        self._left = DESCRIBED_VALUES

    def of(self, value: Any) -> Any:
        """The value with its first items, names and characters."""
        self._left -= 1
        if isinstance(value, str):
            return value[:DESCRIBED_CHARS]
        if isinstance(value, dict):
            # A short object is copied whole: one with half of its fields would be described as one that misses the others.
            fields = cast("JsonObject", value)
            is_short = len(fields) <= DESCRIBED_FIELDS
            return {key[:DESCRIBED_CHARS]: self.of(item) for key, item in fields.items() if is_short or self._left > 0}
        if isinstance(value, list):
            return [self.of(item) for item in cast("list[Any]", value) if self._left > 0]
        return value


async def off_loop(request: Request, work: Callable[[], T]) -> T:
    """Do the work for a request whose body was read: in a thread if it is large, so that other clients do not wait."""
    if request.scope.get(SIZE, 0) > OFF_LOOP_BYTES:
        return await asyncio.to_thread(work)
    return work()


async def _whole(request: Request) -> bytes:
    """All bytes of the body, by the shortest way.

    Raises:
        ClientDisconnect: the client has disconnected.
    """
    pieces: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _own_sentence(schema: Any, path: list[Any]) -> str | None:
    """The schema's own message for the place that a value does not match."""
    if not path or path[-1] != "anyOf":
        return None
    for step in path[:-1]:
        schema = schema[step]
    return schema.get(SENTENCE)


def _short(sentence: str) -> str:
    return sentence if len(sentence) <= SHOWN_CHARS else f"{sentence[:SHOWN_CHARS]}..."


def header_of(request: Request, name: bytes) -> str | None:
    """The first header of that name in lower case; None if there is none."""
    for key, value in request.scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


def int_of(request: Request, name: str, *, default: int, lowest: int, highest: int) -> int:
    """A number in the query.

    Raises:
        HttpError: it is not one, or out of bounds.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not lowest <= int(text) <= highest:
        raise HttpError(422, "invalid_request", f"{name}: {text!r} is not a whole number from {lowest} to {highest}")
    return int(text)
