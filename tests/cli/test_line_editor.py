"""The line at the prompt: what is remembered, completed and pasted, with keys that a test types."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate.cli import line_editor as lines
from callgate.cli.line_editor import HISTORY_MAX, History, Pastes, PlainLine, RichLine, completions, line_reader
from callgate.cli.tty import Tty, ending_signals

# --- memory --------------------------------------------------------------------------------------------------------------


def test_what_was_typed_is_kept_in_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    history = History(str(path))
    for text in ("one", "one", "two\nlines", " secret", "", "x" * 30_000, "три"):
        history.add(text)
    assert history.texts == ["one", "two\nlines", "три"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes().isascii()
    assert History(str(path)).texts == ["one", "two\nlines", "три"]


def test_a_long_history_is_cut_and_half_a_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f"{json.dumps(str(n))}\n" for n in range(3 * HISTORY_MAX)) + '17\n"half')
    history = History(str(path))
    assert history.texts[-1] == str(3 * HISTORY_MAX - 1)
    assert len(path.read_text().splitlines()) == len(history.texts) <= HISTORY_MAX


def test_a_history_that_cannot_be_used_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    unwritable = History(str(tmp_path / "file" / "history"))
    unwritable.add("one")
    unwritable.add("two")
    assert unwritable.texts == ["one", "two"]
    assert "history" in str(unwritable.problem)
    assert "cannot be read" in str(History(str(tmp_path)).problem)
    in_memory = History(None)
    in_memory.add("one")
    assert (in_memory.texts, in_memory.problem) == (["one"], None)


def test_a_large_paste_is_a_word_and_comes_back_whole() -> None:
    pastes = Pastes()
    assert pastes.word_for("short") == "short"
    large = "line\n" * 1_000
    word = pastes.word_for(large)
    assert word == "[paste 1: 1001 lines, 5000 characters]"
    assert pastes.whole(f"see {word}, and {word}") == f"see {large}, and {large}"
    for n in range(30):
        pastes.word_for(f"{n}" * 3_000)
    assert pastes.whole(word) == word, "only so many are stored"


# --- completion ----------------------------------------------------------------------------------------------------------

CHOICES = {"/mode": lambda: ("auto", "native"), "/model": lambda: (), "/exit": lambda: ()}


@pytest.mark.parametrize(
    ("before", "offered"),
    [
        ("/mo", [("/mode", 3), ("/model", 3)]),
        ("/mode a", [("auto", 1)]),
        ("/mode auto", []),
        ("/nothing x", []),
        ("see @", [("@docs/", 1), ("@notes.txt", 1), ('@"two words.txt"', 1)]),
        ("see @n", [("@notes.txt", 2)]),
        ('see @"tw', [('@"two words.txt"', 4)]),
        ("see @.h", [("@.hidden", 3)]),
        ("see @docs/", [("@docs/a.md", 6)]),
        ("see @../", []),
        ("see @/etc/", []),
        ("no mention", []),
        ("text\n/mo", []),
    ],
)
def test_commands_their_choices_and_files_are_offered(tmp_path: Path, before: str, offered: list[tuple[str, int]]) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("notes.txt", "two words.txt", ".hidden", "docs/a.md", "evil\x1b.txt"):
        (tmp_path / name).touch()
    assert list(completions(before, CHOICES, str(tmp_path))) == offered


# --- keys ----------------------------------------------------------------------------------------------------------------


class FakeTalk:
    """As much of a chat as a line needs."""

    on_interrupt: Callable[[], None] | None = None
    prepared = 0

    def run(self, work: Any) -> Any:
        return asyncio.run(work)

    def prepare(self, changed: Callable[[], None]) -> None:
        self.prepared += 1

    def forget_interrupts(self) -> None:
        pass


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Types keys into a line, and gives the line and what came out of it."""
    pytest.importorskip("prompt_toolkit", reason="prompt_toolkit is not installed")
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    monkeypatch.setattr(lines, "rich_output", DummyOutput)
    monkeypatch.setattr(lines, "PREPARE_AFTER_S", 0)
    (tmp_path / "notes.txt").touch()
    looked: list[bool] = []
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):

        def type_keys(text: str, history: History | None = None) -> tuple[str, RichLine, list[bool]]:
            keys.send_text(text)
            line = RichLine(FakeTalk(), history or History(None), CHOICES, lambda: looked.append(True), str(tmp_path))
            return line.read(), line, looked

        yield type_keys


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("hello\r", "hello"),
        ("one\\\rtwo\r", "one\ntwo"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("a \x1b[200~b\r\nc\rd\x1b[201~\r", "a b\nc\nd"),
        ("/mode n\t\r", "/mode native"),
        ("see @no\t\r", "see @notes.txt"),
        ("/exi\t\r", "/exit"),
        ("\x1b[200~" + "x\n" * 3_000 + "\x1b[201~\r", "x\n" * 3_000),
        ("hello\x0f\r", "hello"),
    ],
)
def test_keys_make_a_text(typed: Callable[..., Any], keys: str, text: str) -> None:
    found, line, looked = typed(keys)
    assert found == text
    assert looked == ([True] if "\x0f" in keys else [])
    line.forget_typed()


