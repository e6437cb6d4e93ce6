"""The folders whose project files are read: a list of absolute paths, which the user adds to by a command."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from callgate.config.places import state_dir

__all__ = ["is_trusted", "trust", "trusted_folders", "untrust", "write_atomically"]

FILE = "trusted.json"


def trusted_folders(env: Mapping[str, str]) -> list[str]:
    """The folders on the list. One that cannot be read trusts nobody."""
    try:
        known: Any = json.loads((Path(state_dir(env)) / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    folders: Any = cast("dict[str, Any]", known).get("folders") if isinstance(known, dict) else None
    return [one for one in cast("list[Any]", folders) if isinstance(one, str)] if isinstance(folders, list) else []


def is_trusted(folder: Path, env: Mapping[str, str]) -> bool:
    """True if the folder itself is on the list; the one above it says nothing of it."""
    return os.path.realpath(folder) in trusted_folders(env)


def trust(folder: Path, env: Mapping[str, str]) -> str:
    """Put the folder on the list; returns its path.

    Raises:
        OSError: the list cannot be written.
    """
    path = os.path.realpath(folder)
    _write([*(one for one in trusted_folders(env) if one != path), path], env)
    return path


def untrust(folder: Path, env: Mapping[str, str]) -> bool:
    """Take the folder off the list; whether it was on it.

    Raises:
        OSError: the list cannot be written.
    """
    path, known = os.path.realpath(folder), trusted_folders(env)
    if path not in known:
        return False
    _write([one for one in known if one != path], env)
    return True


def _write(folders: list[str], env: Mapping[str, str]) -> None:
    write_atomically(Path(state_dir(env)) / FILE, json.dumps({"folders": folders}, indent=1) + "\n")


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
