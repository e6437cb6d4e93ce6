"""Figures in, pictures out: bars and lines as SVG, written by hand so that the documentation needs no library for it.

A picture is readable on light and on dark paper, says its unit, and gives every value in words beside its bar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

__all__ = ["all_of", "bars", "lines"]

Get = Callable[[str, str, str], float | None]

WIDTH = 760
COLOURS = {
    "callgate": "#1f77d0",
    "hand-written": "#6b7a86",
    "raw sockets": "#a8b3bb",
    "google-genai": "#d9822b",
    "pydantic-ai": "#c23b6b",
    "LiteLLM": "#3f9d6b",
    "LangChain": "#8a63c9",
}
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#5b6670}.t{font-size:15px;font-weight:600}"
    "@media(prefers-color-scheme:dark){text{fill:#b8c2ca}}"
)


def bars(title: str, rows: Sequence[tuple[str, float]], *, unit: str) -> str:
    """One bar for each system, the longest as long as the picture allows."""
    most = max((value for _, value in rows), default=1.0) or 1.0
    height = 44 + 26 * len(rows)
    out = [_head(title, height)]
    for index, (name, value) in enumerate(rows):
        y = 36 + 26 * index
        length = max(1.0, 470 * value / most)
        out.append(f'<text x="120" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<rect x="130" y="{y}" width="{length:.1f}" height="18" rx="2" fill="{COLOURS.get(name, "#888")}"/>')
        out.append(f'<text x="{136 + length:.1f}" y="{y + 14}">{shown(value)} {escape(unit)}</text>')
    return "\n".join([*out, "</svg>", ""])


def lines(title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], *, unit: str) -> str:
    """One line for each system over the turns, both axes logarithmic: what grows with the history is seen to rise."""
    from math import log10

    points = [point for _, line in series for point in line]
    left, right, top, bottom = 60, WIDTH - 150, 40, 300
    x_low, x_high = log10(min(x for x, _ in points)), log10(max(x for x, _ in points))
    y_low, y_high = log10(min(y for _, y in points)) - 0.1, log10(max(y for _, y in points)) + 0.1

    def place(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - x_low) / ((x_high - x_low) or 1)
        up = (log10(y) - y_low) / ((y_high - y_low) or 1)
        return left + (right - left) * across, bottom - (bottom - top) * up

    out = [_head(title, bottom + 40)]
    for power in range(int(y_low) - 1, int(y_high) + 2):
        if y_low <= power <= y_high:
            _, y = place(10**x_low, 10.0**power)
            out.append(f'<path d="M{left} {y:.1f}H{right}" stroke="#8884" stroke-width="1"/>')
            out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    out += [
        f'<text x="{place(x, 10**y_low)[0]:.1f}" y="{bottom + 18}" text-anchor="middle">turn {x:g}</text>'
        for x in sorted({x for x, _ in points})
    ]
    ends: list[tuple[float, str, str]] = []
    for name, line in series:
        placed = [place(x, y) for x, y in line]
        path = " ".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(placed))
        colour = COLOURS.get(name, "#888")
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in placed]
        ends.append((placed[-1][1], f"{name} {shown(line[-1][1])} {unit}", colour))
    before = 0.0
    for y, text, colour in sorted(ends):
        before = max(y + 4, before + 16)
        out.append(f'<text x="{right + 10}" y="{before:.1f}" style="fill:{colour}">{escape(text)}</text>')
    return "\n".join([*out, "</svg>", ""])


def _head(title: str, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f'<style>{_STYLE}</style><text class="t" x="8" y="20">{escape(title)}</text>'
    )


def shown(value: float) -> str:
    """A value with as many digits as are worth reading."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


_BARS = {
    "import": ("Import", "import", "import", "ms of CPU"),
    "stream": ("Streaming 5 MB of text in 1 KB events", "stream", "MB/s", "MB for a second of CPU"),
    "parallel-async": ("20 async calls of 50 ms in one answer", "parallel", "async", "ms"),
    "parallel-sync": ("20 sync calls of 50 ms in one answer", "parallel", "sync", "ms"),
    "large-call": ("A streamed call with 1 MB of arguments", "large_call", "ms", "ms of CPU"),
    "declaring": ("500 tools into a request, the first time", "declaring", "first", "ms of CPU"),
}


def all_of(get: Get, systems: Sequence[str], marks: Sequence[int]) -> dict[str, str]:
    """A picture for each figure that was measured, by name."""
    found: dict[str, str] = {}
    for name, (title, task, figure, unit) in _BARS.items():
        rows = [(system, value) for system in systems if (value := get(task, system, figure)) is not None]
        if rows:
            found[f"bench-{name}"] = bars(title, rows, unit=unit)
    series = [
        (system, [(float(mark), value) for mark in marks if (value := get("turns", system, f"turn {mark}")) is not None])
        for system in systems
    ]
    if any(line for _, line in series):
        title = "One turn of a tool loop as its history grows: ms of CPU"
        found["bench-turns"] = lines(title, [(name, line) for name, line in series if line], unit="ms")
    return found
