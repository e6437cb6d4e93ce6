"""What the benchmarks count, which is the same on every machine; what they time is for `make bench`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def loop() -> ModuleType:
    return loaded("loop")


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Its dataclasses look for their module.
    spec.loader.exec_module(module)
    return module


def test_a_turn_encodes_what_is_new_however_long_the_history_is(loop: ModuleType) -> None:
    watched = loop.run(200)
    assert len(watched.encoded) == 200
    assert watched.encoded == watched.new
    assert set(watched.encoded[9:]) == {watched.encoded[9]}


def test_a_loop_that_encodes_the_whole_history_is_seen_to_grow(loop: ModuleType) -> None:
    _, encoded = loop.encoding_whole(loop.run(100).contents)
    assert encoded[99] > 9 * encoded[9]


def test_a_turn_adds_as_much_to_the_journal_however_long_the_session_is() -> None:
    turns = loaded("sessions").journalled(120)
    assert len(turns) == 120
    assert {count for count, _ in turns[1:]} == {turns[1][0]}
    sizes = [size for _, size in turns[1:]]
    assert max(sizes) - min(sizes) < 20  # How long a call took is written with more digits or fewer.
