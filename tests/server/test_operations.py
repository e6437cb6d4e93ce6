"""What happens in operation, with real programs: poolers, failovers, frozen databases, rolling restarts, live backups."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel, tool
from callgate.errors import CallgateError, SessionBusyError, SessionLostError, StoreError
from callgate.sessions import load, state_from_facts
from callgate.store import Claim, open_store
from callgate.store.sql import SqlStore
from callgate.testing import call, text

from .test_processes import Served, launch, noted, until, worked  # noqa: F401 - two of them are fixtures

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.slow

PATIENCE_S = 120
SOON_S = 10.0
"""Well below every wait that these tests show not to happen; the machine may be busy."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def as_server(program: str, *words: str) -> list[str]:
    """PostgreSQL and pgbouncer refuse to run as root."""
    return ["runuser", "-u", "postgres", "--", program, *words] if os.getuid() == 0 else [program, *words]


@dataclass
class Cluster:
    """A PostgreSQL server of its own."""

    tools: Path
    data: Path
    port: int

    def do(self, program: str, *words: str) -> None:
        command = as_server(str(self.tools / program), *words)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.data.parent)

    def control(self, *words: str) -> None:
        self.do("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.data.parent / f"log-{self.port}"), *words)

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.data.parent} -c fsync=off"
        self.control("-o", options, "start")

    @property
    def processes(self) -> list[int]:
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="callgate-ops-"))
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(made, owner.pw_uid, owner.pw_gid)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def cluster(needs: Callable[[str], str], folder: Path) -> Iterator[Callable[..., Cluster]]:
    """`cluster()`: a new server; `cluster(copy_of=other)`: a standby of another one."""
    tools, made = Path(needs("postgres")).resolve().parent, list[Cluster]()

    def start(copy_of: Cluster | None = None) -> Cluster:
        new = Cluster(tools, folder / f"data-{len(made)}", free_port())
        if copy_of is None:
            new.do("initdb", "-D", str(new.data), "-U", "callgate", "-A", "trust", "-N", "-E", "UTF8")
        else:
            new.do(
                "pg_basebackup",
                "-h",
                "127.0.0.1",
                "-p",
                str(copy_of.port),
                "-U",
                "callgate",
                "-c",
                "fast",
                "-R",
                "-D",
                str(new.data),
            )
        made.append(new)
        new.start()
        if copy_of is None:
            with psycopg.connect(f"postgresql://callgate@127.0.0.1:{new.port}/postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE callgate")
        return new

    yield start
    for one in made:
        with contextlib.suppress(subprocess.CalledProcessError):
            one.control("-m", "immediate", "stop")


# Poolers -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pooler(needs: Callable[[str], str], folder: Path, postgres_url: str) -> Iterator[str]:
    """The URL of a database behind pgbouncer in transaction mode, with two connections for everybody."""
    program, port = needs("pgbouncer"), free_port()
    _, _, rest = postgres_url.partition("@")
    address, _, name = rest.partition("/")
    host, _, server_port = address.partition(":")
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n{name} = host={host} port={server_port} user=callgate\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 100\nlogfile = {folder}/pgbouncer.log\n"
    )
    settings.chmod(0o644)
    process = subprocess.Popen(as_server(program, str(settings)), stderr=subprocess.DEVNULL)
    url = f"postgresql://callgate@127.0.0.1:{port}/{name}"

    def is_up() -> bool:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url, prepare_threshold=None):
            return True
        return False

    until(is_up, "pgbouncer")
    yield url
    process.terminate()
    process.wait(PATIENCE_S)


