"""Contents as they are held: what is long and old is there once, as JSON, and says the same when it is read."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import strict_json
from callgate.parts import user_content
from callgate.written import HELD_BYTES_MAX, Written

LONG = "a line of some length\n" * 100
OK: dict[str, Any] = {"role": "model", "parts": [{"text": "Ok."}]}


def answer(value: Any, **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": "read", "response": {"result": value}, **fields}}


def answers(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": [*parts]}


def is_held(written: Written, index: int) -> bool:
    """Whether the content is there as such: one that is read is a new one every time."""
    return written[index] is written[index]


def test_a_long_answer_is_held_as_json_alone_once_something_follows_it() -> None:
    written = Written()
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
    written = Written()
    written.add(content)
    written.add(OK)
    assert written[0] is content


def test_an_answer_that_is_too_deep_to_be_read_is_held_as_it_is() -> None:
    deep: Any = LONG
    for _ in range(2 * strict_json.DEPTH_MAX):
        deep = [deep]
    content = answers(answer(deep))
    written = Written()
    written.add(content)
    written.add(OK)
    assert written[0] is content


def test_each_long_value_can_be_read_from_its_place() -> None:
    values = [LONG, "short", [{"rows": [LONG, 1, 2.5, None, True]}], 'é"\\\u2028 🦊' * 200, {"a": LONG}]
    written = Written()
    places = written.add_answers([answer(value, id=f"c{number}") for number, value in enumerate(values)])
    assert [place and (place[0], place[1].read()) for place in places] == [
        None if value == "short" else (value, value) for value in values
    ]
    assert written.encoded == (strict_json.dump(written[0]),)
    written.keep(slice(0, 0))  # What became of the history does not matter to a value.
    assert [place[1].read() for place in places if place] == [LONG, *values[2:]]


def test_an_error_has_no_value_to_be_read() -> None:
    written = Written()
    (place,) = written.add_answers([{"functionResponse": {"name": "read", "response": {"error": LONG}}}])
    assert place is not None
    assert (place[0], place[1].read()) == (None, None)


def test_a_history_is_read_once_and_as_it_was() -> None:
    written = Written()
    contents = [user_content("Hi."), OK, answers(answer(LONG)), OK]
    for content in contents:
        written.add(content)
    history = written.history
    written.keep(slice(0, 1))
    written.add({"role": "model", "parts": [{"text": "Another."}]})
    assert history.read() == contents
    assert history.read() is history.read()
    assert history.read()[1] is OK


def test_what_is_cut_off_changes_nothing_about_the_rest() -> None:
    written = Written()
    long, other = answers(answer(LONG)), answers(answer(LONG + "."))
    for content in (user_content("Hi."), OK, long, OK, other):
        written.add(content)
    written.keep(slice(0, 3))
    assert not is_held(written, -1)
    assert [written.is_answers(index) for index in range(3)] == [False, False, True]
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
