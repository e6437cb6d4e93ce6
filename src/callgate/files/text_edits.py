"""Text, what to replace and by what -> the new text; a diff of two texts.

Pure. Only what was named changes: line ends of either kind, also mixed, and the end of the file stay as they are.
"""

from __future__ import annotations

import bisect
import difflib
import re

from callgate.errors import ToolError
from callgate.files.paths import shown

__all__ = ["edited", "stand_in_line", "unified_diff"]

DIFF_LINES_MAX = 20_000
LINES_NAMED = 10


def edited(path: str, text: str, old: str, new: str, *, every: bool) -> tuple[str, int]:
    """The text with `old` replaced by `new`, and how many times that was.

    Line ends in `old` fit either kind, and those of `new` become the kind that the place has.

    Raises:
        ToolError: `old` is not there, or there more than once and not `every` one is meant.
    """
    if not old:
        raise ToolError("old_string is empty; give the text that is to be replaced, or use write_file for a new file.")
    if old == new:
        raise ToolError("old_string and new_string are the same, so there is nothing to change.")
    plain, returns = _without_returns(text)
    wanted = old.replace("\r\n", "\n")
    places = _places(plain, wanted)
    if not places:
        raise ToolError(f"old_string was found 0 times in {shown(path)}; nothing was changed.{_near(plain, wanted)}")
    if len(places) == 1 and not every and (overlapping := plain.find(wanted, places[0] + 1)) >= 0:
        places.append(overlapping)
    if len(places) > 1 and not every:
        lines = [str(plain.count("\n", 0, place) + 1) for place in places[:LINES_NAMED]]
        more = ", ..." if len(places) > LINES_NAMED else ""
        raise ToolError(
            f"old_string was found {len(places)} times in {shown(path)} (lines {', '.join(lines)}{more}); nothing was "
            "changed. Add the lines around it so that it fits one place only, or set replace_all."
        )
    pieces, end = list[str](), 0
    for place in places:
        start, stop = _raw(place, returns), _raw(place + len(wanted), returns)
        pieces += [text[end:start], _with_ends_of(text, start, stop, new)]
        end = stop
    return "".join([*pieces, text[end:]]), len(places)


def _without_returns(text: str) -> tuple[str, list[int]]:
    """The text with plain line feeds, and where in it a carriage return was left away before one."""
    returns, count, index = list[int](), 0, text.find("\r\n")
    while index >= 0:
        returns.append(index - count)
        count += 1
        index = text.find("\r\n", index + 2)
    return text.replace("\r\n", "\n"), returns


def _raw(position: int, returns: list[int]) -> int:
    """The place in the original of a place in the text without carriage returns."""
    return position + bisect.bisect_left(returns, position)


def _places(text: str, wanted: str) -> list[int]:
    found, index = list[int](), text.find(wanted)
    while index >= 0:
        found.append(index)
        index = text.find(wanted, index + len(wanted))
    return found


def _with_ends_of(text: str, start: int, stop: int, new: str) -> str:
    """`new` with the line ends that the replaced text has; without one in there, those of the line; else of the file."""
    for piece in (text[start:stop], text[start : text.find("\n", start) + 1 or None], text):
        ends = piece.count("\n")
        if ends:
            plain = new.replace("\r\n", "\n")
            return plain.replace("\n", "\r\n") if piece.count("\r\n") * 2 > ends else plain
    return new


def _near(text: str, wanted: str) -> str:
    """Return a hint where the text is, with other white space."""
    words = wanted.split()
    if not words or len(words) > 2_000:
        return " Read the file and copy the text exactly as it is."
    squeezed = " ".join(words)
    plain = " ".join(text.split())
    count = plain.count(squeezed)
    if not count:
        return " Read the file and copy the text exactly as it is."
    before = plain[: plain.find(squeezed)].split()
    line = _line_of_word(text, len(before))
    return f" It is there {count} time{'s' * (count > 1)} (line {line}) with other white space: copy that exactly."


def _line_of_word(text: str, number: int) -> int:
    for line, content in enumerate(text.split("\n"), 1):
        number -= len(content.split())
        if number < 0:
            return line
    return text.count("\n") + 1


def unified_diff(path: str, before: str | None, after: str | None) -> str:
    """A diff for people; None stands for no file."""
    old, new = (before or "").splitlines(keepends=True), (after or "").splitlines(keepends=True)
    if len(old) + len(new) > DIFF_LINES_MAX:
        return f"--- {path}\n+++ {path}\n(too long to compare: {len(old)} lines before, {len(new)} after)\n"
    lines = difflib.unified_diff(old, new, "/dev/null" if before is None else path, "/dev/null" if after is None else path)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


# A model that is asked to change a file sometimes writes this in place of what it leaves out.
_STAND_IN = re.compile(
    r"^\s*(?:#|//|/\*|--|<!--|;|%)?\s*(?:\.{3}|…)\s*\(?(?:the )?(?:rest of|remaining|existing|unchanged|other)\b.{0,80}$",
    re.IGNORECASE | re.MULTILINE,
)


def stand_in_line(before: str, after: str) -> str | None:
    """A line of the new text that stands for old text which is not there any more, such as `# ... rest of the code`."""
    if len(after) >= len(before):
        return None
    found = _STAND_IN.search(after)
    return found[0].strip() if found and found[0] not in before else None
