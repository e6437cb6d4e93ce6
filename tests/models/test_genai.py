"""A model behind a client of Google's own SDK: the same bodies, the same chunks, the same errors."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from google import genai
from google.genai import types

from callgate import Gate, Limits, UsageError, tool
from callgate.errors import (
    AuthError,
    ConnectionLostError,
    ModelError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
)
from callgate.models.gemini import GeminiModel
from callgate.models.genai import GenaiModel
from callgate.testing.fake_gemini import FakeGemini, call, fault, text

pytestmark = pytest.mark.judge("google-genai")

MODEL = "gemini-3.8-flash"


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def client_of(fake: FakeGemini) -> genai.Client:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=fake.base_url, headers={"x-mine": "yes"}))


async def told(gate: Gate, *, stream: bool) -> tuple[str, list[Any]]:
    if not stream:
        reply = await gate.run("What is 1 + 2?")
    else:
        events = [event async for event in gate.stream("What is 1 + 2?")]
        reply = events[-1].reply
    return reply.text, [record.result.value for record in reply.calls if record.result]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_gate_speaks_through_the_clients_own_connection_with_the_bodies_of_our_own(stream: bool):
    async def story(own: bool) -> tuple[tuple[str, list[Any]], list[Any], list[str | None]]:
        async with FakeGemini([call("add", a=1, b=2), text("It is 3.")]) as fake:
            client = client_of(fake)
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
            model = GeminiModel(MODEL, env=env) if own else GenaiModel(client, MODEL)
            async with Gate(model, tools=[add], system="Be exact.", settings={"temperature": 0.5}) as gate:
                got = await told(gate, stream=stream)
            await client.aio.aclose()
            assert fake.refusals == []
            return got, [r.json for r in fake.requests], [r.headers.get("x-mine") for r in fake.requests]

    ours, theirs = asyncio.run(story(True)), asyncio.run(story(False))
    assert theirs[0] == ours[0] == ("It is 3.", [3])
    assert theirs[2] == ["yes", "yes"]
    strip = [json.dumps(body, sort_keys=True).replace("\\u", "u") for body in theirs[1]]
    expected = [json.dumps(body, sort_keys=True).replace("\\u", "u") for body in ours[1]]
    assert [len(body) for body in strip] == [len(body) for body in expected]  # signatures are minted anew by each server
    assert strip[0] == expected[0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("daily_quota", RateLimitedError), ("not_allowed", AuthError), ("internal_error", ServerUnavailableError)],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_what_goes_wrong_has_the_words_of_callgate(name: str, kind: type[Exception], stream: bool):
    async def story() -> None:
        async with FakeGemini([fault(name)] * 6) as fake:
            client = client_of(fake)
            try:
                with pytest.raises(kind):
                    await told(Gate(GenaiModel(client, MODEL), tools=[add]), stream=stream)
            finally:
                await client.aio.aclose()

    asyncio.run(asyncio.wait_for(story(), 300))


def test_a_server_that_is_not_there_and_one_that_says_nothing_are_typed_errors():
    async def nowhere() -> None:
        client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url="http://127.0.0.1:9"))
        with pytest.raises(ConnectionLostError):
            await Gate(GenaiModel(client, MODEL)).run("Go.")
        await client.aio.aclose()

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async def silent() -> None:
        client = genai.Client(api_key="k")
        client._api_client.async_request_streamed = never  # type: ignore[method-assign]
        gate = Gate(GenaiModel(client, MODEL, limits=Limits(total_s=0.05)))
        with pytest.raises(RequestTimeoutError, match=r"0\.05 s"):
            _ = [event async for event in gate.stream("Go.")]

    asyncio.run(asyncio.wait_for(nowhere(), 60))
    asyncio.run(asyncio.wait_for(silent(), 60))


def test_a_stream_that_ends_without_a_finish_reason_is_an_error_and_runs_nothing():
    class Piece:
        body = json.dumps({"candidates": [{"content": {"role": "model", "parts": [{"text": "Half"}]}}]})

    closed: list[bool] = []

    async def sent(*_: object) -> Any:
        async def pieces() -> Any:
            try:
                yield Piece()
            finally:
                closed.append(True)

        return pieces()

    async def story() -> None:
        client = genai.Client(api_key="k")
        client._api_client.async_request_streamed = sent  # type: ignore[method-assign]
        with pytest.raises(ModelError):
            _ = [event async for event in Gate(GenaiModel(client, MODEL)).stream("Go.")]

    asyncio.run(asyncio.wait_for(story(), 300))
    assert set(closed) == {True}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_client_of_vertex_asks_vertex(stream: bool):
    async def story() -> list[str]:
        async with FakeGemini([text("Hello.")]) as fake:
            options = types.HttpOptions(base_url=fake.base_url)
            client = genai.Client(vertexai=True, api_key="k", http_options=options)
            model = GenaiModel(client, MODEL)
            assert model.origin == f"vertex:{MODEL}"
            assert (await told(Gate(model), stream=stream))[0] == "Hello."
            await client.aio.aclose()
            assert fake.refusals == []
            return [request.surface for request in fake.requests]

    assert asyncio.run(asyncio.wait_for(story(), 300)) == ["vertex"]


def test_a_model_without_tools_is_told_of_them_in_words():
    async def story() -> tuple[str, list[Any]]:
        async with FakeGemini(['TOOL_CALL: add({"a": 1, "b": 2})', text("3.")]) as fake:
            client = client_of(fake)
            got = await told(Gate(GenaiModel(client, "gemma-4-27b-it"), tools=[add]), stream=False)
            await client.aio.aclose()
            return got

    assert asyncio.run(asyncio.wait_for(story(), 300)) == ("3.", [3])


def test_without_the_sdks_streaming_door_answers_come_whole_by_its_public_one():
    async def story() -> str:
        async with FakeGemini([text("Whole.")]) as fake:
            client = client_of(fake)

            class Outside:
                aio, models, vertexai = client.aio, client.models, False

            answer, _ = await told(Gate(GenaiModel(Outside(), MODEL)), stream=True)
            await client.aio.aclose()
            return answer

    assert asyncio.run(asyncio.wait_for(story(), 300)) == "Whole."


def test_something_else_is_no_client():
    with pytest.raises(UsageError, match=r"not a google\.genai\.Client"):
        GenaiModel(object(), MODEL)


def test_a_model_of_another_name_is_asked_through_the_same_client():
    async def story() -> tuple[str, str, str | None]:
        async with FakeGemini(["Hello."]) as fake:
            client = client_of(fake)
            model = GenaiModel(client, MODEL).with_name("gemini-other")
            async with Gate(model) as gate:
                await gate.run("Hi")
            await client.aio.aclose()
            return model.provider, fake.requests[0].model, fake.requests[0].headers.get("x-mine")

    assert asyncio.run(story()) == ("gcp.gemini", "gemini-other", "yes")
