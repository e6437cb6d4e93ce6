"""The file of previous inputs: where it is, and how inputs of deleted sessions are removed from it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator

__all__ = ["HISTORY_FILE", "forget_inputs"]

HISTORY_FILE = "history"
"""Its name in the state directory."""


def forget_inputs(path: str, texts: Collection[str]) -> int:
    """Remove these inputs from the file, whenever they were typed; return how many lines went."""
    wanted = {text.strip() for text in texts} - {""}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        return 0
    kept = [line for line in lines if not wanted & set(_input_of(line))]
    if len(kept) == len(lines):
        return 0
    partial = f"{path}.{os.getpid()}"
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
    return len(lines) - len(kept)


def _input_of(line: str) -> Iterator[str]:
    with contextlib.suppress(ValueError):  # Half a line of a process that was killed.
        text = json.loads(line)
        if isinstance(text, str):
            yield text.strip()
