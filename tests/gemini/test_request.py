"""Requests to Gemini: every body that callgate can produce is one that Google takes. The judges are in `conftest.py`."""

from __future__ import annotations

import asyncio
import enum
import json
import math
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
import pytest
from pydantic import BaseModel

from callgate import Policy, strict_json
from callgate.declaration import BUILT_IN, declare, split_built_in
from callgate.definitions.function import function_tool
from callgate.errors import ToolError, ToolNotDeclarableError, UsageError
from callgate.gemini.request import BodyBuilder, generation_of
from callgate.gemini.surface import Surface
from callgate.history.conversation import Conversation
from callgate.models.gemini import GeminiModel
from callgate.request import ModelRequest
from callgate.run.gate import Gate
from callgate.testing.fake_gemini import FakeGemini, answer, calls, text, thought
from callgate.types import Media, Reply, ToolDefinition

MODEL = "gemini-3.8-flash"
SurfaceOf = Callable[..., Surface]
JudgeBody = Callable[[dict[str, Any]], list[str]]


def bounded(work: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(30):
            return await work

    return asyncio.run(limited())


# --- tools of every kind -------------------------------------------------------------------------------------------------


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Point(BaseModel):
    lat: float
    lon: float
    label: str | None = None


class Trip(BaseModel):
    """A way over several points."""

    stops: list[Point]
    unit: Unit = Unit.CELSIUS
    tags: dict[str, int] = {}


def wx(city: str) -> dict[str, Any]:
    """The weather of a city."""
    return {"city": city, "t": 4}


def now() -> str:
    """The time."""
    return "12:00"


def plan(trip: Trip, speed: Literal["slow", "fast"] = "slow", budget: int | float | None = None) -> int:
    """Plans a trip."""
    return len(trip.stops)


def measure(value: int | str, unit: Unit, near: Point | None = None) -> str:
    """Measures something."""
    return f"{value} {unit.value}"


def fail(reason: str) -> None:
    """Fails."""
    raise ToolError(f"It cannot be done: {reason}")


def shot() -> list[Any]:
    """A picture of the screen."""
    return ["The screen:", Media(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png", name="shot.png")]


TRIP = {"stops": [{"lat": 1.5, "lon": 2}], "tags": {"a": 1}}


# --- the table -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """A conversation, and what its first request must hold."""

    tools: tuple[Any, ...] = ()
    prompt: Any = "Hello."
    script: tuple[Any, ...] = ("Hi.",)
    model: str = MODEL
    surfaces: tuple[str, ...] = ("developer", "vertex")
    gate: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    holds: dict[str, Any] = field(default_factory=dict)
    """Path -> value in the first body; None means that the field is not there."""


MODE = "toolConfig.functionCallingConfig.mode"
PNG = Media(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")
PDF = Media(data=b"%PDF-1.7", mime_type="application/pdf", name="a.pdf")
WAV = Media(data=b"RIFF", mime_type="audio/wav")
FILE = {"fileData": {"fileUri": "https://example.org/v.mp4", "mimeType": "video/mp4"}}
TWO = calls(("wx", {"city": "Oslo"}), ("wx", {"city": "Rome"}))
FOREIGN = [
    {"role": "user", "parts": [{"text": "Oslo?"}]},
    {"role": "assistant", "parts": [{"text": "Let me see."}, {"functionCall": {"name": "wx", "args": {"city": "Oslo"}}}]},
    {"role": "tool", "parts": [{"functionResponse": {"name": "wx", "response": {"t": 4}}}]},
    {"role": "model", "parts": [{"text": "Four degrees."}]},
]

CASES: dict[str, Case] = {
    "no tools": Case(holds={"tools": None, "toolConfig": None, "systemInstruction": None, "generationConfig": None}),
    "auto": Case(tools=(wx,), holds={MODE: "AUTO"}),
    "required": Case(
        tools=(wx,), run={"tool_choice": "required"}, script=(calls(("wx", {"city": "Oslo"})), "Hi."), holds={MODE: "ANY"}
    ),
    "none": Case(tools=(wx,), run={"tool_choice": "none"}, holds={MODE: "NONE"}),
    "validated": Case(tools=(wx,), run={"tool_choice": "validated"}, holds={MODE: "VALIDATED"}),
    "one tool": Case(
        tools=(wx, now),
        run={"tool_choice": "now"},
        script=(calls(("now", {})), "Noon."),
        holds={MODE: "ANY", "toolConfig.functionCallingConfig.allowedFunctionNames": ["now"]},
    ),
    "a tool without parameters": Case(tools=(now,), script=(calls(("now", {})), "Noon.")),
    "nested models": Case(tools=(plan,), script=(calls(("plan", {"trip": TRIP, "budget": 2.5})), "Done.")),
    "enums and unions": Case(
        tools=(measure,), script=(calls(("measure", {"value": "x", "unit": "celsius", "near": None})), "Done.")
    ),
    "system": Case(gate={"system": "Brief. \ud800"}, holds={"systemInstruction": {"parts": [{"text": "Brief. \ufffd"}]}}),
    "generation settings": Case(
        gate={
            "settings": {
                "temperature": 0.5, "top_p": 0.9, "top_k": 40, "max_output_tokens": 100, "stop_sequences": ["END"],
                "seed": 7, "presence_penalty": 0.1, "frequency_penalty": 0.2, "candidate_count": 1,
                "response_modalities": ["TEXT"], "media_resolution": "MEDIA_RESOLUTION_LOW", "include_thoughts": None,
                "speech_config": {"languageCode": "en-US"},
            }
        },
        holds={"generationConfig.topK": 40, "generationConfig.stopSequences": ["END"],
               "generationConfig.thinkingConfig": None},
    ),
    "structured output": Case(
        gate={
            "settings": {
                "response_mime_type": "application/json",
                "response_json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
            }
        },
        script=('{"a": 1}',),
    ),
    "safety": Case(
        gate={"settings": {"safety": {"harassment": "BLOCK_NONE", "HARM_CATEGORY_HATE_SPEECH": "BLOCK_ONLY_HIGH"}}},
        holds={
            "safetySettings": [
                {"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"},
                {"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_ONLY_HIGH"},
            ]
        },
    ),
    "cached content": Case(
        gate={"settings": {"cached_content": "cachedContents/1"}}, holds={"cachedContent": "cachedContents/1"}
    ),
    "service tier": Case(
        gate={"settings": {"service_tier": "flex"}}, surfaces=("developer",), holds={"serviceTier": "flex"}
    ),
    "streamed arguments": Case(
        tools=(wx,), gate={"settings": {"stream_arguments": True}}, script=(TWO, "Cold."), surfaces=("vertex",)
    ),
    "schemas in the older field": Case(
        # The judge in protobuf knows the Schema message of the Developer API alone.
        tools=(wx,), gate={"settings": {"schema_field": "parameters"}}, script=(TWO, "Cold."), surfaces=("developer",)
    ),
    "labels": Case(gate={"settings": {"labels": {"team": "a"}}}, surfaces=("vertex",), holds={"labels": {"team": "a"}}),
    "log probabilities": Case(
        gate={"settings": {"response_logprobs": True, "logprobs": 3}},
        holds={"generationConfig": {"responseLogprobs": True, "logprobs": 3}},
    ),
    "thinking by level": Case(
        gate={"settings": {"thinking": "high", "include_thoughts": True}},
        holds={"generationConfig.thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}},
        script=(answer(thought("Hm."), "Hi."),),
    ),
    "thinking by tokens": Case(
        gate={"settings": {"thinking": 0}}, holds={"generationConfig.thinkingConfig": {"thinkingBudget": 0}},
        model="gemini-2.5-flash",
    ),
    "thoughts shown": Case(
        gate={"settings": {"thinking": True}}, holds={"generationConfig.thinkingConfig": {"includeThoughts": True}}
    ),
    "extra fields": Case(
        tools=(wx,),
        gate={
            "settings": {
                "seed": 1,
                "extra_body": {
                    "generationConfig": {"logprobs": 2, "responseLogprobs": True},
                    "toolConfig": {"retrievalConfig": {"languageCode": "no"}},
                },
            }
        },
        holds={"generationConfig": {"seed": 1, "logprobs": 2, "responseLogprobs": True}, MODE: "AUTO",
               "toolConfig.retrievalConfig.languageCode": "no"},
    ),
    "media": Case(prompt=["What is this?", PNG, PDF, WAV, FILE, {"text": "And that?"}]),
    "parallel calls": Case(tools=(wx,), script=(TWO, "Cold and warm.")),
    "parallel calls with ids": Case(
        tools=(wx,), script=(calls(("wx", {"city": "Oslo"}), ("wx", {"city": "Rome"}), ids=True), "Cold and warm.")
    ),
    "calls one after another": Case(
        tools=(wx, now),
        script=(answer(thought("First Oslo."), calls(("wx", {"city": "Oslo"}))), calls(("now", {})), "Done."),
    ),
    "an older model without ids and signatures": Case(tools=(wx,), script=(TWO, "Cold."), model="gemini-2.5-pro"),
    "an alias of a model": Case(tools=(wx,), script=(TWO, "Cold."), model="gemini-flash-latest"),
    "a result with media": Case(tools=(shot,), script=(calls(("shot", {})), "A white screen.")),
    "a tool that fails": Case(tools=(fail,), script=(calls(("fail", {"reason": "$ref"})), "It failed.")),
    "an unknown tool": Case(tools=(wx,), script=(calls(("wether", {"city": "Oslo"})), "Sorry.")),
    "wrong arguments": Case(tools=(wx,), script=(calls(("wx", {"town": 1})), "Sorry.")),
    "a result with a reference": Case(tools=(wx,), script=(calls(("wx", {"city": '{"$ref": "x"}'})), "Fine.")),
    "feedback after a malformed answer": Case(
        tools=(wx,), script=(answer(finish_reason="MALFORMED_FUNCTION_CALL", finish_message="bad"), TWO, "Cold."),
    ),
    "feedback after an empty answer": Case(tools=(wx,), script=(answer(), "Hi.")),
    "history from elsewhere": Case(tools=(wx,), run={"history": FOREIGN}, script=(TWO, "Cold.")),
    "every way to search": Case(
        tools=("google_search", "urlContext", {"code_execution": {}}, {"googleMaps": {"enableWidget": True}}),
        holds={
            "tools": [{"googleSearch": {}, "urlContext": {}, "codeExecution": {}, "googleMaps": {"enableWidget": True}}],
            "toolConfig": None,
        },
    ),
    "a built-in tool on an older model": Case(
        tools=("google_search_retrieval",), model="gemini-2.5-flash", holds={"tools": [{"googleSearchRetrieval": {}}]}
    ),
    "functions beside built-in tools": Case(
        tools=(wx, "google_search", {"codeExecution": {}}), script=(TWO, "Cold."), holds={MODE: "VALIDATED"}
    ),
    "built-in tools and a forced call": Case(
        tools=(wx, "google_search"), script=(TWO, "Cold."), run={"tool_choice": "required"}, holds={MODE: "ANY"}
    ),
    "built-in tools and no calls": Case(tools=(wx, "google_search"), run={"tool_choice": "none"}, holds={MODE: "NONE"}),
    "built-in tools of the developer API": Case(
        tools=(
            {"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/a"], "topK": 3, "metadataFilter": "x=1"}},
            {"mcp_servers": [{"name": "git", "streamableHttpTransport": {"url": "https://example.org/mcp"}}]},
        ),
        surfaces=("developer",),
        gate={"policy": Policy(rules=["allow @git"])},
    ),
    "built-in tools of Vertex": Case(
        tools=(
            {"retrieval": {"vertexAiSearch": {"datastore": "d"}}},
            "enterprise_web_search",
            {"parallelAiSearch": {"apiKey": "a"}},
            {"exaAiSearch": {"apiKey": "a"}},
        ),
        surfaces=("vertex",),
    ),
    "a cached content that brings its own tools and instruction": Case(
        tools=(wx,), gate={"system": "Be brief.", "settings": {"cached_content": "cachedContents/1"}},
        holds={"cachedContent": "cachedContents/1", "tools": None, "toolConfig": None, "systemInstruction": None},
    ),
    "a level of thinking for a model that knows numbers": Case(
        model="gemini-2.5-flash", gate={"settings": {"thinking": "high"}},
        holds={"generationConfig.thinkingConfig": {"thinkingBudget": 24_576}},
    ),
    "headers of one gate": Case(gate={"settings": {"headers": {"X-Gateway": "y"}}}, holds={"headers": None}),
    "computer use beside a function": Case(
        tools=(wx, {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}),
        model="gemini-2.5-computer-use-preview",
        holds={MODE: "AUTO", "toolConfig.includeServerSideToolInvocations": None},
    ),
}  # fmt: skip


def table() -> Iterable[Any]:
    for name, case in CASES.items():
        for surface in case.surfaces:
            for streamed in (False, True):
                yield pytest.param(case, surface, streamed, id=f"{name}-{surface}-{'streamed' if streamed else 'whole'}")


async def converse(case: Case, surface: Surface, *, streamed: bool) -> Reply:
    gate = Gate(GeminiModel(case.model, surface=surface), tools=case.tools, **case.gate)
    if not streamed:
        return await gate.run(case.prompt, **case.run)
    events = [event async for event in gate.stream(case.prompt, **case.run)]
    return events[-1].reply  # type: ignore[union-attr]


def at(body: Any, path: str) -> Any:
    for key in path.split("."):
        body = body.get(key) if isinstance(body, dict) else None
    return body


@pytest.mark.parametrize(("case", "kind", "streamed"), [*table()])
@pytest.mark.judge("protobuf")
def test_every_body_is_one_that_google_takes(case: Case, kind: str, streamed: bool, surface_of: SurfaceOf) -> None:
    async def main() -> None:
        async with FakeGemini(case.script) as fake:
            kept = {"name": "cachedContents/1", "model": f"models/{case.model}", "tokens": 2_000, "expires_s": math.inf}
            fake.resources.caches["cachedContents/1"] = kept
            reply = await converse(case, surface_of(fake, kind), streamed=streamed)
            assert (fake.steps_left, fake.errors) == (0, [])
            assert reply.ok
            assert {seen.streaming for seen in fake.requests} == {streamed}
            assert {seen.surface for seen in fake.requests} == {kind}
            for path, value in case.holds.items():
                assert at(fake.requests[0].json, path) == value, path

    bounded(main())


def test_a_level_of_thinking_that_a_large_model_does_not_have_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="use 'low'"):
        body_of(BodyBuilder("gemini-3.1-pro-preview", "developer"), settings={"thinking": "minimal"})


def test_the_table_holds_every_setting() -> None:
    used = {name for case in CASES.values() for name in case.gate.get("settings", {})}
    with pytest.raises(UsageError) as unknown:
        body_of(BodyBuilder(MODEL, "developer"), settings={"?": 1})
    known = str(unknown.value).partition("known are ")[2].split(", ")
    assert sorted(used) == known


# --- whole bodies --------------------------------------------------------------------------------------------------------

WX_DECLARED = {
    "name": "wx",
    "description": "The weather of a city.",
    "parametersJsonSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def without_title(value: Any) -> Any:
    """Schemas of functions may carry titles and forbid other keys; that is not what these tests are about."""
    if isinstance(value, dict):
        return {key: without_title(item) for key, item in value.items() if key not in ("title", "additionalProperties")}
    return [without_title(item) for item in value] if isinstance(value, list) else value


def bodies(case: Case, kind: str, surface_of: SurfaceOf, *, streamed: bool = False) -> list[dict[str, Any]]:
    async def main() -> list[dict[str, Any]]:
        async with FakeGemini(case.script) as fake:
            await converse(case, surface_of(fake, kind), streamed=streamed)
            return [without_title(seen.json) for seen in fake.requests]

    return bounded(main())


def test_a_plain_question_is_nothing_but_its_contents(surface_of: SurfaceOf) -> None:
    assert bodies(Case(), "developer", surface_of) == [{"contents": [{"role": "user", "parts": [{"text": "Hello."}]}]}]


def test_a_conversation_with_parallel_calls_is_sent_as_documented(surface_of: SurfaceOf) -> None:
    said = [
        {"functionCall": {"id": "a1", "name": "wx", "args": {"city": "Oslo"}}, "thoughtSignature": "c2lnXy0="},
        {"functionCall": {"id": "a2", "name": "wx", "args": {"city": "Rome"}}},
    ]
    case = Case(
        tools=(wx,),
        prompt="Oslo and Rome?",
        script=(said, "Cold and warm."),
        gate={"system": "Be brief.", "settings": {"max_output_tokens": 100, "thinking": "low"}},
    )
    around = {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [WX_DECLARED]}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {"maxOutputTokens": 100, "thinkingConfig": {"thinkingLevel": "LOW"}},
    }
    asked = {"role": "user", "parts": [{"text": "Oslo and Rome?"}]}
    responses = [
        {"functionResponse": {"id": wire_id, "name": "wx", "response": {"result": {"city": city, "t": 4}}}}
        for wire_id, city in (("a1", "Oslo"), ("a2", "Rome"))
    ]
    assert bodies(case, "developer", surface_of) == [
        {"contents": [asked], **around},
        {"contents": [asked, {"role": "model", "parts": said}, {"role": "user", "parts": responses}], **around},
    ]


def test_functions_beside_built_in_tools_on_vertex_are_sent_as_documented(surface_of: SurfaceOf) -> None:
    case = Case(tools=(wx, "google_search"), gate={"settings": {"stream_arguments": True, "labels": {"a": "b"}}})
    assert bodies(case, "vertex", surface_of, streamed=True) == [
        {
            "contents": [{"role": "user", "parts": [{"text": "Hello."}]}],
            "tools": [{"functionDeclarations": [WX_DECLARED], "googleSearch": {}}],
            "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED", "streamFunctionCallArguments": True}},
            "labels": {"a": "b"},
        }
    ]


