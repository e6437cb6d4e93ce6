"""All faults between a client and Gemini, as a table of script steps.

The actions are in `faults_http` and `faults_content`; this file only looks them up, and mixes them into scripts at
random, reproducibly.

    FakeGemini([fault("W07"), text("At last.")])          # or fault("internal_error"); 500 twice, then the answer
    FakeGemini([fault("W42", "null")])                    # one of the forms of a fault; also fault("W42:null")
    FakeGemini([fault("W29", at=17, answer=text("Hi"))])  # spoils this answer, at this byte
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from callgate.errors import UsageError
from callgate.testing.fault_row import Act, Fault, FaultStep, step_of
from callgate.testing.faults_content import CONTENT_FAULTS
from callgate.testing.faults_http import HTTP_FAULTS

__all__ = [
    "CHAOS_ROWS", "ELSEWHERE", "FAULTS", "Act", "Fault", "FaultStep", "chaos", "fault", "fault_of", "refused_url",
    "variants",
]  # fmt: skip

FAULTS: tuple[Fault, ...] = tuple(sorted(HTTP_FAULTS + CONTENT_FAULTS, key=lambda each: each.row))
"""Every fault, in the order of its rows."""

ELSEWHERE: dict[str, str] = {
    "W15": "a refused connection has no server: use `refused_url()`",
    "W59": "a clock that jumps is the client's: give it a clock of your own",
    "W60": "a killed process is the client's: kill it while a `held` fault keeps it waiting",
    "W62": "a bad certificate comes before any request: start the server with `tls=` and a context that holds it",
}
"""Rows that are not steps of a server, and where to find them instead."""

CHAOS_ROWS = (
    *(f"W{row:02}" for row in range(1, 10)), *(f"W{row}" for row in range(16, 27)), "W29", "W34", "W40", "W46", "W48",
)  # fmt: skip
"""The rows that `chaos` draws from by default."""

_BY_NAME: dict[str, Fault] = {key: each for each in FAULTS for key in (each.row, each.name)}
_SAME: Any = object()


def fault(
    name: str, variant: str | None = None, *, times: Any = _SAME, answer: Any = None, at: int | None = None
) -> FaultStep:
    """Return a script step with a known fault.

    `name` is a row (`W07`) or a readable name (`internal_error`), with `:variant` appended or separate. `times` is the
    number of requests that it takes, None for all that follow. `answer` is the script item to corrupt, and `at` the byte
    offset of a cut or split.

    Raises:
        UsageError: there is no such fault or variant.
    """
    own, _, inline = name.partition(":")
    found = _BY_NAME.get(own)
    if found is None:
        known = ", ".join(f"{each.row} {each.name}" for each in FAULTS)
        raise UsageError(f"fault {own!r}: {ELSEWHERE.get(own, f'unknown; the faults are {known}')}")
    return step_of(found, variant or inline, own, **({} if times is _SAME else {"times": times}), answer=answer, at=at)


def fault_of(table: Sequence[Fault]) -> Callable[..., FaultStep]:
    """Return a `fault` for the faults of another API: those of its table, and those of the transport here."""
    by_name = {key: each for each in table for key in (each.row, each.name)}

    def find(name: str, variant: str | None = None, **options: Any) -> FaultStep:
        """Return a script step with a known fault: a row of the table, or a transport fault.

        Raises:
            UsageError: there is no such fault or variant.
        """
        own, _, inline = name.partition(":")
        found = by_name.get(own)
        return fault(name, variant, **options) if found is None else step_of(found, variant or inline, name, **options)

    return find


def variants(name: str) -> list[FaultStep]:
    """Every form of a fault as a step of its own, for tests that go through all of them."""
    return [fault(name, variant) for variant in fault(name).fault.variants]


@contextmanager
def refused_url() -> Generator[str]:
    """A base URL at which connections are refused, reserved while the context lasts."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound and not listening: no other program can take the port
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def chaos(
    script: Sequence[Any], seed: int, *, rows: Sequence[str] = CHAOS_ROWS, on: float = 0.25, fires: float = 0.25
) -> list[Any]:
    """Mix faults into a script: each row is enabled with probability `on`, then occurs before a step with `fires`.

    The same seed gives the same script. A fault without an end occurs once.
    """
    chance = random.Random(seed)
    active = [row for row in rows if chance.random() < on]
    strewn: list[Any] = []
    for item in script:
        for row in active:
            if chance.random() < fires:
                step = fault(row)
                strewn.append(fault(row, chance.choice(list(step.fault.variants)), times=step.times or 1))
        strewn.append(item)
    return strewn
