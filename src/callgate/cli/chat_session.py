"""One conversation on one event loop, with clean Ctrl-C handling.

Takes a gate and the id of a session, runs exchanges and passes on their events. `render.py` draws them, `repl.py` reads
input.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from callgate.cli.tty import Tty
from callgate.errors import CallgateError
from callgate.events import Event, RunEnded
from callgate.types import Reply
from callgate.user_code import ProgramInterrupt

if TYPE_CHECKING:
    from callgate.cli.approve import Approver
    from callgate.content.prompt import Prompt
    from callgate.run.gate import Gate

__all__ = ["ChatSession"]

T = TypeVar("T")

CANCEL_AGAIN_S = 0.01
CLOSE_WAIT_S = 5.0
"""Seconds that a cancelled exchange may take to clean up before the program exits without it."""


class ChatSession:
    """One conversation. During an exchange the first Ctrl-C cancels it and the second raises; otherwise the first raises."""

    def __init__(
        self,
        build: Callable[[], Gate],
        session: str,
        approver: Approver | None = None,
        *,
        tty: Tty,
        servers: Sequence[Any] = (),
        model_name: str = "",
    ) -> None:
        self._build = build
        self._gate: Gate | None = None
        self.session = session
        self.servers = servers
        self._model_name = model_name
        """The MCP servers whose tools the gate has."""
        self._limits: dict[str, int | None] = {}
        """Model -> the tokens that it reads at most, as its server says; None while that is not known."""
        self._learning: asyncio.Task[None] | None = None
        self.has_begun = False
        self.last: Reply | None = None
        self.on_interrupt: Callable[[], None] | None = None
        """Called on SIGINT while a line is being edited."""
        self.tty = tty
        self.approver = approver
        self._runner = asyncio.Runner()
        self._entered: list[Gate] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._interrupts = 0
        self._handler_before: Any = None

    def __enter__(self) -> ChatSession:
        self._handler_before = signal.signal(signal.SIGINT, self._interrupted)
        self._runner.__enter__()
        return self

    @property
    def gate(self) -> Gate:
        """The gate, built when it is first needed: a prompt can be typed before."""
        if self._gate is None:
            self._gate = self._build()
        return self._gate

    @property
    def model_name(self) -> str:
        """The name of the model that answers, known before the gate is built."""
        return self._model_name if self._gate is None else self._gate.model.name

    @property
    def policy_mode(self) -> str | None:
        """The approval mode in force; None before the gate is built."""
        return None if self._gate is None else self._gate.policy.mode

    def __exit__(self, *exc: object) -> None:
        try:
            if self._task is not None and not self._task.done():
                # A second Ctrl-C left the exchange in mid-flight. It must end by itself: closing the loop would cancel
                # all tasks at once, including those that the run waits for.
                self._task.cancel()
                self._runner.run(_ended(self._task))
            if self._task is None or self._task.done():
                for server in self.servers:
                    self._runner.run(server.aclose(self))
                for gate in reversed(self._entered):
                    self._runner.run(gate.__aexit__(None, None, None))
                self._runner.close()
        finally:
            signal.signal(signal.SIGINT, self._handler_before)

    @property
    def context_max(self) -> int | None:
        """The tokens that the model reads at most, as far as its server has said."""
        return self._limits.get(self.model_name)

    async def _learn(self, name: str, changed: Callable[[], None]) -> None:
        from callgate.models import describe

        with contextlib.suppress(CallgateError):
            found = (await describe(self.gate.model) or {}).get("inputTokenLimit")
            if isinstance(found, int) and found > 0:
                self._limits[name] = found
                changed()

    def prepare(self, changed: Callable[[], None] = lambda: None) -> None:
        """Build the gate now, if possible; an error is raised again on first use.

        After an exchange, the server is asked for the size of the model's context; `changed` is called when it has answered.
        """
        if self.last is not None and self.model_name not in self._limits:
            self._limits[self.model_name] = None
            self._learning = asyncio.get_running_loop().create_task(self._learn(self.model_name, changed))
        with contextlib.suppress(Exception):
            gate = self.gate
            if not self.servers:  # Their tools are unknown until they run.
                work = partial(asyncio.run, _quietly(gate.prepare(tools=False)))
                threading.Thread(target=work, name="callgate-prepare", daemon=True).start()

    def use(self, gate: Gate) -> None:
        """Continue with another gate: another model, mode or policy."""
        self._gate = gate

    async def _entered_gate(self) -> Gate:
        # Servers and connections live as long as the conversation, not as long as one exchange.
        if self.gate not in self._entered:
            self._entered.append(await self.gate.__aenter__())
        return self.gate

    def begin(self, session: str) -> None:
        """Go on with another session."""
        self.session, self.has_begun, self.last = session, False, None

    def start_servers(self) -> None:
        """Start the servers that are not running yet."""

        async def start() -> None:
            await asyncio.gather(*(server.start(self) for server in self.servers))

        self.run(start())

    def exchange(
        self, prompt: Prompt | None, show: Callable[[Event], None], tick: Callable[[], float] | None = None
    ) -> Reply:
        """Run one exchange and show its events. `tick` is called periodically and returns the next delay.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice.
        """
        self.has_begun = True
        with self.tty.quiet():
            self.last = self.run(self._exchange(prompt, show, tick))
        return self.last

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the conversation; Ctrl-C abandons it."""
        self._interrupts = 0
        return self._runner.run(work)

    async def _exchange(
        self, prompt: Prompt | None, show: Callable[[Event], None], tick: Callable[[], float] | None
    ) -> Reply:
        reply: Reply | None = None
        gate = await self._entered_gate()
        events = gate.stream(prompt, session=self.session)
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        ticking = None if tick is None else asyncio.create_task(_ticking(tick))
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    show(event)
                    if self.approver is not None:
                        self.approver.see(event)
                    reply = event.reply if isinstance(event, RunEnded) else reply
        finally:
            self._loop = None
            if ticking is not None:
                ticking.cancel()
        assert reply is not None, "a run that did not raise ends with RunEnded"
        return reply

    def forget_interrupts(self) -> None:
        """The last Ctrl-C only emptied a line: the next one counts as the first."""
        self._interrupts = 0

    def _interrupted(self, signum: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._loop is None and self.on_interrupt is not None and self._interrupts == 1:
            self.on_interrupt()
        elif self._loop is None or self._interrupts > 1:
            raise ProgramInterrupt
        else:
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # A run that is about to begin cannot be cancelled yet; one that is over ends the exchange by itself.
        if self._loop is not None and not self.gate.cancel(self.session):
            self._loop.call_later(CANCEL_AGAIN_S, self._cancel)


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait({task}, timeout=CLOSE_WAIT_S)


async def _ticking(tick: Callable[[], float]) -> None:
    while True:
        wait_s = tick()
        await asyncio.sleep(wait_s)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """Run something ahead of time; errors surface when the result is needed."""
    with contextlib.suppress(CallgateError):
        await work
