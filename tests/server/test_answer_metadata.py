"""Sources, media and metadata of an answer over HTTP: our own API, and annotations of the compatible endpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.genai import types as genai_types

from callgate import Gate, GeminiModel
from callgate.testing import FakeGemini

URI, TITLE = "https://a.example/1", "a.example"
CANDIDATE: dict[str, Any] = {
    "content": {
        "role": "model",
        "parts": [
            {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
            {"text": "Oslo is dry."},
            {"inlineData": {"mimeType": "image/png", "data": "AP8="}},
        ],
    },
    "finishReason": "STOP",
    "index": 0,
    "groundingMetadata": {
        "webSearchQueries": ["oslo"],
        "searchEntryPoint": {"renderedContent": "<a href='https://www.google.com/search?q=oslo'>oslo</a>"},
        "groundingChunks": [{"web": {"uri": URI, "title": TITLE}}],
        "groundingSupports": [
            {"segment": {"partIndex": 2, "endIndex": 12, "text": "Oslo is dry."}, "groundingChunkIndices": [0]}
        ],
    },
    "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}],
    "avgLogprobs": -0.5,
}
ANSWER = {"candidates": [CANDIDATE], "usageMetadata": {"totalTokenCount": 3}, "modelVersion": "gemini-3.8-flash"}


@pytest.fixture
def site(serve: Callable[..., Any]) -> Iterator[Any]:
    with FakeGemini.in_thread([ANSWER]) as fake:
        yield serve(Gate(GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})))


def test_the_service_answers_with_sources_media_and_metadata_and_shows_them_in_the_session(site: Any) -> None:
    answer = site.post("/api/v1/chat", {"prompt": "Weather?", "session": "s"}).json
    assert [source["uri"] for source in answer["sources"]] == [URI]
    assert answer["media"] == [{"data": "AP8=", "mime_type": "image/png", "name": None, "path": None, "uri": None}]
    assert [step["kind"] for step in answer["server_steps"]] == ["code", "code_result"]
    session = site.get("/api/v1/sessions/s").json
    [shown] = session["answer_metadata"]
    assert shown["content"] == 1
    assert shown["metadata"] == answer["answer_metadata"][0]


ANNOTATION = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 12, "url": URI, "title": TITLE},
}


def test_a_chat_completion_has_annotations_images_and_the_rest_as_google_sent_it(site: Any) -> None:
    body = {"model": "callgate", "messages": [{"role": "user", "content": "Weather?"}]}
    message = site.post("/v1/chat/completions", body).json["choices"][0]["message"]
    assert message["annotations"] == [ANNOTATION]
    assert message["images"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AP8="}}]
    extra = message["extra_content"]["google"]
    assert extra["metadata"]["groundingMetadata"] == CANDIDATE["groundingMetadata"]
    assert extra["search_links"] == [{"text": "oslo", "url": "https://www.google.com/search?q=oslo"}]
    assert [step["kind"] for step in extra["server_steps"]] == ["code", "code_result"]


def test_a_streamed_chat_completion_has_them_too(site: Any) -> None:
    body = {"model": "callgate", "messages": [{"role": "user", "content": "Weather?"}], "stream": True}
    lines = site.post("/v1/chat/completions", body).body.decode().split("\n\n")
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines if line.startswith("data: {")]
    assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [[ANNOTATION]]
    assert [delta["images"] for delta in deltas if "images" in delta] != []


def test_a_client_of_gemini_gets_the_candidate_as_google_sent_it(site: Any) -> None:
    body = {"contents": [{"parts": [{"text": "Weather?"}]}]}
    answer = site.post("/v1beta/models/callgate:generateContent", body).json
    read = genai_types.GenerateContentResponse.model_validate(answer)
    candidate = read.candidates[0]
    assert answer["candidates"][0]["groundingMetadata"] == CANDIDATE["groundingMetadata"]
    assert candidate.avg_logprobs == -0.5
    assert [part.inline_data.data for part in candidate.content.parts if part.inline_data] == [b"\x00\xff"]
    assert [part.executable_code.code for part in candidate.content.parts if part.executable_code] == ["print(1)"]


def test_a_front_end_of_the_ai_sdk_gets_sources_files_and_suggestions(site: Any) -> None:
    body = {"id": "c", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Weather?"}]}]}
    lines = site.post("/api/v1/ui/chat", body).body.decode().split("\n\n")
    parts = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    found = {part["type"]: part for part in parts}
    assert found["source-url"] == {"type": "source-url", "sourceId": "source-1", "url": URI, "title": TITLE}
    assert found["file"] == {"type": "file", "url": "data:image/png;base64,AP8=", "mediaType": "image/png"}
    assert found["data-search-suggestions"]["data"]["links"][0]["text"] == "oslo"
