"""Sessions in hand: read when somebody else has written, held by one at a time, renewed in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from callgate import Gate, ScriptedModel, UsageError
from callgate.content.read import text_of
from callgate.errors import StoreError
from callgate.machine.facts import Fact
from callgate.store import Lease, MemoryStore
from callgate.testing import call

WAIT_S = 180


class Watched(MemoryStore):
    """Notes what is read and renewed, and can fail once."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[str, int]] = []
        self.renewed: list[str] = []
        self.on_renewal = asyncio.Event()
        self.fails = False

    async def load(self, session: str, *, start: int = 0) -> list[Fact]:
        self.read.append((session, start))
        return await super().load(session, start=start)

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
        await super().renew(lease)
        self.renewed.append(lease.session)
        self.on_renewal.set()

    async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        if self.fails:
            self.fails = False
            raise OSError("the disk is gone")
        await super().append(lease, facts, position=position, durable=durable)


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_S))


def said(contents: Sequence[Any]) -> list[str]:
    return [text_of(content) for content in contents]


def test_a_journal_is_read_once_when_a_session_goes_on_and_not_again_while_nobody_else_writes() -> None:
    async def story() -> tuple[list[tuple[str, int]], list[str]]:
        store = Watched()
        gate = Gate(ScriptedModel(["One.", "Two.", "Three."]), store=store)
        for prompt in ("a", "b", "c"):
            reply = await gate.run(prompt, session="s")
        return store.read, said(reply.contents)

    read, contents = run(story())
    assert read == [("s", 0)]
    assert contents == ["a", "One.", "b", "Two.", "c", "Three."]


def test_what_another_gate_has_added_is_read_from_where_it_begins() -> None:
    async def story() -> tuple[list[tuple[str, int]], list[str]]:
        store = Watched()
        here, there = (Gate(ScriptedModel(["Here."] * 3), store=store), Gate(ScriptedModel(["There."]), store=store))
        await here.run("a", session="s")
        await here.run("b", session="s")
        written = len(await MemoryStore.load(store, "s"))
        await there.run("c", session="s")
        store.read.clear()
        reply = await here.run("d", session="s")
        assert store.read == [("s", written)]
        return store.read, said(reply.contents)

    _, contents = run(story())
    assert contents == ["a", "Here.", "b", "Here.", "c", "There.", "d", "Here."]


def test_runs_of_one_new_session_that_begin_together_come_one_after_another() -> None:
    async def story() -> tuple[list[str], list[tuple[str, int]]]:
        store = Watched()
        gate = Gate(ScriptedModel(["One.", "Two.", "Three."]), store=store)
        *_, last = await asyncio.gather(*(gate.run(prompt, session="s") for prompt in "abc"))
        return said(last.contents), store.read

    contents, read = run(story())
    assert contents == ["a", "One.", "b", "Two.", "c", "Three."]
    assert read == []  # Whoever waited had it in hand already.


def test_after_a_journal_that_failed_the_session_is_read_anew_also_by_those_who_waited() -> None:
    async def story() -> list[str]:
        store = Watched()
        gate = Gate(ScriptedModel(["One.", "Two.", "Three."]), store=store)
        await gate.run("a", session="s")
        store.fails = True
        failing = asyncio.create_task(gate.run("lost", session="s"))
        waiting = asyncio.create_task(gate.run("b", session="s"))
        with pytest.raises(StoreError, match="the disk is gone"):
            await failing
        return said((await waiting).contents)

    assert run(story()) == ["a", "One.", "b", "Two."]


def test_one_timer_renews_the_leases_of_all_runs_and_ends_when_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.run.lease.LEASE_S", 0.03)

    async def story() -> None:
        store, go_on = Watched(), asyncio.Event()

        async def wait() -> str:
            await go_on.wait()
            return "done"

        gate = Gate(ScriptedModel([call("wait"), call("wait"), "One.", "Two."]), [wait], store=store)
        runs = [asyncio.create_task(gate.run("Go", session=name)) for name in ("s", "t")]
        while sorted(store.renewed)[-1:] != ["t"] or len(store.renewed) < 4:
            store.on_renewal.clear()
            await store.on_renewal.wait()
        assert set(store.renewed) == {"s", "t"}
        go_on.set()
        await asyncio.gather(*runs)
        gate._resources.sessions._renewal._renew(asyncio.get_running_loop())
        assert gate._resources.sessions._renewal._loops == set()

    run(story())


# Several event loops ------------------------------------------------------------------------------------------------------


def test_event_loops_one_after_another_go_on_with_one_session_that_had_waiters_in_each() -> None:
    gate = Gate(ScriptedModel([str(number) for number in range(6)]), store=MemoryStore())

    async def story() -> list[Any]:
        return await asyncio.gather(*(gate.run(prompt, session="s") for prompt in "abc"))

    for _ in range(2):
        last = run(story())[-1]
    assert said(last.contents) == [word for pair in zip("abcabc", "012345", strict=True) for word in pair]


