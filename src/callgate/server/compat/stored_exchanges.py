"""Exchanges that clients of other APIs name by an id: `/v1/interactions` and `/v1/responses` keep theirs here.

An id names a session and an exchange of it, or a point in the journal for an answer that was passed on to the client's own
tools. Reading, cancelling and deleting are the same for every API; how any of it is spelled is not known here.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from callgate import sessions as whole_sessions
from callgate.content.build import say, text_part
from callgate.content.metadata import server_steps_of, step_part
from callgate.content.read import content_of, interaction_of, is_call, is_sound_text, is_thought, parts_of
from callgate.errors import SessionBusyError, SessionChangedError
from callgate.history.repair import repaired, starts_exchange
from callgate.machine.facts import ApprovalAnswered, ExchangeForgotten, Fact, HistoryGiven, ModelAnswered
from callgate.machine.machine import RunMachine
from callgate.server.compat.prompts import StartedReply, named_session, whole
from callgate.server.errors import HttpError
from callgate.server.remote_answers import CANCELLED
from callgate.server.runs import Run
from callgate.store import Lease
from callgate.store.anonymous import new_session_id
from callgate.types import CallRecord, Content, JsonObject, Part, Usage

if TYPE_CHECKING:
    from starlette.requests import Request

    from callgate.server.service import Service

__all__ = [
    "INTERRUPTED",
    "ExchangeId",
    "StoredExchange",
    "cancel_exchange",
    "continuing",
    "delete_exchange",
    "find_exchange",
    "forget_exchange",
    "keep_passed_on",
    "new_place",
    "place_of_run",
    "read_id",
    "sent_body",
]

INTERRUPTED = (
    "The process that ran it has ended before it was complete. It does not go on by itself; the conversation can be "
    "continued by its id."
)
"""Reason why an answer is incomplete, as a sentence for its client."""
_BUSY = "Its conversation is being continued: try again when that answer is complete, or cancel that one."
_PASSED_ON = "p"


@dataclass(frozen=True, slots=True)
class ExchangeId:
    """The place of an answer."""

    session: str
    number: int
    """The number of the exchange in its session, from 1; of an answer that was passed on, its position in the journal."""
    step: int = 0
    """0, or after an approval: the number of its answer among those of the exchange, from 1."""
    is_passed_on: bool = False

    def __str__(self) -> str:
        mark = _PASSED_ON if self.is_passed_on else ""
        step = f".{self.step}" if self.step else ""
        return base64.urlsafe_b64encode(f"{mark}{self.number}{step}/{self.session}".encode()).decode().rstrip("=")

    def continued(self, answered: Sequence[str], answers: Iterable[str]) -> ExchangeId:
        """The id of the same exchange when these calls are answered; `answered` are those that were, in their order.

        It is the same for a request that is repeated, and another one for each answer, whichever id a client names.
        """
        given = {*answers}
        before = next((number for number, call in enumerate(answered) if call in given), len(answered))
        return replace(self, step=before + 1)


def new_place(contents: Sequence[Content]) -> ExchangeId:
    """The place of an answer to these contents in a new session."""
    return ExchangeId(new_session_id(), max(1, sum(map(starts_exchange, repaired(contents)[0]))))


def sent_body(request: Request, body: JsonObject) -> JsonObject:
    """A request as another one with the same key must have sent it: how it is answered, whole or streamed, is open."""
    named = named_session(request)
    kept = {name: value for name, value in body.items() if name != "stream"}
    return {"path": request.url.path, "body": kept, "session": named}


async def place_of_run(service: Service, place: ExchangeId, begun: StartedReply, said: Content | None) -> ExchangeId:
    """The place of an answer whose run was begun, by this request or by another one with the same key."""
    if begun.session is None or place.is_passed_on or not begun.is_repeated:
        return place if begun.session is None or place.is_passed_on else replace(place, session=begun.session)
    place = replace(place, session=begun.session)
    if said is None or place.step:
        return place
    exchanges = whole_sessions.exchanges_of(await service.store.load(place.session))
    same = [number for number, one in enumerate(exchanges, 1) if parts_of(one.content) == parts_of(said)]
    return replace(place, number=same[-1]) if same else place


def read_id(text: str, prefix: str, noun: str) -> ExchangeId:
    """Read an id that begins with `prefix`.

    Raises:
        HttpError: it is none.
    """
    token = text.removeprefix(prefix)
    try:
        place, _, session = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode().partition("/")
        number, _, step = place.removeprefix(_PASSED_ON).partition(".")
        found = ExchangeId(session, int(number), int(step or 0), place.startswith(_PASSED_ON))
    except (binascii.Error, ValueError):
        found = None
    if found is None or not found.session:
        raise HttpError(404, "not_found", f"{noun} {text[:200]!r} not found.")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExchange:
    """An answer as it is now."""

    before: Sequence[Content]
    """The conversation before it, with the user's input."""
    contents: Sequence[Content]
    """The contents of the exchange after the input."""
    left: Sequence[Content] = ()
    """The responses to its open calls, for a conversation that goes on without them."""
    is_newest: bool
    """True if its session can be continued after it."""
    run: Run | None = None
    """The run that is at work on it."""
    model: str = ""
    finish_reason: str = ""
    usage: Usage | None = None
    at_s: float = 0
    metadata: Sequence[JsonObject] = ()
    """The metadata of its answers as received: sources, citations, ratings."""
    approvals: Sequence[CallRecord] = ()
    """The calls that wait for an approval."""
    answered: Sequence[str] = ()
    """The calls of it whose approvals were answered, in the order of the answers."""
    failure: whole_sessions.Failure | None = None
    """The error that its run ended with."""
    is_interrupted: bool = False
    """True if its journal ends in the middle of it, or another exchange follows where it broke off."""
    is_elsewhere: bool = False
    """True if another process is at work on it."""

    @property
    def is_in_progress(self) -> bool:
        """True if it is in use."""
        return self.run is not None or self.is_elsewhere

    def parts(self, *, calls: bool) -> list[Part]:
        """The parts that the model said; with `calls` also its calls, which are not the client's if the service ran them.

        A blank line is between the texts of two turns, as in what a client saw while they came.
        """
        said: list[Part] = []
        has_text = False
        for content in self.contents:
            if content.get("role") != "model":
                continue
            # What ran at Google, by its Interactions API, is beside the parts.
            said += map(step_part, server_steps_of(content)) if interaction_of(content) is not None else ()
            is_next = has_text
            for part in parts_of(content):
                if is_sound_text(part) and not is_thought(part):
                    said += [text_part("\n\n")] if is_next else []
                    has_text, is_next = True, False
                said += [part] if calls or not is_call(part) else []
        return said

    def chunk(self, *, calls: bool) -> JsonObject:
        """The answer as one chunk of a response."""
        return say(self.parts(calls=calls), finish_reason=self.finish_reason or None, usage=self.usage)


