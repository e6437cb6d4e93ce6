"""Google's own client judges the fake both ways: it takes what the fake says, and the fake takes what it sends."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.testing.fake_interactions import FakeInteractions, call

genai = pytest.importorskip("google.genai")

MODEL = "gemini-3.8-flash"
ADD = {
    "type": "function", "name": "add", "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}  # fmt: skip


def client_of(fake: FakeInteractions) -> Any:
    return genai.Client(api_key="test-key", http_options={"base_url": fake.base_url})


def test_a_call_is_made_and_answered_by_state_at_the_server() -> None:
    with FakeInteractions.in_thread([call("add", a=1, b=2), "Three."]) as fake:
        client = client_of(fake)
        first = client.interactions.create(model=MODEL, input="1 + 2?", tools=[ADD])
        assert (first.status, [step.type for step in first.steps]) == ("requires_action", ["thought", "function_call"])
        made = first.steps[-1]
        result = {"type": "function_result", "call_id": made.id, "name": "add", "result": "3"}
        second = client.interactions.create(
            model=MODEL, input=[result], tools=[ADD], previous_interaction_id=first.id
        )  # fmt: skip
        assert (second.output_text, second.status) == ("Three.", "completed")
        assert client.interactions.get(second.id).output_text == "Three."
        client.interactions.delete(second.id)
        with pytest.raises(Exception, match="not found"):
            client.interactions.get(second.id)
    assert (fake.refusals, fake.breaches) == ([], [])


def test_the_same_request_twice_makes_two_interactions_and_is_counted() -> None:
    with FakeInteractions.in_thread(["Hello."], repeat_last=True) as fake:
        client = client_of(fake)
        made = [client.interactions.create(model=MODEL, input=said).id for said in ("Hi.", "Hi.", "Ho.")]
        assert len({*made}) == 3
    assert (fake.repeats, fake.refusals, fake.breaches) == (1, [], [])


def test_an_interaction_of_another_key_is_not_found() -> None:
    with FakeInteractions.in_thread(["Hello."], repeat_last=True) as fake:
        client = client_of(fake)
        theirs = client.interactions.create(model=MODEL, input="Hi.").id
        other = genai.Client(api_key="another-key", http_options={"base_url": fake.base_url})
        with pytest.raises(Exception, match="not found"):
            other.interactions.create(model=MODEL, input="And?", previous_interaction_id=theirs)
        with pytest.raises(Exception, match="not found"):
            other.interactions.get(theirs)


def test_a_stream_of_the_fake_is_read_by_the_client() -> None:
    with FakeInteractions.in_thread([call("add", a=1, b=2), "The sum is three, as it always was."]) as fake:
        client = client_of(fake)
        events = list(client.interactions.create(model=MODEL, input="1 + 2?", tools=[ADD], stream=True, store=False))
        kinds = [event.event_type for event in events]
        assert kinds[0] == "interaction.created"
        assert kinds[-1] == "interaction.completed"
        pieces = [event.delta for event in events if event.event_type == "step.delta"]
        assert "".join(piece.arguments for piece in pieces if piece.type == "arguments_delta") == '{"a": 1, "b": 2}'
        said = list(client.interactions.create(model=MODEL, input="Thanks.", stream=True, store=False))
        text = "".join(event.delta.text for event in said if event.event_type == "step.delta" and event.delta.type == "text")
        assert text == "The sum is three, as it always was."
    assert fake.refusals == []


def test_a_background_run_is_polled_and_cancelled_by_the_client() -> None:
    with FakeInteractions.in_thread(["Done.", "Never."], polls=1) as fake:
        client = client_of(fake)
        begun = client.interactions.create(model=MODEL, input="Go.", background=True)
        assert begun.status == "in_progress"
        assert client.interactions.get(begun.id).status == "in_progress"
        assert client.interactions.get(begun.id).output_text == "Done."
        other = client.interactions.create(model=MODEL, input="Go.", background=True)
        assert client.interactions.cancel(other.id).status == "cancelled"
        assert fake.cancelled == [other.id]
