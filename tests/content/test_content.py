"""Views and builders over contents: what is seen in odd parts, and what is built."""

from __future__ import annotations

from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from callgate import strict_json
from callgate.content.build import (
    answer_part,
    call_part,
    inline_part,
    model_content,
    response_part,
    unsigned,
    with_parts,
    with_text,
    without_stream_fields,
)
from callgate.content.normalize import is_whole, sendable_part, spelled_content
from callgate.content.prompt import user_content
from callgate.content.read import (
    block_of,
    call_of,
    call_parts,
    candidate_of,
    display_names,
    finish_of,
    has_data,
    is_call,
    is_nonempty_text,
    is_plain_text,
    is_response,
    is_signed,
    model_version_of,
    parts_of,
    response_as_text,
    response_media,
    response_of,
    role_of,
    same_kind_of_text,
    text_of,
    usage_of,
)
from callgate.errors import UsageError
from callgate.types import FunctionCall, Media, Usage

CALL = {"functionCall": {"name": "f", "args": {}}}
RESPONSE = {"functionResponse": {"name": "f", "response": {"result": 1}}}

odd_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just("functionCall"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "name", "id", "args", "parts"]), inner)
    ),
    max_leaves=8,
)


# --- reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "read"),
    [
        ("user", "user"),
        ("model", "model"),
        ("assistant", "model"),
        ("ai", "model"),
        ("human", "user"),
        ("function", "user"),
        ("tool", "user"),
        ("system", "system"),
        ("", "user"),
        (None, "user"),
        (5, "user"),
        ([], "user"),
        ({"a": 1}, "user"),
    ],
)
def test_roles_are_understood_whatever_they_are(role: Any, read: str) -> None:
    assert role_of({"role": role}) == read


def test_a_missing_role_is_the_users() -> None:
    assert role_of({}) == "user"


@pytest.mark.parametrize("given", [None, "text", {"text": "a"}, 5, []])
def test_parts_that_are_not_a_list_are_none(given: Any) -> None:
    assert parts_of({"parts": given}) == []


def test_parts_are_the_very_objects_that_came() -> None:
    part = {"text": "a"}
    assert parts_of({"parts": [None, part, "x", 5]})[0] is part
    assert parts_of({"parts": (part,)})[0] is part
    assert call_parts({"parts": [part, CALL]})[0] is CALL["functionCall"]
    assert call_of(CALL) is CALL["functionCall"]
    assert response_of(RESPONSE) is RESPONSE["functionResponse"]


@pytest.mark.parametrize(
    ("part", "says_something"),
    [
        ({"text": "a"}, True), ({"text": ""}, False), ({"text": None}, False), ({}, False), ({"thought": True}, False),
        ({"text": "", "thoughtSignature": "s"}, False), ({"inlineData": {}}, True), ({"somethingNew": 0}, True),
        ({"text": "", "functionCall": None, "inlineData": None}, False), (CALL, True),
    ],
)  # fmt: skip
def test_parts_without_data_are_recognised(part: Any, says_something: bool) -> None:
    assert has_data(part) is says_something


@pytest.mark.parametrize(
    ("part", "plain"),
    [
        ({"text": "a"}, True), ({"text": "", "thought": True}, True), ({"text": "a", "thoughtSignature": "s"}, False),
        ({"text": None}, False), ({"text": 5}, False), ({"thought": True}, False), ({"text": "a", "new": 1}, False),
    ],
)  # fmt: skip
def test_only_bare_text_may_be_joined(part: Any, plain: bool) -> None:
    assert is_plain_text(part) is plain


def test_text_leaves_thoughts_and_odd_texts_out() -> None:
    content = {"parts": [{"text": "a"}, {"text": "t", "thought": True}, {"text": 5}, CALL, {"text": "b"}]}
    assert text_of(content) == "ab"
    assert text_of(content, thoughts=True) == "t"


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        (CALL, True),
        (RESPONSE, True),
        ({"text": "a"}, True),
        ({"functionCall": "f"}, False),
        ({"functionCall": None}, True),
        ({"functionResponse": [1]}, False),
        (CALL | RESPONSE, False),
        ({"text": "a", "functionResponse": None}, True),
    ],
)
def test_calls_and_responses_must_be_objects_and_not_both(part: Any, whole: bool) -> None:
    assert is_whole(part) is whole


