"""One suite of conversations, for every way of calling: Gemini by generateContent, by prompt, by the Interactions API
without and with state at the server, an OpenAI-compatible server, and the APIs of OpenAI (Responses) and Anthropic.

The servers are the strict fakes: they refuse what Google, OpenAI and Anthropic would refuse.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from callgate import (
    AnthropicModel,
    Gate,
    GeminiModel,
    InteractionsModel,
    OpenAIModel,
    OpenAIResponsesModel,
    Policy,
    ToolError,
    tool,
)
from callgate.events import CallFinished, CallProposed, CallStarted, RunEnded, TextDelta
from callgate.gemini.surface import Surface
from callgate.history.repair import validate
from callgate.store import MemoryStore
from callgate.testing.fake_anthropic import FakeAnthropic
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_interactions import FakeInteractions
from callgate.testing.fake_openai import FakeOpenAI
from callgate.testing.scripted_model import call_with
from callgate.types import FunctionCall, ToolDefinition

Way = Literal["native", "prompted", "openai", "responses", "anthropic", "interactions", "stored"]
WAYS: list[Way] = ["native", "prompted", "openai", "responses", "anthropic", "interactions", "stored"]
GEMINI = "gemini-3.8-flash"
# The same server keeps interactions, or does not.
_SERVER: dict[Way, Way] = {"stored": "interactions"}

Calls = list[tuple[str, dict[str, Any]]]
Turn = str | Calls


def answers(way: Way, script: list[Turn]) -> list[Any]:
    """What the model says, in the language of the server."""

    def told(turn: Turn) -> Any:
        if isinstance(turn, str):
            return turn
        if way == "prompted":
            return "\n".join(f"TOOL_CALL: {name}({json.dumps(args)})" for name, args in turn)
        signatures = ["c2lnbmF0dXJl", *[None] * (len(turn) - 1)] if way == "native" else [None] * len(turn)
        return [call_with(name, args, signature=sig) for (name, args), sig in zip(turn, signatures, strict=True)]

    return [told(turn) for turn in script]


@dataclass
class Scene:
    gate: Gate
    ran: list[str]
    started: asyncio.Event


@asynccontextmanager
async def servers(*scripts: tuple[Way, list[Turn]]) -> AsyncIterator[dict[Way, Any]]:
    """One server for each way, which lives through the whole conversation and knows its own signatures."""
    async with asyncio.timeout(300), AsyncExitStack() as stack:
        said: dict[Way, list[Any]] = {}
        for way, script in scripts:
            said.setdefault(_SERVER.get(way, way), []).extend(answers(way, script))
        kinds: dict[Way, Any] = {
            "native": FakeGemini, "prompted": FakeGemini, "openai": FakeOpenAI, "interactions": FakeInteractions,
            "responses": FakeOpenAI, "anthropic": FakeAnthropic,
        }  # fmt: skip
        fakes = {way: await stack.enter_async_context(kinds[way](script)) for way, script in said.items()}
        yield fakes
        assert {way: fake.refusals for way, fake in fakes.items() if fake.refusals} == {}
        assert [fake.breaches for fake in fakes.values() if getattr(fake, "breaches", None)] == []


@asynccontextmanager
async def scene(way: Way, script: list[Turn], **options: Any) -> AsyncIterator[Scene]:
    async with servers((way, script)) as fakes, talk(way, fakes, **options) as it:
        yield it


@asynccontextmanager
async def talk(way: Way, fakes: dict[Way, Any], **options: Any) -> AsyncIterator[Scene]:
    ran: list[str] = []
    started = asyncio.Event()

    @tool
    async def add(a: int, b: int) -> int:
        """Adds two numbers."""
        ran.append(f"add {a} {b}")
        await asyncio.sleep(0)
        return a + b

    @tool
    def fail(why: str) -> str:
        """Fails."""
        ran.append(f"fail {why}")
        raise ToolError(f"It failed: {why}.")

    @tool
    async def wait() -> str:
        """Waits for ever."""
        started.set()
        await asyncio.sleep(3600)
        return "never"

    base_url = fakes[_SERVER.get(way, way)].base_url
    surface = Surface(kind="developer", base_url=base_url, version="v1beta", api_key="test-key")
    if way == "openai":
        model: Any = OpenAIModel("gpt-4.1", base_url=base_url, api_key="test-key")
    elif way == "responses":
        model = OpenAIResponsesModel("gpt-5.2", base_url=base_url, api_key="test-key")
    elif way == "anthropic":
        model = AnthropicModel("claude-opus-4-6", base_url=base_url, api_key="test-key")
    elif way in ("interactions", "stored"):
        model = InteractionsModel(GEMINI, surface=surface)
        options = {"settings": {"store": way == "stored"}, **options}
    else:
        model = GeminiModel(GEMINI, surface=surface)
    mode = "prompted" if way == "prompted" else "native"
    async with Gate(model, [add, fail, wait], mode=mode, **options) as gate:
        yield Scene(gate, ran, started)


def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(story())


def outcomes(reply: Any) -> list[tuple[str, str, Any]]:
    return [(r.call.name, r.state, r.result.value if r.result.value is not None else r.result.error) for r in reply.calls]


@pytest.mark.parametrize("way", WAYS)
def test_parallel_calls_are_answered_in_order(way: Way) -> None:
    async def story() -> None:
        two: Turn = [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]
        async with scene(way, [two, "3 and 7."]) as it:
            reply = await it.gate.run("1 + 2 and 3 + 4?")
            assert (reply.text, reply.finish_reason, reply.turns) == ("3 and 7.", "STOP", 2)
            assert outcomes(reply) == [("add", "finished", 3), ("add", "finished", 7)]
            assert validate(reply.contents) == []

    run(story)


@pytest.mark.parametrize("way", WAYS)
def test_errors_reach_the_model_and_the_conversation_goes_on(way: Way) -> None:
    async def story() -> None:
        wrong: Turn = [("fail", {"why": "rain"}), ("add", {"a": "x", "b": 2}), ("nobody", {})]
        async with scene(way, [wrong, [("add", {"a": "1", "b": 2})], "Three."]) as it:
            reply = await it.gate.run("Go.")
            assert reply.text == "Three."
            states = [(name, state) for name, state, _ in outcomes(reply)]
            assert states == [("fail", "failed"), ("add", "failed"), ("nobody", "failed"), ("add", "finished")]
            assert reply.calls[0].result is not None
            assert reply.calls[0].result.error == "It failed: rain."
            assert reply.calls[3].call.args == {"a": 1, "b": 2}
            assert it.ran == ["fail rain", "add 1 2"]

    run(story)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_denied_does_not_run_and_the_model_is_told(way: Way) -> None:
    async def no(call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        return "no" if call.args["a"] == 1 else FunctionCall(name=call.name, args={"a": 5, "b": 5})

    async def story() -> None:
        two: Turn = [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]
        async with scene(way, [two, "Ten."], policy=Policy(default="ask"), approve=no) as it:
            reply = await it.gate.run("Go.")
            assert [state for _, state, _ in outcomes(reply)] == ["denied", "finished"]
            assert reply.calls[1].result is not None
            assert reply.calls[1].result.value == 10
            assert it.ran == ["add 5 5"]

    run(story)


@pytest.mark.parametrize("way", WAYS)
def test_streamed_events_are_the_same_in_every_way(way: Way) -> None:
    async def story() -> None:
        async with scene(way, [[("add", {"a": 1, "b": 2})], "The sum is three."]) as it:
            events = [event async for event in it.gate.stream("1 + 2?")]
        kinds = [type(event) for event in events if isinstance(event, (CallProposed, CallStarted, CallFinished, RunEnded))]
        assert kinds == [CallProposed, CallStarted, CallFinished, RunEnded]
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "The sum is three."

    run(story)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_cancelled_leaves_a_history_that_goes_on(way: Way) -> None:
    async def story() -> None:
        async with scene(way, [[("wait", {}), ("add", {"a": 1, "b": 1})], "Fine."]) as it:
            running = asyncio.create_task(it.gate.run("Go.", session="s"))
            await it.started.wait()
            assert it.gate.cancel("s")
            cancelled = await running
            assert cancelled.finish_reason == "cancelled"
            reply = await it.gate.run("And now?", session="s")
            assert reply.text == "Fine."
            assert validate(reply.contents) == []

    run(story)


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_a_conversation_goes_on_in_another_way_and_back(first: Way, second: Way) -> None:
    async def story() -> None:
        store, sums, ways = MemoryStore(), [], [first, second, first]
        scripts: list[list[Turn]] = [
            [[("add", {"a": number, "b": 1}), ("add", {"a": number, "b": 2})], f"Answer {number}."] for number in range(3)
        ]
        async with servers(*zip(ways, scripts, strict=True)) as fakes:
            for number, way in enumerate(ways):
                async with talk(way, fakes, store=store) as it:
                    reply = await it.gate.run(f"Question {number}?", session="s")
                    assert reply.text == f"Answer {number}."
                    sums += [value for _, _, value in outcomes(reply)]
        assert sums == [1, 2, 2, 3, 3, 4]
        assert validate(reply.contents) == []
        assert len(reply.contents) == 12

    run(story)


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_a_call_of_one_model_is_answered_to_another_in_the_middle_of_a_turn(first: Way, second: Way) -> None:
    async def later(call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        return "later"

    async def story() -> None:
        store = MemoryStore()
        options: dict[str, Any] = {"store": store, "policy": Policy(default="ask"), "approve": later}
        async with servers((first, [[("add", {"a": 1, "b": 2})]]), (second, ["Three."])) as fakes:
            async with talk(first, fakes, **options) as it:
                paused = await it.gate.run("1 + 2?", session="s")
                assert paused.finish_reason == "approval_needed"
            async with talk(second, fakes, **options) as it:
                reply = await it.gate.run(session="s", answers={paused.approvals[0].call.id: "yes"})
                assert (reply.text, it.ran) == ("Three.", ["add 1 2"])

    run(story)


@pytest.mark.parametrize("way", WAYS)
def test_a_conversation_keeps_the_settings_of_state_at_a_server_by_every_way(way: Way) -> None:
    async def story() -> None:
        async with scene(way, ["Fine."], settings={"store": True, "background": False}) as it:
            assert (await it.gate.run("Go.")).text == "Fine."

    run(story)
