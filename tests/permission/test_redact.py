"""No secret stays, and what is none does."""

from __future__ import annotations

import asyncio
import base64
import codecs
import html
import importlib.util
import json
import random
import string
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Gate, GeminiModel, ScriptedModel
from callgate.config.known_secrets import remember_secrets, remember_secrets_in
from callgate.permission.redact import SHAPES, TEXT_CHARS_MAX, Redactor, environment_secrets, is_secret_name
from callgate.testing import call

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


@pytest.mark.rows("text", SECRETS.values(), ids=SECRETS)
@pytest.mark.rows("around", ["{}", "see {} here", 'x="{}";', "a\n{}\nb", "({})"])
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


@pytest.mark.rows(
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


# --- names, pairs and encodings ------------------------------------------------------------------------------------------


@pytest.mark.rows(
    "name",
    [
        "db_pass", "smtp_pass", "github_pat", "GH_PAT", "DB_PASS", "auth_header", "ssh_key", "master_key", "access_tokens",
        "refresh_tokens", "authTokens", "dbPass", "api-keys", "encryptionKey", "MY_CREDS", "pats", "wifi_psk", "pw",
        "recovery_codes", "backupCodes",
    ],
)  # fmt: skip
def test_more_names_of_secrets_are_known(name: str):
    assert is_secret_name(name)
    assert Redactor().value({name: ["s3cr3t-of-mine"]}) == {name: "[redacted]"}


def test_tokens_are_shown_as_a_number_and_hidden_as_texts():
    shown = Redactor().value({"tokens": 512, "max_tokens": 5, "access_tokens": 7})
    assert shown == {"tokens": 512, "max_tokens": 5, "access_tokens": 7}
    assert Redactor().value({"tokens": ["s3cr3t-of-mine"]}) == {"tokens": "[redacted]"}


@pytest.mark.parametrize("name", ["cached_access_token", "used_refresh_token", "input_token", "prompt_tokens"])
def test_a_name_that_may_count_tokens_hides_a_text_and_shows_a_number(name: str):
    shown: list[Any] = [7, 1.5, "4096", "128k", {"cached_tokens": 5}, [1, 2]]
    assert [Redactor().value({name: value})[name] for value in shown] == shown
    assert [Redactor().value({name: value})[name] for value in ("s3cr3t-of-mine", ["s3cr3t-of-mine"])] == ["[redacted]"] * 2
    environment = {name.upper(): "s3cr3t-of-mine", "MAX_TOKENS": "4096", "TOKENIZER": "cl100k_base"}
    assert environment_secrets(environment) == ["s3cr3t-of-mine"]


def test_a_table_called_tokens_is_hidden():
    assert Redactor().value({"tokens": {"a": "s3cr3t-of-mine"}}) == {"tokens": "[redacted]"}


def test_a_value_beside_its_name_is_hidden():
    redactor = Redactor()
    assert redactor.value({"name": "Authorization", "value": "Zm9vYmFy"}) == {"name": "Authorization", "value": "[redacted]"}
    assert redactor.value(["--password", "s3cretpw", "-v"]) == ["--password", "[redacted]", "-v"]
    assert redactor.value(["--pin", "1234"]) == ["--pin", "[redacted]"]
    assert redactor.value(["password", ["s3cretpw"], "token", 5]) == ["password", "[redacted]", "token", 5]
    assert redactor.value([["X-Api-Key", "s3cretpw"]]) == [["X-Api-Key", "[redacted]"]]
    assert redactor.value({"name": "color", "value": "red"}) == {"name": "color", "value": "red"}
    assert redactor.value([]) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"arguments": "{\\"password\\": \\"hunter42x\\"}"}',
        '{"a": "{\\"b\\": \\"{\\\\\\"password\\\\\\": \\\\\\"hunter42x\\\\\\"}\\"}"}',
        '{"password": "p\\"hunter42x"}',
        "https://x.test/v1?key=hunter42x",
        "master_key = hunter42x",
    ],
)
def test_a_named_secret_is_found_however_its_quotes_are_escaped(text: str):
    assert "hunter42x" not in Redactor().text(text)


def test_new_keys_of_google_have_a_shape():
    key = "AQ.Ab8RN6" + "x" * 40
    assert key not in Redactor().text(f"the key {key} is mine")


