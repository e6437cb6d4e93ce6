"""Calls that tools make: what is decided about them, when they may still be made, in which order, and how many."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from callgate import FunctionCall, Gate, Limits, Policy, ScriptedModel, ToolContext, host, tool
from callgate.adapters.gated_tools import GatedTools
from callgate.calls.nested import DEPTH_MAX
from callgate.errors import ToolError
from callgate.machine import facts
from callgate.permission import Rate, RateLimits
from callgate.store import MemoryStore
from callgate.testing import call

NET_S = 30.0
DEADLINE_S = 0.2
ISOLATED_S = 4.0
"""A worker must have the time to begin."""

DONE: list[Any] = []
"""The effects of tools."""


@pytest.fixture(autouse=True)
def no_effects_yet() -> None:
    DONE.clear()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a story that leaves no task behind."""

    async def bounded() -> Any:
        async with asyncio.timeout(NET_S):
            value = await work
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return value

    return asyncio.run(bounded())


def gate_of(*script: Any, tools: list[Any], **options: Any) -> Gate:
    return Gate(ScriptedModel([*script]), tools, **{"policy": Policy(default="allow"), **options})


def nested_facts(store: Any, session: str = "s") -> list[tuple[str, str | None]]:
    journal = asyncio.run(store.load(session))
    return [(fact.name, fact.result and fact.result.status) for fact in journal if isinstance(fact, facts.NestedCall)]


@tool
def drop(table: str) -> str:
    """Drops a table."""
    DONE.append(table)
    return f"dropped {table}"


@tool
async def relay(name: str, args: dict[str, Any], context: ToolContext) -> str:
    """Calls a tool, and says how that ended."""
    result = await context.call_tool(name, args)
    return f"{result.status}: {result.error or result.value}"


def said(reply: Any) -> list[str]:
    return [record.result.value for record in reply.calls]


# What is decided ----------------------------------------------------------------------------------------------------------


def edit_to(table: str) -> Any:
    return lambda wanted, definition, reason: FunctionCall(name=wanted.name, args={"table": table})


EDITED = Policy(default="allow", rules=["ask drop", {"verdict": "deny", "tool": "drop", "args": {"table": "users"}}])


@pytest.mark.parametrize(("table", "status"), [("users", "denied"), ("logs", "finished")])
def test_arguments_that_were_edited_are_decided_about_again(table: str, status: str) -> None:
    gate = gate_of(
        call("relay", name="drop", args={"table": "old"}), "Done.",
        tools=[relay, drop], policy=EDITED, approve=edit_to(table),
    )  # fmt: skip
    (outcome,) = said(run(gate.run("Go.")))
    assert outcome.startswith(status)
    assert ([table] if status == "finished" else []) == DONE


@pytest.mark.parametrize(("table", "status"), [("users", "denied"), ("logs", "finished")])
def test_arguments_that_were_edited_for_a_framework_are_decided_about_again(table: str, status: str) -> None:
    async def story() -> Any:
        async with GatedTools([drop], policy=EDITED, approve=edit_to(table)) as gated:
            return await gated.call("drop", {"table": "old"})

    assert run(story()).status == status
    assert ([table] if status == "finished" else []) == DONE


def test_arguments_that_were_edited_are_checked_again() -> None:
    def edited(wanted: FunctionCall, definition: Any, reason: str) -> FunctionCall:
        return FunctionCall(name="drop", args={"tables": 1})

    gate = gate_of(
        call("relay", name="drop", args={"table": "old"}), "Done.",
        tools=[relay, drop], policy=Policy(default="allow", rules=["ask drop"]), approve=edited,
    )  # fmt: skip
    (outcome,) = said(run(gate.run("Go.")))
    assert outcome.startswith("failed: The arguments of 'drop' are not valid")
    assert DONE == []


ALWAYS_ELSEWHERE = """
import asyncio, sys
from callgate import Gate, Policy, ScriptedModel, host, tool
from callgate.testing import call

@tool
async def relay(name: str, args: dict) -> str:
    return await host.call(name, args)

@tool
def drop(table: str) -> str:
    "Drops a table."
    return f"dropped {table}"

model = ScriptedModel([call("relay", name="drop", args={"table": "three"}), "Done."])
def approve(call, definition, reason):
    raise SystemExit("asked again")
gate = Gate(model, [relay, drop], policy=Policy(default="allow", rules=["ask drop"]), approve=approve, store=sys.argv[1])
reply = asyncio.run(gate.run("Go.", session="s"))
print(reply.calls[0].result.value)
"""


