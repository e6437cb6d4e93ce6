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

import tomllib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast

from callgate.errors import UsageError
from callgate.permission.hooks import Hook, hook_from
from callgate.permission.patterns import PathGlob
from callgate.permission.rules import MODES, VERDICTS, Rule, rule_from
from callgate.permission.sensitive import SENSITIVE

__all__ = ["fields_of", "read_table"]

BYTES_MAX = 1024 * 1024
_KEYS = ("default", "mode", "rules", "hooks", "sensitive", "sensitive_also")
_SUBJECT = ("tool", "server", "kind", "read_only")

DENY_ALL = Rule(verdict="deny", reason="The policy file has something that cannot be read, so nothing is allowed.")


def read_table(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a file.

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
        return tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the policy {str(path)!r} is not TOML: {error}") from error


def fields_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the policy that a table holds, with everything that could not be read in `problems`."""
    reading = _Reading()
    for key in table:
        if key not in _KEYS:
            reading.problem(f"{key!r} is not known here; known are {', '.join(_KEYS)}")
    default = reading.one_of(table, "default", (None, *VERDICTS))
    mode = reading.one_of(table, "mode", MODES)
    for place, given in enumerate(reading.list_of(table, "rules"), 1):
        reading.rule(given, place)
    hooks = [
        reading.made(hook_from, given, f"hook {place}") for place, given in enumerate(reading.list_of(table, "hooks"), 1)
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

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.problems: list[str] = []

    def problem(self, sentence: str, *, instead: Rule = DENY_ALL) -> None:
        self.problems.append(f"{sentence}; until it is fixed, {_told(instead)}")
        self.rules.append(instead)

    def rule(self, given: object, place: int) -> None:
        try:
            self.rules.append(rule_from(given))
        except (UsageError, TypeError) as error:
            self.problem(f"rule {place} cannot be read: {error}", instead=_denying(given))

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
        self.problem(f"{key} = {value!r:.80} is not one of {', '.join(repr(word) for word in known if word)}")
        return known[0]

    def list_of(self, table: Mapping[str, Any], key: str) -> list[Any]:
        value = table.get(key, [])
        if isinstance(value, list):
            return cast("list[Any]", value)
        self.problem(f"{key} is not a list")
        return []


def _denying(given: object) -> Rule:
    """A rule that denies everything that the unreadable one can have been about."""
    if isinstance(given, str):
        subject: dict[str, Any] = {"tool": given.strip().partition(" ")[2].strip()}
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


def _told(rule: Rule) -> str:
    return "everything is denied" if rule is DENY_ALL else f"it stands as: {rule.sentence}"
