"""The tools that a rule, a hook, a rate or a cache is about: `write_*`, `@github/delete_*`, `@builtin`.

A pattern comes in, a test for definitions goes out. A tool is known by its server and its own name, whatever alias it has
where two servers share a name. One reader for all: a pattern that no tool can fit is refused.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from callgate.content.tool_names import is_reserved_server
from callgate.errors import UsageError
from callgate.permission.patterns import Glob
from callgate.types import ToolDefinition

__all__ = ["Subject"]

# No name of a tool or server holds one of these, so a pattern with one is a slip: two words, a list, a path, a key. A slash
# is taken where it cannot be one: behind the server's name.
_NEVER = re.compile(r"[\s,;/=@\"'(){}<>|&#`$%+^~\x00-\x1f\x7f]")
_NOT = re.compile("!")


@dataclass(frozen=True, slots=True)
class Subject:
    """A glob for the tool's own name, and one for its server; None fits every server, and tools without one."""

    tool: str = "*"
    server: str | None = None

    @classmethod
    def read(cls, tool: object, server: object = None, *, what: str = "a rule") -> Subject:
        """Read `tool` and `server`; `@server/tool` names both.

        Raises:
            UsageError: no tool can fit.
        """
        if not isinstance(tool, str) or not tool.strip():
            raise UsageError(f"{what} is about the tool {tool!r}: use a name or a glob")
        if server is not None and (not isinstance(server, str) or not server):
            raise UsageError(f"{what} is about the server {server!r}: use a name or a glob")
        if tool.startswith("@"):
            if server is not None:
                raise UsageError(f"{what} names its server twice: {tool!r} and server={server!r}")
            server, slash, own = tool[1:].partition("/")
            if not server or (slash and not own):
                raise UsageError(f"{what} is about {tool!r}: write @server or @server/tool")
            tool = own or "*"
        inside = tool if server is None else tool.replace("/", "")
        for name, part in (("tool", inside), ("server", server or "*")):
            if found := _NEVER.search(part) or _NOT.match(part):
                raise UsageError(
                    f"{what} is about the {name} {part!r}, but no name holds {found[0]!r}: write one name or glob such as "
                    "'delete_*', or '@server/tool'"
                )
        Glob(tool)
        Glob(server or "*")
        return cls(tool, server)

    @property
    def is_exact(self) -> bool:
        """True if it names one tool, and no pattern of several."""
        return not any(char in self.tool for char in "*?[")

    @property
    def names_tools(self) -> bool:
        """True if it says what its tools are called, and is not about tools of any name."""
        return self.tool.strip("*?") != ""

    def fits(self, definition: ToolDefinition, *, wide: bool) -> bool:
        """True if it is about the tool. Widely, the alias of a tool and look-alike forms of its name count too."""
        if self.server is not None and not self._is_of(definition.server, wide=wide):
            return False
        if self.tool == "*":
            return True
        glob = _glob(self.tool)
        names = (definition.own_name, *definition.other_names)
        if definition.server is not None:
            # As it is declared beside a tool of the same name: a rule holds whether or not the other server is there.
            names += (f"{definition.server}__{definition.own_name}",)
        if not wide:
            return any(map(glob.narrow, names))
        return any(map(glob.wide, (*names, definition.name)))

    def may_be_of(self, server: str, *, wide: bool) -> bool:
        """True if it may be about some tool of a server."""
        return self.server is None or self._is_of(server, wide=wide)

    def _is_of(self, server: str | None, *, wide: bool) -> bool:
        assert self.server is not None
        if server is None or is_reserved_server(self.server):
            return server is None and is_reserved_server(self.server)
        glob = _glob(self.server)
        return glob.wide(server) if wide else glob.narrow(server)


_glob = functools.lru_cache(maxsize=1_000)(Glob)
