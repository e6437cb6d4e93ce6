"""Background runs: journalled before anybody waits, picked up by id after a crash, cancelled at the server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.interactions.conftest import MODEL, Clock, model_for, run, scene_of

from callgate import Gate, GeminiModel, Limits, ScriptedModel, UsageError, sessions
from callgate.errors import AuthError, RequestTimeoutError, ServerUnavailableError
from callgate.events import Notice, ThoughtDelta
from callgate.gemini.surface import Surface
from callgate.machine import facts
from callgate.store import MemoryStore, open_store
from callgate.testing.exchange import SSE_TYPE, Body
from callgate.testing.fake_interactions import FakeInteractions, answer, call, thought

AGENT = "deep-research-preview-04-2026"
BEHIND = {"settings": {"background": True}}


class GoneError(Exception):
    """The process is gone, as far as the run is concerned."""


class Waiting(Clock):
    """A clock whose waits never end."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.begun.set()
        await asyncio.Event().wait()


class Watched(FakeInteractions):
    """A server that says when it was asked for a run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.asked = threading.Event()

    async def _get(self, exchange: Any, id: str) -> None:
        self.asked.set()
        await super()._get(exchange, id)


class Begun(FakeInteractions):
    """A server that says when it has begun a run, before the client hears of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.begun = asyncio.Event()

    async def _create(self, exchange: Any) -> None:
        self.begun.set()
        await super()._create(exchange)


class Refusing(FakeInteractions):
    """A server that refuses to be asked for a run."""

    is_open = False

    async def _get(self, exchange: Any, id: str) -> None:
        if self.is_open:
            await super()._get(exchange, id)
        else:
            await exchange.error(403, "permission_denied", "Not this key.")


async def interrupted(fake: FakeInteractions, store: MemoryStore) -> None:
    """Begin a run, and leave it as a process that dies leaves it."""
    clock = Waiting()
    async with Gate(model_for(fake, clock), store=store, mode="native", **BEHIND) as gate:
        running = asyncio.create_task(gate.run("Search.", session="s"))
        await clock.begun.wait()
        assert gate.interrupt("s", GoneError())
        with pytest.raises(GoneError):
            await running


def test_a_background_run_with_calls_is_answered_in_the_background() -> None:
    async def story() -> None:
        async with scene_of([call("add", a=1, b=2), "Three."], **BEHIND) as it:
            reply = await it.ask("1 + 2?")
            assert (reply.text, it.ran) == ("Three.", ["add 1 2"])
            assert [body["background"] for body in it.fake.creations] == [True, True]
            assert "progress" in it.notices
            assert it.fake.refusals == []

    run(story)


def test_the_id_is_journalled_before_anybody_waits_and_the_run_is_picked_up_by_it() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Found."], polls=2) as fake:
            await interrupted(fake, store)
            journal = await store.load("s")
            [accepted] = [fact for fact in journal if isinstance(fact, facts.ModelAccepted)]
            assert accepted.id in fake.state.stored
            async with Gate(model_for(fake, Clock()), store=store, mode="native", **BEHIND) as gate:
                reply = await gate.run(session="s")
            assert (reply.text, len(fake.creations), fake.cancelled) == ("Found.", 1, [])

    run(story)


def test_the_id_is_journalled_and_the_run_can_be_cancelled_before_a_notice_names_it() -> None:
    async def story() -> None:
        store, kept = MemoryStore(), list[str]()
        async with FakeInteractions(["Never."], polls=1_000_000) as fake:
            async with Gate(model_for(fake, Waiting()), store=store, mode="native", **BEHIND) as gate:

                async def watch(event: Any) -> None:
                    if isinstance(event, Notice) and event.code == "progress" and not kept:
                        journal = await store.load("s")
                        kept.extend(fact.id for fact in journal if isinstance(fact, facts.ModelAccepted))
                        assert gate.cancel("s")

                reply = await gate.run("Search.", session="s", watch=watch)
            assert (reply.finish_reason, kept) == ("cancelled", [*fake.state.stored])
            assert fake.cancelled == kept

    run(story)


def test_a_run_that_the_server_forgot_meanwhile_is_begun_again() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Lost.", "Found."], polls=2) as fake:
            await interrupted(fake, store)
            fake.forget()
            async with Gate(model_for(fake, Clock()), store=store, mode="native", **BEHIND) as gate:
                reply = await gate.run(session="s")
            assert (reply.text, len(fake.creations)) == ("Found.", 2)

    run(story)