async def find_exchange(service: Service, place: ExchangeId, missing: HttpError) -> StoredExchange:
    """Find an exchange that the client may see.

    Raises:
        HttpError: there is none.
    """
    await _check_session(service, place.session, missing)
    found = await _seen(service, place, missing)
    if not found.is_interrupted or not found.is_newest:
        return found
    is_held = await _is_held(service, place.session)
    found = await _seen(service, place, missing)  # Its run may have ended since the first look.
    return replace(found, is_interrupted=not is_held, is_elsewhere=is_held) if found.is_interrupted else found


async def _check_session(service: Service, session: str, missing: HttpError) -> None:
    """Refuse the session of another client as one that there is not."""
    try:
        await service.check_session(session)
    except HttpError as error:
        raise (missing if error.code == 404 else error) from None


async def _seen(service: Service, place: ExchangeId, missing: HttpError) -> StoredExchange:
    """An exchange as the journal and the runs of this process have it."""
    run = service.run_of(place.session)
    run = None if run is None or run.is_over else run
    facts = await service.store.load(place.session)
    found = None
    if facts:
        found = await asyncio.to_thread(_passed_on if place.is_passed_on else _exchange, facts, place)
    if run is not None and _is_run_of(run, place, found):
        if run.is_over:  # It ended meanwhile: what was read may be from before.
            return await _seen(service, place, missing)
        before = found.before if found is not None else ()
        return StoredExchange(before=before, contents=(), is_newest=True, run=run, model=run.model, at_s=run.began_s)
    if found is None:
        raise missing
    known = run or service.run_of(place.session)
    found = found if found.model or known is None else replace(found, model=known.model)
    return found if run is None else replace(found, is_newest=False)  # Somebody else goes on with its session.


