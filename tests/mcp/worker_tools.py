"""Tools that run in a worker process."""

from __future__ import annotations

import os

from callgate import tool


@tool(read_only=True)
def process() -> int:
    """Says which process it runs in."""
    return os.getpid()
