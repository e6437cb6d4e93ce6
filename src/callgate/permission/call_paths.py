"""The files that a call may name: a definition and arguments come in, texts that may be paths go out.

An argument is a path unless the tool's definition says that it is something else: by the type or format of its schema, or by
a name that stands for content. The value's looks say nothing: `2024` and `true` are names of files. Only words are compared:
files are not looked at.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from callgate.permission.patterns import PATH_CHARS_MAX
from callgate.types import ToolDefinition

__all__ = ["RunningValues", "leaves", "paths_in", "paths_of"]

RunningValues: TypeAlias = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Arguments -> the values that the tool gets for them, as plain data in one or more forms; empty if that is not known."""


# Arguments of a file tool beside names of files. Everything else of it is taken for one: better a question too many.
_CONTENT = frozenset({
    "content", "contents", "text", "data", "body", "old", "new", "old_string", "new_string", "old_str", "new_str", "replace",
    "replacement", "search", "instruction", "description", "query", "encoding", "mode", "comment", "message", "reason",
    "regex", "lines", "insert_text", "diff", "patch", "command", "oldtext", "newtext",
})  # fmt: skip
_FILE_WORDS = ("path", "file", "dir", "folder", "uri", "source", "destination", "target", "cwd", "root")
_PATH_FORMATS = frozenset(
    {"path", "file-path", "directory-path", "file", "uri", "uri-reference", "iri", "iri-reference", "url"}
)
_WORDS = re.compile(r"[^\s\"'=;|&<>()`,]+")
_SCHEMA_DEPTH_MAX = 32


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value in a value, with the name nearest above it. Keys of nested objects come as values of their own."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield from leaves(item, str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in cast("Sequence[Any]", value):
            yield from leaves(item, name)
    else:
        yield name, value


def text_of(value: Any) -> str:
    """A single value as the text that patterns are tested on."""
    return value if isinstance(value, str) else json.dumps(value, default=repr)


def paths_of(
    definition: ToolDefinition, args: Mapping[str, Any], running: RunningValues | None = None, *, wide: bool = True
) -> list[str]:
    """The texts of a call that may name files, as they were written and as the tool gets them.

    A file tool that follows links gets the path of the file itself: both names count, also for rules that allow. Any other
    tool is allowed by the value that runs alone.
    """
    views: Sequence[Mapping[str, Any]] = () if running is None else running(args)
    seen = [args, *views] if wide or definition.kind == "file" else list(views[:1] or [args])
    return list(dict.fromkeys(path for one in seen for path in paths_in(definition, one, wide=wide)))


def paths_in(definition: ToolDefinition, args: Mapping[str, Any], *, wide: bool = True) -> list[str]:
    """The texts of a call that may name files.

    Widely, for rules that ask or deny, that is everything which could be one to the tool: decoded URIs, lines of a text,
    words of a command. Narrowly, for rules that allow, plain content is left out; all that stays must fit.
    """
    known = _names_in_schema(definition)
    found: list[str] = []
    for name, value in _candidates(args, known):
        plain = name.lower()
        is_named = known.get(name) == "path" or any(word in plain for word in _FILE_WORDS)
        is_content = known.get(name) != "path" and plain in _CONTENT
        if not isinstance(value, str):
            # Numbers, truth values and nothing are no names, unless the argument is there for one.
            if is_named and value is not None and not isinstance(value, bool):
                found.append(text_of(value))
        elif definition.kind == "file":
            found += [] if is_content or known.get(name) == "other" else [value]
        elif len(value) <= PATH_CHARS_MAX and not value.lower().startswith(("http://", "https://")):
            found += _meanings(value, definition, wide=wide, is_content=is_content)
    return found


def _candidates(args: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    yield from leaves(args)
    # Keys that no schema names are data: {"files": {".env": "..."}}.
    for value in args.values():
        yield from (("", key) for key in _keys(value) if key not in known)


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield str(key)
            yield from _keys(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in cast("Sequence[Any]", value):
            yield from _keys(item)


def _meanings(text: str, definition: ToolDefinition, *, wide: bool, is_content: bool) -> list[str]:
    """The paths that a tool of others may take a text for."""
    if definition.kind == "command":
        texts = [text, *_WORDS.findall(text)]
    elif is_content:
        texts = [text] if wide and "\n" not in text else []
    else:
        texts = [text, *(text.splitlines() if wide and "\n" in text else ())]
    return list(dict.fromkeys(meaning for one in texts for meaning in (one, *_decoded(one))))


def _decoded(text: str) -> Iterator[str]:
    """The path of a `file:` URI, and what quotes and percent signs stand for, these once and twice."""
    if (bare := text.strip("'\"`")) != text:
        yield (text := bare)
    if text[:5].lower() == "file:":
        text = text[5:]
        if text.startswith("//"):
            text = "/" + text[2:].partition("/")[2]
        yield text
    for _ in range(2):
        if "%" not in text:
            break
        text = unquote(text)
        yield text


# The schema --------------------------------------------------------------------------------------------------------------


def _names_in_schema(definition: ToolDefinition) -> Mapping[str, str]:
    """Name of a declared property at any depth -> `path`, `other` if it is certainly none, or `unknown`."""
    return _known_names(_Schema(definition.input_schema))


class _Schema:
    """A schema as an argument of a cache that goes by its identity; the entry keeps it alive, so no other has its id."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Schema) and other.schema is self.schema

    def __hash__(self) -> int:
        return id(self.schema)


@functools.lru_cache(maxsize=1_024)
def _known_names(held: _Schema) -> Mapping[str, str]:
    known: dict[str, str] = {}
    waiting: list[tuple[Any, int]] = [(held.schema, 0)]
    while waiting:
        schema, depth = waiting.pop()
        if depth > _SCHEMA_DEPTH_MAX:
            continue
        if isinstance(schema, Mapping):
            table = cast("Mapping[str, Any]", schema)
            properties: Any = table.get("properties")
            if isinstance(properties, Mapping):
                for name, part in cast("Mapping[str, Any]", properties).items():
                    known[name] = _stricter(known.get(name), _meaning(part))
            waiting += [(part, depth + 1) for part in table.values() if isinstance(part, (Mapping, list))]
        elif isinstance(schema, list):
            waiting += [(part, depth + 1) for part in cast("list[Any]", schema)]
    return known


def _meaning(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "unknown"
    table = cast("Mapping[str, Any]", schema)
    if table.get("format") in _PATH_FORMATS:
        return "path"
    values: Any = table.get("enum")
    # A choice of words that the tool itself names is a switch, unless they could be files.
    is_switch = isinstance(values, list) and all(
        isinstance(value, str) and value.isalpha() for value in cast("list[Any]", values)
    )
    return "other" if is_switch else "unknown"


def _stricter(before: str | None, now: str) -> str:
    found = {before or now, now}
    return "path" if "path" in found else "unknown" if "unknown" in found else "other"
