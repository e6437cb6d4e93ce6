"""Runs the quick tests again and again in random order, on a machine that has other things to do.

    python scripts/stress.py [--rounds 10] [--load 8] [--jobs 2] [words for pytest]

Beside the tests as many busy processes run as --load says, and asyncio is in its debug mode. A test that fails once is a
fault of the test or of the code; each failure is told with the line that repeats its order. Exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that do nothing but compute, until the block ends."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def failures_of(order: str, words: list[str], jobs: int) -> list[str]:
    """Runs the tests once; the names of those that failed."""
    shared = ["-p", "scripts.whole_files", "-n", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder"]
    command = [sys.executable, "-m", "pytest", "-q", *shared, "-p", "scripts.shuffled"]
    process = subprocess.Popen(
        [*command, "-m", "not slow", *words],
        cwd=ROOT,
        env=os.environ | {"CALLGATE_ORDER": order, "PYTHONASYNCIODEBUG": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    failed: list[str] = []
    for line in process.stdout:
        found = re.match(r"(?:FAILED|ERROR) (.*?)(?: - |$)", line)
        if found:
            failed.append(found[1].strip())
            print(f"  {line.rstrip()}", flush=True)
    code = process.wait()
    return failed or ([f"pytest ended with {code}"] if code not in (0, 5) else [])


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the quick tests in random order beside busy processes.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--load", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=2)
    options, words = parser.parse_known_args()
    rounds_failed = 0
    with busy(options.load):
        for number in range(1, options.rounds + 1):
            order = os.environ.get("CALLGATE_ORDER") or f"{random.getrandbits(32):08x}"
            failed = failures_of(order, words, options.jobs)
            rounds_failed += bool(failed)
            print(f"round {number} of {options.rounds}, CALLGATE_ORDER={order}: {len(failed)} failed", flush=True)
    print(f"{rounds_failed} of {options.rounds} rounds had failures")
    return 1 if rounds_failed else 0


if __name__ == "__main__":
    sys.exit(main())