@pytest.mark.parametrize(
    ("inner", "sent"),
    [
        ({}, {"name": "unnamed_function"}),
        ({"name": 5}, {"name": "unnamed_function"}),
        ({"name": "f", "id": 5}, {"name": "f"}),
        ({"name": "f", "id": ""}, {"name": "f"}),
        ({"name": "f", "id": "x" * 257, "new": 1}, {"name": "f", "new": 1}),
        ({"name": "f", "args": '{"a": "\\ud800"}'}, {"name": "f", "args": {"a": "\ufffd"}}),
        ({"name": "f", "args": "null"}, {"name": "f", "args": {}}),
        ({"name": "f", "args": "[1]"}, {"name": "f", "args": {"unreadable": "[1]"}}),
        ({"name": "f", "args": '{"a": '}, {"name": "f", "args": {"unreadable": '{"a": '}}),
        ({"name": "f", "args": [1]}, {"name": "f", "args": {"unreadable": [1]}}),
        ({"name": "f", "args": 0}, {"name": "f", "args": {"unreadable": 0}}),
    ],
)
def test_a_call_that_the_wire_would_refuse_is_put_right(inner: Any, sent: Any) -> None:
    assert sendable_part({"functionCall": inner, "thoughtSignature": "s"}) == {
        "functionCall": sent,
        "thoughtSignature": "s",
    }


@pytest.mark.parametrize(
    "part",
    [
        CALL,
        RESPONSE,
        {"text": "a"},
        {"functionCall": {"name": "f"}},
        {"functionCall": {"name": "f", "args": None, "id": None}},
        {"functionCall": {"name": "f", "id": "x" * 256, "args": {"a": [1]}, "new": {}}, "thoughtSignature": "s"},
    ],
)
def test_a_part_that_can_be_sent_is_passed_through(part: Any) -> None:
    assert sendable_part(part) is part


def test_arguments_nested_too_deeply_are_not_kept() -> None:
    args: Any = {}
    for _ in range(100):
        args = {"a": args}
    sent = sendable_part({"functionCall": {"name": "f", "args": args}})
    assert sent == {"functionCall": {"name": "f", "args": {"unreadable": "nested deeper than 100 levels"}}}


@pytest.mark.parametrize("value", ["text", [1], None, 5])
def test_a_response_that_is_not_an_object_is_wrapped(value: Any) -> None:
    part = {"functionResponse": {"name": "f", "id": "1", "response": value}}
    assert sendable_part(part) == {"functionResponse": {"name": "f", "id": "1", "response": {"result": value}}}


@given(st.dictionaries(st.sampled_from(["text", "functionCall", "functionResponse", "thought", "x"]), odd_values))
def test_no_part_is_too_odd_to_be_looked_at(part: dict[str, Any]) -> None:
    content = {"role": part.get("text"), "parts": [part]}
    role_of(content), text_of(content), call_parts(content)
    has_data(part), is_plain_text(part), is_whole(part), is_signed(part)
    once = sendable_part(part)
    assert sendable_part(once) is once
    if is_call(once):
        assert isinstance(call_of(once)["name"], str)


@pytest.mark.parametrize(
    ("part", "said"),
    [({"text": "a"}, True), ({"text": "a", "thought": True}, True), ({"text": ""}, False), ({"text": "a", "x": 1}, False)],
)
def test_text_is_said_if_there_is_any_and_nothing_else(part: Any, said: bool) -> None:
    assert is_nonempty_text(part) is said


SAID_KEYS = ["text", "thought", "thought_signature", "function_call", "functionCall", "functionResponse", "x"]


@given(st.dictionaries(st.sampled_from(SAID_KEYS), odd_values | st.text(min_size=1)))
def test_in_text_that_is_said_there_is_nothing_to_put_right(part: dict[str, Any]) -> None:
    if is_nonempty_text(part):
        content = {"role": "model", "parts": [part]}
        assert spelled_content(content) is content
        assert sendable_part(part) is part
        assert has_data(part)
        assert is_whole(part)
        assert not is_call(part)
        assert not is_response(part)


def test_a_response_in_words_names_its_call_and_its_media_are_found() -> None:
    part = {"functionResponse": {"name": "f", "response": {"result": "ä"}, "parts": [{"inlineData": {}}]}}
    assert response_as_text(part) == '(Result of an earlier call of \'f\': {"result":"ä"})'
    assert response_media(part) == [{"inlineData": {}}]
    assert response_media(RESPONSE) == []


def test_display_names_ignore_what_is_not_named() -> None:
    media: list[Any] = [
        {"inlineData": {"displayName": "a.png"}}, {"inlineData": {}}, {"inlineData": None}, {"fileData": {}}, {},
        {"inlineData": {"displayName": ["x"]}},
    ]  # fmt: skip
    assert display_names(media) == {"a.png"}


@pytest.mark.parametrize("candidates", [None, [], {}, "x", [None], [[]], 5])
def test_a_response_without_a_usable_candidate_has_an_empty_one(candidates: Any) -> None:
    assert candidate_of({"candidates": candidates}) == {}


