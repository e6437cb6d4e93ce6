"""Arguments that are no JSON: read or refused in linear time, and every change is noted."""

from __future__ import annotations

import time

import pytest

from callgate import Gate, tool
from callgate.models.prompted import PromptedModel
from callgate.prompted import parse_text
from callgate.testing import ScriptedModel

FENCE = "A code fence around the arguments was removed."
TWICE = "A key stood there twice; the last value counts."
ROUNDED = "A number with more digits than a double holds was rounded."


def _read(args: str):
    return parse_text(f"TOOL_CALL: f({args})", tools=["f"])


@pytest.mark.parametrize("blank", [" ", "\n", "\t", "\r\n"])
def test_blanks_behind_an_open_fence_cost_no_more_than_other_text(blank):
    begin = time.process_time()
    parsed = _read("```" + blank * 100_000 + "x")
    assert time.process_time() - begin < 5, "a cubic pattern takes days for this"  # clock: processor time
    assert [error.code for error in parsed.errors] == ["bad_arguments"]


def test_any_number_of_python_comments_is_left_out():
    assert [call.args for call in _read("a=1,\n" + "# x\n" * 20_000).calls] == [{"a": 1}]


def test_fences_in_fences_are_refused_and_long_ones_removed():
    nested = _read("```\n" * 2_000 + "{}" + "\n```" * 2_000)
    assert (nested.calls, [error.code for error in nested.errors]) == ([], ["bad_arguments"])
    assert [(call.args, call.notes) for call in _read("`" * 999 + "{}" + "`" * 999).calls] == [({}, (FENCE,))]


@pytest.mark.anyio
async def test_a_broken_call_of_any_shape_goes_back_to_the_model_as_an_error():
    @tool
    def f(a: int = 0) -> str:
        """Do it."""
        return "done"

    shapes = ["a=1,\n" + "# x\n" * 3_000 + "1", "```\n" * 3_000 + "{}" + "\n```" * 3_000, "a=0x" + "f" * 9_000]
    model = ScriptedModel([*(f"TOOL_CALL: f({shape})" for shape in shapes), "done"])
    reply = await Gate(PromptedModel(model), tools=[f]).run("q")
    assert (reply.text, [call.result.is_error for call in reply.calls]) == ("done", [True] * 3)


@pytest.mark.parametrize(
    ("args", "value", "note"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}, TWICE),
        ('{"o": {"a": 1, "a": 2}}', {"o": {"a": 2}}, TWICE),
        ("{'a': 1, 'a': 2}", {"a": 2}, TWICE),
        ("a=1, a=2", {"a": 2}, TWICE),
        ('{"a": 0.12345678901234567890123}', {"a": 0.12345678901234568}, ROUNDED),
        ("{'a': 9007199254740993.0}", {"a": 9007199254740992.0}, ROUNDED),
        ('{"a": 1e-400}', {"a": 0.0}, ROUNDED),
    ],
)
def test_keys_that_stand_twice_and_digits_that_are_lost_are_noted(args, value, note):
    (call,) = _read(args).calls
    assert call.args == value
    assert note in call.notes


@pytest.mark.parametrize("args", ['{"a": 1, "b": {"a": 1}}', '{"a": 0.1, "b": 1e2, "c": 0.0, "d": 0e5, "e": -1.50}'])
def test_what_is_read_as_it_stands_has_no_note(args):
    assert [call.notes for call in _read(args).calls] == [()]


def test_a_hexadecimal_number_beyond_all_measure_is_refused():
    assert [call.args for call in _read("a=0x" + "f" * 300).calls] == [{"a": 16**300 - 1}]
    assert [error.code for error in _read("a=0x" + "f" * 5_000).errors] == ["bad_arguments"]


def test_keys_beside_the_arguments_are_named():
    (call,) = parse_text('TOOL_CALL: {"name": "f", "arguments": {}, "id": 1, "extra": 2}', tools=["f"]).calls
    assert call.notes == ("Keys beside the name and the arguments were left out: 'extra'.",)


@pytest.mark.parametrize("word", ["a." * 50_000, "1." + "a." * 50_000, "0x" + "f" * 50_000, "1_" * 50_000, "." * 50_000])
def test_a_word_of_any_length_is_no_number(word):
    assert [error.code for error in _read(f"a={word}").errors] == ["bad_arguments"]
