"""`callgate store`: the tables of a store, and copies of it.

A place comes in; tables, copies and sentences about them go out. What is in the sessions is none of this file's business.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import click

from callgate.cli.options import store_option
from callgate.cli.render import escape
from callgate.cli.state import is_missing, store_place
from callgate.cli.style import counted
from callgate.errors import StoreError, UsageError
from callgate.store import open_store
from callgate.store.dialect import Dialect, Transaction
from callgate.store.lane import failure
from callgate.store.schema import SCHEMA_VERSION, TABLES, SchemaState, migration, prepare_schema, schema_state
from callgate.store.sql import SqlStore
from callgate.store.store_reader import DIGEST_KEY
from callgate.store.transfer import SAME_STORE, Transfer, copy_store, store_digest

__all__ = ["store"]

_FILES = ("", "-wal", "-shm", "-journal")
"""A SQLite database, and what SQLite puts beside it."""
_PARTIAL = ".callgate-partial"
"""The end of the name of a backup that is not finished."""
_ABANDONED_S = 24 * 3600.0


@click.group()
def store() -> None:
    """Migrate, back up and copy the store of sessions.

    Exit codes: 0, 1 an error or tables that are not current, 2 wrong usage.
    """


@store.command("migrate", short_help="Create the tables that are missing.")
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if a migration is needed.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print the SQL that would be executed.")
@store_option
def migrate(*, check: bool, dry_run: bool, store: str | None) -> None:
    """Update the tables to the version that this callgate uses. A newer version is refused."""
    if check and dry_run:
        raise click.UsageError("--check and --dry-run exclude each other")
    place = store_place(store)
    dialect = _dialect(place)
    try:
        state = SchemaState(None, TABLES) if is_missing(place) else _state_of(dialect)
        statements = migration(state, dialect) if dry_run else []
        if not check and not dry_run and not state.is_current:
            with contextlib.closing(dialect.connect()) as connection:
                prepare_schema(connection, dialect)
    except Exception as error:
        raise click.ClickException(escape(str(failure(dialect, error)))) from error
    if dry_run:
        click.echo(
            "\n".join(["BEGIN;", *(f"{one};" for one in statements), "COMMIT;"]) if statements else "-- nothing to do"
        )
        return
    click.echo(escape(_sentence(dialect, state, check=check)))
    if check and not state.is_current:
        raise click.exceptions.Exit(1)


def _state_of(dialect: Dialect) -> SchemaState:
    with contextlib.closing(dialect.connect_to_read()) as connection:
        dialect.begin_snapshot(connection)
        return schema_state(Transaction(connection, dialect), dialect)


def _sentence(dialect: Dialect, state: SchemaState, *, check: bool) -> str:
    if state.is_current:
        return f"{dialect.place}: schema {SCHEMA_VERSION} is current"
    if state.version not in (None, str(SCHEMA_VERSION)):
        return f"{dialect.place}: schema {state.version} is not one of this callgate, which has {SCHEMA_VERSION}"
    tables = ", ".join(state.missing) or "the number of the version"
    return f"{dialect.place}: {'missing' if check else 'created'}: {tables}"


def _dialect(place: str) -> Dialect:
    try:
        opened = open_store(place)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    assert isinstance(opened, SqlStore), "a place is a file or a URL"
    return opened.dialect


@contextlib.contextmanager
def _ending_by_terminate() -> Generator[None]:
    """Let SIGTERM end the program as an exception, so that it cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# Copies ------------------------------------------------------------------------------------------------------------------


@store.command("backup", short_help="Copy the store to a file, also while it is in use.")
@click.argument("target", type=click.Path(dir_okay=False))
@store_option
@_ending_by_terminate()
def backup(target: str, *, store: str | None) -> None:
    """Copy the store to the file TARGET, which must not exist. Other programs may continue to write to it.

    The copy is the store at one moment: sessions, times, waiting calls and idempotency keys. It is a SQLite store, whatever
    the source is; it is compared with the source by hash before it gets its name, and has the hash in it.
    """
    import sqlite3

    from callgate.store.sqlite import sqlite_store

    source, path = _existing(store_place(store)), Path(target)
    if not target or os.path.lexists(path):
        raise click.UsageError(f"{target} exists already" if target else "name the file of the backup")
    if not path.parent.is_dir():
        raise click.UsageError(f"the folder {str(path.parent)!r} of the backup does not exist: create it")
    _clear_abandoned(path.parent)
    partial = path.with_name(f".{secrets.token_hex(8)}{_PARTIAL}")
    held = -1
    try:
        held = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _is_locked(held)  # By this process, from here on.
        with _sentences():
            done = _with_bar("Copying", source, sqlite_store(partial).dialect, is_private=True)
        _seal(partial, done)
        _give_name(partial, path)
    except (OSError, sqlite3.Error, click.ClickException) as error:
        message = error.message if isinstance(error, click.ClickException) else escape(str(error))
        if "disk" in message and "full" in message:
            message = "its disk is full"
        raise click.ClickException(f"{escape(target)} was not made, and nothing is left of it: {message}") from error
    finally:
        _remove(partial)
        if held >= 0:
            os.close(held)
    click.echo(escape(f"{target}: {_counts(done)}"))


