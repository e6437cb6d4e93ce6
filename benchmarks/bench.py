"""All systems side by side: one driver, one environment and one process for each, and a table of ratios at the end.

    python benchmarks/bench.py                 the quick set: a few minutes once the environments exist
    python benchmarks/bench.py --all           long talks for every system, more rounds, and the single benchmarks
    python benchmarks/bench.py --only turns    some tasks only; --list names them
    python benchmarks/bench.py --docs          also writes the plots that the documentation shows

Runs are interleaved: every round measures each system once, so that a machine that slows down does so for all of them. Shown
are medians of the rounds, with the lowest and the highest. What counts is processor time of the client's process; the server
is another process. Goals are ratios of figures from the same run. A goal that is missed is said plainly and does not fail
the run, because a busy machine misses goals; a benchmark that breaks ends it with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _plots
import _tables
import _venvs
from _child import MARKS, MODULES, WINDOW, system_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = ROOT / "build" / "bench"
DOCS = ROOT / "docs"
PICTURES = DOCS / "img"
PEERS = ("google-genai", "pydantic-ai", "LiteLLM", "LangChain")
OURS = ("callgate", "hand-written", "raw sockets")
MEGABYTES = 5
CHILD_S = 600
OWN = (
    "check", "parser", "dispatch", "pool", "files", "long session", "idle sessions", "idle gates", "large result", "growth",
)  # fmt: skip
NARROW = ("first_answer", "large_events", "stream_memory")
"""Tasks in which the best known peer stands for the others."""
MEASURED_TOO = ("callgate", "hand-written", "google-genai")
SINGLE = ("loop", "schema", "audit", "files", "sessions", "workers", "embedded", "service", "outages")
"""Benchmarks of one part each, which `--all` runs as they are, where they exist."""

Figures = dict[str, float | None]


class BrokenError(Exception):
    """A measurement failed."""


@dataclass
class Results:
    """Everything that was measured: task -> system -> figure -> one value a round."""

    rounds: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, task: str, system: str, figures: Figures) -> None:
        """Takes in one round of one system."""
        for name, value in figures.items():
            if value is not None:
                self.rounds.setdefault(task, {}).setdefault(system, {}).setdefault(name, []).append(value)

    def get(self, task: str, system: str, name: str) -> float | None:
        """The median of a figure; None if it was not measured."""
        values = self.rounds.get(task, {}).get(system, {}).get(name)
        return statistics.median(values) if values else None


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    everything: bool

    def rounds(self, task: str, system: str) -> int:
        """How often a system is measured at a task. What is slow anyway needs less: nothing is near it."""
        few = {"turns": 1, "stream": 1, "import": 3}.get(task, 2)
        many = 5 if task in ("turns", "stream", "import") else 3
        return (few + 1 if self.everything else few) if system in PEERS else many + 2 * self.everything

    def turns(self, system: str) -> int:
        """How long the talk is; the bytes of a long one, encoded anew for every turn, take peers minutes."""
        return MARKS[-1] + WINDOW if system in OURS or self.everything else MARKS[1] + WINDOW


# Measuring --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(turns: int, *, fake: bool = False) -> Iterator[str]:
    """The server of a few lines, or the fake one of the tests, in a process of its own."""
    command = [sys.executable, str(HERE / "_wire_server.py"), str(turns), str(MEGABYTES), *(["--fake"] if fake else [])]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()


def environment() -> dict[str, str]:
    """The environment of what is measured: as it is for users, where modules are compiled once."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONWARNINGS": "ignore"}


