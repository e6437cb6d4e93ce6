"""An MCP client for the conformance suite: McpServer, with a person who logs in and accepts what is proposed."""

import asyncio
import json
import os
import sys
import urllib.request
from typing import Any

from callgate import McpServer
from callgate.mcp import Answer, Host, OAuthClient, Question
from callgate.types import ToolContext


async def elicit(question: Question) -> Answer:
    fields = (question.schema or {}).get("properties", {})
    return Answer("accept", {name: field["default"] for name, field in fields.items() if "default" in field})


async def login(server: str, url: str) -> None:
    await asyncio.to_thread(lambda: urllib.request.urlopen(url).read())


def client_of(context: dict[str, Any]) -> OAuthClient:
    is_machine = os.environ.get("MCP_CONFORMANCE_SCENARIO", "").startswith("auth/client-credentials")
    return OAuthClient(
        client_id=context.get("client_id"),
        client_secret=context.get("client_secret"),
        private_key=context.get("private_key_pem"),
        signing_algorithm=context.get("signing_algorithm", "RS256"),
        grant="client_credentials" if is_machine else "authorization_code",
        metadata_url="https://conformance-test.local/client-metadata.json",
    )


ARGS = {"add_numbers": {"a": 5, "b": 3}}
LISTED_ONLY = "json-schema-ref-no-deref"
"""The scenario that is over when the tools are listed: its server has none that could be called."""


async def main() -> None:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    box = McpServer(
        "suite",
        url=sys.argv[-1],
        transport="http",
        start_s=250,
        host=Host(elicit=elicit, login=login),
        oauth=client_of(context),
    )
    await box.start(box)
    try:
        if box.problem:
            raise SystemExit(box.problem)
        names = [tool.definition.name for tool in box.runnables()]
        calls = context.get("toolCalls") or [{"name": name, "arguments": ARGS.get(name, {})} for name in names]
        for call in [] if os.environ.get("MCP_CONFORMANCE_SCENARIO") == LISTED_ONLY else calls:
            await box.call(call["name"], call["arguments"], ToolContext(call_id=call["name"], name=call["name"]))
    finally:
        await box.aclose(box)


asyncio.run(main())
