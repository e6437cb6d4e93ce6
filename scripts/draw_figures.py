"""Draws the pictures of the docs: python scripts/draw_figures.py [--check]

What a picture shows is taken from callgate as far as it can be: the states of a call from its types, the journal from a run,
the refusals of the sandbox from asking it. `--check` writes nothing and ends with 1 if a picture is out of date.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import get_args

from callgate import FileTools, Gate, ScriptedModel, types
from callgate.machine import facts
from callgate.store import MemoryStore
from callgate.testing import call, text

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
INK, SOFT, PAPER = "#1f2933", "#52606d", "#ffffff"
COLOURS = {"plain": "#e6eef8", "good": "#dcf2e3", "bad": "#fbe3e1", "wait": "#fdf2cf", "dark": "#cfd9e6"}


class Picture:
    """Boxes, arrows and words on a sheet of paper."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size, self._title = (width, height), title
        self._shapes: list[str] = []

    def box(self, x: int, y: int, w: int, h: int, *lines: str, tone: str = "plain") -> None:
        """A rounded box with lines of text, the first of them bold."""
        self._shapes.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" fill="{COLOURS[tone]}" stroke="{SOFT}"/>'
        )
        top = y + h / 2 - 9 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.words(x + w // 2, round(top + 18 * number + 5), line, bold=number == 0, small=number > 0)

    def words(self, x: int, y: int, line: str, *, bold: bool = False, small: bool = False, anchor: str = "middle") -> None:
        """One line of text."""
        weight = ' font-weight="600"' if bold else ""
        self._shapes.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{13 if small else 14}" '
            f'fill="{SOFT if small else INK}"{weight}>{escape(line)}</text>'
        )

    def arrow(self, *points: tuple[int, int], label: str = "", dashed: bool = False) -> None:
        """A line through the points with a head at its end; a label stands over the middle of its first leg."""
        path = " ".join(f"{x},{y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{SOFT}" stroke-width="1.6" marker-end="url(#head)"{dash}/>'
        )
        if label:
            (x1, y1), (x2, y2) = points[0], points[1]
            self.words((x1 + x2) // 2, (y1 + y2) // 2 - 7, label, small=True)

    def svg(self) -> str:
        """The picture as a file."""
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{escape(self._title)}" font-family="system-ui, -apple-system, Segoe UI, sans-serif">'
            f"<title>{escape(self._title)}</title>"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="{SOFT}"/></marker></defs>'
            f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>'
        )
        return "\n".join([head, *self._shapes, "</svg>"]) + "\n"


def life_of_a_call() -> Picture:
    """Every state that a call can be in."""
    places = {
        "proposed": (20, 120, "plain"), "checked": (160, 120, "plain"), "awaiting": (300, 30, "wait"),
        "allowed": (440, 120, "plain"), "denied": (440, 210, "bad"), "started": (580, 120, "plain"),
        "finished": (740, 20, "good"), "failed": (740, 80, "bad"), "timed_out": (740, 140, "bad"),
        "cancelled": (740, 200, "bad"), "unknown": (740, 260, "wait"),
    }  # fmt: skip
    missing = set(get_args(types.CallState)) ^ set(places)
    assert not missing, f"the picture and CallState differ in {missing}"
    picture = Picture(880, 330, "The life of a call")
    for state, (x, y, tone) in places.items():
        picture.box(x, y, 110, 42, state, tone=tone)
    picture.arrow((130, 141), (158, 141))
    picture.arrow((270, 141), (438, 141))
    picture.words(325, 134, "a rule allows", small=True)
    picture.arrow((215, 120), (215, 51), (298, 51))
    picture.words(210, 90, "a rule asks", small=True, anchor="end")
    picture.arrow((410, 51), (495, 51), (495, 118), label="yes")
    picture.arrow((215, 162), (215, 231), (438, 231))
    picture.words(330, 223, "a rule denies, nobody to ask", small=True)
    picture.arrow((390, 72), (390, 186), (495, 186), (495, 208))
    picture.words(397, 104, "no", small=True, anchor="start")
    picture.arrow((550, 141), (578, 141))
    for state in ("finished", "failed", "timed_out", "cancelled", "unknown"):
        y = places[state][1] + 21
        picture.arrow((690, 141), (714, 141), (714, y), (738, y))
    picture.arrow((75, 162), (75, 300), (700, 300), (700, 118), (738, 108), dashed=True)
    picture.words(380, 293, "invalid arguments or an unknown tool: an error for the model, nothing runs", small=True)
    return picture


def the_loop() -> Picture:
    """Facts in, commands out."""
    named = ("AskModel", "ModelAnswered", "CallChecked", "CallDecided", "CallStarted", "CallEnded")
    known = [name for name in named if hasattr(facts, name)]
    picture = Picture(880, 330, "The loop: facts in, commands out")
    picture.box(330, 110, 220, 100, "machine/", "a state machine:", "no I/O, no clock, no randomness", tone="dark")
    picture.box(330, 20, 220, 46, "journal", "each fact, before it is acted on")
    picture.box(20, 110, 180, 100, "run/run.py", "executes commands,", "returns facts")
    picture.box(680, 30, 180, 46, "model")
    picture.box(680, 100, 180, 46, "check and policy")
    picture.box(680, 170, 180, 46, "approval")
    picture.box(680, 240, 180, 46, "tools")
    picture.arrow((200, 140), (328, 140), label="facts")
    picture.arrow((330, 180), (202, 180), label="commands")
    picture.arrow((110, 110), (110, 43), (328, 43))
    picture.arrow((110, 210), (110, 300), (620, 300), (620, 263), (678, 263))
    for y in (53, 123, 193):
        picture.arrow((620, 263), (620, y), (678, y))
    picture.words(365, 292, "all side effects happen here: requests, checks, decisions, calls", small=True)
    picture.words(440, 235, "facts: " + ", ".join(known[1:4]), small=True)
    picture.words(440, 253, ", ".join(known[4:]) + ", ...", small=True)
    return picture


