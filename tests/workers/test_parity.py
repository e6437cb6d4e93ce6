"""One suite for threads, for workers and for actors of a cluster: what a tool does has the same result wherever it runs."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callgate import Executor, FunctionCall, Limits, ToolResult, WorkerPool
from callgate.tools.call import CallObserver

TOOLBOX = Path(__file__).parent / "toolbox.py"

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "a value": ("add", {"a": 1}),
    "a type that JSON has not": ("day_after", {"day": "2026-01-31"[:8] + "30"}),
    "an async function": ("wait_and_say", {"text": "hello"}),
    "an error for the model": ("refuse", {}),
    "a bug": ("stumble", {}),
    "an exit": ("leave", {}),
    "a generator": ("count", {"to": 3}),
    "an async generator": ("count_later", {"to": 3}),
    "bytes": ("raw", {}),
    "media": ("picture", {}),
    "values that JSON has not": ("odd", {}),
    "a result of its own": ("verdict", {}),
    "a wrong argument": ("add", {"a": "one"}),
    "a value that the type refuses": ("day_after", {"day": "2026-02-31"}),
    "an unknown argument": ("add", {"a": 1, "c": 2}),
    "a text that becomes a number": ("add", {"a": "5"}),
}


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool([TOOLBOX], size=2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def far(cluster):
    pool = WorkerPool([TOOLBOX], size=6, cluster=cluster)
    yield pool
    pool.close()


RAY = pytest.param("far", marks=pytest.mark.slow, id="ray")


@pytest.fixture(params=["thread", "pool", RAY])
def executor(request, toolbox) -> Executor:
    if request.param == "thread":
        return Executor([value for value in vars(toolbox).values() if hasattr(value, "__callgate_tool__")])
    return Executor([request.getfixturevalue(request.param)])


def outcome(result: ToolResult) -> ToolResult:
    return replace(result, duration_s=0.0)


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("place", ["pool", RAY])
def test_a_call_has_the_same_result_in_a_thread_and_in_a_worker(case, place, request, toolbox):
    pool = request.getfixturevalue(place)
    name, args = CALLS[case]
    call = FunctionCall(name=name, args=args, id="c1")
    functions = [value for value in vars(toolbox).values() if hasattr(value, "__callgate_tool__")]
    here, there = (asyncio.run(Executor(tools).execute(call)) for tools in (functions, [pool]))
    assert outcome(there) == outcome(here)


def test_results_come_in_the_order_of_the_calls(executor):
    seconds = [0.2, 0.0, 0.1, 0.0]
    calls = [
        FunctionCall(name="wait_and_say", args={"text": str(n), "seconds": s}, id=str(n)) for n, s in enumerate(seconds)
    ]
    results = asyncio.run(executor.execute_all(calls))
    assert [(r.call_id, r.value) for r in results] == [(str(n), str(n)) for n in range(4)]


def test_progress_is_reported(executor):
    reports: list[tuple[str, float | None]] = []

    async def story() -> ToolResult:
        watch = CallObserver(progress=lambda message, fraction=None: reports.append((message, fraction)))
        return await executor.start(FunctionCall(name="count", args={"to": 2}, id="c"), watch).wait()

    assert asyncio.run(story()).value == [0, 1]
    assert reports == [("at 0", 0.0), ("at 1", 0.5)]


def test_state_is_kept_by_session(executor):
    async def story() -> list[Any]:
        found = []
        for session in ("p1", "p2", "p1"):
            call = FunctionCall(name="remember", args={"word": session}, id="c")
            found.append((await executor.start(call, CallObserver(session=session)).wait()).value)
        return found

    assert asyncio.run(story())[:2] == [["p1"], ["p2"]]


@pytest.mark.parametrize("name", ["obey", "wait_and_say"])
def test_a_time_out_has_one_sentence_wherever_it_happens(name, executor):
    args = {"text": "", "seconds": 60.0} if name == "wait_and_say" else {}
    executor.limits = Limits(call_timeout_s=0.2)
    result = asyncio.run(executor.execute(FunctionCall(name=name, args=args, id="c")))
    assert result.status == "timed_out"
    assert result.error.startswith("The call did not finish within 0.2 s.")
    assert result.error.endswith("Whether it had its effect is not known.")


def test_a_cancelled_call_ends_as_cancelled(executor):
    async def story() -> ToolResult:
        running = executor.start(FunctionCall(name="obey", args={}, id="c"))
        await asyncio.sleep(0)
        running.stop("The user left.")
        return await running.wait()

    result = asyncio.run(story())
    assert result.status == "cancelled"
    # A thread may not have begun with it yet.
    assert re.match(r"The call was cancelled while it (was running|waited)\. The user left\.", result.error)
