"""From every format to every other one: tools, calls, results and histories, there and back, and whatever is wrong."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest
from google.genai import types as genai
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Conversation, ToolDefinition, UsageError, convert, definition_from, definitions_from, tool
from callgate.content.read import SKIP_SIGNATURE
from callgate.declaration import declare, declared_names
from callgate.definitions import FORMATS, Converted, ShapeError
from callgate.definitions.format import KINDS
from callgate.errors import ToolNotDeclarableError
from callgate.history.repair import validate
from callgate.testing.google_rules import judge
from callgate.types import Loss

CASES = Path(__file__).parent / "cases"
SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))

CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "Where."}}, "required": ["city"]}
WEATHER = ToolDefinition(name="get_weather", description="Says what the weather is like.", input_schema=CITY)


def writers(kind: str) -> list[str]:
    return [name for name, fmt in FORMATS.items() if fmt.writer(kind) and fmt.reader(kind)]


def pairs(kind: str) -> list[Any]:
    return [pytest.param(*pair, id="-".join(pair)) for pair in itertools.product(writers(kind), repeat=2)]


def same(given: ToolDefinition, expected: ToolDefinition) -> bool:
    """Whether two definitions say the same; where the tool lives is not part of any shape."""
    return replace(given, kind="function") == replace(expected, kind="function")


def unsigned(value: Any) -> Any:
    """Contents without the word that Gemini wants on calls which it did not make."""
    return json.loads(json.dumps(value).replace(f', "thoughtSignature": "{SKIP_SIGNATURE}"', ""))


def texts_in(value: Any) -> list[str]:
    """Every text anywhere in a value."""
    if isinstance(value, (dict, list)):
        children = value.values() if isinstance(value, dict) else value
        return [text for child in children for text in texts_in(child)]
    return [value] if isinstance(value, str) else []


# --- every pair ----------------------------------------------------------------------------------------------------------


@pytest.mark.rows(("source", "target"), pairs("tool"))
def test_a_tool_goes_from_every_format_to_every_other(source: str, target: str) -> None:
    first = convert(WEATHER, target=source)
    second = convert(first.value, source=source, target=target)
    assert second.losses == first.losses == []
    assert second.names == {"get_weather": "get_weather"}
    assert same(definition_from(second.value, target), WEATHER)
    assert convert(second.value, target=target).value == second.value
    many = convert([first.value], source=source, target=target)
    assert [same(found, WEATHER) for found in definitions_from(many.value, target)] == [True]


CALL = {
    "type": "tool_use",
    "id": "c1",
    "name": "get_weather",
    "input": {"city": "Oslo", "days": [1, 2.5, None, {"a": True}]},
}


@pytest.mark.rows(("source", "target"), pairs("call"))
def test_a_call_goes_from_every_format_to_every_other(source: str, target: str) -> None:
    first = convert(CALL, source="anthropic", target=source)
    second = convert(first.value, source=source, target=target)
    # MCP and snakepit have no ids, so that one is made up where it is needed.
    has_id = source not in ("mcp", "snakepit")
    back = convert(second.value, source=target, target="anthropic")
    assert back.value == CALL | ({"id": "c1"} if has_id and target not in ("mcp", "snakepit") else {"id": "callgate_1"})
    assert {loss.keyword for loss in second.losses} == ({"id"} if has_id and target in ("mcp", "snakepit") else set())
    assert convert([first.value], source=source, target=target).value == [second.value]


@pytest.mark.rows("is_error", [False, True])
@pytest.mark.rows(("source", "target"), pairs("result"))
def test_a_result_goes_from_every_format_to_every_other(source: str, target: str, is_error: bool) -> None:
    given = {"toolUseId": "c1", "content": [{"text": "No such city."}], "status": "error" if is_error else "success"}
    first = convert(given, source="amazon_q", target=source)
    second = convert(first.value, source=source, target=target)
    back = convert(second.value, source=target, target="amazon_q").value
    if "openai" not in (source, target):
        assert (back["content"], back["status"]) == (given["content"], given["status"])
    elif is_error:
        assert back["content"] == [{"text": "Error: No such city."}]
        flagged = "is_error" in {loss.keyword for loss in [*first.losses, *second.losses]}
        assert flagged, "an error that lost its flag must be told"


@pytest.mark.rows(("source", "target"), pairs("result"))
def test_a_value_is_never_encoded_twice(source: str, target: str) -> None:
    given = {"functionResponse": {"name": "f", "response": {"result": {"degrees": [4, {"wind": "N"}]}}}}
    first = convert(given, target=source)
    second = convert(first.value, source=source, target=target)
    back = convert(second.value, source=target, target="gemini").value
    assert back["functionResponse"]["response"] == given["functionResponse"]["response"]


PLAIN = [
    {"role": "user", "parts": [{"text": "Oslo and Rome?"}]},
    {
        "role": "model",
        "parts": [
            {"text": "I look."},
            {"functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}}},
            {"functionCall": {"id": "c2", "name": "get_weather", "args": {"city": "Rome"}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "c1", "name": "get_weather", "response": {"result": {"degrees": 4}}}},
            {"functionResponse": {"id": "c2", "name": "get_weather", "response": {"result": "20 degrees"}}},
        ],
    },
    {"role": "model", "parts": [{"text": "4 and 20."}]},
    {"role": "user", "parts": [{"text": "Thanks."}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]},
]


@pytest.mark.rows(("source", "target"), pairs("history"))
def test_a_history_goes_from_every_format_to_every_other_and_back(source: str, target: str) -> None:
    first = convert(PLAIN, target=source)
    second = convert(first.value, source=source, target=target)
    third = convert(second.value, source=target, target=source)
    back = convert(third.value, source=source, target="gemini")
    assert [step.losses for step in (first, second, third, back)] == [[]] * 4
    assert unsigned(third.value) == unsigned(first.value)
    assert unsigned(back.value) == PLAIN
    assert second.names == {"get_weather": "get_weather"}
    assert convert(first.value, target=target).value == second.value, "detected as something else"


@pytest.mark.parametrize("source", writers("history"))
def test_what_comes_out_for_gemini_can_be_sent(source: str) -> None:
    contents = convert(convert(PLAIN, target=source).value, source=source, target="gemini").value
    assert validate(contents, sendable=True) == []
    assert Conversation(contents).contents == contents
    assert judge({"contents": contents, "tools": declare([WEATHER]).tools}, model="gemini-3.8-flash") is None


@pytest.mark.parametrize("target", writers("history"))
def test_a_system_text_is_never_lost(target: str) -> None:
    given = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Oslo?"}]
    converted = convert(given, target=target)
    assert "Be brief." in json.dumps(converted.value)
    assert [loss.keyword for loss in converted.losses] == (["system"] if target == "amazon_q" else [])


# --- what must not get lost ----------------------------------------------------------------------------------------------


@pytest.mark.rows("target", writers("call"))
@pytest.mark.rows("text", ['{"city": ', "[1]", "Oslo", '{"a": NaN}', '"x"', "7"])
def test_arguments_that_cannot_be_read_are_kept_and_never_empty(target: str, text: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": text}}
    converted = convert(call, target=target)
    assert text in texts_in(converted.value)
    assert ("arguments" in {loss.keyword for loss in converted.losses}) == (target != "openai")


def test_arguments_that_cannot_be_read_stand_where_gemini_keeps_them() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"city": '}}
    assert convert(call, target="gemini").value == {
        "functionCall": {"id": "c1", "name": "f", "args": {"unreadable": '{"city": '}}
    }


def test_a_loss_says_where_what_why_and_what_instead() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "No.", "is_error": True}
    assert convert([result], target="openai") == Converted(
        value=[{"role": "tool", "tool_call_id": "c1", "content": "Error: No."}],
        losses=[
            Loss(
                pointer="/0",
                keyword="is_error",
                reason="OpenAI: a result has no error flag",
                instead="the text begins with 'Error: '",
            )
        ],
        names={},
    )


BLOCKS = [
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "tool_use", "id": "v", "name": "f", "input": {}},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "TUFSSw=="}}


@pytest.mark.rows("before", [[], [IMAGE], [{"type": "text", "text": "first"}]], ids=["alone", "image", "text"])
@pytest.mark.rows("block", BLOCKS, ids=[block["type"] for block in BLOCKS])
@pytest.mark.rows("target", [name for name in FORMATS if name not in ("anthropic", "json_schema")])
def test_a_block_that_has_no_place_in_a_result_elsewhere_is_told(target: str, block: Any, before: list[Any]) -> None:
    if target not in writers("result"):
        return
    result = {"type": "tool_result", "tool_use_id": "u", "content": [*before, block]}
    losses = convert(result, source="anthropic", target=target, kind="result").losses
    assert (f"/content/{len(before)}", block["type"]) in [(loss.pointer, loss.keyword) for loss in losses]
    assert convert(result, source="anthropic", target="anthropic", kind="result").value == result


def test_the_place_of_an_extra_field_is_that_of_the_source() -> None:
    given = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}]
    bare = [{"type": "function", "name": "f", "strict": True, "parameters": {"type": "object"}}]
    found = [convert(one, source="openai", target="mcp", kind="tool").losses for one in (given, bare)]
    assert [[loss.pointer for loss in losses] for losses in found] == [["/0/function/strict"], ["/0/strict"]]


def test_losses_of_a_schema_have_their_place_in_the_source_and_the_name_of_the_tool() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}}
    index = {"x": {"name": "x", "description": "X.", "input_schema": schema}}
    losses = convert([index["x"]], source="amazon_q", target="gemini").losses
    assert [(loss.pointer, loss.keyword, loss.tool) for loss in losses] == [
        ("/0/input_schema/properties/a/minLength", "minLength", "x")
    ]
    worker = {
        "name": "y",
        "description": "Y.",
        "parameters": [{"name": "a", "type": "str", "validation_json": '{"minLength":2}'}],
    }
    losses = convert(worker, target="gemini").losses
    assert [(loss.pointer, loss.tool) for loss in losses] == [("/parameters/0/minLength", "y")]


def test_results_without_ids_find_their_calls_by_name_and_order() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "Go."}]},
        {"role": "model", "parts": [{"functionCall": {"name": n, "args": {"n": i}}} for i, n in enumerate("aba")]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": n, "response": {"result": r}}} for n, r in ("b1", "a2", "a3")],
        },
    ]
    messages = convert(contents, target="openai").value
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["callgate_1", "callgate_2", "callgate_3"]
    assert [(m["tool_call_id"], m["content"]) for m in messages[2:]] == [
        ("callgate_2", "1"), ("callgate_1", "2"), ("callgate_3", "3")
    ]  # fmt: skip
    back = convert(messages, target="gemini").value
    assert unsigned(back[1]) == contents[1], "ids that were made up do not go to Gemini"
    assert [part["functionResponse"]["response"]["result"] for part in back[2]["parts"]] == ["2", "1", "3"]


def test_a_made_up_id_is_never_one_that_is_there() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "Go."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "a"}}, {"functionCall": {"id": "callgate_1", "name": "b"}}]},
    ]
    calls = convert(contents, target="anthropic").value[1]["content"]
    assert [call["id"] for call in calls] == ["callgate_2", "callgate_1"]


def test_an_id_that_the_target_refuses_is_replaced_on_both_sides_and_told() -> None:
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "functions.f:0", "content": "done"},
    ]  # fmt: skip
    converted = convert(history, target="anthropic")
    assert converted.value[1]["content"][0]["id"] == converted.value[2]["content"][0]["tool_use_id"] == "callgate_1"
    assert [(loss.pointer, loss.keyword) for loss in converted.losses] == [("/1/tool_calls/0", "id")]


def test_names_that_a_target_refuses_get_aliases_with_a_way_back() -> None:
    names = ["git.log", "git-log", "git_log", "wetter?", "日本", "x" * 200]
    tools = [{"name": name, "description": "D.", "inputSchema": CITY} for name in names]
    for target in writers("tool"):
        converted = convert(tools, source="mcp", target=target)
        written = [found.name for found in definitions_from(converted.value, target)]
        assert [converted.names[name] for name in written] == names
        assert len({*written}) == len(names)
        if FORMATS[target].names is not None:
            assert all(FORMATS[target].names([name]) == {name: name} for name in written)


def test_aliases_for_gemini_are_those_of_declare() -> None:
    names = ["git.log", "git-log", "9", "日本", "x" * 200]
    definitions = [replace(WEATHER, name=name) for name in names]
    assert convert(definitions, target="gemini").names == declared_names(definitions) == declare(definitions).names


def test_calls_and_results_of_a_history_share_their_aliases() -> None:
    call = {"functionCall": {"id": "1", "name": "git.log", "args": {}}}
    response = {"functionResponse": {"id": "1", "name": "git.log", "response": {"result": "x"}}}
    history = [
        {"role": "user", "parts": [{"text": "x"}]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [response]},
    ]
    converted = convert(history, target="gemini")
    assert converted.names == {"git_log": "git.log"}
    assert converted.value[1]["parts"][0]["functionCall"]["name"] == "git_log"
    assert converted.value[2]["parts"][0]["functionResponse"]["name"] == "git_log"


# --- what is taken -------------------------------------------------------------------------------------------------------


@tool(read_only=True, timeout_s=5)
def get_weather(city: str) -> str:
    """Says what the weather is like."""
    return city


def test_functions_and_definitions_are_converted_too() -> None:
    converted = convert([get_weather, WEATHER_TWO := replace(WEATHER, name="other")], target="mcp")
    assert [found["name"] for found in converted.value["tools"]] == ["get_weather", WEATHER_TWO.name]
    assert converted.value["tools"][0]["annotations"] == {"readOnlyHint": True}
    assert [(loss.pointer, loss.tool) for loss in converted.losses] == [("/0/timeout_s", "get_weather")]


def test_a_list_may_mix_formats() -> None:
    given = [get_weather, convert(WEATHER, target="openai").value, {"name": "c", "description": "C.", "inputSchema": CITY}]
    with pytest.raises(ToolNotDeclarableError, match="more than one tool is named 'get_weather'"):
        convert(given, target="gemini")
    given[1]["function"]["name"] = "b"
    assert [found.name for found in definitions_from(given)] == ["get_weather", "b", "c"]
    assert convert(given, target="anthropic").value[2]["name"] == "c"


@dataclass
class Spec:
    name: str
    description: str
    input_schema: Any


class Sdk:
    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def to_dict(self) -> dict[str, Any]:
        return self._fields


def test_objects_of_sdks_say_themselves_what_they_hold() -> None:
    declaration = genai.FunctionDeclaration(
        name="get_weather", description="Says what the weather is like.", parameters_json_schema=CITY
    )
    message = genai.FunctionDeclaration(
        name="get_weather",
        description="Says what the weather is like.",
        parameters=genai.Schema(
            type=genai.Type.OBJECT,
            properties={"city": genai.Schema(type=genai.Type.STRING, description="Where.")},
            required=["city"],
        ),
    )
    spec = {"name": WEATHER.name, "description": WEATHER.description}
    for sdk_object in (
        declaration,
        genai.Tool(function_declarations=[message]),
        Spec(**spec, input_schema=CITY),
        SimpleNamespace(**spec, input_schema=SimpleNamespace(json=CITY), _private=1),
        Sdk(type="function", function=Sdk(**spec, parameters=CITY)),
    ):
        assert definition_from(sdk_object) == WEATHER


def test_contents_of_an_sdk_become_messages() -> None:
    contents = [
        genai.UserContent("Oslo?"),
        genai.ModelContent([genai.Part(function_call=genai.FunctionCall(id="1", name="f", args={"x": None}))]),
    ]
    assert convert(contents, target="openai").value == [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x":null}'}}]},
    ]  # fmt: skip


def get_weather_plain(city: str) -> str:
    """Says what the weather is like."""
    return city


# --- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "x"}, "no tool format fits 'dict' object"),
        (7, "no tool format fits 'int' object 7"),
        ({"name": "x", "description": "y", "parameters": {"type": "object", "properties": {"a": {"nullable": True}}}},
         "this tool may be of 'openai' or 'gemini', which read it differently: say which, as in format='openai'"),
        ([{"name": "a", "description": "b", "inputSchema": {}}, {"name": "c"}], "at /1: no tool format fits"),
        ([get_weather_plain, {"name": "c", "inputSchema": {}, "title": 4}], "at /1/title: expected text, found a number"),
        ([{"name": "a", "description": "b", "inputSchema": {}}, []], "at /1: expected a tool, found a list"),
        ({"name": "x", "inputSchema": {}, "title": 4}, "at /title: expected text, found a number"),
        ({"functionDeclarations": [{"name": "x", "parameters": {}, "parametersJsonSchema": {}}]}, "exclude each other"),
        ([{"name": "x", "parameters": [{"name": "a"}, {"name": "a"}]}], "at /0/parameters/1: there are two parameters"),
        ({"name": "x", "description": float("nan"), "inputSchema": {}}, "at /description: the number nan is not finite"),
        ({"name": "x", "description": object(), "inputSchema": {}}, "at /description: a value of type 'object' cannot"),
        ({1: 2}, "at the top: the key 1 is not text"),
        ({"tools": [{"name": "a", "inputSchema": {}}, {"name": "b", "inputSchema": {}}]}, "holds 2 tools, not one"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence_with_its_place(given: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        definition_from(given)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("given", "more", "sentence"),
    [
        (WEATHER, {"target": "soap"}, "there is no tool format 'soap'; the formats are 'amazon_q', 'anthropic'"),
        (WEATHER, {"target": "openai", "source": "soap"}, "there is no tool format 'soap'"),
        (WEATHER, {"target": "openai", "kind": "poem"}, "there is no kind 'poem'; the kinds are 'tool', 'call'"),
        (WEATHER, {"target": "function"}, "a tool cannot be written as 'function': the formats that can are 'mcp'"),
        (PLAIN, {"target": "mcp"}, "a history cannot be written as 'mcp'"),
        ({"tool_name": "x"}, {"target": "openai", "source": "snakepit", "kind": "history"}, "has no histories: it has"),
        ({"role": "alien", "content": "x"}, {"target": "gemini", "source": "openai", "kind": "history"}, "no role 'alien'"),
        ({"x": 1}, {"target": "gemini", "source": "mcp"}, "(as a tool, at the top: 'name' is missing); say what it is"),
        ({"type": "web_search"}, {"target": "gemini", "source": "openai", "kind": "tool"}, "runs at OpenAI"),
        ([PLAIN[0], {"role": "model", "parts": 3}], {"target": "openai"}, "at /1/parts: expected a list, found a number"),
        ([], {"target": "openai"}, "no format has a tool, call, result or history like"),
    ],
)
def test_a_conversion_that_cannot_be_is_one_sentence(given: Any, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        convert(given, **more)
    assert sentence in str(refused.value)


def test_an_empty_list_of_a_kind_stays_one() -> None:
    values = [convert([], target="openai", kind=kind).value for kind in KINDS]
    assert values == [[], [], [], []]
    assert convert([], target="mcp", kind="tool").value == {"tools": []}
    assert definitions_from([]) == []


def test_a_tool_that_gemini_cannot_take_is_left_out_and_told() -> None:
    broken = replace(WEATHER, name="broken", input_schema={"type": "object", "properties": {"a": {"type": "nothing"}}})
    converted = convert([broken, WEATHER], target="gemini")
    assert [found.name for found in definitions_from(converted.value)] == ["get_weather"]
    assert [(loss.pointer, loss.tool, loss.instead) for loss in converted.losses] == [
        ("/0", "broken", "the tool is left out")
    ]
    with pytest.raises(ToolNotDeclarableError, match="'broken'"):
        convert(broken, target="gemini")


def test_nesting_without_end_is_refused() -> None:
    deep: Any = {}
    deep["x"] = deep
    with pytest.raises(ShapeError, match="nested deeper than 100 levels"):
        convert({"name": "x", "description": "y", "inputSchema": deep}, target="openai")


# --- there and back, whatever it is --------------------------------------------------------------------------------------

words = st.text(min_size=1, max_size=12)
plain_words = words.filter(lambda text: text.strip() == text and text[0] not in "{[")
idents = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(idents, inner, max_size=3), max_leaves=8
)
leaves = st.one_of(
    st.fixed_dictionaries({"type": st.just("string")}, optional={
        "description": plain_words, "enum": st.lists(words, min_size=1, max_size=3, unique=True),
        "minLength": st.integers(0, 9), "default": words, "pattern": st.just("^a")}),
    st.fixed_dictionaries({"type": st.sampled_from(["integer", "number"])}, optional={
        "description": plain_words, "minimum": st.integers(-9, 0), "maximum": st.integers(1, 9),
        "default": st.integers(0, 1)}),
    st.fixed_dictionaries({"type": st.just("boolean")}, optional={"default": st.booleans()}),
    st.fixed_dictionaries({"type": st.just(["string", "null"])}, optional={"default": st.none()}),
    st.just({}),
    st.just({"type": "object"}),
)  # fmt: skip


def objects(inner: Any) -> Any:
    properties = st.dictionaries(idents, inner, min_size=1, max_size=3)
    return properties.flatmap(
        lambda found: st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.just(found)},
            optional={
                "required": st.sets(st.sampled_from([*found]), min_size=1).map(lambda r: [n for n in found if n in r])
            },
        )
    )


nested = st.recursive(
    leaves,
    lambda inner: (
        objects(inner)
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"minItems": st.integers(0, 3)})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=2, max_size=3)})
    ),
    max_leaves=6,
)
definitions = st.builds(
    ToolDefinition,
    name=idents,
    description=plain_words,
    input_schema=objects(nested),
    output_schema=st.none() | objects(leaves),
    title=st.none() | plain_words,
    read_only=st.booleans(),
    idempotent=st.booleans(),
)


@settings(max_examples=60 * SCALE)
@given(definition=definitions, source=st.sampled_from(writers("tool")), target=st.sampled_from(writers("tool")))
def test_a_definition_is_the_same_there_and_back_but_for_what_was_told(
    definition: ToolDefinition, source: str, target: str
) -> None:
    before = copy.deepcopy(definition)
    first = convert(definition, target=source)
    second = convert(first.value, source=source, target=target)
    found = definition_from(second.value, target)
    assert definition == before
    lost = {loss.keyword for loss in [*first.losses, *second.losses]}
    assert (found.name, found.description) == (definition.name, definition.description)
    for field in ("title", "output_schema", "read_only", "idempotent"):
        if field not in lost:
            assert getattr(found, field) == getattr(definition, field)
    if "gemini" not in (source, target):
        assert found.input_schema == definition.input_schema
    elif not any(
        "/properties" in loss.pointer or "/parameters/" in loss.pointer for loss in [*first.losses, *second.losses]
    ):
        # What Gemini is shown may be put in other words, and then says the same.
        assert declare([found]).tools == declare([definition]).tools


calls = st.builds(lambda name, args: {"name": name, "args": args}, idents, st.dictionaries(idents, values, max_size=3))
results = plain_words | st.dictionaries(idents, values, max_size=3) | st.lists(values, max_size=3)


@st.composite
def histories(draw: Any) -> list[dict[str, Any]]:
    """Contents that every format can say: text, calls made at once, and their results."""
    contents: list[dict[str, Any]] = []
    numbers = itertools.count(1)
    has_ids = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        contents.append({"role": "user", "parts": [{"text": draw(plain_words)}]})
        for made in draw(st.lists(st.lists(calls, min_size=1, max_size=3), max_size=2)):
            made = [({"id": f"id_{next(numbers)}"} if has_ids else {}) | call for call in made]
            said = [{"text": draw(plain_words)}] if draw(st.booleans()) else []
            contents.append({"role": "model", "parts": [*said, *({"functionCall": call} for call in made)]})
            answers = [{key: call[key] for key in ("id", "name") if key in call} | {"response": {"result": draw(results)}}
                       for call in made]  # fmt: skip
            contents.append({"role": "user", "parts": [{"functionResponse": answer} for answer in answers]})
        contents.append({"role": "model", "parts": [{"text": draw(plain_words)}]})
    return contents


@settings(max_examples=60 * SCALE)
@given(contents=histories(), through=st.lists(st.sampled_from(writers("history")), min_size=1, max_size=3))
def test_a_history_without_losses_is_the_same_there_and_back(contents: list[dict[str, Any]], through: list[str]) -> None:
    value: Any = contents
    source = "gemini"
    for target in [*through, "gemini"]:
        converted = convert(value, source=source, target=target)
        assert converted.losses == []
        value, source = converted.value, target
    assert unsigned(value) == unsigned(contents)


INPUTS = [(path.parent.parent.name, json.loads(path.read_text("utf-8"))) for path in sorted(CASES.glob("*/*/in.json"))]
junk = st.recursive(
    scalars | st.sampled_from(["tool", "user", "text", "function", "data:,", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(idents, inner, max_size=3),
    max_leaves=4,
)


def places_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, child in children for place in places_in(child, (*at, key)))]


@settings(max_examples=150 * SCALE)
@given(data=st.data())
def test_whatever_is_wrong_is_a_usage_error_and_nothing_else(data: st.DataObject) -> None:
    source, given_value = data.draw(st.sampled_from(INPUTS))
    value = copy.deepcopy(given_value)
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from([place for place in places_in(value) if place] or [()])) or (None,)
        if last is None:
            break
        inside = value
        for step in way:
            inside = inside[step]
        inside[last] = data.draw(junk)
    target = data.draw(st.sampled_from([name for name in FORMATS if name != "function"]))
    for named, kind in ((source, None), (None, None), (source, data.draw(st.sampled_from(KINDS)))):
        try:
            converted = convert(value, source=named, target=target, kind=kind)
        except UsageError:
            continue
        else:
            json.dumps(converted.value, allow_nan=False)
            assert all(loss.pointer == "" or loss.pointer.startswith("/") for loss in converted.losses)


@settings(max_examples=100 * SCALE)
@given(value=junk, target=st.sampled_from(sorted(FORMATS)))
def test_junk_is_a_usage_error(value: Any, target: str) -> None:
    with pytest.raises(UsageError):
        convert(value, target=target)


@pytest.mark.parametrize(
    "node",
    [
        {"type": [], "format": "enum", "enum": ["1"]},
        {"type": "NUMBER", "format": "enum", "enum": ["1e999", "nan"]},
        {"type": "INTEGER", "format": "enum", "enum": [1e400]},
        {"type": "OBJECT", "properties": {"a": {}}, "propertyOrdering": [[], "a"]},
    ],
    ids=range(4),
)
def test_an_odd_schema_message_is_read_or_refused_in_a_sentence(node: Any):
    tool = {"name": "f", "description": "F.", "parameters": {"type": "OBJECT", "properties": {"x": node}}}
    with contextlib.suppress(UsageError):
        json.dumps(convert(tool, source="gemini", target="mcp").value, allow_nan=False)


# Nothing is lost in silence ----------------------------------------------------------------------------------------------

CUSTOM = {"id": "c3", "type": "custom", "custom": {"name": "run", "input": "rm x"}}


@pytest.mark.parametrize("target", ["anthropic", "bedrock", "gemini", "amazon_q"])
def test_a_call_of_a_custom_tool_stays_with_its_result_and_is_told(target: str) -> None:
    history = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "t", "tool_calls": [CUSTOM]},
        {"role": "tool", "tool_call_id": "c3", "content": "done"},
    ]
    converted = convert(history, source="openai", target=target, kind="history")
    assert [(loss.pointer, loss.keyword) for loss in converted.losses if loss.keyword == "custom"] == [
        ("/1/tool_calls/0", "custom")
    ]
    back = convert(converted.value, source=target, target="openai", kind="history").value
    function = back[1]["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("run", {"input": "rm x"})
    assert back[2]["tool_call_id"] == back[1]["tool_calls"][0]["id"]
    assert len(convert(CUSTOM, source="openai", target=target, kind="call").losses) == 1
    assert convert(history, source="openai", target="openai", kind="history") == Converted(
        value=history, names={"run": "run"}
    )


def test_custom_calls_of_the_responses_api_are_read_and_others_told() -> None:
    items = [
        {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "a b"},
    ]
    written = convert(items, target="openai", kind="history").value
    assert written[0]["tool_calls"] == [{"id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls"}}]
    assert [loss.keyword for loss in convert(items[0], source="openai", target="gemini", kind="call").losses] == ["custom"]
    unknown = {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "type": "hosted", "hosted": {}}]}
    losses = convert([unknown], source="openai", target="anthropic", kind="history").losses
    assert ("/0/tool_calls/0", "hosted") in [(loss.pointer, loss.keyword) for loss in losses]


def _told(history: Any, source: str, target: str) -> list[tuple[str, str]]:
    losses = convert(history, source=source, target=target, kind="history").losses
    return [(loss.pointer, loss.keyword) for loss in losses]


def test_another_order_of_text_calls_and_results_is_told() -> None:
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    between = [{"role": "assistant", "content": [use, {"type": "text", "text": "then"}, {**use, "id": "b"}]}]
    assert _told(between, "anthropic", "openai") == _told(between, "anthropic", "amazon_q") == [("/0", "content")]
    assert _told(between, "anthropic", "gemini") == []
    response = {"functionResponse": {"name": "f", "response": {"result": 1}}}
    around = [{"role": "user", "parts": [{"text": "first"}, response, {"text": "last"}]}]
    for target in ("anthropic", "openai", "amazon_q"):
        assert ("/0", "content") in _told(around, "gemini", target)
    plain_order = [{"role": "user", "parts": [response, {"text": "last"}]}]
    assert ("/0", "content") not in _told(plain_order, "gemini", "anthropic")


def test_an_empty_message_is_told() -> None:
    history = [{"role": "user", "content": ""}, {"role": "assistant", "content": "Hello."}]
    assert _told(history, "openai", "anthropic") == _told(history, "anthropic", "gemini") == [("/0", "content")]
    assert convert(history, source="openai", target="openai", kind="history").value == history
    assert convert(history, source="anthropic", target="anthropic", kind="history").value == history
    system = [{"role": "system", "content": ""}, {"role": "user", "content": "Hello."}]
    for target in ("anthropic", "gemini", "bedrock", "interactions", "amazon_q"):
        assert _told(system, "openai", target) == [("/0", "content")]


@pytest.mark.parametrize(
    ("source", "kind", "given"),
    [
        ("openai", "result", {"role": "tool", "tool_call_id": "a", "content": '{"a": 1, "a": 2}'}),
        ("openai", "result", {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": t} for t in "ab"]}),
        (
            "openai",
            "call",
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{ "n": 1.0 }'}, "index": 0},
        ),
        ("anthropic", "result", {"type": "tool_result", "tool_use_id": "a", "cache_control": {"type": "ephemeral"}}),
        ("bedrock", "result", {"toolResult": {"toolUseId": "a", "content": [{"json": {"a": 1}}]}}),
        ("mcp", "result", {"content": [{"type": "text", "text": "a"}], "structuredContent": {"a": 1}, "_meta": {"x": 1}}),
        ("interactions", "result", {"type": "function_result", "call_id": "a", "result": [{"type": "text", "text": "x"}]}),
        ("gemini", "result", {"functionResponse": {"name": "f", "response": {"error": None}, "scheduling": "SILENT"}}),
    ],
)
def test_a_conversion_to_the_same_format_changes_nothing(source: str, kind: Any, given: Any) -> None:
    converted = convert(given, source=source, target=source, kind=kind)
    assert (converted.value, converted.losses) == (given, [])


def test_a_history_of_the_same_format_keeps_its_order_and_its_messages() -> None:
    mixed = [
        {"role": "user", "content": [{"type": "text", "text": ""}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in "ab"]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "text", "text": "between"},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "2"}]},
            ],
        },
    ]
    assert convert(mixed, source="anthropic", target="anthropic", kind="history").value == mixed
    steps = [
        {"type": "user_input", "content": []},
        {"type": "function_call", "id": "a", "name": "f", "arguments": {}},
        {"type": "function_result", "call_id": "a", "result": "1"},
    ]
    assert convert(steps, source="interactions", target="interactions", kind="history").value == steps


def test_arguments_that_say_more_than_their_value_are_told() -> None:
    text = '{"a":1,"a":2,"n":12345678901234567.89}'
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    converted = convert(call, source="openai", target="gemini", kind="call")
    assert [loss.instead for loss in converted.losses] == ["the last value counts", "the nearest double"]
    assert convert(call, source="openai", target="openai", kind="call").value == call


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"properties": {"n": {"$ref": "#"}}}, []),
        ({"anyOf": [{"type": "object"}, {"type": "string"}], "properties": {"c": {"$ref": "#"}}}, ["anyOf", "$ref"]),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"n": {"$ref": "#"}}}, []),
        ({"properties": {"n": {"$ref": "#"}}, "items": {"type": "string"}}, ["$ref"]),
        ({"$id": "https://example.com/tree", "properties": {"n": {"$ref": "tree"}}}, []),
    ],
)
def test_a_schema_that_leads_back_to_its_root_takes_all_that_it_took(schema: dict[str, Any], told: list[str]) -> None:
    converted = convert(ToolDefinition(name="f", input_schema=schema), target="openai")
    sent = jsonschema_rs.validator_for(converted.value["function"]["parameters"])
    own = jsonschema_rs.validator_for(schema)
    key = next(iter(schema["properties"]))
    for inner in ("x", 1, None, [], ["x"], {}, {key: "x"}, {key: {key: 1}}):
        assert sent.is_valid({key: inner}) or not own.is_valid({key: inner}), inner
    assert not sent.is_valid("x")
    assert sorted(loss.keyword for loss in converted.losses) == sorted(told)


def test_every_field_beside_a_tool_is_told_at_its_place() -> None:
    spec = {"name": "f", "description": "d", "inputSchema": {"json": {"type": "object"}}, "strict": True}
    losses = convert({"toolSpec": spec, "cachePoint": {"type": "default"}}, source="bedrock", target="openai").losses
    assert sorted(loss.pointer for loss in losses) == ["/cachePoint", "/toolSpec/strict"]
    titled = {"name": "f", "title": "A", "annotations": {"title": "B"}, "inputSchema": {"type": "object"}}
    assert convert(titled, source="mcp", target="mcp").value == titled
    assert "/annotations/title" in [loss.pointer for loss in convert(titled, source="mcp", target="openai").losses]
    marked = {"name": "f", "inputSchema": {"type": "object", "$id": "https://x.y", "$comment": "c"}}
    assert {loss.keyword for loss in convert(marked, source="mcp", target="gemini").losses} == {"$id", "$comment"}
    stored = {"s3Location": {"uri": "s3://a/b.png", "bucketOwner": "1"}}
    image = [{"role": "user", "content": [{"image": {"format": "png", "source": stored}}]}]
    assert convert(image, source="bedrock", target="bedrock", kind="history") == Converted(value=image)
    assert any(loss.keyword == "bucketOwner" for loss in convert(image, source="bedrock", target="gemini").losses)


@pytest.mark.parametrize("response", [{"a": 1}, {"error": None}, {"output": "x"}, {"result": 1, "more": 2}, {}])
def test_a_response_of_gemini_stays_as_it_is_for_gemini(response: dict[str, Any]) -> None:
    part = {"functionResponse": {"name": "f", "response": response}}
    assert convert(part, source="gemini", target="gemini", kind="result") == Converted(value=part, names={"f": "f"})


@pytest.mark.parametrize("written", ["list[" * 3_000 + "int" + "]" * 3_000, "list[...]", "dict[]", "list[int" * 5_000])
def test_a_type_of_any_form_is_read_or_told(written: str) -> None:
    odd = {"name": "f", "parameters": [{"name": "a", "type": written}]}
    assert convert(odd, source="snakepit", target="mcp").value["inputSchema"]["properties"].keys() == {"a"}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "system", "content": ""},
    ],
)
def test_refusals_and_empty_system_texts_stay_in_their_own_format_only(message: dict[str, Any]) -> None:
    history = [message, {"role": "user", "content": "x"}]
    assert convert(history, source="openai", target="openai", kind="history") == Converted(value=history)
    elsewhere = convert(history, source="openai", target="gemini", kind="history").value
    assert texts_in(elsewhere) == (["model", "no", "user", "x"] if "assistant" in message.values() else ["user", "x"])


@pytest.mark.parametrize(
    ("source", "usable", "unknown", "reason"),
    [
        ("gemini", {"functionDeclarations": [{"name": "f"}]}, {"dreamReader": {"depth": 3}}, "it runs at Google"),
        ("gemini", {"name": "f", "description": "Do it."}, {"dream_reader": {}}, "it runs at Google"),
        (
            "bedrock",
            {"toolSpec": {"name": "f", "inputSchema": {"json": {}}}},
            {"dreamTool": {"name": "x"}},
            "only Bedrock knows",
        ),
        ("openai", {"type": "function", "function": {"name": "f"}}, {"type": "dream_reader"}, "runs at OpenAI"),
        ("anthropic", {"name": "f", "input_schema": {}}, {"type": "dream_20270101", "name": "dream"}, "Anthropic's own"),
        ("interactions", {"type": "function", "name": "f"}, {"type": "dream_reader"}, "runs at Google"),
    ],
)
def test_a_kind_of_tool_that_nobody_knows_costs_itself_and_no_other(
    source: Any, usable: dict[str, Any], unknown: dict[str, Any], reason: str
) -> None:
    converted = convert([usable, unknown], source=source, target="mcp", kind="tool")
    assert list(converted.names) == ["f"]
    (loss,) = [loss for loss in converted.losses if loss.pointer.startswith("/1")]
    assert reason in loss.reason


@pytest.mark.parametrize("nameless", [{"description": "x"}, {"parameters": {"type": "OBJECT"}}, {"behavior": "BLOCKING"}])
def test_a_declaration_without_a_name_is_no_tool_of_googles(nameless: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match="'name' is missing"):
        convert([{"name": "f", "description": "x"}, nameless], source="gemini", target="openai", kind="tool")


@pytest.mark.parametrize("said", [[], [{"text": "One is done."}]], ids=["at once", "after a sentence"])
def test_results_of_one_turn_stand_together_where_only_some_of_its_calls_ran_at_the_provider(said: list[Any]) -> None:
    def use(id: str, name: str) -> dict[str, Any]:
        return {"toolUse": {"toolUseId": id, "name": name, "input": {}}}

    def result(id: str) -> dict[str, Any]:
        return {"toolResult": {"toolUseId": id, "content": [{"text": id}], "status": "success"}}

    history = [
        {"role": "user", "content": [{"text": "Go."}]},
        {"role": "assistant", "content": [use("a", "mine"), use("b", "theirs"), result("b"), *said]},
        {"role": "user", "content": [result("a"), {"text": "And?"}]},
    ]
    converted = convert(history, source="bedrock", target="gemini", kind="history")
    contents: Any = converted.value
    assert judge({"contents": contents}) is None
    responses = [part["functionResponse"] for part in contents[2]["parts"]]
    assert [(one["name"], one["response"]) for one in responses] == [("mine", {"result": "a"}), ("theirs", {"result": "b"})]
    assert ("/2/content/0", "order") in [(loss.pointer, loss.keyword) for loss in converted.losses]
    assert contents[-1] == {"role": "user", "parts": [{"text": "And?"}]}


@pytest.mark.parametrize(
    ("mime_type", "block"),
    [
        ("audio/mp3", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
        ("audio/mpeg", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
        ("audio/x-wav", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        ("Audio/WAV; rate=16000", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        ("Application/PDF", {"type": "file", "file": {"file_data": "data:Application/PDF;base64,AAAA"}}),
    ],
)
def test_a_medium_reaches_openai_by_each_name_of_its_type(mime_type: str, block: dict[str, Any]) -> None:
    content = {"role": "user", "parts": [{"text": "What is it?"}, {"inlineData": {"mimeType": mime_type, "data": "AAAA"}}]}
    converted = convert([content], source="gemini", target="openai", kind="history")
    assert converted.value == [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, block]}]


IMAGE = {"type": "image", "mime_type": "image/png", "data": "aGk="}
JSON_TEXT, PLAIN_TEXT = ({"type": "text", "text": text} for text in ('{"a":1}', "A picture."))


@pytest.mark.rows("via", ["anthropic", "bedrock", "gemini", "interactions"])
@pytest.mark.rows("result", list(itertools.permutations([IMAGE, JSON_TEXT, PLAIN_TEXT])), ids=str)
def test_texts_and_images_of_a_result_keep_their_order_or_the_loss_is_reported(via: str, result: Any) -> None:
    call = {"type": "function_call", "id": "c", "name": "look", "arguments": {}}
    step = {"type": "function_result", "call_id": "c", "name": "look", "result": [*result]}
    there = convert([call, step], source="interactions", target=via, kind="history")
    back: Any = convert(there.value, source=via, target="interactions", kind="history")
    came = next(step["result"] for step in back.value if step["type"] == "function_result")
    is_kept = [item["type"] for item in came] == [item["type"] for item in result]
    assert is_kept or via == "gemini"
    assert is_kept or {"order", "content"} & {loss.keyword for loss in there.losses}


def test_a_value_and_the_notes_of_a_result_with_an_image_are_all_written() -> None:
    response = {"result": {"a": 1}, "notes": ["Cut."]}
    part = {"functionResponse": {"id": "c", "name": "look", "response": response, "parts": [
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]}}  # fmt: skip
    made: Any = convert(part, source="gemini", target="interactions", kind="result").value
    step = made[0] if isinstance(made, list) else made
    assert step["result"][-1] == {"type": "text", "text": "Note: Cut."} or "Cut." in step["result"][0]["text"]
    assert [item["type"] for item in step["result"]][:2] == ["text", "image"]
    assert '"a"' in step["result"][0]["text"]


def test_empty_lists_of_required_properties_are_not_written_for_interactions() -> None:
    inner = {"type": "object", "properties": {"required": {"type": "string"}}, "required": []}
    schema = {"type": "object", "properties": {"a": inner}, "required": [], "anyOf": [{"required": []}, {"required": ["a"]}]}
    given = {"name": "f", "description": "d", "inputSchema": schema}
    made: Any = convert(given, source="mcp", target="interactions", kind="tool")
    tool_ = made.value[0] if isinstance(made.value, list) else made.value
    assert tool_["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"required": {"type": "string"}}}},
        "anyOf": [{}, {"required": ["a"]}],
    }
    assert made.losses == []


def test_a_result_without_its_call_has_a_name_for_interactions_and_the_loss_is_reported() -> None:
    messages = [{"role": "user", "content": "?"}, {"role": "tool", "tool_call_id": "zzz", "content": "4"}]
    made: Any = convert(messages, source="openai", target="interactions", kind="history")
    [result] = [step for step in made.value if step["type"] == "function_result"]
    assert result["name"] == "unnamed_function"
    assert [loss.keyword for loss in made.losses] == ["name"]


@pytest.mark.parametrize(
    ("target", "block", "written", "lost"),
    [
        ("interactions", {"type": "video", "uri": "gs://b/x"}, {"type": "video", "uri": "gs://b/x"}, 0),
        (
            "gemini", {"type": "video", "uri": "https://youtu.be/x"},
            {"fileData": {"fileUri": "https://youtu.be/x", "mimeType": "video/mp4"}}, 0,
        ),
    ],
)  # fmt: skip
def test_the_stated_or_known_type_of_media_by_address_is_kept(target: Any, block: Any, written: Any, lost: int) -> None:
    made = convert([{"type": "user_input", "content": [block]}], source="interactions", target=target, kind="history")
    (said,) = made.value
    assert ((said.get("content") or said.get("parts")), len(made.losses)) == ([written], lost)


def test_media_without_a_type_that_its_address_tells_of_is_told_as_a_loss() -> None:
    history = [{"role": "user", "parts": [{"fileData": {"fileUri": "https://files.test/x"}}]}]
    made = convert(history, source="gemini", target="interactions", kind="history")
    stands = "(Media of type unknown stood here and was left out.)"
    assert made.value == [{"type": "user_input", "content": [{"type": "text", "text": stands}]}]
    assert [loss.keyword for loss in made.losses] == ["unknown"]


@pytest.mark.parametrize(
    "said", ["Hi.", [{"type": "text", "text": "Hi."}], {"model": "gemini-3.8-flash", "input": "Hi."}], ids=str
)
def test_what_a_user_says_to_interactions_in_any_form_is_a_history(said: Any) -> None:
    found = convert(said, source="interactions", target="gemini", kind="history")
    assert found.value == [{"role": "user", "parts": [{"text": "Hi."}]}]
    assert [loss.keyword for loss in found.losses] == (["model"] if isinstance(said, dict) else [])
