"""Claude by Anthropic's Messages API as a model.

A request of the runtime comes in; response chunks in Gemini's form go out. All knowledge of the wire is in
`callgate.anthropic`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from callgate.anthropic.answer import AnswerReader
from callgate.anthropic.client import AnthropicClient
from callgate.anthropic.messages import is_shown
from callgate.anthropic.request import SETTINGS, THINKING, BodyBuilder
from callgate.base_errors import checked_values
from callgate.events import Notice
from callgate.models.endpoint_model import EndpointModel
from callgate.request import ModelRequest

__all__ = ["AnthropicModel"]


@checked_values
class AnthropicModel(EndpointModel[AnthropicClient]):
    """A model with Anthropic's Messages API, at Anthropic or at the base URL.

    Args:
        name: The model, for example `claude-opus-4-6`.
        base_url: Where the server is, without `/v1`, instead of what the environment says.
        api_key: A key, instead of the one in the environment. A server on this machine needs none.
        limits: Time-outs, attempts and sizes.
        client: A client to use instead of one of its own.
        env: An environment, instead of the process's own.
        http: Your own HTTP client: an AsyncClient of httpx2 or httpx, or any `callgate.wire.transport.Transport`.
            It stays yours and is not closed.
        ssl: A context that says whom to trust and which certificate to show, instead of what the system says.
        headers: Headers of every request, for gateways. The setting `headers` adds others for some runs.
    """

    provider = "anthropic"
    """The provider whose protocol it speaks."""
    supports_tools = True
    """All models of this API have tools."""

    _is_shown = staticmethod(is_shown)

    def _client_type(self) -> type[AnthropicClient]:
        return AnthropicClient

    def _prepare(self) -> None:
        self._bodies = BodyBuilder(self.name, self.origin)

    @property
    def origin(self) -> str:
        """The origin of the signatures in its answers."""
        return f"anthropic:{self._name}"

    @property
    def known_settings(self) -> Collection[str]:
        """The settings that it understands."""
        return SETTINGS

    @property
    def thinking_words(self) -> Collection[str]:
        """The words that the setting `thinking` may have, from the least on."""
        return THINKING

    def _reader(self) -> AnswerReader:
        return AnswerReader()

    def _body(self, request: ModelRequest, *, stream: bool) -> bytes:
        return self._bodies.body(request, stream=stream)

    def _notices(self, request: ModelRequest) -> Sequence[Notice]:
        return self._bodies.notices(request)

    async def count_tokens(self, request: ModelRequest) -> int:
        """The number of tokens of a request, as the server counts them.

        Raises:
            ModelError: there is no answer.
        """
        return await self._client.count_tokens(self._name, self._bodies.body(request, stream=False, counts_only=True))
