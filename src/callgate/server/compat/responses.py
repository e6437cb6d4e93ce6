"""`/v1/responses`: the service for clients of OpenAI's Responses API, in its words.

A response is one exchange of a session, or an answer that was passed on with the client's own tools: it is created,
streamed, continued, fetched, cancelled and deleted by an id that names its place.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.history.repair import starts_exchange
from callgate.server.body import MESSAGES_MAX, off_loop, read_json
from callgate.server.compat.gemini import counted_tokens
from callgate.server.compat.openai import OBJECTS, PROBLEM
from callgate.server.compat.prompts import APPROVALS, USUAL, begin, gate_named, named_session, said_in
from callgate.server.compat.responses_answer import PREFIX, ResponseEncoder, head_of, input_items, item_place
from callgate.server.compat.responses_request import ResponsesRequest, items_in, responses_request_of
from callgate.server.compat.stored_exchanges import (
    INTERRUPTED,
    ExchangeId,
    StoredExchange,
    cancel_exchange,
    delete_exchange,
    find_exchange,
    keep_passed_on,
    new_place,
    place_of_run,
    read_id,
    sent_body,
)
from callgate.server.compat.streaming import StreamingReply
from callgate.server.elsewhere import elsewhere
from callgate.server.errors import HttpError, json_response
from callgate.server.openapi import SESSION_HEADER, Operation, table
from callgate.types import Content, JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

ITEMS_MAX = 100
ORDERS = ("asc", "desc")
NUMBER_DIGITS_MAX = 18
_NOUN = "Response"
_COUNTED: JsonObject = {
    "model": {"type": ["string", "null"], "minLength": 1, "maxLength": 200},
    "input": {"anyOf": [
        {"type": ["string", "null"]},
        {"type": "array", "items": {"type": "object"}, "maxItems": MESSAGES_MAX, "minItems": 1},
    ]},
    "instructions": {"type": ["string", "null"]},
    "tools": OBJECTS,
    "tool_choice": {"type": ["string", "object", "null"]},
    "previous_response_id": {"type": ["string", "null"]},
    "text": {"type": ["object", "null"]},
    "reasoning": {"type": ["object", "null"]},
}  # fmt: skip
REQUEST: JsonObject = {
    "type": "object",
    "description": "OpenAI's Responses request.",
    "properties": {
        **_COUNTED, "stream": {"type": ["boolean", "null"]}, "store": {"type": ["boolean", "null"]},
        "background": {"type": ["boolean", "null"]}, "metadata": {"type": ["object", "null"]},
    },
}  # fmt: skip
COUNT: JsonObject = {"type": "object", "properties": _COUNTED}
ANSWER: JsonObject = {
    "type": "object",
    "required": ["id", "object", "created_at", "status", "model", "output"],
    "properties": {"output": {"type": "array"}, "usage": {"type": ["object", "null"]}},
}


async def create(service: Service, request: Request) -> Response:
    """Answer as OpenAI's Responses API does, with the service's tools unless the request declares its own.

    Calls of the service's tools are run here and not shown; calls of the request's own come back as items. A call that
    needs approval comes back as an `mcp_approval_request`, which an `mcp_approval_response` with `previous_response_id`
    answers. A response that is stored belongs to a session, and can be continued, fetched, cancelled and deleted by its id.
    """
    body = await read_json(request, REQUEST)
    incoming, previous = await _incoming(service, request, body)
    wanted, is_passed_on = incoming.wanted, incoming.wanted.is_passed_on
    if is_passed_on and incoming.background:
        raise HttpError(400, "invalid_request", "background: tools of the client's own cannot be run without the client")
    place, contents = await _place(service, request, incoming, previous)
    session = None if place is None or is_passed_on else place.session
    known = (named_session(request), None if previous is None else previous[0].session)
    wanted = replace(
        wanted,
        contents=contents,
        session=session,
        exchange=None if place is None or is_passed_on else place.number,
        in_new_session=session not in known,
        sent=sent_body(request, body),
    )
    begun = await begin(service, wanted, request)
    if place is not None:
        place = await place_of_run(service, place, begun, contents[-1] if contents else None)
    head = head_of(body, wanted.model, str(place or uuid.uuid4().hex))
    chunks = begun.chunks
    if is_passed_on and place is not None:
        chunks = keep_passed_on(service, place, contents, chunks)
    if incoming.background and not wanted.stream:
        await chunks.aclose()
        return json_response({**head, "output": []}, headers=begun.headers)
    encoder = ResponseEncoder(head, stream=wanted.stream, forms=incoming.forms)
    return StreamingReply(chunks, encoder, service.options, begun.headers, begun.failure_headers)


async def _incoming(
    service: Service, request: Request, body: JsonObject
) -> tuple[ResponsesRequest, tuple[ExchangeId, StoredExchange] | None]:
    """The request, and the response that it continues."""
    items = await _resolved(service, items_in(body))
    previous: tuple[ExchangeId, StoredExchange] | None = None
    calls: Sequence[JsonObject] = ()
    if body.get("previous_response_id"):
        id = cast("str", body["previous_response_id"])
        place = _read(id)
        previous = place, await find_exchange(service, place, _missing(id))
        if previous[1].is_in_progress:
            raise HttpError(409, "session_busy", f"The response {id[:200]!r} is in progress.")
        output = _encoder(body, place, previous[1]).response()["output"] if place.is_passed_on else ()
        calls = [item for item in output if str(item["type"]).endswith(("function_call", "custom_tool_call"))]
    return await off_loop(request, partial(responses_request_of, body, items, calls=calls)), previous


async def _resolved(service: Service, items: Sequence[JsonObject]) -> list[JsonObject]:
    """The items with those in place of their references that stored responses have."""
    found: dict[str, list[JsonObject]] = {}
    resolved: list[JsonObject] = []
    for item in items:
        if item.get("type") != "item_reference":
            resolved.append(item)
            continue
        id = str(item.get("id"))
        missing = HttpError(404, "not_found", f"Item {id[:200]!r} not found: send the item itself.")
        token, number = item_place(id) or (None, 0)
        if token is None:
            raise missing
        if token not in found:
            place = read_id(token, "", "Item")
            found[token] = _encoder({}, place, await find_exchange(service, place, missing)).response()["output"]
        if number >= len(found[token]):
            raise missing
        resolved.append(found[token][number])
    return resolved


async def _place(
    service: Service, request: Request, incoming: ResponsesRequest, previous: tuple[ExchangeId, StoredExchange] | None
) -> tuple[ExchangeId | None, Sequence[Content]]:
    """The place of the new response, None if it is not stored, and the contents to answer."""
    wanted = incoming.wanted
    named = named_session(request)
    if previous is None:
        if wanted.answers:
            raise HttpError(400, "invalid_request", "previous_response_id: name the response that asked for the approval")
        if named is not None and not wanted.is_passed_on:
            await service.check_session(named)
            known = await service.store.load(named)
            count = len(_exchanges(known)) if known else sum(map(starts_exchange, wanted.contents[:-1]))
            return ExchangeId(named, count + 1), wanted.contents
        return await _new(service, incoming, wanted.contents), wanted.contents
    place, found = previous
    is_next = found.is_newest and place.is_passed_on == wanted.is_passed_on
    if wanted.answers:
        return place.continued(found.answered, wanted.answers), ()
    if is_next and not wanted.is_passed_on and len(wanted.contents) == 1 and not found.approvals:
        return ExchangeId(place.session, place.number + 1), wanted.contents
    contents = [*found.before, *found.contents, *found.left, *wanted.contents]
    if is_next and wanted.is_passed_on and incoming.stored:
        return ExchangeId(place.session, place.number + 1, is_passed_on=True), contents
    return await _new(service, incoming, contents), contents


def _exchanges(facts: Any) -> Sequence[Any]:
    from callgate.sessions import exchanges_of

    return exchanges_of(facts)


async def _new(service: Service, incoming: ResponsesRequest, contents: Sequence[Content]) -> ExchangeId | None:
    if not incoming.stored:
        return None
    place = new_place(contents)
    if incoming.wanted.is_passed_on:
        await service.claim_session(place.session)
        return ExchangeId(place.session, 1, is_passed_on=True)
    return place


# Stored responses ---------------------------------------------------------------------------------------------------------


def _read(id: str) -> ExchangeId:
    return read_id(id, PREFIX, _NOUN)


def _missing(id: str) -> HttpError:
    return HttpError(404, "not_found", f"{_NOUN} {id[:200]!r} not found.")


def _encoder(
    body: JsonObject, place: ExchangeId, found: StoredExchange, *, stream: bool = False, after: int = -1
) -> ResponseEncoder:
    """An encoder that has been fed with a stored response, unless it streams."""
    head = head_of(body, found.model or USUAL, str(place), found.at_s)
    encoder = ResponseEncoder(head, stream=stream, after=after)
    if not stream:
        encoder.feed(_chunk(place, found))
        _failure(encoder, found)
    return encoder


def _chunk(place: ExchangeId, found: StoredExchange) -> JsonObject:
    return {**found.chunk(calls=place.is_passed_on), APPROVALS: found.approvals}


async def get(service: Service, request: Request) -> Response:
    """A response as it is now; with `stream=true` its events, those of one in progress as they come."""
    id = request.path_params["response"]
    place = _read(id)
    found = await find_exchange(service, place, _missing(id))
    after = _after(request)
    if request.query_params.get("stream") == "true":
        encoder = _encoder({}, place, found, stream=True, after=after)
        if found.run is not None:
            return StreamingReply(said_in(found.run, asks=True, has_cancelled=True), encoder, service.options, {})
        if found.is_elsewhere:
            return await elsewhere(service, request, place.session)
        data = encoder.feed(_chunk(place, found)) + _failure(encoder, found) + encoder.end()
        if after > encoder.sequence:
            raise _no_event(str(after))
        return Response(data, media_type=encoder.media_type)
    if found.is_in_progress:
        return json_response({**head_of({}, found.model or USUAL, str(place), found.at_s), "output": []})
    return json_response(await off_loop(request, _encoder({}, place, found).response))


def _after(request: Request) -> int:
    """The number of the last event that a client has seen, -1 if it has seen none."""
    given = request.query_params.get("starting_after", "-1")
    if given == "-1":
        return -1
    if not (given.isascii() and given.isdecimal() and len(given) <= NUMBER_DIGITS_MAX):
        raise _no_event(given)
    return int(given)


def _no_event(given: str) -> HttpError:
    return HttpError(400, "invalid_request", f"starting_after: there is no event {given[:100]!r}")


def _failure(encoder: ResponseEncoder, found: StoredExchange) -> bytes:
    """Let a response that failed or was interrupted end with the reason."""
    message = {"message": INTERRUPTED if found.failure is None else found.failure.message, "type": "server_error"}
    return encoder.failed({"error": message}) if found.failure is not None or found.is_interrupted else b""


async def cancel(service: Service, request: Request) -> Response:
    """Stop the run of a response."""
    id = request.path_params["response"]
    place = _read(id)
    refused = HttpError(400, "invalid_request", "Only a response that is in progress can be cancelled.")
    model = await cancel_exchange(service, place, _missing(id), refused)
    return json_response({**head_of({}, model or USUAL, str(place)), "status": "cancelled", "output": []})


async def delete(service: Service, request: Request) -> Response:
    """Delete the session of a response, with all responses before it."""
    id = request.path_params["response"]
    await delete_exchange(service, _read(id), _missing(id))
    return json_response({"id": id, "object": "response", "deleted": True})


async def listed_input(service: Service, request: Request) -> Response:
    """The items that a response answers, newest first unless `order=asc` asks for the oldest."""
    id = request.path_params["response"]
    found = await find_exchange(service, _read(id), _missing(id))
    items = await off_loop(request, partial(input_items, found.before))
    query = request.query_params
    order, after = query.get("order", "desc"), query.get("after")
    if order not in ORDERS:
        raise HttpError(400, "invalid_request", f"order: {order[:100]!r} is none of {', '.join(ORDERS)}", param="order")
    if order == "desc":
        items.reverse()
    ids = [item["id"] for item in items]
    if after is not None and after not in ids:
        raise HttpError(404, "not_found", f"after: there is no item {after[:200]!r} in this input", param="after")
    start = 0 if after is None else ids.index(after) + 1
    limit = _limit(query.get("limit", "20"))
    page = items[start : start + limit]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return json_response({"object": "list", "data": page, **ends, "has_more": start + limit < len(items)})


def _limit(given: str) -> int:
    if not (given.isascii() and given.isdecimal() and len(given) <= NUMBER_DIGITS_MAX and 1 <= int(given) <= ITEMS_MAX):
        raise HttpError(400, "invalid_request", f"limit: use a number from 1 to {ITEMS_MAX}")
    return int(given)


async def count(service: Service, request: Request) -> Response:
    """Count the tokens of a request: with the model if it can, else an estimate by bytes."""
    body = await read_json(request, COUNT)
    incoming, previous = await _incoming(service, request, body)
    wanted = incoming.wanted
    before = [] if previous is None else [*previous[1].before, *previous[1].contents]
    gate = await gate_named(service, wanted.model)
    contents = [*before, *wanted.contents]
    tokens = await counted_tokens(gate, contents, wanted.definitions, wanted.built_in, wanted.system)
    return json_response({"object": "response.input_tokens", "input_tokens": tokens})


_PLACE = "/v1/responses"
_TOKENS: JsonObject = {"type": "object", "required": ["input_tokens"], "properties": {"input_tokens": {"type": "integer"}}}
_ITEMS: JsonObject = {"type": "object", "required": ["object", "data"], "properties": {"data": {"type": "array"}}}
OPERATIONS = (
    Operation(
        "POST", _PLACE, create, takes=REQUEST, gives={200: ANSWER}, streams=True,
        runs=True, headers=SESSION_HEADER,
        fails=(409, 410, 500, 502, 504), problem=PROBLEM,
    ),
    Operation(
        "POST", f"{_PLACE}/input_tokens", count, takes=COUNT, gives={200: _TOKENS}, fails=(409, 410, 502, 504),
        problem=PROBLEM,
    ),
    Operation(
        "GET", f"{_PLACE}/{{response}}", get, gives={200: ANSWER}, streams=True, fails=(409, 410), problem=PROBLEM,
        query={"stream": {"enum": ["true", "false"]}, "starting_after": {"type": "string"}},
    ),
    Operation("DELETE", f"{_PLACE}/{{response}}", delete, gives={200: {"type": "object"}}, fails=(409,), problem=PROBLEM),
    Operation("POST", f"{_PLACE}/{{response}}/cancel", cancel, gives={200: ANSWER}, fails=(409,), problem=PROBLEM),
    Operation(
        "GET", f"{_PLACE}/{{response}}/input_items", listed_input, gives={200: _ITEMS}, fails=(410,), problem=PROBLEM,
        query={"order": {"enum": [*ORDERS]}, "after": {"type": "string"}, "limit": {"type": "string"}},
    ),
)  # fmt: skip


def routes(service: Service) -> list[Route]:
    """The routes for clients of the Responses API."""
    return table(service, OPERATIONS)
