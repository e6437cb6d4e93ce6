"""Answers that no model should give, through the gate: a run fails in a typed way or goes on; the session stays usable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, GeminiModel
from callgate.errors import ModelError
from callgate.history.repair import validate
from callgate.request import ModelRequest
from callgate.testing.fake_gemini import FakeGemini

DONE: Any = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Done."}]}, "finishReason": "STOP"}]}


class Custom:
    """A model that yields chunks exactly as they are given."""

    name = "custom"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def generate(self, request: ModelRequest) -> AsyncIterator[Any]:
        yield self.answers.pop(0)


def said(*parts: Any, **fields: Any) -> Any:
    return {"candidates": [{"content": {"role": "model", "parts": [*parts]}, "finishReason": "STOP", **fields}]}


@pytest.mark.parametrize(
    "part",
    [
        {"functionCall": {"name": "f"}, "functionResponse": "s"},
        {"function_call": "s"},
        {"functionCall": ["f"]},
        {"functionCall": {"name": "f\ud800", "args": {"\udc00": ["\udfff"]}}},
        {"text": "a\ud800"},
        {"text": 5, "new": [{"\ud800": 1}]},
        {"text": "a", "thought": "yes", "thoughtSignature": 5},
    ],
    ids=range(7),
)
def test_an_odd_part_does_not_make_a_session_unusable(part: Any, tmp_path: Path) -> None:
    async def story() -> None:
        store = str(tmp_path / "sessions.db")
        async with Gate(Custom(said(part), DONE, DONE), store=store) as gate:
            with contextlib.suppress(ModelError):
                await gate.run("Go.", session="s")
        async with Gate(Custom(DONE, DONE), store=store) as gate:
            reply = await gate.run("And now?", session="s")
        assert reply.text == "Done."
        assert validate(reply.contents) == []

    asyncio.run(story())


def test_a_call_in_snake_case_runs_and_is_kept() -> None:
    ran: list[str] = []

    def look(file_path: str) -> str:
        """Look at a file."""
        ran.append(file_path)
        return "seen"

    part = {"function_call": {"id": None, "name": "look", "args": {"file_path": "a"}}, "text": None}
    reply = asyncio.run(Gate(Custom(said(part), DONE), [look]).run("Go."))
    assert (ran, [record.state for record in reply.calls], reply.text) == (["a"], ["finished"], "Done.")
    assert reply.contents[1]["parts"] == [{"functionCall": {"name": "look", "args": {"file_path": "a"}}}]


SIGNED = {"thoughtSignature": "c2lnbmF0dXJl"}
TWOFOLD: dict[str, tuple[Any, list[Any]]] = {
    "text and media": (
        {"text": "See:", "inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        [{"text": "See:"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}],
    ),
    "a thought and code": (
        {"executableCode": {"language": "PYTHON", "code": "1"}, "text": "Hm.", "thought": True, **SIGNED},
        [{"executableCode": {"language": "PYTHON", "code": "1"}, **SIGNED}, {"text": "Hm.", "thought": True}],
    ),
    "in snake_case": (
        {"text": "A", "inline_data": {"mime_type": "image/png", "data": "AAAA"}},
        [{"text": "A"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}],
    ),
    "text and a list": ({"text": "A", "toolCall": [1]}, [{"text": "A"}]),
}


@pytest.mark.parametrize("name", TWOFOLD)
def test_a_part_with_two_kinds_of_data_becomes_two_parts(name: str) -> None:
    part, expected = TWOFOLD[name]
    reply = asyncio.run(Gate(Custom(said(part))).run("Go."))
    assert reply.contents[-1]["parts"] == expected


def test_a_call_beside_text_runs_once_and_keeps_its_signature() -> None:
    part = {"text": "I look.", "functionCall": {"name": "look", "args": {}}, **SIGNED}
    ran: list[int] = []

    def look() -> str:
        """Look around."""
        ran.append(1)
        return "seen"

    reply = asyncio.run(Gate(Custom(said(part), DONE), [look]).run("Go."))
    assert (ran, reply.text) == ([1], "Done.")
    assert reply.contents[1]["parts"] == [{"text": "I look."}, {"functionCall": {"name": "look", "args": {}}, **SIGNED}]


def test_a_signature_whose_data_is_lost_keeps_a_part_that_can_be_sent() -> None:
    reply = asyncio.run(Gate(Custom(said({"text": "A"}, {"toolCall": 5, **SIGNED}))).run("Go."))
    assert reply.contents[-1]["parts"] == [{"text": "A"}, {"text": "", **SIGNED}]


def test_a_history_with_two_kinds_of_data_in_a_part_is_brought_into_a_form_that_can_be_sent() -> None:
    part = {"text": "A", "inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    history = [{"role": "user", "parts": [{"text": "Go."}]}, {"role": "model", "parts": [part]}]
    reply = asyncio.run(Gate(Custom(DONE)).run("And?", history=history))
    assert reply.contents[1]["parts"] == [{"text": "A"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]


@pytest.mark.parametrize("name", TWOFOLD)
def test_a_strict_server_accepts_a_history_with_such_parts(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        store = str(tmp_path / "sessions.db")
        async with FakeGemini([said(TWOFOLD[name][0]), "Done."]) as fake:
            fake.signatures.add(SIGNED["thoughtSignature"])
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
            async with Gate(GeminiModel("gemini-3.8-flash", env=env), store=store) as gate:
                await gate.run("Go.", session="s")
                reply = await gate.run("And now?", session="s")
        assert (reply.text, fake.refusals) == ("Done.", [])

    asyncio.run(story())
