"""Answers that no model should give, through the gate: a run fails in a typed way or goes on; the session stays usable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate
from callgate.errors import ModelError
from callgate.history.repair import validate
from callgate.request import ModelRequest

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
