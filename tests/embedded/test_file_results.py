"""Results of file tools that are answers as they are."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.embedded.file_results import TEXT_CHARS_MAX, next_try, told_result
from callgate.types import FunctionCall, ToolDefinition

READ = ToolDefinition(name="read_file", kind="file", read_only=True)
WRITE = ToolDefinition(name="write_file", kind="file")
OTHER = ToolDefinition(name="motto", read_only=True)
LISTS = ToolDefinition(name="list_files", kind="file", read_only=True)
TOOLS = [READ, WRITE, OTHER, LISTS]


def after(name: str, args: Any, *responses: Any) -> list[Any]:
    """A conversation that ends with the results of calls of a tool."""
    return [
        {"role": "user", "parts": [{"text": "please"}]},
        {"role": "model", "parts": [{"functionCall": {"name": name, "args": args}} for _ in responses]},
        {"role": "user", "parts": [{"functionResponse": {"name": name, "response": each}} for each in responses]},
    ]


def test_a_file_is_told_word_for_word() -> None:
    text = "beds = 4\n\n\ndef rows(bed):\n    return bed * 3\n"
    told = told_result(after("read_file", {"path": "src/plan.py"}, {"result": text}), TOOLS)
    assert told == f"src/plan.py contains:\n\n```py\n{text}```"


def test_a_file_with_fences_does_not_end_its_own() -> None:
    told = told_result(after("read_file", {"path": "a.md"}, {"result": "```\nx\n```\n"}), TOOLS)
    assert told == "a.md contains:\n\n````md\n```\nx\n```\n````"


def test_a_long_file_ends_with_a_line_and_says_how_much_is_left() -> None:
    text = "a line of the file\n" * 400
    told = told_result(after("read_file", {"path": "long.txt"}, {"result": text}), TOOLS)
    assert told
    shown = told.count("a line of the file")
    assert len(told) < TEXT_CHARS_MAX + 200
    assert told.endswith(f"\n```\n{len(text) - shown * 19:,} more characters are in the result of the call.")
    assert told_result(after("read_file", {"path": "no.txt"}, {"result": "\n"}), TOOLS) == "no.txt is empty."


def test_what_was_written_is_told_in_the_words_of_the_tool() -> None:
    said = "Created 'hello.txt' with 12 bytes."
    assert (
        told_result(after("write_file", {"path": "hello.txt", "content": "good morning"}, {"result": said}), TOOLS) == said
    )


@pytest.mark.parametrize(
    "contents",
    [
        [],
        [{"role": "user", "parts": [{"text": "hello"}]}],
        after("motto", {"path": "x"}, {"result": "carpe diem"}),
        after("gone", {"path": "x"}, {"result": "carpe diem"}),
        after("read_file", {"path": "x"}, {"error": "There is no file 'x'."}),
        after("read_file", {"path": "x"}, {"result": ["a", "b"]}),
        after("read_file", {"path": "x"}, {"result": "a"}, {"result": "b"}),
        after("read_file", {}, {"result": "a"}),
        after("read_file", {"path": 7}, {"result": "a"}),
    ],
)  # fmt: skip
def test_everything_else_is_put_into_words_by_the_model(contents: list[Any]) -> None:
    assert told_result(contents, TOOLS) is None


def test_a_file_that_was_named_without_its_ending_is_looked_for_and_read() -> None:
    asked = after("read_file", {"path": "README", "start_line": 2}, {"error": "There is no file 'README'."})
    listed = FunctionCall(name="list_files", args={"pattern": "README.*"})
    assert next_try(asked, TOOLS) == listed
    then = [*asked, *after("list_files", listed.args, {"result": ["docs/README.md", "README.md"]})[1:]]
    assert next_try(then, TOOLS) == FunctionCall(name="read_file", args={"path": "README.md", "start_line": 2})
    assert next_try(asked, [READ]) is None
    assert next_try([*asked, *after("list_files", listed.args, {"result": []})[1:]], TOOLS) is None


@pytest.mark.parametrize(
    "contents",
    [
        after("write_file", {"path": "README"}, {"error": "There is no file 'README'."}),
        after("read_file", {"path": "README.md"}, {"error": "There is no file 'README.md'."}),
        after("read_file", {"path": "*"}, {"error": "There is no file '*'."}),
        after("read_file", {"path": "README"}, {"error": "It was denied."}),
        after("read_file", {"path": "README"}, {"result": "There is no file"}),
        after("list_files", {"pattern": "README.*"}, {"result": ["README.md"]}),
    ],
)  # fmt: skip
def test_nothing_else_is_looked_for(contents: list[Any]) -> None:
    assert next_try(contents, TOOLS) is None
