"""Approvals at any process: two services share a store, one waits, and the other is asked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Limits, Policy, ScriptedModel, tool
from callgate.server import Service, ServiceOptions
from callgate.testing import call

from .conftest import Answer, Site, serving

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
