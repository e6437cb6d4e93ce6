"""Declare tools: definitions to declarations, the tool configuration, and a map of names.

Takes `ToolDefinition`s; returns `tools` and `toolConfig` in Gemini's form, with a map from declared names to the tools'
own names. Deterministic: the same definitions always give the same bytes. Knows nothing of running tools; of the tools
that run at Google it knows the names.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from callgate import strict_json
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.schema.budget import budget_warnings
from callgate.schema.compile import Compiled, compiled_of
from callgate.types import JsonObject, Loss, ToolChoice, ToolDefinition

__all__ = [
    "AT_CLIENT", "BUILT_IN", "BuiltIn", "Declaration", "declare", "declared_functions", "declared_names", "digest",
    "in_schema_field", "remote_servers", "split_built_in", "tool_config", "without_built_in", "without_functions",
]  # fmt: skip

NAME_CHARS_MAX = 64
DECLARATIONS_MAX = 512

BuiltIn: TypeAlias = "str | Mapping[str, Any]"
"""A tool that runs at Google: its name, or an object that maps the name to its configuration."""

BUILT_IN: Mapping[str, Literal["developer", "vertex"] | None] = {
    "googleSearch": None, "googleSearchRetrieval": None, "codeExecution": None, "urlContext": None, "googleMaps": None,
    "computerUse": None, "fileSearch": "developer", "mcpServers": "developer", "retrieval": "vertex",
    "enterpriseWebSearch": "vertex", "parallelAiSearch": "vertex", "exaAiSearch": "vertex",
}  # fmt: skip
"""Every built-in tool, and the surface that alone has it. Python's spelling (`google_search`) is understood too."""

AT_CLIENT = frozenset({"computerUse"})
"""Built-in tools with calls for the client to answer, which may be combined with functions; all others run at Google."""

_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE", "validated": "VALIDATED"}
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]+")
_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declared form of a set of tools."""

    tools: list[JsonObject]
    """One Tool object with all declarations and built-in tools; empty when there are none."""
    tool_config: JsonObject | None
    """The `toolConfig` of the request; None if none is needed."""
    names: Mapping[str, str]
    """Declared name -> the tool's own name."""
    quarantined: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tools that could not be declared and were left out: own name -> why."""
    compiled: Sequence[Compiled] = field(default=(), repr=False, compare=False)
    """The compiled schemas of the declared tools, in their order."""

    @property
    def losses(self) -> list[Loss]:
        """Parts of the tools' schemas that the declarations lack; see `Loss.instead` for their replacement."""
        return [loss for each in self.compiled for loss in each.losses]

    @property
    def warnings(self) -> list[str]:
        """Sentences about declarations that are so large that a model may refuse them, with the tools to blame."""
        listed: list[JsonObject] = [each for tool in self.tools for each in tool.get("functionDeclarations", ())]
        return budget_warnings(
            {self.names[each["name"]]: each.get("parametersJsonSchema") or each.get("parameters") for each in listed}
        )


