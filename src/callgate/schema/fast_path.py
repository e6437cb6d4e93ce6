"""Fast path for plain schemas: objects, lists and scalars in common keywords, without a `Shape` in between.

Same output as `lower` and a writer, only faster, as most tool schemas are mostly plain. A part that is not plain takes
the slow path by itself. If that is impossible (shared definitions, a place that allows no value), nothing is returned,
and the whole schema takes the slow path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeGuard, cast

from callgate.schema.limit_text import in_words, with_words
from callgate.schema.lower import Lowering, TooLargeError
from callgate.schema.names import alias_of
from callgate.schema.refs import Place, escaped
from callgate.schema.shape import Losses, Shape
from callgate.schema.shared_refs import flatten
from callgate.schema.soundness import sound_objects
from callgate.schema.wire_json import COUNT_MAX, UNDOCUMENTED, JsonWriter
from callgate.schema.wire_message import FORMATS, NOT_A_FIELD, MessageWriter
from callgate.strict_json import dump, is_whole_text
from callgate.types import JsonObject

__all__ = ["direct_json", "direct_message"]

_DEPTH_MAX = 32
_NODES_MAX = 1_500
_EXACT_MAX = 2**53
_OF_TYPE: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
}  # fmt: skip
_TEXTS = {"type", "description", "title"}
_NUMBERS = {"minimum", "maximum"}
_EXCLUSIVE = {"exclusiveMinimum": ("minimum", 1), "exclusiveMaximum": ("maximum", -1)}
_OBJECT = frozenset({*_TEXTS, "properties", "required", "additionalProperties"})
_ROOT = _OBJECT | {"$schema", "$defs", "definitions"}
_JSON = {
    "string": frozenset({*_TEXTS, "default", "enum", "format"}),
    "integer": frozenset({*_TEXTS, "default", *_NUMBERS, *_EXCLUSIVE}),
    "number": frozenset({*_TEXTS, "default", *_NUMBERS}),
    "boolean": frozenset({*_TEXTS, "default"}),
    "array": frozenset({*_TEXTS, "items", "minItems", "maxItems"}),
}
_UNION = frozenset({"anyOf", "description", "title", "default"})
_REFERENCE = frozenset({"$ref", "description"})
_CONSTANT = frozenset({"type", "const", "description"})
_LOCAL = re.compile(r"#/(\$defs|definitions)/([A-Za-z0-9_.-]+)")
_NULL = {"type": "null"}
_LISTED = frozenset({*_TEXTS, "default", "enum"})
_MESSAGE = {**_JSON, "string": _JSON["string"] | {"minLength", "maxLength"}}

_Check: TypeAlias = "Callable[[Any, str], bool]"
"""True if the value of a keyword is plain, beside a type."""


_type: Callable[[Any], Any] = type
"""`type`, without narrowing by the type checker: a cast is a call, and there are many schemas."""
_NOTHING: JsonObject = {}
_NO_NAMES: Any = ()


def _make_inclusive(node: JsonObject, keyword: str) -> bool:
    """Replace an exclusive bound of an integer by the next one that is allowed itself; False if there is another bound."""
    value = node.pop(keyword)
    plain, step = _EXCLUSIVE[keyword]
    if plain in node or abs(value) >= _EXACT_MAX:
        return False
    node[plain] = (math.floor(value) if step > 0 else math.ceil(value)) + step
    return True


def _is_name(name: Any) -> bool:
    return type(name) is str and (name.isascii() or is_whole_text(name))


def _are_names(names: Iterable[Any]) -> bool:
    return {*map(type, names)} <= {str} and is_whole_text("".join(names))


def _is_text(value: Any, _: str) -> bool:
    return type(value) is str and value != "" and (value.isascii() or is_whole_text(value))


def _is_default(value: Any, kind: str) -> bool:
    if type(value) is str:
        return kind == "string" and is_whole_text(value)
    return type(value) in _OF_TYPE[kind] and (type(value) is bool or _is_bound(value, kind))


def _is_bound(value: Any, _: str) -> bool:
    return (type(value) is int and -_EXACT_MAX <= value <= _EXACT_MAX) or (type(value) is float and math.isfinite(value))


def _is_count(value: Any, _: str) -> bool:
    return type(value) is int and 0 <= value <= COUNT_MAX


def _are_values(value: Any, _: str) -> bool:
    if _type(value) is not list or "" in value or not value:
        return False
    return _are_names(value) and len(set(value)) == len(value)


def _are_names_of(names: Any, properties: JsonObject) -> bool:
    if names is _NO_NAMES:
        return True
    if _type(names) is not list:
        return False
    for name in names:
        if type(name) is not str or name not in properties:
            return False
    return len(set(names)) == len(names)


def _is_any(_: Any, __: str) -> bool:
    return True


def _has_plain_type(schema: Any) -> TypeGuard[JsonObject]:
    kind: Any = schema.get("type") if _type(schema) is dict else None
    return type(kind) is str and (kind in _OF_TYPE or kind in ("object", "array"))


_PLAIN: dict[str, _Check] = {
    "type": _is_any, "items": _is_any, "description": _is_text, "title": _is_text, "format": _is_text,
    "default": _is_default, "enum": _are_values, "minimum": _is_bound, "maximum": _is_bound,
    "exclusiveMinimum": _is_bound, "exclusiveMaximum": _is_bound, "minLength": _is_count,
    "maxLength": _is_count, "minItems": _is_count, "maxItems": _is_count,
}  # fmt: skip
_JSON_CHECKS = {kind: {word: _PLAIN[word] for word in words} for kind, words in _JSON.items()}
_MESSAGE_CHECKS = {kind: {word: _PLAIN[word] for word in words} for kind, words in _MESSAGE.items()}


class _NotPlainError(Exception):
    """The whole schema has to take the slow path."""


Lowered: TypeAlias = "Callable[[], Lowering | None]"
"""The lowering of a schema whose other parts have been found to be usable; None if it is not this schema that is."""


def direct_json(schema: Any, losses: Losses, lowered: Lowered) -> JsonObject | None:
    """The `parametersJsonSchema` of a plain schema; None for others."""
    return _DirectJson(schema, losses, lowered).document()


def direct_message(schema: Any, losses: Losses, lowered: Lowered, writer: MessageWriter) -> JsonObject | None:
    """The `parameters` of a plain schema; None for others."""
    return _DirectMessage(schema, losses, lowered, writer).document()


class _Direct:
    """The walk that both dialects share.

    It judges every keyword that it writes. Whether the rest of a schema is usable is asked when something is not plain.
    """

    checks: Mapping[str, Mapping[str, _Check]]
    """Type -> the keywords that are plain beside it, and how their values are."""
    silent: frozenset[str]
    """Keywords of scalars that are sent as they are."""
    undocumented: str

    def __init__(self, schema: Any, losses: Losses, lowered: Lowered) -> None:
        self._schema: Any = schema
        self._lowered = lowered
        self._lowering: Lowering | None = None
        self._nodes = 0
        self.losses = losses
        self._inlined: tuple[str, ...] = ()
        self._has_definitions = False
        """True if the schema has definitions, which are judged by writing them."""
        self._written: set[str] = set()
        """References to definitions that were written."""

    @property
    def lowering(self) -> Lowering:
        """The lowering of the whole schema, for its parts that are not plain."""
        if self._lowering is None:
            self._lowering = self._lowered()
            if self._lowering is None:
                raise _NotPlainError
        return self._lowering

    def document(self) -> JsonObject | None:
        given: object = self._schema
        if type(given) is not dict:
            return None
        whole = cast("JsonObject", given)
        if whole.get("type") != "object" or not _ROOT.issuperset(whole):
            return None
        try:
            if not _OBJECT.issuperset(whole):
                self._has_definitions = "$schema" not in whole
                if not self._has_definitions:
                    _ = self.lowering
                whole = {key: value for key, value in whole.items() if key in _OBJECT}
            node = self._object(whole, "", 0)
            if self._has_definitions and not self._are_others_sound():
                _ = self.lowering
            if self._lowering is not None:
                self._lowering.count(self._nodes)
                self._lowering.report()
        except (_NotPlainError, TooLargeError):
            return None
        return node

    def node(self, schema: Any, pointer: str, depth: int) -> JsonObject:
        found: JsonObject | None = None
        if _type(schema) is dict:
            kind = schema.get("type")
            is_scalar = type(kind) is str and kind in _OF_TYPE  # Most are, and need no step in between.
            found = self._scalar(kind, schema, pointer) if is_scalar else self._plain(schema, pointer, depth)
        if found is not None:
            if self._nodes >= _NODES_MAX:  # References multiply what is written.
                raise TooLargeError
            self._nodes += 1
            return found
        shape = self.lowering.shape_below(schema, pointer, depth, self._inlined)
        if shape is None or shape.is_never:
            raise _NotPlainError
        return self._rewritten(shape)

    def _are_others_sound(self) -> bool:
        """True if the definitions that nothing leads to are usable: they are judged all the same."""
        found: dict[str, Any] = {word: self._schema[word] for word in ("$defs", "definitions") if word in self._schema}
        for word, named in found.items():
            if type(named) is not dict:
                return False
            members = cast("JsonObject", named).items()
            found[word] = {name: inner for name, inner in members if f"#/{word}/{name}" not in self._written}
        return not any(found.values()) or (sound_objects(found) is not None and b'"$ref"' not in dump(found))

    def _plain(self, schema: JsonObject, pointer: str, depth: int) -> JsonObject | None:
        """Write a plain schema; None for others."""
        kind = schema.get("type")
        if type(kind) is str:
            if kind in _OF_TYPE:
                return self._scalar(kind, schema, pointer)
            if kind == "object":
                return self._object(schema, pointer, depth)
            return self._array(schema, pointer, depth) if kind == "array" else None
        if "anyOf" in schema:
            return self._or_null(schema, pointer, depth)
        if "$ref" in schema:
            return self._referred(schema, pointer, depth)
        return self._constant(schema) if "const" in schema else None

    def _rewritten(self, shape: Shape) -> JsonObject:
        """Return a shape as the form writes it: each form defines it."""
        raise NotImplementedError

    def _referred(self, schema: JsonObject, pointer: str, depth: int) -> JsonObject | None:
        """Write a definition with local text inline, because a `$ref` allows no siblings."""
        if not _REFERENCE.issuperset(schema) or not _is_text(schema.get("description"), ""):
            return None
        target = self._target(schema, pointer)
        if target is None or not _has_plain_type(target.schema):
            return None
        before, self._inlined = self._inlined, (*self._inlined, target.pointer)
        try:
            return self._plain({**target.schema, "description": schema["description"]}, target.pointer, depth)
        finally:
            self._inlined = before

    def _target(self, schema: JsonObject, pointer: str) -> Place | None:
        """The definition that a reference leads to, if it may be written in its place."""
        reference: Any = schema["$ref"]
        if self._has_definitions and not self._inlined and type(reference) is str:
            known = _LOCAL.fullmatch(reference)
            named: Any = self._schema.get(known[1]) if known else None
            target: Any = cast("JsonObject", named).get(known[2]) if known and type(named) is dict else None
            # The text of a definition is not written, and so not judged.
            if type(target) is dict and _is_name(cast("JsonObject", target).get("description", "")):
                self._written.add(reference)
                return Place(target, reference[1:])
        source = self.lowering.source
        if source.draft <= 7:
            return None
        target = source.target(Place(schema, pointer, source.root.base), "$ref")
        return target if target is not None and self.lowering.may_inline(target, self._inlined) else None

    def _constant(self, schema: JsonObject) -> JsonObject | None:
        """Write a text that is the only one allowed."""
        if self._lowering is not None and self._lowering.source.draft < 6:
            return None
        value = schema["const"]
        if not _CONSTANT.issuperset(schema) or schema.get("type", "string") != "string" or not _is_text(value, ""):
            return None
        if "description" not in schema:
            return {"type": "string", "enum": [value]}
        text = schema["description"]
        return {"type": "string", "description": text, "enum": [value]} if _is_text(text, "") else None

    def _or_null(self, schema: JsonObject, pointer: str, depth: int) -> JsonObject | None:
        """Write a nullable value, as many languages express an optional one."""
        branches: Any = schema["anyOf"]
        if not _UNION.issuperset(schema) or _type(branches) is not list or depth >= _DEPTH_MAX:
            return None
        inner, null = branches if len(branches) == 2 else (None, None)
        if null != _NULL or not _has_plain_type(inner) or schema.get("default") is not None or "default" in inner:
            return None
        if "description" in schema and "description" in inner:
            return None
        outer = {keyword: schema[keyword] for keyword in ("description", "title") if keyword in schema}
        for text in outer.values():
            if not _is_text(text, ""):
                return None
        found = self._plain(inner, f"{pointer}/anyOf/0", depth + 1)
        if found is None:
            return None
        if "default" in schema:
            self.losses.add(f"{pointer}/default", "default", self.undocumented, "left out")
        if "title" in outer:
            self._lose_title(outer, pointer)
        return self._nullable(outer, found)

    def _nullable(self, outer: JsonObject, inner: JsonObject) -> JsonObject:
        """Return a schema that may be null, too: each form defines it."""
        raise NotImplementedError

    def _scalar(self, kind: str, schema: JsonObject, pointer: str) -> JsonObject | None:
        checks = self.checks[kind]
        for keyword, value in schema.items():
            if keyword == "type" or (keyword == "description" and type(value) is str and value and value.isascii()):
                continue  # Nearly every schema has both.
            check = checks.get(keyword)
            if check is None or not check(value, kind):
                return self._constant(schema) if "const" in schema else None
        node = schema.copy()
        if self.silent.issuperset(node):
            return node
        if "enum" in node:
            if not _LISTED.issuperset(node):
                return None
            node["enum"] = node["enum"].copy()
        for keyword in _EXCLUSIVE if kind == "integer" else ():
            if keyword in node and not _make_inclusive(node, keyword):
                return None
        return self._texts(kind, node, pointer)

    def _texts(self, kind: str, node: JsonObject, pointer: str) -> JsonObject | None:
        """Take out of a copied schema what is not sent; None if it is not plain."""
        if "title" in node:
            self._lose_title(node, pointer)
        return node

    def _lose_title(self, node: JsonObject, pointer: str) -> None:
        del node["title"]
        self.losses.add(f"{pointer}/title", "title", "models take titles for names of functions", "left out")

    def _array(self, schema: JsonObject, pointer: str, depth: int) -> JsonObject | None:
        if type(schema.get("items")) is not dict or depth >= _DEPTH_MAX:
            return None
        checks = self.checks["array"]
        for keyword, value in schema.items():
            check = checks.get(keyword)
            if check is None or not check(value, "array"):
                return None
        node = schema.copy()
        if "title" in node:
            self._lose_title(node, pointer)
        node["items"] = self.node(schema["items"], f"{pointer}/items", depth + 1)
        return node

    def _object(self, schema: JsonObject, pointer: str, depth: int) -> JsonObject | None:
        if not _OBJECT.issuperset(schema) or depth >= _DEPTH_MAX:
            return None
        properties: Any = schema.get("properties", _NOTHING)
        required: Any = schema.get("required", _NO_NAMES)
        if _type(properties) is not dict or not _are_names_of(required, properties):
            return None
        node: JsonObject = {"type": "object"}
        for keyword in ("description", "title"):
            if keyword in schema:
                if not _is_text(schema[keyword], "object"):
                    return None
                node[keyword] = schema[keyword]
        if "title" in node:
            self._lose_title(node, pointer)
        if not self._additional(schema, node, pointer, depth) or not _are_names(properties):
            return None
        if properties:
            node["properties"] = self._properties(properties, f"{pointer}/properties/", depth + 1)
        if required:
            node["required"] = required.copy()
        return node

    def _properties(self, properties: JsonObject, within: str, depth: int) -> JsonObject:
        return {
            name: self.node(inner, within + (name if "/" not in name and "~" not in name else escaped(name)), depth)
            for name, inner in properties.items()
        }

    def _additional(self, schema: JsonObject, node: JsonObject, pointer: str, depth: int) -> bool:
        """Write the rule for other names; False if the general path has to. Each form defines it."""
        raise NotImplementedError


class _DirectJson(_Direct):
    checks = _JSON_CHECKS
    silent = frozenset({"type", "description", "format", *_NUMBERS})
    undocumented = UNDOCUMENTED

    def _nullable(self, outer: JsonObject, inner: JsonObject) -> JsonObject:
        return {**outer, "anyOf": [inner, {"type": "null"}]}

    def _rewritten(self, shape: Shape) -> JsonObject:
        node = JsonWriter({}, self.losses).node(shape)
        flatten(node)
        return node

    def _texts(self, kind: str, node: JsonObject, pointer: str) -> JsonObject | None:
        if "default" in node:
            word = in_words("default", node.pop("default"))
            node["description"] = with_words(node.get("description", ""), [word])
            self.losses.add(f"{pointer}/default", "default", UNDOCUMENTED, "stated in the description")
        return super()._texts(kind, node, pointer)

    def _additional(self, schema: JsonObject, node: JsonObject, pointer: str, depth: int) -> bool:
        if "additionalProperties" in schema:
            value = schema["additionalProperties"]
            if type(value) is not bool:
                value = self.node(value, f"{pointer}/additionalProperties", depth + 1)
            node["additionalProperties"] = True if value == {} else value
        return True


class _DirectMessage(_Direct):
    checks = _MESSAGE_CHECKS
    silent = frozenset({"type", "description", "minLength", "maxLength", *_NUMBERS})
    undocumented = NOT_A_FIELD

    def __init__(self, schema: Any, losses: Losses, lowered: Lowered, writer: MessageWriter) -> None:
        super().__init__(schema, losses, lowered)
        self._writer = writer

    def _nullable(self, outer: JsonObject, inner: JsonObject) -> JsonObject:
        return {**inner, **outer, "nullable": True}

    def _rewritten(self, shape: Shape) -> JsonObject:
        return self._writer.node(shape)

    def _texts(self, kind: str, node: JsonObject, pointer: str) -> JsonObject | None:
        if "format" in node and node["format"] not in FORMATS[kind]:
            return None
        return super()._texts(kind, node, pointer)

    def _additional(self, schema: JsonObject, node: JsonObject, pointer: str, depth: int) -> bool:
        value = schema.get("additionalProperties", True)
        if type(value) is not bool:
            return False
        if self._writer.surface == "vertex":
            if any(alias_of(name) is not None for name in schema.get("properties", ())):
                return False
            if not value:
                node["additionalProperties"] = False
        elif not value:
            self._writer.lose_closedness(f"{pointer}/additionalProperties")
        return True
