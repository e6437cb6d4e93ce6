"""The openai SDK, and plain requests in the form of OpenAI's Responses API, as clients of the service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from callgate import Gate, Policy, ScriptedModel
from callgate.errors import InvalidRequestError, RateLimitedError, ServerUnavailableError
from callgate.machine.calls import NOT_STARTED
from callgate.server import Service, ServiceOptions
from callgate.store import MemoryStore
from callgate.testing import answer, call, thought

from .conftest import Site, Slow, Stage, add, poke, serving

openai = pytest.importorskip("openai", reason="openai is not installed")
pytestmark = pytest.mark.judge("openai")

USAGE = {
    "promptTokenCount": 7, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "cachedContentTokenCount": 4,
    "totalTokenCount": 12,
}  # fmt: skip
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get-weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
STAGE = Stage()
SLOW = Slow()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    gate = Gate(STAGE, [add, poke, SLOW.tool], policy=Policy(rules=["ask poke"]))
    with serving(Service(gate, options=ServiceOptions(token="a-token-of-some-length"))) as running:
        yield running


@pytest.fixture
def client(site: Site) -> Iterator[Any]:
    url = f"http://127.0.0.1:{site.port}/v1"
    with openai.OpenAI(api_key="a-token-of-some-length", base_url=url, max_retries=0) as made:
        yield made


def ask(client: Any, input: Any, **given: Any) -> Any:
    return client.responses.create(**{"model": "callgate", "input": input, **given})


def brief(item: Any) -> tuple[Any, ...]:
    match item.type:
        case "message":
            return ("message", *(part.text for part in item.content))
        case "reasoning":
            return ("reasoning", *(part.text for part in item.summary))
        case "function_call":
            return ("function_call", item.name, json.loads(item.arguments))
        case kind:
            return (kind,)


# With the server's tools --------------------------------------------------------------------------------------------------


def test_a_request_without_tools_gets_the_servers_and_sees_no_call(client: Any) -> None:
    model = STAGE.plays([thought("Hm."), call("add", a=1, b=2)], answer("It is 3.", usage=USAGE))
    got = ask(client, "1 + 2?", instructions="Be brief.", metadata={"a": "b"})
    assert [brief(item) for item in got.output] == [("reasoning", "Hm."), ("message", "It is 3.")]
    assert (got.object, got.status, got.model, got.output_text) == ("response", "completed", "callgate", "It is 3.")
    assert (got.instructions, got.metadata, got.error, got.incomplete_details) == ("Be brief.", {"a": "b"}, None, None)
    counted = got.usage
    assert (counted.input_tokens, counted.input_tokens_details.cached_tokens, counted.output_tokens) == (7, 4, 5)
    assert type(counted).model_validate(counted.model_dump()).input_tokens_details.cache_write_tokens == 0
    assert (counted.output_tokens_details.reasoning_tokens, counted.total_tokens) == (2, 12)
    assert set(model.requests[0].tool_names) >= {"add", "poke"}
    assert model.requests[0].system == "Be brief."


def test_a_stream_adds_up_to_the_response_and_has_every_event_in_order(client: Any) -> None:
    STAGE.plays([thought("Hm."), call("add", a=1, b=2)], answer("The sum of them is 3.", usage=USAGE))
    with client.responses.stream(model="callgate", input="1 + 2?") as stream:
        events = list(stream)
        got = stream.get_final_response()
    numbers = [event.sequence_number for event in events]
    assert (numbers, numbers[0]) == (sorted(set(numbers)), 0)
    kinds = [event.type for index, event in enumerate(events) if not index or events[index - 1].type != event.type]
    assert kinds == [
        "response.created", "response.in_progress",
        "response.output_item.added", "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "response.output_item.done",
        "response.output_item.added", "response.content_part.added", "response.output_text.delta",
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.completed",
    ]  # fmt: skip
    assert [brief(item) for item in got.output] == [("reasoning", "Hm."), ("message", "The sum of them is 3.")]
    assert got.usage.output_tokens == 5
    again = client.responses.retrieve(got.id)
    assert again.output_text == got.output_text


def test_items_and_settings_reach_the_model(client: Any) -> None:
    model = STAGE.plays("{}")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    ask(
        client,
        [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "I am Ada."},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
            {"role": "user", "content": [
                {"type": "input_text", "text": "And this?"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
            ]},
        ],
        temperature=0.2, max_output_tokens=100, user="u1", store=False,
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "json_schema", "name": "x", "schema": schema}},
    )  # fmt: skip
    asked = model.requests[0]
    assert asked.system == "Be kind."
    assert asked.contents == [
        {"role": "user", "parts": [{"text": "I am Ada."}]},
        {"role": "model", "parts": [{"text": "Hello."}]},
        {"role": "user", "parts": [{"text": "And this?"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
    ]
    assert asked.settings == {
        "temperature": 0.2, "max_output_tokens": 100, "thinking": "low", "include_thoughts": True, "user": "u1",
        "response_mime_type": "application/json", "response_json_schema": schema,
    }  # fmt: skip


class Sum(BaseModel):
    total: int


def test_structured_output_is_parsed(client: Any) -> None:
    STAGE.plays('{"total": 3}')
    got = client.responses.parse(model="callgate", input="1 + 2?", text_format=Sum)
    assert got.output_parsed == Sum(total=3)


def test_a_response_is_continued_in_its_session_and_a_branch_in_another(client: Any) -> None:
    model = STAGE.plays("Hello, Ada.", "Ada.", "Still Ada.")
    first = ask(client, "I am Ada.")
    second = ask(client, "Who am I?", previous_response_id=first.id)
    assert (second.output_text, second.previous_response_id) == ("Ada.", first.id)
    branch = ask(client, "And now?", previous_response_id=first.id)
    said = [[part["text"] for content in request.contents for part in content["parts"]] for request in model.requests]
    assert said == [
        ["I am Ada."],
        ["I am Ada.", "Hello, Ada.", "Who am I?"],
        ["I am Ada.", "Hello, Ada.", "And now?"],
    ]
    texts = [client.responses.retrieve(one.id).output_text for one in (first, second, branch)]
    assert texts == ["Hello, Ada.", "Ada.", "Still Ada."]
    listed = client.responses.input_items.list(second.id, order="asc", limit=2)
    assert [part.text for item in listed for part in item.content] == ["I am Ada.", "Hello, Ada.", "Who am I?"]


def test_a_deleted_response_is_not_found(client: Any) -> None:
    STAGE.plays("Yes.")
    made = ask(client, "?")
    client.responses.delete(made.id)
    for use in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            use(made.id)
    with pytest.raises(openai.NotFoundError):
        ask(client, "?", previous_response_id=made.id)


def test_an_approval_is_asked_for_and_answered_in_the_words_of_the_api(client: Any) -> None:
    model = STAGE.plays(answer("I will.", call("poke", where="here")), "Done.")
    first = ask(client, "Poke.")
    request = first.output[-1]
    assert (first.status, request.type, request.name, request.server_label) == (
        "completed", "mcp_approval_request", "poke", "callgate",
    )  # fmt: skip
    assert json.loads(request.arguments) == {"where": "here"}
    assert client.responses.retrieve(first.id).output[-1].id == request.id
    answers = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]
    second = ask(client, answers, previous_response_id=first.id)
    assert (second.output_text, second.status) == ("Done.", "completed")
    assert second.id != first.id
    assert "functionResponse" in model.requests[1].contents[-1]["parts"][0]


def test_a_call_whose_approval_was_left_for_another_question_is_known_not_to_have_started(client: Any) -> None:
    model = STAGE.plays(call("poke", where="here"), "As you like.", "Done.")
    first = ask(client, "Poke.")
    assert ask(client, "What is the time?", previous_response_id=first.id).output_text == "As you like."
    said = json.dumps(model.requests[1].contents[2])
    assert NOT_STARTED in said
    assert "not known" not in said
    answers = [{"type": "mcp_approval_response", "approval_request_id": first.output[-1].id, "approve": True}]
    assert ask(client, answers, previous_response_id=first.id).output_text == "Done."


def test_a_refusal_of_an_approval_reaches_the_model_with_its_reason(client: Any) -> None:
    model = STAGE.plays(call("poke", where="here"), "Then not.")
    first = ask(client, "Poke.")
    no = {
        "type": "mcp_approval_response",
        "approval_request_id": first.output[-1].id,
        "approve": False,
        "reason": "Fragile.",
    }
    assert ask(client, [no], previous_response_id=first.id).output_text == "Then not."
    assert "Fragile." in json.dumps(model.requests[1].contents[-1])


def test_an_approval_with_other_arguments_is_refused_and_the_call_still_waits(client: Any) -> None:
    STAGE.plays(call("poke", where="here"), "Then not.")
    first = ask(client, "Poke it.")
    no = {"type": "mcp_approval_response", "approval_request_id": first.output[-1].id, "approve": False}
    with pytest.raises(openai.BadRequestError, match="mcp_approval_response has no field 'arguments'"):
        ask(client, [no | {"approve": True, "arguments": '{"where": "there"}'}], previous_response_id=first.id)
    assert ask(client, [no], previous_response_id=first.id).output_text == "Then not."


def test_each_answer_to_an_approval_is_a_response_of_its_own_whichever_id_it_names(client: Any) -> None:
    STAGE.plays(call("poke", where="here"), call("poke", where="there"), "Done.")
    first = ask(client, "Poke.")

    def approved(asked: Any, previous: str) -> Any:
        answer = {"type": "mcp_approval_response", "approval_request_id": asked.output[-1].id, "approve": True}
        return ask(client, [answer], previous_response_id=previous)

    second = approved(first, first.id)
    assert second.output[-1].type == "mcp_approval_request"
    third = approved(second, first.id)
    assert third.output_text == "Done."
    assert len({first.id, second.id, third.id}) == 3


def test_an_answer_that_is_repeated_with_its_key_is_the_same_response(client: Any) -> None:
    STAGE.plays(call("poke", where="here"), "Done.")
    first = ask(client, "Poke.")
    answers = [{"type": "mcp_approval_response", "approval_request_id": first.output[-1].id, "approve": True}]
    made = [
        ask(client, answers, previous_response_id=first.id, extra_headers={"Idempotency-Key": "poke-once"}) for _ in range(2)
    ]
    assert {one.id for one in made} == {made[0].id} != {first.id}


def test_a_stream_begins_before_the_model_says_anything(client: Any) -> None:
    SLOW.go.clear()
    STAGE.plays(call("slow"), "Done.")
    with client.responses.create(model="callgate", input="Go.", stream=True) as stream:
        events = iter(stream)
        begun = [next(events).type for _ in range(2)]
        SLOW.go.set()
        rest = [event.type for event in events]
    SLOW.started.clear()
    assert begun == ["response.created", "response.in_progress"]
    assert (rest.count("response.created"), rest[-1]) == (0, "response.completed")


def test_a_background_response_is_polled_streamed_and_cancelled(client: Any, site: Site) -> None:
    SLOW.go.clear()
    STAGE.plays(call("slow"), "Done.")
    made = ask(client, "Go.", background=True)
    assert (made.status, made.output) == ("in_progress", [])
    assert SLOW.started.wait(60)
    assert client.responses.retrieve(made.id).status == "in_progress"
    SLOW.go.set()
    with client.responses.retrieve(made.id, stream=True) as events:
        assert [event.type for event in events][-1] == "response.completed"
    done = client.responses.retrieve(made.id)
    assert (done.status, done.output_text) == ("completed", "Done.")
    with client.responses.retrieve(made.id, stream=True, starting_after=3) as events:
        piece = next(iter(events))
        assert (piece.delta, piece.sequence_number) == ("Done.", 3 + len("Done."))
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(made.id)
    SLOW.go.clear()
    SLOW.started.clear()
    STAGE.plays(call("slow"), "Done.")
    made = ask(client, "Go.", background=True)
    assert SLOW.started.wait(60)
    run = max(site.service.runs.values(), key=lambda run: run.began_s)
    assert client.responses.cancel(made.id).status == "cancelled"
    asyncio.run_coroutine_threadsafe(run.done.wait(), site.loop).result(60)
    assert client.responses.retrieve(made.id).status == "cancelled"


def said_in(events: Any) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def test_a_stream_that_is_resumed_after_any_event_adds_up_to_the_whole_text(client: Any) -> None:
    STAGE.plays([thought("Let me see, there are two of them."), call("add", a=1, b=2)], "The sum of the two is three.")
    with client.responses.create(model="callgate", input="1 + 2?", stream=True) as stream:
        seen = list(stream)
    id = seen[0].response.id
    assert len([event for event in seen if event.type == "response.output_text.delta"]) > 1
    for count, event in enumerate(seen[:-1], 1):
        with client.responses.retrieve(id, stream=True, starting_after=event.sequence_number) as rest:
            later = list(rest)
        assert said_in([*seen[:count], *later]) == "The sum of the two is three."
        assert later[-1].type == "response.completed"
        assert later[-1].sequence_number == seen[-1].sequence_number


@pytest.mark.parametrize("after", ["100000", "x", "1e3", "-2", "9" * 400])
def test_a_stream_is_not_resumed_after_an_event_that_there_is_not(client: Any, after: str) -> None:
    STAGE.plays("Hello.")
    made = ask(client, "Hi.")
    with pytest.raises(openai.BadRequestError, match="starting_after: there is no event"):
        client.responses.retrieve(made.id, stream=True, extra_query={"starting_after": after})


@pytest.mark.parametrize("limit", ["0", "-1", "x", "101"])
def test_a_page_of_input_items_has_a_size_that_can_be(client: Any, limit: str) -> None:
    STAGE.plays("Hello.")
    made = ask(client, "Hi.")
    with pytest.raises(openai.BadRequestError, match="limit: use a number from 1 to 100"):
        client.responses.input_items.list(made.id, extra_query={"limit": limit})


def test_a_page_of_input_items_is_in_an_order_that_there_is_and_after_an_item_of_the_input(client: Any) -> None:
    STAGE.plays("Hello.")
    made = ask(client, "Hi.")
    with pytest.raises(openai.BadRequestError, match="order: 'zz' is none of asc, desc"):
        client.responses.input_items.list(made.id, extra_query={"order": "zz"})
    with pytest.raises(openai.NotFoundError, match="after: there is no item 'msg_9'"):
        client.responses.input_items.list(made.id, after="msg_9")
    (item,) = client.responses.input_items.list(made.id)
    assert list(client.responses.input_items.list(made.id, after=item.id)) == []


def test_a_response_that_another_process_works_on_is_in_progress_and_one_it_left_is_failed(
    serve: Callable[..., Site],
) -> None:
    store, slow, stage = MemoryStore(), Slow(), Stage()
    with serving(Service(Gate(stage, [slow.tool], store=store), options=ServiceOptions(stop_s=0))) as first:
        second = serve(Gate(stage, [slow.tool], store=store))
        stage.plays(call("slow"), "Going on.")
        made = first.post("/v1/responses", {"model": "callgate", "input": "Go.", "background": True}).json
        place = f"/v1/responses/{made['id']}"
        assert slow.started.wait(60)
        polled = second.get(place).json
        assert (polled["status"], polled["output"]) == ("in_progress", [])
        busy = [second.get(f"{place}?stream=true"), second.post(f"{place}/cancel")]
        assert [(one.status, one.json["error"]["code"]) for one in busy] == [(409, "session_busy")] * 2
        following = {"model": "callgate", "input": "And?", "previous_response_id": made["id"]}
        assert second.post("/v1/responses", following).status == 409
    left = second.get(place).json
    assert (left["status"], left["error"]["code"]) == ("failed", "server_error")
    assert "The process that ran it has ended" in left["error"]["message"]
    assert b"event: response.failed" in second.get(f"{place}?stream=true").body
    assert second.post("/v1/responses", following).json["output"][0]["content"][0]["text"] == "Going on."


class LateStore(MemoryStore):
    """A store in which something may happen after a journal was read."""

    then: Callable[[], Any] | None = None

    async def load(self, session: str, *, start: int = 0) -> Any:
        facts = await super().load(session, start=start)
        then, self.then = self.then, None
        if then is not None:
            await then()
        return facts


def test_a_response_whose_run_ends_while_it_is_fetched_is_completed(serve: Callable[..., Site]) -> None:
    store, slow, stage = LateStore(), Slow(), Stage()
    site = serve(Gate(stage, [slow.tool], store=store))
    stage.plays(call("slow"), "Done.")
    made = site.post("/v1/responses", {"model": "callgate", "input": "Go.", "background": True}).json
    assert slow.started.wait(60)
    (run,) = site.service.runs.values()

    async def end() -> None:
        slow.go.set()
        await run.done.wait()

    store.then = end
    got = site.get(f"/v1/responses/{made['id']}").json
    assert (got["status"], got["output"][0]["content"][0]["text"]) == ("completed", "Done.")


class SlowStore(MemoryStore):
    """A store in which no run begins before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()

    async def acquire(self, *args: Any, **more: Any) -> Any:
        await self.may.wait()
        return await super().acquire(*args, **more)


