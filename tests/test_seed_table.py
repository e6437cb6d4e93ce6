"""docs/seeds.md against the library: every row that says `now` is run, and no name of the five designs is missing."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import logging
import re
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

import callgate
from callgate import (
    Conversation,
    Executor,
    FileTools,
    FunctionCall,
    Gate,
    GeminiModel,
    Limits,
    McpServer,
    Media,
    ModelError,
    ModelResponse,
    OpenAIModel,
    Policy,
    ScriptedModel,
    ToolContext,
    ToolDefinition,
    ToolError,
    ToolNotDeclarableError,
    ToolResult,
    Usage,
    UsageError,
    WorkerPool,
    check_arguments,
    convert,
    declare,
    definition_from,
    function_calls,
    to_function_response,
    tool,
)
from callgate.cli.logs import log_handler
from callgate.content.build import call_part, response_part, text_part
from callgate.content.collect import Collector
from callgate.content.json_safe import json_safe
from callgate.errors import ProtocolError
from callgate.events import (
    CallFinished,
    CallProposed,
    CallStarted,
    RunEnded,
    ServerStepReported,
    TextDelta,
    ThoughtDelta,
    TurnEnded,
    UsageReported,
)
from callgate.gemini import ResponseReader
from callgate.gemini.client import GeminiClient
from callgate.gemini.request import BodyBuilder
from callgate.gemini.surface import surface_from_environment
from callgate.history.repair import INTERRUPTED, validate
from callgate.models import ModelRequest
from callgate.models.prompted import PromptedModel
from callgate.permission import RateLimits
from callgate.permission.audit import records_of, verify
from callgate.prompted import CallParser, parse_text, render_tools
from callgate.testing import answer, text, thought
from callgate.testing import call as scripted_call
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_gemini import call as fake_call
from callgate.testing.fake_gemini import fault as fake_fault
from callgate.testing.fake_gemini import text as fake_text
from callgate.testing.fake_openai import FakeOpenAI
from callgate.testing.google_rules import judge
from callgate.tools.executor import Runnable

PAGE = Path(__file__).resolve().parent.parent / "docs" / "seeds.md"

# --- the page ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One row of a table of the page."""

    section: str
    id: str
    theirs: str
    ours: str
    differs: str
    state: str


def rows_of(page: str) -> list[Row]:
    """The rows of all five tables, in order."""
    rows: list[Row] = []
    section = ""
    for line in page.splitlines():
        if heading := re.match(r"## (\d{3}): ", line):
            section = heading[1]
        elif line.startswith("## "):
            section = ""
        elif section and re.match(r"\| *\d", line):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            assert len(cells) == 5, f"a row has an id, theirs, ours, what differs and a state: {line}"
            rows.append(Row(section, *cells))
    return rows


TEXT = PAGE.read_text("utf-8")
TABLE = rows_of(TEXT)
PARTS_TABLE = TEXT.partition("| part | what it brings |")[2].partition("\n\n")[0]
PARTS = set(re.findall(r"^\| ([A-Za-z ]+) \|", PARTS_TABLE, re.MULTILINE))

Check = Callable[[], None]
ROWS: dict[str, Check] = {}


def row(row_id: str) -> Callable[[Check], Check]:
    """Makes a function the check of a row."""

    def keep(check: Check) -> Check:
        assert row_id not in ROWS, f"two checks for {row_id}"
        ROWS[row_id] = check
        return check

    return keep


# Every name that is defined in the code of the documents: functions, types, variants, fields, options, endpoints, tools.
NAMES: dict[str, str] = {
    "000": """
        Tool ToolSpecification name description input_schema ToolInputSchema schema Document Object Array String Number
        Boolean Null $schema type properties required parameter1 parameter2 ToolUseEvent ToolUse tool_use_id input
        ToolResult content status ToolResultContentBlock Text ToolResultStatus Success Error tools functionDeclarations
        parameters candidates contents parts functionCall args functionResponse response result error role from
        GeminiFunctionDeclaration function_call_to_tool_use document_from_json_value GeminiFunctionCall GeminiPart
        function_call text function_response tool_result_to_function_response GeminiFunctionResponse
        add_function_response_to_conversation conversation GeminiContent
        """,
    "001": """
        ToolDefinition name description parameters to_json_schema to_gemini_function to_gemini_tools to_gemini_tool_config
        ToolChoice Auto Required None Tool parse_function_call ToolCall id arguments to_gemini_function_response ToolResult
        content success ToolResultContent Text Json Error to_gemini_function_response_content
        to_model_content_with_functions text function_calls ToolExecutor GeminiToolHandler executors definitions timeout
        new Default with_timeout register get_definitions has_function execute error execute_all join_all Debug fmt
        functions debug info warn GeminiStream inner functionDeclarations functionCallingConfig mode allowedFunctionNames
        functionCall args functionResponse response role buffer model tool_call_index finished parse_chunk process_response
        GenerateContentResponse candidates usage_metadata finish_reason parts Part FunctionCall function_call ToolCallDelta
        index arguments_delta FinishReason Stop Length ContentFilter Usage prompt_token_count candidates_token_count
        default CompletionChunk delta tool_calls is_final usage final_chunk BackendError Parsing Network CompletionStream
        Stream poll_next Item create_stream convert handler streaming
        """,
    "002": """
        Gemini.Types.Tooling Tool function_declarations google_search GoogleSearch Schema type description format enum
        properties required items OBJECT STRING NUMBER INTEGER BOOLEAN ARRAY FunctionDeclaration name parameters
        FunctionCall args FunctionResponse response Gemini.Types.Part text inline_data function_call function_response
        Gemini.Types.Blob inlineData functionCall Part.text Part.function_call Part.function_response
        Gemini.Types.Request.GenerateContentRequest tools to_json_map build_generate_request Coordinator
        Gemini.Generate.content Gemini.generate parse_content Gemini.ToolBridge get_tools_for_gemini from_snakepit_tool
        convert_params_to_schema Snakepit.Bridge.InternalToolSpec Snakepit.Bridge.ToolRegistry list_tools
        get_current_weather location unit session_id response.candidates content parts Snakepit.execute_in_session
        Content.text Content.new role history final_response.text
        """,
    "003": """
        Tool name description parameters_schema execute params ToolRegistry tools ToolDeclaration parameters
        ParameterSchema param_type properties required Property list_files path pattern read_file write_file content mode
        overwrite append contents parts text candidates function_declarations functionCall args functionResponse response
        files function Sandboxing Traversal Size Rate Audit Confirmation
        """,
    "004": """
        Chat buildSystemPromptWithTools extractToolCalls TOOL_CALL ToolCall id name arguments Provider Orchestrator history
        MCP cloudgenie_get_blueprints cloudgenie_create_resource type blueprint_id cloudgenie_get_resources
        openai.chat.completions.create model messages tools function description parameters
        response.choices[0].message.tool_calls GenerateContent response.Content model.Tools genai.Tool FunctionDeclarations
        genai.FunctionDeclaration Name Description Parameters response.Parts genai.FunctionCall /api/v1/chat 8081 prompt
        provider validTools toolName json.Unmarshal argsStr log.Printf systemPrompt responseContent toolCalls
        """,
}


def test_every_row_stands_in_its_table_and_is_numbered_in_order() -> None:
    counts = Counter(row.section for row in TABLE)
    assert [row.id for row in TABLE] == [f"{seed}-{n:02}" for seed in NAMES for n in range(1, counts[seed] + 1)]
    assert all(row.id.startswith(row.section) for row in TABLE)


def test_ids_are_unique_and_no_cell_is_empty() -> None:
    assert [row_id for row_id, count in Counter(row.id for row in TABLE).items() if count > 1] == []
    assert [row.id for row in TABLE if not all((row.theirs, row.ours, row.differs, row.state))] == []


def test_a_state_is_now_or_a_part_that_the_page_describes() -> None:
    states = {row.state for row in TABLE}
    assert states == {"now"} | {f"planned: {part}" for part in PARTS}


def test_every_row_that_says_now_has_a_check_and_no_other_row_has() -> None:
    assert {row.id for row in TABLE if row.state == "now"} == set(ROWS)


def test_nothing_planned_is_a_public_name_already() -> None:
    unquoted = {row.id: re.sub(r'"[^"]*"', "", row.ours) for row in TABLE if row.state != "now"}
    planned = {row_id: set(re.findall(r"\w+", ours)) for row_id, ours in unquoted.items()}
    assert {row_id: found for row_id, words in planned.items() if (found := words & set(callgate.__all__))} == {}


def test_the_dotted_names_of_rows_that_say_now_exist() -> None:
    dotted = {name for row in TABLE if row.state == "now" for name in re.findall(r"callgate(?:\.\w+)+", row.ours)}
    loggers = {"callgate.tools.executor"}
    for module, _, name in (name.rpartition(".") for name in dotted - loggers):
        found = importlib.import_module(module)
        if not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")


@pytest.mark.parametrize("seed", NAMES)
def test_every_name_of_the_design_occurs_in_its_table(seed: str) -> None:
    theirs = " ".join(row.theirs for row in TABLE if row.section == seed)
    missing = [name for name in NAMES[seed].split() if not re.search(rf"(?<![\w$]){re.escape(name)}(?!\w)", theirs)]
    assert missing == []


