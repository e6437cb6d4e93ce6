"""Lasting answers: what "always" means, for which calls, until it is taken back.

An approved call comes in, a `SessionRule` goes out; later calls are held against it. It covers the tool as it was declared
then and the kind of arguments that were seen: a changed tool, another folder or another command are asked about again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from callgate.permission.call_paths import RunningValues, paths_of
from callgate.permission.patterns import PathGlob, path_parts
from callgate.types import FunctionCall, SessionRule, ToolDefinition

__all__ = ["covers", "scope_of", "session_rule"]


def session_rule(
    definition: ToolDefinition,
    call: FunctionCall,
    *,
    digest: str,
    raised_by: str,
    running: RunningValues | None = None,
) -> SessionRule:
    """The rule that "always" makes of one approved call.

    A file tool is allowed in the folders that the call named, and below; in the root itself for the files that lie there. A
    command is allowed with just these arguments. Any other tool is allowed with all arguments.
    """
    paths = paths_of(definition, call.args, running) if definition.kind == "file" else []
    folders = [_folder_pattern(path) for path in paths]
    return SessionRule(
        id=f"always-{call.id}",
        tool=definition.own_name,
        server=definition.server,
        digest=digest,
        raised_by=raised_by,
        paths=tuple(dict.fromkeys(folders)),
        exact=dict(call.args) if definition.kind == "command" else None,
    )


def scope_of(definition: ToolDefinition, call: FunctionCall, running: RunningValues | None = None) -> str:
    """Say in words what "always" would allow: `for everything below src`, `for exactly this`, `with any arguments`."""
    rule = session_rule(definition, call, digest="", raised_by="", running=running)
    if rule.exact is not None:
        return "for exactly this"
    return f"for {' and '.join(map(_in_words, rule.paths))}" if rule.paths else "with any arguments"


def _in_words(pattern: str) -> str:
    """The pattern of a folder, as `_folder_pattern` makes it, for people."""
    if pattern == "/*":
        return "any file directly in the top folder"
    return f"everything below {pattern[1:-3]}" if pattern.endswith("/**") else pattern[1:]


def covers(
    rule: SessionRule,
    definition: ToolDefinition,
    args: Mapping[str, Any],
    digest: str,
    running: RunningValues | None = None,
) -> bool:
    """True if the lasting answer is about this call."""
    if (rule.tool, rule.server, rule.digest) != (definition.own_name, definition.server, digest):
        return False
    if rule.exact is not None and _as_json(rule.exact) != _as_json(args):
        return False
    if definition.kind != "file":
        return True
    globs, paths = [PathGlob(pattern) for pattern in rule.paths], paths_of(definition, args, running)
    if not paths:  # A call that names no file works in the root; it is covered by an answer about such a call.
        return not rule.paths
    return all(any(glob.narrow(path) for glob in globs) for path in paths)


def _as_json(args: Mapping[str, Any]) -> str:
    """Arguments as text in which `1` is not `true`, although they are equal in Python."""
    return json.dumps(dict(args), sort_keys=True, default=repr)


def _folder_pattern(path: str) -> str:
    parts, leads_out = path_parts(path)
    folder = "/".join(map(_escaped, parts[:-1]))
    if leads_out:
        return "//" + "/".join(map(_escaped, parts))
    return f"/{folder}/**" if folder else "/*"


def _escaped(name: str) -> str:
    return "".join(f"\\{c}" if c in "*?[\\" else c for c in name)
