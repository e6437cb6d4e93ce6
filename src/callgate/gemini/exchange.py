"""One answer by generateContent, over as many requests as it takes.

A request of the runtime comes in; response chunks go out, continued where the server breaks an answer into several. One that
is refused for an unknown field, or for a cached content that is gone, is sent again without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callgate.content.read import CandidateChoice
from callgate.errors import InvalidRequestError, LimitExceededError, ModelError
from callgate.events import Notice
from callgate.gemini.client import GeminiClient
from callgate.gemini.request import BodyBuilder
from callgate.request import ModelRequest
from callgate.strict_json import SoundObject
from callgate.types import JsonObject
from callgate.wire.credentials import checked_headers
from callgate.wire.retry import RetryingStream

if TYPE_CHECKING:
    from callgate.gemini.caches import CachedPrefix, CacheManager

__all__ = ["HOPS_MAX", "Continuation", "GeminiExchange"]

HOPS_MAX = 32
"""The limit of requests for one answer."""

ADAPTED_MAX = 8
"""The limit of requests to a server that names one unknown field at a time."""

FIELDS_SHOWN = 10
"""The limit of fields in a notice about those that were left out."""

_COUNTS = (
    "promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount",
    "totalTokenCount",
)  # fmt: skip


class GeminiExchange:
    """One answer, of as many requests as the server breaks it into."""

    __slots__ = (
        "_bodies", "_body", "_caches", "_client", "_continuation", "_headers", "_hops", "_is_shown", "_items", "_model",
        "_notices", "_prefix", "_request", "_until", "is_sound",
    )  # fmt: skip

    def __init__(
        self, client: GeminiClient, bodies: BodyBuilder, model: str, request: ModelRequest, caches: CacheManager | None
    ) -> None:
        self._caches = caches
        self._prefix: CachedPrefix | None = None
        self._client = client
        self._bodies = bodies
        self._model = model
        self._request = request
        self._continuation = Continuation()
        self._headers = checked_headers(request.settings.get("headers")) or None
        self._hops = 0
        self._body = b""
        """The body of the latest request."""
        self._is_shown = False
        """True once a chunk was handed out."""
        self._until: float | None = None
        """The deadline of the whole answer, by the client's clock."""
        self._items: RetryingStream | None = None
        self._notices = bodies.notices(request)
        self.is_sound = False
        """True if the chunk that was handed out last is known to be plain JSON within the limits of a call."""

    def __aiter__(self) -> GeminiExchange:
        return self

    async def __anext__(self) -> JsonObject | Notice:
        while True:
            if self._items is None and self._hops == 0 and (notice := await self._prepared()) is not None:
                return notice
            items = self._items or self._next_stream()
            try:
                item = await items.__anext__()
            except ModelError as error:
                if (notice := self._adapted(error)) is not None:
                    self._until = items.until
                    return notice
                if self._prefix is None or self._caches is None or self._hops > 1 or not self._caches.is_lost(error):
                    raise
                # The server has dropped it: everything is sent, and the run does not notice.
                self._caches.forget(self._prefix)
                self._caches = self._prefix = self._items = None
                self._hops = 0
            except StopAsyncIteration:
                if self._continuation.token is None:
                    raise
                self._until = items.until
                self._items = None
            else:
                if isinstance(item, Notice):
                    return item
                self._is_shown = True
                chunk = self._continuation.take(item)
                self.is_sound = type(chunk) is SoundObject
                return chunk

    async def _prepared(self) -> Notice | None:
        """Return what is to be reported before the first request; prepare it if that is nothing more."""
        if self._notices:
            return self._notices.pop()
        if self._caches is not None:
            self._prefix = await self._cached(self._caches)
        return None

    def _adapted(self, error: ModelError) -> Notice | None:
        """Prepare a request without what the server does not know or have; None if there is nothing to leave out."""
        if not isinstance(error, InvalidRequestError) or self._is_shown:
            return None
        if error.gone_file and self._bodies.leave_out_file(error.gone_file, self._body):
            self._items, self._hops = None, self._hops - 1  # Each file is left out once, so this comes to an end.
            from callgate.gemini.gone_files import missing_file_notice  # Few conversations need it.

            return missing_file_notice(error.gone_file)
        if self._hops >= ADAPTED_MAX:
            return None
        left_out = self._bodies.learn_unknown(error.unknown_fields, self._body)
        if not left_out or self._next_body() == self._body:
            return None
        self._items = None
        fields = ", ".join(left_out[:FIELDS_SHOWN]) + (" and others" if len(left_out) > FIELDS_SHOWN else "")
        told = f"The server does not know these fields of the conversation, and is sent it without them: {fields}."
        return Notice("adapted", told, "warning")

    async def _cached(self, caches: CacheManager) -> CachedPrefix | None:
        """Return the cached content that the request begins with, if there is one or it is worth one."""
        request = self._request
        contents, around = self._bodies.cacheable(request)
        talk = request.conversation
        starts = [i for i in range(len(contents)) if not talk.is_model(i) and b'"functionResponse"' not in contents[i]]
        policy = request.cache
        return None if policy is None else await caches.prefix(policy, contents, starts, around)

    def _next_stream(self) -> RetryingStream:
        """Another request: the first, or one that asks for what is missing."""
        if self._hops == HOPS_MAX:
            raise LimitExceededError(f"the answer came in {HOPS_MAX} pieces and was still not complete", retryable=True)
        self._hops += 1
        request = self._request
        body = self._body = self._next_body()
        self._continuation.begin()
        tools = request.declaration.names.values()
        items = self._items = self._client.chunks(
            self._model, body, stream=request.stream, tools=tools, headers=self._headers, until=self._until
        )
        return items

    def _next_body(self) -> bytes:
        cached = None if self._prefix is None else (self._prefix.name, self._prefix.count)
        return self._bodies.body(self._request, continuation=self._continuation.token, cached=cached)

    async def aclose(self) -> None:
        """Close the request that is under way."""
        items, self._items = self._items, None
        if items is not None:
            await items.aclose()


