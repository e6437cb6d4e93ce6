"""HTTP/1.1 by the shortest way: whatever is split wherever, the body is the one that h11 reads."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import h11
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.wire.connection import Chunks, Connection, request_lines
from callgate.wire.failures import HttpError, LocalProtocolError, RemoteProtocolError
from callgate.wire.http11 import Address, Connections

HEAD = [(b"host", b"x"), (b"content-length", b"2")]
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Script:
    """A socket that gives out what it was told to, and then its end."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = list(pieces)
        self.sent: list[bytes] = []

    @property
    def has_something(self) -> bool:
        return bool(self.pieces)

    def write(self, *pieces: bytes) -> None:
        self.sent += pieces

    has_unsent = False

    async def read(self, until: float | None = None, *, sending: object = None) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


async def body_of(pieces: Sequence[bytes]) -> tuple[Connection, list[bytes], Exception | None]:
    connection = Connection((b"http", "x", 80), Script(pieces))  # pyright: ignore[reportArgumentType]
    connection.send(request_lines(b"/", [(b"host", b"x")]), b"{}")
    got: list[bytes] = []
    try:
        await connection.answer_head(20, asyncio.get_running_loop().time() + 20, 20)
        while (piece := await connection.piece(None)) is not None:
            got.append(piece)
    except HttpError as error:
        return connection, got, error
    return connection, got, None


def as_h11_reads(data: bytes) -> tuple[bytes, bool]:
    """The body of a response whose connection ends after it, and whether it was complete."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=b"POST", target=b"/", headers=HEAD))
    http.send(h11.Data(data=b"{}"))
    http.send(h11.EndOfMessage())
    http.receive_data(data)
    http.receive_data(b"")
    body = b""
    try:
        while not isinstance(event := http.next_event(), (h11.EndOfMessage, h11.ConnectionClosed)):
            body += bytes(event.data) if isinstance(event, h11.Data) else b""
            if event is h11.PAUSED:
                break
    except h11.RemoteProtocolError:
        return body, False
    return body, True


def head_as_h11_reads(data: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes, bool] | None:
    """Status, headers, body and whether the connection can be kept; None for what is no whole answer."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=b"POST", target=b"/", headers=HEAD))
    http.send(h11.Data(data=b"{}"))
    http.send(h11.EndOfMessage())
    http.receive_data(data)
    body = b""
    try:
        response = http.next_event()
        if not isinstance(response, h11.Response):
            return None
        while isinstance(event := http.next_event(), h11.Data):
            body += bytes(event.data)
        if event is h11.NEED_DATA:
            http.receive_data(b"")
            event = http.next_event()
    except h11.RemoteProtocolError:
        return None
    kept = (http.our_state, http.their_state, http.trailing_data) == (h11.DONE, h11.DONE, (b"", False))
    return response.status_code, list(response.headers), body, kept


