"""Detect the format of an object, and read it into the model of `items.py`.

Every format is asked which kinds an object may be. If several match and read the same, either will do; if they differ,
the caller must choose. Knows the table of formats and none of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from callgate.definitions.format import KINDS, Format, Kind
from callgate.definitions.formats import FORMATS, format_named
from callgate.definitions.function import FunctionTool
from callgate.definitions.items import HostedTool, Tool
from callgate.definitions.json_node import Node, ShapeError, plain
from callgate.definitions.known_tools import KnownTools
from callgate.errors import UsageError
from callgate.types import JsonObject, Loss, ToolDefinition

__all__ = ["Read", "definition_from", "definitions_from", "read"]

_KNOWN = KnownTools()
_NONE: frozenset[Kind] = frozenset()
_NOUNS: Mapping[Kind, str] = {"tool": "tools", "call": "calls", "result": "results", "history": "histories"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The items that were read, with their format and kind."""

    format: str
    kind: Kind
    items: Sequence[Any]
    """`Tool`s and `HostedTool`s, `Call`s, `Result`s or the `Message`s of a history."""
    losses: list[Loss]
    is_many: bool
    """True if the items were in a list, rather than a single one."""
    value: Any = None
    """The value they were read from."""


def definition_from(obj: Any, format: str | None = None) -> ToolDefinition:
    """Return the definition of one tool: a dict, an SDK object or a callable. Without `format`, it is detected.

    Raises:
        UsageError: the format is not known, no format fits, several do and read it differently, or it holds several tools.
        ShapeError: the object does not fit its format.
        ToolNotDeclarableError: the object is of the format, but cannot be declared.
    """
    if isinstance(obj, ToolDefinition):
        return obj
    if isinstance(obj, FunctionTool):
        return obj.definition
    if format is not None:
        format_named(format)
    found = _KNOWN.read(obj, format, _definitions)
    if len(found) != 1:
        raise UsageError(f"the object holds {len(found)} tools, not one: use definitions_from")
    return found[0]


def definitions_from(obj: Any, format: str | None = None) -> list[ToolDefinition]:
    """Return the definitions of all tools in a list, a file or a container object. A list may mix formats.

    Tools that only their provider can run have no definition, and are left out where there are others.

    Raises:
        UsageError: as `definition_from`.
    """
    if format is not None:
        format_named(format)
    return list(_KNOWN.read(obj, format, _definitions))


def _definitions(obj: Any, format: str | None) -> tuple[list[ToolDefinition], Any]:
    copied = plain(obj)
    found = read(copied, source=format, kind="tool", say="format").items
    definitions = [item.definition for item in found if isinstance(item, Tool)]
    if found and not definitions:
        raise ShapeError(found[0].at, found[0].reason)
    return definitions, copied


def read(value: Any, *, source: str | None, kind: Kind | None, say: str = "source") -> Read:
    """Read a plain value in the format and kind that are given or detected. `say` is the caller's name for the source
    parameter.

    Raises:
        UsageError: no format fits, several do and read it differently, or the format does not have the kind.
        ShapeError: the value does not fit the format.
    """
    if value == [] and kind is not None:
        return Read(format=source or "", kind=kind, items=[], losses=[], is_many=True)
    if source is not None:
        named = format_named(source)
        return _read(value, named, kind or _kind_in(value, named))
    # If an inner item is invalid, the first one still determines the format, and reading reports the place.
    fitting = _fitting(value, kind) or _fitting(_head(value), kind)
    if isinstance(value, list) and fitting and fitting[0][1] == "tool" and not _fitting(value, "tool"):
        return _each(cast("list[Any]", value), say)
    if not fitting:
        raise _unknown(value, kind, say)
    found = fitting[0][1]
    readings: list[Read] = []
    problems: list[ShapeError] = []
    for fmt in [fmt for fmt, of in fitting if of == found]:
        try:
            readings.append(_read(value, fmt, found))
        except ShapeError as problem:
            problems.append(problem)
    if not readings:
        raise problems[0]
    if any(_comparable(other) != _comparable(readings[0]) for other in readings[1:]):
        names = " or ".join(repr(reading.format) for reading in readings)
        example = readings[0].format
        raise UsageError(f"this {found} may be of {names}, which read it differently: say which, as in {say}={example!r}")
    return readings[0]


def _each(values: list[Any], say: str) -> Read:
    """Read tools of several formats in one list."""
    tools: list[Tool | HostedTool] = []
    losses: list[Loss] = []
    for place, value in enumerate(values):
        if isinstance(value, list):
            raise ShapeError(f"/{place}", "expected a tool, found a list")
        try:
            found = read(value, source=None, kind="tool", say=say)
        except ShapeError as error:
            raise ShapeError(f"/{place}{error.pointer}", error.problem) from None
        except UsageError as error:
            raise ShapeError(f"/{place}", str(error)) from None
        again = _read(value, FORMATS[found.format], "tool", at=f"/{place}")
        tools += again.items
        losses += again.losses
    return Read(format="", kind="tool", items=tools, losses=losses, is_many=True, value=values)


