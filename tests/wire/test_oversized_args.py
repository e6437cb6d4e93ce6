"""Arguments that never end are an error of their call alone, and nothing else has to wait while they are found."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import strict_json
from callgate.content.collect import Collector, function_calls
from callgate.content.read_call import ARGS_VALUES_MAX
from callgate.errors import LimitExceededError, ProtocolError, UsageError
from callgate.gemini import ResponseReader
from callgate.history.conversation import Conversation
from callgate.strict_json import Bad, SoundObject
from callgate.wire import oversized_args, reader
from callgate.wire.oversized_args import HEAVY_FROM_BYTES, STEP_BYTES, ArgumentPruner, is_heavy

REASON = "they hold more than 100,000 values"


def keys(count: int) -> bytes:
    return b"{%b}" % b", ".join(b'"k%d": 1' % number for number in range(count))


ENDLESS = {
    "keys": keys(110_000),
    "numbers": b'{"a":[%b]}' % b",".join([b"1"] * 300_000),
    "empty lists": b'{"a":[%b]}' % b",".join([b"[]"] * 200_000),
    "towers": b'{"a":[%b]}' % b",".join([b"[" * 50 + b"1" + b"]" * 50] * 6_000),
    "strings full of brackets": b'{"a":[%b]}' % b",".join([b'"}]{[\\\\\\""'] * 150_000),
    "behind a long string": b'{"long":"%b","a":[%b]}' % (b"\\\\x" * 200_000, b",".join([b"1"] * 150_000)),
}


def event(args: bytes) -> bytes:
    """Two calls with the arguments in the first, a signature beside them, and the end of the answer."""
    first = b'{"functionCall":{"name":"f","id":"1","args" : %b},"thoughtSignature":"c2ln"}' % args
    second = b'{"functionCall":{"args":{"y":1},"name":"g"}}'
    return b'{"candidates":[{"content":{"parts":[%b,%b]},"finishReason":"STOP"}],"responseId":"r"}' % (first, second)


def expected(args: Any) -> list[dict[str, Any]]:
    chunk = json.loads(event(b"0"))
    chunk["candidates"][0]["content"]["parts"][0]["functionCall"]["args"] = args
    return [chunk]


BAD = Bad(REASON, {"unreadable": REASON})


@pytest.fixture
def parsed_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes the parsers were given at a time."""
    seen: list[int] = []

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def parse(text: bytes, **options: Any) -> Any:
            seen.append(len(text))
            return real(text, **options)

        return parse

    for name in ("parse", "parse_isolating"):
        monkeypatch.setattr(reader, name, watched(getattr(reader, name)))
    return seen


def fed(data: bytes) -> list[Any]:
    one = ResponseReader()
    return [*one.feed(data), *one.close()]


READ: dict[str, Callable[[bytes], list[Any]]] = {
    "whole": lambda body: ResponseReader().read_whole(body),
    "object": fed,
    "events": lambda body: fed(b"data: " + body + b"\r\n\r\n"),
    "array": lambda body: fed(b"[" + body + b"]"),
}


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("form", READ)
def test_only_the_call_with_endless_arguments_is_bad_and_they_are_never_parsed(
    kind: str, form: str, parsed_bytes: list[int]
) -> None:
    assert READ[form](event(ENDLESS[kind])) == expected(BAD)
    assert max(parsed_bytes) < 1_000


def test_the_work_is_done_in_steps_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    for name in ("_WHOLE_TOKENS", "_INSIDE_STRING"):
        monkeypatch.setattr(oversized_args, name, Watched(getattr(oversized_args, name), looked_at))
    body = event(ENDLESS["behind a long string"])
    light = ArgumentPruner(body)
    steps = sum(1 for _ in light.steps())
    assert steps >= len(body) // (2 * STEP_BYTES)
    assert max(looked_at) <= STEP_BYTES
    assert sum(looked_at) <= 2 * len(body)


class Watched:
    """A pattern that tells how much it was allowed to look at."""

    def __init__(self, real: Any, looked_at: list[int]) -> None:
        self.real, self.looked_at = real, looked_at

    def match(self, text: bytes, pos: int, endpos: int) -> Any:
        self.looked_at.append(min(endpos, len(text)) - pos)
        return self.real.match(text, pos, endpos)


