"""The loop under ten thousand random interleavings: whatever happens in whatever order, its promises hold.

Hypothesis draws a string of bytes; each byte chooses one of the things that may happen next. So a failure shrinks to the
shortest story that shows it.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.history import encoded as written
from callgate.history.repair import validate
from callgate.machine import codec, facts
from callgate.machine.machine import RunMachine
from callgate.testing import call_with, text, thought
from callgate.types import FINAL_STATES, CallRecord, Decision, FunctionCall, Limits, SessionRule, ToolResult

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))

TOOLS = {
    "look": facts.KnownTool(digest="1", read_only=True, repeatable=True),
    "send": facts.KnownTool(digest="2"),
    "save": facts.KnownTool(digest="3", ordered=True),
    "put": facts.KnownTool(digest="4", repeatable=True, ordered=True),
}
NAMES = ("look", "send", "save", "put", "default_api.send", "nope")
REASONS = ("STOP",) * 14 + ("MAX_TOKENS", "SAFETY", "NEW_REASON", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")


def known(generation: int) -> facts.ToolsKnown:
    tools = {name: replace(tool, digest=f"{tool.digest}.{generation}") for name, tool in TOOLS.items()}
    return facts.ToolsKnown(tools=tools, names={name: name for name in tools})


@pytest.fixture(scope="module", autouse=True)
def every_answer_is_read_again():
    """As long ones are in earnest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "HELD_BYTES_MAX", 0)
        yield


