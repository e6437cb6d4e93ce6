"""Fields that a strict server does not know: a session goes on without them, and keeps them in its journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from callgate import Conversation, Gate, Limits, tool
from callgate.errors import InvalidRequestError
from callgate.events import Notice, RunEnded
from callgate.gemini.surface import Surface
from callgate.gemini.unknown_fields import UnknownFields, unknown_names
from callgate.machine.machine import RunMachine
from callgate.models.gemini import GeminiModel
from callgate.request import ModelRequest
from callgate.testing.answers import answer
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fault_row import FaultStep, error, row
from callgate.types import Reply

MODEL = "gemini-3.8-flash"
pytestmark = pytest.mark.usefixtures("unjudged")
Part = dict[str, Any]


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(300):
            await story()

    asyncio.run(bounded())


def model_of(fake: FakeGemini) -> GeminiModel:
    surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
    return GeminiModel(MODEL, surface=surface, limits=Limits(attempts=1))


def refused(message: str, *violations: tuple[str, str]) -> FaultStep:
    """A 400 with this message, once."""
    places = [{"field": field, "description": description} for field, description in violations]
    details = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": places}] if places else []
    fault = row("-", "refused", "a refusal", error(400, "INVALID_ARGUMENT", message, *details))
    return FaultStep(fault=fault, variant="usual", times=1)


def unknown(name: str, path: str) -> str:
    return f"Invalid JSON payload received. Unknown name \"{name}\" at '{path}': Cannot find field."


async def asked(gate: Gate, prompt: str, session: str, *, stream: bool) -> tuple[Reply, list[Notice] | None]:
    """A run through one of the two ways, and its notices where it shows them."""
    if not stream:
        return await gate.run(prompt, session=session), None
    seen = [event async for event in gate.stream(prompt, session=session)]
    ended = next(event for event in seen if isinstance(event, RunEnded))
    return ended.reply, [event for event in seen if isinstance(event, Notice)]


def sent_parts(fake: FakeGemini, request: int, content: int) -> list[Part]:
    return fake.requests[request].json["contents"][content]["parts"]


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_field_that_the_server_does_not_know_is_left_out_once_it_says_so(stream: bool) -> None:
    async def story() -> None:
        script = [answer({"text": "Hello.", "proxyTrace": {"id": 7}}, signed=False), "Fine.", "Bye."]
        async with FakeGemini(script) as fake, Gate(model_of(fake)) as gate:
            replies = [await asked(gate, prompt, "s", stream=stream) for prompt in ("Hi.", "How are you?", "Bye.")]
            assert [reply.text for reply, _ in replies] == ["Hello.", "Fine.", "Bye."]
            # The second question is sent twice, the third once.
            assert len(fake.requests) == 4
            assert len(fake.refusals) == 1
            assert sent_parts(fake, 1, 1) == [{"text": "Hello.", "proxyTrace": {"id": 7}}]
            assert sent_parts(fake, 2, 1) == [{"text": "Hello."}]
            assert sent_parts(fake, 3, 1) == [{"text": "Hello."}]
            told = "The server does not know these fields of the conversation, and is sent it without them: Part.proxyTrace."
            notices = [[], [Notice("adapted", told, "warning")], []] if stream else [None] * 3
            assert [seen for _, seen in replies] == notices
            assert {request.streaming for request in fake.requests} == {stream}
            assert replies[-1][0].contents[1]["parts"] == [{"text": "Hello.", "proxyTrace": {"id": 7}}]
            journal = RunMachine(await gate.store.load("s")).conversation
            assert journal.contents[1]["parts"] == [{"text": "Hello.", "proxyTrace": {"id": 7}}]

    run(story)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_fields_of_a_call_are_left_out_and_its_signature_and_arguments_stay(stream: bool) -> None:
    async def story() -> None:
        called = {"functionCall": {"name": "add", "args": {"a": 1, "b": 2, "trace": 3}, "trace": "t"}, "rank": 1}
        async with FakeGemini([answer(called), "Three."]) as fake, Gate(model_of(fake), [add]) as gate:
            reply, notices = await asked(gate, "1 + 2?", "s", stream=stream)
            assert reply.text == "Three."
            assert notices is None or [notice.code for notice in notices if notice.code == "adapted"] == ["adapted"]
            (first,), (second,) = sent_parts(fake, 1, 1), sent_parts(fake, 2, 1)
            assert first["functionCall"]["trace"] == "t"
            assert first["thoughtSignature"] in fake.signatures
            kept = {name: value for name, value in first["functionCall"].items() if name != "trace"}
            assert second == {"functionCall": kept, "thoughtSignature": first["thoughtSignature"]}
            assert second["functionCall"]["args"] == {"a": 1, "b": 2, "trace": 3}

    run(story)


LEFT_OUT = "(left out: content of a kind that this API does not know)"


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ([{"text": "See:"}, {"hologram": {"data": "x"}}], [{"text": "See:"}]),
        ([{"hologram": {"data": "x"}}], [{"text": LEFT_OUT}]),
        ([{"hologram": 1, "thoughtSignature": "c2ln"}], [{"text": "", "thoughtSignature": "c2ln"}]),
        ([{"hologram": 1, "thought": True}, {"text": "Well."}], [{"text": "Well."}]),
        ([{"text": "A", "hologram": 1}, {"text": "B", "hologram": 2}], [{"text": "A"}, {"text": "B"}]),
    ],
    ids=["one-of-two-parts", "the-only-part", "a-signed-part", "a-thought", "two-parts"],
)
def test_contents_stay_valid_without_the_unknown(parts: list[Part], kept: list[Part]) -> None:
    async def story() -> None:
        async with FakeGemini([answer(*parts, signed=False), "Fine."]) as fake, Gate(model_of(fake)) as gate:
            fake.signatures.add("c2ln")
            await gate.run("Hi.", session="s")
            assert (await gate.run("And?", session="s")).text == "Fine."
            assert sent_parts(fake, 2, 1) == kept

    run(story)


@pytest.mark.parametrize("is_known", [False, True], ids=["first", "after-it-was-learned"])
def test_what_the_user_says_last_is_never_left_out(is_known: bool) -> None:
    async def story() -> None:
        async with FakeGemini([answer({"hologram": 1}, signed=False), "Fine."]) as fake, Gate(model_of(fake)) as gate:
            if is_known:
                await gate.run("Hi.", session="s")
                await gate.run("And?", session="s")
            with pytest.raises(InvalidRequestError, match="hologram"):
                await gate.run(None, history=[{"role": "user", "parts": [{"hologram": 2}]}])
            assert sent_parts(fake, -1, 0) == [{"hologram": 2}]

    run(story)


def test_another_model_of_the_same_endpoint_need_not_be_refused_first() -> None:
    async def story() -> None:
        script = [answer({"text": "Hello.", "trace": 1}, signed=False)] * 2
        async with FakeGemini([*script, "One.", "Two."]) as fake:
            async with Gate(model_of(fake)) as one, Gate(model_of(fake)) as two:
                await one.run("Hi.", session="s")
                await two.run("Hi.", session="t")
                assert (await one.run("And?", session="s")).text == "One."
                assert (await two.run("And?", session="t")).text == "Two."
            assert len(fake.refusals) == 1

    run(story)


def test_sessions_that_are_refused_at_the_same_time_all_go_on() -> None:
    async def story() -> None:
        script = [answer({"text": "Hello.", "trace": 1}, signed=False)] * 5
        async with FakeGemini([*script, *["Fine."] * 5]) as fake, Gate(model_of(fake)) as gate:
            names = [f"s{number}" for number in range(5)]
            await asyncio.gather(*(gate.run("Hi.", session=name) for name in names))
            replies = await asyncio.gather(*(gate.run("And?", session=name) for name in names))
            assert [reply.text for reply in replies] == ["Fine."] * 5

    run(story)


def test_a_server_that_names_one_field_at_a_time_is_asked_until_it_is_content() -> None:
    async def story() -> None:
        odd = answer({"text": "Hello.", "one": 1, "two": 2}, signed=False)
        refusals = [refused(unknown(name, "contents[1].parts[0]")) for name in ("one", "two")]
        async with FakeGemini([odd, *refusals, "Fine."], strict=False) as fake, Gate(model_of(fake)) as gate:
            await gate.run("Hi.", session="s")
            assert (await gate.run("And?", session="s")).text == "Fine."
            assert sent_parts(fake, 3, 1) == [{"text": "Hello."}]

    run(story)


PART = "contents[1].parts[0]"


@pytest.mark.rows(
    "message",
    [
        unknown("thoughtSignature", PART),
        unknown("thought_signature", PART),
        unknown("text", PART),
        unknown("parts", "contents[1]"),
        unknown("args", f"{PART}.function_call"),
        unknown("trace", f"{PART}.function_call.args"),
        unknown("trace", "tools[0].function_declarations[0]"),
        unknown("trace", "generation_config"),
        unknown("trace", "system_instruction.parts[0]"),
        "Invalid JSON payload received. Unknown name \"trace\": Cannot find field.",
        unknown("trace", PART) + "\n" + unknown("trace", "tools[0]"),
        unknown("absent", PART),
        "Request contains an invalid argument.",
    ],
)  # fmt: skip
@pytest.mark.rows("stream", [False, True], ids=["whole", "streamed"])
def test_any_other_refusal_reaches_the_caller_after_one_request(message: str, stream: bool) -> None:
    async def story() -> None:
        odd = answer({"text": "Hello.", "trace": 1, "thoughtSignature": "c2ln"})
        async with FakeGemini([odd, refused(message), "Fine."], strict=False) as fake, Gate(model_of(fake)) as gate:
            await gate.run("Hi.", session="s")
            with pytest.raises(InvalidRequestError):
                await asked(gate, "And?", "s", stream=stream)
            assert len(fake.requests) == 2

    run(story)


def test_a_server_that_refuses_the_same_field_again_is_not_asked_a_third_time() -> None:
    async def story() -> None:
        odd = answer({"text": "Hello.", "trace": 1}, signed=False)
        again = refused(unknown("trace", PART))
        async with FakeGemini([odd, again, again, "Fine."], strict=False) as fake, Gate(model_of(fake)) as gate:
            await gate.run("Hi.", session="s")
            with pytest.raises(InvalidRequestError, match="trace"):
                await gate.run("And?", session="s")
            assert len(fake.requests) == 3

    run(story)


def test_names_are_read_from_the_message_and_from_its_details() -> None:
    violations = [
        {"field": "contents[1].parts[0]", "description": 'Unknown name "b": Cannot find field.'},
        {"field": "contents[2]", "description": unknown("c", "contents[3]")},
        {"field": "contents[4]", "description": "Name cannot be empty."},
        {"field": None, "description": None},
    ]
    message = unknown("a", PART) + "\n" + unknown("a", PART) + "\n" + unknown("", "contents[0]")
    assert unknown_names(message, violations) == ((PART, "a"), ("contents[0]", ""), (PART, "b"), ("contents[3]", "c"))


def test_names_in_the_details_alone_are_enough() -> None:
    async def story() -> None:
        odd = answer({"text": "Hello.", "trace": 1}, signed=False)
        bare = refused("Request contains an invalid argument.", (PART, unknown("trace", PART)))
        async with FakeGemini([odd, bare, "Fine."], strict=False) as fake, Gate(model_of(fake)) as gate:
            await gate.run("Hi.", session="s")
            assert (await gate.run("And?", session="s")).text == "Fine."

    run(story)


def test_tokens_are_counted_without_the_unknown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        place = "generate_content_request.contents[1].parts[0]"
        talk = Conversation()
        talk.add_user("Hi.")
        talk.add_model({"role": "model", "parts": [{"text": "Hi.", "trace": 1}]})
        asked: list[Any] = []

        async def count(model: str, body: bytes) -> int:
            asked.append(json.loads(body)["generateContentRequest"]["contents"])
            if len(asked) == 1:
                raise InvalidRequestError(unknown("trace", place), unknown_fields=[(place, "trace")])
            return 5

        async with FakeGemini([]) as fake:
            model = model_of(fake)
            monkeypatch.setattr(model.client, "count_tokens", count)
            assert await model.count_tokens(ModelRequest(conversation=talk)) == 5
            asked.clear()
            with pytest.raises(InvalidRequestError):
                await model.count_tokens(ModelRequest(conversation=talk))
        assert asked == [[{"role": role, "parts": [{"text": "Hi."}]} for role in ("user", "model")]]

    run(story)


def test_what_is_remembered_of_one_endpoint_is_bounded() -> None:
    fields = UnknownFields()
    for number in range(1_500):
        fields.learn([(PART, f"f{number}")], b'{"contents":[{},{"role":"model","parts":[{"f%d":1}]}]}' % number)
    said = b'{"role":"model","parts":[{"text":"a"%s}]}'
    assert fields.without([said % b',"f1499":1']) == [said % b""]
    assert fields.without([said % b',"f1":1']) == [said % b',"f1":1']
