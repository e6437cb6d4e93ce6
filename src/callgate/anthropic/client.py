"""Requests to Anthropic's Messages API: the shared client with that protocol.

A body comes in, events go out as they arrive, and a `Notice` whenever the caller has to wait. How requests are timed and
tried again is known to `callgate.wire`.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

from callgate import strict_json
from callgate.anthropic.answer import says_something, stop_reason_of
from callgate.anthropic.failures import error_in, failure_of_body
from callgate.base_errors import expect
from callgate.errors import ConnectionLostError, InvalidRequestError, JsonError, ModelError, ProtocolError, UsageError
from callgate.events import Notice
from callgate.types import JsonObject, Limits
from callgate.wire.client import HttpClient
from callgate.wire.credentials import checked_base_url, checked_key, expect_key, is_local, split_login
from callgate.wire.dialect import HttpRequest, Response
from callgate.wire.endpoint_health import Clock, EndpointHealth, SystemClock, health_for
from callgate.wire.failures import Sent
from callgate.wire.reader import ResponseReader
from callgate.wire.sender import HttpOptions

__all__ = ["ANTHROPIC_URL", "AnthropicClient", "Endpoint", "endpoint_from_environment"]

ANTHROPIC_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
"""The version of the API."""

_SYSTEM = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One place that serves the Messages API.

    A user and a password in the base URL are sent as a header, unless there is a key or a token.

    Raises:
        UsageError: the base URL or the key cannot be used as one.
    """

    base_url: str
    """The address before `/v1`; one that ends with it means the same."""
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)
    """A bearer token, as gateways want it, instead of a key."""
    _login: dict[str, str] = field(default_factory=dict[str, str], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base_url, login = split_login(checked_base_url(self.base_url))
        object.__setattr__(self, "base_url", base_url.rstrip("/").removesuffix("/v1"))
        object.__setattr__(self, "_login", login)
        for secret in (self.api_key, self.auth_token):
            if secret is not None:
                checked_key(secret, "Anthropic")

    @property
    def url(self) -> str:
        """The URL of requests."""
        return f"{self.base_url}/v1/messages"

    async def headers(self) -> dict[str, str]:
        """The headers that authenticate a request."""
        return self.credentials()

    def credentials(self) -> dict[str, str]:
        """The headers, without an await."""
        login = self._login if self.auth_token is None else {"authorization": f"Bearer {self.auth_token}"}
        key = {} if self.api_key is None else {"x-api-key": self.api_key}
        return {**(key or login), "anthropic-version": VERSION}


def endpoint_from_environment(
    env: Mapping[str, str] | None = None, *, base_url: str | None = None, api_key: str | None = None
) -> Endpoint:
    """The endpoint that the environment names, unless the arguments do. A server on this machine needs no key.

    Raises:
        UsageError: there is no key for a server elsewhere; the message says which variable to set.
    """
    expect_key(api_key)
    expect(base_url, (str, type(None)), "base_url={}", "text such as 'https://api.anthropic.com'")
    env = os.environ if env is None else env
    url = (base_url or env.get("ANTHROPIC_BASE_URL", "")).strip() or ANTHROPIC_URL
    # A key that was read from a file often brings its line end along.
    key = (api_key or env.get("ANTHROPIC_API_KEY", "")).strip() or None
    token = env.get("ANTHROPIC_AUTH_TOKEN", "").strip() or None
    if key is None and token is None and "@" not in url and not is_local(url):
        raise UsageError(
            f"no key for {url}: set ANTHROPIC_API_KEY, or pass api_key=; only a server on this machine needs none"
        )
    return Endpoint(base_url=url, api_key=key, auth_token=None if key else token)


class AnthropicClient:
    """A client for one endpoint. Connections are kept alive for a while, at most until `aclose`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        health: EndpointHealth | None = None,
        dice: random.Random | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._clock = clock or _SYSTEM
        self._health = health
        self._http = HttpClient(
            _Messages(), auth=endpoint.credentials, clock=self._clock, limits=limits, dice=dice, options=options
        )

    async def events(
        self,
        model: str,
        body: bytes,
        *,
        stream: bool,
        names: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[JsonObject | Notice, None]:
        """Send the body and yield the response. Retried only until the first event was yielded.

        Args:
            model: The model's name.
            body: The request as JSON.
            stream: Whether the answer is to come in pieces.
            names: Declared names -> the tools' own names, in order, to explain what a refusal means.
            headers: Headers of this request alone, checked.

        Raises:
            ModelError: there is no answer, or it broke off.
        """
        url = self.endpoint.url
        request = HttpRequest(
            url=url, body=body, stream=stream, model=model, tools=names.values(), declared=names, headers=headers
        )
        items = self._http.chunks(request, self._health_of(url, model))
        try:
            async for item in items:
                yield item
        except ConnectionLostError as error:
            if str(error).startswith("no connection"):
                hint = "check the network, and ANTHROPIC_BASE_URL"
                error.args = (f"nothing answers at {self.endpoint.base_url}: {hint} ({error})",)
            raise
        finally:
            await items.aclose()

    async def count_tokens(self, model: str, body: bytes) -> int:
        """The number of tokens of a request, as the server counts them.

        Raises:
            ModelError: there is no answer.
        """
        url = f"{self.endpoint.url}/count_tokens"
        request = HttpRequest(url=url, body=body, stream=False, model=model)
        async with contextlib.aclosing(self._http.chunks(request, self._health_of(url, model))) as items:
            answers = [item async for item in items if not isinstance(item, Notice)]
        count: Any = answers[0].get("input_tokens") if answers else None
        if not isinstance(count, int):
            raise ProtocolError("the server did not say how many tokens the request has")
        return count

    async def describe(self, model: str) -> JsonObject | None:
        """The server's description of a model; None if it gives none.

        Raises:
            InvalidRequestError: it says that there is no such model.
        """
        url = f"{self.endpoint.base_url}/v1/models/{quote(model, safe='')}"
        try:
            status, headers, data = await self._http.call("GET", url, headers={})
            found: Any = strict_json.parse(data)
        except (OSError, UsageError, ModelError, JsonError):
            return None
        if not isinstance(found, dict):
            return None
        answer = cast("JsonObject", found)
        if status == 404 and (told := error_in(answer)) is not None:
            sent = Sent(model=model, tools=[], size_bytes=0)
            error = failure_of_body(status, told, headers, now=0.0, sent=sent).error
            if isinstance(error, InvalidRequestError) and error.is_model_unknown:
                raise error
        return answer if status == 200 else None

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those in use are closed when they are released."""
        await self._http.aclose()

    def _health_of(self, url: str, model: str) -> EndpointHealth:
        return self._health or health_for((url, model, hash(self.endpoint.api_key)), self._clock)


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
