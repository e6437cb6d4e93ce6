"""An answer that the server gives in several requests becomes one.

Chunks come in and go out; the chunk that says "to be continued" loses its finish reason, and token counts of earlier
requests are added to those of later ones. This file sends nothing.
"""

from __future__ import annotations

from typing import Any

from callgate.content.read import CandidateChoice
from callgate.types import JsonObject

__all__ = ["Continuation"]

_COUNTS = (
    "promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount",
    "totalTokenCount",
)  # fmt: skip


class Continuation:
    """An observer of the chunks of one answer. `token` goes into the next request; None when the answer is complete."""

    def __init__(self) -> None:
        self.token: str | None = None
        self._before: dict[str, int] = {}
        """The usage of earlier requests."""
        self._choice = CandidateChoice()
        self._now: JsonObject = {}
        """The usage of this request so far, as the server reports it."""

    def begin(self) -> None:
        """A request is about to be sent."""
        self.token = None
        if self._now:
            now = _counts(self._now)
            self._before = {name: self._before.get(name, 0) + now.get(name, 0) for name in _COUNTS}
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
        return {**chunk, "usageMetadata": {**usage, **total}}


def _counts(usage: JsonObject) -> dict[str, int]:
    return {name: usage[name] for name in _COUNTS if isinstance(usage.get(name), int)}
