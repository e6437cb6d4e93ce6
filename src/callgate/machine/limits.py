"""The limits of a run: refusals of calls, budgets, and loops of repeated calls.

Takes the state of a run, returns reasons and sentences; changes nothing but the count of repeated calls.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, cast

from callgate.content.collect import RUNNABLE
from callgate.errors import JsonError
from callgate.machine.calls import TrackedCall
from callgate.machine.run_state import RunState
from callgate.strict_json import dump
from callgate.types import FunctionCall, Usage

__all__ = ["ANSWER_NOW", "count_repeats", "refusal", "refusals", "spent_budget"]

ANSWER_NOW = "Answer with what you have."

LONG_BYTES = 10_000
_ENCODER = json.JSONEncoder(sort_keys=True, default=repr)


def spent_budget(run: RunState, usage: Usage, cost: float | None) -> str | None:
    """Return the budget that is used up, by this run or by the session in total, if there is one."""
    limits = run.limits
    if _is_reached(limits.run_tokens, run.usage.total_tokens) or _is_reached(limits.session_tokens, usage.total_tokens):
        return "token_limit"
    if _is_reached(limits.run_cost, run.cost) or _is_reached(limits.session_cost, cost):
        return "cost_limit"
    return None


def refusal(run: RunState, reason: str, *, was_limited: bool) -> tuple[str | None, str | None]:
    """Return why none of the calls of an answer will run, if so: the reason that ends the run, and the sentence."""
    if reason not in RUNNABLE:
        return reason, f"Not run: the answer ended with {reason}."
    if run.wrap_up is not None:
        return run.wrap_up, "Not run: no more calls are allowed in this run."
    if was_limited or run.turn >= run.limits.turns:
        return "turn_limit", f"Not run: the limit of {run.limits.turns} turns is reached."
    if run.tool_choice == "none":  # Some servers take no notice of the choice.
        return None, f"Not run: no tool may be called in this run. {ANSWER_NOW}"
    return None, f"Not run: only the final answer is expected now. {ANSWER_NOW}" if run.repairs else None


def refusals(run: RunState, calls: Sequence[TrackedCall]) -> Iterator[tuple[TrackedCall, str, str | None]]:
    """The calls of an answer that a limit refuses: the sentence of each, and the limit that makes the run wrap up."""
    limits = run.limits
    made = len(run.records) - len(calls)
    repeated = count_repeats(run, [call.call for call in calls])
    for index, call in enumerate(calls):
        if call.call.problem is not None:
            yield call, call.call.problem, None
        elif index >= limits.calls_per_turn:
            yield call, f"Not run: at most {limits.calls_per_turn} calls may be made at once.", None
        elif made + index >= limits.calls:
            yield call, f"Not run: the limit of {limits.calls} calls is reached. {ANSWER_NOW}", "call_limit"
        elif repeated and _CallContent(call.call) in repeated:
            yield call, f"Not run: the same call was made {limits.repeats} times. {ANSWER_NOW}", "loop"


def count_repeats(run: RunState, calls: Sequence[FunctionCall]) -> set[Hashable]:
    """Count the calls of one more turn; return those that were repeated in so many consecutive turns that it is a loop."""
    run.streaks = {key: run.streaks.get(key, 0) + 1 for key in {_CallContent(call) for call in calls}}
    return {key for key, count in run.streaks.items() if count >= run.limits.repeats}


def _is_reached(most: float | None, used: float | None) -> bool:
    return most is not None and (used or 0) >= most


class _CallContent:
    """A call by its content, which is only encoded if another call looks alike: arguments may be long."""

    __slots__ = ("_call", "_outline", "_text")

    def __init__(self, call: FunctionCall) -> None:
        self._call = call
        self._outline = hash((call.name, *((name, _outline(call.args[name])) for name in sorted(call.args))))
        self._text: str | None = None

    def __hash__(self) -> int:
        return self._outline

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CallContent) and self._outline == other._outline and self.text == other.text

    @property
    def text(self) -> str:
        """The call as text; long arguments by a hash of this process, in the order in which they came."""
        if self._text is None:
            self._text = _text_of(self._call)
        return self._text


def _outline(value: Any) -> Hashable:
    """A text or number itself, the length of a list or object."""
    if isinstance(value, (str, int, float)):
        return value
    return len(cast("Sequence[Any]", value)) if isinstance(value, (dict, list)) else None


def _text_of(call: FunctionCall) -> str:
    with contextlib.suppress(JsonError):
        if len(encoded := dump(call.args, is_finite=True)) > LONG_BYTES:
            return f"{call.name} {len(encoded)} {hash(encoded)}"
    return f"{call.name} {_ENCODER.encode(call.args)}"
