"""Compile a tool's JSON Schema to the form that is declared, with every loss.

The declared form may be wider than the schema and is never narrower: whatever the schema accepts can be sent. What it
omits is described in text or checked when the call arrives, against the schema itself. Raises only
`ToolNotDeclarableError`, for schemas that are unusable or accept no arguments at all, in bounded time for any input.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Literal, TypeAlias, cast

from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.schema.cycles import is_endless, needing_unrolling
from callgate.schema.fast_path import direct_json, direct_message
from callgate.schema.lower import NODES_MAX, Lowering, Plan, TooLargeError
from callgate.schema.names import renamed
from callgate.schema.refs import Source
from callgate.schema.shape import Losses, Lost, Shape
from callgate.schema.soundness import sound_objects
from callgate.schema.validator import require_bounded, usable_validator
from callgate.schema.wire_json import JsonWriter
from callgate.schema.wire_message import MessageWriter
from callgate.strict_json import dump
from callgate.types import JsonObject, Loss, ToolDefinition

__all__ = ["Compiled", "SchemaField", "Surface", "compile_schema", "compiled_of"]

SchemaField: TypeAlias = Literal["parametersJsonSchema", "parameters"]
Surface: TypeAlias = Literal["developer", "vertex"]
Codec: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]

# Tried in turn until the compiled schema is small enough.
_PLANS = (
    Plan(repeats=3, nodes_max=1_500), Plan(repeats=2, nodes_max=1_500), Plan(repeats=1, nodes_max=2_000),
    Plan(repeats=1, nesting=8, nodes_max=3_000), Plan(repeats=1, nesting=4, nodes_max=3_000),
    Plan(repeats=1, nesting=2, nodes_max=3_000), Plan(repeats=1, nesting=1, spread=0, nodes_max=3_000),
    Plan(repeats=1, nesting=0, spread=0),
)  # fmt: skip


_CACHE_MAX = 4_096
_UNREAD = "a pattern that only Python's `re` reads; it could run for ever, so it is not used"

_cache: OrderedDict[tuple[int, str, str], tuple[Mapping[str, Any], str, Compiled | str]] = OrderedDict()
_cache_lock = Lock()


def _same(args: Mapping[str, Any]) -> Mapping[str, Any]:
    return args


@dataclass(frozen=True, slots=True)
class Compiled:
    """The declared form of a schema. Treat it as read-only: it is shared by all declarations of the tool."""

    schema: JsonObject | None
    """None: the schema is empty, and the field is omitted."""
    lost: tuple[Lost, ...] = ()
    encode: Codec = _same
    """Arguments as the tool takes them -> as they would be sent by a model."""
    decode: Codec = _same
    """Arguments as a model sent them -> as the tool takes them."""
    note: str = ""
    """Text about the arguments for the tool's description, because the schema itself is not sent."""
    tool: str | None = None

    @property
    def losses(self) -> list[Loss]:
        """Parts of the schema that its declared form lacks."""
        return [
            Loss(pointer=pointer, keyword=keyword, reason=reason, instead=instead, tool=self.tool)
            for pointer, keyword, reason, instead in self.lost
        ]


def compile_schema(
    schema: Mapping[str, Any] | bool,
    *,
    field: SchemaField = "parametersJsonSchema",
    surface: Surface = "developer",
    tool: str | None = None,
) -> Compiled:
    """Return the form of a schema that Gemini accepts in `field`.

    Raises:
        ToolNotDeclarableError: the schema is not usable, too large, or accepts no object.
        UsageError: an unknown field or surface.
    """
    if field not in ("parametersJsonSchema", "parameters"):
        raise UsageError(f"unknown schema field {field!r}: use 'parametersJsonSchema' or 'parameters'")
    if surface not in ("developer", "vertex"):
        raise UsageError(f"unknown surface {surface!r}: use 'developer' or 'vertex'")
    judged = _Judged(schema, tool)
    found = _directly(schema, judged, field, surface)
    if found is None and judged.source.root.schema is not schema:
        found = _directly(judged.source.root.schema, judged, field, surface)
    if found is None:
        found = _planned(judged, field, surface)
    return replace(found, lost=(*found.lost, *judged.unchecked)) if judged.unchecked else found


class _Judged:
    """A schema, and whether it is usable at all, which is found out when somebody asks: plain ones are seen to be."""

    def __init__(self, schema: Mapping[str, Any] | bool, tool: str | None) -> None:
        self._schema = schema
        self._source: Source | None = None
        self.tool = tool
        self.objects = 0
        """The number of JSON objects in it, once `source` was asked for."""
        self.unchecked: list[Lost] = []

    @property
    def source(self) -> Source:
        """The usable schema, in which references may be corrected.

        Raises:
            ToolNotDeclarableError: the schema is not usable, or accepts no object.
        """
        if self._source is None:
            self._source = self._judge(self._schema)
        return self._source

    def _judge(self, schema: Mapping[str, Any] | bool) -> Source:
        own = sound_objects(schema)
        if own is None:
            validator = usable_validator(schema if isinstance(schema, Mapping) else {"allOf": [schema]}, self.tool)
            self.objects = validator.objects
            self.unchecked = [(one.pointer, one.keyword, _UNREAD, "not checked") for one in validator.unchecked]
            schema = validator.source if isinstance(schema, Mapping) else schema
        else:
            self.objects = own
            if not _may_recur(schema):
                return Source(schema)
            require_bounded(cast("Mapping[str, Any]", schema), self.tool)
        source = Source(schema)
        if is_endless(source):
            raise ToolNotDeclarableError(
                f"{_named(self.tool)}its input schema accepts no object, so it could never be called: an object must hold"
                " one of its own kind, and so on without end"
            )
        return source


