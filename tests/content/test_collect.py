"""Function calls out of whole and streamed answers."""

from __future__ import annotations

import base64
import copy
import json
import math
import os
import random
import re
import time
import warnings
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import strict_json
from callgate.content.collect import CALLS_MAX, Collector, ModelResponse, function_calls
from callgate.content.read import has_data, is_signed
from callgate.content.read_call import ARGS_CHARS_MAX, clean_part
from callgate.content.response import to_function_response
from callgate.content.salvage import salvaged_calls
from callgate.content.tool_names import resolve_name, unknown_name_sentence
from callgate.errors import BlockedError, ProtocolError
from callgate.events import CallProposed, MediaReceived, Notice, ServerStepReported, TextDelta, ThoughtDelta
from callgate.history.conversation import Conversation
from callgate.history.repair import validate
from callgate.types import FunctionCall, Media, ToolResult, Usage

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))


def chunk(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **more}


def call(name: str = "f", **inner: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **inner}}


def collected(*chunks: Any) -> tuple[ModelResponse, list[Any]]:
    collector = Collector()
    events = [event for one in chunks for event in collector.feed(one)]
    return collector.close(), events


def without_ids(answer: ModelResponse) -> ModelResponse:
    assert len({c.id for c in answer.calls}) == len(answer.calls)
    assert all(re.fullmatch(r"call_[0-9a-f]{16}", c.id) for c in answer.calls)
    return replace(answer, calls=tuple(replace(c, id="") for c in answer.calls))


# --- one answer, however it is cut ---------------------------------------------------------------------------------------

some_part = (
    st.builds(lambda t: {"text": t}, st.text(min_size=1, max_size=12))
    | st.builds(lambda t: {"text": t, "thought": True}, st.text(min_size=1, max_size=12))
    | st.builds(lambda t: {"text": t, "thoughtSignature": "s"}, st.text(max_size=3))
    | st.sampled_from([call(), call(id="1", args={"a": 1}), call("g", id="2") | {"thoughtSignature": "s"}, call(args="{}")])
    | st.sampled_from(
        [{"newKind": {"a": 1}}, {"executableCode": {"code": "1"}}, {"text": "x", "newField": 1}, {"toolCall": {}}]
    )
)


def deltas(events: list[Any]) -> list[tuple[type, str]]:
    joined: list[tuple[type, str]] = []
    for event in events:
        if isinstance(event, CallProposed):
            joined.append((CallProposed, f"{event.call.name} {dict(event.call.args)} "))
        elif isinstance(event, (MediaReceived, ServerStepReported)):
            joined.append((type(event), repr(event)))
        elif joined and joined[-1][0] is type(event):
            joined[-1] = (type(event), joined[-1][1] + event.text)
        else:
            joined.append((type(event), event.text))
    return joined


@settings(max_examples=300 * SCALE)
@given(st.lists(some_part, max_size=6), st.randoms(use_true_random=False))
def test_an_answer_is_the_same_however_it_is_cut_into_chunks(parts: list[Any], rng: random.Random) -> None:
    usage = {"promptTokenCount": 3, "totalTokenCount": "7"}
    whole, whole_events = collected(chunk(*copy.deepcopy(parts), finish="STOP", usageMetadata=usage, modelVersion="m"))
    pieces: list[Any] = []
    for part in parts:
        rest = part.get("text", "") if set(part) <= {"text", "thought"} else ""
        while len(rest) > 1 and rng.random() < 0.7:
            cut = rng.randrange(0, len(rest))
            pieces.append({**part, "text": rest[:cut]})
            rest = rest[cut:]
        pieces.append({**part, "text": rest} if rest else copy.deepcopy(part))
    chunks: list[Any] = []
    while pieces:
        size = rng.randrange(1, 4)
        chunks.append(chunk(*pieces[:size], usageMetadata={"promptTokenCount": 1}))
        pieces = pieces[size:]
    chunks.insert(rng.randrange(len(chunks) + 1), {"modelVersion": "m"})
    chunks.append({"candidates": [{"finishReason": "STOP"}]})
    chunks.append({"usageMetadata": usage})
    split, split_events = collected(*chunks)
    assert without_ids(split) == without_ids(whole)
    assert deltas(split_events) == deltas(whole_events)


def test_only_neighbouring_unsigned_text_is_joined() -> None:
    answer, events = collected(
        chunk({"text": "a", "thought": True}),
        chunk({"text": "b", "thought": True}, {"text": "c"}),
        chunk({"text": "d", "thoughtSignature": "s1"}),
        chunk({"text": "e"}, {"text": ""}, {"text": "f", "thought": False}),
        chunk({"text": "", "thoughtSignature": "s2"}, finish="STOP"),
    )
    assert answer.content == {
        "role": "model",
        "parts": [
            {"text": "ab", "thought": True},
            {"text": "c"},
            {"text": "d", "thoughtSignature": "s1"},
            {"text": "ef"},
            {"text": "", "thoughtSignature": "s2"},
        ],
    }
    assert answer.text == "cdef"
    assert events == [
        ThoughtDelta("a"), ThoughtDelta("b"), TextDelta("c"), TextDelta("d"), TextDelta("e"), TextDelta("f"),
    ]  # fmt: skip