lines = st.sampled_from([
    b"Content-Length: 5", b"content-length: 5", b"content-length:\t005 ", b"content-length: 5, 5", b"content-length: x",
    b"content-length: 9", b"content-length: 0", b"content-length: -5", b"Transfer-Encoding: chunked",
    b"transfer-encoding: Chunked", b"transfer-encoding: gzip", b"Connection: keep-alive", b"connection: Keep-Alive",
    b"connection: close", b"connection: x, close", b"X: \xff", b"X: a\x00b", b" folded", b"X:", b"X : y", b"no colon",
    b"Content-Type: application/json", b"X: a\x0bb",
])  # fmt: skip
starts = st.sampled_from([
    b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No Content",
    b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 503 \xe9", b"HTTP/2 200 OK", b"http/1.1 200 OK",
    b"HTTP/1.1 99 x", b"HTTP/1.1 600 x",
])  # fmt: skip
bodies = st.sampled_from([b"hello", b"", b"hello and more", b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\nx: y\r\n\r\n"])


@settings(max_examples=600, deadline=None)
@given(starts, st.lists(lines, max_size=4), bodies, st.sampled_from([b"\r\n", b"\r\n", b"\n"]))
def test_an_answer_with_any_head_is_read_as_h11_reads_it(start: bytes, head: list[bytes], body: bytes, end: bytes) -> None:
    data = end.join([start, *head, b"", body])

    async def story() -> tuple[int, list[tuple[bytes, bytes]], bytes, bool] | None:
        connection = Connection((b"http", "x", 80), Script([data]))  # pyright: ignore[reportArgumentType]
        connection.send(request_lines(b"/", [(b"host", b"x")]), b"{}")
        got = b""
        try:
            found = await connection.answer_head(20, asyncio.get_running_loop().time() + 20, 20)
            while (piece := await connection.piece(None)) is not None:
                got += piece
        except HttpError:
            return None
        return found.status, found.headers, got, connection.can_be_kept

    assert asyncio.run(story()) == head_as_h11_reads(data)


def test_plain_answers_do_not_go_through_h11(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object, **named: object) -> None:
        raise AssertionError("h11 was asked")

    monkeypatch.setattr("callgate.wire.connection._h11", refused)
    for answer in (
        [b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length: 5\r\n\r\nhe", b"llo"],
        [CHUNKED + b"2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n"],
    ):
        connection, got, error = asyncio.run(body_of(answer))
        assert (b"".join(got), error, connection.can_be_kept) == (b"hello", None, True)


def split_at(data: bytes, places: Sequence[int]) -> list[bytes]:
    cuts = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [piece for start, end in itertools.pairwise(cuts) if (piece := data[start:end])]


chunk = st.binary(min_size=1, max_size=40).map(lambda content: b"%x\r\n" % len(content) + content + b"\r\n")
odd = st.sampled_from(
    [b"3;x=y\r\nabc\r\n", b"00a\r\n0123456789\r\n", b"zz\r\n", b"2\r\nabc\r\n", b"\r\n", b"5\nhello\n", b"1\r"]
)
end = st.sampled_from([b"0\r\n\r\n", b"0\r\nx-trailer: y\r\n\r\n", b"000\r\n\r\n", b"", b"0\r\n\r\nmore"])


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(chunk, chunk, chunk, odd), max_size=8), end, st.lists(st.integers(0, 10_000), max_size=12))
def test_chunks_that_are_cut_anywhere_are_read_as_h11_reads_them(chunks: list[bytes], last: bytes, cuts: list[int]) -> None:
    data = CHUNKED + b"".join(chunks) + last
    expected, is_complete = as_h11_reads(data)
    _, got, error = asyncio.run(body_of(split_at(data, cuts)))
    assert b"".join(got) == expected
    assert (error is None) == is_complete


def test_what_has_arrived_comes_in_one_piece() -> None:
    data = CHUNKED + b"".join(b"3\r\n%03d\r\n" % number for number in range(100))
    _, got, _ = asyncio.run(body_of([data, b"0\r\n\r\n"]))
    assert got == [b"".join(b"%03d" % number for number in range(100))]


def test_the_beginning_of_a_large_chunk_is_not_held_back() -> None:
    _, got, error = asyncio.run(body_of([CHUNKED + b"a\r\n01234", b"56789\r\n", b"0\r\n\r\n"]))
    assert (got, error) == ([b"01234", b"56789"], None)


def test_plain_chunks_do_not_go_through_h11() -> None:
    chunks = Chunks()
    assert chunks.take(b"2\r\nab\r\n1\r\nc\r\n3\r\nd") == [b"ab", b"c", b"d"]
    assert (chunks.is_open, chunks.is_over) == (True, False)
    assert chunks.take(b"ef\r") == [b"ef"]
    assert chunks.take(b"\n0\r\n\r\n") == []
    assert (chunks.rest, chunks.is_open, chunks.is_over) == (b"0\r\n\r\n", False, True)


@pytest.mark.rows("ending", [b"XY", b"\rX", b"\n\n", b"", b"0\r\n\r\n", b"\r0\r\n\r\n"], ids=ascii)
@pytest.mark.rows("cut", range(1, 7))
def test_a_chunk_that_does_not_end_is_a_fault_wherever_it_was_cut(ending: bytes, cut: int) -> None:
    sent = b"3\r\nabc" + ending
    _, got, error = asyncio.run(body_of([CHUNKED + sent[:cut], sent[cut:]] if sent[cut:] else [CHUNKED + sent]))
    assert b"".join(got) == b"abc"
    assert isinstance(error, RemoteProtocolError)


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"], True),
        ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"], True),
        ([CHUNKED + b"2\r\n{}\r\n0\r\n\r\n"], True),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}more"], False),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", b"HTTP/1.1 200 OK\r\n"], False),
        ([CHUNKED + b"2\r\n{}\r\n0\r\n\r\nmore"], False),
        ([b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"], False),
        ([b"HTTP/1.1 200 OK\r\n\r\n{}"], False),
    ],
    ids=["length", "informed", "chunked", "more", "more_later", "more_chunks", "close", "until_the_end"],
)
def test_a_connection_is_kept_only_if_its_answer_was_all_that_came(pieces: list[bytes], kept: bool) -> None:
    connection, got, error = asyncio.run(body_of(pieces))
    assert (b"".join(got), error, connection.can_be_kept) == (b"{}", None, kept)


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ([], "Server disconnected without sending a response"),
        ([b"HTTP/1.1 200"], "Server disconnected without sending a response"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "illegal status line"),
        ([b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"], "without a pending proposal"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}"], "without sending complete message body"),
    ],
    ids=["nothing", "cut", "not_http", "another", "short"],
)
def test_what_is_not_an_answer_is_told(pieces: list[bytes], told: str) -> None:
    connection, _, error = asyncio.run(body_of(pieces))
    assert isinstance(error, RemoteProtocolError)
    assert told in str(error)
    assert not connection.can_be_kept


