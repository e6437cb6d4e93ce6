"""Figures in, tables out: written between marks into the page of the documentation by the run that measured them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["write_into"]

Get = Callable[[str, str, str], float | None]

PAGE = "performance.md"
SYSTEMS = ("callgate", "hand-written", "raw sockets", "google-genai", "pydantic-ai", "LiteLLM", "LangChain")

# title, task, figure, words of the goal, titles of its goals
_BEHIND = (
    ("a call with 1 MB in 14,000 rows", "large_rows", "ms", "3 times hand-written, 1.5 times google-genai",
     ("a call with 14,000 rows / hand-written", "a call with 14,000 rows / google-genai")),
    ("a result of 10 MB in rows, times its encoding", "large result", "ratio", "2 times",
     ("a result of 10 MB / encoding it once",)),
    ("500 raw tool definitions to a first answer", "raw_tools", "first", "40", ("500 raw tools, ms",)),
    ("500 raw definitions, equal ones, by another gate", "raw_tools", "again", "8", ("500 raw tools again, ms",)),
    ("each of 10,000 tools, us", "growth", "10000 tools", "within 20 % of each of 100", ("10,000 tools / 100, each",)),
    ("each of 1,000 tools, us", "growth", "1000 tools", "", ()),
    ("each of 100 tools, us", "growth", "100 tools", "", ()),
    ("each of 10 tools, with the cost of its gate, us", "growth", "10 tools", "", ()),
    ("each of 10,000 sessions, us", "growth", "10000 sessions", "within 20 % of each of 100",
     ("10,000 sessions / 100, each",)),
    ("each of 1,000 sessions, us", "growth", "1000 sessions", "", ()),
    ("each of 100 sessions, us", "growth", "100 sessions", "", ()),
    ("each of 10 sessions, us", "growth", "10 sessions", "", ()),
    ("a call with 1 MB of text, by a warm client", "large_calls", "ms", "3 times hand-written, 1.5 times google-genai",
     ("a call with 1 MB / hand-written", "a call with 1 MB / google-genai")),
    ("a call with everything on, us", "dispatch", "us", "200", ("dispatch with everything on, us",)),
    ("process start to first answer", "first_answer", "ms", "350, and half of google-genai",
     ("first answer, ms", "first answer / google-genai")),
    ("text in events of 64 KB, MB/s", "large_events", "MB/s", "at least 150, and above google-genai",
     ("events of 64 KB, MB/s", "events of 64 KB / google-genai")),
    ("an idle gate with 20 tools, KiB", "idle gates", "KiB", "10", ("an idle gate with 20 tools, KiB",)),
    ("memory at most while 5 MB are streamed and kept, MB", "stream_memory", "MB", "1.5 times hand-written",
     ("memory of a stream / hand-written",)),
)  # fmt: skip

# heading, task, figure
_FIGURES = (
    ("turn 10", "turns", "turn 10"),
    ("turn 100", "turns", "turn 100"),
    ("turn 400", "turns", "turn 400"),
    ("streaming", "stream", "MB/s"),
    ("a streamed call with 1 MB", "large_call", "ms"),
    ("500 tools", "declaring", "first"),
    ("again", "declaring", "again"),
    ("import", "import", "import"),
)


def write_into(docs: Path, get: Get, goals: Iterable[tuple[str, float | None, str, bool | None]], where: str) -> None:
    """Replaces the marked tables of the page."""
    rows = list(goals)
    missed = {title for title, _, _, is_met in rows if is_met is False}
    tables = {
        "where": where,
        "behind": _behind(get, missed),
        "figures": _figures(get, _FIGURES),
        "goals": table(("ratio or figure", "measured", "goal"), _goals(rows)),
    }
    for name, shown in tables.items():
        replace(docs, name, shown)


def replace(docs: Path, name: str, shown: str) -> None:
    """Replace one marked table of the page."""
    page = docs / PAGE
    head, mark, rest = page.read_text("utf-8").partition(f"<!-- bench.py: {name} -->\n")
    _, end, tail = rest.partition("<!-- end -->")
    if not (mark and end):
        raise ValueError(f"{PAGE} has no place for the table {name!r}")
    page.write_text(f"{head}{mark}{shown}\n{end}{tail}", "utf-8")


def _behind(get: Get, missed: set[str]) -> str:
    rows: list[tuple[bool, tuple[str, ...]]] = []
    for title, task, figure, goal, titles in _BEHIND:
        cells = [_shown(get(task, system, figure)) for system in ("callgate", "google-genai", "hand-written")]
        is_missed = not missed.isdisjoint(titles)
        rows.append((not is_missed, (title, *cells, f"**missed**: {goal}" if is_missed else goal)))
    rows.sort(key=lambda row: row[0])  # what is missed comes first
    return table(("", "callgate", "google-genai", "hand-written", "goal"), (cells for _, cells in rows))


def _figures(get: Get, columns: Iterable[tuple[str, str, str]]) -> str:
    columns = tuple(columns)
    rows = ((system, *(_shown(get(task, system, figure)) for _, task, figure in columns)) for system in SYSTEMS)
    return table(("", *(title for title, _, _ in columns)), rows)


def _goals(rows: Iterable[tuple[str, float | None, str, bool | None]]) -> Iterable[tuple[str, ...]]:
    for title, value, limit, is_met in rows:
        yield title, _shown(value), f"{limit}{'' if is_met is not False else ', **missed**'}"


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    lines = ("|" + "".join(f" {cell} |" if cell else " |" for cell in cells) for cells in (head, *rows))
    first, *rest = lines
    return "\n".join([first, "|" + "---|" * len(head), *rest])
