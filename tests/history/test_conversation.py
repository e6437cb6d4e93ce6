"""The history: it cannot become invalid, and whatever comes from elsewhere is repaired."""

from __future__ import annotations

import copy
import json
import math
import os
import time
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import strict_json
from callgate.content.read import SKIP_SIGNATURE, has_data
from callgate.errors import CallgateError, ConversationInvalidError, UsageError
from callgate.history import encoded as written
from callgate.history.conversation import CANCELLED, Conversation
from callgate.history.repair import INTERRUPTED, repaired, starts_exchange, validate

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"text": words, **more}


def call(name: str = "f", id: str | None = None, **more: Any) -> dict[str, Any]:
    return {"functionCall": ({} if id is None else {"id": id}) | {"name": name, "args": {}}, **more}


def answer(name: str = "f", id: str | None = None, value: Any = 1) -> dict[str, Any]:
    return {"functionResponse": ({} if id is None else {"id": id}) | {"name": name, "response": {"result": value}}}


def interrupted(name: str = "f", id: str | None = None) -> dict[str, Any]:
    return {"functionResponse": ({} if id is None else {"id": id}) | {"name": name, "response": {"error": INTERRUPTED}}}


HI = user(text("hi"))
OK = model(text("ok"))


# --- the rules -----------------------------------------------------------------------------------------------------------

VALID = [
    [],
    [HI],
    [HI, OK],
    [HI, user(text("again")), OK],
    [
        HI,
        model(text("t", thought=True), call(id="1", thoughtSignature="s"), call("g", id="2")),
        user(answer(id="1"), answer("g", id="2")),
    ],
    [HI, model(call(), call()), user(answer(value=1), answer(value=2)), user(text("and")), OK],
    [HI, model(text("a"), {"text": "", "thoughtSignature": "s"}, {"toolCall": {"id": "x"}}, {"newKind": 1})],
    [HI, model(call())],
    [HI | {"new": 1}, OK | {"newer": [1]}],
]


@pytest.mark.parametrize("contents", VALID, ids=range(len(VALID)))
def test_a_valid_history_comes_back_as_it_was(contents: list[Any]) -> None:
    before = copy.deepcopy(contents)
    result, notes = repaired(contents)
    assert (result, notes) == (before, [])
    assert contents == before
    assert validate(contents) == []
    for given_content, content in zip(contents, result, strict=True):
        assert all(new is old for new, old in zip(content["parts"], given_content["parts"], strict=True))
    assert Conversation(contents).contents == before


BREACHES = [
    ([OK], "contents[0]: a model content must follow a user content"),
    ([HI, OK, OK], "contents[2]: a model content must follow a user content"),
    ([HI | {"role": "tool"}], "contents[0]: role 'tool' is not 'user' or 'model'"),
    ([{"parts": [text("a")]}], "contents[0]: role None is not 'user' or 'model'"),
    ([user()], "contents[0]: no part says anything"),
    ([user(text("a"), text(""))], "contents[0]: a part says nothing"),
    ([user(text("a"), "b")], "contents[0]: the parts are not a list of objects"),
    ([{"role": "user", "parts": (text("a"),)}], "contents[0]: the parts are not a list of objects"),
    ([HI, model(answer())], "contents[1]: a model content holds function responses"),
    ([HI, model(call()), user(answer(), text("a"))], "contents[2]: function responses stand beside other parts"),
    ([user(call())], "contents[0]: a user content holds function calls"),
    ([HI, model(call(), call()), user(answer())], "contents[2]: 1 function response(s) for 2 function call(s)"),
    ([HI, user(answer())], "contents[1]: 1 function response(s) for 0 function call(s)"),
    ([HI, model(call()), HI], "contents[2]: 0 function response(s) for 1 function call(s)"),
    (
        [HI, model(call(id="1")), user(answer())],
        "contents[2]: the response to 'f' does not answer the call of 'f' in its place",
    ),
    (
        [HI, model(call("f"), call("g")), user(answer("g"), answer("f"))],
        "contents[2]: the response to 'g' does not answer the call of 'f' in its place",
    ),
    (["text"], "contents[0]: not an object"),
]  # fmt: skip
MALFORMED = "lacks a name, has an id that is no id, or is not made of objects"


