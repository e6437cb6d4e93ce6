"""Messages on a socket survive any cut, and nothing but JSON passes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.errors import JsonError
from callgate.workers.frames import FRAME_BYTES_MAX, Frames, pack

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=4), st.lists(st.integers(1, 9), min_size=1))
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(messages, cuts):
    data = b"".join(map(pack, messages))
    frames, found, turn = Frames(), [], 0
    while data:
        size = cuts[turn % len(cuts)]
        found += frames.feed(data[:size])
        data, turn = data[size:], turn + 1
    assert found == messages


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), object()])
def test_what_is_not_json_is_refused(value):
    with pytest.raises(JsonError, match="not JSON"):
        pack({"value": value})


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, 10**400, nested(250)], ids=["half", "key", "big", "deep"])
def test_what_the_quick_way_does_not_take_passes_by_the_slow_one(value):
    assert Frames().feed(pack({"value": value, "other": "é"})) == [{"value": value, "other": "é"}]


def test_what_is_too_large_is_refused_on_both_sides():
    with pytest.raises(JsonError, match="at most"):
        pack({"value": "x" * FRAME_BYTES_MAX})
    with pytest.raises(JsonError, match="claims to have"):
        Frames().feed(struct.pack(">I", FRAME_BYTES_MAX + 1))


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff"])
def test_a_frame_that_is_no_object_is_refused(body):
    with pytest.raises(JsonError):
        Frames().feed(struct.pack(">I", len(body)) + body)
