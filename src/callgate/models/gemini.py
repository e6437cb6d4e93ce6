"""Gemini as a model: requests out, chunks in.

A request of the runtime comes in; response chunks go out, continued where the server breaks an answer into several. All
knowledge of the wire is in `callgate.gemini`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, cast

from callgate.errors import InvalidRequestError, ModelError, UsageError, checked_values
from callgate.events import Notice
from callgate.gemini.client import EMBED_MAX, GeminiClient
from callgate.gemini.exchange import GeminiExchange
from callgate.gemini.request import SETTINGS, BodyBuilder, counting
from callgate.gemini.surface import Surface, surface_from_environment
from callgate.gemini.thinking_config import thinking_words
from callgate.request import Embeddings, ModelRequest
from callgate.types import JsonObject, Limits
from callgate.wire.sender import http_options

if TYPE_CHECKING:
    from callgate.gemini.caches import CacheManager
    from callgate.gemini.files import FileUploads
    from callgate.wire.transport import HttpClientLike

__all__ = ["WITHOUT_TOOLS", "GeminiModel", "GoogleResources"]

WITHOUT_TOOLS = re.compile(r"(?:.*/)?gemma-")
"""Models of the same API that have no function calling."""


class GoogleResources:
    """The resources of a model's surface, which every API of Gemini shares: files, descriptions of models, embeddings."""

    def _resource_client(self) -> GeminiClient:
        """The client of the surface, for the model of each API to define."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The model's name, for the model of each API to define."""
        raise NotImplementedError

    @cached_property
    def files(self) -> FileUploads:
        """The files that were uploaded for it."""
        return self._resource_client().files()

    async def describe(self) -> JsonObject | None:
        """The server's description of the model, with its limits; None if the server does not say.

        Raises:
            InvalidRequestError: there is no such model.
        """
        client = self._resource_client()
        if client.surface.kind == "vertex":
            return None
        try:
            return await client.resources().call("GET", client.surface.resource(self.name), attempts=1)
        except (ModelError, UsageError) as error:
            if isinstance(error, InvalidRequestError) and error.is_model_unknown:
                raise
            return None

    async def served_names(self) -> list[str]:
        """List the names of the models that the key may ask for text and calls, as the server has them; [] on Vertex.

        Raises:
            ModelError: the server refused it, or could not be reached.
        """
        client = self._resource_client()
        if client.surface.kind == "vertex":
            return []
        found = await client.resources().call("GET", "models?pageSize=1000", attempts=1)
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
        client = self._resource_client()
        if client.surface.kind == "vertex":
            return None
        if any("tokens" in request for request in requests):
            raise UsageError("Gemini embeds text, and no tokens: send the text itself")
        vectors: list[list[float]] = []
        tokens = 0
        for start in range(0, len(requests), EMBED_MAX):
            found, counted = await client.embed(self.name, requests[start : start + EMBED_MAX])
            vectors += found
            tokens += counted
        return Embeddings(vectors=vectors, tokens=tokens)


@checked_values
class GeminiModel(GoogleResources):
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
        self._is_guest = False
        """True if the client is that of another model."""

    def with_name(self, name: str) -> GeminiModel:
        """Return a model of another name at the same endpoint, with the connections of this one, which it does not close."""
        model = GeminiModel(name, client=self._client)
        model._is_guest = True
        return model

    @cached_property
    def caches(self) -> CacheManager:
        """The cached contents that this model has made."""
        from callgate.gemini.caches import CacheManager  # Few answers need them, and all would pay for the import.

        return CacheManager(self._client.resources(), self._name, _resource_name(self._client.surface, self._name))

    def _resource_client(self) -> GeminiClient:
        return self._client

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

    @property
    def thinking_words(self) -> Collection[str]:
        """The words that the setting `thinking` may have, from the least on."""
        return thinking_words(self._name)

    @property
    def has_context_cache(self) -> bool:
        """True if the server makes cached contents for it, as far as its name tells."""
        from callgate.gemini.caches import CacheManager

        return CacheManager.is_possible(self._name)

    def generate(self, request: ModelRequest) -> AsyncIterator[JsonObject | Notice]:
        """Ask the model; gives chunks as they arrive, and a notice for every wait.

        Raises:
            ModelError: there is no answer, or it broke off.
            UsageError: a setting or a mix of tools that cannot work.
        """
        is_cached = request.cache is not None and not request.settings.get("cached_content")
        return GeminiExchange(self._client, self._bodies, self._name, request, self.caches if is_cached else None)

    async def count_tokens(self, request: ModelRequest) -> int:
        """The number of tokens of a request, counted by the server.

        Raises:
            ModelError: the server does not say.
            UsageError: a setting or a mix of tools that cannot work.
        """
        kind, before = self._client.surface.kind, b""
        while True:
            body = self._bodies.body(request)
            try:
                return await self._client.count_tokens(self._name, counting(body, self._name, kind))
            except InvalidRequestError as error:
                # Each refusal leaves out something more, so that this comes to an end.
                is_without = error.gone_file and self._bodies.leave_out_file(error.gone_file, body)
                if body == before or not (is_without or self._bodies.learn_unknown(error.unknown_fields, body)):
                    raise
            before = body

    async def delete_cached(self, contents: Callable[[], Iterable[bytes]]) -> int:
        """Delete the cached contents that hold one of these, as they are encoded; return how many."""
        return await self.caches.delete_with(contents) if "caches" in vars(self) else 0

    async def aclose(self) -> None:
        """Delete the cached contents, and close the connections of the running event loop."""
        if "caches" in vars(self):
            await self.caches.aclose()
        if not self._is_guest:
            await self._client.aclose()


def _resource_name(surface: Surface, name: str) -> str:
    """Return the name of the model in a cached content: of the project on Vertex."""
    path = surface.resource(name)
    if surface.kind == "vertex" and surface.project and not path.startswith("projects/"):
        return f"projects/{surface.project}/locations/{surface.location}/{path}"
    return path
