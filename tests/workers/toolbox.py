"""The tools of these tests: imported by workers, and by the tests themselves to run in threads."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from callgate import Media, ToolContext, ToolError, ToolResult, WorkerPool, host, tool

STATE: dict[str | None, list[str]] = {}


@tool(read_only=True)
def add(a: int, b: int = 2) -> int:
    """Adds two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    return a + b


@tool
def day_after(day: date) -> date:
    """The next day."""
    return day.replace(day=day.day + 1)


@tool
def take_anything(value: Any) -> None:
    """Takes whatever there is."""


@tool
async def wait_and_say(text: str, seconds: float = 0.0) -> str:
    """Says something later."""
    await asyncio.sleep(seconds)
    return text


@tool
def refuse() -> None:
    """Refuses."""
    raise ToolError("The shop is closed; try again on Monday.")


@tool
def stumble() -> None:
    """Has a bug."""
    raise KeyError("nothing here")


@tool
def leave() -> None:
    """Tries to end the program."""
    sys.exit(3)


@tool
def count(to: int, context: ToolContext) -> Iterator[int]:
    """Counts, and says how far it is."""
    for number in range(to):
        context.progress(f"at {number}", number / to)
        yield number


@tool
async def count_later(to: int) -> AsyncIterator[int]:
    """Counts on the event loop."""
    for number in range(to):
        yield number


@tool
def raw() -> bytes:
    """Gives bytes."""
    return b"\x00\xff"


@tool
def picture() -> Media:
    """Gives an image."""
    return Media(data=b"\x89PNG", mime_type="image/png", name="dot.png")


@tool
def odd() -> dict[str, object]:
    """Gives what JSON does not have."""
    return {"nan": float("nan"), "big": 2**70, "set": {1}, "object": object(), "lone": "\ud800"}


@tool
def verdict() -> ToolResult:
    """Knows more than a value."""
    return ToolResult(call_id="", name="", status="failed", error="Half of it worked.", notes=("half",))


@tool
def remember(word: str, context: ToolContext) -> list[str]:
    """Keeps a word for the session."""
    STATE.setdefault(context.session, []).append(word)
    return STATE[context.session]


def session_ended(session: str) -> None:
    STATE.pop(session, None)


@tool(read_only=True)
def pid() -> int:
    """The process that this runs in."""
    return os.getpid()


@tool
async def shop(item: str) -> str:
    """Asks the program for a price."""
    return f"{item}: {await host.call('price', {'item': item})}"


# What does not end by itself ----------------------------------------------------------------------------------------------


@tool
def spin(note: str = "") -> None:
    """Never returns."""
    if note:
        Path(note).write_text(str(os.getpid()))
    while True:
        pass


@tool
def sleep_long(note: str = "") -> None:
    """Sleeps."""
    if note:
        Path(note).write_text(str(os.getpid()))
    time.sleep(60)


@tool
def backtrack() -> bool:
    """Holds the interpreter's lock in C code for longer than anybody waits."""
    return bool(re.match(r"(a+)+$", "a" * 60 + "b"))


@tool
def family(note: str) -> None:
    """Starts a tree of processes, one of which leaves the group, and notes their ids."""
    script = "sleep 60 & echo $!; setsid sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout
        ids = [shell.stdout.readline().strip(), shell.stdout.readline().strip()]
        Path(note).write_text(" ".join([str(os.getpid()), str(shell.pid), *ids]))
        shell.wait()


@tool
def litter() -> int:
    """Leaves a process behind that is nobody's child and in no group of ours."""
    script = "setsid sleep 60 & exit 0"
    return subprocess.run(["sh", "-c", script], check=False).returncode


@tool
def devour() -> int:
    """Takes all the memory that there is."""
    held = []
    while True:
        held.append(bytearray(16 << 20))


@tool
def start_threads() -> None:
    """Starts threads that do not end until there can be no more."""
    while True:
        threading.Thread(target=threading.Event().wait, daemon=True).start()


@tool
def long_text(mib: int) -> str:
    """Returns a text of so many MiB."""
    return "x" * (mib << 20)


@tool
def obey(context: ToolContext) -> str:
    """Looks whether it was cancelled, and returns then."""
    while not context.is_cancelled():
        time.sleep(0.005)
    return "stopped by myself"


# What dies ----------------------------------------------------------------------------------------------------------------


@tool
def die(code: int = 7) -> None:
    """Ends its process."""
    print("last words", file=sys.stderr)
    os._exit(code)


@tool
def babble(data: str) -> None:
    """Writes to the socket of its worker."""
    os.write(int(sys.argv[1]), data.encode("latin-1"))
    time.sleep(60)


@tool(idempotent=True)
def die_once(note: str) -> str:
    """Dies in its first attempt."""
    path = Path(note)
    if not path.exists():
        path.write_text("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return "made it"


@tool
async def breed() -> None:
    """Tries to start workers in a worker."""
    await WorkerPool(size=1).start()


@tool(isolation="process", timeout_s=20)
def apart(a: int) -> list[int]:
    """Runs in a process of its own."""
    return [a, os.getpid()]


@tool(isolation="process", timeout_s=1)
def apart_forever() -> None:
    """Never returns."""
    while True:
        pass
