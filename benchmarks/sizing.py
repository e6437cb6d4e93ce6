"""What to plan for: bytes of a store per exchange, new sessions per second, memory of a run and of a service.

Exchanges are those of a scripted model without a network, so only callgate and its store are measured. Each row is a process
of its own.

    python benchmarks/sizing.py [POSTGRES_URL]     the URL of a database in which tables may be made; it is left as it is
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import json
import os
import random
import re
import string
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callgate import Gate, Limits, Policy, ScriptedModel, tool
from callgate.store import open_store
from callgate.testing import call, text

EXCHANGES, SESSIONS, AT_ONCE, WAITING, CHATS = 500, 1000, 32, 1000, 3000
RESULTS = {"no call": None, "a call with a result of 200 bytes": 200, "a call with a result of 10 KB": 10_000}
ANSWER = "A sentence of an answer, as models give it. " * 5
STARTED: list[str] = []
LIMITS = Limits(repeats=100_000, turns=10)


@tool(read_only=True)
async def look_up(size: int) -> str:
    """Look something up."""
    return "".join(random.choices(string.ascii_letters, k=size))  # As text that cannot be compressed.


@tool(read_only=True)
async def wait(until: str) -> str:
    """Wait for the end of the measurement."""
    STARTED.append(until)
    await asyncio.Event().wait()
    return until


def script_of(size: int | None) -> list[Any]:
    return [text(ANSWER)] if size is None else [call("look_up", size=size), text(ANSWER)]


def gate_on(store: Any, script: list[Any]) -> Gate:
    model = ScriptedModel(script, strict=False, piece_chars=0)
    return Gate(model, tools=[look_up, wait], limits=LIMITS, store=store, policy=Policy(default="allow"))


def rss_kib(pid: int | str = "self") -> int:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


@contextlib.contextmanager
def place(postgres: str | None) -> Iterator[str]:
    """An empty store: a file, or a schema of its own in the database."""
    if postgres is None:
        with tempfile.TemporaryDirectory() as folder:
            yield f"{folder}/sessions.db"
        return
    import psycopg

    schema = f"sizing_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as database:
        database.execute(f'CREATE SCHEMA "{schema}"'.encode())
        try:
            yield f"{postgres}{'&' if '?' in postgres else '?'}options=-c%20search_path%3D{schema}"
        finally:
            database.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())


def stored_bytes(store: str) -> int:
    if "://" not in store:
        import sqlite3

        with contextlib.closing(sqlite3.connect(store)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return os.path.getsize(store)
    import psycopg

    tables = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    with psycopg.connect(store) as database:
        row = database.execute(f"{tables}WHERE n.nspname = current_schema() AND relkind = 'r'".encode()).fetchone()
        assert row is not None
        return int(row[0])


async def exchanges(store: str, size: int | None) -> float:
    """Bytes of an exchange in the store."""
    opened = open_store(store)
    gate = gate_on(opened, script_of(size) * EXCHANGES)
    await gate.run("The first one makes the tables.", session="s0")
    before = stored_bytes(store)
    for number in range(EXCHANGES - 1):
        await gate.run("A question of a user, of the usual length of a sentence.", session=f"s{number // 10}")
    await opened.aclose()
    return (stored_bytes(store) - before) / (EXCHANGES - 1)


async def new_sessions(store: str) -> float:
    """Sessions of one exchange per second, several at once."""
    opened = open_store(store)
    gate = gate_on(opened, script_of(None) * (SESSIONS + AT_ONCE))
    numbers = iter(range(SESSIONS))

    async def client() -> None:
        for number in numbers:
            await gate.run("A question.", session=f"n{number}")

    await gate.run("The first one makes the tables.")
    started_s = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    took_s = time.perf_counter() - started_s
    await opened.aclose()
    return SESSIONS / took_s


async def waiting_runs(store: str) -> float:
    """KiB of a run that waits for its tool."""
    opened = open_store(store)
    gate = gate_on(opened, [text("Yes.")] + [call("wait", until="the end")] * WAITING)
    await gate.run("The first one makes the tables.")
    gc.collect()
    before = rss_kib()
    runs = [asyncio.ensure_future(gate.run("A question.", session=f"w{number}")) for number in range(WAITING)]
    while len(STARTED) < WAITING:  # noqa: ASYNC110 - nobody tells when the last has begun
        await asyncio.sleep(0.1)
    used = (rss_kib() - before) / WAITING
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    await opened.aclose()
    return used


def service(store: str) -> tuple[float, float, float, float]:
    """MiB of a service at its start and after chats that named no session, chats per second, and bytes of each stored."""
    command = [
        sys.executable,
        "-m",
        "callgate",
        "serve",
        "--provider",
        "demo",
        "--port",
        "0",
        "--no-token",
        "--store",
        store,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as served:
        assert served.stderr is not None
        found = None
        while found is None:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", served.stderr.readline())
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)

        def chat() -> None:
            body = json.dumps({"prompt": "What is 12 * 7?"})
            connection.request("POST", "/api/v1/chat", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            assert response.status == 200, answer

        for _ in range(20):
            chat()
        start_kib, started_s, before = rss_kib(served.pid), time.perf_counter(), stored_bytes(store)
        for _ in range(CHATS):
            chat()
        rate, end_kib = CHATS / (time.perf_counter() - started_s), rss_kib(served.pid)
        connection.close()
        served.terminate()
    return start_kib / 1024, end_kib / 1024, rate, (stored_bytes(store) - before) / CHATS


def measure(what: str, postgres: str | None, size: str) -> None:
    with place(postgres) as store:
        if what == "exchanges":
            print(asyncio.run(exchanges(store, None if size == "None" else int(size))))
        elif what == "sessions":
            print(asyncio.run(new_sessions(store)))
        elif what == "runs":
            print(asyncio.run(waiting_runs(store)))
        else:
            print(*service(store))


def measured(what: str, postgres: str | None, size: object = None) -> list[float]:
    command = [sys.executable, __file__, "--measure", what, postgres or "-", str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main(postgres: str | None) -> None:
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    for name, url in {"SQLite": None, **({"PostgreSQL": postgres} if postgres else {})}.items():
        for what, size in RESULTS.items():
            print(f"{name}: {measured('exchanges', url, size)[0] / 1024:.1f} KiB an exchange with {what}", flush=True)
        print(f"{name}: {measured('sessions', url)[0]:.0f} new sessions a second, {AT_ONCE} at once", flush=True)
        print(f"{name}: {measured('runs', url)[0]:.1f} KiB a run that waits for its tool, of {WAITING}", flush=True)
        start, end, rate, stored = measured("service", url)
        print(
            f"{name}: a service has {start:.0f} MiB at its start and {end:.0f} after {CHATS} anonymous chats with a call, "
            f"one after another: {rate:.0f} a second, {stored / 1024:.1f} KiB of the store each",
            flush=True,
        )
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], None if sys.argv[3] == "-" else sys.argv[3], sys.argv[4])
    else:
        main(sys.argv[1] if sys.argv[1:] else None)
