"""`/api/v1/sessions`: the conversations that are kept, and what can be done with them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import uuid
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate import sessions as whole
from callgate import strict_json
from callgate.errors import SessionBusyError
from callgate.events import plain
from callgate.machine.facts import Fact
from callgate.server.body import int_of, read_json
from callgate.server.elsewhere import elsewhere, number_elsewhere
from callgate.server.errors import HttpError, code_of, encoded_response, json_response
from callgate.server.identity import CURRENT_PRINCIPAL
from callgate.server.openapi import EVENT, EVENTS_TYPE, Operation, table
from callgate.server.remote_answers import CANCELLED
from callgate.server.runs import Run
from callgate.server.sse import EventStream
from callgate.server.trace import trace_json
from callgate.server.views import APPROVAL, approval_json, record_json
from callgate.store import SessionInfo
from callgate.store.listing import place_of, session_info, session_page
from callgate.store.protocol import TITLE_CHARS_MAX
from callgate.types import Content, JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

SUMMARY: JsonObject = {
    "type": "object",
    "required": ["id", "title", "created", "updated", "exchange_count", "state", "running"],
    "properties": {
        "id": {"type": "string", "description": "Id of the session."},
        "title": {"type": "string", "description": "Its title, or a line of its first prompt."},
        "created": {"type": "number", "description": "Seconds since 1970."},
        "updated": {"type": "number", "description": "Seconds since 1970, of the last change."},
        "exchange_count": {"type": "integer", "description": "Number of its exchanges."},
        "state": {
            "enum": ["idle", "waiting", "interrupted", "running"],
            "description": "`waiting`: for answers about calls; `interrupted`: its process ended during a run.",
        },
        "running": {"type": "boolean", "description": "True if a run is in progress."},
        "match": {"type": "string", "description": "The words around what was searched for, if the title does not have it."},
    },
}
EXCHANGE: JsonObject = {
    "type": "object",
    "required": [
        "id",
        "said",
        "content",
        "answered",
        "index",
        "calls",
        "proposed",
        "runs",
        "usage",
        "cost",
        "duration_s",
        "finish_reason",
        "failure",
    ],
    "properties": {
        "id": {"type": "string", "description": "Id of the exchange; a fork keeps it."},
        "said": {"type": "string", "description": "The user's message as text."},
        "content": {"type": "object", "description": "The user's message as it was sent."},
        "answered": {"type": "boolean", "description": "False if nothing of it is in `contents`."},
        "index": {"type": ["integer", "null"], "description": "Its place in `contents`; null if it was summarized."},
        "calls": {"type": "array", "items": {"type": "string"}, "description": "Ids of the started calls."},
        "proposed": {"type": "array", "items": {"type": "string"}, "description": "Ids of proposed calls, in order."},
        "runs": {"type": "array", "items": {"type": "string"}, "description": "Its runs, as `trace` names them."},
        "usage": {"type": "object", "description": "Tokens of its runs."},
        "cost": {"type": ["number", "null"], "description": "Cost of its runs; null if unknown."},
        "duration_s": {"type": ["number", "null"], "description": "Time of its runs; null if it was not recorded."},
        "finish_reason": {"type": ["string", "null"], "description": "Reason of its last run's end; null before."},
        "failure": {
            "description": "The error that its last run ended with.",
            "type": ["object", "null"],
            "required": ["error", "message", "partial"],
            "properties": {
                "error": {"type": "string", "description": "The class of the error."},
                "message": {"type": "string", "description": "Its message."},
                "partial": {"type": "string", "description": "Text of the answer before it broke off."},
            },
        },
    },
}
SESSION: JsonObject = {
    "type": "object",
    "required": [
        "id", "title", "state", "contents", "exchanges", "exchange_count", "calls", "usage", "cost", "approvals",
        "rules", "run",
    ],
    "properties": {
        "id": {"type": "string", "description": "Id of the session."},
        "title": {"type": "string", "description": "Its title, or a line of its first prompt."},
        "state": {"type": "string", "description": "State of the session, as in the list of sessions."},
        "contents": {"type": "array", "description": "The history, as contents in Gemini's form."},
        "exchange_count": {"type": "integer", "description": "Number of its exchanges."},
        "created": {"type": ["number", "null"], "description": "Seconds since 1970."},
        "updated": {"type": ["number", "null"], "description": "Seconds since 1970, of the last change."},
        "answer_metadata": {"type": "array", "description": "Sources and the like, by the number of the content."},
        "calls": {"type": "array", "description": "The calls of the session with their states and results."},
        "usage": {"type": "object", "description": "Tokens of all runs."},
        "cost": {"type": ["number", "null"], "description": "Cost of all runs; null if unknown."},
        "rules": {"type": "array", "description": "Approvals with `always`, for this session."},
        "approvals": {"type": "array", "items": APPROVAL, "description": "The calls that wait for approval."},
        "exchanges": {"type": "array", "items": EXCHANGE, "description": "Its exchanges, oldest first."},
        "run": {"type": ["string", "null"], "description": "Id of the run in progress here."},
    },
}  # fmt: skip
_EXCHANGE_ID: JsonObject = {"type": "string", "minLength": 1, "maxLength": 80}
FORK: JsonObject = {
    "type": "object",
    "properties": {
        "after": {**_EXCHANGE_ID, "description": "The last exchange of the copy."},
        "before": {**_EXCHANGE_ID, "description": "The first exchange that is left out of the copy."},
    },
    "maxProperties": 1,
    "additionalProperties": False,
}
RENAME: JsonObject = {
    "type": "object",
    "required": ["title"],
    "properties": {
        "title": {
            "type": "string",
            "pattern": "\\S",
            "maxLength": TITLE_CHARS_MAX,
            "description": "Title of the session in lists, on one line.",
        }
    },
    "additionalProperties": False,
}
RENAMED: JsonObject = {
    "type": "object",
    "required": ["id", "title"],
    "properties": {
        "id": {"type": "string", "description": "Id of the session."},
        "title": {"type": "string", "description": "The title that it has now."},
    },
}
UNDO: JsonObject = {
    "type": "object",
    "properties": {
        "exchanges": {
            "type": "array",
            "items": _EXCHANGE_ID,
            "minItems": 1,
            "maxItems": 10_000,
            "description": "The last exchanges of the session, oldest first. Without it, the last one.",
        }
    },
    "additionalProperties": False,
}


# Looking -----------------------------------------------------------------------------------------------------------------


async def listed(service: Service, request: Request) -> Response:
    """The sessions, the one that was written to last first."""
    limit = int_of(request, "limit", default=50, lowest=1, highest=200)
    query = " ".join(request.query_params.get("query", "").split())
    cursor = request.query_params.get("cursor")
    before = None if cursor is None else _read_cursor(cursor)
    principal = CURRENT_PRINCIPAL.get()
    whose = None if principal is None or principal.sees_all else principal.owner
    if query:
        matching = await service.search.find(query, limit=limit, before=before, principal=whose)
        rows = [await _row(service, info) | ({"match": words} if words else {}) for info, words in matching.sessions]
        return json_response({"sessions": rows, "next": _cursor(*matching.after) if matching.after else None})
    found = await session_page(service.store, limit=limit + 1, before=before, principal=whose)
    page = found[:limit]
    rows = [await _row(service, info) for info in page]
    return json_response({"sessions": rows, "next": _cursor(*place_of(page[-1])) if len(found) > limit else None})


async def _row(service: Service, info: SessionInfo) -> JsonObject:
    summary = await service.summary(info)
    running = info.owner is not None or _live_run(service, info.id) is not None
    return {
        "id": info.id,
        "title": info.title,
        "created": info.created_s,
        "updated": info.updated_s,
        "exchange_count": summary.exchanges,
        "state": "running" if running else summary.state,
        "running": running,
    }


def _cursor(updated_s: float, session: str) -> str:
    return base64.urlsafe_b64encode(f"{updated_s!r} {session}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[float, str]:
    try:
        updated, _, session = base64.b64decode(cursor, b"-_", validate=True).decode().partition(" ")
        return float(updated), session
    except (binascii.Error, ValueError):
        raise HttpError(422, "invalid_request", "cursor: use the `next` of the page before") from None


def _live_run(service: Service, session: str) -> Run | None:
    run = service.run_of(session)
    return None if run is None or run.is_over else run


async def shown(service: Service, request: Request) -> Response:
    """A session: its history, its calls, what it waits for and what was allowed in it."""
    session = request.path_params["id"]
    run = _live_run(service, session)
    info = await session_info(service.store, session)
    # The number of facts says whether anything has happened; who follows a session asks with the tag that it got last.
    tag = f'"{info.facts}-{run.id if run else info.owner or ""}-{info.title!r}"' if info else ""
    etag = {"ETag": f'"{hashlib.sha256(tag.encode()).hexdigest()[:24]}"'} if info else {}
    if info and request.headers.get("if-none-match") == etag["ETag"]:
        return Response(status_code=304, headers=etag)
    facts = await service.facts(session)
    # A session can be long: it is replayed and encoded where other clients do not wait for it.
    replay = await asyncio.to_thread(whole.replayed, facts)
    reply = replay.machine.reply(session)
    fixed: JsonObject = {
        "id": session,
        "title": info.title if info else "",
        "created": info.created_s if info else None,
        "updated": info.updated_s if info else None,
        "state": "running" if run or (info and info.owner) else whole.state_of(replay.machine),
        "approvals": [await approval_json(service, session, record) for record in reply.approvals],
        "run": run.id if run else None,
    }
    body = await asyncio.to_thread(lambda: _in_pieces(fixed | _replay_json(facts, replay, reply.contents)))
    return encoded_response(body, headers=etag)


def _in_pieces(value: JsonObject) -> bytes:
    """A value as JSON, encoded piece by piece: one piece at a time keeps other threads waiting."""
    pieces: list[bytes] = []
    for key, item in value.items():
        pieces += (b"," if pieces else b"{", strict_json.dump(key), b":")
        if not isinstance(item, list):
            pieces.append(strict_json.dump(item))
            continue
        start = b"["
        for each in cast("list[Any]", item):
            pieces += (start, strict_json.dump(each))
            start = b","
        pieces.append(b"]" if item else b"[]")
    return b"".join([*pieces, b"}"])


def _replay_json(facts: list[Fact], replay: whole.Replay, contents: list[Content]) -> JsonObject:
    loop = replay.machine
    over = {record.call.id for record in replay.settled}
    calls = replay.settled + [record for record in loop.open_calls if record.call.id not in over]
    return {
        "contents": contents,
        "exchanges": [_exchange_json(exchange) for exchange in replay.exchanges],
        "exchange_count": len(replay.exchanges),
        "calls": [record_json(record) for record in calls],
        "usage": plain(loop.usage),
        "cost": loop.cost,
        "answer_metadata": [
            {"content": index, "metadata": plain(metadata)}
            for index, metadata in whole.metadata_by_content(facts, contents).items()
        ],
        "rules": plain(list(loop.always.values())),
    }


def _exchange_json(exchange: whole.Exchange) -> JsonObject:
    failure = exchange.failure
    return {
        "id": exchange.id,
        "said": exchange.said,
        "content": exchange.content,
        "answered": exchange.is_answered,
        "index": exchange.kept,
        "calls": exchange.calls,
        "proposed": exchange.proposed,
        "runs": exchange.runs,
        "usage": plain(exchange.usage),
        "cost": exchange.cost,
        "duration_s": exchange.duration_s,
        "finish_reason": exchange.finish_reason,
        "failure": failure and {"error": code_of(failure.error), "message": failure.message, "partial": failure.partial},
    }


async def traced(service: Service, request: Request) -> Response:
    """Durations of the runs of a session and of their steps."""
    facts = await service.facts(request.path_params["id"])
    return await asyncio.to_thread(lambda: json_response({"spans": trace_json(facts)}))


async def events(service: Service, request: Request) -> Response:
    """The events of the session's run as they come; `Last-Event-ID` or `after` continues after an event."""
    session = request.path_params["id"]
    mark = request.query_params.get("after") or request.headers.get("last-event-id") or ""
    run_id, _, number = mark.rpartition(":")
    run = service.runs.get(run_id) if run_id else service.run_of(session)
    if run is None or run.session != session:
        await service.facts(session)
        info = await session_info(service.store, session)
        is_held = info is not None and info.owner is not None
        if not _live_run(service, session) and (is_held or number_elsewhere(service, request, session) is not None):
            return await elsewhere(service, request, session)
        raise HttpError(410, "run_gone", "The run is not known here any more: read the session instead.")
    if number and (not number.isascii() or not number.isdigit() or len(number) > 12):
        raise HttpError(422, "invalid_request", f"{mark!r} is not the id of an event")
    after = min(int(number or 0), run.last)
    if after + 1 < run.first:
        raise HttpError(410, "events_gone", "Some of these events are not kept any more: read the session instead.")
    return EventStream(run, service.options, after=after, headers={"Callgate-Run": run.id})


