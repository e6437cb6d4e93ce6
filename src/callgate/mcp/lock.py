"""`mcp.lock`: the definitions of tools that a person has accepted, for every later process.

What a server lists comes in, digests go out; and of what it lists later, only what has the accepted digest is used. A server
that the file does not name is not pinned. A file that cannot be read pins everything: nothing is accepted then. That it is
not there is a failure, too, unless nobody has named it: the one beside a file of servers is written when it is wanted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from callgate import strict_json
from callgate.errors import JsonError, UsageError
from callgate.types import JsonObject

__all__ = ["LockBeside", "LockFile", "PinnedTools", "Pins", "differences", "lock_beside", "pins_of"]

BYTES_MAX = 4 * 1024 * 1024
VERSION = 1
# All that a model, a person or a policy is told of a tool.
_TOLD = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution")


@dataclass(frozen=True, slots=True)
class Pins:
    """The accepted definitions of one server, as digests."""

    tools: Mapping[str, str] = field(default_factory=dict[str, str])
    instructions: str = ""
    """The digest of what the server says about the use of its tools; empty if it says nothing."""


def pins_of(tools: Iterable[JsonObject], instructions: str | None) -> Pins:
    """The digests of what a server lists now. Of two tools of one name the first counts, as it does everywhere."""
    found: dict[str, str] = {}
    for tool in tools:
        found.setdefault(str(tool.get("name")), _digest({key: tool[key] for key in _TOLD if key in tool}))
    return Pins(found, _digest(instructions) if instructions else "")


def differences(before: Pins, now: Pins) -> list[str]:
    """Sentences on what is not as it was accepted; empty if nothing differs."""
    found = [f"the tool {name!r} is new" for name in now.tools if name not in before.tools]
    found += [f"the tool {name!r} is gone" for name in before.tools if name not in now.tools]
    changed = (name for name, digest in now.tools.items() if before.tools.get(name, digest) != digest)
    found += [f"the tool {name!r} has changed" for name in changed]
    if before.instructions != now.instructions:
        found.append("its instructions have changed")
    return found


class LockBeside(os.PathLike[str]):
    """The path of a lock file that nobody has named; where there is none, nothing is pinned."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return str(self._path)


def lock_beside(path: str | Path) -> LockBeside:
    """The lock file of a file of servers: `mcp.lock` of `mcp.json`."""
    return LockBeside(Path(path).with_suffix(".lock"))


class LockFile:
    """The accepted definitions, by the name of the server."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._may_be_missing = isinstance(path, LockBeside)

    def read(self, server: str) -> Pins | None:
        """The accepted definitions of a server; None if there are none.

        Raises:
            UsageError: the file cannot be used.
        """
        rows = self._rows(may_be_missing=self._may_be_missing)
        if server not in rows:
            return None
        row: Any = rows[server]
        tools: Any = cast("JsonObject", row).get("tools") if isinstance(row, dict) else None
        said: Any = cast("JsonObject", row).get("instructions", "") if isinstance(row, dict) else None
        digests: list[Any] = [*cast("JsonObject", tools).values(), said] if isinstance(tools, dict) else [None]
        if not all(isinstance(digest, str) for digest in digests):
            raise UsageError(
                f"{str(self.path)!r} has no digests of the tools of {server!r}: accept them with `callgate mcp lock`"
            )
        return Pins(cast("dict[str, str]", tools), said)

    def write(self, pins: Mapping[str, Pins], *, keep: Sequence[str] | None = None) -> None:
        """Accept these definitions. Those of other servers stay, or of all but the named ones are dropped.

        Raises:
            UsageError: the file cannot be used.
        """
        rows = {name: row for name, row in self._rows(may_be_missing=True).items() if keep is None or name in keep}
        for name, each in pins.items():
            rows[name] = {"instructions": each.instructions, "tools": dict(sorted(each.tools.items()))}
        text = json.dumps({"version": VERSION, "servers": dict(sorted(rows.items()))}, indent=2, ensure_ascii=False) + "\n"
        path = Path(os.path.realpath(self.path))  # A link stays one.
        beside = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            beside.write_text(text, "utf-8")
            os.replace(beside, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise UsageError(f"{str(self.path)!r} cannot be written: {error.strerror or error}") from error

    def _rows(self, *, may_be_missing: bool) -> JsonObject:
        try:
            if may_be_missing and not os.path.lexists(self.path):
                return {}
            if not stat.S_ISREG(self.path.stat().st_mode):  # A pipe would be waited for.
                raise UsageError(f"{str(self.path)!r} cannot be read: it is no file")
            with self.path.open("rb") as file:
                text = file.read(BYTES_MAX)
            data: Any = strict_json.parse(text)
        except OSError as error:
            raise UsageError(f"{str(self.path)!r} cannot be read: {error.strerror or error}") from error
        except JsonError as error:
            raise UsageError(f"{str(self.path)!r} is not JSON: {error}") from error
        if strict_json.has_duplicate_keys(text, data):
            raise UsageError(f"{str(self.path)!r} is no lock file: a key stands in it twice")
        version: Any = cast("JsonObject", data).get("version") if isinstance(data, dict) else None
        if type(version) is not int or version != VERSION:
            raise UsageError(f"{str(self.path)!r} is no lock file of version {VERSION}: its version is {version!r}")
        rows: Any = cast("JsonObject", data).get("servers")
        if not isinstance(rows, dict):
            raise UsageError(f"{str(self.path)!r} is no lock file: it has no object 'servers'")
        return cast("JsonObject", rows)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class PinnedTools:
    """The part of what a server lists that was accepted.

    Args:
        server: The name of the server.
        path: The lock file; None pins nothing.
    """

    def __init__(self, server: str, path: str | os.PathLike[str] | None) -> None:
        self._server = server
        self._file = None if path is None else LockFile(path)
        self.instructions_fit = True
        """False if the instructions of the server are not those that were accepted."""

    def accepted(self, tools: list[JsonObject], instructions: str | None) -> tuple[list[JsonObject], list[str]]:
        """The accepted ones of these tools, and sentences on the others."""
        self.instructions_fit = True
        if self._file is None:
            return tools, []
        where = f"The MCP server {self._server!r}"
        how = f"look at it, and accept it with `callgate mcp lock`; {self._file.path.name!r} has what was accepted"
        try:
            pins = self._file.read(self._server)
        except UsageError as error:
            self.instructions_fit = False
            return [], [f"{where}: no tool is used, because what was accepted is not known: {error}"]
        if pins is None:
            return tools, []
        now = pins_of(tools, instructions)
        self.instructions_fit = not now.instructions or now.instructions == pins.instructions
        said = [] if self.instructions_fit else [f"{where}: its instructions have changed and are not shown: {how}."]
        kept = [tool for tool in tools if pins_of([tool], None).tools.items() <= pins.tools.items()]
        for name in dict.fromkeys(str(tool.get("name")) for tool in tools if tool not in kept):
            what = "has changed" if name in pins.tools else "is new"
            said.append(f"{where}: the tool {name!r} {what} and is left out: {how}.")
        return kept, said
