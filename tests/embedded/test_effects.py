"""Calls that would change something, checked against the user's own words."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.embedded.decoder import Decoded
from callgate.embedded.effects import checked_effects, with_effects_checked
from callgate.files.tools import DEFINITIONS
from callgate.types import ToolDefinition

TOOLS = [*DEFINITIONS.values(), ToolDefinition(name="save", input_schema={"type": "object"})]


@pytest.mark.parametrize(
    ("said", "call", "made"),
    [
        ("Add milk to shopping.txt", ("write_file", {"path": "shopping.txt", "content": "milk"}),
         {"path": "shopping.txt", "content": "milk\n", "mode": "append"}),
        ("Please append it", ("write_file", {"path": "a.txt", "content": "x\n"}),
         {"path": "a.txt", "content": "x\n", "mode": "append"}),
        ("Add x to a.txt", ("write_file", {"path": "a.txt", "content": "x", "mode": "append"}),
         {"path": "a.txt", "content": "x", "mode": "append"}),
        ("Write x to a.txt", ("write_file", {"path": "a.txt", "content": "x"}), {"path": "a.txt", "content": "x"}),
        ("Write x to the readme", ("write_file", {"path": "README.md", "content": "x"}),
         {"path": "README.md", "content": "x"}),
        ("In a.txt change bread to toast", ("edit_file", {"path": "a.txt", "old_string": "bread", "new_string": "toast"}),
         {"path": "a.txt", "old_string": "bread", "new_string": "toast"}),
        ("Find all TODOs", ("search_files", {"pattern": "TODOs"}), {"pattern": "TODO"}),
        ("Where is beds?", ("search_files", {"pattern": "beds"}), {"pattern": "beds"}),
        ("Save it", ("save", {"path": "elsewhere"}), {"path": "elsewhere"}),
        ("Anything", ("unknown", {"path": "elsewhere"}), {"path": "elsewhere"}),
    ],
)  # fmt: skip
def test_a_call_that_the_words_speak_of_is_made(said: str, call: tuple[str, dict[str, Any]], made: dict[str, Any]) -> None:
    assert checked_effects([call], TOOLS, said) == ([(call[0], made)], None)


@pytest.mark.parametrize(
    ("said", "call", "words"),
    [
        ("Send an email to Anna", ("write_file", {"path": "src/plan.py", "content": "x"}), "you did not name it"),
        ("In settings.json change beds to 6",
         ("edit_file", {"path": "settings.json", "old_string": "beds", "new_string": "6"}), "which text of settings.json"),
        ("Set mode to fast in a.ini",
         ("edit_file", {"path": "a.ini", "old_string": "mode", "new_string": "fast"}), "which text"),
        ("Who owns the garden?", ("search_files", {"pattern": "beds"}), "what to look for"),
    ],
)  # fmt: skip
def test_a_call_that_nobody_asked_for_is_declined_in_a_sentence(said: str, call: tuple[str, Any], words: str) -> None:
    calls, why = checked_effects([call], TOOLS, said)
    assert calls == []
    assert words in str(why)
    assert with_effects_checked(Decoded(calls=[call]), TOOLS, said).is_declined


def test_an_outcome_without_calls_stays_as_it_is() -> None:
    assert with_effects_checked(Decoded(), TOOLS, "Hello!") == Decoded()