def test_threads_with_an_event_loop_each_take_turns_on_one_session() -> None:
    rounds, count = 20, 3
    gate = Gate(ScriptedModel(["Yes."], repeat_last=True), store=MemoryStore())
    start = threading.Barrier(count, timeout=WAIT_S)

    def talk() -> None:
        async def story() -> None:
            for _ in range(rounds):
                await gate.run("Ping.", session="s")

        start.wait()
        run(story())

    with ThreadPoolExecutor(count) as pool:
        for outcome in [pool.submit(talk) for _ in range(count)]:
            outcome.result(WAIT_S)
    assert len(said(run(gate.run("Ping.", session="s")).contents)) == 2 * (rounds * count + 1)


def test_a_run_that_waits_for_a_session_on_another_loop_can_be_cancelled() -> None:
    began, go = threading.Event(), threading.Event()

    def wait() -> str:
        began.set()
        go.wait(WAIT_S)
        return "done"

    gate = Gate(ScriptedModel([call("wait"), "One.", "Two."]), [wait])

    async def give_up() -> None:
        waiting = asyncio.create_task(gate.run("b", session="s"))
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: run(gate.run("a", session="s")))
        assert began.wait(WAIT_S)
        run(give_up())
        go.set()
        assert first.result(WAIT_S).text == "One."
    assert said(run(gate.run("c", session="s")).contents)[-2:] == ["c", "Two."]


def test_a_session_is_renamed_on_another_loop_while_a_run_goes_on() -> None:
    began, go = threading.Event(), threading.Event()

    def wait() -> str:
        began.set()
        go.wait(WAIT_S)
        return "done"

    store = MemoryStore()
    gate = Gate(ScriptedModel([call("wait"), "One."]), [wait], store=store)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: run(gate.run("a", session="s")))
        assert began.wait(WAIT_S)
        assert run(gate.rename("s", "Named.")) == "Named."
        go.set()
        assert first.result(WAIT_S).text == "One."
    assert [info.title for info in run(store.sessions())] == ["Named."]


class Unreleasing(MemoryStore):
    """A store of a program, whose end fails in a way of its own."""

    async def release(self, lease: Lease) -> None:
        await super().release(lease)
        raise OSError("the lock server is gone")


def test_a_store_that_cannot_release_a_session_costs_no_reply() -> None:
    async def story() -> None:
        gate = Gate(ScriptedModel(["One.", "Two."]), store=Unreleasing())
        assert (await gate.run("1", session="s")).text == "One."
        assert (await gate.run("2", session="s")).text == "Two."

    asyncio.run(story())


def test_an_empty_text_is_no_session() -> None:
    with pytest.raises(UsageError, match="cannot be the id of a session"):
        asyncio.run(Gate(ScriptedModel(["One."])).run("1", session=""))


# A store that does not answer ---------------------------------------------------------------------------------------------


class Silent(MemoryStore):
    """Answers nothing from the `after`-th entry in the journal on."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after
        self.asked = asyncio.Event()

    async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        self.left -= 1
        if self.left < 0:
            await self._never()
        await super().append(lease, facts, position=position, durable=durable)

    async def release(self, lease: Lease) -> None:
        if self.left < 0:
            await self._never()
        await super().release(lease)

    async def _never(self) -> None:
        self.asked.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("way", ["gate.cancel", "task.cancel"])
def test_a_run_whose_store_never_answers_again_can_be_cancelled(
    way: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.run.sessions.STOP_WAIT_S", 0.05)

    async def look() -> str:
        return "seen"

    async def story() -> None:
        store = Silent(after)
        gate = Gate(ScriptedModel([call("look"), "Done."]), tools=[look], store=store)
        task = asyncio.create_task(gate.run("Go.", session="s"))
        await store.asked.wait()
        if way == "gate.cancel":
            assert gate.cancel("s")
            with pytest.raises(StoreError, match=r"the store did not answer within 0\.05 s while the run was stopped"):
                await task
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        store.left = 100
        assert (await gate.run("Go on.", session="other")).text == "Done."

    run(story())


def test_a_run_that_is_over_can_be_cancelled_while_its_store_does_not_release_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("callgate.run.sessions.STOP_WAIT_S", 0.05)
    asked = asyncio.Event()

    class Holding(MemoryStore):
        async def release(self, lease: Lease) -> None:
            asked.set()
            await asyncio.Event().wait()

    async def story() -> None:
        task = asyncio.create_task(Gate(ScriptedModel(["Done."]), store=Holding()).run("Go.", session="s"))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story())


def test_a_store_that_never_releases_a_session_costs_a_bounded_wait_and_not_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("callgate.run.sessions.RELEASE_WAIT_S", 0.05)

    class Holding(MemoryStore):
        async def release(self, lease: Lease) -> None:
            await asyncio.Event().wait()

    async def story() -> None:
        assert (await Gate(ScriptedModel(["Done."]), store=Holding()).run("Go.", session="s")).text == "Done."

    run(story())


def test_a_time_out_of_the_stores_own_is_an_error_of_the_store() -> None:
    class Slow(MemoryStore):
        async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
            raise TimeoutError("my disk is slow")

    async def story() -> None:
        with pytest.raises(StoreError, match="the store raised TimeoutError: my disk is slow"):
            await Gate(ScriptedModel(["Done."]), store=Slow()).run("Go.", session="s")

    run(story())
