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
        self._holders: set[str] = set()
        self._waiting: dict[str, Callable[[], None]] = {}
        """Waiters in order of arrival; empty while a slot is free."""

    def take(self, holder: str, wake: Callable[[], None]) -> bool:
        """Take a place, or a place in the line; return whether the holder may go on."""
        if holder not in self._holders:
            if len(self._holders) >= self._count:
                self._waiting.setdefault(holder, wake)
                return False
            self._holders.add(holder)
        return True

    def leave(self, holder: str) -> None:
        """Release the slot, or stop waiting for one; the next in line is woken."""
        self._waiting.pop(holder, None)
        if holder in self._holders:
            self._holders.remove(holder)
            if self._waiting:
                following = next(iter(self._waiting))
                wake = self._waiting.pop(following)
                self._holders.add(following)
                wake()
