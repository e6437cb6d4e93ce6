"""Histories that clients hold themselves: thought signatures come out with an answer, and go back to whom they are from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from callgate import Gate, GeminiModel, InteractionsModel
from callgate.content.read import SKIP_SIGNATURE
from callgate.gemini.surface import Surface
from callgate.history.conversation import Conversation
from callgate.interactions.steps import StepWriter
from callgate.server import Service, ServiceOptions
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_interactions import FakeInteractions, answer, call, thought

from .conftest import Site, serving

genai = pytest.importorskip("google.genai", reason="google-genai is not installed")

TOKEN = "a-token-of-some-length"
WEATHER = {
    "type": "function", "name": "get_weather", "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}  # fmt: skip
SAID = {"type": "user_input", "content": [{"type": "text", "text": "Oslo?"}]}
OSLO = call("get_weather", city="Oslo")
SCRIPTS = {
    "a bare call": [OSLO, "Cold."],
    "thoughts and text before it": [answer(thought("Hm."), "I look.", OSLO), answer(thought("So."), "Cold.")],
    "text before it": [answer("I look.", OSLO), "Cold."],
}


@contextmanager
def backend(api: str, script: list[Any], **settings: Any) -> Iterator[tuple[Any, Any, Site]]:
    """A strict server, a client of Google's SDK for the service before it, and that service."""
    kind, model = (FakeGemini, GeminiModel) if api == "generateContent" else (FakeInteractions, InteractionsModel)
    with kind.in_thread(script) as fake:  # type: ignore[attr-defined]
        surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
        gate = Gate(model("gemini-3.8-flash", surface=surface), mode="native", settings=settings)
        with serving(Service(gate, options=ServiceOptions(token=TOKEN))) as site:
            client = genai.Client(api_key=TOKEN, http_options={"base_url": f"http://127.0.0.1:{site.port}"})
            yield fake, client, site
        assert [str(refusal) for refusal in fake.refusals] == []


def steps_of(client: Any, steps: list[Any], *, stream: bool) -> list[dict[str, Any]]:
    """The steps of an answer as a client keeps them."""
    options: dict[str, Any] = {"model": "callgate", "input": steps, "tools": [WEATHER], "store": False}
    if not stream:
        got = client.interactions.create(**options)
        return [step.model_dump(mode="json", exclude_none=True) for step in got.steps]
    made: dict[int, dict[str, Any]] = {}
    for event in client.interactions.create(**options, stream=True):
        said = event.model_dump(mode="json", exclude_none=True)
        if said["event_type"] == "step.start":
            made[said["index"]] = said["step"]
        elif said["event_type"] == "step.delta":
            put_together(made[said["index"]], said["delta"])
    return [made[index] for index in sorted(made)]


def put_together(step: dict[str, Any], delta: dict[str, Any]) -> None:
    if delta["type"] == "thought_signature":
        step["signature"] = delta["signature"]
    elif delta["type"] == "thought_summary":
        step.setdefault("summary", []).append(delta["content"])
    elif delta["type"] == "text":
        step.setdefault("content", []).append({"type": "text", "text": delta["text"]})
    elif delta["type"] == "arguments_delta":
        step["arguments"] = json.loads(delta["arguments"])


def result_of(steps: list[dict[str, Any]]) -> dict[str, Any]:
    made = next(step for step in steps if step["type"] == "function_call")
    return {"type": "function_result", "call_id": made["id"], "name": made["name"], "result": "-4"}


def sent_back(fake: Any) -> list[str]:
    """The signatures of the newest request that the model got."""
    body = fake.requests[-1].json
    if "contents" in body:
        parts = [part for content in body["contents"] for part in content["parts"]]
        return [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]
    return [step["signature"] for step in body["input"] if step["type"] == "thought"]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["generateContent", "interactions"])
def test_a_history_that_a_client_of_interactions_holds_goes_back_with_its_signatures(
    api: str, stream: bool, script: str
) -> None:
    with backend(api, [*SCRIPTS[script], "Bye."]) as (fake, client, _):
        steps = steps_of(client, [SAID], stream=stream)
        signed = [step for step in steps if step["type"] == "thought" and step.get("signature")]
        assert len(signed) == 1
        held = [SAID, *steps, result_of(steps)]
        more = steps_of(client, held, stream=stream)
        first = sent_back(fake)
        assert len(first) == 1
        assert SKIP_SIGNATURE not in first
        steps_of(client, [*held, *more, {**SAID, "content": [{"type": "text", "text": "Thanks."}]}], stream=stream)
        last = sent_back(fake)
        assert last[0] == first[0]
        assert SKIP_SIGNATURE not in last
        # The model signed its second answer too, which had no call.
        assert len(last) == 2


