"""The commands of a conversation, typed at a plain prompt: what each says, and what it does to the session."""

from __future__ import annotations

import io
import json
import re
import sys
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import ScriptedModel
from callgate.cli import main
from callgate.cli.render import Terminal
from callgate.cli.slash import COMMANDS, show_call
from callgate.content.read import is_response, parts_of, text_of
from callgate.errors import ModelError
from callgate.events import CallFinished
from callgate.testing import call, text
from callgate.testing.fake_openai import FakeOpenAI
from callgate.types import FunctionCall, ToolResult


class Typist(io.StringIO):
    """A terminal at which somebody types lines; the screen beside it is captured by pytest."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("no descriptor")


@pytest.fixture
def session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Types lines into a conversation; gives the exit code and what was shown on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TERM", "dumb")

    failed: set[str] = set()

    def reply(request: Any) -> Any:
        last = request.contents[-1]
        said = text_of(last)
        if any(map(is_response, parts_of(last))):
            return text("Done.")
        if said == "fail" or (said == "fail once" and said not in failed):
            failed.add(said)
            raise ModelError("the model is asleep")
        if said == "break":
            raise RuntimeError("a fault of the model's own")
        if said.startswith("write"):
            return call("write_file", path="made.txt", content="made\n")
        if said.startswith("speak"):
            return {"role": "model", "parts": [{"inlineData": {"mimeType": "audio/L16;rate=24000", "data": "AAEAAQ=="}}]}
        if said.startswith("Sum up"):
            return text("A summary.")
        return text(f"You said {said.splitlines()[0]}")

    monkeypatch.setattr("callgate.cli.provider.DemoModel", lambda _: ScriptedModel([reply], repeat_last=True))

    def chat(*typed: str | BaseException, words: tuple[str, ...] = ()) -> tuple[int, str]:
        given = iter(typed)

        def typed_line(prompt: str = "") -> str:
            item: Any = next(given, EOFError())
            if isinstance(item, BaseException):
                raise item
            return item

        monkeypatch.setattr("builtins.input", typed_line)
        monkeypatch.setattr("sys.stdin", Typist())
        code = main(["chat", *words])
        out, err = capsys.readouterr()
        return code, out + err

    return chat


def test_every_command_is_in_the_help_and_in_the_page(session: Callable[..., Any]) -> None:
    code, shown = session("/help")
    page = (Path(__file__).resolve().parent.parent.parent / "docs" / "cli.md").read_text()
    assert code == 0
    assert [name for name in COMMANDS if f"{name} " not in shown or f"`{name}" not in page] == []
    asked_for = "/help /tools /mcp /model /mode /approve /usage /sessions /save /load /undo /compact /clear /exit"
    assert set(asked_for.split()) <= set(COMMANDS)


def test_commands_that_look(session: Callable[..., Any]) -> None:
    code, shown = session(
        "hello", "/tools", "/mcp", "/usage", "/call", "/call 3", "/call x", "/allowed", "/revoke", "/sessions"
    )
    assert code == 0
    assert re.search(r"^calculate +Works out a sum", shown, re.MULTILINE)
    assert "There are no MCP servers" in shown
    assert "tokens   " in shown
    assert "context  about" in shown
    assert "there are no calls here yet" in shown
    assert "/call takes the number of a call, not 'x'" in shown
    assert "There are no always approvals in this conversation.\n0 revoked" in shown
    assert "idle" in shown.partition("0 revoked")[2]
    assert "To resume: callgate chat -r chat-" in shown


def test_speech_is_written_as_a_file_that_players_take(session: Callable[..., Any], tmp_path: Path) -> None:
    _, shown = session("speak", f"/media {tmp_path / 'speech.wav'}")
    assert "audio/L16;rate=24000, 0.0 KiB" in shown
    with wave.open(str(tmp_path / "speech.wav")) as read:
        assert (read.getframerate(), read.readframes(9)) == (24_000, b"\0\1\0\1")


def test_the_rest_of_a_rate_limit_is_shown_in_words(session: Callable[..., Any], tmp_path: Path) -> None:
    _, shown = session("write it", "/usage", words=("--root", str(tmp_path), "--approval-mode", "yolo"))
    assert re.search(r"left     kind file: (99|100) of 100, 50 more per second", shown)


def test_model_mode_and_approval_change_for_what_follows(session: Callable[..., Any], tmp_path: Path) -> None:
    _, shown = session(
        "/model", "/model nonsense", "/mode", "/mode native", "/mode x", "/approve", "/approve x", "/approve auto_edit",
        "write it", "/call", "/model demo:", words=("--root", str(tmp_path)),
    )  # fmt: skip
    assert "scripted; /model NAME changes it" in shown
    assert "no key for Gemini" in shown
    assert "auto; /mode auto|native|prompted changes" in shown
    assert "declared in the mode native" in shown
    assert "/mode takes auto, native, prompted, not 'x'" in shown
    assert "No call waits for an answer. The approval mode is default" in shown
    assert "/approve takes default, auto_edit, yolo, plan, not 'x'" in shown
    assert (tmp_path / "made.txt").read_text() == "made\n"
    assert "call 1: write_file, finished" in shown
    assert '  | content: "made\\n"' in shown


def test_another_model_is_opened_with_the_settings_of_the_command(session: Callable[..., Any], monkeypatch) -> None:
    monkeypatch.setenv("CALLGATE_OPENAI_API_KEY", "only-of-settings")
    with FakeOpenAI.in_thread(["I am another one."], api_key="only-of-settings") as fake:
        words = ("--set", f"openai.base_url={fake.base_url}")
        _, shown = session("/model openai:gpt-4o", "Who are you?", words=words)
    assert "From now on gpt-4o answers." in shown
    assert "I am another one." in shown


def test_a_turn_is_taken_back_with_its_files(session: Callable[..., Any], tmp_path: Path) -> None:
    _, shown = session(
        "write it", "/undo x", "/undo 9", "/undo", "/undo", words=("--root", str(tmp_path), "--approval-mode", "yolo")
    )
    assert not (tmp_path / "made.txt").exists()
    assert "made.txt was removed. To take this back: callgate undo" in shown
    assert "removed: write it" in shown
    assert "/undo takes the number of exchanges to remove, not 'x'" in shown
    assert "9 cannot be removed" in shown.replace("9 of them cannot", "9 cannot")
    assert "there is nothing to undo: the conversation is empty" in shown


def test_a_conversation_is_written_to_a_file_and_taken_up_again(session: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[1]")
    (tmp_path / "broken.json").write_text("{")
    _, shown = session(
        "/save chat.json", "hello", "/save", "/save chat.json", "/save chat.json", "/save no/folder.json", "/clear",
        "/load chat.json", "/load gone", "/load", "/load other.json", "/load broken.json", "/load latest",
    )  # fmt: skip
    assert "the conversation is empty, so there is nothing to save" in shown
    assert f"stored in {tmp_path / 'state'}" in shown
    assert "Written to chat.json. /load chat.json continues it." in shown
    assert "'chat.json' exists already: choose another name" in shown
    assert "'no/folder.json' cannot be written: No such file or directory" in shown
    assert "A new conversation begins. The one before is stored: /load chat-" in shown
    assert shown.count("This is now the session import-") == 2
    assert "there is no session 'gone'" in shown
    assert "/load takes the id of a session, or a file" in shown
    assert "'other.json' holds no session" in shown
    assert "'broken.json' cannot be read: " in shown
    assert (tmp_path / "chat.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "chat.json").read_text())["callgate"] == 1


def test_a_history_is_summed_up_when_there_is_something_to(session: Callable[..., Any]) -> None:
    _, shown = session("/compact", "one", "/compact", "two", "/compact", "three")
    assert shown.count("There is nothing to summarize before your last message.") == 2
    assert "2 contents were summarized." in shown
    assert "You said three" in shown


def test_what_fails_is_told_and_the_conversation_goes_on(session: Callable[..., Any]) -> None:
    code, shown = session(
        "fail", "break", "", "/nonsense", KeyboardInterrupt(), "still", UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")
    )
    assert code == 0
    assert "callgate: the model is asleep" in shown
    assert "callgate: RuntimeError: a fault of the model's own" in shown
    assert "there is no command '/nonsense'; /help lists them" in shown
    assert "Ctrl-C again leaves." in shown
    assert "You said still" in shown
    assert "is not text in this terminal's encoding" in shown


def test_ctrl_c_twice_and_exit_leave_and_nothing_is_kept_of_an_ephemeral_one(
    session: Callable[..., Any], tmp_path: Path
) -> None:
    assert session(KeyboardInterrupt(), KeyboardInterrupt(), "never")[0] == 0
    code, shown = session("hello", "/save", "/clear", "/quit", "never", words=("--ephemeral",))
    assert code == 0
    assert "gone when you leave" in shown
    assert "To go on" not in shown
    assert "You said never" not in shown
    assert not list((tmp_path / "state" / "callgate").glob("history"))


def test_files_are_attached_where_they_are_mentioned(session: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / ".env").write_text("KEY=1")
    _, shown = session(
        "see @a.txt and @who", "see @gone.txt", "see @.env", "n", "see @.env", "y", "see @.env", EOFError(), "bye"
    )
    assert "attached: a.txt" in shown
    assert "There is no file 'who' here, so it is sent as text." in shown
    assert "There is no file 'gone.txt' here, so it is sent as text." in shown
    assert shown.count("'.env' was not attached: it may hold secrets, and you did not say yes") == 2
    assert shown.count("attached: .env") == 1
    assert "You said bye" in shown


def test_what_is_taken_back_or_resumed_is_shown_without_the_files_that_went_with_it(
    session: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    session("see @a.txt")
    _, shown = session("/undo", words=("-c",))
    assert "Resumed: see @a.txt (1 exchange)" in shown
    assert re.search(r"^> see @a.txt$", shown, re.MULTILINE)
    assert re.search(r"^removed: see @a.txt$", shown, re.MULTILINE)
    assert "It is data" not in shown.partition("removed: see")[2]


def test_a_path_outside_of_the_folder_is_refused_in_whole_sentences(session: Callable[..., Any]) -> None:
    _, shown = session("see @../up.txt")
    assert re.search(r"with --root\. For an @", " ".join(shown.split()))


def test_a_call_is_unfolded_whole_with_its_notes_and_a_very_long_result_is_cut() -> None:
    err = io.StringIO()
    terminal = Terminal(io.StringIO(), err, {})
    value = "\n".join(f"row {n}" for n in range(3_000))
    shown = FunctionCall(name="t", args={"a": "\x1b"}, id="1")
    for result in (
        ToolResult(call_id="1", name="t", status="finished", value=value, notes=("cut",), duration_s=1.5),
        ToolResult(call_id="1", name="t", status="failed", error="no \x1b[2J"),
    ):
        terminal.show(CallFinished(shown, result))
    show_call(terminal, 1)
    show_call(terminal)
    text = err.getvalue()
    assert "call 1: t, finished after 1.500 s" in text
    assert '  | a: "\\u001b"' in text
    assert "  | row 1999\n" in text
    assert "1000 more lines are not shown." in text
    assert "  note: cut" in text
    assert "  error: no <U+001B>[2J" in text
    terminal.forget_calls()
    show_call(terminal, 1)
    assert "there are no calls here yet" in err.getvalue()


def test_mcp_servers_are_shown_with_their_tools_or_what_is_wrong(session: Callable[..., Any], tmp_path: Path) -> None:
    servers = {
        "gone": {"command": "no-such-program"},
        "time": {"command": sys.executable, "args": ["-m", "mcp_server_time"]},
    }
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    pytest.importorskip("mcp_server_time", reason="mcp-server-time is not installed")
    code, shown = session("/mcp", "/tools", words=("--mcp", "servers.json"))
    assert code == 0
    assert "✗ gone  there is no program 'no-such-program'" in shown
    assert "✓ time  2 tools: get_current_time, convert_time" in shown
    assert re.search(r"^convert_time +Convert time between timezones", shown, re.MULTILINE)


def test_prompts_of_servers_are_commands_and_their_resources_can_be_mentioned(
    session: Callable[..., Any], tmp_path: Path
) -> None:
    server = Path(__file__).parent.parent / "mcp" / "offering_server.py"
    row = {"command": sys.executable, "args": [str(server)], "startTimeout": "2m"}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"far": row}}))
    code, shown = session(
        "/far:greet Ada", "/far:greet who=Bob", "/far:greet 'Ada B' more", "/far:nothing", "/near:greet Ada",
        "What is in @far:far://text?", "And @far:far://nothing", "/far:greet 'open", "/save said.json",
        words=("--mcp", "servers.json"),
    )  # fmt: skip
    assert code == 0
    assert "You said Greet Ada." in shown
    assert "You said Greet Bob." in shown
    assert "the prompt 'greet' takes who=...; 'more' is one too many" in shown
    assert "the MCP server 'far' has no prompt 'nothing'" in shown
    assert "there is no command '/near:greet'" in shown
    assert "attached: far:far://text?" in shown
    assert "the resource 'far://text' of the MCP server 'far'" in (tmp_path / "said.json").read_text()
    assert "From afar." in (tmp_path / "said.json").read_text()
    assert "You said What is in @far:far://text?" in shown
    assert "There is no file" not in shown
    assert "callgate: The MCP server 'far' refused the call" in shown
    assert "You said And" not in shown
    assert "callgate: that cannot be read: No closing quotation" in shown


def test_a_call_is_answered_later_and_then_asked_about_again(
    session: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["l\n", "y\n"])

    async def typed() -> str:
        return next(answers)

    monkeypatch.setattr("callgate.cli.approve.read_line", typed)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    code, shown = session("write it", "/approve", words=("--root", str(tmp_path)))
    assert code == 0
    assert "/approve asks again; so does this session when it is resumed later." in shown
    assert shown.count("Run it? [y]es, [n]o, [a]lways") == 2
    assert (tmp_path / "made.txt").read_text() == "made\n"


def test_an_approval_asks_again_after_what_is_no_answer_and_a_message_that_waits_is_not_retried(
    session: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["yep\n", "l\n", "Y\n"])

    async def typed() -> str:
        return next(answers)

    monkeypatch.setattr("callgate.cli.approve.read_line", typed)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    _, shown = session("write it", "/retry", "/approve", words=("--root", str(tmp_path)))
    assert "'yep' is no answer." in shown
    assert "the last message waits for an approval; /approve asks again" in shown
    assert shown.count("Run it? [y]es, [n]o, [a]lways") == 3
    assert (tmp_path / "made.txt").read_text() == "made\n"


def test_a_failed_message_is_sent_again_in_its_place(session: Callable[..., Any]) -> None:
    code, shown = session("/retry", "fail once", "/retry", "/retry", "/undo", "/undo")
    assert code == 0
    assert "there is nothing to send again" in shown
    assert "callgate: the model is asleep" in shown
    assert "You said fail once" in shown
    assert "the last message was answered; use /undo, then send it again" in shown
    assert shown.count("removed: fail once") == 1


def test_a_resumed_conversation_shows_where_it_was_left(session: Callable[..., Any]) -> None:
    session("hello", "2 + 2")
    code, shown = session(words=("-c",))
    assert code == 0
    assert "Resumed: hello (2 exchanges)" in shown
    assert "> 2 + 2" in shown
    assert "2 exchanges" in shown.partition("> 2 + 2")[2]
    assert "To resume: callgate chat -r chat-" in shown


COMMANDS_FILE = """
from callgate.files.command import CommandTool
commands = CommandTool(".", allow=["echo", "ls no-such-file"])
"""


def test_a_typed_command_runs_by_the_rules_of_the_command_tool(session: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(COMMANDS_FILE)
    log = tmp_path / "audit.jsonl"
    words = ("-T", "tools.py:commands", "--audit", str(log))
    code, shown = session("!echo 'one  two' \x1b[2J", "!ls no-such-file", "!cat tools.py", "!echo 'open", words=words)
    assert code == 0
    assert "  | one  two <U+001B>[2J" in shown
    assert "exit code 2" in shown
    assert "is not on the list of commands that may be run" in shown
    assert "the command cannot be read: No closing quotation" in shown
    assert "You said" not in shown
    assert '"run_command"' in log.read_text()


def test_a_typed_command_needs_a_command_tool_and_a_deny_rule_holds_for_it(
    session: Callable[..., Any], tmp_path: Path
) -> None:
    assert "there is no command tool in this chat" in session("!ls")[1]
    (tmp_path / "tools.py").write_text(COMMANDS_FILE)
    (tmp_path / "policy.toml").write_text('rules = ["deny run_command"]')
    _, shown = session("!echo one", words=("-T", "tools.py:commands", "--policy", "policy.toml"))
    assert "  | one" not in shown
