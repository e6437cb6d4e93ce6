"""`/api/v1/approvals`: the calls that wait for somebody, and the answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.errors import SessionBusyError, UsageError
from callgate.machine.facts import ApprovalAnswered
from callgate.permission import Approval
from callgate.server.body import read_json
from callgate.server.chat import ANSWER, answer_from
from callgate.server.edited_args import check_edit
from callgate.server.errors import HttpError, json_response
from callgate.server.identity import CURRENT_PRINCIPAL, Principal, check_right
from callgate.server.openapi import Operation, table
from callgate.server.remote_answers import answer_at
from callgate.server.runs import Run
from callgate.server.service import Ask
from callgate.server.views import APPROVAL, approval_json, asked_json
from callgate.store import SessionInfo
from callgate.store.listing import session_info
from callgate.types import CallRecord, FunctionCall, JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["answer_call", "count_waiting", "routes"]

GIVEN: JsonObject = ANSWER["anyOf"][1]
LOOKED_AT_ONCE = 200
"""Sessions that are looked up in one query."""
TRIES = 5
START_S = 15.0
"""Seconds that a session may take to continue, with the wait for its lease."""
JOURNAL_LOOK_S = 0.02
"""Seconds between two looks at a run without events for an answer that it is about to journal."""


async def approvals(service: Service, request: Request) -> Response:
    """The calls that wait for approval: those of runs in progress, and those of paused sessions."""
    principal = CURRENT_PRINCIPAL.get()
    if principal is not None and not principal.may("approve"):
        check_right(principal, "chat")
    found: list[JsonObject] = []
    live, paused = await _waiting(service)
    mine = await _own(service, principal, [*live, *(info.id for info in paused)])
    for run in live.values():
        if mine is None or run.session in mine:
            found += [await asked_json(service, run.session, held.call, held.reason) for held in run.waiting.values()]
    for info in paused:
        if mine is None or info.id in mine:
            summary = await service.summary(info)
            found += [await approval_json(service, info.id, record) for record in summary.approvals]
    return json_response({"approvals": found})


async def count_waiting(service: Service) -> int:
    """Return how many calls wait for an answer, whosever they are.

    Raises:
        StoreError: the store cannot be used.
    """
    live, paused = await _waiting(service)
    summaries = [await service.summary(info) for info in paused]
    return sum(len(run.waiting) for run in live.values()) + sum(len(summary.approvals) for summary in summaries)


async def _waiting(service: Service) -> tuple[dict[str, Run], list[SessionInfo]]:
    """Return the runs that go on here, and the sessions besides in which calls may wait."""
    live = {run.session: run for run in service.live}
    return live, [info for info in await service.waiting_sessions.look() if info.id not in live]


async def _own(service: Service, principal: Principal | None, sessions: Sequence[str]) -> set[str] | None:
    """Return those of the sessions that the client may see; None: all of them."""
    if principal is None or principal.sees_all:
        return None
    own: set[str] = set()
    for start in range(0, len(sessions), LOOKED_AT_ONCE):
        own |= await service.principals.owned(list(sessions[start : start + LOOKED_AT_ONCE]), str(principal.owner))
    return own


async def answer(service: Service, request: Request) -> Response:
    """Answer a pending call; the run continues, in the background if no client follows it."""
    body = await read_json(request, GIVEN)
    session, call_id = request.path_params["session"], request.path_params["call_id"]
    run = await answer_call(service, session, call_id, service.signed(answer_from(body)))
    return json_response({"session": session, "call_id": call_id, "answer": body["answer"], "run": run})


async def answer_call(service: Service, session: str, call_id: str, approval: Approval) -> str | None:
    """Hand an answer to the run that waits for it, here or in another process, or go on with a session that paused.

    Returns the id of the run; None if it is in another process. When this returns, the answer is in the journal; when it
    raises, it counts for nothing.

    Raises:
        HttpError: nothing waits for this answer, another one was given before, or its arguments do not fit the tool.
        SessionBusyError: another process holds the session and does not take the answer.
    """
    failed = busy = SessionBusyError(
        f"session {session!r} is in use, and its process did not take the answer: nothing was answered"
    )
    for _ in range(TRIES):
        run = service.run_of(session)
        if run is not None and not run.is_over:
            if run.outcomes.get(call_id) == "deferred" and call_id not in run.waiting:
                await run.done.wait()  # It pauses, and is answered as every paused session is.
                continue
            _answer_here(service, run, call_id, approval)
            await _journalled(service, run, call_id)
            return run.id
        standing = await service.session_state(session)
        check_edit(service, _call_of(session, call_id, standing.reply.approvals), approval)
        info = await session_info(service.store, session)
        if info is not None and info.owner is not None and service.remote_answers.is_shared:
            taken = await service.remote_answers.leave(session, call_id, approval)
            if taken:
                return None
            if taken is None:
                break
            continue
        begun = await service.start(Ask(session=session, answers={call_id: approval}, detached=True))
        await begun.settled(START_S)
        if not begun.never_began:
            await _journalled(service, begun, call_id)
            return begun.id
        if not isinstance(begun.error, (SessionBusyError, UsageError)) or not service.remote_answers.is_shared:
            raise begun.error or AssertionError("a run that failed has an error")
        failed = begun.error if isinstance(begun.error, UsageError) else busy
    raise failed


async def _journalled(service: Service, run: Run, call_id: str) -> None:
    """Wait until an answer that was handed to a run is in its journal: its process may end at any moment.

    An answer to a call that comes after another question is journalled when that is answered, and not waited for.

    Raises:
        HttpError: the run ended instead, or was cancelled, and the answer is not in the journal.
    """
    await run.until(lambda: call_id in run.early or call_id not in service.awaiting(run.session), JOURNAL_LOOK_S)
    if not (run.is_over or run.is_ending):
        return
    if run.is_ending:
        await run.done.wait()
    is_answered = any(isinstance(f, ApprovalAnswered) and f.id == call_id for f in await service.facts(run.session))
    waits = (await service.session_state(run.session)).reply.approvals if is_answered else []
    if not is_answered or any(record.call.id == call_id for record in waits):  # Perhaps it is asked about once more.
        why = f"the run of session {run.session!r} ended before call {call_id!r} was answered: the answer counts for nothing"
        raise HttpError(409, "run_ended", why)


def _answer_here(service: Service, run: Run, call_id: str, approval: Approval) -> None:
    waiting = run.waiting.get(call_id)
    records = [record for record in service.gate.open_calls(run.session) if record.state == "awaiting"]
    call = waiting.call if waiting is not None else _call_of(run.session, call_id, records)
    check_edit(service, call, approval)
    if waiting is None and call_id not in run.early and call_id not in run.outcomes:
        run.early[call_id] = approval
    elif not answer_at(run, call_id, approval):
        raise HttpError(409, "already_answered", f"call {call_id!r} of session {run.session!r} was answered before")


def _call_of(session: str, call_id: str, records: Sequence[CallRecord]) -> FunctionCall:
    for record in records:
        if record.call.id == call_id:
            return record.call
    raise HttpError(404, "not_waiting", f"no call {call_id!r} of session {session!r} waits for an answer")


WAITING: JsonObject = {
    "type": "object",
    "properties": {"approvals": {"type": "array", "items": APPROVAL, "description": "The calls that wait."}},
}
OPERATIONS = (
    Operation(
        "GET",
        "/api/v1/approvals",
        approvals,
        right=None,  # Either of two; see there.
        gives={200: WAITING},
    ),
    Operation(
        "POST",
        "/api/v1/approvals/{session}/{call_id}",
        answer,
        right="approve",
        takes=GIVEN,
        gives={
            200: {
                "type": "object",
                "required": ["session", "call_id", "answer", "run"],
                "properties": {
                    "session": {"type": "string", "description": "Id of the conversation."},
                    "call_id": {"type": "string", "description": "Id of the call."},
                    "answer": {"type": "string", "description": "The answer that counts."},
                    "run": {"type": ["string", "null"], "description": "Id of the run that continues here."},
                },
            }
        },
        fails=(409, 500, 502, 504),
    ),
)


def routes(service: Service) -> list[Route]:
    """The routes of approvals."""
    return table(service, OPERATIONS)