def test_a_response_in_the_background_is_found_as_soon_as_its_id_is_known(serve: Callable[..., Site]) -> None:
    store, stage = SlowStore(), Stage()
    site = serve(Gate(stage, [], store=store))
    stage.plays("Done.")
    made = site.post("/v1/responses", {"model": "callgate", "input": "Go.", "background": True}).json
    polled = site.get(f"/v1/responses/{made['id']}")
    assert (polled.status, polled.json["status"], polled.json["id"]) == (200, "in_progress", made["id"])
    site.on_loop(store.may.set)
    site.until(lambda: not site.service.live, "the end of the run")
    assert site.get(f"/v1/responses/{made['id']}").json["status"] == "completed"


# With tools of the client's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kept", [False, True], ids=["sent again", "kept"])
def test_own_tools_come_back_and_their_results_are_taken(client: Any, stream: bool, kept: bool) -> None:
    first_call = {"functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}}, "thoughtSignature": "c2ln"}
    model = STAGE.plays(answer(first_call, call("get_weather", city="Rome")), "Both are cold.")
    given: dict[str, Any] = {"model": "callgate", "tools": [WEATHER], "store": kept}
    if stream:
        with client.responses.stream(input="Weather?", **given) as events:
            first = events.get_final_response()
    else:
        first = client.responses.create(input="Weather?", **given)
    calls = [item for item in first.output if item.type == "function_call"]
    assert [brief(item) for item in calls] == [
        ("function_call", "get-weather", {"city": "Oslo"}),
        ("function_call", "get-weather", {"city": "Rome"}),
    ]
    assert calls[0].call_id == "c1"
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": '{"degrees": -3}'} for item in reversed(calls)
    ]
    if kept:
        second = client.responses.create(input=results, previous_response_id=first.id, **given)
    else:
        second = client.responses.create(input=[{"role": "user", "content": "Weather?"}, *first.output, *results], **given)
    assert second.output_text == "Both are cold."
    assert [request.tool_names for request in model.requests] == [["get_weather"]] * 2
    said, written, responses = (content["parts"] for content in model.requests[1].contents)
    assert said == [{"text": "Weather?"}]
    assert [part["functionCall"]["args"] for part in written] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert written[0]["thoughtSignature"] == "c2ln"
    assert [part["functionResponse"]["name"] for part in responses] == ["get_weather"] * 2
    assert responses[0]["functionResponse"]["id"] == "c1"


