"""Times are kept, and connections: how long a request takes at most, and which connection the next one gets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import queue
import socket
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from callgate import Limits
from callgate.errors import (
    ConnectionLostError,
    InvalidRequestError,
    ModelError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
)
from callgate.events import Notice
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.testing.fake_gemini import FakeGemini
from callgate.wire.http11 import Address, Connections

CHUNK = b'{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello"}]},"finishReason":"STOP"}]}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(CHUNK), CHUNK)
BODY = b'{"contents":[{"role":"user","parts":[{"text":"Hi."}]}]}'
SLACK_S = 1.5

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def client_of(serve: Serve, **options: Any) -> AsyncGenerator[GeminiClient]:
    """A client of a server that does this for each connection."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with asyncio.timeout(30), await asyncio.start_server(served, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        surface = Surface(kind="developer", base_url=url, version="v1", api_key="key-of-a-test")
        client = GeminiClient(surface, **options)
        try:
            yield client
        finally:
            await client.aclose()


async def closed(writer: asyncio.StreamWriter) -> None:
    """Send what is left, and wait until the connection is gone."""
    with contextlib.suppress(ConnectionError):
        await writer.drain()
        writer.close()
        await writer.wait_closed()


async def request_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return await reader.readexactly(size)


async def ask(client: GeminiClient, body: bytes = BODY, *, stream: bool = False) -> list[Any]:
    return [item async for item in client.chunks("m", body, stream=stream, tools=[])]


def chunks_in(items: list[Any]) -> int:
    return sum(not isinstance(item, Notice) for item in items)


# The whole time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_the_whole_time_ends_a_pause_that_would_be_allowed(stream: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\ndata: {"candidates": [\n')
        await reader.read()

    async def story() -> None:
        async with client_of(serve, limits=Limits(total_s=0.4, idle_s=20, first_byte_s=20)) as client:
            began = time.monotonic()
            with pytest.raises(RequestTimeoutError, match=r"not complete within 0\.4 s"):
                await ask(client, stream=stream)
            assert time.monotonic() - began > 0.35  # clock: a lower bound

    asyncio.run(story())


def test_the_whole_time_holds_for_all_attempts_together() -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await request_of(reader)
        asked += 1
        await asyncio.sleep(0.2)  # clock: a server that takes its time; more is as good
        writer.write(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")

    async def story() -> None:
        async with client_of(serve, limits=Limits(total_s=0.6, backoff_s=0.1)) as client:
            with pytest.raises((ServerUnavailableError, RequestTimeoutError)):
                await ask(client)
            assert asked <= 3

    asyncio.run(story())


def test_the_whole_time_holds_for_all_pieces_of_a_continued_answer() -> None:
    from callgate import Gate
    from callgate.models.gemini import GeminiModel

    chunk = (
        b'{"candidates":[{"content":{"role":"model","parts":[{"text":"more "}]},"finishReason":"CONTINUATION",'
        b'"continuationToken":"dG9r"}]}'
    )
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await request_of(reader)
            asked += 1
            await asyncio.sleep(0.1)  # clock: a server that takes its time; more is as good
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(chunk), chunk))

    async def story() -> None:
        limits = Limits(total_s=0.5)
        async with client_of(serve, limits=limits) as client:
            gate = Gate(GeminiModel("gemini-4-argon", client=client), limits=limits)
            with pytest.raises(RequestTimeoutError, match="not complete within"):
                await gate.run("Go.")
            assert asked <= 6

    asyncio.run(story())


# Uploads -----------------------------------------------------------------------------------------------------------------


