"""Read JSON from a file or stdin, or fail with one sentence that says where it is wrong.

Takes bytes, returns plain values. This file knows nothing of what the JSON means.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from callgate import strict_json
from callgate.errors import JsonError

__all__ = ["BAD_INPUT", "InputError", "json_from"]

BAD_INPUT = 42


class InputError(click.ClickException):
    """The input cannot be used."""

    exit_code = BAD_INPUT


def json_from(place: str, *, depth_max: int = strict_json.DEPTH_MAX) -> Any:
    """The JSON of a file, or of stdin for `-`.

    Raises:
        InputError: it cannot be read, or is not JSON; the sentence names the line and the column.
    """
    named = "stdin" if place == "-" else repr(place)
    data = _bytes_of(place, named)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{named} is not UTF-8 text: {_place(data, error.start)}") from None
    if not text.strip():
        raise InputError(f"{named} is empty: it must hold JSON")
    try:
        return strict_json.parse(text, depth_max=depth_max)
    except JsonError as error:
        if place.endswith((".py", ".toml", ".yaml", ".yml")):
            raise InputError(f"{named} is not JSON, and this command reads JSON{_instead(place)}") from None
        raise InputError(f"{named}: {_too_deep(str(error), depth_max)}") from None


def _bytes_of(place: str, named: str) -> bytes:
    if place == "-":
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - so it is where the stream was closed
            raise InputError("there is no stdin to read from")
        return sys.stdin.buffer.read()
    try:
        return Path(place).read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {named}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{named} cannot be read: {why}") from None


def _instead(place: str) -> str:
    return f"; for the tools of a Python file: callgate tools list -T {place}" if place.endswith(".py") else ""


def _place(data: bytes, offset: int) -> str:
    line = data.count(b"\n", 0, offset) + 1
    column = offset - (data.rfind(b"\n", 0, offset) + 1) + 1
    return f"the byte 0x{data[offset]:02x} at line {line} column {column}"


def _too_deep(sentence: str, depth_max: int) -> str:
    """Rename the parser's own limit, whose message says little to a user."""
    return sentence.replace("recursion limit exceeded", f"nested deeper than {depth_max} levels")
