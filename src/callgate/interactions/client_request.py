"""A request in the form of the Interactions API that a client sends to callgate -> callgate's types.

The JSON body of a new interaction comes in; contents, the system instruction, tools, the tool choice and settings go out.
Nothing is sent, and nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from callgate.content.build import text_part, with_signature
from callgate.content.read import SKIP_SIGNATURE, is_call, parts_of
from callgate.definitions import convert, definitions_from
from callgate.definitions.json_node import ShapeError
from callgate.errors import UsageError
from callgate.strict_json import objects_in
from callgate.types import Content, JsonObject, Loss, ToolChoice, ToolDefinition

__all__ = ["IncomingInteraction", "read_interaction"]

T = TypeVar("T")
_GENERATION = ("temperature", "top_p", "top_k", "seed", "max_output_tokens", "stop_sequences")
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none", "validated": "validated"}
_KNOWN = frozenset([
    "model", "input", "system_instruction", "tools", "generation_config", "response_format", "previous_interaction_id",
    "store", "stream", "background", "safety_settings", "service_tier", "labels", "response_mime_type",
])  # fmt: skip
_CONTENT = ("text", "image", "audio", "video", "document")
_FUNCTION = ("type", "name", "description", "parameters")
_TOP = ("service_tier", "labels", "response_mime_type")
# Fields with one of a few words.
_WORDS = {
    "thinking_level": ("minimal", "low", "medium", "high"), "thinking_summaries": ("auto", "none"),
    "service_tier": ("flex", "standard", "priority", "deferred"),
}  # fmt: skip
# Type of a response format -> its fields, and the setting of each.
_FORMS: dict[str, dict[str, str]] = {
    "text": {"mime_type": "response_mime_type", "schema": "response_json_schema"}, "image": {}, "audio": {}, "video": {},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingInteraction:
    """A parsed request."""

    model: str
    contents: list[Content]
    system: str | None = None
    definitions: tuple[ToolDefinition, ...] = ()
    """The functions that it declares itself."""
    built_in: tuple[JsonObject, ...] = ()
    """The tools among its own that run at Google."""
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    previous: str | None = None
    """The interaction that it continues."""
    stored: bool = True
    stream: bool = False
    background: bool = False
    losses: Sequence[Loss] = ()
    """Losses of its input on the way into the contents."""


def read_interaction(body: Mapping[str, Any]) -> IncomingInteraction:
    """Parse the body of a request.

    Raises:
        UsageError: a part of it is not what it must be; the message says which.
    """
    if unknown := [name for name in body if name not in _KNOWN and body[name] is not None]:
        raise UsageError(f"Unknown parameter {unknown[0]!r}.")
    if not isinstance(body.get("model"), str):
        raise UsageError("model: name one; agents run at Google only")
    stored, background = body.get("store") is not False, body.get("background") is True
    if not stored and (background or body.get("previous_interaction_id")):
        raise UsageError("store must be true for background interactions, and when previous_interaction_id is set")
    functions, built_in = _tools(body.get("tools"))
    choice, allowed, settings = _generation(body.get("generation_config"))
    settings |= {name: body[name] for name in _TOP if body.get(name) is not None}
    _check_word("service_tier", settings.get("service_tier"))
    if body.get("response_format") is not None and body.get("response_mime_type") is not None:
        raise UsageError("response_mime_type: it cannot be combined with response_format, which has a mime_type of its own")
    settings |= _safety(body.get("safety_settings")) | _response_format(body.get("response_format"))
    definitions = _below("tools", lambda: definitions_from(functions, "interactions")) if functions else []
    if unknown := [name for name in allowed if name not in [definition.name for definition in definitions]]:
        raise UsageError(f"generation_config.tool_choice: {unknown[0]!r} is none of the tools of the request")
    contents, losses = _contents(body.get("input"))
    return IncomingInteraction(
        model=body["model"],
        contents=contents,
        losses=losses,
        system=body.get("system_instruction") or None,
        # Several names are the only tools that may be called, so the others are not shown at all.
        definitions=tuple(one for one in definitions if one.name in allowed or len(allowed) < 2),
        built_in=tuple(built_in),
        tool_choice=allowed[0] if choice == "required" and len(allowed) == 1 else choice,
        settings=settings,
        previous=body.get("previous_interaction_id"),
        stored=stored,
        stream=body.get("stream") is True,
        background=background,
    )


def _below(field: str, read: Callable[[], T]) -> T:
    """Read a field; an error about its shape names the place in the whole body."""
    try:
        return read()
    except ShapeError as error:
        raise ShapeError(f"/{field}{error.pointer}", error.problem) from None


def _contents(given: Any) -> tuple[list[Content], list[Loss]]:
    listed: list[Any] = cast("list[Any]", given) if isinstance(given, list) else [given] if given else []
    if isinstance(given, str):
        listed = [{"type": "text", "text": given}]
    if not listed or not all(isinstance(each, dict) for each in listed):
        raise UsageError("input: expected a text, a content, or a list of contents or of steps")
    if all(each.get("type") in _CONTENT for each in listed):
        listed = [{"type": "user_input", "content": listed}]
    converted = _below("input", lambda: convert(listed, source="interactions", target="gemini", kind="history"))
    value: Any = converted.value
    found = cast("JsonObject", value).get("contents") if isinstance(value, dict) else value
    return _signed(cast("list[Content]", found), listed), converted.losses


def _signed(contents: list[Content], steps: Sequence[JsonObject]) -> list[Content]:
    """The contents of an input with the signatures of its steps, as generateContent has them on parts.

    The signature of a thought is on the call that follows it, or on an empty text at the end of its turn. The calls are in
    the same order in both forms, and so are the turns, unless one of them was left out.
    """
    by_call, by_turn = _signatures(steps)
    if not any(by_call) and not any(by_turn):
        return contents
    calls, turns = iter(by_call), iter(by_turn)
    has_all = sum(content["role"] == "model" for content in contents) == len(by_turn)
    signed: list[Content] = []
    for content in contents:
        if content["role"] == "model":
            parts = [with_signature(part, next(calls, None)) if is_call(part) else part for part in parts_of(content)]
            last = next(turns, None) if has_all else None
            content = {**content, "parts": [*parts, *([with_signature(text_part(""), last)] if last else [])]}
        signed.append(content)
    return signed


def _signatures(steps: Sequence[JsonObject]) -> tuple[list[str | None], list[str | None]]:
    """The signature of each call of the steps, and of each turn of the model one that no call follows."""
    by_call: list[str | None] = []
    by_turn: list[str | None] = []
    newest: str | None = None
    is_turn = False
    for step in [*steps, {"type": "user_input"}]:
        kind = step.get("type")
        if kind in ("user_input", "function_result"):
            by_turn += [newest] if is_turn else []
            newest, is_turn = None, False
            continue
        is_turn = True
        own: Any = step.get("signature")
        signature = own if isinstance(own, str) and own and own != SKIP_SIGNATURE else None
        if kind == "function_call":
            by_call.append(newest or signature)
            newest = None
        elif kind == "thought":
            newest = signature or newest
    return by_call, by_turn


def _tools(given: Any) -> tuple[list[JsonObject], list[JsonObject]]:
    functions: list[JsonObject] = []
    built_in: list[JsonObject] = []
    for place, item in enumerate(cast("list[Any]", given or [])):
        if not isinstance(item, dict) or not isinstance(cast("JsonObject", item).get("type"), str):
            raise UsageError(f"tools[{place}]: expected an object with a type")
        tool = cast("JsonObject", item)
        if tool["type"] == "function":
            if unknown := [name for name in tool if name not in _FUNCTION and tool[name] is not None]:
                raise UsageError(f"Unknown parameter {unknown[0][:100]!r} at 'tools[{place}]'")
            functions.append(tool)
        else:
            built_in.append({tool["type"]: {key: value for key, value in tool.items() if key != "type"}})
    return functions, built_in


def _generation(given: Any) -> tuple[ToolChoice, list[str], JsonObject]:
    """The choice of tools, the only ones that it allows, and the settings."""
    config = dict(cast("Mapping[str, Any]", given or {}))
    settings: JsonObject = {name: config.pop(name) for name in _GENERATION if config.get(name) is not None}
    if not isinstance(settings.get("stop_sequences", []), list):
        raise UsageError("Expected array of strings at 'generation_config.stop_sequences'")
    for name in ("thinking_level", "thinking_summaries"):
        _check_word(name, config.get(name))
    if (level := config.pop("thinking_level", None)) is not None:
        settings["thinking"] = level
    if (summaries := config.pop("thinking_summaries", None)) is not None:
        settings["include_thoughts"] = summaries == "auto"
    choice, allowed = _choice(config.pop("tool_choice", None))
    if unknown := [name for name, value in config.items() if value is not None]:
        raise UsageError(f"Unknown parameter {unknown[0]!r} at 'generation_config'")
    return choice, allowed, settings


def _check_word(field: str, value: Any) -> None:
    if value is not None and value not in _WORDS[field]:
        raise UsageError(
            f"{str(value)[:100]!r} is not supported for {field!r}. Supported values: {', '.join(_WORDS[field])}"
        )


def _choice(given: Any) -> tuple[ToolChoice, list[str]]:
    if given is None:
        return "auto", []
    if isinstance(given, str) and given in _CHOICES:
        return _CHOICES[given], []
    allowed: Any = cast("JsonObject", given).get("allowed_tools") if isinstance(given, dict) else None
    named = cast("JsonObject", allowed) if isinstance(allowed, dict) else {}
    names, mode = named.get("tools"), named.get("mode", "any")
    if not isinstance(names, list) or not names or mode not in _CHOICES:
        raise UsageError(f"Invalid enum value {given!r} at 'generation_config.tool_choice'")
    return _CHOICES[mode], [str(name) for name in cast("list[Any]", names)]


def _safety(given: Any) -> JsonObject:
    """The setting for safety, in the words that generateContent has."""
    safety: JsonObject = {}
    for place, item in enumerate(cast("list[Any]", given or [])):
        fields = cast("JsonObject", item) if isinstance(item, dict) else {}
        if set(fields) != {"type", "threshold"} or not all(isinstance(word, str) for word in fields.values()):
            raise UsageError(f"safety_settings[{place}]: expected a type and a threshold")
        safety[fields["type"].upper()] = fields["threshold"].upper()
    return {"safety": safety} if safety else {}


def _response_format(given: Any) -> JsonObject:
    forms = objects_in(given if isinstance(given, list) else [given])
    settings: JsonObject = {}
    for form in forms:
        kind, fields = form.get("type"), {name: value for name, value in form.items() if value is not None}
        known = _FORMS.get(kind) if isinstance(kind, str) else None
        if known is None:
            raise UsageError(f"response_format: the type {kind!r} cannot be asked for here")
        if unknown := [name for name in fields if name != "type" and name not in known]:
            raise UsageError(f"response_format: {unknown[0]!r} of the type {kind!r} cannot be asked for here")
        if "schema" in fields and fields.get("mime_type") != "application/json":
            raise UsageError("response_format: a schema needs the mime_type 'application/json'")
        settings |= {known[name]: value for name, value in fields.items() if name != "type"}
    kinds = [str(form["type"]) for form in forms]
    return settings | ({"response_modalities": [kind.upper() for kind in kinds]} if {*kinds} - {"text"} else {})
