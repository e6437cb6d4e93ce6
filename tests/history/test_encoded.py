"""Contents as they are held: what is long and old is there once, as JSON, and says the same when it is read."""

from __future__ import annotations

import copy
import gc
import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from callgate import strict_json
from callgate.content.prompt import user_content
from callgate.history.conversation import Conversation
from callgate.history.encoded import HELD_BYTES_MAX, EncodedContents
from callgate.types import Reply, Usage

LONG = "a line of some length\n" * 100
OK: dict[str, Any] = {"role": "model", "parts": [{"text": "Ok."}]}


def answer(value: Any, **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": "read", "response": {"result": value}, **fields}}


def answers(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": [*parts]}


def is_held(written: EncodedContents, index: int) -> bool:
    """Whether the content is there as such: one that is read is a new one every time."""
    return written[index] is written[index]


def test_a_long_answer_is_held_as_json_alone_once_something_follows_it() -> None:
    written = EncodedContents()
    content = answers(answer(LONG))
    written.add(content)
    assert written[-1] is content
    written.add(OK)
    assert not is_held(written, 0)
    assert written[0] == content
    assert written.encoded == (strict_json.dump(content), strict_json.dump(OK))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(answers(answer("x" * (HELD_BYTES_MAX // 2))), id="a short answer"),
        pytest.param(user_content(LONG), id="what the user said"),
        pytest.param({"role": "model", "parts": [{"text": LONG}]}, id="what the model said"),
        pytest.param(answers(answer({"text": LONG, "pair": (1, 2)})), id="what JSON reads as something else"),
    ],
)
def test_other_contents_are_held_as_they_are(content: Any) -> None:
    written = EncodedContents()
    written.add(content)
    written.add(OK)
    assert written[0] is content


def test_an_answer_that_is_too_deep_to_be_read_is_held_as_it_is() -> None:
    deep: Any = LONG
    for _ in range(2 * strict_json.DEPTH_MAX):
        deep = [deep]
    content = answers(answer(deep))
    written = EncodedContents()
    written.add(content)
    written.add(OK)
    assert written[0] is content


def test_a_history_is_decoded_once_and_as_it_was() -> None:
    written = EncodedContents()
    contents = [user_content("Hi."), OK, answers(answer(LONG)), OK]
    for content in contents:
        written.add(content)
    history = written.history
    written.keep(slice(0, 1))
    written.add({"role": "model", "parts": [{"text": "Another."}]})
    assert history.contents == contents
    assert history.contents is history.contents
    assert history.contents[1] is OK


def test_what_is_cut_off_changes_nothing_about_the_rest() -> None:
    written = EncodedContents()
    long, other = answers(answer(LONG)), answers(answer(LONG + "."))
    for content in (user_content("Hi."), OK, long, OK, other):
        written.add(content)
    written.keep(slice(0, 3))
    assert not is_held(written, -1)
    assert [written.is_responses(index) for index in range(3)] == [False, False, True]
    assert [written.is_model(index) for index in range(3)] == [False, True, False]
    written.add(OK)
    written.put_first(user_content("Before."))
    assert [written[index] for index in range(5)] == [user_content("Before."), user_content("Hi."), OK, long, OK]
    written.keep(slice(3, None))
    assert written.size_bytes == len(strict_json.dump(long)) + len(strict_json.dump(OK))
    written.add(other)
    written.keep(slice(1, None))  # The newest stays the newest.
    written.add(OK)
    assert not is_held(written, 1)
    assert written[1] == other


def conversation() -> Conversation:
    talk = Conversation([user_content("Hi.")])
    for number in range(3):
        talk.add_model({"role": "model", "parts": [{"functionCall": {"name": "read", "args": {"n": number}}}]})
        talk.add_responses([answer(LONG)])
    talk.add_model(OK)
    return talk


def reply_of(talk: Conversation) -> Reply:
    return Reply(text="Ok.", calls=[], usage=Usage(), finish_reason="STOP", history=talk.history, session="s")


def test_the_contents_of_a_reply_are_decoded_once_and_as_they_were() -> None:
    talk = conversation()
    reply, expected = reply_of(talk), talk.contents
    talk.cut(1)
    assert reply.contents == expected
    assert reply.contents is reply.contents


def test_a_reply_can_be_copied_pickled_changed_and_compared() -> None:
    talk = conversation()
    reply = reply_of(talk)
    same = [copy.copy(reply), copy.deepcopy(reply), pickle.loads(pickle.dumps(reply)), replace(reply), reply_of(talk)]
    assert same == [reply] * 5
    assert [other.contents for other in same] == [reply.contents] * 5
    changed = replace(reply, text="x")
    assert changed != reply
    assert changed.contents is reply.contents
    talk.add_user("More.")
    assert reply_of(talk) != reply
    assert reply.history != "a history"


def rows(number: int) -> list[dict[str, Any]]:
    return [{"id": 100 * number + row, "name": f"row {row}", "is_open": True, "labels": ["a", "b"]} for row in range(80)]


def lines(number: int) -> str:
    return "\n".join(f'{number} {line} – "a line of some length, as tools return it"' for line in range(80))


@pytest.mark.parametrize("value_of", [rows, lines])
def test_a_long_history_takes_little_more_than_its_json(value_of: Callable[[int], Any]) -> None:
    def grown(turns: int) -> float:
        talk = Conversation([user_content("Hi.")])
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(turns):
                talk.add_model({"role": "model", "parts": [{"functionCall": {"name": "read", "args": {"n": number}}}]})
                talk.add_responses([answer(value_of(number))])
            talk.add_model(OK)
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / talk.size_bytes
        finally:
            tracemalloc.stop()

    grown(2)  # Loads what is loaded late.
    assert grown(40) < 1.3
