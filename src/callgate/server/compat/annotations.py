"""Sources, media and steps of an answer as fields of a chat completion's message.

Takes parts and raw metadata; returns `annotations` as OpenAI has them, `images` and `audio`, and the rest as Google sent it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callgate.content.metadata import candidate_fields, fields_about, made_media, metadata_of, server_steps_of
from callgate.content.read import is_plain_text, is_thought, media_of, parts_of, same_kind_of_text, text_of
from callgate.events import plain
from callgate.metadata import Citation, Source
from callgate.server.compat.chat_request import EXTRA, GOOGLE
from callgate.strict_json import objects_in
from callgate.types import Content, JsonObject, Part

__all__ = [
    "AnswerText",
    "TextBlock",
    "extra_fields",
    "logprobs_of",
    "media_fields",
    "message_fields",
    "metadata_fields",
    "other_media",
]


def message_fields(content: Content, raw: Sequence[Mapping[str, Any]]) -> JsonObject:
    """Return the fields of a whole message beside its text and calls."""
    fields: JsonObject = {}
    parts = parts_of(content)
    for part in parts:
        for name, value in media_fields(part).items():
            fields[name] = [*fields.get(name, []), *value] if isinstance(value, list) else value
    steps = [plain(step) for step in server_steps_of(content)]
    others = [named for part in parts if (named := other_media(part))]
    return fields | metadata_fields(parts, raw, steps, others)


def media_fields(part: Part) -> JsonObject:
    """Return the field for an image or a sound that the model made; a message has none for anything else."""
    media = made_media(part)
    if media is None or other_media(part):
        return {}
    data = plain(media)["data"]
    if media.mime_type.startswith("audio/"):
        return {
            "audio": {
                "id": "audio-0",
                "data": data,
                "transcript": media.transcript,
                "expires_at": 0,
                "format": media.mime_type,
            }
        }
    url = media.uri or f"data:{media.mime_type};base64,{data}"
    return {"images": [{"type": "image_url", "image_url": {"url": url}}]}


def other_media(part: Part) -> JsonObject:
    """Return media of the answer that is neither an image nor a sound; empty if it is, or if the part has none."""
    media = made_media(part)
    kind = "" if media is None else media.mime_type
    return {} if media is None or not kind or kind.startswith(("image/", "audio/")) else dict(media_of(part) or {})


def metadata_fields(
    parts: Sequence[Part],
    raw: Sequence[Mapping[str, Any]],
    steps: Sequence[Any] = (),
    media: Sequence[JsonObject] = (),
) -> JsonObject:
    """Return the annotations of a message, and everything that was reported about it under `extra_content.google`."""
    content = {"parts": list(parts)}
    metadata = metadata_of(raw, content)
    extra = extra_fields(raw, steps, media)
    if metadata is None:
        return extra
    cited = {source for citation in metadata.citations for source in citation.sources}
    end = len(text_of(content))
    notes = [
        _annotation(source, citation.start if citation.start is not None else end, citation.end or end)
        for citation in metadata.citations
        for source in citation.sources
        if source.is_link
    ]
    notes += [_annotation(source, end, end) for source in metadata.sources if source.is_link and source not in cited]
    return ({"annotations": notes} if notes else {}) | extra


def extra_fields(
    raw: Sequence[Mapping[str, Any]], steps: Sequence[Any] = (), media: Sequence[JsonObject] = ()
) -> JsonObject:
    """Return `extra_content.google`: all that was reported about an answer, its steps at Google, and its other media."""
    metadata = metadata_of(raw, {})
    extra: JsonObject = {"server_steps": list(steps)} if steps else {}
    extra |= {"media": list(media)} if media else {}
    about = fields_about(raw)
    if metadata is not None:
        extra |= {"search_links": plain(metadata.search_links)} if metadata.search_links else {}
        extra |= {name: fields for name, fields in {"metadata": candidate_fields(raw), "response": about}.items() if fields}
    return {EXTRA: {GOOGLE: extra}} if extra else {}


class AnswerText:
    """The parts of an answer as they were said, so that a passage is found in the block that has it."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self.length = 0
        """Characters of the answer so far, without thoughts."""

    def add(self, part: Part) -> None:
        """Add a part; pieces of one text are one part."""
        last = self._parts[-1] if self._parts else {}
        if is_plain_text(part) and is_plain_text(last) and same_kind_of_text(part, last):
            self._parts[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            self._parts.append(part)
        text = part.get("text")
        self.length += len(text) if isinstance(text, str) and not is_thought(part) else 0

    def notes(self, raw: Sequence[Mapping[str, Any]]) -> list[tuple[Citation, Source]]:
        """Return the passages with their sources; a source without a passage is one of an empty passage at the end."""
        metadata = metadata_of(raw, {"parts": self._parts})
        if metadata is None:
            return []
        found = [(citation, source) for citation in metadata.citations for source in citation.sources]
        cited = {source for _, source in found}
        end = Citation(text="", start=self.length, end=self.length)
        found = [(citation if citation.start is not None else end, source) for citation, source in found]
        return [*found, *((end, source) for source in metadata.sources if source not in cited)]


class TextBlock:
    """A text that a client sees, of pieces of the answer and of sentences that are none of it."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int | None, str]] = []

    def add(self, text: str, place: int | None) -> None:
        """Add a piece that begins at this place of the answer; None if it is not of the answer."""
        self._pieces.append((place, text))

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(text for _, text in self._pieces)

    def passage(self, start: int, end: int) -> tuple[int, int] | None:
        """Return where a passage of the answer is in this text; None if it is elsewhere."""
        offset, first = 0, None
        for place, text in self._pieces:
            if place is not None:
                if first is None and place <= start < place + max(len(text), 1):
                    first = offset + start - place
                if first is not None and place < end <= place + len(text):
                    return first, offset + end - place
                if start == end == place + len(text):
                    return offset + len(text), offset + len(text)
            offset += len(text)
        return None


def _annotation(source: Source, start: int, end: int) -> JsonObject:
    cited = {"start_index": start, "end_index": end, "url": source.uri, "title": source.title or source.uri}
    return {"type": "url_citation", "url_citation": cited}


def logprobs_of(raw: Sequence[Mapping[str, Any]]) -> JsonObject | None:
    """Return the log probabilities of an answer in the form of chat completions; None if there are none."""
    metadata = metadata_of(raw, {})
    tokens = [token for found in metadata.logprobs for token in _tokens(found)] if metadata is not None else []
    return {"content": tokens, "refusal": None} if tokens else None


def _tokens(found: Mapping[str, Any]) -> Iterator[JsonObject]:
    tops = objects_in(found.get("topCandidates"))
    for index, token in enumerate(objects_in(found.get("chosenCandidates"))):
        others = objects_in(tops[index].get("candidates")) if index < len(tops) else []
        yield _token(token) | {"top_logprobs": [_token(other) for other in others]}


def _token(token: Mapping[str, Any]) -> JsonObject:
    text = str(token.get("token", ""))
    return {"token": text, "logprob": token.get("logProbability", 0.0), "bytes": list(text.encode("utf-8", "replace"))}
