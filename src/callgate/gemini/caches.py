"""Context caching: system text, tools and the beginning of a history are kept at Google, and sent once.

Takes encoded contents and the fields around them; returns the name of a cached content and the contents that are still to be
sent. A cached content may vanish at any moment, and nothing here makes a run fail: without a cache everything is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate import strict_json
from callgate.errors import InvalidRequestError, ModelError
from callgate.gemini.resources import ResourceClient
from callgate.request import ContextCache
from callgate.types import JsonObject

__all__ = ["CacheManager", "CachedPrefix"]

logger = logging.getLogger("callgate.gemini")

BYTES_PER_TOKEN = 4
RENEW_PART = 0.2
"""A cached content with less than this part of its time left is renewed when it is used."""
KEPT_MAX = 256
"""Prefixes that are remembered."""
FIELDS = ("systemInstruction", "tools", "toolConfig")
"""The fields that move into a cached content, and are refused beside it."""
# Models that cache by themselves only, or not at all.
_WITHOUT = re.compile(r"(?:.*/)?(?:gemma-|gemini-4-)")
_LOST = re.compile(r"cached ?content", re.IGNORECASE)


@dataclass(slots=True)
class CachedPrefix:
    """A cached content."""

    name: str
    count: int
    """The number of contents in it."""
    tokens: int
    expires_s: float
    key: bytes = b""
    chain: bytes = b""
    """The key of the prefix without its contents."""
    held: frozenset[bytes] = frozenset()
    """The hashes of its contents."""


@dataclass(slots=True)
class _CacheState:
    """The prefixes that were seen, and the cached contents."""

    seen: dict[bytes, int] = field(default_factory=dict[bytes, int])
    cached: dict[bytes, CachedPrefix] = field(default_factory=dict[bytes, CachedPrefix])
    refused: set[bytes] = field(default_factory=set[bytes])
    lost: list[CachedPrefix] = field(default_factory=list[CachedPrefix])
    """Cached contents that could not be used any more."""
    making: dict[bytes, asyncio.Task[CachedPrefix | None]] = field(default_factory=dict[bytes, Any])
    """The cached contents that are being made, each once; the other requests that want one wait for it."""


class CacheManager:
    """The cached contents of one model."""

    def __init__(self, client: ResourceClient, model: str, resource: str) -> None:
        self._client = client
        self._model = model
        self._resource = resource
        self._known = _CacheState()

    @staticmethod
    def is_possible(model: str) -> bool:
        """True unless the model is known to cache by itself only, or not at all."""
        return _WITHOUT.match(model) is None

    @staticmethod
    def is_lost(error: ModelError) -> bool:
        """True if the server says that the cached content does not exist, or cannot be used."""
        return _LOST.search(str(error)) is not None

    @property
    def cached(self) -> list[CachedPrefix]:
        """The cached contents that are in use."""
        return list(self._known.cached.values())

    async def prefix(
        self, policy: ContextCache, contents: Sequence[bytes], starts: Sequence[int], around: JsonObject
    ) -> CachedPrefix | None:
        """Return the cached content to send a request with; None to send everything.

        Args:
            policy: When a cache is worth it.
            contents: The encoded contents of the request.
            starts: The indices of the contents with which an exchange begins: a prefix ends before one of them.
            around: The fields of the request beside the contents.
        """
        if not self.is_possible(self._model):
            return None
        base = hashlib.sha256(strict_json.dump([around.get(name) for name in FIELDS])).digest()
        keys = _chain(base, contents, starts if policy.history else [0])
        now = self._client.clock.now()
        best = next((self._usable(key, now) for _, key in reversed(keys) if self._usable(key, now)), None)
        wanted = self._longest_prefix(policy, keys, contents, around, best)
        if wanted is not None:
            made = await self._made(policy, *wanted, contents, around, base)
            if made is not None:
                if best is not None and best.count and best.key in self._known.cached:
                    await self._delete(best)  # The longer one begins with it.
                best = made
        if best is not None and best.expires_s - now < policy.ttl_s * RENEW_PART:
            await self._renew(policy, best)
        return best

    def _usable(self, key: bytes, now: float) -> CachedPrefix | None:
        found = self._known.cached.get(key)
        if found is not None and found.expires_s <= now:
            del self._known.cached[key]
            return None
        return found

    def _longest_prefix(
        self,
        policy: ContextCache,
        keys: Sequence[tuple[int, bytes]],
        contents: Sequence[bytes],
        around: JsonObject,
        best: CachedPrefix | None,
    ) -> tuple[int, bytes] | None:
        """Return the longest prefix that is worth a cached content of its own."""
        known = self._known
        for _, key in keys:
            known.seen[key] = known.seen.pop(key, 0) + 1
        while len(known.seen) > KEPT_MAX:
            del known.seen[next(iter(known.seen))]
        fixed = sum(len(strict_json.dump(around[name])) for name in FIELDS if name in around)
        for count, key in reversed(keys):
            if best is not None and count <= best.count:
                return None
            tokens = (fixed + sum(map(len, contents[:count]))) // BYTES_PER_TOKEN
            is_longer = best is None or tokens - best.tokens >= max(policy.min_tokens, best.tokens // 4)
            is_new = key not in known.refused and key not in known.cached
            if is_new and is_longer and tokens >= policy.min_tokens and known.seen[key] >= policy.uses:
                return count, key
        return None

    async def _made(
        self, policy: ContextCache, count: int, key: bytes, contents: Sequence[bytes], around: JsonObject, base: bytes
    ) -> CachedPrefix | None:
        """Make a cached content, or wait for the request that makes it; None if there is none to be had now.

        A run that is cancelled meanwhile does not stop it: it may exist already, and is to be deleted at the end.
        """
        making, loop = self._known.making, asyncio.get_running_loop()
        task = making.get(key)
        if task is None or task.get_loop().is_closed():
            task = making[key] = loop.create_task(self._create(policy, count, key, contents, around, base))
            task.add_done_callback(lambda done: making.pop(key, None) if making.get(key) is done else None)
        # A task of another event loop cannot be waited for here.
        return await asyncio.shield(task) if task.get_loop() is loop else None

    async def _create(
        self, policy: ContextCache, count: int, key: bytes, contents: Sequence[bytes], around: JsonObject, base: bytes
    ) -> CachedPrefix | None:
        body: JsonObject = {"model": self._resource, "ttl": f"{policy.ttl_s:g}s"}
        body |= {name: around[name] for name in FIELDS if name in around}
        if count:
            body["contents"] = [strict_json.parse(content) for content in contents[:count]]
        try:
            made = await self._client.call("POST", "cachedContents", body, attempts=1)
        except ModelError as error:
            # It is an optimisation: the request is sent without it, and refused prefixes are not tried again.
            logger.warning("no context cache: %s", error)
            if isinstance(error, InvalidRequestError):
                self._known.refused.add(key)
            return None
        usage: Any = made.get("usageMetadata")
        counted = usage.get("totalTokenCount") if isinstance(usage, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        found = CachedPrefix(
            name=str(made.get("name", "")),
            count=count,
            tokens=counted if isinstance(counted, int) else 0,
            expires_s=self._client.clock.now() + policy.ttl_s,
            key=key,
            chain=base,
            held=frozenset(map(_hash, contents[:count])),
        )
        if not found.name:
            return None
        self._known.cached[key] = found
        return found

    async def _renew(self, policy: ContextCache, found: CachedPrefix) -> None:
        try:
            ttl = {"ttl": f"{policy.ttl_s:g}s"}
            await self._client.call("PATCH", f"{found.name}?updateMask=ttl", ttl, attempts=1)
        except ModelError as error:
            logger.warning("the context cache could not be renewed: %s", error)
        else:
            found.expires_s = self._client.clock.now() + policy.ttl_s

    def forget(self, found: CachedPrefix) -> None:
        """Use a cached content no more, because the server does not have it or refuses it."""
        if self._known.cached.get(found.key) is found:
            del self._known.cached[found.key]
            self._known.lost.append(found)

    async def delete_with(self, contents: Callable[[], Iterable[bytes]]) -> int:
        """Delete the cached contents that hold one of these; return how many. The function is called if there are any."""
        if not any(found.held for found in self._known.cached.values()) and not self._known.making:
            return 0
        await self._wait_for_made()
        gone = frozenset(map(_hash, contents()))
        held = [found for found in self.cached if not gone.isdisjoint(found.held)]
        for found in held:
            await self._delete(found)
        return len(held)

    async def _wait_for_made(self) -> None:
        """Wait for the cached contents that are being made in this event loop."""
        loop = asyncio.get_running_loop()
        under_way = [task for task in self._known.making.values() if task.get_loop() is loop]
        if under_way:
            await asyncio.wait(under_way)

    async def _delete(self, found: CachedPrefix) -> None:
        self._known.cached.pop(found.key, None)
        with contextlib.suppress(ModelError):  # It expires by itself.
            await self._client.call("DELETE", found.name, attempts=1)

    async def aclose(self) -> None:
        """Delete the cached contents, also those that are being made."""
        await self._wait_for_made()
        lost, self._known.lost = self._known.lost, []
        for found in [*self.cached, *lost]:
            await self._delete(found)


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _chain(base: bytes, contents: Sequence[bytes], starts: Sequence[int]) -> list[tuple[int, bytes]]:
    """Return the prefixes that may be cached, shortest first: the number of contents, and a key over all that is in them."""
    digest = hashlib.sha256(base)
    ends = {0, *starts}
    keys: list[tuple[int, bytes]] = []
    for index in range(len(contents)):
        if index in ends:
            keys.append((index, digest.copy().digest()))
        digest.update(len(contents[index]).to_bytes(8, "big") + contents[index])
    return keys
