"""OpenTelemetry spans of runs, with the names of the GenAI conventions: `invoke_agent`, `chat`, `execute_tool`.

Spans go to the program's tracer provider. Without one, or without the package, nothing is imported and next to nothing is
done. Spans have names, numbers and states; content is included only on request (`record_content`, or OpenTelemetry's
variable for it).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from callgate import user_code
from callgate.config.known_secrets import redact_known, redact_known_in
from callgate.content.collect import ModelResponse
from callgate.content.metadata import server_steps_of, step_name
from callgate.content.read import call_of, interaction_of, is_call, is_response, is_thought, parts_of, response_of, role_of
from callgate.metadata import ServerStep
from callgate.request import ModelRequest
from callgate.types import Content, FunctionCall, JsonObject, Reply, ToolDefinition, ToolResult

if TYPE_CHECKING:
    from callgate.permission.redact import Redactor

__all__ = ["ChatSpan", "RunSpans", "Spans", "inject", "record_content", "spans_of", "tracing"]

logger = logging.getLogger("callgate.telemetry")

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_CHARS_MAX = 100_000
AGENT = "callgate"

_IS_WANTED = bool(os.environ.get("OTEL_PYTHON_TRACER_PROVIDER"))
"""True if the program was started with auto-instrumentation."""

# Setting of a model -> its attribute.
_SETTINGS = {
    "temperature": "gen_ai.request.temperature", "top_p": "gen_ai.request.top_p", "top_k": "gen_ai.request.top_k",
    "max_output_tokens": "gen_ai.request.max_tokens", "seed": "gen_ai.request.seed",
    "stop_sequences": "gen_ai.request.stop_sequences", "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}  # fmt: skip
_TOOL_TYPES = {"mcp": "extension"}

_content: bool | None = None
_seen: tuple[Any, Any] = (None, None)
"""The inputs of the last look-up of the provider."""
_found: tuple[Any, Any] | None = None
"""Result of the call."""


def record_content(on: bool | None) -> None:
    """Set whether spans include content, overriding the environment; None follows that again."""
    global _content
    _content = on


def _has_content() -> bool:
    return _content if _content is not None else os.environ.get(CONTENT_VARIABLE, "").lower() in ("true", "1")


def _api() -> Any:
    """Return OpenTelemetry's `trace` module, if this program uses it; importing it otherwise is useless."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None and _IS_WANTED:
        with contextlib.suppress(ImportError):
            trace = importlib.import_module("opentelemetry.trace")
    return trace


def tracing() -> tuple[Any, Any] | None:
    """Return the module and a tracer of the program's provider; None without one."""
    global _seen, _found
    trace = _api()
    if trace is None:
        return None
    # Without a provider, the package reads the environment on every call, which takes longer than all else here. So it is
    # called only if another one was set since; a package that stores it elsewhere is called each time.
    ask, provider = trace.get_tracer_provider, getattr(trace, "_TRACER_PROVIDER", _seen)
    if ask is not _seen[0] or provider is not _seen[1]:
        _found = _tracer_of(trace, ask())
        _seen = ask, getattr(trace, "_TRACER_PROVIDER", None)
    return _found


def _tracer_of(trace: Any, provider: Any) -> tuple[Any, Any] | None:
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    from callgate import __version__

    return trace, provider.get_tracer("callgate", __version__)


def inject(headers: dict[str, str]) -> None:
    """Add the context of the current span to the headers of a request, if there is one.

    Only `traceparent` and `tracestate`, whatever propagators the program has: baggage may be confidential.
    """
    if tracing() is not None:
        module = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
        module.TraceContextTextMapPropagator().inject(headers)


