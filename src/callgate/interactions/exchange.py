"""One answer by the Interactions API, over as many requests as it takes.

A request of the runtime comes in; response chunks in Gemini's form go out. The shortest request that the server takes is
made: only what is new where the server has the rest, else everything. A stream that breaks off is taken up again by its
id, a background run is asked for until it is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TypeAlias

from callgate.errors import (
    ConnectionLostError,
    InvalidRequestError,
    LimitExceededError,
    ModelError,
    ProtocolError,
    RequestTimeoutError,
    ServerUnavailableError,
)
from callgate.events import Notice
from callgate.interactions.agents import is_background, request_for_agent
from callgate.interactions.answer import AnswerReader
from callgate.interactions.client import InteractionsClient
from callgate.interactions.failures import is_lost_state, is_signature_refused
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
"""How often a stream that broke off is taken up again."""
KEPT_S = 20 * 3600.0
"""How long an interaction is taken to be kept: a day on the free tier, less a margin."""
POLL_S, POLL_MAX_S = 1.0, 10.0
"""The shortest and the longest wait before a background run is asked for again."""
LOST_MAX = 3
"""How often a background run may be unknown to the server that has just accepted it."""

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
    for notice in notices:
        yield notice
    chain = bodies.writer.chain(request.conversation, now=now()) if stored else None
    own = True
    accepted = request.accepted if request.accepted is not None and request.accepted.origin == bodies.origin else None
    is_repeated = False
    while True:
        answer = _Answer(client, bodies, model, request, stored=stored, chain=chain, own=own, until=now() + KEPT_S)
        try:
            async with contextlib.aclosing(answer.chunks(accepted)) as items:
                async for item in items:
                    yield item
            return
        except _BROKEN as error:
            # Pieces of a call are shown, and nothing has run.
            if is_repeated or not answer.is_repeatable or not error.retryable:
                raise
            is_repeated = True
            yield Notice("waiting", f"The answer broke off within a call and is asked for again: {error}", "warning")
        except InvalidRequestError as error:
            if answer.reader.has_said:
                raise
            what, chain, own = _without_state(error, is_accepted=accepted is not None, chain=chain, own=own)
            accepted = None
            yield Notice("state_lost", f"{what}: {error}", "warning")


def _without_state(
    error: InvalidRequestError, *, is_accepted: bool, chain: Chain | None, own: bool
) -> tuple[str, Chain | None, bool]:
    """Return a sentence of what the server has lost, and the chain and signatures that are left for another request.

    Raises:
        InvalidRequestError: the error, which another request would not help.
    """
    if is_accepted and error.status == "NOT_FOUND":
        return "The server does not know the background run any more, which is begun again", chain, own
    if chain is not None and is_lost_state(error):
        return "The server does not have the conversation any more, and is sent all of it", None, own
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
    ) -> None:
        self._client = client
        self._bodies = bodies
        self._model = model
        self._request = request
        self._stored = stored
        self._chain = chain
        self._own = own
        self._headers = checked_headers(request.settings.get("headers")) or None
        self._until: float | None = None
        """The deadline of the whole answer, by the client's clock."""
        self._is_behind = is_background(request.settings, model)
        self._lost = 0
        """How often in a row the server did not know a run that it had accepted."""
        self.reader = AnswerReader(
            origin=bodies.origin, seen=self._seen() if stored else "", until=until, is_behind=self._is_behind
        )

    @property
    def is_repeatable(self) -> bool:
        """True if the answer can be asked for again, because all that a caller has seen of it are pieces of calls."""
        return self.reader.has_announced and not self.reader.has_said and not self._is_behind

    def _seen(self) -> str:
        seen = self._bodies.writer.seen(self._request.conversation)
        # A sentence beside the history is part of what the server keeps, and of nothing else.
        return fold(seen, self._request.feedback.encode("utf-8", "replace")) if self._request.feedback else seen

    async def chunks(self, accepted: Accepted | None) -> _Items:
        """The chunks of the answer, over as many requests as it takes."""
        if self._is_behind:
            async with contextlib.aclosing(self._background(accepted)) as items:
                async for item in items:
                    yield item
            return
        tokens: set[str] = set()
        idle = 0
        for _ in range(HOPS_MAX):
            before, token, token_of = self.reader.size, self.reader.token, self.reader.id if self._stored else None
            if token is not None:
                self.reader.go_on()
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
                    yield said
                if (status := self.reader.progress) and self._is_behind:
                    self.reader.progress = ""
                    yield Notice("progress", f"The server works on interaction {self.reader.id}: {status}.")

    # In the background ----------------------------------------------------------------------------------------------------

    async def _background(self, accepted: Accepted | None) -> _Items:
        """A run at the server: accepted once, and asked for until it is done, by any process."""
        clock, limit_s = self._client.clock, self._client.limits.background_s
        deadline = clock.now() + limit_s
        if accepted is None:
            async with contextlib.aclosing(self._begun()) as items:
                async for item in items:
                    yield item
        else:
            self.reader.id = accepted.id
            yield Accepted(accepted.id, accepted.origin, self._cancel)
        wait_s = POLL_S
        while not self.reader.is_over:
            async with contextlib.aclosing(self._asked_for(is_new=accepted is None)) as items:
                async for item in items:
                    yield item
            if self.reader.is_over:
                return
            if clock.now() + wait_s > deadline:
                await self._cancel()
                raise RequestTimeoutError(f"the background run {self.reader.id} was not done within {limit_s:g} s")
            await clock.sleep(self._client.dice.uniform(wait_s / 2, wait_s))
            wait_s = min(wait_s * 1.5, POLL_MAX_S)

    async def _begun(self) -> _Items:
        """Make the server begin a run; its id goes out before anybody waits, so that another process can ask for it."""
        body = self._bodies.body(self._request, chain=self._chain, own=self._own)
        async with contextlib.aclosing(self._read(self._created(body, stream=False))) as items:
            async for item in items:
                yield item
        if self.reader.is_over:
            return
        if not self.reader.id:
            raise ProtocolError("the server accepted a background run and did not say by which id", retryable=True)
        yield Accepted(self.reader.id, self._bodies.origin, self._cancel)

    async def _asked_for(self, *, is_new: bool) -> _Items:
        """Ask once for a run: its events while it works, then the whole of it, since a stream may just end."""
        try:
            for stream in (True, False) if self._request.stream and not self._lost else (False,):
                if not self.reader.is_over:
                    async with contextlib.aclosing(self._read(self._fetched(stream=stream))) as items:
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
            if not error.retryable:
                raise

    async def _cancel(self) -> None:
        """Stop the run at the server. One that is over cannot be stopped, and one that is unknown need not be."""
        with contextlib.suppress(ModelError):
            await self._client.cancel(self._model, self.reader.id)
