"""`callgate serve` as people run it: a process of its own, signals, several of them on one database, and curl lines."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from callgate.sessions import state_from_facts
from callgate.store import open_store
from callgate.testing import answer, call, text

from .conftest import Answer

PATIENCE_S = 60


# A model that answers by what it reads -----------------------------------------------------------------------------------


@contextlib.contextmanager
def model_server(say: Callable[[str, str], Any]) -> Iterator[str]:
    """A server of Gemini's that answers with `say(what the user said last, all that was called since)`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            contents = json.loads(self.rfile.read(int(self.headers["content-length"])))["contents"]
            said, since = "", ""
            for part in (part for content in contents for part in content["parts"]):
                if "functionResponse" in part:
                    since += part["functionResponse"]["name"] + " "
                elif "text" in part and part.get("text") and contents:
                    said, since = part["text"], ""
            item = say(said, since.strip())
            body = json.dumps(answer(item if isinstance(item, dict) else text(item))).encode()
            streams = "alt=sse" in self.path
            body = b"data: " + body + b"\r\n\r\n" if streams else body
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # The client was killed.

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# A service in a process --------------------------------------------------------------------------------------------------


@dataclass
class Served:
    """A running `callgate serve`."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            kind = {"Content-Type": "application/json"} if body is not None else {}
            data = body if isinstance(body, (str, type(None))) else json.dumps(body)
            connection.request(method, path, data, {**kind, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def chat(self, **body: Any) -> Answer:
        return self.request("POST", "/api/v1/chat", body)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """`launch(*words, **environment)`: `callgate serve` on a free port."""
    running: list[subprocess.Popen[bytes]] = []
    numbers = itertools.count()

    def start(*words: str, **environment: str) -> Served:
        has_token = "--token-file" in words or "CALLGATE_TOKEN" in environment
        command = [sys.executable, "-m", "callgate", "serve", "--port", "0", *(() if has_token else ("--no-token",)), *words]
        log = tmp_path / f"log-{next(numbers)}"
        with log.open("w") as file:
            process = subprocess.Popen(command, stderr=file, cwd=tmp_path, env={**os.environ, **environment})
        running.append(process)
        until(lambda: "serves at http" in log.read_text() or process.poll() is not None, "the start")
        said = log.read_text()
        assert process.poll() is None, said
        port = int(said.partition("serves at http")[2].partition(" ")[0].rpartition(":")[2])
        return Served(process, port, log)

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)


GEMINI = {"GEMINI_API_KEY": "a-key", "CALLGATE_PROVIDER": "gemini"}

TOOLS = '''
import asyncio, os
from callgate import tool

LOG = os.environ["TOOL_LOG"]

def note(line):
    with open(LOG, "a") as file:
        file.write(line + "\\n")

@tool
async def work(name: str, seconds: float) -> str:
    """Works for a while."""
    note(f"start {name}")
    await asyncio.sleep(seconds)
    note(f"end {name}")
    return f"{name} is done"

@tool(idempotent=True)
async def look(name: str, seconds: float) -> str:
    """Looks for a while; who looks again sees it at once."""
    with open(LOG, "a+") as file:  # Made here, if nobody has noted anything yet.
        file.seek(0)
        is_known = f"start {name}" in file.read()
    note(f"start {name}")
    await asyncio.sleep(0 if is_known else seconds)
    note(f"end {name}")
    return f"{name} was seen"
'''


def worker(said: str, since: str) -> Any:
    """`NAME SECONDS` is work, `look-NAME SECONDS` is looked at; everything else is answered."""
    name, _, seconds = said.partition(" ")
    if since or not seconds.replace(".", "").isdigit():
        return f"Answered {said}."
    return call("look" if name.startswith("look-") else "work", name=name, seconds=float(seconds))


@pytest.fixture
def worked(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of services whose tool notes when it starts and ends."""
    (tmp_path / "work_tools.py").write_text(TOOLS)
    with model_server(worker) as url:
        yield {**GEMINI, "GOOGLE_GEMINI_BASE_URL": url, "TOOL_LOG": str(tmp_path / "log")}


def noted(environment: dict[str, str]) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return Path(environment["TOOL_LOG"]).read_text().splitlines()
    return []


