"""Batches of requests to a model: half the price, and an answer within a day.

Requests come in one by one and wait until there are no others to wait for; then they are sent as few batches as hold them.
The name of a batch goes out before its answers, so that another process can ask for them.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from callgate import strict_json
from callgate.errors import InvalidRequestError, ModelError, ProtocolError, RequestTimeoutError, ServerUnavailableError
from callgate.gemini.failures import failure_of_body
from callgate.gemini.resources import ResourceClient
from callgate.strict_json import objects_in
from callgate.types import JsonObject
from callgate.wire.failures import Sent

__all__ = ["BatchQueue", "Ticket"]

BATCH_BYTES_MAX = 18_000_000
"""The size of a batch whose requests are in its own request; Google takes 20 MB."""
ANSWERS_BYTES_MAX = 512 * 1024 * 1024
"""The size of the answers of a batch that are read."""
LINGER_S = 2.0
"""Seconds that a request waits for others that may never come."""
POLL_S, POLL_MAX_S = 2.0, 60.0
KEPT_S = 48 * 3600.0
"""Seconds that the server works on a batch before it expires."""
_DEPTH_MAX = 2 * strict_json.DEPTH_MAX
# Codes of RPC that say something about a request.
_RPC = {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION"}
_STATES = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")


@dataclass(eq=False, slots=True)
class Ticket:
    """A request that waits for its batch."""

    body: bytes
    place: asyncio.Future[tuple[str, int]]
    """The name of its batch, and its number there."""


@dataclass(eq=False, slots=True)
class _Batch:
    """A batch at the server, which is asked for as long as somebody waits for it."""

    name: str
    answers: asyncio.Task[list[JsonObject]]
    waiting: int = 0


@dataclass(eq=False)
class BatchQueue:
    """The requests to one model that are sent in batches."""

    resources: ResourceClient
    model: str
    """The path of the model, as in `models/gemini-3.8-flash`."""
    _expected: int = 0
    """Runs that may still ask for something."""
    _tickets: list[Ticket] = field(default_factory=list[Ticket])
    _batches: dict[str, _Batch] = field(default_factory=dict[str, _Batch])
    _sending: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _open: set[str] = field(default_factory=set[str])
    """Batches of this queue that the server works on."""
    _lingering: asyncio.Task[None] | None = None

    def expect(self, runs: int) -> None:
        """Add to the number of runs that may send a request; negative to subtract."""
        self._expected += runs
        self._look()

    def add(self, body: bytes) -> Ticket:
        """Put a request into the next batch."""
        ticket = Ticket(body, asyncio.get_running_loop().create_future())
        self._tickets.append(ticket)
        self._look()
        return ticket

    async def answer(self, name: str, number: int) -> JsonObject:
        """Wait for an answer of a batch.

        Raises:
            ModelError: there is none.
        """
        batch = self._batches.get(name)
        if batch is None:
            batch = self._batches[name] = _Batch(name, asyncio.create_task(self._wait_for(name)))
        batch.waiting += 1
        try:
            answers = await asyncio.shield(batch.answers)
        finally:
            batch.waiting -= 1
        if number >= len(answers):
            raise ProtocolError(f"batch {name} has no answer {number}", retryable=True)
        return _checked(answers[number], self.model)

    async def cancel(self, name: str) -> None:
        """Stop a batch at the server, unless somebody else waits for it."""
        batch = self._batches.get(name)
        if batch is None or batch.waiting:
            return
        batch.answers.cancel()
        del self._batches[name]
        await self._stop(name)

    async def aclose(self) -> None:
        """Stop the batches that are not over, and everything that waits."""
        tasks: list[asyncio.Task[Any]] = [batch.answers for batch in self._batches.values()]
        if self._lingering is not None:
            tasks.append(self._lingering)
        for task in tasks:
            task.cancel()
        # A batch whose name has not come back yet could not be stopped.
        await asyncio.gather(*tasks, *self._sending, return_exceptions=True)
        self._batches.clear()
        for name in [*self._open]:
            await self._stop(name)

    # Internals ------------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Send what waits if nobody else can come; otherwise wait a little for the others."""
        self._tickets = [ticket for ticket in self._tickets if not ticket.place.done()]
        if not self._tickets:
            return
        if len(self._tickets) >= self._expected:
            self._send()
        elif self._lingering is None or self._lingering.done():
            self._lingering = asyncio.create_task(self._linger())

    async def _linger(self) -> None:
        before = -1
        while before != len(self._tickets):  # One that came meanwhile may not be the last.
            before = len(self._tickets)
            await self.resources.clock.sleep(LINGER_S)
        self._send()

    def _send(self) -> None:
        tickets, self._tickets = [ticket for ticket in self._tickets if not ticket.place.done()], []
        while tickets:
            size, count = 0, 0
            while count < len(tickets) and (count == 0 or size + len(tickets[count].body) <= BATCH_BYTES_MAX):
                size += len(tickets[count].body)
                count += 1
            task = asyncio.create_task(self._create(tickets[:count]))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            tickets = tickets[count:]

    async def _create(self, tickets: Sequence[Ticket]) -> None:
        try:
            requests = [
                {"request": strict_json.parse(ticket.body, depth_max=_DEPTH_MAX), "metadata": {"key": str(key)}}
                for key, ticket in enumerate(tickets)
            ]
            batch = {"displayName": f"callgate-{uuid.uuid4().hex[:12]}", "inputConfig": {"requests": {"requests": requests}}}
            made = await self.resources.call("POST", f"{self.model}:batchGenerateContent", {"batch": batch}, attempts=1)
            name: Any = made.get("name")
            if not isinstance(name, str) or not name.startswith("batches/"):
                raise ProtocolError("the server took a batch and did not say its name")
        except BaseException as error:
            for ticket in tickets:
                if ticket.place.done():
                    continue
                if isinstance(error, Exception):
                    ticket.place.set_exception(error)
                else:
                    ticket.place.cancel()
            if not isinstance(error, Exception):
                raise
            return
        self._open.add(name)
        for number, ticket in enumerate(tickets):
            if not ticket.place.done():
                ticket.place.set_result((name, number))

    async def _wait_for(self, name: str) -> list[JsonObject]:
        """The entries of a batch, in the order of its requests."""
        clock = self.resources.clock
        deadline, wait_s = clock.now() + KEPT_S, POLL_S
        while True:
            found = await self.resources.call("GET", name, bytes_max=ANSWERS_BYTES_MAX)
            metadata = _object(found.get("metadata"))
            state = str(metadata.get("state") or found.get("state") or "").rpartition("_STATE_")[2]
            if state in _STATES or found.get("done") is True:
                self._open.discard(name)
                return _entries(name, state, found, metadata)
            if clock.now() + wait_s > deadline:
                raise RequestTimeoutError(f"batch {name} was not done within {KEPT_S / 3600:g} hours")
            await clock.sleep(wait_s)
            wait_s = min(wait_s * 1.5, POLL_MAX_S)

    async def _stop(self, name: str) -> None:
        self._open.discard(name)
        try:
            await self.resources.call("POST", f"{name}:cancel", attempts=1)
        except ModelError:
            return  # It is over, or forgotten: there is nothing to stop.


