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
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, cast

import click

from callgate import strict_json
from callgate.cli.demo_tools import DEMO_TOOLS
from callgate.cli.provider import PROVIDERS, Chosen, choose
from callgate.cli.render import Terminal, ending_sentence, escape, is_terminal, one_line, shown_call
from callgate.cli.tools import ToolLoadError, load_tools
from callgate.errors import CallgateError, UsageError
from callgate.events import Event, RunEnded, to_json
from callgate.models import Mode
from callgate.permission import Approval, Policy
from callgate.runtime import Gate
from callgate.types import Decision, FunctionCall, JsonObject, Reply, ToolDefinition

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
/tools   the tools that can be called
/help    this list
/exit    leave (Ctrl-D does too)
Ctrl-C stops the answer that is being given; the conversation goes on."""


class InputError(click.ClickException):
    """What was given cannot be used."""

    exit_code = BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for on the command line."""

    prompt: str | None
    tool: tuple[str, ...]
    mcp: tuple[str, ...]
    provider: str | None
    model: str | None
    mode: Mode
    system: str | None
    approval_mode: Literal["default", "yolo"]
    output: Literal["text", "json", "stream-json"]
    example: bool
    debug: bool


@click.command(short_help="Talk to a model that can call tools.")
@click.argument("prompt", required=False)
@click.option("-T", "--tool", multiple=True, metavar="TOOL", help="module, module:fn, file.py or file.py:fn; repeatable.")
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
    type=click.Choice(["default", "yolo"]),
    default="default",
    help="default: ask before a call that may change something; yolo: never ask.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    help="text, one JSON object, or one JSON line for each event.",
)
@click.option("--example", is_flag=True, help="Where nobody can type and no prompt comes, show a short conversation.")
@click.option("--debug", is_flag=True, help="Log to stderr, with tracebacks.")
@click.pass_context
def chat(ctx: click.Context, **given: Any) -> None:
    """Answers PROMPT, or what is piped in, with the help of tools; without either, starts a conversation.

    Exit codes: 0, 1 an error, 2 wrong usage, 42 bad input, 53 the limit of turns, 130 Ctrl-C.
    """
    options = Options(**given)
    chosen = choose(options.provider, options.model, os.environ)
    # asyncio would print tracebacks of its own when a second Ctrl-C ends everything in mid-flight.
    logging.getLogger("asyncio").addHandler(_log_handler() if options.debug else logging.NullHandler())
    if options.debug:
        logging.getLogger("callgate").addHandler(_log_handler())
        logging.getLogger("callgate").setLevel(logging.DEBUG)
    terminal = Terminal(sys.stdout, sys.stderr)
    prompts = _prompts(options)
    if prompts is None and options.output != "text":
        raise click.UsageError(f"-o {options.output} needs a prompt: give one as an argument, or pipe it in", ctx)
    talk = Talk(_gate(options, chosen, terminal, shows_example=prompts is not None and len(prompts) > 1))
    if chosen.line:
        terminal.line(chosen.line)
    chosen.warm()
    with talk:
        if prompts is None:
            code = _converse(talk, terminal)
        elif len(prompts) > 1:
            code = _show_example(talk, terminal, prompts)
        else:
            code = _answer(talk, terminal, prompts[0], options.output)
    ctx.exit(code)


# From options to a gate --------------------------------------------------------------------------------------------------


def _gate(options: Options, chosen: Chosen, terminal: Terminal, *, shows_example: bool) -> Gate:
    policy = Policy(default="allow") if options.approval_mode == "yolo" else Policy()
    approve = None
    if is_terminal(sys.stdin):
        approve = Approver(terminal)
    elif options.approval_mode == "default":
        policy = Unattended()
    try:
        # The example asks for the weather, and nobody sits there who could take the made-up figures for true.
        unnamed = DEMO_TOOLS if shows_example else chosen.tools
        servers = _mcp_servers(options.mcp, terminal)
        tools = [*(load_tools(options.tool) if options.tool else [] if servers else unnamed), *servers]
        return Gate(chosen.model, tools, mode=options.mode, system=options.system, policy=policy, approve=approve)
    except (ToolLoadError, UsageError) as error:
        logging.getLogger("callgate.cli").debug("a tool cannot be used", exc_info=error)
        raise InputError(str(error)) from error


def _mcp_servers(files: Sequence[str], terminal: Terminal) -> list[object]:
    """The servers of the files; what is not understood in them is said, and harms nobody else."""
    if not files:
        return []
    from callgate.mcp import read_servers

    read = [read_servers(file) for file in files]
    for sentence in (sentence for one in read for sentence in one.warnings):
        terminal.line(f"callgate: {sentence}")
    return [server for one in read for server in one.servers]


