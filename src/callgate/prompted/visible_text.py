"""The text that is left when calls are taken out of an answer, piece by piece.

Text and the places of removed lines come in; what may be shown goes out at once. White space is held back until something
follows it, because it may turn out to stand at the end, or around a line that was removed.
"""

from __future__ import annotations

__all__ = ["VisibleText"]


class VisibleText:
    """Joins what is left: blank lines on both sides of a removed line become those before it, both ends are stripped."""

    def __init__(self) -> None:
        self._ready: list[str] = []
        self._before: list[str] = []
        """White space behind what was shown last."""
        self._newlines = 0
        """Line ends in `_before`."""
        self._behind: list[str] | None = None
        """White space behind a removed line; None where none was removed since something was shown."""
        self._started = False

    def show(self, text: str) -> None:
        """Takes text that is to be kept."""
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
            # Blank lines between two removed ones stand before the second.
            self._before += self._behind
            self._newlines += sum(space.count("\n") for space in self._behind)
        self._behind = []

    def take(self) -> str:
        """What may be shown by now."""
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
            # A blank line stands before the removed one: those behind it go, the indentation of the next line stays.
            last = space.rfind("\n")
            if last >= 0:
                self._behind.clear()
            self._behind.append(space[last + 1 :])
        else:
            self._behind.append(space)
