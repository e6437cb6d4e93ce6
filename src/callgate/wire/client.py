"""Requests to a model over HTTP: time-outs that hold, retries that obey the server, errors that say what happened.

A body comes in, response chunks go out as they arrive, and a `Notice` whenever the caller has to wait. Of a chunk this file
knows only what the server's `Dialect` tells: whether it is an error, whether it says something, whether it ends the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from callgate import __version__
from callgate.errors import LimitExceeded, ModelError, ProtocolError, RequestTimeout
from callgate.events import Notice
from callgate.types import JsonObject, Limits
from callgate.wire.address import masked
from callgate.wire.dialect import Clock, Dialect, Letter, Pressure, Reader, Turn
from callgate.wire.failures import Failure, failure_of_exception

if TYPE_CHECKING:
    import httpcore2
    import httpx2

    from callgate.wire.direct import Connections, DirectAnswer

__all__ = ["HttpClient"]

T = TypeVar("T")

_HEADERS = {
    "accept": "*/*",
    "accept-encoding": "gzip",
    "content-type": "application/json",
    "user-agent": f"callgate/{__version__}",
}
_ERROR_BYTES_MAX = 256 * 1024
_LOOK_BYTES_MAX = 1024 * 1024
_JITTER = 0.2
_CONNECTIONS_MAX = 256
_CONNECTIONS_KEPT = 32
# The longest that a kept connection is likely to be still open at the other end; one that is not costs nothing but time.
_KEPT_FOR_S = 60.0


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
        self._auth = headers
        self._limits = limits or Limits()
        self._clock = clock
        self._dice = dice or random.Random()
        self._ssl: ssl.SSLContext | None = None
        self._addresses: dict[str, _Address] = {}
        # Connections belong to the event loop that made them, and a gate may be used from several.
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = weakref.WeakKeyDictionary()

    async def chunks(self, letter: Letter, pressure: Pressure) -> AsyncGenerator[JsonObject | Notice, None]:
        """Sends the letter and yields what comes back. Sent again only as long as nothing was yielded.

        Raises:
            ModelError: there is no answer, or it broke off.
        """
        counted, stale_left = 1, _CONNECTIONS_KEPT
        is_watched = False
        while True:
            if pause_s := pressure.pause_left_s:
                yield Notice("waiting", f"Waiting {pause_s:.1f} s, because the server asked everybody to.", "warning")
            turn = await pressure.enter(patience=self._limits.attempts - counted)
            timeouts = {"connect": self._limits.connect_s, "read": None, "write": None, "pool": None}
            attempt = _Attempt(letter=letter, timeouts=timeouts, is_watched=is_watched)
            shown = False
            try:
                async with contextlib.aclosing(self._attempt(attempt)) as chunks:
                    async for chunk in chunks:
                        if not shown:
                            turn.succeeded()
                        shown = True
                        yield chunk
                return
            except _Failed as failed:
                failure = failed.failure
                wait_s = self._wait(failure, counted, turn)
            finally:
                turn.over()
            if shown or pressure.is_open:
                raise failure.error
            if failure.is_broken and attempt.is_stale and stale_left:
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

        reader = self._dialect.reader(event_bytes_max=_LOOK_BYTES_MAX, total_bytes_max=_LOOK_BYTES_MAX)
        try:
            async with asyncio.timeout(within_s), self._pool() as pool:
                headers = _HEADERS | await self._auth()
                async with pool.client.stream("GET", url, headers=headers) as response:
                    if not response.is_success:
                        return None
                    found = [chunk async for data in response.aiter_bytes() for chunk in reader.feed(data)]
            found += reader.close()
        except (ModelError, httpx2.HTTPError, httpx2.InvalidURL, OSError):
            return None
        return (response.headers, found[0]) if found else None

    async def aclose(self) -> None:
        """Closes the connections of the running event loop, those in use as soon as they are not any more."""
        loop = asyncio.get_running_loop()
        pool = self._pools.pop(loop, None)
        if pool is not None:
            await pool.retire()

    # One attempt ----------------------------------------------------------------------------------------------------------

    async def _attempt(self, attempt: _Attempt) -> AsyncGenerator[JsonObject, None]:
        """The chunks of one answer, each as soon as the caller may have it.

        Chunks that say nothing wait for one that does, and a whole answer waits for its end: up to then nobody has seen
        anything of it, so that it can be asked for again.
        """
        import httpx2

        from callgate.wire.direct import ERRORS, of_client

        held: list[JsonObject] = []
        has_spoken = has_ended = False
        try:
            async with contextlib.aclosing(self._received(attempt)) as chunks:
                async for chunk in chunks:
                    if (error := self._dialect.error_in(chunk)) is not None:
                        raise _Failed(self._dialect.failure_of(None, error, {}, now=time.time(), sent=attempt.letter.sent))
                    has_ended = has_ended or self._dialect.is_end(chunk)
                    if has_spoken:
                        yield chunk
                        continue
                    held.append(chunk)
                    has_spoken = attempt.letter.stream and self._dialect.says_something(chunk)
                    while has_spoken and held:
                        yield held.pop(0)
            if not has_ended:
                raise ProtocolError("the answer ended early: it has no finish reason", retryable=True)
            for chunk in held:
                yield chunk
        except _Failed as failed:
            attempt.hide_secrets(failed.failure.error)
            raise
        except (ModelError, httpx2.HTTPError, httpx2.InvalidURL, OSError, *ERRORS) as error:
            error = of_client(error)
            if isinstance(error, httpx2.ReadTimeout):
                raise _too_late(f"the server sent nothing for {self._limits.idle_s:g} s") from error
            failure = failure_of_exception(error)
            attempt.hide_secrets(failure.error)
            raise _Failed(failure) from error

    async def _received(self, attempt: _Attempt) -> AsyncGenerator[JsonObject, None]:
        """Sends the request and reads the answer, each step within its time."""
        limits = self._limits
        # There is only one event in a whole answer, so it may be as large as the answer.
        is_stream = attempt.letter.stream
        event_bytes = limits.event_bytes if is_stream else limits.body_bytes
        reader = self._dialect.reader(event_bytes_max=event_bytes, total_bytes_max=limits.body_bytes, leaves_heavy=True)
        timer = _Timer(limits.total_s)
        async with self._pool() as pool:
            # A whole answer begins when it is finished, so only a streamed one can be late in beginning.
            first_s = limits.first_byte_s if is_stream else limits.total_s
            attempt.is_stale = pool.has_answered
            response = await timer.within(first_s, self._send(pool, attempt))
            attempt.is_stale = False
            pool.has_answered = True
            self._dialect.heard(response.headers)
            # From here on the HTTP client itself times each read of the socket, which is cheaper than timing each piece.
            attempt.timeouts["read"] = limits.idle_s
            try:
                if not response.is_success:
                    raise _Failed(await self._refusal(response, attempt, timer))
                _refuse_encoding(response)
                pieces = response.aiter_bytes()
                whole: list[bytes] = []
                size = 0
                first = anext(pieces, None)
                data = await (timer.within(limits.first_byte_s, first) if limits.first_byte_s < limits.idle_s else first)
                while data is not None:
                    if is_stream:
                        for chunk in reader.feed(data):
                            yield chunk
                        if reader.is_behind:
                            async for chunk in _caught_up(reader):
                                yield chunk
                    else:
                        whole.append(data)
                        size += len(data)
                        if size > limits.body_bytes:
                            raise LimitExceeded(f"the answer is larger than {limits.body_bytes} bytes")
                    timer.check()
                    data = await anext(pieces, None)
                for chunk in reader.close() if is_stream else reader.read_whole(b"".join(whole)):
                    yield chunk
                async for chunk in _caught_up(reader):
                    yield chunk
                await _drop_if_more_came(response)
            finally:
                await response.aclose()

    async def _send(self, pool: _Pool, attempt: _Attempt) -> httpx2.Response | DirectAnswer:
        import httpcore2
        import httpx2

        auth = await self._auth()
        attempt.secrets = [value.removeprefix("Bearer ") for value in auth.values()]
        letter = attempt.letter
        address = self._address(letter.url)
        extensions: dict[str, Any] = {"timeout": attempt.timeouts}
        if attempt.is_watched:
            extensions["trace"] = attempt.trace
        try:
            if pool.direct is not None:
                return await pool.direct.post(address.target, self._head(address, auth, letter), letter.body, extensions)
            request = httpx2.Request(
                "POST",
                address.url,
                headers=self._head(address, auth, letter),
                stream=httpx2.ByteStream(letter.body),
                extensions=extensions,
            )
            return await pool.client.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpcore2.ConnectError, httpcore2.ConnectTimeout):
            attempt.is_stale = False
            raise

    def _head(self, address: _Address, auth: dict[str, str], letter: Letter) -> list[tuple[bytes, bytes]]:
        """The headers of a request: those of the conversation, whose keys rarely change, and the length of this one."""
        if address.auth != auth:
            try:
                named = {name.lower(): value.encode("ascii") for name, value in auth.items()}
            except UnicodeEncodeError:
                raise ProtocolError("the request cannot be sent: a header of the credentials is not plain ASCII") from None
            known = {name: value.encode("ascii") for name, value in _HEADERS.items()}
            address.head = [(b"host", address.host), *((n.encode(), v) for n, v in (known | named).items())]
            address.auth = auth
        return [*address.head, (b"content-length", b"%d" % len(letter.body))]

    def _address(self, url: str) -> _Address:
        """The URL taken apart: the same work for every request of a conversation."""
        import httpcore2
        import httpx2

        known = self._addresses.get(url)
        if known is None:
            if len(self._addresses) > 100:
                self._addresses.clear()
            request = httpx2.Request("POST", url)
            parsed = request.url
            target = httpcore2.URL(
                scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path
            )
            known = self._addresses[url] = _Address(parsed, target, request.headers["host"].encode("ascii"))
        return known

    async def _refusal(self, response: httpx2.Response | DirectAnswer, attempt: _Attempt, timer: _Timer) -> Failure:
        import httpx2

        from callgate.wire.direct import ERRORS

        status = response.status_code
        if not response.is_error:
            return Failure(ProtocolError(f"the server redirects (HTTP {status}), which is not followed"), retry=False)
        data = b""
        pieces = response.aiter_bytes()
        # The status says enough even if the body breaks off.
        with contextlib.suppress(httpx2.HTTPError, _Failed, *ERRORS):
            while len(data) < _ERROR_BYTES_MAX:
                piece = await timer.within(self._limits.idle_s, anext(pieces, None))
                if piece is None:
                    break
                data += piece
        error = self._error_object(data[:_ERROR_BYTES_MAX], status)
        return self._dialect.failure_of(status, error, response.headers, now=time.time(), sent=attempt.letter.sent)

    def _error_object(self, data: bytes, status: int) -> JsonObject:
        """The error that a body tells of, in whatever form: JSON, an array of it, a web page, or nothing."""
        reader = self._dialect.reader(event_bytes_max=_ERROR_BYTES_MAX, total_bytes_max=_ERROR_BYTES_MAX)
        try:
            chunks = [*reader.feed(data), *reader.close()]
        except ModelError as error:
            return {"message": f"HTTP {status}" + (f": {error}" if data.strip() else " without a body")}
        return next(
            (error for error in map(self._dialect.error_in, chunks) if error is not None), {"message": f"HTTP {status}"}
        )

    def _pool(self) -> _Pool:
        """The connections of the running event loop, to be used as a context."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = self._new_pool()
        return pool

    def _new_pool(self) -> _Pool:
        import httpx2

        from callgate.wire.direct import Connections, has_proxies

        if self._ssl is None:
            # Reading the trusted certificates takes longer than everything else here.
            self._ssl = httpx2.create_ssl_context()
        limits = httpx2.Limits(
            max_connections=_CONNECTIONS_MAX,
            max_keepalive_connections=_CONNECTIONS_KEPT,
            keepalive_expiry=_KEPT_FOR_S,
        )
        return _Pool(
            httpx2.AsyncClient(
                # Waiting for data is timed by `_Timer`, per phase; the client itself only times what happens before.
                timeout=httpx2.Timeout(None, connect=self._limits.connect_s),
                limits=limits,
                verify=self._ssl,
                follow_redirects=False,
            ),
            None if has_proxies() else Connections(trust=self._ssl, limits=limits),
        )

    # Between attempts -----------------------------------------------------------------------------------------------------

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
        return self._dice.uniform(0, backoff_s) if wait_s is None else wait_s * self._dice.uniform(1, 1 + _JITTER)


