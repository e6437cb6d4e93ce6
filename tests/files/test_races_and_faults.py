"""Swaps before every file event, faults at every step, kills at any moment: each in a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# In memory where that is possible: these programs write thousands of times, and flushing to a disk proves nothing here.
SHM = Path("/dev/shm")

Run = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(script: str, *words: object) -> list[str]:
        folder = SHM if SHM.is_dir() and os.access(SHM, os.W_OK) else tmp_path
        done = subprocess.run(
            [sys.executable, str(HERE / script), *map(str, words)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env=os.environ | {"TMPDIR": str(folder)},
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return json.loads(done.stdout)

    return run


def test_no_swap_before_any_file_event_leads_out_of_the_root(run: Run, back_end: str, needs_back_end) -> None:
    needs_back_end(back_end)
    assert run("races.py", back_end) == []


def test_the_same_swaps_lead_the_usual_way_out_of_the_root(run: Run) -> None:
    found = run("races.py", "naive")
    for call in ("read", "overwrite", "append", "create", "edit", "list", "search"):
        assert any(line.startswith(f"{call},") for line in found), call


@pytest.mark.slow
def test_a_storm_of_swaps_leads_nowhere(run: Run, back_end: str, needs_back_end, scale: int) -> None:
    needs_back_end(back_end)
    assert run("races.py", back_end, 4 * scale) == []


def test_a_write_that_fails_at_any_step_leaves_the_old_file_and_nothing_else(
    run: Run, back_end: str, needs_back_end
) -> None:
    needs_back_end(back_end)
    assert run("faults.py", back_end, "errors") == []


@pytest.mark.slow
def test_a_crash_at_any_step_leaves_the_old_file_or_the_new_one(run: Run, back_end: str, needs_back_end) -> None:
    needs_back_end(back_end)
    assert run("faults.py", back_end, "crashes") == []


@pytest.mark.slow
def test_a_hundred_kills_tear_no_file_and_lose_no_backup(run: Run, back_end: str, needs_back_end, scale: int) -> None:
    needs_back_end(back_end)
    seed = 7 if scale == 1 else int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    assert run("faults.py", back_end, "kills", 100 * scale, seed) == []
