"""One worker process as the program sees it: started, spoken to, watched, and ended with everything that it started.

Frames go in, messages come out; a message, the end of the process, a wake-up or a time that is reached ends a wait. This
file knows the process and the socket, not calls and sessions.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import logging
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import callgate.workers.guard as guard_module
from callgate.errors import JsonError
from callgate.threads import without_paths
from callgate.workers.frames import Frames, pack
from callgate.workers.guard import children_of, kill_marked, kill_tree
from callgate.workers.protocol import WorkerDiedError

__all__ = ["WorkerProcess", "worker_environment"]

output_logger = logging.getLogger("callgate.workers.output")

TAIL_LINES = 5
TAIL_CHARS = 500
READ_BYTES = 64 * 1024  # More is taken from the system anew for each read, which costs more than it saves.
OUTPUT_BYTES_MAX = 64 * 1024
"""Maximum bytes of a worker's output in one call that are read."""


class WorkerProcess:
    """A worker that was started. It is told what to import by `begin`, and is of use once it has answered `ready`.

    Its answers are read by the first to come: the event loop whose call runs in it, or the thread that waits on it.
    """

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
        self._mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        with theirs, their_control:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", "callgate.workers.worker", *map(str, fds)],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=fds,
                # A group, to be killed as a whole; no session of its own, because Linux shares the processor out by
                # sessions, and a worker that competes with the rest of its machine would wait several times as long.
                process_group=0,
                env={
                    **worker_environment(os.environ),
                    "PYTHONPATH": f"{package}{os.pathsep}{old}" if old else package,
                    guard_module.MARK: self._mark,
                },
            )
        _GUARD.add(self.pid, self._mark)
        self._pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1
        self._ended = select.poll()
        if self._pidfd >= 0:
            self._ended.register(self._pidfd, select.POLLIN)
        self._frames = Frames()
        self._rest = b""
        """Bytes that could not be sent at once."""
        self._control_lock = threading.Lock()
        self.reader: asyncio.AbstractEventLoop | None = None
        """The event loop that looks for answers."""
        self._unread = self._is_settled = False
        self.gone = False
        """True if it is over: everything that the process sent was received, and no more will come."""
        self.started = time.monotonic()
        self.calls = 0

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    def begin(self, modules: Sequence[tuple[str, str | None]], *, memory_bytes: int | None) -> None:
        """Tell the process what to import."""
        environ = {"PYTHONPATH": os.environ.get("PYTHONPATH")}
        path = [os.path.abspath(entry) for entry in sys.path]
        start = {"op": "start", "path": path, "environ": environ, "modules": modules, "memory_bytes": memory_bytes}
        self.send(pack(start))

    def send(self, frame: bytes) -> None:
        """Send a frame, or what of it can be sent without waiting; the rest goes out in `wait`."""
        assert not self._rest, "one thing after another"
        try:
            sent = self._sock.send(frame, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.gone = self._unread = True
            self.wake()
            return
        if sent < len(frame):
            self._rest = frame[sent:]
            self.wake()

    def control(self, message: Mapping[str, Any]) -> None:
        """Send a message past the call that runs. Blocks while the worker does not read."""
        frame = pack(dict(message))
        with self._control_lock, contextlib.suppress(OSError):
            self._control.sendall(frame)

    def cancel(self, number: int) -> None:
        """Ask the running call to stop; one that cannot is killed later."""
        # Never waits: the caller has a deadline to keep.
        if self._control_lock.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._control.send(pack({"op": "cancel", "id": number}), socket.MSG_DONTWAIT)
            finally:
                self._control_lock.release()

    def wake(self) -> None:
        """End a wait of another thread."""
        with contextlib.suppress(OSError):
            self._wake_out.send(b"!")

    # Its answers ---------------------------------------------------------------------------------------------------------

    def wait(self, until: float, *, listen: bool) -> None:
        """Wait until something may have happened, or `until` is reached on the monotonic clock.

        `listen`: for answers too, although an event loop looks for them.
        """
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        events = (select.POLLIN if listen or self.reader is None else 0) | (select.POLLOUT if self._rest else 0)
        if events:
            poll.register(self._sock, events)
        if self._pidfd >= 0:
            poll.register(self._pidfd, select.POLLIN)
        wait_s = until - time.monotonic()
        ready = dict(poll.poll(max(0.0, wait_s * 1000)) if not self.gone else ())
        if self._wake_in.fileno() in ready:
            with contextlib.suppress(OSError):
                self._wake_in.recv(4096)
        if ready.get(self._sock.fileno(), 0) & select.POLLOUT and self._rest:
            rest, self._rest = self._rest, b""
            self.send(rest)

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages since the last call. Never waits."""
        found: list[dict[str, Any]] = []
        is_over = False
        while not self.gone:
            try:
                data = self._sock.recv(READ_BYTES, socket.MSG_DONTWAIT)
                found += self._frames.feed(data)
            except BlockingIOError:
                if not is_over and self.is_alive:
                    break
                # A child of it may hold the socket open. What it sent just before its end is still there to be read.
                self.gone, is_over = is_over, True
            except ConnectionResetError:  # It closed the socket with something unread in it.
                self.gone = self._unread = True
            except (OSError, JsonError):
                self.gone = True
            else:
                self.gone = not data
                if len(data) < READ_BYTES:
                    break
        return found

    def read_by(self, loop: asyncio.AbstractEventLoop, look: Callable[[], None]) -> None:
        """Let an event loop call `look` when there is an answer. Called in the thread of that loop."""
        if self.reader is loop or self.gone:
            return
        self.read_by_none()
        try:
            loop.add_reader(self._sock, look)
        except (NotImplementedError, RuntimeError, OSError, ValueError):
            return  # A loop that cannot do this, or a worker that is gone: the thread that waits sees to it.
        self.reader = loop

    def read_by_none(self) -> None:
        """End what `read_by` began."""
        loop, self.reader = self.reader, None
        if loop is not None:
            _on_loop(loop, self._forget, loop)
            self.wake()

    def _forget(self, loop: asyncio.AbstractEventLoop) -> None:
        # It may have come back in the meantime.
        if self.reader is not loop and not loop.is_closed():
            loop.remove_reader(self._sock.fileno())

    @property
    def is_alive(self) -> bool:
        """Return whether the process is there."""
        if self._pidfd < 0:
            return not self.gone and self._process.poll() is None
        # Not by waiting for it: while it is a zombie, nobody else can get its number.
        return not self._ended.poll(0)

    @property
    def has_children(self) -> bool:
        """Return whether something that a tool started is still running."""
        return bool(children_of(self.pid))

    def kill(self) -> None:
        """End the process and everything that it started, now."""
        if self._is_settled:
            return
        # What a worker that has died by itself leaves behind is nobody's child any more, and is found by its mark. Whether
        # it has died cannot be asked: the answer may be out of date when it comes.
        if self._process.returncode is None:
            kill_tree(self.pid, self._mark)
        else:  # It was waited for; what is left of its group still has its number.
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            kill_marked(self._mark)
        self._process.wait()
        self._is_settled = True
        _GUARD.remove(self.pid, self._mark)
        self.gone = True

    def close(self, *, grace_s: float = 0.0) -> None:
        """End the process, cleanly if it is quick enough, and lets go of everything."""
        if grace_s and self.is_alive and not self._rest:
            self.send(pack({"op": "stop"}))
            self._ended.poll(grace_s * 1000 if self._pidfd >= 0 else 0)
        self.kill()
        self.log_output()
        loop, self.reader = self.reader, None
        if loop is None:
            self._sock.close()
        else:
            _on_loop(loop, _unread, loop, self._sock)
        self._control.close()
        self._wake_in.close()
        self._wake_out.close()
        self._output.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    # What it printed, and how it ended -----------------------------------------------------------------------------------

    def log_output(self) -> str:
        """Pass what the worker printed on to the logger `callgate.workers.output`, and gives the end of it."""
        size = self._output.seek(0, os.SEEK_END)
        if not size:
            return ""
        self._output.seek(max(0, size - OUTPUT_BYTES_MAX))
        text = self._output.read().decode("utf-8", "replace")
        self._output.truncate(0)
        for line in text.splitlines():
            output_logger.info("worker %d: %s", self.pid, line)
        return without_paths("\n".join(text.strip().splitlines()[-TAIL_LINES:]))[-TAIL_CHARS:]

    def death(self) -> WorkerDiedError:
        """Return how it ended, after ending it if necessary."""
        self.kill()
        last = self.log_output()
        printed = f" Its last output was:\n{last}" if last else ""
        return WorkerDiedError(f"{_ending(self._process.returncode)}.", printed, unread=self._unread)


def _on_loop(loop: asyncio.AbstractEventLoop, deed: Callable[..., object], *args: Any) -> None:
    """Run a function in the thread of an event loop; at once, if that loop does not run."""
    if loop.is_running():
        # RuntimeError: it was closed in this moment, and with it all that it looked at.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(deed, *args)
            return
    deed(*args)


def _unread(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    """Close a socket that an event loop looks at; in this order, or the loop would find another one under its number."""
    if not loop.is_closed():
        loop.remove_reader(sock.fileno())
    sock.close()


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
        self._alive: set[str] = set()
        self._sock: socket.socket | None = None
        self.pid: int | None = None

    def add(self, pid: int, mark: str) -> None:
        with self._lock:
            self._alive.add(f"{pid} {mark}")
            if not self._send(f"+{pid} {mark}\n"):
                self._start()
                self._send("".join(f"+{one}\n" for one in self._alive))

    def remove(self, pid: int, mark: str) -> None:
        with self._lock:
            self._alive.discard(f"{pid} {mark}")
            self._send(f"-{pid} {mark}\n")

    def _send(self, text: str) -> bool:
        if self._sock is None:
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
            # It forks and ends at once: what goes on is no child of this program.
            subprocess.run(
                [sys.executable, "-I", "-S", guard_module.__file__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
                check=False,
            )
        self.pid = int(self._sock.recv(32) or 0)

    def stop(self) -> None:
        """At the end of the program: nothing of it may stay."""
        with self._lock, contextlib.suppress(OSError):
            if self._sock is not None:
                self._sock.shutdown(socket.SHUT_WR)
                self._sock.settimeout(2.0)
                self._sock.recv(1)  # It says nothing more: this is its end.
                self._sock.close()
            self._sock = None

    def reset_after_fork(self) -> None:
        """A fork has no workers: they are its parent's."""
        if self._sock is not None:
            self._sock.close()
        self.__init__()


_GUARD = _Guard()
atexit.register(_GUARD.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_GUARD.reset_after_fork)


# The environment of a worker ----------------------------------------------------------------------------------------------

# An allow-list, without the keys and tokens of the program.


MORE = "CALLGATE_WORKER_ENV"
"""The variable that names further ones, separated by commas; `NAME*` names all that begin like that."""
NAMES = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "SHELL", "SYSTEMROOT",
    "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "HF_HOME", "TERM", "NO_COLOR",
    "SOURCE_DATE_EPOCH",
})  # fmt: skip
PREFIXES = ("LC_", "PYTHON", "CONDA_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "OPENBLAS_", "COVERAGE_", "COV_", "RAY_")


def worker_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The variables that a worker gets: those that programs need in order to run, and those that the user has named."""
    more = [word.strip() for word in ours.get(MORE, "").split(",") if word.strip()]
    names = {word for word in more if not word.endswith("*")} | NAMES
    prefixes = (*PREFIXES, *(word[:-1] for word in more if word.endswith("*")))
    return {name: value for name, value in ours.items() if name in names or name.startswith(prefixes)}