def declare(
    definitions: Iterable[ToolDefinition],
    *,
    surface: Literal["developer", "vertex"] = "developer",
    schema_field: Literal["parametersJsonSchema", "parameters"] = "parametersJsonSchema",
    tool_choice: ToolChoice = "auto",
    built_in: Iterable[BuiltIn] = (),
) -> Declaration:
    """Declare the tools, in the order given, followed by the built-in ones.

    A tool whose schema cannot be declared is left out, with the reason in `Declaration.quarantined`.

    Raises:
        ToolNotDeclarableError: two tools have the same name, or there are more than 512.
        UsageError: an unknown surface, schema field, tool choice or built-in tool, or an item that is not a definition.
    """
    definitions = _definitions(definitions)
    if surface not in ("developer", "vertex"):
        raise UsageError(f"unknown surface {surface!r}: use 'developer' or 'vertex'")
    if schema_field not in ("parametersJsonSchema", "parameters"):
        raise UsageError(f"unknown schema field {schema_field!r}: use 'parametersJsonSchema' or 'parameters'")
    if len(definitions) > DECLARATIONS_MAX:
        raise ToolNotDeclarableError(
            f"{len(definitions)} tools: a request can declare at most {DECLARATIONS_MAX}; leave some out, or give the gate "
            "tools_shown= so that the model finds the others by itself"
        )
    names = declared_names(definitions)
    declarations: list[JsonObject] = []
    compiled_all: list[Compiled] = []
    quarantined: dict[str, str] = {}
    for name, definition in zip(list(names), definitions, strict=True):
        try:
            if not definition.name.strip():
                raise ToolNotDeclarableError(f"tool {definition.name!r}: it has no name to be called by; give it one")
            compiled = compiled_of(definition, field=schema_field, surface=surface)
        except ToolNotDeclarableError as error:
            quarantined[definition.name] = str(error)
            del names[name]
            continue
        declarations.append(_declaration(name, definition, schema_field, compiled))
        compiled_all.append(compiled)
    if isinstance(cast("Any", tool_choice), str) and tool_choice in quarantined:
        raise UsageError(f"tool_choice={tool_choice!r} cannot be declared: {quarantined[tool_choice]}")
    # Some combinations are refused in several Tool objects, but not in a single one.
    tool: JsonObject = {"functionDeclarations": declarations} if declarations else {}
    tool |= _built_in_fields(built_in)
    if tool_choice == "auto" and any(name not in AT_CLIENT for name in tool if name != "functionDeclarations"):
        tool_choice = "validated"  # Google's own default for such a mix.
    return Declaration(
        tools=[tool] if tool else [],
        tool_config=tool_config(tool_choice, names),
        names=names,
        quarantined=quarantined,
        compiled=compiled_all,
    )


def _definitions(given: Any) -> list[ToolDefinition]:
    definitions: list[Any] = [given] if isinstance(given, ToolDefinition) else list(given)
    for definition in definitions:
        if not isinstance(definition, ToolDefinition):
            raise UsageError(f"declare takes ToolDefinitions, not {definition!r:.200}: make one with definition_from()")
        if not isinstance(cast("Any", definition.name), str):
            raise ToolNotDeclarableError(f"a tool has the name {definition.name!r}, which is not text: give it a name")
    return definitions


def in_schema_field(
    declaration: Declaration,
    definitions: Iterable[ToolDefinition],
    schema_field: Literal["parametersJsonSchema", "parameters"],
    *,
    surface: Literal["developer", "vertex"] = "developer",
) -> list[JsonObject]:
    """Return the tools of a declaration, under the same names, with their schemas in another field.

    Raises:
        ToolNotDeclarableError: a tool cannot be declared that way.
        UsageError: there is no such field.
    """
    if schema_field not in ("parametersJsonSchema", "parameters"):
        raise UsageError(f"unknown schema field {schema_field!r}: use 'parametersJsonSchema' or 'parameters'")
    known = {definition.name: definition for definition in definitions}

    def written(name: str) -> JsonObject:
        definition = known[declaration.names[name]]
        compiled = compiled_of(definition, field=schema_field, surface=surface)
        return _declaration(name, definition, schema_field, compiled)

    functions = "functionDeclarations"
    return [
        {**tool, functions: [written(each["name"]) for each in tool[functions]]} if functions in tool else tool
        for tool in declaration.tools
    ]


def declared_functions(declaration: Declaration) -> list[JsonObject]:
    """Return the functions of a declaration as plain fields: `name`, `description`, and `parameters`, a JSON Schema."""
    listed: list[JsonObject] = [each for tool in declaration.tools for each in tool.get("functionDeclarations", ())]
    return [
        {
            "name": each["name"],
            "description": each["description"],
            "parameters": each.get("parametersJsonSchema") or {"type": "object", "properties": {}},
        }
        for each in listed
    ]


def remote_servers(declaration: Declaration) -> list[str]:
    """Return the names of the MCP servers that Google calls by itself, past every permission of this side."""
    servers: list[Any] = [server for tool in declaration.tools for server in tool.get("mcpServers", ())]
    return [str(strict_json.objects_in([server])[0].get("name")) for server in servers if isinstance(server, Mapping)]