def test_a_tab_with_several_choices_offers_them_and_enter_takes_one(typed: Callable[..., Any]) -> None:
    assert typed("/mod\t\t\r\r\r")[0].startswith("/mod")


def test_ctrl_c_and_ctrl_d_are_told_and_a_text_is_remembered(typed: Callable[..., Any]) -> None:
    history = History(None)
    assert typed("one\r", history)[0] == "one"
    assert history.texts == ["one"]
    assert typed("\x1b[A\r", history)[0] == "one"
    with pytest.raises(KeyboardInterrupt):
        typed("half\x03\x03")
    with pytest.raises(EOFError):
        typed("\x04")


def test_a_terminal_that_can_do_little_gets_a_plain_line(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter(["one\\", "two\\", "three", "four\\\\"])
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda prompt: asked.append(prompt) or next(given))
    line = line_reader(FakeTalk(), History(None), CHOICES, lambda: None, ".")
    assert isinstance(line, PlainLine)
    assert (line.read(), line.read()) == ("one\ntwo\nthree", "four\\\\")
    assert asked == ["> ", ". ", ". ", "> "]
    line.forget_typed()


def test_without_prompt_toolkit_a_line_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    assert isinstance(line_reader(FakeTalk(), History(None), CHOICES, lambda: None, "."), PlainLine)


# --- the settings of a terminal ------------------------------------------------------------------------------------------


def test_settings_are_changed_for_a_while_and_put_back_whoever_changed_them() -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "r+b", buffering=0) as keys, os.fdopen(os.dup(slave), "w") as screen:
        before = termios.tcgetattr(slave)
        with Tty(keys, screen) as tty:  # type: ignore[arg-type]
            assert tty.is_there
            with tty.quiet():
                assert not termios.tcgetattr(slave)[3] & (termios.ECHO | termios.ICANON)
                assert termios.tcgetattr(slave)[3] & termios.ISIG
                with tty.cooked():
                    assert termios.tcgetattr(slave) == before
                assert not termios.tcgetattr(slave)[3] & termios.ECHO
            assert termios.tcgetattr(slave) == before
            raw = termios.tcgetattr(slave)
            raw[3] = 0
            termios.tcsetattr(slave, termios.TCSANOW, raw)
        assert termios.tcgetattr(slave) == before
        assert "\x1b[?25h" in os.read(master, 1000).decode()
    os.close(master)


def test_where_there_is_no_terminal_nothing_happens(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w+") as file, Tty(file, file) as tty:
        assert not tty.is_there
        with tty.quiet(), tty.cooked():
            pass
    assert (tmp_path / "file").read_text() == ""


def test_signals_that_end_a_program_end_it_by_its_way_out() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as raised, ending_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert raised.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_signals():
            os.kill(os.getpid(), signal.SIGHUP)  # What nohup ignores stays ignored.
    finally:
        signal.signal(signal.SIGHUP, ignored)


def test_files_are_found_by_letters_in_their_order_the_best_first(tmp_path: Path) -> None:
    for name in ("src/plan.py", "src/deep/play.py", "docs/plan.md", ".hidden/plan.py", "node_modules/plan.py", "x/.plan.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    offered = [text for text, _ in lines.completions("see @plpy", {}, str(tmp_path))]
    assert offered == ["@src/plan.py", "@src/deep/play.py"]
    assert [text for text, _ in lines.completions("see @plan.m", {}, str(tmp_path))] == ["@docs/plan.md"]
    assert [text for text, _ in lines.completions("see @deep/pl", {}, str(tmp_path))] == ["@src/deep/play.py"]
    for outside in ("/etc", "~", "..", "zzz"):
        assert list(lines.completions(f"see @{outside}/p", {}, str(tmp_path))) == []
