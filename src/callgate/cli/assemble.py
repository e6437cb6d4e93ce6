"""From options to a conversation: the tools, the servers, the policy and the gate behind it.

Options and a chosen model come in, a `Talk` goes out. What cannot be used is one sentence and the exit code for bad input.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from callgate.cli.approve import Approver
from callgate.cli.json_input import InputError
from callgate.cli.options import Options
from callgate.cli.provider import Chosen
from callgate.cli.render import Terminal, is_terminal, one_line
from callgate.cli.state import Kept
from callgate.cli.talk import Talk
from callgate.cli.tty import Tty
from callgate.errors import UsageError

if TYPE_CHECKING:
    from callgate.mcp import McpServer
    from callgate.permission import Mode, Policy
    from callgate.runtime import Gate

__all__ = ["in_mode", "policy_of", "talk_of"]

NOBODY = "Nobody can be asked here: use a terminal, or a rule in a --policy file, or run it with --approval-mode yolo."
NOBODY_IN_YOLO = "Nobody can be asked here, and no --approval-mode allows it: use a terminal."


def talk_of(
    options: Options,
    chosen: Chosen,
    terminal: Terminal,
    session: Kept,
    *,
    tty: Tty,
    shows_example: bool = False,
) -> Talk:
    """The conversation that was asked for.

    Raises:
        InputError: a tool, a folder, a server or the policy cannot be used.
    """
    # Whoever cannot see the question cannot answer it.
    approve = Approver(terminal, tty=tty) if is_terminal(sys.stdin) and is_terminal(sys.stderr) else None
    with _one_sentence():
        servers = _mcp_servers(options.mcp, terminal)

    def build() -> Gate:
        policy = policy_of(options.policy, options.approval_mode)
        for problem in policy.problems:
            terminal.line(f"! {one_line(problem, 1000)}", color="failed")
        with _one_sentence():
            return _gate(
                options, chosen, session, policy=policy, approve=approve, servers=servers, shows_example=shows_example
            )

    talk = Talk(build, session.id, approve, tty=tty, servers=servers)
    if options.tool or options.root or options.mcp or options.policy or options.audit or options.prompt or shows_example:
        _ = talk.gate  # What somebody named and cannot be used is told before anything is asked.
    return talk


@contextlib.contextmanager
def _one_sentence() -> Generator[None]:
    """What cannot be used becomes a sentence of the command."""
    try:
        yield
    except UsageError as error:
        logging.getLogger("callgate.cli").debug("a tool cannot be used", exc_info=error)
        raise InputError(str(error)) from error


def _gate(
    options: Options,
    chosen: Chosen,
    session: Kept,
    *,
    policy: Policy,
    approve: Approver | None,
    servers: Sequence[McpServer],
    shows_example: bool,
) -> Gate:
    from callgate.cli.demo_tools import DEMO_TOOLS
    from callgate.cli.tools import file_tools, load_tools
    from callgate.runtime import Gate

    # The example asks for the weather, and nobody sits there who could take the made-up figures for true.
    unnamed = DEMO_TOOLS if shows_example else chosen.tools()
    named = load_tools(options.tool) if options.tool else [] if servers else unnamed
    return Gate(
        chosen.model,
        [*named, *file_tools(options.root, [*options.tool, *options.mcp]), *servers],
        mode=options.mode,
        system=options.system,
        policy=policy,
        approve=approve,
        audit=options.audit,
        store=session.store,
    )


def _mcp_servers(files: Sequence[str], terminal: Terminal) -> list[McpServer]:
    """The servers of the files; what is not understood in them is said, and harms nobody else."""
    if not files:
        return []
    from callgate.mcp import read_servers

    read: list[Any] = [read_servers(file) for file in files]
    for sentence in (sentence for one in read for sentence in one.warnings):
        terminal.line(f"callgate: {one_line(sentence, 1000)}")
    return [server for one in read for server in one.servers]


def policy_of(file: str | None, mode: Mode | None) -> Policy:
    """The policy of a file, or the usual one, in the mode that was asked for.

    Raises:
        InputError: the file cannot be read.
    """
    from callgate.permission import Policy

    try:
        policy = Policy.from_file(file) if file is not None else Policy()
    except UsageError as error:
        raise InputError(str(error)) from error
    return in_mode(policy, mode or policy.mode)


def in_mode(policy: Policy, mode: Mode) -> Policy:
    """The policy in another mode, with the sentence for where nobody can be asked."""
    return replace(policy, mode=mode, nobody=NOBODY_IN_YOLO if mode == "yolo" else NOBODY)
