"""Lines of files that are too large to be held, texts of odd encodings, and edits judged by a simpler way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import FileTools, ToolError
from callgate.files import Bounds
from callgate.files.text import NotTextError, decoded, encoding_of, text_of
from callgate.files.text_edits import edited, stand_in_line, unified_diff

LINES = [f"line {number}\n" for number in range(1, 1001)]


@pytest.fixture
def small(root: Path, tmp_path: Path) -> FileTools:
    (root / "f").write_text("".join(LINES))
    return FileTools(root, state_dir=tmp_path / "state", bounds=Bounds(read_bytes=1_000, scan_bytes=12_000))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (1, 1, LINES[0:1]),
        (500, 510, LINES[499:510]),
        (None, 3, LINES[:3]),
        (120, 120, LINES[119:120]),
        (500, None, LINES[499:]),
        (1, 1000, LINES),
    ],
)
def test_lines_of_a_large_file_are_found_and_cut_at_a_line_end(small: FileTools, start, end, expected: list[str]) -> None:
    result = small.call_sync("read_file", {"path": "f", "start_line": start, "end_line": end})
    assert "".join(expected).startswith(result.value)
    assert len(result.value) <= 1_000
    if result.value == "".join(expected):
        assert "of a large file" in result.notes[0]
    else:
        next_line = (start or 1) + result.value.count("\n")
        assert result.notes[0].endswith(f"Go on with start_line={next_line}.")


def test_lines_beyond_what_is_looked_at_are_refused(small: FileTools, root: Path) -> None:
    result = small.call_sync("read_file", {"path": "f", "start_line": 5_000})
    assert "has 1000 lines" in result.error
    (root / "f").write_text("x" * 3_000 + "\n" + "".join(LINES) * 3)
    for args in ({"start_line": 2_500}, {"start_line": -1}, {"end_line": -2}):
        assert "not reached within 12000 bytes" in small.call_sync("read_file", {"path": "f"} | args).error


def test_lines_of_a_large_file_can_be_counted_from_its_end(root: Path, tmp_path: Path) -> None:
    (root / "f").write_text("".join(LINES) + "no end")
    files = FileTools(root, state_dir=tmp_path / "state", bounds=Bounds(read_bytes=1_000))
    assert files.call_sync("read_file", {"path": "f", "start_line": -1}).value == "no end"
    assert files.call_sync("read_file", {"path": "f", "start_line": -3, "end_line": -2}).value == "line 999\nline 1000\n"
    assert "is after" in files.call_sync("read_file", {"path": "f", "start_line": 900, "end_line": -900}).error
    assert "no line 5000" in files.call_sync("read_file", {"path": "f", "start_line": 5000}).error


def test_a_large_file_of_another_kind_is_refused_by_lines(small: FileTools, root: Path) -> None:
    (root / "f").write_bytes(b"\xff\xfe" + "".join(LINES).encode("utf-16-le"))
    assert "utf-16-le" in small.call_sync("read_file", {"path": "f", "start_line": 5}).error
    (root / "f").write_bytes(b"text\n" * 500 + b"\0\n" * 5)
    assert "binary" in small.call_sync("read_file", {"path": "f", "start_line": 500}).error
    (root / "f").write_bytes(b"text\n" * 500 + b"\xff\n" * 5)
    assert "not text" in small.call_sync("read_file", {"path": "f", "start_line": 500}).error


def test_a_line_that_is_too_long_is_cut_inside(small: FileTools, root: Path) -> None:
    (root / "f").write_text("x" * 5_000)
    result = small.call_sync("read_file", {"path": "f"})
    assert (len(result.value), "inside line 1" in result.notes[0]) == (1_000, True)
    result = small.call_sync("read_file", {"path": "f", "start_line": 1})
    assert (len(result.value), "inside line 1" in result.notes[0]) == (1_000, True)


@given(st.binary(max_size=200))
def test_bytes_are_text_that_goes_back_to_the_same_bytes_or_no_text(data: bytes) -> None:
    try:
        encoding = encoding_of(data)
        text = decoded(data, encoding)
    except NotTextError:
        return
    assert encoding.mark + encoding.encode(text) == data
    assert text_of(data) == text


@given(st.text(), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]))
def test_text_with_a_mark_is_read_as_it_was_written(text: str, codec: str) -> None:
    data = text.encode(codec, "ignore")
    if b"\0" in data and codec == "utf-8":
        return
    try:
        assert text_of(data).encode("utf-8") == data.decode(codec).encode("utf-8")
    except NotTextError:
        pytest.fail(f"{data!r} was not taken for text")


@given(st.text("ab \r\n", max_size=60), st.text("ab\n", min_size=1, max_size=4), st.text("xy\n", max_size=5))
def test_an_edit_changes_what_was_named_and_nothing_else(text: str, old: str, new: str) -> None:
    try:
        after, count = edited("f", text, old, new, every=True)
    except ToolError:
        assert old == new or old not in text.replace("\r\n", "\n")
        return
    plain = text.replace("\r\n", "\n")
    assert count == plain.count(old)
    assert after.replace("\r\n", "\n") == plain.replace(old, new).replace("\r\n", "\n")
    if "\r\n" not in text:
        assert after == text.replace(old, new)


def test_an_edit_that_would_fit_without_white_space_says_where() -> None:
    with pytest.raises(ToolError, match=r"2 times \(line 2\) with other white space"):
        edited("f", "one\n two  three\ntwo\tthree\n", "two three", "x", every=False)
    with pytest.raises(ToolError, match="copy the text exactly"):
        edited("f", "one\n", " \n ", "x", every=False)


def test_a_diff_of_very_long_texts_is_not_made() -> None:
    assert "too long to compare" in unified_diff("f", "x\n" * 20_000, "y\n" * 10)


@pytest.mark.parametrize(
    "line", ["# ... rest of the code", "// ... existing code ...", "... (unchanged)", "/* … remaining methods */"]
)
def test_a_line_that_stands_for_lost_text_is_seen(line: str) -> None:
    assert stand_in_line("code\n" * 20, f"new\n{line}\n") == line
    assert stand_in_line(f"code\n{line}\n" * 20, f"new\n{line}\n") is None
    assert stand_in_line("short", f"a longer text\n{line}\n") is None
