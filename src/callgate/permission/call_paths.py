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

__all__ = ["RunningValues", "data_keys", "leaves", "paths_in", "paths_of", "rooted"]

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
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+:")
# An address on the network, which is no file here. Without a host it is a path to somebody.
_REMOTE = re.compile(r"\s*https?://[^/?#\\\s]", re.IGNORECASE)
_SCHEMES_MAX = 4
_END = re.compile(r"[\0?#]")
_URI_END = re.compile(r"[\0?#;!]")
_ODD = re.compile(r"[\s%:?#\0'\"`]")
_SPECIAL = re.compile(r"[\s%:?#\0'\"`=;|&<>(),]")
"""Characters that make a text more than one path to somebody; those of `_ODD` and of a command line."""
_ENCODED = 9
"""Characters that one may be written as, percent-encoded twice: `%25` + `2e`, and some room."""


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value in a value, with the name nearest above it; see `data_keys` for the names."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield from leaves(item, str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in cast("Sequence[Any]", value):
            if isinstance(item, str):  # There may be many.
                yield name, item
            else:
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
    if not wide and definition.kind != "file":
        return paths_in(definition, views[0] if views else args, wide=False)
    seen = [args]
    seen += [view for view in views if view != args]
    return list(dict.fromkeys(path for one in seen for path in paths_in(definition, one, wide=wide)))


def rooted(roots: Sequence[str], path: str) -> list[str]:
    """A relative path as one from the root of the file system, for each name of the folder that it starts at."""
    return [] if path.startswith(("/", "~")) else [f"{root}/{path}" for root in roots]


def paths_in(definition: ToolDefinition, args: Mapping[str, Any], *, wide: bool = True) -> list[str]:
    """The texts of a call that may name files.

    Widely, for rules that ask or deny, that is everything which could be one to the tool: decoded URIs, lines of a text,
    words of a command. Narrowly, for rules that allow, plain content is left out; all that stays must fit.
    """
    known = _names_in_schema(definition)
    found: list[str] = []
    traits: dict[str, tuple[bool, bool]] = {}
    done: set[tuple[str, str]] = set()
    for name, value in _candidates(args, known):
        if name not in traits:
            plain, is_path = name.lower(), known.get(name) == "path"
            traits[name] = is_path or any(word in plain for word in _FILE_WORDS), not is_path and plain in _CONTENT
        is_named, is_content = traits[name]
        if isinstance(value, str):
            if (name, value) in done:
                continue
            done.add((name, value))
        if not isinstance(value, str):
            # Numbers, truth values and nothing are no names, unless the argument is there for one.
            if is_named and value is not None and not isinstance(value, bool):
                found.append(text_of(value))
        elif definition.kind == "file":
            found += [] if is_content or known.get(name) == "other" else [value]
        elif not _REMOTE.match(value):
            found += _meanings(value, definition, wide=wide, is_content=is_content)
    return _from_folder(args.get("cwd"), found, wide=wide) if definition.kind != "file" else found


def _from_folder(folder: Any, paths: list[str], *, wide: bool) -> list[str]:
    """Paths as they are for a program that runs in a folder; widely, as they are without it too."""
    if not isinstance(folder, str):
        return paths
    joined = [path if path.startswith(("/", "~")) or path == folder else f"{folder}/{path}" for path in paths]
    return [*paths, *joined] if wide else joined


def _candidates(args: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    yield from leaves(args)
    for value in args.values():
        yield from (("", key) for key in _keys(value) if key not in known)


def data_keys(definition: ToolDefinition, value: Any) -> list[str]:
    """The keys in a value that no schema names, at any depth: they are data, as in `{"files": {".env": "..."}}`."""
    known = _names_in_schema(definition)
    return [key for key in _keys(value) if key not in known]


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield str(key)
            yield from _keys(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in cast("Sequence[Any]", value):
            if not isinstance(item, str):
                yield from _keys(item)


def _meanings(text: str, definition: ToolDefinition, *, wide: bool, is_content: bool) -> list[str]:
    """The paths that a tool of others may take a text for."""
    if not is_content and len(text) <= PATH_CHARS_MAX and not _SPECIAL.search(text):
        return [text]
    if len(text) > PATH_CHARS_MAX * (_ENCODED if "%" in text else 1):
        text = _END.split(text, maxsplit=1)[0]
        if len(text) > PATH_CHARS_MAX:
            return []
    if definition.kind == "command":
        texts = [text, *_WORDS.findall(text)]
    elif is_content:
        texts = [text] if wide and "\n" not in text else []
    else:
        texts = [text, *(text.splitlines() if wide and "\n" in text else ())]
    return list(dict.fromkeys(meaning for one in texts for meaning in (one, *_decoded(one))))


def _decoded(text: str) -> Iterator[str]:
    """Other readings of a text: without quotes and blanks, as a URI, and with percent signs read once and twice."""
    if not _ODD.search(text):
        return
    if (bare := text.strip(" \t\r\n'\"`")) != text:
        yield (text := bare)
    for _ in range(2):
        yield from _plain_forms(text)
        if "%" not in text:
            return
        text = unquote(text)
        yield text
    yield from _plain_forms(text)


def _plain_forms(text: str) -> Iterator[str]:
    """The text up to a NUL, where a system ends it; the path of a URI; both without query and fragment."""
    if "\0" in text:
        yield (text := text.partition("\0")[0])
    for _ in range(_SCHEMES_MAX):  # One may hold another: `jar:file:/...`.
        found = None if _REMOTE.match(text) else _SCHEME.match(text)
        if found is None:
            break
        text = text[found.end() :]
        if text.startswith("//"):
            text = "/" + text[2:].partition("/")[2]
        yield text
        yield _URI_END.split(text, maxsplit=1)[0]
    if _END.search(text):
        yield _END.split(text, maxsplit=1)[0]


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
