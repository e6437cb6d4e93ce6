"""Levels of thinking -> the fields that a model of each generation takes; values that it refuses are refused here.

Generation 2.5 takes a number of tokens within a range, later ones take levels. Unknown models are taken as the newest.
"""

from __future__ import annotations

import re
from typing import Any

from callgate.errors import UsageError
from callgate.types import JsonObject

__all__ = ["LEVELS", "generation_of", "thinking_fields"]

LEVELS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Levels of thinking, and the number of tokens that Google takes each for."""

DYNAMIC = -1
"""The number by which a model decides itself how much to think."""

# Name of the model -> the least and the most tokens, and whether thinking can be turned off (by 0).
_RANGES: tuple[tuple[str, int, int, bool], ...] = (
    (r"gemini-2\.5-pro", 128, 32_768, False),
    (r"gemini-2\.5-flash-lite", 512, 24_576, True),
    (r"gemini-2\.5-flash", 1, 24_576, True),
)
# Name of the model -> its levels; the first match counts.
_KNOWN_LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"gemini-3-pro", ("low", "high")),
    (r"gemini-[\d.]+-pro", ("low", "medium", "high")),
    (r"gemini-4", ("low", "medium", "high")),
    (r"gemini-3", ("minimal", "low", "medium", "high")),
    (r"", ("low", "medium", "high")),
)
# Models that answer with images or sounds and do not think.
_WITHOUT = re.compile(r"gemini-(?:1|2\.0)|gemini-2\.5-[\w-]*(?:image|tts)|gemma-[12]")


def generation_of(model: str) -> tuple[int, ...] | None:
    """The generation of a Gemini model, `(3, 8)`; None for one that does not say, which is taken as the newest."""
    found = re.match(r"(?:.*/)?gemini-(\d+)(?:\.(\d+))?", model)
    return tuple(int(number) for number in found.groups() if number) if found else None


def thinking_fields(value: Any, model: str) -> JsonObject:
    """Return the fields of thinkingConfig for a value of the setting `thinking`.

    Raises:
        UsageError: the value is none, or this model does not take it.
    """
    if isinstance(value, bool):
        return {"includeThoughts": value}
    level = value.lower() if isinstance(value, str) else None
    if not isinstance(value, int) and level not in LEVELS and level != "none":
        words = ", ".join(map(repr, LEVELS))
        raise UsageError(f"thinking={value!r}: use one of {words}, 'none', a number of tokens, or True")
    tokens = value if isinstance(value, int) else 0 if level is None or level == "none" else LEVELS[level]
    name = model.rpartition("/")[2]
    if _WITHOUT.match(name):
        raise UsageError(f"thinking={value!r}: {model!r} does not think; leave the setting out")
    generation = generation_of(model)
    if generation is not None and generation < (3,):
        return _budget(tokens, value, name)
    return _level(level or _level_of(tokens), value, name)


def _budget(tokens: int, value: Any, model: str) -> JsonObject:
    least, most, can_be_off = next(((a, b, off) for row, a, b, off in _RANGES if re.match(row, model)), (1, 32_768, True))
    if tokens == DYNAMIC or (tokens == 0 and can_be_off):
        return {"thinkingBudget": tokens}
    if isinstance(value, str) and tokens:
        tokens = min(max(tokens, least), most)  # A level is the nearest that the model has.
    if not least <= tokens <= most:
        off = ", 0 for none" if can_be_off else " (its thinking cannot be turned off)"
        raise UsageError(f"thinking={value!r}: {model!r} takes {least} to {most} tokens{off}, or -1 to decide itself")
    return {"thinkingBudget": tokens}


def _level_of(tokens: int) -> str | None:
    """The level for a number of tokens; None for a model that decides itself."""
    if tokens == DYNAMIC:
        return None
    if tokens < 0:
        raise UsageError(f"thinking={tokens!r}: a number of tokens is 0 or more, or -1 to let the model decide")
    return (
        "none"
        if tokens == 0
        else next((name for name, most in LEVELS.items() if name != "minimal" and tokens <= most), "high")
    )


def _level(level: str | None, value: Any, model: str) -> JsonObject:
    if level is None:
        return {}
    levels = next(levels for row, levels in _KNOWN_LEVELS if re.match(row, model))
    if level == "none" and "minimal" in levels:
        level = "minimal"  # The least that these models can be asked for.
    elif level in ("none", "minimal") and generation_of(model) is None:
        level = "low"  # The least that all of those take which an alias may stand for.
    if level not in levels and isinstance(value, int) and level != "none":
        level = "high"  # A number stands for the next level that the model has.
    if level not in levels:
        raise UsageError(f"thinking={value!r} does not exist for {model!r}: use {' or '.join(map(repr, levels))}")
    return {"thinkingLevel": level.upper()}
