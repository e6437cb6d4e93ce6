"""Requests to Gemini: the shared client with Google's protocol.

A body comes in, response chunks go out as they arrive, and a `Notice` whenever the caller has to wait. How requests are
timed and tried again is known to `callgate.wire`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from callgate import strict_json
from callgate.content.read import block_of, candidate_of, finish_of, parts_of
from callgate.errors import ProtocolError
from callgate.events import Notice
from callgate.gemini.failures import error_in, failure_of_body
from callgate.gemini.surface import Surface
from callgate.types import JsonObject, Limits
from callgate.wire.client import HttpClient
from callgate.wire.dialect import HttpRequest, Response
from callgate.wire.endpoint_health import Clock, EndpointHealth, SystemClock, health_for
from callgate.wire.failures import Failure, Sent
from callgate.wire.reader import ResponseReader
from callgate.wire.retry import RetryingStream
from callgate.wire.sender import HttpOptions

if TYPE_CHECKING:
    from callgate.gemini.batches import BatchQueue
    from callgate.gemini.files import FileUploads
    from callgate.gemini.resources import ResourceClient

__all__ = ["EMBED_MAX", "GeminiClient"]

EMBED_MAX = 100
"""The contents that Google embeds by one request."""

_SYSTEM = SystemClock()


class GeminiClient:
    """A client for one surface. Connections are kept alive for a while, at most until `aclose`."""

    def __init__(
        self,
        surface: Surface,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        health: EndpointHealth | None = None,
        dice: random.Random | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        self.surface = surface
        self.limits, self.options = limits, options
        self._clock = clock or _SYSTEM
        self._health = health
        self._endpoints: dict[str, tuple[str, int]] = {}
        self._urls: dict[tuple[str, bool], str] = {}
        self._http = HttpClient(
            _Google(), auth=surface.credentials, renew=surface.renew, clock=self._clock, limits=limits, dice=dice,
            options=options,
        )  # fmt: skip

    def chunks(
        self,
        model: str,
        body: bytes,
        *,
        stream: bool,
        tools: Collection[str],
        headers: Mapping[str, str] | None = None,
        until: float | None = None,
    ) -> RetryingStream:
        """Send the body and return the response stream. Retried only until the first chunk was yielded.

        Args:
            model: The model's name.
            body: The request as JSON.
            stream: Whether the answer is to come in pieces.
            tools: The tools' own names in the order of their declarations, to explain what a refusal means.
            headers: Headers of this request alone, checked.
            until: When it must be over, by the client's clock; `total_s` from its beginning on if it is not said.

        Raises:
            ModelError: there is no answer, or it broke off.
        """
        request = HttpRequest(
            url=self._url(model, stream=stream), body=body, stream=stream, model=model, tools=tools, headers=headers
        )
        return self._http.chunks(request, self._health_of(model), until=until)

    def _url(self, model: str, *, stream: bool) -> str | Callable[[], str]:
        """The URL of requests, or a function that returns it once the credentials are known."""
        url = self._urls.get((model, stream))
        if url is None:
            if not self.surface.is_known:
                return partial(self.surface.url, model, stream=stream)
            url = self._urls[model, stream] = self.surface.url(model, stream=stream)
        return url

    async def count_tokens(self, model: str, body: bytes) -> int:
        """The number of tokens of a request, counted by the server. `body` is the result of `gemini.request.counting`.

        Raises:
            ModelError: there is no answer.
        """
        request = HttpRequest(
            url=lambda: f"{self.surface.place(model)}:countTokens", body=body, stream=False, model=model
        )  # fmt: skip
        async with contextlib.aclosing(self._http.chunks(request, self._health_of(model))) as items:
            counts = [_count_in(item) async for item in items if not isinstance(item, Notice)]
        return next(filter(None, counts), 0)

    async def embed(self, model: str, requests: Sequence[JsonObject]) -> tuple[list[list[float]], int]:
        """The embeddings of at most `EMBED_MAX` contents, and how many tokens these have; 0 if the server does not say.

        Raises:
            ModelError: there is no answer, or not one for each of them.
        """
        named = [{**request, "model": self.surface.resource(model)} for request in requests]
        verb, body = ("embedContent", named[0]) if len(named) == 1 else ("batchEmbedContents", {"requests": named})
        request = HttpRequest(
            url=lambda: f"{self.surface.place(model)}:{verb}", body=strict_json.dump(body), stream=False, model=model
        )
        async with contextlib.aclosing(self._http.chunks(request, self._health_of(model))) as items:
            answers = [item async for item in items if not isinstance(item, Notice)]
        vectors = [vector for answer in answers for vector in _vectors_in(answer)]
        if len(vectors) != len(named):
            raise ProtocolError(f"the server sent {len(vectors)} embeddings for {len(named)} contents")
        counts: list[Any] = [answer.get("usageMetadata", {}).get("promptTokenCount") for answer in answers]
        return vectors, sum(count for count in counts if isinstance(count, int))

    def resources(self) -> ResourceClient:
        """Return the client for caches, files and batches of the same surface."""
        from callgate.gemini.resources import ResourceClient  # A plain answer needs none, and would pay for the import.

        return ResourceClient(self.surface, self._http, self._clock)

    def batches(self, model: str) -> BatchQueue:
        """Return a queue of requests to a model that are sent in batches."""
        from callgate.gemini.batches import BatchQueue

        return BatchQueue(self.resources(), self.surface.resource(model))

    def files(self) -> FileUploads:
        """Return the uploads of the same surface."""
        from callgate.gemini.files import FileUploads

        return FileUploads(self.resources())

    def _health_of(self, model: str) -> EndpointHealth:
        if self._health is not None:
            return self._health
        endpoint = self._endpoints.get(model)
        if endpoint is None:
            endpoint = self._endpoints[model] = (
                f"{self.surface.base_url} {self.surface.project} {self.surface.resource(model)}",
                hash(self.surface.api_key),
            )
        return health_for(endpoint, self._clock)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those in use are closed when they are released."""
        await self._http.aclose()


class _Google:
    """Google's protocol, as far as a client must know it."""

    reader = ResponseReader
    error_in = staticmethod(error_in)

    def failure_of(
        self, status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent
    ) -> Failure:
        return failure_of_body(status, error, headers, now=now, sent=sent)

    def look(self, chunk: JsonObject) -> tuple[bool, bool]:
        candidate = candidate_of(chunk)
        content: Any = candidate.get("content")
        is_said = isinstance(content, dict) and bool(parts_of(content))  # pyright: ignore[reportUnknownArgumentType]
        is_end = finish_of(candidate)[0] is not None
        if "embedding" in chunk or "embeddings" in chunk:
            return True, True
        if not is_end and ("promptFeedback" in chunk or "totalTokens" in chunk):
            is_end = block_of(chunk) is not None or _count_in(chunk) is not None
        return is_said, is_end

    def inspect_response(self, response: Response) -> None:
        pass


def _vectors_in(chunk: JsonObject) -> list[list[float]]:
    """The vectors of an answer to embedContent or batchEmbedContents."""
    listed: Any = chunk.get("embeddings") or [chunk.get("embedding")]
    return [list(one["values"]) for one in listed if isinstance(one, dict) and isinstance(one.get("values"), list)]  # pyright: ignore


def _count_in(chunk: JsonObject) -> int | None:
    """The number of tokens, if this is the answer of countTokens."""
    total: Any = chunk.get("totalTokens")
    return total if isinstance(total, int) else None
