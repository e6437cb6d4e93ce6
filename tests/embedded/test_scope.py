"""Questions about the tools, and requests that none of them can meet."""

from __future__ import annotations

import pytest

from callgate.embedded.scope import is_question, is_statement, scope_answer
from callgate.types import ToolDefinition

READ = ToolDefinition(name="read_file", description="Reads a text file, or some of its lines. Not more.")
ERASE = ToolDefinition(name="erase_note", description="Removes a note.")


@pytest.mark.parametrize("said", ["What can you do?", "hi, what can you do for me?", "Help!", "Was kannst du?"])
def test_a_question_about_the_tools_is_answered_with_them(said: str) -> None:
    assert scope_answer(said, [READ]) == "I can use these tools:\n- read_file: Reads a text file, or some of its lines"


@pytest.mark.parametrize("said", ["Delete shopping.txt", "Could you please remove it", "rename a.txt to b.txt"])
def test_an_action_that_no_tool_has_is_declined(said: str) -> None:
    answer = scope_answer(said, [READ])
    assert answer is not None
    assert answer.startswith("I can't ")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Send an email to Anna", "I can't send anything"),
        ("Weather in Oslo?", "I can't tell the weather"),
        ("Which crop is the cheapest?", "I can't compare or add up"),
        ("Create haiku.txt with a haiku about rain", "I can't make up texts"),
    ],
)
def test_what_no_tool_speaks_of_is_declined_in_a_sentence(said: str, words: str) -> None:
    assert words in str(scope_answer(said, [READ]))


@pytest.mark.parametrize(
    "said",
    [
        "What does weather.md say?",
        "Write 'a poem' to a.txt",
        "Which file is about the story?",
        "Is the average in src/stats.py right?",
    ],
)
def test_words_of_files_and_quotes_are_left_to_the_model(said: str) -> None:
    assert scope_answer(said, [READ]) is None


def test_a_tool_that_speaks_of_the_weather_is_used_for_it() -> None:
    weather = ToolDefinition(name="get_weather", description="Gets it.")
    assert scope_answer("Weather in Oslo?", [READ, weather]) is None


@pytest.mark.parametrize("said", ["Delete note 3", "Read the file about moving house", "Help me read a.txt", ""])
def test_everything_else_is_left_to_the_model(said: str) -> None:
    assert scope_answer(said, [READ, ERASE]) is None


def test_without_tools_there_is_nothing_to_say() -> None:
    assert scope_answer("What can you do?", []) is None


def test_a_tool_that_delivers_things_is_one_that_sends_them() -> None:
    kegs = ToolDefinition(name="deliver_kegs", description="Delivers kegs.")
    assert scope_answer("Send 3 kegs to Anna", [READ, kegs]) is None


@pytest.mark.parametrize(
    ("said", "question", "statement"),
    [
        ("What keeps a glider in the air?", True, False),
        ("Is it raining?", True, False),
        ("The tap is dripping.", False, True),
        ("Ayla has a fever today.", False, True),
        ("Could you close the tap?", False, False),
        ("Close the tap.", False, False),
        ("I need a guard.", False, False),
    ],
)
def test_questions_and_statements_are_told_from_commands(said: str, question: bool, statement: bool) -> None:
    assert (is_question(said), is_statement(said)) == (question, statement)


@pytest.mark.parametrize("said", ["Goodbye!", "bye", "Okay, see you later.", "Auf Wiedersehen!"])
def test_a_farewell_is_answered_by_one(said: str) -> None:
    assert scope_answer(said, [READ]) == "Goodbye!"


@pytest.mark.parametrize("said", ["Read goodbye.txt", "bye.txt", "Say goodbye to Anna in notes.txt"])
def test_a_request_with_the_words_of_a_farewell_is_none(said: str) -> None:
    assert scope_answer(said, [READ]) is None
