"""The certificate of a server: its files are looked at while it serves, and one that was renewed is used at once.

Paths come in; a TLS context goes out that new connections use as it is then. Connections that are open keep theirs.
"""

from __future__ import annotations

import importlib
import logging
import os
import ssl
import time
from typing import Any

__all__ = ["Certificate", "tls_trouble_of"]

logger = logging.getLogger("callgate.outages")


class Certificate:
    """A certificate (chain) and its key, which may be in the same file.

    Raises:
        OSError: the files cannot be read, or do not fit each other (`ssl.SSLError`).
    """

    def __init__(self, certificate: str, key: str | None) -> None:
        self._certificate, self._key = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._seen: list[object] = self._stamp()
        self.context.load_cert_chain(certificate, key)
        self.expires_s = _expires_s(certificate)
        """Time of its expiry, in seconds since 1970; None if that cannot be read."""
        self._error: str | None = None
        self._has_said_expired = False

    @property
    def trouble(self) -> str | None:
        """A sentence about files that cannot be used, or a certificate that has expired."""
        if self._error is not None:
            return self._error
        if self.expires_s is not None and self.expires_s <= time.time():
            return f"the certificate {self._certificate} expired on {time.strftime('%Y-%m-%d', time.gmtime(self.expires_s))}"
        return None

    def look(self) -> None:
        """Use the files as they are now, if they have changed; what cannot be used leaves the old ones in use."""
        stamp = self._stamp()
        if stamp == self._seen and self._error is None:
            self._warn_if_expired()
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            self.context.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            # Between the write of the one and of the other file they do not fit each other.
            if self._error is None:
                logger.warning("the certificate %s cannot be used, so the old one is: %s", self._certificate, error)
            self._error, self._seen = f"the certificate {self._certificate} cannot be used: {error}", stamp
            return
        self._seen, self._error, self.expires_s = stamp, None, _expires_s(self._certificate)
        self._has_said_expired = False
        logger.warning("the certificate %s was read again", self._certificate)
        self._warn_if_expired()

    def _warn_if_expired(self) -> None:
        if not self._has_said_expired and (trouble := self.trouble) is not None:
            self._has_said_expired = True
            logger.error("%s; clients will refuse it", trouble)

    def _stamp(self) -> list[object]:
        found: list[object] = []
        for path in filter(None, (self._certificate, self._key)):
            try:
                state = os.stat(path)
            except OSError as error:
                found.append(error.errno)
            else:
                found.append((state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
        return found


def tls_trouble_of(certificate: Certificate | None) -> str | None:
    """A sentence about what is wrong with the certificate, if there is one and something is."""
    return None if certificate is None else certificate.trouble


def _expires_s(path: str) -> float | None:
    try:
        decode: Any = importlib.import_module("_ssl")._test_decode_cert
        return float(ssl.cert_time_to_seconds(decode(path)["notAfter"]))
    except (AttributeError, ImportError, KeyError, OSError, ValueError):  # Another implementation of Python, perhaps.
        return None