class ChatSpan:
    """The span of one request to a model."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def answered(self, answer: ModelResponse, model: str) -> None:
        """Record the response."""
        usage = answer.usage
        attributes: JsonObject = {
            "gen_ai.response.model": model,
            "gen_ai.response.finish_reasons": [answer.finish_reason],
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens + usage.thought_tokens,
        }
        if usage.cached_tokens:
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        if usage.thought_tokens:
            attributes["gen_ai.usage.reasoning.output_tokens"] = usage.thought_tokens
        if isinstance(id := (interaction_of(answer.content) or {}).get("id"), str):
            attributes["gen_ai.response.id"] = id
        if _has_content():
            said = {**_message(answer.content), "finish_reason": answer.finish_reason}
            attributes["gen_ai.output.messages"] = _json([said])
        _report_safely(lambda: self._span.set_attributes(attributes))
        for step in server_steps_of(answer.content):
            self._add_step(step)

    def _add_step(self, step: ServerStep) -> None:
        """Record a step that ran at the provider."""
        attributes: JsonObject = {
            "gen_ai.tool.name": step_name(step),
            "gen_ai.tool.type": "extension",
            "callgate.server_step.kind": step.kind,
        }
        if step.id is not None:
            attributes["gen_ai.tool.call.id"] = step.id
        if step.is_error:
            attributes["error.type"] = "error"
        if _has_content():
            attributes["callgate.server_step.value"] = _json(step.value)
        _report_safely(lambda: self._span.add_event("callgate.server_step", attributes))


class RunSpans:
    """The spans of one run."""

    def __init__(self, tools: tuple[Any, Any], session: str, *, provider: str, model: str) -> None:
        self._tools = tools
        self._common: JsonObject = {"gen_ai.provider.name": provider, "gen_ai.conversation.id": redact_known(session)}
        self._model = model
        self._open: dict[str, Any] = {}
        self._run: Any = None

    @contextlib.contextmanager
    def run(self) -> Generator[None]:
        """The whole run."""
        trace, tracer = self._tools
        attributes = {
            **self._common,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": AGENT,
            "gen_ai.request.model": self._model,
        }
        name = f"invoke_agent {AGENT}"
        with self._span(
            lambda: tracer.start_as_current_span(name, kind=trace.SpanKind.INTERNAL, attributes=attributes, **_OURS)
        ) as self._run:
            yield

    def ended(self, reply: Reply) -> None:
        """Record the result of the run."""
        attributes = {
            "gen_ai.response.finish_reasons": [reply.finish_reason],
            "gen_ai.usage.input_tokens": reply.usage.input_tokens,
            "gen_ai.usage.output_tokens": reply.usage.output_tokens + reply.usage.thought_tokens,
        }
        _report_safely(lambda: self._run.set_attributes(attributes))

    @contextlib.contextmanager
    def chat(self, request: ModelRequest) -> Generator[ChatSpan]:
        """Start the span of a request to the model."""
        trace, tracer = self._tools
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
        name = f"chat {self._model}"
        with self._span(
            lambda: tracer.start_as_current_span(name, kind=trace.SpanKind.CLIENT, attributes=attributes, **_OURS)
        ) as span:
            yield ChatSpan(span)

    @contextlib.contextmanager
    def started(self, call: FunctionCall, definition: ToolDefinition | None) -> Generator[None]:
        """Start the span of a call: everything started inside belongs to it, and runs in its context."""
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
            attributes["gen_ai.tool.description"] = redact_known(definition.description)[:1_000]
        if _has_content():
            attributes["gen_ai.tool.call.arguments"] = _json(call.args)

        def start() -> Any:
            span = tracer.start_span(f"execute_tool {call.name}", kind=trace.SpanKind.INTERNAL, attributes=attributes)
            self._open[call.id] = span
            return trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

        with _contained(start):
            yield

    def finished(self, call: FunctionCall, result: ToolResult) -> None:
        """End the span of a call."""
        span = self._open.pop(call.id, None)
        if span is not None:
            _report_safely(lambda: self._finish(span, result))

    def _finish(self, span: Any, result: ToolResult) -> None:
        if result.is_error:
            _fail(self._tools[0], span, result.status, (result.error or "") if _has_content() else result.status)
        elif _has_content():
            span.set_attribute("gen_ai.tool.call.result", _json(result.value))
        span.end()

    def close(self) -> None:
        """End all open spans of the run."""
        for span in self._open.values():
            _report_safely(span.end)
        self._open.clear()

    @contextlib.contextmanager
    def _span(self, make: Callable[[], Any]) -> Generator[Any]:
        """A span around some work, marked as failed if that fails."""
        with _contained(make) as span:
            try:
                yield span
            except BaseException as error:
                kind = type(error).__qualname__
                words = user_code.text_of(error) if _has_content() else kind
                _report_safely(lambda: _fail(self._tools[0], span, kind, words))
                raise


class _NoSpan:
    """A no-op span."""

    __slots__ = ()

    def __enter__(self) -> _NoSpan:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def answered(self, answer: ModelResponse, model: str) -> None:
        """Do nothing."""


_NO_SPAN = _NoSpan()


class _NoSpans:
    """The spans of an untraced run: none. Same interface as `RunSpans`."""

    __slots__ = ()

    def run(self) -> _NoSpan:
        """The whole run."""
        return _NO_SPAN

    def ended(self, reply: Reply) -> None:
        """Do nothing."""

    def chat(self, request: ModelRequest) -> _NoSpan:
        """Return a no-op span."""
        return _NO_SPAN

    def started(self, call: FunctionCall, definition: ToolDefinition | None) -> _NoSpan:
        """A call begins."""
        return _NO_SPAN

    def finished(self, call: FunctionCall, result: ToolResult) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


Spans: TypeAlias = RunSpans | _NoSpans
NO_SPANS = _NoSpans()

# The message of an exception may include content, so `_failing` records it and not the package.
_OURS = {"record_exception": False, "set_status_on_exception": False}


def _report_safely(report: Callable[[], object]) -> None:
    """Call an exporter. Its exceptions are logged, and the run continues."""
    outcome = user_code.call(report)
    if outcome.error is not None:
        logger.error("a trace could not be reported", exc_info=outcome.error)


@contextlib.contextmanager
def _contained(make: Callable[[], Any]) -> Generator[Any]:
    """Run some work inside a span of the program's tracer; without it if the tracer fails."""
    span: Any = None
    manager: Any = None

    def enter() -> None:
        nonlocal span, manager
        manager = make()
        span = manager.__enter__()

    _report_safely(enter)
    try:
        yield span
    finally:
        if manager is not None:
            error = sys.exc_info()
            _report_safely(lambda: manager.__exit__(*error))


