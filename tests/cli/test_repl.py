"""The conversation in a real terminal: every way in, through and out, on a screen that is emulated.

One process a story, with a model that a script plays; what the person would see is what pyte says is on the screen.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")
pyte = pytest.importorskip("pyte", reason="pyte is not installed")
pytest.importorskip("prompt_toolkit", reason="prompt_toolkit is not installed")

PATIENCE_S = 180
FOOTER = re.compile(r"\n\S+  approval \w+(?:  [^\n]*)?$")
"""The line below the prompt."""

PROGRAM = '''
"""`callgate chat` with a model that follows a script: each text that the person may say, and what the model does then."""
import asyncio, os, sys
from callgate import ScriptedModel
from callgate.content.read import is_response, media_of, parts_of, response_of, text_of
from callgate.testing import answer, call, text

MARKDOWN = """# Title

Some **bold** words and `code`.

```python
def f(): pass
```
"""

class Slow:
    """Streams an answer word by word, and pauses for ever behind it."""

    name = "slow"

    async def generate(self, request):
        for word in ("Once", " upon", " a", " time"):
            yield answer(word, finish_reason=None)
        await asyncio.Event().wait()

def said(request):
    return text_of(request.contents[-1]) if request.contents else ""

def reply(request):
    last = request.contents[-1]
    if any(is_response(part) for part in parts_of(last)):
        response = response_of(parts_of(last)[0])
        return text("It said: " + str(response["response"]))
    words = said(request)
    if words.startswith("wipe"):
        return call("wipe", path="a.txt")
    if words.startswith("work"):
        return call("work")
    if words.startswith("count"):
        return text(f"{sum(len(part.get('text', '')) for part in parts_of(last))} characters")
    if words.startswith("media"):
        return text(", ".join(media_of(part)["mime_type"] for part in parts_of(last) if media_of(part)))
    if words.startswith("Sum up"):
        return text("A summary.")
    return text(MARKDOWN if words.startswith("markdown") else f"You said {words}")

class Model:
    name = "scripted"

    def __init__(self, answer):
        self._other = ScriptedModel([reply], repeat_last=True)

    async def describe(self):
        return {"inputTokenLimit": int(os.environ["LIMIT"])} if "LIMIT" in os.environ else None

    def generate(self, request):
        words = text_of(request.conversation.contents[-1])
        return Slow().generate(request) if words == "story" else self._other.generate(request)

import callgate.cli.provider as provider
provider.DemoModel = Model
from callgate.cli import main
sys.exit(main(sys.argv[1:]))
'''

TOOLS = '''
import asyncio
from callgate import ToolContext, ToolDefinition, tool

@tool
async def work(context: ToolContext) -> str:
    """Works until it is stopped."""
    context.progress("half way", 0.5)
    await asyncio.Event().wait()

class Wipe:
    definition = ToolDefinition(
        name="wipe", kind="command", input_schema={"type": "object", "properties": {"path": {"type": "string"}}}
    )

    def problems(self, args):
        return ()

    async def run(self, args, context):
        return "wiped " + args["path"]

wipe = Wipe()
'''


class Screen:
    """A command in a terminal of its own, and what stands on its screen."""

    def __init__(self, folder: Path, *words: str, columns: int = 100, rows: int = 24, **more: str) -> None:
        (folder / "program.py").write_text(PROGRAM)
        env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
        env |= {"TERM": "xterm-256color", "PYTHONUTF8": "1", "XDG_STATE_HOME": str(folder / "state"), **more}
        self.screen = pyte.HistoryScreen(columns, rows, history=2_000)
        self._stream = pyte.Stream(self.screen)
        self.raw = ""
        # The terminal is opened here, so that its settings can be looked at before and after.
        self.child = pexpect.spawn(
            sys.executable,
            ["-W", "error", "program.py", "chat", *words],
            cwd=str(folder),
            env=env,
            dimensions=(rows, columns),
            encoding="utf-8",
            codec_errors="replace",
            timeout=PATIENCE_S,
            echo=True,
        )
        self.child.delaybeforesend = None
        self.child.delayafterclose = self.child.delayafterterminate = 0.01
        self.before = self.settings()

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self.child.child_fd)

    def read(self, wait_s: float = 0.05) -> bool:
        try:
            text = self.child.read_nonblocking(65536, wait_s)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += text
        self._stream.feed(text)
        return True

    @property
    def text(self) -> str:
        """Everything on the screen and above it, without the blanks at the ends of lines."""
        above = ["".join(line[n].data for n in sorted(line)) for line in self.screen.history.top]
        text = "\n".join(row.rstrip() for row in [*above, *self.screen.display]).rstrip()
        return FOOTER.sub("", text).rstrip()

    @property
    def footer(self) -> str:
        """The last line of the screen, below the prompt."""
        return "\n".join(row.rstrip() for row in self.screen.display).rstrip().rpartition("\n")[2]

    def wait_for(self, words: str | Callable[[str], bool]) -> str:
        """Waits until the screen shows these words, or is as it should be."""
        is_there = words if callable(words) else lambda text: words in text
        deadline = time.monotonic() + PATIENCE_S
        while not is_there(self.text):
            assert self.read() or is_there(self.text), f"it ended before {words!r}:\n{self.text}"
            assert time.monotonic() < deadline, f"{words!r} did not come:\n{self.text}"
        return self.text

    def prompt(self) -> None:
        """Waits for an empty prompt in the last line, with the terminal ready for keys."""
        self.wait_for(lambda text: text.endswith("\n>") or text == ">")

    def type(self, keys: str) -> None:
        self.child.send(keys)

    def paste(self, text: str) -> None:
        """Pastes a text as a terminal does, and reads the screen meanwhile: neither side has room for it all."""
        data = f"\x1b[200~{text}\x1b[201~".encode()
        while data:
            data = data[os.write(self.child.child_fd, data[:1024]) :]
            self.read(0)

    def end(self) -> int:
        """The exit code, once everything has been read."""
        deadline = time.monotonic() + PATIENCE_S
        while self.read():
            assert time.monotonic() < deadline, f"it did not end:\n{self.text}"
        self.child.wait()
        status = self.child.exitstatus
        return status if status is not None else -int(self.child.signalstatus)

    def assert_as_before(self) -> None:
        assert self.settings() == self.before, "the settings of the terminal were left changed"
        assert self.raw.rfind("\x1b[?25h") >= self.raw.rfind("\x1b[?25l"), "the cursor was left hidden"
        assert self.raw.rfind("\x1b[?2004l") >= self.raw.rfind("\x1b[?2004h"), "pastes were left marked"
        assert "Traceback" not in self.text

    def close(self) -> None:
        if self.child.isalive():
            self.child.kill(signal.SIGKILL)
            self.child.wait()
        self.child.close()


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Callable[..., Screen]]:
    opened: list[Screen] = []
    (tmp_path / "tools.py").write_text(TOOLS)

    def show(*words: str, **more: Any) -> Screen:
        opened.append(Screen(tmp_path, *words, **more))
        return opened[-1]

    yield show
    for one in opened:
        one.close()


# --- talking -------------------------------------------------------------------------------------------------------------


def test_an_answer_is_drawn_as_markdown_and_the_terminal_is_left_as_it_was(screen: Callable[..., Screen]) -> None:
    show = screen()
    show.prompt()
    show.type("markdown\r")
    text = show.wait_for("def f(): pass")
    assert "**" not in text
    assert "```" not in text
    show.prompt()
    row = next(n for n, line in enumerate(show.screen.display) if "bold" in line)
    column = show.screen.display[row].index("bold")
    assert show.screen.buffer[row][column].bold
    assert not show.screen.buffer[row][0].bold
    show.type("\x04")
    assert show.end() == 0
    show.assert_as_before()
    assert "To resume: callgate chat -r chat-" in show.text


def test_a_running_call_is_one_line_that_changes_and_unfolds_afterwards(screen: Callable[..., Screen]) -> None:
    show = screen("-T", "tools.py")
    show.prompt()
    show.type("work\r")
    show.wait_for(lambda text: re.search(r"work\(\) \d+\.\d s half way 50%$", text) is not None)
    frames = set()
    show.wait_for(lambda text: frames.add(text) or len(frames) > 3)  # It moves,
    assert show.text.count("work()") == 1  # in its place.
    show.type("\x03")
    show.wait_for("The run was cancelled; the conversation can continue.")
    show.prompt()
    assert "waiting for the model" not in show.text
    assert re.search(r"^✗ 1 work\(\) .*\n  [^✗]*cancelled", show.text, re.MULTILINE)
    show.type("/call 1\r")
    show.wait_for("call 1: work, cancelled")
    show.prompt()
    show.type("/call 7\r")
    show.wait_for("there is no call 7 here; there are 1 to 1")
    show.type("/exit\r")
    assert show.end() == 0
    show.assert_as_before()


def test_the_footer_leaves_out_what_does_not_fit_and_cuts_no_number(screen: Callable[..., Screen], tmp_path: Path) -> None:
    folder = tmp_path / "a-folder-whose-name-is-long"
    folder.mkdir()
    show = screen("--root", str(folder), columns=52)
    show.prompt()
    assert re.fullmatch(r"\S+  approval default", show.footer)
    show.type("hello\r")
    show.wait_for("You said hello")
    show.prompt()
    assert re.fullmatch(r"\S+  approval default  context \d+ tokens", show.footer)
    show.type("\x04")
    assert show.end() == 0


def test_the_footer_says_how_much_of_the_context_is_left_once_the_server_has_said_how_large_it_is(
    screen: Callable[..., Screen],
) -> None:
    show = screen(LIMIT="100000")
    show.prompt()
    show.type("hello\r")
    show.wait_for("You said hello")
    show.wait_for(lambda text: re.search(r"  context 9\d% left(?:  |$)", show.footer) is not None)
    show.type("\x04")
    assert show.end() == 0


def test_what_was_typed_is_wrapped_at_its_words(screen: Callable[..., Screen]) -> None:
    show = screen(columns=40)
    show.prompt()
    show.type("tell me about the carrots and the lettuce in the garden\\\rand the beans\r")
    text = show.wait_for("You said tell")
    assert "> tell me about the carrots and the\n  lettuce in the garden\n  and the beans\n" in text
    show.type("\x04")
    assert show.end() == 0
    assert "\n\n\n" not in show.text


def test_everything_of_the_prompt_and_the_spinner_goes_to_stderr(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = os.environ | {"TERM": "xterm-256color", "PYTHONUTF8": "1", "XDG_STATE_HOME": str(tmp_path / "state")}
    command = f"{shlex.quote(sys.executable)} program.py chat > out.txt"
    child = pexpect.spawn("/bin/sh", ["-c", command], cwd=str(tmp_path), env=env, encoding="utf-8", timeout=PATIENCE_S)
    child.expect("Ctrl-D leaves")
    child.send("hello\r")
    child.expect("\x1b\\[J>|> ")
    deadline = time.monotonic() + PATIENCE_S
    while "You said hello" not in (tmp_path / "out.txt").read_text():
        assert time.monotonic() < deadline
        child.expect([pexpect.TIMEOUT, "\x1b"], timeout=0.1)  # clock: it is asked again until the words are there
    child.send("/exit\r")
    child.expect(pexpect.EOF)
    child.close()
    assert (tmp_path / "out.txt").read_text() == "You said hello\n"


# --- typing --------------------------------------------------------------------------------------------------------------


def test_a_paste_of_a_megabyte_is_one_word_in_the_line_and_goes_to_the_model_whole(screen: Callable[..., Screen]) -> None:
    show = screen()
    show.prompt()
    lines = [f"line {n:06d} of what was pasted, with ümläut" for n in range(24_000)]
    pasted = "\n".join(lines)
    assert len(pasted.encode()) > 1_000_000
    show.type("count ")
    show.wait_for("> count")
    show.paste(pasted)
    show.wait_for(f"[paste 1: {len(lines)} lines, {len(pasted)} characters]")
    show.type("\r")
    show.wait_for(f"{len('count ') + len(pasted)} characters\n")
    show.prompt()
    show.type("\x04")
    assert show.end() == 0
    show.assert_as_before()


def test_several_lines_by_alt_enter_backslash_and_paste(screen: Callable[..., Screen]) -> None:
    show = screen()
    show.prompt()
    show.type("one\x1b\rtwo\\\rthree")
    show.wait_for("> one\n. two\n. three")
    show.paste("\r\nfour\r\n/exit")
    show.wait_for(". four\n. /exit")
    show.type("\r")
    show.wait_for(lambda text: re.search(r"You said one\ntwo\nthree\nfour\n/exit\n", text) is not None)
    show.prompt()
    show.type("\x1b[A")
    show.wait_for(". two\n. three\n. four\n. /exit")
    show.type("\x03")
    show.prompt()  # Ctrl-C empties a line that has text, and does not count towards leaving.
    assert "Ctrl-C again leaves." not in show.text
    assert "  approval default  " in show.footer
    show.type("\x04")
    assert show.end() == 0


def test_what_was_typed_is_remembered_for_its_owner_alone_and_completed(
    screen: Callable[..., Screen], tmp_path: Path
) -> None:
    (tmp_path / "notes with blanks.txt").write_text("x")
    show = screen()
    show.prompt()
    show.type("remember me\r")
    show.wait_for("You said remember me")
    show.prompt()
    show.type(" not this one\r")
    show.wait_for("You said not this one")
    show.prompt()
    show.type("/app")
    show.wait_for("/approve")
    show.type("\t")
    show.wait_for("> /approve")
    show.type(" yo\t")
    show.wait_for("> /approve yolo")
    show.type("\r")
    show.wait_for("The approval mode is now yolo.")
    show.type("see @notes")
    show.wait_for('@"notes with blanks.txt"')
    show.type("\x03")
    show.prompt()
    show.type("\x04")
    assert show.end() == 0
    history = tmp_path / "state" / "callgate" / "history"
    assert [json.loads(line) for line in history.read_text().splitlines()] == ["remember me", "/approve yolo"]
    assert history.stat().st_mode & 0o777 == 0o600
    again = screen()
    again.prompt()
    again.type("\x1b[A\x1b[A\r")
    again.wait_for("You said remember me")


def test_a_resize_while_a_call_runs_and_at_the_prompt_leaves_nothing_behind(screen: Callable[..., Screen]) -> None:
    show = screen("-T", "tools.py", columns=100)
    show.prompt()
    show.type("work\r")
    show.wait_for("half way 50%")
    for columns in (40, 100, 30, 80):
        show.child.setwinsize(24, columns)
        show.screen.resize(24, columns)
        show.wait_for(lambda text: "work(" in text.splitlines()[-1])
    show.type("\x03")
    show.wait_for("can continue.")
    show.prompt()
    assert len(re.findall(r"^[⠀-⣿] work\(\)", show.text, re.MULTILINE)) == 0, "a line that moved was left on the screen"
    show.type("hello there, this is a text")
    show.wait_for("> hello there")
    show.child.setwinsize(24, 50)
    show.screen.resize(24, 50)
    show.type(" that is longer")
    show.wait_for("longer")
    show.type("\r")
    show.wait_for("You said hello there, this is a text that is")
    show.prompt()
    show.type("\x04")
    assert show.end() == 0
    show.assert_as_before()


def test_files_are_attached_with_an_at_sign_and_secrets_are_asked_about(
    screen: Callable[..., Screen], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "pic.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    (tmp_path / ".env").write_text("KEY=1")
    show = screen()
    show.prompt()
    show.type("media of @pic.png and mail me@x.org\r")
    show.wait_for("attached: pic.png")
    show.wait_for("image/png")
    show.prompt()
    show.type("count @gone.txt\r")
    show.wait_for("There is no file 'gone.txt' here, so it is sent as text.")
    show.prompt()
    show.type("say @nobody\r")
    show.wait_for("There is no file 'nobody' here, so it is sent as text.")
    show.wait_for("You said say @nobody")
    show.prompt()
    for keys, came in (("\r", "you did not say yes"), ("y\r", "attached: .env")):
        show.type("tell @.env\r")
        show.wait_for(lambda text: text.endswith("(Enter: no)"))
        show.type(keys)
        show.wait_for(came)
        show.prompt()
    show.type("\x04")
    assert show.end() == 0
    show.assert_as_before()


# --- asking --------------------------------------------------------------------------------------------------------------


def test_a_call_is_approved_and_keys_typed_early_are_no_answer(screen: Callable[..., Screen]) -> None:
    show = screen("-T", "tools.py:wipe")
    show.prompt()
    show.type("wipe it\ry\ry\r")
    show.wait_for("(Enter: no)")
    show.type("\r")
    show.wait_for("did not allow")
    show.prompt()
    assert "You said y" not in show.text
    show.type("wipe again\r")
    show.wait_for(lambda text: text.endswith("(Enter: no)"))
    show.type("y\r")
    show.wait_for("It said: {'result': 'wiped a.txt'}")
    show.prompt()
    show.type("\x04")
    assert show.end() == 0
    show.assert_as_before()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_an_answer_is_chosen_with_the_arrow_keys(screen: Callable[..., Screen], columns: int) -> None:
    show = screen("-T", "tools.py:wipe", columns=columns)
    show.prompt()
    show.type("wipe it\r")
    show.wait_for(lambda text: text.endswith("(Enter: no)"))
    show.type("\x1b[B\x1b[C")
    show.wait_for("[no]")
    show.type("\x1b[A")
    show.wait_for("[yes]  no   always   edit   later   Enter takes it")
    show.type("\r")
    show.wait_for("It said: {'result': 'wiped a.txt'}")
    show.prompt()
    show.type("wipe again\r")
    show.wait_for(lambda text: text.endswith("(Enter: no)"))
    show.type("\x1b[Bn")  # A letter counts more than what was chosen before it.
    show.wait_for("Your answer (Enter: no): n")
    show.type("\x7f\r")
    show.wait_for("did not allow")
    show.prompt()
    show.type("\x04")
    assert show.end() == 0
    show.assert_as_before()


def test_arguments_are_changed_in_place_where_no_editor_is_named(screen: Callable[..., Screen]) -> None:
    show = screen("-T", "tools.py:wipe", EDITOR="", VISUAL="")
    show.prompt()
    show.type("wipe it\r")
    show.wait_for(lambda text: text.endswith("(Enter: no)"))
    show.type("e\r")
    show.wait_for(lambda text: text.endswith('  {"path": "a.txt"}'))
    show.type("\x7f" * 5 + 'md"}\r')
    show.wait_for("It said: {'result': 'wiped a.md'")
    show.prompt()
    show.type("wipe it\r")
    show.wait_for(lambda text: text.endswith("(Enter: no)"))
    show.type("e\r")
    show.wait_for(lambda text: text.endswith('  {"path": "a.txt"}'))
    show.type("\x03")
    show.wait_for(lambda text: text.endswith("(Enter: no)"))
    show.type("n\r")
    show.wait_for("did not allow")
    show.prompt()
    show.type("\x04")
    assert show.end() == 0
    show.assert_as_before()


def test_an_editor_that_fails_is_named(screen: Callable[..., Screen]) -> None:
    show = screen("-T", "tools.py:wipe", EDITOR="false", VISUAL="")
    begin_question(show)
    show.type("e\r")
    show.wait_for("Not used: the editor 'false' ended with exit code 1")
    show.wait_for(lambda text: text.endswith("(Enter: no)"))
    show.type("n\r")
    show.prompt()
    show.type("/exit\r")
    assert show.end() == 0


def test_later_pauses_the_run_and_it_is_taken_up_here_and_elsewhere(screen: Callable[..., Screen]) -> None:
    show = screen("-T", "tools.py:wipe")
    show.prompt()
    show.type("wipe it\r")
    show.wait_for("(Enter: no)")
    show.type("l\r")
    show.wait_for("The run waits for an answer about a call.")
    show.wait_for("/approve asks again")
    show.prompt()
    show.type("/approve\r")
    show.wait_for(lambda text: text.endswith("(Enter: no)"))
    show.type("later\r")
    show.wait_for(lambda text: text.count("will come later") == 2)
    show.prompt()
    show.type("\x04")
    assert show.end() == 0
    show.assert_as_before()
    again = screen("-T", "tools.py:wipe", "-c")
    again.wait_for("Resumed: wipe it (1 exchange)")
    again.wait_for("> wipe it")
    again.wait_for('? wipe(path="a.txt")')
    again.wait_for("(Enter: no)")
    again.type("y\r")
    again.wait_for("It said: {'result': 'wiped a.txt'}")
    again.prompt()
    again.type("/exit\r")
    assert again.end() == 0
    again.assert_as_before()


# --- leaving -------------------------------------------------------------------------------------------------------------


def begin_nothing(show: Screen) -> None:
    show.prompt()


def begin_typing(show: Screen) -> None:
    show.prompt()
    show.type("half a line")
    show.wait_for(lambda text: text.endswith("> half a line"))


def begin_stream(show: Screen) -> None:
    show.prompt()
    show.type("story\r")
    show.wait_for(lambda text: "Once upon a" in text.rpartition("> story")[2])


def begin_call(show: Screen) -> None:
    show.prompt()
    show.type("work\r")
    show.wait_for(lambda text: text.endswith("half way 50%"))


def begin_question(show: Screen) -> None:
    show.prompt()
    show.type("wipe it\r")
    show.wait_for(lambda text: text.endswith("(Enter: no)"))


STAGES = [begin_nothing, begin_typing, begin_stream, begin_call, begin_question]


def test_ctrl_c_at_every_stage_goes_back_to_the_prompt_and_twice_leaves(screen: Callable[..., Screen]) -> None:
    show = screen("-T", "tools.py", "-T", "tools.py:wipe")
    for number, begin in enumerate(STAGES):
        begin(show)
        show.type("\x03")
        ends = {begin_nothing: "Ctrl-C again leaves.\n\n>", begin_typing: "\n\n>"}  # A line with text is emptied.
        came = ends.get(begin, "can continue.\n\n>")
        show.wait_for(lambda text, came=came: text.endswith(came))
        show.type(f"still there {number}?\r")
        show.wait_for(f"You said still there {number}?")
        show.prompt()
    show.type("\x03")
    show.wait_for(lambda text: text.endswith("Ctrl-C again leaves.\n\n>"))
    show.type("\x03")
    assert show.end() == 0
    show.assert_as_before()
    assert "wiped" not in show.text


def test_a_cancelled_message_is_sent_again(screen: Callable[..., Screen]) -> None:
    show = screen("-T", "tools.py")
    begin_call(show)
    show.type("\x03")
    show.wait_for("can continue.")
    show.prompt()
    show.type("/retry\r")
    show.wait_for(lambda text: text.endswith("half way 50%") and "/retry" in text)
    show.type("\x03")
    show.wait_for(lambda text: text.count("can continue.") == 2)
    assert "was answered" not in show.text
    show.prompt()
    show.type("/exit\r")
    assert show.end() == 0


@pytest.mark.parametrize("begin", STAGES)
def test_sigterm_at_every_stage_ends_it_with_143_and_a_terminal_in_order(
    screen: Callable[..., Screen], begin: Callable[[Screen], None]
) -> None:
    show = screen("-T", "tools.py", "-T", "tools.py:wipe")
    begin(show)
    show.child.kill(signal.SIGTERM)
    assert show.end() == 143
    show.assert_as_before()
    assert "wiped" not in show.text


def test_a_signal_instead_of_the_key_is_ctrl_c_too(screen: Callable[..., Screen]) -> None:
    show = screen()
    begin_typing(show)
    show.child.kill(signal.SIGINT)
    show.prompt()
    show.child.kill(signal.SIGINT)
    show.wait_for("Ctrl-C again leaves.")
    show.prompt()
    show.child.kill(signal.SIGINT)
    assert show.end() == 0
    show.assert_as_before()


def test_a_tool_that_holds_up_everything_is_left_by_a_second_ctrl_c(screen: Callable[..., Screen], tmp_path: Path) -> None:
    hangs = "import time\nfrom callgate import tool\n\n@tool(run_in='loop')\ndef work() -> str:\n    time.sleep(600)\n"
    (tmp_path / "tools.py").write_text(hangs)
    show = screen("-T", "tools.py")
    show.prompt()
    show.type("work\r")
    show.wait_for("work()")
    show.type("\x03")
    again = time.monotonic() + 3  # clock: two keys at the same time are one signal, later is as good
    while show.read() and time.monotonic() < again:
        pass
    show.type("\x03")
    assert show.end() == 130
    show.assert_as_before()


# --- commands ------------------------------------------------------------------------------------------------------------


def test_commands_do_their_work_in_a_real_terminal_too(screen: Callable[..., Screen], tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}}}))
    show = screen("-T", "tools.py:wipe", "--mcp", "servers.json", rows=60, columns=120)
    show.prompt()
    for line, came in (
        ("/help", "/compact"),
        ("/mcp", "✗ gone  there is no program 'no-such-program'"),
        ("/mode native", "in the mode native"),
        ("/approve yolo", "The approval mode is now yolo."),
        ("wipe it", "It said: {'result': 'wiped a.txt'}"),
        ("/call", "call 1: wipe, finished"),
        ("second words", "You said second words"),
        ("/compact", "contents were summarized."),
        ("/undo", "removed: second words"),
        ("/clear", "A new conversation begins. The one before is stored: /load chat-"),
        ("/load nothing-like-it", "there is no session 'nothing-like-it'"),
    ):
        show.type(f"{line}\r")
        show.wait_for(lambda text, came=came, line=line: came in text.rpartition(f"> {line}\n")[2])
        show.prompt()
    show.type("/quit\r")
    assert show.end() == 0
    show.assert_as_before()
