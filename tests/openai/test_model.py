"""OpenAIModel and a fake server on real sockets: conversations, faults, retries, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.models.scenes import QUICK, Clock

from callgate import Gate, GeminiModel, Limits, OpenAIModel, tool
from callgate.errors import (
    AuthError,
    BlockedError,
    ConnectionLostError,
    InvalidRequestError,
    LimitExceededError,
    ModelError,
    ProtocolError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
    ToolsUnsupportedError,
    UsageError,
)
from callgate.events import CallProposed, CallStarted, Notice, RunEnded, TextDelta
from callgate.history.repair import validate
from callgate.openai.client import OPENAI_URL, OpenAIClient, OpenAIEndpoint, endpoint_from_environment
from callgate.openai.quirks import QUIRKS
from callgate.testing.answers import answer, call, calls, text, thought
from callgate.testing.chat_answers import STYLES
from callgate.testing.chat_faults import CHAT_FAULTS, fault
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_gemini import call as gemini_call
from callgate.testing.fake_openai import FakeOpenAI
from callgate.testing.faults import refused_url
from callgate.testing.scripted_model import ScriptedModel
from callgate.types import Reply
from callgate.wire.endpoint_health import EndpointHealth

KEY = "sk-proj-a-key-that-nobody-may-ever-see-42"
MODEL = "gpt-4.1"


@dataclass
class Scene:
    """One gate that talks to one fake server."""

    fake: FakeOpenAI
    model: OpenAIModel
    gate: Gate
    clock: Clock
    stream: bool
    ran: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)

    async def ask(self, prompt: Any = "Go.", **options: Any) -> Reply:
        if not self.stream:
            return await self.gate.run(prompt, session="s", **options)
        async for event in self.gate.stream(prompt, session="s", **options):
            self.events.append(event)
        assert isinstance(self.events[-1], RunEnded)
        return self.events[-1].reply

    @property
    def notices(self) -> list[Notice]:
        return [event for event in self.events if isinstance(event, Notice)]


@asynccontextmanager
async def scene(
    script: Any, *, stream: bool = True, limits: Limits = QUICK, key: str | None = KEY, **options: Any
) -> AsyncIterator[Scene]:
    ran: list[Any] = []

    @tool
    def add(a: int = 1, b: int = 1) -> int:
        """Adds two numbers."""
        ran.append((a, b))
        return a + b

    gate_options = {name: options.pop(name) for name in ("settings", "system") if name in options}
    clock = Clock()
    async with asyncio.timeout(30), FakeOpenAI(script, **options) as fake:
        endpoint = OpenAIEndpoint(base_url=fake.base_url, api_key=key)
        client = OpenAIClient(endpoint, limits=limits, clock=clock, health=EndpointHealth(clock), dice=random.Random(1))
        model = OpenAIModel(MODEL, client=client)
        gate = Gate(model, tools=[add], mode="native", limits=limits, **gate_options)
        yield Scene(fake=fake, model=model, gate=gate, clock=clock, stream=stream, ran=ran)
        await model.aclose()
        await fake.until_idle()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs the story, after which no task is left."""

    async def whole() -> None:
        await story()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"

    asyncio.run(whole())


@pytest.fixture
def no_socket_left() -> Iterator[None]:
    """No socket or file that the test opened is open when it is over."""
    place = "/proc/self/fd"
    gc.collect()
    before = len(os.listdir(place)) if os.path.isdir(place) else 0
    yield
    gc.collect()
    assert not before or len(os.listdir(place)) <= before


async def until(happened: Callable[[], bool]) -> None:
    """Waits for something that nobody announces; the time-out of the scene bounds it."""
    while not happened():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

