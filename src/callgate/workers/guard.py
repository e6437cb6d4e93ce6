"""Process ids of workers in, none of them left when the program that started them is gone.

Runs in two places: `kill_tree` in the program itself, and `main` as a tiny process beside it that outlives a `kill -9` of
the program just long enough to end its workers and what they started. It is no child of the program, because some that end
a program end its children first. It is run as a file, without callgate and without site-packages, so it knows the standard
library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys

__all__ = ["MARK", "children_of", "kill_marked", "kill_tree", "main"]

MARK = "CALLGATE_WORKER"
"""The variable of the environment by which everything that a worker started is found when the worker itself is gone."""

ROUNDS_MAX = 50
"""Number of times that the tree is read again before a kill; each round finds what the last had started."""


def children_of(*pids: int) -> set[int]:
    """Processes that live (zombies do not) and whose parent is one of `pids`. Empty where the system does not tell."""
    found: set[int] = set()
    try:
        names = os.listdir("/proc")
    except OSError:
        return found
    for name in names:
        if name.isdigit():
            try:
                # The second field, the command's name in brackets, may hold anything.
                state, parent = _stat(name).rpartition(b")")[2].split(maxsplit=2)[:2]
            except (OSError, ValueError):
                continue  # Between the listing and the reading it has ended.
            if int(parent) in pids and state not in (b"Z", b"X"):
                found.add(int(name))
    return found


def _stat(name: str) -> bytes:
    # Without a file object, which takes longer to make than this takes to read, while the killing waits for it.
    fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def marked(mark: str) -> set[int]:
    """Processes that were started by the worker with this mark, as far as their environment still says so."""
    wanted = f"{MARK}={mark}\0".encode()
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                    if wanted in file.read():
                        found.add(int(name))
    return found


def kill_tree(pid: int, mark: str | None = None) -> None:
    """Kill a worker, its process group, and descendants that left the group. `pid` must not have been waited for yet.

    `mark`: the worker may have died before, so that its descendants can only be found by their environment.
    """
    # RunCancelled first: a process that is stopped starts no others while the tree is read.
    if pid != os.getpid():
        _signal(pid, signal.SIGSTOP)
    known: set[int] = set()
    for _ in range(ROUNDS_MAX):
        fresh = children_of(pid, *known) - known
        if not fresh:
            break
        for child in fresh:
            _signal(child, signal.SIGSTOP)
        known |= fresh
    for one in known:
        _signal(one, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    _signal(pid, signal.SIGKILL)
    if mark:
        kill_marked(mark)


def kill_marked(mark: str) -> None:
    """Kill what a worker with this mark has started, wherever it is now."""
    for _ in range(ROUNDS_MAX):
        left = marked(mark)
        for one in left:
            _signal(one, signal.SIGKILL)
        if not left:
            break


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def main(fd: int, host: int) -> None:
    """Read `+pid mark` and `-pid mark` lines until the host is gone, then kills what is left."""
    if os.fork():
        os._exit(0)
    sock = socket.socket(fileno=fd)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if hasattr(os, "pidfd_open"):
        # The other end of the socket may live on in a fork of the host; its process does not.
        with contextlib.suppress(OSError):
            poll.register(os.pidfd_open(host), select.POLLIN)
    said = b""
    with contextlib.suppress(OSError):
        sock.sendall(f"{os.getpid()}\n".encode())
        while fd in {ready for ready, _ in poll.poll()} and (text := sock.recv(65536)):
            said = _unsettled(said + text)
    with contextlib.suppress(OSError):
        sock.setblocking(False)
        said += sock.recv(1 << 20)
    for line in _unsettled(said).split(b"\n")[:-1]:
        pid, _, mark = line[1:].decode().partition(" ")
        kill_tree(int(pid), mark)


def _unsettled(said: bytes) -> bytes:
    """The output, without the lines on processes that have ended since."""
    *lines, rest = said.split(b"\n")
    alive: dict[bytes, None] = {}
    for line in lines:
        if line[:1] == b"+":
            alive[line] = None
        else:
            alive.pop(b"+" + line[1:], None)
    return b"".join(line + b"\n" for line in alive) + rest


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
