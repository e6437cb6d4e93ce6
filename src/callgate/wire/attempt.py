"""One attempt at a request, and its answer: each step within its time, every error understood, chunks as soon as may be.

A request comes in, response chunks go out in the groups in which they arrived. Chunks that say nothing wait for one that
does: up to then nobody has seen anything of the answer, so that it can be asked for again. Whether it is, others decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

from callgate.errors import LimitExceededError, ModelError, ProtocolError, RequestTimeoutError
from callgate.types import JsonObject, Limits
from callgate.wire.credentials import redact, secrets_of
from callgate.wire.dialect import Dialect, HttpRequest, Response
from callgate.wire.failures import Failure, HttpError, failure_of_exception, proxy_login
from callgate.wire.network import SendTimeoutError
from callgate.wire.sender import Pool, Sender

__all__ = ["Attempt"]

logger = logging.getLogger("callgate.wire")

ERROR_BYTES_MAX = 256 * 1024
END_S = 3.0
"""The longest wait for the end of a body whose answer is complete."""
_closing: set[asyncio.Task[None]] = set()
"""Tasks that close the connections of abandoned answers, referenced until they are done."""


class _FailedError(Exception):
    """The attempt failed in a way that is understood."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(type(failure.error).__name__)
        self.failure = failure


class Attempt:
    """One attempt at a request, and its response. `aclose` ends it in any state.

    Args:
        request: What is sent.
        dialect: What the server's words mean.
        sender: What sends it.
        limits: How long each step may take, and how large an answer may be.
        deadline: When the whole answer is late, by the clock of the event loop, which nobody can set.
        accepted: Called when the head of the answer has come and has a status of success.
        fresh: Whether a connection that was used before will not do.
    """

    def __init__(
        self,
        request: HttpRequest,
        *,
        dialect: Dialect,
        sender: Sender,
        limits: Limits,
        deadline: float,
        accepted: Callable[[], None],
        fresh: bool = False,
    ) -> None:
        self.request = request
        self.is_over = False
        """True if all chunks of a right answer have been given out."""
        self.is_cut = False
        """True if the answer was complete and the body that it came in was not."""
        self._auth: Mapping[str, str] = {}
        self._dialect = dialect
        self._sender = sender
        self._limits = limits
        self._deadline = deadline
        self._accepted = accepted
        self._fresh = fresh
        # There is only one event in a whole answer, so it may be as large as the answer.
        event_bytes = limits.event_bytes if request.stream else limits.body_bytes
        self._reader = dialect.reader(event_bytes_max=event_bytes, total_bytes_max=limits.body_bytes, leaves_heavy=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: Pool | None = None
        self._response: Response | None = None
        self._behind: Iterator[list[JsonObject]] | None = None
        """Input that the reader deferred because parsing it takes long."""
        self._held: list[JsonObject] = []
        self._has_spoken = self._has_ended = self._is_read = False
        self._trouble: Exception | None = None
        """The failure that follows the chunks of a partly valid answer."""

    async def chunks(self) -> list[JsonObject] | Failure:
        """The next chunks for the caller; an empty list at the end; a `Failure` if there is no answer or it broke off.

        The request is sent when the first are asked for.
        """
        try:
            if not self.request.stream and not self.is_over:
                return await self._whole()
            while self._trouble is None and not self.is_over:
                if self._behind is not None:
                    batch = await self._caught_up(self._behind)
                else:
                    if (response := self._response) is None:
                        response = await self._open_response(self._limits.first_byte_s)
                    else:
                        self._go_on(response)
                    data = await self._piece(response) if self._has_ended else await response.piece()
                    batch = [] if data is None else self._fed(data)
                    if data is None or response.is_over:
                        self._is_read = True
                        await self.aclose()
                if ready := self._looked_through(batch):
                    return ready
            if self._trouble is not None:
                raise self._trouble
        except Exception as error:
            if (failure := self._failure_of(error)) is None:
                raise
            self._hide_secrets(failure.error)
            return failure
        return []

    async def aclose(self) -> None:
        """Release the connection: back to the pool if it is clean, closed otherwise."""
        response, self._response = self._response, None
        pool, self._pool = self._pool, None
        try:
            if response is not None:
                await response.aclose()
        except Exception as error:
            # An answer that is there stays one if its connection cannot be closed in order.
            if self._failure_of(error) is None:
                raise
            logger.debug("a connection could not be closed in order: %r", error)
        finally:
            if pool is not None and pool.leave():
                await pool.aclose()

    def give_up(self) -> None:
        """Close like `aclose`, from places that cannot await, such as the garbage collector of another thread."""
        loop = self._loop
        if loop is not None and self._pool is not None:
            with contextlib.suppress(RuntimeError):  # The event loop was closed, and its connections with it.
                loop.call_soon_threadsafe(self._close_later, loop)

    def _close_later(self, loop: asyncio.AbstractEventLoop) -> None:
        task = loop.create_task(self.aclose())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    # What comes -----------------------------------------------------------------------------------------------------------

    async def _whole(self) -> list[JsonObject]:
        """The chunks of an answer that is not streamed, usually one."""
        # It begins when it is finished, so only its end can be late.
        body = await self._body(await self._open_response(self._limits.total_s))
        if logger.isEnabledFor(logging.DEBUG):
            # A streamed answer is logged when it has been put together: no log could mask a secret in pieces.
            logger.debug("answer: %s", redact(body.decode("utf-8", "replace"), secrets_of(self._auth)))
        chunks = self._reader.read_whole(body)
        if self._reader.is_behind:
            for more in self._reader.catch_up():
                chunks += more
                await asyncio.sleep(0)
        await self.aclose()
        for chunk in chunks:
            if (error := self._dialect.error_in(chunk)) is not None:
                raise self._error_reported(error)
            self._has_ended = self._dialect.look(chunk)[1] or self._has_ended
        if not self._has_ended:
            raise _ended_early()
        self.is_over = True
        return chunks

    async def _body(self, response: Response) -> bytes:
        """All bytes of an answer."""
        pieces: list[bytes] = []
        size = 0
        while not response.is_over and (data := await self._next_of(response, pieces)) is not None:
            pieces.append(data)
            size += len(data)
            if size > self._limits.body_bytes:
                raise LimitExceededError(f"the answer is larger than {self._limits.body_bytes} bytes")
            self._go_on(response)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _next_of(self, response: Response, pieces: list[bytes]) -> bytes | None:
        """The next piece of a body, or None after the last: if the answer in it is complete, its end is not waited for.

        A body that breaks off is an error all the same: nothing was shown of it, so it can be asked for again.
        """
        if not pieces or not pieces[-1].rstrip().endswith((b"}", b"]")):
            return await response.piece()
        reading = asyncio.ensure_future(response.piece())
        try:
            await asyncio.wait({reading}, timeout=END_S)
            if not reading.done() and self._is_complete(pieces):
                self.is_cut = True
                return None
            return await reading
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})

    def _is_complete(self, pieces: list[bytes]) -> bool:
        """True if the body so far is an answer with its finish reason."""
        limit = self._limits.body_bytes
        try:
            chunks = self._dialect.reader(event_bytes_max=limit, total_bytes_max=limit).read_whole(b"".join(pieces))
        except ModelError:
            return False
        return any(self._dialect.look(chunk)[1] for chunk in chunks)

    async def _caught_up(self, steps: Iterator[list[JsonObject]]) -> list[JsonObject]:
        """The next chunks of what takes long, if any."""
        if (chunks := next(steps, None)) is not None:
            await asyncio.sleep(0)  # Others run in between.
            return chunks
        self._behind = None
        return []

    def _fed(self, data: bytes) -> list[JsonObject]:
        """The chunks that are complete now."""
        chunks = self._reader.feed(data)
        if self._reader.is_behind:
            self._behind = iter(self._reader.catch_up())
        return chunks

    def _go_on(self, response: Response) -> None:
        """Extend the idle time-out: data arrived, and more is expected."""
        assert self._loop is not None
        left_s = self._deadline - self._loop.time()
        if left_s <= 0:
            raise self._late()
        response.idle_s = min(self._limits.idle_s, left_s)

    async def _piece(self, response: Response) -> bytes | None:
        """Read a piece after the answer in the body is complete: usage or a signature may follow, and the end of the
        body. A server that never says it, or breaks off, has nothing left to say."""
        response.idle_s = min(END_S, response.idle_s or END_S)
        try:
            return await response.piece()
        except Exception as error:
            if self._failure_of(error) is None:
                raise
            self.is_cut = True
            return None

    def _end(self) -> list[JsonObject]:
        """The last chunks when all bytes have come; what is wrong with the answer is kept for the next time."""
        try:
            last = self._reader.close()
            ready = self._allowed(last) if last else last
        except ModelError as error:
            self._trouble = error
            return []
        if self._reader.is_behind:
            self._behind = iter(self._reader.catch_up())
        elif self._trouble is None:
            self.is_over = self._has_ended
            self._trouble = None if self._has_ended else _ended_early()
            return ready + self._held if self.is_over else ready
        return ready

    def _looked_through(self, batch: list[JsonObject]) -> list[JsonObject]:
        """The chunks to release after these arrived, and possibly the end of the answer."""
        ready = self._allowed(batch)
        if self._is_read and self._behind is None and self._trouble is None:
            ready += self._end()
        return ready

    def _allowed(self, batch: list[JsonObject]) -> list[JsonObject]:
        """The chunks to release out of new ones and those that were held back."""
        ready: list[JsonObject] = []
        for chunk in batch:
            if (error := self._dialect.error_in(chunk)) is not None:
                self._trouble = self._error_reported(error)
                break
            is_said, is_end = self._dialect.look(chunk)
            self._has_ended = is_end or self._has_ended
            if self._has_spoken:
                ready.append(chunk)
                continue
            self._held.append(chunk)
            if is_said:
                self._has_spoken = True
                ready, self._held = self._held, []
        return ready

    def _error_reported(self, error: JsonObject) -> _FailedError:
        return _FailedError(self._dialect.failure_of(None, error, {}, now=time.time(), sent=self.request.sent))

    # How it begins --------------------------------------------------------------------------------------------------------

    async def _open_response(self, within_s: float) -> Response:
        """Send the request and check the head of its answer."""
        loop = self._loop = asyncio.get_running_loop()
        pool = self._pool = self._sender.pool(loop)
        limits = self._limits
        auth = self._sender.credentials()
        auth = self._auth = auth if isinstance(auth, dict) else await self._fetched(auth)
        try:
            response = self._response = await self._sender.send(
                pool, self.request, auth, within_s=within_s, until=self._deadline, fresh=self._fresh
            )
        except TimeoutError as error:
            raise self._no_response_error(error, within_s) from None
        self._dialect.inspect_response(response)
        # From here on each read of the socket is timed by itself, which is cheaper than timing each piece.
        response.idle_s = max(0.001, min(limits.first_byte_s, limits.idle_s, self._deadline - loop.time()))
        if not 200 <= response.status_code < 300:
            raise _FailedError(await self._refusal(response))
        self._accepted()
        if response.encoding:
            _refuse_encoding(response.encoding)
        return response

    async def _fetched(self, auth: Awaitable[dict[str, str]]) -> dict[str, str]:
        """The credentials, as soon as they are there."""
        within_s = self._limits.first_byte_s
        assert self._loop is not None
        try:
            async with asyncio.timeout_at(min(self._loop.time() + within_s, self._deadline)):
                return await auth
        except TimeoutError:
            raise (self._late() if self._is_late else _too_late(f"no credentials came within {within_s:g} s")) from None

    def _no_response_error(self, error: TimeoutError, within_s: float) -> _FailedError:
        """The failure for a time-out before the answer began."""
        if self._is_late:
            return self._late()
        if isinstance(error, SendTimeoutError):
            return _too_late(f"the server took nothing of the request for {self._limits.idle_s:g} s")
        return _silent(within_s)

    async def _refusal(self, response: Response) -> Failure:
        status = response.status_code
        if status == 407:
            return proxy_login("HTTP 407")
        if 300 <= status < 400:
            return Failure(ProtocolError(f"the server redirects (HTTP {status}), which is not followed"), retry=False)
        if not 400 <= status < 600:
            return Failure(ProtocolError(f"the server answers with HTTP {status}, which is no status of HTTP"), retry=False)
        data = b""
        try:
            async with asyncio.timeout_at(self._deadline):
                while len(data) < ERROR_BYTES_MAX and (piece := await response.piece()) is not None:
                    data += piece
        except Exception as broken:
            if self._failure_of(broken) is None:
                raise
            # The status says enough even if the body breaks off.
        error = self._error_object(data[:ERROR_BYTES_MAX], status)
        return self._dialect.failure_of(status, error, response.headers, now=time.time(), sent=self.request.sent)

    def _error_object(self, data: bytes, status: int) -> JsonObject:
        """The error in a body of any form: JSON, an array of it, a web page, or nothing."""
        reader = self._dialect.reader(event_bytes_max=ERROR_BYTES_MAX, total_bytes_max=ERROR_BYTES_MAX)
        try:
            chunks = [*reader.feed(data), *reader.close()]
        except ModelError as error:
            return {"message": f"HTTP {status}" + (f": {error}" if data.strip() else " without a body")}
        errors = (error for error in map(self._dialect.error_in, chunks) if error is not None)
        said = (said for said in map(_gateway_message, chunks) if said)
        return next(errors, None) or {"message": next(said, f"HTTP {status}")}

    @property
    def _is_late(self) -> bool:
        # Timers may ring a little early, and uvloop counts milliseconds.
        return self._loop is not None and self._loop.time() >= self._deadline - 0.01

    def _late(self) -> _FailedError:
        return _too_late(f"the answer was not complete within {self._limits.total_s:g} s")

    # What goes wrong ------------------------------------------------------------------------------------------------------

    def _failure_of(self, error: Exception) -> Failure | None:
        """The failure that an exception stands for; None if it is not one of the network."""
        if isinstance(error, _FailedError):
            return error.failure
        if isinstance(error, TimeoutError):
            if self._is_late:
                return self._late().failure
            waited_s = self._response.idle_s if self._response is not None else None
            return _silent(waited_s or self._limits.idle_s).failure
        if isinstance(error, (ModelError, OSError, HttpError)) or _is_of_httpx(error):
            return failure_of_exception(error)
        return None

    def _hide_secrets(self, error: ModelError) -> None:
        """Redact secrets that the server echoed from the error."""
        error.args = tuple(redact(text, secrets_of(self._auth)) if isinstance(text, str) else text for text in error.args)


