"""The conversation as the embedded model was taught to read it: ChatML turns, a compact list of tools, lines of calls.

Contents in Gemini's form and tools come in, text goes out. The wording, the order and every space are those of the training
data (`training/`), because the adapter knows no other format: change nothing here without training again. This file knows
nothing of files, processes or what a run does with the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callgate.content.build import model_content
from callgate.content.read import call_parts, is_call, is_response, parts_of, response_of, role_of, text_of
from callgate.embedded.shapes import alternatives, as_object, properties_of, required_of, resolved, types_of
from callgate.history.repair import starts_exchange
from callgate.tools.find_tools import nearest
from callgate.types import Content, ToolDefinition

__all__ = [
    "CALL", "OPEN", "RESULT", "STOP", "SYSTEM", "Fitted", "PromptTooLongError", "Sizes", "chosen_tools", "fitted",
    "messages_of",
    "one_by_one", "system_text", "tool_text", "turn_text", "turns_of", "words_since",
]  # fmt: skip

SYSTEM = (
    'You are a helpful assistant with tools. To use a tool, reply only with TOOL_CALL: name({"arg": value}), one line per '
    "call. If no tool fits, answer in plain text. If a required argument is missing, ask for it."
)
CALL = "TOOL_CALL:"
RESULT = "TOOL_RESULT"
OPEN = "<|im_start|>assistant\n"
STOP = "<|im_end|>"

DESCRIPTION_CHARS_MAX = 260
PARAMETER_CHARS_MAX = 140
ENUM_SHOWN_MAX = 12
UNSEEN = "(an attachment that this model cannot see)"

_MARKER = re.compile(r"<\|(\w+)\|>")


# Tools -------------------------------------------------------------------------------------------------------------------


def system_text(tools: Sequence[ToolDefinition], *, extra: str = "") -> str:
    """The system turn's text: the rules, what the user's system prompt adds, and the list of tools."""
    head = f"{SYSTEM}\n{_inert(extra)}" if extra else SYSTEM
    listed = "\n".join(tool_text(tool) for tool in tools)
    return f"{head}\n\nTools (* = required):\n{_inert(listed)}" if tools else head


def tool_text(tool: ToolDefinition) -> str:
    """One tool: `name - description`, then a line for each parameter; `*` marks the required ones."""
    root = as_object(tool.input_schema)
    schema = resolved(root, root)
    required = required_of(schema)
    lines = [f"{tool.name} - {_cut(tool.description, DESCRIPTION_CHARS_MAX)}"]
    for name, raw in properties_of(schema).items():
        lines.append(f"  {name}{'*' if name in required else ''}: {_parameter(raw, root)}")
    return "\n".join(lines)


def _parameter(raw: object, root: Mapping[str, Any]) -> str:
    shown = _one_form(resolved(raw, root), root)
    text, description = _kind(shown, root), _cut(shown.get("description"), PARAMETER_CHARS_MAX)
    if description:
        text += f". {description}"
    default: Any = shown.get("default")
    if default is not None and default != "" and "efault" not in description:
        text += f" Default {default}."
    inner = properties_of(shown)
    if inner:
        keys = ", ".join(f"{key} ({_type_name(_one_form(resolved(value, root), root))})" for key, value in inner.items())
        text += f" Keys: {keys}."
    return text


def _one_form(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first alternative that is not null, so that `anyOf` of a type and null reads like the type."""
    for key in ("anyOf", "oneOf"):
        members = [resolved(member, root) for member in alternatives(schema)] if key in schema else []
        real = [member for member in members if types_of(member) != ["null"]]
        if real:
            outer = {name: value for name, value in schema.items() if name != key}
            return {**real[0], **outer}
    return schema


def _kind(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    choices: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, (list, tuple)) and choices:
        return "|".join(str(choice) for choice in choices[:ENUM_SHOWN_MAX])  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    kind = _type_name(schema)
    return f"{_type_name(_one_form(resolved(schema.get('items'), root), root))}[]" if kind == "array" else kind


def _type_name(schema: Mapping[str, Any]) -> str:
    return next((kind for kind in types_of(schema) if kind != "null"), "string")


def _cut(text: object, limit: int) -> str:
    """The text up to its last sentence within the limit, or else its last word."""
    whole = " ".join(text.split()) if isinstance(text, str) else ""
    if len(whole) <= limit:
        return whole
    head = whole[:limit]
    end = max(head.rfind(". "), head.rfind("; "))
    if end > limit * 0.4:
        return head[: end + 1]
    return head[: head.rfind(" ")] if " " in head else head


