"""Patterns in, yes or no out, in a time that grows with the text and nothing else.

Globs and regular expressions are run by an engine without backtracking, so that no argument of a model can stall a decision.
A pattern answers in two ways: *narrowly*, for rules that allow, and *widely*, for rules that ask or deny: there neither
case, nor a look-alike form of a letter, nor a place below a folder that matches, leads around it.
"""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from callgate.content.lookalikes import latin
from callgate.errors import UsageError
from callgate.strict_json import without_surrogates

if TYPE_CHECKING:
    from callgate.permission.unsure_paths import PossiblePaths

__all__ = ["AnyPath", "Glob", "PathGlob", "Regex", "folded", "number_in", "path_parts", "plain_path"]

PATTERN_CHARS_MAX = 1_000
PATH_CHARS_MAX = 4_096
"""No system opens a longer path."""

# A backslash escapes a wildcard. Before a letter it escapes nothing: somebody took it for a separator.
_SEPARATOR = re.compile(r"\\[^\W_]")
# A path that is its own shortest spelling, as most are.
_PLAIN = re.compile(r"/?\.?[A-Za-z0-9_-]+(?:(?:\.|/\.?)[A-Za-z0-9_-]+)*")
_DRIVE = re.compile(r"[A-Za-z]:")
_SLASH_LIKE = frozenset("\\\u2044\u2215\u2216\u29f5\u29f8\u29f9\u2571\u2572\ufe68\uff0f\uff3c")
"""Characters that are drawn like a slash, or are one elsewhere."""
_NOTHING = r"[^\s\S]"
"""An expression that matches no text."""
_SLASHES = str.maketrans(dict.fromkeys(_SLASH_LIKE, "/"))
_CLASS = re.compile(r"\[([!^]?)(\]?(?:\\.|[^\]\\/])*)\]")


class Glob:
    """A glob over a whole text: `*` is anything, `?` one character, `[a-z]` one of these, `\\*` the star itself."""

    def __init__(self, pattern: str) -> None:
        self.pattern = _sound(pattern)
        self.literal = _literal(pattern)
        """The only text that it matches; None if it has wildcards."""
        self.number = None if self.literal is None else number_in(self.literal)
        """The number that it is, if it is one."""
        self._narrow = _engine(_body(pattern, any_char="."))
        self._folded = _engine(_body(folded(pattern), any_char="."))

    def narrow(self, text: str) -> bool:
        """True if the text matches to the letter."""
        return self._narrow(text)

    def wide(self, text: str) -> bool:
        """True if the text, or what a careless system might take it for, matches."""
        return self._narrow(text) or any(map(self._folded, _careless(text)))


class Regex:
    """A regular expression over a whole text, without look-around and back-references.

    Raises:
        UsageError: the expression is not one, or needs backtracking.
    """

    literal = None
    number = None

    def __init__(self, pattern: str) -> None:
        self.pattern = _sound(pattern)
        _validator(pattern)  # By itself first, so that an odd parenthesis cannot get out of the anchors.
        self._narrow = _engine(pattern)
        self._folded = _engine(f"(?i:{pattern})")

    def narrow(self, text: str) -> bool:
        """True if the text matches to the letter."""
        return self._narrow(text)

    def wide(self, text: str) -> bool:
        """True if the text matches, whatever its case and the form of its letters."""
        return self._folded(text) or any(map(self._folded, _careless(text)))


