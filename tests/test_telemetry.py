"""Spans by the names of the GenAI conventions, seen by the SDK's own exporter."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import (
    Gate,
    GeminiModel,
    InteractionsModel,
    McpServer,
    OpenAIModel,
    Policy,
    ScriptedModel,
    ToolError,
    telemetry,
    tool,
)  # fmt: skip
from callgate.config.known_secrets import remember_secrets
from callgate.errors import AuthError, ModelError
from callgate.gemini.surface import Surface
from callgate.models import provider_of_model
from callgate.models.chain import ModelChain
from callgate.models.choice import open_model
from callgate.models.prompted import PromptedModel
from callgate.testing import answer, call
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_interactions import FakeInteractions

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed; no span was looked at")

SECRET = "a very private sentence"
USAGE = {"promptTokenCount": 11, "candidatesTokenCount": 5, "thoughtsTokenCount": 2, "cachedContentTokenCount": 3}
ENVELOPE = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message["method"]
    result = {}
    if method == "initialize":
        info = {"name": "meta", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [{"name": "meta", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": json.dumps(message["params"].get("_meta", {}))}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[Any]]]:
    """A tracer provider of this test alone, and what was exported."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield lambda: list(exporter.get_finished_spans())
    provider.shutdown()


@pytest.fixture
def content() -> Iterator[None]:
    telemetry.record_content(True)
    yield
    telemetry.record_content(None)


def test_a_known_secret_in_the_id_of_a_session_reaches_no_span(spans: Callable[[], list[Any]]) -> None:
    secret = "kn0wn-session-secret"
    remember_secrets(secret)
    run(Gate(ScriptedModel(["Hi."])).run("x", session=f"s-{secret}"))
    assert spans()
    assert [span.name for span in spans() if secret in str(span.attributes)] == []


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await work

    return asyncio.run(bounded())


@tool(read_only=True)
def look(city: str) -> str:
    """Looks out of the window."""
    from opentelemetry import trace

    with trace.get_tracer_provider().get_tracer("mine").start_as_current_span("inside"):
        return f"{SECRET} in {city}"


@tool(read_only=True)
async def fail(city: str) -> str:
    """Fails."""
    raise ToolError(SECRET)


def by_name(found: list[Any]) -> dict[str, Any]:
    return {span.name: span for span in found}


def parent_of(span: Any, found: list[Any]) -> str | None:
    names = {one.context.span_id: one.name for one in found}
    return None if span.parent is None else names[span.parent.span_id]


def test_steps_at_the_provider_are_events_of_the_request_without_their_content(spans: Callable[[], list[Any]]) -> None:
    steps = [
        {"type": "code_execution_call", "id": "c1", "arguments": {"language": "python", "code": SECRET}, "signature": "s"},
        {"type": "code_execution_result", "call_id": "c1", "result": SECRET, "is_error": True, "signature": "s"},
        {"type": "model_output", "content": [{"type": "text", "text": "Done."}]},
    ]

    async def work() -> None:
        async with FakeInteractions([{"steps": steps, "status": "completed"}]) as fake:
            surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="test-key")
            async with Gate(InteractionsModel("gemini-3.8-flash", surface=surface), settings={"store": True}) as gate:
                await gate.run("Go.")

    run(work())
    chat = by_name(spans())["chat gemini-3.8-flash"]
    assert chat.attributes["gen_ai.response.id"].startswith("v1_")
    common = {"gen_ai.tool.name": "code_execution", "gen_ai.tool.type": "extension", "gen_ai.tool.call.id": "c1"}
    assert [(event.name, dict(event.attributes)) for event in chat.events] == [
        ("callgate.server_step", common | {"callgate.server_step.kind": "code"}),
        ("callgate.server_step", common | {"callgate.server_step.kind": "code_result", "error.type": "error"}),
    ]


