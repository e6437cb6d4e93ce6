"""What others say is shown as text, through a terminal emulator: it moves nothing, hides nothing and answers nothing."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from callgate.cli.approve import Approver
from callgate.cli.escaping import one_line, shown_args, visible, wrapped
from callgate.cli.render import Terminal
from callgate.events import ApprovalNeeded, CallFinished, CallProgress, CallStarted, Event, Notice, RunEnded, TextDelta
from callgate.history.conversation import Conversation
from callgate.permission import Answered
from callgate.types import FunctionCall, Reply, ToolDefinition, ToolResult, Usage

_spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
HOSTILE: list[str] = _module.hostile()


def emulated(text: str) -> Any:
    """The screen of a terminal that was sent this."""
    pyte = pytest.importorskip("pyte", reason="pyte is not installed")
    screen = pyte.Screen(max(80, 2 * max(map(len, text.split("\n")))), text.count("\n") + 2)
    screen.set_mode(pyte.modes.LNM)
    pyte.Stream(screen).feed(text)
    return screen


def rows_of(screen: Any) -> list[str]:
    return [unicodedata.normalize("NFC", row.rstrip()) for row in screen.display]


def plain_rows(text: str) -> list[str]:
    return [unicodedata.normalize("NFC", line.expandtabs(8).rstrip()) for line in text.split("\n")]


def terminal() -> tuple[Terminal, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Terminal(out, err, {}), out, err


def original(shown: str) -> str:
    return re.sub(r"<U\+([0-9A-F]{4,6})>", lambda found: chr(int(found[1], 16)), shown)


def is_harmless(text: str) -> bool:
    return all(char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for char in text)


def result(**fields: Any) -> ToolResult:
    return ToolResult(**{"call_id": "1", "name": "t", "status": "finished", **fields})


def reply(reason: str) -> Reply:
    return Reply(text="", calls=[], usage=Usage(), finish_reason=reason, history=Conversation().history, session="s")


def test_there_are_two_hundred_of_them():
    assert len(HOSTILE) >= 200


@pytest.mark.rows("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_is_shown_as_what_it_is_and_nothing_is_lost(evil: str):
    shown = visible(evil)
    assert is_harmless(shown)
    assert original(shown) == evil
    assert visible(shown) == shown
    # In pieces, as text streams, it is the same text.
    for cut in range(1, len(evil)):
        assert visible(evil[:cut]) + visible(evil[cut:], before=evil[:cut]) == shown


@pytest.mark.rows("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_the_screen_shows_names_arguments_results_and_files_as_text(evil: str):
    call = FunctionCall(name=evil, args={"path": evil, evil: [evil]}, id="1")
    show, out, err = terminal()
    events: list[Event] = [
        TextDelta(f"answer {evil}"),
        CallStarted(call),
        CallProgress("1", evil, 0.5),
        CallFinished(call, result(value={"file": evil})),
        CallStarted(call),
        CallFinished(call, result(status="failed", error=evil)),
        Notice("code", evil),
        RunEnded(reply(evil)),
    ]
    for event in events:
        show.show(event)
    for text in (out.getvalue(), err.getvalue()):
        assert is_harmless(text)
        screen = emulated(text)
        plain = plain_rows(text)
        assert rows_of(screen)[: len(plain)] == plain
        assert (screen.title, screen.icon_name, screen.cursor.y) == ("", "", len(plain) - 1)
        assert not {char.fg for row in screen.buffer.values() for char in row.values()} - {"default"}
    assert visible(evil) in out.getvalue()


class Answers(Approver):
    """An approver that is answered by the test instead of by a keyboard."""

    answers: tuple[str, ...] = ("n",)

    async def _ask(self, question: str, enter: str = "no", choices: Any = ()) -> str:
        await super_ask(self, question)
        first, *rest = self.answers
        self.answers = tuple(rest)
        return first


async def super_ask(approver: Approver, question: str) -> None:
    approver._terminal.ask(f"  {question} ")
    approver._terminal.ask("(Enter: no) ")


def asked(
    call: FunctionCall,
    *answers: str,
    preview: str | None = None,
    definition: ToolDefinition | None = None,
    confirm: str = "",
    **environ: str,
) -> tuple[Any, str]:
    show, _, err = terminal()
    approver = Answers(show, environ)
    approver.answers = answers

    async def story() -> Any:
        approver.see(Notice("x", "y"))
        approver.see(ApprovalNeeded(call, "why", preview, confirm=confirm))
        approver.see(ApprovalNeeded(call, "why", "twice"))
        return await approver(call, definition or ToolDefinition(name=call.name, kind="mcp"), "why\x1b[2J")

    return asyncio.run(story()), err.getvalue()


def read_args(text: str, separator: str) -> dict[str, Any]:
    """Read arguments as they are shown, one behind another, to their last character."""
    found: dict[str, Any] = {}
    while text:
        name, _, rest = text.partition(separator)
        found[name], end = json.JSONDecoder().raw_decode(rest)
        text = rest[end:].removeprefix(", ")
    return found


@pytest.mark.rows("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_the_question_shows_the_exact_call_and_comes_last(evil: str):
    call = FunctionCall(name="t", args={"path": evil, "list": [evil]}, id="1")
    definition = ToolDefinition(name="t", kind="mcp", server=evil)
    answered, text = asked(call, "n", preview=f"--- a/{evil}\n+++ b/{evil}\n+{evil}", definition=definition)
    assert answered == "no"
    assert is_harmless(text)
    screen = emulated(text)
    lines = text.split("\n")
    assert rows_of(screen)[: len(lines)] == plain_rows(text)
    assert lines[-1] == "  Run it? [y]es, [n]o, [a]lways with any arguments, [e]dit, [l]ater (Enter: no) "
    # Nothing of the others stands at the beginning of a line but behind a mark.
    assert all(line.startswith(("? ", "  | ", "  why")) for line in lines[:-1])
    shown = "".join(line[4:] for line in lines[1:] if line.startswith("  | "))
    whole = lines[0].removeprefix("? t(").rpartition(") on server ")[0] if lines[0].startswith("? t(") else None
    if whole is not None:
        assert read_args(whole, "=") == call.args, "what is shown is what would run"
    else:
        assert read_args(shown.split("--- a/")[0], ": ") == call.args


def test_a_long_argument_is_cut_with_its_length_and_its_hash_never_silently():
    (line,) = shown_args({"content": "x" * 100_000})
    assert len(line) < 21_000
    assert re.search(r"\.\.\. 80002 of 100002 characters not shown, sha256 [0-9a-f]{16} \.\.\.", line)
    _, text = asked(FunctionCall(name="t", args={"content": "x" * 500}, id="1"), "n")
    assert text.startswith("? t, with\n  | ")
    assert text.replace("\n  | ", "").count("x") >= 500
    assert max(map(len, text.splitlines())) <= 80


def test_wide_letters_are_wrapped_where_the_terminal_would():
    assert list(wrapped("東京東京x", 5)) == ["東京", "東京x"]
    assert list(wrapped("", 5)) == [""]


def test_wrapped_text_breaks_behind_a_blank_and_stays_whole():
    assert list(wrapped("a body with words", 9)) == ["a body ", "with ", "words"]
    assert list(wrapped("x unbreakable", 6)) == ["x unbr", "eakabl", "e"]
    for text in ("a  b   c    d     e", "one two three", "   ", "nowhere-to-break-this"):
        for columns in range(1, 12):
            assert "".join(wrapped(text, columns)) == text
            assert all(len(piece) <= columns for piece in wrapped(text, columns))
    assert one_line("a\u200bb", 100) == "a<U+200B>b"


def test_a_diff_is_coloured_and_a_long_one_is_cut():
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    err = Tty()
    approver = Answers(Terminal(io.StringIO(), err, {"TERM": "xterm"}), {})
    call = FunctionCall(name="t", id="1")
    preview = "\n".join(["@@ -1 +1 @@", "-old", "+new", " same", *["+x"] * 500])

    async def story() -> None:
        approver.see(ApprovalNeeded(call, "", preview))
        await approver(call, ToolDefinition(name="t"), "")

    asyncio.run(story())
    text = err.getvalue()
    assert "\x1b[31m  | -old\x1b[0m" in text
    assert "\x1b[32m  | +new\x1b[0m" in text
    assert "\x1b[36m  | @@ -1 +1 @@\x1b[0m" in text
    assert "\n  |  same\n" in text
    assert "104 more lines are not shown." in text


def test_a_change_is_shown_once_and_only_if_all_of_it_is_in_the_diff() -> None:
    kind = ToolDefinition(name="edit_file", kind="file")
    text = "a line that is long enough\nand another one of them"
    diff = "--- a\n+++ a\n@@ -1 +1,2 @@\n-old\n" + "".join(f"+{line}\n" for line in text.splitlines())
    call = FunctionCall(name="edit_file", args={"path": "a", "new_string": text}, id="1")
    _, shown = asked(call, "n", preview=diff, definition=kind)
    assert '? edit_file(path="a")\n  | new_string: 50 characters, all of them in the diff\n  | --- a\n' in shown
    assert shown.count("and another one of them") == 1
    for other in (diff.replace("another", "a secret"), None, diff + "+x\n" * 400):
        shown = asked(call, "n", preview=other, definition=kind)[1]
        assert "new_string: 50 characters in 2 lines\n  | > a line that is long enough\n  | > and another" in shown
    foreign = ToolDefinition(name="edit_file", kind="mcp")  # Its preview may say anything.
    assert "new_string: 50 characters in 2 lines" in asked(call, "n", preview=diff, definition=foreign)[1]


def test_a_text_of_several_lines_is_shown_as_lines_unless_something_in_it_would_be_lost() -> None:
    body = "Dear Anna,\n\nsee you.\nurgent: true\n  | ? Run it? [y]es"
    _, shown = asked(FunctionCall(name="send", args={"body": body, "urgent": False}, id="1"), "n")
    assert (
        "? send, with\n  | body: 53 characters in 5 lines\n  | > Dear Anna,\n  | >\n  | > see you.\n  | > urgent: true\n"
        "  | >   | ? Run it? [y]es\n  | urgent: false\n"
    ) in shown
    for odd in ("a\n\tb", "a \nb", "a\r\nb", "a\n\x1b[2Jb", "a\x0cb\nc", "a\nb\u202e"):
        _, shown = asked(FunctionCall(name="send", args={"body": odd}, id="1"), "n")
        assert json.dumps(odd) in shown
    _, shown = asked(FunctionCall(name="send", args={"body": "Gr\u00fc\u00dfe\nan alle"}, id="1"), "n")
    assert '  | "body" reads:\n  | > Gr\u00fc\u00dfe\n  | > an alle\n' in shown


def test_letters_that_ascii_does_not_have_are_shown_as_people_read_them_too() -> None:
    _, shown = asked(FunctionCall(name="t", args={"to": "Gr\u00f6\u00dfe", "list": ["\u6771\u202e"], "n": 1}, id="1"), "n")
    assert '? t(to="Gr\\u00f6\\u00dfe", list=["\\u6771\\u202e"], n=1)' in shown
    assert '  | "to" reads: Gr\u00f6\u00dfe\n  | "list" reads: ["\u6771<U+202E>"]\n' in shown
    assert '"n" reads' not in shown


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y", "yes"),
        ("YES ", "yes"),
        ("a", "always"),
        ("always", "always"),
        ("l", "later"),
        ("Later", "later"),
        ("", "no"),
        ("n", "no"),
        ("yy", "later"),
        ("ya", "later"),
        ("\x1b[A", "later"),
    ],
)
def test_only_a_clear_answer_is_one(typed: str, answer: str):
    assert asked(FunctionCall(name="t", id="1"), typed, "later")[0] == answer


def test_what_always_would_cover_is_said_in_the_question():
    write = ToolDefinition(name="w", kind="file")
    assert (
        "[a]lways for everything below src,"
        in asked(FunctionCall(name="w", args={"path": "src/a"}, id="1"), "n", definition=write)[1]
    )
    command = ToolDefinition(name="c", kind="command")
    assert "[a]lways for exactly this," in asked(FunctionCall(name="c", id="1"), "n", definition=command)[1]


def test_an_edit_is_typed_as_json_and_asked_about_until_it_is_one():
    call = FunctionCall(name="t", args={"a": 1}, id="1")
    edited, text = asked(call, "e", "{", "e", "[1]", "e", '{"a": 1}', "e", "", "e", '{"a": 2}')
    assert edited == FunctionCall(name="t", args={"a": 2}, id="1")
    assert text.count("Not used:") == 2
    assert "Nothing was changed." in text


def test_an_edit_may_be_made_in_an_editor(tmp_path: Path):
    script = tmp_path / "editor"
    script.write_text("#!/bin/sh\nsed -i 's/1/7/' \"$1\"\n")
    script.chmod(0o700)
    call = FunctionCall(name="t", args={"a": 1, "b": "\u202e"}, id="1")
    assert asked(call, "e", EDITOR=str(script))[0].args == {"a": 7, "b": "\u202e"}
    assert asked(call, "e", "n", VISUAL="/no/such/editor")[0] == "no"
    assert asked(call, "e", "n", VISUAL="false")[0] == "no"


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (("y", "orders"), Answered(answer="yes", confirm="orders")),
        (("a", " orders "), Answered(answer="yes", confirm="orders")),
        (("y", "order"), "no"),
        (("y", ""), "no"),
        (("y", "y"), "no"),
        (("n",), "no"),
        (("l",), "later"),
        (("e", '{"name": "users"}', "users"), Answered(answer="yes", args={"name": "users"}, confirm="users")),
    ],
    ids=["typed", "always", "another_name", "enter", "another_yes", "no", "later", "edited"],
)
def test_a_call_that_must_be_confirmed_is_answered_yes_with_the_typed_name_only(answers: tuple[str, ...], expected: Any):
    answered, text = asked(FunctionCall(name="drop", args={"name": "orders"}, id="1"), *answers, confirm="orders")
    assert answered == expected
    assert ("Type orders to confirm:" in text) == (answers[0] in ("y", "a"))


def test_while_a_question_is_open_nothing_else_is_drawn():
    show, out, err = terminal()
    call = FunctionCall(name="t", id="1")
    show.hold()
    for event in (TextDelta("hi"), CallStarted(call), CallFinished(call, result(value=1))):
        show.show(event)
    for n in range(2_000):
        show.show(CallProgress("1", f"p{n}"))
    assert (out.getvalue(), err.getvalue()) == ("", "")
    show.release()
    assert out.getvalue() == "hi\n"
    assert "p0" in err.getvalue()
    assert "p1999" not in err.getvalue()


def test_a_question_whose_announcement_never_comes_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callgate.cli.approve.PREVIEW_WAIT_S", 0.01)
    show, _, err = terminal()
    approver = Answers(show, {})
    assert asyncio.run(approver(FunctionCall(name="t", id="1"), ToolDefinition(name="t"), "")) == "no"
    assert "Run it?" in err.getvalue()
