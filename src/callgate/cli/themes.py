"""Themes: what each meaning is drawn with in a terminal, for all commands.

A meaning comes in, a code of the terminal goes out. The theme is that of `use_theme`, or of the settings (`theme`, or
`CALLGATE_THEME`). Nothing is told by colour alone: each state has its own mark or word.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["THEMES", "code_of", "theme_name", "use_theme"]

_TERMINAL: Mapping[str, str] = {
    "call": "36", "done": "32", "failed": "31", "notice": "33", "note": "2", "question": "33", "quiet": "2", "strong": "1",
    "added": "32", "removed": "31", "place": "36", "model": "34", "heading": "1;35", "code": "36", "keyword": "35",
    "string": "32", "number": "36", "name": "34", "comment": "2",
}  # fmt: skip


def _colored(green: str, red: str, yellow: str, cyan: str, blue: str, magenta: str, grey: str) -> Mapping[str, str]:
    """The colours of the terminal, each replaced by one of the 256."""
    codes = {"32": green, "31": red, "33": yellow, "36": cyan, "34": blue, "35": magenta, "2": grey, "1;35": magenta}
    found = {meaning: f"38;5;{codes[code]}" if code in codes else code for meaning, code in _TERMINAL.items()}
    return {**found, "heading": f"1;38;5;{magenta}"}


THEMES: Mapping[str, Mapping[str, str]] = {
    "terminal": _TERMINAL,
    "dark": _colored("78", "203", "221", "80", "111", "176", "246"),
    "light": _colored("28", "160", "130", "24", "25", "90", "242"),
    # Orange and blue are told apart by those who cannot tell red from green.
    "colorblind": {**_TERMINAL, "done": "34", "added": "34", "failed": "38;5;208", "removed": "38;5;208", "string": "34"},
    "plain": {
        **dict.fromkeys(_TERMINAL, ""), "note": "2", "quiet": "2", "comment": "2", "strong": "1", "heading": "1",
        "failed": "1", "question": "1", "added": "1", "removed": "9", "keyword": "1",
    },
}  # fmt: skip
"""Theme -> meaning -> code. `terminal` has the colours of the terminal itself; `plain` has none."""

_chosen: dict[str, str] = {}
"""The theme of this process, by the word `theme`; empty until somebody draws."""


def use_theme(name: str) -> None:
    """Draw in another theme from now on."""
    _chosen["theme"] = name


def theme_name() -> str:
    """The theme that is drawn in."""
    if "theme" not in _chosen:
        use_theme(_theme_of_settings())
    return _chosen["theme"]


def code_of(meaning: str | None) -> str:
    """The code that a meaning is drawn with; empty if it looks like everything else."""
    return THEMES[theme_name()].get(meaning, "") if meaning else ""


def _theme_of_settings() -> str:
    from callgate.config import ConfigError, load_settings

    try:
        return load_settings(os.environ)["theme"]
    except ConfigError:  # The command itself says what is wrong with them.
        return "terminal"
