"""One worker process as the program sees it: started, spoken to, watched, and ended with everything that it started.

Messages go in and come out; a message, the end of the process, a wake-up or a time that is reached ends a wait. This file
knows the process and the socket, not calls and sessions. All of it blocks: each worker has a thread of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import callgate.workers.guard as guard_module
from callgate.errors import CallgateError, JsonError
from callgate.threads import without_paths
from callgate.workers.frames import Frames, pack
from callgate.workers.guard import children_of, kill_tree

__all__ = ["WorkerDied", "WorkerProcess"]

output_logger = logging.getLogger("callgate.workers.output")

TAIL_LINES = 5
TAIL_CHARS = 500
OUTPUT_BYTES_MAX = 64 * 1024
"""How much of what a worker printed in one call is looked at."""


class WorkerDied(CallgateError):
    """The process is gone. `how` is its exit status or signal, `output` a sentence with what it printed last, or empty.

    `unread`: it did not take in the last message that it was sent.
    """

    def __init__(self, how: str, output: str = "", *, unread: bool = False) -> None:
        super().__init__(how + output)
        self.how, self.output, self.unread = how, output, unread


class WorkerProcess:
    """A worker that was started. It is told what to import by `begin`, and is of use once it has answered `ready`."""

    def __init__(self) -> None:
        self._sock, theirs = socket.socketpair()
        self._control, their_control = socket.socketpair()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)  # Somebody who holds a lock may write to it; one byte in it is as good as many.
        self._output = tempfile.TemporaryFile(prefix="callgate-worker-", buffering=0)  # noqa: SIM115
        # Appending, or what is printed after a truncation would come behind a hole.
        fcntl.fcntl(self._output.fileno(), fcntl.F_SETFL, os.O_APPEND)
        package = str(Path(guard_module.__file__).parents[2])
        old = os.environ.get("PYTHONPATH")
        fds = [theirs.fileno(), their_control.fileno()]
        with theirs, their_control:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", "callgate.workers.host", *map(str, fds)],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=fds,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{old}" if old else package},
            )
        _GUARD.add(self.pid)
        self._pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1
        self._poll, self._ended = select.poll(), select.poll()
        if self._pidfd >= 0:
            self._ended.register(self._pidfd, select.POLLIN)
        for fd in (self._sock.fileno(), self._wake_in.fileno(), *([self._pidfd] if self._pidfd >= 0 else [])):
            self._poll.register(fd, select.POLLIN)
        self._frames = Frames()
        self._messages: deque[dict[str, Any]] = deque()
        self._gone = self._unread = False
        self.started = time.monotonic()
        self.calls = 0

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    def begin(self, modules: Sequence[tuple[str, str | None]], *, memory_bytes: int | None) -> None:
        """Tells the process what to import."""
        environ = {"PYTHONPATH": os.environ.get("PYTHONPATH")}
        path = [os.path.abspath(entry) for entry in sys.path]
        self.send({"op": "start", "path": path, "environ": environ, "modules": modules, "memory_bytes": memory_bytes})

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends one message.

        Raises:
            JsonError: it is not JSON.
            WorkerDied: nobody is there any more.
        """
        data = pack(dict(message))
        try:
            self._sock.sendall(data)
        except OSError:
            self._unread = True
            raise self._death() from None

    def cancel(self, number: int) -> None:
        """Tells the call that runs that nobody wants it any more. Whoever cannot hear that will be killed."""
        with contextlib.suppress(OSError):
            self._control.sendall(pack({"id": number}))

    def wake(self) -> None:
        """Ends a wait of another thread."""
        with contextlib.suppress(OSError):
            self._wake_out.send(b"!")

    def receive(self, until: float | None) -> dict[str, Any] | None:
        """The next message; None when somebody called `wake`, or when `until` (on the monotonic clock) is reached.

        Raises:
            WorkerDied: the process is gone, and everything that it sent was received.
        """
        while not self._messages:
            if self._gone:
                raise self._death()
            wait_ms = None if until is None else max(0.0, (until - time.monotonic()) * 1000)
            ready = {fd for fd, _ in self._poll.poll(wait_ms)}
            if not ready:
                return None
            if self._wake_in.fileno() in ready:
                with contextlib.suppress(OSError):
                    self._wake_in.recv(4096)
                return None
            self._take_in(is_over=self._sock.fileno() not in ready)
        return self._messages.popleft()

    def _take_in(self, *, is_over: bool) -> None:
        """Reads what is there. `is_over`: the process has ended, and a child of it may hold the socket open."""
        try:
            data = self._sock.recv(1 << 18, socket.MSG_DONTWAIT)
            self._gone = not data
            self._messages.extend(self._frames.feed(data))
        except BlockingIOError:
            self._gone = is_over
        except ConnectionResetError:  # It closed the socket with something unread in it.
            self._gone = self._unread = True
        except (OSError, JsonError):
            self._gone = True

    @property
    def is_alive(self) -> bool:
        """Whether the process is there."""
        if self._gone or self._pidfd < 0:
            return not self._gone and self._process.poll() is None
        # Not by waiting for it: while it is a zombie, nobody else can get its number.
        return not self._ended.poll(0)

    @property
    def has_children(self) -> bool:
        """Whether something that a tool started is still running."""
        return bool(children_of(self.pid))

    def kill(self) -> None:
        """Ends the process and everything that it started, now."""
        if self._process.returncode is None:
            kill_tree(self.pid)
        else:  # It was waited for; what is left of its group still has its number.
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        _GUARD.remove(self.pid)
        self._gone = True

    def close(self, *, grace_s: float = 0.0) -> None:
        """Ends the process, in good order if it is quick enough, and lets go of everything."""
        if grace_s and self.is_alive:
            with contextlib.suppress(WorkerDied):
                self.send({"op": "stop"})
                self._await_end(grace_s)
        self.kill()
        self.log_output()
        self._sock.close()
        self._control.close()
        self._wake_in.close()
        self._wake_out.close()
        self._output.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _await_end(self, grace_s: float) -> None:
        until = time.monotonic() + grace_s
        while time.monotonic() < until:
            with contextlib.suppress(IndexError):
                self._messages.clear()
            self.receive(until)

    # What it printed, and how it ended -----------------------------------------------------------------------------------

    def log_output(self) -> str:
        """Passes what the worker printed on to the logger `callgate.workers.output`, and gives the end of it."""
        size = os.fstat(self._output.fileno()).st_size
        if not size:
            return ""
        self._output.seek(max(0, size - OUTPUT_BYTES_MAX))
        text = self._output.read().decode("utf-8", "replace")
        self._output.truncate(0)
        for line in text.splitlines():
            output_logger.info("worker %d: %s", self.pid, line)
        return without_paths("\n".join(text.strip().splitlines()[-TAIL_LINES:]))[-TAIL_CHARS:]

    def _death(self) -> WorkerDied:
        self.kill()
        last = self.log_output()
        printed = f" Its last output was:\n{last}" if last else ""
        return WorkerDied(f"{_ending(self._process.returncode)}.", printed, unread=self._unread)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


