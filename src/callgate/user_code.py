"""The only module that calls user code: tools, validators, approve, hooks, previews, exporters, callbacks.

Takes a callable, returns an `Outcome`: its value, or whatever it raised. `KeyboardInterrupt`, `SystemExit` and a
cancellation raised by the user's code are outcomes too; only a cancellation of the waiting task propagates. The caller
interprets the outcome. Models and stores, which may be the program's own, raise errors of their own; `keeps_running` makes
one of callgate's of what would end the program.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from callgate.errors import CallgateError

__all__ = ["Outcome", "ProgramInterrupt", "call", "call_async", "is_cancelled", "keeps_running", "text_of"]

T = TypeVar("T")


class ProgramInterrupt(KeyboardInterrupt):
    """Raised by a signal handler of the program's own: it goes through user code instead of becoming an outcome."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The outcome of user code: a value, or an error."""

    value: T | None = None
    error: BaseException | None = None

    @property
    def exception(self) -> Exception | None:
        """The error in a form that may pass through an event loop: one that would end the program is wrapped."""
        if self.error is None or isinstance(self.error, Exception):
            return self.error
        raised = CallgateError(f"{type(self.error).__name__} was raised: {self.error}".removesuffix(": "))
        raised.__cause__ = self.error
        return raised


def call(work: Callable[[], T]) -> Outcome[T]:
    """Call user code that is not async."""
    try:
        return Outcome(work())
    except ProgramInterrupt:
        raise
    except BaseException as error:
        return Outcome(error=error)


async def call_async(work: Callable[[], Awaitable[T] | T]) -> Outcome[T]:
    """Call user code that may be async, and wait for it.

    Raises:
        CancelledError: the task that waits here is cancelled.
    """
    task = asyncio.current_task()
    try:
        value: Any = work()
        if inspect.isawaitable(value):
            value = await value
        return Outcome(cast("T", value))
    except ProgramInterrupt:
        raise
    except GeneratorExit as error:
        if not is_current(task):
            raise  # This coroutine is closed: its event loop is gone, and there is no waiter.
        return Outcome(error=error)
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling():
            raise
        return Outcome(error=error)  # Something that the user's code waited for was cancelled, not this task.
    except BaseException as error:
        return Outcome(error=error)


class keeps_running:
    """Raise an error of this kind instead of what would end the program, and comes from user code in the block.

    `SystemExit` and `KeyboardInterrupt` of a task end its event loop at once, for everybody on it. Exceptions of the kind
    `also` become such errors too.
    """

    __slots__ = ("_also", "_kind", "_who")

    def __init__(self, kind: type[CallgateError], who: str, *, also: type[Exception] | tuple[()] = ()) -> None:
        self._kind, self._who, self._also = kind, who, also

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, (asyncio.CancelledError, GeneratorExit, ProgramInterrupt)):
            return
        if isinstance(error, Exception) and not isinstance(error, self._also):
            return
        text = text_of(error)
        raise self._kind(f"{self._who} raised {type(error).__name__}" + (f": {text}" if text else "")) from error


def text_of(error: BaseException) -> str:
    """The message of an exception of user code, whose `__str__` may raise anything."""
    return call(lambda: str(error)).value or ""


def is_cancelled() -> bool:
    """True if the current task is asked to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_current(task: asyncio.Task[Any] | None) -> bool:
    """True if this task runs now; the garbage collector may close a coroutine in any other one."""
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:  # No event loop runs.
        return False
