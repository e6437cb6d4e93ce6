"""Secrets in URLs: the password of a user, and parameters whose name says that they are secret. Texts in, texts out; pure.

A URL need not be a valid one: a password with an unescaped `@`, `/` or `#` is found too, since people write such.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from callgate.config.secret_names import is_secret_name

__all__ = ["secrets_of_url", "shown_url", "without_url_secrets"]

CHARS_MIN = 3
"""Shorter passwords are not looked for in other texts, where they are anything."""
_START = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://")
_WEB = frozenset({"http", "https", "ws", "wss"})
_AUTHORITY_END = re.compile(r"[/?#]")
_PIECES = re.compile(r"[@/?#:]")
_PARAMETER = re.compile(r"[?&;]([^=&;#\s]{1,200})=([^&;#\s]*)")


def shown_url(text: str, mask: str = "***") -> str:
    """Return a URL with `mask` in place of its secrets; without a mask, the password goes with its colon."""
    shown, end = "", 0
    for start, stop in _spans(text):
        shown += text[end : start - (not mask and text[start - 1] == ":")] + mask
        end = stop
    return shown + text[end:]


def secrets_of_url(text: str) -> list[str]:
    """Return the secrets of a URL, as they are written in it, as they are meant, and in the pieces that others read."""
    written = [text[start:stop] for start, stop in _spans(text)]
    pieces = [piece for secret in written for piece in (secret, *_PIECES.split(secret))]
    return list(dict.fromkeys(form for piece in pieces for form in (piece, unquote(piece)) if form))


def without_url_secrets(text: str, url: str, mask: str = "***") -> str:
    """Return a text, such as an error of a database, without the secrets of the URL that it is about."""
    for secret in sorted(secrets_of_url(url), key=len, reverse=True):
        text = text.replace(secret, mask) if len(secret) >= CHARS_MIN else text
    return text


def _spans(text: str) -> list[tuple[int, int]]:
    """The places of the secrets, in order."""
    start = _START.match(text)
    if start is None:
        return []
    user = _user_of(text, start.end(), is_web=start[1].lower() in _WEB)
    spans: list[tuple[int, int]] = []
    after = start.end()
    if user is not None:
        colon = text.find(":", start.end(), user)
        spans += [(colon + 1, user)] if 0 <= colon < user - 1 else []
        after = user
    spans += [found.span(2) for found in _PARAMETER.finditer(text, after) if found[2] and is_secret_name(unquote(found[1]))]
    return spans


def _user_of(text: str, start: int, *, is_web: bool) -> int | None:
    """The place of the `@` after the user and the password; None if there are none."""
    found = _AUTHORITY_END.search(text, start)
    end = len(text) if found is None else found.start()
    inside = text.rfind("@", start, end)
    if is_web and inside >= 0:
        return inside
    port = text[start:end].rpartition(":")[2]
    if is_web and (":" not in text[start:end] or port.isdigit() or port.endswith("]")):
        return None  # An `@` of a path, as in /@scope/name.
    before_query = text.rfind("@", start, _query_of(text, start))
    last = before_query if before_query >= 0 else text.rfind("@", start)
    return last if last >= 0 else None


def _query_of(text: str, start: int) -> int:
    found = text.find("?", start)
    return len(text) if found < 0 else found
