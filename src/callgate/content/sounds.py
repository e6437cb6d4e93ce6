"""Sounds that a model makes: a stream cuts speech into parts, which are one sound, of raw samples that no player takes.

Takes parts of an answer one by one; returns the part of the whole sound. Takes raw samples; returns a WAV file.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import replace
from typing import Any

from callgate.types import JsonObject, Media, Part

__all__ = ["GrowingSound", "playable"]

_WORDS = "audioTranscription"
_FIELDS = frozenset({"inlineData", "thoughtSignature", _WORDS})
_RAW = ("audio/l16", "audio/pcm")
_SAMPLE_BYTES = 2
_BEGINNINGS = ("UklGR", "SUQz", "ZkxhQ")
"""RIFF, ID3 and fLaC in base64: a file of its own begins, not the next piece."""


class GrowingSound:
    """A sound, as far as it has arrived."""

    def __init__(self, part: Part) -> None:
        self._pieces = [part]

    @staticmethod
    def is_piece(part: Part) -> bool:
        """True if a part is a sound that may go on in the next one."""
        data: Any = part.get("inlineData")
        if not isinstance(data, dict) or part.keys() - _FIELDS:
            return False
        return str(data.get("mimeType", "")).startswith("audio/") and isinstance(data.get("data"), str)  # pyright: ignore

    def take(self, part: Part) -> bool:
        """Take the next piece; False if the part is not one of this sound."""
        data = part["inlineData"]
        if data.get("mimeType") != self._pieces[0]["inlineData"].get("mimeType") or data["data"].startswith(_BEGINNINGS):
            return False
        self._pieces.append(part)
        return True

    def parts(self) -> list[Part]:
        """The part of the whole sound; its pieces as they came if they cannot be joined."""
        if len(self._pieces) == 1:
            return self._pieces
        try:
            whole = b"".join(_decoded(piece["inlineData"]["data"]) for piece in self._pieces)
        except (binascii.Error, ValueError):
            return self._pieces
        part: Part = {name: value for piece in self._pieces for name, value in piece.items()}
        part["inlineData"] = self._pieces[0]["inlineData"] | {"data": base64.b64encode(whole).decode()}
        if _WORDS in part:
            part[_WORDS] = _joined([piece[_WORDS] for piece in self._pieces if isinstance(piece.get(_WORDS), dict)])
        return [part]


def _joined(spoken: list[JsonObject]) -> JsonObject:
    """The transcripts of the pieces of a sound as one: texts and lists of words follow one another."""
    found: JsonObject = {}
    for piece in spoken:
        for name, value in piece.items():
            is_next = type(value) in (str, list) and type(found.get(name)) is type(value) and name in ("text", "words")
            found[name] = found[name] + value if is_next else value
    return found


def playable(media: Media) -> Media:
    """Return raw samples, as Gemini makes speech (`audio/L16;codec=pcm;rate=24000`), as a WAV file; other media as it is."""
    kind, *fields = (word.strip() for word in media.mime_type.lower().split(";"))
    if kind not in _RAW or not media.data:
        return media
    given = {name: int(value) for name, _, value in (word.partition("=") for word in fields) if value.isdecimal()}
    rate, channels, size = given.get("rate") or 24_000, given.get("channels") or 1, len(media.data)
    frame = channels * _SAMPLE_BYTES
    form = struct.pack("<IHHIIHH", 16, 1, channels, rate, rate * frame, frame, 8 * _SAMPLE_BYTES)
    head = b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt " + form + b"data" + struct.pack("<I", size)
    return replace(media, data=head + media.data, mime_type="audio/wav")


def _decoded(piece: str) -> bytes:
    return base64.b64decode(piece.replace("-", "+").replace("_", "/"), validate=True)
