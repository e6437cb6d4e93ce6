"""The real Gemini API, in a few short conversations: `make live`, with a key.

They ask for so little that every current model can do it, and hold only what must be true whatever the model says. Without
Google, they run against the fake server when `GOOGLE_GEMINI_BASE_URL` leads there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from callgate.events import CallFinished, RunEnded, TextDelta
from callgate.history.repair import validate
from callgate.models.gemini import GeminiModel
from callgate.run.gate import Gate

HAS_KEY = bool(os.environ.get("GOOGLE_API_KEY") or os.environ.get("GEMINI_API_KEY"))
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not HAS_KEY, reason="no key for Gemini: set GEMINI_API_KEY (or GOOGLE_API_KEY) and run `make live`"),
]


def weather(city: str) -> dict[str, Any]:
    """The weather of a city right now.

    Args:
        city: The name of the city, such as Oslo.
    """
    return {"city": city, "celsius": 4 if city == "Oslo" else 21}


@asynccontextmanager
async def gate(**options: Any) -> AsyncIterator[Gate]:
    async with Gate(GeminiModel(os.environ.get("GEMINI_MODEL") or "gemini-flash-latest"), **options) as opened:
        yield opened


def bounded(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(120):
            await work

    asyncio.run(limited())


def test_text() -> None:
    async def main() -> None:
        async with gate(system="Answer in one short sentence.") as opened:
            reply = await opened.run("What is the capital of Norway?")
        assert reply.ok
        assert reply.text
        assert reply.usage.total_tokens > 0

    bounded(main())


def test_one_call() -> None:
    async def main() -> None:
        async with gate(tools=[weather]) as opened:
            reply = await opened.run("Use the tool: what is the weather in Oslo?", tool_choice="weather")
        assert reply.ok
        assert reply.text
        assert [record.state for record in reply.calls][:1] == ["finished"]

    bounded(main())


def test_parallel_calls() -> None:
    async def main() -> None:
        async with gate(tools=[weather], system="Ask for all cities at once, in parallel calls.") as opened:
            reply = await opened.run("Compare the weather in Oslo and in Rome, with the tool.", tool_choice="required")
        assert reply.ok
        assert reply.calls
        assert all(record.state == "finished" for record in reply.calls)
        assert validate(reply.contents) == []

    bounded(main())


def test_stream() -> None:
    async def main() -> None:
        async with gate(tools=[weather]) as opened:
            events = [event async for event in opened.stream("What is the weather in Oslo? Use the tool.")]
        ended = events[-1]
        assert isinstance(ended, RunEnded)
        assert ended.reply.ok
        assert "".join(event.text for event in events if isinstance(event, TextDelta)).endswith(ended.reply.text)
        assert sum(isinstance(event, CallFinished) for event in events) == len(ended.reply.calls)

    bounded(main())


def test_signatures_are_taken_back_in_a_second_question() -> None:
    async def main() -> None:
        async with gate(tools=[weather], settings={"include_thoughts": True}) as opened:
            first = await opened.run("What is the weather in Oslo? Use the tool.", session="s", tool_choice="required")
            second = await opened.run("And in Rome? Use the tool again.", session="s")
        assert first.ok
        assert second.ok
        # A damaged or missing signature would have been refused with a 400.
        assert second.contents[: len(first.contents)] == first.contents

    bounded(main())
