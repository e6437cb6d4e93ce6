"""The parent of one command: it starts it, waits for it, and leaves nothing of it behind.

Run as a program of its own, with the standard library alone. A job as JSON comes in on a pipe; how it ended goes out as JSON
on another one. Processes that lose their parent become children of this one (`PR_SET_CHILD_SUBREAPER`), those too that made
a session of their own, so all can be found and killed: when the command is over, on request of its owner, or
when they are gone and the pipe breaks.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

POLL_S = 0.02
ROUNDS_MAX = 500
_PR_SET_CHILD_SUBREAPER = 36

_RLIMITS = {
    "cpu_s": "RLIMIT_CPU",
    "memory_bytes": "RLIMIT_DATA",
    "file_bytes": "RLIMIT_FSIZE",
    "processes": "RLIMIT_NPROC",
}


def main(job_fd: int, answer_fd: int) -> None:
    """Reads the job, runs it and answers."""
    job: dict[str, Any] = json.loads(_line(job_fd))
    _adopt_orphans()
    _stay_ahead()
    answer: dict[str, Any] = {}
    try:
        child = _start(job, answer_fd)
    except OSError as error:
        answer["error"] = error.strerror or str(error)
    else:
        # From here on only the command holds its pipes: they end when its last process does.
        for descriptor in (1, 2):
            os.close(descriptor)
        status, why = _wait(child, job_fd, int(job["processes_max"]))
        answer = {"status": status, "why": why, "killed": _kill_all(child)}
    with contextlib.suppress(OSError):
        os.write(answer_fd, json.dumps(answer).encode())


def _line(descriptor: int) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        piece = os.read(descriptor, 65536)
        if not piece:
            sys.exit(0)  # Whoever wanted a command is gone before saying which.
        data += piece
    return data


def _adopt_orphans() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def _stay_ahead() -> None:
    """Before the command in the queue for the processor, where that is allowed.

    It is where it is needed: the superuser, who may, has no limit on processes, so their fork bombs leave no time to us.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)


def _start(job: dict[str, Any], answer_fd: int) -> int:
    """Forks the command. What fails before it runs is told through a pipe that closes when it does run."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # A session of its own, so that neither signals nor shares of the processor are ours.
            os.setsid()
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, int(job["priority"]))
            os.close(answer_fd)
            os.fchdir(int(job["folder"]))
            for name, limit in job["limits"].items():
                _limit(_RLIMITS[name], int(limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if job.get("sandbox"):
                _enter_sandbox(job["sandbox"])
            # What was ignored here, as by nohup, would be ignored there too, and a signal would look like an exit of 0.
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
            os.execve(job["program"], job["argv"], job["env"])
        except BaseException as error:
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            os.write(write_end, reason.encode())
        finally:
            os._exit(127)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        problem = pipe.read()
    if problem:
        os.waitpid(child, 0)
        raise OSError(0, problem.decode(errors="replace"))
    return child


def _limit(name: str, value: int) -> None:
    if hasattr(resource, name):
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _enter_sandbox(folders: dict[str, list[Any]]) -> None:
    spec = importlib.util.spec_from_file_location("landlock", os.path.join(os.path.dirname(__file__), "landlock.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["landlock"] = module
    spec.loader.exec_module(module)
    if not module.restrict(writable=folders["writable"], readable=folders["readable"]).ok:
        raise OSError(0, "this kernel has no Landlock")


def _wait(child: int, job_fd: int, processes_max: int) -> tuple[int | None, str]:
    """Waits for the command; its status, and why it was given up, if it was."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status, ""
        ready, _, _ = select.select([job_fd], [], [], POLL_S)
        if ready:
            return None, "stop"
        if len(descendants(os.getpid())) > processes_max:
            return None, "processes"


def descendants(parent: int) -> list[int]:
    """All processes below one, by what the kernel knows of parents."""
    parents: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{entry}/stat", "rb") as file:
                    # The name in parentheses may hold anything, so what follows is counted from its end.
                    above = int(file.read().rpartition(b")")[2].split()[1])
                    parents.setdefault(above, []).append(int(entry))
    found, todo = list[int](), [parent]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _kill_all(child: int) -> int:
    """Kills whatever is left below this process and reaps it; how many that were."""
    killed: set[int] = set()
    for _ in range(ROUNDS_MAX):
        # The group first: it dies at once, however fast it forks.
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        left = descendants(os.getpid())
        for number in (signal.SIGSTOP, signal.SIGKILL):
            # RunCancelled first, so that none can bring forth others while the rest is looked at.
            for process in left:
                with contextlib.suppress(OSError):
                    os.kill(process, number)
        killed.update(left)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not left:
            break
        time.sleep(0.002)
    return len(killed)


if __name__ == "__main__":
    # Ctrl-C at a terminal is handled by the process that asked for the command.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(int(sys.argv[1]), int(sys.argv[2]))
