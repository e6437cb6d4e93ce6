"""Where a server is and what lets one in: base URLs and keys are looked at before they are used, and hidden afterwards.

Text comes in, the same text or a sentence goes out. This file knows no server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from callgate.errors import UsageError

__all__ = ["checked_base_url", "checked_key", "redact"]

_BASE_URL = re.compile(r"https?://[^\s/?#]+[^\s?#]*")
_KEY = re.compile(r"[\x21-\x7e]+")
# What is shorter tells nobody anything, be it a key or the beginning of one; and it stands in many a word by chance.
_SECRET_CHARS_MIN = 8


def checked_base_url(url: str) -> str:
    """The URL, if requests can be sent below it.

    Raises:
        UsageError: it is no base URL.
    """
    if not _BASE_URL.fullmatch(url):
        raise UsageError(f"the base URL {url!r} is not one: it begins with https:// and has no query")
    return url


def checked_key(key: str, whose: str) -> str:
    """The key, if it can stand in a header.

    Raises:
        UsageError: it cannot.
    """
    if not _KEY.fullmatch(key):
        # The key itself is not shown: a part of it may be right.
        raise UsageError(f"the key for {whose} is empty or holds characters that no key has; copy it again")
    return key


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, and without the beginning of one at its very end, where the text was cut off."""
    for secret in secrets:
        text = text.replace(secret, "[key]") if len(secret) >= _SECRET_CHARS_MIN else text
        for length in range(min(len(secret) - 1, len(text)), _SECRET_CHARS_MIN - 1, -1):
            if text.endswith(secret[:length]):
                text = text[:-length] + "[key]"
                break
    return text
