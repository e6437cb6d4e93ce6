"""`callgate chat`: one prompt, or a conversation at the terminal, with tools.

Options and lines that a person types come in; the answer goes to stdout, what is about the run to stderr, an exit code to
the shell. How a run goes is the gate's business, how it looks is `render.py`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Literal, TypeVar, cast

import click

from callgate import strict_json
from callgate.cli.approve import Approver
from callgate.cli.demo_tools import DEMO_TOOLS
from callgate.cli.gather import gather_tools
from callgate.cli.provider import PROVIDERS, Chosen, choose
from callgate.cli.render import Terminal, ending_sentence, escape, is_terminal, one_line
from callgate.cli.state import Kept, kept_session, session_options
from callgate.cli.tools import ToolLoadError
from callgate.cli.visible import ascii_json
from callgate.errors import CallgateError, UsageError
from callgate.events import Event, RunEnded, to_json
from callgate.models import Mode as CallMode
from callgate.permission import MODES, Mode, Policy
from callgate.runtime import Gate
from callgate.types import JsonObject, Reply, SessionRule

__all__ = ["chat"]

OK, ERROR, BAD_INPUT, TURN_LIMIT, INTERRUPTED = 0, 1, 42, 53, 130

EXAMPLE_WAIT_S = 2.0
"""How long `--example` waits for somebody to write to a pipe before it shows the example."""
CANCEL_AGAIN_S = 0.01
CLOSE_WAIT_S = 5.0
"""How long a turn that was given up may take to clean up before the program ends without it."""

EXAMPLE = (
    "What is 12 * 7?",
    "What is the weather in Oslo and in Rome?",
    "What time is it in Atlantis?",
)
"""One call, two calls at once, and a call that fails and is made again in another way."""

HELP = """\
/tools   the tools that can be called, and what is asked before they are
/allowed what was allowed for good in this conversation; /revoke takes it back
/help    this list
/exit    leave (Ctrl-D does too)
Ctrl-C stops the answer that is being given; the conversation goes on."""


T = TypeVar("T")


class InputError(click.ClickException):
    """What was given cannot be used."""

    exit_code = BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for on the command line."""

    prompt: str | None
    tool: tuple[str, ...]
    root: str | None
    mcp: tuple[str, ...]
    provider: str | None
    model: str | None
    mode: CallMode
    system: str | None
    approval_mode: Mode | None
    policy: str | None
    audit: str | None
    output: Literal["text", "json", "stream-json"]
    example: bool
    debug: bool


@click.command(short_help="Talk to a model that can call tools.")
@click.argument("prompt", required=False)
@click.option("-T", "--tool", multiple=True, metavar="TOOL", help="module, module:fn, file.py or file.py:fn; repeatable.")
@click.option("--root", metavar="DIR", help="Folder that the file tools work in; without -T the current one.")
@click.option("--mcp", multiple=True, metavar="FILE", help="A file with mcpServers, whose tools can be called; repeatable.")
@click.option("--provider", type=click.Choice(list(PROVIDERS)), help="Whose model answers.")
@click.option(
    "-m", "--model", metavar="NAME", help="The model that answers: NAME, PROVIDER:NAME, or a .gguf file on this machine."
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "native", "prompted"]),
    default="auto",
    help="How the model is told of tools: by its API, in its prompt, or whichever it can.",
)
@click.option("--system", metavar="TEXT", help="An instruction for the whole conversation.")
@click.option(
    "--approval-mode",
    type=click.Choice(MODES),
    help="default: ask before a call that may change something; auto_edit: write files unasked; yolo: ask for sensitive "
    "files only; plan: only tools that change nothing.",
)
@click.option("--policy", metavar="FILE", help="Rules in TOML: what is allowed, asked about and denied.")
@click.option("--audit", metavar="FILE", help="Write down every call in this log.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    help="text, one JSON object, or one JSON line for each event.",
)
@session_options
@click.option("--example", is_flag=True, help="Where nobody can type and no prompt comes, show a short conversation.")
@click.option("--debug", is_flag=True, help="Log to stderr, with tracebacks.")
@click.pass_context
def chat(ctx: click.Context, **given: Any) -> None:
    """Answers PROMPT, or what is piped in, with the help of tools; without either, starts a conversation.

    Exit codes: 0, 1 an error, 2 wrong usage, 42 bad input, 53 the limit of turns, 130 Ctrl-C.
    """
    with kept_session(given, keep=not given["example"]) as session:
        ctx.exit(_chat(ctx, Options(**given), session))


