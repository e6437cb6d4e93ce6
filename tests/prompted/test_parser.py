# ruff: noqa: E501 - tables of texts read better unbroken
"""Calls in text: every case by its rule, under every split, in linear time."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.prompted import CallError, CallParser, ParsedCall, Text, parse_text, partial_call, render_call
from callgate.prompted.markers import HEAD_MAX
from callgate.types import ToolDefinition


def _load(name: str):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILE = json.loads((Path(__file__).parent / "cases.json").read_text("utf-8"))
TOOLS = FILE["tools"]
GIVEN = [(case["id"], case["text"], case["expected"]) for case in FILE["cases"]]
OWN = [
    (
        what,
        text,
        {
            "calls": [{"name": name, "args": args} for name, args in calls],
            "text": left,
            "errors": [{"code": code, "name": name} for code, name in errors],
        },
    )
    for what, text, calls, left, errors in _load("own_cases").CASES
]
ALL = [*GIVEN, *OWN]


@pytest.mark.rows(("text", "expected"), [case[1:] for case in ALL], ids=[case[0] for case in ALL])
def test_a_case_gives_its_calls_text_and_errors(outcome, text, expected):
    assert outcome([text]) == expected
    parsed = parse_text(text, tools=TOOLS)
    assert [{"name": call.name, "args": call.args} for call in parsed.calls] == expected["calls"]
    assert parsed.text == expected["text"]
    assert [{"code": error.code, "name": error.name} for error in parsed.errors] == expected["errors"]


@pytest.mark.rows(("text", "expected"), [case[1:] for case in ALL], ids=[case[0] for case in ALL])
def test_a_case_gives_the_same_under_every_split(outcome, text, expected):
    assert outcome(text) == expected, "one character at a time"
    places = range(len(text)) if len(text) < 1_000 else range(0, len(text), 997)
    assert [place for place in places if outcome([text[:place], text[place:]]) != expected] == []


@given(st.data())
def test_random_splits_give_the_same(outcome, data):
    _, text, expected = data.draw(st.sampled_from(ALL))
    text = text[:5_000]
    expected = outcome([text])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    assert outcome([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == expected


BLOCKS = 1 if os.environ.get("CALLGATE_SCALE", "1") == "1" else 20
"""In a soak: 72,000 texts and more than two and a half million splits."""
PIECES = [
    "TOOL_CALL: ", "TOOL_CALL:", "echo", "noop", "(", ")", "{", "}", '"', "'", "“", "”", "\n", "\n\n", "\r\n", " ", "- ", "1) ",
    "**", "```", "```json", "~~~", "`", "<think>", "</think>", "<!--", "-->", '{"n": 1}', "a=1", ",", ";", ".", "//", "/*", "*/",
    "\\", '"""', "x", "Sure. ", "> ", "# ", "TOOL_", "default_api.", 'TOOL_CALL: echo({"n": 1})', 'TOOL_CALL: echo({"s": "',
    'TOOL_CALL: {"name": "echo"', "\ufeff", "\u2028",
]  # fmt: skip


@settings(max_examples=600)
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.data())
def test_any_text_gives_the_same_under_any_split(outcome, pieces, data):
    text = "".join(pieces)
    whole = outcome([text])
    assert outcome(text) == whole
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    assert outcome([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == whole
    assert whole["text"] == whole["text"].strip()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_made_up_text_gives_the_same_under_every_split(outcome, block):
    chance, texts = random.Random(block), 60 if BLOCKS == 1 else 3_600
    for _ in range(texts):
        text = "".join(chance.choices(PIECES, k=chance.randrange(1, 16)))
        whole = outcome([text])
        splits = [[text[:place], text[place:]] for place in range(1, len(text))]
        splits += [list(text), [text[place : place + 3] for place in range(0, len(text), 3)]]
        assert [split for split in splits if outcome(split) != whole] == []


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_text_without_a_marker_is_only_stripped(outcome, text):
    text = text.replace("TOOL_CALL", "")
    assert outcome([text]) == {"calls": [], "text": text.strip(), "errors": []}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")) | st.sampled_from(["\nTOOL_CALL: echo({})\n", '"})', "```\n", "<think>"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,30}", fullmatch=True)