class World:
    """Everything around the loop, played by the bytes: the model, the tools, the user, and the end of the process."""

    def __init__(self, choices: bytes) -> None:
        self.choices = iter(choices)
        self.generation = 0
        self.loop = RunMachine()
        self.journal: list[bytes] = []
        self.made = 0
        self.nested = 0
        self.rules: set[str] = set()
        """Lasting answers about nested calls."""
        self.proposed: set[str] = set()
        self.settled: Counter[str] = Counter()
        self.starts: Counter[str] = Counter()
        self.checked: tuple[int, int, str | None] | None = None
        self.tell(known(0))

    def choose(self, options: int) -> int:
        return next(self.choices) % options

    # What may happen -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        disturbance = self.choose(32)
        if disturbance == 1:
            return self.crash()
        if disturbance == 2:
            return self.tell(facts.Cancelled(partial=("", "Half an ans")[self.choose(2)]))
        if disturbance == 3:
            return self.tell_something_late()
        if disturbance == 4:
            return self.damage()
        if disturbance == 5:
            return self.revoke()
        if self.loop.phase in ("idle", "done"):
            return self.begin()
        if self.loop.phase == "asking":
            return self.tell(facts.ModelFailed(message="down")) if self.choose(16) == 1 else self.answer()
        if self.loop.phase == "checking":
            problems = ((), ("n: wrong.",))[self.choose(2)]
            return self.tell(facts.OutputChecked(value=None if problems else {"n": 1}, problems=problems))
        return self.work()

    def begin(self) -> None:
        size = 1 + self.choose(12)
        limits = Limits(
            turns=size, calls=2 * size, calls_per_turn=2 + size, repeats=3, parallel=1 + size % 4, output_chars=200
        )
        content = {"role": "user", "parts": [text("Go.")]} if size % 6 else None
        tool_choice = ("auto", "required", "none")[size % 3]
        output = {"type": "object"} if self.choose(3) == 1 else None
        self.tell(facts.RunStarted(content=content, tool_choice=tool_choice, limits=limits, output=output))

    def answer(self) -> None:
        shape = self.choose(32)
        parts: list[Any] = [thought("hm")] if shape & 1 else []
        parts += [text("Well.")] if shape & 2 else []
        calls: list[FunctionCall] = []
        with_ids = self.choose(3)
        for _ in range(shape >> 2):
            self.made += 1
            wire_id = (None, f"w{self.made}", "same")[with_ids]
            kind = self.choose(60)
            name, args = NAMES[kind % len(NAMES)], {"n": kind % 2}
            problem = "Not JSON." if kind == 7 else None
            calls.append(FunctionCall(name=name, args=args, id=f"c{self.made}", wire_id=wire_id, problem=problem))
            parts.append(call_with(name, args, id=wire_id))
        self.made += 1
        salvaged = (FunctionCall(name=NAMES[shape % 2], id=f"c{self.made}"),) if shape & 4 else ()
        reason = REASONS[self.choose(len(REASONS))]
        content = {"role": "model", "parts": parts}
        self.tell(facts.ModelAnswered(content=content, calls=tuple(calls), finish_reason=reason, salvaged=salvaged))

    def work(self) -> None:
        todo = self.loop.todo()
        running = [record.call for record in self.loop.open_calls if record.state == "started"]
        options = [
            *[lambda c=c: self.check(c) for c in todo.check],
            *[lambda c=c: self.decide(c) for c in todo.decide],
            *[lambda a=a: self.approve(a.call) for a in todo.approve],
            *[lambda c=c: self.start(c) for c in todo.run],
            *[lambda c=c: self.end(c) for c in running],
            *[lambda c=c: self.call_from(c) for c in running],
        ]
        assert options, "calls are open, and there is nothing that could be done about it"
        options[self.choose(len(options))]()

    def check(self, call: FunctionCall) -> None:
        tool = call.name.removeprefix("default_api.")
        if tool not in self.loop.tools:
            return self.tell(facts.CallChecked(id=call.id, tool=None, args=call.args, problems=("There is none.",)))
        problems = ("n: wrong.",) if self.choose(8) == 1 else ()
        digest = self.loop.tools[tool].digest
        return self.tell(facts.CallChecked(id=call.id, tool=tool, args={"n": 1}, problems=problems, digest=digest))

    def decide(self, call: FunctionCall) -> None:
        verdict = ("allow", "allow", "ask", "deny")[self.choose(4)]
        args = {"n": 5} if call.id not in self.loop.calls.rewritten and self.choose(6) == 1 else None
        self.tell(facts.CallDecided(id=call.id, decision=Decision(verdict=verdict), args=args))  # pyright: ignore

    def approve(self, call: FunctionCall) -> None:
        answer = ("yes", "no", "always")[self.choose(3)]
        args = {"n": 7} if self.choose(3) == 1 else None
        self.tell(facts.ApprovalAnswered(id=call.id, answer=answer, args=args))  # pyright: ignore

    def start(self, call: FunctionCall) -> None:
        self.starts[call.id] += 1
        if self.starts[call.id] > 1:
            assert TOOLS[call.name].repeatable, f"{call.name} ran twice"
        if self.choose(9) == 1:
            # A limit, or a log that cannot be written, refuses at the last moment.
            self.starts[call.id] -= 1
            return self.tell(facts.CallDecided(id=call.id, decision=Decision(verdict="deny", by="limit")))
        return self.tell(facts.CallStarted(id=call.id))

    def end(self, call: FunctionCall) -> None:
        status = ("finished", "finished", "failed", "timed_out", "cancelled")[self.choose(5)]
        error = None if status == "finished" else "It went wrong."
        value = ("v", {"$ref": "x"}, "long" * 100)[self.choose(3)] if error is None else None
        result = ToolResult(call_id=call.id, name=call.name, status=status, value=value, error=error)  # pyright: ignore
        self.tell(facts.CallEnded(id=call.id, result=result))

    def call_from(self, parent: FunctionCall) -> None:
        """A running tool calls another one: journalled before that starts, when it is answered for good, and at its end."""
        self.nested += 1
        shape = self.choose(8)
        name = NAMES[shape % 4]
        fact = facts.NestedCall(parent=parent.id, id=f"{parent.id}.{self.nested}", name=name, args={"n": shape})
        before = self.unchanged_by_nested_calls()
        if shape & 1:
            rule = SessionRule(id=f"always-{fact.id}", tool=name, digest=self.loop.tools[name].digest)
            self.tell(replace(fact, rule=rule))
            self.rules.add(rule.id)
        if shape & 2:
            self.tell(fact)
        if shape & 4:
            result = ToolResult(call_id=fact.id, name=name, status="finished", value="nested")
            self.tell(replace(fact, result=result))
        assert self.unchanged_by_nested_calls() == before
        assert {rule for rule in self.loop.always if "." in rule} == self.rules

    def unchanged_by_nested_calls(self) -> Any:
        """The state but for lasting answers: the model and the run know nothing of what tools call."""
        return {name: value for name, value in self.loop.snapshot().items() if name != "always"}

    def damage(self) -> None:
        """A line of the journal cannot be read: nothing is taken for granted that it might have changed."""
        open_calls = [record for record in self.loop.open_calls if record.state not in FINAL_STATES]
        self.tell(codec.decode_line(b"{"))
        self.rules.clear()
        assert not self.loop.always
        assert not [record for record in self.loop.open_calls if record.state not in FINAL_STATES]
        lost = {record.call.id: record for record in self.loop.reply("s").calls}
        for record in open_calls:
            result = lost[record.call.id].result
            assert result is not None
            assert result.status == "unknown"

    def revoke(self) -> None:
        """Somebody takes back a lasting answer, or all of them."""
        rule = next(iter(self.loop.always), None) if self.choose(2) else None
        self.tell(facts.AlwaysRevoked(rule=rule))
        self.rules = {known for known in self.rules if rule is not None and known != rule}

    def tell_something_late(self) -> None:
        """What a slow network, a stuck thread or an old browser tab may still say."""
        call_id = f"c{self.choose(8)}"
        result = ToolResult(call_id=call_id, name="late", status="finished", value="late")
        open_ids = {r.call.id for r in self.loop.open_calls if r.state not in FINAL_STATES}
        late = [
            facts.CallEnded(id=call_id, result=result),
            facts.ApprovalAnswered(id=call_id, answer="yes"),
            facts.CallStarted(id=call_id),
            facts.CallDecided(id=call_id, decision=Decision(verdict="allow")),
            facts.OutputChecked(value={"n": 2}),
        ]
        if call_id not in open_ids and self.loop.phase != "checking":
            before = self.loop.snapshot()
            self.tell(late[self.choose(5)])
            assert self.loop.snapshot() == before

    def crash(self) -> None:
        """The process dies; another one reads the journal and takes over, perhaps with newer tools."""
        before = self.loop.snapshot()
        self.loop = RunMachine(map(codec.decode_line, self.journal))
        assert self.loop.snapshot() == before
        self.tell(facts.Recovered())
        if self.choose(3) == 1:
            self.generation += 1
            self.tell(known(self.generation))

    # What must hold --------------------------------------------------------------------------------------------------------

    def tell(self, fact: facts.Fact) -> None:
        self.journal.append(codec.encode(fact))
        settled = self.loop.apply(fact)
        if isinstance(fact, facts.ModelAnswered):
            self.proposed |= {record.call.id for record in self.loop.reply("s").calls}
        self.settled.update(record.call.id for record in settled)
        self.check_promises(settled)

    def check_promises(self, settled: list[CallRecord]) -> None:
        loop = self.loop
        assert all(record.result is not None and record.state in FINAL_STATES for record in settled)
        assert all(self.settled[record.call.id] == 1 for record in settled), "a call was settled twice"
        command = loop.todo().ask_model
        feedback = command.feedback if command is not None else None
        if (written := (len(loop.conversation), id(loop.conversation.last), feedback)) != self.checked:
            # The history is looked at whenever it, or what would be sent with it, has changed; most facts leave it alone.
            self.checked = written
            more = [{"role": "user", "parts": [text(feedback)]}] if feedback else []
            assert validate([*loop.conversation.contents, *more], sendable=command is not None) == []
            assert len(loop.conversation.encoded) == len(loop.conversation)
        assert (command is not None) == (loop.phase == "asking")
        if loop.phase == "done" and loop.run.output is not None:
            # A run with a type has a value, an error that says why not, or was stopped by a person.
            finish = loop.run.finish
            assert finish is not None
            stopped = finish.reason in ("cancelled", "nothing_to_do")
            assert loop.run.fits or finish.error is not None or stopped
            assert loop.run.repairs <= loop.run.limits.output_retries
        if loop.phase in ("done", "idle"):
            assert not loop.open_calls
            assert all(record.result is not None for record in loop.reply("s").calls)
            assert set(self.settled) >= {record.call.id for record in loop.reply("s").calls}
        started = [record for record in loop.open_calls if record.state == "started"]
        assert len(started) <= loop.run.limits.parallel
        assert sum(TOOLS[record.call.name].ordered for record in started) <= 1

    def ordered_calls_kept_their_order(self) -> None:
        """Nothing ordered is started while an earlier ordered call of the turn is still open."""
        calls = [r for r in self.loop.open_calls if r.call.name in TOOLS and TOOLS[r.call.name].ordered]
        states = [record.state in FINAL_STATES for record in calls]
        started = [index for index, record in enumerate(calls) if record.state == "started"]
        assert all(all(states[:index]) for index in started)


@pytest.mark.slow
@settings(max_examples=10_000 * SCALE)
@given(st.binary(min_size=80, max_size=400))
def test_every_interleaving_keeps_the_history_valid_and_every_call_answered_once(choices: bytes):
    world = World(choices)
    try:
        while True:
            world.step()
            world.ordered_calls_kept_their_order()
    except StopIteration:
        pass
    # Wherever the story stopped: reading the journal again gives the same state, and a new prompt ends everything open.
    assert RunMachine(map(codec.decode_line, world.journal)).snapshot() == world.loop.snapshot()
    world.tell(facts.RunStarted(content={"role": "user", "parts": [text("And now?")]}))
    assert validate(world.loop.conversation.contents, sendable=True) == []
    assert world.proposed == set(world.settled), "a call was never answered"
