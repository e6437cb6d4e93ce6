"""Applications on a port: uvicorn with strict connections and a clean end.

A socket and an application come in; nothing goes out until a signal ends it.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from callgate.server.app import create_app
from callgate.server.connection import Connection
from callgate.server.options import ServiceOptions
from callgate.server.service import Service

__all__ = ["Server", "config_of", "listening_socket", "serve", "server_for"]

BACKLOG = 2048
KEEP_ALIVE_S = 15
UNCOLLECTED_MAX = 20_000
"""Objects that may be made, and not gone by themselves, before the collector looks at them."""
LAST_S = 10.0
"""How much longer than its runs the service may take to end."""


class Server(uvicorn.Server):
    """A server that ends cleanly: `on_stop` brings work that goes on to its end before it leaves.

    One that `is_alone` in its process also tunes its garbage collector.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], Awaitable[None]], *, is_alone: bool = False) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._is_alone = is_alone

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        await super().startup(sockets)
        if self._is_alone:
            _settle_memory()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends it cleanly, a second Ctrl-C at once."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End. While runs come to their end new connections are accepted, and learn that the service stops."""
        stopping = asyncio.ensure_future(self._on_stop())
        while not stopping.done() and not self.force_exit:
            await asyncio.wait({stopping}, timeout=0.1)
        await super().shutdown(sockets)
        if self.force_exit:
            stopping.cancel()
        await asyncio.wait({stopping})


def serve(service: Service, sockets: list[socket.socket]) -> None:
    """Serve until a signal comes."""
    server_for(service, is_alone=True).run(sockets)


def _settle_memory() -> None:
    """Freeze the objects that exist at start-up, so that the collector does not scan them again and again.

    It need not look often either: conversations leave next to nothing behind that goes only by being collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(UNCOLLECTED_MAX, *gc.get_threshold()[1:])


def server_for(service: Service, *, is_alone: bool = False) -> Server:
    """A server that is ready to run; setting its `should_exit` ends it as a signal would."""
    config = config_of(create_app(service), service.options)
    return Server(config, service.stop, is_alone=is_alone)


def config_of(app: ASGIApp, options: ServiceOptions) -> uvicorn.Config:
    """uvicorn's settings for an application behind strict connections."""
    waiting: dict[Connection, None] = {}
    protocol = type("Connection", (Connection,), {"options": options, "waiting": waiting})
    return uvicorn.Config(
        cast("Any", app),
        http=cast("Any", protocol),
        ws="none",
        lifespan="on",
        h11_max_incomplete_event_size=options.header_bytes,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(options.stop_s + LAST_S),
        server_header=False,
        proxy_headers=False,
        access_log=False,
        log_config=None,
        log_level="warning",
    )


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at the address; port 0 takes any free one.

    Raises:
        OSError: the address cannot be used.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=BACKLOG)
