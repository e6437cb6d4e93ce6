"""The first five minutes without a key: 25 questions in one conversation with the embedded model, every call approved.

None may do harm (files change only where that was asked for), and each is answered rightly or declined in a sentence.
"""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHAT = Path(__file__).resolve().parents[2] / "benchmarks" / "chat.py"


def test_none_of_the_first_questions_does_harm_and_each_is_right_or_declined(embedded: None) -> None:
    spec = importlib.util.spec_from_file_location("benchmarks_chat", CHAT)
    assert spec
    assert spec.loader
    chat = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chat)

    async def story() -> list[tuple[str, str]]:
        return [(verdict, line) async for verdict, _, line in chat.verdicts_of("first_questions")]

    told = asyncio.run(story())
    assert len(told) == 25
    # A machine that is too busy for the model is no fault of its answers.
    assert [each for each in told if each[0] not in (*chat.GOOD, "late")] == []
