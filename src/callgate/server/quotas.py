"""Limits of requests per minute of principals, over all processes that share a store; and the names of days.

A bucket of each principal is in the store. A process takes some requests out of it ahead of time, about as many as the
principal may send in a second, so that most requests ask nobody; what it has not used is put back. While the store does not
answer, each process counts by itself.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass

from callgate.errors import StoreError
from callgate.server.errors import HttpError
from callgate.server.identity import Principal
from callgate.store.principals import Used
from callgate.store.reservations import RequestBuckets
from callgate.types import Usage

__all__ = ["RequestRates", "period", "used_by"]

logger = logging.getLogger("callgate.server")

NAMES_MAX = 10_000
LEASED_S = 1.0
"""Seconds that requests reserved ahead of time can be used."""
ASK_S = 0.5
"""Seconds that a request waits for the store to count it."""
ALONE_S = 5.0
"""Seconds that a process counts by itself before it asks a store again that did not answer."""


@dataclass(slots=True)
class _Bucket:
    """The requests of one principal, as far as this process knows."""

    own: float
    """Requests that are left by the count of this process alone."""
    own_at_s: float
    leased: int = 0
    """Requests that were taken out of the store's bucket, and not used yet."""
    leased_until_s: float = 0.0
    empty_until_s: float = 0.0
    waiting: int = 0
    asking: asyncio.Task[None] | None = None


class RequestRates:
    """Requests of each principal, in buckets that refill by the minute."""

    def __init__(self, store: RequestBuckets | None = None) -> None:
        self._store = store
        self._alone_until_s = 0.0
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    async def take(self, principal: Principal) -> None:
        """Count one request.

        Raises:
            HttpError: there were too many.
        """
        most = principal.quota.requests_per_minute
        if most is None:
            return
        now = time.monotonic()
        bucket = self._buckets.get(principal.name)
        if bucket is None:
            bucket = self._buckets[principal.name] = _Bucket(float(most), now)
            while len(self._buckets) > NAMES_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(principal.name)
        wait_s = await self._taken(principal.name, bucket, most)
        if wait_s is not None:
            message = f"{principal.name!r} may send {most} requests per minute: try again later"
            raise HttpError(429, "too_many_requests", message, headers={"Retry-After": str(max(1, round(wait_s)))})

    async def _taken(self, name: str, bucket: _Bucket, most: int) -> float | None:
        """Take one request; return how long the next one will take to be there if there is none."""
        if most == 0:
            return 60.0
        until_s = time.monotonic() + ASK_S
        while self._store is not None and (now := time.monotonic()) >= self._alone_until_s:
            if bucket.leased > 0 and now < bucket.leased_until_s:
                bucket.leased -= 1
                return None
            if now < bucket.empty_until_s:
                return bucket.empty_until_s - now
            if now >= until_s:
                self._go_alone("it did not answer in time")
                break
            if bucket.asking is None:
                bucket.asking = asyncio.create_task(self._ask(self._store, name, bucket, most))
            bucket.waiting += 1
            try:
                await asyncio.wait({bucket.asking}, timeout=until_s - now)
            finally:
                bucket.waiting -= 1
        return _taken_alone(bucket, most)

    async def _ask(self, store: RequestBuckets, name: str, bucket: _Bucket, most: int) -> None:
        """Take requests out of the store's bucket, for all that wait."""
        await asyncio.sleep(0)  # Those that came in the same round of the loop are counted with the first.
        returned, bucket.leased = bucket.leased, 0
        try:
            taken, wait_s = await store.take_requests(
                name, most, least=max(1, bucket.waiting), most=max(1, round(most * LEASED_S / 60)), returned=returned
            )
            now = time.monotonic()
            bucket.leased, bucket.leased_until_s = taken, now + LEASED_S
            bucket.empty_until_s = now + wait_s if taken == 0 else 0.0
        except StoreError as error:
            self._go_alone(str(error))
        finally:
            bucket.asking = None

    def _go_alone(self, why: str) -> None:
        now = time.monotonic()
        if now >= self._alone_until_s:
            logger.warning("requests are counted by this process alone for %g s: %s", ALONE_S, why)
        self._alone_until_s = now + ALONE_S


def _taken_alone(bucket: _Bucket, most: int) -> float | None:
    """Take one request by the count of this process alone."""
    now = time.monotonic()
    bucket.own = min(float(most), bucket.own + (now - bucket.own_at_s) * most / 60)
    bucket.own_at_s = now
    if bucket.own < 1:
        return (1 - bucket.own) * 60 / most
    bucket.own -= 1
    return None


def period(now: datetime.datetime | None = None) -> str:
    """Return the name of the current day, UTC."""
    return (now or datetime.datetime.now(datetime.UTC)).date().isoformat()


def used_by(usage: Usage, cost: float | None) -> Used:
    """Return what a run has used."""
    return Used(usage.total_tokens, cost or 0.0)
