"""Render Markdown for a terminal while it arrives; nothing is drawn twice.

Takes pieces of escaped text, returns text with our own escape sequences, independent of where it was cut. A line is
buffered only as long as it could still become something else (a fence, a table, a rule), and a span only until it is
closed. Unclosed or unknown Markdown stays text. Knows nothing of the terminal but its width.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from callgate.cli.code_colors import CodeColors
from callgate.cli.themes import code_of

__all__ = ["Markdown", "width_of"]

HOLD_CHARS_MAX = 400
"""Maximum distance to the end of a span."""
HEAD_CHARS_MAX = 200
"""Maximum length of the beginning of a line that leaves its kind open."""
ROW_CHARS_MAX = 4_000
ROWS_MAX = 500
COLUMNS_LEAST = 20
CELL_COLUMNS_MIN = 6
"""A table whose columns would be narrower stays as it was written."""

BOLD, DIM, ITALIC, UNDERLINE, STRIKE = "1", "2", "3", "4", "9"

# A line of nothing but these may still become several things.
_HEAD = re.compile(r"[ \t#*+\-_=0-9.)`~>]*")
_FENCE_BEGUN = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?=\S)")
_ROW = re.compile(r" {0,3}\|")
_ITEM = re.compile(r"([ \t]*)([-*+]|[0-9]{1,9}[.)])[ \t]+(?=\S)")
_QUOTE = re.compile(r" {0,3}(?:> ?)+")
_SEPARATOR = re.compile(r":?-+:?")
_SPECIAL = re.compile(r"[`*_~\[\\<!]")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\(([^()\s]*)(?:[ ]+\"([^\"]*)\")?\)")
_LINK_BEGUN = re.compile(r"!?(?:\[[^\[\]]*(?:\](?:\([^()\s]*(?:[ ]+(?:\"[^\"]*\"?)?)?)?)?)?")
_ADDRESS = re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>")
_ADDRESS_BEGUN = re.compile(r"<(?:[a-z]{0,6}|(?:https?:|mailto:)[^<>\s]*)")
_TASK = re.compile(r"\[([ xX])\] ")
_TASK_BEGUN = re.compile(r"\[(?:[ xX]\]?)?")
_WORDS = re.compile(r" +|[^ ]+")

Styled = tuple[str, str]
"""A text, and the codes it is drawn with ("" for none)."""


def width_of(text: str) -> int:
    """Return the width of a text in columns."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") else 1


# Spans -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """A span that was found: what it is drawn as, and how much text it took."""

    styled: list[Styled]
    taken: int


_MARKS = {
    "*": ITALIC,
    "_": ITALIC,
    "**": BOLD,
    "__": BOLD,
    "***": f"{BOLD};{ITALIC}",
    "___": f"{BOLD};{ITALIC}",
    "~~": STRIKE,
}


def spans(text: str, style: str = "", *, before: str = "", complete: bool = True) -> tuple[list[Styled], int]:
    """Style the spans of a text; return it with the number of characters used, without a span that may still close."""
    found: list[Styled] = []
    place = 0
    while place < len(text):
        special = _SPECIAL.search(text, place)
        if special is None:
            found.append((text[place:], style))
            return found, len(text)
        start = special.start()
        if start > place:
            found.append((text[place:start], style))
        place = start
        span = _span(text, start, style, text[start - 1] if start else before[-1:], complete=complete)
        if span is None:
            return found, place
        found += span.styled
        place += span.taken
    return found, place


def _span(text: str, start: int, style: str, before: str, *, complete: bool) -> _Span | None:
    """Parse the span that begins there, or its first characters as text; None if that is undecided."""
    char = text[start]
    room = text[start : start + HOLD_CHARS_MAX]
    is_open = not complete and len(room) < HOLD_CHARS_MAX
    """True if more text may arrive that makes a difference."""
    if char == "\\":
        if len(room) < 2:
            return None if is_open else _Span([("\\", style)], 1)
        escaped = room[1] if room[1] in "\\`*_{}[]()#+-.!~|<>" else room[:2]
        return _Span([(escaped, style)], 2)
    if char in "[!":
        if link := _LINK.match(room):
            return _Span(_link(link[1], link[2], style, title=link[3]), link.end())
        begun = _LINK_BEGUN.match(room)
        assert begun is not None
        return None if is_open and begun.end() == len(room) else _Span([(char, style)], 1)
    if char == "<":
        if address := _ADDRESS.match(room):
            return _Span([(address[1].removeprefix("mailto:"), _added(style, UNDERLINE))], address.end())
        begun = _ADDRESS_BEGUN.match(room)
        return None if is_open and begun and begun.end() == len(room) else _Span([("<", style)], 1)
    mark = re.match(re.escape(char) + "+", room)
    assert mark is not None
    if mark.end() == len(room) and is_open:
        return None
    literal = _Span([(mark[0], style)], mark.end())
    if char == "`":
        return _code(room, mark[0], style, is_open=is_open, literal=literal)
    if mark[0] not in _MARKS or mark.end() == len(room) or room[mark.end()].isspace() or (char == "_" and before.isalnum()):
        return literal
    return _emphasis(room, mark[0], style, is_open=is_open, literal=literal)


