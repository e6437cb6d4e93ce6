"""Requests in Gemini's form, as clients write them, become callgate's words; a question for tokens becomes Google's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate.errors import UsageError
from callgate.gemini.incoming import read_request
from callgate.gemini.request import counting, settings_of


def test_what_is_written_with_underscores_reads_the_same() -> None:
    call = {"function_call": {"name": "f", "args": {"my_key": 1}}, "thought_signature": "s"}
    media = {"inline_data": {"mime_type": "image/png", "data": "AAAA"}}
    incoming = read_request({
        "contents": {"role": "user", "parts": media},
        "system_instruction": {"parts": [{"text": "A."}, {"text": "B."}]},
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"thinking_level": "LOW"}},
        "safety_settings": [{"category": "C", "threshold": "T", "method": "M"}],
    })  # fmt: skip
    assert incoming.contents == [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]}]
    assert incoming.system == "A.\n\nB."
    assert incoming.settings == {"max_output_tokens": 5, "thinking": "low"}
    assert incoming.rest == {"safetySettings": [{"category": "C", "threshold": "T", "method": "M"}]}
    [content] = read_request({"contents": [{"role": "model", "parts": [call]}]}).contents
    assert content["parts"] == [{"functionCall": {"name": "f", "args": {"my_key": 1}}, "thoughtSignature": "s"}]


def test_settings_come_out_as_they_would_be_sent() -> None:
    sent: dict[str, Any] = {
        "generationConfig": {
            "temperature": 0.5, "topP": 0.9, "topK": 4, "maxOutputTokens": 9, "stopSequences": ["x"], "seed": 1,
            "responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}, "candidateCount": 1,
            "thinkingConfig": {"thinkingBudget": 7, "includeThoughts": True},
        },
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "cachedContent": "cachedContents/1",
    }  # fmt: skip
    incoming = read_request({"contents": [], **sent})
    assert settings_of(incoming.settings, "developer", "gemini-2.5-flash") == sent
    assert incoming.rest == {}


def test_what_there_is_no_word_for_is_kept_where_it_stood() -> None:
    incoming = read_request({
        "contents": [],
        "generationConfig": {"imageConfig": {"size": 1}, "responseSchema": {"type": "STRING", "nullable": True}},
        "toolConfig": {"retrievalConfig": {"languageCode": "de"}},
        "somethingNew": 1,
    })  # fmt: skip
    assert incoming.rest == {
        "generationConfig": {"imageConfig": {"size": 1}},
        "toolConfig": {"retrievalConfig": {"languageCode": "de"}},
        "somethingNew": 1,
    }
    assert incoming.settings["response_json_schema"]["type"] == ["string", "null"]


@pytest.mark.parametrize(
    "body",
    [
        {"contents": "text"},
        {"contents": [5]},
        {"contents": [{"parts": "text"}]},
        {"contents": [{"parts": [{"functionCall": "f"}]}]},
        {"contents": [], "tools": [5]},
        {"contents": [], "tools": {}},
        {"contents": [], "toolConfig": 5},
        {"contents": [], "safetySettings": [5]},
        {"contents": [], "generationConfig": {"thinkingConfig": 5}},
    ],
)
def test_what_is_of_another_shape_is_refused_with_its_place(body: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"expected (an object|a list)"):
        read_request(body)


def test_a_question_for_tokens_holds_what_each_surface_takes() -> None:
    body = json.dumps({"contents": [], "toolConfig": {}, "systemInstruction": {}, "safetySettings": []}).encode()
    assert json.loads(counting(body, "models/gemini-3.8-flash", "developer")) == {
        "generateContentRequest": {"model": "models/gemini-3.8-flash", **json.loads(body)}
    }
    assert json.loads(counting(body, "gemini-3.8-flash", "vertex")) == {"contents": [], "systemInstruction": {}}
