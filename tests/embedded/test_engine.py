"""The engine's end of the pipe, with a stand-in for llama.cpp at the other end: starting, asking, failing, ending."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from callgate.embedded import engine as engines
from callgate.embedded import server_process
from callgate.embedded.engine import Engine, EngineSettings
from callgate.embedded.weights import Files
from callgate.errors import ConnectionLostError, InvalidRequestError, LimitExceededError, RateLimitedError, UsageError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in listens on a Unix socket")

STAND_IN = textwrap.dedent("""
    import json, os, socketserver, sys, threading
    from http.server import BaseHTTPRequestHandler

    settings = json.loads(sys.stdin.readline())
    print("noise of a library", file=sys.stderr, flush=True)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status, body, kind="application/json"):
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            right = self.headers["Authorization"] == "Bearer " + settings["secret"]
            self.answer(200, json.dumps({"secret_is_right": right}))

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/tokenize":
                return self.answer(200, json.dumps({"tokens": body["content"].split()}))
            prompt = body.get("prompt")
            if prompt == "die":
                os._exit(3)
            if prompt == "refuse":
                return self.answer(400, json.dumps({"error": {"message": "bad grammar", "type": "invalid_request_error"}}))
            if prompt == "nonsense":
                return self.answer(500, "oops")
            error = {"error": {"message": "too long", "type": "exceed_context_size_error"}}
            events = [error] if prompt == "long" else [{"choices": [{"text": word}]} for word in prompt.split()]
            lines = [f"data: {json.dumps(event)}\\n\\n" for event in events] + ["data: [DONE]\\n\\n"]
            self.answer(200, "".join(lines), "text/event-stream")

        def log_message(self, *args):
            pass

        def address_string(self):
            return "here"

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    server = Server(settings["host"], Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"address": "unix://" + settings["host"]}), flush=True)
    sys.stdin.read()