def _is_run_of(run: Run, place: ExchangeId, found: StoredExchange | None) -> bool:
    """True if a run of its session is at work on an exchange: on that which it was begun for.

    One that was begun otherwise than by an id has none: it is at work on the newest exchange unless that has ended.
    """
    if place.is_passed_on:
        return False
    if run.exchange is not None:
        return run.exchange == place.number
    return found is not None and found.is_newest and not found.finish_reason


@contextlib.asynccontextmanager
async def continuing(service: Service, place: ExchangeId, key: str | None) -> AsyncGenerator[bool]:
    """Claim the exchange after this one; False if another request has it, in whichever process.

    The claim is released if the request cannot begin. One that is repeated with its idempotency key has it again.
    """
    claim = await service.keys.claim_exchange(place.session, place.number + 1, key)
    try:
        yield claim is not None
    except BaseException:
        if claim is not None:
            await service.keys.release(claim)
        raise


async def _is_held(service: Service, session: str) -> bool:
    """True if a process that is alive is at work on a session."""
    try:
        async with whole_sessions.leased(service.store, session):
            return False
    except SessionBusyError:
        return True


def _exchange(facts: Sequence[Fact], place: ExchangeId) -> StoredExchange | None:
    exchanges = whole_sessions.exchanges_of(facts)
    if not 1 <= place.number <= len(exchanges):
        return None
    exchange = exchanges[place.number - 1]
    if exchange.id in _forgotten(facts):
        return None
    if exchange.kept is None:
        raise HttpError(410, "events_gone", "It is not kept any more.")
    standing = whole_sessions.state_from_facts(place.session, facts)
    reply = standing.reply
    is_newest = place.number == len(exchanges) and not isinstance(facts[-1], HistoryGiven)
    end = None if place.number == len(exchanges) else exchanges[place.number].kept
    until = None if place.number == len(exchanges) else exchanges[place.number].position
    answers = [fact for fact in facts[exchange.position : until] if isinstance(fact, ModelAnswered)]
    return StoredExchange(
        model=answers[-1].model if answers else "",
        before=reply.contents[: exchange.kept + 1],
        contents=reply.contents[exchange.kept + 1 : end],
        left=whole_sessions.left_responses(facts) if is_newest and standing.state != "idle" else (),
        is_newest=is_newest,
        finish_reason=exchange.finish_reason or "",
        usage=exchange.usage,
        metadata=[reported for fact in answers for reported in fact.metadata or ()],
        at_s=_time_of(facts[exchange.position]),
        approvals=reply.approvals if is_newest else (),
        answered=[fact.id for fact in facts[exchange.position : until] if isinstance(fact, ApprovalAnswered)],
        failure=exchange.failure,
        is_interrupted=standing.state == "interrupted" if is_newest else exchange.finish_reason is None,
    )


def _forgotten(facts: Iterable[Fact]) -> set[str]:
    """The ids of the exchanges that no client can name any more."""
    return {fact.exchange for fact in facts if isinstance(fact, ExchangeForgotten)}


