"""Three conversations with CloudGenie, whose tools are on an MCP server in a separate process.

    python examples/cloudgenie/talk.py                          # a scripted model: no key, no network
    python examples/cloudgenie/talk.py --model embedded:        # the model that runs on this machine
    python examples/cloudgenie/talk.py --model gemini-3.8-flash --mode prompted
    python examples/cloudgenie/talk.py --url http://127.0.0.1:8082/mcp

Without --url the server is started and ended with the program.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from callgate import Gate, McpServer, ScriptedModel
from callgate.models import Mode
from callgate.testing import ScriptItem, call

CATALOGUE = Path(__file__).with_name("catalogue.py")
SERVE = [sys.executable, "-m", "callgate", "mcp", "serve", "-T", str(CATALOGUE)]

PROMPTS = ("Show me all blueprints", "Create a database named test-db", "List all my resources and their status")

NATIVE: list[ScriptItem] = [
    call("cloudgenie_get_blueprints"),
    "There are four blueprints: PostgreSQL, Redis, Bucket and Kubernetes.",
    call("cloudgenie_get_blueprints"),
    call("cloudgenie_create_resource", name="test-db", type="database", blueprint_id="postgresql-blueprint"),
    "The database test-db is being made.",
    call("cloudgenie_get_resources"),
    "web-cache is running, and test-db is provisioning.",
]
"""Responses of the scripted model for each conversation."""

PROMPTED: list[ScriptItem] = [
    "TOOL_CALL: cloudgenie_get_blueprints({})\nI'm fetching all available infrastructure blueprints for you.",
    NATIVE[1],
    "I'll look for a blueprint first.\nTOOL_CALL: cloudgenie_get_blueprints({})",
    'TOOL_CALL: cloudgenie_create_resource({"name": "test-db", "type": "database",\n'
    '  "blueprint_id": "postgresql-blueprint"})',
    NATIVE[4],
    "TOOL_CALL: cloudgenie_get_resources({})",
    NATIVE[6],
]
"""The same as text, as a model without function calling writes its calls."""


async def approve(call, definition, reason):
    """Print the approval request and answer yes."""
    print(f"  may {call.name} be called with {dict(call.args)}? yes")
    return "yes"


async def talk(model, mode: Mode, server: McpServer, prompts: Sequence[str] = PROMPTS) -> None:
    """Run a conversation for each prompt and print what happens."""
    async with Gate(model, tools=[server], mode=mode, approve=approve) as gate:
        for prompt in prompts:
            print(f"> {prompt}")
            reply = await gate.run(prompt)
            for record in reply.calls:
                print(f"  {record.call.name}: {record.state}")
            print(reply.text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", help="a model's name, such as embedded: or gemini-3.8-flash; without it a script")
    parser.add_argument("--mode", choices=["auto", "native", "prompted"], default="auto")
    parser.add_argument("--url", help="the address of a server that runs already")
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="what to say instead of the three prompts")
    options = parser.parse_args()
    model = options.model or ScriptedModel(PROMPTED if options.mode == "prompted" else NATIVE)
    # The server is ours, so its hints are trusted: read-only tools need no approval.
    command = None if options.url else SERVE
    server = McpServer("cloudgenie", command=command, url=options.url, trust=True, start_s=60)
    asyncio.run(talk(model, options.mode, server, options.prompts or PROMPTS))


if __name__ == "__main__":
    main()
