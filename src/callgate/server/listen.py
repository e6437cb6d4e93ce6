"""Applications on a port: uvicorn with strict connections and a clean end.

A socket and an application come in; nothing goes out until a signal ends it.
"""

from __future__ import annotations

import asyncio
import asyncio.constants
import contextlib
import errno
import gc
import os
import signal
import socket
import stat
import threading
from collections.abc import Awaitable, Callable, Generator
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from callgate.server.app import create_app
from callgate.server.certificate import Certificate
from callgate.server.connection import Connection
from callgate.server.options import ServiceOptions
from callgate.server.service import Service

__all__ = ["Server", "config_of", "has_terminal", "listening_socket", "serve", "server_for", "unix_socket"]

BACKLOG = 2048
KEEP_ALIVE_S = 15
UNCOLLECTED_MAX = 20_000
"""Objects that may be made, and not gone by themselves, before the collector looks at them."""
LOOK_TICKS = 20
"""Interval between two looks at the files of the certificate, in tenths of a second."""
LAST_S = 10.0
"""Additional seconds that the service may take to end after its runs."""


class Server(uvicorn.Server):
    """A server that ends cleanly: `on_stop` brings work that goes on to its end before it leaves.

    One that `is_alone` in its process also tunes its garbage collector.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        on_stop: Callable[[], Awaitable[None]],
        *,
        on_drain: Callable[[], Awaitable[None]] | None = None,
        is_alone: bool = False,
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__(config)
        self._certificate = certificate
        self._on_drain, self._on_stop = on_drain, on_stop
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
        if sig == signal.SIGINT:
            self._on_drain = None  # Somebody waits at the terminal.
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Look at the files of the certificate every few seconds."""
        if self._certificate is not None and counter % LOOK_TICKS == 0:
            self._certificate.look()
        return await super().on_tick(counter)

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        """End it if its terminal was closed; without one, look at the files that it was given, as daemons do."""
        if not (self._is_alone and not has_terminal()):
            self.handle_exit(sig, frame)
        elif self._certificate is not None:
            self._certificate.look()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Let a terminal that is closed end it as SIGTERM does, unless the program says otherwise, as by nohup."""
        is_main = threading.current_thread() is threading.main_thread()
        hangup = getattr(signal, "SIGHUP", None) if is_main else None
        if hangup is None or signal.getsignal(hangup) is not signal.SIG_DFL:
            with super().capture_signals():
                yield
            return
        signal.signal(hangup, self.handle_hangup)
        try:
            with super().capture_signals():
                yield
        finally:
            signal.signal(hangup, signal.SIG_DFL)

    async def _end(self) -> None:
        if self._on_drain is not None:
            await self._on_drain()
        await self._on_stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End. While runs come to their end new connections are accepted, and learn that the service stops."""
        stopping = asyncio.ensure_future(self._end())
        while not stopping.done() and not self.force_exit:
            await asyncio.wait({stopping}, timeout=0.1)
        await super().shutdown(sockets)
        if self.force_exit:
            stopping.cancel()
        await asyncio.wait({stopping})


def serve(service: Service, sockets: list[socket.socket], *, tls: tuple[str, str | None] | None = None) -> None:
    """Serve until a signal comes."""
    # Connections in their handshake are not counted yet, so that they must not stay for long.
    asyncio.constants.SSL_HANDSHAKE_TIMEOUT = service.options.header_s
    server_for(service, is_alone=True, tls=tls).run(sockets)


def _settle_memory() -> None:
    """Freeze the objects that exist at start-up, so that the collector does not scan them again and again.

    It need not look often either: conversations leave next to nothing behind that goes only by being collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(UNCOLLECTED_MAX, *gc.get_threshold()[1:])


def server_for(service: Service, *, is_alone: bool = False, tls: tuple[str, str | None] | None = None) -> Server:
    """A server that is ready to run; setting its `should_exit` ends it as a signal would."""
    config = config_of(create_app(service), service.options)
    drain = service.drain if service.options.drain_s else None
    if tls is not None:
        config.load()
        service.certificate = Certificate(*tls)
        config.ssl = service.certificate.context
    return Server(config, service.stop, on_drain=drain, is_alone=is_alone, certificate=service.certificate)


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


def has_terminal() -> bool:
    """Return whether one of the standard streams is a terminal."""
    for descriptor in range(3):
        with contextlib.suppress(OSError):
            if os.isatty(descriptor):
                return True
    return False


def unix_socket(path: str) -> socket.socket:
    """A unix socket that listens at the path, and that only this user may connect to.

    Raises:
        OSError: the path cannot be used, or another server listens there.
    """
    found = socket.socket(socket.AF_UNIX)
    try:
        if os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(path) == 0:
                    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            os.unlink(path)
        before = os.umask(0o177)
        try:
            found.bind(path)
        finally:
            os.umask(before)
        found.listen(BACKLOG)
    except BaseException:
        found.close()
        raise
    return found


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at the address; port 0 takes any free one.

    Raises:
        OSError: the address cannot be used.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=BACKLOG)
