"""Requests that may be sent twice: the same key with the same body is the same run, whichever process is asked.

A key is claimed in the store before its run begins. A later request with it gets that run: as it is, while it is known
here; from another process as the journal of its session has it, after a wait if it still goes on there; and if the process
that had it has died, the run goes on here where its journal stops. That nothing begins twice does not hang on who is thought
to be alive: under the lease of the session its journal decides (`run/idempotency.py`). If a store keeps no claims, this
process does.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from callgate import strict_json
from callgate.errors import SessionBusyError, SessionLostError, StoreError
from callgate.events import Event
from callgate.machine.facts import Fact
from callgate.run.idempotency import AlreadyStartedError, IdempotencyKey
from callgate.server.errors import HttpError
from callgate.server.replay import JournaledRun, find, open_since, outcome, replayed_events
from callgate.server.runs import Run
from callgate.store import Claim, IdempotencyKeys, Store
from callgate.store.anonymous import new_session_id
from callgate.store.idempotency import MemoryIdempotencyKeys, has_idempotency_keys
from callgate.store.listing import session_info
from callgate.store.owner import new_owner
from callgate.types import JsonObject, Reply

__all__ = ["ClaimedKey", "PendingRequest", "RequestKeys"]

logger = logging.getLogger("callgate.server")

KEYS_MAX = 1000
KEY_CHARS_MAX = 255
KEPT_S = 3600.0
"""Seconds that a run is kept here with its events; its claim and its session are kept for longer."""
TRIES = 5
POLL_S = (0.05, 0.5)
"""Between two looks at a run of another process, at first and later."""
RETRY_S = 5

Watch: TypeAlias = "Callable[[Event], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class ClaimedKey:
    """A claim in the hands of a request."""

    claim: Claim
    is_first: bool
    """True if the request was the first with its key."""


class Runner(Protocol):
    """Runner of what a request asks for."""

    def __call__(
        self, watch: Watch, /, left: frozenset[str] | None = None, key: IdempotencyKey | None = None
    ) -> Awaitable[Reply]:
        """Start the run as requested; with `left`, continue it with the answers to these calls."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request with a key that is to be carried out."""

    held: ClaimedKey
    runner: Runner
    answers: frozenset[str]
    """The calls that it answers."""
    waits: bool
    """True if a call that needs approval is waited for."""

    def left(self, found: JournaledRun) -> frozenset[str]:
        """The calls that it answers and that nobody has answered yet."""
        return found.awaited & self.answers

    def is_answered_by(self, found: JournaledRun) -> bool:
        """True if there is nothing to be done for it any more."""
        return found.is_over or (found.state == "waiting" and not self.waits and not self.left(found))


@dataclass(slots=True)
class _KeyState:
    """A key of this process."""

    digest: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    held: weakref.ref[Run] | None = None
    """The run, as long as the service keeps it; after that the journal says what it came to."""
    until_s: float = 0.0

    @property
    def answer(self) -> Run | None:
        """The run, if it says what came of the key."""
        run = self.held() if self.held is not None else None
        if run is None or self.until_s < time.monotonic():
            return None
        # A run that failed before anything happened is no answer that should be given again; one that lost its session, or
        # the store, does not know how it ended; and one that paused may have gone on since.
        is_paused = run.reply is not None and run.reply.approvals
        return None if run.never_began or is_paused or isinstance(run.error, (SessionLostError, StoreError)) else run