def test_unknown_kinds_and_fields_survive() -> None:
    part = {"somethingNew": {"a": [1]}, "thoughtSignature": "s"}
    signed = {"functionCall": {"name": "f", "id": "1", "args": {"a": 1}, "later": 2}, "thoughtSignature": "s", "more": 3}
    answer, _ = collected({"candidates": [{"content": {"parts": [part, signed], "new": 1}, "finishReason": "STOP", "x": 1}]})
    assert answer.content == {"role": "model", "new": 1, "parts": [part, signed]}
    assert answer.content["parts"][1] is signed


def test_thoughts_alone_are_an_empty_answer() -> None:
    assert collected(chunk({"text": "hm", "thought": True}, finish="STOP"))[0].is_empty
    assert collected({"candidates": [{"finishReason": "SAFETY"}]})[0].is_empty
    assert not collected(chunk({"text": "a"}, finish="STOP"))[0].is_empty
    assert not collected(chunk(call(), finish="STOP"))[0].is_empty


def test_finish_reason_message_usage_and_model_are_the_last_ones_given() -> None:
    answer, _ = collected(
        {"usageMetadata": {"promptTokenCount": 1}, "modelVersion": "a"},
        {
            "candidates": [{"finishReason": "MAX_TOKENS", "finishMessage": "too long"}],
            "usageMetadata": {"promptTokenCount": "2"},
        },
        {"usageMetadata": {}, "modelVersion": None},
    )
    assert answer == ModelResponse(
        content={"role": "model", "parts": []}, calls=(), finish_reason="MAX_TOKENS", finish_message="too long",
        usage=Usage(input_tokens=2), model="a", raw_metadata=({"finishMessage": "too long", "modelVersion": "a"},),
    )  # fmt: skip


def test_an_answer_does_not_change_when_more_is_fed() -> None:
    collector = Collector()
    collector.feed(chunk({"text": "a"}, finish="STOP"))
    answer = collector.close()
    collector.feed(chunk({"newKind": 1}, call()))
    assert answer.content["parts"] == [{"text": "a"}]


def test_the_text_so_far_is_known_at_any_moment() -> None:
    collector = Collector()
    assert collector.text == ""
    collector.feed(chunk({"text": "t", "thought": True}, {"text": "a"}))
    collector.feed(chunk({"text": "b"}))
    assert collector.text == "ab"
    collector.feed(chunk(call(), {"text": "c"}))
    assert collector.text == "abc"


def test_a_hundred_thousand_deltas_take_linear_time() -> None:
    collector = Collector()
    delta = chunk({"text": "x"})
    began = time.process_time()
    for _ in range(100_000):
        collector.feed(delta)
    collector.feed(chunk(finish="STOP"))
    assert len(collector.close().text) == 100_000
    assert time.process_time() - began < 20  # clock: processor time; quadratic work takes minutes


# --- calls ---------------------------------------------------------------------------------------------------------------


def test_calls_are_taken_in_order_with_ids_of_our_own() -> None:
    answer, events = collected(
        chunk(call(id="1", args={"a": 1})), chunk(call("g"), call(id="2", args={"a": 2}), finish="STOP")
    )
    assert [(c.name, c.args, c.wire_id, c.problem) for c in answer.calls] == [
        ("f", {"a": 1}, "1", None), ("g", {}, None, None), ("f", {"a": 2}, "2", None),
    ]  # fmt: skip
    assert events == [CallProposed(c) for c in answer.calls]
    assert len({c.id for c in answer.calls}) == 3


def test_an_event_that_was_delivered_twice_is_taken_once() -> None:
    same = call(id="1", args={"a": 1})
    answer, _ = collected(chunk(same), chunk(copy.deepcopy(same)), chunk(call(id="1", args={"a": 2})), chunk(finish="STOP"))
    assert [c.args for c in answer.calls] == [{"a": 1}, {"a": 2}]
    assert len(answer.content["parts"]) == 2


def test_equal_calls_without_ids_are_two_calls() -> None:
    assert len(collected(chunk(call(), call(), finish="STOP"))[0].calls) == 2


@pytest.mark.parametrize(
    ("inner", "args", "notes"),
    [
        ({}, {}, ()),
        ({"args": None}, {}, ()),
        ({"args": {}}, {}, ()),
        ({"args": '{"a": 1, "a": 2}'}, {"a": 2}, ("The arguments came as JSON text.",)),
        ({"args": '{"a": "\\ud800"}'}, {"a": "\ufffd"}, ("The arguments came as JSON text.",)),
        ({"args": "null"}, {}, ("The arguments came as JSON text.",)),
    ],
)
def test_arguments_are_read(inner: Any, args: Any, notes: Any) -> None:
    (found,) = function_calls({"parts": [call(**inner)]})
    assert found == FunctionCall(name="f", args=args, id=found.id, notes=notes)


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.rows(
    ("args", "why"),
    [
        ([1], "must be an object, not list"), (5, "must be an object, not int"), (False, "must be an object, not bool"),
        ("", "not valid JSON"), ('{"path": "a', "not valid JSON"), ("[1]", "must be an object, not list"), ("5", "not int"),
        ('{"a": NaN}', "NaN is not finite"), ('{"a": 1e999}', "beyond the range"), ({"a": math.nan}, "nan is not finite"),
        ({"a": [math.inf]}, "inf is not finite"), ({"a": strict_json.Bad("a reason", "x")}, "a reason"),
        (strict_json.Bad("nested too deeply"), "nested too deeply"), (nested(100), "nested deeper than 100"),
        ("[" * 5_000, "not valid JSON"), ('{"a": ' + "9" * 5_000 + "}", "5000 digits"),
    ],
    ids=range(16),
)  # fmt: skip
def test_arguments_that_cannot_be_read_are_a_problem_and_can_still_be_answered(args: Any, why: str) -> None:
    answer, _ = collected(chunk(call(args=args, id="1"), finish="STOP"))
    (found,) = answer.calls
    assert found.problem is not None
    assert why in found.problem
    talk = Conversation([{"role": "user", "parts": [{"text": "hi"}]}])
    talk.add_model(answer.content)
    talk.add_responses(
        [to_function_response(found, ToolResult(call_id=found.id, name="f", status="failed", error=found.problem))]
    )
    assert validate(talk.contents, sendable=True) == []
    assert isinstance(talk.contents[1]["parts"][0]["functionCall"].get("args") or {}, dict)


