"""Raw samples that a model makes become a file that players take."""

from __future__ import annotations

import io
import wave

import pytest

from callgate.content.sounds import playable
from callgate.types import Media

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