@given(NAMES, st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=5))
def test_a_call_that_was_rendered_is_read_as_it_was(name, args):
    parsed = parse_text(f"Before.\n{render_call(name, args)}\nAfter.", tools=[name])
    assert [(call.name, call.args, call.notes) for call in parsed.calls] == [(name, args, ())]
    assert (parsed.text, parsed.errors) == ("Before.\nAfter.", [])


# Streaming -----------------------------------------------------------------------------------------------------------------


def test_text_is_shown_as_soon_as_it_cannot_be_a_call():
    parser = CallParser(TOOLS)
    assert parser.feed("Hello") == [Text("Hello")]
    assert parser.feed(" there") == [Text(" there")]
    assert parser.feed("\nTOOL_CA") == []
    assert parser.feed("RPET\n- T") == [Text("\nTOOL_CARPET")]
    assert parser.feed("ea") == [Text("\n- Tea")]
    assert parser.feed("\nTOOL_CALL: is") == []
    assert parser.feed(" the") == [Text("\nTOOL_CALL: is the")]
    assert parser.feed("\n```py") == [Text("\n```py")]
    assert parser.close() == []


def test_a_call_is_given_out_when_its_bracket_closes():
    parser = CallParser(TOOLS)
    assert parser.feed('Ok.\nTOOL_CALL: echo({"a": ")"}') == [Text("Ok.")]
    assert parser.feed(")") == [ParsedCall("echo", {"a": ")"}, (), 'TOOL_CALL: echo({"a": ")"})')]


def test_a_fence_is_shown_as_soon_as_it_holds_something_else():
    parser = CallParser(TOOLS)
    assert parser.feed("```\nTOOL_CALL: noop()\n") == []
    assert parser.feed("x") == [Text("```\nTOOL_CALL: noop()\nx")]


@pytest.mark.parametrize("around", ["{}", "```python\n{}\n```", "> {}", "`{}`"])
def test_a_split_call_is_found_once_or_never(outcome, around):
    text = around.replace("{}", 'TOOL_CALL: f({"a": ")})"})')
    expected = [{"name": "f", "args": {"a": ")})"}}] if around == "{}" else []
    found = [outcome([text[:place], text[place:]], ["f"])["calls"] for place in range(len(text) + 1)]
    assert found == [expected] * (len(text) + 1)


# Linear time ---------------------------------------------------------------------------------------------------------------

HOSTILE = {
    "braces": "{", "marker": "TOOL_CALL:", "marker and blank": "TOOL_CALL: ", "marker lines": "TOOL_CALL: \n", "backticks": "`",
    "thoughts": "<think", "open thoughts": "<think>\n", "open calls": "TOOL_CALL: f((\n", "open strings": 'TOOL_CALL: f("\n',
    "escaped strings": 'TOOL_CALL: f(\\"\n', "two kinds of strings": "TOOL_CALL: f(\"\nTOOL_CALL: f('\n",
    "typographic strings": "TOOL_CALL: f(“\n", "comments": "TOOL_CALL: f(/*\n", "four quotes": 'TOOL_CALL: f(""""\n',
    "objects": 'TOOL_CALL: {"a": "\n', "fences": "```\n", "call fences": "```\nTOOL_CALL: f({})\n```\n", "stars": "*",
    "sentences": "x. TOOL_CALL: f(", "broken": 'TOOL_CALL: f({"a": })\n', "digits": "1", "blanks": " ", "lines": "\n",
    "bullets": "- ", "commas": ",", "names": "a", "inline": "`a ", "comment ends": "-->", "chained": "TOOL_CALL: f({})",
}  # fmt: skip
OPENINGS = {
    "": "",
    "call": "TOOL_CALL: f(",
    "string": 'TOOL_CALL: f({"a": "',
    "name": "TOOL_CALL: ",
    "fence": "```\n",
    "tail": "TOOL_CALL: f({})",
}


