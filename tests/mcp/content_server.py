"""An MCP server over stdio, written with the official SDK, whose tools give every kind of content."""

from mcp.server.mcpserver import MCPServer
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

server = MCPServer("content")

TEXT = EmbeddedResource(
    type="resource", resource=TextResourceContents(uri="test://words", mime_type="text/markdown", text="# Words")
)
ICON = EmbeddedResource(
    type="resource", resource=BlobResourceContents(uri="test://icon", mime_type="image/png", blob="aWNvbg==")
)
KINDS = {
    "text": [TEXT],
    "blob": [ICON],
    "mixed": [
        TextContent(type="text", text="first"),
        ImageContent(type="image", data="aWNvbg==", mime_type="image/png"),
        TEXT,
    ],
    "texts": [TextContent(type="text", text="one"), TextContent(type="text", text="two")],
    "link": [TextContent(type="text", text="see"), ResourceLink(type="resource_link", uri="test://a", name="a")],
}


@server.tool()
async def show(kind: str) -> CallToolResult:
    """Shows content of a kind."""
    return CallToolResult(content=KINDS[kind])


@server.tool()
async def measured() -> CallToolResult:
    """Gives a value, and other words for it."""
    return CallToolResult(content=[TextContent(type="text", text="about seven")], structured_content={"height": 7})


server.run("stdio")
