"""More tools than a model can be shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Gate, Limits, Policy, ScriptedModel, ToolContext, ToolDefinition
from callgate.content.tool_names import FIND_TOOLS
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.machine.facts import ToolsKnown
from callgate.store import MemoryStore
from callgate.testing import call
from callgate.tools.find_tools import nearest


class Numbered:
    """One of a thousand tools."""

    def __init__(self, name: str, description: str) -> None:
        self.definition = ToolDefinition(name=name, description=description)

    def problems(self, args: Any) -> list[str]:
        return []

    async def run(self, args: Any, context: ToolContext) -> object:
        return f"{context.name} ran"


def thousand() -> list[Numbered]:
    places = ["bucket", "queue", "table", "cluster", "secret", "alarm", "topic", "stack", "image", "volume"]
    verbs = ["create", "delete", "list", "describe", "update", "tag", "copy", "move", "restore", "share"]
    return [
        Numbered(f"{verb}_{place}_{n}", f"{verb.title()}s a {place} in region {n}.")
        for n in range(10)
        for verb in verbs
        for place in places
    ]


def run(gate: Gate, prompt: str | None = "Go", **options: Any) -> Any:
    return asyncio.run(gate.run(prompt, **options))


def test_the_nearest_tools_come_first_by_name_then_by_description():
    definitions = [
        ToolDefinition(name="sendMail", description="Writes to somebody."),
        ToolDefinition(name="weather_now", description="Tells the weather of a city."),
        ToolDefinition(name="forecast", description="Tells the weather of the next days."),
    ]
    assert [d.name for d in nearest("weather in a city", definitions)] == ["weather_now", "forecast"]
    assert [d.name for d in nearest("send mails", definitions)] == ["sendMail"]
    assert nearest("quantum", definitions) == []
    assert nearest("", definitions) == []


def test_a_thousand_tools_work_through_the_few_that_are_shown():
    model = ScriptedModel([call(FIND_TOOLS, query="delete queue 7"), call("delete_queue_7"), "Gone."])
    reply = run(Gate(model, thousand(), tools_shown=3))
    assert len(model.requests[0].tool_names) == 4
    assert FIND_TOOLS in model.requests[0].tool_names
    assert "delete_queue_7" in model.requests[1].tool_names
    assert len(model.requests[1].tool_names) <= 4 + 8
    assert [(record.call.name, record.state) for record in reply.calls] == [
        (FIND_TOOLS, "finished"),
        ("delete_queue_7", "finished"),
    ]


def test_what_was_found_stays_known_when_the_session_goes_on_elsewhere():
    store = MemoryStore()
    run(
        Gate(ScriptedModel([call(FIND_TOOLS, query="restore volume 3"), "Found."]), thousand(), tools_shown=2, store=store),
        session="s",
    )
    model = ScriptedModel(["Still here."])
    run(Gate(model, thousand(), tools_shown=2, store=store), "And now?", session="s")
    assert "restore_volume_3" in model.requests[0].tool_names
    known = [fact for fact in asyncio.run(store.load("s")) if isinstance(fact, ToolsKnown)]
    assert len(known) == 2


def test_searching_for_ever_never_declares_more_than_the_api_allows():
    queries = iter(
        f"{verb} {place} {n}" for n in range(10) for verb in ("create", "delete", "tag") for place in ("bucket", "queue")
    )
    model = ScriptedModel([*[lambda request: call(FIND_TOOLS, query=next(queries))] * 60, "Enough."])
    run(Gate(model, thousand(), tools_shown=200, limits=Limits(turns=100)))
    assert max(len(request.tool_names) for request in model.requests) <= 512


def test_nothing_found_changes_nothing():
    model = ScriptedModel([call(FIND_TOOLS, query="zzz"), "No."])
    run(Gate(model, thousand(), tools_shown=1))
    assert model.requests[0].tool_names == model.requests[1].tool_names


def test_tools_that_the_policy_hides_are_not_found():
    gate = Gate(ScriptedModel(["No."]), thousand(), tools_shown=5, policy=Policy(default="deny"))
    assert gate.definitions == []


def test_too_many_tools_say_what_to_do():
    with pytest.raises(ToolNotDeclarableError, match="tools_shown="):
        Gate(ScriptedModel([]), thousand())


@pytest.mark.parametrize("shown", [-1, 512])
def test_a_number_that_cannot_be_shown_is_refused(shown: int):
    with pytest.raises(UsageError, match=f"tools_shown={shown}"):
        Gate(ScriptedModel([]), tools_shown=shown)
