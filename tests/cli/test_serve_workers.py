"""The processes of `serve --workers`, as their parent sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from callgate.cli import serve_workers


def test_a_process_that_had_died_before_does_not_make_an_ordered_end_a_failure() -> None:
    worker = serve_workers._Worker(0)
    worker.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker.process.kill()
    os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)  # dead, and its parent has not looked yet
    try:
        assert serve_workers._stop([worker], 0) == 0
        assert worker.process.returncode == -signal.SIGKILL
    finally:
        worker.process.communicate()
