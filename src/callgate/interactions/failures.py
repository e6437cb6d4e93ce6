"""Errors of the Interactions API -> a typed error, and whether a retry helps.

Error objects come in, with a word as their code or, from the gateway before the API, in Google's older form; failures go
out. This file sends and waits for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from callgate.errors import AuthError, BlockedError, InvalidRequestError, ModelError, RateLimitedError
from callgate.gemini.failures import failure_of_body as failure_of_google
from callgate.types import JsonObject
from callgate.wire.failures import Failure, Sent, clean, refusal, wait_of_headers

__all__ = [
    "ending_of",
    "error_in",
    "error_of",
    "failure_of_body",
    "is_lost_state",
    "is_signature_refused",
    "unknown_step",
]

# Code -> the status of HTTP and the word by which Google's other errors are known.
_CODES = {
    "invalid_request": (400, "INVALID_ARGUMENT"), "failed_precondition": (400, "FAILED_PRECONDITION"),
    "parameter_unknown": (400, "INVALID_ARGUMENT"), "out_of_range": (400, "OUT_OF_RANGE"),
    "authentication": (401, "UNAUTHENTICATED"), "payment_required": (402, "RESOURCE_EXHAUSTED"),
    "permission_denied": (403, "PERMISSION_DENIED"), "not_found": (404, "NOT_FOUND"),
    "model_not_found": (404, "NOT_FOUND"), "already_exists": (409, "ALREADY_EXISTS"), "aborted": (409, "ABORTED"),
    "rate_limit_exceeded": (429, "RESOURCE_EXHAUSTED"), "quota_exceeded": (429, "RESOURCE_EXHAUSTED"),
    "too_many_requests": (429, "RESOURCE_EXHAUSTED"), "cancelled": (499, "CANCELLED"), "api_error": (500, "INTERNAL"),
    "unimplemented": (501, "UNIMPLEMENTED"), "not_implemented": (501, "UNIMPLEMENTED"),
    "service_unavailable": (503, "UNAVAILABLE"), "deadline_exceeded": (504, "DEADLINE_EXCEEDED"),
    "gateway_timeout": (504, "DEADLINE_EXCEEDED"),
}  # fmt: skip
_CONTENT = frozenset({
    "safety", "recitation", "language", "prohibited_content", "spii", "blocklist", "content_blocked", "image_safety",
    "image_prohibited_content", "image_recitation", "image_other",
})  # fmt: skip
_GENERATION = {
    "malformed_function_call": "MALFORMED_FUNCTION_CALL", "malformed_tool_call": "MALFORMED_FUNCTION_CALL",
    "unexpected_tool_call": "UNEXPECTED_TOOL_CALL", "too_many_tool_calls": "TOO_MANY_TOOL_CALLS", "no_image": "NO_IMAGE",
}  # fmt: skip
_BLOCKED = re.compile(r"request (?:was )?blocked due to", re.IGNORECASE)
_SIGNATURE = re.compile(r"thought[ _]signature", re.IGNORECASE)
_STEP = re.compile(r"'(?P<kind>[^']{1,200})' is not supported for 'type' at 'input\[\d+\]'")
_DAILY = re.compile(r"per ?day|daily", re.IGNORECASE)
_NO_PAYLOAD: JsonObject = {"code": "service_unavailable", "message": "the server reports an error and does not say which"}


def error_in(chunk: Mapping[str, Any]) -> JsonObject | None:
    """The error object of a body or an event; None for one that ends an answer, which is the answer's reader to say."""
    error: Any = chunk.get("error")
    is_event = chunk.get("event_type") == "error"
    if isinstance(error, str) and error:
        error = {"message": error}
    if not isinstance(error, dict):
        return _NO_PAYLOAD if is_event else None
    if not is_event and "event_type" in chunk:
        return None
    found = cast("JsonObject", error)
    return None if ending_of(found) is not None else found or _NO_PAYLOAD


def ending_of(error: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The finish reason that an error stands for, and whether it is one of content; None if it is a failure."""
    code, message = str(error.get("code") or "").lower(), str(error.get("message") or "")
    if code in _GENERATION:
        return _GENERATION[code], False
    if code in _CONTENT:
        return code.upper(), True
    return ("PROHIBITED_CONTENT", True) if _BLOCKED.search(message) else None


def failure_of_body(status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent) -> Failure:
    """A failure from an error object; `status` is the HTTP status when the error came as a response of its own.

    `now` is the time of the wall clock, for servers that name a date.
    """
    word = error.get("code")
    message = clean(str(error.get("message") or ""))
    if (ending := ending_of(error)) is not None and ending[1]:
        return refusal(BlockedError(f"the prompt was blocked ({ending[0]}): {message}", reason=ending[0]))
    if not isinstance(word, str):
        return failure_of_google(status, error, headers, now=now, sent=sent)
    code, google = _CODES.get(word.lower(), (status or 500, word.upper()))
    if word.lower() == "quota_exceeded" and _DAILY.search(message):
        wait_s = wait_of_headers(headers, now)
        used_up = RateLimitedError(f"the quota for today is used up: {message}", retry_after=wait_s, retryable=False)
        return refusal(used_up)
    failure = failure_of_google(code, {"code": code, "status": google, "message": message}, headers, now=now, sent=sent)
    if code == 409 and google == "ABORTED":
        aborted = ModelError(f"the server aborted the request (409 {word}): {message}", retryable=True)
        return Failure(aborted, retry=True)
    return failure


def error_of(error: JsonObject, sent: Sent) -> ModelError:
    """The exception for an error inside an answer."""
    return failure_of_body(None, error, {}, now=0.0, sent=sent).error


def is_lost_state(error: ModelError) -> bool:
    """True if a request that builds on a stored interaction may have been refused for that, so that the whole history helps.

    The server has many words for it, and none that is certain: whatever names neither the model nor a tool may be meant.
    """
    if isinstance(error, InvalidRequestError):
        return not error.is_model_unknown and error.tool is None
    return isinstance(error, AuthError) and error.status == "PERMISSION_DENIED"


def unknown_step(error: ModelError) -> str | None:
    """The type of a step of the conversation that the server does not know, if it refuses that."""
    found = _STEP.search(str(error)) if isinstance(error, InvalidRequestError) else None
    return None if found is None else found["kind"]


def is_signature_refused(error: ModelError) -> bool:
    """True if the server does not take a signature back."""
    return isinstance(error, InvalidRequestError) and bool(_SIGNATURE.search(str(error)))
