"""The grammar lets through what fits a schema, and nothing else."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import ToolDefinition, check_arguments
from callgate.embedded.grammar import GRAMMAR_CHARS_MAX, grammar_of
from callgate.embedded.reply import ReplyReader
from callgate.embedded.spelling import spellings


@pytest.fixture(autouse=True)
def deep_recursion() -> Iterator[None]:
    """The reader of grammars in this file is recursive."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


def tool(name: str = "act", /, **properties: Any) -> ToolDefinition:
    required = [key for key, value in properties.items() if not value.pop("optional", False)]
    return ToolDefinition(name=name, input_schema={"type": "object", "properties": properties, "required": required})


def call(**args: Any) -> str:
    return f"TOOL_CALL: act({json.dumps(args, ensure_ascii=False)})"


def optional(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "optional": True}


# --- what follows from one schema ----------------------------------------------------------------------------------------

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.mark.rows(
    ("definition", "good", "bad"),
    [
        (tool(a=dict(STRING)), [call(a="x"), call(a='say "hi"\n')], [call(), call(a=1), call(b="x"), call(a="x", b="y")]),
        (tool(a=dict(INTEGER), b=optional(STRING)), [call(a=-7), call(a=1, b="")], [call(b="x"), call(a=1.5), call(a="1")]),
        (tool(a={"enum": ["x", 1, None]}), [call(a="x"), call(a=1), call(a=None)], [call(a="y"), call(a="1")]),
        (tool(a={"const": {"k": [1]}}), [call(a={"k": [1]})], [call(a={"k": [2]})]),
        (tool(a={"type": ["integer", "null"]}), [call(a=1), call(a=None)], [call(a="1")]),
        (tool(a={"anyOf": [STRING, {"type": "boolean"}]}), [call(a="x"), call(a=True)], [call(a=1)]),
        (tool(a={"type": "integer", "minimum": 0, "maximum": 10}), [call(a=0), call(a=10)], [call(a=11), call(a=-1)]),
        (tool(a={"type": "integer", "exclusiveMinimum": 0, "maximum": 3}), [call(a=1), call(a=3)], [call(a=0)]),
        (tool(a={"type": "integer", "minimum": 1}), [call(a=1), call(a=700)], [call(a=0), call(a=-1)]),
        (tool(a={"type": "number", "minimum": 0}), [call(a=0.5), call(a=3)], [call(a=-0.5)]),
        (tool(a={"type": "string", "maxLength": 3}), [call(a="abc"), call(a="")], [call(a="abcd")]),
        (tool(a={"type": "string", "minLength": 2}), [call(a="ab")], [call(a="a")]),
        (tool(a={"type": "string", "pattern": "^[A-Z]{2}-\\d+$"}), [call(a="AB-12")], [call(a="ab-12"), call(a="AB-")]),
        (tool(a={"type": "string", "format": "date"}), [call(a="2026-11-05")], [call(a="tomorrow")]),
        (tool(a={"type": "array", "items": INTEGER}), [call(a=[]), call(a=[1, 2])], [call(a=["x"]), call(a=1)]),
        (tool(a={"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2}), [call(a=[1])], [call(a=[])]),
        (tool(a={"type": "array", "prefixItems": [STRING, INTEGER]}), [call(a=["x", 1])], [call(a=[1, "x"])]),
        (tool(a={"type": "object", "additionalProperties": INTEGER}), [call(a={"k": 1})], [call(a={"k": "x"})]),
        (tool(a={"type": "object", "properties": {"b": STRING}, "required": ["b"]}), [call(a={"b": "x"})], [call(a={})]),
        (tool(a={}), [call(a=None), call(a={"any": [1, "x"]})], []),
        (ToolDefinition(name="act"), [call()], [call(a=1)]),
    ],
    ids=lambda value: None if isinstance(value, ToolDefinition) else "",
)  # fmt: skip
def test_a_call_passes_exactly_if_it_fits_the_schema(gbnf, definition, good: list[str], bad: list[str]) -> None:
    grammar = gbnf(grammar_of([definition]))
    assert [text for text in good if not grammar.matches(text)] == []
    assert [text for text in bad if grammar.matches(text)] == []


def test_a_reference_and_a_recursive_schema_end_in_values_of_the_right_type(gbnf) -> None:
    node = {"type": "object", "properties": {"name": STRING, "next": {"$ref": "#/$defs/node"}}, "required": ["name"]}
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "required": ["tree"],
        "$defs": {"node": node},
    }
    grammar = gbnf(grammar_of([ToolDefinition(name="act", input_schema=schema)]))
    assert grammar.matches(call(tree={"name": "a", "next": {"name": "b"}}))
    assert not grammar.matches(call(tree={"next": {"name": "b"}}))
    assert not grammar.matches(call(tree=[]))


def test_a_schema_of_any_size_gives_a_grammar_of_bounded_size(gbnf) -> None:
    wide: dict[str, Any] = {
        f"property_{n}": {"type": "string", "enum": [f"choice {n} {m}" for m in range(200)]} for n in range(300)
    }
    definition = ToolDefinition(name="act", input_schema={"type": "object", "properties": wide, "required": ["property_0"]})
    text = grammar_of([definition] * 5)
    assert len(text) <= GRAMMAR_CHARS_MAX
    assert gbnf(text).matches(call(property_0="choice 0 1"))


# --- prose and choices ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prose", ["Hello.", "T", "To", "The TOOLBOX is TOO TOOTHY.", "Two\nlines", "é 中"])
def test_prose_is_always_possible_and_never_holds_the_beginning_of_a_call(gbnf, prose: str) -> None:
    grammar = gbnf(grammar_of([tool()]))
    assert grammar.matches(prose)
    assert not grammar.matches(f"{prose} TOOL_CALL: act({{}})")
    assert not grammar.matches(f"{prose} TOOL")
    assert not grammar.matches("")


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ("auto", {"prose", "act", "other"}),
        ("validated", {"prose", "act", "other"}),
        ("required", {"act", "other"}),
        ("none", {"prose"}),
        ("other", {"other"}),
    ],
)
def test_the_tool_choice_decides_what_may_be_said(gbnf, choice: str, allowed: set[str]) -> None:
    grammar = gbnf(grammar_of([tool(), tool("other")], tool_choice=choice))
    said = {"prose": "Hello.", "act": "TOOL_CALL: act({})", "other": "TOOL_CALL: other({})"}
    assert {name for name, text in said.items() if grammar.matches(text)} == allowed