@pytest.mark.rows(("contents", "problem"), BREACHES, ids=range(len(BREACHES)))
def test_every_breach_is_named_with_its_place_and_repaired(contents: list[Any], problem: str) -> None:
    assert problem in validate(contents)
    result, notes = repaired(contents)
    assert validate(result) == []
    assert notes or "role None" in problem  # a missing role means the user's; saying so changes nothing
    assert repaired(result) == (result, [])


@pytest.mark.parametrize(
    "part",
    [
        {"functionCall": {}}, {"functionCall": {"name": ""}}, {"functionCall": {"name": "f", "id": 5}},
        {"functionCall": {"name": "f", "args": "{}"}}, {"functionCall": "f"}, {"functionResponse": "f"}, call() | answer(),
    ],
)  # fmt: skip
def test_calls_and_responses_must_be_well_formed(part: Any) -> None:
    assert any(MALFORMED in problem for problem in validate([HI, model(text("a"), part)]))


@pytest.mark.parametrize(
    ("contents", "problems"),
    [
        ([], ["the last content must be the user's"]),
        ([HI], []),
        ([HI, OK], ["the last content must be the user's"]),
        ([HI, model(call(), call())], ["contents[1]: 2 function call(s) have no responses"]),
        ([HI, model(call()), user(answer())], []),
    ],
)
def test_a_history_can_be_sent_only_when_the_user_spoke_last(contents: list[Any], problems: list[str]) -> None:
    assert validate(contents, sendable=True) == problems


# --- repair --------------------------------------------------------------------------------------------------------------

