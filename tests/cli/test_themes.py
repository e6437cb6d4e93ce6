"""Themes of the terminal: every meaning has a code in each, and can be read on the ground that the theme is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from callgate.cli.style import painted
from callgate.cli.themes import THEMES, code_of, theme_name, use_theme
from callgate.config.table import SETTINGS

CLI = Path(__file__).parents[2] / "src" / "callgate" / "cli"
STEPS = (0, 95, 135, 175, 215, 255)


def luminance(color: int) -> float:
    """Of one of the 256 colours of a terminal, as WCAG computes it."""
    grey = 8 + 10 * (color - 232)
    rest = color - 16
    rgb = (grey,) * 3 if color >= 232 else (STEPS[rest // 36], STEPS[rest // 6 % 6], STEPS[rest % 6])
    parts = [part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in rgb]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_the_setting_knows_every_theme_and_every_theme_every_meaning() -> None:
    assert SETTINGS["theme"].choices == tuple(THEMES)
    assert SETTINGS["theme"].default == "terminal"
    assert {name: set(theme) for name, theme in THEMES.items()} == {key: set(THEMES["terminal"]) for key in THEMES}


@pytest.mark.parametrize(("theme", "ground"), [("dark", 0.0), ("light", 1.0)])
def test_every_colour_can_be_read_on_its_ground(theme: str, ground: float) -> None:
    for meaning, code in THEMES[theme].items():
        if found := re.search(r"38;5;(\d+)", code):
            seen = luminance(int(found[1]))
            contrast = (max(seen, ground) + 0.05) / (min(seen, ground) + 0.05)
            assert contrast >= 4.5, (meaning, code, contrast)


def test_a_plain_theme_has_no_colours() -> None:
    assert not [code for code in THEMES["plain"].values() if re.search(r"[34]\d", code)]


def test_the_theme_is_that_of_the_settings_until_another_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLGATE_THEME", "light")
    assert (theme_name(), painted("yes", "done")) == ("light", "\x1b[38;5;28myes\x1b[0m")
    use_theme("terminal")
    assert painted("yes", "done") == "\x1b[32myes\x1b[0m"
    use_theme("plain")
    assert (painted("yes", "done"), code_of("heading")) == ("yes", "1")


def test_settings_that_are_wrong_leave_the_colours_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLGATE_THEME", "sparkling")
    assert theme_name() == "terminal"


def test_no_command_has_colours_of_its_own() -> None:
    own = re.compile(r"click\.style\(|\bfg=|\\x1b\[[1-9][\d;]*m")
    found = {path.name for path in CLI.glob("*.py") if own.search(path.read_text("utf-8"))}
    assert found == set()
