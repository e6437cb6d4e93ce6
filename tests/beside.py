"""Work beside a test: in a thread that does not keep the tests from ending, and in a program of its own."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

PROGRAM_S = 60
"""Seconds after which a program hangs."""


def in_thread(work: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """Run something in a thread that does not keep the tests from ending."""
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def program(text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run a program that must end by itself."""
    words = [sys.executable, *flags, "-c", textwrap.dedent(text)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
