"""Where the processor time of a turn and of a stream goes: samples of the stack while they run, drawn as flame graphs.

    python benchmarks/flame.py [SECONDS] [--docs]       writes build/bench/flame-turn.svg and flame-stream.svg

A signal that comes after every few milliseconds of processor time notes what is being run, so what is called often is not
charged for being watched. The width of a frame is its share of the samples. Colours tell whose code it is: callgate's, that
of packages, that of Python itself.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "build" / "bench"
DOCS = HERE.parent / "docs" / "img"
EVERY_S = 0.001
TURNS = 400
WIDTH, ROW = 1200, 17
SMALLEST = 0.002
"""Frames with a smaller share are not drawn: nobody could see them."""

Stack = tuple[str, ...]


class Sampler:
    """Counts stacks while it is entered."""

    def __init__(self) -> None:
        self.stacks: Counter[Stack] = Counter()

    def __enter__(self) -> Sampler:
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _note(self, number: int, frame: FrameType | None) -> None:
        names: list[str] = []
        while frame is not None:
            names.append(name_of(frame.f_code.co_filename, frame.f_code.co_qualname))
            frame = frame.f_back
        self.stacks[tuple(reversed(names))] += 1


def name_of(file: str, function: str) -> str:
    """A frame in words: the package and the file in it, without the folders of this machine."""
    parts = Path(file).parts
    for mark in ("site-packages", "src"):
        if mark in parts:
            place = parts[len(parts) - parts[::-1].index(mark) :]
            return f"{'/'.join(place)}:{function}"
    return f"python/{'/'.join(parts[-2:])}:{function}"


def drawn(stacks: Counter[Stack], title: str, root: str) -> str:
    """The picture of all samples below the frame whose name ends with `root`."""
    tree: dict[str, Any] = {"count": 0, "below": {}}
    for stack, count in stacks.items():
        start = next((index for index, name in enumerate(stack) if name.endswith(root)), None)
        if start is None:
            continue
        node = tree
        node["count"] += count
        for name in stack[start:]:
            node = node["below"].setdefault(name, {"count": 0, "below": {}})
            node["count"] += count
    total = tree["count"]
    if not total:
        raise SystemExit(f"no sample has the frame {root!r}: was it renamed?")
    frames: list[tuple[float, float, int, str]] = []
    _place(tree, 0.0, 0, total, frames)
    depth = max((row for _, _, row, _ in frames), default=0) + 1
    height = 40 + ROW * depth
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        "<style>text{font:11px ui-monospace,monospace;fill:#1c2226;pointer-events:none}"
        ".t{font:600 14px system-ui,sans-serif;fill:#5b6670}</style>",
        f'<text class="t" x="6" y="20">{escape(title)} ({total} samples)</text>',
    ]
    for left, share, row, name in frames:
        x, width, y = WIDTH * left, WIDTH * share, 32 + ROW * row
        short = name.rpartition(":")[2].replace("<locals>.", "")
        room = int(width / 6.8)
        label = short if len(short) <= room else short[: room - 1] + "…" if room > 3 else ""
        out.append(
            f"<g><title>{escape(name)} {100 * share:.1f} %</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.3):.1f}" '
            f'height="{ROW - 1}" fill="{_colour(name)}"/><text x="{x + 3:.1f}" y="{y + 12}">{escape(label)}</text></g>'
        )
    return "\n".join([*out, "</svg>", ""])


def _place(node: dict[str, Any], left: float, row: int, total: int, frames: list[tuple[float, float, int, str]]) -> None:
    for name, below in sorted(node["below"].items(), key=lambda item: -item[1]["count"]):
        share = below["count"] / total
        if share >= SMALLEST:
            frames.append((left, share, row, name))
            _place(below, left, row + 1, total, frames)
        left += share


def _colour(name: str) -> str:
    if name.startswith("callgate/wire"):
        return "#8fc1f0"
    if name.startswith("callgate/"):
        return "#5fa5e8"
    return "#c9d2d8" if name.startswith("python/") else "#f0b878"


def sampled(run: Callable[[str], Awaitable[Any]], seconds: float) -> Counter[Stack]:
    """Stacks of a run that is repeated for so long, against the server of a few lines."""
    command = [sys.executable, str(HERE / "_wire_server.py"), str(TURNS), "5"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    url = server.stdout.readline().strip()

    async def again() -> None:
        await run(url)
        with sampler:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await run(url)

    sampler = Sampler()
    try:
        asyncio.run(again())
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()
    return sampler.stacks


async def turns(url: str) -> None:
    from systems import by_callgate

    async def look_up(number: int) -> dict[str, Any]:
        """Looks a number up."""
        return {"number": number, "found": True, "text": "a line of some length, as tools return it " * 4}

    await by_callgate.turns(url, look_up, TURNS)


async def stream(url: str) -> None:
    from systems import by_callgate

    await by_callgate.stream(url)


PICTURES = {
    "flame-turn": (turns, "One turn of the tool loop", "Run.drive"),
    "flame-stream": (stream, "Streaming 5 MB of text", "Run.drive"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("seconds", nargs="?", type=float, default=20.0)
    parser.add_argument("--docs", action="store_true", help="write the pictures of the documentation too")
    parser.add_argument("--suffix", default="", help="what is put to the names of the files")
    given = parser.parse_args()
    for name, (run, title, root) in PICTURES.items():
        svg = drawn(sampled(run, given.seconds), title, root)
        for folder in (OUT, *([DOCS] if given.docs else [])):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}{given.suffix}.svg").write_text(svg, "utf-8")
        print(f"{OUT / name}{given.suffix}.svg")


if __name__ == "__main__":
    main()
