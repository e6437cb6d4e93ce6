"""Runs as OpenTelemetry spans, by the names of the GenAI conventions: `invoke_agent`, `chat`, `execute_tool`.

What happens in a run comes in, spans go out to whatever tracer provider the program has set up. Without one, or without the
package, nothing is imported and next to nothing is done. Spans hold names, numbers and states; what was said, asked and
answered is in them only where content was asked for (`record_content`, or the variable that OpenTelemetry has for it).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from callgate import parts
from callgate.calls import Answer
from callgate.request import ModelRequest
from callgate.types import Content, FunctionCall, JsonObject, Reply, ToolDefinition, ToolResult

__all__ = ["ChatSpan", "RunSpans", "inject", "record_content"]

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_CHARS_MAX = 100_000
AGENT = "callgate"

# Setting of a model -> its attribute.
_SETTINGS = {
    "temperature": "gen_ai.request.temperature", "top_p": "gen_ai.request.top_p", "top_k": "gen_ai.request.top_k",
    "max_output_tokens": "gen_ai.request.max_tokens", "seed": "gen_ai.request.seed",
    "stop_sequences": "gen_ai.request.stop_sequences", "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}  # fmt: skip
_TOOL_TYPES = {"mcp": "extension"}

_content: bool | None = None
_tracers: dict[int, tuple[Any, Any]] = {}


def record_content(on: bool | None) -> None:
    """Says whether spans hold what was said, whatever the environment says; None goes by that again."""
    global _content
    _content = on


def _has_content() -> bool:
    return _content if _content is not None else os.environ.get(CONTENT_VARIABLE, "").lower() in ("true", "1")


def _api() -> Any:
    """OpenTelemetry's `trace` module, if something in this program uses it; importing it would help nobody else."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None and os.environ.get("OTEL_PYTHON_TRACER_PROVIDER"):
        with contextlib.suppress(ImportError):
            trace = importlib.import_module("opentelemetry.trace")
    return trace


def _tracer() -> tuple[Any, Any] | None:
    """The module and a tracer of the program's provider; None where it has none."""
    trace = _api()
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    known = _tracers.get(id(provider))
    if known is None or known[0] is not provider:
        from callgate import __version__

        known = _tracers[id(provider)] = (provider, provider.get_tracer("callgate", __version__))
    return trace, known[1]


def inject(headers: dict[str, str]) -> None:
    """Adds the context of the current span to the headers of a request, if there is one."""
    if _tracer() is not None:
        importlib.import_module("opentelemetry.propagate").inject(headers)


