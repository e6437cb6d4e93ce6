"""Ages as people write them: `30d`, `12h`, `90m`."""

from __future__ import annotations

from callgate.errors import UsageError

__all__ = ["age_s"]

AGE_MAX_S = 36_500 * 86_400.0
_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60}


def age_s(text: str, *, name: str) -> float:
    """Return the seconds of an age.

    Raises:
        UsageError: it is not a whole number with a unit, or longer than a century; the message begins with `name`.
    """
    unit_s = _UNITS_S.get(text[-1:], 0)
    if not unit_s or not text[:-1].isdecimal() or not text.isascii():
        raise UsageError(f"{name} {text!r}: give a whole number and a unit, as in 30d, 12h or 90m")
    if (found_s := float(text[:-1]) * unit_s) > AGE_MAX_S:
        raise UsageError(f"{name} {text[:20]!r}: give an age of at most {AGE_MAX_S / 86_400:g}d")
    return found_s
