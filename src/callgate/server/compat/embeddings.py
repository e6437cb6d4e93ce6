"""`/v1/embeddings`: embeddings for clients of OpenAI, passed on to models that have them.

A request of OpenAI's comes in, and its texts are given to the model; the vectors go out. Google's form is in `gemini.py`. No
conversation, tool or session has a part in it.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response

from callgate import strict_json
from callgate.machine.machine import TOKENS_PER_BYTE
from callgate.models import Embeddings, embed
from callgate.run.gate import cost_of
from callgate.server.body import read_json
from callgate.server.compat.prompts import gate_named
from callgate.server.errors import HttpError, json_response
from callgate.server.quotas import used_by
from callgate.server.run_meter import estimate
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["INPUTS_MAX", "OPENAI_ANSWER", "OPENAI_REQUEST", "embed_inputs", "embedded"]

INPUTS_MAX = 2_048
_TOKENS: JsonObject = {"type": "array", "items": {"type": "integer"}, "minItems": 1}
OPENAI_REQUEST: JsonObject = {
    "type": "object",
    "description": "OpenAI's embedding request.",
    "required": ["model", "input"],
    "properties": {
        "model": {"type": "string", "minLength": 1, "maxLength": 200},
        "input": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": INPUTS_MAX},
                _TOKENS,
                {"type": "array", "items": _TOKENS, "minItems": 1, "maxItems": INPUTS_MAX},
            ]
        },
        "encoding_format": {"enum": ["float", "base64", None]},
        "dimensions": {"type": ["integer", "null"], "minimum": 1},
        "user": {"type": ["string", "null"]},
    },
}
OPENAI_ANSWER: JsonObject = {
    "type": "object",
    "required": ["object", "data", "model", "usage"],
    "properties": {"data": {"type": "array", "items": {"type": "object", "required": ["object", "index", "embedding"]}}},
}


async def embed_inputs(service: Service, request: Request) -> Response:
    """Embed texts, as OpenAI's embeddings do, with a model that has embeddings."""
    body = await read_json(request, OPENAI_REQUEST)
    given: Any = body["input"]
    inputs = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    size = {} if body.get("dimensions") is None else {"outputDimensionality": body["dimensions"]}
    asked = [{**(_text(one) if isinstance(one, str) else {"tokens": one}), **size} for one in inputs]
    found = await embedded(service, body["model"], asked)
    as_text = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if as_text else vector}
        for index, vector in enumerate(found.vectors)
    ]
    usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
    return json_response({"object": "list", "data": data, "model": body["model"], "usage": usage})


async def embedded(service: Service, model: str, asked: Sequence[JsonObject]) -> Embeddings:
    """The embeddings by the model of that name, counted for the quota of the client.

    Raises:
        HttpError: there is no such model, or it has no embeddings.
        ModelError: the model refused, or could not be reached.
    """
    gate = await gate_named(service, model)
    size_bytes = len(strict_json.dump(asked))
    # An embedding has no answer to be written.
    place = await service.admit_passing(gate, size_bytes, {"max_output_tokens": 1})
    used = None
    try:
        found = await embed(gate.model, asked)
        if found is not None:
            usage = estimate(found.tokens or round(size_bytes * TOKENS_PER_BYTE), 0)
            used = used_by(usage, cost_of(gate, usage, None, None))
            service.metrics.passed_on(usage)
    finally:
        place.release(used)
    if found is None:
        raise HttpError(
            404,
            "embeddings_unsupported",
            f"The model {gate.model.name!r} has no embeddings here: name one that has, as 'gemini:gemini-embedding-001'.",
        )
    return found


def _text(text: str) -> JsonObject:
    return {"content": {"parts": [{"text": text}]}}


def _packed(vector: Sequence[float]) -> str:
    """A vector as OpenAI packs it: 32-bit floats, little-endian, in base64."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *cast("Any", vector))).decode("ascii")
