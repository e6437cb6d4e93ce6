"""Many callers and a server in trouble, simulated: what each of them gets, and what the server has to bear.

Time is virtual: it passes when everybody waits. The server is a `Transport`, so nothing but the sockets is left out: the
client, its retries and the health that all callers share are the real ones.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from callgate.errors import ModelError
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.wire.endpoint_health import FAIL_FAST_S, EndpointHealth
from callgate.wire.sender import HttpOptions

GOOD = b'{"candidates":[{"content":{"role":"model","parts":[{"text":"Hi."}]},"finishReason":"STOP"}]}'
LATENCY_S = 0.02
SEED = 5
MANY = pytest.param(1_000, marks=pytest.mark.slow)


class Timeline:
    """Virtual time: when nobody can do anything else, those wake up who wait for the next moment."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self.numbers = itertools.count()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self.waiting, (self.time + seconds, next(self.numbers), woken))
        await woken

    async def run(self, work: Awaitable[Any]) -> Any:
        whole = asyncio.ensure_future(work)
        idle = 0
        while not whole.done():
            await asyncio.sleep(0)
            idle += 1
            if idle > 12 and self.waiting:
                idle = 0
                self.time = self.waiting[0][0]
                while self.waiting and self.waiting[0][0] <= self.time:
                    woken = heapq.heappop(self.waiting)[2]
                    if not woken.done():
                        woken.set_result(None)
        return whole.result()


@dataclass
class Response:
    status_code: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        yield self.body

    async def aclose(self) -> None:
        pass


@dataclass
class Server:
    """A server whose status depends on the time."""

    time: Timeline
    status: Callable[[float], int]
    asked: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)

    async def post(self, url: str, *, headers: Mapping[str, str], content: bytes) -> Response:
        now = self.time.now()
        self.asked.append(now)
        status = self.status(now)
        await self.time.sleep(LATENCY_S)  # clock: virtual time
        if status == 200:
            self.answered.append(self.time.now())
            return Response(200, GOOD)
        return Response(status, b'{"error":{"code":%d,"message":"no"}}' % status)


@dataclass
class Outcome:
    at: float
    took_s: float
    error: ModelError | None