@pytest.mark.parametrize(
    "inner", [{}, {"name": None}, {"name": ""}, {"name": 5}, {"name": ["f"]}, {"name": strict_json.Bad("x")}]
)
def test_a_call_without_a_name_is_a_problem_and_can_still_be_answered(inner: Any) -> None:
    answer, _ = collected(chunk({"functionCall": inner}, finish="STOP"))
    (found,) = answer.calls
    assert (found.name, found.problem) == ("unnamed_function", "The call does not name a tool.")
    assert answer.content["parts"] == [{"functionCall": {"name": "unnamed_function"}}]


def test_a_call_that_is_no_object_is_a_call_without_a_name() -> None:
    answer, events = collected(chunk({"functionCall": "f()"}, finish="STOP"))
    assert [found.problem for found in answer.calls] == ["The call does not name a tool."]
    assert answer.content["parts"] == [{"functionCall": {"name": "unnamed_function"}}]
    assert [type(event) for event in events] == [CallProposed]


def test_text_that_is_no_text_is_nothing() -> None:
    answer, events = collected(chunk({"text": 5}, {"text": ["a"], "thoughtSignature": "c2ln"}, finish="STOP"))
    assert answer.is_empty
    assert answer.content["parts"] == [{"text": "", "thoughtSignature": "c2ln"}]  # A server refuses a signature alone.
    assert events == []


def test_a_function_response_that_is_no_object_ends_the_answer_as_one_that_is() -> None:
    with pytest.raises(ProtocolError, match="function response, which is not the model's to give"):
        collected(chunk({"functionResponse": "x"}, finish="STOP"))


@pytest.mark.parametrize("as_text", [False, True])
def test_arguments_of_too_many_characters_are_a_problem_of_that_call_alone(as_text: bool) -> None:
    long = "x" * ARGS_CHARS_MAX
    args = f'{{"a": "{long}", "b": "y"}}' if as_text else {"a": long, "b": "y"}
    answer, _ = collected(chunk(call(args=args), call(args={"a": 1}), finish="STOP"))
    assert [found.problem for found in answer.calls] == [
        "The arguments cannot be used: they hold more than 16,777,216 characters.", None
    ]  # fmt: skip
    assert len(str(answer.calls[0].args)) < 100


