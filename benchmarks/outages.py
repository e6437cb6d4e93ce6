"""How long others wait while something fails: figures for each outage, beside their goal of 2 s.

Real programs fail: `callgate serve` (with the demo's model), PostgreSQL, a standby of it, pgbouncer. Clients ask a service
all the time, for new sessions and known ones, lists, views, deletions and its health, and every answer counts that an outage
could have delayed. Shown is the slowest of all rounds, and what was answered: a refusal is an answer.

    python benchmarks/outages.py [--rounds 3] [--only frozen-database ...]     ends with 1 if a goal is missed

It needs PostgreSQL and psycopg, and pgbouncer for its rows; what is missing is not measured, and said.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager as Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _postgres
from _postgres import Cluster, Pooler, frozen

GOAL_S = 2.0
UNDER_WAY_S, FAILOVER_S = 25.0, 12.0
"""An operation that the database has begun is waited for: rather a run that goes on late than one that breaks off. The
second if another server takes its place, which has none of it."""
BEFORE_S, LASTS_S, AFTER_S = 0.5, 4.0, 1.0
PAUSE_S = 0.03
CLIENTS = 9
PATIENCE_S = 60
FINE = (200, 404)
"""Answers of a service that works: a session that is deleted is not there."""
BUSY = 409
"""The answer about a session whose own transaction is what does not end."""
STOP_S, FROZEN_STOP_S = 2.0, 5.0
"""How long runs may go on after SIGTERM, and how long a service may take then whose database does not answer."""
TOOLS = '''
import asyncio
from callgate import tool

@tool
async def work(seconds: float) -> str:
    """Work for a while."""
    await asyncio.sleep(seconds)
    return "done"
'''


@dataclass
class Figure:
    """The worst of what was measured, and what it may be."""

    title: str
    limit: float
    values: list[float] = field(default_factory=list[float])

    @property
    def worst(self) -> float:
        return max(self.values)

    @property
    def is_met(self) -> bool:
        return self.worst <= self.limit


@dataclass(frozen=True)
class Answer:
    """One answer that a client got."""

    group: str
    began_s: float
    ended_s: float
    status: int
    """0 if the connection broke."""

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s


# Services and their clients ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Service:
    """A running `callgate serve`."""

    process: subprocess.Popen[str]
    port: int

    def ask(self, method: str, path: str, body: Any = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            response.read()
            return response.status

    def chat(self, session: str, prompt: str = "hello") -> int:
        return self.ask("POST", "/api/v1/chat", {"prompt": prompt, "session": session})


@contextlib.contextmanager
def serving(store: str, place: Path) -> Iterator[Service]:
    (place / "work_tools.py").write_text(TOOLS)
    words = ["--port", "0", "--no-token", "--provider", "demo", "--stop-s", str(STOP_S), "-T", "work_tools.py"]
    command = [sys.executable, "-m", "callgate", "serve", *words, "--store", store, "--approval-mode", "yolo"]
    environment = {**os.environ, "XDG_STATE_HOME": str(place), "XDG_CONFIG_HOME": str(place)}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=place, env=environment
    )
    assert process.stderr is not None
    found = None
    for line in process.stderr:
        if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)) is not None:
            break
    if found is None:
        raise SystemExit("callgate serve did not start")
    reading = threading.Thread(target=process.stderr.read, daemon=True)  # Or it would wait for somebody to read its log.
    reading.start()
    service = Service(process, int(found[1]))
    try:
        assert service.chat("known") == 200
        with ThreadPoolExecutor(50) as burst:  # So that the service has all of its connections.
            list(burst.map(service.chat, [f"first-{number}" for number in range(100)]))
        yield service
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        reading.join()
        process.stderr.close()


Ask = tuple[str, str, Any]


def _chats(known: str | None) -> Iterator[Ask]:
    while True:
        yield "POST", "/api/v1/chat", {"prompt": "hello", "session": known or f"new-{uuid.uuid4().hex}"}


def _looks() -> Iterator[Ask]:
    paths = ("/sessions?limit=20", "/sessions/known", "/approvals", "/sessions/known/trace")
    yield from itertools.cycle([*(("GET", f"/api/v1{path}", None) for path in paths), _deletion()])


def _deletion() -> Ask:
    return "DELETE", "/api/v1/sessions/gone", None


class Clients:
    """Clients of a service that ask again as soon as they have an answer."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._is_over = threading.Event()
        self.answers: list[Answer] = []
        asks: list[tuple[str, Iterator[Ask]]] = [
            *(("chats", _chats(None)) for _ in range(3)),
            *(("chats", _chats(f"known-{number}")) for number in range(2)),
            ("looks", _looks()),
            ("looks", itertools.cycle([_deletion()])),
            ("health", itertools.cycle([("GET", "/health", None)])),
            ("health", itertools.cycle([("GET", "/api/v1/health", None)])),
        ]
        self._threads = [threading.Thread(target=self._ask, args=one) for one in asks]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, group: str, asks: Iterator[Ask]) -> None:
        for method, path, body in asks:
            began_s = time.monotonic()
            try:
                status = self._service.ask(method, path, body)
            except (OSError, http.client.HTTPException):
                status = 0
            self.answers.append(Answer(group, began_s, time.monotonic(), status))
            if self._is_over.wait(PAUSE_S):
                return

    def is_fine_since(self, since_s: float) -> bool:
        """Return whether every kind of request has succeeded again."""
        fine = {one.group for one in list(self.answers) if one.began_s >= since_s and one.status in FINE}
        return fine == {"chats", "looks", "health"}