def _chat(ctx: click.Context, options: Options, session: Kept) -> int:
    chosen = choose(options.provider, options.model, os.environ)
    # asyncio would print tracebacks of its own when a second Ctrl-C ends everything in mid-flight.
    logging.getLogger("asyncio").addHandler(log_handler() if options.debug else logging.NullHandler())
    if options.debug:
        logging.getLogger("callgate").addHandler(log_handler())
        logging.getLogger("callgate").setLevel(logging.DEBUG)
    terminal = Terminal(sys.stdout, sys.stderr)
    prompts = _prompts(options, may_be_empty=session.is_unfinished)
    if prompts is None and options.output != "text":
        raise click.UsageError(f"-o {options.output} needs a prompt: give one as an argument, or pipe it in", ctx)
    shows_example = prompts is not None and len(prompts) > 1
    talk = _talk(options, chosen, terminal, session, shows_example=shows_example)
    if chosen.line:
        terminal.line(chosen.line)
    chosen.warm()
    with talk:
        goes_on_first = session.is_unfinished and (prompts is None or prompts[0] != "")
        if goes_on_first and not _take_turn(talk, terminal, None, show=_shows(terminal)[options.output]):
            return INTERRUPTED
        if prompts is None:
            code = _converse(talk, terminal)
            if session.is_kept and talk.has_begun:
                terminal.line(f"To go on: callgate chat -r {session.id}")
        elif len(prompts) > 1:
            code = _show_example(talk, terminal, prompts)
        else:
            code = _answer(talk, terminal, prompts[0] or None, options.output)
    return code


# From options to a gate --------------------------------------------------------------------------------------------------


def _talk(options: Options, chosen: Chosen, terminal: Terminal, session: Kept, *, shows_example: bool) -> Talk:
    policy = policy_of(options.policy, options.approval_mode)
    for problem in policy.problems:
        terminal.line(f"! {one_line(problem, 1000)}", color="failed")
    # Whoever cannot see the question cannot answer it.
    approve = Approver(terminal) if is_terminal(sys.stdin) and is_terminal(sys.stderr) else None
    try:
        # The example asks for the weather, and nobody sits there who could take the made-up figures for true.
        unnamed = DEMO_TOOLS if shows_example else chosen.tools
        tools = gather_tools(
            options.tool,
            root=options.root,
            mcp=options.mcp,
            unnamed=unnamed,
            here=True,
            say=lambda sentence: terminal.line(f"callgate: {one_line(sentence, 1000)}"),
        )
        gate = Gate(
            chosen.model,
            tools,
            mode=options.mode,
            system=options.system,
            policy=policy,
            approve=approve,
            audit=options.audit,
            store=session.store,
        )
    except (ToolLoadError, UsageError) as error:
        logging.getLogger("callgate.cli").debug("a tool cannot be used", exc_info=error)
        raise InputError(str(error)) from error
    return Talk(gate, session.id, approve)


NOBODY = "Nobody can be asked here: use a terminal, or a rule in a --policy file, or run it with --approval-mode yolo."
NOBODY_IN_YOLO = "Nobody can be asked here, and no --approval-mode allows it: use a terminal."


