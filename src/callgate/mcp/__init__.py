"""MCP servers as toolboxes: each one a supervised connection, its tools beside all others.

A command or an address comes in, tools go out. The official SDK is imported when a server is started, and not before.
"""

from callgate.mcp.file import ServersFile, mcp_servers_from_file, read_servers
from callgate.mcp.server import McpServer

__all__ = ["McpServer", "ServersFile", "mcp_servers_from_file", "read_servers"]
