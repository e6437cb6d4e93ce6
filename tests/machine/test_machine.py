"""The loop as a state machine: facts in, commands out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from callgate.history.repair import validate
from callgate.machine import facts
from callgate.machine.machine import RunMachine
from callgate.testing import call, call_with, text, thought
from callgate.types import Decision, FunctionCall, Limits, SessionRule, ToolResult, Usage

TOOLS = {
    "look": facts.KnownTool(digest="d1", read_only=True, repeatable=True),
    "send": facts.KnownTool(digest="d2"),
    "save": facts.KnownTool(digest="d3", ordered=True),
    "put": facts.KnownTool(digest="d4", repeatable=True),
}
KNOWN = facts.ToolsKnown(tools=TOOLS, names={name: name for name in TOOLS})
ALLOW = Decision(verdict="allow")
ASK = Decision(verdict="ask", reason="It writes.")


def started(**options: Any) -> RunMachine:
    limits = Limits(**{key: options.pop(key) for key in list(options) if key in Limits.__slots__})
    content = {"role": "user", "parts": [text("Go.")]}
    return RunMachine([KNOWN, facts.RunStarted(content=content, limits=limits, **options)])


def answered(*names: str, reason: str = "STOP", said: str = "", args: dict[str, Any] | None = None) -> facts.ModelAnswered:
    """An answer with one call per name; ids are the names."""
    calls = tuple(FunctionCall(name=name, id=f"{name}{i}", args=args or {"i": i}) for i, name in enumerate(names))
    parts = ([text(said)] if said else []) + [call_with(c.name, dict(c.args)) for c in calls]
    return facts.ModelAnswered(content={"role": "model", "parts": parts}, calls=calls, finish_reason=reason)


def checked(loop: RunMachine, call_id: str, **fields: Any) -> list[Any]:
    found = next(record.call for record in loop.open_calls if record.call.id == call_id)
    known = loop.tools.get(found.name)
    fact = facts.CallChecked(id=call_id, tool=found.name, args=found.args, digest=known.digest if known else "")
    return loop.apply(replace(fact, **fields))


def allowed(loop: RunMachine, *call_ids: str) -> None:
    for call_id in call_ids:
        checked(loop, call_id)
        loop.apply(facts.CallDecided(id=call_id, decision=ALLOW))


def done(call_id: str, value: Any = 1, status: str = "finished", error: str | None = None) -> facts.CallEnded:
    result = ToolResult(call_id=call_id, name=call_id[:-1], status=status, value=value, error=error)  # pyright: ignore
    return facts.CallEnded(id=call_id, result=result)


def run_call(loop: RunMachine, call_id: str) -> None:
    loop.apply(facts.CallStarted(id=call_id))
    loop.apply(done(call_id))


def responses(loop: RunMachine) -> list[dict[str, Any]]:
    return [part["functionResponse"]["response"] for part in loop.conversation.contents[-1]["parts"]]


# A run ------------------------------------------------------------------------------------------------------------------


def test_a_prompt_asks_the_model():
    assert started().todo() == facts.Todo(ask_model=facts.AskModel("auto"))


def test_a_text_answer_finishes_the_run():
    loop = started()
    loop.apply(replace(answered(said="Done."), usage=Usage(total_tokens=7)))
    assert loop.todo() == facts.Todo(finish=facts.Finish("STOP"))
    reply = loop.reply("s")
    assert (reply.text, reply.ok, reply.usage.total_tokens, reply.turns, reply.session) == ("Done.", True, 7, 1, "s")


def test_a_call_is_checked_then_decided_then_run_then_answered():
    loop = started()
    loop.apply(answered("send"))
    proposed = loop.open_calls[0].call
    assert loop.todo() == facts.Todo(check=(proposed,))
    checked(loop, "send0", args={"i": 9}, coercions=("i was read as 9",))
    ready = replace(proposed, args={"i": 9}, notes=("i was read as 9",))
    assert loop.todo() == facts.Todo(decide=(ready,))
    loop.apply(facts.CallDecided(id="send0", decision=ALLOW))
    assert loop.todo() == facts.Todo(run=(ready,))
    loop.apply(facts.CallStarted(id="send0"))
    assert loop.todo() == facts.Todo()
    settled = loop.apply(done("send0", "sent"))
    assert [(r.call, r.state, r.decision) for r in settled] == [(ready, "finished", ALLOW)]
    assert responses(loop) == [{"result": "sent"}]
    assert loop.todo() == facts.Todo(ask_model=facts.AskModel("auto"))


def test_the_model_content_is_kept_as_it_came_when_arguments_were_coerced():
    loop = started()
    loop.apply(answered("send", args={"n": "5"}))
    checked(loop, "send0", args={"n": 5})
    assert loop.conversation.contents[-1]["parts"] == [call("send", n="5")]


def test_all_responses_go_back_in_one_content_in_call_order():
    loop = started()
    loop.apply(answered("look", "send", "put"))
    allowed(loop, "look0", "send1", "put2")
    for call_id in ("look0", "send1", "put2"):
        loop.apply(facts.CallStarted(id=call_id))
    for call_id in ("put2", "look0", "send1"):
        loop.apply(done(call_id, call_id))
    assert responses(loop) == [{"result": "look0"}, {"result": "send1"}, {"result": "put2"}]


def test_equal_facts_lead_to_equal_snapshots_and_another_one_to_another():
    one, other = started(), started()
    for loop in (one, other):
        loop.apply(answered("send"))
    assert one.snapshot() == other.snapshot()
    allowed(one, "send0")
    assert one.snapshot() != other.snapshot()


def test_an_answer_after_the_run_is_over_changes_nothing():
    loop = started()
    loop.apply(answered(said="Done."))
    before = loop.snapshot()
    for late in (answered("send"), facts.ModelFailed(message="x"), done("send0"), facts.CallStarted(id="send0")):
        loop.apply(late)
    loop.apply(facts.CallDecided(id="send0", decision=ALLOW))
    loop.apply(facts.ApprovalAnswered(id="send0", answer="yes"))
    loop.apply(facts.CallChecked(id="send0", tool="send", args={}))
    assert loop.snapshot() == before


def test_going_on_without_a_prompt_needs_something_to_go_on_with():
    loop = RunMachine([facts.RunStarted(content=None)])
    assert loop.todo().finish == facts.Finish("nothing_to_do")


def test_going_on_without_a_prompt_asks_again_after_responses():
    loop = started()
    loop.apply(answered("send"))
    allowed(loop, "send0")
    run_call(loop, "send0")
    loop.apply(facts.ModelFailed(message="down"))
    loop.apply(facts.RunStarted(content=None))
    assert loop.todo() == facts.Todo(ask_model=facts.AskModel("auto"))


def test_a_run_that_fails_before_any_answer_leaves_the_conversation_as_it_was():
    loop = started()
    loop.apply(facts.ModelFailed(message="down"))
    assert loop.todo().finish == facts.Finish("error", "failed", "down")
    assert loop.conversation.contents == []


def test_a_given_history_replaces_the_conversation_and_its_open_call_is_answered_by_the_next_prompt():
    loop = started()
    loop.apply(answered("send"))
    loop.apply(
        facts.HistoryGiven(contents=[{"role": "user", "parts": [text("A")]}, {"role": "model", "parts": [call("x")]}])
    )
    assert loop.phase == "idle"
    loop.apply(facts.RunStarted(content={"role": "user", "parts": [text("B")]}))
    assert validate(loop.conversation.contents, sendable=True) == []
    assert [c["role"] for c in loop.conversation.contents] == ["user", "model", "user", "user"]
    loop.apply(facts.ModelFailed(message="down"))
    assert len(loop.conversation) == 3


# Tool choice ------------------------------------------------------------------------------------------------------------


def test_a_required_call_holds_for_the_first_request_only():
    loop = started(tool_choice="required")
    assert loop.todo().ask_model == facts.AskModel("required")
    loop.apply(answered("nope"))
    checked(loop, "nope0", tool=None, problems=("There is none.",))
    assert loop.todo().ask_model == facts.AskModel("auto")


def test_tool_choice_none_holds_for_every_request():
    loop = started(tool_choice="none")
    loop.apply(answered("nope"))
    assert loop.todo().ask_model == facts.AskModel("none")


# What a model does wrong ------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_answered_with_the_sentence_of_the_check():
    loop = started()
    loop.apply(answered("nope"))
    checked(loop, "nope0", tool=None, problems=("There is no tool named 'nope'.",))
    assert responses(loop) == [{"error": "There is no tool named 'nope'."}]


def test_a_name_without_an_explanation_is_still_an_error():
    loop = started()
    loop.apply(answered("nope"))
    checked(loop, "nope0", tool=None)
    assert responses(loop) == [{"error": "There is no such tool."}]


def test_a_prefixed_name_is_run_as_the_tool_and_answered_as_it_was_written():
    loop = started()
    loop.apply(answered("default_api.send"))
    checked(loop, "default_api.send0", tool="send", digest="d2")
    loop.apply(facts.CallDecided(id="default_api.send0", decision=ALLOW))
    assert loop.todo().run[0].name == "send"
    run_call(loop, "default_api.send0")
    assert loop.conversation.contents[-1]["parts"][0]["functionResponse"]["name"] == "default_api.send"


def test_arguments_that_do_not_fit_are_answered_without_a_run():
    loop = started()
    loop.apply(answered("send", "look"))
    checked(loop, "send0", problems=("i: must be text.", "Correct it."))
    allowed(loop, "look1")
    run_call(loop, "look1")
    assert responses(loop) == [{"error": "i: must be text. Correct it."}, {"result": 1}]


def test_a_call_that_could_not_be_read_is_answered_with_its_problem():
    loop = started()
    answer = answered("send")
    loop.apply(replace(answer, calls=(replace(answer.calls[0], problem="Not JSON."),)))
    assert responses(loop) == [{"error": "Not JSON."}]


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"]
)
def test_a_malformed_answer_is_asked_for_again_twice_and_then_an_error(reason: str):
    loop = started()
    for _ in range(2):
        loop.apply(replace(answered("send", reason=reason), finish_message="bad"))
        ask = loop.todo().ask_model
        assert ask is not None
        assert ask.tool_choice == "validated"
        assert "(bad)" in (ask.feedback or "")
        assert len(loop.conversation) == 1
    loop.apply(answered("send", reason=reason))
    assert loop.todo().finish == facts.Finish(reason, "malformed")
    assert loop.conversation.contents == []
    assert loop.reply("s").calls == []


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "STOP"])
@pytest.mark.parametrize("can_call", [True, False])
def test_a_model_that_can_call_nothing_is_not_told_to_call(reason: str, can_call: bool):
    content = {"role": "user", "parts": [text("Go.")]}
    loops = [started()] if can_call else [started(tool_choice="none"), RunMachine([facts.RunStarted(content=content)])]
    for loop in loops:
        loop.apply(facts.ModelAnswered(content={"role": "model", "parts": []}, finish_reason=reason))
        ask = loop.todo().ask_model
        assert ask is not None
        assert (ask.feedback or "").endswith(" Please answer in text.") == (not can_call)


def test_an_empty_answer_is_asked_for_again_and_then_an_error():
    loop = started()
    for _ in range(2):
        loop.apply(facts.ModelAnswered(content={"role": "model", "parts": [thought("hm")]}, finish_reason="STOP"))
        assert "empty" in (loop.todo().ask_model or facts.AskModel("")).feedback  # pyright: ignore
    loop.apply(facts.ModelAnswered(content={"role": "model"}, finish_reason="STOP"))
    assert loop.todo().finish == facts.Finish("error", "empty")


def test_a_good_answer_after_a_malformed_one_makes_the_loop_forget_it():
    loop = started()
    loop.apply(answered(reason="MALFORMED_FUNCTION_CALL"))
    loop.apply(answered("nope"))
    checked(loop, "nope0", tool=None)
    assert loop.todo().ask_model == facts.AskModel("auto")
    assert loop.run.retries == 0


def test_a_blocked_answer_without_content_ends_the_run_with_its_reason():
    loop = started()
    loop.apply(facts.ModelAnswered(content={}, finish_reason="SAFETY", finish_message="no"))
    assert loop.todo().finish == facts.Finish("SAFETY", None, "no")
    assert (loop.reply("s").ok, loop.conversation.contents) == (False, [])


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "SOMETHING_NEW"])
def test_calls_of_an_answer_that_ended_badly_do_not_run_and_the_history_stays_valid(reason: str):
    loop = started()
    loop.apply(answered("send", reason=reason))
    assert responses(loop) == [{"error": f"Not run: the answer ended with {reason}."}]
    assert loop.todo().finish == facts.Finish(reason)
    assert validate(loop.conversation.contents, sendable=True) == []


def test_complete_calls_of_an_answer_that_was_cut_by_length_run():
    loop = started()
    loop.apply(answered("look", reason="MAX_TOKENS"))
    assert [c.id for c in loop.todo().check] == ["look0"]


def test_the_last_call_of_an_answer_that_was_cut_by_length_does_not_run_if_it_may_change_something():
    loop = started()
    loop.apply(answered("send", "send", reason="MAX_TOKENS"))
    assert [c.id for c in loop.todo().check] == ["send0"]
    assert "cut off at its limit of tokens" in str(loop.run.records[1].result)


def test_a_call_with_text_behind_it_was_whole_when_the_answer_was_cut():
    loop = started()
    fact = answered("send", reason="MAX_TOKENS")
    content = {**fact.content, "parts": [*fact.content["parts"], {"text": "and th"}]}
    loop.apply(replace(fact, content=content))
    assert [c.id for c in loop.todo().check] == ["send0"]


def test_python_text_is_salvaged_for_read_only_tools():
    loop = started()
    salvaged = (FunctionCall(name="default_api.look", id="x", args={"a": 1}), FunctionCall(name="look", id="y"))
    loop.apply(replace(answered(reason="MALFORMED_FUNCTION_CALL"), salvaged=salvaged))
    assert [(c.name, c.id) for c in loop.todo().check] == [("look", "x"), ("look", "y")]
    signed, unsigned = loop.conversation.contents[-1]["parts"]
    assert signed == call("look", a=1, signature="skip_thought_signature_validator")
    assert unsigned == call("look")


@pytest.mark.parametrize("name", ["send", "nope"])
def test_python_text_is_not_salvaged_when_the_tool_may_change_something_or_is_unknown(name: str):
    loop = started()
    salvaged = (FunctionCall(name="look", id="x"), FunctionCall(name=name, id="y"))
    loop.apply(replace(answered(reason="MALFORMED_FUNCTION_CALL"), salvaged=salvaged))
    assert loop.todo().ask_model is not None


# Limits -----------------------------------------------------------------------------------------------------------------


def test_the_last_turn_is_asked_without_tools():
    loop = started(turns=2)
    loop.apply(answered("nope"))
    checked(loop, "nope0", tool=None)
    assert loop.todo().ask_model == facts.AskModel("none")
    loop.apply(answered(said="So be it."))
    reply = loop.reply("s")
    assert (reply.finish_reason, reply.limited, reply.text) == ("STOP", True, "So be it.")


def test_calls_in_the_last_turn_are_refused_and_the_run_ends():
    loop = started(turns=2)
    loop.apply(answered("nope"))
    checked(loop, "nope0", tool=None)
    loop.apply(answered("send"))
    assert responses(loop) == [{"error": "Not run: the limit of 2 turns is reached."}]
    assert loop.todo().finish == facts.Finish("turn_limit")


def test_a_single_turn_keeps_its_tools_and_refuses_what_they_would_do():
    loop = started(turns=1, tool_choice="required")
    assert loop.todo().ask_model == facts.AskModel("required")
    loop.apply(answered("send"))
    assert loop.todo().finish == facts.Finish("turn_limit")
    assert loop.reply("s").limited is False


def test_calls_beyond_the_limit_of_a_run_are_refused_and_the_model_must_answer():
    loop = started(calls=1)
    loop.apply(answered("look", "send"))
    allowed(loop, "look0")
    run_call(loop, "look0")
    assert responses(loop)[1] == {"error": "Not run: the limit of 1 calls is reached. Answer with what you have."}
    assert loop.todo().ask_model == facts.AskModel("none")
    loop.apply(answered(said="All I have."))
    assert loop.todo().finish == facts.Finish("call_limit")


def test_a_model_that_goes_on_calling_after_a_limit_is_stopped():
    loop = started(calls=1)
    loop.apply(answered("look", "send"))
    allowed(loop, "look0")
    run_call(loop, "look0")
    loop.apply(answered("send"))
    assert responses(loop) == [{"error": "Not run: no more calls are allowed in this run."}]
    assert loop.todo().finish == facts.Finish("call_limit")


def test_calls_beyond_the_limit_of_a_turn_are_refused_and_the_run_goes_on():
    loop = started(calls_per_turn=1)
    loop.apply(answered("look", "send"))
    allowed(loop, "look0")
    run_call(loop, "look0")
    assert responses(loop)[1] == {"error": "Not run: at most 1 calls may be made at once."}
    assert loop.todo().ask_model == facts.AskModel("auto")


def test_the_same_call_turn_after_turn_is_a_loop_and_its_last_repetition_is_not_run():
    loop = started(repeats=3)
    for _ in range(2):
        loop.apply(answered("look", args={"q": 1}))
        allowed(loop, "look0")
        run_call(loop, "look0")
    loop.apply(answered("look", args={"q": 1}))
    assert responses(loop) == [{"error": "Not run: the same call was made 3 times. Answer with what you have."}]
    loop.apply(answered(said="Sorry."))
    assert loop.todo().finish == facts.Finish("loop")


def test_equal_calls_of_one_turn_are_no_loop():
    loop = started(repeats=2, parallel=20)
    loop.apply(answered(*["look"] * 20, args={"q": 1}))
    allowed(loop, *[f"look{i}" for i in range(20)])
    assert len(loop.todo().run) == 20


def test_a_call_that_was_made_again_after_another_is_no_loop():
    loop = started(repeats=2)
    for name in ("look", "send", "look"):
        loop.apply(answered(name, args={"q": 1}))
        allowed(loop, f"{name}0")
        run_call(loop, f"{name}0")
    assert loop.todo().ask_model == facts.AskModel("auto")


# Order ------------------------------------------------------------------------------------------------------------------


def test_ordered_calls_run_one_after_another_while_others_run_beside_them():
    loop = started()
    loop.apply(answered("save", "look", "save", "send"))
    allowed(loop, "save0", "look1", "save2", "send3")
    assert [c.id for c in loop.todo().run] == ["save0", "look1", "send3"]
    for call_id in ("save0", "look1", "send3"):
        loop.apply(facts.CallStarted(id=call_id))
    assert loop.todo().run == ()
    loop.apply(done("save0"))
    assert [c.id for c in loop.todo().run] == ["save2"]


def test_an_ordered_call_waits_for_an_earlier_one_that_awaits_approval():
    loop = started()
    loop.apply(answered("save", "save"))
    checked(loop, "save0")
    loop.apply(facts.CallDecided(id="save0", decision=ASK))
    allowed(loop, "save1")
    assert loop.todo().run == ()
    loop.apply(facts.ApprovalAnswered(id="save0", answer="no", reason="Not that file."))
    assert [c.id for c in loop.todo().run] == ["save1"]
    run_call(loop, "save1")
    assert responses(loop) == [{"error": "The user did not allow this call. Not that file."}, {"result": 1}]


def test_an_ordered_call_does_not_overtake_one_that_has_not_been_checked_yet():
    loop = started()
    loop.apply(answered("default_api.save", "save"))
    allowed(loop, "save1")
    assert loop.todo().run == ()


def test_no_more_calls_run_at_once_than_allowed():
    loop = started(parallel=2)
    loop.apply(answered("look", "look", "look"))
    allowed(loop, "look0", "look1", "look2")
    assert [c.id for c in loop.todo().run] == ["look0", "look1"]
    loop.apply(facts.CallStarted(id="look0"))
    assert [c.id for c in loop.todo().run] == ["look1"]


# Permission -------------------------------------------------------------------------------------------------------------


def test_a_denied_call_is_answered_with_the_reason():
    loop = started()
    loop.apply(answered("send"))
    checked(loop, "send0")
    settled = loop.apply(facts.CallDecided(id="send0", decision=Decision(verdict="deny", reason="Never.")))
    assert (settled[0].state, responses(loop)) == ("denied", [{"error": "This call was not allowed. Never."}])


def test_a_call_that_must_be_asked_for_waits_while_its_siblings_run():
    loop = started()
    loop.apply(answered("send", "look"))
    checked(loop, "send0")
    loop.apply(facts.CallDecided(id="send0", decision=ASK))
    allowed(loop, "look1")
    run_call(loop, "look1")
    sent = loop.open_calls[0].call
    assert loop.todo() == facts.Todo(approve=(facts.AskApproval(sent, "It writes."),))
    reply = loop.reply("s")
    assert (reply.finish_reason, [r.call.id for r in reply.approvals]) == ("approval_needed", ["send0"])
    loop.apply(facts.ApprovalAnswered(id="send0", answer="yes"))
    run_call(loop, "send0")
    assert responses(loop) == [{"result": 1}, {"result": 1}]


def test_always_is_remembered_for_the_session():
    loop = started()
    loop.apply(answered("send"))
    checked(loop, "send0")
    loop.apply(facts.CallDecided(id="send0", decision=ASK))
    loop.apply(facts.ApprovalAnswered(id="send0", answer="always"))
    rule = SessionRule(id="always-send0", tool="send", digest="d2")
    assert (loop.always, [c.id for c in loop.todo().run]) == ({rule.id: rule}, ["send0"])


def test_a_lasting_answer_is_kept_as_it_was_given_and_can_be_revoked():
    rules = [SessionRule(id=name, tool="send", digest="d2", paths=(f"/{name}/**",)) for name in "ab"]
    loop = started()
    loop.apply(answered("send", "send"))
    for call_id, rule in zip(["send0", "send1"], rules, strict=True):
        checked(loop, call_id)
        loop.apply(facts.CallDecided(id=call_id, decision=ASK))
        loop.apply(facts.ApprovalAnswered(id=call_id, answer="always", rule=rule))
    assert list(loop.always.values()) == rules
    loop.apply(facts.AlwaysRevoked(rule="a"))
    loop.apply(facts.AlwaysRevoked(rule="never given"))
    assert list(loop.always) == ["b"]
    loop.apply(facts.AlwaysRevoked())
    assert loop.always == {}


def test_a_call_that_a_hook_changed_is_checked_and_decided_again_and_the_model_is_told():
    loop = started()
    loop.apply(answered("send"))
    checked(loop, "send0")
    loop.apply(facts.CallDecided(id="send0", decision=ALLOW, args={"to": "b"}))
    assert [dict(c.args) for c in loop.todo().check] == [{"to": "b"}]
    assert loop.calls.rewritten == {"send0"}
    allowed(loop, "send0")
    run_call(loop, "send0")
    assert responses(loop) == [{"result": 1, "notes": ['A hook changed the arguments before the call ran: {"to": "b"}']}]


def test_a_call_that_a_hook_changed_after_the_user_did_is_asked_about_again():
    loop = edited()
    checked(loop, "send0")
    loop.apply(facts.CallDecided(id="send0", decision=ASK, args={"to": "c"}))
    checked(loop, "send0")
    loop.apply(facts.CallDecided(id="send0", decision=ASK))
    assert [dict(approval.call.args) for approval in loop.todo().approve] == [{"to": "c"}]
    loop.apply(facts.ApprovalAnswered(id="send0", answer="yes", args={"to": "d"}))
    assert loop.calls.rewritten == set(), "hooks are to see what the user made of it"


def test_an_allowed_call_can_be_refused_until_it_starts():
    loop = started()
    loop.apply(answered("send", "put"))
    allowed(loop, "send0", "put1")
    deny = Decision(verdict="deny", reason="Too many.", by="limit")
    settled = loop.apply(facts.CallDecided(id="send0", decision=deny))
    assert [(r.state, r.decision) for r in settled] == [("denied", deny)]
    loop.apply(facts.CallDecided(id="put1", decision=ASK))
    loop.apply(facts.CallStarted(id="put1"))
    assert loop.apply(facts.CallDecided(id="put1", decision=deny)) == []


def edited() -> RunMachine:
    loop = started()
    loop.apply(answered("send"))
    checked(loop, "send0")
    loop.apply(facts.CallDecided(id="send0", decision=ASK))
    loop.apply(facts.ApprovalAnswered(id="send0", answer="yes", args={"to": "b"}))
    return loop


def test_edited_arguments_are_checked_again_and_the_model_is_told_of_the_edit():
    loop = edited()
    assert [c.args for c in loop.todo().check] == [{"to": "b"}]
    checked(loop, "send0")
    loop.apply(facts.CallDecided(id="send0", decision=ASK))
    assert [c.args for c in loop.todo().run] == [{"to": "b"}]
    run_call(loop, "send0")
    note = 'The user changed the arguments before the call ran: {"to": "b"}'
    assert responses(loop) == [{"result": 1, "notes": [note]}]
    record = loop.reply("s").calls[0]
    assert (record.edited, record.decision) == (True, Decision(verdict="allow", reason="It writes.", by="user"))


def test_an_edit_cannot_get_past_a_deny():
    loop = edited()
    checked(loop, "send0")
    loop.apply(facts.CallDecided(id="send0", decision=Decision(verdict="deny", reason="Not to b.")))
    assert loop.reply("s").calls[0].state == "denied"


# Cancellation and recovery ----------------------------------------------------------------------------------------------


def test_cancelling_while_the_model_answers_keeps_what_was_seen():
    loop = started()
    loop.apply(facts.Cancelled(partial="Once upon"))
    assert loop.todo().finish == facts.Finish("cancelled", None, "The user cancelled the run.")
    assert (loop.reply("s").text, len(loop.conversation)) == ("Once upon", 2)


def test_cancelling_before_anything_was_seen_takes_the_prompt_back():
    loop = started()
    loop.apply(facts.Cancelled(partial=" "))
    assert loop.conversation.contents == []


def test_cancelling_while_the_end_is_noted_down_keeps_the_answer_and_says_so():
    loop = started()
    loop.apply(answered(said="Done."))
    loop.apply(facts.Cancelled(reason="Enough."))
    assert loop.todo().finish == facts.Finish("cancelled", None, "Enough.")
    assert (loop.reply("s").text, len(loop.conversation)) == ("Done.", 2)


def test_cancelling_stops_what_runs_and_answers_everything():
    loop = started(parallel=1)
    loop.apply(answered("send", "look", "save"))
    allowed(loop, "send0", "look1")
    loop.apply(facts.CallStarted(id="send0"))
    settled = loop.apply(facts.Cancelled(reason="Enough."))
    assert [(r.call.id, r.state) for r in settled] == [("look1", "cancelled"), ("save2", "cancelled")]
    assert [c.id for c in loop.todo().stop] == ["send0"]
    loop.apply(done("send0", None, "cancelled", "It was cancelled."))
    assert loop.todo().finish == facts.Finish("cancelled", None, "Enough.")
    assert [next(iter(r)) for r in responses(loop)] == ["error"] * 3
    assert validate(loop.conversation.contents, sendable=True) == []


def test_after_a_crash_repeatable_calls_run_again_and_others_are_unknown():
    loop = started()
    loop.apply(answered("put", "send", "look"))
    allowed(loop, "put0", "send1", "look2")
    for call_id in ("put0", "send1"):
        loop.apply(facts.CallStarted(id=call_id))
    settled = loop.apply(facts.Recovered(unknown="Its end was not recorded."))
    assert [(r.call.id, r.state) for r in settled] == [("send1", "unknown")]
    assert [r.result.error for r in settled if r.result] == ["Its end was not recorded."]
    assert ([c.id for c in loop.todo().decide], loop.todo().run) == (["put0", "look2"], ())
    for call_id in ("put0", "look2"):
        loop.apply(facts.CallDecided(id=call_id, decision=ALLOW))
    assert [c.id for c in loop.todo().run] == ["put0", "look2"]


def test_after_a_crash_in_a_cancelled_run_nothing_runs_again():
    loop = started()
    loop.apply(answered("put"))
    allowed(loop, "put0")
    loop.apply(facts.CallStarted(id="put0"))
    loop.apply(facts.Cancelled())
    loop.apply(facts.Recovered())
    assert loop.reply("s").calls[0].state == "unknown"
    assert loop.todo().finish is not None


def test_a_new_prompt_while_calls_are_open_answers_them_first():
    loop = started()
    loop.apply(answered("send", "look", "put"))
    allowed(loop, "send0", "look1")
    run_call(loop, "look1")
    loop.apply(facts.CallStarted(id="send0"))
    settled = loop.apply(facts.RunStarted(content={"role": "user", "parts": [text("Never mind.")]}))
    assert [(r.call.id, r.state) for r in settled] == [("send0", "unknown"), ("put2", "cancelled")]
    assert validate(loop.conversation.contents, sendable=True) == []
    assert loop.todo().ask_model is not None


def test_a_tool_that_changed_is_checked_and_decided_again():
    loop = started()
    loop.apply(answered("send", "look"))
    allowed(loop, "send0", "look1")
    changed = {**TOOLS, "send": replace(TOOLS["send"], digest="new")}
    loop.apply(facts.ToolsKnown(tools=changed, names=KNOWN.names))
    assert ([c.id for c in loop.todo().check], [c.id for c in loop.todo().run]) == (["send0"], ["look1"])


def test_a_result_that_comes_too_late_is_not_used():
    loop = started()
    loop.apply(answered("send", "look"))
    allowed(loop, "send0", "look1")
    loop.apply(facts.CallStarted(id="send0"))
    loop.apply(done("send0", "first"))
    assert loop.apply(done("send0", "second")) == []
    run_call(loop, "look1")
    assert responses(loop)[0] == {"result": "first"}


def test_calls_of_an_adopted_session_are_decided_again_and_those_that_are_over_stay_so():
    loop = started()
    loop.apply(answered("send", "look", "nobody"))
    checked(loop, "nobody2", tool=None)
    checked(loop, "send0")
    loop.apply(facts.CallDecided(id="send0", decision=Decision(verdict="allow")))
    loop.apply(facts.CallStarted(id="send0"))
    checked(loop, "look1")
    loop.apply(facts.Adopted())
    assert [(record.call.id, record.state) for record in loop.open_calls] == [
        ("send0", "unknown"),
        ("look1", "proposed"),
        ("nobody2", "failed"),
    ]


# An answer that must fit a schema ---------------------------------------------------------------------------------------

SCHEMA = {"type": "object"}


def with_output(**options: Any) -> RunMachine:
    loop = started(output=SCHEMA, **options)
    loop.apply(answered(said="{}"))
    return loop


def test_an_answer_with_a_schema_is_checked_before_it_counts():
    loop = with_output()
    assert loop.todo() == facts.Todo(check_output=facts.CheckOutput("{}", SCHEMA))
    assert len(loop.conversation) == 1, "it is not in the history yet"
    loop.apply(facts.OutputChecked(value={}))
    assert (loop.todo().finish, loop.reply("s").output) == (facts.Finish("STOP"), {})
    loop.apply(facts.OutputChecked(value={"late": 1}))
    assert loop.reply("s").output == {}


def test_an_answer_that_does_not_fit_is_asked_for_again_and_taken_when_there_are_no_attempts_left():
    loop = with_output(output_retries=1)
    loop.apply(facts.OutputChecked(problems=("a is missing",)))
    ask = loop.todo().ask_model
    assert ask is not None
    assert (ask.tool_choice, "a is missing" in (ask.feedback or "")) == ("none", True)
    loop.apply(answered(said="{}"))
    loop.apply(facts.OutputChecked(problems=("a is missing",)))
    assert loop.todo().finish == facts.Finish("output_error", "output", "a is missing")
    assert loop.conversation.is_model(-1)


def test_a_run_that_is_cancelled_while_its_answer_is_checked_keeps_the_answer():
    loop = with_output()
    loop.apply(facts.Cancelled())
    assert loop.todo().finish == facts.Finish("cancelled", None, "The user cancelled the run.")
    assert loop.conversation.is_model(-1)


def test_cancelling_what_has_not_begun_changes_nothing():
    loop = RunMachine([KNOWN])
    loop.apply(facts.Cancelled())
    assert (loop.phase, len(loop.conversation)) == ("idle", 0)


# Budgets ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"run_tokens": 10}, "token_limit"),
        ({"session_tokens": 10}, "token_limit"),
        ({"run_cost": 0.5}, "cost_limit"),
        ({"session_cost": 0.5}, "cost_limit"),
    ],
)
def test_a_budget_that_is_used_up_ends_the_run_after_the_calls(limits: dict[str, Any], reason: str):
    loop = started(**limits)
    loop.apply(replace(answered("look"), usage=Usage(total_tokens=10), cost=0.5))
    allowed(loop, "look0")
    run_call(loop, "look0")
    assert loop.todo().finish == facts.Finish(reason)


# Facts about the conversation -------------------------------------------------------------------------------------------


def test_a_request_that_the_server_works_on_is_asked_for_by_its_id_until_it_is_answered():
    loop = started()
    accepted = facts.ModelAccepted(id="i1", origin="interactions:x")
    loop.apply(accepted)
    assert loop.todo() == facts.Todo(ask_model=facts.AskModel("auto", accepted=accepted))
    loop.apply(answered(said="Done."))
    loop.apply(facts.ModelAccepted(id="i2", origin="interactions:x"))
    assert (loop.todo().finish, loop.run.accepted) == (facts.Finish("STOP"), None)


def test_a_rewind_keeps_the_first_contents_or_those_it_brings():
    loop = started()
    loop.apply(answered(said="Done."))
    loop.apply(facts.Rewound(contents_kept=1))
    assert (loop.phase, loop.conversation.contents) == ("idle", [{"role": "user", "parts": [text("Go.")]}])
    before = [{"role": "user", "parts": [text("Before.")]}]
    loop.apply(facts.Rewound(contents_kept=1, contents=before))
    assert loop.conversation.contents == before


def test_a_lasting_answer_to_a_nested_call_counts_for_the_session():
    rule = SessionRule(id="always-n", tool="look", server=None, digest="d1", raised_by="default")
    loop = started()
    loop.apply(facts.NestedCall(parent="send0", id="n", name="look", args={}))
    loop.apply(facts.NestedCall(parent="send0", id="n", name="look", args={}, rule=rule))
    assert loop.always == {"always-n": rule}


def test_a_long_history_is_shortened_before_the_next_request_and_that_costs():
    loop = started(context_tokens=1_000, run_cost=1.0)
    for _ in range(4):
        loop.apply(answered(said="word " * 2_000))
        loop.apply(facts.RunStarted(content={"role": "user", "parts": [text("More.")]}, limits=loop.run.limits))
    shorten = loop.todo().shorten
    assert shorten is not None
    assert shorten.summarize
    assert shorten.plan.dropped > 0
    loop.apply(facts.HistoryShortened(dropped=shorten.plan.dropped, summary="They spoke.", cost=0.25))
    assert (loop.todo().ask_model is not None, loop.cost, loop.run.summaries) == (True, 0.25, 1)
    again = RunMachine([KNOWN])
    again.apply(facts.HistoryShortened(dropped=0))
    assert again.phase == "idle"


def test_a_run_of_a_request_is_known_by_its_key():
    assert started(request="key").requests == {"key"}


def test_a_fact_that_cannot_be_applied_is_set_aside_and_the_rest_counts():
    broken: Any = facts.RunStarted(content=5)  # pyright: ignore[reportArgumentType]
    loop = RunMachine([KNOWN, broken, facts.RunStarted(content={"role": "user", "parts": [text("Go.")]})])
    assert (len(loop.quarantined), len(loop.conversation)) == (1, 1)
    assert "fact 1 (RunStarted) cannot be applied" in loop.quarantined[0]


def test_long_arguments_are_compared_by_a_hash():
    loop = started(repeats=2)
    loop.apply(answered("look", args={"text": "x" * 100_000}))
    allowed(loop, "look0")
    run_call(loop, "look0")
    loop.apply(answered("look", args={"text": "x" * 100_000}))
    assert "the same call was made 2 times" in responses(loop)[0]["error"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"rows": [{"id": 1}]}, {"rows": [{"id": 2}]}),
        ({"flag": 1}, {"flag": True}),
        ({"text": None}, {"text": {}}),
    ],
)
def test_calls_that_look_alike_and_differ_are_no_loop(first: dict[str, Any], second: dict[str, Any]):
    loop = started(repeats=2)
    for args in (first, second):
        loop.apply(answered("look", args=args))
        allowed(loop, "look0")
        run_call(loop, "look0")
    assert loop.todo().ask_model == facts.AskModel("auto")


def test_rows_that_are_sent_again_are_a_loop_in_any_order_of_their_names():
    loop = started(repeats=2)
    loop.apply(answered("look", args={"rows": [{"id": 1, "name": "a"}], "flag": True}))
    allowed(loop, "look0")
    run_call(loop, "look0")
    loop.apply(answered("look", args={"flag": True, "rows": [{"name": "a", "id": 1}]}))
    assert "the same call was made 2 times" in responses(loop)[0]["error"]


def test_a_copy_of_a_session_does_not_wait_for_the_answer_of_its_original():
    loop = started()
    loop.apply(facts.ModelAccepted(id="i1", origin="interactions:x"))
    loop.apply(facts.Adopted())
    assert loop.todo() == facts.Todo(ask_model=facts.AskModel("auto"))


def test_no_call_runs_in_a_run_without_calls_and_the_model_is_asked_for_its_answer():
    loop = started(tool_choice="none")
    loop.apply(answered("look"))
    assert responses(loop)[0]["error"].startswith("Not run: no tool may be called in this run.")
    assert loop.todo() == facts.Todo(ask_model=facts.AskModel("none"))


def interrupted() -> RunMachine:
    """A machine of another process, after the first one died in the middle of a call that may run again."""
    loop = started()
    loop.apply(answered("put"))
    allowed(loop, "put0")
    loop.apply(facts.CallStarted(id="put0"))
    loop.apply(facts.Recovered(unknown="Its end was not recorded."))
    return loop


@pytest.mark.parametrize(
    ("fact", "error"),
    [
        (facts.RunStarted(content={"role": "user", "parts": [text("Never mind.")]}), "Its end was not recorded."),
        (facts.Cancelled(reason="Enough."), "Its end was not recorded. Enough."),
        (facts.Adopted(), "Its end was not recorded."),
        (
            facts.CallDecided(id="put0", decision=Decision(verdict="deny", reason="Not now.")),
            "Its end was not recorded. This call was not allowed. Not now.",
        ),
    ],
    ids=["a new prompt", "a cancellation", "a copy", "a refusal"],
)
def test_a_call_that_an_earlier_process_may_have_run_never_counts_as_one_that_did_not_start(fact: Any, error: str):
    [record] = interrupted().apply(fact)
    assert record.result is not None
    assert (record.state, record.result.error) == ("unknown", error)


def test_a_call_that_runs_again_after_a_crash_has_the_end_of_that_run():
    loop = interrupted()
    loop.apply(facts.CallDecided(id="put0", decision=ALLOW))
    loop.apply(facts.CallStarted(id="put0"))
    [record] = loop.apply(done("put0", None, "failed", "It was refused."))
    assert record.result is not None
    assert (record.state, record.result.error) == ("failed", "It was refused.")
