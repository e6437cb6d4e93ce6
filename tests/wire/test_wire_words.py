"""What all wires share: waits that servers ask for, words that are fit to be shown, and addresses that can be used."""

from __future__ import annotations

import pytest

from callgate.errors import ServerUnavailableError, UsageError
from callgate.wire.credentials import checked_base_url, checked_key, redact
from callgate.wire.failures import clean, refusal, seconds_of, wait_of_headers

NOW = 1_760_000_000.0


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("3", "", 3.0), ("2.5s", "s", 2.5), ("2.5", "s", None), ("-1", "", None), ("1e3", "", None), ("", "", None),
        ("999999999", "", None), ("5 ", "", None),
    ],
)  # fmt: skip
def test_seconds_are_read_and_nonsense_is_none(text: str, unit: str, expected: float | None) -> None:
    assert seconds_of(text, unit) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None), ({"retry-after": "4"}, 4.0), ({"retry-after-ms": "250"}, 0.25), ({"retry-after": "never"}, None),
        ({"retry-after": "Thu, 09 Oct 2025 08:53:30 GMT"}, 10.0), ({"retry-after": "Thu, 09 Oct 2025 08:53:30"}, 10.0),
        ({"retry-after": "Thu, 09 Oct 2024 08:53:30 GMT"}, 0.0), ({"retry-after": "Thu, 09 Oct 2099 08:53:30 GMT"}, None),
        ({"retry-after": "1", "retry-after-ms": "9000"}, 9.0),
    ],
)  # fmt: skip
def test_the_longest_wait_of_the_headers_counts(headers: dict[str, str], expected: float | None) -> None:
    assert wait_of_headers(headers, NOW) == expected


def test_words_of_a_server_are_cut_and_cleaned() -> None:
    assert clean("\x1b[31mred\x00\n\tend ") == "[31mred end"
    assert len(clean("x" * 9_000)) == 2_000


def test_a_refusal_is_the_last_word() -> None:
    error = ServerUnavailableError("no")
    found = refusal(error)
    assert (found.error, found.retry, found.is_answer, found.is_outage) == (error, False, True, False)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "HTTPS://example.org", "https://a.b./c/", "http://[::1]:1"])
def test_a_base_url_may_have_a_port_and_a_path(url: str) -> None:
    assert checked_base_url(url) == url


@pytest.mark.parametrize("url", [
    "", "example.org", "ftp://example.org", "https://", "https://a b", "https://a?key=1", "https://a#b", "https://:80",
    "https://a:0", "https://a:b", "https://a:70000", "https://a..b", f"https://{'a' * 64}.org", "https://[::1", "https://@",
])  # fmt: skip
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not valid"):
        checked_base_url(url)


@pytest.mark.parametrize("key", ["", "two words", "line\nend", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(UsageError, match="the key for them is empty or holds") as raised:
        checked_key(key, "them")
    assert not key or key not in str(raised.value)


def test_a_short_secret_stands_in_many_a_word_and_is_left_alone() -> None:
    assert redact("a key is a key", ["key"]) == "a key is a key"
    assert redact("the key long-secret-1", ["long-secret-1"]) == "the key [key]"
    assert redact("cut at long-se", ["long-secret-1"]) == "cut at long-se"
    assert redact("cut at long-secr", ["long-secret-1"]) == "cut at [key]"
