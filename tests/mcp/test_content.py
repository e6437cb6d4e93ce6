"""Results of servers: what a model is given of them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from callgate import Media, ToolError
from callgate.mcp import content
from callgate.mcp.content import value_of

PNG = {"type": "image", "mimeType": "image/png", "data": "aWNvbg=="}
WORDS = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "words"}}
LINK = {"type": "resource_link", "uri": "file:///a.txt", "name": "a"}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.mark.rows(
    ("result", "value"),
    [
        ({"content": [said("hi")]}, "hi"),
        ({"content": []}, "The tool gave no output."),
        ({"content": [said("a"), said("b")]}, ["a", "b"]),
        ({"content": [said("a dot"), PNG]}, ["a dot", Media(data=b"icon", mime_type="image/png")]),
        ({"content": [{**PNG, "type": "audio", "mimeType": "audio/wav"}]}, Media(data=b"icon", mime_type="audio/wav")),
        ({"content": [WORDS]}, WORDS),
        ({"content": [said("a"), WORDS, LINK]}, ["a", WORDS, LINK]),
        (
            {
                "content": [
                    {"type": "resource", "resource": {"uri": "x:a", "blob": "aWNvbg==", "mimeType": "application/pdf"}}
                ]
            },
            Media(data=b"icon", mime_type="application/pdf", name="x:a"),
        ),
        ({"content": [LINK]}, LINK),
        ({"content": [], "structuredContent": {"a": None}}, {"a": None}),
        ({"content": [said('{\n "a": 1 }')], "structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": [said("5")], "structuredContent": {"result": 5}}, {"result": 5}),
        ({"content": [said("five")], "structuredContent": {"result": "five"}}, {"result": "five"}),
        ({"content": [said("[1, 2]")], "structuredContent": {"items": [1, 2]}}, {"items": [1, 2]}),
        ({"content": [said("In words: 1")], "structuredContent": {"a": 1}}, [{"a": 1}, "In words: 1"]),
        (
            {"content": [PNG], "structuredContent": {"result": [{"type": "image", "data": PNG["data"], "n": 1}]}},
            [
                {"result": [{"type": "image", "data": "(given as media beside this)", "n": 1}]},
                Media(data=b"icon", mime_type="image/png"),
            ],
        ),
        ({"content": [{**PNG, "data": "!"}]}, "[left out: image/png that is not base64]"),
    ],
)
def test_every_kind_of_content_is_kept(result: dict[str, Any], value: object):
    assert value_of(result) == value


def test_the_error_flag_wins_and_both_text_and_data_are_told():
    with pytest.raises(ToolError) as raised:
        value_of({"isError": True, "content": [said("the lamp is broken"), PNG], "structuredContent": {"code": 7}})
    assert str(raised.value) == '{"code": 7}\nthe lamp is broken\n[image/png]'


def test_an_error_without_words_is_still_an_error():
    with pytest.raises(ToolError, match="failed without saying why"):
        value_of({"isError": True, "content": []})


def test_a_result_that_is_none_is_an_error():
    with pytest.raises(ToolError, match="cannot be read"):
        value_of({"content": [{"type": "image"}]})


def test_what_is_too_large_is_cut_or_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(content, "TEXT_CHARS_MAX", 4)
    monkeypatch.setattr(content, "MEDIA_BYTES_MAX", 4)
    large = base64.b64encode(b"x" * 9).decode()
    assert value_of({"content": [said("abcdefg"), {**PNG, "data": large}]}) == [
        "abcd\n[cut off: 3 more characters]",
        "[left out: image/png of 9 bytes, more than 4]",
    ]
