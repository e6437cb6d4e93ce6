"""Markdown that is drawn while it arrives: the same however it is cut, nothing lost, nothing drawn twice."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.cli.escaping import visible
from callgate.cli.live import Live, clipped
from callgate.cli.markdown import Markdown, spans, width_of

SAMPLE = """# Title here
Some **bold text** and *em* with `code`, ``a ` b`` and a [link](http://x.y). 2 ** 3, snake_case_name and \\*not em\\*.
- item one is rather long so that it must be wrapped at the end of the narrow line
  1. nested ~~gone~~
> quoted words

```python
def f(x):
    return "`" * 3
```
| a | b |
|---|:-:|
| 1 | **x** |
| long cell | y \\| z | more |

---
unclosed **bold and `tick and [link](
| no table
text
"""

SGR = re.compile(r"\x1b\[[0-9;]*m")


def drawn(pieces: list[str], columns: int = 60) -> str:
    markdown = Markdown(lambda: columns)
    return "".join([*map(markdown.feed, pieces), markdown.close()])


def cells(text: str) -> list[tuple[str, str]]:
    """Each character with the style that it is drawn in: what a person sees, however the sequences are cut."""
    found: list[tuple[str, str]] = []
    style, place = "", 0
    for code in SGR.finditer(text):
        found += [(char, style) for char in text[place : code.start()]]
        style = "" if code[0] == "\x1b[0m" else code[0]
        place = code.end()
    return found + [(char, style) for char in text[place:]]


def test_a_text_is_drawn_as_it_is_meant() -> None:
    assert SGR.sub("", drawn([SAMPLE])).splitlines() == [
        "Title here",
        "Some bold text and em with code, a ` b and a link",
        "(http://x.y). 2 ** 3, snake_case_name and *not em*.",
        "• item one is rather long so that it must be wrapped at the",
        "  end of the narrow line",
        "  1. nested gone",
        "│ quoted words",
        "",
        "  def f(x):",
        '      return "`" * 3',
        " a         │   b",
        "───────────┼──────",
        " 1         │   x",
        " long cell │ y | z more",
        "",
        "────────────────────────────────────────",
        "unclosed **bold and `tick and [link](",
        "| no table",
        "text",
    ]
    styled = dict.fromkeys(["\x1b[1mbold\x1b[0m", "\x1b[3mem\x1b[0m", "\x1b[36mcode\x1b[0m", "\x1b[9mgone\x1b[0m"])
    assert [piece for piece in styled if piece not in drawn([SAMPLE])] == []


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.integers(20, 100))
def test_where_a_text_is_cut_makes_no_difference(sizes: list[int], columns: int) -> None:
    pieces: list[str] = []
    place = 0
    while place < len(SAMPLE):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(SAMPLE[place : place + size])
        place += size
    assert cells(drawn(pieces, columns)) == cells(drawn([SAMPLE], columns))


MARKS = st.text(alphabet="ab *_`~[]()\\#->|1.\n:!é漢", max_size=120)


@given(MARKS, st.integers(0, 120))
def test_any_text_is_drawn_the_same_in_two_pieces_as_in_one(text: str, cut: int) -> None:
    assert cells(drawn([text[:cut], text[cut:]])) == cells(drawn([text]))


@given(MARKS)
def test_letters_are_never_lost_and_never_drawn_twice(text: str) -> None:
    shown = SGR.sub("", drawn([text], columns=40))
    # The word behind a fence is the name of a language, and is not shown.
    if "```" not in text and "~~~" not in text:
        assert [char for char in shown if char.isalnum()] == [char for char in text if char.isalnum()]


@given(st.text(max_size=80))
def test_what_others_wrote_brings_no_sequence_of_its_own(text: str) -> None:
    plain = SGR.sub("", drawn([visible(text)]))
    assert "\x1b" not in plain


@given(st.text(alphabet="abc de漢", max_size=300), st.integers(20, 60))
def test_no_line_of_words_is_wider_than_the_terminal(text: str, columns: int) -> None:
    assert max((width_of(line) for line in drawn([text], columns).split("\n")), default=0) < columns


def test_a_span_that_is_too_long_is_text() -> None:
    text = "**" + "x" * 500 + "**"
    assert spans(text)[0] == [("**", ""), ("x" * 500, ""), ("**", "")]
    assert SGR.sub("", drawn([text, "\n"])).replace("\n", "") == text


def test_columns_stand_at_the_side_that_they_name() -> None:
    table = "| name | n | mid |\n|:--|--:|:-:|\n| a | 1 | x |\n| bb | 100 | long |\n"
    assert SGR.sub("", drawn([table])).splitlines() == [
        " name │   n │ mid",
        "──────┼─────┼─────",
        " a    │   1 │  x",
        " bb   │ 100 │ long",
    ]


def test_every_line_of_a_quotation_has_its_mark() -> None:
    text = "> > a quotation that is long enough to be wrapped twice\n> and goes on\n\nafter it\n"
    shown = SGR.sub("", drawn([text], columns=24)).splitlines()
    assert shown == [
        "│ │ a quotation that is",
        "│ │ long enough to be",
        "│ │ wrapped twice",
        "│ and goes on",
        "",
        "after it",
    ]


def test_a_wide_table_wraps_inside_its_cells() -> None:
    table = "| key | meaning |\n|---|---|\n| one | " + "several words that go on " * 3 + "|\n"
    lines = SGR.sub("", drawn([table], 40)).splitlines()
    assert max(map(len, lines)) < 40
    assert lines[2:] == [
        " one │ several words that go on",
        "     │ several words that go on",
        "     │ several words that go on",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("- [x] done\n- [ ] open", ["☑ done", "☐ open"]),
        ('[docs](http://x.y "The title")', ['docs (http://x.y, "The title")']),
        ("see <https://x.y/z>.", ["see https://x.y/z."]),
        ("![a cat](http://x.y/c.png)", ["a cat (http://x.y/c.png)"]),
        ("1 < 2 and a! b", ["1 < 2 and a! b"]),
    ],
)
def test_tasks_titles_and_addresses_are_drawn_as_they_are_meant(text: str, shown: list[str]) -> None:
    assert [line.removeprefix("• ") for line in SGR.sub("", drawn([text])).splitlines()] == shown


def test_code_has_the_colours_of_its_language_and_wraps_with_its_indent() -> None:
    pytest.importorskip("pygments", reason="pygments is not installed")
    text = 'def f(x):\n    """Open\n    still open"""\n    return "' + "word " * 12 + '"\n'
    code = drawn([f"```python\n{text}```\n"], 40)
    assert "\x1b[35mdef\x1b[0m" in code
    assert "\x1b[34mf\x1b[0m" in code
    assert "\x1b[32m    still open" in code.replace("\x1b[0m\x1b[32m", "")
    lines = SGR.sub("", code).splitlines()
    assert max(map(len, lines)) < 40
    assert all(line.startswith("        ") for line in lines[4:])
    assert "\x1b[32m+ new" in drawn(["```diff\n- old\n+ new\n```\n"])


def test_a_long_table_is_shown_as_it_came() -> None:
    narrow = "|" + " abcdefgh |" * 9 + "\n|" + "---|" * 9 + "\n"
    assert drawn([narrow], 40) == narrow
    rows = "".join(f"| {n} |\n" for n in range(600))
    assert [line.strip(" |") for line in drawn([rows]).splitlines()] == [str(n) for n in range(600)]


@pytest.mark.parametrize(
    ("text", "columns", "cut"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("漢字漢字", 5, "漢字…"), ("ab", 0, "")]
)
def test_a_line_that_does_not_fit_is_cut(text: str, columns: int, cut: str) -> None:
    assert clipped(text, columns) == cut


def test_live_lines_are_drawn_from_where_the_cursor_waits_and_taken_away_in_one_go() -> None:
    written: list[str] = []
    live = Live(written.append, lambda: (20, 5))
    live.draw(["one", "two"])
    live.draw(["one", "two"])  # Nothing has changed: nothing is written.
    assert written == ["\x1b[?25l\r\x1b[Jone\ntwo\x1b[1A\r"]
    live.draw([str(n) for n in range(9)])
    assert written[-1].split("\x1b[J")[1] == "0\n1\n  and 7 more\x1b[2A\r"
    assert live.is_shown
    live.draw([])
    assert written[-1] == "\r\x1b[J\x1b[?25h"
    live.erase()
    assert len(written) == 3