def test_the_folder_that_a_program_is_in_is_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setenv("MY_TOKEN_FILE_TOKEN", str(tmp_path))
    monkeypatch.setenv("OTHER_TOKEN", "/not/a/path/that/is/there")
    assert Redactor().text(f"{tmp_path}/a.txt") == f"{tmp_path}/a.txt"
    assert "not/a/path" not in Redactor().text("see /not/a/path/that/is/there")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 after one byte": lambda s: base64.b64encode(b"a" + s.encode()).decode(),
    "base64 after two bytes": lambda s: base64.b64encode(b"ab" + s.encode() + b"c").decode(),
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(s.encode()).decode().rstrip("="),
    "basic authentication": lambda s: "Basic " + base64.b64encode(f"user:{s}".encode()).decode(),
    "base64 over lines": lambda s: "\n".join(textwrap.wrap(base64.b64encode(s.encode()).decode(), 10)),
    "base32": lambda s: base64.b32encode(s.encode()).decode(),
    "hexadecimal": lambda s: s.encode().hex(),
    "hexadecimal in capitals": lambda s: s.encode().hex().upper(),
    "percent": lambda s: quote(s, safe=""),
    "percent, every character": lambda s: "".join(f"%{byte:02X}" for byte in s.encode()),
    "percent twice": lambda s: quote(quote(s, safe=""), safe=""),
    "JSON": json.dumps,
    "JSON in JSON": lambda s: json.dumps(json.dumps({"a": s})),
    "JSON in JSON in JSON": lambda s: json.dumps(json.dumps(json.dumps([s]))),
    "unicode escapes": lambda s: "".join(f"\\u{ord(c):04x}" for c in s),
    "long unicode escapes": lambda s: "".join(f"\\U{ord(c):08x}" for c in s),
    "some long unicode escapes": lambda s: "".join(f"\\U{ord(c):08x}" if n % 3 else c for n, c in enumerate(s)),
    "unicode escapes in braces": lambda s: "".join(f"\\x{{{ord(c):06x}}}" for c in s),
    "unicode escapes of percent": lambda s: "".join(f"%u{ord(c):04x}" if n % 3 else c for n, c in enumerate(s)),
    "code points": lambda s: " ".join(f"U+{ord(c):04X}" for c in s),
    "hexadecimal escapes": lambda s: "".join(f"\\x{ord(c):02x}" for c in s),
    "HTML": html.escape,
    "HTML numbers": lambda s: "".join(f"&#{ord(c)};" for c in s),
    "two lines": lambda s: f"{s[:9]}\n{s[9:]}",
    "joined texts": lambda s: f'"{s[:9]}" "{s[9:]}"',
    "capitals": str.upper,
    "reversed": lambda s: s[::-1],
    "rot13": lambda s: codecs.encode(s, "rot13"),
    "base64 of base64": lambda s: base64.b64encode(base64.b64encode(s.encode())).decode(),
    "base64 of base64 of base64, inside": lambda s: _base64(f"ab{_base64(f'c{_base64(s)}')}d"),
    "hexadecimal of base64": lambda s: base64.b64encode(s.encode()).hex(),
    "base64 of hexadecimal": lambda s: base64.b64encode(s.encode().hex().encode()).decode(),
    "base64 of JSON": lambda s: base64.b64encode(json.dumps({"key": s}).encode()).decode(),
    "base64 of percent": lambda s: base64.b64encode(quote(s, safe="").encode()).decode(),
    "base64 of UTF-16": lambda s: base64.b64encode(s.encode("utf-16-le")).decode(),
    "hexadecimal of UTF-16": lambda s: s.encode("utf-16").hex(),
    "hexadecimal with colons": lambda s: s.encode().hex(":"),
    "hexadecimal of C": lambda s: ", ".join(f"0x{byte:02x}" for byte in s.encode()),
    "UTF-16": lambda s: s.encode("utf-16-le").decode("latin-1"),
    "numbers": lambda s: str(list(s.encode())),
    "bits": lambda s: " ".join(f"{byte:08b}" for byte in s.encode()),
    "octal escapes": lambda s: "".join(f"\\{byte:03o}" for byte in s.encode()),
    "quoted-printable": lambda s: "".join(f"={byte:02X}" for byte in s.encode()),
    "base85": lambda s: base64.b85encode(s.encode()).decode(),
    "base64 reversed": lambda s: base64.b64encode(s.encode()).decode()[::-1],
    "reversed in base64": lambda s: base64.b64encode(s[::-1].encode()).decode(),
    "form of a page": lambda s: quote(s, safe="").replace("%20", "+"),
    "colours inside": lambda s: f"{s[:5]}\x1b[01;31m{s[5:]}",
    "a mixture": lambda s: "".join(f"%{ord(c):02x}" if n % 2 else f"&#x{ord(c):x};" for n, c in enumerate(s)),
}


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_secrets_in_twenty_encodings_are_found_in_none(count: int):
    dice = random.Random(7)
    letters = string.ascii_letters + string.digits + "+/=&<\"'\\% _-.:~"
    secrets = ["k" + "".join(dice.choices(letters, k=dice.randint(14, 40))) + "z" for _ in range(count)]
    left: set[tuple[str, str]] = set()
    for start in range(0, count, 10):
        redactor = Redactor(secrets[start : start + 10])
        for secret in secrets[start : start + 10]:
            encoded = {name: encode(secret) for name, encode in ENCODINGS.items()}
            left |= {(name, secret) for name, text in encoded.items() if text in redactor.text(f"before {text} after")}
    assert len(ENCODINGS) >= 20
    assert left == set()


