"""The part of a video that is looked at, and how closely: in Gemini's contents, and in blocks of the Interactions API.

Fields of a part or a block come in, and go out in the other form. Nothing is read from the media itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from callgate.types import JsonObject

__all__ = ["MediaView", "same_fields"]

_LEVEL = "MEDIA_RESOLUTION_"
_STATIC = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaView:
    """The segment of a video, its frames per second, and the resolution of an image or a video; None where it is open."""

    start: str | None = None
    end: str | None = None
    fps: float | None = None
    resolution: str | None = None

    def __bool__(self) -> bool:
        return self != _ALL

    @classmethod
    def of_part(cls, part: Mapping[str, Any]) -> MediaView:
        """The view of a part."""
        segment = _object(part.get("videoMetadata", part.get("video_metadata")))
        level: Any = part.get("mediaResolution", part.get("media_resolution"))
        level = _object(level).get("level") if isinstance(level, dict) else level
        word = level.removeprefix(_LEVEL).lower() if isinstance(level, str) else None
        return cls(
            start=_text(segment.get("startOffset", segment.get("start_offset"))),
            end=_text(segment.get("endOffset", segment.get("end_offset"))),
            fps=_number(segment.get("fps")),
            resolution=None if word == "unspecified" else word,
        )

    @classmethod
    def of_block(cls, block: Mapping[str, Any]) -> MediaView:
        """The view of a block of content."""
        segment = _object(block.get("processing"))
        return cls(
            start=_text(segment.get("start_offset")),
            end=_text(segment.get("end_offset")),
            fps=_number(segment.get("fps")),
            resolution=_text(block.get("resolution")),
        )

    def part_fields(self) -> JsonObject:
        """The fields of a part with this view."""
        segment = _without_none(startOffset=self.start, endOffset=self.end, fps=self.fps)
        level = {"mediaResolution": {"level": f"{_LEVEL}{self.resolution.upper()}"}} if self.resolution else {}
        return ({"videoMetadata": segment} if segment else {}) | level

    def block_fields(self, kind: str) -> JsonObject:
        """The fields of a block of this kind with this view; kinds that have no such field get none."""
        segment = _without_none(start_offset=self.start, end_offset=self.end, fps=self.fps) if kind == "video" else {}
        level = {"resolution": self.resolution} if self.resolution and kind in ("image", "video") else {}
        return ({"processing": {"type": _STATIC, **segment}} if segment else {}) | level


def same_fields(fields: Mapping[str, Any], source: Mapping[str, Any]) -> list[str]:
    """The names of the fields that a source has with the same values."""
    return [name for name, value in fields.items() if source.get(name) == value]


def _object(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _without_none(**fields: Any) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


_ALL = MediaView()
