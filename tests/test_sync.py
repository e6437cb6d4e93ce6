"""The portal for sync callers, and the lock for tasks of several event loops."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import random
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.beside import in_thread, program

from callgate import Gate, ScriptedModel, sync
from callgate.errors import UsageError
from callgate.sync import BlockingPortal, CrossLoopLock, call_in_loop

WAIT_S = 30.0


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "callgate-loop"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def value(number: int = 1) -> int:
    return number


async def for_ever() -> None:
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def no_threads_of_others() -> None:
    """Gates that nobody closed end their threads when they are collected, and not at once."""
    gc.collect()
    for thread in loop_threads():
        thread.join(WAIT_S)
    assert loop_threads() == []


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    portal = BlockingPortal()
    yield portal
    portal.close()
    assert loop_threads() == []


# The life of the thread ---------------------------------------------------------------------------------------------------


def test_a_portal_has_no_thread_before_it_is_used_and_one_for_all_callers(portal: BlockingPortal) -> None:
    assert not portal.is_open
    assert loop_threads() == []
    outcomes = [in_thread(lambda: portal.run(value())) for _ in range(8)]
    assert [outcome.result(WAIT_S) for outcome in outcomes] == [1] * 8
    assert len(loop_threads()) == 1


def test_a_closed_portal_opens_again(portal: BlockingPortal) -> None:
    for _ in range(3):
        assert portal.run(value()) == 1
        portal.close()
        portal.close()
        assert not portal.is_open


def test_a_portal_that_is_garbage_collected_leaves_no_thread_and_no_descriptors() -> None:
    before = descriptors()
    for _ in range(20):
        portal = BlockingPortal()
        portal.run(value())
        threads = loop_threads()
        del portal
        gc.collect()
        for thread in threads:
            thread.join(WAIT_S)
    assert (loop_threads(), descriptors()) == ([], before)


def test_a_close_cancels_what_runs_and_waits_for_its_cleanup(portal: BlockingPortal) -> None:
    began, cleaned = threading.Event(), threading.Event()

    async def work() -> None:
        try:
            began.set()
            await for_ever()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    outcome = in_thread(lambda: portal.run(work()))
    assert began.wait(WAIT_S)
    portal.close()
    assert cleaned.is_set()
    with pytest.raises(concurrent.futures.CancelledError):
        outcome.result(WAIT_S)


def test_a_close_does_not_wait_for_ever_for_a_task_that_refuses_to_end(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sync, "WIND_DOWN_S", 0.05)
    began = threading.Event()

    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                began.set()
                await for_ever()

    outcome = in_thread(lambda: portal.run(stubborn()))
    assert began.wait(WAIT_S)
    portal.close()
    with pytest.raises(RuntimeError, match="has ended"):
        outcome.result(WAIT_S)
    gc.collect()


def test_a_program_that_closes_nothing_ends_at_once_and_without_a_warning() -> None:
    done = program(
        """
        import asyncio, threading
        from callgate.sync import BlockingPortal

        portals = [BlockingPortal() for _ in range(3)]
        for portal in portals:
            portal.run(asyncio.sleep(0))
        begun = threading.Event()

        async def wait():
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                print("cleaned up")

        threading.Thread(target=lambda: portals[0].run(wait()), daemon=True).start()
        begun.wait()
        """,
        "-W", "error",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "cleaned up\n")
    assert "Warning" not in done.stderr


def test_a_thread_that_cannot_be_started_is_an_error_in_words(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match=r"run_sync\(\) cannot start the thread of its event loop: can't start"):
            portal.run(value())
    assert descriptors() == before
    assert portal.run(value()) == 1


def test_a_loop_that_fails_ends_its_callers_with_an_error_and_the_next_one_gets_another(
    portal: BlockingPortal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "new_event_loop", asyncio.SelectorEventLoop)  # Another kind cannot be broken from outside.

    def fail() -> None:
        raise OSError("the selector is gone")

    async def break_loop() -> None:
        asyncio.get_running_loop()._run_once = fail  # type: ignore[attr-defined]
        asyncio.current_task()._log_destroy_pending = False  # type: ignore[union-attr]
        await for_ever()

    with pytest.raises(RuntimeError, match="has ended") as raised:
        portal.run(break_loop())
    assert isinstance(raised.value.__cause__, OSError)
    assert "the event loop of run_sync() failed" in caplog.text
    assert portal.run(value()) == 1


def test_a_coroutine_that_stops_its_loop_stops_nothing(portal: BlockingPortal) -> None:
    async def stop() -> int:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return 1

    assert [portal.run(stop()), portal.run(value(2))] == [1, 2]


# Callers ------------------------------------------------------------------------------------------------------------------


def test_a_call_on_the_portals_own_loop_is_refused_instead_of_waiting_for_itself(portal: BlockingPortal) -> None:
    async def again() -> int:
        return portal.run(value())

    with pytest.raises(UsageError, match=r"would wait for itself: in async code use `await gate.run"):
        in_thread(lambda: portal.run(again())).result(WAIT_S)
    assert portal.run(value()) == 1


def test_two_portals_that_would_wait_for_each_other_are_refused(portal: BlockingPortal) -> None:
    other = BlockingPortal()

    async def there() -> int:
        return other.run(back())

    async def back() -> int:
        return portal.run(value())

    async def only_there() -> int:
        return other.run(value(2))

    with pytest.raises(UsageError, match="would wait for itself"):
        in_thread(lambda: portal.run(there())).result(WAIT_S)
    assert in_thread(lambda: portal.run(only_there())).result(WAIT_S) == 2
    other.close()


def test_a_thread_of_a_coroutine_may_call_the_portal_that_runs_it(portal: BlockingPortal) -> None:
    async def through_a_thread() -> int:
        return await asyncio.to_thread(lambda: portal.run(value(3)))

    assert in_thread(lambda: portal.run(through_a_thread())).result(WAIT_S) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_inside_a_coroutine_reaches_its_caller_and_nobody_else(
    portal: BlockingPortal, error: type[BaseException]
) -> None:
    go, began = threading.Event(), threading.Event()

    async def other() -> int:
        began.set()
        return await asyncio.to_thread(go.wait, WAIT_S)

    async def interrupt() -> None:
        await asyncio.sleep(0)
        raise error

    waiting = in_thread(lambda: portal.run(other()))
    assert began.wait(WAIT_S)
    for _ in range(3):
        with pytest.raises(error):
            portal.run(interrupt())
    go.set()
    assert waiting.result(WAIT_S) is True
    assert portal.run(value()) == 1


@contextlib.contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """A function that makes this thread, which is the main one, think that somebody pressed Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    here = threading.main_thread().ident
    assert here == threading.get_ident()
    try:
        yield lambda: signal.pthread_kill(here, signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_cancels_the_coroutine_and_is_raised_as_soon_as_that_has_cleaned_up(
    portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "WIND_DOWN_S", 1000.0)  # Or the wait would end by itself.
    cleaned: list[bool] = []

    with interrupts() as interrupt:

        async def work() -> None:
            asyncio.get_running_loop().call_soon(interrupt)
            try:
                await for_ever()
            finally:
                await asyncio.sleep(0)
                cleaned.append(True)

        with pytest.raises(KeyboardInterrupt):
            portal.run(work())
    assert cleaned == [True]
    monkeypatch.undo()


def test_a_second_ctrl_c_is_raised_at_once(portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "WIND_DOWN_S", 1000.0)
    ended = threading.Event()

    with interrupts() as interrupt:

        async def stubborn() -> None:
            asyncio.get_running_loop().call_soon(interrupt)
            try:
                await for_ever()
            except asyncio.CancelledError:
                interrupt()
                with contextlib.suppress(asyncio.CancelledError):
                    await for_ever()
            ended.set()

        with pytest.raises(KeyboardInterrupt):
            portal.run(stubborn())
    assert not ended.is_set()
    monkeypatch.undo()


def test_a_function_is_called_on_a_loop_from_any_thread_or_not_at_all() -> None:
    ran: list[str] = []

    def note(name: str) -> bool:
        ran.append(f"{name} {threading.current_thread().name}")
        return True

    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert call_in_loop(loop, lambda: note("here"), False, wait_s=WAIT_S)
        assert await asyncio.to_thread(call_in_loop, loop, lambda: note("there"), False, wait_s=WAIT_S)
        blocked = in_thread(lambda: call_in_loop(loop, lambda: note("late"), False, wait_s=0.01))
        assert blocked.result(WAIT_S) is False  # This loop does nothing meanwhile.
        await asyncio.sleep(0.01)  # clock: that nothing comes late has no event

    asyncio.run(story())
    assert ran == ["here MainThread", "there MainThread"]
    closed = asyncio.new_event_loop()
    closed.close()
    assert call_in_loop(closed, lambda: note("never"), False, wait_s=WAIT_S) is False


# Forks --------------------------------------------------------------------------------------------------------------------

FORK = """
import asyncio, gc, os, sys, threading
from callgate.sync import BlockingPortal

async def pid():
    return os.getpid()

portal, closed_by_child = BlockingPortal(), BlockingPortal()
for one in (portal, closed_by_child):
    one.run(pid())
child = os.fork()
if child == 0:
    assert portal.run(pid()) == os.getpid()
    closed_by_child.close()
    portal.close()
    assert portal.run(pid()) == os.getpid()
    del closed_by_child
    gc.collect()
    print("child done", flush=True)
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
# What the child did has not touched our loops.
for one in (portal, closed_by_child):
    assert one.run(pid()) == os.getpid()
portal.run(asyncio.sleep(0.01))
assert sum(thread.name == "callgate-loop" for thread in threading.enumerate()) == 2
print("parent done")
"""


def test_a_forked_child_has_a_portal_of_its_own_and_leaves_its_parents_alone() -> None:
    done = program(FORK, "-W", "error", "-W", "ignore::DeprecationWarning")
    assert (done.stdout, done.returncode) == ("child done\nparent done\n", 0), done.stderr
    assert done.stderr == ""


# The lock -----------------------------------------------------------------------------------------------------------------


class Loops:
    """Threads with an event loop each."""

    def __init__(self, count: int) -> None:
        self.loops = [asyncio.new_event_loop() for _ in range(count)]
        self.threads = [threading.Thread(target=loop.run_forever, daemon=True) for loop in self.loops]
        for thread in self.threads:
            thread.start()

    def __enter__(self) -> Loops:
        return self

    def __exit__(self, *exc: object) -> None:
        for number in range(len(self.loops)):
            self.close(number)

    def submit(self, number: int, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loops[number])

    def settle(self, number: int) -> None:
        """Wait until the loop has done what was to be done at once."""
        for _ in range(3):
            self.submit(number, asyncio.sleep(0)).result(WAIT_S)

    def close(self, number: int) -> None:
        loop = self.loops[number]
        if not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            self.threads[number].join(WAIT_S)
            loop.close()


async def take(lock: CrossLoopLock, log: list[str], name: str, go: threading.Event | None = None) -> str:
    async with lock:
        log.append(name)
        if go is not None:
            await asyncio.to_thread(go.wait, WAIT_S)
    return name


def test_a_lock_passes_between_event_loops_that_run_one_after_another() -> None:
    lock = CrossLoopLock()
    log: list[str] = []
    for name in "abc":
        asyncio.run(take(lock, log, name))
    assert (log, lock.is_held) == (["a", "b", "c"], False)


def test_waiters_of_several_loops_get_the_lock_in_the_order_in_which_they_came() -> None:
    lock, log, go = CrossLoopLock(), list[str](), threading.Event()
    with Loops(3) as loops:
        outcomes = [loops.submit(0, take(lock, log, "first", go))]
        loops.settle(0)
        for number in range(9):
            outcomes.append(loops.submit(number % 3, take(lock, log, str(number))))
            loops.settle(number % 3)
        go.set()
        assert [outcome.result(WAIT_S) for outcome in outcomes] == ["first", *"012345678"]
    assert (log, lock.is_held) == (["first", *"012345678"], False)


def test_a_waiter_that_is_cancelled_is_passed_over() -> None:
    lock, log, go = CrossLoopLock(), list[str](), threading.Event()
    with Loops(2) as loops:
        first = loops.submit(0, take(lock, log, "first", go))
        loops.settle(0)
        cancelled = loops.submit(1, take(lock, log, "cancelled"))
        loops.settle(1)
        last = loops.submit(0, take(lock, log, "last"))
        loops.settle(0)
        cancelled.cancel()
        loops.settle(1)
        go.set()
        assert [first.result(WAIT_S), last.result(WAIT_S)] == ["first", "last"]
    assert (log, lock.is_held) == (["first", "last"], False)


def test_a_waiter_that_is_cancelled_when_it_was_given_the_lock_passes_it_on() -> None:
    async def story() -> None:
        lock, log = CrossLoopLock(), list[str]()
        await lock.acquire()
        waiter = asyncio.create_task(take(lock, log, "cancelled"))
        last = asyncio.create_task(take(lock, log, "last"))
        await asyncio.sleep(0)
        lock.release()
        waiter.cancel()
        assert await asyncio.wait_for(last, WAIT_S) == "last"
        assert (log, lock.is_held) == (["last"], False)

    asyncio.run(story())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_given", [False, True], ids=["while it waits", "when it was given the lock"])
def test_a_waiter_whose_loop_is_closed_blocks_nobody(is_given: bool, caplog: pytest.LogCaptureFixture) -> None:
    lock, log = CrossLoopLock(), list[str]()
    dead = asyncio.new_event_loop()
    holder = asyncio.new_event_loop()
    holder.run_until_complete(lock.acquire())
    task = dead.create_task(take(lock, log, "dead"))
    dead.run_until_complete(asyncio.sleep(0))
    if is_given:
        lock.release()
    dead.close()
    with Loops(1) as loops:
        last = loops.submit(0, take(lock, log, "last"))
        loops.settle(0)
        if not is_given:
            lock.release()
        assert last.result(WAIT_S) == "last"
    assert (log, lock.is_held) == (["last"], False)
    assert not task.done()
    holder.close()
    del task
    gc.collect()
    assert not lock.is_held


def test_a_waiter_that_is_garbage_collected_blocks_nobody(caplog: pytest.LogCaptureFixture) -> None:
    lock, log = CrossLoopLock(), list[str]()
    lost, here = asyncio.new_event_loop(), asyncio.new_event_loop()
    here.run_until_complete(lock.acquire())
    waiting = weakref.ref(lost.create_task(take(lock, log, "lost")))
    lost.run_until_complete(asyncio.sleep(0))
    last = here.create_task(take(lock, log, "last"))
    here.run_until_complete(asyncio.sleep(0))
    lock.release()
    lost.close()
    gc.collect()
    assert waiting() is None
    assert here.run_until_complete(asyncio.wait_for(last, WAIT_S)) == "last"
    assert (log, lock.is_held) == (["last"], False)
    here.close()


def test_no_schedule_of_tasks_on_several_loops_breaks_the_lock(scale: int) -> None:
    with Loops(3) as loops:
        for seed in range(2_000 * scale):
            run_schedule(seed, loops)


def run_schedule(seed: int, loops: Loops) -> None:
    """Tasks on two or three loops that take a lock, hold it for some passes of their loop, and may be cancelled."""
    rng = random.Random(seed)
    lock, holders, finished = CrossLoopLock(), deque[int](), list[int]()

    async def work(number: int, pause: int, hold: int) -> None:
        for _ in range(pause):
            await asyncio.sleep(0)
        async with lock:
            holders.append(number)
            try:
                for _ in range(hold):
                    assert list(holders) == [number]
                    await asyncio.sleep(0)
                assert list(holders) == [number]
            finally:
                holders.remove(number)
        finished.append(number)

    count = rng.randint(2, 3)
    outcomes = [loops.submit(rng.randrange(count), work(number, rng.randrange(3), rng.randrange(4))) for number in range(6)]
    cancelled: set[int] = set()
    for number in rng.sample(range(6), rng.randrange(4)):
        if rng.random() < 0.5:
            time.sleep(0)
        if outcomes[number].cancel():
            cancelled.add(number)
    concurrent.futures.wait(outcomes, timeout=WAIT_S)
    for number, outcome in enumerate(outcomes):
        if number not in cancelled:
            outcome.result(0)
    for number in range(count):  # Cancelled tasks may still be on their way out.
        loops.settle(number)
    assert asyncio.run_coroutine_threadsafe(_free(lock), loops.loops[0]).result(WAIT_S), seed
    assert set(range(6)) - cancelled <= set(finished)


async def _free(lock: CrossLoopLock) -> bool:
    """Whether the lock is free after all."""
    async with asyncio.timeout(WAIT_S):
        await lock.acquire()
    lock.release()
    return True


LEFT_OPEN = """
from callgate import Gate, ScriptedModel

events = Gate(ScriptedModel(["A long answer in many pieces."])).stream_sync("Go.")
next(events)
print("over")
"""


def test_a_program_ends_with_a_stream_that_nobody_has_read_to_its_end() -> None:
    """The generator is closed when the interpreter goes, and no thread can be started any more."""
    done = program(LEFT_OPEN)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")


def test_a_stream_of_a_closed_gate_starts_no_thread_when_it_is_left() -> None:
    gate = Gate(ScriptedModel(["A long answer in many pieces."]))
    events = gate.stream_sync("Go.")
    next(events)
    gate.close()
    before = threading.active_count()
    events.close()
    assert threading.active_count() == before
