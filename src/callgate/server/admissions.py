"""Admission of runs within the quotas of principals, over all processes that share a store.

A principal and an estimate come in, an `Admission` goes out, or a refusal. What a run has used is written when it is over,
while the service goes on; a write that fails is tried again until it succeeds, or the service ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
from collections import Counter
from collections.abc import AsyncGenerator
from weakref import WeakValueDictionary

from callgate.errors import StoreError
from callgate.server.errors import HttpError
from callgate.server.identity import Principal
from callgate.server.quotas import period
from callgate.store.owner import new_owner
from callgate.store.principals import Principals, Used
from callgate.store.protocol import LEASE_S
from callgate.store.reservations import (
    Allowance,
    MemoryReservations,
    Refusal,
    Reservation,
    Reservations,
    keeps_reservations,
)

__all__ = ["ANSWER_TOKENS", "ANSWER_TOKENS_MAX", "Admission", "Admissions", "refused"]

logger = logging.getLogger("callgate.server")

ANSWER_TOKENS = 1_000
"""Tokens that an answer is expected to have where nothing limits it."""
ANSWER_TOKENS_MAX = 1_000_000
"""Tokens that an answer is expected to have at most, whatever its request allows."""
AGAIN_S = (0.02, 0.06, 0.15)
"""After these times a refused run is tried again: the run before it may be over, and not be written yet."""
AGAIN_MAX = 8
"""Runs of one principal that are tried again at the same time."""
UNWRITTEN_MAX = 10_000
"""Ended runs whose usage could not be written, and is kept to be written later."""


class Admission:
    """A run, or a request that is passed on to a model, that was admitted."""

    def __init__(self, admissions: Admissions, principal: Principal, reservation: Reservation, allowed: Allowance) -> None:
        self._admissions = admissions
        self._principal = principal
        self.reservation = reservation
        self.allowed = allowed

    async def extend(self, spent: Used, expected: Used) -> HttpError | None:
        """Reserve for one more request to a model; return the refusal if the quota does not allow it.

        A store that does not answer now stops no run that was admitted.
        """
        try:
            refusal = await self._admissions.extend(self, spent, expected)
        except StoreError as error:
            logger.warning("a quota could not be checked again: %s", error)
            return None
        return None if refusal is None else refused(self._principal, refusal, goes_on=True)

    def settle(self, used: Used) -> None:
        """End it, and write down what it has used."""
        self._admissions.settle(self, used)


class Admissions:
    """Admission of runs of principals that have quotas of runs, tokens or cost."""

    def __init__(self, principals: Principals) -> None:
        self._store: Reservations = principals if keeps_reservations(principals) else MemoryReservations(principals)
        self._process = new_owner()
        self._live: dict[str, Admission] = {}
        self._again: Counter[str] = Counter()
        self._account_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Account -> its lock: the store locks an account, and runs of one process need not compete for that."""
        self._unwritten: list[tuple[Reservation, str, Used]] = []
        self.writing: set[asyncio.Task[None]] = set()
        """Writes that are on their way to the store."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep reservations for as long as their runs take; at the end, wait until everything is written."""
        renewing = asyncio.create_task(self._renew_often())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait({renewing, *self.writing})
            with contextlib.suppress(StoreError):
                await self._write_late()

    async def admit(self, principal: Principal, expected: Used) -> Admission | None:
        """Admit a run that is expected to use so much; None if nothing of it has to be counted.

        Raises:
            HttpError: the principal has too many runs, or has used up its quota.
            StoreError: the store cannot be used.
        """
        quota = principal.quota
        if quota.runs is None and not quota.is_metered:
            return None
        allowed = Allowance(period=period(), runs=quota.runs, tokens=quota.tokens_per_day, cost=quota.cost_per_day)
        wanted = Reservation(
            id=os.urandom(12).hex(),
            principal=principal.name,
            account=principal.owner or principal.name,
            process=self._process,
            reserved=expected,
        )
        admission = self._live[wanted.id] = Admission(self, principal, wanted, allowed)
        try:
            refusal = await self._reserve(wanted, allowed)
            if refusal in ("runs", "reserved"):
                refusal = await self._reserve_again(wanted, allowed, refusal)
        except BaseException:
            self.settle(admission, Used())  # It may have been reserved all the same.
            raise
        if refusal is not None:
            del self._live[wanted.id]
            raise refused(principal, refusal)
        return admission

    async def _reserve(self, wanted: Reservation, allowed: Allowance) -> Refusal | None:
        async with self._account_lock(wanted.account):
            return await self._store.reserve(wanted, allowed)

    def _account_lock(self, account: str) -> asyncio.Lock:
        """The lock of an account, which lives as long as somebody has it or waits for it."""
        return self._account_locks.setdefault(account, asyncio.Lock())

    async def _reserve_again(self, wanted: Reservation, allowed: Allowance, refusal: Refusal) -> Refusal | None:
        name = wanted.principal
        if self._again[name] >= AGAIN_MAX:
            return refusal
        self._again[name] += 1
        try:
            found: Refusal | None = refusal
            for pause_s in AGAIN_S:
                await asyncio.sleep(pause_s)
                found = await self._reserve(wanted, allowed)
                if found is None:
                    break
            return found
        finally:
            self._again[name] -= 1
            if not self._again[name]:
                del self._again[name]

    async def extend(self, admission: Admission, spent: Used, expected: Used) -> Refusal | None:
        """Reserve more for a run that was admitted; return why not, if its quota does not allow it.

        Raises:
            StoreError: the store cannot be used.
        """
        known = admission.reservation
        wanted = Reservation(
            id=known.id,
            principal=known.principal,
            account=known.account,
            process=known.process,
            reserved=Used(spent.tokens + expected.tokens, spent.cost + expected.cost),
        )
        async with self._account_lock(known.account):
            return await self._store.extend(wanted, spent, admission.allowed)

    def settle(self, admission: Admission, used: Used) -> None:
        """End an admission, and write down what was used, while the service goes on."""
        reservation = admission.reservation
        if self._live.pop(reservation.id, None) is None:
            return
        item = (reservation, period(), used)
        try:
            task = asyncio.get_running_loop().create_task(self._write(*item))
        except RuntimeError:  # There is no loop any more, as at the end of the program.
            self._unwritten.append(item)
            return
        self.writing.add(task)
        task.add_done_callback(self.writing.discard)

    async def _write(self, reservation: Reservation, day: str, used: Used) -> None:
        try:
            await self._store.settle(reservation, day, used)
        except StoreError as error:
            logger.warning("what %r has used could not be written yet: %s", reservation.principal, error)
            self._unwritten = [*self._unwritten, (reservation, day, used)][-UNWRITTEN_MAX:]

    async def _write_late(self) -> None:
        """Write what could not be written before.

        Raises:
            StoreError: the store cannot be used; what is left is written later.
        """
        while self._unwritten:
            item = self._unwritten[0]
            await self._store.settle(*item, again=True)
            self._unwritten.remove(item)

    async def _renew_often(self) -> None:
        is_there = True
        while True:
            await asyncio.sleep(LEASE_S / 3)
            try:
                await self._write_late()
                if self._live or is_there:
                    is_there = bool(self._live)
                    kept = {*self._live, *(reservation.id for reservation, _, _ in self._unwritten)}
                    await self._store.renew_reservations(self._process, kept)
            except StoreError as error:
                logger.warning("the runs under way could not be noted in the store: %s", error)


def refused(principal: Principal, refusal: Refusal, *, goes_on: bool = False) -> HttpError:
    """Return the error for a run that was not admitted, or that had begun and cannot go on."""
    name = repr(principal.name)
    rest = ". The run was stopped before it asked the model again: continue its session later" if goes_on else ""
    if refusal == "runs":
        message = f"{name} has {principal.quota.runs} runs already, which is as many as it may have at a time"
        return HttpError(429, "too_many_runs", message, headers={"Retry-After": "1"})
    if refusal == "reserved":
        message = (
            f"the runs of {name} that are under way may use up what is left of its quota for today: try again soon{rest}"
        )
        return HttpError(429, "quota_reserved", message, headers={"Retry-After": "5"})
    now = datetime.datetime.now(datetime.UTC)
    wait_s = 86_400 - (now.hour * 3600 + now.minute * 60 + now.second)
    message = f"{name} has used up its tokens or its money for today{rest}"
    return HttpError(429, "quota_exceeded", message, headers={"Retry-After": str(wait_s)})
