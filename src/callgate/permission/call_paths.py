"""The files that a call may name: a definition and arguments come in, texts that may be paths go out.

An argument is a path unless the tool's definition says that it is something else: by the type or format of its schema, or by
a name that stands for content. The value's looks say nothing: `2024` and `true` are names of files. Only words are compared:
files are not looked at.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import unescape
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote

from callgate.permission.patterns import PATH_CHARS_MAX
from callgate.types import ToolDefinition

__all__ = [
    "MayMatch",
    "RunningValues",
    "data_keys",
    "is_large",
    "leaves",
    "paths_in",
    "paths_of",
    "rooted",
    "unsure_paths_of",
]

RunningValues: TypeAlias = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Arguments -> the values that the tool gets for them, as plain data in one or more forms; empty if that is not known."""
MayMatch: TypeAlias = Callable[[str], bool]
"""A text with many values in it -> False if none of them can be one that somebody looks for."""
_Role: TypeAlias = Literal["path", "content", "other", "command"]
"""The purpose of a text: a path, something else for certain, something that may be a path, a line for a shell."""
UNSURE_MAX = 64
"""Values with wildcards and the like that are compared one by one; a call with more of them may name any file."""
LARGE_VALUES, LARGE_CHARS = 2_000, 200_000
TOGETHER = 64
"""Values from which on it pays to look at all of them at once first."""