# Outages ----------------------------------------------------------------------------------------------------------------


class Stage:
    """Where outages happen: the servers, and the figures of one outage."""

    def __init__(self, tools: Path, place: Path) -> None:
        self.tools, self.place = tools, place
        self.figures: dict[str, Figure] = {}
        self.statuses: Counter[int] = Counter()

    def cluster(self, copy_of: Cluster | None = None) -> Context[Cluster]:
        return _postgres.cluster(self.tools, self.place, copy_of=copy_of)

    def serving(self, store: str) -> Context[Service]:
        return serving(store, self.place)

    def note(self, title: str, value: float, limit: float = GOAL_S) -> None:
        self.figures.setdefault(title, Figure(title, limit)).values.append(value)

    def watch(
        self,
        service: Service,
        outage: Context[object],
        *,
        is_down: bool,
        refused_max: int = 0,
        under_way_s: float = UNDER_WAY_S,
    ) -> None:
        """Ask a service while an outage happens, and note how long the answers took.

        Without `is_down` no more than `refused_max` requests may be refused.
        """
        with Clients(service) as clients:
            time.sleep(BEFORE_S)
            before_s = time.monotonic()
            with outage:
                start_s = time.monotonic()
                time.sleep(LASTS_S)
            end_s = time.monotonic()
            until_s = end_s + PATIENCE_S
            while not clients.is_fine_since(end_s) and time.monotonic() < until_s:
                time.sleep(PAUSE_S)
            time.sleep(AFTER_S)
        during = [one for one in clients.answers if one.ended_s >= before_s]
        self.statuses.update(one.status for one in during)
        begun = [one for one in during if one.began_s >= start_s]
        for group in ("chats", "looks", "health"):
            slowest_s = max(one.took_s for one in begun if one.group == group)
            self.note({"health": "/health"}.get(group, group), slowest_s)
        under_way = [one.took_s for one in during if one.began_s < start_s]
        self.note("those under way at its start", max(under_way, default=0.0), under_way_s)
        health = [one for one in during if one.group == "health"]
        if is_down:
            down = [one.ended_s for one in health if one.status == 503]
            self.note("until /health says so", min(down, default=end_s + PATIENCE_S) - before_s)
        else:
            self.note("requests refused", sum(one.status not in (*FINE, BUSY) for one in during), refused_max)
        refused = [one.ended_s for one in begun if one.ended_s >= end_s and one.status not in FINE]
        self.note("last refusal after its end", max(refused, default=end_s) - end_s)


def frozen_service(stage: Stage) -> None:
    """One of two services stops in the midst of its work; its clients turn to the other one."""
    with stage.cluster() as server, stage.serving(server.url) as first, stage.serving(server.url) as second:
        is_over = threading.Event()

        def work(session: str) -> None:
            while not is_over.is_set():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    first.chat(session)

        def retry(session: str) -> None:
            while not is_over.wait(PAUSE_S):
                second.chat(session)

        @contextlib.contextmanager
        def stopped() -> Iterator[None]:
            with frozen([first.process.pid]):
                for thread in retries:
                    thread.start()
                yield

        names = [f"of-first-{number}" for number in range(12)]
        busy = [threading.Thread(target=work, args=(name,)) for name in names]
        retries = [threading.Thread(target=retry, args=(name,)) for name in names[:4]]
        for thread in busy:
            thread.start()
        try:
            stage.watch(second, stopped(), is_down=False)
        finally:
            is_over.set()
            for thread in (*busy, *retries):
                thread.join()


