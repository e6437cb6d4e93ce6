"""Any split of any form of an answer gives the same chunks, and no fault gives a wrong one."""

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.errors import LimitExceededError, ProtocolError, UsageError
from callgate.gemini import ResponseReader
from callgate.strict_json import Bad
from callgate.wire import stream_framing

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
BOM = b"\xef\xbb\xbf"


def chunk(*parts: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, **candidate}], "responseId": "r1"}


CHUNKS = [
    chunk({"text": 'zażółć "gęślą" \\ jaźń {[ 👋'}),
    chunk({"text": "a\u2028b\u2029c\u0085d"}, {"functionCall": {"name": "f", "args": {"x": "]}\n", "y": [1, {"z": []}]}}}),
    chunk({"text": "", "thoughtSignature": "c2ln"}, finishReason="STOP") | {"usageMetadata": {"totalTokenCount": 7}},
]
ERROR = {"error": {"code": 429, "message": "slow\ndown", "status": "RESOURCE_EXHAUSTED", "details": []}}


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def pretty(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode()


def sse(texts: list[bytes], *, prefix: bytes = b"data: ", end: bytes = b"\n") -> bytes:
    return b"".join(b"".join(prefix + line + end for line in text.split(b"\n")) + end for text in texts)


WIRE = [compact(item) for item in CHUNKS]
PRETTY = [pretty(item) for item in CHUNKS]
PLAIN = sse(WIRE)

FORMS: dict[str, bytes] = {
    "sse with LF": PLAIN,
    "sse with CRLF": sse(WIRE, end=b"\r\n"),
    "sse with CR": sse(WIRE, end=b"\r"),
    "sse with mixed line ends": b"data: %b\r\n\rdata: %b\n\r\ndata: %b\r\r" % tuple(WIRE),
    "sse without space": sse(WIRE, prefix=b"data:"),
    "sse of pretty-printed JSON": sse(PRETTY),
    "sse of pretty-printed JSON with CRLF": sse(PRETTY, end=b"\r\n"),
    "sse with data: before the first line only": b"".join(b"data: " + text + b"\n\n" for text in PRETTY),
    "sse with comments": b": hello\n\n" + PLAIN.replace(b"\n\n", b"\n: ping\n\n:\n\n"),
    "sse with other fields": b"retry: 10\n\n" + PLAIN.replace(b"data: ", b"event: message\nid: 1\nid\nx-other: 1\ndata: "),
    "sse with BOM": BOM + PLAIN,
    "sse with an event field first": PLAIN.replace(b"data: ", b"event:message\r\ndata: "),
    "sse with an id field first": b"id\n" + PLAIN,
    "sse without last blank line": PLAIN.removesuffix(b"\n"),
    "sse without last line end": PLAIN.removesuffix(b"\n\n"),
    "sse with [DONE]": PLAIN + b"data: [DONE]\n\n",
    "sse with empty data": b"data:\n\n" + PLAIN.replace(b"\n\n", b"\n\ndata\n\ndata:  \n\n"),
    "sse with blank lines": b"\r\n\n" + PLAIN.replace(b"\n\n", b"\n\n\n\n\n"),
    "sse without blank lines": PLAIN.replace(b"\n\n", b"\n"),
    "array": b"[" + b",".join(WIRE) + b"]",
    "array as Google prints it": b"[" + b"\n,\r\n".join(PRETTY) + b"\n]\n",
    "array with BOM": BOM + b" [\n" + b",\n".join(WIRE) + b"\n]",
    "objects one per line": b"\n".join(WIRE) + b"\n",
    "objects with CRLF": b"\r\n".join(WIRE),
    "objects without line ends": b"".join(WIRE),
    "pretty-printed objects": BOM + b"\n" + b"\n".join(PRETTY),
}

ONE_LINE_ERROR, LONG_ERROR = compact(ERROR), pretty(ERROR)
WITH_ERROR: dict[str, bytes] = {
    "an event": PLAIN + sse([ONE_LINE_ERROR]),
    "an event with an array": PLAIN + sse([b"[" + ONE_LINE_ERROR + b"]"]),
    "a pretty-printed event with an array": PLAIN + sse([pretty([ERROR])]),
    "bare JSON between events": PLAIN + ONE_LINE_ERROR + b"\n",
    "bare JSON without line end": PLAIN + ONE_LINE_ERROR,
    "bare pretty-printed JSON": PLAIN + LONG_ERROR + b"\n\n",
    "bare pretty-printed JSON with CRLF": PLAIN + LONG_ERROR.replace(b"\n", b"\r\n"),
    "bare pretty-printed array": PLAIN + pretty([ERROR]) + b"\n",
    "bare JSON after an event without blank line": PLAIN.removesuffix(b"\n") + LONG_ERROR,
    "bare JSON and a comment in it": PLAIN + LONG_ERROR.replace(b"\n", b"\n: ping\n\n"),
    "an element": b"[" + b",".join([*WIRE, ONE_LINE_ERROR]) + b"]",
    "an element that is an array": b"[" + b",".join([*WIRE, b"[" + ONE_LINE_ERROR + b"]"]) + b"]",
    "an element after a missing comma": b"[" + b",".join(WIRE) + b"\n" + LONG_ERROR + b"]",
    "an object after an array": b"[" + b",".join(WIRE) + b"]\n" + LONG_ERROR,
    "an object": b"\n".join([*WIRE, ONE_LINE_ERROR]),
    "an array after objects": b"\n".join([*WIRE, b"[" + ONE_LINE_ERROR + b"]"]),
}

ALL: dict[str, tuple[bytes, list[Any]]] = {name: (data, CHUNKS) for name, data in FORMS.items()}
ALL |= {f"error as {name}": (data, [*CHUNKS, ERROR]) for name, data in WITH_ERROR.items()}
every_form = pytest.mark.parametrize(("data", "expected"), ALL.values(), ids=ALL.keys())


def read(*pieces: bytes, **limits: int) -> tuple[list[Any], ProtocolError | LimitExceededError | None]:
    """Everything that came out, and how it ended."""
    answer = ResponseReader(**limits)
    chunks: list[Any] = []
    try:
        for piece in pieces:
            chunks += answer.feed(piece)
        chunks += answer.close()
    except (ProtocolError, LimitExceededError) as error:
        return chunks, error
    return chunks, None


def chunks_of(*pieces: bytes) -> list[Any]:
    chunks, error = read(*pieces)
    assert error is None
    return chunks


def refusal_of(*pieces: bytes, **limits: int) -> str:
    chunks, error = read(*pieces, **limits)
    assert chunks == []
    assert error is not None
    return str(error)


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# Splits ------------------------------------------------------------------------------------------------------------------


@every_form
def test_every_form_gives_the_same_chunks(data: bytes, expected: list[Any]):
    assert chunks_of(data) == expected


@every_form
def test_a_cut_at_any_byte_changes_nothing(data: bytes, expected: list[Any]):
    for at in range(len(data) + 1):
        assert chunks_of(data[:at], data[at:]) == expected, at


@every_form
def test_byte_by_byte_changes_nothing(data: bytes, expected: list[Any]):
    assert chunks_of(*bytewise(data)) == expected
    assert chunks_of(b"", *[piece for byte in bytewise(data) for piece in (byte, b"")]) == expected


@every_form
def test_an_answer_cut_short_never_gives_a_wrong_chunk(data: bytes, expected: list[Any]):
    for length in range(len(data)):
        for pieces in ([data[:length]], bytewise(data[:length]) if length % 64 == 0 or SCALE > 1 else [data[:length]]):
            chunks, error = read(*pieces)
            assert chunks == expected[: len(chunks)], length
            assert error is not None or chunks, length


def test_the_sweeps_cover_more_than_ten_thousand_variants():
    assert 2 * sum(len(data) for data, _ in ALL.values()) > 10_000


@settings(max_examples=100 * SCALE, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.lists(st.integers(0, 3000), max_size=30))
def test_cuts_at_random_places_change_nothing(form: str, cuts: list[int]):
    data, expected = ALL[form]
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert chunks_of(*[data[start:end] for start, end in pairwise(places)]) == expected


# A NUL or a lone half of a surrogate pair cannot stand raw in JSON text; everything else may.
JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JSON_TEXT, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100 * SCALE, deadline=None)
@given(
    st.lists(st.dictionaries(JSON_TEXT, JSON_VALUES, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["sse", "crlf", "pretty", "array", "lines"]),
    st.integers(1, 40),
)
def test_any_objects_come_out_as_they_went_in(objects: list[Any], form: str, step: int):
    render = {
        "sse": lambda: sse([compact(item) for item in objects]),
        "crlf": lambda: sse([compact(item) for item in objects], end=b"\r\n"),
        "pretty": lambda: sse([pretty(item) for item in objects]),
        "array": lambda: pretty(objects),
        "lines": lambda: b"\n".join(compact(item) for item in objects),
    }
    data = render[form]()
    assert chunks_of(*[data[at : at + step] for at in range(0, len(data), step)]) == objects


@settings(max_examples=200 * SCALE, deadline=None)
@given(
    st.lists(
        st.binary(max_size=20) | st.sampled_from([b"data: ", b"\n", b"\n\n", b'{"a":', b"}", b"[", b"]", b'"', b"\\"]),
        max_size=20,
    )
)
def test_noise_is_refused_or_read_but_never_crashes(pieces: list[bytes]):
    chunks, error = read(*pieces)
    assert all(isinstance(item, dict) for item in chunks)
    whole, whole_error = read(b"".join(pieces))
    assert whole == chunks
    assert (whole_error is None) == (error is None)


def test_chunks_are_given_out_as_soon_as_they_are_complete():
    for first, rest in (
        (b"data: {}\n\n", b"data: {}"),
        (b"data: {}\r\n\r", b"\ndata: {}"),
        (b"[{}", b",{}]"),
        (b"{}", b"{}"),
        (b'data: {}\n\n{"error":\n{}}', b"\n"),
    ):
        answer = ResponseReader()
        given_out = answer.feed(first)
        assert given_out[:1] == [{}]
        assert len(given_out + answer.feed(rest) + answer.close()) == 2


def test_separators_of_unicode_and_vertical_tabs_stay_in_their_strings():
    text = "a\u2028b\u2029c\u0085d\u001ce"
    raw = b'data: {"t": "' + text.encode() + b'"}\n\n'
    # U+001C is a control character, which JSON must escape; the others may stand raw.
    assert chunks_of(raw.replace(b"\x1c", b"\\u001c")) == [{"t": text}]
    vertical = b'data:\x0b{"t": 1}\n\n'
    assert "not JSON" in refusal_of(vertical)


def test_one_whole_answer_is_a_stream_of_one_chunk():
    assert chunks_of(PRETTY[0]) == CHUNKS[:1]
    assert chunks_of(b"  \r\n" + WIRE[0] + b"\n\n") == CHUNKS[:1]


def test_error_bodies_come_out_as_objects():
    for body in (
        ONE_LINE_ERROR,
        LONG_ERROR,
        compact([ERROR]),
        pretty([ERROR]),
        sse([ONE_LINE_ERROR]),
        sse([compact([ERROR])]),
    ):
        assert chunks_of(body) == [ERROR]
        assert chunks_of(*bytewise(body)) == [ERROR]


# What is no answer -------------------------------------------------------------------------------------------------------


@pytest.mark.rows(
    "body",
    [b"", b" \r\n", BOM, b"[]", b"[ ]\n", b"null", b"42", b'"x"', b"true", b"NaN", b"[null]", b"[1]", b'["x"]', b"[[]]",
     b"{]", b"data: null\n\n", b"data: 42\n\n", b"data: []\n\n", b'data: "x"', b"data: [DONE]\n\n", b": ping\n\n",
     b"data:\n\n", b"data: {}{}\n\n", b"data: {]\n\n", b"data: x\n\n", b"\xff\xfe", b"data: [null]", b"data", b"da",
     b"\xef\xbb", b"]", b"}", b",{}", b"data: [\ndata: ]\n\n", b"data: {\ndata: 1\n\n",
     b"data: {\ndata: 1", b"data: x\ndata: y\n\n"],
)  # fmt: skip
def test_what_is_not_an_object_is_refused(body: bytes):
    refusal_of(body)
    refusal_of(*bytewise(body))


def test_an_empty_object_is_passed_on():
    for body in (b"{}", b"[{}]", b"data: {}\n\n", b"data: {}"):
        assert chunks_of(body) == [{}]


def test_refusals_are_sentences_that_say_what_came():
    assert refusal_of(b"") == "the answer is empty"
    assert refusal_of(b"[]") == "the answer holds no response"
    assert refusal_of(b"null") == "the answer is JSON, but not an object: null"
    assert refusal_of(b"data: 42\n\n") == "the answer holds JSON that is not an object: 42"
    assert (
        refusal_of(b"upstream connect error") == "the answer is neither JSON nor server-sent events: upstream connect error"
    )
    assert refusal_of(b'{"a": ') == "the answer ended in the middle of a JSON value"
    assert refusal_of(b"[") == "the answer ended in the middle of a JSON array"
    assert refusal_of(b'data: {"a') == "the answer ended in the middle of an event"
    assert refusal_of(b": x\ndat") == "the answer ended in the middle of a line"
    assert refusal_of(b'data: {"a\n\n') == 'the answer is not JSON: {"a'


def test_what_was_cut_off_may_be_tried_again_and_what_is_wrong_may_not():
    for body, retryable in ((b"", True), (b"{", True), (b"data: {", True), (b"null", False), (b"<html>", False)):
        error = read(body)[1]
        assert error is not None
        assert error.retryable is retryable


def test_a_page_of_html_is_shown_without_tags_and_control_characters():
    page = b"<!DOCTYPE html>\n<html><head><style>p {}</style>"
    page += b"<script>alert('<p>')</script><title>502 Bad\x1b[31m Gateway</title>"
    page += "</head><body onload='x'>\u202ezażółć</body>".encode() + b"<p>word </p>" * 1000
    for pieces in ([page], bytewise(page)):
        message = refusal_of(*pieces)
        shown = message.partition(": ")[2]
        assert shown.startswith("502 Bad [31m Gateway")
        assert "alert" not in shown
        assert len(shown) <= 200
        assert not re.search("[<>\x00-\x1f\u202e]", shown)


def test_a_page_without_text_is_still_a_sentence():
    assert refusal_of(b"<html></html>").endswith(": nothing readable")


def test_prose_in_the_middle_of_events_is_refused_after_what_came_before():
    chunks, error = read(PLAIN + b"upstream connect error or disconnect\n")
    assert chunks == CHUNKS
    assert "upstream connect error" in str(error)
    assert read(PLAIN + b"<html>oops</html>\n")[0] == CHUNKS


def test_a_bracket_too_many_is_refused():
    for body in (b"{}]", b"[{}]]", b"{}}", b"data: {}\n\n]\n"):
        chunks, error = read(body)
        assert chunks == [{}]
        assert "something else" in str(error)


def test_a_fault_comes_after_the_chunks_before_it_and_stays():
    answer = ResponseReader()
    assert answer.feed(b"data: {}\n\ndata: null\n\ndata: {}\n\n") == [{}]
    for _ in range(2):
        with pytest.raises(ProtocolError, match="not an object"):
            answer.feed(b"data: {}\n\n")
        with pytest.raises(ProtocolError, match="not an object"):
            answer.close()


@pytest.mark.parametrize("data", ["{}", None, 5, {}])
def test_what_is_not_bytes_is_refused_with_a_sentence_and_does_no_harm(data):
    answer = ResponseReader()
    with pytest.raises(UsageError, match=f"takes the bytes of the answer as they came, not {type(data).__name__}"):
        answer.feed(data)
    assert answer.feed(b"{}") + answer.close() == [{}]


def test_other_forms_of_bytes_are_taken():
    answer = ResponseReader()
    assert answer.feed(bytearray(b'data: {"a":')) == []
    assert answer.feed(memoryview(b"1}\n\n")) == [{"a": 1}]


def test_a_closed_reader_takes_no_more():
    answer = ResponseReader()
    answer.feed(b"{}")
    assert answer.close() == []
    assert answer.close() == []
    with pytest.raises(UsageError, match="closed"):
        answer.feed(b"{}")


# Limits ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", [b"data: ", b"", b"[", b"data: {}\n\n", b": x\n\n{"], ids=["sse", "json", "array", "bare", "raw"]
)
def test_one_response_beyond_its_limit_is_refused(start: bytes):
    data = start + b'{"a": "' + b"x" * 2000 + b'"}'
    for pieces in ([data], bytewise(data)):
        error = read(*pieces, event_bytes_max=1000)[1]
        assert "larger than 1000 bytes" in str(error)