""")


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []
    monkeypatch.setattr(engines, "check_memory", lambda files, context: None)

    def make(script: str = STAND_IN) -> Engine:
        path = tmp_path / "stand_in.py"
        path.write_text(script)
        monkeypatch.setattr(engines, "HOST", [sys.executable, str(path)])
        made.append(Engine(EngineSettings(files=Files("model.gguf"), context=64)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


async def words(engine: Engine, prompt: str) -> list[str]:
    await engine.ready()
    return [event["choices"][0]["text"] async for event in engine.stream("/v1/completions", {"prompt": prompt})]


def test_a_request_starts_the_engine_and_streams_its_events(started: Callable[..., Engine]) -> None:
    engine = started()
    assert engine.pid is None
    assert asyncio.run(words(engine, "one two")) == ["one", "two"]
    assert engine.pid is not None
    assert asyncio.run(engine.tokens("a b c")) == 3
    assert asyncio.run(engine.properties()) == {"secret_is_right": True}


def test_a_request_waits_for_an_engine_that_another_thread_has_just_begun_to_start(
    started: Callable[..., Engine], tmp_path: Path
) -> None:
    gate = tmp_path / "go"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.01)\n"
    engine = started(wait + STAND_IN)

    async def story() -> int:
        warming = asyncio.create_task(asyncio.to_thread(engine.start))
        while engine.pid is None:  # noqa: ASYNC110 - a process of the system tells nobody that it is there
            await asyncio.sleep(0.01)

        async def ask() -> int:
            await engine.ready()
            return await engine.tokens("two words")

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0)
        gate.touch()
        await warming
        return await asking

    assert asyncio.run(story()) == 2


def test_closing_ends_the_process_and_removes_its_folder(started: Callable[..., Engine]) -> None:
    engine = started()
    engine.start()
    engine.start()
    pid, folder = engine.pid, engine._folder  # pyright: ignore[reportPrivateUsage]
    assert pid is not None
    assert folder is not None
    engine.close()
    assert engine.pid is None
    assert not os.path.exists(folder)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert asyncio.run(words(engine, "again")) == ["again"]


def test_an_engine_that_dies_is_an_error_and_starts_again_when_asked(started: Callable[..., Engine]) -> None:
    engine = started()
    engine.start()
    process = engine._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None

    async def die() -> None:
        try:
            await words(engine, "die")
        finally:
            process.wait()

    with pytest.raises(ConnectionLostError):
        asyncio.run(die())
    with pytest.raises(ConnectionLostError, match="process ended in the middle of its answer"):
        asyncio.run(engine.tokens("x"))
    assert asyncio.run(words(engine, "back")) == ["back"]


@pytest.mark.parametrize(
    ("prompt", "error", "sentence"),
    [
        ("refuse", InvalidRequestError, r"llama\.cpp refused the request: bad grammar"),
        ("nonsense", InvalidRequestError, "status 500"),
        ("long", LimitExceededError, "the prompt does not fit into the model's context: too long"),
    ],
)
def test_what_llama_cpp_refuses_is_a_sentence(started: Any, prompt: str, error: type[Exception], sentence: str) -> None:
    engine = started()
    with pytest.raises(error, match=sentence):
        asyncio.run(words(engine, prompt))


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("import sys; sys.exit(7)", "its process ended with code 7; the file may be broken, or memory ran out"),
        ("import os; os.abort()", "its process ended with code -6"),
        ('print(\'{"error": "it does not like it"}\', flush=True)', "does not start: it does not like it"),
        ("print('hello', flush=True)", "its process ended with code 0"),
    ],
)
def test_an_engine_that_does_not_start_is_a_sentence(started: Any, script: str, sentence: str) -> None:
    engine = started(script)
    with pytest.raises(UsageError, match=sentence):
        engine.start()
    assert engine.pid is None


def test_an_engine_that_ends_before_it_is_given_its_settings_says_why(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.wait()

    monkeypatch.setattr(subprocess, "Popen", Ended)
    engine = started('print(\'{"error": "it does not like it"}\', flush=True)')
    with pytest.raises(UsageError, match="does not start: it does not like it"):
        engine.start()


def test_answers_have_the_engine_one_after_another_and_one_that_is_cancelled_leaves_the_queue(
    started: Callable[..., Engine],
) -> None:
    engine, order, started_by = started(), list[str](), dict[str, asyncio.Event]()

    async def answer(name: str, go: asyncio.Event) -> None:
        async with engine.turn():
            order.append(f"{name} begins")
            started_by.get(name, go).set()
            await go.wait()
            order.append(f"{name} ends")

    async def several() -> None:
        go, begun = asyncio.Event(), asyncio.Event()
        started_by["first"] = begun
        first, second, third = (asyncio.ensure_future(answer(name, go)) for name in ("first", "second", "third"))
        await begun.wait()
        second.cancel()
        go.set()
        await asyncio.gather(first, second, third, return_exceptions=True)

    asyncio.run(several())
    assert order == ["first begins", "first ends", "third begins", "third ends"]


def test_too_many_waiting_requests_are_refused(started: Callable[..., Engine]) -> None:
    engine = started()

    async def crowd() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(engine.turn())
            waiting = [asyncio.ensure_future(stack.enter_async_context(engine.turn())) for _ in range(engines.WAITING_MAX)]
            await asyncio.sleep(0)
            try:
                with pytest.raises(RateLimitedError, match="the embedded model is busy and 32 requests wait for it"):
                    await engine.turn().__aenter__()
            finally:
                for one in waiting:
                    one.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(crowd())


def test_engines_with_the_same_settings_are_one(started: Callable[..., Engine]) -> None:
    started()
    settings = EngineSettings(files=Files("model.gguf"), context=64)
    first = engines.shared_engine(settings)
    assert engines.shared_engine(EngineSettings(files=Files("model.gguf"), context=64)) is first
    assert engines.shared_engine(EngineSettings(files=Files("model.gguf"), context=65)) is not first
    first.start()
    engines.close_engines()
    assert first.pid is None
    assert engines.shared_engine(settings) is not first
    engines.close_engines()


def test_the_process_gets_no_keys_and_threads_that_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    env = engines._environment()  # pyright: ignore[reportPrivateUsage]
    assert "SOME_API_KEY" not in env
    assert env["OMP_WAIT_POLICY"] == "PASSIVE"


def test_the_host_gives_llama_cpp_one_slot_no_cache_of_prompts_and_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    library = SimpleNamespace(
        CommonParams=lambda: SimpleNamespace(
            model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace()
        ),
        CommonAdapterLoraInfo=SimpleNamespace,
        Server=lambda params: given.append(params) or "server",
    )
    monkeypatch.setitem(sys.modules, "xllamacpp", library)  # pyright: ignore[reportArgumentType]
    settings = {
        "model": "m",
        "adapter": "a",
        "context": 64,
        "threads": 2,
        "batch": 8,
        "verbosity": -1,
        "host": "h",
        "secret": "s",
    }
    assert server_process._server(settings) == "server"  # pyright: ignore[reportPrivateUsage]
    (params,) = given
    assert (params.model.path, params.lora_adapters[0].path, params.n_ctx) == ("m", "a", 64)
    assert (params.n_parallel, params.cache_ram_mib, params.api_keys, params.hostnames) == (1, 0, ["s"], ["h"])
    assert json.loads(json.dumps(settings)) == settings
