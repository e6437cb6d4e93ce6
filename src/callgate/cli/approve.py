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
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from callgate import strict_json
from callgate.cli.answer_line import AnswerLine, read_keys, read_line
from callgate.cli.edit_text import edit_text
from callgate.cli.escaping import ascii_json, one_line, shown_args, shown_call, shown_name, visible, wrapped
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
SHORT_CHARS = 40
"""Texts up to this length are always shown as arguments."""
MARK = "  | "
"""Prefix of each line of untrusted text, so that none of it passes for a question."""
TEXT_MARK = "> "
"""After it, a line of a text."""
LEGIBLE_LINES_MAX, LEGIBLE_CHARS_MAX = 400, 20_000
READING_CHARS_MAX = 4_000
_COLORS = {"+": "added", "-": "removed", "@": "place"}
_CHOICES = ("yes", "no", "always", "edit", "later")
_ANSWERS: dict[str, Approval] = {
    "": "no", "n": "no", "no": "no", "y": "yes", "yes": "yes", "a": "always", "always": "always",
    "l": "later", "later": "later",
}  # fmt: skip


class Approver:
    """Prompt on the terminal; an empty line means no, and what is no answer is asked about again."""

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
            typed = (await self._ask(_question(call, definition), choices=_CHOICES)).strip().lower()
            if typed not in ("e", "edit"):
                if typed in _ANSWERS:
                    return _ANSWERS[typed]
                self._terminal.line(f"  {one_line(typed, 80)!r} is no answer.")
                continue
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
        server = f" on server {ascii_json(definition.server)}" if definition.server else ""
        # A change is shown once: as a diff if all of it is there, and by the arguments otherwise.
        left_out = _in_diff(call.args, preview) if definition.kind == "file" else set[str]()
        args = {name: value for name, value in call.args.items() if name not in left_out}
        whole = f"? {shown_call(replace(call, args=args))}{server}"
        if len(whole) < columns:
            self._terminal.line(whole, color="notice")
        else:
            self._terminal.line(f"? {ascii_json(call.name)[1:-1]}{server}, with", color="notice")
            for name, value in args.items():
                if _is_legible(value):
                    self._quote([f"{shown_name(name)}: {len(value)} characters in {len(value.splitlines())} lines"])
                    self._quote_text(value)
                else:
                    self._quote(shown_args({name: value}))
        sizes = [(name, len(str(call.args[name]))) for name in sorted(left_out)]
        self._quote((f"{shown_name(name)}: {size} characters, all of them in the diff" for name, size in sizes), "quiet")
        lines = (preview or "").splitlines()
        for line in lines[:PREVIEW_LINES_MAX]:
            self._quote([line.expandtabs(4)], _COLORS.get(line[:1]))
        if len(lines) > PREVIEW_LINES_MAX:
            self._terminal.line(f"  {len(lines) - PREVIEW_LINES_MAX} more lines are not shown.")
        for name, text in _readings(args):
            if "\n" in text:
                self._quote([f"{ascii_json(name)} reads:"], "quiet")
                self._quote_text(text[:READING_CHARS_MAX], "quiet")
            else:
                self._quote([f"{ascii_json(name)} reads: {one_line(text, 500)}"], "quiet")
        if reason:
            self._terminal.line(f"  {one_line(reason, 500)}")

    def _quote(self, lines: Iterable[str], color: str | None = None) -> None:
        """Print untrusted lines, wrapped here: the terminal must not choose where they break."""
        room = max(40, shutil.get_terminal_size().columns) - len(MARK) - 1
        for line in lines:
            for piece in wrapped(line, room):
                self._terminal.line(MARK + piece, color=color)

    def _quote_text(self, text: str, color: str | None = None) -> None:
        """Print the lines of a text, each with a mark of its own: none passes for another argument."""
        room = max(40, shutil.get_terminal_size().columns) - len(MARK) - len(TEXT_MARK) - 1
        for line in text.splitlines():
            for piece in wrapped(line.expandtabs(4), room):
                self._terminal.line((MARK + TEXT_MARK + piece).rstrip(), color=color)

    async def _ask(self, question: str, enter: str = "no", choices: Sequence[str] = ()) -> str:
        """Prompt, and return what was typed after the question was shown, or chosen with the arrow keys."""
        self._terminal.ask(f"  {question} ")
        _forget_typed()
        if self.before_question is not None:
            self.before_question()
        # Input counts from here on. Written last, so a program that waits for it loses nothing.
        self._terminal.ask(f"(Enter: {enter}) ")
        if choices and self._tty is not None and self._tty.is_there and self._environ.get("TERM", "dumb") != "dumb":
            return await read_keys(AnswerLine(choices, self._terminal.type))
        return await read_line()

    # Editing --------------------------------------------------------------------------------------------------------------

    async def _in_line(self, call: FunctionCall) -> str:
        """The arguments as they were edited at the prompt."""
        self._terminal.line("  Change the arguments; Enter takes them, Ctrl-C leaves them as they were.")
        text = await edit_text("  ", _editable(call.args))
        if text is not None:
            return text
        self._terminal.line(f"  {ascii_json(dict(call.args))}")
        return await self._ask("The arguments as JSON, on one line:")

    async def _edited(self, call: FunctionCall) -> FunctionCall | None:
        """The call with other arguments; None if there are none, or they are not JSON."""
        editor = self._environ.get("VISUAL") or self._environ.get("EDITOR")
        if editor:
            text, problem = await _in_editor(shlex.split(editor), _editable(call.args, indent=2) + "\n")
            if problem:
                self._terminal.line(f"  Not used: {one_line(problem, 300)}", color="failed")
        else:
            text = await self._in_line(call)
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


