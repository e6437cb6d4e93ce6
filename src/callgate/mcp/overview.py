"""An overview of all servers, for a person: the status, resources and prompts of each.

Servers that run come in, plain data goes out. A server that does not answer in time, or refuses, says so in its own row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from callgate.errors import ToolError
from callgate.mcp.resources import Resource, ServerPrompt
from callgate.mcp.server import McpServer, ServerStatus

__all__ = ["ServerOverview", "overview"]

ANSWER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOverview:
    """One server."""

    status: ServerStatus
    """Its status, with its tools."""
    resources: tuple[Resource, ...] = ()
    """The resources that it offers."""
    prompts: tuple[ServerPrompt, ...] = ()
    """The prompts that it offers."""
    problem: str | None = None
    """The reason why its resources and prompts are not known."""


async def overview(servers: Iterable[McpServer]) -> list[ServerOverview]:
    """Every server with what it has, asked all at the same time. Raises nothing."""
    return list(await asyncio.gather(*map(_of, servers)))


async def _of(server: McpServer) -> ServerOverview:
    status = server.status()
    if status.problem is not None:
        return ServerOverview(status=status, problem=status.problem)
    try:
        async with asyncio.timeout(ANSWER_S):
            resources, prompts = await asyncio.gather(server.resources(), server.prompts())
    except TimeoutError:
        return ServerOverview(status=status, problem=f"it did not answer within {ANSWER_S:g} s")
    except ToolError as error:
        return ServerOverview(status=status, problem=str(error))
    return ServerOverview(status=status, resources=tuple(resources), prompts=tuple(prompts))