def test_a_table_is_read_whatever_stands_around_it() -> None:
    page = "## 000: A\n| id | x |\n|---|---|\n| 000-01 | `a` | `b` | c | now |\n\n## Errors\n| 1 | x |\n"
    assert rows_of(page) == [Row("000", "000-01", "`a`", "`b`", "c", "now")]


# --- what the checks share -----------------------------------------------------------------------------------------------

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolDefinition(name="get_weather", description="Says what the weather is like.", input_schema=CITY)
CLOCK = ToolDefinition(name="clock", description="Tells the time.")
WEATHER_DECLARED = {"name": "get_weather", "description": "Says what the weather is like.", "parametersJsonSchema": CITY}
CLOCK_DECLARED = {"name": "clock", "description": "Tells the time."}

CALL = FunctionCall(name="get_weather", args={"city": "Oslo"}, id="call_1", wire_id="w1")
CALL_PART = {"functionCall": {"id": "w1", "name": "get_weather", "args": {"city": "Oslo"}}, "thoughtSignature": "c2ln"}
OSLO, ROME = scripted_call("get_weather", city="Oslo"), scripted_call("get_weather", city="Rome")


def get_weather(city: str) -> dict[str, Any]:
    """Says what the weather is like."""
    return {"city": city, "degrees": len(city)}


def finished(value: Any, **more: Any) -> ToolResult:
    return ToolResult(call_id="call_1", name="get_weather", status="finished", value=value, **more)


def failed(error: str, **more: Any) -> ToolResult:
    return ToolResult(call_id="call_1", name="get_weather", error=error, **{"status": "failed", **more})


def response(*parts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **more}]}


def without_ids(calls: Any) -> list[FunctionCall]:
    """The calls without our own ids, which are random; there must be one each."""
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.id for call in calls)
    return [replace(call, id="") for call in calls]


def untimed(result: ToolResult) -> ToolResult:
    return replace(result, duration_s=0.0)


def execute(executor: Executor, call: FunctionCall) -> ToolResult:
    return untimed(asyncio.run(executor.execute(call)))


def executed(*calls: FunctionCall, tools: Any = (get_weather,), **limits: Any) -> list[ToolResult]:
    return [untimed(result) for result in asyncio.run(Executor(tools, limits=Limits(**limits)).execute_all(calls))]


def events_of(stream: AsyncIterator[Any]) -> list[Any]:
    async def gather() -> list[Any]:
        return [event async for event in stream]

    return asyncio.run(gather())


def collected(*chunks: Mapping[str, Any]) -> tuple[list[Any], ModelResponse]:
    collector = Collector()
    events = [event for chunk in chunks for event in collector.feed(chunk)]
    return events, collector.close()


def open_talk(*parts: Any) -> Conversation:
    """A conversation whose last content is the model's."""
    talk = Conversation()
    talk.add_user("Hello")
    talk.add_model({"role": "model", "parts": list(parts)})
    return talk


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


# --- 000: Amazon Q CLI ---------------------------------------------------------------------------------------------------


@row("000-01")
def a_function_becomes_the_one_kind_of_definition() -> None:
    assert definition_from(get_weather) == ToolDefinition(
        name="get_weather",
        description="Says what the weather is like.",
        input_schema={**CITY, "additionalProperties": False},
        output_schema={"type": "object", "additionalProperties": True},
    )
    assert definition_from(WEATHER) is WEATHER


@row("000-02")
@row("001-01")
def a_definition_has_a_name_a_description_and_a_schema() -> None:
    given = ToolDefinition(name="get_weather", description="Says what the weather is like.", input_schema=CITY)
    assert given == WEATHER
    assert {"name", "description", "input_schema", "read_only", "idempotent", "timeout_s"} <= {f.name for f in fields(given)}
    with pytest.raises(FrozenInstanceError):
        given.name = "other"  # type: ignore[misc]


@row("000-03")
@row("003-04")
def the_schema_is_the_json_schema_itself() -> None:
    assert WEATHER.input_schema is CITY


@row("000-04")
def arguments_are_plain_json_of_every_kind() -> None:
    args = {"object": {"a": {}}, "array": [1, []], "string": "x", "number": 1.5, "boolean": True, "null": None}
    content = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": args}}]}
    assert without_ids(function_calls(content)) == [FunctionCall(name="f", args=args)]


@row("000-05")
def any_value_becomes_json_and_nothing_fails() -> None:
    value = {"object": {"a": [1, 2.5, "x", True, None]}}
    assert json_safe(value).value == value
    assert json_safe({"set": {2, 1}, "bytes": b"x", "nan": float("nan"), "other": object()}).value == {
        "set": [1, 2],
        "bytes": {"base64": "eA=="},
        "nan": "NaN",
        "other": {"unserialisable": "builtins.object"},
    }


@row("000-06")
def the_example_schema_is_sent_where_json_schema_is_taken() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "parameter1": {"type": "string", "description": "Description of parameter1"},
            "parameter2": {"type": "number", "description": "Description of parameter2"},
        },
        "required": ["parameter1"],
    }
    ours = declare([ToolDefinition(name="q", description="Example.", input_schema=schema)]).tools
    (declared,) = ours[0]["functionDeclarations"]
    assert declared.keys() == {"name", "description", "parametersJsonSchema"}
    assert {**declared["parametersJsonSchema"], "$schema": schema["$schema"]} == schema

    contents = [{"role": "user", "parts": [{"text": "Hello"}]}]
    theirs = [{"functionDeclarations": [{"name": "q", "description": "Example.", "parameters": schema}]}]
    assert judge({"contents": contents, "tools": ours}) is None
    assert judge({"contents": contents, "tools": theirs}) is not None


@row("000-08")
@row("001-11")
@row("002-07")
@row("004-05")
def a_call_has_our_id_and_the_models_own_one() -> None:
    same = {"functionCall": {"name": "f"}}
    first, second = function_calls(response(CALL_PART)), function_calls(response(same, same))
    assert without_ids([*first, *second]) == [replace(CALL, id=""), FunctionCall(name="f"), FunctionCall(name="f")]


@row("000-09")
@row("001-38")
def a_call_is_proposed_before_anything_runs() -> None:
    odd = {"executableCode": {"language": "PYTHON", "code": "1"}}
    events, whole = collected(response(odd, CALL_PART, finishReason="STOP"))
    assert [type(event) for event in events] == [ServerStepReported, CallProposed]
    assert events[1] == CallProposed(whole.calls[0])
    assert without_ids(whole.calls) == [replace(CALL, id="")]
    assert whole.content == {"role": "model", "parts": [odd, CALL_PART]}


@row("000-11")
@row("001-13")
def a_result_knows_its_call_its_function_and_how_it_ended() -> None:
    assert execute(Executor([get_weather]), CALL) == finished({"city": "Oslo", "degrees": 4})
    assert not finished(1).is_error
    assert failed("No.").is_error


@row("000-12")
@row("001-15")
def an_object_is_sent_as_an_object() -> None:
    part = to_function_response(CALL, finished({"degrees": 22}))
    assert part == {"functionResponse": {"id": "w1", "name": "get_weather", "response": {"result": {"degrees": 22}}}}


@row("000-13")
def a_finished_call_is_no_error() -> None:
    assert finished("22").is_error is False


@row("000-14")
def there_are_five_ways_to_fail() -> None:
    ways = ("failed", "denied", "timed_out", "cancelled", "unknown")
    assert [failed("No.", status=status).is_error for status in ways] == [True] * 5


@row("000-16")
def declarations_are_wrapped_once_and_not_at_all_when_there_are_none() -> None:
    assert declare([WEATHER]).tools == [{"functionDeclarations": [WEATHER_DECLARED]}]
    assert declare([]).tools == []


@row("000-18")
@row("002-06")
def a_definition_becomes_a_declaration() -> None:
    assert declare([WEATHER]).tools[0]["functionDeclarations"][0] == WEATHER_DECLARED
    assert declare([CLOCK]).tools[0]["functionDeclarations"][0] == CLOCK_DECLARED
    undescribed = declare([ToolDefinition(name="clock")]).tools[0]["functionDeclarations"][0]
    assert undescribed == {"name": "clock", "description": "Calls clock."}


@row("000-19")
def a_name_that_gemini_refuses_gets_an_alias() -> None:
    odd = ToolDefinition(name="get weather/now", description="Says what the weather is like.")
    declared = declare([WEATHER, odd])
    assert declared.names == {"get_weather": "get_weather", "get_weather_now": "get weather/now"}
    assert judge({"contents": [{"role": "user", "parts": [{"text": "Hello"}]}], "tools": declared.tools}) is None


@row("000-20")
@row("003-17")
@row("004-20")
def all_calls_of_an_answer_are_read_in_order_with_their_ids() -> None:
    found = function_calls(response(CALL_PART, {"text": "and"}, ROME))
    assert without_ids(found) == [replace(CALL, id=""), FunctionCall(name="get_weather", args={"city": "Rome"})]


@row("000-21")
@row("001-10")
def a_call_without_arguments_has_none() -> None:
    assert without_ids(function_calls({"parts": [{"functionCall": {"id": "w2", "name": "clock"}}]})) == [
        FunctionCall(name="clock", args={}, wire_id="w2")
    ]
    assert function_calls({"parts": [{"text": "clock"}]}) == []


@row("000-22")
@row("001-18")
@row("002-09")
def what_the_model_said_goes_back_as_it_came() -> None:
    parts = [{"text": "Let me see.", "thought": True}, CALL_PART, {"newKind": {"a": 1}, "thoughtSignature": "eA=="}]
    talk = open_talk(*parts)
    assert talk.contents[-1] == {"role": "model", "parts": parts}
    assert all(kept is part for kept, part in zip(talk.contents[-1]["parts"], parts, strict=True))


