"""Faults of chat completion servers, as a table of script steps.

Transport faults (`W07`, `W29`, ...) are those of the fake Gemini; the rows here are specific to this API: its errors, and
the deviations of its imitators.

    FakeOpenAI([fault("O01"), "At last."])                # or fault("rate_limited"); then the answer
    FakeOpenAI([fault("no_ids", answer=call("add", a=1, b=2))])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from callgate.testing import faults
from callgate.testing.answers import Answer, calls, text
from callgate.testing.chat_exchange import ChatExchange
from callgate.testing.chat_rules import ChatRefusal
from callgate.testing.fault_row import Act, Fault, row

__all__ = ["CHAT_FAULTS", "fault"]


def _refused(
    status: int, message: str, *, type: str = "invalid_request_error", code: str | None = None, **headers: str
) -> Act:
    """An error in OpenAI's form. `{model}` and `{key}` in the message are replaced."""

    async def act(exchange: ChatExchange) -> None:
        key = exchange.request.headers.get("authorization", "").removeprefix("Bearer ")
        told = message.replace("{model}", exchange.request.model).replace("{key}", key)
        await exchange.refuse(ChatRefusal(message=told, status=status, type=type, code=code), **headers)

    return act


def _two_calls(exchange: ChatExchange) -> Answer:
    name, args = exchange.tool_call()
    return calls((name, args), (name, args))


def _written(*, default: Callable[[ChatExchange], Any] = _two_calls, **changes: Any) -> Act:
    """An honest answer in a strange hand: two calls of the first tool, unless the step has another answer."""

    async def act(exchange: ChatExchange) -> None:
        exchange.style = replace(exchange.style, **changes)
        await exchange.answer(exchange.plan(default(exchange)))

    return act


def _bad_arguments(arguments: Any) -> Act:
    async def act(exchange: ChatExchange) -> None:
        name, _ = exchange.tool_call()
        function = {"name": name, "arguments": arguments}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_bad", "type": "function", "function": function}],
        }
        await exchange.answer(exchange.message(message, "tool_calls"))

    return act


def _sends(message: dict[str, Any], reason: str | None) -> Act:
    async def act(exchange: ChatExchange) -> None:
        await exchange.answer(exchange.message({"role": "assistant"} | message, reason))

    return act


