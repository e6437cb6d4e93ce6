"""Our tools in the agents of other frameworks, with the real packages: what a gate checks and asks is checked and asked."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from agents import Agent as AgentOfSdk
from agents import Model, RunConfig, Runner, Usage
from agents import ModelResponse as AnswerOfSdk
from agents.tool_context import ToolContext as AgentsContext
from google import genai
from google.genai import types
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

from callgate import (
    FileTools,
    FunctionCall,
    Limits,
    Media,
    Policy,
    ToolDefinition,
    ToolError,
    UsageError,
    tool,
)
from callgate.adapters import GatedTools, to_google_genai, to_langchain, to_openai_agents, to_pydantic_ai
from callgate.permission.audit import records_of
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_gemini import call as fake_call
from callgate.testing.fake_gemini import text as fake_text


@tool(read_only=True)
def temperature(city: str, unit: Literal["C", "F"] = "C", config: int = 0) -> dict[str, Any]:
    """Tells the temperature.

    Args:
        city: Where.
    """
    if city == "Atlantis":
        raise ToolError("There is no such city.")
    return {"city": city, "unit": unit, "config": config}


def delete(name: str) -> str:
    """Deletes."""
    return f"{name} is gone"


def picture() -> Media:
    """Draws."""
    return Media(data=b"\x89PNG", mime_type="image/png")


async def approve(call: FunctionCall, definition: Any, reason: str) -> Any:
    return {"old": "yes", "new": "no", "late": "later"}[call.args["name"]]


PYDANTIC_CONTEXT = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage(), tool_call_id="c")
OPTIONS: dict[str, Any] = {"policy": Policy(rules=["ask delete"]), "approve": approve}


# By themselves -----------------------------------------------------------------------------------------------------------


def test_gated_tools_check_decide_ask_and_write_down(tmp_path: Path):
    async def story() -> list[tuple[str, Any]]:
        async with GatedTools([temperature, delete], audit=tmp_path / "audit.jsonl", **OPTIONS) as gated:
            calls = [
                ("temperature", {"city": "Oslo", "config": "7"}),
                ("temperature", {"city": 5, "days": 1}),
                ("delete", {"name": "old"}),
                ("delete", {"name": "new"}),
                ("delete", {"name": "late"}),
            ]
            results = [await gated.call(name, args) for name, args in calls]
        return [(result.status, result.value or result.error) for result in results]

    got = asyncio.run(story())
    assert [state for state, _ in got] == ["finished", "failed", "finished", "denied", "denied"]
    assert got[0][1] == {"city": "Oslo", "unit": "C", "config": 7}
    assert got[2][1] == "old is gone"
    assert "put off" in got[4][1]  # There is no run that could be paused.
    assert len(list(records_of(tmp_path / "audit.jsonl"))) >= 5


def test_without_anybody_to_ask_what_must_be_asked_is_refused():
    with GatedTools([delete], policy=Policy(rules=["ask delete"])) as gated:
        result = gated.call_sync("delete", {"name": "old"})
    assert result.status == "denied"
    assert "pass approve= to GatedTools" in (result.error or "")


def test_what_the_policy_always_refuses_is_not_offered():
    gated = GatedTools([temperature, delete], policy=Policy(rules=["deny delete"]))
    assert [definition.name for definition in gated.definitions] == ["temperature"]


def test_no_framework_is_imported_before_one_of_its_objects_is_there():
    program = (
        "import sys, callgate.adapters\nfrom callgate import Executor\n"
        "def add(a: int) -> int: return a\n"
        "callgate.adapters.GatedTools([add])\n"
        "print(sorted({'agents', 'google.genai', 'langchain_core', 'mcp', 'pydantic_ai'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_options_go_where_the_tools_are_gated():
    with pytest.raises(UsageError, match="'policy' belongs to GatedTools"):
        to_langchain(GatedTools([delete]), policy=Policy())


@pytest.mark.parametrize(("name", "args"), [(None, {}), (5, {}), ("delete", None), ("delete", []), ("delete", "x")])
def test_a_call_of_a_program_that_is_none_is_an_error_of_the_program(name: Any, args: Any):
    with pytest.raises(UsageError, match="expected"):
        asyncio.run(GatedTools([delete]).call(name, args))


def test_tools_that_must_be_started_are_there_once_it_was_entered_in_sync_code_too():
    shelf: FunctionToolset[None] = FunctionToolset()
    shelf.add_function(delete)
    gated = GatedTools([shelf], **OPTIONS)
    assert gated.definitions == []
    with gated:
        (langchain,) = to_langchain(gated)
        assert langchain.invoke(message("delete", name="old")).content == "old is gone"
        assert langchain.invoke(message("delete", name="new")).status == "error"
    assert gated.call_sync("delete", {"name": "old"}).value == "old is gone"  # Started for one call, and left again.
    gated.close()


def test_a_cancelled_caller_stops_the_tool():
    ended: list[str] = []

    async def slow() -> None:
        """Is slow."""
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("stopped")

    begun = asyncio.Event()

    async def story() -> None:
        gated = GatedTools([slow])
        task = asyncio.create_task(gated.call("slow", {}))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(story(), 300))
    assert ended == ["stopped"]


def test_pictures_go_out_as_pictures():
    (langchain,) = to_langchain([picture])
    content = asyncio.run(langchain.ainvoke(message("picture"))).content
    assert [block["type"] for block in content] == ["text", "image"]
    (agents,) = to_openai_agents([picture])
    context = AgentsContext(context=None, tool_name="picture", tool_call_id="1", tool_arguments="{}")
    shown = asyncio.run(agents.on_invoke_tool(context, "{}"))
    assert shown[1].image_url.startswith("data:image/png;base64,")


class Mail:
    """A tool with an argument that is a word of Python."""

    definition = ToolDefinition(
        name="mail",
        description="Sends.",
        input_schema={"type": "object", "properties": {"to": {}, "from": {"type": "string"}}, "required": ["from"]},
    )

    def problems(self, args: Any) -> tuple[str, ...]:
        return ()

    async def run(self, args: Any, context: Any) -> Any:
        return dict(args)


def with_schema(schema: dict[str, Any]) -> Mail:
    odd = Mail()
    odd.definition = replace(Mail.definition, input_schema={"type": "object", **schema})
    return odd


@pytest.mark.parametrize("name", ["from", "self", "a-b", "$id", "2nd", ""])
def test_an_argument_of_any_name_reaches_the_tool_from_google_genai(name: str):
    schema = {"properties": {name: {"type": "string"}}, "required": [name]}
    script = [fake_call("mail", **{name: "Ada"}), fake_text("Sent.")]
    with FakeGemini.in_thread(script) as fake, GatedTools([with_schema(schema)], policy=Policy(default="allow")) as gated:
        client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=fake.base_url))
        config = types.GenerateContentConfig(tools=[*to_google_genai(gated)])
        client.models.generate_content(model="gemini-3.8-flash", contents="Go.", config=config)
        client.close()
        declared = fake.requests[0].json["tools"][0]["functionDeclarations"][0]["parameters_json_schema"]
        said = fake.requests[1].json["contents"][-1]["parts"][0]["functionResponse"]["response"]
    assert (declared["required"], said) == ([name], {"result": {name: "Ada"}})


def test_types_that_share_others_a_million_times_are_declared_to_google_genai_in_short():
    shared = {
        f"n{i}": {"type": "object", "properties": {key: {"$ref": f"#/$defs/n{i + 1}"} for key in "ab"}} for i in range(40)
    }
    schema = {"properties": {"x": {"$ref": "#/$defs/n0"}}, "$defs": shared | {"n40": {"type": "string"}}}
    (function,) = to_google_genai([with_schema(schema)])
    declared = types.FunctionDeclaration.from_callable_with_api_option(callable=function, use_json_schema=True)
    sent = json.dumps(declared.parameters_json_schema)
    assert declared.parameters_json_schema["properties"]["x"]["properties"]["a"]["properties"]["b"]["type"] == "object"
    assert "$ref" not in sent
    assert len(sent) < 100_000


# LangChain ---------------------------------------------------------------------------------------------------------------


def message(name: str, /, **args: Any) -> Any:
    return {"type": "tool_call", "name": name, "args": args, "id": "1"}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_our_tools_are_langchain_tools(is_async: bool):
    gated = GatedTools([temperature, delete], **OPTIONS)
    tools = {tool.name: tool for tool in to_langchain(gated)}

    def invoke(name: str, /, **args: Any) -> Any:
        given = message(name, **args)
        return asyncio.run(tools[name].ainvoke(given)) if is_async else tools[name].invoke(given)

    good = invoke("temperature", city="Oslo", config=3)
    assert (good.status, json.loads(good.content)) == ("success", {"city": "Oslo", "unit": "C", "config": 3})
    assert good.artifact.value["config"] == 3
    assert invoke("temperature", city="Atlantis").content == "There is no such city."
    assert invoke("temperature", city="Oslo", unit="K").status == "error"
    assert invoke("delete", name="old").content == "old is gone"
    refused = invoke("delete", name="new")
    assert (refused.status, refused.content) == ("error", "The user did not allow this call.")
    assert tools["temperature"].tool_call_schema["properties"]["city"]["description"] == "Where."
    gated.close()


# pydantic-ai -------------------------------------------------------------------------------------------------------------


def test_our_tools_are_a_toolset_of_pydantic_ai(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("hello")
    script = [
        [
            ToolCallPart("temperature", {"city": "Oslo"}),
            ToolCallPart("temperature", {"city": 1, "unit": "K"}),
            ToolCallPart("delete", {"name": "new"}),
            ToolCallPart("read_file", {"path": "notes.txt"}),
            ToolCallPart("read_file", {"path": "../notes.txt"}),
            ToolCallPart("picture", {}),
        ],
        [TextPart("Done.")],
    ]
    seen: list[ModelMessage] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen[:] = messages
        assert {tool.name for tool in info.function_tools} >= {"temperature", "delete", "read_file"}
        return ModelResponse(parts=script.pop(0))

    toolset = to_pydantic_ai([temperature, delete, picture, FileTools(tmp_path)], **OPTIONS)
    result = asyncio.run(Agent(FunctionModel(model), toolsets=[toolset]).run("Go."))
    assert result.output == "Done."
    parts: list[Any] = [part for part in seen[-1].parts if part.part_kind == "tool-return"]
    assert parts[0].content == {"city": "Oslo", "unit": "C", "config": 0}
    assert [part.outcome for part in parts] == ["success", "failed", "failed", "success", "failed", "success"]
    assert "did not allow" in str(parts[2].content)
    assert "hello" in str(parts[3].content)


# OpenAI Agents -----------------------------------------------------------------------------------------------------------


def test_our_tools_are_function_tools_of_the_agents_sdk():
    tools = {tool.name: tool for tool in to_openai_agents([temperature, delete], **OPTIONS)}

    def invoke(name: str, text: str) -> Any:
        context = AgentsContext(context=None, tool_name=name, tool_call_id="1", tool_arguments=text)
        return asyncio.run(tools[name].on_invoke_tool(context, text))

    assert json.loads(invoke("temperature", '{"city": "Oslo"}'))["city"] == "Oslo"
    assert invoke("temperature", '{"city": "Atlantis"}') == "Error: There is no such city."
    assert invoke("delete", '{"name": "new"}') == "Error: The user did not allow this call."
    assert invoke("delete", "{").startswith("Error: the arguments of 'delete' are not JSON")
    assert invoke("delete", "[]") == "Error: the arguments of 'delete' are not an object."
    assert tools["temperature"].params_json_schema["properties"]["unit"]["enum"] == ["C", "F"]


class Told(Model):
    """A model of the SDK that says what it is told to say."""

    def __init__(self, *answers: list[Any]) -> None:
        self.answers = list(answers)
        self.inputs: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **more: Any) -> AnswerOfSdk:
        self.inputs.append(input)
        return AnswerOfSdk(output=self.answers.pop(0), usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError


def wish(call_id: str, name: str, arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(call_id=call_id, name=name, arguments=arguments, type="function_call")


def test_a_runner_of_the_agents_sdk_calls_our_tools():
    said = ResponseOutputMessage(
        id="m",
        content=[ResponseOutputText(text="Done.", type="output_text", annotations=[])],
        role="assistant",
        status="completed",
        type="message",
    )
    wishes = [wish("1", "temperature", '{"city": "Oslo"}'), wish("2", "delete", '{"name": "new"}')]
    model = Told(wishes, [said])
    agent = AgentOfSdk(name="a", model=model, tools=[*to_openai_agents([temperature, delete], **OPTIONS)])
    result = asyncio.run(Runner.run(agent, "Go.", run_config=RunConfig(tracing_disabled=True)))
    assert result.final_output == "Done."
    told = {item["call_id"]: item["output"] for item in model.inputs[1] if item.get("type") == "function_call_output"}
    assert json.loads(told["1"])["city"] == "Oslo"
    assert told["2"] == "Error: The user did not allow this call."


# google-genai ------------------------------------------------------------------------------------------------------------


async def asked_of(client: genai.Client, config: types.GenerateContentConfig) -> types.GenerateContentResponse:
    async with client.aio as inside:
        return await inside.models.generate_content(model="gemini-3.8-flash", contents="Go.", config=config)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_our_tools_work_with_automatic_function_calling(is_async: bool):
    gated = GatedTools([temperature, delete], **OPTIONS)
    functions = to_google_genai(gated, is_async=is_async)
    script = [
        fake_call("temperature", city="Oslo"),
        fake_call("temperature", city="Oslo", unit="K"),
        fake_call("delete", name="new"),
        fake_text("Done."),
    ]
    with FakeGemini.in_thread(script) as fake:
        client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=fake.base_url))
        config = types.GenerateContentConfig(tools=functions)
        if is_async:
            answer = asyncio.run(asked_of(client, config))
        else:
            answer = client.models.generate_content(model="gemini-3.8-flash", contents="Go.", config=config)
            client.close()
        declared = fake.requests[0].json["tools"][0]["functionDeclarations"]
    gated.close()
    assert answer.text == "Done."
    said = [
        part.function_response.response
        for content in answer.automatic_function_calling_history or []
        for part in content.parts or []
        if part.function_response
    ]
    assert said[0] == {"result": {"city": "Oslo", "unit": "C", "config": 0}}
    assert "'K'" in said[1]["error"]
    assert "did not allow this call" in said[2]["error"]
    schema = declared[0]["parameters_json_schema"]  # the SDK's own spelling, which the API takes too
    assert (schema["required"], schema["properties"]["unit"]["enum"]) == (["city"], ["C", "F"])


class Unit(enum.Enum):
    C = "c"
    F = "f"


class Reading(BaseModel):
    place: str
    unit: Unit = Unit.C


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


@dataclasses.dataclass
class Report:
    title: str
    readings: list[Reading]


class Row(TypedDict):
    key: str
    reading: Reading


RICH: dict[str, tuple[Any, Any, Any]] = {
    "number": (int, 3, 3),
    "unit": (Unit, "f", Unit.F),
    "model": (Reading, {"place": "Oslo", "unit": "f"}, Reading(place="Oslo", unit=Unit.F)),
    "models": (list[Reading], [{"place": "Oslo"}], [Reading(place="Oslo")]),
    "named": (dict[str, Reading], {"a": {"place": "Oslo"}}, {"a": Reading(place="Oslo")}),
    "maybe": (Reading | None, None, None),
    "tree": (
        Tree,
        {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]},
        Tree(value=1, children=[Tree(value=2, children=[Tree(value=3)])]),
    ),
    "report": (Report, {"title": "t", "readings": [{"place": "Oslo"}]}, Report("t", [Reading(place="Oslo")])),
    "row": (Row, {"key": "k", "reading": {"place": "Oslo"}}, {"key": "k", "reading": Reading(place="Oslo")}),
}


def test_arguments_of_every_kind_of_type_reach_our_tools_from_google_genai():
    got: dict[str, Any] = {}

    def taking(name: str, kind: Any) -> Any:
        def take(x: Any) -> str:
            got[name] = x
            return "ok"

        take.__name__ = name
        take.__annotations__ = {"x": kind, "return": str}
        return take

    functions = to_google_genai([taking(name, kind) for name, (kind, _, _) in RICH.items()])
    script = [*(fake_call(name, x=given) for name, (_, given, _) in RICH.items()), fake_text("Done.")]
    loop = types.AutomaticFunctionCallingConfig(maximum_remote_calls=len(script) + 1)
    with FakeGemini.in_thread(script) as fake:
        client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=fake.base_url))
        config = types.GenerateContentConfig(tools=functions, automatic_function_calling=loop)
        answer = client.models.generate_content(model="gemini-3.8-flash", contents="Go.", config=config)
        client.close()
        assert fake.refusals == []
        declared = {one["name"]: one for one in fake.requests[0].json["tools"][0]["functionDeclarations"]}
    assert answer.text == "Done."
    assert got == {name: value for name, (_, _, value) in RICH.items()}
    tree = declared["tree"]["parameters_json_schema"]["properties"]["x"]
    assert tree["properties"]["children"]["items"] == {"type": "object", "description": "(nested as above)"}
    assert "$ref" not in str(declared)


def test_a_google_genai_that_calls_nothing_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.10.0")
    with pytest.raises(UsageError, match=r"needs google-genai 2\.34 or newer, and 2\.10\.0 is"):
        to_google_genai([temperature])


# What the model is shown -------------------------------------------------------------------------------------------------


def essay(words: int) -> str:
    """Writes."""
    return "word " * words


async def fewer(call: FunctionCall, definition: Any, reason: str) -> FunctionCall:
    return replace(call, args={"words": 2})


async def seen_by_each(gated: GatedTools, args: dict[str, Any]) -> list[str]:
    """The one call, made through every framework: what each sends to its model, as text."""
    text = json.dumps(args)
    context = AgentsContext(context=None, tool_name="essay", tool_call_id="c1", tool_arguments=text)
    answers = [ModelResponse(parts=[ToolCallPart("essay", args, "c1")]), ModelResponse(parts=[TextPart("Done.")])]
    model = FunctionModel(lambda messages, info: answers.pop(0))
    run = await Agent(model, toolsets=[to_pydantic_ai(gated)]).run("Go.")
    return [
        await to_langchain(gated)[0].ainvoke(args),
        str(await to_openai_agents(gated)[0].on_invoke_tool(context, text)),
        str(run.all_messages()[2].parts[0].content),  # pyright: ignore[reportAttributeAccessIssue]
        str(await to_google_genai(gated, is_async=True)[0](**args)),
    ]


def test_a_long_result_is_cut_for_every_framework_as_for_a_model_of_ours():
    async def go() -> None:
        async with GatedTools([essay], limits=Limits(output_chars=500)) as gated:
            for shown in await seen_by_each(gated, {"words": 1000}):
                assert "characters left out" in shown
                assert len(shown) < 1000

    asyncio.run(go())


def test_every_framework_learns_that_a_person_changed_the_arguments():
    async def go() -> None:
        async with GatedTools([essay], policy=Policy(default="ask"), approve=fewer) as gated:
            for shown in await seen_by_each(gated, {"words": 9}):
                assert "The user changed the arguments" in shown

    asyncio.run(go())


def test_google_genai_is_not_sent_a_reference_to_media_that_it_leaves_out():
    async def go() -> None:
        async with FakeGemini([fake_call("picture"), fake_text("Nice.")]) as fake:
            client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=fake.base_url))
            chat = client.aio.chats.create(
                model="gemini-3.8-flash", config=types.GenerateContentConfig(tools=to_google_genai([picture], is_async=True))
            )
            assert (await chat.send_message("Draw.")).text == "Nice."
            await client.aio.aclose()
        assert fake.refusals == []

    asyncio.run(go())


def test_the_call_id_of_pydantic_ai_is_that_of_the_audit_log(tmp_path: Path):
    async def go() -> None:
        async with GatedTools([essay], audit=tmp_path / "audit.jsonl") as gated:
            await seen_by_each(gated, {"words": 1})
        ids = [record["call"] for record in records_of(tmp_path / "audit.jsonl") if record["kind"] == "start"]
        assert ids.count("c1") == 2

    asyncio.run(go())


@pytest.mark.parametrize("is_async", [True, False])
def test_the_call_id_of_langchain_is_that_of_the_audit_log(tmp_path: Path, is_async: bool):
    with GatedTools([temperature], audit=tmp_path / "audit.jsonl") as gated:
        (exported,) = to_langchain(gated)
        called = {"type": "tool_call", "id": "call-7", "name": "temperature", "args": {"city": "Oslo"}}
        message = asyncio.run(exported.ainvoke(called)) if is_async else exported.invoke(called)
        plain = exported.invoke({"city": "Rome"})
    ids = [record["call"] for record in records_of(tmp_path / "audit.jsonl") if record["kind"] == "start"]
    assert (message.status, message.tool_call_id, "Rome" in plain) == ("success", "call-7", True)
    assert (ids[0], ids[1].startswith("call-"), len(ids[1])) == ("call-7", True, 37)


@pytest.mark.parametrize("export", [to_langchain, to_openai_agents, to_pydantic_ai])
def test_a_tool_has_a_name_that_providers_accept_and_is_called_by_its_own(export: Any):
    names = ["fs.read file/é", "fs.read_file/é", "plain-name", "x" * 100]

    def tool_named(name: str) -> Any:
        class Odd:
            definition = ToolDefinition(name=name, description="Reads.", input_schema={"type": "object"})

            def problems(self, args: Any) -> tuple[str, ...]:
                return ()

            async def run(self, args: Any, context: Any) -> object:
                return name

        return Odd()

    async def story() -> dict[str, Any]:
        async with GatedTools(map(tool_named, names), policy=Policy(default="allow")) as gated:
            exported = export(gated)
            if export is to_langchain:
                return {one.name: await one.ainvoke({}) for one in exported}
            if export is to_openai_agents:
                context = AgentsContext(context=None, tool_name="", tool_call_id="c", tool_arguments="{}")
                return {one.name: await one.on_invoke_tool(context, "{}") for one in exported}
            return {name: await one.function_schema.call({}, PYDANTIC_CONTEXT) for name, one in exported.tools.items()}

    ran = asyncio.run(story())
    assert [*ran.values()] == names
    assert [name for name in ran if not re.fullmatch("[A-Za-z0-9_-]{1,64}", name)] == []
    assert "plain-name" in ran


def test_media_that_the_agents_sdk_cannot_send_is_told():
    def speak() -> list[Any]:
        """Speaks."""
        return ["see", Media(data=b"RIFF", mime_type="audio/wav"), Media(data=b"\x89PNG", mime_type="image/png")]

    (exported,) = to_openai_agents(GatedTools([speak]))
    context = AgentsContext(context=None, tool_name="speak", tool_call_id="c", tool_arguments="{}")
    said, image = asyncio.run(exported.on_invoke_tool(context, "{}"))
    assert "1 media item(s) were left out" in said.text
    assert image.image_url.startswith("data:image/png")
