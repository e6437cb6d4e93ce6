"""The line on which an approval is answered: typed as a word, or chosen with the arrow keys and taken with Enter.

Keys come in, the answer goes out. Only keys typed after the question was drawn are read. Without a terminal whose keys can
be read one by one, a whole line is read instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Sequence

from callgate.cli.live import clipped

__all__ = ["AnswerLine", "read_keys", "read_line"]

_KEY = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|[\xc2-\xf4][\x80-\xbf]+|[\x00-\xff]")
_STEPS = {b"\x1b[A": -1, b"\x1b[D": -1, b"\x1b[B": 1, b"\x1b[C": 1, b"\x1bOA": -1, b"\x1bOD": -1, b"\x1bOB": 1, b"\x1bOC": 1}
_UNFINISHED = re.compile(rb"(?:\x1b(?:\[[0-9;]*|O)?|[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z")
"""A key whose last bytes have not been read yet."""
_ENDS = (b"\r", b"\n", b"\x04")
_RUBOUT = (b"\x7f", b"\x08")
_CTRL_U = b"\x15"
TYPED_MAX = 200


class AnswerLine:
    """Line of input, key by key until Enter.

    `write` puts text on the screen at the cursor, which is in the last row of the question.
    """

    def __init__(self, choices: Sequence[str], write: Callable[[str], None]) -> None:
        self._choices = choices
        self._chosen: int | None = None
        """The choice that the arrow keys have reached; None if they were not used, or something was typed since."""
        self._write = write
        self._typed = ""
        self._rest = b""

    def press(self, data: bytes) -> str | None:
        """Take keys in; return the answer once Enter was pressed, None before."""
        data, self._rest = self._rest + data, b""
        if (cut := _UNFINISHED.search(data)) is not None:
            data, self._rest = data[: cut.start()], cut[0]
        for key in _KEY.findall(data):
            if key in _ENDS:
                self._write("\n")
                return self._typed if self._chosen is None else self._choices[self._chosen]
            self._take(key)
        return None

    def _take(self, key: bytes) -> None:
        if key in _STEPS:
            # The first press goes to the first choice in that direction.
            first = -1 if _STEPS[key] > 0 else len(self._choices)
            self._chosen = ((first if self._chosen is None else self._chosen) + _STEPS[key]) % len(self._choices)
            self._typed = ""
            self._redraw()
        elif key in _RUBOUT or key == _CTRL_U:
            self._chosen, self._typed = None, "" if key == _CTRL_U else self._typed[:-1]
            self._redraw()
        elif (text := key.decode("utf-8", "replace")).isprintable() and len(self._typed) < TYPED_MAX:
            was_chosen, self._chosen = self._chosen is not None, None  # A word that is typed is the answer.
            self._typed += text
            self._redraw() if was_chosen else self._write(text)

    def _redraw(self) -> None:
        """Draw the last row anew."""
        row = f"  Your answer (Enter: no): {self._typed}"
        if self._chosen is not None:
            marked = [f"[{word}]" if at == self._chosen else f" {word} " for at, word in enumerate(self._choices)]
            row = f"  {' '.join(marked)}  Enter takes it "
        columns = max(20, shutil.get_terminal_size().columns - 1)
        self._write(f"\r\x1b[2K{clipped(row, columns, cut='')}")


@contextlib.contextmanager
def _keys() -> Generator[None]:
    """Read keys one by one, without echo; Ctrl-C still interrupts."""
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    changed = [*before]
    changed[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


async def read_keys(line: AnswerLine) -> str:
    """Read keys until an answer is given; other calls continue meanwhile, and Ctrl-C ends the wait."""
    with _keys():
        while True:
            if (answer := line.press(await _bytes())) is not None:
                return answer


async def read_line() -> str:
    """Read one line from the terminal; other calls continue meanwhile, and Ctrl-C ends the wait."""
    try:
        return (await _bytes()).decode(errors="replace")
    except NotImplementedError:  # Windows, where a console cannot be waited for.
        return input()  # noqa: ASYNC250


async def _bytes() -> bytes:
    loop = asyncio.get_running_loop()
    data: asyncio.Future[bytes] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if not data.done():
            data.set_result(os.read(descriptor, 65_536))

    loop.add_reader(descriptor, read)
    try:
        return await data
    finally:
        loop.remove_reader(descriptor)
