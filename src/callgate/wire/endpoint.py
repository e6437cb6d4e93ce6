"""One place that serves an API by its base URL and a key, and a client for it.

An address, a key and bodies come in; chunks go out as they arrive, and a `Notice` whenever the caller has to wait. What the
server's words mean is known to the wire of its API.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from callgate import strict_json
from callgate.base_errors import expect
from callgate.errors import ConnectionLostError, InvalidRequestError, JsonError, ModelError, UsageError
from callgate.events import Notice
from callgate.types import JsonObject, Limits
from callgate.wire.client import HttpClient
from callgate.wire.credentials import checked_base_url, checked_key, expect_key, is_local, split_login
from callgate.wire.dialect import Dialect, HttpRequest
from callgate.wire.endpoint_health import Clock, EndpointHealth, SystemClock, health_for
from callgate.wire.failures import Sent
from callgate.wire.sender import HttpOptions

__all__ = ["Endpoint", "EndpointClient", "named_endpoint"]

_SYSTEM = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One place that serves an API.

    A user and a password in the base URL are sent as a header, unless there is a key.

    Raises:
        UsageError: the base URL or the key cannot be used as one.
    """

    OWNER: ClassVar[str] = "the server"
    """The name of the server in messages about its key."""

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    _login: dict[str, str] = field(default_factory=dict[str, str], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base_url, login = split_login(checked_base_url(self.base_url))
        object.__setattr__(self, "base_url", base_url)
        object.__setattr__(self, "_login", login)
        if self.api_key is not None:
            checked_key(self.api_key, self.OWNER)

    async def headers(self) -> dict[str, str]:
        """The headers that authenticate a request."""
        return self.credentials()

    def credentials(self) -> dict[str, str]:
        """The headers, without an await."""
        return self._login if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}


def named_endpoint(
    env: Mapping[str, str] | None, prefix: str, *, base_url: str | None, api_key: str | None, usual: str, example: str
) -> tuple[str, str | None, str | None]:
    """The base URL, the key and the bearer token that the arguments or the variables with this prefix name.

    Raises:
        UsageError: there is neither a key nor a token for a server elsewhere; the message says which variable to set.
    """
    expect_key(api_key)
    expect(base_url, (str, type(None)), "base_url={}", f"text such as {example!r}")
    env = os.environ if env is None else env
    url = (base_url or env.get(f"{prefix}_BASE_URL", "")).strip() or usual
    # A key that was read from a file often brings its line end along.
    key = (api_key or env.get(f"{prefix}_API_KEY", "")).strip() or None
    token = env.get(f"{prefix}_AUTH_TOKEN", "").strip() or None
    if key is None and token is None and "@" not in url and not is_local(url):
        raise UsageError(
            f"no key for {url}: set {prefix}_API_KEY, or pass api_key=; only a server on this machine needs none"
        )
    return url, key, None if key else token


EndpointT = TypeVar("EndpointT", bound=Endpoint)
DialectT = TypeVar("DialectT", bound=Dialect)


class EndpointClient(Generic[EndpointT, DialectT]):
    """A client for one API of an endpoint. Connections are kept alive for a while, at most until `aclose`."""

    def __init__(
        self,
        endpoint: EndpointT,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        health: EndpointHealth | None = None,
        dice: random.Random | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.dialect = self.dialect_of(endpoint)
        self._clock = clock or _SYSTEM
        self._health = health
        self._http = HttpClient(
            self.dialect, auth=endpoint.credentials, clock=self._clock, limits=limits, dice=dice, options=options
        )

    @classmethod
    def from_environment(
        cls,
        env: Mapping[str, str] | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        limits: Limits | None = None,
        options: HttpOptions | None = None,
    ) -> Self:
        """A client for the endpoint that the environment names, unless the arguments do.

        Raises:
            UsageError: there is no key for a server elsewhere; the message says which variable to set.
        """
        return cls(cls.named_endpoint(env, base_url=base_url, api_key=api_key), limits=limits, options=options)

    @staticmethod
    def named_endpoint(env: Mapping[str, str] | None, *, base_url: str | None, api_key: str | None) -> Any:
        """The endpoint that the environment names, for the client of each API to define."""
        raise NotImplementedError

    def dialect_of(self, endpoint: EndpointT) -> DialectT:
        """The protocol of the API at an endpoint, for the client of each API to define."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """The URL of requests, for the client of each API to define."""
        raise NotImplementedError

    def model_url(self, model: str) -> str:
        """The URL of a model's description, for the client of each API to define."""
        raise NotImplementedError

    @property
    def hint(self) -> str:
        """The advice where nothing answers at the endpoint, for the client of each API to define."""
        raise NotImplementedError

    async def chunks(
        self,
        model: str,
        body: bytes,
        *,
        stream: bool,
        names: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[JsonObject | Notice, None]:
        """Send the body and yield the response. Retried only until the first chunk was yielded.

        Args:
            model: The model's name.
            body: The request as JSON.
            stream: Whether the answer is to come in pieces.
            names: Declared names -> the tools' own names, in order, to explain what a refusal means.
            headers: Headers of this request alone, checked.

        Raises:
            ModelError: there is no answer, or it broke off.
        """
        url = self.url
        request = HttpRequest(
            url=url, body=body, stream=stream, model=model, tools=names.values(), declared=names, headers=headers
        )
        items = self._http.chunks(request, self._health_of(url, model))
        try:
            async for item in items:
                yield item
        except ConnectionLostError as error:
            if str(error).startswith("no connection"):
                error.args = (f"nothing answers at {self.endpoint.base_url}: {self.hint} ({error})",)
            raise
        finally:
            await items.aclose()

    async def describe(self, model: str) -> JsonObject | None:
        """The server's description of a model; None if it gives none.

        Raises:
            InvalidRequestError: it says that there is no such model.
        """
        try:
            status, headers, data = await self._http.call("GET", self.model_url(model), headers={})
            found: Any = strict_json.parse(data)
        except (OSError, UsageError, ModelError, JsonError):
            return None
        if not isinstance(found, dict):
            return None
        answer = cast("JsonObject", found)
        if status == 404 and (told := self.dialect.error_in(answer)) is not None:
            sent = Sent(model=model, tools=[], size_bytes=0)
            error = self.dialect.failure_of(status, told, headers, now=0.0, sent=sent).error
            if isinstance(error, InvalidRequestError) and error.is_model_unknown:
                raise error
        return answer if status == 200 else None

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those in use are closed when they are released."""
        await self._http.aclose()

    async def _answers(self, url: str, model: str, body: bytes) -> list[JsonObject]:
        """The answer to a request that is no conversation.

        Raises:
            ModelError: there is no answer.
        """
        request = HttpRequest(url=url, body=body, stream=False, model=model)
        async with contextlib.aclosing(self._http.chunks(request, self._health_of(url, model))) as items:
            return [item async for item in items if not isinstance(item, Notice)]

    def _health_of(self, url: str, model: str) -> EndpointHealth:
        return self._health or health_for((url, model, hash(self.endpoint.api_key)), self._clock)
