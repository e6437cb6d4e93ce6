"""Several runs: so many at the same time or in batches, with a progress bar; and the events of one run for sync code."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from callgate import user_code
from callgate.config.known_secrets import redact_known
from callgate.errors import UsageError
from callgate.events import Event, RunEnded
from callgate.prices import BATCH_FACTOR
from callgate.run.run_options import ManyOptions
from callgate.sync import BlockingPortal
from callgate.types import Reply

if TYPE_CHECKING:
    from callgate.models.batch import BatchModel
    from callgate.run.config import GateConfig

__all__ = [
    "BatchedRuns",
    "ProgressBar",
    "ReportProgress",
    "events_in_sync",
    "in_batches",
    "listed",
    "run_each",
    "shared_options",
]

T = TypeVar("T")

ReportProgress: TypeAlias = Callable[[int, int], object]
"""Called with the number of runs that are over and the number of all."""

WIDTH = 30
"""Characters of the bar."""


async def run_each(
    run: Callable[[T], Awaitable[Reply[Any]]],
    prompts: Iterable[T],
    *,
    parallel: int,
    progress: bool | ReportProgress,
    return_errors: bool,
) -> list[Any]:
    """Run every prompt, at most `parallel` at the same time; return the replies in the order of the prompts.

    The first error cancels the runs that are not over, and is raised; with `return_errors` it takes the place of its reply.

    Raises:
        UsageError: an argument cannot be used.
    """
    _check(parallel, progress)
    waiting = list(enumerate(listed(prompts)))
    count, done = len(waiting), 0
    replies: list[Any] = [None] * count
    report = _Reports(ProgressBar() if progress is True else progress or _nothing)
    waiting.reverse()

    async def work() -> None:
        nonlocal done
        while waiting:
            place, prompt = waiting.pop()
            try:
                replies[place] = await run(prompt)
            except Exception as error:
                if not return_errors:
                    waiting.clear()
                    error.add_note(f"It is about prompts[{place}] of run_many.")
                    raise
                replies[place] = error
            done += 1
            report(done, count)

    report(0, count)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(parallel, count)):
                group.create_task(work())
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
    else:
        return replies
    raise first  # Here, so that its own cause and context stay what they are.


def _check(parallel: int, progress: bool | ReportProgress) -> None:
    if isinstance(parallel, bool) or not isinstance(parallel, int) or parallel < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"parallel={parallel!r}: use a whole number of at least 1")
    if not isinstance(progress, bool) and not callable(progress):  # pyright: ignore[reportUnnecessaryComparison]
        raise UsageError(f"progress={progress!r}: use True, or a function of the number of runs that are over and of all")
    if inspect.iscoroutinefunction(progress):
        raise UsageError("progress= is an async function, which is never awaited: use a plain one")


def listed(prompts: Iterable[T]) -> list[T]:
    """The prompts as a list.

    Raises:
        UsageError: they are one prompt, or none.
    """
    if isinstance(prompts, (str, bytes, Mapping)):
        raise UsageError("run_many takes a list of prompts, and this is one: use run, or [prompt]")
    if not isinstance(prompts, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"run_many takes a list of prompts, not {prompts!r}")
    return list(prompts)


def shared_options(options: ManyOptions) -> ManyOptions:
    """Options that every run can read: what an iterator gives once is kept for all of them.

    Raises:
        TypeError: there is no such option.
    """
    if unknown := sorted(options.keys() - ManyOptions.__annotations__.keys()):
        raise TypeError(f"run_many got an unexpected keyword argument {unknown[0]!r}")
    shared: dict[str, Any] = {
        name: list(cast("Iterator[Any]", value)) if isinstance(value, Iterator) else value for name, value in options.items()
    }
    return cast("ManyOptions", shared)


@dataclass(frozen=True, slots=True)
class BatchedRuns:
    """Runs whose requests share batches."""

    config: GateConfig
    model: BatchModel

    def counting(self, run: Callable[[T], Awaitable[Reply[Any]]]) -> Callable[[T], Awaitable[Reply[Any]]]:
        """The same function, whose end lets the next batch go without it."""

        async def counted(prompt: T) -> Reply[Any]:
            try:
                return await run(prompt)
            finally:
                self.model.expect(-1)

        return counted


@contextlib.asynccontextmanager
async def in_batches(config: GateConfig, runs: int) -> AsyncGenerator[BatchedRuns]:
    """A configuration whose model is asked in batches, by so many runs.

    Raises:
        UsageError: the model takes none.
    """
    from callgate.models.batch import batched
    from callgate.models.gemini import GeminiModel
    from callgate.models.modes import ByAbility

    native = config.model.native if isinstance(config.model, ByAbility) else config.model
    if not isinstance(native, GeminiModel):
        raise UsageError(f"batch=True is for Gemini models by generateContent, and {native.name!r} is none")
    model = batched(native)
    model.expect(runs)
    is_by_ability = native is not config.model
    try:
        yield BatchedRuns(
            replace(config, model=ByAbility(model) if is_by_ability else model, price_factor=BATCH_FACTOR, cache=None), model
        )
    finally:
        await model.aclose()


def events_in_sync(portal: BlockingPortal, events: AsyncGenerator[Event, None]) -> Generator[Event, None, None]:
    """The events of a run, one after another, for sync code; leaving the loop early cancels the run."""
    last: Event | None = None
    try:
        while (event := portal.run(_following(events))) is not None:
            last = event
            yield event
        if not isinstance(last, RunEnded):  # Errors are raised, so that nothing else ends a stream early.
            raise UsageError("the gate was closed before the run of this stream had ended, which cancelled it")
    finally:
        if portal.is_open:  # Otherwise the run ended with its event loop, or belongs to the parent of this process.
            portal.run(_closed(events))


async def _following(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


async def _closed(events: AsyncGenerator[Event, None]) -> None:
    await events.aclose()


def _nothing(done: int, count: int) -> None:
    """Report nothing."""


class _Reports:
    """Reports of progress until one of them fails, which costs no reply."""

    def __init__(self, report: ReportProgress) -> None:
        self._report = report

    def __call__(self, done: int, count: int) -> None:
        """Report how many runs are over."""
        error = user_code.call(lambda: self._report(done, count)).error
        if error is None:
            return
        self._report = _nothing
        text = redact_known(user_code.text_of(error))
        said = f"progress is not reported any more, because it failed: {type(error).__name__}: {text}"
        # A filter that makes an error of it must not end the runs, and neither must a stderr that is not there.
        user_code.call(lambda: warnings.warn(said, RuntimeWarning, stacklevel=1))


class ProgressBar:
    """A bar on stderr: redrawn in place on a terminal, elsewhere a line at every tenth."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._tenth = -1

    def __call__(self, done: int, count: int) -> None:
        """Draw the bar."""
        part = done / count if count else 1.0
        filled = round(part * WIDTH)
        took_s = time.monotonic() - self._began_s
        left = f", about {took_s / done * (count - done):.0f} s left" if 0 < done < count else ""
        line = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done:,} of {count:,}{left}"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{line:<78}" + ("\n" if done >= count else ""))
        elif int(part * 10) > self._tenth:
            self._tenth = int(part * 10)
            sys.stderr.write(line + "\n")
        sys.stderr.flush()
