"""THE LOOP: a pure state machine. Facts in, commands out; no I/O, no clock.

`RunMachine.apply` takes one fact and returns the calls that it settled; `RunMachine.todo` returns what to do now. The
same facts always lead to the same state: that is crash recovery, and it is how ten thousand interleavings are tested.
Knows nothing of models, tools or stores; `run/run.py` executes its commands.

    RunStarted ──> asking ──ModelAnswered──> calling ──all calls settled──> asking ──> ... ──> done
                     └── if the answer must fit a type: ──> checking ──OutputChecked──> done, or asking again

The life of the calls of a turn is in `calls.py`, the limits of a run in `limits.py`. Everything that may be refused is
refused before a fact exists, so `apply` does not raise. A fact of a damaged journal that does is quarantined: it is
replaced by `Unreadable`, and nothing that it might have changed is relied on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal, TypeAlias

from callgate.content.build import call_part, model_content, text_part
from callgate.content.collect import RUNNABLE
from callgate.content.read import SKIP_SIGNATURE, has_data, is_call, is_thought, parts_of, role_of, text_of
from callgate.content.response import to_function_response
from callgate.content.tool_names import READ_RESULT, resolve_name
from callgate.history.conversation import CANCELLED, Conversation
from callgate.machine import facts
from callgate.machine.calls import UNKNOWN, CallBatch, TrackedCall, rule_of
from callgate.machine.feedback import ASK_AGAIN, CUT, IN_TEXT, output_feedback
from callgate.machine.limits import count_repeats, refusal, refusals, spent_budget
from callgate.machine.run_state import PendingAnswer, RunState
from callgate.types import CallRecord, FunctionCall, JsonObject, Reply, SessionRule, ToolChoice, Usage

__all__ = ["Phase", "RunMachine"]

Phase: TypeAlias = Literal["idle", "asking", "calling", "checking", "done"]

TOKENS_PER_BYTE = 0.25
"""Until the model has counted, a token is taken to be four bytes of the history."""

_RUN_FIELDS = [field.name for field in fields(RunState)]


class RunMachine:
    """The state machine of one conversation, over any number of runs. It begins with the facts of a journal."""

    def __init__(self, given: Iterable[facts.Fact] = ()) -> None:
        facts.replay(given, self._begin)

    def _begin(self) -> Callable[[facts.Fact], object]:
        self.conversation = Conversation()
        self.phase: Phase = "idle"
        self.tools: dict[str, facts.KnownTool] = {}
        self.names: dict[str, str] = {}
        self.always: dict[str, SessionRule] = {}
        """The session rules, by the id of the answer."""
        self.usage = Usage()
        """Tokens of all runs."""
        self.cost: float | None = None
        """The cost of all runs, as far as known."""
        self.requests: set[str] = set()
        """Idempotency keys of the requests that have begun a run here."""
        self.quarantined: list[str] = []
        """Errors of facts that could not be applied."""
        self.run = RunState()
        self.calls = CallBatch()
        """The calls of the current turn."""
        self._settled: list[CallRecord] = []
        self._tokens_per_byte = TOKENS_PER_BYTE
        return self.apply

    # The interface of a run -----------------------------------------------------------------------------------------------

    def apply(self, fact: facts.Fact) -> list[CallRecord]:
        """Apply a fact; return the calls that it settles.

        A stale fact (an answer to an approval that was cancelled, a result of an abandoned call) changes nothing, so
        nothing is ever answered twice.
        """
        self._HANDLERS[type(fact)](self, fact)
        if self.phase == "calling" and self.calls.is_over:
            self._close_turn()
        settled, self._settled = [*self._settled, *self.calls.drain()], []
        return settled

    def todo(self) -> facts.Todo:
        """Return what to do now. Repeats itself until a fact says that it was done."""
        if self.phase == "done":
            return facts.Todo(finish=self.run.finish)
        if self.phase == "asking":
            if (shorten := self._shortening()) is not None:
                return facts.Todo(shorten=shorten)
            run = self.run
            choice = self._tool_choice()
            return facts.Todo(ask_model=facts.AskModel(choice, run.feedback, run.output, run.accepted, run.left))
        if self.phase == "checking":
            return facts.Todo(check_output=facts.CheckOutput(self.run.text, self.run.output or {}))
        return self.calls.todo()

    @property
    def open_calls(self) -> list[CallRecord]:
        """The calls of the current turn, settled or not."""
        return self.calls.records()

    @property
    def awaits_user(self) -> bool:
        """True if there is nothing for the model to answer: the history is empty, or ends with a model content."""
        last = self.conversation.last
        return last is None or (role_of(last) != "user" and not self.conversation.open_calls)

    def reply(self, session: str) -> Reply:
        """Return the result of the run so far."""
        run, finish = self.run, self.run.finish
        return Reply(
            text=run.text,
            calls=[call.replied() for call in run.records],
            usage=run.usage,
            finish_reason="approval_needed" if finish is None else finish.reason,
            history=self.conversation.history,
            session=session,
            turns=run.turn,
            limited=finish is not None and 1 < run.limits.turns == run.turn,
            approvals=[call.waiting() for call in self.calls.calls if call.state == "awaiting"],
            model=run.model,
            cost=run.known_cost,
            context_tokens=self.context_tokens,
            output=run.value,
            thoughts=run.thoughts,
            metadata=run.metadata,
            citations=run.citations,
            media=run.media,
            server_steps=run.server_steps,
        )

    @property
    def context_tokens(self) -> int:
        """About how many tokens the history has: by the rate of the last answer that counted them, else by its bytes."""
        return round(self.conversation.size_bytes * self._tokens_per_byte)

    def snapshot(self) -> JsonObject:
        """The whole state as plain data: equal snapshots behave alike."""
        run, calls = self.run, self.calls
        return {
            "phase": self.phase,
            "contents": self.conversation.contents,
            "tools": dict(self.tools),
            "names": dict(self.names),
            "always": dict(self.always),
            "requests": set(self.requests),
            "quarantined": list(self.quarantined),
            "spent": (self.usage, self.cost, self._tokens_per_byte),
            "open": [call.snapshot() for call in calls.calls],
            "cancelled": calls.cancelled,
            "run": {name: getattr(run, name) for name in _RUN_FIELDS if name != "records"},
            "records": [c.record() for c in run.records],
        }

    # Facts of the session -------------------------------------------------------------------------------------------------

    def _tools_known(self, fact: facts.ToolsKnown) -> None:
        self.tools, self.names = dict(fact.tools), dict(fact.names)
        self.calls.change_tools(lambda name: self.tools[name].digest if name in self.tools else None)

    def _history_given(self, fact: facts.HistoryGiven) -> None:
        self.drop_calls()
        self.conversation = Conversation(fact.contents)
        self.phase = "idle"

    def _ignored(self, fact: facts.Renamed | facts.ExchangeForgotten) -> None:
        """The title of a session, and who may name its exchanges, change nothing in it."""

    def _always_revoked(self, fact: facts.AlwaysRevoked) -> None:
        if fact.rule is None:
            self.always.clear()
        else:
            self.always.pop(fact.rule, None)

    def _nested_call(self, fact: facts.NestedCall) -> None:
        """Nested calls do not affect the conversation, except for session rules."""
        if fact.rule is not None:
            self.always[fact.rule.id] = fact.rule

    def _recovered(self, fact: facts.Recovered) -> None:
        self.calls.recover(lambda one: one.name in self.tools and self.tools[one.name].repeatable, fact.unknown or UNKNOWN)

    def _rewound(self, fact: facts.Rewound) -> None:
        self.calls, self.run, self.phase = CallBatch(), RunState(left=self.run.unanswered), "idle"
        if fact.contents is not None:
            self.conversation = Conversation(fact.contents)
        self.conversation.cut(fact.contents_kept)

    def _adopted(self, fact: facts.Adopted) -> None:
        self.always.clear()
        self.calls.adopt()
        self.run.accepted = self.run.left = None  # The answer that a server works on belongs to the other session.

    def _unreadable(self, fact: facts.Unreadable) -> None:
        self.quarantined.append(fact.problem)
        # It may have been the start of a call, or the end of a lasting answer.
        self.always.clear()
        self.calls.lose()

    # Facts of a run -------------------------------------------------------------------------------------------------------

    def _run_started(self, fact: facts.RunStarted) -> None:
        self.drop_calls()
        conversation = self.conversation
        if conversation.open_calls:
            conversation.add_responses([], missing=CANCELLED)
        self.run = RunState(
            limits=fact.limits,
            tool_choice=fact.tool_choice,
            start=len(conversation),
            output=fact.output,
            request=fact.request,
            left=self.run.unanswered,
        )
        if fact.request is not None:
            self.requests.add(fact.request)
        if fact.content is not None:
            conversation.add_journaled(fact.content)
        elif self.awaits_user:
            self._finish("nothing_to_do")
            return
        self._go_on()

    def _model_answered(self, fact: facts.ModelAnswered) -> None:
        if self.phase != "asking":
            return
        self._spend(fact.usage, fact.cost)
        self._measure(fact.usage)
        self.run.is_shortened, self.run.accepted, self.run.left = False, None, None
        if fact.finish_reason not in ASK_AGAIN:
            self.run.keep_extras(fact)
        usable = self._usable(fact)
        if usable is None:
            return
        content, calls, reason, text = usable
        run, was_limited = self.run, self.run.limited
        # An answer in another form is not another turn.
        run.turn += 0 if run.repairs and not calls else 1
        run.retries, run.feedback, run.text, run.model = 0, None, text, fact.model
        if run.output is not None and not calls and reason in RUNNABLE:
            run.held = PendingAnswer(content, fact.origin, run.wrap_up or reason, fact.finish_message)
            self.phase = "checking"
            return
        self.conversation.add_model(content, origin=fact.origin, is_plain=True)
        if not calls:
            self._finish(run.wrap_up or reason, message=fact.finish_message)
            return
        self.phase = "calling"
        self.calls = CallBatch(calls, parallel=run.limits.parallel, is_ordered=self._is_ordered)
        run.records += self.calls.calls
        self._refuse_beyond_limits(reason, was_limited)
        if reason == "MAX_TOKENS" and is_call(parts_of(content)[-1]):
            self._refuse_cut(self.calls.calls[-1])

    def _usable(self, fact: facts.ModelAnswered) -> tuple[Any, Sequence[FunctionCall], str, str] | None:
        """Return the content, calls, finish reason and text of an answer; None if it is requested again, or ends the run."""
        reason, content = fact.finish_reason, fact.content
        text = text_of(content)
        if reason in ASK_AGAIN:
            calls = self._salvage(fact.salvaged)
            if not calls:
                self._ask_again("malformed", reason, fact.finish_message)
                return None
            signatures = [SKIP_SIGNATURE] + [None] * (len(calls) - 1)
            salvaged = [call_part(call, signature=signed) for call, signed in zip(calls, signatures, strict=True)]
            return model_content(salvaged), calls, "STOP", ""
        if text or any(has_data(part) and not is_thought(part) for part in parts_of(content)):
            return content, fact.calls, reason, text
        if reason == "STOP":
            self._ask_again("empty", reason, fact.finish_message)
        else:
            self.run.turn += 1
            self._finish(reason, message=fact.finish_message)
        return None

    def _refuse_cut(self, call: TrackedCall) -> None:
        """Refuse truncated calls: the rest of a truncated call may look complete."""
        known = self._known(call.call)
        if not call.is_over and known is not None and not known.read_only:
            self.calls.settle(call, "failed", error=CUT)

    def _refuse_beyond_limits(self, reason: str, was_limited: bool) -> None:
        """Settle the calls of an answer that will not run."""
        run, calls = self.run, self.calls.calls
        run.end, sentence = refusal(run, reason, was_limited=was_limited)
        if sentence is not None:
            count_repeats(run, [call.call for call in calls])
            for call in calls:
                self.calls.settle(call, "failed", error=call.call.problem or sentence)
            return
        for call, error, limit in refusals(run, calls):
            run.wrap_up = limit or run.wrap_up
            self.calls.settle(call, "failed", error=error)

    def _output_checked(self, fact: facts.OutputChecked) -> None:
        run, held = self.run, self.run.held
        if self.phase != "checking" or held is None:
            return
        run.fits, run.value, run.problems = not fact.problems, fact.value, fact.problems
        spent = None if run.fits else self._spent()
        if run.fits or spent is not None or run.repairs >= run.limits.output_retries:
            self._accept_pending()
            self._finish(spent or held.reason, message=held.message if run.fits else "; ".join(fact.problems))
            return
        run.held = None
        run.repairs += 1
        run.feedback = output_feedback(fact.problems, run.text)
        self.phase = "asking"

    def _accept_pending(self) -> None:
        """Accept the pending answer, whether it fits or not."""
        held, self.run.held = self.run.held, None
        assert held is not None, "an answer is held as long as it is not checked"
        self.conversation.add_model(held.content, origin=held.origin, is_plain=True)

    def _history_shortened(self, fact: facts.HistoryShortened) -> None:
        run = self.run
        has_summary = self.conversation.apply(fact.steps, fact.summary)
        run.start = fact.steps.moved(run.start, has_summary=has_summary)
        run.is_shortened = True
        run.summaries += fact.summary is not None
        self._spend(fact.usage, fact.cost)
        if self.phase == "asking":
            self._go_on()

    def _model_lent(self, fact: facts.ModelLent) -> None:
        self._spend(fact.usage, fact.cost)

    def _model_accepted(self, fact: facts.ModelAccepted) -> None:
        if self.phase == "asking":
            self.run.accepted, self.run.left = fact, None

    def _model_failed(self, fact: facts.ModelFailed) -> None:
        if self.phase == "asking":
            self._finish("error", error="failed", message=fact.message)

    def _call_fact(self, fact: Any) -> None:
        self.calls.take_in(fact)

    def _approval_answered(self, fact: facts.ApprovalAnswered) -> None:
        call = self.calls.find(fact.id, "awaiting")
        if call is not None and fact.answer == "always":
            rule = rule_of(fact, call)
            self.always[rule.id] = rule
        self._call_fact(fact)

    def _cancelled(self, fact: facts.Cancelled) -> None:
        if self.phase == "asking":
            if fact.partial.strip():
                # The user has seen this much of the answer, and will speak of it.
                self.run.text = fact.partial
                self.conversation.add_model(model_content([text_part(fact.partial)]))
            self._finish("cancelled", message=fact.reason)
        elif self.phase == "checking":
            self._accept_pending()
            self._finish("cancelled", message=fact.reason)
        elif self.phase == "calling":
            self._call_fact(fact)
        elif self.phase == "done":
            # It arrived while the end was journalled, before that end was reported.
            self.run.fits, self.run.value = False, None
            self._finish("cancelled", message=fact.reason)

    # Steps ----------------------------------------------------------------------------------------------------------------

    def _close_turn(self) -> None:
        """End a turn with all calls settled: answer the model, and ask it again unless the run is over."""
        cancelled = self.calls.cancelled
        self._answer_calls()
        if cancelled is not None:
            self._finish("cancelled", message=cancelled)
        elif self.run.end is not None:
            self._finish(self.run.end)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Ask the model next, unless that exceeds a budget."""
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
        return spent_budget(self.run, self.usage, self.cost)

    def _measure(self, usage: Usage) -> None:
        """Measure how many tokens the model counts for the bytes of the history."""
        if usage.input_tokens:
            seen = usage.input_tokens / max(self.conversation.size_bytes, 1)
            self._tokens_per_byte = min(max(seen, TOKENS_PER_BYTE / 2), 1.0)

    def _shortening(self) -> facts.Shorten | None:
        """Return what to drop before the next request, so that the rest takes at most half of the limit."""
        most = self.run.limits.context_tokens
        if most is None or self.run.is_shortened or self.context_tokens <= most:
            return None
        bytes_max = int(most / self._tokens_per_byte)
        plan = self.conversation.plan_for(bytes_max, bytes_max // 2)
        return None if plan is None else facts.Shorten(plan, summarize=self.run.summaries < self.run.limits.turns)

    def _answer_calls(self) -> None:
        """Give the model all responses together, in call order."""
        chars = self.run.limits.output_chars
        reader = READ_RESULT if READ_RESULT in self.tools and self.tools[READ_RESULT].reader else None
        results = [(call.call, call.result) for call in self.calls.calls if call.result]
        self.conversation.add_responses(
            [to_function_response(call, result, output_chars=chars, reader=reader) for call, result in results]
        )
        self._settled += self.calls.drain()
        self.calls = CallBatch()

    def drop_calls(self) -> None:
        """Drop open calls when the user continues: each gets a response with what is known of it."""
        if self.calls.calls:
            self.calls.give_up()
            self._answer_calls()

    def _ask_again(self, error: Literal["malformed", "empty"], reason: str, message: str) -> None:
        run = self.run
        if run.retries >= run.limits.retries_malformed:
            self._finish(reason, error=error, message=message)
            return
        run.retries += 1
        wrong, advice = ASK_AGAIN[reason if error == "malformed" else ""]
        can_call = self.tools and self._tool_choice() != "none"
        feedback = f"{wrong} {advice if can_call else IN_TEXT}"
        run.feedback = f"{feedback} ({message[:500]})" if message else feedback
        self._go_on()

    def _salvage(self, salvaged: Sequence[FunctionCall]) -> tuple[FunctionCall, ...]:
        """Call read from text may run only if none of them can change anything."""
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
        # After a failed attempt, a model does better when its calls are constrained to the declarations.
        return "validated" if choice == "auto" and run.feedback is not None else choice

    def _finish(self, reason: str, *, error: Any = None, message: str = "") -> None:
        run = self.run
        self.phase, run.left, run.accepted = "done", run.unanswered, None
        if error is None and run.output is not None and not run.fits and reason not in ("cancelled", "nothing_to_do"):
            error = "output"
        if error is not None and reason == "STOP":  # The model's word for success.
            reason = "output_error" if error == "output" else "error"
        run.finish, run.feedback = facts.Finish(reason, error, message), None
        if len(self.conversation) == run.start + 1 and not self.conversation.is_model(-1):
            # No answer at all: the conversation is as it was before.
            self.conversation.cut(run.start)

    def _is_ordered(self, call: FunctionCall) -> bool:
        known = self._known(call)
        return known is not None and known.ordered

    def _known(self, call: FunctionCall) -> facts.KnownTool | None:
        name = call.name if call.name in self.tools else resolve_name(call.name, self.names)
        return None if name is None else self.tools.get(name)

    _HANDLERS: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        facts.ToolsKnown: _tools_known,
        facts.HistoryGiven: _history_given,
        facts.HistoryShortened: _history_shortened,
        facts.RunStarted: _run_started,
        facts.ModelAnswered: _model_answered,
        facts.ModelFailed: _model_failed,
        facts.ModelAccepted: _model_accepted,
        facts.ModelLent: _model_lent,
        facts.OutputChecked: _output_checked,
        facts.CallChecked: _call_fact,
        facts.CallDecided: _call_fact,
        facts.ApprovalAnswered: _approval_answered,
        facts.AlwaysRevoked: _always_revoked,
        facts.CallStarted: _call_fact,
        facts.CallEnded: _call_fact,
        facts.Cancelled: _cancelled,
        facts.Recovered: _recovered,
        facts.Rewound: _rewound,
        facts.Adopted: _adopted,
        facts.NestedCall: _nested_call,
        **dict.fromkeys((facts.Renamed, facts.ExchangeForgotten), _ignored),
        facts.Unreadable: _unreadable,
    }