def test_feedback_stands_behind_the_conversation_for_one_request_only(surface_of: SurfaceOf) -> None:
    case = CASES["feedback after a malformed answer"]
    first, again, after = bodies(case, "developer", surface_of)
    assert again["contents"][:-1] == first["contents"]
    assert again["contents"][-1]["role"] == "user"
    assert after["contents"][0] == first["contents"][0]
    assert again["contents"][-1] not in after["contents"]


# --- built-in tools ------------------------------------------------------------------------------------------------------


def test_every_built_in_tool_may_be_named_as_google_or_as_python_does() -> None:
    for name in BUILT_IN:
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        value: Any = [{"name": "s"}] if name == "mcpServers" else {}
        spelled: list[Any] = (
            [{name: value}, {snake: value}] if name == "mcpServers" else [name, snake, {name: {}}, {snake: {}}]
        )
        for item in spelled:
            assert split_built_in([item]) == ([], [item])
            assert declare([], built_in=[item]).tools == [{name: value}]


def test_one_tool_object_holds_functions_and_built_in_tools() -> None:
    made = declare([function_tool(now).definition], built_in=["google_search", {"codeExecution": {}}])
    assert made.tools == [
        {"functionDeclarations": [{"name": "now", "description": "The time."}], "googleSearch": {}, "codeExecution": {}}
    ]
    assert made.names == {"now": "now"}


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("google_serch", "did you mean 'google_search'"),
        ({"codeExecutor": {}}, "did you mean 'codeExecution'"),
        ("xyzzy", "known are googleSearch,"),
        ("mcp_servers", "needs its configuration"),
    ],
)
def test_an_unknown_built_in_tool_is_refused_with_the_near_one(item: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Gate(GeminiModel(MODEL, api_key="k"), tools=[item])


def test_a_built_in_tool_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="given twice"):
        declare([], built_in=["google_search", {"googleSearch": {"searchTypes": {}}}])


