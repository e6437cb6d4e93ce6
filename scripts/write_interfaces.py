"""Writes docs/reference/command.md and http-api.md: python scripts/write_interfaces.py [--check]

The first is made from the commands of `callgate` and their options, the second from the service's OpenAPI document and its
events. `--check` writes nothing, and exits with 1 if a page is out of date.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from callgate import Gate, ScriptedModel
from callgate.cli import cli
from callgate.events import EVENTS, Event
from callgate.server import Service, create_app
from callgate.server.openapi import document

APIS = {
    "/v1beta/": "Google",
    "/v1/models/{model}:": "Google",
    "/v1/interactions": "Google",
    "/v1/messages": "Anthropic",
    "/v1/": "OpenAI",
}
"""Beginning of a path -> whose API it is compatible with: that one describes most of its fields."""
FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"


# The command -------------------------------------------------------------------------------------------------------------


def command_page() -> str:
    """The page of the command line."""
    head = [
        "# The command line, option by option\n",
        "Made from `callgate --help` by `scripts/write_interfaces.py`; [command line](../cli.md) is the guide. Exit codes: 0"
        " success, 1 error, 2 wrong usage, 42 bad input, 53 turn limit, 130 interrupted.\n",
    ]
    return "\n".join([*head, *commands(cli, ("callgate",))]).rstrip() + "\n"


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    """The sections of a command and of all commands below it."""
    context = click.Context(command, info_name=" ".join(path))
    if len(path) > 1:
        pieces = command.collect_usage_pieces(context)
        yield f"{'#' * min(len(path), 3)} {' '.join(path)}\n"
        yield f"```text\n{' '.join([*path, *pieces])}\n```\n"
        yield paragraphs(command.help)
        rows = [row(parameter, context) for parameter in command.params if isinstance(parameter, click.Option)]
        if shown := [each for each in rows if each]:
            yield "\n".join(["| option | |", "|---|---|", *shown, ""])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from commands(found, (*path, name))


def row(option: click.Option, context: click.Context) -> str:
    """The row of an option as its help shows it; empty for a hidden one."""
    record = option.get_help_record(context)
    if record is None:
        return ""
    names, words = (cell(part) for part in record)
    return f"| `{names}` | {words} |"


def paragraphs(text: str | None) -> str:
    """Help as Markdown: what click keeps as it is written becomes a block."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        if paragraph.startswith("\b"):
            lines += ["```text", paragraph.removeprefix("\b").strip("\n"), "```", ""]
        else:
            lines += [paragraph, ""]
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


# The service -------------------------------------------------------------------------------------------------------------


def http_page() -> str:
    """The page of the HTTP interface."""
    found = document(create_app(Service(Gate(ScriptedModel([])))).routes)
    head = [
        "# The HTTP interface, path by path\n",
        "Made from the service's OpenAPI document by `scripts/write_interfaces.py`; [HTTP service](../service.md) is the"
        " guide. A running service has the document at `/openapi.json`, and a page of it at `/docs`. Errors have the shape"
        " `Error` below; [errors](../service.md#errors) lists their codes.\n",
    ]
    operations = [
        operation(f"{method.upper()} {path}", described)
        for path, methods in found["paths"].items()
        for method, described in methods.items()
    ]
    error = ["## Error\n", block(found["components"]["schemas"]["Error"])]
    return "\n".join([*head, *event_types(), *operations, *error]).rstrip() + "\n"


def event_types() -> Iterator[str]:
    """The types of the events of streams, each with the class that describes it."""
    yield "## Events\n"
    yield "The `type` of each event of a stream, with its fields; [events](events.md) describes them.\n"
    yield "\n".join(["| type | class | fields |", "|---|---|---|", *map(event_row, EVENTS), ""])


def event_row(kind: type[Event]) -> str:
    """The row of one type of event."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
    fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind))
    return f"| `{name}` | [`{kind.__name__}`](events.md#{kind.__name__.lower()}) | {fields} |"


def operation(title: str, described: dict[str, Any]) -> str:
    """The section of a method of a path."""
    foreign = next((api for beginning, api in APIS.items() if title.partition(" ")[2].startswith(beginning)), "")
    parts = [f"## {title}\n", f"{described['summary']}.\n"]
    if "description" in described:
        parts.append(described["description"] + "\n")
    if parameters := described["parameters"]:
        rows = [
            f"| `{each['name']}` | {each['in']}{', required' if each['required'] else ''} | `{kind_of(each['schema'])}` | "
            f"{words_of(each['schema'], foreign if each['in'] == 'query' else '')} |"
            for each in parameters
        ]
        parts += ["| parameter | in | type | |", "|---|---|---|---|", *rows, ""]
    if "requestBody" in described:
        content = described["requestBody"]["content"]["application/json"]["schema"]
        parts += ["Request:\n", *fields(content, foreign=foreign)]
    shapes: dict[str, list[str]] = {}  # Equal responses are shown once.
    for status, answer in described["responses"].items():
        for kind, content in answer.get("content", {}).items() if status.startswith("2") else ():
            shapes.setdefault(f"`{kind}`:\n\n" + "\n".join(fields(content["schema"], foreign=foreign)), []).append(status)
    parts += [f"Response {' and '.join(statuses)}, {shape}" for shape, statuses in shapes.items()]
    failures = [status for status in described["responses"] if not status.startswith("2")]
    parts += [f"Errors: {', '.join(failures)}.", ""]
    return "\n".join(parts)


def fields(schema: dict[str, Any], *, foreign: str = "") -> list[str]:
    """A schema as a table of its properties, or as JSON where it has none."""
    if not schema.get("properties"):
        return [block(schema)]
    return ["| field (* required) | type | |", "|---|---|---|", *rows_of(schema, "", foreign), ""]


def rows_of(schema: dict[str, Any], place: str, foreign: str) -> Iterator[str]:
    """The rows of the properties of a schema, and of what is inside those, unless another API describes that."""
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        yield f"| `{place}{name}`{' *' if name in required else ''} | `{kind_of(each)}` | {words_of(each, foreign)} |"
        if not foreign:
            yield from rows_of(each, f"{place}{name}.", foreign)
            yield from rows_of(each.get("items", {}), f"{place}{name}[].", foreign)


def words_of(schema: dict[str, Any], foreign: str) -> str:
    """The description of a field; another API has that of its own fields."""
    return cell(schema.get("description") or (f"As in the API of {foreign}." if foreign else ""))


def kind_of(schema: dict[str, Any]) -> str:
    """A schema in a word or two."""
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(kind_of(each) for each in schema[key]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    kinds: list[str] = [schema.get("type", "any")] if isinstance(schema.get("type", ""), str) else schema["type"]
    items = f" of {kind_of(schema.get('items', {}))}" if "array" in kinds else ""
    return " or ".join(kinds) + items


def block(schema: dict[str, Any]) -> str:
    """A schema as it stands."""
    return f"```json\n{json.dumps(schema, indent=2)}\n```\n"


def main(arguments: list[str]) -> int:
    """Write the pages, or name those that are out of date."""
    pages = {"command.md": command_page(), "http-api.md": http_page()}
    stale = [n for n, t in pages.items() if not (FOLDER / n).is_file() or (FOLDER / n).read_text("utf-8") != t]
    if "--check" in arguments:
        if stale:
            print(f"out of date: {', '.join(stale)}; run python scripts/write_interfaces.py")
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).write_text(pages[name], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
