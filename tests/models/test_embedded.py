"""The real embedded model: whole conversations, always the same, and everything that can go wrong around it.

Greedy decoding makes the answers a function of the prompt. Tests that need the model are slow and end with a sentence where
it is not installed.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from callgate import Conversation, Gate, ToolDefinition, ToolError
from callgate.content.read import call_parts, candidate_of, text_of
from callgate.declaration import declare
from callgate.embedded import engine as engines
from callgate.embedded.grammar import grammar_of
from callgate.embedded.states import States
from callgate.embedded.weights import find_base, find_files
from callgate.errors import InvalidRequestError, LimitExceededError, UsageError
from callgate.events import Notice, TextDelta, UsageReported
from callgate.models import embedded as models
from callgate.models.embedded import EmbeddedModel
from callgate.request import ModelRequest
from callgate.types import Reply, Usage

FILES = {"README.md": "# Shop\nA small shop.", "app.py": "print(1)", "lib.py": "x = 1", "todo.txt": "buy milk"}


def list_files(path: str = ".", pattern: str = "*") -> dict[str, Any]:
    """List files in a project directory, optionally filtered by a glob pattern.

    Args:
        path: Directory to list, relative to the project root. Default: .
        pattern: Glob pattern such as *.rs
    """
    return {"files": [name for name in FILES if fnmatch.fnmatch(name, pattern)]}


def read_file(path: str) -> dict[str, Any]:
    """Read a text file and return its contents.

    Args:
        path: Path of the file to read
    """
    if path not in FILES:
        raise ToolError(f"file not found: {path}")
    return {"content": FILES[path]}


def get_current_weather(location: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, Any]:
    """Get the current weather for a location.

    Args:
        location: City name, e.g. Boston
        unit: Temperature unit, default celsius
    """
    return {"location": location, "temperature": {"Oslo": -3, "Rome": 21}[location], "unit": unit, "condition": "clear sky"}


TOOLS = [list_files, read_file, get_current_weather]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an answer take minutes: the machine of a test may be busy."""
    monkeypatch.setattr(models, "ANSWER_S_MAX", 600.0)


@pytest.fixture(scope="module")
def model(embedded: None) -> Iterator[EmbeddedModel]:
    yield EmbeddedModel(announce=False)
    engines.close_engines()


def talk(model: EmbeddedModel, *prompts: str, tools: Any = TOOLS) -> list[Reply]:
    with Gate(model, tools=tools) as gate:
        return [gate.run_sync(prompt, session="talk") for prompt in prompts]


