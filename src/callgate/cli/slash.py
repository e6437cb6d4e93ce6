"""The commands of a conversation: lines that begin with a slash, one row of the table each.

A command and what stands behind it come in; lines for the person go out, and now and then another model, mode, policy or
session for the talk. What a command does to a session is the business of `callgate.sessions`.
"""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from callgate import strict_json
from callgate.cli.options import APPROVAL_MODES, CALL_MODES, Options
from callgate.cli.render import Terminal, one_line
from callgate.cli.state import Kept, new_id, session_ids
from callgate.cli.talk import Talk
from callgate.cli.troubles import with_advice
from callgate.cli.visible import ascii_json, shown_args, visible
from callgate.errors import CallgateError, JsonError, UsageError
from callgate.types import FunctionCall, SessionRule, ToolResult

if TYPE_CHECKING:
    from callgate.content.prompt import Prompt
    from callgate.mcp import ServerOverview

__all__ = ["COMMANDS", "CallDispatcher", "Command", "perform", "show_call"]

T = TypeVar("T")

LISTED = 20
RESULT_LINES_MAX = 2_000
MARK = "  | "


@dataclass(slots=True)
class CallDispatcher:
    """Everything that a command may reach."""

    talk: Talk
    terminal: Terminal
    options: Options
    kept: Kept
    turn: Callable[[Prompt | None], bool]
    """Asks, or with None goes on with a run that waits; False when the person wants to leave."""
    leaves: bool = field(default=False)

    def say(self, text: str) -> None:
        """One line for the person."""
        self.terminal.line(text)


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table."""

    takes: str
    help: str
    run: Callable[[CallDispatcher, str], None]
    choices: Callable[[CallDispatcher], Iterable[str]] = lambda desk: ()
    """What may stand behind it, for completion."""


def perform(desk: CallDispatcher, line: str) -> None:
    """Carries out one line. What goes wrong is told, and the conversation goes on."""
    name, _, rest = line.partition(" ")
    command = COMMANDS.get(_ALIASES.get(name, name))
    if command is None:
        desk.terminal.line(f"callgate: there is no command {visible(name)!r}; /help lists them", color="failed")
        return
    try:
        command.run(desk, rest.strip())
    except CallgateError as error:
        desk.terminal.line(f"callgate: {one_line(with_advice(error), 1000)}", color="failed")
    except click.ClickException as error:
        desk.terminal.line(f"callgate: {one_line(error.format_message(), 1000)}", color="failed")
    except KeyboardInterrupt:
        desk.terminal.line("! RunCancelled.", color="notice")


# Looking -----------------------------------------------------------------------------------------------------------------


def _help(desk: CallDispatcher, rest: str) -> None:
    rows = [(f"{name} {command.takes}".strip(), command.help) for name, command in COMMANDS.items()]
    width = max(len(usage) for usage, _ in rows)
    for usage, text in rows:
        desk.say(f"{usage:<{width}}  {text}")
    for text in _KEYS:
        desk.say(text)


def _tools(desk: CallDispatcher, rest: str) -> None:
    desk.talk.start_servers()
    for definition in desk.talk.gate.definitions:
        summary = one_line((definition.description.strip().splitlines() or [""])[0], 100)
        verdict = desk.talk.gate.policy.explain(definition).verdict
        desk.say(f"{one_line(definition.name, 100)}  {summary}  [{verdict}]")


def _mcp(desk: CallDispatcher, rest: str) -> None:
    """Servers, how they stand, and what they have; a resource to look at, or a prompt of theirs to ask."""
    if not desk.talk.servers:
        desk.say("There are no MCP servers; `callgate chat --mcp FILE` brings those of a file.")
        return
    from callgate.mcp import overview

    desk.say("Starting what is not running yet ...")
    desk.talk.start_servers()
    if rest:
        _mcp_use(desk, shlex.split(rest))
        return
    for one in desk.talk.run(overview(desk.talk.servers)):
        _mcp_server(desk, one)


def _mcp_server(desk: CallDispatcher, one: ServerOverview) -> None:
    name = one_line(one.status.name, 100)
    if one.status.problem:
        desk.terminal.line(f"x {name}  {one_line(one.status.problem, 500)}", color="failed")
        return
    names = [tool.name for tool in one.status.tools]
    desk.say(f"+ {name}  {len(names)} tools: {one_line(', '.join(names), 500)}")
    for resource in one.resources:
        desk.say(f"    resource {one_line(resource.uri, 200)}  {one_line(resource.description or resource.name, 200)}")
    for prompt in one.prompts:
        wanted = " ".join(f"{given.name}={'...' if given.required else '(...)'}" for given in prompt.arguments)
        desk.say(f"    prompt   {one_line(f'{prompt.name} {wanted}'.strip(), 200)}  {one_line(prompt.description, 200)}")
    for remark in one.status.remarks:
        desk.say(f"    {one_line(remark, 500)}")
    if one.problem:
        desk.say(f"    what else it has is not known: {one_line(one.problem, 500)}")


def _mcp_use(desk: CallDispatcher, words: Sequence[str]) -> None:
    """`read SERVER URI` shows a resource; `ask SERVER PROMPT KEY=VALUE ...` asks a prompt of the server's."""
    verb, name, what, *given = [*words, "", "", ""]
    server = next((one for one in desk.talk.servers if one.name == name), None)
    if verb not in ("read", "ask") or not what:
        raise UsageError("/mcp takes nothing, `read SERVER ADDRESS`, or `ask SERVER PROMPT KEY=VALUE ...`")
    if server is None:
        known = ", ".join(one.name for one in desk.talk.servers)
        raise UsageError(f"there is no MCP server {name!r}; there are {known}")
    if verb == "read":
        read = desk.talk.run(server.read_resource(what))
        for part in cast("list[Any]", read) if isinstance(read, list) else [read]:
            text = part if isinstance(part, str) else f"({part.mime_type}, {len(part.data):,} bytes)"
            for line in text.splitlines()[:RESULT_LINES_MAX]:
                desk.say(MARK + visible(line))
        return
    pairs = [word.partition("=") for word in given if word]
    asked = desk.talk.run(server.get_prompt(what, {key: value for key, _, value in pairs}))
    desk.leaves = not desk.turn(asked)


