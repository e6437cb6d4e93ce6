"""BFCL's executable multi-turn cases: its ground truth through a gate, its programs as tools, its checker as the judge."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
FOLDER = Path(__file__).resolve().parents[2] / ".venv" / "bfcl"
PROGRAM = Path(__file__).parent / "bfcl_program.py"
CASES = 200

pytestmark = [pytest.mark.slow, pytest.mark.judge("BFCL multi-turn")]


def played(folder: Path, cases: list[int], *, kills: int) -> list[dict[str, Any]]:
    """The verdicts of BFCL's checker."""
    if not FOLDER.exists():
        pytest.skip("BFCL is not installed (python scripts/judge_packages.py); this was not tested")
    words = [str(FOLDER), str(folder), "1", str(kills), *map(str, cases)]
    done = subprocess.run([sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("cases", "kills"),
    [
        pytest.param(random.Random(5).sample(range(CASES), min(50 * SCALE, CASES)), 0, id="as they come"),
        pytest.param(random.Random(7).sample(range(CASES), min(16 * SCALE, CASES)), 4, id="killed and resumed"),
    ],
)
def test_the_end_states_are_those_of_the_ground_truth(
    tmp_path: Path, record_property: Callable[[str, object], None], cases: list[int], kills: int
) -> None:
    verdicts = played(tmp_path, cases, kills=kills)
    record_property("judged", [sum(verdict["valid"] for verdict in verdicts), len(verdicts)])
    assert [verdict for verdict in verdicts if not verdict["valid"]] == []
    assert len(verdicts) == len(cases)
    assert kills == 0 or sum(verdict["lives"] - 1 for verdict in verdicts) > len(verdicts)
