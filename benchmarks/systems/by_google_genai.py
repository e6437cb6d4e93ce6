"""google-genai: automatic function calling."""

from __future__ import annotations

from typing import Any

IMPORT = "from google import genai"

MODEL = "gemini-3.8-flash"


def _client(url: str) -> Any:
    from google import genai

    return genai.Client(api_key="k", http_options={"base_url": url, "api_version": "v1beta"})


def _config(tool: Any, calls: int) -> Any:
    from google.genai import types

    calling = types.AutomaticFunctionCallingConfig(maximum_remote_calls=calls)
    return types.GenerateContentConfig(tools=[tool], automatic_function_calling=calling)


async def turns(url: str, look_up: Any, turns: int) -> None:
    client = _client(url)  # Held on to: it closes its connections when it is collected.
    await client.aio.models.generate_content(model=MODEL, contents="Begin.", config=_config(look_up, turns + 10))


async def stream(url: str) -> int:
    size, client = 0, _client(url)
    async for chunk in await client.aio.models.generate_content_stream(model=MODEL, contents="Talk."):
        size += len(chunk.text or "")
    return size


async def parallel(url: str, wait: Any, timed: Any) -> None:
    client, config = _client(url), _config(wait, 5)
    await timed(lambda: client.aio.models.generate_content(model=MODEL, contents="All at once.", config=config))


async def large_call(url: str, store: Any) -> None:
    client = _client(url)
    async for _ in await client.aio.models.generate_content_stream(
        model=MODEL, contents="Store it.", config=_config(store, 5)
    ):
        pass


async def large_calls(url: str, store: Any, timed: Any) -> None:
    client, config = _client(url), _config(store, 5)
    await timed(lambda: client.aio.models.generate_content(model=MODEL, contents="Store it.", config=config))


async def raw_tools(url: str, tools: list[dict[str, Any]]) -> None:
    from google.genai import types

    declarations = [
        types.FunctionDeclaration(name=t["name"], description=t["description"], parameters_json_schema=t["schema"])
        for t in tools
    ]
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=declarations)])
    client = _client(url)
    await client.aio.models.generate_content(model=MODEL, contents="Begin.", config=config)


def declaring(tools: list[dict[str, Any]]) -> str:
    """As its client does for tools with a JSON Schema: each schema converted, then the configuration built and dumped."""
    from google.genai import types

    declarations = [
        types.FunctionDeclaration(
            name=tool["name"],
            description=tool["description"],
            parameters=types.Schema.from_json_schema(json_schema=types.JSONSchema.model_validate(_inlined(tool["schema"]))),
        )
        for tool in tools
    ]
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=declarations)])
    return config.model_dump_json(exclude_none=True, by_alias=True)


_UNREAD = ("$defs", "additionalProperties", "const", "exclusiveMinimum")


def _inlined(node: Any) -> Any:
    """What its converter cannot read is taken out or written out for it."""
    if isinstance(node, dict):
        if "$ref" in node:
            return {"type": "object", "description": node.get("description")}
        return {key: _inlined(value) for key, value in node.items() if key not in _UNREAD}
    return [_inlined(item) for item in node] if isinstance(node, list) else node