def test_through_a_pooler_in_transaction_mode_every_conversation_comes_to_its_end(pooler: str) -> None:
    done: Counter[str] = Counter()

    @tool
    def pay(to: str) -> str:
        """Pay."""
        done[to] += 1
        return f"paid {to}"

    async def talk(name: str, store: SqlStore) -> list[str]:
        script = [call("pay", to=name), text("One."), text("Two."), text("Three.")]
        gate = Gate(ScriptedModel(script), [pay], store=store, policy=Policy(default="allow"))
        return [(await gate.run("go on", session=name)).text for _ in range(3)]

    async def story() -> None:
        stores = [open_store(pooler) for _ in range(3)]
        replies = await asyncio.gather(*(talk(f"s{number}", stores[number % 3]) for number in range(50)))  # type: ignore[arg-type]
        assert replies == [["One.", "Two.", "Three."]] * 50
        first = stores[0]
        assert isinstance(first, SqlStore)
        claim = Claim(key="k", digest="d", session="s0", run="r", owner="me")
        assert [await first.claim(claim) for _ in range(20)] == [claim] * 20
        lease = await first.acquire("s0", owner="me")
        assert (await first.put_answer("s0", "c", "{}"), await first.take_answer(lease, "c")) == (True, "{}")
        await first.release(lease)
        assert await first.withdraw_answer("s0", "c", "{}") == "withdrawn"
        with pytest.raises(SessionBusyError):
            await asyncio.gather(first.acquire("s1", owner="a"), first.acquire("s1", owner="b"))
        for store in stores:
            await store.aclose()

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
    assert done == {f"s{number}": 1 for number in range(50)}


# A database that fails ---------------------------------------------------------------------------------------------------


def test_after_a_failover_to_a_standby_every_session_goes_on_and_no_effect_is_done_twice(
    cluster: Callable[..., Cluster],
) -> None:
    first = cluster()
    second = cluster(copy_of=first)
    with psycopg.connect(f"postgresql://callgate@127.0.0.1:{first.port}/callgate", autocommit=True) as setup:
        setup.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")  # What waits for the disk waits for both.
        setup.execute("SELECT pg_reload_conf()")
    hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
    url = f"postgresql://callgate@{hosts}/callgate?target_session_attrs=read-write"
    done: Counter[str] = Counter()
    half = asyncio.Event()

    @tool
    async def pay(to: str) -> str:
        """Pay."""
        done[to] += 1
        if len(done) == 20:
            half.set()
        await asyncio.sleep(0)
        return f"paid {to}"

    async def talk(number: int, store: Any) -> None:
        name = f"s{number}"
        paid = [call("pay", to=f"{name}-{step}") for step in range(5)]
        model = ScriptedModel([lambda request: paid.pop(0) if paid else text("Done.")], repeat_last=True)
        gate = Gate(model, [pay], store=store, policy=Policy(default="allow"))
        prompt: str | None = "Pay five times."
        while True:
            try:
                reply = await gate.run(prompt, session=name)
                assert reply.text == "Done."
                return
            except (StoreError, SessionBusyError, SessionLostError):
                with contextlib.suppress(CallgateError):
                    prompt = None if (await load(store, name)).state == "interrupted" else prompt
                await asyncio.sleep(0.1)  # clock: the next try at a database that is being promoted

    async def story() -> None:
        store = open_store(url)
        talks = asyncio.gather(*(talk(number, store) for number in range(20)))
        await half.wait()
        await asyncio.to_thread(first.control, "-m", "immediate", "stop")
        await asyncio.to_thread(second.control, "promote")
        await talks
        for number in range(20):
            assert state_from_facts("s", await store.load(f"s{number}")).state == "idle"
        await store.aclose()

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
    assert set(done.values()) == {1}


@pytest.fixture
def demo(launch: Any, cluster: Callable[..., Cluster]) -> tuple[Served, Cluster]:  # noqa: F811
    server = cluster()
    url = f"postgresql://callgate@127.0.0.1:{server.port}/callgate"
    served = launch("--store", url, "--provider", "demo")
    assert served.chat(prompt="hello", session="a").status == 200
    return served, server


