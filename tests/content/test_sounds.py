"""Raw samples that a model makes become a file that players take."""

from __future__ import annotations

import io
import wave

import pytest

from callgate.content.collect import Collector
from callgate.content.sounds import playable
from callgate.types import JsonObject, Media

SAMPLES = bytes(range(200)) * 24


@pytest.mark.parametrize(
    ("mime_type", "rate", "channels"),
    [
        ("audio/L16;codec=pcm;rate=24000", 24_000, 1),
        ("audio/pcm; rate=16000; channels=2", 16_000, 2),
        ("audio/L16", 24_000, 1),
        ("audio/L16;rate=0;channels=x", 24_000, 1),
    ],
)
def test_raw_samples_become_a_wav_file(mime_type: str, rate: int, channels: int) -> None:
    made = playable(Media(data=SAMPLES, mime_type=mime_type, name="speech"))
    with wave.open(io.BytesIO(made.data)) as read:
        assert (read.getframerate(), read.getnchannels(), read.getsampwidth()) == (rate, channels, 2)
        assert read.readframes(read.getnframes()) == SAMPLES
    assert (made.mime_type, made.name) == ("audio/wav", "speech")


@pytest.mark.parametrize("media", [Media(data=b"RIFF", mime_type="audio/wav"), Media(uri="https://e.com/a"), Media()])
def test_other_media_stays_as_it_is(media: Media) -> None:
    assert playable(media) is media


def piece(data: str, **more: JsonObject) -> JsonObject:
    """A chunk with a piece of a sound."""
    part = {"inlineData": {"mimeType": "audio/pcm", "data": data}, **more}
    return {"candidates": [{"content": {"role": "model", "parts": [part]}}]}


def test_pieces_of_a_sound_and_their_transcripts_are_one() -> None:
    collector = Collector()
    words: list[JsonObject] = [{"word": "Hello"}, {"word": "there"}]
    for chunk in (
        piece("AAAA", audioTranscription={"text": "Hello ", "words": words[:1]}),
        piece("AAEC"),
        piece("AAID", audioTranscription={"text": "there", "words": words[1:], "finished": True}),
        {"candidates": [{"finishReason": "STOP"}]},
    ):
        collector.feed(chunk)
    answer = collector.close()
    [part] = answer.content["parts"]
    assert part["audioTranscription"] == {"text": "Hello there", "words": words, "finished": True}
    assert answer.media == [Media(data=bytes([0, 0, 0, 0, 1, 2, 0, 2, 3]), mime_type="audio/pcm", transcript="Hello there")]


def test_pieces_that_are_not_base64_stay_as_they_came() -> None:
    collector = Collector()
    for chunk in (piece("AAAA"), piece("?", audioTranscription={"text": "x"}), {"candidates": [{"finishReason": "STOP"}]}):
        collector.feed(chunk)
    first, second = collector.close().content["parts"]
    assert ("audioTranscription" in first, second["audioTranscription"]) == (False, {"text": "x"})
