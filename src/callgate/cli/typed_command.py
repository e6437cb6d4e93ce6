"""`!command` at the prompt: a program that the user runs through the command tool of the chat.

The words come in, the output is shown; the model sees nothing of it. It is a call like any other: the tool's list of
programs, its sandbox and its deadline hold, and so do deny rules, rate limits and the audit log. Only the approval is the
user's own typing.
"""

from __future__ import annotations

import shlex
import uuid
from typing import TYPE_CHECKING, Any, cast

from callgate.cli.escaping import visible
from callgate.cli.render import one_line
from callgate.cli.style import MARK
from callgate.errors import CallgateError, UsageError
from callgate.types import FunctionCall, JsonObject, ToolDefinition, ToolResult

if TYPE_CHECKING:
    from callgate.cli.command_context import CommandContext

__all__ = ["run_typed"]

LINES_MAX = 2_000
NO_TOOL = (
    "there is no command tool in this chat; -T FILE.py:NAME brings one, such as "
    "NAME = CommandTool('.', allow=['git status', 'ls'])"
)


def run_typed(context: CommandContext, line: str) -> None:
    """Run one command and show its output. Errors are shown, and the conversation continues."""
    try:
        result = context.chat.run(_called(context, line))
    except CallgateError as error:
        context.terminal.line(f"callgate: {one_line(str(error), 1000)}", color="failed")
        return
    except KeyboardInterrupt:
        context.terminal.line("! Cancelled.", color="notice")
        return
    for text in _lines(result):
        context.terminal.line(text)
    if result.is_error:
        context.terminal.line(f"callgate: {one_line(result.error or 'it failed', 1000)}", color="failed")


async def _called(context: CommandContext, line: str) -> ToolResult:
    from callgate.calls.dispatcher import CallDispatcher
    from callgate.run.gate import guard_of

    gate = context.chat.gate
    tool = next((one for one in gate.definitions if one.kind == "command"), None)
    if tool is None:
        raise UsageError(NO_TOOL)
    call = FunctionCall(name=tool.name, args=_args(tool, line), id=f"typed-{uuid.uuid4().hex[:12]}")
    dispatcher = CallDispatcher(gate.tools, guard_of(gate), nobody=NO_TOOL)
    return await dispatcher.take(call, session=context.chat.session, ask=_typed, progress=_unseen).wait()


async def _typed(question: object) -> Any:
    """Approve: the user has typed it."""
    return "yes"


def _unseen(message: str, fraction: float | None = None) -> None:
    """Show no progress: the output follows when it is over."""


def _args(tool: ToolDefinition, line: str) -> dict[str, Any]:
    name, shape = next(iter(tool.input_schema["properties"].items()))
    try:
        return {name: shlex.split(line) if shape.get("type") == "array" else line}
    except ValueError as error:
        raise UsageError(f"the command cannot be read: {error}") from error


def _lines(result: ToolResult) -> list[str]:
    value: Any = result.value
    if not isinstance(value, dict):
        return [] if value is None else [MARK + visible(str(value))]
    answer = cast("JsonObject", value)
    output = f"{answer.get('stdout', '')}{answer.get('stderr', '')}".splitlines()
    shown = [MARK + visible(text) for text in output[:LINES_MAX]]
    more = [f"  {len(output) - LINES_MAX} more lines are not shown."] if len(output) > LINES_MAX else []
    code = answer.get("exit_code")
    return [*shown, *more, *([f"  exit code {code}"] if code else [])]
