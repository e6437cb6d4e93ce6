"""Several candidates of one answer: one counts, whole or streamed, native or prompted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callgate import Gate, function_calls
from callgate.content.collect import Collector
from callgate.content.read import OTHER_CANDIDATES, CandidateChoice
from callgate.definitions import convert
from callgate.events import Notice, RunEnded
from callgate.gemini.exchange import Continuation
from callgate.models.prompted import PromptedModel
from callgate.request import ModelRequest

PAY = {"functionCall": {"name": "pay", "args": {"to": "Eve"}}}
MARKED = 'TOOL_CALL: {"name": "pay", "args": {"to": "Eve"}}'


def candidate(index: object, *parts: Any, finish: str | None = "STOP") -> dict[str, Any]:
    said: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    return said | ({} if index is None else {"index": index}) | ({"finishReason": finish} if finish else {})


def one(index: object, *parts: Any, finish: str | None = "STOP") -> dict[str, Any]:
    return {"candidates": [candidate(index, *parts, finish=finish)]}


ZERO, SAID = {"text": "zero"}, {"text": "ONE"}
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "interleaved": [one(0, {"text": "ze"}, finish=None), one(1, SAID), one(0, {"text": "ro"}), one(1, SAID)],
    "a call in the second": [one(0, ZERO), one(1, PAY)],
    "a call in the second, first ended later": [one(0, {"text": "ze"}, finish=None), one(1, PAY), one(0, {"text": "ro"})],
    "a zero that is left out": [one(None, ZERO), one(1, PAY)],
    "numbers as text": [one("0", ZERO), one("1", PAY), one(1.0, PAY)],
    "safety of the second": [one(0, ZERO), one(1, finish="SAFETY")],
    "in one chunk": [{"candidates": [candidate(0, ZERO), candidate(1, PAY)]}],
    "the second first": [{"candidates": [candidate(1, PAY), candidate(0, ZERO)]}],
    "the second first, no index": [{"candidates": [candidate(1, PAY), candidate(None, ZERO)]}],
    "the same index twice": [{"candidates": [candidate(0, ZERO), candidate(0, PAY)]}],
    "no index at all": [{"candidates": [candidate(None, ZERO), candidate(None, PAY)]}],
    "never a zero": [{"candidates": [candidate(3, PAY), candidate(2, ZERO)]}, one(3, PAY), one(1, PAY)],
}


class Chunks:
    """A model of one's own: the chunks, and then an end."""

    name = "chunks"

    def __init__(self, *chunks: dict[str, Any]) -> None:
        self._answers = [[*chunks], [one(0, {"text": "after"})]]

    async def generate(self, request: ModelRequest) -> AsyncIterator[dict[str, Any]]:
        for chunk in self._answers.pop(0):
            yield chunk


@pytest.mark.rows("name", ANSWERS)
@pytest.mark.rows("prompted", [False, True])
def test_nothing_of_another_candidate_runs_or_is_shown_and_one_notice_says_so(name: str, prompted: bool) -> None:
    ran: list[str] = []

    def pay(to: str) -> str:
        """Pay."""
        ran.append(to)
        return "paid"

    chunks = ANSWERS[name]
    if prompted:
        chunks = [_as_text(chunk) for chunk in chunks]
    model: Any = PromptedModel(Chunks(*chunks)) if prompted else Chunks(*chunks)

    async def main() -> list[Any]:
        return [event async for event in Gate(model, tools=[pay]).stream("x")]

    events = asyncio.run(main())
    assert isinstance(events[-1], RunEnded)
    assert (events[-1].reply.text, events[-1].reply.finish_reason, ran) == ("zero", "STOP", [])
    assert [event for event in events if isinstance(event, Notice)] == [OTHER_CANDIDATES]


def _as_text(chunk: dict[str, Any]) -> dict[str, Any]:
    def text(part: dict[str, Any]) -> dict[str, Any]:
        return {"text": MARKED} if part is PAY else part

    return {
        "candidates": [
            {**each, "content": {**each["content"], "parts": list(map(text, each["content"]["parts"]))}}
            for each in chunk["candidates"]
        ]
    }


@pytest.mark.parametrize("name", ["in one chunk", "the second first", "the second first, no index", "no index at all"])
def test_whole_answers_are_read_by_index_wherever_they_are_read(name: str) -> None:
    response = ANSWERS[name][0]
    assert function_calls(response) == []
    converted = convert(response, source="gemini", target="openai", kind="history")
    assert "zero" in str(converted.value)
    assert "pay" not in str(converted.value)


def test_a_lone_candidate_is_taken_as_it_is_and_no_notice_comes() -> None:
    collector = Collector()
    events = [*collector.feed(one(2, {"text": "a"}, finish=None)), *collector.feed(one(2, {"text": "b"}))]
    assert collector.close().text == "ab"
    assert OTHER_CANDIDATES not in events


def test_a_continuation_of_another_candidate_is_not_asked_for() -> None:
    continuation = Continuation()
    continuation.begin()
    continuation.take(one(0, ZERO))
    continuation.take({"candidates": [{**candidate(1, SAID, finish="CONTINUATION"), "continuationToken": "t"}]})
    assert continuation.token is None


def test_a_response_without_other_candidates_stays_the_same_object() -> None:
    for response in (one(0, ZERO), one(None, ZERO), {"usageMetadata": {}}):
        assert CandidateChoice().alone_in(response) is response
    choice = CandidateChoice()
    choice.of(one(0, ZERO))
    assert choice.alone_in({**one(1, PAY), "usageMetadata": {"totalTokenCount": 1}}) == {
        "usageMetadata": {"totalTokenCount": 1}
    }
