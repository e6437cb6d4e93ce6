"""Prompt states on disk: beginnings of prompts in, names of files out.

A list of tools takes a second or two to read, and is the same in every conversation with these tools. The engine writes what
it knows after reading it into a file of the user's cache and takes it up from there the next time. Only what a program says
before a conversation is kept so (its system prompt and its tools), never what people say in one. This file knows nothing of
the engine, and nothing that goes wrong here stops anybody.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
from pathlib import Path

from callgate.embedded.weights import Files, cache_folder

__all__ = ["States"]

logger = logging.getLogger("callgate.embedded")

KEPT_MAX = 8
"""Files that are kept, the newest ones; each takes 23 KiB a token."""
SUFFIX = ".state"


class States:
    """The kept states of one model."""

    def __init__(self, files: Files, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder().parent / "states"
        self._model = files

    def prepare(self) -> str | None:
        """The folder, made if need be, as llama.cpp wants it; None where nothing can be kept."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.stat(self.folder).st_uid != getattr(os, "geteuid", lambda: 0)() or not os.access(self.folder, os.W_OK):
                return None
        except OSError as error:
            logger.debug("what was read is not kept: %s", error)
            return None
        return os.path.join(self.folder, "")

    def key_of(self, text: str) -> str:
        """The prefix of the files for a text: different for other weights."""
        hashed = hashlib.sha256(text.encode("utf-8", "replace"))
        for path in filter(None, (self._model.base, self._model.adapter)):
            with contextlib.suppress(OSError):
                found = os.stat(path)
                hashed.update(f"\0{os.path.basename(path)} {found.st_size} {found.st_mtime_ns}".encode())
        return hashed.hexdigest()[:32]

    def find(self, key: str) -> str | None:
        """The name of the file, if it is there and whole; it counts as used then."""
        for path in self.folder.glob(f"{key}-*{SUFFIX}"):
            try:
                # llama.cpp ends the whole process over a file that is not what it wrote.
                if path.name == _named(key, path):
                    os.utime(path)
                    return path.name
                path.unlink()
            except OSError as error:
                logger.debug("what was read is not used: %s", error)
        return None

    def draft(self) -> str:
        """A name to write under, so that nobody reads half a file."""
        return f"{secrets.token_hex(8)}.draft"

    def keep(self, draft: str, key: str) -> None:
        """Register a written file, and delete the oldest ones."""
        written = self.folder / draft
        try:
            os.chmod(written, 0o600)
            os.replace(written, self.folder / _named(key, written))
            kept = sorted(self.folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in [*kept[KEPT_MAX:], *self.folder.glob("*.draft")]:
                path.unlink(missing_ok=True)
        except OSError as error:
            logger.debug("what was read is not kept: %s", error)

    def drop(self, name: str) -> None:
        """Remove a file that cannot be used."""
        with contextlib.suppress(OSError):
            (self.folder / name).unlink()


def _named(key: str, path: Path) -> str:
    """The name of a file with this content."""
    with open(path, "rb") as opened:
        return f"{key}-{hashlib.file_digest(opened, 'sha256').hexdigest()[:32]}{SUFFIX}"