@pytest.mark.parametrize(
    "text",
    [
        'key = "made-up" + "-secret-4711"', "made-up' . '-secret-4711", "`made-up`-secret-4711", "**made**-up-secret-4711",
        "-made-up\n-secret-4711", "m-a-d-e-u-p-s-e-c-r-e-t-4711", "made up secret 4711", "ｍａｄｅ-up-secret-4711",
    ],
)  # fmt: skip
def test_a_secret_is_known_with_other_signs_between_its_letters(text: str):
    assert "[redacted: known secret]" in Redactor(["made-up-secret-4711"]).text(text)


def test_words_that_are_only_like_a_secret_stay():
    redactor = Redactor(["made-up-secret-4711", "pass-1-2"])
    for text in ("a made-up secret", "pass 1, 2", "made up secrets 471", _base64("made-up-secret-9999")):
        assert redactor.text(text) == text


def test_of_a_run_in_several_encodings_the_rest_of_the_text_stays():
    redactor = Redactor(["made-up-secret-4711"])
    nested = _base64(_base64("made-up-secret-4711"))
    assert redactor.text(f"see {nested} and 12, 13") == "see [redacted: known secret] and 12, 13"
    broken = "\n".join(textwrap.wrap(nested, 8))
    assert "made" not in redactor.text(broken)
    assert redactor.text(broken) == "[redacted: a text with a known secret]"


def test_many_secrets_are_looked_for_at_once():
    secrets = [f"made-up-{number:04d}-{number * 7919:08d}" for number in range(60)]
    redactor = Redactor(secrets)
    assert redactor.text(f"a {_base64(secrets[59])} b {secrets[0]} c") == (
        "a [redacted: known secret] b [redacted: known secret] c"
    )


def test_a_secret_that_the_program_learns_later_is_known_from_then_on(tmp_path: Path):
    redactor = Redactor()
    assert redactor.text("see made-up-and-known-later") == "see made-up-and-known-later"
    remember_secrets("made-up-and-known-later", None, "short")
    assert redactor.text("see made-up-and-known-later") == "see [redacted: known secret]"
    remember_secrets_in({"s": {"headers": {"authorization": "Bearer made-up-header-token"}, "env": {"A": 5}}, "env": "x"})
    remember_secrets_in("postgresql://me:made-up-password@host/db")
    remember_secrets_in("http://[")
    assert "made-up-header-token" not in redactor.text("x made-up-header-token")
    assert "made-up-password" not in redactor.text("x made-up-password")


def test_a_secret_that_the_program_learns_later_is_taken_out_of_names_too():
    redactor, secret = Redactor(), "learned-" + "later-4711-as-a-name"
    assert redactor.value({secret: 1}) == {secret: 1}
    remember_secrets(secret)
    assert redactor.value({secret: 1}) == {"[redacted: known secret]": 1}


def test_a_mixture_of_forms_is_cut_out_of_its_text():
    redactor = Redactor(["made-up-secret-abc"])
    thrice = quote(quote("".join(f"&#{ord(c)};" for c in "made-up-secret-abc"), safe=""), safe="")
    assert redactor.text(f"see {thrice} there") == "see [redacted: known secret] there"


def test_the_key_of_a_model_is_not_in_the_audit_log_although_only_the_model_was_given_it(tmp_path: Path):
    GeminiModel("gemini-x", api_key="mylocalkey-0123456789abcdef")

    def note(text: str) -> str:
        return "noted"

    gate = Gate(ScriptedModel([call("note", text="key mylocalkey-0123456789abcdef end"), "x"]), [note], audit=tmp_path / "a")
    asyncio.run(gate.run("x"))
    assert "mylocalkey" not in (tmp_path / "a").read_text()


