"""Media of a conversation that a model cannot be shown, and of which somebody should hear.

A conversation and a test for parts come in, a notice goes out. Each content is looked at once; what stands in for the media
is not known here.
"""

from __future__ import annotations

from collections.abc import Callable

from callgate.content.read import interaction_of, is_response, media_of, parts_of, response_media
from callgate.events import Notice
from callgate.history.conversation import Conversation
from callgate.history.encoded import ContentPrefix
from callgate.types import Content, Part

__all__ = ["MediaTest", "media_notices"]

MediaTest = Callable[[Part, bool], bool]
"""Test of a part with media, and whether it is the model's: True if the model can be shown it."""

TYPES_MAX = 10
"""Maximum number of types that a notice names."""
_MARKS = (b'"inlineData"', b'"fileData"')


class _Found(ContentPrefix):
    """The types of the media of each content that has any which a model cannot be shown."""

    __slots__ = ("types",)

    def __init__(self) -> None:
        super().__init__()
        self.types: dict[int, tuple[str, ...]] = {}


def media_notices(talk: Conversation, is_shown: MediaTest, *, start: int = 0, refused: int | None = None) -> list[Notice]:
    """A notice of media that a sentence stands in for, from a content on; what is `refused` is no matter of it."""
    made = talk.derived((_Found, is_shown), _Found)
    encoded = talk.encoded
    known = made.shared(encoded)
    if known < len(made.contents):
        made.types = {place: types for place, types in made.types.items() if place < known}
    for place in range(known, len(encoded)):
        if any(mark in encoded[place] for mark in _MARKS) and (types := _types(talk[place], is_shown)):
            made.types[place] = types
    made.contents = encoded
    found = {kind: None for place, types in made.types.items() if place >= start and place != refused for kind in types}
    if not found:
        return []
    named = ", ".join(map(repr, [*found][:TYPES_MAX])) + (" and others" if len(found) > TYPES_MAX else "")
    told = f"The conversation has media of type {named} that this model cannot be shown: a sentence stands in for it."
    return [Notice("media_left_out", told, "warning")]


def _types(content: Content, is_shown: MediaTest) -> tuple[str, ...]:
    is_model = content.get("role") == "model"
    if is_model and interaction_of(content) is not None:
        return ()  # It goes back as it came.
    parts = [one for part in parts_of(content) for one in (response_media(part) if is_response(part) else [part])]
    left = [media for part in parts if (media := media_of(part)) is not None and not is_shown(part, is_model)]
    return tuple(str(media.get("mime_type") or "unknown")[:100] for media in left)