def _entries(name: str, state: str, found: JsonObject, metadata: JsonObject) -> list[JsonObject]:
    if error := _object(found.get("error")):
        raise failure_of_body(None, error, {}, now=time.time(), sent=_sent("")).error
    output = _object(metadata.get("output")) or _object(found.get("response"))
    listed = _object(output.get("inlinedResponses"))
    entries = objects_in(listed.get("inlinedResponses"))
    if not entries:
        what = {"EXPIRED": "expired before it was worked on", "CANCELLED": "was cancelled"}.get(state, "has no answers")
        raise ServerUnavailableError(f"batch {name} {what}", retryable=state == "EXPIRED")
    keyed = [(_object(entry.get("metadata")).get("key"), entry) for entry in entries]
    if all(isinstance(key, str) and key.isdigit() for key, _ in keyed):
        by_key = {int(cast("str", key)): entry for key, entry in keyed}
        return [by_key.get(number, {}) for number in range(max(by_key) + 1)]
    return entries


def _checked(entry: JsonObject, model: str) -> JsonObject:
    """The response of an entry.

    Raises:
        ModelError: the request failed.
    """
    if error := _object(entry.get("error")):
        code: Any = error.get("code")
        # Small numbers are codes of RPC, which the status says in words, or leaves out.
        status = code if isinstance(code, int) and code >= 100 else None
        if status is None and code in _RPC:
            error = {**error, "code": None, "status": error.get("status") or _RPC[code]}
        raise failure_of_body(status, error, {}, now=time.time(), sent=_sent(model)).error
    response = _object(entry.get("response"))
    if not response:
        raise InvalidRequestError("the batch has neither a response nor an error for this request")
    return response


def _sent(model: str) -> Sent:
    return Sent(model=model, tools=[], size_bytes=0)


def _object(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}
