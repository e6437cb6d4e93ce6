"""A whole conversation in terminals of three widths, compared with the screens in golden/, which people have looked at.

`python scripts/terminal_story.py` writes the screens anew, and their pictures in docs/img.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("pexpect", reason="pexpect is not installed")
pytest.importorskip("pyte", reason="pyte is not installed")
pytest.importorskip("prompt_toolkit", reason="prompt_toolkit is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")]

SCRIPT = Path(__file__).parents[2] / "scripts" / "terminal_story.py"
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def stories() -> ModuleType:
    spec = importlib.util.spec_from_file_location("terminal_story", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_conversation_looks_as_it_did(stories: ModuleType, columns: int) -> None:
    text = stories.text_of(stories.story(columns))
    assert text == (GOLDEN / f"story-{columns}.txt").read_text("utf-8")
    assert max(map(len, text.splitlines())) <= columns


def test_every_theme_shows_the_same_words(stories: ModuleType) -> None:
    rows = stories.story(80, CALLGATE_THEME="plain")
    assert stories.text_of(rows) == (GOLDEN / "story-80.txt").read_text("utf-8")
    assert {char.fg for row in rows for char in row} == {"default"}
