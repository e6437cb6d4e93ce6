"""Gemini as a model: requests out, chunks in.

A request of the runtime comes in; response chunks go out, continued where the server breaks an answer into several. All
knowledge of the wire is in `callgate.gemini`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from functools import cached_property
from ssl import SSLContext
from typing import TYPE_CHECKING

from callgate.errors import InvalidRequestError, UsageError, checked_values
from callgate.events import Notice
from callgate.gemini.client import GeminiClient
from callgate.gemini.exchange import GeminiExchange
from callgate.gemini.request import SETTINGS, BodyBuilder, counting
from callgate.gemini.surface import Surface, surface_from_environment
from callgate.gemini.thinking_config import thinking_words
from callgate.models.google_resources import GoogleResources
from callgate.request import ModelRequest
from callgate.types import JsonObject, Limits
from callgate.wire.sender import http_options

if TYPE_CHECKING:
    from callgate.gemini.caches import CacheManager
    from callgate.wire.transport import HttpClientLike

__all__ = ["GeminiModel"]


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
        self._name, self._surface = name, surface
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
        await self._close_resources()
        if not self._is_guest:
            await self._client.aclose()


def _resource_name(surface: Surface, name: str) -> str:
    """Return the name of the model in a cached content: of the project on Vertex."""
    path = surface.resource(name)
    if surface.kind == "vertex" and surface.project and not path.startswith("projects/"):
        return f"projects/{surface.project}/locations/{surface.location}/{path}"
    return path
