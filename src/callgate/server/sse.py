"""Events as a stream of server-sent events: a run in, bytes out, until it ends or the client leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from callgate import strict_json
from callgate.errors import JsonError
from callgate.events import RunEnded, to_json
from callgate.server.options import ServiceOptions
from callgate.server.runs import (
    EventsGoneError,
    Follower,
    Numbered,
    QuestionAsked,
    QuestionClosed,
    Run,
    RunBegan,
    RunEvent,
    RunFailed,
)
from callgate.server.security import WAKE
from callgate.types import JsonObject

__all__ = ["EventStream", "event_json", "left_before_end", "watch_disconnect", "wire_of"]

PING = b": ping\n\n"
SEND_BYTES = 64 * 1024
"""About how many bytes are sent at a time: more would lie in memory twice while a client does not read."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event_json(event: RunEvent) -> JsonObject:
    """An event as JSON; the whole history that ends a run is left out, since the session has it."""
    if isinstance(event, RunBegan):
        return {"type": "run_started", "run": event.run, "session": event.session}
    if isinstance(event, RunFailed):
        return {"type": "error", **event.problem}
    if isinstance(event, QuestionAsked):
        return {"type": "question_asked", "id": event.id, **event.question}
    if isinstance(event, QuestionClosed):
        return {"type": "question_closed", "id": event.id, "action": event.action}
    plain = to_json(event)
    if isinstance(event, RunEnded):
        plain["reply"].pop("contents")
    return plain


def wire_of(run: Run, item: Numbered) -> bytes:
    """An event as it is sent; encoded once for all who follow."""
    if item.wire is None:
        plain = event_json(item.event)
        try:
            data = strict_json.dump(plain)
        except JsonError:
            data = strict_json.dump({"type": plain["type"], "unreadable": repr(item.event)[:1000]})
        wire = b"id: %b:%d\nevent: %b\ndata: %b\n\n" % (run.id.encode(), item.number, plain["type"].encode(), data)
        if run.followers < 2:
            return wire  # Nobody else will need it.
        item.wire = wire
    return item.wire


@contextlib.asynccontextmanager
async def watch_disconnect(receive: Receive, wake: asyncio.Event) -> AsyncGenerator[asyncio.Event]:
    """An event that is set, and `wake` with it, when the client has left."""
    left = asyncio.Event()

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()
        wake.set()

    task = asyncio.create_task(listen())
    try:
        yield left
    finally:
        task.cancel()
        await asyncio.wait({task})


async def left_before_end(request: Request, run: Run) -> bool:
    """Wait for the end of a run, or until the client has left; True if it has left."""
    if run.is_over:
        return False
    wake = request.scope.get(WAKE)
    if wake is None:
        over = asyncio.Event()
        run.at_end.add(over.set)
        async with watch_disconnect(request.receive, over):
            await over.wait()
        return not run.is_over
    run.at_end.add(wake)
    while not run.is_over and (await request.receive())["type"] != "http.disconnect":
        pass
    return not run.is_over


class EventStream(Response):
    """The events of a run behind a number."""

    def __init__(
        self, run: Run, options: ServiceOptions, *, after: int = 0, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})}, media_type="text/event-stream")
        del self.headers["content-length"]
        self.run = run
        self.options = options
        self.after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        with self.run.followed(self.after) as follower:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            pulse = _Pulse(follower, self.options)
            follower.leave = pulse.give_up
            async with watch_disconnect(receive, follower.wake) as left:
                try:
                    await self._send_events(follower, left, pulse.sending(send))
                except OSError:
                    return  # The client has left.
                except asyncio.CancelledError:
                    # The client does not read any more. The run may go on without it.
                    if not pulse.is_stalled or pulse.task.uncancel() > 0:
                        raise
                finally:
                    pulse.stop()

    async def _send_events(self, follower: Follower, left: asyncio.Event, send: Send) -> None:
        run = self.run
        while not left.is_set():
            follower.wake.clear()
            try:
                items = run.after(follower.after)
            except EventsGoneError as error:
                body = strict_json.dump({"type": "error", "error": "events_gone", "message": str(error), "code": 410})
                await _send(send, b"event: error\ndata: %b\n\n" % body, more=False)
                return
            is_last = run.is_over
            if items:
                body, count = _piece(run, items)
                follower.after = items[count - 1].number
                if count < len(items):
                    del items  # Whatever the run drops meanwhile is not to be kept by a client that does not read.
                    await _send(send, body, more=True)
                    continue
                del items
                await _send(send, body, more=not is_last)
            elif is_last:
                await _send(send, b"", more=False)
            elif follower.is_quiet:
                follower.is_quiet = False
                await _send(send, PING, more=True)
            if is_last:
                return
            await follower.wake.wait()


def _piece(run: Run, items: Sequence[Numbered]) -> tuple[bytes, int]:
    """Return the first of the events as they are sent, and how many these are."""
    pieces: list[bytes] = []
    size = 0
    for item in items:
        pieces.append(wire_of(run, item))
        size += len(pieces[-1])
        if size >= SEND_BYTES:
            break
    return b"".join(pieces), len(pieces)


class _Pulse:
    """One timer for a whole stream: wakes it when it was quiet for a while, and ends it when its client does not read."""

    def __init__(self, follower: Follower, options: ServiceOptions) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.is_stalled = False
        self._follower = follower
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._sent_s = self._loop.time()
        self._is_sending = False
        self._timer = self._loop.call_later(min(options.ping_s, options.stalled_s), self._beat)

    def sending(self, send: Send) -> Send:
        """`send`, watched."""

        async def watched(message: Message) -> None:
            self._is_sending = True
            await send(message)
            self._is_sending = False
            self._sent_s = self._loop.time()

        return watched

    def stop(self) -> None:
        """The stream is over."""
        self._timer.cancel()

    def give_up(self) -> None:
        """End the stream if it waits for its client just now; otherwise it ends by itself."""
        if self._is_sending and not self.is_stalled:
            self.is_stalled = True
            self.task.cancel()

    def _beat(self) -> None:
        passed_s = self._loop.time() - self._sent_s
        if self._is_sending and passed_s >= self._options.stalled_s:
            self.is_stalled = True
            self.task.cancel()
            return
        left_s = self._options.ping_s - passed_s
        if left_s <= 0:
            left_s = self._options.ping_s
            self._follower.is_quiet = not self._is_sending
            self._follower.wake.set()
        self._timer = self._loop.call_later(min(left_s, self._options.stalled_s), self._beat)


async def _send(send: Send, body: bytes, *, more: bool) -> None:
    for start in range(0, len(body) - SEND_BYTES, SEND_BYTES):
        await send({"type": "http.response.body", "body": body[start : start + SEND_BYTES], "more_body": True})
    rest = body[(len(body) - 1) // SEND_BYTES * SEND_BYTES :] if len(body) > SEND_BYTES else body
    await send({"type": "http.response.body", "body": rest, "more_body": more})
