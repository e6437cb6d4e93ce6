"""Workers that die, and a program that is killed: every call is answered once, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callgate.workers.job import Job, WorkerLimits

TOOLBOX = Path(__file__).parent / "toolbox.py"


def test_a_worker_that_dies_gives_one_error_with_its_status_and_last_words(use_pool):
    async def story(pool):
        return await pool.execute(None, "die", {}), await pool.execute(None, "add", {"a": 1})

    dead, served = use_pool(story)
    assert (dead.status, dead.error) == (
        "failed",
        "The worker process died during the call: exit status 7. Whether it had its effect is not known. "
        "Its last output was:\nlast words",
    )
    assert served.value == 3


def test_an_idempotent_call_is_run_once_more_and_says_so(use_pool, tmp_path):
    async def story(pool):
        return await pool.execute("s", "die_once", {"note": str(tmp_path / "note")})

    result = use_pool(story)
    assert (result.status, result.value, result.notes) == (
        "finished",
        "made it",
        ("The worker died in the first attempt (killed by signal 9, SIGKILL) and the call was run again.",),
    )


def test_a_call_for_a_worker_that_died_before_is_no_casualty(use_pool, gone):
    async def story(pool):
        (old,) = pool.pids
        os.kill(old, signal.SIGKILL)
        assert gone([old])
        return await pool.execute("s", "remember", {"word": "x"})

    result = use_pool(story)
    assert (result.status, result.value, result.notes) == ("finished", ["x"], ())


@pytest.mark.parametrize(
    "data",
    [
        "\xff\xff\xff\xff",
        "\x00\x00\x00\x02[]",
        "\x00\x00\x00\x01{",
        '\x00\x00\x00\x1a{"op":"result","id":NUMBER}',
    ],
    ids=["too long", "no object", "no JSON", "no status"],
)
def test_a_worker_that_sends_nonsense_is_killed_and_the_call_answered(data, use_pool, gone):
    async def story(pool):
        old = pool.pids
        number = Job(None, {}, None, 1.0, asyncio.get_running_loop()).number + 1
        body = data.replace("NUMBER", str(number))
        if body != data:
            body = struct.pack(">I", len(body) - 4).decode("latin-1") + body[4:]
        nonsense = await pool.execute(None, "babble", {"data": body}, timeout_s=30)
        return gone(old), nonsense, (await pool.execute(None, "add", {"a": 1})).value

    dead, nonsense, served = use_pool(story)
    assert (dead, nonsense.status, served) == (True, "failed", 3)
    assert nonsense.error.startswith("The worker process died during the call: ")


def test_a_worker_that_gets_no_more_threads_says_so_and_is_replaced(use_pool):
    async def story(pool):
        (old,) = pool.pids
        starved = await pool.execute("s", "start_threads", {})
        return old, starved, await pool.execute("s", "long_text", {"mib": 1}), pool.pids

    old, starved, after, pids = use_pool(story, limits=WorkerLimits(memory_bytes=1 << 30))
    assert (starved.status, starved.error) == ("failed", "RuntimeError: can't start new thread")
    assert (after.status, len(after.value)) == ("finished", 1 << 20)
    assert old not in pids


def test_the_state_that_a_crash_costs_is_reported(use_pool):
    async def story(pool):
        await pool.execute("s", "remember", {"word": "x"})
        dead = await pool.execute("s", "die", {})
        return dead, await pool.execute("s", "remember", {"word": "y"})

    dead, after = use_pool(story)
    assert dead.notes == ("The worker of this session ended: what earlier calls had kept in its memory is lost.",)
    assert (after.value, after.notes) == (["y"], ())


@pytest.mark.slow
def test_every_call_is_answered_once_while_workers_are_killed_at_random(use_pool, scale):
    dice = random.Random(11)
    calls = 300 * scale

    async def story(pool):
        await pool.ready()
        answers = [0] * calls

        async def one(number: int) -> str:
            name, args = dice.choice([("add", {"a": number}), ("wait_and_say", {"text": "x", "seconds": 0.005})])
            result = await pool.execute(dice.choice(["a", "b", "c", None]), name, args, timeout_s=50)
            answers[number] += 1
            if result.status == "finished":
                assert result.value == (number + 2 if name == "add" else "x")
            else:
                assert "The worker process died during the call: killed by signal 9, SIGKILL." in result.error
            return result.status

        async def killer() -> None:
            while True:
                await asyncio.sleep(dice.uniform(0.0, 0.3))
                if pids := pool.pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(dice.choice(pids), signal.SIGKILL)

        killing = asyncio.create_task(killer())
        statuses: list[str] = []
        for start in range(0, calls, 25):
            statuses += await asyncio.gather(*(one(n) for n in range(start, min(start + 25, calls))))
        killing.cancel()
        return answers, set(statuses), pool.health

    answers, statuses, health = use_pool(story, size=3, patience_s=60 * scale)
    assert answers == [1] * calls
    assert statuses <= {"finished", "failed"}
    assert health["replaced"] > 0


PROGRAM = """
import asyncio, sys
from callgate import WorkerPool

async def main():
    pool = WorkerPool([{toolbox!r}], size=3)
    await pool.ready()
    note = {note!r}
    calls = [pool.execute(None, "family", {{"note": note}}), pool.execute(None, "backtrack", {{}})]
    tasks = [asyncio.create_task(call) for call in calls]
    import os
    while not os.path.exists(note) or not open(note).read().strip():
        await asyncio.sleep(0.01)
    from callgate.workers.process import _GUARD
    print(*pool.pids, _GUARD.pid, flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main())
"""


def test_a_program_that_is_killed_leaves_no_process(gone, tmp_path):
    note = tmp_path / "ids"
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(toolbox=str(TOOLBOX), note=str(note)))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        ids = [int(word) for word in program.stdout.readline().split()]
        program.kill()
    assert len(ids) == 4
    assert gone([*ids, *map(int, note.read_text().split())])


BUSY = """
import asyncio, random
from callgate import WorkerPool

async def main():
    pool = WorkerPool([{toolbox!r}], size=2)
    print("started", flush=True)
    dice = random.Random({seed})

    async def client():
        while True:
            name, args = dice.choice([("add", {{"a": 1}}), ("litter", {{}}), ("spin", {{}}), ("die", {{}})])
            await pool.execute(dice.choice(["a", None]), name, args, timeout_s=0.1)

    await asyncio.gather(*(client() for _ in range(4)))

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_program_that_is_killed_at_any_instant_leaves_no_process(scale, tmp_path):
    dice = random.Random(12)
    for seed in range(6 * scale):
        script = tmp_path / "program.py"
        script.write_text(BUSY.format(toolbox=str(TOOLBOX), seed=seed))
        with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
            assert program.stdout
            program.stdout.readline()
            time.sleep(dice.uniform(0.0, 2.0))  # This is the instant, not a wait for something.
            program.kill()
        until = time.monotonic() + 60
        while (left := of_program(program.pid)) and time.monotonic() < until:
            time.sleep(0.02)
        assert left == []


def of_program(pid: int) -> list[int]:
    """The processes that were started by workers of a program, or are such workers."""
    wanted, found = f"CALLGATE_WORKER={pid}-".encode(), []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and wanted in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
