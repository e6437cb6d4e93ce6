"""`/v1beta/models/...`, and the same at `/v1`: the service for clients of Gemini, in Google's words, errors included."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate import strict_json
from callgate.content.read import ROLES, parts_of, role_of
from callgate.declaration import declare
from callgate.errors import BlockedError
from callgate.gemini.incoming import Incoming, blocked, read_request
from callgate.history.conversation import Conversation
from callgate.machine.machine import TOKENS_PER_BYTE
from callgate.models import Embeddings, ModelRequest, count_tokens
from callgate.run.gate import Gate
from callgate.server.body import MESSAGES_MAX, off_loop, read_json
from callgate.server.compat.accepted_parts import Carry, PartTable, as_is, check_ids, needs
from callgate.server.compat.embeddings import INPUTS_MAX, embedded
from callgate.server.compat.prompts import (
    CompatRequest,
    begin,
    description_of,
    gate_named,
    model_names,
    named_session,
    whole,
)
from callgate.server.compat.streaming import Encoder, StreamingReply, WholeAnswer
from callgate.server.errors import HttpError, json_response
from callgate.server.openapi import SESSION_HEADER, Operation, table
from callgate.types import Content, JsonObject, ToolDefinition

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["counted_tokens", "model", "models", "routes"]

LIMITS = ("inputTokenLimit", "outputTokenLimit")
PAGE_MAX = 1_000
METHODS = ("generateContent", "streamGenerateContent", "countTokens")
CONTENT: JsonObject = {
    "type": "object",
    "properties": {
        "role": {"type": "string"},
        "parts": {"anyOf": [{"type": "array", "items": {"type": "object"}, "maxItems": MESSAGES_MAX}, {"type": "object"}]},
    },
}
_TURN: JsonObject = {
    **CONTENT,
    "properties": {**CONTENT["properties"], "role": {"enum": [*ROLES, ""]}},
}
REQUEST: JsonObject = {
    "type": "object",
    "description": "Google's GenerateContentRequest.",
    "required": ["contents"],
    "properties": {
        "contents": {"anyOf": [{"type": "array", "items": _TURN, "minItems": 1, "maxItems": MESSAGES_MAX}, _TURN]},
        "tools": {"type": "array", "items": {"type": "object"}, "maxItems": 1_000},
        "toolConfig": {"type": "object"},
        "systemInstruction": {"anyOf": [CONTENT, {"type": "string"}]},
        "generationConfig": {"type": "object"},
        "safetySettings": {"type": "array", "items": {"type": "object"}},
    },
}
COUNT: JsonObject = {
    "type": "object",
    "properties": {"contents": REQUEST["properties"]["contents"], "generateContentRequest": {"type": "object"}},
}
EMBED: JsonObject = {
    "type": "object",
    "description": "Google's EmbedContentRequest.",
    "required": ["content"],
    "properties": {"content": {"type": "object"}},
}
EMBED_BATCH: JsonObject = {
    "type": "object",
    "description": "Google's BatchEmbedContentsRequest.",
    "required": ["requests"],
    "properties": {"requests": {"type": "array", "items": EMBED, "minItems": 1, "maxItems": INPUTS_MAX}},
}
ANSWER: JsonObject = {"type": "object", "description": "Google's GenerateContentResponse."}
MODEL: JsonObject = {
    "type": "object",
    "required": ["name", "supportedGenerationMethods"],
    "properties": {"name": {"type": "string"}, "supportedGenerationMethods": {"type": "array"}},
}
PROBLEM: JsonObject = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "status"],
            "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "status": {"type": "string"}},
        }
    },
}


_MODIFIERS = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
"""Fields of a part that say something about the others."""
_WITH_IDS = ("functionCall", "functionResponse", "executableCode", "codeExecutionResult", "toolCall", "toolResponse")


def _with_id(name: str) -> Carry:
    """Carry a call or a result as it is, if its id can be one."""

    def carry(part: JsonObject, where: str) -> list[JsonObject]:
        if isinstance(inner := part.get(name), dict):
            check_ids(cast("JsonObject", inner), f"{where}.{name}")
        return [part]

    return carry


_TAKEN: Mapping[str, Carry] = {
    "text": as_is,
    "inlineData": needs("data", within="inlineData"),
    "fileData": needs("fileUri", within="fileData"),
    **{name: _with_id(name) for name in _WITH_IDS},
}
"""The parts of a content, by the field that holds their data, and how each is carried."""


def _kind_of(part: JsonObject) -> str | None:
    """The field that holds the data of a part; None if it has none."""
    fields = [name for name, value in part.items() if value is not None and name not in _MODIFIERS]
    return next((name for name in fields if name in _TAKEN), fields[0] if fields else None)


_PARTS = PartTable("part", _TAKEN, kind_of=_kind_of, field="")


def _read(body: JsonObject) -> Incoming:
    """Read a request, and refuse parts that no model would be sent."""
    incoming = read_request(body)
    for place, content in enumerate(incoming.contents):
        _PARTS.carried(content["parts"], f"contents[{place}].parts")
    return incoming


async def generate(service: Service, request: Request) -> Response:
    """Answer as Gemini does, with the service's tools unless the request declares its own.

    Calls of the service's tools are run here and not shown; calls of the request's own come back to the client. If a call
    needs approval, a sentence says so; the header Callgate-Session names the session to continue.
    """
    return await _answer(service, request, Whole())


async def stream(service: Service, request: Request) -> Response:
    """Stream generateContent: events with `alt=sse`, otherwise the elements of a JSON array."""
    return await _answer(service, request, Events() if request.query_params.get("alt") == "sse" else Elements())


async def count(service: Service, request: Request) -> Response:
    """Count the tokens of a request: with the model if it can, else an estimate by bytes."""
    body = await read_json(request, COUNT)
    inner = body.get("generateContentRequest") or body.get("generate_content_request") or body
    gate = await gate_named(service, request.path_params["model"])
    asked = await off_loop(request, partial(_read, inner))
    tokens = await counted_tokens(gate, asked.contents, asked.definitions, asked.built_in, asked.system)
    return json_response({"totalTokens": tokens})


async def counted_tokens(
    gate: Gate,
    contents: Sequence[Content],
    definitions: Sequence[ToolDefinition],
    built_in: Sequence[JsonObject],
    system: str | None,
) -> int:
    """Count the tokens of a request, with the model or as an estimate."""
    asked = ModelRequest(
        conversation=Conversation(contents),
        definitions=tuple(definitions),
        declaration=declare(definitions, built_in=built_in),
        system=system,
        stream=False,
    )
    counted = await count_tokens(gate.model, asked)
    if counted is None:
        size = asked.conversation.size_bytes + len(strict_json.dump([asked.declaration.tools, system or ""]))
        counted = round(size * TOKENS_PER_BYTE)
    return counted


async def embed_content(service: Service, request: Request) -> Response:
    """Embed one content, as Gemini does, with a model that has embeddings."""
    body = await read_json(request, EMBED)
    found = await embedded(service, request.path_params["model"], [_without_model(body)])
    return json_response({"embedding": {"values": found.vectors[0]}, **_tokens_of(found)})


async def embed_batch(service: Service, request: Request) -> Response:
    """Embed several contents, as Gemini does, with a model that has embeddings."""
    body = await read_json(request, EMBED_BATCH)
    found = await embedded(service, request.path_params["model"], [_without_model(one) for one in body["requests"]])
    return json_response({"embeddings": [{"values": vector} for vector in found.vectors], **_tokens_of(found)})


def _without_model(request: JsonObject) -> JsonObject:
    """A request without the name of a model: the path has it, perhaps by another name than the provider's."""
    return {key: value for key, value in request.items() if key != "model"}


