"""What an interaction reports beside its text: the same sources, citations, searches and steps as by generateContent."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interactions.conftest import run, scene_of

from callgate.events import MetadataReported, RunEnded, ServerStepReported
from callgate.metadata import ServerStep
from callgate.sessions import load
from callgate.store import MemoryStore
from callgate.testing.fake_interactions import raw

BEFORE = "Grüße \U0001f600 "
PLACE = len(BEFORE.encode())
FOUND = {"search_suggestions": "<a href='https://s'>oslo</a>"}
READ = {"url": "https://a", "status": "success"}
OSLO = [
    {"type": "url_citation", "url": "https://o", "title": "O", "start_index": PLACE, "end_index": PLACE + 13},
    {"type": "url_citation", "url": "https://p", "title": "P", "start_index": 5, "end_index": 5_000},
    {"type": "word_info", "start_index": 0, "end_index": 1},
]
ROME = [{"type": "place_citation", "name": "Rome", "url": "https://m", "start_index": 5, "end_index": 9}]
STEPS: list[dict[str, Any]] = [
    {"type": "thought", "signature": "sig-aaaaaaaaaaaaaaaa"},
    {"type": "google_search_call", "id": "g1", "arguments": {"queries": ["oslo"]}, "signature": "s"},
    {"type": "google_search_result", "call_id": "g1", "result": [FOUND]},
    {"type": "code_execution_call", "id": "c1", "arguments": {"code": "print(1)", "language": "python"}},
    {"type": "code_execution_result", "call_id": "c1", "result": "1", "is_error": True},
    {"type": "url_context_result", "call_id": "u1", "result": [READ]},
    {"type": "a_step_of_tomorrow", "id": "q"},
    {"type": "model_output", "content": [{"type": "text", "text": f"{BEFORE}Oslo is cold.", "annotations": OSLO}]},
    {"type": "model_output", "content": [{"type": "text", "text": " And Rome?", "annotations": ROME}]},
]
SERVER_STEPS = [
    ServerStep(kind="tool_call", tool="google_search_web", id="g1", value={"args": {"queries": ["oslo"]}}),
    ServerStep(kind="tool_result", tool="google_search_web", id="g1", value={"response": {"result": [FOUND]}}),
    ServerStep(kind="code", tool="code_execution", id="c1", value={"code": "print(1)", "language": "python"}),
    ServerStep(kind="code_result", tool="code_execution", id="c1", value={"outcome": "OUTCOME_FAILED", "output": "1"}),
    ServerStep(kind="tool_result", tool="url_context", id="u1", value={"response": {"result": [READ]}}),
]


@pytest.mark.parametrize("streamed", [True, False])
def test_sources_citations_searches_and_steps_are_in_the_reply_the_events_and_the_journal(
    streamed: bool, unjudged: None
) -> None:
    async def story() -> None:
        store = MemoryStore()
        async with scene_of([raw({"steps": STEPS}), "Fine."], fake={"strict": False}, store=store) as it:
            if streamed:
                events = [event async for event in it.gate.stream("Oslo?", session="s")]
                assert isinstance(events[-1], RunEnded)
                reply = events[-1].reply
                assert [event.step for event in events if isinstance(event, ServerStepReported)] == SERVER_STEPS
                assert [event.metadata for event in events if isinstance(event, MetadataReported)] == [*reply.metadata]
            else:
                reply = await it.gate.run("Oslo?", session="s")
            assert [
                (reply.text[citation.start : citation.end], [source.uri for source in citation.sources])
                for citation in reply.citations
            ] == [("Oslo is cold.", ["https://o"]), ("Rome", ["https://m"])]
            assert [(source.kind, source.uri) for source in reply.sources] == [
                ("web", "https://o"), ("web", "https://p"), ("maps", "https://m"),
            ]  # fmt: skip
            assert reply.search_suggestions == [FOUND["search_suggestions"]]
            assert [(page.url, page.ok) for page in reply.metadata[-1].urls] == [("https://a", True)]
            assert reply.server_steps == SERVER_STEPS
            found = (await load(store, "s")).reply
            assert (found.server_steps, found.citations) == (SERVER_STEPS, reply.citations)
            await it.ask("And?", session="s")
            sent = [step["type"] for step in it.fake.creations[-1]["input"]]
            assert sent == ["user_input", *(step["type"] for step in STEPS), "user_input"]

    run(story)
