"""Files whose path has the typed letters in their order, for completion: a few letters in, the best paths out.

Reads names of files only, and stops after a fixed number of them. Links are not followed, and what begins with a dot is left
out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["fuzzy_paths"]

LOOKED_AT_MAX = 5_000
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "build", "dist", "target"})


def fuzzy_paths(typed: str, root: str, limit: int) -> list[str]:
    """The paths below the root that fit best, the best first."""
    wanted = typed.casefold()
    if not wanted or wanted.startswith(("/", "~", ".")):
        return []
    found = [(score, path) for path in _files(root) if (score := _score(wanted, path.casefold())) is not None]
    return [path for _, path in sorted(found)[:limit]]


def _files(root: str) -> Iterator[str]:
    seen = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
        below = os.path.relpath(folder, root).replace(os.sep, "/")
        for name in sorted(names):
            seen += 1
            if seen > LOOKED_AT_MAX:
                return
            if not name.startswith(".") and name.isprintable():
                yield name if below == "." else f"{below}/{name}"


def _score(wanted: str, path: str) -> tuple[int, int, int] | None:
    """Smaller is better: letters in one piece in the name, then few gaps, then a short path; None if it does not fit."""
    name = path.rpartition("/")[2]
    if wanted in name:
        return 0, name.index(wanted), len(path)
    if wanted in path:
        return 1, path.index(wanted), len(path)
    at, gaps = -1, 0
    for letter in wanted:
        next_at = path.find(letter, at + 1)
        if next_at < 0:
            return None
        gaps += next_at > at + 1
        at = next_at
    return 2, gaps, len(path)