def _usage(desk: CallDispatcher, rest: str) -> None:
    from callgate.machine.machine import RunMachine

    loop = RunMachine(desk.talk.run(desk.kept.store.load(desk.talk.session)))
    used = loop.usage
    desk.say(
        f"tokens   {used.total_tokens:,} in all: {used.input_tokens:,} in ({used.cached_tokens:,} from the cache), "
        f"{used.output_tokens:,} out, {used.thought_tokens:,} for thoughts, {used.tool_tokens:,} for tools"
    )
    desk.say(f"context  about {loop.reply(desk.talk.session).context_tokens:,} tokens, {len(loop.conversation)} contents")
    if loop.cost is not None:
        desk.say(f"cost     {loop.cost:.4f}")
    for name, left in desk.talk.gate.budget().items():
        desk.say(f"left     {one_line(name, 100)}: {left}")


def _call(desk: CallDispatcher, rest: str) -> None:
    number = rest.removeprefix("#")
    if number and not number.isdecimal():
        raise UsageError(f"/call takes the number of a call, not {visible(rest)!r}")
    show_call(desk.terminal, int(number) if number else None)


def show_call(terminal: Terminal, number: int | None = None) -> None:
    """Shows a call and its result whole; without a number, the last one."""
    first, count = terminal.number_of_first, len(terminal.calls)
    number = first + count - 1 if number is None else number
    if not first <= number < first + count:
        span = f"{first} to {first + count - 1}" if count else "none so far"
        terminal.line(f"callgate: there is no call {number} here; there are {span}", color="failed")
        return
    for line in _call_lines(number, *terminal.calls[number - first]):
        terminal.line(line)


def _call_lines(number: int, call: FunctionCall, result: ToolResult) -> Iterator[str]:
    yield f"call {number}: {ascii_json(call.name)[1:-1]}, {result.status} after {result.duration_s:.3f} s"
    for line in shown_args(call.args):
        yield MARK + line
    if result.is_error:
        yield f"  error: {result.error}"
    else:
        value = result.value
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=repr)
        lines = text.splitlines()
        yield "  result:"
        yield from (MARK + line for line in lines[:RESULT_LINES_MAX])
        if len(lines) > RESULT_LINES_MAX:
            yield f"  {len(lines) - RESULT_LINES_MAX} more lines are not shown."
    for note in result.notes:
        yield f"  note: {note}"


# Another model, mode or policy -------------------------------------------------------------------------------------------


