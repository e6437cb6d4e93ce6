"""Contents as they are held: what is long and old is there once, as JSON, and says the same when it is read."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import strict_json
from callgate.content.prompt import user_content
from callgate.history.encoded import HELD_BYTES_MAX, Written
from callgate.types import ToolResult

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


def result_of(value: Any, **fields: Any) -> ToolResult:
    return ToolResult(call_id="c", name="read", status="finished", value=value, **fields)


def test_results_read_what_is_long_from_their_answers() -> None:
    values = [LONG, "short", [{"rows": [LONG, 1, 2.5, None, True]}], 'é"\\\u2028 🦊' * 200, {"a": LONG}]
    results = [result_of(value) for value in values]
    written = Written()
    places = written.add_answers([answer(value, id=f"c{number}") for number, value in enumerate(values)])
    assert [place is None for place in places] == [value == "short" for value in values]
    for place, result in zip(places, results, strict=True):
        if place:
            place.relieve(result)
    assert written.encoded == (strict_json.dump(written[0]),)
    written.keep(slice(0, 0))  # What becomes of the history does not matter to them.
    assert results == [result_of(value) for value in values]
    assert [result.value is value for result, value in zip(results, values, strict=True)] == [
        place is None for place in places
    ]


def test_media_are_read_again_and_what_stands_beside_them_is_held() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "QUJD" * 1_000}}
    value = {"$ref": "a.png"}
    result = result_of(value, media=(image,))
    (place,) = Written().add_answers([answer(value, parts=[image])])
    assert place is not None
    place.relieve(result)
    assert result == result_of(value, media=(image,))
    assert result.media[0] is not image
    assert result.value is value


def test_a_result_keeps_what_its_answer_does_not_say() -> None:
    cut, failed = result_of(LONG * 9), ToolResult(call_id="c", name="read", status="failed", error=LONG)
    error = {"functionResponse": {"name": "read", "response": {"error": LONG}}}
    before = cut.value, failed.error
    for place, result in zip(Written().add_answers([answer(LONG), error]), [cut, failed], strict=True):
        assert place is not None
        place.relieve(result)
    assert (cut.value is before[0], failed.error is before[1], failed.value) == (True, True, None)


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
