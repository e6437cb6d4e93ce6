"""The host of MCP servers: answers of a person, samples of a model, folders and logins that servers may ask for.

These are the words for it; by default a server may ask for nothing. How a person is asked is the program's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from callgate.base_errors import expect
from callgate.errors import UsageError
from callgate.types import JsonObject

__all__ = ["NOBODY", "Answer", "Elicit", "Host", "Login", "Question", "Sample", "Sampling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of a server to a person (MCP: elicitation).

    Either `schema` says which fields the answer has, or `url` is a page that the person is to visit; then what is entered
    there is between the person and that page, and the answer only says whether it was done.
    """

    server: str
    """Name of the server that asks."""
    message: str
    """The text to show."""
    schema: JsonObject | None = None
    """A JSON Schema of the fields to fill in."""
    url: str | None = None
    """The page to visit, instead of a form."""
    wants_model: bool = False
    """True if the server wants the gate's model to answer `message`; `accept` lends it for this one request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer: `accept` with the fields, `decline`, or `cancel` for no answer at all."""

    action: Literal["accept", "decline", "cancel"]
    """The choice of the person."""
    content: JsonObject | None = None
    """The fields of the form, with `accept`."""


Elicit: TypeAlias = Callable[[Question], Awaitable[Answer]]
"""Ask a person: as `Host.elicit` for one server, as `Gate(elicit=...)` for all of a gate. The deadline of the call stands
still meanwhile."""
Login: TypeAlias = Callable[[str, str], Awaitable[None]]
"""A callback with the name of a server and the login URL: opens it in a browser, or shows it."""
Sample: TypeAlias = Callable[[str, JsonObject], Awaitable[str]]
"""A callback with the name of a server and a `sampling/createMessage` request; returns the model's text.
It is called for each request, without the limits of `Sampling`: a callback that costs something counts by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Terms on which a server is lent the model of the gate whose call is running (MCP: sampling), tools included.

    The person is asked about each request by the same callback as questions of the server. Quotas, rates and budgets of
    the run hold too, and the tokens count for it.
    """

    requests: int = 10
    """The requests of the server in one run."""
    tokens: int = 50_000
    """The tokens of its requests in one run; none is made after that, and no answer may be longer than what is left."""
    ask: bool = True
    """False to lend the model without asking the person."""

    def __post_init__(self) -> None:
        for name, value in (("requests", self.requests), ("tokens", self.tokens)):
            if type(value) is not int or value < 1:
                raise UsageError(f"Sampling({name}={value!r}): expected a number of at least 1")
        expect(self.ask, bool, "Sampling(ask={})", "True or False")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The requests that servers may make. The others are declared as unsupported."""

    elicit: Elicit | None = None
    """Callback that asks a person. The default is the gate's `elicit`, if it has one."""
    login: Login | None = None
    """Callback for the login of a person. Without it, a stored token is used and refreshed, but no login is started."""
    sample: Sample | Sampling | None = None
    """`Sampling()` lends the gate's model to servers (MCP: sampling); or a callback that asks another one."""
    roots: Sequence[str | Path] | Callable[[], Sequence[str | Path]] = ()
    """Folders that servers may work in (MCP: roots), or a function that returns those of now; see `roots_changed`."""


NOBODY = Host()
