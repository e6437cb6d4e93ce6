"""Results of read-only tools, kept for a while: the same call again is answered from here. Only where it is asked for.

Calls and results come in, results go out. Nothing that changes something is ever kept, and whatever may have changed
something makes what was read before worthless.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from callgate.errors import UsageError
from callgate.permission.subject import Subject
from callgate.types import FunctionCall, ToolDefinition, ToolResult

__all__ = ["ResultCache", "Slot"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the result of a call belongs, and how things stood when the call began."""

    key: str
    generation: int


@dataclass(slots=True)
class _Entry:
    result: ToolResult
    generation: int
    until: float


class ResultCache:
    """Keep results of read-only tools.

    Args:
        ttl_s: How long a result is good for.
        entries: How many are kept; the one that was used longest ago goes first.
        tools: Globs for the tools whose results are kept, as in rules: `get_*`, `@github/get_*`.
        per_session: Whether a session sees its own results only.
        clock: Seconds that do not jump.
    """

    def __init__(
        self,
        *,
        ttl_s: float = 60.0,
        entries: int = 256,
        tools: Iterable[str] = ("*",),
        per_session: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not ttl_s > 0 or entries < 1:
            raise UsageError(f"ResultCache(ttl_s={ttl_s!r}, entries={entries!r}): expected numbers above 0")
        self._ttl_s = ttl_s
        self._entries_max = entries
        self._subjects = [Subject.read(pattern, what="ResultCache(tools=...)") for pattern in tools]
        self._per_session = per_session
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._generation = 0
        """Rises with every call that may have changed something."""

    def slot(self, definition: ToolDefinition, call: FunctionCall, *, digest: str, session: str) -> Slot | None:
        """Where the result of this call belongs; None if it is not to be kept."""
        if not definition.read_only or not any(one.fits(definition, wide=False) for one in self._subjects):
            return None
        args = json.dumps(dict(call.args), sort_keys=True, default=repr)
        key = json.dumps([session if self._per_session else None, definition.own_name, definition.server, digest, args])
        return Slot(key, self._generation)

    def get(self, slot: Slot, call: FunctionCall) -> ToolResult | None:
        """The result that was kept, as the result of this call."""
        entry = self._entries.get(slot.key)
        if entry is None:
            return None
        if entry.generation != self._generation or entry.until <= self._clock():
            del self._entries[slot.key]
            return None
        self._entries.move_to_end(slot.key)
        note = "This is the result of the same call a short time ago; it was not run again."
        return replace(entry.result, call_id=call.id, notes=(*entry.result.notes, note), duration_s=0.0)

    def put(self, slot: Slot, result: ToolResult) -> None:
        """Keep a result, unless it is an error or something was changed since the call began."""
        if result.is_error or slot.generation != self._generation:
            return
        self._entries[slot.key] = _Entry(result, slot.generation, self._clock() + self._ttl_s)
        self._entries.move_to_end(slot.key)
        while len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)

    def changed(self, definition: ToolDefinition) -> None:
        """A call of this tool begins or ends: unless it is read-only, nothing that was read before counts any more.

        A server may write the files that another tool has read, so a change anywhere reaches all of them.
        """
        if not definition.read_only:
            self._generation += 1
