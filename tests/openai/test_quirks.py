"""Which server it is, and what its refusals teach."""

from __future__ import annotations

from dataclasses import replace

import pytest

from callgate.openai.quirks import (
    LESSONS,
    QUIRKS,
    learned,
    quirks_of_answer,
    quirks_of_headers,
    quirks_of_url,
    tools_refused,
)
from callgate.wire.credentials import is_local


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://api.openai.com/v1", "openai"), ("https://eu.api.openai.com/v1", "openai"),
        ("https://notopenai.com/v1", "generic"), ("http://localhost:11434/v1", "ollama"),
        ("http://127.0.0.1:8000/v1", "vllm"),
        ("http://127.0.0.1:8080/v1", "llama.cpp"), ("http://localhost:1234/v1", "lm studio"),
        ("https://openrouter.ai/api/v1", "generic"),
    ],
)  # fmt: skip
def test_a_server_is_guessed_from_its_address(url: str, server: str) -> None:
    assert quirks_of_url(url).server == server


def test_a_server_is_known_by_what_it_says() -> None:
    assert quirks_of_headers({"server": "llama.cpp"}) is QUIRKS["llama.cpp"]
    assert quirks_of_headers({"openai-processing-ms": "3"}) is QUIRKS["openai"]
    assert quirks_of_headers({"server": "uvicorn"}) is None
    assert quirks_of_answer({"system_fingerprint": "fp_ollama"}) is QUIRKS["ollama"]
    assert quirks_of_answer({"system_fingerprint": "b0-unknown"}) is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:1/v1", True), ("http://127.0.0.1/v1", True), ("http://127.8.8.8/v1", True),
        ("http://[::1]:5/v1", True),
        ("http://0.0.0.0:8000/v1", True), ("http://box.localhost/v1", True), ("http://localhost.example.org/v1", False),
        ("http://192.168.0.2:11434/v1", False), ("https://api.openai.com/v1", False),
    ],
)  # fmt: skip
def test_only_this_machine_is_local(url: str, expected: bool) -> None:
    assert is_local(url) is expected


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
         {"max_tokens": "max_completion_tokens"}),
        ("Unrecognized request argument supplied: stream_options", {"stream_options": False}),
        ("Cannot use tools with stream", {"streams_tools": False}),
        ("Invalid tool_choice type: 'object'. Supported string values: none, auto, required", {"names_tool": False}),
        ("Invalid 'tools[13].function.description': string too long. Expected a string with maximum length 1024, but got a "
         "string with length 1103 instead.", {"description_chars_max": 1024}),
        ("Missing `reasoning_content` field in the assistant message at message index 2", {"sends_reasoning_back": True}),
    ],
)  # fmt: skip
def test_a_refusal_that_says_what_is_wanted_is_a_lesson_once(message: str, change: dict[str, object]) -> None:
    wiser = learned(QUIRKS["generic"], message)
    assert wiser == replace(QUIRKS["generic"], **change)
    assert wiser is not None
    assert learned(wiser, message) is None


def test_the_two_names_of_the_limit_do_not_take_turns_for_ever() -> None:
    wiser = learned(QUIRKS["openai"], "unknown field: max_completion_tokens")
    assert wiser is not None
    assert wiser.max_tokens == "max_tokens"
    assert learned(QUIRKS["openai"], "'max_tokens' is not supported. Use 'max_completion_tokens' instead.") is None


def test_a_model_that_has_no_developer_gets_a_system_message() -> None:
    told = "Invalid value: 'developer' is not one of ['system', 'assistant', 'user', 'function'] - 'messages.0.role'"
    wiser = learned(QUIRKS["openai"], told)
    assert wiser is not None
    assert wiser.developer is None


@pytest.mark.parametrize("message", ["bad request", "messages: field required", "The model is overloaded", ""])
def test_other_refusals_teach_nothing(message: str) -> None:
    assert learned(QUIRKS["generic"], message) is None
    assert not tools_refused(message)


def test_every_lesson_changes_a_field_that_a_row_has() -> None:
    for _, lesson in LESSONS:
        replace(QUIRKS["generic"], **lesson)
    assert {row.server for row in QUIRKS.values()} == {*QUIRKS}
