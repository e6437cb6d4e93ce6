"""Training data: examples of all kinds in their shares, tokenised.

    python -m training.generate --work WORK --count 300000 --seed 1      write the data
    python -m training.generate --work WORK --show 3                     print some examples of each kind

The inputs folder comes in; three arrays go out: token ids, whether each is learned, and the length of each example.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training import corpus, datasets, dialogues, kinds
from training import format as prompt_format
from training.corpus import Corpus, normal
from training.example import Example
from training.studio import Studio

LENGTH_MAX = 1792
# Each kind and its share of the examples.
KINDS: tuple[tuple[Callable[[Studio], Example | None], float], ...] = (
    (kinds.family_call, 20),
    (kinds.told, 9),
    (kinds.family_many, 5),
    (kinds.family_each, 3),
    (kinds.family_several, 8),
    (kinds.domain_question, 2.5),
    (kinds.ask, 3.5),
    (kinds.family_ask, 3.5),
    (kinds.schema_call, 12),
    (kinds.schema_each, 3),
    (kinds.schema_result, 4),
    (datasets.bfcl, 15),
    (datasets.seal, 7),
    (datasets.spoken, 6),
    (kinds.chat, 3),
    (kinds.no_tool, 3),
    (dialogues.same_again, 2),
    (dialogues.fill_in, 2),
    (dialogues.pick_from_list, 1.2),
    (dialogues.use_result, 3),
    (dialogues.thanks, 0.4),
    (dialogues.new_request, 1.4),
    (dialogues.invented_call, 13),
    (dialogues.invented_ask, 2.5),
)
_RULES = (
    f"You are callgate, a tool-calling assistant. {prompt_format.SYSTEM}",
    f"{prompt_format.SYSTEM} Be brief.",
    f"You help a developer. {prompt_format.SYSTEM}",
)


def allowed(example: Example, material: Corpus) -> bool:
    """Whether the example may be trained on: no request of a test, no tool of the evaluation."""
    if any(tool["name"] in material.excluded for tool in example.tools):
        return False
    return all(normal(given) not in material.banned for given, _ in example.turns)


def one(studio: Studio) -> tuple[str, Example]:
    """An example, and the name of its kind."""
    makers, shares = zip(*KINDS, strict=True)
    while True:
        maker = studio.values.rng.choices(makers, shares)[0]
        example = maker(studio)
        if example is not None and allowed(example, studio.corpus):
            if studio.values.chance(0.06):
                example.rules = studio.values.pick(_RULES)
            return maker.__name__, example


def _shard(job: tuple[Path, int, int]) -> Any:
    import numpy
    from tokenizers import Tokenizer

    inputs, seed, count = job
    encoder = Tokenizer.from_file(str(inputs / "tokenizer.json"))
    studio = Studio.open(corpus.load(inputs), seed)
    tokens, learned, lengths, made = [], [], [], Counter()
    for _ in range(count):
        kind, example = one(studio)
        ids: list[int] = []
        marks: list[int] = []
        for text, wanted in example.pieces():
            piece = encoder.encode(text, add_special_tokens=False).ids
            ids += piece
            marks += [int(wanted)] * len(piece)
        if len(ids) > LENGTH_MAX:
            continue
        made[kind] += 1
        tokens.append(numpy.array(ids, numpy.uint16))
        learned.append(numpy.array(marks, numpy.uint8))
        lengths.append(len(ids))
    return numpy.concatenate(tokens), numpy.concatenate(learned), numpy.array(lengths, numpy.int32), made


def write(work: Path, *, count: int, seed: int, processes: int) -> Path:
    """Make the data with several processes, and say what is in it. The same seed gives the same data."""
    import numpy

    jobs_count = max(1, min(64, count // 500))
    jobs = [(work / "inputs", seed * 100_000 + number, count // jobs_count) for number in range(jobs_count)]
    start = time.monotonic()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        parts = pool.map(_shard, jobs, chunksize=1)
    tokens, learned, lengths = (numpy.concatenate([part[place] for part in parts]) for place in range(3))
    made = sum((part[3] for part in parts), Counter())
    path = work / "data.npz"
    numpy.savez(path, tokens=tokens, learned=learned, lengths=lengths)
    millions, learned_millions = len(tokens) / 1e6, int(learned.sum()) / 1e6
    print(f"{len(lengths)} examples, {millions:.1f} M tokens, {learned_millions:.1f} M of them learned")
    print(f"made in {time.monotonic() - start:.0f} s")
    print("lengths at 50, 90 and 99 %:", numpy.percentile(lengths, [50, 90, 99]))
    print("kinds:", dict(made.most_common()))
    return path


def show(work: Path, *, each: int, seed: int) -> None:
    """Print examples of each kind, replies between « and »."""
    studio = Studio.open(corpus.load(work / "inputs"), seed)
    for maker, _ in KINDS:
        for _ in range(each):
            example = None
            while example is None:
                example = maker(studio)
            tools = "; ".join(tool["name"] for tool in example.tools)
            print(f"=== {maker.__name__} [{len(example.tools)}: {tools[:150]}]")
            for given, wanted in example.turns:
                print(f"{given}\n  «{wanted}»")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the training data.")
    parser.add_argument("--work", type=Path, default=Path("training/work"))
    parser.add_argument("--count", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N examples of each kind and write nothing")
    options = parser.parse_args()
    if options.show:
        show(options.work, each=options.show, seed=options.seed)
    else:
        write(options.work, count=options.count, seed=options.seed, processes=options.processes)


if __name__ == "__main__":
    main()
