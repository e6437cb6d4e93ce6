"""The arguments of a call that arrive as text: an object where they are one, else the text itself."""

from __future__ import annotations

from typing import Any, cast

from callgate import strict_json
from callgate.errors import JsonError, LimitExceededError

__all__ = ["KEYS_MAX", "args_from_text"]

KEYS_MAX = 500_000
"""The limit of keys in the arguments of one call."""


def args_from_text(text: str) -> Any:
    """The arguments as an object where they are one. What cannot be read stays text, and is never taken for none.

    Raises:
        LimitExceededError: there are too many keys to look at.
    """
    if not text.strip():
        return {}
    if text.count('":') > KEYS_MAX:
        raise LimitExceededError(f"the arguments of one call hold more than {KEYS_MAX:,} keys")
    try:
        value = strict_json.parse_isolating(text)
    except JsonError:
        return text
    return cast("Any", value) if isinstance(value, dict) else text if value is not None else {}
