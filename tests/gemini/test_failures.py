"""Status codes, headers, error bodies and exceptions of the network, each as the one error that it is."""

from __future__ import annotations

import email.utils
import errno
import socket
import ssl
from typing import Any

import httpx2
import pytest

from callgate.errors import (
    AuthError,
    ConnectionLostError,
    InvalidRequestError,
    LimitExceededError,
    ModelError,
    ProtocolError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
)
from callgate.gemini.failures import error_in, failure_of_body
from callgate.wire.failures import Failure, Sent, StaleConnectionError, failure_of_exception

NOW = 1_800_000_000.0
SENT = Sent(model="gemini-3.8-flash", tools=["git status", "read_file"], size_bytes=12_345)


def of_body(status: int | None = None, headers: dict[str, str] | None = None, /, **error: Any) -> Failure:
    return failure_of_body(status, error, headers or {}, now=NOW, sent=SENT)


def limited(*details: Any, **headers: str) -> Failure:
    return of_body(429, {name.replace("_", "-"): value for name, value in headers.items()}, details=list(details))


def http_date(seconds: float) -> str:
    return email.utils.formatdate(seconds, usegmt=True)


def retry_info(delay: Any) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


# Codes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.rows(
    ("code", "kind", "retry"),
    [
        (400, InvalidRequestError, False), (401, AuthError, False), (402, RateLimitedError, False), (403, AuthError, False),
        (404, InvalidRequestError, False), (405, InvalidRequestError, False), (408, RequestTimeoutError, True),
        (409, InvalidRequestError, False), (413, LimitExceededError, False), (429, RateLimitedError, True),
        (499, ServerUnavailableError, False),
        (500, ServerUnavailableError, True), (501, InvalidRequestError, False), (502, ServerUnavailableError, True),
        (503, ServerUnavailableError, True), (504, RequestTimeoutError, True), (529, ServerUnavailableError, True),
    ],
)  # fmt: skip
def test_every_code_is_one_error_and_is_tried_again_or_not(code: int, kind: type[ModelError], retry: bool) -> None:
    failure = of_body(code, message="So it is.")
    assert type(failure.error) is kind
    assert failure.retry is retry
    assert "So it is." in str(failure.error)
    assert failure.is_outage == (code == 408 or (retry and code >= 500))
    assert failure.is_pressure == (code == 429)
    assert failure.is_answer == (not retry)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"status": "RESOURCE_EXHAUSTED"}, RateLimitedError), ({"status": "UNAVAILABLE"}, ServerUnavailableError),
        ({"status": "PERMISSION_DENIED"}, AuthError), ({"status": "NOT_FOUND"}, InvalidRequestError),
        ({"status": "DEADLINE_EXCEEDED"}, RequestTimeoutError), ({"status": "NEW_WORD"}, ServerUnavailableError),
        ({}, ServerUnavailableError),
        ({"code": "429"}, ServerUnavailableError), ({"code": True}, ServerUnavailableError),
        ({"code": 200}, ServerUnavailableError),
        ({"code": 404, "status": "UNAVAILABLE"}, InvalidRequestError),
        ({"status": ["x"], "message": {"a": 1}}, ServerUnavailableError),
    ],
)  # fmt: skip
def test_an_error_inside_a_stream_is_told_by_its_code_or_word(error: dict[str, Any], kind: type[ModelError]) -> None:
    assert type(of_body(**error).error) is kind


def test_the_code_in_the_body_beats_the_status_of_the_response() -> None:
    assert type(of_body(500, code=429).error) is RateLimitedError


def test_an_object_or_a_sentence_under_error_is_an_error() -> None:
    assert error_in({"error": {"code": 1}}) == {"code": 1}
    assert error_in({"error": "no such route"}) == {"message": "no such route"}
    for chunk in ({}, {"error": None}, {"error": ""}, {"error": []}):
        assert error_in(chunk) is None


