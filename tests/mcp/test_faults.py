"""Every fault at once, each on a server of its own, in one turn: one error for each, in time, and the others go on."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Limits, McpServer, Policy, ScriptedModel, events
from callgate.testing import answer, call
from callgate.types import ToolContext

from .left_tasks import no_task_is_left

SCRIPT = Path(__file__).with_name("scripted_server.py")
ALLOW = Policy(default="allow")
SECONDS_MAX = 60.0


def server(name: str, *tools: str, **options: Any) -> McpServer:
    given = json.dumps({"tools": [f"{name}_{tool}" for tool in tools], "prefix": f"{name}_", **options})
    return McpServer(name, command=[sys.executable, "-I", str(SCRIPT), given], start_s=20)


def left_behind() -> tuple[int, list[str]]:
    """Open files and child processes of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    return len(os.listdir("/proc/self/fd")), children.read_text().split() if children.exists() else []


async def without_rest(work: Any) -> Any:
    """Runs it, and sees that no task is left."""
    async with asyncio.timeout(SECONDS_MAX):
        value = await work
    await no_task_is_left()
    return value


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ten_faults_in_one_turn_cost_one_error_each():
    new = {"good_echo": None, "good_more": {"description": "New.", "_meta": {"does": "echo"}}}
    boxes = [
        server("good", "echo", "change", "huge"), server("dies", "die"), server("hangs", "hang"), server("long", "line"),
        server("noisy", "garbage"), server("loud", "flood"), server("absent", "echo", refuse=True),
        server("late", "echo", start_delay_s=600), server("old", "echo", protocol="2024-11-05"),
        server("twice", "echo", more=[{"name": "twice_echo", "inputSchema": {"type": "object"}}]),
        server("endless", "message"),
    ]  # fmt: skip
    boxes[2]._timeout_s = 5.0
    boxes[7]._start_s = 0.5
    model = ScriptedModel([
        answer(
            call("good_echo", n=1), call("dies_die"), call("hangs_hang"), call("long_line", mib=100),
            call("noisy_garbage"), call("loud_flood"), call("old_echo", n=2), call("twice_echo", n=3),
            call("good_huge", chars=3_000_000), call("endless_message", mib=100), call("good_echo", n=4),
        ),
        call("good_change", tools=new), call("dies_die"), "Done.",
    ])  # fmt: skip
    seen: list[events.Event] = []

    async def story() -> None:
        limits = Limits(call_timeout_s=40, parallel=20)
        async with Gate(model, boxes, policy=ALLOW, limits=limits) as gate:
            seen.extend([event async for event in gate.stream("Go.")])

    open_before, others = left_behind()
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.run(without_rest(story()))
    open_after, children = left_behind()
    assert (set(children) <= set(others), open_after <= open_before) == (True, True)
    # Two messages of 100 MiB came, and neither was ever held.
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before) >> 10 < 250

    assert isinstance(seen[-1], events.RunEnded)
    results = [(record.call.name, record.result) for record in seen[-1].reply.calls]
    finished = {(event.call.id) for event in seen if isinstance(event, events.CallFinished)}
    assert len(finished) == len(results) == 13
    states = [result.status for _, result in results]
    assert states == [
        "finished", "failed", "timed_out", "failed", "finished", "finished", "finished", "finished", "finished", "failed",
        "finished", "finished", "failed",
    ]  # fmt: skip
    errors = {name: str(result.error) for name, result in results if result.status != "finished"}
    assert "the disk is on fire" in errors["dies_die"]
    assert "did not finish within 5 s" in errors["hangs_hang"]
    assert "more than 16 MiB and was stopped" in errors["long_line"]
    assert "more than 16 MiB and was stopped" in errors["endless_message"]
    huge = next(result for name, result in results if name == "good_huge")
    assert str(huge.value).endswith("[cut off: 1000000 more characters]")
    told = [event.message for event in seen if isinstance(event, events.Notice) and event.code == "server_unavailable"]
    assert [sentence.split(":")[0] for sentence in told] == [
        "The MCP server 'absent' is not available", "The MCP server 'late' is not available",
        "The MCP server 'twice' lists 'twice_echo' twice; the first one is used.",
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_server_that_dies_again_and_again_leaves_nothing_behind(scale: int):
    async def story() -> list[int]:
        box = server("box", "die", "where")
        counts: list[int] = []
        await box.start(story)
        for _ in range(5 * scale):
            with pytest.raises(Exception, match="the disk is on fire"):
                await box.call("box_die", {}, ToolContext(call_id="1", name="box_die"))
            await box.call("box_where", {}, ToolContext(call_id="2", name="box_where"))
            counts.append(len(set(left_behind()[1]) - others))
        await box.aclose(story)
        return counts

    open_before, children = left_behind()
    others = set(children)
    counts = asyncio.run(without_rest(story()))
    assert set(counts) == {1}
    open_after, children = left_behind()
    assert (set(children) <= others, open_after <= open_before) == (True, True)


def test_a_server_that_leaves_while_it_is_asked_what_it_has_is_told_like_any_other():
    async def story() -> str | None:
        box = server("box", "echo", can={"resources": {}}, dies_at="resources/list")
        await box.start(story)
        problem = box.problem
        await box.aclose(story)
        return problem

    assert "exit code 6" in str(asyncio.run(without_rest(story())))