def _tokens_of(found: Embeddings) -> JsonObject:
    return {"usageMetadata": {"promptTokenCount": found.tokens}} if found.tokens else {}


async def models(service: Service, request: Request) -> Response:
    """The models that can be asked for, in pages; `callgate` is whichever the service was started with."""
    size, start = (_number(request, name) for name in ("pageSize", "pageToken"))
    names = model_names(service)
    end = start + min(size or PAGE_MAX, PAGE_MAX)
    listed: JsonObject = {"models": [_model(name) for name in names[start:end]]}
    return json_response(listed | ({"nextPageToken": str(end)} if end < len(names) else {}))


def _number(request: Request, name: str) -> int:
    """A whole number of the query; 0 if it is not there."""
    text = request.query_params.get(name) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise HttpError(400, "invalid_request", f"{name}: {text[:40]!r} is not one that was given out")
    return int(text)


async def model(service: Service, request: Request) -> Response:
    """One model."""
    name = request.path_params["model"]
    return json_response(_model(name, await description_of(service, name)))


def _model(name: str, described: JsonObject | None = None) -> JsonObject:
    """A model in Google's words; `described` is what its own server says of it."""
    limits = {key: value for key, value in (described or {}).items() if key in LIMITS and isinstance(value, int)}
    methods = list(METHODS)
    return {
        "name": f"models/{name}", "displayName": name, "version": "1", "supportedGenerationMethods": methods, **limits,
    }  # fmt: skip


async def _answer(service: Service, request: Request, encoder: Encoder) -> Response:
    body = await read_json(request, REQUEST)
    incoming = await off_loop(request, partial(_read, body))
    if not incoming.contents:
        raise HttpError(400, "invalid_request", "contents: there is nothing to answer")
    begun = await begin(service, _compat_request(request, incoming, stream=encoder.streams), request)
    chunks = _with_ids(begun.chunks, begun.id)
    return StreamingReply(chunks, encoder, service.options, begun.headers, begun.failure_headers)