# Waits -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "wait_s"),
    [
        ("2.5s", 2.5), ("17s", 17.0), ("0s", 0.0), ("86400s", 86_400.0), ("abc", None), ("-5s", None), (None, None),
        (-5, None), ("5", None), ("1000000000s", None), ("1e3s", None), ("infs", None), ("", None), ("s", None),
        ({"seconds": 3}, None),
    ],
)  # fmt: skip
def test_a_delay_in_the_body_counts_if_it_is_one(delay: Any, wait_s: float | None) -> None:
    failure = limited(retry_info(delay))
    assert failure.wait_s == wait_s
    assert failure.error.retry_after == wait_s  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("3", 3.0), ("2.5", 2.5), (" 7 ", 7.0), ("-3", None), ("soon", None), ("nan", None), ("99999999999999999999", None),
        ("", None), (http_date(NOW + 90), 90.0), (http_date(NOW - 90), 0.0),
        (http_date(NOW + 90).replace("GMT", "-0000"), 90.0), ("Mon, 99 Foo 2026 00:00:00 GMT", None),
        ("Mon, 31 Feb 2026 00:00:00 GMT", None),
    ],
)  # fmt: skip
def test_a_retry_after_header_counts_if_it_is_one(header: str, wait_s: float | None) -> None:
    assert limited(retry_after=header).wait_s == wait_s


def test_the_longer_of_two_waits_counts() -> None:
    assert limited(retry_after="2, 7").wait_s == 7
    assert limited(retry_info("3s"), retry_after="1").wait_s == 3
    assert limited(retry_info("1s"), retry_info("2s"), retry_after="5").wait_s == 5


def test_an_outage_may_ask_for_a_wait_too() -> None:
    assert of_body(503, {"retry-after": "4"}).wait_s == 4


def test_a_quota_of_the_day_is_not_waited_for_and_is_named() -> None:
    violations = [{"quotaId": "PerMinute"}, {"quotaId": "GenerateRequestsPerDayPerProject"}]
    failure = limited({"violations": violations}, retry_info("17s"))
    assert not failure.retry
    assert not failure.is_pressure
    assert failure.error.quota == "GenerateRequestsPerDayPerProject"  # type: ignore[attr-defined]
    assert not failure.error.retryable


def test_another_quota_is_named_and_waited_for() -> None:
    failure = limited({"violations": [{"quotaId": "RequestsPerMinute"}]})
    assert failure.retry
    assert failure.error.quota == "RequestsPerMinute"  # type: ignore[attr-defined]


@pytest.mark.parametrize("details", [None, "x", [None, 1, "x"], [{"violations": "x"}], [{"violations": [1]}]])
def test_details_that_are_none_are_passed_over(details: Any) -> None:
    assert type(of_body(429, details=details).error) is RateLimitedError
    assert type(of_body(400, details=details).error) is InvalidRequestError


# Refusals ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        "tools[0].function_declarations[1].parameters.properties[2]",
        "GenerateContentRequest.tools[0].function_declarations[1].name",
        "tools[0].functionDeclarations[1].parametersJsonSchema",
    ],
)
def test_a_refused_declaration_names_its_tool_from_field_or_message(place: str) -> None:
    by_field = of_body(400, message="Bad.", details=[{"fieldViolations": [{"field": place, "description": "no"}]}]).error
    by_message = of_body(400, message=f"* {place}: should be non-empty").error
    for error in (by_field, by_message):
        assert isinstance(error, InvalidRequestError)
        assert error.tool == "read_file"
        assert "'read_file'" in str(error)
        assert "[1]" in error.field


def test_a_place_beyond_the_tools_names_none() -> None:
    error = of_body(400, message="tools[0].function_declarations[7]: bad").error
    assert isinstance(error, InvalidRequestError)
    assert error.tool is None
    assert error.field == "tools[0].function_declarations[7]"


def test_an_unknown_model_is_named_whatever_the_server_says() -> None:
    assert "'gemini-3.8-flash'" in str(of_body(404, message="Not found.").error)


def test_a_request_that_is_too_large_is_told_with_its_size() -> None:
    assert "12,345 bytes" in str(of_body(413, message="Too large").error)


@pytest.mark.parametrize(
    "error",
    [
        {"message": "User location is not supported for the API use."},
        {"message": "No.", "details": [{"reason": "LOCATION_NOT_SUPPORTED"}]},
    ],
)
@pytest.mark.parametrize("code", [400, 403])
def test_a_region_that_is_not_served_is_told_apart(code: int, error: dict[str, Any]) -> None:
    told = of_body(code, **error).error
    assert type(told) is AuthError
    assert "region" in str(told)


def test_a_wrong_key_is_an_auth_error_although_google_says_400() -> None:
    assert type(of_body(400, message="No.", details=[{"reason": "API_KEY_INVALID"}]).error) is AuthError


def test_a_cached_content_that_does_not_exist_is_a_refused_request_although_google_says_403() -> None:
    told = of_body(403, message="CachedContent not found (or permission denied)", status="PERMISSION_DENIED").error
    assert isinstance(told, InvalidRequestError)
    assert (told.field, told.status) == ("cached_content", "PERMISSION_DENIED")


