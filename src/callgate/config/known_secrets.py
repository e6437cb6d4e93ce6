"""The secrets that this process knows: one list for every sink that redacts.

Settings, clients and servers put in the keys, tokens and passwords that they are given; logs, the audit log, exports and
spans take them out of what they write, in whatever encoding. Texts go in and come out; nothing is written anywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

__all__ = ["known_secrets", "known_version", "remember_secrets", "remember_secrets_in"]

CHARS_MIN = 8
"""Shorter texts are no secrets worth the name, and stand in too many other texts."""
COUNT_MAX = 10_000
_CREDENTIAL_TABLES = ("env", "headers", "environment")

_known: dict[str, None] = {}
_version = [0]


def remember_secrets(*values: str | None) -> None:
    """Add secrets to the list; the oldest go when there are too many."""
    for value in values:
        if value and len(value) >= CHARS_MIN and value not in _known:
            _known[value] = None
            _version[0] += 1
    while len(_known) > COUNT_MAX:
        _known.pop(next(iter(_known)), None)


def remember_secrets_in(value: Any) -> None:
    """Add the passwords of URLs, and what stands in tables of headers and variables, of a setting."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str) and "://" in item:
            with contextlib.suppress(ValueError):  # It is no URL after all.
                remember_secrets(urlsplit(item).password)
        elif isinstance(item, Mapping):
            table = cast("Mapping[str, Any]", item)
            waiting += table.values()
            for name in _CREDENTIAL_TABLES:
                if isinstance(table.get(name), Mapping):
                    # `Bearer abc` is known as a whole, and by its token alone.
                    remember_secrets(*(text for held in table[name].values() for text in _whole_and_last(held)))


def _whole_and_last(text: Any) -> Iterable[str]:
    return (text, text.rpartition(" ")[2]) if isinstance(text, str) else ()


def known_secrets() -> tuple[str, ...]:
    """Every secret on the list."""
    return tuple(_known)


def known_version() -> int:
    """Changes whenever the list does."""
    return _version[0]
