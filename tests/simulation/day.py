"""A day of virtual time: three services on one store that are killed, restarted and upgraded while the clock jumps.

Real: the gate, the machine, the SQL of the store with its leases, in a SQLite file. Made up: time, the threads of the store
(an operation is carried out at once), the model, the tools and the users, who retry at any service until they are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callgate import Gate, Limits, Policy, tool
from callgate.errors import CallgateError, ModelError, NewerSessionError, SessionBusyError, SessionLostError, ToolError
from callgate.history.repair import validate
from callgate.machine import facts
from callgate.machine.facts import Fact, Renamed, Unreadable
from callgate.machine.machine import RunMachine
from callgate.models import ModelRequest
from callgate.store import LEASE_S, Lease
from callgate.store.dialect import Transaction
from callgate.store.schema import prepare_schema
from callgate.store.sql import SqlStore
from callgate.store.sqlite import Sqlite
from callgate.store.statistics import StoreStatistics
from callgate.testing import answer
from callgate.testing.scripted_model import call_with

DAY_S = 24 * 3600.0
USERS, SERVICES = 4, 3
EXCHANGES = 10
"""Of one session, before the user begins another one."""
RETRY_S = 5.0
NEWER = b'{"v":1,"kind":"of_tomorrow"}'


class Dead(BaseException):
    """The process was killed."""


class _Now:
    """Carries out operations at once, on one connection."""

    def __init__(self, dialect: Sqlite) -> None:
        self._dialect, self._connection = dialect, dialect.connect()
        prepare_schema(self._connection, dialect)
        self.statistics = StoreStatistics()

    async def do(self, work: Callable[[Transaction], Any], *, prepare: Any = None, durable: bool = False, **_: Any) -> Any:
        if prepare is not None:
            prepare()
        self._dialect.begin(self._connection, durable=False)
        try:
            return work(Transaction(self._connection, self._dialect))
        finally:
            self._connection.commit()

    attempt = persist = do  # Nothing here passes by itself.

    async def aclose(self) -> None:
        self._connection.close()


@dataclass(eq=False)
class Process:
    """One service of one version."""

    day: Day
    version: int
    is_dead: bool = False
    died_s: float = 0.0
    leases: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store = _Store(self)
        self.gate = Gate(
            self.day, self.day.tools(self), store=self.store, approve=self.day.approve, limits=Limits(turns=6),
            policy=Policy(default="allow", rules=["ask write"]),
        )  # fmt: skip

    def check(self) -> None:
        if self.is_dead:
            raise Dead

    def kill(self) -> None:
        self.is_dead, self.died_s = True, self.day.loop.time()
        for session in self.leases:
            self.day.orphans.setdefault(session, (self.day.loop.time(), len(self.day.jumps)))


class _Store(SqlStore):
    def __init__(self, process: Process) -> None:
        super().__init__(process.day.dialect)
        self._process = process
        self._database = process.day.database  # type: ignore[assignment]

    async def _step(self) -> None:
        """Any operation may be the last, before or after it."""
        self._process.check()
        await asyncio.sleep(self._process.day.dice.choice([0, 0, 0.01]))
        self._process.check()

    async def acquire(self, session: str, *, owner: str, lease_s: float = LEASE_S) -> Lease:
        await self._step()
        try:
            lease = await super().acquire(session, owner=owner, lease_s=lease_s)
        except SessionBusyError:
            self._process.day.was_refused(session)
            raise
        self._process.day.was_acquired(session)
        if self._process.version > 1 and self._process.day.dice.random() < 0.1:
            lease = await self._with_newer_fact(lease)
        self._process.leases.add(session)
        return lease

    async def _with_newer_fact(self, lease: Lease) -> Lease:
        def work(tx: Transaction) -> Lease:
            tx.run("INSERT INTO callgate_facts VALUES (?, ?, ?)", lease.session, lease.position, NEWER)
            tx.run("UPDATE callgate_sessions SET facts = ? WHERE id = ?", lease.position + 1, lease.session)
            return Lease(session=lease.session, fence=lease.fence, position=lease.position + 1)

        return await self._database.do(work)

    async def renew(self, lease: Lease, *, lease_s: float = LEASE_S) -> None:
        await self._step()
        await super().renew(lease, lease_s=lease_s)

    async def release(self, lease: Lease) -> None:
        self._process.check()
        await super().release(lease)
        self._process.leases.discard(lease.session)

    async def load(self, session: str, *, start: int = 0) -> list[Fact]:
        self._process.check()
        if self._process.version == 1:
            return await super().load(session, start=start)
        return await self.known(session, start)

    async def known(self, session: str, start: int = 0) -> list[Fact]:
        """The facts as the newer version reads them."""
        sql = "SELECT position, body FROM callgate_facts WHERE session = ? AND position >= ? ORDER BY position"
        rows = await self._database.do(lambda tx: tx.rows(sql, session, start))
        found = [(position, b'{"v":1,"kind":"renamed","title":"x"}' if body == NEWER else body) for position, body in rows]
        return await self._facts_of(session, found, start)

    async def append(self, lease: Lease, facts: Any, *, position: int, durable: bool = False) -> None:
        await self._step()
        await super().append(lease, facts, position=position, durable=durable)
        self._process.check()


class _WallClock(Sqlite):
    """The dialect of SQLite with a clock that jumps."""

    def __init__(self, path: Path, day: Day) -> None:
        super().__init__(path)
        self._day = day

    def now_s(self, transaction: Transaction) -> float:
        return self._day.wall_s()

    def uptime_s(self) -> float:  # type: ignore[override]
        return self._day.loop.time()


class _ServerClock(_WallClock):
    """A database on another machine, whose clock is the only one and jumps."""

    def lease_now_s(self, transaction: Transaction) -> float:
        return self._day.wall_s()


CLOCKS = {"local": _WallClock, "server": _ServerClock}


class Day:
    """One seed: the store, the services, the users and the dice."""

    name = "dice"

    def __init__(self, seed: int, loop: Any, path: Path, *, hours: float = 24.0, clock: str = "local") -> None:
        self.dice, self.loop, self.seconds = random.Random(seed), loop, hours * 3600
        self.jumps: list[float] = []
        self.problems: list[str] = []
        self.effects: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.orphans: dict[str, tuple[float, int]] = {}
        """Sessions whose owner was killed, since when, and how many jumps of the clock there were then."""
        self.refused_s: dict[str, float] = {}
        self.keys = 0
        self.sessions: list[str] = []
        self.dialect = CLOCKS[clock](path, self)
        self.database = _Now(self.dialect)
        self.services = [Process(self, 1) for _ in range(SERVICES)]

    def wall_s(self) -> float:
        return 1_800_000_000.0 + self.loop.time() + sum(self.jumps)

    # Leases

    def was_refused(self, session: str) -> None:
        self.happened["busy"] += 1
        if session in self.orphans:
            self.refused_s.setdefault(session, self.loop.time())

    def was_acquired(self, session: str) -> None:
        since = self.orphans.pop(session, None)
        refused_s = self.refused_s.pop(session, None)
        if since is None or refused_s is None:
            return
        stuck_s, jumps = self.loop.time() - refused_s, len(self.jumps) - since[1]
        self.happened["taken over"] += 1
        if stuck_s > (LEASE_S + 2 * RETRY_S) * (1 + jumps):
            self.problems.append(f"the lease of {session} was stuck for {stuck_s:.0f} s")

    # Tools, model, person

    def tools(self, process: Process) -> list[Any]:
        async def work(key: str) -> str:
            await asyncio.sleep(self.dice.choice([0, 0.1, 5, 20]))
            process.check()
            if self.dice.random() < 0.1:
                raise ToolError("It did not work.")
            self.effects[key] += 1
            await asyncio.sleep(self.dice.choice([0, 0.1, 5]))
            process.check()
            return f"done {key}"

        @tool(timeout_s=30)
        async def send(key: str) -> str:
            """Changes something, and must not be done twice."""
            return await work(key)

        @tool(timeout_s=30, sequential=True)
        async def write(key: str) -> str:
            """Changes something, after somebody was asked."""
            return await work(key)

        @tool(idempotent=True)
        async def put(key: str) -> str:
            """May be done again."""
            return await work(key)

        return [send, write, put]

    async def generate(self, request: ModelRequest) -> AsyncIterator[Any]:
        if breaches := validate(request.contents, sendable=True):
            self.problems.append(f"a request was not valid: {breaches}")
        await asyncio.sleep(self.dice.choice([0, 0.5, 3]))
        if request.tool_choice == "none" or self.dice.random() < 0.4:
            yield answer("That is all.")
            return
        yield answer(*[self._call() for _ in range(self.dice.randint(1, 3))])

    def _call(self) -> Any:
        self.keys += 1
        name = self.dice.choice(["send", "write", "put"])
        return call_with(name, {"key": f"{name}-{self.keys}"}, id=f"w{self.keys}")

    async def approve(self, call: Any, definition: Any, reason: str) -> Any:
        await asyncio.sleep(self.dice.choice([0, 1, 40]))
        return self.dice.choice(["yes", "yes", "no", "later"])

    # What happens

    async def run(self) -> None:
        users = [asyncio.ensure_future(self._user(f"s{number}")) for number in range(USERS)]
        fates = [asyncio.ensure_future(fate()) for fate in (self._kills, self._upgrades, self._clock)]
        await asyncio.gather(*users)
        for fate in fates:
            fate.cancel()
        await asyncio.wait(fates)
        for session in self.sessions:
            await self._look_at(session)

    async def _user(self, name: str) -> None:
        for number in itertools.count():
            session = f"{name}-{number // EXCHANGES}"
            if session not in self.sessions:
                self.sessions.append(session)
            await self._exchange(session)
            self.happened["exchanges"] += 1
            await asyncio.sleep(self.dice.uniform(0, 600))
            if self.loop.time() >= self.seconds:
                return

    async def _exchange(self, session: str) -> None:
        """Say something, and go on with it at any service until it is over."""
        began_s, is_said = self.loop.time(), False
        while True:
            process = self.dice.choice(self.services)
            try:
                known = RunMachine(await self.services[0].store.known(session))
                waiting = [record.call.id for record in known.open_calls if record.state == "awaiting"]
                is_open = known.phase in ("asking", "calling")
                if is_said and not is_open:
                    return
                answers: Any = {call_id: self.dice.choice(["yes", "no"]) for call_id in waiting}
                reply = await process.gate.run(None if is_open else "Go on.", session=session, answers=answers)
                is_said = True
                if reply.finish_reason != "approval_needed" and not is_open:
                    return
            except (Dead, CallgateError, _Restarted) as error:
                found = Dead() if "raised Dead" in str(error) else error
                if not isinstance(found, EXPECTED):
                    self.problems.append(f"{session}: {type(error).__name__}: {error}")
                    return
                self.happened[type(found).__name__] += 1
                is_said = is_said or not isinstance(found, (SessionBusyError, NewerSessionError))
            if self.loop.time() > began_s + 4 * 3600:
                self.problems.append(f"an exchange of {session} did not come to its end within four hours")
                return
            await asyncio.sleep(self.dice.uniform(0, RETRY_S))

    async def _kills(self) -> None:
        while True:
            await asyncio.sleep(self.dice.uniform(60, 900))
            busy = [place for place, service in enumerate(self.services) if service.leases]
            place = self.dice.choice(busy or range(SERVICES))
            self._replace(place, self.services[place].version, gracefully=self.dice.random() < 0.4)

    async def _upgrades(self) -> None:
        for place in range(SERVICES):
            await asyncio.sleep(self.seconds / 4)
            self._replace(place, 2, gracefully=True)

    def _replace(self, place: int, version: int, *, gracefully: bool) -> None:
        old = self.services[place]
        self.services[place] = Process(self, version)
        self.happened["restarts" if gracefully else "kills"] += 1
        if not gracefully:
            old.kill()
            if self.dice.random() < 0.3:
                self._jump()
            return
        for session in list(old.leases):
            with contextlib.suppress(CallgateError):
                old.gate.interrupt(session, _Restarted())

    async def _clock(self) -> None:
        while True:
            await asyncio.sleep(self.dice.uniform(600, 5400))
            self._jump()

    def _jump(self) -> None:
        self.jumps.append(self.dice.choice([-7200.0, -3600.0, -600.0, -45.0, 45.0, 600.0, 3600.0, 7200.0]))
        self.happened["jumps back" if self.jumps[-1] < 0 else "jumps ahead"] += 1

    async def _look_at(self, session: str) -> None:
        journal = await self.services[0].store.known(session)
        machine = RunMachine(journal)
        said = str(machine.conversation.contents)
        if any(isinstance(fact, Unreadable) for fact in journal):
            self.problems.append(f"{session} has facts that cannot be read")
        for fact in journal:
            if isinstance(fact, facts.CallEnded) and fact.result.status == "finished" and str(fact.result.value) not in said:
                self.problems.append(f"the result of {fact.id} was lost")
        if machine.phase not in ("done", "idle"):
            self.problems.append(f"{session} stands in {machine.phase!r}")
        self.happened["facts of newer kinds"] += sum(isinstance(fact, Renamed) for fact in journal)


class _Restarted(Exception):  # noqa: N818 - not an error of callgate
    """The service is restarted."""


EXPECTED = (Dead, SessionBusyError, SessionLostError, NewerSessionError, ModelError, _Restarted)
"""Ends of a run after which it is tried again elsewhere."""


def run_day(seed: int, loop: Any, path: Path, *, hours: float = 24.0, clock: str = "local") -> Day:
    """Run a day; `problems` says what was wrong."""
    day = Day(seed, loop, path, hours=hours, clock=clock)
    loop.run_until_complete(day.run())
    for key, times in day.effects.items():
        if times > 1 and not key.startswith("put"):
            day.problems.append(f"{key} happened {times} times")
    return day