def test_a_run_is_an_agent_with_chats_and_tools(spans: Callable[[], list[Any]]) -> None:
    model = ScriptedModel([answer(call("look", city="Oslo"), call("fail", city="Rome"), usage=USAGE), SECRET])
    gate = Gate(model, [look, fail], system=SECRET, settings={"temperature": 0.5, "max_output_tokens": 9})
    run(gate.run(SECRET, session="s-1"))
    found = spans()
    assert sorted((span.name, parent_of(span, found), span.kind.name) for span in found) == [
        ("chat scripted", "invoke_agent callgate", "CLIENT"),
        ("chat scripted", "invoke_agent callgate", "CLIENT"),
        ("execute_tool fail", "invoke_agent callgate", "INTERNAL"),
        ("execute_tool look", "invoke_agent callgate", "INTERNAL"),
        ("inside", "execute_tool look", "INTERNAL"),
        ("invoke_agent callgate", None, "INTERNAL"),
    ]
    named = by_name(found)
    first = min((span for span in found if span.name == "chat scripted"), key=lambda span: span.start_time)
    assert dict(first.attributes) == {
        "gen_ai.provider.name": "callgate",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.stream": False,
        "gen_ai.output.type": "text",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ("STOP",),
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    looked = dict(named["execute_tool look"].attributes)
    assert looked.pop("gen_ai.tool.call.id")
    assert looked == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Looks out of the window.",
        "gen_ai.conversation.id": "s-1",
    }
    failed = named["execute_tool fail"]
    assert (failed.attributes["error.type"], failed.status.status_code.name) == ("failed", "ERROR")
    whole = named["invoke_agent callgate"].attributes
    assert (whole["gen_ai.agent.name"], whole["gen_ai.response.finish_reasons"]) == ("callgate", ("STOP",))
    assert whole["gen_ai.usage.input_tokens"] == 11


def test_names_of_attributes_are_those_of_the_conventions(spans: Callable[[], list[Any]], content: None) -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

    known = {
        value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_") and isinstance(value, str)
    }
    model = ScriptedModel([answer(call("look", city="Oslo"), usage=USAGE), "Sunny."])
    run(Gate(model, [look], system="Be brief.").run("Go."))
    used = {key for span in spans() for key in span.attributes if key.startswith("gen_ai.")}
    assert used - known == set()


def test_nothing_that_was_said_is_in_a_span_unless_it_is_asked_for(spans: Callable[[], list[Any]]) -> None:
    run(Gate(ScriptedModel([call("look", city="Oslo"), call("fail", city="Rome"), SECRET]), [look, fail]).run(SECRET))
    assert SECRET not in str([(span.attributes, span.status.description, span.events) for span in spans()])


def test_what_was_said_is_there_where_it_is_asked_for(spans: Callable[[], list[Any]], content: None) -> None:
    run(Gate(ScriptedModel([call("look", city="Oslo"), "Sunny."]), [look], system="Be brief.").run("How is Oslo?"))
    found = spans()
    last = max((span for span in found if span.name == "chat scripted"), key=lambda span: span.start_time).attributes
    assert json.loads(last["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    asked = json.loads(last["gen_ai.input.messages"])
    assert [message["role"] for message in asked] == ["user", "assistant", "user"]
    assert asked[0]["parts"] == [{"type": "text", "content": "How is Oslo?"}]
    assert asked[1]["parts"][0]["arguments"] == {"city": "Oslo"}
    assert asked[2]["parts"][0]["response"] == {"result": f"{SECRET} in Oslo"}
    assert json.loads(last["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Sunny."}], "finish_reason": "STOP"}
    ]
    looked = by_name(found)["execute_tool look"].attributes
    assert (looked["gen_ai.tool.call.arguments"], looked["gen_ai.tool.call.result"]) == (
        '{"city": "Oslo"}',
        json.dumps(f"{SECRET} in Oslo"),
    )


def test_a_failed_request_is_an_error_of_its_span_and_of_the_run(spans: Callable[[], list[Any]]) -> None:
    with pytest.raises(ModelError):
        run(Gate(ScriptedModel([AuthError(SECRET)])).run("Go."))
    assert [(span.name, span.attributes["error.type"], span.status.description) for span in spans()] == [
        ("chat scripted", "AuthError", "AuthError"),
        ("invoke_agent callgate", "AuthError", "AuthError"),
    ]


def test_a_typed_answer_and_a_cancelled_call_are_told_as_such(spans: Callable[[], list[Any]]) -> None:
    async def story() -> None:
        started = asyncio.Event()

        @tool(read_only=True)
        async def wait() -> None:
            started.set()
            await asyncio.sleep(60)

        gate = Gate(ScriptedModel([call("wait")]), [wait])
        task = asyncio.create_task(gate.run("Go.", session="s", output=int))
        await started.wait()
        gate.cancel("s")
        await task

    run(story())
    named = by_name(spans())
    assert named["chat scripted"].attributes["gen_ai.output.type"] == "json"
    assert named["execute_tool wait"].attributes["error.type"] == "cancelled"
    assert named["invoke_agent callgate"].attributes["gen_ai.response.finish_reasons"] == ("cancelled",)


def test_requests_to_a_model_carry_the_context_of_their_span(spans: Callable[[], list[Any]]) -> None:
    async def story() -> str:
        async with FakeGemini(["Hello."]) as fake:
            surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
            await Gate(GeminiModel("gemini-3.8-flash", surface=surface)).run("Hi.")
            return fake.requests[0].headers["traceparent"]

    _, trace_id, span_id, _ = run(story()).split("-")
    chat = by_name(spans())["chat gemini-3.8-flash"]
    assert (int(trace_id, 16), int(span_id, 16)) == (chat.context.trace_id, chat.context.span_id)
    assert chat.attributes["gen_ai.provider.name"] == "gcp.gemini"


