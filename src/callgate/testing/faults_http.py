"""Transport faults: refusals, broken connections, wrong lengths, odd framing, endless and hostile bodies.

Takes an exchange, writes bytes that are wrong in exactly one way each. Knows HTTP and the three framings of an answer;
its content is up to the script.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import Callable, Iterator
from email.utils import formatdate
from functools import partial
from typing import Any

from callgate.testing.answers import calls, encode_json, text
from callgate.testing.exchange import JSON_TYPE, SSE_TYPE, Body, Exchange, array_body, error_body
from callgate.testing.fault_row import Act, Fault, content, error, row
from callgate.testing.http_lines import LAST_CHUNK, chunk, head

__all__ = ["HTTP_FAULTS"]

_RPC = "type.googleapis.com/google.rpc."
_QUOTA = "You exceeded your current quota, please check your plan and billing details."


# Refusals ----------------------------------------------------------------------------------------------------------------


def _retry_info(delay: Any) -> dict[str, Any]:
    return {"@type": f"{_RPC}RetryInfo", "retryDelay": delay}


def _quota_failure(quota: str) -> dict[str, Any]:
    violation = {"quotaMetric": "generativelanguage.googleapis.com/generate_content_requests", "quotaId": quota}
    return {"@type": f"{_RPC}QuotaFailure", "violations": [violation]}


def _error_info(reason: str) -> dict[str, Any]:
    return {"@type": f"{_RPC}ErrorInfo", "reason": reason, "domain": "googleapis.com"}


_limited = partial(error, 429, "RESOURCE_EXHAUSTED", _QUOTA)
_denied = partial(error, 403, "PERMISSION_DENIED")


def _limited_until(offset_s: float) -> Act:
    async def act(exchange: Exchange) -> None:
        date = formatdate(time.time() + offset_s, usegmt=True)
        await exchange.error(429, "RESOURCE_EXHAUSTED", _QUOTA, Retry_After=date)

    return act


_BAD_SCHEMA_FIELD = "tools[0].function_declarations[0].parameters"
_BAD_SCHEMA = f"Invalid JSON payload received. Unknown name \"oneOf\" at '{_BAD_SCHEMA_FIELD}': Cannot find field."
_bad_schema = error(
    400, "INVALID_ARGUMENT", _BAD_SCHEMA,
    {"@type": f"{_RPC}BadRequest", "fieldViolations": [{"field": _BAD_SCHEMA_FIELD, "description": _BAD_SCHEMA}]},
)  # fmt: skip


# Connections -------------------------------------------------------------------------------------------------------------


async def _reset(exchange: Exchange) -> None:
    exchange.reset()


def _two_calls(exchange: Exchange) -> Any:
    name, args = exchange.tool_call()
    return calls((name, args), (name, args), apart=True)


def _cut_off(frames_sent: int, default: Callable[[Exchange], Any] | None = None, *, inside: bool = False) -> Act:
    """Send some events of a stream, perhaps half of the next, and reset; of a whole answer, half the body."""

    async def act(exchange: Exchange) -> None:
        body = exchange.body_of(exchange.plan(default(exchange) if default else None))
        await exchange.begin(body)
        frames = body.frames if body.streamed else [b"", *body.frames]
        for frame in frames[:frames_sent] if body.streamed else [frames[1][: len(frames[1]) // 2]]:
            await exchange.send(frame)
        if inside and body.streamed and frames_sent < len(frames):
            await exchange.send(frames[frames_sent][: len(frames[frames_sent]) // 2])
        await asyncio.sleep(0)  # lets a reader in this process see the bytes before the end
        exchange.reset()

    return act


def _unfinished(exchange: Exchange) -> Any:
    name, args = exchange.tool_call()
    return exchange.plan(calls((name, args), (name, args), apart=True, finish_reason=None))


async def _hold(exchange: Exchange) -> None:
    await exchange.until_closed()


async def _stale(exchange: Exchange) -> None:
    await exchange.answer(exchange.plan())
    exchange.is_stale = True


# Lengths and framing -----------------------------------------------------------------------------------------------------


def _wrong_length(extra: int) -> Act:
    async def act(exchange: Exchange) -> None:
        body = exchange.body_of(exchange.plan())
        exchange.reusable = False
        length = str(max(len(body.data) + extra, 0))
        await exchange.send(head(200, {"Content-Type": body.content_type, "Content-Length": length}) + body.data)

    return act


async def _poisoned(exchange: Exchange) -> None:
    """A correct answer followed by a second, false one: a client that reads on takes it for the next answer."""
    body = exchange.body_of(exchange.plan())
    false = encode_json({"candidates": [{"content": {"parts": [{"text": "POISON"}]}, "finishReason": "STOP"}]})
    tail = head(200, {"Content-Type": JSON_TYPE, "Content-Length": str(len(false))}) + false
    length = {"Content-Type": body.content_type, "Content-Length": str(len(body.data))}
    await exchange.send(head(200, length) + body.data + tail)


def _bad_chunks(last: bytes, broken: Callable[[bytes], bytes] = chunk) -> Act:
    async def act(exchange: Exchange) -> None:
        body = exchange.body_of(exchange.plan())
        await exchange.begin(Body(body.content_type, body.pieces, streamed=True))
        *first, final = body.pieces
        await exchange.send(b"".join(map(chunk, first)) + broken(final) + last)

    return act


async def _cut_body(exchange: Exchange) -> None:
    body = exchange.body_of(exchange.plan(text("fox " * 400)))
    at = len(body.data) // 2 if exchange.at is None else exchange.at
    await exchange.send_body(Body(body.content_type, (body.data[:at],), streamed=False))


async def _split_body(exchange: Exchange) -> None:
    body = exchange.body_of(exchange.plan(text("Grüße, 東京 🦊 and\nmore", chunks=3)))
    data, at = body.data, exchange.at
    pieces = [data[index : index + 1] for index in range(len(data))] if at is None else [data[:at], data[at:]]
    await exchange.send_body(Body(body.content_type, tuple(piece for piece in pieces if piece), streamed=True))


def _typed(content_type: str) -> Act:
    async def act(exchange: Exchange) -> None:
        body = exchange.body_of(exchange.plan())
        await exchange.send_body(Body(content_type, body.pieces, streamed=body.streamed))

    return act


# Time and size -----------------------------------------------------------------------------------------------------------


async def _drip(exchange: Exchange) -> None:
    body = exchange.body_of(exchange.plan(text("drip " * 4_000)))
    await exchange.begin(Body(body.content_type, body.pieces, streamed=False))
    for index in range(len(body.data)):
        await exchange.send(body.data[index : index + 1])
        await exchange.clock.sleep(0.1)


async def _silence(exchange: Exchange) -> None:
    await exchange.begin(exchange.body_of(exchange.plan()))
    await exchange.until_closed()


async def _gap(exchange: Exchange) -> None:
    body = exchange.body_of(exchange.plan())
    await exchange.begin(body)
    frames = body.frames if body.streamed else [body.data[:20], body.data[20:]]
    middle = len(frames) // 2
    await exchange.send(b"".join(frames[:middle]))
    await exchange.clock.sleep(90.0)
    await exchange.send(b"".join(frames[middle:]) + (LAST_CHUNK if body.streamed else b""))


async def _endless(exchange: Exchange) -> None:
    """A stream without an end; for a whole answer, one JSON string without an end."""
    message = encode_json(
        {"candidates": [{"content": {"parts": [{"text": "for ever " * 1_000}], "role": "model"}, "index": 0}]}
    )
    is_sse = exchange.request.streaming and exchange.request.wants_sse
    begin, more = (b"", b"data: %b\r\n\r\n" % message) if is_sse else (b'{"candidates": "', b"for ever " * 1_000)
    if exchange.request.streaming and not is_sse:
        begin, more = b"[" + message, b",\r\n" + message
    await exchange.begin(Body(SSE_TYPE if is_sse else JSON_TYPE, (), streamed=True))
    await exchange.send(chunk(begin) if begin else b"")
    while True:
        await exchange.send(chunk(more))


async def _long_header(exchange: Exchange) -> None:
    exchange.reusable = False
    await exchange.send(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * (1 << 20) + b"\r\nContent-Length: 2\r\n\r\n{}")


# Dialects of server-sent events ------------------------------------------------------------------------------------------


def _dialect(write: Callable[[list[bytes]], bytes]) -> Act:
    """The events of an answer in another spelling. A whole answer has no events and is sent as it is."""

    async def act(exchange: Exchange) -> None:
        item = exchange.plan()
        if not exchange.request.streaming:
            await exchange.answer(item)
        else:
            await exchange.send_body(Body(SSE_TYPE, (write(exchange.messages(item)),), streamed=True))

    return act


def _events(prefix: bytes = b"data: ", end: bytes = b"\r\n", *, before: bytes = b"") -> Callable[[list[bytes]], bytes]:
    return lambda messages: b"".join(before + prefix + message + end + end for message in messages)


def _many_lines(messages: list[bytes]) -> bytes:
    pretty = (encode_json(json.loads(message), indent=2) for message in messages)
    return b"".join(b"data: %b\n\n" % lines.replace(b"\n", b"\ndata: ") for lines in pretty)


def _among(odd: bytes) -> Callable[[list[bytes]], bytes]:
    return lambda messages: b"".join(b"data: %b\r\n\r\n%b" % (message, odd) for message in messages)


_DIALECTS: dict[str, Callable[[list[bytes]], bytes]] = {
    "lf": _events(end=b"\n"),
    "cr": _events(end=b"\r"),
    "no_blank": _events(b"data:"),
    "many_lines": _many_lines,
    "comments": _events(before=b": ping\r\n\r\n"),
    "other_fields": _events(before=b"event: message\r\nid: 7\r\nretry: 1000\r\n"),
    "bom": lambda messages: b"\xef\xbb\xbf" + _events()(messages),
    "no_last_blank_line": lambda messages: _events()(messages).removesuffix(b"\r\n\r\n"),
}


async def _as_array(exchange: Exchange) -> None:
    body = array_body(exchange.messages(exchange.plan()))
    await exchange.send_body(body)


# Bodies that are something else ------------------------------------------------------------------------------------------


def _act(data: bytes, status: int = 200, content_type: str = JSON_TYPE, **headers: str) -> Act:
    async def act(exchange: Exchange) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await exchange.send_body(Body(content_type, (data,), streamed=False), status, named)

    return act


_PAGE = b"<!DOCTYPE html>\r\n<html><head><title>%b</title></head><body><h1>%b</h1>\x1b[31m<script>x()</script></body></html>"
_LATE_ERROR = error_body(429, "RESOURCE_EXHAUSTED", _QUOTA, [_retry_info("1s")])


async def _error_after_text(exchange: Exchange) -> None:
    if not exchange.request.streaming:
        await exchange.answer(_LATE_ERROR)
        return
    first = exchange.messages(exchange.plan())[0]
    await exchange.answer([first, encode_json(_LATE_ERROR)])


def _encoded(name: str, pack: Callable[[bytes], bytes]) -> Act:
    async def act(exchange: Exchange) -> None:
        body = exchange.body_of(exchange.plan())
        packed = Body(body.content_type, (pack(body.data),), streamed=False)
        exchange.compress = False
        await exchange.send_body(packed, 200, {"Content-Encoding": name})

    return act


def _gzip(data: bytes, wbits: int = 31) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


def _members(data: bytes) -> bytes:
    """Several members of gzip, one of them empty, and padding."""
    third = len(data) // 3
    return _gzip(data[:third]) + _gzip(b"") + _gzip(data[third:]) + b"\0" * 8


def _brotli(data: bytes) -> bytes:
    """The stored form of brotli: blocks of up to 64 KiB verbatim, each after a three-byte header."""
    blocks = (data[start : start + 0x10000] for start in range(0, len(data), 0x10000))
    return b"".join(_brotli_block(block, is_first=index == 0) for index, block in enumerate(blocks)) + b"\x03"


def _brotli_block(block: bytes, *, is_first: bool) -> bytes:
    # Bits, lowest first: window size (1, first block only), last (1), size of the length (2), length - 1 (16), stored (1).
    bits = (len(block) - 1) << 3 | 1 << 19
    return (bits << 1 if is_first else bits).to_bytes(3, "little") + block


def _bomb_pieces() -> Iterator[bytes]:
    """A gibibyte of text in about a mebibyte; the end mark is omitted, because no client should get there."""
    packer = zlib.compressobj(9, wbits=31)
    opening = b'{"candidates": [{"content": {"parts": [{"text": "'
    yield packer.compress(opening) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the same megabyte packs to the same bytes, so that it is packed only once.
    megabyte = packer.compress(b"a" * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(1024):
        yield megabyte


async def _bomb(exchange: Exchange) -> None:
    await exchange.begin(Body(JSON_TYPE, (), streamed=True), Content_Encoding="gzip")
    for piece in _bomb_pieces():
        await exchange.send(chunk(piece))
    await exchange.send(LAST_CHUNK)


def _redirect(status: int, location: str) -> Act:
    async def act(exchange: Exchange) -> None:
        host, path = exchange.request.headers.get("host", ""), exchange.request.path
        port = host.rpartition(":")[2]
        target = location.format(host=host, port=port, path=path)
        await exchange.send_body(Body(JSON_TYPE, (b"{}",), streamed=False), status, {"Location": target})

    return act


HTTP_FAULTS: tuple[Fault, ...] = (
    row("W01", "retry_info", "429 with a delay of 2.5 s in RetryInfo, twice", _limited(_retry_info("2.5s")), times=2),
    row("W02", "retry_after", "429 with a Retry-After header", {
        "seconds": _limited(Retry_After="3"), "date": _limited_until(3), "past_date": _limited_until(-60),
        "both": _limited(_retry_info("3s"), Retry_After="1"),
    }),
    row("W03", "retry_in_a_day", "429 with a delay of a day", _limited(_retry_info("86400s"))),
    row("W04", "daily_quota", "429 because the quota of the day is spent, for ever", _limited(
        _quota_failure("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), _retry_info("17s")), times=None),
    row("W05", "bad_retry_info", "429 with a delay that is none", {
        "text": _limited(_retry_info("abc")), "negative": _limited(_retry_info("-5s")), "null": _limited(_retry_info(None)),
        "number": _limited(_retry_info(-5)), "huge": _limited(_retry_info("1000000000s")),
    }),
    row("W06", "rate_limit_window", "429 to everybody for 5 s", _limited(), lasts_s=5.0),
    row("W07", "internal_error", "500, twice", error(
        500, "INTERNAL", "An internal error has occurred. Please retry or report it."), times=2),
    row("W08", "unavailable", "503 for ever", error(
        503, "UNAVAILABLE", "The model is overloaded. Please try again later."), times=None),
    row("W09", "deadline_exceeded", "504", error(
        504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete.")),
    row("W10", "bad_schema", "400 because of a declaration, for ever", _bad_schema, times=None),
    row("W11", "not_allowed", "401 or 403, for ever", {
        "forbidden": _denied("Permission denied on resource."),
        "unauthenticated": error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
        "region": _denied("User location is not supported for the API use.", _error_info("LOCATION_NOT_SUPPORTED")),
        "region_400": error(400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
        "invalid_key": error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.",
                             _error_info("API_KEY_INVALID")),
        "echoes_key": _denied("The caller with the key {key} does not have permission."),
    }, times=None),
    row("W12", "model_not_found", "404, for ever", error(
        404, "NOT_FOUND", "models/{model} is not found for API version v1beta, or is not supported for generateContent."),
        times=None),
    row("W13", "too_large", "the request is larger than the service takes", {
        "tokens": error(400, "INVALID_ARGUMENT",
                        "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."),
        "bytes": error(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."),
        "payload": error(413, "INVALID_ARGUMENT", "Request Entity Too Large"),
    }),
    row("W14", "held", "nothing is answered until the client gives up", {
        "silent": _hold, "cancelled": error(499, "CANCELLED", "The operation was cancelled."),
    }),
    row("W16", "reset_on_accept", "reset before a byte is read", _reset, on_accept=True),
    row("W17", "reset_after_request", "reset when the request has been read", _reset),
    row("W18", "reset_in_text", "reset after three pieces of text", _cut_off(3)),
    row("W19", "reset_in_call", "reset in the middle of a call", _cut_off(0, _two_calls, inside=True)),
    row("W20", "no_finish_reason", "two calls, then a clean end without a finish reason", content(_unfinished)),
    row("W21", "length_too_long", "Content-Length is larger than the body", _wrong_length(100)),
    row("W22", "length_too_short", "bytes after the end of the body", {"poison": _poisoned, "cut": _wrong_length(-10)}),
    row("W23", "bad_chunks", "a chunked body that is not", {
        "bad_size": _bad_chunks(LAST_CHUNK, lambda data: b"zz\r\n%b\r\n" % data), "no_last_chunk": _bad_chunks(b""),
    }),
    row("W24", "slow_drip", "one byte every 0.1 s", _drip),
    row("W25", "silence", "a head, and never a body", _silence),
    row("W26", "long_gap", "90 s of nothing in the middle", _gap),
    row("W27", "endless_stream", "text for ever", _endless),
    row("W28", "endless_header", "a header line of 1 MiB", _long_header),
    row("W29", "cut_body", "the body ends at byte `at`", _cut_body),
    row("W30", "split_body", "the body is sent in two at byte `at`, or byte by byte", _split_body),
    row("W31", "sse_dialect", "events spelled in another legal way",
         {name: _dialect(write) for name, write in _DIALECTS.items()}),
    row("W32", "array_for_sse", "a JSON array although events were asked for", _as_array),
    row("W33", "odd_events", "events that are no answers", {
        "done": _dialect(lambda messages: _events()(messages) + b"data: [DONE]\r\n\r\n"),
        "blank": _dialect(_among(b"data:\r\n\r\n")), "null": _dialect(_among(b"data: null\r\n\r\n")),
    }),
    row("W36", "wrong_content_type", "the right JSON as text/plain", _typed("text/plain")),
    row("W37", "html", "a page for people", {
        "bad_gateway": _act(_PAGE % (b"502 Bad Gateway", b"502"), 502, "text/html"),
        "captive_portal": _act(_PAGE % (b"Welcome", b"Free WiFi"), 200, "text/html"),
    }),
    row("W38", "encoding", "compressed bodies, honest and not", {
        "gzip": _encoded("gzip", _gzip), "x_gzip": _encoded("x-gzip", _gzip), "members": _encoded("gzip", _members),
        "twice": _encoded("deflate, gzip", lambda data: _gzip(zlib.compress(data))),
        "deflate": _encoded("deflate", zlib.compress), "raw_deflate": _encoded("deflate", lambda data: _gzip(data, -15)),
        "br": _encoded("br", _brotli),
        "not_gzip": _encoded("gzip", lambda data: data), "unknown": _encoded("x-none", lambda data: data), "bomb": _bomb,
    }),
    row("W39", "redirect", "the way leads elsewhere", {
        "other_host": _redirect(302, "http://localhost:{port}/redirected{path}"),
        "other_host_307": _redirect(307, "http://localhost:{port}/redirected{path}"),
        "plain_http": _redirect(307, "http://{host}/redirected{path}"),
        "metadata": _redirect(307, "http://169.254.169.254/computeMetadata/v1/"),
    }),
    row("W39-loop", "redirect_loop", "the way leads back here, 30 times", _redirect(307, "http://{host}{path}"), times=30),
    row("W40", "error_in_200", "an error behind a 200", {
        "at_once": content(lambda _: _LATE_ERROR), "after_text": _error_after_text,
    }),
    row("W41", "error_in_array", "an error in a list behind a 200", _act(encode_json([_LATE_ERROR]))),
    row("W42", "odd_body", "a body that is not an answer", {
        "empty": _act(b""), "object": _act(b"{}"), "array": _act(b"[]"), "null": _act(b"null"), "string": _act(b'"x"'),
        "number": _act(b"42"),
    }),
    row("W61", "stale_connection", "a good answer; the connection dies when it is used again", _stale),
)  # fmt: skip
"""Transport faults, by row."""
