"""Select the definitions of a compiled schema that stay shared: recursive ones, and large ones used more than once.

Takes a schema and its definitions, as `wire_json` writes them; returns it with the other definitions inlined. Knows only
the keywords that are written there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast

from callgate.types import JsonObject

__all__ = ["flatten", "shared_only_where_needed"]

_NODES_MAX = 12
_HEIGHT_MAX = 16
_PREFIX = "#/$defs/"


def shared_only_where_needed(node: JsonObject, definitions: Mapping[str, JsonObject]) -> JsonObject:
    """The schema, with `$defs` if any are left."""
    if not definitions:
        flatten(node)
        return node
    same = _aliases(definitions)
    node = _filled(node, same)
    definitions = {name: _filled(body, same) for name, body in definitions.items() if name not in same}
    # Lists, not sets: the order must be the same in every process.
    arrows = {name: list(dict.fromkeys(_references(body))) for name, body in definitions.items()}
    recursive = _recursive(arrows)
    uses = Counter(name for holder in (node, *definitions.values()) for name in _references(holder))
    put: dict[str, JsonObject] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for name in TopologicalSorter(_without(arrows, recursive)).static_order():
        body = _filled(definitions[name], put)
        count, height = _size(body, sizes)
        sizes[name] = count, height
        if height <= _HEIGHT_MAX and (uses[name] == 1 or count <= _NODES_MAX):
            put[name] = body
    left = {name: _filled(body, put) for name, body in definitions.items() if name not in put and uses[name]}
    node = _filled(node, put)
    for holder in (node, *left.values()):
        flatten(holder)
    return {**node, "$defs": left} if left else node


def _aliases(definitions: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Resolve definitions that are only a reference to the end of the chain; to anything, for a circular chain."""
    found: dict[str, JsonObject] = {}
    for name, body in definitions.items():
        seen = {name}
        while "$ref" in body and _name(body) not in seen:
            seen.add(_name(body))
            following = definitions[_name(body)]
            if "$ref" not in following:
                break
            body = following
        if "$ref" in definitions[name]:
            found[name] = body if "$ref" not in definitions[_name(body)] else {}
    return found


def _without(arrows: Mapping[str, list[str]], names: set[str]) -> dict[str, list[str]]:
    return {name: [aim for aim in aims if aim not in names] for name, aims in arrows.items() if name not in names}


def _recursive(arrows: Mapping[str, list[str]]) -> set[str]:
    """Return definitions that must stay shared, so that none of the others is recursive."""
    found: set[str] = set()
    while True:
        try:
            TopologicalSorter(_without(arrows, found)).prepare()
        except CycleError as error:
            found |= set(cast("list[str]", error.args[1]))
        else:
            return found


def _size(node: JsonObject, sizes: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Return the number of schemas with all references inlined, and the depth without."""
    count, height, level = 0, 0, [node]
    while level:
        height += 1
        deeper: list[JsonObject] = []
        for holder in level:
            count += 1
            if "$ref" in holder:
                count += sizes.get(_name(holder), (_NODES_MAX, 0))[0]
            deeper += [inner for _, _, inner in _below(holder)]
        level = deeper
    return count, height


def flatten(node: JsonObject) -> None:
    """Merge a union that is a branch of another union into that one."""
    stack, order = [node], list[JsonObject]()
    while stack:
        order.append(holder := stack.pop())
        stack += [inner for _, _, inner in _below(holder)]
    for holder in reversed(order):
        if holder.get("additionalProperties") == {}:
            holder["additionalProperties"] = True
        if branches := holder.get("anyOf", ()):
            spliced = [
                inner for branch in branches for inner in (branch["anyOf"] if branch.keys() == {"anyOf"} else [branch])
            ]
            holder["anyOf"] = list({repr(inner): inner for inner in spliced}.values())
            if len(holder["anyOf"]) == 1 and "$ref" not in holder["anyOf"][0]:
                (only,) = holder.pop("anyOf")
                holder.update({**only, **holder})


def _name(node: JsonObject) -> str:
    return str(node["$ref"]).removeprefix(_PREFIX)


def _references(node: JsonObject) -> Iterator[str]:
    stack = [node]
    while stack:
        holder = stack.pop()
        if "$ref" in holder:
            yield _name(holder)
        stack += [inner for _, _, inner in _below(holder)]


def _filled(node: JsonObject, put: Mapping[str, JsonObject]) -> JsonObject:
    """The schema with definitions in the places that refer to them. The schema itself is changed."""
    if "$ref" in node:
        return put.get(_name(node), node)
    stack = [node]
    while stack:
        for holder, key, inner in _below(stack.pop()):
            if "$ref" in inner and _name(inner) in put:
                holder[key] = put[_name(inner)]
            else:
                stack.append(inner)
    return node


def _below(node: JsonObject) -> list[tuple[Any, str | int, JsonObject]]:
    """Iterate over every direct subschema, with its container."""
    found: list[tuple[Any, str | int, Any]] = []
    if "$ref" in node:
        return []
    found += [(node["properties"], name, inner) for name, inner in node.get("properties", {}).items()]
    for key in ("anyOf", "prefixItems"):
        found += [(node[key], index, inner) for index, inner in enumerate(node.get(key, ()))]
    found += [(node, key, node[key]) for key in ("items", "additionalProperties") if isinstance(node.get(key), dict)]
    return found
