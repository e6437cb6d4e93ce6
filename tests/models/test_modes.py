"""Native, prompted, by ability: which way a model is told of tools, and what happens when it turns out to have none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callgate import Gate, ScriptedModel, UsageError, tool
from callgate.errors import ToolsUnsupportedError
from callgate.events import Notice
from callgate.history.conversation import Conversation
from callgate.models import ModelRequest, answering
from callgate.models.choice import open_model
from callgate.models.gemini import GeminiModel
from callgate.models.modes import ByAbility
from callgate.models.prompted import PromptedModel
from callgate.testing import call


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class Bare(ScriptedModel):
    """A model that says of itself that it has no tools."""

    supports_tools = False


def test_a_mode_is_a_way_to_wrap_a_model() -> None:
    model = ScriptedModel(["Hi."])
    assert open_model(model, mode="native") is model
    assert isinstance(open_model(model, mode="prompted"), PromptedModel)
    by_ability = open_model(model)
    assert isinstance(by_ability, ByAbility)
    assert (by_ability.name, by_ability.origin) == ("scripted", "scripted")


def test_a_model_without_tools_is_told_of_them_in_its_prompt() -> None:
    model = Bare(['TOOL_CALL: add({"a": 1, "b": 2})', "Three."])
    reply = asyncio.run(Gate(model, [add]).run("1 + 2?"))
    assert [record.result.value for record in reply.calls if record.result] == [3]
    assert model.requests[0].tools == []
    assert "add" in (model.requests[0].system or "")


def test_a_model_that_refuses_tools_is_asked_again_by_prompt_once_and_for_all() -> None:
    refusal = ToolsUnsupportedError("tools are not supported")
    model = ScriptedModel([refusal, 'TOOL_CALL: add({"a": 1, "b": 2})', "Three.", "Hello."])
    gate = Gate(model, [add])

    async def story() -> list[Any]:
        return [event async for event in gate.stream("1 + 2?", session="s")] + [await gate.run("Hi.", session="s")]

    events = asyncio.run(story())
    codes = [event.code for event in events if isinstance(event, Notice)]
    assert codes == ["mode_changed"]
    assert [bool(request.tools) for request in model.requests] == [True, False, False, False]
    assert events[-1].text == "Hello."


def test_a_refusal_behind_the_beginning_of_an_answer_is_told_and_not_answered_by_prompt() -> None:
    said = {"candidates": [{"content": {"role": "model", "parts": [{"text": "One"}]}}]}
    waiting = Notice("waiting", "Trying again.", "warning")

    class Fickle:
        name = "fickle"

        async def generate(self, request: ModelRequest) -> AsyncIterator[Any]:
            yield waiting
            yield said
            raise ToolsUnsupportedError("tools are not supported")

    heard: list[Any] = []

    async def story() -> None:
        async with answering(ByAbility(Fickle()), ModelRequest(conversation=Conversation())) as items:
            async for item in items:
                heard.append(item)  # noqa: PERF401 (what came before the error counts, too)

    with pytest.raises(ToolsUnsupportedError):
        asyncio.run(story())
    assert heard == [waiting, said]


def test_without_tools_nothing_is_put_into_the_prompt() -> None:
    model = Bare(["Hi."])
    asyncio.run(Gate(model).run("Hi."))
    assert model.requests[0].system is None


def test_a_model_with_its_own_prompted_format_is_left_alone() -> None:
    class Own(ScriptedModel):
        calls_by_prompt = True

    model = Own([call("add", a=1, b=1), "2"])
    assert open_model(model, mode="auto") is model
    assert open_model(model, mode="prompted") is model
    with pytest.raises(UsageError, match="has no native tool calling"):
        open_model(model, mode="native")


@pytest.mark.parametrize(
    ("name", "expected"), [("gemini-3.8-flash", True), ("gemma-3-27b-it", False), ("models/gemma-4", False)]
)
def test_the_name_of_a_model_tells_whether_it_has_functions(name: str, expected: bool) -> None:
    assert GeminiModel(name, api_key="test-key").supports_tools is expected


def test_a_gate_goes_on_with_another_model_and_mode() -> None:
    first = ScriptedModel([call("add", a=1, b=2, signature="c2ln"), "Three."], name="first")
    second = ScriptedModel(['TOOL_CALL: add({"a": 3, "b": 4})', "Seven."], name="second")
    gate = Gate(first, [add])

    async def story() -> Any:
        await gate.run("1 + 2?", session="s")
        return await gate.with_options(second, mode="prompted").run("3 + 4?", session="s")

    reply = asyncio.run(story())
    assert (reply.text, reply.model) == ("Seven.", "second")
    assert [record.result.value for record in reply.calls if record.result] == [7]
    # The second one has read what the first one did, in words and without its signature.
    told = str(second.requests[0].contents)
    assert "TOOL_CALL: add(" in told
    assert "c2ln" not in told
    assert "c2ln" in str(reply.contents)
    assert gate.with_options(mode="native")._mode == "native"  # pyright: ignore[reportPrivateUsage]
