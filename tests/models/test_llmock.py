"""LLMock of PyPI as a judge: another author's Gemini and OpenAI servers, with faults, and its verdict on the client."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from callgate import Gate, GeminiModel, OpenAIModel
from callgate.errors import AuthError, ConnectionLostError, InvalidRequestError, ModelError, ProtocolError
from callgate.gemini.surface import Surface
from callgate.types import Reply

pytestmark = [
    pytest.mark.slow,
    pytest.mark.judge("llmock"),
]  # It is installed with all that it needs, which takes longer than all quick tests may.

PACKAGE = "llmock==0.2.2"
KEY = "a-key-of-a-test"


class Judge:
    """A running server: `script` the faults of the next requests, then ask for the `verdict` on how they were taken."""

    def __init__(self, url: str) -> None:
        self.url = url

    def script(self, *behaviors: dict[str, Any]) -> None:
        self._ask("POST", "reset")
        if behaviors:
            self._ask("POST", "scenario", {"behaviors": list(behaviors)})

    def verdict(self) -> tuple[int, list[str]]:
        """The number of attempts, and what it has to find fault with."""
        verdict = self._ask("GET", "verdict")
        return verdict["attempts"], [finding["code"] for finding in verdict["findings"]]

    def _ask(self, method: str, what: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_llmock/{what}", data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    folder = tmp_path_factory.mktemp("llmock")
    # Beside the environment of the tests: it would bring a plugin of pytest along, and a web framework.
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", folder, PACKAGE]
    installed = subprocess.run(list(map(str, install)), capture_output=True, text=True, timeout=600, check=False)
    if installed.returncode:
        sentence = f"{PACKAGE} cannot be installed here ({installed.stderr[-200:]}); it was not tested"
        if os.environ.get("CALLGATE_REQUIRE_ALL") == "1":
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    start = "from llmock.cli import app; app()"
    server = subprocess.Popen(
        [sys.executable, "-c", start, "serve", "-h", "127.0.0.1", "-p", str(port), "--log-level", "error"],
        env={**os.environ, "PYTHONPATH": str(folder)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    found = Judge(f"http://127.0.0.1:{port}")
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                found.script()
                break
            except OSError:
                assert server.poll() is None, "it has ended"
                assert time.monotonic() < deadline, "it does not answer"
                time.sleep(0.05)  # clock: another author's server has no event for its start
        yield found
    finally:
        server.kill()
        server.wait(60)


def gemini(url: str) -> Any:
    surface = Surface(kind="developer", base_url=f"{url}/gemini", version="v1beta", api_key=KEY)
    return GeminiModel("gemini-2.5-flash", surface=surface)


def openai(url: str) -> Any:
    return OpenAIModel("gpt-4o", base_url=f"{url}/v1", api_key=KEY)


seen: list[str] = []


async def get_weather(city: str) -> str:
    """Get the current weather of a city."""
    seen.append(city)
    return f"21 degrees in {city}"


def ask(model: Any, *, stream: bool, tools: bool = False) -> Reply:
    """One run, which ends in a reply or an error."""

    async def story() -> Reply:
        async with asyncio.timeout(120), Gate(model, [get_weather] if tools else []) as gate:
            if not stream:
                return await gate.run("What is the weather in Paris?")
            events = [event async for event in gate.stream("What is the weather in Paris?")]
            return events[-1].reply  # pyright: ignore[reportAttributeAccessIssue] - the last one is `RunEnded`

    seen.clear()
    return asyncio.run(story())


both = pytest.mark.parametrize("model", [gemini, openai])
streams = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
Make = Callable[[str], Any]


@both
@streams
def test_a_tool_runs_and_the_answer_follows(judge: Judge, model: Make, stream: bool) -> None:
    judge.script()
    reply = ask(model(judge.url), stream=stream, tools=True)
    assert len(seen) == len(reply.calls) == 1
    assert reply.text
    assert judge.verdict()[1] == []


@both
@pytest.mark.parametrize(
    ("status", "wait_s", "stream"),
    [(429, 0.5, False), (429, None, True), (500, None, False), (503, 0.5, True), (529, None, False)],
)
def test_trouble_is_waited_out_as_the_server_asks(
    judge: Judge, model: Make, status: int, wait_s: float | None, stream: bool
) -> None:
    judge.script({"type": "fail", "status": status, **({"retry_after": wait_s} if wait_s else {})})
    assert ask(model(judge.url), stream=stream).text
    assert judge.verdict() == (2, [])


@both
@streams
@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, InvalidRequestError), (401, AuthError), (403, AuthError), (404, InvalidRequestError), (422, InvalidRequestError)],
)
def test_a_refusal_is_final(judge: Judge, model: Make, stream: bool, status: int, kind: type[ModelError]) -> None:
    judge.script({"type": "fail", "status": status})
    with pytest.raises(kind):
        ask(model(judge.url), stream=stream)
    assert judge.verdict() == (1, [])


@both
@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed"])
def test_a_broken_stream_is_no_answer(judge: Judge, model: Make, fault: str) -> None:
    judge.script({"type": "stream_fault", "kind": fault, "after_chunks": 2, "times": None})
    with pytest.raises((ConnectionLostError, ProtocolError)):
        ask(model(judge.url), stream=True)


@both
@streams
@pytest.mark.parametrize("fault", ["malformed_arguments", "unknown_tool"])
def test_a_broken_call_never_runs_and_the_run_goes_on(judge: Judge, model: Make, stream: bool, fault: str) -> None:
    judge.script({"type": "tool_fault", "kind": fault})
    reply = ask(model(judge.url), stream=stream, tools=True)
    assert seen == []
    assert reply.calls[0].result.is_error
    assert reply.text
