"""Gemini as a model: requests out, chunks in.

A request of the runtime comes in; response chunks go out, continued where the server breaks an answer into several. All
knowledge of the wire is in `callgate.gemini`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import cached_property
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, cast

from callgate.errors import InvalidRequestError, LimitExceededError, ModelError, UsageError, checked_values
from callgate.events import Notice
from callgate.gemini.client import EMBED_MAX, GeminiClient
from callgate.gemini.continuation import Continuation
from callgate.gemini.request import SETTINGS, BodyBuilder, counting
from callgate.gemini.surface import Surface, surface_from_environment
from callgate.request import Embeddings, ModelRequest
from callgate.types import JsonObject, Limits
from callgate.wire.credentials import checked_headers
from callgate.wire.retry import RetryingStream
from callgate.wire.sender import http_options

if TYPE_CHECKING:
    from callgate.gemini.caches import CachedPrefix, CacheManager
    from callgate.gemini.files import FileUploads
    from callgate.wire.transport import HttpClientLike

__all__ = ["GeminiModel"]

HOPS_MAX = 32
"""The limit of requests for one answer."""

ADAPTED_MAX = 8
"""The limit of requests to a server that names one unknown field at a time."""

FIELDS_SHOWN = 10
"""The limit of fields in a notice about those that were left out."""

WITHOUT_TOOLS = re.compile(r"(?:.*/)?gemma-")
"""Models of the same API that have no function calling."""


@checked_values
class GeminiModel:
    """A Gemini model on the Developer API, Vertex or Vertex express, as the environment says.

    Args:
        name: The model, for example `gemini-3.8-flash`.
        api_key: A key, instead of the one in the environment.
        surface: Where to send requests, instead of what the environment says.
        limits: Time-outs, attempts and sizes.
        client: A client to use instead of one of its own.
        env: An environment, instead of the process's own.
        http: Your own HTTP client: an AsyncClient of httpx2 or httpx, or any `callgate.wire.transport.Transport`.
            It stays yours and is not closed.
        ssl: A context that says whom to trust and which certificate to show, instead of what the system says.
        headers: Headers of every request, for gateways. The setting `headers` adds others for some runs.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own, and all but the name are left out nearly always
        self,
        name: str,
        *,
        api_key: str | None = None,
        surface: Surface | None = None,
        limits: Limits | None = None,
        client: GeminiClient | None = None,
        env: Mapping[str, str] | None = None,
        http: HttpClientLike | None = None,
        ssl: SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if surface is not None and not isinstance(surface, Surface):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"surface={surface!r:.200}: expected a Surface object")
        surface = client.surface if client else surface or surface_from_environment(env, api_key=api_key)
        surface.resource(name)  # Raises now what would fail in the first request.
        self._name = name
        options = http_options(http, ssl, headers, has_client=client is not None)
        self._client = client or GeminiClient(surface, limits=limits, options=options)
        self._bodies = BodyBuilder(name, surface.kind, f"{surface.base_url} {surface.version}")

    @cached_property
    def caches(self) -> CacheManager:
        """The cached contents that this model has made."""
        from callgate.gemini.caches import CacheManager  # Few answers need them, and all would pay for the import.

        return CacheManager(self._client.resources(), self._name, _resource_name(self._client.surface, self._name))

    @cached_property
    def files(self) -> FileUploads:
        """The files that were uploaded for it."""
        return self._client.files()

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def provider(self) -> str:
        """The provider."""
        return "gcp.vertex_ai" if self._client.surface.kind == "vertex" else "gcp.gemini"

    @property
    def client(self) -> GeminiClient:
        """The client of its requests."""
        return self._client

    @property
    def bodies(self) -> BodyBuilder:
        """The builder of the bodies of its requests."""
        return self._bodies

    @property
    def origin(self) -> str:
        """The origin of the signatures in its answers."""
        return self._bodies.origin

    @property
    def supports_tools(self) -> bool:
        """True if the model has function calling, as far as its name tells."""
        return WITHOUT_TOOLS.match(self._name) is None

    @property
    def known_settings(self) -> Collection[str]:
        """The settings that it understands."""
        return SETTINGS

    def generate(self, request: ModelRequest) -> AsyncIterator[JsonObject | Notice]:
        """Ask the model; gives chunks as they arrive, and a notice for every wait.

        Raises:
            ModelError: there is no answer, or it broke off.
            UsageError: a setting or a mix of tools that cannot work.
        """
        is_cached = request.cache is not None and not request.settings.get("cached_content")
        return _Answer(self._client, self._bodies, self._name, request, self.caches if is_cached else None)

    async def count_tokens(self, request: ModelRequest) -> int:
        """The number of tokens of a request, counted by the server.

        Raises:
            ModelError: the server does not say.
            UsageError: a setting or a mix of tools that cannot work.
        """
        body = self._bodies.body(request)
        kind = self._client.surface.kind
        try:
            return await self._client.count_tokens(self._name, counting(body, self._name, kind))
        except InvalidRequestError as error:
            if not self._bodies.learn_unknown(error.unknown_fields, body) or (again := self._bodies.body(request)) == body:
                raise
        return await self._client.count_tokens(self._name, counting(again, self._name, kind))

    async def describe(self) -> JsonObject | None:
        """The server's description of the model, with its limits; None if the server does not say.

        Raises:
            InvalidRequestError: there is no such model.
        """
        if self._client.surface.kind == "vertex":
            return None
        try:
            return await self._client.resources().call("GET", self._client.surface.resource(self._name), attempts=1)
        except (ModelError, UsageError) as error:
            if isinstance(error, InvalidRequestError) and error.is_model_unknown:
                raise
            return None

    async def served_names(self) -> list[str]:
        """List the names of the models that the key may ask for text and calls, as the server has them; [] on Vertex.

        Raises:
            ModelError: the server refused it, or could not be reached.
        """
        if self._client.surface.kind == "vertex":
            return []
        found = await self._client.resources().call("GET", "models?pageSize=1000", attempts=1)
        listed = cast("list[Any]", found.get("models") if isinstance(found.get("models"), list) else [])
        entries = [cast("JsonObject", entry) for entry in listed if isinstance(entry, dict)]
        return [
            str(entry.get("name", "")).removeprefix("models/")
            for entry in entries
            if "generateContent" in cast("list[Any]", entry.get("supportedGenerationMethods") or [])
        ]

    async def embed(self, requests: Sequence[JsonObject]) -> Embeddings | None:
        """The embeddings of contents; None on Vertex, which has other requests for them.

        Raises:
            ModelError: there is no answer.
            UsageError: tokens instead of a content.
        """
        if self._client.surface.kind == "vertex":
            return None
        if any("tokens" in request for request in requests):
            raise UsageError("Gemini embeds text, and no tokens: send the text itself")
        vectors: list[list[float]] = []
        tokens = 0
        for start in range(0, len(requests), EMBED_MAX):
            found, counted = await self._client.embed(self._name, requests[start : start + EMBED_MAX])
            vectors += found
            tokens += counted
        return Embeddings(vectors=vectors, tokens=tokens)

    async def aclose(self) -> None:
        """Delete the cached contents, and close the connections of the running event loop."""
        if "caches" in vars(self):
            await self.caches.aclose()
        await self._client.aclose()


