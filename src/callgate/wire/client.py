"""Requests to a model over HTTP: tried again where that helps, as the server asks for it, and no longer than it should be.

A body comes in, response chunks go out as they arrive, and a `Notice` whenever the caller has to wait. One attempt is the
business of `exchange.py`; what an error means is told by the server's `Dialect`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

from callgate.errors import ModelError
from callgate.events import Notice
from callgate.types import JsonObject, Limits
from callgate.wire.dialect import Clock, Dialect, Letter, Pressure, Turn
from callgate.wire.exchange import Exchange, Failed
from callgate.wire.failures import Failure
from callgate.wire.sender import CONNECTIONS_KEPT, HEADERS, Sender

__all__ = ["HttpClient"]

LOOK_BYTES_MAX = 1024 * 1024
JITTER = 0.2


class HttpClient:
    """Sends requests to one server. Open connections are kept until `aclose`.

    Answers are told by their content: a body that is a right answer is one under any content type. Compressed answers are
    read as gzip and deflate; any other encoding is refused, and so is a redirect.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        headers: Callable[[], Awaitable[dict[str, str]]],
        clock: Clock,
        limits: Limits | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self._dialect = dialect
        self._limits = limits or Limits()
        self._clock = clock
        self._dice = dice or random.Random()
        self._sender = Sender(auth=headers, connect_s=self._limits.connect_s)

    async def chunks(self, letter: Letter, pressure: Pressure) -> AsyncGenerator[JsonObject | Notice, None]:
        """Sends the letter and yields what comes back. Sent again only as long as nothing was yielded.

        Raises:
            ModelError: there is no answer, or it broke off.
        """
        counted, stale_left = 1, CONNECTIONS_KEPT
        is_watched = False
        while True:
            if pause_s := pressure.pause_left_s:
                yield Notice("waiting", f"Waiting {pause_s:.1f} s, because the server asked everybody to.", "warning")
            turn = await pressure.enter(patience=self._limits.attempts - counted)
            exchange = Exchange(
                letter, dialect=self._dialect, sender=self._sender, limits=self._limits, is_watched=is_watched
            )
            shown = False
            try:
                while chunks := await exchange.chunks():
                    if not shown:
                        turn.succeeded()
                        shown = True
                    for chunk in chunks:
                        yield chunk
                return
            except Failed as failed:
                failure = failed.failure
                wait_s = self._wait(failure, counted, turn)
            finally:
                turn.over()
                await exchange.aclose()
            if shown or pressure.is_open:
                raise failure.error
            if failure.is_broken and exchange.is_stale and stale_left:
                # A kept connection that the server had already closed says nothing about the server.
                stale_left -= 1
                is_watched = True
                continue
            if wait_s is None:
                raise failure.error
            told = f"Trying again in {wait_s:.1f} s (attempt {counted + 1} of {self._limits.attempts}): {failure.error}"
            yield Notice("waiting", told, "warning")
            await self._clock.sleep(wait_s)
            counted += 1

    async def look(self, url: str, *, within_s: float) -> tuple[Mapping[str, str], JsonObject] | None:
        """The headers and the JSON object at a URL of the server; None when it has none, whatever the reason."""
        import httpx2

        reader = self._dialect.reader(event_bytes_max=LOOK_BYTES_MAX, total_bytes_max=LOOK_BYTES_MAX)
        try:
            async with asyncio.timeout(within_s), self._sender.pool() as pool:
                headers = HEADERS | await self._sender.auth()
                async with pool.proxied().client.stream("GET", url, headers=headers) as response:
                    if not response.is_success:
                        return None
                    found = [chunk async for data in response.aiter_bytes() for chunk in reader.feed(data)]
            found += reader.close()
        except (ModelError, httpx2.HTTPError, httpx2.InvalidURL, OSError):
            return None
        return (response.headers, found[0]) if found else None

    @property
    def idle_s(self) -> float:
        """How long a server may send nothing once it has begun to answer."""
        return self._limits.idle_s

    async def aclose(self) -> None:
        """Closes the connections of the running event loop, those in use as soon as they are not any more."""
        await self._sender.aclose()

    def _wait(self, failure: Failure, counted: int, turn: Turn) -> float | None:
        """Tells everybody what happened; how long to wait before the next attempt, None when there is none."""
        limits = self._limits
        backoff_s = min(limits.backoff_max_s, limits.backoff_s * 2 ** (counted - 1))
        is_too_long = failure.wait_s is not None and failure.wait_s > limits.backoff_max_s
        wait_s = failure.wait_s
        if failure.is_outage:
            turn.failed()
        elif failure.is_answer or (failure.is_pressure and is_too_long):
            turn.refused()
        elif failure.is_pressure:
            wait_s = turn.pushed_back(failure.wait_s, backoff_s)
        if not failure.retry or counted >= limits.attempts or is_too_long:
            return None
        return self._dice.uniform(0, backoff_s) if wait_s is None else wait_s * self._dice.uniform(1, 1 + JITTER)