def test_streamed_arguments_of_too_many_characters_are_a_problem_too() -> None:
    piece = {"jsonPath": "$.a", "stringValue": "x" * (ARGS_CHARS_MAX // 2 + 1), "willContinue": True}
    answer, _ = collected(
        chunk(call(willContinue=True)),
        *[chunk({"functionCall": {"partialArgs": [piece], "willContinue": True}}) for _ in range(2)],
        chunk({"functionCall": {}}, finish="STOP"),
    )
    (found,) = answer.calls
    assert found.problem == "The arguments cannot be used: they hold more than 16,777,216 characters."
    assert len(str(answer.content)) < 1_000


@pytest.mark.parametrize("wire_id", ["x" * 10_000, "", 5, [], {"a": 1}, True])
def test_an_id_that_cannot_be_echoed_is_dropped_on_both_sides(wire_id: Any) -> None:
    answer, _ = collected(chunk(call(id=wire_id), finish="STOP"))
    assert answer.calls[0].wire_id is None
    assert answer.content["parts"] == [call()]
    assert function_calls(answer.content)[0].wire_id is None


def test_bad_places_outside_the_calls_are_mended() -> None:
    bad = strict_json.Bad("why", "a\ufffd")
    answer, events = collected(
        {"candidates": [{"content": {"parts": [{"text": bad}, {"new": math.nan}], "x": bad}, "finishReason": "STOP"}]}
    )
    assert answer.content == {"role": "model", "parts": [{"text": "a\ufffd"}, {"new": None}], "x": "a\ufffd"}
    assert events == [TextDelta("a\ufffd")]


def test_far_too_many_calls_are_refused_as_a_whole() -> None:
    collector = Collector()
    collector.feed(chunk(*[call()] * CALLS_MAX))
    with pytest.raises(ProtocolError, match="more than"):
        collector.feed(chunk(call()))


# --- answers that are none -----------------------------------------------------------------------------------------------


def test_an_answer_without_a_finish_reason_is_an_error_that_keeps_the_text() -> None:
    collector = Collector()
    collector.feed(chunk({"text": "half an ans"}, call()))
    with pytest.raises(ProtocolError, match="no finish reason") as caught:
        collector.close()
    assert (caught.value.partial, caught.value.retryable) == ("half an ans", True)


def test_no_chunk_at_all_is_an_empty_answer() -> None:
    with pytest.raises(ProtocolError, match="is empty"):
        Collector().close()


@pytest.mark.parametrize(
    ("message", "said"), [("why", "the prompt was blocked (SAFETY): why"), (None, "the prompt was blocked (SAFETY)")]
)
def test_a_blocked_prompt_says_why(message: Any, said: str) -> None:
    collector = Collector()
    collector.feed({"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": message}})
    with pytest.raises(BlockedError) as caught:
        collector.close()
    assert (str(caught.value), caught.value.reason) == (said, "SAFETY")


@pytest.mark.parametrize("beside", [{}, {"functionCall": {"name": "f"}}, {"thoughtSignature": "s"}])
def test_a_function_response_is_not_the_models_to_give(beside: Any) -> None:
    collector = Collector()
    collector.feed(chunk({"text": "a"}, {**beside, "functionResponse": {"name": "f", "response": {}}}, finish="STOP"))
    with pytest.raises(ProtocolError, match="function response") as caught:
        collector.close()
    assert caught.value.partial == "a"


@pytest.mark.parametrize("garbage", [None, [], "x", 5])
def test_a_chunk_that_is_not_an_object_is_a_protocol_error(garbage: Any) -> None:
    with pytest.raises(ProtocolError, match="not an object"):
        Collector().feed(garbage)


_FIELDS = [
    "candidates", "content", "parts", "role", "text", "functionCall", "functionResponse", "function_call",
    "function_response", "args", "name", "id", "thought", "thoughtSignature", "thought_signature", "inlineData",
    "partialArgs", "willContinue",
    "jsonPath", "stringValue", "numberValue", "finishReason", "finishMessage", "promptFeedback", "blockReason",
    "usageMetadata", "promptTokenCount", "new",
]  # fmt: skip
_HALVES = st.sampled_from(["\ud800", "a\udfffb", "\ud83d\ude00"])


def test_bad_arguments_that_are_deep_are_replaced_as_a_whole() -> None:
    part = clean_part({"functionCall": {"name": "f", "args": {"x": deep(40, math.nan)}}})
    problem = "the number nan is not finite"
    assert (part.part, part.problem) == ({"functionCall": {"name": "f", "args": {"unreadable": problem}}}, problem)


def deep(levels: int, value: Any = None) -> Any:
    for number in range(levels):
        value = [value] if number % 2 else {"a": value}
    return value


garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | _HALVES
    | st.just(strict_json.Bad("bad \ud800", "b\ud800"))
    | st.sampled_from(["f", "$.a", "$['\ud800']", '{"a": NaN}', '{"a": 1}'])
    | st.sampled_from([2**100, deep(90), deep(99, math.nan), deep(101), deep(150), deep(400)]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS) | _HALVES, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
garbage_part = garbage | st.builds(
    lambda key, inner, more: {**more, key: inner},
    st.sampled_from(["functionCall", "function_call", "text", "functionResponse"]),
    st.dictionaries(st.sampled_from(["name", "args", "id", "partialArgs", "willContinue", "partial_args"]), garbage)
    | garbage,
    st.dictionaries(st.sampled_from([*_FIELDS, "\ud800"]), garbage, max_size=2),
)
garbage_chunk = (
    st.dictionaries(st.sampled_from(["candidates", "promptFeedback", "usageMetadata", "modelVersion"]), garbage)
    | st.builds(
        lambda parts, reason: chunk(*parts, finish=reason), st.lists(garbage_part, max_size=3), st.just("STOP") | _HALVES
    )
    | st.builds(lambda content: {"candidates": [{"content": content}]}, garbage)
)


@settings(max_examples=300 * SCALE, deadline=None)
@given(st.lists(garbage_chunk, max_size=4))
def test_any_json_is_a_typed_error_or_an_answer_that_the_history_takes(chunks: list[Any]) -> None:
    try:
        answer, events = collected(*chunks)
    except (ProtocolError, BlockedError) as error:
        strict_json.dump([str(error), error.partial, getattr(error, "ratings", ())])
        return
    fields = [answer.content, answer.finish_reason, answer.finish_message, answer.model, [vars_of(c) for c in answer.calls]]
    written = strict_json.dump(fields)
    assert strict_json.parse(written, depth_max=2 * strict_json.DEPTH_MAX - 10) == fields
    strict_json.dump([event.text for event in events if not isinstance(event, (CallProposed, Notice))])
    assert [c.name for c in answer.calls] == [c.name for c in function_calls(answer.content)]
    talk = Conversation()
    talk.add_user("x")
    if any(map(has_data, answer.content["parts"])):  # There is nothing to add of an answer that says nothing.
        talk.add_model(answer.content)
        assert answer.is_empty or talk.last == {**answer.content, "parts": [*filter(is_kept, answer.content["parts"])]}
    assert [(c.name, c.wire_id) for c in answer.calls] == [(c["name"], c.get("id")) for c in talk.open_calls]
    if answer.calls:
        talk.add_responses([])
    assert validate(talk.contents) == []


def vars_of(call: FunctionCall) -> dict[str, Any]:
    return {"name": call.name, "args": call.args, "id": call.id, "wire": call.wire_id, "problem": call.problem}


def is_kept(part: Any) -> bool:
    return has_data(part) or is_signed(part)


@pytest.mark.parametrize(
    "part",
    [
        {"functionCall": {"name": "f"}, "functionResponse": "s"},
        {"function_response": {"name": "f"}},
        {"functionCall": {"name": "f"}, "function_response": 0},
    ],
)
def test_a_response_in_any_form_and_place_ends_the_answer(part: Any) -> None:
    with pytest.raises(ProtocolError, match="function response") as caught:
        collected(chunk({"text": "a"}, part, finish="STOP"))
    assert (caught.value.partial, caught.value.retryable) == ("a", True)


def test_a_call_in_snake_case_is_proposed_and_kept() -> None:
    part = {
        "text": None,
        "function_call": {"id": "1", "name": "f", "args": {"file_path": "x"}, "will_continue": None},
        "thought_signature": b"sig",
    }
    answer, events = collected({"candidates": [{"content": {"parts": [part], "role": "model"}, "finish_reason": "STOP"}]})
    (found,) = answer.calls
    assert (found.name, found.args, found.wire_id, found.problem) == ("f", {"file_path": "x"}, "1", None)
    assert events == [CallProposed(found)]
    sent = {"functionCall": {"id": "1", "name": "f", "args": {"file_path": "x"}}, "thoughtSignature": "c2ln"}
    assert answer.content["parts"] == [sent]


def test_a_call_in_snake_case_that_is_no_object_is_a_call_without_a_name() -> None:
    answer, _ = collected(chunk({"function_call": "s"}, finish="STOP"))
    assert [found.problem for found in answer.calls] == ["The call does not name a tool."]


def test_halves_of_characters_are_replaced_wherever_they_stand() -> None:
    answer, events = collected(
        {
            "candidates": [
                {
                    "content": {
                        "role": "\ud800",
                        "parts": [{"text": "a\ud800"}, call("f\ud800", args={"\ud800": "\udc00"})],
                    },
                    "finishReason": "S\ud800",
                    "finishMessage": "m\ud800",
                }
            ],
            "modelVersion": "v\ud800",
        }
    )
    (found,) = answer.calls
    assert (found.name, found.args, found.problem) == ("f\ufffd", {"\ufffd": "\ufffd"}, None)
    assert found.notes == ("Characters that are not valid Unicode were replaced by U+FFFD.",)
    assert (answer.finish_reason, answer.finish_message, answer.model) == ("S\ufffd", "m\ufffd", "v\ufffd")
    assert answer.content == {
        "role": "model",
        "parts": [{"text": "a\ufffd"}, call("f\ufffd", args={"\ufffd": "\ufffd"})],
    }
    assert events[0] == TextDelta("a\ufffd")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (date(2024, 1, 1), "a value of the type 'date' is not JSON"),
        ({1}, "a value of the type 'set' is not JSON"),
        (b"x", "bytes are not JSON"),
        ({5: 1}, "a key is not text"),
        (10**5_000, "an integer is too long"),
    ],
    ids=["date", "set", "bytes", "key", "integer"],
)
def test_arguments_of_a_custom_model_that_are_not_json_are_a_problem_of_that_call(value: Any, why: str) -> None:
    answer, _ = collected(chunk(call(args={"a": value}), call("g", args={"b": (1, 2)}), finish="STOP"))
    assert [found.problem for found in answer.calls] == [f"The arguments cannot be used: {why}.", None]
    assert answer.calls[1].args == {"b": [1, 2]}
    strict_json.dump(answer.content)