class PathGlob:
    """A pattern as in `.gitignore`: without a slash inside it matches a name at any depth, with one from the root on.

    `**` stands for any folders, `//` at the beginning for the root of the whole file system. Narrowly, a pattern that ends
    in a wildcard matches what it says and nothing below; widely, everything below a match matches too.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = _sound(pattern)
        if pattern.startswith("!"):
            raise UsageError(f"the path pattern {pattern!r} begins with '!': write a rule with the other verdict instead")
        self._absolute = pattern.startswith("//")
        self._narrow = _engine(_path_body(_normal_pattern(pattern), wide=False))
        self._wide = AnyPath([pattern])

    def narrow(self, path: str) -> bool:
        """True if the pattern names the path. One that leads out of the root is not named, unless the pattern does too."""
        parts, leads_out = path_parts(path)
        is_plain = not path.startswith("~") and not any(char in _SLASH_LIKE or _is_control(char) for char in path)
        if self._absolute:
            return is_plain and path.startswith("/") and self._narrow("/".join(parts))
        return is_plain and not leads_out and self._narrow("/".join(parts))

    def wide(self, path: str) -> bool:
        """True if the path could reach what the pattern names."""
        return self._wide.wide(path)


class AnyPath:
    """Many path patterns at once, read widely."""

    def __init__(self, patterns: Iterable[str]) -> None:
        known = list(map(_normal_pattern, patterns))
        self._known = known
        parts = [_longest_literal(folded(pattern)) for pattern in known]
        self._parts = None if not all(parts) else _validator("|".join(map(re.escape, dict.fromkeys(parts))) or _NOTHING)
        self._plain = _engine(_anywhere(known))
        self._folded = _engine(_anywhere(map(folded, known)))
        absolute = [folded(pattern) for pattern in known if pattern.startswith("//")]
        self._at = _engine("|".join(_path_body(pattern, wide=True) for pattern in absolute)) if absolute else None

    def may_match_in(self, text: str) -> bool:
        """False if no path that is a part of the text can match: then none of the patterns' own names is in it."""
        return self._parts is None or self._parts(without_surrogates(folded(text)))

    def may_be(self, path: str) -> bool:
        """True if a path that a program may expand could be one that the patterns name."""
        if path.startswith(("~/", "~\\")) and self.wide(os.path.expanduser("~") + path[1:]):
            return True
        return self._possible.may_be(_folded_whole(path), leads_out=path_parts(path.replace("\\", "/"))[1])

    @functools.cached_property
    def _possible(self) -> PossiblePaths:
        from callgate.permission.unsure_paths import PossiblePaths  # Most paths are plain ones.

        return PossiblePaths(map(folded, self._known))

    def may_be_listed(self, path: str) -> bool:
        """True if such a path could have one of the names that the patterns list, their own wildcards left out."""
        return self._listed.may_be(_folded_whole(path), leads_out=path_parts(path.replace("\\", "/"))[1])

    @functools.cached_property
    def _listed(self) -> PossiblePaths:
        from callgate.permission.unsure_paths import PossiblePaths

        return PossiblePaths(map(folded, self._known), literal=True)

    def wide_at(self, path: str) -> bool:
        """True if one of the absolute patterns names a path from the root of the file system, or a folder above it."""
        return self._at is not None and self._at("/".join(path_parts(_folded_path(path))[0]))

    def wide(self, path: str) -> bool:
        """True if the path could reach what one of the patterns names."""
        if _PLAIN.fullmatch(path):
            return self._plain(path) or self._folded(path.lower())
        if self._folded(_place(_folded_path(path))) or self._plain(_place(path)):
            return True
        return "\\" in path and self._plain(_place(path.replace("\\", "/")))


def _place(path: str) -> str:
    """The place below a root that a path leads to; with a slash before it if it leads out, and may be anywhere."""
    parts, leads_out = path_parts(path)
    return "/" * leads_out + "/".join(parts)


def _anywhere(patterns: Iterable[str]) -> str:
    """An expression for places below a root: of one that leads out, any end may be what a pattern names."""
    bodies = "|".join(_path_body(pattern, wide=True) for pattern in patterns)
    return f"(?:/(?:.*/)?)?(?:{bodies})" if bodies else _NOTHING


def path_parts(path: str) -> tuple[list[str], bool]:
    """The names of a path with `.`, `..` and doubled slashes worked out, and whether it leads out of where it starts."""
    leads_out = path.startswith(("/", "~")) or _DRIVE.match(path) is not None
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            leads_out = leads_out or not parts
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts, leads_out


def plain_path(text: str) -> str:
    """The shortest spelling of a text as a path: `./src//x` is `src/x`."""
    if "/" not in text and "\\" not in text:
        return text
    slashed = text.replace("\\", "/")
    return "/" * slashed.startswith("/") + "/".join(path_parts(slashed)[0])


def number_in(text: str) -> Decimal | None:
    """The finite number that a text is in any usual spelling; None if it is none."""
    if len(text) > PATTERN_CHARS_MAX or not text.isascii() or "_" in text:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def folded(text: str) -> str:
    """The text as a careless reader takes it: one case, one form for each letter, nothing invisible."""
    if text.isascii():
        return text.lower()
    return latin(text)


def _careless(text: str) -> Iterator[str]:
    """The text as a careless reader takes it, with and without the blanks around it."""
    plain = folded(text)
    yield plain
    if not text.isprintable():
        yield "".join(char for char in plain if char.isprintable())
    if (bare := plain.replace("\0", " ").strip()) != plain:
        yield bare


def _folded_path(path: str) -> str:
    """The path as careless file systems take it: those that ignore dots, spaces and `:stream` behind a name, too."""
    names = [name.strip() for name in folded(path).translate(_SLASHES).split("/")]
    return "/".join(name if name in (".", "..") else name.split(":")[0].rstrip(". ") for name in names)


