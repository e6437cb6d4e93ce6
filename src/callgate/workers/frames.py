"""Messages <-> bytes on a socket: four bytes of length, then one JSON object.

JSON and nothing else: what comes from a worker can be wrong, but it cannot run code here as a pickle could. This file does
not know what the messages say.
"""

from __future__ import annotations

import json
import struct
from typing import Any, cast

from pydantic_core import from_json

from callgate.errors import JsonError
from callgate.strict_json import dump

__all__ = ["FRAME_BYTES_MAX", "Frames", "pack"]

FRAME_BYTES_MAX = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def pack(message: dict[str, Any]) -> bytes:
    """One message as bytes. It is of plain data by now; a date or a set that is left in it is written as text or a list.

    Raises:
        JsonError: it holds something that is not JSON, or it is too large.
    """
    try:
        body = dump(message)
    except JsonError:
        body = _slowly(message)
    if len(body) > FRAME_BYTES_MAX:
        raise JsonError(f"{len(body)} bytes of JSON; between a program and its workers at most {FRAME_BYTES_MAX} can pass")
    return _LENGTH.pack(len(body)) + body


def _slowly(message: dict[str, Any]) -> bytes:
    """Encode what the fast path does not: half a surrogate pair passes, a value that is not JSON does not."""
    try:
        return _ENCODER.encode(message).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise JsonError(f"not JSON: {error}") from None


class Frames:
    """Splitter of a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes | bytearray) -> list[dict[str, Any]]:
        """The messages that are complete with these bytes.

        Raises:
            JsonError: the bytes are not what `pack` makes.
        """
        if self._rest:
            self._rest += data
            data = self._rest
        found: list[dict[str, Any]] = []
        start, size = 0, len(data)
        while size - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > FRAME_BYTES_MAX:
                raise JsonError(f"a frame claims to have {length} bytes")
            end = start + _LENGTH.size + length
            if size < end:
                break
            found.append(_read(data[start + _LENGTH.size : end]))
            start = end
        # Mostly nothing is left. A bytearray, because a large frame grows by many pieces.
        if start or not self._rest:
            self._rest = bytearray(data[start:])
        return found


def _read(body: bytes | bytearray) -> dict[str, Any]:
    try:
        message = from_json(body)
    except ValueError:
        message = _read_slowly(body)
    if not isinstance(message, dict):
        raise JsonError("a frame is not an object")
    return cast("dict[str, Any]", message)


def _read_slowly(body: bytes | bytearray) -> Any:
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise JsonError(f"a frame is not JSON: {error}") from None
