"""All exceptions of callgate, as one tree.

    CallgateError
    ├── UsageError                    the program must be changed
    │   └── ToolNotDeclarableError    a tool cannot be declared, or clashes with another one
    ├── ConversationInvalidError      a history that breaks a rule of the wire and may not be repaired
    ├── SessionBusyError              the session is in use
    ├── SessionChangedError           the session is not what it was when it was looked at
    ├── SessionLostError              the session was taken over
    ├── StoreError                    the store cannot be read or written
    │   └── NewerSessionError         a newer version of callgate has written to the session
    ├── AuditError                    the audit log cannot be written or read
    ├── JsonError                     text that is not JSON, or not valid here
    └── ModelError                    the model, or the connection to it, failed
        ├── BlockedError              the prompt was refused
        ├── MalformedAnswerError      the model repeatedly failed to write a valid call
        ├── EmptyAnswerError          the model repeatedly gave an empty answer
        ├── OutputError               the model gave no answer of the requested type
        ├── InvalidRequestError       the server refused the request itself; a retry will not help
        │   └── ToolsUnsupportedError the model, or its server, has no native tool calling
        ├── AuthError                 the key or the permission is missing or wrong
        ├── RateLimitedError          too many requests, or a quota is used up
        ├── ServerUnavailableError    the server has an internal problem
        ├── ConnectionLostError       the connection could not be made, or broke
        ├── RequestTimeoutError       the server took longer than the limits allow
        ├── LimitExceededError        the request or the answer is larger than allowed
        ├── ProtocolError             the answer violates the protocol
        └── ScriptExhaustedError      a ScriptedModel was asked for more answers than it has

    ToolError                         raised by a tool: a sentence for the model (not an error of callgate)

Three classes of errors, never mixed: errors that the model can correct become a `ToolResult` with `is_error`; errors of
the program are raised when a tool is registered or a gate is built; external failures are raised out of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callgate.base_errors import CallgateError, UsageError
from callgate.base_errors import checked_values as checked_values
from callgate.types import Reply

__all__ = [
    "AuditError", "AuthError", "BlockedError", "CallgateError", "ConnectionLostError", "ConversationInvalidError",
    "EmptyAnswerError",
    "InvalidRequestError", "JsonError", "LimitExceededError", "MalformedAnswerError", "ModelError",
    "NewerSessionError", "NotConfirmedError", "OutputError",
    "ProtocolError",
    "RateLimitedError", "RequestTimeoutError", "ScriptExhaustedError", "ServerUnavailableError", "SessionBusyError",
    "SessionChangedError", "SessionLostError", "StoreError",
    "ToolError", "ToolNotDeclarableError", "ToolsUnsupportedError", "UsageError",
]  # fmt: skip


class ToolError(Exception):
    """Raise this in a tool to tell the model, in a sentence, what went wrong and what it can do about it."""


class AuditError(CallgateError):
    """The audit log cannot be written or read."""


class ToolNotDeclarableError(UsageError):
    """A tool cannot be declared to a model, or its name is taken."""


class NotConfirmedError(UsageError):
    """A call that a rule wants confirmed was approved without the text: answer again, with `Answered(confirm=...)`."""


class ConversationInvalidError(CallgateError, ValueError):
    """A history breaks a rule of the wire. `problems` lists every breach with its place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class SessionBusyError(CallgateError):
    """The session is in use; try again later."""


class SessionChangedError(CallgateError):
    """The session is not what it was when it was looked at; read it again."""


class SessionLostError(CallgateError):
    """The session was taken over, because its owner seemed to be gone. Nothing more was written to it."""


class StoreError(CallgateError):
    """The session store cannot be read or written; the message says what to do."""


class NewerSessionError(StoreError):
    """A newer version of callgate has written to the session; a process of that version can continue it."""


class JsonError(CallgateError, ValueError):
    """Text that is not JSON, or JSON that must not be passed on (NaN, Infinity, too deep, too large)."""


class ModelError(CallgateError):
    """The model, or the connection to it, failed.

    `partial` is the text received so far; `retryable` is True if a retry may help.
    """

    def __init__(self, message: str, *, partial: str = "", retryable: bool = False) -> None:
        super().__init__(message)
        self.partial = partial
        self.retryable = retryable


class BlockedError(ModelError):
    """The prompt was refused before the model answered.

    `reason` is the server's reason, `ratings` its raw safety ratings of the prompt.
    """

    def __init__(self, message: str, *, reason: str, ratings: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.ratings = tuple(ratings)


class MalformedAnswerError(ModelError):
    """The model was asked again and still did not produce a valid call. `finish_reason` is the last one."""

    def __init__(self, message: str, *, finish_reason: str) -> None:
        super().__init__(message, retryable=True)
        self.finish_reason = finish_reason


class EmptyAnswerError(ModelError):
    """The model was asked again and still gave an empty answer."""


class OutputError(ModelError):
    """No answer has the requested type.

    `reply` is the result of the run: its text, its calls, its cost. `problems` are those of the last answer.
    """

    def __init__(self, message: str, *, reply: Reply, problems: Sequence[str] = ()) -> None:
        super().__init__(message, partial=reply.text, retryable=True)
        self.reply = reply
        self.problems = tuple(problems)


class InvalidRequestError(ModelError):
    """The server refused the request.

    `status` is its error status, `field` the field that it names, and `tool` the tool that this field belongs to.
    `is_model_unknown` is True if it has no model of that name. `unknown_fields` are the fields that it does not know: the
    place of each, and its name. `gone_file` is the file that the request refers to and the server does not have any more.
    """

    def __init__(
        self,
        message: str,
        *,
        status: str = "",
        field: str = "",
        tool: str | None = None,
        is_model_unknown: bool = False,
        unknown_fields: Sequence[tuple[str, str]] = (),
        gone_file: str = "",
    ) -> None:
        super().__init__(message)
        self.gone_file = gone_file
        self.is_model_unknown = is_model_unknown
        self.unknown_fields = tuple(unknown_fields)
        self.status = status
        self.field = field
        self.tool = tool


class ToolsUnsupportedError(InvalidRequestError):
    """The model, or the server before it, has no tool calling of its own; `mode="prompted"` works without it."""


class AuthError(ModelError):
    """The key or the permission is missing or wrong, or the place is not served. `status` is the server's error status."""

    def __init__(self, message: str, *, status: str = "", partial: str = "", retryable: bool = False) -> None:
        super().__init__(message, partial=partial, retryable=retryable)
        self.status = status


class RateLimitedError(ModelError):
    """Too many requests. `retry_after` is the server's delay in seconds, `quota` the exhausted quota."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, quota: str = "", retryable: bool = True, partial: str = ""
    ) -> None:
        super().__init__(message, retryable=retryable, partial=partial)
        self.retry_after = retry_after
        self.quota = quota


class ServerUnavailableError(ModelError):
    """The server has an internal problem, and retries did not help."""


class ConnectionLostError(ModelError):
    """The connection could not be made, or broke."""


class RequestTimeoutError(ModelError):
    """The server took longer than the limits allow."""


class LimitExceededError(ModelError):
    """The request or the answer is larger than allowed; `is_of_request` is True if the model cannot take the request."""

    def __init__(self, message: str, *, partial: str = "", retryable: bool = False, is_of_request: bool = False) -> None:
        super().__init__(message, partial=partial, retryable=retryable)
        self.is_of_request = is_of_request


class ProtocolError(ModelError):
    """The answer breaks the protocol: no finish reason, not JSON, not an object."""


class ScriptExhaustedError(ModelError):
    """A `ScriptedModel` was asked for more answers than its script has."""
