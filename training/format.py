"""The prompt format that the adapter is trained on: tools and turns as text, replies back as calls.

Tool schemas (`name`, `description`, `parameters`), calls and results come in; text goes out, and the other way round.
This is the one definition of the format in training; what the product renders for this model must be the same text,
letter for letter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Call = tuple[str, dict[str, Any]]
Tool = Mapping[str, Any]

SYSTEM = (
    'You are a helpful assistant with tools. To use a tool, reply only with TOOL_CALL: name({"arg": value}), one line per '
    "call. If no tool fits, answer in plain text. If a required argument is missing, ask for it."
)
OPEN_REPLY = "<|im_start|>assistant\n"
END = "<|im_end|>"
CALL_MARK = "TOOL_CALL:"
RESULT_MARK = "TOOL_RESULT"
DESCRIPTION_CHARS, PARAMETER_CHARS, ENUM_SHOWN = 260, 140, 12


def cut(text: str | None, limit: int) -> str:
    """The text, or its start up to the end of a sentence or a word."""
    text = (text or "").strip()
    if len(text) <= limit:
        return text
    head = text[:limit]
    stop = max(head.rfind(". "), head.rfind("; "))
    if stop > limit * 0.4:
        return head[: stop + 1]
    return head[: head.rfind(" ")] if " " in head else head


def type_text(schema: Mapping[str, Any]) -> str:
    """The type of a parameter: an enum as a|b, an array as string[]."""
    if options := schema.get("enum"):
        return "|".join(str(option) for option in options[:ENUM_SHOWN])
    kind = schema.get("type") or "string"
    if kind == "array":
        return ((schema.get("items") or {}).get("type") or "string") + "[]"
    return kind


def tool_text(tool: Tool) -> str:
    """One tool: a line for itself and a line for each parameter."""
    parameters = tool["parameters"]
    required = parameters.get("required") or []
    lines = [f"{tool['name']} - {cut(tool['description'], DESCRIPTION_CHARS)}"]
    for name, schema in (parameters.get("properties") or {}).items():
        line = f"  {name}{'*' if name in required else ''}: {type_text(schema)}"
        description = cut(schema.get("description"), PARAMETER_CHARS)
        if description:
            line += f". {description}"
        if schema.get("default") not in (None, "") and "efault" not in description:
            line += f" Default {schema['default']}."
        if inner := schema.get("properties"):
            line += " Keys: " + ", ".join(f"{key} ({value['type']})" for key, value in inner.items()) + "."
        lines.append(line)
    return "\n".join(lines)


def system_text(tools: Iterable[Tool], *, rules: str = SYSTEM, extra: str = "") -> str:
    """The system turn: the rules, what the developer adds, and the tools."""
    head = f"{rules}\n{extra}" if extra else rules
    listed = "\n".join(tool_text(tool) for tool in tools)
    return f"{head}\n\nTools (* = required):\n{listed}" if listed else head


def turn(role: str, text: str) -> str:
    """One turn of the conversation."""
    return f"<|im_start|>{role}\n{text}{END}\n"


def calls_text(calls: Sequence[Call]) -> str:
    """Calls as the model writes them, one on a line."""
    return "\n".join(f"{CALL_MARK} {name}({json.dumps(args, ensure_ascii=False)})" for name, args in calls)


def results_text(results: Sequence[tuple[str, Any]]) -> str:
    """Results as they come back in a user turn, one on a line."""
    return "\n".join(f"{RESULT_MARK} {name}: {json.dumps(result, ensure_ascii=False)}" for name, result in results)


def parse_calls(text: str) -> tuple[list[Call], str | None]:
    """The calls in a reply, and what is wrong with them if anything is. No calls and no fault: the reply is prose."""
    if CALL_MARK not in text:
        return [], None
    calls: list[Call] = []
    decoder = json.JSONDecoder()
    for found in re.finditer(CALL_MARK + r"\s*([^\s(]+)\(", text):
        try:
            args, end = decoder.raw_decode(text, found.end())
        except ValueError:
            return calls, "the arguments are no JSON"
        if not isinstance(args, dict):
            return calls, "the arguments are no object"
        if not text[end:].lstrip().startswith(")"):
            return calls, "the call is not closed"
        calls.append((found[1], args))
    return calls, None if calls else "there is no call after the mark"
