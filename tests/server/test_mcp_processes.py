"""MCP clients of a service with several processes: whichever of them a request meets, its session goes on."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, GeminiModel, Policy, ScriptedModel, tool
from callgate.mcp import elicit
from callgate.server import Service, ServiceOptions
from callgate.server.access_file import AccessFile, token_hash
from callgate.server.counters import Metrics
from callgate.server.peers import GREETING_S, Peers
from callgate.server.security import SecurityMiddleware
from callgate.testing import FakeGemini, call
from callgate.types import ToolContext

from .conftest import WAIT_S, Site, Slow, add, poke, serving
from .test_processes import PATIENCE_S, until

httpx2 = pytest.importorskip("httpx2")
mcp = pytest.importorskip("mcp", reason="mcp is not installed")
from mcp.client.client import Client  # noqa: E402 - only where it is installed
from mcp.client.streamable_http import streamable_http_client  # noqa: E402
from mcp.shared.exceptions import MCPError  # noqa: E402
from mcp_types import ElicitResult  # noqa: E402

TOKENS = {name: f"cg_{name}-0123456789abcdef" for name in ("ann", "bob")}
PROTOCOL = {"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-11-25"}
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}  # fmt: skip
NEWER = "2026-07-28"
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


@tool(read_only=True)
async def name_of(context: ToolContext[Any]) -> str:
    """Asks the user for a name, and says what it does."""
    context.progress("half of it", 0.5)
    logging.getLogger("my.tool").warning("asking")
    given = await elicit(context, "What is your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return "nobody" if given is None else str(given["name"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., list[Site]]]:
    """`start(*tools)`: three services that are processes of one, as far as they know."""
    access = tmp_path / "access.toml"
    access.write_text(
        "".join(
            f'[tokens.{name}]\nsha256 = "{token_hash(token)}"\nrights = ["chat", "approve"]\n'
            for name, token in TOKENS.items()
        )
    )
    access.chmod(0o600)
    with contextlib.ExitStack() as stack:

        def started(
            *tools: Any, policy: Policy | None = None, model: Any = None, store: Callable[[], Any] = lambda: None
        ) -> list[Site]:
            secret, sites = secrets.token_bytes(32), []
            for number in range(3):
                audit = tmp_path / f"audit-{number}.jsonl"
                gate = Gate(model or ScriptedModel([]), list(tools or [add]), policy=policy, audit=audit, store=store())
                peers = Peers(number=number, folder=str(tmp_path), secret=secret)
                options = ServiceOptions(identities=AccessFile(access), peers=peers, stop_s=1.0)
                sites.append(stack.enter_context(serving(Service(gate, options=options))))
            return sites

        yield started


class Rotating(httpx2.AsyncHTTPTransport):
    """Sends every request to the next process, on a connection of its own."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__(limits=httpx2.Limits(max_keepalive_connections=0))
        self._ports = itertools.cycle(ports)

    async def handle_async_request(self, request: Any) -> Any:
        request.url = request.url.copy_with(port=next(self._ports))
        return await super().handle_async_request(request)


def talk(ports: list[int], story: Callable[[Client], Any], *, token: str = TOKENS["ann"], **more: Any) -> Any:
    async def run() -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        timeout = httpx2.Timeout(WAIT_S)
        async with (
            httpx2.AsyncClient(headers=headers, transport=Rotating(ports), timeout=timeout) as http,
            Client(streamable_http_client("http://127.0.0.1:1/mcp", http_client=http), **more) as client,
        ):
            return await story(client)

    return asyncio.run(run())


def opened(site: Site, token: str = TOKENS["ann"]) -> dict[str, str]:
    """The headers of requests in a new session."""
    headers = {"Authorization": f"Bearer {token}", **PROTOCOL}
    told = site.post("/mcp", HELLO, **headers)
    assert told.status == 200, told
    return {**headers, "Mcp-Session-Id": told.headers["mcp-session-id"]}


async def accept(context: Any, params: Any) -> ElicitResult:
    fields = {"name": "Ann"} if "name" in params.requested_schema["properties"] else {"answer": "yes"}
    return ElicitResult(action="accept", content=fields)


# Sessions ------------------------------------------------------------------------------------------------------------------


def test_a_session_goes_on_at_every_process_with_questions_progress_and_log_lines(start) -> None:
    sites = start(add, poke, name_of, policy=Policy(rules=["ask poke"]))
    heard: list[Any] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(("progress", done, message))

    async def logged(params: Any) -> None:
        heard.append(("log", params.data))

    async def story(client: Client) -> list[str]:
        sums = [await client.call_tool("add", {"a": 1, "b": n}) for n in range(6)]
        poked = await client.call_tool("poke", {"where": "here"})
        named = await client.call_tool("name_of", {}, progress_callback=progress)
        return [result.content[0].text for result in (*sums, poked, named)]

    ports = [site.port for site in sites]
    texts = talk(ports, story, mode="legacy", elicitation_callback=accept, logging_callback=logged)
    assert texts == ["1", "2", "3", "4", "5", "6", "poked here", "Ann"]
    assert ("progress", 0.5, "half of it") in heard
    assert [item for item in heard if item[0] == "log"]


