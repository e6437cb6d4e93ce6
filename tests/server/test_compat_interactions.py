"""Google's own SDK as a client of the service, by the Interactions API: the service's tools, its gate and its sessions."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.testing.interaction_requests import BROKEN

from callgate import Gate, Policy
from callgate.server import Service, ServiceOptions
from callgate.store import Lease, MemoryStore
from callgate.testing import FakeInteractions, answer, call, text, thought

from .conftest import Site, Slow, Stage, add, poke, serving

genai = pytest.importorskip("google.genai", reason="google-genai is not installed")

TOKEN = "a-token-of-some-length"
STAGE = Stage()
WEATHER = {
    "type": "function", "name": "get_weather", "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    gate = Gate(STAGE, [add, poke], system="Be brief.", policy=Policy(rules=["ask poke"]))
    with serving(Service(gate, options=ServiceOptions(token=TOKEN))) as running:
        yield running


@pytest.fixture
def client(site: Site) -> Any:
    return genai.Client(api_key=TOKEN, http_options={"base_url": f"http://127.0.0.1:{site.port}"})


def test_the_services_tools_are_run_behind_the_gate_and_the_answer_comes_back(client: Any) -> None:
    STAGE.plays([thought("Hm."), call("add", a=1, b=2)], answer("It is 3."))
    got = client.interactions.create(model="callgate", input="1 + 2?")
    assert (got.status, got.output_text) == ("completed", "It is 3.")
    assert [step.type for step in got.steps] == ["thought", "model_output"]
    assert client.interactions.get(got.id).output_text == "It is 3."


def test_a_conversation_goes_on_by_any_previous_id_and_each_stays_as_it_was(client: Any) -> None:
    model = STAGE.plays(answer("Hello, Ada."), answer("Ada."), answer("Still Ada."))
    first = client.interactions.create(model="callgate", input="I am Ada.")
    second = client.interactions.create(model="callgate", input="Who am I?", previous_interaction_id=first.id)
    assert (second.output_text, len(model.requests[-1].contents)) == ("Ada.", 3)
    assert second.id != first.id
    other = client.interactions.create(model="callgate", input="And?", previous_interaction_id=first.id)
    assert (other.output_text, len(model.requests[-1].contents)) == ("Still Ada.", 3)
    assert [client.interactions.get(one.id).output_text for one in (first, second, other)] == [
        "Hello, Ada.", "Ada.", "Still Ada.",
    ]  # fmt: skip
    client.interactions.delete(second.id)
    assert client.interactions.get(other.id).output_text == "Still Ada."
    for again in (client.interactions.get, client.interactions.delete):
        with pytest.raises(Exception, match=r"Interaction 'v1_.*' not found"):
            again(second.id)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_deleting_an_interaction_deletes_no_other_one_of_its_conversation(client: Any, order: tuple[int, ...]) -> None:
    model = STAGE.plays(answer("One."), answer("Two."), answer("Three."), answer("Four."))
    made: list[Any] = []
    for said in ("1", "2", "3"):
        previous = {"previous_interaction_id": made[-1].id} if made else {}
        made.append(client.interactions.create(model="callgate", input=said, **previous))
    client.interactions.delete(made[order[0]].id)
    left = [made[number] for number in sorted(order[1:])]
    assert [client.interactions.get(one.id).output_text for one in left] == [one.output_text for one in left]
    with pytest.raises(Exception, match=r"Interaction 'v1_.*' not found"):
        client.interactions.create(model="callgate", input="?", previous_interaction_id=made[order[0]].id)
    made.append(client.interactions.create(model="callgate", input="4", previous_interaction_id=left[-1].id))
    assert (made[-1].output_text, model.requests[-1].contents[-1]["parts"]) == ("Four.", [{"text": "4"}])
    for one in (*left, made[-1]):
        client.interactions.delete(one.id)
    for one in made:
        with pytest.raises(Exception, match=r"Interaction 'v1_.*' not found"):
            client.interactions.get(one.id)


def test_an_answer_is_streamed_in_events(client: Any) -> None:
    STAGE.plays([thought("Hm."), call("add", a=1, b=2)], answer("It is 3."))
    events = list(client.interactions.create(model="callgate", input="1 + 2?", stream=True))
    kinds = [event.event_type for event in events]
    assert (kinds[0], kinds[-1]) == ("interaction.created", "interaction.completed")
    deltas = [event.delta for event in events if event.event_type == "step.delta"]
    assert "".join(delta.text for delta in deltas if delta.type == "text") == "It is 3."
    again = list(client.interactions.get(events[0].interaction.id, stream=True))
    assert again[-1].event_type == "interaction.completed"


def test_calls_of_the_requests_own_tools_come_back_as_steps(client: Any) -> None:
    STAGE.plays(call("get_weather", city="Oslo"), answer("Cold."))
    said = {"type": "user_input", "content": [{"type": "text", "text": "Oslo?"}]}
    first = client.interactions.create(model="callgate", input=[said], tools=[WEATHER], store=False)
    made = first.steps[-1]
    assert (first.status, made.type, made.name, made.arguments) == (
        "requires_action", "function_call", "get_weather", {"city": "Oslo"},
    )  # fmt: skip
    steps = [
        said,
        {"type": "function_call", "id": made.id, "name": made.name, "arguments": made.arguments},
        {"type": "function_result", "call_id": made.id, "name": made.name, "result": "-4"},
    ]
    second = client.interactions.create(model="callgate", input=steps, tools=[WEATHER], store=False)
    assert (second.status, second.output_text) == ("completed", "Cold.")


def test_a_stored_interaction_with_own_tools_is_continued_by_its_id(client: Any) -> None:
    model = STAGE.plays(call("get_weather", city="Oslo"), answer("Cold."), answer("Warm."), answer("Oslo's."))
    first = client.interactions.create(model="callgate", input="Oslo?", tools=[WEATHER])
    made = first.steps[-1]

    def result(text: str) -> Any:
        step = {"type": "function_result", "call_id": made.id, "name": made.name, "result": text}
        return client.interactions.create(
            model="callgate", input=[step], tools=[WEATHER], previous_interaction_id=first.id
        )  # fmt: skip

    second, other = result("-4"), result("30")
    assert (second.output_text, other.output_text) == ("Cold.", "Warm.")
    assert [content["role"] for content in model.requests[-1].contents] == ["user", "model", "user"]
    kept = client.interactions.get(first.id, include_input=True)
    assert ([step.type for step in kept.steps], kept.status) == (["user_input", "function_call"], "requires_action")
    assert (kept.steps[1].id, kept.steps[1].arguments) == (made.id, {"city": "Oslo"})
    kept = client.interactions.get(second.id, include_input=True)
    assert [(step.type, getattr(step, "result", None)) for step in kept.steps] == [
        ("function_result", "-4"), ("model_output", None),
    ]  # fmt: skip
    # The conversation goes on with the tools of the service.
    last = client.interactions.create(model="callgate", input="Whose weather?", previous_interaction_id=second.id)
    assert (last.output_text, len(model.requests[-1].contents)) == ("Oslo's.", 5)
    client.interactions.delete(first.id)
    assert client.interactions.get(second.id).output_text == "Cold."


def test_a_fetched_interaction_says_what_waits_for_an_approval(client: Any) -> None:
    STAGE.plays([text("I will."), call("poke", where="here")])
    made = client.interactions.create(model="callgate", input="Poke it.")
    assert "This needs approval" in made.output_text
    assert "as previous_interaction_id.)" in made.output_text
    assert "header" not in made.output_text
    assert client.interactions.get(made.id).output_text == made.output_text


def test_a_stream_begins_before_the_model_says_anything(serve: Callable[..., Site]) -> None:
    slow, stage = Slow(), Stage()
    site = serve(Gate(stage, [slow.tool]))
    stage.plays(call("slow"), "Done.")
    client = genai.Client(api_key="k", http_options={"base_url": f"http://127.0.0.1:{site.port}"})
    events = iter(client.interactions.create(model="callgate", input="Go.", stream=True))
    assert next(events).event_type == "interaction.created"
    slow.go.set()
    rest = [event.event_type for event in events]
    assert (rest.count("interaction.created"), rest[-1]) == (0, "interaction.completed")


def test_an_interaction_that_another_process_works_on_is_in_progress_and_one_it_left_is_failed(
    serve: Callable[..., Site],
) -> None:
    store, slow, stage = MemoryStore(), Slow(), Stage()
    with serving(Service(Gate(stage, [slow.tool], store=store), options=ServiceOptions(stop_s=0))) as first:
        second = serve(Gate(stage, [slow.tool], store=store))
        stage.plays(call("slow"))
        made = first.post("/v1beta/interactions", {"model": "callgate", "input": "Go.", "background": True}).json
        place = f"/v1beta/interactions/{made['id']}"
        assert slow.started.wait(60)
        assert second.get(place).json["status"] == "in_progress"
        busy = [second.get(f"{place}?stream=true"), second.post(f"{place}/cancel")]
        assert [(one.status, one.json["error"]["code"]) for one in busy] == [(409, "session_busy")] * 2
    left = second.get(place).json
    assert (left["status"], left["errors"][0]["code"]) == ("failed", "interrupted")


def test_background_with_own_tools_is_refused_with_the_reason(client: Any) -> None:
    with pytest.raises(Exception, match="the client runs calls"):
        client.interactions.create(model="callgate", input="Oslo?", tools=[WEATHER], background=True)


def test_a_stream_is_resumed_after_each_of_its_events(client: Any) -> None:
    STAGE.plays([thought("Hm. "), text("Let me see."), call("add", a=1, b=2)], answer("It is ", "3."))
    events = list(client.interactions.create(model="callgate", input="1 + 2?", stream=True))
    id, ids = events[0].interaction.id, [event.event_id for event in events]
    assert len({*ids}) == len(ids)
    for place, event_id in enumerate(ids):
        rest = list(client.interactions.get(id, stream=True, last_event_id=event_id))
        assert said_in([*events[: place + 1], *rest]) == said_in(events)
    with pytest.raises(Exception, match="there is no event 'nonsense'"):
        list(client.interactions.get(id, stream=True, last_event_id="nonsense"))


def said_in(events: list[Any]) -> list[str]:
    """The text of each step."""
    texts: dict[int, str] = {}
    for event in events:
        if event.event_type == "step.delta":
            delta = event.delta.content if event.delta.type == "thought_summary" else event.delta
            texts[event.index] = texts.get(event.index, "") + delta.text
    assert [event.event_type for event in events].count("interaction.completed") == 1
    return [texts[index] for index in sorted(texts)]


def test_an_interaction_in_progress_is_followed_and_its_input_can_be_seen(client: Any) -> None:
    STAGE.plays(answer("Found."))
    begun = client.interactions.create(model="callgate", input="Search.", background=True)
    events = list(client.interactions.get(begun.id, stream=True))
    assert said_in(events) == ["Found."]
    whole = client.interactions.get(begun.id, include_input=True)
    assert [step.type for step in whole.steps] == ["user_input", "model_output"]
    assert whole.steps[0].content[0].text == "Search."


def test_passages_with_sources_are_annotated(client: Any) -> None:
    said = "Ærø is an island."
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://example.org/a", "title": "An island"}}],
        "groundingSupports": [
            {"segment": {"startIndex": 0, "endIndex": len("Ærø".encode()), "text": "Ærø"}, "groundingChunkIndices": [0]}
        ],
    }
    made = {"candidates": [{
        "content": {"role": "model", "parts": [{"text": said}]}, "finishReason": "STOP", "groundingMetadata": grounding,
    }]}  # fmt: skip
    STAGE.plays(made, made)
    expected = {
        "type": "url_citation",
        "url": "https://example.org/a",
        "title": "An island",
        "start_index": 0,
        "end_index": 5,
    }
    got = client.interactions.create(model="callgate", input="Ærø?")
    for whole in (got, client.interactions.get(got.id)):
        assert [note.model_dump(exclude_none=True) for note in whole.steps[-1].content[0].annotations] == [expected]
    events = list(client.interactions.create(model="callgate", input="Ærø?", stream=True))
    deltas = [event.delta for event in events if event.event_type == "step.delta"]
    assert [note.model_dump(exclude_none=True) for note in deltas[-1].annotations] == [expected]


def test_a_call_that_needs_approval_is_said_so_and_not_run(client: Any) -> None:
    STAGE.plays(call("poke", where="here"))
    got = client.interactions.create(model="callgate", input="Poke it.")
    assert "needs approval" in got.output_text


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_cancelled_interaction_says_so_to_its_creator_too(serve: Callable[..., Site], is_streamed: bool) -> None:
    slow, stage = Slow(), Stage()
    site = serve(Gate(stage, [slow.tool]))
    stage.plays(call("slow"))
    body = {"model": "callgate", "input": "Go.", "stream": is_streamed}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(site.post, "/v1beta/interactions", body)
        assert slow.started.wait(60)
        [session] = [one["id"] for one in site.get("/api/v1/sessions").json["sessions"]]
        place = "/v1beta/interactions/v1_" + base64.urlsafe_b64encode(f"1/{session}".encode()).decode().rstrip("=")
        assert site.post(f"{place}/cancel", {}).json["status"] == "cancelled"
        said = asked.result().body.decode()
    assert '"status":"cancelled"' in said.replace(": ", ":")
    assert site.get(place).json["status"] == "cancelled"


def test_an_approval_that_a_new_prompt_leaves_behind_is_cancelled(client: Any) -> None:
    STAGE.plays(call("poke", where="here"), answer("Something else."))
    first = client.interactions.create(model="callgate", input="Poke it.")
    second = client.interactions.create(model="callgate", input="Never mind.", previous_interaction_id=first.id)
    assert second.output_text == "Something else."
    left = client.interactions.get(first.id)
    assert (left.status, left.errors) == ("cancelled", None)


def test_an_interaction_whose_conversation_is_continued_is_not_deleted_and_says_why(serve: Callable[..., Site]) -> None:
    store, slow, stage = MemoryStore(), Slow(), Stage()
    sites = [serve(Gate(stage, [slow.tool], store=store)) for _ in range(2)]
    stage.plays(answer("One."), call("slow"))
    first = sites[0].post("/v1beta/interactions", {"model": "callgate", "input": "1"}).json
    body = {"model": "callgate", "input": "2", "background": True, "previous_interaction_id": first["id"]}
    second = sites[0].post("/v1beta/interactions", body).json
    assert slow.started.wait(60)
    said = [site.request("DELETE", f"/v1beta/interactions/{first['id']}") for site in sites]
    assert [(one.status, one.json["error"]["code"]) for one in said] == [(409, "session_busy")] * 2
    assert all("Its conversation is being continued" in one.json["error"]["message"] for one in said)
    assert sites[0].post(f"/v1beta/interactions/{second['id']}/cancel", {}).status == 200


def test_an_interaction_has_the_same_model_at_every_process(serve: Callable[..., Site]) -> None:
    store, stage = MemoryStore(), Stage()
    sites = [serve(Gate(stage, [add], store=store)) for _ in range(2)]
    stage.plays(answer("One."))
    made = sites[0].post("/v1beta/interactions", {"model": "callgate", "input": "1"}).json
    found = [site.get(f"/v1beta/interactions/{made['id']}").json for site in sites]
    assert found[0]["model"] == found[1]["model"] == "stage"


AGENT = "deep-research-preview-04-2026"


def test_what_an_agent_does_not_take_is_left_out_and_named(serve: Callable[..., Site], monkeypatch: Any) -> None:
    with FakeInteractions.in_thread(["The report."], repeat_last=True) as fake:
        monkeypatch.setenv("GEMINI_API_KEY", "k")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
        site = serve(Gate(AGENT))
        body = {"model": "callgate", "input": "Research.", "tools": [WEATHER], "generation_config": {"temperature": 1}}
        got = site.post("/v1beta/interactions", {**body, "labels": {"team": "a"}})
        assert (got.status, got.json["status"]) == (200, "completed")
        assert {*got.headers["callgate-left-out"].split(", ")} == {"temperature", "labels", "tools"}
        assert fake.refusals == []


def test_a_background_interaction_is_asked_for_until_it_is_done(client: Any) -> None:
    STAGE.plays(answer("Found."))
    begun = client.interactions.create(model="callgate", input="Search.", background=True)
    assert begun.status == "in_progress"
    found = begun
    while found.status == "in_progress":
        found = client.interactions.get(begun.id)
    assert found.output_text == "Found."


def test_a_background_interaction_is_streamed_if_it_is_asked_to(client: Any) -> None:
    STAGE.plays(answer("Found."))
    events = list(client.interactions.create(model="callgate", input="Search.", background=True, stream=True))
    assert [events[0].event_type, events[-1].event_type] == ["interaction.created", "interaction.completed"]
    assert client.interactions.get(events[0].interaction.id).output_text == "Found."


def test_what_ran_at_the_provider_comes_back_as_steps_and_not_as_text(client: Any) -> None:
    parts = [
        {"executableCode": {"id": "c1", "language": "PYTHON", "code": "print(3)"}},
        {"codeExecutionResult": {"id": "c1", "outcome": "OUTCOME_OK", "output": "3"}},
        {"toolCall": {"id": "g1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["three"]}}},
        {"toolCall": {"id": "x1", "toolType": "A_TOOL_OF_TOMORROW", "args": {}}},
        {"text": "It is 3."},
    ]
    kinds = ["code_execution_call", "code_execution_result", "google_search_call", "model_output"]
    STAGE.plays(answer(*parts), answer(*parts))
    got = client.interactions.create(model="callgate", input="1 + 2?")
    assert ([step.type for step in got.steps], got.output_text) == (kinds, "It is 3.")
    assert (got.steps[0].arguments.code, got.steps[1].result) == ("print(3)", "3")
    assert [step.type for step in client.interactions.get(got.id).steps] == kinds
    events = list(client.interactions.create(model="callgate", input="1 + 2?", stream=True))
    assert [event.step.type for event in events if event.event_type == "step.start"] == kinds
    again = list(client.interactions.get(events[0].interaction.id, stream=True))
    assert [event.step.type for event in again if event.event_type == "step.start"] == kinds


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"input": []}, "input"),
        ({"generation_config": {"thinking_budget": 5}}, "thinking_budget"),
        ({"store": False, "background": True}, "store must be true"),
        ({"previous_interaction_id": "v1_bm9uc2Vuc2U"}, "not found"),
        ({"safety_settings": [{"category": "x"}]}, "safety_settings[0]: expected a type and a threshold"),
        ({"response_format": {"type": "image", "aspect_ratio": "1:1"}}, "'aspect_ratio' of the type 'image'"),
        ({"response_format": {"type": "smell"}}, "the type 'smell' cannot be asked for"),
        ({"generation_config": {"tool_choice": {"allowed_tools": {"tools": ["nobody"]}}}}, "'nobody' is none of the tools"),
        ({"generation_config": {"tool_choice": {"allowed_tools": {"mode": "some", "tools": ["x"]}}}}, "Invalid enum value"),
    ],
)
def test_a_bad_request_is_refused_with_a_sentence(site: Site, changes: Any, said: str) -> None:
    answered = site.post("/v1beta/interactions", {"model": "callgate", "input": "x"} | changes, x_goog_api_key=TOKEN)
    assert answered.status in (400, 404)
    assert said in answered.json["error"]["message"]


# Rules that hold at Google and not here: signatures are Google's to judge, what was never seen to be refused is taken, tools
# are declared in any form, and the model is whichever the service has, which judges the kinds of media too.
TAKEN = {
    "IR23", "IR25", "IR27", "IR28", "IR30", "IR31", "IR32", "IR33", "IR36", "IR39", "IR44", "IR48", "IR49", "IR50", "IR51",
    "IR52", "IR64", "IR76",
}  # fmt: skip


@pytest.mark.parametrize(
    "request_",
    [pytest.param(body, id=f"{rule}-{place}") for place, (rule, body) in enumerate(BROKEN) if rule not in TAKEN],
)
def test_what_google_refuses_is_refused(site: Site, request_: Any) -> None:
    model = STAGE.plays(answer("Not said."))
    body = {**request_, "model": "callgate"} if "model" in request_ else request_
    refused = site.post("/v1beta/interactions", body, x_goog_api_key=TOKEN)
    assert refused.status in (400, 404)
    assert model.requests == []


def test_a_result_that_answers_no_call_of_the_previous_interaction_is_refused(client: Any) -> None:
    model = STAGE.plays(call("get_weather", city="Oslo"), answer("Cold."))
    first = client.interactions.create(model="callgate", input="Oslo?", tools=[WEATHER])
    result = {"type": "function_result", "call_id": first.steps[-1].id, "name": "get_weather", "result": "4"}

    def answered(*results: Any) -> Any:
        return client.interactions.create(
            model="callgate", input=[*results], tools=[WEATHER], previous_interaction_id=first.id
        )  # fmt: skip

    for wrong in ([{**result, "call_id": "other"}], [result, result], [{**result, "call_id": "other"}, result]):
        with pytest.raises(Exception, match="comes immediately after a function call turn"):
            answered(*wrong)
    assert len(model.requests) == 1
    second = answered(result)
    assert second.output_text == "Cold."
    with pytest.raises(Exception, match="comes immediately after a function call turn"):
        client.interactions.create(model="callgate", input=[result], tools=[WEATHER], previous_interaction_id=second.id)
    with pytest.raises(Exception, match="comes immediately after a function call turn"):
        client.interactions.create(model="callgate", input=[result], tools=[WEATHER])


def test_settings_of_a_request_reach_the_model(client: Any) -> None:
    model = STAGE.plays(answer("{}"))
    client.interactions.create(
        model="callgate", input="x", service_tier="flex",
        response_format=[{"type": "text", "mime_type": "application/json"}],
        safety_settings=[{"type": "harassment", "threshold": "block_none"}],
        generation_config={"temperature": 0.5, "thinking_level": "low", "thinking_summaries": "auto"},
    )  # fmt: skip
    assert model.requests[-1].settings == {
        "temperature": 0.5, "thinking": "low", "include_thoughts": True, "service_tier": "flex",
        "response_mime_type": "application/json", "safety": {"HARASSMENT": "BLOCK_NONE"},
    }  # fmt: skip
    model = STAGE.plays(answer("A picture."))
    client.interactions.create(model="callgate", input="x", response_format=[{"type": "text"}, {"type": "image"}])
    assert model.requests[-1].settings == {"response_modalities": ["TEXT", "IMAGE"]}


def test_several_allowed_tools_are_all_that_the_model_is_shown(client: Any) -> None:
    others = [{**WEATHER, "name": name} for name in ("other", "third")]
    choice = {"allowed_tools": {"mode": "any", "tools": ["get_weather", "third"]}}
    model = STAGE.plays(call("third", city="Oslo"))
    got = client.interactions.create(
        model="callgate", input="x", tools=[WEATHER, *others], generation_config={"tool_choice": choice}
    )  # fmt: skip
    asked = model.requests[-1]
    assert (asked.tool_names, asked.tool_choice) == (["get_weather", "third"], "required")
    assert got.steps[-1].name == "third"


def test_media_and_steps_of_a_clients_own_history_are_carried(client: Any) -> None:
    model = STAGE.plays(answer("Seen."))
    film = {"type": "video", "uri": "https://v.test/film", "mime_type": "video/mp4"}
    client.interactions.create(model="callgate", store=False, input=[
        {"type": "user_input", "content": [{**film, "processing": {"type": "static", "start_offset": "10s"}}]},
        {"type": "processing_call", "id": "p1"},
        {"type": "processing_result", "call_id": "p1"},
        {"type": "model_output", "content": [{"type": "text", "text": "A film."}]},
        {"type": "user_input", "content": [{"type": "text", "text": "And now?"}]},
    ])  # fmt: skip
    assert model.requests[-1].contents == [
        {"role": "user", "parts": [{
            "fileData": {"fileUri": "https://v.test/film", "mimeType": "video/mp4"}, "videoMetadata": {"startOffset": "10s"},
        }]},
        {"role": "model", "parts": [{"text": "A film."}]},
        {"role": "user", "parts": [{"text": "And now?"}]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "address", "mime_type"),
    [
        ("image", "a", "image/jpeg"), ("image", "a.png", "image/png"), ("image", "a.pdf", "image/jpeg"),
        ("audio", "a", "audio/mp3"), ("video", "a", "video/mp4"), ("document", "a", "application/pdf"),
        ("document", "a.csv", "text/csv"),
    ],
)  # fmt: skip
def test_a_file_without_a_type_is_of_the_kind_of_its_block(client: Any, kind: str, address: str, mime_type: str) -> None:
    model = STAGE.plays("Seen.")
    uri = f"https://x.test/{address}"
    client.interactions.create(model="callgate", input=[{"type": "text", "text": "?"}, {"type": kind, "uri": uri}])
    assert model.requests[-1].contents[-1]["parts"][1] == {"fileData": {"fileUri": uri, "mimeType": mime_type}}


def test_a_request_with_a_key_is_answered_once_and_its_repetition_has_the_same_id(serve: Callable[..., Site]) -> None:
    store, stage = MemoryStore(), Stage()
    first, second = (serve(Gate(stage, [add], store=store)) for _ in range(2))
    model = stage.plays("One.", "Two.", "Branch.")
    body: dict[str, Any] = {"model": "callgate", "input": "Count."}

    def asked(key: str, **more: Any) -> list[tuple[str, str]]:
        """The ids and texts that three requests with one key get."""
        got = [site.post("/v1beta/interactions", body | more, Idempotency_Key=key).json for site in (first, first, second)]
        return [(one["id"], one["steps"][-1]["content"][0]["text"]) for one in got]

    made = asked("a")
    assert made == [(made[0][0], "One.")] * 3
    going_on = asked("b", previous_interaction_id=made[0][0])
    assert going_on == [(going_on[0][0], "Two.")] * 3
    branch = asked("c", previous_interaction_id=made[0][0])
    assert branch == [(branch[0][0], "Branch.")] * 3
    assert first.get(f"/v1beta/interactions/{branch[0][0]}").json["steps"][-1]["content"][0]["text"] == "Branch."
    assert len(model.requests) == 3
    assert len(first.get("/api/v1/sessions").json["sessions"]) == 2


class _HeldStore(MemoryStore):
    """A store that leases one session to nobody, and takes no more facts of it, until it is let go."""

    held = ""

    async def acquire(self, session: str, *args: Any, **options: Any) -> Lease:
        while session == self.held:  # noqa: ASYNC110 - it is let go by another thread
            await asyncio.sleep(0.005)
        return await super().acquire(session, *args, **options)

    async def append(self, lease: Lease, *args: Any, **options: Any) -> None:
        while lease.session == self.held:  # noqa: ASYNC110 - it is let go by another thread
            await asyncio.sleep(0.005)
        await super().append(lease, *args, **options)


def _session_of(interaction: str) -> str:
    return base64.urlsafe_b64decode(interaction.removeprefix("v1_") + "==").decode().partition("/")[2]


def test_an_interaction_that_is_over_stays_so_while_the_next_one_begins(serve: Callable[..., Site]) -> None:
    store, stage = _HeldStore(), Stage()
    site = serve(Gate(stage, [add], store=store))
    stage.plays("One.", "Branch.", "Two.")
    place = "/v1beta/interactions"
    first = site.post(place, {"model": "callgate", "input": "1"}).json
    store.held = _session_of(first["id"])
    going_on = {"model": "callgate", "input": "2", "previous_interaction_id": first["id"], "background": True}
    second = site.post(place, going_on).json
    assert site.post(f"{place}/{first['id']}/cancel", {}).status == 400
    assert [site.get(f"{place}/{one['id']}").json["status"] for one in (first, second)] == ["completed", "in_progress"]
    other = site.post(place, going_on).json
    assert other["id"] != second["id"]
    cancelled = site.post(f"{place}/{second['id']}/cancel", {})
    store.held = ""
    assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
    while (found := site.get(f"{place}/{other['id']}").json)["status"] == "in_progress":
        pass
    assert found["steps"][-1]["content"][0]["text"] == "Branch."


def test_of_two_processes_that_go_on_with_one_interaction_at_once_each_has_an_answer_of_its_own(
    serve: Callable[..., Site],
) -> None:
    store, stage = _HeldStore(), Stage()
    sites = [serve(Gate(stage, [add], store=store)) for _ in range(2)]
    stage.plays("One.", "Two.", "Branch.")
    place = "/v1beta/interactions"
    first = sites[0].post(place, {"model": "callgate", "input": "1"}).json
    body = {"model": "callgate", "previous_interaction_id": first["id"], "background": True}
    store.held = _session_of(first["id"])
    going_on = sites[0].post(place, body | {"input": "2"}).json
    other = sites[1].post(place, body | {"input": "or 2"}).json
    store.held = ""
    for site, one, said in ((sites[0], going_on, "2"), (sites[1], other, "or 2")):
        while (found := site.get(f"{place}/{one['id']}?include_input=true").json)["status"] == "in_progress":
            pass
        assert (found["status"], found["steps"][0]["content"][0]["text"]) == ("completed", said)
    assert _session_of(going_on["id"]) == _session_of(first["id"]) != _session_of(other["id"])
    assert sorted(len(request.contents) for request in stage.model.requests) == [1, 3, 3]


def test_a_continuation_that_is_refused_leaves_the_next_one_its_session(serve: Callable[..., Site]) -> None:
    store, stage = MemoryStore(), Stage()
    sites = [serve(Gate(stage, [add], store=store)) for _ in range(2)]
    stage.plays("One.", "Two.")
    place = "/v1beta/interactions"
    first = sites[0].post(place, {"model": "callgate", "input": "1"}).json
    body = {"input": "2", "previous_interaction_id": first["id"]}
    assert sites[0].post(place, body | {"model": "no-such-model"}).status == 404
    second = sites[1].post(place, body | {"model": "callgate"}).json
    assert _session_of(second["id"]) == _session_of(first["id"])


def test_a_run_that_is_cancelled_before_it_begins_is_an_error_in_the_clients_form(serve: Callable[..., Site]) -> None:
    store, stage = _HeldStore(), Stage()
    site = serve(Gate(stage, [add], store=store))
    stage.plays("One.")
    place = "/v1beta/interactions"
    first = site.post(place, {"model": "callgate", "input": "1"}).json
    store.held = session = _session_of(first["id"])
    next_id = "v1_" + base64.urlsafe_b64encode(f"2/{session}".encode()).decode().rstrip("=")
    body = {"model": "callgate", "input": "2", "previous_interaction_id": first["id"]}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(site.post, place, body)
        while site.post(f"{place}/{next_id}/cancel", {}).status != 200:
            pass
        store.held = ""
        answered = asked.result()
    assert (answered.status, answered.json["error"]["code"]) == (499, "cancelled")


@pytest.mark.parametrize("is_stored", [True, False])
def test_results_for_some_of_the_calls_are_refused_with_the_others_named(client: Any, is_stored: bool) -> None:
    model = STAGE.plays([call("get_weather", city="Oslo"), call("get_weather", city="Bergen")])
    first = client.interactions.create(model="callgate", input="?", tools=[WEATHER], store=is_stored)
    calls = [step.model_dump(include={"type", "id", "name", "arguments"}) for step in first.steps]
    result = {"type": "function_result", "call_id": calls[0]["id"], "name": "get_weather", "result": "4"}
    body: dict[str, Any] = {"input": [result], "previous_interaction_id": first.id}
    if not is_stored:
        body = {"input": [*calls, result], "store": False}
    with pytest.raises(Exception, match=f"There is no result for: {calls[1]['id']}"):
        client.interactions.create(model="callgate", tools=[WEATHER], **body)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "audio", "data": "AAAA", "mime_type": "audio/wav", "channels": 2}, "channels"),
        ({"type": "audio", "data": "AAAA", "mime_type": "audio/wav", "sample_rate": 8000}, "sample_rate"),
        ({"type": "video", "uri": "https://v.test/f", "mime_type": "video/mp4", "name": "f"}, "name"),
        ({"type": "video", "uri": "https://v.test/f", "mime_type": "video/mp4", "processing": "agentic"}, "processing"),
        ({"type": "image", "uri": "https://v.test/f", "data": "AAAA", "mime_type": "image/png"}, "'data' and 'uri'"),
        ({"type": "image", "data": "AAAA", "mime_type": "text/html"}, "mime_type"),
        ({"type": "text", "text": "?", "annotations": [{"type": "url_citation"}]}, "annotations"),
    ],
)
def test_fields_of_contents_that_cannot_be_carried_are_refused_by_name(site: Site, item: Any, said: str) -> None:
    model = STAGE.plays("Never.")
    got = site.post("/v1beta/interactions", {"model": "callgate", "input": [item]}, X_Goog_Api_Key=TOKEN)
    assert (got.status, said in got.json["error"]["message"], model.requests) == (400, True, [])