REPAIRS: dict[str, tuple[list[Any], list[Any]]] = {
    "foreign roles": (
        [
            {"role": "human", "parts": [text("hi")]},
            {"role": "assistant", "parts": [call()]},
            {"role": "function", "parts": [answer()]},
        ],
        [HI, model(call()), user(answer())],
    ),
    "system and unreadable roles": (
        [{"role": "system", "parts": [text("a")]}, {"role": ["x"], "parts": [text("b")]}, {"role": 5, "parts": [call()]}],
        [user(text("a")), user(text("b")), model(call())],
    ),
    "responses in several contents": (
        [HI, model(call(id="1"), call(id="2")), user(answer(id="2", value=2)), user(answer(id="1"))],
        [HI, model(call(id="1"), call(id="2")), user(answer(id="1"), answer(id="2", value=2))],
    ),
    "calls in several contents": (
        [HI, model(call(id="1")), model(call(id="2")), user(answer(id="1"), answer(id="2"))],
        [HI, model(call(id="1"), call(id="2")), user(answer(id="1"), answer(id="2"))],
    ),
    "killed between call and response": (
        [HI, model(call(id="1")), user(text("still there?"))],
        [HI, model(call(id="1")), user(interrupted(id="1")), user(text("still there?"))],
    ),
    "an answer without its responses": (
        [HI, model(call()), OK],
        [HI, model(call()), user(interrupted()), OK],
    ),
    "one of two responses is missing": (
        [HI, model(call(id="1"), call("g", id="2")), user(answer("g", id="2")), OK],
        [HI, model(call(id="1"), call("g", id="2")), user(interrupted(id="1"), answer("g", id="2")), OK],
    ),
    "orphaned response": (
        [HI, user(answer(value="x")), OK],
        [HI, user(text('(Result of an earlier call of \'f\': {"result":"x"})')), OK],
    ),
    "cut at the front": (
        [model(call(id="1")), user(answer(id="1")), OK],
        [
            user(text("(The beginning of this conversation is not available.)")),
            model(call(id="1")),
            user(answer(id="1")),
            OK,
        ],
    ),
    "text beside responses": (
        [HI, model(call()), user(text("and?"), answer())],
        [HI, model(call()), user(answer()), user(text("and?"))],
    ),
    "call and response in one content": (
        [HI, model(text("a"), call(), answer(), text("b"))],
        [HI, model(text("a"), call(), text("b")), user(answer())],
    ),
    "model contents in a row": ([HI, OK, model(text("!"))], [HI, model(text("ok"), text("!"))]),
    "empty parts and contents": (
        [HI, model(text(""), text("a"), {"text": "", "thoughtSignature": "s"}), user(), user(text(""))],
        [HI, model(text("a"), {"text": "", "thoughtSignature": "s"})],
    ),
    "a content of signatures alone": ([HI, model({"text": "", "thoughtSignature": "s"}), HI], [HI, HI]),
    "id on one side only": (
        [HI, model(call(id="1"), call("g")), user(answer(), answer("g", id="9"))],
        [HI, model(call(id="1"), call("g")), user(answer(id="1"), answer("g"))],
    ),
    "right id, wrong name": (
        [HI, model(call("f", id="1")), user(answer("g", id="1"))],
        [HI, model(call(id="1")), user(answer(id="1"))],
    ),
    "parts as bare text": (
        [{"role": "user", "parts": ["hi"]}, {"role": "model", "parts": "ok"}, {"role": "user", "parts": text("bye")}],
        [HI, OK, user(text("bye"))],
    ),
    "a call without a name": (
        [HI, model({"functionCall": {}})],
        [HI, model({"functionCall": {"name": "unnamed_function"}})],
    ),
    "arguments as text, response as text": (
        [
            HI,
            model({"functionCall": {"name": "f", "args": '{"a": 1}'}}),
            user({"functionResponse": {"name": "f", "response": "x"}}),
        ],
        [HI, model({"functionCall": {"name": "f", "args": {"a": 1}}}), user(answer(value="x"))],
    ),
    "values that JSON cannot say": (
        [user(text("a\ud800")), model({"functionCall": {"name": "f", "args": {"a": float("nan")}}})],
        [user(text("a\ufffd")), model({"functionCall": {"name": "f", "args": {"a": "NaN"}}})],
    ),
    "media of an orphaned response": (
        [user({"functionResponse": {"name": "f", "response": {}, "parts": [{"inlineData": {"data": ""}}]}})],
        [user(text("(Result of an earlier call of 'f': {})"), {"inlineData": {"data": ""}})],
    ),
}


@pytest.mark.rows("name", REPAIRS)
def test_a_broken_history_is_repaired(name: str) -> None:
    broken, whole = REPAIRS[name]
    result, notes = repaired(broken)
    assert result == whole
    assert notes
    assert validate(result) == []
    assert repaired(result) == (result, [])


words = st.sampled_from(["alpha", "beta", "gamma", ""])
ids = st.sampled_from([None, "1", "2", "3", "", 5, [], {}, "x" * 300])
names = st.sampled_from(["f", "g", "", None, 7, ["f"]])
objects = st.sampled_from([{}, {"result": "delta"}, {"error": "epsilon"}, "zeta", None, [1], 3, {"a": float("nan")}, {1: 2}])
inner = st.fixed_dictionaries(
    {}, optional={"id": ids, "name": names, "args": objects, "response": objects, "new": st.just(1)}
)
odd_part = (
    st.fixed_dictionaries({"text": words | st.none() | st.just(5)})
    | st.fixed_dictionaries({"functionCall": inner | st.just("x") | st.none()})
    | st.fixed_dictionaries({"functionResponse": inner | st.just([]) | st.none()})
    | st.fixed_dictionaries({}, optional={"text": words, "thought": st.booleans(), "thoughtSignature": st.just("s")})
    | st.fixed_dictionaries({"functionCall": inner, "functionResponse": inner})
    | st.sampled_from([{}, {"newKind": {"a": 1}}, {5: 6}, {"inlineData": {}}, None, "bare", 5, ["x"]])
)
odd_content = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "model", "function", "tool", "assistant", "system", "", None, 5, [], {}]),
        "parts": st.lists(odd_part, max_size=5)
        | st.sampled_from([None, "text", 5, {"text": "single"}, ({"text": "tuple"},)]),
        "extra": st.just(1),
    },
)
odd_contents = st.lists(odd_content | st.sampled_from([None, "x", 5]), max_size=8)


