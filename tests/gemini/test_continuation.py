"""An answer that the server gives in several requests is one answer to the caller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from callgate import Gate
from callgate.errors import LimitExceededError, ProtocolError, RequestTimeoutError
from callgate.events import RunEnded, TextDelta
from callgate.gemini.client import GeminiClient
from callgate.gemini.exchange import HOPS_MAX, Continuation
from callgate.models.gemini import GeminiModel
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.faults import fault
from callgate.types import Limits, Reply

MODEL = "gemini-3.8-flash"


def piece(words: str | None, token: str | None = None, *, total: int = 10, reason: str | None = None) -> dict[str, Any]:
    """One response: the last of an answer, or with a token one that is to be continued."""
    parts = {"content": {"role": "model", "parts": [{"text": words}]}} if words is not None else {}
    ending = {"finishReason": "CONTINUATION", "continuationToken": token} if token else {"finishReason": reason or "STOP"}
    usage = {"promptTokenCount": total - 3, "candidatesTokenCount": 3, "totalTokenCount": total}
    return {"candidates": [parts | ending | {"index": 0}], "usageMetadata": usage}


async def ask(gate: Gate, stream: bool) -> tuple[Reply, str]:
    if not stream:
        reply = await gate.run("Go.")
        return reply, reply.text
    events = [event async for event in gate.stream("Go.")]
    (ended,) = [event for event in events if isinstance(event, RunEnded)]
    return ended.reply, "".join(event.text for event in events if isinstance(event, TextDelta))


def played(script: list[Any], stream: bool, surface_of: Callable[..., Any], **limits: Any) -> tuple[Any, list[Any]]:
    """The reply with the text that was shown, and the bodies of the requests; an error in place of the reply."""

    async def scene() -> tuple[Any, list[Any]]:
        async with asyncio.timeout(300), FakeGemini(script) as fake:
            client = GeminiClient(surface_of(fake), limits=Limits(**limits))
            gate = Gate(GeminiModel(MODEL, client=client), limits=Limits(**limits))
            try:
                outcome: Any = await ask(gate, stream)
            except (LimitExceededError, ProtocolError, RequestTimeoutError) as error:
                outcome = error
            return outcome, [request.json for request in fake.requests]

    return asyncio.run(scene())


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both
def test_an_answer_in_three_requests_is_one_answer(stream: bool, surface_of: Any) -> None:
    script = [piece("One, ", "b25l"), piece("two, ", "dHdv", total=20), piece("three.", total=30)]
    (reply, shown), bodies = played(script, stream, surface_of)
    assert reply.text == shown == "One, two, three."
    assert reply.finish_reason == "STOP"
    assert reply.turns == 1
    assert [content["role"] for content in reply.contents] == ["user", "model"]
    assert reply.contents[-1]["parts"] == [{"text": "One, two, three."}]
    assert [body.pop("continuationToken", None) for body in bodies] == [None, "b25l", "dHdv"]
    assert bodies[0] == bodies[1] == bodies[2]


@both
def test_the_tokens_of_all_requests_are_summed(stream: bool, surface_of: Any) -> None:
    (reply, _), _ = played([piece("a", "b25l"), piece("b", "dHdv", total=20), piece("c", total=30)], stream, surface_of)
    assert (reply.usage.total_tokens, reply.usage.output_tokens, reply.usage.input_tokens) == (60, 9, 51)


@both
def test_the_tokens_of_each_modality_are_summed(stream: bool, surface_of: Any) -> None:
    script = [piece("a", "b25l"), piece("b", "dHdv"), piece("c")]
    for response, audio in zip(script, (2, 0, 3), strict=True):
        counts = {"AUDIO": audio, "TEXT": 7 - audio}
        details = [{"modality": word, "tokenCount": count} for word, count in counts.items() if count]
        response["usageMetadata"] |= {"promptTokensDetails": details}
    (reply, _), _ = played(script, stream, surface_of)
    [found] = [piece["usageMetadata"] for metadata in reply.metadata for piece in metadata.raw]
    assert found == {"promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 5}, {"modality": "TEXT", "tokenCount": 16}]}
    assert (reply.usage.input_tokens, reply.usage.audio_tokens) == (21, 5)


@both
def test_a_request_that_adds_nothing_is_passed_over(stream: bool, surface_of: Any) -> None:
    (reply, _), bodies = played([piece(None, "b25l"), piece(None, "dHdv"), piece("At last.")], stream, surface_of)
    assert reply.text == "At last."
    assert len(bodies) == 3


@both
def test_an_answer_that_is_never_complete_is_given_up(stream: bool, surface_of: Any) -> None:
    error, bodies = played([piece("more ", "dG9r")] * (HOPS_MAX + 5), stream, surface_of)
    assert isinstance(error, LimitExceededError)
    assert error.partial == "more " * HOPS_MAX
    assert len(bodies) == HOPS_MAX


@both
def test_continuation_without_a_token_is_an_end_that_is_no_success(stream: bool, surface_of: Any) -> None:
    (reply, _), bodies = played([piece("Half", reason="CONTINUATION")], stream, surface_of)
    assert reply.finish_reason == "CONTINUATION"
    assert not reply.ok
    assert len(bodies) == 1


@both
def test_a_fault_in_a_later_request_is_tried_again_without_losing_what_came_before(stream: bool, surface_of: Any) -> None:
    script = [piece("One, ", "b25l"), fault("W02", "past_date"), piece("two.")]
    (reply, shown), bodies = played(script, stream, surface_of)
    assert reply.text == shown == "One, two."
    assert [body.get("continuationToken") for body in bodies] == [None, "b25l", "b25l"]


def test_a_later_request_that_fails_for_good_keeps_the_text_so_far(surface_of: Any) -> None:
    error, _ = played([piece("One, ", "b25l"), fault("W25")], True, surface_of, first_byte_s=0.1)
    assert isinstance(error, RequestTimeoutError)
    assert error.partial == "One, "


def test_a_call_in_a_continued_answer_runs_once(surface_of: Any) -> None:
    ran: list[str] = []

    async def look(path: str) -> str:
        ran.append(path)
        return "fine"

    def first(_: Any) -> Any:
        call = {
            "functionCall": {"name": "look", "args": {"path": "a"}},
            "thoughtSignature": "skip_thought_signature_validator",
        }
        return piece(None, "b25l") | {
            "candidates": [{"content": {"parts": [call]}, "finishReason": "CONTINUATION", "continuationToken": "b25l"}]
        }

    async def scene() -> None:
        async with asyncio.timeout(300), FakeGemini([first, piece(None), "Done."]) as fake:
            gate = Gate(GeminiModel(MODEL, client=GeminiClient(surface_of(fake))), [look])
            assert (await gate.run("Go.")).text == "Done."

    asyncio.run(scene())
    assert ran == ["a"]


# By itself ---------------------------------------------------------------------------------------------------------------


def test_chunks_of_a_plain_answer_pass_as_they_are() -> None:
    continuation = Continuation()
    continuation.begin()
    for chunk in ({}, {"candidates": []}, {"usageMetadata": None}, piece("x"), {"usageMetadata": {"totalTokenCount": "x"}}):
        assert continuation.take(chunk) is chunk
    assert continuation.token is None


def test_counts_in_later_chunks_of_one_request_replace_earlier_ones() -> None:
    continuation = Continuation()
    continuation.begin()
    continuation.take({"usageMetadata": {"totalTokenCount": 5}})
    continuation.take({"usageMetadata": {"totalTokenCount": 8}})
    continuation.begin()
    told = continuation.take({"usageMetadata": {"totalTokenCount": 2, "trafficType": "x"}})
    assert told == {"usageMetadata": {"totalTokenCount": 10, "trafficType": "x"}}
    assert json.dumps(told)


@pytest.mark.parametrize("token", ["", None, 7, ["t"]])
def test_a_token_that_is_none_continues_nothing(token: Any) -> None:
    continuation = Continuation()
    continuation.begin()
    chunk = {"candidates": [{"finishReason": "CONTINUATION", "continuationToken": token}]}
    assert continuation.take(chunk) is chunk
    assert continuation.token is None
