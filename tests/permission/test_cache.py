"""The same read is answered from memory for a while; the same write never is."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from callgate import (
    FileTools,
    FunctionCall,
    Gate,
    Policy,
    ScriptedModel,
    ToolContext,
    ToolDefinition,
    ToolNotDeclarableError,
    definition_from,
    tool,
)
from callgate.errors import UsageError
from callgate.events import CallFinished, RunEnded
from callgate.permission import Rate, RateLimits, ResultCache, Rule
from callgate.testing import call
from callgate.types import ToolResult


def test_what_is_done_to_a_result_changes_neither_the_next_one_nor_what_the_model_gets() -> None:
    @tool(read_only=True)
    def read() -> dict[str, Any]:
        """Read."""
        return {"v": ["real"], "long": "x" * 10_000}

    async def story() -> None:
        model = ScriptedModel([call("read"), "1", call("read"), "2"])
        gate = Gate(model, [read], cache=ResultCache())
        for _ in range(2):
            async for event in gate.stream("x", session="s"):
                if isinstance(event, CallFinished):
                    assert event.result.value["v"] == ["real"]
                    event.result.value["v"].append("FORGED")
                if isinstance(event, RunEnded):
                    event.reply.calls[-1].result.value.clear()
            sent = model.requests[-1].contents[-1]["parts"][0]["functionResponse"]
            assert sent["response"]["result"]["v"] == ["real"]

    asyncio.run(story())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Tool:
    def __init__(
        self, name: str, *, read_only: bool = True, kind: Any = "file", server: str | None = None, touches: Any = ()
    ) -> None:
        self.definition = ToolDefinition(
            name=name, kind=kind, server=server, read_only=read_only, input_schema={"type": "object"}, touches=touches
        )
        self.ran = 0

    def problems(self, args: Any) -> list[str]:
        return []

    async def run(self, args: Any, context: ToolContext) -> object:
        self.ran += 1
        await asyncio.sleep(0.001)  # clock: a tool that gives the others a chance to overlap
        if args.get("fail"):
            raise ValueError("no")
        return self.ran


def played(tools: list[Tool], *turns: Any, session: str | None = None, gate: Gate | None = None, **options: Any) -> Any:
    script = [*[list(turn) if isinstance(turn, list) else turn for turn in turns], "ok"]
    gate = gate or Gate(ScriptedModel(script), tools, policy=Policy(default="allow"), **options)
    return asyncio.run(gate.run("Go", session=session))


def test_a_second_identical_read_is_not_executed_and_a_second_identical_write_is():
    read, write = Tool("read"), Tool("write", read_only=False)
    reply = played(
        [read, write], call("read", a=1, b=2), call("read", b=2, a=1), call("write"), call("write"), cache=ResultCache()
    )
    assert (read.ran, write.ran) == (1, 2)
    first, second = reply.calls[0].result, reply.calls[1].result
    assert (first.value, second.value) == (1, 1)
    assert second.notes == ("This is the result of the same call a short time ago; it was not run again.",)
    assert second.call_id == reply.calls[1].call.id


def test_without_a_cache_everything_is_executed():
    read = Tool("read")
    played([read], call("read"), call("read"))
    assert read.ran == 2


def test_other_arguments_are_another_call():
    read = Tool("read")
    played(
        [read],
        call("read", a=1),
        call("read", a=True),
        call("read", a=1.5),
        call("read", a="1"),
        call("read"),
        cache=ResultCache(),
    )
    assert read.ran == 5


def test_a_write_makes_worthless_what_was_read_before_wherever_it_was_read():
    read, write, other = Tool("read"), Tool("write", read_only=False), Tool("fetch", kind="mcp", server="web")
    turns = [call("read"), call("fetch"), call("write"), call("read"), call("fetch")]
    played([read, write, other], *turns, cache=ResultCache())
    assert (read.ran, other.ran) == (2, 2)
    command = Tool("shell", read_only=False, kind="command")
    read, other = Tool("read"), Tool("fetch", kind="mcp", server="web")
    played(
        [read, command, other], call("read"), call("fetch"), call("shell"), call("read"), call("fetch"), cache=ResultCache()
    )
    assert (read.ran, other.ran) == (2, 2)


def test_a_read_that_ran_beside_a_write_is_not_kept():
    read, write = Tool("read"), Tool("write", read_only=False)
    played([read, write], [call("read"), call("write")], call("read"), cache=ResultCache())
    assert read.ran == 2


def test_errors_are_not_kept():
    read = Tool("read")
    played([read], call("read", fail=True), call("read", fail=True), cache=ResultCache())
    assert read.ran == 2


def test_a_session_sees_its_own_results_unless_it_is_set_otherwise():
    for per_session, ran in ((True, 2), (False, 1)):
        read, cache = Tool("read"), ResultCache(per_session=per_session)
        played([read], call("read"), session="a", cache=cache)
        played([read], call("read"), session="b", cache=cache)
        assert read.ran == ran


def test_only_the_tools_that_are_named_are_kept():
    one, two = Tool("get_one"), Tool("two")
    played([one, two], call("get_one"), call("get_one"), call("two"), call("two"), cache=ResultCache(tools=["get_*"]))
    assert (one.ran, two.ran) == (1, 2)


def test_what_is_not_run_uses_no_rate_up():
    read = Tool("read")
    rates = RateLimits(tools={"read": Rate(per_s=0.001, burst=1)}, when_used_up="refuse")
    reply = played([read], call("read"), call("read"), cache=ResultCache(), rates=rates)
    assert [record.state for record in reply.calls] == ["finished", "finished"]


# --- by itself -----------------------------------------------------------------------------------------------------------

READ = Tool("read").definition
RESULT = ToolResult(call_id="c1", name="read", status="finished", value=1, duration_s=1.0)


def slot_of(cache: ResultCache, **args: Any) -> Any:
    return cache.slot(READ, FunctionCall(name="read", args=args, id="c2"), digest=args.pop("digest", "d"), session="s")


def test_a_result_is_good_for_its_time_and_no_longer():
    clock = Clock()
    cache = ResultCache(ttl_s=10, clock=clock)
    again = FunctionCall(name="read", id="c2")
    cache.put(slot_of(cache), RESULT)
    clock.now = 9.9
    found = cache.get(slot_of(cache), again)
    assert found is not None
    assert (found.value, found.call_id, found.duration_s) == (1, "c2", 0.0)
    clock.now = 10.0
    assert cache.get(slot_of(cache), again) is None
    assert cache.get(slot_of(cache), again) is None


def test_the_result_that_was_used_longest_ago_goes_first():
    cache, again = ResultCache(entries=2), FunctionCall(name="read", id="c2")
    for n in (1, 2):
        cache.put(slot_of(cache, n=n), RESULT)
    cache.get(slot_of(cache, n=1), again)
    cache.put(slot_of(cache, n=3), RESULT)
    assert [cache.get(slot_of(cache, n=n), again) is not None for n in (1, 2, 3)] == [True, False, True]


def test_a_tool_that_has_changed_has_no_results_yet():
    cache, again = ResultCache(), FunctionCall(name="read", id="c2")
    cache.put(slot_of(cache), RESULT)
    other = cache.slot(READ, again, digest="new", session="s")
    assert other is not None
    assert cache.get(other, again) is None


def test_a_write_has_no_slot():
    write = Tool("write", read_only=False).definition
    assert ResultCache().slot(write, FunctionCall(name="write"), digest="d", session="s") is None


@pytest.mark.parametrize("fields", [{"ttl_s": 0}, {"entries": 0}])
def test_a_cache_that_keeps_nothing_is_an_error(fields: Any):
    with pytest.raises(UsageError):
        ResultCache(**fields)


@pytest.mark.parametrize(
    ("reads", "writes", "ran"),
    [
        (("orders",), ("stock",), 1),
        (("orders",), ("orders", "stock"), 2),
        (("orders", "stock"), ("stock",), 2),
        ((), ("stock",), 2),
        (("orders",), (), 2),
    ],
)
def test_a_write_drops_only_what_it_may_have_touched(reads: Any, writes: Any, ran: int):
    read, write = Tool("read", touches=reads), Tool("write", read_only=False, touches=writes)
    played([read, write], call("read"), call("write"), call("read"), cache=ResultCache())
    assert read.ran == ran


def test_what_tools_of_a_server_touch_can_be_said_in_the_cache():
    def tools() -> list[Tool]:
        return [Tool("read", kind="mcp", server="a"), Tool("write", kind="mcp", server="b", read_only=False)]

    for touches, ran in (({"@a/*": ["a"], "@b/*": ["b"]}, 1), ({"@a/*": ["a"]}, 2), ({"*": ["same"]}, 2)):
        read, write = tools()
        played([read, write], call("read"), call("write"), call("read"), cache=ResultCache(touches=touches))
        assert read.ran == ran


def test_a_function_says_what_it_touches():
    @tool(read_only=True, touches=["orders"])
    def look() -> int:
        return 1

    assert definition_from(look).touches == ("orders",)
    with pytest.raises(ToolNotDeclarableError, match="is not a list of names"):
        tool(touches="orders")(lambda: 1)  # pyright: ignore[reportArgumentType]


# What a result depends on besides the arguments ----------------------------------------------------------------------------


class User:
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize("per_session", [True, False])
def test_a_result_for_the_deps_of_one_run_is_not_given_to_another(per_session: bool) -> None:
    @tool(read_only=True)
    def orders(context: ToolContext[User]) -> str:
        """List the orders of the current user."""
        return f"a lamp for {context.deps.name}"

    async def story() -> list[tuple[str, bool]]:
        ann, bob = User("Ann"), User("Bob")
        gate = Gate(ScriptedModel([call("orders"), "ok"] * 3), [orders], cache=ResultCache(per_session=per_session))
        replies = [await gate.run("x", session="team", deps=user) for user in (ann, bob, ann)]
        return [(str(reply.calls[-1].result.value), bool(reply.calls[-1].result.notes)) for reply in replies]

    assert asyncio.run(story()) == [("a lamp for Ann", False), ("a lamp for Bob", False), ("a lamp for Ann", True)]


def test_a_result_of_the_tools_of_one_run_is_not_given_to_another() -> None:
    def orders_of(name: str) -> Any:
        @tool(read_only=True)
        def orders() -> str:
            """List the orders of the current user."""
            return f"a lamp for {name}"

        return orders

    async def story() -> list[str]:
        gate = Gate(ScriptedModel([call("orders"), "ok"] * 2), cache=ResultCache())
        replies = [await gate.run("x", session="team", tools=[orders_of(name)]) for name in ("Ann", "Bob")]
        return [str(reply.calls[-1].result.value) for reply in replies]

    assert asyncio.run(story()) == ["a lamp for Ann", "a lamp for Bob"]


def test_two_gates_that_share_a_cache_do_not_share_results_of_functions_that_look_alike() -> None:
    def gate_of(name: str, cache: ResultCache) -> Gate:
        @tool(read_only=True)
        def who() -> str:
            """Say who it is."""
            return name

        return Gate(ScriptedModel([call("who"), "ok"]), [who], cache=cache)

    async def story() -> list[str]:
        cache = ResultCache(per_session=False)
        return [str((await gate_of(name, cache).run("x")).calls[0].result.value) for name in "AB"]

    assert asyncio.run(story()) == ["A", "B"]


def test_results_made_under_another_policy_are_not_handed_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "plan.txt").write_text("TOP SECRET PLAN")
    (root / "b").write_text("x")
    calls = [call("search_files", pattern="SECRET"), call("list_files")]

    async def story() -> list[Any]:
        tools = FileTools(str(root), state_dir=str(tmp_path / "state"))
        gate = Gate(ScriptedModel([calls, "ok", calls, "ok"]), [tools], cache=ResultCache())
        await gate.run("x", session="s")
        strict = gate.with_options(policy=Policy(rules=[Rule(verdict="deny", paths=["plan.txt"])]))
        return [record.result.value for record in (await strict.run("y", session="s")).calls[-2:]]

    assert asyncio.run(story()) == [[], ["b"]]


def test_nothing_is_kept_while_a_tool_that_was_given_up_on_may_still_change_something() -> None:
    value, goes_on, has_ended = [1], threading.Event(), threading.Event()

    @tool(read_only=True)
    def get() -> int:
        """Get it."""
        return value[0]

    @tool(timeout_s=0.05)
    def put() -> str:
        """Put it."""
        goes_on.wait(300)
        value[0] = 5
        has_ended.set()
        return "late"

    async def story() -> list[Any]:
        gate = Gate(ScriptedModel([call("put"), call("get"), "ok", call("get"), "ok"]), [get, put], cache=ResultCache())
        first = await gate.run("x", session="s")
        goes_on.set()
        await asyncio.to_thread(has_ended.wait, 300)
        second = await gate.run("y", session="s")
        return [first.calls[0].state, first.calls[1].result.value, second.calls[0].result.value]

    assert asyncio.run(story()) == ["timed_out", 1, 5]
