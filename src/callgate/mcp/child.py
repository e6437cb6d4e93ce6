"""A server as a child process: lines of JSON over its pipes, within bounds, and nothing of it left behind.

A command comes in, the two streams that the SDK speaks through go out. The child has a process group of its own, an
environment of few variables, and dies with us. What it prints beside the protocol is skipped, what it says on stderr is
kept for the message on why it died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from callgate.config.known_secrets import redact_known
from callgate.mcp.errors import ServerFailedError
from callgate.mcp.escapes import whole_characters

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

__all__ = ["LINE_BYTES_MAX", "Child", "child_environment", "child_streams"]

logger = logging.getLogger("callgate.mcp")

LINE_BYTES_MAX = 16 * 1024 * 1024
"""The size of one message; a server that sends more is stopped."""
WAITING_BYTES_MAX = 4 * 1024 * 1024
"""Unread messages above which the server is made to wait."""
STDERR_LINES = 20
STDERR_LINE_CHARS = 500
LEAVE_S = 2.0
"""The time-out for the exit of a server after its input was closed, and again after SIGTERM."""
HELLO_S = 2.0
"""The time-out for the newest handshake, after which callgate falls back to the older one. Servers from before that
hello should refuse it, but some say nothing to what they do not know."""
HELLO = "server/discover"

INHERITED = frozenset([
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA",
    "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE",
    # Certificates of a proxy that reads TLS: they are public, and without them nothing can be installed or reached.
    "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "CURL_CA_BUNDLE", "DENO_CERT", "DENO_TLS_CA_STORE", "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS", "NODE_USE_ENV_PROXY", "NODE_USE_SYSTEM_CA", "NPM_CONFIG_CAFILE", "PIP_CERT",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "npm_config_cafile",
])  # fmt: skip
"""Variables that a server sees without being given them; keys and tokens of ours are none of its business."""
PROXIES = frozenset({"ALL_PROXY", "FTP_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"})
"""The same, in either case, unless the address of the proxy has a password in it."""

# Linux kills the child when its parent is gone, however that came about. Between fork and exec of a program with threads
# no Python may run, so a second interpreter asks for it and then becomes the server.
_LAUNCH = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]): os._exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[3:])\n"
)


def child_environment(given: Mapping[str, str] | None) -> dict[str, str]:
    """The variables of a server: a few of ours, and those that it was given."""
    return {name: value for name, value in os.environ.items() if _is_inherited(name, value)} | dict(given or {})


def _is_inherited(name: str, value: str) -> bool:
    return name in INHERITED or name.startswith("LC_") or (name.upper() in PROXIES and "@" not in value)


def _launched(command: Sequence[str], path: str | None, cwd: str | None) -> list[str]:
    inside = os.path.join(cwd, command[0]) if cwd and os.sep in command[0] else command[0]
    program = shutil.which(inside, path=path)
    if program is None:
        raise ServerFailedError(f"there is no program {command[0]!r}: install it, or give its whole path", again=False)
    program = os.path.abspath(program)
    if sys.platform != "linux":
        return [program, *command[1:]]
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), program, *command]


class Child(asyncio.SubprocessProtocol):
    """The output of a child process so far."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """The reason for which callgate stopped it."""
        self.was_told_to_leave = False
        self.gone = asyncio.Event()
        """Set when the process has ended."""
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._unfinished: list[bytes] = []
        self._unfinished_bytes = 0
        self._said: deque[str] = deque(maxlen=STDERR_LINES)
        self._saying = b""
        self._news = asyncio.Event()
        self._ended = False
        self._exit_code: int | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record that the process runs."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Receive output."""
        if fd == 1:
            self._buffer_data(data)
        else:
            self._complained(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Record a closed pipe."""
        if fd == 1:
            self._end()

    def process_exited(self) -> None:
        """Record the exit; descendants that still hold its pipes are ignored."""
        assert self._transport is not None
        self._exit_code = self._transport.get_returncode()
        self.gone.set()
        # What is in the pipe already comes first.
        asyncio.get_running_loop().call_later(0.05, self._end)

    def last_words(self) -> str:
        """The reason of its end, as far as is known: its fault, its exit code, the end of its stderr."""
        said = [*self._said, *([self._saying.decode(errors="replace")] if self._saying else [])]
        found = [self.problem] if self.problem else []
        if self._exit_code is not None and not self.was_told_to_leave:
            code = self._exit_code
            found.append(f"it was killed by signal {-code}" if code < 0 else f"exit code {code}")
        if said:
            found.append("its last output on stderr: " + " | ".join(said))
        return redact_known("; ".join(found))  # A server may print what it was given as a variable.

    async def next_line(self) -> bytes | None:
        """The next line; None after the last one."""
        while not self._lines:
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        line = self._lines.popleft()
        self._waiting -= len(line)
        if self._waiting <= WAITING_BYTES_MAX:
            self._reading("resume_reading")
        return line

    def _buffer_data(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._unfinished.append(first)
        self._unfinished_bytes += len(first)
        for other in others:
            line = b"".join(self._unfinished)
            self._unfinished, self._unfinished_bytes = [other], len(other)
            self._lines.append(line)
            self._waiting += len(line)
        if self._unfinished_bytes > LINE_BYTES_MAX:
            self.problem = f"it sent a message of more than {LINE_BYTES_MAX >> 20} MiB and was stopped"
            self._unfinished, self._unfinished_bytes = [], 0
            self._end()
            self._reading("pause_reading")
        elif self._waiting > WAITING_BYTES_MAX:
            self._reading("pause_reading")
        self._news.set()

    def _reading(self, how: str) -> None:
        pipe: Any = self._transport.get_pipe_transport(1) if self._transport else None
        if pipe is not None and not pipe.is_closing() and not (how == "resume_reading" and self.problem):
            getattr(pipe, how)()

    def _complained(self, data: bytes) -> None:
        *lines, rest = (self._saying + data).split(b"\n")
        self._saying = rest[: STDERR_LINE_CHARS * 4]
        self._said.extend(line.decode(errors="replace").strip()[:STDERR_LINE_CHARS] for line in lines[-STDERR_LINES:])

    def _end(self) -> None:
        self._ended = True
        self._news.set()


@contextlib.asynccontextmanager
async def child_streams(
    child: Child, command: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | None
) -> AsyncGenerator[TransportStreams]:
    """Run the command for as long as the context lasts, and yield the message streams from and to it.

    Raises:
        ServerFailedError: it cannot be started.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    environment = child_environment(env)
    launched = _launched(command, environment.get("PATH"), cwd)
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.subprocess_exec(
            lambda: child, *launched, env=environment, cwd=cwd, start_new_session=sys.platform != "win32"
        )
    except (OSError, ValueError) as error:
        raise ServerFailedError(f"{command[0]!r} cannot be started: {error}") from error
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    hello = _Hello(received)
    tasks = [loop.create_task(_receive(child, received, hello)), loop.create_task(_send(transport, sent, hello))]
    try:
        yield incoming, outgoing
    finally:
        hello.over()
        # A cancelled caller must not leave a process behind, so the end is a task of its own.
        ending = loop.create_task(_end(child, transport, tasks))
        try:
            await asyncio.shield(ending)
        finally:
            for stream in (incoming, outgoing, received, sent):
                stream.close()
            if not ending.done():
                _signal_group(transport.get_pid(), signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)


class _Hello:
    """The first request to a server, which is given a refusal if the server has none and no answer either.

    The SDK then goes on with the older hello. An answer that comes after all is one to a request that nobody waits for.
    """

    def __init__(self, received: Any) -> None:
        self._received = received
        self._id: Any = None
        self._task: asyncio.Task[None] | None = None

    def note_sent(self, message: Any) -> None:
        """Take note of a message to the server."""
        if self._id is None and getattr(message, "method", None) == HELLO:
            self._id = message.id
            self._task = asyncio.get_running_loop().create_task(self._refuse())

    def note_received(self, message: Any) -> None:
        """Take note of a message from the server."""
        if self._task is not None and not hasattr(message, "method") and message.id == self._id:
            self.over()

    def over(self) -> None:
        """Stop the wait for an answer to the handshake."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _refuse(self) -> None:
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import REQUEST_TIMEOUT, ErrorData, JSONRPCError

        await asyncio.sleep(HELLO_S)
        logger.info("a server does not answer %s within %g s; falling back to the older handshake", HELLO, HELLO_S)
        error = ErrorData(code=REQUEST_TIMEOUT, message=f"no answer within {HELLO_S:g} s")
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._received.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=self._id, error=error)))


async def _receive(child: Child, received: Any, hello: _Hello) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while (line := await child.next_line()) is not None:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                try:
                    message = jsonrpc_message_adapter.validate_json(whole_characters(line), by_name=False)
                except ValueError:
                    # Many servers print a greeting, and some their log, where only messages belong.
                    if line.strip():
                        logger.debug("skipped a line that is no message: %r", line[:200])
                    continue
            hello.note_received(message)
            await received.send(SessionMessage(message))
    received.close()


async def _send(transport: asyncio.SubprocessTransport, sent: Any, hello: _Hello) -> None:
    pipe = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
    async for message in sent:
        if pipe.is_closing():
            return
        hello.note_sent(message.message)
        pipe.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


async def _end(child: Child, transport: asyncio.SubprocessTransport, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Close its input, then terminate it, then kill it, with everything that it started."""
    pid = transport.get_pid()
    # What was handed over last, such as word that a call is cancelled, still goes out.
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if (pipe := transport.get_pipe_transport(0)) is not None:
        pipe.close()
    if child.problem is None and not await _is_gone(child, LEAVE_S):
        child.was_told_to_leave = True
        _signal_group(pid, signal.SIGTERM)
        await _is_gone(child, LEAVE_S)
    # The group may outlive its first process.
    child.was_told_to_leave = child.was_told_to_leave or not child.gone.is_set()
    _signal_group(pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    await _is_gone(child, LEAVE_S)
    transport.close()
    await asyncio.sleep(0)


async def _is_gone(child: Child, wait_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.gone.wait(), wait_s)
    return child.gone.is_set()


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, number)
        else:
            os.killpg(pid, number)
