"""Requests to a server of chat completions: the shared client with that protocol.

A body comes in, chunks go out as they arrive, and a `Notice` whenever the caller has to wait. How requests are timed and
tried again is known to `callgate.wire`.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

from callgate import strict_json
from callgate.base_errors import expect
from callgate.errors import ConnectionLostError, InvalidRequestError, JsonError, ModelError, ProtocolError, UsageError
from callgate.events import Notice
from callgate.openai.answer import embeddings_in, finish_reason_of, is_embedding, prompt_tokens_of, says_something
from callgate.openai.failures import error_in, failure_of_body
from callgate.openai.quirks import Quirks, quirks_of_answer, quirks_of_headers, quirks_of_url
from callgate.openai.responses_answer import response_ended, response_error_in, response_says_something
from callgate.types import JsonObject, Limits
from callgate.wire.client import HttpClient
from callgate.wire.credentials import checked_base_url, checked_key, expect_key, is_local, split_login
from callgate.wire.dialect import HttpRequest, Response
from callgate.wire.endpoint_health import Clock, EndpointHealth, SystemClock, health_for
from callgate.wire.failures import Failure, Sent
from callgate.wire.reader import ResponseReader
from callgate.wire.sender import HttpOptions

__all__ = ["OPENAI_URL", "Endpoint", "OpenAIClient", "endpoint_from_environment"]

OPENAI_URL = "https://api.openai.com/v1"
LOOK_S = 5.0
"""The time-out for asking a server for its capabilities."""

Api: TypeAlias = Literal["chat/completions", "responses"]
"""An API of OpenAI's for conversations, by its path."""

_SYSTEM = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One place that serves chat completions.

    A user and a password in the base URL are sent as a header, unless there is a key.

    Raises:
        UsageError: the base URL or the key cannot be used as one.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    _login: dict[str, str] = field(default_factory=dict[str, str], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base_url, login = split_login(checked_base_url(self.base_url))
        object.__setattr__(self, "base_url", base_url)
        object.__setattr__(self, "_login", login)
        if self.api_key is not None:
            checked_key(self.api_key, "the OpenAI-compatible server")

    @property
    def url(self) -> str:
        """The URL of requests for chat completions."""
        return self.url_of("chat/completions")

    def url_of(self, path: str) -> str:
        """The URL of a path of the API."""
        return f"{self.base_url.rstrip('/')}/{path}"

    def beside(self, path: str) -> str:
        """A path of the server outside of the API."""
        return self.base_url.rstrip("/").removesuffix("/v1") + path

    async def headers(self) -> dict[str, str]:
        """The headers that authenticate a request."""
        return self.credentials()

    def credentials(self) -> dict[str, str]:
        """The headers, without an await."""
        return self._login if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}


def endpoint_from_environment(
    env: Mapping[str, str] | None = None, *, base_url: str | None = None, api_key: str | None = None
) -> Endpoint:
    """The endpoint that the environment names, unless the arguments do. A server on this machine needs no key.

    Raises:
        UsageError: there is no key for a server elsewhere; the message says which variable to set.
    """
    expect_key(api_key)
    expect(base_url, (str, type(None)), "base_url={}", "text such as 'http://127.0.0.1:8080/v1'")
    env = os.environ if env is None else env
    url = (base_url or env.get("OPENAI_BASE_URL", "")).strip() or OPENAI_URL
    # A key that was read from a file often brings its line end along.
    key = (api_key or env.get("OPENAI_API_KEY", "")).strip() or None
    if key is None and "@" not in url and not is_local(url):
        raise UsageError(f"no key for {url}: set OPENAI_API_KEY, or pass api_key=; only a server on this machine needs none")
    return Endpoint(base_url=url, api_key=key)


