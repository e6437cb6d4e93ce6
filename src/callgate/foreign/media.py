"""Convert images, audio and documents of other frameworks to `Media`.

Takes base64 text and `data:` URLs. Unreadable data gives None, and nothing is ever fetched.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, cast

from callgate.types import Media

__all__ = ["media_from", "media_from_url", "with_items"]

_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)


def with_items(value: Any, change: Callable[[Any], object]) -> object:
    """The value with each item of a list or tuple, or each value of a dictionary, changed; any other is changed itself."""
    changed = change(value)
    if changed is not value:
        return changed
    if isinstance(value, (list, tuple)):
        return [change(item) for item in cast("list[Any]", value)]
    if type(value) is dict:
        return {key: change(item) for key, item in cast("dict[Any, Any]", value).items()}
    return changed


def media_from(data: str, mime_type: str) -> Media | None:
    """Media from base64 text; None if it is none."""
    try:
        return Media(data=base64.b64decode(data, validate=True), mime_type=mime_type)
    except (binascii.Error, ValueError):
        return None


def media_from_url(url: str) -> Media | None:
    """Media from a `data:` address; None for any other address."""
    found = _DATA.fullmatch(url)
    return media_from(found[2], found[1]) if found else None
