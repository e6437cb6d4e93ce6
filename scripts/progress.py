"""A pytest plugin: one line that says how many tests are done, what has failed so far, and how long the rest will take.

    python -m pytest -p scripts.progress -m "not slow"

The time that is left follows from how long each file took the last time, which pytest's cache remembers, and from how fast
this run has been until now; where nothing is remembered, all tests are taken to be alike. On a terminal the line is written
over and over, elsewhere a new one comes now and then.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

SECONDS_OF_FILES = "callgate/seconds_of_files"
"""Where pytest's cache has the seconds that a test of each file took the last time."""
_CRASHED = "???"
"""The only phase of a test that ended its process."""
_DECIDED = ("call", _CRASHED)
"""The phases of a test that say what becomes of it; one that is not called was decided as it was set up."""
_EVERY_S = {True: 0.5, False: 20.0}
"""How often the line is written: on a terminal, and elsewhere."""


class Estimate:
    """The seconds that are left, by what the tests of each file took the last time."""

    def __init__(self, tests: Iterable[str], known: Mapping[str, float]) -> None:
        """`tests` are the files of all tests, one for each test; `known` has the seconds of a test of a file."""
        self._counts = Counter(tests)
        usual = sum(known.values()) / len(known) if known else 1.0
        self._cost = {file: known.get(file, usual) for file in self._counts}
        self.total = sum(self._counts.values())
        self.done = 0
        self._ahead = sum(self._cost[file] * count for file, count in self._counts.items())
        self._behind = 0.0

    def finish(self, file: str) -> None:
        """One test of a file is over."""
        cost = self._cost.get(file, 0.0)
        self.done += 1
        self._ahead -= cost
        self._behind += cost

    def left_s(self, passed_s: float) -> float | None:
        """How long the rest takes if it goes on like this; None as long as that is a guess."""
        if self.done < 20 or self._behind <= 0:
            return None
        return max(0.0, self._ahead) * passed_s / self._behind


def line_of(estimate: Estimate, passed_s: float, failed: int) -> str:
    """The line, without its end."""
    left = estimate.left_s(passed_s)
    told = "" if left is None or estimate.done >= estimate.total else f", about {_minutes(left)} left"
    troubles = f", {failed} failed" if failed else ""
    return f"{estimate.done:,} of {estimate.total:,} tests in {_minutes(passed_s)}{told}{troubles}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds // 60:.0f}:{seconds % 60:02.0f} min"


class Progress:
    """What pytest tells about the tests, as one line."""

    def __init__(self, config: pytest.Config) -> None:
        self._cache: Any = config.cache
        self._is_terminal = sys.stdout.isatty()
        self._began = self._told = time.monotonic()
        self._estimate: Estimate | None = None
        self._spent: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._failed = 0

    def begin(self, tests: Iterable[str]) -> None:
        self._began = self._told = time.monotonic()
        self._estimate = Estimate((_file(test) for test in tests), self._cache.get(SECONDS_OF_FILES, {}))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.begin(item.nodeid for item in session.items)

    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        if self._estimate is None:
            self.begin(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """No dot for a test that passed."""
        return ("passed" if report.when == "call" else "", "", "") if report.passed else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = _file(report.nodeid)
        self._spent[file] += report.duration
        self._failed += report.failed
        if (report.when not in _DECIDED and (report.when != "setup" or report.passed)) or self._estimate is None:
            return
        self._ended[file] += 1
        self._estimate.finish(file)
        now = time.monotonic()
        if now - self._told >= _EVERY_S[self._is_terminal] or self._estimate.done == self._estimate.total:
            self._told = now
            self._write(line_of(self._estimate, now - self._began, self._failed))

    def pytest_sessionfinish(self) -> None:
        known = self._cache.get(SECONDS_OF_FILES, {})
        self._cache.set(SECONDS_OF_FILES, known | {file: self._spent[file] / count for file, count in self._ended.items()})

    def _write(self, line: str) -> None:
        stream = sys.__stdout__
        if stream is not None:
            stream.write(f"\r{line}\x1b[K" if self._is_terminal else f"{line}\n")
            stream.flush()


def _file(test: str) -> str:
    return test.partition("::")[0]


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """In the process that a person sees, and not in those that it starts."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "callgate-progress")
