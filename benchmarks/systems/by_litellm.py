"""LiteLLM: one completion after another, with the loop that its documentation shows around it, because it has none."""

from __future__ import annotations

import json
from typing import Any

IMPORT = "import litellm"

MODEL = "gemini/gemini-3.8-flash"
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "A tool.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}


async def turns(url: str, look_up: Any, turns: int) -> None:
    import litellm

    messages: list[Any] = [{"role": "user", "content": "Begin."}]
    made = 0
    while True:
        response = await litellm.acompletion(
            model=MODEL, messages=messages, tools=[TOOL], api_key="k", api_base=f"{url}/v1beta"
        )
        message = response.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            made += 1
            value = await look_up(**json.loads(call.function.arguments))
            name = call.function.name
            messages.append({"role": "tool", "tool_call_id": call.id, "name": name, "content": json.dumps(value)})
    assert made == turns


async def stream(url: str) -> int:
    import litellm

    size = 0
    response = await litellm.acompletion(
        model=MODEL,
        messages=[{"role": "user", "content": "Talk."}],
        stream=True,
        api_key="k",
        api_base=f"{url}/v1beta",
    )
    async for chunk in response:
        size += len(chunk.choices[0].delta.content or "")
    return size


def declaring(tools: list[dict[str, Any]]) -> str:
    import copy

    from litellm.llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini import VertexGeminiConfig

    given = [
        {"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["schema"]}}
        for t in tools
    ]
    return json.dumps(VertexGeminiConfig()._map_function(value=copy.deepcopy(given), optional_params={}))