def output_of(command: list[str]) -> str:
    """What a program prints.

    Raises:
        BrokenError: it failed, or took far too long.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_S, env=environment(), check=False)
    except subprocess.TimeoutExpired:
        raise BrokenError(f"not done within {CHILD_S} s") from None
    if done.returncode:
        raise BrokenError((done.stderr.strip().splitlines() or ["no reason was given"])[-1][:300])
    return done.stdout


def wire_task(task: str, system: str, plan: Plan) -> Figures:
    """One round of a task that needs the server."""
    turns = plan.turns(system)
    with serving(turns) as url:
        command = [str(_venvs.python_of(system)), str(HERE / "_child.py"), system, task, url, str(turns)]
        figures: Figures = json.loads(output_of(command).splitlines()[-1])
        if task == "turns":
            with urllib.request.urlopen(f"{url}/sent", timeout=10) as answer:
                sent = json.load(answer)
            figures |= {f"bytes {mark}": sent[mark - 1] if len(sent) >= mark else None for mark in MARKS}
    return figures


def import_task(task: str, system: str, plan: Plan) -> Figures:
    """What it takes to import a system, beyond what Python itself takes to start."""
    python = str(_venvs.python_of(system))
    figures: Figures = {}
    nothing = _children_ms([python, "-c", "pass"])
    figures["import"] = max(_children_ms([python, "-c", system_of(system).IMPORT]) - nothing, 0.1)
    if system == "callgate":
        figures["--help"] = _children_ms([python, "-m", "callgate", "--help"]) - nothing
        first = "from callgate import Gate, ScriptedModel; Gate(ScriptedModel([]))"
        figures["a first gate"] = _children_ms([python, "-c", first]) - nothing
    return figures


def first_task(task: str, system: str, plan: Plan) -> Figures:
    """From the start of a program to its first answer, with one tool and one call; for callgate also the steps."""
    python = str(_venvs.python_of(system))
    begin = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import asyncio\nfrom systems.{MODULES[system]} import turns\n"
        "async def look_up(number: int) -> dict:\n    'Looks a number up.'\n    return {'number': number}\n"
    )
    with serving(1) as url:
        figures: Figures = {"ms": _children_ms([python, "-c", f"{begin}asyncio.run(turns({url!r}, look_up, 1))"])}
    if system == "callgate":
        gate = (
            "from callgate import Gate, GeminiModel\ng = Gate(GeminiModel('gemini-3.8-flash', api_key='k' * 20), [look_up])"
        )
        figures["of it Python"] = _children_ms([python, "-c", "pass"])
        figures["asyncio"] = _children_ms([python, "-c", "import asyncio"]) - (figures["of it Python"] or 0)
        figures["until there is a gate"] = _children_ms([python, "-c", f"{begin}{gate}"])
    return figures


def _children_ms(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output_of(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def own_task(task: str, system: str, plan: Plan) -> Figures:
    """One round of a task that only callgate has."""
    return json.loads(output_of([str(_venvs.python_of("callgate")), str(HERE / "_own.py"), task]).splitlines()[-1])


TASKS: dict[str, tuple[Callable[[str, str, Plan], Figures], str]] = {
    "import": (import_task, "ms of processor time to import"),
    "turns": (wire_task, "ms of processor time a turn, and bytes of its request"),
    "stream": (wire_task, "MB of streamed text for a second of processor time"),
    "parallel": (wire_task, "ms of wall time for 20 calls of 50 ms"),
    "large_call": (wire_task, "ms of processor time for a streamed call with 1 MB of arguments"),
    "first_answer": (first_task, "ms of processor time from process start to the first answer"),
    "large_calls": (wire_task, "ms of processor time for a call with 1 MB of text, by a warm client"),
    "large_rows": (wire_task, "ms of processor time for a call with 1 MB in 14,000 rows, by a warm client"),
    "large_events": (wire_task, "MB of text in events of 64 KB for a second of processor time"),
    "stream_memory": (wire_task, "MB of Python's memory at most while 5 MB are streamed"),
    "raw_tools": (wire_task, "ms of processor time from 500 raw definitions to a first answer, and with equal ones again"),
    "declaring": (wire_task, "ms of processor time to put 500 tools into a request"),
    **{name: (own_task, _what) for name, _what in {
        "check": "us to check the arguments of a call",
        "parser": "the parser of prompted calling",
        "dispatch": "us that a call costs beyond its function, with everything on",
        "pool": "us of wall time for a call in a worker process",
        "files": "us of wall time for a call of a file tool",
        "long session": "memory of a session of 400 turns",
        "idle sessions": "memory of an idle session",
        "idle gates": "memory of an idle gate with 20 tools, beyond what they share",
        "large result": "a call that returns 10 MB, beside encoding these once",
        "growth": "us for each of many tools and sessions",
    }.items()},
}  # fmt: skip


def can(system: str, task: str) -> bool:
    """Whether a system has the task at all."""
    if task in OWN:
        return system == "callgate"
    needed = {"large_events": "stream", "stream_memory": "stream", "first_answer": "turns", "large_rows": "large_calls"}.get(
        task, task
    )
    return task == "import" or (hasattr(system_of(system), needed) and (system in MEASURED_TOO or task not in NARROW))


def measure(tasks: list[str], plan: Plan) -> Results:
    """All tasks, system by system in turns, round after round."""
    results = Results()
    for system in MODULES:
        try:
            _venvs.python_of(system)
        except _venvs.MissingError as error:
            results.missing[system] = str(error)
            print(f"  {system} cannot be installed here and is left out: {error}", flush=True)
    systems = [system for system in MODULES if system not in results.missing]
    for task in tasks:
        started = time.perf_counter()
        broken: set[str] = set()
        able = [system for system in systems if can(system, task)]
        for number in range(max(plan.rounds(task, system) for system in able)):
            for system in able:
                if number >= plan.rounds(task, system) or system in broken:
                    continue
                try:
                    results.add(task, system, TASKS[task][0](task, system, plan))
                except BrokenError as error:
                    broken.add(system)
                    results.errors.append(f"{task}, {system}: {error}")
        print(f"  {task:14} {time.perf_counter() - started:6.1f} s", flush=True)
    return results


def run_single(results: Results) -> None:
    """The benchmarks of one part each, as they are; what they print is kept. They end with 1 where a goal is missed."""
    for name in SINGLE:
        script = HERE / f"{name}.py"
        if not script.is_file():
            continue
        print(f"  {name}.py ...", flush=True)
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment(), check=False)
        results.texts[name] = done.stdout + done.stderr
        if done.returncode not in (0, 1) or "Traceback (most recent call last)" in done.stderr:
            results.errors.append(f"{name}.py: {(done.stderr.strip().splitlines() or ['failed'])[-1][:300]}")


# Goals ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """A ratio or figure of one run and what it should be."""

    title: str
    value: float | None
    limit: float
    at_least: bool = False

    @property
    def is_met(self) -> bool | None:
        """None when it could not be measured."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def words(self) -> str:
        """The goal as it is shown."""
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}"