@row("000-23")
@row("000-24")
@row("001-12")
@row("002-08")
def a_response_has_the_functions_name_and_an_id_only_if_the_call_had_one() -> None:
    assert to_function_response(CALL, finished("22")) == {
        "functionResponse": {"id": "w1", "name": "get_weather", "response": {"result": "22"}}
    }
    assert to_function_response(replace(CALL, wire_id=None), failed("No such city."))["functionResponse"] == {
        "name": "get_weather",
        "response": {"error": "No such city."},
    }
    long = to_function_response(CALL, finished("x" * 300), output_chars=200)["functionResponse"]["response"]
    assert re.fullmatch(r"x+\n\[... \d+ characters left out ...\]\nx+", long["result"])
    assert len(long["result"]) <= 200
    reference = to_function_response(CALL, finished({"$ref": "#/a"}))["functionResponse"]["response"]
    assert reference["result"] == '{"$ref":"#/a"}'


@row("000-25")
@row("001-17")
def responses_of_a_turn_are_one_user_content_in_call_order() -> None:
    rome = FunctionCall(name="get_weather", args={"city": "Rome"}, wire_id="w2")
    talk = open_talk(CALL_PART, call_part(rome))
    first, second = to_function_response(CALL, finished(4)), to_function_response(rome, finished(5))
    talk.add_responses([second, first])
    assert talk.contents[-1] == {"role": "user", "parts": [first, second]}
    assert validate(talk.contents, sendable=True) == []


@row("000-26")
def a_history_can_always_be_sent() -> None:
    talk = open_talk(CALL_PART)
    talk.add_user("Never mind.")
    cancelled = {"error": "The call was cancelled before it gave a result."}
    assert talk.contents == [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {"role": "model", "parts": [CALL_PART]},
        {"role": "user", "parts": [{"functionResponse": {"id": "w1", "name": "get_weather", "response": cancelled}}]},
        {"role": "user", "parts": [{"text": "Never mind."}]},
    ]
    assert judge({"contents": talk.contents, "tools": declare([WEATHER]).tools}) is None


@row("000-27")
def an_answer_without_candidates_or_content_holds_no_calls() -> None:
    assert function_calls({"promptFeedback": {"blockReason": "SAFETY"}}) == []
    assert function_calls({"candidates": [{"finishReason": "SAFETY"}]}) == []


@row("000-28")
def a_run_goes_on_until_nothing_more_is_called() -> None:
    model = ScriptedModel([OSLO, ROME, text("4 and 4 degrees.")])
    reply = run(Gate(model, tools=[get_weather]).run("Oslo, then Rome?"))
    assert (reply.text, reply.finish_reason, reply.turns) == ("4 and 4 degrees.", "STOP", 3)
    assert reply.contents == [
        {"role": "user", "parts": [{"text": "Oslo, then Rome?"}]},
        {"role": "model", "parts": [OSLO]},
        {"role": "user", "parts": [answered("Oslo")]},
        {"role": "model", "parts": [ROME]},
        {"role": "user", "parts": [answered("Rome")]},
        {"role": "model", "parts": [{"text": "4 and 4 degrees."}]},
    ]


def answered(city: str) -> dict[str, Any]:
    return {"functionResponse": {"name": "get_weather", "response": {"result": get_weather(city)}}}


# --- 001: Tachikoma ------------------------------------------------------------------------------------------------------


@row("001-02")
def the_schema_is_read_from_the_signature() -> None:
    assert definition_from(get_weather).input_schema == {**CITY, "additionalProperties": False}


@row("001-03")
@row("003-07")
@row("004-19")
def the_schema_of_a_declaration_is_json_schema() -> None:
    assert declare([WEATHER]).tools[0]["functionDeclarations"][0] == WEATHER_DECLARED


@row("001-04")
@row("002-02")
@row("004-18")
def all_functions_are_in_one_tool_in_the_order_given() -> None:
    assert declare([WEATHER, CLOCK]).tools == [{"functionDeclarations": [WEATHER_DECLARED, CLOCK_DECLARED]}]
    assert declare([CLOCK, WEATHER]).tools == [{"functionDeclarations": [CLOCK_DECLARED, WEATHER_DECLARED]}]
    assert declare([]).tools == []


def mode(name: str, **more: Any) -> dict[str, Any]:
    return {"functionCallingConfig": {"mode": name, **more}}


@row("001-05")
def a_choice_becomes_a_configuration() -> None:
    assert declare([WEATHER], tool_choice="validated").tool_config == mode("VALIDATED")
    assert declare([], tool_choice="auto").tool_config is None


@row("001-06")
def auto_is_auto() -> None:
    assert declare([WEATHER], tool_choice="auto").tool_config == mode("AUTO")


@row("001-07")
def required_is_any_for_the_first_request() -> None:
    assert declare([WEATHER], tool_choice="required").tool_config == mode("ANY")
    model = ScriptedModel([OSLO, text("4 degrees.")])
    run(Gate(model, tools=[get_weather]).run("Oslo?", tool_choice="required"))
    assert [request.tool_config for request in model.requests] == [mode("ANY"), mode("AUTO")]


@row("001-08")
def none_is_none() -> None:
    assert declare([WEATHER], tool_choice="none").tool_config == mode("NONE")


@row("001-09")
def one_tool_is_chosen_by_its_own_name() -> None:
    odd = ToolDefinition(name="get weather")
    config = declare([odd, CLOCK], tool_choice="get weather").tool_config
    assert config == mode("ANY", allowedFunctionNames=["get_weather"])
    with pytest.raises(UsageError, match="'wether'"):
        declare([odd, CLOCK], tool_choice="wether")


@row("001-14")
def text_is_sent_as_the_result() -> None:
    assert to_function_response(CALL, finished("22 degrees"))["functionResponse"]["response"] == {"result": "22 degrees"}


@row("001-16")
def an_error_is_sent_as_the_error() -> None:
    assert to_function_response(CALL, failed("No such city."))["functionResponse"]["response"] == {"error": "No such city."}


class Echo:
    """A tool that is no function."""

    definition = ToolDefinition(name="echo", description="Gives back its arguments.", input_schema=CITY)

    def problems(self, args: Mapping[str, Any]) -> list[str]:
        return ["no such city"] if args["city"] == "Atlantis" else []

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        return {**args, "session": context.session}


@row("001-19")
@row("003-01")
def anything_with_a_definition_that_runs_is_a_tool() -> None:
    assert isinstance(Echo(), Runnable)
    calls = [FunctionCall(name="echo", args={"city": city}, id="c") for city in ("Oslo", "Atlantis")]
    problem = "The arguments of 'echo' are not valid: no such city. Correct them and call again."
    assert executed(*calls, tools=[Echo()]) == [
        ToolResult(call_id="c", name="echo", status="finished", value={"city": "Oslo", "session": None}),
        ToolResult(call_id="c", name="echo", status="failed", error=problem),
    ]


@row("001-20")
@row("003-06")
def an_executor_holds_tools_in_order_and_limits() -> None:
    executor = Executor([get_weather, Echo()], limits=Limits(call_timeout_s=30.0))
    assert executor.definitions == [definition_from(get_weather), Echo.definition]
    assert executor.limits == Limits()


@row("001-21")
def an_executor_has_thirty_seconds_by_default() -> None:
    assert (Executor().definitions, Executor().limits.call_timeout_s) == ([], 30.0)


@row("001-22")
def the_deadline_of_all_tools_or_of_one_can_be_set() -> None:
    async def wait() -> None:
        """Waits for ever."""
        await asyncio.Event().wait()

    async def wait_too() -> None:
        """Waits for ever."""
        await asyncio.Event().wait()

    tools = [tool(name="usual", read_only=True)(wait), tool(name="own", read_only=True, timeout_s=0.02)(wait_too)]
    calls = [FunctionCall(name=name, id=name) for name in ("usual", "own")]
    assert executed(*calls, tools=tools, call_timeout_s=0.01) == [
        ToolResult(call_id=name, name=name, status="timed_out", error=f"The call did not finish within {seconds} s.")
        for name, seconds in (("usual", 0.01), ("own", 0.02))
    ]


@row("001-23")
def a_tool_is_registered_once() -> None:
    executor = Executor()
    executor.register(get_weather)
    assert executor.definitions == [definition_from(get_weather)]
    with pytest.raises(ToolNotDeclarableError, match="registered already"):
        executor.register(get_weather)


@row("001-24")
def definitions_come_in_the_order_of_registration() -> None:
    tools = [tool(name=name)(lambda: None) for name in ("zulu", "alpha", "mike")]
    assert [d.name for d in Executor(tools).definitions] == ["zulu", "alpha", "mike"]


@row("001-25")
def a_name_is_in_the_executor_or_not() -> None:
    executor = Executor([get_weather])
    assert ("get_weather" in executor, "clock" in executor) == (True, False)


@row("001-26")
def arguments_are_checked_and_exceptions_become_results() -> None:
    def divide(number: int) -> float:
        """Divides 10 by a number."""
        return 10 / number

    calls = [FunctionCall(name="divide", args={"number": number}, id="c") for number in ("4", "four", 0)]
    right, wrong, raising = executed(*calls, tools=[divide])
    assert right == ToolResult(call_id="c", name="divide", status="finished", value=2.5)
    assert (wrong.status, wrong.value) == ("failed", None)
    assert "'four'" in str(wrong.error) or '"four"' in str(wrong.error)
    error = "ZeroDivisionError: division by zero"
    assert raising == ToolResult(call_id="c", name="divide", status="failed", error=error)


