"""Answer one prompt, or start a conversation: `callgate chat` after its options are read.

The answer goes to stdout as text, one JSON object or one line per event; progress goes to stderr, the exit code to the
shell. The gate runs it, `render.py` draws it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from callgate import strict_json
from callgate.cli.build_chat import build_chat
from callgate.cli.chat_session import ChatSession
from callgate.cli.error_hints import ErrorHintHandler, with_hint
from callgate.cli.exchange import ERROR, INTERRUPTED, OK, TURN_LIMIT, run_exchange
from callgate.cli.json_input import InputError
from callgate.cli.logs import start_logging
from callgate.cli.options import Options
from callgate.cli.provider import choose
from callgate.cli.render import Terminal, ending_sentence, is_terminal, one_line
from callgate.cli.settings import limits_of, model_environment, secrets_of, settings_here
from callgate.cli.state import StoredSession
from callgate.cli.stdin import PIPE_WAIT_S, piped, with_context
from callgate.cli.tty import Tty, ending_signals
from callgate.errors import CallgateError
from callgate.events import Event, RunEnded, plain, to_json
from callgate.types import JsonObject, Reply

if TYPE_CHECKING:
    from callgate.content.prompt import Prompt

__all__ = ["ask"]

EXAMPLE_WAIT_S = 2.0
"""Seconds that `--example` waits for piped input before it shows the example."""

EXAMPLE = (
    "What is 12 * 7?",
    "What is the weather in Oslo and in Rome?",
    "What time is it in Atlantis?",
)
"""One call, two parallel calls, and a call that fails and is corrected."""


def ask(ctx: click.Context, options: Options, session: StoredSession) -> int:
    """Answer the prompt, or begin a conversation; return the exit code."""
    terminal = Terminal(sys.stdout, sys.stderr)
    settings = options.settings or settings_here()
    start_logging(settings["log_level"], secrets=secrets_of(settings))
    if settings["log_level"] != "debug":
        logging.getLogger("callgate.tools.executor").addHandler(ErrorHintHandler(terminal))
    if settings.is_set("trace.content"):
        from callgate.telemetry import record_content

        record_content(settings["trace.content"])
    chosen = choose(options.provider, options.model, model_environment(settings), limits=limits_of(settings))
    prompts = _prompts(options, terminal, may_be_empty=session.is_unfinished)
    if prompts is None and options.output != "text":
        raise click.UsageError(f"-o {options.output} needs a prompt: give one as an argument, or pipe it in", ctx)
    with ending_signals(), Tty() as tty:
        shows_example = prompts is not None and len(prompts) > 1
        chat = build_chat(options, chosen, terminal, session, tty=tty, shows_example=shows_example)
        if chosen.line:
            terminal.line(chosen.line)
        elif prompts is None:
            terminal.line(f"{chosen.provider}: {one_line(chosen.model.name, 100)}")
        chosen.warm()
        with chat:
            if session.is_unfinished and (prompts is None or prompts[0] != ""):
                # Finish an interrupted run before anything new is asked.
                _recall(chat, terminal, session, is_conversation=prompts is None)
                show = _shows(terminal)[options.output]
                if not run_exchange(chat, terminal, None, show=show):
                    return INTERRUPTED
            if prompts is None:
                from callgate.cli.repl import converse

                return converse(chat, terminal, options, session)
            if len(prompts) > 1:
                return _show_example(chat, terminal, prompts)
            _remark_mentions(options, terminal, prompts[0])
            return _answer(chat, terminal, _attached(options, prompts[0]), options.output, session)


def _recall(chat: ChatSession, terminal: Terminal, session: StoredSession, *, is_conversation: bool) -> None:
    """Show a person what a question that comes next is about."""
    if is_conversation:
        from callgate.cli.recap import show_recap

        show_recap(chat, terminal, session)


# Prompts -----------------------------------------------------------------------------------------------------------------


def _prompts(options: Options, terminal: Terminal, *, may_be_empty: bool) -> Sequence[str] | None:
    """Return the prompts; None starts a conversation, an empty list continues the session where it stopped."""
    prompt = options.prompt
    if prompt is None:
        if is_terminal(sys.stdin):
            return None
        prompt = piped(sys.stdin, wait_s=EXAMPLE_WAIT_S if options.example else None) or ""
        if options.example and not prompt.strip():
            return EXAMPLE
    elif prompt.strip() and (context := _context(options, terminal)).strip():
        prompt = with_context(prompt, context)
    prompt = strict_json.without_surrogates(prompt)
    if not prompt.strip():
        if may_be_empty:
            return [""]
        raise InputError("there is no prompt: give one as an argument, or pipe it in")
    return [prompt]


def _context(options: Options, terminal: Terminal) -> str:
    """Return what is piped in next to a prompt."""
    if options.stdin is False or is_terminal(sys.stdin):
        return ""
    text = piped(sys.stdin, wait_s=None if options.stdin else PIPE_WAIT_S)
    if text is None:
        terminal.line(
            f"! No input on stdin within {PIPE_WAIT_S:g} seconds, so the prompt is answered without it. "
            "--stdin waits for it, --no-stdin does not look at it.",
            color="notice",
        )
    return text or ""


def _remark_mentions(options: Options, terminal: Terminal, prompt: str) -> None:
    """Say that files are not attached by their names here: a script may pass on the words of somebody else."""
    from callgate.cli.attachments import mentions

    root = options.root or "."
    for name in [name for name in mentions(prompt) if os.path.isfile(os.path.join(root, name))] if "@" in prompt else ():
        shown = one_line(name, 100)
        terminal.line(f"! '@{shown}' was sent as text; to attach the file, use -a {shown}.", color="notice")


def _attached(options: Options, prompt: str) -> Prompt | None:
    """Return the prompt with the attached files."""
    if not options.attach:
        return prompt or None
    from callgate.cli.attachments import AttachError, Attachments

    try:
        with Attachments(options.root or ".") as files:
            return files.prompt(prompt, options.attach)
    except AttachError as error:
        raise InputError(str(error)) from error


# Answering ---------------------------------------------------------------------------------------------------------------


def _answer(
    chat: ChatSession, terminal: Terminal, prompt: Prompt | None, output: str, session: StoredSession | None = None
) -> int:
    terminal.begin()
    try:
        reply = chat.exchange(prompt, _shows(terminal)[output], terminal.tick)
    except CallgateError as error:
        terminal.end()
        raise click.ClickException(with_hint(error)) from error
    finally:
        terminal.end()
    if output == "json":
        print(json.dumps(_summary(reply), default=repr), flush=True)
    if output != "text" and (sentence := ending_sentence(reply)):
        terminal.line(f"callgate: {sentence}")
    if reply.approvals and session is not None and session.is_kept:
        terminal.line(f"To answer: callgate chat -r {session.id}")
    return _exit_code(reply)


def _shows(terminal: Terminal) -> dict[str, Callable[[Event], None]]:
    return {"text": terminal.show, "json": _ignore, "stream-json": _print_event}


def _exit_code(reply: Reply) -> int:
    if reply.limited or reply.finish_reason == "turn_limit":
        return TURN_LIMIT
    if reply.finish_reason == "cancelled":
        return INTERRUPTED
    return OK if reply.ok else ERROR


def _show_example(chat: ChatSession, terminal: Terminal, prompts: Sequence[str]) -> int:
    codes: list[int] = []
    for prompt in prompts:
        terminal.say(f"> {prompt}")
        codes.append(_answer(chat, terminal, prompt, "text"))
        if codes[-1] == INTERRUPTED:
            break
    return max(codes)


def _ignore(event: Event) -> None:
    """Show nothing: the summary at the end says it all."""


def _print_event(event: Event) -> None:
    line = to_json(event)
    if isinstance(event, RunEnded):
        line["reply"].pop("contents")
    print(json.dumps(line, default=repr), flush=True)


def _summary(reply: Reply) -> JsonObject:
    ended: JsonObject = to_json(RunEnded(reply))["reply"]
    always = ("calls", "usage", "finish_reason", "session", "model", "cost")
    about: JsonObject = {"thoughts": reply.thoughts, "sources": reply.sources, "citations": reply.citations}
    about |= {"search_suggestions": reply.search_suggestions, "search_links": reply.search_links}
    about |= {"media": reply.media, "server_steps": reply.server_steps, "answer_metadata": reply.metadata}
    return (
        {"response": ended["text"]}
        | {key: ended[key] for key in always}
        | {key: plain(value) for key, value in about.items() if value}
    )