def goals(results: Results) -> list[Goal]:
    """What was set out to be shown."""

    def ratio(one: tuple[str, str, str], other: tuple[str, str, str]) -> float | None:
        first, second = results.get(*one), results.get(*other)
        return None if first is None or not second else first / second

    at_100 = [value for peer in PEERS if (value := results.get("turns", peer, "turn 100")) is not None]
    ours_100 = results.get("turns", "callgate", "turn 100")
    turn = [("turns", "callgate", f"turn {mark}") for mark in MARKS]
    bare = [("turns", "hand-written", f"turn {mark}") for mark in MARKS]
    asynchronous, sync = (results.get("parallel", "callgate", kind) for kind in ("async", "sync"))
    streamed = ("stream", "callgate", "MB/s")
    import_of = ("import", "google-genai", "import")
    return [
        Goal("turn 10 / hand-written", ratio(turn[0], bare[0]), 1.3),
        Goal("turn 400 / hand-written", ratio(turn[2], bare[2]), 1.0),
        Goal("turn 400 / own turn 10", ratio(turn[2], turn[0]), 1.2),
        Goal("turn 100 / best peer", ours_100 / min(at_100) if ours_100 and at_100 else None, 0.2),
        Goal("import with Gate / google-genai", ratio(("import", "callgate", "import"), import_of), 0.1),
        Goal("callgate --help / google-genai's import", ratio(("import", "callgate", "--help"), import_of), 0.5),
        Goal("streaming / hand-written", ratio(streamed, ("stream", "hand-written", "MB/s")), 0.7, True),
        Goal("streaming / google-genai", ratio(streamed, ("stream", "google-genai", "MB/s")), 3.0, True),
        Goal("20 async calls / one of them", None if asynchronous is None else asynchronous / 50, 1.3),
        Goal("20 sync calls / one of them", None if sync is None else sync / 50, 1.3),
        Goal("500 tools first / google-genai",
             ratio(("declaring", "callgate", "first"), ("declaring", "google-genai", "first")), 0.5),
        Goal("500 tools again / hand-written",
             ratio(("declaring", "callgate", "again"), ("declaring", "hand-written", "again")), 4.0),
        Goal("first answer, ms", results.get("first_answer", "callgate", "ms"), 350),
        Goal("first answer / google-genai",
             ratio(("first_answer", "callgate", "ms"), ("first_answer", "google-genai", "ms")), 0.5),
        Goal("500 raw tools, ms", results.get("raw_tools", "callgate", "first"), 40),
        Goal("500 raw tools again, ms", results.get("raw_tools", "callgate", "again"), 8),
        Goal("a call with 1 MB / google-genai",
             ratio(("large_calls", "callgate", "ms"), ("large_calls", "google-genai", "ms")), 1.5),
        Goal("a call with 1 MB / hand-written",
             ratio(("large_calls", "callgate", "ms"), ("large_calls", "hand-written", "ms")), 3.0),
        Goal("a call with 14,000 rows / google-genai",
             ratio(("large_rows", "callgate", "ms"), ("large_rows", "google-genai", "ms")), 1.5),
        Goal("a call with 14,000 rows / hand-written",
             ratio(("large_rows", "callgate", "ms"), ("large_rows", "hand-written", "ms")), 3.0),
        Goal("a result of 10 MB / encoding it once", results.get("large result", "callgate", "ratio"), 2.0),
        Goal("events of 64 KB, MB/s", results.get("large_events", "callgate", "MB/s"), 150, True),
        Goal("events of 64 KB / google-genai",
             ratio(("large_events", "callgate", "MB/s"), ("large_events", "google-genai", "MB/s")), 1.0, True),
        Goal("an idle gate with 20 tools, KiB", results.get("idle gates", "callgate", "KiB"), 10),
        Goal("memory of a stream / hand-written",
             ratio(("stream_memory", "callgate", "MB"), ("stream_memory", "hand-written", "MB")), 1.5),
        Goal("10,000 tools / 100, each",
             ratio(("growth", "callgate", "10000 tools"), ("growth", "callgate", "100 tools")), 1.2),
        Goal("10,000 sessions / 100, each",
             ratio(("growth", "callgate", "10000 sessions"), ("growth", "callgate", "100 sessions")), 1.2),
        Goal("dispatch with everything on, us", results.get("dispatch", "callgate", "us"), 200),
        Goal("400-turn session / bytes of its history", results.get("long session", "callgate", "ratio"), 2.0),
    ]  # fmt: skip


