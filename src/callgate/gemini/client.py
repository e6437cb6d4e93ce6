"""Requests to Gemini over HTTP: time-outs that hold, retries that obey the server, errors that say what happened.

A body comes in, response chunks go out as they arrive, and a `Notice` whenever the caller has to wait. This file knows
nothing of what is in a chunk, except whether it is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from callgate.errors import ModelError, ProtocolError, RequestTimeout
from callgate.events import Notice
from callgate.gemini.failures import Failure, error_in, failure_of_body, failure_of_exception
from callgate.gemini.pressure import Clock, Pressure, SystemClock, pressure_for
from callgate.gemini.reader import ResponseReader
from callgate.gemini.surface import Surface
from callgate.types import JsonObject, Limits

if TYPE_CHECKING:
    import httpx2

__all__ = ["GeminiClient"]

T = TypeVar("T")

_ERROR_BYTES_MAX = 256 * 1024
_JITTER = 0.2


class _Failed(Exception):
    """An attempt failed in a way that is already understood."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.error))
        self.failure = failure


class GeminiClient:
    """Sends requests to one surface. Open connections are kept until `aclose`."""

    def __init__(
        self,
        surface: Surface,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        pressure: Pressure | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self.surface = surface
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._pressure = pressure
        self._dice = dice or random.Random()
        # Connections belong to the event loop that made them, and a gate may be used from several.
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = weakref.WeakKeyDictionary()

    async def chunks(
        self, model: str, body: bytes, *, stream: bool, tools: list[str]
    ) -> AsyncGenerator[JsonObject | Notice, None]:
        """Sends the body and yields what comes back. Sent again only as long as nothing was yielded.

        Args:
            model: The model's name.
            body: The request as JSON.
            stream: Whether the answer is to come in pieces.
            tools: The tools' own names in the order of their declarations, to explain what a refusal means.

        Raises:
            ModelError: there is no answer, or it broke off.
        """
        url = self.surface.url(model, stream=stream)
        pressure = self._pressure or pressure_for(url)
        counted = 0
        free_left = 1
        while True:
            counted += 1
            await pressure.enter()
            shown = False
            try:
                async with contextlib.aclosing(self._attempt(url, body, stream, tools)) as chunks:
                    async for chunk in chunks:
                        shown = True
                        yield chunk
                pressure.succeeded()
                return
            except _Failed as failed:
                failure = failed.failure
            finally:
                pressure.left()
            self._report(pressure, failure, counted)
            if failure.is_free and free_left and not shown:
                # A kept connection that the server had already closed says nothing about the server.
                free_left -= 1
                counted -= 1
                continue
            wait_s = self._wait(failure, counted)
            if shown or wait_s is None:
                raise failure.error
            yield Notice(
                "waiting",
                f"Trying again in {wait_s:.1f} s ({counted} of {self._limits.attempts}): {failure.error}",
                "warning",
            )
            await self._clock.sleep(wait_s)

    async def aclose(self) -> None:
        """Closes the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    # One attempt ----------------------------------------------------------------------------------------------------------

    async def _attempt(self, url: str, body: bytes, stream: bool, tools: list[str]) -> AsyncGenerator[JsonObject, None]:
        limits = self._limits
        deadline = time.monotonic() + limits.total_s
        reader = ResponseReader(event_bytes_max=limits.event_bytes, total_bytes_max=limits.body_bytes)
        got_headers = False
        response: httpx2.Response | None = None
        try:
            # A whole answer begins when it is finished, so only a streamed one can be late in beginning.
            response = await self._within(limits.first_byte_s if stream else limits.total_s, deadline, self._send(url, body))
            got_headers = True
            if response.status_code != 200:
                raise _Failed(await self._refusal(response, deadline, tools))
            pieces = response.aiter_bytes()
            wait_s = limits.first_byte_s
            while (data := await self._within(wait_s, deadline, anext(pieces, None))) is not None:
                wait_s = limits.idle_s
                for chunk in reader.feed(data):
                    yield self._checked(chunk, tools)
            for chunk in reader.close():
                yield self._checked(chunk, tools)
        except (_Failed, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            failure = failure_of_exception(error)
            raise _Failed(failure if not got_headers else _after_headers(failure)) from error
        finally:
            if response is not None:
                await response.aclose()

    async def _send(self, url: str, body: bytes) -> httpx2.Response:
        client = self._client()
        headers = {"content-type": "application/json", "accept-encoding": "gzip", **await self.surface.headers()}
        return await client.send(client.build_request("POST", url, content=body, headers=headers), stream=True)

    def _client(self) -> httpx2.AsyncClient:
        import httpx2

        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # Waiting for data is timed here, per phase; the client itself only times what happens before.
            timeout = httpx2.Timeout(None, connect=self._limits.connect_s)
            client = httpx2.AsyncClient(timeout=timeout, follow_redirects=False)
            self._clients[loop] = client
        return client

    async def _within(self, seconds: float, deadline: float, work: Awaitable[T]) -> T:
        left_s = min(seconds, deadline - time.monotonic())
        try:
            async with asyncio.timeout(left_s):
                return await work
        except TimeoutError:
            raise RequestTimeout(f"the server sent nothing for {max(left_s, 0):g} s", retryable=True) from None

    async def _refusal(self, response: httpx2.Response, deadline: float, tools: list[str]) -> Failure:
        status = response.status_code
        if 300 <= status < 400:
            return Failure(ProtocolError(f"the server redirects ({status}), which is not followed with a key"), retry=False)
        data = b""
        pieces = response.aiter_bytes()
        while len(data) < _ERROR_BYTES_MAX and (
            piece := await self._within(self._limits.idle_s, deadline, anext(pieces, None))
        ):
            data += piece
        return self._failure(status, _error_object(data, status), response.headers, tools)

    def _checked(self, chunk: JsonObject, tools: list[str]) -> JsonObject:
        if (error := error_in(chunk)) is not None:
            raise _Failed(self._failure(None, error, {}, tools))
        return chunk

    def _failure(self, status: int | None, error: JsonObject, headers: Any, tools: list[str]) -> Failure:
        return failure_of_body(status, error, headers, now=time.time(), tools=tools, mask=self.surface.masked)

    # Between attempts -----------------------------------------------------------------------------------------------------

    def _report(self, pressure: Pressure, failure: Failure, counted: int) -> None:
        if failure.is_pressure:
            pressure.pushed_back(failure.wait_s if failure.wait_s is not None else self._backoff(counted))
        elif failure.is_outage:
            pressure.failed()

    def _wait(self, failure: Failure, counted: int) -> float | None:
        """How long to wait before the next attempt; None when there is none."""
        if not failure.retry or counted >= self._limits.attempts:
            return None
        if failure.wait_s is None:
            return self._dice.uniform(0, self._backoff(counted))
        if failure.wait_s > self._limits.backoff_max_s:
            return None
        return failure.wait_s * self._dice.uniform(1, 1 + _JITTER)

    def _backoff(self, counted: int) -> float:
        return min(self._limits.backoff_max_s, self._limits.backoff_s * 2 ** (counted - 1))


def _after_headers(failure: Failure) -> Failure:
    return Failure(failure.error, failure.retry, failure.wait_s, failure.is_pressure, failure.is_outage)


def _error_object(data: bytes, status: int) -> JsonObject:
    """The error that a body tells of, in whatever form: JSON, an array of it, a web page, or nothing."""
    reader = ResponseReader()
    try:
        chunks = [*reader.feed(data), *reader.close()]
    except ModelError as error:
        return {"message": f"HTTP {status}" + (f": {error}" if data.strip() else " without a body")}
    return next((error for error in map(error_in, chunks) if error is not None), {"message": f"HTTP {status}"})
