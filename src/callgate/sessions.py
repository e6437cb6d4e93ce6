"""Operations on whole sessions: state, rewind, fork, import and export, outside of their runs.

A conversation is rewound or copied by appending facts: the journal keeps everything. `undo` restores the files that tools
changed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from callgate import strict_json
from callgate.config.known_secrets import redact_known, redact_known_in
from callgate.content.metadata import metadata_of
from callgate.content.read import role_of, text_of
from callgate.errors import CallgateError, JsonError, SessionChangedError, UsageError
from callgate.history.repair import repaired, starts_exchange
from callgate.history.shorten import Shortening
from callgate.machine import codec
from callgate.machine import facts as words
from callgate.machine.facts import Fact
from callgate.machine.machine import RunMachine
from callgate.metadata import AnswerMetadata
from callgate.store import Lease, SessionInfo, Store
from callgate.store.owner import new_owner
from callgate.types import FINAL_STATES, CallRecord, Content, JsonObject, Reply, Usage

__all__ = [
    "DOCUMENT_VERSION",
    "LATEST",
    "Exchange",
    "Failure",
    "RewindResult",
    "SessionState",
    "State",
    "Undo",
    "exchanges_of",
    "export_session",
    "facts_of",
    "find",
    "fork",
    "import_session",
    "leased",
    "load",
    "metadata_by_content",
    "rewind",
    "state_from_facts",
    "state_of",
]  # fmt: skip

DOCUMENT_VERSION = codec.SCHEMA_VERSION
"""The version of the documents that `document` makes, and the newest that `facts_of` reads."""
LATEST = "latest"
"""The name that stands for the session that was used last."""
_UNREADABLE = "unreadable"
"""The kind of a damaged line in a document; in a journal it has none."""

State: TypeAlias = Literal["idle", "waiting", "interrupted"]
"""`idle`: the user's turn. `waiting`: for answers about calls. `interrupted`: the process ended before the run did."""

Undo: TypeAlias = Callable[[str, Sequence[str]], Sequence[str]]
"""Restore the files that these calls of a session wrote; returns sentences on what was restored and what could not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """The state of a session, from its journal alone."""

    state: State
    """Its state, as in lists of sessions."""
    reply: Reply
    """The result of its last run, as far as it got."""
    exchanges: int
    """The number of exchanges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The error that a run ended with."""

    message: str
    """The message of the error."""
    error: str = ""
    """The class of the error, as in `AuthError`; empty if it is not known."""
    partial: str = ""
    """Text of the answer that was shown before it broke off."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One exchange: a user input and everything up to the next one."""

    id: str
    """Its name in the session: no other exchange ever has it, and a fork keeps it."""
    said: str
    """The user input as text."""
    content: Content
    """The user input as it was given."""
    position: int
    """The position of its fact in the journal."""
    kept_then: int
    """Contents before it at that time."""
    kept: int | None
    """Contents before it now; None if it was dropped from the history."""
    is_shortened: bool = False
    """True if the history was shortened since."""
    calls: list[str] = field(default_factory=list[str])
    """Ids of the calls that were started, once or again."""
    proposed: list[str] = field(default_factory=list[str])
    """Ids of the calls that the model made, in the order in which its contents have them."""
    finish_reason: str | None = None
    """Reason of its run's end; None if it has not ended."""
    failure: Failure | None = None
    """The error that its run ended with."""
    runs: list[str] = field(default_factory=list[str])
    """Ids of its runs, as in its timeline."""
    usage: Usage = Usage()
    """Tokens of its runs."""
    cost: float | None = None
    """The cost of its runs, as far as known."""
    duration_s: float | None = None
    """The time of its runs, in which questions waited for answers too; None if it was not recorded."""
    is_answered: bool = True
    """False if nothing came of it: neither the input nor an answer is in the history."""

    def shorten(self, plan: Shortening, *, has_summary: bool) -> None:
        """Contents were left out, and perhaps a summary put in their place."""
        self.is_shortened = True
        if self.kept is not None:
            self.kept = plan.moved(self.kept, has_summary=has_summary) if self.kept >= plan.dropped else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindResult:
    """The result of a rewind."""

    exchanges: list[Exchange]
    """The exchanges that were removed."""
    notes: list[str]
    """The sentences of `undo`."""


# Looking -----------------------------------------------------------------------------------------------------------------


