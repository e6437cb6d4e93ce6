"""Events -> what a person sees in a terminal: the answer on stdout, what is about the run on stderr.

Events come in, lines go out. Everything passes through `visible`, so that no text of models, tools or files can steer the
terminal. This file decides nothing and runs nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TextIO

from callgate.cli.visible import CONTEXT_CHARS, one_line, shown_call, visible
from callgate.events import CallFinished, CallProgress, CallStarted, Event, Notice, RunEnded, TextDelta
from callgate.types import FunctionCall, Reply, ToolResult

__all__ = ["Terminal", "ending_sentence", "escape", "is_terminal", "one_line", "shown_call"]

ARGS_CHARS_MAX = 300
RESULT_CHARS_MAX = 120
ERROR_CHARS_MAX = 500
HELD_MAX = 1_000
"""Progress reports that wait for a question to be answered; further ones are dropped."""

_SYMBOLS = {"call": "→", "done": "✓", "failed": "✗", "cut": "…"}
_SYMBOLS_ASCII = {"call": "->", "done": "ok", "failed": "x", "cut": "..."}
_COLORS = {"call": "36", "done": "32", "failed": "31", "notice": "33", "added": "32", "removed": "31", "place": "36"}


escape = visible
"""What every command passes text of others through."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sits at the other end."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # The stream is closed.
        return False


class Terminal:
    """Shows a run while it goes on."""

    def __init__(self, out: TextIO, err: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self._out = out
        self._err = err
        self._color = is_terminal(err) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self._symbols = _SYMBOLS if _can_write(err, "".join(_SYMBOLS.values())) else _SYMBOLS_ASCII
        self._in_line = False
        self._tail = ""
        """The end of the answer so far: what follows is judged by it."""
        self._started: dict[str, str] = {}
        self._held: list[Event] | None = None

    def hold(self) -> None:
        """A question is being asked: nothing else is shown until it is answered."""
        self._held = []

    def release(self) -> None:
        """The question is answered: shows what happened meanwhile."""
        held, self._held = self._held or [], None
        for event in held:
            self.show(event)

    def show(self, event: Event) -> None:
        """Shows one event, if there is anything to be seen of it."""
        if self._held is not None:
            if len(self._held) < HELD_MAX or not isinstance(event, CallProgress):
                self._held.append(event)
            return
        match event:
            case TextDelta(text):
                self._write(self._out, visible(text, before=self._tail))
                self._tail = (self._tail + text)[-CONTEXT_CHARS:]
                self._in_line = not text.endswith("\n")
            case CallStarted(call):
                self._call(call)
            case CallFinished(call, result):
                if call.id not in self._started:
                    self._call(call)  # It never ran; what was asked for is still worth seeing.
                self._started.pop(call.id)
                self._result(call, result)
            case CallProgress(call_id, message, fraction):
                done = "" if fraction is None else f" {fraction:.0%}"
                self.line(f"  {self._started.get(call_id, '')}: {one_line(message, ERROR_CHARS_MAX)}{done}")
            case Notice(_, message, _):
                self.line(f"! {one_line(message, ERROR_CHARS_MAX)}", color="notice")
            case RunEnded(reply):
                self.end_line()
                self._ending(reply)
            case _:
                pass

    def line(self, text: str, *, color: str | None = None) -> None:
        """One line about the run. Whatever it is made of cannot steer the terminal."""
        self.end_line()
        text = visible(text)
        code = _COLORS.get(color or "") if self._color else None
        self._write(self._err, f"\x1b[{code}m{text}\x1b[0m\n" if code else f"{text}\n")

    def ask(self, text: str) -> None:
        """A question about the run, or its end; the answer is typed behind it."""
        self.end_line()
        self._write(self._err, visible(text))

    def say(self, text: str) -> None:
        """A line that belongs to the answer."""
        self.end_line()
        self._write(self._out, f"{visible(text)}\n")

    def end_line(self) -> None:
        """Ends the line of text that is being written, if there is one."""
        if self._in_line:
            self._write(self._out, "\n")
            self._in_line = False

    def _call(self, call: FunctionCall) -> None:
        name = one_line(call.name, ARGS_CHARS_MAX)
        self._started[call.id] = name
        args = one_line(_json(dict(call.args)), ARGS_CHARS_MAX, cut=self._symbols["cut"])
        self.line(f"{self._symbols['call']} {name}({args})", color="call")

    def _result(self, call: FunctionCall, result: ToolResult) -> None:
        name = one_line(call.name, ARGS_CHARS_MAX)
        cut = self._symbols["cut"]
        if result.is_error:
            error = one_line(result.error or result.status, ERROR_CHARS_MAX, cut=cut)
            self.line(f"{self._symbols['failed']} {name}: {error}", color="failed")
            return
        head = one_line(_json(result.value), RESULT_CHARS_MAX, cut=cut)
        media = f" + {len(result.media)} media" if result.media else ""
        duration = _duration(result.duration_s)
        self.line(f"{self._symbols['done']} {name} {duration} {self._symbols['call']} {head}{media}", color="done")

    def _ending(self, reply: Reply) -> None:
        sentence = ending_sentence(reply)
        if sentence:
            self.line(f"! {sentence}", color="notice")

    def _write(self, stream: TextIO, text: str) -> None:
        encoding = stream.encoding or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


_ENDINGS = {
    "cancelled": "The run was cancelled; the conversation can go on.",
    "turn_limit": "The run was ended at its limit of turns.",
    "call_limit": "The run was ended at its limit of calls.",
    "loop": "The run was ended because the model kept making the same call.",
    "approval_needed": "The run waits for an answer about a call.",
}


def ending_sentence(reply: Reply) -> str:
    """Why a run ended, if it did not end by itself."""
    if reply.finish_reason == "STOP":
        return "The answer was given with tools switched off: the limit of turns is reached." if reply.limited else ""
    ended = f"The model ended its answer with {one_line(reply.finish_reason, 100)}."
    return _ENDINGS.get(reply.finish_reason, ended)


def _can_write(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