def _passed_on(facts: Sequence[Fact], place: ExchangeId) -> StoredExchange | None:
    if not 1 <= place.number <= len(facts) or not isinstance(facts[place.number - 1], HistoryGiven):
        return None
    contents = RunMachine(facts[: place.number]).conversation.contents
    is_newest = place.number == len(facts)
    at_s = _time_of(facts[place.number - 1])
    return StoredExchange(
        before=contents[:-1], contents=contents[-1:], is_newest=is_newest, finish_reason="STOP", at_s=at_s
    )  # fmt: skip


def _time_of(fact: Fact) -> float:
    return fact.at_s or 0


async def keep_passed_on(
    service: Service, place: ExchangeId, contents: Sequence[Content], chunks: AsyncGenerator[JsonObject]
) -> AsyncGenerator[JsonObject]:
    """Hand the chunks of an answer on, and write the conversation to its session when it is whole.

    Raises:
        SessionChangedError: somebody else has written to the session meanwhile.
    """
    said: list[JsonObject] = []
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            said.append(chunk)
            yield chunk
    answer = content_of(whole(said))
    kept = [*contents, *([answer] if parts_of(answer) else [])]
    async with whole_sessions.leased(service.store, place.session) as lease:
        if lease.position != place.number - 1:
            raise SessionChangedError("the conversation was continued elsewhere meanwhile: this answer is not stored")
        given = HistoryGiven(contents=kept, at_s=time.time())
        await service.store.append(lease, [given], position=lease.position, durable=True)


async def cancel_exchange(service: Service, place: ExchangeId, missing: HttpError, refused: HttpError) -> str:
    """Stop the run of an exchange, and return the name of its model.

    Raises:
        HttpError: there is no such exchange, or it has no run.
        SessionBusyError: the run is in another process, which does not hear of it.
    """
    found = await find_exchange(service, place, missing)
    if found.is_elsewhere:
        is_cancelled = await service.remote_answers.cancel(place.session)
    else:
        is_cancelled = found.run is not None and found.run.cancel(CANCELLED)
    if not is_cancelled:
        raise refused
    return found.model


async def delete_exchange(service: Service, place: ExchangeId, missing: HttpError) -> None:
    """Forget the session of an exchange, with all exchanges before it.

    Raises:
        HttpError: there is none, or a run is at work on it.
    """
    await _check_rest(service, place, missing)
    if not await service.delete(place.session):
        raise missing


async def forget_exchange(service: Service, place: ExchangeId, missing: HttpError) -> None:
    """Forget one exchange: its id names nothing any more. The session goes with the last one that could be named.

    Raises:
        HttpError: there is none, or a run is at work on its session.
    """
    await _check_rest(service, place, missing)
    await _seen(service, place, missing)
    async with _hold_session(service, place.session) as lease:
        facts = await service.store.load(place.session)
        named = [] if place.is_passed_on else await asyncio.to_thread(whole_sessions.exchanges_of, facts)
        gone = {*_forgotten(facts), *(one.id for one in named[place.number - 1 : place.number])}
        is_last = all(one.id in gone for one in named)
        if not is_last:
            forgotten = ExchangeForgotten(exchange=named[place.number - 1].id, at_s=time.time())
            await service.store.append(lease, [forgotten], position=lease.position, durable=True)
    if is_last and not await service.delete(place.session):
        raise missing


@contextlib.asynccontextmanager
async def _hold_session(service: Service, session: str) -> AsyncGenerator[Lease]:
    """Hold a session; which process holds it instead is not the client's business.

    Raises:
        HttpError: another process is at work on it.
    """
    try:
        async with whole_sessions.leased(service.store, session) as lease:
            yield lease
    except SessionBusyError as error:
        raise HttpError(409, "session_busy", _BUSY) from error


async def _check_rest(service: Service, place: ExchangeId, missing: HttpError) -> None:
    """Refuse a session that is not the client's, or on which a run is at work."""
    await _check_session(service, place.session, missing)
    run = service.run_of(place.session)
    if run is not None and not run.is_over:
        is_own = run.exchange is None or run.exchange == place.number
        raise HttpError(409, "session_busy", "It is in progress; cancel it first." if is_own else _BUSY)
