"""Faults of the Messages API, as a table of script steps.

Transport faults (`W07`, `W29`, ...) are those of the fake Gemini; the rows here are specific to this API.

    FakeAnthropic([fault("A04"), "At last."])             # or fault("overloaded"); then the answer
"""

from __future__ import annotations

from typing import Any

from callgate.testing import faults
from callgate.testing.answers import encode_json
from callgate.testing.fault_row import Act, Fault, FaultStep, row, step_of
from callgate.testing.message_exchange import MessageExchange
from callgate.testing.message_rules import MessageRefusal

__all__ = ["MESSAGE_FAULTS", "fault"]


def _refused(status: int, message: str, **headers: str) -> Act:
    """An error in Anthropic's form. `{model}` and `{key}` in the message are replaced."""

    async def act(exchange: MessageExchange) -> None:
        key = exchange.request.headers.get("x-api-key", "")
        told = message.replace("{model}", exchange.request.model).replace("{key}", key)
        await exchange.refuse(MessageRefusal(message=told, status=status), **headers)

    return act


async def _error_in_stream(exchange: MessageExchange) -> None:
    """Half of an answer, then an event that says that the server is overloaded."""
    messages = exchange.messages(exchange.plan())
    refusal = MessageRefusal(message="Overloaded", status=529)
    await exchange.send_messages([*messages[: len(messages) // 2], encode_json(refusal.body)])


def _bad_arguments(text: str) -> Act:
    async def act(exchange: MessageExchange) -> None:
        name, _ = exchange.tool_call()
        block: dict[str, Any] = {"type": "tool_use", "id": "toolu_bad", "name": name, "input": {}}
        usage = {"input_tokens": 1, "output_tokens": 1}
        message: dict[str, Any] = {"id": "msg_bad", "type": "message", "role": "assistant", "content": []}
        message["model"] = exchange.request.model
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": message | {"stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        await exchange.send_messages([encode_json(event) for event in events])

    return act


MESSAGE_FAULTS: tuple[Fault, ...] = (
    row("A01", "rate_limited", "too many requests", _refused(
        429, "This request would exceed your organization's rate limit.", retry_after="2")),
    row("A02", "bad_key", "a key that is not valid", _refused(401, "invalid x-api-key: {key}")),
    row("A03", "no_model", "a model that does not exist", _refused(404, "model: {model}")),
    row("A04", "overloaded", "a server without capacity", _refused(529, "Overloaded")),
    row("A05", "server_error", "an internal error", _refused(500, "Internal server error")),
    row("A06", "too_long", "more tokens than the model takes", _refused(
        400, "prompt is too long: 210000 tokens > 200000 maximum")),
    row("A07", "no_credit", "no credit left", _refused(
        400, "Your credit balance is too low to access the Anthropic API.")),
    row("A08", "no_permission", "a key without rights", _refused(403, "Your API key does not have permission.")),
    row("A09", "too_large", "a body that is too large", _refused(413, "Request exceeds the maximum size")),
    row("A10", "bad_tool", "a tool that is refused", _refused(400, "tools.0.custom.input_schema: JSON schema is invalid")),
    row("A11", "error_in_stream", "an error after the beginning of an answer", _error_in_stream),
    row("A12", "bad_arguments", "arguments that are no object", {
        "cut": _bad_arguments('{"a": 1, "b'), "list": _bad_arguments("[1, 2]"), "prose": _bad_arguments("a is 1"),
    }),
)  # fmt: skip
"""Faults of the Messages API, by row."""

_BY_NAME = {key: each for each in MESSAGE_FAULTS for key in (each.row, each.name)}


def fault(name: str, variant: str | None = None, **options: Any) -> FaultStep:
    """Return a script step with a known fault: a row of this table, or a transport fault (see `callgate.testing.faults`).

    Raises:
        UsageError: there is no such fault or variant.
    """
    own, _, inline = name.partition(":")
    found = _BY_NAME.get(own)
    if found is None:
        return faults.fault(name, variant, **options)
    return step_of(found, variant or inline, name, **options)
