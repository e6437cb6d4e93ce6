"""The tests for the real Interactions API work: they are run here, in a process of their own, against the fake server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from callgate.testing.fake_interactions import FakeInteractions

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "tests" / "live" / "test_live_interactions.py"


@pytest.mark.slow
def test_the_live_tests_pass_against_the_fake_server() -> None:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "GEMINI_", "COV", "PYTEST_"))
    }
    with FakeInteractions.in_thread(api_key="a-key") as fake:
        environ = clean | {"CALLGATE_LIVE": "1", "GEMINI_API_KEY": "a-key", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
        command = [sys.executable, "-m", "pytest", "-m", "live", "-p", "no:cacheprovider", str(SUITE)]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert fake.refusals == []
