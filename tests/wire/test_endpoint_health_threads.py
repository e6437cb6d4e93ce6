"""Slowing down together across event loops: several threads, each with a loop of its own, and one server that they share."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from callgate import Limits
from callgate.errors import RateLimitedError, ServerUnavailableError
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.faults import fault
from callgate.wire import endpoint_health as health_module
from callgate.wire.circuit_breaker import REQUESTS_TO_OPEN
from callgate.wire.endpoint_health import FAIL_FAST_S, EndpointHealth, Permit, health_for

WAIT_S = 120
"""For a machine that is busy with something else; nothing here takes long."""


class SharedClock:
    """Virtual time for many threads: it passes as soon as somebody sleeps, and keeps what was slept."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []
        self._lock = threading.Lock()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        with self._lock:
            self.time += seconds
            self.slept.append(seconds)
        await asyncio.sleep(0)


class Loop:
    """An event loop that runs in a thread of its own, like that of a gate which is used without async."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.start(work).result(WAIT_S)

    def stop(self) -> None:
        """Stands still: whatever runs there stops in the middle, without a word."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(WAIT_S)

    def die(self) -> None:
        self.stop()
        self.loop.close()


@pytest.fixture
def loops() -> Generator[Callable[[], Loop]]:
    """`loops()`: one more event loop in one more thread."""
    made: list[Loop] = []

    def make() -> Loop:
        made.append(Loop())
        return made[-1]

    yield make
    for loop in made:
        if not loop.loop.is_closed():
            loop.run(_cancel_all()) if loop._thread.is_alive() else None
            loop.die()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def clock() -> SharedClock:
    return SharedClock()


