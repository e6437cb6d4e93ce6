"""Gemini by the Interactions API as a model: requests out, chunks in.

A request of the runtime comes in; response chunks in Gemini's form go out. State at the server is used where it is wanted
and still there, and never relied on: the history is sent whole whenever the server does not have it. All knowledge of the
wire is in `callgate.interactions`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from callgate.base_errors import checked_values, expect
from callgate.events import Notice
from callgate.gemini.surface import Surface, surface_from_environment
from callgate.gemini.thinking_config import thinking_words
from callgate.interactions.agents import is_research
from callgate.interactions.client import InteractionsClient
from callgate.interactions.exchange import ask
from callgate.interactions.request import BodyBuilder, check_storage, known_settings_of
from callgate.models.google_resources import GoogleResources
from callgate.request import Accepted, ModelRequest, PartialCall
from callgate.types import JsonObject, Limits
from callgate.wire.sender import http_options

if TYPE_CHECKING:
    from callgate.gemini.client import GeminiClient
    from callgate.wire.transport import HttpClientLike

__all__ = ["InteractionsModel"]


@checked_values
class InteractionsModel(GoogleResources):
    """A Gemini model, or an agent, by the Interactions API.

    Args:
        name: The model, for example `gemini-3.8-flash`, or an agent, for example `deep-research-preview-04-2026`.
        api_key: A key, instead of the one in the environment.
        surface: Where to send requests, instead of what the environment says.
        limits: Time-outs, attempts and sizes.
        client: A client to use instead of one of its own.
        env: An environment, instead of the process's own.
        http: Your own HTTP client: an AsyncClient of httpx2 or httpx, or any `callgate.wire.transport.Transport`.
            It stays yours and is not closed.
        ssl: A context that says whom to trust and which certificate to show, instead of what the system says.
        headers: Headers of every request, for gateways. The setting `headers` adds others for some runs.
        now: The time in seconds since 1970, instead of the system's.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own, and all but the name are left out nearly always
        self,
        name: str,
        *,
        api_key: str | None = None,
        surface: Surface | None = None,
        limits: Limits | None = None,
        client: InteractionsClient | None = None,
        env: Mapping[str, str] | None = None,
        http: HttpClientLike | None = None,
        ssl: SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        expect(surface, (Surface, type(None)), "surface={}", "a Surface object")
        surface = client.surface if client else surface or surface_from_environment(env, api_key=api_key)
        surface.resource(name)  # Raises now what would fail in the first request.
        self._name, self._surface = name, surface
        options = http_options(http, ssl, headers, has_client=client is not None)
        self._client = client or InteractionsClient(surface, limits=limits, options=options)
        self._bodies = BodyBuilder(name, surface.kind)
        self._now = now
        self._is_guest = False
        """True if the client is that of another model."""

    def with_name(self, name: str) -> InteractionsModel:
        """Return a model of another name at the same endpoint, with the connections of this one, which it does not close."""
        model = InteractionsModel(name, client=self._client, now=self._now)
        model._is_guest = True
        return model

    def _resource_client(self) -> GeminiClient:
        return self._client.resources()

    def _interactions_client(self) -> InteractionsClient:
        return self._client

    @property
    def origin(self) -> str:
        """The origin of the signatures in its answers."""
        return self._bodies.origin

    @property
    def known_settings(self) -> Collection[str]:
        """The settings that it understands."""
        return known_settings_of(self._name, self._surface.kind)

    @property
    def takes_functions(self) -> bool:
        """False for an agent that is asked without them."""
        return not is_research(self._name)

    @property
    def thinking_words(self) -> Collection[str]:
        """The words that the setting `thinking` may have, from the least on."""
        return thinking_words(self._name, only_levels=True)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings that no request of it could be sent with.

        Raises:
            UsageError: the server is to keep interactions, and there is no way to ask for them.
        """
        check_storage(settings, self._name, is_reachable=self._client.sends_all)

    def generate(self, request: ModelRequest) -> AsyncIterator[JsonObject | Notice | Accepted | PartialCall]:
        """Ask the model; gives chunks as they arrive, a notice for every wait, and the id by which the server keeps them.

        Raises:
            ModelError: there is no answer, or it broke off.
            UsageError: a setting or a tool that this API does not have.
        """
        return ask(self._client, self._bodies, self._name, request, now=self._now)

    async def delete(self, interaction: str) -> bool:
        """Make the server forget an interaction; returns False if it knows none by that id.

        Raises:
            ModelError: the server refuses, or cannot be reached.
            UsageError: no id.
        """
        expect(interaction, str, "delete({})", "the id of an interaction")
        return await self._client.delete(self._name, interaction)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if not self._is_guest:
            await self._client.aclose()
