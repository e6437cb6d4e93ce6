"""Claude by Anthropic's Messages API as a model.

A request of the runtime comes in; response chunks in Gemini's form go out. All knowledge of the wire is in
`callgate.anthropic`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping
from ssl import SSLContext
from typing import TYPE_CHECKING

from callgate.anthropic.answer import AnswerReader
from callgate.anthropic.client import AnthropicClient, endpoint_from_environment
from callgate.anthropic.request import SETTINGS, THINKING, BodyBuilder
from callgate.base_errors import checked_values, expect
from callgate.events import Notice
from callgate.request import ModelRequest
from callgate.types import JsonObject, Limits
from callgate.wire.credentials import checked_headers
from callgate.wire.sender import http_options

if TYPE_CHECKING:
    from callgate.wire.transport import HttpClientLike

__all__ = ["AnthropicModel"]


@checked_values
class AnthropicModel:
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

    def __init__(  # noqa: PLR0913 - each is a choice of its own, and all but the name are left out nearly always
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        limits: Limits | None = None,
        client: AnthropicClient | None = None,
        env: Mapping[str, str] | None = None,
        http: HttpClientLike | None = None,
        ssl: SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        expect(name, str, "the name of a model is {}", "text")
        self._name = name
        options = http_options(http, ssl, headers, has_client=client is not None)
        self._client = client or AnthropicClient(
            endpoint_from_environment(env, base_url=base_url, api_key=api_key), limits=limits, options=options
        )
        self._bodies = BodyBuilder(name, self.origin)
        self._is_guest = False
        """True if the client is that of another model."""

    def with_name(self, name: str) -> AnthropicModel:
        """Return a model of another name at the same endpoint, with the connections of this one, which it does not close."""
        model = AnthropicModel(name, client=self._client)
        model._is_guest = True
        return model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

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

    async def generate(self, request: ModelRequest) -> AsyncGenerator[JsonObject | Notice, None]:
        """Ask the model; yields chunks as they arrive, and a notice for every wait.

        Raises:
            ModelError: there is no answer, or it broke off.
            UsageError: a setting, a tool or media that cannot be sent.
        """
        body = self._bodies.body(request, stream=request.stream)
        reader = AnswerReader()
        headers = checked_headers(request.settings.get("headers")) or None
        names = request.declaration.names
        events = self._client.events(self._name, body, stream=request.stream, names=names, headers=headers)
        async with contextlib.aclosing(events) as items:
            async for item in items:
                if isinstance(item, Notice):
                    yield item
                    continue
                for said in reader.feed(item):
                    yield said
        for said in reader.close():
            yield said

    async def count_tokens(self, request: ModelRequest) -> int:
        """The number of tokens of a request, as the server counts them.

        Raises:
            ModelError: there is no answer.
        """
        return await self._client.count_tokens(self._name, self._bodies.body(request, stream=False, counts_only=True))

    async def describe(self) -> JsonObject | None:
        """The server's description of the model; None if the server does not say.

        Raises:
            InvalidRequestError: there is no such model.
        """
        return await self._client.describe(self._name)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if not self._is_guest:
            await self._client.aclose()
