"""`callgate mcp serve` as a process: by pipes and by HTTP, with the SDK's client, with hostile requests, and to its end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from starlette.applications import Starlette
from starlette.routing import Route

from callgate import McpServer, tool
from callgate.errors import UsageError
from callgate.mcp import pipes
from callgate.mcp.pipes import pipe_streams, serve_streams
from callgate.mcp.serve import ToolServer
from callgate.mcp.web import Endpoint
from callgate.server import ServiceOptions, mcp_http
from callgate.server.mcp_http import http_app, listen, serve_http
from callgate.server.security import is_loopback
from callgate.types import ToolContext
from mcp import Client, StdioServerParameters

TOOLS = Path(__file__).with_name("served_tools.py")
SERVE = [sys.executable, "-m", "callgate", "mcp", "serve"]
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await work

    return asyncio.run(bounded())


def texts(result: Any) -> list[str]:
    return [block.text for block in result.content if block.type == "text"]


async def yes(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"answer": "yes"})


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another process does, for so long at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def serving(*options: str, **environ: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server that listens at a free port, and its address."""
    command = [*SERVE, "--http", "--port", "0", "-T", str(TOOLS), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | environ) as process:
        assert process.stderr is not None
        try:
            said = b""
            while not (found := re.search(rb"http://\S+\n", said)):
                assert process.poll() is None, said
                if select.select([process.stderr], [], [], 30)[0]:
                    said += os.read(process.stderr.fileno(), 4096)
            yield process, found[0].decode().strip()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving("--root", str(TOOLS.parent)) as (_, url):
        yield url


@contextlib.asynccontextmanager
async def connected(url: str, mode: str, headers: dict[str, str] | None = None, **more: Any) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=180) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **more) as client,
    ):
        yield client


@tool
def double(n: int) -> int:
    """Doubles a number."""
    return 2 * n