@contextmanager
def restless() -> Generator[None]:
    """Threads take turns as often as they can.

    Start them before: Python 3.11 fails when two threads begin to be traced at once, as under coverage.
    """
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who wait look again at once whether the one that they wait for is still there."""
    monkeypatch.setattr(health_module, "LOOK_AGAIN_S", 0.001)


@pytest.fixture
def tasks_may_die() -> Generator[None]:
    """A task that dies with its event loop says so when it is collected; here that is what was meant."""
    yield
    gc.collect()


async def enter(health: EndpointHealth, patience: int = 4) -> Permit:
    return await health.enter(patience=patience)


async def paused(health: EndpointHealth, seconds: float = 3.0) -> None:
    (await enter(health)).pushed_back(seconds, 1.0)


async def broken(health: EndpointHealth) -> None:
    for _ in range(REQUESTS_TO_OPEN):
        (await enter(health)).failed(object())


async def pass_through(health: EndpointHealth) -> None:
    (await enter(health)).succeeded()


def until(condition: Callable[[], bool]) -> None:
    """Waits until something is so that another thread does."""
    tick, deadline = threading.Event(), time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be so"
        tick.wait(0.001)


# What one loop learns, all know ------------------------------------------------------------------------------------------


def test_a_push_back_on_one_loop_delays_callers_on_another(loops: Callable[[], Loop], clock: SharedClock) -> None:
    health = health_for("a", clock)
    loops().run(paused(health))
    other = loops()
    assert health_for("a", clock).pause_left_s == 3
    other.run(enter(health)).succeeded()
    assert clock.slept == [3.0]


def test_callers_on_other_loops_wait_for_the_probe_and_follow_it(loops: Callable[[], Loop], clock: SharedClock) -> None:
    health = EndpointHealth(clock)
    first, *others = [loops() for _ in range(4)]
    first.run(paused(health))
    probe = first.run(enter(health))
    waiting = [other.start(enter(health)) for other in others for _ in range(5)]
    until(lambda: len(health._waiting) == len(waiting))
    assert not any(permit.done() for permit in waiting)
    probe.succeeded()
    for permit in waiting:
        permit.result(WAIT_S).succeeded()
    assert health._waiting == {}
    assert len(clock.slept) == 1 + len(waiting), "the pause, then each of them its share of the spread"


def test_patience_ends_for_callers_on_all_loops(loops: Callable[[], Loop], clock: SharedClock) -> None:
    health = EndpointHealth(clock)
    first, other = loops(), loops()
    first.run(paused(health))
    probe = first.run(enter(health))
    waiting = other.start(enter(health, 0))
    until(lambda: bool(health._waiting))
    probe.pushed_back(None, 1.0)
    with pytest.raises(RateLimitedError):
        waiting.result(WAIT_S)


def test_a_circuit_that_one_loop_opened_refuses_on_another(loops: Callable[[], Loop], clock: SharedClock) -> None:
    loops().run(broken(health_for("a", clock)))
    clock.time += FAIL_FAST_S + 1
    probe = loops().run(enter(health_for("a", clock)))
    with pytest.raises(ServerUnavailableError, match="has been failing for 11 s"):
        loops().run(enter(health_for("a", clock)))
    probe.succeeded()
    loops().run(pass_through(health_for("a", clock)))


def test_of_eight_threads_exactly_one_probes_an_endpoint_that_is_down(clock: SharedClock, scale: int) -> None:
    together = threading.Barrier(8)

    def contend(health: EndpointHealth) -> Permit | None:
        async def one() -> Permit | None:
            try:
                return await enter(health)
            except ServerUnavailableError:
                return None

        together.wait(WAIT_S)
        return asyncio.run(one())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: together.wait(WAIT_S), range(8)))
        for _ in range(20 * scale):
            health = EndpointHealth(clock)
            asyncio.run(broken(health))
            clock.time += FAIL_FAST_S + 1
            with restless():
                let_in = [permit for permit in threads.map(contend, [health] * 8) if permit is not None]
            assert len(let_in) == 1


# Loops that die ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("tasks_may_die")
def test_a_loop_that_closes_while_it_waits_is_no_burden_to_the_others(loops: Callable[[], Loop], clock: SharedClock) -> None:
    health = EndpointHealth(clock)
    first, doomed, other = loops(), loops(), loops()
    first.run(paused(health))
    probe = first.run(enter(health))
    doomed.start(enter(health))
    until(lambda: len(health._waiting) == 1)
    waiting = other.start(enter(health))
    until(lambda: len(health._waiting) == 2)
    doomed.die()
    probe.succeeded()
    waiting.result(WAIT_S).succeeded()
    assert health._waiting == {}


@pytest.mark.usefixtures("impatient")
def test_a_probe_that_dies_with_its_loop_is_replaced(loops: Callable[[], Loop], clock: SharedClock) -> None:
    health = EndpointHealth(clock)
    doomed, other = loops(), loops()
    doomed.run(paused(health))
    probe = doomed.run(enter(health))
    waiting = other.start(enter(health))
    until(lambda: bool(health._waiting))
    assert not waiting.done()
    doomed.die()
    waiting.result(WAIT_S).succeeded()
    assert health.pause_left_s == 0
    probe.succeeded()


@pytest.mark.usefixtures("impatient")
def test_a_probe_that_was_forgotten_is_replaced(loops: Callable[[], Loop], clock: SharedClock) -> None:
    health = EndpointHealth(clock)
    loop = loops()
    loop.run(paused(health))
    probe = loop.run(enter(health))
    waiting = loop.start(enter(health))
    until(lambda: bool(health._waiting))
    del probe
    gc.collect()
    waiting.result(WAIT_S).succeeded()


def test_a_probe_that_dies_with_its_loop_keeps_nobody_from_probing(loops: Callable[[], Loop], clock: SharedClock) -> None:
    health = EndpointHealth(clock)
    doomed, other = loops(), loops()
    doomed.run(broken(health))
    lost = doomed.run(enter(health))
    doomed.die()
    other.run(enter(health)).succeeded()
    assert not health.is_down
    lost.failed(object())
    assert not health.is_down, "its word counts as one failure, not as that of a probe"


def test_cancelled_waiters_leave_their_places_and_the_others_go_on(loops: Callable[[], Loop], clock: SharedClock) -> None:
    health = EndpointHealth(clock)
    first, other = loops(), loops()
    first.run(paused(health))
    probe = first.run(enter(health))
    waiting = [(first, other)[number % 2].start(pass_through(health)) for number in range(20)]
    until(lambda: len(health._waiting) == 20)
    for permit in waiting[:15]:
        permit.cancel()
    until(lambda: len(health._waiting) == 5)
    probe.over()
    for permit in waiting[15:]:
        permit.result(WAIT_S)
    assert health._waiting == {}


def test_a_collection_that_ends_a_turn_while_the_lock_is_held_stops_nobody(clock: SharedClock) -> None:
    health = EndpointHealth(clock)

    async def scene() -> None:
        permit = await enter(health)
        with health._lock:
            permit.over()

    thread = threading.Thread(target=asyncio.run, args=(scene(),), daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()


# Everything at once ------------------------------------------------------------------------------------------------------

MOODS = ["succeeded", "succeeded", "pushed_back", "failed", "refused", "none"]


class Moody:
    """Callers of a server of many moods, and a count of how many of them try it for all others at the same time."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = SharedClock()
        self.health = EndpointHealth(self.clock, dice=random.Random(seed))
        self.out: set[tuple[str, Permit]] = set()
        self.wrong: list[str] = []

    async def caller(self, moods: list[str], *, is_doomed: bool = False) -> None:
        for mood in moods:
            try:
                permit = await enter(self.health, 50)
            except (RateLimitedError, ServerUnavailableError):
                await asyncio.sleep(0)
                continue
            try:
                if is_doomed:
                    await asyncio.get_running_loop().create_future()
                await self.hold_posts(permit)
            finally:
                if mood == "pushed_back":
                    permit.pushed_back(0.5, 1.0)
                elif mood == "failed":
                    permit.failed(object())
                elif mood != "none":
                    getattr(permit, mood)()
                permit.over()

    async def hold_posts(self, permit: Permit) -> None:
        held = {("probe", permit)} if self.health._probe.is_held_by(permit) else set()
        self.wrong += [name for name, _ in held if name in [taken for taken, _ in list(self.out)]]
        self.out |= held
        try:
            await asyncio.sleep(0)
        finally:
            self.out -= held

    def moods(self) -> list[str]:
        return self.dice.choices(MOODS, k=20)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("impatient", "tasks_may_die")
