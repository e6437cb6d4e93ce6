"""`callgate store`: the tables of a store, and copies of it.

A place comes in; tables, copies and sentences about them go out. What is in the sessions is none of this file's business.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click

from callgate.cli.options import store_option
from callgate.cli.render import escape
from callgate.cli.state import store_place
from callgate.store import open_store
from callgate.store.database import failure
from callgate.store.dialect import Dialect, Transaction
from callgate.store.schema import SCHEMA_VERSION, SchemaState, prepare_schema, schema_state
from callgate.store.sql import SqlStore

__all__ = ["store"]

PAGES = 1000
"""Pages of a file that are copied before others may write again."""


@click.group(short_help="The tables of a store, and copies of it.")
def store() -> None:
    """The store in which sessions are kept. Exit codes: 0, 1 an error or tables that are not current, 2 wrong usage."""


@store.command("migrate", short_help="Create the tables that are missing.")
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if something would have to be done.")
@store_option
def migrate(*, check: bool, store: str | None) -> None:
    """Brings the tables to the version that this callgate uses. Versions only go forward; a newer one is refused."""
    dialect = _dialect(store_place(store))
    try:
        with contextlib.closing(dialect.connect()) as connection:
            dialect.begin(connection, durable=True)
            state = schema_state(Transaction(connection, dialect), dialect)
            connection.rollback()
            if not check and not state.is_current:
                prepare_schema(connection, dialect)
    except Exception as error:
        raise click.ClickException(str(failure(dialect, error))) from error
    click.echo(escape(_sentence(dialect, state, check=check)))
    if check and not state.is_current:
        raise click.exceptions.Exit(1)


def _sentence(dialect: Dialect, state: SchemaState, *, check: bool) -> str:
    if state.is_current:
        return f"{dialect.place}: schema {SCHEMA_VERSION} is current"
    if state.version not in (None, str(SCHEMA_VERSION)):
        return f"{dialect.place}: schema {state.version} is not one of this callgate, which has {SCHEMA_VERSION}"
    tables = ", ".join(state.missing) or "the number of the version"
    return f"{dialect.place}: {'missing' if check else 'created'}: {tables}"


def _dialect(place: str) -> Dialect:
    opened = open_store(place)
    assert isinstance(opened, SqlStore), "a place is a file or a URL"
    return opened.dialect


@store.command("backup", short_help="A copy of a SQLite store while it is in use.")
@click.argument("target", type=click.Path(dir_okay=False))
@store_option
def backup(target: str, *, store: str | None) -> None:
    """Copies the store to the file TARGET, which must not exist. Programs may go on writing meanwhile.

    The copy is the store at one moment: sessions, times, waiting calls and idempotency keys. It is checked before it
    gets its name. PostgreSQL has pg_dump for this.
    """
    import sqlite3

    place = store_place(store)
    if "://" in place and not place.startswith("sqlite:///"):
        raise click.UsageError("backup copies SQLite files; for PostgreSQL use pg_dump")
    source, path = Path(place.removeprefix("sqlite:///")).expanduser(), Path(target)
    if path.exists():
        raise click.UsageError(f"{target} exists already")
    if not source.exists():
        raise click.ClickException(f"there is no store {source}")
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        count = _copied(source, partial)
        os.link(partial, path)  # Fails where somebody else has made the target meanwhile.
    except (OSError, sqlite3.Error) as error:
        raise click.ClickException(f"{source} could not be copied to {target}: {error}") from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)
    click.echo(escape(f"{target}: {count} sessions"))


def _copied(source: Path, target: Path) -> int:
    """Copy a database that is in use; check the copy, and return how many sessions it has."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(source)) as here, contextlib.closing(sqlite3.connect(target)) as there:
        here.execute("BEGIN").close()
        here.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()  # From here on it sees one moment of the store.
        here.backup(there, pages=PAGES)
        there.execute("PRAGMA journal_mode = DELETE").close()
        [(found,)] = there.execute("PRAGMA integrity_check(1)")
        if found != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged: {found}")
        [(count,)] = there.execute("SELECT COUNT(*) FROM callgate_sessions WHERE facts > 0")
        return int(count)
