"""How well the embedded model calls tools, and what it costs: right tools, exact calls, questions, answers, time, memory.

Sets: 60 prompts over six tools that were looked at while the model was made (`known`), 115 over eighteen invented tools
(`new`), 200 over sixty (`dev`) and 120 over forty (`spent`: the test set of the release before), with which decoding was
developed, 120 over forty others that are run once per release (`test`), and the functions of BFCL that it was not trained on
(`bfcl`; the data is fetched from the package registry once). Each set runs with the decoder, and with `--both` also free,
without grammar and questions.

    python benchmarks/embedded.py                      known, new and dev; ends with 1 if a goal is missed
    python benchmarks/embedded.py --sets test          the test set, once per release
    python benchmarks/embedded.py --both --bfcl 4      with every fourth BFCL case, with and without the decoder
    python benchmarks/embedded.py --cases 60 --sets dev --bfcl 1 --categories simple_python    samples
    python benchmarks/embedded.py --misses             shows what went wrong
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _bfcl
from _steps import keep_steps

from callgate import Conversation, ToolDefinition
from callgate.content.build import call_part, response_part
from callgate.content.read import call_parts, candidate_of, text_of, usage_of
from callgate.declaration import declare
from callgate.embedded.decoder import sane_text
from callgate.embedded.mentions import leaves_of
from callgate.errors import CallgateError
from callgate.events import Notice
from callgate.models import embedded as models
from callgate.models.embedded import EmbeddedModel
from callgate.request import ModelRequest
from callgate.types import FunctionCall

DATA = Path(__file__).parent / "data"
SETS = {
    "known": "tool_prompts.json", "new": "new_prompts.json", "dev": "dev_prompts.json", "dev2": "dev2_prompts.json",
    "spent": "spent_prompts.json",
    "test": "test_prompts.json",
}  # fmt: skip
GOALS = {
    ("new", "tool"): 0.90, ("new", "exact"): 0.80, ("test", "tool"): 0.95, ("test", "exact"): 0.90,
    ("test", "parallel"): 0.85, ("test", "no tool"): 0.95, ("test", "asks"): 0.90,
}  # fmt: skip
"""Set and figure -> the part of the cases that must be right."""


@dataclass
class Answer:
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    seconds: float = 0.0
    output_tokens: int = 0
    notices: list[str] = field(default_factory=list)


@dataclass
class Score:
    right: Counter[str] = field(default_factory=Counter)
    of: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)

    def count(self, name: str, right: bool) -> None:
        self.of[name] += 1
        self.right[name] += right

    def part(self, name: str) -> float:
        return self.right[name] / self.of[name] if self.of[name] else 1.0


def definitions(tools: list[dict[str, Any]]) -> tuple[ToolDefinition, ...]:
    return tuple(
        ToolDefinition(
            name=tool["name"], description=tool["description"], input_schema={"type": "object", **tool["parameters"]}
        )
        for tool in tools
    )


async def ask(model: EmbeddedModel, talk: Conversation, tools: tuple[ToolDefinition, ...], system: str = "") -> Answer:
    declaration = declare(list(tools))
    request = ModelRequest(conversation=talk, definitions=tools, declaration=declaration, system=system or None)
    answer, start = Answer(), time.monotonic()
    async for item in model.generate(request):
        if isinstance(item, Notice):
            answer.notices.append(item.code)
            continue
        candidate = candidate_of(item)
        content = candidate.get("content") or {}
        answer.text += text_of(content)
        answer.calls += [(declaration.names.get(call["name"], call["name"]), call["args"]) for call in call_parts(content)]
        answer.finish = candidate.get("finishReason") or answer.finish
        usage = usage_of(item)
        answer.output_tokens += usage.output_tokens if usage else 0
    answer.seconds = time.monotonic() - start
    return answer


def conversation(case: dict[str, Any]) -> Conversation:
    talk = Conversation()
    talk.add_user(case["prompt"])
    if "call" in case:
        call = FunctionCall(name=case["call"]["name"], args=case["call"]["args"])
        talk.add_model({"role": "model", "parts": [call_part(call)]})
        given = case["result"]
        response = given if "error" in given else {"result": given}
        talk.add_responses([response_part(call, response)])
    return talk


def judge(case: dict[str, Any], answer: Answer, defaults: dict[str, Any], score: Score) -> None:
    kind = case["kind"]
    score.count("well-formed", not is_malformed(answer))
    if kind == "parallel":
        left = list(case["expected"])
        right = len(answer.calls) == len(left)
        for name, args in answer.calls:
            fitting = next(
                (one for one in left if one["name"] == name and _exact(args, one["args"], case.get("accept", {}), {})), None
            )
            right = right and fitting is not None
            if fitting is not None:
                left.remove(fitting)
        score.count("parallel", right)
    elif kind == "call":
        expected = case["expected"][0]
        tool = [name for name, _ in answer.calls] == [expected["name"]]
        exact = tool and _exact(
            answer.calls[0][1], expected["args"], case.get("accept", {}), defaults.get(expected["name"], {})
        )
        score.count("tool", tool)
        score.count("exact", exact)
        right = exact
    elif kind == "none":
        right = not answer.calls and "asked_instead" not in answer.notices
        score.count("no tool", right)
    elif kind == "missing":
        said = answer.text.lower()
        right = not answer.calls and any(word in said for words in case["missing"] for word in words.split("|"))
        score.count("asks", right)
    else:
        said = answer.text.lower()
        right = not answer.calls and all(any(w.lower() in said for w in words.split("|")) for words in case["must_mention"])
        score.count("final", right)
    if not right:
        score.misses.append(
            f"{case['id']}: {case['prompt']!r} -> {answer.calls or answer.text!r} {' '.join(answer.notices)}"
        )


def is_malformed(answer: Answer) -> bool:
    """True if an answer broke off, is a call written as prose, or has marks of the format inside a value."""
    values = [leaf for _, args in answer.calls for leaf in leaves_of(args) if isinstance(leaf, str)]
    return (
        answer.finish != "STOP"
        or _IMITATION.search(answer.text) is not None
        or any(sane_text(value) != value for value in values)
    )


_IMITATION = re.compile(r"^[`\s]*TOOL\b|TOOL_CALL|^[`\s]*[\w.]+\((?:\{|\))|\}\)\s*$")
"""A call, or the beginning of one, in prose."""


def _exact(args: dict[str, Any], expected: dict[str, Any], accept: dict[str, Any], defaults: dict[str, Any]) -> bool:
    for key, value in args.items():
        allowed = [*([expected[key]] if key in expected else defaults.get(key, [])), *accept.get(key, [])]
        if _plain(value) not in [_plain(one) for one in allowed]:
            return False
    return all(key in args or value in defaults.get(key, []) for key, value in expected.items())


def _plain(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else [_plain(v) for v in value] if isinstance(value, list) else value


def sampled(cases: list[Any], count: int) -> list[Any]:
    """At most so many of the cases, evenly spaced; 0 is all."""
    return cases[:: max(len(cases) // count, 1)][:count] if count else cases


async def prompts(model: EmbeddedModel, file: str, count: int = 0) -> Score:
    data, score = json.loads((DATA / file).read_text("utf-8")), Score()
    lists = {name: definitions(tools) for name, tools in (data.get("lists") or {"": data["tools"]}).items()}
    for case in sampled(data["cases"], count):
        answer = await ask(model, conversation(case), lists[case.get("list", "")])
        score.seconds.append(answer.seconds)
        judge(case, answer, data["default_args"], score)
    return score


async def bfcl(model: EmbeddedModel, category: str, every: int, count: int = 0) -> Score:
    score = Score()
    for case in sampled(_bfcl.cases(category)[::every], count):
        talk = Conversation()
        talk.add_user(case["prompt"])
        answer = await ask(model, talk, definitions(case["tools"]), case["system"])
        score.seconds.append(answer.seconds)
        score.count("well-formed", not is_malformed(answer))
        if "irrelevance" in category:
            right = not answer.calls
            score.count("no tool", right)
        else:
            wanted = sorted(name for expected in case["answers"] for name in expected)
            score.count("tool", sorted(name for name, _ in answer.calls) == wanted)
            right = _bfcl.matches(answer.calls, case["answers"])
            score.count("exact", right)
        if "asked_instead" in answer.notices:
            score.count("asked instead", True)
        if not right:
            shown = [(name, args) for name, args in answer.calls] or answer.text
            score.misses.append(
                f"{case['id']}: {case['prompt'][:200]!r} -> {shown!r} wanted {case['answers']} {answer.notices}"
            )
    return score


def show(title: str, score: Score, *, misses: bool) -> None:
    seconds = sorted(score.seconds)
    figures = "  ".join(
        f"{name} {score.right[name]}/{of} {interval(score.right[name], of)}" for name, of in score.of.items()
    )
    print(f"{title:<28} {figures}  median {seconds[len(seconds) // 2]:.2f} s, p90 {seconds[int(len(seconds) * 0.9)]:.2f} s")
    if misses:
        print("\n".join(f"    {miss}" for miss in score.misses))


def interval(right: int, of: int) -> str:
    """The 95 % confidence interval of a part (Wilson), in percent."""
    z, share = 1.96, right / of
    middle, spread = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * spread) / (1 + z * z / of) for sign in (-1, 1))
    return f"({100 * low:.0f}-{100 * high:.0f} %)"


def memory_mib(pid: int | None) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)


async def main(options: argparse.Namespace) -> int:
    # A busy machine shall cost time, and not answers.
    models.ANSWER_S_MAX = 600.0
    start = time.monotonic()
    model = EmbeddedModel(announce=False, ask=not options.no_ask)
    model.load()
    if options.steps:
        keep_steps(model.engine, options.steps)
    print(f"{model.name}: loaded in {time.monotonic() - start:.2f} s, {memory_mib(model.engine.pid)} MiB")
    missed: list[str] = []
    for grammar in (True, False) if options.both else (not options.free,):
        model = EmbeddedModel(announce=False, ask=grammar and not options.no_ask, grammar=grammar)
        how = "grammar" if grammar else "free"
        for name in options.sets:
            score = await prompts(model, SETS[name], options.cases)
            show(f"{name}, {how}", score, misses=options.misses)
            missed += [
                f"{figure} of {name}: {score.part(figure):.0%}, goal {goal:.0%}"
                for (which, figure), goal in GOALS.items()
                if grammar and which == name and score.part(figure) < goal
            ]
            if grammar and score.part("well-formed") < 1:
                missed.append(f"{name}: malformed answers with the grammar")
        for category in options.categories if options.bfcl else ():
            score = await bfcl(model, category, options.bfcl, options.cases)
            show(f"bfcl {category}, {how}", score, misses=options.misses)
        print(f"memory after all that: {memory_mib(model.engine.pid)} MiB")
    if not options.steps:
        await speed(model)
    for sentence in missed:
        print(f"MISSED: {sentence}")
    return 1 if missed else 0


async def speed(model: EmbeddedModel) -> None:
    """Tokens per second, of a new prompt and of an answer."""
    text = "The quick brown fox jumps over the lazy dog. " * 40
    async for event in model.engine.stream(
        "/v1/completions",
        {"prompt": text, "max_tokens": 64, "temperature": 0, "stream": True, "cache_prompt": False, "ignore_eos": True},
    ):
        timings = event.get("timings") or {}
        if timings:
            print(
                f"prompt {timings['prompt_per_second']:.0f} tokens/s, answer {timings['predicted_per_second']:.0f} tokens/s"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--both", action="store_true", help="also without the grammar")
    parser.add_argument("--free", action="store_true", help="only without the grammar")
    parser.add_argument("--bfcl", type=int, default=0, metavar="N", help="every Nth case of BFCL; 0 for none")
    parser.add_argument("--categories", nargs="*", choices=_bfcl.CATEGORIES, default=_bfcl.CATEGORIES)
    parser.add_argument("--cases", type=int, default=0, metavar="N", help="at most N cases of each set, evenly spaced")
    parser.add_argument("--no-ask", action="store_true", help="without the copy test")
    parser.add_argument("--sets", nargs="*", choices=sorted(SETS), default=["known", "new", "dev"])
    parser.add_argument("--steps", type=Path, metavar="FILE", help="keep the model's steps there; for work on the decoder")
    parser.add_argument("--misses", action="store_true", help="show what went wrong")
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except CallgateError as error:
        print(f"embedded: not measured: {error}")
