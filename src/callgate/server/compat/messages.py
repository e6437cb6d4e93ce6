"""`/v1/messages` and `/v1/messages/count_tokens`: the service for clients of Anthropic, in Anthropic's words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.server.body import MESSAGES_MAX, off_loop, read_json
from callgate.server.compat.gemini import counted_tokens
from callgate.server.compat.messages_answer import MessageEvents, WholeMessage
from callgate.server.compat.messages_request import messages_request_of
from callgate.server.compat.prompts import begin, gate_named, named_session
from callgate.server.compat.streaming import Encoder, StreamingReply
from callgate.server.errors import json_response
from callgate.server.openapi import SESSION_HEADER, Operation, table
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

TOOLS_MAX = 1_000
_COUNTED: JsonObject = {
    "model": {"type": "string", "minLength": 1, "maxLength": 200},
    "messages": {
        "type": "array",
        "minItems": 1,
        "maxItems": MESSAGES_MAX,
        "items": {"type": "object", "required": ["role", "content"], "properties": {"role": {"type": "string"}}},
    },
    "system": {"type": ["string", "array", "null"]},
    "tools": {"type": ["array", "null"], "items": {"type": "object"}, "maxItems": TOOLS_MAX},
    "tool_choice": {"type": ["object", "null"]},
    "thinking": {"type": ["object", "null"]},
    "output_config": {"type": ["object", "null"]},
}
REQUEST: JsonObject = {
    "type": "object",
    "description": "Anthropic's Messages request.",
    "required": ["model", "messages", "max_tokens"],
    "properties": {
        **_COUNTED, "max_tokens": {"type": "integer", "minimum": 1}, "stream": {"type": ["boolean", "null"]},
        "stop_sequences": {"type": ["array", "null"], "items": {"type": "string"}},
    },
}  # fmt: skip
COUNT: JsonObject = {"type": "object", "required": ["model", "messages"], "properties": _COUNTED}
ANSWER: JsonObject = {
    "type": "object",
    "required": ["id", "type", "role", "content", "model", "stop_reason", "usage"],
    "properties": {"content": {"type": "array"}, "usage": {"type": "object"}},
}
PROBLEM: JsonObject = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
    },
}


async def create(service: Service, request: Request) -> Response:
    """Answer as Anthropic's Messages API does, with the service's tools unless the request declares its own.

    Calls of the service's tools are run here and not shown; calls of the request's own come back as `tool_use`. If a call
    needs approval, a sentence says so; the header Callgate-Session names the session to continue.
    """
    body = await read_json(request, REQUEST)
    wanted = await off_loop(request, partial(messages_request_of, body, session=named_session(request)))
    begun = await begin(service, wanted, request)
    kind = MessageEvents if wanted.stream else WholeMessage
    encoder: Encoder = kind(wanted.model, begun.id)
    return StreamingReply(begun.chunks, encoder, service.options, begun.headers, begun.failure_headers)


async def count(service: Service, request: Request) -> Response:
    """Count the tokens of a request: with the model if it can, else an estimate by bytes."""
    body = await read_json(request, COUNT)
    gate = await gate_named(service, body["model"])
    wanted = await off_loop(request, partial(messages_request_of, body, session=None))
    tokens = await counted_tokens(gate, wanted.contents, wanted.definitions, wanted.built_in, wanted.system)
    return json_response({"input_tokens": tokens})


OPERATIONS = (
    Operation(
        "POST", "/v1/messages", create, takes=REQUEST, gives={200: ANSWER}, streams=True,
        runs=True, headers=SESSION_HEADER,
        fails=(409, 410, 500, 502, 504), problem=PROBLEM,
    ),
    Operation(
        "POST", "/v1/messages/count_tokens", count, takes=COUNT, problem=PROBLEM, fails=(502, 504),
        gives={200: {"type": "object", "required": ["input_tokens"], "properties": {"input_tokens": {"type": "integer"}}}},
    ),
)  # fmt: skip


def routes(service: Service) -> list[Route]:
    """The routes for clients of Anthropic."""
    return table(service, OPERATIONS)