def _is_of_httpx(error: Exception) -> bool:
    """True if it is an exception of httpx or httpx2, either of which may be the program's."""
    return any(kind.__name__ in ("HTTPError", "InvalidURL", "StreamError") and kind.__module__.startswith("httpx")
               for kind in type(error).__mro__)  # fmt: skip


def _gateway_message(body: JsonObject) -> str:
    """The words of a gateway in an error of its own form, such as `{"message": "..."}` or `{"detail": [{"msg": "..."}]}`."""
    said: object = next((body[key] for key in ("message", "detail", "error_description", "title") if body.get(key)), "")
    return said if isinstance(said, str) else json.dumps(said)


def _silent(seconds: float) -> _FailedError:
    return _too_late(f"the server sent nothing for {seconds:g} s")


def _too_late(message: str) -> _FailedError:
    # Not to be tried again by itself: the caller has waited long enough.
    return _FailedError(Failure(RequestTimeoutError(message, retryable=True), retry=False))


def _refuse_encoding(encoding: str) -> None:
    """Refuse encodings that were not requested: support for them would depend on installed packages."""
    from callgate.wire.content_codec import unknown_encodings

    if strange := unknown_encodings(encoding):
        raise ProtocolError(f"the answer is encoded as {strange[0][:40]!r}, which was not asked for")


def _ended_early() -> ProtocolError:
    return ProtocolError("the answer ended early: it has no finish reason", retryable=True)
