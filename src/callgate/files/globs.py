"""Patterns of names -> answers, in linear time: globs for listing, and the rules of ignore files.

Pure: text in, yes or no out. No pattern can make this slow: each name is tested by expressions that never
go back (`(?>...)`), and folders are matched by sets of positions, never by trying all ways.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from callgate.errors import ToolError
from callgate.files.paths import shown

__all__ = ["Glob", "GlobState", "IgnoreRules", "glob_of", "ignore_rules"]

ALTERNATIVES_MAX = 64
"""Maximum number of patterns that one pattern with braces may stand for."""

_ANY = "**"  # A segment that stands for any number of folders.


def _segment(text: str) -> re.Pattern[str]:
    """One name's pattern as an expression that never goes back."""
    chunks, current, index = list[str](), "", 0
    while index < len(text):
        character = text[index]
        index += 1
        if character == "*":
            chunks.append(current)
            current = ""
        elif character == "?":
            current += "."
        elif character == "[":
            group, index = _group(text, index)
            current += group
        elif character == "\\" and index < len(text):
            current += re.escape(text[index])
            index += 1
        else:
            current += re.escape(character)
    if not chunks:
        return re.compile(f"(?s:{current})")
    first, *middle = chunks
    # The first place where a chunk fits is as good as any later one, so it is never given up again.
    jumps = "".join(f"(?>.*?{chunk})" for chunk in middle if chunk)
    return re.compile(f"(?s:{first}{jumps}.*{current})")


def _group(text: str, index: int) -> tuple[str, int]:
    """`[abc]`, `[a-z]`, `[!a]` from after the bracket; a bracket that is never closed is a plain character."""
    start = index + 1 if text[index : index + 1] in ("!", "^") else index
    end = text.find("]", start + 1)
    if end < 0:
        return r"\[", index
    body, negated = text[start:end], start != index
    ranges = "".join(_ranges(body))
    if not ranges:
        return ("." if negated else "(?!)"), end + 1
    return f"[{'^' if negated else ''}{ranges}]", end + 1


def _ranges(body: str) -> Iterator[str]:
    index = 0
    while index < len(body):
        low = body[index]
        if body[index + 1 : index + 2] == "-" and index + 2 < len(body):
            high = body[index + 2]
            if low <= high:
                yield f"{re.escape(low)}-{re.escape(high)}"
            index += 3
        else:
            yield re.escape(low)
            index += 1


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> re.Pattern[str]:
    return _segment(text)


# Globs -------------------------------------------------------------------------------------------------------------------

GlobState = tuple[frozenset[int], ...]
"""Progress of each alternative of a pattern on the way to a folder."""


class Glob:
    """A pattern that is followed folder by folder, so that folders where nothing can match are not entered."""

    def __init__(self, alternatives: Sequence[Sequence[str]]) -> None:
        self._alternatives = [
            [None if segment == _ANY else _compiled(segment) for segment in segments] for segments in alternatives
        ]

    def start(self) -> GlobState:
        """At the folder that the pattern is relative to."""
        return tuple(self._open(segments, {0}) for segments in self._alternatives)

    def enter(self, state: GlobState, name: str) -> GlobState:
        """After entering the folder `name`."""
        return tuple(
            self._open(segments, self._step(segments, positions, name))
            for segments, positions in zip(self._alternatives, state, strict=True)
        )

    def ends(self, state: GlobState) -> list[re.Pattern[str]]:
        """The patterns, one of which the name of a file in the folder of `state` must match."""
        # A pattern never ends with `**`, so only its last segment can end it.
        return [
            last
            for segments, positions in zip(self._alternatives, state, strict=True)
            if len(segments) - 1 in positions and (last := segments[-1]) is not None
        ]

    def matches(self, state: GlobState, name: str) -> bool:
        """True if the file `name` in the folder of `state` is meant."""
        return any(end.fullmatch(name) for end in self.ends(state))

    @staticmethod
    def can_match(state: GlobState) -> bool:
        """True if anything below the folder of `state` could still be meant."""
        return any(state)

    @staticmethod
    def _step(segments: Sequence[re.Pattern[str] | None], positions: frozenset[int], name: str) -> set[int]:
        found: set[int] = set()
        for position in positions:
            if position < len(segments):
                segment = segments[position]
                if segment is None:
                    found.add(position)
                elif segment.fullmatch(name):
                    found.add(position + 1)
        return found

    @staticmethod
    def _open(segments: Sequence[re.Pattern[str] | None], positions: set[int]) -> frozenset[int]:
        """Positions that are reached without another name: `**` may stand for no folder at all."""
        todo, reached = list(positions), set(positions)
        while todo:
            position = todo.pop()
            if position < len(segments) and segments[position] is None and position + 1 not in reached:
                reached.add(position + 1)
                todo.append(position + 1)
        return frozenset(reached)


