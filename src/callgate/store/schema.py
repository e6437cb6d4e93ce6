"""The tables of a store and their version: what is there, what is missing, and how it is made.

Versions only go forward. A store of a newer version is refused before anything in it is touched.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from callgate.errors import StoreError
from callgate.store.dialect import Dialect, Transaction

__all__ = [
    "SCHEMA", "SCHEMA_VERSION", "TABLES", "MissingTablesError", "NoStoreError", "SchemaState", "check_tables",
    "check_version", "migration", "noted_version", "prepare_schema", "schema_state",
]  # fmt: skip

logger = logging.getLogger("callgate.store")

SCHEMA_VERSION = 1
_NOTE_VERSION = f"INSERT INTO callgate_meta VALUES ('schema', '{SCHEMA_VERSION}') ON CONFLICT (key) DO NOTHING"

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS callgate_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS callgate_sessions (id TEXT PRIMARY KEY, title TEXT NOT NULL, facts INTEGER NOT NULL, "
    "fence INTEGER NOT NULL, owner TEXT, expires_s {real} NOT NULL, created_s {real} NOT NULL, updated_s {real} NOT NULL)",
    "CREATE INDEX IF NOT EXISTS callgate_sessions_updated ON callgate_sessions (updated_s, id)",
    "CREATE TABLE IF NOT EXISTS callgate_facts (session TEXT NOT NULL, position INTEGER NOT NULL, body {blob} NOT NULL, "
    "PRIMARY KEY (session, position))",
    "CREATE TABLE IF NOT EXISTS callgate_claims (key TEXT PRIMARY KEY, digest TEXT NOT NULL, session TEXT NOT NULL, "
    "run TEXT NOT NULL, owner TEXT NOT NULL, position INTEGER NOT NULL, at_s {real} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS callgate_answers (session TEXT NOT NULL, call_id TEXT NOT NULL, body TEXT NOT NULL, "
    "at_s {real} NOT NULL, PRIMARY KEY (session, call_id))",
    "CREATE TABLE IF NOT EXISTS callgate_principals (session TEXT PRIMARY KEY, principal TEXT NOT NULL, "
    "at_s {real} NOT NULL)",
    "CREATE INDEX IF NOT EXISTS callgate_principals_sessions ON callgate_principals (principal, session)",
    "CREATE TABLE IF NOT EXISTS callgate_usage (principal TEXT NOT NULL, period TEXT NOT NULL, tokens BIGINT NOT NULL, "
    "cost {real} NOT NULL, PRIMARY KEY (principal, period))",
    "CREATE TABLE IF NOT EXISTS callgate_reservations (id TEXT PRIMARY KEY, principal TEXT NOT NULL, account TEXT NOT NULL, "
    "process TEXT NOT NULL, tokens BIGINT NOT NULL, cost {real} NOT NULL, expires_s {real} NOT NULL)",
    "CREATE INDEX IF NOT EXISTS callgate_reservations_accounts ON callgate_reservations (account)",
    "CREATE TABLE IF NOT EXISTS callgate_deletions (session TEXT PRIMARY KEY, at_s {real} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS callgate_uploads (uri TEXT PRIMARY KEY, body TEXT NOT NULL, at_s {real} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS callgate_rates (principal TEXT PRIMARY KEY, requests {real} NOT NULL, at_s {real} NOT NULL)",
)
TABLES = (
    "callgate_meta", "callgate_sessions", "callgate_facts", "callgate_claims", "callgate_answers", "callgate_principals",
    "callgate_usage", "callgate_reservations", "callgate_rates", "callgate_deletions",
    "callgate_uploads",
)  # fmt: skip


class NoStoreError(StoreError):
    """There are no tables of callgate, and somebody who only reads makes none."""

    def __init__(self, place: str) -> None:
        super().__init__(f"there is no store in {place}")


class MissingTablesError(StoreError):
    """Tables are gone that were there."""


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The schema of a store as it was found."""

    version: str | None
    """None where no version is noted."""
    missing: tuple[str, ...]
    """Tables that are not there."""

    @property
    def is_current(self) -> bool:
        """Return whether this version of callgate can use the tables as they are."""
        return self.version == str(SCHEMA_VERSION) and not self.missing

    @property
    def is_in_part(self) -> bool:
        """Return whether some tables are there and some are not."""
        return 0 < len(self.missing) < len(TABLES)


def schema_state(tx: Transaction, dialect: Dialect) -> SchemaState:
    """Look at the tables; nothing is changed."""
    found = dialect.tables(tx)
    version = None
    if "callgate_meta" in found:
        version = noted_version(tx)
    return SchemaState(version, tuple(table for table in TABLES if table not in found))


def prepare_schema(connection: Any, dialect: Dialect) -> None:
    """Make the tables of a new connection's database usable; nothing is written where they are, or may only be read.

    Raises:
        NoStoreError: there are none, and they may only be read.
        StoreError: another version of callgate made them.
    """
    dialect.begin(connection, durable=True)
    tx = Transaction(connection, dialect)
    state = schema_state(tx, dialect)
    try:
        if state.version is None and dialect.is_read_only:
            raise NoStoreError(dialect.place)
        check_version(state.version, dialect)
    except StoreError:
        connection.rollback()
        raise
    if not state.is_current and not dialect.is_read_only:
        _create(tx, dialect, state)
    connection.commit()
    if state.is_in_part and not dialect.is_read_only:
        logger.warning(
            "%s lacked tables, which were made: %s. They are new in this version of callgate, or they were dropped",
            dialect.place, ", ".join(state.missing),
        )  # fmt: skip


def _create(tx: Transaction, dialect: Dialect, state: SchemaState) -> None:
    try:
        dialect.create(tx)
        tx.run(_NOTE_VERSION)
    except dialect.errors as error:
        if not state.is_in_part or dialect.passing(error) is not None:
            raise
        raise StoreError(
            f"{dialect.place} lacks the tables {', '.join(state.missing)}, and they could not be made "
            f"({dialect.sentence(error)})"
        ) from error


def check_tables(tx: Transaction, dialect: Dialect) -> None:
    """See that all tables are there.

    Raises:
        MissingTablesError: some are not.
    """
    missing = schema_state(tx, dialect).missing
    if missing:
        raise MissingTablesError(f"{dialect.place} lacks the tables {', '.join(missing)}")


def migration(state: SchemaState, dialect: Dialect) -> list[str]:
    """Return the statements that bring the tables from a state to this version; none if they are current.

    Raises:
        StoreError: another version of callgate made them.
    """
    check_version(state.version, dialect)
    return [] if state.is_current else [*dialect.schema(), _NOTE_VERSION]


def check_version(version: str | None, dialect: Dialect) -> None:
    """Refuse tables of another version.

    Raises:
        StoreError: they are.
    """
    if version not in (None, str(SCHEMA_VERSION)):
        raise StoreError(
            f"{dialect.place} was written by another version of callgate (schema {version}, and this one "
            f"knows {SCHEMA_VERSION}); use that version, or another store"
        )


def noted_version(tx: Transaction) -> str | None:
    """Return the version that is noted in the table for it; None if there is none."""
    return next((str(version) for (version,) in tx.rows("SELECT value FROM callgate_meta WHERE key = 'schema'")), None)
