"""What goes wrong on the way to any server -> a typed error, and whether waiting helps.

Exceptions of the HTTP client and headers come in; failures go out. What the words of one server mean is known to its wire.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC

from callgate.errors import ConnectionLost, ModelError, ProtocolError, RequestTimeout

__all__ = ["Failure", "Sent", "clean", "failure_of_exception", "refusal", "seconds_of", "wait_of_headers"]

_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
# A wait of more than three years is no wait but a mistake.
_WAIT_MAX_S = 1e8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What the refused request was."""

    model: str
    tools: list[str]
    """The tools' own names in the order of their declarations."""
    size_bytes: int
    declared: Mapping[str, str] = field(default_factory=dict[str, str])
    """Declared name -> the tool's own name."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt."""

    error: ModelError
    retry: bool
    """Whether another attempt is to be made."""
    wait_s: float | None = None
    """How long the server asked to be left alone."""
    is_pressure: bool = False
    """The server is asking everybody to slow down."""
    is_outage: bool = False
    """The server itself is in trouble."""
    is_broken: bool = False
    """The connection broke; if it was an old one, that says nothing about the server."""
    is_answer: bool = False
    """The server is well and has refused this request."""


def failure_of_exception(error: Exception) -> Failure:
    """A failure from an exception of the HTTP client, before or while an answer was read."""
    import httpx2

    name, said = type(error).__name__, clean(str(error))
    if isinstance(error, ModelError):
        return Failure(error, retry=error.retryable)
    if (untrusted := _untrusted(error)) is not None:
        return Failure(ConnectionLost(f"no trusted connection could be made: {untrusted}"), retry=False)
    if isinstance(error, httpx2.TimeoutException):
        lost = RequestTimeout(f"no connection could be made in time ({said or name})", retryable=True)
        return Failure(lost, retry=True, is_outage=True)
    if isinstance(error, (httpx2.ConnectError, httpx2.ProxyError)):
        lost = ConnectionLost(f"no connection to the server: {said or name}", retryable=True)
        return Failure(lost, retry=True, is_outage=True)
    if isinstance(error, httpx2.DecodingError):
        return Failure(ProtocolError(f"the answer cannot be decoded: {said}"), retry=False)
    if isinstance(error, (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL)):
        return Failure(ProtocolError(f"the request cannot be sent: {said}"), retry=False)
    if isinstance(error, httpx2.RemoteProtocolError) and "disconnected" not in said:
        return Failure(ProtocolError(f"the server broke the protocol: {said}", retryable=True), retry=True)
    return Failure(ConnectionLost(f"the connection broke: {said or name}", retryable=True), retry=True, is_broken=True)


def refusal(error: ModelError) -> Failure:
    """A failure that is the server's last word on this request."""
    return Failure(error, retry=False, is_answer=True)


def wait_of_headers(headers: Mapping[str, str], now: float) -> float | None:
    """The longest wait that the headers ask for, `now` being the time of the wall clock; nonsense counts as nothing."""
    header = headers.get("retry-after", "").strip()
    waits = [seconds_of(header), _until(header, now)]
    milliseconds = seconds_of(headers.get("retry-after-ms", "").strip())
    waits.append(None if milliseconds is None else milliseconds / 1_000)
    return max((wait for wait in waits if wait is not None), default=None)


def seconds_of(text: str, unit: str = "") -> float | None:
    """The seconds that a text says, which must end with `unit`; None if it says none, or nonsense."""
    number = text.removesuffix(unit)
    if not text.endswith(unit) or not _SECONDS.fullmatch(number) or float(number) >= _WAIT_MAX_S:
        return None
    return float(number)


def _until(date: str, now: float) -> float | None:
    wait_s = None if not date or (read := _timestamp(date)) is None else max(0.0, read - now)
    return wait_s if wait_s is None or wait_s < _WAIT_MAX_S else None


def _untrusted(error: BaseException) -> str | None:
    """Why TLS refused the server, if it did. A connection that broke or was slow during TLS is not such a refusal."""
    import ssl

    harmless = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, harmless):
            return clean(str(cause))
        cause = cause.__cause__ or cause.__context__
    return None


def _timestamp(date: str) -> float | None:
    try:
        read = email.utils.parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    # Without a zone it means UTC, as all dates of HTTP do.
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def clean(text: str) -> str:
    """A server's words without control characters, and not too many of them."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip()[:2_000]
