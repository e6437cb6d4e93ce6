"""The OAuth callback: the page on this machine that a browser is redirected to after a login.

A state that only the right visitor knows comes in, the parameters of that visit go out. Anything else that knocks is sent
away, and nothing of what a visitor says is repeated to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from urllib.parse import parse_qsl, urlsplit

__all__ = ["PATH", "bound_socket", "expect_redirect"]

PATH = "/callback"
HEAD_BYTES_MAX = 16 * 1024
VISIT_S = 10.0
VISITS_MAX = 100

_DONE = "You are logged in. This page can be closed."
_REFUSED = "The login was refused. This page can be closed."
_ASTRAY = "There is nothing here."


def bound_socket(port: int | None = None) -> socket.socket | None:
    """A socket at this port of the loopback, or at any; None if the port is taken. It does not listen yet."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if sys.platform != "win32":  # There it would let others take the port, too.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port or 0))
    except OSError:
        sock.close()
        return None
    return sock


def expect_redirect(sock: socket.socket, state: str) -> asyncio.Task[dict[str, str]]:
    """Listen at once, and return the task that waits for the redirect.

    A browser that is logged in already is redirected before the task has run for the first time.

    Raises:
        OSError: another program listens at the same port.
    """
    sock.listen(VISITS_MAX)
    return asyncio.create_task(_redirected(sock, state))


async def _redirected(sock: socket.socket, state: str) -> dict[str, str]:
    """Wait for the request with the right state, and return its parameters. Closes the socket."""
    found: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
    visits = 0

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        try:
            if visits <= VISITS_MAX:
                async with asyncio.timeout(VISIT_S):
                    parameters = _parameters(await reader.readuntil(b"\r\n\r\n"))
                    is_it = parameters.get("state") == state and not found.done()
                    words = _ASTRAY if not is_it else _REFUSED if "error" in parameters else _DONE
                    writer.write(_page(200 if is_it else 404, words))
                    await writer.drain()
                if is_it and not found.done():
                    found.set_result(parameters)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The client sent nothing readable.
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(visit, sock=sock, limit=HEAD_BYTES_MAX)
    try:
        return await found
    finally:
        server.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 1)


def _parameters(head: bytes) -> dict[str, str]:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or words[0] != "GET":
        return {}
    parts = urlsplit(words[1])
    return dict(parse_qsl(parts.query)) if parts.path == PATH else {}


def _page(status: int, words: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>callgate</title><p>{words}\n".encode()
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Not Found'}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
