"""`/v1beta/interactions`, and the same at `/v1`: the service for clients of Gemini's Interactions API.

An interaction is one exchange of a session, or a conversation with tools of the client's own up to there: it is created,
streamed, resumed, continued, fetched, cancelled and deleted by an id that names both.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate import sessions
from callgate.content.build import text_part, with_call_ids
from callgate.content.read import is_call, is_sound_text, is_thought, parts_of
from callgate.errors import UsageError
from callgate.history.repair import starts_exchange
from callgate.interactions.client_request import IncomingInteraction, read_interaction
from callgate.interactions.steps import content_item
from callgate.server.body import off_loop, read_json
from callgate.server.compat.accepted_parts import reading, refuse_left_out
from callgate.server.compat.interactions_answer import (
    EventWriter,
    WholeWriter,
    events_of,
    head_of,
    reported_fields,
    status_fields,
    steps_of,
    usage_json,
)
from callgate.server.compat.interactions_input import carried_input, check_results
from callgate.server.compat.prompts import USUAL, CompatRequest, begin, said_in, waits_sentence, with_prompt
from callgate.server.compat.stored_exchanges import (
    INTERRUPTED,
    ExchangeId,
    StoredExchange,
    cancel_exchange,
    continuing,
    find_exchange,
    forget_exchange,
    keep_passed_on,
    new_place,
    place_of_run,
    read_id,
    sent_body,
)
from callgate.server.compat.streaming import Encoder, StreamingReply
from callgate.server.elsewhere import elsewhere
from callgate.server.errors import HttpError, json_response
from callgate.server.keyed_start import key_of
from callgate.server.openapi import Operation, table
from callgate.store.anonymous import new_session_id
from callgate.strict_json import objects_in
from callgate.types import Content, JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

_REQUEST: JsonObject = {
    "type": "object",
    "description": "Google's CreateModelInteraction.",
    "required": ["model", "input"],
    "properties": {
        "model": {"type": "string"},
        "input": {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
        "tools": {"type": "array", "items": {"type": "object"}, "maxItems": 1_000},
        "system_instruction": {"type": "string"},
        "generation_config": {"type": "object"},
        "safety_settings": {"type": "array", "items": {"type": "object"}},
        "response_format": {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
        "service_tier": {"type": "string"},
        "labels": {"type": "object"},
        "previous_interaction_id": {"type": "string"},
        "store": {"type": "boolean"},
        "stream": {"type": "boolean"},
        "background": {"type": "boolean"},
    },
}
_ANSWER: JsonObject = {"type": "object", "description": "Google's Interaction."}
_PREFIX, _NOUN = "v1_", "Interaction"
GOES_ON = "by the id of this interaction, which is in the session {session}, as previous_interaction_id"
_NOT_STORED = "in the session {session} there, since an interaction with store false cannot be continued"


def _read(body: JsonObject) -> IncomingInteraction:
    """Read a request, and refuse contents that no model would be sent."""
    body = carried_input(body)
    with reading(""):
        incoming = read_interaction(body)
    refuse_left_out(incoming.losses, "input")
    if not incoming.contents or starts_exchange(incoming.contents[-1]):
        return replace(incoming, contents=with_prompt(incoming.contents))
    return incoming


async def create(service: Service, request: Request) -> Response:
    """Answer as Gemini's Interactions API does, with the service's tools unless the request declares its own.

    Calls of the service's tools are run here and not shown; calls of the request's own come back as steps. An interaction
    that is stored belongs to a session of the service, and can be continued, fetched, cancelled and deleted by its id.
    """
    body = await read_json(request, _REQUEST)
    incoming = await off_loop(request, partial(_read, body))
    is_passed_on = bool(incoming.definitions or incoming.built_in)
    if is_passed_on and incoming.background:
        told = "background: the client runs calls of the request's own tools, so the run cannot continue without it"
        raise HttpError(400, "invalid_request", f"{told}; leave tools out to use those of the service")
    previous = None if incoming.previous is None else read_id(incoming.previous, _PREFIX, _NOUN)
    async with contextlib.AsyncExitStack() as claims:
        place, contents = await _place(
            service, incoming, previous, body["input"], is_passed_on=is_passed_on, key=key_of(request), claims=claims
        )
        runs_at = None if is_passed_on else place
        wanted = _compat_request(incoming, contents, runs_at)
        is_new = previous is None or runs_at is None or runs_at.session != previous.session
        wanted = replace(wanted, in_new_session=is_new, sent=sent_body(request, body))
        begun = await begin(service, wanted, request)
    if place is not None:
        place = await place_of_run(service, place, begun, contents[-1] if contents else None)
    head = head_of(incoming.model, "" if place is None else f"{_PREFIX}{place}")
    if incoming.background and not incoming.stream:
        await begun.chunks.aclose()
        return json_response(head | {"status": "in_progress"}, headers=begun.headers)
    chunks = begun.chunks
    if is_passed_on:
        chunks = _with_call_ids(chunks)
        chunks = chunks if place is None else keep_passed_on(service, place, contents, chunks)
    encoder: Encoder = EventWriter(head) if incoming.stream else WholeWriter(head)
    return StreamingReply(chunks, encoder, service.options, begun.headers, begun.failure_headers)


async def _place(
    service: Service,
    incoming: IncomingInteraction,
    place: ExchangeId | None,
    given: Any,
    *,
    is_passed_on: bool,
    key: str | None,
    claims: contextlib.AsyncExitStack,
) -> tuple[ExchangeId | None, list[Content]]:
    """The place of a new interaction, None if it is not stored, and the contents to answer.

    It is in the session of the one before, whose `place` is given, only if nobody else goes on there, which is claimed.
    """
    contents = incoming.contents
    if place is not None:
        found = await find_exchange(service, place, _missing(f"{_PREFIX}{place}"))
        if found.is_in_progress:
            raise HttpError(400, "invalid_request", "previous_interaction_id: that interaction is still in progress")
        check_results(given, found.contents if place.is_passed_on else ())
        if not is_passed_on and not place.is_passed_on:
            is_next = found.is_newest and await claims.enter_async_context(continuing(service, place, key))
            # A request that may come again leaves no fork behind: its run begins with the history.
            if is_next or key is None:
                session = place.session if is_next else await _forked(service, place)
                return ExchangeId(session, place.number + 1), contents
        contents = [*found.before, *found.contents, *found.left, *contents]
    if not incoming.stored:
        return None, contents
    if not is_passed_on:
        return new_place(contents), contents
    # Each is a session to itself, so that any of them can be continued.
    place = ExchangeId(new_session_id(), 1, is_passed_on=True)
    await service.claim_session(place.session)
    return place, contents


async def _forked(service: Service, place: ExchangeId) -> str:
    """A session that goes on after an exchange; what came after it stays as it is."""
    target = new_session_id()
    await service.same_principal(place.session, target)
    try:
        await sessions.fork(service.store, place.session, target, exchange=place.number)
    except UsageError as error:  # It was deleted since it was found.
        raise _missing(f"{_PREFIX}{place}") from error
    return target


async def _with_call_ids(chunks: AsyncGenerator[JsonObject]) -> AsyncGenerator[JsonObject]:
    """The chunks with an id for every call, by which the client answers it."""
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            yield with_call_ids(chunk, lambda: f"call_{uuid.uuid4().hex[:16]}")


def _compat_request(incoming: IncomingInteraction, contents: list[Content], place: ExchangeId | None) -> CompatRequest:
    return CompatRequest(
        model=incoming.model.removeprefix("models/"),
        contents=contents,
        definitions=incoming.definitions,
        built_in=incoming.built_in,
        tool_choice=incoming.tool_choice,
        system=incoming.system,
        settings=incoming.settings,
        stream=incoming.stream,
        session=None if place is None else place.session,
        exchange=None if place is None else place.number,
        detached=incoming.background,
        goes_on=GOES_ON if incoming.stored else _NOT_STORED,
        has_cancelled=True,
    )


async def get(service: Service, request: Request) -> Response:
    """An interaction as it is now, or its events, from the beginning or after one of them."""
    id, query = request.path_params["interaction"], request.query_params
    place = read_id(id, _PREFIX, _NOUN)
    found = await find_exchange(service, place, _missing(id))
    head = head_of(found.model or USUAL, id, at_s=found.at_s)
    is_streamed, after = query.get("stream") == "true", query.get("last_event_id", "")
    if found.run is not None and is_streamed:
        chunks = said_in(found.run, goes_on=GOES_ON, has_cancelled=True)
        return StreamingReply(chunks, EventWriter(head, after=after), service.options, {})
    if found.is_elsewhere and is_streamed:
        return await elsewhere(service, request, place.session)
    if found.is_in_progress:
        given = _input_steps(found.before) if query.get("include_input") == "true" else []
        return json_response(head | _bare("in_progress") | {"steps": given})
    is_input = query.get("include_input") == "true" and not is_streamed  # Events are numbered by the steps of the answer.
    shown = head | _shown(place, found, is_input=is_input)
    if is_streamed:
        return Response(events_of(shown, after=after), media_type="text/event-stream")
    return json_response(shown)


async def cancel(service: Service, request: Request) -> Response:
    """Stop the run of an interaction."""
    id = request.path_params["interaction"]
    place = read_id(id, _PREFIX, _NOUN)
    refused = HttpError(400, "failed_precondition", "Only an interaction that is in progress can be cancelled.")
    model = await cancel_exchange(service, place, _missing(id), refused)
    return json_response(head_of(model or USUAL, id) | _bare("cancelled"))


async def delete(service: Service, request: Request) -> Response:
    """Delete an interaction. Its part in later ones is deleted with the last interaction of the conversation."""
    id = request.path_params["interaction"]
    await forget_exchange(service, read_id(id, _PREFIX, _NOUN), _missing(id))
    return json_response({})


def _bare(status: str) -> JsonObject:
    return {"status": status, "steps": []}


def _missing(id: str) -> HttpError:
    return HttpError(404, "not_found", f"{_NOUN} {id[:200]!r} not found.")


def _shown(place: ExchangeId, found: StoredExchange, *, is_input: bool) -> JsonObject:
    """The fields of an interaction that is over."""
    parts = found.parts(calls=place.is_passed_on)
    if found.approvals:
        gap = "\n\n" if any(is_sound_text(part) and not is_thought(part) for part in parts) else ""
        parts.append(text_part(gap + waits_sentence(place.session, found.approvals, GOES_ON)))
    steps = [*(_input_steps(found.before) if is_input else ()), *steps_of(parts, found.metadata)]
    status = status_fields(found.finish_reason, has_calls=any(map(is_call, parts)))
    if found.failure is not None:
        status = {"status": "failed", "errors": [{"code": "failed", "message": found.failure.message}]}
    elif found.is_interrupted:
        status = {"status": "failed", "errors": [{"code": "interrupted", "message": INTERRUPTED}]}
    used = {} if found.usage is None else {"usage": usage_json(found.usage)}
    return status | {"steps": steps} | reported_fields(parts, found.metadata) | used


def _input_steps(before: Sequence[Content]) -> list[JsonObject]:
    """The newest input of a conversation as steps: what the user said, or the results of the newest calls."""
    if before and starts_exchange(before[-1]):
        return [{"type": "user_input", "content": [content_item(part) for part in parts_of(before[-1])]}]
    from callgate.definitions import convert

    written: Any = convert([*before[-2:]], source="gemini", target="interactions", kind="history").value
    return [step for step in objects_in(written) if step["type"] == "function_result"]


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
            runs=True,
            fails=(409, 410, 500, 502, 504),
            problem=_PROBLEM,
        ),
        Operation(
            "GET",
            f"{place}/{{interaction}}",
            get,
            gives={200: _ANSWER},
            streams=True,
            query={
                "stream": {"enum": ["true", "false"]},
                "include_input": {"enum": ["true", "false"]},
                "last_event_id": {"type": "string"},
            },
            fails=(409, 410),
            problem=_PROBLEM,
        ),
        Operation("POST", f"{place}/{{interaction}}/cancel", cancel, gives={200: _ANSWER}, fails=(409,), problem=_PROBLEM),
        Operation(
            "DELETE", f"{place}/{{interaction}}", delete, gives={200: {"type": "object"}}, fails=(409,), problem=_PROBLEM
        ),
    )


OPERATIONS = (*_operations("v1beta"), *_operations("v1"))


def routes(service: Service) -> list[Route]:
    """The routes for clients of the Interactions API."""
    return table(service, OPERATIONS)