def test_while_the_database_is_frozen_every_request_is_refused_soon_and_health_is_true(
    demo: tuple[Served, Cluster],
) -> None:
    served, server = demo
    frozen = server.processes
    for process in frozen:
        os.kill(process, signal.SIGSTOP)
    try:
        for _ in range(2):
            started_s = time.monotonic()
            answers = [served.request("GET", "/health"), served.chat(prompt="hi", session="a"), served.chat(prompt="hi")]
            assert time.monotonic() - started_s < 3 * SOON_S  # clock: none of them waits for the database
            assert [(one.status, one.json.get("error", one.json.get("status"))) for one in answers] == [
                (503, "down"), (503, "store_unavailable"), (503, "store_unavailable"),
            ]  # fmt: skip
            assert answers[1].headers["retry-after"] == "1"
        looks = ("/sessions", "/sessions/a", "/approvals", "/sessions/a/trace")
        for method, path in [*(("GET", path) for path in looks), ("DELETE", "/sessions/a")]:
            started_s = time.monotonic()
            look = served.request(method, f"/api/v1{path}")
            assert time.monotonic() - started_s < SOON_S  # clock: a silent connection is cut after 20 s
            assert (path, look.status, look.json["error"]) == (path, 503, "store_unavailable")
    finally:
        for process in frozen:
            os.kill(process, signal.SIGCONT)
    until(lambda: served.chat(prompt="hi", session="a").status == 200, "the first chat after it")
    assert served.request("GET", "/health").json["status"] == "healthy"


def test_a_service_whose_database_is_frozen_ends_when_it_is_told_to(demo: tuple[Served, Cluster]) -> None:
    served, server = demo
    frozen = server.processes
    for process in frozen:
        os.kill(process, signal.SIGSTOP)
    try:
        assert served.chat(prompt="hi", session="a").status == 503
        assert served.end() == 0
    finally:
        for process in frozen:
            os.kill(process, signal.SIGCONT)


def test_the_first_request_after_a_restart_of_the_database_succeeds(demo: tuple[Served, Cluster]) -> None:
    served, server = demo
    for mode in ("fast", "immediate"):
        server.control("-m", mode, "stop")
        assert served.request("GET", "/health").json["store"]["state"] == "down"
        server.start()
        assert served.chat(prompt="hi", session="a").status == 200


def test_a_frozen_service_and_a_stray_lock_cost_their_sessions_only(
    launch: Any,  # noqa: F811
    cluster: Callable[..., Cluster],
) -> None:
    server = cluster()
    url = f"postgresql://callgate@127.0.0.1:{server.port}/callgate"
    first, second = (launch("--store", url, "--provider", "demo") for _ in range(2))
    assert first.chat(prompt="hello", session="a").status == 200
    with psycopg.connect(url) as stray:
        stray.execute("SELECT * FROM callgate_sessions WHERE id = 'a' FOR UPDATE")
        first.process.send_signal(signal.SIGSTOP)
        try:
            started_s = time.monotonic()
            assert second.chat(prompt="hello", session="a").error == (409, "session_busy")
            for number in range(10):
                assert second.chat(prompt="hello", session=f"b{number}").status == 200
            assert second.request("GET", "/health").status == 200
            assert time.monotonic() - started_s < 2 * SOON_S  # clock: none of them waits for the lock
        finally:
            first.process.send_signal(signal.SIGCONT)


# Rolling restarts --------------------------------------------------------------------------------------------------------


class Fleet:
    """Three services that are restarted one after another, and clients that retry by their key."""

    def __init__(self, start: Callable[[], Served]) -> None:
        self._start = start
        self.services = [start() for _ in range(3)]
        self.wrong: list[str] = []

    def roll(self) -> None:
        """Replace every service by a new one; the others take what it does not answer."""
        for place in range(3):
            old = self.services[place]
            assert old.end() == 0
            self.services[place] = self._start()

    def ask(self, name: str, seconds: float) -> str:
        """Ask until there is an answer, at any service."""
        dice = random.Random(name)
        body, key = {"prompt": f"{name} {seconds}", "session": name}, {"Idempotency-Key": name}
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            try:
                answer = dice.choice(self.services).request("POST", "/api/v1/chat", body, key)
            except (OSError, ValueError):
                time.sleep(0.05)
                continue
            if answer.status == 200:
                if (reason := answer.json["metadata"]["finish_reason"]) != "STOP" or not answer.json["response"]:
                    self.wrong.append(f"{name}: 200 with {reason}")
                return str(answer.json["response"])
            if answer.status not in (409, 503):
                self.wrong.append(f"{name}: {answer.status} {answer.body!r}")
            time.sleep(0.05)
        raise AssertionError(f"{name} was never answered")


