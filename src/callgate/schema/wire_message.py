"""Write a shape as a `parameters` Schema message, for the Developer API or for Vertex.

Every node has one type; null is `nullable`; a union is an `anyOf` without siblings, its texts moved into the branches.
Enums hold strings only: integers become bounds and text, so arguments need no decoding. There are no references, so the
shapes must be inlined. Property names stay as they are, except for Vertex, which accepts only identifiers.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any, Literal

from callgate.schema.limit_text import described, in_words, listed, with_words
from callgate.schema.names import alias_of
from callgate.schema.shape import ALL_TYPES, TYPES_OF, Limit, Losses, Shape, default_fits, value_shapes
from callgate.schema.wire_json import COUNT_MAX, bounds, string_branches, widened_values
from callgate.types import JsonObject

__all__ = ["FORMATS", "NOT_A_FIELD", "MessageWriter"]

NOT_A_FIELD = "not a field of the Schema message, or not safe to send in it"
"""The reason why a simple keyword is not sent."""

FORMATS = {"string": ("date-time",), "integer": ("int32", "int64"), "number": ("float", "double")}
"""The formats that are safe to send, by type."""

_COUNTS = {
    "string": ("minLength", "maxLength"), "array": ("minItems", "maxItems"), "object": ("minProperties", "maxProperties"),
}  # fmt: skip
_LISTED_MAX = 20
# A text is repeated in at most so many branches; with more of them only the first has it.
_TEXTS_MAX = 3
_PATTERN_CHARS_MAX = 200
# Not every engine has look-around, back-references and the like.
_ODD_PATTERN = re.compile(r"\(\?|\\[1-9kpPuxc]")
_MERGED_TYPES = ("string", "number", "boolean", "object", "array")


class MessageWriter:
    """Writer of the shapes of one schema. `aliases` maps changed property names to the original ones."""

    def __init__(self, losses: Losses, surface: Literal["developer", "vertex"]) -> None:
        self.losses = losses
        self.surface = surface
        self.aliases: dict[str, str] = {}
        self._write: dict[str, Callable[[Shape, JsonObject, list[str]], None]] = {
            "string": self._string, "number": self._number, "integer": self._number, "array": self._array,
            "object": self._object, "boolean": self._nothing,
        }  # fmt: skip

    def document(self, root: Shape) -> JsonObject:
        """Write the whole schema. The root has no union: the alternatives are merged into one object."""
        root = _one_object(root, self.losses) if root.any_of else root
        words: list[str] = []
        if root.values is not None:
            words.append(widened_values(root, self.losses))
            self._lose_limits(root)
        if root.properties:
            node = self._typed(root, "object", texts=True)
        else:
            # The server refuses an object without properties, so further restrictions are only described.
            counts = [(word, root.limits[word]) for word in _COUNTS["object"] if word in root.limits]
            words += [self._in_words(word, limit) for word, limit in counts]
            if root.additional is not False or self.surface == "developer":
                self._say_additional(root, words)
            node = {"type": "object", **self._text(root, [])}
        text = with_words(node.get("description", ""), words)
        return {**node, "description": text} if text else node

    def node(self, shape: Shape) -> JsonObject:
        """Write one schema."""
        nodes, is_nullable = self._alternatives(shape)
        if not nodes:
            return {"type": "null", **self._text(shape, [])}
        if len(nodes) == 1:
            return self._with_texts(nodes[0], shape) | ({"nullable": True} if is_nullable else {})
        if is_nullable:
            nodes[0]["nullable"] = True
        return {"anyOf": self._texts_moved(nodes, shape)}

    def _alternatives(self, shape: Shape) -> tuple[list[JsonObject], bool]:
        """Return nodes of one type each that together allow the shape, without texts, and whether null is allowed."""
        if shape.any_of:
            found: list[JsonObject] = []
            is_nullable = False
            for branch in shape.any_of:
                nodes, nullable = self._alternatives(branch)
                is_nullable |= nullable
                if branch.text or branch.notes or branch.limits:
                    nodes = [self._with_texts(nodes[0], branch)] if len(nodes) == 1 else self._texts_moved(nodes, branch)
                found += nodes
            return _unique(found), is_nullable
        if shape.values is not None and (groups := value_shapes(shape)):
            self._lose_limits(shape)
            nodes = [node for one in groups if not one.is_only("null") for node in self._listed(one)]
            return nodes, any(one.is_only("null") for one in groups)
        if shape.is_any:
            return _anything(), True
        kinds = [
            name for name in ALL_TYPES if name in (shape.types if shape.types is not None else (*_MERGED_TYPES, "null"))
        ]
        return [self._typed(shape, kind) for kind in kinds if kind != "null"], "null" in kinds

    def _lose_limits(self, shape: Shape) -> None:
        """Report additional restrictions on listed values."""
        for keyword, limit in shape.limits.items():
            if keyword in TYPES_OF and not keyword.startswith("content"):
                self.losses.add(limit.pointer, keyword, NOT_A_FIELD, "checked locally")

    # Texts ----------------------------------------------------------------------------------------------------------------

    def _text(self, shape: Shape, words: list[str]) -> JsonObject:
        text = with_words(shape.text, [*shape.notes, *words, *self._annotations(shape)])
        return {"description": text} if text else {}

    def _annotations(self, shape: Shape) -> list[str]:
        """Describe keywords that apply to all types."""
        return [
            self._in_words(keyword, limit, fits=default_fits(shape))
            for keyword, limit in shape.limits.items()
            if (keyword not in TYPES_OF or keyword.startswith("content")) and not _is_default_of(shape, keyword, limit)
        ]

    def _in_words(self, keyword: str, limit: Limit, *, fits: bool = True) -> str:
        word = in_words(keyword, limit.value) if keyword != "default" or fits else ""
        annotates = keyword in ("default", "examples", "example")
        if word or keyword not in ("uniqueItems", "deprecated"):
            instead = "stated in the description" if word else "left out" if annotates else "checked locally"
            self.losses.add(limit.pointer, keyword, NOT_A_FIELD, instead)
        return word

    def _with_texts(self, node: JsonObject, shape: Shape) -> JsonObject:
        """Write a node with the texts of the enclosing shape, which take precedence."""
        own = node.get("description", "")
        text = with_words(shape.text or own, [*shape.notes, *self._annotations(shape)])
        if shape.text and own.startswith("("):
            text = f"{text} {own}"
        rest = {key: value for key, value in node.items() if key not in ("type", "format", "description")}
        head = {key: node[key] for key in ("type", "format") if key in node}
        default = shape.limits.get("default")
        if default and "anyOf" not in node and _is_default_of(shape, "default", default):
            rest["default"] = default.value
        return {**head, **({"description": text} if text else {}), **rest}

    def _texts_moved(self, nodes: list[JsonObject], shape: Shape) -> list[JsonObject]:
        """The branches of a union with its text in those that have none, or else in the first."""
        text = with_words(shape.text, [*shape.notes, *self._annotations(shape), *self._unsaid_default(shape)])
        if not text:
            return nodes
        bare = [index for index, node in enumerate(nodes) if "description" not in node]
        bare = bare if len(nodes) <= _TEXTS_MAX else bare[:1]
        moved: list[JsonObject] = []
        for index, node in enumerate(nodes):
            own = node.get("description", "")
            said = text if index in bare else f"{text} {own}" if index == 0 and not bare else own
            head = {"type": node["type"]} | ({"description": said} if said else {})
            moved.append(head | {key: value for key, value in node.items() if key not in head})
        return moved

    def _unsaid_default(self, shape: Shape) -> list[str]:
        limit = shape.limits.get("default")
        return [self._in_words("default", limit)] if limit and _is_default_of(shape, "default", limit) else []

    # Types ----------------------------------------------------------------------------------------------------------------

    def _typed(self, shape: Shape, kind: str, *, texts: bool = False) -> JsonObject:
        node: JsonObject = {"type": kind}
        words: list[str] = []
        limit = shape.limits.get("format")
        if limit is not None and kind in FORMATS:
            if limit.value in FORMATS[kind]:
                node["format"] = limit.value
            else:
                words.append(self._in_words("format", limit))
        fields: JsonObject = {}
        self._write[kind](shape, fields, words)
        for keyword in _COUNTS.get(kind, ()):
            count = shape.limits.get(keyword)
            if count is not None and count.value <= COUNT_MAX:
                fields[keyword] = int(count.value)
        text = with_words(shape.text, [*shape.notes, *words, *self._annotations(shape)]) if texts else with_words("", words)
        return {**node, **({"description": text} if text else {}), **fields}

    def _listed(self, shape: Shape) -> list[JsonObject]:
        """Write listed values of one type."""
        (kind,) = shape.types or ("string",)
        values = shape.values or []
        if kind == "string" and "" not in values:
            return [{"type": kind, "enum": values}]
        if kind == "string":
            self.losses.add(*shape.enum_at, "an empty string cannot be listed", "widened")
            if len(values) > _LISTED_MAX:
                return string_branches(values)
            return [{"type": kind, "description": f"(one of {listed(values)})"}]
        if kind in ("number", "integer"):
            return [self._numbers(shape, kind, values)]
        word = widened_values(shape, self.losses)
        node: JsonObject = {"type": kind, **({"description": f"({word})"} if word else {})}
        return [node | ({"items": _items()} if kind == "array" else {})]

    def _numbers(self, shape: Shape, kind: str, values: list[Any]) -> JsonObject:
        low, high = min(values), max(values)
        node: JsonObject = {"type": kind, "minimum": _double(low, -1), "maximum": _double(high, 1)}
        if kind == "integer" and high - low == len(values) - 1:
            return node  # every whole number between the bounds is there
        self.losses.add(*shape.enum_at, "only strings can be listed", "stated in the description")
        return {"type": kind, "description": f"(one of {listed(values)})", **node}

    def _nothing(self, shape: Shape, node: JsonObject, words: list[str]) -> None:
        """Write a boolean, which has no restrictions."""

    def _string(self, shape: Shape, node: JsonObject, words: list[str]) -> None:
        limit = shape.limits.get("pattern")
        if limit is None:
            return
        pattern = str(limit.value)
        if len(pattern) <= _PATTERN_CHARS_MAX and not _ODD_PATTERN.search(pattern):
            node["pattern"] = pattern
        else:
            words.append(self._in_words("pattern", limit))

    def _number(self, shape: Shape, node: JsonObject, words: list[str]) -> None:
        found, said = bounds(shape, self.losses)
        words += said
        node |= {key: _double(value, -1 if key == "minimum" else 1) for key, value in found.items()}
        if (limit := shape.limits.get("multipleOf")) is not None:
            words.append(self._in_words("multipleOf", limit))

    def _array(self, shape: Shape, node: JsonObject, words: list[str]) -> None:
        if (limit := shape.limits.get("uniqueItems")) is not None:
            words.append(self._in_words("uniqueItems", limit))
        node["items"] = self.node(shape.items) if shape.items is not None else _items()
        if not shape.prefix:
            return
        heads = [self.node(inner) for inner in shape.prefix]
        is_closed = "maxItems" in shape.limits and shape.limits["maxItems"].value <= len(heads)
        if not is_closed:
            heads.append(node["items"])
        branches: list[JsonObject] = []
        for head in heads:
            branches += head.get("anyOf", [head])
        distinct = _unique(branches)
        node["items"] = distinct[0] if len(distinct) == 1 else {} if {} in distinct else {"anyOf": distinct}
        if len(distinct) > 1:
            words.append(f"items in order: {', '.join(described(inner) for inner in shape.prefix[:8])}")
            where = shape.where.get("prefixItems", shape.pointer)
            self.losses.add(
                where, where.rpartition("/")[2], "items cannot differ by their position", "stated in the description"
            )

    def _object(self, shape: Shape, node: JsonObject, words: list[str]) -> None:
        properties: JsonObject = {}
        for name, inner in shape.properties.items():
            alias = alias_of(name) if self.surface == "vertex" else None
            if alias is not None:
                self.aliases[alias] = name
            properties[alias or name] = self.node(inner)
        if properties:
            node["properties"] = properties
        own = {name: alias for alias, name in self.aliases.items()}
        if required := [own.get(name, name) for name in shape.required if name in shape.properties]:
            node["required"] = required
        if shape.ordering:
            node["propertyOrdering"] = [own.get(name, name) for name in shape.ordering]
        self._additional(shape, node, words)

    def _additional(self, shape: Shape, node: JsonObject, words: list[str]) -> None:
        if shape.additional is None or shape.additional is True:
            return
        if self.surface == "vertex":
            inner = shape.additional
            node["additionalProperties"] = self.node(inner) if isinstance(inner, Shape) else inner
        else:
            self._say_additional(shape, words)

    def _say_additional(self, shape: Shape, words: list[str]) -> None:
        if shape.additional is None or shape.additional is True:
            return
        if isinstance(shape.additional, Shape):
            key = "other keys" if shape.properties else "any keys"
            words.append(f"{key}, each value: {described(shape.additional)}")
        instead = "stated in the description" if isinstance(shape.additional, Shape) else "checked locally"
        self.lose_closedness(shape.where.get("additionalProperties", shape.pointer), instead)

    def lose_closedness(self, pointer: str, instead: str = "checked locally") -> None:
        """Report that the schema of other keys is not sent."""
        keyword = "propertyNames" if pointer.endswith("/propertyNames") else "additionalProperties"
        self.losses.add(pointer, keyword, "the Schema message does not have it here", instead)


def _anything() -> list[JsonObject]:
    return [{"type": kind, "items": {}} if kind == "array" else {"type": kind} for kind in _MERGED_TYPES]


def _items() -> JsonObject:
    """Write unrestricted items. One level lists all types; the levels below are left open.

    The parser accepts a node without a type, although not every model handles it well; but the recursion must end, each
    list needs items, and any type named for them would forbid what the schema allows.
    """
    nodes = _anything()
    nodes[0]["nullable"] = True
    return {"anyOf": nodes}


def _double(value: float, sign: int) -> float:
    """Round a bound outwards to a double."""
    if isinstance(value, float) or abs(value) <= 2**53:
        return value
    try:
        near = float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max
    # Compared, not subtracted: a difference is taken between doubles, and would be 0.
    is_inside = near < value if sign > 0 else near > value
    return math.nextafter(near, sign * math.inf) if is_inside else near


def _unique(nodes: list[JsonObject]) -> list[JsonObject]:
    found: dict[str, JsonObject] = {}
    for node in nodes:
        found.setdefault(repr(node), node)
    return list(found.values())


def _is_default_of(shape: Shape, keyword: str, limit: Limit) -> bool:
    """True if a default can be sent as one: a scalar, for one type."""
    if keyword != "default" or limit.value is None or shape.any_of or shape.types is None:
        return False
    scalar = not isinstance(limit.value, (dict, list, tuple))
    return scalar and len(shape.types - {"null"}) == 1 and default_fits(shape)


def _one_object(root: Shape, losses: Losses) -> Shape:
    """Merge alternative objects into one that is at least as wide as all of them together."""
    branches = [inner for branch in root.any_of for inner in (branch.any_of or [branch])]
    losses.add(root.pointer, "anyOf", "the arguments as a whole cannot be a union", "widened")
    names = dict.fromkeys(name for branch in branches for name in branch.properties)
    merged: dict[str, Shape] = {}
    for name in names:
        told = [branch.properties[name] for branch in branches if name in branch.properties]
        others = [
            branch.additional for branch in branches if name not in branch.properties and branch.additional is not False
        ]
        merged[name] = _either(told, is_open=bool(others))
    needed = [name for name in names if all(name in branch.required for branch in branches)]
    choices = [", ".join(branch.required) or "nothing" for branch in branches[:10]]
    notes = [*root.notes, f"needs one of: {' | '.join(dict.fromkeys(choices))}"]
    is_closed = all(branch.additional is False for branch in branches)
    return Shape(
        pointer=root.pointer, types=frozenset({"object"}), text=root.text, notes=notes, limits=root.limits,
        properties=merged, required=needed, additional=False if is_closed else None,
    )  # fmt: skip


def _either(told: list[Shape], *, is_open: bool) -> Shape:
    """A property as the alternatives that name it see it, and as those see it that take anything under its name."""
    text = next((shape.text for shape in told if shape.text), "")
    if is_open:
        return Shape(
            pointer=told[0].pointer, text=text, notes=[" or ".join(dict.fromkeys(described(one) for one in told[:5]))]
        )
    return told[0] if len(told) == 1 else Shape(pointer=told[0].pointer, text=text, any_of=told)
