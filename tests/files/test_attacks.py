"""The table of attacks against both back ends, as other users, and against what is usually written instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from callgate.files import FileTools

NOBODY = 65534
# Only cases that the usual way cannot get right: if it passed them, they would prove nothing.
NAIVE_MUST_FAIL = {
    "lexical_sibling_with_the_same_prefix",
    "lexical_parent_inside",
    "link_sibling_prefix",
    "link_file_inside",
    "hard_link_is_not_read",
    "hard_link_is_broken_by_a_write",
    "hard_link_cannot_be_laundered_by_appending",
    "special_pipe",
    "special_zero",
    "root_moved_while_running",
    "root_replaced_while_running",
    "read_binary_is_refused",
    "list_patterns_that_explode",
    "list_loop_of_links_ends",
    "write_limit",
    "write_keeps_encodings",
    "write_is_backed_up_to_the_byte",
}


def test_attack(attack_name: str, back_end: str, tmp_path: Path, attack_table, needs_back_end) -> None:
    needs_back_end(back_end)
    attack_table.run_case(attack_name, tmp_path, lambda root, **options: FileTools(root, backend=back_end, **options))


@pytest.mark.slow
def test_all_attacks_as_a_user_without_rights(back_end: str, needs_back_end) -> None:
    needs_back_end(back_end)
    if os.geteuid() != 0:
        pytest.skip("these tests run as a user without rights already")
    command = [sys.executable, str(Path(__file__).with_name("attacks.py")), back_end, "--user", str(NOBODY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"as user {NOBODY}, 0 failed" in done.stdout


# A case that is stopped because it takes too long leaves the folder open that it was reading.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_usual_way_fails_the_attacks_that_it_cannot_stop(tmp_path: Path, attack_table, naive, monkeypatch) -> None:
    monkeypatch.setattr(attack_table, "CASE_S_MAX", 2.0)
    passed = []
    for name in sorted(NAIVE_MUST_FAIL):
        base = tmp_path / name
        base.mkdir()
        try:
            attack_table.run_case(name, base, naive)
        except (Exception, attack_table.TooLong):
            continue
        passed.append(name)
    assert passed == []
