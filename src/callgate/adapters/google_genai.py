"""Export our tools as functions for google-genai's automatic function calling.

The signatures of the functions make the SDK declare our schemas. The SDK sends exceptions to the model as errors, so
failed and denied calls raise one.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import WithJsonSchema

from callgate.adapters.gated_tools import GatedTools
from callgate.declaration import declared_names
from callgate.errors import ToolError, ToolNotDeclarableError
from callgate.types import ToolDefinition, ToolResult

__all__ = ["functions_of"]


def functions_of(gated: GatedTools, *, is_async: bool) -> list[Callable[..., Any]]:
    """Return a function for each gated tool, under a name that Gemini accepts."""
    definitions = {definition.name: definition for definition in gated.definitions}
    names = declared_names(definitions.values())
    return [_function(gated, definitions[own], name, is_async=is_async) for name, own in names.items()]


def _function(gated: GatedTools, definition: ToolDefinition, name: str, *, is_async: bool) -> Callable[..., Any]:
    async def ask(**args: Any) -> Any:
        return _value(await gated.call(definition.name, args))

    def ask_sync(**args: Any) -> Any:
        return _value(gated.call_sync(definition.name, args))

    function: Any = ask if is_async else ask_sync
    function.__name__ = function.__qualname__ = name
    function.__doc__ = definition.description
    schema = definition.input_schema
    properties: Mapping[str, Any] = schema.get("properties", {})
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    # The SDK checks values with isinstance, so the type is one that everything is; the schema says the rest.
    types = {key: Annotated[object, WithJsonSchema({**value, **shared})] for key, value in properties.items()}
    function.__annotations__ = types
    # As text: only then does the SDK resolve the types, and finds plain `object` for its isinstance check.
    function.__signature__ = inspect.Signature(
        [_parameter(schema, key, name) for key in properties],
        __validate_parameters__=False,  # pyright: ignore[reportCallIssue] - their order is of no interest to anybody
    )
    return function


def _parameter(schema: Mapping[str, Any], key: str, name: str) -> inspect.Parameter:
    if not key.isidentifier():
        raise ToolNotDeclarableError(
            f"tool {name!r}: the SDK cannot be told of the argument {key!r}, which is no name in Python; "
            "use a Gate with GenaiModel(client, ...) for it"
        )
    # Only a positional parameter may be called `from` or `class`; the function takes any name in any case.
    kind = inspect.Parameter.POSITIONAL_ONLY if keyword.iskeyword(key) else inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(key, kind, annotation=key, default=_default(schema, key))


def _default(schema: Mapping[str, Any], key: str) -> Any:
    if key in schema.get("required", ()):
        return inspect.Parameter.empty
    return schema["properties"][key].get("default")


def _value(result: ToolResult) -> Any:
    if result.is_error:
        raise ToolError(result.error)
    return result.value