def test_a_rolling_restart_of_three_services_under_load_loses_and_doubles_nothing(
    launch: Any,  # noqa: F811
    worked: dict[str, str],  # noqa: F811
    postgres_url: str,
    scale: int,
) -> None:
    words = ("--store", postgres_url, "-T", "work_tools.py", "--approval-mode", "yolo", "--stop-s", "0.5")
    fleet = Fleet(lambda: launch(*words, **worked))
    dice = random.Random(1)
    names = [f"{'look-' if number % 2 else ''}{number}" for number in range(200 * scale)]
    rolled = threading.Thread(target=fleet.roll)
    with ThreadPoolExecutor(24) as clients:
        rolled.start()
        answers = list(clients.map(lambda name: fleet.ask(name, dice.choice([0, 0.1, 0.3, 3.0])), names))
        rolled.join(PATIENCE_S)
    assert not rolled.is_alive()
    assert fleet.wrong == []
    assert len(answers) == len(names)
    log = Counter(noted(worked))
    doubled = [name for name in names if not name.startswith("look-") and log[f"start {name}"] != 1]
    lost = [name for name in names if name.startswith("look-") and not log[f"end {name}"]]
    assert (doubled, lost) == ([], [])


# Backups -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_backup_of_a_store_under_load_has_every_finished_exchange_and_every_waiting_call_can_be_answered(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "live.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    sent: list[str] = []

    @tool
    def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return "sent"

    def gate(store: Any, *script: Any, **options: Any) -> Gate:
        return Gate(ScriptedModel(list(script), repeat_last=True), [send], store=store, **options)

    async def later(*_: Any) -> str:
        return "later"

    finished: Counter[str] = Counter()
    waiting: dict[str, str] = {}
    enough = asyncio.Event()

    async def talk(number: int, store: Any, stop: asyncio.Event) -> None:
        talking = gate(store, text("Yes."))
        for turn in itertools.count():
            if stop.is_set():
                return
            session = f"talk-{number}-{turn // 5}"
            await talking.run(f"turn {turn}", session=session)
            finished[session] += 1
            asking = gate(store, call("send", to=f"{number}-{turn}"), policy=Policy(default="ask"), approve=later)
            reply = await asking.run("send", session=f"wait-{number}-{turn}")
            waiting[f"wait-{number}-{turn}"] = reply.approvals[0].call.id
            if len(waiting) >= 20:
                enough.set()

    async def story() -> None:
        store, stop = open_store(place), asyncio.Event()
        talks = asyncio.gather(*(talk(number, store, stop) for number in range(4)))
        await enough.wait()
        before, asked = Counter(finished), dict(waiting)
        command = [sys.executable, "-m", "callgate", "store"]
        backup = await asyncio.create_subprocess_exec(*command, "backup", tmp_path / "b.db", "--store", place)
        assert await backup.wait() == 0
        stop.set()
        await talks
        await store.aclose()
        restore = await asyncio.create_subprocess_exec(*command, "restore", tmp_path / "b.db", "--store", tmp_path / "r.db")
        assert await restore.wait() == 0
        restored = open_store(str(tmp_path / "r.db"))
        for session, count in before.items():
            assert (await load(restored, session)).exchanges >= count
        for session, call_id in asked.items():
            reply = await gate(restored, text("Done.")).run(None, session=session, answers={call_id: "yes"})
            assert reply.text == "Done."
        await restored.aclose()
        assert len(sent) == len(asked)

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
