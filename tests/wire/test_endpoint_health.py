"""Slowing down together and leaving a broken server alone, by a clock that only moves when somebody sleeps."""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import os
import random
import signal
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from callgate.errors import RateLimitedError, ServerUnavailableError
from callgate.wire import endpoint_health
from callgate.wire.circuit_breaker import PROBE_MAX_S, PROBE_S, REQUESTS_TO_OPEN, WINDOW_S
from callgate.wire.endpoint_health import (
    ENDPOINTS_MAX,
    FAIL_FAST_S,
    PAUSE_MAX_S,
    PROBE_JITTER_S,
    SPREAD_S,
    EndpointHealth,
    Permit,
    SystemClock,
    health_for,
)


class Timeline:
    """Virtual time for many sleepers: when nobody can do anything else, the first of them wakes up."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self.numbers = itertools.count()

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self.waiting, (self.time + seconds, next(self.numbers), woken))
        await woken

    async def run(self, *work: Awaitable[Any]) -> list[Any]:
        whole = asyncio.gather(*work, return_exceptions=True)
        while not whole.done():
            for _ in range(20):
                await asyncio.sleep(0)
            if self.waiting and not whole.done():
                at, _, woken = heapq.heappop(self.waiting)
                self.time = max(self.time, at)
                if not woken.done():
                    woken.set_result(None)
        return whole.result()


class Jumping:
    """Virtual time for callers that do not sleep at the same time: it passes as soon as somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


def play(story: Callable[[Timeline, EndpointHealth], Awaitable[Any]]) -> None:
    async def scene() -> None:
        timeline = Timeline()
        async with asyncio.timeout(300):
            (outcome,) = await timeline.run(story(timeline, EndpointHealth(timeline, dice=random.Random(3))))
        if isinstance(outcome, BaseException):
            raise outcome

    asyncio.run(scene())


async def enter(health: EndpointHealth, patience: int = 4) -> Permit:
    return await health.enter(patience=patience)


# The pause ---------------------------------------------------------------------------------------------------------------


def test_nobody_waits_while_all_is_well() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        for _ in range(10):
            (await enter(health)).succeeded()
        assert time.now() == 0
        assert health.pause_left_s == 0

    play(story)


def test_after_a_push_back_one_goes_first_and_the_others_follow_spread_out() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        assert (await enter(health)).pushed_back(3.0, 1.0) == 3.0
        entered: list[float] = []

        async def caller() -> None:
            permit = await enter(health)
            entered.append(time.now())
            await time.sleep(0.5)
            permit.succeeded()

        await asyncio.gather(*[caller() for _ in range(40)])
        probe, *others = sorted(entered)
        assert probe == 3.0
        assert min(others) >= 3.5
        assert SPREAD_S >= max(others) - 3.5 >= 1

    play(story)


def test_a_probe_that_is_pushed_back_doubles_the_pause_up_to_a_limit() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        pauses = [(await enter(health, 99)).pushed_back(None, 1.0) for _ in range(9)]
        assert pauses == [1, 2, 4, 8, 16, 32, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S]
        assert time.now() == sum(pauses[:-1])

    play(story)


def test_a_server_that_says_how_long_is_taken_at_its_word() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        assert (await enter(health)).pushed_back(2.5, 1.0) == 2.5
        assert (await enter(health)).pushed_back(2.5, 2.0) == 2.5
        assert (await enter(health)).pushed_back(0.0, 4.0) == 0.0
        (await enter(health)).succeeded()
        assert time.now() == 5

    play(story)


def test_an_answer_to_a_request_from_before_the_pause_does_not_end_it() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        early, late = await enter(health), await enter(health)
        late.pushed_back(5.0, 1.0)
        early.succeeded()
        assert health.pause_left_s == 5

    play(story)


def test_a_probe_that_vanishes_is_replaced_by_one_of_those_who_wait() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        (await enter(health)).pushed_back(1.0, 1.0)
        probe = await enter(health)
        waiting = asyncio.ensure_future(enter(health))
        await time.sleep(1)
        assert not waiting.done()
        probe.over()
        (await waiting).succeeded()
        assert health.pause_left_s == 0

    play(story)


def test_a_caller_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        (await enter(health)).pushed_back(1.0, 1.0)
        waiting = asyncio.ensure_future(enter(health))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        (await enter(health)).succeeded()
        (await enter(health)).succeeded()

    play(story)


