"""Retries of a request to a model: where they help, as the server asks for them, and no longer than they should take.

Attempts and their failures come in, response chunks and notices of waits go out. Nothing is tried again once a chunk was
handed to the caller.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Hashable, Iterator
from typing import Protocol

from callgate.events import Notice
from callgate.types import JsonObject, Limits
from callgate.wire.attempt import Attempt
from callgate.wire.dialect import Dialect, HttpRequest
from callgate.wire.endpoint_health import Clock, EndpointHealth, Permit
from callgate.wire.failures import Failure
from callgate.wire.sender import Sender

__all__ = ["RetryingStream"]

JITTER = 0.2
_UNENDED = "The server did not end its response properly; nothing of the answer in it is missing."
_numbers = itertools.count(1)


class RetryingClient(Protocol):
    """The parts of a client that attempts and the waits between them need."""

    dialect: Dialect
    sender: Sender
    limits: Limits
    clock: Clock
    dice: random.Random
    renew: Callable[[], bool] | None


class RetryingStream:
    """The response stream of one request, retried only until the first chunk was yielded. `aclose` ends it.

    It is not an async generator, because what these cost in asyncio is a good part of what a request may cost.
    """

    def __init__(
        self, client: RetryingClient, request: HttpRequest, health: EndpointHealth, *, until: float | None = None
    ) -> None:
        self.until = until
        """The deadline by the clock; set when the request begins."""
        self._client = client
        self._request = request
        self._health = health
        self._votes: set[Hashable] = set()
        self._counted = 1
        self._wait_s: float | None = None
        """The wait before the next attempt, after a failed one."""
        self._is_fresh = self._is_renewed = self._is_pause_told = self._is_shown = self._is_over = False
        self._permit: Permit | None = None
        self._attempt: Attempt | None = None
        self._ready: Iterator[JsonObject | Notice] = iter(())

    def __aiter__(self) -> RetryingStream:
        return self

    async def __anext__(self) -> JsonObject | Notice:
        """The next chunk, or a notice of a wait.

        Raises:
            ModelError: there is no answer, or it broke off.
        """
        while (item := next(self._ready, None)) is None:
            if self._is_over:
                raise StopAsyncIteration
            try:
                if self._attempt is None and (notice := await self._begin()) is not None:
                    return notice
                attempt, permit = self._attempt, self._permit
                assert attempt is not None
                assert permit is not None
                came = await attempt.chunks()
                if isinstance(came, Failure):
                    self._ready = iter(await self._failed(came, permit))
                else:
                    self._take(came, attempt, permit)
            except BaseException:
                await self.aclose()
                raise
        return item

    async def aclose(self) -> None:
        """Cancel the request and release its connection."""
        self._is_over = True
        self._ready = iter(())
        if self._attempt is not None or self._permit is not None:
            await self._let_go()

    def __del__(self) -> None:
        # An abandoned iterator would keep the connection for ever.
        if self._attempt is not None:
            self._attempt.give_up()

    def _take(self, chunks: list[JsonObject], attempt: Attempt, permit: Permit) -> None:
        self._is_shown = self._is_shown or bool(chunks)
        self._ready = iter(chunks)
        if attempt.is_over:
            self._is_over = True
            self._attempt = self._permit = None  # It has let go of all that it held.
            permit.over()
            if attempt.is_cut:
                self._ready = iter([*chunks, Notice("unended", _UNENDED, "warning")])

    async def _begin(self) -> Notice | None:
        """Prepare an attempt, unless there is a notice to yield first."""
        client, health = self._client, self._health
        if self.until is None:
            self.until = client.clock.now() + client.limits.total_s
        if self._wait_s is not None:
            wait_s, self._wait_s = self._wait_s, None
            await client.clock.sleep(wait_s)
            self._counted += 1
        if not self._is_pause_told and (pause_s := health.pause_left_s):
            self._is_pause_told = True
            return Notice("waiting", f"Waiting {pause_s:.1f} s, because the server asked everybody to.", "warning")
        self._is_pause_told = False
        permit = self._permit = await health.enter(
            patience=client.limits.attempts - self._counted, votes=self._votes, is_new=self._counted == 1, until=self.until
        )
        self._attempt = Attempt(
            self._request,
            dialect=client.dialect,
            sender=client.sender,
            limits=client.limits,
            deadline=asyncio.get_running_loop().time() + self.until - client.clock.now(),
            accepted=permit.succeeded,
            fresh=self._is_fresh,
        )
        return None

    async def _failed(self, failure: Failure, permit: Permit) -> list[Notice]:
        """The notices for a failed attempt before the next one; none if it follows at once.

        Raises:
            ModelError: no other one is made.
        """
        client = self._client
        wait_s = _back_off(client, failure, self._counted, permit, self._vote(failure) if failure.is_outage else None)
        await self._let_go()
        if self._is_shown:
            raise failure.error
        if failure.is_stale and not self._is_fresh:
            self._is_fresh = True
            return []
        if failure.is_unauthorized and not self._is_renewed and client.renew is not None and client.renew():
            self._is_renewed = True
            return []
        if wait_s is None or (self.until is not None and client.clock.now() + wait_s >= self.until):
            raise failure.error
        self._wait_s = wait_s
        number = f"attempt {self._counted + 1} of {client.limits.attempts}"
        return [Notice("waiting", f"Trying again in {wait_s:.1f} s ({number}): {failure.error}", "warning")]

    def _vote(self, failure: Failure) -> Hashable:
        """The key of a failure: each request counts once, and a failure that its body may have caused once for
        all requests with this body."""
        if failure.is_of_body:
            return "body", hash(self._request.body)
        return next(iter(self._votes), None) or next(_numbers)

    async def _let_go(self) -> None:
        permit, self._permit = self._permit, None
        attempt, self._attempt = self._attempt, None
        if permit is not None:
            permit.over()
        if attempt is not None:
            await attempt.aclose()


def _back_off(client: RetryingClient, failure: Failure, counted: int, permit: Permit, vote: Hashable) -> float | None:
    """Record the failure; return the wait before the next attempt, None when there is none."""
    limits, dice = client.limits, client.dice
    backoff_s = min(limits.backoff_max_s, limits.backoff_s * 2 ** (counted - 1))
    # Half of it is certain, so that five attempts outlast a restart of the server.
    wait_s = dice.uniform(backoff_s / 2, backoff_s)
    asked_s = failure.wait_s
    is_too_long = asked_s is not None and asked_s > limits.backoff_max_s
    if failure.is_outage:
        permit.failed(vote)
    elif failure.is_answer or (failure.is_pressure and is_too_long):
        permit.refused()
    elif failure.is_pressure:
        asked_s = permit.pushed_back(asked_s, backoff_s)
    if not failure.retry or counted >= limits.attempts or is_too_long:
        return None
    return wait_s if asked_s is None else max(wait_s, asked_s * dice.uniform(1, 1 + JITTER))
