"""The fields of a content that Google documents, and the check of what a program passes as a part. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, cast

from callgate.errors import UsageError

__all__ = ["MESSAGES", "camel", "check_part"]

MESSAGES: dict[str, dict[str, str]] = {
    "Content": {"role": "", "parts": "Part"},
    "Part": {
        "text": "", "inlineData": "Blob", "fileData": "FileData", "functionCall": "FunctionCall",
        "functionResponse": "FunctionResponse", "executableCode": "ExecutableCode",
        "codeExecutionResult": "CodeExecutionResult", "toolCall": "ToolCall", "toolResponse": "ToolResponse", "thought": "",
        "thoughtSignature": "", "videoMetadata": "", "mediaResolution": "", "mediaProcessing": "", "audioTranscription": "",
        "speechMetadata": "", "partMetadata": "",
    },
    "Blob": {"mimeType": "", "data": "", "displayName": ""},
    "FileData": {"mimeType": "", "fileUri": "", "displayName": ""},
    "FunctionCall": {"id": "", "name": "", "args": "", "partialArgs": "", "willContinue": ""},
    "FunctionResponse": {
        "id": "", "name": "", "response": "", "parts": "FunctionResponsePart", "willContinue": "", "scheduling": "",
    },
    "FunctionResponsePart": {"inlineData": "Blob", "fileData": "FileData", "mediaProcessing": ""},
    "ExecutableCode": {"id": "", "language": "", "code": ""},
    "CodeExecutionResult": {"id": "", "outcome": "", "output": ""},
    "ToolCall": {"id": "", "toolType": "", "args": ""},
    "ToolResponse": {"id": "", "toolType": "", "response": ""},
}  # fmt: skip
"""The messages of a content: their known fields, and the message inside of a field. Others hold data of the program."""

_USUAL = ("text", "inlineData", "fileData")
_OF_OTHERS = {
    "content": "this looks like a message of another system: pass its text, or convert(...) the conversation for history=",
    "type": "this looks like a part of another system: pass Media(...) for an image or a file, and a text as it is",
}
"""Fields by which other systems' forms are known -> what to pass instead."""


def camel(name: str) -> str:
    """The name of a field in camelCase."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def check_part(part: Mapping[str, Any], message: str = "Part", place: str = "") -> None:
    """Refuse a part of the user's with a field that no model would see.

    Raises:
        UsageError: it has one; the message names it.
    """
    known = MESSAGES[message]
    for name, value in part.items():
        inner = known.get(camel(str(name)))
        if inner is None:
            raise UsageError(f"a part of a prompt has no field {place + str(name)!r:.200}{_hint(part, str(name), message)}")
        if inner and isinstance(value, Mapping):
            check_part(cast("Mapping[str, Any]", value), inner, f"{place}{name}.")


def _hint(part: Mapping[str, Any], name: str, message: str) -> str:
    known = MESSAGES[message]
    if message == "Part" and (told := next((why for mark, why in _OF_OTHERS.items() if mark in part), None)):
        return f"; {told}"
    near = difflib.get_close_matches(camel(name)[:100], known, n=1)
    usual = _USUAL if message == "Part" else sorted(known)
    return f": did you mean {near[0]!r}?" if near else f"; use {' or '.join(usual)}"