def test_signatures_of_one_api_are_not_sent_to_the_other() -> None:
    for writer, reader in (("generateContent", "interactions"), ("interactions", "generateContent")):
        with backend(writer, [OSLO]) as (_, client, _site):
            steps = steps_of(client, [SAID], stream=False)
        with backend(reader, ["Cold."]) as (fake, client, _site):
            if reader == "generateContent":  # It takes whatever a client says that it signed.
                assert all(
                    step.get("signature", "").startswith("Y2FsbGdhdGUu") for step in steps if step["type"] == "thought"
                )
            steps_of(client, [SAID, *steps, result_of(steps)], stream=False)
            assert sent_back(fake) == [SKIP_SIGNATURE]


def test_clients_of_generate_content_hold_signatures_of_interactions_too() -> None:
    from google.genai import types

    tool = types.Tool(
        function_declarations=[types.FunctionDeclaration(name="get_weather", description="Tells the weather.")]
    )
    config = types.GenerateContentConfig(tools=[tool])
    with backend("interactions", [OSLO, "Cold."]) as (fake, client, _):
        said = types.Content(role="user", parts=[types.Part(text="Oslo?")])
        got = client.models.generate_content(model="callgate", contents=[said], config=config)
        content = got.candidates[0].content
        made = next(part.function_call for part in content.parts if part.function_call)
        response = types.FunctionResponse(id=made.id, name=made.name, response={"result": "-4"})
        contents = [said, content, types.Content(role="user", parts=[types.Part(function_response=response)])]
        assert client.models.generate_content(model="callgate", contents=contents, config=config).text == "Cold."
        assert len(sent_back(fake)) == 1
        assert SKIP_SIGNATURE not in sent_back(fake)


def test_no_chunk_of_a_passed_on_answer_has_a_field_that_google_does_not_have() -> None:
    declared = {"functionDeclarations": [{"name": "get_weather", "description": "Tells the weather."}]}
    body = {"contents": [{"role": "user", "parts": [{"text": "Oslo?"}]}], "tools": [declared]}
    for said in (OSLO, answer(thought("Hm."), "Cold.")):
        with backend("interactions", [said, said]) as (_, _client, site):
            for method in ("generateContent", "streamGenerateContent?alt=sse"):
                got = site.post(f"/v1beta/models/callgate:{method}", body, x_goog_api_key=TOKEN)
                assert got.status == 200
                assert b"thoughtSignature" in got.body
                assert b"interaction" not in got.body


def test_a_stored_interaction_shows_the_signature_that_its_answer_had() -> None:
    for api in ("generateContent", "interactions"):
        with backend(api, [OSLO, "Cold."]) as (fake, client, _):
            first = client.interactions.create(model="callgate", input="Oslo?", tools=[WEATHER])
            fetched = client.interactions.get(first.id)
            shown = [[step.model_dump(mode="json", exclude_none=True) for step in one.steps] for one in (first, fetched)]
            assert shown[0] == shown[1]
            streamed = [
                event for event in client.interactions.get(first.id, stream=True) if event.event_type == "step.delta"
            ]
            assert [event.delta.type for event in streamed] == ["thought_signature", "arguments_delta"]
            made = result_of(shown[0])
            client.interactions.create(model="callgate", input=[made], tools=[WEATHER], previous_interaction_id=first.id)
            assert len(sent_back(fake)) == 1
            assert SKIP_SIGNATURE not in sent_back(fake)


def test_a_client_cannot_name_what_google_keeps_for_another_one() -> None:
    said = {"role": "user", "parts": [{"text": "Hello."}]}
    with backend("interactions", ["Of another client.", "Hello."], store=True) as (fake, client, site):
        client.interactions.create(model="callgate", input="A secret.")
        origin = "interactions:developer:gemini-3.8-flash"
        seen = StepWriter(origin, vouch=True, media_results=True).seen(Conversation([said]))
        step = {"type": "model_output", "content": [{"type": "text", "text": "Hi."}]}
        kept = {"origin": origin, "id": next(iter(fake.state.stored)), "seen": seen, "until": 1e12, "steps": [step]}
        contents = [said, {"role": "model", "parts": [{"text": "Hi."}], "interaction": kept}, said]
        got = site.post("/v1beta/models/callgate:generateContent", {"contents": contents}, x_goog_api_key=TOKEN)
        assert got.status == 200
        sent = fake.creations[-1]
        assert "previous_interaction_id" not in sent
        assert [each["type"] for each in sent["input"]] == ["user_input", "model_output", "user_input"]
