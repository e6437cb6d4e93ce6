"""The audit log: nothing starts unwritten, nothing is changed unseen, no secret reaches the disk."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel, ToolContext, ToolDefinition, tool
from callgate.adapters.gated_tools import GatedTools
from callgate.errors import AuditError
from callgate.mcp.serve import ToolServer
from callgate.permission import AuditLog, Rule, audit_files
from callgate.permission import audit as audit_module
from callgate.permission.audit import files_of, records_of, verify
from callgate.permission.hash_chain import Chain, Head, Link, Walk, read_record, seal
from callgate.testing import call
from mcp import Client

posix = pytest.mark.skipif(os.name != "posix", reason="kills processes")


def run(work: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


# --- the chain, in memory ------------------------------------------------------------------------------------------------


def lines_of(count: int) -> list[bytes]:
    chain = Chain()
    return [chain.seal({"kind": "start", "tool": f"t{n % 7}", "args": {"n": n}}) for n in range(count)]


LINES = lines_of(1_000)
LAST = read_record(LINES[-1][:-1])
assert LAST is not None
HEAD = LAST[0]


LINKS = [Link(), *[found[0] for line in LINES if (found := read_record(line[:-1]))]]


def problems(lines: list[bytes], head: Link | None = HEAD, *, after: Link | None = None, at_end: bool = True) -> list[str]:
    walk = Walk(after or Link())
    for _ in walk.lines(lines, "log"):
        pass
    if not at_end:
        return walk.problems
    walk.end(head)
    if head is not None and walk.link.count >= head.count and walk.link.hash != head.hash:
        walk.problems.append("another end")
    return walk.problems


def edited(lines: list[bytes], at: int) -> list[bytes]:
    return [*lines[:at], lines[at].replace(b'"tool":"t', b'"tool":"x'), *lines[at + 1 :]]


def resealed(lines: list[bytes], at: int) -> list[bytes]:
    """An edit by somebody who knows how a record is sealed."""
    before = read_record(lines[at - 1][:-1]) if at else None
    line, _ = seal({"kind": "start", "tool": "evil"}, before[0] if before else Link())
    return [*lines[:at], line, *lines[at + 1 :]]


def one_bit(lines: list[bytes], at: int) -> list[bytes]:
    place = (at * 31) % (len(lines[at]) - 1)
    changed = bytearray(lines[at])
    changed[place] ^= 1
    return [*lines[:at], bytes(changed), *lines[at + 1 :]]


TAMPERINGS: dict[str, Callable[[list[bytes], int], list[bytes]]] = {
    "edit": edited,
    "edit and seal again": resealed,
    "one bit": one_bit,
    "delete": lambda lines, at: [*lines[:at], *lines[at + 1 :]],
    "swap with the next": lambda lines, at: [
        *lines[: min(at, 998)], lines[min(at, 998) + 1], lines[min(at, 998)], *lines[min(at, 998) + 2 :]
    ],
    "move to the front": lambda lines, at: [lines[max(at, 1)], *lines[: max(at, 1)], *lines[max(at, 1) + 1 :]],
    "repeat": lambda lines, at: [*lines[: at + 1], lines[at], *lines[at + 1 :]],
    "cut off the rest": lambda lines, at: lines[:at],
    "cut in the middle of a line": lambda lines, at: [*lines[:at], lines[at][: len(lines[at]) // 2]],
    "put a line in": lambda lines, at: [*lines[:at], b'{"kind":"start"}\n', *lines[at:]],
    "put an empty line in": lambda lines, at: [*lines[:at], b"\n", *lines[at:]],
    "put two lines in": lambda lines, at: [*lines[:at], b"x\n", b"y\n", *lines[at:]],
    "put a space in": lambda lines, at: [*lines[:at], lines[at][:-1] + b" \n", *lines[at + 1 :]],
}  # fmt: skip


def test_an_untouched_log_has_no_problems():
    assert problems(LINES) == []


@pytest.mark.parametrize("kind", TAMPERINGS)
def test_every_single_tampering_with_a_log_of_a_thousand_records_is_found(kind: str):
    for at in range(1_000):
        tampered = TAMPERINGS[kind](LINES, at)
        # Everything before it is untouched, so that the walk may begin there; a few lines on it must have been found.
        start, end = (0, 6) if kind == "move to the front" else (max(0, at - 3), at + 6)
        assert problems(tampered[start:end], after=LINKS[start], at_end=end >= len(tampered)), f"at {at}"
    assert problems(TAMPERINGS[kind](LINES, 500))


def test_without_the_end_beside_it_a_cut_off_end_could_not_be_seen_and_that_is_a_problem():
    assert problems(LINES[:-1], None) == [
        "the file that holds the end of the log is missing, so a cut-off end could not be seen"
    ]


@pytest.mark.parametrize("line", [b"", b"{}", b"null", b'{"n":1,"hash":"00"}', b'{"n":1,x,"hash":"' + b"0" * 64 + b'"}'])
def test_a_line_that_is_no_record_is_none(line: bytes):
    assert read_record(line) is None


def test_nothing_in_a_record_can_end_its_line_or_break_its_text():
    evil = {"kind": "start", "args": {"a": '\n{"fake":1}\x1b[2J\ud800\u2028', "n": float("nan"), "o": object()}}
    line, link = seal(evil, Link())
    assert line.isascii()
    assert line.count(b"\n") == 1
    found = read_record(line[:-1])
    assert found is not None
    assert (found[0], found[1]["args"]["n"]) == (link, "NaN")


# --- the files -----------------------------------------------------------------------------------------------------------


def record(n: int) -> dict[str, Any]:
    return {"kind": "start", "call": f"c{n}", "tool": "t", "args": {"n": n}}


def numbers(path: Path) -> list[int]:
    return [found["args"]["n"] for found in records_of(path) if "args" in found]


def test_records_are_appended_and_found_again_and_the_files_are_private(tmp_path: Path):
    path = tmp_path / "deep" / "audit.jsonl"
    log = AuditLog(path, clock=lambda: 5.0)
    log.write([])
    assert not path.exists()
    log.write([record(1), record(2)], durable=True)
    log.close()
    log.write([record(3)])
    again = AuditLog(path)
    again.write([record(4)])
    log.write([record(5)])
    assert numbers(path) == [1, 2, 3, 4, 5]
    assert next(iter(records_of(path)))["at"] == 5.0
    found = verify(path)
    assert (found.problems, found.notes, found.link.count) == ((), (), 5)
    assert verify(path, head=found.link.hash).problems == ()
    assert verify(path, head="0" * 63 + "1").problems == (
        f"the log does not hold the record with the hash {'0' * 63 + '1'!r}",
    )
    assert {oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()} == {"0o600"}
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700"


def test_a_log_that_was_there_with_other_rights_becomes_private(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    path.touch(0o644)
    AuditLog(path).write([record(1)])
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_a_log_is_not_written_through_a_link(tmp_path: Path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(AuditError, match="cannot be written"):
        AuditLog(tmp_path / "audit.jsonl").write([record(1)])
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_a_line_that_a_crash_cut_off_is_kept_and_told_and_the_chain_goes_on(tmp_path: Path, kept: int):
    path = tmp_path / "audit.jsonl"
    AuditLog(path).write([record(1)])
    whole = path.read_bytes()
    line, _ = seal(record(2), Link(1, verify(path).link.hash))
    path.write_bytes(whole + line[:kept])
    assert verify(path).notes == ("the last line was cut off, as by a crash; the next writer will say so in the log",)
    assert verify(path).problems == ()
    AuditLog(path).write([record(3)])
    found = verify(path)
    assert (found.problems, len(found.notes), found.link.count) == ((), 1, 3)
    assert [r["kind"] for r in records_of(path)] == ["start", "torn", "start"]
    assert path.read_bytes().startswith(whole + line[:kept] + b"\n")
    tampered = path.read_bytes().replace(line[:kept] + b"\n", b"\n", 1)
    if kept != 1:
        path.write_bytes(tampered)
        assert verify(path).problems


def pending(line: bytes) -> bytes:
    head = Head.read(line)
    assert head is not None
    return replace(head, is_pending=True).line(None)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_crash_in_the_middle_of_a_batch_is_made_good(tmp_path: Path, kept: int):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write([record(1)])
    log.write([record(2), record(3), record(4)])
    (tmp_path / "audit.jsonl.head").write_bytes(pending((tmp_path / "audit.jsonl.head").read_bytes()))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: 1 + kept]))
    assert verify(path).problems == ()
    AuditLog(path).write([record(5)])
    assert verify(path).problems == ()


def test_a_crash_between_the_record_and_the_head_is_made_good(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write([record(1)])
    log.write([record(2)])
    (tmp_path / "audit.jsonl.head").write_bytes(pending((tmp_path / "audit.jsonl.head").read_bytes()))
    assert verify(path).problems == ()
    AuditLog(path).write([record(3)])
    assert (verify(path).problems, numbers(path)) == ((), [1, 2, 3])


@pytest.mark.parametrize("what", ["cut", "gone", "headless", "bad head", "rewritten"])
def test_what_was_done_to_a_log_stays_visible_when_it_is_written_to_again(tmp_path: Path, what: str):
    path, head = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.head"
    AuditLog(path).write([record(n) for n in range(5)])
    if what == "cut":
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    elif what == "gone":
        path.unlink()
    elif what == "headless":
        head.unlink()
    elif what == "bad head":
        head.write_bytes(b"nonsense")
    else:
        path.write_bytes(b"".join(lines_of(5)))
    if what != "gone":
        assert verify(path).problems
    AuditLog(path).write([record(9)])
    assert verify(path).problems
    AuditLog(path).write([record(10)])
    assert verify(path).problems, "it does not heal"


def test_a_full_file_is_followed_by_another_one_and_the_chain_goes_on(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    log, other = AuditLog(path, file_bytes=1_500), AuditLog(path, file_bytes=1_500)
    for n in range(40):
        (log, other)[n % 2].write([record(n)])
    files = files_of(path)
    assert len(files) > 3
    assert [file.name for file in files[:2]] == ["audit.jsonl.000001", "audit.jsonl.000002"]
    assert (verify(path).problems, numbers(path)) == ((), list(range(40)))
    files[1].unlink()
    assert any("records were removed" in problem for problem in verify(path).problems)


def test_a_crash_in_the_middle_of_a_rotation_is_made_good(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    AuditLog(path).write([record(1)])
    path.rename(tmp_path / "audit.jsonl.000001")
    AuditLog(path).write([record(2)])
    assert (verify(path).problems, numbers(path)) == ((), [1, 2])


def test_a_record_that_is_longer_than_what_is_read_at_once_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_module, "TAIL_BYTES", 16)
    path = tmp_path / "audit.jsonl"
    AuditLog(path).write([record(n) for n in range(3)])
    with path.open("ab") as stream:
        stream.write(b"torn")
    AuditLog(path).write([record(3)])
    assert (verify(path).problems, numbers(path)) == ((), [0, 1, 2, 3])


def test_a_log_that_is_not_there_or_cannot_be_written_is_an_error(tmp_path: Path):
    with pytest.raises(AuditError, match="there is no audit log"):
        verify(tmp_path / "none.jsonl")
    (tmp_path / "file").touch()
    with pytest.raises(AuditError, match="cannot be written"):
        AuditLog(tmp_path / "file" / "audit.jsonl").write([record(1)])
    (tmp_path / "audit.jsonl.000001").mkdir()
    with pytest.raises(AuditError, match="cannot be read"):
        list(records_of(tmp_path / "audit.jsonl"))


def test_a_disk_that_is_full_or_broken_is_an_error_and_the_log_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write([record(1)])
    for name in ("write", "fsync"):
        with monkeypatch.context() as broken:
            real = getattr(os, name)

            def fail(descriptor: int, *data: Any, real: Any = real) -> Any:
                if data and bytes(data[0][:2]) in (b"p ", b"s "):
                    return real(descriptor, *data)  # The head lies on the disk already.
                if data:
                    real(descriptor, data[0][:20])  # A part of it still fits.
                raise OSError(28, "No space left on device")

            broken.setattr(audit_module.os, name, fail)
            for writer in (log, log, AuditLog(path)) if name == "write" else (log,):  # Also several times in a row.
                with pytest.raises(AuditError, match="No space left on device"):
                    writer.write([record(2)], durable=True)
        log.write([record(3)])
    found = verify(path)
    assert (found.problems, found.notes) == ((), ())
    assert numbers(path) == [1, 3, 2, 3]


def test_a_log_whose_oldest_files_were_deleted_on_purpose_is_whole_from_there_on(tmp_path: Path):
    path, anchor = tmp_path / "audit.jsonl", tmp_path / "anchor"
    log = AuditLog(path, file_bytes=1_500, anchor=anchor)
    for n in range(40):
        log.write([record(n)])
    first, second, *_ = files_of(path)
    first.unlink()
    second.unlink()
    log.write([record(40)])
    assert any("records were removed" in problem for problem in verify(path).problems)
    found = verify(path, pruned=True, anchor=anchor)
    assert found.problems == ()
    assert [note.partition(": ")[2].split(maxsplit=1)[1] for note in found.notes] == [
        "records before it were in files that were deleted"
    ]
    lines = files_of(path)[0].read_bytes().splitlines(keepends=True)
    files_of(path)[0].write_bytes(b"".join(lines[1:]))
    assert verify(path, pruned=True).problems != ()


def write_some(path: str, start: int, count: int) -> None:
    log = AuditLog(path, file_bytes=20_000)
    for n in range(start, start + count):
        log.write([record(n)])


def test_a_log_that_disappears_while_it_is_open_is_begun_again_and_that_is_told(tmp_path: Path):
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write([record(1)])
    log.path.unlink()
    log.write([record(2)])
    assert verify(log.path).problems
    log.close()
    log.close()


@posix
def test_several_processes_write_one_log_and_it_stays_whole(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=write_some, args=(str(path), start, 150)) for start in (0, 1_000)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert verify(path).problems == ()
    found = numbers(path)
    assert sorted(found) == [*range(150), *range(1_000, 1_150)]
    assert [n for n in found if n < 1_000] == list(range(150)), "each one's records are in its order"


@posix
def test_a_child_opens_the_log_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write([record(1)])
    parent = os.getpid()
    monkeypatch.setattr(audit_module.os, "getpid", lambda: parent + 1)
    log.write([record(2)])
    assert (verify(log.path).problems, numbers(log.path)) == ((), [1, 2])


def test_secrets_of_the_environment_do_not_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GEMINI_API_KEY", "not-a-shape-anybody-knows")
    AuditLog(tmp_path / "a").write([{"kind": "start", "args": {"text": "see not-a-shape-anybody-knows there"}}])
    assert b"not-a-shape-anybody-knows" not in (tmp_path / "a").read_bytes()


# --- a gate with a log ---------------------------------------------------------------------------------------------------


class Write:
    definition = ToolDefinition(
        name="write", kind="file", input_schema={"type": "object", "properties": {"path": {"type": "string"}}}
    )

    def problems(self, args: Any) -> list[str]:
        return []

    async def run(self, args: Any, context: ToolContext) -> object:
        return "written"


@tool
def add(a: int, password: str = "") -> int:
    """Adds one."""
    if a < 0:
        raise ValueError("negative")
    return a + 1


def test_a_call_has_a_record_before_and_one_after_with_everything_that_was_decided(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    script = [[call("add", a="5", password="hunter2"), call("add", a=-1), call("nope")], call("write", path="x"), "ok"]
    gate = Gate(ScriptedModel(script), [add, Write()], audit=path, policy=Policy(rules=[Rule(verdict="deny", paths=("x",))]))
    reply = run(gate.run("Go", session="s1"))
    found = [
        {key: value for key, value in r.items() if key not in ("n", "at", "duration_s", "digest")} for r in records_of(path)
    ]
    ids = [record.call.id for record in reply.calls]
    unknown, start, start_negative, *ends, denied = found
    assert (unknown["call"], unknown["outcome"], unknown["kind"]) == (ids[2], "failed", "end")
    assert start == {
        "kind": "start", "session": "s1", "call": ids[0], "tool": "add", "server": None,
        "args": {"a": 5, "password": "[redacted]"}, "notes": start["notes"], "edited": False,
        "decision": {"verdict": "allow", "by": "policy", "reason": "Functions run without approval by default."},
    }  # fmt: skip
    assert "5" in start["notes"][0], "what was coerced is written down"
    assert start_negative["call"] == ids[1]
    assert {(end["call"], end["outcome"]) for end in ends} == {(ids[0], "finished"), (ids[1], "failed")}
    assert (denied["call"], denied["outcome"], denied["decision"]["verdict"]) == (ids[3], "denied", "deny")
    assert denied["args"] == {"path": "x"}
    assert verify(path).problems == ()
    assert b"hunter2" not in path.read_bytes()


def test_what_cannot_be_written_down_does_not_run(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()
    ran: list[int] = []

    @tool
    def effect() -> str:
        ran.append(1)
        return "done"

    gate = Gate(ScriptedModel([call("effect"), "no"]), [effect], audit=tmp_path / "file" / "audit.jsonl")
    reply = run(gate.run("Go"))
    assert (ran, reply.calls[0].state, reply.finish_reason, reply.text) == ([], "denied", "STOP", "no")
    assert "what cannot be written down does not run" in str(reply.calls[0].result)
    assert [record.getMessage().partition(" cannot be written")[1:] for record in caplog.records] == [
        (" cannot be written", ": File exists; calls are refused until it can be")
    ], "said once, and not twice for each call"


def test_a_probe_says_whether_a_record_could_be_written_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").touch()
    log = AuditLog(tmp_path / "file" / "audit.jsonl", anchor=tmp_path / "anchor")
    sentence = f"the audit log {str(log.path)!r} cannot be written: "
    assert (log.probe(), log.error, log.failures) == (f"{sentence}File exists", f"{sentence}File exists", 0)
    (tmp_path / "file").unlink()
    assert (log.probe(), log.error) == (None, None)
    assert sorted(path.name for path in log.path.parent.iterdir()) == ["audit.jsonl", "audit.jsonl.head"]
    log.write([record(1)])
    for _ in range(2):
        assert log.probe() is None
    (tmp_path / "anchor").unlink()
    (tmp_path / "anchor").mkdir()
    assert log.probe() == f"{sentence}Is a directory"
    (tmp_path / "anchor").rmdir()
    with monkeypatch.context() as full:

        def fail(descriptor: int, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        full.setattr(audit_files.os, "write", fail)
        assert log.probe() == f"{sentence}No space left on device"
    with monkeypatch.context() as foreign:  # The folder is somebody else's, and the log in it is not.

        def refuse(**options: object) -> None:
            raise PermissionError(13, "Permission denied")

        foreign.setattr(audit_files.tempfile, "TemporaryFile", refuse)
        assert log.probe() is None
    log.write([record(2)])
    assert (verify(log.path).problems, numbers(log.path)) == ((), [1, 2])
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"] * 2


def test_a_log_counts_what_it_could_not_write_and_says_when_it_can_again(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()
    log = AuditLog(tmp_path / "file" / "audit.jsonl")
    with pytest.raises(AuditError, match="cannot be written"):
        log.check()
    with pytest.raises(AuditError, match="cannot be written"):
        log.write([{"kind": "start"}])
    assert (log.failures, log.error) == (1, f"the audit log {str(log.path)!r} cannot be written: File exists")
    (tmp_path / "file").unlink()
    log.check()
    assert log.path.stat().st_size == 0
    log.write([{"kind": "start"}])
    assert (log.failures, log.error, verify(log.path).problems) == (1, None, ())
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    with pytest.raises(AuditError, match="has 3 bytes"):
        AuditLog(tmp_path / "keyed.jsonl", key=b"abc").check()


def test_the_starts_of_a_batch_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    writes: list[tuple[int, bool]] = []
    real = AuditLog.write

    def write(self: AuditLog, records: Any, *, durable: bool = False) -> None:
        writes.append((len(records), durable))
        real(self, records, durable=durable)

    monkeypatch.setattr(AuditLog, "write", write)
    script = [[call("add", a=n) for n in range(8)], "ok"]
    run(Gate(ScriptedModel(script), [add], audit=AuditLog(tmp_path / "a")).run("Go"))
    assert writes[0] == (8, True)

    @tool(read_only=True)
    def look() -> int:
        return 1

    writes.clear()
    run(Gate(ScriptedModel([[call("look"), call("look")], "ok"]), [look], audit=AuditLog(tmp_path / "b")).run("Go"))
    assert writes[0] == (2, False), "what changes nothing need not wait for the disk"


# --- kills ---------------------------------------------------------------------------------------------------------------

CHILD = """
import asyncio, os, sys
from callgate import Gate, ScriptedModel, tool
from callgate.testing import call