# Changing ----------------------------------------------------------------------------------------------------------------


async def deleted(service: Service, request: Request) -> Response:
    """Delete a session, and what the provider stores of it; `left` lists what could not be deleted there."""
    session = request.path_params["id"]
    left: list[str] = []
    if _live_run(service, session) is not None:
        raise SessionBusyError(f"session {session!r} has a run; cancel it first")
    if not await service.delete(session, left.append):
        raise HttpError(404, "no_such_session", f"there is no session {session!r}")
    return json_response({"deleted": session} | ({"left": left} if left else {}))


async def cancelled(service: Service, request: Request) -> Response:
    """Stop the run of a session cleanly, here or in another process; `cancelled` is true if there was one.

    `run` is null if it is in another process.
    """
    session = request.path_params["id"]
    run = _live_run(service, session)
    if run is None:
        await service.facts(session)
        return json_response({"cancelled": await service.remote_answers.cancel(session), "run": None})
    done = run.cancel(CANCELLED)
    return json_response({"cancelled": done, "run": run.id})


async def renamed(service: Service, request: Request) -> Response:
    """Set the title of a session, in place of the one made from its first prompt."""
    session = request.path_params["id"]
    body = await read_json(request, RENAME)
    await service.facts(session)
    return json_response({"id": session, "title": await service.gate.rename(session, body["title"])})