def test_objects_that_are_no_built_in_tools_are_left_to_the_executor() -> None:
    other = {"name": "f", "description": "A tool in some format.", "parameters": {}}
    assert split_built_in([other, {}, {"functionDeclarations": []}]) == ([other, {}, {"functionDeclarations": []}], [])
    with pytest.raises(ToolNotDeclarableError):
        Gate(GeminiModel(MODEL, api_key="k"), tools=[other])


def test_a_tool_of_google_genai_that_runs_at_google_is_a_built_in_one() -> None:
    from google.genai import types

    search = types.Tool(google_search=types.GoogleSearch(), code_execution=types.ToolCodeExecution())
    declared = Gate(GeminiModel(MODEL, api_key="k"), tools=[search]).declaration.tools
    assert declared == [{"googleSearch": {}, "codeExecution": {}}]
    function = types.Tool(function_declarations=[types.FunctionDeclaration(name="f")])
    with pytest.raises(ToolNotDeclarableError, match="holds declarations and no code"):
        Gate(GeminiModel(MODEL, api_key="k"), tools=[function])


def _definition(function: Any) -> ToolDefinition:
    return function if isinstance(function, ToolDefinition) else function_tool(function).definition


def body_of(builder: BodyBuilder, tools: Iterable[Any] = (), **fields: Any) -> dict[str, Any]:
    functions, built_in = split_built_in(tools)
    declaration = declare(map(_definition, functions), built_in=built_in)
    talk = Conversation()
    talk.add_user("Hello.")
    return json.loads(builder.body(ModelRequest(conversation=talk, declaration=declaration, **fields)))