class OpenAIClient:
    """A client for one API of an endpoint. Connections are kept alive for a while, at most until `aclose`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        health: EndpointHealth | None = None,
        dice: random.Random | None = None,
        options: HttpOptions | None = None,
        api: Api = "chat/completions",
    ) -> None:
        self.endpoint = endpoint
        self.url = endpoint.url_of(api)
        self._clock = clock or _SYSTEM
        self._health = health
        self._dialect = _DIALECTS[api](quirks_of_url(endpoint.base_url))
        self._http = HttpClient(
            self._dialect, auth=endpoint.credentials, clock=self._clock, limits=limits, dice=dice, options=options
        )

    @property
    def quirks(self) -> Quirks:
        """The quirks of the server, as far as they are known."""
        return self._dialect.quirks

    @quirks.setter
    def quirks(self, quirks: Quirks) -> None:
        self._dialect.quirks = quirks

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
        health = self._health or health_for((self.url, model, hash(self.endpoint.api_key)), self._clock)
        tools = names.values()
        request = HttpRequest(
            url=self.url, body=body, stream=stream, model=model, tools=tools, declared=names, headers=headers
        )
        items = self._http.chunks(request, health)
        try:
            async for item in items:
                yield item
        except ConnectionLostError as error:
            if str(error).startswith("no connection"):
                at = f"nothing answers at {self.endpoint.base_url}"
                error.args = (f"{at}: {self.quirks.start} ({error})",)
            raise
        finally:
            await items.aclose()

    async def tells_tools(self) -> bool | None:
        """True if the server itself says that its model has tools; None when it does not say.

        Only a server on this machine is asked: llama.cpp leaves tools out of the prompt without a word where the chat
        template of its model has no place for them.
        """
        path = self.quirks.tells_by or ("/props" if self.quirks.server == "generic" else None)
        if path is None or not is_local(self.endpoint.base_url):
            return None
        found = await self._http.look(self.endpoint.beside(path), within_s=LOOK_S)
        if found is None:
            return None
        headers, props = found
        self._dialect.learn_from_headers(headers)
        caps: Any = props.get("chat_template_caps")
        found: Any = cast("JsonObject", caps).get("supports_tools") if isinstance(caps, dict) else None
        return found if isinstance(found, bool) else None

    async def describe(self, model: str) -> JsonObject | None:
        """The server's description of a model; None if it gives none.

        Raises:
            InvalidRequestError: it says that there is no such model.
        """
        url = self.endpoint.url_of(f"models/{quote(model, safe='/:')}")
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
            error = failure_of_body(status, told, headers, now=0.0, sent=sent, quirks=self.quirks).error
            if isinstance(error, InvalidRequestError) and error.is_model_unknown:
                raise error
        return answer if status == 200 else None

    async def embed(self, model: str, inputs: Sequence[object], dimensions: int | None) -> tuple[list[list[float]], int]:
        """The embeddings of texts, or of tokens, and how many tokens these have; 0 if the server does not say.

        Raises:
            ModelError: there is no answer, or not one for each of them.
        """
        url = self.endpoint.url_of("embeddings")
        body: JsonObject = {"model": model, "input": list(inputs), "encoding_format": "float"}
        body |= {} if dimensions is None else {"dimensions": dimensions}
        health = self._health or health_for((url, model, hash(self.endpoint.api_key)), self._clock)
        request = HttpRequest(url=url, body=strict_json.dump(body), stream=False, model=model)
        async with contextlib.aclosing(self._http.chunks(request, health)) as items:
            answers = [item async for item in items if not isinstance(item, Notice)]
        vectors = [vector for answer in answers for vector in embeddings_in(answer)]
        if len(vectors) != len(inputs):
            raise ProtocolError(f"the server sent {len(vectors)} embeddings for {len(inputs)} texts")
        return vectors, sum(prompt_tokens_of(answer) for answer in answers)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those in use are closed when they are released."""
        await self._http.aclose()


class _ChatCompletions:
    """The protocol of chat completions, as far as a client must know it."""

    def __init__(self, quirks: Quirks) -> None:
        self.quirks = quirks
        self._is_guess = quirks.server != "openai"

    reader = ResponseReader
    error_in = staticmethod(error_in)

    def failure_of(
        self, status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent
    ) -> Failure:
        return failure_of_body(status, error, headers, now=now, sent=sent, quirks=self.quirks)

    def look(self, chunk: JsonObject) -> tuple[bool, bool]:
        if self._is_guess:
            self._learn_quirks(quirks_of_answer(chunk))
        if is_embedding(chunk):
            return True, True
        return says_something(chunk), finish_reason_of(chunk) is not None

    def inspect_response(self, response: Response) -> None:
        if self._is_guess:
            self.learn_from_headers(response.headers)

    def learn_from_headers(self, headers: Mapping[str, str]) -> None:
        self._learn_quirks(quirks_of_headers(headers))

    def _learn_quirks(self, found: Quirks | None) -> None:
        # A port is a guess; what the server says of itself is not, and is believed once.
        if found is not None and self._is_guess:
            self._is_guess = False
            if found.server != self.quirks.server:
                self.quirks = found


class _Responses(_ChatCompletions):
    """The protocol of the Responses API; errors and quirks are those of the same servers."""

    @staticmethod
    def error_in(chunk: Mapping[str, Any]) -> JsonObject | None:
        return response_error_in(chunk) or (None if chunk.get("object") == "response" else error_in(chunk))

    def failure_of(
        self, status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent
    ) -> Failure:
        failure = failure_of_body(status, error, headers, now=now, sent=sent, quirks=self.quirks)
        if status in (404, 405) and isinstance(failure.error, InvalidRequestError) and not failure.error.is_model_unknown:
            failure.error.args = (f"{failure.error}; not every server has the Responses API: 'openai:{sent.model}' asks for "
                                  "chat completions",)  # fmt: skip
        return failure

    def look(self, chunk: JsonObject) -> tuple[bool, bool]:
        return response_says_something(chunk), response_ended(chunk)


_DIALECTS: Mapping[Api, type[_ChatCompletions]] = {"chat/completions": _ChatCompletions, "responses": _Responses}
