"""Places for runs: as many as the service has, and as many of them as a principal may have at a time.

A request that may begin something takes a place in one step with the check, before anything is waited for, and gives it back
on every way out.
"""

from __future__ import annotations

from collections import Counter

from callgate.server.errors import HttpError
from callgate.server.identity import Principal

__all__ = ["Place", "Places"]


class Place:
    """Room for one run, or for one request that is passed on to a model, until it is given back."""

    __slots__ = ("_name", "_places")

    def __init__(self, places: Places, name: str) -> None:
        self._places: Places | None = places
        self._name = name

    def release(self) -> None:
        """Give it back; the second time does nothing."""
        places, self._places = self._places, None
        if places is not None:
            places.give_back(self._name)


class Places:
    """The places of one process."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        """How many are taken by anybody."""
        self._taken_by: Counter[str] = Counter()

    def take(self, principal: Principal | None) -> Place:
        """Take a place.

        Raises:
            HttpError: none is left, or the principal has as many as it may have.
        """
        if self.taken >= self.most:
            message = f"{self.taken} runs are under way, which is as many as are allowed: try again soon"
            raise HttpError(503, "overloaded", message, headers={"Retry-After": "1"})
        name = "" if principal is None else principal.name
        limit = None if principal is None else principal.quota.runs
        if limit is not None and self._taken_by[name] >= limit:
            message = f"{name!r} has {limit} runs already, which is as many as it may have at a time"
            raise HttpError(429, "too_many_runs", message, headers={"Retry-After": "1"})
        self.taken += 1
        self._taken_by[name] += 1
        return Place(self, name)

    def give_back(self, name: str) -> None:
        """Count one place of that principal as free."""
        self.taken -= 1
        self._taken_by[name] -= 1
        if not self._taken_by[name]:
            del self._taken_by[name]
