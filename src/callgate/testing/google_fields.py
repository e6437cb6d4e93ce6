"""The messages of a generateContent request, field by field, and the fitting of a body to them.

Takes a JSON body and a surface; returns the body in camelCase, with unknown fields reported in Google's words. Knows the
structure of every message and the meaning of none: roles, counts, names and signatures are in `google_rules`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from callgate.types import JsonObject

__all__ = ["ENUMS", "MESSAGES", "Surface", "Violation", "as_list", "as_object", "decode_base64", "fit", "snake"]

Surface: TypeAlias = Literal["developer", "vertex"]
"""`developer` is the API of an AI Studio key, `vertex` that of a cloud project."""

# The kind of a field: a scalar, `Message`, `[kind]` for a repeated field, `{kind}` for a map, `any` for free JSON, `struct`
# for a free object. A word after the kind names the only surface that has the field.
MESSAGES: dict[str, dict[str, str]] = {
    "GenerateContentRequest": {
        "model": "string", "contents": "[Content]", "systemInstruction": "Content", "tools": "[Tool]",
        "toolConfig": "ToolConfig", "generationConfig": "GenerationConfig", "safetySettings": "[SafetySetting]",
        "cachedContent": "string", "continuationToken": "bytes", "serviceTier": "string developer",
        "store": "bool developer", "labels": "{string} vertex", "modelArmorConfig": "any vertex",
        "outputConfig": "any vertex",
    },
    "Content": {"role": "string", "parts": "[Part]"},
    "Part": {
        "text": "string", "inlineData": "Blob", "fileData": "FileData", "functionCall": "FunctionCall",
        "functionResponse": "FunctionResponse", "executableCode": "ExecutableCode",
        "codeExecutionResult": "CodeExecutionResult", "toolCall": "ToolCall developer",
        "toolResponse": "ToolResponse developer", "thought": "bool", "thoughtSignature": "bytes", "videoMetadata": "any",
        "mediaResolution": "any", "mediaProcessing": "any", "audioTranscription": "any", "speechMetadata": "any",
        "partMetadata": "struct developer",
    },
    "Blob": {"mimeType": "string", "data": "bytes", "displayName": "string"},
    "FileData": {"mimeType": "string", "fileUri": "string", "displayName": "string"},
    "FunctionCall": {
        "id": "string", "name": "string", "args": "struct", "partialArgs": "[any] vertex", "willContinue": "bool vertex",
    },
    "FunctionResponse": {
        "id": "string", "name": "string", "response": "struct", "parts": "[FunctionResponsePart]",
        "willContinue": "bool developer", "scheduling": "string",
    },
    "FunctionResponsePart": {"inlineData": "Blob", "fileData": "FileData", "mediaProcessing": "any"},
    "ExecutableCode": {"id": "string", "language": "string", "code": "string"},
    "CodeExecutionResult": {"id": "string", "outcome": "string", "output": "string"},
    "ToolCall": {"id": "string", "toolType": "string", "args": "struct"},
    "ToolResponse": {"id": "string", "toolType": "string", "response": "struct"},
    "Tool": {
        "functionDeclarations": "[FunctionDeclaration]", "googleSearch": "GoogleSearch", "googleSearchRetrieval": "any",
        "codeExecution": "Empty", "urlContext": "Empty", "googleMaps": "any", "computerUse": "any",
        "fileSearch": "FileSearch developer", "mcpServers": "[McpServer] developer", "retrieval": "any vertex",
        "enterpriseWebSearch": "any vertex", "parallelAiSearch": "any vertex", "exaAiSearch": "any vertex",
    },
    "Empty": {},
    "GoogleSearch": {
        "searchTypes": "any", "timeRangeFilter": "any developer", "excludeDomains": "[string] vertex",
        "blockingConfidence": "string vertex",
    },
    "FileSearch": {"fileSearchStoreNames": "[string]", "topK": "int", "metadataFilter": "string"},
    "McpServer": {"name": "string", "streamableHttpTransport": "StreamableHttpTransport"},
    "StreamableHttpTransport": {
        "url": "string", "headers": "{string}", "timeout": "string", "sseReadTimeout": "string", "terminateOnClose": "bool",
    },
    "FunctionDeclaration": {
        "name": "string", "description": "string", "parameters": "Schema", "parametersJsonSchema": "any",
        "response": "Schema", "responseJsonSchema": "any", "behavior": "Behavior",
    },
    "Schema": {
        "type": "Type", "format": "string", "title": "string", "description": "string", "nullable": "bool",
        "enum": "[string]", "items": "Schema", "maxItems": "int", "minItems": "int", "properties": "{Schema}",
        "required": "[string]", "minProperties": "int", "maxProperties": "int", "minimum": "number", "maximum": "number",
        "minLength": "int", "maxLength": "int", "pattern": "string", "example": "any", "anyOf": "[Schema]",
        "propertyOrdering": "[string]",
        "default": "any", "additionalProperties": "any vertex", "ref": "string vertex", "defs": "{Schema} vertex",
    },
    "ToolConfig": {
        "functionCallingConfig": "FunctionCallingConfig", "retrievalConfig": "RetrievalConfig",
        "includeServerSideToolInvocations": "bool developer",
    },
    "FunctionCallingConfig": {
        "mode": "Mode", "allowedFunctionNames": "[string]", "streamFunctionCallArguments": "bool vertex",
    },
    "RetrievalConfig": {"latLng": "any", "languageCode": "string"},
    "GenerationConfig": {
        "candidateCount": "int", "stopSequences": "[string]", "maxOutputTokens": "int", "temperature": "number",
        "topP": "number", "topK": "number", "seed": "int", "responseMimeType": "string", "responseSchema": "Schema",
        "responseJsonSchema": "any", "responseFormat": "any", "presencePenalty": "number", "frequencyPenalty": "number",
        "responseLogprobs": "bool", "logprobs": "int", "enableEnhancedCivicAnswers": "bool",
        "responseModalities": "[Modality]", "speechConfig": "SpeechConfig", "thinkingConfig": "ThinkingConfig",
        "imageConfig": "any",
        "mediaResolution": "MediaResolution", "audioTranscriptionConfig": "any", "translationConfig": "any",
        "audioTimestamp": "bool vertex", "routingConfig": "any vertex", "modelSelectionConfig": "any vertex",
        "enableAffectiveDialog": "bool",
    },
    "ThinkingConfig": {"includeThoughts": "bool", "thinkingBudget": "int", "thinkingLevel": "ThinkingLevel"},
    "SpeechConfig": {"voiceConfig": "any", "multiSpeakerVoiceConfig": "any", "languageCode": "string"},
    "SafetySetting": {"category": "HarmCategory", "threshold": "HarmBlockThreshold", "method": "string vertex"},
}  # fmt: skip
"""Every message of a request: its fields in camelCase, their kinds, and the surface that alone has them."""

ENUMS: dict[str, frozenset[str]] = {
    "Type": frozenset({"TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}),
    "Mode": frozenset({"MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"}),
    "Behavior": frozenset({"UNSPECIFIED", "BLOCKING", "NON_BLOCKING"}),
    "Modality": frozenset({"MODALITY_UNSPECIFIED", "TEXT", "IMAGE", "AUDIO", "VIDEO"}),
    "ThinkingLevel": frozenset({"THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"}),
    "MediaResolution": frozenset(f"MEDIA_RESOLUTION_{word}" for word in ("UNSPECIFIED", "LOW", "MEDIUM", "HIGH")),
    "HarmBlockThreshold": frozenset({
        "HARM_BLOCK_THRESHOLD_UNSPECIFIED", "BLOCK_LOW_AND_ABOVE", "BLOCK_MEDIUM_AND_ABOVE", "BLOCK_ONLY_HIGH",
        "BLOCK_NONE", "OFF",
    }),
    "HarmCategory": frozenset(
        f"HARM_CATEGORY_{word}"
        for word in (
            "UNSPECIFIED", "HARASSMENT", "HATE_SPEECH", "SEXUALLY_EXPLICIT", "DANGEROUS_CONTENT", "CIVIC_INTEGRITY",
            "JAILBREAK", "IMAGE_HATE", "IMAGE_DANGEROUS_CONTENT", "IMAGE_HARASSMENT", "IMAGE_SEXUALLY_EXPLICIT",
        )
    ),
}  # fmt: skip
"""The enumerations whose values are checked. Type names are accepted in any case, as by Google."""

_PACKAGES: dict[Surface, str] = {
    "developer": "type.googleapis.com/google.ai.generativelanguage.v1beta.",
    "vertex": "type.googleapis.com/google.cloud.aiplatform.v1beta1.",
}
_DEPTH_MAX = 100


@dataclass(frozen=True, slots=True)
class Violation:
    """One place at which a body does not fit its message."""

    field: str
    """The place in Google's notation: snake_case names, list and map positions in brackets."""
    description: str


