"""Servers at an address: streamable HTTP and server-sent events, and what becomes of calls when they die."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, McpServer, Policy, ScriptedModel, ToolError
from callgate.models import ModelRequest
from callgate.permission import ResultCache
from callgate.testing import call
from callgate.types import ToolContext

from .left_tasks import no_task_is_left

SCRIPT = Path(__file__).with_name("web_server.py")
PATHS = {"http": "/mcp", "json": "/mcp", "sse": "/sse"}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.contextmanager
def serving(kind: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, str(SCRIPT), kind, str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[Callable[[str], int]]:
    """`server("sse")`: the port of a server of this kind, which no test of those that share it ends."""
    ports: dict[str, int] = {}
    with contextlib.ExitStack() as stack:

        def port_of(kind: str) -> int:
            while kind not in ports:
                port = free_port()
                if stack.enter_context(serving(kind, port)).poll() is None:  # Else another program was quicker to take it.
                    ports[kind] = port
            return ports[kind]

        yield port_of


@contextlib.asynccontextmanager
async def started(box: McpServer) -> AsyncIterator[McpServer]:
    await box.start(started)
    try:
        yield box
    finally:
        await box.aclose(started)


async def called(box: McpServer, name: str, /, **args: Any) -> object:
    return await box.call(name, args, ToolContext(call_id="1", name=name, timeout_s=30))


def run(work: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            value = await work
        await no_task_is_left()
        return value

    return asyncio.run(bounded())


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_tools_at_an_address_are_listed_and_called_with_the_headers_given(kind: str, server: Callable[[str], int]):
    port = server(kind)

    async def story() -> tuple[Any, ...]:
        box = McpServer("web", url=f"http://127.0.0.1:{port}{PATHS[kind]}", headers={"X-Token": "abc"})
        async with started(box):
            names = [tool.definition.name for tool in box.runnables()]
            return names, await called(box, "add", a=1, b=2), await called(box, "header", name="x-token"), box.complaints()

    assert run(story()) == (["add", "header", "die", "hang", "huge"], {"result": 3}, {"result": "abc"}, [])


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_headers_of_a_run_reach_the_server_in_that_run_and_in_no_other_at_the_same_time(
    kind: str, server: Callable[[str], int]
):
    port = server(kind)

    def scripted(request: ModelRequest) -> Any:
        last = request.contents[-1]["parts"][0]
        return "Done." if "functionResponse" in last else call("header", name="x-token")

    async def token(gate: Gate, headers: dict[str, str] | None) -> object:
        reply = await gate.run("Who am I?", headers=None if headers is None else {"web": headers})
        return reply.calls[0].result.value

    async def story() -> list[object]:
        box = McpServer("web", url=f"http://127.0.0.1:{port}{PATHS[kind]}", headers={"X-Token": "service"})
        async with Gate(ScriptedModel([scripted] * 12), [box], policy=Policy(default="allow")) as gate:
            users = [{"X-Token": "ada"}, {"X-Token": "bob"}, None, {"x-token": "eve"}]
            found = await asyncio.gather(*(token(gate, headers) for headers in users))
            return [*found, await token(gate, None), await token(gate, {"X-Token": "ada"})]

    assert run(story()) == [{"result": name} for name in ("ada", "bob", "service", "eve", "service", "ada")]


@pytest.mark.parametrize("per_session", [True, False])
def test_a_cached_result_for_the_headers_of_one_user_is_not_given_to_another(
    per_session: bool, server: Callable[[str], int]
):
    port = server("http")

    async def story() -> list[tuple[object, bool]]:
        box = McpServer("web", url=f"http://127.0.0.1:{port}/mcp", headers={"X-Token": "service"}, trust=True)
        cache = ResultCache(per_session=per_session)
        model = ScriptedModel([call("header", name="x-token"), "Done."] * 6)
        found: list[tuple[object, bool]] = []
        async with Gate(model, [box], policy=Policy(default="allow"), cache=cache) as gate:
            for headers in ({"X-Token": "ada"}, {"X-Token": "bob"}, None, {"X-Token": "ada"}, None, {"x-token": "eve"}):
                given = None if headers is None else {"web": headers}
                reply = await gate.run("Who am I?", session="team", headers=given)
                result = reply.calls[-1].result
                assert result is not None
                found.append((result.value, any("not run again" in note for note in result.notes)))
        return found

    answers = [("ada", False), ("bob", False), ("service", False), ("ada", True), ("service", True), ("eve", False)]
    assert run(story()) == [({"result": name}, is_cached) for name, is_cached in answers]


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_server_that_dies_ends_its_calls_at_once_and_is_found_again_when_it_is_back(kind: str):
    port = free_port()

    async def story() -> tuple[list[str], object]:
        async with started(McpServer("web", url=f"http://127.0.0.1:{port}{PATHS[kind]}")) as box:
            with serving(kind, port):
                await box.aclose(started)
                await box.start(started)
                hanging = asyncio.create_task(called(box, "hang"))
                await asyncio.sleep(0)
                outcomes = await asyncio.gather(called(box, "die"), hanging, return_exceptions=True)
            assert all(isinstance(outcome, ToolError) for outcome in outcomes), outcomes
            with serving(kind, port):
                for _ in range(5):
                    with contextlib.suppress(ToolError):
                        return [str(outcome) for outcome in outcomes], await called(box, "add", a=2, b=2)
        raise AssertionError("the server was not found again")

    errors, value = run(story())
    assert value == {"result": 4}
    assert all("'web'" in error for error in errors)


def test_an_old_server_is_found_at_any_address_within_the_first_run(server: Callable[[str], int]):
    port = server("sse")

    async def story() -> int:
        async with started(McpServer("web", url=f"http://127.0.0.1:{port}/sse/?v=1#x")) as box:
            box._transports = ["http", "sse"]
            await box.aclose(started)
            await box.start(started)
            return len(box.runnables())

    assert run(story()) == 5


def test_an_address_where_nobody_answers_is_said():
    async def story() -> list[str]:
        async with started(McpServer("web", url=f"http://127.0.0.1:{free_port()}/mcp")) as box:
            return list(box.complaints())

    (complaint,) = run(story())
    assert complaint.startswith("The MCP server 'web' is not available: ")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fits", "more"), [("http", 5, 40), ("json", 5, 40), ("sse", 0.9, 2)])
def test_a_result_without_end_costs_one_error_and_the_server_goes_on(kind: str, fits: float, more: int):
    port = free_port()

    async def story() -> tuple[Any, ...]:
        async with started(McpServer("web", url=f"http://127.0.0.1:{port}{PATHS[kind]}")) as box:
            large = await called(box, "huge", chars=int(fits * 1_000_000))
            with pytest.raises(ToolError) as raised:
                async with asyncio.timeout(30):
                    await called(box, "huge", chars=more * 1_000_000)
            for _ in range(5):
                with contextlib.suppress(ToolError):
                    return len(str(large)), str(raised.value), await called(box, "add", a=2, b=2)
        raise AssertionError("the server was not found again")

    with serving(kind, port):
        chars, error, value = run(story())
    assert (chars >= min(fits, 2) * 1_000_000, value) == (True, {"result": 4})
    assert "'web'" in error