# Arguments of a file tool beside names of files. Everything else of it is taken for one: better a question too many.
_CONTENT = frozenset({
    "content", "contents", "text", "data", "body", "old", "new", "old_string", "new_string", "old_str", "new_str", "replace",
    "replacement", "search", "instruction", "description", "query", "encoding", "mode", "comment", "message", "reason",
    "regex", "lines", "insert_text", "diff", "patch", "command", "oldtext", "newtext",
})  # fmt: skip
_CONTENT_WORDS = ("text", "content", "contents", "code")
"""Ends of the names of other arguments that are content too: `file_text`, `sourceCode`."""
_FILE_WORDS = ("path", "file", "dir", "folder", "uri", "source", "src", "dest", "dst", "target", "cwd", "root")
_PATH_FORMATS = frozenset(
    {"path", "file-path", "directory-path", "file", "uri", "uri-reference", "iri", "iri-reference", "url"}
)
_WORDS = re.compile(r"[^\s\"'=;|&<>()`,]+")
_RUNS = re.compile(r"[^\s\"';|&<>()`]+")
_QUOTES = re.compile(r"\\\n|[\"'\\]")
_HEX = "[0-9a-fA-F]"
_ESCAPES = re.compile(rf"\\(?:x({_HEX}{{1,2}})|u({_HEX}{{1,4}})|u\{{({_HEX}{{1,6}})\}}|U({_HEX}{{1,8}})|([0-7]{{1,3}}))")
_OPTION_SIGNS = ("-", "@", "+")
_OPTIONS_MAX = 8
"""Letters of options in one word that a value may follow: `-xzfname`."""
_SCHEMA_DEPTH_MAX = 32
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:")
"""The beginning of a URI, or the letter of a drive: behind both there is a path."""
_DRIVE = re.compile(r"\s*[A-Za-z]:")
# An address on the network, which is no file here. Without a host it is a path to somebody.
_REMOTE = re.compile(r"\s*https?://[^/?#\\\s]", re.IGNORECASE)
_SCHEMES_MAX = 4
_END = re.compile(r"[\0?#]")
_URI_END = re.compile(r"[\0?#;!]")
_PARAMETERS = re.compile(r";[^/]*")
_ODD = re.compile(r"[\s%:?#\0'\"`&;+]")
_SPECIAL = re.compile(r"[\s%:?#\0'\"`=;|&<>(),+]")
"""Characters that make a text more than one path to somebody; those of `_ODD` and of a command line."""
_OLD_ENCODED = re.compile(r"%u([0-9a-fA-F]{4})|%[cC]0%[aA]([eEfF])")
"""Characters as `%u006c`, and the dot and the slash in two bytes (`%c0%af`), as some decoders read them."""
_EXPANDED = re.compile(
    r"[*?\[{$`~!\"&'():;<>^|\x03-\x08\x0b-\x1f\x7f]|[^\x00-\x7f\w\s]|%(?:2[1-9a]|3[abcef]|5[be]|7[bce]|60|u|[c-f])|%[a-z_][a-z0-9_]{2,64}%",
    re.IGNORECASE,
)
"""Signs that a path may be expanded, or be another one to somebody, percent-encoded or not."""
_PLAIN_URI = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+:[/\\][\w\s/\\.,@=-]*+(?:[?#\0]|\Z)")
"""A URI without such signs before its query."""


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


def is_large(args: Mapping[str, Any]) -> bool:
    """True if reading all of the arguments may take longer than others should wait for."""
    values_left, chars_left = LARGE_VALUES, LARGE_CHARS
    holders: list[Any] = [args]
    for holder in holders:
        values_left -= len(holder)
        if values_left <= 0:  # Before they are looked at.
            return True
        for value in cast("Iterable[Any]", holder.values() if isinstance(holder, Mapping) else holder):
            if isinstance(value, str):
                chars_left -= len(value)
            elif isinstance(value, (Mapping, Sequence)):
                holders.append(value)
        if chars_left <= 0:
            return True
    return False


def text_of(value: Any) -> str:
    """A single value as the text that patterns are tested on."""
    return value if isinstance(value, str) else json.dumps(value, default=repr)


def paths_of(
    definition: ToolDefinition,
    args: Mapping[str, Any],
    running: RunningValues | None = None,
    *,
    wide: bool = True,
    may_match: MayMatch | None = None,
) -> list[str]:
    """The texts of a call that may name files, as they were written and as the tool gets them.

    A file tool that follows links gets the path of the file itself: both names count, also for rules that allow. Any other
    tool is allowed by the value that runs alone. Texts of many that cannot match are left out where `may_match` says so.
    """
    views = _views(definition, args, running, wide=wide)
    found = (path for one in views for path in paths_in(definition, one, wide=wide, may_match=may_match))
    return list(dict.fromkeys(found))


def unsure_paths_of(
    definition: ToolDefinition, args: Mapping[str, Any], running: RunningValues | None = None
) -> list[str] | None:
    """The paths of a call that its tool may expand: wildcards, variables, short names.

    None if there are too many, or one is too long to be compared: then it may be any.

    Only arguments that are there for paths count, by their schema or name, and the words of a command.
    """
    if definition.kind == "file":
        return []  # callgate's own tools take each character as it is.
    found: dict[str, None] = {}
    traits, is_command = _Traits(definition), definition.kind == "command"
    for view in _views(definition, args, running, wide=True):
        for name, value in leaves(view):
            if not isinstance(value, str) or not (is_command or traits.is_named(name)) or _REMOTE.match(value):
                continue
            if not is_command and (_PLAIN_URI.match(value) or not _EXPANDED.search(value)):
                continue
            for text in _words(value) if is_command else (value,):
                # Of a command that is no path for its length, the words are looked at one by one.
                paths = _expandable(text, is_word=is_command)
                found |= dict.fromkeys(path for path in paths if not (is_command and _is_script(path)))
            if len(found) > UNSURE_MAX or any(len(path) > PATH_CHARS_MAX for path in found):
                return None
    return list(found)


def _expandable(text: str, *, is_word: bool) -> Iterable[str]:
    """The forms of a text that a program may expand; a question mark in a URI begins its query."""
    texts = [text]
    if found := _SCHEME.match(text):
        rest = text[found.end() :]
        # Which folder of a drive a path begins at is not known.
        texts = [rest, f"/{rest}"] if _DRIVE.match(text) else _END.split(rest, maxsplit=1)[:1]
        texts += [] if rest.startswith(("/", "\\")) else [text]  # A colon may be a slash.
    if not any(map(_EXPANDED.search, texts)):
        return ()
    from callgate.permission.unsure_paths import is_unsure, shortened  # Most paths are plain ones.

    readings = (one for each in texts for one in _readings(each) if is_unsure(one, is_word=is_word))
    return (shortened(one) if len(one) > PATH_CHARS_MAX else one for one in readings)


def _is_script(path: str) -> bool:
    return len(path) > PATH_CHARS_MAX and _WORDS.fullmatch(path) is None and _RUNS.fullmatch(path) is None


def _views(
    definition: ToolDefinition, args: Mapping[str, Any], running: RunningValues | None, *, wide: bool
) -> list[Mapping[str, Any]]:
    views: Sequence[Mapping[str, Any]] = () if running is None else running(args)
    if not wide and definition.kind != "file":
        return [views[0] if views else args]
    return [args, *(view for view in views if view != args)]


def rooted(roots: Sequence[str], path: str) -> list[str]:
    """A relative path as one from the root of the file system, for each name of the folder that it starts at."""
    return [] if path.startswith(("/", "~")) else [f"{root}/{path}" for root in roots]


def paths_in(
    definition: ToolDefinition, args: Mapping[str, Any], *, wide: bool = True, may_match: MayMatch | None = None
) -> list[str]:
    """The texts of a call that may name files.

    Widely, for rules that ask or deny, that is everything which could be one to the tool: decoded URIs, lines of a text,
    words of a command. Narrowly, for rules that allow, plain content is left out; all that stays must fit.
    """
    traits = _Traits(definition)
    folder = args.get("cwd") if definition.kind != "file" else None
    texts: dict[tuple[str, _Role], None] = {}
    found: list[str] = []
    for name, value in _candidates(args, traits.known):
        if isinstance(value, str):
            texts[value, traits.role(name)] = None
        # Numbers, truth values and nothing are no names, unless the argument is there for one.
        elif value is not None and not isinstance(value, bool) and traits.is_named(name):
            found.append(text_of(value))
    given = list(texts)
    if may_match is not None and wide:
        look = _Look(may_match, "\n".join([str(folder), *definition.roots]))
        given = [one for one in look.possible(given) if len(one[0]) <= PATH_CHARS_MAX or look.may_be_in([one])]
    for text, role in given:
        if definition.kind == "file":
            found += [] if role == "content" else [text]
        elif not _REMOTE.match(text):
            found += _meanings(text, "command" if definition.kind == "command" else role, wide=wide)
    return _from_folder(folder, found, wide=wide)


class _Traits:
    """The meaning of a tool's arguments, by their names."""

    def __init__(self, definition: ToolDefinition) -> None:
        self.known = _names_in_schema(definition)
        self._is_file_tool = definition.kind == "file"
        self.is_named = functools.cache(self._is_named)
        self.is_content = functools.cache(self._is_content)

    def role(self, name: str) -> _Role:
        """The purpose of the values of the argument."""
        return "content" if self.is_content(name) else "path" if self.is_named(name) else "other"

    def _is_named(self, name: str) -> bool:
        """True if the argument is there for a path."""
        if self.known.get(name) == "path":
            return True
        return any(word in name.lower() for word in _FILE_WORDS) and not self.is_content(name)

    def _is_content(self, name: str) -> bool:
        """True if the argument is there for something else, such as the text of a file, or a switch of a file tool."""
        meaning = self.known.get(name)
        is_named_so = name.lower() in _CONTENT or re.split(r"[^a-zA-Z]|(?=[A-Z])", name)[-1].lower() in _CONTENT_WORDS
        return (is_named_so and meaning != "path") or (self._is_file_tool and meaning == "other")


class _Look:
    """A quick look at many texts at once, in every spelling in which they are looked at one by one later."""

    def __init__(self, may_match: MayMatch, context: str) -> None:
        self._may_match, self._context = may_match, context

    def may_be_in(self, given: list[tuple[str, _Role]]) -> bool:
        """False if none of the texts can match."""
        together = "\n".join([*(text for text, _ in given), self._context])
        return any(self._may_match(one) for spelled in _spellings(together) for one in _readings(spelled))

    def possible(self, given: list[tuple[str, _Role]], *, parts: int = 16) -> list[tuple[str, _Role]]:
        """The texts that may match: those of a group are looked at together, and apart if one of them may."""
        if len(given) <= TOGETHER:
            return given
        size = -(-len(given) // parts)
        groups = (given[start : start + size] for start in range(0, len(given), size))
        return [one for group in groups if self.may_be_in(group) for one in self.possible(group)]


def _readings(text: str) -> Iterator[str]:
    """A text as it is, with percent signs and entities read once and twice, and with blanks for plus signs."""
    yield text
    for _ in range(2):
        if "%" not in text and "&" not in text:
            break
        text = _unquoted(text)
        yield text
    if "+" in text:
        yield text.replace("+", " ")


def _unquoted(text: str) -> str:
    text = unescape(text) if "&" in text else text
    return (
        text
        if "%" not in text
        else unquote(_OLD_ENCODED.sub(lambda m: chr(int(m[1], 16)) if m[1] else "./"[m[2] in "fF"], text))
    )


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


def _meanings(text: str, role: _Role, *, wide: bool) -> list[str]:
    """The paths that a tool of others may take a text for."""
    is_word = role in ("command", "path") and (text.startswith(_OPTION_SIGNS) or "\\" in text)
    if role != "content" and not is_word and not _SPECIAL.search(text):
        return [text]
    is_line = "\n" not in text
    if role == "command":
        texts = list(_words(text))
    elif role == "content":
        texts = [text] if wide and is_line else []
    else:
        texts = [text, *(text.splitlines() if wide and not is_line else ())]
        if role == "path" and wide and is_line and len(text) <= PATH_CHARS_MAX:
            texts += _words(text)  # Several in one text, or what a server passes to a shell.
    return list(dict.fromkeys(meaning for one in texts for meaning in (one, *_decoded(one))))


def _words(command: str) -> Iterator[str]:
    """The words of a command line, or of one of its arguments: as they stand, without quotes, and behind an option."""
    yield command
    for spelled in _spellings(command):
        yield from (run for run in _RUNS.findall(spelled) if "{" in run) if "{" in spelled else ()
        for word in _WORDS.findall(spelled):
            yield word
            yield from word.split(":") if ":" in word else ()
            if word.startswith(_OPTION_SIGNS):
                yield from (word[start:] for start in range(1, min(len(word), _OPTIONS_MAX)))


def _spellings(command: str) -> Iterable[str]:
    """A command as it stands, and without quotes: with escapes as the characters that they stand for, or without them."""
    plain = _ESCAPES.sub(_escaped, command)
    return dict.fromkeys((command, _QUOTES.sub("", command), _QUOTES.sub("", plain)))


def _escaped(found: re.Match[str]) -> str:
    octal = found[5]
    code = int(octal, 8) if octal else int(found[1] or found[2] or found[3] or found[4], 16)
    return chr(code) if code <= sys.maxunicode else ""


def _decoded(text: str) -> Iterator[str]:
    """Other readings of a text: without quotes and blanks, as a URI, percent signs and entities read once and twice."""
    if not _ODD.search(text):
        return
    if (bare := text.strip(" \t\r\n'\"`")) != text:
        yield (text := bare)
    for _ in range(2):
        yield from _plain_forms(text)
        if "%" not in text and "&" not in text:
            break
        text = _unquoted(text)
        yield text
    else:
        yield from _plain_forms(text)
    if "+" in text:
        yield text.replace("+", " ")


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
    if ";" in text:
        yield _PARAMETERS.sub("", text)


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
