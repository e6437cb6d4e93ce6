"""One server more, or one less, in an `mcpServers` file: everything else in it stays as it was written, to the byte.

The text of a file comes in, the changed text goes out; and the two doings around it, reading and replacing the file whole.
Nothing is started, and no value is filled in: `$TOKEN` stays `$TOKEN`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from callgate import strict_json
from callgate.errors import JsonError, UsageError
from callgate.types import JsonObject

__all__ = ["KEY", "ServerMissingError", "change_file", "file_text", "with_server", "without_server"]

KEY = "mcpServers"
"""The key of the servers, in the files of most programs."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_BOM = "\ufeff"


class ServerMissingError(UsageError):
    """The file has no server of that name."""


@dataclass(frozen=True, slots=True)
class _Member:
    """The positions of a key and its value in the text."""

    key: str
    start: int
    value: int
    end: int


def with_server(text: str, name: str, row: JsonObject, *, force: bool = False, key: str = KEY) -> str:
    """The text with one server more; an empty text is an empty file.

    Raises:
        UsageError: it is no such file, or it has a server of this name and nobody said to replace it.
    """
    text = text if text.strip() else "{}\n"
    root = _root(text)
    servers = _servers(text, key)
    if servers is None:
        return _inserted(text, root, key, {name: row})
    there = _member(text, servers.value, name)
    if there is None:
        return _inserted(text, servers.value, name, row)
    if not force:
        raise UsageError(f"there is a server {name!r} already; give another name, or replace it with --force")
    return text[: there.value] + _dumped(text, row, _margin(text, there.start)) + text[there.end :]


def without_server(text: str, name: str, *, key: str = KEY) -> tuple[str, Any]:
    """The text with one server less, and what that was.

    Raises:
        UsageError: it is no such file.
        ServerMissingError: it has no such server.
    """
    servers = _servers(text, key)
    members = [] if servers is None else _members(text, servers.value)
    found = [place for place, member in enumerate(members) if member.key == name]
    if not found:
        known = ", ".join(repr(member.key) for member in members) or "none"
        raise ServerMissingError(f"there is no server {name!r}; the file has {known}")
    (place,) = found
    gone = members[place]
    row: Any = json.loads(text[gone.value : gone.end])
    if place > 0:
        return text[: members[place - 1].end] + text[gone.end :], row
    if len(members) > 1:
        return text[: gone.start] + text[members[1].start :], row
    assert servers is not None
    return text[: servers.value] + "{}" + text[servers.end :], row


# Where things stand ------------------------------------------------------------------------------------------------------


def _root(text: str) -> int:
    """The position at which the object of the file begins."""
    try:
        value: Any = strict_json.parse(text)
    except JsonError as error:
        raise UsageError(f"the file is not JSON, so it is left alone: {error}") from error
    if not isinstance(value, dict):
        raise UsageError("the file does not hold a JSON object, so it is left alone")
    return _skip(text, 0)


def _servers(text: str, key: str) -> _Member | None:
    found = _member(text, _root(text), key)
    if found is not None and text[found.value] != "{":
        raise UsageError(f"{key!r} in the file is not an object, so it is left alone")
    return found


def _member(text: str, at: int, key: str) -> _Member | None:
    found = [member for member in _members(text, at) if member.key == key]
    if len(found) > 1:
        raise UsageError(f"the file has {key!r} twice, so it is left alone: remove one of them first")
    return found[0] if found else None


def _members(text: str, at: int) -> list[_Member]:
    """The members of the object that begins at a place of sound JSON."""
    members: list[_Member] = []
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, after = cast("tuple[str, int]", _DECODER.raw_decode(text, at))
        value = _skip(text, _skip(text, after) + 1)
        end = _DECODER.raw_decode(text, value)[1]
        members.append(_Member(key, at, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return members


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


# What is written ---------------------------------------------------------------------------------------------------------


def _inserted(text: str, at: int, key: str, value: Any) -> str:
    """A member more at the end of the object at a place, laid out as its neighbours are."""
    members = _members(text, at)
    if members:
        between = text[at + 1 : members[0].start]  # What stands before the first member may stand before the new one.
        margin = _margin(text, members[0].start)
        written = f"{json.dumps(key, ensure_ascii=False)}: {_dumped(text, value, margin)}"
        return f"{text[: members[-1].end]},{between or ' '}{written}{text[members[-1].end :]}"
    outer = _margin(text, at) or ""
    margin = outer + _unit(text)
    end = text.index("}", at)
    written = f"{json.dumps(key, ensure_ascii=False)}: {_dumped(text, value, margin)}"
    line = _line(text)
    return f"{text[: at + 1]}{line}{margin}{written}{line}{outer}{text[end:]}"


def _dumped(text: str, value: Any, margin: str | None) -> str:
    if margin is None:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=_unit(text)).replace("\n", f"{_line(text)}{margin}")


def _line(text: str) -> str:
    """The end of a line, as the file has it."""
    return "\r\n" if "\r\n" in text else "\n"


def _margin(text: str, at: int) -> str | None:
    """The space that the line of a place begins with; None where the whole file is one line."""
    if "\n" not in text.strip() and text.strip() != "{}":
        return None
    line = text.rfind("\n", 0, at) + 1
    found = re.compile(r"[ \t]*").match(text, line)
    assert found is not None
    return found[0]


def _unit(text: str) -> str:
    """The indentation of one level."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


# Files -------------------------------------------------------------------------------------------------------------------


def file_text(path: Path) -> str | None:
    """Return the text of a file with its ends of lines, without a byte order mark; None if there is no file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return _decoded(path, path.read_bytes()).removeprefix(_BOM) if path.exists() else None
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is not UTF-8 text, so it is left alone") from error


def change_file(path: Path, change: Callable[[str], str]) -> None:
    """Replace a file by what becomes of its text, whole or not at all; one that is not there is made, for its owner only.

    Raises:
        UsageError: it cannot be read or written, or `change` refuses its text.
    """
    path = Path(os.path.realpath(path))  # A link stays a link.
    try:
        with _alone(path.parent):
            before = path.read_bytes() if path.exists() else b""
            text = _decoded(path, before)
            mark = _BOM if text.startswith(_BOM) else ""
            after = (mark + change(text.removeprefix(_BOM))).encode()
            if after != before:
                _replace(path, after)
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be changed: {error.strerror or error}") from error


@contextlib.contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Keep another one of us from changing a file of the folder meanwhile, where the system can do that."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - not on this system
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, data: bytes) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
