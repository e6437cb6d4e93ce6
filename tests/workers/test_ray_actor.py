"""The far side of a cluster, without the cluster: what a keeper of a worker does by itself."""

from __future__ import annotations

import pickle
import time

import pytest

from callgate.workers import ray_actor
from callgate.workers.ray_actor import GROUPS, Keeper

METHODS = ("begin", "send", "control", "end", "has_children", "receive")


def test_a_keeper_that_is_imported_by_its_name_has_its_groups() -> None:
    # As over ray://, where the class goes by its name: a send that waited for a pending receive would take a second.
    keeper = pickle.loads(pickle.dumps(Keeper))
    groups = {name: getattr(keeper, name).__ray_concurrency_group__ for name in METHODS}
    assert set(groups.values()) == set(GROUPS)
    assert len({groups["send"], groups["receive"], groups["control"]}) == 3


def test_a_worker_whose_program_asks_for_nothing_any_more_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actor, "TURN_S", 0.01)
    monkeypatch.setattr(ray_actor, "ORPHAN_S", 0.05)
    keeper = Keeper()
    try:
        assert keeper.begin([], [], None)
        keeper.receive()
        until = time.monotonic() + 60
        while not keeper._process.gone and keeper._process._process.poll() is None:
            assert time.monotonic() < until, "the worker lives on"
            time.sleep(0.01)
    finally:
        keeper.end(0.0)
        keeper._process.close()
