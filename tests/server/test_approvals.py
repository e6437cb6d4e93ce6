"""Calls that need somebody: paused and answered later, or waited for while a stream goes on."""

from __future__ import annotations

import asyncio
import json

import pytest

from callgate import Gate, Policy, ScriptedModel, tool
from callgate.machine.facts import ApprovalAnswered
from callgate.server.approvals import answer_call
from callgate.server.errors import HttpError
from callgate.server.options import ServiceOptions
from callgate.store import MemoryStore
from callgate.testing import call

from .conftest import WAIT_S

ASK = Policy(default="ask")


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def delete(ran: list[str]):
    @tool
    def delete(name: str) -> str:
        """Deletes something."""
        ran.append(name)
        return f"{name} is gone"

    return delete


def script(*names: str) -> ScriptedModel:
    return ScriptedModel([[call("delete", name=name) for name in names], "Done.", "More."])


def test_a_call_that_needs_approval_pauses_with_202_and_all_that_a_person_should_see(serve, delete, ran) -> None:
    site = serve(Gate(script("a"), [delete], policy=ASK))
    answer = site.chat({"prompt": "Delete a."})
    assert answer.status == 202
    assert answer.json["metadata"]["finish_reason"] == "approval_needed"
    (approval,) = answer.json["approvals"]
    assert approval["session"] == answer.json["session"]
    assert approval["call_id"] == answer.json["tool_calls"][0]["id"]
    assert (approval["call"]["name"], approval["call"]["args"]) == ("delete", {"name": "a"})
    assert approval["reason"]
    assert approval["tool"]["description"] == "Deletes something."
    assert site.get("/api/v1/approvals").json == {"approvals": [approval]}
    assert site.get(f"/api/v1/sessions/{approval['session']}").json["state"] == "waiting"
    assert ran == []


def test_answers_in_the_next_chat_request_go_on_with_the_run(serve, delete, ran) -> None:
    site = serve(Gate(script("a", "b", "c"), [delete], policy=ASK))
    paused = site.chat({"prompt": "Delete them."}).json
    a, b, c = (approval["call_id"] for approval in paused["approvals"])
    answers = {
        a: "yes",
        b: {"answer": "no", "message": "b is still needed."},
        c: {"answer": "yes", "arguments": {"name": "d"}},
    }
    answer = site.chat({"session": paused["session"], "answers": answers})
    assert (answer.status, answer.json["response"], sorted(ran)) == (200, "Done.", ["a", "d"])
    first, second, third = answer.json["tool_results"]
    assert (first["content"], third["content"]) == ("a is gone", "d is gone")
    assert second == {
        "tool_call_id": b, "name": "delete", "content": "The user did not allow this call. b is still needed.",
        "is_error": True,
    }  # fmt: skip
    assert answer.json["tool_calls"][2]["arguments"] == {"name": "d"}


def test_an_answer_by_the_approvals_route_goes_on_in_the_background(serve, delete, ran) -> None:
    site = serve(Gate(script("a", "b"), [delete], policy=ASK))
    paused = site.chat({"prompt": "Delete them."}).json
    session = paused["session"]
    for approval in paused["approvals"]:
        told = site.post(f"/api/v1/approvals/{session}/{approval['call_id']}", {"answer": "yes"})
        assert told.status == 200
        site.until(lambda: not site.service.live, "the end of the run")
    assert ran == ["a", "b"]
    shown = site.get(f"/api/v1/sessions/{session}").json
    assert (shown["state"], shown["approvals"]) == ("idle", [])
    assert [record["state"] for record in shown["calls"]] == ["finished", "finished"]
    assert shown["contents"][-1]["parts"] == [{"text": "Done."}]


