"""Draw spans as one self-contained SVG file, for light and dark mode.

Each row is a request, or a call with its waits, its approval and its execution; runs are bands in the background. Names
come from models and users, so they are escaped here and cannot become markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from callgate.timeline.scale import Scale, span_end
from callgate.timeline.spans import Span

__all__ = ["duration_text", "svg_of"]

LABELS, CHART, NOTES = 250, 760, 170
ROW, BAR, RUN = 24, 14, 40
TOP, BOTTOM, PAD = 74, 46, 18
LABEL_CHARS_MAX, RUN_CHARS_MAX, TITLE_CHARS_MAX = 30, 90, 100
CLEAR = 0.035
"""Minimum distance of a tick from a cut, as a fraction of the chart."""
NARROWEST = 2.0
"""The minimum width of a span, so that it is visible."""

GOOD = frozenset({"finished", "STOP", "yes", "always", "summarized"})
LEGEND = (
    ("request", "model"), ("execution", "tool"), ("bad", "failed, or not run"), ("approval", "waits for approval"),
    ("waiting", "waits its turn"), ("step", "tool at the provider"),
)  # fmt: skip

THIN = ("waiting", "step")
"""Kinds of bars that are not as high as work."""

STYLE = """
text { font: 12px ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.dim { fill: #656d76 } .small { font-size: 11px } .strong { font-weight: 600 }
.end { text-anchor: end } .mid { text-anchor: middle }
.mono { font-family: ui-monospace, 'SF Mono', Menlo, 'DejaVu Sans Mono', monospace }
.back { fill: #ffffff } .band { fill: #f6f8fa; stroke: #d0d7de } .grid { stroke: #d8dee4; stroke-width: 1 }
.step { fill: #91a7ff }
.request { fill: #4c6ef5 } .execution { fill: #2f9e44 } .bad { fill: #e03131 } .waiting { fill: #ced4da }
.approval { fill: url(#hatch); stroke: #e8590c } .hatch { stroke: #e8590c; stroke-width: 3 } .open { opacity: .55 }
.cut { fill: #ffffff; stroke: #adb5bd; stroke-dasharray: 3 3 } .wrong { fill: #c92a2a }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .dim { fill: #8d96a0 } .back { fill: #0d1117 } .band { fill: #161b22; stroke: #30363d }
.grid { stroke: #2a313a } .request { fill: #748ffc } .execution { fill: #40c057 } .bad { fill: #ff6b6b }
.waiting { fill: #495057 }
.cut { fill: #0d1117; stroke: #6e7681 } .wrong { fill: #ff8787 }
}"""


def svg_of(spans: Sequence[Span], *, title: str) -> str:
    """The picture of these spans as the text of an SVG file."""
    scale = Scale(spans)
    children = _children_of(spans)
    body: list[str] = []
    bands: list[str] = []
    y = TOP
    for run in children.get(None, []):
        top = y
        body += _run_head(run, y, scale)
        y += RUN
        for turn in children.get(run.id, []):
            body.append(f'<text class="small dim" x="{PAD + 14}" y="{y + ROW / 2 + 4}">{_number(turn)}</text>')
            for row in children.get(turn.id, []):
                body += _row(row, children, y, scale)
                y += ROW
        y += 10
        bands.append(f'<rect class="band" x="{PAD}" y="{top}" width="{LABELS + CHART + NOTES}" height="{y - top}" rx="8"/>')
        y += 12
    width, height = LABELS + CHART + NOTES + 2 * PAD, y + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img">',
        f"<title>{_text(title, TITLE_CHARS_MAX)}</title><style>{STYLE}</style>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>',
        f'<rect class="back" width="{width}" height="{height}"/>',
        f'<text class="title" x="{PAD}" y="30">{_text(title, TITLE_CHARS_MAX)}</text>',
        *bands,
        *_axis(scale, y - 12),
        *_cuts(scale, y - 12),
        *body,
        *_legend(y + 18, has_steps=any(span.kind == "server_step" for span in spans)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def duration_text(seconds: float | None) -> str:
    """Format a duration: `12 ms`, `1.20 s`, `2 min 5 s`, `3 h 2 min`."""
    if seconds is None:
        return "…"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _children_of(spans: Sequence[Span]) -> Mapping[str | None, list[Span]]:
    children: dict[str | None, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)
    return children


def _number(turn: Span) -> str:
    return _text(turn.name.removeprefix("turn "), 3)


def _x(scale: Scale, time_s: float) -> float:
    return PAD + LABELS + scale.place(time_s) * CHART


def _run_head(run: Span, y: int, scale: Scale) -> Iterator[str]:
    state = "under way" if run.end_s is None else run.state
    css = "small dim" if run.state in GOOD or run.end_s is None else "small wrong"
    right = PAD + LABELS + CHART + NOTES - 12
    yield f'<text class="strong" x="{PAD + 14}" y="{y + 22}">{_text(run.name, RUN_CHARS_MAX)}</text>'
    told = f"{duration_text(run.duration_s)} · {state}"
    yield f'<text class="{css} end" x="{right}" y="{y + 22}">{_text(told, 60)}</text>'
    start, end = _x(scale, run.start_s), _x(scale, span_end(run, scale.end_s))
    yield _rect("grid", start, y + 31, end - start, 1)


def _row(span: Span, children: Mapping[str | None, list[Span]], y: int, scale: Scale) -> Iterator[str]:
    inner = children.get(span.id, [])
    bars = [(_color_of_row(span, inner), span)]
    bars += [("approval" if child.kind == "approval" else _color(child), child) for child in inner]
    base = y + ROW / 2
    yield f'<text class="mono" x="{PAD + 28}" y="{base + 4}">{_text(span.name, LABEL_CHARS_MAX)}</text>'
    told = f"{span.name}: {span.state}, {duration_text(span.duration_s)}"
    yield f"<g><title>{_text(told, 200)}</title>"
    for css, bar in bars:
        start, end = _x(scale, bar.start_s), _x(scale, span_end(bar, scale.end_s))
        is_thin = css in THIN
        height = 4 if is_thin else BAR
        css = f"{css} open" if bar.end_s is None else css
        yield _rect(css, start, base - height / 2, max(end - start, NARROWEST), height)
    yield "</g>"
    took = next((child for child in reversed(inner) if child.kind == "execution"), span)
    is_good = span.state in GOOD or span.end_s is None
    note = duration_text(took.duration_s) if is_good else f"{duration_text(took.duration_s)} · {span.state}"
    css = "small dim" if is_good else "small wrong"
    yield f'<text class="{css} end" x="{PAD + LABELS + CHART + NOTES - 12}" y="{base + 4}">{_text(note, 40)}</text>'


def _color_of_row(span: Span, inner: Sequence[Span]) -> str:
    if span.kind == "request":
        return "request" if span.end_s is None or span.state in GOOD else "bad"
    if span.kind == "server_step":
        return "bad" if span.state == "error" else "step"
    return "waiting" if inner or span.end_s is None else "bad"


def _color(execution: Span) -> str:
    return "execution" if execution.state in GOOD or execution.end_s is None else "bad"


def _axis(scale: Scale, bottom: int) -> Iterator[str]:
    for place, seconds in scale.ticks():
        if any(cut.start - CLEAR < place < cut.end + CLEAR for cut in scale.cuts):
            continue  # Its place at the top belongs to the cut.
        x = PAD + LABELS + place * CHART
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}"/>'
        yield f'<text class="small dim mid" x="{x:.1f}" y="{TOP - 14}">{_tick(seconds)}</text>'


def _tick(seconds: float) -> str:
    return "0" if seconds == 0 else f"{seconds:g} s" if seconds < 60 else duration_text(seconds)


def _cuts(scale: Scale, bottom: int) -> Iterator[str]:
    for cut in scale.cuts:
        x, width = PAD + LABELS + cut.start * CHART, (cut.end - cut.start) * CHART
        yield f'<rect class="cut" x="{x:.1f}" y="{TOP - 8}" width="{width:.1f}" height="{bottom - TOP + 8}"/>'
        told = f"… {duration_text(cut.hidden_s)} …"
        yield f'<text class="small strong dim mid" x="{x + width / 2:.1f}" y="{TOP - 14}">{told}</text>'


def _legend(y: int, *, has_steps: bool) -> Iterator[str]:
    x = float(PAD + 2)
    for css, words in LEGEND if has_steps else LEGEND[:-1]:
        height = 4 if css in THIN else 12
        yield _rect(css, x, y - height / 2, 22, height)
        yield f'<text class="small dim" x="{x + 30:.1f}" y="{y + 4}">{words}</text>'
        x += 30 + 7 * len(words) + 26


def _rect(css: str, x: float, y: float, width: float, height: float) -> str:
    rx = min(3.0, height / 2)
    return (
        f"<rect class={quoteattr(css)} x={quoteattr(f'{x:.1f}')} y={quoteattr(f'{y:.1f}')} "
        f"width={quoteattr(f'{max(width, 0):.1f}')} height={quoteattr(f'{height:g}')} rx={quoteattr(f'{rx:g}')}/>"
    )


def _text(text: str, chars_max: int) -> str:
    """Escape text for XML, without control characters or markup."""
    shown = "".join(c if c.isprintable() else "·" for c in text)
    return escape(shown if len(shown) <= chars_max else f"{shown[: chars_max - 1]}…")