def _code(room: str, mark: str, style: str, *, is_open: bool, literal: _Span) -> _Span | None:
    closing = re.compile(f"(?<!`){mark}(?!`)").search(room, len(mark))
    if closing is None or (is_open and closing.end() == len(room)):
        return None if is_open else literal
    inside = room[len(mark) : closing.start()]
    return _Span([(inside, _added(style, code_of("code")))], closing.end())


def _emphasis(room: str, mark: str, style: str, *, is_open: bool, literal: _Span) -> _Span | None:
    char = re.escape(mark[0])
    closing = re.compile(rf"(?<![\s{char}\\]){re.escape(mark)}(?!{char})").search(room, len(mark) + 1)
    while closing is not None and mark[0] == "_" and room[closing.end() : closing.end() + 1].isalnum():
        closing = re.compile(rf"(?<![\s{char}\\]){re.escape(mark)}(?!{char})").search(room, closing.end())
    if closing is None or (is_open and closing.end() == len(room)):
        return None if is_open else literal
    inside, _ = spans(room[len(mark) : closing.start()], _added(style, _MARKS[mark]), before=mark)
    return _Span(inside, closing.end())


def _link(text: str, address: str, style: str, *, title: str | None = None) -> list[Styled]:
    shown, _ = spans(text, _added(style, UNDERLINE))
    about = f', "{title}"' if title else ""
    return shown if address in ("", text) and not about else [*shown, (f" ({address}{about})", _added(style, DIM))]


def _added(style: str, code: str) -> str:
    return f"{style};{code}" if style else code


# Lines -------------------------------------------------------------------------------------------------------------------


