"""Reservations: what the runs under way of a principal may still use, and its requests of the last minute.

A run that begins reserves a place and about what it will use, and gives both back when it is over; what it has used is added
to the usage of its account in the same transaction. So quotas hold for all processes of a store, for runs that begin at the
same moment, too. What a process had reserved ends with it: at once where it can be seen that it is gone, otherwise with its
lease. `Store` asks for none of these methods.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeGuard

from callgate.store.owner import is_gone
from callgate.store.principals import Principals, Used
from callgate.store.protocol import LEASE_S
from callgate.store.sql_principals import add_usage, usage_of

if TYPE_CHECKING:
    from callgate.store.database import Database
    from callgate.store.dialect import Dialect, Transaction

__all__ = [
    "Allowance", "MemoryReservations", "Refusal", "RequestBuckets", "Reservation", "Reservations", "SqlReservations",
    "clean_reservations", "keeps_requests", "keeps_reservations",
]  # fmt: skip

RATE_KEPT_S = 3600.0
"""Seconds after its last request that the bucket of a principal is kept: it is full again by then."""
LEASED_PART = 4
"""Of the requests that are left, one process gets at most one in so many ahead of time."""

Refusal: TypeAlias = 'Literal["runs", "usage", "reserved"]'
"""Reason of a refused reservation: too many runs, the quota is used up, or the runs under way may use up the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Limits of a principal at a time, and of its account in a period; None: unlimited."""

    period: str
    runs: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def refusal(self, runs: int, used: Used, reserved: Used) -> Refusal | None:
        """Return why a run may not begin, or go on, beside so many runs and so much that they have reserved."""
        if self.runs is not None and runs >= self.runs:
            return "runs"
        if self._is_out(used.tokens, used.cost):
            return "usage"
        return "reserved" if self._is_out(used.tokens + reserved.tokens, used.cost + reserved.cost) else None

    def _is_out(self, tokens: int, cost: float) -> bool:
        is_out = self.tokens is not None and tokens >= self.tokens
        return is_out or (self.cost is not None and cost >= self.cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A run under way."""

    id: str
    principal: str
    """The name whose runs are counted."""
    account: str
    """The name whose usage is counted; several principals may have one."""
    process: str
    """The process that it ends with, a name of `callgate.store.owner`."""
    reserved: Used = field(default_factory=Used)
    """Tokens and money that it has used and may still use."""


class Reservations(Protocol):
    """Optional methods of a store that several services share."""

    async def reserve(self, wanted: Reservation, allowed: Allowance) -> Refusal | None:
        """Reserve, or return why not."""
        ...

    async def extend(self, wanted: Reservation, spent: Used, allowed: Allowance) -> Refusal | None:
        """Reserve more for a run under way that has `spent` so much; where it may not, only that stays reserved."""
        ...

    async def settle(self, reservation: Reservation, period: str, used: Used, *, again: bool = False) -> None:
        """End a reservation, and add what was used; `again`, if it is not known whether that was done already."""
        ...

    async def renew_reservations(self, process: str, ids: Collection[str]) -> None:
        """Keep the reservations of a process for another lease, and end those of it that are not among `ids`."""
        ...


class RequestBuckets(Protocol):
    """An optional method of a store that several services share."""

    async def take_requests(
        self, principal: str, per_minute: int, *, least: int, most: int, returned: int = 0
    ) -> tuple[int, float]:
        """Take requests out of a principal's bucket: `least` are needed now, up to `most` are wanted, if they are there.

        Those that were `returned` are put back first. Returns how many were taken, and how long the next one will take to
        be there, in seconds.
        """
        ...


def keeps_reservations(store: object) -> TypeGuard[Reservations]:
    """Return whether a store keeps reservations."""
    return hasattr(store, "reserve") and hasattr(store, "settle") and hasattr(store, "renew_reservations")


def keeps_requests(store: object) -> TypeGuard[RequestBuckets]:
    """Return whether a store counts requests."""
    return hasattr(store, "take_requests")


