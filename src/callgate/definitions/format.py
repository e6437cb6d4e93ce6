"""The interface of a format: how it is detected, read and written. Knows no format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from callgate.types import Loss

if TYPE_CHECKING:
    from callgate.definitions.items import Call, HostedTool, Message, Result, Tool
    from callgate.definitions.json_node import Node

__all__ = ["KINDS", "Format", "Kind", "WriteContext"]

Kind: TypeAlias = Literal["tool", "call", "result", "history"]
"""The kind of a converted object."""

KINDS: tuple[Kind, ...] = ("tool", "call", "result", "history")


class WriteContext:
    """Collector of what the target format of a conversion cannot express."""

    def __init__(self, source: str, target: str, losses: list[Loss], *, in_history: bool = False) -> None:
        self.is_same = source == target
        """True if the source is of the same format, so that its own signatures stay valid."""
        self.is_of_history = target == "gemini"
        """True if the target is the form of callgate's own histories, in which signatures of other APIs have a mark."""
        self.in_history = in_history
        """True if calls and results are together, so that each completes the other."""
        self.losses = losses

    def lose(self, at: str, keyword: str, reason: str, instead: str = "") -> None:
        """Report something that cannot be converted, and its replacement."""
        self.losses.append(Loss(pointer=at, keyword=keyword, reason=reason, instead=instead))


_READERS: dict[Kind, str] = {
    "tool": "tools_from", "call": "calls_from", "result": "results_from", "history": "history_from",
}  # fmt: skip

Names: TypeAlias = Callable[[Sequence[str]], dict[str, str]]
"""Names -> the names that the format allows, each with its original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One foreign format. What it does not have is None."""

    name: str
    title: str
    """The name in sentences."""
    detect: Callable[[Any], frozenset[Kind]]
    """Return the kinds that an object (not a list) may be in this format; empty if it is none."""
    tools_from: Callable[[Node], Sequence[Tool | HostedTool]] | None = None
    tools_to: Callable[[Sequence[Tool], WriteContext], list[Any]] | None = None
    tools_wrap: Callable[[list[Any]], Any] = list[Any]
    """Several tools as the format lists them."""
    calls_from: Callable[[Node], list[Call]] | None = None
    calls_to: Callable[[Sequence[Call], WriteContext], list[Any]] | None = None
    results_from: Callable[[Node], list[Result]] | None = None
    results_to: Callable[[Sequence[Result], WriteContext], list[Any]] | None = None
    history_from: Callable[[Node], list[Message]] | None = None
    history_to: Callable[[Sequence[Message], WriteContext], Any] | None = None
    names: Names | None = None
    """None if any name is allowed."""
    ids: re.Pattern[str] | None = None
    """The pattern of ids, if every call needs one; None if ids are optional."""

    @classmethod
    def of_module(cls, module: ModuleType) -> Format:
        """Make a format of a module's functions and constants (`TITLE`, `NAMES`, `IDS`), by the names of the fields."""
        own = vars(module)
        found = {item.name: own.get(item.name, own.get(item.name.upper())) for item in fields(cls)}
        found["name"] = module.__name__.rpartition(".")[2]
        return cls(**{name: value for name, value in found.items() if value is not None})

    def reader(self, kind: Kind) -> Callable[[Node], Sequence[Any]] | None:
        """Return the reader of this kind, if the format has it."""
        return getattr(self, _READERS[kind])

    def writer(self, kind: Kind) -> Callable[[Sequence[Any], WriteContext], Any] | None:
        """Return the writer of this kind, if the format has it."""
        return {"tool": self.tools_to, "call": self.calls_to, "result": self.results_to, "history": self.history_to}[kind]