def _may_recur(schema: Mapping[str, Any] | bool) -> bool:
    """True if a schema that is known to be sound has definitions that refer to others, or to themselves."""
    if isinstance(schema, bool):
        return False
    definitions = [schema[word] for word in ("$defs", "definitions") if word in schema]
    return bool(definitions) and b'"$ref"' in dump(definitions)


def _planned(judged: _Judged, field: SchemaField, surface: Surface) -> Compiled:
    """Compile a usable schema by the first plan that makes it small enough."""
    source, own, tool = judged.source, judged.objects, judged.tool
    for plan in _PLANS if own <= 2 * NODES_MAX else ():
        losses = Losses()
        # A schema that is large by itself may grow in proportion.
        if 2 * own > plan.nodes_max:
            plan = replace(plan, nodes_max=min(2 * own, NODES_MAX))
        try:
            if field == "parameters":
                return _message(source, losses, plan, surface, tool)
            return _json(source, losses, plan, tool)
        except TooLargeError:
            continue
    raise ToolNotDeclarableError(f"{_named(tool)}its input schema comes to more than {NODES_MAX} schemas; make it smaller")


def compiled_of(definition: ToolDefinition, *, field: SchemaField, surface: Surface) -> Compiled:
    """Like `compile_schema`, for a definition, and cached.

    Raises:
        ToolNotDeclarableError: the schema cannot be declared; the message names the tool.
    """
    schema = definition.input_schema
    # As long as the entry keeps the schema alive, its id is unique.
    key = (id(schema), field, surface)
    with _cache_lock:
        entry = _cache.get(key)
        if entry is not None and entry[0] is schema:
            _cache.move_to_end(key)
        else:
            entry = None
    if entry is None:
        entry = (schema, definition.name, _compiled(definition, field, surface))
        with _cache_lock:
            _cache[key] = entry
            while len(_cache) > _CACHE_MAX:
                _cache.popitem(last=False)
    _, tool, found = entry
    if isinstance(found, str):
        raise ToolNotDeclarableError(f"{_named(definition.name)}{found}")
    if tool != definition.name:  # one schema may serve several tools
        return replace(found, tool=definition.name)
    return found


def _compiled(definition: ToolDefinition, field: SchemaField, surface: Surface) -> Compiled | str:
    """Return the compiled form, or the reason for its absence without the name of the tool."""
    try:
        return compile_schema(definition.input_schema, field=field, surface=surface, tool=definition.name)
    except ToolNotDeclarableError as error:
        return str(error).removeprefix(_named(definition.name))


def _directly(schema: Any, judged: _Judged, field: SchemaField, surface: Surface) -> Compiled | None:
    """Compile a plain schema; None for others."""
    losses = Losses()

    def lowered() -> Lowering | None:
        source = judged.source
        if source.root.schema is not schema:
            return None
        return Lowering(source, losses, plan=_PLANS[0], keeps_refs=field == "parametersJsonSchema")

    if field == "parametersJsonSchema":
        node = direct_json(schema, losses, lowered)
        return _compiled_json(node, losses, judged.tool) if node is not None else None
    writer = MessageWriter(losses, surface)
    node = direct_message(schema, losses, lowered, writer)
    return _compiled_message(node, writer, losses, judged.tool) if node is not None else None


def _json(source: Source, losses: Losses, plan: Plan, tool: str | None) -> Compiled:
    lowering = Lowering(source, losses, plan=plan, keeps_refs=True)
    root = lowering.root()
    if unrolled := needing_unrolling(lowering.shapes):
        losses = Losses()
        lowering = Lowering(source, losses, plan=plan, keeps_refs=True, unrolled=unrolled)
        root = lowering.root()
    _require_object(root, tool)
    return _compiled_json(JsonWriter(lowering.shapes, losses).document(root), losses, tool)


def _compiled_json(node: JsonObject, losses: Losses, tool: str | None) -> Compiled:
    return Compiled(None if _says_nothing(node) else node, losses.all(), tool=tool)


def _message(source: Source, losses: Losses, plan: Plan, surface: Surface, tool: str | None) -> Compiled:
    root = Lowering(source, losses, plan=plan, keeps_refs=False).root()
    _require_object(root, tool)
    writer = MessageWriter(losses, surface)
    return _compiled_message(writer.document(root), writer, losses, tool)


def _compiled_message(node: JsonObject, writer: MessageWriter, losses: Losses, tool: str | None) -> Compiled:
    if not node.get("properties"):
        # The server refuses an object without properties here, so its description goes to the tool.
        return Compiled(None, losses.all(), note=str(node.get("description", "")), tool=tool)
    if not writer.aliases:
        return Compiled(node, losses.all(), tool=tool)
    aliases = dict(writer.aliases)
    names = {name: alias for alias, name in aliases.items()}
    return Compiled(node, losses.all(), lambda args: renamed(args, names), lambda args: renamed(args, aliases), tool=tool)


def _require_object(root: Shape, tool: str | None) -> None:
    if root.is_never:
        raise ToolNotDeclarableError(
            f"{_named(tool)}its input schema accepts no object, so it could never be called; arguments are always an object"
        )


def _says_nothing(node: JsonObject) -> bool:
    """True if a schema only says that there are no arguments."""
    return len(node) <= 2 and node in ({"type": "object"}, {"type": "object", "additionalProperties": False})


def _named(tool: str | None) -> str:
    return f"tool {tool!r}: " if tool is not None else ""
