"""Known secrets in a text, as they are and as programs encode them: texts in, the same without the secrets out.

Base64 and base32 at any offset, hexadecimal, percent, JSON, HTML and backslash escapes, other case, reversed, and broken
over lines or quotes. A text is decoded once and searched for needles. Only where one is found it is decoded again, with
the place of every character, and cut there: the work grows with the length of the text and not faster, whatever the text.
"""

from __future__ import annotations

import base64
import codecs
import html
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias
from urllib.parse import unquote, unquote_to_bytes

__all__ = ["SecretNeedles"]

REPLACEMENT = "[redacted: known secret]"
DECODINGS_MAX = 4
WHOLE = "[redacted: a text with a known secret]"

# Characters that encoders and line breaks put between those of a secret.
_JUNK = re.compile("[\\s\\\\\"'\u200b\u200c\u200d\u2060\ufeff]+")
_JUNK_CHARS = frozenset("\\\"'\u200b\u200c\u200d\u2060\ufeff")
_PERCENT = re.compile(r"%[0-9a-fA-F]{2}(?:%[89abAB][0-9a-fA-F]){0,3}")
_ENTITY = re.compile(r"&(?:#[0-9]{1,8};?|#[xX][0-9a-fA-F]{1,8};?|[^\t\n\f <&#;]{1,32};?)")
_ESCAPE = re.compile(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_ESCAPE_OR_BREAK = re.compile(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|[nrtbf])")

_READINGS = (None, _ESCAPE, _ESCAPE_OR_BREAK)
"""The escapes that are decoded. A secret may hold what looks like one, so a text is also read literally."""

Placed: TypeAlias = list[tuple[str, int, int]]
"""The characters of a decoded text, each with the piece of the original that it stands for."""


class SecretNeedles:
    """The forms of some secrets, ready to be searched for."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: one may be part of another.
        self._secrets = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        forms = [form for secret in self._secrets for form in _encoded_forms(secret)]
        self._plain = [(escape, _unique(self._secrets, escape)) for escape in _READINGS]
        self._all = [(escape, _unique([*self._secrets, *forms], escape)) for escape in _READINGS]

    def redact(self, text: str, *, encoded: bool = True) -> str:
        """The text without the secrets; `encoded=False` looks only for those that are spelled out."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, REPLACEMENT)
        for escape, needles in self._all if encoded else self._plain:
            if not needles:
                continue
            squeezed = _squeezed(text, escape)
            found = [needle for needle in needles if needle in squeezed]
            if not found:
                continue
            text = _without(text, found, escape)
            squeezed = _squeezed(text, escape)
            if any(needle in squeezed for needle in found):
                return WHOLE  # It is there in a mixture of forms whose places cannot be found.
        return text


def _unique(forms: Iterable[str], escape: re.Pattern[str] | None) -> list[str]:
    return list(dict.fromkeys(needle for form in forms if (needle := _squeezed(form, escape))))


def _squeezed(text: str, escape: re.Pattern[str] | None) -> str:
    """The text in small letters, without what encoders put between characters, and with escapes decoded, if any."""
    if escape is None:
        return _JUNK.sub("", text).lower()
    for _ in range(DECODINGS_MAX):
        decoded = unquote(text) if "%" in text else text
        decoded = html.unescape(decoded) if "&" in decoded else decoded
        if "\\" in decoded:
            decoded = escape.sub(_unescaped, decoded)
        # Before the next round: what stands between the characters of an escape hides it.
        decoded = _JUNK.sub("", decoded)
        if decoded == text:
            break
        text = decoded
    return text.lower()


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else ""  # A line break, or another that stands for space.


def _unquoted(found: re.Match[str]) -> str:
    return unquote_to_bytes(found[0]).decode("utf-8", "replace")


def _entity(found: re.Match[str]) -> str:
    return html.unescape(found[0])


def _without(text: str, needles: Iterable[str], escape: re.Pattern[str] | None) -> str:
    """Cut the needles out of the text that they were found in."""
    placed: Placed = [(char, place, place + 1) for place, char in enumerate(text)]
    for _ in range(DECODINGS_MAX):
        before = len(placed)
        if escape is not None:
            placed = _decoded(placed, "%", _PERCENT, _unquoted)
            placed = _decoded(placed, "&", _ENTITY, _entity)
            placed = _decoded(placed, "\\", escape, _unescaped)
        placed = [one for one in placed if one[0] not in _JUNK_CHARS and not one[0].isspace()]
        if len(placed) == before:
            break
    squeezed = "".join(char.lower()[0] for char, _, _ in placed)
    pieces: list[tuple[int, int]] = []
    for needle in needles:
        at = squeezed.find(needle)
        while at >= 0:
            pieces.append((placed[at][1], placed[at + len(needle) - 1][2]))
            at = squeezed.find(needle, at + len(needle))
    return "".join(_kept(text, sorted(pieces)))


def _decoded(placed: Placed, mark: str, pattern: re.Pattern[str], decode: Callable[[re.Match[str]], str]) -> Placed:
    text = "".join(char for char, _, _ in placed)
    if mark not in text:
        return placed
    result: Placed = []
    end = 0
    for found in pattern.finditer(text):
        result += placed[end : found.start()]
        begin, end = found.span()
        result += [(char, placed[begin][1], placed[end - 1][2]) for char in decode(found)]
    return result + placed[end:]


def _kept(text: str, pieces: list[tuple[int, int]]) -> Iterator[str]:
    """Return the text around the pieces, with a replacement for each group of them that overlaps."""
    end = 0
    for start, stop in pieces:
        if start >= end:
            yield text[end:start]
            yield REPLACEMENT
        end = max(end, stop)
    yield text[end:]


def _encoded_forms(secret: str) -> Iterable[str]:
    data = secret.encode("utf-8", "surrogatepass")
    for offset in range(3):
        # Only the characters that depend on nothing before and after the secret.
        text = base64.b64encode(bytes(offset) + data + bytes(3)).decode("ascii")
        core = text[-(-8 * offset // 6) : 8 * (offset + len(data)) // 6]
        yield from {core, core.replace("+", "-").replace("/", "_")}
    for offset in range(5):
        text = base64.b32encode(bytes(offset) + data + bytes(5)).decode("ascii")
        yield text[-(-8 * offset // 5) : 8 * (offset + len(data)) // 5]
    yield data.hex()
    yield secret[::-1]
    yield codecs.encode(secret, "rot13")
