"""Compressed bodies: any split, any number of members and layers, and never more at once than a piece."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterator

import httpx2
import pytest

from callgate.wire.content_codec import PIECE_BYTES_MAX, DecodedBody, unknown_encodings
from callgate.wire.failures import DecodingError
from callgate.wire.httpx_transport import HttpxResponse

TEXT = b'{"text": "The quick brown fox jumps over the lazy dog."}' * 20


def pieces(encoding: str, came: Iterator[bytes]) -> list[bytes]:
    async def read() -> bytes | None:
        return next(came, None)

    async def whole() -> list[bytes]:
        body, found = DecodedBody(encoding, read), list[bytes]()
        while (piece := await body.piece()) is not None:
            found.append(piece)
        return found

    return asyncio.run(whole())


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


MEMBERS = gzip.compress(TEXT[:500]) + gzip.compress(b"") + gzip.compress(TEXT[500:])
BODIES: dict[str, tuple[str, bytes]] = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "x-gzip": ("X-Gzip", gzip.compress(TEXT)),
    "members": ("gzip", MEMBERS),
    "members and padding": ("gzip", MEMBERS + b"\0" * 100),
    "one byte behind it": ("gzip", gzip.compress(TEXT) + b"\x1f"),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "deflate without its header": ("deflate", raw_deflate(TEXT)),
    "deflate and more": ("deflate", zlib.compress(TEXT) + b"more"),
    "two layers": ("deflate, gzip", gzip.compress(zlib.compress(TEXT))),
    "identity": ("identity, gzip,", gzip.compress(TEXT)),
    "none": ("", TEXT),
    "an unknown one": ("br", TEXT),
    "cut off in its check sum": ("gzip", gzip.compress(TEXT)[:-4]),
}


@pytest.mark.rows("size", [1, 2, 3, 7, 1_000_000])
@pytest.mark.rows("name", BODIES)
def test_a_body_is_decoded_however_it_is_split(name: str, size: int) -> None:
    encoding, body = BODIES[name]
    came = (body[start : start + size] for start in range(0, len(body), size))
    assert b"".join(pieces(encoding, came)) == TEXT


@pytest.mark.parametrize(
    "body",
    [TEXT, gzip.compress(TEXT)[:10] + b"\xff" * 200, gzip.compress(TEXT) + b"\x1f\x8bno"],
    ids=["plain", "damaged", "a damaged member"],
)
def test_a_body_of_another_encoding_is_an_error(body: bytes) -> None:
    with pytest.raises(DecodingError):
        pieces("gzip", iter([body]))


def test_a_small_body_that_becomes_a_long_one_comes_in_pieces() -> None:
    packed = gzip.compress(gzip.compress(b"\0" * (20 * PIECE_BYTES_MAX)))
    found = pieces("gzip, gzip", iter([packed]))
    assert sum(map(len, found)) == 20 * PIECE_BYTES_MAX
    assert max(map(len, found)) <= PIECE_BYTES_MAX


def test_unknown_encodings_are_named() -> None:
    assert unknown_encodings("gzip, BR , x-gzip, identity,, zstd") == ["br", "zstd"]


@pytest.mark.parametrize("is_read", [False, True], ids=["as it comes", "read by a hook"])
def test_an_answer_of_a_client_of_the_program_is_decoded_once(is_read: bool) -> None:
    async def story() -> bytes | None:
        packed = gzip.compress(TEXT[:100]) + (b"" if is_read else gzip.compress(TEXT[100:]))
        response = httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=httpx2.ByteStream(packed))
        if is_read:
            await response.aread()
        answer, found = HttpxResponse(response), b""
        while (piece := await answer.piece()) is not None:
            found += piece
        return found

    assert asyncio.run(story()) == (TEXT[:100] if is_read else TEXT)
