"""Read one call: its name and arguments, or the reason why it is invalid.

Takes the pieces of a call's grammar (name, arguments, kind of brackets), returns a `ParsedCall` or `CallError`. Knows the
tools, and nothing of lines or streams.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from callgate.content.tool_names import unknown_name_sentence
from callgate.errors import UsageError
from callgate.prompted.arguments import ArgumentsError, read_arguments
from callgate.prompted.outcomes import CallError, ErrorCode, ParsedCall
from callgate.types import ToolDefinition

__all__ = ["CallReader", "RawCall", "midline"]

PREFIXES = ("default_api.", "functions.")
"""Namespaces of other interfaces that leak into names."""

_PRINTED = re.compile(r"\s*+((?:default_api|functions)\.[^\W\d][\w.:/-]*+)\s*+\(")
_NAMED = re.compile(r"[\"']name[\"']\s*:\s*[\"']([^\"'\n]{1,256})[\"']")
_ARGUMENT_KEYS = ("arguments", "args", "parameters", "input")
_KEYS_NAMED_MAX = 5
_IGNORED_KEYS = frozenset({"name", "id", "call_id", "type"})


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call in its pieces."""

    name: str | None
    """None if the name is in the object: `{"name": ..., "arguments": ...}`."""
    args: str
    raw: str


def midline(call: ParsedCall) -> CallError:
    """Return the error for a call that is not on a line of its own."""
    told = f"The call of {call.name!r} was not run: it stands in the middle of a line. Write it on a line of its own."
    return CallError("midline_call", call.name, told, call.raw, call.args)


def _name_of(tool: Any) -> str:
    if isinstance(tool, (str, ToolDefinition)):
        return tool if isinstance(tool, str) else tool.name
    raise UsageError(f"tools= takes names and ToolDefinitions, not {tool!r:.200}: make one with definition_from()")


class CallReader:
    """Reader of calls of the given tools. None as tools accepts every name."""

    def __init__(self, tools: Iterable[ToolDefinition | str] | None) -> None:
        self._known: frozenset[str] | None = None
        if tools is not None:
            self._known = frozenset(map(_name_of, [tools] if isinstance(tools, str) else tools))

    def read(self, raw_call: RawCall) -> ParsedCall | CallError:
        """The call, or what is wrong with it."""
        try:
            name, args, notes = self._named(raw_call) if raw_call.name is None else self._plain(raw_call.name, raw_call.args)
        except ArgumentsError as error:
            return self.broken("bad_arguments", raw_call, str(error))
        if name is None:
            return self.broken("bad_syntax", raw_call, "it does not name a tool")
        known = self._resolved(name)
        if known is None:
            return CallError("unknown_tool", name, self._unknown(name), raw_call.raw, args)
        if known != name:
            notes = (*notes, f"The name {name!r} was read as {known!r}.")
        return ParsedCall(known, args, notes, raw_call.raw)

    def broken(self, code: ErrorCode, raw_call: RawCall, why: str) -> CallError:
        """The error for a call that cannot be read; `why` is a clause."""
        found = _NAMED.search(raw_call.args[:10_000]) if raw_call.name is None else None
        name = self.own_name(raw_call.name or (found[1] if found else ""))
        form = f"TOOL_CALL: {name or 'name'}({{...}})"
        what = f"The call of {name!r}" if name else "The call"
        told = f"{what} was not run: {why}. Write it on one line, as {form}, with one JSON object."
        return CallError(code, name, told, raw_call.raw)

    def own_name(self, name: str) -> str:
        """Return the tool's own name if it is known, else the name as written."""
        return self._resolved(name) or name

    def _plain(self, name: str, args: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        printed = _PRINTED.match(args) if name == "print" and self._resolved(name) is None else None
        if printed is not None and args.rstrip().endswith(")"):
            read, notes = read_arguments(args.rstrip()[printed.end() : -1])
            return printed[1], read, ("print() around the call was removed.", *notes)
        read, notes = read_arguments(args)
        return name, read, notes

    def _named(self, raw_call: RawCall) -> tuple[str | None, dict[str, Any], tuple[str, ...]]:
        call, notes = read_arguments(raw_call.args)
        name = call.get("name")
        if not isinstance(name, str) or not name:
            return None, {}, ()
        keys = [key for key in _ARGUMENT_KEYS if key in call]
        if len(keys) > 1 or (not keys and call.keys() - _IGNORED_KEYS):
            raise ArgumentsError("the object must hold the name, and the arguments under one key 'arguments'")
        args: Any = call[keys[0]] if keys else None
        if isinstance(args, str):
            args, more = read_arguments(args)
            notes = (*notes, "The arguments were an object encoded as a string.", *more)
        if args is not None and not isinstance(args, dict):
            raise ArgumentsError("the arguments are not an object")
        if extra := call.keys() - _IGNORED_KEYS - {*keys}:
            named = ", ".join(f"{key[:40]!r}" for key in sorted(extra)[:_KEYS_NAMED_MAX])
            notes = (*notes, f"Keys beside the name and the arguments were left out: {named}.")
        return name, cast("dict[str, Any]", args or {}), notes

    def _resolved(self, name: str) -> str | None:
        if self._known is None or name in self._known:
            return name
        for prefix in PREFIXES:
            if name.startswith(prefix) and name[len(prefix) :] in self._known:
                return name[len(prefix) :]
        return None

    def _unknown(self, name: str) -> str:
        return unknown_name_sentence(name, sorted(self._known or ()))
