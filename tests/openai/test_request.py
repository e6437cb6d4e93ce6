"""What is sent: messages, tools and settings, as OpenAI and its imitators take them."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import strict_json
from callgate.declaration import declare
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.history import encoded as written
from callgate.history.conversation import Conversation
from callgate.openai.quirks import QUIRKS, Quirks
from callgate.openai.request import SETTINGS, BodyBuilder, settings_of
from callgate.request import ModelRequest
from callgate.testing.chat_rules import chat_judge
from callgate.translation import history
from callgate.types import Media, ToolDefinition

OPENAI, GENERIC = QUIRKS["openai"], QUIRKS["generic"]
ADD = ToolDefinition(
    name="add",
    description="Adds.",
    input_schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)
PNG = Media(data=b"\x89PNG", mime_type="image/png", name="a.png")


def body_of(
    *contents: Any,
    tools: list[ToolDefinition] | None = None,
    quirks: Quirks = OPENAI,
    model: str = "gpt-4.1",
    stream: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    talk = contents[0] if contents and isinstance(contents[0], Conversation) else Conversation(contents or [said("Hi.")])
    declared = declare(tools or [])
    request = ModelRequest(conversation=talk, definitions=tuple(tools or ()), declaration=declared, **fields)
    return json.loads(BodyBuilder(model).body(request, quirks, stream=stream))


def judged(judge: Any, body: dict[str, Any]) -> dict[str, Any]:
    """The body, which OpenAI would take."""
    assert judge.sdk_problems(body) == []
    assert [*judge.strange_keys(body)] == []
    assert chat_judge(body) is None
    return body


def said(*words: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": [{"text": word} if isinstance(word, str) else word for word in words]}


def called(name: str, args: Any = None, id: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"functionCall": ({"id": id} if id else {}) | {"name": name, "args": args or {}}} | fields


def answered(name: str, response: Any, id: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"functionResponse": ({"id": id} if id else {}) | {"name": name, "response": response} | fields}


# Messages ----------------------------------------------------------------------------------------------------------------


@pytest.mark.judge("openai")
def test_a_conversation_with_calls_becomes_messages(judge: Any) -> None:
    body = body_of(
        said("1 + 2?"),
        said({"text": "Hm.", "thought": True}, "Let me see.",
             called("add", {"a": 1}, "call_1"), called("add", {"a": "ü"}, "call_2"),
             role="model"),
        said(answered("add", {"result": 3}, "call_1"), answered("add", {"error": "No."}, "call_2")),
        said("Three.", role="model"),
        said("Thanks."),
        system="Be brief.",
        feedback="Go on.",
    )  # fmt: skip
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": '{"a":"ü"}'}},
    ]
    assert judged(judge, body)["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 2?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"result":3}'},
        {"role": "tool", "tool_call_id": "call_2", "content": '{"error":"No."}'},
        {"role": "assistant", "content": "Three."},
        {"role": "user", "content": "Thanks."},
        {"role": "user", "content": "Go on."},
    ]


@pytest.mark.judge("openai")
def test_what_only_gemini_understands_is_left_out_of_the_messages_and_stays_in_the_history(judge: Any) -> None:
    contents = [
        said("Go."),
        said({"text": "Secret.", "thought": True, "thoughtSignature": "c2ln"},
             called("add", {"a": 1}, thoughtSignature="c2ln"), role="model"),
        said(answered("add", {"result": 3})),
        said({"text": "", "thoughtSignature": "c2ln"}, {"executableCode": {"code": "1+1", "language": "PYTHON"}},
             role="model"),
        said("And?"),
    ]  # fmt: skip
    talk = Conversation(contents)
    text = json.dumps(judged(judge, body_of(talk)))
    assert "c2ln" not in text
    assert "Secret" not in text
    assert "1+1" in text
    assert talk.contents == contents


@pytest.mark.judge("openai")
def test_thoughts_and_empty_texts_in_a_content_of_the_user_are_not_sent(judge: Any) -> None:
    odd = said(
        {"text": "", "thought": True, "thoughtSignature": "c2ln"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    )
    alone = said({"text": "Hm.", "thought": True})
    body = judged(judge, body_of(odd, said("Yes.", role="model"), alone, said("And?")))
    assert [[block["type"] for block in body["messages"][0]["content"]], *body["messages"][1:]] == [
        ["image_url"], {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"},
    ]  # fmt: skip


def test_a_content_of_thoughts_alone_is_no_message() -> None:
    body = body_of(said("Go."), said({"text": "Hm.", "thought": True}, role="model"), said("And?"))
    assert [message["role"] for message in body["messages"]] == ["user", "user"]


def test_thoughts_go_back_to_a_server_that_wants_them() -> None:
    contents = [said("Go."), said({"text": "Hm.", "thought": True}, "Yes.", role="model"), said("And?")]
    wants = replace(GENERIC, sends_reasoning_back=True)
    assert body_of(*contents, quirks=wants)["messages"][1] == {
        "role": "assistant", "content": "Yes.", "reasoning_content": "Hm.",
    }  # fmt: skip


def turns(*ids: str | None) -> list[dict[str, Any]]:
    return [said("Go."), said(*[called("add", {"a": 1}, id) for id in ids], role="model"),
            said(*[answered("add", {"result": 1}, id) for id in ids])]  # fmt: skip


def ids_in(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    asked = [call["id"] for message in body["messages"] for call in message.get("tool_calls", [])]
    return asked, [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]


@pytest.mark.judge("openai")
def test_calls_without_ids_get_ids_that_are_unique_and_the_same_every_time(judge: Any) -> None:
    contents = [*turns(None, None), said("Done.", role="model"), *turns(None)]
    first, second = (judged(judge, body_of(*contents)) for _ in range(2))
    asked, answers = ids_in(first)
    assert asked == answers
    assert len({*asked}) == 3
    assert ids_in(second) == (asked, answers)


def test_an_id_made_for_a_call_does_not_change_when_the_conversation_goes_on() -> None:
    contents = [*turns(None), said("Done.", role="model"), said("More?")]
    assert ids_in(body_of(*contents[:3]))[0] == ids_in(body_of(*contents))[0]


@pytest.mark.parametrize("odd", ["x" * 41, "with space", "é", "\n"])
@pytest.mark.judge("openai")
def test_ids_that_openai_refuses_are_replaced_in_both_places(odd: str, judge: Any) -> None:
    asked, answers = ids_in(judged(judge, body_of(*turns(odd))))
    assert asked == answers
    assert asked != [odd]


def test_long_ids_go_back_to_a_server_that_sent_them() -> None:
    vllm = "chatcmpl-tool-" + "0" * 32
    assert ids_in(body_of(*turns(vllm), quirks=QUIRKS["vllm"])) == ([vllm], [vllm])


@pytest.mark.judge("openai")
def test_an_id_that_comes_again_in_a_later_turn_is_made_another_one(judge: Any) -> None:
    contents = [*turns("call_0"), said("Done.", role="model"), *turns("call_0")]
    asked, answers = ids_in(judged(judge, body_of(*contents)))
    assert asked == answers
    assert asked[0] == "call_0"
    assert len({*asked}) == 2


@pytest.mark.judge("openai")
def test_a_name_that_the_model_made_up_can_be_sent_back(judge: Any) -> None:
    contents = [
        said("Go."),
        said(called("default_api.écho!", {}, "c"), role="model"),
        said(answered("default_api.écho!", {"error": "No."}, "c")),
    ]
    judged(judge, body_of(*contents))


@pytest.mark.judge("openai")
def test_arguments_that_could_not_be_read_go_back_as_json(judge: Any) -> None:
    contents = [said("Go."), said(called("add", "a is 1", "c"), role="model"), said(answered("add", {"error": "No."}, "c"))]
    (call,) = judged(judge, body_of(*contents))["messages"][1]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"unreadable": "a is 1"}


@pytest.mark.judge("openai")
def test_media_of_the_user_become_blocks(judge: Any) -> None:
    talk = Conversation()
    wav, pdf = Media(data=b"RIFF", mime_type="audio/wav"), Media(data=b"%PDF", mime_type="application/pdf", name="a.pdf")
    talk.add_user(
        ["What is this?", PNG, wav, pdf, {"fileData": {"fileUri": "https://example.org/a.jpg", "mimeType": "image/jpeg"}}]
    )
    (message,) = judged(judge, body_of(talk))["messages"]
    assert message["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG.data).decode()}"}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav.data).decode(), "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.jpg"}},
    ]


def test_media_that_have_no_place_are_refused_in_what_is_said_now_and_remarked_on_in_the_past() -> None:
    video = {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}
    with pytest.raises(UsageError, match=r"media of type 'video/mp4' cannot be sent .* send an image"):
        body_of(said("Look:", video))
    body = body_of(said("Look:", video), said("I see.", role="model"), said("And?"))
    assert body["messages"][0]["content"].startswith("Look:\n(Media of type video/mp4 stood here")


@pytest.mark.judge("openai")
def test_media_of_a_result_follow_as_a_message_of_the_user(judge: Any) -> None:
    shown = [{"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}]
    contents = [
        said("Draw."), said(called("draw", {}, "c1"), called("draw", {}, "c2"), role="model"),
        said(answered("draw", {"result": "one"}, "c1", parts=shown), answered("draw", {"result": "two"}, "c2")),
    ]  # fmt: skip
    messages = judged(judge, body_of(*contents))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[-1]["content"] == [
        {"type": "text", "text": "(What the call of 'draw' with the id c1 returned:)"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
    ]


@pytest.mark.parametrize(("model", "role"), [("gpt-5.2", "developer"), ("o4-mini", "developer"), ("gpt-4.1", "system")])
def test_the_system_message_has_the_role_that_the_model_wants(model: str, role: str) -> None:
    assert body_of(system="Be brief.", model=model)["messages"][0]["role"] == role
    assert body_of(system="Be brief.", model=model, quirks=GENERIC)["messages"][0]["role"] == "system"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
IDS = st.none() | st.sampled_from(["a", "b", "call_1", "x" * 50, "with space", "é"]) | st.integers()
NAMES = st.sampled_from(["add", "default_api.add", "näme", "", "x" * 90, "a b"]) | st.none()
MEDIA = st.sampled_from(["image/png", "video/mp4", "audio/wav", "application/pdf", "text/plain"]).map(
    lambda kind: {"inlineData": {"mimeType": kind, "data": "AAAA"}}
)
PARTS = st.one_of(
    st.text(max_size=5).map(lambda words: {"text": words}),
    st.text(max_size=5).map(lambda words: {"text": words, "thought": True, "thoughtSignature": "c2ln"}),
    st.builds(lambda id, name, args: {"functionCall": {"id": id, "name": name, "args": args}}, IDS, NAMES, JSON),
    st.builds(
        lambda id, name, said, media: {"functionResponse": {"id": id, "name": name, "response": said, "parts": media}},
        IDS, NAMES, JSON, st.lists(MEDIA, max_size=2),
    ),
    MEDIA,
    st.just({"executableCode": {"code": "1"}}),
)  # fmt: skip
CONTENTS = st.builds(
    lambda role, parts: {"role": role, "parts": parts},
    st.sampled_from(["user", "model", "tool"]),
    st.lists(PARTS, max_size=4),
)


@settings(max_examples=300)
@given(st.lists(CONTENTS, max_size=6), st.booleans())
@pytest.mark.judge("openai")
def test_openai_takes_every_history_that_a_conversation_can_hold(judge: Any, contents: list[Any], stream: bool) -> None:
    talk = Conversation(contents)
    talk.add_user("And?")
    body = judged(judge, body_of(talk, tools=[ADD], stream=stream))
    asked, answers = ids_in(body)
    assert asked == answers
    assert len({*asked}) == len(asked)


def test_each_content_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    builder, talk = BodyBuilder("m"), Conversation([said("Hi."), *turns("a")[1:]])
    builder.body(ModelRequest(conversation=talk), OPENAI, stream=False)
    written: list[Any] = []
    dump = strict_json.dump
    monkeypatch.setattr(strict_json, "dump", lambda value, **known: written.append(value) or dump(value, **known))
    talk.add_model(said("Done.", role="model"))
    written.clear()
    builder.body(ModelRequest(conversation=talk), OPENAI, stream=False)
    assert [value for value in written if "role" in value] == [{"role": "assistant", "content": "Done."}]


def test_a_long_result_is_not_read_again_for_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    reading = written._read
    talk = Conversation([said("Begin.")])
    builder = BodyBuilder("gpt-4.1")
    monkeypatch.setattr(written, "_read", lambda encoded: (read.append(encoded), reading(encoded))[1])
    for number in range(20):
        talk.add_model(said(called("add", {"a": number}, f"call_{number}"), role="model"))
        talk.add_responses([answered("add", {"result": "x" * 3_000}, f"call_{number}")])
        body = builder.body(ModelRequest(conversation=talk), OPENAI, stream=False)
    assert len(read) == 20  # Once each, when it was added.
    assert len(json.loads(body)["messages"]) == 41
    assert [len(message["content"]) > 3_000 for message in json.loads(body)["messages"][2::2]] == [True] * 20


def test_what_is_kept_of_a_long_conversation_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_MAX", 3)
    talk = Conversation([said(f"Number {number}.") for number in range(9)])
    builder = BodyBuilder("m")
    sent = [builder.body(ModelRequest(conversation=talk), OPENAI, stream=False) for _ in range(2)]
    assert sent[0] == sent[1]
    assert len(builder._writer._history._kept) <= 3
    monkeypatch.setattr(history, "KEPT_BYTES_MAX", 100)
    assert builder.body(ModelRequest(conversation=talk), OPENAI, stream=False) == sent[0]
    assert builder._writer._history._kept_bytes < 200


def test_a_tool_that_is_declared_without_its_definition_is_refused() -> None:
    request = ModelRequest(conversation=Conversation([said("Hi.")]), declaration=declare([ADD]))
    with pytest.raises(UsageError, match="'add' is declared, but its definition is not"):
        BodyBuilder("m").body(request, OPENAI, stream=False)


# Tools -------------------------------------------------------------------------------------------------------------------


@pytest.mark.judge("openai")
def test_a_tool_is_declared_with_its_own_schema(judge: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^x", "minLength": 2}},
        "patternProperties": {"^y": {}},
    }
    definition = ToolDefinition(name="odd name!", description="Odd.", input_schema=schema)
    (tool,) = judged(judge, body_of(tools=[definition]))["tools"]
    assert tool == {"type": "function", "function": {"name": "odd_name", "description": "Odd.", "parameters": schema}}


ROOTS = {
    "any_of": {"anyOf": [
        {"type": "object", "properties": {"a": {"type": "integer"}, "c": {}}, "required": ["a", "c"]},
        {"type": "object", "properties": {"a": {"type": "string"}, "c": {}}, "required": ["c"]},
    ]},
    "one_of": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
    "all_of": {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["a"]}]},
    "not": {"type": "object", "not": {"required": ["x"]}},
    "enum": {"type": "object", "enum": [{"a": 1}]},
    "ref": {"$ref": "#/$defs/X", "$defs": {"X": {"type": "object", "properties": {"n": {"$ref": "#/$defs/X"}}}}},
    "nullable": {"type": ["object", "null"], "properties": {"a": {}}},
    "empty": {},
}  # fmt: skip


@pytest.mark.parametrize("schema", ROOTS.values(), ids=ROOTS)
@pytest.mark.parametrize("server", QUIRKS)
@pytest.mark.judge("openai")
def test_a_schema_whose_root_is_refused_is_widened(schema: dict[str, Any], server: str, judge: Any) -> None:
    definition = ToolDefinition(name="odd", input_schema=schema)
    body = body_of(tools=[definition], quirks=QUIRKS[server])
    assert body["tools"][0]["function"]["parameters"]["type"] == "object"
    if QUIRKS[server].root_must_be_object:
        judged(judge, body)


def test_alternatives_at_the_root_become_one_object_of_all_their_properties() -> None:
    (tool,) = body_of(tools=[ToolDefinition(name="odd", input_schema=ROOTS["any_of"])])["tools"]
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "c": {}},
        "required": ["c"],
    }


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        ("auto", None), ("validated", None), ("none", "none"), ("required", "required"),
        ("add", {"type": "function", "function": {"name": "add"}}),
    ],
)  # fmt: skip
@pytest.mark.judge("openai")
def test_the_tool_choice_is_said_in_openais_words(choice: str, field: Any, judge: Any) -> None:
    assert judged(judge, body_of(tools=[ADD], tool_choice=choice)).get("tool_choice") == field


def test_a_server_that_takes_no_name_is_shown_that_tool_alone() -> None:
    body = body_of(tools=[ADD, replace(ADD, name="sub")], tool_choice="sub", quirks=QUIRKS["lm studio"])
    assert (body["tool_choice"], [tool["function"]["name"] for tool in body["tools"]]) == ("required", ["sub"])


def test_a_choice_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(UsageError, match="neither one of"):
        body_of(tools=[ADD], tool_choice="nope")
    with pytest.raises(UsageError, match="needs tools"):
        body_of(tool_choice="required")


def test_more_tools_than_openai_takes_are_refused_and_other_servers_get_them_all() -> None:
    many = [replace(ADD, name=f"add_{number}") for number in range(129)]
    with pytest.raises(ToolNotDeclarableError, match=r"129 tools: OpenAI takes at most 128 .* tools_shown="):
        body_of(tools=many)
    assert len(body_of(tools=many, quirks=GENERIC)["tools"]) == 129


def test_tools_that_run_at_google_are_refused() -> None:
    talk = Conversation([said("Hi.")])
    request = ModelRequest(conversation=talk, definitions=(ADD,), declaration=declare([ADD], built_in=["google_search"]))
    with pytest.raises(UsageError, match="'googleSearch' runs at Google"):
        BodyBuilder("m").body(request, OPENAI, stream=False)


# Settings ----------------------------------------------------------------------------------------------------------------

EVERY = {
    "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 10, "stop_sequences": ["x"], "seed": 7, "presence_penalty": 0.1,
    "frequency_penalty": 0.2, "service_tier": "auto", "parallel_tool_calls": False, "logit_bias": {"1": 2}, "user": "u",
    "thinking": "LOW", "response_json_schema": {"type": "object"}, "response_mime_type": "application/json",
    "labels": {"a": "b"}, "extra_body": {"verbosity": "low"}, "headers": {"x-gateway": "y"},
}  # fmt: skip


@pytest.mark.judge("openai")
def test_every_setting_reaches_openai(judge: Any) -> None:
    assert {*EVERY} == {*SETTINGS}
    body = judged(judge, body_of(tools=[ADD], settings=EVERY, stream=True))
    assert {key: value for key, value in body.items() if key not in ("messages", "tools")} == {
        "model": "gpt-4.1", "temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 10, "stop": ["x"], "seed": 7,
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "service_tier": "auto", "parallel_tool_calls": False,
        "logit_bias": {"1": 2}, "user": "u", "reasoning_effort": "low", "metadata": {"a": "b"}, "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


@pytest.mark.parametrize("server", QUIRKS)
def test_the_limit_of_tokens_has_the_name_that_the_server_knows(server: str) -> None:
    body = body_of(settings={"max_output_tokens": 10}, quirks=QUIRKS[server])
    assert body[QUIRKS[server].max_tokens] == 10


def test_json_without_a_schema_is_asked_for_as_such() -> None:
    assert settings_of({"response_mime_type": "application/json"}, OPENAI) == {"response_format": {"type": "json_object"}}
    assert settings_of({"response_mime_type": "text/plain"}, OPENAI) == {}


def test_settings_that_only_some_servers_have() -> None:
    assert settings_of({"top_k": 5}, QUIRKS["vllm"]) == {"top_k": 5}
    with pytest.raises(UsageError, match="unknown setting 'top_k': did you mean 'top_p'"):
        settings_of({"top_k": 5}, OPENAI)


def test_parallel_tool_calls_without_tools_is_not_sent() -> None:
    assert settings_of({"parallel_tool_calls": True}, OPENAI) == {}


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"zzzzzz": 1}, "unknown setting 'zzzzzz'; known are extra_body"),
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({"thinking": 100}, "has levels only"),
        ({"response_mime_type": "image/png"}, "use 'application/json'"),
        ({"response_json_schema": 1}, "use a JSON Schema"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(setting: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        settings_of(setting, OPENAI)


def test_extra_fields_cannot_replace_what_callgate_writes() -> None:
    with pytest.raises(UsageError, match="cannot hold 'messages'"):
        body_of(settings={"extra_body": {"messages": []}})


def test_a_stream_counts_its_tokens_where_the_server_can() -> None:
    assert "stream_options" not in body_of(stream=True, quirks=replace(GENERIC, stream_options=False))
    assert body_of(stream=True, quirks=GENERIC)["stream_options"] == {"include_usage": True}
