"""SystemExit, KeyboardInterrupt and the like out of a model or a store: an error of callgate, at any door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from callgate import Gate, ModelError, ScriptedModel
from callgate.errors import CallgateError, StoreError
from callgate.events import RunEnded
from callgate.history.repair import validate
from callgate.machine.facts import Fact
from callgate.request import ModelRequest
from callgate.store import MemoryStore
from callgate.store.protocol import LEASE_S, Lease
from callgate.types import Reply
from callgate.user_code import ProgramInterrupt

NET_S = 60.0


class OwnError(BaseException):
    """Neither an Exception nor one of Python's own."""


RAISED: dict[str, Callable[[], BaseException]] = {
    "sys.exit(3)": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "a BaseException": lambda: OwnError("own"),
}


class Faulty:
    """Raises once, where it is wanted."""

    def __init__(self, place: str, error: BaseException) -> None:
        self.place: str | None = place
        self.error = error

    def at(self, place: str) -> None:
        if place == self.place:
            self.place = None
            raise self.error


class FaultyModel:
    name = "faulty"

    def __init__(self, fault: Faulty) -> None:
        self._fault = fault
        self._model = ScriptedModel(["Hello."] * 3)

    def generate(self, request: ModelRequest) -> AsyncIterator[Any]:
        self._fault.at("generate")
        return self._answer(request)

    async def _answer(self, request: ModelRequest) -> AsyncIterator[Any]:
        self._fault.at("the first chunk")
        async for item in self._model.generate(request):
            yield item
        self._fault.at("the end of the answer")


class FaultyStore(MemoryStore):
    def __init__(self, fault: Faulty) -> None:
        super().__init__()
        self._fault = fault

    async def acquire(self, session: str, *, owner: str, lease_s: float = LEASE_S) -> Lease:
        self._fault.at("acquire")
        return await super().acquire(session, owner=owner, lease_s=lease_s)

    async def load(self, session: str, *, start: int = 0) -> list[Fact]:
        self._fault.at("load")
        return await super().load(session, start=start)

    async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        self._fault.at("append")
        await super().append(lease, facts, position=position, durable=durable)

    async def release(self, lease: Lease) -> None:
        await super().release(lease)
        self._fault.at("release")


async def by_run(gate: Gate, prompt: str) -> Reply:
    return await gate.run(prompt, session="s")


async def by_stream(gate: Gate, prompt: str) -> Reply:
    events = [event async for event in gate.stream(prompt, session="s")]
    return next(event.reply for event in events if isinstance(event, RunEnded))


async def by_run_sync(gate: Gate, prompt: str) -> Reply:
    # Where a caller of run_sync is: in a thread without an event loop.
    return await asyncio.to_thread(gate.run_sync, prompt, session="s")


DOORS = {"run": by_run, "stream": by_stream, "run_sync": by_run_sync}
PLACES: dict[str, type[CallgateError]] = {
    "generate": ModelError,
    "the first chunk": ModelError,
    "the end of the answer": ModelError,
    "acquire": StoreError,
    "load": StoreError,
    "append": StoreError,
}


class UnspeakableError(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise SystemExit(7)


@pytest.mark.parametrize("place", ["generate", "the first chunk", "the end of the answer"])
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_a_model_that_raises_what_ends_a_coroutine_ends_its_run_alone(door: Any, place: str) -> None:
    async def story() -> None:
        async with asyncio.timeout(NET_S):
            for error, kind in ((GeneratorExit(), CallgateError), (UnspeakableError(), UnspeakableError)):
                gate = gate_with(Faulty(place, error))
                with pytest.raises(kind):
                    await door(gate, "Hi.")
                assert (await door(gate, "Still there?")).text == "Hello."
                await asyncio.to_thread(gate.close)

    asyncio.run(story())


@pytest.mark.parametrize("error", [asyncio.CancelledError(), OSError(28, "full"), UnspeakableError()], ids=repr)
def test_a_store_that_fails_to_release_a_session_does_not_take_the_answer_away(error: BaseException) -> None:
    async def story() -> None:
        async with asyncio.timeout(NET_S):
            assert (await by_run(gate_with(Faulty("release", error)), "Hi.")).text == "Hello."

    asyncio.run(story())


@pytest.mark.parametrize("place", ["acquire", "append"])
def test_a_store_whose_disk_fails_raises_a_store_error(place: str) -> None:
    error = OSError(28, "No space left on device")

    async def story() -> None:
        async with asyncio.timeout(NET_S):
            with pytest.raises(StoreError, match=r"the store raised OSError: .*No space left") as caught:
                await by_run(gate_with(Faulty(place, error)), "Hi.")
            assert caught.value.__cause__ is error

    asyncio.run(story())


def gate_with(fault: Faulty) -> Gate:
    return Gate(FaultyModel(fault), store=FaultyStore(fault))


@pytest.mark.parametrize("raised", RAISED.values(), ids=RAISED.keys())
@pytest.mark.parametrize(("place", "kind"), PLACES.items())
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_the_run_ends_with_an_error_of_callgate_and_the_session_goes_on(
    door: Any, place: str, kind: type[CallgateError], raised: Callable[[], BaseException]
) -> None:
    fault = Faulty("", raised())

    async def story() -> None:
        async with asyncio.timeout(NET_S):
            gate = gate_with(fault)
            await door(gate, "Hi.")
            if place == "load":  # Another process has written to the session meanwhile.
                other = Gate(ScriptedModel(["Other."]), store=gate.store)
                await other.run("Between.", session="s")
            fault.place = place
            with pytest.raises(kind, match=type(fault.error).__name__) as caught:
                await door(gate, "And?")
            assert caught.value.__cause__ is fault.error
            reply = await door(gate, "Still there?")
            assert reply.text == "Hello."
            assert validate(reply.contents) == []
            await asyncio.to_thread(gate.close)

    asyncio.run(story())
    assert fault.place is None


@pytest.mark.parametrize("raised", RAISED.values(), ids=RAISED.keys())
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_a_lease_that_cannot_be_released_costs_no_reply(door: Any, raised: Callable[[], BaseException]) -> None:
    fault = Faulty("release", raised())

    async def story() -> None:
        async with asyncio.timeout(NET_S):
            gate = gate_with(fault)
            assert (await door(gate, "Hi.")).text == "Hello."
            await asyncio.to_thread(gate.close)

    asyncio.run(story())
    assert fault.place is None


@pytest.mark.parametrize("place", ["the first chunk", "append"])
def test_a_signal_handler_of_the_program_still_ends_it(place: str) -> None:
    fault = Faulty(place, ProgramInterrupt())

    async def story() -> None:
        await gate_with(fault).run("Hi.")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(story())


def test_an_error_that_cannot_be_shown_is_named_all_the_same() -> None:
    class MuteError(BaseException):
        def __str__(self) -> str:
            raise SystemExit

    async def story() -> None:
        with pytest.raises(ModelError, match=r"^model 'faulty' raised MuteError$"):
            await gate_with(Faulty("the first chunk", MuteError())).run("Hi.")

    asyncio.run(story())


def test_other_runs_on_the_event_loop_are_not_touched() -> None:
    """Two runs on one event loop: the one whose model exits does not end the other."""

    async def story() -> None:
        fault = Faulty("the first chunk", SystemExit(1))
        good, bad = Gate(ScriptedModel(["Fine."])), gate_with(fault)
        replies = await asyncio.gather(good.run("Hi."), bad.run("Hi."), return_exceptions=True)
        assert isinstance(replies[0], Reply)
        assert replies[0].text == "Fine."
        assert isinstance(replies[1], ModelError)

    asyncio.run(story())
