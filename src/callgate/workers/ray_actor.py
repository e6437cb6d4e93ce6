"""The far side of a cluster: an actor that keeps one worker process of ours on its machine and passes frames on.

Tools do not run in the actor itself but in the same kind of process as on one machine, so that what they do has the same
results there: time, memory and crashes are bounded in the same way, and nothing that a tool returns is unpickled anywhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from callgate.workers.frames import pack
from callgate.workers.process import WorkerProcess

__all__ = ["GROUPS", "Keeper"]

TURN_S = 1.0
"""How long a question for messages is kept open before it is answered with none."""
ORPHAN_S = 5.0
"""How long nobody has asked for messages before the program counts as dead, and the worker is ended."""


GROUPS = ("in", "past", "out")
"""Groups of the actor's methods; each has a thread of its own, so that none waits for one of another group."""

Method = TypeVar("Method", bound=Callable[..., Any])


def _in_group(name: str) -> Callable[[Method], Method]:
    """Mark a method as one of a group, as `ray.method` does.

    The mark is made here, and not by the program: a class that is sent by its name, as over ray://, is imported again on the
    other side, and comes without what the program has added to it.
    """

    def mark(method: Method) -> Method:
        method.__ray_concurrency_group__ = name  # pyright: ignore[reportFunctionMemberAccess]
        return method

    return mark


class Keeper:
    """Keeps a worker process. Each group of its methods has a thread of its own."""

    def __init__(self) -> None:
        self._process = WorkerProcess()
        self._folder: str | None = None
        self._asked_s: float | None = None
        """When messages were last asked for."""
        self._ended = threading.Event()

    @_in_group("in")
    def begin(self, modules: Sequence[tuple[str, str | None, str | None]], path: Sequence[str], memory: int | None) -> int:
        """Tell the worker what to import; `path` is the program's own, for what is not found otherwise."""
        known = {os.path.abspath(entry) for entry in sys.path}
        sys.path.extend(entry for entry in path if entry not in known and os.path.exists(entry))
        self._process.begin([(name, self._placed(name, file, text)) for name, file, text in modules], memory_bytes=memory)
        return self._process.pid

    def _placed(self, name: str, file: str | None, text: str | None) -> str | None:
        """A file of the program on this machine: its own, if that is the same one, or a copy."""
        if file is None or text is None:
            return file
        if os.path.exists(file):
            with open(file, encoding="utf-8", errors="replace") as there:
                if there.read() == text:
                    return file
        self._folder = self._folder or tempfile.mkdtemp(prefix="callgate-tools-")
        copy = os.path.join(self._folder, f"{name}.py")
        with open(copy, "w", encoding="utf-8") as out:
            out.write(text)
        return copy

    @_in_group("in")
    def send(self, frame: bytes) -> None:
        """A frame for the worker."""
        self._process.send(frame)

    @_in_group("past")
    def control(self, number: int, message: dict[str, object] | None) -> None:
        """A message past the call that runs; None: the call is not wanted any more."""
        if message is None:
            self._process.cancel(number)
        else:
            self._process.control(message)

    @_in_group("out")
    def receive(self) -> bytes:
        """The frames that have come, after a while none; at the end how the worker ended."""
        is_first, self._asked_s = self._asked_s is None, time.monotonic()
        if is_first:
            threading.Thread(target=self._watch, name="callgate-orphan", daemon=True).start()
        until = time.monotonic() + TURN_S
        while True:
            frames = b"".join(map(pack, self._process.messages()))
            if self._process.gone:
                died = self._process.death()
                frames += pack({"op": "died", "how": died.how, "output": died.output, "unread": died.unread})
            if frames or time.monotonic() >= until:
                return frames
            self._process.wait(until, listen=True)

    def _watch(self) -> None:
        """End the worker when its program is gone. Ray waits longer for a client that may come back."""
        while not self._process.gone:
            left_s = (self._asked_s or 0.0) + TURN_S + ORPHAN_S - time.monotonic()
            if left_s <= 0:
                self._process.kill()
                return
            self._ended.wait(left_s)
            if self._ended.is_set():
                return

    @_in_group("past")
    def has_children(self) -> bool:
        """Return whether something that a tool started is still running."""
        return self._process.has_children

    @_in_group("past")
    def end(self, grace_s: float) -> None:
        """End the worker and everything that it started."""
        self._ended.set()
        if grace_s:
            self._process.close(grace_s=grace_s)
        else:
            self._process.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
