"""Errors of chat completions servers -> a typed error, and whether a retry helps.

Status codes, headers and error bodies come in, in OpenAI's form and in those of its imitators; failures go out, in sentences
that say what to do. This file sends and waits for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from callgate.errors import (
    AuthError,
    BlockedError,
    InvalidRequestError,
    ToolsUnsupportedError,
)
from callgate.openai.quirks import Quirks, tools_refused
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

_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window)|exceed_context_size|maximum context|too many tokens|prompt is too long"
    r"|input (?:is )?too long",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(r"insufficient_quota|billing_(?:hard_limit|not_active)|exceeded your current quota", re.IGNORECASE)
_NOT_SERVED_HERE = re.compile(r"unsupported_country_region|country, region, or territory not supported", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model_not_found|model .{0,200}(?:does not exist|not found|not exist)|no (?:such )?model", re.IGNORECASE
)
# Servers that answer with 500 to what they will never do, however often they are asked.
_NEVER = re.compile(
    r"(?:image|audio|video) input is not supported|cannot use tools with stream|unsupported param", re.IGNORECASE
)
_FUNCTION = re.compile(r"function ['\"]([A-Za-z0-9_-]{1,64})['\"]")
_PLACE = re.compile(r"tools(?:\[|\.)(\d+)")


def error_in(chunk: Mapping[str, Any]) -> JsonObject | None:
    """The error object of a body or of a chunk of a stream, if it is one.

    OpenAI's is `{"error": {...}}`; Ollama and LM Studio also write `{"error": "sentence"}`, vLLM once wrote
    `{"object": "error", "message": ...}`, and web frameworks write `{"detail": ...}`.
    """
    error: Any = chunk.get("error")
    if isinstance(error, dict):
        return cast("JsonObject", error)
    if error:
        return {"message": str(error)}
    if "choices" in chunk:
        return None
    if chunk.get("object") == "error":
        return dict(chunk)
    detail = chunk.get("detail")
    return {"message": detail if isinstance(detail, str) else str(detail)} if detail else None


def failure_of_body(
    status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent, quirks: Quirks
) -> Failure:
    """A failure from an error object; `status` is the HTTP status when the error came as a response of its own."""
    code = _code(status, error)
    words = [clean(str(error[key])) for key in ("type", "code") if isinstance(error.get(key), str) and error[key]]
    message = clean(str(error.get("message") or f"HTTP {code}"))
    named = " ".join([str(code), *words])
    text = f"{' '.join(words)} {message}"
    if sent.tools and tools_refused(message):
        return refusal(ToolsUnsupportedError(_no_tools(sent, quirks, named, message), status=named))
    if "content_filter" in words:
        return refusal(BlockedError(f"the prompt was blocked ({named}): {message}", reason="content_filter"))
    if code == 402 or _NO_MONEY.search(text):
        return no_credit(named, message)
    if code == 429:
        return rate_limited(message, headers, now)
    if _NOT_SERVED_HERE.search(text):
        return refusal(AuthError(f"the API is not served in this region ({named}): {message}"))
    if code in (401, 403):
        hint = "check OPENAI_API_KEY" if quirks.server == "openai" else "pass the key of this server as api_key="
        return refusal(AuthError(f"the server refused the key or its rights ({named}): {message}; {hint}"))
    if code == 413 or _TOO_LONG.search(text):
        return too_large(named, message, sent)
    if is_server_failure(code) and not _NEVER.search(message):
        return failure_of_server(code, named, message, headers, now)
    return refusal(_invalid(code, named, message, text, error, sent, quirks))


def _code(status: int | None, error: JsonObject) -> int:
    """The response's status; inside a stream the error's own, or what its type stands for."""
    if status is not None and status >= 400:
        return status
    code = error.get("code")
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code)
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        return code
    kind = f"{error.get('type')} {error.get('code')}"
    return next((known for word, known in _TYPES.items() if word in kind), 500)


_TYPES = {
    "rate_limit": 429, "insufficient_quota": 429, "invalid_request": 400, "BadRequest": 400, "context_length": 400,
    "authentication": 401, "invalid_api_key": 401, "permission": 403, "not_found": 404,
}  # fmt: skip


def _no_tools(sent: Sent, quirks: Quirks, named: str, message: str) -> str:
    return (
        f"{sent.model!r} cannot be given tools by {quirks.title} ({named}): {message}; "
        "use mode='prompted', or a model that has tools"
    )


def _invalid(
    code: int, named: str, message: str, text: str, error: JsonObject, sent: Sent, quirks: Quirks
) -> InvalidRequestError:
    field = clean(str(error.get("param") or ""))
    if _NO_MODEL.search(text):
        hint = quirks.model_hint.format(model=sent.model)
        return InvalidRequestError(
            f"there is no model {sent.model!r} at {quirks.title} ({named}): {message}; {hint}",
            status=named,
            is_model_unknown=True,
        )
    if code == 404:
        hint = "check the base URL, which for most servers ends with /v1"
        return InvalidRequestError(f"the server has no chat completions there ({named}): {message}; {hint}", status=named)
    tool = _tool(f"{field} {message}", sent)
    meant = f" (this is the tool {tool!r})" if tool else ""
    return InvalidRequestError(
        f"the server refused the request ({named}): {message}{meant}", status=named, field=field, tool=tool
    )  # fmt: skip


def _tool(text: str, sent: Sent) -> str | None:
    """The own name of the tool that an error names, by its declared name or by its place."""
    found = _FUNCTION.search(text)
    if found and found[1] in sent.declared:
        return sent.declared[found[1]]
    place = _PLACE.search(text)
    return sent.tools[int(place[1])] if place and int(place[1]) < len(sent.tools) else None