def test_an_item_may_be_named_by_its_id(client: Any) -> None:
    model = STAGE.plays(call("get_weather", city="Oslo"), "Cold.")
    first = ask(client, "Weather?", tools=[WEATHER])
    (made,) = first.output
    result = {"type": "function_call_output", "call_id": made.call_id, "output": "cold"}
    items = [{"role": "user", "content": "Weather?"}, {"type": "item_reference", "id": made.id}, result]
    assert ask(client, items, tools=[WEATHER]).output_text == "Cold."
    assert model.requests[1].contents[1]["parts"][0]["functionCall"]["args"] == {"city": "Oslo"}
    with pytest.raises(openai.NotFoundError, match="send the item itself"):
        ask(client, [{"type": "item_reference", "id": "msg_nothing"}])


def test_a_tool_of_plain_text_is_called_with_text(client: Any) -> None:
    STAGE.plays(call("apply_patch", input="*** Begin"))
    got = ask(client, "Patch.", tools=[{"type": "custom", "name": "apply_patch", "description": "Applies a patch."}])
    assert [(item.type, item.name, item.input) for item in got.output] == [("custom_tool_call", "apply_patch", "*** Begin")]


def test_tools_of_a_namespace_are_called_by_their_own_names(client: Any) -> None:
    model = STAGE.plays(call("crm__find", who="Ada"), "Found.")
    space = {"type": "namespace", "name": "crm", "description": "People.", "tools": [WEATHER | {"name": "find"}]}
    first = ask(client, "Who?", tools=[WEATHER, space], store=False)
    (made,) = first.output
    assert (made.type, made.namespace, made.name) == ("function_call", "crm", "find")
    result = {"type": "function_call_output", "call_id": made.call_id, "output": "Ada"}
    second = ask(client, [{"role": "user", "content": "Who?"}, made, result], tools=[WEATHER, space], store=False)
    assert second.output_text == "Found."
    assert model.requests[1].contents[1]["parts"][0]["functionCall"]["name"] == "crm__find"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("auto", "auto"), ("required", "required"), ("none", "none"),
        ({"type": "function", "name": "get-weather"}, "get-weather"),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get-weather"}]}, "required"),
    ],
)  # fmt: skip
def test_the_choice_of_tools_reaches_the_model(client: Any, given: Any, wanted: str) -> None:
    model = STAGE.plays("Yes.")
    ask(client, "?", tools=[WEATHER], tool_choice=given)
    assert model.requests[0].tool_choice == wanted


