"""One request and its response: an abandoned one holds nothing, and none takes longer than it may."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from callgate import Limits
from callgate.errors import RequestTimeoutError
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface

BODY = b'{"contents":[{"role":"user","parts":[{"text":"Hi."}]}]}'
EVENT = b'data: {"candidates":[{"content":{"parts":[{"text":"Hello"}]}}]}\r\n\r\n'
BEGINNING = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + EVENT


def surface_at(server: asyncio.Server, **more: Any) -> Surface:
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    return Surface(**{"kind": "developer", "base_url": url, "version": "v1beta", "api_key": "k", **more})


def test_an_answer_that_is_dropped_in_the_middle_lets_its_connection_go() -> None:
    async def story() -> None:
        closed = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(BEGINNING)
            while await reader.read(1 << 16):
                pass
            closed.set()
            writer.close()

        async with asyncio.timeout(300), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            client = GeminiClient(surface_at(server))
            items = client.chunks("m", BODY, stream=True, tools=[])
            assert await anext(items) == {"candidates": [{"content": {"parts": [{"text": "Hello"}]}}]}
            assert not closed.is_set()
            del items
            gc.collect()
            await closed.wait()
            await client.aclose()

    asyncio.run(story())


async def _trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A head that comes byte by byte and never ends, as long as somebody is there."""
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    while not writer.is_closing():
        writer.write(b"x")
        await asyncio.sleep(0.01)


class _Slow:
    """Credentials that never come."""

    async def token(self) -> str:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody fetches it")


@pytest.mark.parametrize(
    ("what", "limits", "told"),
    [
        ("head", Limits(first_byte_s=0.1), "sent nothing for 0.1 s"),
        ("head", Limits(total_s=1, first_byte_s=60), "not complete within 1 s"),
        ("credentials", Limits(first_byte_s=0.1), "no credentials came within 0.1 s"),
        ("credentials", Limits(total_s=0.1, first_byte_s=60), "not complete within 0.1 s"),
    ],
    ids=["head-first_byte", "head-total", "credentials-first_byte", "credentials-total"],
)
def test_a_head_or_credentials_that_never_come_are_waited_for_no_longer_than_allowed(
    what: str, limits: Limits, told: str
) -> None:
    async def story() -> None:
        over = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _trickle(reader, writer)
            writer.close()
            over.set()

        async with asyncio.timeout(300), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            vertex = {"kind": "vertex", "project": "p", "location": "l", "api_key": None, "tokens": _Slow()}
            client = GeminiClient(surface_at(server, **(vertex if what == "credentials" else {})), limits=limits)
            with pytest.raises(RequestTimeoutError, match=told):
                await anext(client.chunks("m", BODY, stream=True, tools=[]))
            await client.aclose()
            if what == "head":
                await over.wait()

    asyncio.run(story())
