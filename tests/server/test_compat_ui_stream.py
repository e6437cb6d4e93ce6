"""The AI SDK's own client and stream reader, and plain requests in its form, as clients of the service."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel, tool
from callgate.errors import RateLimitedError
from callgate.server import Service
from callgate.testing import answer, call, text, thought

from .conftest import Site, Slow, Stage, add, poke, serving

HERE = Path(__file__).resolve().parent
STAGE = Stage()
URL = "/api/v1/ui/chat"


@tool(read_only=True)
def fail() -> str:
    """Fails."""
    raise ValueError("out of order")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(Service(Gate(STAGE, [add, poke, fail], policy=Policy(rules=["ask poke"])))) as running:
        yield running


def user(words: str) -> dict[str, Any]:
    return {"id": f"u-{words}", "role": "user", "parts": [{"type": "text", "text": words}]}


def parts_of(body: bytes) -> list[dict[str, Any]]:
    events = body.decode().strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


# The stream by itself ----------------------------------------------------------------------------------------------------


def test_the_parts_of_a_run_come_in_the_order_that_the_reader_wants(site: Site) -> None:
    STAGE.plays([thought("Hm."), text("I add."), call("add", a=1, b=2)], "It is 3.")
    got = site.post(URL, {"messages": [user("1 + 2?")]})
    parts = parts_of(got.body)
    assert got.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.headers["callgate-session"]
    call_id = next(part["toolCallId"] for part in parts if "toolCallId" in part)
    metadata = parts[-1].pop("messageMetadata")
    assert metadata["session"] == got.headers["callgate-session"]
    assert parts == [
        {"type": "start", "messageId": f"msg-{got.headers['callgate-run']}"},
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "reasoning-1"},
        {"type": "reasoning-delta", "id": "reasoning-1", "delta": "Hm."},
        {"type": "reasoning-end", "id": "reasoning-1"},
        {"type": "text-start", "id": "text-2"},
        {"type": "text-delta", "id": "text-2", "delta": "I add."},
        {"type": "text-end", "id": "text-2"},
        {"type": "tool-input-start", "toolCallId": call_id, "toolName": "add", "dynamic": True},
        {
            "type": "tool-input-available",
            "toolCallId": call_id,
            "toolName": "add",
            "input": {"a": 1, "b": 2},
            "dynamic": True,
        },
        {"type": "tool-output-available", "toolCallId": call_id, "output": 3, "dynamic": True},
        {"type": "finish-step"},
        {"type": "start-step"},
        {"type": "text-start", "id": "text-3"},
        {"type": "text-delta", "id": "text-3", "delta": "It is 3."},
        {"type": "text-end", "id": "text-3"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop"},
    ]


def test_messages_of_any_state_become_a_history_that_can_be_sent(site: Site) -> None:
    model = STAGE.plays("Yes.")
    shown = {
        "id": "a",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "Hm."},
            {"type": "text", "text": "Let me."},
            {"type": "tool-add", "toolCallId": "c1", "state": "output-available", "input": {"a": 1}, "output": {"sum": 3}},
            {"type": "dynamic-tool", "toolName": "fail", "toolCallId": "c2", "state": "output-error", "errorText": "broke"},
            {"type": "dynamic-tool", "toolName": "poke", "toolCallId": "c3", "state": "output-denied", "input": {}},
            {"type": "dynamic-tool", "toolName": "poke", "toolCallId": "c4", "state": "input-available", "input": {}},
            {"type": "step-start"},
            {"type": "text", "text": "Done."},
            {"type": "data-mood", "data": "good"},
        ],
    }
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA", "filename": "a.png"}
    newest = {"role": "user", "parts": [{"type": "text", "text": "And?"}, image]}
    assert site.post(URL, {"messages": [user("Go."), shown, newest], "model": "callgate"}).status == 200
    contents = model.requests[0].contents
    assert [content["role"] for content in contents] == ["user", "model", "user", "model", "user"]
    assert [part.get("text") or part["functionCall"]["name"] for part in contents[1]["parts"]] == [
        "Let me.", "add", "fail", "poke", "poke",
    ]  # fmt: skip
    responses = [part["functionResponse"]["response"] for part in contents[2]["parts"]]
    assert responses[:2] == [{"result": {"sum": 3}}, {"error": "broke"}]
    assert all("error" in response for response in responses[2:])
    assert contents[4]["parts"] == [
        {"text": "And?"},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA", "displayName": "a.png"}},
    ]


def test_a_chat_goes_on_in_its_session_until_it_was_edited(site: Site) -> None:
    model = STAGE.plays([call("add", a=1, b=2)], "It is 3.", "Still 3.", "Anew.")
    first, shown = user("1 + 2?"), {"role": "assistant", "parts": [{"type": "text", "text": "It is 3."}]}
    site.post(URL, {"id": "long/one", "messages": [first]})
    site.post(URL, {"id": "long/one", "messages": [first, shown, user("Sure?")]})
    assert len(model.requests[2].contents) == 5, "with the call and its result, which the messages did not bring along"
    site.post(URL, {"id": "long/one", "messages": [user("Edited.")]})
    assert model.requests[3].contents == [{"role": "user", "parts": [{"text": "Edited."}]}]


@pytest.mark.parametrize("chat", ["plain", "sl/ash", "line\r\nSet-Cookie: a=b", "ü✓", "x" * 1000, ".."])
def test_any_id_of_a_chat_names_a_session_that_fits_into_paths_and_headers(site: Site, chat: str) -> None:
    STAGE.plays("Yes.")
    got = site.post(URL, {"id": chat, "messages": [user("?")]})
    session = got.headers["callgate-session"]
    assert got.status == 200
    assert "set-cookie" not in got.headers
    assert site.get(f"/api/v1/sessions/{session}").json["id"] == session


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "parts": []}]}, "says nothing"),
        ({"messages": [user("?"), {"role": "assistant", "parts": []}]}, "answers nothing"),
        ({"messages": [{"role": "user", "parts": [{"type": "file"}]}]}, "url"),
        ({"messages": [user("?")], "model": "nobody:x"}, "provider"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(site: Site, body: Any, told: str) -> None:
    got = site.post(URL, body)
    assert got.error[0] == 422
    assert told in got.json["message"]


def test_what_fails_at_once_has_a_status_and_what_fails_later_is_a_part(site: Site) -> None:
    STAGE.plays(answer("Once upon", finish_reason=None))
    parts = parts_of(site.post(URL, {"messages": [user("?")]}).body)
    assert parts[-1]["type"] == "error"
    assert "ended early" in parts[-1]["errorText"]
    STAGE.plays(RateLimitedError("too much"))
    assert site.post(URL, {"messages": [user("?")]}).error == (429, "model_rate_limited")


# The AI SDK's own client -------------------------------------------------------------------------------------------------


@pytest.fixture
def page(site: Site, needs: Callable[[str], str], npm_program: Callable[[str], str]) -> Callable[..., Any]:
    """`page(say=[...], approve=...)`: what a front end shows after the conversation."""
    modules = Path(npm_program("..")).resolve()
    if not (modules / "ai").exists():
        pytest.skip("the npm package `ai` is not installed (scripts/npm-packages does it)")

    def show(**request: Any) -> Any:
        command = [needs("node"), str(HERE / "ui_client.mjs"), f"http://127.0.0.1:{site.port}", str(modules)]
        done = subprocess.run(
            [*command, json.dumps(request)], capture_output=True, text=True, timeout=60, check=False, env=os.environ
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return show


@pytest.mark.slow
@pytest.mark.judge("AI SDK")
def test_the_sdks_chat_shows_text_tools_and_their_outputs(page: Callable[..., Any]) -> None:
    STAGE.plays([thought("Hm."), call("add", a=1, b=2), call("fail")], "It is 3.", "Still.")
    shown = page(say=["1 + 2?", "Sure?"], id="sdk-1")
    assert (shown["errors"], shown["status"]) == ([], "ready")
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant"] * 2
    parts = [part for part in shown["messages"][1]["parts"] if part["type"] != "step-start"]
    assert [(part["type"], part.get("state")) for part in parts] == [
        ("reasoning", "done"),
        ("dynamic-tool", "output-available"),
        ("dynamic-tool", "output-error"),
        ("text", "done"),
    ]
    assert (parts[1]["input"], parts[1]["output"]) == ({"a": 1, "b": 2}, 3)
    assert "out of order" in parts[2]["errorText"]
    assert parts[3]["text"] == "It is 3."
    assert shown["messages"][3]["parts"][-1]["text"] == "Still."


@pytest.mark.slow
@pytest.mark.parametrize(("approve", "state"), [(True, "output-available"), (False, "output-denied")])
@pytest.mark.judge("AI SDK")
def test_the_sdks_own_way_of_approval_goes_on_with_the_run(page: Callable[..., Any], approve: bool, state: str) -> None:
    model = STAGE.plays([call("poke", where="here")], "So be it.")
    shown = page(say=["Poke."], approve=approve, id=f"sdk-{state}")
    assert (shown["errors"], shown["status"]) == ([], "ready")
    assert len(shown["messages"]) == 2, "the answer went on in the same message"
    parts = [part for part in shown["messages"][1]["parts"] if part["type"] != "step-start"]
    assert [(part["type"], part.get("state")) for part in parts] == [("dynamic-tool", state), ("text", "done")]
    response = model.requests[1].contents[-1]["parts"][0]["functionResponse"]["response"]
    assert response.get("result") == ("poked here" if approve else None)
    assert "because" in (response["notes"][0] if approve else response["error"])


@pytest.mark.slow
@pytest.mark.judge("AI SDK")
def test_a_message_that_is_asked_for_again_is_answered_anew(page: Callable[..., Any]) -> None:
    model = STAGE.plays("One.", "Another.")
    shown = page(say=["Tell."], regenerate=True, id="sdk-again")
    assert shown["messages"][1]["parts"][-1]["text"] == "Another."
    assert [len(request.contents) for request in model.requests] == [1, 1]


# A front end that was loaded anew -----------------------------------------------------------------------------------------


def test_a_chat_whose_run_goes_on_is_told_from_its_beginning_and_204_without_one(
    serve: Callable[..., Site], slow: Slow
) -> None:
    model = ScriptedModel([[text("Wait."), call("slow")], "Done."])
    site = serve(Gate(model, [slow.tool]))
    assert site.get(f"{URL}/one/stream").status == 204
    bodies: list[bytes] = []

    def ask() -> None:
        bodies.append(site.post(URL, {"id": "one", "messages": [user("Go.")]}).body)

    def resume() -> None:
        bodies.append(site.get(f"{URL}/one/stream").body)

    asking = threading.Thread(target=ask)
    asking.start()
    assert slow.started.wait(60)
    resuming = threading.Thread(target=resume)
    resuming.start()
    run = site.service.run_of("ui-one")
    assert run is not None
    site.until(lambda: len(run._listeners) == 2, "the second reader")
    slow.go.set()
    asking.join(60)
    resuming.join(60)
    assert bodies[0] == bodies[1]
    assert "".join(part["delta"] for part in parts_of(bodies[0]) if part["type"] == "text-delta") == "Wait.Done."
    assert site.get(f"{URL}/one/stream").status == 204
