"""Events as they look in a terminal."""

from __future__ import annotations

import io
import re

import pytest

from callgate.cli.render import Terminal, escape, one_line, shown_call
from callgate.events import (
    CallFinished,
    CallProgress,
    CallProposed,
    CallStarted,
    Event,
    Notice,
    RunEnded,
    TextDelta,
    ThoughtDelta,
    TurnEnded,
)
from callgate.history.conversation import Conversation
from callgate.types import FunctionCall, Reply, ToolResult, Usage

CALL = FunctionCall(name="add", args={"a": 1, "b": "é"}, id="1")


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(*events: Event, out: io.StringIO | None = None, err: io.StringIO | None = None, **environ: str) -> tuple[str, str]:
    out, err = out or io.StringIO(), err or io.StringIO()
    terminal = Terminal(out, err, environ)
    for event in events:
        terminal.show(event)
    return out.getvalue(), err.getvalue()


def result(**fields: object) -> ToolResult:
    return ToolResult(**{"call_id": "1", "name": "add", "status": "finished", "duration_s": 0.0123, **fields})


def reply(finish_reason: str = "STOP", *, limited: bool = False) -> Reply:
    return Reply(
        text="",
        calls=[],
        usage=Usage(),
        finish_reason=finish_reason,
        history=Conversation().history,
        session="s",
        turns=1,
        limited=limited,
    )


def test_text_goes_to_stdout_as_it_comes_and_its_line_is_ended() -> None:
    assert shown(TextDelta("Hel"), TextDelta("lo"), RunEnded(reply())) == ("Hello\n", "")
    assert shown(TextDelta("Hello\n"), RunEnded(reply())) == ("Hello\n", "")


def test_a_call_is_two_lines_on_stderr() -> None:
    events = (CallProposed(CALL), CallStarted(CALL), CallFinished(CALL, result(value={"sum": 3})))
    assert shown(*events) == ("", '→ add(a=1, b="é")\n✓ add 12 ms → sum=3\n')


def test_a_call_that_fails_says_why_on_one_line() -> None:
    failed = result(status="failed", error="No.\n  Not   today.", value=None)
    assert shown(CallStarted(CALL), CallFinished(CALL, failed))[1].splitlines()[1] == "✗ add: No. Not today."


def test_a_call_that_never_ran_is_shown_all_the_same() -> None:
    denied = result(status="denied", error="Not allowed.", value=None)
    assert shown(CallProposed(CALL), CallFinished(CALL, denied))[1] == ('→ add(a=1, b="é")\n✗ add: Not allowed.\n')


def test_text_before_a_call_keeps_a_line_of_its_own() -> None:
    assert shown(TextDelta("Let me see."), CallStarted(CALL), TextDelta("3"))[0] == "Let me see.\n3"


def test_long_arguments_and_results_are_cut() -> None:
    call = FunctionCall(name="add", args={"a": "x" * 1000}, id="1")
    first, second = shown(CallStarted(call), CallFinished(call, result(value="y" * 1000, duration_s=2.5)))[1].splitlines()
    assert first.endswith("x…)")
    assert len(first) < 350
    assert second.startswith("✓ add 2.5 s → yyy")
    assert len(second) < 200


def test_progress_and_notices_are_lines_and_thoughts_are_not() -> None:
    err = shown(
        CallStarted(CALL),
        CallProgress("1", "half way", 0.5),
        ThoughtDelta("hm"),
        Notice("code", "Note\nthis."),
        TurnEnded(1, "STOP"),
    )[1]
    assert err.splitlines()[1:] == ["  add: half way 50%", "! Note this."]


def test_attempts_and_uploads_take_one_line_on_a_screen_and_one_each_in_a_log() -> None:
    attempts = [Notice("waiting", f"Trying again (attempt {number} of 5)", "warning") for number in (2, 3, 4)]
    log = shown(*attempts, TextDelta("Hello."))[1]
    assert log.splitlines() == [f"! Trying again (attempt {number} of 5)" for number in (2, 3, 4)]
    out, err = Tty(), Tty()
    terminal = Terminal(out, err, {"TERM": "xterm", "NO_COLOR": "1"}, size=lambda: (80, 24))
    terminal.begin()
    for event in (*attempts, TextDelta("Hello."), RunEnded(reply())):
        terminal.show(event)
    lines = err.getvalue().replace("\x1b[?25h", "\n").splitlines()
    assert [line for line in lines if line.startswith("! ")] == ["! Trying again (attempt 4 of 5)"]
    assert all(f"attempt {number} of 5" in err.getvalue() for number in (2, 3, 4))


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (reply("cancelled"), "cancelled"),
        (reply("turn_limit"), "limit of turns"),
        (reply("STOP", limited=True), "limit of turns"),
        (reply("SAFETY\x1b[2J"), "SAFETY<U+001B>[2J"),
    ],
)
def test_a_run_that_did_not_end_by_itself_says_so(ended: Reply, words: str) -> None:
    assert words in shown(RunEnded(ended))[1]


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred", "<U+001B>[31mred"),
        ("\r\x00\x07\x08", "<U+000D><U+0000><U+0007><U+0008>"),
        ("\x7f\x9b31m\x85", "<U+007F><U+009B>31m<U+0085>"),
        ("user\u202etxt.exe\u2066\u200f\u061c", "user<U+202E>txt.exe<U+2066><U+200F><U+061C>"),
        ("\ud800", "<U+D800>"),
        ("Zürich 東京 🙂", "Zürich 東京 🙂"),
    ],
)
def test_what_could_steer_a_terminal_is_spelled_out(raw: str, safe: str) -> None:
    assert escape(raw) == safe


