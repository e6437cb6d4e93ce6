"""The floor: one socket, no HTTP library, and the bytes of the history kept from one request to the next."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

IMPORT = "import asyncio, json"

DECLARED = {
    "functionDeclarations": [
        {
            "name": "look_up",
            "description": "A tool.",
            "parametersJsonSchema": {
                "type": "object",
                "properties": {"number": {"type": "integer"}},
                "required": ["number"],
            },
        }
    ]
}
TOOLS = b'],"tools":[' + json.dumps(DECLARED).encode() + b"]}"


async def turns(url: str, look_up: Any, turns: int) -> None:
    host, port = urlsplit(url).hostname, urlsplit(url).port
    reader, writer = await asyncio.open_connection(host, port)
    kept = [b'{"contents":[{"role":"user","parts":[{"text":"Begin."}]}']
    made = 0
    while True:
        body = b",".join(kept) + TOOLS
        writer.write(b"POST /v1beta/models/m:generateContent HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body))
        writer.write(body)
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        content = json.loads(await reader.readexactly(size))["candidates"][0]["content"]
        call = content["parts"][0].get("functionCall")
        if call is None:
            break
        made += 1
        response = {"id": call["id"], "name": call["name"], "response": {"result": await look_up(**call["args"])}}
        kept.append(json.dumps(content).encode())
        kept.append(json.dumps({"role": "user", "parts": [{"functionResponse": response}]}).encode())
    writer.close()
    assert made == turns