class RequestKeys:
    """The keys of one process, and those that it shares with others by their store."""

    def __init__(
        self, store: Store, *, wait_s: float = 45.0, on_refused: Callable[[StoreError], object] = lambda error: None
    ) -> None:
        self._store = store
        self._on_refused = on_refused
        """Callback for the error of a store that could not take a claim, so that no run began."""
        self._claims: IdempotencyKeys = store if has_idempotency_keys(store) else MemoryIdempotencyKeys()
        self._wait_s = wait_s
        self._owner = new_owner()
        self._known: OrderedDict[str, _KeyState] = OrderedDict()

    async def run(
        self,
        key: str,
        body: JsonObject,
        start: Callable[[ClaimedKey], Awaitable[Run]],
        *,
        owner: str | None = None,
        session: str | None = None,
    ) -> tuple[Run, bool]:
        """The run of that key, and whether it was there before. With `owner` it is one of the owner's own keys.

        The first request with the key runs in `session`, or else in the one that its body names, or else in a new one.

        Raises:
            HttpError: the key was used with another body, cannot be one, or its run is not known any more.
        """
        if not 0 < len(key) <= KEY_CHARS_MAX:
            raise HttpError(422, "invalid_request", f"Idempotency-Key: use 1 to {KEY_CHARS_MAX} characters")
        key = key if owner is None else f"{owner}\x1f{key}"  # No header can hold the separator.
        digest = hashlib.sha256(strict_json.dump(dict(sorted(body.items())))).hexdigest()
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _KeyState(digest)
            while len(self._known) > KEYS_MAX:
                self._known.popitem(last=False)
        async with known.lock:
            if (run := known.answer) is not None and await self._is_kept(run):
                _check(known.digest, digest)
                return run, True
            for _ in range(TRIES):
                try:
                    held = await self._claim(key, digest, body, session)
                    found = None if held.is_first else await self._look(held.claim, [])
                except StoreError as error:
                    self._on_refused(error)
                    raise
                if found is not None and found.is_over and found.came_to_nothing:
                    await self._drop(held.claim)  # As if it had never been asked for.
                    continue
                if found is not None and found.is_over:
                    return _replay(held.claim, found), True
                known.digest, known.held, known.until_s = digest, None, time.monotonic() + KEPT_S
                run = await self._started(held, start)
                known.held = weakref.ref(run)
                return run, not held.is_first
        raise _in_progress()

    async def _is_kept(self, run: Run) -> bool:
        """True if a run goes on, or its session has not been deleted since, here or by another process."""
        if not run.is_over:
            return True
        try:
            return await session_info(self._store, run.session) is not None
        except StoreError:
            return True

    def forget(self, session: str) -> None:
        """Forget the runs of a session that was deleted, so that the store says what becomes of their keys."""
        for known in self._known.values():
            run = known.held() if known.held is not None else None
            if run is not None and run.session == session:
                known.held = None

    async def carry_out(self, pending: PendingRequest, watch: Watch) -> Reply:
        """The outcome of a request with a key, in this process or another one.

        Raises:
            HttpError: the run goes on elsewhere for longer than is waited for, or can never go on.
            CallgateError: the run failed.
        """
        held, claim = pending.held, pending.held.claim
        until_s, (pause_s, pause_max_s) = time.monotonic() + self._wait_s, POLL_S
        journal: list[Fact] = []
        found = None if held.is_first else await self._look(claim, journal)
        while True:
            if found is not None and pending.is_answered_by(found):
                for event in replayed_events(found):
                    await watch(event)
                return outcome(found)
            if found is not None and not found.is_last:
                raise _gone_error("its process ended in the middle of it, and the session has gone on without it")
            try:
                return await self._attempt(pending, found, watch)
            except (AlreadyStartedError, SessionBusyError) as error:
                found = await self._look(claim, journal)
                if found is None and held.is_first and isinstance(error, SessionBusyError):
                    await self._drop(claim)  # The session is busy with something else, which nobody has asked for here.
                    raise
            if time.monotonic() >= until_s:
                raise _in_progress()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, pause_max_s)

    async def claim_exchange(self, session: str, number: int, key: str | None) -> Claim | None:
        """Claim the start of an exchange, once over all processes; None if a request with another key has it.

        Raises:
            StoreError: the store could not take the claim.
        """
        mine = Claim(
            key=f"{session}\x1f{number}\x1fexchange",  # No key of a request holds two separators.
            digest="", session=session, run=os.urandom(8).hex() if key is None else f"key {key}", owner=self._owner,
        )  # fmt: skip
        return mine if (await self._claims.claim(mine)).run == mine.run else None

    async def release(self, claim: Claim) -> None:
        """Release a claim; one that cannot be released expires."""
        await self._drop(claim)

    async def is_asked_for(self, claim: Claim) -> bool:
        """True if another process was asked for the run of a claim since it was last looked at."""
        try:
            held = await self._claims.claim(replace(claim, owner=self._owner))
        except StoreError as error:
            logger.warning("whether run %s of session %r is asked for is not known: %s", claim.run, claim.session, error)
            return False
        return (held.digest, held.run) == (claim.digest, claim.run) and held.owner != self._owner

    async def _attempt(self, pending: PendingRequest, found: JournaledRun | None, watch: Watch) -> Reply:
        """Start the run, or continue it from where it was found.

        Raises:
            AlreadyStartedError: the journal of the session has changed since.
            SessionBusyError: somebody is at work on the session.
        """
        claim = pending.held.claim
        has_happened = False

        async def watched(event: Event) -> None:
            nonlocal has_happened
            has_happened = True
            await watch(event)

        key = IdempotencyKey(claim.run, resumes=found is not None) if found is None or found.is_marked else None
        try:
            return await pending.runner(watched, None if found is None else pending.left(found), key)
        except (AlreadyStartedError, SessionBusyError, SessionLostError, StoreError):
            # Somebody else has it, or nobody knows whether the fact by which it begins is in the store: the claim stays.
            raise
        except HttpError:  # The service stops, and the run can be resumed.
            raise
        except BaseException:
            if found is None and not has_happened:  # It may be asked for again, in other words too.
                await self._drop(claim)
            raise

    async def _claim(self, key: str, digest: str, body: JsonObject, named: str | None) -> ClaimedKey:
        """The claim on the key, which is this request's own if there was none."""
        session: str = named or body.get("session") or new_session_id()
        # A request that says nothing goes on with what is open; the journal does not name it, so that its place must do.
        position = 0 if "prompt" in body else open_since(await self._store.load(session))
        mine = Claim(
            key=key, digest=digest, session=session, run=os.urandom(8).hex(), owner=self._owner, position=position
        )  # fmt: skip
        claim = await self._claims.claim(mine)
        _check(claim.digest, digest)
        if not claim.run:
            raise _gone_error("its session was deleted")
        return ClaimedKey(claim, is_first=claim.run == mine.run)

    async def _look(self, claim: Claim, journal: list[Fact]) -> JournaledRun | None:
        """Return the progress of a claim's run; `journal` has what was read before, and takes in what is new."""
        journal += await self._store.load(claim.session, start=len(journal))
        return find(claim, journal)

    async def _started(self, held: ClaimedKey, start: Callable[[ClaimedKey], Awaitable[Run]]) -> Run:
        try:
            return await start(held)
        except BaseException as error:
            if held.is_first:
                await self._drop(held.claim)
            elif isinstance(error, SessionBusyError):
                raise _in_progress() from error
            raise

    async def _drop(self, claim: Claim) -> None:
        """Release a key. If that fails, a repeated request finds that nothing has begun."""
        try:
            await self._claims.unclaim(replace(claim, owner=self._owner))
        except StoreError as error:
            logger.warning("the claim on a key of session %r stays: %s", claim.session, error)


def _check(known: str, digest: str) -> None:
    if known != digest:
        raise HttpError(409, "idempotency_mismatch", "This Idempotency-Key was used with another body before.")


def _in_progress() -> HttpError:
    message = "The run of this Idempotency-Key continues, or its session is busy: repeat the request later."
    return HttpError(409, "idempotency_in_progress", message, headers={"Retry-After": str(RETRY_S)})


def _gone_error(why: str) -> HttpError:
    return HttpError(410, "run_gone", f"The outcome of this Idempotency-Key is no longer known: {why}.")


def _replay(claim: Claim, found: JournaledRun) -> Run:
    """A run that only tells again what another one came to."""

    async def work(watch: Watch) -> Reply:
        for event in replayed_events(found):
            await watch(event)
        return outcome(found)

    run = Run(claim.session, work, named=True, waits=False)
    run.model = found.reply.model
    run.began_s -= found.took_s
    run.start()
    return run
