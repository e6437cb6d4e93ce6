"""Approval as runs of a gate see it: lasting answers, previews, changed tools, and everything together."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callgate import Executor, FunctionCall, Gate, Policy, ScriptedModel, ToolContext, ToolDefinition, sessions
from callgate.events import ApprovalNeeded, CallStarted
from callgate.permission import Answered, Rule
from callgate.permission.guard import CallGuard, Guard
from callgate.permission.rates import Rate, RateLimits
from callgate.store import MemoryStore
from callgate.testing import call
from callgate.tools.precheck import PREVIEW_CHARS_MAX
from callgate.types import CallRecord


def run(work: Coroutine[Any, Any, Any], seconds: float = 30) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


class Save:
    definition = ToolDefinition(name="save", kind="file", input_schema={"type": "object"})

    def __init__(self, **fields: Any) -> None:
        self.definition = replace(self.definition, **fields)
        self.ran: list[Any] = []

    def problems(self, args: Any) -> list[str]:
        return []

    async def run(self, args: Any, context: ToolContext) -> object:
        self.ran.append(dict(args))
        return "saved"


class Asked:
    def __init__(self, *answers: Any) -> None:
        self.answers = iter(answers)
        self.calls: list[Any] = []

    async def __call__(self, call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        self.calls.append(dict(call.args))
        return next(self.answers)


def test_always_covers_the_folder_and_can_be_listed_and_revoked():
    tool, asked, store = Save(), Asked("always", "no", "no"), MemoryStore()

    async def story() -> None:
        script = [
            call("save", path="src/a"),
            call("save", path="src/b"),
            call("save", path="docs/c"),
            "ok",
            call("save", path="src/d"),
            "ok",
        ]
        gate = Gate(ScriptedModel(script), [tool], approve=asked, store=store)
        first = await gate.run("Go", session="s")
        (rule,) = await gate.session_rules("s")
        assert (rule.tool, rule.paths, rule.id) == ("save", ("/src/**",), f"always-{first.calls[0].call.id}")
        assert first.calls[1].decision is not None
        assert (first.calls[1].decision.verdict, first.calls[1].decision.by) == ("allow", "user")
        other = Gate(ScriptedModel([]), [tool], store=store)
        assert await other.session_rules("s") == [rule], "it is in the journal"
        assert await gate.revoke("s", "no such rule") == 0
        assert await gate.revoke("s", rule.id) == 1
        assert await gate.revoke("s") == 0
        await gate.run("Again", session="s")

    run(story())
    assert asked.calls == [{"path": "src/a"}, {"path": "docs/c"}, {"path": "src/d"}]
    assert tool.ran == [{"path": "src/a"}, {"path": "src/b"}]


def test_what_is_revoked_while_a_run_is_under_way_is_asked_about_at_once():
    tool = Save()
    gate: Gate

    async def approve(asked: FunctionCall, *_: Any) -> str:
        return "always" if not tool.ran else "no"

    class Revoking(Save):
        async def run(self, args: Any, context: ToolContext) -> object:
            assert await gate.revoke("s") == 1
            return "revoked"

    script = [call("save", path="a"), call("take_back"), call("save", path="b"), "ok"]
    gate = Gate(ScriptedModel(script), [tool, Revoking(name="take_back", read_only=True)], approve=approve)  # pyright: ignore
    reply = run(gate.run("Go", session="s"))
    assert [record.state for record in reply.calls] == ["finished", "finished", "denied"]


def test_always_for_a_sensitive_file_is_yes_once():
    tool, asked = Save(), Asked("always", "no")
    script = [call("save", path=".env"), call("save", path=".env"), "ok"]

    async def story() -> None:
        gate = Gate(ScriptedModel(script), [tool], approve=asked)
        await gate.run("Go", session="s")
        assert await gate.session_rules("s") == []

    run(story())
    assert (len(asked.calls), len(tool.ran)) == (2, 1)


def test_a_tool_that_changed_since_it_was_allowed_for_good_is_asked_about_again():
    asked, store = Asked("always", "no"), MemoryStore()
    before = Save(kind="mcp", server="web", description="Saves.")
    run(Gate(ScriptedModel([call("save"), "ok"]), [before], approve=asked, store=store).run("Go", session="s"))
    after = Save(kind="mcp", server="web", description="Saves, and sends a copy elsewhere.")
    run(Gate(ScriptedModel([call("save"), "ok"]), [after], approve=asked, store=store).run("Go", session="s"))
    assert (len(before.ran), len(after.ran), len(asked.calls)) == (1, 0, 2)


def test_an_answer_that_comes_later_may_be_always():
    tool, store = Save(), MemoryStore()

    async def story() -> None:
        gate = Gate(
            ScriptedModel([call("save", path="a"), call("save", path="b"), "ok"]),
            [tool],
            approve=Asked("later"),
            store=store,
        )
        paused = await gate.run("Go", session="s")
        await gate.run(session="s", answers={paused.approvals[0].call.id: "always"})

    run(story())
    assert tool.ran == [{"path": "a"}, {"path": "b"}]


# --- previews ------------------------------------------------------------------------------------------------------------


def previewed(preview: Any) -> ApprovalNeeded:
    class Previewing(Save):
        async def preview(self, args: Any) -> Any:
            return await preview(args)

    async def story() -> Any:
        gate = Gate(ScriptedModel([call("save", path="a"), "ok"]), [Previewing()], approve=Asked("no"))
        return [event async for event in gate.stream("Go") if isinstance(event, ApprovalNeeded)]

    (event,) = run(story())
    return event


def test_whoever_is_asked_is_shown_what_the_call_would_change():
    async def diff(args: Any) -> str:
        return f"--- a/{args['path']}\n+++ b/{args['path']}\ud800"

    assert previewed(diff).preview == "--- a/a\n+++ b/a\ufffd"


def test_a_preview_that_fails_hangs_or_is_endless_does_not_keep_anybody_from_being_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def broken(args: Any) -> str:
        raise RuntimeError("no disk")

    async def endless(args: Any) -> str:
        await asyncio.sleep(600)
        return ""

    async def large(args: Any) -> str:
        return "x" * (PREVIEW_CHARS_MAX + 5)

    async def nothing(args: Any) -> None:
        return None

    monkeypatch.setattr("callgate.tools.precheck.PREVIEW_S", 0.01)
    with caplog.at_level(logging.CRITICAL, "callgate"):
        assert previewed(broken).preview is None
        assert previewed(endless).preview is None
    assert previewed(nothing).preview is None
    cut = previewed(large).preview
    assert cut is not None
    assert cut.endswith("x\n... 5 more characters are not shown")


def test_what_a_person_agreed_to_is_kept_with_the_call_as_it_ran():
    class Previewing(Save):
        async def preview(self, args: Any) -> str:
            return f"+{args['path']}"

    async def story() -> Any:
        script = [call("save", path=name) for name in ("a", "b", "c", "d")]
        model = ScriptedModel([item for one in script for item in (one, "ok")])
        asked = Asked("yes", Answered(answer="yes", args={"path": "edited"}), "no", "later")
        gate = Gate(model, [Previewing()], approve=asked)
        started: list[str | None] = []
        for _ in range(4):
            started += [event.preview async for event in gate.stream("Go", session="s") if isinstance(event, CallStarted)]
        (waiting,) = (await sessions.load(gate.store, "s")).reply.approvals
        await gate.run(None, session="s", answers={waiting.call.id: "yes"})
        return started, [record.preview for record in sessions.replayed(await gate.store.load("s")).settled]

    assert run(story()) == (["+a", "+edited"], ["+a", "+edited", None, "+d"])


def test_a_call_that_nobody_was_asked_about_has_no_preview():
    class Previewing(Save):
        async def preview(self, args: Any) -> str:
            raise AssertionError("not called")

    async def story() -> Any:
        gate = Gate(ScriptedModel([call("save", path="a"), "ok"]), [Previewing()], policy=Policy(mode="yolo"))
        return [record.preview for record in (await gate.run("Go")).calls]

    assert run(story()) == [None]


# --- all together --------------------------------------------------------------------------------------------------------


def test_a_tool_without_a_preview_is_asked_about_without_one():
    async def story() -> Any:
        gate = Gate(ScriptedModel([call("save"), "ok"]), [Save()], approve=Asked("no"))
        return [event.preview async for event in gate.stream("Go") if isinstance(event, ApprovalNeeded)]

    assert run(story()) == [None]


def test_an_edit_that_a_rule_denies_does_not_run():
    tool = Save()

    async def approve(asked: FunctionCall, *_: Any) -> FunctionCall:
        return replace(asked, args={"path": "vendor/x"})

    policy = Policy(rules=[Rule(verdict="deny", paths=("vendor/",))])
    gate = Gate(ScriptedModel([call("save", path="a"), "ok"]), [tool], approve=approve, policy=policy)
    reply = run(gate.run("Go"))
    assert (tool.ran, reply.calls[0].state, gate.policy) == ([], "denied", policy)


def test_an_answer_with_a_call_of_another_tool_runs_neither():
    tool = Save()

    async def approve(asked: FunctionCall, *_: Any) -> FunctionCall:
        return replace(asked, name="look")

    reply = run(Gate(ScriptedModel([call("save", path="a"), "ok"]), [tool], approve=approve).run("Go"))
    assert (tool.ran, reply.calls[0].state) == ([], "denied")


def test_a_denied_tool_is_not_declared_and_still_cannot_be_called():
    tool = Save()
    model = ScriptedModel([call("save", path="a"), "ok"])
    gate = Gate(model, [tool], policy=Policy(rules=["deny save"]))
    reply = run(gate.run("Go"))
    assert (gate.definitions, model.requests[0].tools, tool.ran) == ([], [], [])
    assert reply.calls[0].state == "denied"


def test_an_answer_can_have_words_that_the_model_is_told_and_other_arguments():
    tool = Save()
    answers = (
        Answered(answer="no", message="The folder is locked."),
        Answered(answer="yes", args={"path": "b"}),
        Answered(answer="yes", message="That is fine."),
    )
    script = [[call("save", path="a"), call("save", path="a"), call("save", path="c")], "Done."]
    gate = Gate(ScriptedModel(script), [tool], approve=Asked(*answers))
    refused, moved, plain = run(gate.run("Go.")).calls
    assert refused.result.error == "The user did not allow this call. The folder is locked."
    assert (moved.call.args, moved.edited) == ({"path": "b"}, True)
    assert (plain.edited, plain.decision.reason) == (False, "That is fine.")
    assert tool.ran == [{"path": "b"}, {"path": "c"}]


def test_other_arguments_go_with_a_yes_alone():
    tool = Save()
    approve = Asked(Answered(answer="always", args={"path": "b"}))
    (record,) = run(Gate(ScriptedModel([call("save", path="a"), "Done."]), [tool], approve=approve).run("Go.")).calls
    assert (record.state, tool.ran) == ("denied", [])


def test_a_tool_that_is_not_there_any_more_is_denied() -> None:
    guard = Guard(tools=Executor([]), policy=Policy())
    decision = guard.verdict(FunctionCall(name="gone", id="a"), ())
    assert (decision.verdict, decision.reason) == ("deny", "The tool 'gone' is not there any more.")


def test_another_policy_and_another_tool_count_from_the_next_call_on() -> None:
    tools = Executor([Save()])
    guard = Guard(tools=tools, policy=Policy(rules=["allow save", Rule(verdict="deny", read_only=True)]))
    asked = FunctionCall(name="save", id="a")
    assert guard.verdict(asked, ()).verdict == "allow"
    tools.replace(Save(read_only=True))
    assert guard.verdict(asked, ()).verdict == "deny"
    guard.policy = Policy(rules=["allow save"])
    assert guard.verdict(asked, ()).verdict == "allow"
    guard.policy = Policy(rules=["deny save"])
    assert guard.verdict(asked, ()).verdict == "deny"


def test_the_audit_log_names_a_tool_of_two_servers_as_its_server_does_and_as_the_model_does(tmp_path: Path) -> None:
    shared = Save(name="web__save", alias_of="save", kind="mcp", server="web")
    gate = Gate(
        ScriptedModel([call("web__save"), "ok"]),
        [shared],
        approve=Asked(Answered(answer="yes", by="Ann")),
        audit=tmp_path / "audit.jsonl",
    )
    run(gate.run("Go"))
    records = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()]
    start = next(record for record in records if record.get("kind") == "start")
    assert (start["tool"], start["server"], start["alias"]) == ("save", "web", "web__save")
    assert start["decision"]["approver"] == "Ann"


def test_a_run_that_is_over_leaves_its_places_to_others() -> None:
    async def story() -> list[bool]:
        guard = Guard(tools=Executor([Save()]), policy=Policy(), rates=RateLimits(tools={"save": Rate(concurrent=1)}))
        first, second = (CallGuard(guard, name, lambda: None) for name in "ab")
        records = [CallRecord(call=FunctionCall(name="save", id=name), state="allowed") for name in "ab"]
        begun = [bool((await first.admit(records[:1]))[0]), bool((await second.admit(records[1:]))[0])]
        first.close()
        return [*begun, bool((await second.admit(records[1:]))[0])]

    assert run(story()) == [True, False, True]
