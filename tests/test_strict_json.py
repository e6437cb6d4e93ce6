"""JSON in and out: what is read, what is refused, and what is isolated."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import pickle
import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callgate import strict_json
from callgate.errors import JsonError
from callgate.strict_json import Bad

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


# --- reading -------------------------------------------------------------------------------------------------------------


@settings(max_examples=300 * SCALE)
@given(json_values)
def test_what_was_written_is_read_back(value: Any) -> None:
    assert strict_json.parse(strict_json.dump(value)) == value
    assert strict_json.parse(strict_json.dump(value).decode()) == value
    assert strict_json.parse_isolating(strict_json.dump(value)) == value


@pytest.mark.rows(
    "text",
    [
        "", " ", "{", "[1", "nul", "NaN", "Infinity", "-Infinity", "1e999", "-1e999", '{"a": 1e400}', "[1]x", '"\x00"',
        "1" + "0" * 250 + "e99", "1" + "0" * 400 + ".0", "9" * 5_000, '"\\ud800"', '"\ud800"', "'a'", nested(101),
        nested(10_000), "[" * 100_000, '{"a":' * 5_000,
    ],
)  # fmt: skip
def test_text_that_is_not_json_or_must_not_be_passed_on_is_refused(text: str) -> None:
    with pytest.raises(JsonError):
        strict_json.parse(text)


@pytest.mark.parametrize("data", [b"\xff", b'"\xff"', b'{"\xc3": 1}', b"\xef\xbb\xbf{}"])
def test_bytes_that_are_not_utf_8_are_refused(data: bytes) -> None:
    with pytest.raises(JsonError):
        strict_json.parse(data)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("[1e308, 1e-999]", [1e308, 0.0]),
        ('"e999"', "e999"),
        ("[1.0, 1]", [1.0, 1]),
        ("9" * 4_300, int("9" * 4_300)),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        (" null ", None),
    ],
)
def test_odd_but_legal_json_is_read(text: str, value: Any) -> None:
    assert strict_json.parse(text) == value


@pytest.mark.parametrize("innermost", ["", "1"])
def test_depth_counts_lists_and_objects_whether_or_not_they_are_empty(innermost: str) -> None:
    text = "[" * 100 + innermost + "]" * 100
    assert strict_json.dump(strict_json.parse(text)).decode() == text
    with pytest.raises(JsonError, match="100 levels"):
        strict_json.parse(f"[{text}]")
    assert strict_json.parse("[[1]]", depth_max=2) == [[1]]
    with pytest.raises(JsonError):
        strict_json.parse('[{"a": []}]', depth_max=2)


# --- isolating -----------------------------------------------------------------------------------------------------------


@settings(max_examples=500 * SCALE)
@given(st.binary(max_size=200))
@example(b"[" * 10_000)
@example(b"[" * 10_000 + b"]" * 10_000)
@example(b'{"a":' * 10_000)
@example(b'"\\udc80\xff"')
def test_isolating_raises_nothing_but_json_errors(data: bytes) -> None:
    try:
        value = strict_json.parse_isolating(data)
    except JsonError:
        return
    strict_json.dump(strict_json.without_bad(value))


@settings(max_examples=200 * SCALE)
@given(st.text(alphabet=st.characters(), max_size=60))
def test_isolating_any_text_raises_nothing_but_json_errors(text: str) -> None:
    for candidate in (text, f'["{text}"]'):
        with contextlib.suppress(JsonError):
            strict_json.dump(strict_json.without_bad(strict_json.parse_isolating(candidate)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'[1, NaN, "a"]', [1, Bad("the number NaN is not finite"), "a"]),
        (b"[-Infinity]", [Bad("the number -Infinity is not finite")]),
        (
            b"[1e999, 2.5, NaN]",
            [Bad("the number 1e999 is beyond the range of a double"), 2.5, Bad("the number NaN is not finite")],
        ),
        (b"[" + b"1" * 5_000 + b"]", [Bad("an integer of 5000 digits is too long")]),
        (b"[-" + b"1" * 5_000 + b"]", [Bad("an integer of 5000 digits is too long")]),
        (b"[NaN, 12]", [Bad("the number NaN is not finite"), 12]),
        (b'["\\ud800x", "\\udc80"]', ["\ufffdx", "\ufffd"]),
        ('["\udc80", "\ud800"]', ["\ufffd", "\ufffd"]),
        (b'{"\\udfff": 1}', {"\ufffd": 1}),
        (b'["ok", "\xff!"]', ["ok", Bad("a string holds bytes that are not UTF-8", "\ufffd!")]),
        (b'{"\xff": [1, NaN], "b": 2}', {"\ufffd": Bad("a key holds bytes that are not UTF-8", [1, None]), "b": 2}),
        (b"\xef\xbb\xbf[1]", [1]),
    ],
)
def test_one_bad_place_does_not_spoil_the_rest(text: bytes | str, value: Any) -> None:
    assert strict_json.parse_isolating(text) == value


def test_what_is_nested_too_deeply_is_cut_where_it_is() -> None:
    assert strict_json.parse_isolating('{"a": [[1]], "b": 2}', depth_max=2) == {"a": [Bad("nested too deeply")], "b": 2}
    value = strict_json.without_bad(strict_json.parse_isolating(nested(150)))
    assert not strict_json.depth_exceeds(value, 100)


# --- writing -------------------------------------------------------------------------------------------------------------


def recursive() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [199, 200, 201, strict_json.WRITTEN_DEPTH_MAX])
def test_what_is_nested_as_deep_as_can_be_written_is_read(levels: int) -> None:
    value = deep(levels - 1)
    assert strict_json.parse(strict_json.dump(value), depth_max=strict_json.WRITTEN_DEPTH_MAX) == value


@pytest.mark.parametrize("inner", [b"[", b"1e999", b"NaN", b'"\\ud800"', b"[" * 10_000 + b"]" * 10_000, b"\xff", b"[1]"])
def test_what_is_nested_deep_and_is_not_json_is_refused(inner: bytes) -> None:
    with pytest.raises(JsonError):
        strict_json.parse(b"[" * 254 + inner + b"]" * 254, depth_max=strict_json.WRITTEN_DEPTH_MAX)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        [math.inf],
        {"a": (-math.inf,)},
        {"a": {math.nan}},
        "\ud800",
        {"\udfff": 1},
        object(),
        b"\xff",
        recursive(),
        deep(10_000),
    ],
    ids=range(10),
)
def test_what_json_cannot_say_is_not_written(value: Any) -> None:
    with pytest.raises(JsonError):
        strict_json.dump(value)


def test_words_that_look_like_numbers_are_written_as_text() -> None:
    assert strict_json.dump({"NaN": ["Infinity", "-Infinity", "NaN"]}) == b'{"NaN":["Infinity","-Infinity","NaN"]}'


# --- looking -------------------------------------------------------------------------------------------------------------


def test_the_first_bad_value_is_found_at_any_depth() -> None:
    assert strict_json.first_bad({"a": [1, {"b": (math.nan,)}]}) == "the number nan is not finite"
    assert strict_json.first_bad([Bad("why")]) == "why"
    assert strict_json.first_bad({"a": [1.5, "NaN", None, True]}) is None
    assert strict_json.first_bad(recursive()) is None


def shared(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value, value]
    return value


def test_shared_and_recursive_values_are_looked_at_once_a_level() -> None:
    assert not strict_json.depth_exceeds(shared(99), 100)
    assert strict_json.depth_exceeds(shared(100), 100)
    assert strict_json.depth_exceeds(recursive(), 100)
    assert strict_json.first_bad(shared(100)) is None


@pytest.mark.parametrize(
    ("value", "levels", "exceeds"),
    [(1, 0, False), ([], 0, True), ([], 1, False), ([[]], 1, True), ({"a": ([],)}, 2, True), ({"a": (1,)}, 2, False)],
)
def test_depth_is_the_number_of_containers_around_a_value(value: Any, levels: int, exceeds: bool) -> None:
    assert strict_json.depth_exceeds(value, levels) is exceeds


def test_mending_replaces_only_what_is_bad() -> None:
    text = "as it was"
    value = {"a": [Bad("x"), Bad("y", "z"), math.nan, 1.5], "b": text}
    mended = strict_json.without_bad(value)
    assert mended == {"a": [None, "z", None, 1.5], "b": "as it was"}
    assert mended["b"] is text


def test_lone_surrogates_are_replaced_and_pairs_are_kept() -> None:
    assert strict_json.without_surrogates("a\ud800b\udfff\U0001f600") == "a\ufffdb\ufffd\U0001f600"


@pytest.mark.parametrize(
    "value",
    [
        list(range(30)),
        {str(n): n for n in range(30)},
        [[1], list(range(30)), {"a": list(range(30))}],
        {"rows": [{"é": n} for n in range(30)], 'a"b': {str(n): [n] for n in range(30)}, "c": "x"},
        "a text",
    ],
)
def test_a_long_value_is_encoded_in_pieces_to_the_same_text(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "PIECE_ITEMS", 8)
    assert strict_json.dump_pieces(value) == strict_json.dump(value)


_NESTED: Any = []
_NESTED.append(_NESTED)


@pytest.mark.parametrize(
    ("value", "sound"),
    [
        ({"a": [1, 2.5, "é", None, True, 2**70]}, True),
        ("x", True),
        ("\ud800", False),
        ({"\ud800": 1}, False),
        ({1: 1}, False),
        ([math.nan], False),
        ([(1,)], False),
        ([strict_json.Bad("x")], False),
        ([strict_json.Replaced("x")], False),
        ([b"x"], False),
        (_NESTED, False),
    ],
    ids=range(11),
)
def test_a_value_is_sound_if_it_is_exactly_json(value: Any, sound: bool) -> None:
    assert strict_json.is_sound(value) is sound
    assert strict_json.is_sound(strict_json.without_bad(strict_json.isolate(value)))


def test_a_sound_value_keeps_its_bounds() -> None:
    value = {"a": ["xx", "yy"]}
    assert strict_json.is_sound(value, depth_max=2, values_max=3, chars_max=4)
    assert not strict_json.is_sound(value, depth_max=1)
    assert not strict_json.is_sound(value, values_max=2)
    assert not strict_json.is_sound(value, chars_max=3)


def test_what_is_isolated_says_what_is_wrong_and_the_rest_stays() -> None:
    notes = strict_json.AnnotatedObject({"a": 1}, ["n\ud800"])
    shared = [[0] * 10] * 10
    value = {"n": notes, "b": b"x", "i": 1 << 15_000, "f": math.inf, "s": {1}, 5: "x", "h": "a\ud800", "t": (1, 2)}
    marked = strict_json.isolate(value)
    assert (type(marked["n"]), marked["n"].notes) == (strict_json.AnnotatedObject, ("n\ufffd",))
    reasons = {key: item.reason for key, item in marked.items() if isinstance(item, strict_json.Bad)}
    assert reasons == {
        "b": "bytes are not JSON",
        "i": "an integer is too long",
        "f": "the number inf is not finite",
        "s": "a value of the type 'set' is not JSON",
        "int key": "a key is not text",
    }
    assert (marked["h"], type(marked["h"]), marked["t"]) == ("a\ufffd", strict_json.Replaced, [1, 2])
    assert strict_json.without_bad(marked)["b"] == "eA=="
    assert strict_json.first_bad(strict_json.isolate(shared, values_max=50)) == "it holds too many values"


def _separators(text: bytes) -> int:
    """Commas and colons outside of strings, counted one by one."""
    count, is_in_string, is_escaped = 0, False, False
    for byte in text:
        if is_escaped:
            is_escaped = False
        elif byte == 0x5C:
            is_escaped = True
        elif byte == 0x22:
            is_in_string = not is_in_string
        elif byte in b",:" and not is_in_string:
            count += 1
    return count


@pytest.mark.parametrize("size", [0, 100, 100_000])
@pytest.mark.parametrize("count", [0, 1, 5, 2_000])
def test_bytes_are_counted_in_short_and_in_long_texts(size: int, count: int) -> None:
    text = b"x" * size + b"{," * count + b"x" * size + b"[" * count
    wanted = (b"{", b"[")
    assert count == 0 or strict_json.has_more_of(text, wanted, 2 * count - 1)
    assert not strict_json.has_more_of(text, wanted, 2 * count)


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 256])
def test_separators_are_counted_outside_of_strings_wherever_the_text_is_cut(monkeypatch, piece_bytes: int) -> None:
    monkeypatch.setattr(strict_json, "_PIECE_BYTES", piece_bytes)
    dice = random.Random(piece_bytes)
    for _ in range(300):
        value = {
            "".join(dice.choices('a\\",:', k=dice.randrange(9))): [1, "".join(dice.choices('\\",:x', k=12))]
            for _ in range(4)
        }
        text = json.dumps(value).encode()
        count = _separators(text)
        assert strict_json.has_more_separators(text, count - 1), text
        assert not strict_json.has_more_separators(text, count), text


def _has_twice(text: str) -> bool:
    found: list[bool] = []
    json.loads(text, object_pairs_hook=lambda pairs: found.append(len(pairs) != len(dict(pairs))) or dict(pairs))
    return any(found)


KEYS = st.sampled_from(["a", "b", ":", '"', "\\", "{", "a\u00e9"])
WRITTEN = st.recursive(
    st.sampled_from(["1", "null", "true"]) | KEYS.map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(KEYS, inner), max_size=4).map(
            lambda pairs: "{" + ",".join(f"{json.dumps(key)} :{value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=12,
)


@given(WRITTEN, st.integers(1, 9))
def test_a_key_that_an_object_has_twice_is_found_and_nothing_else(text: str, piece: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "_PIECE_BYTES", piece)
        data = text.encode()
        assert strict_json.has_duplicate_keys(data, strict_json.parse(data)) == _has_twice(text)


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        (b'{"a":[1,{}]}', True), (b" [1] ", True), (b"1e999", True), (b"[" * 99 + b"1" + b"]" * 99, True),
        (b"[" * 100 + b"]" * 100, True), (b"[" * 101 + b"]" * 101, False), (b"[" * 101 + b"1" + b"]" * 101, False),
        (b"[" * 199 + b"]" * 199, False), (b"", False), (b"1],[2", False), (b"1]],[[2", False), (b"1,2", False),
        (b"1" + b"]" * 101 + b",[2" + b"[" * 100, False), (b"]" * 102, False), (b"NaN", False), (b'"', False),
    ],
    ids=ascii,
)  # fmt: skip
def test_a_text_that_is_parsed_between_brackets_is_one_value_and_as_deep_as_it_may_be(text: bytes, is_read: bool) -> None:
    try:
        value = strict_json.parse_shallow(text)
    except JsonError:
        assert not is_read
    else:
        assert is_read
        assert value == json.loads(text)


def test_copies_of_an_object_with_its_text_are_plain_and_the_text_is_given_once() -> None:
    given = strict_json.EncodedObject({"rows": [{"a": 1}]})
    for copied in (copy.copy(given), copy.deepcopy(given), pickle.loads(pickle.dumps(given))):
        assert type(copied) is dict
        assert copied == given
    assert copy.deepcopy(given)["rows"] is not given["rows"]
    assert (given.take_encoded(), given.take_encoded()) == (b'{"rows":[{"a":1}]}', None)
