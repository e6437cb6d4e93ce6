"""Every door to a call, every stage of the pipeline, every fault of the code that is called there: one table.

A row says what goes wrong at which stage and how the call must end. A door takes a call in: a run, a stream, sync code, a
tool, an MCP client, another framework. Whatever the row and whatever the door, the door comes back, the call has one result
and one outcome, nothing is left running, no error is lost, and the next call through the same door works.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult

from callgate import Gate, Policy, ScriptedModel, ToolContext, ToolDefinition, tool
from callgate.adapters.gated_tools import GatedTools
from callgate.calls import dispatcher
from callgate.events import CallFinished, CallProposed
from callgate.history.repair import validate
from callgate.machine import facts
from callgate.mcp.serve import ToolServer
from callgate.permission import Hook
from callgate.testing import call_with
from callgate.tools import precheck
from callgate.types import FunctionCall, ToolResult
from mcp import Client

NET_S = 60.0
"""A door that is not back by then never comes back."""
SHORT_S = 0.05
"""The deadline of what hangs."""


# The faults ---------------------------------------------------------------------------------------------------------------


class UnspeakableError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise UnspeakableError


class Hostile(Mapping[str, Any]):
    """A value that raises wherever it is looked at."""

    def __getitem__(self, key: str) -> Any:
        raise KeyboardInterrupt

    def __iter__(self) -> Any:
        raise KeyboardInterrupt

    def __len__(self) -> int:
        return 1


def raising(error: BaseException) -> Callable[[], Any]:
    def fault() -> Any:
        raise error

    return fault


def give(value: Any) -> Callable[[], Any]:
    return lambda: value


async def await_a_cancelled_future() -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.cancel)
    await future


async def hang() -> None:
    await asyncio.Event().wait()


async def swallow_a_cancellation() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "went on"
    return "never"


RAISED: dict[str, Callable[[], Any]] = {
    "an Exception": raising(ValueError("boom")),
    "a KeyError": raising(KeyError("missing")),
    "a KeyboardInterrupt": raising(KeyboardInterrupt()),
    "sys.exit()": lambda: sys.exit(3),
    "a CancelledError": raising(asyncio.CancelledError()),
    "a StopIteration": raising(StopIteration("over")),
    "a TimeoutError": raising(TimeoutError()),
    "an error that cannot be told": raising(UnspeakableError()),
}
AWAITED: dict[str, Callable[[], Any]] = {**RAISED, "a cancelled future": await_a_cancelled_future}
ANSWERS: dict[str, Callable[[], Any]] = {
    "nothing": give(None),
    "a number": give(42),
    "a word": give("maybe"),
    "a list": give(["yes"]),
    "another call": give(FunctionCall(name="other", args={})),
    "arguments that are not JSON": give(FunctionCall(name="it", args={"n": object()})),
}
VALUES: dict[str, tuple[Callable[[], Any], str]] = {
    "an object": (give(object()), "finished"),
    "not a number": (give(float("nan")), "finished"),
    "a type": (give(dict), "finished"),
    "a value that raises": (give(Hostile()), "finished"),  # With a note that it could not be written.
    "a ToolResult of an object": (give(ToolResult(call_id="x", name="y", status="finished", value=object())), "finished"),
    "a ToolResult of not a number": (
        give(ToolResult(call_id="x", name="y", status="finished", value=float("nan"))),
        "finished",
    ),
    "a ToolResult of an unknown status": (give(ToolResult(call_id="", name="", status="success")), "failed"),  # pyright: ignore
    "a ToolResult with nonsense all over": (
        give(ToolResult(call_id=1, name=None, status="failed", error=2, notes=3, media=4, duration_s="x")),  # pyright: ignore
        "failed",
    ),
}
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "that fails": (("/bin/sh", "-c", "exit 1"), "denied"),
    "that blocks": (("/bin/sh", "-c", "echo no >&2; exit 2"), "denied"),
    "that is not there": (("/nowhere/to/be/found",), "denied"),
    "that kills itself": (("/bin/sh", "-c", "kill -9 $$"), "denied"),
    "that hangs": (("/bin/sh", "-c", "sleep 60"), "denied"),
    "that answers nonsense": (("/bin/sh", "-c", "echo '{'"), "denied"),
}


# The stages ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Story:
    """A call of the tool `it`, and what is wrong around it."""

    tool: object
    ends: str
    """The status of the one result."""
    args: dict[str, Any] = field(default_factory=dict[str, Any])
    policy: Policy = field(default_factory=lambda: Policy(default="allow"))
    approve: Any = None
    traced: Callable[[], Any] | None = None
    """What a span processor does whenever it is told something."""


@tool(name="it")
def works() -> str:
    """Works."""
    return "worked"


class Runnable:
    """A tool that is no function."""

    definition = ToolDefinition(name="it", input_schema={"type": "object"})

    def __init__(self, *, problems: Callable[[], Any] = tuple, preview: Callable[[], Any] | None = None) -> None:
        self._problems, self._preview = problems, preview

    def problems(self, args: Any) -> Any:
        return self._problems()

    async def run(self, args: Any, context: ToolContext) -> object:
        return "worked"

    async def preview(self, args: Any) -> Any:
        return None if self._preview is None else await settled(self._preview())


async def settled(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value


ASK = Policy(default="allow", rules=["ask it"])


def validated(fault: Callable[[], Any]) -> Story:
    @dataclass
    class Amount:
        n: int

        def __post_init__(self) -> None:
            fault()

    @tool(name="it")
    def pay(amount: Amount) -> str:
        """Pays."""
        return "paid"

    return Story(tool=pay, args={"amount": {"n": 1}}, ends="failed")


def problems(fault: Callable[[], Any]) -> Story:
    return Story(tool=Runnable(problems=fault), ends="failed")


def asked_sync(fault: Callable[[], Any]) -> Story:
    return Story(tool=works, policy=ASK, approve=lambda call, definition, reason: fault(), ends="denied")


def asked_async(fault: Callable[[], Any]) -> Story:
    async def approve(call: Any, definition: Any, reason: str) -> Any:
        return await settled(fault())

    return Story(tool=works, policy=ASK, approve=approve, ends="denied")


def previewed(fault: Callable[[], Any]) -> Story:
    return Story(tool=Runnable(preview=fault), policy=ASK, approve=lambda *about: "yes", ends="finished")


def run_sync(fault: Callable[[], Any], ends: str = "failed") -> Story:
    def it() -> Any:
        """Runs in a thread."""
        return fault()

    return Story(tool=it, ends=ends)


def run_on_the_loop(fault: Callable[[], Any]) -> Story:
    @tool(run_in="loop")
    def it() -> Any:
        """Runs on the loop."""
        return fault()

    return Story(tool=it, ends="failed")


def run_async(fault: Callable[[], Any], ends: str = "failed") -> Story:
    @tool(timeout_s=SHORT_S if ends == "timed_out" else None)
    async def it() -> Any:
        """Runs on the loop."""
        return await settled(fault())

    return Story(tool=it, ends=ends)


def run_generator(fault: Callable[[], Any]) -> Story:
    async def it() -> AsyncGenerator[str]:
        """Says something, and more of it."""
        yield "something"
        await settled(fault())

    return Story(tool=it, ends="failed")


def hooked(when: Any, command: tuple[str, ...], ends: str) -> Story:
    hook = Hook(
        command=command, when=when, tool="it", timeout_s=4 * SHORT_S, on_failure="deny", may_rewrite=when == "before"
    )
    return Story(tool=works, policy=Policy(default="allow", hooks=(hook,)), ends="finished" if when == "after" else ends)


def traced(fault: Callable[[], Any]) -> Story:
    return Story(tool=works, traced=fault, ends="finished")


NONSENSE = {"nothing": give(None), "a number": give(42), "objects": give([object()]), "a text": give("wrong")}
ROWS: dict[str, Story] = {
    **{f"a validator raises {name}": validated(fault) for name, fault in RAISED.items()},
    **{f"problems() raises {name}": problems(fault) for name, fault in RAISED.items()},
    **{f"problems() gives {name}": problems(fault) for name, fault in NONSENSE.items() if name != "nothing"},
    **{f"a hook before {name}": hooked("before", *command) for name, command in COMMANDS.items()},
    **{f"a hook after {name}": hooked("after", *command) for name, command in COMMANDS.items()},
    **{f"approve raises {name}": asked_sync(fault) for name, fault in RAISED.items()},
    **{f"approve answers {name}": asked_sync(fault) for name, fault in ANSWERS.items()},
    **{f"async approve raises {name}": asked_async(fault) for name, fault in AWAITED.items()},
    **{f"async approve answers {name}": asked_async(fault) for name, fault in ANSWERS.items()},
    **{f"a preview raises {name}": previewed(fault) for name, fault in AWAITED.items()},
    **{f"a preview gives {name}": previewed(fault) for name, fault in NONSENSE.items()},
    "a preview gives a value that raises": previewed(give(Hostile())),
    "a preview hangs": previewed(hang),
    **{f"a sync tool raises {name}": run_sync(fault) for name, fault in RAISED.items()},
    **{f"a sync tool gives {name}": run_sync(*value) for name, value in VALUES.items()},
    **{f"a tool on the loop raises {name}": run_on_the_loop(fault) for name, fault in RAISED.items()},
    **{f"an async tool raises {name}": run_async(fault) for name, fault in AWAITED.items()},
    **{f"an async tool gives {name}": run_async(*value) for name, value in VALUES.items()},
    **{f"an async generator raises {name}": run_generator(fault) for name, fault in AWAITED.items()},
    "an async tool hangs": run_async(hang, "timed_out"),
    "an async tool swallows its cancellation": run_async(swallow_a_cancellation, "timed_out"),
    **{f"a tracer raises {name}": traced(fault) for name, fault in RAISED.items()},
}


# The doors ----------------------------------------------------------------------------------------------------------------


@tool
async def fine() -> str:
    """Has nothing wrong with it."""
    return "fine"


GIVEN: list[ToolResult] = []
"""What nested calls came to."""


@tool
async def relay(name: str, args: dict[str, Any], context: ToolContext) -> str:
    """Calls a tool."""
    GIVEN.append(await context.call_tool(name, args))
    return "relayed"


@tool
async def relay_on(name: str, args: dict[str, Any], context: ToolContext) -> str:
    """Calls a tool by way of another one."""
    await context.call_tool("relay", {"name": name, "args": args})
    return "relayed"


Call = Callable[[str, dict[str, Any]], Awaitable[list[str]]]
"""Calls a tool by its name, and gives the status of each of its results."""


def settings_of(story: Story, folder: Path) -> dict[str, Any]:
    return {"policy": story.policy, "audit": folder / "audit.jsonl"}


def statuses(reply: Any) -> list[str]:
    """The results that a reply has for the calls of its run; its history has as many, and is valid."""
    assert validate(reply.contents) == []
    responses = [part for content in reply.contents for part in content["parts"] if "functionResponse" in part]
    calls = [part for content in reply.contents for part in content["parts"] if "functionCall" in part]
    assert len(responses) == len(calls)
    return [record.result.status for record in reply.calls]


async def consumed(gate: Gate) -> Any:
    events = [event async for event in gate.stream("Go.", session="s")]
    proposed = [event.call.id for event in events if isinstance(event, CallProposed)]
    assert [event.call.id for event in events if isinstance(event, CallFinished)] == proposed
    return events[-1].reply


@asynccontextmanager
async def by_gate(story: Story, folder: Path, way: str) -> AsyncGenerator[Call]:
    script: list[Any] = []
    model = ScriptedModel(script)
    model._script = script
    tools = [story.tool, fine, relay, relay_on]
    gate = Gate(model, tools, approve=story.approve, **settings_of(story, folder))
    GIVEN.clear()

    async def call(name: str, args: dict[str, Any]) -> list[str]:
        if way.startswith("nested"):
            name, args = "relay" if way == "nested" else "relay_on", {"name": name, "args": args}
        script.extend([call_with(name, args), "Done."])
        if way == "run_sync":
            found = statuses(await asyncio.to_thread(gate.run_sync, "Go.", session="s"))
        else:
            found = statuses(await (consumed(gate) if way == "stream" else gate.run("Go.", session="s")))
        if not way.startswith("nested"):
            return found
        assert found == ["finished"]
        given = [result.status for result in GIVEN]
        GIVEN.clear()
        return given

    async with gate:
        yield call
    journal = await gate.store.load("s")
    ended = [fact.id for fact in journal if isinstance(fact, (facts.CallEnded, facts.NestedCall)) and fact.result]
    assert len(set(ended)) == len(ended), "a call ended twice"


@asynccontextmanager
async def by_adapter(story: Story, folder: Path, way: str) -> AsyncGenerator[Call]:
    tools = [story.tool, fine, relay, relay_on]
    GIVEN.clear()
    async with GatedTools(tools, approve=story.approve, **settings_of(story, folder)) as gated:

        async def call(name: str, args: dict[str, Any]) -> list[str]:
            if way == "call_sync":
                return [(await asyncio.to_thread(gated.call_sync, name, args)).status]
            if way == "call":
                return [(await gated.call(name, args)).status]
            assert (await gated.call("relay_on", {"name": name, "args": args})).status == "finished"
            given = [result.status for result in GIVEN]
            GIVEN.clear()
            return given

        yield call


@asynccontextmanager
async def by_mcp(story: Story, folder: Path, way: str) -> AsyncGenerator[Call]:
    async def answer(context: Any, params: Any) -> ElicitResult:
        said: Any = await settled(story.approve(None, None, ""))
        return ElicitResult(action="accept", content={"answer": said})

    server = ToolServer.of([story.tool, fine, relay, relay_on], **settings_of(story, folder))
    more = {} if story.approve is None else {"elicitation_callback": answer}
    async with Client(server.sdk, mode="legacy", **more) as client:

        async def call(name: str, args: dict[str, Any]) -> list[str]:
            result = await client.call_tool(name, args)
            return ["an error" if result.is_error else "finished"]

        yield call


DOORS: dict[str, tuple[Any, str]] = {
    "run": (by_gate, "run"),
    "stream": (by_gate, "stream"),
    "run_sync": (by_gate, "run_sync"),
    "a tool": (by_gate, "nested"),
    "a tool of a tool": (by_gate, "nested twice"),
    "an MCP client": (by_mcp, ""),
    "a framework": (by_adapter, "call"),
    "a sync framework": (by_adapter, "call_sync"),
    "a tool of a framework": (by_adapter, "nested twice"),
}
# Whoever answers for an MCP client is in the client, where some of these end the client itself.
ENDS_A_CLIENT = (
    "KeyboardInterrupt",
    "sys.exit()",
    "CancelledError",
    "cancelled future",
    "told",
    "list",
    "another call",
    "JSON",
)


def is_possible(door: str, row: str) -> bool:
    return not (door == "an MCP client" and "approve" in row and row.endswith(ENDS_A_CLIENT))


# All rows at one door are quick, and of the worst ones a third at each of the others. Of what remains every door sees a
# quarter, another one each, so that every stage and every fault meets every door. A soak sees everything everywhere.
MAIN_DOOR = "run"
WORST = ("KeyboardInterrupt", "cancelled future", "a number", "hangs", "its cancellation", "unknown status", "nonsense")
IS_SOAK = int(os.environ.get("CALLGATE_SCALE", "1")) > 1


def cases() -> Iterator[Any]:
    for number, row in enumerate(ROWS):
        for place, door in enumerate(DOORS):
            if not is_possible(door, row):
                continue
            if door == MAIN_DOOR or (row.endswith(WORST) and (number + place) % 3 == 0):
                yield pytest.param(door, row)
            elif IS_SOAK or (number + place) % 4 == 0:
                yield pytest.param(door, row, marks=pytest.mark.slow)


# The table ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precheck, "PREVIEW_S", SHORT_S)
    monkeypatch.setattr("callgate.tools.call.STOP_GRACE_S", SHORT_S)


@pytest.fixture
def trace_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Sets up a tracer whose processor does something whenever it is told of a span."""
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")

    def set_up(fault: Callable[[], Any]) -> None:
        class Broken(sdk.SpanProcessor):
            def on_start(self, span: Any, parent_context: Any = None) -> None:
                fault()

            def on_end(self, span: Any) -> None:
                fault()

        provider = sdk.TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(Broken())
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    return set_up


