"""An auditor's table: ways to falsify an audit log, each found, or named as one that cannot be found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate.errors import AuditError, UsageError
from callgate.permission import AuditLog
from callgate.permission.audit import files_of, verify
from callgate.permission.hash_chain import Head, Link, read_record, seal

KEY = b"0123456789abcdef0123456789abcdef"


class Case:
    """A log of twelve records in the hands of somebody who does not have its key."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.path, self.head = folder / "audit.jsonl", folder / "audit.jsonl.head"
        self.folder, self.options = folder, options
        self.key = options.get("key")
        log = AuditLog(self.path, clock=lambda: 1_700_000_000.0, **options)
        for n in range(6):
            log.write([record(n)])
        for name in ("audit.jsonl", "audit.jsonl.head"):
            shutil.copy(folder / name, folder / f"{name}.early")
        for n in range(6, 12):
            log.write([record(n)])
        log.close()

    @property
    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    @lines.setter
    def lines(self, lines: list[bytes]) -> None:
        self.path.write_bytes(b"".join(lines))

    def reseal(self, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Link:
        """Write the log anew, with sound hashes: the way of somebody who knows the format."""
        records = [found[1] for line in self.lines if (found := read_record(line[:-1]))]
        link, lines = Link(), list[bytes]()
        for one in change([{k: v for k, v in r.items() if k != "n"} for r in records]):
            line, link = seal(one, link)
            lines.append(line)
        self.lines = lines
        return link

    def forge_head(self, link: Link) -> None:
        self.head.write_bytes(Head(link, self.path.stat().st_size).line(None))

    def write_on(self) -> None:
        AuditLog(self.path, **self.options).write([record(99)])

    def problems(self) -> tuple[str, ...]:
        return verify(self.path, key=self.options.get("key"), anchor=self.options.get("anchor")).problems


def record(n: int) -> dict[str, Any]:
    return {"kind": "start", "call": f"c{n}", "tool": "pay", "args": {"to": "mallory" if n == 4 else "charity", "n": n}}


def cleaned(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return json.loads(json.dumps(records).replace("mallory", "a good cause"))


def appended(case: Case, count: int = 1) -> None:
    last = read_record(case.lines[-1][:-1])
    assert last is not None
    lines, link = case.lines, Link(last[0].count, last[0].hash)
    for n in range(count):
        line, link = seal(record(50 + n), link)
        lines.append(line)
    case.lines = lines


def edit(case: Case, at: int, old: bytes, new: bytes) -> None:
    lines = case.lines
    assert old in lines[at]
    lines[at] = lines[at].replace(old, new)
    case.lines = lines


def drop(case: Case, *places: int) -> None:
    case.lines = [line for place, line in enumerate(case.lines) if place not in {p % 12 for p in places}]


def swap(case: Case, one: int, other: int) -> None:
    lines = case.lines
    lines[one], lines[other] = lines[other], lines[one]
    case.lines = lines


def put(case: Case, at: int, line: bytes) -> None:
    case.lines = [*case.lines[:at], line, *case.lines[at:]]


def roll_back_log(case: Case) -> None:
    shutil.copy(f"{case.path}.early", case.path)


def roll_back_both(case: Case) -> None:
    roll_back_log(case)
    shutil.copy(f"{case.head}.early", case.head)


def reseal_one(case: Case, at: int) -> None:
    before = read_record(case.lines[at - 1][:-1]) if at else None
    lines = case.lines
    lines[at] = seal(record(77), before[0] if before else Link())[0]
    case.lines = lines


def reseal_all(case: Case) -> None:
    case.reseal(cleaned)


def rewrite_both(case: Case) -> None:
    case.forge_head(case.reseal(cleaned))


def cut_both(case: Case) -> None:
    case.lines = case.lines[:8]
    last = read_record(case.lines[-1][:-1])
    assert last is not None
    case.forge_head(last[0])


def append_both(case: Case) -> None:
    appended(case, 2)
    last = read_record(case.lines[-1][:-1])
    assert last is not None
    case.forge_head(last[0])


NESTED = b'{"n":13,"a":' + b"[" * 100_000 + b',"hash":"' + b"0" * 64 + b'"}\n'
WAYS: dict[str, Callable[[Case], object]] = {
    "edit the first record": lambda c: edit(c, 0, b"charity", b"charitY"),
    "edit a record in the middle": lambda c: edit(c, 4, b"mallory", b"charity"),
    "edit the last record": lambda c: edit(c, 11, b"charity", b"charitY"),
    "change a number of a record": lambda c: edit(c, 5, b'"n":6,', b'"n":7,'),
    "change a time": lambda c: edit(c, 5, b"1700000000.0", b"1600000000.0"),
    "change a hash": lambda c: edit(c, 5, c.lines[5][-20:-3], b"0" * 17),
    "rename the tool": lambda c: edit(c, 4, b'"pay"', b'"get"'),
    "add white space to a record": lambda c: edit(c, 4, b'"tool":', b'"tool": '),
    "delete the first record": lambda c: drop(c, 0),
    "delete a record in the middle": lambda c: drop(c, 4),
    "delete the last record": lambda c: drop(c, -1),
    "delete the last five records": lambda c: drop(c, -1, -2, -3, -4, -5),
    "delete every second record": lambda c: drop(c, *range(0, 12, 2)),
    "empty the log": lambda c: c.path.write_bytes(b""),
    "keep only the last record": lambda c: drop(c, *range(11)),
    "swap two neighbours": lambda c: swap(c, 4, 5),
    "swap the first and the last": lambda c: swap(c, 0, 11),
    "reverse the log": lambda c: setattr(c, "lines", c.lines[::-1]),
    "repeat a record": lambda c: put(c, 5, c.lines[4]),
    "repeat the last record": lambda c: put(c, 12, c.lines[11]),
    "put in a line without a seal": lambda c: put(c, 5, b'{"kind":"start"}\n'),
    "put in an empty line": lambda c: put(c, 5, b"\n"),
    "put in a record of another log": lambda c: put(c, 5, seal(record(3), Link())[0]),
    "put a line before the log": lambda c: put(c, 0, seal(record(3), Link())[0]),
    "append a line without a seal": lambda c: put(c, 12, b'{"kind":"end"}\n'),
    "append a sealed record": appended,
    "append three sealed records": lambda c: appended(c, 3),
    "seal one record anew": lambda c: reseal_one(c, 4),
    "seal the last record anew": lambda c: reseal_one(c, 11),
    "seal the first record anew": lambda c: reseal_one(c, 0),
    "seal all records anew": reseal_all,
    "seal all anew, one dropped": lambda c: c.reseal(lambda records: cleaned(records)[:-1]),
    "seal all anew, one dropped and one made up": lambda c: c.reseal(lambda r: [*cleaned(r)[:-1], record(60)]),
    "seal all anew, one more": lambda c: c.reseal(lambda records: [*cleaned(records), record(60)]),
    "put an older copy of the log back": roll_back_log,
    "put an older copy back, and append to it": lambda c: (roll_back_log(c), appended(c, 8)),
    "remove the head": lambda c: c.head.unlink(),
    "spoil the head": lambda c: c.head.write_bytes(b"nonsense"),
    "rewrite the log and its head": rewrite_both,
    "cut the log and its head": cut_both,
    "append to the log and its head": append_both,
    "put older copies of the log and its head back": roll_back_both,
    "append a record that no program can decode": lambda c: put(c, 12, NESTED),
}  # fmt: skip

# A program that can write the log and its head leaves no trace in them. A key finds all of it but an older state as a
# whole; an anchor elsewhere finds that too.
NOT_FOUND = {
    "plain": {
        "rewrite the log and its head", "cut the log and its head", "append to the log and its head",
        "put older copies of the log and its head back",
    },
    "key": {"put older copies of the log and its head back"},
    "anchor": set[str](),
    "key and anchor": set[str](),
}  # fmt: skip


def options(how: str, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"key": KEY} if "key" in how else {}
    if "anchor" in how:
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        found["anchor"] = elsewhere / "anchor"
    return found


def test_the_table_has_its_forty_ways():
    assert len(WAYS) >= 40


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", NOT_FOUND)
def test_a_falsified_log_is_found_at_once_and_after_the_next_record_or_named_as_not_to_be_found(
    tmp_path: Path, how: str, way: str
):
    case = Case(tmp_path, **options(how, tmp_path))
    assert case.problems() == ()
    WAYS[way](case)
    found = bool(case.problems())
    assert found == (way not in NOT_FOUND[how])
    case.write_on()
    case.write_on()
    assert bool(case.problems()) == found, "the next writer neither hides nor makes up a finding"


def test_a_removed_log_is_found(tmp_path: Path):
    case = Case(tmp_path)
    case.path.unlink()
    case.write_on()
    assert case.problems()


def test_verification_says_since_when_the_log_is_anchored_and_what_cannot_be_found(tmp_path: Path):
    plain = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 1_600_000_000.0)
    plain.write([record(1)])
    assert "rewritten" in verify(plain.path).guarantee
    plain.path.unlink()
    (tmp_path / "audit.jsonl.head").unlink()
    keyed = AuditLog(plain.path, key=tmp_path / "key", anchor=tmp_path / "anchor", clock=lambda: 1_700_000_000.0)
    keyed.write([record(2)])
    found = verify(plain.path, key=tmp_path / "key")
    assert (found.problems, found.keyed_since, found.anchored_since) == ((), 1_700_000_000.0, None)
    assert found.guarantee.startswith("Sealed with the key since 2023-11-14 22:13:20 UTC: not detected would be")
    assert "older copy" in found.guarantee
    found = verify(plain.path, key=tmp_path / "key", anchor=tmp_path / "anchor")
    assert (found.problems, found.anchored_since) == ((), 1_700_000_000.0)
    assert "also rewrite the anchor" in found.guarantee
    without = verify(plain.path, anchor=tmp_path / "anchor")
    assert (without.needs_key, "nothing can be said without it" in without.guarantee) == (True, True)
    AuditLog(tmp_path / "other.jsonl", anchor=tmp_path / "other").write([record(3)])
    assert "after the last anchor" in verify(tmp_path / "other.jsonl", anchor=tmp_path / "other").guarantee
    assert oct((tmp_path / "key").stat().st_mode & 0o777) == "0o600"


def test_a_keyed_log_cannot_be_verified_without_its_key_or_with_another_one(tmp_path: Path):
    log = AuditLog(tmp_path / "audit.jsonl", key=KEY)
    log.write([record(1), record(2)])
    found = verify(log.path)
    assert found.problems == (
        "audit.jsonl line 1: this record and others are sealed with a key: they can be verified only with it",
    )
    assert found.guarantee == ("The log is sealed with a key, and nothing can be said without it: give its file as --key.")
    assert len(verify(log.path, key=b"x" * 32).problems) == 3
    AuditLog(tmp_path / "plain.jsonl").write([record(1), record(2)])
    unkeyed = "plain.jsonl line 1: record 1 is not sealed with the key; perhaps others are not, too"
    assert unkeyed in verify(tmp_path / "plain.jsonl", key=KEY).problems
    AuditLog(tmp_path / "plain.jsonl", key=KEY).write([record(3)])
    assert unkeyed in verify(tmp_path / "plain.jsonl", key=KEY).problems, "a key is for a log from its first record on"


@pytest.mark.parametrize("has_head", [True, False])
def test_a_sealed_log_takes_no_record_without_its_key(tmp_path: Path, has_head: bool):
    log = AuditLog(tmp_path / "audit.jsonl", key=KEY)
    log.write([record(1)])
    log.close()
    if not has_head:
        (tmp_path / "audit.jsonl.head").unlink()
    before = log.path.read_bytes()
    for attempt in (lambda: AuditLog(log.path).check(), lambda: AuditLog(log.path).write([record(2)])):
        with pytest.raises(AuditError, match=r"is sealed with a key: pass the key's file as key= \(setting audit_key\)"):
            attempt()
    assert log.path.read_bytes() == before
    AuditLog(log.path, key=KEY).write([record(2)])
    assert len(verify(log.path, key=KEY).problems) == (0 if has_head else 1)


def test_a_key_that_is_none_or_an_anchor_that_is_none_is_an_error_or_a_problem(tmp_path: Path):
    with pytest.raises(AuditError, match="has 3 bytes; use at least 16"):
        AuditLog(tmp_path / "audit.jsonl", key=b"abc").write([record(1)])
    with pytest.raises(AuditError, match="cannot be read"):
        verify(tmp_path / "audit.jsonl", key=tmp_path / "none")
    AuditLog(tmp_path / "audit.jsonl").write([record(1)])
    (tmp_path / "anchor").write_text("nonsense\n")
    assert verify(tmp_path / "audit.jsonl", anchor=tmp_path / "anchor").problems == ("anchor line 1 is no anchor of a log",)
    with pytest.raises(AuditError, match=r"the anchor .* cannot be read"):
        verify(tmp_path / "audit.jsonl", anchor=tmp_path / "none")


@pytest.mark.rows(
    ("key", "anchor"),
    [
        ("audit.jsonl", None), (None, "audit.jsonl"), (None, "audit.jsonl.head"), ("seal", "./seal"), ("link", None),
    ],
)  # fmt: skip
def test_a_log_its_key_and_its_anchor_are_files_of_their_own(key: str | None, anchor: str | None, tmp_path: Path):
    (tmp_path / "link").unlink(missing_ok=True)
    (tmp_path / "link").symlink_to(tmp_path / "audit.jsonl")
    with pytest.raises(UsageError, match="is the same file"):
        AuditLog(tmp_path / "audit.jsonl", key=key and tmp_path / key, anchor=anchor and f"{tmp_path}/{anchor}")


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
@pytest.mark.rows("device", ["/dev/zero", "pipe"])
def test_an_anchor_without_an_end_is_an_error_and_is_not_waited_for(device: str, tmp_path: Path):
    (tmp_path / "pipe").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "pipe")
    AuditLog(tmp_path / "audit.jsonl").write([record(1)])
    with pytest.raises(AuditError, match="is not a regular file"):
        verify(tmp_path / "audit.jsonl", anchor=tmp_path / device)
    with pytest.raises(AuditError, match="is not a regular file"):
        AuditLog(tmp_path / "audit.jsonl", anchor=tmp_path / device).write([record(2)])


