"""Errors as HTTP responses: `{error, message, code}` with the right status; clients of other APIs get their own shape.

Errors of callgate come in, statuses and bodies go out; a sentence never holds a path, a key or a traceback of ours.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from callgate import errors, strict_json
from callgate.config.known_secrets import redact_known
from callgate.errors import CallgateError
from callgate.types import JsonObject

__all__ = [
    "REQUEST_ID",
    "STATUSES",
    "HttpError",
    "Problem",
    "code_of",
    "error_body",
    "error_response",
    "is_anthropics",
    "is_googles",
    "json_response",
    "problem_of",
    "response_to",
    "word_of",
]  # fmt: skip

logger = logging.getLogger("callgate.server")

BUSY_RETRY_S = 1
PATH_CHARS = 200
REQUEST_ID = "callgate.request_id"
"""In a scope: the id of the request."""

STATUSES: dict[type[Exception], tuple[int, str]] = {
    errors.JsonError: (400, "invalid_json"),
    errors.UsageError: (422, "invalid_request"),
    errors.NotConfirmedError: (422, "not_confirmed"),
    errors.ConversationInvalidError: (422, "invalid_history"),
    errors.SessionBusyError: (409, "session_busy"),
    errors.SessionChangedError: (409, "session_changed"),
    errors.SessionLostError: (409, "session_lost"),
    errors.NewerSessionError: (503, "session_newer"),
    errors.StoreError: (503, "store_unavailable"),
    errors.AuditError: (503, "audit_unavailable"),
    errors.BlockedError: (422, "prompt_blocked"),
    errors.InvalidRequestError: (400, "model_refused"),
    errors.AuthError: (502, "model_auth"),
    errors.RateLimitedError: (429, "model_rate_limited"),
    errors.ServerUnavailableError: (502, "model_unavailable"),
    errors.ConnectionLostError: (502, "model_unreachable"),
    errors.RequestTimeoutError: (504, "model_timeout"),
    errors.ModelError: (502, "model_error"),
    CallgateError: (500, "processing_error"),
}
"""Kind of error -> status and short code; the nearest kind counts."""


class HttpError(CallgateError):
    """A request that is answered with a status of its own."""

    def __init__(
        self,
        code: int,
        error: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.error = error
        self.headers = dict(headers or {})
        self.param = param
        """The field of the request that it is about."""


class Problem(dict[str, str | int]):
    """The body of an error: `error`, `message`, `code`."""

    headers: Mapping[str, str]
    param: str | None
    """The field of the request that it is about, where that is known."""

    def __init__(
        self,
        code: int,
        error: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(error=error, message=redact_known(message), code=code)
        self.code = code
        self.headers = dict(headers or {})
        self.param = param


def problem_of(error: BaseException) -> Problem:
    """The error as a client sees it. Unexpected errors are described in the log only."""
    if isinstance(error, HttpError):
        return Problem(error.code, error.error, str(error), headers=error.headers, param=error.param)
    if isinstance(error, errors.InvalidRequestError) and error.is_model_unknown:
        return Problem(404, "model_not_found", str(error))
    if isinstance(error, errors.LimitExceededError) and error.is_of_request:
        return Problem(400, "context_length_exceeded", str(error))
    for kind in type(error).__mro__:
        if kind in STATUSES:
            code, word = STATUSES[kind]
            return Problem(code, word, str(error), headers=_retry_after(error, code))
    return Problem(500, "internal_error", "Something went wrong in the service; its log says what.")


def code_of(name: str) -> str:
    """The code of an error whose class has this name; the nearest kind counts."""
    kind = getattr(errors, name, None)
    mro = kind.__mro__ if isinstance(kind, type) else ()
    return next((STATUSES[one][1] for one in mro if one in STATUSES), "model_error")


def _retry_after(error: BaseException, code: int) -> dict[str, str]:
    if isinstance(error, errors.RateLimitedError):
        return {"Retry-After": str(max(1, round(error.retry_after or BUSY_RETRY_S)))}
    is_passing = isinstance(error, errors.ModelError) and error.retryable and code >= 500
    return {"Retry-After": str(BUSY_RETRY_S)} if is_passing or code in (409, 503) else {}


class _JsonResponse(Response):
    """A response whose headers are known, so that they need not be looked through for those that it has to have."""

    media_type = "application/json"

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        self.raw_headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self.raw_headers += ((b"content-length", b"%d" % len(body)), (b"content-type", b"application/json"))


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON; `headers` are others than its length and type."""
    return encoded_response(strict_json.dump(value), status, headers)