# Pipes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_on_pipes_lists_calls_is_asked_and_sees_only_messages(mode: str, tmp_path: Path):
    async def story() -> tuple[Any, ...]:
        audit = str(tmp_path / "audit.jsonl")
        options = ["-T", str(TOOLS), "--root", str(tmp_path), "--audit", audit]
        params = StdioServerParameters(command=SERVE[0], args=[*SERVE[1:], *options])
        async with Client(stdio_client(params, errlog=errors), mode=mode, elicitation_callback=yes) as client:
            names = [item.name for item in (await client.list_tools()).tools]
            added = await client.call_tool("add", {"a": 1, "b": 2})
            written = await client.call_tool("write_file", {"path": "a.txt", "content": "hello"})
            picture = await client.call_tool("picture")
            return names, added, written, picture, await client.call_tool("fail")

    with (tmp_path / "stderr").open("w+") as errors:
        names, added, written, picture, failed = run(story())
        errors.seek(0)
        said = errors.read()
    assert names[:4] == ["add", "fail", "picture", "wait"]
    assert "write_file" in names
    assert added.structured_content == {"result": 3}
    assert not written.is_error
    assert (tmp_path / "a.txt").read_text() == "hello"
    assert (picture.content[0].type, picture.content[0].mime_type) == ("image", "image/png")
    assert (failed.is_error, texts(failed)) == (True, ["It does not work."])
    assert "nor is this" in said
    assert "nor what its child prints" in said
    outcomes = [json.loads(line).get("outcome") for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [outcome for outcome in outcomes if outcome] == ["finished", "finished", "finished", "failed"]


@contextlib.contextmanager
def piped(*options: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*SERVE, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | environ,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[bytes], *messages: Any) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def request(number: int, name: str, **args: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": args, "_meta": {"progressToken": number}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@pytest.mark.parametrize("how", ["eof", "SIGTERM", "SIGINT"])
def test_the_end_stops_what_runs_and_leaves_no_process(how: str, tmp_path: Path):
    mark = tmp_path / "mark"
    scripted = [sys.executable, "-I", str(TOOLS.with_name("scripted_server.py")), '{"tools": ["echo"]}']
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"box": {"command": scripted[0], "args": scripted[1:]}}}))
    with piped("-T", str(TOOLS), "--mcp", str(file), CALLGATE_TEST_WORKERS="1") as process:
        assert process.stdin is not None
        say(process, HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert hear(process)["result"]["capabilities"]["tools"] == {"listChanged": True}
        say(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        assert [item["name"] for item in hear(process)["result"]["tools"]] == ["add", "fail", "picture", "wait", "echo"]
        family = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        say(process, request(3, "wait", file=str(mark)))
        assert hear(process)["params"] == {"progressToken": 3, "progress": 0.5, "total": 1.0, "message": "waiting"}
        if how == "eof":
            process.stdin.close()
        else:
            process.send_signal(getattr(signal, how))
        assert process.wait(60) == (130 if how == "SIGINT" else 0)
    assert mark.read_text() == "stopped"
    assert family
    until(lambda: not any(map(is_alive, family)))


def test_garbage_and_endless_lines_are_skipped_and_a_cancelled_call_is_stopped(tmp_path: Path):
    mark = tmp_path / "mark"
    with piped("-T", str(TOOLS)) as process:
        say(process, b"garbage\n", b"\n", b'{"half": \n', b"[" * 5000 + b"\n", b"x" * (17 << 20) + b"\n", HELLO)
        assert hear(process)["id"] == 1
        say(process, {"jsonrpc": "2.0", "method": "notifications/initialized"}, request(2, "wait", file=str(mark)))
        assert hear(process)["method"] == "notifications/progress"
        say(process, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
        say(process, request(3, "fail"))
        assert hear(process)["result"]["isError"] is True
        until(lambda: mark.read_text() == "stopped")


def test_a_client_that_reads_nothing_cannot_keep_the_server_alive(tmp_path: Path):
    with piped("-T", str(TOOLS)) as process:
        say(process, HELLO)
        hear(process)
        many = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        say(process, {"jsonrpc": "2.0", "method": "notifications/initialized"}, *[many] * 200)
        process.terminate()
        assert process.wait(60) == 0


def test_a_reader_that_went_away_ends_the_streams():
    @tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    async def story() -> None:
        (read_fd, client_out), (client_in, write_fd) = os.pipe(), os.pipe()
        os.close(client_in)
        server = ToolServer.of([add])
        async with pipe_streams(read_fd, write_fd) as (incoming, outgoing):
            os.write(client_out, json.dumps(HELLO).encode() + b"\n")
            await serve_streams(server, incoming, outgoing)
        os.close(client_out)
        os.close(read_fd)
        os.close(write_fd)

    run(story())


def test_workers_and_servers_behind_a_server_are_called_through_it(tmp_path: Path):
    """Both ends are ours: a gate's `McpServer` on a `callgate mcp serve` that has a worker pool and a server of its own."""
    scripted = [sys.executable, "-I", str(TOOLS.with_name("scripted_server.py")), '{"tools": ["echo"]}']
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"box": {"command": scripted[0], "args": scripted[1:]}}}))
    command = [*SERVE, "-T", f"{TOOLS}:workers", "--mcp", str(file), "--approval-mode", "yolo"]

    async def story() -> tuple[Any, ...]:
        server = McpServer("outer", command=command, env={"CALLGATE_TEST_WORKERS": "1", **os.environ}, start_s=60)
        await server.start(story)
        try:
            names = [item.definition.name for item in server.runnables()]
            context = ToolContext(call_id="1", name="x", timeout_s=30)
            return names, await server.call("process", {}, context), await server.call("echo", {"text": "hi"}, context)
        finally:
            await server.aclose(story)

    names, pid, echoed = run(story())
    assert names == ["process", "echo"]
    until(lambda: not is_alive(pid["result"]))
    assert "hi" in json.dumps(echoed)


# HTTP --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_by_http_lists_calls_and_is_asked(mode: str, address: str):
    async def story() -> tuple[Any, ...]:
        asked: list[Any] = []

        async def no(context: Any, params: Any) -> ElicitResult:
            asked.append(params.requested_schema["properties"]["answer"]["enum"])
            return ElicitResult(action="accept", content={"answer": "no"})

        async with connected(address, mode, elicitation_callback=no) as client:
            names = [item.name for item in (await client.list_tools()).tools]
            added = await client.call_tool("add", {"a": 2, "b": 3})
            refused = await client.call_tool("write_file", {"path": "x.txt", "content": ""})
            picture = await client.call_tool("picture")
            return names[:2], added.structured_content, texts(refused), picture.content[0].type, asked

    # A client without a session is not recognised again, so "always" is not offered to it.
    answers = ["yes", "no"] if mode == "auto" else ["yes", "always", "no"]
    refusal = ["The user did not allow this call."]
    assert run(story()) == (["add", "fail"], {"result": 5}, refusal, "image", [answers])
    assert not (TOOLS.parent / "x.txt").exists()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_cancelled_by_http_is_stopped(mode: str, address: str, tmp_path: Path):
    mark = tmp_path / "mark"

    async def story() -> None:
        begun = asyncio.Event()

        async def note(*_: Any) -> None:
            begun.set()

        async with connected(address, mode) as client:
            call = asyncio.create_task(client.call_tool("wait", {"file": str(mark)}, progress_callback=note))
            await begun.wait()
            call.cancel()
            await asyncio.wait({call})

    run(story())
    until(lambda: mark.read_text() == "stopped")


