"""A server on the standard streams: one message a line in, one a line out, and nothing else on them.

From then on what tools or their children print goes to stderr, and what they read is empty. The end of the input is the end
of the service. Reading and writing is done by daemon threads, so that neither a silent client nor one that does not read can
keep the program from ending; a line that is too long is skipped without being kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncGenerator, Callable
from queue import SimpleQueue
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from callgate.mcp.child import LINE_BYTES_MAX
from callgate.mcp.escapes import whole_characters
from callgate.mcp.serve import ToolServer

__all__ = ["pipe_streams", "serve_pipes", "serve_streams", "take_pipes"]

logger = logging.getLogger("callgate.mcp")

READ_BYTES = 64 * 1024
FLUSH_S = 2.0
"""The time-out for writing the last messages."""


def take_pipes() -> tuple[int, int]:
    """Descriptors of the standard input and output for nobody but us, for good.

    They are not given back: what others have printed may still wait in their buffers until the program ends.
    """
    own_in, own_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return own_in, own_out


async def serve_pipes(server: ToolServer) -> None:
    """Serve one client over the standard streams until it closes our input. Cancelling it ends the service too."""
    async with pipe_streams(*take_pipes()) as (incoming, outgoing):
        await serve_streams(server, incoming, outgoing)


async def serve_streams(server: ToolServer, incoming: Any, outgoing: Any) -> None:
    """Serve one client over two streams of messages until the incoming one ends, or nobody reads the outgoing one."""
    try:
        await server.sdk.run(incoming, outgoing, server.sdk.create_initialization_options())
    except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The SDK had more to say or to hand on when all was over. That is no failure: a client may go at any time.
        logger.debug("the connection ended in mid-message", exc_info=True)


@contextlib.asynccontextmanager
async def pipe_streams(read_fd: int, write_fd: int) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams that the SDK speaks through, over two descriptors."""
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    room = threading.Semaphore(16)
    ended = threading.Event()

    def deliver(line: bytes | None) -> bool:
        room.acquire()
        with contextlib.suppress(RuntimeError):  # The loop is gone, and with it the reader.
            loop.call_soon_threadsafe(lines.put_nowait, line)
            return not ended.is_set()
        return False

    writer = _Writer(write_fd, loop)
    threading.Thread(target=_read_lines, args=(read_fd, deliver), name="callgate-mcp-in", daemon=True).start()
    tasks = [asyncio.create_task(_receive(lines, room, received)), asyncio.create_task(_send(sent, writer, lines))]
    try:
        yield incoming, outgoing
    finally:
        ended.set()
        await asyncio.wait({tasks[1]}, timeout=FLUSH_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        for stream in (received, incoming, outgoing, sent):
            stream.close()


def _read_lines(fd: int, deliver: Callable[[bytes | None], bool]) -> None:
    """Hand on line after line, then None. What is too long is left out as it comes."""
    unfinished: list[bytes] = []
    size = 0
    while data := _read(fd):
        *whole, rest = data.split(b"\n")
        for piece in whole:
            size += len(piece)
            line = b"".join([*unfinished, piece]) if size <= LINE_BYTES_MAX else None
            unfinished, size = [], 0
            if line is None:
                logger.warning("a message of more than %d MiB was skipped", LINE_BYTES_MAX >> 20)
            elif line.strip() and not deliver(line):
                return
        size += len(rest)
        unfinished = [*unfinished, rest] if size <= LINE_BYTES_MAX else []
    deliver(None)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, READ_BYTES)
    except OSError:
        return b""


async def _receive(lines: asyncio.Queue[bytes | None], room: threading.Semaphore, received: Any) -> None:
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while (line := await lines.get()) is not None:
            room.release()
            await received.send(_message(line))
    received.close()


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        pass
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(whole_characters(line), by_name=False))
    except ValueError as error:
        logger.warning("a line that is no message was skipped: %r", line[:200])
        return error


async def _send(sent: Any, writer: _Writer, lines: asyncio.Queue[bytes | None]) -> None:
    async for message in sent:
        line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if not await writer.write(line):
            sent.close()
            lines.put_nowait(None)  # Nobody reads any more, so it is the end of the input too.
            return


class _Writer:
    """A writer in a thread of its own, one message after the other."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        self._waiting: SimpleQueue[tuple[bytes, asyncio.Future[bool]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="callgate-mcp-out", daemon=True).start()

    async def write(self, data: bytes) -> bool:
        """True if it could be written; if not, nobody reads any more."""
        done: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.put((data, done))
        return await done

    def close(self) -> None:
        """Close the queue: no more messages follow."""
        self._waiting.put(None)

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            data, done = item
            written = self._written(data)
            with contextlib.suppress(RuntimeError):  # The loop is gone: nobody waits for it.
                self._loop.call_soon_threadsafe(_settle, done, written)

    def _written(self, data: bytes) -> bool:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            return False
        return True


def _settle(done: asyncio.Future[bool], value: bool) -> None:
    if not done.done():
        done.set_result(value)
