"""Several service processes on one socket: started, watched, started again when they die, and ended together.

The socket and the arguments come in; the exit code goes out. Each process is a `callgate serve` of its own that shares the
socket and the store with the others, and has a private socket for requests that the others pass on to it. The token, and the
secret by which they know one another, reach them through pipes, so that they are in no environment. They watch another pipe
that ends with this process, however it ends, and stop then as by a signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callgate.server.peers import Peers

__all__ = ["LISTEN_VARIABLE", "follow_parent", "peers_of_parent", "run_workers"]

LISTEN_VARIABLE = "CALLGATE_LISTEN_FD"
"""The descriptor of the socket, for a process that was started here."""
PARENT_VARIABLE = "CALLGATE_PARENT_FD"
"""The descriptor of a pipe that ends with the parent, for a process that was started here."""
PEERS_VARIABLE = "CALLGATE_PEERS_FD"
"""The descriptor of a pipe with the number, the folder and the secret of a process, for one that was started here."""
SUN_PATH_MAX = 90
"""Longer paths of unix sockets may be refused."""
QUICK_S = 5.0
"""A process that dies sooner than this after its start is started again only after a pause."""
PAUSE_S = (0.5, 30.0)
POLL_S = 0.2


class _Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.began_s = 0.0
        self.pause_s = PAUSE_S[0]
        self.due_s = 0.0


def run_workers(count: int, listener: socket.socket, args: list[str], token: str | None, stop_s: float) -> int:
    """Run until a signal comes; the exit code."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    from callgate.server.listen import has_terminal

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # As by nohup.
            is_reload = number == signal.SIGHUP and not has_terminal()  # The processes look at their files by themselves.
            signal.signal(number, (lambda number, frame: None) if is_reload else stop)
    workers = [_Worker(number) for number in range(count)]
    read_end, write_end = os.pipe()  # Nobody else has the end to write to, so that it closes with this process.
    folder, secret = _private_folder(), secrets.token_hex(32)
    start = _Start(listener, read_end, args, token, folder, secret)
    try:
        while not stopping.is_set():
            for worker in workers:
                _look_after(worker, start)
            stopping.wait(POLL_S)
        return _stop(workers, stop_s)
    finally:
        os.close(read_end)
        os.close(write_end)
        shutil.rmtree(folder, ignore_errors=True)


def _private_folder() -> str:
    """A new folder that only this user can get at, with a path that is short enough for sockets."""
    folder = tempfile.mkdtemp(prefix="callgate-")
    if len(folder) > SUN_PATH_MAX:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="callgate-", dir="/tmp")
    return folder


def peers_of_parent() -> Peers | None:
    """Return this process among those that its parent has started; None if it has no such parent."""
    from callgate.server.peers import Peers

    given = os.environ.pop(PEERS_VARIABLE, None)
    if given is None:
        return None
    with open(int(given), "rb") as pipe:
        found = json.loads(pipe.read())
    return Peers(number=found["number"], folder=found["folder"], secret=bytes.fromhex(found["secret"]))


def follow_parent() -> None:
    """End this process as by a signal when the one that started it is gone; does nothing in one that nobody started."""
    given = os.environ.pop(PARENT_VARIABLE, None)
    if given is None:
        return
    descriptor = int(given)
    os.set_inheritable(descriptor, False)
    # The parent hears of a terminal that was closed, too, and ends this process in order.
    signal.signal(signal.SIGHUP, lambda number, frame: None)

    def watch() -> None:
        while os.read(descriptor, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="callgate-parent", daemon=True).start()


@dataclass(frozen=True, slots=True)
class _Start:
    """Arguments of a process that is started."""

    listener: socket.socket
    parent_end: int
    args: list[str]
    token: str | None
    folder: str
    secret: str


def _look_after(worker: _Worker, start: _Start) -> None:
    now = time.monotonic()
    if worker.process is not None:
        code = worker.process.poll()
        if code is None:
            return
        lived_s = now - worker.began_s
        worker.pause_s = PAUSE_S[0] if lived_s > QUICK_S else min(2 * worker.pause_s, PAUSE_S[1])
        worker.due_s = now + worker.pause_s
        worker.process = None
        print(f"callgate: process {worker.number} ended with {code}; it is started again", file=sys.stderr, flush=True)
    if now >= worker.due_s:
        worker.process, worker.began_s = _started(worker.number, start), now


def _started(number: int, start: _Start) -> subprocess.Popen[bytes]:
    descriptors, more = [start.listener.fileno(), start.parent_end], list[str]()
    about = {"number": number, "folder": start.folder, "secret": start.secret}
    pipes = [_pipe_with(json.dumps(about).encode())]
    if start.token is not None:
        pipes.append(_pipe_with(start.token.encode()))
        more = ["--token-file", f"/dev/fd/{pipes[-1]}"]
    variables = {LISTEN_VARIABLE: start.listener.fileno(), PARENT_VARIABLE: start.parent_end, PEERS_VARIABLE: pipes[0]}
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "callgate", "serve", *start.args, *more],
            pass_fds=[*descriptors, *pipes],
            env={**os.environ, **{name: str(descriptor) for name, descriptor in variables.items()}},
        )
    finally:
        for descriptor in pipes:
            os.close(descriptor)


def _pipe_with(data: bytes) -> int:
    """The end to read from of a pipe that holds the data, which is short."""
    read_end, write_end = os.pipe()
    os.write(write_end, data)
    os.close(write_end)
    return read_end


def _stop(workers: list[_Worker], stop_s: float) -> int:
    # One that had died before is not among those that are to end in order.
    running = [worker.process for worker in workers if worker.process is not None and worker.process.poll() is None]
    for process in running:
        with contextlib.suppress(OSError):
            process.send_signal(signal.SIGTERM)
    until_s = time.monotonic() + stop_s + 30
    codes: list[int] = []
    for process in running:
        try:
            codes.append(process.wait(max(0.1, until_s - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            codes.append(process.wait())
    # One that had just been started may not have been ready to end by itself.
    return max((abs(code) for code in codes if code != -signal.SIGTERM), default=0)