def until(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come to hold"
        time.sleep(0.02)


# The tests ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sigterm_under_load_loses_no_started_call(launch, worked, tmp_path) -> None:
    place = tmp_path / "sessions.db"
    service = launch("-T", "work_tools.py", "--store", str(place), "--stop-s", "2", **worked)
    names = [f"s{number}" for number in range(24)]
    with ThreadPoolExecutor(len(names)) as clients:
        # Half of them would end by themselves in time, the others not.
        sent = {
            name: clients.submit(service.chat, prompt=f"{name} {0.5 if number % 2 else 60}", session=name)
            for number, name in enumerate(names)
        }
        until(lambda: sum(line.startswith("start") for line in noted(worked)) == len(names), "all starts")
        assert service.end() == 0
        answers = {name: future.result(PATIENCE_S) for name, future in sent.items()}
    ends = {line.partition(" ")[2] for line in noted(worked) if line.startswith("end")}
    states = states_of(place)
    assert set(states) == set(names), "every session is in the store"
    for number, name in enumerate(names):
        (state,) = states[name]
        if number % 2:
            assert (answers[name].status, answers[name].json["metadata"]["finish_reason"]) == (200, "STOP")
        else:
            assert answers[name].error == (503, "stopping")
        assert state == ("finished" if number % 2 else "started")
        assert (name in ends) == bool(number % 2)
    with pytest.raises(OSError, match="refused"):
        service.request("GET", "/health")


def states_of(place: Path) -> dict[str, list[str]]:
    """How the calls of every session stand in the journal."""
    import asyncio

    async def read() -> dict[str, list[str]]:
        store = open_store(str(place))
        found = {}
        for info in await store.sessions():
            stands = state_from_facts(info.id, await store.load(info.id))
            found[info.id] = [record.state for record in stands.reply.calls]
        await store.aclose()
        return found

    return asyncio.run(read())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_is_cancelled_at_another_process_of_the_store(launch, worked, request, tmp_path, kind: str) -> None:
    place = request.getfixturevalue("postgres_url") if kind == "postgres" else str(tmp_path / "sessions.db")
    words = ("-T", "work_tools.py", "--store", place)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: launch(*words, **worked), range(2))
    assert second.chat(prompt="hi", session="other").status == 200
    with ThreadPoolExecutor(1) as clients:
        sent = clients.submit(first.chat, prompt="pay 600", session="busy")
        until(lambda: "start pay" in noted(worked), "the start")
        followed = second.request("GET", "/api/v1/sessions/busy/events")
        assert followed.error == (409, "session_busy")
        assert f"process {first.process.pid} on " in followed.json["message"]
        begun_s = time.perf_counter()
        cancelled = second.request("POST", "/api/v1/sessions/busy/cancel")
        print(f"heard after {time.perf_counter() - begun_s:.3f} s")
        assert (cancelled.status, cancelled.json) == (200, {"cancelled": True, "run": None})
        told = sent.result(PATIENCE_S)
    assert told.json["metadata"]["finish_reason"] == "cancelled"
    assert "end pay" not in noted(worked)


@pytest.mark.slow
def test_two_services_share_a_database_and_one_goes_on_when_the_other_is_killed(launch, worked, postgres_url) -> None:
    words = ("-T", "work_tools.py", "--store", postgres_url)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: launch(*words, **worked), range(2))
    for number, service in enumerate((first, second, first, second)):
        told = service.chat(prompt=f"turn-{number}", session="moving")
        assert told.json["response"] == f"Answered turn-{number}."
    assert second.request("GET", "/api/v1/sessions/moving").json["exchange_count"] == 4
    with ThreadPoolExecutor(1) as clients:
        doomed = clients.submit(first.chat, prompt="pay 60", session="busy")
        until(lambda: "start pay" in noted(worked), "the start")
        busy = second.chat(prompt="me-too", session="busy")
        assert busy.error == (409, "session_busy")
        assert int(busy.headers["retry-after"]) >= 1
        (row,) = second.request("GET", "/api/v1/sessions?query=busy").json["sessions"]
        assert (row["running"], row["state"]) == (True, "running")
        assert second.request("GET", "/api/v1/sessions/busy/events").error == (409, "session_busy")
        first.end(signal.SIGKILL)
        with pytest.raises((OSError, http.client.HTTPException)):
            doomed.result(PATIENCE_S)
    # Nobody knows whether it was paid, so it is not paid again; the model is told, and the conversation goes on.
    told = second.chat(session="busy")
    assert told.status == 200
    (result,) = told.json["tool_results"]
    assert result["is_error"]
    assert "not known" in result["content"]
    assert second.chat(prompt="hello", session="busy").json["response"] == "Answered hello."
    assert noted(worked) == ["start pay"]
    assert second.end() == 0


