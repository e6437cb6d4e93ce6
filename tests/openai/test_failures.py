"""Errors of chat completions in every form become typed errors that say what to do."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.errors import (
    AuthError,
    BlockedError,
    InvalidRequestError,
    LimitExceededError,
    ModelError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
    ToolsUnsupportedError,
)
from callgate.openai.failures import error_in, failure_of_body
from callgate.openai.quirks import QUIRKS
from callgate.wire.failures import Failure, Sent

SENT = Sent(model="m1", tools=["own add"], declared={"own_add": "own add"}, size_bytes=1_234)
NOW = 1_760_000_000.0


def failure(status: int | None, server: str = "openai", headers: dict[str, str] | None = None, **error: Any) -> Failure:
    return failure_of_body(status, error, headers or {}, now=NOW, sent=SENT, quirks=QUIRKS[server])


ROWS: list[tuple[int, dict[str, Any], str, type[ModelError], str]] = [
    (401, {"message": "Incorrect API key provided", "code": "invalid_api_key"}, "openai", AuthError, "check OPENAI_API_KEY"),
    (401, {"message": "Unauthorized"}, "vllm", AuthError, "pass the key of this server as api_key="),
    (403, {"message": "Country, region, or territory not supported", "code": "unsupported_country_region_territory"},
     "openai", AuthError, "not served in this region"),
    (404, {"message": "The model `m1` does not exist", "code": "model_not_found"}, "openai", InvalidRequestError,
     "there is no model 'm1' at OpenAI"),
    (404, {"message": 'model "m1" not found, try pulling it first'}, "ollama", InvalidRequestError, "`ollama pull m1`"),
    (404, {"message": "The model `m1` does not exist."}, "vllm", InvalidRequestError, "--served-model-name"),
    (404, {"message": "404 page not found"}, "generic", InvalidRequestError, "ends with /v1"),
    (400, {"message": "This model's maximum context length is 8192 tokens", "code": "context_length_exceeded"}, "openai",
     LimitExceededError, "1,234 bytes is too large for 'm1'"),
    (400, {"message": "request (15030 tokens) exceeds the available context size", "type": "exceed_context_size_error"},
     "llama.cpp", LimitExceededError, "too large"),
    (413, {"message": "Payload Too Large"}, "generic", LimitExceededError, "too large"),
    (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}, "openai", RateLimitedError,
     "the credit is used up"),
    (402, {"message": "Insufficient Balance"}, "generic", RateLimitedError, "the credit is used up"),
    (400, {"message": "registry.ollama.ai/library/m1 does not support tools"}, "ollama", ToolsUnsupportedError,
     "use mode='prompted'"),
    (500, {"message": "tools param requires --jinja flag", "type": "server_error"}, "llama.cpp", ToolsUnsupportedError,
     "cannot be given tools by llama.cpp"),
    (400, {"message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'}, "vllm",
     ToolsUnsupportedError, "by vLLM"),
    (500, {"message": "Unsupported param: tools"}, "llama.cpp", ToolsUnsupportedError, "mode='prompted'"),
    (500, {"message": "image input is not supported - hint: mmproj"}, "llama.cpp", InvalidRequestError,
    "refused the request"),
    (500, {"message": "Cannot use tools with stream"}, "llama.cpp", InvalidRequestError, "refused the request"),
    (400, {"message": "filtered", "code": "content_filter"}, "generic", BlockedError, "the prompt was blocked"),
    (400, {"message": "Invalid schema for function 'own_add': bad"}, "openai", InvalidRequestError, "the tool 'own add'"),
    (400, {"message": "bad", "param": "tools[0].function.parameters"}, "openai", InvalidRequestError, "the tool 'own add'"),
    (501, {"message": "Not Implemented"}, "generic", InvalidRequestError, "refused the request"),
]  # fmt: skip


@pytest.mark.rows(("status", "error", "server", "kind", "sentence"), ROWS)
def test_a_refusal_has_a_type_and_says_what_to_do(
    status: int, error: dict[str, Any], server: str, kind: type[ModelError], sentence: str
) -> None:
    found = failure(status, server, **error)
    assert type(found.error) is kind
    assert sentence in str(found.error)
    assert (found.retry, found.error.retryable, found.is_answer) == (False, False, True)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (408, RequestTimeoutError),
        (500, ServerUnavailableError),
        (502, ServerUnavailableError),
        (503, ServerUnavailableError),
        (504, RequestTimeoutError),
    ],
)
def test_trouble_of_the_server_is_tried_again(status: int, kind: type[ModelError]) -> None:
    found = failure(status, message="oops", headers={"retry-after": "3"})
    assert type(found.error) is kind
    assert (found.retry, found.wait_s, found.is_outage) == (True, 3.0, True)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None), ({"retry-after": "7"}, 7.0), ({"retry-after-ms": "1500"}, 1.5), ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 09 Oct 2025 08:53:25 GMT"}, 5.0), ({"retry-after": "1", "retry-after-ms": "2500"}, 2.5),
        ({"retry-after-ms": "-5"}, None),
    ],
)  # fmt: skip
def test_too_many_requests_wait_as_long_as_the_server_asks(headers: dict[str, str], wait_s: float | None) -> None:
    found = failure(429, message="Rate limit reached", headers=headers)
    assert (found.retry, found.wait_s, found.is_pressure) == (True, wait_s, True)
    assert isinstance(found.error, RateLimitedError)
    assert found.error.retry_after == wait_s


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "server_error", "message": "x"}, ServerUnavailableError),
        ({"type": "rate_limit_error", "message": "x"}, RateLimitedError),
        ({"type": "invalid_request_error", "message": "x"}, InvalidRequestError),
        ({"code": 401, "message": "x"}, AuthError),
        ({"code": "503", "message": "x"}, ServerUnavailableError),
        ({"message": "x"}, ServerUnavailableError),
    ],
)
def test_an_error_inside_a_stream_is_told_by_its_own_words(error: dict[str, Any], kind: type[ModelError]) -> None:
    assert type(failure(None, **error).error) is kind


def test_a_request_without_tools_is_never_said_to_lack_them() -> None:
    plain = Sent(model="m1", tools=[], size_bytes=1)
    found = failure_of_body(400, {"message": "it does not support tools"}, {}, now=NOW, sent=plain, quirks=QUIRKS["generic"])
    assert type(found.error) is InvalidRequestError


@pytest.mark.parametrize(
    ("chunk", "error"),
    [
        ({"error": {"message": "a"}}, {"message": "a"}),
        ({"error": "a sentence"}, {"message": "a sentence"}),
        ({"object": "error", "message": "a", "code": 400}, {"object": "error", "message": "a", "code": 400}),
        ({"detail": "Not Found"}, {"message": "Not Found"}),
        ({"detail": [{"msg": "bad"}]}, {"message": "[{'msg': 'bad'}]"}),
        ({"choices": [], "detail": "x"}, None),
        ({"choices": [], "error": None}, None),
        ({}, None),
    ],
)
def test_errors_are_found_in_every_form(chunk: dict[str, Any], error: dict[str, Any] | None) -> None:
    assert error_in(chunk) == error


def test_control_characters_and_endless_words_do_not_reach_the_message() -> None:
    told = str(failure(400, message="\x1b[31m" + "x" * 9_000).error)
    assert "\x1b" not in told
    assert len(told) < 2_200
