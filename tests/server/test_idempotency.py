"""Idempotency keys: a retried request, to another process too, is one run with one answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Limits, Policy, Reply, ScriptedModel, tool
from callgate.errors import ServerUnavailableError, StoreError
from callgate.machine.facts import (
    CallEnded,
    CallStarted,
    Fact,
    HistoryGiven,
    ModelAnswered,
    ModelFailed,
    Rewound,
    RunStarted,
)
from callgate.run.idempotency import AlreadyStartedError, IdempotencyKey
from callgate.run.run_request import new_request
from callgate.server.app import create_app
from callgate.server.idempotency import ClaimedKey, RequestKeys
from callgate.server.runs import Run
from callgate.sessions import exchanges_of
from callgate.store import Claim, MemoryStore, Store
from callgate.testing import call

from .conftest import Site, Slow
from .test_runs import hang_up, start_chat

BODY = {"prompt": "Pay five.", "session": "s"}
SHORT = Limits(session_wait_s=0.02)
SAME = ("response", "tool_calls", "tool_results", "session")


def payer(request: Any) -> Any:
    """Asks for the payment, and says what came of it."""
    newest = request.contents[-1]["parts"][0]
    return "It is done." if "functionResponse" in newest else call("pay", amount=5)


class Till:
    """Two tools that note what they were asked to do."""

    def __init__(self, *, idempotent: bool = False) -> None:
        self.paid: list[int] = []

        @tool(idempotent=idempotent)
        def pay(amount: int) -> str:
            """Pays."""
            self.paid.append(amount)
            return "paid"

        self.pay = pay

    def gate(self, store: Store | str, *, policy: Policy | None = None) -> Gate:
        return Gate(ScriptedModel([payer], repeat_last=True), [self.pay], store=store, limits=SHORT, policy=policy)


@pytest.fixture
def stores(tmp_path: Path) -> Callable[[], str]:
    """The place of the store that each of several services opens, and closes at its end."""
    return lambda: str(tmp_path / "sessions.db")


def do(work: Any) -> Any:
    """What comes of something asynchronous."""
    return asyncio.run(asyncio.wait_for(work, 30))


# Every endpoint ----------------------------------------------------------------------------------------------------------

SAID = "Pay five."
RUNS: dict[str, Any] = {
    "/api/v1/chat": {"prompt": SAID},
    "/api/v1/ui/chat": {"id": "c", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": SAID}]}]},
    "/v1/chat/completions": {"model": "callgate", "messages": [{"role": "user", "content": SAID}]},
    "/v1/responses": {"model": "callgate", "input": SAID},
    "/v1/messages": {"model": "callgate", "max_tokens": 99, "messages": [{"role": "user", "content": SAID}]},
    "/{version}/interactions": {"model": "callgate", "input": SAID},
    "/{version}/models/{model:path}:generateContent": {"contents": [{"role": "user", "parts": [{"text": SAID}]}]},
    "/{version}/models/{model:path}:streamGenerateContent": {"contents": [{"role": "user", "parts": [{"text": SAID}]}]},
}
"""Endpoint that runs -> a request to it."""
NO_RUNS = {
    "/api/v1/sessions/{id}/cancel", "/api/v1/sessions/{id}/fork", "/api/v1/sessions/{id}/undo", "/api/v1/files",
    "/api/v1/files/{upload}", "/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1/responses/{response}/cancel",
    "/v1/embeddings", "/{version}/models/{model:path}:countTokens", "/{version}/models/{model:path}:embedContent",
    "/{version}/models/{model:path}:batchEmbedContents", "/{version}/interactions/{interaction}/cancel",
    "/api/v1/questions/{session}/{question}", "/api/v1/approvals/{session}/{call_id}",
}  # fmt: skip
"""Endpoints that take something and begin no run, or, for the last one, just once by the call that they name."""


def test_every_endpoint_that_runs_is_carried_out_once_for_its_key(serve) -> None:
    till = Till()
    site = serve(till.gate(MemoryStore()))
    posts = [
        operation
        for route in create_app(site.service).routes
        for operation in getattr(route, "operations", ())
        if operation.method == "POST"
    ]
    versions = {
        "/v1beta/": "/{version}/",
        "/v1/models/": "/{version}/models/",
        "/v1/interactions": "/{version}/interactions",
    }

    def kind(path: str) -> str:
        found = next((given for given in versions if path.startswith(given)), None)
        return path if found is None else versions[found] + path.removeprefix(found)

    assert {kind(one.path) for one in posts if one.runs} == set(RUNS)
    assert {kind(one.path) for one in posts if not one.runs} == NO_RUNS
    for operation in posts:
        if not operation.runs:
            continue
        path, body = operation.path.replace("{model:path}", "callgate"), RUNS[kind(operation.path)]
        given = [site.post(path, body, Idempotency_Key=f"key of {path}") for _ in range(2)]
        assert [(one.status, one.headers.get("idempotent-replayed")) for one in given] == [(200, None), (200, "true")], path
        assert till.paid == [5], path
        till.paid.clear()


def test_an_approval_in_the_messages_of_a_front_end_is_carried_out_once_for_its_key(serve) -> None:
    till = Till()
    site = serve(till.gate(MemoryStore(), policy=Policy(default="ask")))
    said = {"id": "1", "role": "user", "parts": [{"type": "text", "text": SAID}]}
    asked = site.post("/api/v1/ui/chat", {"id": "c", "messages": [said]}, Idempotency_Key="a")
    lines = [json.loads(line[6:]) for line in asked.body.decode().splitlines() if line.startswith("data: {")]
    (call_id,) = [line["toolCallId"] for line in lines if line["type"] == "tool-approval-request"]
    part = {"type": "dynamic-tool", "toolName": "pay", "toolCallId": call_id, "state": "approval-responded",
            "input": {"amount": 5}, "approval": {"id": call_id, "approved": True}}  # fmt: skip
    body = {"id": "c", "messages": [said, {"id": "2", "role": "assistant", "parts": [part]}]}
    given = [site.post("/api/v1/ui/chat", body, Idempotency_Key="b") for _ in range(2)]
    assert [(one.status, one.headers.get("idempotent-replayed")) for one in given] == [(200, None), (200, "true")]
    assert [one.body.count(b"tool-output-available") for one in given] == [1, 1]
    assert till.paid == [5]


# A run that is over ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [BODY, {"prompt": "Pay five."}], ids=["named", "anonymous"])
def test_the_answer_of_another_process_comes_from_the_journal_of_its_session(serve, stores, body) -> None:
    till = Till()
    first, second = (serve(till.gate(stores())) for _ in range(2))
    told = first.chat(body, Idempotency_Key="k")
    assert "idempotent-replayed" not in told.headers
    for _ in range(2):
        again = second.chat(body, Idempotency_Key="k")
        assert again.headers["idempotent-replayed"] == "true"
        assert [again.json[field] for field in SAME] == [told.json[field] for field in SAME]
        kept = {field: told.json["metadata"][field] for field in told.json["metadata"] if field not in ("run", "duration_s")}
        assert kept.items() <= again.json["metadata"].items()
    with second.stream_chat(body, Idempotency_Key="k") as stream:
        events = list(stream)
        assert stream.headers["idempotent-replayed"] == "true"
    assert [event["type"] for event in events] == [
        "run_started", "call_proposed", "call_finished", "text_delta", "run_ended",
    ]  # fmt: skip
    assert (events[0]["session"], events[2]["result"]["value"]) == (told.json["session"], "paid")
    assert events[-1]["reply"]["text"] == events[3]["text"] == "It is done."
    assert till.paid == [5]
    assert len(first.get("/api/v1/sessions").json["sessions"]) == 1


def test_the_same_key_with_another_body_is_refused_everywhere(serve, stores) -> None:
    till = Till()
    first, second = (serve(till.gate(stores())) for _ in range(2))
    assert first.chat(BODY, Idempotency_Key="k").status == 200
    other = BODY | {"prompt": "Pay six."}
    for site in (first, second):
        assert site.chat(other, Idempotency_Key="k").error == (409, "idempotency_mismatch")
    assert till.paid == [5]


def test_a_key_stands_for_its_own_run_not_for_the_newest_of_its_session(serve, stores) -> None:
    models = [ScriptedModel(["One."]), ScriptedModel(["Two."])]
    first, second = (serve(Gate(model, store=stores())) for model in models)
    assert first.chat({"prompt": "1", "session": "s"}, Idempotency_Key="k1").json["response"] == "One."
    assert second.chat({"prompt": "2", "session": "s"}, Idempotency_Key="k2").json["response"] == "Two."
    assert second.chat({"prompt": "1", "session": "s"}, Idempotency_Key="k1").json["response"] == "One."
    assert first.chat({"prompt": "2", "session": "s"}, Idempotency_Key="k2").json["response"] == "Two."


def test_a_session_that_another_process_deletes_has_no_answer_any_more_where_it_ran(serve, stores) -> None:
    till = Till()
    first, second = (serve(till.gate(stores())) for _ in range(2))
    session = first.chat({"prompt": "Pay five."}, Idempotency_Key="k").json["session"]
    assert second.request("DELETE", f"/api/v1/sessions/{session}").status == 200
    assert first.chat({"prompt": "Pay five."}, Idempotency_Key="k").error == (410, "run_gone")
    assert till.paid == [5]


def test_a_session_that_was_deleted_has_no_answer_any_more_and_nothing_runs_again(serve, stores) -> None:
    till = Till()
    first, second = (serve(till.gate(stores())) for _ in range(2))
    assert first.chat(BODY, Idempotency_Key="k").status == 200
    assert first.request("DELETE", "/api/v1/sessions/s").status == 200
    assert second.chat(BODY, Idempotency_Key="k").error == (410, "run_gone")
    assert first.chat(BODY, Idempotency_Key="k").error == (410, "run_gone")
    assert till.paid == [5]


def test_a_key_whose_run_never_began_can_be_used_again_elsewhere_and_with_another_body(serve, stores) -> None:
    failing = Gate(ScriptedModel([ServerUnavailableError("down")]), store=stores())
    first, second = serve(failing), serve(Gate(ScriptedModel(["Fine.", "Good."]), store=stores()))
    assert first.chat(BODY, Idempotency_Key="k").error == (502, "model_unavailable")
    assert second.chat({"prompt": "Hi.", "session": "t"}, Idempotency_Key="k").json["response"] == "Fine."
    assert first.chat(BODY | {"provider": "nobody"}, Idempotency_Key="k2").status == 422
    assert second.chat(BODY, Idempotency_Key="k2").json["response"] == "Good."


# A run that goes on elsewhere --------------------------------------------------------------------------------------------


def test_who_repeats_a_request_waits_for_the_run_elsewhere_and_gets_its_answer(serve, stores, slow: Slow) -> None:
    gates = [Gate(ScriptedModel([call("slow"), "Slept."]), [slow.tool], store=stores(), limits=SHORT) for _ in range(2)]
    first, second = (serve(gate) for gate in gates)
    body = {"prompt": "Sleep."}
    with ThreadPoolExecutor(2) as clients:
        told = clients.submit(partial(first.chat, body, Idempotency_Key="k"))
        assert slow.started.wait(60)
        again = clients.submit(partial(second.chat, body, Idempotency_Key="k"))
        second.until(lambda: second.service.live, "the wait")
        with second.stream_chat(body, Idempotency_Key="k") as stream:
            assert stream.next()["type"] == "run_started"
            slow.go.set()
            assert stream.until("run_ended")["reply"]["text"] == "Slept."
        assert again.result(20).json["response"] == told.result(20).json["response"] == "Slept."
        assert again.result().headers["idempotent-replayed"] == "true"
    assert slow.states == ["finished"]


def test_who_waits_too_long_is_told_to_come_back(serve, stores, slow: Slow) -> None:
    gates = [Gate(ScriptedModel([call("slow"), "Slept."]), [slow.tool], store=stores(), limits=SHORT) for _ in range(2)]
    first, second = serve(gates[0]), serve(gates[1], repeat_s=0.05)
    with ThreadPoolExecutor(1) as clients:
        told = clients.submit(partial(first.chat, BODY, Idempotency_Key="k"))
        assert slow.started.wait(60)
        refused = second.chat(BODY, Idempotency_Key="k")
        assert refused.error == (409, "idempotency_in_progress")
        assert refused.headers["retry-after"] == "5"
        assert second.chat({"prompt": "Hi.", "session": "s"}, Idempotency_Key="k2").error == (409, "session_busy")
        slow.go.set()
        assert told.result(20).status == 200
    assert second.chat(BODY, Idempotency_Key="k").json["response"] == "Slept."
    assert second.chat({"prompt": "Hi.", "session": "s"}, Idempotency_Key="k2").status == 200


def test_a_client_with_a_key_may_leave_and_come_back_without_having_named_a_session(serve, slow: Slow) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "Slept."]), [slow.tool]))
    body = '{"prompt": "Sleep."}'
    connection = start_chat(site, body, "*/*\r\nIdempotency-Key: k")
    assert slow.started.wait(60)
    hang_up(connection)
    site.until(lambda: site.service.live[0]._leaving, "the leave")
    with ThreadPoolExecutor(1) as clients:
        again = clients.submit(partial(site.chat, body.encode(), Idempotency_Key="k"))
        site.until(lambda: not site.service.live[0]._leaving, "the return")
        slow.go.set()
        assert again.result(20).json["response"] == "Slept."
    assert slow.states == ["finished"]


def test_a_run_is_kept_going_for_who_asks_for_it_elsewhere_and_stopped_when_nobody_does(serve, stores, slow: Slow) -> None:
    gates = [Gate(ScriptedModel([call("slow"), "Slept."]), [slow.tool], store=stores(), limits=SHORT) for _ in range(2)]
    first, second = serve(gates[0], linger_s=0.3), serve(gates[1], repeat_s=0)
    asked: list[bool] = []
    is_asked_for = first.service.keys.is_asked_for

    async def noted(claim: Claim) -> bool:
        asked.append(await is_asked_for(claim))
        return asked[-1]

    first.service.keys.is_asked_for = noted  # type: ignore[method-assign]
    connection = start_chat(first, '{"prompt": "Sleep."}', "*/*\r\nIdempotency-Key: k")
    assert slow.started.wait(60)
    assert second.chat({"prompt": "Sleep."}, Idempotency_Key="k").error == (409, "idempotency_in_progress")
    hang_up(connection)
    first.until(lambda: slow.states == ["cancelled"] and not first.service.live, "the end")
    assert asked == [True, False]
    told = second.chat({"prompt": "Sleep."}, Idempotency_Key="k")
    assert told.json["metadata"]["finish_reason"] == "cancelled"


class Late:
    """A store whose leases come late."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked, self.go = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def acquire(self, session: str, **options: Any) -> Any:
        self.asked.set()
        while not self.go.is_set():  # noqa: ASYNC110 - the flag is set by another thread
            await asyncio.sleep(0.005)
        return await self._store.acquire(session, **options)