@pytest.mark.slow
def test_a_request_whose_process_was_killed_goes_on_where_it_is_repeated(launch, worked, postgres_url) -> None:
    words = ("-T", "work_tools.py", "--store", postgres_url)
    with ThreadPoolExecutor(3) as pool:
        first, second, third = pool.map(lambda _: launch(*words, **worked), range(3))
    # One tool may be run again and the other not; one client names its session, the other does not.
    bodies = {"pay": {"prompt": "pay 60", "session": "till"}, "look-here": {"prompt": "look-here 60"}}

    def send(service: Served, name: str, **headers: str) -> Answer:
        return service.request("POST", "/api/v1/chat", bodies[name], {"Idempotency-Key": f"key of {name}", **headers})

    with ThreadPoolExecutor(4) as clients:
        doomed = [clients.submit(send, first, name) for name in bodies]
        until(lambda: {"start pay", "start look-here"} <= set(noted(worked)), "both starts")
        repeated = {name: clients.submit(send, second, name) for name in bodies}
        until(lambda: second.request("GET", "/metrics").body.count(b"callgate_runs_live 2"), "both waits")
        first.end(signal.SIGKILL)
        for lost in doomed:
            with pytest.raises((OSError, http.client.HTTPException)):
                lost.result(PATIENCE_S)
        told = {name: answer.result(PATIENCE_S) for name, answer in repeated.items()}
    for name, said in told.items():
        assert (said.status, said.json["response"]) == (200, f"Answered {name} 60.")
        assert said.headers["idempotent-replayed"] == "true"
    (paid,), (seen,) = (told[name].json["tool_results"] for name in bodies)
    assert paid["is_error"]
    assert "not known" in paid["content"]
    assert (seen["content"], seen["is_error"]) == ("look-here was seen", False)
    assert sorted(noted(worked)) == ["end look-here", "start look-here", "start look-here", "start pay"]
    # Whoever asks again gets the same, also from a process that had no part in it.
    for service in (second, third):
        for name, before in told.items():
            again = send(service, name)
            assert again.headers["idempotent-replayed"] == "true"
            for field in ("response", "tool_calls", "tool_results", "session"):
                assert again.json[field] == before.json[field]
        assert service.request("POST", "/api/v1/chat", {"prompt": "hi"}, {"Idempotency-Key": "key of pay"}).error == (
            409, "idempotency_mismatch",
        )  # fmt: skip
    stream = send(third, "pay", Accept="text/event-stream").body.decode()
    kinds = [line.removeprefix("event: ") for line in stream.splitlines() if line.startswith("event: ")]
    assert kinds == ["run_started", "call_proposed", "call_finished", "text_delta", "run_ended"]
    sessions = third.request("GET", "/api/v1/sessions").json["sessions"]
    assert [(row["exchange_count"], row["state"]) for row in sessions] == [(1, "idle"), (1, "idle")]
    assert len(noted(worked)) == 4


SEED_LINES = """
curl -X POST http://localhost:8081/api/v1/chat -H "Content-Type: application/json" \
  -d '{"prompt": "Show me all blueprints", "provider": "gemini"}'
curl -X POST http://localhost:8081/api/v1/chat -H "Content-Type: application/json" \
  -d '{"prompt": "Create a database named test-db", "provider": "gemini"}'
curl -X POST http://localhost:8081/api/v1/chat -H "Content-Type: application/json" \
  -d '{"prompt": "List all my resources and their status", "provider": "gemini"}'
"""

