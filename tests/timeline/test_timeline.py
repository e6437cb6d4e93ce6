"""The timeline: spans from facts, a line on which all of them can be seen, and a picture that is XML whatever is in it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Gate, InteractionsModel
from callgate.cli.trace_lines import MARKS_ASCII, timeline_lines
from callgate.gemini.surface import Surface
from callgate.machine import facts
from callgate.testing import call_with, text
from callgate.testing.fake_interactions import FakeInteractions
from callgate.timeline import Scale, Span, spans_of, svg_of
from callgate.timeline.svg import duration_text
from callgate.types import Decision, FunctionCall, ToolResult

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
KNOWN = facts.ToolsKnown(
    tools={name: facts.KnownTool(digest=name, repeatable=name == "look") for name in ("look", "send")},
    names={"look": "look", "send": "send"},
)
ALLOW, ASK = Decision(verdict="allow"), Decision(verdict="ask", reason="It sends.", rule="r")


def begun(words: str = "Go.", **fields: Any) -> facts.RunStarted:
    return facts.RunStarted(content={"role": "user", "parts": [text(words)]}, **fields)


def answered(*names: str, said: str = "", reason: str = "STOP") -> facts.ModelAnswered:
    calls = tuple(FunctionCall(name=name, id=f"{name}{i}", args={}) for i, name in enumerate(names))
    content = {"role": "model", "parts": ([text(said)] if said else []) + [call_with(c.name, {}) for c in calls]}
    return facts.ModelAnswered(content=content, calls=calls, finish_reason=reason, model="m-1")


def checked(call_id: str, tool: str | None = None) -> facts.CallChecked:
    return facts.CallChecked(id=call_id, tool=tool or call_id[:-1], args={}, digest=call_id[:-1])


def ended(call_id: str, status: Any = "finished", duration_s: float = 0.0) -> facts.CallEnded:
    error = None if status == "finished" else "No."
    return facts.CallEnded(
        id=call_id,
        result=ToolResult(call_id=call_id, name=call_id[:-1], status=status, error=error, duration_s=duration_s),
    )


def at(*timed: tuple[float, facts.Fact]) -> list[facts.Fact]:
    return [facts.dated(fact, time_s) for time_s, fact in timed]


def short(spans: list[Span]) -> list[tuple[str, str | None, str, float, float | None, str]]:
    return [(span.id, span.parent, span.name, span.start_s, span.end_s, span.state) for span in spans]


STORY = at(
    (100.0, KNOWN),
    (100.0, begun("Look and send.")),
    (101.0, answered("look", "send", said="Well.")),
    (101.0, checked("look0")),
    (101.0, checked("send1")),
    (101.1, facts.CallDecided(id="look0", decision=ALLOW)),
    (101.1, facts.CallDecided(id="send1", decision=ASK)),
    (101.2, facts.CallStarted(id="look0")),
    (101.7, ended("look0")),
    (106.0, facts.ApprovalAnswered(id="send1", answer="yes")),
    (106.1, facts.CallStarted(id="send1")),
    (106.6, ended("send1", "failed")),
    (107.5, answered(said="Done.")),
)


def test_a_run_is_turns_of_requests_and_of_calls_side_by_side() -> None:
    assert short(spans_of(STORY)) == [
        ("run-1", None, "Look and send.", 100.0, 107.5, "STOP"),
        ("turn-1", "run-1", "turn 1", 100.0, 106.6, "done"),
        ("request-1", "turn-1", "m-1", 100.0, 101.0, "STOP"),
        ("call-1", "turn-1", "look", 101.0, 101.7, "finished"),
        ("call-2", "turn-1", "send", 101.0, 106.6, "failed"),
        ("approval-1", "call-2", "send", 101.1, 106.0, "yes"),
        ("execution-1", "call-1", "look", 101.2, 101.7, "finished"),
        ("execution-2", "call-2", "send", 106.1, 106.6, "failed"),
        ("turn-2", "run-1", "turn 2", 106.6, 107.5, "done"),
        ("request-2", "turn-2", "m-1", 106.6, 107.5, "STOP"),
    ]


SEARCHED = [
    {"type": "google_search_call", "id": "s1", "arguments": {"queries": ["fjords"]}},
    {"type": "code_execution_call", "id": "c1", "arguments": {"language": "python", "code": "1/0"}},
    {"type": "url_context_call", "id": "u1", "arguments": {"urls": ["https://example.org"]}},
    {"type": "google_search_result", "call_id": "s1", "result": []},
    {"type": "code_execution_result", "call_id": "c1", "result": "ZeroDivisionError", "is_error": True},
    {"type": "model_output", "content": [{"type": "text", "text": "Done."}]},
]


def test_steps_at_the_provider_are_shown_beside_the_request_that_they_ran_in() -> None:
    final = answered(said="Done.")
    recorded = {**final.content, "interaction": {"origin": "o", "steps": SEARCHED}}
    spans = spans_of(at((100.0, KNOWN), (100.0, begun()), (102.0, replace(final, content=recorded))))
    assert short(spans)[2:] == [
        ("request-1", "turn-1", "m-1", 100.0, 102.0, "STOP"),
        ("server_step-1", "turn-1", "google_search_web", 100.0, 102.0, "finished"),
        ("server_step-2", "turn-1", "code_execution", 100.0, 102.0, "error"),
        ("server_step-3", "turn-1", "url_context", 100.0, 102.0, "no result"),
    ]
    drawn = svg_of(spans, title="Steps")
    assert {"google_search_web", "code_execution", "url_context", "tool at the provider"} <= {
        (element.text or "").strip() for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    }
    lines = [line.split()[:2] for line in timeline_lines(spans, width=100, marks=MARKS_ASCII)]
    assert [name for name, bar in lines[2:] if set(bar) == {"+"}] == ["google_search_web", "code_execution", "url_context"]


RESEARCHED = [
    {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Planning."}]},
    {"type": "google_search_call", "id": "s1", "arguments": {"queries": ["fjords"]}, "search_type": "image_search"},
    {"type": "google_search_result", "call_id": "s1", "result": []},
    {"type": "url_context_call", "id": "u1", "arguments": {"urls": ["https://example.org"]}},
    {"type": "url_context_result", "call_id": "u1", "result": [], "is_error": True},
    {"type": "mcp_server_tool_call", "id": "m1", "name": "forecast", "server_name": "weather", "arguments": {}},
    {"type": "mcp_server_tool_result", "call_id": "m1", "name": "forecast", "server_name": "weather", "result": "4"},
    {"type": "file_search_call", "id": "f1"},
    {"type": "file_search_result", "call_id": "f1"},
    {"type": "holodeck_call", "id": "h1"},
    {"type": "model_output", "content": [{"type": "text", "text": "Done."}]},
]


def test_the_steps_of_an_agent_are_shown_as_it_took_them() -> None:
    async def story() -> list[Any]:
        async with FakeInteractions([{"steps": RESEARCHED, "status": "completed"}], polls=0) as fake:
            surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
            async with Gate(InteractionsModel("deep-research-preview-04-2026", surface=surface)) as gate:
                await gate.run("Fjords?", session="s")
                return spans_of(await gate.store.load("s"))

    spans = asyncio.run(story())
    assert [(span.kind, span.name, span.state) for span in spans] == [
        ("run", "Fjords?", "STOP"),
        ("turn", "turn 1", "done"),
        ("request", "deep-research-preview-04-2026", "STOP"),
        ("server_step", "google_search_image", "finished"),
        ("server_step", "url_context", "error"),
        ("server_step", "@weather/forecast", "finished"),
        ("server_step", "file_search", "finished"),
        ("server_step", "holodeck", "no result"),
    ]
    assert len({span.start_s for span in spans}) == len({span.end_s for span in spans}) == 1


def test_what_is_still_going_on_has_no_end() -> None:
    spans = {span.id: (span.end_s, span.state, span.duration_s) for span in spans_of(STORY[:9])}
    assert spans["run-1"] == spans["turn-1"] == spans["approval-1"] == (None, "open", None)
    assert spans["execution-1"][:2] == (101.7, "finished")


def test_a_span_is_written_with_the_fields_that_others_rely_on() -> None:
    assert spans_of(STORY)[2].to_json() == {
        "id": "request-1",
        "parent": "turn-1",
        "name": "m-1",
        "kind": "request",
        "start_s": 100.0,
        "end_s": 101.0,
        "state": "STOP",
        "call_id": None,
    }


def test_what_a_dead_process_was_doing_ends_with_the_last_that_is_known_and_runs_again_apart() -> None:
    journal = at(
        (1.0, KNOWN), (1.0, begun()), (2.0, answered("look")), (2.0, checked("look0")),
        (2.0, facts.CallDecided(id="look0", decision=ALLOW)), (2.5, facts.CallStarted(id="look0")),
        (900.0, facts.Recovered()), (900.1, facts.CallStarted(id="look0")), (901.0, ended("look0")),
        (901.5, facts.Recovered()), (903.0, answered(said="Yes.")),
    )  # fmt: skip
    found = [(span.kind, span.start_s, span.end_s, span.state) for span in spans_of(journal)]
    assert found[4:] == [
        ("execution", 2.5, 2.5, "interrupted"),
        ("execution", 900.1, 901.0, "finished"),
        ("turn", 901.0, 903.0, "done"),
        ("request", 901.0, 901.0, "interrupted"),
        ("request", 901.5, 903.0, "STOP"),
    ]


def test_answers_that_were_asked_for_again_are_requests_of_one_turn() -> None:
    journal = at(
        (1.0, begun(output={"type": "object"})), (2.0, answered(reason="MALFORMED_FUNCTION_CALL")),
        (3.0, answered(said="No.")),
        (3.0, facts.OutputChecked(problems=("bad",))), (4.0, answered(said="{}")), (4.0, facts.OutputChecked(value={})),
    )  # fmt: skip
    found = spans_of(journal)
    assert [(span.kind, span.state) for span in found] == [
        ("run", "STOP"), ("turn", "done"), ("request", "MALFORMED_FUNCTION_CALL"), ("request", "STOP"), ("request", "STOP"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("last", "state"),
    [
        (facts.ModelFailed(message="down"), "error"),
        (facts.Cancelled(), "cancelled"),
        (begun("Another."), "given up"),
        (facts.Rewound(contents_kept=0), "given up"),
    ],
)
def test_a_request_that_came_to_nothing_says_why(last: facts.Fact, state: str) -> None:
    found = spans_of(at((1.0, begun()), (2.0, last)))
    assert (found[2].kind, found[2].end_s, found[2].state) == ("request", 2.0, state)


def test_summing_up_is_a_request_of_its_own() -> None:
    found = spans_of(at((1.0, begun()), (2.0, facts.HistoryShortened(dropped=0, summary="s")), (3.0, answered(said="Yes."))))
    assert [(span.state, span.start_s) for span in found if span.kind == "request"] == [("summarized", 1.0), ("STOP", 2.0)]


def test_a_journal_without_times_still_tells_how_long_calls_took() -> None:
    journal = [replace(fact, at_s=None) for fact in STORY]
    journal[8] = ended("look0", duration_s=0.25)
    found = {span.id: span.duration_s for span in spans_of(journal)}
    assert (found["execution-1"], found["request-1"]) == (0.25, 0.0)


def test_a_clock_that_went_back_makes_no_negative_time() -> None:
    found = spans_of(at((5.0, begun()), (3.0, answered(said="Yes."))))
    assert [span.duration_s for span in found] == [0.0, 0.0, 0.0]


IDS = ("look0", "send0", "send1")
PIECES: list[facts.Fact] = [
    KNOWN, begun(), begun(output={"type": "object"}), answered("look"), answered("send", "send"), answered(said="Yes."),
    answered(reason="MALFORMED_FUNCTION_CALL"), facts.ModelFailed(message="no"), facts.Cancelled(), facts.Recovered(),
    facts.Rewound(contents_kept=0), facts.Adopted(), facts.HistoryShortened(dropped=0), facts.OutputChecked(value={}),
    facts.OutputChecked(problems=("no",)),
    *[checked(one) for one in IDS], *[facts.CallDecided(id=one, decision=ALLOW) for one in IDS],
    *[facts.CallDecided(id=one, decision=ASK) for one in IDS], *[facts.CallStarted(id=one) for one in IDS],
    *[facts.ApprovalAnswered(id=one, answer="yes") for one in IDS], *[ended(one) for one in IDS],
]  # fmt: skip


@settings(max_examples=300 * SCALE)
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.floats(0, 10) | st.just(100_000.0)), max_size=40))
def test_spans_of_any_facts_lie_in_their_parents_and_can_be_drawn(pieces: list[tuple[facts.Fact, float]]) -> None:
    now_s, journal = 0.0, []
    for fact, passed_s in pieces:
        now_s += passed_s
        journal.append(facts.dated(fact, now_s))
    spans = spans_of(journal)
    known: dict[str, Span] = {}
    for span in spans:
        assert span.id not in known
        assert span.end_s is None or span.start_s <= span.end_s
        if span.parent is not None:
            parent = known[span.parent]
            assert parent.start_s <= span.start_s
            assert parent.end_s is None or (span.end_s is not None and span.end_s <= parent.end_s)
        known[span.id] = span
    scale = Scale(spans)
    times = sorted(time_s for span in spans for time_s in (0.0, span.start_s, span.end_s or span.start_s))
    places = [scale.place(time_s) for time_s in times]
    assert places == sorted(places)
    assert all(0 <= place <= 1 + 1e-9 for place in places)
    assert len(scale.ticks()) <= 20
    ElementTree.fromstring(svg_of(spans, title="t"))


ODD_TIMES = st.floats() | st.sampled_from([1e308, -1e308, 5e-324, 1e-300, 1.8e9, 1.8e9 + 1e-6, 10**400, -(10**400)])


@settings(max_examples=100 * SCALE)
@given(st.lists(st.tuples(st.sampled_from(PIECES), ODD_TIMES | st.none(), ODD_TIMES), max_size=40))
def test_a_journal_with_times_that_no_clock_shows_can_be_drawn(pieces: list[tuple[facts.Fact, Any, Any]]) -> None:
    journal = [
        replace(fact, at_s=at_s, result=replace(fact.result, duration_s=took_s))
        if isinstance(fact, facts.CallEnded)
        else replace(fact, at_s=at_s)
        for fact, at_s, took_s in pieces
    ]
    spans = spans_of(journal)
    assert all(0 <= span.start_s <= (span.start_s if span.end_s is None else span.end_s) < 1e12 for span in spans)
    assert len(Scale(spans).ticks()) <= 20
    ElementTree.fromstring(svg_of(spans, title="t"))
    assert all(list(timeline_lines(spans, width=80)))


def test_a_fact_from_beyond_the_year_9999_takes_the_time_of_the_one_before() -> None:
    journal = at((5.0, KNOWN), (6.0, begun()), (1e308, answered(said="Yes.")), (8.0, begun()))
    runs = [(span.start_s, span.end_s) for span in spans_of(journal) if span.kind == "run"]
    assert runs == [(6.0, 6.0), (8.0, None)]


# The line -----------------------------------------------------------------------------------------------------------------


def test_a_long_pause_is_cut_short_so_that_the_work_can_be_seen() -> None:
    scale = Scale(spans_of(STORY))
    (cut,) = scale.cuts
    assert round(cut.hidden_s, 3) == 4.4
    assert scale.place(100.0) == 0
    assert scale.place(107.5) == pytest.approx(1)
    assert scale.place(101.0) - scale.place(100.0) > 0.3
    assert scale.place(106.1) - scale.place(101.7) < 0.1
    assert [seconds for _, seconds in scale.ticks()] == sorted(seconds for _, seconds in scale.ticks())


def test_nothing_at_all_can_be_drawn_too() -> None:
    assert Scale([]).place(5.0) == 0
    assert ElementTree.fromstring(svg_of([], title="Empty")).tag.endswith("svg")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "…"), (0.0124, "12 ms"), (1.2, "1.20 s"), (59.999, "1 min 0 s"), (125, "2 min 5 s"), (10_920, "3 h 2 min")],
)
def test_durations_are_written_as_people_read_them(seconds: float | None, words: str) -> None:
    assert duration_text(seconds) == words


# The picture --------------------------------------------------------------------------------------------------------------


def test_the_picture_has_a_bar_for_everything_and_names_it() -> None:
    root = ElementTree.fromstring(svg_of(spans_of(STORY), title="demo & more"))
    classes = [item.get("class") for item in root.iter() if item.tag.endswith("rect")]
    assert classes.count("approval") == 1 + 1  # one of them is the legend's
    assert (classes.count("request"), classes.count("execution"), classes.count("bad")) == (2 + 1, 1 + 1, 1 + 1)
    words = [item.text for item in root.iter() if item.tag.endswith("text")]
    assert "Look and send." in words
    assert "500 ms · failed" in words


@settings(max_examples=100 * SCALE)
@given(st.text(max_size=200), st.text(max_size=200))
def test_no_name_becomes_markup(name: str, title: str) -> None:
    hostile = '</text><script>alert(1)</script><image href="https://example.com/x"/>'
    spans = [replace(span, name=f"{name}{hostile}") for span in spans_of(STORY)]
    root = ElementTree.fromstring(svg_of(spans, title=f"{title}{hostile}"))
    tags = {item.tag.rpartition("}")[2] for item in root.iter()}
    assert tags == {"svg", "title", "style", "defs", "pattern", "line", "rect", "text", "g"}
