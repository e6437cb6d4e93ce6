"""The processes that benchmarks/service.py measures: a bare echo, the service, and a model server of a few lines.

python benchmarks/_chat_server.py echo|floor|proxy|service|model PORT [MODEL_URL]
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Any

ANSWER = "The answer is forty-two, and it took no time at all to find it."
CALLS = 4
CHUNKS = 100
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"


def _chunk(parts: list[dict[str, Any]], *, last: bool) -> bytes:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if last:
        candidate["finishReason"] = "STOP"
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 12, "totalTokenCount": 22}
    return json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode()


WHOLE = _chunk([{"text": ANSWER}], last=True)
CALLING = _chunk(
    [{"functionCall": {"id": f"c{n}", "name": "look_up", "args": {"number": n}}} for n in range(CALLS)], last=True
)
PIECES = [_chunk([{"text": f"piece {n} "}], last=n == CHUNKS - 1) for n in range(CHUNKS)]


OPENAI = json.dumps({
    "id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 12, "total_tokens": 22},
}).encode()  # fmt: skip
"""The same for whoever speaks the other language."""


async def _model(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers without looking closer than it must."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            streams = b":streamgeneratecontent" in head
            if b"Trickle" in body:
                await _trickle(writer)
                continue
            if b"/chat/completions" in head:
                writer.write(HEAD % (b"application/json", len(OPENAI)) + OPENAI)
                continue
            answer = CALLING if b"Use tools" in body and b"functionResponse" not in body else WHOLE
            kind = b"text/event-stream" if streams else b"application/json"
            data = b"data: " + answer + b"\r\n\r\n" if streams else answer
            writer.write(HEAD % (kind, len(data)) + data)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _trickle(writer: asyncio.StreamWriter) -> None:
    """A hundred pieces in about ten seconds."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for piece in PIECES:
        data = b"data: " + piece + b"\r\n\r\n"
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
        await asyncio.sleep(0.1)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def serve_model(port: int) -> None:
    server = await asyncio.start_server(_model, "127.0.0.1", port, backlog=2048)
    async with server:
        await server.serve_forever()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The least that an ASGI application can do with a chat request."""
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def proxy(model_url: str) -> Any:
    """The least that a chat service must do: one request to the model for each of its own."""
    import httpx2

    client = httpx2.AsyncClient(headers={"x-goog-api-key": "k", "content-type": "application/json"})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await echo(scope, receive, send)
            return
        prompt = json.loads((await receive())["body"])["prompt"]
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": prompt}]}]})
        response = await client.post(f"{model_url}/v1beta/models/m:generateContent", content=body)
        text = response.json()["candidates"][0]["content"]["parts"][0]["text"]
        data = json.dumps({"response": text}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    return app


class _Socket(asyncio.Protocol):
    """One kept connection to the model, for one request at a time."""

    transport: asyncio.Transport
    answer: asyncio.Future[bytes]

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.answer.set_result(data)


def floor(port: int) -> Any:
    """What can be had at best: the echo, and one request to the model by a bare socket whose answer nobody looks through."""
    idle: list[_Socket] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await echo(scope, receive, send)
            return
        body = (await receive())["body"]
        loop = asyncio.get_running_loop()
        kept = idle.pop() if idle else (await loop.create_connection(_Socket, "127.0.0.1", port))[1]
        kept.answer = loop.create_future()
        head = b"POST /v1beta/models/m:generateContent HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        kept.transport.write(head + body)
        data = (await kept.answer).partition(b"\r\n\r\n")[2]
        idle.append(kept)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    return app


def serve_app(app: Any, port: int) -> None:
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=port, http="h11", access_log=False, log_level="error", ws="none")


def serve_service(port: int, model_url: str) -> None:
    from callgate import Gate, GeminiModel, Limits
    from callgate.gemini.surface import Surface
    from callgate.server import Service, ServiceOptions
    from callgate.server.listen import serve

    async def look_up(number: int) -> dict[str, Any]:
        """Looks a number up."""
        return {"number": number, "found": True, "text": "a line of some length, as tools return it"}

    surface = Surface(kind="developer", base_url=model_url, version="v1beta", api_key="k")
    gate = Gate(GeminiModel("gemini-3.8-flash", surface=surface), [look_up], limits=Limits())
    service = Service(gate, options=ServiceOptions(runs=5000, connections=5000))
    serve(service, [socket.create_server(("127.0.0.1", port), backlog=2048)])


if __name__ == "__main__":
    what, port = sys.argv[1], int(sys.argv[2])
    if what == "model":
        asyncio.run(serve_model(port))
    elif what == "echo":
        serve_app(echo, port)
    elif what == "floor":
        serve_app(floor(int(sys.argv[3].rpartition(":")[2])), port)
    elif what == "proxy":
        serve_app(proxy(sys.argv[3]), port)
    else:
        serve_service(port, sys.argv[3])