def policy_of(file: str | None, mode: Mode | None) -> Policy:
    """The policy of a file, or the usual one, in the mode that was asked for.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        policy = Policy.from_file(file) if file is not None else Policy()
    except UsageError as error:
        raise InputError(str(error)) from error
    mode = mode or policy.mode
    return replace(policy, mode=mode, nobody=NOBODY_IN_YOLO if mode == "yolo" else NOBODY)


def _prompts(options: Options, *, may_be_empty: bool) -> Sequence[str] | None:
    """What to answer; None when somebody sits there who can be asked. Empty: the session goes on where it stopped."""
    prompt = options.prompt
    if prompt is None:
        if is_terminal(sys.stdin):
            return None
        prompt = _piped(wait_s=EXAMPLE_WAIT_S if options.example else None)
        if options.example and not prompt.strip():
            return EXAMPLE
    prompt = strict_json.without_surrogates(prompt)
    if not prompt.strip():
        if may_be_empty:
            return [""]
        raise InputError("there is no prompt: give one as an argument, or pipe it in")
    return [prompt]


def _piped(*, wait_s: float | None) -> str:
    """What comes through stdin; nothing, if `wait_s` is given and nothing has come by then."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - so it is where the stream was closed
        return ""
    if wait_s is not None:
        with contextlib.suppress(OSError, ValueError):  # Not something that can be waited for, so it is there.
            if not select.select([sys.stdin], [], [], wait_s)[0]:
                return ""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError(f"what is piped in is not text in {error.encoding} (byte {error.start})") from error


def log_handler() -> logging.Handler:
    """Writes a log to stderr in such a way that nothing in it can steer a terminal."""
    handler = logging.StreamHandler()
    handler.setFormatter(_EscapingFormatter("%(levelname)s %(name)s: %(message)s"))
    return handler