@pytest.mark.parametrize("name", [name for name, only in BUILT_IN.items() if only])
def test_a_built_in_tool_of_the_other_surface_is_refused(name: str) -> None:
    other: Any = "vertex" if BUILT_IN[name] == "developer" else "developer"
    with pytest.raises(UsageError, match=f"{name}.*{BUILT_IN[name]} surface only"):
        body_of(BodyBuilder(MODEL, other), [{name: [{}] if name == "mcpServers" else {}}])


@pytest.mark.parametrize("kind", ["developer", "vertex"])
def test_a_mix_that_older_models_refuse_is_refused_before_it_is_sent(kind: Any) -> None:
    with pytest.raises(UsageError, match="cannot mix built-in tools"):
        body_of(BodyBuilder("gemini-2.5-flash", kind), [wx, "google_search"])
    assert body_of(BodyBuilder("gemini-2.5-flash", kind), ["google_search"])["tools"] == [{"googleSearch": {}}]


@pytest.mark.parametrize("choice", ["auto", "required", "none", "validated", "wx"])
def test_server_side_invocations_are_asked_for_on_the_developer_api_only(choice: str) -> None:
    mixed = body_of(BodyBuilder(MODEL, "developer"), [wx, "google_search"], tool_choice=choice)
    assert mixed["toolConfig"]["includeServerSideToolInvocations"] is True
    cloud = body_of(BodyBuilder(MODEL, "vertex"), [wx, "google_search"], tool_choice=choice)
    assert "includeServerSideToolInvocations" not in cloud["toolConfig"]
    assert mixed["toolConfig"]["functionCallingConfig"] == cloud["toolConfig"]["functionCallingConfig"]