def test_a_reader_may_leave_heavy_events_and_those_behind_them_for_later(parsed_bytes: list[int]) -> None:
    one = ResponseReader(leaves_heavy=True)
    heavy = event(ENDLESS["keys"])
    light = b'{"responseId":"last"}'
    assert one.feed(b'data: {"responseId":"first"}\n\ndata: %b\n\ndata: %b\n\n' % (heavy, light)) == [
        {"responseId": "first"}
    ]
    assert one.is_behind
    for early in (lambda: one.feed(b"\n"), one.close):
        with pytest.raises(UsageError, match="catch_up"):
            early()
    steps = list(one.catch_up())
    assert len(steps) > len(heavy) // (2 * STEP_BYTES)
    assert [chunk for chunks in steps for chunk in chunks] == [*expected(BAD), {"responseId": "last"}]
    assert not one.is_behind
    assert one.close() == []
    assert max(parsed_bytes) < 1_000


def test_a_whole_answer_may_be_left_for_later_too() -> None:
    one = ResponseReader(leaves_heavy=True)
    assert one.read_whole(event(ENDLESS["keys"])) == []
    assert [chunk for chunks in one.catch_up() for chunk in chunks] == expected(BAD)


@pytest.mark.parametrize("form", ["[%b]", '[{"responseId": "last"}, %b]', 'data: {"responseId": "last"}\n\ndata: %b\n\n'])
def test_a_whole_answer_in_another_form_may_be_left_for_later_too(form: str) -> None:
    one = ResponseReader(leaves_heavy=True)
    chunks = one.read_whole(form.encode() % event(ENDLESS["keys"]))
    chunks += [chunk for chunks in one.catch_up() for chunk in chunks]
    assert [chunk for chunk in chunks if chunk != {"responseId": "last"}] == expected(BAD)
    assert len(chunks) == (2 if "last" in form else 1)
    assert not one.is_behind
    assert one.close() == []


@pytest.mark.parametrize("form", ["[%b", "[%b, nonsense]"])
def test_a_fault_after_what_was_left_is_raised_with_it(form: str) -> None:
    one = ResponseReader(leaves_heavy=True)
    assert one.read_whole(form.encode() % event(ENDLESS["keys"])) == []
    with pytest.raises(ProtocolError):
        list(one.catch_up())


@pytest.mark.parametrize("leaves_heavy", [False, True])
def test_what_was_complete_before_a_fault_behind_a_heavy_event_is_given_out_first(leaves_heavy: bool) -> None:
    one = ResponseReader(leaves_heavy=leaves_heavy)
    chunks = one.feed(b"data: %b\n\ndata: {nonsense}\n\n" % event(ENDLESS["keys"]))
    later = one.catch_up()
    if leaves_heavy:
        while not chunks:
            chunks = next(later)
    assert chunks == expected(BAD)
    with pytest.raises(ProtocolError, match="nonsense"):
        list(later)
    with pytest.raises(ProtocolError, match="nonsense"):
        one.feed(b"")


def test_many_values_within_the_limit_are_read_as_they_are() -> None:
    args = {"a": [{"b": [], "c": ","}] * 20_000, "text": "x" * HEAVY_FROM_BYTES}
    body = event(json.dumps(args).encode())
    assert is_heavy(body)
    assert ResponseReader().read_whole(body) == expected(args)


def test_commas_and_brackets_in_strings_are_no_values() -> None:
    args = {"content": 'a,b,"[{' * 200_000}
    body = event(json.dumps(args).encode())
    assert is_heavy(body)
    assert ResponseReader().read_whole(body) == expected(args)


def test_arguments_in_a_text_or_under_another_key_are_left_alone() -> None:
    inner = json.dumps({"args": {"a": 1}})
    args = {"file": inner * 60_000, 'my"args': {"b": 2}}
    body = event(json.dumps(args).encode())
    assert is_heavy(body)
    assert ResponseReader().read_whole(body) == expected(args)


@pytest.mark.parametrize(
    "body",
    [
        b'{"args":%b}' % ENDLESS["keys"],
        b'{"candidates":[{"content":{"parts":[{"toolCall":{"args":%b}}]}}]}' % ENDLESS["keys"],
        b'{"candidates":[7,{"content":[]},{"content":{"parts":[{"functionCall":{"name":"f"}}]}}],"x":{"args":%b}}'
        % ENDLESS["numbers"],
        b'{"groundingMetadata":%b}' % keys(510_000),
    ],
    ids=["alone", "ran at the server", "beside a call", "no arguments"],
)
def test_endless_values_that_are_no_arguments_of_a_call_end_the_answer(body: bytes) -> None:
    for read in READ.values():
        with pytest.raises(LimitExceededError, match=r"values that is not a call's|more than 500,000 keys"):
            read(body)