class ChatSpan:
    """The span of one request to a model."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def answered(self, answer: Answer, model: str) -> None:
        """Takes in what came back."""
        if self._span is None:
            return
        usage = answer.usage
        attributes: JsonObject = {
            "gen_ai.response.model": model,
            "gen_ai.response.finish_reasons": [answer.finish_reason],
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens + usage.thought_tokens,
        }
        if usage.cached_tokens:
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        if usage.thought_tokens:
            attributes["gen_ai.usage.reasoning.output_tokens"] = usage.thought_tokens
        if _has_content():
            said = {**_message(answer.content), "finish_reason": answer.finish_reason}
            attributes["gen_ai.output.messages"] = _json([said])
        self._span.set_attributes(attributes)


_NO_RUN_SPAN = contextlib.nullcontext()
_NO_CHAT_SPAN = contextlib.nullcontext(ChatSpan(None))


class RunSpans:
    """The spans of one run."""

    def __init__(self, session: str, *, provider: str, model: str) -> None:
        self._tools = _tracer()
        self._common: JsonObject = {"gen_ai.provider.name": provider, "gen_ai.conversation.id": session}
        self._model = model
        self._open: dict[str, Any] = {}
        self._run: Any = None

    def run(self) -> contextlib.AbstractContextManager[None]:
        """The whole run."""
        return _NO_RUN_SPAN if self._tools is None else self._run_span(*self._tools)

    @contextlib.contextmanager
    def _run_span(self, trace: Any, tracer: Any) -> Generator[None]:
        attributes = {
            **self._common,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": AGENT,
            "gen_ai.request.model": self._model,
        }
        with (
            tracer.start_as_current_span(
                f"invoke_agent {AGENT}", kind=trace.SpanKind.INTERNAL, attributes=attributes, **_OURS
            ) as self._run,
            self._failing(self._run),
        ):
            yield

    def ended(self, reply: Reply) -> None:
        """Takes in what the run came to."""
        if self._run is not None:
            self._run.set_attributes(
                {
                    "gen_ai.response.finish_reasons": [reply.finish_reason],
                    "gen_ai.usage.input_tokens": reply.usage.prompt_tokens,
                    "gen_ai.usage.output_tokens": reply.usage.output_tokens + reply.usage.thought_tokens,
                }
            )

    def chat(self, request: ModelRequest) -> contextlib.AbstractContextManager[ChatSpan]:
        """One request to the model."""
        return _NO_CHAT_SPAN if self._tools is None else self._chat_span(request, *self._tools)

    @contextlib.contextmanager
    def _chat_span(self, request: ModelRequest, trace: Any, tracer: Any) -> Generator[ChatSpan]:
        attributes: JsonObject = {
            **self._common,
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self._model,
            "gen_ai.request.stream": request.stream,
            "gen_ai.output.type": "text" if request.output is None else "json",
            **_request_settings(request.settings),
        }
        if _has_content():
            attributes["gen_ai.input.messages"] = _json([_message(content) for content in request.contents])
            if request.system:
                attributes["gen_ai.system_instructions"] = _json([{"type": "text", "content": request.system}])
        with (
            tracer.start_as_current_span(
                f"chat {self._model}", kind=trace.SpanKind.CLIENT, attributes=attributes, **_OURS
            ) as span,
            self._failing(span),
        ):
            yield ChatSpan(span)

    @contextlib.contextmanager
    def started(self, call: FunctionCall, definition: ToolDefinition | None) -> Generator[None]:
        """A call begins: what is started in here belongs to it, and goes on in its context."""
        if self._tools is None:
            yield
            return
        trace, tracer = self._tools
        kind = definition.kind if definition is not None else "function"
        attributes: JsonObject = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": _TOOL_TYPES.get(kind, "function"),
            "gen_ai.conversation.id": self._common["gen_ai.conversation.id"],
        }
        if definition is not None and definition.description:
            attributes["gen_ai.tool.description"] = definition.description[:1_000]
        if _has_content():
            attributes["gen_ai.tool.call.arguments"] = _json(call.args)
        span = tracer.start_span(f"execute_tool {call.name}", kind=trace.SpanKind.INTERNAL, attributes=attributes)
        self._open[call.id] = span
        with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            yield

    def finished(self, call: FunctionCall, result: ToolResult) -> None:
        """A call is over."""
        span = self._open.pop(call.id, None)
        if span is None or self._tools is None:
            return
        if result.is_error:
            _fail(self._tools[0], span, result.status, (result.error or "") if _has_content() else result.status)
        elif _has_content():
            span.set_attribute("gen_ai.tool.call.result", _json(result.value))
        span.end()

    def close(self) -> None:
        """The run is over: no span of it stays open."""
        for span in self._open.values():
            span.end()
        self._open.clear()

    @contextlib.contextmanager
    def _failing(self, span: Any) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            assert self._tools is not None
            _fail(self._tools[0], span, type(error).__qualname__, str(error) if _has_content() else type(error).__qualname__)
            raise


# What an exception says may hold what was said, so it is written down by `_failing` and not by the package.
_OURS = {"record_exception": False, "set_status_on_exception": False}


def _fail(trace: Any, span: Any, kind: str, words: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(trace.Status(trace.StatusCode.ERROR, words[:1_000]))


def _request_settings(settings: Mapping[str, Any]) -> JsonObject:
    found = {attribute: settings[name] for name, attribute in _SETTINGS.items() if settings.get(name) is not None}
    return {name: value for name, value in found.items() if isinstance(value, (bool, int, float, str, list, tuple))}


def _message(content: Content) -> JsonObject:
    role = "assistant" if parts.role_of(content) == "model" else "user"
    return {"role": role, "parts": list(_said(parts.parts_of(content)))}


def _said(items: Sequence[JsonObject]) -> Iterable[JsonObject]:
    for part in items:
        if parts.is_call(part):
            call = parts.call_of(part)
            yield {"type": "tool_call", "id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}
        elif parts.is_response(part):
            response = parts.response_of(part)
            yield {"type": "tool_call_response", "id": response.get("id"), "response": response.get("response")}
        elif isinstance(part.get("text"), str):
            yield {"type": "reasoning" if parts.is_thought(part) else "text", "content": part["text"]}
        else:
            yield {"type": "blob"}


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= CONTENT_CHARS_MAX else f"{text[:CONTENT_CHARS_MAX]}…"