@pytest.mark.parametrize(
    ("model", "generation"),
    [
        ("gemini-3.8-flash", (3, 8)),
        ("models/gemini-2.5-pro", (2, 5)),
        ("gemini-4-argon", (4,)),
        ("gemini-flash-latest", None),
    ],
)
def test_the_generation_is_read_from_a_models_name(model: str, generation: Any) -> None:
    assert generation_of(model) == generation


@pytest.mark.parametrize("streamed", [False, True])
def test_calls_that_ran_at_google_are_echoed_and_never_executed(surface_of: SurfaceOf, streamed: bool) -> None:
    ran: list[str] = []

    def search(query: str) -> str:
        """Looks something up here."""
        ran.append(query)
        return "found"

    said: list[Any] = [
        {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}}, "thoughtSignature": "czE="},
        {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "response": {"results": []}}},
        {"executableCode": {"id": "e1", "language": "PYTHON", "code": "search('y')"}},
        {"codeExecutionResult": {"id": "e1", "outcome": "OUTCOME_OK", "output": "1\n"}},
        {"functionCall": {"id": "a1", "name": "search", "args": {"query": "q"}}, "thoughtSignature": "czI="},
    ]
    case = Case(tools=(search, "google_search", "code_execution"), script=(said, "Done."))
    first, second = bodies(case, "developer", surface_of, streamed=streamed)
    assert ran == ["q"]
    assert second["contents"][1] == {"role": "model", "parts": said}
    assert [part["functionResponse"]["id"] for part in second["contents"][2]["parts"]] == ["a1"]
    assert first["toolConfig"] == second["toolConfig"]


