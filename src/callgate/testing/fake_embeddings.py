"""Embeddings of the fake servers: vectors that depend on the content alone, and Google's rules for requests."""

from __future__ import annotations

import hashlib
from typing import Any

from callgate.testing.answers import encode_json
from callgate.testing.google_fields import as_list, as_object
from callgate.testing.google_rules import Refusal
from callgate.types import JsonObject

__all__ = ["embedded", "embedding_refusal", "vector_of"]

DIMENSIONS = 8
BATCH_MAX = 100


def vector_of(content: object, dimensions: int | None = None) -> list[float]:
    """Return a vector for any content: the same for the same one."""
    digest = hashlib.sha256(encode_json(content)).digest()
    return [round(digest[place % len(digest)] / 255 - 0.5, 6) for place in range(dimensions or DIMENSIONS)]


def embedded(request: Any) -> list[float]:
    """Return the vector for a request of Google's."""
    size: Any = as_object(request).get("outputDimensionality")
    return vector_of(as_object(request).get("content"), size if isinstance(size, int) else None)


def embedding_refusal(body: JsonObject, model: str, *, is_batch: bool) -> Refusal | None:
    """Return why Google would refuse a request for embeddings."""
    verb = "batchEmbedContents" if is_batch else "embedContent"
    if "embedding" not in model:
        return Refusal(
            f"models/{model} is not found for API version v1beta, or is not supported for {verb}. Call ListModels to see "
            "the list of available models and their supported methods.",
            code=404, status="NOT_FOUND",
        )  # fmt: skip
    requests = as_list(body.get("requests")) if is_batch else [body]
    if len(requests) > BATCH_MAX:
        return Refusal("* BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch", rule="embed_batch")
    for request in map(as_object, requests):
        if is_batch and request.get("model") != f"models/{model}":
            return Refusal(
                "* BatchEmbedContentsRequest.model: model in the request and in the path differ", rule="embed_model"
            )
        if not as_list(as_object(request.get("content")).get("parts")):
            return Refusal("* EmbedContentRequest.content: contents is not specified", rule="embed_content")
    return None
