"""Slots for calls that may run in parallel; a lane, where one runs after another, is one slot."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Slots"]


class Slots:
    """A number of slots, first come, first served. Used on one event loop.

    ```python
    if not slots.take(call.id, wake):
        ...                       # `wake` is called as soon as it is this call's turn; ask again then
    slots.leave(call.id)
    ```
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._line: dict[str, Callable[[], None]] = {}
        """The holders of a slot, followed by those who wait, in order of arrival."""

    def take(self, holder: str, wake: Callable[[], None]) -> bool:
        """Take a place, or a place in the line; return whether the holder may go on."""
        self._line.setdefault(holder, wake)
        return self._is_in(holder)

    def leave(self, holder: str) -> None:
        """Release the slot, or stop waiting for one; the next in line is woken."""
        if holder not in self._line:
            return
        waited = [other for other in self._line if not self._is_in(other)]
        del self._line[holder]
        for other in waited:
            if other != holder and self._is_in(other):
                self._line[other]()

    def _is_in(self, holder: str) -> bool:
        for index, other in enumerate(self._line):
            if index >= self._count:
                return False
            if other == holder:
                return True
        return False