# --- streamed arguments --------------------------------------------------------------------------------------------------


def test_streamed_arguments_on_vertex_become_whole_calls(surface_of: SurfaceOf) -> None:
    asked = {"trip": TRIP, "speed": "fast"}
    case = Case(tools=(plan, now), gate={"settings": {"stream_arguments": True}},
                script=(calls(("plan", asked), ("now", {})), "Done."))  # fmt: skip
    first, second = bodies(case, "vertex", surface_of, streamed=True)
    assert first["toolConfig"]["functionCallingConfig"]["streamFunctionCallArguments"] is True
    said = [part["functionCall"] for part in second["contents"][1]["parts"]]
    assert said == [{"name": "plan", "args": asked}, {"name": "now", "args": {}}]
    assert [part["functionResponse"]["response"] for part in second["contents"][2]["parts"]] == [
        {"result": 1},
        {"result": "12:00"},
    ]


def test_streamed_arguments_are_asked_for_only_where_they_exist(surface_of: SurfaceOf) -> None:
    case = Case(tools=(wx,), gate={"settings": {"stream_arguments": True}})
    (whole,) = bodies(case, "vertex", surface_of)
    assert whole["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}
    with pytest.raises(UsageError, match="vertex surface only"):
        body_of(BodyBuilder(MODEL, "developer"), [wx], settings={"stream_arguments": True})
    assert body_of(BodyBuilder(MODEL, "developer"), settings={"stream_arguments": False}).keys() == {"contents"}


# --- settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({"xyzzy": 1}, "known are cached_content,"),
        ({"thinking": "much"}, "use one of 'minimal'"),
        ({"thinking": 1.5}, "use one of 'minimal'"),
        ({"safety": "none"}, "use a mapping"),
        ({"labels": {"a": "b"}}, "vertex surface only"),
        ({"extra_body": ["x"]}, "use a mapping"),
        ({"thinking": "deep"}, "use one of"),
        ({"extra_body": {"contents": []}}, "cannot hold 'contents'"),
        ({"extra_body": {"tools": []}}, "cannot hold 'tools'"),
        ({"temperature": "hot"}, "temperature='hot': expected a number from 0 to 2"),
        ({"seed": 2**31}, "seed=2147483648: expected a whole number from -2147483648 to 2147483647"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        body_of(BodyBuilder(MODEL, "developer"), settings=settings)


def test_a_continued_answer_sends_the_same_body_with_the_token() -> None:
    builder = BodyBuilder(MODEL, "developer")
    talk = Conversation()
    talk.add_user("Hello.")
    request = ModelRequest(conversation=talk, system="Be brief.")
    plain, continued = json.loads(builder.body(request)), json.loads(builder.body(request, continuation="dG9rZW4="))
    assert continued == plain | {"continuationToken": "dG9rZW4="}


def test_a_continued_answer_is_asked_for_with_bodies_that_google_takes(surface_of: SurfaceOf) -> None:
    broken_off = {"finishReason": "CONTINUATION", "continuationToken": "dG9rZW4="}
    first = {"candidates": [{"content": {"role": "model", "parts": [{"text": "One, "}]}, **broken_off}]}
    plain, continued = bodies(Case(script=(first, "two.")), "developer", surface_of)
    assert continued == plain | {"continuationToken": "dG9rZW4="}


# --- bytes ---------------------------------------------------------------------------------------------------------------


def talk_of(turns: int) -> Conversation:
    talk = Conversation()
    for turn in range(turns):
        talk.add_user(f"Question {turn}, with some text to it. 🦊")
        called = {"functionCall": {"name": "wx", "args": {"city": f"Oslo {turn}"}}}
        talk.add_model({"role": "model", "parts": [called]}, origin=f"developer:{MODEL}")
        talk.add_responses([{"functionResponse": {"name": "wx", "response": {"result": turn}}}])
        talk.add_model({"role": "model", "parts": [{"text": f"Answer {turn}."}]}, origin=f"developer:{MODEL}")
    talk.add_user("And?")
    return talk


def test_contents_are_the_bytes_that_were_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dumped: list[int] = []
    dump = strict_json.dump

    def counted(value: Any) -> bytes:
        data = dump(value)
        dumped.append(len(data))
        return data

    talk, builder = talk_of(20), BodyBuilder(MODEL, "developer")
    request = ModelRequest(conversation=talk, declaration=declare([function_tool(wx).definition]), system="Be brief.")
    encoded = talk.bytes_encoded
    monkeypatch.setattr(strict_json, "dump", counted)
    body = builder.body(request)
    assert len(dumped) == 2  # The tools, which gates may share, and the rest of the request.
    assert sum(dumped) < len(body) - talk.size_bytes
    assert body.startswith(b'{"contents":[' + b",".join(talk.encoded) + b"]")
    for _ in range(3):
        assert builder.body(request) == body
    assert len(dumped) == 2
    assert talk.bytes_encoded == encoded


def test_bytes_encoded_grow_by_what_is_new_and_not_by_the_history() -> None:
    talk = talk_of(50)
    before, history = talk.bytes_encoded, talk.size_bytes
    talk.add_model({"role": "model", "parts": [{"text": "Short."}]})
    assert talk.bytes_encoded - before < 100 < history


def test_the_same_input_gives_the_same_bytes() -> None:
    made = {
        BodyBuilder(MODEL, "developer").body(
            ModelRequest(
                conversation=talk_of(3),
                declaration=declare(
                    [function_tool(each).definition for each in (wx, plan, measure)], built_in=["googleSearch"]
                ),
                system="Be brief.",
                settings={"seed": 1, "safety": {"HARASSMENT": "OFF"}, "thinking": "low"},
                feedback="Again.",
            )
        )
        for _ in range(5)
    }
    assert len(made) == 1


def test_other_settings_and_choices_are_not_answered_from_what_was_kept() -> None:
    builder, talk = BodyBuilder(MODEL, "developer"), talk_of(1)
    declaration = declare([function_tool(wx).definition])
    made = [
        builder.body(ModelRequest(conversation=talk, declaration=declaration, tool_choice=choice, settings=settings))
        for choice in ("auto", "none", "wx")
        for settings in [{"seed": number} for number in range(40)]
    ]
    assert len(set(made)) == len(made)


# --- what comes goes back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_signatures_and_unknown_fields_come_back_unchanged_after_three_turns(surface_of: SurfaceOf, streamed: bool) -> None:
    # Signatures of both base64 alphabets: none may be decoded on the way.
    said: list[list[dict[str, Any]]] = [
        [
            {"text": "Let me see.", "thought": True, "futureThought": {"a": [1, None, 0.5]}},
            {"functionCall": {"id": f"c{turn}", "name": "wx", "args": {"city": f"Oslo {turn}"}},
             "thoughtSignature": f"a-_b{turn}A==", "futureField": {"kept": True, "turn": turn}},
            {"text": "", "thoughtSignature": f"Xx+/{turn}A=="},
            {"hologram": {"depth": 3}, "thoughtSignature": "aG9s"},
        ]
        for turn in range(3)
    ]  # fmt: skip
    script = tuple(
        {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}], "futureTop": 1}
        for parts in said
    )

    async def main() -> None:
        async with FakeGemini([*script, text("Done.")]) as fake:
            await converse(Case(tools=(wx,)), surface_of(fake), streamed=streamed)
            last = fake.requests[-1]
            assert [content["parts"] for content in last.json["contents"] if content["role"] == "model"] == said
            for turn in range(3):
                assert last.body.count(f'"a-_b{turn}A=="'.encode()) == 1

    bounded(main())


