"""Network failures -> a typed error, and whether a retry helps.

Exceptions of the HTTP client and headers come in; failures go out. What the words of one server mean is known to its wire.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC

from callgate.errors import (
    AuthError,
    ConnectionLostError,
    LimitExceededError,
    ModelError,
    ProtocolError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
)

__all__ = [
    "ConnectError", "ConnectTimeoutError", "Failure", "HttpError", "LocalProtocolError", "ReadError", "RemoteProtocolError",
    "Sent", "StaleConnectionError", "clean", "failure_of_exception", "failure_of_server", "is_server_failure", "no_credit",
    "proxy_login", "rate_limited", "refusal", "seconds_of", "too_large", "wait_of_headers",
]  # fmt: skip

_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
# A wait of more than three years is no wait but a mistake.
_WAIT_MAX_S = 1e8
_NEVER_AGAIN = frozenset({501, 505})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A summary of the refused request."""

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
    """True if another attempt is to be made."""
    wait_s: float | None = None
    """The wait that the server asked for."""
    is_pressure: bool = False
    """The server is asking everybody to slow down."""
    is_outage: bool = False
    """The server itself is in trouble."""
    is_of_body: bool = False
    """An outage that this very body may have brought about, so that it counts once however often the body is sent."""
    is_stale: bool = False
    """A connection that was kept had been closed, which says nothing about the server."""
    is_unauthorized: bool = False
    """The credentials are not valid, or not any more."""
    is_answer: bool = False
    """The server is well and has refused this request."""


class HttpError(Exception):
    """Something failed on a connection of our own. The kinds have the names that httpx and httpx2 give to theirs."""


class ConnectError(HttpError):
    """There is no connection, or its certificate is not to be trusted."""


class ConnectTimeoutError(HttpError):
    """There is no connection in time."""


class ReadError(HttpError):
    """The connection broke."""


class LocalProtocolError(HttpError):
    """The request cannot be sent: its URL or a header is not valid."""


class RemoteProtocolError(HttpError):
    """Something came that is not HTTP."""


class DecodingError(HttpError):
    """A body is not of the encoding that its answer names."""


class StaleConnectionError(ConnectionError):
    """A connection that had been used before broke at once, and without a byte of an answer."""


_UNREACHABLE = frozenset(
    number
    for name in (
        "ENETUNREACH",
        "ENETDOWN",
        "EHOSTUNREACH",
        "EADDRNOTAVAIL",
        "EMFILE",
        "ENFILE",
        "ENOBUFS",
        "EACCES",
        "EPERM",
    )
    if (number := getattr(errno, name, None)) is not None
)
"""Local connect errors, which say nothing about the server."""


def failure_of_exception(error: Exception) -> Failure:
    """A failure from an exception of an HTTP client, before or while an answer was read.

    The exceptions of httpx and httpx2 are recognised by their names, which are the same.
    """
    if isinstance(error, ModelError):
        return Failure(error, retry=error.retryable)
    names = {kind.__name__ for kind in type(error).__mro__}
    said = clean(str(error)) or type(error).__name__
    if isinstance(error, StaleConnectionError):
        return Failure(_lost_error(said), retry=True, is_stale=True)
    if (untrusted := _untrusted(error, is_handshake="ConnectError" in names)) is not None:
        return Failure(ConnectionLostError(f"no trusted connection could be made: {untrusted}"), retry=False)
    for kinds, make in _BY_NAME:
        if names & kinds:
            return make(said)
    if "ConnectError" in names:
        lost = ConnectionLostError(f"no connection to the server: {said}", retryable=True)
        return Failure(lost, retry=True, is_outage=not _is_local(error))
    if "RemoteProtocolError" in names and "disconnected" not in said:
        return Failure(ProtocolError(f"the server broke the protocol: {said}", retryable=True), retry=True)
    return Failure(_lost_error(said), retry=True)


def _lost_error(said: str) -> ConnectionLostError:
    return ConnectionLostError(f"the connection broke: {said}", retryable=True)


def _proxy_failure(said: str) -> Failure:
    """The failure of a proxy; httpx gives nothing but its status line."""
    if said.startswith("407"):
        return proxy_login(said)
    return Failure(ConnectionLostError(f"no connection to the server: the proxy says {said}", retryable=True), retry=True)


def proxy_login(said: str) -> Failure:
    """A proxy that wants a login. It is asked once: proxies lock accounts."""
    return Failure(
        AuthError(f"the proxy wants another login ({said}): HTTPS_PROXY=http://user:password@host:port has room for one"),
        retry=False,
    )


