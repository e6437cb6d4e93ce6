"""Requests to Anthropic's Messages API: the shared client with that protocol.

A body comes in, events go out as they arrive, and a `Notice` whenever the caller has to wait. How requests are timed and
tried again is known to `callgate.wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

from callgate.anthropic.answer import says_something, stop_reason_of
from callgate.anthropic.failures import error_in, failure_of_body
from callgate.errors import ProtocolError
from callgate.types import JsonObject
from callgate.wire.credentials import checked_key
from callgate.wire.dialect import Response
from callgate.wire.endpoint import Endpoint, EndpointClient, named_endpoint
from callgate.wire.reader import ResponseReader

__all__ = ["ANTHROPIC_URL", "AnthropicClient", "AnthropicEndpoint", "endpoint_from_environment"]

ANTHROPIC_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
"""The version of the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicEndpoint(Endpoint):
    """One place that serves the Messages API; a base URL that ends with `/v1` means the same as one without.

    Raises:
        UsageError: the base URL or the key cannot be used as one.
    """

    OWNER: ClassVar[str] = "Anthropic"

    auth_token: str | None = field(default=None, repr=False)
    """A bearer token, as gateways want it, instead of a key."""

    def __post_init__(self) -> None:
        Endpoint.__post_init__(self)
        object.__setattr__(self, "base_url", self.base_url.rstrip("/").removesuffix("/v1"))
        if self.auth_token is not None:
            checked_key(self.auth_token, self.OWNER)

    @property
    def url(self) -> str:
        """The URL of requests."""
        return f"{self.base_url}/v1/messages"

    def credentials(self) -> dict[str, str]:
        """The headers, without an await."""
        login = self._login if self.auth_token is None else {"authorization": f"Bearer {self.auth_token}"}
        key = {} if self.api_key is None else {"x-api-key": self.api_key}
        return {**(key or login), "anthropic-version": VERSION}


def endpoint_from_environment(
    env: Mapping[str, str] | None = None, *, base_url: str | None = None, api_key: str | None = None
) -> AnthropicEndpoint:
    """The endpoint that the environment names, unless the arguments do. A server on this machine needs no key.

    Raises:
        UsageError: there is no key for a server elsewhere; the message says which variable to set.
    """
    url, key, token = named_endpoint(
        env, "ANTHROPIC", base_url=base_url, api_key=api_key, usual=ANTHROPIC_URL, example=ANTHROPIC_URL
    )
    return AnthropicEndpoint(base_url=url, api_key=key, auth_token=token)


class AnthropicClient(EndpointClient[AnthropicEndpoint, "_Messages"]):
    """A client for one endpoint. Connections are kept alive for a while, at most until `aclose`."""

    named_endpoint = staticmethod(endpoint_from_environment)

    def dialect_of(self, endpoint: AnthropicEndpoint) -> _Messages:
        """The protocol of the API."""
        return _Messages()

    def model_url(self, model: str) -> str:
        """The URL of a model's description."""
        return f"{self.endpoint.base_url}/v1/models/{quote(model, safe='')}"

    @property
    def hint(self) -> str:
        """The advice where nothing answers at the endpoint."""
        return "check the network, and ANTHROPIC_BASE_URL"

    @property
    def url(self) -> str:
        """The URL of requests."""
        return self.endpoint.url

    async def count_tokens(self, model: str, body: bytes) -> int:
        """The number of tokens of a request, as the server counts them.

        Raises:
            ModelError: there is no answer.
        """
        answers = await self._answers(f"{self.url}/count_tokens", model, body)
        count: Any = answers[0].get("input_tokens") if answers else None
        if not isinstance(count, int):
            raise ProtocolError("the server did not say how many tokens the request has")
        return count


class _Messages:
    """The protocol of the Messages API, as far as a client must know it."""

    reader = ResponseReader
    error_in = staticmethod(error_in)
    failure_of = staticmethod(failure_of_body)

    def look(self, chunk: JsonObject) -> tuple[bool, bool]:
        if "input_tokens" in chunk:  # the answer to a request for a count
            return True, True
        return says_something(chunk), stop_reason_of(chunk) is not None

    def inspect_response(self, response: Response) -> None:
        """Ignore the head of a response."""
