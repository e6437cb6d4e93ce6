"""The sandboxed root and its tools: list, read, write, edit, search, and, if asked for, run commands.

A folder comes in, tools that a gate takes come out. Everything below the root is reached by descriptors, never by comparing
paths; every write is all or nothing and can be undone.
"""

from __future__ import annotations

from callgate.files.backups import Change
from callgate.files.beneath import weaknesses
from callgate.files.bounds import Bounds
from callgate.files.tools import FileTools

__all__ = ["Bounds", "Change", "FileTools", "weaknesses"]