@contextlib.contextmanager
def _locked(url: str, sql: bytes) -> Iterator[None]:
    import psycopg

    with psycopg.connect(url) as stray:
        stray.execute(sql)
        yield


def row_lock(stage: Stage) -> None:
    """A forgotten transaction has locked the row of a session."""
    with stage.cluster() as server, stage.serving(server.url) as service:
        assert service.chat("locked") == 200
        lock = _locked(server.url, b"SELECT * FROM callgate_sessions WHERE id = 'locked' FOR UPDATE")
        retrying = threading.Event()

        def retry() -> None:
            while not retrying.wait(PAUSE_S):
                service.chat("locked")

        other = threading.Thread(target=retry)
        other.start()
        try:
            stage.watch(service, lock, is_down=False)
        finally:
            retrying.set()
            other.join()


def table_lock(stage: Stage) -> None:
    """A transaction has locked a whole table, as VACUUM FULL or ALTER TABLE do."""
    with stage.cluster() as server, stage.serving(server.url) as service:
        sql = b"LOCK TABLE callgate_sessions, callgate_facts IN ACCESS EXCLUSIVE MODE"
        stage.watch(service, _locked(server.url, sql), is_down=True)


def frozen_connection(stage: Stage) -> None:
    """The server's process for one of the service's connections does not answer."""
    import psycopg

    with stage.cluster() as server, stage.serving(server.url) as service:
        with psycopg.connect(server.url) as looking:
            sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'callgate' AND query NOT LIKE 'LISTEN%' LIMIT 1"
            [(process,)] = looking.execute(sql).fetchall()
        # What it has begun to do is lost: as much as all clients have asked for at that moment.
        stage.watch(service, frozen([process]), is_down=False, refused_max=CLIENTS)


def frozen_database(stage: Stage) -> None:
    """All processes of the database server stop."""
    with stage.cluster() as server, stage.serving(server.url) as service:
        stage.watch(service, frozen(server.processes), is_down=True)


@contextlib.contextmanager
def _restarted(server: Cluster, mode: str) -> Iterator[None]:
    server.control("-m", mode, "stop")
    try:
        yield
    finally:
        server.start()


def restart(stage: Stage, mode: str) -> None:
    """The database server is down for a while."""
    with stage.cluster() as server, stage.serving(server.url) as service:
        stage.watch(service, _restarted(server, mode), is_down=True)


def _pooled(stage: Stage, outage: Callable[[Cluster, Pooler], Context[object]], *, is_down: bool) -> None:
    program = _postgres.pooler_program()
    assert program is not None
    with stage.cluster() as server:
        pooler = Pooler(program, stage.place, server)
        pooler.start()
        try:
            with stage.serving(pooler.url) as service:
                stage.watch(service, outage(server, pooler), is_down=is_down)
        finally:
            pooler.stop()


@contextlib.contextmanager
def _pooler_restarted(pooler: Pooler) -> Iterator[None]:
    pooler.stop()
    try:
        yield
    finally:
        pooler.start()


def failover(stage: Stage, *, is_frozen: bool) -> None:
    """The primary dies, or does not answer any more, and its standby is promoted."""
    import psycopg

    with stage.cluster() as first, stage.cluster(first) as second:
        with psycopg.connect(first.url, autocommit=True) as setup:
            setup.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            setup.execute("SELECT pg_reload_conf()")
        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        url = f"postgresql://callgate@{hosts}/callgate?target_session_attrs=read-write"

        @contextlib.contextmanager
        def promoted(stack: contextlib.ExitStack) -> Iterator[None]:
            if is_frozen:
                stack.enter_context(frozen(first.processes))
            else:
                first.control("-m", "immediate", "stop")
            yield
            second.control("promote")

        with contextlib.ExitStack() as stack, stage.serving(url) as service:
            stage.watch(service, promoted(stack), is_down=True, under_way_s=FAILOVER_S)


