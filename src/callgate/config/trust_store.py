"""Trusted projects: folders, each with a hash of its project file and of the files that it names.

The user adds to the list with a command, after looking at the files. Trust is in their content: one that was changed since,
by a model or anybody else, is not trusted any more. Files that those import in turn are not looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from callgate.config.places import PROJECT_NAMES, state_dir
from callgate.config.project_files import named_files

__all__ = ["is_trusted", "trust", "trusted_folders", "untrust", "write_atomically"]

FILE = "trusted.json"
BYTES_MAX = 16 * 1024 * 1024
"""Larger files are trusted by their size and time alone."""


def trusted_folders(env: Mapping[str, str]) -> list[str]:
    """The folders on the list. One that cannot be read trusts nobody."""
    return list(_read(env))


def is_trusted(folder: Path, env: Mapping[str, str]) -> bool:
    """True if the folder itself is on the list, and its files are as they were then; the one above it says nothing of it."""
    path = os.path.realpath(folder)
    known = _read(env)
    return path in known and known[path] == _digest(Path(path))


def trust(folder: Path, env: Mapping[str, str]) -> str:
    """Put the folder on the list with its files as they are now; returns its path.

    Raises:
        OSError: the list cannot be written.
    """
    path = os.path.realpath(folder)
    _write({**{one: seen for one, seen in _read(env).items() if one != path}, path: _digest(Path(path))}, env)
    return path


def untrust(folder: Path, env: Mapping[str, str]) -> bool:
    """Take the folder off the list; whether it was on it.

    Raises:
        OSError: the list cannot be written.
    """
    path, known = os.path.realpath(folder), _read(env)
    if path not in known:
        return False
    _write({one: seen for one, seen in known.items() if one != path}, env)
    return True


def _read(env: Mapping[str, str]) -> dict[str, str]:
    """Folder -> the hash of its files when it was trusted."""
    try:
        known: Any = json.loads((Path(state_dir(env)) / FILE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    folders: Any = cast("dict[str, Any]", known).get("folders") if isinstance(known, dict) else None
    if not isinstance(folders, dict):
        return {}
    return {one: seen for one, seen in cast("dict[str, Any]", folders).items() if isinstance(seen, str)}


def _write(folders: dict[str, str], env: Mapping[str, str]) -> None:
    write_atomically(Path(state_dir(env)) / FILE, json.dumps({"folders": folders}, indent=1) + "\n")


def _digest(folder: Path) -> str:
    """A hash of the project file and of the files in the project that it names: tools, programs, lists of servers."""
    digest = hashlib.sha256()
    for name in PROJECT_NAMES:
        data = _content(folder / name)
        digest.update(f"{name} {len(data)}\n".encode() + data)
        for named in named_files(folder, data):
            content = _content(named)
            digest.update(f"{named} {len(content)}\n".encode("utf-8", "surrogateescape") + content)
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    try:
        known = path.stat()
        return path.read_bytes() if known.st_size <= BYTES_MAX else f"{known.st_size} {known.st_mtime_ns}".encode()
    except OSError:
        return b""


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all, for its owner alone; one that exists keeps its rights.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    path = Path(os.path.realpath(path))  # A link stays a link.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