def _compat_request(request: Request, incoming: Incoming, *, stream: bool) -> CompatRequest:
    return CompatRequest(
        model=request.path_params["model"],
        contents=incoming.contents,
        definitions=incoming.definitions,
        built_in=incoming.built_in,
        tool_choice=incoming.tool_choice,
        system=incoming.system,
        settings=incoming.settings,
        native=incoming.rest,
        native_mark="safety",
        stream=stream,
        session=named_session(request),
        is_silent=_is_silent(incoming.contents[-1]),
    )


def _is_silent(newest: Content) -> bool:
    return role_of(newest) == "user" and not any(str(part.get("text", "x")).strip() for part in parts_of(newest))


async def _with_ids(chunks: AsyncGenerator[JsonObject], run: str) -> AsyncGenerator[JsonObject]:
    """The chunks with the id of their answer; a prompt that was refused is an answer too."""
    async with contextlib.aclosing(chunks):
        try:
            async for chunk in chunks:
                yield {"responseId": run} | chunk
        except BlockedError as error:
            yield {"responseId": run} | blocked(error.reason, str(error), error.ratings)


# Writing -----------------------------------------------------------------------------------------------------------------


class Events:
    """The chunks as server-sent events."""

    media_type = "text/event-stream"
    streams = True
    # Google's own client takes a comment for an answer; an empty line is nothing to anybody.
    ping = b"\r\n"

    def feed(self, item: JsonObject) -> bytes:
        """One event."""
        return b"data: %b\r\n\r\n" % strict_json.dump(item)

    def end(self) -> bytes:
        """Write nothing: the stream just ends."""
        return b""

    def failed(self, problem: JsonObject) -> bytes:
        """An error as an event."""
        return self.feed(problem)


class Elements:
    """The chunks as the elements of one JSON array."""

    media_type = "application/json"
    streams = True
    ping = b"\n"

    def __init__(self) -> None:
        self._before = b"["

    def feed(self, item: JsonObject) -> bytes:
        """One element."""
        before, self._before = self._before, b",\r\n"
        return before + strict_json.dump(item)

    def end(self) -> bytes:
        """The end of the array."""
        return b"[]" if self._before == b"[" else b"\r\n]"

    def failed(self, problem: JsonObject) -> bytes:
        """An error as an element."""
        return self.feed(problem)


class Whole(WholeAnswer):
    """The chunks as one answer."""

    def end(self) -> bytes:
        """All of it."""
        return strict_json.dump(whole(self._chunks))


_FAILS = (409, 410, 500, 502, 504)


PAGES: dict[str, JsonObject] = {"pageSize": {"type": "integer"}, "pageToken": {"type": "string"}}


def _operations(version: str) -> tuple[Operation, ...]:
    """Operations on models for Google's clients, under one version of the API."""
    place = f"/{version}/models/{{model:path}}"
    return (
        Operation(
            "POST", f"{place}:generateContent", generate,
            takes=REQUEST, gives={200: ANSWER}, runs=True, headers=SESSION_HEADER, fails=_FAILS, problem=PROBLEM,
        ),
        Operation(
            "POST", f"{place}:streamGenerateContent", stream,
            takes=REQUEST, gives={200: {"type": "array", "items": ANSWER}}, streams=True,
            query={"alt": {"enum": ["sse", "json"]}}, runs=True, headers=SESSION_HEADER, fails=_FAILS, problem=PROBLEM,
        ),
        Operation(
            "POST", f"{place}:countTokens", count, takes=COUNT,
            gives={200: {"type": "object", "required": ["totalTokens"], "properties": {"totalTokens": {"type": "integer"}}}},
            problem=PROBLEM,
        ),
        Operation(
            "POST", f"{place}:embedContent", embed_content, takes=EMBED,
            gives={200: {"type": "object", "required": ["embedding"]}}, fails=_FAILS, problem=PROBLEM,
        ),
        Operation(
            "POST", f"{place}:batchEmbedContents", embed_batch, takes=EMBED_BATCH,
            gives={200: {"type": "object", "required": ["embeddings"]}}, fails=_FAILS, problem=PROBLEM,
        ),
    )  # fmt: skip


OPERATIONS = (
    *_operations("v1beta"),
    *_operations("v1"),
    # At /v1 the clients of OpenAI ask for models as well: `openai.py` tells the two apart.
    Operation(
        "GET",
        "/v1beta/models",
        models,
        query=PAGES,
        gives={200: {"type": "object", "required": ["models"]}},
        problem=PROBLEM,
    ),
    Operation("GET", "/v1beta/models/{model:path}", model, gives={200: MODEL}, problem=PROBLEM),
)


def routes(service: Service) -> list[Route]:
    """The routes for clients of Gemini."""
    return table(service, OPERATIONS)