def spans_of(session: str, *, provider: str, model: str) -> Spans:
    """Return the spans of a run; no-ops if tracing is not set up."""
    outcome = user_code.call(tracing)
    if outcome.error is not None:
        logger.error("the tracer cannot be used", exc_info=outcome.error)
    return NO_SPANS if outcome.value is None else RunSpans(outcome.value, session, provider=provider, model=model)


@functools.cache
def _redactor() -> Redactor:
    from callgate.permission.redact import Redactor

    return Redactor()


def _fail(trace: Any, span: Any, kind: str, words: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(trace.Status(trace.StatusCode.ERROR, _redactor().text(words)[:1_000]))


def _request_settings(settings: Mapping[str, Any]) -> JsonObject:
    found = {attribute: settings[name] for name, attribute in _SETTINGS.items() if settings.get(name) is not None}
    return {name: value for name, value in found.items() if isinstance(value, (bool, int, float, str, list, tuple))}


def _message(content: Content) -> JsonObject:
    role = "assistant" if role_of(content) == "model" else "user"
    return {"role": role, "parts": list(_message_parts(parts_of(content)))}


def _message_parts(items: Sequence[JsonObject]) -> Iterable[JsonObject]:
    for part in items:
        if is_call(part):
            call = call_of(part)
            yield {"type": "tool_call", "id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}
        elif is_response(part):
            response = response_of(part)
            yield {"type": "tool_call_response", "id": response.get("id"), "response": response.get("response")}
        elif isinstance(part.get("text"), str):
            yield {"type": "reasoning" if is_thought(part) else "text", "content": part["text"]}
        else:
            yield {"type": "blob"}


def _json(value: Any) -> str:
    text = _redactor().text(json.dumps(redact_known_in(value), ensure_ascii=False, default=repr))
    return text if len(text) <= CONTENT_CHARS_MAX else f"{text[:CONTENT_CHARS_MAX]}…"