@settings(max_examples=1_000 * SCALE)
@given(odd_contents)
def test_any_history_becomes_valid_and_stays_so(contents: list[Any]) -> None:
    before = copy.deepcopy(contents)
    result, notes = repaired(contents)
    assert repr(contents) == repr(before)
    assert validate(result) == []
    assert repaired(result) == (result, [])
    assert all(isinstance(note, str) for note in notes)
    if validate(contents) == [] and "nan" not in repr(contents):
        assert (result, notes) == (contents, [])
    talk = Conversation(contents)
    assert list(talk.encoded) == [strict_json.dump(content) for content in talk.contents]


@settings(max_examples=500 * SCALE)
@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "model", "tool", "x"]), st.lists(st.sampled_from("tcr"), max_size=4)), max_size=8
    )
)
def test_no_text_and_no_response_is_lost(plan: list[tuple[str, list[str]]]) -> None:
    said: list[str] = []
    contents: list[Any] = []
    for role, kinds in plan:
        parts: list[Any] = []
        for kind in kinds:
            said.append(f"word{len(said)}.")
            parts.append({"t": text(said[-1]), "c": call(said[-1]), "r": answer(value=said[-1])}[kind])
        contents.append({"role": role, "parts": parts})
    written = json.dumps(repaired(contents)[0])
    assert all(word in written for word in said)


def test_repair_takes_time_in_proportion_to_the_history() -> None:
    count = 5_000
    calls = model(*(call(id=f"c{n}") for n in range(count)))
    answers = [user(answer(id=f"c{n}")) for n in reversed(range(count))]
    talkative = [model(text("x")) for _ in range(50_000)]
    began = time.process_time()
    result, _ = repaired([HI, calls, *answers, *talkative, HI, calls])
    assert time.process_time() - began < 10  # clock: processor time; quadratic work takes minutes
    assert [part["functionResponse"]["id"] for part in result[2]["parts"]] == [f"c{n}" for n in range(count)]
    assert validate(result) == []


# --- the conversation ----------------------------------------------------------------------------------------------------


def test_a_conversation_grows_by_what_is_said() -> None:
    talk = Conversation()
    assert talk.last is None
    talk.add_user("hi")
    content = model(
        text("", thought=True), call(id="1", thoughtSignature="s"), call("g"), {"text": "", "thoughtSignature": "t"}
    )
    talk.add_model(content)
    assert talk.open_calls == [{"id": "1", "name": "f", "args": {}}, {"name": "g", "args": {}}]
    talk.add_responses([answer("g"), answer(id="1")])
    talk.add_model(OK)
    assert talk.contents == [
        HI, model(*content["parts"][1:]), user(answer(id="1"), answer("g")), OK,
    ]  # fmt: skip
    assert talk.contents[1]["parts"][0] is content["parts"][1]
    assert talk.last == OK
    assert len(talk) == 4
    assert talk.size_bytes == talk.bytes_encoded == sum(map(len, talk.encoded))