@pytest.mark.parametrize("how", ["another prompt", "after a rewind", "by another model"])
def test_a_run_whose_answer_nobody_waits_for_any_more_is_stopped_at_the_server(how: str) -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Never.", "Found."], polls=2) as fake:
            await interrupted(fake, store)
            left = [*fake.state.stored]
            if how == "after a rewind":
                await sessions.rewind(store, "s")
            name = "gemini-3.7-flash" if how == "by another model" else MODEL
            prompt = "Another." if how in ("another prompt", "after a rewind") else None
            async with Gate(model_for(fake, Clock(), name), store=store, mode="native", **BEHIND) as gate:
                assert (await gate.run(prompt, session="s")).text == "Found."
            assert (fake.cancelled, len(fake.creations), fake.breaches) == (left, 2, [])

    run(story)


@pytest.mark.parametrize("settings", [{}, {"store": True}, {"background": True, "temperature": 1}], ids=str)
def test_a_run_is_picked_up_by_a_gate_with_other_settings(settings: Any) -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Found.", "Again."], polls=2) as fake:
            await interrupted(fake, store)
            async with Gate(model_for(fake, Clock()), store=store, mode="native", settings=settings) as gate:
                assert (await gate.run(session="s")).text == "Found."
                assert (fake.cancelled, len(fake.creations)) == ([], 1)
                assert (await gate.run("And now?", session="s")).text == "Again."
            assert fake.creations[1].get("background", False) is settings.get("background", False)
            assert (fake.refusals, fake.breaches) == ([], [])

    run(story)


class ByGenerateContent(GeminiModel):
    """A model of the other API at the same place."""

    def generate(self, request: Any) -> Any:
        return ScriptedModel(["Found."]).generate(request)


def by_generate_content(fake: FakeInteractions) -> GeminiModel:
    return ByGenerateContent(
        MODEL, surface=Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="test-key")
    )


@pytest.mark.parametrize("prompt", ["Another.", None])
@pytest.mark.parametrize("api", ["generateContent", "no API of Google", "a chain"])
def test_a_run_is_stopped_whatever_api_continues_the_session(monkeypatch: pytest.MonkeyPatch, api: str, prompt: Any) -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Never."], polls=1_000_000) as fake:
            await interrupted(fake, store)
            if api == "no API of Google":
                monkeypatch.setenv("GEMINI_API_KEY", "test-key")
                monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
            models = {
                "generateContent": [by_generate_content(fake)],
                "a chain": [ScriptedModel(["Found."]), by_generate_content(fake)],
                "no API of Google": [ScriptedModel(["Found."])],
            }[api]
            async with Gate(models, store=store, mode="native") as gate:
                assert (await gate.run(prompt, session="s")).text == "Found."
            assert fake.cancelled == [*fake.state.stored]

    run(story)


@pytest.mark.usefixtures("unjudged")
def test_a_run_that_cannot_be_stopped_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(name, raising=False)

    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Never."], polls=1_000_000) as fake:
            await interrupted(fake, store)
        async with Gate(ScriptedModel(["Found."]), store=store) as gate:
            events = [event async for event in gate.stream("Another.", session="s")]
        [notice] = [event for event in events if isinstance(event, Notice) and event.code == "not_stopped"]
        assert "no key for Gemini" in notice.message

    run(story)


@pytest.mark.parametrize("name", [MODEL, AGENT])
def test_a_run_that_is_cancelled_before_its_id_has_arrived_is_stopped_at_the_server(name: str) -> None:
    async def story() -> None:
        async with Begun(["Never."], polls=1_000_000) as fake:
            async with Gate(model_for(fake, Clock(), name), mode="native", settings={"background": True}) as gate:
                running = asyncio.create_task(gate.run("Search.", session="s"))
                await fake.begun.wait()
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            assert fake.cancelled == [*fake.state.stored]

    run(story)


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with a fork"])
def test_a_deleted_session_stops_its_run_first(shared: bool) -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(["Never."], polls=1_000_000) as fake:
            await interrupted(fake, store)
            [id] = fake.state.stored
            if shared:
                await sessions.fork(store, "s", "copy")
            async with Gate(by_generate_content(fake), store=store) as gate:
                left: list[str] = []
                assert await gate.delete("s", report=left.append)
            assert (fake.cancelled, [*fake.state.stored], left) == ([id], [id] if shared else [], [])
            asked = [request.method for request in fake.requests][-2:]
            assert asked[-1] == "POST" if shared else asked == ["POST", "DELETE"]

    run(story)


def test_a_run_whose_wait_failed_is_stopped_when_the_session_goes_on() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with Refusing(["Never.", "Found."], polls=1) as fake:
            async with Gate(model_for(fake, Clock()), store=store, mode="native", **BEHIND) as gate:
                with pytest.raises(AuthError):
                    await gate.run("Search.", session="s")
                [id] = fake.state.stored
                fake.is_open = True
                assert (await gate.run("Another.", session="s")).text == "Found."
            assert fake.cancelled == [id]

    run(story)