def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets that take little at once, so that a body does not vanish into the system."""
    setblocking = socket.socket.setblocking

    def shrunk(sock: socket.socket, flag: bool) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        setblocking(sock, flag)

    monkeypatch.setattr(socket.socket, "setblocking", shrunk)


def test_the_first_byte_is_waited_for_from_the_end_of_a_slow_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    body = BODY[:-1] + b',"x":"' + b"y" * 4_000_000 + b'"}'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        read = 0
        while read < len(body):
            read += len(await reader.read(400_000))
            await asyncio.sleep(0.1)  # clock: a server that takes its time; more is as good
        writer.write(ANSWER)

    async def story() -> None:
        async with client_of(serve, limits=Limits(first_byte_s=0.4, idle_s=10)) as client:
            assert chunks_in(await ask(client, body, stream=True)) == 1

    small_buffers(monkeypatch)
    asyncio.run(story())


def test_an_upload_that_does_not_go_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        await gone.wait()

    gone = asyncio.Event()

    async def story() -> None:
        async with client_of(serve, limits=Limits(first_byte_s=10, idle_s=0.3, total_s=20)) as client:
            with pytest.raises(RequestTimeoutError, match=r"took nothing of the request for 0\.3 s"):
                await ask(client, b"x" * 20_000_000)
            gone.set()

    small_buffers(monkeypatch)
    asyncio.run(story())


def test_a_connection_with_an_unsent_rest_of_a_request_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 400 No\r\ncontent-length: 2\r\n\r\n{}")  # And reads no more.
            await done.wait()
        else:
            await request_of(reader)
            writer.write(ANSWER)

    done = asyncio.Event()

    async def story() -> None:
        async with client_of(serve, limits=Limits(first_byte_s=3)) as client:
            with pytest.raises(ModelError, match="400"):
                await ask(client, b"x" * 20_000_000)
            assert chunks_in(await ask(client)) == 1
            done.set()

    small_buffers(monkeypatch)
    asyncio.run(story())


# Kept connections --------------------------------------------------------------------------------------------------------


def test_of_many_connections_that_break_in_use_one_costs_a_second_request_and_no_more() -> None:
    """What the server has worked for is not asked for again over each connection that was kept."""
    breaking = False
    asked = 0
    everybody = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await request_of(reader)
            asked += 1
            if breaking:
                return
            if asked == 20:
                everybody.set()
            await everybody.wait()
            writer.write(ANSWER)

    async def story() -> None:
        nonlocal breaking, asked
        async with client_of(serve, limits=Limits(attempts=1)) as client:
            await asyncio.gather(*[ask(client) for _ in range(20)])
            breaking, asked = True, 0
            with pytest.raises(ConnectionLostError):
                await ask(client)
            assert asked == 2, "the second one over a new connection"

    asyncio.run(story())


def test_a_kept_connection_that_breaks_after_a_while_counts_as_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.wire.http11.STALE_S", 0.05)
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await request_of(reader)
        writer.write(ANSWER)
        await request_of(reader)
        asked += 1
        await asyncio.sleep(0.2)  # clock: a server that takes its time; more is as good

    async def story() -> None:
        async with client_of(serve, limits=Limits(attempts=1)) as client:
            await ask(client)
            with pytest.raises(ConnectionLostError):
                await ask(client)
            assert asked == 1

    asyncio.run(story())


def test_connections_that_nobody_uses_are_closed_in_time_while_others_are_used() -> None:
    closed = 0

    async def story() -> None:
        nonlocal closed
        everybody, all_closed, here = asyncio.Event(), asyncio.Event(), 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal closed, here
            try:
                while True:
                    await request_of(reader)
                    here += 1
                    if here == 10:
                        everybody.set()
                    await everybody.wait()
                    writer.write(ANSWER)
            except (asyncio.IncompleteReadError, ConnectionError):
                closed += 1
                if closed == 9:
                    all_closed.set()
            finally:
                writer.close()

        async with asyncio.timeout(300), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            connections = Connections(ssl_context, connect_s=5, at_once=100, kept=100, kept_s=0.3)
            address = Address.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            address.carries([(b"host", address.host)], {})

            async def one() -> None:
                until = asyncio.get_running_loop().time() + 20
                answer = await connections.post(address, [], BODY, within_s=20, until=until)
                while await answer.piece() is not None:
                    pass
                await answer.aclose()

            await asyncio.gather(*[one() for _ in range(10)])
            while not all_closed.is_set():  # One of them is in use all the time.
                await one()
                await asyncio.sleep(0.01)
            assert closed == 9
            await connections.aclose()

    asyncio.run(story())


def ssl_context() -> Any:
    import httpx2

    return httpx2.create_ssl_context()


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/dev/fd"))


def test_event_loops_that_end_leave_no_connections_behind() -> None:
    """One client and a new event loop for each question, as programs without async have it."""
    ready: queue.Queue[str] = queue.Queue()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with FakeGemini(["Hello."] * 40) as fake:
            ready.put(fake.base_url)
            await stop.wait()

    server = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    server.start()
    try:
        client = GeminiClient(Surface(kind="developer", base_url=ready.get(timeout=60), version="v1beta", api_key="k"))
        counts: list[int] = []
        for _ in range(20):
            assert len(asyncio.run(ask(client))) == 1
            counts.append(descriptors())
        assert min(counts[-5:]) <= counts[2], counts  # The server closes its side in a thread of its own, and may be late.
        assert len(client._http.sender._pools) <= 1
    finally:
        loop.call_soon_threadsafe(stop.set)
        server.join(60)
        loop.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_connections_of_a_loop_that_was_closed_without_a_word_are_closed_by_the_next_one() -> None:
    async def story(client: GeminiClient) -> None:
        assert chunks_in(await ask(client)) == 1

    server = socket.create_server(("127.0.0.1", 0))
    client = GeminiClient(
        Surface(
            kind="developer", base_url=f"http://127.0.0.1:{server.getsockname()[1]}", version="v1", api_key="key-of-a-test"
        )
    )
    from threading import Thread

    accepted: list[socket.socket] = []

    def answer() -> None:
        for _ in range(2):
            connection, _ = server.accept()
            accepted.append(connection)
            connection.settimeout(60)
            connection.recv(1 << 16)
            connection.sendall(ANSWER)

    thread = Thread(target=answer)
    thread.start()
    for _ in range(2):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(asyncio.wait_for(story(client), 60))
        if len(accepted) == 1:
            loop.close()  # Without shutdown_asyncgens: nobody is told.
    thread.join(60)
    assert accepted[0].recv(1) == b"", "the first connection was closed when the second loop came"
    loop.run_until_complete(client.aclose())
    loop.close()
    for connection in (server, *accepted):
        connection.close()
    gc.collect()  # The transport of the first loop says now that nobody closed it.


def test_the_system_looks_whether_the_other_side_is_still_there() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(ANSWER)
        await reader.read()

    async def story() -> None:
        async with client_of(serve) as client:
            await ask(client)
            pool = client._http.sender._pools[asyncio.get_running_loop()]
            (connection,) = pool.direct()._idle
            assert connection.socket._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

    asyncio.run(story())


# Waits -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [b"retry-after: 0", b"retry-after: Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_server_that_asks_for_no_wait_at_all_is_not_asked_five_times_at_once(header: bytes) -> None:
    asked: list[float] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        asked.append(time.monotonic())
        writer.write(b"HTTP/1.1 429 Slow\r\n%b\r\ncontent-length: 0\r\n\r\n" % header)

    async def story() -> None:
        async with client_of(serve, limits=Limits(attempts=3, backoff_s=0.1)) as client:
            with pytest.raises(RateLimitedError):
                await ask(client)

    asyncio.run(story())
    assert asked[1] - asked[0] >= 0.05
    assert asked[2] - asked[1] >= 0.1


@pytest.mark.parametrize("end", ["silence", "reset"])
def test_an_answer_with_its_finish_reason_is_given_out_though_its_body_never_ends(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.wire.attempt.END_S", 0.1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\ndata: " + CHUNK + b"\r\n\r\n")
        await writer.drain()
        if end == "silence":
            await reader.read()
        else:
            await asyncio.sleep(0.05)  # clock: a server that takes its time; more is as good
            writer.transport.abort()

    async def story() -> None:
        async with client_of(serve, limits=Limits(attempts=1)) as client:
            items = await ask(client, stream=True)
            assert chunks_in(items) == 1
            assert [item.code for item in items if isinstance(item, Notice)] == ["unended"]

    asyncio.run(story())


# --- the end of an answer that is not streamed ---------------------------------------------------------------------------

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(CHUNK), CHUNK)
LONGER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(CHUNK) + 9, CHUNK)


@pytest.mark.parametrize("sent", [CHUNKED, LONGER], ids=["chunked", "longer"])
def test_a_whole_answer_with_its_finish_reason_is_returned_though_its_body_never_ends(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.wire.attempt.END_S", 0.05)
    requests: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await request_of(reader))
        writer.write(sent)
        await writer.drain()
        await reader.read()  # Until the client has had enough.
        await closed(writer)
        over.set()

    async def story() -> list[Any]:
        async with client_of(serve) as client:
            items = await ask(client)
            await over.wait()
            return items

    *chunks, notice = asyncio.run(story())
    assert [chunk["candidates"][0]["finishReason"] for chunk in chunks] == ["STOP"]
    assert (isinstance(notice, Notice), len(requests)) == (True, 1)


def test_a_whole_answer_that_breaks_off_before_its_finish_reason_is_none() -> None:
    half = CHUNK.partition(b',"finishReason"')[0] + b"}]}"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(half) + 9, half))
        await closed(writer)
        over.set()

    over = asyncio.Event()

    async def story() -> None:
        async with client_of(serve, limits=Limits(attempts=1)) as client:
            with pytest.raises(ModelError):
                await ask(client)
            await over.wait()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"message": "no route"}', "no route"),
        (b'{"detail": "wrong tenant"}', "wrong tenant"),
        (b'{"detail": [{"msg": "too long"}]}', "too long"),
        (b'{"title": "Forbidden zone", "status": 400}', "Forbidden zone"),
        (b"{}", "HTTP 400"),
    ],
)
def test_the_error_of_a_gateway_says_what_the_gateway_says(body: bytes, said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await closed(writer)
        over.set()

    over = asyncio.Event()

    async def story() -> None:
        async with client_of(serve) as client:
            with pytest.raises(InvalidRequestError, match=said):
                await ask(client)
            await over.wait()

    asyncio.run(story())
