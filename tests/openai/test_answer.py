"""Chunks of chat completions become chunks in Gemini's form, however the server writes and wherever its bytes were cut."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.content import call_args
from callgate.content.collect import Collector
from callgate.content.collect import ModelResponse as Collected
from callgate.errors import LimitExceededError, ModelError, ProtocolError
from callgate.gemini import ResponseReader
from callgate.openai.answer import AnswerReader, finish_reason_of, says_something
from callgate.testing.answers import Mint, answer, calls, text, thought
from callgate.testing.chat_answers import STYLES, Style, chat_chunks
from callgate.types import Usage

NAMES = ("add", "now", "today", "get_weather")
GIVEN = answer(
    thought("Two sums."), "Grüße 🦊.", calls(("add", {"a": 1, "b": [2, {"c": '}{"é'}]}), ("now", {}), ("add", {"a": 3}))
)


def collected(chunks: list[dict[str, Any]], names: Any = NAMES) -> Collected:
    reader, collector = AnswerReader(names), Collector()
    for chunk in chunks:
        for said in reader.feed(chunk):
            collector.feed(said)
    for said in reader.close():
        collector.feed(said)
    return collector.close()


def written(given: Any, style: Style, *, stream: bool, usage: bool = True) -> list[dict[str, Any]]:
    chunks = chat_chunks(given, Mint(), style, model="m", stream=stream, usage=usage, prompt_tokens=7)
    return [json.loads(json.dumps(chunk)) for chunk in chunks]


def shape(found: Collected) -> list[tuple[str, Any]]:
    return [(call.name, call.args) for call in found.calls]


def delta(*pieces: dict[str, Any], reason: str | None = None, **fields: Any) -> dict[str, Any]:
    said = fields | ({"tool_calls": list(pieces)} if pieces else {})
    return {"choices": [{"index": 0, "delta": said, "finish_reason": reason}]}


def piece(name: str | None = None, args: Any = None, **fields: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    return fields | {"function": function}


END = delta(reason="tool_calls")

STRANGE = {
    **STYLES,
    "no_ids": Style(ids=False),
    "object_args": Style(object_args=True),
    "empty_args": Style(empty_args=True),
    "split_names": Style(name_pieces=3),
    "repeated_names": Style(repeats_name=True),
    "no_index": Style(index="missing"),
    "zero_index": Style(index="zero"),
    "no_index_no_ids": Style(index="missing", ids=False),
    "zero_index_no_ids": Style(index="zero", ids=False),
    "zero_index_whole": Style(index="zero", args_chars=None, ids=False),
    "one_char": Style(args_chars=1),
    "empty_choices": Style(empty_choices_first=True),
    "no_role": Style(role_alone=False),
    "reasoning": Style(reasoning="reasoning"),
}


@pytest.mark.rows("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.rows("style", STRANGE.values(), ids=STRANGE)
def test_every_hand_gives_the_same_answer(style: Style, stream: bool) -> None:
    found = collected(written(GIVEN, style, stream=stream))
    assert shape(found) == [("add", {"a": 1, "b": [2, {"c": '}{"é'}]}), ("now", {}), ("add", {"a": 3})]
    assert [call.problem for call in found.calls] == [None] * 3
    assert (found.text, found.finish_reason, found.model) == ("Grüße 🦊.", "STOP", "m")
    assert found.content["parts"][0] == {"text": "Two sums.", "thought": True}
    ids = [call.wire_id for call in found.calls]
    assert len({*ids}) == 3 if style.ids else ids == [None] * 3
    assert found.usage.input_tokens == 7
    assert found.usage.thought_tokens == 3
    assert found.usage.total_tokens == 7 + found.usage.output_tokens + 3


@pytest.mark.parametrize("style", ["openai", "ollama", "llama.cpp", "generic"])
def test_bytes_cut_at_every_place_give_the_same_chunks(style: str) -> None:
    messages = written(answer("Hé.", calls(("add", {"a": "ü"}))), STYLES[style], stream=True)
    data = b"".join(b"data: %b\n\n" % json.dumps(message, ensure_ascii=False).encode() for message in messages)
    data += b"data: [DONE]\n\n"
    for place in range(len(data) + 1):
        reader = ResponseReader()
        assert [*reader.feed(data[:place]), *reader.feed(data[place:]), *reader.close()] == messages


@settings(max_examples=60)
@given(cuts=st.lists(st.integers(0, 2_000), max_size=20), style=st.sampled_from(sorted(STYLES)))
def test_bytes_cut_anywhere_give_the_same_answer(cuts: list[int], style: str) -> None:
    messages = written(GIVEN, STYLES[style], stream=True)
    data = b"".join(b"data: %b\r\n\r\n" % json.dumps(message, ensure_ascii=False).encode() for message in messages)
    places = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    reader = ResponseReader()
    chunks = [chunk for a, b in itertools.pairwise(places) for chunk in reader.feed(data[a:b])]
    assert shape(collected([*chunks, *reader.close()])) == shape(collected(messages))


@pytest.mark.parametrize("style", ["openai", "vllm", "generic"])
def test_no_truncation_makes_an_answer_with_calls(style: str) -> None:
    messages = written(calls(("add", {"a": 1}), ("add", {"a": 2})), STYLES[style], stream=True, usage=False)
    data = b"".join(b"data: %b\n\n" % json.dumps(message).encode() for message in messages)
    ended = data.index(b'"finish_reason": "tool_calls"')
    for length in range(len(data)):
        reader = ResponseReader()
        try:
            found = collected([*reader.feed(data[:length]), *reader.close()])
        except ModelError:
            continue
        # Only a stream that lost nothing but its last line end is whole.
        assert length > ended
        assert len(found.calls) == 2


# Pieces of calls ---------------------------------------------------------------------------------------------------------


def test_an_id_may_come_on_a_later_piece() -> None:
    found = collected([delta(piece("add", "", index=0)), delta(piece(None, '{"a":1}', index=0, id="call_1")), END])
    assert [(call.wire_id, call.args) for call in found.calls] == [("call_1", {"a": 1})]


def test_calls_may_take_turns_in_arriving() -> None:
    found = collected([
        delta(piece("add", '{"a":', index=1, id="b"), piece("now", "{", index=0, id="a")),
        delta(piece(None, "}", index=0)), delta(piece(None, "2}", index=1)), END,
    ])  # fmt: skip
    assert [(call.wire_id, call.name, call.args) for call in found.calls] == [("b", "add", {"a": 2}), ("a", "now", {})]


def test_parallel_calls_that_all_have_the_index_zero_stay_apart() -> None:
    chunks = [delta(piece("add", json.dumps({"a": n}), index=0, id=f"c{n}")) for n in range(3)]
    assert shape(collected([*chunks, END])) == [("add", {"a": n}) for n in range(3)]


def test_calls_without_arguments_index_and_ids_are_told_apart_by_their_names() -> None:
    assert shape(collected([delta(piece("now", "")), delta(piece("today", "")), END])) == [("now", {}), ("today", {})]


def test_a_name_of_two_equal_halves_is_put_together_if_there_is_such_a_tool() -> None:
    chunks = [delta(piece("go", "", index=0)), delta(piece("go", "{}", index=0)), END]
    assert shape(collected(chunks, ("gogo",))) == [("gogo", {})]
    assert shape(collected(chunks, ("go",))) == [("go", {})]


def test_two_calls_of_a_whole_message_with_one_id_are_two() -> None:
    message = {"tool_calls": [piece("add", '{"a":1}', id="x"), piece("add", '{"a":2}', id="x")]}
    found = collected([{"choices": [{"message": message, "finish_reason": "tool_calls"}]}])
    assert [call.args for call in found.calls] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("arguments", "args", "problem"),
    [
        ("", {}, None),
        ("  ", {}, None),
        ("null", {}, None),
        ({"a": 1}, {"a": 1}, None),
        ('{"a": 1, "a": 2}', {"a": 2}, None),
        ('{"a": 1', {}, "not valid JSON"),
        ("a is 1", {}, "not valid JSON"),
        ("[1]", {}, "must be an object"),
        (7, {}, "must be an object"),
        ('{"a": NaN}', {"a": None}, "not finite"),
        ('{"a": 1e999}', {"a": None}, "beyond the range"),
        ("{" * 3_000, {}, "not valid JSON"),
    ],
)
def test_arguments_are_read_or_refused_and_never_guessed(arguments: Any, args: Any, problem: str | None) -> None:
    (call,) = collected([delta(piece("add", arguments, index=0)), END]).calls
    assert (call.problem is None) == (problem is None), call.problem
    assert problem is None or problem in str(call.problem)
    assert problem is not None or call.args == args


def test_lone_surrogates_in_arguments_are_replaced() -> None:
    (call,) = collected([delta(piece("add", '{"a": "\\ud800"}', index=0)), END]).calls
    assert call.args == {"a": "\ufffd"}


def test_a_server_cannot_make_names_and_keys_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtocolError, match="name of a call"):
        collected([delta(piece("x" * 600, index=0)), delta(piece("y" * 600, index=0)), END])
    monkeypatch.setattr(call_args, "KEYS_MAX", 2)
    with pytest.raises(LimitExceededError, match="more than 2 keys"):
        collected([delta(piece("add", '{"a":1,"b":2,"c":3}', index=0)), END])


def test_a_hundred_thousand_pieces_of_one_call_take_linear_time() -> None:
    chunks = [delta(piece("add", "}", index=0)) for _ in range(100_000)]
    (call,) = collected([*chunks, END]).calls
    assert call.problem is not None


# Text, thoughts and ends ---------------------------------------------------------------------------------------------------


def test_thoughts_under_two_names_are_said_once() -> None:
    found = collected([delta(reasoning="Hm.", reasoning_content="Hm."), delta(content="Yes.", reason="stop")])
    assert found.content["parts"] == [{"text": "Hm.", "thought": True}, {"text": "Yes."}]
    found = collected([delta(reasoning="Hm.", reasoning_content=""), delta(content="Yes.", reason="stop")])
    assert found.content["parts"][0] == {"text": "Hm.", "thought": True}


def test_content_in_blocks_is_text() -> None:
    said = [{"type": "text", "text": "a"}, {"type": "other"}, {"type": "text", "text": "b"}, "x"]
    assert collected([delta(content=said, reason="stop")]).text == "ab"


def test_a_refusal_is_shown_and_is_no_success() -> None:
    found = collected(written(text("I cannot."), Style(refuses=True), stream=True))
    assert (found.text, found.finish_reason, found.finish_message) == ("I cannot.", "SAFETY", "I cannot.")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "STOP"), ("tool_calls", "STOP"), ("function_call", "STOP"), ("length", "MAX_TOKENS"),
        ("content_filter", "SAFETY"), ("STOP", "STOP"), ("insufficient_system_resource", "INSUFFICIENT_SYSTEM_RESOURCE"),
        ("cancelled", "CANCELLED"), ("eos", "EOS"),
    ],
)  # fmt: skip
def test_finish_reasons_have_one_meaning_and_unknown_ones_are_no_success(word: str, reason: str) -> None:
    assert collected([delta(content="x", reason=word)]).finish_reason == reason


@pytest.mark.parametrize("chunks", [[], [{"choices": []}], [delta(content="x")], [delta(piece("add", "{}", index=0))]])
def test_an_answer_without_a_finish_reason_is_an_error(chunks: list[dict[str, Any]]) -> None:
    with pytest.raises(ProtocolError, match="nothing of it was run"):
        collected(chunks)


def test_only_the_first_choice_is_read() -> None:
    chunk = {
        "choices": [
            {"index": 1, "delta": {"content": "no"}},
            {"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"},
        ]
    }
    assert collected([chunk]).text == "yes"
    assert finish_reason_of({"choices": [{"index": 1, "finish_reason": "stop"}]}) is None


def test_only_text_says_something_before_the_end() -> None:
    assert not says_something(delta(piece("add", "{}", index=0)))
    assert not says_something(delta(role="assistant", content=""))
    assert not says_something({"choices": [], "usage": {}})
    assert says_something(delta(content="x"))
    assert says_something(delta(reasoning_content="x"))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 4},
          "completion_tokens_details": {"reasoning_tokens": 2}},
         Usage(input_tokens=9, cached_tokens=4, output_tokens=3, thought_tokens=2, total_tokens=14)),
        ({"prompt_tokens": 1, "completion_tokens": 2}, Usage(input_tokens=1, output_tokens=2, total_tokens=3)),
        ({"prompt_tokens": None, "completion_tokens": True, "total_tokens": -1}, Usage()),
        ({"prompt_tokens": 1, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 9}},
         Usage(input_tokens=1, thought_tokens=1, total_tokens=2)),
        (None, Usage()),
    ],
)  # fmt: skip
def test_tokens_are_counted_once(usage: Any, expected: Usage) -> None:
    assert collected([delta(content="x", reason="stop"), {"choices": [], "usage": usage}]).usage == expected


KEYS = (
    "choices", "delta", "message", "tool_calls", "function", "index", "id", "name", "arguments", "content", "finish_reason",
    "usage", "refusal", "reasoning", "function_call", "text", "type",
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=30,
)


@given(ANYTHING)
def test_no_chunk_breaks_the_reader(value: Any) -> None:
    chunk = value if isinstance(value, dict) else {"choices": [{"delta": value, "finish_reason": "stop"}]}
    with contextlib.suppress(ModelError):
        collected([chunk, END])