@pytest.mark.parametrize("route", ["chat", "approvals"])
def test_a_yes_where_the_tool_is_not_there_is_refused_and_the_call_waits_on(serve, delete, ran, tmp_path, route) -> None:
    store = str(tmp_path / "s.db")
    site, other = (serve(Gate(script("a"), tools, policy=ASK, store=store)) for tools in ([delete], []))
    answer = site.chat({"prompt": "Delete a.", "session": "s"})
    (approval,) = answer.json["approvals"]
    if route == "chat":
        refused = other.chat({"session": "s", "answers": {approval["call_id"]: "yes"}})
    else:
        refused = other.post(f"/api/v1/approvals/s/{approval['call_id']}", {"answer": "yes"})
    assert refused.error == (422, "invalid_request"), refused.body
    assert "'delete'" in refused.json["message"]
    assert site.get("/api/v1/approvals").json == {"approvals": [approval]}
    assert site.chat({"session": "s", "answers": {approval["call_id"]: "yes"}}).status == 200
    assert ran == ["a"]


def test_always_is_a_rule_of_the_session_that_shows_and_holds(serve, delete, ran) -> None:
    model = ScriptedModel([call("delete", name="a"), "One.", call("delete", name="a"), "Two."])
    site = serve(Gate(model, [delete], policy=ASK))
    paused = site.chat({"prompt": "Delete a.", "session": "s"}).json
    site.chat({"session": "s", "answers": {paused["approvals"][0]["call_id"]: "always"}})
    assert site.chat({"prompt": "Again.", "session": "s"}).status == 200
    assert ran == ["a", "a"]
    (rule,) = site.get("/api/v1/sessions/s").json["rules"]
    assert rule["tool"] == "delete"


def test_a_stream_waits_for_the_answer_and_then_goes_on(serve, delete, ran) -> None:
    site = serve(Gate(script("a", "b"), [delete], policy=ASK))
    with site.stream_chat({"prompt": "Delete them."}) as stream:
        session = stream.next()["session"]
        first = stream.until("approval_needed")
        (held,) = site.get("/api/v1/approvals").json["approvals"]
        assert held["call_id"] == first["call"]["id"]
        # The second call is not asked about yet, and can be answered all the same.
        waiting = site.get(f"/api/v1/sessions/{session}").json["approvals"]
        second = next(item["call_id"] for item in waiting if item["call_id"] != held["call_id"])
        early = site.post(f"/api/v1/approvals/{session}/{second}", {"answer": "no", "message": "Not b."})
        assert early.status == 200
        answered = site.post(f"/api/v1/approvals/{session}/{held['call_id']}", {"answer": "yes", "arguments": {"name": "z"}})
        assert answered.json["run"] == first["id"].partition(":")[0]
        assert stream.until("run_ended")["reply"]["text"] == "Done."
    assert ran == ["z"]
    assert site.post(f"/api/v1/approvals/{session}/{second}", {"answer": "yes"}).error == (404, "not_waiting")


@pytest.mark.parametrize("path", ["/api/v1/approvals/no-session/c1", "/api/v1/approvals/s/no-call"])
def test_an_answer_that_nothing_waits_for_is_told_so(serve, delete, path) -> None:
    site = serve(Gate(script("a"), [delete], policy=ASK))
    site.chat({"prompt": "a", "session": "s"})
    assert site.post(path, {"answer": "yes"}).status == 404
    assert site.post(path, {"answer": "maybe"}).error == (422, "invalid_request")
    assert site.post(path, {"answer": "no", "arguments": {"name": "x"}}).error == (422, "invalid_request")


def test_an_answer_that_never_comes_pauses_the_run_and_can_still_be_given(serve, delete, ran) -> None:
    site = serve(Gate(script("a"), [delete], policy=ASK), approval_s=0.05)
    with site.stream_chat({"prompt": "Delete a."}) as stream:
        end = stream.until("run_ended")
    assert end["reply"]["finish_reason"] == "approval_needed"
    call_id, session = end["reply"]["approvals"][0]["call"]["id"], end["reply"]["session"]
    assert site.chat({"session": session, "answers": {call_id: "yes"}}).json["response"] == "Done."
    assert ran == ["a"]


def test_a_client_that_leaves_while_it_is_asked_leaves_a_paused_session(serve, delete, ran) -> None:
    site = serve(Gate(script("a"), [delete], policy=ASK), linger_s=0.05)
    with site.stream_chat({"prompt": "Delete a.", "session": "s"}) as stream:
        stream.until("approval_needed")
        stream.close()
    site.until(lambda: not site.service.live, "the end of the run")
    assert site.get("/api/v1/sessions/s").json["state"] == "waiting"
    (approval,) = site.get("/api/v1/approvals").json["approvals"]
    assert site.chat({"session": "s", "answers": {approval["call_id"]: "yes"}}).json["response"] == "Done."
    assert ran == ["a"]


