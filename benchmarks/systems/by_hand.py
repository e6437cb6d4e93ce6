"""What a careful person would write without a library: httpx2 and orjson, and the whole history encoded for each request."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

IMPORT = "import httpx2, orjson"

MODEL = "gemini-3.8-flash"
HEADERS = {"x-goog-api-key": "k", "content-type": "application/json"}
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def _declared(name: str, schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"functionDeclarations": [{"name": name, "description": "A tool.", "parametersJsonSchema": schema}]}]


def _response(call: dict[str, Any], value: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"result": value}}}


async def _converse(client: Any, url: str, tools: dict[str, Any], declared: list[dict[str, Any]]) -> int:
    import orjson

    async def run(call: dict[str, Any]) -> dict[str, Any]:
        function = tools[call["name"]]
        if inspect.iscoroutinefunction(function):
            return _response(call, await function(**call["args"]))
        return _response(call, await asyncio.to_thread(function, **call["args"]))

    contents: list[Any] = [{"role": "user", "parts": [{"text": "Begin."}]}]
    body = {"contents": contents, "tools": declared}
    made = 0
    while True:
        response = await client.post(f"{url}/v1beta/models/{MODEL}:generateContent", content=orjson.dumps(body))
        content = orjson.loads(response.content)["candidates"][0]["content"]
        contents.append(content)
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if not calls:
            return made
        made += len(calls)
        responses = [await run(calls[0])] if len(calls) == 1 else await asyncio.gather(*map(run, calls))
        contents.append({"role": "user", "parts": list(responses)})


async def turns(url: str, look_up: Any, turns: int) -> None:
    import httpx2

    async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as client:
        assert await _converse(client, url, {"look_up": look_up}, _declared("look_up", NUMBER)) == turns


async def parallel(url: str, wait: Any, timed: Any) -> None:
    import httpx2

    async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as client:
        assert await timed(lambda: _converse(client, url, {"wait": wait}, _declared("wait", NUMBER))) == 20


async def _events(client: Any, url: str, body: bytes) -> Any:
    import orjson

    rest = b""
    async with client.stream("POST", f"{url}/v1beta/models/{MODEL}:streamGenerateContent?alt=sse", content=body) as response:
        async for data in response.aiter_bytes():
            *events, rest = (rest + data).split(b"\r\n\r\n")
            for event in events:
                yield orjson.loads(event[5:])


async def stream(url: str) -> int:
    import httpx2
    import orjson

    size, body = 0, orjson.dumps({"contents": [{"role": "user", "parts": [{"text": "Talk."}]}]})
    async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as client:
        async for event in _events(client, url, body):
            size += sum(len(part["text"]) for part in event["candidates"][0]["content"]["parts"])
    return size


async def stream_kept(url: str) -> int:
    """As `stream`, by a loop that keeps the answer for its next request."""
    import httpx2
    import orjson

    contents: list[Any] = [{"role": "user", "parts": [{"text": "Talk."}]}]
    async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as client:
        body = orjson.dumps({"contents": contents})
        texts = [part["text"] async for e in _events(client, url, body) for part in e["candidates"][0]["content"]["parts"]]
    contents.append({"role": "model", "parts": [{"text": "".join(texts)}]})
    return len(contents[-1]["parts"][0]["text"])


async def large_call(url: str, store: Any) -> None:
    import httpx2
    import orjson

    contents: list[Any] = [{"role": "user", "parts": [{"text": "Store it."}]}]
    async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as client:
        while True:
            body = orjson.dumps({"contents": contents, "tools": _declared("store", TEXT)})
            parts = [p async for e in _events(client, url, body) for p in e["candidates"][0]["content"]["parts"]]
            contents.append({"role": "model", "parts": parts})
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
            if not calls:
                return
            contents.append({"role": "user", "parts": [_response(call, await store(**call["args"])) for call in calls]})


async def large_calls(url: str, store: Any, timed: Any) -> None:
    import httpx2

    async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as client:
        await timed(lambda: _converse(client, url, {"store": store}, _declared("store", TEXT)))


async def raw_tools(url: str, tools: list[dict[str, Any]]) -> None:
    import httpx2
    import orjson

    plain = [{"name": t["name"], "description": t["description"], "parametersJsonSchema": t["schema"]} for t in tools]
    contents = [{"role": "user", "parts": [{"text": "Begin."}]}]
    body = orjson.dumps({"contents": contents, "tools": [{"functionDeclarations": plain}]})
    async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as client:
        await client.post(f"{url}/v1beta/models/{MODEL}:generateContent", content=body)


def declaring(tools: list[dict[str, Any]]) -> str:
    import json

    # As whoever has no compiler does it: the schemas as they are, by the encoder of the standard library.
    plain = [{"name": t["name"], "description": t["description"], "parametersJsonSchema": t["schema"]} for t in tools]
    return json.dumps([{"functionDeclarations": plain}])