def _clear_abandoned(folder: Path) -> None:
    """Remove what backups left that were killed; one that takes longer than a day would not be one."""
    for partial in folder.glob(f".*{_PARTIAL}"):
        with contextlib.suppress(OSError):
            newest_s = max(file.stat().st_mtime for file in folder.glob(f"{glob.escape(partial.name)}*"))
            if newest_s < time.time() - _ABANDONED_S and not _is_in_work(partial):
                _remove(partial)


def _is_locked(file: int) -> bool:
    """Lock a file for this process as long as it is open; return True if another process has locked it."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # Windows, and file systems without locks.
        return False
    return False


def _is_in_work(partial: Path) -> bool:
    """Return whether a process still writes a backup: where a clock jumps, every file looks old."""
    file = os.open(partial, os.O_RDWR)
    try:
        return _is_locked(file)
    finally:
        os.close(file)


def _remove(partial: Path) -> None:
    for suffix in _FILES:
        partial.with_name(partial.name + suffix).unlink(missing_ok=True)


def _give_name(partial: Path, path: Path) -> None:
    """Give a finished backup its name, which nobody must have taken meanwhile; the name is on the disk then."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:  # There are file systems without hard links.
        if os.path.lexists(path):
            raise
        os.rename(partial, path)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@store.command("restore", short_help="Copy a backup to an empty store.")
@click.argument("file", metavar="BACKUP", type=click.Path(dir_okay=False))
@store_option
def restore(file: str, *, store: str | None) -> None:
    """Copy everything in BACKUP to the store, a file or a database, which has no other sessions.

    The backup is compared with the hash in it before anything is written; a plain copy of a file has none, and a message
    says so. A store in which a session of the backup was continued or is in use is refused, before anything is written as
    well. If the command is interrupted, repeat it.
    """
    source, target = _existing(file), _dialect(store_place(store))
    with _sentences():
        found, noted = store_digest(source)
        if noted not in (None, found):
            raise StoreError(f"{file} is damaged: its hash is {found}, and was {noted} when it was made; use another backup")
        if noted is None:
            click.echo(escape(f"{file} has no hash in it, as backups have: what it lost before is not noticed"), err=True)
        done = _with_bar("Restoring", source, target, others_allowed=False, with_deleted=True)
    _report(done, target)


@store.command("copy", short_help="Copy all sessions to another store.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--with-deleted", is_flag=True, help="Copy sessions again that were deleted in TO.")
def copy(source: str, target: str, *, with_deleted: bool) -> None:
    """Copy everything in the store FROM to the store TO; each is a SQLite file or postgresql://...

    Both may be in use. Sessions that only TO has are kept. Repeat the command to copy what was added to FROM since, or to
    continue after an interruption. A session that was continued in TO is not changed, and the exit code is then 1; one that
    was deleted there stays deleted.
    """
    origin, goal = _existing(source), _dialect(store_place(target) if target else target)
    if origin.place == goal.place or (Path(source).exists() and Path(target).exists() and Path(source).samefile(target)):
        raise click.UsageError(SAME_STORE)
    with _sentences():
        done = _with_bar("Copying", origin, goal, with_deleted=with_deleted)
    _report(done, goal)


def _existing(place: str) -> Dialect:
    """Return the dialect of a store; a file that is not there is not made."""
    if is_missing(place):
        raise click.ClickException(escape(f"there is no store {place}"))
    return _dialect(place)


@contextlib.contextmanager
def _sentences() -> Generator[None]:
    try:
        yield
    except StoreError as error:
        raise click.ClickException(escape(str(error))) from error
    except KeyboardInterrupt:
        click.echo("interrupted: repeat the command to continue", err=True)
        raise


def _with_bar(
    label: str,
    source: Dialect,
    target: Dialect,
    *,
    others_allowed: bool = True,
    is_private: bool = False,
    with_deleted: bool = False,
) -> Transfer:
    """Copy a store, and show how far it is on a terminal."""
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        return copy_store(
            source,
            target,
            progress=progress,
            others_allowed=others_allowed,
            is_private=is_private,
            with_deleted=with_deleted,
        )


def _seal(path: Path, done: Transfer) -> None:
    """Note the hash in a backup, and make it one file that is on the disk."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO callgate_meta VALUES (?, ?)", (DIGEST_KEY, done.sha256))
        connection.commit()
        connection.execute("PRAGMA journal_mode = DELETE").close()
        [(found,)] = connection.execute("PRAGMA integrity_check(1)")
        if found != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged: {found}")
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _counts(done: Transfer) -> str:
    return f"{done.sessions} sessions, {done.facts} facts, {done.keys} idempotency keys, verified; sha256 {done.sha256}"


def _report(done: Transfer, target: Dialect) -> None:
    others = f"; {done.others} other sessions are there, too" if done.others else ""
    click.echo(escape(f"{target.place}: {_counts(done)}; {done.written} facts were new{others}"))
    if done.deleted:
        which = counted(done.deleted, "session")
        click.echo(f"not copied: {which} deleted there since; to copy deleted ones again: --with-deleted", err=True)
    for conflict in done.conflicts:
        click.echo(escape(f"not copied: {conflict}"), err=True)
    if done.conflicts:
        raise click.exceptions.Exit(1)
