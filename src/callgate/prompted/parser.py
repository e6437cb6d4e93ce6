"""Incremental parser of calls in a model's text (one state machine, and so one file).

Takes chunks of text; returns text to show, calls and errors in order, independent of the chunks. Text is buffered only as
long as it may still be part of a call (or of a code fence that contains nothing but calls), and every character is read a
bounded number of times. The rules are in `docs/prompted.md`. Knows nothing of models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from callgate.prompted import markers
from callgate.prompted.arguments import read_object
from callgate.prompted.call_reader import CallReader, RawCall, midline
from callgate.prompted.outcomes import CallError, Outcome, Parsed, ParsedCall, Text
from callgate.prompted.partial_call import CALL_CHARS_MAX, RAW_CHARS_KEPT, RESCANNED_MAX, TOO_LONG, PartialCall
from callgate.prompted.scanner import Form, Found, Scanner
from callgate.prompted.visible_text import VisibleText
from callgate.types import ToolDefinition

__all__ = ["CallParser", "parse_text"]

_GLANCE = 96
"""The first so many characters nearly always decide what a line is."""

_Mode = Literal["line", "text", "tail", "call", "call_line", "fence", "fence_line", "listing"]


@dataclass(slots=True)
class _Fence:
    """A code fence that may turn out to contain nothing but calls."""

    run: str
    raw: list[str]
    parser: CallParser
    outcomes: list[Outcome] = field(default_factory=list[Outcome])


class CallParser:
    """Parser of calls in text that arrives in pieces.

    ```python
    parser = CallParser(tools=["get_weather"])
    for chunk in chunks:
        outcomes = parser.feed(chunk)
    outcomes = parser.close()
    ```

    Args:
        tools: The tools that exist, as definitions or names; None takes every name.
    """

    def __init__(self, tools: Iterable[ToolDefinition | str] | None = None) -> None:
        self._reader = CallReader(tools)
        self._is_inner = False
        """True inside a fence, where there are no further fences, comments or thoughts."""
        self._mode: _Mode = "line"
        self._stack: list[tuple[str, list[int]]] = []
        self._outcomes: list[Outcome] = []
        self._shown = VisibleText()
        self._indent: list[str] = []
        self._head = ""
        """The undecided beginning of a line, or of what follows a call."""
        self._line: list[str] = []
        self._line_is_whole = True
        self._block: markers.Block | None = None
        self._listing = ""
        """The closing line of the current code fence."""
        self._call: PartialCall | None = None
        self._fence: _Fence | None = None
        self._bold = self._separated = False
        self._rescanned = 0
        self.scanned = 0
        """Characters looked at so far, each as often as it was looked at."""

    def feed(self, chunk: str) -> list[Outcome]:
        """Take a piece of text and return what is certain by now."""
        self._push(chunk)
        self._run()
        return self._taken()

    def close(self) -> list[Outcome]:
        """Return the rest at the end of the text. The parser cannot be used afterwards."""
        while True:
            if self._mode == "call_line":
                self._to_call()
            self._run()
            if self._call is None:
                break
            self._end_inside_call()
        self._CLOSINGS[self._mode](self)
        return self._taken()

    # The driver -----------------------------------------------------------------------------------------------------------

    def _push(self, text: str) -> None:
        if text:
            self._stack.append((text, [0]))

    def _run(self) -> None:
        """Read everything that was pushed, what was pushed last first."""
        while self._stack:
            text, place = self._stack[-1]
            if place[0] >= len(text):
                self._stack.pop()
                continue
            before = place[0]
            place[0] = self._STEPS[self._mode](self, text, before)
            self.scanned += place[0] - before

    def _taken(self) -> list[Outcome]:
        self._flush()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _flush(self) -> None:
        if text := self._shown.take():
            self._outcomes.append(Text(text))

    def _report(self, *outcomes: Outcome) -> None:
        self._flush()
        self._outcomes += outcomes

    def _peek(self, text: str, place: int, begins: re.Pattern[str]) -> tuple[str, bool, bool]:
        """The text of a beginning, whether it reaches the end of a line, and whether more is needed to decide."""
        seen, end = "", -1
        for length in (_GLANCE, markers.HEAD_MAX + 1):
            stop = place + max(length - len(self._head), 0)
            end = text.find("\n", place, stop)
            seen = self._head + text[place : stop if end < 0 else end]
            self.scanned += len(seen)
            if end >= 0 or stop >= len(text) or not (begins.fullmatch(seen) or not seen.strip()):
                break
        else:
            stop = 0
        return seen, end >= 0, end < 0 and stop >= len(text) and len(seen) <= markers.HEAD_MAX

    def _used(self, place: int, length: int) -> int:
        """Return the place after so many characters of a beginning, part of which was buffered."""
        place += length - len(self._head)
        self._head = ""
        return place

    # Lines outside calls --------------------------------------------------------------------------------------------------

    def _at_line(self, text: str, place: int) -> int:
        """At the beginning of a line, or after its buffered part."""
        if not self._head:
            if not self._indent and (skipped := self._plain_lines(text, place)) > place:
                return skipped
            indent = markers.INDENT.match(text, place)
            assert indent is not None
            if indent.end() > place:
                self._indent.append(indent[0])
                return indent.end()
        seen, is_line, is_open = self._peek(text, place, markers.HEAD_BEGINS)
        found = markers.HEAD.match(seen)
        if found is not None and found.end() <= markers.HEAD_MAX:
            return self._begin_call(found, self._used(place, found.end()))
        if is_line and len(seen) <= markers.HEAD_MAX:
            alone = markers.ALONE.fullmatch(seen)
            if alone is not None:
                self._name_alone(alone)
                return self._used(place, len(seen) + 1)
            if self._begin_fence(seen):
                return self._used(place, len(seen) + 1)
        elif is_open and markers.HEAD_BEGINS.fullmatch(seen):
            self._head = seen
            return len(text)
        self._begin_text()
        return place

    def _plain_lines(self, text: str, place: int) -> int:
        """Show all irrelevant lines in one go; return the place after them."""
        found = markers.INTERESTING.search(text, place)
        end = text.rfind("\n", place, found.start() if found else len(text)) + 1
        if end > place:
            self._shown.show(text[place:end])
        return end

    def _begin_text(self, *, is_whole: bool = True, before: str = "") -> None:
        """Release the buffered text as text."""
        held = "".join(self._indent) + self._head
        self._indent.clear()
        self._head = ""
        self._shown.show(held)
        self._line = [before + held]
        self._line_is_whole = is_whole
        self._mode = "text"

    def _in_text(self, text: str, place: int) -> int:
        end = text.find("\n", place) + 1
        piece = text[place : end or len(text)]
        self._shown.show(piece)
        self._line.append(piece)
        if end:
            self._end_line()
        return end or len(text)

    def _end_line(self) -> None:
        """A line of text is complete: does it open or close something that hides calls?"""
        line = "".join(self._line)
        self._line = []
        self._mode = "line"
        if self._is_inner:
            return
        can_open = self._line_is_whole and self._block is None and ("```" in line or "~~~" in line)
        fence = markers.FENCE.match(line) if can_open else None
        self._line_is_whole = True
        if fence is not None and not (fence["run"][0] == "`" and "`" in fence["info"]):
            self._listing, self._mode = fence["run"], "listing"
            return
        if self._block is None:
            self._report_midline(line)
        self._block = markers.block_after(line, self._block)
        self._mode = "text" if self._block is not None else "line"

    def _report_midline(self, line: str) -> None:
        for mention in markers.mentions_behind_sentences(line):
            inner = self._inner()
            outcomes = [*inner.feed(mention), *inner.close()]
            self.scanned += inner.scanned
            calls = [outcome for outcome in outcomes if isinstance(outcome, ParsedCall)]
            if calls and len(calls) == len(outcomes):
                self._report(*map(midline, calls))
                return

    def _name_alone(self, found: re.Match[str]) -> None:
        raw_call = RawCall(found["name"].rstrip("."), "", found[0].strip())
        self._report(self._reader.broken("bad_syntax", raw_call, "it has no arguments, not even empty ones"))
        self._remove_line()

    def _remove_line(self) -> None:
        self._indent.clear()
        self._shown.removed()
        self._mode = "line"

    # Code fences ----------------------------------------------------------------------------------------------------------

    def _inner(self) -> CallParser:
        parser = CallParser()
        parser._reader = self._reader
        parser._is_inner = True
        return parser

    def _begin_fence(self, line: str) -> bool:
        fence = None if self._is_inner or "```" not in line else markers.FENCE.fullmatch(line)
        if fence is None or fence["run"][0] == "~" or fence["info"].strip().lower() not in markers.UNWRAPPED_TAGS:
            return False
        self._fence = _Fence(fence["run"], ["".join(self._indent), line, "\n"], self._inner())
        self._indent.clear()
        self._mode = "fence_line"
        return True

    def _at_fence_line(self, text: str, place: int) -> int:
        fence = self._fence
        assert fence is not None
        seen, is_line, is_open = self._peek(text, place, markers.CLOSING_BEGINS)
        if is_open and markers.CLOSING_BEGINS.fullmatch(seen):
            self._head = seen
            return len(text)
        if is_line and len(seen) <= markers.HEAD_MAX and _closes(seen, fence.run):
            fence.raw += [seen, "\n"]
            self._end_fence()
            return self._used(place, len(seen) + 1)
        self._mode = "fence"
        self._feed_fence(self._head)
        self._head = ""
        return place

    def _in_fence(self, text: str, place: int) -> int:
        end = text.find("\n", place) + 1
        if end:
            self._mode = "fence_line"
        self._feed_fence(text[place : end or len(text)])
        return end or len(text)

    def _feed_fence(self, text: str) -> None:
        fence = self._fence
        assert fence is not None
        fence.raw.append(text)
        before = fence.parser.scanned
        outcomes = fence.parser.feed(text)
        fence.outcomes += outcomes
        self.scanned += fence.parser.scanned - before
        if any(isinstance(outcome, Text) for outcome in outcomes):
            # It contains something else, so it is a listing. The line that shows it does not close the fence.
            is_midline = self._mode == "fence"
            self._give_up_fence("listing")
            self._line = ["."] if is_midline else []

    def _give_up_fence(self, mode: _Mode) -> None:
        fence, self._fence = self._fence, None
        assert fence is not None
        self._shown.show("".join(fence.raw))
        self._listing, self._mode = fence.run, mode

    def _end_fence(self) -> None:
        fence = self._fence
        assert fence is not None
        outcomes = [*fence.outcomes, *fence.parser.close()]
        if not outcomes or any(isinstance(outcome, Text) for outcome in outcomes):
            self._give_up_fence("line")
            return
        self._fence = None
        self._report(*outcomes)
        self._remove_line()

    def _in_listing(self, text: str, place: int) -> int:
        end = text.find("\n", place) + 1
        piece = text[place : end or len(text)]
        self._shown.show(piece)
        self._line.append(piece)
        if end:
            line = "".join(self._line)
            self._line = []
            if _closes(line, self._listing):
                self._mode = "line"
        return end or len(text)

    # Calls ----------------------------------------------------------------------------------------------------------------

    def _begin_call(self, found: re.Match[str], place: int) -> int:
        self._indent.clear()
        opening: Form = "(" if found["open"] == "(" else "{"
        raw = found[0].lstrip()
        self._call = PartialCall(
            name=None if found["object"] else found["name"],
            form=opening,
            bold=bool(found["bold"]) and not found["closed"],
            scan=Scanner(opening),
            raw=[raw],
            length=len(raw),
            # An object without parentheses around it begins with its own brace.
            args_begin=len(raw) - (opening == "{"),
        )
        self._mode = "call"
        return place

    def _in_call(self, text: str, place: int) -> int:
        call = self._call
        assert call is not None
        met, end = call.scan.run(text, place)
        call.add(text[place:end])
        if call.length > CALL_CHARS_MAX and not call.is_too_long:
            if call.first_marker is not None:
                self._recover(None)
                return end
            call.is_too_long = True
            call.raw[:] = [call.text()[:RAW_CHARS_KEPT]]
        if met is Found.LINE:
            self._mode = "call_line"
        elif met is Found.CLOSE:
            self._end_call()
        elif met is Found.UNCLOSED:
            self._end_unclosed()
        return end

    def _at_call_line(self, text: str, place: int) -> int:
        """At the beginning of a line inside a call: is there a marker?"""
        call = self._call
        assert call is not None
        if not self._head:
            indent = markers.INDENT.match(text, place)
            assert indent is not None
            if indent.end() > place:
                call.scan.run(indent[0], 0)
                call.add(indent[0])
                return indent.end()
        seen, _, is_open = self._peek(text, place, markers.MARKER_BEGINS)
        found = markers.MARKER.match(seen)
        if found is not None and found.end() <= markers.HEAD_MAX:
            self._at_marker()
        elif is_open and markers.MARKER_BEGINS.fullmatch(seen):
            self._head = seen
            return len(text)
        else:
            self._to_call()
        return place

    def _to_call(self) -> None:
        """The buffered beginning of a line is a part of the call."""
        held, self._head = self._head, ""
        self._mode = "call"
        self._push(held)

    def _at_marker(self) -> None:
        call = self._call
        assert call is not None
        if call.scan.lacks_only_close and not call.is_too_long and self._end_unclosed():
            return
        if call.scan.in_code or call.is_too_long or self._rescanned > RESCANNED_MAX:
            self._recover(call.length)
            return
        if call.first_marker is None:
            call.first_marker = call.length
        self._to_call()

    def _end_call(self) -> None:
        """Handle the bracket that closes the call."""
        call = self._call
        assert call is not None
        raw = call.text()
        args = raw[call.args_begin : -1 if call.form == "(" else None]
        if call.is_too_long:
            self._settle(self._reader.broken("bad_arguments", call.raw_call(raw, args), TOO_LONG))
            return
        self.scanned += len(raw)
        outcome = self._reader.read(call.raw_call(raw, args))
        if isinstance(outcome, CallError) and outcome.code != "unknown_tool" and call.first_marker is not None:
            self._recover(None)
        else:
            self._settle(outcome)

    def _end_unclosed(self) -> bool:
        """The object is complete and its line has ended: that is a call if the object can be read."""
        call = self._call
        assert call is not None
        end = call.scan.object_end
        assert end is not None
        end += call.args_begin
        raw = call.text()
        args = raw[call.args_begin : end]
        self.scanned += len(raw)
        if call.is_too_long or read_object(args) is None:
            call.scan.forget_object()
            return False
        outcome = self._reader.read(call.raw_call(raw[:end], args))
        if isinstance(outcome, ParsedCall):
            outcome = ParsedCall(outcome.name, outcome.args, (*outcome.notes, "The missing ')' was added."), outcome.raw)
        self._settle(outcome, raw[end:])
        return True

    def _end_inside_call(self) -> None:
        """The text has ended, the call has not."""
        call = self._call
        assert call is not None
        if call.scan.object_end is not None and self._end_unclosed():
            return
        self._recover(None)

    def _recover(self, marker: int | None) -> None:
        """End a broken call where it does least harm: at a bracket that ends a line, before the next marker, at the end."""
        call = self._call
        assert call is not None
        raw = call.text()
        limit = call.first_marker if call.first_marker is not None else marker
        if call.is_too_long:
            self._settle(self._reader.broken("bad_arguments", call.raw_call(raw, ""), TOO_LONG), is_line=True)
            return
        self.scanned += len(raw)
        last = call.last_close(limit)
        end = last if last is not None else limit if limit is not None else len(raw)
        raw_call = call.raw_call(raw[:end].rstrip(), raw[call.args_begin : end])
        if last is None and limit is None:
            error = self._reader.broken("incomplete", raw_call, "the text ended inside it")
        elif last is None:
            error = self._reader.broken("bad_arguments", raw_call, "it is not closed before the next one begins")
        else:
            error = self._reader.broken("bad_arguments", raw_call, "its quotes or brackets do not match")
        self._rescanned += len(raw) - end
        self._settle(error, raw[end:], is_line=last is None)

    def _settle(self, outcome: ParsedCall | CallError, rest: str = "", *, is_line: bool = False) -> None:
        """End the call. Buffered text after it is read again."""
        call = self._call
        assert call is not None
        self._call = None
        self._report(outcome)
        self._push(self._head)
        self._push(rest)
        self._head = ""
        self._bold, self._separated = call.bold, True
        if is_line:
            self._remove_line()
        else:
            self._mode = "tail"

    def _in_tail(self, text: str, place: int) -> int:
        """After a call, on the same line: nothing, another call, or text."""
        if not self._head:
            trailing = markers.TRAILING.match(text, place)
            if trailing is not None:
                self._separated = self._separated and "." not in trailing[0]
                return trailing.end()
        seen, is_line, is_open = self._peek(text, place, markers.NEXT_BEGINS)
        if self._bold and seen.startswith("**"):
            self._bold = False
            return self._used(place, 2)
        found = markers.CHAINED.match(seen) if self._separated else None
        if found is not None and found.end() <= markers.HEAD_MAX:
            return self._begin_call(found, self._used(place, found.end()))
        if is_line and len(seen) <= markers.HEAD_MAX:
            alone = markers.CHAINED_ALONE.fullmatch(seen) if self._separated else None
            if alone is not None:
                self._name_alone(alone)
                return self._used(place, len(seen) + 1)
            if not seen.strip():
                self._remove_line()
                return self._used(place, len(seen) + 1)
        elif is_open and self._may_go_on(seen):
            self._head = seen
            return len(text)
        self._begin_text(is_whole=False, before="" if self._separated else ". ")
        return place

    def _may_go_on(self, seen: str) -> bool:
        if not seen.strip() or (self._bold and seen == "*"):
            return True
        return self._separated and markers.NEXT_BEGINS.fullmatch(seen) is not None

    # The end of the text --------------------------------------------------------------------------------------------------

    def _close_line(self) -> None:
        alone = markers.ALONE.fullmatch(self._head)
        if alone is not None:
            self._name_alone(alone)
        else:
            self._begin_text()
            self._close_text()

    def _close_tail(self) -> None:
        alone = markers.CHAINED_ALONE.fullmatch(self._head) if self._separated else None
        if alone is not None:
            self._name_alone(alone)
        elif self._head.strip():
            self._begin_text(is_whole=False)
            self._close_text()
        else:
            self._remove_line()

    def _close_text(self) -> None:
        line = "".join(self._line)
        if self._block is None and not self._is_inner:
            self._report_midline(line)

    def _close_fence(self) -> None:
        fence = self._fence
        assert fence is not None
        fence.raw.append(self._head)
        if _closes(self._head, fence.run):
            self._end_fence()
        else:
            self._give_up_fence("listing")

    def _close_nothing(self) -> None:
        pass

    _STEPS: ClassVar[Mapping[str, Callable[[Any, str, int], int]]] = {
        "line": _at_line, "text": _in_text, "tail": _in_tail, "call": _in_call, "call_line": _at_call_line,
        "fence": _in_fence, "fence_line": _at_fence_line, "listing": _in_listing,
    }  # fmt: skip
    _CLOSINGS: ClassVar[Mapping[str, Callable[[Any], None]]] = {
        "line": _close_line, "text": _close_text, "tail": _close_tail, "fence": _close_fence, "fence_line": _close_fence,
        "listing": _close_nothing,
    }  # fmt: skip


def parse_text(text: str, tools: Iterable[ToolDefinition | str] | None = None) -> Parsed:
    """A whole answer, taken apart: its calls, its errors, and the text that is left."""
    parser = CallParser(tools)
    parsed = Parsed()
    shown: list[str] = []
    for outcome in [*parser.feed(text), *parser.close()]:
        if isinstance(outcome, ParsedCall):
            parsed.calls.append(outcome)
        elif isinstance(outcome, CallError):
            parsed.errors.append(outcome)
        else:
            shown.append(outcome.text)
    return Parsed(parsed.calls, "".join(shown), parsed.errors)


def _closes(line: str, run: str) -> bool:
    """True if a line closes the code fence that `run` opened."""
    closing = markers.CLOSING.fullmatch(line)
    return closing is not None and closing[1][0] == run[0] and len(closing[1]) >= len(run)
