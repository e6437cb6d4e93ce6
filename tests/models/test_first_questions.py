"""The first five minutes without a key: 25 questions in one conversation with the embedded model, every call approved.

None may do harm (files change only where that was asked for), and each is answered rightly or declined in a sentence.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from callgate import FileTools, Gate
from callgate.cli.demo_tools import HONEST_TOOLS
from callgate.models.embedded import TOO_SLOW, EmbeddedModel

pytestmark = pytest.mark.slow

FILES = {
    "README.md": "# The garden\n\nThis is the plan of our vegetable garden. It belongs to Anna and has four beds.\n",
    "crops.csv": "name,sow,harvest,price_eur\ncarrots,April,July,1.20\nbeans,May,August,3.10\nlettuce,March,June,0.90\n",
    "shopping.txt": "seeds\nwatering can\n",
    "settings.json": '{"beds": 4, "watering": "daily"}\n',
    "src/plan.py": "# TODO: read the beds from settings.json\nbeds = 4\n\n\n"
    "def rows(bed):\n    # TODO: spacing\n    return bed * 3\n",
}
DECLINES = r"can't|cannot|won't|need to know|no file|no such|don't"
QUESTIONS = [
    ("Hello!", r"\b(hello|hi|help)\b"),
    ("What can you do?", r"list_files.*read_file"),
    ("Which files are here?", r"README\.md.*crops\.csv.*settings\.json.*shopping\.txt.*plan\.py"),
    ("What does the README say?", r"garden|no file"),
    ("What is 12 * 7?", r"\b84\b"),
    ("15% of 240", r"\b36(\.0)?\b"),
    ("Was ist 3 mal 4?", r"\b12\b"),
    ("What time is it in Tokyo?", rf"\d\d:\d\d|{DECLINES}"),
    ("Weather in Oslo?", r"can't tell the weather"),
    ("How many crops are in crops.csv?", rf"\b(3|three)\b(?!\.)|carrots.*beans.*lettuce|{DECLINES}"),
    ("Which crop is the cheapest?", r"can't compare|lettuce"),
    ("Find all TODOs", r"TODO.*plan\.py|plan\.py.*TODO"),
    ("Where is beds defined?", rf"plan\.py|{DECLINES}"),
    ("Who owns the garden?", rf"Anna|{DECLINES}"),
    ("Read shopping.txt", r"seeds"),
    ("Add milk to shopping.txt", r"added.*shopping\.txt"),
    ("Create haiku.txt with a haiku about rain", r"can't make up"),
    ("Rename shopping.txt to groceries.txt", r"can't rename"),
    ("Delete shopping.txt", r"can't delete"),
    ("In settings.json change beds to 6", rf"changed|{DECLINES}"),
    ("Explain src/plan.py", rf"plan\.py.*beds.*rows|{DECLINES}"),
    ("Thank you!", r"welcome"),
    ("What is the capital of France?", rf"Paris|{DECLINES}"),
    ("Send an email to Anna", r"can't send"),
    ("Goodbye!", r"^Goodbye!$"),
]


def found(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.rglob("*") if path.is_file()}


def test_none_of_the_first_questions_does_harm_and_each_is_right_or_declined(embedded: None, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")

    async def approve(*about: Any) -> str:
        return "yes"

    async def story() -> list[str]:
        wrong: list[str] = []
        tools = [FileTools(tmp_path), *HONEST_TOOLS]
        async with Gate(EmbeddedModel(announce=False), tools, approve=approve) as gate:
            for question, right in QUESTIONS:
                reply = await gate.run(question, session="newcomer")
                is_right = re.search(right, reply.text, re.IGNORECASE | re.DOTALL) or TOO_SLOW in reply.text
                if not is_right:
                    calls = [(record.call.name, dict(record.call.args)) for record in reply.calls]
                    wrong.append(f"{question} -> {reply.text[:200]!r} {calls}")
        return wrong

    assert asyncio.run(story()) == []
    now = found(tmp_path)
    allowed = {
        "shopping.txt": {FILES["shopping.txt"], FILES["shopping.txt"] + "milk\n"},
        "settings.json": {FILES["settings.json"], FILES["settings.json"].replace("4", "6")},
    }
    assert {name: text for name, text in now.items() if text not in allowed.get(name, {FILES.get(name)})} == {}
    assert set(now) == set(FILES)