def test_always_holds_for_later_calls_of_the_run_of_later_runs_and_of_another_process(tmp_path: Path) -> None:
    asked: list[str] = []

    def approve(wanted: FunctionCall, definition: Any, reason: str) -> str:
        asked.append(wanted.args["table"])
        return "always"

    def wish(table: str) -> Any:
        return call("relay", name="drop", args={"table": table})

    policy = Policy(default="allow", rules=["ask drop"])
    gate = gate_of(
        wish("one"), wish("two"), "Done.", wish("two and a half"), "Done.",
        tools=[relay, drop], policy=policy, approve=approve, store=tmp_path / "db",
    )  # fmt: skip

    async def story() -> list[Any]:
        async with gate:
            return [await gate.run("Go.", session="s"), await gate.run("Again.", session="s")]

    first, second = run(story())
    assert [outcome.split(":")[0] for reply in (first, second) for outcome in said(reply)] == ["finished"] * 3
    assert asked == ["one"]
    elsewhere = subprocess.run(
        [sys.executable, "-c", ALWAYS_ELSEWHERE, str(tmp_path / "db")], capture_output=True, text=True, timeout=NET_S
    )
    assert elsewhere.stdout.strip() == "dropped three", elsewhere.stderr


def test_always_holds_for_what_waits_for_an_answer_already() -> None:
    asked: list[str] = []

    async def approve(wanted: FunctionCall, definition: Any, reason: str) -> str:
        asked.append(wanted.args["table"])
        return "always"

    @tool
    async def many(context: ToolContext) -> list[str]:
        """Calls a tool three times at once."""
        results = await asyncio.gather(*[context.call_tool("drop", {"table": f"t{n}"}) for n in range(3)])
        return [result.status for result in results]

    gate = gate_of(
        call("many"), "Done.", tools=[many, drop], policy=Policy(default="allow", rules=["ask drop"]), approve=approve
    )
    assert said(run(gate.run("Go."))) == [["finished"] * 3]
    assert asked == ["t0"]


# When a call may still be made --------------------------------------------------------------------------------------------


class Late:
    """A sync tool that goes on after its deadline, and then calls a tool."""

    def __init__(self) -> None:
        self.has_begun, self.go_on, self.is_over = threading.Event(), threading.Event(), threading.Event()
        self.error: BaseException | None = None

    def tool(self) -> Any:
        @tool(timeout_s=DEADLINE_S)
        def late() -> None:
            """Takes too long."""
            self.has_begun.set()
            try:
                assert self.go_on.wait(NET_S)
                host.call_sync("drop", {"table": "late"})
            except BaseException as error:
                self.error = error
            finally:
                self.is_over.set()

        return late

    async def ends(self) -> None:
        self.go_on.set()
        await asyncio.to_thread(self.is_over.wait, NET_S)
        assert isinstance(self.error, ToolError)
        assert "is over" in str(self.error)
        assert DONE == []


@pytest.mark.parametrize("way", ["timed_out", "cancelled"])
def test_a_tool_that_was_given_up_calls_nothing_more_while_the_run_goes_on(way: str) -> None:
    late, store = Late(), MemoryStore()
    seen: list[Any] = []

    async def story() -> None:
        class Model(ScriptedModel):
            async def generate(self, request: Any) -> Any:
                if len(self.requests) == 1:
                    await late.ends()
                async for item in super().generate(request):
                    yield item

        gate = Gate(
            Model([call("late"), "Done."]), [late.tool(), drop], policy=Policy(default="allow"), store=store,
            limits=Limits(),
        )  # fmt: skip
        if way == "cancelled":
            async for event in gate.stream("Go.", session="s"):
                if type(event).__name__ == "CallStarted":
                    assert await asyncio.to_thread(late.has_begun.wait, NET_S)
                    gate.cancel("s")
                seen.append(event)
            await late.ends()
        else:
            seen.append(await gate.run("Go.", session="s"))

    run(story())
    reply = seen[-1] if way == "timed_out" else seen[-1].reply
    assert [record.state for record in reply.calls] == [way]
    assert nested_facts(store) == []


