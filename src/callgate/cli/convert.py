"""`callgate convert`: a file in one format in, JSON in another format out.

The JSON goes to stdout; on a terminal, losses are also listed on stderr. `callgate.definitions` does the conversion.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any, cast

import click

from callgate.cli.json_input import InputError, json_from
from callgate.cli.render import escape, is_terminal, one_line
from callgate.errors import UsageError
from callgate.types import Loss

__all__ = ["FORMAT_NAMES", "convert", "echo_json", "in_words_of_the_command", "loss_lines"]

FORMAT_NAMES = (
    "amazon_q",
    "anthropic",
    "bedrock",
    "gemini",
    "interactions",
    "json_schema",
    "mcp",
    "openai",
    "snakepit",
)
"""The formats that a file can be of. Here once more, so that help needs no import; a test compares."""


@click.command()
@click.argument("file")
@click.option("--from", "source", type=click.Choice(FORMAT_NAMES), help="The format of FILE; detected if omitted.")
@click.option("--to", "target", type=click.Choice(FORMAT_NAMES), required=True, help="The format to write.")
@click.option(
    "--kind", type=click.Choice(["tool", "call", "result", "history"]), help="Content of FILE; detected if omitted."
)
def convert(file: str, source: str | None, target: str, kind: str | None) -> None:
    """Convert FILE (- for stdin), which holds JSON, and print {"value", "names", "losses"}.

    `names` maps each name in `value` to the tool's own name; `losses` lists what could not be converted, where it was and
    what replaces it.

    Exit codes: 0, 2 wrong usage, 42 bad input.
    """
    value = json_from(file)
    from callgate.definitions import convert as converted_from

    try:
        converted = converted_from(value, source=source, target=target, kind=cast("Any", kind))
    except UsageError as error:
        raise InputError(f"{'stdin' if file == '-' else repr(file)}: {in_words_of_the_command(str(error))}") from error
    losses = [dataclasses.asdict(loss) for loss in converted.losses]
    echo_json({"value": converted.value, "names": dict(converted.names), "losses": losses})
    if converted.losses and is_terminal(sys.stderr):
        count = len(converted.losses)
        lines = [f"{count} loss{'es' if count > 1 else ''}:", *loss_lines(converted.losses)]
        click.echo("\n".join(lines), err=True)


def echo_json(value: Any) -> None:
    """Print JSON, with characters as they are if stdout can write them, and is not a terminal that they could steer."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    click.echo(json.dumps(value, ensure_ascii=encoding != "utf8" or is_terminal(sys.stdout), indent=2))


def loss_lines(losses: list[Loss], indent: str = "  ") -> list[str]:
    """Format losses as a table: where, what, why and what instead."""
    rows = [(escape(loss.pointer or "/"), escape(loss.keyword), _why(loss)) for loss in losses]
    widths = [min(max(len(row[column]) for row in rows), 44) for column in (0, 1)]
    return [f"{indent}{place:<{widths[0]}}  {keyword:<{widths[1]}}  {why}" for place, keyword, why in rows]


def _why(loss: Loss) -> str:
    return one_line(loss.reason + (f" -> {loss.instead}" if loss.instead else ""), 300)


def in_words_of_the_command(sentence: str) -> str:
    """The sentence with options in place of the parameters of a function."""
    return sentence.replace("source=", "--from ").replace("format=", "--format ").replace("kind=", "--kind ")
