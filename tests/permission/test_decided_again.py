"""A call that waited, or had not started, goes on by the policy that is in force then: the strictest of then and now."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel, tool
from callgate.errors import NotConfirmedError
from callgate.events import ApprovalNeeded, RunEnded
from callgate.permission import Answered, Hook, Rule
from callgate.testing import call
from callgate.types import CallRecord, FunctionCall

ASKS = Policy(default="ask")
BLOCKS = Hook(command=(sys.executable, "-c", "import sys; sys.exit('blocked' and 2)"), tool="pay")
REWRITES = "import json,sys; a=json.load(sys.stdin)['args']; a['to']+='!'; print(json.dumps({'args': a}))"
DENYING = {
    "by arguments": Policy(default="ask", rules=[Rule(verdict="deny", tool="pay", args={"to": "evil"})]),
    "by a pattern": Policy(default="ask", rules=[Rule(verdict="deny", tool="pay", patterns={"to": "e.*"})]),
    "by a path": Policy(default="ask", rules=[Rule(verdict="deny", tool="pay", paths=["evil"])]),
    "by a hook": Policy(default="ask", hooks=(BLOCKS,)),
    "by default": Policy(default="deny"),
    "in an allowing policy": Policy(default="allow", rules=[Rule(verdict="deny", tool="pay", args={"to": "evil"})]),
}


async def later(*_: Any) -> Any:
    return "later"


async def yes(*_: Any) -> Any:
    return "yes"


class Payments:
    """A tool, and what it did."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def gate(self, *script: Any, **options: Any) -> Gate:
        def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            return "paid"

        return Gate(ScriptedModel(list(script)), [pay], **options)


@pytest.fixture
def payments() -> Payments:
    return Payments()


