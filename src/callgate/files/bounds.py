"""The bounds of the file and command tools in one table.

Numbers only. A bound that is reached refuses, or cuts and says so; it never skips a check.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bounds"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits on what the file tools read, write and show."""

    read_bytes: int = MIB
    """Bytes of a file that one `read_file` gives."""
    scan_bytes: int = 64 * MIB
    """Bytes of a file in which `read_file` searches for the requested lines."""
    write_bytes: int = 10 * MIB
    """Bytes that one write may bring, and size of a file that `edit_file` changes and `search_files` looks into."""
    kept_bytes: int = 256 * MIB
    """Size of a file that a write may replace or append to: it is copied first."""
    entries: int = 10_000
    """Paths in one answer of `list_files`."""
    visits: int = 500_000
    """Names of the tree that one call looks at."""
    depth: int = 128
    """Levels of folders below the root."""
    pattern_chars: int = 512
    """Characters of a glob pattern or of a regular expression."""
    matches: int = 100
    """Matches in one answer of `search_files`."""
    line_chars: int = 500
    """Characters of a line that `search_files` shows."""
    search_bytes: int = 256 * MIB
    """Bytes that one search looks through."""
    page_chars: int = 36_000
    """Characters of one answer to a model; a program that calls the tools itself gets whole answers."""
    lock_s: float = 25.0
    """Seconds that a write waits for another one to the same folder."""
    backup_days: int = 30
    """Days that backups are kept."""
    backup_bytes: int = 1024 * MIB
    """Maximum bytes of all backups; the oldest are deleted first."""
