"""Bytes that the service keeps for clients: bounded over all runs, also for clients that do not read."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pytest

from callgate import Gate, ScriptedModel
from callgate.events import TextDelta
from callgate.server import memory_trim, service, sse
from callgate.server.memory_trim import MemoryTrim
from callgate.server.options import ServiceOptions
from callgate.server.runs import EventsGoneError, Follower, Run

GUARD_S = 120


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(GUARD_S):
        while not condition():  # noqa: ASYNC110 - several loops and sockets take part
            await asyncio.sleep(0.01)


def ended(size: int) -> Run:
    run = Run("s", _never, named=True, waits=False)
    run.add(TextDelta("x" * size))
    run.is_over = True
    return run


def test_ended_runs_are_not_kept_for_clients_that_do_not_read_beyond_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FOLLOWED_BYTES", 2_500)

    async def story() -> None:
        made = service.Service(Gate(ScriptedModel([])))
        runs, left = [ended(1_000) for _ in range(3)], list[int]()
        with contextlib.ExitStack() as stack:
            for number, run in enumerate(runs):
                follower = stack.enter_context(run.followed())
                follower.leave = functools.partial(left.append, number)
                made._let_go(run)
            assert (left, [run.size > 0 for run in runs]) == ([0], [False, True, True])
            assert made.kept_bytes == runs[1].size + runs[2].size
        assert (made.kept_bytes, made._lagging) == (0, {})
        made._let_go(ended(1_000))
        assert made._lagging == {}, "nobody reads it"

    asyncio.run(story())


def test_a_stream_is_left_only_while_it_waits_for_its_client() -> None:
    async def story() -> tuple[bool, bool]:
        begun, found = asyncio.Event(), list[bool]()

        async def stream() -> None:
            pulse = sse._Pulse(Follower(0), ServiceOptions())

            async def send(message: Any) -> None:
                begun.set()
                await asyncio.Event().wait()

            pulse.give_up()
            found.append(pulse.is_stalled)
            asyncio.get_running_loop().call_soon(pulse.give_up)
            try:
                await pulse.sending(send)({})
            except asyncio.CancelledError:
                found.append(pulse.is_stalled)
            finally:
                pulse.stop()

        await asyncio.create_task(stream())
        return found[0], found[1]

    assert asyncio.run(story()) == (False, True)


def test_live_runs_share_the_bytes_of_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        run = Run("s", _never, named=True, waits=False)
        run.share = lambda: 1_000
        for _ in range(10):
            run.add(TextDelta("x" * 300))
        assert (len(run.ring), run.first) == (2, 9)

    asyncio.run(story())
    assert service.LIVE_BYTES // 1200 > sse.SEND_BYTES, "with as many runs as there may be, each keeps a piece or more"


async def _never(watch: Any) -> Any:
    raise AssertionError


def test_a_run_that_keeps_nothing_any_more_says_so_to_who_is_late_and_to_nobody_else() -> None:
    run = Run("s", _never, named=True, waits=False)
    for _ in range(3):
        run.add(TextDelta("x"))
    run.drop()
    with pytest.raises(EventsGoneError, match="events 3 to 3 of this run are not kept any more"):
        run.after(2)
    assert run.after(3) == []


@pytest.mark.parametrize("size", [0, 1, sse.SEND_BYTES - 1, sse.SEND_BYTES, sse.SEND_BYTES + 1, 3 * sse.SEND_BYTES])
def test_a_body_is_sent_in_pieces_that_are_all_of_it(size: int) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    body = bytes(number % 251 for number in range(size))
    asyncio.run(sse._send(send, body, more=False))
    assert b"".join(message["body"] for message in sent) == body
    assert all(len(message["body"]) <= sse.SEND_BYTES for message in sent)
    assert [message["more_body"] for message in sent] == [True] * (len(sent) - 1) + [False]


def test_memory_is_given_back_once_after_enough_of_it_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_trim, "TRIM_S", 0.0)

    async def story() -> list[int]:
        trims: list[int] = []
        trim = MemoryTrim()
        trim._trim = trims.append  # type: ignore[assignment]
        trim.freed(memory_trim.TRIM_BYTES - 1)
        await asyncio.sleep(0)
        assert trim._timer is None
        for _ in range(3):
            trim.freed(1)
        await until(lambda: bool(trims))
        trim.freed(memory_trim.TRIM_BYTES)
        trim.close()
        return trims

    assert asyncio.run(story()) == [0]
