"""Build a chat from options: its tools, servers, policy and gate.

Takes options and a chosen model, returns a `ChatSession`. Bad input is one sentence and the exit code for bad input.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from callgate.cli.approve import Approver
from callgate.cli.chat_session import ChatSession
from callgate.cli.json_input import InputError
from callgate.cli.options import Options
from callgate.cli.provider import ProviderChoice
from callgate.cli.render import Terminal, is_terminal, one_line
from callgate.cli.settings import audit_log, limits_of, policy_from, prices_of, settings_here
from callgate.cli.state import StoredSession
from callgate.cli.tools import mcp_tools
from callgate.cli.tty import Tty
from callgate.errors import UsageError

if TYPE_CHECKING:
    from callgate.config import Settings
    from callgate.mcp import Host
    from callgate.permission import Mode, Policy
    from callgate.run.gate import Gate

__all__ = ["build_chat", "in_mode", "policy_of"]

NOBODY = "There is no terminal for an approval: use a terminal, or a rule in a --policy file, or --approval-mode yolo."
NOBODY_IN_YOLO = "There is no terminal for an approval, and no --approval-mode allows it: use a terminal."


def build_chat(
    options: Options,
    chosen: ProviderChoice,
    terminal: Terminal,
    session: StoredSession,
    *,
    tty: Tty,
    shows_example: bool = False,
) -> ChatSession:
    """Build the chat.

    Raises:
        InputError: a tool, a folder, a server or the policy cannot be used.
    """
    # No approval without a terminal to show the question on.
    approve = Approver(terminal, tty=tty) if is_terminal(sys.stdin) and is_terminal(sys.stderr) else None
    settings = options.settings or settings_here()
    with _one_sentence():
        host = partial(_host, terminal, approve) if approve is not None else None
        servers = mcp_tools(options.mcp, _saying(terminal), host, settings["mcp.servers"])

    def build() -> Gate:
        policy = policy_of(options.policy, options.approval_mode, settings)
        for problem in policy.problems:
            terminal.line(f"! {one_line(problem, 1000)}", color="failed")
        with _one_sentence():
            return _gate(
                options, chosen, session, policy=policy, approve=approve, servers=servers, shows_example=shows_example
            )

    chat = ChatSession(build, session.id, approve, tty=tty, servers=servers, model_name=chosen.model.name)
    if options.tool or options.root or options.mcp or options.policy or options.audit or options.prompt or shows_example:
        _ = chat.gate  # Report unusable tools and servers before the first prompt.
    return chat


@contextlib.contextmanager
def _one_sentence() -> Generator[None]:
    """Turn an unusable argument into a one-sentence error of the command."""
    try:
        yield
    except UsageError as error:
        logging.getLogger("callgate.cli").debug("a tool cannot be used", exc_info=error)
        raise InputError(str(error)) from error


def _gate(
    options: Options,
    chosen: ProviderChoice,
    session: StoredSession,
    *,
    policy: Policy,
    approve: Approver | None,
    servers: Sequence[object],
    shows_example: bool,
) -> Gate:
    from callgate.cli.demo_tools import DEMO_TOOLS
    from callgate.cli.tools import file_tools, load_tools
    from callgate.run.gate import Gate

    settings = options.settings or settings_here()
    # The example asks for the weather, and no user is present to mistake the invented figures for real ones.
    unnamed = DEMO_TOOLS if shows_example else chosen.tools()
    named = load_tools(options.tool, options.workers) if options.tool else [] if servers else unnamed
    return Gate(
        chosen.model,
        [*named, *file_tools(options.root, [*options.tool, *options.mcp, *(settings["mcp.servers"] or ())]), *servers],
        mode=options.mode,
        system=options.system,
        policy=policy,
        approve=approve,
        audit=audit_log(options.audit, settings),
        store=session.store,
        limits=limits_of(settings),
        settings=settings["settings"],
        prices=prices_of(settings),
        tools_shown=settings["tools_shown"],
        compaction=settings["compaction"],
    )


def _saying(terminal: Terminal) -> Callable[[str], None]:
    return lambda said: terminal.line(f"callgate: {one_line(said, 1000)}")


def _host(terminal: Terminal, approver: Approver) -> Host:
    """Let servers send questions to the terminal."""
    from callgate.cli.mcp_prompts import ServerAsker

    return ServerAsker(terminal.line, approver).host()


def policy_of(file: str | None, mode: Mode | None, settings: Settings) -> Policy:
    """Return the policy of the settings and of a file, in the requested mode.

    Raises:
        InputError: the file cannot be read.
    """
    policy = policy_from(settings, file, mode)
    return in_mode(policy, policy.mode)


def in_mode(policy: Policy, mode: Mode) -> Policy:
    """Return the policy in another mode, with the refusal used when there is no terminal."""
    return replace(policy, mode=mode, nobody=NOBODY_IN_YOLO if mode == "yolo" else NOBODY)
