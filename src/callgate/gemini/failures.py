"""Google's errors -> a typed error, and whether a retry helps.

Status codes, headers and error bodies come in; errors of `callgate.errors` go out, each with the seconds that the server
asked for, if it did. This file sends and waits for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from callgate.errors import (
    AuthError,
    InvalidRequestError,
    LimitExceededError,
    ModelError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
    ToolsUnsupportedError,
)
from callgate.strict_json import objects_in
from callgate.types import JsonObject
from callgate.wire.failures import Failure, Sent, clean, refusal, seconds_of, wait_of_headers

__all__ = ["error_in", "failure_of_body"]

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
_BAD_KEY = re.compile(r"API key (?:not valid|expired)", re.IGNORECASE)
_NO_FILE = re.compile(
    r"\bfiles?[ /](?:files/)?([\w-]{1,100}) (?:or it may not exist|is not found|was not found|not found|does not exist)",
    re.IGNORECASE,
)
_NO_CACHE = re.compile(r"\bCachedContent not found", re.IGNORECASE)
_NO_MODEL = re.compile(r"models?/\S+ (?:is|was) not found|model .{0,200}not found", re.IGNORECASE)
_NO_TOOLS = re.compile(
    r"(?:function calling|tool use|tools?) (?:is|are) not (?:enabled|supported)"
    r"|does not support (?:function calling|tools?\b)",
    re.IGNORECASE,
)
_PLACE = re.compile(r"tools\[\d+\][\w.\[\]]*?(?:function_declarations|functionDeclarations)\[(\d+)\][\w.\[\]]*")


def error_in(chunk: Mapping[str, Any]) -> JsonObject | None:
    """The error object of a body or of a chunk of a stream, if it is one. Gateways write `{"error": "sentence"}` too."""
    error: Any = chunk.get("error")
    if isinstance(error, dict):
        return cast("JsonObject", error)
    return {"message": error} if isinstance(error, str) and error else None


def failure_of_body(status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent) -> Failure:
    """A failure from Google's error object; `status` is the HTTP status when the error came as a response of its own.

    `now` is the time of the wall clock, for servers that name a date.
    """
    word = str(error.get("status") or "")
    code = _code(status, error.get("code"), word)
    message = clean(str(error.get("message") or f"HTTP {code}"))
    details = objects_in(error.get("details"))
    named = f"{code} {word}".strip()
    if code in (402, 429):
        return _rate_limited(code, message, details, headers, now)
    reasons = {item.get("reason") for item in details}
    if "LOCATION_NOT_SUPPORTED" in reasons or _NOT_SERVED_HERE.search(message):
        return refusal(AuthError(f"the API is not served in this region ({named}): {message}"))
    if code in (403, 404) and (lost := _NO_FILE.search(message)):
        told = f"the server does not have the file {lost[1]!r} any more, to which the request refers ({named}): {message}"
        return refusal(InvalidRequestError(told, status=str(named), gone_file=f"files/{lost[1]}"))
    if code in (403, 404) and _NO_CACHE.search(message):
        # Google's word for it is that of a key without rights.
        told = f"the server does not have the cached content of the request ({named}): {message}"
        return refusal(InvalidRequestError(told, status=word, field="cached_content"))
    if code in (401, 403) or "API_KEY_INVALID" in reasons or (code == 400 and _BAD_KEY.search(message)):
        denied = AuthError(f"the server refused the key or its rights ({named}): {message}", status=word)
        return Failure(denied, retry=False, is_answer=True, is_unauthorized=code == 401)
    if code == 413 or (code == 400 and _TOO_LARGE.search(message)):
        size = f"{sent.size_bytes:,} bytes"
        told = f"the request of {size} is too large for {sent.model!r} ({named}): {message}"
        return refusal(LimitExceededError(told, is_of_request=True))
    if code == 499:
        return refusal(ServerUnavailableError(f"the server cancelled the request ({named}): {message}", retryable=True))
    if code == 408 or (code >= 500 and code not in _NEVER_AGAIN):
        kind = RequestTimeoutError if code in (408, 504) else ServerUnavailableError
        wait_s = _requested_wait_s(details, headers, now)
        lost = kind(f"the server failed ({named}): {message}", retryable=True)
        # Some inputs get a 500 whenever they are sent.
        return Failure(lost, retry=True, wait_s=wait_s, is_outage=True, is_of_body=code == 500)
    if code == 400 and sent.tools and _NO_TOOLS.search(message):
        sentence = f"{sent.model!r} has no function calling of its own ({named}): {message} Use mode='prompted'."
        return refusal(ToolsUnsupportedError(sentence, status=word))
    violations = [violation for item in details for violation in objects_in(item.get("fieldViolations"))]
    unknown = _unknown_names(str(error.get("message") or ""), violations) if code == 400 else ()
    return refusal(_invalid(code, named, word, message, violations, sent, unknown))


def _unknown_names(message: str, violations: list[JsonObject]) -> tuple[tuple[str, str], ...]:
    from callgate.gemini.unknown_fields import unknown_names  # Few answers need it.

    return unknown_names(message, violations)


def _code(status: int | None, code: Any, word: str) -> int:
    """The code of an error: its own, else the response's, else that of its status word."""
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        return code
    return status if status is not None and status >= 400 else _CODES.get(word, 500)


def _rate_limited(code: int, message: str, details: list[JsonObject], headers: Mapping[str, str], now: float) -> Failure:
    quotas = [str(violation.get("quotaId") or "") for item in details for violation in objects_in(item.get("violations"))]
    daily = next((quota for quota in quotas if "perday" in quota.lower()), None)
    wait_s = _requested_wait_s(details, headers, now)
    quota = daily or next(filter(None, quotas), "")
    if daily is not None or code == 402:
        # Waiting for seconds does not help here, even where the server names some.
        what = "the quota for today" if daily else "the credit"
        error = RateLimitedError(f"{what} is used up: {message}", quota=quota, retry_after=wait_s, retryable=False)
        return refusal(error)
    asked = f" (asked to wait {wait_s:g} s)" if wait_s is not None else ""
    error = RateLimitedError(f"too many requests{asked}: {message}", quota=quota, retry_after=wait_s)
    return Failure(error, retry=True, wait_s=wait_s, is_pressure=True)


def _invalid(
    code: int,
    named: str,
    word: str,
    message: str,
    violations: list[JsonObject],
    sent: Sent,
    unknown: Sequence[tuple[str, str]],
) -> ModelError:
    field = clean(str(violations[0].get("field") or "")) if violations else ""
    found = _PLACE.search(f"{field} {message}")
    tool = sent.tools[int(found[1])] if found and int(found[1]) < len(sent.tools) else None
    meant = (
        f" (this is the tool {tool!r})" if tool else f" (the model is {sent.model!r})" if code == 404 and sent.model else ""
    )
    return InvalidRequestError(
        f"the server refused the request ({named}): {message}{meant}",
        status=word,
        field=field or (found[0] if found else ""),
        tool=tool,
        is_model_unknown=code == 404 and _NO_MODEL.search(message) is not None,
        unknown_fields=unknown,
    )


def _requested_wait_s(details: list[JsonObject], headers: Mapping[str, str], now: float) -> float | None:
    """The longest wait that the body or the header asks for; nonsense counts as nothing."""
    delays = [item.get("retryDelay") for item in details]
    asked = [wait_s for delay in delays if isinstance(delay, str) and (wait_s := seconds_of(delay, "s")) is not None]
    header_s = wait_of_headers(headers, now)
    return max([*asked, *([] if header_s is None else [header_s])], default=None)
