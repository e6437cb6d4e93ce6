"""Steps of an answer -> what generateContent reports beside an answer: sources, citations, searches, pages that were read.

Takes the steps in order; returns fields of a candidate, so that every reader of metadata understands both APIs. Positions
count bytes of the whole text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from callgate.content.metadata import grounding_fields
from callgate.strict_json import objects_in
from callgate.types import JsonObject

__all__ = ["metadata_fields"]

# Type of an annotation -> the kind of a source, and the fields of its address and title; the first that is there counts.
_SOURCES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "url_citation": ("web", ("url",), ("title",)),
    "place_citation": ("maps", ("url",), ("name",)),
    "file_citation": ("retrievedContext", ("document_uri", "source", "file_name"), ("file_name",)),
}


def metadata_fields(steps: Sequence[JsonObject]) -> JsonObject:
    """Return the fields of a candidate with these steps; empty if they report nothing."""
    grounding = _searches(steps) | _citations(steps)
    pages = [
        {
            "retrievedUrl": page.get("url"),
            "urlRetrievalStatus": f"URL_RETRIEVAL_STATUS_{str(page.get('status') or 'unspecified').upper()}",
        }
        for step in steps
        if step.get("type") == "url_context_result"
        for page in objects_in(step.get("result"))
    ]
    return grounding_fields(grounding) | ({"urlContextMetadata": {"urlMetadata": pages}} if pages else {})


def _searches(steps: Sequence[JsonObject]) -> JsonObject:
    queries: list[str] = []
    shown: list[str] = []
    for step in steps:
        if step.get("type") == "google_search_call":
            arguments: Any = step.get("arguments")
            asked: Any = cast("JsonObject", arguments).get("queries") if isinstance(arguments, dict) else None
            queries += (
                [query for query in cast("list[Any]", asked) if isinstance(query, str)] if isinstance(asked, list) else []
            )
        elif step.get("type") == "google_search_result":
            found = (item.get("search_suggestions") for item in objects_in(step.get("result")))
            shown += [html for html in found if isinstance(html, str) and html]
    fields: JsonObject = {"webSearchQueries": queries} if queries else {}
    return fields | ({"searchEntryPoint": {"renderedContent": "\n".join(dict.fromkeys(shown))}} if shown else {})


def _citations(steps: Sequence[JsonObject]) -> JsonObject:
    chunks: list[JsonObject] = []
    supports: list[JsonObject] = []
    for start, text, annotation in _annotations(steps):
        source = _source(annotation)
        if source is None:
            continue
        if source not in chunks:
            chunks.append(source)
        first, last = annotation.get("start_index"), annotation.get("end_index")
        first = first if isinstance(first, int) else 0
        if not isinstance(last, int) or not 0 <= first < last <= len(text):
            continue
        passage = {"startIndex": start + first, "endIndex": start + last, "partIndex": None}
        said = text[first:last].decode("utf-8", "replace")
        supports.append({"segment": passage | {"text": said}, "groundingChunkIndices": [chunks.index(source)]})
    return ({"groundingChunks": chunks} if chunks else {}) | ({"groundingSupports": supports} if supports else {})


def _annotations(steps: Sequence[JsonObject]) -> Iterator[tuple[int, bytes, JsonObject]]:
    """Each annotation, with the text it is about and the place of this text in the whole, in bytes."""
    place = 0
    for step in steps:
        for item in objects_in(step.get("content")) if step.get("type") == "model_output" else ():
            text: Any = item.get("text")
            if not isinstance(text, str):
                continue
            encoded = text.encode("utf-8", "replace")
            for annotation in objects_in(item.get("annotations")):
                yield place, encoded, annotation
            place += len(encoded)


def _source(annotation: Mapping[str, Any]) -> JsonObject | None:
    known = _SOURCES.get(str(annotation.get("type")))
    if known is None:
        return None
    kind, addresses, titles = known
    uri, title = (_first(annotation, names) for names in (addresses, titles))
    return {kind: {"uri": uri, "title": title}} if uri or title else None


def _first(annotation: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((value for name in names if isinstance(value := annotation.get(name), str) and value), "")
