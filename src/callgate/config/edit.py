"""One value of a TOML text changed, everything else (comments, order, blanks) left as it is."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from typing import Any, cast

from callgate.config.lines import Entry, entries_of, toml_of
from callgate.errors import UsageError

__all__ = ["with_value", "without_value"]


def with_value(text: str, key: str, value: Any) -> str:
    """The text in which the key has this value.

    Raises:
        UsageError: the text is not TOML, or is written in a way that only a person can change.
    """
    path = tuple(key.split("."))
    written = f"{_key(path[-1])} = {_literal(value)}"
    lines = text.split("\n")
    entries = list(entries_of(text))
    if (found := _pair(entries, path)) is not None:
        line = lines[found.first]
        if found.first != found.last:
            lines[found.first : found.last + 1] = [line[: found.value_at] + _literal(value)]
        else:
            lines[found.first] = line[: found.value_at] + _literal(value) + _comment(line, found.value_at)
    elif (place := _place_in(entries, path[:-1], len(lines))) is not None:
        lines.insert(place, written)
    else:
        lines = [*text.rstrip("\n").split("\n"), "", f"[{'.'.join(map(_key, path[:-1]))}]", written, ""]
    changed = "\n".join(lines).lstrip("\n")
    return _checked(text, changed if changed.endswith("\n") else f"{changed}\n", path, value)


def without_value(text: str, key: str) -> str:
    """The text in which the key has no value.

    Raises:
        UsageError: the key has none, or only a person can take it out.
    """
    path = tuple(key.split("."))
    found = _pair(list(entries_of(text)), path)
    if found is None:
        raise UsageError(f"{key!r} is not set there, or not on a line of its own")
    lines = text.split("\n")
    del lines[found.first : found.last + 1]
    return _checked(text, "\n".join(lines), path, None)


def _pair(entries: Sequence[Entry], path: tuple[str, ...]) -> Entry | None:
    return next((entry for entry in entries if not entry.is_header and entry.key == path), None)


def _place_in(entries: Sequence[Entry], table: tuple[str, ...], end: int) -> int | None:
    """The line at which a pair of this table can be put; None where the table has to be begun."""
    if not table:
        return next((entry.first for entry in entries if entry.is_header), max(end - 1, 0))
    header = next((entry for entry in entries if entry.is_header and entry.key == table), None)
    return None if header is None else header.last + 1


def _comment(line: str, value_at: int) -> str:
    """The comment after a value that ends on its line."""
    quote, column = "", value_at
    while column < len(line):
        char = line[column]
        if quote:
            if char == "\\" and quote == '"':
                column += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        elif char == "#":
            return f"  {line[column:]}"
        column += 1
    return ""


def _key(part: str) -> str:
    return part if part and all(c.isascii() and (c.isalnum() or c in "_-") for c in part) else json.dumps(part)


def _literal(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, cast('list[Any]', value)))}]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{_key(name)} = {_literal(item)}" for name, item in cast("dict[str, Any]", value).items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _checked(before: str, after: str, path: tuple[str, ...], value: Any) -> str:
    """The new text, if it says what it should and nothing else."""
    try:
        wanted, got = toml_of(before), toml_of(after)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the file is not TOML, or the change would break it ({error}); change it by hand") from None
    here: Any = wanted
    for part in path[:-1]:
        here = cast("dict[str, Any]", here).setdefault(part, {}) if isinstance(here, dict) else None
    if isinstance(here, dict):
        members = cast("dict[str, Any]", here)
        if value is None:
            members.pop(path[-1], None)
        else:
            members[path[-1]] = list(cast("Sequence[Any]", value)) if isinstance(value, tuple) else value
    if _pruned(wanted) != _pruned(got):
        raise UsageError(f"{'.'.join(path)!r} is written there in a way that only a person can change: edit the file")
    return after


def _pruned(value: Any) -> Any:
    """Without empty tables: whether one is written or not says nothing."""
    if not isinstance(value, dict):
        return value
    members = {key: _pruned(item) for key, item in cast("dict[str, Any]", value).items()}
    return {key: item for key, item in members.items() if item != {}}