def test_a_line_that_does_not_end_is_refused_before_its_end():
    answer = ResponseReader(event_bytes_max=100)
    with pytest.raises(LimitExceededError, match="larger than 100 bytes"):
        answer.feed(b"data: {" + b" " * 100)


def test_a_comment_or_many_lines_cannot_grow_beyond_the_limit_either():
    assert "larger than 100 bytes" in refusal_of(b": " + b"x" * 200, event_bytes_max=100)
    assert "larger than 100 bytes" in refusal_of(b"data: x\n" * 200, event_bytes_max=100)
    assert len(read(b"data: {}\n\n" * 200, event_bytes_max=100)[0]) == 200


@pytest.mark.parametrize("form", ["sse with LF", "array", "objects one per line"])
def test_an_answer_beyond_its_limit_gives_what_came_within_it(form: str):
    data = FORMS[form]
    limit = len(data) - 20
    for pieces in ([data], bytewise(data), [data[:100], data[100:]]):
        chunks, error = read(*pieces, total_bytes_max=limit)
        assert chunks == CHUNKS[:2]
        assert f"larger than {limit} bytes" in str(error)
    assert read(data, total_bytes_max=len(data)) == (CHUNKS, None)


class Counting:
    """A pattern or function that counts the bytes it goes over."""

    work = 0

    def __init__(self, real: Any) -> None:
        self.real = real

    def __call__(self, data: bytes) -> Any:
        Counting.work += len(data)
        return self.real(data)

    def search(self, data: bytes, pos: int) -> Any:
        found = self.real.search(data, pos)
        Counting.work += (found.end() if found else len(data)) - pos
        return found

    def match(self, data: bytes, pos: int) -> Any:
        found = self.real.match(data, pos)
        Counting.work += found.end() - pos
        return found


