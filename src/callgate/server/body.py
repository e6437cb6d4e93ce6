"""The body of a request: bytes in, a JSON object that fits its schema out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from callgate import strict_json
from callgate.server.errors import HttpError
from callgate.types import JsonObject

__all__ = ["MESSAGES_MAX", "header_of", "int_of", "off_loop", "read_json"]

OFF_LOOP_BYTES = 32 * 1024
"""Larger bodies are parsed and converted in a thread, so that other clients do not wait."""
VALUES_MAX = 100_000
"""Commas and colons between the values of one body: what has more is refused before anybody parses it."""
MESSAGES_MAX = 4_000
"""Messages in one conversation that a client sends."""
SIZE = "callgate.body_bytes"
"""In a scope: the size of the body."""
SHOWN_CHARS = 300
SENTENCE = "x-otherwise"
"""In a schema: what to say of a value that fits none of its alternatives."""


T = TypeVar("T")
_SEPARATORS = re.compile(rb'\\.|[",:]', re.DOTALL)

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
    if len(data) > VALUES_MAX and _has_too_many(data):
        raise HttpError(413, "too_large", f"The body has too many values: at most {VALUES_MAX} commas and colons are read.")
    value = strict_json.parse(data)
    validator = _validator(schema)
    if not validator.is_valid(value):
        error = next(iter(validator.iter_errors(value)))
        where = "/".join(map(str, error.instance_path)) or "the body"
        sentence = _own_sentence(schema, error.schema_path) or str(error.message)
        raise HttpError(422, "invalid_request", f"{where}: {_short(sentence)}")
    return value


def _has_too_many(data: bytes) -> bool:
    """True if a body has more values than a parser should be given: it could not be interrupted."""
    count, is_in_string = 0, False
    for found in _SEPARATORS.finditer(data):
        mark = found[0]
        if mark == b'"':
            is_in_string = not is_in_string
        elif not is_in_string:
            count += 1
            if count > VALUES_MAX:
                return True
    return False


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
