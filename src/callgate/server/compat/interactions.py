"""`/v1beta/interactions`, and the same at `/v1`: the service for clients of Gemini's Interactions API.

An interaction is one exchange of a session: it is created, streamed, fetched, cancelled and deleted by an id that names
both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate import strict_json
from callgate.content.metadata import server_step
from callgate.content.read import (
    call_of,
    candidate_of,
    content_of,
    finish_of,
    is_call,
    is_thought,
    parts_of,
    usage_of,
)
from callgate.interactions.client_request import IncomingInteraction, read_interaction
from callgate.metadata import ServerStep
from callgate.server.body import off_loop, read_json
from callgate.server.compat.prompts import USUAL, CompatRequest, begin
from callgate.server.compat.stored_exchanges import (
    ExchangeId,
    cancel_exchange,
    delete_exchange,
    find_exchange,
    new_place,
    read_id,
)
from callgate.server.compat.streaming import Encoder, StreamingReply
from callgate.server.errors import HttpError, json_response
from callgate.server.openapi import Operation, table
from callgate.strict_json import objects_in
from callgate.types import JsonObject, Part, Usage

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

_REQUEST: JsonObject = {
    "type": "object",
    "description": "As Google's CreateModelInteraction.",
    "required": ["model", "input"],
    "properties": {
        "model": {"type": "string"},
        "input": {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
        "tools": {"type": "array", "items": {"type": "object"}, "maxItems": 1_000},
        "system_instruction": {"type": "string"},
        "generation_config": {"type": "object"},
        "previous_interaction_id": {"type": "string"},
        "store": {"type": "boolean"},
        "stream": {"type": "boolean"},
        "background": {"type": "boolean"},
    },
}
_ANSWER: JsonObject = {"type": "object", "description": "As Google's Interaction."}
_COUNTS = {
    "total_input_tokens": "input_tokens", "total_cached_tokens": "cached_tokens", "total_output_tokens": "output_tokens",
    "total_thought_tokens": "thought_tokens", "total_tool_use_tokens": "tool_tokens", "total_tokens": "total_tokens",
}  # fmt: skip
_PREFIX, _NOUN = "v1_", "Interaction"
_GROWING = ("model_output", "thought")
"""Steps that neighbours of their kind are joined to; every other part is a step of its own."""
_SERVER_TOOLS = {
    "google_search_web": "google_search", "google_search_image": "google_search", "url_context": "url_context",
    "google_maps": "google_maps",
}  # fmt: skip
_STATES = {"running": "in_progress", "interrupted": "in_progress", "approval_needed": "requires_action"}


async def create(service: Service, request: Request) -> Response:
    """Answers as Gemini's Interactions API does, with the service's tools unless the request declares its own.

    Calls of the service's tools are run here and not shown; calls of the request's own come back as steps. An interaction
    that is stored belongs to a session of the service, and can be continued, fetched, cancelled and deleted by its id.
    """
    body = await read_json(request, _REQUEST)
    incoming = await off_loop(request, partial(read_interaction, body))
    is_passed_on = bool(incoming.definitions or incoming.built_in)
    if is_passed_on and (incoming.previous or incoming.background):
        told = "a request with tools of its own is passed on and not kept: send the whole conversation, with store=false"
        raise HttpError(400, "invalid_request", told)
    place = await _place(service, incoming)
    wanted = _compat_request(incoming, None if place is None else place.session)
    id = f"{_PREFIX}{place}" if place is not None and not is_passed_on else ""
    begun = await begin(service, wanted, request)
    head = _head(incoming.model, id)
    if incoming.background and not incoming.stream:
        await begun.chunks.aclose()
        return json_response(head | {"status": "in_progress"}, headers=begun.headers)
    encoder: Encoder = _Events(head) if incoming.stream else _Whole(head)
    return StreamingReply(begun.chunks, encoder, service.options, begun.headers)


async def _place(service: Service, incoming: IncomingInteraction) -> ExchangeId | None:
    """The session of an interaction and its number there; None if it is not stored."""
    if incoming.previous is None:
        return new_place(incoming.contents) if incoming.stored else None
    place = read_id(incoming.previous, _PREFIX, _NOUN)
    found = await find_exchange(service, place, _missing(incoming.previous))
    if not found.is_newest:
        raise HttpError(
            400, "invalid_request", "previous_interaction_id: only the newest of a conversation can be continued"
        )
    return ExchangeId(place.session, place.number + 1)


def _compat_request(incoming: IncomingInteraction, session: str | None) -> CompatRequest:
    return CompatRequest(
        model=incoming.model.removeprefix("models/"),
        contents=incoming.contents,
        definitions=incoming.definitions,
        built_in=incoming.built_in,
        tool_choice=incoming.tool_choice,
        system=incoming.system,
        settings=incoming.settings,
        stream=incoming.stream,
        session=session,
        detached=incoming.background,
    )


async def get(service: Service, request: Request) -> Response:
    """An interaction as it is now."""
    found = await _found(service, request.path_params["interaction"])
    if request.query_params.get("stream") != "true" or found["status"] == "in_progress":
        return json_response(found)
    head = {key: value for key, value in found.items() if key not in ("steps", "usage")}
    events = [_created(head), *_replayed(found), _completed(found)]
    data = b"".join(map(_sse, events)) + _DONE
    return Response(data, media_type="text/event-stream")


async def cancel(service: Service, request: Request) -> Response:
    """Stops the run of an interaction."""
    id = request.path_params["interaction"]
    refused = HttpError(400, "failed_precondition", "Only an interaction that is in progress can be cancelled.")
    await cancel_exchange(service, read_id(id, _PREFIX, _NOUN), refused)
    return json_response((await _found(service, id)) | {"status": "cancelled"})


async def delete(service: Service, request: Request) -> Response:
    """Forgets the session of an interaction, with all interactions before it."""
    id = request.path_params["interaction"]
    await delete_exchange(service, read_id(id, _PREFIX, _NOUN), _missing(id))
    return json_response({})


async def _found(service: Service, id: str) -> JsonObject:
    found = await find_exchange(service, read_id(id, _PREFIX, _NOUN), _missing(id))
    head = _head(found.model or USUAL, id)
    if found.run is not None:
        return head | {"status": "in_progress", "steps": []}
    status, errors = _status(found.finish_reason, has_calls=False)
    return head | {"status": status, "steps": _steps(found.parts(calls=False)), "usage": _usage(found.usage)} | errors


def _missing(id: str) -> HttpError:
    return HttpError(404, "not_found", f"{_NOUN} {id[:200]!r} not found.")


# Writing -----------------------------------------------------------------------------------------------------------------

_DONE = b"event: done\ndata: [DONE]\n\n"


def _head(model: str, id: str) -> JsonObject:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"id": id, "object": "interaction", "created": now, "updated": now, "model": model}


def _status(reason: str, *, has_calls: bool) -> tuple[str, JsonObject]:
    if reason in ("STOP", ""):
        return ("requires_action" if has_calls else "completed"), {}
    if reason == "MAX_TOKENS":
        return "incomplete", {}
    if reason in ("cancelled", "CANCELLED"):
        return "cancelled", {}
    return _STATES.get(reason, "failed"), {"errors": [{"code": reason.lower(), "message": f"It ended with {reason}."}]}


def _usage(usage: Usage | None) -> JsonObject:
    return {theirs: getattr(usage or Usage(), ours) for theirs, ours in _COUNTS.items()}


def _steps(parts: list[Part]) -> list[JsonObject]:
    """The steps of an answer: neighbours of one kind are one step."""
    steps: list[JsonObject] = []
    for part in parts:
        kind, delta = _delta(part)
        if kind not in _GROWING:
            steps += [{"type": kind, **delta}] if kind else []
            continue
        field = "summary" if kind == "thought" else "content"
        if not steps or steps[-1]["type"] != kind:
            steps.append({"type": kind, field: []})
        items = steps[-1][field]
        if items and items[-1]["type"] == "text" and delta["type"] == "text":
            items[-1] = {"type": "text", "text": items[-1]["text"] + delta["text"]}
        else:
            items.append(delta)
    return steps


def _delta(part: Part) -> tuple[str, JsonObject]:
    """The kind of step that a part belongs to, and what it adds to one."""
    from callgate.interactions.steps import content_item

    if is_call(part):
        call = call_of(part)
        return "function_call", {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args") or {}}
    if (step := server_step(part)) is not None:
        return _server_step(step)
    return ("thought" if is_thought(part) else "model_output"), content_item(part)


def _server_step(step: ServerStep) -> tuple[str, JsonObject]:
    """A step at the provider as this API has it; one that it does not have is left out."""
    value, id = step.value, step.id or step.tool
    if step.kind == "code":
        code = {"code": value.get("code"), "language": str(value.get("language") or "python").lower()}
        return "code_execution_call", {"id": id, "arguments": code}
    if step.kind == "code_result":
        failed = {} if value.get("outcome") in (None, "OUTCOME_OK") else {"is_error": True}
        return "code_execution_result", {"call_id": id, "result": str(value.get("output") or ""), **failed}
    name = _SERVER_TOOLS.get(step.tool)
    if name is None:
        return "", {}
    if step.kind == "tool_call":
        return f"{name}_call", {"id": id, "arguments": value.get("args") or {}}
    response: Any = value.get("response")
    result: Any = cast("JsonObject", response).get("result") if isinstance(response, dict) else None
    return f"{name}_result", {"call_id": id, "result": objects_in(result)}


def _sse(event: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["event_type"].encode(), strict_json.dump(event))


def _created(head: JsonObject) -> JsonObject:
    return {"event_type": "interaction.created", "interaction": head | {"status": "in_progress"}}


def _completed(found: JsonObject) -> JsonObject:
    rest = {key: value for key, value in found.items() if key != "steps"}
    return {"event_type": "interaction.completed", "interaction": rest}


def _replayed(found: JsonObject) -> Iterator[JsonObject]:
    for index, step in enumerate(found["steps"]):
        yield from _step_events(index, step)


def _step_events(index: int, step: JsonObject) -> Iterator[JsonObject]:
    """The events of a whole step."""
    kind = step["type"]
    begun: JsonObject = {"type": kind}
    if kind in _GROWING:
        deltas = [_written(kind, item) for item in step.get("content", step.get("summary", ()))]
    elif kind == "function_call":
        begun = {**step, "arguments": {}}
        deltas = [{"type": "arguments_delta", "arguments": strict_json.dump(step["arguments"]).decode()}]
    else:
        begun |= {name: step[name] for name in ("id", "call_id") if name in step}
        deltas = [{"type": kind} | {name: value for name, value in step.items() if name not in begun}]
    yield {"event_type": "step.start", "index": index, "step": begun}
    for delta in deltas:
        yield {"event_type": "step.delta", "index": index, "delta": delta}
    yield {"event_type": "step.stop", "index": index}


def _written(kind: str, item: JsonObject) -> JsonObject:
    return {"type": "thought_summary", "content": item} if kind == "thought" else item


class _Collected:
    """The parts of an answer, and how it ended."""

    def __init__(self, head: JsonObject) -> None:
        self.head = head
        self.parts: list[Part] = []
        self.reason = ""
        self.usage: Usage | None = None
        self.calls = 0

    def take(self, chunk: JsonObject) -> list[Part]:
        said = [part if not is_call(part) else self._numbered(part) for part in parts_of(content_of(chunk))]
        self.parts += said
        self.reason = finish_of(candidate_of(chunk))[0] or self.reason
        self.usage = usage_of(chunk) or self.usage
        return said

    def _numbered(self, part: Part) -> Part:
        """Every call has an id here, whatever the model sends."""
        self.calls += 1
        call = call_of(part)
        key = next(key for key, value in part.items() if value is call)
        return part if call.get("id") else {**part, key: {"id": f"call_{self.calls}", **call}}

    @property
    def interaction(self) -> JsonObject:
        status, errors = _status(self.reason, has_calls=bool(self.calls))
        return self.head | {"status": status, "usage": _usage(self.usage)} | errors


class _Whole:
    """The chunks as one interaction."""

    media_type = "application/json"
    streams = False
    ping = b""

    def __init__(self, head: JsonObject) -> None:
        self._answer = _Collected(head)

    def feed(self, item: JsonObject) -> bytes:
        """Keeps it."""
        self._answer.take(item)
        return b""

    def end(self) -> bytes:
        """All of it."""
        return strict_json.dump(self._answer.interaction | {"steps": _steps(self._answer.parts)})

    def failed(self, problem: JsonObject) -> bytes:
        """Never in the middle: nothing is sent before the end."""
        return strict_json.dump(problem)


class _Events:
    """The chunks as events."""

    media_type = "text/event-stream"
    streams = True
    ping = b": ping\n\n"

    def __init__(self, head: JsonObject) -> None:
        self._answer = _Collected(head)
        self._kind: str = ""
        self._index = -1
        self._has_begun = self._has_failed = False

    def feed(self, item: JsonObject) -> bytes:
        """The events of a chunk."""
        events = [] if self._has_begun else [_created(self._answer.head)]
        self._has_begun = True
        for part in self._answer.take(item):
            events += self._part(part)
        return b"".join(map(_sse, events))

    def _part(self, part: Part) -> Iterator[JsonObject]:
        kind, delta = _delta(part)
        if kind not in _GROWING:
            yield from self._stop()
            self._index += bool(kind)
            yield from _step_events(self._index, {"type": kind, **delta}) if kind else ()
            return
        if kind != self._kind:
            yield from self._stop()
            self._kind, self._index = kind, self._index + 1
            yield {"event_type": "step.start", "index": self._index, "step": {"type": kind}}
        yield {"event_type": "step.delta", "index": self._index, "delta": _written(kind, delta)}

    def _stop(self) -> Iterator[JsonObject]:
        if self._kind:
            yield {"event_type": "step.stop", "index": self._index}
            self._kind = ""

    def end(self) -> bytes:
        """The end of the interaction."""
        if self._has_failed:
            return _DONE
        events: list[Any] = [] if self._has_begun else [_created(self._answer.head)]
        return b"".join(map(_sse, [*events, *self._stop(), _completed(self._answer.interaction)])) + _DONE

    def failed(self, problem: JsonObject) -> bytes:
        """An error as an event."""
        self._has_failed = True
        return _sse({"event_type": "error", **problem})


_PROBLEM: JsonObject = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def _operations(version: str) -> tuple[Operation, ...]:
    place = f"/{version}/interactions"
    return (
        Operation(
            "POST",
            place,
            create,
            takes=_REQUEST,
            gives={200: _ANSWER},
            streams=True,
            fails=(409, 410, 500, 502, 504),
            problem=_PROBLEM,
        ),
        Operation(
            "GET",
            f"{place}/{{interaction}}",
            get,
            gives={200: _ANSWER},
            streams=True,
            query={"stream": {"enum": ["true", "false"]}},
            fails=(410,),
            problem=_PROBLEM,
        ),
        Operation("POST", f"{place}/{{interaction}}/cancel", cancel, gives={200: _ANSWER}, problem=_PROBLEM),
        Operation(
            "DELETE", f"{place}/{{interaction}}", delete, gives={200: {"type": "object"}}, fails=(409,), problem=_PROBLEM
        ),
    )


OPERATIONS = (*_operations("v1beta"), *_operations("v1"))


def routes(service: Service) -> list[Route]:
    """The routes for clients of the Interactions API."""
    return table(service, OPERATIONS)
