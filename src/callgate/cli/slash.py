"""Slash commands of the conversation, one row of the table each.

Commands print lines and may change the model, mode, policy or session of the chat. `callgate.sessions` does the work on
sessions.
"""

from __future__ import annotations

import json
import mimetypes
import os
import shlex
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from callgate import strict_json
from callgate.cli.command_context import CommandContext
from callgate.cli.error_hints import with_hint
from callgate.cli.escaping import ascii_json, shown_args, visible
from callgate.cli.mcp_use import RESULT_LINES_MAX, ask_typed_prompt, use_server
from callgate.cli.options import APPROVAL_MODES, CALL_MODES
from callgate.cli.recap import own_words
from callgate.cli.render import Terminal, one_line
from callgate.cli.state import new_id, session_ids
from callgate.cli.style import MARK, counted
from callgate.cli.themes import THEMES, theme_name, use_theme
from callgate.content.sounds import playable
from callgate.errors import CallgateError, JsonError, UsageError
from callgate.types import FunctionCall, SessionRule, ToolResult

if TYPE_CHECKING:
    from callgate.mcp import ServerOverview
    from callgate.permission import Remaining

__all__ = ["COMMANDS", "Command", "perform", "show_call"]

T = TypeVar("T")

LISTED = 20


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table."""

    takes: str
    help: str
    run: Callable[[CommandContext, str], None]
    choices: Callable[[CommandContext], Iterable[str]] = lambda context: ()
    """Possible arguments, for completion."""


def perform(context: CommandContext, line: str) -> None:
    """Run one command. Errors are shown, and the conversation continues."""
    name, _, rest = line.partition(" ")
    command = COMMANDS.get(_ALIASES.get(name, name))
    try:
        if command is not None:
            command.run(context, rest.strip())
        elif not (":" in name and ask_typed_prompt(context, name, _words(rest))):
            context.terminal.line(f"callgate: there is no command {visible(name)!r}; /help lists them", color="failed")
    except CallgateError as error:
        context.terminal.line(f"callgate: {one_line(with_hint(error), 1000)}", color="failed")
    except click.ClickException as error:
        context.terminal.line(f"callgate: {one_line(error.format_message(), 1000)}", color="failed")
    except KeyboardInterrupt:
        context.terminal.line("! Cancelled.", color="notice")


def _words(rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise UsageError(f"that cannot be read: {error}") from error


# Looking -----------------------------------------------------------------------------------------------------------------


def _help(context: CommandContext, rest: str) -> None:
    rows = [(f"{name} {command.takes}".strip(), command.help) for name, command in COMMANDS.items()]
    context.terminal.rows(rows)
    context.say("")
    for text in _KEYS:
        context.say(text)


def _tools(context: CommandContext, rest: str) -> None:
    context.chat.start_servers()
    rows: list[tuple[str, str]] = []
    for definition in context.chat.gate.definitions:
        summary = one_line((definition.description.strip().splitlines() or [""])[0], 100)
        verdict = context.chat.gate.policy.explain(definition).verdict
        rows.append((one_line(definition.name, 100), f"{summary}  [{verdict}]"))
    context.terminal.rows(rows)


def _media(context: CommandContext, rest: str) -> None:
    """Write the newest media of the conversation to a file that does not exist yet."""
    if not context.terminal.media:
        context.say("There is nothing to save: the model has made no image or sound since this conversation was opened.")
        return
    media = playable(context.terminal.media[-1])
    if not media.data:
        context.say(f"It is at {one_line(media.uri or '', 500)}.")
        return
    name = rest or f"callgate-{new_id()[:8]}{mimetypes.guess_extension(media.mime_type) or '.bin'}"
    try:
        with open(os.path.expanduser(name), "xb") as file:
            file.write(media.data)
    except OSError as error:
        raise UsageError(f"{name!r} cannot be written: {error.strerror}") from error
    context.terminal.media.pop()
    context.say(f"Wrote {len(media.data)} bytes to {one_line(name, 500)}.")


def _mcp(context: CommandContext, rest: str) -> None:
    """Servers, their state, and what they offer; a resource to read, or a prompt to send."""
    if not context.chat.servers:
        context.say("There are no MCP servers; `callgate chat --mcp FILE` brings those of a file.")
        return
    from callgate.mcp import overview

    context.say("Starting what is not running yet ...")
    context.chat.start_servers()
    if rest:
        use_server(context, _words(rest))
        return
    for one in context.chat.run(overview(context.chat.servers)):
        _mcp_server(context, one)


def _mcp_server(context: CommandContext, one: ServerOverview) -> None:
    name = one_line(one.status.name, 100)
    if one.status.problem:
        context.terminal.marked("failed", name, f"  {one_line(one.status.problem, 500)}")
        return
    names = [tool.name for tool in one.status.tools]
    context.terminal.marked("done", name, f"  {counted(len(names), 'tool')}: {one_line(', '.join(names), 500)}")
    for resource in one.resources:
        context.say(f"    resource {one_line(resource.uri, 200)}  {one_line(resource.description or resource.name, 200)}")
    for prompt in one.prompts:
        wanted = " ".join(f"{given.name}={'...' if given.required else '(...)'}" for given in prompt.arguments)
        context.say(f"    prompt   {one_line(f'{prompt.name} {wanted}'.strip(), 200)}  {one_line(prompt.description, 200)}")
    for remark in one.status.remarks:
        context.say(f"    {one_line(remark, 500)}")
    if one.problem:
        context.say(f"    what else it has is not known: {one_line(one.problem, 500)}")


def _usage(context: CommandContext, rest: str) -> None:
    from callgate.machine.machine import RunMachine

    loop = RunMachine(context.chat.run(context.stored.store.load(context.chat.session)))
    used = loop.usage
    context.say(
        f"tokens   {used.total_tokens:,} in all: {used.input_tokens:,} in ({used.cached_tokens:,} from the cache), "
        f"{used.output_tokens:,} out, {used.thought_tokens:,} for thoughts, {used.tool_tokens:,} for tools"
    )
    context.say(
        f"context  about {loop.reply(context.chat.session).context_tokens:,} tokens, {len(loop.conversation)} contents"
    )
    if loop.cost is not None:
        context.say(f"cost     ${loop.cost:.4f}")
    for name, left in context.chat.gate.budget().items():
        context.say(f"left     {one_line(name, 100)}: {_left(left)}")


def _left(left: Remaining) -> str:
    """The remainder of a limit in words."""
    said = f"{max(left.left, 0):,.0f} of {left.burst:,.0f}"
    if left.per_s:
        rate = (left.per_s, "second") if left.per_s >= 1 else (left.per_s * 60, "minute")
        said += f", {rate[0]:,.4g} more per {rate[1]}"
    return said + (f", {left.inside:,} running" if left.inside else "")


def _call(context: CommandContext, rest: str) -> None:
    number = rest.removeprefix("#")
    if number and not number.isdecimal():
        raise UsageError(f"/call takes the number of a call, not {visible(rest)!r}")
    show_call(context.terminal, int(number) if number else None)


def show_call(terminal: Terminal, number: int | None = None) -> None:
    """Show a call and its result in full; without a number, the last one."""
    first, count = terminal.number_of_first, len(terminal.calls)
    number = first + count - 1 if number is None else number
    if not first <= number < first + count:
        missing = f"there is no call {number} here; there are {first} to {first + count - 1}"
        terminal.line(f"callgate: {missing if count else 'there are no calls here yet'}", color="failed")
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


def _model(context: CommandContext, rest: str) -> None:
    if not rest:
        context.say(f"{context.chat.gate.model.name}; /model NAME changes it")
        return
    from callgate.cli.provider import choose
    from callgate.cli.settings import limits_of, model_environment, settings_here

    settings = context.options.settings or settings_here()
    chosen = choose(None, rest, model_environment(settings), limits=limits_of(settings))
    context.chat.use(context.chat.gate.with_options(chosen.model))
    context.say(f"From now on {context.chat.gate.model.name} answers.")
    if chosen.line:
        context.say(chosen.line)


def _mode(context: CommandContext, rest: str) -> None:
    if not rest:
        context.say(f"{context.chat.gate.mode}; /mode {'|'.join(CALL_MODES)} changes how tools are declared")
        return
    mode: Any = _one_of(rest, CALL_MODES, "/mode")
    context.chat.use(context.chat.gate.with_options(mode=mode))
    context.say(f"Tools are now declared in the mode {mode}.")


def _approve(context: CommandContext, rest: str) -> None:
    if rest:
        from callgate.cli.build_chat import in_mode

        mode: Any = _one_of(rest, APPROVAL_MODES, "/approve")
        context.chat.use(context.chat.gate.with_options(policy=in_mode(context.chat.gate.policy, mode)))
        context.say(f"The approval mode is now {mode}.")
        return
    if context.chat.last is not None and context.chat.last.approvals:
        context.leaves = not context.exchange(None)
        return
    context.say(f"No call waits for an answer. The approval mode is {context.chat.gate.policy.mode or 'default'}; "
             f"/approve {'|'.join(APPROVAL_MODES)} changes it.")  # fmt: skip


def _theme(context: CommandContext, rest: str) -> None:
    if not rest:
        context.say(f"{theme_name()}; /theme {'|'.join(THEMES)} changes the colours")
        return
    use_theme(_one_of(rest, tuple(THEMES), "/theme"))
    context.say(f"The theme is now {rest}; `callgate config set theme {rest}` keeps it.")


NOTHING_ALLOWED = "There are no always approvals in this conversation."


def _allowed(context: CommandContext, rest: str) -> None:
    for rule in context.chat.run(context.chat.gate.session_rules(context.chat.session)) or [NOTHING_ALLOWED]:
        context.say(rule if isinstance(rule, str) else allowed_line(rule))


def allowed_line(rule: SessionRule) -> str:
    """Describe one session rule."""
    server = f" of {ascii_json(rule.server)}" if rule.server else ""
    what = (
        f" in {', '.join(rule.paths)}" if rule.paths else f" with {ascii_json(rule.exact)}" if rule.exact is not None else ""
    )
    return f"{rule.id}  {one_line(rule.tool, 100)}{server}{what}"


def _revoke(context: CommandContext, rest: str) -> None:
    context.say(f"{context.chat.run(context.chat.gate.revoke(context.chat.session, rest or None))} revoked")


def _one_of(word: str, words: tuple[str, ...], command: str) -> str:
    if word not in words:
        raise UsageError(f"{command} takes {', '.join(words)}, not {visible(word)!r}")
    return word


# Sessions ----------------------------------------------------------------------------------------------------------------


def _sessions(context: CommandContext, rest: str) -> None:
    from callgate.cli.sessions import session_rows

    lines, more = context.chat.run(session_rows(context.stored.store, LISTED))
    for line in lines or ["No session is stored."]:
        context.say(line)
    if more:
        context.say(f"... and {more} more; `callgate sessions list --all` lists them")


def _save(context: CommandContext, rest: str) -> None:
    if not rest:
        where = context.stored.place or "memory, and gone when you leave"
        context.say(f"This is the session {context.chat.session}, stored in {where}. /save FILE writes it to a file.")
        return
    from callgate.sessions import export_session

    facts = _found(context, context.stored.store.load(context.chat.session))
    text = json.dumps(export_session({"id": context.chat.session}, facts), indent=2)
    path = os.path.expanduser(rest)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except FileExistsError:
        raise UsageError(f"{path!r} exists already: choose another name") from None
    except OSError as error:
        raise UsageError(f"{path!r} cannot be written: {error.strerror}") from error
    context.say(f"Written to {path}. /load {path} continues it.")


def _found(context: CommandContext, work: Coroutine[Any, Any, list[T]]) -> list[T]:
    found = context.chat.run(work)
    if not found:
        raise UsageError("the conversation is empty, so there is nothing to save")
    return found


def _load(context: CommandContext, rest: str) -> None:
    if not rest:
        raise UsageError("/load takes the id of a session, or a file that /save wrote; /sessions lists them")
    path = os.path.expanduser(rest)
    session = _from_file(context, path) if os.path.isfile(path) else _from_store(context, rest)
    context.chat.begin(session)
    context.terminal.forget_calls()
    context.say(f"This is now the session {session}.")


def _from_store(context: CommandContext, id: str) -> str:
    from callgate.sessions import find

    return context.chat.run(find(context.stored.store, id)).id


def _from_file(context: CommandContext, path: str) -> str:
    from callgate.sessions import facts_of, import_session

    try:
        with open(path, "rb") as file:
            value: Any = strict_json.parse(file.read(), depth_max=2 * strict_json.DEPTH_MAX)
    except (OSError, JsonError) as error:
        raise UsageError(f"{path!r} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path!r} holds no session: /save writes one")
    session = f"import-{uuid.uuid4().hex[:12]}"
    context.chat.run(import_session(context.stored.store, session, facts_of(cast("dict[str, Any]", value))))
    return session


def _undo(context: CommandContext, rest: str) -> None:
    from callgate.cli.file_undo import file_undo
    from callgate.sessions import exchanges_of, rewind

    if rest and not rest.isdecimal():
        raise UsageError(f"/undo takes the number of exchanges to remove, not {visible(rest)!r}")
    store = context.stored.store
    if not exchanges_of(context.chat.run(store.load(context.chat.session))):
        raise UsageError("there is nothing to undo: the conversation is empty")
    taken = context.chat.run(rewind(store, context.chat.session, exchanges=int(rest or 1), undo=file_undo()))
    for note in taken.notes:
        context.say(note)
    for exchange in taken.exchanges:
        context.say(f"removed: {one_line(own_words(exchange), 400)}")


def _retry(context: CommandContext, rest: str) -> None:
    from callgate.cli.file_undo import file_undo
    from callgate.sessions import exchanges_of, rewind, state_from_facts

    store, session = context.stored.store, context.chat.session
    facts = context.chat.run(store.load(session))
    known = exchanges_of(facts)
    if not known:
        raise UsageError("there is nothing to send again: the conversation is empty")
    last = known[-1]
    if state_from_facts(session, facts).state == "waiting":
        raise UsageError("the last message waits for an approval; /approve asks again")
    if last.finish_reason == "cancelled":
        taken = context.chat.run(rewind(store, session, expected=[last.id], undo=file_undo()))
        for note in taken.notes:
            context.say(note)
        context.exchange(cast("list[Any]", last.content["parts"]))
        return
    if last.is_answered and last.failure is None:
        raise UsageError("the last message was answered; use /undo, then send it again")
    if last.is_answered:
        context.exchange(None)  # Its calls are done and stay done: the run goes on from their results.
        return
    context.chat.run(rewind(store, session, expected=[last.id]))
    context.exchange(cast("list[Any]", last.content["parts"]))


def _compact(context: CommandContext, rest: str) -> None:
    dropped = context.chat.run(context.chat.gate.compact(context.chat.session))
    context.say(
        f"{dropped} contents were summarized." if dropped else "There is nothing to summarize before your last message."
    )


def _clear(context: CommandContext, rest: str) -> None:
    before, begun = context.chat.session, context.chat.has_begun
    context.chat.begin(new_id())
    context.terminal.forget_calls()
    context.terminal.clear()
    stored = f" The one before is stored: /load {before}" if begun and context.stored.is_kept else ""
    context.say(f"A new conversation begins.{stored}")


def _exit(context: CommandContext, rest: str) -> None:
    context.leaves = True


def _known_sessions(context: CommandContext) -> list[str]:
    if not context.stored.is_kept:
        return []
    # Called while the loop of the conversation is running, so use another loop in another thread.
    with ThreadPoolExecutor(1) as thread:
        return [id for id, _ in thread.submit(session_ids, context.stored.place).result()]


def _known_models(context: CommandContext) -> list[str]:
    return [
        "gemini-flash-latest",
        "gemini-flash-lite-latest",
        "gemini-pro-latest",
        "openai:",
        "openai-responses:",
        "anthropic:",
        "embedded:",
    ]


COMMANDS: dict[str, Command] = {
    "/help": Command("", "list the commands", _help),
    "/tools": Command("", "list the tools, and which calls need approval", _tools),
    "/mcp": Command(
        "[read|ask SERVER ...]",
        "list the MCP servers, their state and what they offer; read a resource or send a prompt of one",
        _mcp,
    ),
    "/media": Command("[FILE]", "write the last image or sound that the model made to a new file", _media),
    "/model": Command("[NAME]", "show or change the model", _model, _known_models),
    "/mode": Command("[MODE]", "show or change how tools are declared: auto, native, prompted", _mode, lambda _: CALL_MODES),
    "/approve": Command(
        "[MODE]",
        "answer pending approvals, or set the approval mode: default, auto_edit, yolo, plan",
        _approve,
        lambda _: APPROVAL_MODES,
    ),
    "/theme": Command("[NAME]", "show or change the colours: " + ", ".join(THEMES), _theme, lambda _: THEMES),
    "/allowed": Command("", "list the always approvals of this conversation", _allowed),
    "/revoke": Command("[ID]", "revoke the always approvals: one, or all", _revoke),
    "/call": Command("[N]", "show call N, or the last one, with all arguments and the whole result (also Ctrl-O)", _call),
    "/usage": Command("", "show the tokens that this conversation has used", _usage),
    "/sessions": Command("", "list the stored conversations", _sessions),
    "/save": Command("[FILE]", "show where this conversation is stored, or write it to a file", _save),
    "/load": Command("ID|FILE", "continue another conversation", _load, _known_sessions),
    "/undo": Command("[N]", "remove the last exchange, or N of them, and restore the files written in them", _undo),
    "/retry": Command("", "send the last message again if it failed, or continue from its results", _retry),
    "/compact": Command("", "summarize the conversation so far to free context", _compact),
    "/clear": Command("", "start a new conversation", _clear),
    "/exit": Command("", "exit (also Ctrl-D)", _exit),
}
"""Name of a command -> what it does."""

_ALIASES = {"/quit": "/exit", "/stats": "/usage", "/new": "/clear", "/reset": "/clear", "/restore": "/undo", "/?": "/help"}
_KEYS = (
    "/SERVER:PROMPT VALUE ... sends a prompt of an MCP server, and @SERVER:URI shows the model a resource of one.",
    "@FILE in what you say shows that file to the model. Alt-Enter, or a backslash at the end, begins a new line.",
    "!COMMAND runs a program through the chat's command tool, by its rules; the model does not see it.",
    "Ctrl-C cancels the answer; the conversation continues. Twice, it exits.",
)