def test_a_tool_that_runs_at_the_provider_is_mapped_and_its_code_shown(client: Any) -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "print(3)"}}
    ran = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "3\n"}}
    model = STAGE.plays(answer(code, ran, "It is 3."))
    tools = [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    got = ask(client, "?", tools=tools)
    assert model.requests[0].tools == [{"googleSearch": {}, "codeExecution": {}}]
    ran_item = got.output[0]
    assert (ran_item.type, ran_item.code, ran_item.outputs[0].logs) == ("code_interpreter_call", "print(3)", "3\n")
    assert got.output_text == "It is 3."


# Counting, refusals, failures ---------------------------------------------------------------------------------------------


def test_tokens_are_counted_and_grow_with_the_request(client: Any) -> None:
    short, long = (
        client.responses.input_tokens.count(model="callgate", input="a" * size, tools=[WEATHER]).input_tokens
        for size in (10, 4000)
    )
    assert 0 < short < long


CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "cold"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "wizard", "content": "?"}]}, "wizard"),
        ({"input": [{"role": "assistant", "content": "?"}]}, "newest message"),
        ({"input": [{"role": "user", "content": "?"}, CALLED, OUTPUT, OUTPUT]}, "an output already"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [{"type": "computer_use_preview"}]}, "computer_use_preview"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True, "store": False}, "background"),
        ({"background": True, "tools": [WEATHER]}, "background"),
        ({"input": [{"type": "mcp_approval_response", "approval_request_id": "x", "approve": True}]}, "approval"),
        ({"input": [{"type": "mcp_approval_response", "approval_request_id": "mcpr_x", "approve": True}]}, "previous"),
    ],
)
def test_what_cannot_be_used_is_a_bad_request(client: Any, given: Any, told: str) -> None:
    with pytest.raises(openai.BadRequestError, match=told):
        client.responses.create(**{"model": "callgate", "input": "?", **given})