# Conversations -----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("server", STYLES)
def test_parallel_calls_are_run_and_answered_whatever_server_it_is(server: str, stream: bool, request: Any) -> None:
    if server == "vllm":
        request.getfixturevalue("unjudged")  # its ids are longer than OpenAI takes, and go back as they came

    async def story() -> None:
        script = [answer(thought("Two."), calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))), "3 and 7."]
        async with scene(script, stream=stream, server=server) as it:
            reply = await it.ask("1 + 2, 3 + 4?")
            assert (reply.text, reply.finish_reason, reply.turns) == ("3 and 7.", "STOP", 2)
            assert sorted(it.ran) == [(1, 2), (3, 4)]
            assert [record.result.value for record in reply.calls if record.result] == [3, 7]
            assert validate(reply.contents) == []
            assert reply.usage.total_tokens > 0
            assert it.model.supports_tools is True
            results = [message["content"] for message in it.fake.requests[1].json["messages"] if message["role"] == "tool"]
            assert results == ['{"result":3}', '{"result":7}']
            known = {"openai", "ollama", "llama.cpp"}
            assert it.model.server == (server if server in known else "generic")

    run(story)


@pytest.mark.usefixtures("no_socket_left")
def test_text_and_thoughts_arrive_as_they_are_said() -> None:
    async def story() -> None:
        async with scene([answer(thought("Hm."), "One, two, three, four.")]) as it:
            await it.ask()
            assert "".join(event.text for event in it.events if isinstance(event, TextDelta)) == "One, two, three, four."
            assert len([event for event in it.events if isinstance(event, TextDelta)]) > 1

    run(story)


@both
def test_an_error_of_a_tool_and_an_unknown_tool_reach_the_model_as_errors(stream: bool) -> None:
    async def story() -> None:
        script = [calls(("add", {"a": "x"}), ("nope", {})), "Sorry."]
        async with scene(script, stream=stream) as it:
            assert (await it.ask()).text == "Sorry."
            told = [message["content"] for message in it.fake.requests[1].json["messages"] if message["role"] == "tool"]
            assert len(told) == 2
            assert all(content.startswith('{"error":') for content in told)
            assert it.ran == []

    run(story)


@both
def test_a_conversation_changes_from_gemini_to_openai_and_back(stream: bool) -> None:
    async def story() -> None:
        first = ScriptedModel([
            [{"text": "Hm.", "thought": True},
             {"functionCall": {"name": "add", "args": {"a": 1, "b": 1}}, "thoughtSignature": "c2ln"}],
            "Two.",
        ])  # fmt: skip

        @tool
        def add(a: int, b: int) -> int:
            """Adds."""
            return a + b

        begun = await Gate(first, tools=[add]).run("1 + 1?")
        async with scene([call("add", a=2, b=2), "Four."], stream=stream) as it:
            reply = await it.gate.run("2 + 2?", history=begun.contents)
            assert reply.text == "Four."
            assert reply.contents[: len(begun.contents)] == begun.contents
            assert "c2ln" not in it.fake.requests[0].body.decode()
        # The strict server refuses calls that are not signed; those of another model are signed as such.
        async with FakeGemini([gemini_call("add", a=3, b=3), "Six."]) as gemini:
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": gemini.base_url}
            last = GeminiModel("gemini-3.8-flash", env=env)
            gemini.signatures.add("c2ln")
            reply = await Gate(last, tools=[add]).run("3 + 3?", history=reply.contents)
            assert (reply.text, gemini.refusals) == ("Six.", [])
            await last.aclose()

    run(story)


def test_a_required_call_is_asked_for_once() -> None:
    async def story() -> None:
        async with scene([call("add", a=1, b=2), "Three."]) as it:
            await it.ask(tool_choice="required")
            assert [request.json.get("tool_choice") for request in it.fake.requests] == ["required", None]

    run(story)


# Strange hands and faults --------------------------------------------------------------------------------------------------

STRANGE = [
    f"{row.name}:{variant}"
    for row in CHAT_FAULTS
    if row.name
    in (
        "no_ids",
        "args_object",
        "empty_args",
        "split_names",
        "repeated_names",
        "index",
        "one_char",
        "first_chunks",
        "no_done",
    )
    for variant in row.variants
]


@both
@pytest.mark.parametrize("name", STRANGE)
def test_two_calls_in_a_strange_hand_are_two_calls(name: str, stream: bool) -> None:
    async def story() -> None:
        given = calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
        async with scene([fault(name, answer=given), "Done."], stream=stream) as it:
            reply = await it.ask()
            assert (reply.text, sorted(it.ran)) == ("Done.", [(1, 2), (3, 4)])

    run(story)


