"""The content encoding of an answer: compressed bytes in, plain ones out, in pieces of a bounded size.

Knows gzip, of one or several members, and deflate, with its header or without, in any number of layers. What breaks off
gives all that could be decoded: whether an answer is complete is known to its reader.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from callgate.wire.failures import DecodingError

__all__ = ["DecodedBody", "names_of", "unknown_encodings"]

PIECE_BYTES_MAX = 1024 * 1024
"""The size of a decoded piece: a small answer can be a very long one when it is decoded."""
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_KINDS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}
_PLAIN = ("", "identity")


def names_of(encoding: str) -> list[str]:
    """The encodings of a body, in the order in which they were applied."""
    names = [name.strip().lower() for name in encoding.split(",")]
    return [name for name in names if name not in _PLAIN]


def unknown_encodings(encoding: str) -> list[str]:
    """The encodings of a body that cannot be decoded."""
    return [name for name in names_of(encoding) if name not in _KINDS]


class DecodedBody:
    """A body that is decoded while it arrives. One with an unknown encoding stays as it is.

    Args:
        encoding: The header of the answer.
        read: Returns the next bytes as they came, and None at the end.
    """

    def __init__(self, encoding: str, read: Callable[[], Awaitable[bytes | None]]) -> None:
        known = [] if unknown_encodings(encoding) else names_of(encoding)
        self._layers = [_Inflating(_KINDS[name]) for name in reversed(known)]
        self._read = read
        self._decoded: Iterator[bytes] = iter(())

    async def piece(self) -> bytes | None:
        """The next bytes, decoded; None at the end.

        Raises:
            DecodingError: what came is not of the encoding that the answer names.
        """
        while (piece := next(self._decoded, None)) is None:
            raw = await self._read()
            if raw is None:
                return None
            self._decoded = self._through(raw, 0)
        return piece

    def _through(self, data: bytes, layer: int) -> Iterator[bytes]:
        if layer == len(self._layers):
            yield data
            return
        for piece in self._layers[layer].feed(data):
            yield from self._through(piece, layer + 1)


class _Inflating:
    """One layer of compression."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._held = b""
        """The beginning of a stream, until its header can be recognized."""
        self._stream: Any = None
        self._has_ended = False
        """True after the first stream; a body of gzip may have further ones."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None:
                data, self._held = self._held + data, b""
                if len(data) < len(_GZIP_MAGIC):
                    self._held = data
                    return
                if self._has_ended and not (self._kind == _GZIP and data.startswith(_GZIP_MAGIC)):
                    return  # Padding.
                self._stream = zlib.decompressobj(_RAW if self._kind == _ZLIB and not _has_header(data) else self._kind)
            stream = self._stream
            try:
                piece = stream.decompress(data, PIECE_BYTES_MAX)
            except zlib.error as error:
                raise DecodingError(str(error)) from error
            data = stream.unconsumed_tail
            if stream.eof:
                self._stream, self._has_ended, data = None, True, stream.unused_data
            if piece:
                yield piece


def _has_header(data: bytes) -> bool:
    """True if deflated data begins with the header of zlib, which some servers leave out."""
    return data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
