"""Examples of what can be asked: made from the tools at hand, and from files that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate.cli.demo_tools import calculate
from callgate.cli.starters import examples_for
from callgate.errors import ToolError
from callgate.types import ToolDefinition


def definition(name: str, description: str = "Does something. More words.") -> ToolDefinition:
    return ToolDefinition(name=name, description=description, input_schema={"type": "object", "properties": {}})


def test_examples_are_of_tools_that_are_there_and_of_a_file_that_exists(tmp_path: Path) -> None:
    tools = [definition(name) for name in ("calculate", "read_file", "list_files", "current_time")]
    assert examples_for(tools, str(tmp_path)) == [
        "Which files are here?",
        "What is 15% of 240?",
        "What time is it in Tokyo?",
    ]
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "README.md").write_text("x")
    assert examples_for(tools, str(tmp_path))[1] == "What does README.md say?"
    assert examples_for([definition("mail", "Sends a mail.\nTo anybody.")], str(tmp_path)) == ["Use mail: Sends a mail"]
    assert examples_for([], str(tmp_path)) == []


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("15% of 240", 36),
        ("3 mal 4", 12),
        ("Was ist 3 mal 4?", 12),
        ("15 Prozent von 240", 36),
        ("7 x 6", 42),
        ("6 × 7 =", 42),
        ("10 divided by 4", 2.5),
        ("2^10", 1024),
        ("1,000 + 1", 1001),
        ("0x10 + 1", 17),
        ("what is 2 plus 2", 4),
    ],
)
def test_a_sum_is_worked_out_as_people_write_it(expression: str, value: float) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize("expression", ["the price of 3", "3 mal Auto", "17 % 5", "__import__('os')"])
def test_words_that_are_no_sum_are_refused(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)
