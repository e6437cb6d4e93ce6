"""The steps of the embedded model, kept on disk: a run with another decoder computes only what that decoder asks anew.

What is kept belongs to one base model and one adapter; times of such a run say nothing.
"""

from __future__ import annotations

import hashlib
import pickle
import sqlite3
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from callgate.embedded.decoder import Step
from callgate.embedded.engine import Engine
from callgate.embedded.weights import find_files


def keep_steps(engine: Engine, path: Path, *, model: str = "") -> None:
    """Let the engine answer from the file what it answered before, and write down what is new.

    `model` names base model and adapter; the installed ones if it is empty.
    """
    store = sqlite3.connect(path, isolation_level=None)
    store.execute("create table if not exists steps (key text primary key, value blob)")
    if not model:
        files = find_files()
        read = [Path(name).read_bytes() for name in (files.base, files.adapter) if name]
        model = hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in read)).hexdigest()
    step, tokens, stream, begin = engine.step, engine.tokens, engine.stream, engine.begin_with
    begun: list[str] = []

    def key_of(*parts: Any) -> str:
        return hashlib.sha256(repr((model, *parts)).encode()).hexdigest()

    def found(key: str) -> Any:
        row = store.execute("select value from steps where key = ?", (key,)).fetchone()
        return None if row is None else pickle.loads(row[0])

    def keep(key: str, value: Any) -> None:
        store.execute("insert or replace into steps values (?, ?)", (key, pickle.dumps(value)))

    async def begin_late(text: str) -> None:
        begun[:] = [text]

    async def begin_now() -> None:
        for text in begun:
            await begin(text)
        begun.clear()

    async def kept_step(prompt: str, *, count: int = 1, grammar: str | None = None) -> Step:
        key = key_of("step", prompt, count, grammar)
        made = found(key)
        if made is None:
            await begin_now()
            made = await step(prompt, count=count, grammar=grammar)
            keep(key, made)
        return made

    async def kept_tokens(text: str) -> int:
        key = key_of("tokens", text)
        count = found(key)
        if count is None:
            keep(key, count := await tokens(text))
        return count

    async def kept_stream(path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        key = key_of("stream", path, sorted(body.items(), key=lambda item: item[0]))
        events = found(key)
        if events is None:
            await begin_now()
            events = [event async for event in stream(path, body)]
            keep(key, events)
        for event in events:
            yield event

    engine.step, engine.tokens, engine.stream, engine.begin_with = (  # type: ignore[method-assign]
        kept_step, kept_tokens, kept_stream, begin_late,
    )  # fmt: skip
