"""Media of a prompt: what fits is put into the request, what does not is uploaded first.

Takes a prompt and the files of a model; returns parts that can be journalled, and the files that were uploaded for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from callgate.content.build import media_part
from callgate.content.prompt import Prompt, user_content
from callgate.content.read import is_response, media_of, parts_of, response_media
from callgate.errors import UsageError
from callgate.events import Event, Notice
from callgate.machine.facts import Fact, UploadedFile
from callgate.machine.machine import RunMachine
from callgate.models import Model, members_of
from callgate.store import Store
from callgate.types import Media, Part

__all__ = [
    "ModelFiles", "delete_caches", "delete_files", "files_of", "inline_bytes", "release_files", "sendable_prompt",
    "use_files",
]  # fmt: skip


class ModelFiles(Protocol):
    """The files of a model: media that is uploaded before it is referred to."""

    @property
    def takes_uploads(self) -> bool:
        """True if media can be uploaded there."""
        ...

    async def upload(self, media: Media, progress: Callable[[int, int], Awaitable[None]] | None = None) -> UploadedFile:
        """Upload media, and wait until it can be used."""
        ...

    def find(self, uri: str) -> UploadedFile | None:
        """Return the file with this address, if it was uploaded here."""
        ...

    def use(self, file: UploadedFile, session: str) -> None:
        """Note that a session refers to a file."""
        ...

    def release(self, file: UploadedFile, session: str) -> None:
        """Note that a session does not refer to a file any more."""
        ...

    async def delete(self, file: UploadedFile, session: str) -> bool:
        """Delete a file of a session."""
        ...


def files_of(model: Model) -> ModelFiles | None:
    """The files of a model, if it has uploads."""
    return getattr(model, "files", None)


async def sendable_prompt(
    prompt: Prompt | None,
    model: Model,
    emit: Callable[[Event], Awaitable[None]] | None,
    sent_before: Callable[[], Awaitable[int]],
    store: Store,
) -> tuple[Prompt | None, tuple[UploadedFile, ...]]:
    """Return a prompt without paths and without media that is too large, and the files that it refers to.

    `sent_before` gives the bytes of media that the request has already, in the contents before the prompt; the store
    knows the files that other processes have uploaded.

    Raises:
        UsageError: a file cannot be read, or is too large for this model.
        ModelError: an upload failed.
        StoreError: the store cannot be used.
    """
    items: Any = [prompt] if isinstance(prompt, (Media, Path, bytes, bytearray, memoryview)) else prompt
    if not isinstance(items, (list, tuple)) or not any(map(_needs_work, cast("list[Any]", items))):
        return prompt, ()
    from callgate.media_files import INLINE_BYTES_MAX, name_of, read_media, with_type  # Most prompts are text.

    # What cannot be sent is refused before anything is uploaded.
    user_content([_STAND_IN if isinstance(item, Media) or _media_in(item) else item for item in cast("list[Any]", items)])
    files, uploaded = files_of(model), dict[str, UploadedFile]()
    used = await sent_before() if files is not None and files.takes_uploads else 0
    sent: list[Any] = []
    for item in cast("list[Any]", items):
        media = _media_in(item)
        if media is None:
            uri = _uri_in(item)
            if files is not None and uri is not None:
                from callgate.store.uploads import find_upload

                known = files.find(uri) or await find_upload(store, uri)
                uploaded |= {} if known is None else {known.name: known}
            sent.append(with_type(item) if isinstance(item, Media) else item)
            continue
        size = await asyncio.to_thread(_size_of, media)
        if used + size <= INLINE_BYTES_MAX:
            used += size
            sent.append(await asyncio.to_thread(read_media, media))
            continue
        if files is None:
            raise UsageError(
                f"{name_of(media)!r} has {size:,} bytes; {_first_name(model)!r} takes at most {INLINE_BYTES_MAX:,} bytes "
                "of media in a prompt, and has no uploads"
            )
        file = await files.upload(media, None if emit is None else _reporter(name_of(media), emit))
        uploaded[file.name] = file
        sent.append(media_part(Media(uri=file.uri, mime_type=file.mime_type)))
    return sent, tuple(uploaded.values())


def use_files(model: Model, files: Iterable[UploadedFile], session: str) -> None:
    """Note that a session refers to files."""
    for file in files:
        uploads = files_of(model)
        if uploads is not None:
            uploads.use(file, session)


def inline_bytes(contents: Iterable[Mapping[str, Any]]) -> int:
    """The bytes of media in contents, also in results of tools."""
    found = 0
    for content in contents:
        for part in parts_of(content):
            inner = response_media(part) if is_response(part) else [part]
            found += sum(len((media_of(one) or {}).get("data", "")) for one in inner)
    return found * 3 // 4


def release_files(model: Model, files: Iterable[UploadedFile], session: str) -> None:
    """Note that a session does not refer to files any more."""
    uploads = files_of(model)
    if uploads is not None:
        for file in files:
            uploads.release(file, session)


async def delete_files(model: Model, files: Iterable[UploadedFile], session: str) -> int:
    """Delete the files of a session at the provider; return how many are gone.

    Raises:
        ModelError: the provider could not be reached.
    """
    uploads = files_of(model)
    return 0 if uploads is None else sum([await uploads.delete(file, session) for file in files])


async def delete_caches(model: Model, journal: Sequence[Fact]) -> None:
    """Delete the caches at the provider that hold something of a session."""
    for one in members_of(model):
        delete_cached = getattr(one, "delete_cached", None)
        if delete_cached is not None:
            await delete_cached(lambda: RunMachine(journal).conversation.encoded)


_STAND_IN = "media"
"""For media where the rest of a prompt is checked."""

# Internals ---------------------------------------------------------------------------------------------------------------


def _first_name(model: Model) -> str:
    """The name of the model whose uploads count: of several, the first."""
    models: Any = getattr(model, "models", None)
    return cast("Model", models[0]).name if models else model.name


def _needs_work(item: Any) -> bool:
    return isinstance(item, (Media, Path, bytes, bytearray, memoryview)) or (
        isinstance(item, dict) and media_of(cast("Part", item)) is not None
    )


def _media_in(item: Any) -> Media | None:
    if isinstance(item, Path):
        return Media(path=str(item))
    if isinstance(item, (bytes, bytearray, memoryview)):
        return Media(data=bytes(cast("bytes", item)))
    return item if isinstance(item, Media) and item.uri is None else None


def _uri_in(item: Any) -> str | None:
    uri = item.uri if isinstance(item, Media) else None
    if isinstance(item, Mapping):
        uri = (media_of(cast("Part", item)) or {}).get("uri")
    return uri if isinstance(uri, str) else None


def _size_of(media: Media) -> int:
    if media.path is None:
        return len(media.data)
    try:
        return os.stat(media.path).st_size
    except OSError as error:
        raise UsageError(f"{media.path!r} cannot be read: {error.strerror}") from error


def _reporter(name: str, emit: Callable[[Event], Awaitable[None]]) -> Callable[[int, int], Awaitable[None]]:
    """Report an upload in steps of ten percent."""
    shown = -1

    async def report(sent: int, size: int) -> None:
        nonlocal shown
        step = sent * 10 // max(size, 1)
        if step > shown:
            shown = step
            await emit(Notice("uploading", f"Uploading {name}: {sent * 100 // max(size, 1)} % of {size:,} bytes."))

    return report