def the_twins() -> Picture:
    """Native and prompted calling meet in the same events."""
    picture = Picture(880, 300, "Native and prompted calling")
    picture.box(20, 115, 150, 70, "your tools", "ToolDefinition")
    picture.box(230, 30, 190, 80, "declaration", "functionDeclarations", "for models with tools")
    picture.box(230, 190, 190, 80, "text in the prompt", "TOOL_CALL: name({...})", "for models without")
    picture.box(470, 30, 150, 80, "response reader", "byte by byte")
    picture.box(470, 190, 150, 80, "call parser", "piece by piece")
    picture.box(680, 115, 180, 70, "the same events", "calls, results, history", tone="good")
    picture.arrow((170, 140), (200, 140), (200, 70), (228, 70))
    picture.arrow((170, 160), (200, 160), (200, 230), (228, 230))
    picture.arrow((420, 70), (468, 70))
    picture.arrow((420, 230), (468, 230))
    picture.arrow((620, 70), (650, 70), (650, 140), (678, 140))
    picture.arrow((620, 230), (650, 230), (650, 160), (678, 160))
    picture.words(545, 155, "a conversation may switch", small=True)
    return picture


def the_journal() -> Picture:
    """What is written down in a run with one call, taken from such a run."""

    def lookup(key: str) -> str:
        """Looks something up."""
        return "found"

    async def written() -> list[str]:
        store = MemoryStore()
        gate = Gate(ScriptedModel([call("lookup", key="a"), text("Done.")]), tools=[lookup], store=store)
        reply = await gate.run("Go.", session="story")
        return [type(fact).__name__ for fact in await store.load(reply.session)]

    names = asyncio.run(written())
    rows = (len(names) + 3) // 4
    picture = Picture(880, 90 + 74 * rows, "The journal of a run with one call")
    picture.words(20, 30, "What the journal holds after a run with one call, in order", bold=True, anchor="start")
    risky = {"CallStarted", "CallsStarted"}
    for number, name in enumerate(names):
        row, column = divmod(number, 4)
        x, y = 20 + 215 * column, 50 + 74 * row
        picture.box(x, y, 190, 48, f"{number + 1}  {name}", tone="wait" if name in risky else "plain")
        if number + 1 < len(names) and column < 3:
            picture.arrow((x + 190, y + 24), (x + 213, y + 24))
    picture.words(
        20,
        70 + 74 * rows,
        "kill -9 after a start: a read-only or idempotent call is run again, any other is reported as unknown",
        small=True,
        anchor="start",
    )
    return picture


def the_sandbox() -> Picture:
    """Ways out of a folder, and what the file tools say; they are asked while this is drawn."""
    with (
        tempfile.TemporaryDirectory() as outside,
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as state,
    ):
        Path(folder, "notes.txt").write_text("hello\n")
        Path(outside, "secret.txt").write_text("secret\n")
        Path(folder, "link.txt").symlink_to(Path(outside, "secret.txt"))
        files = FileTools(folder, state_dir=state)
        tried = [
            (path, files.call_sync("read_file", {"path": path}).is_error)
            for path in ("notes.txt", "../secret.txt", "/etc/hostname", "~/secret.txt", "link.txt", "sub/../../secret.txt")
        ]
    picture = Picture(880, 80 + 46 * len(tried), "The file sandbox: requested paths and outcomes")
    picture.box(20, 50, 190, 46 * len(tried), "root", "opened once,", "as a descriptor", tone="dark")
    picture.words(350, 32, "read_file(path=...)", bold=True)
    for number, (path, refused) in enumerate(tried):
        y = 50 + 46 * number
        picture.box(260, y, 190, 36, path)
        picture.arrow((450, y + 18), (538, y + 18))
        picture.box(
            540, y, 320, 36, "refused before anything is opened" if refused else "read", tone="bad" if refused else "good"
        )
    picture.words(440, 66 + 46 * len(tried), "every name is resolved beneath the descriptor: there is no race", small=True)
    return picture


PICTURES = {
    "call.svg": life_of_a_call,
    "loop.svg": the_loop,
    "twins.svg": the_twins,
    "journal.svg": the_journal,
    "sandbox.svg": the_sandbox,
}


def main(arguments: list[str]) -> int:
    """Draws all pictures, or says which are out of date."""
    FIGURES.mkdir(exist_ok=True)
    stale = []
    for name, draw in PICTURES.items():
        drawn, file = draw().svg(), FIGURES / name
        if not file.is_file() or file.read_text("utf-8") != drawn:
            stale.append(name)
            if "--check" not in arguments:
                file.write_text(drawn, "utf-8")
    if stale and "--check" in arguments:
        print(f"out of date: {', '.join(stale)}; run python scripts/draw_figures.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
