"""callgate: a call gate between a language model and your tools.

The public names, each loaded when it is first used: importing callgate imports almost nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be run with any Python; pip would have refused
    _SENTENCE = (
        f"callgate needs Python 3.11 or newer, and this is Python {sys.version_info[0]}.{sys.version_info[1]} "
        f"({sys.executable}). Install a newer one, and with it: python3.11 -m pip install 'callgate[cli]'"
    )
    # The command prints one line; importing the package raises an error that can be caught.
    if os.path.basename(sys.argv[0] if sys.argv else "") in ("-m", "callgate", "callgate.exe"):
        raise SystemExit("callgate: " + _SENTENCE)
    raise ImportError(_SENTENCE)

from callgate.lazy_names import lazy_names

if TYPE_CHECKING:
    from callgate.content.collect import ModelResponse, function_calls
    from callgate.content.response import to_function_response
    from callgate.declaration import Declaration, declare
    from callgate.definitions import convert, definition_from, definitions_from
    from callgate.definitions.function import tool
    from callgate.errors import CallgateError, ModelError, OutputError, ToolError, ToolNotDeclarableError, UsageError
    from callgate.files import FileTools
    from callgate.history.conversation import Conversation
    from callgate.mcp import McpServer, mcp_servers_from_file
    from callgate.models.anthropic import AnthropicModel
    from callgate.models.gemini import GeminiModel
    from callgate.models.interactions import InteractionsModel
    from callgate.models.openai import OpenAIModel
    from callgate.models.openai_responses import OpenAIResponsesModel
    from callgate.permission import Policy
    from callgate.request import ContextCache
    from callgate.run.gate import Gate
    from callgate.schema import check_arguments
    from callgate.testing.scripted_model import ScriptedModel
    from callgate.tools.executor import Executor
    from callgate.types import (
        CallRecord,
        Decision,
        FunctionCall,
        Limits,
        Media,
        Price,
        Reply,
        ToolContext,
        ToolDefinition,
        ToolResult,
        Usage,
    )
    from callgate.workers.pool import WorkerPool

__version__ = "0.1.0"

__all__ = [
    "AnthropicModel",
    "CallRecord",
    "CallgateError",
    "ContextCache",
    "Conversation",
    "Decision",
    "Declaration",
    "Executor",
    "FileTools",
    "FunctionCall",
    "Gate",
    "GeminiModel",
    "InteractionsModel",
    "Limits",
    "McpServer",
    "Media",
    "ModelError",
    "ModelResponse",
    "OpenAIModel",
    "OpenAIResponsesModel",
    "OutputError",
    "Policy",
    "Price",
    "Reply",
    "ScriptedModel",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolNotDeclarableError",
    "ToolResult",
    "Usage",
    "UsageError",
    "WorkerPool",
    "check_arguments",
    "convert",
    "declare",
    "definition_from",
    "definitions_from",
    "function_calls",
    "mcp_servers_from_file",
    "to_function_response",
    "tool",
]  # fmt: skip

__getattr__ = lazy_names(__name__, {
    "content.collect": ("ModelResponse", "function_calls"),
    "history.conversation": ("Conversation",),
    "declaration": ("Declaration", "declare"),
    "definitions": ("convert", "definition_from", "definitions_from"),
    "definitions.function": ("tool",),
    "errors": ("CallgateError", "ModelError", "OutputError", "ToolError", "ToolNotDeclarableError", "UsageError"),
    "tools.executor": ("Executor",),
    "files": ("FileTools",),
    "mcp": ("McpServer", "mcp_servers_from_file"),
    "models.anthropic": ("AnthropicModel",),
    "models.gemini": ("GeminiModel",),
    "models.interactions": ("InteractionsModel",),
    "models.openai": ("OpenAIModel",),
    "models.openai_responses": ("OpenAIResponsesModel",),
    "permission": ("Policy",),
    "content.response": ("to_function_response",),
    "request": ("ContextCache",),
    "run.gate": ("Gate",),
    "schema": ("check_arguments",),
    "testing.scripted_model": ("ScriptedModel",),
    "types": (
        "CallRecord", "Decision", "FunctionCall", "Limits", "Media", "Price", "Reply", "ToolContext", "ToolDefinition",
        "ToolResult", "Usage",
    ),
    "workers.pool": ("WorkerPool",),
})  # fmt: skip

LOGGERS = (
    "access", "calls", "cli", "definitions", "embedded", "files", "foreign", "gemini", "hooks", "mcp",
    "mcp.servers", "outages", "permission", "prompted", "run", "server", "store", "sync", "telemetry", "tools",
    "tools.executor", "wire", "workers", "workers.output",
)  # fmt: skip
"""The loggers below `callgate`. Filters of a logger see its own records alone, so that each of them has one."""


LOGGED_CHARS_MAX = 20_000
"""Maximum characters of a record that are logged: the search for secrets in all of a large answer would take seconds."""
SECRET_CHARS_MAX = 4_000
"""Characters past its end that are searched for secrets too, so that none is cut in two."""


def _cut(text: str, count: int) -> str:
    return text if count <= LOGGED_CHARS_MAX else f"{text[:LOGGED_CHARS_MAX]}... ({count} characters)"


def _hide_secrets(record: logging.LogRecord) -> bool:
    """Take known secrets out of a log record, for all handlers."""
    try:
        said = record.getMessage()
    except (TypeError, ValueError, KeyError):
        return True  # The handler reports the faulty format.
    try:
        from callgate.config.known_secrets import redact_known

        clean = _cut(redact_known(said[: LOGGED_CHARS_MAX + SECRET_CHARS_MAX]), len(said))
        if clean != said:
            record.msg, record.args = clean, None
        if record.exc_info and not record.exc_text:
            trace = logging.Formatter().formatException(record.exc_info)
            clean = _cut(redact_known(trace[: LOGGED_CHARS_MAX + SECRET_CHARS_MAX]), len(trace))
            if clean != trace:
                record.exc_text, record.exc_info = clean, None
    except Exception as error:  # Who logs must not fail by it, and what was not searched is not shown.
        record.msg, record.args = "A log record could not be searched for secrets: %s", (type(error).__name__,)
        record.exc_text, record.exc_info = None, None
    return True


# A library logs nothing by default: handlers are the program's choice.
logging.getLogger("callgate").addHandler(logging.NullHandler())
for _name in ("callgate", *(f"callgate.{name}" for name in LOGGERS)):
    logging.getLogger(_name).addFilter(_hide_secrets)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
