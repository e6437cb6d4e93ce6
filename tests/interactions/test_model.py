"""Conversations by the Interactions API: what is sent, what is kept, and what becomes of state that vanishes."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from tests.interactions.conftest import MODEL, Clock, model_for, run, scene_of

from callgate import ContextCache, Gate, GeminiModel, InteractionsModel, Limits, Media, UsageError, tool
from callgate.errors import InvalidRequestError
from callgate.events import CallArgsDelta, CallFinished, CallProposed, Notice, RunEnded, TextDelta, ThoughtDelta
from callgate.gemini.surface import Surface
from callgate.gemini.thinking_config import thinking_words
from callgate.history.conversation import Conversation
from callgate.interactions.deletion import delete_all
from callgate.interactions.record import Record, call_parts_of
from callgate.interactions.steps import StepWriter
from callgate.store import MemoryStore
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_interactions import FakeInteractions, answer, call, calls, fault, raw, thought

AGENT = "deep-research-preview-04-2026"

SKIP = "skip_thought_signature_validator"


@tool
def keep(a: int = 0, b: int = 0, note: str = "") -> str:
    """Keeps what it is given."""
    return f"{a} {b} {note}"


def steps_of(body: dict[str, Any]) -> list[str]:
    return [step["type"] for step in body["input"]]


def test_the_whole_history_goes_back_as_it_came_where_nothing_is_stored() -> None:
    async def story() -> None:
        script = [answer(thought("Hm."), calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))), "3 and 7."]
        async with scene_of(script) as it:
            reply = await it.ask("1 + 2 and 3 + 4?")
            assert (reply.text, sorted(it.ran)) == ("3 and 7.", ["add 1 2", "add 3 4"])
            first, second = it.fake.creations
            assert (first["store"], "previous_interaction_id" in second) == (False, False)
            kinds = ["user_input", "thought", "function_call", "function_call", "function_result", "function_result"]
            assert steps_of(second) == kinds
            signed = second["input"][1]
            summary = [{"type": "text", "text": "Hm."}]
            assert signed == {"type": "thought", "signature": signed["signature"], "summary": summary}
            ids = [step["id"] for step in second["input"][2:4]]
            assert second["input"][4:] == [
                {"type": "function_result", "call_id": ids[0], "name": "add", "result": "3"},
                {"type": "function_result", "call_id": ids[1], "name": "add", "result": "7"},
            ]
            assert it.fake.refusals == []

    run(story)


def test_only_what_is_new_is_sent_where_the_server_keeps_the_rest() -> None:
    async def story() -> None:
        script = [call("add", a=1, b=2), "Three.", call("add", a=3, b=4), "Seven."]
        async with scene_of(script, settings={"store": True}) as it:
            await it.ask("1 + 2?", session="s")
            await it.ask("3 + 4?", session="s")
            assert [steps_of(body) for body in it.fake.creations] == [
                ["user_input"], ["function_result"], ["user_input"], ["function_result"],
            ]  # fmt: skip
            assert [bool(body.get("previous_interaction_id")) for body in it.fake.creations] == [False, True, True, True]
            assert (sorted(it.ran), it.fake.refusals) == (["add 1 2", "add 3 4"], [])

    run(story)


def test_a_request_does_not_grow_with_a_history_that_the_server_keeps() -> None:
    async def story() -> None:
        script = [f"Answer {number}." for number in range(30)]
        async with scene_of(script, settings={"store": True}) as it:
            for number in range(30):
                await it.ask(f"Question {number:02}?", session="s")
            sizes = [len(request.body) for request in it.fake.requests]
            assert max(sizes[1:]) - min(sizes[1:]) <= 32

    run(story)


def test_a_prompted_answer_with_calls_is_not_chained_to_and_one_in_plain_text_is() -> None:
    async def story() -> None:
        async with scene_of(["TOOL_CALL: add(a=1, b=2)", "Three.", "Welcome."], settings={"store": True}) as it:
            gate = it.gate.with_options(mode="prompted")
            assert (await gate.run("1 + 2?", session="s")).text == "Three."
            assert (await gate.run("Thanks.", session="s")).text == "Welcome."
            assert it.ran == ["add 1 2"]
            sent = [(bool(body.get("previous_interaction_id")), len(body["input"])) for body in it.fake.creations]
            assert sent == [(False, 1), (False, 3), (True, 1)]
            assert it.fake.refusals == []

    run(story)


@pytest.mark.parametrize("stream", [True, False])
def test_a_conversation_that_the_server_forgot_is_sent_whole_once_and_nothing_runs_twice(stream: bool) -> None:
    async def story() -> None:
        async with scene_of(
            [call("add", a=1, b=2), "Three.", call("add", a=3, b=4), "Seven."], settings={"store": True}
        ) as it:
            await it.ask("1 + 2?", session="s")
            it.fake.forget()
            reply = await (it.ask("3 + 4?", session="s") if stream else it.gate.run("3 + 4?", session="s"))
            assert (reply.text, sorted(it.ran)) == ("Seven.", ["add 1 2", "add 3 4"])
            assert [refusal.rule for refusal in it.fake.refusals] == ["IR57"]
            assert it.notices == (["state_lost"] if stream else [])
            chained = [bool(body.get("previous_interaction_id")) for body in it.fake.creations]
            assert chained == [False, True, True, False, True]

    run(story)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, "invalid_request", "Request contains an invalid argument."),
        (400, "failed_precondition", "Precondition check failed."),
        (403, "permission_denied", "You do not have permission to access the interaction, or it may not exist."),
        (404, "NOT_FOUND", "Requested entity was not found."),
        (409, "already_exists", "It was continued already."),
        (410, "gone", "It is gone."),
        (501, "not_implemented", "Not yet."),
    ],
)
def test_whatever_a_server_says_that_continues_nothing_it_is_sent_the_whole_once(
    status: int, code: str, message: str
) -> None:
    class Stateless(FakeInteractions):
        async def _create(self, exchange: Any) -> None:
            if "previous_interaction_id" in exchange.request.json:
                await exchange.error(status, code, message)
            else:
                await super()._create(exchange)

    async def story() -> None:
        ran: list[int] = []

        @tool
        def act(number: int) -> str:
            """Acts."""
            ran.append(number)
            return "done"

        script = [calls(("act", {"number": 1}), ("act", {"number": 2})), call("act", number=3), "Over."]
        async with Stateless(script) as fake:
            async with Gate(model_for(fake, Clock()), [act], mode="native", settings={"store": True}) as gate:
                reply = await gate.run("Go.")
            assert (reply.text, sorted(ran)) == ("Over.", [1, 2, 3])
            chained = ["previous_interaction_id" in body for body in fake.creations]
            assert chained == [False, True, False, True, False]

    run(story)


def test_a_history_that_was_changed_since_is_not_chained_to() -> None:
    async def story() -> None:
        async with scene_of(["One.", "Two.", "Three."], settings={"store": True}) as it:
            reply = await it.ask("First?")
            contents = [*reply.contents]
            await it.ask("Second?", history=contents)
            changed = [{"role": "user", "parts": [{"text": "Another first?"}]}, *contents[1:]]
            await it.ask("Second?", history=changed)
            chained = [bool(body.get("previous_interaction_id")) for body in it.fake.creations]
            assert chained == [False, True, False]

    run(story)


def test_an_edited_answer_goes_back_without_its_signature() -> None:
    async def story() -> None:
        async with scene_of([call("add", a=1, b=2), "Three.", "Fine."]) as it:
            reply = await it.ask("1 + 2?")
            contents = [*reply.contents]
            edited = {**contents[1], "parts": [{**contents[1]["parts"][0]}]}
            edited["parts"][0]["functionCall"] = {**edited["parts"][0]["functionCall"], "args": {"a": 2, "b": 1}}
            await it.ask("And?", history=[contents[0], edited, *contents[2:]])
            sent = it.fake.creations[-1]["input"]
            assert next(step.get("signature") for step in sent if step["type"] == "thought") == SKIP
            assert it.fake.refusals == []

    run(story)


def test_an_interaction_is_not_chained_to_when_its_time_is_over() -> None:
    async def story() -> None:
        now = [1_000.0]
        async with scene_of(["One.", "Two."], settings={"store": True}, model={"now": lambda: now[0]}) as it:
            await it.ask("First?", session="s")
            now[0] += 24 * 3600
            await it.ask("Second?", session="s")
            assert "previous_interaction_id" not in it.fake.creations[1]

    run(story)


def test_a_signature_that_another_key_made_is_replaced_once() -> None:
    async def story() -> None:
        async with scene_of([call("add", a=1, b=2), "Three."]) as it:
            history = (await it.ask("1 + 2?")).contents
        async with scene_of(["Still three."]) as it:
            reply = await it.ask("Sure?", history=history)
            assert reply.text == "Still three."
            assert [refusal.rule for refusal in it.fake.refusals] == ["IR32"]
            assert it.notices == ["state_lost"]

    run(story)


def test_signatures_and_records_never_reach_the_other_api() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with scene_of([call("add", a=1, b=2), "Three."], store=store) as it:
            await it.ask("1 + 2?", session="s")
            signature = it.fake.creations[1]["input"][1]["signature"]
        async with FakeGemini(["Yes.", "Yes."]) as fake:
            surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
            async with Gate(GeminiModel(MODEL, surface=surface), store=store) as gate:
                reply = await gate.run("Sure?", session="s")
                # The same as contents of a program, which carry no origin.
                await gate.run("Sure?", history=reply.contents[:4])
            sent = fake.requests[0].body.decode() + fake.requests[1].body.decode()
            assert signature not in sent
            assert "interaction" not in sent
            assert SKIP in sent
            assert fake.refusals == []

    run(story)


def test_every_kind_of_step_survives_the_round_trip_verbatim() -> None:
    steps = [
        {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]},
        {"type": "google_search_call", "id": "g1", "arguments": {"queries": ["x"]}, "signature": "czE="},
        {"type": "google_search_result", "call_id": "g1", "result": [{"search_suggestions": "<b>"}], "signature": "czI="},
        {"type": "code_execution_call", "id": "c1", "arguments": {"code": "1", "language": "python"}, "signature": "czM="},
        {"type": "code_execution_result", "call_id": "c1", "result": "1", "signature": "czQ="},
        {"type": "mcp_server_tool_call", "id": "m1", "name": "t", "server_name": "s", "arguments": {}, "signature": "czU="},
        {"type": "mcp_server_tool_result", "call_id": "m1", "result": "ok", "signature": "czY="},
        {"type": "holodeck", "program": {"deck": 5}},
        {"type": "model_output", "content": [
            {"type": "text", "text": "Found.", "annotations": [{"type": "url_citation", "url": "https://x.test"}]},
            {"type": "image", "mime_type": "image/png", "data": "aGk="},
        ]},
    ]  # fmt: skip

    async def story() -> None:
        for stream in (True, False):
            async with scene_of([{"steps": steps}, "Good."]) as it:
                first = await (it.ask("Search.", session="s") if stream else it.gate.run("Search.", session="s"))
                assert first.text == "Found."
                await it.ask("And?", session="s")
                assert it.fake.creations[1]["input"][1:-1] == steps

    run(story)


def test_thoughts_and_text_are_streamed_as_they_come() -> None:
    async def story() -> None:
        async with scene_of([answer(thought("Let me see."), "The answer is here, in several words.")]) as it:
            events = [event async for event in it.gate.stream("Go.")]
            assert "".join(event.text for event in events if isinstance(event, ThoughtDelta)) == "Let me see."
            texts = [event.text for event in events if isinstance(event, TextDelta)]
            assert ("".join(texts), len(texts) > 2) == ("The answer is here, in several words.", True)
            usage = next(event.reply.usage for event in events if isinstance(event, RunEnded))
            assert usage.total_tokens == usage.input_tokens + usage.output_tokens + usage.thought_tokens > 0

    run(story)


@pytest.mark.parametrize("store", [False, True])
def test_arguments_are_shown_while_they_arrive_and_belong_to_the_call_that_runs(store: bool) -> None:
    async def story() -> None:
        long = {"a": 1, "b": 2} | {"note": "\N{SNOWMAN}" * 40}
        script = [calls(("keep", long), ("keep", {"a": 3, "b": 4}), ("keep", {})), "Kept."]
        async with scene_of(script, tools=[keep], settings={"store": store}) as it:
            events = [event async for event in it.gate.stream("Keep them.")]
        proposed = [event.call for event in events if isinstance(event, CallProposed)]
        written = {
            call.id: "".join(event.text for event in events if isinstance(event, CallArgsDelta) and event.call_id == call.id)
            for call in proposed
        }
        finished = {event.call.id: event.call.args for event in events if isinstance(event, CallFinished)}
        assert [json.loads(text) if text else {} for text in written.values()] == [long, {"a": 3, "b": 4}, {}]
        assert finished == dict(zip(written, [long, {"a": 3, "b": 4}, {}], strict=True))
        assert sum(isinstance(event, CallArgsDelta) for event in events) > 3

    run(story)


def test_a_call_that_breaks_off_is_asked_for_again_and_each_proposal_ends_once() -> None:
    async def story() -> None:
        async with scene_of([fault("IF26:call"), "Fine."], fake={"repeat_last": True}) as it:
            events = [event async for event in it.gate.stream("1 + 2?")]
        proposed = [event.call.id for event in events if isinstance(event, CallProposed)]
        ended = [(event.call.id, event.result.status) for event in events if isinstance(event, CallFinished)]
        assert ended == [(call_id, "cancelled") for call_id in proposed]
        assert (len(proposed), it.ran, events[-1].reply.text) == (1, [], "Fine.")  # pyright: ignore[reportAttributeAccessIssue]

    run(story)


def test_settings_are_those_of_the_other_api_in_the_words_of_this_one() -> None:
    async def story() -> None:
        settings = {
            "temperature": 0.5, "top_p": 0.9, "seed": 7, "max_output_tokens": 100, "stop_sequences": ["END"],
            "thinking": "high", "include_thoughts": True, "safety": {"HARASSMENT": "BLOCK_NONE"},
            "service_tier": "flex", "extra_body": {"generation_config": {"top_k": 5}},
        }  # fmt: skip
        async with scene_of(["Fine."], settings=settings, system="Be brief.", tools=["google_search"]) as it:
            await it.ask()
            body = it.fake.creations[0]
            assert body["generation_config"] == {
                "temperature": 0.5, "top_p": 0.9, "seed": 7, "max_output_tokens": 100, "stop_sequences": ["END"],
                "thinking_level": "high", "thinking_summaries": "auto", "top_k": 5,
            }  # fmt: skip
            assert body["safety_settings"] == [{"type": "harassment", "threshold": "block_none"}]
            assert (body["service_tier"], body["system_instruction"]) == ("flex", "Be brief.")
            assert body["tools"] == [{"type": "google_search"}]

    run(story)


@pytest.mark.parametrize("settings", [{"thinking": True}, {"include_thoughts": True}, {"thinking": "low"}])
def test_a_model_that_does_not_think_is_refused_settings_about_thinking(settings: Any) -> None:
    async def story() -> None:
        async with scene_of([], name="gemini-2.0-flash", settings=settings) as it:
            with pytest.raises(UsageError, match="does not think"):
                await it.ask()
            assert it.fake.requests == []

    run(story)


@pytest.mark.parametrize(
    "name",
    ["gemini-3-flash-preview", "gemini-3.5-flash-lite", "gemini-3.8-flash", "gemini-2.5-flash-lite", "gemma-4-31b-it"],
)
def test_the_strict_server_takes_every_word_for_thinking_that_a_model_says_it_has(name: str) -> None:
    async def story() -> None:
        for word in thinking_words(name, only_levels=True):
            async with scene_of(["Hi."], name=name, settings={"thinking": word}) as it:
                assert ((await it.ask()).text, it.fake.refusals) == ("Hi.", [])

    run(story)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"presence_penalty": 1}, "does not exist in the Interactions API"),
        ({"cached_content": "x"}, "does not exist in the Interactions API"),
        ({"thinking": "minimal"}, "does not exist for 'gemini-3.8-flash'"),
        ({"background": True, "store": False}, "needs store=True"),
        ({"temperatur": 1}, "did you mean 'temperature'"),
        ({"candidate_count": 2}, "one answer"),
        ({"store": "no"}, "store='no': expected True or False"),
        ({"background": "no"}, "background='no': expected True or False"),
        ({"safety": {1: "BLOCK_NONE"}}, "use a mapping such as"),
        ({"safety": "BLOCK_NONE"}, "use a mapping such as"),
        ({"temperature": "hot"}, "temperature='hot': expected a number from 0 to 2"),
        ({"response_mime_type": 5}, "response_mime_type=5: expected a text"),
    ],
)
def test_a_setting_that_this_api_does_not_have_is_refused_before_anything_is_sent(settings: Any, said: str) -> None:
    async def story() -> None:
        async with scene_of([], settings=settings) as it:
            with pytest.raises(UsageError, match=said):
                await it.ask()
            assert it.fake.requests == []

    run(story)


def test_a_context_cache_which_this_api_does_not_have_is_told_once_in_a_run() -> None:
    async def story() -> None:
        script = [call("add", a=1, b=2), "Three."]
        async with scene_of(script, cache=ContextCache(min_tokens=1, uses=1), system="Be brief.") as it:
            events = [event async for event in it.gate.stream("Add.")]
            assert [event.message for event in events if isinstance(event, Notice)] == [
                f"{MODEL!r} has no context cache in this API: every request is sent whole, as without cache=."
            ]
            assert [request.path for request in it.fake.requests if "cachedContents" in request.path] == []

    run(story)


def test_tool_choice_and_output_go_where_the_api_has_them() -> None:
    async def story() -> None:
        async with scene_of([call("add", a=1, b=2), '{"sum": 3}']) as it:
            schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
            reply = await it.ask("1 + 2?", tool_choice="add", output=schema)
            assert reply.output == {"sum": 3}
            first = it.fake.creations[0]
            assert first["generation_config"]["tool_choice"] == {"allowed_tools": {"mode": "any", "tools": ["add"]}}
            assert first["response_format"]["mime_type"] == "application/json"
            assert it.fake.refusals == []

    run(story)


def test_results_with_images_are_contents_and_errors_say_so() -> None:
    from callgate import Media, ToolError, tool

    @tool
    def shot() -> Media:
        """Takes a picture."""
        return Media(data=b"png", mime_type="image/png")

    @tool
    def fail() -> str:
        """Fails."""
        raise ToolError("No light.")

    async def story() -> None:
        async with scene_of([calls(("shot", {}), ("fail", {})), "Seen."], tools=[shot, fail]) as it:
            await it.ask()
            picture, error = it.fake.creations[1]["input"][-2:]
            assert [item["type"] for item in picture["result"]] == ["text", "image"]
            assert (error["result"], error["is_error"]) == ("No light.", True)
            assert it.fake.refusals == []

    run(story)


def test_an_older_model_gets_images_after_the_results_and_no_placeholder() -> None:
    from callgate import Media, tool

    @tool
    def shot() -> Media:
        """Takes a picture."""
        return Media(data=b"png", mime_type="image/png")

    async def story() -> None:
        async with scene_of([call("shot"), "Seen."], name="gemini-2.5-flash", tools=[shot]) as it:
            await it.ask()
            assert steps_of(it.fake.creations[1])[-2:] == ["function_result", "user_input"]
            assert it.fake.refusals == []

    run(story)


def test_the_segment_of_a_video_and_the_resolution_of_an_image_are_sent() -> None:
    async def story() -> None:
        film = {"fileData": {"fileUri": "https://v.test/film", "mimeType": "video/mp4"}}
        shot = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
        async with scene_of(["Seen."]) as it:
            await it.ask([
                film | {"videoMetadata": {"startOffset": "10s", "endOffset": "20s"}},
                shot | {"mediaResolution": {"level": "MEDIA_RESOLUTION_HIGH"}},
            ])  # fmt: skip
            assert it.fake.creations[0]["input"][0]["content"] == [
                {"type": "video", "mime_type": "video/mp4", "uri": "https://v.test/film",
                 "processing": {"type": "static", "start_offset": "10s", "end_offset": "20s"}},
                {"type": "image", "mime_type": "image/png", "data": "aGk=", "resolution": "high"},
            ]  # fmt: skip
            assert it.fake.refusals == []

    run(story)


def test_an_answer_that_goes_on_in_another_request_is_one_answer() -> None:
    part = {"status": "requires_continuation", "continuation_token": "t1", "steps": [
        {"type": "thought", "signature": "czE="}, {"type": "model_output", "content": [{"type": "text", "text": "Half "}]},
    ]}  # fmt: skip

    async def story() -> None:
        for settings in ({"store": True}, {}):
            async with scene_of([part, "and half."], settings=settings) as it:
                reply = await it.ask()
                assert reply.text == "Half and half."
                second = it.fake.creations[1]
                assert second["continuation_token"] == "t1"
                assert ("input" in second) is not bool(settings)
                assert it.fake.refusals == []

    run(story)


def test_a_record_belongs_to_its_content() -> None:
    async def story() -> None:
        async with scene_of([call("add", a=1, b=2), "Three."]) as it:
            contents = (await it.ask("1 + 2?")).contents
            made = Record.of(contents[1])
            assert made is not None
            assert made.origin == f"interactions:developer:{MODEL}"
            assert Record.of({**contents[1], "parts": [{"text": "Something else."}]}) is None
            assert Conversation(contents).contents == contents

    run(story)


def test_the_work_on_an_answer_grows_with_its_calls_and_no_faster() -> None:
    def work_for(count: int, id: str) -> int:
        steps = [{**CALL, "id": id.format(number)} for number in range(count)]
        contents = [{"role": "user", "parts": [{"text": "?"}]}, {"role": "model", "parts": call_parts_of(steps)}]
        events = 0

        def count_one(*_: Any) -> None:
            nonlocal events
            events += 1

        sys.setprofile(count_one)
        try:
            call_parts_of(steps)
            Record.of({**contents[1], "interaction": {"origin": "x", "steps": steps}})
            StepWriter("x", vouch=True, media_results=True).text(Conversation(contents))
        finally:
            sys.setprofile(None)
        return events

    for id in ("c{}", "c"):
        assert work_for(400, id) < 5 * work_for(100, id)


def test_an_interaction_can_be_deleted() -> None:
    async def story() -> None:
        async with FakeInteractions(["Fine."]) as fake:
            model = model_for(fake, Clock(), limits=Limits())
            async with Gate(model, settings={"store": True}) as gate:
                reply = await gate.run("Go.")
            made = Record.of(reply.contents[1])
            assert made is not None
            assert [await model.delete(made.id), await model.delete(made.id)] == [True, False]

    run(story)


def test_a_conversation_keeps_its_settings_when_it_changes_to_the_other_api() -> None:
    async def story() -> None:
        async with FakeGemini(["By the other."]) as other, scene_of(["One.", "Three."], settings={"store": True}) as it:
            await it.ask("First?", session="s")
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": other.base_url}
            gate = it.gate.with_options(GeminiModel(MODEL, env=env))
            assert (await gate.run("Second?", session="s")).text == "By the other."
            assert (await it.ask("Third?", session="s")).text == "Three."
            assert (other.refusals, it.fake.refusals) == ([], [])

    run(story)


@pytest.mark.parametrize("name", ["gemini-2.5-flash", MODEL])
def test_the_model_decides_about_its_thinking_if_it_is_asked_to(name: str) -> None:
    async def story() -> None:
        async with scene_of(["One."], name=name, settings={"thinking": -1, "temperature": 0.5}) as it:
            await it.ask("First?")
            assert it.fake.creations[0]["generation_config"] == {"temperature": 0.5}

    run(story)


def test_a_negative_number_of_tokens_to_think_is_refused_before_anything_is_sent() -> None:
    async def story() -> None:
        async with scene_of(["One."], settings={"thinking": -2}) as it:
            with pytest.raises(UsageError, match="thinking=-2"):
                await it.ask("First?")
            assert it.fake.requests == []

    run(story)


def test_an_api_that_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="api=1: use one of"):
        Gate(MODEL, api=1)  # pyright: ignore[reportArgumentType]


CALL = {"type": "function_call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}


def test_a_call_that_came_without_a_thought_goes_back_with_the_placeholder() -> None:
    async def story() -> None:
        async with scene_of([raw({"status": "completed", "steps": [CALL]}), "Three.", "Welcome."]) as it:
            assert (await it.ask("1 + 2?", session="s")).text == "Three."
            assert (await it.ask("Thanks.", session="s")).text == "Welcome."
            assert it.ran == ["add 1 2"]
            assert it.fake.creations[1]["input"][1:3] == [{"type": "thought", "signature": SKIP}, CALL]
            assert it.fake.refusals == []

    run(story)


def test_a_signature_on_the_call_itself_goes_back_as_it_came() -> None:
    signed = CALL | {"signature": "b3du"}

    async def story() -> None:
        async with scene_of([raw({"status": "completed", "steps": [signed]}), "Three."]) as it:
            assert (await it.ask("1 + 2?", session="s")).text == "Three."
            assert it.fake.creations[1]["input"][1] == signed
            assert it.fake.refusals == []

    run(story)


def test_a_refused_signature_is_raised_at_once_where_none_was_sent() -> None:
    async def story() -> None:
        async with scene_of([fault("IF58"), "Never."]) as it:
            with pytest.raises(InvalidRequestError, match="Corrupted"):
                await it.ask("Hi.")
            assert (len(it.fake.creations), it.notices) == (1, [])

    run(story)


@pytest.mark.parametrize("stream", [False, True])
def test_steps_that_come_with_the_end_alone_are_the_answer(stream: bool) -> None:
    steps = [
        {"type": "thought", "signature": "c2ln"},
        {"type": "model_output", "content": [{"type": "text", "text": "Hi."}]},
    ]
    end = {"event_type": "interaction.completed", "interaction": {"id": "", "status": "completed", "steps": steps}}

    async def story() -> None:
        async with scene_of([raw(end), "Not asked again."]) as it:
            if stream:
                events = [event async for event in it.gate.stream("Hi?")]
                assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hi."
            else:
                assert (await it.ask("Hi?")).text == "Hi."
            assert len(it.fake.creations) == 1

    run(story)


def test_a_signature_of_another_api_is_in_no_text() -> None:
    part = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "U0VDUkVU"}
    history = [{"role": "user", "parts": [{"text": "?"}]}, {"role": "model", "parts": [part, {"text": "One."}]}]

    async def story() -> None:
        async with scene_of(["Fine."]) as it:
            await it.ask("And?", history=history)
            assert "U0VDUkVU" not in json.dumps(it.fake.creations[0])
            assert "executableCode" in json.dumps(it.fake.creations[0])

    run(story)


@pytest.mark.parametrize(
    ("tool_", "sent"),
    [
        ({"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}, {"type": "computer_use", "environment": "browser"}),
        (
            {"googleSearch": {"searchTypes": {"webSearch": {}, "imageSearch": {}}}},
            {"type": "google_search", "search_types": ["web_search", "image_search"]},
        ),
        ({"google_search": {"search_types": ["web_search"]}}, {"type": "google_search", "search_types": ["web_search"]}),
    ],
)
def test_built_in_tools_are_written_in_the_words_of_this_api(tool_: Any, sent: Any) -> None:
    async def story() -> None:
        async with scene_of(["Fine."], tools=[tool_]) as it:
            await it.ask("Look.")
            assert it.fake.creations[0]["tools"] == [sent]
            assert it.fake.refusals == []

    run(story)


@pytest.mark.parametrize(
    ("tool_", "field"),
    [
        ({"googleSearch": {"timeRangeFilter": {"startTime": "2026-01-01T00:00:00Z"}}}, "time_range_filter"),
        ({"retrieval": {"vertexAiSearch": {"datastore": "x"}}}, "vertex_ai_search"),
    ],
)
def test_a_field_of_a_built_in_tool_that_this_api_does_not_have_is_refused_before_anything_is_sent(
    tool_: Any, field: str
) -> None:
    async def story() -> None:
        async with scene_of(["Never."], tools=[tool_]) as it:
            with pytest.raises(UsageError, match=field):
                await it.ask("Look.")
            assert it.fake.requests == []

    run(story)


YOUTUBE = "https://www.youtube.com/watch?v=x"


def test_media_by_address_have_the_type_that_the_address_tells_of() -> None:
    async def story() -> None:
        async with FakeInteractions(["A film."]) as fake:
            await Gate(model_for(fake, Clock())).run(["What?", Media(uri=YOUTUBE)])
            assert fake.creations[0]["input"][0]["content"][1] == {"type": "video", "mime_type": "video/mp4", "uri": YOUTUBE}

    run(story)


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (
            {"fileData": {"fileUri": "https://example.com/x"}},
            "(Media of type None stood here, which this model cannot be shown.)",
        ),
        ({"inlineData": {"mimeType": "application/json", "data": "e30="}}, "{}"),
        (
            {"inlineData": {"mimeType": "text/plain", "data": "//4="}},
            "(Media of type text/plain stood here, which this model cannot be shown.)",
        ),
    ],
)
def test_earlier_media_that_the_server_refuses_become_text(part: Any, sent: str) -> None:
    async def story() -> None:
        async with FakeInteractions(["Yes."]) as fake:
            history = [{"role": "user", "parts": [part]}, {"role": "model", "parts": [{"text": "Seen."}]}]
            await Gate(model_for(fake, Clock())).run("Still there?", history=history)
            assert (fake.refusals, fake.creations[0]["input"][0]["content"]) == ([], [{"type": "text", "text": sent}])

    run(story)


def test_media_that_the_server_refuses_are_refused_when_they_are_said() -> None:
    async def story() -> None:
        async with FakeInteractions([]) as fake:
            with pytest.raises(UsageError, match="application/octet-stream"):
                await Gate(model_for(fake, Clock())).run(["What?", Media(data=b"PK", mime_type="application/octet-stream")])

    run(story)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (
            {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}, "languageCode": "de"},
            {"voice": "Kore", "language": "de"},
        ),
        (
            {"multiSpeakerVoiceConfig": {"speakerVoiceConfigs": [
                {"speaker": "Ada", "voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}},
            ]}},
            [{"speaker": "Ada", "voice": "Kore"}],
        ),
        ({"voice": "Kore"}, {"voice": "Kore"}),
    ],
)  # fmt: skip
def test_a_voice_is_sent_in_the_form_of_this_api(given: Any, sent: Any) -> None:
    async def story() -> None:
        async with FakeInteractions(["Yes."]) as fake:
            await Gate(model_for(fake, Clock()), settings={"speech_config": given}).run("Speak.")
            assert (fake.refusals, fake.creations[0]["generation_config"]["speech_config"]) == ([], sent)

    run(story)


@pytest.mark.parametrize("settings", [{"store": True}, {"background": True}])
def test_a_transport_with_post_alone_is_refused_where_the_server_keeps_interactions(settings: Any) -> None:
    class Poster:
        async def post(self, url: str, *, headers: Any, content: bytes) -> Any:
            raise AssertionError("nothing is sent")

    model = InteractionsModel(MODEL, env={"GEMINI_API_KEY": "k"}, http=Poster())
    with pytest.raises(UsageError, match=r"request\(method, url"):
        Gate(model, settings=settings)
    Gate(model)
    assert asyncio.run(delete_all(model._interactions_client(), MODEL, {"v1_a": "interactions:developer:x"}))  # pyright: ignore


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        (MODEL, {"agent_config": []}, "use an object"),
        (MODEL, {"extra_body": []}, "use a mapping of fields"),
        (MODEL, {"headers": []}, "give a mapping of names to values"),
        (MODEL, {"background": True, "store": False}, "background=True needs store=True"),
        (AGENT, {"background": False}, "works in the background alone: leave background=False out"),
        (AGENT, {"store": False}, "which works in the background, needs store=True"),
    ],
)
def test_a_setting_that_could_not_be_sent_is_refused_before_anything_is(name: str, settings: Any, said: str) -> None:
    async def story() -> None:
        async with scene_of([], name=name, tools=[], settings=settings) as it:
            with pytest.raises(UsageError, match=said):
                await it.ask()
            assert it.fake.requests == []

    run(story)


def test_no_modality_leaves_the_choice_to_the_model() -> None:
    async def story() -> None:
        async with scene_of(["Fine."], settings={"response_modalities": []}) as it:
            assert (await it.ask()).text == "Fine."
            assert "response_format" not in it.fake.creations[0]

    run(story)


def test_an_agent_whose_tools_are_declared_in_the_prompt_is_sent_no_setting_of_a_model() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    async def story() -> None:
        async with FakeInteractions(["The report."]) as fake:
            async with Gate(model_for(fake, Clock(), AGENT), [add], mode="prompted") as gate:
                assert (await gate.run("Research.")).text == "The report."
            assert (fake.refusals, "generation_config" in fake.creations[0]) == ([], False)

    run(story)


def test_a_prompt_of_thoughts_alone_is_refused_and_media_types_are_compared_without_case() -> None:
    async def story() -> None:
        async with scene_of(["A song.", "A table."]) as it:
            with pytest.raises(UsageError, match="there is nothing to send"):
                await it.ask({"text": "Hm.", "thought": True})
            assert (await it.ask([Media(data=b"\x00", mime_type="AUDIO/MP3")])).text == "A song."
            await it.ask([Media(data=b"a,b", mime_type="Application/PDF; version=2")])
            kinds = [body["input"][0]["content"][0] for body in it.fake.creations]
            assert [(item["type"], item["mime_type"]) for item in kinds] == [
                ("audio", "audio/mp3"), ("document", "application/pdf"),
            ]  # fmt: skip

    run(story)


def test_deleting_without_an_id_is_refused() -> None:
    async def story() -> None:
        async with FakeInteractions([]) as fake:
            with pytest.raises(UsageError, match="the id of an interaction"):
                await model_for(fake, Clock()).delete(None)

    run(story)
