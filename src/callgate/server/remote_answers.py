"""Approvals and cancellations across processes: those for runs here are heard of, and those for runs elsewhere left there.

The store decides which answer counts. An answer is reported as given only when it is in the journal of its session; what the
process that waits for it did not take, or took and could not journal, is withdrawn. A cancellation is left in the same way,
for one piece of work of one process: a run that begins after it is not meant.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

from callgate import strict_json
from callgate.errors import SessionBusyError, StoreError
from callgate.permission import Answered, Approval
from callgate.server.runs import PendingApproval, Run
from callgate.store import SessionInfo, Store
from callgate.store import owner as owners
from callgate.store.answer_signal import AnswerSignal
from callgate.store.answers import Answers, keeps_answers
from callgate.store.listing import session_info
from callgate.types import CallRecord

__all__ = ["CANCELLED", "RemoteAnswers", "answer_at"]

logger = logging.getLogger("callgate.server")

GIVE_UP_S = 10.0
"""Seconds that another process may take to accept an answer."""
WATCH_S = 0.5
"""Seconds of a run before it looks for cancellations of other processes: most are over by then."""
CANCELLED = "The user cancelled the run."
_CANCEL = "cancel "
"""Prefix of a cancellation in place of a call's id; the name of its work follows."""


class RemoteAnswers:
    """Exchanges answers with the other processes of a store."""

    def __init__(
        self,
        store: Store,
        *,
        live: Callable[[], Iterable[Run]],
        run_of: Callable[[str], Run | None],
        approvals: Callable[[SessionInfo], Awaitable[Iterable[CallRecord]]],
    ) -> None:
        self._sessions = store
        self._live = live
        self._run_of = run_of
        self._approvals = approvals
        self._store: Answers | None = store if keeps_answers(store) else None
        self._task: asyncio.Task[None] | None = None
        self._signal: AnswerSignal | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_shared(self) -> bool:
        """True if other processes can be reached by the store."""
        return self._store is not None

    # Hearing --------------------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """A call waits here: look for answers, and for cancellations, until no run is left."""
        if self._store is None:
            return
        if not self._listens:
            self._task = asyncio.create_task(self._listen(self._store))
        else:  # The answer may have come before the call waited.
            self._signal_of(self._store).wake()

    def watch(self) -> None:
        """A run begins here: when it has taken a while, look for cancellations."""
        if self._store is not None and self._timer is None and not self._listens:
            self._timer = asyncio.get_running_loop().call_later(WATCH_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._listens and any(True for _ in self._live()):
            self.listen()

    @property
    def _listens(self) -> bool:
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        """Look for no more answers."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._signal is not None:
            await self._signal.aclose()
            self._signal = None

    def _signal_of(self, store: Answers) -> AnswerSignal:
        if self._signal is None:
            self._signal = store.answer_signal()
        return self._signal

    async def _listen(self, store: Answers) -> None:
        signal = self._signal_of(store)
        while any(True for _ in self._live()):
            mark = signal.mark
            try:
                for session, call_id in await store.waiting_answers():
                    if call_id.startswith(_CANCEL):
                        await self._cancel_local(store, session, call_id)
                    else:
                        self._claim(store, session, call_id)
            except StoreError as error:
                logger.warning("answers of other processes cannot be read: %s", error)
            await signal.wait(mark)

    async def _cancel_local(self, store: Answers, session: str, place: str) -> None:
        """Cancel a run of this process, if it is the one that is meant."""
        run = self._run_of(session)
        if run is None or run.is_over:
            return
        info = await session_info(self._sessions, session)
        if info is not None and info.owner == _work_in(place) and run.cancel(CANCELLED):
            await store.withdraw_answer(session, place, CANCELLED)

    def _claim(self, store: Answers, session: str, call_id: str) -> None:
        """Begin to take an answer for a call that waits here. Meanwhile nobody else can answer the call."""
        run = self._run_of(session)
        waiting = run.waiting.get(call_id) if run is not None else None
        if waiting is not None and waiting.is_open:
            waiting.claim = asyncio.create_task(self._take(store, waiting))

    async def _take(self, store: Answers, waiting: PendingApproval) -> None:
        try:
            body = None if waiting.lease is None else await store.take_answer(waiting.lease, waiting.call.id)
            if body is not None and not waiting.answer.done():
                waiting.answer.set_result(_read(body))
        except StoreError as error:
            logger.warning("the answer of another process cannot be read: %s", error)
        finally:
            waiting.claim = None

    # Leaving --------------------------------------------------------------------------------------------------------------

    async def leave(self, session: str, call_id: str, approval: Approval) -> bool | None:
        """Leave an answer for the process that holds the session.

        Returns True when it is in the journal, False when it was withdrawn because the session is free or the call does not
        wait any more, and None when another answer was there first, or the other process does not take it.
        """
        assert self._store is not None
        store, until_s, pause_s = self._store, time.monotonic() + GIVE_UP_S, 0.02
        # Another answer may come in its place when it is spent, so that its own bytes must tell it from any other.
        signal, body = self._signal_of(store), _written(approval)
        if not await store.put_answer(session, call_id, body):
            return None
        try:
            while (mark := signal.mark) >= 0 and await store.has_answer(session, call_id, body):
                is_late = time.monotonic() >= until_s
                if is_late or not await self._waits_elsewhere(session, call_id):
                    became = await store.withdraw_answer(session, call_id, body)
                    if became != "taken":
                        return True if became == "gone" else None if is_late else False
                await signal.wait(mark, pause_s)
                pause_s = 2 * pause_s
        except BaseException:
            await store.withdraw_answer(session, call_id, body)
            raise
        return True

    async def cancel(self, session: str) -> bool:
        """Let the process that holds a session cancel its run; False if none holds it any more.

        Raises:
            SessionBusyError: it does not hear of it, or cannot.
        """
        info = await session_info(self._sessions, session)
        if info is None or info.owner is None:
            return False
        owner = info.owner
        if self._store is None or not await self._cancel_at(self._store, session, owner):
            if self._store is not None and not await self._is_held(session, owner):
                return False
            told = "and the cancellation does not reach it: cancel it there"
            raise SessionBusyError(f"session {session!r} has a run in {owners.shown(owner)}, {told}")
        return True

    async def _cancel_at(self, store: Answers, session: str, owner: str) -> bool:
        """Leave a cancellation, and wait until it was heard; False if it was not."""
        place, signal = f"{_CANCEL}{owner} {os.urandom(8).hex()}", self._signal_of(store)
        until_s, pause_s = time.monotonic() + GIVE_UP_S, 0.02
        await store.put_answer(session, place, CANCELLED)
        try:
            while (mark := signal.mark) >= 0 and await store.has_answer(session, place, CANCELLED):
                if time.monotonic() >= until_s or not await self._is_held(session, owner):
                    return await store.withdraw_answer(session, place, CANCELLED) == "gone"
                await signal.wait(mark, pause_s)
                pause_s = 2 * pause_s
        except BaseException:
            await store.withdraw_answer(session, place, CANCELLED)
            raise
        return True

    async def _is_held(self, session: str, owner: str) -> bool:
        info = await session_info(self._sessions, session)
        return info is not None and info.owner == owner

    async def _waits_elsewhere(self, session: str, call_id: str) -> bool:
        info = await session_info(self._sessions, session)
        if info is None or info.owner is None:
            return False
        return call_id in {record.call.id for record in await self._approvals(info)}


def _work_in(place: str) -> str:
    return place.removeprefix(_CANCEL).rpartition(" ")[0]


def answer_at(run: Run, call_id: str, approval: Approval) -> bool:
    """Answer a call that waits here; False if it does not, or another answer is on its way."""
    waiting = run.waiting.get(call_id)
    if waiting is None or not waiting.is_open:
        return False
    waiting.answer.set_result(approval)
    return True


def _written(approval: Approval) -> str:
    answered = approval if isinstance(approval, Answered) else Answered(answer=cast("Any", approval))
    fields = {
        "id": os.urandom(8).hex(),
        "answer": answered.answer,
        "args": answered.args,
        "message": answered.message,
        "by": answered.by,
        "confirm": answered.confirm,
    }
    return strict_json.dump(fields).decode()


def _read(body: str) -> Approval:
    return Answered(**{name: value for name, value in strict_json.parse(body).items() if name != "id"})