@pytest.mark.parametrize("id", ["resp_x", "resp_cDkvcy0w", "nothing", "resp_MS8"])
def test_an_id_of_nothing_is_not_found(client: Any, id: str) -> None:
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(id)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (InvalidRequestError("no such model", is_model_unknown=True), "NotFoundError"),
        (InvalidRequestError("no"), "BadRequestError"),
        (RateLimitedError("too much", retry_after=7), "RateLimitError"),
        (ServerUnavailableError("broken"), "InternalServerError"),
    ],
)
@pytest.mark.parametrize("tools", [[], [WEATHER]], ids=["our tools", "its tools"])
def test_what_the_model_fails_with_has_its_status(client: Any, raised: Exception, kind: str, tools: Any) -> None:
    STAGE.plays(raised)
    with pytest.raises(getattr(openai, kind)):
        ask(client, "?", **({"tools": tools} if tools else {}))


def test_an_answer_that_breaks_off_is_a_failed_response_in_the_stream(client: Any) -> None:
    STAGE.plays(answer("Once upon", finish_reason=None))
    *_, last = client.responses.create(model="callgate", input="?", stream=True, tools=[WEATHER])
    assert (last.type, last.response.status, last.response.error.code) == ("response.failed", "failed", "server_error")


@pytest.mark.parametrize(("native", "reason"), [("MAX_TOKENS", "max_output_tokens"), ("SAFETY", "content_filter")])
def test_the_reason_of_an_end_is_told(client: Any, native: str, reason: str) -> None:
    STAGE.plays(answer("Half", finish_reason=native))
    got = ask(client, "?", tools=[WEATHER])
    assert (got.status, got.incomplete_details.reason) == ("incomplete", reason)


