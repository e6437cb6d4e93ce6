"""The tables of a store and their version: what is there, what is missing, and how it is made.

Versions only go forward. A store of a newer version is refused before anything in it is touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from callgate.errors import StoreError
from callgate.store.dialect import Dialect, Transaction

__all__ = ["SCHEMA", "SCHEMA_VERSION", "TABLES", "SchemaState", "prepare_schema", "schema_state"]

SCHEMA_VERSION = 1

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
)
TABLES = (
    "callgate_meta", "callgate_sessions", "callgate_facts", "callgate_claims", "callgate_answers", "callgate_principals",
    "callgate_usage",
)  # fmt: skip


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


def schema_state(tx: Transaction, dialect: Dialect) -> SchemaState:
    """Look at the tables; nothing is changed."""
    found = dialect.tables(tx)
    version = None
    if "callgate_meta" in found:
        version = next((row[0] for row in tx.rows("SELECT value FROM callgate_meta WHERE key = 'schema'")), None)
    return SchemaState(version, tuple(table for table in TABLES if table not in found))


def prepare_schema(connection: Any, dialect: Dialect) -> None:
    """Make the tables of a new connection's database usable; nothing is written where they are.

    Raises:
        StoreError: another version of callgate made them.
    """
    dialect.begin(connection, durable=True)
    tx = Transaction(connection, dialect)
    state = schema_state(tx, dialect)
    if state.version not in (None, str(SCHEMA_VERSION)):
        connection.rollback()
        raise StoreError(
            f"{dialect.place} was written by another version of callgate (schema {state.version}, and this one "
            f"knows {SCHEMA_VERSION}); use that version, or another store"
        )
    if not state.is_current:
        dialect.create(tx)
        tx.run("INSERT INTO callgate_meta VALUES ('schema', ?) ON CONFLICT (key) DO NOTHING", str(SCHEMA_VERSION))
    connection.commit()
