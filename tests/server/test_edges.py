"""Rare ends of the service: what nobody foresaw, who does not read, what cannot be said."""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
import time

import pytest

from callgate import FunctionCall, Gate, Limits, Policy, Reply, ScriptedModel, ToolResult, Usage
from callgate.events import CallFinished, RunEnded, TextDelta
from callgate.history.conversation import Conversation
from callgate.server import Service, ServiceOptions, create_app
from callgate.server.errors import HttpError, problem_of
from callgate.server.idempotency import KEYS_MAX, ClaimedKey, RequestKeys
from callgate.server.runs import EVENTS_MAX, Numbered, Run, RunBegan, RunFailed
from callgate.server.service import GATES_MAX, Ask
from callgate.server.sse import EventStream, wire_of
from callgate.store import MemoryStore
from callgate.testing import call

from .conftest import add


def run_of(*events, ends: bool = True) -> Run:
    """A run that has told of these events."""

    async def work(watch):
        for event in events:
            await watch(event)
        if not ends:
            await asyncio.Event().wait()
        raise RuntimeError("over")

    return Run("s", work, named=True, waits=False)


def test_what_nobody_foresaw_is_told_without_its_words_and_logged_with_them(serve, monkeypatch, caplog) -> None:
    site = serve(Gate(ScriptedModel(["ok"])))

    def broken() -> list[object]:
        raise RuntimeError("a secret path: /home/ada")

    monkeypatch.setattr(site.service.gate.tools, "refresh", broken)
    answer = site.get("/api/v1/tools")
    assert answer.error == (500, "internal_error")
    assert b"ada" not in answer.body
    assert "ada" in caplog.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_run_that_breaks_is_told_without_its_words_and_logged_with_them(serve, monkeypatch, caplog) -> None:
    site = serve(Gate(ScriptedModel([KeyError("a secret")])))
    answer = site.chat({"prompt": "a", "session": "s"})
    assert answer.error == (500, "internal_error")
    assert b"secret" not in answer.body
    assert "a secret" in caplog.text


def test_a_web_socket_is_closed() -> None:
    sent = []

    async def main() -> None:
        async def send(message):
            sent.append(message)

        app = create_app(Service(Gate(ScriptedModel([]))))
        await app({"type": "websocket", "path": "/", "headers": []}, lambda: None, send)

    asyncio.run(main())
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_an_event_that_cannot_be_said_in_json_is_said_as_far_as_it_goes() -> None:
    run = run_of()
    result = ToolResult(call_id="c", name="t", status="finished", value=float("nan"))
    data = wire_of(run, Numbered(1, CallFinished(FunctionCall(name="t", id="c"), result)))
    told = json.loads(data.split(b"data: ")[1])
    assert told["type"] == "call_finished"
    assert "nan" in told["unreadable"]


def test_a_stream_that_has_fallen_behind_ends_with_an_error_event() -> None:
    sent = []

    async def main() -> None:
        run = run_of(*[TextDelta("x")] * (EVENTS_MAX + 5))
        run.start()
        await run.done.wait()

        async def send(message):
            sent.append(message)

        await EventStream(run, ServiceOptions())({"type": "http"}, asyncio.Event().wait, send)

    asyncio.run(main())
    assert b'"error":"events_gone"' in sent[-1]["body"]
    assert sent[-1]["more_body"] is False


def test_a_client_that_does_not_read_loses_its_stream_and_the_run_goes_on() -> None:
    async def main() -> None:
        run = run_of(TextDelta("x"), ends=False)
        run.start()

        async def send(message):
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        stream = EventStream(run, ServiceOptions(stalled_s=0.01))
        await asyncio.wait_for(stream({"type": "http"}, asyncio.Event().wait, send), 60)
        assert not run.is_over
        assert run.cancel("enough")
        await run.done.wait()
        assert run.problem["error"] == "cancelled"
        assert not run.cancel("again")

    asyncio.run(main())


