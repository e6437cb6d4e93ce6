"""Fields of a conversation that a server does not know, and requests without them.

Answers are kept and sent back as they came. A proxy, or a newer version of the API, may add fields to them that a strict
server then refuses in every later request. The places that its error names come in; contents without these fields go out.
Fields that Google documents are never left out, and neither is anything outside of the contents, or what the user has said
since the model's last answer. This file sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

from callgate import strict_json
from callgate.content.build import text_part
from callgate.content.fields import MESSAGES, camel
from callgate.content.read import role_of
from callgate.types import JsonObject

__all__ = ["UnknownFields", "unknown_names"]

Field: TypeAlias = tuple[str, str]
"""A message of `MESSAGES`, and the name of a field in it."""

_DATA = frozenset(name for name, inner in MESSAGES["Part"].items() if inner) | {"text"}
_OMITTED = text_part("(left out: content of a kind that this API does not know)")

_UNKNOWN = re.compile(r"""Unknown name "(?P<name>.*?)"(?: at '(?P<path>[^'\n]*)')?: Cannot find field""")
_PATH = re.compile(r"(?:generate_content_request\.)?contents\[(?P<index>\d+)\](?P<inner>(?:\.\w+(?:\[\d+\])?)*)")
_NAMES_MAX = 1_000
"""The limit of remembered fields of one endpoint, whatever a server invents."""


def unknown_names(message: str, violations: Iterable[JsonObject]) -> tuple[tuple[str, str], ...]:
    """Return the fields that an error calls unknown: the place of each, in the server's notation, and its name."""
    found = [(match["path"] or "", match["name"]) for match in _UNKNOWN.finditer(message)]
    for violation in violations:
        place = str(violation.get("field") or "")
        description = str(violation.get("description") or "")
        found += [(match["path"] or place, match["name"]) for match in _UNKNOWN.finditer(description)]
    return tuple(dict.fromkeys(found))


class UnknownFields:
    """The fields that one endpoint does not know."""

    __slots__ = ("_fields", "_needles")

    def __init__(self) -> None:
        self._fields: frozenset[Field] = frozenset()
        self._needles: tuple[bytes, ...] = ()

    def learn(self, names: Sequence[tuple[str, str]], body: bytes) -> tuple[str, ...]:
        """Remember the fields that an error names, as far as the refused body has them; return these, to be shown.

        Empty unless all of them can be left out: with any other the request would be refused again.
        """
        contents = strict_json.parse_own(body)["contents"]
        newest = _after_answers(contents, role_of)
        fields = [_field(path, name, newest) for path, name in names]
        if None in fields:
            return ()
        found = {field for field in fields if field is not None and strict_json.dump(field[1]) in body}
        both = self._fields | found
        if both != self._fields:
            self._fields = frozenset(both if len(both) <= _NAMES_MAX else found)
            self._needles = tuple({strict_json.dump(name) for _, name in self._fields})
        return tuple(f"{message}.{name}" for message, name in sorted(found))

    def without(self, contents: Sequence[bytes]) -> list[bytes]:
        """Return the encoded contents without these fields; what the user said last stays as it is."""
        found = {
            place: strict_json.parse_own(content)
            for place, content in enumerate(contents)
            if any(needle in content for needle in self._needles)
        }
        if not found:
            return [*contents]
        newest = _after_answers(contents, lambda content: role_of(strict_json.parse_own(content)))
        return [
            self._stripped(each, found[place]) if place in found and place < newest else each
            for place, each in enumerate(contents)
        ]

    def _stripped(self, encoded: bytes, content: JsonObject) -> bytes:
        stripped = _without("Content", content, self._fields)
        return encoded if stripped == content else strict_json.dump(stripped)


def _after_answers(contents: Sequence[Any], role_of_one: Callable[[Any], str]) -> int:
    """The place after the last content of the model."""
    return next((place for place in range(len(contents), 0, -1) if role_of_one(contents[place - 1]) == "model"), 0)


def _field(path: str, name: str, newest: int) -> Field | None:
    """Return the field at a place, if it is one that may be left out; `newest` is the first place of what was said last."""
    found = _PATH.fullmatch(path)
    if found is None or int(found["index"]) >= newest:
        return None
    message: str | None = "Content"
    for step in found["inner"].split(".")[1:]:
        message = MESSAGES[message].get(camel(step.partition("[")[0])) if message else None
    known = MESSAGES.get(message or "")
    return None if known is None or not message or camel(name) in known else (message, name)


def _without(message: str, value: Any, fields: frozenset[Field]) -> Any:
    if isinstance(value, list):
        items = [(item, _without(message, item, fields)) for item in cast("list[Any]", value)]
        # A part that lost its only data says nothing any more.
        left = [kept for item, kept in items if kept or not item]
        return left or ([_OMITTED] if message == "Part" and value else left)
    if not isinstance(value, dict):
        return value
    inner = MESSAGES[message]
    given = cast("JsonObject", value)
    kept = {
        name: _without(inner[name], item, fields) if inner.get(name) else item
        for name, item in given.items()
        if (message, name) not in fields
    }
    if message != "Part" or len(kept) == len(given) or _DATA & kept.keys():
        return kept
    # A signature needs something that it stands on.
    return {"text": "", **kept} if kept.get("thoughtSignature") else {}
