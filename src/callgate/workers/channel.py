"""A direct connection between a program and the actor that keeps its worker, which Ray only introduces to each other.

A call by `ray://` passes four processes on each way; one by this connection passes none. The actor listens on its machine's
address, Ray brings the offer with a secret to the program, and both prove to know it before a frame passes. Where the
program cannot reach the actor, there is no such connection, and frames pass through Ray.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

__all__ = ["CONTROL", "FRAME", "READ_BYTES", "Listener", "Offer", "connect", "is_encrypted", "parcel", "parcels"]

CONNECT_S = 2.0
"""Seconds that a connection, and the authentication of its two ends, may take."""
FRAME, CONTROL = b"f", b"c"
"""Kinds of parcels to a worker: a frame, or a message past the call that runs."""
NONCE_BYTES = 32
READ_BYTES = 64 * 1024
_HEADER = struct.Struct(">cI")
_KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A machine that has vanished is noticed after 20 s, also where nothing is to be sent."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Address and secret of a listener."""

    host: str
    port: int
    secret: bytes


class Listener:
    """Listener for the one connection of the program that has its offer."""

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sock = socket.create_server((host, 0), family=family, backlog=8)
        self.offer = Offer(host, self._sock.getsockname()[1], secrets.token_bytes(NONCE_BYTES))

    def accept(self) -> socket.socket | None:
        """Wait for the program. None: the listener was closed meanwhile."""
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return None
            try:
                sock.settimeout(CONNECT_S)
                theirs, ours = _read(sock, NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
                sock.sendall(ours + _proof(self.offer, b"actor", theirs + ours))
                if hmac.compare_digest(_read(sock, NONCE_BYTES), _proof(self.offer, b"program", theirs + ours)):
                    sock.sendall(b"!")
                    return _with_keepalive(sock)
            except OSError:
                pass  # A stranger, or a program that has left.
            sock.close()

    def close(self) -> None:
        """Stop listening, and end a wait for the program."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def connect(offer: Offer) -> socket.socket | None:
    """Connect to the actor that made an offer; None if it cannot be reached."""
    try:
        sock = socket.create_connection((offer.host, offer.port), CONNECT_S)
    except OSError:
        return None
    try:
        ours = secrets.token_bytes(NONCE_BYTES)
        sock.sendall(ours)
        theirs, proof = _read(sock, NONCE_BYTES), _read(sock, NONCE_BYTES)
        if hmac.compare_digest(proof, _proof(offer, b"actor", ours + theirs)):
            sock.sendall(_proof(offer, b"program", ours + theirs))
            _read(sock, 1)
            return _with_keepalive(sock)
    except OSError:
        pass
    sock.close()
    return None


def parcel(kind: bytes, frame: bytes) -> bytes:
    """One frame as it is sent to an actor."""
    return _HEADER.pack(kind, len(frame)) + frame


def parcels(sock: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Read kinds and frames until the connection ends.

    Raises:
        OSError: it broke.
    """
    rest = bytearray()
    while data := sock.recv(READ_BYTES):
        rest += data
        while len(rest) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(rest)
            end = _HEADER.size + length
            if len(rest) < end:
                break
            yield kind, bytes(rest[_HEADER.size : end])
            del rest[:end]


def _proof(offer: Offer, role: bytes, nonces: bytes) -> bytes:
    return hmac.digest(offer.secret, role + nonces, hashlib.sha256)


def _read(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = sock.recv(size - len(found))
        if not data:
            raise ConnectionResetError("the other end has left")
        found += data
    return found


def _with_keepalive(sock: socket.socket) -> socket.socket:
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock


def is_encrypted() -> bool:
    """Return whether Ray encrypts its connections, which this one then must not undercut."""
    return os.environ.get("RAY_USE_TLS", "0") not in ("", "0")
