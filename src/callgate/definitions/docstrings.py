"""Parse docstrings into prose and parameter descriptions: Google, NumPy, reST and epydoc, detected by their layout.

Knows nothing of functions, types or tools.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Docstring", "docstring_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Docstring:
    """The parts of a docstring that a model sees."""

    prose: str = ""
    """The description without the sections about parameters, results and exceptions."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """Descriptions by parameter name; `*args` and `**kwargs` without their stars."""


def docstring_from(text: str | None) -> Docstring:
    """Parse a docstring; one that fits no style is prose as a whole."""
    if not text or not text.strip():
        return Docstring()
    import docstring_parser

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Docstring(prose=text.strip())
    parts = (parsed.short_description, parsed.long_description)
    descriptions = {
        name.strip().lstrip("\\*"): found.description.strip()
        for found in parsed.params
        if found.description and found.description.strip()
        for name in found.arg_name.split(",")  # NumPy describes `x, y : int` in one entry
    }
    return Docstring(prose="\n\n".join(part.strip() for part in parts if part), parameters=descriptions)