def test_whoever_has_the_session_first_runs_it_and_the_other_tells_the_same(serve) -> None:
    till, store = Till(), MemoryStore()
    slow_store: Any = Late(store)
    first, second = serve(till.gate(slow_store)), serve(till.gate(store))
    with ThreadPoolExecutor(1) as clients:
        late = clients.submit(partial(first.chat, BODY, Idempotency_Key="k"))
        assert slow_store.asked.wait(60)
        told = second.chat(BODY, Idempotency_Key="k")
        slow_store.go.set()
        assert [late.result(20).json[field] for field in SAME] == [told.json[field] for field in SAME]
    assert till.paid == [5]
    assert len(exchanges_of(do(store.load("s")))) == 1


# A run whose process died ------------------------------------------------------------------------------------------------


def later(gate: Gate) -> Gate:
    """The gate, with nobody there who could answer."""
    gate.approve = lambda call, definition, reason: "later"
    return gate


def run_keyed(gate: Gate, prompt: str | None, key: IdempotencyKey) -> Awaitable[Reply]:
    return gate.run_request(new_request(prompt, "s", None, "auto", None, None, key))


def journal_of(till: Till, *, request: str = "r", policy: Policy | None = None) -> list[Fact]:
    """The facts of a whole run, or of one up to where somebody must be asked."""

    async def story() -> list[Fact]:
        store = MemoryStore()
        await run_keyed(later(till.gate(store, policy=policy)), "Pay five.", IdempotencyKey(request))
        return await store.load("s")

    facts = do(story())
    till.paid.clear()
    return facts


