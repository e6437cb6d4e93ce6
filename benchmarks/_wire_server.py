"""The other side of `wire.py`: a server in a process of its own that answers at once, whatever it is sent.

It looks at lengths and never into a body, because a server that takes its time lets the caches of the client go cold, and
then the client is charged for the server. What the clients send is judged elsewhere, in the tests.

With `--fake` it is `callgate.testing.fake_gemini` instead, which reads and judges every request as Google would. Its work
grows with the history, so what is measured then holds more of the time after a pause, when nothing is in a cache any more.

    python benchmarks/_wire_server.py TURNS MEGABYTES [--fake]
                                                     prints its base URL, and serves until its input is closed
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

PIECE_CHARS = 1024
SIGNATURE = "Eq4BCqsBAXLI2nwz0m1rV7tT4l0Qm9Zk3cJ8sKpQ5b1yW6dN2xHfUoR7aGvE9iLtSjCqYhPzBnMkDwXuAf0"


class Server:
    """Calls the one tool so many times and then ends, for as many conversations as come."""

    def __init__(self, turns: int, megabytes: int) -> None:
        self.turns = turns
        self.done = 0
        self.story = _stream_of(megabytes)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                writer.write(self.story if b":streamGenerateContent" in head.split(b"\r\n", 1)[0] else self._next())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _next(self) -> bytes:
        part: dict[str, Any] = {"text": "That was all."}
        if self.done < self.turns:
            part = {"functionCall": {"id": f"c{self.done}", "name": "look_up", "args": {"number": self.done}}}
            part |= {"thoughtSignature": SIGNATURE}
            self.done += 1
        else:
            self.done = 0
        usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        body = json.dumps(
            {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}
        ).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _stream_of(megabytes: int) -> bytes:
    """A whole response of text in events of about a kilobyte, each in a chunk of its own."""
    contents = [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": piece}]}, "index": 0}]}
        for piece in _story(megabytes)
    ]
    last = {"candidates": [{"content": {"role": "model", "parts": [{"text": "."}]}, "finishReason": "STOP", "index": 0}]}
    events = [b"data: " + json.dumps(content).encode() + b"\r\n\r\n" for content in [*contents, last]]
    chunks = b"".join(b"%x\r\n" % len(event) + event + b"\r\n" for event in events)
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    )


def _story(megabytes: int) -> list[str]:
    """The same text in the same pieces, without its last word."""
    return [("The quick brown fox. " * 60)[: PIECE_CHARS - 1] + "\n"] * (megabytes * 1024 * 1024 // PIECE_CHARS)


async def serve_bare(turns: int, megabytes: int) -> None:
    server = await asyncio.start_server(Server(turns, megabytes).serve, "127.0.0.1", 0, limit=1 << 22)
    print("http://{}:{}".format(*server.sockets[0].getsockname()), flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def serve_fake(turns: int, megabytes: int) -> None:
    from callgate.testing.answers import call, text
    from callgate.testing.fake_gemini import FakeGemini

    pieces = [*_story(megabytes), "."]
    script = [
        *(call("look_up", number=number) for number in range(turns)),
        "That was all.",
        text("".join(pieces), chunks=pieces),
    ]
    async with FakeGemini(script) as fake:
        print(fake.base_url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    serve = serve_fake if "--fake" in sys.argv[3:] else serve_bare
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
