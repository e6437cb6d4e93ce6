"""Requests to a server of chat completions or of the Responses API: the shared client with those protocols.

A body comes in, chunks go out as they arrive, and a `Notice` whenever the caller has to wait. How requests are timed and
tried again is known to `callgate.wire`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast
from urllib.parse import quote

from callgate import strict_json
from callgate.errors import InvalidRequestError, ProtocolError
from callgate.openai.answer import embeddings_in, finish_reason_of, is_embedding, prompt_tokens_of, says_something
from callgate.openai.failures import error_in, failure_of_body
from callgate.openai.quirks import Quirks, quirks_of_answer, quirks_of_headers, quirks_of_url
from callgate.openai.responses_answer import response_ended, response_error_in, response_says_something
from callgate.types import JsonObject
from callgate.wire.credentials import is_local
from callgate.wire.dialect import Response
from callgate.wire.endpoint import Endpoint, EndpointClient, named_endpoint
from callgate.wire.failures import Failure, Sent
from callgate.wire.reader import ResponseReader

__all__ = ["OPENAI_URL", "OpenAIClient", "OpenAIEndpoint", "ResponsesClient", "endpoint_from_environment"]

OPENAI_URL = "https://api.openai.com/v1"
LOOK_S = 5.0
"""The time-out for asking a server for its capabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIEndpoint(Endpoint):
    """One place that serves APIs of OpenAI's.

    Raises:
        UsageError: the base URL or the key cannot be used as one.
    """

    OWNER: ClassVar[str] = "the OpenAI-compatible server"

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


def endpoint_from_environment(
    env: Mapping[str, str] | None = None, *, base_url: str | None = None, api_key: str | None = None
) -> OpenAIEndpoint:
    """The endpoint that the environment names, unless the arguments do. A server on this machine needs no key.

    Raises:
        UsageError: there is no key for a server elsewhere; the message says which variable to set.
    """
    example = "http://127.0.0.1:8080/v1"
    url, key, _ = named_endpoint(env, "OPENAI", base_url=base_url, api_key=api_key, usual=OPENAI_URL, example=example)
    return OpenAIEndpoint(base_url=url, api_key=key)


class OpenAIClient(EndpointClient[OpenAIEndpoint, "_ChatCompletions"]):
    """A client for the chat completions of an endpoint. Connections are kept alive for a while, at most until `aclose`."""

    path = "chat/completions"
    """The path of the API."""

    named_endpoint = staticmethod(endpoint_from_environment)

    def dialect_of(self, endpoint: OpenAIEndpoint) -> _ChatCompletions:
        """The protocol of the API."""
        return _ChatCompletions(quirks_of_url(endpoint.base_url))

    @property
    def url(self) -> str:
        """The URL of requests."""
        return self.endpoint.url_of(self.path)

    def model_url(self, model: str) -> str:
        """The URL of a model's description."""
        return self.endpoint.url_of(f"models/{quote(model, safe='/:')}")

    @property
    def hint(self) -> str:
        """The advice where nothing answers at the endpoint."""
        return self.quirks.start

    @property
    def quirks(self) -> Quirks:
        """The quirks of the server, as far as they are known."""
        return self.dialect.quirks

    @quirks.setter
    def quirks(self, quirks: Quirks) -> None:
        self.dialect.quirks = quirks

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
        self.dialect.learn_from_headers(headers)
        caps: Any = props.get("chat_template_caps")
        found: Any = cast("JsonObject", caps).get("supports_tools") if isinstance(caps, dict) else None
        return found if isinstance(found, bool) else None

    async def embed(self, model: str, inputs: Sequence[object], dimensions: int | None) -> tuple[list[list[float]], int]:
        """The embeddings of texts, or of tokens, and how many tokens these have; 0 if the server does not say.

        Raises:
            ModelError: there is no answer, or not one for each of them.
        """
        body: JsonObject = {"model": model, "input": list(inputs), "encoding_format": "float"}
        body |= {} if dimensions is None else {"dimensions": dimensions}
        answers = await self._answers(self.endpoint.url_of("embeddings"), model, strict_json.dump(body))
        vectors = [vector for answer in answers for vector in embeddings_in(answer)]
        if len(vectors) != len(inputs):
            raise ProtocolError(f"the server sent {len(vectors)} embeddings for {len(inputs)} texts")
        return vectors, sum(prompt_tokens_of(answer) for answer in answers)


class ResponsesClient(OpenAIClient):
    """The same for the Responses API of an endpoint."""

    path = "responses"

    def dialect_of(self, endpoint: OpenAIEndpoint) -> _Responses:
        """The protocol of the API."""
        return _Responses(quirks_of_url(endpoint.base_url))


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