def test_a_header_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        request_lines(b"/", [(b"host", b"x"), (b"x", b"a\r\nb: c")])


@pytest.mark.parametrize("url", ["ftp://x/y", "/only/a/path", "http:///nowhere"])
def test_an_address_that_is_not_one_of_http_is_refused(url: str) -> None:
    with pytest.raises(LocalProtocolError):
        Address.of(url)


@pytest.mark.rows(
    "url",
    [
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse",
        "https://us-central1-aiplatform.googleapis.com:443/v1/projects/p/locations/l/publishers/google/models/m:generateContent",
        "http://127.0.0.1:8080/v1/chat/completions", "http://localhost:80/a", "https://h/a.b/c..d", "http://h/a/./b/../c",
        "http://h", "http://h/", "http://h/a//b", "http://H/A", "http://h/a%20b", "http://h/a b?c=d e", "http://münchen.de/a",
        "http://[::1]:8080/a", "http://user:pw@h/a", "http://h/a?", "http://h/a?b#c", "http://h:080/a", "https://h:80/a/",
        "http://h/'a'", "http://h_x/a", "http://h./a", "http://h/a?x='1'&y=[2]",
    ],
)  # fmt: skip
def test_any_url_is_addressed_as_httpx2_addresses_it(url: str) -> None:
    request = httpx2.Request("POST", url)
    found, port = Address.of(url), request.url.port or {"http": 80, "https": 443}[request.url.scheme]
    assert found.origin == (request.url.raw_scheme, request.url.raw_host.decode("ascii"), port)
    assert found.target == request.url.raw_path
    assert found.host == request.headers["host"].encode("ascii")
    assert httpx2.URL(found.url) == request.url


# Connections -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncGenerator[tuple[Connections, Address]]:
    connections = Connections(httpx2.create_ssl_context, connect_s=5, at_once=2, kept=1, kept_s=60)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        try:
            yield connections, Address.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        finally:
            await connections.aclose()


