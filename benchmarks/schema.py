"""What it costs to declare 500 tools, the first time and again, and to check one call's arguments.

Beside it stand google-genai's own conversion of the same schemas, where it is installed (each JSON Schema through its
`Schema.from_json_schema`, then a `GenerateContentConfig` built and dumped, as its client does for MCP tools), those of
langchain-google-genai and LiteLLM where they are installed, and a plain `json.dumps` of the same tools. Figures are the best
of several repetitions, in milliseconds of processor time.

    python benchmarks/schema.py        ends with 1 if a goal is missed
"""

from __future__ import annotations

import copy
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from _schemas import schema

from callgate import ToolDefinition, check_arguments, declare
from callgate.schema.compile import SchemaField

TOOLS = 500
REPETITIONS = 7
FIRST_MAX = 0.5
"""How long the first declaration may take, as a part of google-genai's."""
CACHED_MAX = 4.0
"""How long a further declaration may take, in plain dumps of the same tools."""

FIELDS: tuple[SchemaField, ...] = ("parametersJsonSchema", "parameters")


def definitions() -> list[ToolDefinition]:
    return [
        ToolDefinition(name=f"tool_{n}", description=f"Does the thing {n}.", input_schema=schema(n)) for n in range(TOOLS)
    ]


def best(work: Callable[[Any], object], prepare: Callable[[], Any], repetitions: int = REPETITIONS) -> float:
    """Milliseconds of the quickest repetition; what prepares it is not counted."""
    found: list[float] = []
    for _ in range(repetitions):
        given = prepare()
        gc.collect()
        start = time.process_time()
        work(given)
        found.append((time.process_time() - start) * 1000)
    return min(found)


def theirs() -> Callable[[list[tuple[str, str, Any]]], object] | None:
    """google-genai's way from JSON Schemas to the tools of a request, or None if it is not installed."""
    try:
        from google.genai import types
    except ImportError:
        return None

    def convert(tools: list[tuple[str, str, Any]]) -> object:
        declarations = [
            types.FunctionDeclaration(
                name=name,
                description=description,
                parameters=types.Schema.from_json_schema(json_schema=types.JSONSchema.model_validate(node)),
            )
            for name, description, node in tools
        ]
        config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=declarations)])
        return config.model_dump(exclude_none=True, by_alias=True, mode="json")

    return convert


def langchains() -> Callable[[list[Any]], object] | None:
    """langchain-google-genai's way, or None if it is not installed."""
    try:
        from langchain_google_genai._function_utils import convert_to_genai_function_declarations
    except ImportError:
        return None
    return lambda tools: [tool.model_dump(exclude_none=True) for tool in convert_to_genai_function_declarations(tools)]


def litellms() -> Callable[[list[Any]], object] | None:
    """LiteLLM's way, or None if it is not installed."""
    try:
        from litellm.llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini import VertexGeminiConfig
    except ImportError:
        return None
    return lambda tools: VertexGeminiConfig()._map_function(value=copy.deepcopy(tools), optional_params={})


_UNREAD = ("$defs", "additionalProperties", "const", "exclusiveMinimum")


def _inlined(node: Any) -> Any:
    """What its converter cannot read is taken out or written out for it."""
    if isinstance(node, dict):
        if "$ref" in node:
            return {"type": "object", "description": node.get("description")}
        return {key: _inlined(value) for key, value in node.items() if key not in _UNREAD}
    return [_inlined(item) for item in node] if isinstance(node, list) else node


def main() -> int:
    tools = definitions()
    plain = [{"name": t.name, "description": t.description, "parametersJsonSchema": t.input_schema} for t in tools]
    declare(definitions()[:10])
    rows: list[tuple[str, float]] = [("json.dumps of the tools", dumped := best(lambda _: json.dumps(plain), lambda: None))]
    convert = theirs()
    converted = None
    if convert is not None:
        readable = [(tool.name, tool.description, _inlined(tool.input_schema)) for tool in tools]
        convert(readable[:10])
        converted = best(convert, lambda: readable)
        rows.append(("google-genai: converted, built, dumped", converted))
    others: dict[str, float] = {}
    openai = [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.input_schema}}
        for t in tools
    ]
    for name, way in (("langchain-google-genai", langchains()), ("LiteLLM", litellms())):
        if way is not None:
            others[name] = best(way, lambda: openai, repetitions=3)
            rows.append((f"{name}: converted", others[name]))
    missed: list[str] = []
    for field in FIELDS:
        first = best(lambda given, field=field: declare(given, schema_field=field), lambda: copy.deepcopy(tools))
        declare(tools, schema_field=field)
        again = best(lambda _, field=field: declare(tools, schema_field=field), lambda: None)
        rows += [(f"callgate {field}: first time", first), (f"callgate {field}: again", again)]
        if converted is not None and first > FIRST_MAX * converted:
            missed.append(f"{field}: the first time takes {first / converted:.2f} of google-genai's, goal {FIRST_MAX}")
        missed += [
            f"{field}: the first time takes {first / took:.2f} of {name}'s" for name, took in others.items() if first > took
        ]
        if again > CACHED_MAX * dumped:
            missed.append(f"{field}: again takes {again / dumped:.1f} plain dumps, goal {CACHED_MAX}")
    args = {"query_0": "x", "limit": 5, "state": "open", "labels": ["a", "b"], "range": {"first": 1}}
    check_arguments(tools[0], args)
    checked = best(lambda _: [check_arguments(tools[0], args) for _ in range(1000)], lambda: None)
    rows.append(("one check of arguments, a thousand times", checked))
    print(f"{TOOLS} tools, best of {REPETITIONS}")
    for name, figure in rows:
        print(f"  {name:45} {figure:9.2f} ms")
    for goal in missed:
        print(f"missed: {goal}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
