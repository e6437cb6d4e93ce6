"""Files, environment and flags -> `Settings`: the strongest source wins, and each value knows where it came from.

From strong to weak: flag, environment, project's file, user's file, default. A project's file is read only in a folder that
the user trusts, and can never weaken what the user decided: its rules may ask and deny but not allow, its limits may lower
but not raise, and keys of accounts, stores and logs are the user's alone. What it says beyond that is left out, with a
notice. A key or a value that is wrong is an error with its file and line.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from callgate.config.known_secrets import remember_secrets, remember_secrets_in
from callgate.config.lines import KeyLines, toml_of
from callgate.config.places import config_file, project_file
from callgate.config.table import SETTINGS, Setting, closest, nearest
from callgate.config.trust_store import is_trusted, trusted_folders
from callgate.config.values import fitting, masked, parsed_text, placed
from callgate.errors import UsageError
from callgate.types import JsonObject

__all__ = ["ConfigError", "Settings", "Source", "Value", "load_settings", "masked", "parsed_text"]

BYTES_MAX = 1024 * 1024
_PROBLEMS_MAX = 50

Source: TypeAlias = Literal["flag", "environment", "project", "user", "default"]
SOURCES: tuple[Source, ...] = ("flag", "environment", "project", "user", "default")
"""From strong to weak."""


class ConfigError(UsageError):
    """Settings that cannot be used. `problems` lists all of them, each with its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Value:
    """A value and where it came from."""

    value: Any
    """The value, of the kind that its setting takes."""
    source: Source = "default"
    """The layer that it came from."""
    where: str = ""
    """The flag, the variable, or the file and its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, with where it came from."""

    values: Mapping[str, Value]
    """Key -> value."""
    user_file: Path
    """The user's file, which need not exist."""
    project_file: Path | None = None
    """The project's file, if there is one."""
    is_trusted: bool = False
    """True if the project's file was read."""
    project_rules: tuple[Any, ...] = ()
    """The rules among `policy.rules` that the project's file adds; they may only make decisions stricter."""
    notices: tuple[str, ...] = ()
    """Notices for people: a file that was not read, a value in it that has no effect."""

    def __getitem__(self, key: str) -> Any:
        """The value of a setting."""
        return self.values[key].value

    def is_set(self, key: str) -> bool:
        """True if it was set."""
        return self.values[key].source != "default"

    def under(self, table: str) -> JsonObject:
        """The settings with a value in a table, by their names in it."""
        prefix = f"{table}."
        return {key.removeprefix(prefix): self[key] for key in self.values if key.startswith(prefix) and self.is_set(key)}

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment as a model should see it: with what was given elsewhere, under its usual names."""
        seen = dict(env)
        for key, value in self.values.items():
            names = SETTINGS[key].env
            if names and not names[0].startswith("CALLGATE_") and value.source != "default":
                seen[names[0]] = str(value.value).lower() if isinstance(value.value, bool) else str(value.value)
        return seen


def load_settings(
    env: Mapping[str, str], *, folder: Path | None = None, flags: Mapping[str, tuple[Any, str]] | None = None
) -> Settings:
    """The settings that hold here.

    Args:
        env: The environment.
        folder: Where the project is looked for; the working folder unless it is given.
        flags: Key -> its value, and the flag that gave it.

    Raises:
        ConfigError: something in a file, a variable or a flag is wrong.
    """
    reader = _Reader()
    own = config_file(env)
    if env.get("CALLGATE_CONFIG") and (not own.exists() or own.is_dir()):
        problem = f"{own} is a folder" if own.is_dir() else f"there is no file {own}"
        raise ConfigError([f"CALLGATE_CONFIG={env['CALLGATE_CONFIG']!r}: {problem}; correct or unset the variable"])
    user = reader.file(own, "user") if own.is_file() else {}
    project = project_file(folder or Path.cwd())
    trusted = project is not None and is_trusted(project.parent, env)
    theirs = reader.file(project, "project") if project is not None and trusted else {}
    if project is not None and not trusted:
        was = os.path.realpath(project.parent) in trusted_folders(env)
        why = "it, or a file that it names, was changed since you trusted it" if was else "its folder is not trusted"
        reader.notices.append(f"{project} was not read, because {why}: look at it, then run `callgate config trust`")
    given = {"user": user, "project": theirs, "environment": reader.environment(env), "flag": reader.flags(flags or {})}
    values = {
        key: _settled(setting, [(source, given[source][key]) for source in reversed(SOURCES[:-1]) if key in given[source]],
                      reader.notices)
        for key, setting in SETTINGS.items()
    }  # fmt: skip
    if reader.problems:
        raise ConfigError(reader.problems)
    _warn_of_open_secrets(own, user, reader.notices)
    _remember_secrets(values)
    return Settings(
        values=values,
        user_file=own,
        project_file=project,
        is_trusted=trusted,
        project_rules=tuple(theirs["policy.rules"].value) if "policy.rules" in theirs else (),
        notices=tuple(reader.notices),
    )


def _remember_secrets(values: Mapping[str, Value]) -> None:
    """Make the secrets of the settings known to everything that redacts."""
    for key, found in values.items():
        if SETTINGS[key].secret and isinstance(found.value, str):
            remember_secrets(found.value)
        else:
            remember_secrets_in(found.value)


def _warn_of_open_secrets(path: Path, user: Mapping[str, Value], notices: list[str]) -> None:
    if any(SETTINGS[key].secret for key in user) and os.name == "posix" and path.stat().st_mode & 0o077:
        notices.append(f"{path} holds a key and can be read by others on this machine: run `chmod 600 {path}`")


# Sources -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reader:
    """Read one source after another, and collects what is wrong with them."""

    problems: list[str] = field(default_factory=list[str])
    notices: list[str] = field(default_factory=list[str])

    def file(self, path: Path, source: Source) -> dict[str, Value]:
        """Read a file."""
        try:
            raw = path.read_bytes()
            if len(raw) > BYTES_MAX:
                self.problems.append(f"{path} has {len(raw)} bytes; at most {BYTES_MAX} are read")
                return {}
            text = raw.decode("utf-8")
            table = toml_of(text)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            self.problems.append(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")
            return {}
        found: dict[str, Value] = {}
        lines, allowed = KeyLines(text), len(self.problems) + _PROBLEMS_MAX
        for key, value in _flat(table):
            if len(self.problems) >= allowed:
                self.problems.append(f"{path} has more that is wrong; correct this first")
                break
            where = f"{path}:{lines.line_of(key)}"
            if key not in SETTINGS:
                self.problems.append(f"{where}: {key!r} is not a setting{nearest(key, SETTINGS)}")
                continue
            fitted, problem = fitting(SETTINGS[key], value)
            if problem is not None:
                self.problems.append(f"{where}: {key} {problem}")
                continue
            found[key] = Value(placed(SETTINGS[key], fitted, path.parent), source, where)
        return found if source == "user" else self._of_project(found, path.parent)

    def _of_project(self, found: dict[str, Value], folder: Path) -> dict[str, Value]:
        """The part of a project's file that may take effect."""
        kept: dict[str, Value] = {}
        for key, value in found.items():
            refused: str | None = None
            if SETTINGS[key].project == "no":
                refused = "a project's file cannot set it: set it in your own"
            elif key == "root" and not _is_inside(value.value, folder):
                refused = "it leads out of the project's folder"
            if refused is not None:
                self.notices.append(f"{value.where}: {key} does not count, because {refused}")
            else:
                kept[key] = _weakened(key, value, self.notices)
        return kept

    def environment(self, env: Mapping[str, str]) -> dict[str, Value]:
        """Read the environment."""
        found: dict[str, Value] = {}
        for setting in SETTINGS.values():
            name = next((name for name in setting.variables if env.get(name, "").strip()), None)
            if name is not None:
                self._take(found, setting, parsed_text(setting, env[name]), "environment", name)
        names = {name for setting in SETTINGS.values() for name in setting.variables}
        for name in env:
            # Tests and other programs may have variables of their own, so only what looks like a slip is worth a word.
            if name.startswith("CALLGATE_") and name not in names:
                near = closest(name, names, cutoff=0.9)
                if near is not None:
                    self.notices.append(f"the environment has {name}, which is no setting: did you mean {near}?")
        return found

    def flags(self, flags: Mapping[str, tuple[Any, str]]) -> dict[str, Value]:
        """Read the command line."""
        found: dict[str, Value] = {}
        for key, (value, flag) in flags.items():
            if key not in SETTINGS:
                self.problems.append(f"{flag}: {key!r} is not a setting{nearest(key, SETTINGS)}")
            elif SETTINGS[key].secret:
                self.problems.append(f"{flag}: {key} is a secret, and others can see a command line: use the environment")
            else:
                self._take(found, SETTINGS[key], value, "flag", flag)
        return found

    def _take(self, found: dict[str, Value], setting: Setting, value: Any, source: Source, where: str) -> None:
        fitted, problem = fitting(setting, value)
        if problem is None:
            found[setting.key] = Value(fitted, source, where)
        else:
            self.problems.append(f"{where}: {setting.key} {problem}")


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values; a table is entered as long as settings lie below it."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in SETTINGS and any(known.startswith(f"{key}.") for known in SETTINGS):
            yield from _flat(cast("JsonObject", value), f"{key}.")
        else:
            yield key, value