def test_arguments_that_hold_themselves_are_a_problem_and_end() -> None:
    around: list[Any] = []
    around.append(around)
    answer, _ = collected(chunk(call(args={"a": around}), {"new": around}, finish="STOP"))
    assert answer.calls[0].problem == "The arguments cannot be used: they hold more than 100,000 values."
    strict_json.dump(answer.content)


def test_ids_of_calls_come_from_the_source_that_was_passed() -> None:
    ids = iter(["a", "b"])
    collector = Collector(new_id=lambda: next(ids))
    collector.feed(chunk(call(), call(), finish="STOP"))
    assert [found.id for found in collector.close().calls] == ["a", "b"]


# --- whole answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"candidates": []},
        {"candidates": None},
        {"candidates": [None]},
        {"candidates": [{}]},
        {"parts": None},
        {"parts": "x"},
        {"candidates": [{"content": {}}]},
        {"candidates": [{"content": "x"}]},
        {"parts": [{"text": "f()"}, {"functionCall": None}]},
    ],
)
def test_an_answer_without_calls_has_none(answer: Any) -> None:
    assert function_calls(answer) == []


def test_all_parts_of_the_first_candidate_are_read() -> None:
    response = chunk({"text": "t", "thought": True}, call("a"), {"text": "x"}, call("b"))
    response["candidates"].append(chunk(call("c"))["candidates"][0])
    assert [c.name for c in function_calls(response)] == ["a", "b"]
    assert [c.name for c in function_calls(response["candidates"][0]["content"])] == ["a", "b"]