@both
@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("insufficient_quota", RateLimitedError, "the credit is used up"),
        ("wrong_key", AuthError, "check OPENAI_API_KEY"),
        ("no_model:openai", InvalidRequestError, f"there is no model '{MODEL}'"),
        ("no_model:no_path", InvalidRequestError, "ends with /v1"),
        ("too_long:openai", LimitExceededError, "too large"),
        ("too_long:llama.cpp", LimitExceededError, "too large"),
        ("no_tools:ollama", ToolsUnsupportedError, "mode='prompted'"),
        ("no_tools:llama.cpp", ToolsUnsupportedError, "mode='prompted'"),
        ("no_tools:vllm", ToolsUnsupportedError, "mode='prompted'"),
        ("bad_schema", InvalidRequestError, "this is the tool 'add'"),
        ("content_filter", BlockedError, "blocked"),
        ("odd_error:vllm", InvalidRequestError, "bad sampling"),
        ("odd_error:detail", InvalidRequestError, "Not Found"),
        ("W39", ProtocolError, "redirects"),
    ],
)
def test_a_refusal_is_raised_at_once_and_holds_no_key(
    name: str, kind: type[ModelError], sentence: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with scene([fault(name)], stream=stream) as it:
            with caplog.at_level(logging.DEBUG), pytest.raises(kind) as raised:
                await it.ask()
            assert type(raised.value) is kind
            assert sentence in str(raised.value)
            assert KEY not in f"{raised.value!r} {caplog.text}"
            assert len(it.fake.requests) == 1
            assert it.ran == []
            if kind is ToolsUnsupportedError:
                assert it.model.supports_tools is False

    run(story)


@both
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("no_finish", ProtocolError), ("no_choices", ProtocolError), ("broken_json", ProtocolError),
        ("W08", ServerUnavailableError),
        ("W17", ConnectionLostError), ("W42:empty", ProtocolError), ("W37:captive_portal", ProtocolError),
    ],
)  # fmt: skip
def test_no_call_of_a_broken_answer_runs(name: str, kind: type[ModelError], stream: bool) -> None:
    async def story() -> None:
        async with scene([fault(name, times=None)], stream=stream) as it:
            with pytest.raises(ModelError) as raised:
                await it.ask()
            assert isinstance(raised.value, (kind, ServerUnavailableError))
            assert it.ran == []
            assert not [event for event in it.events if isinstance(event, CallStarted)]

    run(story)


@both
@pytest.mark.parametrize(
    "name", ["O01:seconds", "O01:milliseconds", "O01:bare", "O07", "W16", "W17", "W19", "W29", "no_finish", "W61"]
)
def test_trouble_is_waited_out(name: str, stream: bool) -> None:
    async def story() -> None:
        async with scene(
            [fault(name, answer=call("add", a=1, b=2)), call("add", a=1, b=2), "Three.", "Four.", "Five."], stream=stream
        ) as it:
            reply = await it.ask()
            assert reply.finish_reason == "STOP"
            assert len(it.ran) >= 1
            if name == "O01:seconds":
                assert it.clock.sleeps
                assert it.clock.sleeps[0] >= 2
            if name == "O01:milliseconds":
                assert 1.5 <= it.clock.sleeps[0] < 2
            if stream and name.startswith("O0"):
                assert "Trying again" in it.notices[0].message

    run(story)


@pytest.mark.usefixtures("no_socket_left")
def test_a_stream_that_breaks_after_text_was_shown_is_not_asked_for_again() -> None:
    async def story() -> None:
        async with scene([fault("W18"), "Never."]) as it:
            with pytest.raises(ConnectionLostError) as raised:
                await it.ask()
            assert raised.value.partial
            assert len(it.fake.requests) == 1

    run(story)


def test_an_error_in_the_middle_of_a_stream_is_raised_with_its_own_words() -> None:
    async def story() -> None:
        async with scene([fault("error_in_stream", answer="One, two, three, four.")]) as it:
            with pytest.raises(ServerUnavailableError, match="had an error while processing"):
                await it.ask()

    run(story)


@both
@pytest.mark.parametrize("variant", ["cut", "list", "prose", "nan", "number"])
def test_arguments_that_are_no_object_never_run(variant: str, stream: bool, request: Any) -> None:
    async def story() -> None:
        async with scene([fault("bad_arguments", variant), "Sorry."], stream=stream) as it:
            reply = await it.ask()
            assert (reply.text, it.ran) == ("Sorry.", [])
            assert reply.calls[0].state == "failed"

    run(story)


