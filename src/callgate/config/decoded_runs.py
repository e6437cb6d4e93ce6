"""Runs of encoded characters in a text, decoded: base64, hexadecimal, and lists of numbers or bits. Pure, linear in time."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator

__all__ = ["RUNS", "decoded_runs"]

# Each is written so that a place where it fails is left after a few characters.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}+={0,2}")
_HEX = re.compile(r"(?:(?:0[xX]|\\x|[%=])?[0-9a-fA-F]{2}[\s:,;.-]{0,3}+){8,}+")
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
    """Everything that the runs of a text may stand for."""
    has_digits = _DIGITS.search(text) is not None
    for pattern, decode in RUNS.items():
        if has_digits or pattern is _BASE64:
            for run in pattern.finditer(text):
                yield from decode(run[0])