def test_a_client_without_sessions_answers_a_question_at_another_process(start) -> None:
    sites = start(poke, policy=Policy(rules=["ask poke"]))

    async def story(client: Client) -> list[Any]:
        return [await client.call_tool("poke", {"where": str(n)}) for n in range(4)]

    results = talk([site.port for site in sites], story, mode="auto", elicitation_callback=accept)
    assert [result.content[0].text for result in results] == [f"poked {n}" for n in range(4)]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_who_answered_a_question_is_in_the_audit_log(start, tmp_path: Path, mode: str) -> None:
    sites = start(poke, policy=Policy(rules=["ask poke"]))

    async def story(client: Client) -> Any:
        return await client.call_tool("poke", {"where": "here"})

    ports = [site.port for site in sites]
    talk(ports, story, mode=mode, elicitation_callback=accept)
    talk(ports, story, mode=mode, elicitation_callback=accept, token=TOKENS["bob"])
    lines = [json.loads(line) for file in tmp_path.glob("audit-*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(line["decision"]["approver"] for line in lines if line["kind"] == "start") == ["ann", "bob"]


def test_the_state_of_a_question_is_for_the_principal_that_was_asked(start) -> None:
    poked: list[str] = []

    @tool
    def press(where: str) -> str:
        """Presses."""
        poked.append(where)
        return f"pressed {where}"

    site = start(press, policy=Policy(rules=["ask press"]))[0]
    about = "io.modelcontextprotocol/"
    meta = {
        f"{about}protocolVersion": NEWER, f"{about}clientInfo": {"name": "x", "version": "1"},
        f"{about}clientCapabilities": {"elicitation": {"form": {}}},
    }  # fmt: skip

    def pressed(token: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {token}", "Accept": PROTOCOL["Accept"], "Mcp-Protocol-Version": NEWER}
        params = {"name": "press", "arguments": {"where": "here"}, "_meta": meta, **more}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        told = site.post("/mcp", body, **headers, Mcp_Method="tools/call", Mcp_Name="press").body.decode()
        return json.loads(told[told.index("{") : told.rindex("}") + 1])["result"]

    yes = {"permission": {"action": "accept", "content": {"answer": "yes"}}}
    state = pressed(TOKENS["ann"])["requestState"]
    again = pressed(TOKENS["bob"], inputResponses=yes, requestState=state)
    assert (again["resultType"], poked) == ("input_required", [])
    assert again["requestState"] != state
    assert pressed(TOKENS["ann"], inputResponses=yes, requestState=state)["content"][0]["text"] == "pressed here"
    assert poked == ["here"]


def test_the_stream_of_a_session_and_its_end_pass_through_another_process(start) -> None:
    sites = start()
    headers = opened(sites[0])
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with sites[1].connect() as connection:
        connection.sendall(f"GET /mcp HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
        # There is one such stream of a session, wherever it was asked for.
        assert sites[2].get("/mcp", **headers).status == 409
    assert sites[2].request("DELETE", "/mcp", **headers).status == 200
    for site in sites:
        assert site.post("/mcp", LIST, **headers).status == 404


def test_a_client_that_leaves_another_process_is_missed_by_the_one_with_its_session(start) -> None:
    sites = start()
    headers = opened(sites[0])

    def status(site: Site) -> int:
        with site.stream("GET", "/mcp", **headers) as stream:
            stream.close()
            return stream.status

    assert status(sites[1]) == 200
    until(lambda: status(sites[2]) == 200, "the end of the first stream")


# Whose they are ------------------------------------------------------------------------------------------------------------


def test_a_session_is_for_its_owner_at_every_process(start) -> None:
    sites = start()
    headers = opened(sites[0])
    others = {**headers, "Authorization": f"Bearer {TOKENS['bob']}"}
    for site in sites:
        assert site.post("/mcp", LIST, **others).error == (404, "no_such_session")
        assert site.post("/mcp", LIST, **{**headers, "Authorization": "Bearer wrong"}).error == (401, "unauthorized")
        assert site.post("/mcp", LIST, **headers).status == 200


@pytest.mark.parametrize("id", ["x", "0-", "7-0", "999-0", "1-../../0", "-1-0", "00-", "0" * 200], ids=repr)
def test_a_made_up_session_is_not_found(start, id: str) -> None:
    (site, *_) = start()
    headers = opened(site)
    told = site.post("/mcp", LIST, **{**headers, "Mcp-Session-Id": id})
    assert told.status == 404


@pytest.mark.parametrize("said", [b"", b"x" * 64, b"x" * 200])
def test_somebody_who_does_not_know_the_secret_is_not_answered(start, tmp_path, said: bytes) -> None:
    start()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(GREETING_S + PATIENCE_S)
        stranger.connect(str(tmp_path / "0.sock"))
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        heard = b"".join(iter(lambda: stranger.recv(4096), b""))
    assert len(heard) <= 64


def test_nothing_is_sent_to_a_socket_that_somebody_else_has_put_in_the_place(start, tmp_path) -> None:
    sites = start()
    headers = opened(sites[0])
    place = tmp_path / "0.sock"
    place.unlink()
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as fake:
        fake.bind(str(place))
        fake.listen()

        def answer() -> None:
            connection, _ = fake.accept()
            with connection:
                connection.sendall(b"y" * 64)
                heard.append(b"".join(iter(lambda: connection.recv(4096), b"")))

        thread = threading.Thread(target=answer)
        thread.start()
        assert sites[1].post("/mcp", LIST, **headers).error == (404, "no_such_session")
        thread.join(PATIENCE_S)
    assert [len(data) for data in heard] == [64], "a nonce and a proof, and nothing of the request"


def test_an_answer_to_somebody_who_has_left_is_no_error(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    peers = Peers(number=0, folder=str(tmp_path), secret=b"x" * 32)
    is_over = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert await receive() == {"type": "http.disconnect"}
        try:
            for _ in range(3):
                await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        finally:
            is_over.set()

    async def story() -> None:
        begun = asyncio.Event()

        async def receive() -> Any:
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            begun.set()

        scope = {"method": "GET", "path": "/mcp", "query_string": b"", "headers": []}
        async with peers.serving(app):
            await peers.forward(0, scope, b"", receive, send)
            await is_over.wait()

    asyncio.run(story())
    assert caplog.records == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_stream_that_is_asked_for_after_an_event_begins_anew(start, number: int) -> None:
    sites = start()
    headers = opened(sites[0])
    with sites[number].stream("GET", "/mcp", **{**headers, "Accept": "text/event-stream"}, Last_Event_ID="abc") as stream:
        assert stream.status == 200


def test_a_process_that_does_not_answer_is_not_taken_for_a_session_that_is_gone(start, tmp_path, monkeypatch) -> None:
    sites = start()
    headers = opened(sites[0])
    (tmp_path / "0.sock").unlink()
    monkeypatch.setattr("callgate.server.peers.GREETING_S", 0.1)
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(tmp_path / "0.sock"))
        frozen.listen()
        answer = sites[1].post("/mcp", LIST, **headers)
    assert answer.error == (503, "process_busy")
    assert answer.headers["retry-after"] == "5"


def test_a_stream_whose_process_ends_is_one_line_in_the_log(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    peers = Peers(number=0, folder=str(tmp_path), secret=b"x" * 32)

    async def cut(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise OSError("the process has ended")

    async def through(scope: Any, receive: Any, send: Any) -> None:
        await peers.forward(0, scope, b"", receive, send)

    async def story() -> None:
        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            pass

        guard = SecurityMiddleware(through, ServiceOptions(), Metrics(), public=(frozenset(), ()))
        scope = {"type": "http", "method": "GET", "path": "/mcp", "query_string": b"", "headers": [(b"host", b"localhost")],
                 "client": ("127.0.0.1", 1), "scheme": "http", "http_version": "1.1"}  # fmt: skip
        async with peers.serving(cut):
            await guard(scope, receive, send)

    asyncio.run(story())
    (record,) = [record for record in caplog.records if record.name == "callgate.server"]
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "ended before its answer was whole" in record.getMessage()


# Uploads and events --------------------------------------------------------------------------------------------------------


def test_the_pieces_of_an_upload_may_meet_any_process(start) -> None:
    with FakeGemini.in_thread(["A film."], repeat_last=True) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        sites = start(model=model)
        ann, bob = ({"Authorization": f"Bearer {token}"} for token in TOKENS.values())
        upload = sites[0].post("/api/v1/files", {"name": "film.mp4", "size": 3_000}, **ann).json["id"]
        place = f"/api/v1/files/{upload}"
        for number, site in enumerate(sites):
            assert site.get(place, **bob).error == (404, "no_such_upload")
            piece = {"offset": 1_000 * number, "data": base64.b64encode(bytes(1_000)).decode()}
            answer = site.post(place, piece, **ann)
            assert (answer.status, answer.json["received"]) == (200, 1_000 * (number + 1))
        assert answer.json["part"]["fileData"]["mimeType"] == "video/mp4"
        gone = [
            sites[1].get(place, **ann),
            sites[2].get("/api/v1/files/77-x", **ann),
            sites[2].get("/api/v1/files/x", **ann),
        ]
        assert [one.error for one in gone] == [(404, "no_such_upload")] * 3
        other = sites[1].post("/api/v1/files", {"name": "film.mp4", "size": 3_000}, **ann).json["id"]
        assert sites[2].request("DELETE", f"/api/v1/files/{other}", **ann).json == {"deleted": other}


@pytest.mark.parametrize("is_over", [False, True])
def test_the_events_of_a_run_are_followed_at_any_process(start, tmp_path, slow: Slow, is_over: bool) -> None:
    model = ScriptedModel([call("slow"), "Over."])
    sites = start(slow.tool, model=model, store=lambda: str(tmp_path / "sessions.db"))
    ann, bob = ({"Authorization": f"Bearer {token}"} for token in TOKENS.values())
    with sites[0].stream_chat({"prompt": "Go.", "session": "s"}, **ann) as here:
        assert slow.started.wait(WAIT_S)
        if is_over:
            slow.go.set()
            assert here.until("run_ended")["reply"]["text"] == "Over."
            sites[0].until(lambda: not sites[0].service.live, "the end of the run")
        assert sites[1].get("/api/v1/sessions/s/events", **bob).status == 404
        with sites[1].stream("GET", "/api/v1/sessions/s/events", **ann) as there:
            slow.go.set()
            assert there.until("run_ended")["reply"]["text"] == "Over."


# Processes that die --------------------------------------------------------------------------------------------------------


def test_a_session_whose_process_is_gone_is_not_found(start, tmp_path) -> None:
    sites = start()
    headers = opened(sites[0])
    sites[0].server.should_exit = True
    until(lambda: not (tmp_path / "0.sock").exists(), "the end")
    assert sites[1].post("/mcp", LIST, **headers).error == (404, "no_such_session")


SERVED = """
import asyncio, os
from callgate import tool

@tool(read_only=True)
def pid() -> int:
    '''The process.'''
    return os.getpid()

@tool(read_only=True)
async def stay() -> int:
    '''Stays.'''
    with open("started", "a") as file:
        print(os.getpid(), file=file)
    await asyncio.sleep(600)
"""


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """`callgate serve --workers 3`: its port and token."""
    (tmp_path / "served.py").write_text(SERVED)
    command = [sys.executable, "-m", "callgate", "serve", "--port", "0", "--provider", "demo", "--workers", "3"]
    log = tmp_path / "log"
    sockets = Path(tempfile.mkdtemp(prefix="cg-"))  # Short: paths of sockets have at most 107 characters.
    with log.open("w") as file:
        parent = subprocess.Popen(
            [*command, "--store", "sessions.db", "-T", "served.py"],
            stderr=file,
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(sockets)},
        )
    try:
        until(lambda: "#token=" in log.read_text(), "the link")
        until(lambda: len(list(sockets.glob("callgate-*/*.sock"))) == 3, "three processes")
        text = log.read_text()
        port = int(text.partition("serves at http://127.0.0.1:")[2].partition(" ")[0])
        yield port, text.partition("#token=")[2].partition(" ")[0]
    finally:
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE_S) == 0
    assert not list(sockets.glob("callgate-*/*.sock")), "the sockets are gone"
    shutil.rmtree(sockets)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_clients_of_three_real_processes_are_always_served(workers, mode: str) -> None:
    port, token = workers

    async def story(client: Client) -> list[str]:
        results = await asyncio.gather(*(client.call_tool("pid", {}) for _ in range(60)))
        return [result.content[0].text for result in results]

    pids = [talk([port], story, token=token, mode=mode) for _ in range(2)]
    if mode == "legacy":  # All of a session are answered by the process that has it.
        assert [len(set(some)) for some in pids] == [1, 1]
    assert [len(some) for some in pids] == [60, 60]


@pytest.mark.slow
def test_a_call_whose_process_is_killed_ends_with_an_error_and_a_new_session_works(workers, tmp_path) -> None:
    port, token = workers
    started = tmp_path / "started"

    async def story(client: Client) -> None:
        doomed = [asyncio.create_task(client.call_tool("stay", {})) for _ in range(6)]
        while not started.exists() or len(started.read_text().splitlines()) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (process,) = set(started.read_text().split())
        os.kill(int(process), signal.SIGKILL)
        ended = await asyncio.wait_for(asyncio.gather(*doomed, return_exceptions=True), PATIENCE_S)
        assert all(isinstance(error, MCPError) for error in ended), ended

    talk([port], story, token=token, mode="legacy")

    async def again(client: Client) -> str:
        return (await client.call_tool("pid", {})).content[0].text

    assert talk([port], again, token=token, mode="legacy").isdigit()
