"""Google's rules for the tools of a request: declarations, their schemas, and the tool configuration.

Takes a fitted request, returns refusals. Knows nothing of contents, and nothing of how callgate declares tools: it is
written from the documented behaviour of the service, and must stay independent to be of value. Each rule is documented or
was observed; its text is Google's if known, and `_OURS` holds the texts that are only our wording.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from callgate.testing.google_fields import Surface, as_list, as_object, snake
from callgate.types import JsonObject

__all__ = ["BARE", "TOOL_RULES", "Case", "Refusal", "Rule", "generation", "json_schema_refusals", "schema_refusals"]

BARE = "Request contains an invalid argument."
"""Google's only text for several errors."""

NEWEST = (99, 0)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NAME_RULE = (
    "[FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9)"
    ", underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
)

_OURS = {
    "two_schemas": "only one of '{plain}' and '{free}' can be set",
    "behavior": "function behavior is only supported by the Live API",
    "parameter_name": "Unable to submit request because the parameter name `{name}` is not valid.",
    "allowed_mode": "[FIELD_INVALID] allowed_function_names can only be set when the mode is ANY or VALIDATED.",
    "allowed_unknown": "[FIELD_INVALID] allowed_function_names has '{name}', which is not a declared function.",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Google's error response instead of a generation."""

    message: str
    """The message of the error."""
    field: str = ""
    """The place that is to blame, in Google's notation."""
    rule: str = ""
    """The name of the broken rule, for readers of a bare message."""
    code: int = 400
    """The HTTP status."""
    status: str = "INVALID_ARGUMENT"
    """The status word."""
    reason: str = ""
    """The machine-readable reason of some refusals, such as `API_KEY_INVALID`."""
    violations: tuple[tuple[str, str], ...] = ()
    """Every place that is to blame, with its description, where there may be several."""

    @property
    def details(self) -> list[JsonObject]:
        """The details that go with the message."""
        rpc = "type.googleapis.com/google.rpc."
        details: list[JsonObject] = []
        if self.field and self.message != BARE:
            places = self.violations or ((self.field, self.message),)
            violations = [{"field": field, "description": description} for field, description in places]
            details.append({"@type": f"{rpc}BadRequest", "fieldViolations": violations})
        if self.reason:
            details.append({"@type": f"{rpc}ErrorInfo", "reason": self.reason, "domain": "googleapis.com"})
        return details


@dataclass(frozen=True, slots=True)
class Case:
    """A fitted request and the circumstances it is judged under."""

    body: JsonObject
    model: str
    surface: Surface = "developer"
    streaming: bool = False
    signatures: frozenset[bytes] | None = None
    """The signatures that were issued; None accepts any."""

    @property
    def version(self) -> tuple[int, int]:
        """The generation of the model, such as (3, 6)."""
        return generation(self.model)

    @property
    def contents(self) -> list[JsonObject]:
        """The conversation."""
        return [as_object(content) for content in as_list(self.body.get("contents"))]

    @property
    def tools(self) -> list[JsonObject]:
        """The tool objects."""
        return [as_object(tool) for tool in as_list(self.body.get("tools"))]

    @property
    def declarations(self) -> list[tuple[str, JsonObject]]:
        """Every function declaration with its place."""
        return [
            (f"tools[{at}].function_declarations[{index}]", as_object(declaration))
            for at, tool in enumerate(self.tools)
            for index, declaration in enumerate(as_list(tool.get("functionDeclarations")))
        ]

    @property
    def calling(self) -> JsonObject:
        """The function calling configuration."""
        return as_object(as_object(self.body.get("toolConfig")).get("functionCallingConfig"))


Rule: TypeAlias = Callable[[Case], Iterator[Refusal]]
"""Check one aspect of a request."""


def generation(model: str) -> tuple[int, int]:
    """The generation in a model's name. Unknown `gemini-*` names count as the newest, other families as the oldest."""
    if not model.startswith("gemini-"):
        return (0, 0)
    found = re.match(r"gemini-(\d+)(?:\.(\d+))?(?:-|$)", model)
    return (int(found[1]), int(found[2] or 0)) if found else NEWEST


def _at(field: str, problem: str) -> Refusal:
    return Refusal(f"* GenerateContentRequest.{field}: {problem}\n", field)


# Declarations ------------------------------------------------------------------------------------------------------------


def _tool_is_set(case: Case) -> Iterator[Refusal]:
    for index, tool in enumerate(case.tools):
        if not any(value != [] for value in tool.values()):
            yield _at(f"tools[{index}].tool_type", "required one_of 'tool_type' must have one initialized field")


def _count(case: Case) -> Iterator[Refusal]:
    if len(case.declarations) > 512:
        yield Refusal("[FIELD_INVALID] At most 512 function declarations can be specified.", "tools")


def _names(case: Case) -> Iterator[Refusal]:
    for field, declaration in case.declarations:
        if not _NAME.fullmatch(declaration.get("name", "")):
            yield _at(f"{field}.name", _NAME_RULE)
    for name, count in Counter(declaration.get("name") for _, declaration in case.declarations).items():
        if count > 1:
            yield Refusal(f"Duplicate function declaration found: {name}", "tools")


def _one_schema_each(case: Case) -> Iterator[Refusal]:
    for field, declaration in case.declarations:
        for plain, free in (("parameters", "parametersJsonSchema"), ("response", "responseJsonSchema")):
            if plain in declaration and free in declaration:
                yield _at(field, _OURS["two_schemas"].format(plain=plain, free=snake(free)))


def _behavior(case: Case) -> Iterator[Refusal]:
    for field, declaration in case.declarations:
        if declaration.get("behavior", "UNSPECIFIED") != "UNSPECIFIED":
            yield _at(f"{field}.behavior", _OURS["behavior"])


def _schemas(case: Case) -> Iterator[Refusal]:
    for field, declaration in case.declarations:
        for key in ("parameters", "response"):
            if key in declaration:
                is_root = key == "parameters" and case.version >= (3, 0)  # Earlier models take an object without properties.
                yield from schema_refusals(declaration[key], f"{field}.{key}", case.surface, is_root=is_root)


def _json_schemas(case: Case) -> Iterator[Refusal]:
    for field, declaration in case.declarations:
        if "parametersJsonSchema" in declaration:
            yield from json_schema_refusals(declaration["parametersJsonSchema"], f"{field}.parameters_json_schema")


# The Schema message ------------------------------------------------------------------------------------------------------


def schema_refusals(schema: Any, field: str, surface: Surface = "developer", *, is_root: bool = False) -> Iterator[Refusal]:
    """Check one node of the OpenAPI dialect and everything under it."""
    node = as_object(schema)
    if is_root and node.get("type") == "OBJECT" and node.get("properties") == {}:
        yield _at(f"{field}.properties", "should be non-empty for OBJECT type")
    for check in (
        _type,
        _enum,
        partial(_format, surface=surface),
        _array,
        _object,
        partial(_parameter_names, surface=surface),
    ):
        yield from check(node, field)
    for name, inner in as_object(node.get("properties")).items():
        yield from schema_refusals(inner, f"{field}.properties[{name}]", surface)
    for index, inner in enumerate(as_list(node.get("anyOf"))):
        yield from schema_refusals(inner, f"{field}.any_of[{index}]", surface)
    if "items" in node:
        yield from schema_refusals(node["items"], f"{field}.items", surface)


def _type(node: JsonObject, field: str) -> Iterator[Refusal]:
    if "anyOf" in node and len(node) > 1:
        yield Refusal(
            f"Unable to submit request because the schema at `{field}` specified other fields alongside any_of. "
            "When using any_of, it must be the only field set.",
            field,
        )


def _enum(node: JsonObject, field: str) -> Iterator[Refusal]:
    kind, is_enum = node.get("type"), node.get("format") == "enum"
    if is_enum and not node.get("enum"):
        yield _at(f"{field}.enum", f"should be non-empty for {kind} type with enum format")
    if node.get("enum") and kind != "STRING" and not (kind == "INTEGER" and is_enum):
        yield _at(f"{field}.enum", "only allowed for STRING type")
    for index, member in enumerate(as_list(node.get("enum"))):
        if member == "":
            yield _at(f"{field}.enum[{index}]", "cannot be empty")


_FORMATS: Mapping[str, Sequence[str]] = {
    "STRING": ("enum", "date-time"), "INTEGER": ("int32", "int64", "enum"), "NUMBER": ("float", "double"),
}  # fmt: skip


def _format(node: JsonObject, field: str, surface: Surface) -> Iterator[Refusal]:
    known = _FORMATS.get(node.get("type", ""))
    if surface == "vertex" and node.get("type") == "STRING":
        return  # the cloud's description of the service lists many more formats for strings
    if known and node.get("format", known[0]) not in known:
        listed = " and ".join(f"'{name}'" for name in known)
        yield _at(f"{field}.format", f"only {listed} are supported for {node['type']} type")


def _array(node: JsonObject, field: str) -> Iterator[Refusal]:
    if node.get("type") == "ARRAY" and "items" not in node:
        yield _at(f"{field}.items", "missing field")


def _object(node: JsonObject, field: str) -> Iterator[Refusal]:
    for index, name in enumerate(as_list(node.get("required"))):
        if name not in as_object(node.get("properties")):
            yield _at(f"{field}.required[{index}]", "property is not defined")


def _parameter_names(node: JsonObject, field: str, surface: Surface) -> Iterator[Refusal]:
    # Only the cloud's description of the service states this rule.
    for name in as_object(node.get("properties")) if surface == "vertex" else ():
        if not _PARAMETER_NAME.fullmatch(name):
            yield Refusal(_OURS["parameter_name"].format(name=name), f"{field}.properties")


# JSON Schema -------------------------------------------------------------------------------------------------------------

_SUBSCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_BESIDE_REF = frozenset({"description", "default"})


def json_schema_refusals(schema: Any, field: str) -> Iterator[Refusal]:
    """Check a `parametersJsonSchema`: an object at the root, and references without siblings that point into `$defs`."""
    root = as_object(schema)
    kinds = root.get("type", "object")
    if not isinstance(schema, dict) or "object" not in (as_list(kinds) or [kinds]):
        yield Refusal(BARE, field, "json_schema_root")
    yield from _references(root, root, field)


def _references(node: JsonObject, root: JsonObject, field: str) -> Iterator[Refusal]:
    target = node.get("$ref")
    if isinstance(target, str):
        if any(not key.startswith("$") and key not in _BESIDE_REF for key in node):
            yield Refusal(f"* GenerateContentRequest.{field}: $ref '{target}' was set alongside unsupported fields\n", field)
        name = target.removeprefix("#/$defs/")
        if target != "#" and (name == target or name not in as_object(root.get("$defs"))):
            yield Refusal(BARE, field, "json_schema_ref")
    for place, inner in _children(node):
        yield from _references(inner, root, f"{field}.{place}")


def _children(node: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for key in _SUBSCHEMAS:
        if isinstance(node.get(key), dict):
            yield key, node[key]
    for key in _LISTS:
        yield from ((f"{key}[{index}]", as_object(inner)) for index, inner in enumerate(as_list(node.get(key))))
    for key in _MAPS:
        yield from ((f"{key}[{name}]", as_object(inner)) for name, inner in as_object(node.get(key)).items())


# Tool configuration ------------------------------------------------------------------------------------------------------

# computerUse has function calls of its own and may be combined with functions.
_BUILT_IN = frozenset({
    "googleSearch", "googleSearchRetrieval", "codeExecution", "urlContext", "googleMaps", "fileSearch", "retrieval",
    "enterpriseWebSearch", "parallelAiSearch", "exaAiSearch",
})  # fmt: skip


def _allowed_names(case: Case) -> Iterator[Refusal]:
    allowed, field = as_list(case.calling.get("allowedFunctionNames")), "tool_config.function_calling_config"
    if allowed and case.calling.get("mode") not in ("ANY", "VALIDATED"):
        yield Refusal(_OURS["allowed_mode"], field)
    declared = {declaration.get("name") for _, declaration in case.declarations}
    for name in allowed:
        if name not in declared:
            yield Refusal(_OURS["allowed_unknown"].format(name=name), field)


def _forced_without_functions(case: Case) -> Iterator[Refusal]:
    is_beside_others = case.version < (3, 6) and any(_BUILT_IN & tool.keys() for tool in case.tools)
    if case.calling.get("mode") in ("ANY", "VALIDATED") and not case.declarations and not is_beside_others:
        yield Refusal("Function calling config is set without function_declarations.", "tool_config.function_calling_config")


def _streamed_arguments(case: Case) -> Iterator[Refusal]:
    if case.calling.get("streamFunctionCallArguments") and not case.streaming:
        yield Refusal(BARE, "tool_config.function_calling_config.stream_function_call_arguments")


def _mixing(case: Case) -> Iterator[Refusal]:
    is_mixed = bool(case.declarations) and any(_BUILT_IN & tool.keys() for tool in case.tools)
    if case.surface == "vertex":
        if is_mixed and (case.version < (3, 0) or len(case.tools) > 1):
            yield Refusal("Multiple tools are supported only when they are all search tools.", "tools")
        return
    has_flag = bool(as_object(case.body.get("toolConfig")).get("includeServerSideToolInvocations"))
    if case.version < (3, 0):
        if has_flag:
            yield Refusal(f"Tool call context circulation is not enabled for models/{case.model}", "tool_config")
        elif is_mixed:
            yield Refusal("Tool use with function calling is unsupported", "tools")
    elif is_mixed and not has_flag:
        yield Refusal(
            "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function calling.",
            "tools",
        )


def _structured_beside_tools(case: Case) -> Iterator[Refusal]:
    mime_type = as_object(case.body.get("generationConfig")).get("responseMimeType")
    if case.version < (3, 0) and mime_type == "application/json" and case.tools:
        what = "Function calling" if case.declarations else "Tool use"
        yield Refusal(f"{what} with a response mime type: 'application/json' is unsupported", "generation_config")


TOOL_RULES: dict[str, Rule] = {
    "tool_is_set": _tool_is_set,
    "declaration_count": _count,
    "declaration_name": _names,
    "one_schema_each": _one_schema_each,
    "behavior": _behavior,
    "schema": _schemas,
    "json_schema": _json_schemas,
    "allowed_function_names": _allowed_names,
    "forced_without_functions": _forced_without_functions,
    "streamed_arguments": _streamed_arguments,
    "mixed_tools": _mixing,
    "structured_beside_tools": _structured_beside_tools,
}
"""The rules for tools by name, in the order in which they are applied."""