async def leave_nothing(work: Awaitable[None]) -> None:
    """Waits for work that must leave no task behind, and lose no error."""
    lost: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))
    async with asyncio.timeout(NET_S):
        await work
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left)
    gc.collect(1)
    await asyncio.sleep(0)
    # An `approve` that fails is reported there on purpose, for programs that neither log nor listen to events.
    assert [context for context in lost if not context["message"].startswith("approve failed for ")] == []


def one_outcome_each(log: Path) -> None:
    records = [json.loads(line) for line in log.read_text().splitlines()]
    ends = [record["call"] for record in records if record["kind"] == "end"]
    starts = [record["call"] for record in records if record["kind"] == "start"]
    assert len(ends) == len(set(ends)), "a call has two outcomes"
    assert set(starts) <= set(ends), "a call that has started has no outcome"


@pytest.mark.parametrize(("door", "row"), list(cases()))
def test_whatever_goes_wrong_a_call_has_one_result_and_the_next_one_works(
    door: str, row: str, tmp_path: Path, trace_with: Callable[..., None]
) -> None:
    story, (open_door, way) = ROWS[row], DOORS[door]
    if story.traced is not None:
        trace_with(story.traced)

    async def main() -> None:
        async with open_door(story, tmp_path, way) as call:
            found = await call("it", story.args)
            expected = "an error" if door == "an MCP client" and story.ends != "finished" else story.ends
            assert found == [expected]
            assert await call("fine", {}) == ["finished"]

    asyncio.run(leave_nothing(main()))
    one_outcome_each(tmp_path / "audit.jsonl")


def test_whoever_takes_too_long_to_answer_a_framework_has_said_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "ASK_S", SHORT_S)

    async def main() -> None:
        async with by_adapter(asked_async(hang), tmp_path, "call") as call:
            assert await call("it", {}) == ["denied"]
            assert await call("fine", {}) == ["finished"]

    asyncio.run(leave_nothing(main()))
    one_outcome_each(tmp_path / "audit.jsonl")
