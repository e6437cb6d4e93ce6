"""Requests to the Interactions API: the shared client with that protocol.

A body comes in, events go out as they arrive, and a `Notice` whenever the caller has to wait. Stored interactions are
fetched, cancelled and deleted by their id. How requests are timed and tried again is known to `callgate.wire`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from callgate.errors import InvalidRequestError
from callgate.events import Notice
from callgate.gemini.surface import Surface
from callgate.interactions.answer import is_visible, status_of
from callgate.interactions.failures import ending_of, error_in, failure_of_body
from callgate.strict_json import objects_in
from callgate.types import JsonObject, Limits
from callgate.wire.client import HttpClient, RetryingStream
from callgate.wire.dialect import HttpRequest, Response
from callgate.wire.endpoint_health import Clock, EndpointHealth, SystemClock, health_for
from callgate.wire.failures import Failure, Sent
from callgate.wire.reader import ResponseReader
from callgate.wire.sender import HttpOptions

if TYPE_CHECKING:
    from callgate.gemini.client import GeminiClient

__all__ = ["InteractionsClient"]

_SYSTEM = SystemClock()


class InteractionsClient:
    """A client for one surface. Connections are kept alive for a while, at most until `aclose`."""

    def __init__(
        self,
        surface: Surface,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        health: EndpointHealth | None = None,
        dice: random.Random | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        self.surface = surface
        self.limits = limits or Limits()
        self.clock = clock or _SYSTEM
        self.dice = dice or random.Random()
        self._health = health
        self._options = options
        self._resources: GeminiClient | None = None
        self._http, self._calls = (
            HttpClient(
                dialect, auth=surface.credentials, renew=surface.renew, clock=self.clock, limits=limits, dice=dice,
                options=options,
            )
            for dialect in (_Interactions(), _Calls())
        )  # fmt: skip

    @property
    def sends_all(self) -> bool:
        """True if it can ask for what the server keeps; a transport of the program may have `post` alone."""
        http: Any = None if self._options is None else self._options.http
        return http is None or any(callable(getattr(http, name, None)) for name in ("build_request", "request"))

    def create(
        self,
        model: str,
        body: bytes,
        *,
        stream: bool,
        tools: Collection[str] = (),
        headers: Mapping[str, str] | None = None,
        until: float | None = None,
    ) -> RetryingStream:
        """Send the body and return the response stream. Retried only until something came that the caller has seen.

        Args:
            model: The model's name.
            body: The request as JSON.
            stream: Whether the answer is to come in pieces.
            tools: The tools' own names in the order of their declarations, to explain what a refusal means.
            headers: Headers of this request alone, checked.
            until: When it must be over, by the client's clock; `total_s` from its beginning on if it is not said.

        Raises:
            ModelError: there is no answer, or it broke off.
        """
        request = HttpRequest(url=self._url(), body=body, stream=stream, model=model, tools=tools, headers=headers)
        return self._http.chunks(request, self._health_of(model), until=until)

    def get(
        self,
        model: str,
        interaction: str,
        *,
        stream: bool,
        last_event: str = "",
        headers: Mapping[str, str] | None = None,
        until: float | None = None,
    ) -> RetryingStream:
        """An interaction that the server keeps: whole, or its events after `last_event`.

        Raises:
            ModelError: there is no answer, or it broke off.
        """
        query = {"stream": "true" if stream else "false"} | ({"last_event_id": last_event} if last_event else {})
        path = f"/{quote(interaction, safe='')}?{urlencode(query)}"
        request = HttpRequest(
            url=self._url(path), body=b"", stream=stream, model=model, headers=headers, method="GET"
        )  # fmt: skip
        return self._http.chunks(request, self._health_of(model), until=until)

    async def cancel(self, model: str, interaction: str) -> JsonObject:
        """Stop a background run; returns the interaction as it is then.

        Raises:
            ModelError: the server refuses, or cannot be reached.
        """
        return await self._call(model, "POST", f"/{quote(interaction, safe='')}/cancel")

    async def delete(self, model: str, interaction: str) -> bool:
        """Make the server forget an interaction; returns False if it knows none by that id.

        Raises:
            ModelError: the server refuses, or cannot be reached.
        """
        try:
            await self._call(model, "DELETE", f"/{quote(interaction, safe='')}")
        except InvalidRequestError as error:
            if error.status != "NOT_FOUND":
                raise
            return False
        return True

    def resources(self) -> GeminiClient:
        """Return the client for what both APIs share on this surface: files, descriptions of models, embeddings."""
        if self._resources is None:
            from callgate.gemini.client import GeminiClient  # A plain answer needs none of it.

            self._resources = GeminiClient(
                self.surface,
                limits=self.limits,
                clock=self.clock,
                health=self._health,
                dice=self.dice,
                options=self._options,
            )
        return self._resources

    async def _call(self, model: str, method: str, path: str) -> JsonObject:
        request = HttpRequest(url=self._url(path), body=b"", stream=False, model=model, method=method)
        async with contextlib.aclosing(self._calls.chunks(request, self._health_of(model))) as items:
            found = [item async for item in items if not isinstance(item, Notice)]
        return found[0] if found else {}

    def _url(self, path: str = "") -> str | Callable[[], str]:
        """The URL of a request, or a function that returns it once the credentials are known."""
        place = partial(self.surface.within, f"interactions{path}")
        return place() if self.surface.is_known else place

    def _health_of(self, model: str) -> EndpointHealth:
        surface = self.surface
        endpoint = (f"{surface.base_url} {surface.project} interactions/{model}", hash(surface.api_key))
        return self._health or health_for(endpoint, self.clock)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those in use are closed when they are released."""
        await self._http.aclose()
        await self._calls.aclose()
        if self._resources is not None:
            await self._resources.aclose()


class _Interactions:
    """The protocol of the Interactions API, as far as a client must know it."""

    reader = ResponseReader
    error_in = staticmethod(error_in)

    def failure_of(
        self, status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent
    ) -> Failure:
        return failure_of_body(status, error, headers, now=now, sent=sent)

    def look(self, chunk: JsonObject) -> tuple[bool, bool]:
        is_end = status_of(chunk) is not None or any(ending_of(error) for error in objects_in([chunk.get("error")]))
        return is_visible(chunk), is_end

    def inspect_response(self, response: Response) -> None:
        pass


class _MaybeEmpty(ResponseReader):
    """A reader of answers that may have no body."""

    def read_whole(self, data: bytes) -> list[JsonObject]:
        return super().read_whole(data) if data.strip() else [{}]


class _Calls(_Interactions):
    """The same for requests whose whole answer is that they were carried out."""

    reader = _MaybeEmpty

    def look(self, chunk: JsonObject) -> tuple[bool, bool]:
        return False, True
