"""The read-eval-print loop: each line is a command or goes to the model, until the user leaves.

Takes a chat, returns an exit code. `line_editor.py` reads lines, `slash.py` runs commands, `render.py` draws answers.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from typing import TYPE_CHECKING, Any

from callgate import strict_json
from callgate.cli.chat_session import ChatSession
from callgate.cli.command_context import CommandContext
from callgate.cli.escaping import visible
from callgate.cli.exchange import INTERRUPTED, OK, run_exchange
from callgate.cli.input_history import HISTORY_FILE
from callgate.cli.line_editor import History, LineReader, line_reader
from callgate.cli.live import clipped
from callgate.cli.markdown import width_of
from callgate.cli.mcp_use import mentioned_resources
from callgate.cli.options import Options
from callgate.cli.recap import show_recap, show_totals
from callgate.cli.render import Terminal, one_line
from callgate.cli.slash import COMMANDS, perform, show_call
from callgate.cli.starters import opening_lines
from callgate.cli.state import StoredSession, state_dir
from callgate.cli.typed_command import run_typed
from callgate.errors import ToolError, UsageError

if TYPE_CHECKING:
    from callgate.content.prompt import Prompt

__all__ = ["converse"]


def converse(chat: ChatSession, terminal: Terminal, options: Options, stored: StoredSession) -> int:
    """Run the loop until the user leaves; return the exit code."""
    terminal.media_hint = " (/media keeps it)"
    context = CommandContext(chat, terminal, options, stored, exchange=lambda prompt: run_exchange(chat, terminal, prompt))
    history = History(os.path.join(state_dir(), HISTORY_FILE) if stored.is_kept else None)
    choices = {name: (lambda command=command: command.choices(context)) for name, command in COMMANDS.items()}
    shown, root = (lambda: show_call(terminal)), options.root or "."
    line = line_reader(chat, history, choices, shown, root, lambda: _footer(context), terminal.question)
    if chat.approver is not None:
        chat.approver.before_question = line.forget_typed
    if history.problem:
        terminal.line(f"! {one_line(history.problem, 500)}; what you type is not remembered.", color="notice")
    is_resumed = stored.state is not None
    if is_resumed and not stored.is_unfinished:  # Of one that was unfinished, it was shown before the run went on.
        show_recap(chat, terminal, stored)
    terminal.separate("note")
    for sentence in [] if is_resumed else opening_lines(chat, options):
        terminal.line(sentence)
    terminal.line("Ask something; /help lists the commands, Ctrl-D leaves.")
    try:
        # Keys typed between prompts wait unseen for the next one; the plain reader needs echo.
        with chat.tty.quiet() if line.ends_line else contextlib.nullcontext():
            return _until_left(context, line)
    finally:
        if stored.is_kept and (chat.has_begun or is_resumed):
            show_totals(chat, terminal, stored)


def _until_left(context: CommandContext, line: LineReader) -> int:
    terminal, interrupted = context.terminal, False
    while not context.leaves:
        terminal.separate("prompt")
        try:
            text = strict_json.without_surrogates(line.read()).strip()
            terminal.prompted()
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
            perform(context, text)
            if context.leaves:
                break
        elif text.startswith("!") and text[1:].strip():
            run_typed(context, text[1:].strip())
        elif text and not _send_text(context, text):
            return INTERRUPTED
    return OK


def _footer(context: CommandContext) -> str:
    """The line below the prompt: who answers, what is asked before calls, where, and what was used.

    Where not all of it fits, the folder goes first, then the cost, then the context: half a number would be another one.
    """
    chat, options = context.chat, context.options
    policy_mode = chat.policy_mode or options.approval_mode or "default"
    words = {
        "model": chat.model_name,
        "approval": f"approval {policy_mode}",
        "folder": _short(os.path.abspath(options.root or ".")),
    }
    if chat.last is not None:
        used, room_for = chat.last.context_tokens, chat.context_max
        left = f"{max(0, 100 - math.ceil(100 * used / room_for))}% left" if room_for else f"{used:,} tokens"
        words["context"] = f"context {left}"
        if chat.last.cost is not None:
            words["cost"] = f"cost ${chat.last.cost:.4f}"
    room = max(20, shutil.get_terminal_size().columns - 1)
    for part in ("folder", "cost", "context", ""):
        line = visible("  ".join(filter(None, words.values())))
        if width_of(line) <= room:
            break
        words.pop(part, None)
    return clipped(line, room)


def _short(folder: str) -> str:
    home = os.path.expanduser("~")
    return "~" + folder[len(home) :] if folder == home or folder.startswith(home + os.sep) else folder


def _end_line(terminal: Terminal, line: LineReader) -> None:
    if line.ends_line:
        terminal.unprompted()
    else:
        terminal.line("")


def _send_text(context: CommandContext, text: str) -> bool:
    """Send a text to the model; return False when the user wants to leave."""
    prompt = _with_files(context, text)
    if prompt is None:
        return True
    if not run_exchange(context.chat, context.terminal, prompt):
        return False
    if context.chat.last is not None and context.chat.last.approvals:
        context.terminal.line("/approve asks again; so does this session when it is resumed later.")
    return True


def _with_files(context: CommandContext, text: str) -> Prompt | None:
    """Attach the files that the text mentions; return None, after a message, if one cannot be attached."""
    if "@" not in text:
        return text
    from callgate.cli.attachments import AttachError, Attachments, mentions

    try:
        resources = mentioned_resources(context, mentions(text)) if context.chat.servers else {}
        with Attachments(context.options.root or ".", confirm=lambda name: _confirmed(context, name)) as files:
            prompt, words = files.mentioned(text, but=resources)
    except (AttachError, ToolError, UsageError) as error:
        context.terminal.line(f"callgate: {one_line(str(error), 1000)}", color="failed")
        return None
    for word in words:
        context.terminal.line(f"! There is no file {word!r} here, so it is sent as text.", color="notice")
    if attached := [name for name in mentions(text) if name not in words]:
        context.terminal.line(f"  attached: {one_line(', '.join(attached), 500)}", color="quiet")
    if not resources:
        return prompt
    files_too: list[Any] = list(prompt) if isinstance(prompt, list) else [prompt]
    return [*files_too, *(part for parts in resources.values() for part in parts)]


def _confirmed(context: CommandContext, name: str) -> bool:
    context.terminal.ask(f"? {one_line(name, 500)} may hold secrets. Show it to the model? [y]es, [n]o (Enter: no) ")
    try:
        with context.chat.tty.cooked():
            return input().strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        return False