@pytest.mark.slow
def test_a_killed_process_leaves_a_run_that_another_one_finishes(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from callgate import Gate, InteractionsModel
from callgate.gemini.surface import Surface

async def main():
    surface = Surface(kind="developer", base_url=sys.argv[1], version="v1beta", api_key="test-key")
    async with Gate(InteractionsModel("gemini-3.8-flash", surface=surface), store=sys.argv[2], mode="native",
                    settings={"background": True}) as gate:
        async for event in gate.stream("Search.", session="s"):
            pass
asyncio.run(main())
"""
    path = str(tmp_path / "sessions.db")
    with Watched.in_thread(["Found."], polls=1_000_000) as fake:
        child = subprocess.Popen([sys.executable, "-c", program, fake.base_url, path])
        try:
            assert fake.asked.wait(120)  # It asks for the run, so it has journalled the id.
        finally:
            child.kill()
            child.wait()
        for stored in fake.state.stored.values():
            stored.polls_left = 0

        async def story() -> Any:
            store = open_store(path)
            async with Gate(model_for(fake, Clock()), store=store, mode="native", **BEHIND) as gate:
                reply = await gate.run(session="s")
            await store.aclose()
            return reply

        assert run(story).text == "Found."
        assert len(fake.creations) == 1


def test_cancelling_the_run_cancels_it_at_the_server() -> None:
    async def story() -> None:
        clock = Waiting()
        async with FakeInteractions(["Never."], polls=1_000_000) as fake:
            async with Gate(model_for(fake, clock), mode="native", **BEHIND) as gate:
                running = asyncio.create_task(gate.run("Search.", session="s"))
                await clock.begun.wait()
                assert gate.cancel("s")
                assert (await running).finish_reason == "cancelled"
            assert len(fake.cancelled) == 1

    run(story)


def test_an_agent_shows_its_progress_as_events_and_its_text_as_the_answer() -> None:
    async def story() -> None:
        script = [answer(thought("I look for sources."), "The report.")]
        async with scene_of(script, name=AGENT, tools=[]) as it:
            events = [event async for event in it.gate.stream("Research this.")]
            assert [event.text for event in events if isinstance(event, ThoughtDelta)] == ["I look for sources."]
            assert any(isinstance(event, Notice) and event.code == "progress" for event in events)
            body = it.fake.creations[0]
            assert (body["agent"], body["background"], body["store"]) == (AGENT, True, True)
            assert "model" not in body
            assert it.fake.refusals == []

    run(story)


def test_an_agent_takes_no_settings_of_a_model() -> None:
    async def story() -> None:
        async with scene_of([], name=AGENT, tools=[], settings={"temperature": 1}) as it:
            with pytest.raises(UsageError, match="takes no settings of a model: temperature"):
                await it.ask()

    run(story)


def test_an_agent_is_asked_by_name_as_any_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    assert type(Gate(AGENT, mode="native").model).__name__ == "InteractionsModel"
    assert type(Gate("gemini-3.8-flash", mode="native").model).__name__ == "GeminiModel"
    assert type(Gate("gemini-3.8-flash", mode="native", api="interactions").model).__name__ == "InteractionsModel"
    monkeypatch.setenv("GEMINI_API", "interactions")
    gate = Gate("gemini-3.8-flash", mode="native")
    assert type(gate.model).__name__ == "InteractionsModel"
    assert type(gate.with_options(api="generateContent").model).__name__ == "GeminiModel"
    with pytest.raises(UsageError, match="use one of 'generateContent', 'interactions'"):
        Gate("gemini-3.8-flash", api="soap")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({}, {"type": "deep-research", "thinking_summaries": "auto"}),
        ({"include_thoughts": False}, {"type": "deep-research", "thinking_summaries": "none"}),
        ({"agent_config": {"visualization": "off"}}, {
            "type": "deep-research", "thinking_summaries": "auto", "visualization": "off",
        }),
    ],
)  # fmt: skip
def test_research_shows_its_thoughts_unless_it_may_not(settings: Any, config: Any) -> None:
    async def story() -> None:
        async with scene_of(["The report."], name=AGENT, tools=[], settings=settings) as it:
            await it.ask()
            assert it.fake.creations[0]["agent_config"] == config
            assert it.fake.refusals == []

    run(story)


def test_research_gives_an_output_of_a_type_whose_schema_it_is_sent_as_text() -> None:
    async def story() -> None:
        schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
        async with scene_of(['{"sum": 3}'], name=AGENT, tools=[]) as it:
            assert (await it.ask("1 + 2?", output=schema)).output == {"sum": 3}
            body = it.fake.creations[0]
            assert ("response_format" in body, it.fake.refusals) == (False, [])
            assert '"sum"' in body["input"][0]["content"][0]["text"]

    run(story)


def test_an_agents_configuration_that_is_no_object_is_refused() -> None:
    async def story() -> None:
        async with scene_of([], name=AGENT, tools=[], settings={"agent_config": "fast"}) as it:
            with pytest.raises(UsageError, match="agent_config='fast': use an object"):
                await it.ask()

    run(story)


def test_the_limits_of_a_gate_bound_a_background_run_of_a_model_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with FakeInteractions(["Never."], repeat_last=True, polls=1_000_000) as fake:
            monkeypatch.setenv("GEMINI_API_KEY", "k")
            monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
            limits = Limits(background_s=0.01)
            async with Gate("gemini-3.8-flash", api="interactions", limits=limits, **BEHIND) as gate:
                for same in (gate, gate.with_options("gemini-3.7-flash"), gate.with_options(["gemini-3.7-flash"])):
                    with pytest.raises(RequestTimeoutError, match=r"was not done within 0\.01 s"):
                        await same.run("Search.")
            assert len(fake.cancelled) == 3

    run(story)


class Broken(FakeInteractions):
    """A server whose streams of background runs are of no use."""

    how = ""

    async def _get(self, exchange: Any, id: str) -> None:
        if not exchange.request.streaming:
            await super()._get(exchange, id)
        elif self.how == "hangs":
            await exchange.begin(Body(SSE_TYPE, (), streamed=True))
            await exchange.until_closed()
        elif self.how == "empty":
            await exchange.send_events([], done=False)
        else:
            await exchange.error(int(self.how), "api_error" if self.how == "500" else "invalid_request", "No streams.")


@pytest.mark.parametrize("how", ["hangs", "empty", "500", "400"])
def test_a_run_whose_streams_are_of_no_use_is_fetched_whole(how: str) -> None:
    async def story() -> None:
        limits = Limits(attempts=2, backoff_s=0.01, idle_s=0.2, background_s=600.0)
        async with asyncio.timeout(120), Broken(["Found."], polls=3) as fake:
            fake.how = how
            async with Gate(model_for(fake, Clock(), limits=limits), mode="native", **BEHIND) as gate:
                events = [event async for event in gate.stream("Search.")]
            assert (events[-1].reply.text, fake.cancelled) == ("Found.", [])
            asked = [request.query["stream"] for request in fake.requests if request.method == "GET"]
            assert asked.count("true") <= 4, "after two streams that brought nothing, none is asked for"

    run(story)


def test_a_failed_run_says_why() -> None:
    async def story() -> None:
        failed = {"status": "failed", "steps": [], "errors": [{"code": "api_error", "message": "Boom."}]}
        async with scene_of([failed], **BEHIND) as it:
            with pytest.raises(ServerUnavailableError, match=r"Boom\."):
                await it.ask("Search.")

    run(story)


def test_the_limit_of_the_gate_holds_for_a_model_that_has_a_longer_one() -> None:
    async def story() -> None:
        async with scene_of(["Never."], fake={"polls": 10_000}, limits=Limits(background_s=3), **BEHIND) as it:
            with pytest.raises(RequestTimeoutError, match="was not done within 3 s"):
                await it.ask("Search.")

    run(story)


@pytest.mark.parametrize("limit_s", [5.0, 60.0])
def test_a_run_has_all_of_its_time_before_it_is_cancelled(limit_s: float) -> None:
    async def story() -> None:
        limits = Limits(attempts=2, backoff_s=0.01, background_s=limit_s)
        async with scene_of(["Never."], fake={"polls": 10_000}, model={"limits": limits}, **BEHIND) as it:
            with pytest.raises(RequestTimeoutError, match=f"was not done within {limit_s:g} s"):
                await it.ask("Search.")
            model_clock = it.gate.model._client.clock  # pyright: ignore
            assert model_clock.time == pytest.approx(limit_s)
            assert len(it.fake.cancelled) == 1

    run(story)


def test_the_tokens_of_a_run_whose_stream_leaves_them_out_are_asked_for() -> None:
    class Uncounted(FakeInteractions):
        async def _get(self, exchange: Any, id: str) -> None:
            found = self.state.stored[id]
            found.events = [
                {**event, "interaction": {k: v for k, v in event["interaction"].items() if k != "usage"}}
                if event["event_type"] == "interaction.completed" else event
                for event in found.events
            ]  # fmt: skip
            await super()._get(exchange, id)

    async def story() -> None:
        async with asyncio.timeout(120), Uncounted(["Found."], polls=0) as fake:
            async with Gate(model_for(fake, Clock()), mode="native", **BEHIND) as gate:
                events = [event async for event in gate.stream("Search.")]
            assert events[-1].reply.usage.total_tokens > 0
            asked = [request.query["stream"] for request in fake.requests if request.method == "GET"]
            assert asked == ["true", "false"]

    run(story)