def test_messages_are_bounded_and_without_control_characters() -> None:
    told = str(of_body(500, message="a\x1b[31m\n\r\x00b" + "x" * 10_000).error)
    assert len(told) < 2_200
    assert not any(ord(character) < 32 for character in told)


# The network -------------------------------------------------------------------------------------------------------------


@pytest.mark.rows(
    ("error", "kind", "retry"),
    [
        (httpx2.ConnectError("refused"), ConnectionLostError, True),
        (httpx2.ConnectTimeout("late"), RequestTimeoutError, True),
        (httpx2.PoolTimeout(""), RequestTimeoutError, True), (httpx2.ReadError(""), ConnectionLostError, True),
        (httpx2.WriteError(""), ConnectionLostError, True), (httpx2.CloseError(""), ConnectionLostError, True),
        (httpx2.RemoteProtocolError("Server disconnected without sending a response."), ConnectionLostError, True),
        (httpx2.RemoteProtocolError("illegal chunk header"), ProtocolError, True),
        (httpx2.LocalProtocolError("Illegal header value"), ProtocolError, False),
        (httpx2.DecodingError("incorrect header check"), ProtocolError, False),
        (httpx2.UnsupportedProtocol("ftp"), ProtocolError, False), (httpx2.InvalidURL("no"), ProtocolError, False),
        (httpx2.ProxyError("407 No"), AuthError, False), (httpx2.ProxyError("502 No"), ConnectionLostError, True),
        (StaleConnectionError("closed"), ConnectionLostError, True),
        (ssl.SSLError(1, "[SSL] bad record mac"), ConnectionLostError, True),
        (ConnectionResetError("reset"), ConnectionLostError, True),
        (ssl.SSLCertVerificationError("expired"), ConnectionLostError, False),
        (ssl.SSLEOFError("eof"), ConnectionLostError, True),
        (AuthError("no"), AuthError, False), (ProtocolError("cut", retryable=True), ProtocolError, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)  # fmt: skip
def test_every_exception_of_the_network_is_one_error(error: Exception, kind: type[ModelError], retry: bool) -> None:
    failure = failure_of_exception(error)
    assert type(failure.error) is kind
    assert failure.retry is retry
    assert failure.error.retryable is retry


def test_exceptions_of_httpx_are_the_same_errors_as_those_of_httpx2() -> None:
    httpx = pytest.importorskip("httpx")
    for name in ("ConnectError", "ReadError", "RemoteProtocolError", "ProxyError", "ConnectTimeout", "DecodingError"):
        ours, theirs = (failure_of_exception(getattr(module, name)("x")) for module in (httpx2, httpx))
        assert (type(ours.error), ours.retry, ours.is_outage) == (type(theirs.error), theirs.retry, theirs.is_outage)


@pytest.mark.parametrize(
    ("cause", "is_outage"),
    [
        (socket.gaierror(-2, "Name or service not known"), False),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), False),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), True),
    ],
)
def test_what_is_wrong_with_the_network_here_is_no_outage_of_the_server(cause: OSError, is_outage: bool) -> None:
    error = httpx2.ConnectError("no")
    error.__cause__ = cause
    failure = failure_of_exception(error)
    assert failure.retry
    assert failure.is_outage is is_outage


def test_a_damaged_record_in_the_middle_of_an_answer_is_a_broken_connection_and_tried_again() -> None:
    error = httpx2.ReadError("no")
    error.__cause__ = ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed or bad record mac")
    failure = failure_of_exception(error)
    assert "the connection broke" in str(failure.error)
    assert failure.retry


def test_a_damaged_record_in_a_handshake_is_a_broken_connection_and_tried_again() -> None:
    cause = ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed or bad record mac")
    cause.reason = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
    error = httpx2.ConnectError("no")
    error.__cause__ = cause
    failure = failure_of_exception(error)
    assert "no connection to the server" in str(failure.error)
    assert failure.retry


def test_a_certificate_that_is_not_trusted_is_found_behind_other_errors() -> None:
    error = httpx2.ConnectError("")
    error.__context__ = OSError()
    error.__context__.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    failure = failure_of_exception(error)
    assert "self-signed certificate" in str(failure.error)
    assert not failure.retry


def test_a_handshake_that_was_only_slow_is_not_a_matter_of_trust() -> None:
    error = httpx2.ConnectTimeout("")
    error.__context__ = ssl.SSLWantReadError()
    assert failure_of_exception(error).retry