def test_several_calls_stand_on_a_line_each(gbnf) -> None:
    grammar = gbnf(grammar_of([tool(), tool("other")]))
    assert grammar.matches("TOOL_CALL: act({})\nTOOL_CALL: other({})")
    assert not grammar.matches("TOOL_CALL: act({}) TOOL_CALL: other({})")
    assert not grammar.matches("TOOL_CALL: unknown({})")


def test_without_tools_there_is_only_prose(gbnf) -> None:
    assert gbnf(grammar_of([])).matches("Hello.")


# --- the prompt's own spellings ------------------------------------------------------------------------------------------


def test_a_word_of_the_prompt_that_has_begun_is_spelled_as_it_stands_there(gbnf) -> None:
    grammar = gbnf(grammar_of([tool(a=dict(STRING))], words=spellings("Restart payments-api on host web_01.eu now")))
    good = [
        "payments-api",
        "payments",
        "payments-api is down",
        "web_01.eu",
        "web",
        "pay",
        "paper",
        "restart",
        "",
        "the payments-api",
    ]
    bad = ["payment-api", "payments-ap1x payment", "web_01.eu payme", "the payment"]
    assert [word for word in good if not grammar.matches(call(a=word))] == []
    assert [word for word in bad if grammar.matches(call(a=word))] == []


