"""A conversation in a real pseudo-terminal, as rows of a screen: python scripts/terminal_story.py

Writes tests/cli/golden/story-*.txt, which tests compare, and docs/img/terminal-*.svg, which people look at.

`callgate chat` runs as a process of its own, with a fake Gemini server on this machine in place of Google's. A person asks,
the model calls tools and answers with a table and code, a write is approved, the conversation is left and resumed.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pexpect
import pyte

from callgate.testing.fake_gemini import FakeGemini, call, calls

PATIENCE_S = 120
COLUMNS = (60, 80, 120)
ROWS = 40
NOTES = "# Notes\n\n- buy bread\n- call Ada\n"
NEW_NOTES = "# Notes\n\n- buy bread and butter\n- call Ada\n- book the train to Graz\n"
TOOLS = '''
from callgate import ToolError, tool


@tool(read_only=True, sequential=True)
def get_weather(city: str) -> dict:
    """Get the current weather in a city."""
    if city == "Atlantis":
        raise ToolError("there is no city of that name")
    return {"city": city, "celsius": -3, "sky": "snow", "wind": "from the north, up to 40 kilometres an hour in the evening"}
'''
ANSWER = """It snows in **Oslo**; nobody knows about *Atlantis*.

| City | Temperature | What to wear |
|:-----|------:|:-----|
| Oslo | -3 | a coat, gloves, and shoes that do not mind the snow on the pavements |
| Atlantis | ? | a swimsuit |

```python
for city in ("Oslo", "Rome"):
    print(get_weather(city))  # one after another
```

- [x] looked at the weather
- [ ] packed, see [the list](https://example.org/list)
"""
SCRIPT = [
    calls(("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Atlantis"})),
    ANSWER,
    call("write_file", path="notes.md", content=NEW_NOTES),
    "I added the train to Graz to your notes, and butter to the bread.",
]

Row = list[Any]
"""The characters of a row, as pyte has them: data, fg, bold ..."""

_TIME = re.compile(r"\d+(?:\.\d+)? m?s$")
_ID = re.compile(r"\b[0-9a-f]{12}\b")
_CLIPPED = re.compile(r'(content="# Notes).*…\)')
"""An argument that is cut where the time begins."""


class Terminal:
    """One command in a terminal of its own."""

    def __init__(self, folder: Path, env: dict[str, str], columns: int, *words: str) -> None:
        self._screen = pyte.HistoryScreen(columns, ROWS, history=2_000)
        self._stream = pyte.Stream(self._screen)
        self._child = pexpect.spawn(
            sys.executable, ["-m", "callgate", "chat", *words], cwd=str(folder), env=env, dimensions=(ROWS, columns),
            encoding="utf-8", codec_errors="replace", timeout=PATIENCE_S,
        )  # fmt: skip
        self._child.delaybeforesend = None

    def wait_for(self, pattern: str) -> None:
        """Read until the last lines of the screen match."""
        end = re.compile(pattern, re.MULTILINE)
        while not end.search("\n".join(row.rstrip() for row in self._screen.display)):
            if self._child.expect([r"[\s\S]+", pexpect.TIMEOUT, pexpect.EOF]):
                raise SystemExit(f"terminal_story: {pattern} did not come:\n" + "\n".join(self._screen.display))
            self._stream.feed(self._child.after)

    def say(self, text: str) -> None:
        """Type a line at the prompt, once it is there."""
        self.wait_for(r"^>\s*$[\s\S]*^gemini-")
        self._child.send(f"{text}\r")

    def answer(self, key: str) -> None:
        """Answer a question, once it is there."""
        self.wait_for(r"\by\b.*es\b[\s\S]*\Z")
        self._child.send(f"{key}\r")

    def rows(self) -> list[Row]:
        """All that is on the screen and above it, after the end of the command."""
        self._child.expect(pexpect.EOF)
        self._stream.feed(self._child.before)
        self._child.close()
        wide = self._screen.columns
        lines = [*self._screen.history.top, *(self._screen.buffer[number] for number in range(ROWS))]
        found = [[line[column] for column in range(wide)] for line in lines]
        while found and not _text(found[-1]):
            found.pop()
        return found


def story(columns: int, **more: str) -> list[Row]:
    """The rows of the whole story in a terminal of this width."""
    with tempfile.TemporaryDirectory() as name, FakeGemini.in_thread(SCRIPT) as fake:
        home = Path(name)
        (home / "notes").mkdir()
        (home / "notes/notes.md").write_text(NOTES, "utf-8")
        (home / "tools.py").write_text(TOOLS, "utf-8")
        env = {"PATH": os.environ["PATH"], "HOME": name, "LANG": "C.UTF-8", "TERM": "xterm-256color", "PYTHONUTF8": "1"}
        env |= {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url, "PROMPT_TOOLKIT_NO_CPR": "1", **more}
        words = ("-m", "gemini-3.8-flash", "--root", "notes", "-T", "tools.py")
        first = Terminal(home, env, columns, *words)
        first.say("How is the weather in Oslo and in Atlantis, and what shall I wear there?")
        first.say("Put the train to Graz on my notes, and butter with the bread.")
        first.answer("y")
        first.say("/exit")
        rows = first.rows()
        second = Terminal(home, env, columns, "-c", *words)
        second.say("/exit")
        return [*rows, [], *second.rows()]


def text_of(rows: list[Row]) -> str:
    """The rows as text, without what differs from run to run."""
    lines = (_CLIPPED.sub(r"\1…)", _ID.sub("(id)", _TIME.sub("(time)", _text(row)))) for row in rows)
    return "\n".join(lines) + "\n"


def _text(row: Row) -> str:
    return "".join(char.data for char in row).rstrip()


def picture_of(rows: list[Row], columns: int) -> str:
    """The rows as an SVG."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=columns, file=open(os.devnull, "w"), color_system="truecolor", force_terminal=True)  # noqa: SIM115
    for row in rows:
        line = Text()
        for char in row:
            line.append(char.data, style=_style_of(char))
        line.rstrip()
        console.print(line, soft_wrap=True)
    return console.export_svg(title=f"callgate chat, {columns} columns", unique_id=f"terminal-{columns}")


def _style_of(char: Any) -> str:
    color = {"brown": "yellow", "brightblack": "bright_black", "default": ""}.get(char.fg, char.fg)
    color = f"#{color}" if re.fullmatch("[0-9a-f]{6}", color) else color
    return " ".join(filter(None, [color, "bold" if char.bold else "", "italic" if char.italics else ""]))


def main() -> int:
    """Write the screens and their pictures."""
    root = Path(__file__).resolve().parent.parent
    for columns in COLUMNS:
        rows = story(columns)
        (root / f"tests/cli/golden/story-{columns}.txt").write_text(text_of(rows), "utf-8")
        (root / f"docs/img/terminal-{columns}.svg").write_text(picture_of(rows, columns), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