def glob_of(pattern: str, *, chars_max: int) -> Glob:
    """A pattern as a model wrote it.

    Without `/` it is about names at any depth. `**` stands for any number of folders, `{a,b}` for either.

    Raises:
        ToolError: the pattern leads elsewhere, or is too long.
    """
    if len(pattern) > chars_max:
        raise ToolError(f"The pattern has {len(pattern)} characters; at most {chars_max} are possible.")
    if "\0" in pattern or "\\" in pattern:
        raise ToolError(f"The pattern {shown(pattern)} holds a NUL or a backslash; write '/' between folders.")
    if pattern.startswith("/"):
        raise ToolError(f"The pattern {shown(pattern)} is absolute; write it relative to the path, such as 'src/**/*.py'.")
    alternatives: list[list[str]] = []
    for text in _expanded(pattern):
        segments = [segment for segment in text.split("/") if segment not in ("", ".")]
        if ".." in segments:
            raise ToolError(f"The pattern {shown(pattern)} holds '..'; patterns look below the path only.")
        if text.endswith("/"):
            segments.append(_ANY)
        if "/" not in text.removeprefix("./").rstrip("/"):
            segments.insert(0, _ANY)
        if segments[-1:] == [_ANY]:
            segments.append("*")  # A pattern that ends with folders is about the files in them.
        alternatives.append(_without_repeats(segments))
    return Glob(alternatives)


def _without_repeats(segments: Sequence[str]) -> list[str]:
    return [segment for index, segment in enumerate(segments) if segment != _ANY or segments[index - 1 : index] != [_ANY]]


def _expanded(pattern: str) -> list[str]:
    """The patterns that one with braces stands for."""
    done, todo = list[str](), [pattern]
    while todo:
        text = todo.pop()
        found = _braces(text)
        if found is None:
            done.append(text)
            continue
        head, choices, tail = found
        todo += [head + choice + tail for choice in choices]
        if len(done) + len(todo) > ALTERNATIVES_MAX:
            raise ToolError(
                f"The pattern {shown(pattern)} stands for more than {ALTERNATIVES_MAX} patterns; write a simpler one."
            )
    return done


def _braces(text: str) -> tuple[str, list[str], str] | None:
    """The text before, in and after the first braces with alternatives."""
    depth, start, commas = 0, -1, list[int]()
    for index, character in enumerate(text):
        if character == "{":
            if depth == 0:
                start, commas = index, []
            depth += 1
        elif character == "," and depth == 1:
            commas.append(index)
        elif character == "}" and depth:
            depth -= 1
            if depth == 0 and commas:
                ends = [start, *commas, index]
                return text[:start], [text[a + 1 : b] for a, b in itertools.pairwise(ends)], text[index + 1 :]
    return None


# Ignore files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line about paths, or several lines after one another about names alone, tested as one."""

    test: Glob | re.Pattern[str]
    negated: bool
    folders_only: bool


class IgnoreRules:
    """The rules of one ignore file, seen from one folder: the file's own, or one below it.

    The last rule that fits decides. Nothing below an ignored folder is looked at, so nothing there can be taken back.
    """

    __slots__ = ("_rules",)

    def __init__(self, rules: Sequence[tuple[_Rule, GlobState]]) -> None:
        self._rules = rules

    def enter(self, name: str) -> IgnoreRules:
        """The same rules, seen from the folder `name` in here."""
        below: list[tuple[_Rule, GlobState]] = []
        for rule, state in self._rules:
            if isinstance(rule.test, Glob):
                after = rule.test.enter(state, name)
                if Glob.can_match(after):
                    below.append((rule, after))
            else:
                below.append((rule, state))
        return IgnoreRules(below)

    def verdict(self, name: str, *, folder: bool) -> Literal["ignored", "kept"] | None:
        """The verdict for an entry of this folder; None if no rule matches."""
        for rule, state in self._rules:
            if rule.folders_only and not folder:
                continue
            fits = rule.test.matches(state, name) if isinstance(rule.test, Glob) else rule.test.fullmatch(name)
            if fits:
                return "kept" if rule.negated else "ignored"
        return None


def ignore_rules(text: str, *, chars_max: int, rules_max: int = 2_000) -> tuple[IgnoreRules, int]:
    """The rules of an ignore file, and how many of its lines were not taken because they, or all of them, are too long."""
    parsed: list[tuple[list[str], bool, bool]] = []
    left_out = 0
    for line in text.split("\n"):
        rule = _parsed_rule(line)
        if rule is None:
            continue
        if len(line) > chars_max or len(parsed) >= rules_max:
            left_out += 1
            continue
        parsed.append(rule)
    rules: list[tuple[_Rule, GlobState]] = []
    for (about_names, negated, folders_only), group in itertools.groupby(parsed, lambda r: (_is_about_names(r[0]), *r[1:])):
        segments = [rule[0] for rule in group]
        if about_names:
            test = re.compile("|".join(_compiled(names[-1]).pattern for names in segments))
            rules.append((_Rule(test, negated, folders_only), ()))
        else:
            for names in segments:
                glob = Glob([names])
                rules.append((_Rule(glob, negated, folders_only), glob.start()))
    rules.reverse()
    return IgnoreRules(rules), left_out


def _is_about_names(segments: Sequence[str]) -> bool:
    return len(segments) == 2 and segments[0] == _ANY and segments[1] != _ANY


def _parsed_rule(line: str) -> tuple[list[str], bool, bool] | None:
    """The segments of a line, whether it takes back, and whether it is about folders only."""
    text = line.rstrip("\r")
    if text.startswith("#"):
        return None
    # Spaces at the end count only behind a backslash.
    bare = text.rstrip(" ")
    text = f"{bare} " if bare.endswith("\\") and len(bare) < len(text) else bare
    negated = text.startswith("!")
    text = text.removeprefix("!")
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    segments = text.removeprefix("/").split("/")
    if "" in segments:
        return None  # Nothing at all, or `a//b`, which fits no path.
    if "/" not in text:
        segments.insert(0, _ANY)
    if segments[-1] == _ANY:
        segments.append("*")  # `a/**` is about everything inside, and not about `a` itself.
    return _without_repeats(segments), negated, folders_only