@row("001-27")
@row("004-23")
def a_call_of_an_unknown_tool_is_answered_with_the_nearest_names() -> None:
    error = "There is no tool named 'get_wether'. Did you mean 'get_weather'?"
    unknown = FunctionCall(name="get_wether", id="c")
    assert execute(Executor([get_weather]), unknown) == ToolResult(
        call_id="c", name="get_wether", status="failed", error=error
    )


@row("001-28")
def a_call_past_its_deadline_is_stopped_or_said_to_be_running() -> None:
    stopped: list[str] = []
    began, release = threading.Event(), threading.Event()

    @tool(timeout_s=0.01, read_only=True)
    async def patient() -> None:
        """Waits for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("patient")

    @tool(timeout_s=0.01, read_only=True)
    def stubborn() -> None:
        """Cannot be stopped."""
        began.set()
        release.wait()

    try:
        late = "The call did not finish within 0.01 s."
        calls = [FunctionCall(name=name, id=name) for name in ("patient", "stubborn")]
        results = executed(*calls, tools=[patient, stubborn])
        # On a busy machine no thread may have taken it up in time.
        rest = "Its code may still be running." if began.is_set() else "It had not begun, so it had no effect."
        assert results == [
            ToolResult(call_id="patient", name="patient", status="timed_out", error=late),
            ToolResult(call_id="stubborn", name="stubborn", status="timed_out", error=f"{late} {rest}"),
        ]
        assert stopped == ["patient"]
    finally:
        release.set()


@row("001-29")
def calls_run_together_up_to_the_limit_and_are_answered_in_order() -> None:
    running: list[int] = []
    most: list[int] = []

    async def work(number: int) -> int:
        """Takes longer for smaller numbers."""
        running.append(number)
        most.append(len(running))
        for _ in range(20 - number):
            await asyncio.sleep(0)
        running.remove(number)
        return number

    calls = [FunctionCall(name="work", args={"number": number}, id=str(number)) for number in range(7)]
    results = executed(*calls, tools=[work], parallel=3)
    assert [(result.call_id, result.value) for result in results] == [(str(number), number) for number in range(7)]
    assert max(most) == 3


@row("001-30")
def the_tools_and_the_deadline_can_be_read() -> None:
    executor = Executor([get_weather])
    assert ([d.name for d in executor.definitions], executor.limits.call_timeout_s) == (["get_weather"], 30.0)


@row("001-31")
def a_tool_that_fails_is_logged_and_starts_and_ends_are_events() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]

    def broken() -> None:
        """Fails."""
        raise RuntimeError("broken pipe")

    logger = logging.getLogger("callgate.tools.executor")
    logger.addHandler(handler)
    try:
        events = events_of(Gate(ScriptedModel([scripted_call("broken"), "Sorry."]), tools=[broken]).stream("Go."))
    finally:
        logger.removeHandler(handler)
    assert [(r.name, r.levelname, r.getMessage()) for r in records] == [
        ("callgate.tools.executor", "ERROR", "tool 'broken' failed")
    ]
    assert records[0].exc_info is not None
    kinds = [type(event) for event in events if isinstance(event, (CallProposed, CallStarted, CallFinished))]
    assert kinds == [CallProposed, CallStarted, CallFinished]


CHUNKS = [response({"text": "Bünd"}), response({"text": "ig."}, finishReason="STOP")]
SSE = "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\r\n\r\n" for chunk in CHUNKS)


@row("001-32")
def a_reader_takes_bytes() -> None:
    reader = ResponseReader()
    assert reader.feed(SSE.encode()) + reader.close() == CHUNKS


@row("001-33")
def the_form_and_the_cuts_of_an_answer_do_not_matter() -> None:
    one, two = (text.removeprefix("data: ") for text in SSE.split("\r\n\r\n")[:2])
    for whole in (SSE, f"[{one},\r\n{two}]", f"{one}\n{two}\n"):
        data = whole.encode()
        reader = ResponseReader()
        found = [chunk for index in range(len(data)) for chunk in reader.feed(data[index : index + 1])]
        assert found + reader.close() == CHUNKS


USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "totalTokenCount": 15}


@row("001-34")
def a_chunk_without_candidates_still_counts() -> None:
    _, whole = collected(response({"text": "Hello"}, finishReason="STOP"), {"usageMetadata": USAGE})
    assert whole.usage == Usage(input_tokens=3, output_tokens=5, thought_tokens=7, total_tokens=15)
    with pytest.raises(ModelError, match=r"blocked \(SAFETY\)"):
        collected({"promptFeedback": {"blockReason": "SAFETY"}})


@row("001-35")
def all_chunks_make_one_answer() -> None:
    _, whole = collected(*CHUNKS, {"usageMetadata": USAGE, "modelVersion": "gemini-3.8-flash"})
    assert whole == ModelResponse(
        content={"role": "model", "parts": [{"text": "Bündig."}]},
        calls=(),
        finish_reason="STOP",
        usage=Usage(input_tokens=3, output_tokens=5, thought_tokens=7, total_tokens=15),
        model="gemini-3.8-flash",
    )


@row("001-36")
def content_and_finish_reason_need_not_be_in_every_chunk() -> None:
    rest = [{"candidates": [{"content": {}}]}, {"candidates": [{"finishReason": "STOP"}]}]
    _, whole = collected(response({"text": "Hello"}), *rest)
    assert (whole.content, whole.finish_reason) == ({"role": "model", "parts": [{"text": "Hello"}]}, "STOP")


@row("001-37")
def thoughts_are_not_the_answer() -> None:
    events, whole = collected(response(thought("Hm."), {"text": "Hello"}, finishReason="STOP"))
    assert events == [ThoughtDelta("Hm."), TextDelta("Hello")]
    assert whole.text == "Hello"


@row("001-39")
def calls_of_two_streams_have_different_ids() -> None:
    streams = [collected(response(OSLO, OSLO, finishReason="STOP")) for _ in range(2)]
    calls = [event.call for events, _ in streams for event in events]
    assert without_ids(calls) == [FunctionCall(name="get_weather", args={"city": "Oslo"})] * 4


def ended(reason: str) -> callgate.Reply:
    return run(Gate(ScriptedModel([answer("Hello", finish_reason=reason)])).run("Hello"))


@row("001-40")
def stop_is_ok() -> None:
    assert (ended("STOP").finish_reason, ended("STOP").ok) == ("STOP", True)


@row("001-41")
def running_out_of_tokens_is_not_ok() -> None:
    assert (ended("MAX_TOKENS").finish_reason, ended("MAX_TOKENS").ok) == ("MAX_TOKENS", False)


@row("001-42")
def safety_and_unknown_reasons_are_not_ok() -> None:
    found = [(reply.finish_reason, reply.ok) for reply in map(ended, ("SAFETY", "RECITATION", "SOMETHING_NEW"))]
    assert found == [("SAFETY", False), ("RECITATION", False), ("SOMETHING_NEW", False)]


@row("001-43")
def tokens_of_every_kind_are_counted() -> None:
    _, whole = collected({**response({"text": "Hello"}, finishReason="STOP"), "usageMetadata": {
        **USAGE, "cachedContentTokenCount": 2, "toolUsePromptTokenCount": 1,
    }})  # fmt: skip
    assert whole.usage == Usage(
        input_tokens=3, output_tokens=5, thought_tokens=7, total_tokens=15, cached_tokens=2, tool_tokens=1
    )


@row("001-44")
def usages_add_up_from_nothing() -> None:
    _, silent = collected(response({"text": "Hello"}, finishReason="STOP"))
    assert silent.usage == Usage()
    one = Usage(input_tokens=1, output_tokens=2)
    assert Usage() + one + one == Usage(input_tokens=2, output_tokens=4)


@row("001-45")
def each_thing_that_happens_is_an_event() -> None:
    model = ScriptedModel([answer(OSLO, usage=USAGE), answer("4.")])
    *events, last = events_of(Gate(model, tools=[get_weather]).stream("Oslo?"))
    assert isinstance(last, RunEnded)
    (record,) = last.reply.calls
    assert record.result is not None
    assert events == [
        CallProposed(record.call),
        UsageReported(Usage(input_tokens=3, output_tokens=5, thought_tokens=7, total_tokens=15)),
        CallStarted(record.call),
        CallFinished(record.call, record.result),
        TurnEnded(1, "STOP"),
        TextDelta("4."),
        UsageReported(Usage()),
        TurnEnded(2, "STOP"),
    ]


@row("001-46")
def a_stream_that_ends_without_a_reason_is_an_error_and_nothing_of_it_runs() -> None:
    with pytest.raises(ProtocolError, match="no finish reason"):
        collected(response({"text": "Hello"}))
    ran: list[str] = []
    gate = Gate(ScriptedModel([answer(OSLO, finish_reason=None)]), tools=[tool(name="get_weather")(ran.append)])
    with pytest.raises(ProtocolError):
        run(gate.run("Oslo?"))
    assert ran == []


@row("001-47")
def a_line_that_is_not_json_is_an_error() -> None:
    reader = ResponseReader()
    assert reader.feed(SSE.encode()) == CHUNKS
    with pytest.raises(ProtocolError, match="not JSON"):
        reader.feed(b"data: {oops}\n\n")


@row("001-48")
def a_broken_connection_comes_out_of_the_run() -> None:
    broken = ModelError("the connection was reset", partial="Hel", retryable=True)
    with pytest.raises(ModelError) as raised:
        run(Gate(ScriptedModel([broken])).run("Hello"))
    assert (raised.value.partial, raised.value.retryable) == ("Hel", True)


@row("001-49")
def leaving_a_stream_cancels_the_run() -> None:
    stopped: list[str] = []

    async def wait() -> None:
        """Waits for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("wait")

    async def leave_early() -> Any:
        stream = Gate(ScriptedModel([scripted_call("wait")]), tools=[wait]).stream("Go.")
        async for event in stream:
            if isinstance(event, CallStarted):
                await asyncio.sleep(0)  # the tool gets to run
                break
        await stream.aclose()  # type: ignore[attr-defined]
        return event

    assert isinstance(run(leave_early()), CallStarted)
    assert stopped == ["wait"]


