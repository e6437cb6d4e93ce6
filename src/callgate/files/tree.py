"""The files below a folder, in order, by descriptors: what `list_files` lists and `search_files` looks into.

A root, the names of a folder and a pattern come in; paths come out one by one, with the descriptor of the folder each lies
in. Links are not followed, ignored folders are not entered, and what is left out is counted, so that it can be told.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from callgate.errors import ToolError
from callgate.files.beneath import ALWAYS, DIRECTORY, NOFOLLOW, let_go, resolve_links
from callgate.files.bounds import Bounds
from callgate.files.globs import Glob, GlobState, IgnoreRules, ignore_rules
from callgate.files.paths import is_speakable, shown
from callgate.files.root import Root

__all__ = ["Found", "Walk", "is_temporary"]

IGNORE_FILES = (".gitignore", ".geminiignore")
IGNORE_BYTES_MAX = 256 * 1024
TEMPORARY = (".callgate-", ".tmp")
"""Prefix and suffix of the files of unfinished writes."""

EXAMPLES = 5
"""Maximum number of omitted entries that are named."""


@dataclass(frozen=True, slots=True)
class Found:
    """One file: its path as it is shown, its own name and the folder it lies in."""

    path: str
    name: str
    folder: int
    """The descriptor of the folder. It is closed when the walk goes on."""


@dataclass(slots=True)
class _Omitted:
    """Things of one kind that were left out."""

    count: int = 0
    examples: list[str] = field(default_factory=list[str])

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(path)


@dataclass(slots=True)
class Walk:
    """One walk through the files below a folder."""

    root: Root
    bounds: Bounds
    glob: Glob | None = None
    ignore: bool = True
    links: bool = False
    after: str = ""
    """Paths up to this one are passed over."""
    is_cancelled: Callable[[], bool] = bool
    _left: dict[str, _Omitted] = field(default_factory=dict[str, _Omitted])
    _visits: int = 0
    _hidden: int = 0
    _hidden_as: str = ""

    def files(self, names: Sequence[str], folder: int) -> Iterator[Found]:
        """The files in the folder that is open as `folder`, in the order of their paths.

        Raises:
            ToolError: the call was given up.
        """
        rules = self._rules_above(names) if self.ignore else []
        state = self.glob.start() if self.glob else ()
        yield from self._in_folder(tuple(names), os.dup(folder), state, rules)

    @property
    def notes(self) -> list[str]:
        """The entries that were left out, as sentences."""
        found: list[str] = []
        for why, left in self._left.items():
            named = ", ".join(shown(example) for example in left.examples)
            more = f" and {left.count - len(left.examples)} more" if left.count > len(left.examples) else ""
            found.append(f"{why}: {named}{more}.")
        if self._hidden:
            count = "1 file was" if self._hidden == 1 else f"{self._hidden} files were"
            found.append(f"{count} {self._hidden_as}: secrets, or against a rule. Give the path of one to ask for it.")
        return found

    def hide(self, what: str) -> None:
        """Count a file that the policy keeps out of sight; its name is not told."""
        self._hidden += 1
        self._hidden_as = what

    def leave_out(self, why: str, path: str) -> None:
        """Count something that is not given."""
        self._left.setdefault(why, _Omitted()).add(path)

    def _in_folder(self, names: tuple[str, ...], folder: int, state: GlobState, rules: list[IgnoreRules]) -> Iterator[Found]:
        try:
            if self.ignore:
                rules = [*rules, *self._rules_here(names, folder)]
            prefix = "".join(f"{name}/" for name in names)
            ends = None if self.glob is None else self.glob.ends(state)
            for key, name in self._sorted_entries(prefix, folder, ends):
                is_folder = key is not name
                if rules and self._is_ignored(name, rules, folder=is_folder):
                    continue
                if is_folder:
                    yield from self._below((*names, name), folder, state, rules)
                elif prefix + name > self.after:
                    yield Found(prefix + name, name, folder)
        finally:
            let_go(folder)

    def _below(self, names: tuple[str, ...], above: int, state: GlobState, rules: list[IgnoreRules]) -> Iterator[Found]:
        prefix = "/".join(names) + "/"
        if self.after >= prefix and not self.after.startswith(prefix):
            return
        state = self.glob.enter(state, names[-1]) if self.glob else ()
        if self.glob and not self.glob.can_match(state):
            return
        if len(names) > self.bounds.depth:
            self.leave_out(f"Not entered, deeper than {self.bounds.depth} levels", prefix)
            return
        try:
            folder = os.open(names[-1], os.O_RDONLY | DIRECTORY | NOFOLLOW | ALWAYS, dir_fd=above)
        except OSError:
            self.leave_out("Folders that could not be entered", prefix)
            return
        if self.root.guards and self.root.is_closed(os.fstat(folder)):
            let_go(folder)
            return
        yield from self._in_folder(names, folder, state, [rule.enter(names[-1]) for rule in rules])

    def _sorted_entries(self, prefix: str, folder: int, ends: list[re.Pattern[str]] | None) -> list[tuple[str, str]]:
        """(sort key, name) of folders, and of what fits the end of the pattern.

        A folder sorts as if its name ended with `/`, so that whole paths come in order.
        """
        found: list[tuple[str, str]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._visits += 1
                if self._visits > self.bounds.visits:
                    self.leave_out(f"Not looked at, beyond {self.bounds.visits} names; give a narrower path", prefix)
                    break
                if self._visits % 256 == 0 and self.is_cancelled():
                    raise ToolError("The call was given up while it looked through the folders.")
                name = entry.name
                if ends is not None and not any(end.fullmatch(name) for end in ends) and not _is_folder(entry):
                    continue
                key = self._key(prefix, entry)
                if key:
                    found.append((key, name))
        found.sort()
        return found

    def _key(self, prefix: str, entry: os.DirEntry[str]) -> str:
        """The sort key of an entry: its name if it is a file, with a `/` if it is a folder; nothing if it is left out."""
        name = entry.name
        if entry.is_dir(follow_symlinks=False):
            key = "" if name == ".git" and self.ignore else name + "/"
        elif entry.is_file(follow_symlinks=False):
            key = "" if is_temporary(name) else name
        elif entry.is_symlink():
            key = name if self.links and self._leads_to_file(prefix + name) else ""
            if not key:
                self.leave_out("Symbolic links, which are not followed", prefix + name)
        else:
            key = ""
            self.leave_out("Pipes, sockets and devices", prefix + name)
        if key and not is_speakable(name):
            self.leave_out("Names that cannot be written in a path", prefix + name)
            return ""
        return key

    def _leads_to_file(self, path: str) -> bool:
        with contextlib.suppress(OSError):
            descriptor = self.root.open_raw(resolve_links(self.root.descriptor, path.split("/")), os.O_RDONLY)
            try:
                return stat.S_ISREG(os.fstat(descriptor).st_mode)
            finally:
                let_go(descriptor)
        return False

    # Ignore files --------------------------------------------------------------------------------------------------------

    @staticmethod
    def _is_ignored(name: str, rules: list[IgnoreRules], *, folder: bool) -> bool:
        for level in reversed(rules):
            verdict = level.verdict(name, folder=folder)
            if verdict is not None:
                return verdict == "ignored"
        return False

    def _rules_above(self, names: Sequence[str]) -> list[IgnoreRules]:
        """The rules of the folders above the one that is listed, seen from there. A folder that is named is listed even if
        it is ignored itself."""
        rules: list[IgnoreRules] = []
        for count, name in enumerate(names):
            with contextlib.suppress(OSError):
                folder = self.root.open_raw(names[:count], os.O_RDONLY | DIRECTORY)
                try:
                    rules += self._rules_here(names[:count], folder)
                finally:
                    let_go(folder)
            rules = [rule.enter(name) for rule in rules]
        return rules

    def _rules_here(self, names: Sequence[str], folder: int) -> list[IgnoreRules]:
        found: list[IgnoreRules] = []
        for file in IGNORE_FILES:
            try:
                descriptor = os.open(file, os.O_RDONLY | NOFOLLOW | ALWAYS, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError:
                self.leave_out("Ignore files that could not be read", "/".join((*names, file)))
                continue
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    continue
                data = read_at_most(descriptor, IGNORE_BYTES_MAX)
            finally:
                let_go(descriptor)
            rules, left_out = ignore_rules(
                data.decode("utf-8", "replace").removeprefix("\ufeff"), chars_max=self.bounds.pattern_chars
            )
            if left_out or len(data) == IGNORE_BYTES_MAX:
                self.leave_out("Ignore files that are too long and were not read whole", "/".join((*names, file)))
            found.append(rules)
        return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def is_temporary(name: str) -> bool:
    """True if a name is that of a file which a write has not finished with."""
    return name.startswith(TEMPORARY[0]) and name.endswith(TEMPORARY[1])


def read_at_most(descriptor: int, size: int) -> bytes:
    """The first bytes of a file, whatever size it said it has."""
    pieces: list[bytes] = []
    while size > 0 and (piece := os.read(descriptor, min(size, 64 * 1024 if not pieces else 1 << 20))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
