"""What all APIs of Gemini share is there by the Interactions API too: uploads, the list of models, descriptions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interactions.conftest import MODEL, Clock, model_for, run, scene_of
from tests.interactions.test_background import interrupted

from callgate import Gate
from callgate.events import Notice
from callgate.server.providers import usual_providers
from callgate.store import MemoryStore
from callgate.testing.fake_interactions import FakeInteractions, call

VIDEO = bytes(range(256)) * 8


def test_media_that_is_too_large_for_a_request_is_uploaded_and_deleted_with_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.media_files.INLINE_BYTES_MAX", 1_000)
    (video := tmp_path / "film.mp4").write_bytes(VIDEO)

    async def story() -> None:
        async with scene_of(["A film.", "Still a film."]) as it:
            reply = await it.ask(["What is this?", video], session="s")
            [file] = it.fake.resources.files.values()
            assert (reply.text, file.size, file.display_name) == ("A film.", len(VIDEO), "film.mp4")
            assert it.fake.creations[0]["input"][0]["content"][1] == {
                "type": "video", "mime_type": "video/mp4", "uri": f"{it.fake.base_url}/v1beta/files/{file.id}",
            }  # fmt: skip
            assert set(it.notices) == {"uploading"}
            await it.ask("And now?", session="s")
            assert await it.gate.delete("s")
            assert (it.fake.resources.files, it.fake.refusals) == ({}, [])

    run(story)


def test_a_session_that_is_deleted_takes_its_interactions_at_the_server_with_it() -> None:
    async def story() -> None:
        async with scene_of([call("add", a=1, b=2), "Three.", "Other."], settings={"store": True}) as it:
            await it.ask("1 + 2?", session="s")
            await it.ask("Something else?", session="t")
            assert len(it.fake.state.stored) == 3
            assert await it.gate.delete("s")
            assert len(it.fake.state.stored) == 1
            it.fake.forget()  # as Google does after a while
            assert await it.gate.delete("t")
            assert it.fake.refusals == []

    run(story)


def test_a_session_is_deleted_though_the_server_cannot_be_reached(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with scene_of(["One."], settings={"store": True}) as it:
            await it.ask("First?", session="s")
            it.fake.api_key = "another key"
            assert await it.gate.delete("s")
            assert await it.gate.store.load("s") == []

    run(story)
    assert "interactions of session 's' could not be deleted at the provider" in caplog.text


def test_a_background_run_that_nobody_waits_for_is_deleted_with_its_session() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Found."], polls=1_000_000) as fake:
            await interrupted(fake, store)
            assert len(fake.state.stored) == 1
            async with Gate(model_for(fake, Clock()), store=store, settings={"background": True}) as gate:
                assert await gate.delete("s")
            assert fake.state.stored == {}

    run(story)


def test_the_service_lists_the_models_that_the_key_may_ask() -> None:
    async def story() -> None:
        async with FakeInteractions([], models=[MODEL, "gemini-2.5-pro"]) as fake:
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url, "GEMINI_API": "interactions"}
            served = usual_providers(env)["gemini"].served
            assert served is not None
            assert [*await served()] == [MODEL, "gemini-2.5-pro"]

    run(story)


def test_a_model_is_described_by_the_server() -> None:
    async def story() -> None:
        async with scene_of([], tools=[]) as it:
            found = await it.gate.model.describe()  # pyright: ignore[reportAttributeAccessIssue]
            assert found["name"] == f"models/{MODEL}"

    run(story)


def test_research_is_asked_without_functions_and_a_notice_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def weather(city: str) -> str:
        """The weather."""
        return city

    async def story() -> None:
        async with FakeInteractions(["The report."]) as fake:
            monkeypatch.setenv("GEMINI_API_KEY", "k")
            monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
            async with Gate("deep-research-preview-04-2026", [weather, "google_search"], system="Be brief.") as gate:
                events = [event async for event in gate.stream("Research this.")]
            assert events[-1].reply.text == "The report."  # pyright: ignore[reportAttributeAccessIssue]
            said = [event.message for event in events if isinstance(event, Notice) and event.code == "tools_left_out"]
            agent = "deep-research-preview-04-2026"
            assert said == [f"The agent {agent} takes no functions, and is asked without weather."]
            assert fake.creations == [
                {
                    "agent": agent,
                    "input": [
                        {"type": "user_input", "content": [{"type": "text", "text": told}]}
                        for told in ("Be brief.", "Research this.")
                    ],
                    "tools": [{"type": "google_search"}],
                    "agent_config": {"type": "deep-research", "thinking_summaries": "auto"},
                    "store": True,
                    "background": True,
                }
            ]
            assert fake.refusals == []

    run(story)
