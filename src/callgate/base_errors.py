"""The two errors that types need for their own fields, and the check of a value; `callgate.errors` has all errors.

This file imports nothing of ours.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

__all__ = ["CallgateError", "UsageError", "checked_values", "expect", "expect_list"]

T = TypeVar("T")


class CallgateError(Exception):
    """The root of everything that callgate itself raises."""

    __module__ = "callgate.errors"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the error with its fields, without calling its constructor."""
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


def checked_values(made: type[T]) -> type[T]:
    """Let the constructor of a class raise UsageError for values of the wrong kind, wherever in it they do not work."""
    init: Any = made.__init__

    @functools.wraps(init)
    def checked(self: T, *args: Any, **given: Any) -> None:
        try:
            init(self, *args, **given)
        except (TypeError, AttributeError, UnicodeError, OverflowError) as error:
            place = error.__traceback__
            if place is None or place.tb_next is None:
                raise  # Not a value, but an argument that there is not.
            raise UsageError(f"{made.__name__}: one of its arguments is of the wrong kind: {error}") from error

    made.__init__ = checked  # pyright: ignore[reportAttributeAccessIssue]
    return made


def _unexpected(value: object, what: str, expected: str) -> UsageError:
    return UsageError(f"{what.replace('{}', f'{value!r:.200}')}: expected {expected}")
