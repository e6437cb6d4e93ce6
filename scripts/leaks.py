"""A pytest plugin: a test that leaves the process other than it found it has failed, with what it left.

    python -m pytest -p scripts.leaks -n 2 --dist loadfile tests/cli

Before and after each test it compares what all tests of a process share: environment, working folder, signal handlers,
loggers, threads, child processes, descriptors, temporary files, attributes of modules and classes, and more (PROBES). What
a fixture of a file or of the whole run sets up belongs to that fixture. Threads, processes, descriptors and attributes may
be shared by the tests of a file, so that they are judged after the last of them; then garbage is collected too, so that
what was never closed is reported at its own file. CALLGATE_LEAKS_S says how long what is ending may take (5).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import ctypes
import decimal
import faulthandler
import functools
import gc
import importlib
import locale
import logging
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.unraisableexception import collect_unraisable

State = dict[tuple[str, str], Any]
"""What of the process, by the name of its probe and a name of its own."""
SETTLE_S = float(os.environ.get("CALLGATE_LEAKS_S", "5"))
ABSENT = "(nothing)"


# What is looked at -------------------------------------------------------------------------------------------------------


def _interpreter() -> dict[str, Any]:
    context = decimal.getcontext()
    return {
        "working folder": os.getcwd(),
        "umask": _status("Umask"),
        "locale": locale.setlocale(locale.LC_ALL),
        "recursion limit": sys.getrecursionlimit(),
        "digits of an int": sys.get_int_max_str_digits(),
        "switch interval": sys.getswitchinterval(),
        "decimal context": (context.prec, context.rounding, [str(trap) for trap, on in context.traps.items() if on]),
        "garbage collection": (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        "fault handler": faulthandler.is_enabled(),
        "trace": (sys.gettrace() is None, sys.getprofile() is None),
        "socket time-out": socket.getdefaulttimeout(),
        "logging.disable": logging.root.manager.disable,
        "time zone": time.tzname,
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "privileges": (_status("NoNewPrivs"), _status("Seccomp")),
        "signal at the parent's end, dumpable, subreaper": tuple(map(_prctl, (2, 3, 37))),
        "signals that are blocked": tuple(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "timers": (signal.getitimer(signal.ITIMER_REAL), signal.getitimer(signal.ITIMER_VIRTUAL)),
        "folder for temporary files": tempfile.tempdir,
        "asyncio policy": asyncio.get_event_loop_policy(),
        "asyncio loop": _current_loop(),
    }


def _prctl(request: int) -> int:
    """One of those that give their number back, or store it."""
    number = ctypes.c_int(0)
    given = ctypes.CDLL(None).prctl(request, ctypes.byref(number), 0, 0, 0)
    return number.value or given


def _status(name: str) -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
            if line.startswith(f"{name}:"):
                return line.partition(":")[2].strip()
    return ""


def _current_loop() -> Any:
    """The loop that is set for this thread, if it is open."""
    policy: Any = asyncio.events._event_loop_policy
    loop = getattr(getattr(policy, "_local", None), "_loop", None)
    return None if loop is None or loop.is_closed() else loop


def _signals() -> dict[str, Any]:
    return {sig.name: signal.getsignal(sig) for sig in signal.valid_signals() if isinstance(sig, signal.Signals)}


def _limits() -> dict[str, Any]:
    return {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}


def _environment() -> dict[str, Any]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def _lists() -> dict[str, Any]:
    lists = {"sys.path": sys.path, "sys.argv": sys.argv, "sys.meta_path": sys.meta_path, "sys.path_hooks": sys.path_hooks}
    return {name: tuple(held) for name, held in lists.items()}


def _is_idle(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.NullHandler) or type(handler).__module__ == "_pytest.logging"


def _loggers() -> dict[str, Any]:
    """Loggers that come with an import are new, and no change; nor are handlers that do nothing, and those of pytest."""
    loggers = {name: held for name, held in logging.root.manager.loggerDict.items() if isinstance(held, logging.Logger)}
    return {
        name: (
            logging.getLevelName(logger.level),
            logger.propagate,
            logger.disabled,
            tuple(handler for handler in logger.handlers if not _is_idle(handler)),
            tuple(logger.filters),
        )
        for name, logger in {"root": logging.root, **loggers}.items()
    }


def _context() -> dict[str, Any]:
    return {variable.name: value for variable, value in contextvars.copy_context().items()}


def _modules() -> dict[str, Any]:
    """Each module of ours and of its tests, so that one that was imported twice, or thrown away, is seen."""
    return {name: module for name, module in [*sys.modules.items()] if name.partition(".")[0] in ("callgate", "tests")}


def _threads() -> dict[str, Any]:
    """All but those that wait for the next call of a tool that is not asynchronous: they are kept for all gates."""
    return {f"{each.name} ({each.ident})": True for each in threading.enumerate() if each.name != "callgate-tool"}


def _children() -> dict[str, Any]:
    numbers: list[str] = []
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            numbers += task.read_text().split()
    return {number: _command_of(number) for number in numbers}


def _command_of(number: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:200]
    return ABSENT


def _descriptors() -> dict[str, Any]:
    """All but the line to the process that ends all workers with this one; it is there once for all pools."""
    guard = getattr(sys.modules.get("callgate.workers.process"), "_GUARD", None)
    line = str(guard._sock.fileno()) if guard is not None and guard._sock is not None else ""
    found: dict[str, Any] = {}
    for number in os.listdir("/proc/self/fd"):
        if number == line:
            continue
        with contextlib.suppress(OSError):  # The one that listed them is closed by now.
            found[f"{number} {os.readlink(f'/proc/self/fd/{number}')}"] = True
    return found


def _files() -> dict[str, Any]:
    """What lies in the folders that tests share."""
    found: dict[str, Any] = {}
    for folder in filter(None, (tempfile.gettempdir(), os.environ.get("XDG_STATE_HOME"), os.environ.get("XDG_CONFIG_HOME"))):
        with contextlib.suppress(OSError):
            found |= {entry.path: True for entry in os.scandir(folder) if not entry.name.startswith("pytest-")}
    return found


def _registries() -> dict[str, Any]:
    """How much is in the module-level containers and caches of ours."""
    threads = getattr(sys.modules.get("callgate.threads"), "THREADS", None)
    found: dict[str, Any] = {"abandoned threads": 0 if threads is None else threads.abandoned}
    for name, module in [*sys.modules.items()]:
        if name.startswith("callgate"):
            if name not in _CONTAINERS or _CONTAINERS[name][0] is not module:
                _CONTAINERS[name] = (module, dict(_containers_of(name, module)))
            found.update((label, size()) for label, size in _CONTAINERS[name][1].items())
    return found


_CONTAINERS: dict[str, tuple[ModuleType, dict[str, Callable[[], int]]]] = {}
"""By the name of a module: the module, and what gives the size of each of its containers."""


def _containers_of(name: str, module: ModuleType) -> Iterator[tuple[str, Callable[[], int]]]:
    for key, value in vars(module).items():
        label = f"{name}.{key}"
        if key.startswith("__") or label in CACHES:
            continue
        if isinstance(value, _Cached):
            if value.__module__ == name:
                yield label, _size_of_cache(value)
        elif isinstance(value, (MutableMapping, MutableSequence, MutableSet, weakref.WeakSet)):
            yield label, value.__len__


_Cached = type(functools.lru_cache(locale.getlocale))


def _size_of_cache(cached: Any) -> Callable[[], int]:
    return lambda: cached.cache_info().currsize


CACHES = {
    f"callgate.{name}"
    for name in (
        "config.known_secrets._needles", "config.secret_names.is_secret_name", "config.secret_names.may_be_count",
        "content.lookalikes._letter", "declaration._DIGESTS", "definitions.frameworks._named_like",
        "definitions.python_types._generator", "events._names_of", "files.beneath._how",
        "files.bubblewrap._problem", "files.globs._compiled",
        "files.tools._default_hides", "gemini.request._ENCODED",
        "machine.codec._reader", "permission.call_paths._known_names", "permission.patterns._engine",
        "permission.sensitive.path_matcher", "run.output._kept", "run.partial_output._adapter",
        "schema.budget._sizes", "schema.compile._cache", "schema.validator._cache", "server.body._VALIDATORS",
        "server.fast_path._line", "server.fast_path._read_head", "store.owner._this_process", "store.owner.boot_id",
        "strict_json._core", "tools.confusable_names._pairs",
    )
}  # fmt: skip
"""Those that may grow: what is in them follows from its key alone."""


@dataclass(frozen=True)
class Probe:
    """One kind of thing that tests share."""

    look: Callable[[], dict[str, Any]]
    changes: bool = True
    """Whether another value is a leak."""
    additions: bool = True
    """Whether a new one is."""
    removals: bool = True
    is_shared: bool = False
    """Whether the tests of a file may share it."""
    ends_later: bool = False
    """Whether its end may take a moment."""


PROBES = {
    "interpreter": Probe(_interpreter),
    "environment": Probe(_environment),
    "signal": Probe(_signals),
    "limit": Probe(_limits),
    "list": Probe(_lists),
    "logger": Probe(_loggers, additions=False),
    "context variable": Probe(_context),
    "module": Probe(_modules, additions=False),
    "registry": Probe(_registries, additions=False, removals=False, is_shared=True),
    "file": Probe(_files, removals=False, is_shared=True, ends_later=True),
    "thread": Probe(_threads, changes=False, removals=False, is_shared=True, ends_later=True),
    "child process": Probe(_children, changes=False, removals=False, is_shared=True, ends_later=True),
    "descriptor": Probe(_descriptors, changes=False, removals=False, is_shared=True, ends_later=True),
}


def look() -> State:
    """All of it."""
    return {(name, key): value for name, probe in PROBES.items() for key, value in probe.look().items()}


def changes(before: Mapping[tuple[str, str], Any], after: Mapping[tuple[str, str], Any]) -> State:
    """What became other, new or missing, as far as that is a leak: the value before, and the one after."""
    found: State = {}
    for place, value in after.items():
        probe = PROBES[place[0]]
        if place not in before:
            if probe.additions:
                found[place] = (ABSENT, value)
        elif probe.changes and not _is_same(before[place], value):
            found[place] = (before[place], value)
    for place in before.keys() - after.keys():
        if PROBES[place[0]].removals:
            found[place] = (before[place], ABSENT)
    return found


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, (str, int, float, tuple, bool)) and one == other)


# Attributes of modules and classes: too many to name each ----------------------------------------------------------------

Attributes = dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]]
"""By the name of its owner: the owner, the identities of the attributes, and the attributes."""
_CHANGES_ALONE = {
    "__warningregistry__", "__path__", "__builtins__", "__annotations__", "__abstractmethods__", "__dict__", "__weakref__",
}  # fmt: skip
STANDARD = sys.stdlib_module_names - {
    "mimetypes",
    "warnings",
}  # The one reads its tables once, the other is in pytest's hands.


def _owners() -> Iterator[tuple[str, Any]]:
    for name, module in [*sys.modules.items()]:
        known = _OWNERS.get(name)
        if known is None or known[0] is not module:
            known = _OWNERS[name] = (module, dict(_owners_in(name, module)))
        yield from known[1].items()


_OWNERS: dict[str, tuple[Any, dict[str, Any]]] = {}


def _owners_in(name: str, module: Any) -> Iterator[tuple[str, Any]]:
    top = name.partition(".")[0]
    if isinstance(module, ModuleType) and (top in STANDARD or top in ("callgate", "tests")):
        yield name, module
        if top == "callgate":
            for key, value in vars(module).items():
                if isinstance(value, type) and value.__module__ == name:
                    yield f"{name}.{key}", value


_LAST: Attributes = {}


def attributes() -> Attributes:
    """Those of the modules of ours, of the tests and of the standard library, and of our classes."""
    found: Attributes = {}
    for name, owner in _owners():
        held = vars(owner)
        numbers = tuple(map(id, held.values()))
        known = _LAST.get(name)
        if known is None or known[0] is not owner or known[1] != numbers:
            known = _LAST[name] = (owner, numbers, dict(held))
        found[name] = known
    return found


def attribute_changes(before: Attributes, after: Attributes) -> list[str]:
    """In sentences. What is new with an import, or found for the first time, is none."""
    found: list[str] = []
    for name, (owner, numbers, held) in after.items():
        old = before.get(name)
        if old is None or old[0] is not owner or old[1] == numbers:
            continue
        for key in old[2].keys() | held.keys():
            was, now = old[2].get(key, ABSENT), held.get(key, ABSENT)
            if was is now or key in _CHANGES_ALONE or f"{name}.{key}" in MOVING:
                continue
            if was is ABSENT and (
                isinstance(now, ModuleType) or isinstance(owner, type) or name.partition(".")[0] == "callgate"
            ):
                continue  # A module below it, or what a package or a class looks up once.
            found.append(f"attribute {name}.{key}: {_shown(was)} -> {_shown(now)}")
    return found


MOVING = {
    "callgate.wire.endpoint_health._endpoints": "a new one for each test",
    "callgate.telemetry._seen": "what it was computed from",
    "callgate.telemetry._found": "computed once",
    "urllib.parse._typeprog": "compiled once",
    "urllib.parse._hostprog": "compiled once",
    "urllib.parse._portprog": "compiled once",
    "urllib.parse._hextobyte": "computed once",
    "urllib.request._opener": "made once",
    "platform._os_release_cache": "read once",
    **dict.fromkeys(("sys.last_type", "sys.last_value", "sys.last_traceback", "sys.last_exc"), "of pytest"),
}
"""Attributes that change by themselves, with the reason."""


# One test after another --------------------------------------------------------------------------------------------------


class Leaks:
    """Compares the process before and after each test; what the tests of a file may share, after the last of them."""

    def __init__(self) -> None:
        self._state: State = {}
        self._attributes: Attributes = {}
        self._of_fixtures: dict[int, State] = {}
        self._open: dict[tuple[str, str], str] = {}
        """What tests of this file have opened and not closed yet, and which of them was the first to leave it."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Any:
        """Only the first test finds nothing that was looked at after another."""
        if not self._state:
            gc.collect()
            self._state, self._attributes = look(), attributes()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        """What a fixture of more than one test sets up is not the leak of the test that came first."""
        if fixturedef.scope == "function":
            return (yield)
        before = look()
        try:
            return (yield)
        finally:
            mine = changes(before, look())
            self._of_fixtures[id(fixturedef)] = mine
            self._become({place: after for place, (_, after) in mine.items()})

    def pytest_fixture_post_finalizer(self, fixturedef: Any) -> None:
        mine = self._of_fixtures.pop(id(fixturedef), {})
        self._become({place: before for place, (before, _) in mine.items()})

    def _become(self, values: State) -> None:
        for place, value in values.items():
            if value is ABSENT:
                self._state.pop(place, None)
            else:
                self._state[place] = value

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        result = yield
        getattr(item, "funcargs", {}).clear()  # What only its fixtures held is gone with it.
        left = self.left(item.nodeid, is_last=nextitem is None or nextitem.path != item.path)
        collect_unraisable(item.config)
        if left:
            pytest.fail("\n".join(left), pytrace=False)
        return result

    def left(self, test: str, *, is_last: bool) -> list[str]:
        """What is left, in sentences; from now on that is how things are."""
        if is_last:  # Each time would take longer than most tests.
            gc.collect()
        state = look()
        found = changes(self._state, state)
        deadline = time.monotonic() + SETTLE_S
        while is_last and any(PROBES[kind].ends_later for kind, _ in found) and time.monotonic() < deadline:
            time.sleep(0.02)
            gc.collect()
            state = look()
            found = changes(self._state, state)
        opened = {place for place in found if PROBES[place[0]].is_shared}
        self._open = {place: self._open.get(place, test) for place in opened}
        sentences = [
            f"{self._open.get(place, test)} leaves {' '.join(place)}: {_shown(was)} -> {_shown(now)}"
            for place, (was, now) in found.items()
            if is_last or place not in opened
        ]
        if is_last:  # There are too many to look at after each test.
            before, self._attributes = self._attributes, attributes()
            sentences += [f"{test.partition('::')[0]} leaves {each}" for each in attribute_changes(before, self._attributes)]
        self._state = state
        self._become({} if is_last else {place: found[place][0] for place in opened})
        return sentences


def _shown(value: Any) -> str:
    with contextlib.suppress(Exception):
        text = repr(value)
        return text if len(text) <= 120 else f"{text[:120]}..."
    return object.__repr__(value)


def pytest_configure(config: pytest.Config) -> None:
    """In each process that runs tests, with a folder for temporary files that no other process uses."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        folder = tempfile.mkdtemp(prefix="leaks-")
        os.chmod(folder, 0o1777)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        with contextlib.suppress(ImportError):  # Its first loop makes a pipe for the signals of the process.
            importlib.import_module("uvloop").new_event_loop().close()
        config.pluginmanager.register(Leaks(), "callgate-leaks")