def _model(desk: CallDispatcher, rest: str) -> None:
    if not rest:
        desk.say(f"{desk.talk.gate.model.name}; /model NAME changes it")
        return
    from callgate.cli.provider import choose
    from callgate.cli.settings import limits_of, settings_here

    settings = settings_here()
    chosen = choose(None, rest, settings.environment(os.environ), limits=limits_of(settings))
    desk.talk.use(desk.talk.gate.with_options(chosen.model))
    desk.say(f"From now on {desk.talk.gate.model.name} answers.")
    if chosen.line:
        desk.say(chosen.line)


def _mode(desk: CallDispatcher, rest: str) -> None:
    if not rest:
        desk.say(f"{desk.talk.gate.mode}; /mode {'|'.join(CALL_MODES)} changes how the model is told of tools")
        return
    mode: Any = _one_of(rest, CALL_MODES, "/mode")
    desk.talk.use(desk.talk.gate.with_options(mode=mode))
    desk.say(f"The model is now told of tools in the mode {mode}.")


def _approve(desk: CallDispatcher, rest: str) -> None:
    if rest:
        from callgate.cli.assemble import in_mode

        mode: Any = _one_of(rest, APPROVAL_MODES, "/approve")
        desk.talk.use(desk.talk.gate.with_options(policy=in_mode(desk.talk.gate.policy, mode)))
        desk.say(f"The approval mode is now {mode}.")
        return
    if desk.talk.last is not None and desk.talk.last.approvals:
        desk.leaves = not desk.turn(None)
        return
    desk.say(f"No call waits for an answer. The approval mode is {desk.talk.gate.policy.mode or 'default'}; "
             f"/approve {'|'.join(APPROVAL_MODES)} changes it.")  # fmt: skip


def _allowed(desk: CallDispatcher, rest: str) -> None:
    for rule in desk.talk.run(desk.talk.gate.session_rules(desk.talk.session)) or ["nothing"]:
        desk.say(rule if isinstance(rule, str) else allowed_line(rule))


def allowed_line(rule: SessionRule) -> str:
    """One lasting answer in words."""
    server = f" of {ascii_json(rule.server)}" if rule.server else ""
    what = (
        f" in {', '.join(rule.paths)}" if rule.paths else f" with {ascii_json(rule.exact)}" if rule.exact is not None else ""
    )
    return f"{rule.id}  {one_line(rule.tool, 100)}{server}{what}"


def _revoke(desk: CallDispatcher, rest: str) -> None:
    desk.say(f"{desk.talk.run(desk.talk.gate.revoke(desk.talk.session, rest or None))} taken back")


def _one_of(word: str, words: tuple[str, ...], command: str) -> str:
    if word not in words:
        raise UsageError(f"{command} takes {', '.join(words)}, not {visible(word)!r}")
    return word


# Sessions ----------------------------------------------------------------------------------------------------------------


def _sessions(desk: CallDispatcher, rest: str) -> None:
    from callgate.cli.sessions import session_rows

    lines, more = desk.talk.run(session_rows(desk.kept.store, LISTED))
    for line in lines or ["No session is kept."]:
        desk.say(line)
    if more:
        desk.say(f"... and {more} more; `callgate sessions list --all` lists them")


def _save(desk: CallDispatcher, rest: str) -> None:
    if not rest:
        where = desk.kept.place or "memory, and gone when you leave"
        desk.say(f"This is the session {desk.talk.session}, kept in {where}. /save FILE writes it to a file.")
        return
    from callgate.sessions import document

    facts = _found(desk, desk.kept.store.load(desk.talk.session))
    text = json.dumps(document({"id": desk.talk.session}, facts), indent=2)
    path = os.path.expanduser(rest)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except FileExistsError:
        raise UsageError(f"{path!r} is there already: choose another name") from None
    except OSError as error:
        raise UsageError(f"{path!r} cannot be written: {error.strerror}") from error
    desk.say(f"Written to {path}. /load {path} takes it up again.")


def _found(desk: CallDispatcher, work: Coroutine[Any, Any, list[T]]) -> list[T]:
    found = desk.talk.run(work)
    if not found:
        raise UsageError("nothing was said yet, so there is nothing to keep")
    return found


def _load(desk: CallDispatcher, rest: str) -> None:
    if not rest:
        raise UsageError("/load takes the id of a session, or a file that /save wrote; /sessions lists them")
    path = os.path.expanduser(rest)
    session = _from_file(desk, path) if os.path.isfile(path) else _from_store(desk, rest)
    desk.talk.begin(session)
    desk.terminal.forget_calls()
    desk.say(f"This is now the session {session}.")


def _from_store(desk: CallDispatcher, id: str) -> str:
    from callgate.sessions import find

    return desk.talk.run(find(desk.kept.store, id)).id


