"""Requests that another process of the same service has to answer, passed on over private unix sockets.

What lives in the memory of one process, as an MCP session or an upload, has that process's number in its id; the session of
a run is noted with it in their folder. A process that gets a request about it passes it on: the request as ASGI describes it
and its principal go out, the response comes back piece by piece. Both ends prove that they know a secret which the parent of
the processes made up: neither a request nor an answer is taken from anybody else, and no token travels.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import struct
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callgate.mcp.http_body import whole_body
from callgate.server.errors import HttpError, error_response, problem_of, response_to
from callgate.server.identity import CURRENT_PRINCIPAL, EVERYTHING, Principal, Right

__all__ = ["FORWARDED", "PassedOn", "PeerGoneError", "Peers", "number_in"]

logger = logging.getLogger("callgate.server")

FORWARDED = "callgate.forwarded"
"""In a scope: another process has passed it on, and it is not passed on again."""
GREETING_S = 10.0
"""Seconds that both ends may take to authenticate, and a head to come."""
RETRY_S = 5
HEAD_BYTES_MAX = 256 * 1024
BODY_BYTES_MAX = 64 * 1024 * 1024
NONCE_BYTES = 32
_LENGTH = struct.Struct(">cI")
_START, _MORE, _LAST = b"s", b"b", b"e"
_NUMBER = re.compile(r"([0-9]{1,3})-")
_SECRET_HEADERS = frozenset({b"authorization", b"x-api-key", b"x-goog-api-key", b"cookie"})
"""Headers that were looked at already, and that no other process needs."""


class PeerGoneError(Exception):
    """The process that would have to answer is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The processes of one service, and which of them this one is."""

    number: int
    """Number of this process, from 0 on."""
    folder: str
    """Folder of their sockets; only this user has access."""
    secret: bytes = field(repr=False)
    """The secret that they share."""

    def path(self, number: int) -> str:
        """Return the place of a process's socket."""
        return os.path.join(self.folder, f"{number}.sock")

    def note_run(self, session: str) -> None:
        """Announce to the other processes that a run of a session is in progress here."""
        place = self._note(session)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        os.symlink(str(self.number), place)

    def forget_run(self, session: str) -> None:
        """Let the others know that it is over."""
        if self.number_of_run(session) == self.number:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._note(session))

    def number_of_run(self, session: str) -> int | None:
        """Return the number of the process in which a run of the session is in progress; None if none is known."""
        try:
            return int(os.readlink(self._note(session)))
        except FileNotFoundError:
            return None

    def _note(self, session: str) -> str:
        return os.path.join(self.folder, f"run-{hashlib.sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}")

    @contextlib.asynccontextmanager
    async def serving(self, app: ASGIApp) -> AsyncGenerator[None]:
        """Answer requests that the others pass on, for as long as the context lasts."""
        tasks: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = cast("asyncio.Task[None]", asyncio.current_task())
            tasks.add(task)
            try:
                await self._answer(app, reader, writer)
            except (OSError, EOFError, TimeoutError, ValueError):
                pass  # The other end has left, or was none of ours.
            finally:
                tasks.discard(task)
                writer.close()

        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(self.number))  # That of a process that had the number before.
        server = await asyncio.start_unix_server(accept, self.path(self.number))
        try:
            yield
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            with contextlib.suppress(OSError):
                os.unlink(self.path(self.number))

    async def _answer(self, app: ASGIApp, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(GREETING_S):
            await self._greet(reader, writer, b"asked", b"asks")
            scope, principal = _read_head(await _frame(reader, HEAD_BYTES_MAX))
            body = await _frame(reader, BODY_BYTES_MAX)
        CURRENT_PRINCIPAL.set(principal)
        is_read = has_begun = False

        async def receive() -> Message:
            nonlocal is_read
            if not is_read:
                is_read = True
                return {"type": "http.request", "body": body, "more_body": False}
            await reader.read(1)  # Nothing more is sent, so that it is the end.
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                head = {"status": message["status"], "headers": _texts(message["headers"])}
                _put(writer, _START, json.dumps(head).encode())
            else:
                _put(writer, _MORE if message.get("more_body", False) else _LAST, message.get("body", b""))
            await writer.drain()

        try:
            await app(scope, receive, send)
        except OSError:  # The other end has left, as clients do.
            raise
        except Exception as error:
            if has_begun or response_to(error, scope) is None:
                logger.exception("%s %s failed", scope["method"], scope["path"])
            if not has_begun:
                await error_response(problem_of(error), scope)(scope, receive, send)

    async def forward(self, number: int, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Let another process answer a request whose body has been read.

        Raises:
            PeerGoneError: it is not there, and has not got the request.
            HttpError: it is there and does not answer, or ended before its answer was whole.
        """
        try:
            async with asyncio.timeout(GREETING_S):
                reader, writer = await asyncio.open_unix_connection(self.path(number))
                try:
                    await self._greet(reader, writer, b"asks", b"asked")
                except BaseException:
                    writer.close()
                    raise
        except (ConnectionError, FileNotFoundError, EOFError) as error:
            raise PeerGoneError from error
        except OSError as error:  # A TimeoutError is one: the process is there, and held up.
            message = "The process that has this does not answer now, and has not got the request: send it again later."
            raise HttpError(503, "process_busy", message, headers={"Retry-After": str(RETRY_S)}) from error
        leaving = asyncio.create_task(_left(receive))
        passing = asyncio.create_task(_pass(reader, writer, _head(scope), body, send))
        try:
            await asyncio.wait({leaving, passing}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                await passing
        finally:
            for task in (leaving, passing):
                task.cancel()
            writer.close()
            await asyncio.wait({leaving, passing})

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, own: bytes, other: bytes) -> None:
        """Prove to the other end that this one knows the secret, and let it prove the same.

        Raises:
            ConnectionError: it does not know it.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        writer.write(nonce)
        theirs = await reader.readexactly(NONCE_BYTES)
        writer.write(self._proof(own, nonce, theirs))
        given = await reader.readexactly(NONCE_BYTES)
        if not hmac.compare_digest(given, self._proof(other, theirs, nonce)):
            raise ConnectionError("the other end is no process of this service")

    def _proof(self, role: bytes, first: bytes, second: bytes) -> bytes:
        return hmac.digest(self.secret, role + b"\0" + first + second, "sha256")


class PassedOn(Response):
    """The response of another process to a request whose body has not been read yet."""

    def __init__(self, peers: Peers, number: int, gone: HttpError) -> None:
        super().__init__()
        self._peers, self._number, self._gone = peers, number, gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the other process answer.

        Raises:
            HttpError: it is not there, or does not answer.
        """
        body = await whole_body(receive)
        if body is None:
            return
        try:
            await self._peers.forward(self._number, scope, body, receive, send)
        except PeerGoneError:
            raise self._gone from None


def number_in(id: str) -> int | None:
    """Return the number of the process that an id begins with; None if it begins with none."""
    found = _NUMBER.match(id)
    return None if found is None else int(found[1])


def _put(writer: asyncio.StreamWriter, kind: bytes, data: bytes) -> None:
    writer.write(_LENGTH.pack(kind, len(data)) + data)


async def _frame(reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    _, length = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > bytes_max:
        raise ValueError(f"a frame of {length} bytes")
    return await reader.readexactly(length)


def _texts(headers: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _bytes(headers: Any) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _head(scope: Scope) -> bytes:
    principal = CURRENT_PRINCIPAL.get()
    headers = [pair for pair in scope["headers"] if pair[0].lower() not in _SECRET_HEADERS]
    who = None if principal is None else [principal.name, principal.owner, sorted(principal.rights)]
    query = scope["query_string"].decode("latin-1")
    head = {"method": scope["method"], "path": scope["path"], "query": query, "headers": _texts(headers), "principal": who}
    return json.dumps(head).encode()


def _read_head(data: bytes) -> tuple[Scope, Principal | None]:
    head = cast("dict[str, Any]", json.loads(data))
    principal: Principal | None = None
    if head["principal"] is not None:
        name, owner, rights = head["principal"]
        principal = Principal(name=name, owner=owner, rights=frozenset[Right](rights))
        principal = EVERYTHING if principal == EVERYTHING else principal
    scope: Scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
        "method": head["method"], "path": head["path"], "raw_path": head["path"].encode("utf-8"),
        "query_string": head["query"].encode("latin-1"), "headers": _bytes(head["headers"]),
        "client": None, "server": None, FORWARDED: True,
    }  # fmt: skip
    return scope, principal


async def _left(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, body: bytes, send: Send) -> None:
    """Send a request, and pass the response on as it comes.

    Raises:
        HttpError: the other process ended before the response was whole.
    """
    try:
        _put(writer, _START, head)
        _put(writer, _LAST, body)
        await writer.drain()
        while True:
            kind, length = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            data = await reader.readexactly(length)
            if kind == _START:
                start = json.loads(data)
                await send({"type": "http.response.start", "status": start["status"], "headers": _bytes(start["headers"])})
                continue
            await send({"type": "http.response.body", "body": data, "more_body": kind == _MORE})
            if kind == _LAST:
                return
    except (OSError, EOFError) as error:
        message = "The process that had this request ended before its answer was whole: what became of it is not known."
        raise HttpError(502, "process_ended", message) from error
