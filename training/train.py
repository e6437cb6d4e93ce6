"""Trains the adapter on one GPU and writes it as arrays.

    python -m training.train --work WORK --out OUT --minutes 8

The data of `generate.py` and the base weights come in; `adapter_*.npz` and `adapter.json` go out, and the figures on the
held-out cases in `figures.json`. Training stops by the clock: the learning rate falls to zero over the given minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

from training import cases, model
from training import format as prompt_format
from training.model import DEVICE, Model

BUCKETS = (192, 320, 448, 640, 896, 1280, 1792)
BATCH_TOKENS, WARMUP_STEPS, CLIP = 32_768, 100, 1.0
PART_BYTES = 15 * 2**20
REPLY_TOKENS, GENERATE_TOGETHER = 192, 160
_START = time.monotonic()


def log(*words: Any) -> None:
    print(f"[{time.monotonic() - _START:6.1f}]", *words, flush=True)


class Data:
    """The examples on the device, given out in batches of about the same length."""

    def __init__(self, path: Path, seed: int) -> None:
        with numpy.load(path) as arrays:
            self.lengths = arrays["lengths"]
            self.tokens = torch.from_numpy(arrays["tokens"].astype(numpy.int32)).to(DEVICE)
            self.learned = torch.from_numpy(arrays["learned"]).to(DEVICE)
        self.starts = numpy.concatenate([[0], numpy.cumsum(self.lengths)]).astype(numpy.int64)
        self.rng = numpy.random.default_rng(seed)

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Padded length and example numbers, without end; all examples once, then again in another order."""
        bucket_of = numpy.searchsorted(BUCKETS, self.lengths)
        while True:
            batches = []
            for number, length in enumerate(BUCKETS):
                members = numpy.where(bucket_of == number)[0]
                self.rng.shuffle(members)
                size = max(1, BATCH_TOKENS // length)
                batches += [(length, members[start : start + size]) for start in range(0, len(members) - size + 1, size)]
            if not batches:
                raise SystemExit("There are too few examples for one batch. Generate more.")
            self.rng.shuffle(batches)
            yield from batches

    def tensors(self, length: int, members: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and which of them are learned."""
        start = torch.from_numpy(self.starts[members]).to(DEVICE)
        real = torch.from_numpy(self.lengths[members].astype(numpy.int64)).to(DEVICE)
        places = torch.arange(length, device=DEVICE)
        index = start[:, None] + torch.minimum(places[None], real[:, None] - 1)
        return self.tokens[index].long(), (self.learned[index] == 1) & (places[None] < real[:, None])


def train(net: Model, data: Data, *, seconds: float, rate: float) -> None:
    """AdamW on the adapters, with a warm-up and then a linear fall, until the time is up."""
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=DEVICE == "cuda")
    start = said = time.monotonic()
    seen = 0
    for step, (length, members) in enumerate(data.batches(), 1):
        done = (time.monotonic() - start) / seconds
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / WARMUP_STEPS) * max(0.02, 1 - done)
        loss = net.loss(*data.tensors(length, members))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += length * len(members)
        if step % 50 == 0 and time.monotonic() - said > 15:
            said = time.monotonic()
            log(f"step {step}, loss {loss.item():.4f}, {seen / 1e6:.1f} M tokens, {seen / (said - start):.0f} a second")
    log(f"trained on {seen / 1e6:.1f} M padded tokens")


def evaluate(net: Model, inputs: Path, prompts: list[Path], out: Path) -> None:
    """Greedy replies without grammar to all held-out cases."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(inputs / "tokenizer.json"))
    end = encoder.token_to_id(prompt_format.END)
    all_cases = cases.load(inputs, prompts)
    ids = [encoder.encode(case.prompt, add_special_tokens=False).ids for case in all_cases]
    order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
    verdicts = []
    with (out / "replies.jsonl").open("w", encoding="utf-8") as file:
        for start in range(0, len(order), GENERATE_TOGETHER):
            group = order[start : start + GENERATE_TOGETHER]
            replies = net.generate([ids[number] for number in group], tokens_max=REPLY_TOKENS, end=end)
            for number, tokens in zip(group, replies, strict=True):
                case, text = all_cases[number], encoder.decode(tokens, skip_special_tokens=False)
                verdict = case.verdict(text)
                verdicts.append((case, verdict))
                file.write(json.dumps({"set": case.set, "id": case.id, "reply": text, **verdict}, ensure_ascii=False) + "\n")
    figures = cases.summed(verdicts)
    for name, row in sorted(figures.items()):
        log(name, row)
    (out / "figures.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")


def save(net: Model, out: Path, *, rank: int, alpha: float) -> None:
    """The adapters in parts that are small enough to be copied around."""
    arrays = net.adapters()
    names, total = list(arrays), sum(array.nbytes for array in arrays.values())
    parts = math.ceil(total / PART_BYTES)
    each = math.ceil(len(names) / parts)
    for number in range(parts):
        numpy.savez(
            out / f"adapter_{number}.npz", **{name: arrays[name] for name in names[number * each : (number + 1) * each]}
        )
    (out / "adapter.json").write_text(json.dumps({"rank": rank, "alpha": alpha, "parts": parts}), encoding="utf-8")
    log(f"saved {total / 1e6:.1f} MB in {parts} parts")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the adapter.")
    parser.add_argument("--work", type=Path, default=Path("training/work"))
    parser.add_argument("--out", type=Path, default=Path("training/out"))
    parser.add_argument("--prompts", type=Path, nargs="*", default=[], help="prompt sets to evaluate on")
    parser.add_argument("--minutes", type=float, default=8.0, help="0: evaluate what --start holds")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--alpha", type=float, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=Path, help="folder with adapters to go on from")
    parser.add_argument(
        "--evaluate", action=argparse.BooleanOptionalAction, default=True, help="on the held-out cases afterwards"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    inputs = options.work / "inputs"
    net = Model(model.load_base(inputs), rank=options.rank, alpha=options.alpha).to(DEVICE)
    log(f"{sum(p.numel() for p in net.parameters() if p.requires_grad) / 1e6:.1f} M trained parameters on {DEVICE}")
    if options.start:
        for path in sorted(options.start.glob("adapter_*.npz")):
            net.set_adapters(dict(numpy.load(path)))
    if DEVICE == "cuda":
        torch._dynamo.config.recompile_limit = 64
        for block in net.blocks:
            block.compile(dynamic=False)
    if options.minutes:
        train(net, Data(options.work / "data.npz", options.seed), seconds=options.minutes * 60, rate=options.rate)
        save(net, options.out, rank=options.rank, alpha=options.alpha)
    if options.evaluate:
        evaluate(net, inputs, options.prompts, options.out)


if __name__ == "__main__":
    main()
