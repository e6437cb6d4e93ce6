"""Histories that stay small: budgets, cuts, summaries, and long results that are read piece by piece."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from callgate import Gate, Limits, Policy, Price, ScriptedModel, UsageError
from callgate.errors import ModelError, ServerUnavailableError
from callgate.events import Notice
from callgate.history.conversation import Conversation
from callgate.history.repair import validate
from callgate.testing import answer, call, text
from callgate.testing.scripted_model import call_with, empty
from callgate.types import Usage

QUARTER = 0.25


def used(tokens: int) -> dict[str, int]:
    return {"promptTokenCount": tokens, "candidatesTokenCount": tokens // 10, "totalTokenCount": tokens + tokens // 10}


def look(city: str) -> str:
    """Looks."""
    return f"{city}: sunny"


def counted(*parts: Any, tokens: int = 100) -> Any:
    return answer(*parts, usage=used(tokens))


# Budgets -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "prices", "reason"),
    [
        (Limits(run_tokens=150), {}, "token_limit"),
        (Limits(run_cost=0.000_3), {"scripted": Price(input=1.0, output=10.0)}, "cost_limit"),
    ],
)
def test_a_run_that_has_spent_its_budget_ends_with_a_reason_and_a_valid_history(
    limits: Limits, prices: dict[str, Price], reason: str
) -> None:
    model = ScriptedModel([counted(call("look", city=str(n))) for n in range(5)])
    gate = Gate(model, [look], limits=limits, prices=prices)
    reply = asyncio.run(gate.run("Go", session="s"))
    assert (reply.finish_reason, len(model.requests), reply.ok) == (reason, 2, False)
    assert [record.state for record in reply.calls] == ["finished", "finished"]
    assert validate(reply.contents, sendable=True) == []


def test_a_session_budget_counts_all_runs_and_refuses_the_next_one_without_asking() -> None:
    model = ScriptedModel([counted(text("One.")), counted(text("Two."))])
    gate = Gate(model, limits=Limits(session_tokens=200))
    replies = [asyncio.run(gate.run(f"{n}", session="s")) for n in range(3)]
    assert [reply.finish_reason for reply in replies] == ["STOP", "STOP", "token_limit"]
    assert len(model.requests) == 2
    # A prompt that nobody answered is not kept.
    assert len(replies[-1].contents) == 4


def test_the_cost_of_a_run_is_told_where_prices_are_known() -> None:
    price = Price(input=2.0, output=10.0, cached=0.5)
    usage = Usage(input_tokens=1_000, cached_tokens=400, output_tokens=50, thought_tokens=50, tool_tokens=100)
    assert price.of(usage) == pytest.approx((700 * 2.0 + 400 * 0.5 + 100 * 10.0) / 1_000_000)
    known = Gate(ScriptedModel([counted(text("Hi."))]), prices={"scripted": Price(input=1.0, output=1.0)})
    assert asyncio.run(known.run("Hi.")).cost == pytest.approx(110 / 1_000_000)
    assert asyncio.run(Gate(ScriptedModel([counted(text("Hi."))])).run("Hi.")).cost is None


# Shortening --------------------------------------------------------------------------------------------------------------


def size_of(contents: list[Any]) -> int:
    return Conversation(contents).size_bytes


@pytest.mark.parametrize("compaction", ["summary", "trim"])
def test_400_turns_stay_under_their_budget_and_every_request_is_valid(compaction: Any) -> None:
    limits = Limits(context_tokens=2_000)

    def reply_to(request: Any) -> Any:
        assert validate(request.contents, sendable=True) == []
        assert size_of(request.contents) * QUARTER <= 2_600
        last = request.contents[-1]["parts"][0]
        if "Sum up this conversation" in last.get("text", ""):
            assert request.definitions == ()
            assert request.declaration.tools == []
            known = re.findall(r"the secret word is (\w+)", str(request.contents))
            return f"The user said that the secret word is {known[0]}. " + "Much was asked. " * 5
        return call("look", city="Oslo " * 10) if "text" in last else "Sunny. " * 10

    model = ScriptedModel([reply_to], repeat_last=True)
    gate = Gate(model, [look], limits=limits, compaction=compaction)

    async def story() -> Any:
        reply = await gate.run("Remember: the secret word is heron.", session="s")
        for turn in range(400):
            reply = await gate.run(f"Question {turn}?", session="s")
            assert validate(reply.contents) == []
        return reply

    reply = asyncio.run(story())
    assert ("heron" in str(reply.contents)) is (compaction == "summary")
    assert size_of(reply.contents) * QUARTER <= 2_600


@pytest.mark.parametrize("summary", [ServerUnavailableError("503"), empty(), call("look", city="Oslo"), "  "])
def test_a_summary_that_fails_costs_the_oldest_turns_and_not_the_run(summary: Any) -> None:
    def fail(request: Any) -> Any:
        if "Sum up" in str(request.contents[-1]):
            return summary
        return "Fine. " * 60

    gate = Gate(ScriptedModel([fail], repeat_last=True), limits=Limits(context_tokens=200))

    async def story() -> tuple[list[Notice], Any]:
        notices: list[Notice] = []
        reply: Any = None
        for turn in range(5):
            async for event in gate.stream(f"Question {turn}? " + "And so on. " * 20, session="s"):
                notices += [event] if isinstance(event, Notice) else []
                reply = getattr(event, "reply", reply)
        return notices, reply

    notices, reply = asyncio.run(story())
    assert {notice.code for notice in notices} == {"summary_failed", "history_shortened"}
    assert validate(reply.contents) == []
    assert reply.ok


def test_the_newest_turn_is_never_cut_even_if_it_is_too_long() -> None:
    model = ScriptedModel(["Fine."])
    reply = asyncio.run(Gate(model, limits=Limits(context_tokens=100)).run("word " * 1_000))
    assert reply.text == "Fine."
    assert len(model.requests) == 1


def test_an_unknown_way_of_shortening_is_refused() -> None:
    with pytest.raises(UsageError, match="use 'summary' or 'trim'"):
        Gate(ScriptedModel([]), compaction="magic")  # pyright: ignore


# Long results ------------------------------------------------------------------------------------------------------------

LONG = "".join(f"line {number}\n" for number in range(2_000))


def log() -> str:
    """Reads the log."""
    return LONG


def test_a_long_result_is_shown_in_part_and_read_on_by_a_tool_that_appears_with_it() -> None:
    def read_on(request: Any) -> Any:
        response = request.contents[-1]["parts"][0]["functionResponse"]["response"]
        assert len(str(response["result"])) <= 500
        [note] = response["notes"]
        found = re.search(r"Call read_result with id='([^']+)' to read them", note)
        assert found is not None
        return reading(found[1], 5_000)

    model = ScriptedModel([call("log"), read_on, "Done."])
    gate = Gate(model, [log], limits=Limits(output_chars=500))
    assert [definition.name for definition in gate.definitions] == ["log"]
    reply = asyncio.run(gate.run("Read the log.", session="s"))
    assert [request.tool_names for request in model.requests] == [["log"], ["log", "read_result"], ["log", "read_result"]]
    piece = reply.calls[1].result
    assert piece is not None
    assert piece.value == {"text": LONG[5_000:5_400], "start": 5_000, "end": 5_400, "total": len(LONG)}


def reading(call_id: str, start: int) -> Any:
    return call_with("read_result", {"id": call_id, "start": start, "chars": 400})


def test_what_was_left_out_can_still_be_read_when_another_process_goes_on(tmp_path: Any) -> None:
    store = str(tmp_path / "sessions.db")
    limits = Limits(output_chars=500)
    first = asyncio.run(
        Gate(ScriptedModel([call("log"), "Done."]), [log], limits=limits, store=store).run("Go", session="s")
    )
    call_id = first.calls[0].call.id
    model = ScriptedModel([reading(call_id, 0), reading("nobody", 0), "Done."])
    second = asyncio.run(Gate(model, [log], limits=limits, store=store).run("And?", session="s"))
    results = [record.result for record in second.calls]
    assert results[0] is not None
    assert results[0].value["text"] == LONG[:400]
    assert results[1] is not None
    assert results[1].error == "There is no result of a call with the id 'nobody' in this conversation."


def test_a_tool_of_the_users_own_with_that_name_stays() -> None:
    def read_result(id: str) -> str:
        """Mine."""
        return id

    gate = Gate(ScriptedModel(["Hi."]), [read_result])
    assert [definition.description for definition in gate.definitions] == ["Mine."]


# When somebody asks for it ------------------------------------------------------------------------------------------------


def test_everything_before_the_last_turn_is_summed_up_when_somebody_asks_for_it() -> None:
    model = ScriptedModel([text("One."), text("Two."), text("They counted."), text("Three.")])
    gate = Gate(model)
    for said in ("1", "2"):
        asyncio.run(gate.run(said, session="s"))
    assert asyncio.run(gate.compact("s")) == 2
    reply = asyncio.run(gate.run("3", session="s"))
    assert "They counted." in str(reply.contents[0])
    assert [content["parts"][0]["text"] for content in reply.contents[1:]] == ["2", "Two.", "3", "Three."]
    assert validate(reply.contents) == []


def test_where_there_is_no_summary_to_be_had_nothing_is_left_out() -> None:
    for failing in (ServerUnavailableError("no"), text(" ")):
        model = ScriptedModel([text("One."), text("Two."), failing, text("Three.")])
        gate = Gate(model)
        for said in ("1", "2"):
            asyncio.run(gate.run(said, session="s"))
        with pytest.raises(ModelError):
            asyncio.run(gate.compact("s"))
        assert len(asyncio.run(gate.run("3", session="s")).contents) == 6


def test_a_history_can_be_cut_without_a_summary_and_a_short_one_is_left_alone() -> None:
    gate = Gate(ScriptedModel([text("One."), text("Two.")]), compaction="trim")
    assert asyncio.run(gate.compact("s")) == 0
    for said in ("1", "2"):
        asyncio.run(gate.run(said, session="s"))
    assert (asyncio.run(gate.compact("s")), asyncio.run(gate.compact("s"))) == (2, 0)


def test_a_run_that_waits_is_not_summed_up() -> None:
    async def later(*_: Any) -> Any:
        return "later"

    gate = Gate(ScriptedModel([call("look", city="x")]), [look], policy=Policy(default="ask"), approve=later)
    assert asyncio.run(gate.run("1", session="s")).finish_reason == "approval_needed"
    with pytest.raises(UsageError, match="in the middle of a run"):
        asyncio.run(gate.compact("s"))


def test_another_policy_holds_from_the_next_run_on_and_the_rest_is_shared() -> None:
    model = ScriptedModel([call("look", city="x"), text("No."), call("look", city="x"), text("Yes.")])
    strict = Gate(model, [look], policy=Policy(default="deny"))
    assert [record.state for record in asyncio.run(strict.run("1", session="s")).calls] == ["denied"]
    free = strict.with_options(policy=Policy(default="allow"))
    assert (free.model.name, free.mode, strict.policy.default, free.policy.default) == ("scripted", "auto", "deny", "allow")
    assert [record.state for record in asyncio.run(free.run("2", session="s")).calls] == ["finished"]