# Showing ----------------------------------------------------------------------------------------------------------------


def show(results: Results) -> None:
    """Every figure, with its spread."""
    for task, systems in results.rounds.items():
        print(f"\n{task}: {TASKS[task][1]}")
        for system, figures in systems.items():
            shown = {name: values for name, values in figures.items() if not name.endswith("_s") and name != "turns"}
            cells = [f"{name} {_figure(values)}" for name, values in shown.items()]
            print(f"  {system:13} " + "   ".join(cells))


def _figure(values: list[float]) -> str:
    middle = statistics.median(values)
    digits = 0 if middle >= 1000 else 1 if middle >= 100 else 2
    spread = f" ({min(values):.{digits}f}-{max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{middle:.{digits}f}{spread}"


def show_goals(found: list[Goal]) -> None:
    """The table that a run ends with."""
    words = {True: "met", False: "MISSED", None: "not measured"}
    print(f"\n{'ratio':42}{'value':>9}   goal")
    for goal in found:
        value = "-" if goal.value is None else f"{goal.value:.3f}" if goal.value < 10 else f"{goal.value:.0f}"
        print(f"{goal.title:42}{value:>9}   {goal.words:15} {words[goal.is_met]}")
    missed = sum(goal.is_met is False for goal in found)
    print(f"\n{missed} of {len(found)} goals missed." if missed else "\nNo goal that was measured was missed.")


