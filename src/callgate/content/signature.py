"""Signatures of the Interactions API on parts, marked with the API and model that wrote them.

A client that holds a history itself gets them on parts, as generateContent has its own, and sends them back with its next
request. The mark says whom they may go back to. All of it is Base64, as a signature is.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from callgate.content.read import (
    SIGNATURE_MARK,
    SKIP_SIGNATURE,
    has_interactions_mark,
    interaction_of,
    is_call,
    parts_of,
    signature_of,
)
from callgate.strict_json import objects_in
from callgate.types import Content, Part

__all__ = ["marked_signature", "own_signature", "signed_parts"]

_MARK = base64.b64decode(SIGNATURE_MARK)
_HASH_BYTES = 9
_STANDARD = str.maketrans("-_", "+/")


def marked_signature(origin: str, signature: str) -> str:
    """The signature of a step with the mark of its origin, encoded so that every client's Base64 gives it back."""
    return base64.urlsafe_b64encode(_mark_of(origin) + signature.encode("utf-8", "replace")).decode("ascii")


def own_signature(part: Mapping[str, Any], origin: str) -> str | None:
    """The signature of a part as its step had it, if this origin wrote it."""
    signature, mark = signature_of(part), _mark_of(origin)
    if signature is None or not has_interactions_mark(part):
        return None
    try:
        found = base64.b64decode(signature.translate(_STANDARD) + "=" * (-len(signature) % 4))
        return found.removeprefix(mark).decode() if found.startswith(mark) else None
    except ValueError:  # A client has changed it.
        return None


def signed_parts(content: Content) -> list[Part]:
    """The parts of a content with the signatures of its record.

    A signature is on the first call after its thought; one that no call follows is on an empty text at the end.
    """
    parts = parts_of(content)
    record = interaction_of(content)
    if record is None:
        return parts
    by_call, last = _signatures(record.get("steps"), str(record.get("origin")))
    signed: list[Part] = []
    for part in parts:
        found = by_call.pop(0) if is_call(part) and by_call else None
        signed.append({**part, "thoughtSignature": found} if found else part)
    return [*signed, *([{"text": "", "thoughtSignature": last}] if last else [])]


def _signatures(steps: Any, origin: str) -> tuple[list[str | None], str | None]:
    """The signature of each call of an answer, and one that no call follows."""
    by_call: list[str | None] = []
    newest: str | None = None
    for step in objects_in(steps):
        if step.get("type") == "function_call":
            by_call.append(newest)
            newest = None
        elif step.get("type") == "thought" and isinstance(given := step.get("signature"), str) and given:
            newest = None if given == SKIP_SIGNATURE else marked_signature(origin, given)
    return by_call, newest


def _mark_of(origin: str) -> bytes:
    return _MARK + hashlib.sha256(origin.encode("utf-8", "replace")).digest()[:_HASH_BYTES]
