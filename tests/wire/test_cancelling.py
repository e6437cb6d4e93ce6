"""Callers that stop waiting at any moment: no answer is taken for another's, and no connection and no place is lost."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.wire.sender import Pool

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
WAYS = ("own-asyncio", "own-uvloop", "httpx2-asyncio", "httpx2-uvloop")


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the number that it was asked with, in two pieces and not at once."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            number = (await reader.readexactly(size)).rpartition(b'"text":"')[2].partition(b'"')[0]
            body = b'{"candidates":[{"content":{"parts":[{"text":"%b"}]},"finishReason":"STOP"}]}' % number
            whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            cut = random.randrange(len(whole))
            for piece in (whole[:cut], whole[cut:]):
                await asyncio.sleep(random.choice((0, 0, 0.001)))
                writer.write(piece)
    except (asyncio.IncompleteReadError, ConnectionError, RuntimeError):
        pass
    finally:
        writer.close()


@pytest.mark.parametrize("way", [WAYS[0], *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS[1:])])
def test_cancelled_callers_cost_nobody_else_anything(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    http, _, loop = way.partition("-")
    monkeypatch.setenv("CALLGATE_HTTP", http)
    monkeypatch.setattr("callgate.wire.sender.connections_max", lambda: 10)
    dice = random.Random(11)
    right = 0

    async def story() -> None:
        nonlocal right
        async with asyncio.timeout(300), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            client = GeminiClient(Surface(kind="developer", base_url=url, version="v1", api_key="key-of-a-test"))

            async def ask(number: int) -> None:
                nonlocal right
                body = b'{"contents":[{"role":"user","parts":[{"text":"%d"}]}]}' % number
                (chunk,) = [item async for item in client.chunks("m", body, stream=bool(number % 2), tools=[])]
                assert chunk["candidates"][0]["content"]["parts"][0]["text"] == str(number), "another's answer"
                right += 1

            running: list[asyncio.Task[None]] = []
            for number in range(600 * SCALE):
                running.append(asyncio.create_task(ask(number)))
                if dice.random() < 0.6:
                    task: Any = dice.choice(running[-20:])
                    asyncio.get_running_loop().call_later(dice.choice((0, 0.001, 0.003)), task.cancel)
                if number % 10 == 9:
                    await asyncio.sleep(0.002)  # clock: lets some of them get on; any time will do
            results = await asyncio.gather(*running, return_exceptions=True)
            wrong = [result for result in results if result is not None and not isinstance(result, asyncio.CancelledError)]
            assert wrong == []
            await asyncio.gather(*[ask(number) for number in range(20)])  # Twice as many as there are places.
            pool: Pool = client._http.sender._pools[asyncio.get_running_loop()]
            assert pool.users == 0
            await client.aclose()

    if loop == "uvloop":
        uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed; its event loop was not tested")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(story())
    else:
        asyncio.run(story())
    assert right > 100
