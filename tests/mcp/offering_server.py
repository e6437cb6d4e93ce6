"""A server with a resource, a template and a prompt, written with the official SDK."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("offering")


@server.resource("far://text", mime_type="text/plain")
def text() -> str:
    """A text elsewhere."""
    return "From afar."


@server.resource("far://{day}/notes", mime_type="text/plain")
def notes(day: str) -> str:
    """Notes elsewhere."""
    return f"Notes of {day}."


@server.prompt()
def greet(who: str) -> str:
    """A greeting."""
    return f"Greet {who}."


if __name__ == "__main__":
    server.run()
