"""Answers, spellings, patterns and the copy test: what is read out of text."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import ToolDefinition
from callgate.embedded.missing_args import made_up, question, respelled
from callgate.embedded.patterns import pattern_rule
from callgate.embedded.reply import Read, ReplyReader
from callgate.embedded.spelling import spellings

# --- answers -------------------------------------------------------------------------------------------------------------


def read(*pieces: str) -> tuple[str, Read]:
    reader = ReplyReader()
    shown = "".join(reader.feed(piece) for piece in pieces)
    return shown + reader.rest(), reader.read()


@pytest.mark.parametrize("text", ["Hello.", "TOOL", "A TOOL_CAL", "TO be"])
def test_prose_is_shown_whole(text: str) -> None:
    assert read(*text) == (text, Read())


def test_nothing_of_a_call_is_shown_and_every_call_is_read() -> None:
    text = 'TOOL_CALL: add({"a": 1, "b": ")\\n"})\nTOOL_CALL: fs.list({})'
    assert read(*text) == ("", Read([("add", {"a": 1, "b": ")\n"}), ("fs.list", {})]))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('TOOL_CALL: add({"a": 1', "the arguments of a call are not JSON"),
        ("TOOL_CALL: add([1])", "a call is not written as name({...})"),
        ("TOOL_CALL: add({}", "a call is not written as name({...})"),
        ("TOOL_CALL: add", "a call was begun and not written"),
    ],
)
def test_a_malformed_call_is_reported(text: str, problem: str) -> None:
    assert read(text)[1].problem == problem


@given(text=st.text(alphabet='TOL_CA: x(){}"\n', max_size=60), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_the_pieces_do_not_matter(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    assert read(*(text[a:b] for a, b in itertools.pairwise(places))) == read(text)


# --- spellings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("restart payments-api now", ["payments-api"]),
        ("open src/main.rs, please", ["src/main.rs"]),
        ("mail to ann.b@example.org about EMP-9913", ["ann.b@example.org", "EMP-9913"]),
        ("print 'do not unplug'", ["unplug"]),
        ("nothing special here", []),
        ("tell Mittens and the mittens", ["Mittens"]),
    ],
)
def test_names_paths_codes_and_quoted_words_are_copied_exactly(text: str, words: list[str]) -> None:
    assert spellings(text) == words


# --- patterns ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", ["^[^a]+$", "abc", "^a(?=b)$", "^\\bword$", "^a{1000}$", "^a+?$", "^(a$", "^[]$", "^a\\$", "^*$"]
)
def test_a_pattern_that_cannot_be_said_is_left_to_the_check(pattern: str) -> None:
    assert pattern_rule(pattern) is None


PIECES = st.sampled_from(["a", "B7", "\\d", "\\w", "[a-f]", "[A-Z0-9_-]", "(x|yz)", "(?:q)", "\\.", "-", "."])
COUNTS = st.sampled_from(["", "?", "*", "+", "{2}", "{1,3}", "{0,}"])


@given(pieces=st.lists(st.tuples(PIECES, COUNTS), min_size=1, max_size=5), seed=st.randoms(use_true_random=False))
def test_whatever_a_pattern_makes_matches_it(gbnf, pieces: list[tuple[str, str]], seed: Any) -> None:
    pattern = f"^{''.join(piece + count for piece, count in pieces)}$"
    made = pattern_rule(pattern)
    assert made is not None
    assert re.fullmatch(pattern[1:-1], gbnf(f"root ::= {made}\n").sample(seed))


# --- the copy test -------------------------------------------------------------------------------------------------------


def tool(**properties: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolDefinition(name="act", description="Acts; 0 is open, 100 is closed.", input_schema=schema)


STRING, INTEGER = {"type": "string"}, {"type": "integer", "description": "How many"}


@pytest.mark.rows(
    ("schema", "value", "said", "asks"),
    [
        (STRING, "Boston", "weather in boston?", False),
        (STRING, "Paris", "weather please", True),
        (STRING, "test-db", "a database named Test DB", False),
        (STRING, "San Francisco, CA", "weather in San Francisco", False),
        (STRING, "print(1)", "write 'print(1)' to a.py", False),
        (STRING, "", "write to a.py", True),
        (STRING, "photo.jpg", "tag my holiday picture", True),
        (STRING, "2023-04-08", "from 2023 April 4th to April 8th", False),
        (STRING, "2023-04-08", "next week", True),
        (STRING | {"description": "Can be 'melting' or 'freezing'."}, "melting", "from ice to water", False),
        (STRING | {"description": "A town, e.g. 'Boston'."}, "Boston", "weather please", True),
        (STRING | {"enum": ["x"]}, "x", "do it", False),
        (STRING | {"default": "x"}, "y", "do it", False),
        (STRING | {"format": "date"}, "2026-01-01", "tomorrow", False),
        (INTEGER, 3, "for 3 hours", False),
        (INTEGER, 30, "for half the day", False),
        (INTEGER, 2, "rent a kayak", True),
        (INTEGER, 100, "close it", False),
        ({"type": "boolean"}, True, "do it", False),
        ({"type": "array"}, ["x"], "do it", False),
    ],
)  # fmt: skip
def test_a_required_value_that_nobody_gave_is_asked_for(schema: dict[str, Any], value: Any, said: str, asks: bool) -> None:
    assert made_up({"what": value}, tool(what=dict(schema)), said) == (["what"] if asks else [])


@pytest.mark.parametrize(
    ("value", "said", "meant"),
    [
        ("Creamure", "Ferry Oban to Craignure with our bikes please", "Craignure"),
        ("payment-api", "restart payments-api now", "payments-api"),
        ("San Fransisco", "weather in San Francisco?", "San Francisco"),
        ("Paris", "weather in Rome", None),
        ("Auckland", "Find me a ferry.", None),
        ("host-3", "copy host-1 to host-2", None),
        ("C", "a cat", None),
        (7, "seven", None),
    ],
)
def test_a_misspelling_of_one_thing_that_was_said_is_that_thing(value: Any, said: str, meant: str | None) -> None:
    assert respelled(value, said) == meant


def test_an_optional_value_is_never_asked_for() -> None:
    definition = ToolDefinition(name="act", input_schema={"type": "object", "properties": {"what": STRING}})
    assert made_up({"what": "anything"}, definition, "do it") == []


def test_the_question_names_the_tool_and_what_it_needs() -> None:
    assert question(tool(grams=dict(INTEGER), pet_name=dict(STRING)), ["grams", "pet_name"]) == (
        "To use act I need to know the grams (how many) and the pet name. What should it be?"
    )
