"""MCP servers as toolboxes: each one a supervised connection, its tools beside all others.

A command or an address comes in, tools go out. The official SDK is imported when a server is started, and not before.
"""

from callgate.mcp.client_requests import elicit, roots, sample
from callgate.mcp.file import ServersFile, mcp_servers_from_file, read_servers
from callgate.mcp.host import Answer, Host, Question, Sampling
from callgate.mcp.oauth_client import OAuthClient
from callgate.mcp.offers import prompt, resource
from callgate.mcp.overview import ServerOverview, overview
from callgate.mcp.resources import PromptArgument, Resource, ServerPrompt
from callgate.mcp.server import McpServer, ServerStatus

__all__ = [
    "Answer", "Host", "McpServer", "OAuthClient", "PromptArgument", "Question", "Resource", "Sampling", "ServerOverview",
    "ServerPrompt", "ServerStatus", "ServersFile", "elicit", "mcp_servers_from_file", "overview", "prompt", "read_servers",
    "resource", "roots", "sample",
]  # fmt: skip
