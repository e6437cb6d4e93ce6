"""An MCP server of the newest revision, written with the official SDK, that asks for everything and has things to read."""

import sys
from typing import Annotated

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, UserMessage
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp_types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("asking", instructions="Ask away.")


class Table(BaseModel):
    guests: int
    outside: bool = False


def how_many() -> Elicit[Table]:
    return Elicit("For how many?", Table)


def folders() -> ListRoots:
    return ListRoots()


def opinion() -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text="Say it."))], max_tokens=10)


@server.tool()
async def book(answer: Annotated[ElicitationResult[Table], Resolve(how_many)]) -> str:
    """Books a table."""
    return f"{answer.data.guests} outside={answer.data.outside}" if answer.action == "accept" else answer.action


@server.tool()
async def roots(listed: Annotated[ListRootsResult, Resolve(folders)]) -> str:
    """What folders there are."""
    return " ".join(str(root.uri) for root in listed.roots)


@server.tool()
async def sample(said: Annotated[CreateMessageResult, Resolve(opinion)]) -> str:
    """What a model says."""
    return said.content.text


@server.resource("notes://today", mime_type="text/plain")
def today() -> str:
    """Of today."""
    return "Buy milk."


@server.resource("notes://{day}/raw", mime_type="image/png")
def raw(day: str) -> bytes:
    """The bytes of a day."""
    return day.encode()


@server.prompt()
def plan(day: str, mood: str = "good") -> list:
    """Plans a day."""
    return [UserMessage(f"Plan {day} in a {mood} mood."), AssistantMessage("Gladly.")]


if sys.argv[1:]:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
