"""Merge flags, files and the environment into settings and a policy.

Notices go to stderr. `callgate.config` defines the settings and their precedence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click

from callgate import strict_json
from callgate.cli.escaping import visible
from callgate.cli.json_input import InputError
from callgate.cli.themes import use_theme
from callgate.config import ConfigError, Settings, load_settings, parsed_text
from callgate.config.loader import SOURCES
from callgate.config.table import SETTINGS
from callgate.errors import JsonError, UsageError
from callgate.types import JsonObject, Limits, Price

if TYPE_CHECKING:
    from callgate.permission import AuditLog, Mode, Policy

__all__ = [
    "audit_log",
    "limits_of",
    "model_environment",
    "policy_from",
    "prices_of",
    "secrets_of",
    "settings_here",
    "settled",
]

# Option of a command -> its setting.
_OPTIONS = {
    "provider": "provider", "model": "model", "mode": "mode", "system": "system", "tool": "tools", "root": "root",
    "mcp": "mcp.files", "approval_mode": "approval_mode", "policy": "policy.file", "audit": "audit", "output": "output",
    "store": "store", "api": "gemini.api",
}  # fmt: skip


def settled(given: dict[str, Any]) -> Settings:
    """Take `--set` out of the given options, and fill in the settings of files and the environment.

    Raises:
        InputError: a setting is wrong; the message has its place.
    """
    settings = settings_here(_flags(given))
    use_theme(settings["theme"])
    for notice in settings.notices:
        print(f"callgate: {visible(notice)}", file=sys.stderr)
    is_kept = not (given.get("ephemeral") or given.get("example"))
    for option, key in _OPTIONS.items():
        if option in given and (option != "store" or is_kept):
            given[option] = settings[key]
    if "debug" in given:
        given["debug"] = settings["log_level"] == "debug"
    if "provider" in given:
        given["provider"] = _provider(settings)
    return settings


def _flags(given: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    """Key -> its value, and the flag that set it."""
    flags: dict[str, tuple[Any, str]] = {}
    for word in cast("Sequence[str]", given.pop("settings", ())):
        key, equals, text = word.partition("=")
        if not equals:
            raise click.UsageError(f"--set {word!r}: write KEY=VALUE")
        table, dot, name = key.partition(".")
        if key not in SETTINGS and dot and table in SETTINGS and SETTINGS[table].kind == "table":
            # One value of a table, as `settings.temperature`; several of them add up.
            entries = cast("JsonObject", flags[table][0]) if table in flags else {}
            flags[table] = (_with_entry(entries, name.split("."), _plain(text)), f"--set {table}")
            continue
        flags[key] = (parsed_text(SETTINGS[key], text) if key in SETTINGS else text, f"--set {key}")
    for option, key in _OPTIONS.items():
        value = given.get(option)
        if value not in (None, ()):
            named = f"--{option.replace('_', '-')}"
            flags[key] = (list(cast("Sequence[str]", value)) if isinstance(value, tuple) else value, named)
    if given.get("debug"):
        flags["log_level"] = ("debug", "--debug")
    return flags


def _with_entry(table: JsonObject, names: Sequence[str], value: Any) -> JsonObject:
    head, *rest = names
    inner: JsonObject = table[head] if isinstance(table.get(head), dict) else {}
    return {**table, head: _with_entry(inner, rest, value) if rest else value}


def _plain(text: str) -> Any:
    """The JSON value of a text, or the text itself."""
    try:
        return strict_json.parse(text)
    except JsonError:
        return text


def settings_here(flags: Mapping[str, tuple[Any, str]] | None = None) -> Settings:
    """Return the effective settings of this folder.

    Raises:
        InputError: one is wrong; the message has its place.
    """
    try:
        return load_settings(os.environ, flags=flags)
    except ConfigError as error:
        raise InputError(str(error)) from error


def model_environment(settings: Settings) -> dict[str, str]:
    """Return the environment from which every model is opened: that of the process, with what the settings say."""
    return settings.environment(os.environ)


def _provider(settings: Settings) -> str | None:
    """Return the provider, unless a model name of higher precedence implies another one."""
    provider, model = settings.values["provider"], settings.values["model"]
    if model.value is None or SOURCES.index(provider.source) <= SOURCES.index(model.source):
        return provider.value
    is_told = model.value.endswith(".gguf") or model.value.partition(":")[0] in SETTINGS["provider"].choices
    return None if is_told or provider.value == "demo" else provider.value


def secrets_of(settings: Settings) -> list[str]:
    """Keys that no log may show."""
    return [str(found.value) for key, found in settings.values.items() if SETTINGS[key].secret and found.value]


def audit_log(path: str | None, settings: Settings) -> AuditLog | None:
    """The audit log, sealed and anchored as the settings say."""
    from callgate.permission import AuditLog

    return AuditLog(path, key=settings["audit_key"], anchor=settings["audit_anchor"]) if path is not None else None


def limits_of(settings: Settings) -> Limits:
    """The limits of a run."""
    return Limits(**settings.under("limits"))


def prices_of(settings: Settings) -> dict[str, Price]:
    """Return the prices of models."""
    return {model: Price(**row) for model, row in cast("JsonObject", settings["prices"] or {}).items()}


def policy_from(settings: Settings, file: str | None, mode: Mode | None) -> Policy:
    """The policy of the settings and of a file, together: rules add up.

    Raises:
        InputError: the file cannot be read.
    """
    from callgate.permission import Policy
    from callgate.permission.rules import VERDICTS

    told: JsonObject = {
        key: list(cast("Sequence[Any]", value)) if isinstance(value, tuple) else value
        for key, value in settings.under("policy").items()
    }
    told.pop("file", None)
    theirs = list(settings.project_rules)
    told["rules"] = [rule for rule in told.get("rules", []) if not any(rule is one for one in theirs)]
    policy = own = _placed(Policy.from_table(told), settings)
    if file is not None:
        try:
            other = Policy.from_file(file)
        except UsageError as error:
            raise InputError(str(error)) from error
        defaults = [one.default for one in (policy, other) if one.default is not None]
        policy = replace(
            other,
            default=max(defaults, key=VERDICTS.index, default=None),
            rules=(*policy.rules, *other.rules),
            hooks=(*policy.hooks, *other.hooks),
            sensitive=tuple(dict.fromkeys((*other.sensitive, *policy.sensitive))),
            problems=(*policy.problems, *other.problems),
        )
        # A policy with a default says something about every call, which rules of another one cannot lift.
        policy = policy.strictest(*(replace(one, hooks=(), problems=()) for one in (own, other) if one.default is not None))
    if theirs:
        # What a project's file says counts beside the user's own rules, never instead of them.
        project = _placed(Policy.from_table({"default": "allow", "rules": theirs}), settings)
        policy = policy.strictest(project)
    return replace(policy, mode=mode or policy.mode)


def _placed(policy: Policy, settings: Settings) -> Policy:
    """The policy with the place of its rules in what is wrong with them."""
    where = settings.values["policy.rules"].where
    return replace(policy, problems=tuple(f"{where}: {problem}" if where else problem for problem in policy.problems))
