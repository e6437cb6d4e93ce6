"""Faults of the way to Gemini, on both transports and over real sockets: what the caller gets, and how often was asked.

Time between attempts is virtual: a story reads what was slept from the clock's record. Time-outs are real and small.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from callgate import Limits
from callgate.errors import (
    AuthError,
    ConnectionLostError,
    InvalidRequestError,
    LimitExceededError,
    ProtocolError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
)
from callgate.testing.answers import call, calls, text
from callgate.testing.exchange import Exchange
from callgate.testing.fake_gemini import Clock
from callgate.testing.fault_row import FaultStep, row
from callgate.testing.faults import fault, variants
from callgate.testing.http_lines import head
from callgate.wire.circuit_breaker import PROBE_MAX_S
from callgate.wire.endpoint_health import FAIL_FAST_S

Play = Callable[..., Any]
FOX = "The quick brown fox jumps over the lazy dog."
# Time-outs are kept to a tenth; this is for a machine that is busy with something else.
SLACK_S = 0.25
HASTY = Limits(connect_s=2, first_byte_s=0.3, idle_s=0.3, total_s=3)


def once(**changes: Any) -> Limits:
    """Limits under which nothing is tried again."""
    return Limits(**{"connect_s": 2, "first_byte_s": 5, "idle_s": 5, "total_s": 20, "attempts": 1} | changes)


# Too many requests -------------------------------------------------------------------------------------------------------


def test_w01_a_delay_in_the_body_is_waited_for_each_time(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 3
        assert len(scene.clock.sleeps) == 2
        assert all(2.5 <= slept <= 3.0 for slept in scene.clock.sleeps), scene.clock.sleeps

    play(story, [fault("W01"), "Hello."], transport)


def test_w01_whoever_watches_is_told_of_the_wait(play: Play) -> None:
    async def story(scene: Any) -> None:
        notices = (await scene.ask()).notices
        assert len(notices) == 2
        assert "attempt 2 of 5" in notices[0]
        assert "too many requests" in notices[0]

    play(story, [fault("W01"), "Hello."], "streamed")


@pytest.mark.parametrize(
    ("variant", "least", "most"), [("seconds", 3, 3.6), ("date", 1.9, 3.6), ("past_date", 0.5, 1), ("both", 3, 3.6)]
)
def test_w02_both_forms_of_retry_after_are_honoured(
    play: Play, transport: str, variant: str, least: float, most: float
) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 2
        assert least <= sum(scene.clock.sleeps) <= most, scene.clock.sleeps

    play(story, [fault("W02", variant), "Hello."], transport)


def test_w03_a_delay_of_a_day_is_an_error_at_once(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert outcome.failed(RateLimitedError).retry_after == 86_400
        assert scene.clock.sleeps == []
        assert scene.requests == 1
        # And nobody else is made to wait for a day.
        scene.heal()
        assert (await scene.ask(session="another")).text == "And on it goes."
        assert scene.clock.sleeps == []

    play(story, [fault("W03")], transport)


def test_w04_a_quota_of_the_day_is_not_tried_again(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        error = (await scene.ask()).failed(RateLimitedError)
        assert error.retryable is False
        assert error.quota == "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
        assert scene.requests == 1

    play(story, [fault("W04")], transport)


@pytest.mark.parametrize("variant", ["text", "negative", "null", "number", "huge"])
def test_w05_a_delay_that_is_none_falls_back_to_backing_off(play: Play, transport: str, variant: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 2
        assert 0 < sum(scene.clock.sleeps) <= 1.2

    play(story, [fault("W05", variant), "Hello."], transport)


def test_w06_fifty_callers_slow_down_together(play: Play, transport: str, make_scaled_clock: Any) -> None:
    callers, scale = 50, 0.25

    async def story(scene: Any) -> None:
        outcomes = await asyncio.gather(*[scene.ask(session=f"s{index}") for index in range(callers)])
        assert [outcome.text for outcome in outcomes] == ["Hello."] * callers
        assert scene.requests <= 3 * callers
        began = scene.fake.requests[0].at
        second_wave = [request.at - began for request in scene.fake.requests if request.at - began > 5]
        assert len(second_wave) == callers
        assert max(second_wave) - min(second_wave) >= 1
        # No moment sees everybody at once.
        most = max(sum(start <= at < start + 0.3 for at in second_wave) for start in second_wave)
        assert most <= callers * 0.7

    play(
        story, [fault("W06"), *["Hello."] * callers], transport, clock=make_scaled_clock(scale),
        server_clock=Clock(scale), keep=True,
    )  # fmt: skip


def test_w06_a_server_that_never_relents_is_given_up_by_all_who_wait(play: Play, make_scaled_clock: Any) -> None:
    async def story(scene: Any) -> None:
        outcomes = await asyncio.gather(*[scene.ask(session=f"s{index}") for index in range(10)])
        assert [type(outcome.error) for outcome in outcomes] == [RateLimitedError] * 10
        assert scene.requests <= 30

    play(
        story, [fault("W05", times=None)], "whole", clock=make_scaled_clock(0.002), goes_on=False, keep=True,
        limits=Limits(),
    )  # fmt: skip


# Trouble at the other end ------------------------------------------------------------------------------------------------


def test_w07_internal_errors_are_tried_again(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 3
        first, second = scene.clock.sleeps
        assert 0 <= first <= 1
        assert 0 <= second <= 2

    play(story, [fault("W07"), "Hello."], transport)


def test_w08_an_outage_is_given_up_after_five_attempts_and_one_request_opens_no_circuit(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        for _ in range(3):
            (await scene.ask()).failed(ServerUnavailableError)
        assert scene.requests == 15
        assert sum(scene.clock.sleeps) <= 3 * 15
        scene.heal()
        assert (await scene.ask()).text == "And on it goes."

    play(story, [fault("W08")], transport)


def test_w08_the_circuit_is_shared_and_a_long_outage_costs_hardly_more_than_probes(
    play: Play, transport: str, scale: int
) -> None:
    spaced_calls = 50 * scale

    async def story(scene: Any) -> None:
        outcomes = await asyncio.gather(*[scene.ask(session=f"s{index}") for index in range(20)])
        assert {type(outcome.error) for outcome in outcomes} == {ServerUnavailableError}
        scene.clock.time += FAIL_FAST_S
        # Nobody who begins now waits: it probes the server, or fails at once.
        seen, began, quick = scene.requests, scene.clock.time, []
        for number in range(spaced_calls):
            scene.transport = ("streamed", "whole")[number % 2]
            outcome = await scene.ask(session=f"t{number}")
            outcome.failed(ServerUnavailableError)
            quick += [outcome.took_s] if "has been failing for" in str(outcome.error) else []
            scene.clock.time += 0.2
        assert len(quick) > spaced_calls / 4
        assert min(quick) < 0.01
        assert scene.requests - seen <= (scene.clock.time - began) / PROBE_MAX_S + 2
        scene.clock.time += PROBE_MAX_S
        scene.heal()
        assert (await scene.ask()).text == "And on it goes."

    play(story, [fault("W08")], transport)


@pytest.mark.parametrize("status", [500, 503])
def test_w07_an_input_that_always_fails_costs_no_other_caller_anything(play: Play, transport: str, status: int) -> None:
    poison = fault("W07" if status == 500 else "W08", times=None)

    async def story(scene: Any) -> None:
        for _ in range(5):
            (await scene.ask("Poison.", session=f"p{scene.requests}")).failed(ServerUnavailableError)
        assert scene.requests == 25
        scene.heal()
        scene.clock.sleeps.clear()
        assert (await scene.ask(session="well")).text == "And on it goes."
        assert scene.clock.sleeps == []

    play(story, [poison], transport)


def test_w09_a_deadline_of_the_server_is_tried_again_with_the_same_body(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        first, second = scene.fake.requests
        assert first.body == second.body

    play(story, [fault("W09"), "Hello."], transport)


# Refusals ----------------------------------------------------------------------------------------------------------------


def test_w10_a_refused_declaration_is_told_by_the_name_of_its_tool(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        error = (await scene.ask()).failed(InvalidRequestError)
        assert error.tool == "look"
        assert error.field == "tools[0].function_declarations[0].parameters"
        assert "oneOf" in str(error)
        assert "'look'" in str(error)
        assert scene.requests == 1

    play(story, [fault("W10")], transport)


@pytest.mark.parametrize("step", variants("W11"), ids=lambda step: step.variant)
def test_w11_a_refused_key_is_an_auth_error_without_the_key(play: Play, transport: str, step: Any) -> None:
    async def story(scene: Any) -> None:
        error = (await scene.ask()).failed(AuthError)
        assert ("region" in str(error)) == step.variant.startswith("region")
        assert ("[key]" in str(error)) == (step.variant == "echoes_key")
        assert scene.requests == 1

    play(story, [step], transport)


def test_w12_an_unknown_model_is_named(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert "'gemini-3.8-flash'" in str((await scene.ask()).failed(InvalidRequestError))
        assert scene.requests == 1

    play(story, [fault("W12")], transport)


@pytest.mark.parametrize("step", variants("W13"), ids=lambda step: step.variant)
def test_w13_a_request_that_is_too_large_says_how_large(play: Play, transport: str, step: Any) -> None:
    async def story(scene: Any) -> None:
        error = (await scene.ask()).failed(LimitExceededError)
        assert f"{len(scene.fake.requests[0].body):,} bytes" in str(error)
        assert scene.requests == 1

    play(story, [step], transport)


# Going away --------------------------------------------------------------------------------------------------------------


def test_w14_a_cancelled_run_closes_its_socket_at_once(play: Play, transport: str, scale: int) -> None:
    tries = 10 * scale

    async def story(scene: Any) -> None:
        for index in range(tries):
            scene.heal(fault("W14"))
            task = asyncio.create_task(scene.ask(session=f"s{index}"))
            await scene.until_asked(index + 1)
            await asyncio.sleep(0.1 if index == 0 else 0.005)
            task.cancel()
            assert isinstance((await task).error, asyncio.CancelledError)
            await scene.fake.until_idle()
        assert scene.ran == []

    play(story, [], transport)


def test_w14_a_run_cancelled_in_good_order_replies_so(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        task = asyncio.create_task(scene.ask())
        await scene.until_asked(1)
        assert scene.gate.cancel("story")
        outcome = await task
        assert outcome.reply.finish_reason == "cancelled"
        async with asyncio.timeout(300):
            await scene.fake.until_idle()

    play(story, [fault("W14")], transport)


def test_w14_a_stream_that_nobody_reads_on_closes_its_socket(play: Play) -> None:
    async def story(scene: Any) -> None:
        stream = scene.gate.stream("Go.", session="story")
        async with contextlib.aclosing(stream):
            async for _ in stream:
                break
        async with asyncio.timeout(300):
            await scene.fake.until_idle()

    play(story, [fault("W27")], "streamed")


def test_w14_a_request_that_the_server_cancels_is_an_error(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).failed(ServerUnavailableError).retryable
        assert scene.requests == 1

    play(story, [fault("W14", "cancelled")], transport)


# Broken connections ------------------------------------------------------------------------------------------------------


def test_w16_a_reset_before_any_byte_is_tried_again(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.fake.connections == 2
        assert len(scene.clock.sleeps) == 1

    play(story, [fault("W16"), "Hello."], transport)


def test_w17_a_reset_after_the_request_is_tried_again_and_the_tool_runs_once(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Done."
        assert scene.requests == 4
        assert len(scene.ran) == 1

    play(story, [fault("W17"), call("look", path="a"), fault("W17"), "Done."], transport)


def test_w17_a_server_that_always_resets_is_given_up_after_five_attempts(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        (await scene.ask()).failed(ConnectionLostError)
        assert scene.requests == 5

    play(story, [fault("W17", times=None)], transport)


def test_w18_a_reset_in_the_middle_of_text_keeps_what_was_shown(play: Play) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        error = outcome.failed(ConnectionLostError)
        assert error.partial == outcome.shown == FOX[: len(error.partial)]
        assert len(outcome.shown) > 10
        assert error.retryable
        assert scene.requests == 1

    play(story, [fault("W18"), "Hello."], "streamed")


def test_w18_a_reset_in_the_middle_of_a_whole_answer_is_tried_again(play: Play) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 2

    play(story, [fault("W18"), "Hello."], "whole")


def test_w19_a_reset_in_the_middle_of_a_call_runs_nothing_and_is_tried_again(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.ran == []
        assert scene.requests == 2

    play(story, [fault("W19"), "Hello."], transport)


def test_w20_calls_of_an_answer_without_an_end_do_not_run(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        error = (await scene.ask()).failed(ProtocolError)
        assert "ended early" in str(error)
        assert error.retryable
        assert scene.ran == []

    play(story, [fault("W20", times=None)], transport)


def test_w20_a_whole_answer_without_an_end_is_tried_again_because_nobody_saw_it(play: Play) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 2
        assert scene.ran == []

    play(story, [fault("W20"), "Hello."], "whole")


# Lengths and framing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["W21", "W22:cut", "W23:bad_size", "W23:no_last_chunk", "W28"])
def test_w21_w22_w23_w28_a_body_that_breaks_http_is_a_protocol_error(play: Play, transport: str, step: str) -> None:
    async def story(scene: Any) -> None:
        error = (await scene.ask()).failed(ProtocolError)
        assert error.retryable
        assert FOX.startswith(error.partial)

    if transport == "streamed" and step in ("W21", "W23:no_last_chunk"):
        pytest.skip("all of the answer came, and so it is one")
    play(story, [fault(step, times=None)], transport, limits=once(attempts=2))


@pytest.mark.parametrize("step", ["W21", "W23:no_last_chunk"])
def test_w21_w23_a_streamed_answer_with_its_finish_reason_is_one_however_its_body_ends(play: Play, step: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert outcome.text == FOX
        assert "did not end its response properly" in " ".join(outcome.notices)
        assert scene.requests == 1

    play(story, [fault(step)], "streamed", limits=once())


@pytest.mark.parametrize("step", ["W21", "W22:cut", "W23:bad_size", "W23:no_last_chunk", "W28"])
def test_w21_w22_w23_w28_a_whole_answer_that_breaks_http_is_tried_again(play: Play, step: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 2

    play(story, [fault(step), "Hello."], "whole")


def test_w22_bytes_behind_an_answer_are_never_taken_for_the_next_one(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == FOX
        assert (await scene.ask()).text == "The right one."
        assert scene.fake.connections == 2
        assert scene.clock.sleeps == []

    play(story, [fault("W22"), "The right one."], transport, keep=True)


def test_w28_an_endless_header_takes_no_memory(play: Play, transport: str, grown_mb: Callable[[], float]) -> None:
    async def story(scene: Any) -> None:
        (await scene.ask()).failed(ProtocolError)
        assert grown_mb() < 30

    play(story, [fault("W28", times=None)], transport)


# Time and size -----------------------------------------------------------------------------------------------------------


def test_w24_a_slow_drip_ends_at_the_total_limit_and_disturbs_nobody(play: Play, transport: str) -> None:
    limits = once(total_s=0.6)

    async def story(scene: Any) -> None:
        baseline = [await scene.ask(session=f"b{index}") for index in range(20)]
        scene.heal(fault("W24"), *["Hello."] * 20)
        drip = asyncio.create_task(scene.ask())
        await scene.until_asked(len(baseline) + 1)
        beside = [await scene.ask(session=f"o{index}") for index in range(20)]
        assert {outcome.text for outcome in beside} == {"Hello."}
        # The slowest of twenty, with room for what the machine does besides.
        usual, worst = (max(outcome.cpu_s for outcome in outcomes) for outcomes in (baseline, beside))
        assert worst < 2 * usual + SLACK_S
        outcome = await drip
        assert "not complete within 0.6 s" in str(outcome.failed(RequestTimeoutError))
        assert outcome.took_s >= 0.6  # clock: a lower bound

    play(story, ["Hello."] * 20, transport, limits=limits, server_clock=Clock(scale=0.1), keep=True)


def test_w25_silence_behind_the_head_ends_at_the_first_byte_limit(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        assert "nothing for 0.3 s" in str(outcome.failed(RequestTimeoutError))
        assert outcome.took_s >= 0.3  # clock: a lower bound
        assert scene.requests == 1

    play(story, [fault("W25")], transport, limits=HASTY)


def test_w25_a_stream_that_never_begins_ends_at_the_first_byte_limit(play: Play) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        outcome.failed(RequestTimeoutError)
        assert outcome.took_s >= 0.3  # clock: a lower bound

    play(story, [fault("W14")], "streamed", limits=HASTY)


def test_w26_a_long_gap_ends_at_the_idle_limit_and_keeps_the_text(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        error = outcome.failed(RequestTimeoutError)
        assert outcome.took_s >= 0.3  # clock: a lower bound
        assert error.partial == outcome.shown
        assert FOX.startswith(error.partial)
        assert bool(error.partial) == (scene.transport == "streamed")

    play(story, [fault("W26")], transport, limits=HASTY, server_clock=Clock(scale=0.008))


def test_w27_an_endless_stream_is_stopped_at_the_limit_of_a_body(
    play: Play, transport: str, grown_mb: Callable[[], float]
) -> None:
    async def story(scene: Any) -> None:
        error = (await scene.ask()).failed(LimitExceededError)
        assert str(8_000_000) in str(error)
        assert scene.requests == 1
        assert grown_mb() < 100

    play(story, [fault("W27")], transport, limits=once(body_bytes=8_000_000, attempts=5))


def test_w27_an_event_without_an_end_is_stopped_at_the_limit_of_an_event(play: Play) -> None:
    async def story(scene: Any) -> None:
        (await scene.ask()).failed(LimitExceededError)

    play(story, [text("x" * 300_000, chunks=1)], "streamed", limits=once(event_bytes=100_000))


# Bodies cut and split ----------------------------------------------------------------------------------------------------


def test_w29_an_answer_cut_at_any_byte_is_an_error_or_right_and_never_a_wrong_call(
    play: Play, transport: str, stride: int, unjudged: None
) -> None:
    wanted = {"path": "f" * 70 + " ü🦊", "n": 12345}
    other = {"path": "b" * 40, "n": 7}
    answer = calls(("look", wanted), ("look", other), apart=True)

    async def story(scene: Any) -> None:
        right = errors = 0
        for at in range(0, 2_501, stride):
            scene.heal(fault("W29", at=at, answer=answer), text("Done."))
            before = len(scene.ran)
            outcome = await scene.ask(session=f"s{at}")
            ran = [args for _, args in scene.ran[before:]]
            if outcome.error is None:
                assert outcome.text == "Done."
                assert sorted(ran, key=str) == sorted([wanted, other], key=str)
                right += 1
                if right > 3:
                    break
            else:
                outcome.failed(ProtocolError)
                assert ran == []
                errors += 1
            scene.outcomes.clear()
        assert errors > 800 // stride - 2
        assert right

    play(story, [], transport, limits=once(), keep=True, goes_on=False, log_level=30)


def test_w30_a_stream_split_at_any_byte_says_the_same(play: Play, transport: str, stride: int, unjudged: None) -> None:
    words = "Grüße, 東京 🦊 and\nmore"

    async def story(scene: Any) -> None:
        for at in [None, *range(1, 900, stride)]:
            scene.heal(fault("W30", at=at, answer=text(words, chunks=2)))
            outcome = await scene.ask(session=f"s{at}")
            assert outcome.text == words
            scene.outcomes.clear()

    play(story, [], transport, keep=True, goes_on=False, log_level=30)


@pytest.mark.parametrize("step", variants("W31"), ids=lambda step: step.variant)
def test_w31_dialects_of_events_say_the_same(play: Play, transport: str, step: Any) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == FOX
        assert scene.requests == 1

    play(story, [step], transport)


def test_w32_a_json_array_in_place_of_events_is_read(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == FOX

    play(story, [fault("W32")], transport)


@pytest.mark.parametrize("variant", ["done", "blank"])
def test_w33_events_without_an_answer_are_passed_over(play: Play, transport: str, variant: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == FOX

    play(story, [fault("W33", variant)], transport)


def test_w33_an_event_that_is_null_is_a_protocol_error(play: Play) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        outcome.failed(ProtocolError)
        assert FOX.startswith(outcome.shown)

    play(story, [fault("W33", "null")], "streamed")


# Bodies that are something else ------------------------------------------------------------------------------------------


def test_w36_an_answer_is_told_by_its_content_and_not_by_its_type(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == FOX

    play(story, [fault("W36")], transport)


def test_w37_a_page_of_a_bad_gateway_is_tried_again(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 2

    play(story, [fault("W37", "bad_gateway"), "Hello."], transport)


@pytest.mark.parametrize(("variant", "kind"), [("bad_gateway", ServerUnavailableError), ("captive_portal", ProtocolError)])
def test_w37_a_page_is_shown_shortly_and_without_its_tags(play: Play, transport: str, variant: str, kind: Any) -> None:
    async def story(scene: Any) -> None:
        told = str((await scene.ask()).failed(kind))
        assert ("Free WiFi" if kind is ProtocolError else "502 Bad Gateway") in told
        assert not {"<", ">", "\x1b", "\n"} & set(told)
        assert "x()" not in told
        assert len(told) < 300

    play(story, [fault("W37", variant, times=None)], transport)


def refusal(status: int, data: bytes, claimed: int) -> FaultStep:
    """A refusal with a body that is perhaps shorter than it claims to be."""

    async def act(exchange: Exchange) -> None:
        exchange.reusable = False
        await exchange.send(head(status, {"Content-Type": "text/html", "Content-Length": str(claimed)}) + data)

    return FaultStep(fault=row("W37", "refusal", "", act), variant="usual", times=None)


@pytest.mark.parametrize("data", [b"x" * 1_000_000, b"half a p", b""], ids=["huge", "cut", "none"])
def test_w37_a_refusal_is_told_by_its_status_whatever_its_body_is(play: Play, transport: str, data: bytes) -> None:
    async def story(scene: Any) -> None:
        told = str((await scene.ask()).failed(ServerUnavailableError))
        assert "503" in told
        assert len(told) < 400

    play(story, [refusal(503, data, max(len(data), 100))], transport, limits=once(attempts=2))


def test_w37_a_page_that_echoes_the_key_does_not_bring_it_into_the_error(play: Play, transport: str, key: str) -> None:
    page = f"<html>{'x' * 180} Your key {key} is odd</html>"

    async def story(scene: Any) -> None:
        assert key[:10] not in str((await scene.ask()).failed(ProtocolError))

    def says(_: Any) -> Any:
        return [page.encode()]

    play(story, [says], transport, limits=once())


@pytest.mark.parametrize("variant", ["gzip", "x_gzip", "members", "twice", "deflate", "raw_deflate"])
def test_w38_compressed_answers_are_read(play: Play, transport: str, variant: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == FOX
        assert scene.fake.requests[0].headers["accept-encoding"] == "gzip"

    play(story, [fault("W38", variant)], transport)


@pytest.mark.parametrize("variant", ["br", "not_gzip", "unknown"])
def test_w38_an_encoding_that_was_not_asked_for_or_is_false_is_a_protocol_error(
    play: Play, transport: str, variant: str
) -> None:
    async def story(scene: Any) -> None:
        (await scene.ask()).failed(ProtocolError)
        assert scene.requests == 1

    play(story, [fault("W38", variant)], transport)


def test_w38_a_gzip_bomb_is_stopped_at_the_limit_without_being_unpacked(
    play: Play, transport: str, grown_mb: Callable[[], float]
) -> None:
    async def story(scene: Any) -> None:
        (await scene.ask()).failed(LimitExceededError)
        assert grown_mb() < 150  # of 1,000
        assert scene.requests == 1

    play(story, [fault("W38", "bomb")], transport)


@pytest.mark.parametrize("step", [*variants("W39"), fault("W39-loop")], ids=lambda step: step.fault.name + step.variant)
def test_w39_a_redirect_is_refused_and_the_key_goes_nowhere_else(play: Play, transport: str, step: Any) -> None:
    async def story(scene: Any) -> None:
        assert "redirects" in str((await scene.ask()).failed(ProtocolError))
        (request,) = scene.fake.requests
        assert "redirected" not in request.path

    play(story, [step], transport)


def test_w40_an_error_behind_a_200_is_tried_again_like_any_other(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert 1 <= sum(scene.clock.sleeps) <= 1.2

    play(story, [fault("W40"), "Hello."], transport)


def test_w40_an_error_behind_text_that_was_shown_is_an_error_with_that_text(play: Play) -> None:
    async def story(scene: Any) -> None:
        outcome = await scene.ask()
        error = outcome.failed(RateLimitedError)
        assert error.retry_after == 1
        assert error.partial == outcome.shown != ""
        assert scene.requests == 1

    play(story, [fault("W40", "after_text")], "streamed")


def test_w41_an_error_in_a_list_is_that_error(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert 1 <= sum(scene.clock.sleeps) <= 1.2

    play(story, [fault("W41"), "Hello."], transport)


@pytest.mark.parametrize("step", variants("W42"), ids=lambda step: step.variant)
def test_w42_a_body_that_is_no_answer_is_a_protocol_error(play: Play, transport: str, step: Any) -> None:
    async def story(scene: Any) -> None:
        (await scene.ask()).failed(ProtocolError)

    play(story, [fault("W42", step.variant, times=None)], transport)


@pytest.mark.parametrize("variant", ["empty", "object", "array"])
def test_w42_an_answer_without_anything_in_it_is_tried_again(play: Play, transport: str, variant: str) -> None:
    async def story(scene: Any) -> None:
        assert (await scene.ask()).text == "Hello."
        assert scene.requests == 2

    play(story, [fault("W42", variant), "Hello."], transport)


# Clocks and kept connections ---------------------------------------------------------------------------------------------


def test_w59_a_wall_clock_set_back_changes_no_wait(play: Play, transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = time.time

    async def story(scene: Any) -> None:
        sleep = scene.clock.sleep

        async def jumping(seconds: float) -> None:
            monkeypatch.setattr(time, "time", lambda: wall() - 3_600)
            await sleep(seconds)

        scene.clock.sleep = jumping
        assert (await scene.ask()).text == "Hello."
        assert all(2.5 <= slept <= 3.0 for slept in scene.clock.sleeps)
        scene.heal(fault("W25"))
        outcome = await scene.ask()
        outcome.failed(RequestTimeoutError)
        assert outcome.took_s >= 0.3  # clock: a lower bound
        monkeypatch.undo()

    play(story, [fault("W01"), "Hello."], transport, limits=replace(HASTY, total_s=30))


@pytest.mark.usefixtures("patient_with_stale_connections")
def test_w61_connections_that_die_as_they_are_reused_cost_nothing(
    play: Play, transport: str, scale: int, stride: int, unjudged: None
) -> None:
    asks = 500 * scale // stride

    async def story(scene: Any) -> None:
        for index in range(asks):
            assert (await scene.ask(session=f"s{index % 50}-{index}")).text == FOX
            scene.outcomes.clear()
        assert scene.fake.connections == asks
        assert scene.clock.sleeps == []

    play(
        story, [fault("W61", times=asks)], transport, limits=once(), keep=True, goes_on=False, log_level=30
    )  # fmt: skip


@pytest.mark.usefixtures("patient_with_stale_connections")
def test_w61_many_stale_connections_at_once_cost_nothing(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        for _ in range(3):
            outcomes = await asyncio.gather(*[scene.ask(session=f"s{index}") for index in range(20)])
            assert {outcome.text for outcome in outcomes} == {FOX}

    play(story, [fault("W61", times=60)], transport, limits=once(), keep=True, goes_on=False)


def test_a_connection_is_used_for_all_requests_of_a_gate_that_is_kept_open(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        for _ in range(3):
            assert (await scene.ask()).text == "Hello."
        assert scene.fake.connections == 1

    play(story, ["Hello."] * 3, transport, keep=True)


def test_one_gate_that_is_done_does_not_close_the_connections_of_another(play: Play, transport: str) -> None:
    async def story(scene: Any) -> None:
        slow = asyncio.create_task(scene.ask(session="slow"))
        await scene.until_asked(1)
        await scene.model.aclose()
        assert (await slow).text == FOX
        async with asyncio.timeout(300):
            await scene.fake.until_idle()

    play(story, [fault("W26")], transport, server_clock=Clock(scale=0.002))
