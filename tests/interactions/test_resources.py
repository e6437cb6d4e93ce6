"""What all APIs of Gemini share is there by the Interactions API too: uploads, the list of models, descriptions."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from tests.interactions.conftest import MODEL, Clock, model_for, run, scene_of
from tests.interactions.test_background import interrupted

from callgate import Gate, Limits, Media
from callgate.errors import ModelError
from callgate.events import Notice, TextDelta
from callgate.server.providers import usual_providers
from callgate.sessions import fork
from callgate.store import MemoryStore
from callgate.testing.fake_interactions import FakeInteractions, call, fault, raw

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


@pytest.mark.parametrize("settings", [{}, {"store": True}])
def test_a_conversation_goes_on_without_files_that_the_server_does_not_have_any_more(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, bool]
) -> None:
    monkeypatch.setattr("callgate.media_files.INLINE_BYTES_MAX", 1_000)
    films = [Media(data=VIDEO + bytes([number]), mime_type="video/mp4") for number in (1, 2)]

    async def story() -> None:
        async with scene_of(["Films.", "Gone.", "Still."], settings=settings) as it:
            await it.ask(["What are these?", *films], session="s")
            it.fake.resources.files.clear()
            it.fake.forget()
            it.notices.clear()
            assert (await it.ask("And now?", session="s")).text == "Gone."
            left_out = {"type": "text", "text": "(A file of type video/mp4 was here. It is not available any more.)"}
            said = it.fake.creations[-1]["input"][0]["content"]
            assert said == [{"type": "text", "text": "What are these?"}, left_out, left_out]
            assert [code for code in it.notices if code == "file_gone"] == ["file_gone"] * 2
            requests = len(it.fake.creations)
            await it.ask("And then?", session="s")
            assert len(it.fake.creations) == requests + 1

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


def part(token: str) -> Any:
    """A piece of an answer that goes on in another request."""
    said = [{"type": "thought", "signature": token}, {"type": "model_output", "content": [{"type": "text", "text": "A "}]}]
    return raw({"status": "requires_continuation", "continuation_token": token, "steps": said})


LEFT: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "pieces": ([part("t1"), part("t2"), "end."], {}),
    "malformed": ([fault("IF55:failed"), "Fine."], {}),
    "error": ([fault("IF20"), "Fine."], {"fake": {"numbered": False}}),
    "failed": ([raw({"status": "failed", "steps": [], "errors": [{"code": "api_error", "message": "No."}]})], {}),
    "safety": ([fault("IF59"), "Fine."], {}),
    "summaries": (["word " * 200] * 12, {"limits": Limits(context_tokens=900)}),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", LEFT)
def test_interactions_that_no_answer_names_are_deleted_with_their_session(name: str, stream: bool) -> None:
    script, options = LEFT[name]

    async def story() -> None:
        async with scene_of(script, settings={"store": True}, **options) as it:
            for number in range(4 if name == "summaries" else 1):
                with contextlib.suppress(ModelError):
                    if stream:
                        [event async for event in it.gate.stream(f"{number}? {'x ' * 50}", session="s")]
                    else:
                        await it.ask(f"{number}? {'x ' * 50}", session="s")
            assert it.fake.state.stored
            assert await it.gate.delete("s")
            assert it.fake.state.stored == {}

    run(story)


def test_an_interaction_whose_stream_is_left_in_the_middle_is_deleted_with_its_session() -> None:
    async def story() -> None:
        async with scene_of(["word " * 500], settings={"store": True}) as it:
            async with contextlib.aclosing(it.gate.stream("Go on.", session="s")) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
            assert len(it.fake.state.stored) == 1
            assert await it.gate.delete("s")
            assert it.fake.state.stored == {}

    run(story)


def test_the_last_of_a_session_and_its_fork_takes_what_both_refer_to_with_it() -> None:
    async def story() -> None:
        async with scene_of(["One.", "Two.", "Three."], settings={"store": True}) as it:
            await it.ask("First?", session="s")
            await fork(it.gate.store, "s", "t")
            await it.ask("Second?", session="s")
            await it.ask("Third?", session="t")
            assert await it.gate.delete("s")
            assert len(it.fake.state.stored) == 2
            assert await it.gate.delete("t")
            assert it.fake.state.stored == {}

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