def without_functions(declaration: Declaration) -> Declaration:
    """Return the declared tools besides functions: those that run at Google."""
    tools = [{key: value for key, value in tool.items() if key != "functionDeclarations"} for tool in declaration.tools]
    return Declaration(tools=[tool for tool in tools if tool], tool_config=None, names={})


def without_built_in(declaration: Declaration) -> tuple[Declaration, list[str]]:
    """Return the declared functions alone, and the names of the other tools."""
    names = [key for tool in declaration.tools for key in tool if key != "functionDeclarations"]
    tools = [{key: value for key, value in tool.items() if key not in names} for tool in declaration.tools]
    return (replace(declaration, tools=[tool for tool in tools if tool]) if names else declaration), names


def tool_config(choice: ToolChoice, names: Mapping[str, str]) -> JsonObject | None:
    """Return the `toolConfig` for a choice: `auto`, `required`, `none`, `validated`, or the own name of the one tool to
    call.

    Raises:
        UsageError: no tool has that name, or a call is required although there are no tools.
    """
    if not names:
        if choice in ("auto", "none", "validated"):
            return None
        raise UsageError(f"tool_choice={choice!r} needs tools, and none are declared")
    if isinstance(cast("Any", choice), str) and choice in _MODES:
        return {"functionCallingConfig": {"mode": _MODES[choice]}}
    chosen = [declared for declared, own in names.items() if choice in (own, declared)]
    if not chosen:
        known = ", ".join(map(repr, names.values()))
        raise UsageError(f"tool_choice={choice!r} is neither one of {', '.join(map(repr, _MODES))} nor a tool ({known})")
    return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": chosen[:1]}}


def split_built_in(tools: Iterable[object]) -> tuple[list[object], list[BuiltIn]]:
    """Separate tools that run here from built-in ones: names, and objects of only such names (or of one unknown one)."""
    ours: list[object] = []
    theirs: list[BuiltIn] = []
    tools = [*tools]
    # Asked of classes, because there are few of those: `isinstance` with `Mapping` is slow.
    kinds: set[type] = {kind for kind in {*map(type, tools)} if issubclass(kind, str) or issubclass(kind, Mapping)}
    for item in cast("list[Any]", tools):
        if type(item) in kinds and (isinstance(item, str) or _looks_built_in(item)):
            theirs.append(cast("BuiltIn", item))
        else:
            ours.append(cast("object", item))
    return ours, theirs


def declared_names(definitions: Iterable[ToolDefinition]) -> dict[str, str]:
    """Map declared names to own names, in order. Legal names stay; others get an alias, with a hash if it is ambiguous.

    Raises:
        ToolNotDeclarableError: two tools have the same name.
    """
    given = [definition.name for definition in definitions]
    if len(set(given)) == len(given) and all(map(_LEGAL.fullmatch, given)):
        return {name: name for name in given}
    own = Counter(given)
    if twice := sorted(name for name, count in own.items() if count > 1):
        raise ToolNotDeclarableError(
            f"more than one tool is named {', '.join(map(repr, twice))}: give one of them another name="
        )
    plain = {name: _legal(name) for name in own}
    wanted = Counter(plain.values())
    taken = {alias for name, alias in plain.items() if alias == name or wanted[alias] == 1}
    declared: dict[str, str] = {}
    for name, alias in plain.items():
        if alias != name and wanted[alias] > 1:
            alias = _free_alias(alias, name, taken)
        declared[alias] = name
    return declared


def digest(definition: ToolDefinition) -> str:
    """A short hash of everything that a model or a person was told of the tool, which differs whenever any of it does.

    Made once for a definition, which is read-only: what is declared of it is made once too.
    """
    known = _DIGESTS.get(id(definition))
    if known is None or known[0] is not definition:
        if len(_DIGESTS) >= _DIGESTS_MAX:
            _DIGESTS.clear()
        known = _DIGESTS[id(definition)] = (definition, _digest(definition))
    return known[1]


_DIGESTS: dict[int, tuple[ToolDefinition, str]] = {}
"""By the identity of the definition, which is kept so that no other can have it."""
_DIGESTS_MAX = 4_096


