"""The far side of a cluster: an actor that keeps one worker process of ours on its machine and passes frames on.

Tools do not run in the actor itself but in the same kind of process as on one machine, so that what they do has the same
results there: time, memory and crashes are bounded in the same way, and nothing that a tool returns is unpickled anywhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from callgate.workers.channel import FRAME, Listener, Offer, is_encrypted, parcels
from callgate.workers.frames import Frames, pack
from callgate.workers.process import WorkerProcess

__all__ = ["GROUPS", "Keeper"]

TURN_S = 1.0
"""Seconds that a poll for messages is kept open before it is answered with none."""
ORPHAN_S = 5.0
"""Seconds without a poll after which the program counts as dead, and the worker is ended."""


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
    """Actor with one worker process. Each group of its methods has a thread of its own."""

    def __init__(self) -> None:
        self._process = WorkerProcess()
        self._folder: str | None = None
        self._asked_s: float | None = None
        """Time of the last poll for messages."""
        self._listener: Listener | None = None
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
    def listen(self, host: str | None = None, *, node: str | None = None) -> Offer | None:
        """Offer the program a direct connection. None: this machine cannot, or the cluster's connections are encrypted.

        Args:
            host: The address to listen at, if it is known.
            node: The node on which the program runs, if it runs on one: for a neighbour nothing listens to the network.
        """
        if is_encrypted():
            return None
        try:
            self._listener = Listener(host or _address_for(node))
        except OSError:
            return None
        threading.Thread(target=self._serve, args=(self._listener,), name="callgate-channel", daemon=True).start()
        return self._listener.offer

    def _serve(self, listener: Listener) -> None:
        """Pass frames on in both directions, until the program is gone and nothing of the worker may stay."""
        sock = listener.accept()
        listener.close()
        if sock is None:
            return
        with sock:
            threading.Thread(target=self._answer, args=(sock,), name="callgate-channel-out", daemon=True).start()
            control = Frames()
            with contextlib.suppress(OSError):
                for kind, frame in parcels(sock):
                    if kind == FRAME:
                        self._process.send(frame)
                        continue
                    for message in control.feed(frame):
                        self._pass(message)
            if not self._ended.is_set():
                self._process.kill()
                self._process.wake()

    def _answer(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):  # Ended, and closed, by another thread.
            while not self._process.gone:
                sock.sendall(self._frames(time.monotonic() + TURN_S))
            sock.shutdown(socket.SHUT_WR)

    @_in_group("out")
    def ended(self) -> None:
        """Wait for the end of the worker. Ray's answer to a program with a direct connection is that this actor is gone."""
        self._ended.wait()

    @_in_group("in")
    def send(self, frame: bytes) -> None:
        """A frame for the worker."""
        self._process.send(frame)

    @_in_group("past")
    def control(self, frame: bytes) -> None:
        """A message past the call that runs."""
        for message in Frames().feed(frame):
            self._pass(message)

    def _pass(self, message: dict[str, Any]) -> None:
        if message["op"] == "cancel":
            self._process.cancel(message["id"])  # Never waits, as the other may.
        else:
            self._process.control(message)

    @_in_group("out")
    def receive(self) -> bytes:
        """The frames that have come, after a while none; at the end how the worker ended."""
        is_first, self._asked_s = self._asked_s is None, time.monotonic()
        if is_first:
            if self._listener is not None:
                self._listener.close()  # The program has not come, and will not.
            threading.Thread(target=self._watch, name="callgate-orphan", daemon=True).start()
        return self._frames(time.monotonic() + TURN_S)

    def _frames(self, until: float) -> bytes:
        """The frames that have come, at the latest at that time; at the end of the worker how it ended."""
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
        if self._listener is not None:
            self._listener.close()
        if grace_s:
            self._process.close(grace_s=grace_s)
        else:
            self._process.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _address_for(node: str | None) -> str:
    import ray as untyped_ray

    ray: Any = untyped_ray
    is_here = node is not None and node == ray.get_runtime_context().get_node_id()
    return "127.0.0.1" if is_here else ray.util.get_node_ip_address()
