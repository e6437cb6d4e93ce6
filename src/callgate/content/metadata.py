"""Read what a response reports beside its content: grounding, citations, ratings, probabilities, steps at the provider.

Takes candidates and parts in Gemini's form; returns the types of `callgate.metadata`. Whatever is malformed is left out
of the typed fields and kept in `raw`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any, TypeGuard, cast
from urllib.parse import quote_plus, urlsplit

from callgate import strict_json
from callgate.content.build import media_part
from callgate.content.read import COUNTS, interaction_of, is_thought, media_of, parts_of
from callgate.metadata import AnswerMetadata, Citation, ReadUrl, SearchLink, ServerStep, Source, SourceKind, StepKind
from callgate.strict_json import without_surrogates
from callgate.types import JsonObject, Media, Part

__all__ = [
    "MetadataCollector",
    "candidate_fields",
    "fields_about",
    "grounding_fields",
    "is_routine",
    "made_media",
    "made_part",
    "metadata_of",
    "moved_citations",
    "response_fields",
    "server_step",
    "server_steps_of",
    "step_name",
    "step_part",
]

PIECES_MAX = 10_000
"""Pieces of one field that are kept of a streamed answer; a stream with more of them repeats itself."""
_HTML_MAX = 1_000_000
"""Characters of search suggestions that are read."""
_HANDLED = frozenset({
    "content", "finishReason", "finish_reason", "index", "continuationToken", "tokenCount",
})  # fmt: skip
_ABOUT = ("responseId", "promptFeedback", "modelVersion", "modelStatus", "createTime")
_OTHERS = "response"
"""The object with the fields of a response that have no name here."""
_OF_RESPONSE = frozenset({*_ABOUT, "usageMetadata", _OTHERS})
"""Fields of a response beside its candidates."""
_READ = frozenset({
    *_ABOUT, "candidates", "usageMetadata", "usage_metadata", "response_id", "prompt_feedback", "model_version",
    "model_status", "create_time", "sdkHttpResponse", "automaticFunctionCallingHistory", "parsed",
})  # fmt: skip
"""Fields of a response that are read elsewhere, and those that Google's SDK adds to it."""
_LAST_WINS = frozenset({"safetyRatings", "avgLogprobs"})
"""Fields that each chunk reports for the whole answer so far."""
_CHUNKS: dict[str, tuple[SourceKind, str]] = {
    "web": ("web", "uri"), "image": ("image", "sourceUri"), "maps": ("maps", "uri"), "retrievedContext": ("document", "uri"),
}  # fmt: skip
_STEPS: dict[str, tuple[StepKind, str]] = {
    "executableCode": ("code", "code_execution"), "codeExecutionResult": ("code_result", "code_execution"),
    "toolCall": ("tool_call", ""), "toolResponse": ("tool_result", ""),
}  # fmt: skip


class MetadataCollector:
    """Collector of the metadata of one answer from its chunks, without repetitions."""

    __slots__ = ("_about", "_fields")

    def __init__(self) -> None:
        self._fields: dict[str, list[Any]] = {}
        self._about: JsonObject = {}

    def feed_response(self, response: Mapping[str, Any]) -> None:
        """Add what a response or chunk reports outside its candidate."""
        found = response_fields(response)
        if _OTHERS in found and _OTHERS in self._about:
            found[_OTHERS] = self._about[_OTHERS] | found[_OTHERS]
        self._about = self._about | found

    def feed(self, candidate: Mapping[str, Any]) -> None:
        """Add what a candidate reports beside its content."""
        for name in candidate.keys() - _HANDLED:
            value = strict_json.without_bad(strict_json.isolate(candidate[name]))
            if value is None or value in ([], {}):
                continue
            known = self._fields.setdefault(name, [])
            if known and (name in _LAST_WINS or _extends(value, known[-1])):
                known[-1] = value
            elif value not in known[-8:] and len(known) < PIECES_MAX:
                known.append(value)

    @property
    def raw(self) -> tuple[JsonObject, ...]:
        """The metadata as received, in as few objects as hold all pieces; empty if it is what every answer has."""
        longest = max(map(len, self._fields.values()), default=0)
        reported = tuple(
            {name: pieces[index] for name, pieces in sorted(self._fields.items()) if index < len(pieces)}
            for index in range(longest)
        )
        if not self._about or (not reported and is_routine(self._about)):
            return reported
        return (*reported[:-1], {**(reported[-1] if reported else {}), **self._about})