def _folded_whole(path: str) -> str:
    """The path in that form, with what stands behind a colon: to some it is a slash."""
    return _folded_path(path.replace(":", ";"))


# To the engine -----------------------------------------------------------------------------------------------------------


def _sound(pattern: object) -> str:
    if not isinstance(pattern, str) or not pattern or len(pattern) > PATTERN_CHARS_MAX:
        raise UsageError(f"{pattern!r:.80} is no pattern: expected a text of 1 to {PATTERN_CHARS_MAX} characters")
    return pattern


@functools.lru_cache(maxsize=1_000)
def _engine(body: str) -> Callable[[str], bool]:
    """The expression, anchored at both ends, run by an engine whose time is linear in the text."""
    matches = _validator(rf"\A(?s:{body})\z")
    # The engine takes a text with half a surrogate pair for no text at all, and would match nothing.
    return lambda text: matches(without_surrogates(text))


def _validator(expression: str) -> Callable[[str], bool]:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        core: Any = core_schema.str_schema(pattern=expression, regex_engine="rust-regex", strict=True)
        return SchemaValidator(core).isinstance_python
    except SchemaError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("error: ")
        raise UsageError(f"{expression!r:.200} cannot be used as a pattern: {reason}") from None


def _normal_pattern(pattern: str) -> str:
    """The pattern as paths are compared with it: without `.` and doubled slashes.

    Raises:
        UsageError: no path can fit it.
    """
    if pattern != pattern.strip():
        raise UsageError(f"the path pattern {pattern!r} begins or ends with white space: leave it out")
    if found := _SEPARATOR.search(pattern):
        raise UsageError(f"the path pattern {pattern!r} has {found[0]!r} in it: write folders with '/'")
    parts = pattern.split("/")
    if ".." in parts:
        raise UsageError(f"the path pattern {pattern!r} leads upwards: write it from the root on, or as //absolute/path")
    if "." not in parts:
        return pattern
    kept = [part for part in parts if part not in ("", ".")]
    start = "//" if pattern.startswith("//") else "/"
    return (start + "/".join(kept) + ("/" if pattern.endswith("/") else "")) if kept else "/**"


def _path_body(pattern: str, *, wide: bool) -> str:
    anchored = "/" in pattern.rstrip("/")
    parts = [part for part in pattern.split("/") if part]
    if not parts:
        return ".*"
    last_is_plain = not any(c in parts[-1] for c in "*?[")
    below = "(?:/.*)?" if wide or last_is_plain or pattern.endswith("/") else ""
    if parts[-1] == "**":
        parts.pop()
        below = "(?:/.*)?" if wide else "/.+"
    body = "" if anchored else "(?:.*/)?"
    for index, part in enumerate(parts):
        if part == "**":
            body += "(?:.*/)?"
        else:
            body += _body(part, any_char="[^/]") + ("/" if index < len(parts) - 1 else "")
    if not parts:
        return ".*" if wide else ".+"
    return body + below


def _longest_literal(pattern: str) -> str:
    """The longest text that every path has in it which the pattern matches, in one of its names; empty if there is none."""
    runs = re.split(r"\[[!^]?\]?(?:\\.|[^\]\\])*\]|[*?/]|\\", pattern)
    return max((run.strip(" .:") for run in runs), key=len)


def _literal(pattern: str) -> str | None:
    """The text of a glob without wildcards."""
    plain = re.sub(r"\\(.)", "", pattern, flags=re.DOTALL)
    return None if any(char in plain for char in "*?[") else re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def _body(pattern: str, *, any_char: str) -> str:
    body = ""
    place = 0
    while place < len(pattern):
        char = pattern[place]
        if char == "[":
            found = _CLASS.match(pattern, place)
            if found is None or not found[2]:
                raise UsageError(f"the pattern {pattern!r} has a '[' without its ']': close it, or write \\[")
            body += f"[{'^' if found[1] else ''}{_class_body(found[2])}]"
            place = found.end()
            continue
        if char == "\\" and place + 1 < len(pattern):
            place += 1
            body += re.escape(pattern[place])
        elif char == "*":
            body += f"{any_char}*"
        else:
            body += any_char if char == "?" else re.escape(char)
        place += 1
    return body


def _class_body(text: str) -> str:
    # Only a range and its ends keep a meaning; what else an engine may read into a class is taken as it is.
    return "".join(c if c == "-" or c.isalnum() else f"\\{c}" if c.isascii() else c for c in text.replace("\\", ""))


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf")
