"""The body of a request: bytes in, a JSON object that fits its schema out."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request

from callgate import strict_json
from callgate.server.errors import HttpError
from callgate.types import JsonObject

__all__ = ["header_of", "int_of", "read_json"]

OFF_LOOP_BYTES = 1024 * 1024
"""Larger bodies are parsed in a thread, so that nobody else waits for them."""
SHOWN_CHARS = 300
SENTENCE = "x-otherwise"
"""In a schema: what to say of a value that fits none of its alternatives."""


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
    is_large = len(data) > OFF_LOOP_BYTES
    value = await asyncio.to_thread(strict_json.parse, data) if is_large else strict_json.parse(data)
    validator = _validator(schema)
    if not validator.is_valid(value):
        error = next(iter(validator.iter_errors(value)))
        where = "/".join(map(str, error.instance_path)) or "the body"
        sentence = _own_sentence(schema, error.schema_path) or str(error.message)
        raise HttpError(422, "invalid_request", f"{where}: {_short(sentence)}")
    return value


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