class _EscapingFormatter(logging.Formatter):
    """Logs hold words of models and tools too."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


# Running -----------------------------------------------------------------------------------------------------------------


class Talk:
    """One conversation on one event loop, with Ctrl-C in good order.

    While a turn runs, the first Ctrl-C cancels it and the second raises; at all other times the first raises.
    """

    def __init__(self, gate: Gate, session: str, approver: Approver | None = None) -> None:
        self.gate = gate
        self.session = session
        self.has_begun = False
        self._approver = approver
        self._runner = asyncio.Runner()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._interrupts = 0
        self._handler_before: Any = None

    def __enter__(self) -> Talk:
        self._handler_before = signal.signal(signal.SIGINT, self._interrupted)
        self._runner.__enter__()
        # Servers and connections live as long as the conversation, not as long as one turn of it.
        self._runner.run(self.gate.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if self._task is not None and not self._task.done():
                # A second Ctrl-C left the turn in mid-flight. It must be ended by itself: closing the loop cancels all
                # tasks at once, those too that the run waits for.
                self._task.cancel()
                self._runner.run(_ended(self._task))
            if self._task is None or self._task.done():
                self._runner.run(self.gate.__aexit__(None, None, None))
                self._runner.close()
        finally:
            signal.signal(signal.SIGINT, self._handler_before)

    def turn(self, prompt: str | None, show: Callable[[Event], None]) -> Reply:
        """Runs one turn of the conversation and shows its events.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice.
        """
        self._interrupts, self.has_begun = 0, True
        return self._runner.run(self._turn(prompt, show))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something between turns, such as looking at what was allowed for good."""
        return self._runner.run(work)

    async def _turn(self, prompt: str | None, show: Callable[[Event], None]) -> Reply:
        reply: Reply | None = None
        events = cast("AsyncGenerator[Event]", self.gate.stream(prompt, session=self.session))
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    show(event)
                    if self._approver is not None:
                        self._approver.see(event)
                    reply = event.reply if isinstance(event, RunEnded) else reply
        finally:
            self._loop = None
        assert reply is not None, "a run that did not raise ends with RunEnded"
        return reply

    def _interrupted(self, signum: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._loop is None or self._interrupts > 1:
            raise KeyboardInterrupt
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # A run that is only about to begin cannot be stopped yet; one that is over ends the turn by itself.
        if self._loop is not None and not self.gate.cancel(self.session):
            self._loop.call_later(CANCEL_AGAIN_S, self._cancel)


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait({task}, timeout=CLOSE_WAIT_S)


def _answer(talk: Talk, terminal: Terminal, prompt: str | None, output: str) -> int:
    try:
        reply = talk.turn(prompt, _shows(terminal)[output])
    except CallgateError as error:
        terminal.end_line()
        raise click.ClickException(str(error)) from error
    if output == "json":
        print(json.dumps(_summary(reply), default=repr), flush=True)
    if output != "text" and (sentence := ending_sentence(reply)):
        terminal.line(f"callgate: {sentence}")
    return _exit_code(reply)


def _shows(terminal: Terminal) -> dict[str, Callable[[Event], None]]:
    return {"text": terminal.show, "json": _ignore, "stream-json": _print_event}


def _exit_code(reply: Reply) -> int:
    if reply.limited or reply.finish_reason == "turn_limit":
        return TURN_LIMIT
    if reply.finish_reason == "cancelled":
        return INTERRUPTED
    return OK if reply.ok else ERROR


def _show_example(talk: Talk, terminal: Terminal, prompts: Sequence[str]) -> int:
    codes: list[int] = []
    for prompt in prompts:
        terminal.say(f"> {prompt}")
        codes.append(_answer(talk, terminal, prompt, "text"))
        if codes[-1] == INTERRUPTED:
            break
    return max(codes)


def _ignore(event: Event) -> None:
    """The summary at the end says it all."""


def _print_event(event: Event) -> None:
    line = to_json(event)
    if isinstance(event, RunEnded):
        line["reply"].pop("contents")
    print(json.dumps(line, default=repr), flush=True)


def _summary(reply: Reply) -> JsonObject:
    plain: JsonObject = to_json(RunEnded(reply))["reply"]
    return {"response": plain["text"]} | {key: plain[key] for key in ("calls", "usage", "finish_reason", "session")}


# At the terminal ---------------------------------------------------------------------------------------------------------


def _converse(talk: Talk, terminal: Terminal) -> int:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 # pyright: ignore[reportUnusedImport] - gives input() its editing and its memory
    terminal.line("Ask something; /help lists the commands, Ctrl-D leaves.")
    interrupted = False
    while True:
        try:
            line = strict_json.without_surrogates(input("> ")).strip()
        except EOFError:
            terminal.line("")
            return OK
        except KeyboardInterrupt:
            terminal.line("")
            if interrupted:
                return OK
            interrupted = True
            terminal.line("Ctrl-C again leaves.")
            continue
        except UnicodeDecodeError:
            terminal.line("callgate: that line is not text in this terminal's encoding", color="failed")
            continue
        interrupted = False
        if line in ("/exit", "/quit"):
            return OK
        if line.startswith("/"):
            _command(line, talk, terminal)
        elif line and not _take_turn(talk, terminal, line):
            return INTERRUPTED


def _take_turn(talk: Talk, terminal: Terminal, line: str | None, *, show: Callable[[Event], None] | None = None) -> bool:
    """One turn; False when the person wants to leave. What fails is told, and the conversation goes on."""
    try:
        talk.turn(line, show or terminal.show)
    except CallgateError as error:
        terminal.line(f"callgate: {one_line(str(error), 1000)}", color="failed")
    except KeyboardInterrupt:
        terminal.line("")
        return False
    return True


def allowed_line(rule: SessionRule) -> str:
    """One lasting answer in words."""
    server = f" of {ascii_json(rule.server)}" if rule.server else ""
    what = (
        f" in {', '.join(rule.paths)}" if rule.paths else f" with {ascii_json(rule.exact)}" if rule.exact is not None else ""
    )
    return f"{rule.id}  {one_line(rule.tool, 100)}{server}{what}"


def _command(line: str, talk: Talk, terminal: Terminal) -> None:
    if line == "/help":
        terminal.line(HELP)
    elif line == "/tools":
        for definition in talk.gate.definitions:
            summary = one_line((definition.description.strip().splitlines() or [""])[0], 100)
            verdict = talk.gate.policy.explain(definition).verdict
            terminal.line(f"{one_line(definition.name, 100)}  {summary}  [{verdict}]")
    elif line == "/allowed":
        for rule in talk.run(talk.gate.session_rules(talk.session)) or ["nothing"]:
            terminal.line(rule if isinstance(rule, str) else allowed_line(rule))
    elif line.partition(" ")[0] == "/revoke":
        count = talk.run(talk.gate.revoke(talk.session, line.partition(" ")[2].strip() or None))
        terminal.line(f"{count} taken back")
    else:
        terminal.line(f"callgate: there is no command {escape(line)!r}; /help lists them", color="failed")
