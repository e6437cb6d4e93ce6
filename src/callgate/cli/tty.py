"""Terminal settings: saved, changed for a while, and always restored.

Without a terminal or termios nothing is changed. Writes nothing to the terminal but the sequences that reset it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Generator
from types import FrameType
from typing import Any, TextIO

__all__ = ["Tty", "ending_signals"]

# Text as it is usually drawn, the cursor shown, pastes unmarked, arrow keys and wrapping as usual.
AS_USUAL = "\x1b[0m\x1b[?25h\x1b[?2004l\x1b[?1l\x1b[?7h"
ENDING_SIGNALS = ("SIGTERM", "SIGHUP")


class Tty:
    """The terminal that keys come from. As a context manager it restores the settings on exit."""

    def __init__(self, keys: TextIO | None = None, screen: TextIO | None = None) -> None:
        self._keys = sys.stdin if keys is None else keys
        self._screen = sys.stderr if screen is None else screen
        self._found = self._settings()

    @property
    def is_there(self) -> bool:
        """True if there is a terminal whose settings can be changed."""
        return self._found is not None

    def __enter__(self) -> Tty:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self.restore(is_cut=kind is not None)

    def restore(self, *, is_cut: bool = False) -> None:
        """Put the settings back as they were found, and the screen into its usual state if it was left in another.

        `is_cut` says that an exception ended what was drawn, perhaps in the middle of a line editor's sequence.
        """
        if self._found is None:
            return
        is_changed = self._settings() != self._found
        if is_changed or (is_cut and self._screen.isatty()):
            # Code that changed them had no chance to reset the screen, either.
            with contextlib.suppress(OSError, ValueError):
                self._screen.write(AS_USUAL)
                self._screen.flush()
        if is_changed:
            self._set(self._found)

    @contextlib.contextmanager
    def quiet(self) -> Generator[None]:
        """Turn echo off and keep typed keys for the next reader; Ctrl-C still works."""
        if self._found is None:
            yield
            return
        import termios

        changed = [*self._found]
        changed[3] &= ~(termios.ECHO | termios.ICANON)
        with self._as(changed):
            yield

    @contextlib.contextmanager
    def cooked(self) -> Generator[None]:
        """Turn echo and line mode on, as the terminal was found."""
        if self._found is None:
            yield
            return
        with self._as(self._found):
            yield

    @contextlib.contextmanager
    def _as(self, wanted: list[Any]) -> Generator[None]:
        before = self._settings()
        self._set(wanted)
        try:
            yield
        finally:
            if before is not None:
                self._set(before)

    def _settings(self) -> list[Any] | None:
        try:
            import termios

            return termios.tcgetattr(self._keys.fileno())
        except (ImportError, OSError, ValueError, AttributeError):
            return None
        except Exception as error:
            if type(error).__name__ != "error":  # termios.error, which is not an OSError.
                raise
            return None

    def _set(self, settings: list[Any]) -> None:
        import termios

        # In the background, asking for this would stop the whole job.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN) if _is_main() else None
        try:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(self._keys.fileno(), termios.TCSANOW, settings)
        finally:
            if before is not None:
                signal.signal(signal.SIGTTOU, before)


def _is_main() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def ending_signals() -> Generator[None]:
    """Make SIGTERM and SIGHUP end the program through its `finally` blocks, with the exit code of a shell."""

    def end(signum: int, frame: FrameType | None) -> None:
        for name in ENDING_SIGNALS:  # A second signal must not interrupt the clean-up.
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        raise SystemExit(128 + signum)

    here = [getattr(signal, name) for name in ENDING_SIGNALS if hasattr(signal, name)]
    # Signals ignored on purpose (nohup) stay ignored.
    before = {number: signal.getsignal(number) for number in here}
    for number in here:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