def test_nothing_of_models_and_tools_reaches_the_screen_raw() -> None:
    evil = "\x1b]0;owned\x07\u202e\x9b"
    call = FunctionCall(name=evil, args={evil: evil}, id="1")
    out, err = shown(
        TextDelta(evil),
        CallStarted(call),
        CallProgress("1", evil),
        CallFinished(call, result(value=evil)),
        CallStarted(call),
        CallFinished(call, result(status="failed", error=evil)),
        Notice("code", evil),
        RunEnded(reply(evil)),
    )
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(out + err)


def test_the_call_that_is_asked_about_is_ascii_and_whole() -> None:
    call = FunctionCall(name="wipe", args={"path": "/étc\u202e", "n": "x" * 2000}, id="1")
    text = shown_call(call)
    assert text.isascii()
    assert text.startswith('wipe(path="/\\u00e9tc\\u202e", n="xxx')
    odd = FunctionCall(name="wipe", args={"a=1, b": 2, "\u0430": 3}, id="1")
    assert shown_call(odd) == 'wipe("a=1, b"=2, "\\u0430"=3)'
    assert "x" * 2000 in text


def test_colors_are_for_terminals_that_want_them() -> None:
    assert shown(CallStarted(CALL), err=Tty())[1] == '\x1b[36m→ add\x1b[0m(a=1, b="é")\n'
    assert "\x1b" not in shown(CallStarted(CALL))[1]
    assert "\x1b" not in shown(CallStarted(CALL), err=Tty(), NO_COLOR="1")[1]
    assert "\x1b" not in shown(CallStarted(CALL), err=Tty(), TERM="dumb")[1]


def test_an_encoding_that_cannot_show_the_symbols_gets_plain_ones() -> None:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n") for _ in range(2))
    terminal = Terminal(out, err, {})
    terminal.show(CallStarted(CALL))
    terminal.show(CallFinished(CALL, result(value="é")))
    terminal.show(TextDelta("4 °C"))
    assert err.buffer.getvalue() == b'-> add(a=1, b="\\xe9")\n+ add 12 ms -> \\xe9\n'
    assert out.buffer.getvalue() == b"4 \\xb0C"


def test_one_line_is_one_line() -> None:
    assert one_line("a\n\n b\t\r c", 100) == "a b c"
    assert one_line("abcdef", 3) == "abc..."


# --- a terminal that can do more -----------------------------------------------------------------------------------------


def moving(**environ: str) -> tuple[Terminal, Tty]:
    both = Tty()
    return Terminal(both, both, {"TERM": "xterm", **environ}, size=lambda: (80, 10)), both


def on_screen(both: Tty) -> list[str]:
    pyte = pytest.importorskip("pyte", reason="pyte is not installed")
    screen = pyte.Screen(80, 30)
    screen.set_mode(pyte.modes.LNM)
    pyte.Stream(screen).feed(both.getvalue())
    return "\n".join(row.rstrip() for row in screen.display).rstrip().split("\n")