def _extends(new: Any, old: Any) -> bool:
    """True if a later piece repeats the earlier one and perhaps adds to it, so that it can replace it."""
    if isinstance(new, dict) and isinstance(old, dict):
        later, earlier = cast("JsonObject", new), cast("JsonObject", old)
        return all(key in later and _extends(later[key], value) for key, value in earlier.items())
    if isinstance(new, list) and isinstance(old, list):
        later_items, earlier_items = cast("list[Any]", new), cast("list[Any]", old)
        return later_items[: len(earlier_items)] == earlier_items
    return bool(new == old)


def candidate_fields(raw: Sequence[Mapping[str, Any]]) -> JsonObject:
    """Return raw metadata as the fields of one candidate, for a response that is sent on."""
    fields: JsonObject = {}
    for piece in raw:
        for name, value in piece.items():
            if name not in _OF_RESPONSE:
                fields[name] = _joined(fields[name], value) if name in fields else value
    return fields


def fields_about(raw: Sequence[Mapping[str, Any]], *, usage: bool = True) -> JsonObject:
    """Return what raw metadata says outside the candidate: feedback on the prompt, the state of the model, usage."""
    names = (*_ABOUT, "usageMetadata") if usage else _ABOUT
    others = {name: value for piece in raw for name, value in _object(piece.get(_OTHERS)).items() if name not in _READ}
    return others | {name: value for piece in raw for name, value in piece.items() if name in names}


def moved_citations(raw: Sequence[Mapping[str, Any]], offset: int) -> Sequence[Mapping[str, Any]]:
    """Return raw metadata of an answer that is shown after so many bytes of other text: citations name places only."""
    return [
        piece | {"citationMetadata": _moved_places(piece["citationMetadata"], offset)}
        if offset and isinstance(piece.get("citationMetadata"), dict)
        else piece
        for piece in map(dict[str, Any], raw)
    ]


def _moved_places(cited: JsonObject, offset: int) -> JsonObject:
    moved = {
        name: [
            item | {key: _whole(item.get(key)) + offset for key in ("startIndex", "endIndex")}
            if isinstance(item.get("endIndex"), int)
            else item
            for item in _objects(cited[name])
        ]
        for name in ("citations", "citationSources")
        if name in cited
    }
    return cited | moved


def response_fields(response: Mapping[str, Any]) -> JsonObject:
    """Return what a response or chunk reports outside its candidate: id, feedback, details of usage, and what is new."""
    found: JsonObject = {name: response[name] for name in _ABOUT if response.get(name)}
    usage: Any = response.get("usageMetadata")
    if isinstance(usage, dict):
        counts = frozenset(COUNTS.values())
        details = {name: value for name, value in cast("JsonObject", usage).items() if name not in counts and value}
        found |= {"usageMetadata": details} if details else {}
    if others := {name: response[name] for name in response.keys() - _READ if response[name] not in (None, "", [], {})}:
        found[_OTHERS] = others
    return cast("JsonObject", strict_json.without_bad(strict_json.isolate(found)))


def is_routine(fields: Mapping[str, Any]) -> bool:
    """True if the fields of a response are what every answer has: an id, and tokens of text."""
    usage = _object(fields.get("usageMetadata"))
    kinds = [entry.get("modality") for value in usage.values() for entry in _objects(value)]
    is_text = set(kinds) <= {"TEXT"} and all(isinstance(value, list) for value in usage.values())
    return is_text and not fields.keys() & {"promptFeedback", "modelStatus", _OTHERS}


def grounding_fields(grounding: JsonObject) -> JsonObject:
    """Return the field of a candidate for its grounding; empty if there is none."""
    return {"groundingMetadata": grounding} if grounding else {}


