"""What examples are made with: the corpus, the dice, and the few steps that all kinds of examples share.

A corpus and a seed come in; a `Studio` goes out, which the makers in `kinds.py`, `datasets.py` and `dialogues.py` are
given.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from training.corpus import Corpus
from training.example import Example, reply
from training.families import FamilyTool, Request
from training.format import Call
from training.results import Results
from training.schema_requests import SchemaRequests, simple
from training.toollists import ToolLists, Variant
from training.values import Values

REFUSALS = (
    "None of the available tools can do that.", "I don't have a tool for that.", "I can't do that with the tools I have.",
    "Sorry, none of my tools fits this request.", "There is no tool available for this request.",
    "That is outside what my tools can do.",
)  # fmt: skip
OWN_SETS = (
    (
        "list_files",
        "read_file",
        "write_file",
        "get_current_weather",
        "cloudgenie_get_blueprints",
        "cloudgenie_create_resource",
    ),
    ("list_files", "read_file", "write_file", "edit_file", "search_files"),
    ("list_files", "read_file", "write_file", "edit_file", "search_files", "delete_file", "move_file", "make_directory"),
    ("get_current_weather", "calculate", "current_time"),
    ("list_files", "read_file", "write_file", "get_current_weather", "calculate", "current_time"),
)


@dataclass(slots=True)
class Studio:
    """Everything that examples are made with."""

    corpus: Corpus
    values: Values
    lists: ToolLists
    schemas: SchemaRequests
    results: Results
    pools: dict[str, list[dict[str, Any]]]
    by_name: dict[str, list[FamilyTool]]

    @classmethod
    def open(cls, corpus: Corpus, seed: int) -> Studio:
        """A studio whose dice start at `seed`."""
        values = Values(random.Random(seed), corpus.vocabulary)
        by_name: dict[str, list[FamilyTool]] = {}
        for tool in corpus.families:
            by_name.setdefault(tool.name, []).append(tool)
        pools = {name: [tool for tool in pool if simple(tool)] for name, pool in corpus.pools.items()}
        return cls(corpus, values, ToolLists(corpus, values), SchemaRequests(values), Results(values), pools, by_name)

    def noisy(self, text: str, said: dict[str, str] | None = None) -> str:
        """The request as people type: a typo, a greeting, no full stop. Words of the arguments are left as they are."""
        values, roll = self.values, self.values.rng.random()
        if roll < 0.05 and said is not None:
            kept = {word for spoken in said.values() for word in re.findall(r"\w+", spoken)}
            words = text.split(" ")
            places = [
                place
                for place, word in enumerate(words)
                if word.isalpha() and word.islower() and len(word) > 4 and word not in kept
            ]
            if places:
                place = values.pick(places)
                words[place] = _typo(words[place], values)
                return " ".join(words)
        elif roll < 0.09:
            return text.rstrip(".?!")
        elif roll < 0.12:
            return values.pick(["hi, ", "hey, ", "ok, ", "so ", "um, ", "quick one: ", "Hello! "]) + text
        elif roll < 0.15:
            return text + values.pick([" thanks", " thx", " Thank you!", " pls", " asap", " :)"])
        return text

    def sentence(self, request: Request, family: FamilyTool) -> str:
        """A family's request as a sentence: at times a capital letter and a full stop."""
        text = request.text
        if self.values.chance(0.5):
            text = text[0].upper() + text[1:]
        last = next((name for name, spoken in request.said.items() if text.endswith(spoken)), None)
        free_text = last is not None and family.kinds.get(last) in (
            "sentence",
            "long_text",
            "expression",
            "foreign",
            "question",
        )
        if text[-1].isalnum() and not free_text and self.values.chance(0.35):
            text += "."
        return text

    def own_list(self, family: FamilyTool) -> list[FamilyTool] | None:
        """One of the tool sets of the product that holds the tool."""
        sets = [names for names in OWN_SETS if family.name in names]
        if not sets:
            return None
        chosen = [
            self.values.pick(self.by_name[name])
            for name in self.values.pick(sets)
            if name != family.name and self.values.chance(0.95)
        ]
        return [*chosen, family]

    def family_list(self, variants: list[Variant]) -> list[dict[str, Any]]:
        """A tool list for family tools: tools of the same domain first, then any others."""
        values, size = self.values, self.lists.size()
        tools = [variant.schema for variant in variants]
        names = {tool["name"] for tool in tools}
        own = self.own_list(variants[0].family) if len(variants) == 1 and values.chance(0.5) else None
        if own:
            plain = [tool.schema() for tool in own if tool.name not in names and tool is not variants[0].family]
            tools += [tool for tool in plain if tool["name"] not in names]
            if values.chance(0.6):
                values.rng.shuffle(tools)
                return tools
            return self.lists.fill(tools, len(tools) + values.rng.randint(1, 5))
        if size > len(tools):
            near = self.lists.neighbours(variants[0].family, values.rng.randint(0, min(6, size - len(tools))))
            meaning = {variant.family.name for variant in variants} | names
            tools += [tool for tool in near if tool["name"] not in meaning]
        return self.lists.fill(tools, size)

    def refusal(self) -> str:
        return self.values.pick(REFUSALS)


def _typo(word: str, values: Values) -> str:
    place = values.rng.randint(1, len(word) - 2)
    return values.pick([
        word[:place] + word[place + 1] + word[place] + word[place + 2 :], word[:place] + word[place + 1 :],
        word[:place] + word[place] + word[place:],
    ])  # fmt: skip


def clash(tools: list[dict[str, Any]]) -> bool:
    return len({tool["name"] for tool in tools}) < len(tools)


def finish(
    studio: Studio, tools: list[dict[str, Any]], calls: list[Call], text: str, *, restyled: float = 0.25, extra: str = ""
) -> Example | None:
    """An example of one request and its calls."""
    if clash(tools):
        return None
    tools, names = studio.lists.restyle(tools, calls, share=restyled)
    return Example(tools, [(text, reply([(names[name], args) for name, args in calls]))], extra=extra)
