"""Resources of Gemini that every API of it shares: uploaded files, descriptions of models, embeddings.

A mixin of the models by generateContent and by the Interactions API. All knowledge of the wire is in `callgate.gemini`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from callgate.errors import InvalidRequestError, ModelError, UsageError
from callgate.gemini.client import EMBED_MAX, GeminiClient
from callgate.request import Embeddings
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.gemini.files import FileUploads

__all__ = ["WITHOUT_TOOLS", "GoogleResources"]

WITHOUT_TOOLS = re.compile(r"(?:.*/)?gemma-")
"""Models of the same API that have no function calling."""


class GoogleResources:
    """The resources of a model's surface."""

    def _resource_client(self) -> GeminiClient:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The model's name."""
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
