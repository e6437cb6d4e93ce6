"""Sources, media and metadata of an answer over HTTP: our own API, and annotations of the compatible endpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.genai import types as genai_types

import anthropic
from callgate import Gate, GeminiModel, Policy
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
ABOUT: dict[str, Any] = {
    "promptFeedback": {"safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}]},
    "modelStatus": {"modelStage": "DEPRECATED"},
    "responseId": "r-1",
    "quotaInfo": {"left": 3},
}
"""What Gemini reports outside the candidate."""


@pytest.fixture
def site(serve: Callable[..., Any]) -> Iterator[Any]:
    with FakeGemini.in_thread([ANSWER]) as fake:
        yield serve(Gate(GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})))


def test_the_service_answers_with_sources_media_and_metadata_and_shows_them_in_the_session(site: Any) -> None:
    answer = site.post("/api/v1/chat", {"prompt": "Weather?", "session": "s"}).json
    assert [source["uri"] for source in answer["sources"]] == [URI]
    assert answer["media"] == [
        {"data": "AP8=", "mime_type": "image/png", "name": None, "path": None, "uri": None, "transcript": ""}
    ]
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


def test_a_client_of_gemini_gets_the_details_of_usage(serve: Callable[..., Any]) -> None:
    details = {"promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 2}, {"modality": "TEXT", "tokenCount": 1}]}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4, **details}
    with FakeGemini.in_thread([{"candidates": [CANDIDATE], "usageMetadata": usage}]) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        body = {"contents": [{"parts": [{"text": "Weather?"}]}]}
        answer = serve(Gate(model)).post("/v1beta/models/callgate:generateContent", body).json
    assert answer["usageMetadata"] == usage


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "?"}]}),
    ("/v1/responses", {"model": "m", "input": "?"}),
    ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}),
    ("/v1beta/interactions", {"model": "m", "input": "?"}),
    ("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "?"}]}]}),
    ("/v1beta/models/m:streamGenerateContent?alt=sse", {"contents": [{"parts": [{"text": "?"}]}]}),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), ASKED, ids=[path for path, _ in ASKED])
def test_every_endpoint_passes_on_what_is_reported_outside_of_the_candidate(
    serve: Callable[..., Any], path: str, body: dict[str, Any], stream: bool
) -> None:
    """Also media that the form of the endpoint has no field for."""
    film = {"fileData": {"mimeType": "video/mp4", "fileUri": "https://a.example/film"}}
    content = {"role": "model", "parts": [{"text": "Dry."}, film]}
    usage = {"totalTokenCount": 3, "serviceTier": "standard"}
    said = {**ABOUT, "candidates": [CANDIDATE | {"content": content}], "usageMetadata": usage}
    with FakeGemini.in_thread([said]) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        body = body | ({"stream": True} if stream and "contents" not in body else {})
        text = serve(Gate(model)).post(path, body).body.decode()
    for name, value in {**ABOUT, "serviceTier": "standard"}.items():
        assert f'"{name}":{json.dumps(value, separators=(",", ":"))}' in text
    assert "video/mp4" in text
    assert "https://a.example/film" in text


def counted(text: int, audio: int = 0, image: int = 0) -> dict[str, Any]:
    """The usage of one answer, by modality, as Gemini reports it."""
    prompt = [{"modality": "TEXT", "tokenCount": text}, *([{"modality": "AUDIO", "tokenCount": audio}] if audio else [])]
    made = {"candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": image}]} if image else {}
    counts = {"promptTokenCount": text + audio, "candidatesTokenCount": image or 1}
    return counts | {"totalTokenCount": text + audio + (image or 1), "promptTokensDetails": prompt} | made


def test_a_client_of_gemini_gets_the_sum_of_the_details_of_several_answers(serve: Callable[..., Any]) -> None:
    def look() -> str:
        """Look."""
        return "seen"

    called = {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "c2lnbmVk"}
    asked = {"content": {"role": "model", "parts": [called]}, "finishReason": "STOP"}
    said = {"content": {"role": "model", "parts": [{"text": "Sunny."}]}, "finishReason": "STOP"}
    script = [
        {"candidates": [asked], "usageMetadata": counted(5, audio=2)},
        {"candidates": [asked], "usageMetadata": counted(10)},
        {"candidates": [said], "usageMetadata": counted(20, audio=2, image=4)},
    ]
    with FakeGemini.in_thread(script) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        body = {"contents": [{"parts": [{"text": "Weather?"}]}]}
        gate = Gate(model, [look], policy=Policy(mode="yolo"))
        answer = serve(gate).post("/v1beta/models/callgate:generateContent", body).json
    read = genai_types.GenerateContentResponse.model_validate(answer).usage_metadata
    assert read is not None
    assert read.prompt_token_count == 39
    found = answer["usageMetadata"]
    assert found["promptTokensDetails"] == [{"modality": "TEXT", "tokenCount": 35}, {"modality": "AUDIO", "tokenCount": 4}]
    # The answer of text alone is kept without its details, and its token is one of text; the first does not say.
    assert found["candidatesTokensDetails"] == [
        {"modality": "TEXT", "tokenCount": 1},
        {"modality": "IMAGE", "tokenCount": 4},
    ]


def test_a_front_end_of_the_ai_sdk_gets_sources_files_and_suggestions(site: Any) -> None:
    body = {"id": "c", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Weather?"}]}]}
    lines = site.post("/api/v1/ui/chat", body).body.decode().split("\n\n")
    parts = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    found = {part["type"]: part for part in parts}
    assert found["source-url"] == {"type": "source-url", "sourceId": "source-1", "url": URI, "title": TITLE}
    assert found["file"] == {"type": "file", "url": "data:image/png;base64,AP8=", "mediaType": "image/png"}
    assert found["data-search-suggestions"]["data"]["links"][0]["text"] == "oslo"
    assert found["data-metadata"]["data"]["safetyRatings"] == CANDIDATE["safetyRatings"]


def has_everything(extra: Any) -> None:
    """Check the field for what a protocol has no place for."""
    assert extra["google"]["metadata"]["groundingMetadata"] == CANDIDATE["groundingMetadata"]
    assert extra["google"]["metadata"]["safetyRatings"] == CANDIDATE["safetyRatings"]
    assert extra["google"]["search_links"] == [{"text": "oslo", "url": "https://www.google.com/search?q=oslo"}]


def events_of(body: bytes) -> list[Any]:
    found = [line for block in body.decode().split("\n\n") for line in block.split("\n") if line.startswith("data: {")]
    return [json.loads(line[6:]) for line in found]


NOTE = {"type": "url_citation", "start_index": 0, "end_index": 12, "url": URI, "title": TITLE}


def test_a_response_has_the_annotations_of_a_text_that_an_image_follows(site: Any) -> None:
    answer = site.post("/v1/responses", {"model": "callgate", "input": "Weather?"}).json
    [message] = [item for item in answer["output"] if item["type"] == "message"]
    assert message["content"][0]["annotations"] == [NOTE]
    has_everything(answer["extra_content"])


def test_a_streamed_response_annotates_a_text_that_is_over(site: Any) -> None:
    events = events_of(site.post("/v1/responses", {"model": "callgate", "input": "Weather?", "stream": True}).body)
    [added] = [event for event in events if event["type"] == "response.output_text.annotation.added"]
    done = events[-1]["response"]
    assert added["annotation"] == NOTE
    assert done["output"][added["output_index"]]["id"] == added["item_id"]
    assert done["output"][added["output_index"]]["content"][0]["annotations"] == [NOTE]
    has_everything(done["extra_content"])


def test_annotations_are_in_the_message_that_has_the_passage(serve: Callable[..., Any]) -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "AP8="}}
    support = {"segment": {"partIndex": 2, "endIndex": 3, "text": "Ann"}, "groundingChunkIndices": [0]}
    candidate = CANDIDATE | {
        "content": {"role": "model", "parts": [{"text": "First. "}, image, {"text": "Ann won."}]},
        "groundingMetadata": {"groundingChunks": [{"web": {"uri": URI, "title": TITLE}}], "groundingSupports": [support]},
    }
    with FakeGemini.in_thread([{"candidates": [candidate]}]) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        answer = serve(Gate(model)).post("/v1/responses", {"model": "callgate", "input": "x"}).json
    parts = [item["content"][0] for item in answer["output"] if item["type"] == "message"]
    assert [(part["text"], part["annotations"]) for part in parts] == [
        ("First. ", []),
        ("Ann won.", [NOTE | {"end_index": 3}]),
    ]


def test_a_cited_place_of_a_later_answer_is_in_its_text(serve: Callable[..., Any]) -> None:
    def look() -> str:
        """Look."""
        return "wet"

    cited = {"citations": [{"startIndex": 0, "endIndex": 5, "uri": URI, "title": TITLE}]}
    said = {"role": "model", "parts": [{"text": "Größe. "}, {"functionCall": {"name": "look"}, "thoughtSignature": "c2k="}]}
    last = {"role": "model", "parts": [{"text": "Quote, and more."}]}
    answers = [
        {"candidates": [{"content": said, "finishReason": "STOP"}]},
        {"candidates": [{"content": last, "finishReason": "STOP", "citationMetadata": cited}]},
    ]
    with FakeGemini.in_thread(answers) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        body = {"model": "callgate", "messages": [{"role": "user", "content": "x"}]}
        message = serve(Gate(model, tools=[look])).post("/v1/chat/completions", body).json["choices"][0]["message"]
    [note] = message["annotations"]
    place = note["url_citation"]
    assert message["content"][place["start_index"] : place["end_index"]] == "Quote"


CITATION = {
    "type": "web_search_result_location",
    "cited_text": "Oslo is dry.",
    "url": URI,
    "title": TITLE,
    "encrypted_index": "",
}
QUESTION = {"model": "callgate", "max_tokens": 9, "messages": [{"role": "user", "content": "Weather?"}]}


def test_a_message_of_anthropic_has_citations_and_the_rest_as_google_sent_it(site: Any) -> None:
    answer = site.post("/v1/messages", QUESTION).json
    read = anthropic.types.Message.model_validate(answer)
    assert [block.type for block in read.content] == ["text", "text"]
    assert answer["content"][0]["citations"] == [CITATION]
    has_everything(answer["extra_content"])
    assert answer["extra_content"]["google"]["media"] == [{"mime_type": "image/png", "data": "AP8="}]


def test_a_streamed_message_of_anthropic_has_citations_in_the_text_that_is_last(site: Any) -> None:
    events = events_of(site.post("/v1/messages", QUESTION | {"stream": True}).body)
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert [delta["citation"] for delta in deltas if delta["type"] == "citations_delta"] == [CITATION]
    [ended] = [event for event in events if event["type"] == "message_delta"]
    has_everything(ended["extra_content"])


def test_an_interaction_has_what_google_reported(site: Any) -> None:
    answer = site.post("/v1beta/interactions", {"model": "callgate", "input": "Weather?"}).json
    has_everything(answer["extra_content"])


def test_an_interaction_and_its_stored_form_have_every_step_at_google(serve: Callable[..., Any]) -> None:
    """Also the response of a search in another shape, and a step for which the API has no type."""
    parts = [
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t1", "args": {"queries": ["oslo"]}}},
        {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t1", "response": {"search_suggestions": "<b>oslo</b>"}}},
        {"toolCall": {"toolType": "MEDIA_PROCESSING", "id": "t2", "args": {"file": "f"}}},
        {"text": "Dry."},
    ]
    said = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    with FakeGemini.in_thread([said]) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        site = serve(Gate(model))
        answer = site.post("/v1beta/interactions", {"model": "callgate", "input": "Weather?"}).json
        stored = site.get(f"/v1beta/interactions/{answer['id']}").json
    assert {"type": "google_search_result", "call_id": "t1", "result": [{"search_suggestions": "<b>oslo</b>"}]} in answer[
        "steps"
    ]
    assert [step["tool"] for step in answer["extra_content"]["google"]["server_steps"]] == ["media_processing"]
    assert (stored["steps"], stored["extra_content"]) == (answer["steps"], answer["extra_content"])


def test_a_chat_has_the_thoughts_that_the_model_showed(serve: Callable[..., Any]) -> None:
    parts = [{"text": "Oslo? ", "thought": True}, {"text": "Dry."}]
    said = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    with FakeGemini.in_thread([said, ANSWER]) as fake:
        model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        site = serve(Gate(model))
        answers = [site.post("/api/v1/chat", {"prompt": "Weather?"}).json for _ in range(2)]
    assert [answer.get("thoughts") for answer in answers] == ["Oslo? ", None]


def test_the_words_of_a_sound_are_in_every_form_that_has_a_place_for_them(serve: Callable[..., Any]) -> None:
    sound = {"inlineData": {"mimeType": "audio/wav", "data": "AP8="}, "audioTranscription": {"text": "Oslo is dry."}}
    said = {"candidates": [{"content": {"role": "model", "parts": [sound]}, "finishReason": "STOP"}]}
    with FakeGemini.in_thread([said] * 3) as fake:
        site = serve(Gate(GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})))
        chat = site.post("/api/v1/chat", {"prompt": "Weather?"}).json
        question = {"model": "callgate", "messages": [{"role": "user", "content": "Weather?"}]}
        message = site.post("/v1/chat/completions", question).json["choices"][0]["message"]
        native = site.post("/v1beta/models/callgate:generateContent", {"contents": [{"parts": [{"text": "?"}]}]}).json
    assert [media["transcript"] for media in chat["media"]] == ["Oslo is dry."]
    assert message["audio"]["transcript"] == "Oslo is dry."
    assert native["candidates"][0]["content"]["parts"] == [sound]


LIKELY = {
    "chosenCandidates": [{"token": "Hi", "logProbability": -0.1}],
    "topCandidates": [{"candidates": [{"token": "Hi", "logProbability": -0.1}, {"token": "Ho", "logProbability": -2.5}]}],
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_completion_asks_for_log_probabilities_and_has_them(serve: Callable[..., Any], stream: bool) -> None:
    part = {"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP", "logprobsResult": LIKELY}
    with FakeGemini.in_thread([{"candidates": [{"index": 0, **part}]}]) as fake:
        site = serve(Gate(GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})))
        body = {"model": "callgate", "messages": [{"role": "user", "content": "Hi?"}], "logprobs": True, "top_logprobs": 2}
        answer = site.post("/v1/chat/completions", body | {"stream": stream})
        asked = json.loads(fake.requests[-1].body)["generationConfig"]
    assert (asked["responseLogprobs"], asked["logprobs"]) == (True, 2)
    assert "callgate-left-out" not in answer.headers
    last = events_of(answer.body)[-1] if stream else answer.json
    [token] = last["choices"][0]["logprobs"]["content"]
    assert (token["token"], [one["token"] for one in token["top_logprobs"]]) == ("Hi", ["Hi", "Ho"])