def test_callers_give_up_after_as_many_pauses_as_they_would_have_tried() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        async def caller() -> int:
            tries = 0
            while True:
                permit = await enter(health, 4 - tries)
                tries += 1
                if tries == 5:
                    permit.over()
                    return tries
                permit.pushed_back(None, 1.0)

        outcomes = await asyncio.gather(*[caller() for _ in range(20)], return_exceptions=True)
        assert all(isinstance(outcome, (RateLimitedError, int)) for outcome in outcomes)
        assert any(isinstance(outcome, RateLimitedError) for outcome in outcomes)
        assert time.now() < 300

    play(story)


# The circuit -------------------------------------------------------------------------------------------------------------


async def fail(health: EndpointHealth, requests: int) -> None:
    """So many requests fail, each in its one attempt."""
    for _ in range(requests):
        (await enter(health)).failed(object())


async def down(health: EndpointHealth) -> None:
    await fail(health, REQUESTS_TO_OPEN)
    assert health.is_down


def test_ten_requests_that_fail_take_the_endpoint_down_and_the_head_of_an_answer_brings_it_up() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        await fail(health, REQUESTS_TO_OPEN - 1)
        assert not health.is_down
        await fail(health, 1)
        assert health.is_down
        probe = await enter(health)
        assert PROBE_S <= time.now() <= PROBE_S + PROBE_JITTER_S
        probe.succeeded()
        assert not health.is_down
        (await enter(health)).succeeded()
        assert time.now() <= PROBE_S + PROBE_JITTER_S

    play(story)


def test_one_request_counts_once_however_often_it_is_sent() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        for _ in range(100):
            (await enter(health)).failed("the same body")
        assert not health.is_down

    play(story)


def test_failures_that_are_far_apart_take_nothing_down() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        for _ in range(50):
            await fail(health, 1)
            await time.sleep(WINDOW_S / REQUESTS_TO_OPEN + 0.2)
        assert not health.is_down

    play(story)


def test_an_endpoint_that_answers_every_third_request_is_not_down() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        for _ in range(100):
            await fail(health, 2)
            (await enter(health)).succeeded()
        assert not health.is_down

    play(story)


def test_a_request_that_succeeds_in_the_end_does_not_count_as_failed() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        for _ in range(100):
            votes: set[Any] = set()
            for told in ("failed", "succeeded"):
                permit = await health.enter(patience=4, votes=votes)
                permit.failed(object()) if told == "failed" else permit.succeeded()
        assert not health.is_down

    play(story)


def test_one_caller_probes_and_the_others_wait_for_its_word() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        await down(health)
        entered: list[float] = []

        async def caller() -> None:
            permit = await enter(health)
            entered.append(time.now())
            await time.sleep(0.1)
            permit.succeeded()

        await asyncio.gather(*[caller() for _ in range(40)])
        probe, *others = sorted(entered)
        assert probe <= PROBE_S + PROBE_JITTER_S
        assert min(others) >= probe + 0.1
        assert max(others) <= probe + 0.1 + PROBE_MAX_S + PROBE_JITTER_S + SPREAD_S
        assert not health.is_down

    play(story)


def test_probes_that_take_long_and_do_not_fail_let_more_and_more_others_in() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        await down(health)
        entered: list[float] = []

        async def caller() -> None:
            permit = await enter(health)
            entered.append(time.now())
            await time.sleep(120)
            permit.succeeded()

        await asyncio.gather(*[caller() for _ in range(100)])
        assert max(entered) < 10

    play(story)


def test_who_has_seen_as_many_probes_fail_as_it_would_have_made_attempts_gives_up() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        await down(health)
        outcomes: list[str] = []

        async def caller() -> None:
            votes: set[Any] = set()
            for attempt in range(5):
                try:
                    permit = await health.enter(patience=4 - attempt, votes=votes, is_new=attempt == 0)
                except ServerUnavailableError as error:
                    outcomes.append(str(error))
                    return
                permit.failed("x")
            outcomes.append("attempts")

        await asyncio.gather(*[caller() for _ in range(30)])
        assert set(outcomes) <= {"attempts", "the server kept failing for all callers"}
        assert time.now() < 15 * PROBE_MAX_S

    play(story)


def test_requests_that_begin_in_a_long_outage_fail_at_once_and_one_in_a_while_probes() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        await down(health)
        await time.sleep(FAIL_FAST_S + 1)
        probes, told = 0, set[str]()
        for _ in range(200):
            began = time.now()
            try:
                (await enter(health)).failed(object())
                probes += 1
            except ServerUnavailableError as error:
                told.add(str(error)[:31])
            assert time.now() == began
            await time.sleep(0.1)
        assert told == {"the server has been failing for"}
        assert 20 / PROBE_MAX_S - 1 <= probes <= 20 / PROBE_MAX_S + 3

    play(story)


