"""Functions as resources and prompts of an MCP server.

Decorated functions come in; what clients list goes out, and which function an address or a name means, with which
arguments. Nothing is run here: `serve.py` runs them like tools, with the same permission and limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

from callgate.definitions.function import tool
from callgate.errors import UsageError
from callgate.types import JsonObject, ToolDefinition

__all__ = ["Offer", "offer_of", "page_of", "prompt", "resource", "template_args", "words_for"]

F = TypeVar("F", bound=Callable[..., Any])
MARK = "__callgate_offer__"
PAGE = 500
"""Entries of a list on one page."""
VALUES_MAX = 100
"""Completions of one argument."""
_VARIABLE = re.compile(r"{(\+?)(\w+)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The mark of a function that is a resource or a prompt."""

    uri: str | None = None
    """The address of a resource, with `{name}` for its arguments; None for a prompt."""
    mime_type: str | None = None
    title: str | None = None

    @property
    def is_template(self) -> bool:
        """True if the address has arguments."""
        return self.uri is not None and _VARIABLE.search(self.uri) is not None


def resource(
    uri: str, *, name: str | None = None, title: str | None = None, mime_type: str | None = None
) -> Callable[[F], F]:
    """Mark a function as a resource that MCP clients can read at this address.

    ```python
    @resource("notes://{day}", mime_type="text/plain")
    def notes(day: str) -> str:
        "The notes of one day."
    ```

    It returns text or `Media`, or a list of these. `{name}` in the address takes all up to the next slash, `{+name}` slashes
    too. `callgate mcp serve -T` serves the marked functions of a file; in Python they go among the tools of `ToolServer.of`.

    Raises:
        UsageError: the address has no scheme.
    """
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
        raise UsageError(f"resource({uri!r}): an address begins with a scheme, as in 'notes://today'")
    return _marking(Offer(uri=uri, mime_type=mime_type, title=title), name)


def prompt(*, name: str | None = None, title: str | None = None) -> Callable[[F], F]:
    """Mark a function as a prompt that MCP clients offer to their users; its parameters are the prompt's arguments.

    It returns text or `Media`, or a list of these: what the user says.
    """
    return _marking(Offer(title=title), name)


def _marking(offer: Offer, name: str | None) -> Callable[[F], F]:
    def mark(function: F) -> F:
        marked = tool(name=name, read_only=True)(function)
        setattr(marked, MARK, offer)
        return marked

    return mark


def offer_of(item: object) -> Offer | None:
    """The mark of a function; None if it has none."""
    found = getattr(item, MARK, None)
    return found if isinstance(found, Offer) else None


def template_args(template: str, uri: str) -> Mapping[str, str] | None:
    """The arguments with which a template makes this address; None if it cannot, or if one would lead out of a folder."""
    pattern, last = "", 0
    for found in _VARIABLE.finditer(template):
        pattern += re.escape(template[last : found.start()]) + f"(?P<{found[2]}>{'.+' if found[1] else '[^/]+'})"
        last = found.end()
    match = re.fullmatch(pattern + re.escape(template[last:]), uri)
    args = {} if match is None else {name: unquote(value) for name, value in match.groupdict().items()}
    return None if match is None or not all(map(_stays_inside, args.values())) else args


def _stays_inside(value: str) -> bool:
    """True if a value that a function takes for a path stays below the folder that it is joined to."""
    steps = value.replace("\\", "/").split("/")
    return bool(steps[0] or len(steps) == 1) and ".." not in steps and "\0" not in value


def words_for(definition: ToolDefinition, argument: str, begun: str) -> list[str]:
    """The values that an argument may have, as far as its schema lists them, that begin like this."""
    properties: JsonObject = definition.input_schema.get("properties") or {}
    schema: JsonObject = properties.get(argument) or {}
    listed: Iterable[Any] = schema.get("enum") or ()
    return [str(value) for value in listed if str(value).casefold().startswith(begun.casefold())][:VALUES_MAX]


def page_of(items: list[Any], cursor: str | None) -> tuple[list[Any], str | None]:
    """One page of a list, and the cursor of the next one.

    Raises:
        UsageError: the cursor is none of ours.
    """
    start = 0
    if cursor is not None:
        if not cursor.isdecimal() or not 0 < int(cursor) < len(items):
            raise UsageError("there is no such page: take the cursor of the last answer, or none for the first page")
        start = int(cursor)
    end = start + PAGE
    return items[start:end], str(end) if end < len(items) else None
