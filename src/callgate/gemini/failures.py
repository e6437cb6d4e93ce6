"""What went wrong -> a typed error, and whether waiting helps.

Status codes, headers, error bodies and exceptions of the network come in; errors of `callgate.errors` go out, each with the
seconds that the server asked for, if it did. This file sends and waits for nothing.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any, cast

from callgate.errors import (
    AuthError,
    ConnectionLost,
    InvalidRequest,
    LimitExceeded,
    ModelError,
    ProtocolError,
    RateLimited,
    RequestTimeout,
    ServerUnavailable,
    ToolsUnsupported,
)
from callgate.types import JsonObject

__all__ = ["Failure", "Sent", "error_in", "failure_of_body", "failure_of_exception"]

# google.rpc status -> HTTP, for errors inside a stream that carry no code.
_CODES = {
    "INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "OUT_OF_RANGE": 400, "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403, "NOT_FOUND": 404, "ABORTED": 409, "ALREADY_EXISTS": 409, "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499, "INTERNAL": 500, "UNKNOWN": 500, "DATA_LOSS": 500, "UNIMPLEMENTED": 501, "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}  # fmt: skip
_NEVER_AGAIN = frozenset({501, 505})
_TOO_LARGE = re.compile(r"too large|payload size|exceeds the (maximum|limit)|token count", re.IGNORECASE)
_NOT_SERVED_HERE = re.compile(r"location is not supported|region is not supported", re.IGNORECASE)
_NO_TOOLS = re.compile(
    r"(?:function calling|tool use|tools?) (?:is|are) not (?:enabled|supported)"
    r"|does not support (?:function calling|tools?\b)",
    re.IGNORECASE,
)
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
# A wait of more than three years is no wait but a mistake.
_WAIT_MAX_S = 1e8
_PLACE = re.compile(r"tools\[\d+\][\w.\[\]]*?(?:function_declarations|functionDeclarations)\[(\d+)\][\w.\[\]]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What the refused request was."""

    model: str
    tools: list[str]
    """The tools' own names in the order of their declarations."""
    size_bytes: int


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


def error_in(chunk: Mapping[str, Any]) -> JsonObject | None:
    """The error object of a body or of a chunk of a stream, if it is one."""
    error: Any = chunk.get("error")
    return cast("JsonObject", error) if isinstance(error, dict) else None


def failure_of_body(status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent) -> Failure:
    """A failure from Google's error object; `status` is the HTTP status when the error came as a response of its own.

    `now` is the time of the wall clock, for servers that name a date.
    """
    word = str(error.get("status") or "")
    code = _code(status, error.get("code"), word)
    message = _clean(str(error.get("message") or f"HTTP {code}"))
    details = _objects(error.get("details"))
    named = f"{code} {word}".strip()
    if code in (402, 429):
        return _rate_limited(code, message, details, headers, now)
    reasons = {item.get("reason") for item in details}
    if "LOCATION_NOT_SUPPORTED" in reasons or _NOT_SERVED_HERE.search(message):
        return _refusal(AuthError(f"the API is not served in this region ({named}): {message}"))
    if code in (401, 403) or "API_KEY_INVALID" in reasons:
        return _refusal(AuthError(f"the server refused the key or its rights ({named}): {message}"))
    if code == 413 or (code == 400 and _TOO_LARGE.search(message)):
        size = f"{sent.size_bytes:,} bytes"
        return _refusal(LimitExceeded(f"the request of {size} is too large for {sent.model!r} ({named}): {message}"))
    if code == 499:
        return _refusal(ServerUnavailable(f"the server cancelled the request ({named}): {message}", retryable=True))
    if code == 408 or (code >= 500 and code not in _NEVER_AGAIN):
        kind = RequestTimeout if code in (408, 504) else ServerUnavailable
        wait_s = _asked_wait(details, headers, now)
        return Failure(
            kind(f"the server failed ({named}): {message}", retryable=True), retry=True, wait_s=wait_s, is_outage=True
        )
    if code == 400 and sent.tools and _NO_TOOLS.search(message):
        sentence = f"{sent.model!r} has no function calling of its own ({named}): {message} Use mode='prompted'."
        return _refusal(ToolsUnsupported(sentence, status=word))
    return _refusal(_invalid(code, named, word, message, details, sent))


def failure_of_exception(error: Exception) -> Failure:
    """A failure from an exception of the HTTP client, before or while an answer was read."""
    import httpx2

    name, said = type(error).__name__, _clean(str(error))
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


def _untrusted(error: BaseException) -> str | None:
    """Why TLS refused the server, if it did. A connection that broke or was slow during TLS is not such a refusal."""
    import ssl

    harmless = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, harmless):
            return _clean(str(cause))
        cause = cause.__cause__ or cause.__context__
    return None


def _refusal(error: ModelError) -> Failure:
    return Failure(error, retry=False, is_answer=True)


def _code(status: int | None, code: Any, word: str) -> int:
    """What counts: the error's own code, then the response's, then what the word stands for."""
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        return code
    return status if status is not None and status >= 400 else _CODES.get(word, 500)


def _rate_limited(code: int, message: str, details: list[JsonObject], headers: Mapping[str, str], now: float) -> Failure:
    quotas = [str(violation.get("quotaId") or "") for item in details for violation in _objects(item.get("violations"))]
    daily = next((quota for quota in quotas if "perday" in quota.lower()), None)
    wait_s = _asked_wait(details, headers, now)
    quota = daily or next(filter(None, quotas), "")
    if daily is not None or code == 402:
        # Waiting for seconds does not help here, even where the server names some.
        what = "the quota for today" if daily else "the credit"
        error = RateLimited(f"{what} is used up: {message}", quota=quota, retry_after=wait_s, retryable=False)
        return _refusal(error)
    asked = f" (asked to wait {wait_s:g} s)" if wait_s is not None else ""
    error = RateLimited(f"too many requests{asked}: {message}", quota=quota, retry_after=wait_s)
    return Failure(error, retry=True, wait_s=wait_s, is_pressure=True)


def _invalid(code: int, named: str, word: str, message: str, details: list[JsonObject], sent: Sent) -> ModelError:
    violations = [violation for item in details for violation in _objects(item.get("fieldViolations"))]
    field = _clean(str(violations[0].get("field") or "")) if violations else ""
    found = _PLACE.search(f"{field} {message}")
    tool = sent.tools[int(found[1])] if found and int(found[1]) < len(sent.tools) else None
    meant = f" (this is the tool {tool!r})" if tool else f" (the model is {sent.model!r})" if code == 404 else ""
    return InvalidRequest(
        f"the server refused the request ({named}): {message}{meant}",
        status=word,
        field=field or (found[0] if found else ""),
        tool=tool,
    )


def _asked_wait(details: list[JsonObject], headers: Mapping[str, str], now: float) -> float | None:
    """The longest wait that the body or the header asks for; nonsense counts as nothing."""
    delays = [item.get("retryDelay") for item in details]
    texts = [delay[:-1] for delay in delays if isinstance(delay, str) and delay.endswith("s")]
    header = headers.get("retry-after", "").strip()
    waits = [float(text) for text in (*texts, header) if _SECONDS.fullmatch(text)]
    if header and (date_s := _timestamp(header)) is not None:
        waits.append(max(0.0, date_s - now))
    return max((wait for wait in waits if wait < _WAIT_MAX_S), default=None)


def _timestamp(date: str) -> float | None:
    try:
        read = email.utils.parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    # Without a zone it means UTC, as all dates of HTTP do.
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def _objects(value: Any) -> list[JsonObject]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _clean(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip()[:2_000]
