"""Several models in a row: who answers when one is away, and what the conversation keeps of each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Gate, ScriptedModel, tool
from callgate.errors import (
    AuthError,
    BlockedError,
    ConnectionLostError,
    InvalidRequestError,
    ModelError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
    UsageError,
)
from callgate.events import Notice, RunEnded, TextDelta
from callgate.history.conversation import Conversation
from callgate.models import ModelRequest, count_tokens, known_settings
from callgate.models.chain import COOL_DOWN_S, ModelChain
from callgate.models.choice import open_model
from callgate.models.prompted import PromptedModel
from callgate.testing import call

AWAY = [
    RateLimitedError("slow down"),
    ServerUnavailableError("503"),
    ConnectionLostError("no route"),
    RequestTimeoutError("too slow"),
]
REFUSED = [AuthError("wrong key"), InvalidRequestError("bad field"), BlockedError("no", reason="SAFETY")]


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def named(name: str, *script: Any) -> ScriptedModel:
    return ScriptedModel(script, name=name, repeat_last=True)


async def events_of(gate: Gate, prompt: str, session: str | None = None) -> list[Any]:
    return [event async for event in gate.stream(prompt, session=session)]


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_the_next_model_takes_over_and_the_events_say_so(error: ModelError) -> None:
    gate = Gate([named("first", error), named("second", "Here.")])
    events = asyncio.run(events_of(gate, "Hi."))
    notices = [event for event in events if isinstance(event, Notice)]
    assert notices == [Notice("model_changed", f"first is not available ({error}); second takes over.", "warning")]
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.reply.text, ended.reply.model) == ("Here.", "second")


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: type(error).__name__)
def test_a_model_that_refuses_is_not_replaced(error: ModelError) -> None:
    second = named("second", "Here.")
    with pytest.raises(type(error)):
        asyncio.run(Gate([named("first", error), second]).run("Hi."))
    assert second.requests == []


def test_when_none_is_there_the_last_error_is_raised() -> None:
    gate = Gate([named("first", ServerUnavailableError("one")), named("second", ConnectionLostError("two"))])
    with pytest.raises(ConnectionLostError, match="two"):
        asyncio.run(gate.run("Hi."))


def test_an_answer_that_breaks_off_is_not_glued_to_another_models() -> None:
    class Breaking:
        name = "breaking"

        async def generate(self, request: Any) -> Any:
            yield {"candidates": [{"content": {"role": "model", "parts": [{"text": "Half of"}]}}]}
            raise ConnectionLostError("gone")

    gate = Gate([Breaking(), named("second", "Whole.")])
    with pytest.raises(ConnectionLostError) as caught:
        asyncio.run(gate.run("Hi."))
    assert caught.value.partial == "Half of"
    reply = asyncio.run(gate.run("Again."))
    assert (reply.text, reply.model) == ("Whole.", "second")


def test_a_model_that_was_away_is_asked_first_again_after_a_while() -> None:
    clock = Clock()
    first, second = named("first", ServerUnavailableError("503"), "Back."), named("second", "Here.")
    gate = Gate(ModelChain([first, second], clock=clock))
    answers = [asyncio.run(gate.run("Hi.")).model]
    answers.append(asyncio.run(gate.run("Hi.")).model)
    clock.now += COOL_DOWN_S
    answers.append(asyncio.run(gate.run("Hi.")).model)
    assert answers == ["second", "second", "first"]
    assert len(first.requests) == 2


def test_the_second_model_goes_on_with_the_calls_of_the_first() -> None:
    first = named("first", call("add", a=1, b=2, signature="c2lnbmF0dXJl"), ServerUnavailableError("503"))
    second = named("second", "Three.")
    events = asyncio.run(events_of(Gate([first, second], tools=[add]), "1 + 2?"))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Three."
    responses = [part["functionResponse"]["response"] for part in second.requests[0].contents[-1]["parts"]]
    assert responses == [{"result": 3}]


def test_an_empty_list_of_models_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one"):
        Gate([])


def test_a_chain_that_is_told_of_tools_by_prompt_says_who_of_it_has_answered() -> None:
    first = named("first", ServerUnavailableError("503"))
    second = named("second", 'TOOL_CALL: add({"a": 1, "b": 2})', "Three.")
    reply = asyncio.run(Gate(PromptedModel(ModelChain([first, second])), [add], mode="native").run("1 + 2?"))
    assert (reply.text, reply.model) == ("Three.", "second")
    assert [record.state for record in reply.calls] == ["finished"]


def test_a_chain_knows_the_settings_that_all_of_its_models_know_and_counts_with_the_first() -> None:
    class Known(ScriptedModel):
        def __init__(self, *known: str, tokens: int) -> None:
            super().__init__([])
            self.known_settings = known
            self._tokens = tokens

        async def count_tokens(self, request: Any) -> int:
            return self._tokens

    request = ModelRequest(conversation=Conversation([{"role": "user", "parts": [{"text": "?"}]}]))
    both = ModelChain([open_model(Known("a", "b", tokens=1)), PromptedModel(Known("b", "c", tokens=2)), ScriptedModel([])])
    assert known_settings(both) == {"b"}
    assert known_settings(ModelChain([ScriptedModel([])])) is None
    assert asyncio.run(count_tokens(both, request)) == 1
    assert asyncio.run(count_tokens(both.models[1], request)) == 2
    assert asyncio.run(count_tokens(both.models[2], request)) is None


def test_a_model_that_stands_in_is_asked_without_what_it_does_not_have_and_notices_say_so() -> None:
    class Modest(ScriptedModel):
        known_settings = ("temperature", "thinking")
        thinking_words = ("low", "high")
        provider = "other"

    first, second = named("first", ServerUnavailableError("down")), Modest(["Here."], name="second")
    settings = {"temperature": 0, "safety": {"HARASSMENT": "BLOCK_NONE"}, "thinking": "medium"}
    gate = Gate([first, second], [add, "google_search"], settings=settings)
    events = asyncio.run(events_of(gate, "Hi."))
    assert events[-1].reply.text == "Here."
    assert second.requests[0].settings == {"temperature": 0, "thinking": "high"}
    assert second.requests[0].tool_names == ["add"]
    assert [event.message for event in events if isinstance(event, Notice) and event.code == "setting_changed"] == [
        "second does not have thinking='medium', and is asked with 'high'.",
        "second is asked without the setting 'safety', the tool 'googleSearch', which it does not have.",
    ]


@pytest.mark.parametrize(
    ("words", "given", "sent"),
    [
        ((), "low", None),
        (("low",), 500, None),
        (("low",), "LOW", "low"),
        (("none", "low"), "high", "low"),
        (("low",), "odd", None),
    ],
)  # fmt: skip
def test_a_level_of_thinking_that_the_next_model_lacks_is_the_next_one_or_left_out(
    words: tuple[str, ...], given: Any, sent: Any
) -> None:
    class Modest(ScriptedModel):
        thinking_words = words

    second = Modest(["Here."], name="second")
    gate = Gate([named("first", ServerUnavailableError("down")), second], settings={"thinking": given})
    assert asyncio.run(gate.run("Hi.")).text == "Here."
    assert second.requests[0].settings.get("thinking") == sent
