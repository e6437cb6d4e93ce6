"""The fake server of chat completions is faithful: the official SDK works with it, and it refuses what OpenAI refuses."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from callgate import testing as scripted
from callgate.errors import UsageError
from callgate.testing.chat_answers import STYLES
from callgate.testing.chat_faults import CHAT_FAULTS
from callgate.testing.chat_rules import chat_judge
from callgate.testing.fake_openai import FakeOpenAI, answer, call, calls, fault, main, raw, text, thought

openai = pytest.importorskip("openai", reason="the openai SDK is not installed; the fake was not judged")
USER = {"role": "user", "content": "Hi."}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(bounded())


def client_of(fake: FakeOpenAI, **options: Any) -> Any:
    return openai.AsyncOpenAI(api_key="k", base_url=fake.base_url, max_retries=0, **options)


# The SDK as a client -----------------------------------------------------------------------------------------------------


def test_the_sdk_reads_a_whole_answer_with_calls() -> None:
    async def story() -> None:
        async with (
            FakeOpenAI([answer("Let me see.", calls(("add", {"a": 1}), ("add", {"a": 2})))]) as fake,
            client_of(fake) as sdk,
        ):
            done = await sdk.chat.completions.create(model="gpt-4.1", messages=[USER], tools=[ADD])
            (choice,) = done.choices
            assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me see.")
            assert [json.loads(made.function.arguments) for made in choice.message.tool_calls] == [{"a": 1}, {"a": 2}]
            assert len({made.id for made in choice.message.tool_calls}) == 2
            assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
            openai.types.chat.ChatCompletion.model_validate(done.model_dump())
            assert fake.refusals == []

    run(story)


def test_the_helper_of_the_sdk_puts_a_streamed_answer_together() -> None:
    async def story() -> None:
        async with (
            FakeOpenAI([answer("Let me see.", calls(("add", {"a": 1}), ("add", {"a": 2})))]) as fake,
            client_of(fake) as sdk,
        ):
            options = {"include_usage": True}
            asked = sdk.chat.completions.stream(model="gpt-4.1", messages=[USER], tools=[ADD], stream_options=options)
            async with asked as stream:
                async for event in stream:
                    if event.type == "chunk":
                        openai.types.chat.ChatCompletionChunk.model_validate(event.chunk.model_dump(), strict=True)
                done = await stream.get_final_completion()
            (choice,) = done.choices
            assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me see.")
            assert [json.loads(made.function.arguments) for made in choice.message.tool_calls] == [{"a": 1}, {"a": 2}]
            assert done.usage.completion_tokens > 0

    run(story)


def test_the_sdk_holds_a_conversation_with_the_demo() -> None:
    with FakeOpenAI.in_thread() as fake, openai.OpenAI(api_key="k", base_url=fake.base_url) as sdk:
        first = sdk.chat.completions.create(model="gpt-4.1", messages=[USER], tools=[ADD]).choices[0].message
        (made,) = first.tool_calls
        result = {"role": "tool", "tool_call_id": made.id, "content": '{"result": 2}'}
        last = sdk.chat.completions.create(model="gpt-4.1", messages=[USER, first, result], tools=[ADD])
        assert last.choices[0].message.content == '{"result": 2}'
        assert sdk.chat.completions.create(model="gpt-4.1", messages=[USER]).choices[0].message.content == "Hi."
        assert "gpt-5.2" in [model.id for model in sdk.models.list()]
        assert fake.refusals == []


def test_the_sdk_reads_a_refusal_and_a_finish_by_length() -> None:
    async def story() -> None:
        async with FakeOpenAI([fault("refusal"), text("cut", finish_reason="MAX_TOKENS")]) as fake, client_of(fake) as sdk:
            first = await sdk.chat.completions.create(model="m", messages=[USER])
            assert first.choices[0].message.refusal == "I cannot help with that."
            second = await sdk.chat.completions.create(model="m", messages=[USER])
            assert second.choices[0].finish_reason == "length"

    run(story)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("O01", "RateLimitError"), ("O02", "RateLimitError"), ("O03", "AuthenticationError"), ("O04", "NotFoundError"),
        ("O05", "BadRequestError"), ("O06:ollama", "BadRequestError"), ("O07", "InternalServerError"),
        ("W08", "InternalServerError"),
        ("W17", "APIConnectionError"), ("error_in_stream", "APIError"),
    ],
)  # fmt: skip
def test_the_sdk_knows_the_errors_for_what_they_are(name: str, kind: str) -> None:
    async def story() -> None:
        async with FakeOpenAI([fault(name)]) as fake, client_of(fake) as sdk:

            async def read() -> None:
                stream = await sdk.chat.completions.create(model="m", messages=[USER], tools=[ADD], stream=True)
                assert [chunk async for chunk in stream]

            with pytest.raises(getattr(openai, kind)):
                await read()

    run(story)


@pytest.mark.parametrize("server", STYLES)
def test_every_server_that_it_plays_is_understood_by_the_sdk(server: str) -> None:
    async def story() -> None:
        given = answer(thought("Hm."), "Yes.", calls(("add", {"a": 1})))
        async with FakeOpenAI([given, given], server=server) as fake, client_of(fake) as sdk:
            whole = await sdk.chat.completions.create(model="m", messages=[USER], tools=[ADD])
            assert whole.choices[0].message.tool_calls[0].function.name == "add"
            stream = await sdk.chat.completions.create(model="m", messages=[USER], tools=[ADD], stream=True)
            chunks = [chunk async for chunk in stream]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Yes."

    run(story)


# Strict like OpenAI ------------------------------------------------------------------------------------------------------


def asked(*ids: str, **fields: Any) -> dict[str, Any]:
    made = [{"id": one, "type": "function", "function": {"name": "add", "arguments": "{}"} | fields} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def answered(one: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": one, "content": "2"}


def declared(**function: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "add"} | function}]}


BREACHES: dict[str, tuple[dict[str, Any], str]] = {
    "no_messages": ({"messages": None}, "'messages'"),
    "empty_messages": ({"messages": []}, "empty array"),
    "no_model": ({"model": ""}, "model parameter"),
    "unknown_field": ({"top_k": 1}, "Unknown parameter: 'top_k'"),
    "role": ({"messages": [{"role": "model", "content": "x"}]}, "Invalid value: 'model'"),
    "tool_first": ({"messages": [USER, answered("a")]}, "must be a response to a preceeding message"),
    "unanswered": ({"messages": [USER, asked("a", "b"), answered("a"), USER]}, "did not have response messages: b"),
    "unanswered_last": ({"messages": [USER, asked("a")]}, "did not have response messages: a"),
    "unknown_id": ({"messages": [USER, asked("a"), answered("z")]}, "'tool_call_id' of 'z' not found"),
    "answered_twice": ({"messages": [USER, asked("a"), answered("a"), answered("a")]}, "preceeding message"),
    "duplicate_id": ({"messages": [USER, asked("a", "a"), answered("a"), answered("a")]}, "Duplicate value"),
    "long_id": ({"messages": [USER, asked("a" * 41), answered("a" * 41)]}, "maximum length 40"),
    "no_call_id": ({"messages": [USER, asked("a"), {"role": "tool", "content": "x"}]}, "tool_call_id"),
    "call_name": ({"messages": [USER, asked("a", name="a.b"), answered("a")]}, "does not match pattern"),
    "object_arguments": ({"messages": [USER, asked("a", arguments={}), answered("a")]}, "expected a string"),
    "no_calls": ({"messages": [USER, {"role": "assistant", "content": "x", "tool_calls": []}]}, "empty array"),
    "null_content": ({"messages": [{"role": "user", "content": None}]}, "got null"),
    "block": ({"messages": [{"role": "user", "content": [{"type": "video", "video": "x"}]}]}, "Invalid value: 'video'"),
    "empty_blocks": ({"messages": [{"role": "user", "content": []}]}, "Invalid type"),
    "name": (declared(name="a b"), "does not match pattern"),
    "long_name": (declared(name="a" * 65), "does not match pattern"),
    "root": (declared(parameters={"type": "string"}), "got 'type: \"string\"'"),
    "root_any_of": (declared(parameters={"type": "object", "anyOf": []}), "at the top level"),
    "no_tools": ({"tools": []}, "empty array"),
    "many_tools": ({"tools": [ADD] * 129}, "maximum length 128"),
    "tool_type": ({"tools": [{"type": "custom"}]}, "tools[0].type"),
    "choice_without_tools": ({"tool_choice": "auto"}, "only allowed when 'tools' are specified"),
    "choice": ({"tools": [ADD], "tool_choice": "any"}, "Invalid value: 'any'"),
    "chosen": ({"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "was not found"),
    "parallel": ({"parallel_tool_calls": True}, "only allowed when 'tools' are specified"),
    "stream_options": ({"stream_options": {}}, "only allowed when 'stream' is enabled"),
    "max_tokens": ({"model": "o4-mini", "max_tokens": 5}, "Use 'max_completion_tokens' instead"),
    "temperature": ({"temperature": 3}, "between 0 and 2"),
    "stop": ({"stop": ["a", "b", "c", "d", "e"]}, "maximum length 4"),
}


@pytest.mark.rows(("change", "words"), BREACHES.values(), ids=BREACHES)
def test_a_breach_is_refused_in_openais_words(change: dict[str, Any], words: str) -> None:
    body = {"model": "gpt-4.1", "messages": [USER]} | change
    found = chat_judge(body)
    assert found is not None
    assert words in found.message
    assert found.body["error"]["type"] == "invalid_request_error"


def test_a_sound_request_is_not_refused() -> None:
    messages = [{"role": "developer", "content": "x"}, USER, asked("a", "b"), answered("b"), answered("a"), USER]
    assert chat_judge({"model": "gpt-4.1", "messages": messages, "tools": [ADD], "tool_choice": "required"}) is None
    assert chat_judge([]) is not None


def test_a_refused_request_takes_no_step_and_is_remembered() -> None:
    async def story() -> None:
        async with FakeOpenAI(["Hello."]) as fake, client_of(fake) as sdk:
            with pytest.raises(openai.BadRequestError, match="preceeding"):
                await sdk.chat.completions.create(model="gpt-4.1", messages=[answered("a")])
            assert (fake.steps_left, len(fake.refusals)) == (1, 1)
            done = await sdk.chat.completions.create(model="gpt-4.1", messages=[USER])
            assert done.choices[0].message.content == "Hello."

    run(story)


def test_only_the_right_key_and_the_listed_models_are_let_in() -> None:
    async def story() -> None:
        async with FakeOpenAI(["Hello."], api_key="right", models=["one"]) as fake:
            async with client_of(fake) as sdk:
                with pytest.raises(openai.AuthenticationError):
                    await sdk.chat.completions.create(model="one", messages=[USER])
            async with openai.AsyncOpenAI(api_key="right", base_url=fake.base_url) as sdk:
                with pytest.raises(openai.NotFoundError, match="does not exist"):
                    await sdk.chat.completions.create(model="two", messages=[USER])
                assert (await sdk.chat.completions.create(model="one", messages=[USER])).choices
                assert [model.id async for model in await sdk.models.list()] == ["one"]

    run(story)


# Scripts and faults --------------------------------------------------------------------------------------------------------


def test_a_script_that_is_at_its_end_and_one_that_fails_say_so() -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("oops")

    async def story() -> None:
        async with FakeOpenAI([broken, raw(b'{"choices": [], "odd": 1}')]) as fake, client_of(fake) as sdk:
            with pytest.raises(openai.InternalServerError, match="oops"):
                await sdk.chat.completions.create(model="m", messages=[USER])
            assert [type(error) for error in fake.errors] == [RuntimeError]
            assert (await sdk.chat.completions.create(model="m", messages=[USER])).odd == 1
            with pytest.raises(openai.InternalServerError, match="at its end"):
                await sdk.chat.completions.create(model="m", messages=[USER])

    run(story)


def test_names_of_faults_are_those_of_the_table_or_of_the_way() -> None:
    assert fault("O20").fault is fault("no_ids").fault
    assert fault("no_tools:vllm").variant == "vllm"
    assert fault("W07").fault.name == "internal_error"
    assert fault("no_ids", times=3, answer=call("add")).times == 3
    with pytest.raises(UsageError, match="has no variant 'x'"):
        fault("no_tools:x")
    with pytest.raises(UsageError, match="unknown"):
        fault("nope")
    names = [key for row in CHAT_FAULTS for key in (row.row, row.name)]
    assert len(names) == len({*names})


def test_an_unknown_server_is_refused() -> None:
    with pytest.raises(UsageError, match="server='x': use one of 'openai'"):
        FakeOpenAI(server="x")


def test_the_command_serves_until_it_is_ended() -> None:
    command = [sys.executable, "-m", "callgate.testing.fake_openai"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            body = json.dumps({"model": "m", "messages": [USER]}).encode()
            with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body), timeout=60) as response:
                assert json.load(response)["choices"][0]["message"]["content"] == "Hi."
        finally:
            process.terminate()


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    (tmp_path / "bad.json").write_text("{")
    assert main(["--script", str(tmp_path / "bad.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_an_answer_written_for_a_scripted_model_is_sent_in_the_form_of_the_server():
    async def go() -> None:
        async with FakeOpenAI([scripted.answer("Let me see.", scripted.call("add", a=1))]) as fake, client_of(fake) as sdk:
            given = await sdk.chat.completions.create(model="gpt-5.2", messages=[{"role": "user", "content": "Go."}])
        message = given.choices[0].message
        assert message.content == "Let me see."
        assert [(call.function.name, call.function.arguments) for call in message.tool_calls or ()] == [("add", '{"a": 1}')]

    asyncio.run(go())
