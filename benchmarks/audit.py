"""What the audit log costs: processor time for the two records of a call, beside a bare `json.dumps` and `write` of them.

Both write the same records to a file in the same minute, in turns, without waiting for the disk. Every call has its own id
and its own arguments, so that nothing is remembered from the one before. The figure is the median of several rounds.

    python benchmarks/audit.py       ends with 1 if a goal is missed
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from callgate.permission.audit import AuditLog, verify

CALLS = 2_000
ROUNDS = 9
PAIR_US_MAX = 80.0
"""Microseconds of processor time for the record before and the record after."""


def records(n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    about = {"session": "chat-0f3a9c12b4de", "call": f"call_{n:012x}", "tool": "write_file"}
    decision = {"verdict": "allow", "by": "user", "reason": "'write_file' may change something."}
    args = {"path": f"src/module_{n}.py", "content": f"def f{n}():\n    return {n}\n" * 4, "append": False}
    start = {
        "kind": "start",
        **about,
        "server": None,
        "digest": "6f2a90b1c3d4e5f6",
        "args": args,
        "notes": [],
        "edited": False,
    }
    end = {"kind": "end", **about, "outcome": "finished", "duration_s": 0.001234, "error": None, "notes": []}
    return start | {"decision": decision}, end


def seconds(write: Callable[[dict[str, Any]], None], first: int) -> float:
    pairs = [records(first + n) for n in range(CALLS)]
    before = time.process_time()
    for start, end in pairs:
        write(start)
        write(end)
    return time.process_time() - before


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        log = AuditLog(Path(folder) / "audit.jsonl")
        bare = os.open(Path(folder) / "bare.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(ROUNDS):
            ours.append(seconds(lambda record: log.write([record]), turn * CALLS))
            theirs.append(seconds(lambda record: os.write(bare, json.dumps(record).encode() + b"\n") and None, turn * CALLS))
        os.close(bare)
        found = verify(log.path)
        assert found.problems == ()
        assert found.link.count == 2 * CALLS * ROUNDS
        batch = [records(n)[0] for n in range(100)]
        before = time.process_time()
        log.write(batch, durable=True)
        batch_us = (time.process_time() - before) / len(batch) * 1e6
    pair_us, bare_us = (statistics.median(times) / CALLS * 1e6 for times in (ours, theirs))
    print(f"pair of records      {pair_us:7.1f} us of processor time (goal: at most {PAIR_US_MAX:g})")
    print(f"bare dumps and write {bare_us:7.1f} us; chain, redaction and head cost {pair_us / bare_us:.1f} times that")
    print(f"one of a batch       {batch_us:7.1f} us for a start among 100 that are written and synced together")
    return 0 if pair_us <= PAIR_US_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