def test_a_run_whose_end_was_told_is_not_cancelled_any_more() -> None:
    reply = Reply(text="Done.", calls=[], usage=Usage(), finish_reason="STOP", history=Conversation().history, session="s")

    async def main() -> Run:
        released = asyncio.Event()

        async def work(watch):
            await watch(RunEnded(reply))
            await released.wait()  # The session is given free.
            return reply

        run = Run("s", work, named=True, waits=False)
        run.start()
        await run.settled(10)
        assert run.cancel("Nobody is left.")
        released.set()
        await run.done.wait()
        return run

    run = asyncio.run(main())
    assert run.reply is not None
    assert (run.reply.text, run.problem) == ("Done.", None)
    assert [type(item.event) for item in run.ring] == [RunBegan, RunEnded]


def test_a_store_that_does_not_answer_is_down(serve, monkeypatch) -> None:
    site = serve(Gate(ScriptedModel(["ok"])))

    async def never(session: str, *, start: int = 0):
        await asyncio.Event().wait()

    monkeypatch.setattr("callgate.server.health.STORE_S", 0.01)
    monkeypatch.setattr(site.service.store, "load", never)
    assert site.get("/health").json["store"] == {"state": "down", "error": "no answer within 0.01 s"}


def test_runs_of_keys_are_forgotten_in_time_and_in_number_and_the_keys_after_a_day(monkeypatch) -> None:
    async def main() -> None:
        keys = RequestKeys(MemoryStore())
        runs = []

        async def start(held: ClaimedKey | None) -> Run:
            runs.append(run_of())
            return runs[-1]

        first, _ = await keys.run("k", {"a": 1, "prompt": "x"}, start)
        assert (await keys.run("k", {"a": 1, "prompt": "x"}, start)) == (first, True)
        now = time.monotonic()
        monkeypatch.setattr("callgate.server.idempotency.time.monotonic", lambda: now + 4000)
        with pytest.raises(HttpError, match="another body"):
            await keys.run("k", {"a": 2, "prompt": "x"}, start)
        second, was_there = await keys.run("k", {"a": 1, "prompt": "x"}, start)
        assert (second is first, was_there) == (False, True)  # Nothing was journalled, so it begins.
        monkeypatch.setattr("callgate.server.idempotency.time.monotonic", lambda: now + 90_000)
        assert (await keys.run("k", {"a": 2, "prompt": "x"}, start))[1] is False
        for number in range(KEYS_MAX + 1):
            await keys.run(f"n{number}", {"prompt": "x"}, start)
        assert (await keys.run("n1", {"prompt": "x"}, start))[0] in runs[:-1]
        assert (await keys.run("n0", {"prompt": "x"}, start))[0] is runs[-1]
        assert len(runs) == KEYS_MAX + 5
        with pytest.raises(HttpError):
            await keys.run("", {}, start)

    asyncio.run(main())


def test_models_that_were_asked_for_long_ago_are_let_go() -> None:
    closed = []

    class Closing(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self.name)

    async def main() -> None:
        from callgate.server.providers import Provider, Providers

        providers = Providers({"p": Provider(name="p", open=lambda name: Closing(["ok"], name=name or "x"))})
        async with Service(Gate(ScriptedModel(["ok"], repeat_last=True)), providers=providers) as service:
            await service.gate_for(None, None, "prompted")
            for number in range(GATES_MAX + 2):
                await service.gate_for("p", f"m{number}", None)
            assert closed == ["m0", "m1"]
            assert await service.gate_for(None, None, "auto") is service.gate
            run = await service.start(Ask(prompt="hi", mode="prompted"))
            assert (await run.outcome()).text == "ok"
        assert len(closed) == GATES_MAX + 2

    asyncio.run(main())


def test_the_oldest_runs_are_forgotten(serve, monkeypatch) -> None:
    monkeypatch.setattr("callgate.server.service.ENDED_MAX", 2)
    site = serve(Gate(ScriptedModel(["ok"], repeat_last=True)))
    for number in range(4):
        site.chat({"prompt": "a", "session": f"s{number}"})
    assert [run.session for run in site.service.runs.values()] == ["s2", "s3"]
    assert site.get("/api/v1/sessions/s0/events").error == (410, "run_gone")
    assert site.get("/api/v1/sessions/s3/events").status == 200


