"""Bytes of a file <-> text: which encoding, which line ends, and whether it is text at all.

Pure: bytes in, text out, and back again without loss or not at all.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from callgate.errors import ToolError

__all__ = ["Encoding", "NotTextError", "decoded", "encoding_of", "text_of"]


class NotTextError(ToolError):
    """The bytes are not text."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoding of the text of a file."""

    codec: str
    mark: bytes = b""
    """The byte order mark at the beginning."""

    @property
    def note(self) -> str | None:
        """A note for readers; empty for plain UTF-8."""
        if self == UTF8:
            return None
        if self == WINDOWS:
            return "The file is not UTF-8; it was read as Windows-1252, which is a guess."
        kind = "UTF-8" if self.codec == "utf-8" else self.codec.upper()
        return f"The file is {kind} with a byte order mark, which is not shown."

    def encode(self, text: str) -> bytes:
        """The text in this encoding, without the mark.

        Raises:
            ToolError: the encoding has no sign for something in it.
        """
        try:
            return text.encode(self.codec)
        except UnicodeEncodeError as error:
            odd = f"U+{ord(text[error.start]):04X}"
            if self.codec == "utf-8":
                raise ToolError(
                    f"Not written: the text holds half a surrogate pair ({odd}), which is no character."
                ) from None
            raise ToolError(f"Not written: the file is kept in {self.codec}, which has no sign for {odd}.") from None


UTF8 = Encoding("utf-8")
WINDOWS = Encoding("cp1252")
# UTF-32 before UTF-16: the mark of one begins with the mark of the other.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Control characters that text has: tab, line feed, form feed, carriage return, backspace, escape.
_TEXT_CONTROLS = frozenset(b"\t\n\f\r\b\x1b")
_CONTROLS = bytes(code for code in range(32) if code not in _TEXT_CONTROLS)
_CONTROLS_SHARE = 0.02

_KINDS = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"SQLite format 3\0", "an SQLite database"),
)


def encoding_of(data: bytes, *, whole: bool = True) -> Encoding:
    """The encoding of the beginning of a file, or of all of it. Without a mark it is UTF-8 if it can be.

    Raises:
        NotTextError: it is none.
    """
    for mark, codec in _MARKS:
        if data.startswith(mark) and _decodes(data[len(mark) :], codec, whole=whole):
            return Encoding(codec, mark)
    kind = next((kind for magic, kind in _KINDS if data.startswith(magic)), None)
    if b"\0" in data:
        raise NotTextError(f"is a binary file ({kind})" if kind else "is a binary file (it holds NUL bytes)")
    controls = len(data) - len(data.translate(None, _CONTROLS))
    if controls * 10 <= len(data) and _decodes(data, "utf-8", whole=whole):
        return UTF8
    if kind or controls > _CONTROLS_SHARE * len(data) or not _decodes(data, "cp1252", whole=whole):
        raise NotTextError(
            f"is a binary file ({kind})" if kind else "is a binary file (its bytes are no text that is known)"
        )
    return WINDOWS


def text_of(data: bytes) -> str:
    """The text of a whole file.

    Raises:
        NotTextError: it is none.
    """
    if b"\0" not in data and not data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return decoded(data, encoding_of(data))


def decoded(data: bytes, encoding: Encoding, *, whole: bool = True) -> str:
    """The text of bytes that begin at the beginning of the file; half a character at the end is left away unless `whole`."""
    decoder = codecs.getincrementaldecoder(encoding.codec)("strict")
    try:
        return decoder.decode(data[len(encoding.mark) :], final=whole)
    except UnicodeDecodeError:
        raise NotTextError(f"is not text in {encoding.codec} all the way through") from None


def _decodes(data: bytes, codec: str, *, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(codec)("strict").decode(data, final=whole)
    except UnicodeDecodeError:
        return False
    return True