LARGE = compact({"a": 'x"\\' * 2_500 + "é{[" * 2_500, "b": [[{"c": [{}]}]] * 1_250})


@pytest.mark.parametrize("step", [1, 7, 10_000, 1_000_000])
@pytest.mark.parametrize(
    "data",
    [b"data: " + LARGE + b"\n\n", sse([pretty(json.loads(LARGE))]), b"[" + LARGE + b"]", LARGE, b"data: {}\n\n" + LARGE,
     b"data: {}\n\n" * 5_000, b"\n" * 50_000 + b"{}", b":" + b"\n" * 50_000 + b"data: {}"],
    ids=["sse", "sse pretty", "array", "object", "bare", "many events", "blank", "blank lines"],
)  # fmt: skip
def test_work_is_linear_however_the_bytes_are_cut(data: bytes, step: int, monkeypatch: pytest.MonkeyPatch):
    for name in ("_lines", "_OUTSIDE_STRING", "_INSIDE_STRING", "_BETWEEN_VALUES", "_BETWEEN_ELEMENTS"):
        monkeypatch.setattr(stream_framing, name, Counting(getattr(stream_framing, name)))
    Counting.work = 0
    assert chunks_of(*[data[at : at + step] for at in range(0, len(data), step)])
    assert Counting.work <= 2 * len(data) + 100