def test_a_text_of_the_journal_is_held_as_it_is() -> None:
    talk = Conversation()
    content = user(text("hi"), text("there"))
    talk.add_journaled(content)
    assert talk.last is content


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"role": "model", "parts": [{"text": "hi"}]}, {"role": "user", "parts": [{"text": "hi"}]}),
        ({"parts": [{"text": "hi"}]}, {"role": "user", "parts": [{"text": "hi"}]}),
        ({"role": "user", "parts": ["hi"]}, {"role": "user", "parts": [{"text": "hi"}]}),
        ({"role": "user", "parts": ({"text": "hi"},)}, {"role": "user", "parts": [{"text": "hi"}]}),
        ({"role": "user", "parts": [{"text": ""}, {"text": "hi"}]}, {"role": "user", "parts": [{"text": "hi"}]}),
    ],
)
def test_what_a_journal_holds_in_another_form_is_read_as_a_prompt(written: Any, read: Any) -> None:
    talk = Conversation()
    talk.add_journaled(written)
    assert talk.contents == [read]


@pytest.mark.parametrize("parts", [[], [{"text": ""}], [7], 7, [{"functionCall": {"name": "f"}}]])
def test_a_journal_cannot_make_the_user_say_what_no_prompt_can(parts: Any) -> None:
    talk = Conversation()
    with pytest.raises(UsageError):
        talk.add_journaled({"role": "user", "parts": parts})
    assert talk.contents == []


def test_open_calls_are_answered_before_the_user_speaks_again() -> None:
    talk = Conversation([HI])
    talk.add_model(model(call(id="1"), call("g")))
    talk.add_user("never mind")
    assert talk.contents[2:] == [
        user(
            {"functionResponse": {"id": "1", "name": "f", "response": {"error": CANCELLED}}},
            {"functionResponse": {"name": "g", "response": {"error": CANCELLED}}},
        ),
        user(text("never mind")),
    ]
    assert talk.open_calls == []


def test_a_call_without_a_response_is_answered_as_interrupted() -> None:
    talk = Conversation([HI, model(call(id="1"), call(id="2"))])
    talk.add_responses([answer(id="2")])
    assert talk.last == user(interrupted(id="1"), answer(id="2"))


@pytest.mark.parametrize(
    ("before", "content", "match"),
    [
        ([], OK, "must follow a user"),
        ([HI, OK], OK, "must follow a user"),
        ([HI], model(), "without parts"),
        ([HI], model(text(""), {"text": "", "thoughtSignature": "s"}), "without parts"),
        ([HI], {}, "without parts"),
        ([HI], model(text("a"), answer()), "holds function responses"),
        ([HI], model({"functionResponse": 5}), "holds function responses"),
        ([HI], model({"functionCall": {"name": "f"}, "functionResponse": "s"}), "holds function responses"),
    ],
)
def test_a_model_content_that_cannot_stand_is_refused(before: list[Any], content: Any, match: str) -> None:
    talk = Conversation(before)
    with pytest.raises(ConversationInvalidError, match=match) as caught:
        talk.add_model(content)
    assert talk.contents == before
    assert caught.value.problems


def test_a_model_content_gets_the_form_in_which_it_can_be_sent_back() -> None:
    talk = Conversation([HI])
    talk.add_model({"parts": [{"functionCall": {"id": 5, "args": "{}"}}], "new": 1})
    assert talk.last == {"role": "model", "parts": [{"functionCall": {"name": "unnamed_function", "args": {}}}], "new": 1}
    talk.add_responses([])
    talk.add_model(model({"functionCall": 5}))
    assert talk.last == model({"functionCall": {"name": "unnamed_function"}})


def test_what_json_cannot_say_in_a_model_content_is_replaced() -> None:
    talk = Conversation([HI])
    content: Any = {"role": "model", "parts": [{"text": "a\ud800"}, {"new": {1, 2}, "old": 1}], "at": math.nan, "\udc00": 1}
    talk.add_model(content)
    assert talk.last == {
        "role": "model", "parts": [{"text": "a\ufffd"}, {"new": None, "old": 1}], "at": None, "\ufffd": 1
    }  # fmt: skip


