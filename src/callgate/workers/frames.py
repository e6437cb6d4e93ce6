"""Messages <-> bytes on a socket: four bytes of length, then one JSON object.

JSON and nothing else: what comes from a worker can be wrong, but it cannot run code here as a pickle could. This file does
not know what the messages say.
"""

from __future__ import annotations

import json
import struct
from typing import Any, cast

from callgate.errors import JsonError

__all__ = ["FRAME_BYTES_MAX", "Frames", "pack"]

FRAME_BYTES_MAX = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def pack(message: dict[str, Any]) -> bytes:
    """One message as bytes.

    Raises:
        JsonError: it holds something that is not JSON, or it is too large.
    """
    try:
        body = _ENCODER.encode(message).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise JsonError(f"not JSON: {error}") from None
    if len(body) > FRAME_BYTES_MAX:
        raise JsonError(f"{len(body)} bytes of JSON; between a program and its workers at most {FRAME_BYTES_MAX} can pass")
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are complete with these bytes.

        Raises:
            JsonError: the bytes are not what `pack` makes.
        """
        self._buffer += data
        found: list[dict[str, Any]] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer, start)
            if size > FRAME_BYTES_MAX:
                raise JsonError(f"a frame claims to have {size} bytes")
            end = start + _LENGTH.size + size
            if len(self._buffer) < end:
                break
            found.append(_read(self._buffer[start + _LENGTH.size : end]))
            start = end
        if start == len(self._buffer):
            self._buffer = bytearray()
        elif start:
            del self._buffer[:start]
        return found


def _read(body: bytearray) -> dict[str, Any]:
    try:
        message = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise JsonError(f"a frame is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise JsonError("a frame is not an object")
    return cast("dict[str, Any]", message)
