"""Heads of requests, held against the grammar of HTTP/1.1 before `h11` reads them.

`h11` accepts some old forms: lines that end with a bare line feed, folded lines, control characters, targets of any form,
one length said several times,
chunks in HTTP/1.0. None of them is harmful here, but a proxy in front may read them differently.
"""

from __future__ import annotations

import re

__all__ = ["is_refused"]

_END = re.compile(rb"\n\r?\n")
_TOKEN = rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
_TARGET = rb"(?:/|https?://)[!-~]*"
_HEAD = re.compile(
    rb"(?:OPTIONS \*|CONNECT [!-~]+|" + _TOKEN + rb" " + _TARGET + rb") HTTP/1\.[01]\r\n"
    rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n"
)
_LENGTHS = re.compile(rb"\r\ncontent-length:[\t ]*([^\r]*)", re.IGNORECASE)
_OLD_AND_CHUNKED = re.compile(rb"[^\r]* HTTP/1\.0\r\n(?:.*\r\n)?transfer-encoding:", re.IGNORECASE | re.DOTALL)


def is_refused(data: bytes) -> bool:
    """True if the bytes begin with a whole head that is not in the form that every reader understands in the same way."""
    end = _END.search(data)
    if end is None:
        return False
    head = data[: end.end()]
    if _HEAD.fullmatch(head) is None or _OLD_AND_CHUNKED.match(head) is not None:
        return True
    lengths = _LENGTHS.findall(head)
    return len(lengths) > 1 or not all(length.strip().isdigit() for length in lengths)
