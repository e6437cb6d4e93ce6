"""Everything that examples are made from, loaded once: tools by origin, requests, families, and what must not be used.

The folder of `inputs.py` comes in. What goes out is read by the makers of examples; nothing is random here.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from training import families, inputs

EXCLUDED = Path(__file__).parent / "excluded_tools.txt"
_SLOTS_MAX, _SLOT_SEEN_MIN = 7, 4


def human(name: str) -> str:
    """A name of code as words: `orderId`, `order_id` and `order.id` are "order id"."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return re.sub(r"\s+", " ", re.sub(r"[_.\-]", " ", spaced)).strip().lower()


def normal(text: str) -> str:
    """A prompt without case and punctuation, to find it again."""
    return re.sub(r"\W+", " ", text.lower()).strip()


@dataclass(slots=True)
class Corpus:
    """The material of all examples."""

    pools: dict[str, list[dict[str, Any]]]
    groups: dict[str, list[dict[str, Any]]]
    seal_by_name: dict[str, dict[str, Any]]
    requests: dict[str, list[dict[str, Any]]]
    slots: dict[str, list[str]]
    families: tuple[families.FamilyTool, ...]
    banned: set[str]
    excluded: frozenset[str]
    vocabulary: list[str]


@cache
def load(folder: Path) -> Corpus:
    """The corpus of an inputs folder."""
    tools, requests, tests = (inputs.read(folder / f"{name}.json.gz") for name in ("tools", "requests", "tests"))
    excluded = excluded_names()
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for pool in tools.values():
        pool[:] = [tool for tool in pool if tool["name"] not in excluded]
        for tool in pool:
            groups[tool["source"]].append(tool)
    banned = {normal(case["question"]) for cases in tests["bfcl"].values() for case in cases}
    for prompts in tests["prompts"]:
        banned |= {normal(case["prompt"]) for case in prompts["cases"]}
        banned |= {normal(case["prompt"]) for case in prompts.get("holdout_cases", [])}
    return Corpus(
        pools=tools,
        groups=dict(groups),
        seal_by_name={tool["name"]: tool for tool in tools["seal"]},
        requests=requests,
        slots=_slots([*requests["nlu"], *requests["snips"]]),
        families=tuple(tool for tool in families.load() if not excluded & {name for name, _ in tool.names}),
        banned=banned,
        excluded=excluded,
        vocabulary=_vocabulary(tools),
    )


def excluded_names() -> frozenset[str]:
    """Names of tools that are kept for the evaluation."""
    lines = EXCLUDED.read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _slots(requests: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The usual slots of each intent."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for request in requests:
        seen[request["intent"]].update(request["slots"].keys())
    return {
        intent: [slot for slot, count in counts.most_common(_SLOTS_MAX) if count >= _SLOT_SEEN_MIN]
        for intent, counts in seen.items()
    }


def _vocabulary(tools: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Ordinary words of the descriptions, for values that must be copied."""
    words: Counter[str] = Counter()
    for pool in tools.values():
        for tool in pool:
            words.update(re.findall(r"\b[a-z]{3,12}\b", tool["description"]))
    return sorted(word for word, count in words.items() if count >= 2)
