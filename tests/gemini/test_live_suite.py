"""The tests for the real API work: they are run here, in a process of their own, against the fake server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from callgate.testing.fake_gemini import FakeGemini

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "tests" / "live" / "test_live.py"


def run_suite(**environ: str) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "GEMINI_", "COV", "PYTEST_"))
    }
    command = [sys.executable, "-m", "pytest", "-m", "live", "-p", "no:cacheprovider", str(SUITE)]
    return subprocess.run(command, cwd=ROOT, env=clean | environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_the_live_tests_pass_against_the_fake_server() -> None:
    # Without a script the fake calls every tool once with example arguments, and echoes text.
    with FakeGemini.in_thread(api_key="a-key") as fake:
        done = run_suite(CALLGATE_LIVE="1", GEMINI_API_KEY="a-key", GOOGLE_GEMINI_BASE_URL=fake.base_url)
        asked = [seen.model for seen in fake.requests]
    written = SUITE.read_text("utf-8").count("\ndef test_")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"\b{written} passed", done.stdout), done.stdout
    assert len(asked) >= 2 * written - 1
    assert set(asked) == {"gemini-flash-latest"}


@pytest.mark.slow
def test_the_live_tests_are_skipped_with_a_reason_where_there_is_no_key() -> None:
    done = run_suite(CALLGATE_LIVE="1")
    assert "passed" not in done.stdout
    assert "no key for Gemini: set GEMINI_API_KEY" in done.stdout


@pytest.mark.slow
def test_the_live_tests_are_skipped_unless_they_are_asked_for() -> None:
    done = run_suite(GEMINI_API_KEY="a-key")
    assert "passed" not in done.stdout
    assert "skipped" in done.stdout
