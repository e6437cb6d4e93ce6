"""Whole sessions: how they stand, taking turns back, copies, documents, and what a resumed run tells."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Gate, Limits, Policy, ScriptedModel, ToolContext, UsageError, tool
from callgate.content.read import parts_of
from callgate.errors import ConnectionLostError, JsonError, ServerUnavailableError, SessionBusyError, SessionChangedError
from callgate.events import Notice
from callgate.history.repair import validate
from callgate.machine import facts
from callgate.machine.facts import Fact
from callgate.machine.machine import RunMachine
from callgate.sessions import (
    Failure,
    exchanges_of,
    export_session,
    facts_of,
    find,
    fork,
    import_session,
    load,
    rewind,
    state_from_facts,
)
from callgate.store import MemoryStore, Store, open_store
from callgate.testing import answer, call, text
from callgate.timeline import spans_of
from callgate.types import FunctionCall, ToolDefinition, ToolResult

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))


def note(word: str) -> str:
    """Notes a word."""
    return f"noted {word}"


def talk(store: MemoryStore, session: str, *script: Any, said: Sequence[str], **options: Any) -> Gate:
    gate = Gate(ScriptedModel(list(script)), [note], store=store, **options)
    for prompt in said:
        asyncio.run(gate.run(prompt, session=session))
    return gate


def three_turns(store: MemoryStore, session: str = "s") -> Gate:
    script = [call("note", word="a"), text("One."), text("Two."), call("note", word="c"), text("Three.")]
    return talk(store, session, *script, said=["first", "second", "third"])


def texts(contents: Sequence[Any]) -> list[str]:
    return [part["text"] for content in contents for part in content["parts"] if "text" in part]


def facts_in(store: MemoryStore, session: str = "s") -> list[Fact]:
    return asyncio.run(store.load(session))


def test_long_results_are_what_they_were_however_a_session_is_looked_at(tmp_path: Path) -> None:
    def table(number: int) -> list[dict[str, Any]]:
        """A table."""
        return [{"row": row, "text": f"{number} – a line of some length\n", "share": row / 7} for row in range(50)]

    async def seen(store: Store) -> list[Any]:
        script = [[call("table", number=1), call("table", number=2)], call("table", number=3), text("Done."), text("Well.")]
        gate = Gate(ScriptedModel(script), [table], store=store)
        reply = await gate.run("Go.", session="s")
        assert [record.result.value for record in reply.calls if record.result] == [table(1), table(2), table(3)]
        assert (await load(store, "s")).reply == reply
        await fork(store, "s", "copy")
        again = await gate.run("And?", session="copy")
        assert again.contents[: len(reply.contents)] == reply.contents
        await rewind(store, "copy")
        assert (await load(store, "copy")).reply.contents == reply.contents
        assert json.loads(json.dumps(export_session({}, await store.load("s"))))["contents"] == reply.contents
        return [parts_of(content) for content in reply.contents]

    assert asyncio.run(seen(MemoryStore())) == asyncio.run(seen(open_store(str(tmp_path / "s.db"))))


# Turns -------------------------------------------------------------------------------------------------------------------


def test_a_rewind_takes_back_turns_and_the_calls_in_them_and_the_journal_keeps_them() -> None:
    store = MemoryStore()
    three_turns(store)
    before = facts_in(store)
    started = [fact.id for fact in before if isinstance(fact, facts.CallStarted)]
    asked: list[tuple[str, list[str]]] = []

    def undo(session: str, call_ids: Sequence[str]) -> list[str]:
        asked.append((session, list(call_ids)))
        return ["c.txt is as it was before"]

    taken = asyncio.run(rewind(store, "s", exchanges=2, undo=undo))
    assert ([exchange.said for exchange in taken.exchanges], taken.notes) == (
        ["second", "third"],
        ["c.txt is as it was before"],
    )
    assert asked == [("s", started[1:])]
    assert facts_in(store)[: len(before)] == before
    assert texts(asyncio.run(load(store, "s")).reply.contents) == ["first", "One."]


def test_a_conversation_goes_on_after_a_rewind_as_if_the_turns_had_not_been() -> None:
    store = MemoryStore()
    three_turns(store)
    asyncio.run(rewind(store, "s", exchanges=1))
    talk(store, "s", text("Other."), said=["another third"])
    assert texts(asyncio.run(load(store, "s")).reply.contents) == [
        "first", "One.", "second", "Two.", "another third", "Other.",
    ]  # fmt: skip
    assert [turn.said for turn in exchanges_of(facts_in(store))] == ["first", "second", "another third"]
    asyncio.run(rewind(store, "s", exchanges=3))
    assert asyncio.run(load(store, "s")).reply.contents == []


def test_a_gate_that_has_the_session_in_hand_sees_a_rewind_by_somebody_else() -> None:
    store = MemoryStore()
    gate = Gate(ScriptedModel([text("One."), text("Two."), text("Three.")]), store=store)
    for prompt in ("first", "second"):
        asyncio.run(gate.run(prompt, session="s"))
    asyncio.run(rewind(store, "s"))
    assert texts(asyncio.run(gate.run("third", session="s")).contents) == ["first", "One.", "third", "Three."]


@pytest.mark.parametrize("turns", [0, 4, -1])
def test_turns_that_are_not_there_cannot_be_taken_back(turns: int) -> None:
    store = MemoryStore()
    three_turns(store)
    before = facts_in(store)
    with pytest.raises(UsageError, match="has 3 exchanges"):
        asyncio.run(rewind(store, "s", exchanges=turns))
    assert facts_in(store) == before


def test_a_turn_that_was_left_out_of_a_shortened_history_comes_back_by_a_rewind() -> None:
    store = MemoryStore()
    said = [f"{number} " + "word " * 60 for number in range(6)]
    model = ScriptedModel([text("Answer.")], repeat_last=True)
    gate = Gate(model, store=store, limits=Limits(context_tokens=300), compaction="trim")
    for prompt in said:
        asyncio.run(gate.run(prompt, session="s"))
    assert any(isinstance(fact, facts.HistoryShortened) for fact in facts_in(store))
    turns = exchanges_of(facts_in(store))
    assert [turn.said.split()[0] for turn in turns] == list("012345")
    assert turns[0].kept is None
    asyncio.run(rewind(store, "s", exchanges=4))
    contents = asyncio.run(load(store, "s")).reply.contents
    assert [line.split()[0] for line in texts(contents)] == ["0", "Answer.", "1", "Answer."]
    assert validate(contents) == []


def test_a_prompt_that_came_to_nothing_is_kept_with_its_error_and_taken_back_alone() -> None:
    store = MemoryStore()
    with pytest.raises(ServerUnavailableError):
        talk(store, "s", text("One."), ServerUnavailableError("down"), said=["first", "second"])
    first, failed = exchanges_of(facts_in(store))
    assert (first.said, first.is_answered, first.finish_reason, first.failure) == ("first", True, "STOP", None)
    assert (failed.said, failed.is_answered, failed.finish_reason) == ("second", False, "error")
    assert failed.failure == Failure(message="down", error="ServerUnavailableError")
    assert failed.content == {"role": "user", "parts": [{"text": "second"}]}
    taken = asyncio.run(rewind(store, "s"))
    assert [exchange.id for exchange in taken.exchanges] == [failed.id]
    assert [exchange.id for exchange in exchanges_of(facts_in(store))] == [first.id]
    assert texts(asyncio.run(load(store, "s")).reply.contents) == ["first", "One."]


def test_a_failed_exchange_stays_before_those_that_follow_it() -> None:
    store = MemoryStore()
    script = [text("One."), ServerUnavailableError("down"), text("Three."), text("Four.")]
    gate = Gate(ScriptedModel(script), store=store)
    for prompt in ("first", "second", "third", "fourth"):
        with contextlib.suppress(ServerUnavailableError):
            asyncio.run(gate.run(prompt, session="s"))
    known = exchanges_of(facts_in(store))
    assert [exchange.said for exchange in known] == ["first", "second", "third", "fourth"]
    with pytest.raises(SessionChangedError):
        asyncio.run(rewind(store, "s", expected=[known[2].id]))
    asyncio.run(rewind(store, "s", expected=[known[2].id, known[3].id]))
    assert [exchange.said for exchange in exchanges_of(facts_in(store))] == ["first", "second"]
    asyncio.run(fork(store, "s", "copy", exchange=known[1].id, before=True))
    assert [exchange.said for exchange in exchanges_of(facts_in(store, "copy"))] == ["first"]
    with pytest.raises(SessionChangedError):
        asyncio.run(fork(store, "s", "other", exchange=known[3].id))


def test_text_that_was_shown_before_an_error_is_kept_with_the_exchange() -> None:
    class Breaking(ScriptedModel):
        async def generate(self, request: Any) -> Any:
            yield {"candidates": [{"content": {"role": "model", "parts": [{"text": "It began so"}]}}]}
            raise ConnectionLostError("the line broke")

    store = MemoryStore()
    with pytest.raises(ConnectionLostError):
        asyncio.run(Gate(Breaking([]), store=store).run("Go.", session="s"))
    (exchange,) = exchanges_of(facts_in(store))
    assert exchange.failure == Failure(message="the line broke", error="ConnectionLostError", partial="It began so")


def test_a_failed_prompt_that_is_sent_again_takes_the_place_of_the_first_try() -> None:
    journal = [begun("Go."), facts.ModelFailed(message="down"), begun("Go."), facts.ModelFailed(message="still down")]
    (exchange,) = exchanges_of(journal)
    assert exchange.failure == Failure(message="still down")


def test_a_cancelled_prompt_without_an_answer_is_kept() -> None:
    store = MemoryStore()
    told = [begun("first"), facts.Cancelled()]

    async def story() -> None:
        lease = await store.acquire("s", owner="me")
        await store.append(lease, told, position=0)
        await store.release(lease)

    asyncio.run(story())
    (exchange,) = exchanges_of(facts_in(store))
    assert (exchange.said, exchange.is_answered, exchange.finish_reason, exchange.failure) == (
        "first",
        False,
        "cancelled",
        None,
    )


def test_a_run_that_goes_on_after_an_error_has_no_error_any_more() -> None:
    store = MemoryStore()
    with pytest.raises(ServerUnavailableError):
        talk(store, "s", call("note", word="a"), ServerUnavailableError("down"), said=["first"])
    (exchange,) = exchanges_of(facts_in(store))
    assert (exchange.is_answered, exchange.failure) == (True, Failure(message="down", error="ServerUnavailableError"))
    asyncio.run(Gate(ScriptedModel([text("Done.")]), [note], store=store).run(None, session="s"))
    (exchange,) = exchanges_of(facts_in(store))
    assert (exchange.finish_reason, exchange.failure) == ("STOP", None)


def test_the_exchanges_of_a_damaged_journal_are_those_that_can_be_read() -> None:
    odd = facts.ModelAnswered(content={"role": "model", "parts": 7}, finish_reason="STOP")  # type: ignore[typeddict-item]
    journal = [begun("first"), odd, begun("second")]
    assert [exchange.said for exchange in exchanges_of(journal)] == ["first", "second"]


def test_a_session_that_is_in_use_is_not_rewound() -> None:
    store = MemoryStore()
    three_turns(store)

    async def story() -> None:
        await store.acquire("s", owner="somebody")
        with pytest.raises(SessionBusyError):
            await rewind(store, "s")

    asyncio.run(story())


class Told:
    """A session beside a plain list of what was said in it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.said: list[str] = []
        self.count = 0

    async def tell(self, *told: Fact) -> None:
        lease = await self.store.acquire("s", owner="me")
        await self.store.append(lease, told, position=lease.position)
        await self.store.release(lease)

    async def say(self, words: int) -> None:
        self.count += 1
        prompt = f"{self.count}" + " word" * words
        self.said.append(prompt)
        answer = {"role": "model", "parts": [{"text": "Yes." * words or "No."}]}
        await self.tell(begun(prompt), facts.ModelAnswered(content=answer, finish_reason="STOP"))

    async def fail(self, _: int) -> None:
        self.count += 1
        self.said.append(f"lost {self.count}")
        await self.tell(begun(self.said[-1]), facts.ModelFailed(message="down"))

    async def shorten(self, how: int) -> None:
        talk = RunMachine(await self.store.load("s")).conversation
        dropped = talk.cut_for(talk.size_bytes * (how + 1) // 8)
        await self.tell(facts.HistoryShortened(dropped=dropped, summary="So far." if how % 2 else None))

    async def rewind(self, turns: int) -> None:
        if 0 < turns <= len(self.said):
            taken = await rewind(self.store, "s", exchanges=turns)
            assert [exchange.said for exchange in taken.exchanges] == self.said[-turns:]
            del self.said[-turns:]

    async def fork(self, turn: int) -> None:
        if (self.count or self.said) and turn <= len(self.said):
            await fork(self.store, "s", "copy", exchange=turn)
            assert [one.said for one in exchanges_of(await self.store.load("copy"))] == self.said[:turn]
            await self.store.delete("copy")


def begun(prompt: str) -> Fact:
    return facts.RunStarted(content={"role": "user", "parts": [{"text": prompt}]})


@settings(max_examples=300 * SCALE)
@given(st.lists(st.tuples(st.sampled_from(["say", "say", "say", "fail", "shorten", "rewind", "fork"]), st.integers(0, 6))))
def test_whatever_was_shortened_and_taken_back_the_turns_that_are_left_are_those_that_were_said(
    story: list[tuple[str, int]],
) -> None:
    async def play() -> None:
        told = Told()
        for deed, number in story:
            await getattr(told, deed)(number)
            found = await told.store.load("s")
            assert [turn.said for turn in exchanges_of(found)] == told.said
            contents = RunMachine(found).conversation.contents
            assert validate(contents) == []
            if told.said and deed == "rewind" and not told.said[-1].startswith("lost"):
                assert told.said[-1] in texts(contents)

    asyncio.run(play())


# Copies ------------------------------------------------------------------------------------------------------------------


def test_a_fork_goes_its_own_way_from_the_turn_that_was_named() -> None:
    store = MemoryStore()
    three_turns(store)
    asyncio.run(fork(store, "s", "branch", exchange=1))
    talk(store, "branch", text("Elsewhere."), said=["turn off"])
    assert texts(asyncio.run(load(store, "branch")).reply.contents) == ["first", "One.", "turn off", "Elsewhere."]
    assert asyncio.run(load(store, "s")).exchanges == 3
    with pytest.raises(UsageError, match="no exchange 4"):
        asyncio.run(fork(store, "s", "other", exchange=4))


def paused(store: MemoryStore, *, answers: Sequence[str] = ("later",)) -> Gate:
    said = iter(answers)

    async def approve(call: FunctionCall, definition: Any, reason: str) -> Any:
        return next(said)

    policy = Policy(default="ask")
    return talk(store, "s", call("note", word="a"), text("Done."), said=["go"], policy=policy, approve=approve)


def test_what_was_allowed_for_good_in_a_session_is_asked_for_in_its_copy() -> None:
    store = MemoryStore()
    paused(store, answers=["always"])
    assert RunMachine(facts_in(store)).always
    asyncio.run(fork(store, "s", "branch"))
    assert not RunMachine(facts_in(store, "branch")).always


def crashed(state: str) -> list[Fact]:
    """A journal that breaks off while a call is allowed, or has started."""
    wish = FunctionCall(id="c", name="note", args={"word": "x"})
    content = {"role": "model", "parts": [{"functionCall": {"name": "note", "args": {"word": "x"}}}]}
    repeatable = facts.KnownTool(digest="d", repeatable=True)
    begun: list[Fact] = [
        facts.ToolsKnown(tools={"note": repeatable}, names={"note": "note"}),
        facts.RunStarted(content={"role": "user", "parts": [{"text": "go"}]}),
        facts.ModelAnswered(content=content, calls=(wish,), finish_reason="STOP"),
        facts.CallChecked(id="c", tool="note", args={"word": "x"}, digest="d"),
        facts.CallDecided(id="c", decision=facts.Decision(verdict="allow")),
    ]
    return begun if state == "allowed" else [*begun, facts.CallStarted(id="c")]


@pytest.mark.parametrize(("state", "expected"), [("allowed", "proposed"), ("started", "unknown")])
def test_a_session_from_elsewhere_brings_no_permission_with_it(state: str, expected: str) -> None:
    store = MemoryStore()
    asyncio.run(import_session(store, "s", crashed(state)))
    loop = RunMachine(facts_in(store))
    loop.apply(facts.Recovered())
    assert [record.state for record in loop.reply("s").calls] == [expected]
    assert loop.todo().run == ()


@pytest.mark.parametrize(
    "bad",
    [
        facts.Rewound(contents_kept="many"),  # type: ignore[arg-type]
        facts.Rewound(contents_kept=0, position=[]),  # type: ignore[arg-type]
        facts.HistoryGiven(contents=7),  # type: ignore[arg-type]
        facts.ToolsKnown(tools={}, names=5),  # type: ignore[arg-type]
        facts.RunStarted(content={"role": "user", "parts": [{"functionCall": {"name": "note"}}]}),
    ],
)
def test_facts_that_make_no_conversation_are_refused_before_anything_is_written(bad: Fact) -> None:
    store = MemoryStore()
    with pytest.raises(UsageError, match="make no conversation"):
        asyncio.run(import_session(store, "s", [bad]))
    assert asyncio.run(store.sessions()) == []


def test_a_fact_that_goes_back_to_itself_or_to_nowhere_is_passed_over() -> None:
    assert exchanges_of([facts.Rewound(contents_kept=0, position=place) for place in (0, 5, -1)]) == []


# Documents ---------------------------------------------------------------------------------------------------------------


def test_a_document_goes_through_json_and_makes_the_same_session() -> None:
    store = MemoryStore()
    three_turns(store)
    written = json.loads(json.dumps(export_session({"id": "s"}, facts_in(store))))
    assert list(written) == ["callgate", "session", "facts", "contents"]
    asyncio.run(import_session(store, "again", facts_of(written)))
    assert asyncio.run(load(store, "again")).reply.contents == asyncio.run(load(store, "s")).reply.contents
    assert facts_in(store, "again")[:-1] == facts_in(store)


def test_a_document_with_contents_alone_is_a_history() -> None:
    contents = [{"role": "user", "parts": [{"text": "Hi"}]}]
    assert facts_of({"callgate": 1, "session": {}, "contents": contents}) == [facts.HistoryGiven(contents=contents)]


@pytest.mark.parametrize("given", [{"callgate": 2, "facts": []}, {"callgate": 1}, {}, {"callgate": 1, "facts": {}}, []])
def test_what_is_no_document_is_refused_with_a_sentence(given: Any) -> None:
    with pytest.raises(UsageError, match="document"):
        facts_of(given)


# Looking -----------------------------------------------------------------------------------------------------------------


def test_a_session_is_found_by_the_beginning_of_its_id() -> None:
    store = MemoryStore()
    for session in ("chat-abc1", "chat-abd2"):
        three_turns(store, session)

    def found(id: str) -> str:
        return asyncio.run(find(store, id)).id

    assert [found("chat-abc1"), found("chat-abc"), found("abd"), found("latest")] == [
        "chat-abc1", "chat-abc1", "chat-abd2", "chat-abd2",
    ]  # fmt: skip
    for id, sentence in [("ab", "2 sessions have an id that begins"), ("x", "no session 'x'"), ("", "no session ''")]:
        with pytest.raises(UsageError, match=sentence):
            found(id)
    with pytest.raises(UsageError, match="no session yet"):
        asyncio.run(find(MemoryStore(), "latest"))


def test_a_session_stands_idle_waits_or_was_interrupted() -> None:
    store = MemoryStore()
    paused(store)
    assert state_from_facts("s", facts_in(store)).state == "waiting"
    assert [record.call.name for record in state_from_facts("s", facts_in(store)).reply.approvals] == ["note"]
    assert state_from_facts("x", crashed("started")).state == "interrupted"
    three_turns(store, "t")
    assert asyncio.run(load(store, "t")).state == "idle"
    with pytest.raises(UsageError, match="no session"):
        asyncio.run(load(store, "gone"))


def test_going_on_with_a_session_that_is_over_leaves_its_reply_to_be_recalled() -> None:
    store = MemoryStore()
    gate = three_turns(store)
    before = facts_in(store)
    with pytest.raises(UsageError, match="nothing to continue"):
        asyncio.run(gate.run(session="s"))
    assert facts_in(store) == before
    assert asyncio.run(load(store, "s")).reply.text == "Three."


# After a crash -----------------------------------------------------------------------------------------------------------


def journal_that_stops_behind(kind: type, gate: Gate, store: MemoryStore) -> MemoryStore:
    """A store whose session broke off right behind the last fact of a kind: as a process that died there leaves it."""
    asyncio.run(gate.run("go", session="s"))
    known = facts_in(store)
    last = max(place for place, fact in enumerate(known) if isinstance(fact, kind))
    cut = MemoryStore()

    async def fill() -> None:
        lease = await cut.acquire("s", owner="dead")
        await cut.append(lease, known[: last + 1], position=0)
        await cut.release(lease)

    asyncio.run(fill())
    return cut


def test_a_resumed_run_tells_which_calls_run_again_and_of_which_the_outcome_is_unknown() -> None:
    @tool
    async def send(word: str) -> str:
        """Must not be done twice."""
        return word

    @tool(idempotent=True)
    async def put(word: str) -> str:
        """May be done again."""
        return word

    def gate(store: MemoryStore, *script: Any) -> Gate:
        return Gate(ScriptedModel(list(script)), [send, put], store=store)

    store = MemoryStore()
    first = gate(store, answer(call("send", word="a"), call("put", word="b")), text("Done."))
    cut = journal_that_stops_behind(facts.CallStarted, first, store)

    async def resumed() -> list[Any]:
        return [event async for event in gate(cut, text("Done.")).stream(session="s")]

    events = asyncio.run(resumed())
    notices = [event for event in events if isinstance(event, Notice)]
    assert [(notice.code, notice.level) for notice in notices] == [("outcome_unknown", "warning"), ("run_again", "info")]
    assert "The end of 'send' was not recorded" in notices[0].message
    assert "The end of 'put' was not recorded" in notices[1].message
    reply = events[-1].reply
    assert [record.state for record in reply.calls] == ["unknown", "finished"]
    assert reply.text == "Done."


def test_a_run_from_a_history_needs_no_store() -> None:
    reply = asyncio.run(Gate(ScriptedModel([text("One.")])).run("first"))
    again = asyncio.run(Gate(ScriptedModel([text("Two.")])).run("second", history=reply.contents))
    assert texts(again.contents) == ["first", "One.", "second", "Two."]


def test_a_reply_says_about_how_long_the_conversation_is() -> None:
    short = asyncio.run(Gate(ScriptedModel([text("One.")])).run("first"))
    long = asyncio.run(Gate(ScriptedModel([text("One.")])).run("first " * 1000))
    assert 0 < short.context_tokens < 50
    assert 1000 < long.context_tokens < 3000


def test_an_unknown_outcome_is_told_once_and_not_on_the_next_run() -> None:
    store = MemoryStore()
    result = ToolResult(call_id="c", name="note", status="finished", value=1)

    async def story() -> list[Any]:
        lease = await store.acquire("s", owner="dead")
        await store.append(lease, [*crashed("started"), facts.CallEnded(id="c", result=result)], position=0)
        await store.release(lease)
        gate = Gate(ScriptedModel([text("Done.")]), [note], store=store)
        return [event async for event in gate.stream(session="s")]

    assert [event for event in asyncio.run(story()) if isinstance(event, Notice)] == []


def test_a_tool_that_holds_the_event_loop_is_shown_before_it_does(tmp_path: Path) -> None:
    seen: list[str] = []

    @tool(run_in="loop")
    def hold() -> list[str]:
        """Nothing else happens while it runs."""
        return [*seen]

    async def story() -> Any:
        async with Gate(ScriptedModel([call("hold"), text("Done.")]), [hold], store=str(tmp_path / "sessions.db")) as gate:
            async for event in gate.stream("go"):
                seen.append(type(event).__name__)
        return event

    assert "CallStarted" in asyncio.run(story()).reply.calls[0].result.value


@pytest.mark.parametrize(
    "fact",
    [
        {"kind": "unreadable"},
        {"kind": "unreadable", "problem": "p", "body": 5},
        {"kind": "unreadable", "problem": "p", "body": "not base64"},
    ],
)
def test_an_unreadable_fact_without_its_bytes_is_no_fact(fact: dict[str, Any]) -> None:
    with pytest.raises(JsonError, match="the document holds an unreadable fact"):
        facts_of({"callgate": 1, "facts": [{"v": 1, **fact}]})


def test_a_lasting_answer_does_not_outlive_the_exchange_that_is_taken_back():
    store = MemoryStore()
    asked: list[str] = []

    def pay(n: int) -> str:
        return "paid"

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        asked.append(call.id)
        return "always"

    async def story() -> None:
        script = [call("pay", n=1), "one", call("pay", n=2), "two"]
        gate = Gate(ScriptedModel(script), [pay], store=store, approve=approve, policy=Policy(rules=["ask pay"]))
        async with gate:
            await gate.run("first", session="s")
            await rewind(store, "s", exchanges=1)
            assert not await gate.session_rules("s")
            await gate.run("second", session="s")

    asyncio.run(story())
    assert len(asked) == 2


def test_facts_of_the_wrong_type_are_refused_in_plain_words():
    async def story() -> None:
        store = MemoryStore()
        gate = Gate(ScriptedModel(["x"]), store=store)
        await gate.run("x", session="s")
        known = await store.load("s")
        broken = [dataclasses.replace(fact, content=5) if hasattr(fact, "content") else fact for fact in known]
        with pytest.raises(UsageError, match="wrong type"):
            await import_session(MemoryStore(), "t", broken)

    asyncio.run(story())


@pytest.mark.parametrize("number", [1.5, True, "1", None, [1]])
def test_a_number_of_exchanges_that_is_none_is_an_error_that_says_so(number: Any) -> None:
    store = MemoryStore()
    asyncio.run(Gate(ScriptedModel(["Hello."]), store=store).run("Hi.", session="s"))
    with pytest.raises(UsageError, match="use a whole number of exchanges"):
        asyncio.run(rewind(store, "s", exchanges=number))
    if not isinstance(number, str | None):
        with pytest.raises(UsageError, match="use a whole number of exchanges"):
            asyncio.run(fork(store, "s", "t", exchange=number))


def test_a_lasting_answer_to_a_nested_call_does_not_outlive_its_exchange() -> None:
    store, asked = MemoryStore(), list[str]()

    def pay(to: str) -> str:
        """Pay."""
        return "paid"

    @tool
    async def order(context: ToolContext) -> str:
        """Order."""
        return (await context.call_tool("pay", {"to": "bob"})).status

    async def approve(call: FunctionCall, *_: Any) -> str:
        asked.append(call.name)
        return "always"

    async def story() -> tuple[int, int]:
        model = ScriptedModel(["Hello.", call("order"), "Ordered."])
        gate = Gate(model, [pay, order], policy=Policy(rules=["ask pay"]), approve=approve, store=store)
        await gate.run("Hi.", session="s")
        await gate.run("Order.", session="s")
        before = len(await gate.session_rules("s"))
        await rewind(store, "s")
        return before, len(await gate.session_rules("s"))

    assert (asyncio.run(story()), asked) == ((1, 0), ["pay"])


def damaged_journal() -> list[Fact]:
    """A journal in which an answer names another tool than its calls do: what follows fits to neither."""
    store = MemoryStore()
    talk(store, "s", call("note", word="a"), text("Noted."), said=["first"])
    return [
        dataclasses.replace(fact, content={"role": "model", "parts": [{"functionCall": {"name": "other", "args": {}}}]})
        if isinstance(fact, facts.ModelAnswered) and fact.calls
        else fact
        for fact in facts_in(store)
    ]


def test_a_journal_whose_answer_and_calls_contradict_each_other_is_read_to_its_end() -> None:
    journal = damaged_journal()
    assert [exchange.said for exchange in exchanges_of(journal)] == ["first"]
    assert RunMachine(journal).quarantined
    assert [span.kind for span in spans_of(journal)][:1] == ["run"]
    assert [exchange.said for exchange in exchanges_of([*journal, begun("second")])] == ["first", "second"]
