"""One answer by the Interactions API, over as many requests as it takes.

A request of the runtime comes in; response chunks in Gemini's form go out. The shortest request that the server takes is
made: only what is new where the server has the rest, else everything. A stream that breaks off is taken up again by its
id, a background run is asked for until it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TypeAlias

from callgate.content.build import say
from callgate.errors import (
    AuthError,
    ConnectionLostError,
    InvalidRequestError,
    LimitExceededError,
    ModelError,
    ProtocolError,
    RequestTimeoutError,
    ServerUnavailableError,
)
from callgate.events import Notice
from callgate.gemini.gone_files import missing_file_notice
from callgate.interactions.agents import is_background, request_for_agent
from callgate.interactions.answer import COMPLETE, PENDING, AnswerReader
from callgate.interactions.client import InteractionsClient
from callgate.interactions.failures import is_lost_state, is_signature_refused, unknown_step
from callgate.interactions.record import fold
from callgate.interactions.request import BodyBuilder, is_stored
from callgate.interactions.steps import Chain
from callgate.request import Accepted, ModelRequest, PartialCall
from callgate.types import JsonObject
from callgate.wire.client import RetryingStream
from callgate.wire.credentials import checked_headers

__all__ = ["ask"]

HOPS_MAX = 32
"""The limit of requests for one answer."""
IDLE_HOPS_MAX = 3
"""The limit of requests in a row that bring nothing."""
RESUMES_MAX = 3
"""Maximum number of times that a broken stream is resumed."""
KEPT_S = 20 * 3600.0
"""Seconds that an interaction is assumed to be stored: a day on the free tier, less a margin."""
POLL_S, POLL_MAX_S = 1.0, 10.0
"""The shortest and the longest wait before a background run is asked for again."""
IDLE_STREAMS_MAX = 2
"""Consecutive empty streams of a background run before only the whole of it is requested."""
BEGUN_S = 5.0
"""Seconds that a cancelled caller waits for the id of a run that the server was asked to begin, to stop it."""
LOST_MAX = 3
"""Maximum number of times that the server may not know a background run which it has just accepted."""

_BROKEN = (ConnectionLostError, ProtocolError, ServerUnavailableError, RequestTimeoutError)
_Items: TypeAlias = "AsyncGenerator[JsonObject | Notice | Accepted | PartialCall, None]"


async def ask(
    client: InteractionsClient, bodies: BodyBuilder, model: str, request: ModelRequest, *, now: Callable[[], float]
) -> _Items:
    """The answer to the shortest request that the server takes: chained, whole, or whole without signatures.

    Raises:
        ModelError: there is no answer, or it broke off.
        UsageError: a setting or a tool that this API does not have.
    """
    stored = is_stored(request.settings, model)
    request, notices = request_for_agent(model, request)
    chain = bodies.writer.chain(request.conversation, now=now()) if stored else None
    for notice in [*notices, *bodies.notices(request, chain)]:
        yield notice
    own = True
    accepted = request.accepted if request.accepted is not None and request.accepted.origin == bodies.origin else None
    is_repeated = False
    while True:
        answer = _Answer(
            client, bodies, model, request, stored=stored, chain=chain, own=own, until=now() + KEPT_S, accepted=accepted
        )  # fmt: skip
        try:
            async with contextlib.aclosing(answer.chunks()) as items:
                async for item in items:
                    yield item
            return
        except _BROKEN as error:
            # Pieces of a call are shown, and nothing has run.
            if is_repeated or not answer.is_repeatable or not error.retryable:
                raise
            is_repeated, accepted = True, None
            yield Notice("waiting", f"The answer broke off within a call and is asked for again: {error}", "warning")
        except (InvalidRequestError, AuthError) as error:
            if answer.reader.has_said:
                raise
            if (notice := _adapted(bodies, error)) is not None:
                chain = accepted = None  # What the server has kept refers to it, too.
                yield notice
                continue
            is_signed = own and chain is None and bodies.body(request) != bodies.body(request, own=False)
            own_left = own and (chain is not None or is_signed)
            what, chain, own = _without_state(error, is_accepted=accepted is not None, chain=chain, own=own_left)
            accepted = None
            for notice in [Notice("state_lost", f"{what}: {error}", "warning"), *bodies.notices(request, chain)]:
                yield notice


async def _stop(client: InteractionsClient, model: str, interaction: str) -> None:
    """Stop a run at the server. One that is over cannot be stopped, and one that is unknown need not be."""
    with contextlib.suppress(ModelError):
        await client.cancel(model, interaction)


def _adapted(bodies: BodyBuilder, error: ModelError) -> Notice | None:
    """Leave out what the server does not have any more, or does not take back; None if the error names nothing of that."""
    if isinstance(error, InvalidRequestError) and error.gone_file and bodies.leave_out_file(error.gone_file):
        return missing_file_notice(error.gone_file)
    kind = unknown_step(error)
    if kind is None or not bodies.leave_out_steps(kind):
        return None
    told = f"The server does not take back steps of the type {kind!r}, and is sent the conversation without them."
    return Notice("adapted", told, "warning")


def _without_state(
    error: InvalidRequestError | AuthError, *, is_accepted: bool, chain: Chain | None, own: bool
) -> tuple[str, Chain | None, bool]:
    """Return a sentence of what the server has lost, and the chain and signatures that are left for another request.

    Raises:
        ModelError: the error, which another request would not help.
    """
    if is_accepted and error.status == "NOT_FOUND":
        return "The server does not know the background run any more, which is begun again", chain, own
    if chain is not None and is_lost_state(error):
        return "The server does not continue the conversation that it has, and is sent all of it", None, own
    if own and is_signature_refused(error):
        return "The server refused a signature of its own, and is sent the history without signatures", None, False
    raise error


class _Answer:
    """One answer, of as many requests as the server breaks it into."""

    def __init__(  # noqa: PLR0913 - one answer with all that it takes
        self,
        client: InteractionsClient,
        bodies: BodyBuilder,
        model: str,
        request: ModelRequest,
        *,
        stored: bool,
        chain: Chain | None,
        own: bool,
        until: float,
        accepted: Accepted | None,
    ) -> None:
        self._client = client
        self._bodies = bodies
        self._model = model
        self._request = request
        self._accepted = accepted
        """The server's word that it has taken the request already, in the way that it was made then."""
        is_known = accepted is not None and accepted.background is not None
        self._is_behind = bool(accepted and accepted.background) if is_known else is_background(request.settings, model)
        self._stored = stored or (is_known and self._is_behind)
        self._chain = chain
        self._own = own
        self._headers = checked_headers(request.settings.get("headers")) or None
        self._until: float | None = None
        """The deadline of the whole answer, by the client's clock."""
        self._lost = 0
        """Consecutive times that the server did not know a run which it had accepted."""
        self._idle_streams = 0
        """Consecutive empty streams."""
        self._told: set[str] = set()
        """The ids of interactions that the caller has."""
        self._kept_as = bodies.origin
        """The origin of the interactions that the server keeps."""
        self._kept_until = until
        """The time at which the server forgets the answer, in seconds since 1970."""
        self.reader = self._new_reader()

    @property
    def is_repeatable(self) -> bool:
        """True if the answer can be asked for again, because all that a caller has seen of it are pieces of calls."""
        return self.reader.has_announced and not self.reader.has_said and not self._is_behind

    def _new_reader(self) -> AnswerReader:
        seen = self._seen() if self._stored else ""
        return AnswerReader(
            origin=self._bodies.origin, seen=seen, until=self._kept_until, is_behind=self._is_behind
        )  # fmt: skip

    def _seen(self) -> str:
        seen = self._bodies.writer.seen(self._request.conversation)
        # A sentence beside the history is part of what the server keeps, and of nothing else.
        return fold(seen, self._request.feedback.encode("utf-8", "replace")) if self._request.feedback else seen

    async def chunks(self) -> _Items:
        """The chunks of the answer, over as many requests as it takes."""
        accepted = self._accepted
        if accepted is not None and not self._is_behind:
            for item in (found := await self._taken_up(accepted)):
                yield item
            if found:
                return
            lost = f"The server has no complete answer under the id {accepted.id}, and is sent the request again."
            yield Notice("state_lost", lost, "warning")
            accepted, self._is_behind = None, is_background(self._request.settings, self._model)
            self.reader = self._new_reader()
        async with contextlib.aclosing(self._background(accepted) if self._is_behind else self._foreground()) as items:
            async for item in items:
                yield item

    async def _foreground(self) -> _Items:
        tokens: set[str] = set()
        idle = 0
        for _ in range(HOPS_MAX):
            before, token, token_of = self.reader.size, self.reader.token, self.reader.id if self._stored else None
            if token is not None:
                self.reader.go_on()
                self._kept_as = f"{self._bodies.origin} rest"  # The rest alone is no answer that could be taken up.
            body = self._bodies.body(self._request, chain=self._chain, own=self._own, token=token, token_of=token_of or None)
            async with contextlib.aclosing(self._hop(body)) as items:
                async for item in items:
                    yield item
            if self.reader.token is None or self.reader.status != "requires_continuation":
                return
            idle = 0 if self.reader.size > before else idle + 1
            if self.reader.token in tokens or idle >= IDLE_HOPS_MAX:
                raise ProtocolError("the server asks for a continuation that brings nothing new", retryable=True)
            tokens.add(self.reader.token)
        raise LimitExceededError(f"the answer came in {HOPS_MAX} pieces and was still not complete", retryable=True)

    async def _taken_up(self, accepted: Accepted) -> list[JsonObject | Notice | Accepted | PartialCall]:
        """The answer that another process was receiving when it ended; empty if the server has none that is complete."""
        self.reader.id = accepted.id
        self._told.add(accepted.id)
        with contextlib.suppress(ModelError):
            async with contextlib.aclosing(self._read(self._fetched(stream=False))) as items:
                found = [item async for item in items]
            if self.reader.is_over and self.reader.status in COMPLETE:
                return found
            if self.reader.status in PENDING:
                await self._cancel()
        return []

    # In the foreground ----------------------------------------------------------------------------------------------------

    async def _hop(self, body: bytes) -> _Items:
        """One request, and its stream taken up again by its id where the server keeps it."""
        items = self._created(body, stream=self._request.stream)
        resumes = 0
        broken: ModelError | None = None
        while True:
            try:
                async with contextlib.aclosing(self._read(items)) as read:
                    async for item in read:
                        yield item
                self._until = items.until
                if not self.reader.is_over:
                    status = self.reader.status or "not completed"
                    raise ProtocolError(f"the answer ended early: the interaction is {status}", retryable=True)
                return
            except InvalidRequestError as error:
                if broken is None:
                    raise
                if error.status == "NOT_FOUND" or resumes >= RESUMES_MAX:
                    raise broken from error  # There is nothing to take up.
                resumes = RESUMES_MAX
                items = self._fetched(stream=False, until=self._until)
            except _BROKEN as error:
                self._until = items.until
                if not self._can_resume(error) or resumes >= RESUMES_MAX:
                    raise
                broken = broken or error
                resumes += 1
                yield Notice("waiting", f"The stream of interaction {self.reader.id} is taken up again: {error}", "warning")
                # The last attempt asks for the whole of it: some streams give a few events and then nothing.
                is_last = resumes == RESUMES_MAX
                items = self._fetched(stream=not is_last, until=self._until)

    def _can_resume(self, error: ModelError) -> bool:
        return self._stored and bool(self.reader.id) and not self.reader.is_over and error.retryable

    def _created(self, body: bytes, *, stream: bool) -> RetryingStream:
        tools = self._request.declaration.names.values()
        return self._client.create(
            self._model, body, stream=stream, tools=tools, headers=self._headers, until=self._until
        )  # fmt: skip

    def _fetched(self, *, stream: bool, until: float | None = None) -> RetryingStream:
        self.reader.resume()
        last_event = self.reader.last_event if stream else ""
        return self._client.get(
            self._model, self.reader.id, stream=stream, last_event=last_event, headers=self._headers, until=until
        )  # fmt: skip

    async def _read(self, items: RetryingStream) -> _Items:
        async with contextlib.aclosing(items):
            async for item in items:
                if isinstance(item, Notice):
                    yield item
                    continue
                for said in self.reader.feed(item):
                    if (kept := self._new_id()) is not None:
                        yield kept
                    yield said
                if (kept := self._new_id()) is not None:
                    yield kept
                if (status := self.reader.progress) and self._is_behind:
                    self.reader.progress = ""
                    yield Notice("progress", f"The server works on interaction {self.reader.id}: {status}.")

    def _new_id(self) -> Accepted | None:
        """The id of an interaction that the server keeps, the first time that it is heard of, unless the answer has it."""
        id = self.reader.id
        if not self._stored or not id or id in self._told or self.reader.is_recorded:
            return None
        self._told.add(id)
        return Accepted(id, self._kept_as, self._cancel if self._is_behind else None, self._is_behind)

    # In the background ----------------------------------------------------------------------------------------------------

    async def _background(self, accepted: Accepted | None) -> _Items:
        """A run at the server: accepted once, and asked for until it is done, by any process."""
        clock, limit_s = self._client.clock, self._client.limits.background_s
        limit_s = min(limit_s, self._request.background_s or limit_s)
        deadline = clock.now() + limit_s
        if accepted is None:
            async with contextlib.aclosing(self._start_run()) as items:
                async for item in items:
                    yield item
        else:
            self.reader.id = accepted.id
            self._told.add(accepted.id)
            yield Accepted(accepted.id, accepted.origin, self._cancel, background=True)
        wait_s = POLL_S
        while not self.reader.is_over:
            async with contextlib.aclosing(self._request_run(is_new=accepted is None, until=deadline)) as items:
                async for item in items:
                    yield item
            if self.reader.is_over:
                return
            if (left_s := deadline - clock.now()) <= 0:
                await self._cancel()
                raise RequestTimeoutError(f"the background run {self.reader.id} was not done within {limit_s:g} s")
            await clock.sleep(min(self._client.dice.uniform(wait_s / 2, wait_s), left_s))
            wait_s = min(wait_s * 1.5, POLL_MAX_S)

    async def _start_run(self) -> _Items:
        """Make the server begin a run; its id goes out before anything that names it, so that another process can ask."""
        body = self._bodies.body(self._request, chain=self._chain, own=self._own)
        found: asyncio.Queue[JsonObject | Notice | Accepted | PartialCall | None] = asyncio.Queue()

        async def post() -> None:
            try:
                async with contextlib.aclosing(self._read(self._created(body, stream=False))) as items:
                    async for item in items:
                        found.put_nowait(item)
            finally:
                found.put_nowait(None)

        # In a task of its own: whatever interrupts the wait, a run that the server has begun is stopped by its id.
        posting = asyncio.create_task(post())
        is_known = False
        try:
            while (item := await found.get()) is not None:
                is_known = is_known or isinstance(item, Accepted)
                yield item
            await posting
        finally:
            if not is_known:
                await self._stop_unnamed(posting)
        if not self.reader.is_over and not self.reader.id:
            raise ProtocolError("the server accepted a background run and did not return its id", retryable=True)

    async def _stop_unnamed(self, posting: asyncio.Task[None]) -> None:
        """Stop a run whose id has reached nobody: the wait for it was interrupted while the server was asked to begin it."""
        try:
            await asyncio.wait({posting}, timeout=BEGUN_S)
        finally:
            posting.cancel()
        with contextlib.suppress(ModelError, asyncio.CancelledError):
            await posting
        if self.reader.id and not self.reader.is_over:
            await self._cancel()

    async def _request_run(self, *, is_new: bool, until: float) -> _Items:
        """Ask once for a run: its events while it works, then the whole of it, since a stream may just end, or never."""
        try:
            if self._request.stream and not self._lost and self._idle_streams < IDLE_STREAMS_MAX:
                async with contextlib.aclosing(self._streamed(until)) as items:
                    async for item in items:
                        yield item
            if not self.reader.is_over:
                async with contextlib.aclosing(self._read(self._fetched(stream=False))) as items:
                    async for item in items:
                        yield item
            self._lost = 0
        except InvalidRequestError as error:
            if error.status != "NOT_FOUND" or not is_new:
                raise
            self._lost += 1
            if self._lost >= LOST_MAX:
                told = f"the server does not know the background run {self.reader.id} that it accepted: {error}"
                raise ServerUnavailableError(told, retryable=True) from error
        except _BROKEN as error:
            if self.reader.is_over or not error.retryable:
                raise

    async def _streamed(self, until: float) -> _Items:
        """The events of a run as far as its stream gives any; whatever is wrong with it, the whole run can be asked for."""
        before, end = self.reader.last_event or self.reader.size, None
        try:
            async with contextlib.aclosing(self._read(self._fetched(stream=True, until=until))) as items:
                async for item in items:
                    if self.reader.is_over and isinstance(item, dict):
                        end = item
                    else:
                        yield item
        except (InvalidRequestError, *_BROKEN):
            if self.reader.is_over:
                raise
        is_idle = (self.reader.last_event or self.reader.size) == before
        self._idle_streams = self._idle_streams + 1 if is_idle else 0
        if end is not None:
            yield await self._with_usage(end)

    async def _with_usage(self, end: JsonObject) -> JsonObject:
        """The last chunk of an answer with its tokens, which some streams leave out and the whole run has."""
        if self.reader.usage is None:
            with contextlib.suppress(ModelError):
                async with contextlib.aclosing(self._fetched(stream=False)) as items:
                    async for item in items:
                        if isinstance(item, dict):
                            self.reader.count(item)
        return end if self.reader.usage is None else {**end, **say(usage=self.reader.usage)}

    async def _cancel(self) -> None:
        await _stop(self._client, self._model, self.reader.id)