@pytest.mark.parametrize(
    "responses", [[answer("g")], [answer(), answer()], [text("a")], ["x"], [{"functionResponse": 5}], [None]]
)
def test_responses_that_answer_no_open_call_are_refused(responses: list[Any]) -> None:
    talk = Conversation([HI, model(call())])
    with pytest.raises(ConversationInvalidError):
        talk.add_responses(responses)
    assert len(talk) == 2
    assert talk.open_calls


def test_responses_without_any_call_are_refused() -> None:
    with pytest.raises(ConversationInvalidError, match="follow no function call"):
        Conversation([HI]).add_responses([])


def test_an_empty_prompt_changes_nothing() -> None:
    talk = Conversation([HI, model(call())])
    with pytest.raises(UsageError):
        talk.add_user("")
    assert talk.open_calls


def test_lists_that_were_given_out_do_not_lead_back() -> None:
    talk = Conversation([HI, model(call())])
    talk.contents.clear()
    talk.open_calls.clear()
    assert len(talk.contents) == len(talk.encoded) == 2
    assert talk.open_calls
    assert not hasattr(talk.encoded, "append")


def test_cutting_takes_back_what_was_added_and_opens_calls_again() -> None:
    contents = [HI, model(call()), user(answer()), OK]
    talk = Conversation(contents)
    encoded_before = talk.bytes_encoded
    talk.cut(3)
    assert talk.open_calls == []
    talk.cut(2)
    assert talk.open_calls == [{"name": "f", "args": {}}]
    talk.cut(0)
    assert (talk.contents, list(talk.encoded), talk.open_calls) == ([], [], [])
    assert talk.bytes_encoded == encoded_before


def test_trimming_cuts_where_the_user_spoke_and_keeps_the_newest_turn() -> None:
    contents = [
        HI,
        model(call()),
        user(answer()),
        OK,
        user(text("two")),
        OK,
        user(text("three")),
        model(call()),
        user(answer()),
    ]
    talk = Conversation(contents)
    assert talk.trim(talk.size_bytes) == 0
    assert talk.trim(talk.size_bytes - 1) == 4
    assert talk.contents == contents[4:]
    assert talk.trim(0) == 2
    assert talk.contents == contents[6:]
    assert talk.trim(0) == 0
    assert list(talk.encoded) == [strict_json.dump(content) for content in contents[6:]]
    assert Conversation().trim(0) == 0


@pytest.mark.parametrize(("content", "spoke"), [(HI, True), (OK, False), (user(answer()), False), ({"parts": []}, True)])
def test_a_user_turn_is_what_the_user_said(content: Any, spoke: bool) -> None:
    assert starts_exchange(content) is spoke


steps = st.lists(
    st.tuples(
        st.just("user"), st.sampled_from(["hi", "", "\ud800", {"text": "a"}, {"text": ""}, call(), answer(), ["a", {}], 5])
    )
    | st.tuples(st.just("model"), odd_content)
    | st.tuples(
        st.just("model"),
        st.lists(st.sampled_from([text("a"), call(id="1"), call("g")]), max_size=3).map(lambda p: model(*p)),
    )
    | st.tuples(st.just("responses"), st.lists(odd_part | st.sampled_from([answer(id="1"), answer("g")]), max_size=3))
    | st.tuples(st.just("cut"), st.integers(0, 6))
    | st.tuples(st.just("trim"), st.integers(0, 400)),
    max_size=12,
)


@settings(max_examples=500 * SCALE)
@given(steps, st.sampled_from([0, written.HELD_BYTES_MAX]))
def test_no_sequence_of_methods_makes_a_history_invalid(steps: list[tuple[str, Any]], held_bytes_max: int) -> None:
    with mock.patch.object(written, "HELD_BYTES_MAX", held_bytes_max):
        carried_out(steps)


