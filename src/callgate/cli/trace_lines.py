"""A timeline as lines of a terminal: spans in, text out. Text of models and users is escaped before it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from callgate.cli.render import one_line
from callgate.cli.style import painted
from callgate.timeline import Scale, Span
from callgate.timeline.scale import span_end
from callgate.timeline.svg import GOOD, duration_text

__all__ = ["MARKS", "MARKS_ASCII", "timeline_lines"]

LABEL_CHARS, NOTE_CHARS, BAR_CHARS_MIN = 28, 22, 20

MARKS = {"request": "█", "server_step": "▒", "execution": "█", "approval": "░", "waiting": "·", "cut": "╱"}
MARKS_ASCII = {"request": "#", "server_step": "+", "execution": "=", "approval": "?", "waiting": ".", "cut": "/"}
_MEANINGS = {
    "request": "model", "server_step": "model", "execution": "done", "bad": "failed", "approval": "question",
    "waiting": "quiet", "cut": "quiet",
}  # fmt: skip


# Drawing -----------------------------------------------------------------------------------------------------------------


def timeline_lines(
    spans: Sequence[Span], *, width: int, marks: Mapping[str, str] = MARKS, color: bool = False
) -> Iterator[str]:
    """The timeline as lines: a head for each run and each turn, a bar for each request and each call."""
    scale = Scale(spans)
    bars = max(width - LABEL_CHARS - NOTE_CHARS - 2, BAR_CHARS_MIN)
    children: dict[str | None, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)
    if not spans:
        yield "Nothing was asked in this session."
    for run in children.get(None, []):
        state = "under way" if run.end_s is None else run.state
        yield f"{one_line(run.name, width - 30)}  ({duration_text(run.duration_s)}, {one_line(state, 30)})"
        for turn in children.get(run.id, []):
            yield f"  {turn.name}"
            for span in children.get(turn.id, []):
                label = f"    {one_line(span.name, LABEL_CHARS - 5)}"
                drawn = _bar(span, children.get(span.id, []), scale, bars, marks, color=color)
                yield f"{label:<{LABEL_CHARS}}{drawn} {_note(span, children)}"
    if scale.cuts:
        hidden = ", ".join(duration_text(cut.hidden_s) for cut in scale.cuts)
        yield f"{marks['cut']} left out, because neither the model nor a tool was at work: {hidden}"


def _note(span: Span, children: Mapping[str | None, list[Span]]) -> str:
    ran = next((child for child in reversed(children.get(span.id, [])) if child.kind == "execution"), span)
    waited = sum(child.duration_s or 0.0 for child in children.get(span.id, []) if child.kind == "approval")
    told = duration_text(ran.duration_s)
    if waited:
        told += f", asked {duration_text(waited)}"
    return told if span.state in GOOD or span.end_s is None else f"{told}, {one_line(span.state, 30)}"


def _bar(span: Span, inner: Sequence[Span], scale: Scale, width: int, marks: Mapping[str, str], *, color: bool) -> str:
    cells = [(" ", "")] * width
    for cut in scale.cuts:
        cells[min(int(cut.start * width), width - 1)] = (marks["cut"], "cut")
    layers = [(span.kind if span.kind in ("request", "server_step") else "waiting", span)]
    layers += [(child.kind, child) for child in inner]
    for kind, layer in layers:
        first = min(int(scale.place(layer.start_s) * width), width - 1)
        last = max(min(round(scale.place(span_end(layer, scale.end_s)) * width), width), first + 1)
        is_bad = kind in ("execution", "server_step") and layer.end_s is not None and layer.state not in GOOD
        cells[first:last] = [(marks[kind], "bad" if is_bad else kind)] * (last - first)
    if not color:
        return "".join(mark for mark, _ in cells)
    return "".join(painted(mark, _MEANINGS.get(kind)) for mark, kind in cells)
