"""Media that a model cannot be shown: a sentence stands in for them, and every API says so once in a run."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from callgate import AnthropicModel, Gate, InteractionsModel, Media, OpenAIModel, OpenAIResponsesModel, tool
from callgate.events import Notice
from callgate.gemini.surface import Surface
from callgate.testing.answers import call
from callgate.testing.fake_anthropic import FakeAnthropic
from callgate.testing.fake_interactions import FakeInteractions
from callgate.testing.fake_openai import FakeOpenAI

ZIP = {"inlineData": {"mimeType": "application/zip", "data": base64.b64encode(b"PK").decode("ascii")}}
OLD = [
    {"role": "user", "parts": [{"text": "What is in it?"}, ZIP]},
    {"role": "model", "parts": [{"text": "A file."}]},
]


@tool
def unpack(as_zip: bool = False) -> list[Any]:
    """Unpacks it."""
    return [
        "Here.",
        Media(data=b"PK" if as_zip else b"\x89PNG\r\n\x1a\n", mime_type="application/zip" if as_zip else "image/png"),
    ]


def _interactions(url: str) -> Any:
    return InteractionsModel(
        "gemini-3.8-flash", surface=Surface(kind="developer", base_url=url, version="v1beta", api_key="k")
    )


APIS: dict[str, tuple[Any, Any]] = {
    "interactions": (FakeInteractions, _interactions),
    "chat": (FakeOpenAI, lambda url: OpenAIModel("gpt-4.1", base_url=url, api_key="k")),
    "responses": (FakeOpenAI, lambda url: OpenAIResponsesModel("gpt-4.1", base_url=url, api_key="k")),
    "messages": (FakeAnthropic, lambda url: AnthropicModel("claude-opus-4-6", base_url=url, api_key="k")),
}


async def _told(api: str, script: list[Any], *runs: dict[str, Any], **options: Any) -> list[list[str]]:
    """The notices of media of each run, in one session."""
    server, model_at = APIS[api]
    told: list[list[str]] = []

    async def watch(event: Any) -> None:
        if isinstance(event, Notice) and event.code == "media_left_out":
            told[-1].append(event.message)

    async with asyncio.timeout(120), server(script) as fake:
        async with Gate(model_at(fake.base_url), [unpack], **options) as gate:
            for one in runs:
                told.append([])
                await gate.run("Go on.", session="s", watch=watch, **one)
        assert fake.refusals == []
    return told


@pytest.mark.parametrize("api", APIS)
def test_media_of_a_history_that_a_model_cannot_be_shown_are_told_once_in_a_run(api: str) -> None:
    told = asyncio.run(_told(api, [call("unpack"), "Done."], {"history": OLD}))
    assert [len(one) for one in told] == [1]
    assert told[0][0].startswith("The conversation has media of type 'application/zip' that this model cannot be shown")


@pytest.mark.parametrize("api", APIS)
def test_media_of_a_result_that_a_model_cannot_be_shown_are_told(api: str) -> None:
    told = asyncio.run(_told(api, ["Hello.", call("unpack", as_zip=True), "Done."], {}, {}))
    assert [len(one) for one in told] == [0, 1]
    assert "application/zip" in told[1][0]


@pytest.mark.parametrize("api", APIS)
def test_a_run_with_media_that_the_model_is_shown_says_nothing_of_them(api: str) -> None:
    assert asyncio.run(_told(api, [call("unpack"), "Done."], {})) == [[]]


def test_media_that_the_server_was_sent_before_are_not_told_again() -> None:
    told = asyncio.run(_told("interactions", ["One.", "Two."], {"history": OLD}, {}, settings={"store": True}))
    assert [len(one) for one in told] == [1, 0]
