"""Thousands of small worlds: whatever dies, and whenever, no effect happens twice and no finished result is lost.

A failing seed is named, and `CALLGATE_SEED=n` repeats just that one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SEEDS = 1_000


def _world() -> Any:
    """Test files have no package to import their neighbours from."""
    path = Path(__file__).with_name("world.py")
    spec = importlib.util.spec_from_file_location("callgate_simulation_world", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


world = _world()


def seeds(scale: int) -> list[int]:
    named = os.environ.get("CALLGATE_SEED")
    return [int(named)] if named else list(range(SEEDS * scale))


@pytest.mark.slow
def test_no_effect_twice_no_result_lost_every_request_valid_and_every_session_comes_to_an_end(scale: int) -> None:
    outcomes: Counter[str] = Counter()
    effects = 0
    for seed in seeds(scale):
        done = world.run_seed(seed)
        assert not done.problems, f"seed {seed}: {done.problems}"
        outcomes += done.outcomes
        effects += sum(done.effects.values())
    if len(seeds(scale)) > 1:
        # Every kind of end was met often, so the dice do what they are meant to.
        assert min(outcomes[kind] for kind in ("Reply", "NoneType", "SessionLostError", "ServerUnavailableError")) > 50, (
            outcomes
        )
        assert effects > 1_000


def test_a_world_is_the_same_again_for_the_same_seed() -> None:
    first, second = world.run_seed(7), world.run_seed(7)
    assert (first.effects, first.outcomes, len(first.disk.facts)) == (
        second.effects,
        second.outcomes,
        len(second.disk.facts),
    )