def test_an_approval_of_a_session_that_another_holds_is_busy(serve) -> None:
    limits = Limits(session_wait_s=0.01)
    gate = Gate(ScriptedModel([call("add", a=1, b=2), "Done."]), [add], policy=Policy(default="ask"), limits=limits)
    site = serve(gate)
    paused = site.chat({"prompt": "a", "session": "s"}).json
    lease = asyncio.run(gate.store.acquire("s", owner="somebody else"))
    call_id = paused["approvals"][0]["call_id"]
    assert site.post(f"/api/v1/approvals/s/{call_id}", {"answer": "yes"}).error == (409, "session_busy")
    assert site.post("/api/v1/sessions/s/cancel").error == (409, "session_busy")
    assert site.get("/api/v1/sessions/s").json["state"] == "running"
    asyncio.run(gate.store.release(lease))
    assert site.chat({"session": "s", "answers": {call_id: "yes"}}).json["response"] == "Done."


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_failure(serve, caplog) -> None:
    site = serve(Gate(ScriptedModel(["ok"])))
    with site.connect() as connection:
        head = b"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Content-Length: 99\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
    site.until(lambda: not site.server.server_state.connections)
    assert "failed" not in caplog.text


def test_every_error_has_its_status() -> None:
    assert problem_of(HttpError(418, "teapot", "No coffee.")) == {"error": "teapot", "message": "No coffee.", "code": 418}
    assert isinstance(RunFailed(problem_of(ValueError("x"))).problem["code"], int)


def test_a_run_of_the_program_itself_beside_the_service_pauses_where_somebody_must_be_asked() -> None:
    async def main() -> None:
        gate = Gate(ScriptedModel([call("add", a=1, b=2), "Done."]), [add], policy=Policy(default="ask"))
        async with Service(gate):
            assert (await gate.run("Add.")).finish_reason == "approval_needed"

    asyncio.run(main())


def test_a_gate_that_has_somebody_to_ask_goes_on_asking_them(serve) -> None:
    async def approve(call, definition, reason):
        return "yes"

    gate = Gate(ScriptedModel([call("add", a=1, b=2), "Done."]), [add], policy=Policy(default="ask"), approve=approve)
    assert serve(gate).chat({"prompt": "Add."}).json["response"] == "Done."


def test_a_run_that_is_over_keeps_neither_its_request_nor_the_conversation(serve) -> None:
    site = serve(Gate(ScriptedModel(["Hi."], repeat_last=True)))
    assert site.chat({"prompt": "x" * 1_000_000, "session": "s"}).status == 200
    run = site.service.run_of("s")
    assert run is not None
    kept = pickle.dumps([run.reply, [item.event for item in run.ring]])
    assert len(kept) < 10_000
    assert len(site.get("/api/v1/sessions/s").json["contents"]) == 2


def test_runs_that_are_over_are_forgotten_by_their_bytes(serve, monkeypatch) -> None:
    monkeypatch.setattr("callgate.server.service.ENDED_BYTES", 50_000)
    site = serve(Gate(ScriptedModel(["y" * 20_000], repeat_last=True)))
    for number in range(6):
        assert site.chat({"prompt": "a", "session": f"s{number}"}).status == 200
    assert [name for name in range(6) if site.service.run_of(f"s{name}")] == [5]


def test_events_are_kept_by_their_bytes(monkeypatch) -> None:
    monkeypatch.setattr("callgate.server.runs.EVENTS_BYTES", 1_000)
    run = run_of()
    for _ in range(10):
        run.add(TextDelta("x" * 300))
    assert (len(run.ring), run.first, run.last) == (2, 9, 10)


def test_a_session_of_any_name_and_size_does_not_slow_the_health_down(serve, monkeypatch) -> None:
    site = serve(Gate(ScriptedModel(["Hi."], repeat_last=True)), token="a-token-of-some-length-1234")
    mine = {"Authorization": "Bearer a-token-of-some-length-1234"}
    assert site.chat({"prompt": "x" * 1_000_000, "session": "health-probe"}, **mine).status == 200
    read: list[int] = []
    load = site.service.store.load

    async def counting(session: str, *, start: int = 0):
        found = await load(session, start=start)
        read.append(len(found))
        return found

    monkeypatch.setattr(site.service.store, "load", counting)
    for _ in range(5):
        assert site.get("/health").json == {"status": "healthy"}
    assert sum(read) == 0
    assert len(read) < 5
