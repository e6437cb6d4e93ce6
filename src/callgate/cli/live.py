"""Lines at the end of a terminal that change while work is in progress.

Takes lines, returns escape sequences. The cursor stays at the beginning of the first of these lines, so that one "clear
to the end" removes them whatever happens (a resize, other output): no counting, no flicker. Knows nothing of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from callgate.cli.markdown import width_of

__all__ = ["Live", "clipped"]

HIDE, SHOW, CLEAR = "\x1b[?25l", "\x1b[?25h", "\r\x1b[J"


class Live:
    """Lines that are drawn again and again in their place."""

    def __init__(self, write: Callable[[str], None], size: Callable[[], tuple[int, int]]) -> None:
        self._write = write
        self._size = size
        self._drawn: list[str] = []

    @property
    def is_shown(self) -> bool:
        """True if there is anything to take away."""
        return bool(self._drawn)

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines instead of those before. Must begin at the beginning of a line."""
        columns, rows = self._size()
        room = max(1, rows - 2)
        shown = [clipped(line, columns - 1) for line in lines[:room]]
        if len(lines) > room:
            shown[-1] = clipped(f"  and {len(lines) - room + 1} more", columns - 1)
        if shown == self._drawn:
            return
        if not shown:
            self.erase()
            return
        up = f"\x1b[{len(shown) - 1}A" if len(shown) > 1 else ""
        self._write(HIDE + CLEAR + "\n".join(shown) + up + "\r")
        self._drawn = shown

    def erase(self) -> None:
        """Take the lines away: the cursor is at the beginning of an empty line."""
        if self._drawn:
            self._drawn = []
            self._write(CLEAR + SHOW)


def clipped(text: str, columns: int, *, cut: str = "…") -> str:
    """Cut the text to so many columns. It must have no escape sequences."""
    if width_of(text) <= columns:
        return text
    stored, used = "", 0
    for char in text:
        used += width_of(char)
        if used > columns - width_of(cut):
            break
        stored += char
    return stored + cut if columns >= width_of(cut) else ""
