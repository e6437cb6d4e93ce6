"""`callgate audit` as a shell sees it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from callgate.cli import main
from callgate.permission import AuditLog


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    written = AuditLog(path, clock=lambda: 1_000_000_000.0)
    start = {"kind": "start", "session": "s", "call": "c1", "tool": "t\x1b[2J", "server": "web", "args": {"a": "\u202e"}}
    written.write([start | {"decision": {"verdict": "allow", "by": "user", "reason": ""}}])
    written.write(
        [
            {
                "kind": "end",
                "session": "s",
                "call": "c1",
                "tool": "t\x1b[2J",
                "outcome": "failed",
                "duration_s": 0.5,
                "error": "no",
            }
        ]
    )
    written.write([{"kind": "end", "session": "other", "call": "c2", "tool": "u", "outcome": "denied", "duration_s": 0.0}])
    return path


def test_a_whole_log_is_whole(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify", str(log)]) == 0
    said = capsys.readouterr().out
    head = said.strip().rpartition(" ")[2]
    assert said == f"3 records, intact; head {head}\n"
    assert main(["audit", "verify", str(log), "--head", head, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"ok": True, "records": 3, "head": head, "problems": [], "notes": [], "files": [str(log)]}


def test_a_log_that_was_changed_is_told_line_by_line(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(log.read_bytes().replace(b'"by":"user"', b'"by":"nobo"') + b"torn")
    assert main(["audit", "verify", str(log)]) == 1
    said = capsys.readouterr().out
    assert "audit.jsonl line 1: record 1 does not follow from what stands before it" in said
    assert "note     the last line was cut off" in said
    assert "1 problem;" in said


def test_records_are_shown_for_people_and_for_programs(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "show", str(log)]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert said.isascii()
    assert lines[0] == ('     1  2001-09-09 01:46:40  start  c1 t<U+001B>[2J on web {"a": "\\u202e"} allow by user')
    assert lines[1].endswith("failed in 0.5 s error: no")
    assert main(["audit", "show", str(log), "--session", "other", "-o", "json"]) == 0
    assert [json.loads(line)["call"] for line in capsys.readouterr().out.splitlines()] == ["c2"]
    assert main(["audit", "show", str(log), "--tool", "u"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["audit", "tail", str(log), "-n", "1"]) == 0
    assert re.match(r" +3 ", capsys.readouterr().out)


def test_odd_records_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit.jsonl"
    AuditLog(path).write([{"kind": "start", "at": "never"}, {"kind": "other", "x": 1}])
    assert main(["audit", "show", str(path)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "  ?  start" in first
    assert second.endswith('other  {"x": 1}')


@pytest.mark.parametrize("command", ["verify", "show", "tail"])
def test_no_log_is_an_error(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", command, str(tmp_path / "none")]) == 42
    assert "there is no audit log" in capsys.readouterr().err


def test_following_shows_what_is_written_meanwhile(log: Path) -> None:
    command = [sys.executable, "-m", "callgate", "audit", "tail", "-f", "-n", "1", "-o", "json", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUTF8": "1"}) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["n"] == 3
        AuditLog(log).write([{"kind": "end", "call": "c3", "tool": "u"}])
        assert json.loads(process.stdout.readline())["call"] == "c3"
        process.kill()


def test_a_sealed_and_anchored_log_is_verified_with_its_key_and_anchor(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = AuditLog(tmp_path / "a.jsonl", key=tmp_path / "key", anchor=tmp_path / "anchor", clock=lambda: 1_700_000_000.0)
    log.write([{"kind": "start"}])
    options = ["--key", str(tmp_path / "key"), "--anchor", str(tmp_path / "anchor")]
    assert main(["audit", "verify", str(log.path), *options, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["since"] == {"key": 1_700_000_000.0, "anchor": 1_700_000_000.0}
    assert main(["audit", "verify", str(log.path), *options]) == 0
    assert "Sealed with the key since 2023-11-14" in capsys.readouterr().err
    assert main(["audit", "verify", str(log.path)]) == 1
