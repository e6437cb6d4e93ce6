"""From the start of a program to its first answer: what must be loaded for it, and what must not."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from callgate.testing import FakeGemini, call

PROGRAM = """
import asyncio, json, sys
from callgate import Gate, GeminiModel

async def look_up(number: int) -> dict:
    "Looks a number up."
    return {"number": number}

async def main():
    async with Gate(GeminiModel("gemini-3.8-flash"), [look_up]) as gate:
        return await gate.run("Begin.")

reply = asyncio.run(main())
assert len(reply.calls) == 1, reply
print(json.dumps(sorted(sys.modules)))
"""
MODULES_MAX = 394
OURS_MAX = 169
# Packages, and modules of ours, that a plain first answer has no use for.
UNUSED = {
    "anyio", "httpcore2", "httpx2", "opentelemetry", "pydantic", "tomllib", "urllib.request",
    "callgate.config.loader", "callgate.permission.audit", "callgate.permission.cache", "callgate.permission.hooks",
    "callgate.gemini.caches", "callgate.gemini.files", "callgate.gemini.unknown_fields", "callgate.wire.content_codec",
    "callgate.permission.policy_file",
    "callgate.permission.redact", "callgate.prompted", "callgate.store.database", "callgate.wire.httpx_transport",
}  # fmt: skip


async def modules_loaded(folder: Path) -> list[str]:
    async with FakeGemini([call("look_up", number=5), "That was all."]) as fake:
        environment = {**os.environ, "GEMINI_API_KEY": "k" * 20, "GOOGLE_GEMINI_BASE_URL": fake.base_url}
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, cwd=folder, env=environment, stdout=-1, stderr=-1
        )
        out, err = await program.communicate()
    assert program.returncode == 0, err.decode()
    return json.loads(out)


def test_a_first_answer_loads_few_modules_and_none_that_nothing_uses(tmp_path: Path) -> None:
    loaded = asyncio.run(modules_loaded(tmp_path))
    ours = [name for name in loaded if name.partition(".")[0] == "callgate"]
    assert sorted(UNUSED & set(loaded)) == []
    assert len(ours) <= OURS_MAX, ours
    assert len(loaded) <= MODULES_MAX, loaded
