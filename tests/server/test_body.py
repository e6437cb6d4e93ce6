"""Large bodies: refused by the number of their values, and converted where other clients do not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from callgate import Gate, ScriptedModel
from callgate.server import Service
from callgate.server.body import MESSAGES_MAX, OFF_LOOP_BYTES, VALUES_MAX
from callgate.server.compat import openai

from .conftest import Site, serving

USER: dict[str, Any] = {"role": "user", "content": "a"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(Service(Gate(ScriptedModel(["Hi."], repeat_last=True)))) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/chat", {"prompt": "a", "context": {"k": [1] * VALUES_MAX}}),
        ("/api/v1/chat", {"prompt": "a", "context": {str(number): 1 for number in range(VALUES_MAX // 2)}}),
        ("/v1/chat/completions", {"model": "callgate", "messages": [USER] * (VALUES_MAX // 3)}),
        ("/v1beta/models/callgate:generateContent", {"contents": [{"parts": [{"text": "a"}] * (VALUES_MAX // 2)}]}),
        ("/api/v1/ui/chat", {"messages": [{"role": "user", "parts": []}] * (VALUES_MAX // 3)}),
    ],
)
def test_a_body_with_too_many_values_is_refused_before_it_is_parsed(site: Site, path: str, body: Any) -> None:
    answer = site.post(path, body)
    assert answer.status == 413
    assert b"too many values" in answer.body


def test_separators_inside_of_texts_are_text(site: Site) -> None:
    assert site.chat({"prompt": '\\",:"' * VALUES_MAX}).status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "callgate", "messages": [USER] * (MESSAGES_MAX + 1)}),
        ("/v1beta/models/callgate:generateContent", {"contents": [{"parts": [{"text": "a"}]}] * (MESSAGES_MAX + 1)}),
        ("/v1beta/models/callgate:generateContent", {"contents": [{"parts": [{"text": "a"}] * (MESSAGES_MAX + 1)}]}),
        ("/api/v1/ui/chat", {"messages": [{"role": "user", "parts": []}] * (MESSAGES_MAX + 1)}),
        ("/api/v1/chat", {"prompt": ["a"] * (MESSAGES_MAX + 1)}),
    ],
)
def test_a_conversation_of_too_many_messages_is_refused(site: Site, path: str, body: Any) -> None:
    assert site.post(path, body).status in (400, 422)


@pytest.mark.parametrize(("chars", "is_on_loop"), [(10, True), (OFF_LOOP_BYTES, False)])
def test_a_large_body_is_converted_in_a_thread_of_its_own(site: Site, monkeypatch, chars: int, is_on_loop: bool) -> None:
    names: list[str] = []
    convert = openai.compat_request_of

    def noting(*args: Any, **given: Any) -> Any:
        names.append(threading.current_thread().name)
        return convert(*args, **given)

    monkeypatch.setattr(openai, "compat_request_of", noting)
    messages = [{"role": "user", "content": "a" * chars}]
    assert site.post("/v1/chat/completions", {"model": "callgate", "messages": messages}).status == 200
    assert (names == ["service"]) is is_on_loop


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/v1/chat", {"prompt": [""] * 30_000}, b"say something"),
        ("/api/v1/chat", {"prompt": "a", "session": "s" * 1_000_000}, b"session"),
        ("/api/v1/chat", {"prompt": [*["a"] * 500, 5]}, b"later items"),
        ("/api/v1/ui/chat", {"messages": [*[{"role": "user", "parts": []}] * 500, 5]}, b"later items"),
        ("/api/v1/ui/chat", {"messages": [*[{"id": "m", "role": "user", "parts": []}] * 500, 5]}, b"later items"),
        ("/api/v1/chat", {"session": "s", "answers": {str(number): "yes" for number in range(30_000)}}, b"too long"),
    ],
)
def test_a_long_body_that_does_not_fit_is_described_by_its_beginning(site: Site, path: str, body: Any, said: bytes) -> None:
    begun_s = site.on_loop(time.thread_time)
    answer = site.post(path, body)
    assert (answer.status, said in answer.body, len(answer.body) < 2_000) == (422, True, True)
    assert site.on_loop(time.thread_time) - begun_s < 0.25  # Processor time of the loop.


@pytest.mark.parametrize(
    ("path", "message", "status"),
    [
        ("/v1/chat/completions", {"role": "user", "content": "a"}, 400),
        ("/v1/messages", {"role": "user", "content": "a"}, 400),
        ("/api/v1/ui/chat", {"id": "m", "role": "user", "parts": [{"type": "text", "text": "a"}]}, 422),
    ],
)
def test_a_conversation_with_too_many_messages_is_refused_with_their_number(
    site: Site, path: str, message: Any, status: int
) -> None:
    answer = site.post(path, {"id": "s", "model": "callgate", "max_tokens": 9, "messages": [message] * 2_001})
    said = b"messages: at most 2000 items are taken, and these are 2001"
    assert (answer.status, said in answer.body) == (status, True), answer.body


def test_a_message_of_an_mcp_client_with_too_many_values_is_refused_before_it_is_parsed(site: Site) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"k": [1] * VALUES_MAX}}
    answer = site.post("/mcp", body, Accept="application/json, text/event-stream")
    assert (answer.status, b"too many values" in answer.body) == (413, True)


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/api/v1/approvals/s/c", b'{"answer": "no", "answer": "yes"}', "answer"),
        ("/api/v1/approvals/s/c", b'{"answer": "no", "\\u0061nswer": "yes"}', "answer"),
        ("/api/v1/approvals/s/c", b'{"answer": "yes", "arguments": {"to": {"a:b": 1, "a:b": 2}}}', "a:b"),
        ("/api/v1/chat", b'{"prompt": "a: b", "session": "s", "prompt": "c"}', "prompt"),
        (
            "/v1/chat/completions",
            b'{"model": "callgate", "messages": [{"role": "user", "content": "a", "role": "b"}]}',
            "role",
        ),
        ("/v1/messages", b'{"model": "callgate", "model": "x", "messages": []}', "model"),
        ("/v1beta/models/callgate:generateContent", b'{"contents": [], "contents": []}', "contents"),
    ],
)
def test_a_body_with_a_key_twice_is_refused_whichever_would_count(site: Site, path: str, body: bytes, key: str) -> None:
    refused = site.post(path, body)
    assert refused.status == 400
    assert f"A key stands twice in one object: '{key}'" in refused.body.decode()


def test_a_message_of_an_mcp_client_with_a_key_twice_is_refused(site: Site) -> None:
    answer = b'{"jsonrpc": "2.0", "id": 1, "result": {"action": "decline", "action": "accept"}}'
    refused = site.post("/mcp", answer, Accept="application/json, text/event-stream")
    assert refused.error == (400, "invalid_json")
    assert site.post("/mcp", b'{"jsonrpc": ', Accept="application/json, text/event-stream").status == 400


def test_colons_inside_of_texts_and_equal_keys_of_different_objects_are_no_fault(site: Site) -> None:
    said = b'{"prompt": "a: \\" : {}", "context": {"x": {"k": 1}, "y": [{"k": ":"}, {"k": null}]}}'
    assert site.post("/api/v1/chat", said).status == 200
