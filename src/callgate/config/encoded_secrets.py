"""Known secrets in a text, as they are and as programs encode them: texts in, the same without the secrets out.

Base64, base32 and base85 at any offset, hexadecimal, percent, JSON, HTML, backslash and quoted-printable escapes, other
case, reversed, and broken over lines, quotes or other signs. A text is decoded once and searched for needles. Only where one
is found it is decoded again, with the place of every character, and cut there. Encodings inside of encodings, UTF-16 and
lists of numbers are found by decoding the runs that may be some, which are cut out whole. The work grows with the length of
the text and not faster, whatever the text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import functools
import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote, unquote_to_bytes

from callgate.strict_json import without_surrogates

__all__ = ["SecretNeedles"]

REPLACEMENT = "[redacted: known secret]"
DECODINGS_MAX = 4
NESTED_MAX = 3
"""Maximum depth of nested encodings that are decoded."""
WHOLE = "[redacted: a text with a known secret]"
WORD_CHARS_MIN = 12
"""With fewer letters and digits a secret is not looked for without its other signs."""
CORE_CHARS_MIN = 10

# Characters that encoders and line breaks put between those of a secret.
_JUNK = re.compile("(?:[\\s\\\\\"'\0\u200b\u200c\u200d\u2060\ufeff]|\x1b\\[[0-9;]{0,20}[A-Za-z])+")
_COLOUR = re.compile("\x1b\\[[0-9;]{0,20}[A-Za-z]")
_JUNK_CHARS = frozenset("\\\"'\0\u200b\u200c\u200d\u2060\ufeff")
_NO_WORD = re.compile(r"[\W_]+")
_BREAK = re.compile(r"\\?[\r\n][ \t\r\n]*+|(?<!\\)\\++[rn]")
_PRINTABLE = re.compile(rb"[\t\n\r\x20-\x7e]{10,}")
_PERCENT = re.compile(r"%[0-9a-fA-F]{2}(?:%[89abAB][0-9a-fA-F]){0,3}")
_ENTITY = re.compile(r"&(?:#[0-9]{1,8};?|#[xX][0-9a-fA-F]{1,8};?|[^\t\n\f <&#;]{1,32};?)")
_QUOTED = re.compile(r"=[0-9A-F]{2}(?:=[89AB][0-9A-F]){0,3}")
_HEX4, _HEX8 = "[0-9a-fA-F]{4}", "[0-9a-fA-F]{8}"
_CODED = (
    rf"(?:%[uU](?P<percent>{_HEX4})|(?<!\\)\\++(?:u(?P<short>{_HEX4})|U(?P<long>{_HEX8})|"
    r"[ux]\{(?P<braced>[0-9a-fA-F]{1,8})\}|x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})"
)
_ESCAPE = re.compile(f"{_CODED}))")
_ESCAPE_OR_BREAK = re.compile(f"{_CODED}|[nrtbf]))")

_READINGS = (None, _ESCAPE, _ESCAPE_OR_BREAK, _QUOTED)
_ENGINE_MAX = 1_000
"""The escapes that are decoded. A secret may hold what looks like one, so a text is also read literally."""

_MARKS: dict[re.Pattern[str] | None, re.Pattern[str]] = {
    _ESCAPE: re.compile(r"[%&\\]"),
    _ESCAPE_OR_BREAK: re.compile(r"\\"),
    _QUOTED: _QUOTED,
}
"""The signs by which a text is read in another way than literally."""

Placed: TypeAlias = list[tuple[str, int, int]]
"""The characters of a decoded text, each with the piece of the original that it stands for."""


class SecretNeedles:
    """The forms of some secrets, ready to be searched for."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: one may be part of another.
        self._secrets = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        forms = [form for secret in self._secrets for form in _encoded_forms(secret)]
        self._plain = _readings_of(self._secrets)
        self._all = _readings_of([*self._secrets, *forms])
        self._bytes = _Needles(form for secret in self._secrets for form in _byte_forms(secret))
        self._words = _Needles(word for secret in self._secrets if (word := _word_of(secret)))

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def are_in(self, text: str) -> bool:
        """True if the text holds one of the secrets, as it is or encoded."""
        return self.redact(text) != text

    def redact(self, text: str, *, encoded: bool = True) -> str:
        """The text without the secrets; `encoded=False` looks only for those that are spelled out."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, REPLACEMENT)
        for reading in self._all if encoded else self._plain:
            found = reading.found_in(text)
            if not found:
                continue
            text = _without(text, found, reading.escape)
            if reading.found_in(text):
                return WHOLE  # It is there in a mixture of forms whose places cannot be found.
        text = self._without_words(text)
        return self._without_nested(text) if encoded and self._secrets else text

    def _without_words(self, text: str) -> str:
        """Cut out secrets that have other signs between their characters, or not their own."""
        if not (found := self._words.found_in(_words(text)) if self._words else []):
            return text
        placed = [
            (letter, place, place + 1)
            for place, char in enumerate(text)
            for letter in unicodedata.normalize("NFKC", char)
            if letter.isalnum()
        ]
        text = _cut(text, found, placed)
        return WHOLE if self._words.are_in(_words(text)) else text

    def _without_nested(self, text: str) -> str:
        """Cut out the runs that hold a secret in several encodings, or as something else than characters."""
        if not self._is_nested(_BREAK.sub("", text), NESTED_MAX):
            return text
        for pattern in RUNS:
            text = pattern.sub(lambda run: REPLACEMENT if self._is_nested(run[0], NESTED_MAX) else run[0], text)
        return WHOLE if self._is_nested(_BREAK.sub("", text), NESTED_MAX) else text

    def _is_nested(self, text: str, levels: int) -> bool:
        for data in decoded_runs(text):
            plain = data.replace(b"\0", b"")
            if self._bytes.are_in(plain.lower().decode("latin-1")):
                return True
            inner = b"\n".join(_PRINTABLE.findall(plain)).decode("ascii")
            if not inner:
                continue
            if any(reading.found_in(inner) for reading in self._all) or (levels > 1 and self._is_nested(inner, levels - 1)):
                return True
        return False


class _Needles:
    """Texts to be searched for, all at once: by an engine whose time does not depend on how many there are."""

    def __init__(self, needles: Iterable[str]) -> None:
        self._needles = [without_surrogates(needle) for needle in dict.fromkeys(needles) if needle]

    def __bool__(self) -> bool:
        return bool(self._needles)

    @functools.cached_property
    def _engines(self) -> list[Callable[[str], bool]]:
        from pydantic_core import SchemaValidator, core_schema

        patterns = (
            "|".join(map(re.escape, self._needles[begin : begin + _ENGINE_MAX]))
            for begin in range(0, len(self._needles), _ENGINE_MAX)
        )
        schemas = (core_schema.str_schema(pattern=pattern, regex_engine="rust-regex") for pattern in patterns)
        return [SchemaValidator(schema).isinstance_python for schema in schemas]

    def are_in(self, text: str) -> bool:
        """True if one of them is in the text."""
        text = without_surrogates(text)
        return any(is_in(text) for is_in in self._engines)

    def found_in(self, text: str) -> list[str]:
        """The secrets that are in the text."""
        return [needle for needle in self._needles if needle in text] if self.are_in(text) else []

    def is_same(self, other: _Needles) -> bool:
        """True if it is about the same texts."""
        return self._needles == other._needles


class _Reading(NamedTuple):
    """A way to read escapes, and the secrets as they are in it."""

    escape: re.Pattern[str] | None
    needles: _Needles
    is_plain: bool
    """True if none of the secrets has such escapes itself, so that a text without them is read by the literal reading."""

    def found_in(self, text: str) -> list[str]:
        """The needles that a text holds, read this way."""
        if not self.needles or (self.is_plain and not _MARKS[self.escape].search(text)):
            return []
        return self.needles.found_in(_squeezed(text, self.escape))


def _readings_of(forms: Sequence[str]) -> list[_Reading]:
    found: list[_Reading] = []
    for escape in _READINGS:
        # What looks like an escape in a secret is decoded once more only if the text has it in one piece.
        needles = _Needles([*(_squeezed(form, escape) for form in forms), *(_squeezed(form, None) for form in forms)])
        is_plain = bool(found) and needles.is_same(found[0].needles)
        found.append(_Reading(escape, found[0].needles if is_plain else needles, is_plain))
    return found


def _byte_forms(secret: str) -> Iterator[str]:
    """The bytes of a secret without zeros, each as one character: a text of small letters in UTF-16 is found by them too."""
    for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
        data = secret.encode(encoding, "surrogatepass").replace(b"\0", b"").lower().decode("latin-1")
        yield from (data, data[::-1])
    yield secret[::-1].encode("utf-8", "surrogatepass").lower().decode("latin-1")


def _word_of(secret: str) -> str | None:
    """The letters and digits of a secret, if they are most of it."""
    word = _words(secret)
    return word if len(word) >= max(WORD_CHARS_MIN, 3 * len(secret) // 4) else None


def _words(text: str) -> str:
    return _NO_WORD.sub("", text if text.isascii() else unicodedata.normalize("NFKC", text)).lower()


def _squeezed(text: str, escape: re.Pattern[str] | None) -> str:
    """The text in small letters, without what encoders put between characters, and with escapes decoded, if any."""
    if escape is None or escape is _QUOTED:
        return _JUNK.sub("", text if escape is None else _QUOTED.sub(_unquoted, text)).lower()
    for _ in range(DECODINGS_MAX):
        decoded = unquote(text) if "%" in text else text
        decoded = html.unescape(decoded) if "&" in decoded else decoded
        if "\\" in decoded or "%" in decoded:
            decoded = escape.sub(_unescaped, decoded)
        # Before the next round: what stands between the characters of an escape hides it.
        decoded = _JUNK.sub("", decoded)
        if decoded == text:
            break
        text = decoded
    return text.lower()


def _unescaped(found: re.Match[str]) -> str:
    digits = found[found.lastgroup] if found.lastgroup else "0"  # Without digits: a line break, or another that is space.
    code = int(digits, 8 if found.lastgroup == "octal" else 16)
    return chr(code) if 0 < code < 0x110000 else ""


def _unquoted(found: re.Match[str]) -> str:
    return unquote_to_bytes(found[0].replace("=", "%")).decode("utf-8", "replace")


def _entity(found: re.Match[str]) -> str:
    return html.unescape(found[0])


def _without(text: str, needles: Iterable[str], escape: re.Pattern[str] | None) -> str:
    """Cut the needles out of the text that they were found in."""
    placed: Placed = [(char, place, place + 1) for place, char in enumerate(text)]
    for _ in range(DECODINGS_MAX):
        before = len(placed)
        if escape is _QUOTED:
            placed = _decoded(placed, "=", _QUOTED, _unquoted)
        elif escape is not None:
            placed = _decoded(placed, "%", _PERCENT, _unquoted)
            placed = _decoded(placed, "&", _ENTITY, _entity)
            placed = _decoded(placed, "\\%", escape, _unescaped)
        placed = _decoded(placed, "\x1b", _COLOUR, lambda found: "")
        placed = [one for one in placed if one[0] not in _JUNK_CHARS and not one[0].isspace()]
        if len(placed) == before:
            break
    return _cut(text, needles, placed)


def _cut(text: str, needles: Iterable[str], placed: Placed) -> str:
    """Cut the needles out of the text whose characters are placed."""
    squeezed = "".join(char.lower()[0] for char, _, _ in placed)
    pieces: list[tuple[int, int]] = []
    for needle in needles:
        at = squeezed.find(needle)
        while at >= 0:
            pieces.append((placed[at][1], placed[at + len(needle) - 1][2]))
            at = squeezed.find(needle, at + len(needle))
    return "".join(_replace_pieces(text, sorted(pieces)))


def _decoded(placed: Placed, marks: str, pattern: re.Pattern[str], decode: Callable[[re.Match[str]], str]) -> Placed:
    text = "".join(char for char, _, _ in placed)
    if not any(mark in text for mark in marks):
        return placed
    result: Placed = []
    end = 0
    for found in pattern.finditer(text):
        result += placed[end : found.start()]
        begin, end = found.span()
        result += [(char, placed[begin][1], placed[end - 1][2]) for char in decode(found)]
    return result + placed[end:]


def _replace_pieces(text: str, pieces: list[tuple[int, int]]) -> Iterator[str]:
    """Return the text around the pieces, with a replacement for each group of them that overlaps."""
    end = 0
    for start, stop in pieces:
        if start >= end:
            yield text[end:start]
            yield REPLACEMENT
        end = max(end, stop)
    yield text[end:]


def _encoded_forms(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    for offset in range(3):
        # Only the characters that depend on nothing before and after the secret.
        text = base64.b64encode(bytes(offset) + data + bytes(3)).decode("ascii")
        core = text[-(-8 * offset // 6) : 8 * (offset + len(data)) // 6]
        for form in {core, core.replace("+", "-").replace("/", "_")}:
            yield from (form, form[::-1])
    for offset in range(5):
        span = slice(-(-8 * offset // 5), 8 * (offset + len(data)) // 5)
        yield base64.b32encode(bytes(offset) + data + bytes(5)).decode("ascii")[span]
        yield base64.b32hexencode(bytes(offset) + data + bytes(5)).decode("ascii")[span]
    for offset in range(4):
        begin, end = -offset % 4, len(data) - (offset + len(data)) % 4
        for form in (base64.b85encode(data[begin:end]), base64.a85encode(data[begin:end])):
            yield from (form.decode("ascii"),) if len(form) >= CORE_CHARS_MIN else ()
    yield from (data.hex(), data.hex()[::-1])
    yield secret[::-1]
    yield codecs.encode(secret, "rot13")
    yield data.decode("latin-1")
    yield secret.replace(" ", "+")


# Runs of a text that may be encoded ---------------------------------------------------------------------------------------

# Decoded: base64, hexadecimal, and lists of numbers or bits. Pure, linear in time.


# Each is written so that a place where it fails is left after a few characters.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}+={0,2}")
_HEX = re.compile(r"(?:(?:0[xX]|\\{1,8}[xuU]\{?|[uU]\+|%[uU]?|=)?[0-9a-fA-F]{2}[\s:,;.}-]{0,3}+){8,}+")
_NUMBERS = re.compile(r"(?:[0-9]{1,3}[\s,;]{1,4}+){7,}+[0-9]{0,3}")
_BITS = re.compile(r"(?:[01]{8}[\s,]{0,2}+){8,}+")
# In all of them but base64, every character of a text in Latin letters has a digit.
_DIGITS = re.compile(r"(?:[0-9][^0-9]{0,6}+){8}")
_URL_SAFE = str.maketrans("-_", "+/")
_HEX_NOISE = re.compile(r"0[xX]|\\x|[^0-9a-fA-F]")
_NUMBER = re.compile(r"[0-9]+")


def _of_base64(run: str) -> Iterator[bytes]:
    plain = run.rstrip("=").translate(_URL_SAFE)
    for start in range(4):  # What is looked for may begin at any character.
        length = len(plain) - start
        end = start + length - (length % 4 == 1)
        yield binascii.a2b_base64(f"{plain[start:end]}{'=' * (-(end - start) % 4)}")


def _of_hex(run: str) -> Iterator[bytes]:
    digits = _HEX_NOISE.sub("", run)
    for start in range(2):
        yield bytes.fromhex(digits[start : len(digits) - (len(digits) - start) % 2])


def _of_numbers(run: str) -> Iterator[bytes]:
    yield bytes(min(int(number), 255) for number in _NUMBER.findall(run))


def _of_bits(run: str) -> Iterator[bytes]:
    bits = "".join(_NUMBER.findall(run))
    yield int(bits, 2).to_bytes(len(bits) // 8)


RUNS: dict[re.Pattern[str], Callable[[str], Iterator[bytes]]] = {
    _BASE64: _of_base64, _HEX: _of_hex, _NUMBERS: _of_numbers, _BITS: _of_bits,
}  # fmt: skip
"""A pattern of runs -> the bytes that one may stand for."""


def decoded_runs(text: str) -> Iterator[bytes]:
    """All texts that the runs of a text may stand for."""
    has_digits = _DIGITS.search(text) is not None
    for pattern, decode in RUNS.items():
        if has_digits or pattern is _BASE64:
            for run in pattern.finditer(text):
                yield from decode(run[0])
