"""Requests to a model over HTTP.

A body comes in, response chunks go out as they arrive, and a `Notice` whenever the caller has to wait. Retries are in
`retry.py`, one attempt is the business of `attempt.py`; what an error means is up to the server's `Dialect`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from callgate.base_errors import expect
from callgate.errors import ModelError, ProtocolError, UsageError
from callgate.types import JsonObject, Limits
from callgate.wire.dialect import Dialect, HttpRequest
from callgate.wire.endpoint_health import Clock, EndpointHealth
from callgate.wire.failures import HttpError
from callgate.wire.retry import RetryingStream
from callgate.wire.sender import HEADERS, Credentials, HttpOptions, Sender

__all__ = ["HttpClient"]

LOOK_BYTES_MAX = 1024 * 1024


class HttpClient:
    """A client for one server. Connections are kept alive for a while, at most until `aclose`.

    Answers are recognised by their content, under any content type. Compressed answers are read as gzip
    and deflate; any other encoding is refused, and so is a redirect.

    Args:
        dialect: What the server's words mean.
        auth: What lets requests in.
        renew: Makes credentials be fetched anew that the server refused; whether there may be others now.
        clock: Time between attempts.
        limits: Time-outs, attempts and sizes.
        dice: Chance, for the waits.
        options: How the program wants its requests to be sent.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        auth: Credentials,
        clock: Clock,
        renew: Callable[[], bool] | None = None,
        limits: Limits | None = None,
        dice: random.Random | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        self.dialect = dialect
        expect(limits, (Limits, type(None)), "limits={}", "a Limits object")
        self.limits = limits or Limits()
        self.clock = clock
        self.renew = renew
        self.dice = dice or random.Random()
        self.sender = Sender(auth=auth, connect_s=self.limits.connect_s, write_s=self.limits.idle_s, options=options)

    def chunks(self, request: HttpRequest, health: EndpointHealth, *, until: float | None = None) -> RetryingStream:
        """The response stream of the request, which is sent when the first chunk is requested.

        `until` is when it must be over, by the clock; `total_s` from its beginning on if it is not said.
        """
        return RetryingStream(self, request, health, until=until)

    async def look(self, url: str, *, within_s: float) -> tuple[Mapping[str, str], JsonObject] | None:
        """The headers and the JSON object at a URL of the server; None when it has none, whatever the reason."""
        import httpx2

        reader = self.dialect.reader(event_bytes_max=LOOK_BYTES_MAX, total_bytes_max=LOOK_BYTES_MAX)
        pool = self.sender.pool(asyncio.get_running_loop())
        try:
            client = self.sender.client_for(pool, url)
            if client is None:
                return None
            async with asyncio.timeout(within_s):
                auth = self.sender.credentials()
                headers = HEADERS | (auth if isinstance(auth, dict) else await auth)
                async with client.stream("GET", url, headers=headers) as response:
                    if not response.is_success:
                        return None
                    found = [chunk async for data in response.aiter_bytes() for chunk in reader.feed(data)]
            found += reader.close()
        except (ModelError, UsageError, HttpError, httpx2.HTTPError, httpx2.InvalidURL, OSError):
            return None
        finally:
            if pool.leave():
                await pool.aclose()
        return (response.headers, found[0]) if found else None

    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes = b"",
        with_key: bool = True,
        bytes_max: int = LOOK_BYTES_MAX,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request that is not part of a conversation, once; return the status, the headers and the body.

        Raises:
            OSError: there is no connection, or it broke.
            UsageError: the program's own transport can only post requests of a conversation.
        """
        import httpx2

        pool = self.sender.pool(asyncio.get_running_loop())
        try:
            client = self.sender.client_for(pool, url)
            if client is None:
                raise UsageError("files and caches need an HTTP client: pass http=httpx2.AsyncClient(), not a transport")
            auth: Mapping[str, str] = {}
            if with_key:
                given = self.sender.credentials()
                auth = given if isinstance(given, dict) else await given
            async with asyncio.timeout(self.limits.total_s):
                sent = {**HEADERS, **self.sender.headers, **auth, **headers}
                response = await client.request(method, url, headers=sent, content=content)
            if len(response.content) > bytes_max:
                raise ProtocolError(f"the answer to {method} is too long")
            return response.status_code, response.headers, response.content
        except (httpx2.HTTPError, HttpError) as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
        finally:
            if pool.leave():
                await pool.aclose()

    @property
    def idle_s(self) -> float:
        """The idle time-out after the server has begun to answer."""
        return self.limits.idle_s

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those in use are closed when they are released."""
        await self.sender.aclose()
