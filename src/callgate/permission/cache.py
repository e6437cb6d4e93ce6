"""Results of read-only tools, kept for a while: the same call again is answered from here. Only where it is asked for.

Calls and results come in, results go out. Nothing that changes something is ever kept, and whatever may have changed
something makes what was read before worthless.
"""

from __future__ import annotations

import json
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from callgate.errors import UsageError, checked_values
from callgate.permission.subject import Subject
from callgate.types import FunctionCall, ToolDefinition, ToolResult

__all__ = ["ResultCache", "Slot"]

POLICIES_MAX = 16
"""Maximum number of policies that are compared by their rules; results of older ones are not found again."""
# Names that no tool can give to what it touches.
_EVERYTHING, _ANYTHING = "\0everything", "\0anything"


@dataclass(frozen=True, slots=True)
class Slot:
    """Key of a call's result, and the versions when the call started."""

    key: tuple[str | int, ...]
    scope: tuple[object, ...]
    """The objects that the result depends on besides the arguments; kept, so that no other object gets their identity."""
    touches: tuple[str, ...]
    generation: tuple[int, ...]


@dataclass(slots=True)
class _Entry:
    result: ToolResult
    scope: tuple[object, ...]
    generation: tuple[int, ...]
    until: float


@checked_values
class ResultCache:
    """Keep results of read-only tools.

    Args:
        ttl_s: How long a result is good for.
        entries: How many are kept; the one that was used longest ago goes first.
        tools: Globs for the tools whose results are kept, as in rules: `get_*`, `@github/get_*`.
        per_session: Whether a session sees its own results only.
        touches: What tools read or change, by globs as in `tools`, where their definitions do not say it.
        clock: Seconds that do not jump.
    """

    def __init__(
        self,
        *,
        ttl_s: float = 60.0,
        entries: int = 256,
        tools: Iterable[str] = ("*",),
        per_session: bool = True,
        touches: Mapping[str, Iterable[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not ttl_s > 0 or entries < 1:
            raise UsageError(f"ResultCache(ttl_s={ttl_s!r}, entries={entries!r}): expected numbers above 0")
        self._ttl_s = ttl_s
        self._entries_max = entries
        self._subjects = [Subject.read(pattern, what="ResultCache(tools=...)") for pattern in tools]
        self._per_session = per_session
        self._clock = clock
        self._entries: OrderedDict[tuple[str | int, ...], _Entry] = OrderedDict()
        self._touches = [
            (Subject.read(pattern, what="ResultCache(touches=...)"), tuple(names))
            for pattern, names in (touches or {}).items()
        ]
        self._policies: deque[object] = deque(maxlen=POLICIES_MAX)
        self._changes: Counter[str] = Counter()
        """Calls that may have changed each thing; those of tools that do not declare what they touch count for all."""

    def slot(
        self,
        definition: ToolDefinition,
        call: FunctionCall,
        *,
        digest: str,
        session: str,
        policy: object = None,
        scope: tuple[object, ...] = (),
    ) -> Slot | None:
        """Return the entry for the result of this call; None if it is not cached.

        `scope` has what else it depends on: texts count by their value, all other objects by their identity. Policies that
        are equal are one.
        """
        if not definition.read_only or not any(one.fits(definition, wide=False) for one in self._subjects):
            return None
        args = json.dumps(dict(call.args), sort_keys=True, default=repr)
        key = json.dumps([session if self._per_session else None, definition.own_name, definition.server, digest, args])
        touches = self._touched_by(definition)
        scope = (self._same(policy), *scope)
        parts = tuple(part if isinstance(part, str) else id(part) for part in scope)
        return Slot((key, *parts), scope, touches, self._generation(touches))

    def get(self, slot: Slot, call: FunctionCall) -> ToolResult | None:
        """The result that was kept, as the result of this call."""
        entry = self._entries.get(slot.key)
        if entry is None:
            return None
        if entry.generation != slot.generation or entry.until <= self._clock():
            del self._entries[slot.key]
            return None
        self._entries.move_to_end(slot.key)
        note = "This is the result of the same call a short time ago; it was not run again."
        return entry.result.detached().changed(call_id=call.id, notes=(*entry.result.notes, note), duration_s=0.0)

    def put(self, slot: Slot, result: ToolResult) -> None:
        """Keep a result, unless it is an error or something was changed since the call began."""
        if result.is_error or slot.generation != self._generation(slot.touches):
            return
        self._entries[slot.key] = _Entry(result.detached(), slot.scope, slot.generation, self._clock() + self._ttl_s)
        self._entries.move_to_end(slot.key)
        while len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)

    def changed(self, definition: ToolDefinition) -> None:
        """A call of this tool begins or ends: unless it is read-only, what it may have changed does not count any more.

        A server may write the files that another tool has read, so a change reaches everything that was read, unless both
        tools say what they touch.
        """
        if not definition.read_only:
            for name in (_ANYTHING, *(self._touched_by(definition) or (_EVERYTHING,))):
                self._changes[name] += 1

    def _same(self, policy: object) -> object:
        """The first policy that was equal to this one."""
        known = next((one for one in self._policies if one is policy or one == policy), None)
        if known is None:
            self._policies.append(policy)
            known = policy
        return known

    def _touched_by(self, definition: ToolDefinition) -> tuple[str, ...]:
        said = [name for subject, names in self._touches if subject.fits(definition, wide=False) for name in names]
        return tuple(sorted({*definition.touches, *said}))

    def _generation(self, touches: tuple[str, ...]) -> tuple[int, ...]:
        """Return the versions of what a tool touches: a tool that does not declare it may have read anything."""
        return tuple(self._changes[name] for name in (_EVERYTHING, *(touches or (_ANYTHING,))))