async def find(store: Store, id: str) -> SessionInfo:
    """Find the session with that id, or an unambiguous prefix; `latest` is the one written to last.

    Raises:
        UsageError: there is none, or more than one.
        StoreError: the store cannot be used.
    """
    known = await store.sessions()
    if id == LATEST:
        found = known[:1]
    else:
        found = [info for info in known if info.id == id] or [info for info in known if _begins(info.id, id)]
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(info.id for info in found[:5])
        raise UsageError(f"{len(found)} sessions have an id that begins with {id!r}: {shown}{', ...' if found[5:] else ''}")
    raise UsageError("there is no session yet" if id == LATEST else f"there is no session {id!r}")


def _begins(session: str, prefix: str) -> bool:
    """Generated ids have a prefix, which need not be typed."""
    return bool(prefix) and (session.startswith(prefix) or session.partition("-")[2].startswith(prefix))


async def load(store: Store, session: str) -> SessionState:
    """Load the state of a session, for example after a crash before the reply could be used.

    Raises:
        UsageError: there is no such session.
        StoreError: the store cannot be used, or contains something that is not a fact.
    """
    facts = await store.load(session)
    if not facts:
        raise UsageError(f"there is no session {session!r}")
    return await asyncio.to_thread(state_from_facts, session, facts)


def state_from_facts(session: str, facts: Iterable[Fact]) -> SessionState:
    """Return the state of a session with these facts."""
    replay = replayed(list(facts))
    reply = replay.machine.reply(session)
    return SessionState(state=state_of(replay.machine), reply=reply, exchanges=len(replay.exchanges))


def left_responses(facts: Sequence[Fact]) -> Sequence[Content]:
    """Return the responses to open calls, with what is known of each, for a conversation that goes on without them."""
    machine = replayed(facts).machine
    count = len(machine.conversation)
    machine.drop_calls()
    return machine.conversation.contents[count:]


def metadata_by_content(facts: Iterable[Fact], contents: Sequence[Content]) -> dict[int, AnswerMetadata]:
    """Return the metadata of the answers in a history, by the index of their content."""
    known = [fact for fact in facts if isinstance(fact, words.ModelAnswered) and fact.metadata]
    found: dict[int, AnswerMetadata] = {}
    for index, content in enumerate(contents if known else []):
        if role_of(content) != "model":
            continue
        fact = next((fact for fact in known if text_of(fact.content) == text_of(content)), None)
        if fact is not None and (metadata := metadata_of(fact.metadata or (), content)) is not None:
            known.remove(fact)
            found[index] = metadata
    return found


def state_of(loop: RunMachine) -> State:
    """Return the state of a session from its machine."""
    if loop.phase in ("idle", "done"):
        return "idle"
    unsettled = {record.state for record in loop.open_calls if record.state not in FINAL_STATES}
    return "waiting" if unsettled == {"awaiting"} else "interrupted"


def exchanges_of(facts: Sequence[Fact]) -> list[Exchange]:
    """Return the exchanges that were not removed, oldest first; those that failed are among them."""
    return replayed(facts).exchanges


@dataclass(frozen=True, slots=True)
class Replay:
    """A journal that was read to its end."""

    machine: RunMachine
    """The state in which the facts leave a session."""
    exchanges: list[Exchange]
    """Exchanges that were not undone, oldest first."""
    settled: list[CallRecord]
    """Every call that was settled, in that order, also those that were removed."""


def replayed(facts: Sequence[Fact]) -> Replay:
    """Read the facts of a session; one that cannot be applied is left out."""
    reader = _ExchangeReader(facts)

    def begin() -> Callable[[Fact], None]:
        nonlocal reader
        reader = _ExchangeReader(facts)
        return reader.take

    is_sound = words.replay(facts, begin)
    return Replay(reader.machine if is_sound else RunMachine(facts), reader.exchanges, reader.settled)


_STEPS = (words.ModelAnswered, words.ModelFailed, words.CallEnded, words.Cancelled)
"""Facts of a run at which it may end."""


