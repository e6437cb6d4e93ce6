"""An MCP server at an address of this machine, written with the official SDK: `web_server.py http|json|sse PORT`."""

import asyncio
import os
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("web")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def header(name: str, ctx: Context) -> str:
    """What the client sent under this name."""
    return dict(ctx.headers or {}).get(name, "")


@server.tool()
def die() -> str:
    """Ends the server."""
    os._exit(5)


@server.tool()
async def hang() -> str:
    """Never comes back."""
    await asyncio.sleep(600)
    return ""


@server.tool(structured_output=False)
def huge(chars: int) -> str:
    """Says much."""
    return "y" * chars


kind, port = sys.argv[1], int(sys.argv[2])
if kind == "json":
    server.run("streamable-http", host="127.0.0.1", port=port, json_response=True)
elif kind == "http":
    server.run("streamable-http", host="127.0.0.1", port=port)
else:
    server.run("sse", host="127.0.0.1", port=port)
