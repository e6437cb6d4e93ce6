"""`convert`: tools, calls, results and histories of one format to another, with every loss.

Takes objects of any format; returns plain JSON, a map of names and a list of losses. Knows the table of formats and none
of its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from callgate.definitions.call_ids import paired, with_ids
from callgate.definitions.detection import Read, read
from callgate.definitions.format import KINDS, Format, Kind, WriteContext
from callgate.definitions.formats import FORMATS, format_named
from callgate.definitions.items import Call, HostedTool, Item, Message, Result, Thought, Tool
from callgate.definitions.json_node import ShapeError, plain, value_at
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.schema.refs import as_mapping
from callgate.types import JsonObject, Loss

__all__ = ["Converted", "convert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The result of a conversion."""

    value: Any
    """Plain JSON in the target's format: one object, or the target's list form for several."""
    losses: list[Loss] = field(default_factory=list[Loss])
    """All losses of the conversion, in the order in which they were found."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name in `value` -> the tool's own name, for every tool that is named in it."""


def convert(obj: Any, *, source: str | None = None, target: str, kind: Kind | None = None) -> Converted:
    """Convert a tool, call, result or history (or a list of one of the first three) to another format.

    Without `source` and `kind`, both are detected. A history becomes a list of messages, or an object with both where the
    target keeps the system text apart. If `source` names the target, the object is checked and returned as it is; if its
    format is only detected, it is written in the target's usual spelling.

    Raises:
        UsageError: a format or kind is not known, cannot be written, or must be named because several fit.
        ShapeError: the object does not fit its format; the message begins with the JSON pointer to the place.
    """
    to = format_named(target)
    if kind is not None and kind not in KINDS:
        raise UsageError(f"there is no kind {kind!r}; the kinds are {', '.join(map(repr, KINDS))}")
    given = plain(obj)
    found = read(given, source=source, kind=kind)
    if to.writer(found.kind) is None:
        able = ", ".join(repr(name) for name, fmt in FORMATS.items() if fmt.writer(found.kind))
        raise UsageError(f"a {found.kind} cannot be written as {target!r}: the formats that can are {able}")
    converted = _KINDS[found.kind](found, to)
    is_renamed = any(name != own for name, own in converted.names.items())
    if found.format == to.name and not is_renamed:
        is_alike = found.kind != "tool" and _is_alike(converted.value, given)
        if source is not None or is_alike:  # Keep what the common model cannot represent.
            return Converted(value=given, names=converted.names)
    return converted


_GRAMMAR = frozenset({"role", "type"})
_ADDED = frozenset({"status", "args", "signature", "name", "mimeType"})
"""Fields that a writer fills in where the source has none."""


def _is_alike(written: Any, given: Any) -> bool:
    """True if a value is spelled as its format is written: with the same fields, and more, whatever they hold."""
    stack = [(written, given)]
    while stack:
        one, other = stack.pop()
        if isinstance(one, dict):
            table = cast("JsonObject", one)
            source = as_mapping(other)
            if not isinstance(other, dict) or not table.keys() - _ADDED <= source.keys():
                return False
            if any(table[key] != source[key] for key in _GRAMMAR & table.keys()):
                return False
            stack += [(value, source[key]) for key, value in table.items() if key in source]
        elif isinstance(one, list):
            if not isinstance(other, list):
                return False
            items, others = cast("list[Any]", one), cast("list[Any]", other)
            if _types(items) == _types(others):
                stack += zip(items, others, strict=True)
            elif not _fields(items) - _ADDED <= _fields(others) or not {*_types(items)} <= {*_types(others), "thought"}:
                return False  # Items that were joined, split or put in another order.
    return True


def _types(items: Sequence[Any]) -> list[str]:
    """The words by which the format tells the items of a list apart."""
    return [str(as_mapping(item).get("type", as_mapping(item).get("role"))) for item in items]


