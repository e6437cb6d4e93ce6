"""The MCP SDK's client at `/mcp`: the same tools, the same door, the same permission, limits and audit log."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel
from callgate.mcp import prompt, resource
from callgate.permission import Rate, RateLimits
from callgate.server import Service, ServiceOptions

from .conftest import Site, add, poke, serving
from .test_processes import launch

mcp = pytest.importorskip("mcp", reason="mcp is not installed")
from mcp.client.session import ClientSession  # noqa: E402 - only where it is installed
from mcp.client.streamable_http import streamable_http_client  # noqa: E402

__all__ = ["launch"]

RATES = RateLimits(tools={"add": Rate(per_s=0.0001, burst=2)}, when_used_up="refuse")
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def site(audit: Path) -> Iterator[Site]:
    gate = Gate(
        ScriptedModel([]),
        [add, poke],
        policy=Policy(rules=["ask poke"]),
        audit=audit,
        rates=RATES,
    )
    with serving(Service(gate, options=ServiceOptions(token=TOKEN, stop_s=1.0))) as running:
        yield running


def talk(site: Site, story: Callable[[ClientSession], Any], token: str = TOKEN) -> Any:
    import httpx2

    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=600) as http,
            streamable_http_client(f"http://127.0.0.1:{site.port}/mcp", http_client=http) as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await story(session)

    return asyncio.run(run())


def test_the_tools_of_the_gate_are_listed_and_called_within_its_limits_and_log(site: Site, audit: Path) -> None:
    async def story(session: ClientSession) -> Any:
        listed = await session.list_tools()
        results = [await session.call_tool("add", {"a": 1, "b": n}) for n in (1, 2, 3)]
        asked = await session.call_tool("poke", {"where": "here"})
        return [tool.name for tool in listed.tools], results, asked

    names, results, asked = talk(site, story)
    assert set(names) == {"add", "poke"}
    assert [result.is_error for result in results] == [False, False, True], "the third is over the limit"
    assert results[0].content[0].text == "2"
    assert asked.is_error
    assert "elicitation" in asked.content[0].text
    logged = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {"add", "poke"} <= {str(line.get("tool") or line.get("name")) for line in logged}


def test_the_door_is_the_same(site: Site) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert site.post("/mcp", hello).error == (401, "unauthorized")
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert site.post("/mcp", hello, **bearer, Origin="https://evil.example").error == (403, "wrong_origin")
    assert site.post("/mcp", hello, **bearer, Host="evil.example").error == (421, "wrong_host")


def test_an_open_stream_of_a_client_does_not_hold_up_the_end() -> None:
    with serving(Service(Gate(ScriptedModel([]), [add]), options=ServiceOptions(stop_s=1.0))) as site:
        hello = {
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
        }  # fmt: skip
        both = "application/json, text/event-stream"
        session = site.post("/mcp", hello, Accept=both).headers["mcp-session-id"]
        connection = site.connect()
        head = f"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
    with connection:
        rest = b"".join(iter(lambda: connection.recv(65536), b""))
    assert rest.endswith(b"0\r\n\r\n"), "it was ended in good order, and not cut off when the service lost patience"


@resource("notes://today", mime_type="text/plain")
def today() -> str:
    """The notes of today."""
    return "Nothing yet."


@prompt()
def greet(who: str) -> str:
    """Greets somebody."""
    return f"Greet {who}."


def test_resources_and_prompts_of_the_service_are_for_mcp_clients_alone() -> None:
    async def story(session: ClientSession) -> Any:
        return (
            [one.name for one in (await session.list_tools()).tools],
            [str(one.uri) for one in (await session.list_resources()).resources],
            [one.name for one in (await session.list_prompts()).prompts],
            (await session.read_resource("notes://today")).contents[0].text,
        )

    service = Service(Gate(ScriptedModel([]), [add]), options=ServiceOptions(token=TOKEN), offers=[today, greet])
    with serving(service) as running:
        assert talk(running, story) == (["add"], ["notes://today"], ["greet"], "Nothing yet.")


TOOLS = '''
from callgate import tool
from callgate.mcp import prompt, resource

@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b

@resource("notes://today")
def today() -> str:
    """The notes of today."""
    return "Nothing yet."

@prompt()
def greet(who: str) -> str:
    """Greets somebody."""
    return f"Greet {who}."
'''


@pytest.mark.slow
def test_the_command_serves_marked_functions_of_a_file_as_resources_and_prompts(launch, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    served = launch("-T", "tools.py", "--provider", "demo")

    async def story(session: ClientSession) -> Any:
        return (
            [one.name for one in (await session.list_tools()).tools],
            [str(one.uri) for one in (await session.list_resources()).resources],
            [one.name for one in (await session.list_prompts()).prompts],
        )

    assert talk(served, story) == (["add"], ["notes://today"], ["greet"])


def test_the_card_that_the_service_publishes_is_one_that_the_client_reads() -> None:
    """Without a token: it names the service, and none of its tools."""
    from callgate.mcp.server_card import read_card

    with serving(Service(Gate(ScriptedModel([]), [poke]), options=ServiceOptions(token="t" * 20))) as site:
        url = f"http://127.0.0.1:{site.port}"
        card = site.get("/mcp/server-card")
        assert (card.status, card.headers["content-type"]) == (200, "application/mcp-server-card+json")
        assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", card.json["name"])
        assert len(card.json["description"]) <= 100
        assert "poke" not in json.dumps(card.json)
        found = asyncio.run(read_card(url))
        assert found == asyncio.run(read_card(f"{url}/mcp/server-card"))
        assert (found.url, found.transport, found.headers) == (f"{url}/mcp", "http", {"Authorization": None})