def died(store: Any, body: dict[str, Any], key: str, facts: Sequence[Fact], *, before: Sequence[Fact] = ()) -> str:
    """What a process leaves behind that has claimed the key and died when so much was journalled; gives the session."""

    async def write(session: str, new: Sequence[Fact]) -> None:
        lease = await store.acquire(session, owner="dead")
        if new:
            await store.append(lease, new, position=lease.position)
        await store.release(lease)

    async def story() -> str:
        sessions: list[str] = []

        async def start(held: ClaimedKey | None) -> Run:
            assert held is not None
            assert held.is_first
            sessions.append(held.claim.session)
            marks = {"r": held.claim.run}
            await write(sessions[0], [_marked(fact, marks) for fact in facts])
            return Run(sessions[0], lambda watch: asyncio.sleep(0), named=True, waits=False)  # type: ignore[arg-type, return-value]

        if before:
            await write(body["session"], before)
        await RequestKeys(store).run(key, body, start)
        return sessions[0]

    return do(story())


def _marked(fact: Fact, marks: dict[str, str]) -> Fact:
    return replace(fact, request=marks.get(fact.request or "")) if isinstance(fact, RunStarted) else fact


@pytest.mark.parametrize("idempotent", [False, True], ids=["pays-once", "may-pay-twice"])
def test_a_repeated_request_goes_on_wherever_its_process_died(serve, idempotent: bool) -> None:
    till, store = Till(idempotent=idempotent), MemoryStore()
    facts = journal_of(till)
    started, ended = (next(i for i, fact in enumerate(facts) if isinstance(fact, kind)) for kind in (CallStarted, CallEnded))
    site: Site = serve(till.gate(store))
    for cut in range(len(facts) + 1):
        till.paid.clear()
        is_streamed = cut % 2 == 0
        session = died(store, {"prompt": "Pay five."}, f"k{cut}", facts[:cut])
        if is_streamed:
            with site.stream_chat({"prompt": "Pay five."}, Idempotency_Key=f"k{cut}") as stream:
                reply = stream.until("run_ended")["reply"]
            said, (record,) = reply["text"], reply["calls"]
            is_error = record["state"] != "finished"
        else:
            told = site.chat({"prompt": "Pay five."}, Idempotency_Key=f"k{cut}").json
            said, is_error = told["response"], told["tool_results"][0]["is_error"]
        was_running = started < cut <= ended
        assert said == "It is done."
        assert is_error == (was_running and not idempotent), "nobody knows what became of it"
        assert till.paid == ([5] if cut <= started or (was_running and idempotent) else []), cut
        assert len(exchanges_of(do(store.load(session)))) == 1
        again = site.chat({"prompt": "Pay five."}, Idempotency_Key=f"k{cut}")
        assert (again.json["response"], again.json["session"]) == (said, session)


