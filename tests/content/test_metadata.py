"""What a response reports beside its content: read into types, kept as received, whole and streamed."""

from __future__ import annotations

from typing import Any

from google.genai import types as genai

from callgate.content.collect import Collector
from callgate.content.metadata import candidate_fields, metadata_of
from callgate.events import MediaReceived, ServerStepReported
from callgate.metadata import AnswerMetadata, Citation, ReadUrl, SearchLink, ServerStep, Source
from callgate.types import Media

TEXT = "Süß: Oslo is dry today. Rome is wet."
HTML = "<style>.a{}</style><div class=a><a href='https://www.google.com/search?q=oslo'>oslo</a></div>"
GROUNDING = {
    "webSearchQueries": ["weather oslo", "weather rome"],
    "searchEntryPoint": {"renderedContent": HTML},
    "groundingChunks": [
        {"web": {"uri": "https://a.example/1", "title": "a.example", "domain": "a.example"}},
        {"retrievedContext": {"uri": "gs://b/doc", "title": "doc", "text": "It rains."}},
    ],
    "groundingSupports": [
        {
            "segment": {"startIndex": 7, "endIndex": 25, "text": "Oslo is dry today."},
            "groundingChunkIndices": [0],
            "confidenceScores": [0.9],
        },
        {"segment": {"text": "Rome is wet."}, "groundingChunkIndices": [0, 1, 7, True]},
    ],
}
WEB = Source(uri="https://a.example/1", title="a.example", domain="a.example")
DOC = Source(uri="gs://b/doc", title="doc", kind="document", text="It rains.")


def answered(*chunks: dict[str, Any]) -> Any:
    collector = Collector()
    events = [event for chunk in chunks for event in collector.feed({"candidates": [chunk]})]
    return collector.close(), events


def content(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"role": "model", "parts": list(parts)}}


def test_all_that_a_candidate_reports_is_in_the_metadata_with_places_in_characters() -> None:
    candidate = content({"text": TEXT}) | {
        "finishReason": "STOP",
        "groundingMetadata": GROUNDING,
        "citationMetadata": {"citations": [{"startIndex": 0, "endIndex": 6, "uri": "https://c.example/", "license": "mit"}]},
        "urlContextMetadata": {
            "urlMetadata": [{"retrievedUrl": "https://d.example/", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}]
        },
        "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}],
        "avgLogprobs": -0.25,
        "logprobsResult": {"chosenCandidates": [{"token": "S", "logProbability": -0.1}]},
        "somethingNew": {"a": 1},
    }
    genai.Candidate.model_validate({key: value for key, value in candidate.items() if key != "somethingNew"})
    answer, _ = answered(candidate)
    quoted = Source(uri="https://c.example/", kind="citation", license="mit")
    raw = {key: value for key, value in candidate.items() if key not in ("content", "finishReason")}
    assert answer.metadata == AnswerMetadata(
        sources=(WEB, DOC, quoted),
        citations=(
            Citation(text="Oslo is dry today.", start=5, end=23, sources=(WEB,), confidence=(0.9,)),
            Citation(text="Rome is wet.", start=24, end=36, sources=(WEB, DOC)),
            Citation(text="Süß:", start=0, end=4, sources=(quoted,)),
        ),
        queries=("weather oslo", "weather rome"),
        search_suggestions=(HTML,),
        search_links=(SearchLink(text="oslo", url="https://www.google.com/search?q=oslo"),),
        urls=(ReadUrl(url="https://d.example/", status="URL_RETRIEVAL_STATUS_SUCCESS"),),
        safety_ratings=({"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"},),
        logprobs=({"chosenCandidates": [{"token": "S", "logProbability": -0.1}]},),
        avg_logprobs=-0.25,
        raw=(raw,),
    )
    assert TEXT[5:23] == "Oslo is dry today."


def test_an_answer_without_metadata_has_none() -> None:
    answer, _ = answered(content({"text": "a"}) | {"finishReason": "STOP", "index": 0, "safetyRatings": []})
    assert answer.metadata is None
    assert answer.raw_metadata == ()


def test_links_of_search_suggestions_are_web_addresses_or_searches_for_the_queries() -> None:
    html = "<a href='javascript:alert(1)'>x</a><a href=\"https://g.example/?q=1\">one <b>two</b></a><a href='//h'>y</a>"
    found, _ = answered(
        content({"text": "a"})
        | {"finishReason": "STOP", "groundingMetadata": {"searchEntryPoint": {"renderedContent": html}}}
    )
    assert found.metadata.search_links == (SearchLink(text="one two", url="https://g.example/?q=1"),)
    bare, _ = answered(
        content({"text": "a"})
        | {
            "finishReason": "STOP",
            "groundingMetadata": {"searchEntryPoint": {"renderedContent": "<p>"}, "webSearchQueries": ["a & b"]},
        }
    )
    assert bare.metadata.search_links == (SearchLink(text="a & b", url="https://www.google.com/search?q=a+%26+b"),)


