"""The worker's side: a fresh Python process that imports tool modules and runs one call after another.

Frames come in over a socket, frames go out. Tools run on the main thread, where signals and libraries expect to be; a second
thread reads a second socket, by which a cancellation, or the end of the program, is noticed while a tool runs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import ctypes
import dataclasses
import gc
import inspect
import itertools
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, cast

from callgate.content.json_safe import json_safe
from callgate.definitions.function import ArgumentsInvalidError, FunctionTool, ToolOptions, function_tool
from callgate.errors import JsonError, ToolError
from callgate.host import Ask, ask_host, enter
from callgate.media_files import MediaReader
from callgate.strict_json import without_surrogates
from callgate.threads import error_sentence
from callgate.types import ToolContext, ToolResult
from callgate.workers.address import Address, load, mark_as_worker, resolve
from callgate.workers.frames import Frames, pack
from callgate.workers.guard import kill_tree

__all__ = ["main"]

logger = logging.getLogger("callgate.workers")

SESSION_ENDED = "session_ended"
"""A function of this name in a tool module is called with the id of a session that is over."""

GUARD_S = 0.3
"""Seconds that a worker whose program is gone waits to be killed before it does that itself."""

READ_BYTES = 64 * 1024
_PR_SET_CHILD_SUBREAPER = 36


class _Worker:
    def __init__(self, sock: socket.socket, control: socket.socket) -> None:
        self._sock, self._control = sock, control
        self._send_lock = threading.Lock()
        self._tools: dict[str, FunctionTool] = {}
        self._by_address: dict[Address, FunctionTool] = {}
        self._hooks: list[Callable[[str], object]] = []
        self._runner: asyncio.Runner | None = None
        self._task: asyncio.Task[Any] | None = None
        self._number = 0
        """The call that runs, or was the last to run."""
        self._open: int | None = None
        """The call that may ask for others: the one that runs."""
        self._cancelled: set[int] = set()
        self._asked: dict[int, concurrent.futures.Future[ToolResult]] = {}
        self._numbers = itertools.count(1)

    # The socket ----------------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Hear of cancellations until the program is gone; then nothing of this worker may stay."""
        frames = Frames()
        with contextlib.suppress(OSError, JsonError):
            while data := self._control.recv(1 << 16):
                for message in frames.feed(data):
                    _CONTROLS[message["op"]](self, message)
        # The guard does it better, because it stops this process first; but the guard may be gone too.
        time.sleep(GUARD_S)
        kill_tree(os.getpid())

    def send(self, message: dict[str, Any]) -> None:
        data = pack(message)
        with self._send_lock:
            try:
                self._sock.sendall(data)
            except OSError:
                return  # The program is gone, and the thread that watches for that sees to the rest.

    def cancel(self, message: dict[str, Any]) -> None:
        """A call is not wanted any more."""
        self._cancelled.add(message["id"])
        if message["id"] != self._number:
            return  # It has ended a moment before, and another one runs that knows nothing of this.
        self._answer_all("The call was cancelled.")
        if self._runner is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._runner.get_loop().call_soon_threadsafe(self._task.cancel)

    def answer(self, message: dict[str, Any]) -> None:
        """The program has called what a tool asked for."""
        given = {key: message.get(key) for key in ("name", "status", "value", "error")}
        self._answered(message["number"], ToolResult(call_id="", **cast("Any", given)))

    def _answer_all(self, error: str) -> None:
        for number in list(self._asked):
            self._answered(number, ToolResult(call_id="", name="", status="cancelled", error=error))

    def _answered(self, number: int, result: ToolResult) -> None:
        future = self._asked.pop(number, None)
        # Its reader may have left.
        if future is not None and future.set_running_or_notify_cancel():
            future.set_result(result)

    def _ask_for(self, call: int) -> Ask:
        def ask(name: str, args: Mapping[str, Any]) -> concurrent.futures.Future[ToolResult]:
            number = next(self._numbers)
            future = self._asked[number] = concurrent.futures.Future[ToolResult]()
            if self._open != call:
                error = "Not run: the tool that made the call is over."
                self._answered(number, ToolResult(call_id="", name=name, status="cancelled", error=error))
                return future
            try:
                text = json.dumps(dict(args), allow_nan=False)  # Nobody has looked at them yet.
                self.send({"op": "ask", "id": call, "number": number, "name": name, "args": json.loads(text)})
            except (TypeError, ValueError, RecursionError, JsonError) as error:
                why = str(error) if isinstance(error, JsonError) else f"not JSON: {error}"
                sentence = f"The arguments of {name!r} are {why}."
                self._answered(number, ToolResult(call_id="", name=name, status="failed", error=sentence))
            return future

        return ask

    def serve(self) -> None:
        """Execute the program's requests, one after another, until it sends stop."""
        frames = Frames()
        # Read here and not by a thread that hands on: that would cost every call a change of threads.
        while data := self._sock.recv(READ_BYTES):
            for message in frames.feed(data):
                if message["op"] == "stop":
                    if self._runner is not None:
                        self._runner.close()
                    return
                _OPS[message["op"]](self, message)
        time.sleep(2 * GUARD_S)  # The program is gone, and the other thread sees to the rest.

    # What the program asks for -------------------------------------------------------------------------------------------

    def start(self, message: dict[str, Any]) -> None:
        """Take over the program's paths and imports the tool modules."""
        sys.path[:] = message["path"]
        # It was set so that this process finds callgate; processes that tools start are to see what the program sees.
        os.environ.pop("PYTHONPATH", None)
        os.environ.update({key: value for key, value in message["environ"].items() if value is not None})
        if message["memory_bytes"]:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (message["memory_bytes"], message["memory_bytes"]))
        name = ""
        try:
            for name, file in message["modules"]:
                self._register(vars(load(name, file)), name)
        except BaseException as error:
            logger.exception("module %r cannot be imported", name)
            self.send({"op": "ready", "problem": f"module {name!r}: {error_sentence(error)}"})
            return
        # What was imported stays for good: the collector need not look at it after every call.
        gc.collect()
        gc.freeze()
        tools = [dataclasses.asdict(tool.definition) for tool in self._tools.values()]
        self.send({"op": "ready", "tools": tools})

    def _register(self, namespace: dict[str, Any], module: str) -> None:
        known = {id(tool.fn) for tool in self._tools.values()}
        for value in list(namespace.values()):
            is_tool = isinstance(getattr(value, "__callgate_tool__", None), ToolOptions)
            if is_tool and not hasattr(value, "__callgate_offer__") and id(value) not in known:
                tool = function_tool(value)
                if tool.definition.name in self._tools:
                    raise ValueError(f"two tools are named {tool.definition.name!r}; give one of them another name=")
                self._tools[tool.definition.name] = tool
                known.add(id(value))
        if callable(hook := namespace.get(SESSION_ENDED)) and getattr(hook, "__module__", module) == module:
            self._hooks.append(hook)

    def ping(self, message: dict[str, Any]) -> None:
        """Show that this process does its work."""
        self.send({"op": "pong"})

    def end(self, message: dict[str, Any]) -> None:
        """Let the modules forget a session."""
        for hook in self._hooks:
            try:
                hook(message["session"])
            except Exception:
                logger.exception("%s failed", SESSION_ENDED)
        self.send({"op": "result", "id": message["id"], "status": "finished", "value": None})

    def call(self, message: dict[str, Any]) -> None:
        """Run one call and sends its one result."""
        number = self._number = self._open = message["id"]
        enter(self._ask_for(number))
        outcome: dict[str, Any] = {"op": "result", "id": number}
        try:
            outcome |= _finished(self._run(self._tool(message), message))
        except BaseException as error:
            outcome |= self._failed(message["name"], error)
        self._open = None
        self._answer_all("Not run: the tool that made the call is over.")
        try:
            self.send(outcome)
        except JsonError as error:
            sentence = f"The tool's result cannot leave its worker: {error}."
            self.send({"op": "result", "id": number, "status": "failed", "error": sentence})
        self._cancelled.discard(number)

    def _context(self, message: dict[str, Any]) -> ToolContext:
        number = message["id"]
        return ToolContext(
            call_id=message.get("call_id", ""),
            name=message["name"],
            session=message.get("session"),
            timeout_s=message["timeout_s"],
            progress=lambda message, fraction=None: self._progress(number, message, fraction),
            is_cancelled=lambda: number in self._cancelled,
            call_tool=self._call_tool,
        )

    async def _call_tool(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        return await asyncio.wrap_future(ask_host(name, args))

    def _progress(self, number: int, text: object, fraction: float | None) -> None:
        share = float(fraction) if isinstance(fraction, (int, float)) and 0 <= fraction <= 1 else None
        self.send({"op": "progress", "id": number, "message": str(text)[:2000], "fraction": share})

    def _tool(self, message: dict[str, Any]) -> FunctionTool:
        if "address" not in message:
            return self._tools[message["name"]]
        address = Address(*message["address"])
        tool = self._by_address.get(address)
        if tool is None:
            tool = self._by_address[address] = function_tool(resolve(address), name=message["name"])
        return tool

    def _run(self, tool: FunctionTool, message: dict[str, Any]) -> object:
        positional, named = tool.bind(message["args"], self._context(message) if tool.takes_context else None)
        on_item = self._item_sender(message)
        if tool.is_async or tool.is_async_generator:
            return self._awaited(tool.fn(*positional, **named), on_item)
        try:
            value = tool.fn(*positional, **named)
            if type(value) in _PLAIN:
                return value
            if inspect.isgenerator(value):
                return _read(cast("Iterator[Any]", value), on_item)
        except (StopIteration, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
            raise ToolError(f"The tool failed with {error_sentence(error)}.") from error
        if inspect.isawaitable(value) or inspect.isasyncgen(value):
            return self._awaited(value, on_item)
        return value

    def _item_sender(self, message: dict[str, Any]) -> Callable[[object], None]:
        if "stream" not in message:
            return _unheard
        return lambda item: self.send({"op": "item", "id": message["id"], "value": json_safe(item).value})

    def _awaited(self, value: Any, on_item: Callable[[object], None]) -> object:
        # One loop for the worker's whole life: what a session keeps (a client, a lock) may be bound to it.
        self._runner = self._runner or asyncio.Runner()

        async def contained() -> object:
            self._task = asyncio.current_task()
            try:
                if not inspect.isasyncgen(value):
                    return await value
                items: list[Any] = []
                async for item in cast("AsyncIterator[Any]", value):
                    on_item(item)
                    items.append(item)
                return items
            except SystemExit as error:
                raise ToolError(f"The tool tried to end the program (exit code {error.code}).") from error
            except asyncio.CancelledError:
                raise ToolError("The tool cancelled itself and gave no result.") from None
            finally:
                self._task = None

        # With the context of this call: that of the loop is as old as the loop.
        return self._runner.run(contained(), context=contextvars.copy_context())

    def _failed(self, name: str, error: BaseException) -> dict[str, Any]:
        if isinstance(error, ArgumentsInvalidError):
            listed = "; ".join(problem.rstrip(".") for problem in error.problems)
            sentence = f"The arguments of {name!r} are not valid: {listed}. Correct them and call again."
        elif isinstance(error, ToolError):
            sentence = without_surrogates(str(error)) or "The tool failed without saying why."
        else:
            logger.error("tool %r failed", name, exc_info=error)
            sentence = without_surrogates(error_sentence(error))
        # After that, what is left of the memory is in pieces, or threads that nobody ends keep it.
        return {"status": "failed", "error": sentence, "retire": isinstance(error, MemoryError) or _lacks_threads(error)}


def _lacks_threads(error: BaseException) -> bool:
    """Return whether the system gave the process no further thread; Python has no exception of its own for that."""
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


_OPS: dict[str, Callable[[_Worker, dict[str, Any]], None]] = {
    "start": _Worker.start,
    "call": _Worker.call,
    "end": _Worker.end,
    "ping": _Worker.ping,
}
_CONTROLS: dict[str, Callable[[_Worker, dict[str, Any]], None]] = {"cancel": _Worker.cancel, "answer": _Worker.answer}


_PLAIN: set[type[object]] = {type(None), bool, int, float, str, list, dict}
"""Types whose values are clearly nothing to be awaited; to find that out for any other takes longer than most calls."""


def _unheard(item: object) -> None:
    """Ignore output: there is no reader."""


def _read(items: Iterator[Any], on_item: Callable[[object], None]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        on_item(item)
        found.append(item)
    return found


def _finished(value: object) -> dict[str, Any]:
    reader = MediaReader()
    if isinstance(value, ToolResult):
        safe = json_safe(value.value, read_media=reader)
        error, notes, media = value.error, [*value.notes, *safe.notes], [*value.media, *safe.media]
        return {"status": value.status, "value": safe.value, "error": error, "notes": notes, "media": media}
    safe = json_safe(value, read_media=reader)
    outcome: dict[str, Any] = {"status": "finished", "value": safe.value}
    if safe.notes or safe.media:
        outcome |= {"notes": safe.notes, "media": safe.media}
    return outcome


def _keep_orphans() -> None:
    """Make what a tool's children leave behind children of this process, so that they are found when it is killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(fd: int, control_fd: int) -> None:
    """Serve the program at the other end of the sockets."""
    mark_as_worker()
    _keep_orphans()
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.WARNING)
    worker = _Worker(socket.socket(fileno=fd), socket.socket(fileno=control_fd))
    threading.Thread(target=worker.watch, name="callgate-worker-watch", daemon=True).start()
    worker.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
