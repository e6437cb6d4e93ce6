"""One letter and its answer: each step within its time, every error understood, chunks as soon as somebody may have them.

A letter comes in, response chunks go out in the groups in which they arrived. Chunks that say nothing wait for one that
does: up to then nobody has seen anything of the answer, so that it can be asked for again. Whether it is, others decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Iterator
from typing import TypeVar

from callgate.errors import LimitExceeded, ModelError, ProtocolError, RequestTimeout
from callgate.types import JsonObject, Limits
from callgate.wire.address import masked
from callgate.wire.dialect import Dialect, Letter, Response
from callgate.wire.failures import Failure, failure_of_exception
from callgate.wire.sender import Pool, Sender

__all__ = ["Exchange", "Failed"]

logger = logging.getLogger("callgate.wire")

T = TypeVar("T")

ERROR_BYTES_MAX = 256 * 1024


class Failed(Exception):
    """An exchange failed in a way that is understood."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(type(failure.error).__name__)
        self.failure = failure


class Exchange:
    """One request on its way and what comes back. `aclose` ends it, whatever became of it."""

    def __init__(
        self, letter: Letter, *, dialect: Dialect, sender: Sender, limits: Limits, is_watched: bool = False
    ) -> None:
        self.letter = letter
        self.secrets: list[str] = []
        """What must appear in no error."""
        self.is_watched = is_watched
        """Whether it must be known for sure if a connection is new: after one broke that may have been old."""
        self.is_stale = False
        """Nothing came back yet, over a connection that had been used before, as far as is known."""
        self._dialect = dialect
        self._sender = sender
        self._limits = limits
        # There is only one event in a whole answer, so it may be as large as the answer.
        event_bytes = limits.event_bytes if letter.stream else limits.body_bytes
        self._reader = dialect.reader(event_bytes_max=event_bytes, total_bytes_max=limits.body_bytes, leaves_heavy=True)
        self._timer = _Timer(limits.total_s)
        self._pool: Pool | None = None
        self._response: Response | None = None
        self._behind: Iterator[list[JsonObject]] | None = None
        """What the reader left because it takes long."""
        self._held: list[JsonObject] = []
        self._has_spoken = self._has_ended = self._is_read = False
        self._trouble: Failed | None = None
        """What is wrong with the answer behind what was right."""

    async def chunks(self) -> list[JsonObject]:
        """The next chunks that the caller may have; none at the end. The letter is sent when the first are asked for.

        Raises:
            Failed: there is no answer, or it broke off.
        """
        try:
            if not self.letter.stream:
                return [] if self._is_read else await self._whole()
            while self._trouble is None:
                batch = await self._batch()
                if batch is None:
                    if not self._has_ended:
                        raise _ended_early()
                    held, self._held = self._held, []
                    return held
                if ready := self._looked_through(batch):
                    return ready
            raise self._trouble
        except Exception as error:
            self._explain(error)
            raise

    async def aclose(self) -> None:
        """Lets go of the connection: for the next request if all is well, for good otherwise."""
        response, self._response = self._response, None
        pool, self._pool = self._pool, None
        try:
            if response is not None:
                await response.aclose()
        finally:
            if pool is not None:
                await pool.__aexit__()

    # What comes -----------------------------------------------------------------------------------------------------------

    async def _whole(self) -> list[JsonObject]:
        """The chunks of an answer that is wanted whole, mostly one."""
        # It begins when it is finished, so only its end can be late.
        response = await self._begun(self._limits.total_s)
        body = await self._body(response)
        if logger.isEnabledFor(logging.DEBUG):
            # A streamed answer is logged when it has been put together: no log could mask a secret in pieces.
            logger.debug("answer: %s", masked(body.decode("utf-8", "replace"), self.secrets))
        chunks = self._reader.read_whole(body)
        if self._reader.is_behind:
            for more in self._reader.catch_up():
                chunks += more
                await asyncio.sleep(0)
        self._is_read = True
        await self.aclose()
        for chunk in chunks:
            self._refuse_error(chunk)
            self._has_ended = self._has_ended or self._dialect.is_end(chunk)
        if not self._has_ended:
            raise _ended_early()
        return chunks

    async def _body(self, response: Response) -> bytes:
        """All bytes of an answer."""
        data = await self._first_piece(response)
        pieces: list[bytes] = []
        size = 0
        while data is not None:
            pieces.append(data)
            size += len(data)
            if size > self._limits.body_bytes:
                raise LimitExceeded(f"the answer is larger than {self._limits.body_bytes} bytes")
            self._timer.check()
            data = await response.piece()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _batch(self) -> list[JsonObject] | None:
        """The chunks that came next, if any; None when there are no more."""
        if self._behind is not None:
            if (chunks := next(self._behind, None)) is not None:
                await asyncio.sleep(0)  # Others run in between.
                return chunks
            self._behind = None
        if self._is_read:
            return None
        if self._response is None:
            data = await self._first_piece(await self._begun(self._limits.first_byte_s))
        else:
            self._timer.check()
            data = await self._response.piece()
        if data is not None:
            chunks = self._reader.feed(data)
        else:
            chunks = self._reader.close()
            self._is_read = True
            await self.aclose()
        if self._reader.is_behind:
            self._behind = iter(self._reader.catch_up())
        return chunks

    def _looked_through(self, batch: list[JsonObject]) -> list[JsonObject]:
        """What the caller may have of some chunks and of those that were held back."""
        ready: list[JsonObject] = []
        for chunk in batch:
            try:
                self._refuse_error(chunk)
            except Failed as failed:
                self._trouble = failed
                break
            self._has_ended = self._has_ended or self._dialect.is_end(chunk)
            if self._has_spoken:
                ready.append(chunk)
                continue
            self._held.append(chunk)
            if self._dialect.says_something(chunk):
                self._has_spoken = True
                ready, self._held = self._held, []
        return ready

    def _refuse_error(self, chunk: JsonObject) -> None:
        if (error := self._dialect.error_in(chunk)) is not None:
            raise Failed(self._dialect.failure_of(None, error, {}, now=time.time(), sent=self.letter.sent))

    # How it begins --------------------------------------------------------------------------------------------------------

    async def _begun(self, within_s: float) -> Response:
        """Sends the letter and looks at the head of its answer."""
        self._pool = await self._sender.pool().__aenter__()
        response = self._response = await self._timer.within(within_s, self._sender.send(self._pool, self))
        self.is_stale = False
        self._dialect.heard(response)
        # From here on each read of the socket is timed by itself, which is cheaper than timing each piece.
        response.idle_s = self._limits.idle_s
        if not 200 <= response.status_code < 300:
            raise Failed(await self._refusal(response))
        if response.encoding:
            _refuse_encoding(response.encoding)
        return response

    async def _first_piece(self, response: Response) -> bytes | None:
        limits = self._limits
        first = response.piece()
        return await (self._timer.within(limits.first_byte_s, first) if limits.first_byte_s < limits.idle_s else first)

    async def _refusal(self, response: Response) -> Failure:
        import httpx2

        status = response.status_code
        if not 400 <= status < 600:
            return Failure(ProtocolError(f"the server redirects (HTTP {status}), which is not followed"), retry=False)
        data = b""
        # The status says enough even if the body breaks off.
        with contextlib.suppress(httpx2.HTTPError, Failed):
            while len(data) < ERROR_BYTES_MAX:
                piece = await self._timer.within(self._limits.idle_s, response.piece())
                if piece is None:
                    break
                data += piece
        error = self._error_object(data[:ERROR_BYTES_MAX], status)
        return self._dialect.failure_of(status, error, response.headers, now=time.time(), sent=self.letter.sent)

    def _error_object(self, data: bytes, status: int) -> JsonObject:
        """The error that a body tells of, in whatever form: JSON, an array of it, a web page, or nothing."""
        reader = self._dialect.reader(event_bytes_max=ERROR_BYTES_MAX, total_bytes_max=ERROR_BYTES_MAX)
        try:
            chunks = [*reader.feed(data), *reader.close()]
        except ModelError as error:
            return {"message": f"HTTP {status}" + (f": {error}" if data.strip() else " without a body")}
        return next(
            (error for error in map(self._dialect.error_in, chunks) if error is not None), {"message": f"HTTP {status}"}
        )

    # What goes wrong ------------------------------------------------------------------------------------------------------

    def _explain(self, error: Exception) -> None:
        """Raises what went wrong as a failure that is understood, without secrets; returns if it is none of these."""
        import httpx2

        if isinstance(error, Failed):
            self._hide_secrets(error.failure.error)
        elif isinstance(error, httpx2.ReadTimeout):
            raise _too_late(f"the server sent nothing for {self._limits.idle_s:g} s") from error
        elif isinstance(error, (ModelError, httpx2.HTTPError, httpx2.InvalidURL, OSError)):
            failure = failure_of_exception(error)
            self._hide_secrets(failure.error)
            raise Failed(failure) from error

    def _hide_secrets(self, error: ModelError) -> None:
        """Takes out of the error what the server echoed."""
        error.args = tuple(masked(text, self.secrets) if isinstance(text, str) else text for text in error.args)


class _Timer:
    """Keeps the time of one answer, by a clock that nobody can set."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self._deadline = time.monotonic() + total_s

    async def within(self, seconds: float, work: Awaitable[T]) -> T:
        """Waits for the work so long, or until the whole answer is late.

        Raises:
            Failed: time is over. Not to be tried again by itself: the caller has waited long enough.
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

    def _over(self) -> Failed:
        return _too_late(f"the answer was not complete within {self._total_s:g} s")


def _too_late(told: str) -> Failed:
    return Failed(Failure(RequestTimeout(told, retryable=True), retry=False))


def _refuse_encoding(encoding: str) -> None:
    """Refuses what was not asked for: whether it can be read would depend on what happens to be installed."""
    names = [name.strip().lower() for name in encoding.split(",")]
    if strange := [name for name in names if name not in ("", "identity", "gzip", "deflate")]:
        raise ProtocolError(f"the answer is encoded as {strange[0][:40]!r}, which was not asked for")


def _ended_early() -> ProtocolError:
    return ProtocolError("the answer ended early: it has no finish reason", retryable=True)