def machine(load_before: tuple[float, float, float]) -> dict[str, Any]:
    """Where this was measured, and how busy it was there."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load_before": load_before,
        "load_after": os.getloadavg(),
    }


def write(results: Results, where: dict[str, Any], found: list[Goal], *, docs: bool) -> None:
    """The results as JSON and as plots."""
    OUT.mkdir(parents=True, exist_ok=True)
    data = {
        "machine": where,
        "rounds": results.rounds,
        "goals": [
            {"title": g.title, "value": g.value, "limit": g.limit, "at_least": g.at_least, "met": g.is_met} for g in found
        ],
        "missing": results.missing,
        "errors": results.errors,
        "texts": results.texts,
    }
    (OUT / "results.json").write_text(json.dumps(data, indent=1), "utf-8")
    plots = _plots.all_of(results.get, list(MODULES), MARKS)
    for folder in (OUT, *([PICTURES] if docs else [])):
        folder.mkdir(parents=True, exist_ok=True)
        for name, svg in plots.items():
            (folder / f"{name}.svg").write_text(svg, "utf-8")
    if docs:
        _tables.write_into(DOCS, results.get, [(g.title, g.value, g.words, g.is_met) for g in found], _where(where))
    print(f"\nAll of it is in {OUT.relative_to(ROOT)}/results.json, with plots beside it.")


def _where(where: dict[str, Any]) -> str:
    """The sentence about the machine, for the documentation."""
    load = f"load {where['load_before'][0]:.1f} before and {where['load_after'][0]:.1f} after"
    return f"One run of all systems, Python {where['python']}, {where['system']}, {where['cores']} cores, {load}."


def read() -> tuple[Results, dict[str, Any]]:
    """The results of the last run, to write the documentation from them again."""
    data = json.loads((OUT / "results.json").read_text("utf-8"))
    names = ("rounds", "errors", "missing", "texts")
    return Results(**{name: data[name] for name in names}), data["machine"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--all", action="store_true", help="long talks for every system, more rounds, the single benchmarks")
    parser.add_argument("--only", nargs="+", metavar="TASK", choices=TASKS, help="some tasks only")
    parser.add_argument("--docs", action="store_true", help="write the plots and tables of the documentation too")
    parser.add_argument("--again", action="store_true", help="measure nothing: write the documentation from the last run")
    parser.add_argument("--list", action="store_true", help="name the tasks and end")
    given = parser.parse_args()
    if given.list:
        print("\n".join(f"{name:14} {what}" for name, (_, what) in TASKS.items()))
        return 0
    if given.again:
        results, where = read()
        write(results, where, goals(results), docs=True)
        return 0
    load = os.getloadavg()
    started = time.perf_counter()
    results = measure(given.only or list(TASKS), Plan(given.all))
    if given.all and not given.only:
        run_single(results)
    where = machine(load)
    show(results)
    for name, text in results.texts.items():
        print(f"\n== {name}.py\n{text.rstrip()}")
    found = [goal for goal in goals(results) if goal.value is not None or not given.only]
    show_goals(found)
    write(results, where, found, docs=given.docs)
    took_s, after = time.perf_counter() - started, where["load_after"]
    print(f"{took_s:.0f} s on {where['cores']} cores; load {load[0]:.2f}, then {after[0]:.2f}.")
    for error in results.errors:
        print(f"BROKEN {error}")
    return 1 if results.errors else 0


if __name__ == "__main__":
    sys.exit(main())
