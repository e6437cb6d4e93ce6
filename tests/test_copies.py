"""Nothing is quadratic, and nothing is held twice: what a turn encodes, reads, copies and leaves is counted in bytes."""

from __future__ import annotations

import asyncio
import gc
import itertools
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest

from callgate import Gate, GeminiModel, Limits, ScriptedModel, strict_json
from callgate.content.json_safe import json_safe
from callgate.content.plain_look import ExactLook
from callgate.gemini.surface import Surface
from callgate.schema import check
from callgate.testing import call
from callgate.testing.fake_gemini import FakeGemini
from callgate.wire.network import TOGETHER_BYTES_MAX, Socket

TURNS = 120
SURFACE = Surface(kind="developer", base_url="http://127.0.0.1:9", version="v1beta", api_key="k")


class Client:
    """Takes bodies in place of a server, and answers with one call after another.

    Counts the bytes of JSON that were written and read before each body.
    """

    surface = SURFACE

    def resources(self) -> Any:
        return None

    def files(self) -> Any:
        return None

    def __init__(self, turns: int = TURNS) -> None:
        self.turns = turns
        self.bodies: list[int] = []
        self.encoded: list[int] = []
        self.read: list[int] = []
        self.written_bytes = self.read_bytes = 0

    async def chunks(
        self, model: str, body: bytes, *, stream: bool, tools: list[str], **more: Any
    ) -> AsyncGenerator[Any, None]:
        self.bodies.append(len(body))
        self.encoded.append(self.written_bytes)
        self.read.append(self.read_bytes)
        number = len(self.bodies) + 100  # Of the same length in every turn.
        call = {"functionCall": {"id": f"c{number}", "name": "look_up", "args": {"number": number}}}
        part = call if len(self.bodies) <= self.turns else {"text": "Done."}
        yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}

    async def aclose(self) -> None:
        pass

    def counting(self) -> SimpleNamespace:
        """`pydantic_core`, with its work counted."""
        import pydantic_core

        def to_json(value: Any, **options: Any) -> bytes:
            data = pydantic_core.to_json(value, **options)
            self.written_bytes += len(data)
            return data

        def from_json(data: bytes, **options: Any) -> Any:
            self.read_bytes += len(data)
            return pydantic_core.from_json(data, **options)

        return SimpleNamespace(
            to_json=to_json, from_json=from_json, PydanticSerializationError=pydantic_core.PydanticSerializationError
        )


class Row(TypedDict):
    """A row of a table."""

    id: int
    price: float


async def look_up(number: int) -> str:
    """Looks a number up."""
    return f"{number} " + "x" * 2_000


def steps(counted: list[int]) -> list[int]:
    return [after - before for before, after in itertools.pairwise(counted)]


def test_a_turn_encodes_as_much_at_the_end_of_a_long_talk_as_at_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    monkeypatch.setattr(strict_json, "_core", client.counting)
    limits = Limits(turns=TURNS + 5, calls=TURNS + 5)
    model = GeminiModel("gemini-3.8-flash", client=client)  # pyright: ignore[reportArgumentType]
    reply = asyncio.run(Gate(model, [look_up], limits=limits).run("Begin."))
    assert len(reply.calls) == TURNS
    grown, encoded, read = steps(client.bodies), steps(client.encoded), steps(client.read)
    assert len(set(grown)) == 1  # Every turn adds the same to the request ...
    assert len(set(encoded[2:])) == 1  # ... and encodes the same, however long the request has become:
    assert encoded[-1] < 6 * grown[-1]  # the contents once, and its value where it is bound, measured and sent.
    assert len(set(read[2:])) == 1  # What is held as JSON from now on is read once, to see whether it can be.
    assert read[-1] < grown[-1]


def rows(number: int) -> list[dict[str, Any]]:
    """Rows of a table."""
    return [{"id": 100 * number + row, "name": f"row {row}", "is_open": True, "labels": ["a", "b"]} for row in range(80)]


def lines(number: int) -> str:
    """Lines of text."""
    return "\n".join(f'{number} {line} – "a line of some length, as tools return it"' for line in range(80))


