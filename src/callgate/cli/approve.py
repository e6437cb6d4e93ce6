"""Approval prompts at the terminal: the exact call, a preview of its effect, and then the question.

Takes a call, returns an answer. The question is drawn last, nothing else is drawn while it is open, and keys typed before
it are discarded, so neither output of a model or tool nor early typing counts as an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from callgate import strict_json
from callgate.cli.escaping import ascii_json, one_line, shown_args, shown_call, wrapped
from callgate.cli.render import Terminal
from callgate.cli.tty import Tty
from callgate.errors import JsonError
from callgate.events import ApprovalNeeded, Event
from callgate.types import FunctionCall, JsonObject, ToolDefinition

if TYPE_CHECKING:
    from callgate.permission import Approval

__all__ = ["Approver"]

PREVIEW_WAIT_S = 5.0
PREVIEW_LINES_MAX = 400
MARK = "  | "
"""Prefix of each line of untrusted text, so that none of it passes for a question."""
_COLORS = {"+": "added", "-": "removed", "@": "place"}
_ANSWERS: dict[str, Approval] = {
    "y": "yes", "yes": "yes", "a": "always", "always": "always", "l": "later", "later": "later",
}  # fmt: skip


class Approver:
    """Prompt on the terminal; anything but a clear answer means no."""

    def __init__(self, terminal: Terminal, environ: Mapping[str, str] = os.environ, *, tty: Tty | None = None) -> None:
        self._terminal = terminal
        self._environ = environ
        self._tty = tty
        self.before_question: Callable[[], None] | None = None
        """Discard keys that were typed before the question, including those already read."""
        self._announced: dict[str, asyncio.Future[ApprovalNeeded]] = {}
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncGenerator[None]:
        """Give the prompt exclusive use of the terminal: one question at a time, and nothing else is drawn."""
        async with self._turn:
            self._terminal.hold()
            try:
                yield
            finally:
                self._terminal.release()

    async def ask_line(self, question: str, enter: str) -> str:
        """Read the answer to a question; `enter` is the meaning of an empty line. Only inside `asking`."""
        return await self._ask(question, enter)

    def see(self, event: Event) -> None:
        """Observe every event before it is shown: the one that announces a question carries the preview of the call."""
        if isinstance(event, ApprovalNeeded):
            announced = self._announcement(event.call.id)
            if not announced.done():
                announced.set_result(event)

    async def __call__(self, call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
        """`yes`, `no`, `always`, `later`, or the call as it was edited."""
        asked = ApprovalNeeded(call, reason)
        with contextlib.suppress(TimeoutError):
            # Everything before it has been shown by now.
            asked = await asyncio.wait_for(self._announcement(call.id), PREVIEW_WAIT_S)
        self._announced.pop(call.id, None)
        async with self.asking():
            with self._tty.cooked() if self._tty is not None else contextlib.nullcontext():
                self._show(call, definition, reason, asked.preview)
                answer = await self._answer(call, definition)
                return (
                    await self._confirmed(answer, asked.confirm)
                    if asked.confirm and answer not in ("no", "later")
                    else answer
                )

    async def _answer(self, call: FunctionCall, definition: ToolDefinition) -> Approval:
        while True:
            typed = (await self._ask(_question(call, definition))).strip().lower()
            if typed not in ("e", "edit"):
                return _ANSWERS.get(typed, "no")
            edited = await self._edited(call)
            if edited is not None:
                return edited

    async def _confirmed(self, answer: Approval, wanted: str) -> Approval:
        """The yes with the text that confirms it; no if something else is typed."""
        from callgate.permission import Answered

        args = answer.args if isinstance(answer, FunctionCall) else None
        shown = ascii_json(wanted)[1:-1]
        question = f"Type {shown} to confirm:" if args is None else "Type the name of what it is about to confirm:"
        typed = (await self._ask(question)).strip()
        if args is None and typed not in (wanted, shown):
            self._terminal.line("  Not confirmed, so it is not run.", color="failed")
            return "no"
        return Answered(answer="yes", args=args, confirm=wanted if args is None else typed)

    def _announcement(self, call_id: str) -> asyncio.Future[ApprovalNeeded]:
        if call_id not in self._announced:
            self._announced[call_id] = asyncio.get_running_loop().create_future()
        return self._announced[call_id]

    # Showing --------------------------------------------------------------------------------------------------------------

    def _show(self, call: FunctionCall, definition: ToolDefinition, reason: str, preview: str | None) -> None:
        columns = max(40, shutil.get_terminal_size().columns)
        room = columns - len(MARK) - 1  # Wrap lines here: the terminal must not choose where untrusted text breaks.
        server = f" on server {ascii_json(definition.server)}" if definition.server else ""
        whole = f"? {shown_call(call)}{server}"
        if len(whole) < columns:
            self._terminal.line(whole, color="notice")
        else:
            self._terminal.line(f"? {ascii_json(call.name)[1:-1]}{server}, with", color="notice")
            for line in shown_args(call.args):
                for piece in wrapped(line, room):
                    self._terminal.line(MARK + piece)
        if preview:
            lines = preview.splitlines()
            for line in lines[:PREVIEW_LINES_MAX]:
                for piece in wrapped(line.expandtabs(4), room):
                    self._terminal.line(MARK + piece, color=_COLORS.get(line[:1]))
            if len(lines) > PREVIEW_LINES_MAX:
                self._terminal.line(f"  {len(lines) - PREVIEW_LINES_MAX} more lines are not shown.")
        if reason:
            self._terminal.line(f"  {one_line(reason, 500)}")

    async def _ask(self, question: str, enter: str = "no") -> str:
        """Prompt, and return what was typed after the question was shown."""
        self._terminal.ask(f"  {question} ")
        _forget_typed()
        if self.before_question is not None:
            self.before_question()
        # Input counts from here on. Written last, so a program that waits for it loses nothing.
        self._terminal.ask(f"(Enter: {enter}) ")
        return await _typed_line()

    # Editing --------------------------------------------------------------------------------------------------------------

    async def _edited(self, call: FunctionCall) -> FunctionCall | None:
        """The call with other arguments; None if there are none, or they are not JSON."""
        editor = self._environ.get("VISUAL") or self._environ.get("EDITOR")
        if editor:
            # In ASCII here too, so that nothing in the arguments hides.
            text = await _in_editor(shlex.split(editor), json.dumps(dict(call.args), indent=2, default=repr) + "\n")
        else:
            self._terminal.line(f"  {ascii_json(dict(call.args))}")
            text = await self._ask("The arguments as JSON, on one line:")
        if not text.strip():
            return None
        try:
            args: Any = strict_json.parse(text)
            if not isinstance(args, dict):
                raise JsonError("the arguments must be an object")
        except JsonError as error:
            self._terminal.line(f"  Not used: {one_line(str(error), 300)}", color="failed")
            return None
        edited = cast("JsonObject", args)
        if edited == dict(call.args):
            self._terminal.line("  Nothing was changed.")
            return None
        return replace(call, args=edited)


def _question(call: FunctionCall, definition: ToolDefinition) -> str:
    from callgate.permission.session_rules import scope_of

    scope = ascii_json(scope_of(definition, call))[1:-1]
    return f"Run it? [y]es, [n]o, [a]lways {scope}, [e]dit, [l]ater"


def _forget_typed() -> None:
    """Drop what was typed before the question was shown: it was no answer to it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def _in_editor(words: list[str], text: str) -> str:
    with tempfile.TemporaryDirectory(prefix="callgate-") as folder:  # Readable by its owner alone.
        path = Path(folder) / "arguments.json"
        path.write_text(text, "utf-8")
        with contextlib.suppress(OSError):
            done = await asyncio.to_thread(subprocess.run, [*words, str(path)], check=False)
            if done.returncode == 0:
                return path.read_text("utf-8", "replace")
    return ""


async def _typed_line() -> str:
    """Read one line from the terminal; other calls continue meanwhile, and Ctrl-C ends the wait."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if not line.done():
            line.set_result(os.read(descriptor, 65_536).decode(errors="replace"))

    try:
        loop.add_reader(descriptor, read)
    except NotImplementedError:  # Windows, where a console cannot be waited for.
        return input()  # noqa: ASYNC250
    try:
        return await line
    finally:
        loop.remove_reader(descriptor)