folder, name = sys.argv[1], sys.argv[2]
effects = os.open(os.path.join(folder, "effects"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@tool(run_in="loop")
def effect(what: str) -> str:
    os.write(effects, (what + "\\n").encode())
    return "done"

async def main():
    for turn in range(10_000):
        script = [[call("effect", what=f"{name}-{turn}-{i}") for i in range(10)], "ok"]
        await Gate(ScriptedModel(script), [effect], audit=os.path.join(folder, "audit.jsonl")).run("Go")

asyncio.run(main())
"""


@posix
@pytest.mark.slow
def test_each_started_call_has_its_record_through_random_kills(tmp_path: Path, scale: int):
    wanted, dice = 2_000 * scale, random.Random(2_000 + scale)
    effects, path, kills = tmp_path / "effects", tmp_path / "audit.jsonl", 0
    effects.touch()
    deadline = time.monotonic() + 120 * scale
    while (before := effects.read_bytes().count(b"\n")) < wanted:
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path), f"k{kills}"], stderr=subprocess.PIPE)
        target = before + dice.randrange(100, 400)
        while effects.stat().st_size < target * 8 and child.poll() is None and time.monotonic() < deadline:
            time.sleep(dice.uniform(0.001, 0.01))
        os.kill(child.pid, signal.SIGKILL)
        _, complaint = child.communicate()
        assert child.returncode == -signal.SIGKILL, complaint.decode()
        assert time.monotonic() < deadline
        kills += 1
    assert kills >= 3
    found = verify(path)
    assert found.problems == ()
    started = {r["args"]["what"] for r in records_of(path) if r["kind"] == "start"}
    ran = effects.read_text().split()
    assert len(ran) >= wanted
    assert set(ran) - started == set(), "an effect without a record before it"
    assert len(ran) == len(set(ran))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts what /proc shows")
@pytest.mark.parametrize(
    "way", ["a gate that is closed", "a run of its own", "a framework", "an MCP server", "a log that is dropped"]
)
def test_no_descriptor_of_a_log_outlives_its_user(tmp_path: Path, way: str) -> None:
    path = tmp_path / "audit.jsonl"

    async def main() -> None:
        model = ScriptedModel([call("it"), "Done."])
        if way == "a gate that is closed":
            async with Gate(model, [it], audit=path) as gate:
                await gate.run("Go.")
        elif way == "a run of its own":
            await Gate(model, [it], audit=path).run("Go.")
        elif way == "a framework":
            async with GatedTools([it], audit=path) as gated:
                await gated.call("it", {})
        elif way == "an MCP server":
            async with Client(ToolServer.of([it], audit=path).sdk) as client:
                await client.call_tool("it", {})
        else:
            AuditLog(path).write([{"kind": "start"}])

    @tool
    async def it() -> str:
        """Works."""
        return "worked"

    asyncio.run(main())
    assert path.stat().st_size > 0
    open_files = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)]
    assert [name for name in open_files if name.startswith(str(tmp_path))] == []


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def test_a_log_that_could_not_be_made_is_dropped_without_an_error() -> None:
    AuditLog.__new__(AuditLog).__del__()
