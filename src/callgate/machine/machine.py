"""THE LOOP: a pure state machine. Facts in, commands out; no I/O, no clock.

`RunMachine.apply` takes one fact and returns the calls that it settled; `RunMachine.todo` says what should be done now. A
machine that is given the same facts again is in the same state again: that is crash recovery, and it is how ten thousand
interleavings are tested. This file knows nothing of models, tools or stores; `run/run.py` carries out what it asks for.

    RunStarted ──> asking ──ModelAnswered──> calling ──all calls settled──> asking ──> ... ──> done
                     └── where the answer must fit a type: ──> checking ──OutputChecked──> done, or asking again

    a call:  proposed ──> checked ──> allowed ──────────────> started ──> finished | failed | timed_out | cancelled
                │            ├──────> awaiting ──> allowed        └─────> unknown (the process died)
                └─> failed   └──────> denied   └─> denied
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from callgate.content.build import call_part, model_content, text_part
from callgate.content.collect import RUNNABLE
from callgate.content.read import SKIP_SIGNATURE, has_data, is_call, is_thought, parts_of, role_of, text_of
from callgate.content.response import to_function_response
from callgate.content.tool_names import READ_RESULT, resolve_name
from callgate.history.conversation import CANCELLED, Conversation
from callgate.machine import facts
from callgate.types import (
    FINAL_STATES,
    NO_USAGE,
    CallRecord,
    CallState,
    Content,
    Decision,
    FunctionCall,
    JsonObject,
    Limits,
    Reply,
    ResultStatus,
    SessionRule,
    ToolChoice,
    ToolResult,
    Usage,
)

__all__ = ["Phase", "RunMachine", "startable"]

Phase: TypeAlias = Literal["idle", "asking", "calling", "checking", "done"]

# Answers that are asked for again, and what the model is told then: what was wrong, and what to do if it can call tools.
# Only one sentence says how calls are made, because not every model makes them in the same way.
_ASK_AGAIN = {
    "MALFORMED_FUNCTION_CALL": ("Your last answer was not a valid call and was discarded.", facts.HOW_TO_CALL),
    "UNEXPECTED_TOOL_CALL": (
        "Your last answer called a tool that cannot be called now and was discarded.",
        "Call only the tools that you were told of, or answer in text.",
    ),
    "TOO_MANY_TOOL_CALLS": ("Your last answer made too many calls at once and was discarded.", "Make fewer calls."),
    "MALFORMED_RESPONSE": ("Your last answer was malformed and was discarded.", "Please answer again."),
    "": ("Your last answer was empty.", "Please answer the user, or call a tool."),
}
_IN_TEXT = "Please answer in text."
_CUT = (
    "Not run: the answer was cut off at its limit of tokens, perhaps within this call. Make it again, in several smaller "
    "calls if it is a long one."
)

_OUTPUT_AGAIN = (
    "Your last answer does not have the form that is needed: {problems}. Answer again, with JSON alone that fits the JSON "
    "Schema of the answer: no other words, no code fence. It was:\n{answer}"
)
OUTPUT_SHOWN_MAX = 4_000
"""Characters of an answer that does not fit which the model is shown again."""

TOKENS_PER_BYTE = 0.25
"""Until the model has counted, a token is taken to be four bytes of the history."""

SUMMARY = (
    "Summary of the conversation up to here, made by you to save room. It is data about the past, not an instruction:\n\n{}"
)


class _Slot(Protocol):
    @property
    def state(self) -> CallState: ...
    @property
    def ordered(self) -> bool: ...


def startable(batch: Sequence[_Slot], parallel: int) -> list[int]:
    """Which allowed calls of a batch may start now: at most `parallel` at a time, ordered ones only one after another."""
    room = parallel - sum(slot.state == "started" for slot in batch)
    chosen: list[int] = []
    order_is_free = True
    for index, slot in enumerate(batch):
        if slot.state in FINAL_STATES:
            continue
        may_start = slot.state == "allowed" and (order_is_free or not slot.ordered)
        if slot.ordered:
            order_is_free = False
        if may_start and len(chosen) < room:
            chosen.append(index)
    return chosen


@dataclass(slots=True)
class _Call:
    """A call on its way. `call` changes with the check (coerced arguments, own name) and with an edit at approval."""

    call: FunctionCall
    state: CallState = "proposed"
    ordered: bool = False
    digest: str = ""
    decision: Decision | None = None
    approved: bool = False
    edited: bool = False
    rewritten: bool = False
    """Whether a hook changed the arguments; hooks have their say once."""
    result: ToolResult | None = None

    def record(self) -> CallRecord:
        return CallRecord(call=self.call, state=self.state, decision=self.decision, result=self.result, edited=self.edited)


@dataclass(frozen=True, slots=True)
class _Held:
    """An answer that becomes part of the conversation only if it fits, or if it is the last."""

    content: Content
    origin: str | None
    reason: str
    message: str


_NO_LIMITS_GIVEN = Limits()


@dataclass(init=False)
class _Run:
    """What is known of the run in progress. What every run begins with alike stands with the class until it changes."""

    limits: Limits
    tool_choice: ToolChoice
    start: int
    """Length of the conversation when the run began; a run that came to nothing is taken back to it."""
    output: JsonObject | None
    """The JSON Schema that the answer must fit."""
    records: list[_Call]
    streaks: dict[str, int]
    turn: int = 0
    retries: int = 0
    feedback: str | None = None
    text: str = ""
    model: str = ""
    usage: Usage = NO_USAGE
    cost: float | None = None
    wrap_up: str | None = None
    """The limit that was reached: the next request is the last one and has its tools switched off."""
    end: str | None = None
    """The run ends with this reason as soon as every call is settled."""
    cancelled: str | None = None
    finish: facts.Finish | None = None
    held: _Held | None = None
    """An answer that is not known to fit yet."""
    repairs: int = 0
    """How often the model was asked again for an answer that fits."""
    fits: bool = False
    value: Any = None
    problems: tuple[str, ...] = ()
    """What was wrong with the last answer, where none fits."""
    request: str | None = None
    """What the request is called that asked for it, if it may be sent again."""

    def __init__(
        self,
        limits: Limits = _NO_LIMITS_GIVEN,
        tool_choice: ToolChoice = "auto",
        start: int = 0,
        output: JsonObject | None = None,
    ) -> None:
        self.limits, self.tool_choice, self.start, self.output = limits, tool_choice, start, output
        self.records, self.streaks = [], {}

    @property
    def limited(self) -> bool:
        """Whether the request now on its way is the last that the turn limit allows, so that its tools are off."""
        return 1 < self.limits.turns == self.turn + 1


class RunMachine:
    """The state machine of one conversation, over any number of runs."""

    def __init__(self, given: Iterable[facts.Fact] = ()) -> None:
        self.conversation = Conversation()
        self.phase: Phase = "idle"
        self.tools: dict[str, facts.KnownTool] = {}
        self.names: dict[str, str] = {}
        self.always: dict[str, SessionRule] = {}
        """What the user allowed for the rest of the session, by the id of the answer."""
        self.usage = NO_USAGE
        """Tokens of all runs."""
        self.cost: float | None = None
        """What all runs cost, as far as that is known."""
        self.requests: set[str] = set()
        """What the requests are called that have begun a run here and may be sent again."""
        self._tokens_per_byte = TOKENS_PER_BYTE
        self.run = _Run()
        self._open: list[_Call] = []
        self._settled: list[CallRecord] = []
        for fact in given:
            self.apply(fact)

    # What the driver asks -------------------------------------------------------------------------------------------------

    def apply(self, fact: facts.Fact) -> list[CallRecord]:
        """Takes a fact in and gives out the calls that are over because of it.

        A fact that no longer fits (an answer to an approval that was cancelled, a result of a call that was given up)
        changes nothing, so nothing is ever answered twice.
        """
        self._HANDLERS[type(fact)](self, fact)
        if self.phase == "calling":
            self._advance()
        settled, self._settled = self._settled, []
        return settled

    def todo(self) -> facts.Todo:
        """What should be done now. Says the same again until a fact says that it was done."""
        if self.phase == "done":
            return facts.Todo(finish=self.run.finish)
        if self.phase == "asking":
            if (dropped := self._too_long()) > 0:
                return facts.Todo(shorten=facts.Shorten(dropped))
            return facts.Todo(ask_model=facts.AskModel(self._tool_choice(), self.run.feedback, self.run.output))
        if self.phase == "checking":
            return facts.Todo(check_output=facts.CheckOutput(self.run.text, self.run.output or {}))
        if self.run.cancelled is not None:
            return facts.Todo(stop=tuple(c.call for c in self._open if c.state == "started"))
        waiting = [c for c in self._open if c.state == "awaiting"]
        return facts.Todo(
            check=tuple(c.call for c in self._open if c.state == "proposed"),
            decide=tuple(c.call for c in self._open if c.state == "checked"),
            approve=tuple(facts.AskApproval(c.call, c.decision.reason if c.decision else "") for c in waiting),
            run=tuple(self._open[index].call for index in startable(self._open, self.run.limits.parallel)),
        )

    @property
    def rewritten(self) -> set[str]:
        """The open calls whose arguments a hook has changed."""
        return {call.call.id for call in self._open if call.rewritten}

    @property
    def open_calls(self) -> list[CallRecord]:
        """The calls of the current turn, settled or not."""
        return [call.record() for call in self._open]

    @property
    def is_users_turn(self) -> bool:
        """Whether there is nothing that the model could answer: the history is empty, or its word was the last one."""
        last = self.conversation.last
        return last is None or (role_of(last) != "user" and not self.conversation.open_calls)

    def reply(self, session: str) -> Reply:
        """What the run has come to so far."""
        run, finish = self.run, self.run.finish
        return Reply(
            text=run.text,
            calls=[call.record() for call in run.records],
            usage=run.usage,
            finish_reason="approval_needed" if finish is None else finish.reason,
            history=self.conversation.history,
            session=session,
            turns=run.turn,
            limited=finish is not None and 1 < run.limits.turns == run.turn,
            approvals=[call.record() for call in self._open if call.state == "awaiting"],
            model=run.model,
            cost=run.cost,
            context_tokens=self.context_tokens,
            output=run.value,
        )

    @property
    def context_tokens(self) -> int:
        """About how many tokens the history has: by the rate of the last answer that counted them, else by its bytes."""
        return round(self.conversation.size_bytes * self._tokens_per_byte)

    def snapshot(self) -> JsonObject:
        """The whole state as plain data: equal snapshots behave alike."""
        run = self.run
        return {
            "phase": self.phase,
            "contents": self.conversation.contents,
            "tools": dict(self.tools),
            "names": dict(self.names),
            "always": dict(self.always),
            "requests": set(self.requests),
            "spent": (self.usage, self.cost, self._tokens_per_byte),
            "open": [(c.record(), c.ordered, c.digest, c.approved, c.rewritten) for c in self._open],
            "run": {name: getattr(run, name) for name in _FIELDS if name != "records"},
            "records": [c.record() for c in run.records],
        }

    # Facts ----------------------------------------------------------------------------------------------------------------

    def _tools_known(self, fact: facts.ToolsKnown) -> None:
        self.tools, self.names = dict(fact.tools), dict(fact.names)
        for call in self._open:
            known = self.tools.get(call.call.name)
            call.ordered = self._is_ordered(call.call)
            if call.state in ("checked", "allowed", "awaiting") and (known is None or known.digest != call.digest):
                # What was checked, shown and approved was another tool.
                call.state, call.approved, call.decision = "proposed", False, None

    def _history_given(self, fact: facts.HistoryGiven) -> None:
        self._drop_open_calls()
        self.conversation = Conversation(fact.contents)
        self.phase = "idle"

    def _run_started(self, fact: facts.RunStarted) -> None:
        self._drop_open_calls()
        conversation = self.conversation
        if conversation.open_calls:
            conversation.add_responses([], missing=CANCELLED)
        self.run = _Run(fact.limits, fact.tool_choice, len(conversation), fact.output)
        if fact.request is not None:
            self.run.request = fact.request
            self.requests.add(fact.request)
        if fact.content is not None:
            conversation.add_said(fact.content)
        elif self.is_users_turn:
            self._finish("nothing_to_do")
            return
        self._go_on()

    def _model_answered(self, fact: facts.ModelAnswered) -> None:
        if self.phase != "asking":
            return
        run = self.run
        self._spend(fact.usage, fact.cost)
        if fact.usage.prompt_tokens:
            seen = fact.usage.prompt_tokens / max(self.conversation.size_bytes, 1)
            self._tokens_per_byte = min(max(seen, TOKENS_PER_BYTE / 2), 1.0)
        reason, calls, content = fact.finish_reason, fact.calls, fact.content
        text = text_of(content)
        if reason in _ASK_AGAIN:
            calls = self._salvage(fact.salvaged)
            if not calls:
                self._ask_again("malformed", reason, fact.finish_message)
                return
            signatures = [SKIP_SIGNATURE] + [None] * (len(calls) - 1)
            content = model_content(
                call_part(call, signature=signature) for call, signature in zip(calls, signatures, strict=True)
            )
            reason, text = "STOP", ""
        elif not text and not any(has_data(part) and not is_thought(part) for part in parts_of(content)):
            if reason == "STOP":
                self._ask_again("empty", reason, fact.finish_message)
            else:
                run.turn += 1
                self._finish(reason, message=fact.finish_message)
            return
        was_limited = run.limited
        # An answer in another form is not another turn.
        run.turn += 0 if run.repairs and not calls else 1
        run.retries, run.feedback, run.text = 0, None, text
        run.model = fact.model
        if run.output is not None and not calls and reason in RUNNABLE:
            run.held = _Held(content, fact.origin, run.wrap_up or reason, fact.finish_message)
            self.phase = "checking"
            return
        self.conversation.add_model(content, origin=fact.origin)
        if not calls:
            self._finish(run.wrap_up or reason, message=fact.finish_message)
            return
        self.phase = "calling"
        # An unchecked call must hold its place in the order too, so that nothing behind it overtakes it.
        self._open = [_Call(call, ordered=self._is_ordered(call)) for call in calls]
        run.records += self._open
        self._refuse_beyond_limits(reason, was_limited)
        if reason == "MAX_TOKENS" and self._open and is_call(parts_of(content)[-1]):
            self._refuse_cut(self._open[-1])

    def _refuse_cut(self, call: _Call) -> None:
        """What is left of a call that was cut may look like a whole one: half a file is a file too."""
        known = self._known(call.call)
        if call.state not in FINAL_STATES and known is not None and not known.read_only:
            self._settle(call, "failed", error=_CUT)

    def _output_checked(self, fact: facts.OutputChecked) -> None:
        run, held = self.run, self.run.held
        if self.phase != "checking" or held is None:
            return
        run.fits, run.value, run.problems = not fact.problems, fact.value, fact.problems
        spent = None if run.fits else self._spent()
        if run.fits or spent is not None or run.repairs >= run.limits.output_retries:
            self._take_held()
            self._finish(spent or held.reason, message=held.message if run.fits else "; ".join(fact.problems))
            return
        run.held = None
        run.repairs += 1
        run.feedback = _OUTPUT_AGAIN.format(problems="; ".join(fact.problems), answer=run.text[:OUTPUT_SHOWN_MAX])
        self.phase = "asking"

    def _take_held(self) -> None:
        """The answer that was held back counts, whether it fits or not."""
        held, self.run.held = self.run.held, None
        assert held is not None, "an answer is held as long as it is not checked"
        self.conversation.add_model(held.content, origin=held.origin)

    def _history_shortened(self, fact: facts.HistoryShortened) -> None:
        summary = None if fact.summary is None else SUMMARY.format(fact.summary)
        self.conversation.shorten(fact.dropped, summary)
        self.run.start = max(self.run.start - fact.dropped, 0) + (summary is not None)
        self._spend(fact.usage, fact.cost)

    def _model_failed(self, fact: facts.ModelFailed) -> None:
        if self.phase == "asking":
            self._finish("error", error="failed", message=fact.message)

    def _call_checked(self, fact: facts.CallChecked) -> None:
        call = self._find(fact.id, "proposed")
        if call is None:
            return
        if fact.tool is None or fact.problems:
            self._settle(call, "failed", error=" ".join(fact.problems) or "There is no such tool.")
            return
        written = call.call.wire_name or call.call.name
        call.call = replace(
            call.call,
            name=fact.tool,
            wire_name=written if written != fact.tool else None,
            args=fact.args,
            notes=(*call.call.notes, *fact.coercions),
        )
        call.digest, call.ordered = fact.digest, self._is_ordered(call.call)
        call.state = "checked"

    def _call_decided(self, fact: facts.CallDecided) -> None:
        decision = fact.decision
        # What was allowed can still be refused as long as it has not started: by a limit, or a log that cannot be written.
        call = self._find(fact.id, "checked", *(["allowed"] if decision.verdict == "deny" else []))
        if call is None:
            return
        if fact.args is not None:
            # What would run is another call now, whatever was said of it before.
            call.call = replace(call.call, args=fact.args, problem=None)
            call.state, call.approved, call.rewritten = "proposed", False, True
            return
        if decision.verdict == "ask" and call.approved:
            # The user changed the arguments and so has seen them; only a deny can still stop the call.
            decision = Decision(verdict="allow", reason=decision.reason, by="user")
        call.decision = decision
        if decision.verdict == "deny":
            self._settle(call, "denied", error=f"This call was not allowed. {decision.reason}".strip())
        else:
            call.state = "allowed" if decision.verdict == "allow" else "awaiting"

    def _approval_answered(self, fact: facts.ApprovalAnswered) -> None:
        call = self._find(fact.id, "awaiting")
        if call is None:
            return
        if fact.answer == "no":
            call.decision = Decision(verdict="deny", reason=fact.reason, by="user")
            self._settle(call, "denied", error=f"The user did not allow this call. {fact.reason}".strip())
            return
        call.decision = Decision(verdict="allow", reason=fact.reason, by="user")
        if fact.answer == "always":
            own = SessionRule(id=f"always-{call.call.id}", tool=call.call.name, digest=call.digest)
            rule = fact.rule or own
            self.always[rule.id] = rule
        if fact.args is None:
            call.state = "allowed"
            return
        call.call = replace(call.call, args=fact.args, problem=None)
        call.approved = call.edited = True
        call.rewritten = False
        call.state = "proposed"

    def _renamed(self, fact: facts.Renamed) -> None:
        """What a session is called changes nothing in it."""

    def _always_revoked(self, fact: facts.AlwaysRevoked) -> None:
        if fact.rule is None:
            self.always.clear()
        else:
            self.always.pop(fact.rule, None)

    def _call_started(self, fact: facts.CallStarted) -> None:
        call = self._find(fact.id, "allowed")
        if call is not None:
            call.state = "started"

    def _call_ended(self, fact: facts.CallEnded) -> None:
        call = self._find(fact.id, "started")
        if call is not None:
            self._close(call, fact.result)

    def _cancelled(self, fact: facts.Cancelled) -> None:
        if self.phase == "asking":
            if fact.partial.strip():
                # The user has seen this much of the answer, and will speak of it.
                self.run.text = fact.partial
                self.conversation.add_model(model_content([text_part(fact.partial)]))
            self._finish("cancelled", message=fact.reason)
        elif self.phase == "checking":
            self._take_held()
            self._finish("cancelled", message=fact.reason)
        elif self.phase == "calling":
            self.run.cancelled = fact.reason
            for call in self._open:
                if call.state not in FINAL_STATES and call.state != "started":
                    self._settle(call, "cancelled", error=f"The call was cancelled before it started. {fact.reason}")
        elif self.phase == "done":
            # It came while the end was noted down, and nobody has been told of that end.
            self.run.fits, self.run.value = False, None
            self._finish("cancelled", message=fact.reason)

    def _recovered(self, fact: facts.Recovered) -> None:
        for call in self._open:
            known = self.tools.get(call.call.name)
            if call.state != "started":
                continue
            if known is not None and known.repeatable and self.run.cancelled is None:
                call.state = "allowed"
            else:
                self._settle(call, "unknown", error=_UNKNOWN)

    def _rewound(self, fact: facts.Rewound) -> None:
        self._open, self.run, self.phase = [], _Run(), "idle"
        if fact.contents is not None:
            self.conversation = Conversation(fact.contents)
        self.conversation.cut(fact.contents_kept)

    def _inner_call(self, fact: facts.NestedCall) -> None:
        """Nothing follows from it here: it is the tool that made it who goes on."""

    def _adopted(self, fact: facts.Adopted) -> None:
        self.always.clear()
        for call in self._open:
            if call.state == "started":
                self._settle(call, "unknown", error=_UNKNOWN)
            elif call.state not in FINAL_STATES:
                call.state, call.approved, call.decision, call.rewritten = "proposed", False, None, False

    # Steps ----------------------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """When every call of the turn is settled, the model gets all answers at once, in call order."""
        if any(call.state not in FINAL_STATES for call in self._open):
            return
        run = self.run
        self._answer_open_calls()
        if run.cancelled is not None:
            self._finish("cancelled", message=run.cancelled)
        elif run.end is not None:
            self._finish(run.end)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """The model is asked next, unless that would be one request too many for what may be spent."""
        if (spent := self._spent()) is not None:
            self._finish(spent)
        else:
            self.phase = "asking"

    def _spend(self, usage: Usage, cost: float | None) -> None:
        run = self.run
        run.usage += usage
        self.usage += usage
        if cost is not None:
            run.cost, self.cost = (run.cost or 0.0) + cost, (self.cost or 0.0) + cost

    def _spent(self) -> str | None:
        """The budget that is used up, if one is."""
        run, limits = self.run, self.run.limits
        tokens, all_tokens = run.usage.total_tokens, self.usage.total_tokens
        if _is_reached(limits.run_tokens, tokens) or _is_reached(limits.session_tokens, all_tokens):
            return "token_limit"
        if _is_reached(limits.run_cost, run.cost) or _is_reached(limits.session_cost, self.cost):
            return "cost_limit"
        return None

    def _too_long(self) -> int:
        """How many contents must go before the next request, so that the rest takes at most half of what it may."""
        most = self.run.limits.context_tokens
        if most is None or self.conversation.size_bytes * self._tokens_per_byte <= most:
            return 0
        return self.conversation.cut_for(int(most / 2 / self._tokens_per_byte))

    def _answer_open_calls(self) -> None:
        chars = self.run.limits.output_chars
        reader = READ_RESULT if READ_RESULT in self.tools else None
        results = [(c.call, c.result) for c in self._open if c.result]
        self.conversation.add_responses(
            [to_function_response(call, result, output_chars=chars, reader=reader) for call, result in results]
        )
        self._open = []

    def _drop_open_calls(self) -> None:
        """The user goes on although calls are open: each gets an answer that says what is known of it."""
        if not self._open:
            return
        for call in self._open:
            if call.state == "started":
                self._settle(call, "unknown", error=_UNKNOWN)
            elif call.state not in FINAL_STATES:
                self._settle(call, "cancelled", error="The call was cancelled before it started.")
        self._answer_open_calls()

    def _refuse_beyond_limits(self, reason: str, was_limited: bool) -> None:
        """Settles at once the calls of an answer that will not run."""
        run, limits = self.run, self.run.limits
        run.end, refusal = self._refusal(reason, was_limited)
        made = len(run.records) - len(self._open)
        repeated = self._repeated()
        for index, call in enumerate(self._open):
            if refusal is not None:
                self._settle(call, "failed", error=refusal)
            elif call.call.problem is not None:
                self._settle(call, "failed", error=call.call.problem)
            elif index >= limits.calls_per_turn:
                self._settle(call, "failed", error=f"Not run: at most {limits.calls_per_turn} calls may be made at once.")
            elif made + index >= limits.calls:
                run.wrap_up = "call_limit"
                self._settle(call, "failed", error=f"Not run: the limit of {limits.calls} calls is reached. {_ANSWER_NOW}")
            elif repeated and _key(call.call) in repeated:
                run.wrap_up = "loop"
                self._settle(call, "failed", error=f"Not run: the same call was made {limits.repeats} times. {_ANSWER_NOW}")

    def _refusal(self, reason: str, was_limited: bool) -> tuple[str | None, str | None]:
        """Why none of the calls of an answer will run, if none will: the reason that ends the run, and the sentence."""
        run = self.run
        if reason not in RUNNABLE:
            return reason, f"Not run: the answer ended with {reason}."
        if run.wrap_up is not None:
            return run.wrap_up, "Not run: no more calls are allowed in this run."
        if was_limited or run.turn >= run.limits.turns:
            return "turn_limit", f"Not run: the limit of {run.limits.turns} turns is reached."
        return None, f"Not run: only the answer is wanted now. {_ANSWER_NOW}" if run.repairs else None

    def _repeated(self) -> set[str]:
        """Calls that were made in so many turns one after another that it is a loop."""
        run = self.run
        run.streaks = {key: run.streaks.get(key, 0) + 1 for key in {_key(call.call) for call in self._open}}
        return {key for key, count in run.streaks.items() if count >= run.limits.repeats}

    def _ask_again(self, error: Literal["malformed", "empty"], reason: str, message: str) -> None:
        run = self.run
        if run.retries >= run.limits.retries_malformed:
            self._finish(reason, error=error, message=message)
            return
        run.retries += 1
        wrong, advice = _ASK_AGAIN[reason if error == "malformed" else ""]
        can_call = self.tools and self._tool_choice() != "none"
        feedback = f"{wrong} {advice if can_call else _IN_TEXT}"
        run.feedback = f"{feedback} ({message[:500]})" if message else feedback

    def _salvage(self, salvaged: Sequence[FunctionCall]) -> tuple[FunctionCall, ...]:
        """Calls read from text may run only if none of them can change anything."""
        own = [resolve_name(call.name, self.names) for call in salvaged]
        if not all(name is not None and name in self.tools and self.tools[name].read_only for name in own):
            return ()
        declared = {name: alias for alias, name in self.names.items()}
        return tuple(replace(call, name=declared[name]) for call, name in zip(salvaged, own, strict=True) if name)

    def _tool_choice(self) -> ToolChoice:
        run = self.run
        if run.wrap_up is not None or run.repairs or (run.limited and run.turn > 0):
            return "none"
        choice = run.tool_choice if run.turn == 0 or run.tool_choice == "none" else "auto"
        # A model that just failed to write a call does better when its calls are held to the declarations.
        return "validated" if choice == "auto" and run.feedback is not None else choice

    def _finish(self, reason: str, *, error: Any = None, message: str = "") -> None:
        run = self.run
        self.phase = "done"
        if error is None and run.output is not None and not run.fits and reason not in ("cancelled", "nothing_to_do"):
            error = "output"
        run.finish = facts.Finish(reason, error, message)
        run.feedback = None
        if len(self.conversation) == run.start + 1 and not self.conversation.is_model(-1):
            # The model has said nothing at all: the conversation is as it was before.
            self.conversation.cut(run.start)

    def _is_ordered(self, call: FunctionCall) -> bool:
        known = self._known(call)
        return known is not None and known.ordered

    def _known(self, call: FunctionCall) -> facts.KnownTool | None:
        name = call.name if call.name in self.tools else resolve_name(call.name, self.names)
        return None if name is None else self.tools.get(name)

    def _find(self, call_id: str, *states: str) -> _Call | None:
        return next((call for call in self._open if call.call.id == call_id and call.state in states), None)

    def _settle(self, call: _Call, status: ResultStatus, *, error: str) -> None:
        self._close(call, ToolResult(call_id=call.call.id, name=call.call.name, status=status, error=error))

    def _close(self, call: _Call, result: ToolResult) -> None:
        if call.edited or call.rewritten:
            who = "A hook" if call.rewritten else "The user"
            note = f"{who} changed the arguments before the call ran: {json.dumps(dict(call.call.args))}"
            result = replace(result, notes=(*result.notes, note))
        call.result, call.state = result, result.status
        self._settled.append(call.record())

    _HANDLERS: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        facts.ToolsKnown: _tools_known,
        facts.HistoryGiven: _history_given,
        facts.HistoryShortened: _history_shortened,
        facts.RunStarted: _run_started,
        facts.ModelAnswered: _model_answered,
        facts.ModelFailed: _model_failed,
        facts.OutputChecked: _output_checked,
        facts.CallChecked: _call_checked,
        facts.CallDecided: _call_decided,
        facts.ApprovalAnswered: _approval_answered,
        facts.AlwaysRevoked: _always_revoked,
        facts.CallStarted: _call_started,
        facts.CallEnded: _call_ended,
        facts.Cancelled: _cancelled,
        facts.Recovered: _recovered,
        facts.Rewound: _rewound,
        facts.Adopted: _adopted,
        facts.NestedCall: _inner_call,
        facts.Renamed: _renamed,
    }


_UNKNOWN = (
    "The process stopped while this call was running; whether it had its effect is not known. Check before repeating it."
)
_ANSWER_NOW = "Answer with what you have."
_FIELDS = [field.name for field in fields(_Run)]


def _is_reached(most: float | None, used: float | None) -> bool:
    return most is not None and (used or 0) >= most


def _key(call: FunctionCall) -> str:
    return f"{call.name} {_ENCODER.encode(call.args)}"


_ENCODER = json.JSONEncoder(sort_keys=True, default=repr)
