"""Forks, rewinds and imports on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from callgate import Gate, ScriptedModel, UsageError
from callgate.sessions import find, fork, import_session, load, rewind
from callgate.store import Store
from callgate.testing import call, text


def note(word: str) -> str:
    """Notes a word."""
    return word


def test_a_session_is_copied_taken_back_and_adopted_on_every_store(open_it: Callable[[], Store]) -> None:
    async def story() -> None:
        store = open_it()
        script = [call("note", word="a"), text("One."), text("Two.")]
        gate = Gate(ScriptedModel(script), [note], store=store)
        for prompt in ("first", "second"):
            await gate.run(prompt, session="talk")
        await fork(store, "talk", "copy", exchange=1)
        await rewind(store, "talk", exchanges=2)
        await import_session(store, "import", await store.load("copy"))
        assert {info.id: info.title for info in await store.sessions()} == dict.fromkeys(("talk", "copy", "import"), "first")
        assert [(await load(store, id)).exchanges for id in ("talk", "copy", "import")] == [0, 1, 1]
        assert (await find(store, "imp")).id == (await find(store, "latest")).id == "import"
        for mistake in (fork(store, "gone", "x"), fork(store, "talk", "copy"), import_session(store, "talk", [])):
            with pytest.raises(UsageError):
                await mistake
        assert len(await store.sessions()) == 3
        await store.aclose()
        again = open_it()
        gate = Gate(ScriptedModel([text("Other.")]), [note], store=again)
        reply = await gate.run("another second", session="copy")
        assert [turn["parts"][0].get("text") for turn in reply.contents] == [
            "first", None, None, "One.", "another second", "Other.",
        ]  # fmt: skip
        await again.aclose()

    asyncio.run(story())
