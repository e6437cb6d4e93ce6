"""Histories that are too long: what goes first, what always stays, and that it comes to an end."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import strict_json
from callgate.content.response import SHORTENED_CHARS_MIN, shortened_response
from callgate.errors import ConversationInvalidError
from callgate.history.conversation import Conversation
from callgate.history.repair import validate
from callgate.history.shorten import SUMMARY, Shortening, is_summary

LONG = "a line of some length\n" * 500


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def answered(text: str) -> dict[str, Any]:
    return {"role": "model", "parts": [{"text": text}]}


def calls(*names: str, **args: Any) -> dict[str, Any]:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "id": f"id-{name}", "args": args}} for name in names]}


def response(name: str, value: Any, **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": f"id-{name}", "name": name, "response": {"result": value}, **fields}}


def agent(pairs: int, value: Any = LONG, *, before: int = 0) -> Conversation:
    """One prompt and many calls, after some exchanges without any."""
    talk = Conversation()
    for number in range(before):
        talk.add_user(f"Question {number}")
        talk.add_model(answered(f"Answer {number}"))
    talk.add_user("Do it all.")
    for number in range(pairs):
        talk.add_model(calls(f"f{number}"))
        talk.add_responses([response(f"f{number}", value)])
    return talk


# --- one response --------------------------------------------------------------------------------------------------------


def test_a_short_response_stays_the_very_same() -> None:
    part = response("f", {"a": 1})
    assert shortened_response(part, 1_000) is part


def test_a_long_result_keeps_its_beginning_its_name_and_its_id_and_says_so() -> None:
    part = shortened_response(response("f", {"rows": [1] * 5_000}, willContinue=False), 500)
    inner = part["functionResponse"]
    assert (inner["name"], inner["id"], inner["willContinue"]) == ("f", "id-f", False)
    assert inner["response"]["result"].startswith('{"rows":[1,1,1')
    assert "[shortened to save room: " in inner["response"]["result"]
    assert 300 < len(strict_json.dump(inner["response"])) <= 500
    assert shortened_response(part, 500) is part


def test_an_error_stays_one_and_the_way_to_read_on_is_kept() -> None:
    part: Any = {"functionResponse": {"name": "f", "response": {"error": LONG, "notes": ["Call read_result."]}}}
    short = shortened_response(part, 500)["functionResponse"]["response"]
    assert short.keys() == {"error", "notes"}
    assert short["notes"] == ["Call read_result."]
    assert short["error"].startswith("a line of some length\n")


def test_media_go_and_no_reference_to_them_stays() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "QUJD", "displayName": "a.png"}}
    short = shortened_response(response("f", {"$ref": "a.png"}, parts=[image]), 1_000)
    assert short == response("f", '{"$ref":"a.png"}\n[1 media item(s) left out to save room]')


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=400)
    | st.sampled_from(["\x00" * 300, "é\"\\" * 200, LONG]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
responses = st.dictionaries(st.sampled_from(["result", "error", "notes", "other"]), json_values)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["result", "error", "notes", "other"]), json_values),
    st.integers(0, 2_000),
    st.booleans(),
)
def test_any_response_is_as_short_as_it_is_told_to_be(given: Any, chars: int, has_media: bool) -> None:
    media = {"parts": [{"inlineData": {"mimeType": "a/b", "data": "QQ=="}}]} if has_media else {}
    part = {"functionResponse": {"name": "f", "response": given, **media}}
    before = copy.deepcopy(part)
    short = shortened_response(part, chars)
    assert part == before
    assert len(strict_json.dump(short["functionResponse"]["response"])) <= max(chars, SHORTENED_CHARS_MIN)
    assert shortened_response(short, chars) is short


# --- results and pairs ---------------------------------------------------------------------------------------------------


def test_all_but_the_newest_results_are_cut() -> None:
    talk = agent(4)
    before = talk.contents
    assert talk.shorten_results(keep=2, chars=400) == 2
    after = talk.contents
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, True, False, True, False, *[True] * 4]
    assert validate(after, sendable=True) == []
    assert talk.size_bytes == sum(map(len, talk.encoded)) == sum(len(strict_json.dump(content)) for content in after)
    assert talk.shorten_results(keep=2, chars=400) == 0
    assert talk.shorten_results(keep=0, chars=400) == 2


def test_pairs_in_the_middle_give_way_to_a_summary() -> None:
    talk = agent(4)
    before = talk.contents
    talk.shorten(4, "Two calls were made.", start=1)
    assert talk.contents == [before[0], said("Two calls were made."), *before[5:]]
    assert validate(talk.contents, sendable=True) == []


@pytest.mark.parametrize(("dropped", "start"), [(1, 1), (1, 2), (2, 2), (3, 1), (2, 0), (20, 0), (1, -1)])
def test_what_belongs_together_is_not_torn_apart(dropped: int, start: int) -> None:
    talk = agent(3)
    before = talk.contents
    with pytest.raises(ConversationInvalidError, match="cannot be dropped"):
        talk.shorten(dropped, start=start)
    assert talk.contents == before


def test_a_summary_is_not_something_that_the_user_said() -> None:
    talk = agent(2)
    talk.shorten(2, SUMMARY.format("One call was made."), start=1)
    assert is_summary(talk[1])
    assert talk.newest_exchange == 0
    assert talk.cut_for(0) == 0


# --- plans ---------------------------------------------------------------------------------------------------------------


def test_a_history_that_fits_needs_no_plan() -> None:
    talk = agent(3)
    assert talk.plan_for(talk.size_bytes) is None
    assert Conversation().plan_for(0) is None


def test_old_exchanges_go_first() -> None:
    talk = agent(1, "short", before=5)
    plan = talk.plan_for(talk.size_bytes - 1)
    assert plan == Shortening(dropped=2, summary_bytes=plan.summary_bytes if plan else 0)


def test_then_old_results_are_cut_no_more_than_is_needed() -> None:
    talk = agent(10, before=2)
    plan = talk.plan_for(talk.size_bytes - 25_000)
    assert plan is not None
    assert (plan.dropped, plan.pairs, plan.keep, plan.newest_chars) == (4, 0, 7, None)
    talk.apply(plan)
    assert [len(encoded) > 2_000 for encoded in talk.encoded[2::2]] == [False] * 3 + [True] * 7


def test_then_pairs_go_and_the_prompt_stays() -> None:
    talk = agent(50)
    plan = talk.plan_for(20_000, 15_000)
    assert plan is not None
    assert (plan.dropped, plan.start, plan.keep, plan.newest_chars) == (0, 1, 1, None)
    assert plan.pairs > 0
    assert plan.summarized == plan.pairs + 1
    assert talk.apply(plan, "Many calls were made.")
    assert talk.contents[0] == said("Do it all.")
    assert talk.contents[1] == said(SUMMARY.format("Many calls were made."))
    assert talk.size_bytes <= 15_000 + 300
    assert validate(talk.contents, sendable=True) == []


def test_and_the_newest_results_are_cut_last_so_that_the_whole_fits() -> None:
    talk = agent(3, LONG * 5)
    plan = talk.plan_for(20_000, 10_000)
    assert plan is not None
    assert plan.newest_chars is not None
    talk.apply(plan)
    assert 16_500 < talk.size_bytes <= 20_000 - 20_000 // 8  # There is room for a summary.
    assert validate(talk.contents, sendable=True) == []


def test_newest_results_stay_where_nothing_would_be_gained() -> None:
    talk = Conversation([said(LONG * 3), calls("f"), {"role": "user", "parts": [response("f", LONG)]}])
    assert talk.plan_for(1_000) is None


def test_a_run_of_hundreds_of_calls_stays_below_its_limit() -> None:
    talk = agent(0)
    for number in range(300):
        talk.add_model(calls(f"f{number}", text="x" * 200))
        talk.add_responses([response(f"f{number}", LONG)])
        if (plan := talk.plan_for(50_000, 25_000)) is not None:
            talk.apply(plan, "Much was done. " * (number % 7 * 1_000))
        assert talk.size_bytes <= 50_000
        assert talk.plan_for(50_000, 25_000) is None
    assert talk[0] == said("Do it all.")
    assert sum(map(is_summary, talk.contents)) == 1
    assert validate(talk.contents, sendable=True) == []


steps = st.lists(
    st.tuples(st.just("user"), st.sampled_from(["q", "long " * 200]))
    | st.tuples(st.just("text"), st.sampled_from(["a", "long " * 200]))
    | st.tuples(
        st.just("pair"), st.lists(st.sampled_from(["x", LONG, [LONG, {"a": 1}], {"b": "é" * 900}]), min_size=1, max_size=3)
    ),
    max_size=25,
)  # fmt: skip


def built(steps: list[tuple[str, Any]]) -> Conversation:
    talk = Conversation([said("Begin.")])
    for kind, value in steps:
        if kind == "user":
            talk.add_user(value)
            continue
        if talk.is_model(-1):
            talk.add_user("Go on.")
        if kind == "text":
            talk.add_model(answered(value))
        else:
            names = [f"f{number}" for number in range(len(value))]
            talk.add_model(calls(*names))
            talk.add_responses([response(name, item) for name, item in zip(names, value, strict=True)])
    return talk


summaries = st.none() | st.sampled_from(["short", "long " * 20_000, "\x00" * 3_000])


@settings(max_examples=500, deadline=None)
@given(steps, st.integers(0, 60_000) | st.integers(0, 3_000), st.floats(0, 1), summaries)
def test_any_plan_leaves_a_valid_history_and_nothing_more_to_do(
    steps: list[tuple[str, Any]], bytes_max: int, part: float, summary: str | None
) -> None:
    talk = built(steps)
    contents = talk.contents
    newest = talk.newest_exchange
    assert newest is not None
    for _ in range(3):  # Each may begin with what the one before has left.
        target = int(bytes_max * part)
        if (plan := talk.plan_for(bytes_max, target)) is not None:
            before = talk.contents
            has_summary = talk.apply(plan, summary)
            for index in kept_user_turns(plan, before):
                assert talk[plan.moved(index, has_summary=has_summary)] == before[index]
            assert validate(talk.contents) == []
            assert sum(map(is_summary, talk.contents)) <= 1
            assert talk.plan_for(bytes_max, target) is None
        assert talk[talk.newest_exchange or 0] == contents[newest]
        assert talk.size_bytes == sum(map(len, talk.encoded))
        assert [strict_json.parse_own(encoded) for encoded in talk.encoded] == talk.contents
        bytes_max = bytes_max * 2 // 3
    assert names_of(talk.contents[-1]) == names_of(contents[-1])


def kept_user_turns(plan: Shortening, contents: list[Any]) -> list[int]:
    """What the user said and is not dropped."""
    gone = {*range(plan.dropped), *range(plan.start, plan.start + plan.pairs)}
    return [
        i
        for i, content in enumerate(contents)
        if i not in gone and content["role"] == "user" and "text" in content["parts"][0]
    ]


def names_of(content: Any) -> list[Any]:
    return [part.get("functionResponse", {}).get("name") for part in content["parts"]]