def test_two_that_repeat_a_request_of_a_dead_process_go_on_once(serve) -> None:
    till, store = Till(idempotent=True), MemoryStore()
    facts = journal_of(till)
    cut = next(i for i, fact in enumerate(facts) if isinstance(fact, CallEnded))
    sites = [serve(till.gate(store)) for _ in range(3)]
    died(store, BODY, "k", facts[:cut])
    with ThreadPoolExecutor(6) as clients:
        told = [clients.submit(partial(site.chat, BODY, Idempotency_Key="k")) for site in sites * 2]
        assert {answer.result(20).json["response"] for answer in told} == {"It is done."}
    assert till.paid == [5]
    assert len(exchanges_of(do(store.load("s")))) == 1


def test_a_run_that_failed_before_anything_happened_begins_again(serve) -> None:
    till, store = Till(), MemoryStore()
    site = serve(till.gate(store))
    died(store, BODY, "k", [*journal_of(till)[:2], ModelFailed(message="down")])
    assert site.chat(BODY, Idempotency_Key="k").json["response"] == "It is done."
    assert till.paid == [5]
    assert len(exchanges_of(do(store.load("s")))) == 1


def test_a_run_that_failed_in_the_middle_is_told_as_failed(serve) -> None:
    till, store = Till(), MemoryStore()
    site = serve(till.gate(store))
    facts = journal_of(till)
    assert isinstance(facts[-1], ModelAnswered)
    died(store, BODY, "k", [*facts[:-1], ModelFailed(message="The line is dead.")])
    for _ in range(2):
        refused = site.chat(BODY, Idempotency_Key="k")
        assert refused.error == (502, "model_error")
        assert "The line is dead." in refused.json["message"]
    with site.stream_chat(BODY, Idempotency_Key="k") as stream:
        assert [event["type"] for event in stream] == ["run_started", "call_proposed", "call_finished", "error"]
    assert till.paid == []