@pytest.mark.parametrize(
    "cut", [b"", b'"abc', b'"abc\\', b"[" * 5, b'"' + b"x" * 3 * STEP_BYTES, b'"' + b"x" * STEP_BYTES + b"\\"]
)
def test_endless_arguments_that_are_cut_off_are_not_json(cut: bytes) -> None:
    body = event(ENDLESS["numbers"])
    body = body[: len(body) // 2].rstrip(b",1") + b"," + cut
    for form in (body, b"data: " + body):
        with pytest.raises(ProtocolError):
            fed(form)
    with pytest.raises(ProtocolError):
        ResponseReader().read_whole(body)


def test_the_model_is_told_and_the_other_call_is_as_it_came() -> None:
    (chunk,) = ResponseReader().read_whole(event(ENDLESS["keys"]))
    collector = Collector()
    collector.feed(chunk)
    answer = collector.close()
    first, second = answer.calls
    assert first.problem == f"The arguments cannot be used: {REASON}."
    assert first.wire_id == "1"
    assert (second.problem, second.args) == (None, {"y": 1})
    assert answer.content["parts"][0] == {
        "functionCall": {"name": "f", "id": "1", "args": {"unreadable": REASON}}, "thoughtSignature": "c2ln"
    }  # fmt: skip


def test_endless_arguments_in_a_json_text_are_refused_unread() -> None:
    text = json.dumps({f"k{number}": 1 for number in range(ARGS_VALUES_MAX + 1)})
    (call,) = function_calls({"parts": [{"functionCall": {"name": "f", "args": text}}]})
    assert call.problem == f"The arguments cannot be used: {REASON}."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('{}[]",:\\\n args') | st.just("args"),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('args{"\\:,') | st.just("args"), inner, max_size=5),
    max_leaves=30,
)