class _Guard:
    """The tiny process that ends the workers when this program is killed. There is one for all pools."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None

    def add(self, pid: int) -> None:
        with self._lock:
            self._alive.add(pid)
            if not self._tell(f"+{pid}\n"):
                self._start()
                self._tell("".join(f"+{one}\n" for one in self._alive))

    def remove(self, pid: int) -> None:
        with self._lock:
            self._alive.discard(pid)
            self._tell(f"-{pid}\n")

    def _tell(self, text: str) -> bool:
        if self._sock is None or self._process is None or self._process.poll() is not None:
            return False
        try:
            self._sock.sendall(text.encode())
        except OSError:
            return False
        return True

    def _start(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._sock, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard_module.__file__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )

    def stop(self) -> None:
        """At the end of the program: nothing of it may stay."""
        with self._lock:
            if self._sock is not None and self._process is not None:
                self._sock.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=2.0)
            self._sock = self._process = None

    def reset_after_fork(self) -> None:
        """A fork has no workers: they are its parent's."""
        if self._sock is not None:
            self._sock.close()
        if self._process is not None:
            self._process.returncode = 0  # Not the fork's child; without this its destructor complains.
        self.__init__()


_GUARD = _Guard()
atexit.register(_GUARD.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_GUARD.reset_after_fork)
