"""Quotas of principals: what is counted however a request ends, and how many of them run at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Limits, Policy, ScriptedModel
from callgate.errors import ServerUnavailableError
from callgate.models import ModelRequest
from callgate.server import Service, ServiceOptions
from callgate.server.access_file import AccessFile, token_hash
from callgate.server.quotas import period
from callgate.testing import answer, call
from callgate.types import JsonObject, Price

from .conftest import WAIT_S, Site, add, serving

TOKEN = "cg_ann-0123456789abcdef"
ANN = {"Authorization": f"Bearer {TOKEN}"}
USAGE = {"promptTokenCount": 8, "candidatesTokenCount": 4, "totalTokenCount": 12}
PASSED_ON = {
    "model": "callgate",
    "messages": [{"role": "user", "content": "word " * 80}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
}
PROMPT_TOKENS = 100
"""Of the prompt above, by its bytes."""


class Held:
    """A model that says something, and goes on when it is let."""

    name = "held"

    def __init__(self, *chunks: JsonObject) -> None:
        self._chunks = chunks
        self.go = threading.Event()
        self.asked = 0

    async def generate(self, request: ModelRequest) -> AsyncIterator[JsonObject]:
        self.asked += 1
        for chunk in self._chunks:
            yield chunk
        while not self.go.is_set():  # noqa: ASYNC110 - the flag is set by another thread
            await asyncio.sleep(0.005)
        yield answer("Done.", usage=USAGE)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """`serve(model, limits)`: a service with one token that has these limits."""
    with contextlib.ExitStack() as stack:

        def start(
            model: Any,
            limits: str,
            policy: Policy | None = None,
            *,
            priced: bool = True,
            limits_of: Limits | None = None,
            **options: Any,
        ) -> Site:
            path = tmp_path / "access.toml"
            path.write_text(f'[tokens.ann]\nsha256 = "{token_hash(TOKEN)}"\n{limits}\n')
            path.chmod(0o600)
            prices = {model.name: Price(input=1.0, output=1_000_000.0)} if priced else None
            gate = Gate(model, [add], store=str(tmp_path / "sessions.db"), prices=prices, policy=policy, limits=limits_of)
            options = {"stop_s": 2.0} | options
            return stack.enter_context(
                serving(Service(gate, options=ServiceOptions(identities=AccessFile(path), **options)))
            )

        yield start


def used(site: Site) -> tuple[int, float]:
    """The tokens and the cost that were counted today, when everything is written."""
    site.until(lambda: not site.service.places.taken and not site.service.admissions.writing)
    found = asyncio.run_coroutine_threadsafe(site.service.principals.usage("ann", period()), site.loop).result(WAIT_S)
    return found.tokens, found.cost


# What is counted ----------------------------------------------------------------------------------------------------------


def test_a_passed_on_request_costs_what_a_run_costs(serve) -> None:
    site = serve(ScriptedModel([answer("Hello.", usage=USAGE)] * 2), "cost_per_day = 3.0")
    assert site.post("/v1/chat/completions", PASSED_ON, **ANN).status == 200
    assert used(site) == (12, pytest.approx(4.000008))
    refused = site.post("/v1/chat/completions", PASSED_ON, **ANN)
    assert (refused.status, refused.json["error"]["code"]) == (429, "quota_exceeded")


def test_a_limited_cost_that_nobody_can_count_is_refused_before_the_model_is_asked(serve) -> None:
    model = ScriptedModel([answer("Hello.", usage=USAGE)])
    site = serve(model, "cost_per_day = 3.0", priced=False)
    refused = site.post("/v1/chat/completions", PASSED_ON, **ANN)
    assert (refused.status, refused.json["error"]["code"]) == (503, "price_unknown")
    refused = site.post("/api/v1/chat", {"prompt": "Hello"}, **ANN)
    assert refused.status == 503
    assert "no price of 'scripted' is known" in str(refused.json)
    assert model.requests == []


def test_a_passed_on_stream_that_its_client_breaks_off_counts_what_was_reported(serve) -> None:
    site = serve(Held(answer("Once", usage=USAGE, finish_reason=None)), "tokens_per_day = 10")
    with site.stream("POST", "/v1/chat/completions", PASSED_ON | {"stream": True}, **ANN) as stream:
        assert stream.read_more()
        stream.close()
    assert used(site) == (12, pytest.approx(4.000008))
    assert site.post("/v1/chat/completions", PASSED_ON, **ANN).status == 429


def test_a_stream_that_breaks_off_before_anything_was_counted_is_estimated(serve) -> None:
    site = serve(Held(answer("word " * 80, finish_reason=None)), "tokens_per_day = 10")
    with site.stream("POST", "/v1/chat/completions", PASSED_ON | {"stream": True}, **ANN) as stream:
        assert stream.read_more()
        stream.close()
    tokens, _ = used(site)
    assert 2 * PROMPT_TOKENS <= tokens <= 2 * PROMPT_TOKENS + 50
    assert site.post("/v1/chat/completions", PASSED_ON, **ANN).status == 429


def test_a_client_that_leaves_before_the_first_word_is_counted_with_its_prompt(serve) -> None:
    model = Held()
    site = serve(model, "tokens_per_day = 10")
    data = json.dumps(PASSED_ON).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: {ANN['Authorization']}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    with site.connect() as connection:
        connection.sendall(head.encode() + data)
        site.until(lambda: model.asked)
    assert PROMPT_TOKENS <= used(site)[0] <= PROMPT_TOKENS + 25


def test_a_run_whose_client_breaks_off_counts_what_it_had_sent_and_received(serve) -> None:
    site = serve(Held(answer("word " * 80, finish_reason=None)), "tokens_per_day = 10")
    with site.stream_chat({"prompt": "word " * 80, "stream": True}, **ANN) as stream:
        stream.until("text_delta")
        stream.close()
    tokens, cost = used(site)
    assert 2 * PROMPT_TOKENS <= tokens <= 2 * PROMPT_TOKENS + 50
    assert cost == pytest.approx(PROMPT_TOKENS, rel=0.1)  # A token that is written costs 1.
    assert site.chat({"prompt": "x"}, **ANN).error == (429, "quota_exceeded")


def test_a_run_that_ends_with_an_error_counts_what_it_used_before(serve) -> None:
    first = answer(call("add", a=1, b=2), usage=USAGE)
    site = serve(ScriptedModel([first, ServerUnavailableError("broken"), answer("Hi.", usage=USAGE)]), "tokens_per_day = 13")
    assert site.chat({"prompt": "x"}, **ANN).status == 502
    assert used(site) == (12, pytest.approx(4.000008))
    assert site.chat({"prompt": "x"}, **ANN).status == 200
    assert site.chat({"prompt": "x"}, **ANN).error == (429, "quota_exceeded")


def test_the_quota_is_looked_at_after_a_summary_too(serve) -> None:
    big = {"promptTokenCount": 90, "candidatesTokenCount": 10, "totalTokenCount": 100}
    model = ScriptedModel([answer("One.", usage=USAGE), answer("Two.", usage=USAGE), answer("Summed up.", usage=big)])
    site = serve(model, "tokens_per_day = 60", limits_of=Limits(context_tokens=180))
    for _ in range(2):
        assert site.chat({"prompt": "word " * 100, "session": "s"}, **ANN).status == 200
    refused = site.chat({"prompt": "word " * 100, "session": "s"}, **ANN)
    assert refused.error == (429, "quota_exceeded")
    assert len(model.requests) == 3
    assert used(site)[0] == 124


def test_a_run_that_pauses_for_an_approval_and_goes_on_is_counted_once(serve) -> None:
    model = ScriptedModel([answer(call("add", a=1, b=2), usage=USAGE), answer("3", usage=USAGE)])
    site = serve(model, "tokens_per_day = 100\nrights = ['chat', 'approve']", Policy(default="ask"))
    paused = site.chat({"prompt": "x", "session": "s"}, **ANN)
    assert paused.status == 202
    assert used(site)[0] == 12
    answers = {paused.json["approvals"][0]["call_id"]: "yes"}
    assert site.chat({"session": "s", "answers": answers}, **ANN).json["response"] == "3"
    assert used(site) == (24, pytest.approx(8.000016))


@pytest.mark.parametrize("path", ["/api/v1/chat", "/v1/chat/completions"])
def test_a_model_that_answers_nothing_uses_nothing(serve, path: str) -> None:
    site = serve(ScriptedModel([ServerUnavailableError("broken")]), "tokens_per_day = 10")
    assert site.post(path, {"prompt": "x"} if path.startswith("/api") else PASSED_ON, **ANN).status == 502
    assert used(site) == (0, 0.0)


# How many at a time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/chat", "/v1/chat/completions"])
@pytest.mark.parametrize(("limits", "most", "refusal"), [("runs = 1", 100, 429), ("rights = ['chat']", 1, 503)])
def test_of_eight_requests_at_once_one_runs_where_one_may(serve, path: str, limits: str, most: int, refusal: int) -> None:
    model = Held()
    site = serve(model, limits, runs=most)
    body = {"prompt": "x"} if path.startswith("/api") else PASSED_ON
    start = threading.Barrier(8)

    def ask(_: int) -> int:
        start.wait(WAIT_S)
        status = site.post(path, body, **ANN).status
        if status != 200:
            refused.release()
        return status

    refused = threading.Semaphore(0)
    with ThreadPoolExecutor(8) as pool:
        asked = pool.map(ask, range(8))
        try:
            for _ in range(7):
                assert refused.acquire(timeout=WAIT_S)
        finally:
            model.go.set()
        assert sorted(asked) == [200] + [refusal] * 7
    assert model.asked == 1
    assert site.post(path, body, **ANN).status == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/chat", {"prompt": "x", "model": "nobody:nothing"}, 422),
        ("/api/v1/chat", {"prompt": "x", "session": "s", "tool_choice": "nothing"}, 422),
        ("/v1/chat/completions", PASSED_ON | {"messages": [{"role": "assistant", "content": "x"}]}, 400),
    ],
)
def test_a_request_that_is_refused_gives_its_place_back(serve, path: str, body: JsonObject, status: int) -> None:
    site = serve(ScriptedModel(["Hello."]), "runs = 1")
    for _ in range(2):
        assert site.post(path, body, **ANN).status == status
    assert site.chat({"prompt": "x"}, **ANN).status == 200