def test_a_request_that_has_no_time_left_does_not_wait() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        await down(health)
        with pytest.raises(ServerUnavailableError, match="no time left"):
            await health.enter(patience=4, until=time.now() + 0.1)
        (await enter(health)).pushed_back(30.0, 1.0)
        with pytest.raises(RateLimitedError, match="longer than there is time"):
            await health.enter(patience=4, until=time.now() + 10)

    play(story)


@pytest.mark.parametrize("told", ["refused", "pushed_back"])
def test_a_probe_that_is_answered_in_whatever_way_ends_the_outage(told: str) -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        await down(health)
        probe = await enter(health)
        probe.pushed_back(1.0, 1.0) if told == "pushed_back" else probe.refused()
        assert not health.is_down

    play(story)


def test_a_probe_that_vanishes_is_replaced() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        await down(health)
        (await enter(health)).over()
        began = time.now()
        (await enter(health)).succeeded()
        assert time.now() == began

    play(story)


def test_requests_that_were_on_their_way_neither_prolong_the_outage_nor_end_it() -> None:
    async def story(time: Timeline, health: EndpointHealth) -> None:
        late, lucky = await enter(health), await enter(health)
        await down(health)
        late.failed(object())
        lucky.succeeded()
        assert health.is_down
        probe = await enter(health)
        assert time.now() <= PROBE_S + PROBE_JITTER_S
        probe.succeeded()
        assert not health.is_down

    play(story)


# Sharing -----------------------------------------------------------------------------------------------------------------


def test_callers_of_one_endpoint_and_clock_share_their_pressure() -> None:
    async def scene() -> None:
        clock = SystemClock()
        assert health_for("a") is health_for("a")
        assert health_for("a") is not health_for("b")
        assert health_for("a", clock) is health_for("a", clock)
        assert health_for("a", clock) is not health_for("a")

    asyncio.run(scene())


def test_all_event_loops_of_the_process_share_their_pressure() -> None:
    async def one() -> EndpointHealth:
        return health_for("a")

    assert asyncio.run(one()) is asyncio.run(one())


def test_a_thousand_endpoints_at_rest_do_not_stay_for_ever() -> None:
    for number in range(10 * ENDPOINTS_MAX):
        health_for(number)
    assert len(endpoint_health._endpoints._kept) <= ENDPOINTS_MAX
    gc.collect()
    assert len(endpoint_health._endpoints._in_use) <= ENDPOINTS_MAX


def test_an_endpoint_in_trouble_is_remembered_while_others_come_and_go() -> None:
    async def scene() -> None:
        clock = Jumping()
        for trouble in ("slow", "down"):
            permit = await enter(health_for(trouble, clock))
            permit.pushed_back(30.0, 1.0) if trouble == "slow" else permit.over()
        await down(health_for("down", clock))
        for number in range(3 * ENDPOINTS_MAX):
            health_for(number, clock)
        assert health_for("slow", clock).pause_left_s == 30
        assert health_for("down", clock).is_down

    asyncio.run(scene())


def test_endless_endpoints_in_trouble_do_not_stay_for_ever_either() -> None:
    async def scene() -> None:
        clock = Jumping()
        for number in range(2 * ENDPOINTS_MAX):
            (await enter(health_for(number, clock))).pushed_back(30.0, 1.0)
        assert len(endpoint_health._endpoints._kept) <= ENDPOINTS_MAX
        assert health_for(2 * ENDPOINTS_MAX - 1, clock).pause_left_s == 30

    asyncio.run(scene())


def test_a_pressure_that_somebody_holds_stays_the_same_for_everybody() -> None:
    held = health_for("held")
    for number in range(3 * ENDPOINTS_MAX):
        health_for(number)
    assert health_for("held") is held


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_process_starts_anew_even_if_a_lock_was_held_when_it_began() -> None:
    held = health_for("a")
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with held._lock, endpoint_health._endpoints._lock:
            locked.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if health_for("a") is not held and asyncio.run(enter(health_for("a"))) else 1)
    done.set()
    holder.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_clock_of_the_system_does_not_go_back() -> None:
    async def scene() -> None:
        clock = SystemClock()
        before = clock.now()
        await clock.sleep(0.001)
        assert clock.now() > before

    asyncio.run(scene())