def _from_file(desk: CallDispatcher, path: str) -> str:
    from callgate.sessions import facts_of, import_session

    try:
        with open(path, "rb") as file:
            value: Any = strict_json.parse(file.read(), depth_max=2 * strict_json.DEPTH_MAX)
    except (OSError, JsonError) as error:
        raise UsageError(f"{path!r} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path!r} holds no session: /save writes one")
    session = f"import-{uuid.uuid4().hex[:12]}"
    desk.talk.run(import_session(desk.kept.store, session, facts_of(cast("dict[str, Any]", value))))
    return session


def _undo(desk: CallDispatcher, rest: str) -> None:
    from callgate.cli.file_undo import file_undo
    from callgate.sessions import rewind

    if rest and not rest.isdecimal():
        raise UsageError(f"/undo takes how many turns to take back, not {visible(rest)!r}")
    taken = desk.talk.run(rewind(desk.kept.store, desk.talk.session, exchanges=int(rest or 1), undo=file_undo()))
    for note in taken.notes:
        desk.say(note)
    for turn in taken.exchanges:
        desk.say(f"taken back: {one_line(turn.said, 400)}")


def _compact(desk: CallDispatcher, rest: str) -> None:
    dropped = desk.talk.run(desk.talk.gate.compact(desk.talk.session))
    desk.say(f"{dropped} contents were summed up." if dropped else "There is nothing to sum up before your last words.")


def _clear(desk: CallDispatcher, rest: str) -> None:
    before, begun = desk.talk.session, desk.talk.has_begun
    desk.talk.begin(new_id())
    desk.terminal.forget_calls()
    desk.terminal.clear()
    kept = f" The one before is kept: /load {before}" if begun and desk.kept.is_kept else ""
    desk.say(f"A new conversation begins.{kept}")


def _exit(desk: CallDispatcher, rest: str) -> None:
    desk.leaves = True


def _known_sessions(desk: CallDispatcher) -> list[str]:
    if not desk.kept.is_kept:
        return []
    # Asked for while the loop of the conversation is running, so on another one, in another thread.
    with ThreadPoolExecutor(1) as thread:
        return [id for id, _ in thread.submit(session_ids, desk.kept.place).result()]


def _known_models(desk: CallDispatcher) -> list[str]:
    return ["gemini-flash-latest", "gemini-flash-lite-latest", "gemini-pro-latest", "openai:", "embedded:"]


COMMANDS: dict[str, Command] = {
    "/help": Command("", "this list", _help),
    "/tools": Command("", "the tools that can be called, and what is asked before they are", _tools),
    "/mcp": Command(
        "[read|ask SERVER ...]", "the MCP servers, how they stand and what they have; read or ask something of one", _mcp
    ),
    "/model": Command("[NAME]", "the model that answers, or another one", _model, _known_models),
    "/mode": Command("[MODE]", "how the model is told of tools: auto, native, prompted", _mode, lambda _: CALL_MODES),
    "/approve": Command(
        "[MODE]",
        "answer what waits, or change what is asked: default, auto_edit, yolo, plan",
        _approve,
        lambda _: APPROVAL_MODES,
    ),
    "/allowed": Command("", "what was allowed for good in this conversation", _allowed),
    "/revoke": Command("[ID]", "take back what was allowed for good: one answer, or all", _revoke),
    "/call": Command("[N]", "call N with all its arguments and its whole result; the last one (also Ctrl-O)", _call),
    "/usage": Command("", "tokens that this conversation has used", _usage),
    "/sessions": Command("", "the conversations that are kept", _sessions),
    "/save": Command("[FILE]", "where this conversation is kept, or write it to a file", _save),
    "/load": Command("ID|FILE", "go on with another conversation", _load, _known_sessions),
    "/undo": Command("[N]", "take back the last turn, or N, and what was written to files in it", _undo),
    "/compact": Command("", "sum up everything before your last words, to save room", _compact),
    "/clear": Command("", "begin a new conversation", _clear),
    "/exit": Command("", "leave (Ctrl-D does too)", _exit),
}
"""Name of a command -> what it does."""

_ALIASES = {"/quit": "/exit", "/stats": "/usage", "/new": "/clear", "/reset": "/clear", "/restore": "/undo", "/?": "/help"}
_KEYS = (
    "@FILE in what you say shows that file to the model. Alt-Enter, or a backslash at the end, begins a new line.",
    "Ctrl-C stops the answer that is being given; the conversation goes on. Twice, it leaves.",
)