class _Failed(Exception):
    """An attempt failed in a way that is already understood."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(type(failure.error).__name__)
        self.failure = failure


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One request on its way."""

    letter: Letter
    timeouts: dict[str, float | None]
    """What the HTTP client times by itself, in seconds."""
    secrets: list[str] = field(default_factory=list[str], repr=False)
    """What must appear in no error."""
    is_watched: bool = False
    """Whether the HTTP client tells what it does. It takes time, so only after a connection broke that may have been old."""
    is_stale: bool = False
    """Nothing came back yet, over a connection that had been used before, as far as is known."""

    async def trace(self, event: str, info: Any) -> None:
        """Hears from the HTTP client what it does."""
        if event == "connection.connect_tcp.started":
            self.is_stale = False

    def hide_secrets(self, error: ModelError) -> None:
        """Takes out of the error what the server echoed."""
        error.args = tuple(masked(text, self.secrets) if isinstance(text, str) else text for text in error.args)


@dataclass(slots=True)
class _Address:
    """Where requests go, in the words of whoever sends them."""

    url: httpx2.URL
    target: httpcore2.URL
    host: bytes
    auth: dict[str, str] | None = field(default=None, repr=False)
    """The credentials that are in `head`."""
    head: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]], repr=False)


@dataclass(slots=True)
class _Pool:
    """The connections of one event loop; they outlive their retirement until the last request over them has ended."""

    client: httpx2.AsyncClient
    """Connections through a proxy, and whatever is not a request of a conversation."""
    direct: Connections | None
    """Connections straight to the server."""
    users: int = 0
    is_retired: bool = False
    has_answered: bool = False
    """Whether there may be a connection that had been used before."""

    async def __aenter__(self) -> _Pool:
        self.users += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.users -= 1
        await self.close_if_done()

    async def retire(self) -> None:
        self.is_retired = True
        await self.close_if_done()

    async def close_if_done(self) -> None:
        if self.is_retired and not self.users:
            await self.client.aclose()
            if self.direct is not None:
                await self.direct.aclose()