# Bad places --------------------------------------------------------------------------------------------------------------


def two_calls(first_argument: bytes) -> bytes:
    calls = b'{"functionCall":{"name":"f","args":{"x":%b}}},{"functionCall":{"name":"g","args":{"y":1}}}' % first_argument
    return b'{"candidates":[{"content":{"parts":[%b]}}]}' % calls


def two_arguments(body: bytes) -> tuple[Any, Any]:
    parts = chunks_of(body)[0]["candidates"][0]["content"]["parts"]
    return parts[0]["functionCall"]["args"]["x"], parts[1]["functionCall"]["args"]


def holds_bad(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Bad):
            return True
        stack += item.values() if isinstance(item, dict) else item if isinstance(item, list) else []
    return False


@pytest.mark.parametrize("form", [b"%b", b"[%b]", b"data: %b\n\n"], ids=["object", "array", "sse"])
@pytest.mark.parametrize(
    "bad",
    [b"NaN", b"-Infinity", b"1e999", b"9" * 5_000, b"[" * 10_000 + b"]" * 10_000, b'{"a":' * 90_000 + b"1" + b"}" * 90_000,
     b"[" * 150 + b"]" * 150, b"[" * 101 + b"]" * 101, b'"\xff"', b'"\xc5"'],
    ids=["nan", "infinity", "1e999", "5000 digits", "10000 arrays", "90000 objects", "150 arrays", "101 arrays",
         "not utf-8", "half a character"],
)  # fmt: skip
def test_a_bad_argument_spoils_only_its_place(bad: bytes, form: bytes):
    x, other = two_arguments(form % two_calls(bad))
    assert holds_bad(x)
    assert other == {"y": 1}


