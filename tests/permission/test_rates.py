"""Limits in time, as the runs of a gate see them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from callgate import Gate, ScriptedModel, ToolContext, ToolDefinition
from callgate.errors import ModelError, RateLimitedError, UsageError
from callgate.events import Notice
from callgate.permission import Policy, Rate, RateLimits, Remaining
from callgate.permission.rates import Limiter, ModelLimiter
from callgate.run.gate import guard_of
from callgate.testing import answer, call


def run(work: Coroutine[Any, Any, Any], seconds: float = 30) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """A file tool that says when it is inside."""

    definition = ToolDefinition(name="read", kind="file", read_only=True, input_schema={"type": "object"})

    def __init__(self) -> None:
        self.inside = self.most = self.ran = 0

    def problems(self, args: Any) -> list[str]:
        return []

    async def run(self, args: Any, context: ToolContext) -> object:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        self.ran += 1
        return "ok"


FILE = Slow.definition
ADD = ToolDefinition(name="add")


def nothing() -> None:
    """Nobody is woken."""


# --- settings ------------------------------------------------------------------------------------------------------------


def test_file_tools_have_fifty_a_second_and_a_hundred_at_once_unless_told_otherwise():
    assert RateLimits().rates_for(FILE) == {"kind file": Rate(per_s=50, burst=100)}
    assert RateLimits().rates_for(ADD) == {}


def test_a_call_is_subject_to_its_tool_its_kind_and_all():
    one, two, three = Rate(per_s=1), Rate(per_s=2), Rate(concurrent=3)
    rates = RateLimits(tools={"r*": one, "read": two}, kinds={"file": two}, total=three)
    assert rates.rates_for(FILE) == {"tool read": one, "kind file": two, "total": three}
    assert rates.rates_for(ADD) == {"total": three}


@pytest.mark.parametrize(
    "fields",
    [
        {"when_used_up": "explode"},
        {"waiting": 0},
        {"patience_s": -1},
        {"requests_per_minute": 0},
        {"tokens_per_minute": "many"},
        {"tools": {"[": Rate()}},
        {"waiting": True},
    ],
)
def test_settings_that_cannot_be_meant_are_errors(fields: Any):
    with pytest.raises(UsageError):
        RateLimits(**fields)


# --- the limiter ---------------------------------------------------------------------------------------------------------


def test_a_place_is_granted_waits_or_is_refused_and_is_given_back():
    async def story() -> None:
        clock = Clock()
        limiter = Limiter(RateLimits(kinds={"file": Rate(concurrent=1)}, waiting=1), clock)
        assert limiter.admit(ADD, nothing).granted
        woken: list[int] = []
        first = limiter.admit(FILE, nothing)
        second = limiter.admit(FILE, lambda: woken.append(2))
        third = limiter.admit(FILE, nothing)
        assert (first.granted, second.granted, third.granted, limiter.waiting) == (True, False, False, 1)
        assert third.refused == "Not run: 1 calls wait for their turn already."
        third.leave()
        assert limiter.budget() == {"kind file": Remaining(left=1, burst=1, per_s=None, inside=1)}
        first.leave()
        await asyncio.sleep(0)
        assert (second.granted, woken) == (True, [2])
        second.leave()
        assert limiter.budget()["kind file"].inside == 0

    run(story())


def test_whoever_waits_is_woken_when_time_has_passed():
    async def story() -> None:
        limiter = Limiter(RateLimits(kinds={"file": Rate(per_s=200)}))
        limiter.admit(FILE, nothing)
        woken = asyncio.Event()
        place = limiter.admit(FILE, woken.set)
        assert not place.granted
        await woken.wait()
        assert place.granted

    run(story())


def test_all_who_wait_are_woken_one_after_the_other_though_nobody_leaves():
    async def main() -> list[bool]:
        limiter = Limiter(RateLimits(kinds={"file": Rate(per_s=200)}))
        woken = [asyncio.Event() for _ in range(4)]
        places = [limiter.admit(FILE, event.set) for event in woken]
        async with asyncio.timeout(300):
            await asyncio.gather(*(event.wait() for event in woken[1:]))
        return [place.granted for place in places]

    assert run(main()) == [True] * 4


def test_whoever_has_waited_too_long_is_refused():
    async def story() -> None:
        clock = Clock()
        limiter = Limiter(RateLimits(kinds={"file": Rate(per_s=0.001)}, patience_s=5), clock)
        limiter.admit(FILE, nothing)
        place = limiter.admit(FILE, nothing)
        clock.now = 5.0
        limiter.admit(FILE, nothing)
        assert place.refused == "Not run: its turn did not come within 5 s. Make fewer calls."

    run(story())


def test_where_it_is_set_so_a_call_is_refused_at_once():
    async def story() -> None:
        limiter = Limiter(RateLimits(kinds={"file": Rate(per_s=1)}, when_used_up="refuse"), Clock())
        assert limiter.admit(FILE, nothing).granted
        refused = limiter.admit(FILE, nothing)
        assert refused.refused == "Not run: too many calls in a short time (kind file). Call again later."
        assert limiter.waiting == 0

    run(story())


def test_a_loop_that_is_gone_wakes_nobody_and_harms_nobody():
    limiter = Limiter(RateLimits(kinds={"file": Rate(concurrent=1)}))
    places: list[Any] = []

    async def admit() -> None:
        places.append(limiter.admit(FILE, nothing))

    run(admit())
    run(admit())
    run(admit())

    async def leave() -> None:
        places[0].leave()
        places[1].leave()
        assert places[2].granted

    run(leave())


def test_a_place_that_is_left_on_one_loop_is_had_on_another_one():
    limiter = Limiter(RateLimits(kinds={"file": Rate(concurrent=1)}))

    async def story() -> None:
        mine = limiter.admit(FILE, nothing)
        woken = threading.Event()

        async def elsewhere() -> bool:
            done = asyncio.Event()
            place = limiter.admit(FILE, done.set)
            woken.set()
            await done.wait()
            return place.granted

        other = asyncio.create_task(asyncio.to_thread(lambda: run(elsewhere())))
        assert await asyncio.to_thread(woken.wait, 20)
        mine.leave()
        assert await other

    run(story())


# --- in a gate -----------------------------------------------------------------------------------------------------------


def test_no_more_calls_run_at_once_than_are_set_and_all_run():
    tool = Slow()
    gate = Gate(ScriptedModel([[call("read")] * 12, "ok"]), [tool], rates=RateLimits(total=Rate(concurrent=3)))
    reply = run(gate.run("Go"))
    assert (tool.ran, tool.most, reply.text) == (12, 3, "ok")
    assert gate.budget()["total"] == Remaining(left=1, burst=1, per_s=None, inside=0)


def test_calls_beyond_the_rate_wait_for_their_turn():
    tool = Slow()
    gate = Gate(
        ScriptedModel([[call("read")] * 6, "ok"]), [tool], rates=RateLimits(tools={"read": Rate(per_s=500, burst=2)})
    )
    assert run(gate.run("Go")).text == "ok"
    assert tool.ran == 6


def test_a_refused_call_is_told_to_the_model_and_its_siblings_run():
    tool = Slow()
    rates = RateLimits(tools={"read": Rate(per_s=0.001, burst=2)}, when_used_up="refuse")
    reply = run(Gate(ScriptedModel([[call("read")] * 3, "ok"]), [tool], rates=rates).run("Go"))
    assert (tool.ran, [record.state for record in reply.calls]) == (2, ["finished", "finished", "denied"])
    decision = reply.calls[2].decision
    assert decision is not None
    assert decision.by == "limit"
    assert "too many calls" in decision.reason


def test_cancelling_a_run_gives_up_its_places_in_the_line():
    tool = Slow()

    async def story() -> None:
        rates = RateLimits(tools={"read": Rate(per_s=0.001)})
        gate = Gate(ScriptedModel([[call("read"), call("read")], "no"]), [tool], rates=rates)
        async for event in gate.stream("Go", session="s"):
            if type(event).__name__ == "CallFinished" and event.result.status == "finished":
                gate.cancel("s")
        assert guard_of(gate).limiter.waiting == 0

    run(story())
    assert tool.ran == 1


# --- the model -----------------------------------------------------------------------------------------------------------


def test_requests_are_booked_in_order_and_spread_over_minutes():
    clock = Clock()
    model = ModelLimiter(RateLimits(requests_per_minute=2), clock)
    assert [model.book() for _ in range(5)] == [0, 0, 60, 60, 120]
    clock.now = 60.0
    assert model.book() == 60


def test_tokens_count_when_they_are_known():
    clock = Clock()
    model = ModelLimiter(RateLimits(tokens_per_minute=1_000), clock)
    assert model.book() == 0
    model.used(1_500)
    assert model.budget() == {"model tokens": Remaining(left=-500, burst=1_000, per_s=1_000 / 60)}
    clock.now = 10.0
    assert model.book() == 50


def test_a_server_that_pushes_back_makes_fewer_requests_for_a_while():
    clock = Clock()
    model = ModelLimiter(RateLimits(requests_per_minute=16), clock)
    model.failed(ModelError("something else"))
    assert model.budget()["model requests"].burst == 16
    model.failed(RateLimitedError("too many"))
    assert model.budget()["model requests"].burst == 8
    model.used(5)
    assert model.budget()["model requests"].burst == 9


def test_without_limits_nothing_is_counted():
    model = ModelLimiter(RateLimits(), Clock())
    assert ([model.book() for _ in range(3)], model.budget()) == ([0, 0, 0], {})
    model.used(1)
    model.failed(RateLimitedError("x"))


def test_a_run_waits_for_the_budget_and_says_so(monkeypatch: pytest.MonkeyPatch):
    def add(a: int) -> int:
        return a

    usage = {"promptTokenCount": 5, "totalTokenCount": 7}
    model = ScriptedModel([answer(call("add", a=1), usage=usage), "done"])
    gate = Gate(model, [add], rates=RateLimits(requests_per_minute=1, tokens_per_minute=100_000), policy=Policy())
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)

    async def story() -> list[Any]:
        monkeypatch.setattr("asyncio.sleep", sleep)
        return [event async for event in gate.stream("Go")]

    notices = [event for event in run(story()) if isinstance(event, Notice)]
    assert [notice.code for notice in notices] == ["waiting"]
    assert "the budget for requests is used up" in notices[0].message
    assert [round(seconds) for seconds in slept if seconds > 30] == [60]
    assert gate.budget()["model tokens"].left == 100_000 - 7
