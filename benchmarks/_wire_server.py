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
AT_ONCE = 20
ARGUMENT_CHARS = 1024 * 1024
ARGUMENT_ROWS = 14_000
LARGE_EVENT_CHARS = 64 * 1024
LARGE_EVENTS_MEGABYTES = 20


class Server:
    """Calls the one tool so many times and then ends, for as many conversations as come, one after another.

    What it does is chosen by the beginning of the path, because that is what every client lets one choose: `/parallel` makes
    twenty calls in one answer, `/args` one call with a megabyte of text, `/rows` one with a megabyte in rows, `/events`
    streams text in large events, `/done` answers at once, and anything else is the long talk.
    `/sent` tells how long each request of the last talk was.
    """

    def __init__(self, turns: int, megabytes: int) -> None:
        self.turns = turns
        self.done = 0
        self.sent: list[int] = []
        self.has_called = False
        self.story = _stream_of(megabytes)
        self.large = _response([_call("store", 0, {"text": "x" * ARGUMENT_CHARS})], last=True)
        self.rows = _response([_call("store", 0, {"rows": _rows(ARGUMENT_ROWS)})], last=True)
        self.thanks = _response([{"text": "Done."}], last=True)
        self.events = _stream_of(LARGE_EVENTS_MEGABYTES, LARGE_EVENT_CHARS)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                size = int(length[1]) if length else 0
                await reader.readexactly(size)
                writer.write(self._answer(head.split(b"\r\n", 1)[0], len(head) + size))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, line: bytes, size: int) -> bytes:
        path = line.split(b" ")[1]
        if path.startswith(b"/sent"):
            return _whole(self.sent)
        if path.startswith((b"/parallel", b"/args", b"/rows")):
            self.has_called = not self.has_called
        if path.startswith(b"/parallel"):
            calls = [_call("wait", number, {"number": number}) for number in range(AT_ONCE)]
            return _whole(_response(calls if self.has_called else [{"text": "Done."}], last=True))
        if path.startswith((b"/args", b"/rows")):
            large = self.large if path.startswith(b"/args") else self.rows
            answer = large if self.has_called else self.thanks
            return _events([answer]) if b":streamGenerateContent" in path else _whole(answer)
        if path.startswith(b"/events"):
            return self.events
        if path.startswith(b"/done"):
            return _whole(self.thanks)
        if b":streamGenerateContent" in path:
            return self.story
        return self._next(size)

    def _next(self, size: int) -> bytes:
        self.sent = [*self.sent, size] if self.done else [size]
        part: dict[str, Any] = {"text": "That was all."}
        if self.done < self.turns:
            part = _call("look_up", self.done, {"number": self.done})
            self.done += 1
        else:
            self.done = 0
        return _whole(_response([part], last=True))


def _call(name: str, number: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"functionCall": {"id": f"c{number}", "name": name, "args": args}, "thoughtSignature": SIGNATURE}


def _rows(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"row number {n}", "is_open": n % 3 == 0, "price": n + 0.5} for n in range(count)]


def _response(parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if not last:
        return {"candidates": [candidate]}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
    candidate["finishReason"] = "STOP"
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}


def _whole(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _events(responses: list[dict[str, Any]]) -> bytes:
    """A whole streamed answer, each event in a chunk of its own."""
    events = [b"data: " + json.dumps(response).encode() + b"\r\n\r\n" for response in responses]
    chunks = b"".join(b"%x\r\n" % len(event) + event + b"\r\n" for event in events)
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    )


def _stream_of(megabytes: int, piece_chars: int = PIECE_CHARS) -> bytes:
    """A whole response of text in events of about this length."""
    responses = [_response([{"text": piece}], last=False) for piece in _story(megabytes, piece_chars)]
    return _events([*responses, _response([{"text": "."}], last=True)])


def _story(megabytes: int, piece_chars: int = PIECE_CHARS) -> list[str]:
    """The same text in the same pieces, without its last word. No two are alike: some clients give up on a model that
    repeats itself."""
    line = "The quick brown fox. " * (piece_chars // 20 + 1)
    return [f"{number:06} {line}"[: piece_chars - 1] + "\n" for number in range(megabytes * 1024 * 1024 // piece_chars)]


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
        *(text("".join(pieces), chunks=pieces) for _ in range(3)),
    ]
    async with FakeGemini(script) as fake:
        print(fake.base_url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    serve = serve_fake if "--fake" in sys.argv[3:] else serve_bare
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
