"""The HTTP client on event loops that are not asyncio's own."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.testing.fake_gemini import FakeGemini

uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed; its event loop was not tested")
BODY = b'{"contents":[{"role":"user","parts":[{"text":"Hi."}]}]}'


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await story()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


async def answers(fake: FakeGemini, times: int) -> int:
    client = GeminiClient(Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k"))
    try:
        asked = [client.chunks("m", BODY, stream=stream, tools=[]) for stream in (True, False) * times]
        return len([chunk for items in asked async for chunk in items])
    finally:
        await client.aclose()


def test_requests_over_plain_http_are_answered_on_uvloop(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with FakeGemini(["Hello."] * 6) as fake:
            assert await answers(fake, 3) == 6
            assert fake.connections == 1

    run(story)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_requests_over_tls_are_answered_on_uvloop_without_a_word_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tls_server: tuple[ssl.SSLContext, str]
) -> None:
    server, trusted = tls_server
    # What the environment says of certificates may have been read before, by another test of this process.
    monkeypatch.setattr("httpx2.create_ssl_context", lambda: ssl.create_default_context(cafile=trusted))

    async def story() -> None:
        async with FakeGemini(["Hello."] * 2, tls=server) as fake:
            assert await answers(fake, 1) == 2

    run(story)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