def test_a_stream_that_repeats_its_metadata_reports_it_once_and_one_that_adds_to_it_all_of_it() -> None:
    first = {"groundingChunks": [{"web": {"uri": "https://a.example/", "title": "a"}}]}
    more = {"groundingChunks": [*first["groundingChunks"], {"web": {"uri": "https://b.example/", "title": "b"}}]}
    other = {
        "groundingChunks": [{"web": {"uri": "https://c.example/", "title": "c"}}],
        "groundingSupports": [{"segment": {"text": "xy"}, "groundingChunkIndices": [0]}],
    }
    ratings = [[{"category": "A", "probability": word}] for word in ("LOW", "HIGH")]
    answer, _ = answered(
        content({"text": "x"}) | {"groundingMetadata": first, "safetyRatings": ratings[0]},
        content({"text": "y"}) | {"groundingMetadata": more, "safetyRatings": ratings[1]},
        {"groundingMetadata": more},
        {"groundingMetadata": other, "finishReason": "STOP"},
    )
    assert answer.raw_metadata == (
        {"groundingMetadata": more, "safetyRatings": ratings[1]},
        {"groundingMetadata": other},
    )
    found = answer.metadata
    assert [source.title for source in found.sources] == ["a", "b", "c"]
    assert [source.title for source in found.citations[0].sources] == ["c"]
    joined = candidate_fields(answer.raw_metadata)["groundingMetadata"]
    assert [chunk["web"]["title"] for chunk in joined["groundingChunks"]] == ["a", "b", "c"]
    assert joined["groundingSupports"] == [{"segment": {"text": "xy"}, "groundingChunkIndices": [2]}]


def test_passages_of_a_later_chunk_refer_to_the_sources_of_the_chunk_before() -> None:
    chunks = {"groundingChunks": [{"web": {"uri": "https://a.example/", "title": "a"}}]}
    supports = {"groundingSupports": [{"segment": {"text": "x"}, "groundingChunkIndices": [0]}]}
    answer, _ = answered(
        content({"text": "x"}) | {"groundingMetadata": chunks}, {"groundingMetadata": supports, "finishReason": "STOP"}
    )
    assert [source.title for source in answer.metadata.citations[0].sources] == ["a"]
    assert candidate_fields(answer.raw_metadata)["groundingMetadata"] == {**chunks, **supports}


def test_each_confidence_belongs_to_the_source_at_its_place() -> None:
    grounding = {
        "groundingChunks": [{"web": {"uri": f"https://{name}.example/", "title": name}} for name in "ab"],
        "groundingSupports": [
            {"segment": {"text": "x"}, "groundingChunkIndices": [9, 1], "confidenceScores": [0.1, 0.2]},
            {"segment": {"text": "y"}, "groundingChunkIndices": [0, 1], "confidenceScores": [0.3]},
            {"segment": {}, "groundingChunkIndices": [9]},
        ],
    }
    answer, _ = answered(content({"text": "xy"}) | {"groundingMetadata": grounding, "finishReason": "STOP"})
    found = [([source.title for source in cited.sources], cited.confidence) for cited in answer.metadata.citations]
    assert found == [(["b"], (0.2,)), (["a", "b"], ())]


def test_malformed_metadata_is_kept_and_breaks_nothing() -> None:
    odd = {
        "groundingChunks": [7, {"web": "x"}, {"new": {}}],
        "groundingSupports": [{"segment": [], "x": float("nan")}, None],
    }
    answer, _ = answered(
        content({"text": "a"})
        | {"groundingMetadata": odd, "citationMetadata": [1], "avgLogprobs": "x", "finishReason": "STOP"}
    )
    assert answer.metadata.sources == ()
    assert answer.raw_metadata[0]["citationMetadata"] == [1]


def test_images_sounds_and_files_that_a_model_makes_are_media_but_those_of_thoughts_are_not() -> None:
    answer, events = answered(
        content(
            {"text": "Here: "},
            {"inlineData": {"mimeType": "image/png", "data": "AP8="}, "thoughtSignature": "c2ln"},
            {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thought": True},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://f.example/v"}},
            {"inlineData": {"mimeType": "image/png", "data": "not base64!"}},
        )
        | {"finishReason": "STOP"}
    )
    made = [Media(data=b"\x00\xff", mime_type="image/png"), Media(uri="https://f.example/v", mime_type="video/mp4")]
    assert answer.media[:2] == made
    assert [event for event in events if isinstance(event, MediaReceived)][:2] == [MediaReceived(one) for one in made]
    assert answer.text == "Here: "


def test_code_that_ran_at_the_provider_and_its_output_are_events() -> None:
    _, events = answered(
        content(
            {"executableCode": {"language": "PYTHON", "code": "print(1)", "id": "x"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n", "id": "x"}},
            {"toolCall": {"id": "y", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["a"]}}},
            {"toolResponse": {"id": "y", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}},
            {"text": "1"},
        )
        | {"finishReason": "STOP"}
    )
    assert events[:4] == [
        ServerStepReported(
            ServerStep(kind="code", tool="code_execution", id="x", value={"language": "PYTHON", "code": "print(1)"})
        ),
        ServerStepReported(
            ServerStep(kind="code_result", tool="code_execution", id="x", value={"outcome": "OUTCOME_OK", "output": "1\n"})
        ),
        ServerStepReported(
            ServerStep(kind="tool_call", tool="google_search_web", id="y", value={"args": {"queries": ["a"]}})
        ),
        ServerStepReported(ServerStep(kind="tool_result", tool="google_search_web", id="y", value={"response": {}})),
    ]


def test_a_number_that_no_float_holds_is_left_out() -> None:
    found = metadata_of([{"avgLogprobs": 10**400, "finishMessage": "x"}], {})
    assert found is None or found.avg_logprobs is None
