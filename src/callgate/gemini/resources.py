"""Requests for the resources beside the models: cached contents, files, batches.

A method, a path and a JSON body come in; the JSON of the answer goes out. Failed attempts are repeated like those of the
models, as far as a repetition is harmless.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, cast

from callgate import strict_json
from callgate.errors import ConnectionLostError, JsonError, ProtocolError
from callgate.gemini.failures import error_in, failure_of_body
from callgate.gemini.surface import Surface
from callgate.types import JsonObject
from callgate.wire.client import LOOK_BYTES_MAX, HttpClient
from callgate.wire.endpoint_health import Clock
from callgate.wire.failures import Sent

__all__ = ["ResourceClient"]


class ResourceClient:
    """A client for the resources of one surface."""

    def __init__(self, surface: Surface, http: HttpClient, clock: Clock) -> None:
        self.surface = surface
        self.clock = clock
        self.limits = http.limits
        self._http = http
        self._dice = random.Random()

    async def call(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        attempts: int | None = None,
        bytes_max: int = LOOK_BYTES_MAX,
    ) -> JsonObject:
        """Send a request for a resource, and return the JSON object of the answer, if it has at most so many bytes.

        Raises:
            ModelError: the server refused it, or could not be reached.
        """
        content = b"" if body is None else strict_json.dump(body)
        url = self.surface.collection(path)
        _, answer = await self.send(method, url, content=content, attempts=attempts, bytes_max=bytes_max)
        return answer

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        attempts: int | None = None,
        with_key: bool = True,
        bytes_max: int = LOOK_BYTES_MAX,
    ) -> tuple[Mapping[str, str], JsonObject]:
        """Send a request to a URL, and return the headers and the JSON object of the answer.

        Raises:
            ModelError: the server refused it, or could not be reached.
        """
        most = self.limits.attempts if attempts is None else attempts
        for attempt in range(1, most + 1):
            try:
                status, got, data = await self._http.call(
                    method, url, headers=headers or {}, content=content, with_key=with_key, bytes_max=bytes_max
                )
            except OSError as error:
                if attempt == most:
                    raise ConnectionLostError(f"the connection to the server broke ({error})", retryable=True) from error
                wait_s = None
            else:
                answer = _object(data)
                if status < 400:
                    return got, answer
                sent = Sent(model="", tools=[], size_bytes=len(content), declared={})
                failure = failure_of_body(status, error_in(answer) or {}, got, now=time.time(), sent=sent)
                if not failure.retry or attempt == most:
                    raise failure.error
                wait_s = failure.wait_s
            backoff_s = min(self.limits.backoff_max_s, self.limits.backoff_s * 2 ** (attempt - 1))
            await self.clock.sleep(max(wait_s or 0.0, self._dice.uniform(backoff_s / 2, backoff_s)))
        raise AssertionError("the last attempt returns or raises")


def _object(data: bytes) -> JsonObject:
    if not data.strip():
        return {}
    try:
        value: Any = strict_json.parse(data)
    except JsonError as error:
        raise ProtocolError(f"the server's answer is not JSON: {error}") from error
    if isinstance(value, list) and value:
        value = cast("list[Any]", value)[0]
    return cast("JsonObject", value) if isinstance(value, dict) else {}