def test_a_plain_word_that_begins_like_a_name_stays_possible(gbnf) -> None:
    grammar = gbnf(grammar_of([tool(a=dict(STRING))], words=spellings("Tell payments-api about the payment of Paymore")))
    assert [w for w in ("payments-api", "payment", "Paymore") if not grammar.matches(call(a=w))] == []


# --- any schema ----------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b2", "long name", "with-dash", 'quote"d', "ünï", "T", "x.y"])
LEAVES = st.one_of(
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, st.integers(0, 5), st.integers(0, 9)
    ),
    st.just({"type": "string"}),
    st.sampled_from([{"type": "string", "pattern": p} for p in ("^a+$", "^(x|yz)-[0-9a-f]{2,4}$", "^\\w{3}\\.\\d?$")]),
    st.sampled_from([{"type": "string", "format": f} for f in ("date", "time", "date-time", "uuid")]),
    st.builds(lambda n, m: {"type": "integer", "minimum": n, "maximum": n + m}, st.integers(-9, 9), st.integers(0, 99)),
    st.sampled_from([{"type": t} for t in ("integer", "number", "boolean", "null", "object", "array")]),
    st.sampled_from([{"type": kind, "minimum": low} for kind, low in (("integer", 0), ("integer", 1), ("number", 0))]),
    st.lists(st.one_of(st.text(max_size=8), st.integers(-9, 9), st.booleans(), st.none()), min_size=1, max_size=4).map(
        lambda choices: {"enum": choices}
    ),
    st.just({"$ref": "#/$defs/shared"}),
    st.just({}),
)  # fmt: skip


def _object(properties: dict[str, Any], required: set[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(required & set(properties)),
        "additionalProperties": False,
    }


def _inner(schemas: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.builds(_object, st.dictionaries(NAMES, schemas, max_size=4), st.sets(NAMES)),
        st.builds(
            lambda items, low, more: {"type": "array", "items": items, "minItems": low, "maxItems": low + more},
            schemas, st.integers(0, 3), st.integers(0, 3),
        ),
        st.lists(schemas, min_size=1, max_size=3).map(lambda members: {"anyOf": members}),
        schemas.map(lambda schema: {"type": "array", "prefixItems": [schema, {"type": "boolean"}]}),
        schemas.map(lambda schema: {"type": "object", "additionalProperties": schema}),
        schemas.map(lambda schema: {"allOf": [schema]}),
    )  # fmt: skip


SCHEMAS = st.recursive(LEAVES, _inner, max_leaves=8)
ARGUMENTS = st.builds(_object, st.dictionaries(NAMES, SCHEMAS, max_size=4), st.sets(NAMES)).map(
    lambda schema: {**schema, "$defs": {"shared": {"type": "integer", "minimum": 1, "maximum": 5}}}
)


@given(schema=ARGUMENTS, seed=st.integers(0, 2**32), words=st.text(max_size=40))
@settings(max_examples=150)
def test_whatever_the_grammar_makes_fits_the_schema(gbnf, schema: dict[str, Any], seed: int, words: str) -> None:
    definition = ToolDefinition(name="act", input_schema=schema)
    text = gbnf(grammar_of([definition], tool_choice="required", words=spellings(words))).sample(random.Random(seed))
    reader = ReplyReader()
    reader.feed(text)
    read = reader.read()
    assert read.problem is None
    assert read.calls
    for name, args in read.calls:
        assert name == "act"
        checked = check_arguments(definition, args)
        assert (checked.problems, checked.coercions) == ([], []), (text, schema)


@given(text=st.text(max_size=60), seed=st.integers(0, 2**32))
@settings(max_examples=100)
def test_spellings_of_any_text_give_a_grammar_that_can_be_read_and_closed(gbnf, text: str, seed: int) -> None:
    words = spellings(text)
    made = gbnf(grammar_of([tool(a=dict(STRING))], tool_choice="required", words=words))
    assert all(made.matches(call(a=word)) for word in words)
    sample = made.sample(random.Random(seed))
    assert re.match(r'TOOL_CALL: act\(\{"a": "', sample)
