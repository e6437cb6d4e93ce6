"""A deadline stops the call, whatever its tool does, with everything that it started; the next call is served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callgate import Executor, FunctionCall, Limits
from callgate.workers import WorkerLimits

MIB = 1 << 20


@pytest.mark.parametrize("name", ["spin", "sleep_long", "backtrack", "wait_and_say"])
def test_a_call_that_does_not_end_is_stopped_and_the_next_one_served(name, use_pool, gone):
    args = {"text": "", "seconds": 60.0} if name == "wait_and_say" else {}

    async def story(pool):
        old = pool.pids
        stopped = await pool.execute(None, name, args, timeout_s=0.2)
        if name != "wait_and_say":
            assert gone(old)
        return stopped, await pool.execute(None, "add", {"a": 1})

    stopped, served = use_pool(story)
    assert (stopped.status, stopped.error) == (
        "timed_out",
        "The call did not finish within 0.2 s. Whether it had its effect is not known.",
    )
    assert served.value == 3


def test_a_waiting_call_that_is_cancelled_as_it_is_answered_ends_at_once(use_pool):
    async def story(pool):
        await pool.list_tools(None)
        running = asyncio.create_task(pool.execute(None, "wait_and_say", {"text": "", "seconds": 60.0}))
        waiting = asyncio.create_task(pool.execute(None, "add", {"a": 1}))
        for _ in range(10):
            await asyncio.sleep(0)
        # Nobody runs in between: the answer comes when the wait is over and the end of the wait is not yet known.
        waiting.cancel()
        pool.close(0.0)
        done, _ = await asyncio.wait({waiting}, timeout=60)
        running.cancel()
        return waiting in done and waiting.cancelled()

    assert use_pool(story)


def test_what_a_tool_started_dies_with_it_even_outside_its_group(use_pool, gone, tmp_path):
    note = tmp_path / "ids"

    async def story(pool):
        return await pool.execute(None, "family", {"note": str(note)}, timeout_s=1.5)

    assert use_pool(story).status == "timed_out"
    ids = [int(word) for word in note.read_text().split()]
    assert len(ids) == 4
    assert gone(ids)


def test_an_allocation_bomb_meets_the_limit_of_its_worker_alone(use_pool):
    async def story(pool):
        (old,) = pool.pids
        burst = await pool.execute(None, "devour", {}, timeout_s=20)
        return old, burst, await pool.execute(None, "pid")

    old, burst, served = use_pool(story, limits=WorkerLimits(memory_bytes=1024 * MIB))
    assert (burst.status, burst.error) == ("failed", "MemoryError")
    assert served.status == "finished"
    assert served.value != old


def test_a_tool_that_obeys_keeps_its_worker_and_the_state_of_its_session(use_pool):
    async def story(pool):
        await pool.execute("s", "remember", {"word": "kept"})
        stopped = await pool.execute("s", "obey", {}, timeout_s=0.1)
        return stopped, await pool.execute("s", "remember", {"word": "more"})

    stopped, after = use_pool(story, limits=WorkerLimits(stop_grace_s=20))
    assert (stopped.status, stopped.notes) == ("timed_out", ())
    assert after.value == ["kept", "more"]


def test_the_state_that_a_deadline_costs_is_reported_to_every_session_that_had_some(use_pool):
    async def story(pool):
        for session in "ab":
            await pool.execute(session, "remember", {"word": "x"})
        stopped = await pool.execute("a", "spin", {}, timeout_s=0.1)
        return stopped, [await pool.execute(session, "remember", {"word": "y"}) for session in "bbc"]

    stopped, (first, second, other) = use_pool(story)
    lost = ("The worker of this session ended: what earlier calls had kept in its memory is lost.",)
    assert stopped.notes == lost
    assert (first.value, first.notes) == (["y"], lost)
    assert (second.value, second.notes) == (["y", "y"], ())
    assert other.notes == ()


def test_a_stopped_stream_says_how_far_it_came(use_pool):
    async def story(pool):
        return [item async for item in pool.stream(None, "count", {"to": 10**9}, timeout_s=0.3)][-1]

    result = use_pool(story)
    assert result.status == "timed_out"
    items, report = result.notes
    assert items.startswith("When time was up, ")
    assert report.startswith("Its last report was: at ")


def test_a_deadline_is_kept_while_the_event_loop_is_blocked(use_pool, gone, tmp_path):
    note = tmp_path / "pid"

    async def story(pool):
        task = asyncio.create_task(pool.execute(None, "spin", {"note": str(note)}, timeout_s=0.3))
        await asyncio.sleep(0.05)  # clock: lets it begin; both orders must end the same
        blocked = gone(pool.pids)  # Blocks this thread, and with it the loop.
        return blocked, (await task).status

    assert use_pool(story) == (True, "timed_out")
    assert Path(note).exists()


def test_cancelling_the_wait_kills_what_runs(use_pool, gone):
    async def story(pool):
        old = pool.pids
        task = asyncio.create_task(pool.execute(None, "spin", {}))
        await asyncio.sleep(0.1)  # clock: lets it begin; both orders must end the same
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return gone(old), (await pool.execute(None, "add", {"a": 1})).value

    assert use_pool(story) == (True, 3)


@pytest.mark.parametrize("ends_by", ["deadline", "cancellation"])
def test_a_call_that_was_given_up_while_it_waited_for_a_worker_says_that_it_had_not_begun(ends_by, use_pool):
    """The only worker is held by another call all the time, so the one that waits can have had no effect."""

    async def story(pool):
        executor = Executor([pool], limits=Limits(call_timeout_s=0.3 if ends_by == "deadline" else 60))
        args = {"text": "", "seconds": 60.0}
        holding = asyncio.create_task(pool.execute(None, "wait_and_say", args, timeout_s=60))
        while pool.health["idle"]:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)
        waiting = executor.start(FunctionCall(name="take_anything", args={"value": 1}, id="1"))
        if ends_by == "cancellation":
            while not pool.health["waiting"]:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.001)
            waiting.stop("The user left.")
        result = await waiting.wait()
        holding.cancel()
        await asyncio.wait({holding})
        return result.status, result.error

    assert (
        use_pool(story)
        == {
            "deadline": ("timed_out", "The call did not finish within 0.3 s. It had not begun, so it had no effect."),
            "cancellation": (
                "cancelled",
                "The call was cancelled while it waited. The user left. It had not begun, so it had no effect.",
            ),
        }[ends_by]
    )