class _ExchangeReader:
    """Reader of a journal that knows the exchanges at every point of it."""

    def __init__(self, journal: Sequence[Fact]) -> None:
        self.machine = RunMachine()
        """The state at the fact that is being read."""
        self.settled: list[CallRecord] = []
        """The calls that were settled, also those that were removed."""
        self.exchanges: list[Exchange] = []
        """Exchanges that were not undone, oldest first."""
        self._runs = 0
        self._spent = (Usage(), None)
        """Tokens and cost of the last exchange before its current run."""
        self._time: tuple[float | None, float] = (None, 0.0)
        """The start of the current run, and the time of the last exchange before it."""
        self.position = -1
        """The fact that is being read."""
        self._returns = {fact.position for fact in journal if isinstance(fact, words.Rewound)}
        self._known_at: dict[int, list[Exchange]] = {}

    def take(self, fact: Fact) -> None:
        """Read the next fact."""
        self.position += 1
        before = len(self.machine.conversation)
        if isinstance(fact, words.RunStarted) and fact.content is not None and state_of(self.machine) == "waiting":
            self.exchanges[-1].finish_reason = "cancelled"  # The calls that waited for an approval are cancelled with it.
        self.settled += self.machine.apply(fact)
        if isinstance(fact, words.Rewound):
            known = _copied(self._known_at[fact.position]) if fact.position in self._known_at else self.exchanges
            self.exchanges = _up_to(known, fact.exchange, len(self.machine.conversation))
        else:
            self._follow(fact, before)
        if self.position in self._returns:
            self._known_at[self.position] = _copied(self.exchanges)

    def _follow(self, fact: Fact, before: int) -> None:
        loop, exchanges = self.machine, self.exchanges
        if isinstance(fact, words.RunStarted):
            self._runs += 1
        match fact:
            case words.RunStarted(content=content) if content is not None:
                if exchanges and not exchanges[-1].is_answered and exchanges[-1].content == content:
                    exchanges.pop()  # Nothing had come of it, and the same was said again.
                exchanges.append(_exchange(f"x{self.position}", content, self.position, loop.run.start))
            case words.HistoryGiven():
                given = enumerate(loop.conversation.contents)
                self.exchanges[:] = [
                    _exchange(f"x{self.position}.{index}", said, self.position, index)
                    for index, said in given
                    if starts_exchange(said)
                ]
            case words.HistoryShortened(steps=plan):
                for exchange in exchanges:
                    exchange.shorten(plan, has_summary=len(loop.conversation) > before - plan.dropped - plan.pairs)
            case words.CallStarted(id=call_id) if exchanges and call_id not in exchanges[-1].calls:
                exchanges[-1].calls.append(call_id)
            case words.ModelAnswered() if exchanges and len(loop.conversation) > before:
                exchanges[-1].proposed += [call.id for call in fact.calls or fact.salvaged]
            case _:
                pass
        if exchanges and not isinstance(fact, words.HistoryGiven):
            self._note_run(exchanges[-1], fact)
            self._note_end(exchanges[-1], fact)

    def _note_run(self, exchange: Exchange, fact: Fact) -> None:
        """Note what the run of the last exchange has spent so far."""
        if isinstance(fact, words.RunStarted):
            exchange.runs.append(f"run-{self._runs}")
            self._spent = (exchange.usage, exchange.cost)
            self._time = (fact.at_s, exchange.duration_s or 0.0)
        run, (usage, cost) = self.machine.run, self._spent
        if exchange.runs and exchange.runs[-1] == f"run-{self._runs}":
            exchange.usage = usage + run.usage
            exchange.cost = cost if run.cost is None else (cost or 0.0) + run.cost
            start_s, before_s = self._time
            if isinstance(fact, _STEPS) and start_s is not None and fact.at_s is not None:
                exchange.duration_s = before_s + max(0.0, fact.at_s - start_s)

    def _note_end(self, exchange: Exchange, fact: Fact) -> None:
        """Note how the run of the last exchange stands: it goes on, or it has ended."""
        loop, finish = self.machine, self.machine.run.finish
        if loop.phase in ("asking", "calling", "checking"):
            exchange.finish_reason = exchange.failure = None
        elif loop.phase == "done" and finish is not None and exchange.finish_reason != finish.reason:
            failed = fact if isinstance(fact, words.ModelFailed) else words.ModelFailed(message=finish.message)
            partial = failed.partial or (fact.partial if isinstance(fact, words.Cancelled) else "")
            exchange.finish_reason = finish.reason
            if finish.error is not None:
                message = failed.message or f"The model's answer could not be used ({finish.reason})."
                exchange.failure = Failure(message=message, error=failed.error, partial=partial)
        # Without an answer, the conversation is as it was before.
        exchange.is_answered = exchange.kept is None or exchange.kept < len(loop.conversation)