def test_lone_surrogates_become_replacement_characters():
    assert two_arguments(b"data: " + two_calls(b'"a\\ud800b"')) == ("a\ufffdb", {"y": 1})


def test_arguments_as_deep_as_allowed_come_out_whole():
    # The arguments are one level themselves.
    deep = b"[" * 99 + b"1" + b"]" * 99
    assert two_arguments(two_calls(deep))[0] == json.loads(deep)


def test_brackets_in_strings_do_not_count_as_depth():
    text = "[" * 1_000
    body = two_calls(compact(text) + b',"n":NaN,"deep":' + b"[" * 5_000 + b'"]\\""' + b"]" * 5_000)
    assert two_arguments(body)[0] == text


def test_brackets_that_are_never_closed_are_not_json():
    for body in (b"data: " + b"[" * 100_000 + b"\n\n", b"data: " + b'{"a' + b'\\"' * 100_000 + b"\n\n"):
        assert "not JSON" in refusal_of(body)


def test_the_package_is_imported_without_the_json_parser():
    script = "import sys, callgate.gemini; assert not {'pydantic_core', 'pydantic', 'httpx2', 'asyncio'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_keys_inside_a_text_are_not_counted():
    text = json.dumps({f"k{i}": i for i in range(200_000)})
    body = json.dumps({"candidates": [{"content": {"parts": [{"text": text}]}}]}).encode()
    assert ResponseReader().read_whole(body) == [json.loads(body)]