def run(work: Callable[[], Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await work()

    return asyncio.run(bounded())


async def paused(payments: Payments, store: str, policy: Policy = ASKS) -> str:
    """A session whose only call waits for its answer; returns the id of the call."""
    gate = payments.gate(call("pay", to="evil"), policy=policy, approve=later, store=store)
    return (await gate.run("x", session="s")).approvals[0].call.id


def state(reply: Any) -> str:
    record: CallRecord[Any] = reply.calls[0]
    return record.state


@pytest.mark.parametrize("how", ["yes", "always"])
@pytest.mark.parametrize("policy", DENYING.values(), ids=DENYING)
def test_an_approval_never_answers_a_deny_of_the_policy_in_force(
    payments: Payments, tmp_path: Path, policy: Policy, how: Any
) -> None:
    async def story() -> Any:
        call_id = await paused(payments, f"{tmp_path}/s.db")
        gate = payments.gate("ok", policy=policy, approve=later, store=f"{tmp_path}/s.db")
        return await gate.run(session="s", answers={call_id: how})

    assert (state(run(story)), payments.paid) == ("denied", [])


@pytest.mark.parametrize("policy", DENYING.values(), ids=DENYING)
def test_a_waiting_call_that_is_denied_now_is_not_asked_about_again(
    payments: Payments, tmp_path: Path, policy: Policy
) -> None:
    async def story() -> Any:
        await paused(payments, f"{tmp_path}/s.db")
        return await payments.gate("ok", policy=policy, approve=yes, store=f"{tmp_path}/s.db").run(session="s")

    assert (state(run(story)), payments.paid) == ("denied", [])


@pytest.mark.parametrize("records", ["calls", "approvals"])
def test_what_a_program_changes_in_a_reply_that_waits_does_not_run(payments: Payments, records: str) -> None:
    async def story() -> Any:
        gate = payments.gate(call("pay", to="Ada"), "ok", policy=ASKS, approve=later)
        waiting = getattr(await gate.run("x", session="s"), records)[0].call
        waiting.args["to"] = "evil"
        return await gate.run(session="s", answers={waiting.id: "yes"})

    assert (state(run(story)), payments.paid) == ("finished", ["Ada"])


def test_a_copy_of_the_gate_with_another_policy_decides_by_its_own(payments: Payments) -> None:
    async def story() -> Any:
        gate = payments.gate(call("pay", to="evil"), "ok", policy=ASKS, approve=later)
        waiting = (await gate.run("x", session="s")).approvals[0].call.id
        strict = gate.with_options(policy=DENYING["by arguments"])
        return await strict.run(session="s", answers={waiting: "yes"})

    assert (state(run(story)), payments.paid) == ("denied", [])


@pytest.mark.parametrize("approve", [later, None], ids=["an approver", "no approver"])
def test_an_approval_answers_what_is_asked_now(payments: Payments, tmp_path: Path, approve: Any) -> None:
    async def story() -> Any:
        call_id = await paused(payments, f"{tmp_path}/s.db")
        policy = Policy(rules=[Rule(verdict="ask", tool="pay", args={"to": "evil"})])
        gate = payments.gate("ok", policy=policy, approve=approve, store=f"{tmp_path}/s.db")
        return await gate.run(session="s", answers={call_id: "yes"})

    assert (state(run(story)), payments.paid) == ("finished", ["evil"])


@pytest.mark.parametrize(
    ("approve", "expected"), [(yes, ("finished", ["evil"])), (None, ("denied", [])), (later, ("awaiting", []))]
)
def test_a_question_is_not_taken_back_by_a_laxer_policy(
    payments: Payments, tmp_path: Path, approve: Any, expected: Any
) -> None:
    async def story() -> Any:
        await paused(payments, f"{tmp_path}/s.db")
        gate = payments.gate("ok", policy=Policy(default="allow"), approve=approve, store=f"{tmp_path}/s.db")
        return await gate.run(session="s")

    assert (state(run(story)), payments.paid) == expected


CONFIRMED = Policy(rules=[Rule(verdict="ask", tool="pay", confirm="to")])
BY_TOOL = Policy(rules=[Rule(verdict="ask", tool="pay", confirm="nothing")])
LATER = {
    "asks": (ASKS, "evil"),
    "allows": (Policy(default="allow"), "evil"),
    "yolo": (Policy(mode="yolo"), "evil"),
    "the same": (CONFIRMED, "evil"),
    "another text": (BY_TOOL, "evil pay"),
}


@pytest.mark.parametrize(("policy", "text"), LATER.values(), ids=LATER)
def test_a_confirmation_is_not_taken_back_by_a_laxer_policy(
    payments: Payments, tmp_path: Path, policy: Policy, text: str
) -> None:
    async def story() -> str:
        call_id = await paused(payments, f"{tmp_path}/s.db", CONFIRMED)
        gate = payments.gate("ok", policy=policy, approve=later, store=f"{tmp_path}/s.db")
        for answer in ("yes", "always", Answered(answer="yes", confirm=text.upper()), FunctionCall(name="pay", args={})):
            with pytest.raises(NotConfirmedError, match="is not confirmed"):
                await gate.run(session="s", answers={call_id: answer})
        assert payments.paid == []
        return state(await gate.run(session="s", answers={call_id: Answered(answer="yes", confirm=text)}))

    assert (run(story), payments.paid) == ("finished", ["evil"])


@pytest.mark.parametrize(("policy", "text"), LATER.values(), ids=LATER)
def test_an_approver_that_is_asked_again_by_another_policy_is_shown_the_text_and_must_repeat_it(
    payments: Payments, tmp_path: Path, policy: Policy, text: str
) -> None:
    async def story(answer: Any) -> tuple[str, str]:
        async def approve(*_: Any) -> Any:
            return answer

        gate = payments.gate("ok", policy=policy, approve=approve, store=f"{tmp_path}/s.db")
        events = [event async for event in gate.stream(session="s")]
        (asked,) = [event.confirm for event in events if isinstance(event, ApprovalNeeded)]
        return asked, state(events[-1].reply) if isinstance(events[-1], RunEnded) else ""

    run(lambda: paused(payments, f"{tmp_path}/s.db", CONFIRMED))
    assert run(lambda: story(Answered(answer="yes", confirm=text))) == (text, "finished")
    assert payments.paid == ["evil"]


def test_other_arguments_are_confirmed_by_their_own_text_or_by_the_one_that_was_asked_for(
    payments: Payments, tmp_path: Path
) -> None:
    async def story(policy: Policy, confirm: str) -> None:
        store = f"{tmp_path}/{len(payments.paid)}.db"
        call_id = await paused(payments, store, CONFIRMED)
        gate = payments.gate("ok", policy=policy, approve=later, store=store)
        edited = {"to": "good"}
        with pytest.raises(NotConfirmedError):
            await gate.run(session="s", answers={call_id: Answered(answer="yes", args=edited)})
        await gate.run(session="s", answers={call_id: Answered(answer="yes", args=edited, confirm=confirm)})

    run(lambda: story(CONFIRMED, "good"))
    run(lambda: story(Policy(default="allow"), "evil"))
    assert payments.paid == ["good", "good"]


def test_a_call_whose_answer_is_put_off_again_goes_on_waiting_without_an_approver(
    payments: Payments, tmp_path: Path
) -> None:
    async def story() -> Any:
        call_id = await paused(payments, f"{tmp_path}/s.db")
        gate = payments.gate("ok", policy=ASKS, store=f"{tmp_path}/s.db")
        return await gate.run(session="s", answers={call_id: "later"})

    assert (state(run(story)), payments.paid) == ("awaiting", [])


def test_hooks_of_an_answered_call_are_heard_again_but_change_arguments_once(payments: Payments, tmp_path: Path) -> None:
    hook = Hook(command=(sys.executable, "-c", REWRITES), tool="pay", may_rewrite=True)
    policy = Policy(default="ask", hooks=(hook,))
    notices: list[str] = []

    async def story() -> Any:
        call_id = await paused(payments, f"{tmp_path}/s.db", policy)
        gate = payments.gate("ok", policy=policy, approve=later, store=f"{tmp_path}/s.db")
        async for event in gate.stream(session="s", answers={call_id: "yes"}):
            notices.append(getattr(event, "message", ""))
            if isinstance(event, RunEnded):
                return event.reply

    assert (state(run(story)), payments.paid) == ("finished", ["evil!"])
    assert "Hooks would change the arguments of 'pay' again; they may only once." in notices


def test_arguments_that_a_new_hook_changes_are_asked_about_again(payments: Payments, tmp_path: Path) -> None:
    hook = Hook(command=(sys.executable, "-c", REWRITES), tool="pay", may_rewrite=True)
    asked: list[FunctionCall] = []

    async def see(about: FunctionCall, *_: Any) -> Any:
        asked.append(about)
        return "no"

    async def story() -> Any:
        call_id = await paused(payments, f"{tmp_path}/s.db")
        policy = Policy(default="ask", hooks=(hook,))
        gate = payments.gate("ok", policy=policy, approve=see, store=f"{tmp_path}/s.db")
        return await gate.run(session="s", answers={call_id: "yes"})

    assert (state(run(story)), payments.paid) == ("denied", [])
    assert [dict(one.args) for one in asked] == [{"to": "evil!"}]


class Died(Exception):  # noqa: N818 - as a name of what happened
    pass


@pytest.mark.parametrize(
    ("policy", "approve", "expected"),
    [
        (DENYING["by arguments"], yes, "denied"),
        (DENYING["by a hook"], yes, "denied"),
        (Policy(rules=["ask pay"]), None, "denied"),
        (Policy(rules=["ask pay"]), later, "awaiting"),
        (Policy(rules=["ask pay"]), yes, "finished"),
        (Policy(), None, "finished"),
    ],
)
def test_a_call_that_had_not_started_when_its_process_died_is_decided_again(
    tmp_path: Path, policy: Policy, approve: Any, expected: str
) -> None:
    paid: list[str] = []
    started = asyncio.Event()

    @tool(sequential=True, idempotent=True)
    async def wait() -> str:
        """Wait."""
        if not started.is_set():
            started.set()
            await asyncio.Event().wait()
        return "waited"

    @tool(sequential=True)
    async def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return "paid"

    async def story() -> Any:
        store = f"{tmp_path}/s.db"
        gate = Gate(ScriptedModel([[call("wait"), call("pay", to="evil")]]), [wait, pay], policy=Policy(), store=store)
        work = asyncio.create_task(gate.run("x", session="s"))
        await started.wait()
        gate.interrupt("s", Died())
        with pytest.raises(Died):
            await work
        allowing = Policy.strictest(policy, Policy(rules=["allow wait"]))
        gate = Gate(ScriptedModel(["ok"]), [wait, pay], policy=allowing, approve=approve, store=store)
        return {record.call.name: record.state for record in (await gate.run(session="s")).calls}

    assert run(story)["pay"] == expected
    assert paid == (["evil"] if expected == "finished" else [])
