"""The test cases as prompts, and the verdict on a reply.

Prompt sets (JSON files with tools and cases) and BFCL's held-out part come in; `Case` objects go out, each with the text
that is given to the model. The same cases are used on the training machine and on a CPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training import catalogue, inputs, score
from training import format as prompt_format

BFCL_CASES_MAX = {"live_irrelevance": 200}


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt and what is right for it."""

    set: str
    id: str
    prompt: str
    tools: list[dict[str, Any]]
    record: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.set.split(":")[1]

    def verdict(self, text: str) -> dict[str, int]:
        """Counts to add up: n, and tool, exact, right, malformed, prose where they apply."""
        calls, fault = prompt_format.parse_calls(text)
        base = {"n": 1, "malformed": int(fault is not None or _names_unknown(calls, self.tools))}
        if self.set.startswith("bfcl"):
            return base | self._bfcl_verdict(calls, fault)
        if self.kind == "final":
            return base | {"right": int(not calls and score.mentions(text, self.record["must_mention"]))}
        if self.kind == "missing":
            named = any(score.mentions(text, [words]) for words in self.record["missing"])
            return base | {"right": int(not calls and not fault and named), "prose": int(not calls and not fault)}
        if not self.record.get("expected"):
            return base | {"right": int(not calls and not fault)}
        tool, exact = score.prompt_right(calls, self.record, self.defaults)
        return base | {"tool": int(tool), "exact": int(exact), "prose": int(not calls and not fault)}

    def _bfcl_verdict(self, calls: list[prompt_format.Call], fault: str | None) -> dict[str, int]:
        if "irrelevance" in self.set:
            return {"right": int(not calls and fault is None)}
        wanted = sorted(name for item in self.record["wanted"] for name in item)
        tool = sorted(name for name, _ in calls) == wanted
        exact = score.bfcl_right(calls, self.record["wanted"])
        return {"tool": int(tool), "exact": int(exact), "prose": int(not calls and fault is None)}


def _names_unknown(calls: list[prompt_format.Call], tools: list[dict[str, Any]]) -> bool:
    names = {tool["name"] for tool in tools}
    return any(name not in names for name, _ in calls)


def _plain(tool: Mapping[str, Any]) -> dict[str, Any]:
    return catalogue.tool(tool["name"], tool["description"], catalogue.plain_parameters(tool["parameters"]))


def prompt_cases(prompts: Mapping[str, Any], name: str) -> Iterator[Case]:
    """Cases of a prompt set; `tools` is one list for all, or `lists` holds several by name."""
    lists = {key: [_plain(tool) for tool in tools] for key, tools in prompts.get("lists", {}).items()}
    common = [_plain(tool) for tool in prompts.get("tools", [])]
    for record in prompts["cases"]:
        tools = lists[record["list"]] if "list" in record else common
        text = prompt_format.turn("system", prompt_format.system_text(tools)) + prompt_format.turn("user", record["prompt"])
        if call := record.get("call"):
            text += prompt_format.turn("assistant", prompt_format.calls_text([(call["name"], call["args"])]))
            text += prompt_format.turn("user", prompt_format.results_text([(call["name"], record["result"])]))
        text += prompt_format.OPEN_REPLY
        yield Case(f"{name}:{record['kind']}", record["id"], text, tools, record, prompts.get("default_args", {}))


def bfcl_cases(tests: Mapping[str, Any]) -> Iterator[Case]:
    """BFCL's cases over functions that were not trained on."""
    for name, records in tests["bfcl"].items():
        for record in records[: BFCL_CASES_MAX.get(name)]:
            system = prompt_format.system_text(record["tools"], extra=record["system"][:600])
            text = (
                prompt_format.turn("system", system)
                + prompt_format.turn("user", record["question"])
                + prompt_format.OPEN_REPLY
            )
            yield Case(f"bfcl:{name}", record["id"], text, record["tools"], record)


def load(folder: Path, prompt_files: list[Path]) -> list[Case]:
    """All cases: BFCL's from the inputs folder, and those of the prompt files."""
    cases: list[Case] = []
    for path in prompt_files:
        cases += prompt_cases(json.loads(path.read_text(encoding="utf-8")), path.stem)
    tests = folder / "tests.json.gz"
    if tests.exists():
        cases += bfcl_cases(inputs.read(tests))
    return cases


def summed(verdicts: list[tuple[Case, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """Verdicts added up by set."""
    sums: dict[str, dict[str, int]] = {}
    for case, verdict in verdicts:
        row = sums.setdefault(case.set, {})
        for key, value in verdict.items():
            row[key] = row.get(key, 0) + value
    return sums
