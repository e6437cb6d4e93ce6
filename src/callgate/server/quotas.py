"""Quotas of principals: requests per minute, runs at a time, tokens and cost per day."""

from __future__ import annotations

import datetime
import logging
import time
from collections import OrderedDict

from callgate.server.errors import HttpError
from callgate.server.identity import Principal
from callgate.store.principals import Principals, Used
from callgate.types import Usage

__all__ = ["RequestRates", "check_usage", "period", "used_by"]

logger = logging.getLogger("callgate.server")

NAMES_MAX = 10_000


class RequestRates:
    """Requests of each principal, in buckets that refill by the minute."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Name -> requests that are left, and when that was."""

    def take(self, principal: Principal) -> None:
        """Count one request.

        Raises:
            HttpError: there were too many.
        """
        most = principal.quota.requests_per_minute
        if most is None:
            return
        now = time.monotonic()
        left, at_s = self._left.get(principal.name, (float(most), now))
        left = min(float(most), left + (now - at_s) * most / 60)
        is_allowed = left >= 1
        self._left[principal.name] = (left - 1 if is_allowed else left, now)
        self._left.move_to_end(principal.name)
        while len(self._left) > NAMES_MAX:
            self._left.popitem(last=False)
        if not is_allowed:
            wait_s = 60 if most == 0 else max(1, round((1 - left) * 60 / most))
            message = f"{principal.name!r} may send {most} requests per minute: try again later"
            raise HttpError(429, "too_many_requests", message, headers={"Retry-After": str(wait_s)})


def period(now: datetime.datetime | None = None) -> str:
    """Return the name of the current day, UTC."""
    return (now or datetime.datetime.now(datetime.UTC)).date().isoformat()


async def check_usage(store: Principals, principal: Principal) -> None:
    """Refuse to begin anything for a principal that has used up its quota of the day.

    Raises:
        HttpError: it has.
    """
    quota = principal.quota
    if not quota.is_metered:
        return
    used = await store.usage(principal.owner or principal.name, period())
    is_out = quota.tokens_per_day is not None and used.tokens >= quota.tokens_per_day
    is_out = is_out or (quota.cost_per_day is not None and used.cost >= quota.cost_per_day)
    if is_out:
        now = datetime.datetime.now(datetime.UTC)
        wait_s = 86_400 - (now.hour * 3600 + now.minute * 60 + now.second)
        message = f"{principal.name!r} has used up its tokens or its money for today"
        raise HttpError(429, "quota_exceeded", message, headers={"Retry-After": str(wait_s)})


def used_by(usage: Usage, cost: float | None) -> Used:
    """Return what a run has used."""
    return Used(usage.total_tokens, cost or 0.0)
