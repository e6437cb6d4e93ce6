"""Resolve the references of a schema. Fetches nothing.

Supports pointers, escaped pointers, anchors, `$id`s, `$dynamicRef` and `$recursiveRef` of drafts 4 to 2020-12. Knows
locations, and nothing of the meaning of keywords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import quote, unquote, urldefrag, urljoin

__all__ = ["DRAFTS", "Place", "Source", "as_list", "as_mapping", "escaped", "subschemas", "with_references"]

DRAFTS = {"draft-04/": 4, "draft-06/": 6, "draft-07/": 7, "draft/2019-09/": 2019, "draft/2020-12/": 2020}
"""Substrings of `$schema` that identify a draft, and the number by which drafts are compared here."""

_ONE = frozenset({
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
})  # fmt: skip
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_HOLDERS = _ONE | _LISTS | _MAPS


_EMPTY: Mapping[str, Any] = {}


class Place(NamedTuple):
    """A schema, its place in the source, and the base URI of its references."""

    schema: Any
    pointer: str
    base: str = ""


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    # Nearly everything is a plain dict or not there, and asking for that is much quicker.
    if type(value) is dict:
        return cast("Mapping[str, Any]", value)
    return cast("Mapping[str, Any]", value) if value is not None and isinstance(value, Mapping) else _EMPTY


def as_list(value: Any) -> Sequence[Any]:
    """Return the value if it is a list, else an empty one."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def escaped(step: str | int) -> str:
    """One step of a JSON pointer."""
    text = str(step)
    return text.replace("~", "~0").replace("/", "~1") if "/" in text or "~" in text else text