def test_what_a_dead_process_did_is_not_done_again_when_going_on_fails_at_once(serve) -> None:
    till, store = Till(), MemoryStore()
    facts = journal_of(till)
    died(store, BODY, "k", facts[: next(i for i, fact in enumerate(facts) if isinstance(fact, CallEnded)) + 1])
    broken = Gate(ScriptedModel([ServerUnavailableError("down")]), [till.pay], store=store)
    assert serve(broken).chat(BODY, Idempotency_Key="k").error == (502, "model_unavailable")
    assert serve(till.gate(store)).chat(BODY, Idempotency_Key="k").error == (502, "model_error")
    assert till.paid == []
    assert len(exchanges_of(do(store.load("s")))) == 1


def test_an_interrupted_run_that_the_session_has_left_behind_is_not_taken_up(serve) -> None:
    till, store = Till(), MemoryStore()
    site = serve(till.gate(store))
    facts = journal_of(till)
    cut = next(i for i, fact in enumerate(facts) if isinstance(fact, CallStarted))
    said = RunStarted(content={"role": "user", "parts": [{"text": "Never mind."}]})
    for number, since in enumerate((said, HistoryGiven(contents=[]), Rewound(contents_kept=0))):
        died(store, {"prompt": "Pay five."}, f"k{number}", [*facts[:cut], since])
        refused = site.chat({"prompt": "Pay five."}, Idempotency_Key=f"k{number}")
        assert refused.error == (410, "run_gone")
        assert "gone on without it" in refused.json["message"]
    assert till.paid == []