def _fields(items: Sequence[Any]) -> set[str]:
    """The fields of the objects in a list."""
    return {key for item in items for key in as_mapping(item)}


def _is_part(part: Any, whole: Any) -> bool:
    """True if one JSON value equals another with some fields left out."""
    stack = [(part, whole)]
    while stack:
        one, other = stack.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, dict):
            if not one.keys() <= other.keys():
                return False
            stack += [(value, other[key]) for key, value in cast("JsonObject", one).items()]
        elif isinstance(one, list):
            if len(cast("list[Any]", one)) != len(other):
                return False
            stack += zip(cast("list[Any]", one), other, strict=True)
        elif one != other:
            return False
    return True


def _tools(found: Read, to: Format) -> Converted:
    hosted = [item for item in found.items if isinstance(item, HostedTool)]
    if hosted and not found.is_many:
        raise ShapeError(hosted[0].at, hosted[0].reason)
    tools = [item for item in found.items if isinstance(item, Tool)]
    own = [tool.definition.name for tool in tools]
    if twice := sorted(name for name, count in Counter(own).items() if count > 1):
        raise ToolNotDeclarableError(
            f"more than one tool is named {', '.join(map(repr, twice))}: a list of tools has each once"
        )
    names = _names(own, to)
    aliases = {name: alias for alias, name in names.items()}
    renamed = [
        replace(tool, definition=replace(tool.definition, name=aliases[name])) for tool, name in zip(tools, own, strict=True)
    ]
    losses = list(found.losses)
    assert to.tools_to is not None
    out = WriteContext(found.format, to.name, losses)
    written = to.tools_to(renamed, out)
    value: Any = to.tools_wrap(written) if found.is_many else written[0]
    if not out.is_same:
        for item in hosted:
            out.lose(item.at, item.keyword, item.reason)
    elif _are_parts(written, tools, found.value):
        # Keep what the common model cannot represent.
        request: Mapping[str, Any] = as_mapping(found.value) if type(value) is list else {}
        return Converted(value=request.get("tools", found.value), losses=found.losses if request else [], names=names)
    elif hosted:
        listed = cast("list[Any]", value if type(value) is list else value["tools"])
        for item in hosted:
            out.lose(item.at, item.keyword, "the other tools are written again", "stands after them")
            listed.append(item.raw)
    return Converted(value=value, losses=[_with_tool(loss, tools, names) for loss in losses], names=names)


def _are_parts(written: Sequence[Any], tools: Sequence[Tool], given: Any) -> bool:
    """True if each tool was written as it stood, with some fields left out."""
    return len(written) == len(tools) and all(
        _is_part(one, value_at(given, tool.at)) for tool, one in zip(tools, written, strict=True)
    )


def _with_tool(loss: Loss, tools: Sequence[Tool], names: Mapping[str, str]) -> Loss:
    """Prefix the loss with the name of its tool."""
    if loss.tool is not None:
        return replace(loss, tool=names.get(loss.tool, loss.tool))
    around = [tool for tool in tools if f"{loss.pointer}/".startswith(f"{tool.at}/")]
    return replace(loss, tool=max(around, key=lambda tool: len(tool.at)).definition.name) if around else loss


def _calls(found: Read, to: Format) -> Converted:
    losses, out = _writing(found, to)
    calls, names = _renamed([_as_function(call, out) for call in with_ids(found.items, to, out)], to)
    assert to.calls_to is not None
    return _converted(to.calls_to(calls, out), found, losses, names)


def _results(found: Read, to: Format) -> Converted:
    losses, out = _writing(found, to)
    results, names = _renamed([*with_ids(found.items, to, out)], to)
    assert to.results_to is not None
    return _converted(to.results_to(results, out), found, losses, names)


def _converted(written: list[Any], found: Read, losses: list[Loss], names: Mapping[str, str]) -> Converted:
    return Converted(value=written if found.is_many else written[0], losses=losses, names=names)


