"""Gemini as a model of a gate: what it is made from, what it sends, and what it lets go of."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import httpx2
import pytest

from callgate import Gate, Limits, tool
from callgate.errors import AuthError, InvalidRequestError, RequestTimeoutError, ServerUnavailableError, UsageError
from callgate.events import Notice
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.history.conversation import Conversation
from callgate.models.choice import open_model
from callgate.models.gemini import GeminiModel
from callgate.request import ModelRequest
from callgate.testing.answers import call, text
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.faults import fault

MODEL = "gemini-3.8-flash"
VARIABLES = (
    "GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "GOOGLE_GENAI_USE_ENTERPRISE",
    "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_GENAI_API_VERSION",
)  # fmt: skip


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(300):
            await story()

    asyncio.run(bounded())


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def request_of(words: str = "Go.", *, stream: bool = True) -> ModelRequest:
    conversation = Conversation()
    conversation.add_user(words)
    return ModelRequest(conversation=conversation, stream=stream)


def surface_of(fake: FakeGemini, key: str = "k") -> Surface:
    return Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key=key)


# Made from ---------------------------------------------------------------------------------------------------------------


def test_a_name_is_enough_where_the_environment_has_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with FakeGemini([call("add", a=1, b=2), "Three."], api_key="secret") as fake:
            monkeypatch.setenv("GEMINI_API_KEY", "secret")
            monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
            reply = await Gate(MODEL, [add]).run("1 + 2?")
            assert reply.text == "Three."
            assert [record.result.value for record in reply.calls if record.result] == [3]
            assert {request.model for request in fake.requests} == {MODEL}

    run(story)


def test_without_a_key_the_sentence_says_what_to_set() -> None:
    with pytest.raises(UsageError, match="set GOOGLE_API_KEY or GEMINI_API_KEY"):
        Gate(MODEL)


def test_a_model_takes_a_key_and_an_environment_of_its_own() -> None:
    async def story() -> None:
        async with FakeGemini(["Hello."], api_key="own") as fake:
            model = GeminiModel(MODEL, api_key="own", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
            assert (await Gate(model).run("Hi.")).text == "Hello."

    run(story)


def test_a_model_takes_a_surface_and_limits_of_its_own() -> None:
    async def story() -> None:
        async with FakeGemini([fault("W25")]) as fake:
            model = GeminiModel(MODEL, surface=surface_of(fake), limits=Limits(first_byte_s=0.05))
            with pytest.raises(RequestTimeoutError):
                await Gate(model).run("Hi.")

    run(story)


def test_open_model_takes_names_and_models() -> None:
    model = open_model(GeminiModel(MODEL, api_key="k"))
    assert model.name == MODEL
    assert "k'" not in repr(model)


def test_express_and_vertex_are_reached_at_their_own_paths() -> None:
    class Tokens:
        async def token(self) -> str:
            return "bearer"

    async def story() -> None:
        async with FakeGemini(["Express.", "Vertex."]) as fake:
            env = {"GOOGLE_GENAI_USE_VERTEXAI": "1", "GOOGLE_API_KEY": "k", "GOOGLE_VERTEX_BASE_URL": fake.base_url}
            assert (await Gate(GeminiModel(MODEL, env=env)).run("Hi.")).text == "Express."
            vertex = Surface(
                kind="vertex", base_url=fake.base_url, version="v1beta1", project="p", location="eu", tokens=Tokens()
            )
            assert (await Gate(GeminiModel(MODEL, surface=vertex)).run("Hi.")).text == "Vertex."
            express, cloud = fake.requests
            assert express.path == f"/v1beta1/publishers/google/models/{MODEL}:generateContent"
            assert express.headers["x-goog-api-key"] == "k"
            assert cloud.path == f"/v1beta1/projects/p/locations/eu/publishers/google/models/{MODEL}:generateContent"
            assert cloud.headers["authorization"] == "Bearer bearer"
            assert "x-goog-api-key" not in cloud.headers

    run(story)


def test_a_bearer_token_that_the_server_echoes_is_in_no_error() -> None:
    class Tokens:
        async def token(self) -> str:
            return "ya29.very-secret-token"

    def echo(_: Any) -> Any:
        return {"error": {"code": 401, "message": "ya29.very-secret-token is stale", "status": "UNAUTHENTICATED"}}

    async def story() -> None:
        async with FakeGemini([echo]) as fake:
            cloud: Any = {"project": "p", "location": "global", "tokens": Tokens()}
            surface = Surface(kind="vertex", base_url=fake.base_url, version="v1beta1", **cloud)
            with pytest.raises(AuthError, match=r"\[key\] is stale"):
                await Gate(GeminiModel(MODEL, surface=surface)).run("Hi.")

    run(story)


# What it sends and yields ------------------------------------------------------------------------------------------------


def test_a_run_asks_for_a_whole_answer_and_a_stream_for_events() -> None:
    async def story() -> None:
        async with FakeGemini(["Whole.", "Streamed."]) as fake:
            gate = Gate(GeminiModel(MODEL, surface=surface_of(fake)))
            await gate.run("Hi.")
            async for _ in gate.stream("Hi."):
                pass
            whole, streamed = fake.requests
            assert not whole.streaming
            assert streamed.streaming
            assert streamed.wants_sse
            assert whole.headers["content-type"] == "application/json"
            assert "key" not in whole.query

    run(story)


def test_chunks_come_as_they_were_sent_and_waits_are_told() -> None:
    class Clock:
        def now(self) -> float:
            return 0.0

        async def sleep(self, seconds: float) -> None:
            """Takes no time."""

    async def story() -> None:
        async with FakeGemini([fault("W07", times=1), text("Hello there.", chunks=["Hello ", "there."])]) as fake:
            model = GeminiModel(MODEL, client=GeminiClient(surface_of(fake), clock=Clock()))
            items = [item async for item in model.generate(request_of())]
            await model.aclose()
            notice, *chunks = items
            assert isinstance(notice, Notice)
            assert notice.code == "waiting"
            assert "attempt 2 of 5" in notice.message
            assert len(chunks) == 3
            assert all("candidates" in chunk for chunk in chunks if isinstance(chunk, dict))

    run(story)


def test_a_setting_that_does_not_exist_is_refused_before_anything_is_sent() -> None:
    async def story() -> None:
        async with FakeGemini(["Hello."]) as fake:
            gate = Gate(GeminiModel(MODEL, surface=surface_of(fake)), settings={"temprature": 1})
            with pytest.raises(UsageError, match="temperature"):
                await gate.run("Hi.")
            assert fake.requests == []

    run(story)


# What it lets go of ------------------------------------------------------------------------------------------------------


def test_an_answer_that_is_not_read_to_its_end_is_let_go_of_at_once() -> None:
    async def story() -> None:
        async with FakeGemini([fault("W27")]) as fake:
            model = GeminiModel(MODEL, surface=surface_of(fake))
            async with contextlib.aclosing(model.generate(request_of())) as items:
                async for _ in items:
                    break
            async with asyncio.timeout(300):
                await fake.until_idle()
            await model.aclose()

    run(story)


def test_a_model_can_be_used_from_several_event_loops() -> None:
    with FakeGemini.in_thread(["Hello."] * 4) as fake:
        gate = Gate(GeminiModel(MODEL, surface=surface_of(fake)))

        async def once() -> str:
            return (await gate.run("Hi.")).text

        assert gate.run_sync("Hi.").text == "Hello."
        assert asyncio.run(once()) == "Hello."
        assert asyncio.run(once()) == "Hello."
        assert gate.run_sync("Hi.").text == "Hello."
        gate.close()


def test_closing_a_model_that_was_never_used_does_nothing() -> None:
    async def story() -> None:
        await GeminiModel(MODEL, api_key="k").aclose()

    run(story)


class _Renewable:
    """Tokens of which the first is not good any more."""

    project = "p"

    def __init__(self) -> None:
        self.number = 1

    async def token(self) -> str:
        return f"token-{self.number}"

    def expire(self) -> bool:
        self.number += 1
        return True


@pytest.mark.parametrize("good", ["token-2", "token-99"])
def test_a_refused_token_is_fetched_anew_once(good: str) -> None:
    async def story() -> None:
        async with FakeGemini(["Hello."], api_key=good) as fake:
            cloud: dict[str, Any] = {"kind": "vertex", "version": "v1beta1", "location": "global"}
            surface = Surface(base_url=fake.base_url, tokens=_Renewable(), **cloud)
            gate = Gate(GeminiModel("gemini-3.8-flash", surface=surface))
            if good == "token-2":
                assert (await gate.run("Go.")).text == "Hello."
            else:
                with pytest.raises(AuthError):
                    await gate.run("Go.")
            assert len(fake.requests) == 2
            assert "/projects/p/locations/global/" in fake.requests[0].path

    asyncio.run(story())


@pytest.mark.parametrize(("status", "kind"), [(400, InvalidRequestError), (200, ServerUnavailableError)])
def test_an_error_of_a_gateway_that_is_a_sentence_is_told(status: int, kind: type[Exception]) -> None:
    async def story() -> None:
        answer = httpx2.Response(status, content=b'{"error": "no such route"}')
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda request: answer))
        gate = Gate(GeminiModel("gemini-3.8-flash", api_key="k", http=http, limits=Limits(attempts=1)))
        with pytest.raises(kind, match="no such route"):
            await gate.run("Go.")

    asyncio.run(story())


def test_runs_of_a_gate_that_is_not_entered_share_a_connection_and_the_loop_closes_it_in_the_end() -> None:
    closed: list[bool] = []

    async def story() -> None:
        async with FakeGemini(["Hello."] * 5) as fake:
            surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
            model = GeminiModel(MODEL, surface=surface)
            gate = Gate(model)
            for _ in range(5):
                assert (await gate.run("Go.")).text == "Hello."
            assert fake.connections == 1
            (pool,) = model._client._http.sender._pools.values()
            (connection,) = pool.direct()._idle
            connection.socket._inbox.closed.add_done_callback(lambda _: closed.append(True))

    asyncio.run(story())
    assert closed == [True]
