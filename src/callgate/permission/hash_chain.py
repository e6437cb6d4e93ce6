"""A chain of records: each carries a hash of itself and of all before it, so that none can be changed, moved or taken out.

With a key the hash is a MAC: nobody without the key can seal a record.

Records go in and sealed lines come out; lines go in and what is wrong with them comes out. Pure: files are `audit.py`'s
business.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from callgate.types import JsonObject

__all__ = [
    "FINDINGS", "GENESIS", "HEAD_BYTES", "UNANCHORED", "Chain", "Head", "Link", "Walk", "read_record", "seal", "time_in",
    "truncated_record",
]  # fmt: skip

GENESIS = "0" * 64
"""The hash before the first record."""

_SEALED = re.compile(rb'(?P<body>\{"n":(?P<n>[0-9]{1,15}),.*),"(?P<how>hash|mac)":"(?P<hash>[0-9a-f]{64})"\}', re.DOTALL)
HEAD_BYTES = 256
NO_MAC = "-" * 64
_HEAD = re.compile(
    rb"(?P<state>[ps]) (?P<count>[0-9]{1,15}) (?P<hash>[0-9a-f]{64}) (?P<size>[0-9]{1,15})"
    rb" (?P<before>[0-9]{1,15}) (?P<before_hash>[0-9a-f]{64}) (?P<mac>[0-9a-f-]{64}) *\n"
)
FINDINGS = ("lost", "headless", "appended", "rewritten")
"""Kinds of records by which a writer says that the log had been changed before."""
UNANCHORED = "unanchored"
"""The kind of record by which a writer says that the anchor is new to a log, or was emptied."""
TIMES_S = (0.0, 253_402_300_799.0)
"""Times from 1970 to the end of 9999; a record of any other does not say when it was made."""
_FINDINGS = {
    "lost": "the end of the log is missing: it had {had} records, and has {has}",
    "appended": "the log has {has} records, but its recorded end is number {had}: the others were appended by another"
    " program, or power failed before the end was recorded",
    "rewritten": "the log does not have the record that was its end once: it was rewritten",
}
_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=repr)


@dataclass(frozen=True, slots=True)
class Link:
    """The end of a chain: how many records there are, and the hash of the last one."""

    count: int = 0
    hash: str = GENESIS
    is_keyed: bool = False
    """The last record is sealed with a key."""


@dataclass(slots=True)
class Chain:
    """A chain that grows."""

    link: Link = field(default_factory=Link)

    def seal(self, record: JsonObject) -> bytes:
        """The record as a line that follows from all before it. `n` and `hash` are put in."""
        line, self.link = seal(record, self.link)
        return line


def seal(record: JsonObject, after: Link, key: bytes | None = None) -> tuple[bytes, Link]:
    """The record as a line, and the end of the chain after it."""
    # Everything is ASCII: a newline, an escape or half a surrogate pair in a record cannot end its line or break its text.
    inner = _encode(record)[1:-1]
    body = f'{{"n":{after.count + 1},{inner}'.encode("ascii")
    digest = _digest(after.hash, body, key)
    how = b"hash" if key is None else b"mac"
    return b'%b,"%b":"%b"}\n' % (body, how, digest.encode("ascii")), Link(after.count + 1, digest, key is not None)


def read_record(line: bytes) -> tuple[Link, JsonObject] | None:
    """The link and the record of a line; None if it is not a sealed record."""
    found = _SEALED.fullmatch(line)
    if found is None:
        return None
    try:
        record: Any = json.loads(found["body"] + b"}")  # It begins with a brace, so it is an object or no JSON.
    except (ValueError, RecursionError):
        return None
    link = Link(int(found["n"]), found["hash"].decode("ascii"), found["how"] == b"mac")
    return link, cast("JsonObject", record)


def time_in(record: JsonObject) -> float | None:
    """The time of a record; None if it has none that a clock can have shown."""
    at: Any = record.get("at")
    is_time = isinstance(at, (int, float)) and not isinstance(at, bool) and TIMES_S[0] < at <= TIMES_S[1]
    return float(at) if is_time else None


def truncated_record(line: bytes) -> JsonObject:
    """The record that follows a line cut off by a crash: its length and hash."""
    return {"kind": "torn", "bytes": len(line), "sha256": hashlib.sha256(line).hexdigest()}


@dataclass(slots=True)
class Walk:
    """Go along the lines of a log, from the oldest on, and collects what is wrong."""

    link: Link = field(default_factory=Link)
    key: bytes | None = None
    keyed_since: float | None = None
    """The time of the first record that is sealed with the key."""
    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    is_pruned: bool = False
    """True if the oldest files may have been deleted on purpose."""
    deleted: int = 0
    """Records that stood in them."""
    _torn: bytes | None = None
    _is_keyed: bool = False
    _has_unkeyed: bool = False

    @property
    def needs_key(self) -> bool:
        """True if records are sealed with a key that was not given."""
        return self._is_keyed and self.key is None

    def lines(self, lines: Iterable[bytes], place: str) -> Iterator[JsonObject]:
        """Read the lines of one file and gives out its records. Each line still has its newline, if it had one."""
        for number, line in enumerate(lines, 1):
            record = self._line(line, f"{place} line {number}")
            if record is not None:
                yield record

    def end(self, head: Head | Link | None, seen: Container[str] = ()) -> None:
        """Compare the end of the log with the one recorded beside it; `seen` are hashes that the log holds."""
        if self._torn is not None and self._torn.endswith(b"\n"):
            self.problems.append("the last line is not a record of this log")
        elif self._torn is not None:
            self.notes.append("the last line was cut off, as by a crash; the next writer will say so in the log")
        if head is None:
            self.problems.append("the file that holds the end of the log is missing, so a cut-off end could not be seen")
            return
        head = Head(head, 0) if isinstance(head, Link) else head
        if head.is_forged(self.key):
            self.problems.append("the file that holds the end of the log was not written with this key")
        finding = head.compare(self.link, seen)
        if finding == "appended" and self.link.is_keyed and self.key is not None:
            self.notes.append("the last records came after the recorded end, as by a power failure; their key is right")
        elif finding is not None:
            self.problems.append(_FINDINGS[finding].format(had=head.link.count, has=self.link.count))

    def _line(self, line: bytes, place: str) -> JsonObject | None:
        if self._torn is not None and line.endswith(b"\n"):
            torn, self._torn = self._torn, None
            return self._after_truncated(torn.rstrip(b"\n"), line, place)
        if not line.endswith(b"\n"):
            self._torn = line
            return None
        found = read_record(line[:-1])
        if found is None:
            # Perhaps a crash cut it off: then the next line says so.
            self._torn = line
            return None
        return self._record(found, line, place)

    def _after_truncated(self, torn: bytes, line: bytes, place: str) -> JsonObject | None:
        found = read_record(line[:-1])
        told = {key: found[1].get(key) for key in ("kind", "bytes", "sha256")} if found else {}
        if told == truncated_record(torn):
            self.notes.append(f"{place}: a line before it was cut off by a crash ({len(torn)} bytes)")
        else:
            self.problems.append(f"{place}: the line before it is not a record of this log")
        if found is None:
            self.problems.append(f"{place}: is not a record of this log")
            return None
        return self._record(found, line, place)

    def _record(self, found: tuple[Link, JsonObject], line: bytes, place: str) -> JsonObject:
        link, record = found
        if self.is_pruned and not self.link.count and link.count > 1 and record.get("kind") == "continued":
            self.deleted = link.count - 1
            self.link = Link(self.deleted, str(record.get("after")))
            self.notes.append(f"{place}: {self.deleted} records before it were in files that were deleted")
        body = line[: line.rindex(b',"')]
        if link.count != self.link.count + 1:
            between = f"after number {self.link.count} comes number {link.count}"
            self.problems.append(f"{place}: {between}; records were removed, moved or inserted")
        self._check_seal(link, body, record, place)
        if (kind := record.get("kind")) in FINDINGS:
            said = f"{place}: the writer found that the log had been changed: {_encode(record)}"
            (self.notes if kind == "appended" and self.key is not None else self.problems).append(said)
        elif kind == UNANCHORED:
            self.notes.append(f"{place}: the anchor held nothing of the {self.link.count} records before it")
        self.link = link
        return record

    def _check_seal(self, link: Link, body: bytes, record: JsonObject, place: str) -> None:
        if link.is_keyed and self.key is None:
            if not self._is_keyed:
                said = "this record and others are sealed with a key: they can be verified only with it"
                self.problems.append(f"{place}: {said}")
        elif _digest(self.link.hash, body, self.key if link.is_keyed else None) != link.hash:
            self.problems.append(f"{place}: record {link.count} does not follow from what stands before it")
        elif self.key is not None and not link.is_keyed and not self._has_unkeyed:
            self._has_unkeyed = True
            self.problems.append(f"{place}: record {link.count} is not sealed with the key; perhaps others are not, too")
        self._is_keyed = self._is_keyed or link.is_keyed
        if link.is_keyed and self.keyed_since is None:
            self.keyed_since = time_in(record)  # Not all that a writer says of its log has one.


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a log as it is recorded beside it: before a write as pending, after it as settled."""

    link: Link
    size: int
    before: Link = field(default_factory=Link)
    """The end before the last write; it counts while the write is pending."""
    is_pending: bool = False
    mac: str = ""

    def line(self, key: bytes | None) -> bytes:
        """The head as the one line of its file."""
        words = self._words()
        text = f"{words} {_digest('', words.encode('ascii'), key) if key is not None else NO_MAC}"
        return f"{text:<{HEAD_BYTES - 1}}\n".encode("ascii")

    @classmethod
    def read(cls, line: bytes) -> Head | None:
        """Read the line; None if it is none."""
        found = _HEAD.fullmatch(line)
        if found is None:
            return None
        word = {name: text.decode("ascii") for name, text in found.groupdict().items()}
        link, before = Link(int(word["count"]), word["hash"]), Link(int(word["before"]), word["before_hash"])
        return cls(link, int(word["size"]), before, word["state"] == "p", word["mac"])

    @property
    def is_keyed(self) -> bool:
        """True if it was written with a key."""
        return self.mac not in ("", NO_MAC)

    def is_forged(self, key: bytes | None) -> bool:
        """True if somebody without the key wrote it."""
        return key is not None and self.mac != _digest("", self._words().encode("ascii"), key)

    def compare(self, end: Link, seen: Container[str]) -> str | None:
        """The kind of change that led to another end than the recorded one; None if nothing, or a crash, explains it."""
        if (end.count, end.hash) == (self.link.count, self.link.hash):
            return None
        if self.is_pending and (end.count, end.hash) == (self.before.count, self.before.hash):
            return None
        if self.is_pending and self.before.count < end.count < self.link.count and self.before.hash in seen:
            return None
        if end.count < self.link.count:
            return "lost"
        known = self.link.hash in seen or (self.is_pending and self.before.hash in seen)
        return "appended" if known and end.count > self.link.count else "rewritten"

    def _words(self) -> str:
        state = "p" if self.is_pending else "s"
        return f"{state} {self.link.count} {self.link.hash} {self.size} {self.before.count} {self.before.hash}"


def _digest(before: str, body: bytes, key: bytes | None) -> str:
    text = before.encode("ascii") + body
    return hashlib.sha256(text).hexdigest() if key is None else hmac.digest(key, text, "sha256").hex()


def _encode(record: JsonObject) -> str:
    try:
        return _ENCODER.encode(record)
    except ValueError:  # NaN and infinity: not JSON, and no reason not to write the record down.
        return json.dumps(json.loads(json.dumps(record, default=repr), parse_constant=str), separators=(",", ":"))
