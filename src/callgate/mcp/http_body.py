"""Bodies of HTTP requests, read whole: messages of MCP clients are looked at before they go on."""

from __future__ import annotations

from starlette.types import Message, Receive

__all__ = ["replayed", "whole_body"]


async def whole_body(receive: Receive) -> bytes | None:
    """The whole body of a request; None if the client left. Its size has been checked."""
    pieces: list[bytes] = []
    while (message := await receive())["type"] == "http.request":
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)
    return None


def replayed(data: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body first."""
    messages: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]

    async def receiving() -> Message:
        return messages.pop() if messages else await receive()

    return receiving