def _read(value: Any, fmt: Format, kind: Kind, at: str = "") -> Read:
    reader = fmt.reader(kind)
    if reader is None:
        raise UsageError(f"the format {fmt.name!r} has no {_NOUNS[kind]}: it has {_list_of(fmt)}")
    node = Node(value, at)
    if kind == "history":
        items = reader(node)
    else:
        if _is_listing(value, kind):
            node.used.add("tools")
            node.lose_unread("only the tools are converted")
            node = node.child("tools")
        nodes = node.items if isinstance(node.value, list) else [node]
        items = [item for each in nodes for item in reader(each)]
    is_many = isinstance(value, list) or any(item.at != at for item in items) or (not items and kind != "history")
    return Read(format=fmt.name, kind=kind, items=items, losses=node.losses, is_many=is_many, value=value)


def _list_of(fmt: Format) -> str:
    return " and ".join(_NOUNS[kind] for kind in KINDS if fmt.reader(kind)) or "none of them"


def _comparable(reading: Read) -> list[Any]:
    """Return the value by which two readings are compared."""
    if reading.kind != "tool":
        return list(reading.items)
    tools = cast("list[Tool | HostedTool]", reading.items)
    return [
        (tool.raw, tool.at) if isinstance(tool, HostedTool) else (tool.definition, dict(tool.extra), tool.at)
        for tool in tools
    ]


def _is_listing(value: Any, kind: Kind) -> bool:
    """True if the tools are under a well-known key."""
    return kind == "tool" and isinstance(value, dict) and isinstance(cast("JsonObject", value).get("tools"), list)


def _kinds(value: Any, fmt: Format) -> frozenset[Kind]:
    """Return the kinds that a value may be in a format. A list is what all its items are."""
    if isinstance(value, dict):
        if fmt.name == "function":
            return _NONE
        fields = cast("JsonObject", value)
        return fmt.detect(fields) or (_kinds(fields["tools"], fmt) & {"tool"} if _is_listing(fields, "tool") else _NONE)
    if isinstance(value, (ToolDefinition, FunctionTool)) or callable(value):
        return frozenset({"tool"} if fmt.name == "function" else ())
    if isinstance(value, list):
        items = cast("list[Any]", value)
        found = [_kinds(item, fmt) for item in items if not isinstance(item, list)]
        return frozenset(
            kind for kind in KINDS if found and len(found) == len(items) and all(kind in kinds for kinds in found)
        )
    return _NONE


def _fitting(value: Any, kind: Kind | None) -> list[tuple[Format, Kind]]:
    """The formats that a value fits, of the first kind that there are any of."""
    if isinstance(value, dict) and not _is_listing(value, "tool"):  # Nearly all are one tool, and come by the hundred.
        possible = [(fmt, kinds) for fmt in FORMATS.values() if (kinds := fmt.detect(value))]
    else:
        possible = [(fmt, kinds) for fmt in FORMATS.values() if (kinds := _kinds(value, fmt))]
    for wanted in KINDS if kind is None else (kind,):
        fitting: list[tuple[Format, Kind]] = [(fmt, wanted) for fmt, kinds in possible if wanted in kinds]
        if fitting:
            return fitting
    return []


def _kind_in(value: Any, fmt: Format) -> Kind:
    has: list[Kind] = [kind for kind in KINDS if fmt.reader(kind)]
    kinds = _kinds(value, fmt) or _kinds(_head(value), fmt)
    found: Kind | None = next((kind for kind in has if kind in kinds), None)
    if found is not None or len(has) == 1:
        return found or has[0]
    problem = ""
    try:
        _read(value, fmt, "tool")
    except ShapeError as error:
        problem = f" (as a tool, {error})"
    raise UsageError(f"nothing of {fmt.name!r} looks like {_shown(value)}{problem}; say what it is, as in kind={has[0]!r}")


def _head(value: Any) -> Any:
    """The first of what a value lists, or nothing."""
    listed: Any = value
    if isinstance(value, dict):
        fields = cast("JsonObject", value)
        listed = next((fields[key] for key in _LISTS if isinstance(fields.get(key), list)), None)
    items = cast("list[Any]", listed) if isinstance(listed, list) else []
    return items[0] if items and not isinstance(items[0], list) else None


_LISTS = ("tools", "messages", "contents", "history", "input")


def _unknown(value: Any, kind: Kind | None, say: str) -> UsageError:
    what = kind or "tool, call, result or history"
    # JSON is never a function, so that format is no choice for it.
    names = ", ".join(repr(name) for name in FORMATS if name != "function" or not isinstance(value, (dict, list, str)))
    lead = "no tool format fits" if kind == "tool" else f"no format has a {what} like"
    return UsageError(f"{lead} {_shown(value)}; if it is one, name its format, as in {say}='openai' ({names})")


def _shown(value: Any) -> str:
    return f"{type(value).__name__!r} object {repr(value)[:80]}"
