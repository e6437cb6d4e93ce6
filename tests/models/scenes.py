"""A gate that talks to one fake server on virtual time, for the tests of the models."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from callgate import Gate, Limits, tool
from callgate.events import RunEnded

QUICK = Limits(connect_s=2, first_byte_s=5, idle_s=5, total_s=20)


class Clock:
    """Time that passes only by sleeping, and then at once."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@dataclass
class Scene:
    fake: Any
    model: Any
    gate: Gate
    clock: Clock
    events: list[Any] = field(default_factory=list)

    async def ask(self, prompt: Any = "Go.", *, stream: bool = True, **options: Any) -> Any:
        if not stream:
            return await self.gate.run(prompt, session="s", **options)
        self.events = [event async for event in self.gate.stream(prompt, session="s", **options)]
        assert isinstance(self.events[-1], RunEnded)
        return self.events[-1].reply

    def body(self, place: int = -1) -> dict[str, Any]:
        return self.fake.requests[place].json
