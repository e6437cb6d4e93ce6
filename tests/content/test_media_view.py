"""The segment of a video and the resolution of an image are the same in contents and in blocks of the Interactions API."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import convert

VIDEO = {"fileData": {"fileUri": "https://v.test/film", "mimeType": "video/mp4"}}
FILM = {"type": "video", "mime_type": "video/mp4", "uri": "https://v.test/film"}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
PDF = {"inlineData": {"mimeType": "application/pdf", "data": "aGk="}}
SHOT = {"type": "image", "mime_type": "image/png", "data": "aGk="}

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        VIDEO | {"videoMetadata": {"startOffset": "10s", "endOffset": "20s", "fps": 2}},
        FILM | {"processing": {"type": "static", "start_offset": "10s", "end_offset": "20s", "fps": 2}},
    ),
    (VIDEO | {"mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"}}, FILM | {"resolution": "low"}),
    (IMAGE | {"mediaResolution": {"level": "MEDIA_RESOLUTION_ULTRA_HIGH"}}, SHOT | {"resolution": "ultra_high"}),
]


@pytest.mark.parametrize(("part", "block"), CASES)
def test_a_view_is_carried_both_ways_without_a_loss(part: dict[str, Any], block: dict[str, Any]) -> None:
    contents, steps = [{"role": "user", "parts": [part]}], [{"type": "user_input", "content": [block]}]
    there = convert(contents, source="gemini", target="interactions", kind="history")
    assert (there.value, there.losses) == (steps, [])
    back = convert(steps, source="interactions", target="gemini", kind="history")
    assert (back.value, back.losses) == (contents, [])


@pytest.mark.parametrize(
    ("part", "target", "lost"),
    [
        (CASES[2][0], "openai", "/0/parts/0"),
        (CASES[2][0], "anthropic", "/0/parts/0"),
        (PDF | {"mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"}}, "interactions", "/0/parts/0"),
        (VIDEO | {"videoMetadata": {"startOffset": "1s", "odd": 1}}, "interactions", "/0/parts/0/videoMetadata"),
    ],
)  # fmt: skip
def test_a_view_that_cannot_be_carried_is_a_loss(part: dict[str, Any], target: Any, lost: str) -> None:
    converted = convert([{"role": "user", "parts": [part]}], source="gemini", target=target, kind="history")
    assert lost in [loss.pointer for loss in converted.losses]


def test_what_a_block_says_and_a_part_cannot_is_a_loss() -> None:
    steps = [{"type": "user_input", "content": [FILM | {"processing": "agentic", "resolution": "high"}]}]
    converted = convert(steps, source="interactions", target="gemini", kind="history")
    assert [loss.pointer for loss in converted.losses] == ["/0/content/0/processing"]
    assert converted.value[0]["parts"][0]["mediaResolution"] == {"level": "MEDIA_RESOLUTION_HIGH"}


@pytest.mark.parametrize(
    "part",
    [
        {"videoMetadata": None, "mediaResolution": None},
        {"videoMetadata": {"startOffset": 5, "fps": True}, "mediaResolution": {"level": "MEDIA_RESOLUTION_UNSPECIFIED"}},
        {"mediaResolution": 3},
    ],
)
def test_nonsense_is_no_view(part: dict[str, Any]) -> None:
    converted = convert([{"role": "user", "parts": [VIDEO | part]}], source="gemini", target="interactions", kind="history")
    assert converted.value == [{"type": "user_input", "content": [FILM]}]
