"""A Gemini model whose requests travel in batches: for many runs at once that are in no hurry.

A request of the runtime comes in and waits for others; its answer goes out whole. What a batch is on the wire is known to
`callgate.gemini.batches`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from functools import partial

from callgate.errors import InvalidRequestError, UsageError
from callgate.events import Notice
from callgate.gemini.batches import BatchQueue
from callgate.gemini.files import FileUploads
from callgate.gemini.gone_files import missing_file_notice
from callgate.gemini.request import SETTINGS, BodyBuilder
from callgate.models.gemini import GeminiModel
from callgate.request import Accepted, ModelRequest
from callgate.types import JsonObject

__all__ = ["BatchModel", "batched"]


def batched(model: GeminiModel) -> BatchModel:
    """Return the same model, asked in batches.

    Raises:
        UsageError: its surface takes no batches of requests.
    """
    if model.client.surface.kind != "developer":
        raise UsageError("batch=True needs the Developer API: Vertex takes batches from Cloud Storage only")
    return BatchModel(
        model.bodies, model.client.batches(model.name), name=model.name, provider=model.provider,
        supports_tools=model.supports_tools, files=model.files,
    )  # fmt: skip


class BatchModel:
    """A model that is asked in batches. `expect` says how many runs there are, so that none is waited for in vain."""

    def __init__(
        self, bodies: BodyBuilder, queue: BatchQueue, *, name: str, provider: str, supports_tools: bool, files: FileUploads
    ) -> None:
        self._bodies = bodies
        self._queue = queue
        self.name = name
        self.provider = provider
        self.supports_tools = supports_tools
        self.files = files
        """The files that were uploaded for it: the same as without batches."""

    @property
    def origin(self) -> str:
        """The origin of the signatures in its answers: the same model as without batches."""
        return self._bodies.origin

    @property
    def known_settings(self) -> Collection[str]:
        """The settings that it understands."""
        return [name for name in SETTINGS if name != "headers"]

    def expect(self, runs: int) -> None:
        """Add to the number of runs that may send a request; negative to subtract."""
        self._queue.expect(runs)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[JsonObject | Notice | Accepted, None]:
        """Ask with the next batch, or for the answer of the batch that took the request already.

        Raises:
            ModelError: there is no answer.
            UsageError: a setting that a batch cannot have.
        """
        if request.settings.get("headers"):
            raise UsageError("headers= cannot be sent with a batch: its requests share one request")
        for notice in self._bodies.notices(request):
            yield notice
        origin = f"batch {self.origin}"
        accepted = request.accepted
        place: tuple[str, int] | None = None
        if accepted is not None and accepted.origin == origin and "#" in accepted.id:
            name, _, number = accepted.id.partition("#")
            place = (name, int(number))
        gone = set[str]()
        while True:
            body = self._bodies.body(request)
            try:
                if place is None:
                    place = await self._placed(body)
                yield Accepted(f"{place[0]}#{place[1]}", origin, partial(self._queue.cancel, place[0]))
                yield Notice("progress", f"The server works on batch {place[0]}.")
                answer = await self._queue.answer(*place)
            except InvalidRequestError as error:
                # A batch that is refused may be refused for a file of another request, which leaves it out.
                is_without = error.gone_file and self._bodies.leave_out_file(error.gone_file, body)
                if not error.gone_file or error.gone_file in gone or not (is_without or place is None):
                    raise
                gone.add(error.gone_file)
                place = None
                if is_without:
                    yield missing_file_notice(error.gone_file)
            else:
                yield answer
                return

    async def _placed(self, body: bytes) -> tuple[str, int]:
        """Put a request into the next batch; return its place."""
        ticket = self._queue.add(body)
        try:
            return await ticket.place
        finally:
            ticket.place.cancel()

    async def aclose(self) -> None:
        """Stop the batches that are not over."""
        await self._queue.aclose()
