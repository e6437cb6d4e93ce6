"""`callgate audit`: verify an audit log, or print its records.

Takes a path; prints lines, or JSON for programs. Exit codes: 0 intact, 1 tampered with, 42 no such log. Writes nothing.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from callgate.cli.escaping import ascii_json, visible
from callgate.cli.render import one_line
from callgate.cli.style import echo
from callgate.errors import AuditError
from callgate.types import JsonObject

__all__ = ["audit"]

LOOK_AGAIN_S = 0.2
TAMPERED, NO_LOG = 1, 42

Output = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Lines, or JSON.")


class LogError(click.ClickException):
    """The log cannot be read."""

    exit_code = NO_LOG


@click.group()
def audit() -> None:
    """Show the audit log of calls, and verify that it is intact."""


@audit.command(name="verify", short_help="Verify that a log is intact.")
@click.argument("file")
@click.option("--head", metavar="HASH", help="A hash of the end of the log that was stored elsewhere.")
@click.option("--key", metavar="FILE", help="The file with the key that the log is sealed with.")
@click.option("--anchor", metavar="FILE", help="The anchor file, which has the ends of the log.")
@click.option("--pruned", is_flag=True, help="The oldest rotated files were deleted on purpose.")
@Output
@click.pass_context
def verify_command(
    ctx: click.Context, file: str, head: str | None, key: str | None, anchor: str | None, pruned: bool, output: str
) -> None:
    """Report records of FILE and its rotated files that were edited, deleted, moved or inserted, and a truncated end."""
    from callgate.permission.audit import verify

    try:
        found = verify(file, head=head, key=key, anchor=anchor, pruned=pruned)
    except AuditError as error:
        raise LogError(str(error)) from error
    since = {"key": found.keyed_since, "anchor": found.anchored_since} if key or anchor else None
    if output == "json":
        print(json.dumps({
            "ok": not found.problems, "records": found.link.count, "head": found.link.hash,
            "problems": found.problems, "notes": found.notes, "files": [str(path) for path in found.files],
            **({"since": since, "guarantee": found.guarantee} if since else {}),
        }))  # fmt: skip
    else:
        for problem in found.problems:
            echo([("problem", "failed"), (f"  {problem}", None)])
        for note in found.notes:
            click.echo(f"note     {visible(note)}")
        verdict = f"{len(found.problems)} problem{'s' * (len(found.problems) != 1)}" if found.problems else "intact"
        click.echo(f"{found.link.count} records, {verdict}; head {found.link.hash}")
        click.echo(found.guarantee, err=True)
    ctx.exit(TAMPERED if found.problems else 0)


@audit.command()
@click.argument("file")
@click.option("--session", metavar="ID", help="Only this session.")
@click.option("--tool", metavar="NAME", help="Only this tool.")
@Output
def show(file: str, session: str | None, tool: str | None, output: str) -> None:
    """Print the records of FILE from the oldest on."""
    from callgate.permission.audit import records_of

    try:
        _print(_filter_records(records_of(file), session, tool), output)
    except AuditError as error:
        raise LogError(str(error)) from error


@audit.command()
@click.argument("file")
@click.option("-n", "--lines", type=click.IntRange(1), default=20, help="Number of records to show; 20 by default.")
@click.option("-f", "--follow", is_flag=True, help="Wait for further records.")
@Output
def tail(file: str, lines: int, follow: bool, output: str) -> None:
    """Print the last records of FILE."""
    from callgate.permission.audit import records_of

    try:
        last = deque(records_of(file), maxlen=lines)
    except AuditError as error:
        raise LogError(str(error)) from error
    _print(last, output)
    if follow:
        _follow(Path(file), last[-1]["n"] if last else 0, output)


def _follow(path: Path, number: int, output: str) -> None:
    from callgate.permission.audit import records_of

    size = -1
    while True:
        now = path.stat().st_size if path.exists() else -1
        if now != size:
            size = now
            new = [record for record in records_of(path) if record["n"] > number]
            _print(new, output)
            number = new[-1]["n"] if new else number
        time.sleep(LOOK_AGAIN_S)


def _filter_records(records: Iterable[JsonObject], session: str | None, tool: str | None) -> Iterable[JsonObject]:
    for record in records:
        if session in (None, record.get("session")) and tool in (None, record.get("tool")):
            yield record


def _print(records: Iterable[JsonObject], output: str) -> None:
    for record in records:
        # ASCII, so that nothing in a record can steer the terminal.
        print(json.dumps(record) if output == "json" else _line(record), flush=True)


def _line(record: JsonObject) -> str:
    kind = str(record.get("kind", "?"))
    head = f"{record.get('n', '?'):>6}  {_time(record.get('at'))}  {one_line(kind, 10):<5}"
    if kind not in ("start", "end"):
        return f"{head}  {ascii_json({key: value for key, value in record.items() if key not in ('n', 'at', 'kind')})}"
    parts = [one_line(str(record.get("call", "")), 64), one_line(str(record.get("tool", "")), 100)]
    if record.get("server"):
        parts.append(f"on {one_line(str(record['server']), 100)}")
    if "args" in record:
        parts.append(ascii_json(record["args"]))
    decision: Any = record.get("decision")
    if isinstance(decision, dict):
        parts.append(f"{decision.get('verdict')} by {decision.get('by')}")  # pyright: ignore[reportUnknownMemberType]
    if "outcome" in record:
        parts.append(f"{record['outcome']} in {record.get('duration_s', 0)} s")
    if record.get("error"):
        parts.append(f"error: {record['error']}")
    return f"{head}  {one_line('  '.join(parts), 2000)}"


def _time(at: Any) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError, OverflowError, OSError):
        return "?"
