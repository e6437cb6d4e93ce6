"""Names that are taken for one another: which are found, and which are not."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Gate, McpServer, ScriptedModel, events
from callgate.tools.confusable_names import LookAlike, look_alikes, look_alikes_among
from callgate.types import ToolDefinition

SCRIPT = Path(__file__).parent.parent / "mcp" / "scripted_server.py"

ALIKE = [
    ("re\u0430d_file", "letters of another script, or invisible characters"),  # Cyrillic a
    ("r\u0435\u0430d_fil\u0435", "letters of another script, or invisible characters"),
    ("read\u200b_file", "letters of another script, or invisible characters"),
    ("\uff52ead_file", "letters of another script, or invisible characters"),  # full width
    ("\U0001d42bead_file", "letters of another script, or invisible characters"),  # mathematical
    ("réad_file", "letters of another script, or invisible characters"),
    ("Read_File", "they differ only in upper and lower case"),
    ("readFile", "they differ only in case and separators"),
    ("read-file", "they differ only in case and separators"),
    ("read_fi1e", "they differ in signs that look the same"),
    ("read_flle", "they differ in signs that look the same"),
    ("read_files", "they differ by one letter"),
    ("read_fle", "they differ by one letter"),
    ("raed_file", "they differ by one letter"),
    ("reed_file", "they differ by one letter"),
]


@pytest.mark.parametrize(("name", "why"), ALIKE)
def test_names_that_look_like_one_of_ours_are_found(name: str, why: str):
    assert look_alikes([("read_file", None), (name, "evil")]) == [LookAlike(name, "evil", "read_file", None, why)]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("read_file", "read_file"), ("read_file", "write_file"), ("get", "set"), ("search_v1", "search_v2"),
        ("list_12", "list_123"), ("add", "ad"), ("list_files", "list_folders"), ("reboot", "robots"),
    ],
)  # fmt: skip
def test_names_that_are_the_same_or_plainly_others_are_not(name: str, other: str):
    assert look_alikes([(name, "a"), (other, "b")]) == []


def test_names_of_one_place_are_its_own_business():
    assert look_alikes([("get_user", "a"), ("get_users", "a"), ("getUser", "a")]) == []


def test_two_servers_are_told_apart_and_a_prefix_is_no_difference():
    named = [
        ToolDefinition(name="modern", input_schema={}, server="a"),
        ToolDefinition(name="b__modem", alias_of="modem", input_schema={}, server="b"),
    ]
    (pair,) = look_alikes_among(named)
    assert str(pair) == (
        "The tool 'modern' of the MCP server 'a' looks like 'modem' of the MCP server 'b': they differ in signs that look "
        "the same."
    )


def test_what_is_in_a_name_is_spelled_out():
    (pair,) = look_alikes([("read_file", None), ("re\u0430d_file", "evil")])
    assert "'re\\u0430d_file'" in str(pair)


def edited(name: str, place: int, letter: str, how: str) -> str:
    return {
        "add": name[:place] + letter + name[place:],
        "drop": name[:place] + name[place + 1 :],
        "put": name[:place] + letter + name[place + 1 :],
        "swap": name[:place] + name[place + 1 : place + 2] + name[place : place + 1] + name[place + 2 :],
    }[how]


@given(
    st.text("abcdefghjkmnop", min_size=6, max_size=20), st.integers(0, 19), st.sampled_from("qstuvwxyz"),
    st.sampled_from(["add", "drop", "put", "swap"]),
)  # fmt: skip
def test_every_single_step_is_found(name: str, place: int, letter: str, how: str):
    other = edited(name, place % len(name), letter, how)
    assert len(look_alikes([(name, None), (other, "s")])) == (other != name)


@given(st.lists(st.tuples(st.text(max_size=12), st.sampled_from([None, "a", "b"])), max_size=12))
def test_no_name_is_too_odd(tools: list[tuple[str, str | None]]):
    for pair in look_alikes(tools):
        assert pair.place != pair.like_place
        assert pair.name != pair.like


def test_a_run_begins_with_a_warning():
    def read_file(path: str) -> str:
        """Ours."""
        return path

    given = json.dumps({"tools": ["re\u0430d_file"]})
    box = McpServer("evil", command=[sys.executable, "-I", str(SCRIPT), given], start_s=120)

    async def story() -> list[events.Event]:
        return [event async for event in Gate(ScriptedModel(["Hi."]), [read_file, box]).stream("Hi.")]

    seen = asyncio.run(story())
    assert [(event.code, event.message, event.level) for event in seen if isinstance(event, events.Notice)] == [
        (
            "look_alike_tool",
            "The tool 're\\u0430d_file' of the MCP server 'evil' looks like 'read_file' of this program: letters of another "
            "script, or invisible characters. See that the right one is called, or exclude it.",
            "warning",
        )
    ]