@row("001-51")
def the_public_names_are_in_one_list() -> None:
    assert callgate.__all__ == sorted(callgate.__all__)
    assert {name for name in callgate.__all__ if not hasattr(callgate, name)} == set()


# --- 002: gemini_ex and snakepit -----------------------------------------------------------------------------------------


@row("002-01")
def the_words_are_frozen_data() -> None:
    words = (ToolDefinition(name="f"), FunctionCall(name="f"), finished(1), Usage(), Limits())
    for word in words:
        with pytest.raises(FrozenInstanceError):
            setattr(word, fields(word)[0].name, "other")
    assert {type(word).__module__ for word in words} == {"callgate.types"}


EVERYTHING = {
    "type": "object",
    "description": "All that the seven fields can say, and more.",
    "properties": {
        "when": {"type": "string", "format": "date"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "place": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["when"],
}


@row("000-17")
def a_schema_becomes_the_openapi_subset_with_a_report() -> None:
    number = {"type": ["integer", "null"], "exclusiveMinimum": 0, "multipleOf": 5}
    schema = {"type": "object", "properties": {"n": number}, "required": ["n"]}
    declared = declare([ToolDefinition(name="f", input_schema=schema)], schema_field="parameters")
    (function,) = declared.tools[0]["functionDeclarations"]
    wire = function["parameters"]
    assert (wire["type"], wire["required"]) == ("object", ["n"])
    assert {key: wire["properties"]["n"][key] for key in ("type", "nullable", "minimum")} == {
        "type": "integer",
        "nullable": True,
        "minimum": 1,
    }
    assert [(loss.tool, loss.keyword) for loss in declared.losses] == [("f", "multipleOf")]


@row("002-04")
def a_schema_may_say_anything_that_json_schema_can() -> None:
    definition = ToolDefinition(name="forecast", description="Looks ahead.", input_schema=EVERYTHING)
    (declared,) = declare([definition]).tools[0]["functionDeclarations"]
    assert declared == {"name": "forecast", "description": "Looks ahead.", "parametersJsonSchema": EVERYTHING}
    right = {"when": "2026-01-31", "unit": "celsius", "days": [1, 2], "place": None}
    assert tuple(check_arguments(definition, right).problems) == ()
    assert len(check_arguments(definition, {"unit": "kelvin", "days": [0]}).problems) == 3


@row("002-05")
def the_types_are_checked_before_a_tool_runs() -> None:
    right = {"object": {}, "string": "x", "number": 1.5, "integer": 2, "boolean": True, "array": []}
    properties = {name: {"type": name} for name in right}
    definition = ToolDefinition(name="f", input_schema={"type": "object", "properties": properties})
    checked = check_arguments(definition, right)
    assert (checked.args, checked.problems, checked.coercions) == (right, [], [])
    wrong = {"object": [1], "string": 1, "number": "x", "integer": 1.5, "boolean": "x", "array": {}}
    assert len(check_arguments(definition, wrong).problems) == 6


@row("002-10")
def media_are_bytes_until_they_are_sent() -> None:
    picture = Media(data=b"\x89PNG", mime_type="image/png", name="map.png")
    blob = {"inlineData": {"mimeType": "image/png", "data": "iVBORw==", "displayName": "map.png"}}
    talk = Conversation()
    talk.add_user(["Where is this?", picture])
    assert talk.contents == [{"role": "user", "parts": [{"text": "Where is this?"}, blob]}]
    (result,) = executed(FunctionCall(name="draw", id="c"), tools=[tool(name="draw")(lambda: picture)])
    assert result == ToolResult(call_id="c", name="draw", status="finished", value={"$ref": "map.png"}, media=(blob,))


@row("002-11")
def text_is_a_part() -> None:
    assert text_part("Hello") == {"text": "Hello"}


@row("002-12")
def a_call_becomes_a_part() -> None:
    assert call_part(CALL) == {"functionCall": {"id": "w1", "name": "get_weather", "args": {"city": "Oslo"}}}


@row("002-13")
def a_response_is_made_for_its_call() -> None:
    part = response_part(CALL, {"result": 4})
    assert part == {"functionResponse": {"id": "w1", "name": "get_weather", "response": {"result": 4}}}


def over_the_wire(*script: Any, **options: Any) -> tuple[Any, FakeGemini]:
    """A conversation with a fake Gemini server, as a program would hold it."""

    async def story() -> tuple[Any, FakeGemini]:
        async with FakeGemini(script) as fake:
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
            reply = await Gate(GeminiModel("gemini-3.8-flash", env=env), **options).run("Oslo?")
        return reply, fake

    return asyncio.run(story())


@row("001-50")
def an_answer_streams_from_the_server_chunk_by_chunk() -> None:
    async def story() -> list[Any]:
        async with FakeGemini([fake_text("It is cold.", chunks=3)]) as fake:
            surface = surface_from_environment({"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url})
            client = GeminiClient(surface)
            body = b'{"contents":[{"role":"user","parts":[{"text":"Oslo?"}]}]}'
            chunks = [chunk async for chunk in client.chunks("gemini-3.8-flash", body, stream=True, tools=[])]
            await client.aclose()
        return chunks

    texts = [part["text"] for chunk in asyncio.run(story()) for part in chunk["candidates"][0]["content"]["parts"]]
    assert ("".join(texts), len(texts) >= 3) == ("It is cold.", True)


@row("002-03")
def built_in_tools_stand_beside_functions() -> None:
    (declared,) = declare([WEATHER], built_in=["google_search"]).tools
    assert declared == {"functionDeclarations": [WEATHER_DECLARED], "googleSearch": {}}


@row("002-15")
def a_request_becomes_json_and_property_names_stay() -> None:
    talk = Conversation([{"role": "user", "parts": [{"text": "Oslo?"}]}])
    request = ModelRequest(conversation=talk, settings={"max_output_tokens": 5, "extra_body": {"labels": {"my_key": "x"}}})
    body = json.loads(BodyBuilder("gemini-3.8-flash", "developer").body(request))
    assert body == {"contents": talk.contents, "generationConfig": {"maxOutputTokens": 5}, "labels": {"my_key": "x"}}


@row("002-16")
@row("002-17")
@row("004-06")
def a_request_to_the_server_has_tools_system_text_and_settings() -> None:
    def get_weather(city: str) -> str:
        """Looks out of the window."""
        return f"cold in {city}"

    options = {"tools": [get_weather], "system": "Be brief.", "settings": {"seed": 1}}
    reply, fake = over_the_wire(fake_fault("W07"), fake_call("get_weather", city="Oslo"), "Cold.", **options)
    assert (reply.text, len(fake.requests), fake.refusals) == ("Cold.", 4, [])
    sent = fake.requests[-1].json
    assert sent["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert (sent["generationConfig"], sent["toolConfig"]) == ({"seed": 1}, mode("AUTO"))
    assert [d["name"] for d in sent["tools"][0]["functionDeclarations"]] == ["get_weather"]


@row("002-14")
def a_request_has_tools_contents_and_a_choice() -> None:
    talk = Conversation([{"role": "user", "parts": [{"text": "Oslo?"}]}])
    request = ModelRequest(conversation=talk, declaration=declare([WEATHER]), tool_choice="required")
    assert (request.contents, request.declaration.tools, request.tool_config) == (
        talk.contents,
        [{"functionDeclarations": [WEATHER_DECLARED]}],
        mode("ANY"),
    )


@row("002-18")
@row("002-29")
@row("004-16")
def a_step_is_one_request_and_runs_nothing() -> None:
    ran: list[str] = []
    model = ScriptedModel([CALL_PART])
    whole = run(Gate(model, tools=[tool(name="get_weather")(ran.append)]).step("Oslo?"))
    assert whole == ModelResponse(content={"role": "model", "parts": [CALL_PART]}, calls=whole.calls, finish_reason="STOP")
    assert without_ids(whole.calls) == [replace(CALL, id="")]
    assert (ran, len(model.requests), model.requests[0].tool_names) == ([], 1, ["get_weather"])


@row("002-19")
def the_tools_are_sent_with_every_request() -> None:
    model = ScriptedModel([OSLO, "4 degrees."])
    assert run(Gate(model, tools=[get_weather]).run("Oslo?")).text == "4 degrees."
    assert [request.tool_names for request in model.requests] == [["get_weather"], ["get_weather"]]


@row("002-20")
def unknown_parts_are_kept_and_thoughts_are_not_text() -> None:
    parts = [thought("Hm."), {"newKind": {"a": 1}}, {"text": "Hello"}, CALL_PART]
    events, whole = collected(response(*parts, finishReason="STOP"))
    assert events == [ThoughtDelta("Hm."), TextDelta("Hello"), CallProposed(whole.calls[0])]
    assert whole.content == {"role": "model", "parts": parts}


def get_current_weather(location: str, unit: str = "celsius"):
    """Gets the current weather for a given location."""
    return {"temperature": "22", "unit": unit, "forecast": "windy"}


@row("002-27")
def the_weather_function_is_a_tool_as_it_stands() -> None:
    assert definition_from(get_current_weather) == ToolDefinition(
        name="get_current_weather",
        description="Gets the current weather for a given location.",
        input_schema={
            "type": "object",
            "properties": {"location": {"type": "string"}, "unit": {"type": "string", "default": "celsius"}},
            "required": ["location"],
            "additionalProperties": False,
        },
    )
    call = FunctionCall(name="get_current_weather", args={"location": "Boston, MA"}, id="c")
    value = {"temperature": "22", "unit": "celsius", "forecast": "windy"}
    assert executed(call, tools=[get_current_weather]) == [
        ToolResult(call_id="c", name="get_current_weather", status="finished", value=value)
    ]


WORKER_TOOLS = """
from callgate import ToolContext, tool

SEEN = {}

@tool
def get_current_weather(location: str, context: ToolContext, unit: str = "celsius") -> dict:
    "Gets the current weather for a given location."
    SEEN.setdefault(context.session, []).append(location)
    return {"seen": SEEN[context.session], "unit": unit}

@tool
def hang() -> None:
    "Never returns."
    while True:
        pass
"""


@row("002-21")
@row("002-22")
@row("002-26")
@row("002-30")
def tools_of_workers_are_listed_and_run_in_a_session_and_killed_at_their_deadline() -> None:
    async def story(path: Path) -> list[Any]:
        async with WorkerPool(modules=[path], size=2, affinity="strict") as pool:
            names = [d.name for d in await pool.list_tools("s")]
            results = [await pool.execute("s", "get_current_weather", {"location": place}) for place in ("Oslo", "Rome")]
            late = await pool.execute("s", "hang", {}, timeout_s=0.2)
            return [names, *(result.value for result in results), late.status]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "my_tools.py")
        path.write_text(WORKER_TOOLS)
        assert run(story(path)) == [
            ["get_current_weather", "hang"],
            {"seen": ["Oslo"], "unit": "celsius"},
            {"seen": ["Oslo", "Rome"], "unit": "celsius"},
            "timed_out",
        ]


@row("002-28")
@row("004-08")
def a_session_names_the_conversation() -> None:
    model = ScriptedModel(["Hello.", "You said hello."])
    gate = Gate(model)

    async def talk() -> list[str]:
        first = await gate.run("Hello", session="user_123")
        second = await gate.run("What did I say?", session=first.session)
        return [first.session, second.session]

    assert run(talk()) == ["user_123", "user_123"]
    assert model.requests[1].contents == [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {"role": "model", "parts": [{"text": "Hello."}]},
        {"role": "user", "parts": [{"text": "What did I say?"}]},
    ]


@row("002-31")
def what_the_user_says_is_a_content() -> None:
    talk = Conversation()
    talk.add_user("Hello")
    assert talk.contents == [{"role": "user", "parts": [{"text": "Hello"}]}]


@row("002-32")
def a_history_from_elsewhere_is_repaired() -> None:
    unanswered = [
        {"role": "user", "parts": [{"text": "Oslo?"}]},
        {"role": "assistant", "parts": [CALL_PART]},
        {"role": "user", "parts": [{"text": "Well?"}]},
    ]
    talk = Conversation(unanswered)
    made_up = {"functionResponse": {"id": "w1", "name": "get_weather", "response": {"error": INTERRUPTED}}}
    assert talk.contents == [
        unanswered[0],
        {"role": "model", "parts": [CALL_PART]},
        {"role": "user", "parts": [made_up]},
        unanswered[2],
    ]


@row("002-33")
def a_run_can_begin_from_a_history_and_call_again() -> None:
    history = [
        {"role": "user", "parts": [{"text": "Oslo and Rome?"}]},
        {"role": "model", "parts": [OSLO]},
        {"role": "user", "parts": [answered("Oslo")]},
    ]
    model = ScriptedModel([ROME, "Both 4."])
    reply = run(Gate(model, tools=[get_weather]).run(history=history))
    assert reply.contents == [
        *history,
        {"role": "model", "parts": [ROME]},
        {"role": "user", "parts": [answered("Rome")]},
        {"role": "model", "parts": [{"text": "Both 4."}]},
    ]
    assert [request.tool_names for request in model.requests] == [["get_weather"]] * 2


@row("002-34")
@row("004-17")
def the_text_of_an_answer_has_no_thoughts() -> None:
    script = [[thought("Let me see."), text("22°C and windy.")]]
    assert run(Gate(ScriptedModel(script)).run("Boston?")).text == "22°C and windy."
    assert run(Gate(ScriptedModel(script)).step("Boston?")).text == "22°C and windy."


# --- 003: gemini-repl ----------------------------------------------------------------------------------------------------


@row("003-02")
def a_name_is_data() -> None:
    assert definition_from(get_weather).name == "get_weather"


@row("003-03")
def a_description_is_data() -> None:
    assert definition_from(get_weather).description == "Says what the weather is like."


@row("003-05")
def a_tool_gives_any_json_value_and_an_error_is_a_result() -> None:
    def files(pattern: str) -> list[str]:
        """Lists files."""
        if pattern != "*.rs":
            raise ToolError(f"Nothing matches {pattern!r}.")
        return ["src/main.rs", "src/lib.rs"]

    calls = [FunctionCall(name="files", args={"pattern": pattern}, id="c") for pattern in ("*.rs", "*.py")]
    assert executed(*calls, tools=[files]) == [
        ToolResult(call_id="c", name="files", status="finished", value=["src/main.rs", "src/lib.rs"]),
        ToolResult(call_id="c", name="files", status="failed", error="Nothing matches '*.py'."),
    ]


@row("003-08")
@row("003-09")
def parameters_have_types_properties_and_what_is_required() -> None:
    def search(pattern: str, places: list[str], options: dict[str, int] | None = None) -> None:
        """Searches."""

    assert definition_from(search).input_schema == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "places": {"type": "array", "items": {"type": "string"}},
            "options": {
                "anyOf": [{"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["pattern", "places"],
        "additionalProperties": False,
    }
    assert definition_from(tool(name="nothing")(lambda: None)).input_schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


@row("003-16")
def a_request_with_our_tools_is_taken() -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "List all"}]}], "tools": declare([WEATHER, CLOCK]).tools}
    assert body["tools"] == [{"functionDeclarations": [WEATHER_DECLARED, CLOCK_DECLARED]}]
    assert judge(body) is None


@row("003-18")
def a_list_is_wrapped_and_a_value_with_the_key_error_is_no_error() -> None:
    listed = to_function_response(CALL, finished({"files": ["src/main.rs"]}))
    assert listed["functionResponse"]["response"] == {"result": {"files": ["src/main.rs"]}}
    odd = to_function_response(CALL, finished({"error": "the last line of a log"}))
    assert odd["functionResponse"]["response"] == {"result": {"error": "the last line of a log"}}


@row("003-19")
def the_role_function_is_read_and_user_is_written() -> None:
    asked = {"role": "user", "parts": [{"text": "Oslo?"}]}
    history = [asked, {"role": "model", "parts": [OSLO]}, {"role": "function", "parts": [answered("Oslo")]}]
    assert Conversation(history).contents == [*history[:2], {"role": "user", "parts": [answered("Oslo")]}]
    body = {"contents": history, "tools": declare([WEATHER]).tools}
    assert judge(body, model="gemini-3.8-flash") is not None


@row("003-22")
def what_a_model_is_shown_is_limited() -> None:
    model = ScriptedModel([scripted_call("read"), "Long."])
    run(Gate(model, tools=[tool(name="read")(lambda: "x" * 300)], limits=Limits(output_chars=200)).run("Read it."))
    (part,) = model.requests[1].contents[-1]["parts"]
    shown = part["functionResponse"]["response"]
    assert re.fullmatch(r"x+\n\[... \d+ characters left out ...\]\nx+", shown["result"])
    assert len(shown["result"]) <= 200
    assert "300 characters" in shown["notes"][0]


@row("003-24")
def every_call_is_in_a_log_that_shows_when_it_was_changed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        run(Gate(ScriptedModel([OSLO, "Sun."]), [get_weather], audit=path).run("Weather?"))
        assert [record["kind"] for record in records_of(path)] == ["start", "end"]
        assert verify(path).problems == ()
        path.write_bytes(path.read_bytes().replace(b"Oslo", b"Rome"))
        assert verify(path).problems != ()


@row("003-23")
def tools_of_a_kind_are_called_only_so_often() -> None:
    with sandbox("a.txt") as (files, _):
        rate = RateLimits().kinds["file"]
        assert (rate.per_s, rate.burst) == (50, 100)
        assert [definition.kind for definition in Gate(ScriptedModel(["Hi."]), [files]).definitions] == ["file"] * 6


@row("003-10")
@row("003-11")
def files_are_listed_by_name_at_any_depth() -> None:
    with sandbox("a.rs", "src/b.rs", "c.txt") as (files, _):
        assert files.call_sync("list_files", {"pattern": "*.rs"}).value == ["a.rs", "src/b.rs"]
        assert files.call_sync("list_files", {"path": "src"}).value == ["src/b.rs"]


@row("003-12")
@row("003-13")
def a_text_file_is_read_and_a_binary_one_refused() -> None:
    with sandbox("a.txt") as (files, root):
        assert files.call_sync("read_file", {"path": "a.txt"}).value == "a.txt\n"
        (root / "b").write_bytes(b"\0")
        assert "binary" in (files.call_sync("read_file", {"path": "b"}).error or "")
        (root / "c").write_bytes(b"x" * ((1 << 20) + 1))
        assert len(files.call_sync("read_file", {"path": "c"}).value) == 1 << 20


@row("003-14")
@row("003-15")
def a_file_is_written_or_appended_to_and_that_can_be_undone() -> None:
    with sandbox("a.txt") as (files, root):
        assert not files.call_sync("write_file", {"path": "a.txt", "content": "x"}).is_error
        assert not files.call_sync("write_file", {"path": "a.txt", "content": "y", "mode": "append"}).is_error
        assert (root / "a.txt").read_text() == "xy"
        files.undo()
        assert (root / "a.txt").read_text() == "x"


@row("003-20")
@row("003-21")
def nothing_leads_out_of_the_root() -> None:
    with sandbox("a.txt") as (files, root):
        outside = root.parent / "outside"
        outside.mkdir()
        (outside / "x").write_text("outside\n")
        (root / "link").symlink_to(outside)
        for path in ("../outside/x", str(outside / "x"), "~/x", "a\0", "link/x"):
            for name, args in (("read_file", {}), ("write_file", {"content": "x"})):
                assert files.call_sync(name, {"path": path, **args}).is_error
        assert (outside / "x").read_text() == "outside\n"


@row("003-29")
def the_speed_of_file_tools_is_measured() -> None:
    assert "FileTools" in (PAGE.parent.parent / "benchmarks" / "files.py").read_text("utf-8")


@contextlib.contextmanager
def sandbox(*paths: str) -> Iterator[tuple[FileTools, Path]]:
    """File tools in a folder with these files, each of which holds its own path."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        for path in paths:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{path}\n")
        with FileTools(root, state_dir=Path(folder) / "state") as files:
            yield files, root


@row("004-01")
def calls_in_text_run_as_native_ones_do() -> None:
    said = 'TOOL_CALL: get_weather({"city": "Oslo"})'
    reply = run(Gate(ScriptedModel([said, "Sun."]), [get_weather], mode="prompted").run("Weather?"))
    assert ([record.state for record in reply.calls], reply.text) == (["finished"], "Sun.")


@row("004-02")
def the_prompt_lists_tools_with_their_whole_schemas() -> None:
    told = render_tools([definition_from(get_weather)])
    assert "get_weather" in told
    assert "city" in told


@row("004-03")
@row("004-04")
def calls_are_read_from_text_whole_and_as_it_arrives() -> None:
    said = 'Let me see.\nTOOL_CALL: get_weather({"city": "Oslo"})'
    parsed = parse_text(said, tools=["get_weather"])
    assert ([(call.name, call.args) for call in parsed.calls], parsed.text) == (
        [("get_weather", {"city": "Oslo"})],
        "Let me see.",
    )
    parser = CallParser(tools=["get_weather"])
    events = [event for letter in said for event in parser.feed(letter)] + parser.close()
    assert [event.name for event in events if hasattr(event, "name")] == ["get_weather"]


@row("003-25")
def a_call_that_is_not_confirmed_does_not_run() -> None:
    written: list[str] = []

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        return "yes" if call.args["path"] == "a.txt" else "no"

    def write(path: str) -> None:
        """Writes a file."""
        written.append(path)

    script = [[scripted_call("write", path="a.txt"), scripted_call("write", path="b.txt")], text("Done.")]
    gate = Gate(ScriptedModel(script), tools=[write], policy=Policy(default="ask"), approve=approve)
    reply = run(gate.run("Write both."))
    assert ([record.state for record in reply.calls], written) == (["finished", "denied"], ["a.txt"])

    writer = ToolDefinition(name="write_file", kind="file")
    verdicts = [Policy().decide(d, CALL).verdict for d in (writer, replace(writer, read_only=True))]
    assert verdicts == ["ask", "allow"]


@row("003-26")
def a_fake_server_answers_and_refuses_like_google() -> None:
    def post(base_url: str, body: dict[str, Any]) -> dict[str, Any]:
        address = f"{base_url}/v1beta/models/gemini-3.8-flash:generateContent"
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=180) as reply:
            return json.load(reply)

    asked = {"contents": [{"role": "user", "parts": [{"text": "Oslo?"}]}], "tools": declare([WEATHER]).tools}
    with FakeGemini.in_thread([OSLO]) as fake:
        (found,) = function_calls(post(fake.base_url, asked))
        assert (found.name, found.args) == ("get_weather", {"city": "Oslo"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(fake.base_url, {"contents": [{"role": "system", "parts": [{"text": "Oslo?"}]}]})
        assert refused.value.code == 400
        refused.value.close()
        assert len(fake.refusals) == 1


@row("003-27")
def a_whole_conversation_runs_on_a_script() -> None:
    model = ScriptedModel([scripted_call("get_weather", city="Oslo"), text("4 degrees.")])
    reply = run(Gate(model, tools=[get_weather]).run("Oslo?"))
    (record,) = reply.calls
    assert record.result is not None
    assert untimed(record.result) == replace(finished(get_weather("Oslo")), call_id=record.call.id)
    assert reply.text == "4 degrees."


@row("003-28")
def the_model_sees_a_sentence_and_no_paths() -> None:
    def read(path: str) -> str:
        """Reads a file."""
        if path == "a.txt":
            raise ToolError("There is no file 'a.txt'.")
        raise OSError(f"cannot open /srv/private/{path}")

    calls = [FunctionCall(name="read", args={"path": path}, id="c") for path in ("a.txt", "b.txt")]
    assert executed(*calls, tools=[read]) == [
        ToolResult(call_id="c", name="read", status="failed", error="There is no file 'a.txt'."),
        ToolResult(call_id="c", name="read", status="failed", error="OSError: cannot open b.txt"),
    ]


# --- 004: CloudGenie -----------------------------------------------------------------------------------------------------


@row("004-07")
def the_answer_comes_after_the_results() -> None:
    made: list[str] = []

    @tool(sequential=True)
    def cloudgenie_get_blueprints() -> list[str]:
        """Retrieves all available blueprints."""
        return ["postgresql-blueprint"]

    @tool(sequential=True)
    def cloudgenie_create_resource(name: str, type: str, blueprint_id: str) -> str:
        """Creates a new resource."""
        made.append(name)
        return f"{name} is a {type} of {blueprint_id}"

    wanted = {"name": "prod-db", "type": "database", "blueprint_id": "postgresql-blueprint"}
    create = {"functionCall": {"name": "cloudgenie_create_resource", "args": wanted}}
    model = ScriptedModel([[text("Now."), scripted_call("cloudgenie_get_blueprints"), create], text("It is there.")])
    reply = run(Gate(model, tools=[cloudgenie_get_blueprints, cloudgenie_create_resource]).run("Create a database"))
    assert (reply.text, made) == ("It is there.", ["prod-db"])
    assert [part["functionResponse"] for part in model.requests[1].contents[-1]["parts"]] == [
        {"name": "cloudgenie_get_blueprints", "response": {"result": ["postgresql-blueprint"]}},
        {
            "name": "cloudgenie_create_resource",
            "response": {"result": "prod-db is a database of postgresql-blueprint"},
        },
    ]


@row("004-24")
def arguments_that_do_not_parse_are_a_problem_and_not_empty_arguments() -> None:
    content = {"role": "model", "parts": [{"functionCall": {"name": "clock", "args": '{"zone": '}}]}
    (call,) = function_calls(content)
    assert call.problem is not None
    assert call.problem.startswith("The arguments are not valid JSON")
    ran: list[str] = []
    (result,) = executed(call, tools=[tool(name="clock")(lambda: ran.append("clock"))])
    assert result == ToolResult(call_id=call.id, name="clock", status="failed", error=call.problem)
    assert ran == []


@row("004-25")
@row("004-26")
def the_whole_prompt_and_the_raw_answer_are_logged_without_secrets() -> None:
    key = "AIzaSyA-0123456789-0123456789-abcdefghi"
    handler = log_handler()
    assert isinstance(handler, logging.StreamHandler)
    shown = io.StringIO()
    handler.setStream(shown)
    logger = logging.getLogger("callgate")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        model = PromptedModel(ScriptedModel(['TOOL_CALL: get_weather({"city": "Oslo"})', f"4 degrees, and {key}."]))
        events_of(Gate(model, tools=[get_weather]).stream(f"Oslo? My key is {key}."))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    logged = shown.getvalue()
    assert render_tools([definition_from(get_weather)]).splitlines()[0] in logged
    assert "the answer as it came" in logged
    assert "TOOL_CALL" in logged
    assert "degrees, and" in logged
    assert "AIzaSyA" not in logged


@row("004-27")
@row("004-28")
def calls_and_results_are_events() -> None:
    gate = Gate(ScriptedModel([[OSLO, ROME], text("Both 4.")]), tools=[get_weather])
    events = events_of(gate.stream("Oslo and Rome?"))
    records = events[-1].reply.calls
    assert [event for event in events if isinstance(event, CallProposed)] == [CallProposed(r.call) for r in records]
    results = sorted((e for e in events if isinstance(e, CallFinished)), key=lambda event: event.call.args["city"])
    assert results == [CallFinished(r.call, r.result) for r in records]
    assert [r.result.value for r in records] == [get_weather("Oslo"), get_weather("Rome")]


# --- shapes of other systems ---------------------------------------------------------------------------------------------


@row("000-07")
def a_tool_of_amazon_q_is_declared_and_comes_back() -> None:
    spec = {"ToolSpecification": {"name": WEATHER.name, "description": WEATHER.description, "input_schema": {"json": CITY}}}
    there = convert(spec, source="amazon_q", target="gemini", kind="tool")
    assert (there.value, there.losses) == (WEATHER_DECLARED, [])
    back = convert(there.value, source="gemini", target="amazon_q", kind="tool")
    inner = {"name": WEATHER.name, "description": WEATHER.description, "inputSchema": {"json": CITY}}
    assert (back.value, back.losses) == ({"toolSpecification": inner}, [])


@row("000-10")
def a_tool_use_of_amazon_q_keeps_its_id() -> None:
    use = {"tool_use_id": "w1", "name": "get_weather", "input": {"city": "Oslo"}}
    there = convert(use, source="amazon_q", target="gemini", kind="call")
    assert there.value == {"functionCall": CALL_PART["functionCall"]}
    back = convert(CALL_PART, source="gemini", target="amazon_q", kind="call")
    assert back.value == {"toolUseId": "w1", "name": "get_weather", "input": {"city": "Oslo"}}
    assert [loss.keyword for loss in back.losses] == ["signature"]


@row("000-15")
def a_tool_result_of_amazon_q_is_no_text_inside_text() -> None:
    result = {"tool_use_id": "w1", "content": [{"json": {"degrees": 4}}], "status": "success"}
    there = convert(result, source="amazon_q", target="gemini", kind="result")
    assert there.value["functionResponse"]["response"] == {"result": {"degrees": 4}}
    assert [loss.keyword for loss in there.losses] == ["name"]
    part = to_function_response(CALL, failed("No."))
    back = convert(part, source="gemini", target="amazon_q", kind="result")
    assert back.value == {"toolUseId": "w1", "content": [{"text": "No."}], "status": "error"}


SNAKEPIT = {
    "name": "get_weather",
    "description": "Says what the weather is like.",
    "parameters": [{"name": "city", "type": "str", "description": "", "required": True}],
}


@row("002-23")
@row("002-25")
def a_tool_of_a_worker_is_one_declaration_with_types_of_json() -> None:
    converted = convert(SNAKEPIT, source="snakepit", target="gemini", kind="tool")
    assert (converted.value, converted.losses) == (WEATHER_DECLARED, [])
    assert convert([SNAKEPIT], source="snakepit", target="gemini").value == [{"functionDeclarations": [WEATHER_DECLARED]}]


@row("002-24")
def parameters_of_a_worker_keep_items_enums_and_defaults() -> None:
    parameters = [
        {"name": "days", "type": "list[int]", "required": False},
        {"name": "unit", "type": "str", "validation_json": '{"default": "celsius", "enum": ["celsius", "kelvin"]}'},
    ]
    assert definition_from({**SNAKEPIT, "parameters": parameters}, "snakepit").input_schema["properties"] == {
        "days": {"type": "array", "items": {"type": "integer"}},
        "unit": {"type": "string", "default": "celsius", "enum": ["celsius", "kelvin"]},
    }


@row("004-13")
def a_model_behind_chat_completions_calls_a_tool() -> None:
    @tool
    def get_weather(city: str) -> str:
        """Looks out of the window."""
        return f"cold in {city}"

    async def story() -> None:
        async with FakeOpenAI([fake_call("get_weather", city="Oslo"), "Cold."]) as fake:
            model = OpenAIModel("gpt-5.2", base_url=fake.base_url, env={})
            reply = await Gate(model, tools=[get_weather]).run("Oslo?")
            assert (reply.text, reply.calls[0].result.value, fake.refusals) == ("Cold.", "cold in Oslo", [])
            assert fake.requests[0].json["tools"][0]["function"]["name"] == "get_weather"
            await model.aclose()

    asyncio.run(story())


@row("004-14")
def a_tool_of_openai_is_declared() -> None:
    function = {"name": WEATHER.name, "description": WEATHER.description, "parameters": CITY}
    spec = {"type": "function", "function": function}
    assert convert(spec, source="openai", target="gemini", kind="tool").value == WEATHER_DECLARED
    assert convert(WEATHER_DECLARED, source="gemini", target="openai").value == spec


@row("004-15")
def tool_calls_of_openai_are_calls_and_bad_arguments_stay() -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        for n, arguments in enumerate(['{"city": "Oslo"}', '{"city": '])
    ]
    converted = convert(calls, source="openai", target="gemini", kind="call")
    assert converted.value == [
        {"functionCall": {"id": "c0", "name": "get_weather", "args": {"city": "Oslo"}}},
        {"functionCall": {"id": "c1", "name": "get_weather", "args": {"unreadable": '{"city": '}}},
    ]
    assert [(loss.pointer, loss.keyword) for loss in converted.losses] == [("/1", "arguments")]


def cloudgenie() -> McpServer:
    """A server with three of its tools; each gives back its arguments."""
    names = ("cloudgenie_get_blueprints", "cloudgenie_create_resource", "cloudgenie_get_resources")
    tools = [{"name": name, "inputSchema": {"type": "object"}, "_meta": {"does": "echo"}} for name in names]
    script = Path(__file__).with_name("mcp") / "scripted_server.py"
    command = [sys.executable, "-I", str(script), json.dumps({"tools": [], "more": tools})]
    return McpServer("cloudgenie", command=command, start_s=120)


@row("004-09")
def tools_of_a_server_ask_before_they_run() -> None:
    model = ScriptedModel([scripted_call("cloudgenie_get_resources"), "."])
    reply = asyncio.run(Gate(model, [cloudgenie()]).run("Go."))
    assert [(record.state, record.decision.verdict) for record in reply.calls if record.decision] == [("denied", "deny")]


@row("004-10")
@row("004-11")
@row("004-12")
def tools_of_a_server_are_listed_by_it_and_called() -> None:
    args = {"name": "db", "type": "sql", "blueprint_id": "b1"}
    model = ScriptedModel([
        [scripted_call("cloudgenie_get_blueprints"), call_part(FunctionCall(name="cloudgenie_create_resource", args=args))],
        scripted_call("cloudgenie_get_resources"),
        "Done.",
    ])  # fmt: skip
    reply = asyncio.run(Gate(model, [cloudgenie()], policy=Policy(default="allow")).run("Go."))
    assert [json.loads(record.result.value) for record in reply.calls if record.result] == [{}, args, {}]


EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "cloudgenie"


@row("004-29")
def the_documented_conversations_call_the_documented_tools() -> None:
    for mode in ("native", "prompted"):
        command = [sys.executable, EXAMPLE / "talk.py", "--mode", mode]
        said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        assert re.findall(r"^  (\w+): finished$", said, re.MULTILINE) == [
            "cloudgenie_get_blueprints",
            "cloudgenie_get_blueprints",
            "cloudgenie_create_resource",
            "cloudgenie_get_resources",
        ]


@row("004-30")
def the_documented_tools_are_served() -> None:
    serve = [sys.executable, "-m", "callgate", "mcp", "serve", "-T", str(EXAMPLE / "catalogue.py")]

    async def story() -> list[str]:
        server = McpServer("cloudgenie", command=serve, start_s=120)
        await server.start(story)
        try:
            return [item.definition.name for item in server.runnables()]
        finally:
            await server.aclose(story)

    names = asyncio.run(story())
    assert (len(names), {name.partition("_")[0] for name in names}) == (8, {"cloudgenie"})


@row("004-21")
@row("004-22")
def the_service_answers_on_the_port_and_to_the_body_of_the_document() -> None:
    from callgate.cli.serve import PORT
    from callgate.server import Service, create_app
    from callgate.server.chat import CHAT

    assert PORT == 8081
    assert {"prompt", "provider", "session"} <= set(CHAT["properties"])
    app = create_app(Service(Gate(ScriptedModel(["Here they are."], name="scripted"), [])))
    sent: list[dict[str, Any]] = []
    body = b'{"prompt": "Show me all blueprints"}'
    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/chat", "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"localhost:8081"), (b"content-type", b"application/json")],
    }  # fmt: skip

    async def ask() -> None:
        pieces = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return pieces.pop() if pieces else await asyncio.Event().wait()  # type: ignore[return-value]

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await app(scope, receive, send)  # type: ignore[arg-type]

    asyncio.run(ask())
    assert sent[0]["status"] == 200
    assert json.loads(sent[1]["body"])["response"] == "Here they are."


# --- and all of them are run ---------------------------------------------------------------------------------------------


SLOW_ROWS = {"004-29"}
"""Rows that start a program and a server twice."""


@pytest.mark.parametrize(
    "row_id", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_ROWS else []) for name in sorted(ROWS)]
)
def test_row(row_id: str) -> None:
    ROWS[row_id]()