def test_a_tool_that_goes_on_after_its_run_calls_nothing_more() -> None:
    late, store = Late(), MemoryStore()

    async def story() -> Any:
        gate = gate_of(call("late"), "Done.", tools=[late.tool(), drop], store=store)
        reply = await gate.run("Go.", session="s")
        journalled = len(await store.load("s"))
        await late.ends()
        assert len(await store.load("s")) == journalled
        return reply

    assert [record.state for record in run(story()).calls] == ["timed_out"]


def test_a_tool_that_goes_on_after_its_event_loop_calls_nothing_more() -> None:
    late = Late()
    gate = gate_of(call("late"), "Done.", tools=[late.tool(), drop])
    reply = run(gate.run("Go.", session="s"))
    assert [record.state for record in reply.calls] == ["timed_out"]
    asyncio.run(late.ends())


def test_a_tool_that_goes_on_after_a_sync_run_calls_nothing_more() -> None:
    late = Late()
    with gate_of(call("late"), "Done.", tools=[late.tool(), drop]) as gate:
        assert [record.state for record in gate.run_sync("Go.").calls] == ["timed_out"]
        asyncio.run(late.ends())


def test_a_tool_that_goes_on_after_its_framework_gave_it_up_calls_nothing_more() -> None:
    late = Late()

    async def story() -> None:
        async with GatedTools([late.tool(), drop]) as gated:
            assert (await gated.call("late", {})).status == "timed_out"
            await late.ends()

    run(story())


def test_a_task_that_a_tool_left_behind_calls_nothing_more() -> None:
    outcomes: list[Any] = []
    released = asyncio.Event()

    @tool
    async def leaves(context: ToolContext) -> str:
        """Starts something, and is gone."""

        async def later() -> None:
            await released.wait()
            outcomes.append(await context.call_tool("drop", {"table": "late"}))

        tasks.append(asyncio.create_task(later()))
        return "gone"

    tasks: list[asyncio.Task[None]] = []

    async def story() -> None:
        await gate_of(call("leaves"), "Done.", tools=[leaves, drop]).run("Go.")
        released.set()
        await tasks[0]

    run(story())
    assert [outcome.status for outcome in outcomes] == ["cancelled"]
    assert DONE == []


