"""Render events in a terminal: the answer on stdout, everything about the run on stderr.

All text is escaped, so that no text of models, tools or files can steer the terminal. On a capable terminal the answer is
drawn as Markdown and running calls as lines that change; elsewhere both are plain lines. This file decides nothing and
runs nothing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TextIO

from callgate.cli.escaping import CONTEXT_CHARS, JOINERS, one_line, readable_args, readable_value, shown_call, visible
from callgate.cli.extras import media_line, source_lines, step_lines
from callgate.cli.live import Live, clipped
from callgate.cli.markdown import Markdown, width_of
from callgate.cli.style import MARKS, MARKS_ASCII, Piece, folded, has_color, is_terminal, painted, two_columns
from callgate.events import (
    ApprovalNeeded,
    CallFinished,
    CallProgress,
    CallStarted,
    Event,
    MediaReceived,
    MetadataReported,
    Notice,
    RunEnded,
    ServerStepReported,
    TextDelta,
    ThoughtDelta,
)
from callgate.metadata import AnswerMetadata, ServerStep
from callgate.types import FunctionCall, Media, Reply, ToolResult

__all__ = ["Terminal", "ending_sentence", "escape", "is_terminal", "one_line", "shown_call"]

ARGS_CHARS_MAX = 300
RESULT_CHARS_MAX = 120
RESULT_LINES_MAX = 3
"""Lines of a result that are shown; `/call` shows all of it."""
ERROR_CHARS_MAX = 500
HELD_MAX = 1_000
"""Progress reports that wait for a question to be answered; further ones are dropped."""
CALLS_KEPT = 1_000
"""Calls that can be looked at again; older ones are in the session."""
TICK_S = 0.1
_PASSING = ("waiting", "uploading")
"""Notices of attempts and uploads: on a screen the next one replaces them."""

escape = visible
"""Escape untrusted text; every command uses this."""


class Terminal:
    """Renderer of a run in progress."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        environ: Mapping[str, str] = os.environ,
        *,
        size: Callable[[], tuple[int, int]] = shutil.get_terminal_size,
    ) -> None:
        self._out = out
        self._err = err
        is_dumb = environ.get("TERM", "dumb") == "dumb"
        self._color = has_color(err, environ)
        can_draw = _can_write(err, "".join(MARKS.values()))
        self._symbols = MARKS if can_draw else MARKS_ASCII
        self._size = size
        self._wraps = is_terminal(err)
        self._block: str | None = None
        """The kind of what was drawn last: blank lines separate a question, calls, an answer and the next prompt."""
        self._live = Live(lambda text: self._put(self._err, text), size) if is_terminal(err) and not is_dumb else None
        # Without colours, the marks of Markdown say more than their absence.
        self._markdown = is_terminal(out) and not is_dumb and not environ.get("NO_COLOR")
        self._prose = self._new_prose()
        self._in_line = False
        self._joiner = ""
        """A joiner at the end of the last piece of text."""
        self._tail = ""
        """The end of the answer so far: what follows is judged by it."""
        self._running: dict[str, _Shown] = {}
        """The running calls, in the order of their start."""
        self._busy_since: float | None = None
        """Start of the wait for the model; None while there is none."""
        self._doing = "waiting for the model"
        self.calls: list[tuple[FunctionCall, ToolResult]] = []
        """The calls that were shown, oldest first; `number_of_first` is the number of the first one."""
        self.number_of_first = 1
        self._passing = ""
        """The last notice of an attempt or upload; it becomes a line when something else happens."""
        self._held: list[Event] | None = None
        self.media: list[Media] = []
        self.media_hint = ""
        """The sentence after each media: a conversation has a command for it."""
        """Media that the model made, oldest first, until they are saved."""

    def _new_prose(self) -> Markdown | None:
        if not self._markdown:
            return None
        return Markdown(lambda: self._size()[0], ascii_only=not _can_write(self._out, "•│─┼"))

    # A turn ---------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start an exchange: the wait for the model begins."""
        self._busy_since, self._doing = time.monotonic(), "waiting for the model"

    def end(self) -> None:
        """End an exchange, whatever its outcome: stop all animation."""
        self._busy_since = None
        self._running.clear()
        self._settle()
        self.end_line()

    def tick(self) -> float:
        """Redraw what changes over time; return the delay until the next time."""
        self._draw_live()
        return TICK_S

    def hold(self) -> None:
        """Hold back all output until the question is answered."""
        self.end_line()
        self._held = []

    def release(self) -> None:
        """Show what happened since `hold`."""
        held, self._held = self._held or [], None
        for event in held:
            self.show(event)

    def forget_calls(self) -> None:
        """Another conversation begins: its calls are counted from 1."""
        self.calls, self.number_of_first = [], 1

    def show(self, event: Event) -> None:
        """Show one event, if it is visible at all."""
        if self._held is not None:
            if len(self._held) < HELD_MAX or not isinstance(event, CallProgress):
                self._held.append(event)
            return
        if isinstance(event, Notice) and event.code in _PASSING and self._live is not None:
            self._passing = one_line(event.message, ERROR_CHARS_MAX)
        else:
            self._settle()
            self._show(event)
        self._draw_live()

    def _show(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._text(text)
            case ThoughtDelta():
                self._doing = "thinking"
            case CallStarted(call):
                self._call(call)
            case CallFinished(call, result):
                self._finished(call, result)
            case CallProgress(call_id, message, fraction):
                self._progress(call_id, message, fraction)
            case MediaReceived() | ServerStepReported() | MetadataReported():
                self._extras(event)
            case ApprovalNeeded():
                self.end_line()
            case Notice(_, message, _):
                self.line(f"! {one_line(message, ERROR_CHARS_MAX)}", color="notice")
            case RunEnded(reply):
                self.end()
                self._ending(reply)
            case _:
                pass

    def _settle(self) -> None:
        """Make a line of the last notice of an attempt or upload."""
        message, self._passing = self._passing, ""
        if message:
            self.line(f"! {message}", color="notice")

    def _extras(self, event: MediaReceived | ServerStepReported | MetadataReported) -> None:
        if isinstance(event, MediaReceived):
            self.media.append(event.media)
            self.line(f"{media_line(event.media)}{self.media_hint}", color="done")
        elif isinstance(event, ServerStepReported):
            self._server_step(event.step)
        else:
            self.sources(event.metadata)

    def _server_step(self, step: ServerStep) -> None:
        """Show code that ran at the provider, and its output; other steps in one line."""
        for line in step_lines(step, mark=self._symbols["call"], cut=self._symbols["cut"]):
            self.line(line, color="done" if step.kind == "code_result" else "call")

    def sources(self, metadata: AnswerMetadata) -> None:
        """Show what was reported about an answer: its sources, search suggestions, ratings."""
        for line in source_lines(metadata):
            self.line(line, color="quiet")

    # Lines ----------------------------------------------------------------------------------------------------------------

    def separate(self, block: str) -> None:
        """Draw a blank line if another kind of block begins; only on a screen, never in a pipe."""
        before, self._block = self._block, block
        if self._live is not None and before not in (None, block):
            self.end_line()
            self._write(self._err, "\n")

    def question(self, text: str) -> None:
        """Print what the user typed, wrapped at its words: the line in which it was typed is gone."""
        mark = "> "
        for one in text.split("\n"):
            for drawn in folded([(mark, "strong"), (visible(one), None)], self._columns(), indent=2):
                self._write(self._err, self._painted(drawn) + "\n")
            mark = "  "

    def prompted(self) -> None:
        """The user typed something: what follows is separated from it."""
        self._block = "question"

    def unprompted(self) -> None:
        """The prompt is gone without a text: what follows stands where it stood."""
        self._block = None

    def line(self, text: str, *, color: str | None = None) -> None:
        """Print one escaped line about the run, wrapped at its words."""
        for one in text.split("\n"):
            self.pieces([(one, color)])

    def pieces(self, pieces: Sequence[Piece], *, indent: int | None = None) -> None:
        """Print one line of several colours."""
        if self._block in (None, "question", "answer", "prompt"):
            self.separate("note")
        self.end_line()
        for drawn in folded([(visible(text), color) for text, color in pieces], self._columns(), indent=indent):
            self._write(self._err, self._painted(drawn) + "\n")

    def marked(self, mark: str, name: str, text: str) -> None:
        """Print a line with a mark and a name in the colour of their meaning."""
        self.pieces([(f"{self._symbols[mark]} {name}", mark), (text, None)])

    def rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print rows of a name and its explanation, which wraps in its own column."""
        if self._block in (None, "question", "answer", "prompt"):
            self.separate("note")
        self.end_line()
        for drawn in two_columns([(visible(name), visible(text)) for name, text in rows], self._columns()):
            self._write(self._err, self._painted(drawn) + "\n")

    def ask(self, text: str) -> None:
        """Print a question about the run; the answer is typed after it."""
        self.end_line()
        lines = [self._painted(drawn) for drawn in folded([(visible(text.rstrip(" ")), None)], self._columns(), indent=2)]
        self._write(self._err, "\n".join(lines) + " " * (len(text) - len(text.rstrip(" "))))

    def type(self, text: str) -> None:
        """Write at the cursor: what a person types after a question."""
        self._write(self._err, text)

    def _columns(self) -> int | None:
        return max(20, self._size()[0] - 1) if self._wraps else None

    def _painted(self, drawn: Sequence[Piece]) -> str:
        return "".join(painted(text, color) if self._color else text for text, color in drawn)

    def say(self, text: str) -> None:
        """A line that belongs to the answer."""
        self.end_line()
        self._write(self._out, f"{visible(text)}\n")

    def clear(self) -> None:
        """Clear the screen, if there is one."""
        if self._live is not None:
            self._write(self._err, "\x1b[H\x1b[2J")

    def end_line(self) -> None:
        """End the current line of text, if there is one."""
        if self._joiner:
            self._joiner = ""
            self._text("\n")
        if self._prose is not None:
            if rest := self._prose.close():
                self._write(self._out, rest)
            self._prose, self._in_line = self._new_prose(), False
        if self._in_line:
            self._write(self._out, "\n")
            self._in_line = False
        if self._live is not None:
            self._live.erase()

    def _text(self, text: str) -> None:
        self.separate("answer")
        # Whether a joiner hides something is known with the letter after it.
        text = self._joiner + text
        self._joiner = text[-1] if text.endswith(JOINERS) else ""
        text = text.removesuffix(self._joiner)
        shown = visible(text, before=self._tail)
        self._tail = (self._tail + text)[-CONTEXT_CHARS:]
        if self._prose is None:
            self._write(self._out, shown)
            self._in_line = not text.endswith("\n")
            return
        if drawn := self._prose.feed(shown):
            self._write(self._out, drawn)
        self._in_line = self._prose.in_line

    def _call(self, call: FunctionCall) -> None:
        name = one_line(call.name, ARGS_CHARS_MAX)
        args = one_line(readable_args(call.args), ARGS_CHARS_MAX, cut=self._symbols["cut"])
        self._running[call.id] = _Shown(name, args)
        if self._live is None:
            self.pieces([(f"{self._symbols['call']} {name}", "call"), (f"({args})", None)])
        else:
            self.separate("calls")
            self.end_line()

    def _finished(self, call: FunctionCall, result: ToolResult) -> None:
        if call.id not in self._running:
            self._call(call)  # It never ran; the request is still worth seeing.
        shown = self._running.pop(call.id)
        self.calls.append((call, result))
        if len(self.calls) > CALLS_KEPT:
            del self.calls[0]
            self.number_of_first += 1
        if self._busy_since is not None:
            self.begin()
        if self._live is None:
            self._result(shown.name, result)
        else:
            self._result_below(shown, result, self.number_of_first + len(self.calls) - 1)

    def _result(self, name: str, result: ToolResult) -> None:
        """The result in one line, for a log or a program."""
        cut = self._symbols["cut"]
        if result.is_error:
            error = one_line(result.error or result.status, ERROR_CHARS_MAX, cut=cut)
            self.pieces([(f"{self._symbols['failed']} {name}", "failed"), (f": {error}", None)])
            return
        head = one_line(readable_value(result.value), RESULT_CHARS_MAX, cut=cut) + _media(result)
        self.pieces([
            (f"{self._symbols['done']} {name}", "done"),
            (f" {_duration(result.duration_s)} {self._symbols['call']} {head}", "quiet"),
        ])  # fmt: skip

    def _result_below(self, shown: _Shown, result: ToolResult, number: int) -> None:
        """The call in one line, and the first lines of its result below it; `/call` shows all of it."""
        self.separate("calls")
        cut, color = self._symbols["cut"], "failed" if result.is_error else "done"
        columns = self._columns() or 80
        taken = f"{self._symbols[color]} {number} {shown.name}() {_duration(result.duration_s)}"
        self.pieces([
            (f"{self._symbols[color]} ", color), (f"{number} ", "quiet"), (shown.name, color),
            (f"({clipped(shown.args, max(16, columns - len(taken)), cut=cut)})", None),
            (f" {_duration(result.duration_s)}", "quiet"),
        ])  # fmt: skip
        if result.is_error:
            self.line(f"  {one_line(result.error or result.status, ERROR_CHARS_MAX, cut=cut)}", color=color)
            return
        lines = readable_value(result.value).splitlines() if result.value is not None else []
        for line in [*_folded_result(lines, number), *([f"{_media(result).strip()}"] if result.media else [])]:
            self.pieces([("  " + clipped(visible(line.expandtabs(4)), columns - 2, cut=cut), "quiet")])

    def _progress(self, call_id: str, message: str, fraction: float | None) -> None:
        done = "" if fraction is None else f" {fraction:.0%}"
        shown = self._running.get(call_id)
        said = f"{one_line(message, ERROR_CHARS_MAX)}{done}"
        if self._live is None:
            self.line(f"  {shown.name if shown else ''}: {said}")
        elif shown is not None:
            shown.progress = said

    def _draw_live(self) -> None:
        if self._live is None or self._held is not None or self._in_line:
            return
        now = time.monotonic()
        frames = self._symbols["spinner"]
        spinner = frames[int(now / TICK_S) % len(frames)]
        lines = [f"{spinner} {shown.line(now, self._symbols['cut'], self._size()[0])}" for shown in self._running.values()]
        if not lines and self._busy_since is not None:
            doing = self._passing or f"{self._doing} {_elapsed(now - self._busy_since)}  (Ctrl-C stops)"
            lines = [f"{spinner} {doing}"]
        self._live.draw([line.rstrip() for line in lines])

    def _ending(self, reply: Reply) -> None:
        sentence = ending_sentence(reply)
        if sentence:
            self.line(f"! {sentence}", color="notice")

    def _write(self, stream: TextIO, text: str) -> None:
        if self._live is not None:
            self._live.erase()
        self._put(stream, text)

    def _put(self, stream: TextIO, text: str) -> None:
        encoding = stream.encoding or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _folded_result(lines: Sequence[str], number: int) -> Iterator[str]:
    kept = [line for line in lines if line.strip()]
    yield from kept[:RESULT_LINES_MAX]
    if len(kept) > RESULT_LINES_MAX:
        yield f"... {len(kept) - RESULT_LINES_MAX} more lines; /call {number} shows all"


class _Shown:
    """A call that is running."""

    def __init__(self, name: str, args: str) -> None:
        self.name = name
        self.args = args
        self.since = time.monotonic()
        self.progress = ""

    def line(self, now: float, cut: str, columns: int) -> str:
        """The state of the call as a line; its arguments give way to its progress."""
        rest = f"{_elapsed(now - self.since)} {self.progress}"
        room = max(12, columns - width_of(self.name) - width_of(rest) - 6)
        return f"{self.name}({clipped(self.args, room, cut=cut)}) {rest}"


_ENDINGS = {
    "cancelled": "The run was cancelled; the conversation can continue.",
    "turn_limit": "The run was ended at its limit of turns.",
    "call_limit": "The run was ended at its limit of calls.",
    "loop": "The run was ended because the model repeated the same call.",
    "approval_needed": "The run waits for an answer about a call.",
}


def ending_sentence(reply: Reply) -> str:
    """Explain why a run ended, unless it completed normally."""
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


def _media(result: ToolResult) -> str:
    return f" + {len(result.media)} media" if result.media else ""


def _elapsed(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
