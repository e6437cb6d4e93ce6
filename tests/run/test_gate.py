"""The gate: whole conversations on a scripted model."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import gc
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.beside import in_thread, program

from callgate import (
    CallRecord,
    FunctionCall,
    Gate,
    Limits,
    Media,
    Policy,
    ScriptedModel,
    ToolContext,
    ToolDefinition,
    Usage,
    events,
    tool,
)
from callgate.errors import (
    BlockedError,
    CallgateError,
    ConversationInvalidError,
    EmptyAnswerError,
    MalformedAnswerError,
    ModelError,
    ProtocolError,
    ScriptExhaustedError,
    StoreError,
    UsageError,
)
from callgate.history.repair import validate
from callgate.machine import facts
from callgate.permission import Rule
from callgate.store import MemoryStore
from callgate.testing import answer, call, empty, malformed, text, thought


def run(work: Coroutine[Any, Any, Any], seconds: float = 30) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


async def all_of(stream: AsyncIterator[events.Event]) -> list[events.Event]:
    return [event async for event in stream]


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool(read_only=True)
def look(city: str) -> str:
    """Looks out of the window."""
    return f"sun in {city}"


class Writer:
    """A tool that asks by default: it lives on a server and changes something."""

    definition = ToolDefinition(name="write", kind="mcp", server="files", input_schema={"type": "object"})

    def __init__(self) -> None:
        self.ran: list[Any] = []

    def problems(self, args: Any) -> list[str]:
        return []

    async def run(self, args: Any, context: ToolContext) -> object:
        self.ran.append(dict(args))
        return "written"


def responses_of(model: ScriptedModel, request: int = 1) -> list[Any]:
    return [part["functionResponse"]["response"] for part in model.requests[request].contents[-1]["parts"]]


# Conversations ----------------------------------------------------------------------------------------------------------


def test_a_conversation_with_a_call_ends_with_the_answer():
    model = ScriptedModel([call("add", a=1, b=2), "It is 3."])
    reply = run(Gate(model, [add]).run("What is 1 + 2?"))
    assert (reply.text, reply.finish_reason, reply.turns, reply.ok) == ("It is 3.", "STOP", 2, True)
    assert [(record.call.name, dict(record.call.args), record.state) for record in reply.calls] == [
        ("add", {"a": 1, "b": 2}, "finished")
    ]
    assert isinstance(reply.calls[0], CallRecord)
    assert reply.calls[0].result is not None
    assert reply.calls[0].result.value == 3
    assert reply.contents == [
        {"role": "user", "parts": [{"text": "What is 1 + 2?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {"a": 1, "b": 2}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "add", "response": {"result": 3}}}]},
        {"role": "model", "parts": [{"text": "It is 3."}]},
    ]


def test_what_the_model_is_shown():
    model = ScriptedModel(["Hi."])
    run(Gate(model, [add], system="Be brief.", settings={"temperature": 0}).run("Hello"))
    request = model.requests[0]
    assert (request.system, request.settings, request.tool_choice) == ("Be brief.", {"temperature": 0}, "auto")
    assert request.tool_names == ["add"]
    assert request.tool_config == {"functionCallingConfig": {"mode": "AUTO"}}


def test_signatures_ids_and_unknown_fields_come_back_unchanged():
    part = call("add", a=1, b=2, id="w1", signature="c2ln") | {"fromTheFuture": {"x": [1]}}
    model = ScriptedModel([[thought("hm"), part], call("add", a=2, b=2), "4"])
    run(Gate(model, [add]).run("Go"))
    assert model.requests[2].contents[1]["parts"] == [thought("hm"), part]
    assert model.requests[1].contents[2]["parts"][0]["functionResponse"] == {
        "id": "w1",
        "name": "add",
        "response": {"result": 3},
    }


def test_a_session_goes_on_where_it_stopped():
    model = ScriptedModel(["Hello Ada.", "Ada."])
    gate = Gate(model)

    async def story() -> Any:
        first = await gate.run("I am Ada.")
        return await gate.run("Who am I?", session=first.session)

    assert [content["parts"][0]["text"] for content in run(story()).contents] == [
        "I am Ada.",
        "Hello Ada.",
        "Who am I?",
        "Ada.",
    ]


def test_runs_without_a_session_know_nothing_of_each_other():
    model = ScriptedModel(["a", "b"])
    gate = Gate(model)

    async def story() -> set[str]:
        return {(await gate.run("one")).session, (await gate.run("two")).session}

    assert len(run(story())) == 2
    assert len(model.requests[1].contents) == 1


def test_another_gate_goes_on_from_the_same_store():
    store = MemoryStore()
    run(Gate(ScriptedModel(["Hello Ada."]), store=store).run("I am Ada.", session="ada"))
    reply = run(Gate(ScriptedModel(["Ada."]), store=store).run("Who am I?", session="ada"))
    assert len(reply.contents) == 4


def test_two_gates_that_write_to_one_session_at_once_wait_for_each_other():
    store = MemoryStore()
    gates = [Gate(ScriptedModel([call("add", a=1, b=1), "2"]), [add], store=store) for _ in range(2)]

    async def story() -> list[Any]:
        return await asyncio.gather(*(gate.run("1 + 1?", session="s") for gate in gates))

    replies = run(story())
    assert sorted(len(reply.contents) for reply in replies) == [4, 8]
    assert all(validate(reply.contents) == [] for reply in replies)


def test_two_runs_of_one_session_wait_for_each_other():
    model = ScriptedModel([call("add", a=1, b=1), "2", "two"])
    gate = Gate(model, [add])

    async def story() -> list[Any]:
        return await asyncio.gather(gate.run("first", session="s"), gate.run("second", session="s"))

    first, second = run(story())
    assert (first.text, second.text, len(second.contents)) == ("2", "two", 6)


def test_a_given_history_is_repaired_and_gone_on_with():
    history = [
        {"role": "user", "parts": [{"text": "Add."}]},
        {"role": "assistant", "parts": [call("add", a=1, b=1)]},
        {"role": "function", "parts": [{"functionResponse": {"name": "add", "response": {"result": 2}}}]},
        {"role": "model", "parts": [call("add", a=2, b=2)]},
    ]
    model = ScriptedModel(["Fine."])
    reply = run(Gate(model, [add]).run("And now?", history=history))
    assert [content["role"] for content in reply.contents] == ["user", "model", "user", "model", "user", "user", "model"]
    assert "cancelled" in reply.contents[4]["parts"][0]["functionResponse"]["response"]["error"]


def test_repairs_of_a_given_history_are_told():
    history = [{"role": "assistant", "parts": [{"text": "Hello?"}]}]
    seen = run(all_of(Gate(ScriptedModel(["Hi."])).stream("Yes?", history=history)))
    notices = [(event.code, event.message) for event in seen if isinstance(event, events.Notice)]
    assert notices == [
        ("history_repaired", "contents[0]: the role 'assistant' was read as 'model'"),
        ("history_repaired", "the history began with the model; a user content was put before it"),
    ]


def test_a_prompt_may_hold_media_and_parts():
    model = ScriptedModel(["A cat."])
    run(Gate(model).run(["What is this?", Media(data=b"x", mime_type="image/png"), {"text": "Look well."}]))
    assert [next(iter(part)) for part in model.requests[0].contents[0]["parts"]] == ["text", "inlineData", "text"]


@pytest.mark.parametrize("prompt", ["", "   ", []])
def test_an_empty_prompt_is_refused(prompt: Any):
    with pytest.raises(UsageError, match="the prompt is empty"):
        run(Gate(ScriptedModel([])).run(prompt))


def test_a_prompt_of_the_wrong_kind_is_refused():
    with pytest.raises(UsageError, match="not 'int'"):
        run(Gate(ScriptedModel([])).run([42]))  # pyright: ignore


def test_usage_is_the_sum_over_all_answers():
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12}
    model = ScriptedModel([answer(call("add", a=1, b=1), usage=usage), answer("2", usage=usage)])
    assert run(Gate(model, [add]).run("Go")).usage == Usage(input_tokens=20, output_tokens=4, total_tokens=24)


# Events -----------------------------------------------------------------------------------------------------------------


def kinds(seen: list[events.Event]) -> list[str]:
    return [type(event).__name__ for event in seen]


def test_events_come_in_the_order_in_which_things_happen():
    model = ScriptedModel([[thought("Sum."), "I add. ", call("add", a=1, b=2)], "It is 3."], piece_chars=100)
    seen = run(all_of(Gate(model, [add]).stream("1 + 2?")))
    assert kinds(seen) == [
        "ThoughtDelta", "TextDelta", "CallProposed", "UsageReported", "CallStarted", "CallFinished", "TurnEnded",
        "TextDelta", "UsageReported", "TurnEnded", "RunEnded",
    ]  # fmt: skip
    assert isinstance(seen[-1], events.RunEnded)
    assert seen[-1].reply.text == "It is 3."


def test_text_streams_in_pieces_that_join_to_the_answer():
    seen = run(all_of(Gate(ScriptedModel(["A rather long answer."], piece_chars=3)).stream("Talk")))
    deltas = [event.text for event in seen if isinstance(event, events.TextDelta)]
    assert ("".join(deltas), len(deltas)) == ("A rather long answer.", 7)


def test_a_whole_answer_gives_the_same_reply_as_a_streamed_one():
    script = [["I look. ", call("look", city="Oslo")], "Sun."]
    replies = [run(Gate(ScriptedModel(script, piece_chars=size), [look]).run("Go")) for size in (0, 1, 8)]
    assert [(r.text, r.contents) for r in replies] == [(replies[0].text, replies[0].contents)] * 3


def test_progress_of_a_tool_is_an_event():
    def work(context: ToolContext) -> str:
        context.progress("half way", 0.5)
        return "done"

    def odd(context: ToolContext) -> None:
        context.progress("no idea", float("nan"))

    seen = run(all_of(Gate(ScriptedModel([call("odd"), "ok"]), [odd]).stream("Go")))
    assert [(e.message, e.fraction) for e in seen if isinstance(e, events.CallProgress)] == [("no idea", None)]

    def strange(context: ToolContext) -> None:
        context.progress(5, "x")  # type: ignore

    seen = run(all_of(Gate(ScriptedModel([call("strange"), "ok"]), [strange]).stream("Go")))
    assert [(e.message, e.fraction) for e in seen if isinstance(e, events.CallProgress)] == [("5", None)]
    seen = run(all_of(Gate(ScriptedModel([call("work"), "ok"]), [work]).stream("Go")))
    assert [(e.message, e.fraction) for e in seen if isinstance(e, events.CallProgress)] == [("half way", 0.5)]


def test_a_slow_reader_slows_the_run_down_instead_of_filling_memory():
    model = ScriptedModel(["x" * 2000], piece_chars=1)

    async def story() -> int:
        count = 0
        async for event in Gate(model).stream("Talk"):
            count += isinstance(event, events.TextDelta)
            await asyncio.sleep(0)
        return count

    assert run(story()) == 2000


def every_proposed_call_is_finished_once(seen: list[events.Event]) -> bool:
    proposed = [event.call.id for event in seen if isinstance(event, events.CallProposed)]
    finished = [event.call.id for event in seen if isinstance(event, events.CallFinished)]
    return sorted(proposed) == sorted(finished) and len(set(finished)) == len(finished)


# Malformed answers ------------------------------------------------------------------------------------------------------


def test_one_bad_call_of_three_gives_three_responses():
    model = ScriptedModel([[call("add", a=1, b=2), call("nope"), call("add", a="x")], "Well."])
    reply = run(Gate(model, [add]).run("Go"))
    good, unknown, wrong = responses_of(model)
    assert good == {"result": 3}
    assert unknown == {"error": "There is no tool named 'nope'. The tools are 'add'."}
    assert wrong["error"].startswith("The arguments of 'add' are not valid:")
    assert reply.text == "Well."


def test_a_call_without_arguments_has_none():
    def now() -> str:
        return "noon"

    model = ScriptedModel([{"functionCall": {"name": "now"}}, "Noon."])
    run(Gate(model, [now]).run("When?"))
    assert responses_of(model) == [{"result": "noon"}]


def test_arguments_that_do_not_parse_never_become_empty_ones():
    ran: list[str] = []

    def wipe(path: str = "everything") -> None:
        ran.append(path)

    model = ScriptedModel([{"functionCall": {"name": "wipe", "args": '{"path": "a'}}, "Oh."])
    run(Gate(model, [wipe]).run("Go"))
    assert ran == []
    assert "not valid JSON" in responses_of(model)[0]["error"]


def test_malformed_calls_are_asked_for_again_with_feedback_that_leaves_no_trace():
    model = ScriptedModel([malformed("bad args"), call("add", a=1, b=2), "3"])
    seen = run(all_of(Gate(model, [add]).stream("Go")))
    assert model.requests[1].tool_choice == "validated"
    assert "bad args" in model.requests[1].contents[-1]["parts"][0]["text"]
    assert [event.code for event in seen if isinstance(event, events.Notice)] == ["asked_again"]
    assert isinstance(seen[-1], events.RunEnded)
    assert [content["role"] for content in seen[-1].reply.contents] == ["user", "model", "user", "model"]
    assert kinds(seen).count("TurnEnded") == 2


def test_calls_of_a_malformed_answer_are_not_run_and_still_finished_as_events():
    ran: list[int] = []

    def send(i: int) -> None:
        ran.append(i)

    model = ScriptedModel([malformed("bad", call("send", i=1)), "Sorry."])
    seen = run(all_of(Gate(model, [send]).stream("Go")))
    assert ran == []
    assert every_proposed_call_is_finished_once(seen)


def test_a_model_that_stays_malformed_is_a_typed_error_and_leaves_the_conversation_as_it_was():
    gate = Gate(ScriptedModel(["Hello.", malformed(), malformed(), malformed("again"), "Fine."]), [add])

    async def story() -> Any:
        first = await gate.run("Hi", session="s")
        with pytest.raises(MalformedAnswerError, match="MALFORMED_FUNCTION_CALL: again") as raised:
            await gate.run("Go", session="s")
        assert raised.value.finish_reason == "MALFORMED_FUNCTION_CALL"
        last = await gate.run("Once more", session="s")
        return first, last

    _, last = run(story())
    assert [content["parts"][0]["text"] for content in last.contents] == ["Hi", "Hello.", "Once more", "Fine."]


def test_an_empty_answer_is_never_a_success():
    with pytest.raises(EmptyAnswerError):
        run(Gate(ScriptedModel([empty(), empty(), empty()])).run("Go"))


def test_python_text_is_salvaged_for_read_only_tools_and_announced():
    model = ScriptedModel([malformed("Malformed function call: print(default_api.look(city='Oslo'))"), "Sun."])
    seen = run(all_of(Gate(model, [look]).stream("Weather?")))
    assert every_proposed_call_is_finished_once(seen)
    assert responses_of(model) == [{"result": "sun in Oslo"}]
    assert [event.code for event in seen if isinstance(event, events.Notice)] == ["salvaged"]


def test_python_text_is_not_salvaged_for_tools_that_may_change_something():
    model = ScriptedModel([malformed("print(default_api.add(a=1, b=2))"), "No."])
    assert run(Gate(model, [add]).run("Go")).calls == []


def test_a_stream_that_breaks_off_runs_nothing_and_is_an_error_with_what_had_arrived():
    ran: list[int] = []

    def send(i: int) -> None:
        ran.append(i)

    gate = Gate(ScriptedModel([answer("I send. ", call("send", i=1), finish_reason=None), "Better."]), [send])
    seen: list[events.Event] = []

    async def story() -> Any:
        async def listen() -> None:
            async for event in gate.stream("Go", session="s"):
                seen.append(event)  # noqa: PERF401 - what came before the error is what matters

        with pytest.raises(ProtocolError, match="no finish reason") as raised:
            await listen()
        assert (raised.value.partial, raised.value.retryable) == ("I send. ", True)
        return await gate.run("Again", session="s")

    assert [content["role"] for content in run(story()).contents] == ["user", "model"]
    assert ran == []
    assert every_proposed_call_is_finished_once(seen)


def test_a_blocked_prompt_is_a_typed_error():
    model = ScriptedModel([{"promptFeedback": {"blockReason": "SAFETY"}, "candidates": []}])
    with pytest.raises(BlockedError) as raised:
        run(Gate(model).run("Bad"))
    assert raised.value.reason == "SAFETY"


def test_an_error_of_the_model_reaches_the_caller():
    with pytest.raises(ModelError, match="down"):
        run(Gate(ScriptedModel([ModelError("down")])).run("Go"))
    with pytest.raises(ScriptExhaustedError, match="its script has 0"):
        run(Gate(ScriptedModel([])).run("Go"))


def test_a_safety_stop_is_a_reply_that_is_not_ok():
    reply = run(Gate(ScriptedModel([answer("Half an ans", finish_reason="SAFETY")])).run("Go"))
    assert (reply.ok, reply.finish_reason, reply.text) == (False, "SAFETY", "Half an ans")


# Limits -----------------------------------------------------------------------------------------------------------------


def test_an_endless_loop_of_calls_ends_at_the_turn_limit_without_a_dangling_call():
    counter = iter(range(1000))
    model = ScriptedModel([lambda request: call("add", a=next(counter), b=1)], repeat_last=True)
    reply = run(Gate(model, [add], limits=Limits(turns=6)).run("Go"))
    assert (reply.finish_reason, len(model.requests), len(reply.calls)) == ("turn_limit", 6, 6)
    assert model.requests[-1].tool_choice == "none"
    assert validate(reply.contents, sendable=True) == []


def test_the_same_call_for_ever_is_stopped_as_a_loop():
    model = ScriptedModel([call("add", a=1, b=1)], repeat_last=True)
    reply = run(Gate(model, [add]).run("Go"))
    assert (reply.finish_reason, [record.state for record in reply.calls]) == ("loop", ["finished"] * 4 + ["failed"] * 2)


def test_a_hang_is_one_response_and_the_loop_goes_on():
    release = threading.Event()

    @tool(timeout_s=0.05)
    def hang() -> None:
        release.wait()

    model = ScriptedModel([[call("hang"), call("add", a=1, b=1)], "Moving on."])
    reply = run(Gate(model, [hang, add]).run("Go"))
    release.set()
    assert [record.state for record in reply.calls] == ["timed_out", "finished"]
    assert reply.text == "Moving on."


def test_twenty_calls_of_one_turn_overlap_async_and_sync():
    both = threading.Barrier(20, timeout=180)

    def meet() -> str:
        both.wait()
        return "met"

    async def story() -> Any:
        barrier = asyncio.Barrier(20)

        async def meet_async() -> str:
            await barrier.wait()
            return "met"

        model = ScriptedModel([[call("meet")] * 20, [call("meet_async")] * 20, "All met."])
        return await Gate(model, [meet, meet_async], limits=Limits(parallel=20)).run("Meet")

    reply = run(story())
    assert [record.result and record.result.value for record in reply.calls] == ["met"] * 40


def test_write_type_calls_keep_their_order():
    order: list[int] = []

    @tool(sequential=True)
    async def write(i: int) -> None:
        for _ in range(5 - i):
            await asyncio.sleep(0)
        order.append(i)

    run(Gate(ScriptedModel([[call("write", i=i) for i in range(5)], "ok"]), [write]).run("Go"))
    assert order == [0, 1, 2, 3, 4]


# Permission -------------------------------------------------------------------------------------------------------------


def test_a_call_that_needs_permission_is_denied_when_nobody_can_be_asked():
    writer = Writer()
    model = ScriptedModel([call("write"), "I could not."])
    run(Gate(model, [writer]).run("Write"))
    assert writer.ran == []
    assert "pass approve= to Gate" in responses_of(model)[0]["error"]


def test_a_call_that_needs_permission_is_asked_for_and_runs_when_allowed():
    writer = Writer()
    asked: list[Any] = []

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> str:
        asked.append((call.name, definition.server, reason))
        return "yes"

    model = ScriptedModel([call("write", path="a"), "Written."])
    seen = run(all_of(Gate(model, [writer], approve=approve).stream("Write")))  # pyright: ignore
    reason = "'write' may change something: the server 'files' is not trusted, or does not say that the tool is read-only."
    assert asked == [("write", "files", reason)]
    assert writer.ran == [{"path": "a"}]
    assert kinds(seen)[1:5] == ["UsageReported", "ApprovalNeeded", "CallStarted", "CallFinished"]


def test_no_means_no_and_the_model_is_told():
    writer = Writer()

    async def approve(*_: Any) -> str:
        return "no"

    model = ScriptedModel([call("write"), "As you wish."])
    reply = run(Gate(model, [writer], approve=approve).run("Write"))  # pyright: ignore
    assert (writer.ran, responses_of(model)) == ([], [{"error": "The user did not allow this call."}])
    assert reply.calls[0].decision is not None
    assert (reply.calls[0].decision.verdict, reply.calls[0].decision.by) == ("deny", "user")


def test_always_is_asked_once_for_a_tool_also_for_calls_that_already_wait():
    writer, asked = Writer(), []

    async def approve(*_: Any) -> str:
        asked.append(1)
        return "always"

    model = ScriptedModel([[call("write", i=1), call("write", i=2)], call("write", i=3), "Done."])
    run(Gate(model, [writer], approve=approve).run("Write"))  # pyright: ignore
    assert (asked, writer.ran) == ([1], [{"i": 1}, {"i": 2}, {"i": 3}])


def test_an_edited_call_runs_as_edited_and_the_model_is_told():
    writer = Writer()

    async def approve(call: FunctionCall, *_: Any) -> FunctionCall:
        return replace(call, args={"path": "safe"})

    model = ScriptedModel([call("write", path="danger"), "Done."])
    reply = run(Gate(model, [writer], approve=approve).run("Write"))
    assert (writer.ran, reply.calls[0].edited) == ([{"path": "safe"}], True)
    assert "The user changed the arguments" in responses_of(model)[0]["notes"][0]
    assert reply.contents[1]["parts"] == [call("write", path="danger")]


def test_an_invalid_edit_is_blamed_on_the_person_and_reported():
    async def approve(call: FunctionCall, *_: Any) -> FunctionCall:
        return replace(call, args={"a": 1})

    model = ScriptedModel([call("add", a=1, b=2), "Done."])
    gate = Gate(model, [add], policy=Policy(rules=["ask add"]), approve=approve)
    seen = run(all_of(gate.stream("Add")))
    problem = "The arguments of 'add' are not valid: 'b' is required but missing."
    sentence = f"{problem} The user wrote them, not you; the call did not run."
    assert responses_of(model)[0]["error"] == sentence
    assert [(event.code, event.message) for event in seen if isinstance(event, events.Notice)] == [
        ("edit_refused", sentence)
    ]


def test_approval_that_fails_or_says_nonsense_is_a_no(caplog: pytest.LogCaptureFixture):
    writer = Writer()
    answers = iter([RuntimeError("broken"), "maybe"])

    async def approve(*_: Any) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    model = ScriptedModel([[call("write"), call("write")], "Done."])
    with caplog.at_level(logging.CRITICAL, "callgate"):
        run(Gate(model, [writer], approve=approve).run("Write"))
    assert writer.ran == []
    assert responses_of(model) == [
        {"error": "The user did not allow this call. Asking failed (RuntimeError)."},
        {"error": "The user did not allow this call. Asking failed (UsageError)."},
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            True,
            "UsageError: the answer to 'write' is True: use 'yes', 'no', 'always', 'later', an Answered or a FunctionCall; "
            "for True use 'yes'",
        ),
        (
            None,
            "UsageError: the answer to 'write' is None: use 'yes', 'no', 'always', 'later', an Answered or a FunctionCall",
        ),
        (RuntimeError("broken"), "RuntimeError: broken"),
    ],
)
def test_a_program_learns_from_an_event_that_its_approve_failed(answer: Any, said: str):
    def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def story() -> list[events.Event]:
        gate = Gate(ScriptedModel([call("write"), "Done."]), [Writer()], approve=approve)
        return [event async for event in gate.stream("Write")]

    sentence = f"approve failed for 'write', so the call is denied: {said}"
    assert [event for event in run(story()) if isinstance(event, events.Notice)] == [
        events.Notice("approve_failed", sentence, "warning")
    ]


def test_a_policy_names_a_rule_that_no_tool_of_the_gate_can_fit():
    def run_it(argv: list[str]) -> str:
        return "ran"

    rules = ["allow run_it", Rule(verdict="deny", tool="run_it", args={"command": "git push*"})]
    gate = Gate(ScriptedModel([call("run_it", argv=["git", "push"]), "Done."]), [run_it], policy=Policy(rules=rules))
    assert len(gate.policy.problems) == 1
    assert "has no argument 'command'" in gate.policy.problems[0]
    assert run(gate.run("Push")).calls[0].state == "denied"


def test_a_run_can_pause_for_approval_and_go_on_elsewhere_with_what_its_siblings_did():
    store, writer, looked = MemoryStore(), Writer(), []

    @tool(read_only=True)
    def peek() -> str:
        looked.append(1)
        return "seen"

    async def later(*_: Any) -> str:
        return "later"

    def gate(script: list[Any]) -> Gate:
        return Gate(ScriptedModel(script), [writer, peek], approve=later, store=store)  # pyright: ignore

    paused = run(gate([[call("write"), call("peek")]]).run("Write", session="s"))
    assert (paused.finish_reason, [record.call.name for record in paused.approvals]) == ("approval_needed", ["write"])
    again = run(gate([]).run(session="s"))
    assert again.finish_reason == "approval_needed"
    with pytest.raises(UsageError, match="waits for no answer to 'call_x'"):
        run(gate([]).run(session="s", answers={"call_x": "yes"}))
    last = gate(["Written."])
    reply = run(last.run(session="s", answers={paused.approvals[0].call.id: "yes"}))
    assert (reply.text, writer.ran, looked) == ("Written.", [{}], [1])


def test_the_policys_default_decides_for_every_tool():
    async def never(*_: Any) -> str:
        raise AssertionError("nobody is to be asked")

    writer = Writer()
    run(Gate(ScriptedModel([call("write"), "ok"]), [writer], policy=Policy(default="allow"), approve=never).run("Go"))  # pyright: ignore
    assert writer.ran == [{}]
    model = ScriptedModel([call("add", a=1, b=1), "No."])
    gate = Gate(model, [add], policy=Policy(default="deny"))
    run(gate.run("Go"))
    assert (model.requests[0].tools, gate.definitions) == ([], [])
    assert "not allowed" in responses_of(model)[0]["error"]


# Cancellation -----------------------------------------------------------------------------------------------------------


def test_cancelling_a_session_ends_its_run_in_good_order():
    async def story() -> Any:
        started = asyncio.Event()

        async def wait() -> None:
            started.set()
            await asyncio.Event().wait()

        gate = Gate(ScriptedModel([[call("wait"), call("wait")], "Back again."]), [wait], limits=Limits(parallel=1))
        task = asyncio.create_task(gate.run("Go", session="s"))
        await started.wait()
        assert gate.cancel("s")
        assert not gate.cancel("s")
        cancelled = await task
        assert not gate.cancel("s")
        assert not gate.cancel("unknown")
        return cancelled, await gate.run("Hello?", session="s")

    cancelled, after = run(story())
    assert cancelled.finish_reason == "cancelled"
    assert [record.state for record in cancelled.calls] == ["cancelled", "cancelled"]
    assert after.text == "Back again."
    assert validate(after.contents) == []


def test_cancelling_while_text_streams_keeps_what_was_seen():
    async def story() -> Any:
        gate = Gate(ScriptedModel(["One two three four.", "Five."], piece_chars=4))
        last: events.Event | None = None
        async for event in gate.stream("Count", session="s"):
            if isinstance(event, events.TextDelta):
                gate.cancel("s")
            last = event
        assert isinstance(last, events.RunEnded)
        return last.reply, await gate.run("Go on", session="s")

    cancelled, after = run(story())
    assert (cancelled.finish_reason, cancelled.text[:4]) == ("cancelled", "One ")
    assert [content["role"] for content in after.contents] == ["user", "model", "user", "model"]


def test_leaving_a_stream_early_cancels_the_run_and_keeps_the_conversation():
    async def story() -> Any:
        stopped = asyncio.Event()

        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        gate = Gate(ScriptedModel([call("wait"), "Back."]), [wait])
        stream = gate.stream("Go", session="s")
        async for event in stream:
            if isinstance(event, events.CallStarted):
                break
        await stream.aclose()  # pyright: ignore
        assert stopped.is_set()
        return await gate.run("Hello?", session="s")

    reply = run(story())
    assert reply.text == "Back."
    assert validate(reply.contents) == []


def test_cancelling_the_task_of_a_run_leaves_a_valid_history():
    async def story() -> Any:
        started = asyncio.Event()

        async def wait() -> None:
            started.set()
            await asyncio.Event().wait()

        gate = Gate(ScriptedModel([call("wait"), "Back."]), [wait])
        task = asyncio.create_task(gate.run("Go", session="s"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await gate.run("Hello?", session="s")

    reply = run(story())
    assert "cancelled" in reply.contents[2]["parts"][0]["functionResponse"]["response"]["error"]


@pytest.mark.parametrize("way", ["a stream that was left", "a task that nobody waits for"])
def test_a_program_that_ends_in_the_middle_of_a_call_does_not_hang(way: str):
    store = MemoryStore()

    async def story() -> None:
        started = asyncio.Event()

        async def slow() -> None:
            started.set()
            await asyncio.Event().wait()

        gate = Gate(ScriptedModel([call("slow")]), [slow], store=store)
        if way == "a task that nobody waits for":
            task = asyncio.create_task(gate.run("Go", session="s"))
            await started.wait()
            assert not task.done()
            return
        async for event in gate.stream("Go", session="s"):
            if isinstance(event, events.CallStarted):
                await started.wait()
                break

    run(story())
    ended = [fact for fact in run(store.load("s")) if isinstance(fact, facts.CallEnded)]
    assert [fact.result.status for fact in ended] == ["cancelled"]


def test_cancelling_while_somebody_is_asked_leaves_nothing_waiting():
    writer = Writer()

    async def story() -> Any:
        asked = asyncio.Event()

        async def approve(*_: Any) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "yes"

        gate = Gate(ScriptedModel([call("write")]), [writer], approve=approve)  # pyright: ignore
        task = asyncio.create_task(gate.run("Go", session="s"))
        await asked.wait()
        gate.cancel("s", "Too slow.")
        reply = await task
        assert len(asyncio.all_tasks()) == 1
        return reply

    reply = run(story())
    assert (reply.finish_reason, writer.ran) == ("cancelled", [])
    assert "Too slow." in reply.contents[-1]["parts"][0]["functionResponse"]["response"]["error"]


# Recovery ---------------------------------------------------------------------------------------------------------------


class DyingStore(MemoryStore):
    """Takes `facts_left` more facts; then the process is dead."""

    def __init__(self, facts_left: int) -> None:
        super().__init__()
        self.facts_left = facts_left

    async def append(self, lease: Any, facts: Any, *, position: int, durable: bool = False) -> None:
        if self.facts_left < len(facts):
            raise KeyboardInterrupt("killed")
        self.facts_left -= len(facts)
        await super().append(lease, facts, position=position, durable=durable)


@pytest.mark.parametrize("facts_left", range(2, 40))
def test_a_process_that_dies_at_any_journal_write_repeats_no_side_effect(facts_left: int):
    effects: list[int] = []

    def send(i: int) -> str:
        effects.append(i)
        return f"sent {i}"

    script = [[call("send", i=1), call("look", city="Oslo")], call("send", i=2), "All sent."]
    store = DyingStore(facts_left)
    with contextlib.suppress(StoreError):  # Which is what a store's own KeyboardInterrupt becomes.
        run(Gate(ScriptedModel(script), [send, look], store=store).run("Go", session="s"))
    store.facts_left = 1000
    given = run(store.load("s"))
    answers = sum(isinstance(fact, facts.ModelAnswered) for fact in given)
    model = ScriptedModel([*script[answers:], "Extra."])
    prompt = None if any(isinstance(fact, facts.RunStarted) for fact in given) and answers < 3 else "Once more"
    reply = run(Gate(model, [send, look], store=store).run(prompt, session="s"))
    assert len(effects) == len(set(effects))
    assert validate(reply.contents) == []
    assert reply.ok


def test_a_tool_that_is_gone_when_a_session_goes_on_is_told_to_the_model():
    store, writer = MemoryStore(), Writer()

    async def later(*_: Any) -> str:
        return "later"

    run(Gate(ScriptedModel([call("write")]), [writer], approve=later, store=store).run("Go", session="s"))  # pyright: ignore
    model = ScriptedModel(["I see."])
    run(Gate(model, [add], store=store).run(session="s"))
    assert responses_of(model, 0) == [{"error": "There is no tool named 'write'. The tools are 'add'."}]


# Other ways in ----------------------------------------------------------------------------------------------------------


def test_one_step_asks_once_and_runs_nothing():
    model = ScriptedModel([["I add. ", call("add", a=1, b=2)], "Hi."])
    gate = Gate(model, [add])
    stepped = run(gate.step([{"role": "user", "parts": [text("1 + 2?")]}]))
    assert (stepped.text, [c.name for c in stepped.calls], stepped.finish_reason) == ("I add. ", ["add"], "STOP")
    assert run(gate.step("Hello")).text == "Hi."


def test_sync_code_runs_a_gate_also_inside_a_running_loop():
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    def who() -> str:
        return tenant.get()

    model = ScriptedModel([call("who"), "ok", "again"])
    with Gate(model, [who]) as gate:
        token = tenant.set("acme")
        first = gate.run_sync("Who?")
        tenant.reset(token)
        assert first.calls[0].result is not None
        assert first.calls[0].result.value == "acme"

        async def inside() -> str:
            return gate.run_sync("And?", session=first.session).text

        assert asyncio.run(inside()) == "again"
    gate.close()


def test_errors_reach_sync_code():
    with Gate(ScriptedModel([])) as gate, pytest.raises(ScriptExhaustedError):
        gate.run_sync("Go")


def test_a_gate_is_an_async_context_manager():
    async def story() -> str:
        async with Gate(ScriptedModel(["Hi."])) as gate:
            return (await gate.run("Hello")).text

    assert run(story()) == "Hi."


def test_wrong_arguments_of_a_gate_say_what_to_do():
    with pytest.raises(UsageError, match="is not a model"):
        Gate(42)  # pyright: ignore
    with pytest.raises(UsageError, match="mode='magic': use one of 'auto', 'native', 'prompted'"):
        Gate(ScriptedModel([]), mode="magic")  # pyright: ignore
    with pytest.raises(UsageError, match="use a path for SQLite, or a URL that begins with postgresql://"):
        Gate(ScriptedModel([]), store="mysql://x")
    for store in (":memory:", "sqlite://", "sqlite:///:memory:", "sqlite:/x.db", "postgresql:/x", "file:x.db?mode=memory"):
        with pytest.raises(UsageError, match="use a path for SQLite"):
            Gate(ScriptedModel([]), store=store)
    with pytest.raises(UsageError, match=r"neither one of .* nor a tool \('add'\)"):
        run(Gate(ScriptedModel([]), [add]).run("Go", tool_choice="nope"))
    with pytest.raises(UsageError, match="needs tools"):
        run(Gate(ScriptedModel([])).run("Go", tool_choice="required"))
    with pytest.raises(UsageError, match="nothing to continue"):
        run(Gate(ScriptedModel([])).run())
    with pytest.raises(UsageError, match="there is no session 'nosuch': pass a prompt to start one"):
        run(Gate(ScriptedModel([])).run(session="nosuch"))


def test_one_tool_can_be_required():
    model = ScriptedModel([call("add", a=1, b=1), "2"])
    run(Gate(model, [add, look]).run("Go", tool_choice="add"))
    assert model.requests[0].tool_config == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}}
    assert model.requests[1].tool_config == {"functionCallingConfig": {"mode": "AUTO"}}


def test_a_model_may_pass_on_notices():
    class Chatty:
        name = "chatty"

        async def generate(self, request: Any) -> Any:
            yield events.Notice("waiting", "The server asked for patience.")
            yield answer("Here.")

    seen = run(all_of(Gate(Chatty()).stream("Go")))
    assert [event.code for event in seen if isinstance(event, events.Notice)] == ["waiting"]
    assert run(Gate(Chatty()).step("Go")).text == "Here."


def test_a_scripted_model_refuses_a_history_that_the_api_would_refuse():
    model = ScriptedModel(["x"])
    with pytest.raises(ConversationInvalidError, match="have no responses"):
        run(Gate(model, [add]).step([{"role": "user", "parts": [text("a")]}, {"role": "model", "parts": [call("add")]}]))


def test_old_sessions_leave_the_cache_and_come_back_from_the_store(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callgate.run.sessions.SESSIONS_CACHED", 2)
    gate = Gate(ScriptedModel([str(i) for i in range(6)]))

    async def story() -> Any:
        for name in ("a", "b", "c", "d"):
            await gate.run("Hi", session=name)
        return await gate.run("Hi again", session="a")

    assert len(run(story()).contents) == 4


def test_several_threads_share_one_gate():
    gate = Gate(ScriptedModel(["Hi."], repeat_last=True))
    replies: list[str] = []
    threads = [threading.Thread(target=lambda: replies.append(gate.run_sync("Hello").text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert replies == ["Hi."] * 8
    assert sum(thread.name == "callgate-loop" for thread in threading.enumerate()) == 1
    gate.close()


def test_a_tool_that_cannot_be_declared_is_left_out_and_takes_nobody_down():
    class Broken:
        definition = ToolDefinition(
            name="broken", input_schema={"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
        )

        def problems(self, args: Any) -> list[str]:
            return []

        async def run(self, args: Any, context: ToolContext) -> object:
            raise AssertionError("it must not run")

    model = ScriptedModel([[call("broken", a=1), call("add", a=1, b=2)], "3"])
    seen = run(all_of(Gate(model, [Broken(), add]).stream("Go")))
    assert model.requests[0].tool_names == ["add"]
    assert [event.code for event in seen if isinstance(event, events.Notice)] == ["tool_left_out"]
    refused, result = responses_of(model)
    assert "'broken'" in refused["error"]
    assert result == {"result": 3}


def test_a_run_can_be_watched_and_says_what_its_gate_is_made_of():
    seen: list[str] = []
    open_then: list[str] = []

    async def add_one(a: int) -> int:
        """Adds one."""
        open_then.extend(record.state for record in gate.open_calls("s"))
        return a + 1

    async def watch(event: Any) -> None:
        seen.append(type(event).__name__)

    store = MemoryStore()
    gate = Gate(ScriptedModel([call("add_one", a=1), "Two."]), [add_one], store=store, mode="native")
    reply = asyncio.run(gate.run("Add.", session="s", watch=watch))
    assert reply.text == "Two."
    assert (seen[0], seen[-1]) == ("CallProposed", "RunEnded")
    assert open_then == ["started"]
    assert (gate.open_calls("s"), gate.open_calls("never")) == ([], [])
    assert (gate.store, gate.mode, gate.model.name, gate.approve) == (store, "native", "scripted", None)
    assert [definition.name for definition in gate.tools.definitions] == list(gate.declaration.names.values())
    assert gate.limits == Limits()


def test_options_replace_the_system_text_and_merge_the_settings_in_the_same_conversation() -> None:
    class Closing(ScriptedModel):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    model = Closing(["One.", "Two."])
    gate = Gate(model, system="Be brief.", settings={"temperature": 1, "seed": 2})
    other = gate.with_options(system="Be kind.", settings={"temperature": 0})

    async def story() -> None:
        async with gate:
            await gate.run("First.", session="s")
            await other.run("Second.", session="s")
            assert model.closed == 0, "its connections are the gate's"

    asyncio.run(story())
    assert model.closed == 1
    assert [(request.system, request.settings) for request in model.requests] == [
        ("Be brief.", {"temperature": 1, "seed": 2}),
        ("Be kind.", {"temperature": 0, "seed": 2}),
    ]
    assert len(model.requests[1].contents) == 3
    assert (gate.system, dict(other.settings)) == ("Be brief.", {"temperature": 0, "seed": 2})


# Sync callers, threads and event loops ----------------------------------------------------------------------------------


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "callgate-loop"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_forked_child_goes_on_with_the_gate_of_its_parent():
    done = program(
        """
        import asyncio, os, threading
        from callgate import Gate, ScriptedModel
        from callgate.testing import call

        began, go = threading.Event(), threading.Event()

        def wait() -> str:
            began.set()
            go.wait()
            return "done"

        gate = Gate(ScriptedModel([call("wait"), "a", "b"], repeat_last=True), [wait])
        run = threading.Thread(target=lambda: print("parent", gate.run_sync("x", session="busy").text, flush=True))
        run.start()
        began.wait()
        child = os.fork()
        if child == 0:
            replies = [one.run_sync("x", session="s").text for one in (gate, gate.with_options(mode="native"))]
            print("child", *replies, flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go.set()
        run.join()
        print(gate.run_sync("x").text)
        """,
        "-W", "ignore::DeprecationWarning",
    )  # fmt: skip
    assert (done.stdout.splitlines(), done.stderr) == (["child a b", "parent a", "b"], "")


@pytest.mark.parametrize("kind", ["on the loop", "async"])
def test_a_tool_on_the_loop_of_run_sync_that_calls_it_is_told_so(kind: str):
    @tool(run_in="loop")
    def ask() -> str:
        return gate.run_sync("Deeper.").text

    async def ask_async() -> str:
        return gate.run_sync("Deeper.").text

    asking = ask if kind == "on the loop" else ask_async
    name = "ask" if kind == "on the loop" else "ask_async"
    with Gate(ScriptedModel([call(name), "told", "again"]), [asking]) as gate:
        reply = in_thread(lambda: gate.run_sync("Go")).result(30)
        assert "`await gate.run(...)`" in str(reply.calls[0].result.error)
        assert (reply.text, gate.run_sync("And?").text) == ("told", "again")


def test_a_tool_in_a_thread_may_use_run_sync_of_the_gate_that_runs_it():
    def ask() -> str:
        return gate.with_options(ScriptedModel(["deep"])).run_sync("Deeper.").text

    with Gate(ScriptedModel([call("ask"), "ok"]), [ask]) as gate:
        reply = in_thread(lambda: gate.run_sync("Go")).result(30)
        assert reply.calls[0].result.value == "deep"
        assert len(loop_threads()) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["tool", "model", "watch"])
def test_an_interrupt_inside_of_a_run_never_leaves_its_caller_waiting(error: type[BaseException], where: str):
    raised: list[str] = []

    def interrupt(here: str) -> None:
        if here == where and not raised:
            raised.append(here)
            raise error

    async def work() -> str:
        interrupt("tool")
        return "done"

    class Model(ScriptedModel):
        async def generate(self, request: Any) -> Any:
            interrupt("model")
            async for chunk in super().generate(request):
                yield chunk

    async def watched() -> None:
        async def watch(event: Any) -> None:
            interrupt("watch")

        await gate.run("Go", session="s", watch=watch)

    with Gate(Model([call("work"), "ok"], repeat_last=True), [work]) as gate:
        portal = gate._resources.portal
        outcome = in_thread(lambda: portal.run(watched()))
        assert concurrent.futures.wait([outcome], timeout=180).done
        assert isinstance(outcome.exception(), error | CallgateError | None)
        assert in_thread(lambda: gate.run_sync("Still there?", session="t")).result(30).ok
    assert raised == [where]


def test_ctrl_c_leaves_a_run_in_order_and_is_raised_when_that_is_done(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callgate.sync.WIND_DOWN_S", 1000.0)  # Or the wait would end by itself.
    main = threading.main_thread().ident
    assert main == threading.get_ident()

    async def wait() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        await asyncio.Event().wait()

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        gate = Gate(ScriptedModel([call("wait"), "fine"]), [wait])
        with pytest.raises(KeyboardInterrupt):
            gate.run_sync("Go", session="s")
    finally:
        signal.signal(signal.SIGINT, handler)
    reply = gate.run_sync("And now?", session="s")
    assert validate(reply.contents) == []
    assert "cancelled" in str(reply.contents[2])
    monkeypatch.undo()
    gate.close()


def test_gates_that_nobody_closes_leave_no_thread_and_no_descriptor_behind(tmp_path: Path):
    def use() -> None:
        gate = Gate(ScriptedModel([call("add", a=1, b=2), "3"]), [add], store=tmp_path / "s.db")
        assert gate.run_sync("Go").text == "3"

    use()
    gc.collect()
    for thread in loop_threads():
        thread.join(30)
    before = descriptors()
    for _ in range(10):
        use()
    gc.collect()
    for thread in loop_threads():
        thread.join(30)
    assert (loop_threads(), descriptors()) == ([], before)


def test_a_program_that_closes_no_gate_ends_by_itself_and_without_a_warning(tmp_path: Path):
    done = program(
        f"""
        from callgate import Gate, ScriptedModel

        gate = Gate(ScriptedModel(["Hi."], repeat_last=True), store={str(tmp_path / "s.db")!r})
        other = gate.with_options(system="Be kind.")
        gate.__enter__()
        print(gate.run_sync("Hello").text, other.run_sync("Hello").text)
        """,
        "-W", "error",
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hi. Hi.\n", "")


def test_derived_gates_share_one_thread():
    with Gate(ScriptedModel(["Hi."], repeat_last=True)) as gate:
        gate.run_sync("Hello")
        before = descriptors()
        for _ in range(50):
            assert gate.with_options(system="Be kind.").run_sync("Hello").text == "Hi."
            assert gate.with_options(ScriptedModel(["Ho."]), policy=Policy()).run_sync("Hello").text == "Ho."
        assert (len(loop_threads()), descriptors()) == (1, before)
    assert loop_threads() == []


def test_a_gate_and_those_derived_from_it_work_after_it_was_closed():
    with Gate(ScriptedModel(["Hi."], repeat_last=True)) as gate:
        derived = [
            gate.with_options(system="Be kind."),
            gate.with_options(mode="native"),
            gate.with_options(ScriptedModel(["Hi."] * 2)),
        ]
        for one in (gate, *derived):
            one.run_sync("Hello")
    for one in (*derived, gate):
        assert one.run_sync("Hello").text == "Hi."
        one.close()
        assert loop_threads() == []


class Closing(ScriptedModel):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def test_a_derived_gate_closes_its_own_model_and_leaves_what_it_shares_to_those_who_use_it():
    first, second = Closing(["a"], repeat_last=True), Closing(["b"], repeat_last=True)
    with Gate(first) as gate:
        gate.run_sync("Go")
        with gate.with_options(second) as other:
            assert other.run_sync("Go").text == "b"
            other.close()
            assert len(loop_threads()) == 1
        assert (first.closed, second.closed) == (0, 2)
        gate.with_options(policy=Policy()).run_sync("Go")
        assert (first.closed, len(loop_threads())) == (0, 1)
    assert (first.closed, loop_threads()) == (1, [])


def test_a_derived_gate_that_is_used_keeps_the_store_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    gate = Gate(ScriptedModel(["a"], repeat_last=True), store=tmp_path / "s.db")
    other = gate.with_options(ScriptedModel(["b"], repeat_last=True))
    closed: list[bool] = []
    close = gate.store.aclose

    async def aclose() -> None:
        closed.append(True)
        await close()

    monkeypatch.setattr(gate.store, "aclose", aclose)

    async def story() -> None:
        async with other:
            await gate.run("Go", session="s")
            await other.run("Go", session="s")
            assert closed == []
        assert closed == [True]

    run(story())


def test_a_run_is_cancelled_from_another_thread_with_the_same_promise():
    began = threading.Event()

    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    with Gate(ScriptedModel([call("wait"), "fine"]), [wait]) as gate:
        assert gate.cancel("s") is False
        outcome = in_thread(lambda: gate.run_sync("Go", session="s"))
        assert began.wait(30)

        async def from_another_loop() -> bool:
            return gate.cancel("s", "Enough.")

        assert asyncio.run(from_another_loop()) is True
        assert outcome.result(30).finish_reason == "cancelled"
        assert gate.cancel("s") is False


def test_a_cancellation_that_the_loop_of_the_run_does_not_come_to_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callgate.run.sessions.CANCEL_WAIT_S", 0.01)
    began, go = threading.Event(), threading.Event()

    @tool(run_in="loop")
    def block() -> str:
        began.set()
        go.wait(30)
        return "done"

    with Gate(ScriptedModel([call("block"), "fine"]), [block]) as gate:
        outcome = in_thread(lambda: gate.run_sync("Go", session="s"))
        assert began.wait(30)
        assert gate.cancel("s") is False
        go.set()
        assert outcome.result(30).text == "fine"


@pytest.mark.parametrize("way", ["run", "stream", "run_sync", "through another"])
def test_a_tool_that_goes_on_with_its_own_session_is_told_so_at_once(way: str):
    async def ask(context: ToolContext) -> str:
        if way == "stream":
            return str(await all_of(gate.stream("Deeper.", session=context.session)))
        return (await gate.with_options(system="x").run("Deeper.", session=context.session)).text

    def ask_sync(context: ToolContext) -> str:
        return gate.run_sync("Deeper.", session=context.session).text

    async def ask_another(context: ToolContext) -> str:
        model = ScriptedModel([lambda _: call("ask_first", session=context.session), "ok"])
        reply = await gate.with_options(model).run("Deeper.", session="other")
        return str(reply.calls[0].result.error)

    async def ask_first(session: str) -> str:
        return (await gate.run("Deepest.", session=session)).text

    name = {"run_sync": "ask_sync", "through another": "ask_another"}.get(way, "ask")
    gate = Gate(ScriptedModel([call(name), "told"]), [ask, ask_sync, ask_another, ask_first])
    reply = run(gate.run("Go", session="s"))
    assert "which would wait for itself" in str(reply.calls[0].result)
    assert reply.text == "told"
    gate.close()


def test_what_a_tool_has_begun_may_go_on_with_the_session_when_the_run_is_over():
    begun: list[asyncio.Task[Any]] = []

    async def story() -> str:
        over = asyncio.Event()

        async def afterwards(session: str) -> str:
            await over.wait()
            return (await gate.run("And then?", session=session)).text

        async def begin(context: ToolContext) -> str:
            begun.append(asyncio.create_task(afterwards(context.session)))
            return "begun"

        gate = Gate(ScriptedModel([call("begin"), "ok", "later"]), [begin])
        await gate.run("Go", session="s")
        over.set()
        return await begun[0]

    assert run(story()) == "later"


@pytest.mark.parametrize("way", ["run", "stream", "step", "rename"])
def test_without_an_event_loop_of_asyncio_it_is_said_what_callgate_runs_on(way: str):
    gate = Gate(ScriptedModel(["Hi."]))
    coroutine = {
        "run": lambda: gate.run("Hello"),
        "stream": lambda: all_of(gate.stream("Hello")),
        "step": lambda: gate.step("Hello"),
        "rename": lambda: gate.rename("s", "x"),
    }[way]()
    with pytest.raises(UsageError, match=r"callgate runs on asyncio.*anyio with backend='asyncio'.*run_sync"):
        coroutine.send(None)  # As another framework would drive it.


# --- what a gate is given ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"limits": {"turns": 1}}, "limits={'turns': 1}: expected a Limits object"),
        ({"policy": {"default": "deny"}}, "expected a Policy object"),
        ({"approve": "yes"}, "approve='yes': expected a function"),
        ({"settings": [1]}, r"settings=\[1\]: expected names and values"),
        ({"system": 5}, "system=5: expected text"),
        ({"tools": print}, r"expected a list, as in tools=\[get_weather"),
        ({"tools": "google_search"}, "tools='google_search': expected a list"),
        ({"store": 5}, "store=5: use a path"),
    ],
)
def test_what_a_gate_cannot_use_is_refused_when_it_is_built(given: dict[str, Any], expected: str):
    with pytest.raises(UsageError, match=expected):
        Gate(ScriptedModel([]), **given)


def test_no_tools_may_be_said_as_none():
    assert Gate(ScriptedModel([]), None).definitions == []


def test_a_path_is_a_store(tmp_path: Path):
    async def turns() -> int:
        async with Gate(ScriptedModel(["a"]), store=tmp_path / "s.db") as gate:
            first = await gate.run("x")
        async with Gate(ScriptedModel(["b"]), store=tmp_path / "s.db") as gate:
            return len((await gate.run("y", session=first.session)).contents)

    assert asyncio.run(turns()) == 4


def test_a_function_that_is_not_async_can_be_asked_and_holds_nothing_up():
    asked_in: list[str] = []

    def write() -> str:
        return "written"

    def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> Literal["yes"]:
        asked_in.append(threading.current_thread().name)
        return "yes"

    gate = Gate(ScriptedModel([call("write"), "ok"]), [write], policy=Policy(default="ask"), approve=approve)
    reply = asyncio.run(gate.run("x"))
    assert [record.state for record in reply.calls] == ["finished"]
    assert [name != threading.main_thread().name for name in asked_in] == [True]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("text", "history='text': expected a list of contents"),
        ({"contents": []}, "expected a list of contents"),
        ([{"role": "user", "content": "hi"}], r"history\[0\] has 'content' where Gemini's form has 'parts'"),
    ],
)
def test_a_history_of_which_nothing_would_be_left_is_refused(history: Any, expected: str):
    with pytest.raises(UsageError, match=expected):
        asyncio.run(Gate(ScriptedModel(["x"])).run("y", history=history))


def test_a_session_is_named_by_text():
    with pytest.raises(UsageError, match="5 cannot be the id of a session"):
        asyncio.run(Gate(ScriptedModel(["x"])).run("y", session=5))  # type: ignore[arg-type]


def test_the_text_form_of_a_gate_names_its_model_and_its_first_tools() -> None:
    def tool_named(name: str) -> Any:
        def function() -> int:
            """Count."""
            return 1

        function.__name__ = name
        return function

    assert repr(Gate(ScriptedModel([], name="m"))) == "Gate('m', tools=[])"
    gate = Gate(ScriptedModel([], name="m"), [tool_named(f"t{number}") for number in range(7)])
    assert repr(gate) == "Gate('m', tools=[t0, t1, t2, t3, t4, and 2 more])"
