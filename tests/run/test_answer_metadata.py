"""Nothing that Gemini reports about an answer is lost: reply, events, journal, terminal."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google import genai
from google.genai import types as genai_types

from callgate import Gate, GeminiModel, Media, ScriptedModel
from callgate.cli import main
from callgate.cli.recap import show_recap
from callgate.cli.render import Terminal
from callgate.content.collect import Collector
from callgate.events import Event, MediaReceived, MetadataReported, ServerStepReported
from callgate.metadata import Citation, SearchLink, Source
from callgate.sessions import load
from callgate.store import MemoryStore, open_store
from callgate.testing import FakeGemini, answer, call, thought

SOURCE = Source(uri="https://a.example/1", title="a.example")
CANDIDATE: dict[str, Any] = {
    "content": {
        "role": "model",
        "parts": [
            {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
            {"text": "Oslo is dry."},
            {"inlineData": {"mimeType": "image/png", "data": "AP8="}},
        ],
    },
    "finishReason": "STOP",
    "index": 0,
    "groundingMetadata": {
        "webSearchQueries": ["oslo"],
        "searchEntryPoint": {"renderedContent": "<a href='https://www.google.com/search?q=oslo'>oslo</a>"},
        "groundingChunks": [{"web": {"uri": SOURCE.uri, "title": SOURCE.title}}],
        "groundingSupports": [
            {"segment": {"partIndex": 2, "endIndex": 12, "text": "Oslo is dry."}, "groundingChunkIndices": [0]}
        ],
    },
    "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}],
    "avgLogprobs": -0.5,
}
ANSWER = {"candidates": [CANDIDATE], "usageMetadata": {"totalTokenCount": 3}, "modelVersion": "gemini-3.8-flash"}
IMAGE = Media(data=b"\x00\xff", mime_type="image/png")
CITATION = Citation(text="Oslo is dry.", start=0, end=12, sources=(SOURCE,))


def model_of(fake: FakeGemini) -> GeminiModel:
    return GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})


def checked(reply: Any) -> None:
    assert reply.sources == [SOURCE]
    assert reply.citations == [CITATION]
    assert reply.media == [IMAGE]
    assert [step.kind for step in reply.server_steps] == ["code", "code_result"]
    [metadata] = reply.metadata
    assert metadata.search_links == (SearchLink(text="oslo", url="https://www.google.com/search?q=oslo"),)
    assert metadata.avg_logprobs == -0.5
    assert metadata.safety_ratings == tuple(CANDIDATE["safetyRatings"])
    assert metadata.raw[0]["groundingMetadata"] == CANDIDATE["groundingMetadata"]


def test_a_reply_its_events_and_its_journal_hold_what_google_genai_reads_from_the_same_answer(tmp_path: Path) -> None:
    async def body() -> None:
        store = tmp_path / "s.db"
        events: list[Event] = []

        async def watch(event: Event) -> None:
            events.append(event)

        async with FakeGemini([ANSWER, ANSWER, "Go on."]) as fake, Gate(model_of(fake), store=store) as gate:
            client = genai.Client(api_key="k", http_options=genai_types.HttpOptions(base_url=fake.base_url))
            judged = client.aio.models.generate_content(model="gemini-3.8-flash", contents="x")
            grounding = (await judged).candidates[0].grounding_metadata
            reply = await gate.run("Weather?", session="s", watch=watch)
            later = await gate.run("And?", session="s")
            assert fake.refusals == []
        checked(reply)
        assert grounding.grounding_chunks[0].web.uri == reply.sources[0].uri
        assert grounding.search_entry_point.rendered_content == reply.search_suggestions[0]
        assert later.metadata == ()
        assert later.media == []
        assert [event.media for event in events if isinstance(event, MediaReceived)] == [IMAGE]
        assert [event.step for event in events if isinstance(event, ServerStepReported)] == reply.server_steps
        assert [event.metadata for event in events if isinstance(event, MetadataReported)] == list(reply.metadata)

    asyncio.run(body())


def test_passages_of_an_earlier_answer_are_not_taken_for_passages_of_the_reply() -> None:
    """An answer with sources that calls a function, and then an answer without sources."""
    candidate = {**CANDIDATE, "content": {"role": "model", "parts": [{"text": "Oslo is dry."}, call("add", a=1, b=2)]}}

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def body() -> None:
        model = ScriptedModel([{**ANSWER, "candidates": [candidate]}, "The sum is 3."])
        reply = await Gate(model, tools=[add]).run("Weather, and 1 + 2?")
        assert (reply.text, reply.citations) == ("The sum is 3.", [])
        assert reply.metadata[0].citations == (CITATION,)
        assert reply.sources == [SOURCE]
        assert reply.search_links == [SearchLink(text="oslo", url="https://www.google.com/search?q=oslo")]

    asyncio.run(body())


def test_a_session_that_is_loaded_again_has_the_metadata(tmp_path: Path) -> None:
    async def body() -> None:
        path = tmp_path / "s.db"
        async with FakeGemini([ANSWER]) as fake, Gate(model_of(fake), store=path) as gate:
            await gate.run("Weather?", session="s")
        store = open_store(path)
        try:
            checked((await load(store, "s")).reply)
        finally:
            await store.aclose()

    asyncio.run(body())


def test_the_json_of_the_command_has_all_that_was_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    with FakeGemini.in_thread([ANSWER]) as fake:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
        assert main(["chat", "-m", "gemini-3.8-flash", "--ephemeral", "-o", "json", "Weather?"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["sources"][0]["uri"], shown["search_links"][0]["text"]) == (SOURCE.uri, "oslo")
    assert [found["safety_ratings"] for found in shown["answer_metadata"]] == [CANDIDATE["safetyRatings"]]


def test_a_resumed_conversation_shows_the_sources_of_its_last_answer_and_has_its_media() -> None:
    out, err = io.StringIO(), io.StringIO()
    terminal, store = Terminal(out, err, {}), MemoryStore()
    asyncio.run(Gate(ScriptedModel([ANSWER]), store=store).run("Weather?", session="s"))
    show_recap(SimpleNamespace(run=asyncio.run, session="s"), terminal, SimpleNamespace(store=store))  # type: ignore[arg-type]
    assert err.getvalue().splitlines()[-4:] == [
        "Oslo is dry.", "[1] a.example: https://a.example/1", "Google Search: oslo: https://www.google.com/search?q=oslo",
        "safety rating: harassment: low",
    ]  # fmt: skip
    assert terminal.media == [IMAGE]


def test_a_terminal_shows_sources_suggestions_code_and_media_without_control_characters() -> None:
    out, err = io.StringIO(), io.StringIO()
    terminal = Terminal(out, err, {})
    collector = Collector()
    hostile = CANDIDATE["groundingMetadata"] | {"groundingChunks": [{"web": {"uri": SOURCE.uri, "title": "a\x1b[2Jb"}}]}
    likely = {"chosenCandidates": [{"token": "Oslo", "logProbability": -0.5}]}
    cited = {"citations": [{"uri": "https://b.example", "license": "mit"}]}
    more = {"groundingMetadata": hostile, "citationMetadata": cited, "logprobsResult": likely}
    for event in collector.feed({"candidates": [CANDIDATE | more]}):
        terminal.show(event)
    metadata = collector.close().metadata
    assert metadata is not None
    terminal.show(MetadataReported(metadata))
    said = err.getvalue()
    assert "print(1)" in said
    assert "https://a.example/1" in said
    assert "Google Search: oslo: https://www.google.com/search?q=oslo" in said
    assert "image/png, 0.0 KiB" in said
    assert "[2] https://b.example (license: mit)" in said
    assert "safety rating: harassment: low" in said
    assert "average log probability: -0.5" in said
    assert "\x1b" not in said
    assert terminal.media == [IMAGE]
    terminal.show(MediaReceived(Media(data=b"x", mime_type="audio/wav", transcript="It is\x1b[2J dry.")))
    assert "audio/wav, 0.0 KiB: It is" in err.getvalue()
    assert "\x1b" not in err.getvalue()


def test_what_gemini_reports_outside_of_the_candidate_is_kept_with_the_metadata() -> None:
    said = {"content": {"role": "model", "parts": [{"text": "Half"}]}, "finishReason": "SAFETY", "finishMessage": "Stopped."}
    details = {"promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 3}], "trafficType": "ON_DEMAND"}
    usage = {"promptTokenCount": 3, "totalTokenCount": 3}
    answer = {"responseId": "r1", "candidates": [said | {"index": 0}], "usageMetadata": usage | details}

    async def body() -> None:
        async with FakeGemini([answer]) as fake:
            [metadata] = (await Gate(model_of(fake)).run("x")).metadata
        assert (metadata.finish_message, metadata.response_id) == ("Stopped.", "r1")
        assert metadata.raw == ({"finishMessage": "Stopped.", "responseId": "r1", "usageMetadata": details},)

    asyncio.run(body())


def test_a_field_of_the_response_that_callgate_does_not_know_is_kept() -> None:
    said = {"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP", "index": 0}

    async def body() -> None:
        answer = {"responseId": "r1", "candidates": [said], "quotaInfo": {"left": 3}, "nothing": None}
        [metadata] = (await Gate(ScriptedModel([answer])).run("x")).metadata
        assert metadata.raw == ({"responseId": "r1", "response": {"quotaInfo": {"left": 3}}},)

    asyncio.run(body())


def test_a_reply_has_the_thoughts_of_its_run_and_so_has_the_loaded_one() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def body() -> None:
        script = [
            "Before.",
            answer(thought("Two "), thought("sums."), call("add", a=1, b=2)),
            answer(thought("Three."), "3"),
        ]
        store = MemoryStore()
        gate = Gate(ScriptedModel(script), [add], store=store)
        first, second = [await gate.run(prompt, session="s") for prompt in ("x", "1 + 2?")]
        assert (first.thoughts, second.thoughts) == ("", "Two sums.\n\nThree.")
        assert (await load(store, "s")).reply.thoughts == second.thoughts

    asyncio.run(body())


def test_an_answer_with_an_id_and_tokens_of_text_has_no_metadata() -> None:
    said = {"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 3, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 3}]}

    async def body() -> None:
        async with FakeGemini([{"responseId": "r1", "candidates": [said], "usageMetadata": usage}]) as fake:
            assert (await Gate(model_of(fake)).run("x")).metadata == ()

    asyncio.run(body())