@pytest.mark.parametrize(
    ("candidate", "finish"),
    [
        ({}, (None, "")), ({"finishReason": "STOP"}, ("STOP", "")), ({"finishReason": 1, "finishMessage": 2}, (None, "")),
        ({"finishReason": "", "finishMessage": "m"}, (None, "m")), ({"finishReason": ["STOP"]}, (None, "")),
    ],
)  # fmt: skip
def test_only_text_is_a_finish_reason(candidate: Any, finish: Any) -> None:
    assert finish_of(candidate) == finish


@pytest.mark.parametrize(
    ("feedback", "block"),
    [
        (None, None),
        ({}, None),
        ("SAFETY", None),
        ({"blockReason": ""}, None),
        ({"blockReason": 1}, None),
        ({"blockReason": "BLOCK_REASON_UNSPECIFIED"}, None),
        ({"blockReason": "SAFETY"}, ("SAFETY", "")),
        ({"blockReason": "NEW", "blockReasonMessage": "why"}, ("NEW", "why")),
        ({"blockReason": "A", "blockReasonMessage": 1}, ("A", "")),
    ],
)
def test_a_block_has_a_reason_that_means_something(feedback: Any, block: Any) -> None:
    assert block_of({"promptFeedback": feedback}) == block


@pytest.mark.parametrize(("version", "read"), [("gemini-x", "gemini-x"), (None, None), (5, None)])
def test_the_model_version_is_text(version: Any, read: Any) -> None:
    assert model_version_of({"modelVersion": version}) == read


@pytest.mark.rows(
    ("count", "read"),
    [
        (12, 12),
        ("12", 12),
        (12.0, 12),
        ("0", 0),
        (-5, 0),
        (-5.0, 0),
        (12.5, 0),
        (True, 0),
        ("x", 0),
        ("-3", 0),
        (None, 0),
        ([], 0),
        ("9" * 5_000, 0),
        (float("inf"), 0),
        (float("nan"), 0),
        ("²", 0),
        (strict_json.Bad("x"), 0),
    ],
)
def test_token_counts_are_read_from_numbers_and_text(count: Any, read: int) -> None:
    usage = usage_of({"usageMetadata": {"promptTokenCount": count, "totalTokenCount": 1}})
    assert usage == Usage(input_tokens=read, total_tokens=1)


def test_every_token_count_has_its_place() -> None:
    raw = {
        "promptTokenCount": 1, "cachedContentTokenCount": 2, "candidatesTokenCount": 3, "thoughtsTokenCount": 4,
        "toolUsePromptTokenCount": 5, "totalTokenCount": 6, "promptTokensDetails": [{"modality": "TEXT"}],
    }  # fmt: skip
    assert usage_of({"usageMetadata": raw}) == Usage(
        input_tokens=1, cached_tokens=2, output_tokens=3, thought_tokens=4, tool_tokens=5, total_tokens=6
    )


@pytest.mark.parametrize("raw", [None, [], "x", {}, {"promptTokenCount": 0}])
def test_usage_that_reports_nothing_is_none(raw: Any) -> None:
    assert usage_of({"usageMetadata": raw}) is None


# --- building ------------------------------------------------------------------------------------------------------------


def test_a_call_part_carries_the_models_own_id_and_name_and_no_other() -> None:
    call = FunctionCall(name="own", args={"a": 1}, id="ours", wire_id="w", wire_name="alias")
    assert call_part(call, signature="s") == {
        "functionCall": {"id": "w", "name": "alias", "args": {"a": 1}}, "thoughtSignature": "s",
    }  # fmt: skip
    assert call_part(FunctionCall(name="f", id="ours")) == {"functionCall": {"name": "f", "args": {}}}


def test_a_response_part_echoes_id_and_name_of_the_call() -> None:
    call = FunctionCall(name="own", id="ours", wire_id="w", wire_name="alias")
    media = [{"inlineData": {}}]
    assert response_part(call, {"result": 1}, media) == {
        "functionResponse": {"id": "w", "name": "alias", "response": {"result": 1}, "parts": media}
    }
    assert response_part(FunctionCall(name="f", id="ours"), {"error": "e"}) == {
        "functionResponse": {"name": "f", "response": {"error": "e"}}
    }


def test_an_answer_takes_over_the_calls_identity_or_stays_as_it_is() -> None:
    call = {"name": "f", "id": "1"}
    right = {"functionResponse": {"name": "f", "id": "1", "response": {}}}
    assert answer_part(call, right, "gone") is right
    wrong = {"functionResponse": {"name": "g", "id": "2", "response": {"a": 1}, "new": 1}, "thoughtSignature": "s"}
    assert answer_part({"name": "f"}, wrong, "gone") == {
        "functionResponse": {"name": "f", "response": {"a": 1}, "new": 1}, "thoughtSignature": "s",
    }  # fmt: skip
    assert answer_part(call, None, "gone") == {"functionResponse": {"id": "1", "name": "f", "response": {"error": "gone"}}}


