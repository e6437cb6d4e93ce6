"""Token buckets, windows and the line before them, on a clock that the tests move."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.errors import UsageError
from callgate.permission.buckets import Bucket, Line, QueueFullError, Rate, Ticket, Window

TINY = 1e-6


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def line_of(rate: Rate, name: str = "a", **fields: Any) -> Line:
    line = Line(**fields)
    line.add({name: rate}, 0.0)
    return line


def served(line: Line, clock: Clock, until: float) -> list[tuple[float, Ticket]]:
    """Lets time pass as the line says, and gives who came in when."""
    came: list[tuple[float, Ticket]] = []
    while True:
        came += [(clock.now, ticket) for ticket in line.settle(clock.now)]
        wait_s = line.wait_s(clock.now)
        if wait_s is None or clock.now + wait_s > until:
            return came
        clock.now += max(wait_s, 1e-9)


# --- how many ------------------------------------------------------------------------------------------------------------


def test_a_minute_at_a_hundred_a_second_lets_six_thousand_in():
    clock, line = Clock(), line_of(Rate(per_s=100, burst=10))
    came: list[tuple[float, Ticket]] = []
    for second in range(1, 61):
        for _ in range(150 - len(line.waiting)):
            line.join(["a"], clock.now)
        came += served(line, clock, float(second))
    assert 6_000 <= len(came) <= 6_010
    assert sum(at == 0.0 for at, _ in came) == 10


@given(
    st.floats(0.1, 1_000),
    st.integers(1, 50),
    st.lists(st.floats(0, 5), min_size=1, max_size=200),
)
def test_in_any_window_there_are_never_more_than_the_burst_and_what_the_rate_gives(
    per_s: float, burst: int, arrivals: list[float]
):
    clock, line = Clock(), line_of(Rate(per_s=per_s, burst=burst))
    came: list[float] = []
    for at in sorted(arrivals):
        came += [when for when, _ in served(line, clock, at)]
        clock.now = max(clock.now, at)
        line.join(["a"], clock.now)
    came += [when for when, _ in served(line, clock, math.inf)]
    assert len(came) == len(arrivals), "everybody's turn comes"
    for first in range(len(came)):
        for last in range(first, len(came)):
            assert last - first + 1 <= burst + per_s * (came[last] - came[first]) + TINY


def test_a_clock_that_is_set_back_gives_nothing():
    bucket = Bucket(Rate(per_s=1, burst=1), 100.0)
    bucket.enter(100.0)
    assert bucket.left(50.0) == 0
    assert bucket.left(100.5) == 0.5
    assert (bucket.wait_s(100.5), bucket.wait_s(101.0)) == (0.5, 0.0)


def test_without_a_rate_only_those_inside_count():
    line = line_of(Rate(concurrent=2))
    tickets = [line.join(["a"], 0.0) for _ in range(3)]
    assert line.settle(0.0) == tickets[:2]
    assert line.wait_s(0.0) == math.inf
    line.leave(tickets[0])
    assert line.settle(0.0) == tickets[2:]
    assert line.buckets["a"].left(0.0) == 1
    assert line.wait_s(0.0) is None


# --- in which order ------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["ax", "bx", "x", "a"]), min_size=1, max_size=60))
def test_those_who_need_the_same_come_in_in_the_order_of_coming(wants: list[str]):
    clock, line = Clock(), Line()
    line.add({"a": Rate(per_s=3, burst=2), "b": Rate(per_s=50, burst=1), "x": Rate(per_s=7, burst=3)}, 0.0)
    tickets = [line.join(list(want), 0.0) for want in wants]
    came = [ticket for _, ticket in served(line, clock, math.inf)]
    assert set(came) == set(tickets)
    for want in set(wants):
        same = [ticket for ticket in came if ticket.needs == tuple(want)]
        assert same == [ticket for ticket in tickets if ticket.needs == tuple(want)]


def test_a_tool_that_is_used_up_holds_up_no_other_one():
    line = Line()
    line.add({"slow": Rate(per_s=0.01), "fast": Rate(per_s=100, burst=5), "all": Rate(per_s=100, burst=50)}, 0.0)
    first, stuck, quick = line.join(["slow", "all"], 0), line.join(["slow", "all"], 0), line.join(["fast", "all"], 0)
    assert line.settle(0.0) == [first, quick]
    assert stuck.state == "waiting"
    assert line.settle(100.0) == [stuck]


def test_nobody_overtakes_where_all_is_used_up():
    line = Line()
    line.add({"a": Rate(per_s=100, burst=9), "b": Rate(per_s=100, burst=9), "all": Rate(per_s=1)}, 0.0)
    tickets = [line.join([name, "all"], 0) for name in "abab"]
    assert [line.settle(float(now)) for now in range(4)] == [[ticket] for ticket in tickets]


# --- who gives up --------------------------------------------------------------------------------------------------------


def test_cancellation_frees_the_place_in_the_line_and_inside():
    line = line_of(Rate(concurrent=1))
    inside, gone, waiting = (line.join(["a"], 0.0) for _ in range(3))
    line.settle(0.0)
    line.leave(gone)
    line.leave(inside)
    line.leave(inside)  # Again is nothing.
    assert line.settle(0.0) == [waiting]
    assert line.buckets["a"].inside == 1


def test_a_line_that_is_full_takes_nobody():
    line = line_of(Rate(per_s=1), waiting_max=2)
    for _ in range(2):
        line.join(["a"], 0.0)
    with pytest.raises(QueueFullError):
        line.join(["a"], 0.0)
    line.settle(0.0)
    assert line.join(["a"], 0.0).state == "waiting"


def test_patience_ends():
    line = line_of(Rate(per_s=0.1), patience_s=5)
    first, second = line.join(["a"], 0.0), line.join(["a"], 0.0)
    line.settle(0.0)
    assert line.wait_s(0.0) == 5
    assert line.settle(5.0) == [second]
    assert (first.state, second.state, line.waiting) == ("inside", "expired", {})
    line.leave(second)
    assert line.buckets["a"].inside == 1


@pytest.mark.parametrize(
    "fields", [{"per_s": 0}, {"per_s": -1}, {"per_s": True}, {"burst": 0}, {"concurrent": 0}, {"per_s": math.inf}]
)
def test_a_rate_that_lets_nothing_in_is_an_error(fields: Any):
    with pytest.raises(UsageError, match="expected numbers above 0"):
        Rate(**fields)


# --- windows -------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 20), st.lists(st.tuples(st.floats(0, 30), st.integers(1, 5)), min_size=1, max_size=80))
def test_a_window_never_holds_more_than_its_limit_and_one_amount(limit: int, steps: list[tuple[float, int]]):
    window, now, used = Window(limit), 0.0, []
    for pause, amount in steps:
        now += pause
        now += window.wait_s(now)
        window.add(amount, now)
        used.append((now, amount))
        inside = [(at, some) for at, some in used if at > now - 60 + TINY]
        # What the last one takes is known only afterwards; all before it left room for one.
        assert sum(some for _, some in inside[:-1]) <= limit - 1 + TINY or len(inside) == 1


def test_a_window_that_was_pushed_back_is_smaller_for_a_while():
    window = Window(16)
    window.slow_down()
    assert (window.share, window.left(0.0)) == (0.5, 8)
    for _ in range(10):
        window.slow_down()
    assert (window.share, window.left(0.0)) == (1 / 16, 1)
    for _ in range(20):
        window.recover()
    assert window.share == 1


def test_a_window_in_debt_waits_until_enough_is_past():
    window = Window(100)
    window.add(50, 0.0)
    window.add(200, 10.0)
    assert (window.left(10.0), window.wait_s(10.0)) == (-150, 60)
    window.add(1, 5.0)  # Told late: it counts from when it was told.
    assert window.wait_s(70.0) == 0.0