# Approvals ---------------------------------------------------------------------------------------------------------------

ASK = Policy(default="ask")


def test_a_run_that_waits_is_told_as_waiting_and_a_stream_waits_with_it(serve, stores) -> None:
    till = Till()
    first, second = (serve(till.gate(stores(), policy=ASK)) for _ in range(2))
    paused = first.chat(BODY, Idempotency_Key="k")
    again = second.chat(BODY, Idempotency_Key="k")
    assert (paused.status, again.status) == (202, 202)
    assert again.json["approvals"] == paused.json["approvals"]
    with second.stream_chat(BODY, Idempotency_Key="k") as stream:
        asked = stream.until("approval_needed")
        answered = second.post(f"/api/v1/approvals/s/{asked['call']['id']}", {"answer": "yes"})
        assert answered.status == 200
        assert stream.until("run_ended")["reply"]["text"] == "It is done."
    assert till.paid == [5]
    third = serve(till.gate(stores(), policy=ASK))
    assert third.chat(BODY, Idempotency_Key="k").json["response"] == "It is done.", "the run has gone on since"


def test_a_run_that_has_gone_on_since_it_paused_is_still_the_run_of_its_key(serve, slow: Slow) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "Slept."]), [slow.tool], policy=ASK))
    paused = site.chat(BODY, Idempotency_Key="k")
    (approval,) = paused.json["approvals"]
    assert site.post(f"/api/v1/approvals/s/{approval['call_id']}", {"answer": "yes"}).status == 200
    assert slow.started.wait(60)
    assert site.chat(BODY, Idempotency_Key="k").error == (409, "idempotency_in_progress")
    slow.go.set()
    site.until(lambda: not site.service.live, "the end")
    assert site.chat(BODY, Idempotency_Key="k").json["response"] == "Slept."


