"""`callgate tools`: how a model sees tools, and what is wrong with them.

Takes a file with tools of any format; prints a table, or JSON for programs. Nothing is run.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import click

from callgate.cli.convert import FORMAT_NAMES, echo_json, loss_lines
from callgate.cli.json_input import InputError, json_from
from callgate.cli.options import APPROVAL_MODES, set_option
from callgate.cli.render import escape, is_terminal, one_line
from callgate.cli.settings import settled
from callgate.cli.style import has_color, marks_of, painted
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.types import JsonObject, Loss, ToolDefinition, Verdict

if TYPE_CHECKING:
    from callgate.permission import Mode

__all__ = ["tools"]

DESCRIPTION_CHARS_MAX = 10_000
"""Longer descriptions are cut by some systems, and read by no model."""
PARAMETER_CHARS_MAX = 80
"""Characters of one parameter in a list of tools."""
TOOLS_MANY = 128
"""With more tools than this, models choose badly and some models refuse."""


@click.group(invoke_without_command=True)
@click.pass_context
def tools(ctx: click.Context) -> None:
    """List tools and check them for problems; without a command, list them with their permissions."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_tools)


@tools.command(name="list", short_help="List tools, and whether their calls are allowed.")
@click.option("-T", "--tool", multiple=True, metavar="TOOL", help="module, module:fn, file.py or file.py:fn; repeatable.")
@click.option("--root", metavar="DIR", help="Folder that the file tools work in; without -T the current one.")
@click.option("--policy", metavar="FILE", help="Rules in TOML.")
@click.option("--approval-mode", type=click.Choice(APPROVAL_MODES), help="Calls that need approval; see `chat --help`.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="A table, or one JSON object.")
@set_option
def list_tools(
    tool: Sequence[str] = (),
    root: str | None = None,
    policy: str | None = None,
    approval_mode: Mode | None = None,
    output: str = "text",
    settings: Sequence[str] = (),
) -> None:
    """List the tools of `callgate chat` with these options, their parameters, and whether calls are allowed.

    Whether calls are allowed, need approval or are denied, and why, is decided by the same rules as in a chat.

    Exit codes: 0, 2 wrong usage, 42 bad input.
    """
    from callgate.cli.build_chat import policy_of
    from callgate.cli.demo_tools import HONEST_TOOLS
    from callgate.cli.tools import file_tools, load_tools
    from callgate.tools.executor import Executor

    given: dict[str, Any] = {
        "tool": tuple(tool), "root": root, "policy": policy, "approval_mode": approval_mode, "settings": settings,
    }  # fmt: skip
    held = settled(given)
    rules = policy_of(given["policy"], given["approval_mode"], held)
    tool, root = given["tool"], given["root"]
    try:
        definitions = Executor([*(load_tools(tool) if tool else HONEST_TOOLS), *file_tools(root, tool)]).definitions
    except UsageError as error:
        raise InputError(str(error)) from error
    explained = [(definition, rules.explain(definition)) for definition in definitions]
    if output == "json":
        told = {d.name: dataclasses.asdict(d) | dataclasses.asdict(found) for d, found in explained}
        echo_json({"tools": told, "mode": rules.mode, "problems": list(rules.problems)})
        return
    lines = [f"{_mark('problem', 'failed')}  {escape(problem)}" for problem in rules.problems]
    shown = [_usage(definition) for definition in definitions]
    width = min(max(map(len, shown), default=0), 64)
    for usage, (definition, found) in zip(shown, explained, strict=True):
        hidden = "" if found.declared else " It is not declared."
        lines.append(f"{_verdict(found.verdict)}  {usage:<{width}}  {escape(found.reason)}{hidden}")
        if description := definition.description.strip().splitlines():
            lines.append(f"       {escape(description[0])}")
        lines += [f"       {escape(condition)}" for condition in found.conditions]
    click.echo("\n".join(lines), color=is_terminal(sys.stdout))


def _usage(definition: ToolDefinition) -> str:
    taken = cast("dict[str, Any]", definition.input_schema.get("properties", {}))
    required = cast("Sequence[str]", definition.input_schema.get("required") or ())
    shown = (_parameter(name, schema, is_required=name in required) for name, schema in taken.items())
    return escape(f"{definition.name}({', '.join(shown)})")


def _parameter(name: str, schema: Any, *, is_required: bool) -> str:
    """One parameter with its type and default, as in `unit: "c" | "f" = "c"`; a question mark: it may be left out."""
    fields = cast("JsonObject", schema) if isinstance(schema, dict) else {}
    default = f" = {json.dumps(fields['default'], ensure_ascii=False)}" if "default" in fields else ""
    optional = "" if is_required or default else "?"
    kind = _type_of(fields)
    return one_line(f"{name}{optional}{f': {kind}' if kind else ''}{default}", PARAMETER_CHARS_MAX)


def _type_of(schema: JsonObject) -> str:
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema.get("enum", [schema.get("const")]))
    choices = cast("list[Any]", schema.get("anyOf") or schema.get("oneOf") or [])
    if choices:
        return " | ".join(
            dict.fromkeys(_type_of(cast("JsonObject", one)) if isinstance(one, dict) else "any" for one in choices)
        )
    kind = schema.get("type")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"array of {_type_of(schema['items'])}" if schema["items"] else "array"
    if isinstance(kind, list):
        return " | ".join(map(str, cast("list[Any]", kind)))
    return str(kind) if kind else str(schema["$ref"]).rpartition("/")[2] if "$ref" in schema else ""


def _verdict(verdict: Verdict) -> str:
    return _mark(f"{verdict:<5}", {"allow": "done", "ask": "question", "deny": "failed"}[verdict])


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """The findings about one tool."""

    name: str
    sent: str | None
    """The name that a model sees; None if the tool cannot be declared."""
    losses: list[Loss]
    problems: list[str]


