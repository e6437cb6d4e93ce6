"""Fake servers of other people as judges: what callgate sends is taken by them, and what they answer is understood."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, GeminiModel, OpenAIModel
from callgate.gemini.surface import Surface

pytestmark = pytest.mark.judge("aimock")

SAID = "Hello from a server of somebody else, in several pieces."
FIXTURES = {
    "fixtures": [
        {
            "match": {"userMessage": "weather", "hasToolResult": False},
            "response": {"toolCalls": [{"name": "look", "arguments": '{"city":"Oslo"}'}]},
        },
        {"match": {"userMessage": "weather", "hasToolResult": True}, "response": {"content": "It is sunny in Oslo."}},
        {"match": {"userMessage": "hello"}, "response": {"content": SAID}},
    ]
}


@pytest.fixture(scope="module")
def aimock(npm_program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of `@copilotkit/aimock`, which speaks as Gemini and as OpenAI."""
    program = npm_program("llmock")
    fixtures: Path = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps(FIXTURES))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["node", program, "-p", str(port), "-f", str(fixtures), "--log-level", "silent"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(_until_up(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(60)


async def _until_up(port: int) -> None:
    async with asyncio.timeout(300):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)  # clock: between two looks at a port
            else:
                writer.close()
                await writer.wait_closed()
                return


async def look(city: str) -> str:
    """Looks at the weather of a city."""
    return f"{city} is sunny"


def gemini(url: str) -> Any:
    return GeminiModel("gemini-3.8-flash", surface=Surface(kind="developer", base_url=url, version="v1beta", api_key="k"))


def openai(url: str) -> Any:
    return OpenAIModel("gpt-5.2", base_url=f"{url}/v1", api_key="k")


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(30):
            return await story()

    return asyncio.run(bounded())


@pytest.mark.parametrize("model", [gemini, openai])
def test_text_of_a_server_of_other_people_is_read_whole_and_streamed(model: Callable[[str], Any], aimock: str) -> None:
    async def story() -> None:
        async with Gate(model(aimock)) as gate:
            assert (await gate.run("hello")).text == SAID
            assert "".join([getattr(event, "text", "") async for event in gate.stream("hello")]) == SAID

    run(story)


def test_a_tool_is_called_and_its_result_sent_back_to_a_server_of_other_people(aimock: str) -> None:
    async def story() -> None:
        async with Gate(openai(aimock), [look]) as gate:
            reply = await gate.run("weather")
            assert reply.text == "It is sunny in Oslo."
            assert [record.call.args for record in reply.calls] == [{"city": "Oslo"}]

    run(story)


def test_a_call_of_a_server_of_other_people_is_read_in_the_form_of_gemini(aimock: str) -> None:
    """It ends such an answer with FUNCTION_CALL, which is no finish reason of Google's."""

    async def story() -> None:
        async with Gate(gemini(aimock), [look]) as gate:
            reply = await gate.run("weather")
            assert [record.call.args for record in reply.calls] == [{"city": "Oslo"}]

    run(story)
