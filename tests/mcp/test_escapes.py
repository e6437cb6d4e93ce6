"""Half a character in a message costs that character, not the message."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.mcp import transports
from callgate.mcp.escapes import EscapeRepairer, whole_characters

PIECES = ["\\", "\\u", "\\ud83d", "\\ude00", "\\uDBFF", "\\uDc00", "\\\\", "\\n", "\\u0041", "ud83d", "é", "😀", "a"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a fox \ud83d", "a fox \ufffd"),
        ("\ude00 b", "\ufffd b"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("C:\\ud83d", "C:\\ud83d"),
        ("\\\ud83d", "\\\ufffd"),
        ("plain", "plain"),
    ],
)
def test_half_a_character_becomes_a_mark(text: str, meant: str) -> None:
    assert json.loads(whole_characters(json.dumps(text).encode())) == meant


def test_bytes_that_are_no_text_become_marks() -> None:
    assert json.loads(whole_characters(b'{"a": "\xff"}')) == {"a": "\ufffd"}


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.lists(st.integers(0, 80), max_size=6))
def test_any_split_gives_the_same(pieces: list[str], places: list[int]) -> None:
    data = "".join(pieces).encode()
    cuts = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    repairer = EscapeRepairer()
    fed = b"".join(repairer.feed(data[begin:end]) for begin, end in itertools.pairwise(cuts)) + repairer.close()
    assert fed == whole_characters(data)


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_answers_over_http_are_mended_on_their_way(kind: str) -> None:
    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b'data: {"a": "x\\ud8'
            yield b'3d"}\n\n'
            yield b"\\"

    async def story() -> bytes:
        request = httpx2.Request("POST", "http://127.0.0.1/mcp")
        response = httpx2.Response(200, headers={"content-type": kind}, stream=Body(), request=request)
        await transports._bound(response)
        return await response.aread()

    assert asyncio.run(story()) == b'data: {"a": "x\\ufffd"}\n\n\\'