def _resource_name(surface: Surface, name: str) -> str:
    """Return the name of the model in a cached content: of the project on Vertex."""
    path = surface.resource(name)
    if surface.kind == "vertex" and surface.project and not path.startswith("projects/"):
        return f"projects/{surface.project}/locations/{surface.location}/{path}"
    return path


class _Answer:
    """One answer, of as many requests as the server breaks it into."""

    __slots__ = (
        "_bodies", "_body", "_caches", "_client", "_continuation", "_headers", "_hops", "_is_shown", "_items", "_model",
        "_prefix", "_request", "_until",
    )  # fmt: skip

    def __init__(
        self, client: GeminiClient, bodies: BodyBuilder, model: str, request: ModelRequest, caches: CacheManager | None
    ) -> None:
        self._caches = caches
        self._prefix: CachedPrefix | None = None
        self._client = client
        self._bodies = bodies
        self._model = model
        self._request = request
        self._continuation = Continuation()
        self._headers = checked_headers(request.settings.get("headers")) or None
        self._hops = 0
        self._body = b""
        """The body of the latest request."""
        self._is_shown = False
        """True once a chunk was handed out."""
        self._until: float | None = None
        """The deadline of the whole answer, by the client's clock."""
        self._items: RetryingStream | None = None

    def __aiter__(self) -> _Answer:
        return self

    async def __anext__(self) -> JsonObject | Notice:
        while True:
            if self._items is None and self._hops == 0 and self._caches is not None:
                self._prefix = await self._cached(self._caches)
            items = self._items or self._asked()
            try:
                item = await items.__anext__()
            except ModelError as error:
                if (notice := self._adapted(error)) is not None:
                    self._until = items.until
                    return notice
                if self._prefix is None or self._caches is None or self._hops > 1 or not self._caches.is_lost(error):
                    raise
                # The server has dropped it: everything is sent, and the run does not notice.
                self._caches.forget(self._prefix)
                self._caches = self._prefix = self._items = None
                self._hops = 0
            except StopAsyncIteration:
                if self._continuation.token is None:
                    raise
                self._until = items.until
                self._items = None
            else:
                if isinstance(item, Notice):
                    return item
                self._is_shown = True
                return self._continuation.take(item)

    def _adapted(self, error: ModelError) -> Notice | None:
        """Prepare a request without the fields that the server does not know; None if there is nothing to leave out."""
        if not isinstance(error, InvalidRequestError) or self._is_shown or self._hops >= ADAPTED_MAX:
            return None
        left_out = self._bodies.learn_unknown(error.unknown_fields, self._body)
        if not left_out or self._next_body() == self._body:
            return None
        self._items = None
        fields = ", ".join(left_out[:FIELDS_SHOWN]) + (" and others" if len(left_out) > FIELDS_SHOWN else "")
        told = f"The server does not know these fields of the conversation, and is sent it without them: {fields}."
        return Notice("adapted", told, "warning")

    async def _cached(self, caches: CacheManager) -> CachedPrefix | None:
        """Return the cached content that the request begins with, if there is one or it is worth one."""
        request = self._request
        contents, around = self._bodies.cacheable(request)
        talk = request.conversation
        starts = [i for i in range(len(contents)) if not talk.is_model(i) and b'"functionResponse"' not in contents[i]]
        policy = request.cache
        return None if policy is None else await caches.prefix(policy, contents, starts, around)

    def _asked(self) -> RetryingStream:
        """Another request: the first, or one that asks for what is missing."""
        if self._hops == HOPS_MAX:
            raise LimitExceededError(f"the answer came in {HOPS_MAX} pieces and was still not complete", retryable=True)
        self._hops += 1
        request = self._request
        body = self._body = self._next_body()
        self._continuation.begin()
        tools = request.declaration.names.values()
        items = self._items = self._client.chunks(
            self._model, body, stream=request.stream, tools=tools, headers=self._headers, until=self._until
        )
        return items

    def _next_body(self) -> bytes:
        cached = None if self._prefix is None else (self._prefix.name, self._prefix.count)
        return self._bodies.body(self._request, continuation=self._continuation.token, cached=cached)

    async def aclose(self) -> None:
        items, self._items = self._items, None
        if items is not None:
            await items.aclose()