def carried_out(steps: list[tuple[str, Any]]) -> None:
    talk = Conversation()
    for name, value in steps:
        before, known, encoded_before = talk.contents, talk.encoded, talk.bytes_encoded
        try:
            if name == "user":
                talk.add_user(value)
            elif name == "model":
                talk.add_model(value)
            elif name == "responses":
                talk.add_responses(value)
            elif name == "cut":
                talk.cut(value)
            else:
                newest = max((place for place, content in enumerate(before) if starts_exchange(content)), default=0)
                dropped = talk.trim(value)
                assert talk.contents == before[dropped:]
                assert dropped <= newest
                assert not talk.contents or starts_exchange(talk.contents[0])
        except CallgateError:
            pass
        assert validate(talk.contents) == []
        assert list(talk.encoded) == [strict_json.dump(content) for content in talk.contents]
        new = [encoded for encoded in talk.encoded if not any(encoded is old for old in known)]
        assert talk.bytes_encoded - encoded_before == sum(map(len, new))
        assert bool(talk.open_calls) == any(
            "functionCall" in part for part in (talk.last or user())["parts"] if has_data(part)
        )


# --- what another model wrote --------------------------------------------------------------------------------------------


def decoded(encoded: Sequence[bytes]) -> list[Any]:
    return [json.loads(one) for one in encoded]


def signed_talk(origin: str | None) -> Conversation:
    talk = Conversation()
    talk.add_user("Hi.")
    thought = {"text": "Hm.", "thought": True, "thoughtSignature": "dGhvdWdodA=="}
    first = {"functionCall": {"name": "f", "args": {}, "id": "1"}, "thoughtSignature": "Zmlyc3Q="}
    talk.add_model(model(thought, first, call("f", id="2")), origin=origin)
    talk.add_responses([answer("f", id="1"), answer("f", id="2")])
    return talk


def test_the_model_that_wrote_a_content_gets_it_back_as_it_was() -> None:
    talk = signed_talk("developer:gemini-3.8-flash")
    assert talk.encoded_for("developer:gemini-3.8-flash") == talk.encoded


def test_another_model_gets_neither_thoughts_nor_signatures_and_is_told_that_the_calls_are_not_its_own() -> None:
    talk = signed_talk("developer:gemini-3.8-flash")
    contents = decoded(talk.encoded_for("developer:gemini-3.8-pro"))
    first = {"functionCall": {"name": "f", "args": {}, "id": "1"}, "thoughtSignature": SKIP_SIGNATURE}
    assert contents == [talk.contents[0], model(first, call("f", id="2")), talk.contents[2]]
    # What is kept is untouched, and the first model can go on with it.
    assert talk.encoded_for("developer:gemini-3.8-flash") == talk.encoded


def test_an_older_model_is_not_sent_what_it_does_not_know() -> None:
    talk = signed_talk("openai:gpt")
    contents = decoded(talk.encoded_for("developer:gemini-2.5-flash", vouch=False))
    assert contents[1] == model(call("f", id="1"), call("f", id="2"))


def test_a_history_from_outside_keeps_its_signatures() -> None:
    talk = signed_talk(None)
    assert talk.encoded_for("developer:gemini-3.8-flash") == talk.encoded


def test_calls_of_a_history_from_outside_that_nobody_signed_are_vouched_for() -> None:
    talk = Conversation([user(text("Hi.")), model(call("f"), call("g")), user(answer("f"), answer("g"))])
    contents = decoded(talk.encoded_for("developer:gemini-3.8-flash"))
    assert contents[1] == model({**call("f"), "thoughtSignature": SKIP_SIGNATURE}, call("g"))


def test_what_was_rewritten_for_a_model_is_encoded_once() -> None:
    talk = signed_talk("openai:gpt")
    first, second = talk.encoded_for("developer:x"), talk.encoded_for("developer:x")
    assert all(one is other for one, other in zip(first, second, strict=True))
    talk.cut(1)
    assert talk.encoded_for("developer:x") == talk.encoded