def _digest(definition: ToolDefinition) -> str:
    told: list[Any] = [definition.own_name, definition.title, definition.description, definition.input_schema]
    told += [definition.server, definition.kind, definition.read_only, definition.idempotent]
    return sys.intern(hashlib.sha256(strict_json.dump(told)).hexdigest()[:16])  # Many gates have the same tools.


_SPELLED = {spelled: name for name in BUILT_IN for spelled in (name, re.sub("([A-Z])", r"_\1", name).lower())}
_SPELLED["mcp_server"] = "mcpServers"
# A list of servers: there is nothing to switch on by its bare name.
_CONFIGURED = frozenset({"mcpServers"})


def _looks_built_in(item: Mapping[str, Any]) -> bool:
    if "functionDeclarations" in item or "function_declarations" in item:
        return False
    return len(item) == 1 or (bool(item) and all(key in _SPELLED for key in item))


def _built_in_fields(built_in: Iterable[BuiltIn]) -> JsonObject:
    """The fields of a Tool object for the built-in tools."""
    fields: JsonObject = {}
    for item in built_in:
        for spelled, value in {item: None}.items() if isinstance(item, str) else item.items():
            name = _SPELLED.get(spelled)
            if name is None:
                near = difflib.get_close_matches(str(spelled), _SPELLED, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(BUILT_IN)}"
                raise UsageError(f"there is no built-in tool {spelled!r} (functions are passed as such): {hint}")
            if name in fields and spelled != "mcp_server":
                raise UsageError(f"the built-in tool {name!r} is given twice: keep one of them")
            if value is None and name in _CONFIGURED:
                raise UsageError(f"the built-in tool {name!r} needs its configuration: pass {{{name!r}: [...]}}")
            if name == "mcpServers":
                fields[name] = [*fields.get(name, ()), *_servers(value)]
            else:
                fields[name] = {} if value is None else value
    return fields


def _servers(value: Any) -> list[Any]:
    """MCP servers in Gemini's form; `{"name": ..., "url": ...}` alone is understood too."""
    listed: list[Any] = [value] if isinstance(value, Mapping) else list(value)
    return [
        _server(cast("Mapping[str, Any]", each)) if isinstance(each, Mapping) and "url" in each else each for each in listed
    ]


def _server(server: Mapping[str, Any]) -> JsonObject:
    inner = {key: server[key] for key in ("url", "headers") if key in server}
    rest = {key: value for key, value in server.items() if key not in ("url", "headers", "type")}
    return rest | {"streamableHttpTransport": inner}


def _declaration(name: str, definition: ToolDefinition, schema_field: str, compiled: Compiled) -> JsonObject:
    # A description is optional on the wire, but without one a model guesses what a tool does.
    description = definition.description or definition.title or f"Calls {definition.name}."
    if compiled.note and compiled.note not in description:
        description = f"{description}\nArguments: {compiled.note}"
    declaration: JsonObject = {"name": name, "description": description}
    if compiled.schema is not None:
        declaration[schema_field] = compiled.schema
    return declaration


def _free_alias(alias: str, name: str, taken: set[str]) -> str:
    """Return an alias with a unique hash suffix; a tool may have the alias of another one as its name."""
    hashes = (_hash(name + "\0" * again) for again in itertools.count())
    free = next(hashed for h in hashes if (hashed := f"{alias[: NAME_CHARS_MAX - 9]}_{h}") not in taken)
    taken.add(free)
    return free


def is_legal_name(name: str) -> bool:
    """True if a model can be given this name of a tool as it is."""
    return _LEGAL.fullmatch(name) is not None


def _legal(name: str) -> str:
    if _LEGAL.fullmatch(name):
        return name
    alias = _ILLEGAL.sub("_", name).strip("_") or "tool"
    alias = alias if alias[0].isalpha() else f"_{alias}"
    # The replaced or truncated characters may be the only difference between two names, so such an alias always has a hash.
    if len(alias) > NAME_CHARS_MAX or not name.isascii():
        return f"{alias[: NAME_CHARS_MAX - 9]}_{_hash(name)}"
    return alias


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
