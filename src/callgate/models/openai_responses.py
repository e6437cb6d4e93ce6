"""OpenAI's Responses API as a model.

A request of the runtime comes in; response chunks in Gemini's form go out. Nothing is kept at the server: the whole history
is sent, with the model's reasoning encrypted as it came. All knowledge of the wire is in `callgate.openai`.
"""

from __future__ import annotations

from collections.abc import Collection

from callgate.base_errors import checked_values
from callgate.models.endpoint_model import EndpointModel
from callgate.openai.client import ResponsesClient
from callgate.openai.request import THINKING
from callgate.openai.responses_answer import ResponseEventReader
from callgate.openai.responses_input import is_shown
from callgate.openai.responses_request import SETTINGS, ResponsesBodyBuilder
from callgate.request import ModelRequest

__all__ = ["OpenAIResponsesModel"]


@checked_values
class OpenAIResponsesModel(EndpointModel[ResponsesClient]):
    """A model by OpenAI's Responses API, at OpenAI or at the base URL.

    Args:
        name: The model, for example `gpt-5.2`.
        base_url: Where the server is, such as `https://api.openai.com/v1`, instead of what the environment says.
        api_key: A key, instead of the one in the environment. A server on this machine needs none.
        limits: Time-outs, attempts and sizes.
        client: A client of the Responses API to use instead of one of its own.
        env: An environment, instead of the process's own.
        http: Your own HTTP client: an AsyncClient of httpx2 or httpx, or any `callgate.wire.transport.Transport`.
            It stays yours and is not closed.
        ssl: A context that says whom to trust and which certificate to show, instead of what the system says.
        headers: Headers of every request, for gateways. The setting `headers` adds others for some runs.
    """

    provider = "openai"
    """The provider whose protocol it speaks."""
    supports_tools = True
    """All models of this API have tools."""

    _is_shown = staticmethod(is_shown)

    def _client_type(self) -> type[ResponsesClient]:
        return ResponsesClient

    def _prepare(self) -> None:
        self._bodies = ResponsesBodyBuilder(self.name, self.origin)

    @property
    def origin(self) -> str:
        """The origin of the signatures in its answers."""
        return f"openai-responses:{self._name}"

    @property
    def known_settings(self) -> Collection[str]:
        """The settings that it understands."""
        return SETTINGS

    @property
    def thinking_words(self) -> Collection[str]:
        """The words that the setting `thinking` may have, from the least on."""
        return THINKING

    def _reader(self) -> ResponseEventReader:
        return ResponseEventReader()

    def _body(self, request: ModelRequest, *, stream: bool) -> bytes:
        return self._bodies.body(request, self._client.quirks, stream=stream)