# --- the judges themselves -----------------------------------------------------------------------------------------------


def with_field(path: str) -> dict[str, Any]:
    body: dict[str, Any] = {}
    place: Any = body
    *inner, last = path.split(".")
    for key in inner:
        made: dict[str, Any] = {}
        place[key.removesuffix("[]")] = [made] if key.endswith("[]") else made
        place = made
    place[last] = {}
    return body


def test_every_field_listed_as_newer_than_protobuf_is_unknown_to_it(
    newer_fields: dict[str, str], protobuf_judges: Callable[..., list[str]]
) -> None:
    for path, reason in newer_fields.items():
        assert reason
        body = with_field(path)
        assert "no field named" in "".join(protobuf_judges(body, {})), path
        assert protobuf_judges(body, newer_fields) == [], path


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"contents": [{"role": "user", "parts": [{"txt": "x"}]}]}, "txt"),
        ({"tools": [{"google_serch": {}}]}, "google_serch"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "SOMETIMES"}}}, "SOMETIMES"),
        ({"generationConfig": {"maxOutputTokens": "many"}}, "maxOutputTokens"),
        ({"safetySettings": [{"category": "HARM_CATEGORY_X", "threshold": "OFF"}]}, "HARM_CATEGORY_X"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_the_judges_refuse_what_is_wrong(judge_body: JudgeBody, wrong: dict[str, Any], told: str) -> None:
    problems = judge_body(wrong)
    assert len(problems) >= 2
    assert told in "".join(problems)


def test_whatever_a_fake_server_was_sent_is_judged(unjudged: None, judge_fake: Callable[[FakeGemini], list[str]]) -> None:
    good = {"contents": [{"role": "user", "parts": [{"text": "Hello."}]}]}
    sent: list[Any] = [good, good | {"tools": [{"xyzzy": {}}]}, good | {"serviceTier": "no such tier"}, []]
    with FakeGemini.in_thread(["Hi."], repeat_last=True) as fake:
        for body in sent:
            httpx2.post(f"{fake.base_url}/v1beta/models/{MODEL}:generateContent", json=body)
    problems = "\n".join(judge_fake(fake))
    assert "request 0" not in problems
    assert "refused a request by the rule 'fields'" in problems
    for number, told in ((1, "xyzzy"), (2, "no such tier"), (3, "not a JSON object")):
        assert any(told in line for line in judge_fake(fake) if line.startswith(f"request {number}:"))


@pytest.mark.parametrize("surface", ["developer", "vertex"])
def test_schemas_go_in_the_older_field_on_request_under_the_same_names(surface: Literal["developer", "vertex"]) -> None:
    odd = ToolDefinition(name="a tool", input_schema={"type": "object", "properties": {"n": {"type": ["string", "null"]}}})
    settings = {"schema_field": "parameters"}
    body = body_of(BodyBuilder(MODEL, surface), [odd, "google_search"], definitions=(odd,), settings=settings)
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "a_tool",
                    "description": "Calls a tool.",
                    "parameters": {"type": "object", "properties": {"n": {"type": "string", "nullable": True}}},
                }
            ],
            "googleSearch": {},
        }
    ]
    assert body.keys() == {"contents", "tools", "toolConfig"}
    with pytest.raises(UsageError, match="unknown schema field 'params'"):
        body_of(BodyBuilder(MODEL, surface), [odd], definitions=(odd,), settings={"schema_field": "params"})
