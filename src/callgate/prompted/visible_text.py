"""The text of an answer without its calls, incrementally.

Takes text and the places of removed lines; returns what may be shown immediately. White space is buffered until something
follows it, because it may be at the end, or around a removed line.
"""

from __future__ import annotations

__all__ = ["VisibleText"]


class VisibleText:
    """Joiner of the remaining text: blank lines on both sides of a removed line collapse to those before it, both ends are
    stripped.
    """

    def __init__(self) -> None:
        self._ready: list[str] = []
        self._before: list[str] = []
        """White space after the text shown last."""
        self._newlines = 0
        """Line ends in `_before`."""
        self._behind: list[str] | None = None
        """White space after a removed line; None if none was removed since text was shown."""
        self._started = False

    def show(self, text: str) -> None:
        """Add text to keep."""
        core = text.lstrip()
        if not core:
            self._space(text)
            return
        self._space(text[: len(text) - len(core)])
        body = core.rstrip()
        if self._started:
            self._ready += self._before
            self._ready += self._behind or []
        self._ready.append(body)
        self._started = True
        self._before, self._newlines, self._behind = [], 0, None
        self._space(core[len(body) :])

    def removed(self) -> None:
        """A whole line, or several, were taken out here."""
        if self._behind:
            # Blank lines between two removed ones belong before the second.
            self._before += self._behind
            self._newlines += sum(space.count("\n") for space in self._behind)
        self._behind = []

    def take(self) -> str:
        """Return what may be shown by now."""
        text = "".join(self._ready)
        self._ready.clear()
        return text

    def _space(self, space: str) -> None:
        if not space:
            return
        if self._behind is None:
            self._before.append(space)
            self._newlines += space.count("\n")
        elif self._newlines > 1:
            # There is a blank line before the removed one: drop those after it, keep the indentation of the next line.
            last = space.rfind("\n")
            if last >= 0:
                self._behind.clear()
            self._behind.append(space[last + 1 :])
        else:
            self._behind.append(space)