async def _broken_json(exchange: ChatExchange) -> None:
    messages = exchange.messages(exchange.plan())
    await exchange.send_messages([message[: len(message) // 2] for message in messages])


async def _error_in_stream(exchange: ChatExchange) -> None:
    late = b'{"error": {"message": "The server had an error while processing your request.", "type": "server_error"}}'
    await exchange.send_messages([*exchange.messages(exchange.plan())[:2], late] if exchange.request.streaming else [late])


_WRONG_KEY = "Incorrect API key provided: {key}. You can find your API key at https://platform.openai.com/account/api-keys."
_NO_CREDIT = "You exceeded your current quota, please check your plan and billing details."
_TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
_OVERLOADED = "The server had an error while processing your request. Sorry about that!"
_SCHEMA = "Invalid schema for function 'add': None is not of type 'object', 'boolean'."

CHAT_FAULTS: tuple[Fault, ...] = (
    row("O01", "rate_limited", "429", {
        "seconds": _refused(429, "Rate limit reached.", type="requests", code="rate_limit_exceeded", Retry_After="2"),
        "milliseconds": _refused(
            429, "Rate limit reached.", type="tokens", code="rate_limit_exceeded", Retry_After_Ms="1500"),
        "bare": _refused(429, "Rate limit reached.", type="requests", code="rate_limit_exceeded"),
    }),
    row("O02", "insufficient_quota", "429 that no wait ends", _refused(
        429, _NO_CREDIT, type="insufficient_quota", code="insufficient_quota"), times=None),
    row("O03", "wrong_key", "401", _refused(401, _WRONG_KEY, code="invalid_api_key"), times=None),
    row("O04", "no_model", "404", {
        "openai": _refused(
            404, "The model `{model}` does not exist or you do not have access to it.", code="model_not_found"),
        "ollama": _refused(404, 'model "{model}" not found, try pulling it first', type="api_error"),
        "no_path": _refused(404, "404 page not found", type="not_found_error"),
    }, times=None),
    row("O05", "too_long", "the conversation is longer than the model takes", {
        "openai": _refused(400, _TOO_LONG, code="context_length_exceeded"),
        "llama.cpp": _refused(400, "request (15030 tokens) exceeds the available context size (2048 tokens)",
                              type="exceed_context_size_error"),
    }, times=None),
    row("O06", "no_tools", "the model has no tools", {
        "ollama": _refused(400, "registry.ollama.ai/library/{model} does not support tools", type="api_error"),
        "llama.cpp": _refused(500, "tools param requires --jinja flag", type="server_error"),
        "vllm": _refused(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
                         type="BadRequestError"),
    }, times=None),
    row("O07", "server_error", "500, twice", _refused(500, _OVERLOADED, type="server_error"), times=2),
    row("O08", "bad_schema", "400 because of a declaration", _refused(
        400, _SCHEMA, code="invalid_function_parameters"), times=None),
    row("O09", "wants_differently", "400 that says what would be taken instead, once", {
        "max_completion_tokens": _refused(400, "Unsupported parameter: 'max_tokens' is not supported with this model. "
                                          "Use 'max_completion_tokens' instead.", code="unsupported_parameter"),
        "max_tokens": _refused(400, "Unrecognized request argument supplied: max_completion_tokens"),
        "stream_options": _refused(400, "Unrecognized request argument supplied: stream_options"),
        "no_stream": _refused(500, "Cannot use tools with stream", type="server_error"),
        "description": _refused(400, "Invalid 'tools[0].function.description': string too long. Expected a string with "
                                "maximum length 1024, but got a string with length 4000 instead.",
                                code="string_above_max_length"),
        "tool_choice": _refused(400, "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"),
    }),
    row("O10", "content_filter", "the prompt is blocked", _refused(
        400, "The response was filtered due to the prompt triggering content management policy.", code="content_filter"),
        times=None),
    row("O11", "odd_error", "errors in other forms than OpenAI's", {
        "text": lambda exchange: exchange.send_json({"error": "the runner has crashed"}, 500),
        "vllm": lambda exchange: exchange.send_json(
            {"object": "error", "message": "bad sampling", "type": "BadRequestError", "param": None, "code": 400}, 400),
        "detail": lambda exchange: exchange.send_json({"detail": "Not Found"}, 404),
    }),
    row("O20", "no_ids", "calls without ids", _written(ids=False)),
    row("O21", "args_object", "arguments as an object", _written(object_args=True)),
    row("O22", "empty_args", "no arguments, written as an empty text", _written(empty_args=True)),
    row("O23", "split_names", "names in pieces", _written(name_pieces=3)),
    row("O24", "repeated_names", "the whole name in every piece", _written(repeats_name=True)),
    row("O25", "index", "pieces of calls that are numbered wrongly, or not", {
        "missing": _written(index="missing"), "zero": _written(index="zero"),
        "missing_whole": _written(index="missing", args_chars=None), "zero_whole": _written(index="zero", args_chars=None),
        "nothing": _written(index="missing", ids=False),
        "nothing_whole": _written(index="missing", ids=False, args_chars=None),
    }),
    row("O26", "one_char", "arguments a character at a time", _written(args_chars=1)),
    row("O27", "first_chunks", "streams that begin with a chunk that says nothing", {
        "empty_choices": _written(empty_choices_first=True), "no_role": _written(role_alone=False),
    }),
    row("O28", "no_done", "a stream without its last word", _written(done=False)),
    row("O29", "no_finish", "an answer without a finish reason", _written(finish=False)),
    row("O30", "refusal", "the model refuses", _written(default=lambda _: text("I cannot help with that."), refuses=True)),
    row("O31", "odd_finish", "finish reasons", {
        "length": _sends({"content": "cut"}, "length"), "filter": _sends({"content": "cut"}, "content_filter"),
        "unknown": _sends({"content": "odd"}, "insufficient_system_resource"), "upper": _sends({"content": "fine"}, "STOP"),
    }),
    row("O32", "bad_arguments", "arguments that are no object", {
        "cut": _bad_arguments('{"a": 1, "b'), "list": _bad_arguments("[1, 2]"), "prose": _bad_arguments("a is 1"),
        "nan": _bad_arguments('{"a": NaN}'), "null": _bad_arguments("null"), "number": _bad_arguments(7),
    }),
    row("O33", "no_choices", "an answer without choices", lambda exchange: exchange.send_messages([b'{"choices": []}'])),
    row("O34", "broken_json", "JSON that is cut off in every event", _broken_json),
    row("O35", "error_in_stream", "an error after the beginning of an answer", _error_in_stream),
    row("O36", "blocks", "content as a list of blocks", _sends(
        {"content": [{"type": "text", "text": "In blocks."}]}, "stop")),
    row("O37", "legacy_call", "a call in the form before tools", _sends(
        {"content": None, "function_call": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}, "function_call")),
)  # fmt: skip
"""Faults of chat completions, by row."""

fault = faults.fault_of(CHAT_FAULTS)
"""Make a script step with a fault of this table, or of the transport (see `callgate.testing.faults`)."""
