"""Events as a stream of server-sent events: a run in, bytes out, until it ends or the client leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from callgate import strict_json
from callgate.errors import JsonError
from callgate.events import RunEnded, to_json
from callgate.server.options import ServiceOptions
from callgate.server.runs import EventsGone, Follower, Numbered, Run, RunBegan, RunEvent, RunFailed
from callgate.types import JsonObject

__all__ = ["EventStream", "event_json", "gone", "wire_of"]

PING = b": ping\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event_json(event: RunEvent) -> JsonObject:
    """An event as JSON; the whole history that ends a run is left out, since the session has it."""
    if isinstance(event, RunBegan):
        return {"type": "run_started", "run": event.run, "session": event.session}
    if isinstance(event, RunFailed):
        return {"type": "error", **event.problem}
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
async def gone(receive: Receive, wake: asyncio.Event) -> AsyncGenerator[asyncio.Event]:
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
        """Sends the stream."""
        with self.run.followed(self.after) as follower:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with gone(receive, follower.wake) as left:
                try:
                    await self._send_events(follower, left, send)
                except (TimeoutError, OSError):
                    return  # The client does not read any more. The run may go on without it.

    async def _send_events(self, follower: Follower, left: asyncio.Event, send: Send) -> None:
        run = self.run
        while not left.is_set():
            follower.wake.clear()
            try:
                items = run.after(follower.after)
            except EventsGone as error:
                body = strict_json.dump({"type": "error", "error": "events_gone", "message": str(error), "code": 410})
                await self._send(send, b"event: error\ndata: %b\n\n" % body, more=False)
                return
            is_last = run.is_over
            if items:
                follower.after = items[-1].number
                await self._send(send, b"".join(wire_of(run, item) for item in items), more=not is_last)
            if is_last:
                if not items:
                    await self._send(send, b"", more=False)
                return
            if not items and not await self._woken(follower):
                await self._send(send, PING, more=True)

    async def _woken(self, follower: Follower) -> bool:
        try:
            async with asyncio.timeout(self.options.ping_s):
                await follower.wake.wait()
        except TimeoutError:
            return False
        return True

    async def _send(self, send: Send, body: bytes, *, more: bool) -> None:
        async with asyncio.timeout(self.options.stalled_s):
            await send({"type": "http.response.body", "body": body, "more_body": more})
