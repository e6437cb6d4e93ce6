"""A pool of workers: what it runs, for whom, and in which order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from callgate import Gate, Policy, ScriptedModel, UsageError, WorkerPool
from callgate.testing import call, text
from callgate.workers import WorkerLimits
from callgate.workers import pool as pool_module
from callgate.workers.slot import Slot, StartFailedError

TOOLBOX = Path(__file__).parent / "toolbox.py"


async def until(holds: Callable[[], object]) -> None:
    """Waits until something holds that other threads bring about."""
    while not holds():  # noqa: ASYNC110 - they have no event to set
        await asyncio.sleep(0.001)


def test_the_tools_of_a_module_are_listed_with_schema_docs_and_defaults(use_pool):
    async def story(pool):
        return {d.name: d for d in await pool.list_tools("s")}

    add = use_pool(story, name="sums")["add"]
    assert (add.kind, add.server, add.read_only, add.description) == ("worker", "sums", True, "Adds two numbers.")
    assert add.input_schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first one."},
            "b": {"type": "integer", "description": "The second one.", "default": 2},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_progress_and_items_arrive_while_the_call_runs(use_pool):
    async def story(pool):
        reports: list[tuple[str, float | None]] = []
        await pool.execute(
            "s", "count", {"to": 2}, progress=lambda message, fraction=None: reports.append((message, fraction))
        )
        *items, result = [item async for item in pool.stream("s", "count", {"to": 3})]
        return reports, items, result.value

    assert use_pool(story) == ([("at 0", 0.0), ("at 1", 0.5)], [0, 1, 2], [0, 1, 2])


def test_a_reader_that_leaves_a_stream_early_stops_the_call(use_pool):
    async def story(pool):
        stream = pool.stream("s", "count", {"to": 10**9})
        first = await anext(stream)
        await stream.aclose()
        return first, (await pool.execute("s", "add", {"a": 1})).value

    assert use_pool(story) == (0, 3)


def test_a_session_finds_its_state_and_no_other_session_does(use_pool):
    async def story(pool):
        values = [(await pool.execute(s, "remember", {"word": w})).value for s, w in [("a", "1"), ("b", "2"), ("a", "3")]]
        await pool.end_session("a")
        return [*values, (await pool.execute("a", "remember", {"word": "4"})).value]

    assert use_pool(story) == [["1"], ["2"], ["1", "3"], ["4"]]


def test_strict_sessions_stay_in_their_worker_while_others_are_idle(use_pool):
    async def story(pool):
        await pool.ready()
        calls = [pool.execute("a", "remember", {"word": str(n)}) for n in range(6)]
        return [result.value for result in await asyncio.gather(*calls)]

    assert use_pool(story, size=2, affinity="strict") == [[str(n) for n in range(end)] for end in range(1, 7)]


def test_fail_fast_refuses_at_once_what_strict_would_let_wait(use_pool):
    async def story(pool):
        await pool.execute("a", "pid")
        busy = asyncio.create_task(pool.execute("a", "obey", {}))
        await until(lambda: pool.health["ready"] and not pool.health["idle"])
        refused = await pool.execute("a", "pid")
        busy.cancel()
        await asyncio.wait({busy})
        return refused

    refused = use_pool(story, affinity="strict_fail_fast")
    assert (refused.status, refused.error) == (
        "failed",
        "Not run: the worker of the session 'a' is busy. Try again later.",
    )


def test_a_full_queue_refuses_at_once(use_pool):
    async def story(pool):
        tasks = [asyncio.create_task(pool.execute(None, "obey", {}))]
        await until(lambda: pool.health["ready"] and not pool.health["idle"])
        tasks.append(asyncio.create_task(pool.execute(None, "pid")))
        await until(lambda: pool.health["waiting"])
        refused = await pool.execute(None, "pid")
        tasks[0].cancel()
        return refused.error, (await tasks[1]).status

    error, status = use_pool(story, limits=WorkerLimits(queue=1))
    assert error == "Not run: all 1 workers are busy and 1 calls wait already. Try again later."
    assert status == "finished"


def test_sessions_take_turns_however_much_one_of_them_sends(use_pool):
    async def story(pool):
        order: list[str] = []

        async def one(session: str) -> None:
            await pool.execute(session, "pid")
            order.append(session)

        blocker = asyncio.create_task(pool.execute(None, "obey", {}))
        await until(lambda: pool.health["ready"] and not pool.health["idle"])
        tasks = [asyncio.create_task(one(s)) for s in ["a"] * 6 + ["b"] * 2]
        await until(lambda: pool.health["waiting"] == 8)
        blocker.cancel()
        await asyncio.gather(*tasks)
        return "".join(order)

    assert use_pool(story) == "ababaaaa"


def test_a_call_that_waits_too_long_is_answered_as_not_run(use_pool):
    async def story(pool):
        blocker = asyncio.create_task(pool.execute(None, "obey", {}))
        await until(lambda: pool.health["ready"] and not pool.health["idle"])
        late = await pool.execute(None, "pid")
        blocker.cancel()
        return late

    late = use_pool(story, limits=WorkerLimits(queue_wait_s=0.05))
    assert late.status == "timed_out"
    assert late.error == "Not run: the call was still waiting. No worker was free within 0.05 s."


def test_too_many_sessions_are_refused_and_old_ones_make_room(use_pool):
    async def story(pool):
        await pool.execute("a", "pid")
        refused = await pool.execute("b", "pid")
        await asyncio.sleep(0.06)  # clock: longer than the session lives; more is as good
        return refused, await pool.execute("b", "pid")

    refused, taken = use_pool(story, limits=WorkerLimits(sessions=1, session_ttl_s=0.05))
    assert refused.error == "Not run: the pool has 1 sessions and takes no more."
    assert taken.status == "finished"


def test_a_worker_is_replaced_after_its_number_of_calls(use_pool):
    async def story(pool):
        return [(await pool.execute(None, "pid")).value for _ in range(4)]

    first, second, third, fourth = use_pool(story, limits=WorkerLimits(recycle_calls=2))
    assert first == second
    assert third == fourth
    assert first != third


def test_an_idle_worker_that_died_is_found_by_its_missing_heartbeat(use_pool):
    async def story(pool):
        (old,) = pool.pids
        os.kill(old, signal.SIGKILL)
        await until(lambda: pool.health["replaced"] and pool.pids)
        return old, (await pool.execute(None, "pid")).value

    old, new = use_pool(story, limits=WorkerLimits(heartbeat_s=0.05))
    assert old != new


def test_one_pool_serves_several_event_loops():
    pool = WorkerPool([TOOLBOX], size=1)
    try:
        values = [asyncio.run(pool.execute("s", "remember", {"word": w})).value for w in "ab"]
    finally:
        pool.close()
    assert values == [["a"], ["a", "b"]]


def test_an_unknown_tool_and_wrong_arguments_are_error_results(use_pool):
    async def story(pool):
        return [
            await pool.execute(None, "ad", {"a": 1}),
            await pool.execute(None, "add", {"a": "x"}),
            await pool.execute(None, "add", {}),
        ]

    results = use_pool(story)
    assert [r.status for r in results] == ["failed"] * 3
    assert "add" in results[0].error
    assert all(r.error.startswith("The arguments of 'add' are not valid: ") for r in results[1:])


@pytest.mark.parametrize(
    "value",
    [b"raw", {1, 2}, date(2026, 1, 31), float("nan"), [{"deep": object()}]],
    ids=["bytes", "a set", "a date", "not a number", "an object in a list"],
)
def test_arguments_that_are_not_json_do_not_leave_the_program(value, use_pool):
    async def story(pool):
        return await pool.execute(None, "take_anything", {"value": value})

    refused = use_pool(story)
    assert refused.status == "failed"
    assert refused.error.startswith("The arguments of 'take_anything' are not valid: ")


def test_a_module_that_cannot_be_imported_is_told_when_the_pool_starts(tmp_path):
    bad = tmp_path / "bad_tools.py"
    bad.write_text("import no_such_module_at_all\n")

    async def story():
        async with WorkerPool([bad]):
            pass

    with pytest.raises(UsageError, match="cannot start: module 'bad_tools': ModuleNotFoundError: No module named"):
        asyncio.run(story())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modules": "x"}, "give a list of names"),
        ({"size": 0}, "at least 1"),
        ({"affinity": "loose"}, "use one of 'hint', 'strict', 'strict_fail_fast'"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        WorkerPool(**options)


def test_a_pool_that_is_closed_answers_what_waits_and_takes_no_more(gone):
    async def story():
        pool = WorkerPool([TOOLBOX], size=1)
        await pool.start()
        running = asyncio.create_task(pool.execute(None, "spin", {}))
        await until(lambda: pool.health["ready"] and not pool.health["idle"])
        waiting = asyncio.create_task(pool.execute(None, "pid"))
        await until(lambda: pool.health["waiting"])
        pids = pool.pids
        await pool.aclose(0.05)
        assert gone(pids)
        with pytest.raises(UsageError, match="is closed; make a new one"):
            await pool.execute(None, "pid")
        return [(await task).status for task in (running, waiting)]

    assert asyncio.run(story()) == ["cancelled", "cancelled"]


def test_what_a_tool_prints_goes_to_a_logger(use_pool, caplog):
    async def story(pool):
        await pool.execute(None, "stumble", {})

    with caplog.at_level(logging.INFO, logger="callgate.workers.output"):
        use_pool(story)
    assert any("KeyError: 'nothing here'" in record.getMessage() for record in caplog.records)


def test_a_gate_uses_the_tools_of_a_pool_and_its_session(use_pool):
    async def story(pool):
        model = ScriptedModel([call("remember", word="x"), text("ok"), call("remember", word="y"), text("done")])
        gate = Gate(model, tools=[pool], policy=Policy(default="allow"))
        first = await gate.run("Remember x.")
        second = await gate.run("And y.", session=first.session)
        return [record.result for reply in (first, second) for record in reply.calls]

    one, two = use_pool(story, affinity="strict")
    assert (one.value, two.value) == (["x"], ["x", "y"])


def test_a_pool_that_nobody_closed_leaves_nothing_when_the_program_ends(tmp_path, gone):
    script = tmp_path / "program.py"
    script.write_text(
        "import asyncio\nfrom callgate import WorkerPool\n\n"
        "async def main():\n"
        f"    pool = WorkerPool([{str(TOOLBOX)!r}], size=2)\n"
        "    await pool.ready()\n"
        "    print(*pool.pids)\n\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    assert gone(pids)


def test_a_wait_that_is_over_in_the_moment_in_which_it_is_cancelled_ends(use_pool):
    async def story(pool):
        (definition,) = [d for d in await pool.list_tools() if d.name == "add"]
        busy = asyncio.create_task(pool.execute(None, "wait_and_say", {"text": "x", "seconds": 60}))
        await until(lambda: not any(slot.is_idle for slot in pool._scheduler._slots))
        waits = asyncio.create_task(pool.run(definition, {"a": 1}, timeout_s=60))
        await until(lambda: list(pool._scheduler._queue))
        (job,) = pool._scheduler._queue
        waits.cancel()
        pool._scheduler.stop(job, "timed_out", "No worker was free.", only_waiting=True)
        ended, _ = await asyncio.wait({waits}, timeout=60)
        busy.cancel()
        return bool(ended) and waits.cancelled()

    assert use_pool(story) is True


def test_a_gate_whose_workers_do_not_come_says_so(monkeypatch):
    def never(slot, worker):
        slot._closing.wait()
        raise StartFailedError("the pool was closed")

    monkeypatch.setattr(pool_module, "CLOSE_S", 0.0)
    monkeypatch.setattr(Slot, "_made_ready", never)
    pool = WorkerPool([TOOLBOX], size=1, limits=WorkerLimits(start_timeout_s=0.05))
    try:
        with pytest.raises(UsageError, match=r"had no worker ready within 0\.05 s"):
            pool.runnables()
    finally:
        monkeypatch.setattr(pool_module, "CLOSE_S", 10.0)
        pool.close()
