"""`/v1/chat/completions`, `/v1/embeddings` and `/v1/models`: the service for clients of OpenAI, in OpenAI's words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.server.body import MESSAGES_MAX, off_loop, read_json
from callgate.server.compat import gemini
from callgate.server.compat.chat_answer import Pieces, WholeCompletion
from callgate.server.compat.chat_request import compat_request_of
from callgate.server.compat.embeddings import OPENAI_ANSWER, OPENAI_REQUEST, embed_inputs
from callgate.server.compat.prompts import begin, description_of, model_names, named_session
from callgate.server.compat.streaming import Encoder, StreamingReply
from callgate.server.errors import is_googles, json_response
from callgate.server.openapi import SESSION_HEADER, Operation, table
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

TOOLS_MAX = 1_000
OBJECTS: JsonObject = {"type": ["array", "null"], "items": {"type": "object"}, "maxItems": TOOLS_MAX}
REQUEST: JsonObject = {
    "type": "object",
    "description": "OpenAI's chat completion.",
    "required": ["model", "messages"],
    "properties": {
        "model": {"type": "string", "minLength": 1, "maxLength": 200},
        "messages": {
            "type": "array",
            "minItems": 1,
            "maxItems": MESSAGES_MAX,
            "items": {"type": "object", "required": ["role"], "properties": {"role": {"type": "string"}}},
        },
        "tools": OBJECTS,
        "functions": OBJECTS,
        "tool_choice": {"type": ["string", "object", "null"]},
        "function_call": {"type": ["string", "object", "null"]},
        "stream": {"type": ["boolean", "null"]},
        "stream_options": {"type": ["object", "null"]},
        "n": {"type": ["integer", "null"]},
    },
}
ANSWER: JsonObject = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {"choices": {"type": "array"}, "usage": {"type": ["object", "null"]}},
}
MODEL: JsonObject = {"type": "object", "required": ["id", "object", "created", "owned_by"]}
PROBLEM: JsonObject = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "code": {"type": "string"}},
        }
    },
}


async def complete(service: Service, request: Request) -> Response:
    """Answer as chat completions do, with the service's tools unless the request declares its own.

    Calls of the service's tools are run here and not shown; calls of the request's own come back to the client. If a call
    needs approval, a sentence says so; the header Callgate-Session names the session to continue.
    """
    body = await read_json(request, REQUEST)
    wanted = await off_loop(request, partial(compat_request_of, body, session=named_session(request)))
    begun = await begin(service, wanted, request)
    options = cast("dict[str, Any]", body.get("stream_options") or {})
    is_old = bool(body.get("functions")) and not body.get("tools")
    encoder: Encoder = WholeCompletion(wanted.model, begun.id, functions=is_old)
    if wanted.stream:
        encoder = Pieces(wanted.model, begun.id, counts=bool(options.get("include_usage")), functions=is_old)
    return StreamingReply(begun.chunks, encoder, service.options, begun.headers, begun.failure_headers)


async def models(service: Service, request: Request) -> Response:
    """The models that can be asked for; `callgate` is whichever the service was started with.

    Clients of Gemini ask at the same place, and are answered as Google does.
    """
    if is_googles(request.scope):
        return await gemini.models(service, request)
    return json_response({"object": "list", "data": [_model(service, name) for name in model_names(service)]})


async def model(service: Service, request: Request) -> Response:
    """One model."""
    if is_googles(request.scope):
        return await gemini.model(service, request)
    name = request.path_params["model"]
    await description_of(service, name)
    return json_response(_model(service, name))


def _model(service: Service, name: str) -> JsonObject:
    return {"id": name, "object": "model", "created": int(service.began_s), "owned_by": "callgate"}


OPERATIONS = (
    Operation(
        "POST", "/v1/chat/completions", complete, takes=REQUEST, gives={200: ANSWER}, streams=True,
        runs=True, headers=SESSION_HEADER,
        fails=(409, 410, 500, 502, 504), problem=PROBLEM,
    ),
    Operation(
        "POST", "/v1/embeddings", embed_inputs, takes=OPENAI_REQUEST, gives={200: OPENAI_ANSWER},
        fails=(500, 502, 504), problem=PROBLEM,
    ),
    Operation(
        "GET", "/v1/models", models, problem=PROBLEM,
        gives={200: {"type": "object", "required": ["object", "data"], "properties": {"data": {"type": "array"}}}},
    ),
    Operation("GET", "/v1/models/{model:path}", model, gives={200: MODEL}, problem=PROBLEM),
)  # fmt: skip


def routes(service: Service) -> list[Route]:
    """The routes for clients of OpenAI."""
    return table(service, OPERATIONS)
