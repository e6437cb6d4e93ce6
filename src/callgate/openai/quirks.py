"""The quirks of chat completions servers, one row for each, and how each is recognised.

A base URL, the headers and the answers of a server come in; a row of the table goes out, perhaps with what the server's own
errors have taught. This file sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from callgate.types import JsonObject

__all__ = [
    "LESSONS", "QUIRKS", "Quirks", "learned", "quirks_of_answer", "quirks_of_headers", "quirks_of_url",
    "tools_refused",
]  # fmt: skip

SAMPLING = frozenset({"top_k", "min_p", "repetition_penalty", "repeat_penalty"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """The quirks of one server. The defaults fit most of them."""

    server: str
    title: str
    start: str
    """The advice when nothing answers at its address."""
    max_tokens: str = "max_tokens"
    """The field for `max_output_tokens`."""
    stream_options: bool = True
    """True if a stream may be asked to count its tokens."""
    streams_tools: bool = True
    """True if a request with tools may be streamed; if not, its answer is asked for whole."""
    names_tool: bool = True
    """True if one tool can be asked for by name; if not, it is the only one declared, and a call is required."""
    parallel_tool_calls: bool = True
    """True if `parallel_tool_calls` is understood."""
    developer: re.Pattern[str] | None = None
    """The models for which the system message has the role `developer`."""
    root_must_be_object: bool = True
    """True if a schema of arguments with `anyOf` and the like at its root is refused."""
    id_chars_max: int = 256
    """The longest id of a call that is taken."""
    description_chars_max: int | None = None
    """The longest description of a tool that is taken; what is longer is cut, and says so."""
    tools_max: int | None = None
    """The limit of declared tools in one request."""
    schema: bool = True
    """True if an answer can be held to a JSON Schema."""
    schema_beside_tools: bool = False
    """True if it can while there are tools; most servers make calls impossible then, or refuse the request."""
    sends_reasoning_back: bool = False
    """True if the model's own thoughts belong into the history."""
    settings: frozenset[str] = SAMPLING
    """Settings that OpenAI itself does not have."""
    supports_tools: bool | None = None
    """True if its models have tools; None where that depends on the model."""
    tells_by: str | None = None
    """A path beside `/v1` at which the server tells whether its model has tools."""
    model_hint: str = ""
    """The advice for an unknown model; `{model}` is its name."""


def _row(**fields: Any) -> Quirks:
    return Quirks(**fields)


QUIRKS: Mapping[str, Quirks] = {
    row.server: row
    for row in (
        _row(
            server="openai",
            title="OpenAI",
            start="check the network, and OPENAI_BASE_URL",
            max_tokens="max_completion_tokens",
            developer=re.compile(r"o\d|gpt-5|gpt-[6-9]"),
            # "string too long. Expected a string with maximum length 40"
            id_chars_max=40,
            tools_max=128,
            schema_beside_tools=True,
            settings=frozenset(),
            supports_tools=True,
            model_hint="list the models with GET /v1/models, or check that this key may use it",
        ),
        _row(
            server="ollama",
            title="Ollama",
            start="start it with `ollama serve`",
            # It takes the field and ignores it.
            parallel_tool_calls=False,
            root_must_be_object=False,
            # Its OpenAI endpoint knows none of them; they are set in the Modelfile.
            settings=frozenset(),
            model_hint="fetch it with `ollama pull {model}`",
        ),
        _row(
            server="vllm",
            title="vLLM",
            start="start it with `vllm serve MODEL --enable-auto-tool-choice --tool-call-parser ...`",
            root_must_be_object=False,
            model_hint="it serves one model, under the name that --served-model-name gives it",
        ),
        _row(
            server="llama.cpp",
            title="llama.cpp",
            start="start it with `llama-server --jinja -m MODEL.gguf`",
            root_must_be_object=False,
            # Where the chat template has no tools, they are left out without a word, even if a call is required.
            tells_by="/props",
            model_hint="it serves the model that it was started with",
        ),
        _row(
            server="lm studio",
            title="LM Studio",
            start="switch its server on (Developer page, or `lms server start`)",
            # "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
            names_tool=False,
            root_must_be_object=False,
            model_hint="load it in LM Studio, or with `lms load {model}`",
        ),
        _row(
            server="generic",
            title="the server",
            start="check the base URL, and that the server runs",
            model_hint="list the models with GET /v1/models",
        ),
    )
}

