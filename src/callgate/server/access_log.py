"""The access log: one line of JSON for each request, refused ones included.

Headers, bodies and query strings are not in it. The logger `callgate.access` is silent unless somebody gives it a handler.
"""

from __future__ import annotations

import datetime
import io
import logging
import logging.handlers
import math
import os
import re
import sys
import time
from typing import Any

from callgate import strict_json

__all__ = ["failures", "logger", "request_id", "start_access_log", "write"]

logger = logging.getLogger("callgate.access")
logger.propagate = False
outages = logging.getLogger("callgate.outages")

PATH_CHARS = 500
SAID_S = 60.0
"""Seconds between two reports that lines cannot be written."""
_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def request_id(given: bytes | None) -> str:
    """The id of a request: the one that it brought, if that is a plain word, or a new one."""
    if given is not None and _GIVEN.fullmatch(given):
        return given.decode("ascii")
    return os.urandom(8).hex()


def write(**fields: Any) -> None:
    """Write one line; fields that are None are left out."""
    if not logger.isEnabledFor(logging.INFO):
        return
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    known = {name: value for name, value in fields.items() if value is not None}
    known["path"] = str(known.get("path", ""))[:PATH_CHARS]
    logger.info("%s", strict_json.dump(strict_json.without_bad({"time": now, **known})).decode())


class _PrivateFile(logging.handlers.WatchedFileHandler):
    """A file that its owner alone can read, also after it was moved away and made anew."""

    failures = 0
    """Lines that could not be written, or not at once."""
    _said_s = -math.inf

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once in a while that lines cannot be written: a full disk stays full for many requests."""
        self.failures += 1
        if time.monotonic() >= self._said_s + SAID_S:
            self._said_s = time.monotonic()
            error = sys.exc_info()[1]
            outages.error("the access log %s cannot be written: %s", self.baseFilename, getattr(error, "strerror", error))

    def _open(self) -> io.TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=lambda path, flags: os.open(path, flags, 0o600))


def failures() -> int:
    """Return how many lines could not be written."""
    return sum(handler.failures for handler in logger.handlers if isinstance(handler, _PrivateFile))


def start_access_log(place: str) -> None:
    """Write the log to a file that may be moved away and replaced (logrotate), or to stderr (`-`).

    Raises:
        OSError: the file cannot be written.
    """
    handler: logging.Handler
    if place == "-":
        handler = logging.StreamHandler(sys.stderr)
    else:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        handler = _PrivateFile(place, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