class Continuation:
    """An observer of the chunks of one answer. `token` goes into the next request; None when the answer is complete."""

    def __init__(self) -> None:
        self.token: str | None = None
        self._before: dict[str, int] = {}
        """The usage of earlier requests."""
        self._details: JsonObject = {}
        """The counts by modality of earlier requests."""
        self._choice = CandidateChoice()
        self._now: JsonObject = {}
        """The usage of this request so far, as the server reports it."""

    def begin(self) -> None:
        """A request is about to be sent."""
        self.token = None
        if self._now:
            now = _counts(self._now)
            self._before = {name: self._before.get(name, 0) + now.get(name, 0) for name in _COUNTS}
            self._details = self._summed_details()
            self._now = {}

    def take(self, chunk: JsonObject) -> JsonObject:
        """The chunk as it belongs into the one answer."""
        usage: JsonObject | None = chunk.get("usageMetadata")
        if isinstance(usage, dict):
            self._now.update(usage)
            if self._before:
                chunk = self._summed(chunk, usage)
        candidate = self._choice.of(chunk)
        if candidate.get("finishReason") != "CONTINUATION":
            return chunk
        token: Any = candidate.get("continuationToken")
        self.token = token if isinstance(token, str) and token else None
        if self.token is None:
            return chunk  # Without a token it is an ending like any other that is not a success.
        rest = {key: value for key, value in candidate.items() if key not in ("finishReason", "continuationToken")}
        return {**chunk, "candidates": [rest]}

    def _summed(self, chunk: JsonObject, usage: JsonObject) -> JsonObject:
        if not any(self._before.values()):
            return chunk
        now = _counts(self._now)
        total = {name: self._before[name] + now.get(name, 0) for name in _COUNTS if self._before[name] or name in now}
        return {**chunk, "usageMetadata": {**usage, **total, **self._summed_details()}}

    def _summed_details(self) -> JsonObject:
        from callgate.content.usage_details import DETAILS, summed_details  # Few answers come in several requests.

        now = {name: value for name, value in self._now.items() if name in DETAILS and value}
        return summed_details((self._details, now))


def _counts(usage: JsonObject) -> dict[str, int]:
    return {name: usage[name] for name in _COUNTS if isinstance(usage.get(name), int)}
