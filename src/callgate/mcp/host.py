"""What a server may ask of the program that uses it: answers of a person, words of a model, folders, a login.

These are the words for it; by default a server may ask for nothing. How a person is asked is the program's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from callgate.types import JsonObject

__all__ = ["NOBODY", "Answer", "Elicit", "Host", "Login", "Question", "Sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a server wants to know of a person (MCP: elicitation).

    Either `schema` says which fields the answer has, or `url` is a page that the person is to visit; then what is entered
    there is between the person and that page, and the answer only says whether it was done.
    """

    server: str
    message: str
    schema: JsonObject | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person said: `accept` with the fields, `decline`, or `cancel` for no answer at all."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


Elicit: TypeAlias = Callable[[Question], Awaitable[Answer]]
"""Asks a person: as `Host.elicit` for one server, as `Gate(elicit=...)` for all of a gate. The deadline of the call stands
still meanwhile."""
Login: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Is given the name of a server and an address at which a person logs in: opens it in a browser, or shows it."""
Sample: TypeAlias = Callable[[str, JsonObject], Awaitable[str]]
"""Is given the name of a server and what a model is to be asked (`sampling/createMessage`); gives the model's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What servers may ask for. What is left out they are told they cannot have."""

    elicit: Elicit | None = None
    """Without it, the gate's `elicit` is asked, if it has one."""
    login: Login | None = None
    """Without it, a token that is there is used and renewed, but nobody is asked to log in."""
    sample: Sample | None = None
    roots: Sequence[str | Path] = ()
    """Folders that servers are told they may work in."""


NOBODY = Host()