CATALOGUE = '''
from callgate import tool

BLUEPRINTS = {"postgresql-blueprint": "database"}
RESOURCES = {"web-cache": "running"}

@tool(read_only=True)
def cloudgenie_get_blueprints() -> dict:
    """Retrieves all available blueprints."""
    return BLUEPRINTS

@tool
def cloudgenie_create_resource(name: str, type: str, blueprint_id: str) -> dict:
    """Creates a new resource."""
    RESOURCES[name] = "provisioning"
    return {"name": name, "blueprint": BLUEPRINTS[blueprint_id]}

@tool(read_only=True)
def cloudgenie_get_resources() -> dict:
    """Retrieves all resources."""
    return RESOURCES
'''


def genie(said: str, since: str) -> Any:
    create = {"name": "test-db", "type": "database", "blueprint_id": "postgresql-blueprint"}
    plans = {
        "Show": [call("cloudgenie_get_blueprints"), "Here they are."],
        "Create": [call("cloudgenie_get_blueprints"), call("cloudgenie_create_resource", **create), "It is being made."],
        "List": [call("cloudgenie_get_resources"), "All is well."],
    }
    return plans[said.split()[0]][len(since.split())]


def test_the_three_curl_lines_of_cloudgenie_with_approval_of_the_one_that_changes_something(launch, tmp_path) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "cloudgenie" / "catalogue.py"
    tools = example if example.exists() else tmp_path / "catalogue.py"
    if tools is not example:
        tools.write_text(CATALOGUE)
    (tmp_path / "policy.toml").write_text('[[rules]]\ntool = "cloudgenie_create_resource"\nverdict = "ask"\n')
    lines = [shlex.split(line) for line in SEED_LINES.replace("\\\n", "").strip().splitlines()]
    bodies = [json.loads(words[words.index("-d") + 1]) for words in lines]
    with model_server(genie) as url:
        service = launch("-T", str(tools), "--policy", "policy.toml", "--ephemeral", **GEMINI, GOOGLE_GEMINI_BASE_URL=url)
        shown, created, listed = (
            service.request("POST", "/api/v1/chat", json.dumps(body), {"Host": "localhost:8081"}) for body in bodies
        )
        assert [item["name"] for item in shown.json["tool_calls"]] == ["cloudgenie_get_blueprints"]
        assert "postgresql-blueprint" in shown.json["tool_results"][0]["content"]
        assert created.status == 202
        assert [item["name"] for item in created.json["tool_calls"]] == [
            "cloudgenie_get_blueprints", "cloudgenie_create_resource",
        ]  # fmt: skip
        assert [item["name"] for item in listed.json["tool_calls"]] == ["cloudgenie_get_resources"]
        assert "test-db" not in listed.json["tool_results"][0]["content"]
        (approval,) = service.request("GET", "/api/v1/approvals").json["approvals"]
        done = service.chat(session=created.json["session"], answers={approval["call_id"]: "yes"})
        assert done.json["response"] == "It is being made."
        assert "test-db" in service.request("POST", "/api/v1/chat", bodies[2]).json["tool_results"][0]["content"]
        for told in (shown, done, listed):
            assert told.json["metadata"]["provider"] == "gemini"
            assert told.json["metadata"]["finish_reason"] == "STOP"
        assert service.request("GET", "/health").json["services"]["ai_provider"] == "gemini"


def test_a_sigint_while_nothing_runs_ends_with_zero(launch) -> None:
    service = launch("--provider", "demo", "--ephemeral")
    assert service.request("GET", "/health").status == 200
    assert service.end(signal.SIGINT) == 0


def test_a_token_is_in_no_argument_and_no_log(launch, tmp_path) -> None:
    token = "a-token-that-nobody-guesses"
    file = tmp_path / "token"
    file.write_text(token + "\n")
    file.chmod(0o600)
    service = launch("--provider", "demo", "--ephemeral", "--token-file", str(file), "--debug")
    assert service.request("GET", "/api/v1/tools").error == (401, "unauthorized")
    assert service.request("GET", "/api/v1/tools", headers={"Authorization": f"Bearer {token}"}).status == 200
    assert token not in Path(f"/proc/{service.process.pid}/cmdline").read_text()
    assert token not in service.log.read_text()
