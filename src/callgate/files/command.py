"""`run_command`: a program, in the root, with a deadline that is kept and nothing left running.

Words of a command come in, its output and how it ended go out. There is no shell unless one is asked for. What a program may
do with files is not held here, unless it runs in the sandbox (`landlock.py`); that it ends is (`supervisor.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Literal, cast

from callgate.errors import ToolError, UsageError
from callgate.files import bubblewrap, landlock
from callgate.files.beneath import let_go
from callgate.files.paths import shown
from callgate.files.root import Root, identity
from callgate.files.supervisor import descendants
from callgate.threads import THREADS, NotStartedError
from callgate.types import Limits, ToolContext, ToolDefinition, ToolResult

__all__ = ["CommandBounds", "CommandTool"]

KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SHELL")
"""Variables that a command inherits, besides `LC_*`; no keys and tokens."""
ADDED_VARIABLES = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Variables that keep programs from waiting for input at a terminal."""

POLL_S = 0.05
KILL_S = 5.0
"""Seconds that the supervisor may take to end everything before it is killed itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandBounds:
    """Resource limits of one command."""

    output_bytes: int = 16_000
    """Bytes of each stream that are shown: the beginning and, four times as much, the end."""
    processes: int = 256
    """Processes and threads at the same time."""
    memory_bytes: int = 4 * 1024**3
    """Of each process: its own writable memory."""
    file_bytes: int = 1024**3
    """Size of one file that is written."""


class HeadTail:
    """The beginning and the end of a stream of any length, in bounded memory."""

    def __init__(self, bytes_max: int) -> None:
        self._head_max, self._tail_max = bytes_max // 5, bytes_max - bytes_max // 5
        self._head, self._tail, self.size = bytearray(), bytearray(), 0

    def add(self, piece: bytes) -> None:
        """Append the next bytes."""
        self.size += len(piece)
        room = self._head_max - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._tail_max:
            del self._tail[: -self._tail_max]

    def text(self, name: str) -> tuple[str, list[str]]:
        """The text, with a line where something was left out, and what is to be said of it."""
        head, tail = bytes(self._head), bytes(self._tail[-self._tail_max :])
        missing = self.size - len(head) - len(tail)
        if b"\0" in head or b"\0" in tail:
            return f"({self.size} bytes of binary data)", [f"{name} is binary and is not shown."]
        notes: list[str] = []
        text = head.decode(errors="replace") + tail.decode(errors="replace")
        if missing:
            cut = f"\n[... {missing} bytes left out ...]\n"
            text = head.decode(errors="ignore") + cut + tail.decode(errors="ignore")
            notes.append(f"{name} has {self.size} bytes; {missing} of them, in the middle, are left out.")
        elif b"\xef\xbf\xbd" not in head + tail and "\ufffd" in (head + tail).decode(errors="replace"):
            text = (head + tail).decode(errors="replace")
            notes.append(f"{name} is not all UTF-8; what is not is shown as U+FFFD.")
        else:
            text = (head + tail).decode(errors="replace")
        return text, notes


@dataclass(slots=True)
class _Outcome:
    answer: dict[str, Any] = field(default_factory=dict[str, Any])
    timed_out: bool = False
    stopped: bool = False
    streams: dict[str, HeadTail] = field(default_factory=dict[str, HeadTail])


class CommandTool:
    """One tool, `run_command`, for programs on an allow-list; a gate takes it as it is.

    ```python
    CommandTool(".", allow=["ls", "git status", "git diff"])
    ```

    An entry allows commands that begin with its words. `allow=None` allows every program; `shell=True` takes a line for a
    shell instead of words, which no list can hold, so it goes with `allow=None` only. `sandbox=True` locks each command into
    the root by Landlock, and `sandbox="bwrap"` by bubblewrap, which also hides other processes, the network and all other
    files; either is refused where it cannot be enforced. `env` adds variables to the few that commands see.

    Raises:
        UsageError: the root is no folder, or the options cannot be held.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = ".",
        *,
        allow: Iterable[str | Sequence[str]] | None,
        shell: bool = False,
        sandbox: bool | Literal["landlock", "bwrap"] = False,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        bounds: CommandBounds | None = None,
    ) -> None:
        if shell and allow is not None:
            raise UsageError(
                "CommandTool(shell=True): a list cannot hold in a shell; use allow=None, or leave the shell out"
            )
        if isinstance(allow, str):
            raise UsageError(f"CommandTool(allow={allow!r}): use a list, such as [{allow!r}]")
        if sandbox not in (False, True, "landlock", "bwrap"):
            raise UsageError(f"CommandTool(sandbox={sandbox!r}): use True, 'landlock' or 'bwrap'")
        if sandbox in (True, "landlock") and landlock.abi() < 1:
            raise UsageError(
                f"CommandTool(sandbox={sandbox!r}): this kernel has no Landlock, so the sandbox cannot be enforced"
            )
        if sandbox == "bwrap" and (why := bubblewrap.problem()) is not None:
            raise UsageError(f"CommandTool(sandbox='bwrap'): {why}, so the sandbox cannot be enforced")
        self._root = Root(root, links=False, hard_links=False, back_end="auto")
        self._allow = None if allow is None else [_words(entry) for entry in allow]
        self._shell, self._sandbox, self._timeout_s = shell, sandbox, timeout_s
        self._bounds = bounds or CommandBounds()
        self._env = _environment(os.environ, env or {})
        definition = _definition(self._allow, shell=shell, timeout_s=timeout_s)
        self.definition = dataclasses.replace(definition, roots=self._root.paths)

    def close(self) -> None:
        """Close the root."""
        self._root.close()

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """True if the program is one that may be run."""
        try:
            self._command(args)
        except ToolError as error:
            return [str(error)]
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Run the command in a thread; giving up the call kills it."""
        begun, stop = threading.Event(), threading.Event()

        def work() -> ToolResult:
            begun.set()
            return self.call_sync(args, context, stop=stop.is_set)

        task = asyncio.ensure_future(THREADS.run(work, abandoned_max=Limits().abandoned_threads))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            stop.set()
            if not begun.is_set():
                task.cancel()
            await asyncio.wait({task}, timeout=KILL_S)
            if task.done() and not task.cancelled() and isinstance(task.exception(), NotStartedError):
                raise NotStartedError from None
            raise

    def call_sync(
        self, args: Mapping[str, Any], context: ToolContext | None = None, *, stop: Callable[[], bool] = bool
    ) -> ToolResult:
        """Run a command now. A call of the program itself: no approval is requested."""
        context = context or ToolContext(call_id="", name=self.definition.name)
        started_s = time.monotonic()
        try:
            program, argv = self._command(args)
            names = self._root.names(args.get("cwd") or ".")
            folder = self._root.open_folder(names)
            try:
                program, argv = self._wrapped(program, argv, folder)
                outcome = self._supervised(program, argv, folder, lambda: stop() or context.is_cancelled())
            finally:
                let_go(folder)
        except ToolError as error:
            return ToolResult(call_id=context.call_id, name=context.name, status="failed", error=str(error))
        return self._result(outcome, context, time.monotonic() - started_s)

    # What runs -----------------------------------------------------------------------------------------------------------

    def _command(self, args: Mapping[str, Any]) -> tuple[str, list[str]]:
        """The program's file and the words of the command.

        Raises:
            ToolError: it may not be run, or there is no such program.
        """
        if self._shell:
            shell = shutil.which("bash", path=self._env["PATH"])
            if shell:
                return shell, [shell, "--noprofile", "--norc", "-o", "pipefail", "-c", args["command"]]
            return "/bin/sh", ["/bin/sh", "-c", args["command"]]
        argv = cast("list[str]", list(args["argv"]))
        if not argv or not argv[0]:
            raise ToolError("argv is empty; its first word is the program.")
        if any("\0" in word for word in argv):
            raise ToolError("argv holds a NUL character, which no command can hold.")
        if self._allow is not None and not any(argv[: len(words)] == words for words in self._allow):
            allowed = ", ".join(repr(shlex.join(words)) for words in self._allow) or "nothing"
            raise ToolError(f"{shown(argv[0])} with these words is not on the list of commands that may be run: {allowed}.")
        return self._program(argv[0]), argv

    def _wrapped(self, program: str, argv: list[str], folder: int) -> tuple[str, list[str]]:
        """The command inside of bubblewrap, if it is to be."""
        if self._sandbox != "bwrap":
            return program, argv
        place = os.readlink(f"/proc/self/fd/{folder}")
        bwrap = shutil.which("bwrap", path=os.defpath + os.pathsep + self._env["PATH"])
        if bwrap is None:
            raise ToolError("bubblewrap is not installed any more, so the command is not run.")
        return bwrap, [*bubblewrap.bwrap_args(bwrap, place, readable=bubblewrap.needed_by(program)), program, *argv[1:]]

    def _program(self, name: str) -> str:
        if "/" in name and self._allow is None:
            raise ToolError(f"{shown(name)} is a path; give the name of a program.")
        found = shutil.which(name, path=self._env["PATH"])
        if found is None:
            raise ToolError(f"There is no program {shown(name)}.")
        if "/" not in name and self._is_inside(found):
            # A file tool could have put it there.
            raise ToolError(f"{shown(name)} was found inside the root, and is not run from there.")
        return found

    def _is_inside(self, path: str) -> bool:
        here = identity(os.fstat(self._root.descriptor))
        return any(identity(os.stat(above)) == here for above in Path(path).resolve().parents)

    # How it runs ---------------------------------------------------------------------------------------------------------

    def _supervised(self, program: str, argv: list[str], folder: int, stop: Callable[[], bool]) -> _Outcome:
        job_read, job_write = os.pipe()
        answer_read, answer_write = os.pipe()
        # As files, because these can be closed twice: a bare number may mean something else by then.
        with open(job_write, "wb", buffering=0) as job, open(answer_read, "rb", buffering=0) as answer:
            try:
                script = os.path.join(os.path.dirname(__file__), "supervisor.py")
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", script, str(job_read), str(answer_write)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(job_read, answer_write, folder),
                    env={"PATH": os.defpath},
                    start_new_session=True,
                    cwd="/",
                )
            except OSError as error:
                raise ToolError(f"The command could not be started: {error.strerror}.") from error
            finally:
                let_go(job_read)
                let_go(answer_write)
            with contextlib.suppress(BrokenPipeError):  # It died at once; what follows tells.
                job.write(json.dumps(self._job(program, argv, folder)).encode() + b"\n")
            return self._followed(process, answer, job, stop)

    def _job(self, program: str, argv: list[str], folder: int) -> dict[str, Any]:
        bounds = self._bounds
        limits = {
            "cpu_s": int(self._timeout_s * (os.cpu_count() or 1)) + 1,
            "memory_bytes": bounds.memory_bytes,
            "file_bytes": bounds.file_bytes,
            # The system counts all threads of the user, also those that have nothing to do with this command. This is the
            # second line, for a bomb that grows faster than the supervisor looks.
            "processes": _processes_of_user() + 4 * bounds.processes,
        }
        if not sys.platform.startswith("linux"):
            del limits["processes"]  # Where they cannot be counted, a limit would stop the user's other programs.
        sandbox = {"writable": [folder, "/tmp"], "readable": list(landlock.SYSTEM_PATHS)}
        return {
            "program": program,
            "argv": argv,
            "env": self._env,
            "folder": folder,
            "limits": limits,
            "processes_max": bounds.processes,
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
            "sandbox": sandbox if self._sandbox in (True, "landlock") else None,
        }

    def _followed(
        self, process: subprocess.Popen[bytes], answer_pipe: FileIO, job: FileIO, stop: Callable[[], bool]
    ) -> _Outcome:
        """Read everything until all is over; at the deadline, or when told to, everything is killed."""
        deadline_s = time.monotonic() + self._timeout_s
        outcome = _Outcome(streams={name: HeadTail(self._bounds.output_bytes) for name in ("stdout", "stderr")})
        answer, told_s = bytearray(), 0.0
        assert process.stdout is not None
        assert process.stderr is not None
        with process, selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, outcome.streams["stdout"].add)
            selector.register(process.stderr, selectors.EVENT_READ, outcome.streams["stderr"].add)
            selector.register(answer_pipe, selectors.EVENT_READ, answer.extend)
            while selector.get_map():
                for key, _ in selector.select(POLL_S):
                    piece = os.read(key.fd, 65536)
                    key.data(piece)
                    if not piece:
                        selector.unregister(key.fileobj)
                now_s = time.monotonic()
                if not told_s and (now_s > deadline_s or stop()):
                    outcome.timed_out, outcome.stopped, told_s = now_s > deadline_s, now_s <= deadline_s, now_s
                    job.close()  # The supervisor sees that its pipe broke.
                if told_s and now_s > told_s + KILL_S:
                    for left in [*descendants(process.pid), process.pid]:
                        with contextlib.suppress(OSError):
                            os.kill(left, signal.SIGKILL)
                    break
        outcome.answer = json.loads(bytes(answer) or b"{}")
        return outcome

    def _result(self, outcome: _Outcome, context: ToolContext, duration_s: float) -> ToolResult:
        notes: list[str] = []
        texts: dict[str, str] = {}
        for name, stream in outcome.streams.items():
            texts[name], said = stream.text(name)
            notes += said
        make = functools.partial(
            ToolResult, call_id=context.call_id, name=context.name, notes=tuple(notes), duration_s=duration_s
        )
        answer = outcome.answer
        said = "".join(f"\n{name}:\n{text}" for name, text in texts.items() if text)
        if outcome.timed_out:
            sentence = (
                f"The command did not finish within {self._timeout_s:g} s; it was killed with everything it had started."
            )
            return make(status="timed_out", error=sentence + said)
        if outcome.stopped:
            return make(status="cancelled", error=f"The command was given up and killed.{said}")
        if "error" in answer:
            return make(status="failed", error=f"The command could not be run: {answer['error']}.")
        if answer.get("why") == "processes":
            sentence = f"The command started more than {self._bounds.processes} processes at once, and all were killed."
            return make(status="failed", error=sentence + said)
        if answer.get("status") is None:
            return make(status="failed", error=f"How the command ended is not known: its supervisor died.{said}")
        code = os.waitstatus_to_exitcode(answer["status"])
        if code < 0:
            return make(status="failed", error=f"The command was ended by {_signal_name(-code)}.{said}")
        return make(status="finished", value={"exit_code": code, **texts}, notes=(*notes, *_exit_notes(answer, code)))


# Internals ---------------------------------------------------------------------------------------------------------------


def _exit_notes(answer: Mapping[str, Any], code: int) -> list[str]:
    notes: list[str] = []
    if 128 < code <= 128 + 64:
        notes.append(f"Exit code {code} usually means that a program in it was ended by {_signal_name(code - 128)}.")
    if answer.get("killed"):
        notes.append(f"{answer['killed']} processes that the command had left running were killed.")
    return notes


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _words(entry: str | Sequence[str]) -> list[str]:
    words = shlex.split(entry) if isinstance(entry, str) else list(entry)
    if not words:
        raise UsageError("CommandTool(allow=...): an empty entry would allow everything; use allow=None for that")
    return words


def _environment(ours: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in ours.items() if name in KEPT_VARIABLES or name.startswith("LC_")}
    # Only folders by their full path: "." in PATH would mean the root, where a model can write.
    folders = [folder for folder in kept.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    kept["PATH"] = os.pathsep.join(folders)
    return {**kept, **ADDED_VARIABLES, **given}


def _processes_of_user() -> int:
    """Count the threads of this process's user, as RLIMIT_NPROC does."""
    count = 0
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    if os.stat(f"/proc/{entry}").st_uid == os.getuid():
                        count += len(os.listdir(f"/proc/{entry}/task"))
    return count


def _definition(allow: list[list[str]] | None, *, shell: bool, timeout_s: float) -> ToolDefinition:
    properties: dict[str, Any] = {}
    if shell:
        properties["command"] = {"type": "string", "minLength": 1, "description": "A line for the shell."}
        what = "Runs a line in a shell and gives its output and exit code."
    else:
        properties["argv"] = {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "description": "The program and its arguments, one word each; there is no shell, so quotes and pipes are text.",
        }
        what = "Runs a program and gives its output and exit code."
    if allow is not None:
        what += f" Allowed are commands that begin with: {', '.join(shlex.join(words) for words in allow) or 'nothing'}."
    properties["cwd"] = {"type": "string", "default": ".", "description": "Folder to run it in, relative to the root."}
    schema = {
        "type": "object",
        "properties": properties,
        "required": [next(iter(properties))],
        "additionalProperties": False,
    }
    return ToolDefinition(
        name="run_command",
        description=f"{what} It is killed after {timeout_s:g} seconds.",
        input_schema=schema,
        kind="command",
        # The command's own deadline comes first, so that what it said until then is told.
        timeout_s=timeout_s + KILL_S + 2,
    )
