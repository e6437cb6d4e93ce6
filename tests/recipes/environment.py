"""Variables of the environment as a source of tools: names with one prefix come in, a tool that reads them goes out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from callgate.errors import ToolError
from callgate.types import ToolContext, ToolDefinition

__all__ = ["EnvironmentTools"]


class EnvironmentTools:
    """A tool that reads the variables whose names begin with a prefix, and no others."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.definition = ToolDefinition(
            name="read_variable",
            description=f"Reads a variable whose name begins with {prefix}.",
            input_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            read_only=True,
        )

    def runnables(self) -> list[EnvironmentTools]:
        """The one tool."""
        return [self]

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Names with another prefix."""
        return () if args["name"].startswith(self._prefix) else (f"name: must begin with {self._prefix!r}",)

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """The value of the variable."""
        if args["name"] not in os.environ:
            raise ToolError(f"There is no variable {args['name']!r}.")
        return os.environ[args["name"]]