def encoded_response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value that was encoded as JSON already; `headers` are others than its length and type."""
    return _JsonResponse(body, status, headers or {})


# In the words of other APIs, for their clients ----------------------------------------------------------------------------

_INTERACTIONS = re.compile(r"/v1(?:beta)?/interactions(?:/|$)")
_GOOGLE_PLACES = ("/v1beta/", "/v1alpha/", "/upload/v1")
"""Beginnings of paths that only clients of Gemini ask for."""
_GOOGLE_PATH = re.compile(r"/models/.+:[A-Za-z]+\Z", re.DOTALL)
_GOOGLE_WORDS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 408: "DEADLINE_EXCEEDED",
    409: "ABORTED", 410: "NOT_FOUND", 413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED",
    500: "INTERNAL", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_ANTHROPIC_WORDS = {
    401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip
_ANTHROPIC_PLACE = re.compile(r"/v1/messages(?:/|$)")
_OPENAI_WORDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def _google(problem: Problem, scope: Scope) -> JsonObject:
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": problem["error"], "domain": "callgate"}
    status = _GOOGLE_WORDS.get(problem.code, "INVALID_ARGUMENT" if problem.code < 500 else "UNKNOWN")
    return {"error": {"code": problem.code, "message": problem["message"], "status": status, "details": [reason]}}


def _interactions(problem: Problem, scope: Scope) -> JsonObject:
    return {"error": {"code": problem["error"], "message": problem["message"]}}


def _openai(problem: Problem, scope: Scope) -> JsonObject:
    kind = _OPENAI_WORDS.get(problem.code, "invalid_request_error" if problem.code < 500 else "server_error")
    return {"error": {"message": problem["message"], "type": kind, "param": problem.param, "code": problem["error"]}}


def _anthropic(problem: Problem, scope: Scope) -> JsonObject:
    kind = _ANTHROPIC_WORDS.get(problem.code, "invalid_request_error" if problem.code < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": problem["message"]}, "request_id": scope.get(REQUEST_ID)}


def is_anthropics(scope: Scope) -> bool:
    """True if a request comes from a client of Anthropic."""
    return _ANTHROPIC_PLACE.match(str(scope["path"])) is not None


def is_googles(scope: Scope) -> bool:
    """True if a request comes from a client of Gemini. It shares `/v1` with clients of OpenAI, but says who it is."""
    path = str(scope["path"])
    if path.startswith(_GOOGLE_PLACES):
        return True
    named = any(name.startswith(b"x-goog-") for name, _ in scope["headers"])
    # What is read has no verb: the name of a model may have a colon.
    is_verb = scope["method"] not in ("GET", "HEAD") and _GOOGLE_PATH.search(path) is not None
    return path.startswith("/v1/") and (named or is_verb)


def _shape_of(scope: Scope) -> Callable[[Problem, Scope], JsonObject] | None:
    if _INTERACTIONS.match(str(scope["path"])):
        return _interactions
    if is_anthropics(scope):
        return _anthropic
    if is_googles(scope):
        return _google
    return _openai if str(scope["path"]).startswith("/v1/") else None


def error_body(problem: Problem, scope: Scope) -> tuple[int, JsonObject]:
    """Status and body of the response that reports a problem, in the shape of the client's API."""
    shape = _shape_of(scope)
    if shape is None:
        return problem.code, dict(problem)
    code = 400 if problem.code == 422 else problem.code  # What cannot be used is a bad request to both of them.
    return code, shape(Problem(code, str(problem["error"]), str(problem["message"]), param=problem.param), scope)


def error_response(problem: Problem, scope: Scope) -> Response:
    """The response that reports a problem."""
    code, body = error_body(problem, scope)
    return json_response(body, code, problem.headers)


def response_to(error: Exception, scope: Scope) -> Response | None:
    """The answer to an error that callgate or the router raised; None for one that nobody foresaw."""
    if isinstance(error, HTTPException):
        return error_response(_routing_problem(error, scope), scope)
    if not isinstance(error, CallgateError):
        return None
    problem = problem_of(error)
    if problem.code >= 500:
        logger.warning("%s %s: %s", scope["method"], _shown(scope["path"]), error)
    return error_response(problem, scope)


def word_of(error: Exception) -> str:
    """The short code of an error."""
    if isinstance(error, HTTPException):
        return HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    return str(problem_of(error)["error"])


def _shown(path: str) -> str:
    path = path if len(path) <= PATH_CHARS else f"{path[:PATH_CHARS]}..."
    return path if path.isprintable() else repr(path)


def _routing_problem(error: HTTPException, scope: Scope) -> Problem:
    """An error of the router: no such path, or no such method."""
    code, path = error.status_code, _shown(scope["path"])
    if code == 405 and is_googles(scope) and _GOOGLE_PATH.search(str(scope["path"])):
        code, error = 404, HTTPException(404)  # A verb after the name of a model that there is not.
    phrase = HTTPStatus(code).phrase
    what = {
        404: f"There is nothing at {path}; /docs lists what there is.",
        405: f"{path} does not answer {scope['method']} requests; /docs lists what there is.",
    }.get(code, error.detail)
    return Problem(code, phrase.lower().replace(" ", "_"), what, headers=error.headers)


def problem_schema() -> JsonObject:
    """The JSON Schema of every error."""
    return {
        "type": "object",
        "required": ["error", "message", "code"],
        "properties": {"error": {"type": "string"}, "message": {"type": "string"}, "code": {"type": "integer"}},
    }
