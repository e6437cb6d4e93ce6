"""A request in Gemini's form that a client sends to callgate -> callgate's types.

The JSON body of generateContent comes in; contents, the system instruction, tools, the tool choice and settings go out, the
settings under the names by which `request.py` writes them. Field names are read in camelCase and in snake_case, as Google
does. Nothing is sent, and nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from callgate.content.read import INTERACTION
from callgate.definitions import definitions_from
from callgate.definitions.gemini_schema import json_schema_from
from callgate.errors import UsageError
from callgate.gemini.request import GENERATION, TOP
from callgate.types import Content, JsonObject, Part, ToolChoice, ToolDefinition

__all__ = ["Incoming", "blocked", "read_request"]

_BODY = (
    "contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent",
    "serviceTier", "labels", "model", "store",
)  # fmt: skip
_PART = (
    "text", "thought", "thoughtSignature", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode",
    "codeExecutionResult", "toolCall", "toolResponse", "videoMetadata", "mediaResolution", "partMetadata",
)  # fmt: skip
_INNER = ("mimeType", "fileUri", "displayName", "data", "id", "name", "args", "response", "parts", "willContinue")
_HOLDERS = ("inlineData", "fileData", "functionCall", "functionResponse")
_THINKING = ("includeThoughts", "thinkingBudget", "thinkingLevel")
_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "validated"}
_CALLING = ("mode", "allowedFunctionNames", "streamFunctionCallArguments")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A parsed request."""

    contents: list[Content]
    system: str | None = None
    definitions: tuple[ToolDefinition, ...] = ()
    """The functions that it declares itself."""
    built_in: tuple[JsonObject, ...] = ()
    """The tools among its own that run at Google."""
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields without an equivalent, unchanged and in place: only a Gemini model takes them."""


def read_request(body: Mapping[str, Any]) -> Incoming:
    """Parse the body of a request.

    Raises:
        UsageError: a part of it is not what it must be; the message says which.
    """
    fields = _spelled(body, _BODY)
    contents = [_content(content, f"contents[{place}]") for place, content in enumerate(_contents(fields.get("contents")))]
    definitions, built_in = _tools(fields.get("tools"))
    choice, allowed, config_rest = _choice(fields.get("toolConfig"))
    if len(allowed) > 1:
        # One name is a choice; several are the only ones that may be called, so the others are not shown at all.
        definitions = [definition for definition in definitions if definition.name in allowed] or definitions
    settings, rest = _settings(fields)
    return Incoming(
        contents=contents,
        system=_system(fields.get("systemInstruction")),
        definitions=tuple(definitions),
        built_in=tuple(built_in),
        tool_choice=allowed[0] if choice == "required" and len(allowed) == 1 else choice,
        settings=settings,
        rest=rest
        | ({"toolConfig": config_rest} if config_rest else {})
        | {name: value for name, value in fields.items() if name not in _BODY},
    )


def blocked(reason: str, message: str, ratings: Iterable[Mapping[str, Any]]) -> JsonObject:
    """The answer to a prompt that was refused."""
    feedback: JsonObject = {"blockReason": reason, "blockReasonMessage": message}
    return {"promptFeedback": feedback | ({"safetyRatings": [*map(dict, ratings)]} if ratings else {})}


def _spelled(fields: Mapping[str, Any], known: Iterable[str]) -> JsonObject:
    """The object with known names in camelCase; all other keys as they are."""
    spelled = {_snake(name): name for name in known}
    return {spelled.get(key, key): value for key, value in fields.items()}


def _snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()


def _object(value: Any, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: expected an object, found {type(value).__name__}")
    return cast("JsonObject", value)


def _list(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise UsageError(f"{where}: expected a list, found {type(value).__name__}")
    return cast("list[Any]", value)


# Contents ----------------------------------------------------------------------------------------------------------------


def _contents(value: Any) -> list[Any]:
    # Google takes one content for a list of one.
    return [cast("Any", value)] if isinstance(value, dict) else _list(value, "contents")


def _content(value: Any, where: str) -> Content:
    content = _object(value, where)
    given: Any = content.get("parts")
    listed = [cast("Any", given)] if isinstance(given, dict) else _list(given, f"{where}.parts")
    # What is kept at Google is named by our own journal alone: a client could name what belongs to another one.
    kept = {name: field for name, field in content.items() if name != INTERACTION}
    return {**kept, "parts": [_part(part, f"{where}.parts[{place}]") for place, part in enumerate(listed)]}


def _part(value: Any, where: str) -> Part:
    part = _spelled(_object(value, where), _PART)
    if not isinstance(part.get("text", ""), str):
        raise UsageError(f"{where}.text: expected text, found {type(part['text']).__name__}")
    for key in _HOLDERS:
        if part.get(key) is not None:
            part[key] = _spelled(_object(part[key], f"{where}.{key}"), _INNER)
    return part


def _system(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    content = _content(value, "systemInstruction")
    for place, part in enumerate(content["parts"]):
        if "text" not in part:
            raise UsageError(f"systemInstruction.parts[{place}]: an instruction is made of text")
    return "\n\n".join(part["text"] for part in content["parts"] if part["text"]) or None


# Tools -------------------------------------------------------------------------------------------------------------------


def _tools(value: Any) -> tuple[list[ToolDefinition], list[JsonObject]]:
    definitions: list[ToolDefinition] = []
    built_in: list[JsonObject] = []
    for place, item in enumerate(_list(value, "tools")):
        tool = _object(item, f"tools[{place}]")
        declared = _spelled(tool, ("functionDeclarations",))
        functions = _list(declared.pop("functionDeclarations", None), f"tools[{place}].functionDeclarations")
        if functions:
            definitions += definitions_from(functions, "gemini")
        if declared:
            built_in.append(declared)
    return definitions, built_in


def _choice(value: Any) -> tuple[ToolChoice, list[str], JsonObject]:
    """The choice, the names that it allows, and what else the configuration says."""
    if value is None:
        return "auto", [], {}
    config = _spelled(_object(value, "toolConfig"), ("functionCallingConfig",))
    calling = _spelled(
        _object(config.pop("functionCallingConfig", None) or {}, "toolConfig.functionCallingConfig"), _CALLING
    )
    mode = str(calling.get("mode") or "AUTO").upper()
    if mode not in _MODES and mode != "MODE_UNSPECIFIED":
        raise UsageError(f"toolConfig.functionCallingConfig.mode: {mode!r} is none of {', '.join(_MODES)}")
    allowed = _list(calling.get("allowedFunctionNames"), "toolConfig.functionCallingConfig.allowedFunctionNames")
    return _MODES.get(mode, "auto"), [*map(str, allowed)] if mode in ("ANY", "VALIDATED") else [], config


# Settings ----------------------------------------------------------------------------------------------------------------


def _settings(fields: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The settings of a request, and the fields without an equivalent."""
    known = {theirs: ours for ours, theirs in GENERATION.items()}
    named = (*known, "thinkingConfig", "responseSchema")
    generation = _spelled(_object(fields.get("generationConfig") or {}, "generationConfig"), named)
    settings: JsonObject = {ours: generation.pop(theirs) for theirs, ours in known.items() if theirs in generation}
    if (schema := generation.pop("responseSchema", None)) is not None:
        settings.setdefault("response_json_schema", json_schema_from(_object(schema, "generationConfig.responseSchema")))
    if (thinking := generation.pop("thinkingConfig", None)) is not None:
        settings |= _thinking(_spelled(_object(thinking, "generationConfig.thinkingConfig"), _THINKING))
    settings |= {ours: fields[theirs] for ours, theirs in TOP.items() if fields.get(theirs) is not None}
    rest: JsonObject = {"generationConfig": generation} if generation else {}
    safety = [_object(item, "safetySettings") for item in _list(fields.get("safetySettings"), "safetySettings")]
    if all(set(item) == {"category", "threshold"} for item in safety):
        settings |= {"safety": {str(item["category"]): item["threshold"] for item in safety}} if safety else {}
    else:
        rest["safetySettings"] = safety
    return {name: value for name, value in settings.items() if value is not None}, rest


def _thinking(config: JsonObject) -> JsonObject:
    budget, level, shown = (config.get(name) for name in ("thinkingBudget", "thinkingLevel", "includeThoughts"))
    settings: JsonObject = {} if shown is None else {"include_thoughts": bool(shown)}
    if isinstance(level, str) and not level.endswith("_UNSPECIFIED"):
        settings["thinking"] = level.lower()
    elif budget is not None:
        settings["thinking"] = budget
    return settings
