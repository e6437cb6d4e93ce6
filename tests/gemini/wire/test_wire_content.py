"""Faults in what Gemini says, on both transports: which calls run, what the model is told, and what the history holds."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from callgate import Limits
from callgate.errors import BlockedError, EmptyAnswerError, LimitExceededError, MalformedAnswerError, ProtocolError
from callgate.events import CallProposed
from callgate.testing.answers import answer, call, text
from callgate.testing.faults import fault, variants
from callgate.testing.faults_content import FINISH_REASONS
from callgate.wire.oversized_args import ArgumentPruner

Play = Callable[..., Any]


def part(path: str, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": "look", "args": {"path": path}} | fields}


def responses_of(scene: Any, request: int = 1) -> list[dict[str, Any]]:
    """The function responses at the end of a request, as the server got them."""
    return [each["functionResponse"] for each in scene.fake.requests[request].json["contents"][-1]["parts"]]


def calls_of(scene: Any, request: int = 1) -> list[dict[str, Any]]:
    """The calls before them."""
    parts = scene.fake.requests[request].json["contents"][-2]["parts"]
    return [each["functionCall"] for each in parts if "functionCall" in each]


@contextlib.asynccontextmanager
async def heartbeat() -> AsyncGenerator[list[float]]:
    """Measures, while the block runs, how long the loop works before it comes to what waits for it."""
    late: list[float] = [0.0]

    async def beat() -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.01)  # clock: a beat of the heart
            late.append(time.thread_time() - began)

    task = asyncio.create_task(beat())
    try:
        yield late
    finally:
        task.cancel()
        await asyncio.wait({task})


# Bytes and characters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["text", "cut"])
def test_w34_bytes_in_text_that_are_not_utf8_are_replaced(play: Play, transport: str, variant: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text.startswith("so \ufffd")

    play(story, [fault("W34", variant)], transport)


def test_w34_a_call_whose_arguments_are_not_utf8_does_not_run(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert scene.ran == []
        assert "not UTF-8" in responses_of(scene)[0]["response"]["error"]

    play(story, [fault("W34", "args"), "Done."], transport)


def test_w35_lone_surrogates_are_replaced_and_the_next_request_is_utf8(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert outcome.text == "so \ufffd"
        assert [args["path"] for _, args in scene.ran] == ["\ufffd"]
        for request in scene.fake.requests:
            json.loads(request.body.decode("utf-8"))
        assert calls_of(scene)[0]["args"] == {"path": "\ufffd"}
        (record,) = outcome.reply.calls
        assert record.call.notes == ("Characters that are not valid Unicode were replaced by U+FFFD.",)

    play(story, [fault("W35", "args"), fault("W35", "text")], transport)


# Nothing said ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["safety", "prohibited", "other"])
def test_w43_a_blocked_prompt_is_told_with_reason_and_ratings_and_not_tried_again(
    play: Play, transport: str, variant: str
) -> None:
    async def story(scene: Any) -> None:
        scene.heal(text("First."), fault("W43", variant))
        await scene.ask()
        error = (await scene.ask("Something bad.")).failed(BlockedError)
        assert error.reason in ("SAFETY", "PROHIBITED_CONTENT", "OTHER")
        assert error.ratings == ({"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH"},)
        assert scene.requests == 2
        scene.heal()
        await scene.ask("Something good.")
        assert b"Something bad." not in scene.fake.requests[-1].body

    play(story, [], transport)


@pytest.mark.parametrize("variant", ["unspecified", "silent"])
def test_w43_no_candidates_and_no_reason_is_tried_again(play: Play, transport: str, variant: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 2

    play(story, [fault("W43", variant), "Hello."], transport)


@pytest.mark.parametrize("shape", ["no_content", "empty_content", "no_parts", "empty_parts", "empty_text"])
@pytest.mark.parametrize("reason", FINISH_REASONS)
def test_w44_an_empty_answer_has_one_outcome_for_every_reason(play: Play, transport: str, reason: str, shape: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        if reason == "STOP":
            outcome.failed(EmptyAnswerError)
            assert scene.requests == 3
        elif reason in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"):
            assert outcome.failed(MalformedAnswerError).finish_reason == reason
            assert scene.requests == 3
        else:
            assert outcome.text == ""
            assert outcome.reply.finish_reason == reason
            assert not outcome.reply.ok
            assert scene.requests == 1

    play(story, [fault("W44", f"{shape}_{reason}", times=None)], transport)


def test_w44_a_malformed_call_is_asked_for_again(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 3
        assert scene.ran == []

    play(story, [fault("MF", times=2), "Hello."], transport)


# Odd calls ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variant", "runs"), [("cut_args", 1), ("partial_args", 0)])
def test_w45_a_call_that_the_token_limit_cut_does_not_run(play: Play, transport: str, variant: str, runs: int) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert len(scene.ran) == runs
        assert "error" in responses_of(scene)[-1]["response"]

    play(story, [fault("W45", variant), "Done."], transport)


def test_w46_two_calls_with_one_id_both_run_and_are_told_apart_by_position(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert sorted(args["path"] for _, args in scene.ran) == ["a", "b"]
        assert len({record.call.id for record in outcome.reply.calls}) == 2
        first, second = responses_of(scene)
        assert first["response"] == {"result": "a is fine"}
        assert second["response"] == {"result": "b is fine"}
        assert first["id"] == second["id"] == "same"

    play(story, [answer(part("a", id="same"), part("b", id="same")), "Done."], transport)


@pytest.mark.parametrize("step", variants("W47"), ids=lambda step: step.variant)
def test_w47_ids_that_are_none_are_made_up_and_not_sent(play: Play, transport: str, step: Any) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert outcome.text == "Done."
        assert all(record.call.id for record in outcome.reply.calls)
        assert len(scene.ran) == len(responses_of(scene)) == (2 if step.variant == "missing" else 1)
        for asked, answered in zip(calls_of(scene), responses_of(scene), strict=True):
            assert asked.get("id") == answered.get("id")
            assert len(asked.get("id", "")) <= 256

    play(story, [step, "Done."], transport)


def test_w48_an_event_that_comes_twice_runs_once_if_it_has_an_id(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert len(scene.ran) == len(responses_of(scene)) == 1

    play(story, [fault("W48"), "Done."], transport)


def test_w48_equal_calls_without_ids_are_two_calls(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert len(scene.ran) == len(responses_of(scene)) == 2

    play(story, [answer(part("a"), part("a"), ids=False, apart=True), "Done."], transport)


def test_w49_of_five_thousand_calls_128_run_ten_at_a_time_and_all_are_answered(
    play: Play, transport: str, grown_mb: Callable[[], float], unjudged: None
) -> None:
    running = peak = total = 0

    async def look(path: str, n: int = 0) -> str:
        nonlocal running, peak, total
        running, total = running + 1, total + 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1
        return path

    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert outcome.text == "Done."
        assert outcome.cpu_s < 5
        assert total == 128
        assert 1 < peak <= 10
        answered = responses_of(scene)
        assert len(answered) == 5_000
        assert sum("error" in each["response"] for each in answered) == 5_000 - 128
        assert grown_mb() < 200

    play(story, [fault("W49"), "Done."], transport, tools=[look], log_level=30)


def test_w50_a_hundred_thousand_calls_are_refused_before_any_runs(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert "more than 10000 calls" in str(outcome.failed(ProtocolError))
        assert outcome.cpu_s < 2 * 3  # three seconds, and as much for the server, which makes them in this process
        assert scene.ran == []

    play(story, [fault("W50")], transport)


@pytest.mark.parametrize("step", variants("W51"), ids=lambda step: step.variant)
def test_w51_a_name_that_is_no_tool_is_answered_with_the_names_that_are(play: Play, transport: str, step: Any) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert scene.ran == []
        told = responses_of(scene)[0]["response"]["error"]
        assert len(told) <= 1_024
        assert "'look'" in told or step.variant == "empty"

    # A request with a name that Google would not take back is not what is tested here.
    play(story, [step, "Done."], transport, strict=False, goes_on=step.variant in ("unknown", "dunder"))


# Odd arguments -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["missing", "null"])
def test_w52_no_arguments_are_empty_arguments(play: Play, transport: str, variant: str) -> None:
    ran: list[str] = []

    async def look() -> str:
        """Looks."""
        ran.append("look")
        return "fine"

    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert ran == ["look"]

    play(story, [fault("W52", variant), "Done."], transport, tools=[look])


@pytest.mark.parametrize("variant", ["array", "string", "extra", "nan", "infinity", "overflow", "long_integer"])
def test_w52_arguments_that_are_none_are_an_error_for_the_model(play: Play, transport: str, variant: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert scene.ran == []
        assert "rguments" in responses_of(scene)[0]["response"]["error"]

    play(story, [fault("W52", variant), "Done."], transport)


def test_w52_the_last_of_two_equal_keys_is_shown_checked_run_and_kept(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert [args for _, args in scene.ran] == [{"path": "b", "n": 0}]
        assert calls_of(scene)[0]["args"] == {"path": "b"}
        assert [dict(record.call.args)["path"] for record in outcome.reply.calls] == ["b"]
        shown = [event.call.args for event in outcome.events if isinstance(event, CallProposed)]
        assert shown == [{"path": "b"}] * len(shown)

    play(story, [fault("W52", "duplicate_keys"), "Done."], transport)


def test_w52_minus_zero_is_zero(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        await scene.ask()
        assert [args for _, args in scene.ran] == [{"path": "a", "n": 0}]

    play(story, [call("look", path="a", n=-0), "Done."], transport)


def test_w53_arguments_of_ten_thousand_levels_are_refused_quickly(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        async with heartbeat() as late:
            outcome = await scene.ask()
        assert outcome.text == "Done."
        assert outcome.cpu_s < 1
        assert max(late) < 0.25
        assert "too deep" in responses_of(scene)[0]["response"]["error"]
        assert scene.ran == []

    play(story, [fault("W53", "deep"), "Done."], transport)


def test_w53_a_million_arguments_are_an_error_of_their_call_alone(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert outcome.text == "Done."
        first, second = responses_of(scene)
        assert "more than 100,000 values" in first["response"]["error"]
        assert second["response"] == {"result": "b is fine"}
        assert [args for _, args in scene.ran] == [{"path": "b", "n": 0}]
        assert [(record.state, record.result.is_error) for record in outcome.reply.calls] == [
            ("failed", True), ("finished", False),
        ]  # fmt: skip

    play(story, [fault("W53", "many_keys_beside_another"), "Done."], transport, log_level=30)


def test_w53_others_run_after_each_step_through_a_million_arguments(
    play: Play, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0
    seen: list[int] = []
    steps = ArgumentPruner.steps

    def watched(light: ArgumentPruner) -> Iterator[None]:
        for _ in steps(light):
            seen.append(rounds)
            yield

    async def other() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async def story(scene: Any) -> None:
        running = asyncio.create_task(other())
        assert (await scene.ask()).text == "Done."
        running.cancel()
        await asyncio.wait({running})
        assert len(seen) > 100
        assert all(later > earlier for earlier, later in itertools.pairwise(seen))

    monkeypatch.setattr(ArgumentPruner, "steps", watched)
    play(story, [fault("W53", "many_keys"), "Done."], transport, log_level=30)


def test_w53_a_call_with_a_million_arguments_alone_is_answered_too(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert "more than 100,000 values" in responses_of(scene)[0]["response"]["error"]
        assert scene.ran == []

    play(story, [fault("W53", "many_keys"), "Done."], transport, log_level=30)


def test_w53_an_argument_of_100_mb_is_stopped_at_the_limit(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        (await scene.ask()).failed(LimitExceededError)
        assert scene.ran == []

    play(story, [fault("W53", "long_string")], transport, log_level=30)


# Parts, candidates, loops ------------------------------------------------------------------------------------------------


def test_w54_parts_of_every_kind_go_back_as_they_came(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        kept = scene.fake.requests[1].json["contents"][-2]["parts"]
        kinds = [next(key for key in each if key not in ("thought", "thoughtSignature")) for each in kept]
        assert kinds == [
            "text", "text", "executableCode", "codeExecutionResult", "inlineData", "toolCall", "toolResponse", "hologram",
            "functionCall", "text",
        ]  # fmt: skip
        assert kept[7]["hologram"] == {"depth": 3}
        signatures = [each["thoughtSignature"] for each in kept if "thoughtSignature" in each]
        assert len(signatures) == 2
        assert set(signatures) <= scene.fake.signatures
        assert len(scene.ran) == 1

    play(story, [fault("W54"), "Done."], transport)


def test_w55_only_the_first_of_three_candidates_runs(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert len(scene.ran) == len(responses_of(scene)) == 1

    play(story, [fault("W55"), "Done."], transport)


def test_w56_a_model_that_calls_for_ever_is_stopped_at_the_turn_limit(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert outcome.reply.finish_reason == "turn_limit"
        assert scene.requests == Limits().turns == 25

    play(story, [fault("W56")], transport)


def test_w56_a_model_that_repeats_one_call_is_stopped_at_the_fifth(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert outcome.reply.finish_reason == "loop"
        assert len(scene.ran) == 4

    play(story, [fault("W56", "same_args")], transport)
