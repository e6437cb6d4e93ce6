"""Marks the stories at a terminal as slow: each one starts the command, types into it and waits for what is drawn."""

from __future__ import annotations

import pytest

QUICK = {
    "test_a_conversation_answers_lists_its_tools_and_ends_with_ctrl_d",
    "test_a_call_is_approved_and_keys_typed_early_are_no_answer",
    "test_ctrl_c_stops_a_turn_and_the_conversation_goes_on",
    "test_an_answer_is_drawn_as_markdown_and_the_terminal_is_left_as_it_was",
}
"""One story for each part of the command that only a terminal shows: lines, approval, interrupts, drawing."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the mark to all others."""
    for item in items:
        if "screen" in getattr(item, "fixturenames", ()) and getattr(item, "originalname", "") not in QUICK:
            item.add_marker(pytest.mark.slow)