async def asked(connections: Connections, address: Address, body: bytes = b"{}") -> tuple[bytes, bool]:
    """The body of an answer, and whether the connection had been used before."""
    address.carries([(b"host", address.host)], {})
    answer = await connections.post(address, [], body, within_s=20, until=asyncio.get_running_loop().time() + 20)
    was_used = answer._connection is not None and answer._connection.is_used
    got = b""
    try:
        while (piece := await answer.piece()) is not None:
            got += piece
    finally:
        await answer.aclose()
    return got, was_used


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + await reader.readexactly(size))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def test_a_connection_is_used_again_and_a_large_body_arrives_whole() -> None:
    async def story() -> None:
        large = b"x" * 3_000_000
        async with serving(echo) as (connections, address):
            assert await asked(connections, address) == (b"{}", False)
            assert await asked(connections, address, large) == (large, True)
            assert await asked(connections, address) == (b"{}", True)

    asyncio.run(story())


def test_a_kept_connection_that_the_server_closed_is_not_used() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")
        writer.close()
        await writer.wait_closed()

    async def story() -> None:
        async with serving(once) as (connections, address):
            for _ in range(3):
                assert (await asked(connections, address))[0] == b"[]"
                await asyncio.sleep(0)

    asyncio.run(story())


def test_no_more_connections_than_allowed_are_open_at_once_and_as_many_are_kept() -> None:
    open_now = most = 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await echo(reader, writer)
        open_now -= 1

    async def story() -> None:
        async with serving(slow) as (connections, address):
            async with asyncio.TaskGroup() as group:
                for _ in range(10):
                    group.create_task(asked(connections, address))
            assert await asked(connections, address) == (b"{}", True)

    asyncio.run(story())
    assert 1 <= most <= 3  # Two in use, and the one that is being closed.


def test_whoever_stops_waiting_leaves_no_connection_behind() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            came.set()
        closed.set()
        writer.close()

    came, closed = asyncio.Event(), asyncio.Event()

    async def story() -> None:
        async with serving(mute) as (connections, address), asyncio.timeout(300):
            for _ in range(3):  # More often than there is room, if any of them kept its place.
                came.clear()
                closed.clear()
                asking = asyncio.create_task(asked(connections, address))
                await came.wait()
                asking.cancel()
                await closed.wait()
                with pytest.raises(asyncio.CancelledError):
                    await asking

    asyncio.run(story())


@pytest.mark.parametrize("between", [b"XX", b"\rX", b"\r\nZ\r\n"], ids=["no_end", "half_an_end", "no_size"])
def test_no_byte_after_a_framing_error_is_given_out(between: bytes) -> None:
    data = b"5\r\nhello" + between + b"5\r\nworld\r\n0\r\n\r\n"

    async def story() -> None:
        for first, second in itertools.combinations_with_replacement(range(len(data) + 1), 2):
            pieces = [piece for piece in (CHUNKED, data[:first], data[first:second], data[second:]) if piece]
            connection, got, error = await body_of(pieces)
            assert b"hello".startswith(b"".join(got)), pieces
            assert isinstance(error, RemoteProtocolError)
            assert not connection.can_be_kept

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "host", "header", "sent_to"),
    [
        ("http://[fe80::1%25eth0]:81/x", "fe80::1%eth0", b"[fe80::1]:81", "http://[fe80::1%eth0]:81/x"),
        ("http://[fe80::1%eth0]/x", "fe80::1%eth0", b"[fe80::1]", "http://[fe80::1%eth0]/x"),
        ("https://[FE80::1%25en%2D0]/x", "FE80::1%en-0", b"[FE80::1]", "https://[FE80::1%en-0]/x"),
        ("http://[fe80::1%25]/x", "fe80::1%25", b"[fe80::1]", "http://[fe80::1%25]/x"),
        ("http://[::1]/x]", "::1", b"[::1]", "http://[::1]/x]"),
    ],
)
def test_the_zone_of_an_address_is_for_this_machine_alone(url: str, host: str, header: bytes, sent_to: str) -> None:
    address = Address.of(url)
    assert (address.origin[1], address.host, address.url) == (host, header, sent_to)