def test_arguments_that_are_null_are_none() -> None:
    async def story() -> None:
        async with scene([fault("bad_arguments", "null"), "Two."]) as it:
            await it.ask()
            assert it.ran == [(1, 1)]

    run(story)


@both
@pytest.mark.parametrize(
    ("variant", "reason"),
    [("length", "MAX_TOKENS"), ("filter", "SAFETY"), ("unknown", "INSUFFICIENT_SYSTEM_RESOURCE"), ("upper", "STOP")],
)
def test_the_end_of_a_run_says_how_the_answer_ended(variant: str, reason: str, stream: bool) -> None:
    async def story() -> None:
        async with scene([fault("odd_finish", variant)], stream=stream) as it:
            reply = await it.ask()
            assert (reply.finish_reason, reply.ok) == (reason, reason == "STOP")

    run(story)


@both
def test_a_refusal_of_the_model_is_shown_and_not_ok(stream: bool) -> None:
    async def story() -> None:
        async with scene([fault("refusal")], stream=stream) as it:
            reply = await it.ask()
            assert (reply.text, reply.ok) == ("I cannot help with that.", False)

    run(story)


@both
@pytest.mark.parametrize("name", ["blocks", "legacy_call"])
def test_old_and_odd_forms_of_answers_are_read(name: str, stream: bool) -> None:
    async def story() -> None:
        async with scene([fault(name), "Done."], stream=stream) as it:
            reply = await it.ask()
            assert (reply.text, it.ran) == (("In blocks.", []) if name == "blocks" else ("Done.", [(1, 2)]))

    run(story)


@pytest.mark.parametrize("length", range(0, 1_100, 41))
def test_a_body_that_ends_anywhere_runs_no_call_twice_and_none_of_a_half(length: int) -> None:
    async def story() -> None:
        script = [fault("W29", at=length, answer=call("add", a=1, b=2)), call("add", a=5, b=5), "Ten."]
        async with scene(script) as it:
            reply = await it.ask()
            assert reply.finish_reason == "STOP"
            # Either the whole call had arrived, or the answer was asked for again.
            assert it.ran in ([(1, 2), (5, 5)], [(5, 5)])
            assert len(it.fake.requests) == 3

    run(story)


@pytest.mark.parametrize("place", range(0, 1_100, 53))
def test_bytes_that_come_in_two_halves_are_the_same_answer(place: int) -> None:
    async def story() -> None:
        async with scene([fault("W30", at=place, answer=answer("Grüße 🦊", calls(("add", {"a": 1, "b": 2})))), "Ja."]) as it:
            assert ((await it.ask()).text, it.ran) == ("Ja.", [(1, 2)])

    run(story)


# What the server teaches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "settings", "check"),
    [
        ("max_completion_tokens", {"max_output_tokens": 9}, lambda body: body.get("max_completion_tokens") == 9),
        ("stream_options", {}, lambda body: "stream_options" not in body),
        ("no_stream", {}, lambda body: "stream" not in body),
    ],
)
def test_a_server_that_says_what_it_wants_gets_it_from_then_on(variant: str, settings: Any, check: Any) -> None:
    async def story() -> None:
        async with scene(
            [fault("wants_differently", variant), call("add", a=1, b=2), "Three."], settings=settings, server="generic"
        ) as it:
            reply = await it.ask()
            assert reply.text == "Three."
            assert [check(request.json) for request in it.fake.requests] == [False, True, True]
            assert [notice.code for notice in it.notices] == ["adapted"]

    run(story)


def test_a_server_that_takes_short_descriptions_only_gets_the_beginning_of_a_long_one() -> None:
    async def story() -> None:
        async with scene([fault("wants_differently", "description"), "Yes."], server="generic") as it:
            long = tool(lambda: None, name="long", description="word " * 800)
            reply = await Gate(it.model, tools=[long], mode="native").run("Go.")
            sent = [request.json["tools"][0]["function"]["description"] for request in it.fake.requests]
            assert (reply.text, sent[0]) == ("Yes.", "word " * 800)
            assert sent[1] == ("word " * 800)[:1001] + " [the rest was cut off]"
            assert len(sent[1]) == 1024

    run(story)