def test_a_running_call_moves_in_its_place_and_stays_with_its_number_and_its_result_below() -> None:
    show, both = moving()
    one, two = (FunctionCall(name=name, args={"path": "x" * 80}, id=name) for name in ("read", "copy"))
    show.begin()
    assert show.tick() > 0
    assert on_screen(both)[0].endswith("waiting for the model 0.0 s  (Ctrl-C stops)")
    show.show(ThoughtDelta("hm"))
    assert "thinking" in on_screen(both)[0]
    show.show(TextDelta("I will **look**"))
    show.show(CallStarted(one))
    show.show(CallStarted(two))
    show.show(CallProgress("read", "half way\x1b[2J", 0.5))
    show.show(CallProgress("nobody", "x"))
    rows = on_screen(both)
    assert (len(rows), rows[:2]) == (4, ["I will look", ""])
    assert rows[2][2:8] + rows[3][2:8] == "read(pcopy(p"
    assert "half way<U+001B>[2J 50%" in rows[2]
    show.show(
        CallFinished(one, ToolResult(call_id="read", name="read", status="finished", value="v" * 90, duration_s=0.012))
    )
    show.show(CallFinished(two, ToolResult(call_id="copy", name="copy", status="failed", error="no room")))
    show.show(TextDelta("Done.\n"))
    show.show(RunEnded(reply("STOP")))
    rows = on_screen(both)
    assert re.fullmatch(r'✓ 1 read\(path="x+…\) 12 ms', rows[2])
    assert re.fullmatch(r"  v+…", rows[3])
    assert max(map(len, rows)) < 80
    assert re.fullmatch(r'✗ 2 copy\(path="x+…\) 0 ms', rows[4])
    assert rows[5:] == ["  no room", "", "Done."]
    assert both.getvalue().rfind("\x1b[?25h") > both.getvalue().rfind("\x1b[?25l")
    assert "\x1b[2J" not in both.getvalue()
    show.clear()
    assert both.getvalue().endswith("\x1b[H\x1b[2J")


def test_without_colours_the_marks_of_markdown_stay() -> None:
    show, both = moving(NO_COLOR="1")
    show.show(TextDelta("**bold**\n"))
    show.line("about", color="failed")
    assert both.getvalue() == "**bold**\n\nabout\n"


def test_while_a_question_is_open_nothing_moves() -> None:
    show, both = moving()
    show.begin()
    show.show(CallStarted(FunctionCall(name="t", id="1")))
    show.hold()
    before = both.getvalue()
    show.tick()
    assert both.getvalue() == before
    assert on_screen(both) == [""]
    show.release()
    show.tick()
    assert "t()" in on_screen(both)[0]
    show.end()
    assert on_screen(both) == [""]


def test_only_so_many_calls_are_kept_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.cli.render.CALLS_KEPT", 2)
    show, both = moving()
    for number in range(3):
        call = FunctionCall(name=f"t{number}", id=str(number))
        show.show(CallFinished(call, ToolResult(call_id=call.id, name=call.name, status="finished", value=1)))
    assert (show.number_of_first, [call.name for call, _ in show.calls]) == (2, ["t1", "t2"])
    assert "✓ 3 t2()" in on_screen(both)[4]


# --- callgate's own lines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lines_about_a_run_wrap_at_words(columns: int) -> None:
    both = Tty()
    show = Terminal(both, both, {"TERM": "xterm"}, size=lambda: (columns, 24))
    sentence = "! " + "every word of this long sentence is kept whole wherever the line ends " * 4
    show.line(sentence)
    show.rows([("/help", sentence), ("/mcp [read|ask SERVER ...]", sentence)])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", both.getvalue()).splitlines()
    assert max(map(len, lines)) < columns
    assert {word for line in lines for word in line.split()} == {
        *sentence.split(),
        "/help",
        "/mcp",
        "[read|ask",
        "SERVER",
        "...]",
    }
    assert lines[1].startswith("  ")


def test_wrapped_untrusted_lines_keep_their_prefix_and_never_exceed_the_terminal() -> None:
    both = Tty()
    show = Terminal(both, both, {"TERM": "xterm", "NO_COLOR": "1"}, size=lambda: (40, 24))
    show.line("  | some words " + "x" * 100 + " end")
    lines = both.getvalue().splitlines()
    assert all(line.startswith("  | ") and len(line) < 40 for line in lines)
    assert "".join(line[4:] for line in lines).replace(" ", "") == "somewords" + "x" * 100 + "end"


def test_a_line_for_a_program_is_never_wrapped() -> None:
    err = io.StringIO()
    Terminal(io.StringIO(), err, {}, size=lambda: (40, 24)).line("word " * 50 + "end")
    assert err.getvalue() == "word " * 50 + "end\n"


def test_blocks_of_a_conversation_are_separated_by_one_blank_line() -> None:
    show, both = moving(NO_COLOR="1")
    show.prompted()
    show.show(CallFinished(CALL, result(value="one\ntwo\nthree\nfour\nfive")))
    show.show(TextDelta("Three.\n"))
    show.show(RunEnded(reply()))
    show.separate("prompt")
    assert on_screen(both)[:8] == [
        "",
        '✓ 1 add(a=1, b="é") 12 ms',
        "  one",
        "  two",
        "  three",
        "  ... 2 more lines; /call 1 shows all",
        "",
        "Three.",
    ]
    assert both.getvalue().endswith("Three.\n\n")
