"""Lines about an answer beside its text: sources, search suggestions, steps at the provider, media.

The same for an answer that arrives and for one that is read from its session. Plain text goes out; it is not escaped yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from callgate.cli.escaping import one_line, readable_args
from callgate.metadata import AnswerMetadata, ServerStep
from callgate.types import Media

__all__ = ["media_line", "source_lines", "step_lines"]

LINE_CHARS_MAX = 500
ARGS_CHARS_MAX = 120
STEP_LINES_MAX = 200
"""Lines of one step at the provider that are shown."""
SOURCES_MAX = 50


def source_lines(metadata: AnswerMetadata) -> Iterator[str]:
    """Lines about an answer: its sources, and its search suggestions, which the provider's terms require."""
    for number, source in enumerate(metadata.sources[:SOURCES_MAX], 1):
        name = f"{source.title}: " if source.title and source.title != source.uri else ""
        license = f" (license: {source.license})" if source.license else ""
        yield f"[{number}] {one_line(name + source.uri + license, LINE_CHARS_MAX)}"
    if len(metadata.sources) > SOURCES_MAX:
        yield f"... and {len(metadata.sources) - SOURCES_MAX} more sources"
    for read in metadata.urls:
        yield f"{one_line(read.url, LINE_CHARS_MAX)} {'read' if read.ok else 'could not be read'}"
    for found in metadata.search_links:
        yield one_line(f"Google Search: {found.text}: {found.url}", LINE_CHARS_MAX)
    if metadata.queries and not metadata.search_links:
        yield one_line(f"searched for: {', '.join(metadata.queries)}", LINE_CHARS_MAX)
    yield from _rating_lines(metadata)


def _rating_lines(metadata: AnswerMetadata) -> Iterator[str]:
    """The safety ratings that are more than negligible, and how likely the answer was, where that was asked for."""
    for rating in metadata.safety_ratings:
        if rating.get("category") and (rating.get("probability") != "NEGLIGIBLE" or rating.get("blocked") is True):
            category = str(rating.get("category", "")).removeprefix("HARM_CATEGORY_").replace("_", " ")
            blocked = ", blocked" if rating.get("blocked") is True else ""
            rated = f"safety rating: {category}: {rating.get('probability', 'unknown')}{blocked}"
            yield one_line(rated.lower(), LINE_CHARS_MAX)
    if metadata.logprobs and metadata.avg_logprobs is not None:
        yield f"average log probability: {metadata.avg_logprobs:.4g}"


def step_lines(step: ServerStep, *, mark: str, cut: str) -> Iterator[str]:
    """Code that ran at the provider, or its output; another step in one line."""
    said = step.value.get("code") or step.value.get("output")
    if step.kind in ("code", "code_result") and isinstance(said, str):
        yield from (f"  | {line}" for line in said.rstrip().splitlines()[:STEP_LINES_MAX])
        return
    shown = one_line(readable_args(step.value), ARGS_CHARS_MAX, cut=cut)
    yield f"{mark} {one_line(step.tool, 100)} (at the provider) {shown}"


def media_line(media: Media) -> str:
    """The kind of media, its address or its size, and the words that are spoken in it."""
    kind = one_line(media.mime_type or "media", 100)
    said = f": {one_line(media.transcript, LINE_CHARS_MAX)}" if media.transcript else ""
    place = f" {one_line(media.uri, LINE_CHARS_MAX)}" if media.uri else f", {len(media.data) / 1024:.1f} KiB"
    return f"+ {kind}{place}{said}"