def test_a_server_that_takes_no_named_tool_is_given_that_tool_alone() -> None:
    async def story() -> None:
        async with scene(
            [fault("wants_differently", "tool_choice"), call("add", a=1, b=2), "Three."], server="lm studio"
        ) as it:
            await it.ask(tool_choice="add")
            assert it.fake.requests[1].json["tool_choice"] == "required"

    run(story)


@both
def test_llama_cpp_is_asked_whether_its_template_has_tools(stream: bool) -> None:
    async def story() -> None:
        async with scene(["Never."], stream=stream, server="llama.cpp", has_tools=False) as it:
            assert it.model.supports_tools is None
            with pytest.raises(ToolsUnsupportedError, match=r"has no tools, as llama\.cpp reports"):
                await it.ask()
            assert (it.model.supports_tools, it.model.server) == (False, "llama.cpp")
            assert it.fake.requests == []
            assert [request.path for request in it.fake.looks] == ["/props"]
            # Without tools it answers all the same.
            assert (await Gate(it.model).run("Hi.")).text == "Never."

    run(story)


def test_a_server_is_asked_what_it_can_do_once_and_only_for_tools() -> None:
    async def story() -> None:
        async with scene(["One.", "Two."], server="generic") as it:
            await Gate(it.model).run("Hi.")
            assert it.fake.looks == []
            await it.ask()
        async with scene([call("add"), "Two.", "Three."], server="llama.cpp") as it:
            await it.ask()
            await it.ask()
            assert len(it.fake.looks) == 1

    run(story)


# Made from ---------------------------------------------------------------------------------------------------------------


def test_the_environment_says_where_and_with_which_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with FakeOpenAI(["Hello."], api_key="secret-key") as fake:
            monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", " secret-key\n")
            model = OpenAIModel(MODEL)
            assert (await Gate(model).run("Hi.")).text == "Hello."
            assert fake.requests[0].headers["authorization"] == "Bearer secret-key"
            assert "secret" not in f"{fake.requests[0].path} {fake.requests[0].query} {model!r}"
            await model.aclose()

    run(story)


def test_a_server_on_this_machine_needs_no_key() -> None:
    async def story() -> None:
        async with scene(["Hello."], key=None) as it:
            await it.ask()
            assert "authorization" not in it.fake.requests[0].headers

    run(story)


def test_a_server_elsewhere_needs_a_key() -> None:
    with pytest.raises(UsageError, match=r"no key for https://api.openai.com/v1: set OPENAI_API_KEY"):
        OpenAIModel(MODEL, env={})
    assert endpoint_from_environment({"OPENAI_API_KEY": "k"}) == OpenAIEndpoint(base_url=OPENAI_URL, api_key="k")
    assert OpenAIModel(MODEL, api_key="k", env={}).supports_tools is True


@pytest.mark.parametrize("url", ["ftp://x/v1", "api.openai.com/v1", "https://x/v1?a=b"])
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not valid"):
        OpenAIModel(MODEL, base_url=url, api_key="k", env={})


def test_a_login_in_the_base_url_becomes_a_header_and_stands_in_no_error() -> None:
    async def story() -> None:
        async with FakeOpenAI(["Hello."]) as fake:
            url = fake.base_url.replace("//", "//ada:s3cret-word%21@")
            model = OpenAIModel("m", base_url=url)
            assert (await Gate(model).run("Go.")).text == "Hello."
            (seen,) = [request for request in fake.requests if request.method == "POST"]
            assert seen.headers["authorization"] == "Basic YWRhOnMzY3JldC13b3JkIQ=="
            assert "@" not in seen.headers["host"]
            assert "s3cret" not in repr(model)
        with pytest.raises(ModelError) as caught:  # Nothing listens there any more.
            await Gate(OpenAIModel("m", base_url=url, limits=Limits(attempts=1))).run("Go.")
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__dict__)
        assert "s3cret" not in shown
        assert "YWRhOnMzY3JldC13b3JkIQ" not in shown

    run(story)


