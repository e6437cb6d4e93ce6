"""Counts of tokens by modality, which Gemini reports beside the counts of an answer, of one answer and of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from callgate import strict_json
from callgate.content.read import token_count
from callgate.types import JsonObject, Usage

__all__ = ["DETAILS", "details_of_answers", "summed_details", "usage_details"]

DETAILS = {
    "promptTokensDetails": "input_tokens", "cacheTokensDetails": "cached_tokens", "candidatesTokensDetails": "output_tokens",
    "toolUsePromptTokensDetails": "tool_tokens",
}  # fmt: skip
"""Field with counts by modality -> the field of `Usage` that they are the parts of."""


def usage_details(raw: Iterable[Mapping[str, Any]]) -> JsonObject:
    """Return the details of usage in the raw metadata of one answer, such as the tokens of each kind of media."""
    found = (piece.get("usageMetadata") for piece in raw)
    return {name: value for details in found if isinstance(details, dict) for name, value in details.items()}  # pyright: ignore[reportUnknownVariableType]


def summed_details(found: Iterable[Mapping[str, Any]]) -> JsonObject:
    """Return the details of several requests as those of one: counts by modality are added, other fields replaced."""
    total: JsonObject = {}
    for details in found:
        for name, value in details.items():
            both = [*strict_json.objects_in(total.get(name)), *strict_json.objects_in(value)]
            total[name] = _by_modality(both) if name in DETAILS else value
    return total


def details_of_answers(answers: Sequence[tuple[Usage, Mapping[str, Any]]]) -> JsonObject:
    """Return the details of several answers, each with its usage and its own details, as those of one.

    An answer of text alone is kept without its details: its tokens are text.
    """
    reported = {name for _, details in answers for name in details if name in DETAILS}
    return summed_details(details or _as_text(usage, reported) for usage, details in answers)


def _as_text(usage: Usage, names: Iterable[str]) -> JsonObject:
    counts = {name: getattr(usage, DETAILS[name]) for name in sorted(names)}
    return {name: [{"modality": "TEXT", "tokenCount": count}] for name, count in counts.items() if count}


def _by_modality(entries: Iterable[Mapping[str, Any]]) -> list[JsonObject]:
    counts: dict[str, int] = {}
    for entry in entries:
        modality = entry.get("modality")
        modality = modality if isinstance(modality, str) else "MODALITY_UNSPECIFIED"
        counts[modality] = counts.get(modality, 0) + token_count(entry.get("tokenCount"))
    return [{"modality": modality, "tokenCount": count} for modality, count in counts.items()]
