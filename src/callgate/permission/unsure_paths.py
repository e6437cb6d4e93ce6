"""Paths that a server reads in its own way: with wildcards, braces, variables, home folders or short names of files.

Such a path and the patterns of a rule come in; out goes whether one of the files that the path may lead to is one that the
rule means. Files are not looked at, and nothing is expanded: a path that could lead there counts. Letters, digits, blanks,
emoji and a few signs stand for themselves, wildcards for what shells take them for, and whatever else there is for anything.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

__all__ = ["PossiblePaths", "is_unsure", "shortened"]

PART_CHARS_MAX = 64
"""A longer name with wildcards in it may be any."""
SIGNS_MAX = 3
"""Different odd signs that are separators or not independently of each other; of more, all are or none is."""
ALTERNATIVES_MAX = 32
"""Words in braces that are tried one by one; where there are more, the rest may be any."""

_SHORT = r"[^/\\~]{1,8}~[0-9a-z]{1,6}(?:\.[^/\\.~]{0,3})?"
"""A name as file systems shorten it: `PLANOF~1.TXT`."""
_UNSURE = re.compile(rf"[*?\[{{$`]|\A~|%[a-z_][a-z0-9_]{{2,}}%|(?:\A|[/\\]){_SHORT}(?:[/\\]|\Z)", re.IGNORECASE | re.ASCII)
_COMPUTED = re.compile(r"\$\{\w*[^\w}][^}]*\}?|\$\([^)]*\)?|`[^`]*`?")
_VARIABLE = re.compile(r"\$\{[^}]*\}?|\$[A-Za-z0-9_]*|%[A-Za-z_][A-Za-z0-9_]{2,}%")
_GROUP = re.compile(r"\{(?P<braces>[^{}]*)\}|(?P<sign>[?*+@!]?)\((?P<either>[^()]*)\)")
_MAYBE_ODD = re.compile(r"[!\"&'():;<>^|\x03-\x08\x0b-\x1f\x7f]|[^\x00-\x7f\w\s]")
_PLAIN_KINDS = ("M", "So", "Pd", "Pc", "Cf")
"""Beginnings of the kinds of characters that are ordinary in names, beside letters and digits: accents, emoji, dashes."""
_CLASS = re.compile(r"\[[!^]?\]?[^\]]*\]")
_SHORT_NAME = re.compile(r"([^~]{1,8})~([0-9a-z]{1,6})(?:\.([^.~]{0,3}))?", re.IGNORECASE | re.ASCII)
_HASHED = re.compile(r"[0-9a-f]{4}", re.IGNORECASE | re.ASCII)
_SHORT_CHARS, _ENDING_CHARS = 8, 3


class _Any:
    """A stand-in for characters of a name, or names of a path, that are not known."""


MANY: Final = _Any()
"""Any number of them."""
ONE: Final = _Any()
HOME: Final = _Any()
"""The home folder of somebody, which is compared by its own name too."""
DOT: Final = _Any()
"""Dots and blanks, or nothing: a short name leaves them out."""
END: Final = _Any()
_LEFT_OUT = (".", " ")
VALUE, RESULT, ODD = "\0\1\2"
"""In a path: the value of a variable, what a program computes, which may lead upwards, and a sign that may be anything."""
Chars: TypeAlias = tuple[Any, ...]
"""The characters of a name, with `MANY` and `ONE` among them."""


def is_unsure(path: str, *, is_word: bool = False) -> bool:
    """True if the path may be another one to a program that expands it; of a word of a command, no quotes are left."""
    return _UNSURE.search(path) is not None or (not is_word and any(map(_is_odd, _MAYBE_ODD.findall(path))))


@functools.lru_cache(maxsize=4_096)
def _is_odd(char: str) -> bool:
    """True if a sign is not known to stand for itself."""
    return char.isascii() or not unicodedata.category(char).startswith(_PLAIN_KINDS)


def shortened(path: str) -> str:
    """The path without what leads nowhere: `.`, doubled slashes, and a known name with `..` after it."""
    kept: list[str] = []
    for part in re.split(r"[/\\]", path):
        if part == ".." and kept and kept[-1] != ".." and not is_unsure(kept[-1]):
            kept.pop()
        elif part not in ("", "."):
            kept.append(part)
    return "/" * path.startswith(("/", "\\")) + "/".join(kept)


class PossiblePaths:
    """Patterns of paths that a path which is not known may fit.

    With `literal`, wildcards of the patterns stand for nothing: `*.txt` may be `secrets.txt` then, because that name is on
    the list, and is not taken for `secrets.json.txt`, which `secrets.*` would be too.
    """

    def __init__(self, patterns: Iterable[str], *, literal: bool = False) -> None:
        self._patterns = [found for pattern in patterns if (found := _pattern(pattern, literal=literal))]
        self._cannot_be_less = not literal

    def may_be(self, path: str, *, leads_out: bool) -> bool:
        """True if the path, in the form that is compared, may lead to something that one of the patterns names."""
        return any(
            self._may_be(_possible(spelled), leads_out=leads_out)
            for spelled in _alternatives(path, literal=not self._cannot_be_less)
        )

    def _may_be(self, possible: list[Any], *, leads_out: bool) -> bool:
        if self._cannot_be_less:
            return any(self._fits(pattern, possible, leads_out) for pattern in self._patterns)
        if possible[-1:] == [MANY]:
            return bool(self._patterns)  # Not even the last name is known.
        # Unknown folders on the way say nothing about a list of names.
        names = [part for part in possible if part not in (MANY, HOME)]
        unsure = [part for part in names if MANY in part or ONE in part] or names
        return any(self._fits(pattern, possible, leads_out) for pattern in self._patterns if _may_share(pattern, unsure))

    @staticmethod
    def _fits(pattern: tuple[bool, Chars], possible: Sequence[Any], leads_out: bool) -> bool:
        anchored, parts = pattern
        start = () if anchored and not leads_out else (MANY,)
        # Nothing is said about a home folder, but that it is none of those that the pattern names.
        end = () if possible[:1] == [HOME] else (MANY,)
        return _overlap((*start, *parts, *end), [MANY if part is HOME else part for part in possible], _names_overlap)


def _pattern(pattern: str, *, literal: bool) -> tuple[bool, Chars] | None:
    anchored = "/" in pattern.rstrip("/") and not pattern.startswith("**/")
    parts: list[Any] = []
    for part in filter(None, pattern.split("/")):
        chars = _chars(part)
        if part == "**":
            parts.append(MANY)
        elif not literal:
            parts.append(chars)
        elif kept := tuple("a" if char is ONE else char for char in chars if char is not MANY):
            parts.append(kept)
    return (anchored, tuple(parts)) if parts else None


@functools.lru_cache(maxsize=4_096)
def _chars(part: str) -> Chars:
    found: list[Any] = []
    place = 0
    while place < len(part):
        char = part[place]
        if char == "[" and (listed := _CLASS.match(part, place)):
            found.append(ONE)
            place = listed.end()
            continue
        if char == "\\" and place + 1 < len(part):
            place += 1
            found.append(part[place])
        else:
            found.append({"*": MANY, ODD: MANY, "?": ONE}.get(char, char))
        place += 1
    return tuple(found)


def _possible(path: str) -> list[Any]:
    """The names on a path, each as characters; `MANY` for folders that are not known."""
    found: list[Any] = []
    for index, part in enumerate(path.split("/")):
        if part in ("", "."):
            continue
        if part == "..":
            if not found or found[-1] in (MANY, HOME):
                found[-1:] = [MANY]  # Any folder above, and so any.
            else:
                found.pop()
        elif index == 0 and part.startswith("~"):
            found.append(HOME if part == "~" else MANY)
        elif "**" in part:
            found.append(MANY)
        elif RESULT in part or not part.replace(ODD, "").strip("."):  # It may be `..`.
            found = _after_variable(part, RESULT) if RESULT in part else [MANY]
        elif VALUE in part:
            found += _after_variable(part, VALUE)
        else:
            found += [_long_form(part) or _chars(part)] if len(part) <= PART_CHARS_MAX else [(MANY,)]
    return found


def _after_variable(part: str, sign: str) -> list[Any]:
    """The names that one with a variable in it may be: its value may have folders in it."""
    rest = part.rpartition(sign)[2]
    return [MANY, (MANY, *_chars(rest))] if rest else [MANY]


def _alternatives(path: str, *, literal: bool) -> Iterator[str]:
    """The path for each word in its braces, with a sign for each variable, and each odd sign as text and as a separator."""
    known = path.replace(VALUE, "").replace(RESULT, "").replace(ODD, "")
    waiting, done = [_VARIABLE.sub(VALUE, _COMPUTED.sub(RESULT, known))], list[str]()
    for _ in range(2 * ALTERNATIVES_MAX):
        if not waiting:
            break
        text = waiting.pop()
        found = _GROUP.search(text)
        if found is None:
            done.append(text)
            continue
        words = _words_of(found) if len(waiting) + len(done) <= ALTERNATIVES_MAX else ["*"]
        waiting += [text[: found.start()] + word + text[found.end() :] for word in words]
    left = [_GROUP.sub("*", text) for text in waiting]
    done += ["**" if _GROUP.search(text) else text for text in left]
    for text in done:
        yield from _without_odd(text, "" if literal else ODD)


def _without_odd(text: str, instead: str) -> Iterable[str]:
    """The readings of a text in which each odd sign is a separator wherever it stands, or stands for something else."""
    odd = list(filter(_is_odd, dict.fromkeys(_MAYBE_ODD.findall(text))))
    if not odd:
        return [text]
    readings = itertools.product((instead, "/"), repeat=len(odd)) if len(odd) <= SIGNS_MAX else [[instead], ["/"]]
    tables = (str.maketrans(dict(zip(odd, itertools.cycle(chosen), strict=False))) for chosen in readings)
    return dict.fromkeys(map(text.translate, tables))


def _words_of(group: re.Match[str]) -> list[str]:
    if (words := group["braces"]) is not None:
        return ["*"] if ".." in words else words.split(",")
    return group["either"].split("|") if group["sign"] in ("", "@") else ["*"]


def _long_form(part: str) -> Chars | None:
    """The names that a short one may stand for: `PLANOF~1.TXT` is that of names from `planof` on, until `.txt`."""
    found = _SHORT_NAME.fullmatch(part)
    if found is None or len(found[1]) + 1 + len(found[2]) > _SHORT_CHARS:
        return None
    start, is_cut = found[1], len(found[1]) + 1 + len(found[2]) == _SHORT_CHARS
    is_hashed = is_cut and _HASHED.fullmatch(start[2:]) is not None
    ending: Chars = (MANY, *f".{found[3]}", *((MANY,) if len(found[3]) == _ENDING_CHARS else ())) if found[3] else ()
    # Other dots than the last, and blanks, are left out of a short name, and odd characters are written as `_`.
    kept = [{"_": ONE, ODD: MANY}.get(char, char) for char in (start[:2] if is_hashed else start)]
    spaced = itertools.chain.from_iterable((DOT, char) for char in kept)
    return (*spaced, DOT, *((MANY,) if is_cut else ()), *ending)


def _may_share(pattern: tuple[bool, Chars], unsure: Sequence[Chars]) -> bool:
    """True if one of the names with wildcards may be a name of the pattern; most are not, which is found sooner."""
    return any(_names_overlap(part, name) for part in pattern[1] if part is not MANY for name in unsure)


@functools.lru_cache(maxsize=16_384)
def _names_overlap(one: Chars, other: Chars) -> bool:
    return _overlap(one, other, _are_same)


def _are_same(one: Any, other: Any) -> bool:
    return one == other or ONE in (one, other)


def _overlap(one: Sequence[Any], other: Sequence[Any], are_same: Callable[[Any, Any], bool]) -> bool:
    """True if a sequence exists that both describe; `MANY` stands for any number of items in either."""
    waiting, seen = [(0, 0)], set[tuple[int, int]]()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        if place == (len(one), len(other)):
            return True
        waiting += _next(one, other, *place, are_same)
    return False


def _next(
    one: Sequence[Any], other: Sequence[Any], i: int, j: int, are_same: Callable[[Any, Any], bool]
) -> Iterator[tuple[int, int]]:
    first, second = one[i] if i < len(one) else END, other[j] if j < len(other) else END
    if first in (MANY, DOT) or second is MANY or (second is DOT and first in _LEFT_OUT):
        yield from [(i + 1, j)] if first is not END else []
    if second in (MANY, DOT) or first is MANY or (first is DOT and second in _LEFT_OUT):
        yield from [(i, j + 1)] if second is not END else []
    if MANY not in (first, second) and END not in (first, second) and are_same(first, second):
        yield i + 1, j + 1
