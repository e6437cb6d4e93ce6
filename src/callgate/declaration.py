"""Definitions -> what a model is shown: declarations, the configuration for calling them, and a map of names.

`ToolDefinition`s come in; `tools` and `toolConfig` as Gemini takes them go out, with a map from the names that were sent
back to the tools' own names. The same definitions always give the same bytes. This file knows nothing of running tools.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from callgate import strict_json
from callgate.errors import ToolNotDeclarable, UsageError
from callgate.types import JsonObject, Loss, ToolChoice, ToolDefinition

__all__ = ["Declaration", "declare", "declared_names", "digest", "tool_config"]

NAME_CHARS_MAX = 64
DECLARATIONS_MAX = 512

_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE", "validated": "VALIDATED"}
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]+")
_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What is sent of a set of tools."""

    tools: list[JsonObject]
    """One Tool object with all declarations; empty when there are none."""
    tool_config: JsonObject | None
    names: Mapping[str, str]
    """Declared name -> the tool's own name."""
    losses: list[Loss] = field(default_factory=list[Loss])


def declare(
    definitions: Iterable[ToolDefinition],
    *,
    surface: Literal["developer", "vertex"] = "developer",
    schema_field: Literal["parametersJsonSchema", "parameters"] = "parametersJsonSchema",
    tool_choice: ToolChoice = "auto",
) -> Declaration:
    """Declares the tools, in the order given.

    Raises:
        ToolNotDeclarable: two tools have the same name, or there are more than 512.
        UsageError: an unknown surface, schema field or tool choice.
    """
    definitions = list(definitions)
    if surface not in ("developer", "vertex"):
        raise UsageError(f"unknown surface {surface!r}: use 'developer' or 'vertex'")
    if schema_field == "parameters":
        raise UsageError("schema_field='parameters' is not available in this version: use 'parametersJsonSchema'")
    if schema_field != "parametersJsonSchema":
        raise UsageError(f"unknown schema field {schema_field!r}: use 'parametersJsonSchema'")
    if len(definitions) > DECLARATIONS_MAX:
        raise ToolNotDeclarable(f"{len(definitions)} tools: a request can declare at most {DECLARATIONS_MAX}")
    names = declared_names(definitions)
    declarations = [_declaration(name, d, schema_field) for name, d in zip(names, definitions, strict=True)]
    return Declaration(
        tools=[{"functionDeclarations": declarations}] if declarations else [],
        tool_config=tool_config(tool_choice, names),
        names=names,
    )


def tool_config(choice: ToolChoice, names: Mapping[str, str]) -> JsonObject | None:
    """The `toolConfig` for a choice: `auto`, `required`, `none`, `validated`, or the own name of the one tool to call.

    Raises:
        UsageError: no tool has that name, or a call is required although there are no tools.
    """
    if not names:
        if choice in ("auto", "none", "validated"):
            return None
        raise UsageError(f"tool_choice={choice!r} needs tools, and none are declared")
    if choice in _MODES:
        return {"functionCallingConfig": {"mode": _MODES[choice]}}
    chosen = [declared for declared, own in names.items() if choice in (own, declared)]
    if not chosen:
        known = ", ".join(map(repr, names.values()))
        raise UsageError(f"tool_choice={choice!r} is neither one of {', '.join(map(repr, _MODES))} nor a tool ({known})")
    return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": chosen[:1]}}


def declared_names(definitions: Iterable[ToolDefinition]) -> dict[str, str]:
    """Declared name -> own name, in order. Legal names stay; others get an alias, with a hash where it would be ambiguous.

    Raises:
        ToolNotDeclarable: two tools have the same name.
    """
    own = Counter(d.name for d in definitions)
    if twice := sorted(name for name, count in own.items() if count > 1):
        raise ToolNotDeclarable(f"more than one tool is named {', '.join(map(repr, twice))}: give one of them another name=")
    plain = {name: _legal(name) for name in own}
    wanted = Counter(plain.values())
    return {
        alias if alias == name or wanted[alias] == 1 else f"{alias[: NAME_CHARS_MAX - 9]}_{_hash(name)}": name
        for name, alias in plain.items()
    }


def digest(definition: ToolDefinition) -> str:
    """A short hash of everything that a model or a person was told of the tool; changes whenever any of it does."""
    told: list[Any] = [definition.name, definition.description, definition.input_schema, definition.server, definition.kind]
    return hashlib.sha256(strict_json.dump([*told, definition.read_only, definition.idempotent])).hexdigest()[:16]


def _declaration(name: str, definition: ToolDefinition, schema_field: str) -> JsonObject:
    # A description is optional on the wire, but a model that is not told what a tool does guesses.
    description = definition.description or definition.title or f"Calls {definition.name}."
    declaration: JsonObject = {"name": name, "description": description}
    if definition.input_schema.get("properties") or definition.input_schema.get("additionalProperties"):
        declaration[schema_field] = definition.input_schema
    return declaration


def _legal(name: str) -> str:
    if _LEGAL.fullmatch(name):
        return name
    alias = _ILLEGAL.sub("_", name).strip("_") or "tool"
    alias = alias if alias[0].isalpha() else f"_{alias}"
    # What was replaced or cut off may be all that tells two names apart, so an alias always carries a hash then.
    if len(alias) > NAME_CHARS_MAX or not name.isascii():
        return f"{alias[: NAME_CHARS_MAX - 9]}_{_hash(name)}"
    return alias


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
