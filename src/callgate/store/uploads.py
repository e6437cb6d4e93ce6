"""Uploads: files at a provider that were uploaded before a session refers to them, known to every process of a store.

A file that one process uploads for a prompt may be used at another one, which has to know that it is to be deleted with the
session. Providers keep such files for two days; so long they are remembered. `Store` asks for none of these methods.
"""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeGuard

from callgate.machine.facts import UploadedFile

if TYPE_CHECKING:
    from callgate.store.database import Database
    from callgate.store.dialect import Dialect, Transaction
    from callgate.store.protocol import Store

__all__ = ["SqlUploads", "clean_uploads", "find_upload", "note_upload"]

UPLOADS_KEPT_S = 3 * 24 * 3600.0
"""Seconds that an upload is remembered: longer than providers keep it."""


class Uploads(Protocol):
    """Optional methods of a store that remembers uploads."""

    async def note_upload(self, file: UploadedFile) -> None:
        """Remember a file."""
        ...

    async def find_upload(self, uri: str) -> UploadedFile | None:
        """Return the file of this address, if it was uploaded by a program with this store."""
        ...


def _remembers(store: object) -> TypeGuard[Uploads]:
    return hasattr(store, "find_upload")


async def note_upload(store: Store, file: UploadedFile) -> None:
    """Remember a file, where a store does.

    Raises:
        StoreError: the store cannot be used.
    """
    if _remembers(store):
        await store.note_upload(file)


async def find_upload(store: Store, uri: str) -> UploadedFile | None:
    """Return the file of this address, if a program with this store has uploaded it, and the store remembers that.

    Raises:
        StoreError: the store cannot be used.
    """
    return await store.find_upload(uri) if _remembers(store) else None


class SqlUploads:
    """Uploads as rows of a table."""

    _database: Database
    _dialect: Dialect
    patience_s: float

    async def note_upload(self, file: UploadedFile) -> None:
        """Remember a file.

        Raises:
            StoreError: the database cannot be used.
        """
        await self._database.do(partial(_note, file=file))

    async def find_upload(self, uri: str) -> UploadedFile | None:
        """Return the file of this address, if it was uploaded by a program with this store.

        Raises:
            StoreError: the database cannot be used.
        """
        work = partial(_found, dialect=self._dialect, uri=uri)
        return await self._database.do(work, reads=True, silence_s=self.patience_s)


def clean_uploads(tx: Transaction) -> None:
    """Forget old uploads."""
    tx.run("DELETE FROM callgate_uploads WHERE at_s <= ?", tx.now_s() - UPLOADS_KEPT_S)


def _note(tx: Transaction, *, file: UploadedFile) -> None:
    sql = "INSERT INTO callgate_uploads VALUES (?, ?, ?) ON CONFLICT (uri) DO UPDATE SET body = excluded.body, "
    tx.run(f"{sql}at_s = excluded.at_s", file.uri, json.dumps(dataclasses.asdict(file)), tx.now_s())


def _found(tx: Transaction, *, dialect: Dialect, uri: str) -> UploadedFile | None:
    if "callgate_uploads" not in dialect.tables(tx):  # An older version made the tables, and they are only read.
        return None
    rows = tx.rows("SELECT body FROM callgate_uploads WHERE uri = ?", uri)
    return UploadedFile(**json.loads(rows[0][0])) if rows else None