@pytest.mark.rows(
    ("text", "expected"),
    [
        ("The password is s3cr3t-of-mine, I think", "The password is [redacted] I think"),
        ("Passwort lautet: `s3cr3t-of-mine`", "Passwort lautet: `[redacted]`"),
        ("Password:\ns3cr3t-of-mine\nnext", "Password:\n[redacted]\nnext"),
        ("User\nbob\nAPI key\n  s3cr3t-of-mine", "User\nbob\nAPI key\n  [redacted]"),
        ("curl -u bob:s3cr3t-of-mine https://x", "curl -u bob:[redacted] https://x"),
        ('curl --user="bob:s3cr3t-of-mine"', 'curl --user="bob:[redacted]"'),
        ("mysql -u root -ps3cr3t-of-mine db", "mysql -u root -p[redacted] db"),
        ("sshpass -p 's3cr3t-of-mine' ssh h", "sshpass -p '[redacted]' ssh h"),
        ("bob:s3cr3t-of-mine@tcp(h:1)/d", "[redacted: password in a connection string]@tcp(h:1)/d"),
        ("bob:s3cr3t-of-mine@db.example.com:5432/d", "[redacted: password in a connection string]@db.example.com:5432/d"),
        ('"access_tokens": ["s3cr3t-of-mine"]', '"access_tokens":[redacted]"]'),
        ("<password>s3cr3t-of-mine</password>", "<password>[redacted]"),
        ("mysql --password s3cr3t-of-mine -v", "mysql --password [redacted] -v"),
        ("run --api-key 's3cr3t-of-mine'", "run --api-key [redacted]'"),
        ("github_pat: s3cr3t-of-mine", "github_pat:[redacted]"),
        ("run --password -v", "run --password -v"),
        ("a--token-s3cr3t", "a--token-s3cr3t"),
        ("see --tokens-per-day", "see --tokens-per-day"),
    ],
)
def test_a_secret_in_a_list_a_tag_or_after_a_flag_is_hidden(text: str, expected: str):
    assert Redactor().text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "The password is needed here.", "The password is 5 characters long", "Passwords:\n- use 12 characters",
        "The secret is out", "token\nlist of 3 items", "docker run -u 1000:1000 x", "mailto:bob2@example.com:25/",
        "mysql -port 3306",
        "git@github.com:org/repo1.git", "The token is https://example.com/a1", "mkdir -p /tmp/x1 && mysql --version",
        "curl -u https://example.com",
    ],
)  # fmt: skip
def test_sentences_and_commands_without_a_secret_stay(text: str):
    assert CLEAN.text(text) == text


def test_the_password_of_a_client_is_hidden_in_a_list_of_words():
    assert CLEAN.value(["sudo", "/usr/bin/curl", "-u", "bob:mine", "-v"]) == [
        "sudo",
        "/usr/bin/curl",
        "-u",
        "[redacted]",
        "-v",
    ]
    assert CLEAN.value(["redis-cli", "-a", "mine", 5]) == ["redis-cli", "-a", "[redacted]", 5]
    assert CLEAN.value(["docker", "-u", "1000:1000"]) == ["docker", "-u", "1000:1000"]


@pytest.mark.parametrize(
    "command", ["run --token {}", "curl -u me:{} x", "mysql -p{} x", "redis-cli -a {} x", "run --token '{}' x"]
)
def test_a_known_secret_in_a_command_is_replaced_once(command: str):
    secret = "made-up-and-known-5"
    shown = Redactor([secret]).text(command.format(secret))
    assert shown == command.format("[redacted: known secret]")


def test_ordinary_words_and_numbers_of_tokens_are_kept_and_secrets_beside_them_are_not() -> None:
    kept = ["author: Jane-1984", "passenger: Bob", "compass=north", "tokenizer: bert", "bypass: always", "secretary: Anna"]
    kept += ["authenticity: high", "max_tokens: 1000", "tokens: 12345678", "secret: true", "auth = None", "--author=Bob"]
    assert [Redactor().text(text) for text in kept] == kept
    secret = ["author_token: abc123", "bypass_secret=abc123", "max_tokens: abcdef", "userpass=abcd", "password: 12345678"]
    assert [text for text in secret if "[redacted]" not in Redactor().text(text)] == []
