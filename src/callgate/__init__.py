"""callgate: a call gate between a language model and your tools.

The public names, each loaded when it is first used: importing callgate imports almost nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be run with any Python; pip would have refused
    _SENTENCE = (
        f"callgate needs Python 3.11 or newer, and this is Python {sys.version_info[0]}.{sys.version_info[1]} "
        f"({sys.executable}). Install a newer one, and with it: python3.11 -m pip install 'callgate[cli]'"
    )
    # The command prints one line; importing the package raises an error that can be caught.
    if os.path.basename(sys.argv[0] if sys.argv else "") in ("-m", "callgate", "callgate.exe"):
        raise SystemExit("callgate: " + _SENTENCE)
    raise ImportError(_SENTENCE)

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
    from callgate.models.gemini import GeminiModel
    from callgate.models.openai import OpenAIModel
    from callgate.permission import Policy
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

__version__ = "0.1.0.dev0"

__all__ = [
    "CallRecord",
    "CallgateError",
    "Conversation",
    "Decision",
    "Declaration",
    "Executor",
    "FileTools",
    "FunctionCall",
    "Gate",
    "GeminiModel",
    "Limits",
    "McpServer",
    "Media",
    "ModelError",
    "ModelResponse",
    "OpenAIModel",
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

_PLACES = {
    "callgate.content.collect": ("ModelResponse", "function_calls"),
    "callgate.history.conversation": ("Conversation",),
    "callgate.declaration": ("Declaration", "declare"),
    "callgate.definitions": ("convert", "definition_from", "definitions_from"),
    "callgate.definitions.function": ("tool",),
    "callgate.errors": ("CallgateError", "ModelError", "OutputError", "ToolError", "ToolNotDeclarableError", "UsageError"),
    "callgate.tools.executor": ("Executor",),
    "callgate.files": ("FileTools",),
    "callgate.mcp": ("McpServer", "mcp_servers_from_file"),
    "callgate.models.gemini": ("GeminiModel",),
    "callgate.models.openai": ("OpenAIModel",),
    "callgate.permission": ("Policy",),
    "callgate.content.response": ("to_function_response",),
    "callgate.run.gate": ("Gate",),
    "callgate.schema": ("check_arguments",),
    "callgate.testing.scripted_model": ("ScriptedModel",),
    "callgate.types": (
        "CallRecord", "Decision", "FunctionCall", "Limits", "Media", "Price", "Reply", "ToolContext", "ToolDefinition",
        "ToolResult", "Usage",
    ),
    "callgate.workers.pool": ("WorkerPool",),
}  # fmt: skip
_WHERE = {name: module for module, names in _PLACES.items() for name in names}

# A library logs nothing by default: handlers are the program's choice.
logging.getLogger("callgate").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'callgate' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
