"""Messages whose text is not quite Unicode, made readable: bytes of JSON in, bytes of JSON out.

A server that cuts a text in the middle of an emoji writes half of it as an escape, which JSON allows and the SDK's reader
refuses, with the whole message; its recipient would wait for ever. This file knows nothing of messages.
"""

from __future__ import annotations

import re

__all__ = ["EscapeRepairer", "whole_characters"]

_FIRST = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_SECOND = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_BEGUN = rb"\\(?:u[0-9a-fA-F]{0,3})?"
# An escaped backslash, so that what follows it is not taken for an escape; what may go on in the next piece; a whole
# character in two halves; a lone half.
_ESCAPES = re.compile(
    rb"\\\\|(?P<open>%(first)s(?:%(begun)s)?\Z|%(begun)s\Z)|%(first)s%(second)s|(?P<half>%(first)s|%(second)s)"
    % {b"first": _FIRST, b"second": _SECOND, b"begun": _BEGUN}
)
_INSTEAD = rb"\ufffd"


def whole_characters(line: bytes) -> bytes:
    """The same JSON with U+FFFD where there was half a character, or bytes that are not UTF-8."""
    repairer = EscapeRepairer()
    return repairer.feed(line.decode("utf-8", "replace").encode()) + repairer.close()


class EscapeRepairer:
    """A filter that replaces lone surrogates with U+FFFD, in JSON that arrives in pieces."""

    def __init__(self) -> None:
        self._open = b""

    def feed(self, data: bytes) -> bytes:
        """Take a piece and return the part that can be passed on."""
        data, self._open = self._open + data, b""
        return _ESCAPES.sub(self._instead, data) if b"\\" in data else data

    def close(self) -> bytes:
        """The rest."""
        rest, self._open = self._open, b""
        return re.sub(_FIRST, lambda _: _INSTEAD, rest)

    def _instead(self, found: re.Match[bytes]) -> bytes:
        if found["open"] is not None:
            self._open = found["open"]
            return b""
        return _INSTEAD if found["half"] else found[0]