# Other people's agents on this API ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_openai_agents_runs_its_own_tools_and_goes_on_by_the_id_of_the_last_response(site: Site, stream: bool) -> None:
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    agents.set_tracing_disabled(True)
    model = STAGE.plays([call("weather", city="Oslo"), call("weather", city="Rome")], "Both are cold.", "Still.")

    @agents.function_tool
    def weather(city: str) -> str:
        """Tells the weather."""
        return f"{city} is cold"

    async def run() -> list[str]:
        url = f"http://127.0.0.1:{site.port}/v1"
        async with openai.AsyncOpenAI(api_key="a-token-of-some-length", base_url=url, max_retries=0) as made:
            agent = agents.Agent(name="a", model=agents.OpenAIResponsesModel("callgate", made), tools=[weather])
            if stream:
                first = agents.Runner.run_streamed(agent, "Weather?")
                assert [event async for event in first.stream_events()]
            else:
                first = await agents.Runner.run(agent, "Weather?")
            second = await agents.Runner.run(agent, "And now?", previous_response_id=first.last_response_id)
            return [first.final_output, second.final_output]

    assert asyncio.run(run()) == ["Both are cold.", "Still."]
    responses = [part["functionResponse"]["response"] for part in model.requests[1].contents[-1]["parts"]]
    assert responses == [{"result": "Oslo is cold"}, {"result": "Rome is cold"}]
    assert [content["role"] for content in model.requests[2].contents] == ["user", "model", "user", "model", "user"]


