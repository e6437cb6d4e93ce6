"""What went wrong -> a typed error, and whether waiting helps.

Status codes, headers, error bodies and exceptions of the network come in; errors of `callgate.errors` go out, each with the
seconds that the server asked for, if it did. This file sends and waits for nothing.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
)
from callgate.types import JsonObject

__all__ = ["Failure", "error_in", "failure_of_body", "failure_of_exception"]

# google.rpc status -> HTTP, for errors inside a stream that carry no code.
_CODES = {
    "INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "OUT_OF_RANGE": 400, "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403, "NOT_FOUND": 404, "ABORTED": 409, "ALREADY_EXISTS": 409, "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499, "INTERNAL": 500, "UNKNOWN": 500, "DATA_LOSS": 500, "UNIMPLEMENTED": 501, "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}  # fmt: skip
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_TOO_LARGE = re.compile(r"too large|payload size|exceeds the (maximum|limit)|token count", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")
_PLACE = re.compile(r"(?:at |in )?'?(tools\[\d+\][\w.\[\]]*function_declarations\[(\d+)\][\w.\[\]]*)'?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt."""

    error: ModelError
    retry: bool
    """Whether another attempt may succeed."""
    wait_s: float | None = None
    """How long the server asked to be left alone."""
    is_pressure: bool = False
    """The server is asking everybody to slow down."""
    is_outage: bool = False
    """The server itself is in trouble."""
    is_free: bool = False
    """The connection was stale: the next attempt costs nothing."""


def error_in(chunk: Mapping[str, Any]) -> JsonObject | None:
    """The error object of a body or of a chunk of a stream, if it is one."""
    error: Any = chunk.get("error")
    return cast("JsonObject", error) if isinstance(error, dict) else None


def failure_of_body(
    status: int | None,
    error: JsonObject,
    headers: Mapping[str, str],
    *,
    now: float,
    tools: list[str],
    mask: Callable[[str], str],
) -> Failure:
    """A failure from Google's error object; `status` is the HTTP status when the error came as a response of its own."""
    word = str(error.get("status") or "")
    code = error.get("code")
    code = (
        code
        if isinstance(code, int) and 400 <= code < 600
        else (status if status and status >= 400 else _CODES.get(word, 500))
    )
    message = mask(_clean(str(error.get("message") or f"HTTP {code}")))
    details = _objects(error.get("details"))
    if code == 429:
        return _rate_limited(message, details, headers, now)
    if code in (401, 403) or any(item.get("reason") == "API_KEY_INVALID" for item in details):
        return Failure(AuthError(f"the server refused the key or its rights ({word or code}): {message}"), retry=False)
    if code == 413 or (code == 400 and _TOO_LARGE.search(message)):
        return Failure(LimitExceeded(f"the request is too large for the model: {message}"), retry=False)
    if code in _RETRIED:
        wait_s = _asked_wait(details, headers, now)
        kind = RequestTimeout if code in (408, 504) else ServerUnavailable
        error_of = kind(f"the server failed with {code} {word}: {message}".replace("  ", " "), retryable=True)
        return Failure(error_of, retry=True, wait_s=wait_s, is_outage=True)
    return Failure(_invalid(code, word, message, details, tools), retry=False)


def failure_of_exception(error: BaseException) -> Failure:
    """A failure from an exception of the HTTP client, before or while an answer was read."""
    import ssl

    import httpx2

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return Failure(ConnectionLost(f"no trusted connection could be made: {_clean(str(cause))}"), retry=False)
        cause = cause.__cause__ or cause.__context__
    name, said = type(error).__name__, _clean(str(error))
    if isinstance(error, (TimeoutError, httpx2.TimeoutException)):
        return Failure(
            RequestTimeout(f"the server took too long ({said or name})", retryable=True), retry=True, is_outage=True
        )
    if isinstance(error, httpx2.ConnectError):
        return Failure(
            ConnectionLost(f"no connection to the server: {said or name}", retryable=True), retry=True, is_outage=True
        )
    if isinstance(error, httpx2.RemoteProtocolError) and "Server disconnected" not in said:
        return Failure(ProtocolError(f"the server broke the protocol: {said}", retryable=True), retry=True)
    if isinstance(error, httpx2.DecodingError):
        return Failure(ProtocolError(f"the answer cannot be decoded: {said}"), retry=False)
    if isinstance(error, httpx2.TransportError):
        return Failure(ConnectionLost(f"the connection broke: {said or name}", retryable=True), retry=True, is_free=True)
    if isinstance(error, ModelError):
        return Failure(error, retry=error.retryable)
    raise error


def _rate_limited(message: str, details: list[JsonObject], headers: Mapping[str, str], now: float) -> Failure:
    quotas = [str(violation.get("quotaId") or "") for item in details for violation in _objects(item.get("violations"))]
    daily = next((quota for quota in quotas if "perday" in quota.lower()), None)
    wait_s = _asked_wait(details, headers, now)
    if daily is not None:
        error = RateLimited(f"the quota for today is used up: {message}", quota=daily, retry_after=wait_s, retryable=False)
        return Failure(error, retry=False)
    quota = next((quota for quota in quotas if quota), "")
    asked = f" (asked to wait {wait_s:g} s)" if wait_s is not None else ""
    error = RateLimited(f"too many requests{asked}: {message}", quota=quota, retry_after=wait_s)
    return Failure(error, retry=True, wait_s=wait_s, is_pressure=True)


def _invalid(code: int, word: str, message: str, details: list[JsonObject], tools: list[str]) -> ModelError:
    violations = [violation for item in details for violation in _objects(item.get("fieldViolations"))]
    place = str(violations[0].get("field") or "") if violations else ""
    found = _PLACE.search(f"{place} {message}")
    tool = tools[int(found[2])] if found and int(found[2]) < len(tools) else None
    meant = f" (this is the tool {tool!r})" if tool else ""
    return InvalidRequest(
        f"the server refused the request ({code} {word}): {message}{meant}".replace(" )", ")"),
        status=word,
        field=place or (found[1] if found else ""),
        tool=tool,
    )


def _asked_wait(details: list[JsonObject], headers: Mapping[str, str], now: float) -> float | None:
    """The longest wait that the body or the header asks for; nonsense counts as nothing."""
    waits: list[float] = []
    for item in details:
        found = _DURATION.fullmatch(item["retryDelay"]) if isinstance(item.get("retryDelay"), str) else None
        if found:
            waits.append(float(found[1]))
    header = headers.get("retry-after", "").strip()
    if header.isdigit():
        waits.append(float(header))
    elif header:
        date = email.utils.parsedate_to_datetime(header) if _is_date(header) else None
        waits += [max(0.0, date.timestamp() - now)] if date else []
    return max((wait for wait in waits if wait < 1e8), default=None)


def _is_date(text: str) -> bool:
    return email.utils.parsedate_tz(text) is not None


def _objects(value: Any) -> list[JsonObject]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _clean(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip()[:2_000]
