"""The command line: arguments in, an exit code out.

Each command lives in its own file and is imported when it is run. Exit codes: 0, 1 error, 2 wrong usage, 42 bad input, 53
turn limit, 130 Ctrl-C. An error is one sentence on stderr; `--debug` adds the traceback. This file knows nothing of
models and tools.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

try:
    import click
except ImportError:
    raise SystemExit("callgate: the command needs the package click; install it with: pip install 'callgate[cli]'") from None

from callgate import __version__

__all__ = ["cli", "main"]

ERROR = 1
INTERRUPTED = 130

COMMANDS = {
    "chat": "Chat with a model that can call tools.",
    "config": "Show and change settings, and trust project folders.",
    "convert": "Convert tools, calls, results and histories between systems.",
    "doctor": "Check the setup of this machine, and say how to fix it.",
    "mcp": "List, test and edit MCP servers, and serve tools as one.",
    "model": "Fetch and list the files of the embedded model.",
    "audit": "Show the audit log of calls, and verify that it is intact.",
    "serve": "Serve conversations over HTTP.",
    "sessions": "List stored conversations; show, rewind, fork, export or delete them.",
    "store": "Migrate and back up a store.",
    "token": "Make, list and revoke named tokens of the service.",
    "tools": "List tools, and check them for problems.",
    "trace": "Show what a session did and when, in the terminal or as a picture.",
    "undo": "List changes of files, and undo them.",
    "completion": "Print the completion script for bash, zsh or fish.",
}
"""Name of a command, which is also its function -> its line in the list of commands."""

FILES = {"tools": "tools_command"}
"""Name of a command -> its module, where the names differ."""

logger = logging.getLogger("callgate.cli")


class Commands(click.Group):
    """The commands by name. Listing them imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        return getattr(importlib.import_module(f"callgate.cli.{FILES.get(cmd_name, cmd_name)}"), cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the arguments; a misspelt one is named with the nearest.

        Raises:
            click.UsageError: there is no such command.
        """
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help text."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="callgate")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A call gate between a language model and your tools."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    try:
        return _run(args)
    finally:
        if args is None:
            # The program is finished: a Ctrl-C during Python's clean-up must not change its exit code.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(args: Sequence[str] | None) -> int:
    try:
        code = cli.main(args=None if args is None else list(args), prog_name="callgate", standalone_mode=False)
    except click.UsageError as error:
        # A group without a command; before click 8.2 there was no such error, and the help was shown by click itself.
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            click.echo(error.format_message(), err=True)
            return error.exit_code
        hint = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        return _failed(f"{error.format_message()}{hint}", error.exit_code)
    except click.ClickException as error:
        return _failed(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        logger.exception("the command failed")
        return _failed(_sentence(error), ERROR)
    return code if isinstance(code, int) else 0


def _sentence(error: Exception) -> str:
    """Explain an error that no command expected: mostly the machine's."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOSPC:
        place = repr(error.filename) if isinstance(error, OSError) and error.filename else "the output"
        return f"there is no space left on the disk of {place}: what was written is incomplete. Make room, and try again"
    if number == errno.ENOENT and not _has_folder():
        return "the current folder was deleted: change to one that exists (cd), and try again"
    return f"{type(error).__name__}: {error}"


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _failed(sentence: str, code: int) -> int:
    from callgate.cli.render import escape
    from callgate.cli.style import columns_of, folded
    from callgate.config.known_secrets import redact_known

    line = escape(redact_known(" ".join(sentence.split())))
    encoding = sys.stderr.encoding or "utf-8"
    for drawn in folded([(f"callgate: {line}", None)], columns_of(sys.stderr), indent=2):
        text = "".join(part for part, _ in drawn)
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr)
    return code