def test_a_follower_of_a_background_run_is_asked_and_waited_for(serve, delete, ran) -> None:
    model = ScriptedModel([call("delete", name="a"), call("delete", name="b"), "Done."])
    site = serve(Gate(model, [delete], policy=ASK))
    with site.stream_chat({"prompt": "Delete.", "session": "s"}) as stream:
        first = stream.until("approval_needed")["call"]["id"]
        with site.stream("GET", "/api/v1/sessions/s/events") as follower:
            assert follower.next()["type"] == "run_started"
            site.post(f"/api/v1/approvals/s/{first}", {"answer": "yes"})
            assert follower.until("approval_needed")["call"]["id"] == first
            second = follower.until("approval_needed")["call"]["id"]
            site.post(f"/api/v1/approvals/s/{second}", {"answer": "yes"})
            assert follower.until("run_ended") == stream.until("run_ended")
    assert ran == ["a", "b"]


def test_the_options_say_how_long_an_answer_is_waited_for() -> None:
    assert ServiceOptions().approval_s == 600.0
    assert "secret" not in repr(ServiceOptions(token="secret"))


def test_a_service_that_stops_pauses_what_waits_and_takes_nothing_new(serve, delete, ran) -> None:
    store = MemoryStore()
    site = serve(Gate(script("a"), [delete], policy=ASK, store=store))
    with site.stream_chat({"prompt": "Delete a.", "session": "s"}) as stream:
        stream.until("approval_needed")
        site.on_loop(site.service.begin_stop)
        assert stream.until("run_ended")["reply"]["finish_reason"] == "approval_needed"
    answer = site.chat({"prompt": "One more."})
    assert answer.error == (503, "stopping")
    assert (answer.headers["retry-after"], answer.headers["connection"]) == ("5", "close")
    health = site.get("/health")
    assert (health.status, health.json["status"], health.json["stopping"]) == (503, "down", True)
    # The next one goes on where this one stopped.
    other = serve(Gate(ScriptedModel(["Done."]), [delete], policy=ASK, store=store))
    (approval,) = other.get("/api/v1/approvals").json["approvals"]
    assert other.chat({"session": "s", "answers": {approval["call_id"]: "yes"}}).status == 200
    assert ran == ["a"]


def test_a_call_that_waits_is_listed_however_many_sessions_came_after_it(serve, delete, monkeypatch) -> None:
    monkeypatch.setattr("callgate.server.approvals.LOOKED_AT_ONCE", 7)
    model = ScriptedModel([[call("delete", name="a")], *(["Hello."] * 250)])
    site = serve(Gate(model, [delete], policy=ASK, store=MemoryStore()))
    assert site.chat({"prompt": "Delete a.", "session": "first"}).json["approvals"]

    async def others() -> None:
        for number in range(250):
            await site.service.gate.run("Hi.", session=f"later-{number}")

    asyncio.run_coroutine_threadsafe(others(), site.loop).result(60)
    for _ in range(2):
        assert [one["session"] for one in site.get("/api/v1/approvals").json["approvals"]] == ["first"]


