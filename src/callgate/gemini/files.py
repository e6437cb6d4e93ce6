"""The Files API: media that is too large for a request is uploaded in pieces, and referred to by its address.

Media comes in, uploaded files go out. An upload that breaks off goes on where the server stands; the same bytes are uploaded
once. At no time is more than one piece of a file in memory.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, BinaryIO, TypeAlias, cast
from weakref import WeakValueDictionary

from callgate import strict_json
from callgate.content.media_types import HEAD_BYTES, media_type_of
from callgate.errors import ConnectionLostError, InvalidRequestError, ModelError, ProtocolError, UsageError
from callgate.gemini.resources import ResourceClient
from callgate.machine.facts import UploadedFile
from callgate.types import JsonObject, Media

__all__ = ["FILE_BYTES_MAX", "FileUploads", "Progress"]

Progress: TypeAlias = "Callable[[int, int], Awaitable[None]]"
"""Receive the bytes that the server has, and the size of the file."""

FILE_BYTES_MAX = 2 * 1024**3
"""The size of the largest file that Google takes."""
PIECE_BYTES = 8 * 1024 * 1024
"""The size of a piece: a multiple of 256 KiB, as the protocol demands."""
SPARE_S = 3600.0
"""A file with less time left than this is uploaded anew."""
POLL_S, POLL_MAX_S, READY_S = 0.5, 5.0, 600.0
"""The first and the longest wait between looks at a file in processing, and the longest wait altogether."""


class FileUploads:
    """The files of one surface."""

    def __init__(self, client: ResourceClient) -> None:
        self._client = client
        self._known: dict[str, UploadedFile] = {}
        self._pending: dict[str, str] = {}
        """The addresses of uploads that are not complete."""
        self._processing: dict[str, JsonObject] = {}
        """Files that are complete at the server, which nobody has seen ready yet."""
        self._locks: WeakValueDictionary[tuple[str, int], asyncio.Lock] = WeakValueDictionary()
        """One upload of the same bytes at a time in each event loop; the others wait and use it."""
        self._users: dict[str, set[str]] = {}

    @property
    def takes_uploads(self) -> bool:
        """True if the surface has uploads: Vertex AI has none."""
        return self._client.surface.kind == "developer"

    async def upload(self, media: Media, progress: Progress | None = None) -> UploadedFile:
        """Upload media, unless the same bytes are there already, and wait until it can be used.

        Raises:
            UsageError: the file cannot be read or is too large, or the surface has no files.
            ModelError: the server refused it, or could not be reached.
        """
        if not self.takes_uploads:
            raise UsageError("Vertex AI has no file uploads: put the file into Cloud Storage and pass Media(uri='gs://...')")
        source = _Source(media)
        try:
            digest, kind = await asyncio.to_thread(source.measure)
            if source.size > FILE_BYTES_MAX:
                raise UsageError(f"{source.name!r} has {source.size:,} bytes, and Gemini takes files of at most 2 GiB")
            key = f"{digest} {kind}"  # The same bytes of another type are another file.
            place = (key, id(asyncio.get_running_loop()))
            lock = self._locks.get(place)
            if lock is None:
                lock = self._locks[place] = asyncio.Lock()
            async with lock:
                known = self._known.get(key)
                if known is not None and await self._is_usable(known):
                    return known
                found = await self._in_processing(key)
                if found is None:
                    found = await self._upload(source, key, kind, progress)
                    await self._refuse_changed(source, found, digest)
                    self._processing[key] = found
                try:
                    file = self._known[key] = await self._ready(found, digest)
                except InvalidRequestError:  # It is deleted, or gone.
                    del self._processing[key]
                    raise
                del self._processing[key]
                return file
        finally:
            source.close()

    def find(self, uri: str) -> UploadedFile | None:
        """Return the file that was uploaded here under this address."""
        return next((file for file in self._known.values() if file.uri == uri), None)

    def use(self, file: UploadedFile, session: str) -> None:
        """Note that a session refers to a file."""
        self._users.setdefault(file.name, set()).add(session)

    def release(self, file: UploadedFile, session: str) -> None:
        """Note that a session does not refer to a file any more."""
        self._users.get(file.name, set()).discard(session)

    async def delete(self, file: UploadedFile, session: str) -> bool:
        """Delete a file of a session, unless another session of this process refers to it; True if it is gone.

        Raises:
            ModelError: the server could not be reached.
        """
        self.release(file, session)
        if self._users.get(file.name):
            return False
        self._known = {digest: known for digest, known in self._known.items() if known.name != file.name}
        try:
            await self._client.call("DELETE", file.name)
        except ModelError as error:
            if not _is_gone(error):
                raise
        return True

    # Internals ------------------------------------------------------------------------------------------------------------

    async def _is_usable(self, file: UploadedFile) -> bool:
        """True if a file that was uploaded before is still at the server, and stays for a while."""
        if file.expires_s is not None and file.expires_s <= time.time() + SPARE_S:
            return False
        try:
            await self._client.call("GET", file.name)
        except ModelError as error:
            if not _is_gone(error):
                raise
            return False
        return True

    async def _in_processing(self, key: str) -> JsonObject | None:
        """Return a file that was uploaded by a run which did not wait until it was ready, as it is now at the server."""
        found = self._processing.get(key)
        try:
            return None if found is None else await self._client.call("GET", str(found.get("name")))
        except ModelError as error:
            if not _is_gone(error):
                raise
            del self._processing[key]
            return None

    async def _upload(self, source: _Source, key: str, kind: str, progress: Progress | None) -> JsonObject:
        """Send a file in pieces; one that was begun before goes on."""
        url = self._pending.get(key)
        offset = 0
        if url is not None:
            offset = await self._received(url)
        if url is None or offset < 0:
            offset = 0
            url = self._pending[key] = await self._begin(source, kind)
        failures = 0
        while True:
            if progress is not None:
                await progress(offset, source.size)
            piece = await asyncio.to_thread(source.read, offset, PIECE_BYTES)
            is_last = offset + len(piece) >= source.size
            headers = {
                "content-type": "application/octet-stream",
                "x-goog-upload-command": "upload, finalize" if is_last else "upload",
                "x-goog-upload-offset": str(offset),
            }
            try:
                _, answer = await self._client.send("POST", url, headers=headers, content=piece, attempts=1, with_key=False)
            except ModelError as error:
                failures += 1
                if not error.retryable or failures >= self._client.limits.attempts:
                    raise  # What the server has stays there: the next attempt goes on.
                await self._client.clock.sleep(
                    min(self._client.limits.backoff_max_s, self._client.limits.backoff_s * failures)
                )
                offset = await self._received(url)
                if offset < 0:
                    raise
                continue
            failures = 0
            offset += len(piece)
            if is_last:
                self._pending.pop(key, None)
                if progress is not None:
                    await progress(source.size, source.size)
                return cast("JsonObject", answer.get("file") or answer)

    async def _refuse_changed(self, source: _Source, found: JsonObject, digest: str) -> None:
        """Refuse an upload of other bytes than were measured: prompts with the measured ones would refer to it.

        Raises:
            UsageError: the file was written to meanwhile.
        """
        if await asyncio.to_thread(source.is_unchanged, digest) and _is_hash(found.get("sha256Hash"), digest):
            return
        with contextlib.suppress(ModelError):  # It expires by itself.
            await self._client.call("DELETE", str(found.get("name")), attempts=1)
        raise UsageError(f"{source.name!r} has changed while it was uploaded: try again when nothing writes to it")

    async def _begin(self, source: _Source, kind: str) -> str:
        headers = {
            "x-goog-upload-protocol": "resumable",
            "x-goog-upload-command": "start",
            "x-goog-upload-header-content-length": str(source.size),
            "x-goog-upload-header-content-type": kind,
        }
        body = strict_json.dump({"file": {"displayName": source.name[:500], "mimeType": kind}})
        url = self._client.surface.collection("files", upload=True)
        got, _ = await self._client.send("POST", url, headers=headers, content=body)
        address = got.get("x-goog-upload-url")
        if not address:
            raise ProtocolError("the server did not say where to upload the file to", retryable=True)
        return address

    async def _received(self, url: str) -> int:
        """Return how many bytes the server has of an upload; -1 if it does not know it any more."""
        try:
            got, _ = await self._client.send("POST", url, headers={"x-goog-upload-command": "query"}, with_key=False)
        except InvalidRequestError:
            return -1
        size, status = got.get("x-goog-upload-size-received", ""), got.get("x-goog-upload-status", "active")
        return int(size) if status == "active" and size.isdigit() else -1

    async def _ready(self, found: JsonObject, digest: str) -> UploadedFile:
        """Wait until a file can be used."""
        clock, wait_s = self._client.clock, POLL_S
        until = clock.now() + READY_S
        while (state := str(found.get("state", "ACTIVE"))) == "PROCESSING":
            if clock.now() >= until:
                raise ConnectionLostError(
                    f"{found.get('name')!r} is still in processing after {READY_S:g} s", retryable=True
                )
            await clock.sleep(wait_s)
            wait_s = min(POLL_MAX_S, wait_s * 2)
            found = await self._client.call("GET", str(found.get("name")))
        if state != "ACTIVE":
            error: Any = found.get("error")
            why = cast("JsonObject", error).get("message") if isinstance(error, dict) else state
            with contextlib.suppress(ModelError):  # It expires by itself.
                await self._client.call("DELETE", str(found.get("name")), attempts=1)
            raise InvalidRequestError(f"the server could not process {found.get('displayName')!r}: {why}", status=state)
        size = str(found.get("sizeBytes", "0"))
        return UploadedFile(
            name=str(found["name"]),
            uri=str(found["uri"]),
            mime_type=str(found.get("mimeType", "")),
            size=int(size) if size.isdigit() else 0,
            sha256=digest,
            expires_s=_seconds(found.get("expirationTime")),
        )


class _Source:
    """The bytes of media, read piece by piece."""

    def __init__(self, media: Media) -> None:
        self._media = media
        self._file: BinaryIO | None = None
        self.name = media.name or os.path.basename(media.path or "") or "media"
        self.size = len(media.data)
        self._sent = hashlib.sha256()
        """The hash of what was read, as long as that was in order."""
        self._read_to = 0
        self._in_order = True

    def measure(self) -> tuple[str, str]:
        """Return the hash and the MIME type.

        Raises:
            UsageError: the file cannot be read, or nothing tells its type.
        """
        digest = hashlib.sha256(self._media.data)
        head = self._media.data[:HEAD_BYTES]
        if self._media.path is not None:
            try:
                self._file = open(self._media.path, "rb")  # noqa: SIM115 - closed by `close`
                self.size = os.fstat(self._file.fileno()).st_size
                head = self._file.read(HEAD_BYTES)
                self._file.seek(0)
                digest = hashlib.file_digest(self._file, "sha256")
            except OSError as error:
                raise UsageError(f"{self._media.path!r} cannot be read: {error.strerror}") from error
        if not self.size:
            raise UsageError(f"{self.name!r} is empty")
        kind = self._media.mime_type or media_type_of(head, self.name)
        if not kind:
            raise UsageError(f"the type of {self.name!r} is not known: pass Media(..., mime_type='video/mp4')")
        return digest.hexdigest(), kind

    def read(self, offset: int, size: int) -> bytes:
        """Return some bytes of it."""
        if self._file is None:
            return self._media.data[offset : offset + size]
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) < min(size, self.size - offset):
            raise UsageError(f"{self.name!r} has become shorter while it was uploaded")
        self._in_order = self._in_order and offset == self._read_to
        if self._in_order:
            self._sent.update(data)
            self._read_to += len(data)
        return data

    def is_unchanged(self, digest: str) -> bool:
        """True if the bytes that were read are those that were measured; if not all were read, those of the file now."""
        if self._file is None:
            return True
        if self._in_order and self._read_to == self.size:
            return self._sent.hexdigest() == digest
        self._file.seek(0)
        return hashlib.file_digest(cast("Any", self._file), "sha256").hexdigest() == digest

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _is_hash(said: Any, digest: str) -> bool:
    """True if a hash of the server is this one; it sends the digits in base64. One that cannot be read says nothing."""
    try:
        found = base64.b64decode(str(said or ""), validate=True)
    except (binascii.Error, ValueError):
        return True
    known = (digest.encode(), bytes.fromhex(digest))
    return found in known or len(found) not in map(len, known)


def _is_gone(error: ModelError) -> bool:
    return "may not exist" in str(error) or "404" in str(error)


def _seconds(value: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None
