"""Context caching against the strict fake: made when it is worth it, reused, renewed, dropped, and never a failed run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from google import genai
from google.genai import types as genai_types

from callgate import ContextCache, Gate, GeminiModel, InteractionsModel, ScriptedModel, UsageError, tool
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import surface_from_environment
from callgate.models import has_context_cache
from callgate.models.chain import ModelChain
from callgate.permission import ResultCache
from callgate.testing import FakeGemini, call

SYSTEM = "You know all of the rules. " * 400
MODEL = "gemini-3.8-flash"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def model_of(fake: FakeGemini) -> GeminiModel:
    return GeminiModel(MODEL, api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body())


def sent(fake: FakeGemini) -> list[Any]:
    return [request.json for request in fake.requests if ":" in request.path]


def paths(fake: FakeGemini) -> list[tuple[str, str]]:
    return [(request.method, request.path) for request in fake.requests if "cachedContents" in request.path]


def test_the_second_request_with_the_same_beginning_makes_a_cache_and_later_ones_use_it() -> None:
    async def body() -> None:
        script = ["one", call("add", a=1, b=2), "three", "four"]
        async with (
            FakeGemini(script) as fake,
            Gate(model_of(fake), [add], system=SYSTEM, cache=ContextCache(min_tokens=1_024)) as gate,
        ):
            first = await gate.run("a")
            second = await gate.run("b")
            third = await gate.run("c")
            assert fake.refusals == []
            [made] = fake.resources.caches.values()
            bodies = sent(fake)
        assert [call.result.value for call in second.calls] == [3]
        assert made["systemInstruction"] == {"parts": [{"text": SYSTEM}]}
        assert made["tools"][0]["functionDeclarations"][0]["name"] == "add"
        genai_types.CreateCachedContentConfig.model_validate(
            {key: made[key] for key in ("systemInstruction", "tools", "toolConfig", "ttl") if key in made}
        )
        assert [body.get("cachedContent") for body in bodies] == [None, *["cachedContents/fake1"] * 3]
        for cached in bodies[1:]:
            assert not cached.keys() & {"systemInstruction", "tools", "toolConfig"}
        assert first.usage.cached_tokens == 0
        assert second.usage.cached_tokens > 2_000
        assert third.usage.cached_tokens > 1_000
        assert fake.resources.caches == {}, "the gate deletes its caches when it is left"
        assert paths(fake) == [("POST", "/v1beta/cachedContents"), ("DELETE", "/v1beta/cachedContents/fake1")]

    run(body)


def test_the_exchanges_of_a_long_history_move_into_a_longer_cache() -> None:
    async def body() -> None:
        policy = ContextCache(min_tokens=1_024, uses=1)
        async with FakeGemini(["one", "two", "three"]) as fake, Gate(model_of(fake), cache=policy) as gate:
            await gate.run("a " * 5_000, session="s")
            await gate.run("b " * 5_000, session="s")
            await gate.run("c", session="s")
            assert fake.refusals == []
            bodies = sent(fake)
        assert [len(body["contents"]) for body in bodies] == [1, 1, 1]
        assert [body.get("cachedContent") for body in bodies] == [None, "cachedContents/fake1", "cachedContents/fake2"]
        assert ("DELETE", "/v1beta/cachedContents/fake1") in paths(fake)

    run(body)


@pytest.mark.usefixtures("unjudged")
def test_a_cache_that_is_gone_costs_a_request_and_no_run() -> None:
    async def body() -> None:
        policy = ContextCache(min_tokens=1_024, uses=1)
        async with FakeGemini(["one", "two", "three"]) as fake, Gate(model_of(fake), system=SYSTEM, cache=policy) as gate:
            await gate.run("a")
            fake.resources.caches.clear()
            reply = await gate.run("b")
            again = await gate.run("c")
            assert (reply.text, again.text) == ("two", "three")
            assert [refusal.rule for refusal in fake.refusals] == ["cache_exists"]
            assert [body.get("cachedContent") for body in sent(fake)] == [
                "cachedContents/fake1", "cachedContents/fake1", None, "cachedContents/fake2",
            ]  # fmt: skip

    run(body)


@pytest.mark.usefixtures("unjudged")
def test_a_beginning_that_is_too_small_or_refused_is_sent_whole() -> None:
    async def body() -> None:
        policy = ContextCache(min_tokens=1, uses=1)
        async with FakeGemini(["one", "two"]) as fake, Gate(model_of(fake), system="Be brief.", cache=policy) as gate:
            assert [(await gate.run(word)).text for word in "ab"] == ["one", "two"]
            assert [body.get("cachedContent") for body in sent(fake)] == [None, None]
            assert paths(fake) == [("POST", "/v1beta/cachedContents")], "what was refused is not tried again"
        policy = ContextCache(uses=1)
        async with FakeGemini(["one"]) as fake, Gate(model_of(fake), system="Be brief.", cache=policy) as gate:
            await gate.run("a")
            assert paths(fake) == []

    run(body)


def test_a_cache_is_renewed_while_it_is_used_and_made_anew_when_it_has_expired() -> None:
    async def body() -> None:
        async with FakeGemini(["one", "two", "three"]) as fake:
            clock = Clock()
            fake.resources.now = clock.now
            surface = surface_from_environment({"GOOGLE_GEMINI_BASE_URL": fake.base_url}, api_key="k")
            model = GeminiModel(MODEL, client=GeminiClient(surface, clock=clock))
            policy = ContextCache(min_tokens=1_024, uses=1, ttl_s=100)
            async with Gate(model, system=SYSTEM, cache=policy) as gate:
                await gate.run("a")
                clock.at += 90
                await gate.run("b")
                clock.at += 150
                await gate.run("c")
            assert fake.refusals == []
            assert [method for method, _ in paths(fake)] == ["POST", "PATCH", "POST", "DELETE"]

    run(body)


class Clock:
    """A clock that a test moves; the client and the fake share it."""

    at = 1_000.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def test_a_renewed_cache_is_used_beyond_its_first_end_and_deleted_with_the_gate() -> None:
    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake:
            clock = Clock()
            fake.resources.now = clock.now
            surface = surface_from_environment({"GOOGLE_GEMINI_BASE_URL": fake.base_url}, api_key="k")
            model = GeminiModel(MODEL, client=GeminiClient(surface, clock=clock))
            policy = ContextCache(min_tokens=1_024, uses=1, ttl_s=100)
            async with Gate(model, system=SYSTEM, cache=policy) as gate:
                replies = [await gate.run("at the start")]
                [made] = fake.resources.caches.values()
                assert made["expires_s"] == 1_100.0
                clock.at = 1_079.0
                replies.append(await gate.run("with more than a fifth of its time left"))
                assert made["expires_s"] == 1_100.0
                clock.at = 1_081.0
                replies.append(await gate.run("with less"))
                assert made["expires_s"] == 1_181.0
                clock.at = 1_150.0
                replies.append(await gate.run("after its first end"))
                assert list(fake.resources.caches) == [made["name"]]
            assert fake.refusals == []
            assert fake.resources.caches == {}
            assert [body.get("cachedContent") for body in sent(fake)] == [made["name"]] * 4
            assert all(reply.usage.cached_tokens > 2_000 for reply in replies)
            name = f"/v1beta/{made['name']}"
            assert [(method, path.partition("?")[0]) for method, path in paths(fake)] == [
                ("POST", "/v1beta/cachedContents"), ("PATCH", name), ("DELETE", name),
            ]  # fmt: skip
            [renewed] = [request for request in fake.requests if request.method == "PATCH"]
            assert renewed.json == {"ttl": "100s"}

    run(body)


@pytest.mark.usefixtures("unjudged")
def test_a_cache_that_cannot_be_renewed_is_used_to_its_end_and_made_anew_then() -> None:
    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake:
            clock = Clock()
            fake.resources.now = clock.now
            surface = surface_from_environment({"GOOGLE_GEMINI_BASE_URL": fake.base_url}, api_key="k")
            model = GeminiModel(MODEL, client=GeminiClient(surface, clock=clock))
            policy = ContextCache(min_tokens=1_024, uses=1, ttl_s=100)
            async with Gate(model, system=SYSTEM, cache=policy) as gate:
                await gate.run("a")
                clock.at += 90
                fake.resources.caches.clear()
                assert (await gate.run("b")).text == "ok"
                assert (await gate.run("c")).usage.cached_tokens > 2_000
            assert [method for method, _ in paths(fake)] == ["POST", "PATCH", "POST", "DELETE", "DELETE"]

    run(body)


def noticed(model: Any, **options: Any) -> list[str]:
    async def body() -> list[str]:
        gate = Gate(model, **options)
        return [event.message async for event in gate.stream("x") if getattr(event, "code", "") == "setting_changed"]

    return asyncio.run(body())


def test_a_model_without_a_context_cache_says_that_requests_are_sent_whole() -> None:
    told = "'scripted' has no context cache in this API: every request is sent whole, as without cache=."
    assert noticed(ScriptedModel(["ok"]), cache=True) == [told]
    assert noticed(ScriptedModel(["ok"]), cache=ResultCache()) == []
    assert noticed(ScriptedModel(["ok"])) == []


@pytest.mark.parametrize(("name", "has"), [(MODEL, True), ("gemini-4-flash", False), ("gemma-4-27b-it", False)])
def test_a_model_tells_by_its_name_whether_it_has_a_context_cache(name: str, has: bool) -> None:
    assert has_context_cache(GeminiModel(name, api_key="k", env={})) is has
    spare = InteractionsModel(MODEL, api_key="k", env={})
    assert has_context_cache(ModelChain([spare, GeminiModel(name, api_key="k", env={})])) is has


def test_google_genai_makes_and_uses_a_cache_of_the_same_server() -> None:
    async def body() -> None:
        async with FakeGemini(["one"]) as fake:
            client = genai.Client(api_key="k", http_options=genai_types.HttpOptions(base_url=fake.base_url))
            made = await client.aio.caches.create(model=MODEL, config={"system_instruction": SYSTEM, "ttl": "60s"})
            answer = await client.aio.models.generate_content(
                model=MODEL, contents="a", config={"cached_content": made.name}
            )
            assert answer.usage_metadata.cached_content_token_count == made.usage_metadata.total_token_count
            await client.aio.caches.delete(name=made.name)
            assert fake.resources.caches == {}

    run(body)


def test_cache_takes_a_policy_a_cache_of_results_both_or_true() -> None:
    results = ResultCache()
    for given in (ContextCache(), results, [ContextCache(), results], True, None):
        Gate(GeminiModel(MODEL, api_key="k", env={}), cache=given)
    with pytest.raises(UsageError, match="expected a ContextCache"):
        Gate(GeminiModel(MODEL, api_key="k", env={}), cache="yes")  # pyright: ignore[reportArgumentType]
    for wrong in ({"min_tokens": "4096"}, {"uses": 1.5}, {"ttl_s": None}):
        with pytest.raises(UsageError, match="at least 1"):
            ContextCache(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="at least 1"):
        ContextCache(ttl_s=0)


def test_concurrent_runs_make_one_cache_of_the_same_beginning_and_leave_none() -> None:
    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake:
            async with Gate(model_of(fake), system=SYSTEM, cache=ContextCache(min_tokens=1_024)) as gate:
                await gate.run_many([f"question {number}" for number in range(24)])
                assert [method for method, _ in paths(fake)] == ["POST"]
                assert len(fake.resources.caches) == 1
            assert fake.resources.caches == {}
            assert fake.refusals == []

    run(body)


def test_a_cache_whose_run_is_cancelled_while_it_is_made_is_deleted_at_the_end() -> None:
    async def body() -> None:
        async with FakeGemini(["ok"], repeat_last=True) as fake:
            async with Gate(model_of(fake), system=SYSTEM, cache=ContextCache(min_tokens=1_024)) as gate:
                await gate.run("first")
                making = asyncio.create_task(gate.run("second"))
                while not paths(fake):  # noqa: ASYNC110 - the fake has no event for it
                    await asyncio.sleep(0)
                making.cancel()
                await asyncio.gather(making, return_exceptions=True)
            assert [method for method, _ in paths(fake)] == ["POST", "DELETE"]
            assert fake.resources.caches == {}

    run(body)


def test_a_session_that_is_deleted_takes_the_caches_of_its_history_with_it() -> None:
    async def body() -> None:
        async with (
            FakeGemini(["ok"], repeat_last=True) as fake,
            Gate(model_of(fake), cache=ContextCache(min_tokens=1_024, uses=1)) as gate,
        ):
            for session in ("s", "t"):
                for prompt in (f"A secret of {session}. " * 800, "more"):
                    await gate.run(prompt, session=session)
            assert len(fake.resources.caches) == 2
            assert await gate.delete("s")
            [left] = fake.resources.caches.values()
            assert "A secret of t." in left["contents"][0]["parts"][0]["text"]
            assert not await gate.delete("never")
            assert len(fake.resources.caches) == 1

    run(body)


def test_a_deletion_without_caches_of_histories_reads_nothing() -> None:
    def never() -> list[bytes]:
        raise AssertionError

    async def body() -> None:
        policy = ContextCache(min_tokens=1_024, history=False)
        async with (
            FakeGemini(["ok"], repeat_last=True) as fake,
            Gate(model := model_of(fake), system=SYSTEM, cache=policy) as gate,
        ):
            for _ in range(3):
                await gate.run("x")
            assert len(fake.resources.caches) == 1
            for one in (model, model_of(fake)):
                assert await one.delete_cached(never) == 0
            await gate.delete("none")
            assert len(fake.resources.caches) == 1

    run(body)
