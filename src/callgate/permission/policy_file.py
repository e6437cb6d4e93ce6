"""A TOML file -> the fields of a policy. Whatever in it cannot be read makes the policy stricter, never laxer, and is told.

default = "ask"                      # optional, as are all of these
mode = "default"
sensitive_also = ["*.sqlite"]
rules = ["deny delete_*"]            # texts here, or tables below

[[rules]]
verdict = "allow"
tool = "write_file"
paths = ["docs/**"]

[[hooks]]
when = "before"
tool = "run_*"
command = ["./check-command"]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast

from callgate.config.lines import Entry, entries_of, toml_of
from callgate.errors import UsageError
from callgate.permission.hooks import Hook, hook_from
from callgate.permission.patterns import PathGlob
from callgate.permission.rules import MODES, VERDICTS, Rule, rule_from
from callgate.permission.sensitive import SENSITIVE

__all__ = ["fields_of", "read_table"]

BYTES_MAX = 1024 * 1024
LOCATED_MAX = 1_000
"""Problems whose line is looked for; a file with more of them is none."""
_KEYS = ("default", "mode", "rules", "hooks", "sensitive", "sensitive_also")
_SUBJECT = ("tool", "server", "kind", "read_only")

DENY_ALL = Rule(verdict="deny", reason="The policy file has something that cannot be read, so nothing is allowed.")


def read_table(path: str | PathLike[str]) -> tuple[dict[str, Any], Places]:
    """Read a file; the table in it, and the lines of its keys and rules.

    Raises:
        UsageError: there is no such file, it is too large, or it is not TOML.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"the policy {str(path)!r} cannot be read: {error.strerror or error}") from error
    if len(text) > BYTES_MAX:
        raise UsageError(f"the policy {str(path)!r} has {len(text)} bytes; at most {BYTES_MAX} are read")
    try:
        words = text.decode("utf-8")
        return toml_of(words), Places(words, str(path))
    except ValueError as error:
        raise UsageError(f"the policy {str(path)!r} is not TOML: {error}") from error


class Places:
    """The places in a policy file by what stands there, as `file:line: `; without a file there are none."""

    def __init__(self, text: str = "", path: str = "") -> None:
        self._path = path
        self._lines = text.split("\n")
        self._entries: dict[str, list[Entry]] = {}
        for entry in entries_of(text):
            self._entries.setdefault(entry.key[0] if len(entry.key) == 1 else "", []).append(entry)
        self._located = 0

    def of(self, key: str, index: int = 1, given: object = None) -> str:
        """The place of a key, or of the value that comes as number `index` in its list."""
        found = self._entries.get(key, [])
        self._located += 1
        if not found or self._located > LOCATED_MAX:
            return f"{self._path}: " if self._path else ""
        entry = found[min(index, len(found)) - 1]
        within = range(entry.first, entry.last + 1)
        spoken = (number for number in within if isinstance(given, str) and given in self._lines[number])
        return f"{self._path}:{next(spoken, entry.first) + 1}: "


def fields_of(table: Mapping[str, Any], places: Places | None = None) -> dict[str, Any]:
    """The fields of the policy that a table holds, with everything that could not be read in `problems`."""
    reading = _Reading(places or Places())
    for key in table:
        if key not in _KEYS:
            reading.problem(f"{reading.places.of(key)}{key!r} is not known here; known are {', '.join(_KEYS)}")
    default = reading.one_of(table, "default", (None, *VERDICTS))
    mode = reading.one_of(table, "mode", MODES)
    for place, given in enumerate(reading.list_of(table, "rules"), 1):
        reading.rule(given, place)
    hooks = [
        reading.made(hook_from, given, f"{reading.places.of('hooks', place)}hook {place}")
        for place, given in enumerate(reading.list_of(table, "hooks"), 1)
    ]
    replaced = "sensitive" in table
    sensitive = [*reading.list_of(table, "sensitive")] if replaced else [*SENSITIVE]
    sensitive += reading.list_of(table, "sensitive_also")
    patterns = [reading.made(PathGlob, given, "a sensitive path") for given in sensitive]
    return {
        "default": default,
        "mode": mode,
        "rules": tuple(reading.rules),
        "hooks": tuple(hook for hook in hooks if isinstance(hook, Hook)),
        "sensitive": tuple(glob.pattern for glob in patterns if isinstance(glob, PathGlob)),
        "problems": tuple(reading.problems),
    }


class _Reading:
    """The parts read so far, and the problems met."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.rules: list[Rule] = []
        self.problems: list[str] = []

    def problem(self, sentence: str, *, instead: Rule = DENY_ALL) -> None:
        self.problems.append(f"{sentence}; until it is fixed, {_describe(instead)}")
        self.rules.append(instead)

    def rule(self, given: object, place: int) -> None:
        try:
            self.rules.append(rule_from(given))
        except (UsageError, TypeError) as error:
            where = self.places.of("rules", place, given)
            self.problem(f"{where}rule {place} cannot be read: {error}", instead=_denying(given))

    def made(self, make: Callable[[Any], Any], given: object, what: str) -> Any:
        try:
            return make(given)
        except (UsageError, TypeError) as error:
            self.problem(f"{what} cannot be read: {error}")
            return None

    def one_of(self, table: Mapping[str, Any], key: str, known: tuple[Any, ...]) -> Any:
        value = table.get(key, known[0])
        if isinstance(value, str | None) and value in known:
            return value
        self.problem(
            f"{self.places.of(key)}{key} = {value!r:.80} is not one of {', '.join(repr(word) for word in known if word)}"
        )
        return known[0]

    def list_of(self, table: Mapping[str, Any], key: str) -> list[Any]:
        value = table.get(key, [])
        if isinstance(value, list):
            return cast("list[Any]", value)
        self.problem(f"{self.places.of(key)}{key} is not a list")
        return []


def _denying(given: object) -> Rule:
    """A rule that denies everything that the unreadable one can have been about."""
    if isinstance(given, str):
        # Reversed words still say what they are about; anything else may be about anything.
        words = given.split()
        others = [word for word in words if word not in VERDICTS]
        subject: dict[str, Any] = {"tool": others[0]} if len(words) == 2 and len(others) == 1 else {}
    elif isinstance(given, Mapping):
        table = cast("Mapping[str, Any]", given)
        # A key that is not known may be a misspelled subject, so then nothing is known of what the rule is about.
        is_known = all(key in Rule.__dataclass_fields__ for key in table)
        subject = {key: table[key] for key in _SUBJECT if key in table and is_known}
    else:
        subject = {}
    if not subject:
        return DENY_ALL
    try:
        return Rule(verdict="deny", reason="The rule for it in the policy file cannot be read.", **subject)
    except (UsageError, TypeError):
        return DENY_ALL


def _describe(rule: Rule) -> str:
    return "everything is denied" if rule is DENY_ALL else f"it stands as: {rule.sentence}"
