"""Any server of chat completions as a model: OpenAI, Ollama, vLLM, llama.cpp, LM Studio and others.

A request of the runtime comes in; response chunks in Gemini's form go out. All knowledge of the wire is in
`callgate.openai`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection, Sequence

from callgate.base_errors import checked_values
from callgate.content.read import parts_of
from callgate.errors import InvalidRequestError, ToolsUnsupportedError, UsageError
from callgate.events import Notice
from callgate.models.endpoint_model import EndpointModel
from callgate.openai.answer import AnswerReader
from callgate.openai.client import OpenAIClient
from callgate.openai.messages import is_shown
from callgate.openai.quirks import LESSONS, learned
from callgate.openai.request import SETTINGS, THINKING, BodyBuilder
from callgate.request import Embeddings, ModelRequest
from callgate.types import JsonObject

__all__ = ["OpenAIModel"]


@checked_values
class OpenAIModel(EndpointModel[OpenAIClient]):
    """A model with a chat completions API, at OpenAI or at the base URL.

    Args:
        name: The model, for example `gpt-5.2` or `qwen3:8b`.
        base_url: Where the server is, such as `http://localhost:11434/v1`, instead of what the environment says.
        api_key: A key, instead of the one in the environment. A server on this machine needs none.
        limits: Time-outs, attempts and sizes.
        client: A client to use instead of one of its own.
        env: An environment, instead of the process's own.
        http: Your own HTTP client: an AsyncClient of httpx2 or httpx, or any `callgate.wire.transport.Transport`.
            It stays yours and is not closed.
        ssl: A context that says whom to trust and which certificate to show, instead of what the system says.
        headers: Headers of every request, for gateways. The setting `headers` adds others for some runs.
    """

    provider = "openai"
    """The provider whose protocol it speaks."""

    _is_shown = staticmethod(is_shown)

    def _client_type(self) -> type[OpenAIClient]:
        return OpenAIClient

    def _prepare(self) -> None:
        self._bodies = BodyBuilder(self.name)
        self._supports_tools = self._client.quirks.supports_tools
        self._has_asked = False

    @property
    def server(self) -> str:
        """The kind of server, as far as it is known: a key of `callgate.openai.quirks.QUIRKS`."""
        return self._client.quirks.server

    @property
    def supports_tools(self) -> bool | None:
        """True if the model supports tools; None while that is unknown. Others can be prompted to call."""
        return self._supports_tools

    @property
    def known_settings(self) -> Collection[str]:
        """The settings that its server understands."""
        return (*SETTINGS, *self._client.quirks.settings)

    @property
    def thinking_words(self) -> Collection[str]:
        """The words that the setting `thinking` may have, from the least on."""
        return THINKING

    async def generate(self, request: ModelRequest) -> AsyncGenerator[JsonObject | Notice, None]:
        """Ask the model; yields chunks as they arrive, and a notice for every wait.

        Raises:
            ToolsUnsupportedError: the model, or its server, has no tools.
            ModelError: there is no answer, or it broke off.
            UsageError: a setting, a tool or media that cannot be sent.
        """
        has_tools = bool(request.declaration.names)
        if has_tools:
            await self._refuse_without_tools()
        for _ in range(len(LESSONS) + 1):
            before = self._client.quirks
            try:
                stream = request.stream and (before.streams_tools or not has_tools)
                reader = AnswerReader(request.declaration.names)
                async with contextlib.aclosing(self._answer(request, reader, stream=stream)) as items:
                    async for item in items:
                        yield item
                self._supports_tools = True if reader.has_calls else self._supports_tools
                return
            except ToolsUnsupportedError:
                self._supports_tools = False
                raise
            except InvalidRequestError as error:
                # A refusal that says what the server wants instead is a lesson; the next request is another one.
                wiser = learned(before, str(error))
                if wiser is None:
                    raise
                self._client.quirks = wiser
                message = f"The server refused the request, and is sent an adapted one: {error}"
                yield Notice("adapted", message, "warning")

    def _body(self, request: ModelRequest, *, stream: bool) -> bytes:
        return self._bodies.body(request, self._client.quirks, stream=stream)

    async def embed(self, requests: Sequence[JsonObject]) -> Embeddings:
        """The embeddings of texts, or of tokens.

        Raises:
            ModelError: there is no answer.
            UsageError: media, or a field that chat completions' servers do not know.
        """
        sizes = {request.get("outputDimensionality") for request in requests}
        if len(sizes) > 1:
            raise UsageError("all embeddings of one request have the same 'outputDimensionality' at this server")
        inputs = [request.get("tokens") or _embedded_text(request) for request in requests]
        vectors, tokens = await self._client.embed(self._name, inputs, next(iter(sizes), None))
        return Embeddings(vectors=vectors, tokens=tokens)

    async def _refuse_without_tools(self) -> None:
        """Ask the server once, where it would otherwise drop the tools in silence.

        Raises:
            ToolsUnsupportedError: it says that its model has none.
        """
        if self._supports_tools is None and not self._has_asked:
            self._supports_tools = await self._client.tells_tools()
            self._has_asked = True
        if self._supports_tools is False:
            raise ToolsUnsupportedError(
                f"{self._name!r} has no tools, as {self._client.quirks.title} reports; use mode='prompted', or another model"
            )


def _embedded_text(request: JsonObject) -> str:
    """The text of a request for an embedding; several parts are joined by line breaks."""
    for key in request:
        if key not in ("content", "outputDimensionality", "model"):
            raise UsageError(f"an OpenAI-compatible server makes no embeddings with {key!r}: leave it out")
    parts = parts_of(request.get("content") or {})
    if not all(isinstance(part.get("text"), str) for part in parts):
        raise UsageError("an OpenAI-compatible server embeds text only")
    return "\n".join(part["text"] for part in parts)
