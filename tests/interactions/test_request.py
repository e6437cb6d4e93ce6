"""Bodies of requests: what they cost as a conversation grows, counted in instructions of the interpreter."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from callgate.gemini.request import BodyBuilder as GenerateContent
from callgate.history.conversation import Conversation
from callgate.interactions.request import BodyBuilder
from callgate.request import ModelRequest

MODEL = "gemini-3.8-flash"
OWN = "interactions:developer:gemini-3.8-flash"
OTHER = "developer:gemini-3.8-flash"


def answer(number: int) -> dict[str, Any]:
    text = f"Answer {number}."
    output = {"type": "model_output", "content": [{"type": "text", "text": text}]}
    steps = [{"type": "thought", "signature": "abc"}, output]
    return {"role": "model", "parts": [{"text": text}], "interaction": {"origin": OWN, "steps": steps}}


def talk_of(turns: int, *, origin: str = OWN) -> Conversation:
    talk = Conversation()
    for number in range(turns):
        talk.add_user(f"Question {number}?")
        talk.add_model(answer(number), origin=origin)
    talk.add_user("And?")
    return talk


def go_on(talk: Conversation, *, origin: str = OWN) -> ModelRequest:
    talk.add_model(answer(len(talk)), origin=origin)
    talk.add_user("And?")
    return ModelRequest(conversation=talk)


def instructions(work: Callable[[], Any]) -> int:
    """The number of bytecode instructions that a function executes."""
    counted = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal counted
        if frame.f_globals.get("__name__", "").partition(".")[0] != "callgate":
            return None
        frame.f_trace_opcodes = True
        counted += event == "opcode"
        return trace

    before, was_enabled = sys.gettrace(), gc.isenabled()
    gc.disable()  # Nothing of another test is finalized meanwhile.
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if was_enabled:
            gc.enable()
    return counted


@pytest.mark.parametrize(
    ("builder", "origin"), [(BodyBuilder, OWN), (BodyBuilder, OTHER), (GenerateContent, OTHER), (GenerateContent, OWN)]
)
def test_a_turn_of_a_long_conversation_costs_what_one_of_a_short_one_does(builder: Any, origin: str) -> None:
    bodies = builder(MODEL, "developer")
    costs: list[int] = []
    talks = [talk_of(turns, origin=origin) for turns in (10, 400)]
    for talk in talks:
        bodies.body(ModelRequest(conversation=talk))
    # One gate has many conversations at the same time. The first turn of each also fills caches of the process.
    for _ in range(3):
        for talk in talks:
            request = go_on(talk, origin=origin)
            costs.append(instructions(lambda request=request: bodies.body(request)))
    assert len({*costs[2:]}) == 1


def test_the_hash_of_a_history_costs_the_same_for_a_long_conversation() -> None:
    writer = BodyBuilder(MODEL, "developer").writer
    talks = [talk_of(10), talk_of(400)]
    costs: list[int] = []
    for _ in range(3):
        for talk in talks:
            go_on(talk)
            writer.seen(talk)
            go_on(talk)
            costs.append(instructions(lambda talk=talk: writer.seen(talk)))
    assert len({*costs[2:]}) == 1


def test_a_body_follows_what_is_changed_in_the_middle_of_a_conversation() -> None:
    bodies = BodyBuilder(MODEL, "developer")
    talk = talk_of(6)
    bodies.body(ModelRequest(conversation=talk))
    for change in (lambda: talk.cut(5), lambda: talk.shorten(2), lambda: talk.shorten(2, "What was said.")):
        change()
        body = bodies.body(ModelRequest(conversation=talk))
        fresh = BodyBuilder(MODEL, "developer").body(ModelRequest(conversation=Conversation(talk.contents)))
        assert json.loads(body) == json.loads(fresh)


def test_feedback_follows_the_steps_and_stands_alone_without_any() -> None:
    bodies = BodyBuilder(MODEL, "developer")
    request = ModelRequest(conversation=talk_of(1), feedback="Again.")
    said = [step["content"][0]["text"] for step in json.loads(bodies.body(request))["input"] if step["type"] == "user_input"]
    assert said == ["Question 0?", "And?", "Again."]
    alone = json.loads(bodies.body(ModelRequest(conversation=Conversation(), feedback="Again.")))
    assert [step["content"] for step in alone["input"]] == [[{"type": "text", "text": "Again."}]]
