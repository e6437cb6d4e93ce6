"""Evaluates an adapter on a CPU with llama.cpp, with or without the grammar.

    python -m training.evaluate --base BASE.gguf --adapter ADAPTER.gguf --prompts prompts.json --grammar

The model files and the cases come in; figures by set, times and memory are printed, and every reply is written if wanted.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

from training import cases
from training import format as prompt_format
from training.grammar import grammar

CONTEXT_TOKENS, REPLY_TOKENS = 4096, 192


class Engine:
    """llama.cpp with the base model and the adapter."""

    def __init__(self, base: Path, adapter: Path | None, *, threads: int) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(base)
        params.n_ctx, params.n_predict, params.n_parallel = CONTEXT_TOKENS, REPLY_TOKENS, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.warmup, params.cache_ram_mib, params.verbosity = False, 0, -1
        if adapter:
            lora = xllamacpp.CommonAdapterLoraInfo()
            lora.path, lora.scale = str(adapter), 1.0
            params.lora_adapters = [lora]
        self.server = xllamacpp.Server(params)

    def complete(self, prompt: str, rules: str | None) -> str:
        """The greedy reply to a prompt."""
        body: dict[str, Any] = {
            "prompt": prompt, "max_tokens": REPLY_TOKENS, "temperature": 0, "stop": [prompt_format.END],
            "cache_prompt": True,
        }  # fmt: skip
        if rules:
            body["grammar"] = rules
        answer = self.server.handle_completions(body)
        answer = json.loads(answer) if isinstance(answer, str | bytes) else answer
        return answer["choices"][0]["text"]


def memory_mb(field: str) -> int:
    """VmRSS or VmHWM of this process."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    return int(found[1]) // 1024 if found else 0


def chosen(all_cases: list[cases.Case], sets: list[str], every: int) -> list[cases.Case]:
    """The cases of the wanted sets, of BFCL every n-th."""
    seen: dict[str, int] = {}
    out = []
    for case in all_cases:
        if sets and not any(case.set.startswith(name) for name in sets):
            continue
        seen[case.set] = seen.get(case.set, 0) + 1
        if not case.set.startswith("bfcl") or (seen[case.set] - 1) % every == 0:
            out.append(case)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluate an adapter on a CPU.")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--work", type=Path, default=Path("training/work"))
    parser.add_argument("--prompts", type=Path, nargs="*", default=[])
    parser.add_argument(
        "--sets", nargs="*", default=[], help="only sets that start with these words, e.g. tool_prompts bfcl:simple"
    )
    parser.add_argument("--every", type=int, default=1, help="of BFCL, every n-th case")
    parser.add_argument("--grammar", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--replies", type=Path, help="write every reply to this file")
    options = parser.parse_args()
    start = time.monotonic()
    engine = Engine(options.base, options.adapter, threads=options.threads)
    print(f"loaded in {time.monotonic() - start:.2f} s")
    verdicts, times, lines = [], [], []
    for case in chosen(cases.load(options.work / "inputs", options.prompts), options.sets, options.every):
        rules = grammar(case.tools, calls=case.kind != "final") if options.grammar else None
        began = time.monotonic()
        text = engine.complete(case.prompt, rules)
        times.append(time.monotonic() - began)
        verdict = case.verdict(text)
        verdicts.append((case, verdict))
        lines.append(json.dumps({"set": case.set, "id": case.id, "reply": text, **verdict}, ensure_ascii=False))
    if options.replies:
        options.replies.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, row in cases.summed(verdicts).items():
        print(name, row)
    times.sort()
    middle, slow = times[len(times) // 2], times[int(len(times) * 0.9)]
    print(f"{len(times)} turns, median {middle:.2f} s, 90 % {slow:.2f} s")
    print(f"memory {memory_mb('VmRSS')} MB, peak {memory_mb('VmHWM')} MB")


if __name__ == "__main__":
    main()
