"""Requests to a model over HTTP: time-outs that hold, retries that obey the server, errors that say what happened.

A body comes in, response chunks go out as they arrive, and a `Notice` whenever the caller has to wait. Of a chunk this file
knows only what the server's `Dialect` tells: whether it is an error, whether it says something, whether it ends the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from callgate import __version__
from callgate.errors import LimitExceeded, ModelError, ProtocolError, RequestTimeout
from callgate.events import Notice
from callgate.telemetry import inject
from callgate.types import JsonObject, Limits
from callgate.wire.address import masked
from callgate.wire.dialect import Clock, Dialect, Letter, Pressure, Reader, Response, Turn
from callgate.wire.failures import Failure, failure_of_exception

if TYPE_CHECKING:
    from callgate.wire.http11 import Address, Connections
    from callgate.wire.proxied import Proxied

__all__ = ["HttpClient"]

logger = logging.getLogger("callgate.wire")

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


def _log_answer(body: bytes, secrets: list[str]) -> None:
    """A whole answer. A streamed one is logged when it has been put together: no log could mask a secret in pieces."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("answer: %s", masked(body.decode("utf-8", "replace"), secrets))


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
        self._addresses: dict[str, Address] = {}
        # Connections belong to the event loop that made them, and a gate may be used from several.
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = weakref.WeakKeyDictionary()

    async def chunks(  # noqa: C901 - one attempt after another, and each may end in many ways
        self, letter: Letter, pressure: Pressure
    ) -> AsyncGenerator[JsonObject | Notice, None]:
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
            attempt = _Attempt(letter=letter, is_watched=is_watched)
            shown = False
            try:
                if not letter.stream:
                    # Nothing of a whole answer is shown before all of it is there, so it needs no generators.
                    whole = await self._whole(attempt)
                    turn.succeeded()
                    shown = True
                    for chunk in whole:
                        yield chunk
                    return
                async with contextlib.aclosing(self._pieces(attempt)) as chunks:
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
        loop = asyncio.get_running_loop()
        pool = self._pools.pop(loop, None)
        if pool is not None:
            await pool.retire()

    # One attempt ----------------------------------------------------------------------------------------------------------

    async def _whole(self, attempt: _Attempt) -> list[JsonObject]:
        """The chunks of an answer that is wanted whole, mostly one."""
        limits = self._limits
        # There is only one event in a whole answer, so it may be as large as the answer.
        reader = self._dialect.reader(
            event_bytes_max=limits.body_bytes, total_bytes_max=limits.body_bytes, leaves_heavy=True
        )
        timer = _Timer(limits.total_s)
        with _Understood(self, attempt):
            async with self._pool() as pool:
                # It begins when it is finished, so only its end can be late.
                response = await timer.within(limits.total_s, self._send(pool, attempt))
                try:
                    await self._accept(response, attempt, timer)
                    body = await self._body(response, timer)
                    _log_answer(body, attempt.secrets)
                    chunks = reader.read_whole(body)
                    if reader.is_behind:
                        chunks += [chunk async for chunk in _caught_up(reader)]
                finally:
                    await response.aclose()
            has_ended = False
            for chunk in chunks:
                self._refuse_error(chunk, attempt)
                has_ended = has_ended or self._dialect.is_end(chunk)
            if not has_ended:
                raise _ended_early()
            return chunks

    async def _body(self, response: Response, timer: _Timer) -> bytes:
        """All bytes of an answer."""
        limits = self._limits
        data = await self._first_piece(response, timer)
        pieces: list[bytes] = []
        size = 0
        while data is not None:
            pieces.append(data)
            size += len(data)
            if size > limits.body_bytes:
                raise LimitExceeded(f"the answer is larger than {limits.body_bytes} bytes")
            timer.check()
            data = await response.piece()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _pieces(self, attempt: _Attempt) -> AsyncGenerator[JsonObject, None]:
        """The chunks of one answer, each as soon as the caller may have it.

        Chunks that say nothing wait for one that does: up to then nobody has seen anything of the answer, so that it can be
        asked for again.
        """
        held: list[JsonObject] = []
        has_spoken = has_ended = False
        with _Understood(self, attempt):
            async with contextlib.aclosing(self._received(attempt)) as batches:
                async for batch in batches:
                    for chunk in batch:
                        self._refuse_error(chunk, attempt)
                        has_ended = has_ended or self._dialect.is_end(chunk)
                        if has_spoken:
                            yield chunk
                            continue
                        held.append(chunk)
                        has_spoken = self._dialect.says_something(chunk)
                        while has_spoken and held:
                            yield held.pop(0)
            if not has_ended:
                raise _ended_early()
            for chunk in held:
                yield chunk

    async def _received(self, attempt: _Attempt) -> AsyncGenerator[list[JsonObject], None]:
        """Sends the request and reads the answer, each step within its time; chunks that came together come together."""
        limits = self._limits
        reader = self._dialect.reader(
            event_bytes_max=limits.event_bytes, total_bytes_max=limits.body_bytes, leaves_heavy=True
        )
        timer = _Timer(limits.total_s)
        async with self._pool() as pool:
            response = await timer.within(limits.first_byte_s, self._send(pool, attempt))
            try:
                await self._accept(response, attempt, timer)
                data = await self._first_piece(response, timer)
                while data is not None:
                    if chunks := reader.feed(data):
                        yield chunks
                    if reader.is_behind:
                        async for chunk in _caught_up(reader):
                            yield [chunk]
                    timer.check()
                    data = await response.piece()
                yield reader.close()
                async for chunk in _caught_up(reader):
                    yield [chunk]
            finally:
                await response.aclose()

    async def _accept(self, response: Response, attempt: _Attempt, timer: _Timer) -> None:
        """Looks at the head of an answer."""
        attempt.is_stale = False
        self._dialect.heard(response.headers)
        # From here on each read of the socket is timed by itself, which is cheaper than timing each piece.
        response.idle_s = self._limits.idle_s
        if not 200 <= response.status_code < 300:
            raise _Failed(await self._refusal(response, attempt, timer))
        if response.encoding:
            _refuse_encoding(response.encoding)

    async def _first_piece(self, response: Response, timer: _Timer) -> bytes | None:
        limits = self._limits
        first = response.piece()
        return await (timer.within(limits.first_byte_s, first) if limits.first_byte_s < limits.idle_s else first)

    def _refuse_error(self, chunk: JsonObject, attempt: _Attempt) -> None:
        if (error := self._dialect.error_in(chunk)) is not None:
            raise _Failed(self._dialect.failure_of(None, error, {}, now=time.time(), sent=attempt.letter.sent))

    async def _send(self, pool: _Pool, attempt: _Attempt) -> Response:
        auth = await self._auth()
        attempt.secrets = [value.removeprefix("Bearer ") for value in auth.values()]
        letter = attempt.letter
        address = self._address(letter.url)
        if address.auth != auth:
            address.auth, address.head = auth, _head(address.host, auth)
        head = [*address.head, (b"content-length", b"%d" % len(letter.body))]
        carried: dict[str, str] = {}
        inject(carried)
        head += [(name.encode(), value.encode()) for name, value in carried.items()]
        if logger.isEnabledFor(logging.DEBUG):
            told = f"POST {letter.url} {letter.body.decode('utf-8', 'replace')}"
            logger.debug("request: %s", masked(told, attempt.secrets))
        if pool.has_proxies:
            return await pool.proxied().post(address, head, letter.body, attempt)
        return await pool.direct().post(address, head, letter.body, attempt)

    def _address(self, url: str) -> Address:
        from callgate.wire.http11 import Address

        known = self._addresses.get(url)
        if known is None:
            if len(self._addresses) > 100:
                self._addresses.clear()
            known = self._addresses[url] = Address.of(url)
        return known

    async def _refusal(self, response: Response, attempt: _Attempt, timer: _Timer) -> Failure:
        import httpx2

        status = response.status_code
        if not 400 <= status < 600:
            return Failure(ProtocolError(f"the server redirects (HTTP {status}), which is not followed"), retry=False)
        data = b""
        # The status says enough even if the body breaks off.
        with contextlib.suppress(httpx2.HTTPError, _Failed):
            while len(data) < _ERROR_BYTES_MAX:
                piece = await timer.within(self._limits.idle_s, response.piece())
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

        from callgate.wire.proxied import has_proxies

        if self._ssl is None:
            # Reading the trusted certificates takes longer than everything else here.
            self._ssl = httpx2.create_ssl_context()
        return _Pool(trust=self._ssl, connect_s=self._limits.connect_s, has_proxies=has_proxies())

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
    secrets: list[str] = field(default_factory=list[str], repr=False)
    """What must appear in no error."""
    is_watched: bool = False
    """Whether it must be known for sure if a connection is new: after one broke that may have been old."""
    is_stale: bool = False
    """Nothing came back yet, over a connection that had been used before, as far as is known."""

    def hide_secrets(self, error: ModelError) -> None:
        """Takes out of the error what the server echoed."""
        error.args = tuple(masked(text, self.secrets) if isinstance(text, str) else text for text in error.args)