def test_answers_with_a_key_are_given_once_wherever_their_process_died(serve) -> None:
    till, store = Till(), MemoryStore()
    paused = journal_of(till, policy=ASK)
    call_id = next(fact.calls[0].id for fact in paused if isinstance(fact, ModelAnswered))

    async def whole() -> list[Fact]:
        kept = MemoryStore()
        lease = await kept.acquire("s", owner="me")
        await kept.append(lease, paused, position=0)
        await kept.release(lease)
        await later(till.gate(kept, policy=ASK)).run(session="s", answers={call_id: "yes"})
        return await kept.load("s", start=len(paused))

    since = do(whole())
    started, ended = (next(i for i, fact in enumerate(since) if isinstance(fact, kind)) for kind in (CallStarted, CallEnded))
    site = serve(till.gate(store, policy=ASK))
    for cut in range(len(since) + 1):
        till.paid.clear()
        body = {"session": f"s{cut}", "answers": {call_id: "yes"}}
        died(store, body, f"k{cut}", since[:cut], before=paused)
        told = site.chat(body, Idempotency_Key=f"k{cut}")
        assert (told.status, told.json["response"]) == (200, "It is done."), cut
        assert told.json["tool_results"][0]["is_error"] == (started < cut <= ended)
        assert till.paid == ([5] if cut <= started else [])
        assert site.chat({"prompt": "More.", "session": f"s{cut}"}).status == 202, "the next turn"
        again = serve(till.gate(store, policy=ASK)) if cut == 0 else site
        assert again.chat(body, Idempotency_Key=f"k{cut}").json["response"] == "It is done."


# Stores ------------------------------------------------------------------------------------------------------------------


class Counted:
    """A store that notes what is asked of it; some of its methods may be missing, or fail."""

    def __init__(self, store: Any, missing: Sequence[str] = ()) -> None:
        self._store = store
        self._missing = missing
        self.asked: list[str] = []
        self.fails = ""

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(name)
        work = getattr(self._store, name)

        async def noted(*args: Any, **options: Any) -> Any:
            self.asked.append(name)
            if self.fails and any(type(fact).__name__ == self.fails for arg in args[1:2] for fact in arg):
                self.fails = ""
                raise StoreError("the disk is on fire")
            return await work(*args, **options)

        return noted


