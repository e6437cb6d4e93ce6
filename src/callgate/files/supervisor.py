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
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLONE_NEWUSER, _CLONE_NEWPID = 0x10000000, 0x20000000

_RLIMITS = {
    "cpu_s": "RLIMIT_CPU",
    "memory_bytes": "RLIMIT_DATA",
    "file_bytes": "RLIMIT_FSIZE",
    "processes": "RLIMIT_NPROC",
}


def main(job_fd: int, answer_fd: int) -> None:
    """Read the job, run it and answer."""
    job: dict[str, Any] = json.loads(_line(job_fd))
    _adopt_orphans()
    _stay_ahead()
    answer: dict[str, Any] = {}
    try:
        init, status_fd = _start(job, answer_fd)
    except OSError as error:
        answer["error"] = error.strerror or str(error)
    else:
        # From here on only the command holds its pipes: they end when its last process does.
        for descriptor in (1, 2):
            os.close(descriptor)
        status, why = _wait(init, status_fd, job_fd, int(job["processes_max"]))
        answer = {"status": status, "why": why, "killed": _kill_all(init)}
    with contextlib.suppress(OSError):
        os.write(answer_fd, json.dumps(answer).encode())


def _line(descriptor: int) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        piece = os.read(descriptor, 65536)
        if not piece:
            sys.exit(0)  # The program is gone before it sent a command.
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


def _start(job: dict[str, Any], answer_fd: int) -> tuple[int, int]:
    """Start the command; return its init process, and the pipe on which that reports how the command ended.

    The init is the first process of a PID namespace where the system allows one: from inside, neither it nor this process
    can be signalled, and when it ends the kernel kills everything that is left. What fails before the command runs is
    reported through a pipe that closes when it does run.
    """
    read_end, write_end = os.pipe()
    status_read, status_write = os.pipe()
    has_namespace = _enter_pid_namespace()
    init = os.fork()
    if init == 0:
        try:
            os.close(answer_fd)
            os.close(status_read)
            _die_with_parent()
            command = os.fork()
            if command == 0:
                os.close(status_write)
                _execute(job, write_end)
            os.close(write_end)
            for descriptor in (1, 2):
                os.close(descriptor)
            _report(command, status_write, reaps=has_namespace)
        finally:
            os._exit(0)
    os.close(write_end)
    os.close(status_write)
    with open(read_end, "rb") as pipe:
        problem = pipe.read()
    if problem:
        os.kill(init, signal.SIGKILL)
        os.waitpid(init, 0)
        raise OSError(0, problem.decode(errors="replace"))
    return init, status_read


def _execute(job: dict[str, Any], write_end: int) -> None:
    """Become the command."""
    try:
        # A session of its own, so that neither signals nor shares of the processor are ours.
        os.setsid()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, int(job["priority"]))
        os.fchdir(int(job["folder"]))
        for name, limit in job["limits"].items():
            _limit(_RLIMITS[name], int(limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if job.get("sandbox"):
            _enter_sandbox(job["sandbox"])
        # A command that holds a folder of the host can leave its sandbox through it.
        os.closerange(3, write_end)
        os.closerange(write_end + 1, os.sysconf("SC_OPEN_MAX"))
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


def _report(command: int, status_write: int, *, reaps: bool) -> None:
    """Report how the command ended, and stay until killed, so that what it left can be counted first."""
    while True:
        try:
            process, status = os.waitpid(-1 if reaps else command, 0)
        except ChildProcessError:
            signal.pause()
            continue
        if process == command:
            with contextlib.suppress(OSError):
                os.write(status_write, str(status).encode())
            os.close(status_write)
            if not reaps:
                signal.pause()


def _enter_pid_namespace() -> bool:
    """Let the next process be the first of a PID namespace; False where the system does not allow it."""
    if not sys.platform.startswith("linux"):
        return False
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(ctypes.c_int(_CLONE_NEWPID)) == 0:
        return True
    user, group = os.getuid(), os.getgid()
    if unshare(ctypes.c_int(_CLONE_NEWUSER | _CLONE_NEWPID)) != 0:
        return False
    with contextlib.suppress(OSError):
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    return True


def _die_with_parent() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


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


def _wait(init: int, status_fd: int, job_fd: int, processes_max: int) -> tuple[int | None, str]:
    """Wait for the command; its status, and why it was given up, if it was."""
    while True:
        ready, _, _ = select.select([job_fd, status_fd], [], [], POLL_S)
        if status_fd in ready:
            text = os.read(status_fd, 32)
            return (int(text), "") if text else (None, "init")
        if ready:
            return None, "stop"
        if len(descendants(os.getpid())) > processes_max + 1:
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


def _kill_all(init: int) -> int:
    """Kill everything that is left below this process and reap it; return how many there were besides the init."""
    killed: set[int] = set()
    for _ in range(ROUNDS_MAX):
        # The group first: it dies at once, however fast it forks.
        left = descendants(os.getpid())
        if len(left) > 1:
            for process in left:
                with contextlib.suppress(OSError):
                    os.killpg(process, signal.SIGKILL)
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
    return len(killed - {init})


if __name__ == "__main__":
    # Ctrl-C at a terminal is handled by the process that asked for the command.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(int(sys.argv[1]), int(sys.argv[2]))
