"""A gate, a client and a faulty server on real sockets, and the rules that hold after every fault.

A test tells a story in a `Scene`; when it is over the scene checks what must be true whatever the server did: tools ran at
most once, errors have a type, the key is nowhere, the conversation goes on, and nothing is left open.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import random
import time
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
import pytest

from callgate import Gate, Limits, ToolContext
from callgate.errors import (
    AuthError,
    BlockedError,
    ConnectionLostError,
    EmptyAnswerError,
    InvalidRequestError,
    LimitExceededError,
    MalformedAnswerError,
    ModelError,
    ProtocolError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
)
from callgate.events import CallFinished, CallProposed, Event, Notice, RunEnded, TextDelta
from callgate.gemini.client import GeminiClient
from callgate.gemini.surface import Surface
from callgate.history.repair import validate
from callgate.models.gemini import GeminiModel
from callgate.testing.answers import text
from callgate.testing.fake_gemini import Clock, FakeGemini
from callgate.types import Reply

KEY = "AIzaSyA-key-that-nobody-may-ever-see-42"
MODEL = "gemini-3.8-flash"
GUARD_S = 300
QUICK = Limits(connect_s=2, first_byte_s=5, idle_s=5, total_s=20)
TYPED = (
    AuthError, BlockedError, ConnectionLostError, EmptyAnswerError, InvalidRequestError, LimitExceededError,
    MalformedAnswerError, ProtocolError, RateLimitedError, RequestTimeoutError, ServerUnavailableError,
)  # fmt: skip

Transport = Literal["whole", "streamed"]


class VirtualClock:
    """Time that passes only by sleeping, and then at once."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        assert 0 <= seconds < 1_000, f"nobody should sleep for {seconds} s"
        self.sleeps.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


class ScaledClock:
    """Real time, but faster: the client's side of the server's own scaled clock."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def now(self) -> float:
        return time.monotonic() / self.scale

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.scale)


@dataclass
class Outcome:
    """What one prompt came to."""

    reply: Reply | None = None
    error: BaseException | None = None
    events: list[Event] = field(default_factory=list)
    took_s: float = 0.0
    cpu_s: float = 0.0
    """Processor time of this process, the server's included; what else the machine does is no part of it."""

    @property
    def text(self) -> str:
        assert self.reply is not None, f"there is no reply: {self.error!r}"
        return self.reply.text

    @property
    def shown(self) -> str:
        """The text that was handed to the caller while it arrived."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def notices(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Notice)]

    def failed(self, kind: type[ModelError]) -> Any:
        """The error, which must be exactly of this kind."""
        assert type(self.error) is kind, f"expected {kind.__name__}, got {self.error!r} and {self.reply}"
        return self.error


@dataclass
class Scene:
    """One gate that talks to one fake server."""

    fake: FakeGemini
    gate: Gate
    client: GeminiClient
    model: GeminiModel
    clock: Any
    transport: Transport
    ran: list[tuple[str, dict[str, Any]]]
    """The calls that ran: id and arguments."""
    session: str = "story"
    outcomes: list[Outcome] = field(default_factory=list)

    async def ask(self, prompt: str = "Go.", *, session: str | None = None) -> Outcome:
        """One run, whole or streamed as the test says; an error is an outcome."""
        outcome = Outcome()
        self.outcomes.append(outcome)
        began, cpu_began = time.monotonic(), time.process_time()
        session = session or self.session
        try:
            if self.transport == "whole":
                outcome.reply = await self.gate.run(prompt, session=session)
            else:
                async for event in self.gate.stream(prompt, session=session):
                    outcome.events.append(event)
                    if isinstance(event, RunEnded):
                        outcome.reply = event.reply
        except (ModelError, asyncio.CancelledError) as error:
            outcome.error = error
        outcome.took_s, outcome.cpu_s = time.monotonic() - began, time.process_time() - cpu_began
        return outcome

    def heal(self, *script: Any) -> None:
        """From here on the server is well."""
        items = self.fake._script.items
        items.clear()
        items.extend(script or [text("And on it goes.")])

    @property
    def requests(self) -> int:
        return len(self.fake.requests)

    async def until_asked(self, requests: int) -> None:
        """Waits until the server has seen so many requests."""
        while self.requests < requests:  # noqa: ASYNC110 - the fake has no event for this
            await asyncio.sleep(0.001)

    def check_rules(self, log: str) -> None:
        """What holds after every fault."""
        assert max(Counter(call_id for call_id, _ in self.ran).values(), default=0) <= 1, "a call ran twice"
        seen = [repr(thing) for thing in (self.gate, self.client, self.model, self.client.surface)]
        for outcome in self.outcomes:
            assert outcome.error is None or isinstance(outcome.error, (*TYPED, asyncio.CancelledError)), outcome.error
            seen += map(repr, outcome.events)
            if outcome.error is not None:
                seen += traceback.format_exception(outcome.error)
            if outcome.reply is not None:
                assert validate(outcome.reply.contents) == []
            proposed = [event.call.id for event in outcome.events if isinstance(event, CallProposed)]
            finished = [event.call.id for event in outcome.events if isinstance(event, CallFinished)]
            assert sorted(proposed) == sorted(finished), "a call that was announced ends once, and no other does"
        assert not [words for words in (log, *seen) if KEY in words], "the key is to be seen"

    async def check_goes_on(self) -> None:
        """The conversation can be gone on with as if nothing had happened."""
        if isinstance(self.clock, VirtualClock):
            self.clock.time += 300
        self.heal()
        outcome = await self.ask("And now?")
        assert outcome.text == "And on it goes.", outcome.error
        assert outcome.reply is not None
        assert outcome.reply.finish_reason == "STOP"
        assert validate(outcome.reply.contents) == []
        assert self.fake.refusals == []


WAYS = ("own-asyncio", "own-uvloop", "httpx2-asyncio", "httpx2-uvloop")
"""HTTP clients and event loops: the first has every case of every test, the others one case of each, and all in a soak."""
IS_SOAK = int(os.environ.get("CALLGATE_SCALE", "1")) > 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one case of each test per way other than the first, and for each way another one."""
    cases: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        way = getattr(item, "callspec", None) and item.callspec.params.get("way")  # pyright: ignore[reportAttributeAccessIssue]
        if way in WAYS[1:] and not IS_SOAK:
            cases.setdefault((item.nodeid.partition("[")[0], way), []).append(item)
    left_out: set[pytest.Item] = set()
    for (_, way), found in cases.items():
        kept = found[(WAYS.index(way) * 7) % len(found)]
        left_out.update(item for item in found if item is not kept)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True, params=[WAYS[0], *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS[1:])])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which HTTP client sends the requests of a test, and which event loop it runs on."""
    client, _, loop = request.param.partition("-")
    monkeypatch.setenv("CALLGATE_HTTP", client)
    if loop == "uvloop":
        uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed; its event loop was not tested")

        def run(main: Any, **options: Any) -> Any:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(main)

        monkeypatch.setattr(asyncio, "run", run)
        run(asyncio.sleep(0))  # The first of its loops opens what all of them keep.
    return request.param


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.slow)])
def stride(way: str, request: pytest.FixtureRequest) -> int:
    """Of how many steps of a long test one is taken: all on the first way and in a soak."""
    return 1 if (request.param == "all" and way == WAYS[0]) or IS_SOAK else 23


@pytest.fixture
def patient_with_stale_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept connection that breaks counts as stale however long this machine took to notice."""
    for module in ("http11", "httpx_transport"):
        monkeypatch.setattr(f"callgate.wire.{module}.STALE_S", 60.0)