def test_a_prompt_may_be_text_media_parts_or_a_list_of_these() -> None:
    image = Media(data=b"\x00", mime_type="image/png", name="a.png")
    ready = {"fileData": {"fileUri": "u"}}
    assert user_content("hi") == {"role": "user", "parts": [{"text": "hi"}]}
    assert user_content(image) == {
        "role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA==", "displayName": "a.png"}}]
    }  # fmt: skip
    assert user_content(["a", " ", ready, {"text": ""}, "\ud800"]) == {
        "role": "user", "parts": [{"text": "a"}, ready, {"text": "\ufffd"}],
    }  # fmt: skip
    assert inline_part(Media(data=b"", mime_type="a/b")) == {"inlineData": {"mimeType": "a/b", "data": ""}}


@pytest.mark.parametrize("prompt", ["", " \n", [], [""], {"text": ""}, {}, 5, None, [5], [None], [["a"]], CALL, [RESPONSE]])
def test_a_prompt_that_cannot_be_sent_is_refused(prompt: Any) -> None:
    with pytest.raises(UsageError):
        user_content(prompt)


def test_small_builders_keep_everything_else() -> None:
    assert with_text({"text": "a", "thought": True}, "b") == {"text": "b", "thought": True}
    assert model_content(iter([CALL])) == {"role": "model", "parts": [CALL]}
    streamed = {"functionCall": {"name": "f", "willContinue": False, "partialArgs": [], "id": "1"}, "thoughtSignature": "s"}
    assert without_stream_fields(streamed) == {"functionCall": {"name": "f", "id": "1"}, "thoughtSignature": "s"}
    assert same_kind_of_text({"text": "a"}, {"text": "b", "thought": False})
    assert not same_kind_of_text({"text": "a"}, {"text": "b", "thought": True})


def test_a_block_reason_of_any_length_is_cut():
    feedback = {"promptFeedback": {"blockReason": "x" * 50_000, "blockReasonMessage": "y" * 50_000}}
    assert block_of(feedback) == ("x" * 100, "y" * 1_000)


def test_a_part_loses_its_signature():
    part = {"text": "a", "thoughtSignature": "c2ln"}
    assert unsigned(part) == {"text": "a"}
    plain = {"text": "a"}
    assert unsigned(plain) is plain


def test_a_chunk_gets_other_parts_and_keeps_all_else():
    chunk = {"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}, "index": 0}], "usageMetadata": {}}
    assert with_parts(chunk, [{"text": "b"}]) == {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "b"}]}, "index": 0}],
        "usageMetadata": {},
    }
    assert with_parts({}, [{"text": "b"}]) == {"candidates": [{"content": {"role": "model", "parts": [{"text": "b"}]}}]}


def test_a_content_of_the_user_is_a_prompt_and_one_of_the_model_is_not() -> None:
    content = {"role": "user", "parts": [{"text": "a"}, {"inline_data": {"mime_type": "image/png", "data": "eA=="}}]}
    said = [{"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": "eA=="}}]
    assert user_content(content) == {"role": "user", "parts": said}
    assert user_content([content, "b"]) == {"role": "user", "parts": [*said, {"text": "b"}]}
    with pytest.raises(UsageError, match="not a content of the role 'model'"):
        user_content({"role": "model", "parts": [{"text": "a"}]})
    with pytest.raises(UsageError, match="pass them as history"):
        user_content({"function_response": {"name": "f", "response": {}}})
    with pytest.raises(UsageError, match="not 'bytes'"):
        user_content(b"text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"txt": "hi"}, r"no field 'txt': did you mean 'text'\?"),
        ({"text": "hi", "depth": 3}, "no field 'depth'; use text or inlineData or fileData"),
        ({"inline_data": {"mimetype": "image/png"}}, r"no field 'inlineData.mimetype': did you mean 'mimeType'\?"),
        ({"type": "image_url", "image_url": {"url": "x"}}, "no field 'type'; this looks like a part of another system"),
        ({"role": "user", "content": "hi"}, "no field 'role'; this looks like a message of another system"),
    ],
)
def test_a_part_of_a_prompt_with_a_field_that_does_not_exist_is_refused(part: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        user_content(["Look:", part])
    kept = {"role": "user", "parts": [{"hologram": 1}]}
    assert user_content(kept, is_journaled=True) == kept


def test_parts_of_google_genai_are_prompts() -> None:
    part = types.Part.from_bytes(data=b"\xfb\xff", mime_type="image/png")
    image = {"inlineData": {"mimeType": "image/png", "data": "+/8="}}
    assert user_content(["Look:", part]) == {"role": "user", "parts": [{"text": "Look:"}, image]}
    assert user_content(types.Content(role="user", parts=[part, types.Part(text="?")]))["parts"] == [image, {"text": "?"}]