def test_a_request_without_a_key_asks_the_store_for_nothing_more_and_one_with_a_key_for_its_claim(serve) -> None:
    store = Counted(MemoryStore())
    site = serve(Gate(ScriptedModel(["Hi."], repeat_last=True), store=store))
    asked = []
    for number, key in enumerate((None, "k", "k")):
        store.asked.clear()
        told = site.chat({"prompt": "Hi.", "session": f"s{number > 0}"}, Idempotency_Key=key or "")
        assert told.status == 200
        asked.append(list(store.asked))
    plain, first, repeated = asked
    assert plain[0] == "acquire"
    assert not {"claim", "unclaim"} & set(plain)
    assert first == ["claim", *plain]
    assert repeated == ["sessions"]  # Another process may have deleted it.


def test_a_store_without_claims_leaves_them_to_the_process(serve) -> None:
    till = Till()
    site = serve(till.gate(Counted(MemoryStore(), missing=("claim", "unclaim"))))
    first, second = (site.chat(BODY, Idempotency_Key="k") for _ in range(2))
    assert first.json == second.json
    assert second.headers["idempotent-replayed"] == "true"
    assert site.chat(BODY | {"prompt": "Pay six."}, Idempotency_Key="k").error == (409, "idempotency_mismatch")
    assert till.paid == [5]


def test_a_request_whose_run_the_store_broke_off_goes_on_when_it_is_repeated(serve) -> None:
    till, store = Till(), Counted(MemoryStore())
    site = serve(till.gate(store))
    for fails in ("RunStarted", "CallStarted", "CallEnded", "ModelAnswered"):
        till.paid.clear()
        store.fails = fails
        body = {"prompt": "Pay five.", "session": fails}
        assert site.chat(body, Idempotency_Key=fails).error == (503, "store_unavailable")
        assert site.chat(body, Idempotency_Key=fails).json["response"] == "It is done."
        assert till.paid == [5]
        assert len(exchanges_of(do(store.load(fails)))) == 1


def test_a_claim_that_cannot_be_given_free_stays_and_its_request_can_be_repeated(serve, monkeypatch, caplog) -> None:
    store = MemoryStore()

    async def broken(claim: Claim) -> None:
        raise StoreError("the disk is on fire")

    monkeypatch.setattr(store, "unclaim", broken)
    site = serve(Gate(ScriptedModel(["Fine."]), store=store))
    body = BODY | {"provider": "nobody"}
    for _ in range(2):
        assert site.chat(body, Idempotency_Key="k").status == 422
    assert "stays: the disk is on fire" in caplog.text
    died(store, BODY, "k2", [*journal_of(Till())[:2], ModelFailed(message="down")])
    assert site.chat(BODY, Idempotency_Key="k2").error == (409, "idempotency_in_progress")
    monkeypatch.setattr(store, "claim", broken)
    assert do(RequestKeys(store).is_asked_for(Claim(key="k", digest="d", session="s", run="r", owner="o"))) is False
    assert site.chat(BODY, Idempotency_Key="k2").error == (503, "store_unavailable")


def test_a_run_for_a_request_does_not_count_for_what_its_tools_run_elsewhere() -> None:
    async def story() -> None:
        inner = Gate(ScriptedModel(["Inner."], repeat_last=True), store=MemoryStore())

        @tool
        async def pay(amount: int) -> str:
            """Asks another gate, twice."""
            return "".join([(await inner.run("Go.", session="inner")).text for _ in range(2)])

        outer = Gate(ScriptedModel([payer], repeat_last=True), [pay])
        assert (await run_keyed(outer, "Pay.", IdempotencyKey("r"))).calls[0].state == "finished"
        with pytest.raises(AlreadyStartedError, match="before"):
            await run_keyed(outer, "Pay.", IdempotencyKey("r"))
        with pytest.raises(AlreadyStartedError, match="over"):
            await run_keyed(outer, None, IdempotencyKey("r", resumes=True))

    do(story())
