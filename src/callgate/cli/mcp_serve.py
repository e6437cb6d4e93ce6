"""`callgate mcp serve`: our tools as an MCP server, over stdio or HTTP.

Serves until its input ends or a signal arrives. stdout carries nothing but the protocol; all messages go to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from callgate.cli.escaping import one_line, visible
from callgate.cli.json_input import InputError
from callgate.cli.options import APPROVAL_MODES, set_option
from callgate.cli.settings import settled
from callgate.errors import CallgateError, UsageError

if TYPE_CHECKING:
    from callgate.config import Settings
    from callgate.mcp.serve import ToolServer
    from callgate.permission import Mode

__all__ = ["serve"]

INTERRUPTED = 130
PORT = 8082
LOGGERS = ("callgate", "mcp", "uvicorn.error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command."""

    tool: tuple[str, ...]
    root: str | None
    mcp: tuple[str, ...]
    http: bool
    host: str
    port: int
    token_env: str | None
    approval_mode: Mode | None
    policy: str | None
    audit: str | None
    debug: bool
    settings: Settings
    """All other settings of files, the environment and `--set`."""


@click.command("serve", short_help="Serve tools to any MCP client.")
@click.option("-T", "--tool", multiple=True, metavar="TOOL", help="module, module:fn, file.py or file.py:fn; repeatable.")
@click.option("--root", metavar="DIR", help="Folder that file tools work in; without it there are none.")
@click.option("--mcp", multiple=True, metavar="FILE", help="A file with mcpServers, whose tools are served too; repeatable.")
@click.option("--http", is_flag=True, help="Serve by streamable HTTP instead of stdin and stdout.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; any other needs a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="The port; 0 picks a free one.")
@click.option("--token-env", metavar="NAME", help="The environment variable with the token that clients must send.")
@click.option(
    "--approval-mode",
    type=click.Choice(APPROVAL_MODES),
    help="default: ask the client's user before a call that may change something; auto_edit: write files unasked; yolo: ask "
    "for sensitive files only; plan: only tools that change nothing.",
)
@click.option("--policy", metavar="FILE", help="Rules in TOML: which calls are allowed, need approval, or are denied.")
@click.option("--audit", metavar="FILE", help="Record every call in this audit log.")
@set_option
@click.option("--debug", is_flag=True, help="Log to stderr, with tracebacks.")
@click.pass_context
def serve(ctx: click.Context, **given: Any) -> None:
    """Serve tools to any MCP client, under the same permissions as in a chat.

    \b
        callgate mcp serve -T my_tools.py --root docs
        callgate mcp serve --http --port 8082 --mcp mcp.json --audit audit.jsonl

    Ends with its input, or on SIGTERM. Exit codes: 0, 1 an error, 2 wrong usage, 42 bad input, 130 Ctrl-C.
    """
    settings = settled(given)
    options = Options(**given, settings=settings)
    if not (options.tool or options.root or options.mcp or settings["mcp.servers"]):
        raise click.UsageError("there is nothing to serve: name tools by -T, a folder by --root or servers by --mcp", ctx)
    with _logged_to_stderr(debug=options.debug):
        ctx.exit(_served(options))


def _served(options: Options) -> int:
    from callgate.cli.tools import ToolLoadError

    try:
        server, pools = _server(options)
        work = _by_http(server, options) if options.http else _by_pipes(server)
        return asyncio.run(_serve_until_signal(work, pools))
    except (ToolLoadError, UsageError) as error:
        logging.getLogger("callgate.cli").debug("the tools cannot be served", exc_info=error)
        raise InputError(str(error)) from error
    except CallgateError as error:
        raise click.ClickException(str(error)) from error


def _server(options: Options) -> tuple[ToolServer, Sequence[Any]]:
    from callgate.cli.build_chat import policy_of
    from callgate.cli.settings import audit_log
    from callgate.cli.tools import file_tools, load_tools, mcp_tools
    from callgate.mcp.serve import ToolServer

    tools = [
        *(load_tools(options.tool) if options.tool else ()),
        *(file_tools(options.root, ()) if options.root else ()),
        *mcp_tools(options.mcp, _say, table=options.settings["mcp.servers"]),
    ]
    policy = policy_of(options.policy, options.approval_mode, options.settings)
    for problem in policy.problems:
        _say(problem)
    server = ToolServer.of(tools, policy=policy, audit=audit_log(options.audit, options.settings), spelled=visible)
    return server, [item for item in tools if hasattr(item, "close")]


def _token(name: str | None) -> str | None:
    if name is None:
        return None
    token = os.environ.get(name, "").strip()
    if not token:
        raise UsageError(f"the environment does not have {name!r}: set it to the token that clients must send")
    return token


async def _by_pipes(server: ToolServer) -> None:
    from callgate.mcp.pipes import serve_pipes

    await serve_pipes(server)


async def _by_http(server: ToolServer, options: Options) -> None:
    from callgate.server.mcp_http import listen, serve_http

    token = _token(options.token_env)
    listening = listen(options.host, options.port, token)
    await serve_http(server, listening, token=token, ready=lambda url: _say(f"MCP server at {url}"))


async def _serve_until_signal(work: Coroutine[Any, Any, None], pools: Sequence[Any]) -> int:
    """Serve until the input ends or a signal arrives; everything the tools started ends with it."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    told: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        told.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Without such signals on this system, the program just ends.
            loop.add_signal_handler(number, end, number)
    try:
        await task
    except asyncio.CancelledError:
        if not told:
            raise
    finally:
        for pool in pools:
            await asyncio.to_thread(pool.close)
    return INTERRUPTED if signal.SIGINT in told else 0


def _say(sentence: str) -> None:
    print(f"callgate: {one_line(sentence, 1000)}", file=sys.stderr, flush=True)


class _OneLine(logging.Formatter):
    """Escape log records, so that untrusted text cannot steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        return visible(super().format(record))


@contextlib.contextmanager
def _logged_to_stderr(*, debug: bool) -> Generator[None]:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(name)s %(levelname)s %(message)s" if debug else "callgate: %(message)s"))
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
