"""The real Interactions API, in a few short conversations: `make live`, with a key.

They hold only what must be true whatever the model says. Without Google, they run against the fake server when
`GOOGLE_GEMINI_BASE_URL` leads there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

import pytest

from callgate.history.repair import validate
from callgate.models.interactions import InteractionsModel
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
    return {"city": city, "celsius": 4}


def model() -> InteractionsModel:
    return InteractionsModel(os.environ.get("GEMINI_MODEL") or "gemini-flash-latest")


def bounded(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(300):
            await work

    asyncio.run(limited())


@pytest.mark.parametrize("settings", [{}, {"store": True}], ids=["stateless", "stored"])
def test_a_call_is_made_answered_and_followed_up(settings: dict[str, Any]) -> None:
    async def story() -> None:
        async with Gate(model(), [weather], settings=settings) as gate:
            reply = await gate.run("What is the weather in Oslo? Use the tool.", session="s")
            assert [record.state for record in reply.calls] == ["finished"] * len(reply.calls)
            assert reply.calls
            again = await gate.run("Thank you. Say so in one word.", session="s", tool_choice="none")
            assert again.text
            assert validate(again.contents) == []

    bounded(story())


def test_a_streamed_answer_is_the_whole_answer() -> None:
    async def story() -> None:
        async with Gate(model()) as gate:
            events = [event async for event in gate.stream("Say hello in one sentence.")]
            text = "".join(event.text for event in events if type(event).__name__ == "TextDelta")
            assert text == events[-1].reply.text != ""  # pyright: ignore[reportAttributeAccessIssue]

    bounded(story())


def test_a_background_run_ends() -> None:
    async def story() -> None:
        async with Gate(model(), settings={"background": True}) as gate:
            assert (await gate.run("Say hello in one sentence.")).text

    bounded(story())
