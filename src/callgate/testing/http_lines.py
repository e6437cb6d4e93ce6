"""HTTP/1.1 by hand on asyncio streams: requests are parsed strictly, responses are arbitrary bytes.

Knows nothing of Gemini. It exists because a fault server must be able to send wrong lengths, which no framework allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["LAST_CHUNK", "LINE_MAX", "BadHttpError", "HttpRequest", "chunk", "head", "read_request"]

LINE_MAX = 1 << 20
BODY_MAX = 1 << 28
LAST_CHUNK = b"0\r\n\r\n"


class BadHttpError(Exception):
    """The client did not speak HTTP/1.1; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request as it arrived."""

    method: str
    """The HTTP method."""
    path: str
    """The path, without the query."""
    query: dict[str, str]
    """The parameters of the query."""
    headers: dict[str, str]
    """Header names are lower case; values of a repeated header are joined with a comma."""
    body: bytes
    """The body as it came."""

    @property
    def keep_alive(self) -> bool:
        """True if the client wants to reuse the connection."""
        return "close" not in self.headers.get("connection", "").lower()


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request of a connection; None when the client closed it between requests.

    Raises:
        BadHttpError: the bytes are not a request.
    """
    line = await _line(reader)
    if line is None:
        return None
    method, target, version = ([*line.split(" "), "", "", ""])[:3]
    if not version.startswith("HTTP/1."):
        raise BadHttpError(f"the request line {line[:80]!r} is not one of HTTP/1.1")
    headers = await _headers(reader)
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    url = urlsplit(target)
    body = await _body(reader, headers)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    return HttpRequest(method=method, path=unquote(url.path), query=query, headers=headers, body=body)


async def _line(reader: asyncio.StreamReader) -> str | None:
    try:
        return (await reader.readuntil(b"\n")).decode("latin-1").rstrip("\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BadHttpError("the connection ended in the middle of a line") from None
        return None
    except asyncio.LimitOverrunError:
        raise BadHttpError(f"a line is longer than {LINE_MAX} bytes") from None


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    while line := await _line(reader):
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadHttpError(f"the header line {line[:80]!r} has no name")
        key = name.lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    return headers


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    try:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return await _chunked_body(reader)
        length = int(headers.get("content-length", "0"))
        if not 0 <= length <= BODY_MAX:
            raise BadHttpError(f"a body of {length} bytes is not read")
        return await reader.readexactly(length)
    except ValueError:
        raise BadHttpError("the length of the body is not a number") from None
    except asyncio.IncompleteReadError:
        raise BadHttpError("the connection ended in the middle of the body") from None


async def _chunked_body(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await _line(reader) or "").split(";")[0], 16):
        if len(body) + size > BODY_MAX:
            raise BadHttpError(f"a body of more than {BODY_MAX} bytes is not read")
        body += await reader.readexactly(size)
        await _line(reader)
    while await _line(reader):
        pass  # trailers
    return bytes(body)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """The status line and the headers of an answer, whatever they claim."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Client Closed Request" if status == 499 else "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
