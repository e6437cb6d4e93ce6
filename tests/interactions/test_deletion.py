"""A deleted session takes what is stored of it at Google with it, whichever API or model the deleting gate has."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.interactions.conftest import MODEL, Clock, model_for, run, scene_of
from tests.server.conftest import serving

from callgate import Gate, GeminiModel, Limits, ScriptedModel
from callgate.gemini.surface import Surface
from callgate.server import Service, ServiceOptions
from callgate.sessions import fork
from callgate.store import MemoryStore
from callgate.testing.fake_interactions import FakeInteractions, call

TOKEN = "a-token-of-some-length"
KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def by_generate_content(fake: FakeInteractions, key: str = "test-key") -> GeminiModel:
    surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key=key)
    return GeminiModel("gemini-2.5-flash", surface=surface, limits=Limits(attempts=1))


async def filled(fake: FakeInteractions, store: MemoryStore) -> None:
    """Leave three interactions of the session `s` at the server, one of them in the middle of a turn."""

    def add(a: int, b: int) -> int:
        return a + b

    async with Gate(model_for(fake, Clock()), [add], store=store, mode="native", settings={"store": True}) as gate:
        await gate.run("1 + 2?", session="s")
        await gate.run("Thanks.", session="s")
    assert len(fake.state.stored) == 3


SCRIPT = [call("add", a=1, b=2), "Three.", "You are welcome."]


@pytest.mark.parametrize("mode", ["native", "prompted"])
def test_a_gate_on_generate_content_deletes_what_another_stored(mode: Any) -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(SCRIPT) as fake:
            await filled(fake, store)
            async with Gate(by_generate_content(fake), store=store, mode=mode) as gate:
                left: list[str] = []
                assert await gate.delete("s", report=left.append)
            assert (fake.state.stored, fake.refusals, left) == ({}, [], [])

    run(story)


def test_every_model_of_a_fallback_chain_is_asked_until_one_knows_the_interactions() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(SCRIPT) as fake:
            await filled(fake, store)
            chain = [ScriptedModel([]), by_generate_content(fake, "another-key"), by_generate_content(fake)]
            async with Gate(chain, store=store) as gate:
                left: list[str] = []
                assert await gate.delete("s", report=left.append)
            assert (fake.state.stored, left) == ({}, [])

    run(story)


def test_a_gate_without_a_model_of_google_deletes_with_the_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(SCRIPT) as fake:
            await filled(fake, store)
            monkeypatch.setenv("GEMINI_API_KEY", "test-key")
            monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
            async with Gate(ScriptedModel([]), store=store) as gate:
                assert await gate.delete("s")
            assert fake.state.stored == {}

    run(story)


def deleting(fake: FakeInteractions, name: str) -> Any:
    vertex = Surface(kind="vertex", base_url=fake.base_url, version="v1beta1", api_key="k")
    return {
        "no key": lambda: ScriptedModel([]),
        "another surface": lambda: GeminiModel(MODEL, surface=vertex),
        "another key": lambda: by_generate_content(fake, "another-key"),
        "an unreachable server": lambda: GeminiModel(
            MODEL,
            surface=Surface(kind="developer", base_url="http://127.0.0.1:9", version="v1beta", api_key="k"),
            limits=Limits(attempts=1),
        ),
    }[name]()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no key", "no key for Gemini"),
        ("another surface", "no key for Gemini"),
        ("another key", "the server knows none by these ids"),
        ("an unreachable server", "no connection to the server"),
    ],
)
def test_interactions_that_stay_at_google_are_reported_and_logged(
    caplog: pytest.LogCaptureFixture, name: str, why: str
) -> None:
    left: list[str] = []

    async def story() -> None:
        store = MemoryStore()
        async with FakeInteractions(SCRIPT) as fake:
            await filled(fake, store)
            async with Gate(deleting(fake, name), store=store) as gate:
                assert await gate.delete("s", report=left.append)
            assert (await store.load("s"), len(fake.state.stored)) == ([], 3)

    run(story)
    [said] = left
    assert said.startswith("3 of 3 interactions of session 's' could not be deleted at the provider")
    assert why in said
    assert said in [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_interactions_are_deleted_though_there_are_too_many_sessions_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that refers to one of them is sent its whole history then, while nothing else would delete them."""
    monkeypatch.setattr("callgate.run.provider_deletion.LOOKED_AT_MAX", 2)

    async def story() -> None:
        async with scene_of(["One.", "Two.", "Three."], settings={"store": True}) as it:
            await it.ask("First?", session="s")
            for number in range(3):
                await fork(it.gate.store, "s", f"fork-{number}")
            assert await it.gate.delete("s")
            assert it.fake.state.stored == {}
            assert (await it.ask("Second?", session="fork-1")).text == "Two."
            assert it.notices == ["state_lost"]

    run(story)


def test_a_session_that_cannot_be_read_keeps_nothing_of_another_at_google(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        from callgate.errors import StoreError

        async with scene_of(["One.", "Two."], settings={"store": True}) as it:
            await it.ask("First?", session="s")
            await it.ask("First?", session="damaged")
            load = it.gate.store.load

            async def damaged(session: str, **options: Any) -> Any:
                if session == "damaged":
                    raise StoreError("damaged")
                return await load(session, **options)

            monkeypatch.setattr(it.gate.store, "load", damaged)
            assert await it.gate.delete("s")
            assert len(it.fake.state.stored) == 1

    run(story)


def test_the_service_deletes_on_generate_content_too_and_says_what_is_left() -> None:
    store = MemoryStore()
    with FakeInteractions.in_thread([*SCRIPT, "Other."]) as fake:

        async def story() -> None:
            await filled(fake, store)
            async with Gate(model_for(fake, Clock()), store=store, settings={"store": True}) as gate:
                await gate.run("Something else?", session="t")

        run(story)
        gate = Gate(by_generate_content(fake), store=store)
        with serving(Service(gate, options=ServiceOptions(token=TOKEN))) as site:
            gone = site.request("DELETE", "/api/v1/sessions/s", Authorization=f"Bearer {TOKEN}")
            assert (gone.status, gone.json, len(fake.state.stored)) == (200, {"deleted": "s"}, 1)
            fake.api_key = "another-key"
            gone = site.request("DELETE", "/api/v1/sessions/t", Authorization=f"Bearer {TOKEN}")
        assert (gone.status, gone.json["deleted"], len(fake.state.stored)) == (200, "t", 1)
        [left] = gone.json["left"]
        assert left.startswith("1 of 1 interactions of session 't' could not be deleted at the provider")
