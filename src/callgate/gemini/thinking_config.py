"""Levels of thinking -> the fields that a model of each generation takes; values that it refuses are refused here.

Generation 2.5 takes a number of tokens within a range, later ones take levels. Unknown models are taken as the newest. A
word is sent as it is or refused; a number for a model of levels becomes the next level, and a notice says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from callgate.errors import UsageError
from callgate.events import Notice
from callgate.types import JsonObject

__all__ = ["LEVELS", "generation_of", "thinking_fields", "thinking_level", "thinking_notices", "thinking_words"]

LEVELS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Levels of thinking, and the number of tokens that Google takes each for."""

DYNAMIC = -1
"""The number by which a model decides itself how much to think."""

# Name of the model -> the least and the most tokens, and whether thinking can be turned off (by 0).
_RANGES: tuple[tuple[str, int, int, bool], ...] = (
    (r"gemini-2\.5-pro", 128, 32_768, False),
    (r"gemini-2\.5-flash-lite", 512, 24_576, True),
    (r"gemini-2\.5-flash|gemini-robotics-er-1\.", 1, 24_576, True),
    (r"", 1, 32_768, True),
)
# Name of the model -> its levels; the first match counts. An alias may stand for any model, so it has what all of them have.
_KNOWN_LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"gemini-2\.5-flash-lite", ("high",)),
    (r"gemini-3-pro", ("low", "high")),
    (r"gemini-[\d.]+-pro", ("low", "medium", "high")),
    (r"gemini-3(?:\.[0-6])?-", ("minimal", "low", "medium", "high")),
    (r"gemma-4", ("minimal", "high")),
    (r"", ("low", "medium", "high")),
)
# Models with other names that are made of 2.5 Flash.
_OF_2_5 = re.compile(r"gemini-robotics-er-1\.")
# Models that do not think: older ones, and those that answer with images or sounds.
_WITHOUT = re.compile(r"gemini-(?:1|2\.0)|gemini-2\.5-[\w-]*(?:image|tts)|gemma-[123]|learnlm-")


def generation_of(model: str) -> tuple[int, ...] | None:
    """The generation of a Gemini model, `(3, 8)`; None for one that does not say, which is taken as the newest."""
    found = re.match(r"(?:.*/)?gemini-(\d+)(?:\.(\d+))?", model)
    return tuple(int(number) for number in found.groups() if number) if found else None


def thinking_words(model: str, *, only_levels: bool = False) -> tuple[str, ...]:
    """The words that the setting `thinking` may have for a model, from the least on; none for one that does not think."""
    if _WITHOUT.match(_short(model)):
        return ()
    if only_levels or not _takes_budget(model):
        return _levels_of(model)
    return ("none", *LEVELS) if _range_of(model)[2] else (*LEVELS,)


def thinking_fields(value: Any, model: str) -> JsonObject:
    """Return the fields of thinkingConfig for a value of the setting `thinking`.

    Raises:
        UsageError: the value is none, or this model does not take it.
    """
    refuse_without_thinking(value, model)
    if isinstance(value, bool):
        return {"includeThoughts": value}
    if _takes_budget(model):
        return _budget(value, model)
    level = thinking_level(value, model)
    return {} if level is None else {"thinkingLevel": level.upper()}


def thinking_level(value: Any, model: str) -> str | None:
    """The level for a word or a number of tokens; None for a model that decides itself.

    Raises:
        UsageError: the value is none, or this model does not take it.
    """
    refuse_without_thinking(value, model)
    tokens, level = _read(value)
    levels = _levels_of(model)
    if tokens == DYNAMIC:
        return None
    if tokens is not None and tokens < 0:
        raise UsageError(f"thinking={value!r}: a number of tokens is 0 or more, or -1 to let the model decide")
    if tokens:  # A number stands for the next level that the model has.
        level = next((name for name in levels if name != "minimal" and tokens <= LEVELS[name]), "high")
    if level not in levels:
        why = ", whose thinking cannot be turned off" if level in (None, "none") else ""
        raise UsageError(f"thinking={value!r} does not exist for {model!r}{why}: use {' or '.join(map(repr, levels))}")
    return level


def thinking_notices(settings: Mapping[str, Any], model: str, *, only_levels: bool = False) -> list[Notice]:
    """Return a notice for a number of tokens in place of which a level is sent."""
    value = settings.get("thinking")
    if type(value) is not int or value <= 0 or (_takes_budget(model) and not only_levels):
        return []
    try:
        level = thinking_level(value, model)
    except UsageError:
        return []  # It is raised where the request is written.
    return [Notice("setting_changed", f"thinking={value}: {model!r} takes levels of thinking; {level!r} is sent.")]


def refuse_without_thinking(value: Any, model: str) -> None:
    """Refuse a setting about thinking for a model that does not think.

    Raises:
        UsageError: it is one.
    """
    if value is not False and _WITHOUT.match(_short(model)):
        raise UsageError(f"thinking={value!r}: {model!r} does not think; leave the setting out")


def _short(model: str) -> str:
    return model.rpartition("/")[2]


def _levels_of(model: str) -> tuple[str, ...]:
    return next(levels for row, levels in _KNOWN_LEVELS if re.match(row, _short(model)))


def _range_of(model: str) -> tuple[int, int, bool]:
    return next((least, most, can_be_off) for row, least, most, can_be_off in _RANGES if re.match(row, _short(model)))


def _takes_budget(model: str) -> bool:
    generation = generation_of(model)
    return (generation is not None and generation < (3,)) or _OF_2_5.match(_short(model)) is not None


def _read(value: Any) -> tuple[int | None, str | None]:
    """A number of tokens, or a word.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(value, int):
        return value, None
    level = value.lower() if isinstance(value, str) else None
    if level not in LEVELS and level != "none":
        words = ", ".join(map(repr, LEVELS))
        raise UsageError(f"thinking={value!r}: use one of {words}, 'none', a number of tokens, or True")
    return None, level


def _budget(value: Any, model: str) -> JsonObject:
    number, level = _read(value)
    tokens = number if number is not None else LEVELS.get(level or "", 0)
    least, most, can_be_off = _range_of(model)
    if tokens == DYNAMIC or (tokens == 0 and can_be_off) or least <= tokens <= most:
        return {"thinkingBudget": tokens}
    off = ", 0 for none" if can_be_off else " (its thinking cannot be turned off)"
    raise UsageError(f"thinking={value!r}: {model!r} takes {least} to {most} tokens{off}, or -1 to decide itself")