class Markdown:
    """A text that is drawn while it arrives. `columns` returns the current width of the terminal."""

    def __init__(self, columns: Callable[[], int], *, ascii_only: bool = False) -> None:
        self._columns = columns
        self._bullet, self._bar, self._rule, self._cross = ("*", "|", "-", "+") if ascii_only else ("•", "│", "─", "┼")
        self._boxes = ("[ ]", "[x]") if ascii_only else ("☐", "☑")
        self._out: list[str] = []
        self._held = ""
        """The part of this line that has arrived and is not drawn yet."""
        self._kind: str | None = None
        """The kind of this line; None while undecided."""
        self._style = ""
        self._drawn = ""
        """The last character that went into spans."""
        self._fence: str | None = None
        self._colors = CodeColors("")
        self._rows: list[str] = []
        self._indent = 0
        self._margin = ""
        """The marks at the beginning of each further line of a quotation."""
        self._column = 0
        self._spaces = 0
        self._word: list[Styled] = []

    @property
    def in_line(self) -> bool:
        """True if the cursor is inside a line, or text is buffered."""
        return bool(self._column or self._word or self._held or self._rows or self._kind is not None)

    def feed(self, text: str) -> str:
        """Add text; return what can be drawn now."""
        *lines, rest = text.replace("\t", "    ").split("\n")
        for line in lines:
            self._held += line
            self._take(complete=True)
        self._held += rest
        if self._held:
            self._take(complete=False)
        return self._drain()

    def close(self) -> str:
        """Return everything that was buffered, followed by the end of the line, if it is not empty."""
        if self._held or self._kind is not None:
            self._take(complete=True)
        self._end_table()
        self._fence = None
        return self._drain()

    def _drain(self) -> str:
        out, self._out = "".join(self._out), []
        return out

    def _take(self, *, complete: bool) -> None:
        if self._kind is None:
            kind = self._decided(complete=complete)
            if kind is None:
                return
            self._begin(kind)
        if self._kind == "text":
            self._draw_spans(complete=complete)
        elif self._kind == "code":
            self._draw_code(complete=complete)
        if complete:
            self._end_line()

    def _decided(self, *, complete: bool) -> str | None:
        """The kind of the line, as soon as it is decided."""
        held = self._held
        if self._fence is not None:
            inside = held.strip(" ")
            could_end = len(held) < HEAD_CHARS_MAX and set(inside) <= {self._fence[0]}
            if could_end and not complete:
                return None
            return "fence" if could_end and len(inside) >= len(self._fence) else "code"
        is_row = _ROW.match(held) is not None and len(held) < ROW_CHARS_MAX and len(self._rows) < ROWS_MAX
        is_fence = _FENCE_BEGUN.match(held) is not None and len(held) < HEAD_CHARS_MAX
        is_head = len(held) < HEAD_CHARS_MAX and _HEAD.fullmatch(held) is not None
        is_task = len(held) < HEAD_CHARS_MAX and (item := _ITEM.match(held)) and _TASK_BEGUN.fullmatch(held, item.end())
        if not complete and (is_row or is_fence or is_head or is_task):
            return None
        if is_row:
            return "row"
        if is_fence and _FENCE.fullmatch(held):
            return "fence"
        return "rule" if is_head and _RULE.fullmatch(held) else "text"

    def _begin(self, kind: str) -> None:
        if kind != "row":
            self._end_table()
        self._kind, self._style, self._indent, self._margin, self._drawn = kind, "", 0, "", ""
        if kind == "text":
            self._begin_text()

    def _begin_text(self) -> None:
        held = self._held
        if len(held) >= HEAD_CHARS_MAX and _HEAD.fullmatch(held[:HEAD_CHARS_MAX]):
            return
        if found := _HEADING.match(held):
            self._style = code_of("heading")
        elif found := _ITEM.match(held):
            mark = self._bullet if found[2] in "-*+" else found[2]
            task = _TASK.match(held, found.end())
            self._prefix(found[1] + mark + " " + (self._boxes[task[1] != " "] + " " if task else ""), "")
            if task:
                self._held = held[task.end() :]
                return
        elif found := _QUOTE.match(held):
            marks = f"{self._bar} " * found[0].count(">")
            self._prefix(marks, DIM)
            self._style, self._margin = DIM, marks if len(marks) == self._indent else ""
        elif found := re.match(" +", held):
            self._prefix(found[0], "")
        self._held = held[found.end() :] if found else held

    def _prefix(self, text: str, style: str) -> None:
        self._indent = min(width_of(text), self._width() // 2)
        self._put(text, style)
        self._column = width_of(text)

    def _end_line(self) -> None:
        kind, held = self._kind, self._held
        self._kind, self._held = None, ""
        if kind == "row":
            self._rows.append(held)
            return
        if kind == "fence":
            found = _FENCE.fullmatch(held)
            is_begun = self._fence is None and found is not None
            self._fence = found[1] if is_begun and found else None
            self._colors = CodeColors((found[2].split() or [""])[0] if is_begun and found else "")
            return
        if kind == "rule":
            self._put(self._rule * min(self._width(), 40), DIM)
        self._flush_word()
        self._put("\n", "")
        self._column = self._spaces = 0

    # Drawing --------------------------------------------------------------------------------------------------------------

    def _draw_spans(self, *, complete: bool) -> None:
        styled, used = spans(self._held, self._style, before=self._drawn, complete=complete)
        self._drawn = self._held[used - 1 : used] or self._drawn
        self._held = self._held[used:]
        for text, style in styled:
            self._words(text, style)

    def _draw_code(self, *, complete: bool) -> None:
        """Draw a line of code when it is whole: its colours are known then, and where it must be wrapped."""
        if not complete and len(self._held) < ROW_CHARS_MAX:
            return
        text, self._held = self._held, ""
        if not text:
            return
        if not self._column:
            self._put("  ", "")
            self._column = 2
        self._indent = min(len(text) - len(text.lstrip(" ")) + 4, self._width() // 2)
        for piece, style in self._colors.line(text):
            self._put_within(piece, style, self._width())

    def _words(self, text: str, style: str) -> None:
        for piece in _WORDS.findall(text):
            if piece[0] == " ":
                self._flush_word()
                self._spaces += len(piece)
            else:
                self._word.append((piece, style))

    def _flush_word(self) -> None:
        if not self._word:
            return
        room, wide = self._width(), sum(width_of(text) for text, _ in self._word)
        if self._column > self._indent and self._column + self._spaces + wide > room:
            self._break()
        self._put(" " * self._spaces, "")
        self._column, self._spaces = self._column + self._spaces, 0
        word, self._word = self._word, []
        for text, style in word:
            self._put_within(text, style, room)

    def _put_within(self, text: str, style: str, room: int) -> None:
        """Draw a piece of a word, cut at the width of the terminal."""
        if self._column + width_of(text) <= room:
            self._put(text, style)
            self._column += width_of(text)
            return
        begin, column = 0, self._column
        for place, char in enumerate(text):
            wide = _char_width(char)
            if column + wide > room and column > self._indent:
                self._put(text[begin:place], style)
                self._break()
                begin, column = place, self._column
            column += wide
        self._put(text[begin:], style)
        self._column = column

    def _break(self) -> None:
        self._put("\n", "")
        self._put(self._margin or " " * self._indent, DIM if self._margin else "")
        self._column, self._spaces = self._indent, 0

    def _put(self, text: str, style: str) -> None:
        if text:
            self._out.append(f"\x1b[{style}m{text}\x1b[0m" if style else text)

    def _width(self) -> int:
        return max(COLUMNS_LEAST, self._columns()) - 1

    # Tables ---------------------------------------------------------------------------------------------------------------

    def _end_table(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        cells = [_cells(row) for row in rows]
        if len(rows) > 1 and all(map(_SEPARATOR.fullmatch, cells[1])) and len(cells[0]) == len(cells[1]):
            table = [[spans(cell)[0] for cell in row] for row in (cells[0], *cells[2:])]
            widths = [max(_styled_width(row[n]) for row in table if n < len(row)) for n in range(len(cells[0]))]
            fitted = _fitted(widths, self._width() - 3 * len(widths))
            if fitted is not None:
                self._draw_table(table, fitted, [_side(cell) for cell in cells[1]])
                return
        for row in rows:
            self._put(row + "\n", "")

    def _draw_table(self, table: Sequence[Sequence[list[Styled]]], widths: Sequence[int], sides: Sequence[str]) -> None:
        for number, row in enumerate(table):
            folded = [_folded(row[n] if n < len(row) else [], width) for n, width in enumerate(widths)]
            for line in range(max(map(len, folded))):
                for column, width in enumerate(widths):
                    self._put(f" {self._bar} " if column else " ", DIM if column else "")
                    cell = folded[column][line] if line < len(folded[column]) else []
                    room = width - _styled_width(cell)
                    left = {"right": room, "center": room // 2}.get(sides[column], 0)
                    self._put(" " * left, "")
                    for text, style in cell:
                        self._put(text, _added(style, BOLD) if number == 0 else style)
                    if column + 1 < len(widths):
                        self._put(" " * (room - left), "")
                if line == 0:
                    for cell in row[len(widths) :]:  # More cells than the head has: nothing is left out.
                        self._put(" " + "".join(text for text, _ in cell), "")
                self._put("\n", "")
            if number == 0:
                self._put(
                    f"{self._rule}{self._cross}{self._rule}".join(
                        self._rule * (width + (n == 0)) for n, width in enumerate(widths)
                    ),
                    DIM,
                )
                self._put("\n", "")


def _side(separator: str) -> str:
    """The side of a column that its cells stand at."""
    return {(True, True): "center", (False, True): "right"}.get((separator.startswith(":"), separator.endswith(":")), "left")


def _fitted(widths: Sequence[int], room: int) -> list[int] | None:
    """The widths of columns that fit, the widest made narrower first; None if no column would be readable."""
    fitted = list(widths)
    while sum(fitted) > room:
        widest = max(fitted)
        if widest <= CELL_COLUMNS_MIN:
            return None
        fitted[fitted.index(widest)] = widest - 1
    return fitted


def _folded(cell: Sequence[Styled], width: int) -> list[list[Styled]]:
    """The lines of a cell: wrapped at words, and inside one that is wider than the column."""
    lines: list[list[Styled]] = [[]]
    used = 0
    for text, style in cell:
        for word in _WORDS.findall(text):
            if used and used + width_of(word) > width:
                if not lines[-1][-1][0].strip():
                    lines[-1].pop()
                lines.append([])
                used = 0
                word = word.lstrip(" ")
            for char in word if width_of(word) > width else [word] if word else []:
                if used + width_of(char) > width and used:
                    lines.append([])
                    used = 0
                lines[-1].append((char, style))
                used += width_of(char)
    return lines


def _cells(row: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in _split(row.strip())]


def _split(row: str) -> Iterator[str]:
    inside = row.removeprefix("|")
    inside = inside[:-1] if inside.endswith("|") and not inside.endswith("\\|") else inside
    yield from re.split(r"(?<!\\)\|", inside)


def _styled_width(cell: Sequence[Styled]) -> int:
    return sum(width_of(text) for text, _ in cell)
