"""Gemini through the program's own `genai.Client`: its key, credentials, proxy and HTTP options.

A request of the runtime comes in and goes out as the same JSON that `GeminiModel` would send; chunks come back as the JSON
that came. The client decides about connections, time-outs and attempts; this file about none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any, cast

from callgate import strict_json
from callgate.content.read import CandidateChoice, block_of, finish_of
from callgate.errors import (
    ConnectionLostError,
    LimitExceededError,
    ModelError,
    ProtocolError,
    RequestTimeoutError,
    UsageError,
)
from callgate.events import Notice
from callgate.gemini.exchange import HOPS_MAX, Continuation
from callgate.gemini.failures import failure_of_body
from callgate.gemini.request import BodyBuilder
from callgate.models.google_resources import WITHOUT_TOOLS
from callgate.request import ModelRequest
from callgate.types import JsonObject, Limits
from callgate.wire.failures import Sent, clean

__all__ = ["GenaiModel"]


class GenaiModel:
    """A Gemini model that is called through a `google.genai.Client`.

    ```python
    gate = Gate(GenaiModel(genai.Client(), "gemini-3.8-flash"), tools=[get_weather])
    ```

    Args:
        client: The client. It stays yours: the gate does not close it.
        name: The model.
        limits: `total_s` bounds each answer with all its pieces; the other waits are the client's business.
    """

    def __init__(self, client: Any, name: str, *, limits: Limits | None = None) -> None:
        if not hasattr(client, "aio") or not hasattr(client, "models"):
            raise UsageError(f"{client!r} is not a google.genai.Client: pass one, or use GeminiModel without it")
        self._client = client
        self._name = name
        self._limits = limits or Limits()
        self._total_s = self._limits.total_s
        self._bodies = BodyBuilder(name, "vertex" if client.vertexai else "developer")

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def provider(self) -> str:
        """The provider."""
        return "gcp.vertex_ai" if self._client.vertexai else "gcp.gemini"

    def with_name(self, name: str) -> GenaiModel:
        """Return a model of another name with the same client."""
        return GenaiModel(self._client, name, limits=self._limits)

    @property
    def origin(self) -> str:
        """The origin of the signatures in its answers: that of the same model and surface."""
        return self._bodies.origin

    @property
    def supports_tools(self) -> bool:
        """True if the model has function calling, as far as its name tells."""
        return WITHOUT_TOOLS.match(self._name) is None

    async def generate(self, request: ModelRequest) -> AsyncGenerator[JsonObject | Notice, None]:
        """Ask the model; yields chunks as they arrive, and a notice for a setting that is not sent as it was asked for.

        Raises:
            ModelError: there is no answer, or it broke off.
            UsageError: a setting or a mix of tools that cannot work.
        """
        if request.settings.get("headers"):
            raise UsageError("the setting 'headers' is for GeminiModel; give those of a genai.Client to its http_options")
        for notice in self._bodies.notices(request):
            yield notice
        continuation = Continuation()
        deadline = asyncio.get_running_loop().time() + self._total_s
        tools = list(request.declaration.names.values())
        for _ in range(HOPS_MAX):
            body = self._bodies.body(request, continuation=continuation.token)
            sent = Sent(model=self._name, tools=tools, size_bytes=len(body))
            continuation.begin()
            ended, choice = False, CandidateChoice()
            asked = self._chunks(strict_json.parse(body), sent, stream=request.stream, deadline=deadline)
            async with contextlib.aclosing(asked) as chunks:
                async for chunk in chunks:
                    ended = ended or finish_of(choice.of(chunk))[0] is not None
                    ended = ended or block_of(chunk) is not None
                    yield continuation.take(chunk)
            if not ended:
                raise ConnectionLostError("the answer ended in the middle: no finish reason came", retryable=True)
            if continuation.token is None:
                return
        raise LimitExceededError(f"the answer came in {HOPS_MAX} pieces and was still not complete", retryable=True)

    async def _chunks(
        self, body: JsonObject, sent: Sent, *, stream: bool, deadline: float
    ) -> AsyncGenerator[JsonObject, None]:
        try:
            async with asyncio.timeout_at(deadline):
                answers = await (self._streamed(body) if stream else self._whole(body))
            async with contextlib.aclosing(answers):
                while True:
                    async with asyncio.timeout_at(deadline):
                        text = await anext(answers, None)
                    if text is None:
                        return
                    chunk = strict_json.parse_isolating(text)
                    if not isinstance(chunk, dict):
                        raise ProtocolError("the answer is not a JSON object", retryable=True)
                    yield cast("JsonObject", chunk)
        except strict_json.JsonError as error:
            raise ProtocolError(f"the answer is not JSON: {error}", retryable=True) from None
        except (ModelError, UsageError):
            raise
        except Exception as error:
            # Whatever transport the client is built on, its exceptions come out here.
            raise _model_error(error, sent, self._total_s) from error

    async def _streamed(self, body: JsonObject) -> AsyncGenerator[str, None]:
        """The pieces of an answer as JSON. The SDK's public stream makes types of them that lose unknown fields."""
        inner: Any = getattr(self._client, "_api_client", None)
        send = getattr(inner, "async_request_streamed", None)
        if send is None:
            return await self._whole(body)
        from google.genai import _transformers as transformers  # pyright: ignore[reportPrivateUsage]

        path = f"{transformers.t_model(inner, self._name)}:streamGenerateContent?alt=sse"
        pieces: Any = await send("post", path, body, None)

        async def texts() -> AsyncGenerator[str, None]:
            async with contextlib.aclosing(pieces):  # A reader that leaves early lets the connection go.
                async for piece in pieces:
                    yield piece.body or "{}"

        return texts()

    async def _whole(self, body: JsonObject) -> AsyncGenerator[str, None]:
        """The whole answer as JSON, by the SDK's public way: what it would send is replaced by our body."""
        from google.genai import types

        config = types.GenerateContentConfig(
            should_return_http_response=True,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            http_options=types.HttpOptions(extra_body=body),
        )
        if "automatic_continuation" in types.GenerateContentConfig.model_fields:
            config.automatic_continuation = False
        answer: Any = await self._client.aio.models.generate_content(model=self._name, contents="-", config=config)
        text = str(answer.sdk_http_response.body or "{}")

        async def one() -> AsyncGenerator[str, None]:
            yield text

        return one()


def _model_error(error: Exception, sent: Sent, total_s: float) -> ModelError:
    from google.genai import errors

    said = clean(str(error)) or type(error).__name__
    if isinstance(error, errors.APIError):
        raised = cast("Any", error)
        # A plain error page has no details that are an object.
        details: Any = raised.details or {}
        body: Any = details.get("error", details) if hasattr(details, "get") else {}
        given: Any = getattr(raised.response, "headers", None) or {}
        headers = {str(key).lower(): str(value) for key, value in dict(given).items()}
        return failure_of_body(error.code, cast("JsonObject", body), headers, now=time.time(), sent=sent).error
    if isinstance(error, TimeoutError):
        return RequestTimeoutError(f"no whole answer within {total_s:g} s", retryable=True)
    if "Timeout" in type(error).__name__:
        return RequestTimeoutError(f"the client gave up waiting: {said}", retryable=True)
    return ConnectionLostError(f"the client could not get an answer: {said}", retryable=True)