def _is_local(error: BaseException) -> bool:
    """True if it was the network here, or the name, that no connection could be made with."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror) or (isinstance(cause, OSError) and cause.errno in _UNREACHABLE):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


_BY_NAME: tuple[tuple[frozenset[str], Callable[[str], Failure]], ...] = (
    (frozenset({"ReadTimeout", "WriteTimeout"}), lambda said: Failure(
        RequestTimeoutError(f"the HTTP client waited no longer for the server ({said})", retryable=True), retry=True)),
    (frozenset({"TimeoutException", "ConnectTimeoutError"}), lambda said: Failure(
        RequestTimeoutError(f"no connection could be made in time ({said})", retryable=True), retry=True, is_outage=True)),
    (frozenset({"ProxyError"}), _proxy_failure),
    (frozenset({"DecodingError"}), lambda said: Failure(
        ProtocolError(f"the answer cannot be decoded: {said}"), retry=False)),
    (frozenset({"LocalProtocolError", "UnsupportedProtocol", "InvalidURL"}), lambda said: Failure(
        ProtocolError(f"the request cannot be sent: {said}"), retry=False)),
)  # fmt: skip
"""Names of exceptions -> the failure with these words; the first row that fits."""


def refusal(error: ModelError) -> Failure:
    """A failure that is the server's last word on this request."""
    return Failure(error, retry=False, is_answer=True)


def no_credit(named: str, message: str) -> Failure:
    """A refusal because the credit is used up; `named` is the status with the server's own words for it."""
    return refusal(RateLimitedError(f"the credit is used up ({named}): {message}", quota="credit", retryable=False))


def rate_limited(message: str, headers: Mapping[str, str], now: float) -> Failure:
    """A refusal because there are too many requests."""
    wait_s = wait_of_headers(headers, now)
    asked = f" (asked to wait {wait_s:g} s)" if wait_s is not None else ""
    error = RateLimitedError(f"too many requests{asked}: {message}", retry_after=wait_s)
    return Failure(error, retry=True, wait_s=wait_s, is_pressure=True)


def too_large(named: str, message: str, sent: Sent) -> Failure:
    """A refusal because the request is larger than the model takes."""
    told = f"the request of {sent.size_bytes:,} bytes is too large for {sent.model!r} ({named}): {message}"
    return refusal(LimitExceededError(told, is_of_request=True))


def is_server_failure(code: int) -> bool:
    """True for a status that says nothing about the request, which may work the next time."""
    return code == 408 or (code >= 500 and code not in _NEVER_AGAIN)


def failure_of_server(code: int, named: str, message: str, headers: Mapping[str, str], now: float) -> Failure:
    """A failure of the server itself."""
    kind = RequestTimeoutError if code in (408, 504) else ServerUnavailableError
    lost = kind(f"the server failed ({named}): {message}", retryable=True)
    # Some inputs get a 500 whenever they are sent; an overload has nothing to do with what is sent.
    return Failure(lost, retry=True, wait_s=wait_of_headers(headers, now), is_outage=True, is_of_body=code == 500)


def wait_of_headers(headers: Mapping[str, str], now: float) -> float | None:
    """The longest wait that the headers ask for, `now` being the time of the wall clock; nonsense counts as nothing."""
    header = headers.get("retry-after", "").strip()
    # Several headers are joined by commas, which dates have as well.
    waits = [*map(seconds_of, map(str.strip, header.split(","))), _until(header, now)]
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


_HARMLESS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError)


_DAMAGED = frozenset({
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC", "BAD_RECORD_MAC", "SSLV3_ALERT_BAD_RECORD_MAC", "BAD_DECRYPT",
    "BAD_DIGEST_LENGTH", "DIGEST_CHECK_FAILED", "TLSV1_ALERT_DECRYPT_ERROR",
})  # fmt: skip
"""Reasons for which a handshake fails that was changed on its way."""


def _untrusted(error: BaseException, *, is_handshake: bool) -> str | None:
    """The reason why TLS refused the server or the server us, if so. A connection that broke, was slow or was damaged on its
    way is no such refusal."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, _HARMLESS):
            # A server may refuse our certificate only after the handshake.
            said = getattr(cause, "reason", None) or ""
            if said in _DAMAGED:
                return None
            is_ours = is_handshake or isinstance(cause, ssl.SSLCertVerificationError)
            is_refusal = is_ours or "CERTIFICATE" in said or "UNKNOWN_CA" in said
            return clean(str(cause)) if is_refusal else None
        cause = cause.__cause__ or cause.__context__
    return None


def _timestamp(date: str) -> float | None:
    import email.utils  # With what it imports it is the size of this package, and few servers ask for a wait by a date.

    try:
        read = email.utils.parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    # Without a zone it means UTC, as all dates of HTTP do.
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def clean(text: str) -> str:
    """A server's words without control characters, and not too many of them."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip()[:2_000]