def _up_to(exchanges: Sequence[Exchange], first: str | None, contents: int) -> list[Exchange]:
    """Return the exchanges before the first one that was taken back; an old journal has only the number of contents."""
    kept = list(exchanges)
    if any(exchange.id == first for exchange in kept):
        while kept.pop().id != first:
            pass
    else:
        while kept and (place := kept[-1].kept) is not None and place >= contents:
            kept.pop()
    return kept


def _copied(exchanges: Sequence[Exchange]) -> list[Exchange]:
    return [
        replace(exchange, calls=[*exchange.calls], proposed=[*exchange.proposed], runs=[*exchange.runs])
        for exchange in exchanges
    ]


def _exchange(id: str, content: Content, position: int, kept: int) -> Exchange:
    said = " ".join(text_of(content).split())
    return Exchange(id=id, said=said, content=content, position=position, kept_then=kept, kept=kept)


# Changing ----------------------------------------------------------------------------------------------------------------


async def rewind(
    store: Store, session: str, *, exchanges: int = 1, expected: Sequence[str] | None = None, undo: Undo | None = None
) -> RewindResult:
    """Rewind the conversation by the last `exchanges` exchanges, and files with it if `undo` is given.

    With `expected`, the ids of exchanges, exactly these are removed, and nothing if they are not the last ones: another
    person or process may have gone on with the session since it was looked at.

    Files first: if the process dies in between, the conversation still shows what was done, and a retry works.

    Raises:
        UsageError: there is no such session, or it has fewer exchanges.
        SessionChangedError: the last exchanges are not those that were expected.
        SessionBusyError: the session is in use.
        StoreError: the store cannot be used.
    """
    _check_number(exchanges, "exchanges")
    async with leased(store, session) as lease:
        facts = await store.load(session)
        known = await asyncio.to_thread(exchanges_of, facts)
        if expected is not None:
            exchanges = len(expected)
        if not 0 < exchanges <= len(known):
            raise UsageError(f"session {session!r} has {len(known)} exchanges: {exchanges} of them cannot be removed")
        taken = known[-exchanges:]
        if expected is not None and [exchange.id for exchange in taken] != list(expected):
            raise SessionChangedError(f"session {session!r} has changed since it was shown: read it again, then undo")
        calls = [call_id for exchange in taken for call_id in exchange.calls]
        notes = list(undo(session, calls)) if undo is not None and calls else []
        # A lasting answer belongs to its exchange: it does not outlive one that is taken back.
        later = [fact for fact in facts[taken[0].position :] if isinstance(fact, words.ApprovalAnswered | words.NestedCall)]
        revoked = [words.AlwaysRevoked(rule=id) for id in dict.fromkeys(fact.rule.id for fact in later if fact.rule)]
        await store.append(lease, [_cut_before(taken[0], facts), *revoked], position=lease.position, durable=True)
    return RewindResult(exchanges=taken, notes=notes)


def _check_number(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}={value!r}: use a whole number of exchanges")


def _cut_before(exchange: Exchange, facts: Sequence[Fact]) -> Fact:
    """Return the fact that rewinds the conversation to before an exchange."""
    if not exchange.is_shortened:
        return words.Rewound(contents_kept=exchange.kept_then, exchange=exchange.id)
    # Contents dropped since are restored from the journal.
    then = RunMachine(facts[: exchange.position + 1]).conversation.contents
    kept = exchange.kept_then
    return words.Rewound(contents_kept=kept, contents=then[:kept], position=exchange.position, exchange=exchange.id)


async def fork(store: Store, session: str, target: str, *, exchange: int | str | None = None, before: bool = False) -> None:
    """Make `target` a new session that continues this one, or its first exchanges.

    `exchange` is their number, or the id of the last of them; with `before` the id of the first that is left out. Session
    rules are not copied, and waiting calls are decided again.

    Raises:
        UsageError: there is no such session or exchange, or the target exists.
        SessionChangedError: the exchange with that id was removed.
        StoreError: the store cannot be used.
    """
    facts = await store.load(session)
    if not facts:
        raise UsageError(f"there is no session {session!r}")
    known = await asyncio.to_thread(exchanges_of, facts)
    if isinstance(exchange, str):
        places = [number for number, one in enumerate(known, 0 if before else 1) if one.id == exchange]
        if not places:
            raise SessionChangedError(f"session {session!r} has no exchange {exchange!r} any more: read it again")
        exchange = places[0]
    if exchange is not None:
        _check_number(exchange, "exchange")
    if exchange is not None and not 0 <= exchange <= len(known):
        raise UsageError(f"session {session!r} has {len(known)} exchanges, and no exchange {exchange}")
    cut = [_cut_before(known[exchange], facts)] if exchange is not None and exchange < len(known) else []
    # In one commit: the copy must not have the permissions of its original at any moment.
    await _add_session(store, target, [*facts, *cut], words.Adopted(fork_of=session))