# The ports at which local servers listen unless they are told otherwise.
_PORTS = {11434: "ollama", 8000: "vllm", 8080: "llama.cpp", 1234: "lm studio"}

_NO_TOOLS = re.compile(
    r"does not support tools"  # Ollama
    r"|tools param requires --jinja|unsupported param: tools"  # llama.cpp, now and before it had tools
    r"|tool choice requires --enable-auto-tool-choice|requires --tool-call-parser"  # vLLM
    r"|(?:tools?|function calling|tool (?:use|calling)) (?:is|are) not supported"
    r"|does not support (?:function|tool)[ -]?(?:calling|use|calls)",
    re.IGNORECASE,
)

_UNKNOWN = r"(?:unsupported|unknown|unrecogni[sz]ed|unexpected|extra|not (?:permitted|supported|allowed))"
# What a server's refusal teaches: words of its error -> what to do differently from then on.
LESSONS: tuple[tuple[re.Pattern[str], Mapping[str, Any]], ...] = (
    (re.compile(r"max_tokens.{0,80}max_completion_tokens", re.I | re.S), {"max_tokens": "max_completion_tokens"}),
    (
        re.compile(rf"{_UNKNOWN}.{{0,60}}max_completion_tokens|max_completion_tokens.{{0,60}}{_UNKNOWN}", re.I),
        {"max_tokens": "max_tokens"},
    ),
    (re.compile(r"stream_options", re.I), {"stream_options": False}),
    (re.compile(r"cannot use tools with stream|tools?.{0,40}not supported.{0,40}stream", re.I), {"streams_tools": False}),
    (re.compile(r"invalid tool_choice type: 'object'", re.I), {"names_tool": False}),
    (
        # OpenAI and Azure: "Invalid 'tools[0].function.description': string too long. Expected a string with maximum
        # length 1024". Not every model of theirs does so, and no other server, so nothing is cut before it is asked for.
        re.compile(r"description'?: string too long.{0,80}maximum length 1024\b", re.I),
        {"description_chars_max": 1024},
    ),
    (re.compile(r"missing .?reasoning_content", re.I), {"sends_reasoning_back": True}),
    (re.compile(r"response_format|json_schema|structured output", re.I), {"schema": False}),
    (
        re.compile(r"(?:role|message).{0,80}\bdeveloper\b|\bdeveloper\b.{0,80}(?:role|not one of)", re.I | re.S),
        {"developer": None},
    ),
)


def quirks_of_url(url: str) -> Quirks:
    """The row of the server that a base URL seems to lead to."""
    parsed = urlsplit(url)
    if f".{parsed.hostname}".endswith(".openai.com"):
        return QUIRKS["openai"]
    return QUIRKS[_PORTS.get(parsed.port or 0, "generic")]


def quirks_of_headers(headers: Mapping[str, str]) -> Quirks | None:
    """The row of the server that sent these headers, if they tell."""
    if headers.get("server", "").lower() == "llama.cpp":
        return QUIRKS["llama.cpp"]
    return QUIRKS["openai"] if "openai-processing-ms" in headers else None


def quirks_of_answer(chunk: JsonObject) -> Quirks | None:
    """The row of the server that sent this answer, if it tells."""
    return QUIRKS["ollama"] if chunk.get("system_fingerprint") == "fp_ollama" else None


def tools_refused(message: str) -> bool:
    """True if an error says that there are no tools to be had."""
    return bool(_NO_TOOLS.search(message))


def learned(quirks: Quirks, message: str) -> Quirks | None:
    """The row with what a refusal teaches about the server; None when it teaches nothing new."""
    none: Mapping[str, Any] = {}
    lesson = next((lesson for words, lesson in LESSONS if words.search(message)), none)
    wiser = replace(quirks, **lesson)
    return wiser if wiser != quirks else None