@pytest.mark.parametrize("tool", [rows, lines])
def test_a_long_session_holds_each_result_once_as_a_value_and_once_as_json(tool: Callable[[int], Any]) -> None:
    async def look_up(number: int) -> Any:
        """Looks a number up."""
        return tool(number)

    async def grown(turns: int) -> float:
        model = GeminiModel("gemini-3.8-flash", client=Client(turns))  # pyright: ignore[reportArgumentType]
        gate = Gate(model, [look_up], limits=Limits(turns=TURNS, calls=TURNS))
        gc.collect()
        tracemalloc.start()
        try:
            reply = await gate.run("Begin.", session="long")
            history = sum(len(strict_json.dump(content)) for content in reply.contents)
            assert [record.result.value for record in reply.calls if record.result] == [
                tool(record.call.args["number"]) for record in reply.calls
            ]
            assert len(reply.calls) == turns
            del reply
            gc.collect()
            taken = tracemalloc.get_traced_memory()[0]
            values = [json_safe(tool(number)).value for number in range(turns)]
            return (taken - (tracemalloc.get_traced_memory()[0] - taken)) / history if values else 0
        finally:
            tracemalloc.stop()

    asyncio.run(grown(2))  # Loads what is loaded late.
    # Beside the values: the JSON, small objects, and the UTF-8 that Python keeps with a text that is not ASCII.
    assert asyncio.run(grown(40)) < 3


def test_the_bytes_of_a_history_are_copied_once_into_a_request() -> None:
    from callgate.gemini.request import BodyBuilder
    from callgate.history.conversation import Conversation
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
    socket = Socket(transport, inbox, None)  # pyright: ignore[reportArgumentType]
    socket.write(head, body)
    assert transport.written == []
    assert asyncio.run(socket.read()) == b""
    assert b"".join(transport.written) == head + body
    assert len(transport.written) == writes
    assert writes == 1 or transport.written[-1] is body


def test_the_arguments_of_a_call_are_walked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    is_sound = strict_json.is_sound

    def counted(value: Any, **limits: Any) -> bool:
        walked.append(len(strict_json.dump(value)))
        return is_sound(value, **limits)

    for module in (strict_json, check):
        monkeypatch.setattr(module, "is_sound", counted)

    async def store(rows: list[Row]) -> int:
        """Stores rows."""
        return len(rows)

    rows = [{"id": number, "price": number / 2} for number in range(2_000)]
    reply = asyncio.run(Gate(ScriptedModel([call("store", rows=rows), "Done."]), [store]).run("Go."))
    assert reply.calls[0].result.value == len(rows)
    assert len([size for size in walked if size > 10_000]) == 1


def test_a_long_call_of_gemini_is_not_looked_through_again_and_that_of_a_programs_own_model_is() -> None:
    looked: list[int] = []
    is_fine = ExactLook.is_fine

    def counted(look: ExactLook, value: Any, *levels: int) -> bool:
        looked.append(len(strict_json.dump(value)))
        return is_fine(look, value, *levels)

    class Passing:
        """A program's model: it passes on what another one answers, and may have changed it."""

        def __init__(self, inner: GeminiModel) -> None:
            self.name, self._inner = inner.name, inner

        async def generate(self, request: Any) -> AsyncGenerator[Any, None]:
            async for item in self._inner.generate(request):
                yield item

    async def store(rows: list[dict[str, Any]]) -> int:
        """Stores rows."""
        return len(rows)

    async def talk(wrap: Callable[[GeminiModel], Any]) -> None:
        async with FakeGemini([call("store", rows=rows), "Done."]) as fake:
            surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
            model = GeminiModel("gemini-3.8-flash", surface=surface)
            reply = await Gate(wrap(model), [store]).run("Go.")
            await model.aclose()
        assert reply.calls[0].result.value == len(rows)
        assert reply.calls[0].call.args == {"rows": rows}

    rows = [{"id": number, "name": f"row number {number}", "price": number / 2} for number in range(14_000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExactLook, "is_fine", counted)
        asyncio.run(talk(lambda model: model))
        assert [size for size in looked if size > 10_000] == []
        asyncio.run(talk(Passing))
        assert len([size for size in looked if size > 10_000]) == 1