def test_nobody_is_lost_whatever_happens_on_however_many_loops(loops: Callable[[], Loop], scale: int) -> None:
    """Callers on several loops meet a moody server; some are cancelled, one loop dies in the middle. All others end."""
    made = [loops() for _ in range(4)]
    for seed in range(20 * scale):
        moody = Moody(seed)
        doomed = loops()
        with restless():
            for _ in range(3):
                doomed.start(moody.caller(moody.moods(), is_doomed=True))
            work = [made[number % 4].start(moody.caller(moody.moods())) for number in range(40)]
            for running in moody.dice.sample(work, 8):
                running.cancel()
            doomed.die()
            until(lambda work=work: all(running.done() for running in work))
        assert [running.exception() for running in work if not running.cancelled() and running.exception()] == []
        assert moody.wrong == [], f"seed {seed}: more than one tried at a time"
        moody.clock.time += 1_000
        made[0].run(enter(moody.health)).succeeded()
        until(lambda moody=moody: moody.health.is_at_rest)


# The client --------------------------------------------------------------------------------------------------------------


def test_clients_on_two_loops_slow_down_and_give_up_together(loops: Callable[[], Loop], clock: SharedClock) -> None:
    server, one, two = loops(), loops(), loops()
    fake = FakeGemini([fault("W01", times=1), "Hello.", fault("W08")], api_key="k")

    async def ask(attempts: int) -> list[str]:
        surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
        client = GeminiClient(surface, clock=clock, limits=Limits(attempts=attempts), dice=random.Random(1))
        body = b'{"contents":[{"role":"user","parts":[{"text":"Hi."}]}]}'
        try:
            return [getattr(chunk, "message", "answer") async for chunk in client.chunks("m", body, stream=True, tools=[])]
        finally:
            await client.aclose()

    server.run(fake.__aenter__())
    try:
        with pytest.raises(RateLimitedError):
            one.run(ask(1))
        told = two.run(ask(5))
        assert told[0].startswith("Waiting 2.5 s, because the server asked everybody to")
        assert told[-1] == "answer"
        for _ in range(REQUESTS_TO_OPEN):
            with pytest.raises(ServerUnavailableError, match="503"):
                one.run(ask(1))
        clock.time += FAIL_FAST_S + 1
        with pytest.raises(ServerUnavailableError, match="503"):
            two.run(ask(1))
        seen = len(fake.requests)
        with pytest.raises(ServerUnavailableError, match="has been failing for"):
            two.run(ask(1))
        assert len(fake.requests) == seen
    finally:
        server.run(fake.__aexit__(None, None, None))
