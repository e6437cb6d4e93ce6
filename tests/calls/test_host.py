"""Tools that call other tools of their gate: under the same permission, wherever they run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from callgate import (
    Executor,
    FunctionCall,
    Gate,
    Limits,
    Policy,
    ScriptedModel,
    ToolContext,
    UsageError,
    WorkerPool,
    host,
    tool,
)
from callgate.errors import ToolError
from callgate.machine import facts
from callgate.store import MemoryStore
from callgate.testing import call, text

HERE = Path(__file__).resolve()
SECRETS: list[str] = []


# What runs in a thread, on the loop, or in a worker ----------------------------------------------------------------------


@tool
def relay_sync(name: str, args: dict[str, Any]) -> Any:
    """Calls a tool from sync code."""
    return host.call_sync(name, args)


@tool
async def relay(name: str, args: dict[str, Any]) -> Any:
    """Calls a tool from async code."""
    return await host.call(name, args)


@tool
async def relay_by_context(name: str, args: dict[str, Any], context: ToolContext) -> str:
    """Calls a tool and says how it ended."""
    result = await context.call_tool(name, args)
    return f"{result.status}: {result.value or result.error}"


@tool
def swallow(name: str, args: dict[str, Any]) -> str:
    """Goes on after a call that failed."""
    try:
        return str(host.call_sync(name, args))
    except ToolError as error:
        return f"went on after: {error}"


@tool
async def relay_often(name: str, args: dict[str, Any], times: int, context: ToolContext) -> list[str]:
    """Calls a tool several times and says how each call ended."""
    results = [await context.call_tool(name, args) for _ in range(times)]
    return [result.error or result.status for result in results]


@tool
def send_bytes() -> None:
    """Calls a tool with something that JSON has not."""
    host.call_sync("stock", {"item": b"x"})


RELAYS = [relay_sync, relay, relay_by_context, swallow, relay_often]


# What runs in the program ------------------------------------------------------------------------------------------------


def stock(item: str) -> dict[str, int]:
    """How much there is."""
    return {item: 3}


def erase(item: str) -> None:
    """Takes something away."""
    SECRETS.append(item)


async def linger() -> None:
    """Takes its time."""
    try:
        await asyncio.sleep(60)
    finally:
        SECRETS.append("linger ended")


async def again(depth: int) -> int:
    """Calls itself."""
    return await host.call("again", {"depth": depth + 1})


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool([HERE], size=2)
    yield pool
    pool.close()


@pytest.fixture(params=["in this process", "in a worker"])
def relays(request, pool) -> list[Any]:
    SECRETS.clear()
    return [pool] if request.param == "in a worker" else RELAYS


def run(tools: list[Any], *calls: Any, **options: Any) -> Any:
    gate = Gate(ScriptedModel([*calls, text("done")]), tools=tools, **{"policy": Policy(default="allow")} | options)
    return asyncio.run(gate.run("Go."))


@pytest.mark.parametrize("name", ["relay_sync", "relay"])
def test_a_tool_calls_another_one_and_gets_its_value(name, relays):
    reply = run([*relays, stock], call(name, name="stock", args={"item": "nut"}))
    assert reply.calls[0].result.value == {"nut": 3}


def test_what_became_of_a_call_is_known_without_an_exception(relays):
    reply = run([*relays, stock], call("relay_by_context", name="stock", args={"item": 1, "extra": 2}))
    assert reply.calls[0].result.value.startswith("failed: The arguments of 'stock' are not valid: ")


@pytest.mark.parametrize(("name", "status"), [("relay_sync", "failed"), ("relay", "failed"), ("swallow", "finished")])
def test_what_the_policy_denies_is_an_error_in_the_tool_and_does_not_run(name, status, relays):
    policy = Policy(default="allow", rules=["deny erase"])
    reply = run([*relays, erase], call(name, name="erase", args={"item": "all"}), policy=policy)
    result = reply.calls[0].result
    assert result.status == status
    assert "'erase': This call was not allowed." in (result.error or result.value)
    assert SECRETS == []


@pytest.mark.parametrize("answer", ["yes", "no", "later", "edited", "broken"])
def test_what_must_be_asked_for_is_asked_for(answer, relays):
    asked: list[str] = []

    async def approve(wanted, definition, reason):
        if wanted.name != "erase":
            return "yes"
        asked.append(f"{wanted.name} {wanted.args['item']}")
        if answer == "broken":
            raise RuntimeError("no terminal")
        return FunctionCall(name="erase", args={"item": "less"}) if answer == "edited" else answer

    policy = Policy(default="allow", rules=["ask erase"])
    reply = run([*relays, erase], call("relay", name="erase", args={"item": "all"}), policy=policy, approve=approve)
    assert asked == ["erase all"]
    erased = {"yes": ["all"], "edited": ["less"]}.get(answer, [])
    assert erased == SECRETS
    if not erased:
        assert "'erase': The user did not allow this call." in reply.calls[0].result.error


def test_both_ends_of_a_call_are_in_the_journal_and_in_the_audit_log(relays, tmp_path):
    store = MemoryStore()
    reply = run([*relays, stock], call("relay", name="stock", args={"item": "nut"}), store=store, audit=tmp_path / "log")
    inner = [fact for fact in asyncio.run(store.load(reply.session)) if isinstance(fact, facts.NestedCall)]
    outer = reply.calls[0].call.id
    assert [(f.parent, f.id, f.name, f.args, f.result and f.result.value) for f in inner] == [
        (outer, f"{outer}.1", "stock", {"item": "nut"}, None),
        (outer, f"{outer}.1", "stock", {"item": "nut"}, {"nut": 3}),
    ]
    records = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(r["kind"], r["tool"]) for r in records] == [
        ("start", "relay"), ("start", "stock"), ("end", "stock"), ("end", "relay"),
    ]  # fmt: skip


def test_a_call_ends_with_the_tool_that_made_it(relays):
    reply = run([*relays, linger], call("relay", name="linger", args={}), limits=Limits(call_timeout_s=1.0))
    assert reply.calls[0].result.status == "timed_out"
    assert SECRETS == ["linger ended"]


def test_tools_that_call_one_another_are_stopped_at_a_depth(relays):
    reply = run([*relays, again], call("relay", name="again", args={"depth": 1}))
    assert reply.calls[0].result.error == "Not run: tools have called one another 4 deep already."


def test_the_calls_that_tools_make_have_the_limit_of_the_run(relays):
    reply = run([*relays, stock], call("relay_often", name="stock", args={"item": "nut"}, times=3), limits=Limits(calls=2))
    assert reply.calls[0].result.value == [
        "finished", "finished", "Not run: the tools of this run have made 2 calls already.",
    ]  # fmt: skip


def test_arguments_that_are_not_json_do_not_leave_a_worker(pool):
    reply = run([pool, stock], call("send_bytes"))
    assert reply.calls[0].result.error.startswith("The arguments of 'stock' are not JSON: ")


def test_a_pool_by_itself_has_no_tools_for_tools(pool):
    done = asyncio.run(pool.execute(None, "relay", {"name": "stock", "args": {}}))
    assert done.error == "Not run: 'stock' was called by a tool that no gate runs, so there are no tools to call."


def test_an_executor_by_itself_has_no_tools_for_tools():
    done = asyncio.run(
        Executor([relay, stock]).execute(FunctionCall(name="relay", args={"name": "stock", "args": {}}, id="1"))
    )
    assert done.error == "Not run: 'stock' was called by a tool that no gate runs, so there are no tools to call."


def test_outside_of_a_tool_there_is_no_host():
    with pytest.raises(UsageError, match="inside of a tool"):
        host.call_sync("stock", {})


def test_waiting_for_the_own_event_loop_is_refused():
    async def wrong() -> str:
        """Uses the sync door in async code."""
        return host.call_sync("stock", {"item": "x"})

    reply = run([wrong, stock], call("wrong"))
    assert "in async code use `await host.call()`" in reply.calls[0].result.error
