"""Clients of other APIs send a failed request again by themselves: no call with an effect may be run twice by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from callgate import Gate, ScriptedModel, tool
from callgate.errors import ServerUnavailableError
from callgate.server import Service
from callgate.testing import call

from .conftest import Site, serving

openai = pytest.importorskip("openai", reason="openai is not installed")
anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")

ASKED = [{"role": "user", "content": "pay"}]
RAN: list[str] = []


@tool
def pay() -> str:
    """Pay."""
    RAN.append("pay")
    return "paid"


@tool(idempotent=True)
def set_price() -> str:
    """Set a price."""
    return "set"


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


def down_after_the_call(request: Any) -> Any:
    """A model that calls the tool the prompt names, and fails when it gets the result."""
    last = request.contents[-1]["parts"]
    if any("functionResponse" in part for part in last):
        return ServerUnavailableError("down")
    return call(last[-1]["text"])


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    model = ScriptedModel([down_after_the_call], repeat_last=True)
    with serving(Service(Gate(model, [pay, set_price, look]))) as running:
        yield running


def of_openai(site: Site) -> Any:
    return openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{site.port}/v1")


def of_anthropic(site: Site) -> Any:
    return anthropic.Anthropic(api_key="k", base_url=f"http://127.0.0.1:{site.port}")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("opened", "ask"),
    [
        (of_openai, lambda made, stream: made.chat.completions.create(model="callgate", messages=ASKED, stream=stream)),
        (of_openai, lambda made, stream: made.responses.create(model="callgate", input="pay", stream=stream)),
        (of_anthropic, lambda made, stream: made.messages.create(
            model="callgate", max_tokens=9, messages=ASKED, stream=stream
        )),
    ],
    ids=["chat", "responses", "messages"],
)  # fmt: skip
def test_a_call_with_an_effect_runs_once_when_the_model_fails_after_it(
    site: Site, opened: Callable[[Site], Any], ask: Callable[[Any, bool], Any], stream: bool
) -> None:
    RAN.clear()
    with opened(site) as made, pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
        ask(made, stream)
    assert RAN == ["pay"]
    headers = caught.value.response.headers
    assert (caught.value.status_code, headers["x-should-retry"]) == (502, "false")
    assert site.get(f"/api/v1/sessions/{headers['callgate-session']}").status == 200


@pytest.mark.parametrize(
    "path", ["/v1beta/models/callgate:generateContent", "/v1beta/models/callgate:streamGenerateContent"]
)
def test_clients_of_gemini_are_told_too(site: Site, path: str) -> None:
    failed = site.post(path, {"contents": [{"role": "user", "parts": [{"text": "pay"}]}]})
    assert (failed.status, failed.headers["x-should-retry"]) == (502, "false")
    assert failed.headers["callgate-session"]


@pytest.mark.parametrize("name", ["look", "set_price"])
def test_a_run_whose_calls_may_be_repeated_can_be_asked_for_again(site: Site, name: str) -> None:
    failed = site.post("/v1/chat/completions", {"model": "callgate", "messages": [{"role": "user", "content": name}]})
    assert failed.status == 502
    assert "x-should-retry" not in failed.headers