class MemoryReservations:
    """Reservations of one process; what was used is kept by a store."""

    def __init__(self, principals: Principals) -> None:
        self._principals = principals
        self._live: dict[str, Reservation] = {}

    async def reserve(self, wanted: Reservation, allowed: Allowance) -> Refusal | None:
        """Reserve, or return why not."""
        used = await self._principals.usage(wanted.account, allowed.period)
        # Nothing is waited for from here on.
        runs = sum(other.principal == wanted.principal for other in self._live.values())
        refusal = allowed.refusal(runs, used, self._reserved(wanted))
        if refusal is None:
            self._live[wanted.id] = wanted
        return refusal

    async def extend(self, wanted: Reservation, spent: Used, allowed: Allowance) -> Refusal | None:
        """Reserve more for a run under way that has `spent` so much; where it may not, only that stays reserved."""
        used = _sum(await self._principals.usage(wanted.account, allowed.period), spent)
        refusal = allowed.refusal(0, used, self._reserved(wanted))
        self._live[wanted.id] = wanted if refusal is None else _only(wanted, spent)
        return refusal

    async def settle(self, reservation: Reservation, period: str, used: Used, *, again: bool = False) -> None:
        """End a reservation, and add what was used; `again`, if it is not known whether that was done already."""
        if used != Used():
            await self._principals.add_usage(reservation.account, period, used)
        self._live.pop(reservation.id, None)

    async def renew_reservations(self, process: str, ids: Collection[str]) -> None:
        """End the reservations that are not among `ids`."""
        self._live = {id: known for id, known in self._live.items() if id in ids}

    def _reserved(self, wanted: Reservation) -> Used:
        """Return what the other runs of the account have reserved."""
        live = self._live.values()
        others = [other.reserved for other in live if other.account == wanted.account and other.id != wanted.id]
        return _sum(*others)


