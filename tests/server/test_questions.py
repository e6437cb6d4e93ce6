"""Questions of MCP servers to the person who follows a run, with a real server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from callgate import Gate, Policy, ScriptedModel
from callgate.mcp import Host, McpServer, Sampling
from callgate.testing import call

pytestmark = pytest.mark.slow  # Each test starts a real server.

SERVER = Path(__file__).parent.parent / "mcp" / "asking_server.py"


def gate(*script: object) -> Gate:
    return Gate(
        ScriptedModel([*script]),
        [McpServer("asking", command=[sys.executable, str(SERVER)], start_s=60)],
        policy=Policy(default="allow"),
    )


def test_a_question_is_an_event_and_its_answer_goes_to_the_server(serve) -> None:
    site = serve(gate(call("book"), "Booked."))
    with site.stream_chat({"prompt": "Book.", "session": "s"}) as stream:
        asked = stream.until("question_asked")
        path = f"/api/v1/questions/s/{asked['id']}"
        assert (asked["server"], asked["message"], asked["url"]) == ("asking", "For how many?", None)
        assert [(field["name"], field["kind"], field["required"]) for field in asked["fields"]] == [
            ("guests", "integer", True),
            ("outside", "boolean", False),
        ]
        assert site.post(path, {"action": "perhaps"}).error == (422, "invalid_request")
        assert site.post(path, {"action": "accept", "content": {"guests": "many"}}).error == (422, "invalid_request")
        assert site.post("/api/v1/questions/s/q99", {"action": "cancel"}).error == (404, "not_waiting")
        answered = site.post(path, {"action": "accept", "content": {"guests": 4}})
        assert answered.json == {"session": "s", "question": asked["id"], "action": "accept"}
        assert stream.until("question_closed")["action"] == "accept"
        assert stream.until("call_finished")["result"]["value"] == {"result": "4 outside=False"}
        assert stream.until("run_ended")["reply"]["text"] == "Booked."
    assert site.post(path, {"action": "cancel"}).error == (404, "not_waiting")


def test_a_server_borrows_the_model_when_the_person_on_the_page_says_yes(serve) -> None:
    server = McpServer("asking", command=[sys.executable, str(SERVER)], start_s=60, host=Host(sample=Sampling()))
    site = serve(Gate(ScriptedModel([call("sample"), "Blue.", "Done."]), [server], policy=Policy(default="allow")))
    with site.stream_chat({"prompt": "Go.", "session": "s"}) as stream:
        asked = stream.until("question_asked")
        assert (asked["wants_model"], asked["message"]) == (True, "user: Say it.\nat most 10 tokens")
        site.post(f"/api/v1/questions/s/{asked['id']}", {"action": "accept"})
        assert stream.until("call_finished")["result"]["value"] == {"result": "Blue."}
        assert stream.until("run_ended")["reply"]["text"] == "Done."


def test_a_run_that_nobody_follows_declines_at_once(serve) -> None:
    site = serve(gate(call("book"), "Over."))
    assert site.chat({"prompt": "Book."}).json["tool_results"][0]["content"] == '{"result":"decline"}'


def test_a_question_that_nobody_answers_is_cancelled(serve) -> None:
    site = serve(gate(call("book"), "Over."), approval_s=0.05)
    with site.stream_chat({"prompt": "Book."}) as stream:
        assert stream.until("question_closed")["action"] == "cancel"
        assert stream.until("call_finished")["result"]["value"] == {"result": "cancel"}


def test_a_run_that_is_cancelled_leaves_no_question_open(serve) -> None:
    site = serve(gate(call("book"), "Over."))
    with site.stream_chat({"prompt": "Book.", "session": "s"}) as stream:
        asked = stream.until("question_asked")
        site.post("/api/v1/sessions/s/cancel", {})
        stream.until("run_ended")
    assert site.post(f"/api/v1/questions/s/{asked['id']}", {"action": "cancel"}).error == (404, "not_waiting")


def test_a_server_that_keeps_asking_is_declined(serve, monkeypatch) -> None:
    monkeypatch.setattr("callgate.server.run_person.QUESTIONS_MAX", 0)
    site = serve(gate(call("book"), "Over."))
    with site.stream_chat({"prompt": "Book."}) as stream:
        assert stream.until("call_finished")["result"]["value"] == {"result": "decline"}