def test_sdk_objects_are_read() -> None:
    types = pytest.importorskip("google.genai.types")
    content = types.Content(
        role="model", parts=[types.Part(function_call=types.FunctionCall(id="1", name="f", args={"a": None, "b": [1]}))]
    )
    (found,) = function_calls(content)
    assert (found.name, found.args, found.wire_id) == ("f", {"a": None, "b": [1]}, "1")
    response = types.GenerateContentResponse(candidates=[types.Candidate(content=content)])
    assert [c.name for c in function_calls(response)] == ["f"]


def test_field_names_are_read_in_snake_case_too_and_keys_of_arguments_are_left_alone() -> None:
    part = {"text": None, "function_call": {"id": "1", "name": "f", "args": {"file_path": "x"}}, "thought_signature": b"s"}
    response = {"candidates": [{"content": {"parts": [part], "role": "model"}, "finish_reason": "STOP"}]}
    (found,) = function_calls(response)
    assert (found.name, found.args, found.wire_id, found.problem) == ("f", {"file_path": "x"}, "1", None)


def test_a_call_whose_arguments_are_not_all_there_cannot_run_whoever_reads_it() -> None:
    piece = {"jsonPath": "$.path", "stringValue": "a", "willContinue": True}
    begun = {"functionCall": {"name": "delete", "partialArgs": [piece], "willContinue": True}}
    whole = {"functionCall": {"name": "delete", "partialArgs": [{"jsonPath": "$.path", "stringValue": "b"}]}}
    end = {"functionCall": {"partialArgs": [{"jsonPath": "$.path", "stringValue": "/b"}]}}
    cut = "The call was cut off before its arguments were complete."
    read = [
        [(call.args, call.problem) for call in function_calls({"parts": given})]
        for given in ([begun], [whole], [begun, end])
    ]
    assert read == [[({"path": "a"}, cut)], [({"path": "b"}, None)], [({"path": "a/b"}, None)]]


def test_the_same_part_twice_in_one_content_is_two_calls_which_each_need_a_response() -> None:
    part = {"functionCall": {"name": "f", "id": "1"}}
    assert len(function_calls({"role": "model", "parts": [part, part]})) == 2


def test_half_a_character_that_another_reader_left_is_replaced() -> None:
    part = json.loads('{"functionCall": {"name": "f", "args": {"a": ["x\\ud800"], "\\udc00": 1, "b": 5}}}')
    (call,) = function_calls(part)
    assert call.args == {"a": ["x\ufffd"], "\ufffd": 1, "b": 5}
    assert call.notes == ("Characters that are not valid Unicode were replaced by U+FFFD.",)


def test_a_lone_part_is_an_answer_too() -> None:
    assert [c.name for c in function_calls(call("f"))] == ["f"]


@pytest.mark.parametrize("field", ["finishReason", "finish_reason"])
def test_calls_of_an_answer_that_did_not_end_well_have_a_problem(field: str) -> None:
    response = {"candidates": [{"content": {"parts": [call("f")]}, field: "MALFORMED_FUNCTION_CALL"}]}
    (found,) = function_calls(response)
    assert found.problem == "The model's answer did not end well (MALFORMED_FUNCTION_CALL), so nothing of it was run."


@pytest.mark.parametrize("answer", [None, 5, "text", [{}]])
def test_what_is_no_answer_is_refused(answer: Any) -> None:
    with pytest.raises(TypeError, match="expected a response"):
        function_calls(answer)


# --- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "own"),
    [
        ("f", "my.f"),
        ("default_api.f", "my.f"),
        ("default_api:f", "my.f"),
        ("functions.f", "my.f"),
        ("nope", None),
        ("my.f", None),
        ("default_api.nope", None),
        ("", None),
        ("tools.g", "g"),
        ("functions:functions.g", None),
    ],
)
def test_a_name_is_understood_with_the_prefixes_that_models_add(written: str, own: str | None) -> None:
    assert resolve_name(written, {"f": "my.f", "g": "g"}) == own


def test_a_model_that_called_an_unknown_tool_is_told_the_nearest_names() -> None:
    assert (
        unknown_name_sentence("read_fil", ["read_file", "zzz"])
        == "There is no tool named 'read_fil'. Did you mean 'read_file'?"
    )
    assert unknown_name_sentence("x", ["aaa", "bbb"]) == "There is no tool named 'x'. The tools are 'aaa', 'bbb'."
    assert unknown_name_sentence("x", []) == "There is no tool named 'x'. There are no tools."
    assert len(unknown_name_sentence("x" * 100_000, [f"tool_{n:060}" for n in range(512)])) < 2_000