def made(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    return [(record.call.name, dict(record.call.args)) for record in reply.calls]


# --- conversations -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_call_is_made_and_the_answer_comes_from_its_result(model: EmbeddedModel) -> None:
    (reply,) = talk(model, "List the Python files.")
    assert made(reply) == [("list_files", {"pattern": "*.py"})]
    assert "app.py" in reply.text
    assert "lib.py" in reply.text
    assert reply.ok
    assert reply.usage.input_tokens > reply.usage.output_tokens > 0


@pytest.mark.slow
def test_two_calls_are_made_at_once_and_both_results_are_told(model: EmbeddedModel) -> None:
    (reply,) = talk(model, "What's the weather in Oslo and Rome?")
    assert made(reply) == [("get_current_weather", {"location": "Oslo"}), ("get_current_weather", {"location": "Rome"})]
    assert "-3" in reply.text
    assert "21" in reply.text


@pytest.mark.slow
def test_an_error_is_told_as_one(model: EmbeddedModel) -> None:
    (reply,) = talk(model, "Read missing.txt")
    assert [(record.call.name, record.state) for record in reply.calls] == [("read_file", "failed")]
    assert "file not found: missing.txt" in reply.text


@pytest.mark.slow
def test_small_talk_calls_nothing(model: EmbeddedModel) -> None:
    (reply,) = talk(model, "Hello!")
    assert made(reply) == []
    assert reply.text


@pytest.mark.slow
def test_a_follow_up_uses_what_came_before(model: EmbeddedModel) -> None:
    listed, opened = talk(model, "List the files.", "Now read the first one.")
    assert made(listed) == [("list_files", {})]
    assert made(opened) == [("read_file", {"path": "README.md"})]
    assert "A small shop." in opened.text


@pytest.mark.slow
def test_a_missing_argument_is_asked_for(model: EmbeddedModel) -> None:
    (reply,) = talk(model, "Read the file.")
    assert made(reply) == []
    assert "?" in reply.text


@pytest.mark.slow
def test_the_same_prompt_gets_the_same_answer(model: EmbeddedModel) -> None:
    first, second = (talk(model, "What is in todo.txt?")[0] for _ in range(2))
    assert (made(first), first.text) == (made(second), second.text)


# --- one request ---------------------------------------------------------------------------------------------------------


def tool(name: str, description: str = "", **properties: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolDefinition(name=name, description=description, input_schema=schema)


TEXT = {"type": "string"}


def request(prompt: str, *tools: ToolDefinition, **more: Any) -> ModelRequest:
    conversation = Conversation()
    conversation.add_user(prompt)
    return ModelRequest(conversation=conversation, definitions=tools, declaration=declare(list(tools)), **more)


async def collected(model: EmbeddedModel, asked: ModelRequest) -> tuple[list[Notice], str, list[Any], str | None]:
    notices, text, calls, finish = [], "", [], None
    async for item in model.generate(asked):
        if isinstance(item, Notice):
            notices.append(item)
            continue
        candidate = candidate_of(item)
        content: Mapping[str, Any] = candidate.get("content") or {}
        text += text_of(content)
        calls += [(call["name"], call["args"]) for call in call_parts(content)]
        finish = candidate.get("finishReason") or finish
    return notices, text, calls, finish


def answer(model: EmbeddedModel, asked: ModelRequest) -> tuple[list[Notice], str, list[Any], str | None]:
    return asyncio.run(collected(model, asked))


@pytest.mark.slow
def test_the_first_answer_names_the_model_and_says_how_to_use_gemini(embedded: None) -> None:
    announcing = EmbeddedModel()
    (notice,), *_ = answer(announcing, request("Hello!"))
    assert notice.code == "embedded_model"
    assert "callgate-tools-135m" in notice.message
    assert "GEMINI_API_KEY" in notice.message
    assert answer(announcing, request("Hello!"))[0] == []


@pytest.mark.slow
@pytest.mark.parametrize(("choice", "names"), [("required", {"ring", "sing"}), ("sing", {"sing"}), ("none", set())])
def test_the_tool_choice_holds_whatever_the_words_say(model: EmbeddedModel, choice: str, names: set[str]) -> None:
    asked = request("Good morning!", tool("ring", "Ring the bell."), tool("sing", "Sing."), tool_choice=choice)
    _, text, calls, finish = answer(model, asked)
    assert {name for name, _ in calls} <= names
    assert bool(calls) == bool(names)
    assert bool(text) != bool(names)
    assert finish == "STOP"


@pytest.mark.slow
def test_a_value_that_nobody_gave_becomes_a_question_and_a_notice(
    model: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request("Send it, please.", tool("send", "Send a parcel to a town.", town=TEXT), tool_choice="auto")
    held = model._calls([("send", {"town": "Springfield"})], asyncio.run(model._plan(asked)))  # pyright: ignore[reportPrivateUsage]
    assert isinstance(held[0], Notice)
    assert held[0].code == "asked_instead"
    assert held[1:] == [{"text": "To use send I need to know the town. What should it be?"}]


@pytest.mark.slow
def test_more_tools_than_fit_leave_the_nearest_and_a_notice(model: EmbeddedModel) -> None:
    many = [
        tool(f"machine_{n}", f"Starts machine number {n} of the factory, a large one in hall {n}.", speed=TEXT)
        for n in range(60)
    ]
    asked = request("Read notes.txt", *many, tool("read_file", "Read a text file and return its contents.", path=TEXT))
    notices, _, calls, _ = answer(model, asked)
    assert [notice.code for notice in notices] == ["tools_left_out"]
    assert "of 61 tools" in notices[0].message
    assert calls == [("read_file", {"path": "notes.txt"})]


@pytest.mark.slow
def test_an_old_turn_that_does_not_fit_is_left_out_with_a_notice(model: EmbeddedModel) -> None:
    conversation = Conversation()
    conversation.add_user("A long story: " + "and then he went home " * 900)
    conversation.add_model({"role": "model", "parts": [{"text": "I see."}]})
    conversation.add_user("Hello!")
    notices, text, _, finish = answer(model, ModelRequest(conversation=conversation))
    assert [notice.code for notice in notices] == ["history_trimmed"]
    assert (bool(text), finish) == (True, "STOP")


@pytest.mark.slow
def test_a_prompt_longer_than_the_context_is_a_sentence(model: EmbeddedModel) -> None:
    with pytest.raises(
        LimitExceededError, match=r"too long for callgate-tools-135m: the newest message, .* has room for \d+"
    ):
        answer(model, request("word " * 6_000))


@pytest.mark.slow
def test_an_answer_at_its_limit_of_tokens_says_so(model: EmbeddedModel) -> None:
    *_, calls, finish = answer(model, request("Who are you?", settings={"max_output_tokens": 2}))
    assert (calls, finish) == ([], "MAX_TOKENS")


@pytest.mark.slow
def test_tokens_are_counted_without_asking_the_model(model: EmbeddedModel) -> None:
    short, long = (asyncio.run(model.count_tokens(request(text))) for text in ("Hello!", "Hello! " * 100))
    assert 0 < short < long - 150


# --- the engine ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_whatever_the_grammar_file_writes_llama_cpp_can_read(model: EmbeddedModel) -> None:
    everything = tool(
        "act",
        "Acts.",
        text={"type": "string", "maxLength": 20, "minLength": 1},
        code={"type": "string", "pattern": "^[A-Z]{2}-\\d+\\.(x|y)?$"},
        day={"type": "string", "format": "date-time"},
        some={"type": "array", "items": {"enum": ['quo"te', "back\\slash", "new\nline", "ünï", 1, None]}, "maxItems": 3},
        deep={"type": "object", "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "boolean"}]}},
        free={},
    )
    words = ["payments-api", "a]b^c-d\\e", "ünï-code", 'qu"ote']
    body = {"prompt": "x", "max_tokens": 60, "stream": True, "temperature": 1.5, "seed": 7}

    async def ask() -> list[str]:
        await model.engine.ready()
        texts: list[str] = []
        for choice in ("auto", "required", "none"):
            grammar = grammar_of([everything, tool("other")], tool_choice=choice, words=words)
            events = [event async for event in model.engine.stream("/v1/completions", {**body, "grammar": grammar})]
            texts.append("".join(c.get("text") or "" for event in events for c in event["choices"]))
        return texts

    assert asyncio.run(ask())[1].startswith("TOOL_CALL: ")


@pytest.mark.slow
def test_a_request_that_llama_cpp_refuses_is_a_sentence(model: EmbeddedModel) -> None:
    async def ask() -> None:
        await model.engine.ready()
        async for _ in model.engine.stream("/v1/completions", {"prompt": "x", "grammar": "root ::= (", "stream": True}):
            pass

    with pytest.raises(InvalidRequestError, match=r"llama\.cpp refused the request"):
        asyncio.run(ask())


@pytest.mark.slow
def test_a_caller_that_goes_away_stops_the_work(model: EmbeddedModel) -> None:
    """A request that would run for minutes is left; the next one is answered, which it could not be while the first runs."""
    endless = {"prompt": "Once upon a time", "max_tokens": 3_000, "stream": True, "ignore_eos": True, "temperature": 0}

    async def ask() -> str:
        await model.engine.ready()
        events = model.engine.stream("/v1/completions", endless)
        await anext(events)
        await events.aclose()
        with_deadline = asyncio.wait_for(collected(model, request("Hello!")), timeout=60)
        return (await with_deadline)[1]

    assert asyncio.run(ask())


@pytest.mark.slow
def test_a_cancelled_run_leaves_the_model_free(model: EmbeddedModel) -> None:
    async def run() -> str:
        gate = Gate(model, tools=TOOLS)
        async for event in gate.stream("Tell me a short joke.", session="s"):
            if isinstance(event, TextDelta):
                gate.cancel("s")
        return (await gate.run("Hello!")).text

    assert asyncio.run(run())


@pytest.mark.slow
def test_gates_on_several_loops_share_one_process_and_all_are_answered(model: EmbeddedModel) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def ask(_: int) -> tuple[str, int | None]:
        other = EmbeddedModel(announce=False)
        return answer(other, request("Hello!"))[1], other.engine.pid

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    assert len(set(answers)) == 1


@pytest.mark.slow
def test_the_listener_is_a_private_socket_that_wants_a_secret(model: EmbeddedModel) -> None:
    import httpx2

    model.load()
    address = model.engine._address  # pyright: ignore[reportPrivateUsage]
    assert address.startswith("unix://")
    folder = Path(address.removeprefix("unix://")).parent
    assert folder.stat().st_mode & 0o077 == 0
    transport = httpx2.HTTPTransport(uds=address.removeprefix("unix://"))
    with httpx2.Client(transport=transport, base_url="http://engine") as client:
        assert client.post("/tokenize", json={"content": "x"}).status_code == 401


@pytest.mark.slow
def test_an_engine_that_was_killed_starts_again(model: EmbeddedModel) -> None:
    model.load()
    before = model.engine.pid
    assert before is not None
    os.kill(before, 9)
    process = model.engine._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    process.wait()
    assert answer(model, request("Hello!"))[1]
    assert model.engine.pid not in (None, before)


@pytest.mark.slow
def test_memory_stays_bounded_over_many_different_prompts(model: EmbeddedModel, scale: int) -> None:
    def resident() -> int:
        lines = Path(f"/proc/{model.engine.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024

    async def ask(prompts: range) -> None:
        for n in prompts:
            await collected(model, request(f"Remember {n}: {'apple pear ' * 60}", settings={"max_output_tokens": 1}))

    if sys.platform != "linux":
        pytest.skip("reads /proc")
    asyncio.run(ask(range(5)))
    before = resident()
    asyncio.run(ask(range(5, 5 + 15 * scale)))
    assert resident() < before + 40


# --- other files ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_another_model_answers_through_its_own_chat_template(embedded: None) -> None:
    path = find_base()
    assert path is not None
    other = EmbeddedModel(path, context=1024)
    assert other.name == "SmolLM2-135M-Instruct.Q4_1"
    *_, calls, finish = answer(other, request("Ring the bell.", tool("ring", "Ring the bell."), tool_choice="required"))
    assert (calls, finish) == ([("ring", {})], "STOP")
    _, text, calls, finish = answer(other, request("Say hello.", settings={"max_output_tokens": 30}))
    assert (bool(text), calls) == (True, [])
    assert finish in ("STOP", "MAX_TOKENS")
    other.engine.close()


@pytest.mark.slow
def test_a_file_with_a_good_head_and_a_broken_body_is_a_sentence_and_no_crash(embedded: None, tmp_path: Path) -> None:
    base = find_base()
    assert base is not None
    data = bytearray(Path(base).read_bytes())
    place = data.index(b"blk.0.attn_k.weight")
    data[place : place + 4] = b"nope"
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(data)
    with pytest.raises(UsageError, match=r"the embedded model does not start: llama\.cpp could not load the model"):
        answer(EmbeddedModel(broken), request("Hello!"))


def test_a_truncated_file_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    broken = tmp_path / "cut.gguf"
    broken.write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(UsageError, match=r"cut\.gguf' cannot be used as a model: it ends after 8 bytes"):
        EmbeddedModel(broken)


@pytest.mark.slow
def test_a_program_that_used_the_model_ends_quietly_and_takes_the_engine_along(embedded: None) -> None:
    code = (
        "import asyncio, json\n"
        "from callgate import Gate\n"
        "from callgate.models.embedded import EmbeddedModel\n"
        "model = EmbeddedModel(announce=False)\n"
        "reply = asyncio.run(Gate(model, tools=[]).run('Hello!'))\n"
        "print(json.dumps([model.engine.pid, reply.text]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    pid, text = json.loads(done.stdout)
    assert text
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_a_prepared_gate_has_read_the_tools_before_the_first_question(model: EmbeddedModel) -> None:
    def lighthouse(name: str) -> str:
        """Says how tall a lighthouse is."""
        return "40 m"

    async def usages() -> list[Usage]:
        async with Gate(model, tools=[lighthouse, *TOOLS]) as gate:
            await gate.prepare()
            return [event.usage async for event in gate.stream("Hello!") if isinstance(event, UsageReported)]

    (usage,) = asyncio.run(usages())
    assert usage.input_tokens - usage.cached_tokens < 30
    assert usage.cached_tokens > 200


@pytest.mark.slow
@pytest.mark.parametrize("state", ["whole", "cut off", "of another kind"])
def test_what_was_read_of_the_tools_is_taken_up_by_the_next_process(
    embedded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    weights = find_base()
    models = tmp_path / "callgate" / "models"
    models.mkdir(parents=True)
    os.symlink(weights, models / os.path.basename(weights))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engines.close_engines()
    (first,) = talk(EmbeddedModel(announce=False), "What is the weather in Oslo?")
    engines.close_engines()
    (kept,) = (tmp_path / "callgate" / "states").iterdir()
    if state == "cut off":
        kept.write_bytes(kept.read_bytes()[:10_000])
    elif state == "of another kind":  # and yet the file that was kept, as far as anybody can see
        kept.unlink()
        (kept.parent / "new.draft").write_bytes(b"no state at all")
        States(find_files(), kept.parent).keep("new.draft", kept.name.partition("-")[0])
    caplog.set_level("DEBUG", "callgate.embedded")
    (second,) = talk(EmbeddedModel(announce=False), "What is the weather in Oslo?")
    engines.close_engines()
    assert ("is read again" in caplog.text) == (state == "of another kind")
    assert (second.text, second.usage) == (first.text, first.usage)
    (again,) = kept.parent.iterdir()
    assert again.stat().st_size > 1_000_000
