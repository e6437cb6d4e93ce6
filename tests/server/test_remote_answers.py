"""Approvals at any process: two services share a store, one waits, and the other is asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Limits, Policy, ScriptedModel, tool
from callgate.server import Service, ServiceOptions, remote_answers
from callgate.testing import call

from .conftest import Answer, Site, Slow, serving

Pair = Callable[..., tuple[Site, Site]]


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def pair(tmp_path: Path, ran: list[str]) -> Iterator[Pair]:
    """`pair(model, **options)`: two services that share their sessions."""

    @tool
    def delete(path: str) -> str:
        """Deletes a file."""
        ran.append(path)
        return "deleted"

    with contextlib.ExitStack() as stack:

        def start(*script: Any, **options: Any) -> tuple[Site, Site]:
            limits = Limits(session_wait_s=0.2)
            gates = [
                Gate(
                    ScriptedModel(script),
                    [delete],
                    policy=Policy(default="ask"),
                    store=str(tmp_path / "sessions.db"),
                    limits=limits,
                )
                for _ in range(2)
            ]
            services = [Service(gate, options=ServiceOptions(stop_s=2.0, **options)) for gate in gates]
            first, second = (stack.enter_context(serving(service)) for service in services)
            return first, second

        yield start


def answer(site: Site, call_id: str, **body: Any) -> Answer:
    return site.post(f"/api/v1/approvals/s/{call_id}", body)


@pytest.mark.parametrize(
    ("body", "paths"),
    [({"answer": "no", "message": "not that one"}, []), ({"answer": "yes"}, ["a"]),
     ({"answer": "yes", "arguments": {"path": "b"}}, ["b"])],
)  # fmt: skip
def test_an_answer_at_another_process_is_heard_where_the_call_waits(pair, ran, body, paths) -> None:
    here, there = pair(call("delete", path="a"), "Over.")
    with here.stream_chat({"prompt": "delete it", "session": "s"}) as events:
        call_id = events.until("approval_needed")["call"]["id"]
        (listed,) = there.get("/api/v1/approvals").json["approvals"]
        assert (listed["call_id"], listed["call"]["args"]) == (call_id, {"path": "a"})
        given = answer(there, call_id, **body)
        assert (given.status, given.json["run"]) == (200, None)
        assert events.until("run_ended")["reply"]["text"] == "Over."
    assert ran == paths
    for site in (here, there):
        assert answer(site, call_id, answer="yes").error == (404, "not_waiting")
        assert site.get("/api/v1/approvals").json["approvals"] == []
    assert ran == paths


def test_of_many_answers_at_both_processes_exactly_one_counts(pair, ran) -> None:
    here, there = pair(call("delete", path="a"), "Over.")
    with here.stream_chat({"prompt": "delete it", "session": "s"}) as events:
        call_id = events.until("approval_needed")["call"]["id"]
        given: list[tuple[str, int]] = []

        def give(site: Site, word: str) -> None:
            given.append((word, answer(site, call_id, answer=word).status))

        threads = [
            threading.Thread(target=give, args=(site, word)) for site in (here, there, there) for word in ("yes", "no")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events.until("run_ended")
    (word,) = [word for word, status in given if status == 200]
    assert {status for _, status in given} <= {200, 404, 409}
    assert ran == (["a"] if word == "yes" else [])


def test_an_answer_to_a_paused_session_that_another_process_takes_up_is_not_lost(pair, ran) -> None:
    here, there = pair(call("delete", path="a"), "Over.", "More.")
    paused = here.chat({"prompt": "delete it", "session": "s"})
    (waiting,) = paused.json["approvals"]
    assert answer(there, waiting["call_id"], answer="no").status == 200
    there.until(lambda: not there.service.live)
    assert ran == []
    assert answer(here, waiting["call_id"], answer="yes").error == (404, "not_waiting")


def test_an_edit_that_does_not_fit_is_refused_and_uses_nothing_up(pair, ran) -> None:
    here, there = pair(call("delete", path="a"), "Over.")
    with here.stream_chat({"prompt": "delete it", "session": "s"}) as events:
        call_id = events.until("approval_needed")["call"]["id"]
        for site in (here, there):
            for wrong in ({"path": 1}, {}, {"path": "a", "more": True}):
                given = answer(site, call_id, answer="yes", arguments=wrong)
                assert given.error == (422, "invalid_arguments"), (wrong, given.body)
        assert answer(there, call_id, answer="yes", arguments={"path": "c"}).status == 200
        events.until("run_ended")
    assert ran == ["c"]


def test_an_edit_that_does_not_fit_leaves_a_paused_call_waiting(pair, ran) -> None:
    here, there = pair(call("delete", path="a"), "Over.")
    (waiting,) = here.chat({"prompt": "delete it", "session": "s"}).json["approvals"]
    wrong = {"answer": "yes", "arguments": {"path": []}}
    assert answer(there, waiting["call_id"], **wrong).error == (422, "invalid_arguments")
    assert here.chat({"session": "s", "answers": {waiting["call_id"]: wrong}}).error == (422, "invalid_arguments")
    assert here.chat({"session": "s", "answers": {waiting["call_id"]: "yes"}}).status == 200
    assert ran == ["a"]


# Cancelling ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def busy(tmp_path: Path, slow: Slow) -> Iterator[tuple[Site, Site]]:
    """Two services that share their sessions, with a tool that takes its time."""
    with contextlib.ExitStack() as stack:
        store, limits = str(tmp_path / "sessions.db"), Limits(session_wait_s=0.2)
        gates = [Gate(ScriptedModel([call("slow"), "Over."]), [slow.tool], store=store, limits=limits) for _ in range(2)]
        options = ServiceOptions(stop_s=2.0)
        first, second = (stack.enter_context(serving(Service(gate, options=options))) for gate in gates)
        yield first, second


def test_a_run_is_cancelled_at_another_process(busy: tuple[Site, Site], slow: Slow) -> None:
    here, there = busy
    with here.stream_chat({"prompt": "Go.", "session": "s"}) as events:
        assert slow.started.wait(60)
        cancelled = there.post("/api/v1/sessions/s/cancel")
        assert (cancelled.status, cancelled.json) == (200, {"cancelled": True, "run": None})
        assert events.until("run_ended")["reply"]["finish_reason"] == "cancelled"
    assert slow.states == ["cancelled"]
    assert there.get("/api/v1/sessions/s").json["exchanges"][-1]["finish_reason"] == "cancelled"
    assert there.post("/api/v1/sessions/s/cancel").json == {"cancelled": False, "run": None}


@pytest.mark.parametrize(
    ("place", "path"), [("/v1/responses", "/v1/responses"), ("/v1beta/interactions", "/v1beta/interactions")]
)
def test_an_answer_in_the_background_is_cancelled_at_another_process(
    busy: tuple[Site, Site], slow: Slow, place: str, path: str
) -> None:
    here, there = busy
    made = here.post(path, {"model": "callgate", "input": "Go.", "background": True}).json
    assert slow.started.wait(60)
    followed = there.get(f"{place}/{made['id']}?stream=true")
    assert (followed.status, followed.json["error"]["code"]) == (409, "session_busy")
    assert f"process {os.getpid()} on " in followed.json["error"]["message"]
    assert there.post(f"{place}/{made['id']}/cancel").json["status"] == "cancelled"
    here.until(lambda: not here.service.live, "the end of the run")
    assert there.get(f"{place}/{made['id']}").json["status"] == "cancelled"


def test_the_events_of_a_run_elsewhere_are_refused_with_the_place_where_they_are(
    busy: tuple[Site, Site], slow: Slow
) -> None:
    here, there = busy
    with here.stream_chat({"prompt": "Go.", "session": "s"}) as events:
        assert slow.started.wait(60)
        refused = there.get("/api/v1/sessions/s/events")
        assert refused.error == (409, "session_busy")
        assert f"process {os.getpid()} on " in refused.json["message"]
        slow.go.set()
        assert events.until("run_ended")["reply"]["text"] == "Over."
    here.until(lambda: not here.service.live, "the end of the run")
    assert there.get("/api/v1/sessions/s/events").error == (410, "run_gone")


def test_a_front_end_that_resumes_a_run_elsewhere_is_refused_with_the_place_where_it_is(
    busy: tuple[Site, Site], slow: Slow
) -> None:
    here, there = busy
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Go."}]}
    with here.stream("POST", "/api/v1/ui/chat", {"id": "one", "messages": [message]}):
        assert slow.started.wait(60)
        refused = there.get("/api/v1/ui/chat/one/stream")
        assert refused.error == (409, "session_busy")
        assert f"process {os.getpid()} on " in refused.json["message"]
        slow.go.set()
        here.until(lambda: not here.service.live, "the end of the run")
    assert there.get("/api/v1/ui/chat/one/stream").status == 204


def test_a_cancellation_that_nobody_hears_is_withdrawn_and_spares_the_next_run(
    busy: tuple[Site, Site], slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = busy
    monkeypatch.setattr(remote_answers, "GIVE_UP_S", 0.0)
    monkeypatch.setattr(here.service.remote_answers, "_cancel_local", never)
    with here.stream_chat({"prompt": "Go.", "session": "s"}) as events:
        assert slow.started.wait(60)
        refused = there.post("/api/v1/sessions/s/cancel")
        assert refused.error == (409, "session_busy")
        assert "the cancellation does not reach it" in refused.json["message"]
        slow.go.set()
        assert events.until("run_ended")["reply"]["finish_reason"] == "STOP"
    assert there.on_loop(lambda: there.service.remote_answers.is_shared)
    left = asyncio.run_coroutine_threadsafe(there.service.store.waiting_answers(), there.loop).result(60)
    assert left == []


async def never(*args: Any) -> None:
    """Hear nothing."""