@tools.command(short_help="Check tools for problems.")
@click.argument("file")
@click.option("--format", "source", type=click.Choice(FORMAT_NAMES), help="The format of FILE; detected if omitted.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="A table, or one JSON object.")
@click.pass_context
def lint(ctx: click.Context, file: str, source: str | None, output: str) -> None:
    """Check each tool in FILE (JSON, a Python file, or - for JSON from stdin): its declared name, losses and problems.

    Exit codes: 0, 1 a tool has problems, 2 wrong usage, 42 bad input.
    """
    named = "stdin" if file == "-" else repr(file)
    definitions, losses = (_of_python(file), []) if file.endswith(".py") else _read(json_from(file), source, named)
    linted = list(_linted(definitions))
    general = _general(definitions)
    if output == "json":
        echo_json({
            "tools": [dataclasses.asdict(tool) for tool in linted],
            "losses": [dataclasses.asdict(loss) for loss in losses],
            "problems": general,
        })  # fmt: skip
    else:
        click.echo("\n".join(_table(linted, losses, general)), color=is_terminal(sys.stdout))
    ctx.exit(1 if general or any(tool.problems for tool in linted) else 0)


def _of_python(file: str) -> list[ToolDefinition]:
    from callgate.cli.tools import load_tools
    from callgate.tools.executor import Executor

    try:
        return Executor(load_tools((file,))).definitions
    except UsageError as error:
        raise InputError(str(error)) from error


def _read(value: Any, source: str | None, named: str) -> tuple[list[ToolDefinition], list[Loss]]:
    from callgate.definitions.detection import read

    try:
        found = read(value, source=source, kind="tool", say="--format")
    except UsageError as error:
        raise InputError(f"{named}: {str(error).replace('--format=', '--format ')}") from error
    return [tool.definition for tool in found.items], found.losses


# Problems ----------------------------------------------------------------------------------------------------------------


def _general(definitions: Sequence[ToolDefinition]) -> list[str]:
    """Find problems of the set of tools as a whole."""
    from callgate.declaration import DECLARATIONS_MAX, declare

    count = len(definitions)
    if count > DECLARATIONS_MAX:
        return [f"there are {count} tools; a request can declare at most {DECLARATIONS_MAX}"]
    found = [f"there are {count} tools; models choose badly among so many"] if count > TOOLS_MANY else []
    return found + declare({definition.name: definition for definition in definitions}.values()).warnings


def _linted(definitions: Sequence[ToolDefinition]) -> Iterator[Linted]:
    from callgate.declaration import declare, declared_names

    count = Counter(definition.name for definition in definitions)
    once = {name: alias for alias, name in declared_names({d.name: d for d in definitions}.values()).items()}
    for definition in definitions:
        problems = list(_problems(definition))
        if count[definition.name] > 1:
            problems.append(f"{count[definition.name]} tools have this name")
        declaration = declare([definition])
        problems += [reason for reason in declaration.quarantined.values() if reason not in problems]
        sent = None if declaration.quarantined else once[definition.name]
        yield Linted(name=definition.name, sent=sent, losses=declaration.losses, problems=problems)


def _problems(definition: ToolDefinition) -> Iterator[str]:
    from callgate.schema.validator import validator_of

    schema = definition.input_schema
    if not definition.name:
        yield "it has no name"
    if not definition.description.strip():
        yield "it has no description, so that a model must guess what it does"
    elif len(definition.description) > DESCRIPTION_CHARS_MAX:
        yield f"its description has {len(definition.description)} characters"
    kind = schema.get("type", "object")
    if kind != "object" and kind != ["object"]:
        yield f"its arguments are declared as {kind!r}, and can only be an object"
    properties = schema.get("properties", {})
    listed = schema.get("required", [])
    if isinstance(listed, list) and isinstance(properties, dict):
        for name in cast("list[Any]", listed):
            if name not in properties:
                yield f"{name!r} is required, but not among its properties"
    try:
        yield from (f"its schema is not quite JSON Schema: {slip}" for slip in validator_of(definition).slips)
    except ToolNotDeclarableError as error:
        yield str(error)


# For people --------------------------------------------------------------------------------------------------------------


def _table(linted: Sequence[Linted], losses: list[Loss], general: list[str]) -> Iterator[str]:
    fine = sum(not tool.problems and not tool.losses for tool in linted)
    plural = "" if len(linted) == 1 else "s"
    yield f"{len(linted)} tool{plural}, {fine} without losses or problems"
    for problem in general:
        yield f"  {_mark('problem', 'failed')}  {escape(problem)}"
    if losses:
        yield "not read:"
        yield from loss_lines(losses)
    width = max((len(escape(tool.name)) for tool in linted), default=0)
    for tool in linted:
        yield f"{_symbol(tool)} {escape(tool.name):<{min(width, 64)}}  {_sent(tool)}".rstrip()
        for problem in tool.problems:
            yield f"    {_mark('problem', 'failed')}  {escape(problem)}"
        if tool.losses:
            yield from loss_lines(tool.losses, "    " + _mark("loss", "notice") + "     ")


def _sent(tool: Linted) -> str:
    if tool.sent is None:
        return "cannot be declared"
    return f"sent as {tool.sent}" if tool.sent != tool.name else ""


def _symbol(tool: Linted) -> str:
    meaning = "failed" if tool.problems else "notice" if tool.losses else "done"
    return _mark(marks_of(sys.stdout)[meaning], meaning)


def _mark(word: str, meaning: str) -> str:
    return painted(word, meaning) if has_color(sys.stdout) else word
