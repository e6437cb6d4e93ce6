"""Nothing is quadratic: what a turn encodes and copies is counted in bytes, which are the same on every machine."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from callgate import Gate, GeminiModel, Limits, strict_json
from callgate.gemini.surface import Surface
from callgate.wire.network import TOGETHER_BYTES_MAX, Socket

TURNS = 120
SURFACE = Surface(kind="developer", base_url="http://127.0.0.1:9", version="v1beta", api_key="k")


class Client:
    """Takes bodies in place of a server, and answers with one call after another."""

    surface = SURFACE

    def __init__(self) -> None:
        self.bodies: list[int] = []
        self.encoded: list[int] = []
        self.counted = 0

    async def chunks(self, model: str, body: bytes, *, stream: bool, tools: list[str]) -> AsyncGenerator[Any, None]:
        self.bodies.append(len(body))
        self.encoded.append(self.counted)
        number = len(self.bodies) + 100  # Of the same length in every turn.
        call = {"functionCall": {"id": f"c{number}", "name": "look_up", "args": {"number": number}}}
        part = call if len(self.bodies) <= TURNS else {"text": "Done."}
        yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}

    async def aclose(self) -> None:
        pass


async def look_up(number: int) -> str:
    """Looks a number up."""
    return f"{number} " + "x" * 500


def test_a_turn_encodes_as_much_at_the_end_of_a_long_talk_as_at_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    import pydantic_core

    client = Client()

    def to_json(value: Any) -> bytes:
        data = pydantic_core.to_json(value)
        client.counted += len(data)
        return data

    core = SimpleNamespace(
        to_json=to_json,
        from_json=pydantic_core.from_json,
        PydanticSerializationError=pydantic_core.PydanticSerializationError,
    )
    monkeypatch.setattr(strict_json, "_core", lambda: core)
    limits = Limits(turns=TURNS + 5, calls=TURNS + 5)
    model = GeminiModel("gemini-3.8-flash", client=client)  # pyright: ignore[reportArgumentType]
    reply = asyncio.run(Gate(model, [look_up], limits=limits).run("Begin."))
    assert len(reply.calls) == TURNS
    grown = [after - before for before, after in zip(client.bodies, client.bodies[1:], strict=False)]
    assert len(set(grown)) == 1  # Every turn adds the same to the request ...
    costs = [after - before for before, after in zip(client.encoded, client.encoded[1:], strict=False)]
    assert len(set(costs[2:])) == 1  # ... and encodes the same, however long the request has become:
    assert costs[-1] < 6 * grown[-1]  # the contents once, and its value where it is bound, measured and sent.


def test_the_bytes_of_a_history_are_copied_once_into_a_request() -> None:
    from callgate.conversation import Conversation
    from callgate.gemini.request import BodyBuilder
    from callgate.request import ModelRequest

    talk = Conversation()
    for number in range(200):
        talk.add_user(f"{number} " + "x" * 10_000)
        talk.add_model({"role": "model", "parts": [{"text": "Yes."}]})
    talk.add_user("Well?")
    builder, request = BodyBuilder("gemini-3.8-flash", "developer"), ModelRequest(conversation=talk)
    size = len(builder.body(request))
    tracemalloc.start()
    try:
        body = builder.body(request)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(body) == size > 2_000_000
    assert peak < 1.02 * size + 100_000


@pytest.mark.parametrize(("size", "writes"), [(1_000, 1), (TOGETHER_BYTES_MAX + 1, 2)], ids=["small", "large"])
def test_a_small_request_leaves_at_once_and_a_large_body_is_not_copied(size: int, writes: int) -> None:
    class Transport:
        def __init__(self) -> None:
            self.written: list[bytes] = []

        def is_closing(self) -> bool:
            return False

        def write(self, data: bytes) -> None:
            self.written.append(data)

    head, body = b"POST / HTTP/1.1\r\n\r\n", b"x" * size
    transport = Transport()
    inbox = SimpleNamespace(pieces=[], has_ended=True, error=None)
    socket = Socket(transport, inbox)  # pyright: ignore[reportArgumentType]
    socket.write(head, body)
    assert transport.written == []
    assert asyncio.run(socket.read()) == b""
    assert b"".join(transport.written) == head + body
    assert len(transport.written) == writes
    assert writes == 1 or transport.written[-1] is body
