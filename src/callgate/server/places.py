"""Places for runs in one process: as many as it has, and as many of them as a principal may have at a time.

A request that may begin something takes a place in one step with the check, before anything is waited for, and gives it back
on every way out. What a principal may have over all processes is the business of `admissions.py`.
"""

from __future__ import annotations

from collections import Counter

from callgate.server.admissions import Admission, refused
from callgate.server.errors import HttpError
from callgate.server.identity import Principal
from callgate.store.principals import Used

__all__ = ["Place", "Places"]


class Place:
    """Room for one run, or for one request that is passed on to a model, until it is given back."""

    __slots__ = ("_name", "_places", "admission")

    def __init__(self, places: Places, name: str) -> None:
        self._places: Places | None = places
        self._name = name
        self.admission: Admission | None = None
        """The admission of a client with quotas, which ends with it."""

    def release(self, used: Used | None = None) -> None:
        """Give it back, and say what was used; the second time does nothing."""
        places, self._places = self._places, None
        if places is not None:
            places.give_back(self._name)
            if self.admission is not None:
                self.admission.settle(used or Used())


class Places:
    """The places of one process."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        """Number of places taken in all."""
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
        if principal is not None and limit is not None and self._taken_by[name] >= limit:
            raise refused(principal, "runs")
        self.taken += 1
        self._taken_by[name] += 1
        return Place(self, name)

    def give_back(self, name: str) -> None:
        """Count one place of that principal as free."""
        self.taken -= 1
        self._taken_by[name] -= 1
        if not self._taken_by[name]:
            del self._taken_by[name]
