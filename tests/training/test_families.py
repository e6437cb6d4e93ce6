"""The family files, and the language that they are written in."""

from __future__ import annotations

import random

import pytest
from training.values import Said, Values

from training import families

TEXT = """
tool lend_book | Lend a book.
also books.lend | Gives a book out.
  title* string =Dune,Emma | Title
  days integer | For how long
  mode fast/slow | How
  renew boolean | Again
say lend (me|us) {title:quoted}[ for {days:2-9} days] || mode=fast
say {title} again{!renew=true}
many (lend me|I take) :: {title} for {days:2-9} days :: please || mode=fast
none (who wrote Dune|what is a sonnet)?
miss title: lend me a book -> Which book?
"""


def test_every_pattern_of_every_file_gives_all_that_its_tool_needs(scale: int) -> None:
    values = Values(random.Random(1))
    for tool in families.load():
        for pattern, constants in tool.says:
            for _ in range(2 * scale):
                request = families.request(tool, values, pattern=pattern)
                given = constants | request.args
                assert set(tool.required) <= given.keys() <= tool.properties.keys(), (tool.name, pattern, request)
                assert not set("{}") & set(request.text), (tool.name, pattern, request.text)


def test_every_request_that_lacks_an_argument_lacks_it() -> None:
    values = Values(random.Random(2))
    for tool in families.load():
        for missing in tool.missing:
            request = families.request(tool, values, pattern=missing.pattern)
            assert missing.parameter not in request.args, (tool.name, missing)
            assert "?" in missing.question, missing


def test_a_file_is_read_into_tools() -> None:
    (tool,) = families.parse(TEXT, "library")
    assert tool.names == [("lend_book", "Lend a book."), ("books.lend", "Gives a book out.")]
    assert tool.required == ["title"]
    assert tool.properties["mode"] == {"type": "string", "description": "How", "enum": ["fast", "slow"]}
    assert tool.says[0][1] == {"mode": "fast"}
    assert tool.missing == [families.Missing("title", "lend me a book", "Which book?")]


def test_a_request_has_the_value_in_its_words_and_in_its_arguments() -> None:
    (tool,) = families.parse(TEXT, "library")
    values = Values(random.Random(3))
    request = families.request(tool, values, pattern="lend me {title:quoted}", fixed={"title": Said("Ulysses", "Ulysses")})
    assert request.args == {"title": "Ulysses"}
    assert request.text[len("lend me ") + 1 : -1] == "Ulysses"
    assert request.text[len("lend me ")] in "'\"`"


def test_a_mark_in_a_pattern_sets_a_constant_without_a_word() -> None:
    (tool,) = families.parse(TEXT, "library")
    request = families.request(tool, Values(random.Random(4)), pattern="{title} again{!renew=true}")
    assert request.args["renew"] is True
    assert request.text in ("Dune again", "Emma again")


def test_a_request_for_several_calls_says_the_values_of_each_once_and_shares_the_rest() -> None:
    (tool,) = families.parse(TEXT, "library")
    requests = families.several(tool, Values(random.Random(5)), tool.several[0])
    assert {request.args["title"] for request in requests} <= {"Dune", "Emma"}
    assert len({str(request.args) for request in requests}) == len(requests) > 1
    assert {request.args["mode"] for request in requests} == {"fast"}
    assert {request.text for request in requests} == {requests[0].text}
    assert requests[0].text.startswith(("lend me ", "I take "))
    assert requests[0].text.endswith(" days please")
    assert requests[0].text.count(" for ") == len(requests)


def test_every_request_for_several_calls_gives_each_of_them_all_that_its_tool_needs(scale: int) -> None:
    values = Values(random.Random(6))
    for tool in families.load():
        for line in tool.several:
            for request in families.several(tool, values, line):
                assert set(tool.required) <= request.args.keys() <= tool.properties.keys(), (tool.name, line, request)
                assert not set("{}") & set(request.text), (tool.name, line, request.text)


def test_a_question_that_no_tool_answers_is_kept_with_its_tool() -> None:
    (tool,) = families.parse(TEXT, "library")
    assert tool.questions == ["(who wrote Dune|what is a sonnet)?"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tool a\nsay x", "A tool needs ` | ` and a description."),
        ("tool a | b\n  c text | d\nsay x", "'text' is no type."),
        ("tool a | b\nmiss c: x", "A `miss` line reads"),
        ("tool a | b\nmany x", "A `many` line reads"),
        ("tool a | b", "has no `say` line"),
        ("ask a", "A line starts with tool, also, say, many, none or miss"),
    ],
)
def test_a_wrong_line_is_refused_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"library\.txt") as caught:
        families.parse(text, "library")
    assert sentence in str(caught.value)
