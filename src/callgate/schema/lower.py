"""Lower a JSON Schema to a `Shape`: resolve references, merge `allOf`, expand unions, cut recursion, within bounds.

The shape is never narrower than the schema, and every difference is reported as a loss. Knows no wire format;
`keeps_refs` says whether definitions may be shared or must be inlined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from callgate.schema.conjunction import (
    CONSTRAINING,
    ONE_TYPE,
    REFERENCES,
    SIMPLE_LIMITS,
    Facet,
    heads_and_rest,
    key_names,
    knows,
    merged,
    settle,
    view,
)
from callgate.schema.refs import Place, Source, as_list, as_mapping
from callgate.schema.shape import ALL_TYPES, Key, Limit, Losses, Shape, never, types_meet
from callgate.schema.unions import Exclusive, only_requires, requirement_words, united

__all__ = ["NODES_MAX", "Lowering", "Plan", "TooLargeError"]

NODES_MAX = 10_000
"""Maximum number of schemas after inlining references."""

_DEPTH_MAX = 32
_FAN_MAX = 32
_LEVELS_MAX = 3
_UNION_TYPES_DEPTH = 8
_TEXTS = frozenset({"description", "default", "examples"})
_BESIDE_REF = frozenset({"$comment", "$schema", "$id", "id", "$anchor", "$defs", "definitions", "title", "$dynamicAnchor"})


_SPREAD = frozenset({*REFERENCES, "allOf", "anyOf", "oneOf"})
_SCALARS = ("string", "integer", "number", "boolean", "null")
_BARE = frozenset({"type", "description"})
_SIMPLE = frozenset({"type", "description", "title", "default", "enum", "const", "format", "examples", *SIMPLE_LIMITS})


class TooLargeError(Exception):
    """A plan led to more schemas than it allows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits for inlining references."""

    repeats: int = 3
    """Maximum nesting of one definition in itself."""
    nesting: int = 64
    """Maximum nesting of definitions."""
    spread: int = 200
    """Maximum number of properties that are repeated to distinguish the branches of a union."""
    nodes_max: int = NODES_MAX


class _Trail(NamedTuple):
    """The path to a place."""

    inlined: tuple[str, ...] = ()
    level: int = 0
    depth: int = 0
    fan: int = 1

    @property
    def deeper(self) -> _Trail:
        return _Trail(self.inlined, self.level, self.depth + 1)


@dataclass(slots=True)
class _Union:
    keyword: str
    place: Place
    branches: list[Place]


@dataclass(slots=True)
class _Together:
    """All schemas that apply to one value."""

    facets: list[Facet] = field(default_factory=list[Facet])
    unions: list[_Union] = field(default_factory=list[_Union])
    notes: list[str] = field(default_factory=list[str])
    is_never: bool = False
    types: frozenset[str] | None = None
    """Types that are left of references that were not followed."""


class Lowering:
    """Lowering of one schema. `shapes` holds the shared definitions after `root`."""

    def __init__(
        self, source: Source, losses: Losses, *, plan: Plan, keeps_refs: bool, unrolled: frozenset[str] = frozenset()
    ) -> None:
        self.source = source
        self.losses = losses
        self.plan = plan
        self.keeps_refs = keeps_refs
        self.unrolled = unrolled
        self.shapes: dict[Key, Shape] = {}
        self.exclusives: list[Exclusive] = []
        self._nodes = 0
        self._pending: list[tuple[Key, Place]] = []
        self._known: set[Key] = set()

    def root(self) -> Shape:
        """The shape of the whole schema, which is that of an object.

        Raises:
            TooLargeError: the plan does not do.
        """
        is_object = Place({"type": "object"}, "#")
        # A reference at the root is inlined: a root must declare itself that it is an object.
        shape = self.shape([is_object, self.source.root], _Trail())
        while self._pending:
            key, place = self._pending.pop()
            self.shapes[key] = self.shape([place], _Trail(level=key[1]))
        self.report()
        return shape

    def shape_below(self, schema: Any, pointer: str, depth: int, inlined: tuple[str, ...]) -> Shape | None:
        """Lower one part of a schema whose outer parts change no base; None if it leads to a shared definition."""
        place = Place(schema, pointer, self.source.base_of(schema))
        shape = self.shape([place], _Trail(inlined, depth=depth))
        return None if self._pending else shape

    def may_inline(self, target: Place, inlined: tuple[str, ...]) -> bool:
        """True if a definition may be written out once more inside those that are."""
        return inlined.count(target.pointer) < self.plan.repeats and len(inlined) < self.plan.nesting

    def report(self) -> None:
        """Report losses that are known only when all shapes exist."""
        for exclusive in self.exclusives:
            exclusive.report(self.losses, self.shapes)

    def shape(
        self, places: Sequence[Place], trail: _Trail, carried: Sequence[Facet] = (), unions: Sequence[_Union] = ()
    ) -> Shape:
        """The shape of a value that must fit all the places, and all that is carried along to them."""
        if not places and not carried:
            return Shape()
        pointer = places[-1].pointer if places else carried[0].place.pointer
        if trail.depth > _DEPTH_MAX:
            self.losses.add(pointer, "nesting", f"nested deeper than {_DEPTH_MAX} schemas", "widened")
            return Shape(pointer=pointer, types=self._types(places, 0))
        if len(places) == 1 and not carried and not unions:
            if (simple := self._simple(places[0])) is not None:
                return simple
            if self.keeps_refs and (shared := self._shared(places[0], trail)):
                return shared
        together = _Together(facets=list(carried), unions=list(unions))
        trail = self._collect(places, together, trail)
        if together.is_never:
            return never(pointer)
        self._settle_requirements(together)
        union = self._next_union(together, trail)
        if union is not None:
            return self._spread(union, together, trail, pointer)
        return self._whole(together, trail, pointer)

    def _simple(self, place: Place) -> Shape | None:
        """A scalar with nothing but simple keywords, which most schemas are; None for all others."""
        node = as_mapping(place.schema)
        if node.get("type") not in _SCALARS or not _SIMPLE.issuperset(node):
            return None
        self.count()
        if _BARE.issuperset(node):
            return Shape(place.pointer, ONE_TYPE[node["type"]], str(node.get("description", "")))
        shape = merged([Facet(place, node)], place.pointer, self.source.draft, self.losses)
        return never(place.pointer) if shape.is_never else shape

    # References -----------------------------------------------------------------------------------------------------------

    def _shared(self, place: Place, trail: _Trail) -> Shape | None:
        """A schema that is nothing but a reference, as a reference; None if it has to be looked into."""
        node = as_mapping(place.schema)
        keyword = next((word for word in REFERENCES if word in node and knows(self.source.draft, word)), None)
        if keyword is None or (self.source.draft > 7 and not node.keys() <= _BESIDE_REF | {keyword}) or _TEXTS & node.keys():
            return None
        target = self.source.followed(place, keyword)
        if target is None or not isinstance(target.schema, Mapping):
            return None
        level = trail.level + (target.pointer in self.unrolled)
        if level > _LEVELS_MAX:
            return self._cut(place, keyword, target, "recursion through properties that are required is not taken")
        key = (target.pointer, level)
        if key not in self._known:
            self._known.add(key)
            self._pending.append((key, target))
        return Shape(pointer=place.pointer, ref=key)

    def _cut(self, place: Place, keyword: str, target: Place, reason: str) -> Shape:
        self.losses.add(f"{place.pointer}/{keyword}", keyword, reason, "widened")
        return Shape(pointer=place.pointer, types=self._types([target], 0), notes=["nested as above"])

    def _collect(self, places: Iterable[Place], together: _Together, trail: _Trail) -> _Trail:
        """Spread out references and `allOf`s, outer ones first, so that the nearest text wins."""
        queue = list(places)
        seen = {facet.place.pointer for facet in together.facets}
        for place in queue:  # grows while it is walked
            self.count()
            if isinstance(place.schema, bool):
                together.is_never = together.is_never or not place.schema
                continue
            node = as_mapping(place.schema)
            if place.pointer in seen or not node:
                continue
            seen.add(place.pointer)
            if "$schema" in node and place.pointer and self.source.is_foreign(node):
                self.losses.add(f"{place.pointer}/$schema", "$schema", "a schema of another dialect", "widened")
                continue
            if _SPREAD.isdisjoint(node):
                together.facets.append(Facet(place, node))
                continue
            trail = self._collect_references(place, node, together, trail, queue)
            replaced = self.source.draft <= 7 and "$ref" in node
            together.facets.append(Facet(place, node, constrains=not replaced))
            if not replaced:
                queue += [self.source.below(place, "allOf", i) for i in range(len(as_list(node.get("allOf"))))]
                together.unions += self._unions(place, node)
        return trail

    def _collect_references(
        self, place: Place, node: Mapping[str, Any], together: _Together, trail: _Trail, queue: list[Place]
    ) -> _Trail:
        for keyword in REFERENCES:
            if keyword not in node or not knows(self.source.draft, keyword):
                continue
            target = self.source.followed(place, keyword)
            where = f"{place.pointer}/{keyword}"
            if target is None:
                self.losses.add(where, keyword, "leads outside the schema, or round in a circle", "widened")
            elif any(item.pointer == target.pointer for item in queue):
                pass  # already implied
            elif self.may_inline(target, trail.inlined):
                trail = trail._replace(inlined=(*trail.inlined, target.pointer))
                queue.append(target)
            else:
                self.losses.add(
                    where, keyword, "recursion, or more definitions inside one another than can be sent", "widened"
                )
                together.types = types_meet(together.types, self._types([target], 0))
        return trail

    def _types(self, places: Sequence[Place], depth: int) -> frozenset[str] | None:
        """The types that all the places allow, without looking below them."""
        types: frozenset[str] | None = None
        if depth > _UNION_TYPES_DEPTH:
            return None
        for place in places:
            node = as_mapping(place.schema)
            if self.source.draft <= 7 and "$ref" in node:
                node = {"$ref": node["$ref"]}
            named: Any = node.get("type")
            listed = frozenset([named] if isinstance(named, str) else as_list(named))
            if listed and listed <= frozenset(ALL_TYPES):
                types = types_meet(types, listed)
            if "$ref" in node and (target := self.source.followed(place, "$ref")):
                types = types_meet(types, self._types([target], depth + 1))
            members = [self.source.below(place, "allOf", i) for i in range(len(as_list(node.get("allOf"))))]
            types = types_meet(types, self._types(members, depth + 1)) if members else types
            for union in self._unions(place, node):
                found = [self._types([branch], depth + 1) for branch in union.branches[:50]]
                if None not in found and len(union.branches) <= 50:
                    types = types_meet(types, frozenset[str]().union(*cast("list[frozenset[str]]", found)))
        return types

    # Unions ---------------------------------------------------------------------------------------------------------------

    def _unions(self, place: Place, node: Mapping[str, Any]) -> list[_Union]:
        return [
            _Union(keyword, place, [self.source.below(place, keyword, index) for index in range(count)])
            for keyword in ("anyOf", "oneOf")
            if (count := len(as_list(node.get(keyword))))
        ]

    def _settle_requirements(self, together: _Together) -> None:
        """Turn unions that only list required properties into text, instead of repeating the whole object."""
        if not together.unions:
            return
        left: list[_Union] = []
        for union in together.unions:
            nodes = [as_mapping(branch.schema) for branch in union.branches]
            if not all(map(only_requires, nodes)):
                left.append(union)
                continue
            pointer = f"{union.place.pointer}/{union.keyword}"
            self.losses.add(pointer, union.keyword, "alternatives of required properties", "stated in the description")
            together.notes.append(requirement_words(union.keyword, nodes))
        together.unions = left

    def _next_union(self, together: _Together, trail: _Trail) -> _Union | None:
        """The union to spread next; those that would make the schema too large are left out."""
        if not together.unions:
            return None
        size = sum(len(as_mapping(facet.node.get("properties"))) for facet in together.facets)
        while together.unions:
            union = together.unions.pop(0)
            count = trail.fan * len(union.branches)
            is_alone = not together.unions and trail.fan == 1
            if (is_alone or count <= _FAN_MAX) and size * count <= self.plan.spread:
                return union
            pointer = f"{union.place.pointer}/{union.keyword}"
            self.losses.add(pointer, union.keyword, "too many combinations with its siblings", "widened")
        return None

    def _spread(self, union: _Union, together: _Together, trail: _Trail, pointer: str) -> Shape:
        """Return one shape for each branch, merged with the siblings of the union."""
        silent = [facet._replace(annotates=False) for facet in together.facets] if _constrains(together) else []
        if together.types is not None:
            silent.append(Facet(Place({}, ""), {"type": sorted(together.types)}, annotates=False))
        fan = trail.fan * len(union.branches) if silent or together.unions else 1
        inner = trail._replace(depth=trail.depth + 1, fan=fan)
        branches = [self.shape([branch], inner, silent, together.unions) for branch in union.branches]
        texts = [facet._replace(constrains=False) for facet in together.facets if facet.annotates]
        # Siblings of the union are reported with the branches that they are merged into.
        outer = merged(texts, pointer, self.source.draft, Losses() if silent else self.losses)
        outer.notes += together.notes
        if union.keyword == "oneOf":
            self.exclusives.append(Exclusive(f"{union.place.pointer}/oneOf", branches))
        return united(outer, branches)

    # Values ---------------------------------------------------------------------------------------------------------------

    def _whole(self, together: _Together, trail: _Trail, pointer: str) -> Shape:
        shape = merged(together.facets, pointer, self.source.draft, self.losses)
        shape.notes += together.notes
        if together.types is not None:
            shape.types = types_meet(shape.types, together.types)
            settle(shape)
        if shape.is_never:
            return never(pointer)
        facets = [facet for facet in together.facets if facet.constrains]
        deeper = trail.deeper
        if shape.may_be("object"):
            self._object(shape, facets, deeper)
        if shape.may_be("array"):
            self._array(shape, facets, deeper)
        if not shape.may_be("object"):
            shape.properties, shape.required, shape.additional = {}, [], None
        return never(pointer) if shape.types is not None and not shape.types else shape

    def _object(self, shape: Shape, facets: Sequence[Facet], trail: _Trail) -> None:
        names: dict[str, None] = {}
        listed: list[list[str]] = []
        for facet in facets:
            names |= dict.fromkeys(as_mapping(facet.node.get("properties")))
            shape.required += [name for name in as_list(facet.node.get("required")) if isinstance(name, str)]
            shape.ordering += [name for name in as_list(facet.node.get("propertyOrdering")) if isinstance(name, str)]
            known = knows(self.source.draft, "propertyNames")
            if known and (found := key_names(facet.node.get("propertyNames"))) is not None:
                listed.append(found)
                shape.where["additionalProperties"] = f"{facet.place.pointer}/propertyNames"
        shape.required = list(dict.fromkeys(shape.required))
        if shape.values is not None:
            needed = set(shape.required)
            shape.values = [value for value in shape.values if not isinstance(value, Mapping) or needed <= value.keys()]
            settle(shape)
        for found in listed:
            names |= dict.fromkeys(found)
        names |= dict.fromkeys(shape.required)
        allowed = set(names).intersection(*listed) if listed else set(names)
        for name in names:
            self._property(shape, facets, name, trail, is_allowed=name in allowed)
        shape.additional = False if listed else self._additional(shape, facets, trail)
        shape.ordering = [name for name in dict.fromkeys(shape.ordering) if name in shape.properties]

    def _property(self, shape: Shape, facets: Sequence[Facet], name: str, trail: _Trail, *, is_allowed: bool) -> None:
        places = [self.source.below(facet.place, *steps) for facet in facets if (steps := view(facet, name))]
        inner = self.shape(places, trail) if is_allowed else never(shape.pointer)
        if not inner.is_never:
            shape.properties[name] = inner
        elif name in shape.required:
            shape.types = (_NO_OBJECT if shape.types is None else shape.types) - {"object"}
        # In a closed object nothing is lost: the name is simply not there.
        elif is_allowed and not any(facet.node.get("additionalProperties") is False for facet in facets):
            shape.notes.append(f"without {name}")
            self.losses.add(
                places[-1].pointer, "properties", "a property that may not be there", "stated in the description"
            )

    def _additional(self, shape: Shape, facets: Sequence[Facet], trail: _Trail) -> Shape | bool | None:
        """The shape of properties without a name of their own. None: unrestricted."""
        places: list[Place] = []
        patterned: list[Facet] = []
        is_open = False
        for facet in facets:
            value = facet.node.get("additionalProperties")
            if value is not None:
                shape.where["additionalProperties"] = f"{facet.place.pointer}/additionalProperties"
            if as_mapping(facet.node.get("patternProperties")):
                patterned.append(facet)
            elif value is False:
                return False
            elif value is True or value == {}:
                is_open = True
            elif isinstance(value, Mapping):
                places.append(self.source.below(facet.place, "additionalProperties"))
        if places:
            inner = self.shape(places, trail)
            is_open = is_open or (inner.is_any and not (inner.text or inner.notes))
            return False if inner.is_never else True if is_open and inner.is_any else inner
        if len(patterned) == 1 and "additionalProperties" in patterned[0].node:
            return self._patterned(patterned[0], shape.pointer, trail)
        return True if is_open else None

    def _patterned(self, facet: Facet, pointer: str, trail: _Trail) -> Shape | bool:
        """Merge the schemas of pattern properties and additional ones: any may apply to an unknown key."""
        steps: list[tuple[str, ...]] = [("patternProperties", name) for name in facet.node["patternProperties"]]
        steps.append(("additionalProperties",))
        branches = [self.shape([self.source.below(facet.place, *step)], trail) for step in steps]
        inner = united(Shape(pointer=pointer), branches)
        where = f"{facet.place.pointer}/additionalProperties"
        self.losses.add(where, "additionalProperties", "keys cannot be distinguished by patterns", "widened")
        return False if inner.is_never else True if inner.is_any else inner

    def _array(self, shape: Shape, facets: Sequence[Facet], trail: _Trail) -> None:
        tuples = [(facet, *heads_and_rest(facet, self.source.draft)) for facet in facets]
        count = max((len(heads) for _, heads, _ in tuples), default=0)
        for facet, heads, _ in tuples:
            if heads:
                shape.where["prefixItems"] = f"{facet.place.pointer}/{heads[0][0]}"
        for index in range(count + 1):
            places = [
                self.source.below(facet.place, *steps)
                for facet, heads, rest in tuples
                if (steps := heads[index] if index < len(heads) else rest)
            ]
            inner = self.shape(places, trail) if places else Shape(pointer=shape.pointer)
            if inner.is_never:
                _at_most(shape, index)
                return
            if index < count:
                shape.prefix.append(inner)
            elif places:
                shape.items = inner

    def count(self, more: int = 1) -> None:
        """Count further schemas.

        Raises:
            TooLargeError: the limits of the plan are exceeded.
        """
        self._nodes += more
        if self._nodes > self.plan.nodes_max:
            raise TooLargeError


_NO_OBJECT = frozenset({"string", "number", "integer", "boolean", "array", "null"})


def _constrains(together: _Together) -> bool:
    if together.types is not None:
        return True
    return any(facet.constrains and not CONSTRAINING.isdisjoint(facet.node) for facet in together.facets)


def _at_most(shape: Shape, count: int) -> None:
    held = shape.limits.get("maxItems")
    if held is None or held.value > count:
        shape.limits["maxItems"] = Limit(count, shape.pointer)