class _Timer:
    """Keeps the time of one answer, by a clock that nobody can set."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self._deadline = time.monotonic() + total_s

    async def within(self, seconds: float, work: Awaitable[T]) -> T:
        """Waits for the work so long, or until the whole answer is late.

        Raises:
            RequestTimeout: time is over. Not to be tried again by itself: the caller has waited long enough.
        """
        left_s = self._deadline - time.monotonic()
        try:
            async with asyncio.timeout(min(seconds, left_s)):
                return await work
        except TimeoutError:
            if seconds < left_s:
                raise _too_late(f"the server sent nothing for {seconds:g} s") from None
            raise self._over() from None

    def check(self) -> None:
        """Raises as `within` does if the whole answer is late by now."""
        if time.monotonic() > self._deadline:
            raise self._over()

    def _over(self) -> _Failed:
        return _too_late(f"the answer was not complete within {self._total_s:g} s")


def _too_late(told: str) -> _Failed:
    return _Failed(Failure(RequestTimeout(told, retryable=True), retry=False))


async def _caught_up(reader: Reader) -> AsyncGenerator[JsonObject, None]:
    """What the reader left because it takes long; others run in between."""
    for chunks in reader.catch_up():
        for chunk in chunks:
            yield chunk
        await asyncio.sleep(0)


def _refuse_encoding(response: httpx2.Response | DirectAnswer) -> None:
    """Refuses what was not asked for: whether it can be read would depend on what happens to be installed."""
    names = [name.strip().lower() for name in response.headers.get("content-encoding", "").split(",")]
    if strange := [name for name in names if name not in ("", "identity", "gzip", "deflate")]:
        raise ProtocolError(f"the answer is encoded as {strange[0][:40]!r}, which was not asked for")


async def _drop_if_more_came(response: httpx2.Response | DirectAnswer) -> None:
    """Closes a connection on which bytes followed the answer, because they would be taken for the next one.

    The HTTP client looks at the socket before it uses a connection again, but not at what it has already read from it; there
    is no public way to ask for that.
    """
    found: Any = response
    for name in ("stream", "_stream", "_httpcore_stream") if hasattr(response, "stream") else ("_stream",):
        found = getattr(found, name, None)
    for name in ("_stream", "_connection", "_h11_state"):
        found = getattr(found, name, None)
    if found is not None and found.trailing_data[0]:
        await response.extensions["network_stream"].aclose()
