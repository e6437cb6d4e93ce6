"""A model at an endpoint that is named by its base URL and a key: what the models of other APIs than Google's share.

A request of the runtime comes in; response chunks in Gemini's form go out. All knowledge of a wire is in its package.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from callgate.base_errors import expect
from callgate.events import Notice
from callgate.request import ModelRequest
from callgate.translation.left_out import MediaTest, media_notices
from callgate.types import JsonObject, Limits
from callgate.wire.credentials import checked_headers
from callgate.wire.endpoint import EndpointClient
from callgate.wire.sender import http_options

if TYPE_CHECKING:
    from typing import Self

    from callgate.wire.transport import HttpClientLike

__all__ = ["ChunkReader", "EndpointModel"]

ClientT = TypeVar("ClientT", bound=EndpointClient[Any, Any])


class ChunkReader(Protocol):
    """Reader of one answer: chunks of its wire in, chunks in Gemini's form out."""

    def feed(self, item: JsonObject, /) -> Iterator[JsonObject]:
        """Read one chunk and yield what became known with it."""
        ...

    def close(self) -> Iterator[JsonObject]:
        """Yield what is known at the end."""
        ...


class EndpointModel(Generic[ClientT]):
    """A model at an endpoint; the model of each API says how requests and answers look."""

    _is_shown: MediaTest
    """The test for media that its server takes."""

    def __init__(  # noqa: PLR0913 - each is a choice of its own, and all but the name are left out nearly always
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        limits: Limits | None = None,
        client: ClientT | None = None,
        env: Mapping[str, str] | None = None,
        http: HttpClientLike | None = None,
        ssl: SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        expect(name, str, "the name of a model is {}", "text")
        self._name = name
        options = http_options(http, ssl, headers, has_client=client is not None)
        self._client: ClientT = client or self._client_type().from_environment(
            env, base_url=base_url, api_key=api_key, limits=limits, options=options
        )
        self._is_guest = False
        """True if the client is that of another model."""
        self._prepare()

    def _client_type(self) -> type[ClientT]:
        """The client of the API, for the model of each API to define."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Make what the requests of this model need, for the model of each API to define."""
        raise NotImplementedError

    def with_name(self, name: str) -> Self:
        """Return a model of another name at the same endpoint, with the connections of this one, which it does not close."""
        model = type(self)(name, client=self._client)
        model._is_guest = True
        return model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def known_settings(self) -> Collection[str]:
        """The settings that its server understands, for the model of each API to define."""
        raise NotImplementedError

    def generate(self, request: ModelRequest) -> AsyncGenerator[JsonObject | Notice, None]:
        """Ask the model; gives chunks as they arrive, and a notice for every wait.

        Raises:
            ModelError: there is no answer, or it broke off.
            UsageError: a setting, a tool or media that cannot be sent.
        """
        return self._answer(request, self._reader(), stream=request.stream)

    def _reader(self) -> ChunkReader:
        """A reader of one answer, for the model of each API to define."""
        raise NotImplementedError

    def _body(self, request: ModelRequest, *, stream: bool) -> bytes:
        """The body of a request, for the model of each API to define."""
        raise NotImplementedError

    def _notices(self, request: ModelRequest) -> Sequence[Notice]:
        """A notice for each setting that is not sent as it was asked for; none by default."""
        return ()

    async def _answer(
        self, request: ModelRequest, reader: ChunkReader, *, stream: bool
    ) -> AsyncGenerator[JsonObject | Notice, None]:
        """Send a request; yields what the reader makes of the answer, and notices as they come."""
        body = self._body(request, stream=stream)
        talk = request.conversation
        for notice in (*self._notices(request), *media_notices(talk, self._is_shown, refused=talk.newest_exchange)):
            yield notice
        headers = checked_headers(request.settings.get("headers")) or None
        names = request.declaration.names
        chunks = self._client.chunks(self._name, body, stream=stream, names=names, headers=headers)
        async with contextlib.aclosing(chunks) as items:
            async for item in items:
                if isinstance(item, Notice):
                    yield item
                    continue
                for said in reader.feed(item):
                    yield said
        for said in reader.close():
            yield said

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