class SqlReservations:
    """Reservations as rows of a table."""

    _database: Database
    _dialect: Dialect
    patience_s: float

    async def reserve(self, wanted: Reservation, allowed: Allowance) -> Refusal | None:
        """Reserve, or return why not.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> Refusal | None:
            runs, reserved = _others(tx, wanted)
            refusal = allowed.refusal(runs, usage_of(tx, wanted.account, allowed.period), reserved)
            if refusal is None:
                _keep(tx, wanted)
            return refusal

        return await self._database.attempt(work, patience_s=self.patience_s, on_late=partial(self._undo, wanted))

    async def extend(self, wanted: Reservation, spent: Used, allowed: Allowance) -> Refusal | None:
        """Reserve more for a run under way that has `spent` so much; where it may not, only that stays reserved.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> Refusal | None:
            _, reserved = _others(tx, wanted)
            used = _sum(usage_of(tx, wanted.account, allowed.period), spent)
            refusal = allowed.refusal(0, used, reserved)
            _keep(tx, wanted if refusal is None else _only(wanted, spent))
            return refusal

        return await self._database.attempt(work, patience_s=self.patience_s)

    async def settle(self, reservation: Reservation, period: str, used: Used, *, again: bool = False) -> None:
        """End a reservation, and add what was used; `again`, if it is not known whether that was done already.

        Raises:
            StoreError: the database cannot be used; it is not known whether it was done.
        """

        def work(tx: Transaction) -> None:
            was_there = tx.run("DELETE FROM callgate_reservations WHERE id = ?", reservation.id)
            if used != Used() and (was_there or not again):
                add_usage(tx, reservation.account, period, used)

        await self._database.do(work)

    async def renew_reservations(self, process: str, ids: Collection[str]) -> None:
        """Keep the reservations of a process for another lease, and end those of it that are not among `ids`.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> None:
            known = {str(id) for (id,) in tx.rows("SELECT id FROM callgate_reservations WHERE process = ?", process)}
            for id in sorted(known - set(ids)):
                tx.run("DELETE FROM callgate_reservations WHERE id = ?", id)
            if known & set(ids):
                until_s = tx.lease_now_s() + LEASE_S
                own = f"SELECT id FROM callgate_reservations WHERE process = ?{self._dialect.row_lock}"
                tx.run(f"UPDATE callgate_reservations SET expires_s = ? WHERE id IN ({own})", until_s, process)

        await self._database.do(work)

    async def take_requests(
        self, principal: str, per_minute: int, *, least: int, most: int, returned: int = 0
    ) -> tuple[int, float]:
        """Take requests out of a principal's bucket: `least` are needed now, up to `most` are wanted, if they are there.

        Those that were `returned` are put back first. Returns how many were taken, and how long the next one will take to
        be there, in seconds.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> tuple[int, float]:
            now = tx.now_s()
            columns, table = "requests, at_s", "callgate_rates"
            rows = tx.locked_rows(columns, table, "principal", principal)
            if not rows:
                sql = "INSERT INTO callgate_rates VALUES (?, ?, ?) ON CONFLICT (principal) DO NOTHING"
                tx.run(sql, principal, float(per_minute), now)
                rows = tx.locked_rows(columns, table, "principal", principal)
            [(left, at_s)] = rows
            left = min(float(per_minute), float(left) + max(0.0, now - at_s) * per_minute / 60 + returned)
            taken = min(int(left), max(least, min(most, int(left) // LEASED_PART)))
            left -= taken
            tx.run("UPDATE callgate_rates SET requests = ?, at_s = ? WHERE principal = ?", left, now, principal)
            return taken, max(0.0, (1 - left) * 60 / per_minute)

        return await self._database.attempt(work, patience_s=self.patience_s)

    def _undo(self, reservation: Reservation, refusal: Refusal | None) -> None:
        """End a reservation that was made after nobody waited for it any more."""
        if refusal is None:
            self._database.post(lambda tx: tx.run("DELETE FROM callgate_reservations WHERE id = ?", reservation.id))


def clean_reservations(tx: Transaction) -> None:
    """Forget reservations of processes that are gone, and buckets that are full again."""
    tx.run("DELETE FROM callgate_reservations WHERE expires_s <= ?", tx.lease_now_s() - LEASE_S)
    tx.run("DELETE FROM callgate_rates WHERE at_s <= ?", tx.now_s() - RATE_KEPT_S)


def _others(tx: Transaction, wanted: Reservation) -> tuple[int, Used]:
    """The runs that its principal has beside this one, and what the other runs of its account have reserved.

    Nobody else can reserve for the account before the transaction is over. A run that ends meanwhile gives its reservation
    back and adds to the usage: that is read after this, so that at worst it is counted twice.
    """
    tx.lock(f"account {wanted.account}")
    where = "FROM callgate_reservations WHERE account = ? AND id <> ?"
    sums = "COUNT(*), COALESCE(SUM(tokens), 0), COALESCE(SUM(cost), 0)"
    sql = f"SELECT principal, process, {sums} {where} AND expires_s > ? GROUP BY principal, process"
    rows = tx.rows(sql, wanted.account, wanted.id, tx.lease_now_s())
    gone = {process for process in {row[1] for row in rows} if process != wanted.process and is_gone(process)}
    for process in gone:
        tx.run("DELETE FROM callgate_reservations WHERE process = ? AND account = ?", process, wanted.account)
    live = [row for row in rows if row[1] not in gone]
    runs = sum(int(count) for principal, _, count, _, _ in live if principal == wanted.principal)
    return runs, _sum(*(Used(int(tokens), float(cost)) for _, _, _, tokens, cost in live))


def _keep(tx: Transaction, wanted: Reservation) -> None:
    tx.run(
        "INSERT INTO callgate_reservations VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        "tokens = excluded.tokens, cost = excluded.cost, expires_s = excluded.expires_s",
        wanted.id, wanted.principal, wanted.account, wanted.process,
        wanted.reserved.tokens, wanted.reserved.cost, tx.lease_now_s() + LEASE_S,
    )  # fmt: skip


def _sum(*parts: Used) -> Used:
    return Used(sum(part.tokens for part in parts), sum(part.cost for part in parts))


def _only(wanted: Reservation, spent: Used) -> Reservation:
    return Reservation(
        id=wanted.id, principal=wanted.principal, account=wanted.account, process=wanted.process, reserved=spent
    )
