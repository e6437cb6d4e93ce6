"""Files at a provider that were uploaded before a session refers to them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from callgate.machine.facts import UploadedFile
from callgate.store import MemoryStore, open_store
from callgate.store.listing import clean
from callgate.store.sql import SqlStore
from callgate.store.uploads import UPLOADS_KEPT_S, find_upload, note_upload

FILE = UploadedFile(name="files/a", uri="https://x/files/a", mime_type="video/mp4", size=7, sha256="ab", expires_s=9.5)


def test_an_upload_is_known_to_every_process_until_the_provider_has_deleted_it(open_sql: Callable[[], SqlStore]) -> None:
    async def story() -> None:
        here, there = open_sql(), open_sql()
        await note_upload(here, UploadedFile(name="files/a", uri=FILE.uri))
        await note_upload(here, FILE)
        assert await find_upload(there, FILE.uri) == FILE
        assert await find_upload(there, "https://x/files/b") is None
        await clean(there)
        assert await find_upload(there, FILE.uri) == FILE
        await here._database.do(lambda tx: tx.run("UPDATE callgate_uploads SET at_s = at_s - ?", UPLOADS_KEPT_S))
        await clean(there)
        assert await find_upload(there, FILE.uri) is None

    asyncio.run(story())


def test_a_store_that_remembers_none_has_none(tmp_path: Path) -> None:
    async def story() -> None:
        memory = MemoryStore()
        await note_upload(memory, FILE)
        assert await find_upload(memory, FILE.uri) is None
        store = open_store(tmp_path / "s.db")
        await note_upload(store, FILE)
        await store.aclose()
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
            connection.execute("DROP TABLE callgate_uploads")  # As an older version made it.
            connection.commit()
        reader = open_store(tmp_path / "s.db", read_only=True)
        assert await find_upload(reader, FILE.uri) is None
        await reader.aclose()

    asyncio.run(story())
