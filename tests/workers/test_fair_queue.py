"""The line before the workers: sessions take turns, and each keeps its own order."""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st

from callgate.types import ToolDefinition
from callgate.workers.fair_queue import FairQueue
from callgate.workers.job import Job, Session


@given(st.lists(st.sampled_from("abcd"), max_size=40))
def test_no_session_is_served_twice_while_another_one_waits(names):
    loop = asyncio.new_event_loop()
    try:
        jobs = [Job(ToolDefinition(name=str(n)), {}, Session(name, 0.0), 1.0, loop) for n, name in enumerate(names)]
    finally:
        loop.close()
    line = FairQueue()
    for job in jobs:
        line.add(job)
    assert len(line) == len(jobs)
    taken = [line.take(lambda job: True) for _ in jobs]
    assert line.take(lambda job: True) is None
    for name in set(names):
        own = [job for job in taken if job.session.id == name]
        assert own == [job for job in jobs if job.session.id == name]
        # Between two jobs of one session stand all others that still have some.
        places = [taken.index(job) for job in own]
        for here, there in itertools.pairwise(places):
            between = [job.session.id for job in taken[here + 1 : there]]
            assert len(set(between)) == len(between)
            assert {job.session.id for job in taken[there + 1 :]} - {name} <= set(between)


def test_what_does_not_fit_waits_without_holding_up_others():
    loop = asyncio.new_event_loop()
    try:
        first, second = (Job(None, {}, Session(name, 0.0), 1.0, loop) for name in "ab")
    finally:
        loop.close()
    line = FairQueue()
    line.add(first)
    line.add(second)
    assert line.take(lambda job: job is second) is second
    assert line.take(lambda job: job is second) is None
    assert line.remove(first)
    assert not line.remove(first)
    assert list(line) == []
