"""Questions of MCP servers at the terminal."""

from __future__ import annotations

import asyncio
import io
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate.cli.approve import Approver
from callgate.cli.mcp_prompts import ServerAsker
from callgate.cli.render import Terminal
from callgate.mcp import Answer, Question

SCHEMA = {
    "type": "object",
    "properties": {
        "guests": {"type": "integer", "title": "Guests", "description": "How many come."},
        "menu": {"type": "string", "enum": ["fish", "cake"], "default": "cake"},
        "note": {"type": "string"},
    },
    "required": ["guests"],
}
FORM = Question(server="inn", message="For how many?\n? Run it? [y]es", schema=SCHEMA)


class Answers(Approver):
    """An approver that is answered by the test instead of by a keyboard."""

    def __init__(self, *typed: str) -> None:
        self.err = io.StringIO()
        self.screen = Terminal(io.StringIO(), self.err, {})
        super().__init__(self.screen, {})
        self.typed = list(typed)

    async def ask_line(self, question: str, enter: str) -> str:
        self.screen.ask(f"  {question} (Enter: {enter}) ")
        typed = self.typed.pop(0)
        self.screen.line(typed)
        return typed


def asked(question: Question, *typed: str, environ: dict[str, str] | None = None) -> tuple[Answer, str]:
    approver = Answers(*typed)
    asker = ServerAsker(approver.screen.line, approver, environ or {})
    answer = asyncio.run(asker.elicit(question))
    assert approver.typed == []
    return answer, approver.err.getvalue()


def test_a_form_is_asked_field_by_field_and_shown_before_it_is_sent():
    answer, shown = asked(FORM, "y", "many", "4", "", "", "y")
    assert answer == Answer("accept", {"guests": 4, "menu": "cake"})
    assert shown.splitlines() == [
        '? The MCP server "inn" asks you:',
        "  | For how many?",
        "  | ? Run it? [y]es",
        "  Answer it? Never give a password or a key here. [y]es, [n]o (Enter: no) y",
        "  | How many come.",
        "  Guests: (Enter: ask again) many",
        "  a whole number is expected",
        "  Guests: (Enter: ask again) 4",
        "  | 1. fish",
        "  | 2. cake",
        '  menu (a number): (Enter: "cake") ',
        "  note: (Enter: leave it out) ",
        '  {"guests": 4, "menu": "cake"}',
        "  Send this? [y]es, [n]o (Enter: no) y",
    ]


@pytest.mark.parametrize(
    ("typed", "action"),
    [
        ([""], "decline"), (["sure"], "decline"), (["y", "4", "1", "x", ""], "cancel"), (["y", "", "x", ""], "cancel"),
    ],
)  # fmt: skip
def test_anything_but_a_clear_yes_sends_nothing(typed: list[str], action: str):
    answer, _ = asked(FORM, *typed)
    assert answer == Answer(action)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("typed", "action"), [("y", "accept"), ("", "decline"), ("sure", "decline")])
def test_the_model_is_lent_after_the_whole_request_was_shown(typed: str, action: str):
    said = "system: Be brief.\n" + "user: Go on.\n" * 60
    answer, shown = asked(Question(server="inn", message=said, wants_model=True), typed)
    assert answer == Answer(action)  # pyright: ignore[reportArgumentType]
    lines = shown.splitlines()
    assert lines[0] == '? The MCP server "inn" wants your model to answer this:'
    assert lines[1:-1] == ["  | system: Be brief.", *["  | user: Go on."] * 60]
    assert lines[-1].rstrip() == f"  Lend it the model for this? [y]es, [n]o (Enter: no) {typed}".rstrip()


def test_a_question_that_is_too_long_to_be_shown_says_how_much_is_missing():
    _, shown = asked(Question(server="inn", message="line\n" * 45, schema=SCHEMA), "n")
    assert "  5 more lines are not shown." in shown.splitlines()


PAGE = Question(server="inn", message="Pay there.", url="https://pay.example/7?a=\u202eb")


@pytest.mark.parametrize(
    ("typed", "action"), [(["y", "y"], "accept"), (["y", ""], "cancel"), (["n"], "decline")]
)  # fmt: skip
def test_a_page_is_shown_whole_with_its_host_before_it_is_visited(typed: list[str], action: str):
    answer, shown = asked(PAGE, *typed)
    assert answer == Answer(action)  # pyright: ignore[reportArgumentType]
    assert shown.splitlines()[2:4] == [
        '  It wants you to visit a page of "pay.example":', "  | https://pay.example/7?a=\\u202eb"
    ]  # fmt: skip


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A browser that writes down what it is asked to open."""
    seen = tmp_path / "seen"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{program} %s")
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    return seen


def test_a_page_is_opened_in_the_browser_that_was_named(browser: Path):
    answer, shown = asked(PAGE, "y", "y", environ=dict(os.environ))
    assert answer == Answer("accept")
    assert browser.read_text().strip() == PAGE.url
    assert "Open it in a browser" not in shown


def test_a_login_shows_its_page_and_opens_it(browser: Path):
    approver = Answers()
    asker = ServerAsker(approver.screen.line, approver)
    host = asker.host()
    assert host.elicit == asker.elicit
    assert host.login is not None
    assert host.sample is None
    assert host.roots == ()

    async def story(login: Any) -> None:
        await login("inn", "https://in.example/authorize?x=1")

    asyncio.run(story(host.login))
    assert approver.err.getvalue().splitlines() == [
        'The MCP server "inn" wants you to log in, at a page of "in.example":', "https://in.example/authorize?x=1"
    ]  # fmt: skip
    assert browser.read_text().strip() == "https://in.example/authorize?x=1"


def test_two_questions_are_asked_one_after_the_other():
    approver = Answers("n", "n")
    asker = ServerAsker(approver.screen.line, approver, {})

    async def story() -> None:
        await asyncio.gather(asker.elicit(FORM), asker.elicit(PAGE))

    asyncio.run(story())
    lines = approver.err.getvalue().splitlines()
    assert [line.startswith("? The MCP server") for line in lines].count(True) == 2
    assert lines[3].startswith("  Answer it?")


# At a terminal -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_server_asks_in_the_middle_of_a_chat_and_gets_the_answer(tmp_path: Path):
    import pty

    server = Path(__file__).parent.parent / "mcp" / "asking_server.py"
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"inn": {"command": sys.executable, "args": [str(server)], "start_s": 300}}}))
    command = [sys.executable, "-m", "callgate", "chat", "--provider", "demo", "--mcp", str(file)]
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*command, "--approval-mode", "yolo", "--ephemeral", "book"], stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True,
    ) as chat:  # fmt: skip
        os.close(slave)
        try:
            seen = ""
            for words, typed in (
                ("Answer it? Never give a password or a key here. [y]es, [n]o (Enter: no) ", "y\n"),
                ("Guests: (Enter: ask again) ", "4\n"),
                ("Outside [y]es, [n]o: (Enter: false) ", "y\n"),
                ("Send this? [y]es, [n]o (Enter: no) ", "y\n"),
                ("4 outside=True", ""),
            ):
                while words not in seen:
                    assert select.select([master], [], [], 60)[0], seen
                    seen += os.read(master, 65_536).decode()
                seen = seen.partition(words)[2]
                os.write(master, typed.encode())
        finally:
            chat.kill()
            os.close(master)