# Which of several counts -------------------------------------------------------------------------------------------------


def _settled(setting: Setting, given: Sequence[tuple[str, Value]], notices: list[str]) -> Value:
    """The value that counts among those that were given, from the weakest source to the strongest."""
    value = Value(setting.default)
    for source, one in given:
        if setting.project == "adds":
            value = _added(setting, value, one, notices)
        elif setting.kind == "table" and isinstance(value.value, dict):
            merged = {**cast("JsonObject", value.value), **one.value}
            value = Value(merged, one.source, f"{value.where}, {one.where}")
        elif source == "project" and (refused := _laxer(setting, value, one)):
            notices.append(f"{one.where}: {setting.key} does not count, because {refused}")
        else:
            value = one
    return value


def _laxer(setting: Setting, before: Value, one: Value) -> str | None:
    """Reason why a project's value does not count beside the user's; None if it does."""
    if setting.project != "stricter":
        return None
    if setting.strictness:
        rank = setting.strictness.index
        if rank(one.value) > rank(before.value):
            return f"a project's file may only be stricter than {before.value or 'the default'!r}"
        return None
    if before.value is not None and one.value > before.value:
        return f"a project's file may only lower your limit of {before.value}"
    return None


def _added(setting: Setting, before: Value, one: Value, notices: list[str]) -> Value:
    """Combine two values."""
    where = f"{before.where}, {one.where}" if before.where else one.where
    if setting.kind != "table":
        return Value((*before.value, *one.value), one.source, where)
    known: JsonObject = before.value or {}
    taken = [name for name in one.value if name in known and one.source == "project"]
    notices += [f"{one.where}: {setting.key}.{name} does not count, because you have one of that name" for name in taken]
    return Value(known | {name: row for name, row in one.value.items() if name not in taken}, one.source, where)


