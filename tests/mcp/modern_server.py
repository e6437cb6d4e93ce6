"""An MCP server over stdio, written with the official SDK, that speaks the newest revision and adds a tool when asked."""

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("modern")


def fresh() -> str:
    """Was not there before."""
    return "fresh"


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool, and says so."""
    server.add_tool(fresh)
    await ctx.notify_tools_changed()
    return "grown"


server.run("stdio")