@pytest.mark.parametrize("url", [
    "https://ada:s3cret@host/v1?x", "ftp://ada:s3cret@host/v1", "https://ada:s3cret@/v1", "https://ada:s3cret@:80/v1",
    "https://ada:s3cret@host:port/v1", "https://ada:s3cret@host:99999/v1", "https://ada:s3cret/word@host/v1?x",
    "https://ada:s3cret@[::1/v1", "ada:s3cret@host/v1",
])  # fmt: skip
def test_a_base_url_that_is_refused_does_not_show_its_password(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        OpenAIModel("m", base_url=url)
    assert "s3cret" not in str(caught.value)


def test_a_key_that_can_be_none_is_refused_without_being_shown() -> None:
    with pytest.raises(UsageError, match="holds characters that no key has") as raised:
        OpenAIModel(MODEL, api_key="se cret", env={})
    assert "se cret" not in str(raised.value)
    assert "secret-key" not in repr(OpenAIEndpoint(base_url=OPENAI_URL, api_key="secret-key"))


def test_nothing_at_the_address_is_a_sentence_that_says_what_to_do() -> None:
    async def story() -> None:
        clock = Clock()
        with refused_url() as url:
            client = OpenAIClient(
                OpenAIEndpoint(base_url=f"{url}/v1"), clock=clock, health=EndpointHealth(clock), limits=Limits(attempts=2)
            )
            client.quirks = QUIRKS["ollama"]
            with pytest.raises(
                ConnectionLostError, match=r"nothing answers at http://127\.0\.0\.1:\d+/v1: start it with `ollama serve`"
            ):
                await Gate(OpenAIModel("qwen3", client=client)).run("Hi.")
            await client.aclose()

    run(story)


@pytest.mark.usefixtures("no_socket_left")
def test_a_silent_server_is_given_up_in_time() -> None:
    async def story() -> None:
        async with scene([fault("W25")], limits=Limits(first_byte_s=0.05, idle_s=0.05)) as it:
            with pytest.raises(RequestTimeoutError):
                await it.ask()

    run(story)


@pytest.mark.parametrize("name", ["W14", "W25"])
@pytest.mark.usefixtures("no_socket_left")
def test_a_cancelled_run_closes_its_connection(name: str) -> None:
    async def story() -> None:
        async with scene([fault(name)]) as it:
            task = asyncio.create_task(it.ask())
            await until(lambda: bool(it.fake.requests))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await it.fake.until_idle()

    run(story)


@pytest.mark.usefixtures("no_socket_left")
def test_a_reader_that_stops_early_leaves_nothing_open() -> None:
    async def story() -> None:
        async with scene([text("word " * 5_000)]) as it:
            async with aclosing(it.gate.stream("Go.")) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
            await it.fake.until_idle()

    run(story)


def test_calls_are_proposed_only_when_they_are_complete() -> None:
    async def story() -> None:
        async with scene([fault("no_finish", times=None, answer=call("add", a=1, b=2))], limits=Limits(attempts=1)) as it:
            with pytest.raises(ProtocolError):
                await it.ask()
            assert not [event for event in it.events if isinstance(event, CallProposed)]

    run(story)


def test_a_server_that_says_endlessly_much_of_itself_is_not_listened_to() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Length: 99999999999\r\n\r\n" + b'{"a": "')
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:
            writer.close()

    async def story() -> None:
        async with asyncio.timeout(300), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = OpenAIClient(OpenAIEndpoint(base_url=f"http://127.0.0.1:{port}/v1"))
            assert await client.tells_tools() is None
            await client.aclose()
            server.close()
            await until(lambda: len(asyncio.all_tasks()) == 1)

    run(story)


@pytest.mark.parametrize(
    "props", [b"[]", b"{}", b"no", b'{"chat_template_caps": 1}', b'{"chat_template_caps": {"supports_tools": "yes"}}']
)
def test_what_says_nothing_of_tools_is_taken_for_nothing(props: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(props), props))
        await writer.drain()
        writer.close()

    async def story() -> None:
        async with asyncio.timeout(300), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = OpenAIClient(OpenAIEndpoint(base_url=f"http://127.0.0.1:{port}/v1"))
            assert await client.tells_tools() is None
            await client.aclose()
            server.close()
            await until(lambda: len(asyncio.all_tasks()) == 1)

    run(story)
