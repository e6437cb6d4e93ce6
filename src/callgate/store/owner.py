"""Owner of a lease: a name for this process that another one on the same machine can look at.

A process that died leaves its leases behind. Where it can be seen that it is gone, nobody has to wait until they run out.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import socket
from dataclasses import dataclass
from pathlib import Path

__all__ = ["boot_id", "is_gone", "new_owner", "shown"]

_SEPARATOR = "|"
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Process:
    """Machine of a process, and the start time that distinguishes it from a later one with the same number."""

    host: str
    world: str
    """The boot of the machine and its space of process numbers: only within one can numbers be compared."""
    pid: int
    started: str


def new_owner() -> str:
    """A name for one piece of work of this process."""
    return f"{_this_process(os.getpid())}-{next(_NUMBERS)}"


@functools.lru_cache(maxsize=1)
def _this_process(pid: int) -> str:
    """The part of the name that stays the same; a fork is another process, and asks anew.

    It ends with something that no other process has, even where the system does not tell when one began.
    """
    return _SEPARATOR.join([socket.gethostname(), _world(), str(pid), _started(pid) or "", os.urandom(16).hex()])


def is_gone(owner: str) -> bool:
    """Return whether the process with that name has surely ended."""
    process = _read(owner)
    if process is None or not process.world or process.world != _world() or process.host != socket.gethostname():
        return False
    return _started(process.pid) != process.started


def shown(owner: str) -> str:
    """The owner in words."""
    process = _read(owner)
    return f"process {process.pid} on {process.host}" if process else owner


def _read(owner: str) -> _Process | None:
    with contextlib.suppress(ValueError):
        host, world, pid, started, _ = owner.split(_SEPARATOR)
        return _Process(host, world, int(pid), started)
    return None


def _world() -> str:
    """Empty where the system does not tell."""
    with contextlib.suppress(OSError):
        return f"{boot_id()}:{os.readlink('/proc/self/ns/pid')}"
    return ""


@functools.cache
def boot_id() -> str:
    """Return the identity of this boot of the machine.

    Raises:
        OSError: the system does not tell.
    """
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _started(pid: int) -> str | None:
    """Return the start of the process, in ticks since boot; None when there is none."""
    with contextlib.suppress(OSError, IndexError):
        # The name of the program stands in parentheses and may hold anything; the fields are counted after it.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        # A process that has ended but was not collected by its parent does nothing any more.
        return None if fields[0] in ("Z", "X") else fields[19]
    return None
