"""A small world in which everything that can go wrong does, by the dice of one seed and on a clock of its own.

Real: the gate, the state machine, the executor. Made up: the model (answers at random, loses answers, delivers twice), the
tools (slow, failing), the person who is asked (yes, no, later), the store (dies before or after any write, gives a session
away when its lease has run out). A process that dies is simply not run any further.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate import Gate, Limits, Policy, Reply, tool
from callgate.errors import ConnectionLostError, ModelError, ServerUnavailableError, SessionLostError, StoreError, ToolError
from callgate.history.repair import validate
from callgate.machine import codec, facts
from callgate.machine.facts import Fact
from callgate.machine.machine import RunMachine
from callgate.models import ModelRequest
from callgate.store import Lease, MemoryStore
from callgate.testing import answer
from callgate.testing.scripted_model import call_with

LEASE_S = 30.0
PROCESSES_MAX = 60


class Dead(BaseException):
    """The process was killed."""


# Time --------------------------------------------------------------------------------------------------------------------


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next thing that is to happen."""

    def __init__(self, start: float) -> None:
        self.now = start
        self._jumping = _Jumping(self)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._owner = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everything waits, and nothing will ever happen")
        self._owner.now += max(timeout, 0)
        return super().select(0)


# The store ---------------------------------------------------------------------------------------------------------------


@dataclass
class Disk:
    """What outlives a process."""

    facts: list[Fact] = field(default_factory=list[Fact])
    fence: int = 0
    expires: float = 0.0


class ProcessStore(MemoryStore):
    """One process's way to the disk, which breaks when the process dies."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.dead = False

    def _alive(self) -> None:
        if self.dead:
            raise Dead

    def die(self) -> None:
        self.dead = True
        raise Dead

    async def acquire(self, session: str, *, owner: str, lease_s: float = LEASE_S) -> Lease:
        self._alive()
        disk = self.world.disk
        disk.fence += 1
        disk.expires = self.world.time() + LEASE_S
        return Lease(session=session, fence=disk.fence, position=len(disk.facts))

    async def renew(self, lease: Lease, *, lease_s: float = LEASE_S) -> None:
        self._alive()
        if self.world.disk.fence != lease.fence:
            raise SessionLostError("gone")

    async def release(self, lease: Lease) -> None:
        self._alive()

    async def load(self, session: str, *, start: int = 0) -> list[Fact]:
        self._alive()
        return [codec.decode(codec.encode(fact)) for fact in self.world.disk.facts[start:]]

    async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        self._alive()
        world = self.world
        await asyncio.sleep(world.dice.choice([0, 0, 0.01]))
        self._alive()
        if world.disk.fence != lease.fence:
            raise SessionLostError("taken over")
        assert len(world.disk.facts) == position, "two owners write at once"
        fate = world.dice.random()
        if fate < world.death:
            self.die()
        world.disk.facts += facts
        if fate < 2 * world.death:
            self.die()


# The world ---------------------------------------------------------------------------------------------------------------


class World:
    """One seed: the disk, the effects, and the dice."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.disk = Disk()
        self.effects: Counter[str] = Counter()
        self.keys = 0
        self.death = self.dice.choice([0.0, 0.005, 0.02, 0.06])
        self.turns = self.dice.randint(1, 5)
        self.problems: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.clock = 0.0
        self.loop: VirtualLoop | None = None

    def time(self) -> float:
        return self.loop.now if self.loop is not None else self.clock

    def tools(self) -> list[Any]:
        async def work(key: str) -> str:
            await asyncio.sleep(self.dice.choice([0, 0.1, 5, 20, 45]))
            if self.dice.random() < 0.1:
                raise ToolError("It did not work.")
            self.effects[key] += 1
            await asyncio.sleep(self.dice.choice([0, 0.1, 5]))
            return f"done {key}"

        @tool(timeout_s=30)
        async def send(key: str) -> str:
            """Changes something, and must not be done twice."""
            return await work(key)

        @tool(timeout_s=30, sequential=True)
        async def write(key: str) -> str:
            """Changes something, in order, after somebody was asked."""
            return await work(key)

        @tool(idempotent=True)
        async def put(key: str) -> str:
            """May be done again."""
            return await work(key)

        @tool(read_only=True)
        async def look(key: str) -> str:
            """Changes nothing."""
            return await work(key)

        return [send, write, put, look]

    # The model

    @property
    def name(self) -> str:
        return "dice"

    async def generate(self, request: ModelRequest) -> AsyncIterator[Any]:
        if breaches := validate(request.contents, sendable=True):
            self.problems.append(f"a request was not valid: {breaches}")
        await asyncio.sleep(self.dice.choice([0, 0.5, 3]))
        fate = self.dice.random()
        if fate < 0.06:
            raise ServerUnavailableError("503", retryable=True)
        if fate < 0.10:
            yield answer("Half an answ", finish_reason=None)
            raise ConnectionLostError("The connection broke.", retryable=True)
        if fate < 0.14:
            yield answer(finish_reason=self.dice.choice(["MALFORMED_FUNCTION_CALL", "STOP", "SAFETY"]))
            return
        if request.tool_choice == "none" or fate < 0.14 + 0.25:
            yield answer("That is all.")
            return
        chunk = answer(*[self._call() for _ in range(self.dice.randint(1, 4))], finish_reason=None)
        yield chunk
        if self.dice.random() < 0.2:
            yield chunk  # Delivered twice.
        yield answer()

    def _call(self) -> Any:
        self.keys += 1
        name = self.dice.choice(["send", "write", "put", "look", "nobody"])
        return call_with(name, {"key": f"{name}-{self.keys}"}, id=f"w{self.keys}")

    # The person

    async def approve(self, call: Any, definition: Any, reason: str) -> Any:
        await asyncio.sleep(self.dice.choice([0, 1, 40]))
        return self.dice.choice(["yes", "yes", "no", "always", "later"])


