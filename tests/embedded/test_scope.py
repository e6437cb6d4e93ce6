"""Questions about the tools, and requests that none of them can meet."""

from __future__ import annotations

import pytest

from callgate.embedded.scope import scope_answer
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


@pytest.mark.parametrize("said", ["Delete note 3", "Read the file about moving house", "Help me read a.txt", ""])
def test_everything_else_is_left_to_the_model(said: str) -> None:
    assert scope_answer(said, [READ, ERASE]) is None


def test_without_tools_there_is_nothing_to_say() -> None:
    assert scope_answer("What can you do?", []) is None
