"""Holds the coverage that was measured against the table in pyproject.toml.

`coverage json` output in, sentences and an exit status out: 0 all held, 1 something is below its minimum, 2 nothing could
be judged. Statements and branches count each by itself, so a file full of straight lines cannot hide untested branches.

    python scripts/coverage_gate.py build/coverage.json [pyproject.toml]
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = "src/callgate/"


class UnusableError(Exception):
    """The measurement or the table cannot be judged; the message says why and what to do."""


class Count(NamedTuple):
    """How many statements and branches there are, and how many of them were run."""

    statements: int = 0
    statements_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def plus(self, other: Count) -> Count:
        return Count(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def shortfalls(self, minimum: float) -> list[str]:
        """What is below `minimum` per cent, in words; exact, so 99.99 % is not 100 %."""
        kinds = (("statements", self.statements_run, self.statements), ("branches", self.branches_run, self.branches))
        return [
            f"{run} of {total} {kind} ({percent(run, total)})" for kind, run, total in kinds if run * 100 < minimum * total
        ]


def percent(run: int, total: int) -> str:
    """A share with two decimals, rounded down: only a full house reads 100.00 %."""
    hundredths = 10_000 if total == 0 else run * 10_000 // total
    return f"{hundredths // 100}.{hundredths % 100:02d} %"


def counts_of(measured: Mapping[str, Any]) -> dict[str, Count]:
    """The counts of each file, by its path inside the package."""
    if not measured.get("meta", {}).get("branch_coverage"):
        raise UnusableError("the coverage data holds no branches; measure with `branch = true` in [tool.coverage.run]")
    counts: dict[str, Count] = {}
    for path, file in measured["files"].items():
        _, found, inside = f"/{path}".replace("\\", "/").rpartition(f"/{PACKAGE}")
        if found:
            of = file["summary"]
            counts[inside] = Count(of["num_statements"], of["covered_lines"], of["num_branches"], of["covered_branches"])
    if not counts:
        raise UnusableError(f"the coverage data holds no file of {PACKAGE}; run `make test` first")
    return counts


def breaches(counts: Mapping[str, Count], table: Mapping[str, Any]) -> list[str]:
    """Every row of the table that does not hold, as a sentence."""
    found: list[str] = []
    overall = total_of(counts.values()).shortfalls(table["overall"])
    if overall:
        found.append(f"the whole package must reach {table['overall']} %, but ran {' and '.join(overall)}")
    for row, minimum in table.get("modules", {}).items():
        files = {
            path: count for path, count in counts.items() if path == row or (row.endswith("/") and path.startswith(row))
        }
        if not files:
            found.append(f"the table asks for {minimum} % of {row!r}, but no such file was measured; fix or remove that row")
        for path, count in sorted(files.items()):
            short = count.shortfalls(minimum)
            if short:
                found.append(f"{path} must reach {minimum} % (row {row!r}), but ran {' and '.join(short)}")
    return found


def total_of(counts: Iterable[Count]) -> Count:
    total = Count()
    for count in counts:
        total = total.plus(count)
    return total


def table_of(pyproject: Path) -> dict[str, Any]:
    """The table `[tool.callgate.coverage]`."""
    table = tomllib.loads(pyproject.read_text("utf-8")).get("tool", {}).get("callgate", {}).get("coverage", {})
    if "overall" not in table:
        raise UnusableError(f"{pyproject} has no 'overall' in [tool.callgate.coverage]; write the least per cent there")
    return table


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print("usage: coverage_gate.py COVERAGE_JSON [PYPROJECT]", file=sys.stderr)
        return 2
    pyproject = Path(arguments[1]) if len(arguments) == 2 else Path(__file__).resolve().parent.parent / "pyproject.toml"
    try:
        counts = counts_of(json.loads(Path(arguments[0]).read_text("utf-8")))
        found = breaches(counts, table_of(pyproject))
    except (OSError, ValueError, KeyError, UnusableError) as error:
        print(f"coverage-gate: cannot judge: {error}", file=sys.stderr)
        return 2
    for sentence in found:
        print(f"coverage-gate: {sentence}", file=sys.stderr)
    total = total_of(counts.values())
    print(
        f"coverage-gate: {'failed' if found else 'held'}: {percent(total.statements_run, total.statements)} of statements, "
        f"{percent(total.branches_run, total.branches)} of branches"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
