"""Export our tools as functions for google-genai's automatic function calling.

The signatures of the functions make the SDK declare our schemas. The SDK sends exceptions to the model as errors, so
failed and denied calls raise one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from itertools import count
from types import MappingProxyType
from typing import Annotated, Any, cast

from pydantic import WithJsonSchema

from callgate.adapters.gated_tools import GatedTools, without_media
from callgate.declaration import declared_names
from callgate.definitions.json_node import value_at
from callgate.errors import ToolError, UsageError
from callgate.schema import compile_schema
from callgate.types import JsonObject, ToolDefinition, ToolResult

__all__ = ["functions_of"]

_VERSION_MIN = (2, 34)
"""Older versions pass the text of an annotation to `isinstance`, so that no call with an argument arrives."""

_NODES_MAX = 2_000
"""Objects and lists of one schema without references; types that share others by reference can stand for millions."""

_DEPTHS = (100, 16, 8, 6, 4, 3, 2, 1)
"""Nested references that are followed: the deepest with which the schema is not too large."""


def functions_of(gated: GatedTools, *, is_async: bool) -> list[Callable[..., Any]]:
    """Return a function for each gated tool, under a name that Gemini accepts.

    Raises:
        UsageError: the SDK is too old: it would refuse every call, and tell the model so.
    """
    installed = _version()
    if installed is not None and tuple(map(int, re.findall(r"\d+", installed)[:2])) < _VERSION_MIN:
        wanted = ".".join(map(str, _VERSION_MIN))
        raise UsageError(
            f"to_google_genai needs google-genai {wanted} or newer, and {installed} is installed: upgrade it, or use a Gate "
            "with GenaiModel(client, ...)"
        )
    definitions = {definition.name: definition for definition in gated.definitions}
    names = declared_names(definitions.values())
    return [_function(gated, definitions[own], name, is_async=is_async) for name, own in names.items()]


def _version() -> str | None:
    try:
        return metadata.version("google-genai")
    except metadata.PackageNotFoundError:
        return None


def _function(gated: GatedTools, definition: ToolDefinition, name: str, *, is_async: bool) -> Callable[..., Any]:
    async def ask(**args: Any) -> Any:
        return _value(gated, await gated.call(definition.name, args))

    def ask_sync(**args: Any) -> Any:
        return _value(gated, gated.call_sync(definition.name, args))

    function: Any = ask if is_async else ask_sync
    function.__name__ = function.__qualname__ = name
    function.__doc__ = definition.description
    schema = _sent(definition)
    properties: Mapping[str, Any] = schema.get("properties", {})
    # The SDK checks values with isinstance, so the type is one that everything is; the schema says the rest.
    function.__annotations__ = {
        key: Annotated[object, WithJsonSchema(cast("JsonObject", value))] for key, value in properties.items()
    }
    function.__signature__ = _Signature({key: _parameter(schema, key) for key in properties})
    return function


class _Signature(inspect.Signature):
    """A signature with parameters of any name, which the SDK reads by name and passes by keyword."""

    def __init__(self, parameters: Mapping[str, inspect.Parameter]) -> None:
        super().__init__()
        self._by_name = MappingProxyType(dict(parameters))

    @property
    def parameters(self) -> MappingProxyType[str, inspect.Parameter]:
        return self._by_name


def _sent(definition: ToolDefinition) -> Mapping[str, Any]:
    """Return the schema that Gemini accepts, without references: pydantic, which the SDK asks, knows only its own."""
    schema = compile_schema(definition.input_schema, tool=definition.name).schema or {}
    own = {key: item for key, item in schema.items() if key != "$defs"}
    for depth in _DEPTHS:
        try:
            return _Inlining(schema, depth).of(own, frozenset())
        except _TooLargeError:
            continue
    return cast("JsonObject", _Inlining(schema, 0).of(own, frozenset()))


class _TooLargeError(Exception):
    """A schema without references that is too large."""


class _Inlining:
    """Resolver of references. Inlines the schemas up to a depth; below it, a schema is reduced to its type."""

    def __init__(self, root: JsonObject, depth: int) -> None:
        self._root = root
        self._depth = depth
        self._nodes = count()

    def of(self, value: Any, above: frozenset[str]) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        if self._depth and next(self._nodes) >= _NODES_MAX:
            raise _TooLargeError
        if isinstance(value, list):
            return [self.of(item, above) for item in cast("list[Any]", value)]
        fields = cast("JsonObject", value)
        named = fields.get("$ref")
        if not isinstance(named, str):  # A property may have this name.
            return {key: self.of(item, above) for key, item in fields.items()}
        target = value_at(self._root, named.removeprefix("#"))
        beside = {key: item for key, item in fields.items() if key != "$ref"}
        if named in above:
            return {"description": "(nested as above)"} | self._type_of(target) | beside
        if len(above) >= self._depth:
            return self._type_of(target) | beside
        return self.of(target, above | {named}) | beside

    @staticmethod
    def _type_of(target: JsonObject) -> JsonObject:
        return {key: target[key] for key in ("type",) if key in target}


def _parameter(schema: Mapping[str, Any], key: str) -> inspect.Parameter:
    # The annotation is text: only then does the SDK resolve the types, and finds plain `object` for its isinstance check.
    return inspect.Parameter("argument", inspect.Parameter.KEYWORD_ONLY, annotation=key, default=_default(schema, key))


def _default(schema: Mapping[str, Any], key: str) -> Any:
    if key in schema.get("required", ()):
        return inspect.Parameter.empty
    return schema["properties"][key].get("default")


def _value(gated: GatedTools, result: ToolResult) -> Any:
    if result.is_error:
        raise ToolError(gated.shown(result).text)
    if result.media:  # The SDK sends none, and the service refuses a value that refers to what was not sent.
        result = without_media(result, len(result.media))
    return gated.shown(result).plain
