"""Resources that all APIs of Gemini share at one place: files, descriptions of models, embeddings, stored interactions.

A base of the models of both APIs, which say what client to ask by. How requests are sent is known to that client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from callgate.errors import InvalidRequestError, ModelError, UsageError
from callgate.gemini.client import EMBED_MAX, GeminiClient
from callgate.gemini.surface import Surface
from callgate.request import Embeddings
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.gemini.files import FileUploads
    from callgate.interactions.client import InteractionsClient

__all__ = ["WITHOUT_TOOLS", "GoogleResources"]

WITHOUT_TOOLS = re.compile(r"(?:.*/)?gemma-")
"""Models of the same API that have no function calling."""


class GoogleResources:
    """The resources of a model's surface, which every API of Gemini shares: files, descriptions of models, embeddings."""

    _name: str
    _surface: Surface

    def _resource_client(self) -> GeminiClient:
        """The client of the surface, for the model of each API to define."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def provider(self) -> str:
        """The provider."""
        return "gcp.vertex_ai" if self._surface.kind == "vertex" else "gcp.gemini"

    @property
    def supports_tools(self) -> bool:
        """True if the model has function calling, as far as its name tells; an agent that takes none is asked without."""
        return WITHOUT_TOOLS.match(self._name) is None

    @cached_property
    def _interactions(self) -> InteractionsClient:
        from callgate.interactions.client import InteractionsClient  # Only what another API has stored needs it.

        client = self._resource_client()
        return InteractionsClient(client.surface, limits=client.limits, options=client.options)

    def _interactions_client(self) -> InteractionsClient:
        """The client for interactions at the same place: one of its own, unless the model has one."""
        return self._interactions

    async def _close_resources(self) -> None:
        """Close the connections of the clients that it has made itself."""
        if "_interactions" in vars(self):
            await self._interactions.aclose()

    @cached_property
    def files(self) -> FileUploads:
        """The files that were uploaded for it."""
        return self._resource_client().files()

    async def delete_interactions(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Make the server forget interactions; returns those that it may still keep, each with the reason.

        Args:
            stored: Id of an interaction -> the origin of its answer; one of another surface is not asked for here.
        """
        from callgate.interactions.deletion import delete_all  # Few sessions have any.

        return await delete_all(self._interactions_client(), self.name, stored)

    async def stop_interaction(self, id: str, origin: str) -> str:
        """Stop a background run at the server; returns the reason if it may go on.

        Args:
            id: The id of its interaction.
            origin: The origin of its answer; one of another surface is not asked for here.
        """
        from callgate.interactions.deletion import stop  # Few runs are in the background.

        return await stop(self._interactions_client(), self.name, id, origin)

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
