"""The two errors that types need for their own fields, and the check of a value; `callgate.errors` has all errors.

This file imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

__all__ = ["CallgateError", "UsageError", "expect", "expect_list"]


class CallgateError(Exception):
    """The root of everything that callgate itself raises."""

    __module__ = "callgate.errors"

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is copied, and how it comes out of another process: with its fields, and without its constructor."""
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[CallgateError], args: tuple[Any, ...]) -> CallgateError:
    """An error without its fields. Constructors cannot be called for it: they take more than the message."""
    return kind.__new__(kind, *args)


class UsageError(CallgateError, ValueError):
    """callgate was used in a way that cannot work; the message says what to change."""

    __module__ = "callgate.errors"


def expect(value: object, kinds: Any, what: str, expected: str) -> None:
    """Check the type of a value that a program passes; `{}` in `what` is where the message shows it.

    Raises:
        UsageError: it is another one.
    """
    if not isinstance(value, kinds):
        raise _unexpected(value, what, expected)


def expect_list(value: object, what: str, expected: str) -> None:
    """Check that a value is a list or the like; a text would be taken for one of its letters.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise _unexpected(cast("object", value), what, expected)


def _unexpected(value: object, what: str, expected: str) -> UsageError:
    return UsageError(f"{what.replace('{}', f'{value!r:.200}')}: expected {expected}")
