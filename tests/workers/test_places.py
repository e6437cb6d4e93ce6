"""One suite for pools wherever their workers are: shared ones, one a session, and actors of a Ray cluster."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callgate import Gate, Policy, ScriptedModel, UsageError, WorkerPool
from callgate.testing import call, text
from callgate.workers import RayCluster, WorkerLimits
from callgate.workers.cluster import cluster_from

TOOLBOX = Path(__file__).parent / "toolbox.py"
LOST = ("The worker of this session ended: what earlier calls had kept in its memory is lost.",)


@pytest.fixture(scope="module", params=["strict", "own", pytest.param("ray", marks=pytest.mark.slow)])
def pool(request):
    options = {"cluster": request.getfixturevalue("cluster")} if request.param == "ray" else {"affinity": request.param}
    pool = WorkerPool([TOOLBOX], size=12, eager=False, **options)
    yield pool
    pool.close()


def told(story):
    return asyncio.run(asyncio.wait_for(story, 120))


def test_tools_are_listed_and_run_by_whoever_drives_the_flow(pool):
    async def story():
        names = [definition.name for definition in await pool.list_tools("flow")]
        return names[:2], (await pool.execute("flow", "add", {"a": 1})).value

    assert told(story()) == (["add", "day_after"], 3)


def test_items_come_as_they_are_made_and_then_the_result(pool):
    async def story():
        *items, result = [item async for item in pool.stream("stream", "count", {"to": 3})]
        return items, result.value

    assert told(story()) == ([0, 1, 2], [0, 1, 2])


def test_state_lives_as_long_as_its_session(pool):
    async def story():
        values = [(await pool.execute(s, "remember", {"word": w})).value for s, w in [("a", "1"), ("b", "2"), ("a", "3")]]
        await pool.end_session("a")
        values.append((await pool.execute("a", "remember", {"word": "4"})).value)
        for session in "ab":
            await pool.end_session(session)
        return values

    assert told(story()) == [["1"], ["2"], ["1", "3"], ["4"]]


def test_calls_of_a_session_keep_their_order(pool):
    async def story():
        calls = [pool.execute("order", "remember", {"word": str(n)}) for n in range(5)]
        values = [result.value for result in await asyncio.gather(*calls)]
        await pool.end_session("order")
        return values

    assert told(story()) == [[str(n) for n in range(end)] for end in range(1, 6)]


def test_a_crash_says_how_it_was_and_what_is_lost_and_the_next_call_is_served(pool):
    async def story():
        await pool.execute("crash", "remember", {"word": "x"})
        dead = await pool.execute("crash", "die", {})
        after = await pool.execute("crash", "remember", {"word": "y"})
        await pool.end_session("crash")
        return dead, after

    dead, after = told(story())
    assert (dead.status, dead.error, dead.notes) == (
        "failed",
        "The worker process died during the call: exit status 7. Whether it had its effect is not known. "
        "Its last output was:\nlast words",
        LOST,
    )
    assert (after.value, after.notes) == (["y"], ())


def test_an_idempotent_call_survives_the_death_of_its_worker(pool, tmp_path):
    result = told(pool.execute(None, "die_once", {"note": str(tmp_path / "note")}))
    assert (result.status, result.value, result.notes) == (
        "finished",
        "made it",
        ("The worker died in the first attempt (killed by signal 9, SIGKILL) and the call was run again.",),
    )


@pytest.mark.parametrize("name", ["spin", "backtrack"])
def test_what_does_not_end_is_dead_after_its_deadline(name, pool, gone, tmp_path):
    note = tmp_path / "pid"
    args = {"note": str(note)} if name == "spin" else {}
    stopped = told(pool.execute(None, name, args, timeout_s=0.5))
    assert (stopped.status, stopped.error) == (
        "timed_out",
        "The call did not finish within 0.5 s. Whether it had its effect is not known.",
    )
    assert gone([int(note.read_text())] if args else [])


def test_what_a_tool_started_dies_with_it(pool, gone, tmp_path):
    note = tmp_path / "ids"
    assert told(pool.execute(None, "family", {"note": str(note)}, timeout_s=3)).status == "timed_out"
    ids = [int(word) for word in note.read_text().split()]
    assert len(ids) == 4
    assert gone(ids)


def test_what_a_tool_started_dies_when_its_worker_was_killed_by_somebody_else(pool, gone, tmp_path):
    note = tmp_path / "ids"

    async def story():
        task = asyncio.create_task(pool.execute(None, "family", {"note": str(note)}))
        while not note.exists() or len(note.read_text().split()) < 4:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        os.kill(int(note.read_text().split()[0]), 9)
        return await task

    assert told(story()).error.startswith("The worker process died during the call: killed by signal 9, SIGKILL.")
    assert gone(int(word) for word in note.read_text().split())


def test_a_cancelled_wait_stops_what_runs(pool, gone, tmp_path):
    note = tmp_path / "pid"

    async def story():
        task = asyncio.create_task(pool.execute(None, "spin", {"note": str(note)}))
        while not note.exists() or not note.read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    told(story())
    assert gone([int(note.read_text())])


def test_a_tool_in_a_worker_calls_one_of_the_program(pool):
    def price(item: str) -> int:
        """What it costs."""
        return len(item)

    gate = Gate(ScriptedModel([call("shop", item="pear"), text("ok")]), tools=[pool, price], policy=Policy(default="allow"))
    reply = told(gate.run("Buy."))
    assert reply.calls[0].result.value == "pear: 4"


# One a session -----------------------------------------------------------------------------------------------------------


def own(story, *, size, **limits):
    async def run():
        async with WorkerPool([TOOLBOX], size=size, affinity="own", limits=WorkerLimits(**limits)) as pool:
            return await story(pool)

    return told(run())


def test_sessions_share_no_worker_and_calls_without_one_use_those_that_are_nobodys():
    async def story(pool):
        named = [(await pool.execute(s, "pid")).value for s in ("a", "b", "a", "b")]
        return named, (await pool.execute(None, "pid")).value

    (a, b, a_again, b_again), nobodys = own(story, size=3)
    assert (a, b) == (a_again, b_again)
    assert len({a, b, nobodys}) == 3


def test_a_session_waits_for_a_worker_until_another_session_is_over():
    async def story(pool):
        await pool.execute("a", "pid")
        waiting = asyncio.create_task(pool.execute("b", "add", {"a": 1}))
        await asyncio.sleep(0)
        await pool.end_session("a")
        return (await waiting).value

    assert own(story, size=1) == 3


def test_a_session_that_waits_too_long_for_a_worker_is_told_so():
    async def story(pool):
        await pool.execute("a", "pid")
        return await pool.execute("b", "pid")

    late = own(story, size=1, queue_wait_s=0.05)
    assert (late.status, late.error) == (
        "timed_out",
        "Not run: the call was still waiting. No worker was free within 0.05 s.",
    )


def test_a_session_that_is_not_used_gives_its_worker_back():
    async def story(pool):
        await pool.execute("a", "remember", {"word": "x"})
        await asyncio.sleep(0.1)  # clock: longer than the session lives; more is as good
        return (await pool.execute("b", "remember", {"word": "y"})).value

    assert own(story, size=1, session_ttl_s=0.05) == ["y"]


# Clusters ----------------------------------------------------------------------------------------------------------------


def test_where_a_pool_runs_is_a_matter_of_configuration(monkeypatch):
    assert cluster_from(None) is None
    monkeypatch.setenv("CALLGATE_CLUSTER", "ray://head:10001")
    assert cluster_from(None) == RayCluster(address="ray://head:10001")
    assert cluster_from("none") is None
    assert cluster_from("ray") == RayCluster()
    mine = RayCluster(address="here:6379")
    assert cluster_from(mine) is mine


def test_needs_that_cannot_be_met_are_refused():
    with pytest.raises(UsageError, match="'train' needs 0 of 'GPU'; give a number above 0"):
        RayCluster(resources={"train": {"GPU": 0}})


def test_a_cluster_without_ray_says_what_to_install(monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'callgate\[ray\]'"):
        told(WorkerPool([TOOLBOX], cluster="ray").start())


@pytest.mark.slow
def test_a_tool_gets_what_it_needs_and_waits_for_what_there_is_not(cluster):
    async def story():
        async with WorkerPool([TOOLBOX], size=4, cluster=cluster, limits=WorkerLimits(queue_wait_s=100)) as pool:
            # `pid` needs the one lathe that there is, and holds it as long as its session lives.
            first = await pool.execute("a", "pid")
            waiting = asyncio.create_task(pool.execute("b", "pid"))
            other = await pool.execute("b", "add", {"a": 1})
            waits = not waiting.done()
            await pool.end_session("a")
            return first.status, other.value, waits, (await waiting).status

    assert told(story()) == ("finished", 3, True, "finished")


PROGRAM = """
import asyncio, os
from callgate.workers import WorkerPool

async def main():
    async with WorkerPool([{toolbox!r}], size=2, cluster={address!r}) as pool:
        await pool.execute("s", "family", {{"note": {note!r}}}, timeout_s=60)

asyncio.run(main())
"""


@pytest.mark.slow
def test_nothing_of_a_killed_program_is_left_on_its_cluster(cluster, gone, tmp_path):
    import ray

    from callgate.workers.ray_worker import connect

    connect(cluster)
    note, script = tmp_path / "ids", tmp_path / "program.py"
    address = ray.get_runtime_context().gcs_address
    script.write_text(PROGRAM.format(toolbox=str(TOOLBOX), note=str(note), address=address))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        until = time.monotonic() + 60
        while (not note.exists() or len(note.read_text().split()) < 4) and time.monotonic() < until:
            time.sleep(0.02)
        program.kill()
    assert gone(int(word) for word in note.read_text().split())
