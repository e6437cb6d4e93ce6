"""The values that settings of a model can have: one table, for requests that are written and for those that are read.

A value of the wrong type or outside the range that Google documents is refused here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from callgate.errors import UsageError

__all__ = ["SHARED_FORMS", "ValueForm", "check_values", "flag", "number", "texts", "whole"]

STOP_SEQUENCES_MAX = 5
INT32_MAX = 2**31 - 1
_SCHEMA_FIELDS = ("parametersJsonSchema", "parameters")


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The form of a setting's value."""

    words: str
    """The form in words, after "expected"."""
    fits: Callable[[Any], bool]


def whole(lowest: int, highest: int) -> ValueForm:
    """A whole number in a range."""

    def fits(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest

    return ValueForm(f"a whole number from {lowest} to {highest}", fits)


def number(lowest: float, highest: float) -> ValueForm:
    """A number in a range."""

    def fits(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and lowest <= value <= highest

    return ValueForm(f"a number from {lowest} to {highest}", fits)


def texts(most: int | None = None) -> ValueForm:
    """A list of texts, which one text is not."""

    def fits(value: Any) -> bool:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return False
        items = cast("Sequence[Any]", value)
        return (most is None or len(items) <= most) and all(isinstance(item, str) for item in items)

    return ValueForm("a list of texts" if most is None else f"a list of at most {most} texts", fits)


def flag() -> ValueForm:
    """True or false."""
    return ValueForm("true or false", lambda value: isinstance(value, bool))


def check_values(settings: Mapping[str, Any]) -> None:
    """Check the values of settings of Gemini; a setting that the table does not have may be anything.

    Raises:
        UsageError: Google refuses one of them.
    """
    for name, value in settings.items():
        form = _OF_GEMINI.get(name)
        if form is not None and value is not None and not form.fits(value):
            raise UsageError(f"{name}={value!r:.200}: expected {form.words}")


_TEXT = ValueForm("a text", lambda value: isinstance(value, str))
_MAPPING = ValueForm("a mapping", lambda value: isinstance(value, Mapping))


def _is_count(value: Any) -> bool:
    """True for a whole number, which clients of Google send as a float."""
    return number(0, INT32_MAX).fits(value) and float(value).is_integer()


SHARED_FORMS: Mapping[str, ValueForm] = {
    "max_output_tokens": whole(1, INT32_MAX),
    "top_k": ValueForm(f"a whole number from 0 to {INT32_MAX}", _is_count),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
}
"""Setting -> the form of its value, for the settings that have the same one in every API that takes them."""
_OF_GEMINI: Mapping[str, ValueForm] = {
    **SHARED_FORMS,
    "stop_sequences": texts(STOP_SEQUENCES_MAX),
    "seed": whole(-INT32_MAX - 1, INT32_MAX),
    "candidate_count": whole(1, 8),
    "logprobs": whole(0, 20),
    "response_logprobs": flag(),
    "include_thoughts": flag(),
    "response_modalities": texts(),
    "response_mime_type": _TEXT,
    "media_resolution": _TEXT,
    "cached_content": _TEXT,
    "service_tier": _TEXT,
    "environment": ValueForm("a text or a mapping", lambda value: isinstance(value, (str, Mapping))),
    "webhook_config": _MAPPING,
    "response_json_schema": ValueForm("a JSON Schema", lambda value: isinstance(value, (Mapping, bool))),
    "schema_field": ValueForm("'parametersJsonSchema' or 'parameters'", lambda value: value in _SCHEMA_FIELDS),
    "stream_arguments": flag(),
    "labels": ValueForm("a mapping of names to texts", lambda value: isinstance(value, Mapping)),
    "speech_config": ValueForm("an object as in the API", lambda value: isinstance(value, (Mapping, list))),
}
"""Setting -> the form that Google documents; `thinking` depends on the model."""