class _Understood:
    """A context in which whatever goes wrong becomes a failure that is understood, without secrets."""

    __slots__ = ("_attempt", "_client")

    def __init__(self, client: HttpClient, attempt: _Attempt) -> None:
        self._client = client
        self._attempt = attempt

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        import httpx2

        if isinstance(error, _Failed):
            self._attempt.hide_secrets(error.failure.error)
        elif isinstance(error, httpx2.ReadTimeout):
            raise _too_late(f"the server sent nothing for {self._client.idle_s:g} s") from error
        elif isinstance(error, (ModelError, httpx2.HTTPError, httpx2.InvalidURL, OSError)):
            failure = failure_of_exception(error)
            self._attempt.hide_secrets(failure.error)
            raise _Failed(failure) from error


@dataclass(slots=True, kw_only=True)
class _Pool:
    """The connections of one event loop; they outlive their retirement until the last request over them has ended."""

    trust: ssl.SSLContext
    connect_s: float
    has_proxies: bool
    users: int = 0
    is_retired: bool = False
    _direct: Connections | None = None
    _proxied: Proxied | None = None

    def direct(self) -> Connections:
        """Connections straight to the server."""
        if self._direct is None:
            from callgate.wire.http11 import Connections

            self._direct = Connections(
                self.trust, connect_s=self.connect_s, at_once=_CONNECTIONS_MAX, kept=_CONNECTIONS_KEPT, kept_s=_KEPT_FOR_S
            )
        return self._direct

    def proxied(self) -> Proxied:
        """Connections through proxies, and for whatever is not a request of a conversation."""
        if self._proxied is None:
            from callgate.wire.proxied import Proxied

            self._proxied = Proxied(
                self.trust, connect_s=self.connect_s, at_once=_CONNECTIONS_MAX, kept=_CONNECTIONS_KEPT, kept_s=_KEPT_FOR_S
            )
        return self._proxied

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
        if not self.is_retired or self.users:
            return
        for connections in (self._direct, self._proxied):
            if connections is not None:
                await connections.aclose()


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


def _refuse_encoding(encoding: str) -> None:
    """Refuses what was not asked for: whether it can be read would depend on what happens to be installed."""
    names = [name.strip().lower() for name in encoding.split(",")]
    if strange := [name for name in names if name not in ("", "identity", "gzip", "deflate")]:
        raise ProtocolError(f"the answer is encoded as {strange[0][:40]!r}, which was not asked for")


def _head(host: bytes, auth: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers that every request of a conversation has."""
    named = _HEADERS | {name.lower(): value for name, value in auth.items()}
    try:
        return [(b"host", host), *((name.encode("ascii"), value.encode("ascii")) for name, value in named.items())]
    except UnicodeEncodeError:
        raise ProtocolError("the request cannot be sent: a header of the credentials is not plain ASCII") from None


def _ended_early() -> ProtocolError:
    return ProtocolError("the answer ended early: it has no finish reason", retryable=True)