def _joined(first: Any, second: Any) -> Any:
    """Join two pieces of a field. Indices into the chunks of the second one move behind those of the first."""
    if isinstance(first, list) and isinstance(second, list):
        return [*cast("list[Any]", first), *(item for item in cast("list[Any]", second) if item not in first)]
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return second
    known, added = cast("JsonObject", first), cast("JsonObject", second)
    offset = len(_objects(known.get("groundingChunks"))) if "groundingChunks" in added else 0
    if offset and "groundingSupports" in added:
        moved = [_moved(support, offset) for support in _objects(added["groundingSupports"])]
        added = {**added, "groundingSupports": moved}
    joined = {key: _joined(known[key], value) if key in known else value for key, value in added.items()}
    if offset:  # Positions count, so that repetitions stay.
        joined["groundingChunks"] = [*_objects(known["groundingChunks"]), *_objects(added["groundingChunks"])]
    return known | joined


def _moved(support: JsonObject, offset: int) -> JsonObject:
    indices = [index + offset for index in _list(support.get("groundingChunkIndices")) if isinstance(index, int)]
    return {**support, "groundingChunkIndices": indices}


def metadata_of(raw: Sequence[Mapping[str, Any]], content: Mapping[str, Any]) -> AnswerMetadata | None:
    """Return the typed metadata of an answer; None if nothing was reported."""
    if not raw:
        return None
    sources: list[Source] = []
    citations: list[Citation] = []
    texts = _Texts(content)
    chunks: list[Source | None] = []
    for grounding in _pieces(raw, "groundingMetadata"):
        if "groundingChunks" in grounding:  # Supports of a piece that has none are about those of the piece before.
            chunks = [_source(chunk) for chunk in _objects(grounding["groundingChunks"])]
        sources += [source for source in chunks if source is not None]
        supports = (_support(support, chunks, texts) for support in _objects(grounding.get("groundingSupports")))
        citations += [citation for citation in supports if citation.text or citation.sources]
    for piece in _pieces(raw, "citationMetadata"):
        for cited in _objects(piece.get("citations") or piece.get("citationSources")):
            citation = _cited(cited, texts)
            citations.append(citation)
            sources += citation.sources
    groundings = list(_pieces(raw, "groundingMetadata"))
    words = ("webSearchQueries", "imageSearchQueries", "retrievalQueries")
    queries = _each(_text(query) for found in groundings for word in words for query in _list(found.get(word)))
    suggestions = _each(_text(_object(found.get("searchEntryPoint")).get("renderedContent")) for found in groundings)
    average = [piece["avgLogprobs"] for piece in raw if isinstance(piece.get("avgLogprobs"), (int, float))]
    return AnswerMetadata(
        sources=tuple(dict.fromkeys(sources)),
        citations=tuple(dict.fromkeys(citations)),
        queries=queries,
        search_suggestions=suggestions,
        search_links=_links(suggestions, queries),
        urls=tuple(
            dict.fromkeys(
                ReadUrl(url=_text(read.get("retrievedUrl")), status=_text(read.get("urlRetrievalStatus")))
                for piece in _pieces(raw, "urlContextMetadata")
                for read in _objects(piece.get("urlMetadata"))
                if _text(read.get("retrievedUrl"))
            )
        ),
        safety_ratings=tuple(rating for piece in raw for rating in _objects(piece.get("safetyRatings"))),
        logprobs=tuple(_pieces(raw, "logprobsResult")),
        avg_logprobs=_number(average[-1]) if average else None,
        raw=tuple(raw),
        finish_message=_last_text(raw, "finishMessage"),
        response_id=_last_text(raw, "responseId"),
    )


def _last_text(raw: Sequence[Mapping[str, Any]], name: str) -> str:
    return next((found for piece in reversed(raw) if (found := _text(piece.get(name)))), "")


