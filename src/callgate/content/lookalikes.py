"""Letters that are drawn alike: text in, the Latin letters that a reader takes it for out. Pure."""

from __future__ import annotations

import functools
import re
import unicodedata

__all__ = ["latin"]

# Letters of other scripts, and of Latin's own corners, that are drawn like a Latin one. Compatibility forms (full width,
# mathematical, with marks), small capitals, insular letters and those with strokes are taken apart by their Unicode names.
_DRAWN_LIKE = {
    "a": "аαɑ", "b": "ьƅв", "c": "сϲᴄⅽ", "d": "ԁɗ", "e": "еҽєε", "f": "ғƒſ", "g": "ɡցԍ", "h": "һհн", "i": "іıɩιӏ",
    "j": "јϳ", "k": "кκ", "l": "ӏⅼǀו", "m": "мⅿ", "n": "пηոռ", "o": "оοօσ᧐ჿ", "p": "рρ", "q": "ԛզ", "r": "гᴦɾ",
    "s": "ѕꜱʂ", "t": "тτ", "u": "υսᴜц", "v": "νѵᴠ", "w": "ѡԝшաω", "x": "хχ×", "y": "уγүყ", "z": "ᴢʐ", "3": "зӡ", "6": "б",
}  # fmt: skip
_TO_LATIN = {other: letter for letter, others in _DRAWN_LIKE.items() for other in others}
_NAMED_LATIN = re.compile(
    r"LATIN (?:SMALL |CAPITAL )?LETTER (?:SMALL CAPITAL |INSULAR |DOTLESS )?([A-Z])(?: WITH [A-Z ]{1,80})?"
)
# Letters and symbols without ink, which no category says of them.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u17b4\u17b5")


def latin(text: str) -> str:
    """The text in one case and in Latin letters where others look like them, without marks and invisible characters."""
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(map(_letter, apart))


@functools.lru_cache(maxsize=4_096)
def _letter(char: str) -> str:
    if char.isascii():
        return char
    if char in _BLANK or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return ""
    named = _NAMED_LATIN.fullmatch(unicodedata.name(char, ""))
    return _TO_LATIN.get(char) or (named[1].lower() if named else char)
