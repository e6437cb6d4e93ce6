"""A scene with a strict server of the Interactions API, and every request body judged by the types of Google's SDK."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import TypeAdapter

from callgate import Gate, InteractionsModel, Limits, tool
from callgate.gemini.surface import Surface
from callgate.interactions.client import InteractionsClient
from callgate.testing.fake_interactions import FakeInteractions

MODEL = "gemini-3.8-flash"


class Clock:
    """Virtual time: a wait is over at once, and counted."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


@dataclass
class Scene:
    gate: Gate
    fake: FakeInteractions
    ran: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    notices: list[str] = field(default_factory=list)

    async def ask(self, prompt: str | None = "Go.", **options: Any) -> Any:
        from callgate.events import Notice

        async def watch(event: Any) -> None:
            if isinstance(event, Notice):
                self.notices.append(event.code)

        return await self.gate.run(prompt, watch=watch, **options)


def model_for(fake: FakeInteractions, clock: Clock, name: str = MODEL, *, key: str = "test-key", **options: Any) -> Any:
    surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key=key)
    limits = options.pop("limits", Limits(attempts=3, backoff_s=0.01, backoff_max_s=5.0, idle_s=5.0, first_byte_s=30.0))
    client = InteractionsClient(surface, limits=limits, clock=clock, dice=random.Random(1))
    return InteractionsModel(name, client=client, **options)


@asynccontextmanager
async def scene_of(
    script: list[Any] | None, *, name: str = MODEL, fake: Any = None, model: Any = None, **options: Any
) -> AsyncIterator[Scene]:
    ran: list[str] = []

    @tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        ran.append(f"add {a} {b}")
        return a + b

    clock = Clock()
    tools = options.pop("tools", None)
    async with asyncio.timeout(120), FakeInteractions(script, **(fake or {})) as server:
        made = model_for(server, clock, name, **(model or {}))
        async with Gate(made, [add] if tools is None else tools, mode="native", **options) as gate:
            yield Scene(gate, server, ran, clock)


def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(story())


@pytest.fixture
def unjudged() -> None:
    """For tests that send what the types of the SDK do not know."""


@pytest.fixture(autouse=True)
def judged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    interactions = pytest.importorskip("google.genai._gaos.types.interactions", reason="google-genai is not installed")
    models = TypeAdapter(interactions.CreateModelInteraction)
    agents = TypeAdapter(interactions.CreateAgentInteraction)
    problems: list[str] = []
    leave = FakeInteractions.__aexit__

    async def exit_judged(fake: FakeInteractions, *args: Any) -> None:
        for body in fake.creations:
            try:
                (agents if "agent" in body else models).validate_python(body)
            except ValueError as error:
                problems.append(str(error))
        await leave(fake, *args)
        problems.extend(fake.breaches)

    monkeypatch.setattr(FakeInteractions, "__aexit__", exit_judged)
    yield
    if "unjudged" not in request.fixturenames:
        assert problems == []