def test_what_a_tool_calls_and_does_not_wait_for_ends_with_it() -> None:
    store = MemoryStore()
    begun = asyncio.Event()

    @tool
    async def linger() -> None:
        """Never ends by itself."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            DONE.append("ended")

    @tool
    async def leaves(context: ToolContext) -> str:
        """Does not wait for what it calls."""
        tasks.append(asyncio.ensure_future(context.call_tool("linger", {})))
        await begun.wait()
        return "gone"

    tasks: list[Any] = []

    async def story() -> Any:
        reply = await gate_of(call("leaves"), "Done.", tools=[leaves, linger], store=store).run("Go.", session="s")
        assert DONE == ["ended"]
        assert (await tasks[0]).status == "cancelled"
        return reply

    assert said(run(story())) == ["gone"]
    assert nested_facts(store) == [("linger", None), ("linger", "cancelled")]


# The deadline while somebody is asked -------------------------------------------------------------------------------------


@tool(timeout_s=DEADLINE_S)
async def outer(depth: int) -> Any:
    """Calls what must be asked about, by way of itself."""
    return await (host.call("outer", {"depth": depth - 1}) if depth else host.call("drop", {"table": "t"}))


@tool(timeout_s=DEADLINE_S)
def outer_sync(depth: int) -> Any:
    """Calls what must be asked about from a thread, by way of itself."""
    return host.call_sync("outer_sync", {"depth": depth - 1}) if depth else host.call_sync("drop", {"table": "t"})


async def after_the_deadline(*about: Any) -> str:
    """Answers when the deadlines of all that waits for the answer would have passed."""
    loop = asyncio.get_running_loop()
    passed = asyncio.Event()
    loop.call_later(2 * DEADLINE_S, passed.set)
    await passed.wait()
    return "yes"


@pytest.mark.parametrize("name", ["outer", "outer_sync"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_deadlines_of_all_callers_stand_still_while_somebody_is_asked(name: str, depth: int) -> None:
    gate = gate_of(
        call(name, depth=depth), "Done.",
        tools=[outer, outer_sync, drop], policy=Policy(default="allow", rules=["ask drop"]), approve=after_the_deadline,
    )  # fmt: skip
    assert said(run(gate.run("Go."))) == ["dropped t"]


def test_the_deadlines_of_all_callers_stand_still_for_a_framework_too() -> None:
    async def story() -> Any:
        policy = Policy(rules=["ask drop"])
        async with GatedTools([outer, drop], policy=policy, approve=after_the_deadline) as gated:
            return await gated.call("outer", {"depth": 1})

    assert run(story()).value == "dropped t"


@pytest.mark.slow
def test_the_deadline_of_a_caller_in_a_worker_stands_still_while_somebody_is_asked() -> None:
    async def answer(*about: Any) -> str:
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(ISOLATED_S + DEADLINE_S, passed.set)
        await passed.wait()
        return "yes"

    gate = gate_of(
        call("isolated_drop"), "Done.",
        tools=[isolated_drop, drop], policy=Policy(default="allow", rules=["ask drop"]), approve=answer,
    )  # fmt: skip
    assert said(run(gate.run("Go."))) == ["dropped t"]


@tool(isolation="process", timeout_s=ISOLATED_S)
def isolated_drop() -> str:
    """Calls what must be asked about from another process."""
    return host.call_sync("drop", {"table": "t"})


def test_a_deadline_goes_on_after_the_answer() -> None:
    @tool(timeout_s=DEADLINE_S)
    async def slow_after() -> None:
        """Hangs when it has its answer."""
        await host.call("drop", {"table": "t"})
        await asyncio.Event().wait()

    gate = gate_of(
        call("slow_after"), "Done.",
        tools=[slow_after, drop], policy=Policy(default="allow", rules=["ask drop"]), approve=after_the_deadline,
    )  # fmt: skip
    assert [record.state for record in run(gate.run("Go.")).calls] == ["timed_out"]
    assert DONE == ["t"]


# Order --------------------------------------------------------------------------------------------------------------------


@tool(sequential=True)
async def step(n: int) -> int:
    """Takes several turns of the event loop."""
    DONE.append(("begin", n))
    for _ in range(5):
        await asyncio.sleep(0)
    DONE.append(("end", n))
    return n


@tool
async def five(first: int, context: ToolContext) -> list[Any]:
    """Calls a tool five times at once."""
    results = await asyncio.gather(*[context.call_tool("step", {"n": first + n}) for n in range(5)])
    return [result.value for result in results]


@tool(sequential=True)
async def ordered_five(first: int, context: ToolContext) -> list[Any]:
    """Keeps its own order, and calls what does."""
    return await five(first, context)


def one_after_another(numbers: list[int]) -> list[Any]:
    return [(what, n) for n in numbers for what in ("begin", "end")]


def test_calls_of_an_ordered_tool_run_in_the_order_in_which_a_tool_makes_them() -> None:
    gate = gate_of(call("five", first=0), "Done.", tools=[five, step])
    assert said(run(gate.run("Go."))) == [[0, 1, 2, 3, 4]]
    assert one_after_another([0, 1, 2, 3, 4]) == DONE


def test_two_parents_at_once_share_the_order() -> None:
    gate = gate_of([call("five", first=0), call("five", first=10)], "Done.", tools=[five, step])
    assert said(run(gate.run("Go."))) == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
    begun = [n for what, n in DONE if what == "begin"]
    assert one_after_another(begun) == DONE
    assert [n for n in begun if n < 10] == [0, 1, 2, 3, 4]
    assert [n for n in begun if n >= 10] == [10, 11, 12, 13, 14]


def test_an_ordered_tool_that_calls_an_ordered_tool_does_not_wait_for_itself() -> None:
    gate = gate_of([call("ordered_five", first=0), call("ordered_five", first=10)], "Done.", tools=[ordered_five, step])
    assert said(run(gate.run("Go."))) == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
    assert one_after_another([0, 1, 2, 3, 4, 10, 11, 12, 13, 14]) == DONE


def test_an_ordered_call_of_the_model_and_one_of_a_tool_run_one_after_another() -> None:
    gate = gate_of([call("five", first=0), call("step", n=10)], "Done.", tools=[five, step])
    run(gate.run("Go."))
    assert one_after_another([n for what, n in DONE if what == "begin"]) == DONE


def test_an_ordered_call_that_is_denied_or_fails_holds_nobody_up() -> None:
    @tool
    async def mixed(context: ToolContext) -> list[str]:
        """Calls what fails, what is denied and what works, at once."""
        wanted = [("step", {"n": "x"}), ("drop", {"table": "t"}), ("step", {"n": 1}), ("bad", {}), ("step", {"n": 2})]
        results = await asyncio.gather(*[context.call_tool(name, args) for name, args in wanted])
        return [result.status for result in results]

    @tool(sequential=True)
    async def bad() -> None:
        """Fails."""
        raise ValueError

    policy = Policy(default="allow", rules=["deny drop"])
    gate = gate_of(call("mixed"), "Done.", tools=[mixed, step, bad, drop], policy=policy)
    assert said(run(gate.run("Go."))) == [["failed", "denied", "finished", "failed", "finished"]]
    assert one_after_another([1, 2]) == DONE


def test_a_call_that_is_given_up_while_it_waits_for_its_turn_leaves_the_order_free() -> None:
    started = asyncio.Event()

    @tool(sequential=True)
    async def hold() -> None:
        """Holds the order until it is stopped."""
        started.set()
        await asyncio.Event().wait()

    @tool(timeout_s=DEADLINE_S)
    async def waits(context: ToolContext) -> None:
        """Is over before its second call has its turn."""
        await asyncio.gather(context.call_tool("hold", {}), context.call_tool("step", {"n": 0}))

    gate = gate_of(call("waits"), [call("step", n=1)], "Done.", tools=[waits, hold, step])
    reply = run(gate.run("Go."))
    assert [record.state for record in reply.calls] == ["timed_out", "finished"]
    assert one_after_another([1]) == DONE


# How many -----------------------------------------------------------------------------------------------------------------


@tool
async def deeper(depth: int) -> int:
    """Calls itself."""
    DONE.append(depth)
    return await host.call("deeper", {"depth": depth + 1})


def test_tools_call_one_another_only_so_deep() -> None:
    reply = run(gate_of(call("deeper", depth=0), "Done.", tools=[deeper]).run("Go."))
    assert reply.calls[0].result.error == f"Not run: tools have called one another {DEPTH_MAX} deep already."
    assert list(range(DEPTH_MAX + 1)) == DONE


def test_all_tools_of_a_run_together_make_only_so_many_calls() -> None:
    @tool
    async def often(context: ToolContext) -> list[str]:
        """Calls a tool three times."""
        return [(await context.call_tool("drop", {"table": "t"})).status for _ in range(3)]

    gate = gate_of([call("often"), call("often")], "Done.", tools=[often, drop], limits=Limits(calls=4))
    statuses = [status for outcome in said(run(gate.run("Go."))) for status in outcome]
    assert sorted(statuses) == ["failed"] * 2 + ["finished"] * 4
    assert DONE == ["t"] * 4


def test_more_calls_at_once_than_may_run_wait_for_their_turn() -> None:
    running: set[int] = set()
    most: list[int] = []

    @tool
    async def busy(n: int) -> int:
        """Counts how many of it run."""
        running.add(n)
        most.append(len(running))
        for _ in range(5):
            await asyncio.sleep(0)
        running.discard(n)
        return n

    @tool
    async def many(context: ToolContext) -> list[Any]:
        """Calls a tool twelve times at once."""
        return [r.value for r in await asyncio.gather(*[context.call_tool("busy", {"n": n}) for n in range(12)])]

    gate = gate_of(call("many"), "Done.", tools=[many, busy], limits=Limits(parallel=3))
    assert said(run(gate.run("Go."))) == [list(range(12))]
    assert max(most) == 3


@pytest.mark.parametrize("rates", [RateLimits(total=Rate(concurrent=2)), RateLimits(tools={"*": Rate(concurrent=1)})])
def test_calls_made_by_tools_that_hold_all_places_run_in_the_places_of_their_callers(rates: RateLimits) -> None:
    @tool
    async def leaf(n: int) -> int:
        """Return a number."""
        return n

    @tool
    async def branch(n: int) -> int:
        """Call another tool."""
        return await host.call("leaf", {"n": n})

    @tool
    async def again(n: int) -> int:
        """Call itself."""
        return n if n == 0 else await host.call("again", {"n": n - 1})

    async def story() -> list[Any]:
        model = ScriptedModel([[call("branch", n=1), call("branch", n=2), call("again", n=2)], "ok"])
        gate = Gate(model, [leaf, branch, again], rates=rates, limits=Limits(call_timeout_s=60))
        reply = await gate.run("Go.")
        assert {name: left.inside for name, left in gate.budget().items()} == dict.fromkeys(gate.budget(), 0)
        return [record.result.value for record in reply.calls if record.result is not None]

    assert run(story()) == [1, 2, 0]
