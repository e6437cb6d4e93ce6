"""`callgate chat`: its command-line interface.

Parses arguments into `Options`, hands them to `prompts.py` and returns its exit code. Nothing slow is imported here: help
and shell completion read this file.
"""

from __future__ import annotations

from typing import Any

import click

from callgate.cli.options import (
    API_NAMES,
    APPROVAL_MODES,
    CALL_MODES,
    OUTPUTS,
    PROVIDER_NAMES,
    options_of,
    session_options,
    set_option,
    workers_option,
)

__all__ = ["chat"]

_FILE = click.Path()


def _models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of models, for a shell that completes them."""
    known = [f"{name}:" for name in PROVIDER_NAMES[1:]]
    known += ["gemini-flash-latest", "gemini-flash-lite-latest", "gemini-pro-latest"]
    return [name for name in known if name.startswith(incomplete)]


@click.command()
@click.argument("prompt", required=False)
@click.option("-p", "--prompt", "prompt_option", metavar="TEXT", help="The prompt, like PROMPT; answer it and exit.")
@click.option("-a", "--attach", multiple=True, type=_FILE, metavar="FILE", help="Attach a file to the prompt; repeatable.")
@click.option(
    "-T", "--tool", multiple=True, type=_FILE, metavar="TOOL", help="module, module:fn, file.py or file.py:fn; repeatable."
)
@workers_option
@click.option(
    "--root", type=click.Path(), metavar="DIR", help="Folder that the file tools work in; without -T the current one."
)
@click.option(
    "--mcp", multiple=True, type=_FILE, metavar="FILE", help="A file with mcpServers, whose tools can be called; repeatable."
)
@click.option("--provider", type=click.Choice(PROVIDER_NAMES), help="Provider of the model.")
@click.option(
    "-m",
    "--model",
    metavar="NAME",
    shell_complete=_models,
    help="The model that answers: NAME, PROVIDER:NAME, or a .gguf file on this machine.",
)
@click.option(
    "--mode",
    type=click.Choice(CALL_MODES),
    help="Declaration of tools: through the API, in the prompt, or whichever works.",
)
@click.option("--api", type=click.Choice(API_NAMES), help="The API of Gemini to use.")
@click.option("--system", metavar="TEXT", help="A system instruction for the whole conversation.")
@click.option(
    "--approval-mode",
    type=click.Choice(APPROVAL_MODES),
    help="default: as the rules say, and ask before other calls that may change something; auto_edit: write files "
    "unasked; yolo: ask for sensitive files only; plan: only tools that change nothing.",
)
@click.option(
    "--policy", type=_FILE, metavar="FILE", help="Rules in TOML: which calls are allowed, need approval, or are denied."
)
@click.option("--audit", type=_FILE, metavar="FILE", help="Record every call in this audit log.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    help="text, one JSON object, or one JSON line for each event.",
)
@click.option(
    "--stdin/--no-stdin",
    default=None,
    help="Wait for piped input, or ignore it; by default it is used if it arrives soon.",
)
@session_options
@set_option
@click.option("--example", is_flag=True, help="Show a short conversation if there is no terminal and no prompt.")
@click.option("--debug", is_flag=True, help="Log to stderr, with tracebacks.")
@click.pass_context
def chat(ctx: click.Context, **given: Any) -> None:
    """Answer PROMPT, or what is piped in, using tools; without either, start a conversation.

    Input piped in next to a prompt is passed to the model as data.

    Exit codes: 0, 1 an error, 2 wrong usage, 42 bad input, 53 the limit of turns, 130 Ctrl-C.
    """
    from callgate.cli.settings import settled

    settings = settled(given)
    options = options_of(given, settings)
    from callgate.cli.prompts import ask
    from callgate.cli.state import open_session

    with open_session(given, keep=not options.example) as session:
        ctx.exit(ask(ctx, options, session))