def _prompts(options: Options) -> Sequence[str] | None:
    """What to answer; None when somebody sits there who can be asked."""
    prompt = options.prompt
    if prompt is None:
        if is_terminal(sys.stdin):
            return None
        prompt = _piped(wait_s=EXAMPLE_WAIT_S if options.example else None)
        if options.example and not prompt.strip():
            return EXAMPLE
    prompt = strict_json.without_surrogates(prompt)
    if not prompt.strip():
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


def _log_handler() -> logging.Handler:
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

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._session = f"chat-{uuid.uuid4().hex[:12]}"
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

    def turn(self, prompt: str, show: Callable[[Event], None]) -> Reply:
        """Runs one turn of the conversation and shows its events.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed twice.
        """
        self._interrupts = 0
        return self._runner.run(self._turn(prompt, show))

    async def _turn(self, prompt: str, show: Callable[[Event], None]) -> Reply:
        reply: Reply | None = None
        events = cast("AsyncGenerator[Event]", self.gate.stream(prompt, session=self._session))
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    show(event)
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
        if self._loop is not None and not self.gate.cancel(self._session):
            self._loop.call_later(CANCEL_AGAIN_S, self._cancel)


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait({task}, timeout=CLOSE_WAIT_S)


def _answer(talk: Talk, terminal: Terminal, prompt: str, output: str) -> int:
    show = {"text": terminal.show, "json": _ignore, "stream-json": _print_event}[output]
    try:
        reply = talk.turn(prompt, show)
    except CallgateError as error:
        terminal.end_line()
        raise click.ClickException(str(error)) from error
    if output == "json":
        print(json.dumps(_summary(reply), default=repr), flush=True)
    if output != "text" and (sentence := ending_sentence(reply)):
        terminal.line(f"callgate: {sentence}")
    return _exit_code(reply)


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


def _take_turn(talk: Talk, terminal: Terminal, line: str) -> bool:
    """One turn; False when the person wants to leave. What fails is told, and the conversation goes on."""
    try:
        talk.turn(line, terminal.show)
    except CallgateError as error:
        terminal.line(f"callgate: {one_line(str(error), 1000)}", color="failed")
    except KeyboardInterrupt:
        terminal.line("")
        return False
    return True


def _command(line: str, talk: Talk, terminal: Terminal) -> None:
    if line == "/help":
        terminal.line(HELP)
    elif line == "/tools":
        for definition in talk.gate.definitions:
            summary = one_line((definition.description.strip().splitlines() or [""])[0], 100)
            terminal.line(f"{one_line(definition.name, 100)}  {summary}".rstrip())
    else:
        terminal.line(f"callgate: there is no command {escape(line)!r}; /help lists them", color="failed")


# Permission --------------------------------------------------------------------------------------------------------------


class Unattended(Policy):
    """Where nobody can be asked, what would be asked is denied, with a sentence that says what to do."""

    def decide(self, definition: ToolDefinition, call: FunctionCall) -> Decision:
        """As the policy says, but for what it would ask."""
        decision = super().decide(definition, call)
        if decision.verdict != "ask":
            return decision
        reason = f"{decision.reason} Nobody can be asked here; run it with --approval-mode yolo to allow such calls."
        return Decision(verdict="deny", reason=reason)


class Approver:
    """Asks the person at the terminal about one call."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    async def __call__(self, call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
        """`yes`, `no` or `always`; anything but a clear answer is no."""
        self._terminal.line(f"? {shown_call(call)}", color="notice")
        if reason:
            self._terminal.line(f"  {one_line(reason, 500)}")
        _forget_typed()
        self._terminal.ask("  Run it? [y]es, [n]o, [a]lways in this conversation (Enter: no) ")
        answers: dict[str, Approval] = {"y": "yes", "yes": "yes", "a": "always", "always": "always"}
        return answers.get((await _typed_line()).strip().lower(), "no")


def _forget_typed() -> None:
    """Drops what was typed before the question was shown: it was no answer to it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def _typed_line() -> str:
    """One line from the terminal; other calls go on meanwhile, and Ctrl-C ends the wait."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if not line.done():
            line.set_result(os.read(descriptor, 4096).decode(errors="replace"))

    try:
        loop.add_reader(descriptor, read)
    except NotImplementedError:  # Windows, where a console cannot be waited for.
        return input()  # noqa: ASYNC250
    try:
        return await line
    finally:
        loop.remove_reader(descriptor)
