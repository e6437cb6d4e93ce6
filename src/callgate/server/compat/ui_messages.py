"""The messages of an AI SDK front end -> a history in callgate's words, and the answers to approvals in them.

UI messages come in: text, reasoning, files, and tools in whatever state they were shown. Contents go out, in Gemini's form
and written by `callgate.definitions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from callgate.definitions import format_named
from callgate.definitions.format import WriteContext
from callgate.definitions.items import Call, Item, Message, Result, Text, Value
from callgate.definitions.transfer import blob_from_url
from callgate.errors import UsageError
from callgate.permission import Answered, Approval
from callgate.server.compat.accepted_parts import refuse_left_out
from callgate.strict_json import objects_in
from callgate.types import Content, JsonObject, Loss

__all__ = ["answers_in", "contents_of", "is_users"]

_USERS = ("text", "file", "reasoning", "source-url", "source-document", "step-start")
"""The parts of a user's message; what of them is not for the model is of the page's own making."""
DENIED = "The call was not approved."


def is_users(message: JsonObject) -> bool:
    """True if the user wrote it."""
    return message.get("role") == "user"


def contents_of(messages: Sequence[JsonObject]) -> list[Content]:
    """The messages as contents. What the system is said to have said is left out: that is the server's to say.

    Raises:
        UsageError: a part is not what it must be.
    """
    turns = [turn for message in messages for turn in _turns(message)]
    gemini = format_named("gemini")
    assert gemini.history_to is not None
    losses: list[Loss] = []
    contents = gemini.history_to(turns, WriteContext("ui", gemini.name, losses, in_history=True))
    refuse_left_out(losses, "messages")
    return contents


def answers_in(message: JsonObject) -> dict[str, Approval]:
    """The answers that somebody gave to the calls of a message, by call id."""
    answers: dict[str, Approval] = {}
    for part in objects_in(message.get("parts")):
        approval: Any = part.get("approval")
        if part.get("state") == "approval-responded" and isinstance(approval, dict):
            fields = cast("JsonObject", approval)
            said = str(fields.get("reason") or "")
            is_yes = fields.get("approved") is True
            answers[str(part.get("toolCallId"))] = Answered(
                answer="yes" if is_yes else "no", message=said, confirm=said.strip()
            )
    return answers


def _turns(message: JsonObject) -> Iterator[Message]:
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        raise UsageError(f"messages: there is no role {role!r}; the roles are 'user', 'assistant' and 'system'")
    if role == "user":
        parts = objects_in(message.get("parts"))
        for part in parts:
            kind = str(part.get("type"))
            if kind not in _USERS and not kind.startswith("data-"):
                raise UsageError(
                    f"messages: a part of type {kind[:100]!r} cannot be carried to the model; send text or files"
                )
        yield Message(role="user", items=tuple(item for part in parts for item in _text_items(part)))
    elif role == "assistant":
        yield from _steps(objects_in(message.get("parts")))


def _steps(listed: Sequence[JsonObject]) -> Iterator[Message]:
    """Text and calls of the model, step by step, each with the results of its calls."""
    items: list[Item] = []
    results: list[Result] = []
    for part in [*listed, {"type": "step-start"}]:
        if part.get("type") != "step-start":
            items += _text_items(part)
            results += _result(part)
            continue
        if items:
            yield Message(role="model", items=tuple(items))
        if results:
            yield Message(role="user", items=tuple(results))
        items, results = [], []


def _text_items(part: JsonObject) -> list[Item]:
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str) and part["text"]:
        return [Text(text=part["text"])]
    if kind == "file":
        if not isinstance(part.get("url"), str):
            raise UsageError("messages: a file has no url")
        mime_type = part.get("mediaType")
        known = mime_type if isinstance(mime_type, str) and mime_type else "application/octet-stream"
        return [blob_from_url(part["url"], "", mime_type=known, name=part.get("filename"))]
    if (name := _tool_of(part)) is not None:
        given: Any = part.get("input")
        return [Call(name=name, args=cast("JsonObject", given) if isinstance(given, dict) else {}, id=_id(part))]
    return []  # Reasoning was for the reader; sources and data are of the page's own making.


def _result(part: JsonObject) -> list[Result]:
    name, state = _tool_of(part), part.get("state")
    if name is None or state not in ("output-available", "output-error", "output-denied"):
        return []
    if state == "output-available":
        output: Any = part.get("output")
        return [Result(id=_id(part), name=name, parts=() if output is None else (Value(value=output),))]
    told = DENIED if state == "output-denied" else str(part.get("errorText") or "The call failed.")
    return [Result(id=_id(part), name=name, is_error=True, parts=(Text(text=told),))]


def _tool_of(part: JsonObject) -> str | None:
    kind = part.get("type")
    if kind == "dynamic-tool":
        return str(part.get("toolName"))
    return kind.removeprefix("tool-") if isinstance(kind, str) and kind.startswith("tool-") else None


def _id(part: JsonObject) -> str | None:
    given = part.get("toolCallId")
    return given if isinstance(given, str) and given else None