def _editable(args: Mapping[str, Any], *, indent: int | None = None) -> str:
    """The arguments as JSON, with letters as people write them; in ASCII if something in them would hide."""
    text = json.dumps(dict(args), indent=indent, ensure_ascii=False, default=repr)
    return text if visible(text) == text else json.dumps(dict(args), indent=indent, default=repr)


def _in_diff(args: Mapping[str, Any], preview: str | None) -> set[str]:
    """The names of long texts of which every line is in a diff that is shown whole."""
    lines = (preview or "").splitlines()
    if len(lines) > PREVIEW_LINES_MAX or not any(line.startswith("@@ ") for line in lines):
        return set()
    shown = "\n".join(line[1:] for line in lines if line[:1] in ("+", "-", " "))
    long = {name: value for name, value in args.items() if isinstance(value, str) and len(value) > SHORT_CHARS}
    return {name for name, value in long.items() if all(line in shown for line in value.splitlines())}


def _is_legible(value: Any) -> TypeGuard[str]:
    """True for a text of several lines of which nothing is lost if they are shown as lines."""
    if not isinstance(value, str) or len(value) > LEGIBLE_CHARS_MAX or not 1 < len(value.splitlines()) <= LEGIBLE_LINES_MAX:
        return False
    return value.isascii() and all(line.isprintable() and line == line.rstrip() for line in value.split("\n"))


def _readings(args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Texts with letters that ASCII does not have, as people read them; the exact arguments spell those letters out."""
    for name, value in args.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
        if not text.isascii():
            yield str(name), text


def _question(call: FunctionCall, definition: ToolDefinition) -> str:
    from callgate.permission.session_rules import scope_of

    scope = ascii_json(scope_of(definition, call))[1:-1]
    return f"Run it? [y]es, [n]o, [a]lways {scope}, [e]dit, [l]ater"


def _forget_typed() -> None:
    """Drop what was typed before the question was shown: it was no answer to it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def _in_editor(words: list[str], text: str) -> tuple[str, str]:
    """The text as it was edited, and why there is none."""
    with tempfile.TemporaryDirectory(prefix="callgate-") as folder:  # Readable by its owner alone.
        path = Path(folder) / "arguments.json"
        path.write_text(text, "utf-8")
        try:
            done = await asyncio.to_thread(subprocess.run, [*words, str(path)], check=False)
        except OSError as error:
            return "", f"the editor {words[0]!r} does not start: {error.strerror}"
        if done.returncode:
            return "", f"the editor {words[0]!r} ended with exit code {done.returncode}"
        return path.read_text("utf-8", "replace"), ""
