"""Errors of the Messages API -> a typed error, and whether a retry helps.

Status codes, headers and error bodies come in; failures go out, in sentences that say what to do. This file sends and waits
for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from callgate.errors import AuthError, InvalidRequestError
from callgate.types import JsonObject
from callgate.wire.failures import (
    Failure,
    Sent,
    clean,
    failure_of_server,
    is_server_failure,
    no_credit,
    rate_limited,
    refusal,
    too_large,
)

__all__ = ["error_in", "failure_of_body"]

_CODES = {
    "invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504,
    "overloaded_error": 529,
}  # fmt: skip
"""The type of an error inside a stream -> the status that it has as a response of its own."""
_TOO_LONG = re.compile(
    r"prompt is too long|exceeds? the maximum (?:allowed )?(?:number of )?tokens|context (?:limit|window)", re.I
)
_NO_MONEY = re.compile(r"credit balance is too low|billing", re.IGNORECASE)
_PLACE = re.compile(r"tools\.(\d+)")


def error_in(chunk: Mapping[str, Any]) -> JsonObject | None:
    """The error object of a body or of an event of a stream, if it is one."""
    error: Any = chunk.get("error")
    if isinstance(error, dict):
        return cast("JsonObject", error)
    return {"message": str(error or "an error without words")} if error or chunk.get("type") == "error" else None


def failure_of_body(status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent) -> Failure:
    """A failure from an error object; `status` is the HTTP status when the error came as a response of its own."""
    kind = clean(str(error.get("type") or ""))
    code = status if status is not None and status >= 400 else _CODES.get(kind, 500)
    message = clean(str(error.get("message") or f"HTTP {code}"))
    named = f"{code} {kind}".rstrip()
    if code == 402 or (code == 400 and _NO_MONEY.search(message)):
        return no_credit(named, message)
    if code == 429:
        return rate_limited(message, headers, now)
    if code in (401, 403):
        return refusal(AuthError(f"the server refused the key or its rights ({named}): {message}; check ANTHROPIC_API_KEY"))
    if code == 413 or _TOO_LONG.search(message):
        return too_large(named, message, sent)
    if is_server_failure(code):
        return failure_of_server(code, named, message, headers, now)
    return refusal(_invalid(code, named, message, sent))


def _invalid(code: int, named: str, message: str, sent: Sent) -> InvalidRequestError:
    if code == 404 and (message.startswith("model:") or sent.model in message):
        return InvalidRequestError(
            f"there is no model {sent.model!r} at Anthropic ({named}): {message}; list the models with GET /v1/models, or "
            "check that this key may use it",
            status=named,
            is_model_unknown=True,
        )
    if code == 404:
        hint = "check the base URL, which ends before /v1"
        return InvalidRequestError(f"the server has no messages there ({named}): {message}; {hint}", status=named)
    place = _PLACE.search(message)
    tool = sent.tools[int(place[1])] if place and int(place[1]) < len(sent.tools) else None
    meant = f" (this is the tool {tool!r})" if tool else ""
    field = message.partition(":")[0] if re.match(r"[a-z_.\d]+:", message) else ""
    return InvalidRequestError(
        f"the server refused the request ({named}): {message}{meant}", status=named, field=field, tool=tool
    )  # fmt: skip