def _weakened(key: str, value: Value, notices: list[str]) -> Value:
    """A project's value without what would allow something."""
    trimmed = _TRIMS[key](value.value) if key in _TRIMS else (value.value, None)
    if trimmed[1] is not None:
        notices.append(f"{value.where}: {trimmed[1]}")
    return Value(trimmed[0], value.source, value.where)


def _without_allowing(rules: Sequence[Any]) -> tuple[Any, str | None]:
    kept = tuple(rule for rule in rules if not _allows(rule))
    told = None if len(kept) == len(rules) else "rules of a project's file may ask and deny; those that allow do not count"
    return kept, told


def _allows(rule: Any) -> bool:
    if isinstance(rule, str):
        return rule.split(maxsplit=1)[:1] == ["allow"]
    return isinstance(rule, dict) and cast("JsonObject", rule).get("verdict") == "allow"


def _without_trust(servers: Mapping[str, Any]) -> tuple[Any, str | None]:
    trusting = [name for name, row in servers.items() if isinstance(row, dict) and cast("JsonObject", row).get("trust")]
    kept = {name: {**row, "trust": False} if name in trusting else row for name, row in servers.items()}
    return kept, f"'trust' of {', '.join(map(repr, trusting))} does not count in a project's file" if trusting else None


_TRIMS: dict[str, Callable[[Any], tuple[Any, str | None]]] = {
    "policy.rules": _without_allowing,
    "mcp.servers": _without_trust,
}


def _is_inside(path: str, folder: Path) -> bool:
    root = os.path.realpath(folder)
    return os.path.commonpath([root, os.path.realpath(path)]) == root
