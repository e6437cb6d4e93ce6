"""The conversation at a terminal: what is typed is a command or goes to the model, until somebody leaves.

A talk comes in, an exit code goes out. How a line is read is `line.py`'s business, what commands do `slash.py`'s, how
answers look `render.py`'s.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from callgate import strict_json
from callgate.cli.line import History, Line, line_reader
from callgate.cli.options import Options
from callgate.cli.render import Terminal, one_line
from callgate.cli.slash import COMMANDS, CallDispatcher, perform, show_call
from callgate.cli.state import Kept, state_dir
from callgate.cli.talk import Talk
from callgate.cli.turns import INTERRUPTED, OK, take_turn
from callgate.errors import UsageError

if TYPE_CHECKING:
    from callgate.content.prompt import Prompt

__all__ = ["converse"]


def converse(talk: Talk, terminal: Terminal, options: Options, kept: Kept) -> int:
    """Talks until somebody leaves; gives the exit code."""
    desk = CallDispatcher(talk, terminal, options, kept, turn=lambda prompt: take_turn(talk, terminal, prompt))
    history = History(os.path.join(state_dir(), "history") if kept.is_kept else None)
    choices = {name: (lambda command=command: command.choices(desk)) for name, command in COMMANDS.items()}
    line = line_reader(talk, history, choices, lambda: show_call(terminal), options.root or ".")
    if talk.approver is not None:
        talk.approver.before_question = line.forget_typed
    if history.problem:
        terminal.line(f"! {one_line(history.problem, 500)}; what you type is not remembered.", color="notice")
    terminal.line("Ask something; /help lists the commands, Ctrl-D leaves.")
    try:
        # Keys that are typed while nobody reads wait for the next prompt, unseen; a plain reader needs them shown.
        with talk.tty.quiet() if line.ends_line else contextlib.nullcontext():
            return _until_left(desk, line)
    finally:
        if kept.is_kept and talk.has_begun:
            terminal.line(f"To go on: callgate chat -r {talk.session}")


def _until_left(desk: CallDispatcher, line: Line) -> int:
    terminal, interrupted = desk.terminal, False
    while not desk.leaves:
        try:
            text = strict_json.without_surrogates(line.read()).strip()
        except EOFError:
            _end_line(terminal, line)
            return OK
        except KeyboardInterrupt:
            _end_line(terminal, line)
            if interrupted:
                return OK
            interrupted = True
            terminal.line("Ctrl-C again leaves.")
            continue
        except UnicodeDecodeError:
            terminal.line("callgate: that line is not text in this terminal's encoding", color="failed")
            continue
        interrupted = False
        if text.startswith("/") and "\n" not in text.partition(" ")[0]:
            perform(desk, text)
            if desk.leaves:
                break
        elif text and not _said(desk, text):
            return INTERRUPTED
    return OK


def _end_line(terminal: Terminal, line: Line) -> None:
    if not line.ends_line:
        terminal.line("")


def _said(desk: CallDispatcher, text: str) -> bool:
    """Sends a text to the model; False when the person wants to leave."""
    prompt = _with_files(desk, text)
    if prompt is None:
        return True
    if not take_turn(desk.talk, desk.terminal, prompt):
        return False
    if desk.talk.last is not None and desk.talk.last.approvals:
        desk.terminal.line("/approve asks again; so does this session when it is taken up later.")
    return True


def _with_files(desk: CallDispatcher, text: str) -> Prompt | None:
    """The text with the files that it mentions; None if one of them cannot be attached, which is told."""
    if "@" not in text:
        return text
    from callgate.cli.attach import AttachError, Attachments, mentions

    try:
        with Attachments(desk.options.root or ".", confirm=lambda name: _confirmed(desk, name)) as files:
            prompt, words = files.mentioned(text)
    except (AttachError, UsageError) as error:
        desk.terminal.line(f"callgate: {one_line(str(error), 1000)}", color="failed")
        return None
    for word in words:
        desk.terminal.line(f"! There is no file {word!r} here, so it is sent as text.", color="notice")
    if attached := [name for name in mentions(text) if name not in words]:
        desk.terminal.line(f"  attached: {one_line(', '.join(attached), 500)}", color="quiet")
    return prompt


def _confirmed(desk: CallDispatcher, name: str) -> bool:
    desk.terminal.ask(f"? {one_line(name, 500)} may hold secrets. Show it to the model? [y]es, [n]o (Enter: no) ")
    try:
        with desk.talk.tty.cooked():
            return input().strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        return False