def test_sessions_are_kept_apart_ended_and_not_invented(address: str):
    with httpx2.Client(headers=ACCEPT, timeout=180) as http:
        opened = http.post(address, json=HELLO)
        session = opened.headers["mcp-session-id"]
        lists = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        mine = {"mcp-session-id": session, "mcp-protocol-version": "2025-06-18"}
        assert (
            http.post(address, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=mine).status_code
            == 202
        )
        assert http.post(address, json=lists, headers=mine).status_code == 200
        assert http.post(address, json=lists, headers=mine | {"mcp-session-id": "made-up"}).status_code == 404
        assert http.delete(address, headers=mine).status_code == 200
        assert http.post(address, json=lists, headers=mine).status_code == 404
        assert http.post(address, content=b"{" * (17 << 20)).status_code == 413
        assert http.get(address.removesuffix("/mcp") + "/other").status_code == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "localhost@evil.example"}, 421),
        ({"host": "127.0.0.1:80:80"}, 421),
        ({"host": ""}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "http://127.0.0.1"}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:80"}, 200),
        ({"content-type": "text/plain"}, 415),
    ],
)
def test_a_web_page_cannot_reach_a_server_on_this_machine(headers: dict[str, str], status: int):
    app = http_app(ToolServer.of([double]))

    async def story() -> int:
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
        ):
            return (await http.post("/mcp", json=HELLO, headers=ACCEPT | headers)).status_code

    assert run(story()) == status


def test_a_service_in_a_program_of_ones_own_ends_when_it_is_cancelled():
    async def story() -> tuple[Any, int]:
        listening = listen("127.0.0.1", 0, None)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        service = asyncio.create_task(serve_http(ToolServer.of([double]), listening, ready=address.set_result))
        async with connected(await address, "legacy") as client:
            result = await client.call_tool("double", {"n": 4})
            service.cancel()
        await asyncio.wait({service})
        return result.structured_content, listening.fileno()

    assert run(story()) == ({"result": 8}, -1)


def test_a_head_that_does_not_end_is_given_up_and_silent_connections_give_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp_http, "ServiceOptions", functools.partial(ServiceOptions, header_s=0.1, connections=5))

    async def story() -> tuple[list[bytes], int]:
        listening = listen("127.0.0.1", 0, None)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        service = asyncio.create_task(serve_http(ToolServer.of([double]), listening, ready=address.set_result))
        url = await address
        port = listening.getsockname()[1]
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for _, writer in pairs:
            writer.write(b"POST /mcp HTTP/1.1\r\nHost:")
        async with httpx2.AsyncClient(timeout=600) as http:
            status = (await http.post(url, json=HELLO, headers=ACCEPT)).status_code
        answers = [(await reader.read())[9:12] for reader, _ in pairs]
        for _, writer in pairs:
            writer.close()
        service.cancel()
        await asyncio.wait({service})
        return answers, status

    answers, status = run(story())
    assert status == 200
    assert set(answers) <= {b"408", b"503"}


def test_a_client_that_opens_many_sessions_locks_nobody_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callgate.mcp.web.SESSIONS_MAX", 3)
    app = http_app(ToolServer.of([double]))

    async def story() -> list[int]:
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
        ):
            opened = [await http.post("/mcp", json=HELLO, headers=ACCEPT) for _ in range(8)]
            lists = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
            ids = [opened[number].headers["mcp-session-id"] for number in (0, -1)]
            used = [await http.post("/mcp", json=lists, headers=ACCEPT | {"mcp-session-id": name}) for name in ids]
            return [answer.status_code for answer in [*opened, *used]]

    assert run(story()) == [200] * 8 + [404, 200]


def test_garbage_on_a_pipe_does_not_reach_the_service(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipes, "LINE_BYTES_MAX", 1_000)

    async def story() -> list[Any]:
        (read_fd, client_out), (client_in, write_fd) = os.pipe(), os.pipe()
        lines = [b"garbage", b"", b"y" * 1_001, b"z" * 70_000, json.dumps(HELLO).encode()]
        os.write(client_out, b"\n".join(lines[:3]) + b"\n")
        async with pipe_streams(read_fd, write_fd) as (incoming, _):
            await asyncio.to_thread(os.write, client_out, b"\n".join(lines[3:]) + b"\n")
            os.close(client_out)
            heard = [type(item).__name__ async for item in incoming]
        for descriptor in (client_in, read_fd, write_fd):
            os.close(descriptor)
        return heard

    assert run(story()) == ["ValidationError", "SessionMessage"]