def as_object(value: Any) -> JsonObject:
    """Return the value if it is an object, else an empty one."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def snake(name: str) -> str:
    """The snake_case form of a camelCase field name, which is how error texts spell it."""
    return re.sub(r"([A-Z])", lambda found: "_" + found.group(1).lower(), name)


def decode_base64(text: str) -> bytes | None:
    """The bytes of base64 text in either alphabet, padded or not; None when it is not base64."""
    standard = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def fit(body: Any, surface: Surface = "developer") -> tuple[JsonObject, list[Violation]]:
    """Fit a request body to its messages; return it in camelCase with only known fields, and the violations."""
    fitting = _Fitting(surface)
    clean = fitting.message("GenerateContentRequest", body, "")
    return clean, fitting.violations


@dataclass(slots=True)
class _Fitting:
    surface: Surface
    violations: list[Violation] = field(default_factory=list[Violation])

    def message(self, name: str, value: Any, path: str) -> JsonObject:
        if not isinstance(value, dict):
            self._wrong(path, _PACKAGES[self.surface] + name, value)
            return {}
        clean: JsonObject = {}
        for key, inner in cast("JsonObject", value).items():
            known = _FIELDS[name].get(key)
            if known is None or known.surface not in (None, self.surface):
                self._report(path, f'Unknown name "{key}"', "Cannot find field.")
            elif inner is not None:  # null is proto JSON's way to omit a field
                clean[known.name] = self.value(known.kind, inner, f"{path}.{snake(known.name)}".lstrip("."))
        return clean

    def value(self, kind: str, value: Any, path: str) -> Any:
        if path.count(".") > _DEPTH_MAX:
            self._report(path, "Message too deep", "Max recursion depth reached.")
            return None
        if kind.startswith("["):
            # A single value where a list belongs is accepted as a list of one; Google's own samples rely on it.
            items = cast("list[Any]", value) if isinstance(value, list) else [value]
            return [self.value(kind[1:-1], item, f"{path}[{index}]") for index, item in enumerate(items)]
        if kind.startswith("{"):
            entries = as_object(value).items()
            return {key: self.value(kind[1:-1], item, f"{path}[{at}].value") for at, (key, item) in enumerate(entries)}
        if isinstance(value, list) and kind != "any":
            parent, _, last = path.rpartition(".")
            self._report(parent, f'Unknown name "{last}"', "Proto field is not repeating, cannot start list.")
            return None
        if kind in MESSAGES:
            return self.message(kind, value, path)
        return self._enumerated(kind, value, path) if kind in ENUMS else self._scalar(kind, value, path)

    def _enumerated(self, kind: str, value: Any, path: str) -> Any:
        if isinstance(value, str) and (value.upper() if kind == "Type" else value) in ENUMS[kind]:
            return value.upper()
        self._wrong(path, _PACKAGES[self.surface] + kind, value)
        return None

    def _scalar(self, kind: str, value: Any, path: str) -> Any:
        if kind == "bytes":
            if isinstance(value, str) and decode_base64(value) is None:
                description = f"Invalid value at '{path}' (TYPE_BYTES), Base64 decoding failed for {json.dumps(value)}"
                self.violations.append(Violation(path, description))
            elif not isinstance(value, str):
                self._wrong(path, "TYPE_BYTES", value)
        elif not _FITS[kind](value):
            self._wrong(path, _TYPE_NAMES[kind], value)
        return value

    def _wrong(self, path: str, type_name: str, value: Any) -> None:
        where = f"Invalid value at '{path}'" if path else "Invalid value"
        shown = json.dumps(value, ensure_ascii=False)[:200]
        self.violations.append(Violation(path, f"{where} ({type_name}), {shown}"))

    def _report(self, path: str, what: str, why: str) -> None:
        place = f" at '{path}'" if path else ""
        self.violations.append(Violation(path, f"Invalid JSON payload received. {what}{place}: {why}"))


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: str
    surface: str | None


def _fields(table: dict[str, str]) -> Iterator[tuple[str, _Field]]:
    for name, spec in table.items():
        kind, _, surface = spec.partition(" ")
        known = _Field(name, kind, surface or None)
        yield name, known
        yield snake(name), known


_FIELDS: dict[str, dict[str, _Field]] = {name: dict(_fields(table)) for name, table in MESSAGES.items()}

_FITS: dict[str, Callable[[Any], bool]] = {
    "any": lambda _: True,
    "struct": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: _is_number(value) and float(value).is_integer(),
    "number": lambda value: _is_number(value),
}
_TYPE_NAMES = {
    "struct": "type.googleapis.com/google.protobuf.Struct", "string": "TYPE_STRING", "bool": "TYPE_BOOL",
    "int": "TYPE_INT32", "number": "TYPE_DOUBLE",
}  # fmt: skip


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", value) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool)
