"""Marks in the target of a copy: a source that has the same mark is the same store, however both are called."""

from __future__ import annotations

import uuid
from typing import Any

from callgate.store.dialect import Dialect, Transaction

__all__ = ["has_mark", "leave_mark", "remove_marks"]

_MARK, MARK_S = "copy ", 24 * 3600.0
"""The start of the key of a mark, and how long one is kept that a killed copy left."""


def leave_mark(there: Any, target: Dialect) -> str:
    """Leave a mark in the target: a source that has it is the same store, however both are called."""
    mark = f"{_MARK}{uuid.uuid4().hex}"
    target.begin_long(there)
    tx = Transaction(there, target)
    tx.run("INSERT INTO callgate_meta VALUES (?, ?)", mark, _seconds(tx.now_s()))
    there.commit()
    return mark


def has_mark(tx: Transaction, mark: str) -> bool:
    """Return whether a mark was left here."""
    return bool(tx.rows("SELECT 1 FROM callgate_meta WHERE key = ?", mark))


def remove_marks(there: Any, target: Dialect, mark: str) -> None:
    """Remove the mark, and those of copies that were killed."""
    target.begin_long(there)
    tx = Transaction(there, target)
    old = _seconds(tx.now_s() - MARK_S)
    tx.run("DELETE FROM callgate_meta WHERE key = ? OR (substr(key, 1, ?) = ? AND value < ?)", mark, len(_MARK), _MARK, old)
    there.commit()


def _seconds(time_s: float) -> str:
    """Return a time as a text that can be compared."""
    return f"{time_s:015.3f}"
