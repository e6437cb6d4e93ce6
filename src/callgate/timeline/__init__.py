"""Timeline of a session: facts of its journal in, spans, a scale and an SVG out. No I/O."""

from __future__ import annotations

from callgate.timeline.scale import Scale
from callgate.timeline.spans import Span, SpanKind, spans_of
from callgate.timeline.svg import svg_of

__all__ = ["Scale", "Span", "SpanKind", "spans_of", "svg_of"]
