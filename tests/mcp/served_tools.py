"""Tools for a server that tests start as a process of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from callgate import Media, ToolContext, ToolError, WorkerPool, tool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    print("what a tool prints is no message")
    os.write(1, b"nor is this\n")
    subprocess.run([sys.executable, "-c", "print('nor what its child prints')"], check=True)
    return a + b


@tool(read_only=True)
def fail() -> str:
    """Fails."""
    raise ToolError("It does not work.")


@tool(read_only=True)
def picture() -> Media:
    """Shows a picture."""
    return Media(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")


@tool(read_only=True)
async def wait(file: str, context: ToolContext) -> None:
    """Waits until it is stopped, and writes down that it was."""
    context.progress("waiting", 0.5)
    _write(file, "begun")
    try:
        await asyncio.sleep(60)
    finally:
        _write(file, "stopped")


def _write(file: str, word: str) -> None:
    Path(file).write_text(word)


def pool() -> WorkerPool:
    return WorkerPool(modules=[Path(__file__).with_name("worker_tools.py")], size=1)


if "CALLGATE_TEST_WORKERS" in os.environ:
    workers = pool()