def subschemas(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every schema directly below a schema, by position: a property named `items` is a property."""
    for key, value in node.items():
        if key not in _HOLDERS:
            continue
        if key in _MAPS:
            for name, inner in as_mapping(value).items():
                if type(inner) is dict or isinstance(inner, Mapping):
                    yield (key, name), cast("Any", inner)
        elif isinstance(value, (list, tuple)):
            if key in _LISTS:
                yield from (((key, index), inner) for index, inner in enumerate(cast("Sequence[Any]", value)))
        elif key in _ONE and isinstance(value, Mapping):
            yield (key,), cast("Any", value)


class Source:
    """A whole schema, and navigation in it."""

    def __init__(self, schema: Any) -> None:
        dialect = str(cast("Mapping[str, Any]", schema).get("$schema", "")) if isinstance(schema, Mapping) else ""
        self.draft = next((number for mark, number in DRAFTS.items() if mark in dialect), 2020)
        self.id_key = "id" if self.draft == 4 else "$id"
        base = self._base("", schema)
        self.root = Place(schema, "", base)
        self._resources: dict[str, Place] | None = None
        self._anchors: dict[tuple[str, str], Place] = {}
        self._dynamic: dict[str, list[Place]] = {}

    def target(self, place: Place, keyword: str) -> Place | None:
        """Resolve the reference of a schema; None if it is external, or depends on the arguments."""
        reference = place.schema[keyword]
        if not isinstance(reference, str):
            return None
        if keyword == "$recursiveRef":
            return self._resource(place.base) if len(self._index()) == 1 else None
        resource, fragment = self._split(place.base, reference)
        found = self._resource(resource)
        if found is None:
            return None
        if not fragment:
            return found
        if fragment.startswith("/"):
            return self._walk(found, fragment) or (self._nearby(place, fragment) if resource == place.base else None)
        self._index()
        anchored = self._anchors.get((resource, fragment))
        # Which of several dynamic anchors applies depends on the dynamic scope.
        return None if keyword == "$dynamicRef" and len(self._dynamic.get(fragment, ())) > 1 else anchored

    def is_foreign(self, schema: Mapping[str, Any]) -> bool:
        """True if an embedded schema declares another dialect."""
        dialect = str(schema["$schema"])
        return "//json-schema.org/" not in dialect or Source(schema).draft != self.draft

    def misplaced(self, place: Place, keyword: str) -> str | None:
        """Return the corrected reference if it only resolves relative to an enclosing schema; else None.

        Schemas that were embedded unchanged, definitions and all, have such references.
        """
        reference = place.schema[keyword]
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        found, fragment = self._resource(place.base), unquote(reference[1:])
        if found is None or self._walk(found, fragment) is not None:
            return None
        nearby = self._nearby(place, fragment)
        return f"#{quote(nearby.pointer[len(found.pointer) :], safe='/~$')}" if nearby is not None else None

    def is_outside(self, place: Place, keyword: str) -> bool:
        """True if a reference leads out of this document, wherever to."""
        reference = place.schema[keyword]
        if not isinstance(reference, str) or keyword == "$recursiveRef":
            return False
        return self._resource(self._split(place.base, reference)[0]) is None

    def followed(self, place: Place, keyword: str) -> Place | None:
        """Like `target`, but skips schemas that are only a reference; None also for a circular chain."""
        seen: set[str] = set()
        while True:
            target = self.target(place, keyword)
            if target is None or list(as_mapping(target.schema)) != ["$ref"]:
                return target
            if target.pointer in seen:
                return None
            seen.add(target.pointer)
            place, keyword = target, "$ref"

    def below(self, place: Place, *steps: str | int) -> Place:
        """Return the schema below a place, with its base URI."""
        schema, pointer, base = place
        for step in steps:
            schema = schema[step]
            pointer = f"{pointer}/{escaped(step)}"
        return Place(schema, pointer, self._base(base, schema))

    def base_of(self, schema: Any) -> str:
        """Return the base URI of a schema in the outermost resource."""
        return self._base(self.root.base, schema)

    def places(self) -> Iterator[Place]:
        """Every schema of the document, in its order."""
        stack = [self.root]
        while stack:
            place = stack.pop()
            yield place
            inner = [self.below(place, *steps) for steps, _ in subschemas(as_mapping(place.schema))]
            stack.extend(reversed(inner))

    def _base(self, base: str, schema: Any) -> str:
        node = as_mapping(schema)
        if self.id_key not in node:
            return base
        # Up to draft 7 all siblings of a `$ref` are ignored, including `$id`.
        own = node.get(self.id_key)
        if not isinstance(own, str) or own.startswith("#") or (self.draft <= 7 and "$ref" in node):
            return base
        try:
            return urldefrag(urljoin(base, own)).url
        except ValueError:
            return base

    def _split(self, base: str, reference: str) -> tuple[str, str]:
        if reference.startswith("#"):
            return base, unquote(reference[1:])
        try:
            resource, fragment = urldefrag(urljoin(base, reference))
        except ValueError:
            return reference, ""
        return resource, unquote(fragment)

    def _resource(self, uri: str) -> Place | None:
        return self.root if uri == self.root.base else self._index().get(uri)

    def _index(self) -> dict[str, Place]:
        if self._resources is None:
            self._resources = {}
            for place in self.places():
                # Up to draft 7 `$defs` is not a keyword: pointers resolve there, but anchors and ids do not count.
                if self.draft > 7 or "/$defs/" not in place.pointer:
                    self._enter(self._resources, place, as_mapping(place.schema))
        return self._resources

    def _enter(self, resources: dict[str, Place], place: Place, node: Mapping[str, Any]) -> None:
        resources.setdefault(place.base, place)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.get(keyword), str):
                self._anchors.setdefault((place.base, name), place)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(name, []).append(place)
        own = node.get(self.id_key)
        if isinstance(own, str) and self.draft <= 7 and "#" in own and "$ref" not in node:
            resource, _, name = own.partition("#")
            if name:
                self._anchors.setdefault((urljoin(place.base, resource) if resource else place.base, name), place)

    def _nearby(self, place: Place, fragment: str) -> Place | None:
        """Resolve a pointer from the nearest enclosing schema of the same resource where it resolves."""
        resource = self._resource(place.base)
        if resource is None or not place.pointer.startswith(resource.pointer):
            return None
        around = [resource]
        for step in place.pointer[len(resource.pointer) :].split("/")[1:]:
            inner = self._step(around[-1], step)
            if inner is None:
                return None
            around.append(inner)
        return next((found for start in reversed(around) if (found := self._walk(start, fragment))), None)

    def _walk(self, place: Place, fragment: str) -> Place | None:
        for step in fragment.split("/")[1:]:
            inner = self._step(place, step)
            if inner is None:
                return None
            place = inner
        return place if isinstance(place.schema, (Mapping, bool)) else None

    def _step(self, place: Place, step: str) -> Place | None:
        """Return the value one pointer step below a place, schema or not."""
        key: str | int = step.replace("~1", "/").replace("~0", "~")
        holder = place.schema
        if isinstance(holder, list):
            if not step.isdecimal() or int(step) >= len(cast("list[Any]", holder)):
                return None
            key = int(step)
        elif not isinstance(holder, Mapping) or key not in holder:
            return None
        return self.below(place, key)


def with_references(source: Source, rewritten: Callable[[Place, str], str | None]) -> dict[str, Any] | None:
    """Copy a schema with other references; None if all are kept.

    `rewritten` returns the new `$ref` for the reference of a place by its keyword, or None to keep it.
    """
    is_changed = False
    root = dict(as_mapping(source.root.schema))
    stack = [(source.root, root)]
    while stack:
        place, copy = stack.pop()
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in copy and (reference := rewritten(place, keyword)) is not None:
                del copy[keyword]
                copy["$ref"] = reference
                is_changed = True
        for steps, inner in subschemas(as_mapping(place.schema)):
            if not isinstance(inner, Mapping):
                continue
            key, own = steps[0], dict(cast("Mapping[str, Any]", inner))
            if len(steps) == 1:
                copy[str(key)] = own
            else:
                if copy[str(key)] is place.schema[key]:
                    held = place.schema[key]
                    copy[str(key)] = dict(as_mapping(held)) if isinstance(held, Mapping) else list(as_list(held))
                copy[str(key)][steps[1]] = own
            stack.append((source.below(place, *steps), own))
    return root if is_changed else None