def test_pydantic_ai_runs_its_own_tools(site: Site) -> None:
    models = pytest.importorskip("pydantic_ai.models.openai", reason="pydantic-ai is not installed")
    from pydantic_ai import Agent
    from pydantic_ai.providers.openai import OpenAIProvider

    STAGE.plays(answer(thought("Hm."), call("weather", city="Oslo")), "Cold.")

    async def run() -> str:
        url = f"http://127.0.0.1:{site.port}/v1"
        async with openai.AsyncOpenAI(api_key="a-token-of-some-length", base_url=url, max_retries=0) as made:
            agent = Agent(models.OpenAIResponsesModel("callgate", provider=OpenAIProvider(openai_client=made)))
            agent.tool_plain(weather)
            return (await agent.run("Weather?")).output

    def weather(city: str) -> str:
        """Tells the weather."""
        return f"{city} is cold"

    assert asyncio.run(run()) == "Cold."


# Requests that are sent twice ---------------------------------------------------------------------------------------------


def test_a_request_with_a_key_is_answered_once_and_its_repetition_has_the_same_id(serve: Callable[..., Site]) -> None:
    store, stage = MemoryStore(), Stage()
    first, second = (serve(Gate(stage, [add], store=store)) for _ in range(2))
    model = stage.plays("One.", "Two.", "Three.")
    body: dict[str, Any] = {"model": "callgate", "input": "Count."}
    made = first.post("/v1/responses", body, Idempotency_Key="a")
    for site in (first, second):
        again = site.post("/v1/responses", body, Idempotency_Key="a")
        assert (again.status, again.json["id"], again.json["output"]) == (200, made.json["id"], made.json["output"])
        assert again.headers["idempotent-replayed"] == "true"
        assert f'"id":"{made.json["id"]}"'.encode() in site.post(
            "/v1/responses", body | {"stream": True}, Idempotency_Key="a"
        ).body  # fmt: skip
    # The second time, the response that is continued is not the newest any more.
    following = body | {"input": "Go on.", "previous_response_id": made.json["id"]}
    next_one = [site.post("/v1/responses", following, Idempotency_Key="b").json for site in (first, first, second)]
    assert [one["output"][0]["content"][0]["text"] for one in next_one] == ["Two."] * 3
    assert len({one["id"] for one in next_one}) == 1
    named = [first.post("/v1/responses", body, Idempotency_Key="c", Callgate_Session="mine").json["id"] for _ in range(2)]
    assert named[0] == named[1]
    assert len(model.requests) == 3
    other = first.post("/v1/responses", body | {"input": "Other."}, Idempotency_Key="a")
    assert (other.status, other.json["error"]["code"]) == (409, "idempotency_mismatch")
    assert len(first.get("/api/v1/sessions").json["sessions"]) == 2


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_the_place_where_tokens_are_counted_is_no_response(serve: Any, method: str) -> None:
    site = serve(Gate(ScriptedModel(["Hello."])))
    assert site.request(method, "/v1/responses/input_tokens").status == 404
