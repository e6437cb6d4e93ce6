"""Fields of words that are not held in memory, but read again when somebody asks for them.

A word comes in with an `Unread` in place of a value; whoever looks at the field gets what that reads, and cannot tell the
difference. This file knows nothing of what is read, or where from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Unread", "let_go", "read_when_asked"]

_Word = TypeVar("_Word")


class Unread:
    """Stands for a value that can be read."""

    __slots__ = ()

    def read(self) -> Any:
        """The value."""
        raise NotImplementedError


class _Field(property):
    """A slot of a word that may hold an `Unread`."""

    def __init__(self, slot: Any) -> None:
        def read(word: Any) -> Any:
            held = slot.__get__(word)
            return held.read() if isinstance(held, Unread) else held

        super().__init__(read, slot.__set__)
        self.slot = slot


def read_when_asked(name: str) -> Callable[[type[_Word]], type[_Word]]:
    """A decorator for words with slots: the field may be given, or given up for, an `Unread`."""

    def changed(word: type[_Word]) -> type[_Word]:
        setattr(word, name, _Field(vars(word)[name]))
        return word

    return changed


def let_go(word: object, name: str, value: Any, unread: Unread) -> None:
    """Makes a field forget `value`, which `unread` reads; a field that holds something else keeps it.

    The word stays what it is for everybody: this is the one thing about a frozen word that may change.
    """
    slot = getattr(type(word), name).slot
    held = slot.__get__(word)
    if not isinstance(held, Unread) and held == value:
        slot.__set__(word, unread)
