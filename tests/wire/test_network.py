"""Sockets of the HTTP client: who waits is told in time, however long those before had been willing to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from callgate.wire.network import Socket, connect


@asynccontextmanager
async def linked(host: str = "127.0.0.1") -> AsyncGenerator[tuple[Socket, asyncio.StreamWriter]]:
    """A socket, and what writes to it from the other end."""
    met: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.set_result(writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        socket = await connect(host, server.sockets[0].getsockname()[1], trust=None, timeout_s=5)
        writer = await met
        try:
            yield socket, writer
        finally:
            await socket.aclose()
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("patience_s", [(60.0, 0.05), (0.05, 0.1), (0.02, 0.02)], ids=["earlier", "later", "as_long"])
def test_a_wait_ends_at_its_own_time_whatever_alarm_was_set_before(patience_s: tuple[float, float]) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(300), linked() as (socket, writer):
            writer.write(b"one")
            first = asyncio.create_task(socket.read(loop.time() + patience_s[0]))
            assert await first == b"one"
            until = loop.time() + patience_s[1]
            with pytest.raises(TimeoutError):
                await socket.read(until)
            assert loop.time() >= until - 0.01
            writer.write(b"two")
            assert await socket.read(loop.time() + 20) == b"two"

    asyncio.run(story())


def test_who_stops_waiting_takes_nothing_from_who_waits_next() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(300), linked() as (socket, writer):
            given_up = asyncio.create_task(socket.read(loop.time() + 0.02))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            waiting = asyncio.create_task(socket.read(loop.time() + 20))
            await asyncio.sleep(0.05)  # clock: the first alarm rings meanwhile, for nobody; more is as good
            writer.write(b"here")
            assert await waiting == b"here"

    asyncio.run(story())


def test_a_kept_connection_can_be_looked_at_again_and_again() -> None:
    async def story() -> None:
        async with asyncio.timeout(300), linked() as (socket, writer):
            assert [socket.is_readable() for _ in range(3)] == [False] * 3
            writer.write(b"more")
            assert await socket.read() == b"more"
            assert not socket.is_readable()
            socket.abort()
            assert socket.is_readable()

    asyncio.run(story())


def test_what_nobody_waits_for_any_more_does_not_leave() -> None:
    async def story() -> None:
        come: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                come.set_result(await reader.read())
            except ConnectionResetError:
                come.set_result(b"")
            writer.close()

        async with asyncio.timeout(300), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            socket = await connect("127.0.0.1", server.sockets[0].getsockname()[1], trust=None, timeout_s=5)
            socket.write(b"a request")
            waiting = socket.read()
            waiting.send(None)  # It waits now, and the round of the loop is not over.
            waiting.close()
            await socket.aclose()
            assert await come == b""

    asyncio.run(story())


def test_an_address_is_connected_to_without_a_lookup_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        asked: list[str] = []
        loop = asyncio.get_running_loop()
        look_up = loop.getaddrinfo

        def asking(host: str, *args: Any, **more: Any) -> Any:
            asked.append(host)
            return look_up(host, *args, **more)

        monkeypatch.setattr(loop, "getaddrinfo", asking)
        for host in ("127.0.0.1", "localhost"):
            async with asyncio.timeout(300), linked(host) as (socket, writer):
                writer.write(b"here")
                assert await socket.read(loop.time() + 60) == b"here"
        assert asked == ["localhost"]

    asyncio.run(story())