# --- calls that were written as text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("print(default_api.f(x=1))", [("default_api.f", {"x": 1})]),
        (
            "Malformed function call: f(a='b', c=[1, (2, None)], d={'e': True})",
            [("f", {"a": "b", "c": [1, [2, None]], "d": {"e": True}})],
        ),
        ("```tool_code\nprint(f(x=-1.5))\ng()\n```", [("f", {"x": -1.5}), ("g", {})]),
        (r"f(p='C:\dir')", [("f", {"p": "C:\\dir"})]),
        ("f(x=1, x=2)", [("f", {"x": 2})]),
    ],
)
def test_python_text_is_read_as_calls(text: str, calls: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = salvaged_calls(text)
    assert [(c.name, c.args) for c in found] == calls
    assert all(c.id and c.notes == ("The call was read from Python text.",) for c in found)


@pytest.mark.rows(
    "text",
    [
        "",
        "   ",
        "# a comment",
        "hello there",
        "f(1)",
        "f(*a)",
        "f(**a)",
        "f(x=y)",
        "f(x=1+1)",
        "f(x=g())",
        "x = f(a=1)",
        "import os",
        "f(a=1)\nimport os",
        "f()()",
        "f[0](a=1)",
        "(lambda: 0)()",
        "__import__('os').system(a=1)",
        "f(x=b'1')",
        "f(x={1, 2})",
        "f(x=1j)",
        "f(x={1: 2})",
        "f(x=...)",
        "f(x=1e999)",
        "f(x='\\ud800')",
        "f(x=[1",
        "f(x='\x00')",
        "print(f(x=1), g(y=2))",
        "print('x')",
        "f(x=f'{1}')",
        "(" * 10_000,
        "[" * 10_000,
        "-" * 19_000 + "1",
        "a" + ".a" * 9_000 + "()",
        "f(x=" + "[" * 90 + "]" * 90 + ")" * 2,
        "f(x=" + "9" * 5_000 + ")",
        "f(a='" + "x" * 20_000 + "')",
        "f(x=" + "[" * 150 + "]" * 150 + ")",
    ],
    ids=lambda text: text[:20],
)
def test_text_that_is_not_only_calls_with_plain_literals_gives_nothing(text: str) -> None:
    assert salvaged_calls(text) == []


@settings(max_examples=300 * SCALE)
@given(st.text(max_size=100) | st.text(alphabet="f(x=1)'\"[]{},.:-\n`print \\", max_size=60))
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    for found in salvaged_calls(text):
        assert strict_json.parse(strict_json.dump(found.args)) == found.args


# Arguments that stream ----------------------------------------------------------------------------------------------------


def piece(entries: list[Any] | None = None, *, more: bool = True, name: str | None = None, **part: Any) -> dict[str, Any]:
    inner: dict[str, Any] = {"name": name, "id": "c1"} if name else {}
    inner |= {"partialArgs": entries} if entries is not None else {}
    inner |= {"willContinue": True} if more else {}
    return {"functionCall": inner} | part


def streamed(*pieces: dict[str, Any], reason: str | None = "STOP") -> tuple[ModelResponse, list[Any]]:
    collector = Collector()
    seen: list[Any] = []
    for one in pieces:
        seen += collector.feed({"candidates": [{"content": {"role": "model", "parts": [one]}}]})
    seen += collector.feed({"candidates": [{"finishReason": reason}]})
    return collector.close(), seen


def test_arguments_that_stream_become_one_call_with_the_signature_of_its_first_piece():
    answer, seen = streamed(
        piece(name="write", thoughtSignature="c2ln"),
        piece([{"jsonPath": "$.path", "stringValue": "src/", "willContinue": True}]),
        piece([{"jsonPath": "$.path", "stringValue": "main.py"}, {"jsonPath": "$.mode", "numberValue": 420}]),
        piece(more=False),
    )
    args = {"path": "src/main.py", "mode": 420}
    assert answer.content["parts"] == [
        {"functionCall": {"name": "write", "id": "c1", "args": args}, "thoughtSignature": "c2ln"},
    ]
    (call,) = answer.calls
    assert (call.name, call.args, call.wire_id, call.problem) == ("write", args, "c1", None)
    assert [type(event).__name__ for event in seen] == ["CallProposed", *["CallArgsDelta"] * 3]
    assert {event.call_id for event in seen[1:]} == {seen[0].call.id} == {call.id}
    assert [event.text for event in seen[1:]] == ["src/", "main.py", "420"]


def test_a_streamed_call_may_begin_with_arguments_and_end_without_an_empty_piece():
    answer, _ = streamed(piece([{"jsonPath": "$.a", "numberValue": 1}], name="f", more=False))
    assert [(call.args, call.problem) for call in answer.calls] == [({"a": 1}, None)]


def test_two_streamed_calls_are_kept_apart():
    first, second = piece(name="f"), {"functionCall": {"name": "g", "id": "c2", "willContinue": True}}
    entry = [{"jsonPath": "$.a", "boolValue": False}]
    answer, _ = streamed(first, piece(entry), piece(more=False), second, piece(entry), piece(more=False))
    assert [(call.name, call.args) for call in answer.calls] == [("f", {"a": False}), ("g", {"a": False})]


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS"])
def test_a_call_whose_arguments_never_end_cannot_run(reason: str):
    answer, _ = streamed(piece(name="f"), piece([{"jsonPath": "$.a", "stringValue": "hal"}]), reason=reason)
    assert answer.calls[0].problem == "The call was cut off before its arguments were complete."
    assert answer.content["parts"] == [{"functionCall": {"name": "f", "id": "c1", "args": {"a": "hal"}}}]


def test_a_call_that_is_overtaken_by_the_next_cannot_run():
    answer, _ = streamed(piece(name="f"), {"functionCall": {"name": "g", "id": "c2", "args": {}}})
    problem = "The next call began before the arguments of this one were complete."
    assert [(call.name, call.problem) for call in answer.calls] == [("f", problem), ("g", None)]


def test_pieces_that_contradict_each_other_spoil_only_their_call():
    answer, _ = streamed(
        piece(name="f"),
        piece([{"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.a.b", "numberValue": 1}], more=False),
        {"functionCall": {"name": "g", "id": "c2"}},
    )
    assert [(call.name, call.problem is None) for call in answer.calls] == [("f", False), ("g", True)]


def test_text_between_the_pieces_of_a_call_is_kept():
    answer, _ = streamed(piece(name="f"), {"text": "hm"}, piece([{"jsonPath": "$.a", "nullValue": None}], more=False))
    assert [next(iter(part)) for part in answer.content["parts"]] == ["functionCall", "text"]
    assert answer.calls[0].args == {"a": None}


def test_of_a_very_long_answer_that_breaks_off_the_beginning_is_kept():
    collector = Collector()
    for _ in range(3):
        collector.feed({"candidates": [{"content": {"parts": [{"text": "a" * 400_000}]}}]})
    assert collector.text == "a" * 1_000_000
    collector.feed({"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}}]})
    assert collector.text == "a" * 1_000_000


def test_notes_of_repaired_arguments_are_on_the_call_and_not_in_the_content():
    args = strict_json.AnnotatedObject({"a": 1}, ["A comma was removed."])
    collector = Collector()
    collector.feed(
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": args}}]}, "finishReason": "STOP"}]}
    )
    answer = collector.close()
    assert (answer.calls[0].args, answer.calls[0].notes) == ({"a": 1}, ("A comma was removed.",))
    assert type(answer.calls[0].args) is dict
    assert type(answer.content["parts"][0]["functionCall"]["args"]) is dict


def test_a_whole_sentence_about_bad_arguments_is_told_as_it_stands():
    bad = strict_json.Bad("The call was not run.", {"unreadable": "x"})
    [call] = function_calls({"parts": [{"functionCall": {"name": "f", "args": bad}}]})
    assert (call.problem, call.args) == ("The call was not run.", {"unreadable": "x"})


def test_function_calls_reads_the_other_legal_spelling_too() -> None:
    content = {"role": "model", "parts": [{"function_call": {"name": "f", "args": {"a_b": 1}}, "inline_data": None}]}
    assert [(found.name, found.args) for found in function_calls(content)] == [("f", {"a_b": 1})]


# Sounds -----------------------------------------------------------------------------------------------------------------

PCM = "audio/L16;codec=pcm;rate=24000"


def sound(data: bytes, kind: str = PCM, **more: Any) -> dict[str, Any]:
    return {"inlineData": {"mimeType": kind, "data": base64.b64encode(data).decode()}, **more}


def test_a_sound_that_comes_in_pieces_is_one_sound_and_one_event() -> None:
    collector = Collector()
    pieces = [sound(b"ab"), sound(b"c"), {"text": ""}, sound(b"defg", thoughtSignature="s")]
    events = [event for piece in pieces for event in collector.feed(chunk(piece))]
    assert events == []
    assert collector.feed({"candidates": [{"finishReason": "STOP"}]}) == [
        MediaReceived(Media(data=b"abcdefg", mime_type=PCM))
    ]
    answer = collector.close()
    assert answer.content["parts"] == [sound(b"abcdefg", thoughtSignature="s")]
    assert answer.media == [Media(data=b"abcdefg", mime_type=PCM)]


def test_a_sound_ends_where_something_else_begins() -> None:
    collector = Collector()
    wav = [sound(b"RIFF" + bytes([number]), "audio/wav") for number in (1, 2)]
    parts = [sound(b"ab"), sound(b"c"), {"text": "and"}, sound(b"d"), *wav, sound(b"e", "audio/mpeg", thought=True)]
    events = collector.feed(chunk(*parts, finish="STOP"))
    assert [event.media.data if isinstance(event, MediaReceived) else event for event in events] == [
        b"abc", TextDelta("and"), b"d", b"RIFF\x01", b"RIFF\x02",
    ]  # fmt: skip
    assert collector.close().content["parts"] == [sound(b"abc"), {"text": "and"}, sound(b"d"), *wav, parts[-1]]


def test_pieces_of_a_sound_that_cannot_be_joined_stay_as_they_came() -> None:
    odd = {"inlineData": {"mimeType": PCM, "data": "!"}}
    collector = Collector()
    collector.feed(chunk(sound(b"ab"), odd, finish="STOP"))
    assert collector.close().content["parts"] == [sound(b"ab"), odd]


def test_the_version_and_the_time_of_an_answer_are_kept_beside_what_else_was_reported() -> None:
    collector = Collector()
    about = {
        "modelVersion": "gemini-3.8-flash-001",
        "createTime": "2026-01-01T00:00:00Z",
        "modelStatus": {"stage": "STABLE"},
    }
    collector.feed(chunk({"text": "a"}, finish="STOP", **about))
    assert collector.close().raw_metadata == (about,)
