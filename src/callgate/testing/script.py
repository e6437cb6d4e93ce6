"""The script of a fake server: which step answers which request.

Takes items, returns one step per request, in order of arrival. Knows how steps repeat and what the short forms mean; it
knows nothing of connections.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from callgate.errors import UsageError
from callgate.testing.answers import Answer, Ready, answer, calls, text, to_answer
from callgate.testing.exchange import Clock
from callgate.testing.fault_row import FaultStep
from callgate.testing.faults import fault
from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject, Part

__all__ = ["Item", "Script", "Step", "script_from_file", "script_from_json"]

Step: TypeAlias = Answer | Ready | FaultStep
"""The answer to one request."""

Item: TypeAlias = "str | JsonObject | list[Part] | list[JsonObject] | Step | tuple[Any, ...] | Callable[[JsonObject], Any]"
"""One item of a script: a text; a part or a list of parts; a whole response or error; a list of chunks; an `Answer`; a
fault; a tuple of items, taken one after another; or a function of the request that returns any of these."""


@dataclass(slots=True)
class Script:
    """A queue of items. Every request takes the next step."""

    items: deque[Any]
    repeat_last: bool = False
    """Repeat the last item, instead of running out."""
    _since: dict[int, float] = field(default_factory=dict[int, float])

    @classmethod
    def of(cls, items: Iterable[Any], *, repeat_last: bool = False) -> Script:
        """Make a script of these items; invalid ones are refused now, not when they are reached."""
        queue = deque(_flat(items))
        for item in queue:
            if not callable(item) and not isinstance(item, FaultStep):
                to_answer(item)
        return cls(queue, repeat_last)

    def take(self, request: JsonObject, clock: Clock) -> Step | None:
        """The step for the next request; None when the script is at its end."""
        while self.items:
            item = self.items.popleft()
            if isinstance(item, FaultStep):
                if self._keep(item, clock):
                    return item
                continue
            if self.repeat_last and not self.items:
                self.items.append(item)
            if not callable(item):
                return to_answer(item)
            made: Any = item(request)
            if not isinstance(made, (FaultStep, tuple)):
                return to_answer(made)
            self.items.extendleft(reversed(list(_flat([made]))))
        return None

    def next_on_accept(self, clock: Clock) -> bool:
        """Take the next step if it acts on a connection before its first byte."""
        if self.items and isinstance(self.items[0], FaultStep) and self.items[0].fault.on_accept:
            return self.take({}, clock) is not None
        return False

    def _keep(self, step: FaultStep, clock: Clock) -> bool:
        """True if the step still has something to do; puts it back in front if it will have more."""
        if step.fault.lasts_s is not None:
            since = self._since.setdefault(id(step), clock.now())
            if clock.now() - since >= step.fault.lasts_s:
                del self._since[id(step)]
                return False
            self.items.appendleft(step)
        elif step.times is None or (self.repeat_last and not self.items and step.times <= 1):
            self.items.appendleft(step)
        elif step.times > 1:
            left = FaultStep(
                fault=step.fault, variant=step.variant, times=step.times - 1, answer=step.answer, at=step.at
            )  # fmt: skip
            self.items.appendleft(left)
        return True


def _flat(items: Iterable[Any]) -> Iterable[Any]:
    for item in items:
        if isinstance(item, tuple):
            yield from _flat(cast("tuple[Any, ...]", item))
        else:
            yield item


# Scripts in files --------------------------------------------------------------------------------------------------------


def script_from_file(path: str | Path) -> list[Any]:
    """A script from a JSON file; see `script_from_json` for its items.

    Raises:
        UsageError: the file is not JSON, or not a script.
    """
    try:
        return script_from_json(json.loads(Path(path).read_text("utf-8")))
    except ValueError as error:
        raise UsageError(f"the script {str(path)!r} cannot be read: {error}") from None


def script_from_json(value: Any) -> list[Any]:
    """A script from plain data: a list of texts, responses, lists of chunks, and short forms.

    The short forms are `{"text": ...}`, `{"call": name, "args": {...}}`, `{"calls": [{"name", "args"}]}`, `{"parts": [...]}`
    and `{"fault": "W42:null"}`; their other keys are the options of the function of that name.

    Raises:
        UsageError: the value is not a list of such items.
    """
    if not isinstance(value, list):
        raise UsageError("a script is a list of steps")
    return [_from_json(item) for item in cast("list[Any]", value)]


def _from_json(item: Any) -> Any:
    if not isinstance(item, dict):
        to_answer(item)
        return item
    short = cast("JsonObject", item)
    form = next((key for key in _SHORT if key in short), None)
    if form is None:
        return short
    rest = {key: inner for key, inner in short.items() if key not in (form, "args")}
    try:
        return _SHORT[form](short, rest)
    except (TypeError, KeyError) as error:
        raise UsageError(f"the step {json.dumps(short)[:200]} cannot be understood: {error}") from None


_SHORT: Mapping[str, Callable[[JsonObject, JsonObject], Any]] = {
    "text": lambda item, rest: text(item["text"], **rest),
    "call": lambda item, rest: calls((item["call"], as_object(item.get("args"))), **rest),
    "calls": lambda item, rest: calls(
        *((each["name"], as_object(each.get("args"))) for each in as_list(item["calls"])), **rest
    ),
    "parts": lambda item, rest: answer(*as_list(item["parts"]), **rest),
    "fault": lambda item, rest: fault(item["fault"], **rest),
}
