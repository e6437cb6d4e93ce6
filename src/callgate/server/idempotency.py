"""Requests that may be sent twice: the same key with the same body is the same run.

Keys live in the memory of one process, for an hour at most.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from callgate import strict_json
from callgate.server.errors import HttpError
from callgate.server.runs import Run
from callgate.types import JsonObject

__all__ = ["Keys"]

KEYS_MAX = 1000
KEY_CHARS_MAX = 255
KEPT_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Claim:
    digest: bytes
    run: Run
    until_s: float


class Keys:
    """The keys of one process."""

    def __init__(self) -> None:
        self._claims: OrderedDict[str, _Claim] = OrderedDict()
        self._lock = asyncio.Lock()

    async def run(self, key: str, body: JsonObject, start: Callable[[], Awaitable[Run]]) -> tuple[Run, bool]:
        """The run of that key, and whether it was there before.

        Raises:
            HttpError: the key was used with another body, or cannot be one.
        """
        if not 0 < len(key) <= KEY_CHARS_MAX:
            raise HttpError(422, "invalid_request", f"Idempotency-Key: use 1 to {KEY_CHARS_MAX} characters")
        digest = hashlib.sha256(strict_json.dump(dict(sorted(body.items())))).digest()
        async with self._lock:
            claim = self._known(key)
            if claim is not None and claim.digest != digest:
                raise HttpError(409, "idempotency_mismatch", "This Idempotency-Key was used with another body before.")
            if claim is not None:
                return claim.run, True
            run = await start()
            self._claims[key] = _Claim(digest, run, time.monotonic() + KEPT_S)
            while len(self._claims) > KEYS_MAX:
                self._claims.popitem(last=False)
            return run, False

    def _known(self, key: str) -> _Claim | None:
        claim = self._claims.get(key)
        # A run that failed before anything happened is no answer that should be given again.
        if claim is not None and (claim.until_s < time.monotonic() or claim.run.never_began):
            del self._claims[key]
            return None
        return claim