def test_other_addresses_need_the_token_and_a_signal_ends_the_service():
    token = "a-token-that-is-long"
    with serving("--host", "0.0.0.0", "--token-env", "MY_TOKEN", MY_TOKEN=token) as (process, url):
        url = url.replace("0.0.0.0", "127.0.0.1")

        results: list[Any] = []

        async def story() -> None:
            async with connected(url, "legacy", {"Authorization": f"Bearer {token}"}) as client:
                results.append((await client.call_tool("add", {"a": 1, "b": 1})).structured_content)
                process.send_signal(signal.SIGTERM)  # While a stream is open.

        with httpx2.Client(headers=ACCEPT, timeout=180) as http:
            for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {token}"}):
                refused = http.post(url, json=HELLO, headers=given)
                assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
                assert refused.json()["error"] == "unauthorized"
            named = http.post(url, json=HELLO, headers={"authorization": f"bearer {token}", "host": "my.machine"})
            assert named.status_code == 200
        with contextlib.suppress(Exception, BaseExceptionGroup):
            run(story())  # How the client takes the end of its stream is its own business.
        assert results == [{"result": 2}]
        assert process.wait(60) == 0
        assert process.stdout is not None
        assert b"jsonrpc" not in process.stdout.read()


@pytest.mark.parametrize(
    ("host", "token", "sentence"),
    [
        ("0.0.0.0", None, "--token-env"),
        ("::", None, "--token-env"),
        ("0.0.0.0", "short", "shorter than 16"),
        ("203.0.113.1", "x" * 20, "cannot listen"),
    ],
)
def test_an_address_that_cannot_be_served_safely_is_refused(host: str, token: str | None, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        listen(host, 0, token)


def test_this_machine_is_known_by_its_names():
    assert [is_loopback(host) for host in ("localhost", "LOCALHOST.", "127.9.9.9", "::1", "[::1]")] == [True] * 5
    assert [is_loopback(host) for host in ("0.0.0.0", "example.com", "localhost.example.com", "")] == [False] * 4
    with pytest.raises(UsageError, match="needs a token"):
        http_app(ToolServer.of([double]), hosts=None)


@pytest.mark.parametrize(
    ("headers", "status"), [({}, 401), ({"authorization": "Bearer no"}, 401), ({"authorization": "bearer yes"}, 200)]
)
def test_a_token_that_is_set_is_needed(headers: dict[str, str], status: int):
    app = http_app(ToolServer.of([double]), token="yes", hosts=None)

    async def story() -> int:
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://any.name") as http,
        ):
            return (await http.post("/mcp", json=HELLO, headers=ACCEPT | headers)).status_code

    assert run(story()) == status


def test_the_endpoint_can_be_mounted_in_another_app_and_started_again():
    @tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    endpoint = Endpoint(ToolServer.of([add]))
    app = Starlette(routes=[Route("/mcp", endpoint)], lifespan=lambda app: endpoint.running())

    async def story() -> list[Any]:
        found: list[Any] = []
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, headers=ACCEPT, base_url="http://any.name") as http:
            found.append((await http.post("/mcp", json=HELLO)).json()["error"])
            for _ in range(2):
                async with app.router.lifespan_context(app):
                    found.append((await http.post("/mcp", json=HELLO)).status_code)
        return found

    assert run(story()) == ["not_running", 200, 200]
    assert http_app(ToolServer.of([add])).routes


def test_a_connection_that_breaks_is_an_end_and_any_other_failure_is_told(monkeypatch: pytest.MonkeyPatch):
    server = ToolServer.of([double])

    def failing(*errors: Exception) -> Any:
        async def fail(*_: Any) -> None:
            raise ExceptionGroup("all at once", list(errors))

        return fail

    monkeypatch.setattr(server.sdk, "run", failing(anyio.BrokenResourceError(), anyio.ClosedResourceError()))
    run(pipes.serve_streams(server, None, None))
    monkeypatch.setattr(server.sdk, "run", failing(anyio.BrokenResourceError(), ValueError("real")))
    with pytest.raises(ExceptionGroup) as raised:
        run(pipes.serve_streams(server, None, None))
    assert [str(error) for error in raised.value.exceptions] == ["real"]


def test_an_input_that_cannot_be_read_is_an_end(tmp_path: Path):
    async def story() -> list[Any]:
        folder, nothing = os.open(tmp_path, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
        async with pipe_streams(folder, nothing) as (incoming, _):
            heard = [item async for item in incoming]
        os.close(folder)
        os.close(nothing)
        return heard

    assert run(story()) == []
