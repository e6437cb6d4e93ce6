"""The hand-written loop of `by_hand.py` on aiohttp instead of httpx2: what another quick HTTP client costs."""

from __future__ import annotations

from typing import Any

from . import by_hand

IMPORT = "import aiohttp, orjson"


class _Client:
    """As much of httpx2's client as the loop uses, on a session of aiohttp."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def post(self, url: str, *, content: bytes) -> _Read:
        async with self._session.post(url, data=content) as response:
            return _Read(await response.read())


class _Read:
    def __init__(self, content: bytes) -> None:
        self.content = content


async def turns(url: str, look_up: Any, turns: int) -> None:
    import aiohttp

    async with aiohttp.ClientSession(headers=by_hand.HEADERS) as session:
        declared = by_hand._declared("look_up", by_hand.NUMBER)
        assert await by_hand._converse(_Client(session), url, {"look_up": look_up}, declared) == turns


async def stream(url: str) -> int:
    import aiohttp
    import orjson

    size, rest = 0, b""
    body = orjson.dumps({"contents": [{"role": "user", "parts": [{"text": "Talk."}]}]})
    target = f"{url}/v1beta/models/{by_hand.MODEL}:streamGenerateContent?alt=sse"
    async with aiohttp.ClientSession(headers=by_hand.HEADERS) as session, session.post(target, data=body) as response:
        async for data in response.content.iter_any():
            *events, rest = (rest + data).split(b"\r\n\r\n")
            for event in events:
                parts = orjson.loads(event[5:])["candidates"][0]["content"]["parts"]
                size += sum(len(part["text"]) for part in parts)
    return size
