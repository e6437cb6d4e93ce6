"""The HTTP client on event loops that are not asyncio's own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.testing import call
from callgate.testing.fake_gemini import FakeGemini

uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed; its event loop was not tested")
BODY = b'{"contents":[{"role":"user","parts":[{"text":"Hi."}]}]}'


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
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


TOOL = '''
import asyncio
from callgate import tool

@tool(read_only=True)
async def loop() -> str:
    """Name the event loop."""
    return type(asyncio.get_running_loop()).__module__
'''


def test_callgate_serve_answers_on_uvloop(tmp_path: Path) -> None:
    (tmp_path / "tools_here.py").write_text(TOOL)
    words = ["serve", "--port", "0", "--no-token", "--ephemeral", "-T", "tools_here.py"]

    async def story() -> None:
        async with FakeGemini([call("loop"), "Hello."]) as fake:
            env = {
                **os.environ,
                "CALLGATE_PROVIDER": "gemini",
                "GEMINI_API_KEY": "k",
                "GOOGLE_GEMINI_BASE_URL": fake.base_url,
            }
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "callgate", *words, cwd=tmp_path, env=env, stderr=asyncio.subprocess.PIPE
            )
            try:
                assert process.stderr is not None
                line = ""
                while "serves at http://" not in line:
                    line = (await process.stderr.readline()).decode()
                    assert line, "the service has ended"
                url = line.partition("serves at ")[2].split()[0].rstrip("/")
                async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
                    answer = await http.post(f"{url}/api/v1/chat", json={"prompt": "Go."})
                assert answer.status_code == 200, answer.text
                assert "Hello." in answer.text, answer.text
                (result,) = fake.requests[-1].json["contents"][-1]["parts"]
                assert "uvloop" in str(result), "the service runs on another event loop"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.communicate()

    asyncio.run(asyncio.wait_for(story(), 120))
