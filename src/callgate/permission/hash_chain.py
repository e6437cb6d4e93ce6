"""A chain of records: each carries a hash of itself and of all before it, so that none can be changed, moved or taken out.

Records go in and sealed lines come out; lines go in and what is wrong with them comes out. Pure: files are `audit.py`'s
business.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from callgate.types import JsonObject

__all__ = ["GENESIS", "Chain", "Link", "Walk", "read_record", "seal", "truncated_record"]

GENESIS = "0" * 64
"""The hash before the first record."""

_SEALED = re.compile(rb'(?P<body>\{"n":(?P<n>[0-9]{1,15}),.*),"hash":"(?P<hash>[0-9a-f]{64})"\}', re.DOTALL)
_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=repr)


@dataclass(frozen=True, slots=True)
class Link:
    """The end of a chain: how many records there are, and the hash of the last one."""

    count: int = 0
    hash: str = GENESIS


@dataclass(slots=True)
class Chain:
    """A chain that grows."""

    link: Link = field(default_factory=Link)

    def seal(self, record: JsonObject) -> bytes:
        """The record as a line that follows from all before it. `n` and `hash` are put in."""
        line, self.link = seal(record, self.link)
        return line


def seal(record: JsonObject, after: Link) -> tuple[bytes, Link]:
    """The record as a line, and the end of the chain after it."""
    # Everything is ASCII: a newline, an escape or half a surrogate pair in a record cannot end its line or break its text.
    inner = _encode(record)[1:-1]
    body = f'{{"n":{after.count + 1},{inner}'.encode("ascii")
    digest = _digest(after.hash, body)
    return body + b',"hash":"' + digest.encode("ascii") + b'"}\n', Link(after.count + 1, digest)


def read_record(line: bytes) -> tuple[Link, JsonObject] | None:
    """The link and the record of a line; None if it is not a sealed record."""
    found = _SEALED.fullmatch(line)
    if found is None:
        return None
    try:
        record: Any = json.loads(found["body"] + b"}")  # It begins with a brace, so it is an object or no JSON.
    except ValueError:
        return None
    return Link(int(found["n"]), found["hash"].decode("ascii")), cast("JsonObject", record)


def truncated_record(line: bytes) -> JsonObject:
    """The record that follows a line cut off by a crash: its length and hash."""
    return {"kind": "torn", "bytes": len(line), "sha256": hashlib.sha256(line).hexdigest()}


@dataclass(slots=True)
class Walk:
    """Go along the lines of a log, from the oldest on, and collects what is wrong."""

    link: Link = field(default_factory=Link)
    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    _torn: bytes | None = None

    def lines(self, lines: Iterable[bytes], place: str) -> Iterator[JsonObject]:
        """Read the lines of one file and gives out its records. Each line still has its newline, if it had one."""
        for number, line in enumerate(lines, 1):
            record = self._line(line, f"{place} line {number}")
            if record is not None:
                yield record

    def end(self, head: Link | None) -> None:
        """Compare the end of the log against what was written beside it."""
        if self._torn is not None and self._torn.endswith(b"\n"):
            self.problems.append("the last line is not a record of this log")
        elif self._torn is not None:
            self.notes.append("the last line was cut off, as by a crash; the next writer will say so in the log")
        if head is None:
            self.problems.append("the file that holds the end of the log is missing, so a cut-off end could not be seen")
        elif head.count > self.link.count:
            self.problems.append(f"the end of the log is missing: it had {head.count} records, and has {self.link.count}")

    def _line(self, line: bytes, place: str) -> JsonObject | None:
        if self._torn is not None and line.endswith(b"\n"):
            torn, self._torn = self._torn, None
            return self._behind_torn(torn.rstrip(b"\n"), line, place)
        if not line.endswith(b"\n"):
            self._torn = line
            return None
        found = read_record(line[:-1])
        if found is None:
            # Perhaps a crash cut it off: then the next line says so.
            self._torn = line
            return None
        return self._record(found, line, place)

    def _behind_torn(self, torn: bytes, line: bytes, place: str) -> JsonObject | None:
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
        body = line[: -len(b',"hash":""}\n') - 64]
        if link.count != self.link.count + 1:
            between = f"after number {self.link.count} comes number {link.count}"
            self.problems.append(f"{place}: {between}; records were taken out, moved or put in")
        if _digest(self.link.hash, body) != link.hash:
            self.problems.append(f"{place}: record {link.count} does not follow from what stands before it")
        if record.get("kind") in ("lost", "headless"):
            self.problems.append(f"{place}: the writer found that the log had been changed: {_encode(record)}")
        self.link = link
        return record


def _digest(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode("ascii") + body).hexdigest()


def _encode(record: JsonObject) -> str:
    try:
        return _ENCODER.encode(record)
    except ValueError:  # NaN and infinity: not JSON, and no reason not to write the record down.
        return json.dumps(json.loads(json.dumps(record, default=repr), parse_constant=str), separators=(",", ":"))
