"""Any other model through its own chat template: llama.cpp's chat route, which has OpenAI's form.

A request comes in and the body for llama.cpp goes out; the events of the answer come in and parts in Gemini's form go out.
llama.cpp renders the model's own template, knows the tool-call format of many models and holds others to one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from callgate.content.build import call_part, text_part
from callgate.definitions import convert
from callgate.errors import JsonError
from callgate.request import ModelRequest
from callgate.strict_json import parse
from callgate.types import FunctionCall, Part

__all__ = ["ChatReader", "chat_body"]

_CHOICES = {"auto": "auto", "required": "required", "none": "none", "validated": "auto"}
_FINISH = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS"}


def chat_body(request: ModelRequest) -> dict[str, Any]:
    """Messages, tools and tool choice as llama.cpp takes them."""
    messages: list[Any] = list(convert(request.contents, source="gemini", target="openai", kind="history").value)
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    body: dict[str, Any] = {"messages": messages}
    if request.output is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": request.output}}
    if not request.definitions or request.tool_choice == "none":
        return body
    aliases = {own: declared for declared, own in request.declaration.names.items()}
    tools = [replace(tool, name=aliases.get(tool.name, tool.name)) for tool in request.definitions]
    named = [tool for tool in tools if tool.name == aliases.get(request.tool_choice, request.tool_choice)]
    body["tools"] = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)},
        }
        for tool in named or tools
    ]
    # llama.cpp has no word for one tool: it is the only one offered, and some tool must be called.
    body["tool_choice"] = "required" if named else _CHOICES.get(request.tool_choice, "auto")
    return body


@dataclass(slots=True)
class _Call:
    name: str = ""
    arguments: str = ""


class ChatReader:
    """A reader of a streamed answer: text at once, calls when they are complete."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}
        self._finish: str | None = None

    def feed(self, event: Mapping[str, Any]) -> list[Part]:
        """The text of one event."""
        found: list[Part] = []
        for choice in cast("list[dict[str, Any]]", event.get("choices") or []):
            delta: dict[str, Any] = choice.get("delta") or {}
            if delta.get("reasoning_content"):
                found.append({"text": delta["reasoning_content"], "thought": True})
            if delta.get("content"):
                found.append(text_part(delta["content"]))
            for piece in delta.get("tool_calls") or ():
                call = self._calls.setdefault(int(piece.get("index") or 0), _Call())
                function: dict[str, Any] = piece.get("function") or {}
                call.name += function.get("name") or ""
                call.arguments += function.get("arguments") or ""
            self._finish = choice.get("finish_reason") or self._finish
        return found

    def close(self) -> tuple[list[Part], str]:
        """The calls, and how the answer ended."""
        finish = _FINISH.get(self._finish or "", "OTHER")
        if finish != "STOP":
            return [], finish
        made: list[Part] = []
        for call in self._calls.values():
            try:
                args = parse(call.arguments or "{}")
            except JsonError:
                return [], "MALFORMED_FUNCTION_CALL"
            if not isinstance(args, dict):
                return [], "MALFORMED_FUNCTION_CALL"
            made.append(call_part(FunctionCall(name=call.name, args=cast("dict[str, Any]", args))))
        return made, finish