def stop_signal(stage: Stage, *, has_run: bool, is_frozen: bool) -> None:
    """SIGTERM, with a run that takes longer than it may, and with a database that does not answer."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(stage.cluster())
        service = stack.enter_context(stage.serving(server.url))
        if has_run:
            run = threading.Thread(target=_ignored, args=(service,))
            run.start()
            stack.callback(run.join)
            time.sleep(BEFORE_S)
        if is_frozen:
            stack.enter_context(frozen(server.processes))
            time.sleep(BEFORE_S)
        started_s = time.monotonic()
        service.process.terminate()
        code = service.process.wait(PATIENCE_S)
        took_s = time.monotonic() - started_s
        limit_s = STOP_S + (FROZEN_STOP_S if is_frozen else GOAL_S) if has_run else GOAL_S
        stage.note("SIGTERM to exit", took_s, limit_s)
        stage.note("exit code", code, 0)


def _ignored(service: Service) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        service.chat("at work", "work seconds=60")


OUTAGES: dict[str, tuple[str, Callable[[Stage], None]]] = {
    "frozen-service": ("one of two services is frozen at work", frozen_service),
    "row-lock": ("a stray transaction has locked a session's row", row_lock),
    "table-lock": ("a stray transaction has locked the tables", table_lock),
    "frozen-connection": ("one connection's server process is frozen", frozen_connection),
    "frozen-database": ("the database server is frozen", frozen_database),
    "restart-fast": ("the database is restarted, fast", lambda stage: restart(stage, "fast")),
    "restart-immediate": ("the database is restarted, immediate", lambda stage: restart(stage, "immediate")),
    "pooler-frozen": (
        "pgbouncer is frozen",
        lambda stage: _pooled(stage, lambda server, pooler: frozen(pooler.processes), is_down=True),
    ),
    "pooler-restart": (
        "pgbouncer is killed and started",
        lambda stage: _pooled(stage, lambda server, pooler: _pooler_restarted(pooler), is_down=True),
    ),
    "pooled-restart": (
        "the database is restarted, pgbouncer in between",
        lambda stage: _pooled(stage, lambda server, pooler: _restarted(server, "fast"), is_down=True),
    ),
    "failover-killed": ("the primary is killed, the standby promoted", lambda stage: failover(stage, is_frozen=False)),
    "failover-frozen": ("the primary is frozen, the standby promoted", lambda stage: failover(stage, is_frozen=True)),
    "stop": ("SIGTERM, idle", lambda stage: stop_signal(stage, has_run=False, is_frozen=False)),
    "stop-run": ("SIGTERM, a long run", lambda stage: stop_signal(stage, has_run=True, is_frozen=False)),
    "stop-frozen": ("SIGTERM, frozen database", lambda stage: stop_signal(stage, has_run=False, is_frozen=True)),
    "stop-run-frozen": ("SIGTERM, both", lambda stage: stop_signal(stage, has_run=True, is_frozen=True)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=1, help="how often each outage happens")
    parser.add_argument("--only", nargs="+", metavar="OUTAGE", choices=OUTAGES, help="some outages only")
    given = parser.parse_args()
    tools = _postgres.programs()
    if tools is None:
        print("not measured: PostgreSQL is not installed")
        return 0
    missed = 0
    print(f"{'':46}{'worst':>8}   goal   ({given.rounds} rounds, load {os.getloadavg()[0]:.1f})")
    for name in given.only or OUTAGES:
        title, happen = OUTAGES[name]
        if "pool" in name and _postgres.pooler_program() is None:
            print(f"{title}: not measured, pgbouncer is not installed")
            continue
        with _postgres.folder() as place:
            stage = Stage(tools, place)
            for _ in range(given.rounds):
                happen(stage)
        answered = ", ".join(f"{status or 'broken'} x {count}" for status, count in sorted(stage.statuses.items()))
        print(f"{title}{f': {answered}' if answered else ''}")
        for figure in stage.figures.values():
            missed += not figure.is_met
            goal = f"at most {figure.limit:g}"
            print(
                f"    {figure.title:42}{figure.worst:>8.2f}   {goal:12} {'met' if figure.is_met else 'MISSED'}", flush=True
            )
    print(f"\n{missed} goals missed." if missed else "\nNo goal was missed.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