@pytest.fixture(scope="session", autouse=True)
def certificates_are_read_once() -> Generator[None]:
    """Every client reads the trusted certificates; over plain HTTP that only takes time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx2, "create_ssl_context", functools.cache(httpx2.create_ssl_context))
        yield


Story = Callable[[Scene], Awaitable[Any]]
Play = Callable[..., Any]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextlib.asynccontextmanager
async def opened(
    script: Sequence[Any],
    transport: Transport,
    *,
    limits: Limits,
    clock: Any,
    server_clock: Clock | None,
    keep: bool,
    tools: Sequence[Any] | None,
    **options: Any,
) -> AsyncGenerator[Scene]:
    ran: list[tuple[str, dict[str, Any]]] = []

    async def look(path: str, context: ToolContext, n: int = 0) -> str:
        """Looks at a file."""
        ran.append((context.call_id, {"path": path, "n": n}))
        return f"{path} is fine"

    async with FakeGemini(script, clock=server_clock or Clock(), api_key=KEY, **options) as fake:
        surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key=KEY)
        client = GeminiClient(surface, limits=limits, clock=clock, dice=random.Random(7))
        model = GeminiModel(MODEL, client=client)
        gate = Gate(model, [look] if tools is None else tools, limits=limits)
        scene = Scene(fake, gate, client, model, clock, transport, ran)
        async with gate if keep else contextlib.nullcontext():
            yield scene
        await model.aclose()  # A gate that is not entered keeps the connections of its model for a while.
        async with asyncio.timeout(300):
            await fake.until_idle()
        assert fake.errors == []


@pytest.fixture
def play(caplog: pytest.LogCaptureFixture) -> Play:
    """`play(story, script, transport)`: runs a story with everything that must hold around it."""

    def run(
        story: Story,
        script: Sequence[Any],
        transport: Transport,
        *,
        limits: Limits = QUICK,
        clock: Any = None,
        server_clock: Clock | None = None,
        keep: bool = False,
        goes_on: bool = True,
        tools: Sequence[Any] | None = None,
        log_level: int = logging.DEBUG,
        **options: Any,
    ) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(GUARD_S):
                async with opened(
                    script, transport, limits=limits, clock=clock or VirtualClock(), server_clock=server_clock, keep=keep,
                    tools=tools, **options,
                ) as scene:  # fmt: skip
                    told = await story(scene)
                    if goes_on:
                        await scene.check_goes_on()
                    scene.check_rules(caplog.text)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left
            return told

        caplog.set_level(log_level)
        before = descriptors()
        told = asyncio.run(bounded())
        if descriptors() > before:
            gc.collect()  # what only a cycle holds is not open for long
        assert descriptors() <= before, "descriptors are left open"
        return told

    return run


@pytest.fixture(params=["whole", "streamed"])
def transport(request: pytest.FixtureRequest) -> Transport:
    """Both ways of asking: `Gate.run` and `Gate.stream`."""
    return request.param


@pytest.fixture
def make_scaled_clock() -> Callable[[float], ScaledClock]:
    return ScaledClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="session")
def key() -> str:
    """The key that must not be seen."""
    return KEY


@pytest.fixture
def grown_mb() -> Callable[[], float]:
    """`grown_mb()`: by how much the process has grown since the test began, in MB of resident memory."""
    gc.collect()
    before = _resident_mb()
    return lambda: _resident_mb() - before


def _resident_mb() -> float:
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
