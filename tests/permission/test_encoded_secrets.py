"""Known secrets are found in their usual encodings, and texts without any stay as they are."""

from __future__ import annotations

from urllib.parse import quote

from callgate.permission.encoded_secrets import SecretNeedles


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