@pytest.mark.rows("opening", OPENINGS.values(), ids=OPENINGS)
@pytest.mark.rows("unit", HOSTILE.values(), ids=HOSTILE)
def test_the_work_grows_with_the_length_of_the_text_and_not_faster(unit, opening, scale, monkeypatch):
    # What may be read again in all is a constant; it is made small, so that it does not hide how the work grows.
    monkeypatch.setattr("callgate.prompted.parser.RESCANNED_MAX", 1_000)

    def work(length: int, *, piece: int) -> int:
        text = opening + (unit * (length // len(unit) + 1))[:length]
        parser = CallParser(["f"])
        for place in range(0, len(text), piece):
            parser.feed(text[place : place + piece])
        parser.close()
        return parser.scanned

    for piece in (1, 100_000):
        short, long = work(1_000, piece=piece), work(4_000 * scale, piece=piece)
        assert long <= 4.5 * scale * short + 4 * HEAD_MAX, f"pieces of {piece}"


def test_hostile_strings_are_cut_at_the_next_marker_when_too_much_was_read_again(monkeypatch):
    text = 'TOOL_CALL: f(\\"\n' * 2_000
    monkeypatch.setattr("callgate.prompted.parser.RESCANNED_MAX", 10_000)
    parser = CallParser(["f"])
    outcomes = [*parser.feed(text), *parser.close()]
    assert {type(outcome) for outcome in outcomes} == {CallError}
    assert len(outcomes) == 2_000
    assert parser.scanned < 20 * len(text)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["{", "TOOL_CALL:", "`", "<think"])
def test_ten_megabytes_of_one_thing_are_read_a_few_times_at_most(unit):
    text = unit * (10_000_000 // len(unit))
    parser = CallParser(["f"])
    outcomes = [*parser.feed(text), *parser.close()]
    assert outcomes == [Text(text)]
    assert parser.scanned < 3 * len(text)


def test_a_call_that_is_too_long_is_an_error_and_the_next_one_runs(monkeypatch, outcome):
    monkeypatch.setattr("callgate.prompted.parser.CALL_CHARS_MAX", 2_000)
    long = "x" * 3_000
    good = 'TOOL_CALL: echo({"n": 1})'
    runs = {
        "calls": [{"name": "echo", "args": {"n": 1}}],
        "text": "ok",
        "errors": [{"code": "bad_arguments", "name": "echo"}],
    }
    ends = {
        "closed": f'TOOL_CALL: echo({{"s": "{long}"}})\n{good}\nok',
        "not closed": f'TOOL_CALL: echo({{"s": "{long}\n{good}\nok',
    }
    assert outcome([ends["closed"]]) == outcome(ends["closed"]) == runs
    assert outcome([ends["not closed"]]) == outcome(ends["not closed"]) == runs
    text = f'TOOL_CALL: echo({{"s": "a\n{good}\n' + long
    assert outcome([text]) == outcome(text)
    assert outcome([text])["calls"] == runs["calls"]
    cut = f'TOOL_CALL: echo({{"s": "{long}'
    assert outcome([cut]) == outcome(cut) == {"calls": [], "text": "", "errors": runs["errors"]}
    assert partial_call.CALL_CHARS_MAX == 16 << 20


def test_a_beginning_that_is_too_long_is_text(outcome):
    for text in (f"TOOL_CALL: {'a' * HEAD_MAX}({{}})", f"-{' ' * HEAD_MAX}TOOL_CALL: noop()", "`" * (HEAD_MAX + 9)):
        assert outcome([text], None) == outcome(text, None) == {"calls": [], "text": text, "errors": []}


# What is told --------------------------------------------------------------------------------------------------------------


def test_every_repair_is_noted():
    def notes(args: str) -> tuple[str, ...]:
        return parse_text(f"TOOL_CALL: f({args}", tools=["f"]).calls[0].notes

    comma, single = "A trailing comma was removed.", "Single quotes were read as double ones."
    assert notes('{"a": 1})') == ()
    assert notes('{"a": 1,})') == (comma,)
    assert notes("{'a': 1})") == (single,)
    assert notes('{"a": True})') == ("True, False and None were read as true, false and null.",)
    assert notes('{"a": (1, 2)})') == ("A tuple was read as a list.",)
    assert notes("{a: 1})") == ("Keys without quotes were read as texts.",)
    assert notes('{"a": 1 /* x */})') == ("Comments were left out.",)
    assert notes("{“a”: 1})") == ("Typographic quotes were read as plain ones.",)
    assert notes('{"a": "b\nc"})') == ("Control characters in a string were escaped.",)
    assert notes("a=1)") == ("Python keyword arguments were read as an object.",)
    assert notes('```json\n{"a": 1}\n```)') == ("A code fence around the arguments was removed.",)
    assert notes('"{\\"a\\": 1}")') == ("The arguments were an object encoded as a string.",)
    assert notes('{"a": 1}') == ("The missing ')' was added.",)
    assert notes('{"a": "\\ud800"})') == ("Characters that are not valid Unicode were replaced by U+FFFD.",)
    assert notes("a='x', b='y',)") == ("Python keyword arguments were read as an object.", single, comma)
    assert parse_text("TOOL_CALL: functions.f({})", tools=["f"]).calls[0].notes == (
        "The name 'functions.f' was read as 'f'.",
    )


def test_every_error_says_what_to_write_instead():
    errors = parse_text(
        'TOOL_CALL: f({"a": })\nTOOL_CALL: f\nTOOL_CALL: g({})\nOk. TOOL_CALL: f({})\nTOOL_CALL: f({"a": "', tools=["f"]
    ).errors
    assert [(error.code, error.name) for error in errors] == [
        ("bad_arguments", "f"), ("bad_syntax", "f"), ("unknown_tool", "g"), ("midline_call", "f"), ("incomplete", "f"),
    ]  # fmt: skip
    assert errors[0].message.endswith("Write it on one line, as TOOL_CALL: f({...}), with one JSON object.")
    assert "not valid JSON" in errors[0].message
    assert errors[2].message == "There is no tool named 'g'. The tools are 'f'."
    assert errors[2].args == {}
    assert errors[3].message.endswith("Write it on a line of its own.")
    assert errors[4].raw == 'TOOL_CALL: f({"a": "'
    assert all(re.fullmatch(r"[A-Z].*\.", error.message) for error in errors)


def test_tools_may_be_definitions_and_none_takes_every_name():
    text = "TOOL_CALL: f({})"
    assert parse_text(text, tools=[ToolDefinition(name="f")]).calls[0].name == "f"
    assert parse_text(text).calls[0].name == "f"
    assert parse_text(text, tools=[]).errors[0].code == "unknown_tool"


@pytest.mark.rows(
    ("args", "expected"),
    [
        ("a=0x10, b=1_000, c=.5, d=+1", {"a": 16, "b": 1000, "c": 0.5, "d": 1}),
        ("a='\\x41\\n\\d\\'', b=r'\\d', c='x' 'y'", {"a": "A\n\\d'", "b": "\\d", "c": "xy"}),
        ("a=1, # one\n b=2 # two\n", {"a": 1, "b": 2}),
        ("a=(), b=(1), c=(1,), d='''x'y'''", {"a": [], "b": 1, "c": [1], "d": "x'y"}),
        ("a=true, b=null,", {"a": True, "b": None}),
        ("{'a': '\\u00e9\\x41\\v'}", {"a": "éA\v"}),
        ("{'a': 'it\\'s', \"b\": \"it\\'s\"}", {"a": "it's", "b": "it's"}),
        ("{$a: 1}", {"$a": 1}),
        ("{'s': '\\ud83d\\ude00'}", {"s": "😀"}),
        ("{'s': '\\ud83d'}", {"s": "\ufffd"}),
        ("{“a”: ‘b’}", {"a": "b"}),
        ("({'a': 1})", {"a": 1}),
        ("{'a': 1},", {"a": 1}),
        ("'{\"a\": 1}'", {"a": 1}),
        ("```\n{'a': -0.5e3}\n```", {"a": -500.0}),
        ("{'a': []}", {"a": []}),
    ],
)
def test_what_models_write_instead_of_json_is_read(args, expected):
    assert [call.args for call in parse_text(f"TOOL_CALL: f({args})", tools=["f"]).calls] == [expected]


@pytest.mark.rows(
    "args",
    [
        "a=1j", "a=b", "a=f'x'", "a=1 b=2", "a=1, 2", "a=", "a=007", "a='\\101'", "a='\\N{DASH}'", "{'a': '\\a'}", "{1: 2}",
        "{None: 1}", "{'a' 1}", "{'a': 1 'b': 2}", "[1, 2", "{'a': 1}}", "{'a': 1e999}", "{'a': Infinity}", "{'a': -inf}",
        "{'a': 'x}", "{'a': " + "9" * 5_000 + "}", "{'a': }", "true", "{,}", "{'a':: 1}", '"Paris"', '""', "{} {}", "{'a': x.y}",
        "'" * 3, "{'a': " + "[" * 200 + "]" * 200 + "}", "{'a': 1, ...}", "**{'a': 1}", "lambda: 1",
    ],
)  # fmt: skip
def test_what_is_in_doubt_is_refused_and_never_empty(args):
    parsed = parse_text(f"TOOL_CALL: f({args})", tools=["f"])
    assert (parsed.calls, parsed.text) == ([], "")
    assert [error.code for error in parsed.errors] == ["bad_arguments"]


@pytest.mark.parametrize(
    ("text", "code", "name"),
    [
        ('TOOL_CALL: {"city": "Paris"}', "bad_syntax", ""),
        ('TOOL_CALL: {"name": "f", "args": {}, "input": {}}', "bad_arguments", "f"),
        ('TOOL_CALL: {"name": "f", "city": "Paris"}', "bad_arguments", "f"),
        ('TOOL_CALL: {"name": "f", "args": {"a": }}', "bad_arguments", "f"),
        ('TOOL_CALL: {"name": "f", "args": {"a": ', "incomplete", "f"),
        ("TOOL_CALL: {oops", "incomplete", ""),
        ('TOOL_CALL: f {"a": }', "bad_arguments", "f"),
        ("TOOL_CALL: print(default_api.f(a=1), default_api.f(a=2))", "bad_arguments", "print"),
    ],
)
def test_calls_in_other_forms_that_cannot_be_read(text, code, name):
    parsed = parse_text(text, tools=["f"])
    assert (parsed.calls, parsed.text, [(error.code, error.name) for error in parsed.errors]) == ([], "", [(code, name)])


# Thoughts ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("<think>a <think>b</think>\nTOOL_CALL: f({})\n</think>\nTOOL_CALL: f({'last': 1})", [{"last": 1}]),
        ("<think>\n<thinking>\n</think>\nTOOL_CALL: f({})\n</thinking>\n", []),
        ("<think>tags such as `<think>` are shown</think>\nTOOL_CALL: f({})", [{}]),
        ("<think kind='x'>a <thinking >b</thinking>\nTOOL_CALL: f({})\n</think >\nTOOL_CALL: f({'last': 1})", [{"last": 1}]),
        ("<thinks>\nTOOL_CALL: f({})", [{}]),
        ("<!-- <think> -->\nTOOL_CALL: f({})", [{}]),
        ("</think>\n<think></think></think>\nTOOL_CALL: f({})", [{}]),
    ],
)
def test_thoughts_in_thoughts_hide_calls_until_the_outermost_is_closed(text, calls):
    assert [call.args for call in parse_text(text, tools=["f"]).calls] == calls
