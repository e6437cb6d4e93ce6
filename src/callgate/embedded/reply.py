"""The embedded model's answer, read as it arrives: prose, or lines of calls.

Pieces of text come in; prose goes out at once, calls when the answer is over. The grammar makes an answer one or the other;
an answer made without it may break off or be malformed, and is reported as such.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from callgate.embedded.prompt import CALL
from callgate.types import Usage

__all__ = ["Read", "ReplyReader", "usage_of"]

_HEAD = re.compile(rf"{CALL}[ \t]*([^\s(]+)\(")


@dataclass(frozen=True, slots=True)
class Read:
    """A parsed answer."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    problem: str | None = None
    """The reason why the answer cannot be parsed, if it cannot."""


class ReplyReader:
    """A reader of one answer."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.text = ""
        """The text so far."""
        self.is_imitation = False
        """True if prose begins like the arguments of a tool: a call that was not made as one, and is not shown."""
        self._shown = 0
        self._openings = tuple(f"{name}({mark}" for name in names for mark in "{)")

    def feed(self, piece: str) -> str:
        """Take a piece and return the prose that can be shown now: nothing of a call, nor of what may become one."""
        self.text += piece
        head = self.text.lstrip("` \n")
        self.is_imitation = self.is_imitation or head.startswith(self._openings)
        if self.is_imitation or any(opening.startswith(head) for opening in self._openings):
            return ""
        end = self.text.find(CALL)
        if end < 0:
            held = next((n for n in range(len(CALL) - 1, 0, -1) if self.text.endswith(CALL[:n])), 0)
            end = len(self.text) - held
        shown, self._shown = self.text[self._shown : end], max(end, self._shown)
        return shown

    def rest(self) -> str:
        """The prose that was held back, when the answer is over."""
        if CALL in self.text or self.is_imitation:
            return ""
        rest, self._shown = self.text[self._shown :], len(self.text)
        return rest

    def read(self) -> Read:
        """The calls, when the answer is over."""
        return _calls(self.text) if CALL in self.text else Read()


def _calls(text: str) -> Read:
    decoder = json.JSONDecoder()
    found: list[tuple[str, dict[str, Any]]] = []
    for head in _HEAD.finditer(text):
        try:
            args, end = decoder.raw_decode(text, head.end())
        except ValueError:
            return Read(found, "the arguments of a call are not JSON")
        if not isinstance(args, dict) or not text[end:].lstrip().startswith(")"):
            return Read(found, "a call is not written as name({...})")
        found.append((head[1], cast("dict[str, Any]", args)))
    return Read(found, None if found else "a call was begun and not written")


def usage_of(event: Mapping[str, Any]) -> Usage | None:
    """The token counts of an event, if it has them."""
    raw: Any = event.get("usage")
    if not isinstance(raw, dict):
        return None
    counts = cast("dict[str, Any]", raw)
    prompt_tokens, output_tokens = int(counts.get("prompt_tokens") or 0), int(counts.get("completion_tokens") or 0)
    details = cast("dict[str, Any]", counts.get("prompt_tokens_details") or {})
    return Usage(
        input_tokens=prompt_tokens,
        cached_tokens=int(details.get("cached_tokens") or 0),
        output_tokens=output_tokens,
        total_tokens=prompt_tokens + output_tokens,
    )