async def forked(service: Service, request: Request) -> Response:
    """Create a new session that continues this one, up to an exchange."""
    session = request.path_params["id"]
    body = await read_json(request, FORK, required=False)
    await service.facts(session)
    target = f"chat-{uuid.uuid4().hex[:12]}"
    exchange = body.get("after") or body.get("before")
    await service.same_principal(session, target)
    await whole.fork(service.store, session, target, exchange=exchange, before="before" in body)
    return json_response({"session": target}, 201)


async def undone(service: Service, request: Request) -> Response:
    """Undo the last exchanges, and what tools wrote to files in them; 409 if others are the last ones by now."""
    session = request.path_params["id"]
    body = await read_json(request, UNDO, required=False)
    await service.facts(session)
    taken = await whole.rewind(service.store, session, expected=body.get("exchanges"), undo=service.undo)
    said = [exchange.said for exchange in taken.exchanges]
    return json_response({"taken_back": said, "exchanges": [one.id for one in taken.exchanges], "files": taken.notes})


_ID = "/api/v1/sessions/{id}"
_DONE: JsonObject = {"type": "object"}

OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/sessions",
        listed,
        query={
            "query": {"type": "string", "description": "Words to search for in the sessions."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 200, "description": "Sessions on a page; 50 by default."},
            "cursor": {"type": "string", "contentEncoding": "base64url", "description": "`next` of the page before."},
        },
        gives={
            200: {
                "type": "object",
                "required": ["sessions", "next"],
                "properties": {
                    "sessions": {"type": "array", "items": SUMMARY, "description": "One page of the sessions."},
                    "next": {"type": ["string", "null"], "description": "The cursor of the next page; null on the last."},
                },
            }
        },
    ),
    Operation("GET", _ID, shown, gives={200: SESSION}),
    Operation(
        "PATCH",
        _ID,
        renamed,
        takes=RENAME,
        gives={200: RENAMED},
        fails=(409,),
    ),
    Operation("DELETE", _ID, deleted, gives={200: _DONE}, fails=(409,)),
    Operation("POST", f"{_ID}/cancel", cancelled, gives={200: _DONE}, fails=(409,)),
    Operation("POST", f"{_ID}/fork", forked, takes=FORK, body_required=False, gives={201: _DONE}, fails=(409,)),
    Operation("POST", f"{_ID}/undo", undone, takes=UNDO, body_required=False, gives={200: _DONE}, fails=(409,)),
    Operation(
        "GET",
        f"{_ID}/events",
        events,
        query={"after": {"type": "string", "description": "The same as the header `Last-Event-ID`."}},
        headers={"Last-Event-ID": {"type": "string", "description": "The id of the last event received."}},
        gives={200: EVENT},
        media_type=EVENTS_TYPE,
        fails=(409, 410),
    ),
    Operation("GET", f"{_ID}/trace", traced, gives={200: {"type": "object", "required": ["spans"]}}),
)


def routes(service: Service) -> list[Route]:
    """The routes of sessions."""
    return table(service, OPERATIONS)