def _number(value: Any) -> float | None:
    """A number as a float; None for anything else, such as an integer that no float holds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def server_step(part: Mapping[str, Any]) -> ServerStep | None:
    """Return the step at the provider that a part reports; None if it reports none."""
    for name, (kind, tool) in _STEPS.items():
        inner = part.get(name)
        if isinstance(inner, dict):
            fields = cast("JsonObject", inner)
            value = {key: item for key, item in fields.items() if key not in ("id", "toolType")}
            return ServerStep(
                kind=kind,
                tool=tool or _text(fields.get("toolType")).lower(),
                id=_text(fields.get("id")) or None,
                value=value,
            )
    return None


def server_steps_of(content: Mapping[str, Any]) -> list[ServerStep]:
    """Return the steps at the provider that a content reports: in its parts, or as steps of the Interactions API."""
    found = [step for part in parts_of(content) if (step := server_step(part)) is not None]
    kept = interaction_of(content)
    if kept is not None:
        steps = _objects(kept.get("steps"))
        answered = {_text(step.get("call_id")) for step in steps if step.get("type") == "function_result"}
        found += [made for step in steps if (made := _step_of_interaction(step, answered)) is not None]
    return found


def _step_of_interaction(step: JsonObject, answered: Collection[str]) -> ServerStep | None:
    """Return a step of the Interactions API that ran at the provider; functions count if it has answered them itself."""
    name, _, kind = _text(step.get("type")).rpartition("_")
    id = _text(step.get("id" if kind == "call" else "call_id"))
    if kind not in ("call", "result") or not name or (name == "function" and id not in answered):
        return None
    rest = {key: value for key, value in step.items() if key not in ("type", "id", "call_id", "signature")}
    if name == "code_execution":
        value = _object(rest.get("arguments"))
        if kind == "result":
            outcome = "OUTCOME_FAILED" if rest.get("is_error") is True else "OUTCOME_OK"
            value = {"outcome": outcome, "output": rest.get("result")}
        return ServerStep(kind="code" if kind == "call" else "code_result", tool=name, id=id or None, value=value)
    inner, ours = ("arguments", "args") if kind == "call" else ("result", "response")
    value = {key: item for key, item in rest.items() if key != inner}
    if inner in rest:
        told = rest[inner]
        value[ours] = told if isinstance(told, dict) else {"result": told}
    search = "google_search_image" if rest.get("search_type") == "image_search" else "google_search_web"
    tool = {"google_search": search, "function": _text(step.get("name")) or name}.get(name, name)
    return ServerStep(kind="tool_call" if kind == "call" else "tool_result", tool=tool, id=id or None, value=value)


def step_name(step: ServerStep) -> str:
    """The name of a step for people: a tool of an MCP server by the names of both."""
    server, tool = _text(step.value.get("server_name")), _text(step.value.get("name"))
    return f"@{server}/{tool}" if step.tool == "mcp_server_tool" and server and tool else step.tool


def step_part(step: ServerStep) -> Part:
    """Return the part that reports a step at the provider."""
    name = next(name for name, (kind, _) in _STEPS.items() if kind == step.kind)
    identity: JsonObject = {} if step.id is None else {"id": step.id}
    kind = {"toolType": step.tool.upper()} if step.kind in ("tool_call", "tool_result") else {}
    return {name: identity | kind | dict(step.value)}


def made_media(part: Mapping[str, Any]) -> Media | None:
    """Return the image, sound or file that a part of the answer holds; None if it holds none that can be read."""
    media = None if is_thought(part) else media_of(part)
    if media is None:
        return None
    kind, name = media.get("mime_type", ""), media.get("name")
    said = _text(_object(part.get("audioTranscription")).get("text"))
    if "data" not in media:
        return Media(uri=media["uri"], mime_type=kind, name=name, transcript=said) if media.get("uri") else None
    try:
        data = base64.b64decode(media["data"].replace("-", "+").replace("_", "/"))
    except (binascii.Error, ValueError):
        return None
    return Media(data=data, mime_type=kind or "application/octet-stream", name=name, transcript=said)


def made_part(media: Media) -> Part:
    """Return the part in which a model made media: also with the words that are spoken in it, which no prompt may have."""
    said = {"audioTranscription": {"text": without_surrogates(media.transcript)}} if media.transcript else {}
    return media_part(media) | said


# Internals ---------------------------------------------------------------------------------------------------------------


class _Texts:
    """The text of an answer, in which the provider counts bytes of a part and we count characters of the whole."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._parts: list[Part] = parts_of(content)
        said = [part["text"] if isinstance(part.get("text"), str) and not is_thought(part) else "" for part in self._parts]
        self._said = said
        self.whole = "".join(said)

    def passage(self, start: Any, end: Any, part: Any, text: str) -> tuple[str, int | None, int | None]:
        """Return a passage and its place, by its bytes if they fit, else by its text."""
        index = part if isinstance(part, int) and 0 <= part < len(self._said) else None
        before = "" if index is None else "".join(self._said[:index])
        encoded = (self.whole if index is None else self._said[index]).encode()
        first = start if isinstance(start, int) and not isinstance(start, bool) else 0
        if isinstance(end, int) and 0 <= first < end <= len(encoded):
            found = encoded[first:end].decode("utf-8", "replace")
            if not text or found == text:
                place = len(before) + len(encoded[:first].decode("utf-8", "replace"))
                return found, place, place + len(found)
        place = self.whole.find(text) if text else -1
        return (text, place, place + len(text)) if place >= 0 else (text, None, None)


