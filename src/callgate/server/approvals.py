"""`/api/v1/approvals`: the calls that wait for somebody, and the answers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.permission import Approval
from callgate.server.body import read_json
from callgate.server.chat import ANSWER, answer_from
from callgate.server.errors import HttpError, json_response
from callgate.server.openapi import Operation, table
from callgate.server.service import Ask
from callgate.server.views import APPROVAL, approval_json, asked_json
from callgate.store.listing import session_page
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["answer_call", "routes"]

GIVEN: JsonObject = ANSWER["anyOf"][1]
SESSIONS_MAX = 200
"""Sessions, the newest first, that are looked through for calls that wait."""


async def approvals(service: Service, request: Request) -> Response:
    """The calls that wait for an answer: those of runs that go on, and those of sessions that paused."""
    found: list[JsonObject] = []
    for run in service.live:
        found += [await asked_json(service, run.session, held.call, held.reason) for held in run.waiting.values()]
    live = {run.session for run in service.live}
    for info in await session_page(service.store, limit=SESSIONS_MAX):
        if info.id not in live and info.owner is None:
            summary = await service.summary(info)
            found += [await approval_json(service, info.id, record) for record in summary.approvals]
    return json_response({"approvals": found})


async def answer(service: Service, request: Request) -> Response:
    """Answers a call that waits; the run goes on, in the background if nobody follows it."""
    body = await read_json(request, GIVEN)
    session, call_id = request.path_params["session"], request.path_params["call_id"]
    run = await answer_call(service, session, call_id, answer_from(body))
    return json_response({"session": session, "call_id": call_id, "answer": body["answer"], "run": run})


async def answer_call(service: Service, session: str, call_id: str, approval: Approval) -> str:
    """Hands an answer to the run that waits for it, or goes on with the session that paused; gives the run's id.

    Raises:
        HttpError: nothing waits for this answer.
        SessionBusyError: another process is at work on the session.
    """
    run = service.run_of(session)
    if run is not None and not run.is_over:
        held = run.waiting.get(call_id)
        if held is not None and not held.answer.done():
            held.answer.set_result(approval)
        elif call_id in service.awaiting(session):
            run.early[call_id] = approval
        else:
            raise HttpError(404, "not_waiting", f"no call {call_id!r} of session {session!r} waits for an answer")
        return run.id
    standing = await service.standing(session)
    if call_id not in {record.call.id for record in standing.reply.approvals}:
        raise HttpError(404, "not_waiting", f"no call {call_id!r} of session {session!r} waits for an answer")
    begun = await service.start(Ask(session=session, answers={call_id: approval}, detached=True))
    await begun.settled(0.2)
    if begun.never_began and begun.error is not None:
        raise begun.error
    return begun.id


OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/approvals",
        approvals,
        gives={200: {"type": "object", "properties": {"approvals": {"type": "array", "items": APPROVAL}}}},
    ),
    Operation(
        "POST",
        "/api/v1/approvals/{session}/{call_id}",
        answer,
        takes=GIVEN,
        gives={200: {"type": "object", "required": ["session", "call_id", "answer", "run"]}},
        fails=(409, 500, 502, 504),
    ),
)


def routes(service: Service) -> list[Route]:
    """The routes of approvals."""
    return table(service, OPERATIONS)