async def import_session(store: Store, session: str, facts: Sequence[Fact]) -> None:
    """Make a new session of facts of external origin. Nothing in them grants a permission.

    Raises:
        UsageError: the session exists, or the facts are not a conversation.
        StoreError: the store cannot be used.
    """
    await _add_session(store, session, facts, words.Adopted())


async def _add_session(store: Store, session: str, facts: Sequence[Fact], adopted: words.Adopted) -> None:
    """Make a new session of facts of another one."""
    facts = [*facts, adopted]

    def read() -> None:
        reader = _ExchangeReader(facts)
        for fact in facts:
            reader.take(fact)

    try:
        await asyncio.to_thread(read)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, CallgateError) as error:
        why = str(error) if isinstance(error, CallgateError) else "one of them holds a value of the wrong type"
        raise UsageError(f"these facts make no conversation: {why}") from error
    async with leased(store, session) as lease:
        if lease.position:
            raise UsageError(f"there is a session {session!r} already")
        await store.append(lease, facts, position=0, durable=True)


@contextlib.asynccontextmanager
async def leased(store: Store, session: str) -> AsyncGenerator[Lease]:
    """Hold the lease of a session, for one change to it.

    Raises:
        SessionBusyError: the session is in use.
    """
    lease = await store.acquire(session, owner=new_owner())
    try:
        yield lease
    finally:
        await store.release(lease)


# Documents ---------------------------------------------------------------------------------------------------------------


def export_session(session: JsonObject, facts: Sequence[Fact]) -> JsonObject:
    """Export a session as one JSON object that any later version of callgate reads; `docs/sessions.md` describes it.

    Secrets that the program knows are taken out: the document is made to be handed on.
    """
    return redact_known_in(
        {
            "callgate": DOCUMENT_VERSION,
            "session": session,
            "facts": [_json_of(fact) for fact in facts],
            "contents": RunMachine(facts).conversation.contents,
        }
    )


def _json_of(fact: Fact) -> Any:
    if isinstance(fact, words.Unreadable):
        body = base64.b64encode(redact_known(fact.body.decode("latin-1")).encode("latin-1")).decode("ascii")
        return {"v": DOCUMENT_VERSION, "kind": _UNREADABLE, "problem": fact.problem, "body": body}
    return strict_json.parse(codec.encode(fact), depth_max=strict_json.WRITTEN_DEPTH_MAX)


def _fact_of(value: Any) -> Fact:
    record = cast("JsonObject", value) if isinstance(value, dict) else {}
    if record.get("kind") != _UNREADABLE:
        return codec.decode(strict_json.dump(value))
    problem, body = record.get("problem"), record.get("body")
    if not isinstance(problem, str) or not isinstance(body, str):
        raise JsonError("the document holds an unreadable fact without its 'problem' and 'body'")
    try:
        return words.Unreadable(problem=problem, body=base64.b64decode(body, validate=True))
    except ValueError as error:
        raise JsonError(f"the document holds an unreadable fact whose 'body' is not base64: {error}") from None


def facts_of(document: Mapping[str, Any]) -> list[Fact]:
    """Return the facts of an exported document; one with only contents starts with these.

    Raises:
        UsageError: it is not such a document, or one of another version.
        JsonError: a fact in it is invalid.
    """
    if not isinstance(cast("object", document), Mapping):
        raise UsageError(f"an exported document is a JSON object, not a {type(document).__name__!r}")
    version, listed, contents = (document.get(key) for key in ("callgate", "facts", "contents"))
    if version != DOCUMENT_VERSION:
        raise UsageError(f"the document has version {version!r}; this callgate reads version {DOCUMENT_VERSION}")
    if isinstance(listed, list) and listed:
        return [_fact_of(value) for value in cast("list[Any]", listed)]
    if isinstance(contents, list) and contents:
        return [words.HistoryGiven(contents=repaired(cast("list[Any]", contents))[0])]
    raise UsageError("the document has neither 'facts' nor 'contents'")