def children_of(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def values_in(value: Any) -> int:
    return len(children_of(value)) + sum(map(values_in, children_of(value)))


def empty_in(value: Any) -> int:
    return (value in ([], {})) + sum(map(empty_in, children_of(value)))


@given(args=st.dictionaries(st.text("ab"), JSON, max_size=6), step=st.integers(2, 40), most=st.integers(1, 20))
@settings(max_examples=300)
def test_any_arguments_are_kept_or_bad_by_their_number_of_values(args: dict[str, Any], step: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "STEP_BYTES": step,
            "_FLAT_BYTES_MAX": 1,
            "HEAVY_FROM_BYTES": 1,
            "ARGS_VALUES_MAX": most,
        }.items():
            patch.setattr(oversized_args, name, value)
        (chunk,) = ResponseReader().read_whole(event(json.dumps(args).encode()))
    read = chunk["candidates"][0]["content"]["parts"][0]["functionCall"]["args"]
    assert [chunk] == expected(read)
    assert isinstance(read, Bad) or read == args
    assert isinstance(read, Bad) or values_in(args) <= most
    # An empty list of which the two halves are seen in different steps may count as one value.
    assert not isinstance(read, Bad) or values_in(args) + empty_in(args) > most


# Events that need not be looked through again ---------------------------------------------------------------------------


def collected(chunk: dict[str, Any], *, is_plain: bool) -> tuple[list[Any], Any]:
    collector = Collector(new_id=lambda: "c")
    events = collector.feed(chunk, is_plain=is_plain)
    return events, collector.close()


def args_of(args: Any) -> bytes:
    return args if isinstance(args, bytes) else json.dumps(args).encode()


ODD = [
    b'{"x":1e999}', b'{"x":-1e999}', b'{"x":[{"y":1e400}]}', b'{"x":NaN}', b'{"x":"\\ud800"}', b'{"x":%b}' % (b"9" * 4_250),
    b'{"x":[%b]}' % (b"-" + b"7" * 4_299), b'{"x":%b}' % (b"1" * 3_000), b'{"x":1e5,"x":2}',
    *(b'{"x":' * levels + b"1" + b"}" * levels for levels in (98, 99, 100, 101, 102, 103, 110)),
    *(b'{"x":' + b"[" * levels + b"]" * levels + b"}" for levels in (98, 99, 100, 101, 199, 250)),
    *(b'{"x":[%b%b]}' % (b"[{}]," * 120, odd) for odd in (b"1", b"1e999", b"-1e999", b"NaN", b'"\\ud800"', b'"Infinity"')),
]  # fmt: skip


@given(args=st.dictionaries(st.text("ab"), JSON, max_size=6) | st.sampled_from(ODD), form=st.sampled_from([*READ]))
@settings(max_examples=400)
def test_an_event_that_is_marked_as_sound_gives_the_calls_that_a_look_through_it_gives(args: Any, form: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oversized_args, "HEAVY_FROM_BYTES", 1)
        (chunk,) = READ[form](event(args_of(args)))
    if type(chunk) is SoundObject:
        assert collected(chunk, is_plain=True) == collected(dict(chunk), is_plain=False)


@pytest.mark.parametrize("args", ODD[:7])
def test_an_event_with_a_number_beyond_a_limit_is_not_marked_as_sound(args: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oversized_args, "HEAVY_FROM_BYTES", 1)
    (chunk,) = ResponseReader().read_whole(event(args))
    assert type(chunk) is dict


def test_a_number_beyond_range_beside_long_arguments_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    text = event(b'{"x":[%b1]}' % (b"[{}]," * 120))
    monkeypatch.setattr(oversized_args, "HEAVY_FROM_BYTES", 1)
    (chunk,) = ResponseReader().read_whole(text)
    assert type(chunk) is SoundObject
    (chunk,) = ResponseReader().read_whole(b'{"more":[1e999],' + text[1:])
    assert type(chunk) is dict
    assert isinstance(chunk["more"][0], Bad)


def test_only_long_events_are_marked_as_sound_and_none_of_which_something_was_taken_out() -> None:
    (short,) = ResponseReader().read_whole(event(b'{"x":[%b]}' % b",".join([b"1"] * 200_000)))
    (long,) = ResponseReader().read_whole(event(b'{"x":"%b"}' % (b"x" * HEAVY_FROM_BYTES)))
    (heavy,) = ResponseReader().read_whole(event(ENDLESS["behind a long string"]))
    assert [type(chunk) for chunk in (short, long, heavy)] == [dict, SoundObject, dict]
    assert collected(short, is_plain=False)[1].calls[0].problem


def test_long_arguments_are_written_once_and_kept_as_they_came_unless_a_program_may_have_changed_them() -> None:
    rows = [{"number": number, "name": "x" * 40} for number in range(20_000)]
    given = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"rows": rows, "last": 1}, "id": "a"}}]}
    text = json.dumps({"candidates": [{"content": given, "finishReason": "STOP"}]}).encode()
    for is_plain in (True, False):
        (chunk,) = ResponseReader().read_whole(text)
        collector = Collector()
        if not is_plain:  # A program's own model passes the answer of another one on, and changes it.
            chunk["candidates"][0]["content"]["parts"][0]["functionCall"]["args"]["rows"][5]["number"] = "changed"
        collector.feed(chunk, is_plain=is_plain)
        answer = collector.close()
        (call,) = answer.calls
        assert type(call.args) is dict
        call.args["rows"][7]["number"] = "changed later"
        talk = Conversation()
        talk.add_user("Go.")
        held = answer.content["parts"][0]["functionCall"]["args"]
        assert isinstance(held, strict_json.EncodedObject) is is_plain
        talk.add_model(answer.content, is_plain=True)
        assert not is_plain or held.take_encoded() is None
        expected = copy.deepcopy(rows)
        if not is_plain:
            expected[5]["number"], expected[7]["number"] = "changed", "changed later"
        assert json.loads(talk.encoded[-1]) == {
            "role": "model",
            "parts": [{"functionCall": {"name": "f", "args": {"rows": expected, "last": 1}, "id": "a"}}],
        }


def test_several_long_arguments_of_an_answer_are_kept_in_their_places() -> None:
    parts = [
        {"text": "args 0"},
        *({"functionCall": {"name": "f", "args": {"text": letter * 300_000, "n": [[]] * 100}}} for letter in "abc"),
        {"functionCall": {"name": "args 1", "args": {"args 2": "args 3"}}},
        {"functionCall": {"name": "f"}},
    ]
    text = json.dumps({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}).encode()
    (chunk,) = ResponseReader().read_whole(text)
    assert type(chunk) is SoundObject
    assert [type(call.get("args")) for call in oversized_args.calls_in([chunk])] == [strict_json.EncodedObject] * 4 + [
        type(None)
    ]
    collector = Collector()
    collector.feed(chunk, is_plain=True)
    talk = Conversation()
    talk.add_user("Go.")
    talk.add_model(collector.close().content, is_plain=True)
    assert talk.encoded[-1] == strict_json.dump({"role": "model", "parts": parts})
