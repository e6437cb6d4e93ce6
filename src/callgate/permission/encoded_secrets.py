"""Known secrets in a text, as they are and as programs encode them: texts in, the same without the secrets out.

Base64 and base32 at any offset, hexadecimal, percent, JSON, HTML and backslash escapes, other case, reversed, and broken
over lines or quotes. The text is squeezed once, and searched for needles; only where one is found it is taken apart.
"""

from __future__ import annotations

import base64
import codecs
import functools
import html
import re
from collections.abc import Iterable
from urllib.parse import unquote

__all__ = ["SecretNeedles"]

REPLACEMENT = "[redacted: known secret]"
DECODINGS_MAX = 4
WHOLE = "[redacted: a text with a known secret]"

# Characters that encoders and line breaks put between those of a secret.
_BETWEEN = "[\\s\\\\\"'\u200b\u200c\u200d\u2060\ufeff]{0,64}"
_JUNK = re.compile("[\\s\\\\\"'\u200b\u200c\u200d\u2060\ufeff]+")
_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")


class SecretNeedles:
    """The forms of some secrets, ready to be searched for."""

    def __init__(self, secrets: Iterable[str]) -> None:
        plain: dict[str, str] = {}
        encoded: dict[str, str] = {}
        # The longest first: one may be part of another.
        for secret in sorted(set(secrets), key=len, reverse=True):
            plain.setdefault(_squeezed(secret).lower(), _squeezed(secret))
            for form in _encoded_forms(secret):
                encoded.setdefault(_squeezed(form).lower(), _squeezed(form))
        self._plain = {needle: form for needle, form in plain.items() if needle}
        self._all = {**self._plain, **{needle: form for needle, form in encoded.items() if needle}}
        self._expression = functools.lru_cache(maxsize=1_024)(_expression)

    def redact(self, text: str, *, encoded: bool = True) -> str:
        """The text without the secrets; `encoded=False` looks only for those that are spelled out."""
        if not self._plain:
            return text
        squeezed = _squeezed(text).lower()
        for needle, form in (self._all if encoded else self._plain).items():
            if needle not in squeezed:
                continue
            text, count = self._expression(form).subn(REPLACEMENT, text)
            if not count and needle in _squeezed(text).lower():
                return WHOLE  # It is there in a mixture of forms that cannot be cut out.
        return text


def _squeezed(text: str) -> str:
    """The text with escapes decoded, and without what encoders put between characters."""
    for _ in range(DECODINGS_MAX):
        decoded = unquote(text) if "%" in text else text
        decoded = html.unescape(decoded) if "&" in decoded else decoded
        if "\\" in decoded:
            decoded = _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), decoded)
        if decoded == text:
            break
        text = decoded
    return _JUNK.sub("", text)


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


def _expression(form: str) -> re.Pattern[str]:
    return re.compile(_BETWEEN.join(map(_any_form, form)), re.IGNORECASE)


def _any_form(char: str) -> str:
    """A pattern for one character, spelled out or escaped in any of the usual ways."""
    code = ord(char)
    percent = "".join(f"%(?:25)?{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    forms = [
        re.escape(char),
        percent,
        rf"\\+u{code:04x}",
        rf"\\+x{code:02x}",
        rf"&#0{{0,6}}{code};",
        rf"&#x0{{0,6}}{code:x};",
    ]
    named = html.escape(char, quote=True)
    forms += [re.escape(named)] if named != char else []
    return f"(?:{'|'.join(forms)})"
