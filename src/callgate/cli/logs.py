"""Logging of `--debug` and `log_level`: records of `callgate.*` on stderr, escaped and redacted.

Requests and answers contain arbitrary text, so every line passes the redactor of the audit log, which also knows the keys
of this environment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from callgate.cli.escaping import visible
from callgate.permission.redact import Redactor

__all__ = ["log_handler", "start_logging"]

LINE_CHARS_MAX = 100_000


def start_logging(level: str | None, *, secrets: Iterable[str] = ()) -> None:
    """Show the records of callgate from this level on; None shows nothing."""
    # asyncio would print tracebacks of its own when a second Ctrl-C ends everything in mid-flight.
    handler = logging.NullHandler() if level is None else log_handler(secrets)
    logging.getLogger("asyncio").addHandler(handler if level == "debug" else logging.NullHandler())
    if level is not None:
        logger = logging.getLogger("callgate")
        logger.addHandler(handler)
        logger.setLevel(level.upper())


def log_handler(secrets: Iterable[str] = ()) -> logging.Handler:
    """A handler that writes to stderr what a terminal may show."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter(secrets))
    return handler


class _Formatter(logging.Formatter):
    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._redactor = Redactor(secrets)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if len(text) > LINE_CHARS_MAX:
            text = f"{text[:LINE_CHARS_MAX]} ... ({len(text)} characters)"
        return visible(self._redactor.text(text))
