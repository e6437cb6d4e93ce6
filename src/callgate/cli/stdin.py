"""Piped input, and how it is presented to the model.

Takes a stream, returns text. Never blocks on a silent pipe unless asked to.
"""

from __future__ import annotations

import contextlib
import hashlib
import select
from typing import TextIO

from callgate.cli.json_input import InputError
from callgate.content.title import DATA_LABEL

__all__ = ["PIPE_WAIT_S", "labelled", "piped", "with_context"]

PIPE_WAIT_S = 3.0
"""Seconds that a pipe may stay silent before the prompt is answered without it."""
PIPED_CHARS_MAX = 8 * 1024 * 1024


def piped(stream: TextIO | None, *, wait_s: float | None) -> str | None:
    """Read a stream that is not a terminal; None if `wait_s` is given and nothing arrives in time.

    Raises:
        InputError: it is not text, or too much.
    """
    if stream is None:
        return ""
    if wait_s is not None:
        with contextlib.suppress(OSError, ValueError):  # Not something that can be waited for, so it is there.
            if not select.select([stream], [], [], wait_s)[0]:
                return None
    try:
        text = stream.read(PIPED_CHARS_MAX + 1)
    except UnicodeDecodeError as error:
        raise InputError(f"what is piped in is not text in {error.encoding} (byte {error.start})") from error
    except OSError:  # Closed at its other end, or only pretending to be a stream: no input.
        return ""
    if len(text) > PIPED_CHARS_MAX:
        raise InputError(f"what is piped in is longer than {PIPED_CHARS_MAX:,} characters: pipe in a part of it")
    return text


def labelled(text: str, source: str) -> str:
    """Put the text between two marks that do not occur in it, labelled as data rather than instructions."""
    mark = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    end = "" if text.endswith("\n") else "\n"
    return f"Between the two lines with {mark} is {source}. {DATA_LABEL}.\n{mark}\n{text}{end}{mark}"


def with_context(prompt: str, context: str) -> str:
    """A prompt together with what was piped in."""
    return f"{prompt}\n\n{labelled(context, 'what came through standard input')}"