def _history(found: Read, to: Format) -> Converted:
    losses, out = _writing(found, to)
    read = paired(found.items, to, out)
    messages = [part for message in read for part in _by_side(message, out)]
    if len(messages) > len(read):
        _move_late_results(messages, out)
    items = [item for message in messages for item in message.items if isinstance(item, (Call, Result))]
    pieces = [_as_function(item, out) if isinstance(item, Call) else item for item in items]
    renamed, names = _renamed(pieces, to)
    fresh = iter(renamed)
    messages = [
        Message(
            role=message.role,
            items=tuple(next(fresh) if isinstance(item, (Call, Result)) else item for item in message.items),
            at=message.at,
        )
        for message in messages
    ]
    assert to.history_to is not None
    return Converted(value=to.history_to(messages, out), losses=losses, names=names)


def _by_side(message: Message, out: WriteContext) -> list[Message]:
    """Split a message that has items of both sides: calls and thoughts are the model's, results are the user's.

    Where a provider runs tools itself, their results stand in the model's message.
    """
    if message.role == "system" or out.is_same:
        return [message]
    sides: list[tuple[Literal["user", "model"], list[Item]]] = []
    for item in message.items:
        side = "model" if isinstance(item, (Call, Thought)) else "user" if isinstance(item, Result) else message.role
        if sides and sides[-1][0] == side:
            sides[-1][1].append(item)
        else:
            sides.append((side, [item]))
            if side != message.role:
                reason = "a message of one side cannot hold what the other side says"
                out.lose(item.at, "role", reason, f"stands in a message of the {side}")
    if len(sides) <= 1 and (not sides or sides[0][0] == message.role):
        return [message]
    return [replace(message, role=side, items=tuple(items)) for side, items in sides]


def _move_late_results(messages: list[Message], out: WriteContext) -> None:
    """Move results into the message with the first results of the same turn's calls.

    Where some of a turn's calls ran at the provider, and others did not, the results of the latter stand in a later message.
    """
    order: dict[str | None, int] = {}
    first, emptied = 0, list[int]()
    for place, message in enumerate(messages):
        if calls := [item for item in message.items if isinstance(item, Call)]:
            order, first = {call.id: nr for nr, call in enumerate(calls)}, place + 1
        late = [item for item in message.items if isinstance(item, Result) and item.id in order]
        if place <= first or not late or not messages[first].items or messages[first].role != "user":
            continue
        for item in late:
            out.lose(item.at, "order", "all results of one turn's calls stand together", "moved to the others")
        there = sorted((*messages[first].items, *late), key=lambda item: order.get(getattr(item, "id", None), len(order)))
        messages[first] = replace(messages[first], items=tuple(there))
        messages[place] = replace(message, items=tuple(item for item in message.items if item not in late))
        emptied += [] if messages[place].items else [place]
    for place in reversed(emptied):
        del messages[place]


_KINDS = {"tool": _tools, "call": _calls, "result": _results, "history": _history}


def _writing(found: Read, to: Format) -> tuple[list[Loss], WriteContext]:
    losses = list(found.losses)
    return losses, WriteContext(found.format, to.name, losses, in_history=found.kind == "history")


def _as_function(call: Call, out: WriteContext) -> Call:
    """Turn a call with plain text into a function call with that text as its only argument."""
    if not call.is_custom or out.is_same:
        return call
    out.lose(call.at, "custom", "only its own format has tools that take plain text", "the text is the argument 'input'")
    return replace(call, is_custom=False, raw=None)


def _renamed(pieces: Sequence[Any], to: Format) -> tuple[list[Any], dict[str, str]]:
    """Calls and results under names that the target allows."""
    names = _names([piece.name for piece in pieces if piece.name is not None], to)
    aliases = {name: alias for alias, name in names.items()}
    return [replace(piece, name=aliases.get(piece.name)) for piece in pieces], names


def _names(names: Sequence[str], to: Format) -> dict[str, str]:
    return {name: name for name in names} if to.names is None else to.names(names)
