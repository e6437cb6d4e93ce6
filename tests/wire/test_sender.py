"""How many requests are on their way at once."""

from __future__ import annotations

import asyncio
import resource

import pytest

from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.wire.sender import CONNECTIONS_MAX, connections_max

BODY = b'{"contents":[{"role":"user","parts":[{"text":"Hi."}]}]}'
CHUNK = b'{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello"}]},"finishReason":"STOP"}]}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(CHUNK), CHUNK)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (resource.RLIM_INFINITY, CONNECTIONS_MAX),
        (1_000_000, CONNECTIONS_MAX),
        (1_024, 512),
        (256, 128),
        (1, 1),
    ],
)
def test_connections_leave_half_of_the_files_that_may_be_open_to_the_program(
    files: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    assert connections_max() == expected


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1_000, reason="may not open that many files")
def test_hundreds_of_requests_are_under_way_at_once() -> None:
    many = 400

    async def story() -> list[int]:
        everybody, here = asyncio.Event(), 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal here
            await reader.readuntil(BODY)
            here += 1
            if here == many:
                everybody.set()
            await everybody.wait()  # Nobody is answered before all have asked.
            writer.write(ANSWER)
            await reader.read()
            writer.close()

        async with asyncio.timeout(300), await asyncio.start_server(serve, "127.0.0.1", 0, backlog=many) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            client = GeminiClient(Surface(kind="developer", base_url=url, version="v1beta", api_key="k"))

            async def ask() -> int:
                return len([chunk async for chunk in client.chunks("m", BODY, stream=False, tools=[])])

            try:
                return await asyncio.gather(*(ask() for _ in range(many)))
            finally:
                await client.aclose()

    assert asyncio.run(story()) == [1] * many