def test_an_anchor_that_a_crash_kept_from_the_last_record_is_a_finding_without_a_key_alone(tmp_path: Path):
    for key, count in ((None, 1), (KEY, 0)):
        log = AuditLog(tmp_path / f"{count}.jsonl", key=key, anchor=tmp_path / f"{count}.anchor")
        log.write([record(1)])
        before = (tmp_path / f"{count}.anchor").read_bytes()
        log.write([record(2)])
        (tmp_path / f"{count}.anchor").write_bytes(before)
        log.close()
        log.write([record(3)])
        assert len(verify(log.path, key=key, anchor=tmp_path / f"{count}.anchor").problems) == count


def test_records_that_power_kept_from_being_announced_are_only_a_note_where_their_key_is_right(tmp_path: Path):
    log, head = AuditLog(tmp_path / "audit.jsonl", key=KEY), tmp_path / "audit.jsonl.head"
    log.write([record(1)])
    before = head.read_bytes()
    log.write([record(2)])
    head.write_bytes(before)
    assert [len(verify(log.path, key=KEY).problems), len(verify(log.path, key=KEY).notes)] == [0, 1]
    AuditLog(log.path, key=KEY).write([record(3)])
    found = verify(log.path, key=KEY)
    assert (found.problems, len(found.notes), len(files_of(log.path))) == ((), 1, 1)