def test_a_call_that_must_be_confirmed_runs_only_with_the_name_of_what_it_destroys(serve, delete, ran) -> None:
    policy = Policy(rules=[{"verdict": "ask", "tool": "delete", "confirm": "name"}])
    site = serve(Gate(script("orders"), [delete], policy=policy))
    (approval,) = site.chat({"prompt": "Delete it."}).json["approvals"]
    assert approval["confirm"] == "orders"
    assert approval["reason"].endswith("To confirm, type 'orders'.")
    path = f"/api/v1/approvals/{approval['session']}/{approval['call_id']}"
    for body in ({"answer": "yes"}, {"answer": "always"}, {"answer": "yes", "confirm": "order"}):
        refused = site.post(path, body)
        assert (refused.error, ran) == ((422, "not_confirmed"), [])
    assert site.get("/api/v1/approvals").json == {"approvals": [approval]}
    taken = site.post(path, {"answer": "yes", "confirm": "orders"})
    assert taken.status == 200
    site.until(lambda: not site.service.live, "the end of the run")
    assert ran == ["orders"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_in_a_chat_request_without_the_name_is_not_confirmed_and_can_be_given_again(
    serve, delete, ran, stream: bool
) -> None:
    policy = Policy(rules=[{"verdict": "ask", "tool": "delete", "confirm": "name"}])
    site = serve(Gate(script("orders"), [delete], policy=policy))
    (approval,) = site.chat({"prompt": "Delete it.", "session": "s"}).json["approvals"]
    headers = {"Accept": "text/event-stream"} if stream else {}
    for given in ("yes", "always", {"answer": "yes", "confirm": "order"}, {"answer": "yes", "arguments": {"name": "x"}}):
        refused = site.post("/api/v1/chat", {"session": "s", "answers": {approval["call_id"]: given}}, **headers)
        assert (refused.error, ran) == ((422, "not_confirmed"), []), given
    assert site.get("/api/v1/approvals").json == {"approvals": [approval]}
    taken = site.chat({"session": "s", "answers": {approval["call_id"]: {"answer": "yes", "confirm": "orders"}}})
    assert (taken.status, ran) == (200, ["orders"])


def test_clients_of_other_apis_confirm_by_the_reason_of_their_answer(serve, delete, ran) -> None:
    policy = Policy(rules=[{"verdict": "ask", "tool": "delete", "confirm": "name"}])
    site = serve(
        Gate(
            ScriptedModel([call("delete", name="orders"), "Done.", call("delete", name="users"), "Done."]),
            [delete],
            policy=policy,
        )
    )
    asked = site.post("/v1/responses", {"model": "callgate", "input": "Delete it."}).json
    given = {"type": "mcp_approval_response", "approval_request_id": asked["output"][-1]["id"], "approve": True}
    body = {"model": "callgate", "previous_response_id": asked["id"], "input": [given]}
    refused = site.post("/v1/responses", body)
    assert (refused.status, refused.json["error"]["code"], ran) == (400, "not_confirmed", [])
    assert site.post("/v1/responses", body | {"input": [given | {"reason": "orders"}]}).status == 200
    said = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Delete it."}]}
    asked = site.post("/api/v1/ui/chat", {"id": "c", "messages": [said]})
    lines = [json.loads(line[6:]) for line in asked.body.decode().splitlines() if line.startswith("data: {")]
    (call_id,) = [line["toolCallId"] for line in lines if line["type"] == "tool-approval-request"]
    for reason, status in ((None, 422), ("users", 200)):
        approval = {"id": call_id, "approved": True} | ({} if reason is None else {"reason": reason})
        part = {"type": "dynamic-tool", "toolName": "delete", "toolCallId": call_id, "state": "approval-responded",
                "input": {"name": "users"}, "approval": approval}  # fmt: skip
        got = site.post(
            "/api/v1/ui/chat", {"id": "c", "messages": [said, {"id": "2", "role": "assistant", "parts": [part]}]}
        )
        assert got.status == status, got.body
    assert ran == ["orders", "users"]


def test_an_answer_to_a_run_that_is_cancelled_at_that_moment_is_refused(serve, delete, ran) -> None:
    site = serve(Gate(script("a"), [delete], policy=ASK))
    with site.stream_chat({"prompt": "Delete a.", "session": "s", "stream": True}) as stream:
        asked = stream.until("approval_needed")
        run = site.service.run_of("s")
        assert run is not None

        async def cancel_and_answer() -> object:
            run.cancel("Somebody stopped it.")
            answering = answer_call(site.service, "s", asked["call"]["id"], "yes")
            return (await asyncio.gather(answering, return_exceptions=True))[0]

        refused = asyncio.run_coroutine_threadsafe(cancel_and_answer(), site.loop).result(WAIT_S)
        assert isinstance(refused, HttpError), refused
        assert (refused.code, refused.error) == (409, "run_ended")
        stream.until("run_ended")
    assert ran == []
    facts = asyncio.run_coroutine_threadsafe(site.service.facts("s"), site.loop).result(WAIT_S)
    assert not [fact for fact in facts if isinstance(fact, ApprovalAnswered)]
