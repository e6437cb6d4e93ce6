"""Known secrets are found in their usual encodings, and texts without any stay as they are."""

from __future__ import annotations

import json
from urllib.parse import quote

from callgate.config.encoded_secrets import SecretNeedles


def test_without_secrets_nothing_is_looked_for():
    assert SecretNeedles([]).redact("a text") == "a text"


def test_encoded_forms_are_left_alone_where_only_plain_ones_are_wanted():
    needles = SecretNeedles(["made-up-secret"])
    assert needles.redact("made-up-secret", encoded=False) == "[redacted: known secret]"
    assert needles.redact("terces-pu-edam", encoded=False) == "terces-pu-edam"
    assert needles.redact("terces-pu-edam") == "[redacted: known secret]"


def test_decoding_ends_however_often_a_text_was_encoded():
    text = "%41"
    for _ in range(8):
        text = quote(text, safe="")
    assert SecretNeedles(["made-up-secret"]).redact(text) == text


def test_a_secret_is_cut_out_however_deep_the_encodings_are_nested():
    secret = "k<&8I&o9KVoIkP'WTEI4YV=ec\"U7zz"
    forms = [secret, quote(secret, safe=""), "".join(f"\\u{ord(c):04x}" for c in secret), f"{secret[:9]}\n{secret[9:]}"]
    text = json.dumps(forms * 20)
    for _ in range(3):
        text = json.dumps(text)
        clean = SecretNeedles([secret]).redact(f"before {text} after")
        assert clean.startswith("before ")
        assert clean.endswith(" after")
        assert not any(form in clean for form in forms)


def test_a_secret_behind_a_percent_sign_is_found_as_it_stands():
    assert SecretNeedles(["41made-up-one"]).redact("100%41made-up-one") == "100%[redacted: known secret]"


def test_a_text_whose_characters_cannot_be_placed_goes_as_a_whole():
    assert SecretNeedles(["made-up-\u0130stanbul"]).redact("see made%2Dup-\u0130stanbul") == (
        "[redacted: a text with a known secret]"
    )


def test_a_secret_that_looks_like_an_escape_is_found_broken_over_lines():
    for secret in ("made-up-%41-one", "made-up-&amp;-one"):
        for place in range(1, len(secret)):
            broken = f"{secret[:place]}\n{secret[place:]}"
            assert SecretNeedles([secret]).redact(f"x {broken} y") == "x [redacted: known secret] y"
