"""The prompt format: what the model reads and what it writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import format as prompt_format

TOOL = {
    "name": "write_file",
    "description": "Write text to a file.",
    "parameters": {
        "properties": {
            "path": {"type": "string", "description": "File to write"},
            "mode": {"type": "string", "enum": ["overwrite", "append"], "description": ""},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "Labels", "default": "none"},
        },
        "required": ["path"],
    },
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_tool_is_a_line_for_itself_and_one_for_each_parameter() -> None:
    assert prompt_format.tool_text(TOOL) == (
        "write_file - Write text to a file.\n"
        "  path*: string. File to write\n"
        "  mode: overwrite|append\n"
        "  tags: string[]. Labels Default none."
    )


def test_a_long_description_ends_with_a_sentence_or_a_word() -> None:
    assert prompt_format.cut("One sentence here. Another one follows", 30) == "One sentence here."
    assert prompt_format.cut("a word that is too long", 12) == "a word that"


def test_a_list_without_tools_is_the_rules_alone() -> None:
    assert prompt_format.system_text([]) == prompt_format.SYSTEM
    assert prompt_format.system_text([], extra="Be kind.") == f"{prompt_format.SYSTEM}\nBe kind."


@given(
    calls=st.lists(
        st.tuples(st.from_regex(r"[a-z_.]{1,12}", fullmatch=True), st.dictionaries(st.text(), JSON)), min_size=1, max_size=3
    )
)
def test_calls_come_back_as_they_were_written(calls: list[tuple[str, dict[str, object]]]) -> None:
    assert prompt_format.parse_calls(prompt_format.calls_text(calls)) == (calls, None)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("TOOL_CALL: f({)", "the arguments are no JSON"),
        ("TOOL_CALL: f([1])", "the arguments are no object"),
        ('TOOL_CALL: f({"a": 1}', "the call is not closed"),
        ("TOOL_CALL: ", "there is no call after the mark"),
    ],
)
def test_a_broken_call_is_named(text: str, fault: str) -> None:
    assert prompt_format.parse_calls(text) == ([], fault)


def test_prose_has_no_calls() -> None:
    assert prompt_format.parse_calls("Which city do you mean?") == ([], None)


def test_results_are_a_line_each() -> None:
    text = prompt_format.results_text([("a", {"x": "é"}), ("b", [1, None])])
    assert text == 'TOOL_RESULT a: {"x": "é"}\nTOOL_RESULT b: [1, null]'
    assert json.loads(text.splitlines()[1].removeprefix("TOOL_RESULT b: ")) == [1, None]
