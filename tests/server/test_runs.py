"""Live runs: who may leave, who may come back, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct

import pytest

from callgate import Gate, ScriptedModel
from callgate.events import TextDelta
from callgate.server.runs import EVENTS_MAX, EventsGoneError, Run, RunBegan, RunFailed
from callgate.store import MemoryStore
from callgate.testing import call


def hang_up(connection: socket.socket) -> None:
    """Closes with a reset, as a client that died."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def start_chat(site, body: str, accept: str = "*/*") -> socket.socket:
    connection = site.connect()
    head = f"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return connection


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_client_without_a_session_that_leaves_takes_its_run_with_it(serve, slow, accept) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "Never."]), [slow.tool]))
    connection = start_chat(site, '{"prompt": "Wait."}', accept)
    assert slow.started.wait(60)
    hang_up(connection)
    site.until(lambda: slow.states == ["cancelled"] and not site.service.live, "the end of the run")


def test_a_client_that_sent_its_body_in_chunks_is_waited_for_as_any_other(serve, slow) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "Done.", call("slow"), "Never."]), [slow.tool]))
    head = b"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    data = head + b'Transfer-Encoding: chunked\r\n\r\n13\r\n{"prompt": "Wait."}\r\n0\r\n\r\n'
    with site.connect() as connection:
        connection.sendall(data)
        assert slow.started.wait(60)
        slow.go.set()
        assert connection.recv(12) == b"HTTP/1.1 200"
    slow.started.clear()
    slow.go.clear()
    connection = site.connect()
    connection.sendall(data)
    assert slow.started.wait(60)
    hang_up(connection)
    site.until(lambda: slow.states == ["finished", "cancelled"] and not site.service.live, "the end of the run")


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_with_a_session_the_run_goes_on_and_its_events_can_be_resumed(serve, slow, accept) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "It is done."]), [slow.tool]))
    connection = start_chat(site, '{"prompt": "Wait.", "session": "s"}', accept)
    assert slow.started.wait(60)
    hang_up(connection)
    site.until(lambda: site.service.run_of("s").followers == 0 and site.service.run_of("s")._leaving, "the leave")
    with site.stream("GET", "/api/v1/sessions/s/events") as stream:
        first = stream.until("call_started")
        with site.stream("GET", "/api/v1/sessions/s/events", Last_Event_ID=first["id"]) as resumed:
            slow.go.set()
            rest = list(stream)
            assert list(resumed) == rest
    assert slow.states == ["finished"]
    assert (rest[0]["type"], rest[-1]["type"]) == ("call_finished", "run_ended")
    again = site.get(f"/api/v1/sessions/s/events?after={rest[-2]['id']}")
    assert again.body.count(b"event: ") == 1
    assert site.get("/api/v1/sessions/s/events?after=another:3").error == (410, "run_gone")
    assert site.get(f"/api/v1/sessions/s/events?after={first['id'].partition(':')[0]}:x").error == (422, "invalid_request")


def test_a_run_that_nobody_comes_back_to_is_cancelled_in_good_order(serve, slow) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "Never."]), [slow.tool]), linger_s=0.1)
    connection = start_chat(site, '{"prompt": "Wait.", "session": "s"}')
    assert slow.started.wait(60)
    hang_up(connection)
    site.until(lambda: not site.service.live, "the end of the run")
    assert slow.states == ["cancelled"]
    shown = site.get("/api/v1/sessions/s").json
    assert (shown["state"], shown["calls"][0]["state"]) == ("idle", "cancelled")


def test_a_session_with_a_run_is_busy_for_others(serve, slow) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "Done."]), [slow.tool]))
    with site.stream_chat({"prompt": "Wait.", "session": "s"}) as stream:
        stream.until("call_started")
        answer = site.chat({"prompt": "Me too.", "session": "s"})
        assert answer.error == (409, "session_busy")
        assert int(answer.headers["retry-after"]) >= 1
        slow.go.set()
        stream.until("run_ended")


def test_one_run_too_many_is_turned_away_at_once(serve, slow) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "Done.", "Fine."]), [slow.tool]), runs=1)
    with site.stream_chat({"prompt": "Wait."}) as stream:
        stream.until("call_started")
        answer = site.chat({"prompt": "Me too."})
        assert answer.error == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        slow.go.set()
        stream.until("run_ended")
    site.until(lambda: not site.service.live)
    assert site.chat({"prompt": "Now?"}).status == 200


def test_a_quiet_stream_shows_that_it_is_alive(serve, slow) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "Done."]), [slow.tool]), ping_s=0.02)
    with site.stream_chat({"prompt": "Wait."}) as stream:
        stream.until("call_started")
        stream.read_more()  # Nothing happens in the run: what comes is no event.
        slow.go.set()
        stream.until("run_ended")
        assert stream.comments >= 1


@pytest.mark.slow
def test_300_abrupt_disconnects_leave_nothing_behind(serve, slow, scale) -> None:
    site = serve(Gate(ScriptedModel([call("slow")], repeat_last=True), [slow.tool]))
    base = site.on_loop(lambda: len(asyncio.all_tasks()))
    fds = site.get("/metrics").body
    for batch in range(6 * scale):
        connections = []
        for number in range(50):
            accept = ("application/json", "text/event-stream")[number % 2]
            connections.append(start_chat(site, '{"prompt": "Wait."}', accept))
            if number % 5 == 0:  # Some leave before they were heard at all.
                hang_up(connections.pop())
        if batch % 2:
            site.until(lambda: len(site.service.live) >= 40, "the runs")
        for connection in connections:
            hang_up(connection)
        site.until(lambda: not site.service.live, "the end of the runs")
    site.until(lambda: len(asyncio.all_tasks()) <= base, "the end of all tasks")
    site.until(lambda: not site.server.server_state.connections, "the end of all connections")
    assert descriptors(site.get("/metrics").body) <= descriptors(fds) + 2
    assert site.get("/health").json["runs"] == 0
    assert slow.states.count("cancelled") >= 100 * scale


def descriptors(text: bytes) -> int:
    return int(text.rsplit(b"process_open_fds ", 1)[1].split()[0])


# A run by itself ---------------------------------------------------------------------------------------------------------


def test_a_follower_that_is_too_slow_loses_events_and_the_run_loses_nothing() -> None:
    async def main() -> None:
        async def work(watch):
            await go.wait()
            for number in range(EVENTS_MAX + 10):
                await watch(TextDelta(str(number)))
            raise RuntimeError("the work broke")

        async def read_on() -> None:
            async for _ in stream:
                pass

        go = asyncio.Event()

        run = Run("s", work, named=True, waits=False)
        stream = run.follow()
        run.start()
        first = await anext(stream)
        assert isinstance(first.event, RunBegan)
        go.set()
        await run.done.wait()
        assert run.last == EVENTS_MAX + 12
        with pytest.raises(EventsGoneError):
            await read_on()
        late = [item async for item in run.follow(run.last - 1)]
        assert isinstance(late[0].event, RunFailed)
        assert late[0].event.problem["error"] == "internal_error"
        with pytest.raises(RuntimeError, match="the work broke"):
            await run.outcome()

    asyncio.run(main())


def test_followers_of_all_speeds_see_the_same_events() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def work(watch):
            for number in range(100):
                await watch(TextDelta(str(number)))
                if number % 10 == 0:
                    await asyncio.sleep(0)
            gate.set()
            raise RuntimeError("over")

        run = Run("s", work, named=True, waits=False)
        run.start()

        async def read(pause: int) -> list[int]:
            seen = []
            async for item in run.follow():
                seen.append(item.number)
                for _ in range(pause):
                    await asyncio.sleep(0)
            return seen

        async with asyncio.timeout(300):
            all_seen = await asyncio.gather(*(read(pause) for pause in (0, 1, 5)))
        assert all_seen == [list(range(1, 103))] * 3

    asyncio.run(main())


@pytest.mark.parametrize("keyed", [True, False])
def test_the_runs_that_are_kept_after_their_end_are_bounded_by_their_size(serve, monkeypatch, keyed) -> None:
    monkeypatch.setattr("callgate.server.service.ENDED_BYTES", 30_000)
    site = serve(Gate(ScriptedModel(["y" * 5_000] * 21), store=MemoryStore()))
    answers = []
    for number in range(20):
        headers = {"Idempotency_Key": f"k{number}"} if keyed else {}
        answers.append(site.chat({"prompt": f"{number} " + "x" * 5_000, "session": f"sized-{number}"}, **headers))
    assert len(site.service.runs) < 10
    gc.collect()
    held = [one for one in gc.get_objects() if type(one) is Run and one.session.startswith("sized-")]
    assert len(held) < 10, "nothing else holds the others"
    if keyed:  # What was forgotten here is in the journal.
        again = site.chat({"prompt": "0 " + "x" * 5_000, "session": "sized-0"}, Idempotency_Key="k0")
        assert (again.status, again.json["response"]) == (200, answers[0].json["response"])
