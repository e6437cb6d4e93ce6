"""A day of virtual time with kills, restarts, an upgrade and a clock that jumps: nothing twice, nothing lost, nothing stuck.

`CALLGATE_SEED=n` repeats one seed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest


def _module(name: str) -> Any:
    """Test files have no package to import their neighbours from."""
    title = f"callgate_simulation_{name}"
    spec = importlib.util.spec_from_file_location(title, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    spec.loader.exec_module(module)
    return module


world, day = _module("world"), _module("day")


def lived(seed: int, path: Path, hours: float, clock: str) -> Any:
    loop = world.VirtualLoop(0.0)
    try:
        return day.run_day(seed, loop, path / f"{seed}.db", hours=hours, clock=clock)
    finally:
        world._bury(loop)


CLOCKS = pytest.mark.parametrize("clock", ["local", "server"])
"""Whose clock jumps: that of the services, or that of the database."""


@CLOCKS
@pytest.mark.slow
def test_a_day_with_kills_restarts_an_upgrade_and_jumps_of_the_clock_does_nothing_twice_and_loses_nothing(
    tmp_path: Path, scale: int, clock: str
) -> None:
    named = os.environ.get("CALLGATE_SEED")
    for seed in [int(named)] if named else range(scale):
        done = lived(seed, tmp_path, 24.0, clock)
        assert done.problems == [], f"seed {seed}: {done.problems}, {done.happened}"
        for what, least in (
            ("exchanges", 300), ("kills", 20), ("restarts", 10), ("jumps back", 3), ("jumps ahead", 3), ("taken over", 3),
            ("NewerSessionError", 3), ("facts of newer kinds", 10),
        ):  # fmt: skip
            assert done.happened[what] >= least, f"seed {seed}: {done.happened}"
        if clock == "local":
            assert done.happened["SessionLostError"] == 0, "a live owner lost its lease to a jump of the clock"


@CLOCKS
def test_an_hour_of_it(tmp_path: Path, clock: str) -> None:
    done = lived(3, tmp_path, 1.0, clock)
    assert done.problems == [], done.happened
    assert done.happened["exchanges"] > 10
