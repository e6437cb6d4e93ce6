"""A pytest plugin: hands whole files of tests to several processes, and goes on without a test that ends its process.

    python -m pytest -p scripts.whole_files -n 2 --dist loadfile

Without it, xdist gives such a test to the next process again, and waits for ever for files that were done before. With it,
the test has failed, by its name, and the rest of its file goes on elsewhere.

Files that take long come first, so that no process is left alone with one of them at the end: xdist puts those with the
most tests first, and a file of five tests that start programs takes longer than one with five hundred.

Files that are new or changed are compiled once and not by each process: each begins with its share of them. Of a test that
passes, a process tells the first one in one message instead of five.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

PROGRAM_S = 3.0
"""What a file takes that starts programs, as long as nobody has measured it."""
TEST_S = 0.03
QUICK_S = 0.05
"""What is set up for a test, or cleared away, in less is not told."""


def expected_s(file: str, tests: int, known: Mapping[str, float]) -> float:
    """How long a file of tests takes: `known` has the seconds of a test of each file that ran before."""
    if file in known:
        return known[file] * tests
    try:
        source = Path(file).read_text("utf-8")
    except OSError:
        source = ""
    return TEST_S * tests + PROGRAM_S * ("subprocess" in source)


class WholeFiles(LoadFileScheduling):
    """Files in hand and files that wait; what is done is forgotten."""

    _is_sorted = False

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give out the next file, the longest first unless the order of collection is wanted."""
        if not self._is_sorted and self.config.option.loadscopereorder:
            from scripts.progress import SECONDS_OF_FILES  # Later than pytest, which loads both as plugins.

            cache: Any = getattr(self.config, "cache", None)
            known: dict[str, float] = cache.get(SECONDS_OF_FILES, {}) if cache else {}
            longest_first = sorted(self.workqueue.items(), key=lambda item: -expected_s(item[0], len(item[1]), known))
            self.workqueue = OrderedDict(longest_first)
        self._is_sorted = True
        super()._assign_work_unit(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """A test is over; a file with none left is in nobody's hand."""
        test = self.registered_collections[node][item_index]
        file = self._split_scope(test)
        in_hand = self.assigned_work[node]
        del in_hand[file][test]
        if not in_hand[file]:
            del in_hand[file]
        self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """A process has ended: the test that it was at, if any, is not tried again; the rest waits for another process."""
        left = self.assigned_work.pop(node)
        crashed = next((test for tests in left.values() for test in tests), None)
        if crashed is not None:
            del left[self._split_scope(crashed)][crashed]
        waiting = {file: tests for file, tests in left.items() if tests}
        self.workqueue = OrderedDict(waiting | self.workqueue)
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """A process begins a test only once it knows the next one, or that there is none."""
        if node.shutting_down or node not in self.registered_collections:  # A new one may still be looking for its tests.
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= 2:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFiles | None:
    """In the place of xdist's own for files; the other ways to share the tests stay."""
    return WholeFiles(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    """What a test forks gives up the line to the first process: only by its end is seen that this process has ended."""
    for plugin in config.pluginmanager.get_plugins() if hasattr(config, "workerinput") else ():
        if (channel := getattr(plugin, "channel", None)) is not None:
            line = channel.gateway._io
            os.register_at_fork(after_in_child=_Closing(line.infile.fileno(), line.outfile.fileno()))
            if not config.getoption("xmlpath", None):  # A file of results is written from all of them.
                plugin.sendevent = _News(plugin.sendevent)


class _News:
    """Sends what the first process does something with: every call, and what did not pass or took long around it."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send

    def __call__(self, name: str, **told: Any) -> None:
        report: dict[str, Any] = told.get("data", {}) if name == "testreport" else {}
        is_usual = report.get("when") in ("setup", "teardown") and report["outcome"] == "passed"
        if name not in ("logstart", "logfinish") and not (is_usual and report["duration"] < QUICK_S):
            self._send(name, **told)


class _Closing:
    """Closes descriptors the first time that it is called."""

    def __init__(self, *descriptors: int) -> None:
        self._open = list(descriptors)

    def __call__(self) -> None:
        while self._open:
            os.close(self._open.pop())


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Every process finds all tests, so each would compile all files, with pytest's own assertions: 17 s of 28."""
    told: dict[str, Any] = getattr(session.config, "workerinput", {})
    if told and not sys.dont_write_bytecode:
        files = files_of(session.config.args)[int(told["workerid"].removeprefix("gw")) :: told["workercount"]]
        with contextlib.suppress(
            ImportError, AttributeError, TypeError
        ):  # It only saves time: another pytest may not do so.
            compile_files(files, session.config)


def files_of(words: Iterable[str]) -> list[Path]:
    """The files of tests that pytest was asked for."""
    paths = [Path(word.partition("::")[0]) for word in words]
    return sorted({file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))})


def compile_files(files: Iterable[Path], config: pytest.Config) -> None:
    """Leave each file as pytest wants it, where pytest looks for it."""
    from _pytest.assertion import rewrite

    state = config.stash[rewrite.assertstate_key]
    for file in files:
        folder = rewrite.get_cache_dir(file)
        pyc = folder / f"{file.name[:-3]}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(file, pyc) is None and rewrite.try_makedirs(folder):
            source, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, source, pyc)