def test_an_anchor_that_was_emptied_is_said_to_be_empty_and_is_no_anchor(tmp_path: Path):
    case = Case(tmp_path, anchor=tmp_path / "anchor")
    (tmp_path / "anchor").write_bytes(b"")
    found = verify(case.path, anchor=tmp_path / "anchor")
    assert found.problems == ("the anchor anchor is empty: nothing was ever anchored in it, or it was emptied",)
    assert found.anchored_since is None
    assert found.guarantee.startswith("No record is sealed with a key, and none is anchored")


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "key"])
def test_the_next_writer_notes_that_the_anchor_was_emptied(tmp_path: Path, key: bytes | None):
    case = Case(tmp_path, key=key, anchor=tmp_path / "anchor")
    (tmp_path / "anchor").write_bytes(b"")
    AuditLog(case.path, clock=lambda: 1_800_000_000.0, **case.options).write([record(99)])
    found = verify(case.path, key=key, anchor=tmp_path / "anchor")
    noted = "audit.jsonl line 13: the anchor held nothing of the 12 records before it"
    assert (found.problems, found.notes, found.anchored_since) == ((), (noted,), 1_800_000_000.0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: t.replace("1700000000.000000", "0.000000", 1), "the anchor has another time for record 1 than the log"),
        (lambda t: t.replace("1700000000.0", "999999999999.0", 1), "the anchor has another time for record 1 than the log"),
        (lambda t: f"0 {'0' * 64} 0.000000\n{t}", "anchor line 1 is no anchor of a log"),
        (
            lambda t: "".join(t.splitlines(keepends=True)[::-1]),
            "anchor line 2 is out of order: lines were moved, or the log",
        ),
    ],
    ids=["1970", "after 9999", "before the first record", "reversed"],
)
def test_no_log_is_said_to_be_anchored_since_a_time_that_it_does_not_hold(
    tmp_path: Path, change: Callable[[str], str], problem: str
):
    anchor = tmp_path / "anchor"
    case = Case(tmp_path, anchor=anchor)
    anchor.write_text(change(anchor.read_text()))
    found = verify(case.path, anchor=anchor)
    assert any(said.startswith(problem) for said in found.problems)
    assert found.anchored_since == 1_700_000_000.0


def test_a_sealed_log_that_begins_without_a_time_is_sealed_since_the_first_record_that_has_one(tmp_path: Path):
    log = AuditLog(tmp_path / "audit.jsonl", key=KEY, file_bytes=300, clock=lambda: 1_700_000_000.0)
    for n in range(6):
        log.write([record(n)])
    log.close()
    (tmp_path / "audit.jsonl.000001").unlink()
    found = verify(log.path, key=KEY, pruned=True)
    assert (found.problems, found.keyed_since) == ((), 1_700_000_000.0)