def test_calls_of_mcp_servers_carry_the_context_of_their_span(
    spans: Callable[[], list[Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "server.py").write_text(ENVELOPE)
    box = McpServer("box", command=[sys.executable, "-I", str(tmp_path / "server.py")], start_s=120)
    caplog.set_level(logging.DEBUG, "callgate.mcp")
    reply = run(Gate(ScriptedModel([call("meta"), "Done."]), [box], policy=Policy(default="allow")).run("Go."))
    meta = json.loads(str(reply.calls[0].result.value))
    span = by_name(spans())["execute_tool meta"]
    assert int(meta["traceparent"].split("-")[1], 16) == span.context.trace_id
    assert span.attributes["gen_ai.tool.type"] == "extension"
    logged = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("sent: ") and '"tools/call"' in line for line in logged)
    assert any(line.startswith("received: ") and "traceparent" in line for line in logged)


def test_every_kind_of_model_says_whose_it_is() -> None:
    gemini = GeminiModel("gemini-3.8-flash", api_key="k")
    openai = OpenAIModel("gpt-4.1", api_key="k", env={})
    models = [open_model(gemini), PromptedModel(openai), ModelChain([gemini, openai]), ScriptedModel([])]
    assert [provider_of_model(model) for model in models] == ["gcp.gemini", "openai", "gcp.gemini", "callgate"]


def test_without_a_tracer_provider_nothing_is_imported_and_nothing_is_sent() -> None:
    code = (
        "import asyncio, sys, json\n"
        "from callgate import Gate, ScriptedModel\n"
        "from callgate.testing import call\n"
        "def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "asyncio.run(Gate(ScriptedModel([call('add', a=1, b=2), 'Three.']), [add]).run('Go.'))\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('opentelemetry')]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == []


def test_a_provider_that_is_set_after_the_first_run_is_seen_by_the_next() -> None:
    code = (
        "import asyncio, json\n"
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "from callgate import Gate, ScriptedModel\n"
        "gate, exporter = Gate(ScriptedModel(['One.', 'Two.'])), InMemorySpanExporter()\n"
        "asyncio.run(gate.run('Go.'))\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(exporter))\n"
        "trace.set_tracer_provider(provider)\n"
        "asyncio.run(gate.run('Go.'))\n"
        "print(json.dumps([span.name for span in exporter.get_finished_spans()]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == ["chat scripted", "invoke_agent callgate"]


def test_a_provider_that_does_nothing_costs_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry import trace

    headers: dict[str, str] = {}
    telemetry.inject(headers)
    assert headers == {}
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    assert telemetry.tracing() is None


def test_nothing_but_the_context_of_the_trace_leaves_with_a_request(spans: Callable[[], list[Any]]) -> None:
    from opentelemetry import baggage, context

    async def story() -> dict[str, str]:
        async with FakeGemini(["Hello."]) as fake:
            surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
            await Gate(GeminiModel("gemini-3.8-flash", surface=surface)).run("Go.")
            return dict(fake.requests[0].headers)

    token = context.attach(baggage.set_baggage("user.email", "ada@example.com"))
    try:
        headers = asyncio.run(story())
    finally:
        context.detach(token)
    assert "traceparent" in headers
    assert "baggage" not in headers
    assert "ada" not in str(headers)


def test_the_variable_of_opentelemetry_asks_for_content_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(telemetry.CONTENT_VARIABLE, "True")
    assert telemetry._has_content()
    monkeypatch.setenv(telemetry.CONTENT_VARIABLE, "")
    assert not telemetry._has_content()


def test_debug_logs_what_was_sent_and_what_came_and_no_key(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with FakeGemini(['TOOL_CALL: look({"city": "Oslo"})', "Sunny."]) as fake:
            surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="AIza-key-42-key-42")
            gate = Gate(GeminiModel("gemini-3.8-flash", surface=surface), [look], mode="prompted")
            await gate.run("How is Oslo?")

    caplog.set_level(logging.DEBUG, "callgate")
    run(story())
    logged = [f"{record.name}: {record.getMessage()}" for record in caplog.records]
    for words in (
        "callgate.wire: request: POST http",
        "callgate.wire: answer: ",
        "callgate.prompted: the tools are declared in the prompt: ",
        "callgate.run: asking gemini-3.8-flash: contents 1, tools ['look']",
        "callgate.run: answer of gemini-3.8-flash: STOP",
        "callgate.run: call ",
    ):
        assert any(line.startswith(words) for line in logged), words
    assert "key-42" not in str(logged)
