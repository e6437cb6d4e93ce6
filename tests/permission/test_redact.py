"""No secret stays, and what is none does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.permission.redact import SHAPES, TEXT_CHARS_MAX, Redactor, environment_secrets, is_secret_name

_spec = importlib.util.spec_from_file_location("secrets_made_up", Path(__file__).with_name("secrets_made_up.py"))
assert _spec is not None
assert _spec.loader is not None
made = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(made)

SECRETS: dict[str, str] = made.made_up()
CLEAN = Redactor()


def test_there_are_a_hundred_secrets_and_thirty_shapes():
    assert len(SECRETS) >= 100
    assert len(SHAPES) >= 30


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("around", ["{}", "see {} here", 'x="{}";', "a\n{}\nb", "({})"])
def test_a_secret_does_not_stay_wherever_it_stands(text: str, around: str):
    core = made.core_of(text)
    cleaned = CLEAN.text(around.format(text))
    assert core not in cleaned
    assert "[redacted" in cleaned
    value = CLEAN.value({"a": [around.format(text), {around.format(text): 1}]})
    assert core not in repr(value)


@pytest.mark.parametrize(
    "text",
    [
        "The password is needed here.",
        "the tokens of the keyboard",
        "src/callgate/permission/policy.py",
        "https://example.com/a/b?c=d#e",
        "max_tokens: 5",
        "a" * 300,
        "0123456789" * 8,
        "550e8400-e29b-41d4-a716-446655440000",
        "Zürich 東京 🙂",
        "",
        "sk-",
        "x@example.com",
        "time 12:30:00 and ratio 3:4",
        "call_0123456789abcdef",
        "def authenticate(user): pass",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str):
    assert CLEAN.text(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "Password",
        "PASSWD",
        "api_key",
        "apiKey",
        "X-Api-Key",
        "token",
        "access_token",
        "Authorization",
        "clientSecret",
        "aws_secret_access_key",
        "private-key",
        "cookie",
        "Set-Cookie",
        "auth",
        "pin",
        "db_password",
        "sessionid",
        "credentials",
        "jwt",
        "otp",
    ],
)
def test_what_stands_under_such_a_name_is_a_secret_whatever_it_is(name: str):
    assert is_secret_name(name)
    assert CLEAN.value({name: "x", "y": 1}) == {name: "[redacted]", "y": 1}
    assert CLEAN.value({name: {"deep": ["x"]}}) == {name: "[redacted]"}
    assert CLEAN.value({name: 1234}) == {name: "[redacted]"}
    assert CLEAN.value({name: None}) == {name: None}


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "tokens",
        "token_count",
        "path",
        "key_figure",
        "monkey",
        "author",
        "passenger",
        "tokenizer",
        "total_tokens",
        "compass",
    ],
)
def test_names_that_only_sound_alike_are_none(name: str):
    assert not is_secret_name(name)


def test_known_secrets_are_found_in_any_text_and_short_ones_are_not_looked_for():
    redactor = Redactor(["hunter2hunter2", "hunter2hunter2-and-more", "abc"])
    assert redactor.text("say hunter2hunter2-and-more, abc") == "say [redacted: known secret], abc"
    assert redactor.text("xhunter2hunter2y") == "x[redacted: known secret]y"


def test_a_long_text_is_its_beginning_its_length_and_its_hash():
    secret = SECRETS["jwt"]
    text = f"{secret} " + "a" * TEXT_CHARS_MAX
    short = CLEAN.value(text)
    assert short.startswith("[redacted: json web token] aaa")
    assert short.endswith("]")
    assert f"{len(text)} characters, sha256 " in short
    assert len(short) < 400


def test_a_secret_across_the_cut_does_not_stay():
    secret = SECRETS["rsa key"]
    for start in range(100, 260, 7):
        assert made.core_of(secret)[:16] not in CLEAN.value("x" * start + " " + secret + "y" * 3_000)


def test_deep_and_odd_values_are_taken_as_they_come():
    deep: Any = "end"
    for _ in range(60):
        deep = {"a": [deep]}
    assert "[too deep]" in repr(CLEAN.value(deep))
    listed: Any = "end"
    for _ in range(60):
        listed = [listed]
    assert "[too deep]" in repr(CLEAN.value(listed))
    assert CLEAN.value((1, 2.5, None, True)) == [1, 2.5, None, True]

    class Odd(dict[Any, Any]):
        pass

    from types import MappingProxyType

    assert CLEAN.value(MappingProxyType({1: "a"})) == {"1": "a"}
    assert CLEAN.value(Odd(a=1)) == {"a": 1}
    assert CLEAN.value({"n": 10**400, "o": frozenset({1})}) == {"n": 10**400, "o": "frozenset({1})"}


@given(st.text(max_size=300), st.sampled_from(list(SECRETS.values())), st.text(max_size=300))
def test_no_surroundings_bring_a_named_secret_back(before: str, secret: str, after: str):
    cleaned = CLEAN.text(f"{before} {secret} {after}")
    assert made.core_of(secret) not in cleaned


@pytest.mark.parametrize(
    "piece",
    [
        "eyJ",
        "token",
        "://a:",
        "sk-",
        "-----BEGIN PRIVATE KEY-----",
        "password=",
        "1//0",
        "pat",
        'secret"',
        "bearer ",
        "a",
        "M.",
        "auth: ",
    ],
)
def test_hostile_repetition_is_read_to_its_end(piece: str):
    # Would take hours with an engine that backtracks into itself.
    CLEAN.text(piece * (200_000 // len(piece)))


def test_places_among_variables_are_no_secrets_and_passwords_are():
    places = {"PWD": "/srv/project", "OLDPWD": "/srv/other", "XDG_SESSION_ID": "session-0001", "TOKEN_FILE": "/run/token-1"}
    secrets = {"DB_PWD": "correct-horse", "MY_TOKEN": "abcdefghijkl", "PASSWORD": "hunter2hunter2"}
    assert environment_secrets({**places, **secrets}) == list(secrets.values())