class Simulation:
    def __init__(self, status: Callable[[float], int]) -> None:
        self.time = Timeline()
        self.server = Server(self.time, status)
        self.dice = random.Random(SEED)
        surface = Surface(kind="developer", base_url="http://simulated", version="v1", api_key="k")
        self.client = GeminiClient(
            surface, clock=self.time, health=EndpointHealth(self.time, dice=random.Random(SEED)),
            dice=random.Random(SEED), options=HttpOptions(http=self.server),
        )  # fmt: skip
        self.outcomes: list[Outcome] = []

    async def ask(self, at: float, number: int) -> Outcome:
        """One question, at this time."""
        await self.time.sleep(at - self.time.now())
        error: ModelError | None = None
        body = b'{"contents":[{"role":"user","parts":[{"text":"%d"}]}]}' % number
        try:
            async for _ in self.client.chunks("m", body, stream=False, tools=[]):
                pass
        except ModelError as raised:
            error = raised
        outcome = Outcome(at, self.time.now() - at, error)
        self.outcomes.append(outcome)
        return outcome

    async def keep_asking(self, start: float, until: float, number: int, pause_s: float = 1.0) -> None:
        """Questions one after another, as one conversation has them."""
        for count in itertools.count():
            if start >= until:
                return
            outcome = await self.ask(start, number * 10_000 + count)
            start = outcome.at + outcome.took_s + pause_s

    def run(self, work: Callable[[], list[Awaitable[Any]]]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(120):
                await self.time.run(asyncio.gather(*work()))
                await self.client.aclose()

        asyncio.run(whole())

    @property
    def failed(self) -> int:
        return sum(outcome.error is not None for outcome in self.outcomes)


def during(begin: float, end: float, status: int) -> Callable[[float], int]:
    return lambda now: status if begin <= now < end else 200


@pytest.mark.parametrize("callers", [1, 5, 20, 100, MANY])
@pytest.mark.parametrize("blip_s", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("together", [True, False], ids=["together", "spread"])
def test_a_blip_costs_no_caller_a_failure_and_nobody_waits_for_long(callers: int, blip_s: float, together: bool) -> None:
    simulation = Simulation(during(1, 1 + blip_s, 503))
    times = [1.0 if together else 6 * number / callers for number in range(callers)]
    simulation.run(lambda: [simulation.ask(at, number) for number, at in enumerate(times)])
    assert simulation.failed == 0
    assert max(outcome.took_s for outcome in simulation.outcomes) < blip_s + 8
    assert len(simulation.server.asked) <= 3 * callers + 10


@pytest.mark.parametrize("callers", [1, 10, 100, MANY])
def test_a_dead_server_gets_a_trickle_and_its_recovery_is_noticed_within_two_seconds(callers: int) -> None:
    heals_at = 60.0
    simulation = Simulation(during(0, heals_at, 503))
    simulation.run(lambda: [simulation.keep_asking(number / callers, heals_at + 5, number) for number in range(callers)])
    asked = simulation.server.asked
    assert len([at for at in asked if at <= FAIL_FAST_S]) <= 5 + 2 * callers
    # One caller alone makes its five attempts a question; for ten and more there is one probe at a time.
    assert len([at for at in asked if FAIL_FAST_S < at < heals_at]) <= (heals_at - FAIL_FAST_S) * 0.8
    assert min(simulation.server.answered) - heals_at <= (2.0 if callers > 1 else 8.0)
    late = [outcome for outcome in simulation.outcomes if outcome.at > heals_at + 3]
    assert [outcome.error for outcome in late if outcome.error] == []


@pytest.mark.parametrize("callers", [1, 10, 100, MANY])
def test_a_brown_out_of_every_second_request_costs_hardly_more_than_without_a_breaker(callers: int) -> None:
    dice = random.Random(SEED)
    simulation = Simulation(lambda now: dice.choice((200, 503)))
    simulation.run(lambda: [simulation.keep_asking(number / callers, 30, number) for number in range(callers)])
    # Five attempts all fail once in 32 times.
    assert simulation.failed <= 0.06 * len(simulation.outcomes) + 1
    assert len(simulation.server.asked) <= 2.3 * len(simulation.outcomes) + 10


@pytest.mark.parametrize("callers", [20, 200, MANY])
def test_in_a_storm_of_429_callers_slow_down_together(callers: int) -> None:
    simulation = Simulation(during(0, 10, 429))
    simulation.run(lambda: [simulation.ask(number / callers, number) for number in range(callers)])
    assert simulation.failed == 0
    assert len(simulation.server.asked) <= 2 * callers + 20
    after = Counter(int(at * 10) for at in simulation.server.asked if at > 10)
    assert max(after.values()) <= max(10, 0.25 * callers), "nobody is let go all at once"


def test_prompts_that_always_fail_cost_the_others_nothing() -> None:
    simulation = Simulation(lambda now: 200)
    post = simulation.server.post

    async def poisoned(url: str, *, headers: Mapping[str, str], content: bytes) -> Response:
        if b'"7"' in content:
            simulation.server.asked.append(simulation.time.now())
            return Response(500, b'{"error":{"code":500,"message":"An internal error has occurred."}}')
        return await post(url, headers=headers, content=content)

    simulation.server.post = poisoned  # type: ignore[method-assign]
    simulation.run(
        lambda: (
            [simulation.ask(number / 100, 7) for number in range(100)]
            + [simulation.ask(number / 100, 1_000 + number) for number in range(100)]
        )
    )
    well = [outcome for outcome in simulation.outcomes if outcome.error is None]
    assert len(well) == 100
    assert max(outcome.took_s for outcome in well) < 2 * LATENCY_S


@pytest.mark.parametrize("callers", [1, 100])
def test_a_network_that_is_not_there_for_a_while_costs_nobody_more_than_that(callers: int) -> None:
    simulation = Simulation(lambda now: 200)
    post = simulation.server.post

    async def unreachable(url: str, *, headers: Mapping[str, str], content: bytes) -> Response:
        if simulation.time.now() < 2:
            raise OSError(101, "Network is unreachable")
        return await post(url, headers=headers, content=content)

    simulation.server.post = unreachable  # type: ignore[method-assign]
    simulation.run(lambda: [simulation.ask(4 * number / callers, number) for number in range(callers)])
    assert simulation.failed == 0
    late = [outcome for outcome in simulation.outcomes if outcome.at > 2]
    assert all(outcome.took_s < 2 * LATENCY_S for outcome in late)  # clock: virtual time