ASKING = Policy(default="allow", rules=["ask write"])
"""Somebody is asked about `write`."""


# Running -----------------------------------------------------------------------------------------------------------------


def run_seed(seed: int) -> World:
    """Runs one world until its conversation is over; `problems` says what was wrong."""
    world = World(seed)
    ended = 0
    for _ in range(PROCESSES_MAX):
        outcome = _process(world)
        world.outcomes[type(outcome).__name__] += 1
        if isinstance(outcome, ModelError) or (isinstance(outcome, Reply) and outcome.finish_reason != "approval_needed"):
            ended += 1
        if ended == world.turns:
            break
    else:
        world.problems.append("the session came to no end")
    world.problems += _breaches(world)
    return world


def _process(world: World) -> Reply | Exception | None:
    """One process: goes on with the session, or says something new; ends by itself or is killed."""
    loop = world.loop = VirtualLoop(world.clock)
    store = ProcessStore(world)
    gate = Gate(world, world.tools(), store=store, approve=world.approve, policy=ASKING, limits=Limits(turns=6))
    if world.dice.random() < 0.15:
        # Another process takes the session over, as it may when this one seems to be gone.
        loop.call_later(world.dice.uniform(0, 60), _steal, world)
    try:
        return loop.run_until_complete(_one_run(world, gate, store))
    except Dead:
        return None
    except (ModelError, SessionLostError, StoreError) as error:
        return None if "raised Dead" in str(error) else error
    finally:
        store.dead = True
        world.clock, world.loop = loop.now, None
        _bury(loop)


def _steal(world: World) -> None:
    world.disk.fence += 1


async def _one_run(world: World, gate: Gate, store: ProcessStore) -> Reply:
    given = RunMachine(await store.load("s"))
    answers: dict[str, Any] = {}
    if given.phase == "calling":
        waiting = [record.call.id for record in given.open_calls if record.state == "awaiting"]
        answers = {call_id: world.dice.choice(["yes", "no"]) for call_id in waiting}
    prompt = None if given.phase in ("asking", "calling") else "Go on."
    reply = await gate.run(prompt, session="s", answers=answers)
    if breaches := validate(reply.contents):
        world.problems.append(f"a reply has a history that is not valid: {breaches}")
    return reply


def _bury(loop: VirtualLoop) -> None:
    """What a dead process was doing is not done any further: its coroutines are closed without being run again."""
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        with contextlib.suppress(BaseException):
            task.get_coro().close()  # type: ignore[union-attr]
    loop.close()


def _breaches(world: World) -> Iterator[str]:
    for key, times in world.effects.items():
        if times > 1 and key.startswith(("send", "write")):
            yield f"{key} happened {times} times"
    loop = RunMachine(world.disk.facts)
    text = str(loop.conversation.contents)
    for fact in world.disk.facts:
        if isinstance(fact, facts.CallEnded) and fact.result.status == "finished" and str(fact.result.value) not in text:
            yield f"the result of {fact.id} was lost"
    if loop.phase != "done":
        yield f"the session stands in {loop.phase!r}"