def chosen_tools(
    tools: Sequence[ToolDefinition], words: str, *, fits: Callable[[ToolDefinition], bool]
) -> list[ToolDefinition]:
    """The tools that the model is shown where not all of them fit: those nearest to the words, then the first declared.

    `fits` is asked for one tool after another, takes it into account when it says yes, and a tool that does not fit is
    passed over. The chosen ones keep the order in which they were declared.
    """
    near = nearest(words, tools, limit=len(tools))
    names = {tool.name for tool in near}
    taken = {tool.name for tool in [*near, *(tool for tool in tools if tool.name not in names)] if fits(tool)}
    return [tool for tool in tools if tool.name in taken]


# Turns -------------------------------------------------------------------------------------------------------------------


def turn_text(role: str, text: str) -> str:
    """One ChatML turn."""
    return f"<|im_start|>{role}\n{text}{STOP}\n"


def turns_of(contents: Sequence[Content], *, result_chars_max: int) -> list[str]:
    """Each content as a turn; a result longer than the limit loses its middle."""
    return [turn_text(*message) for message in messages_of(contents, result_chars_max=result_chars_max)]


def messages_of(contents: Sequence[Content], *, result_chars_max: int) -> list[tuple[str, str]]:
    """Each content as a role and its text."""
    return [_message(content, result_chars_max) for content in contents]


def _message(content: Content, result_chars_max: int) -> tuple[str, str]:
    if role_of(content) == "model":
        calls = [f"{CALL} {call.get('name')}({_json(call.get('args') or {})})" for call in call_parts(content)]
        said = text_of(content).strip()
        return "assistant", _inert("\n".join(filter(None, [said, *calls])))
    lines: list[str] = []
    for part in parts_of(content):
        if is_response(part):
            lines.append(_result(response_of(part), result_chars_max))
        elif isinstance(part.get("text"), str):
            lines.append(part["text"])
        else:
            lines.append(UNSEEN)
    return "user", _inert("\n".join(lines))


def _result(response: Mapping[str, Any], chars_max: int) -> str:
    whole: Any = response.get("response")
    # The model was taught objects as the tool gave them, and `{"result": value}` for everything else.
    inner: Any = whole.get("result") if isinstance(whole, Mapping) and list(whole) == ["result"] else None  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType, reportUnknownVariableType]
    text = _json(inner if isinstance(inner, (Mapping, list)) else whole)
    if len(text) > chars_max:
        half = max(chars_max // 2, 1)
        text = f"{text[:half]} ... {text[-half:]}"
    return f"{RESULT} {response.get('name')}: {text}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _inert(text: str) -> str:
    """The text with its turn markers broken: words of people and tools must not end a turn or begin one."""
    return _MARKER.sub(r"<| \1 |>", text)


def one_by_one(contents: Sequence[Content]) -> list[list[Content]]:
    """The conversation once for each result of its end: the model was taught to put one result into words at a time."""
    results = [part for part in parts_of(contents[-1]) if is_response(part)] if contents else []
    calls = [part for part in parts_of(contents[-2]) if is_call(part)] if len(contents) > 1 else []
    if len(results) < 2 or len(calls) != len(results):
        return [list(contents)]
    before = contents[:-2]
    pairs = zip(calls, results, strict=True)
    return [[*before, model_content([call]), {"role": "user", "parts": [result]}] for call, result in pairs]


def words_since(contents: Sequence[Content]) -> str:
    """The user's latest message."""
    said = [text_of(content) for content in contents if starts_exchange(content)]
    return said[-1] if said else ""


# What fits ---------------------------------------------------------------------------------------------------------------


class PromptTooLongError(ValueError):
    """The newest turn alone does not fit into the context."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of the pieces of a prompt."""

    system: int
    turns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A prompt that fits: the turns from `start` on."""

    start: int
    tokens: int


def fitted(contents: Sequence[Content], sizes: Sizes, *, room: int) -> Fitted:
    """Drop whole exchanges from the front, oldest first, until the rest fits into `room` tokens.

    Raises:
        PromptTooLongError: what was said since the user spoke last does not fit.
    """
    starts = [index for index, content in enumerate(contents) if starts_exchange(content)] or [0]
    for start in [0, *(index for index in starts if index)]:
        tokens = sizes.system + sum(sizes.turns[start:])
        if tokens <= room:
            return Fitted(start, tokens)
    newest = sizes.system + sum(sizes.turns[starts[-1] :])
    raise PromptTooLongError(
        f"the newest message, what came back from its calls and the list of tools are {newest} tokens long, and this model "
        f"has room for {room}: say it in fewer words, or use a model with a larger context"
    )