class _LinkParser(HTMLParser):
    """Parser for the links of search suggestions; nothing else of their HTML is used."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[SearchLink] = []
        self._url = ""
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            url = (dict(attrs).get("href") or "").strip()
            self._url, self._text = (url if _is_web(url) else ""), []

    def handle_data(self, data: str) -> None:
        if self._url:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        text = " ".join("".join(self._text).split())
        if tag == "a" and self._url and text:
            self.found.append(SearchLink(text=text[:300], url=self._url))
        if tag == "a":
            self._url = ""


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _links(suggestions: Sequence[str], queries: Sequence[str]) -> tuple[SearchLink, ...]:
    """Return the links of suggestions; searches for the queries if the HTML has none."""
    parser = _LinkParser()
    for html in suggestions:
        parser.feed(html[:_HTML_MAX])
        parser.close()
        parser.reset()
    if suggestions and not parser.found:
        return tuple(SearchLink(text=query, url=f"https://www.google.com/search?q={quote_plus(query)}") for query in queries)
    return tuple(dict.fromkeys(parser.found))


def _source(chunk: JsonObject) -> Source | None:
    for name, (kind, address) in _CHUNKS.items():
        if found := _object(chunk.get(name)):
            return Source(
                uri=_text(found.get(address)) or _text(found.get("uri")) or _text(found.get("documentName")),
                title=_text(found.get("title")),
                kind=kind,
                domain=_text(found.get("domain")),
                text=_text(found.get("text")),
            )
    return None


def _support(support: JsonObject, chunks: Sequence[Source | None], texts: _Texts) -> Citation:
    segment = _object(support.get("segment"))
    text, start, end = texts.passage(
        segment.get("startIndex"), segment.get("endIndex"), segment.get("partIndex", 0), _text(segment.get("text"))
    )
    indices, scores = _list(support.get("groundingChunkIndices")), _list(support.get("confidenceScores"))
    named: list[tuple[Source, float | None]] = []
    for at, index in enumerate(indices):
        source = chunks[index] if _is_place(index, chunks) else None
        if source is not None:
            named.append((source, _number(scores[at]) if at < len(scores) else None))
    known = tuple(score for _, score in named if score is not None)
    return Citation(
        text=text, start=start, end=end,
        sources=tuple(source for source, _ in named),
        confidence=known if len(known) == len(named) else (),
    )  # fmt: skip


def _is_place(index: Any, chunks: Sequence[object]) -> TypeGuard[int]:
    return isinstance(index, int) and not isinstance(index, bool) and 0 <= index < len(chunks)


def _cited(cited: JsonObject, texts: _Texts) -> Citation:
    text, start, end = texts.passage(cited.get("startIndex"), cited.get("endIndex"), None, "")
    uri, title = _text(cited.get("uri")), _text(cited.get("title"))
    source = Source(uri=uri, title=title, kind="citation", license=_text(cited.get("license")))
    return Citation(text=text, start=start, end=end, sources=(source,) if uri or title else ())


def _pieces(raw: Iterable[Mapping[str, Any]], name: str) -> Iterator[JsonObject]:
    return (cast("JsonObject", piece[name]) for piece in raw if isinstance(piece.get(name), dict))


def _objects(value: Any) -> list[JsonObject]:
    return [cast("JsonObject", item) if isinstance(item, dict) else {} for item in _list(value)]


def _object(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _each(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, texts)))