def test_parts_in_the_other_legal_spelling_are_paired_and_answered_as_any() -> None:
    """As `model_dump()` of Google's SDK writes them."""
    calls = {"role": "model", "parts": [
        {"function_call": {"name": "f", "id": "1", "args": {"a_b": 1}}, "thought_signature": "c2ln", "text": None},
        {"function_call": {"name": "g", "id": "2"}},
    ]}  # fmt: skip
    answer = {"role": "user", "parts": [{"function_response": {"name": "f", "id": "1", "response": {"result": 1}}}]}
    picture = {"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "aGk=", "display_name": None}}]}
    talk = Conversation([{"role": "user", "parts": [{"text": "hi"}]}, calls, answer, picture])
    assert talk.contents[1]["parts"] == [
        {"functionCall": {"name": "f", "id": "1", "args": {"a_b": 1}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "g", "id": "2"}},
    ]
    assert [part["functionResponse"]["name"] for part in talk.contents[2]["parts"]] == ["f", "g"]
    assert talk.contents[3]["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]
    assert validate(talk.contents) == []


def test_messages_of_another_system_are_not_left_out_without_a_word_of_what_to_do() -> None:
    _, notes = repaired([{"role": "user", "content": "hi"}])
    assert notes == [
        "contents[0]: left out, because it has 'content' and no 'parts'; "
        "convert(..., target='gemini', kind='history') reads the messages of other systems"
    ]


# --- spellings -----------------------------------------------------------------------------------------------------------


def test_a_history_in_snake_case_is_repaired_and_sent_in_camel_case() -> None:
    blob = {"mime_type": "image/png", "data": b"x", "display_name": "a.png"}
    history = [
        {"role": "user", "parts": [{"text": "hi"}, {"inline_data": blob, "text": None}]},
        {
            "role": "model",
            "parts": [{"function_call": {"name": "f", "args": {"file_path": 1}, "id": None}, "thought_signature": "c2ln"}],
        },
        {"role": "function", "parts": [{"function_response": {"name": "f", "response": {"function_call": 2}}}]},
    ]
    assert Conversation(history).contents == [
        {
            "role": "user",
            "parts": [
                {"text": "hi"},
                {"inlineData": {"mimeType": "image/png", "data": "eA==", "displayName": "a.png"}},
            ],
        },
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"file_path": 1}}, "thoughtSignature": "c2ln"}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"function_call": 2}}}]},
    ]
    answered = Conversation([*history[:2], {"role": "user", "parts": [{"text": "go on"}]}]).contents
    assert [list(part) for content in answered[2:] for part in content["parts"]] == [["functionResponse"], ["text"]]


def test_a_loop_that_is_driven_by_hand_may_pass_snake_case_and_objects_of_the_sdk() -> None:
    types = pytest.importorskip("google.genai.types")
    talk = Conversation()
    talk.add_user("hi")
    talk.add_model(types.Content(parts=[types.Part(function_call=types.FunctionCall(name="f", id="1"))]))
    assert talk.open_calls == [{"name": "f", "id": "1"}]
    talk.add_responses([{"function_response": {"name": "f", "id": "1", "response": {"result": 1}}}])
    assert talk.open_calls == []
    with pytest.raises(ConversationInvalidError, match="not a function response"):
        Conversation(talk.contents[:2]).add_responses(["text"])  # type: ignore[list-item]


def test_what_had_to_be_changed_in_a_history_is_kept_with_the_conversation() -> None:
    given = [{"role": "user", "parts": [{"text": "Hi."}]}, {"role": "user", "content": "Hello."}]
    talk = Conversation(given)
    assert talk.contents == given[:1]
    assert len(talk.repairs) == 1
    assert "left out, because it has 'content' and no 'parts'; convert(" in talk.repairs[0]
    assert (Conversation().repairs, Conversation(given[:1]).repairs) == ((), ())


@pytest.mark.parametrize("contents", [5, "Hi.", b"Hi.", {"role": "user", "parts": [{"text": "Hi."}]}])
def test_what_is_no_list_of_contents_is_refused(contents) -> None:
    with pytest.raises(UsageError, match="Conversation takes a list of contents, not"):
        Conversation(contents)
