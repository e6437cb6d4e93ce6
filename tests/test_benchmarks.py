"""What the benchmarks count, which is the same on every machine; what they time is for `make bench`."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import sys
import xml.dom.minidom
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callgate.run.run import Run

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


# The suite ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return loaded("bench")


def test_every_system_has_an_adapter_an_environment_and_a_colour(bench: ModuleType) -> None:
    assert set(bench.MODULES) == set(bench._venvs.WANTED) == set(bench._plots.COLOURS) == {*bench.OURS, *bench.PEERS}
    for system in bench.MODULES:
        adapter = bench.system_of(system)  # Without its packages: they are imported by what uses them.
        assert asyncio.iscoroutinefunction(adapter.turns)
        ast.parse(adapter.IMPORT)
    assert all(bench.can("callgate", task) for task in bench.TASKS)


def test_a_goal_is_met_missed_or_not_measured(bench: ModuleType) -> None:
    results = bench.Results()
    for system, ms in {"callgate": 0.6, "hand-written": 0.5, "google-genai": 9.0}.items():
        for factor in (0.9, 1.0, 5.0):  # The median is what counts.
            results.add("turns", system, {"turn 10": ms * factor, "turn 100": ms * factor, "turn 400": None})
    results.add("stream", "callgate", {"MB/s": 40})
    results.add("stream", "hand-written", {"MB/s": 80})
    found = {goal.title: (goal.value, goal.is_met) for goal in bench.goals(results)}
    assert found["turn 10 / hand-written"] == (pytest.approx(1.2), True)
    assert found["turn 100 / best peer"] == (pytest.approx(0.6 / 9), True)
    assert found["streaming / hand-written"] == (0.5, False)
    assert found["turn 400 / own turn 10"] == (None, None)


def test_a_system_that_breaks_or_cannot_be_installed_is_told_and_the_others_go_on(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def python_of(system: str) -> Path:
        if system == "LangChain":
            raise bench._venvs.MissingError("no such package")
        return Path(sys.executable)

    def task(name: str, system: str, plan: Any) -> dict[str, float]:
        if system == "LiteLLM":
            raise bench.BrokenError("it fell over")
        return {"ms": 1.0}

    monkeypatch.setattr(bench._venvs, "python_of", python_of)
    monkeypatch.setitem(bench.TASKS, "turns", (task, "ms"))
    results = bench.measure(["turns"], bench.Plan(everything=False))
    assert results.missing == {"LangChain": "no such package"}
    assert results.errors == ["turns, LiteLLM: it fell over"]
    assert set(results.rounds["turns"]) == {*bench.OURS, "google-genai", "pydantic-ai"}
    assert results.get("turns", "callgate", "ms") == 1.0


def test_what_is_measured_runs_against_the_server_of_the_benchmarks(bench: ModuleType) -> None:
    import _child

    with bench.serving(12) as url:
        for system in ("callgate", "raw sockets"):
            adapter = bench.system_of(system)
            assert _child.turns(adapter, url, 12)["turns"] == 12
        with bench.urllib.request.urlopen(f"{url}/sent") as answer:
            sent = json.load(answer)
        assert len(sent) == 13
        assert sent == sorted(sent)
        assert _child.large_call(bench.system_of("callgate"), url, 0)["ms"] > 0
        assert asyncio.run(bench.system_of("callgate").stream(url)) > 5_000_000


def test_pictures_are_pictures(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(task: str, system: str, name: str) -> float | None:
        return None if system == "LiteLLM" or (system, name) == ("LangChain", "turn 400") else 3.5

    for svg in bench._plots.all_of(get, list(bench.MODULES), bench.MARKS).values():
        xml.dom.minidom.parseString(svg)
        assert "google-genai" in svg
        assert "LiteLLM" not in svg
    flame = loaded("flame")
    (root,) = {root for _, _, root in flame.PICTURES.values()}
    assert root == Run.drive.__qualname__
    stacks = Counter({("main", f"callgate/run/run.py:{root}", "callgate/machine/machine.py:a<b>"): 3, ("elsewhere",): 9})
    picture = flame.drawn(stacks, "A title", root)
    xml.dom.minidom.parseString(picture)
    assert "a&lt;b&gt; 100.0 %" in picture
    assert "elsewhere" not in picture
