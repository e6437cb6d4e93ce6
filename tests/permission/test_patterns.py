"""Patterns, narrow for what allows and wide for what asks or denies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.errors import UsageError
from callgate.permission.patterns import Glob, PathGlob, Regex, folded, path_parts

ROWS = [
    # pattern, path, narrowly, widely
    ("src/**", "src/a", True, True), ("src/**", "src", False, True), ("*.pem", "a/b/x.pem", True, True),
    (".ssh/", "home/.ssh/id", True, True), ("/a/*", "a/b", True, True), ("/a/*", "a/b/c", False, True),
    ("a/**/z", "a/z", True, True), ("a/**/z", "a/b/c/z", True, True), ("**/x", "x", True, True), ("**", "a/b", True, True),
    ("/**", "a", True, True), ("//", "a", False, True),
    ("//etc/*", "/etc/passwd", True, True), ("//etc/*", "etc/passwd", False, True),
    (".env", ".ENV.", False, True), (".env", "../../.env", False, True), ("/secret/**", "/home/u/secret/x", False, True),
    ("[a-c]x", "bx", True, True), ("[!a-c]x", "bx", False, False), ("[^a]x", "bx", True, True), ("[]]", "]", True, True),
    (r"\*x", "*x", True, True), (r"\*x", "ax", False, False), ("a?c", "abc", True, True), ("a?c", "a/c", False, False),
    ("src", "src/deep/x", True, True), ("src/", "other/src/x", True, True), ("/src", "other/src", False, False),
    ("a", "~/a", False, True), ("a", "C:/a", False, True), ("a", "x\\a", False, True), ("a", "a\x00", False, False),
    ("a\\", "a\\", False, True), ("[.]env", ".env", True, True), ("a*", "b", False, False),
]  # fmt: skip


@pytest.mark.rows(("pattern", "path", "narrow", "wide"), ROWS)
def test_a_path_pattern_matches_narrowly_and_widely(pattern: str, path: str, narrow: bool, wide: bool):
    glob = PathGlob(pattern)
    assert (glob.narrow(path), glob.wide(path)) == (narrow, wide)


@pytest.mark.parametrize(
    ("pattern", "text", "narrow", "wide"),
    [
        ("git *", "git status", True, True), ("git *", "GIT status", False, True), ("*", "", True, True),
        ("a", "ab", False, False),
        ("délete_*", "DÉLETE_x", False, True), ("a", "\uff41", False, True), ("a", "a\u200b", False, True),
        ("?", "ß", True, True),
        ("a*b", "a\nb", True, True), (r"\?", "?", True, True), ("ab\\", "ab\\", True, True),
    ],
)  # fmt: skip
def test_a_glob_matches_narrowly_and_widely(pattern: str, text: str, narrow: bool, wide: bool):
    glob = Glob(pattern)
    assert (glob.narrow(text), glob.wide(text)) == (narrow, wide)


def test_an_expression_matches_the_whole_text():
    regex = Regex("ab|c")
    assert [regex.narrow(text) for text in ("ab", "c", "abc", "xc", "AB")] == [True, True, False, False, False]
    assert (regex.wide("AB"), regex.wide("\uff43"), regex.wide("abc")) == (True, True, False)


@pytest.mark.parametrize("pattern", ["", "[", "a[", "[]", "!a", "a" * 1_001])
def test_what_is_no_path_pattern_is_an_error(pattern: str):
    with pytest.raises(UsageError):
        PathGlob(pattern)


@pytest.mark.parametrize("pattern", ["(", "a)|(b", "(?=a)", r"(a)\1", "(?x)a#", "", 7])
def test_what_is_no_expression_is_an_error(pattern: object):
    with pytest.raises(UsageError):
        Regex(pattern)  # pyright: ignore


PATHS = st.lists(st.sampled_from(["a", "b", ".env", "..", ".", "", "A", "x.py", "~", "\u212a"]), max_size=6).map("/".join)
PATTERNS = st.lists(st.sampled_from(["a", "*", "**", ".env", "x.*", "b", "?"]), min_size=1, max_size=4).map("/".join)


@given(PATTERNS, PATHS)
def test_what_matches_narrowly_matches_widely(pattern: str, path: str):
    glob = PathGlob(pattern)
    assert glob.wide(path) or not glob.narrow(path)


@given(st.text("ab*?[]\\!", min_size=1, max_size=12), st.text("ab", max_size=12))
def test_every_glob_matches_or_is_refused(pattern: str, text: str):
    try:
        glob = Glob(pattern)
    except UsageError:
        return
    assert glob.wide(text) or not glob.narrow(text)


@pytest.mark.parametrize("pattern", ["a*" * 400 + "b", "**/" * 300 + "x", "*a*b*c*d*e*f" * 20])
def test_hostile_texts_are_read_to_their_end(pattern: str):
    # Would take longer than the universe has with an engine that backtracks.
    assert not PathGlob(pattern).narrow("a" * 100_000 + "!")
    assert not Glob(pattern).narrow("a" * 100_000 + "!")


def test_the_parts_of_a_path_are_worked_out():
    assert path_parts("a//b/./c/../d/") == (["a", "b", "d"], False)
    assert path_parts("a/../../b") == (["b"], True)
    assert path_parts("/etc") == (["etc"], True)
    assert path_parts("") == ([], False)
    assert folded("\uff2b\u200b\u0301Ｅ") == "ke"


@pytest.mark.parametrize("text", ["root", " root", "root ", "\troot\n", "root\u00a0", "root\0", "roo\ua787", "\ua783oot"])
def test_blanks_around_a_text_and_old_forms_of_letters_do_not_lead_around_a_pattern(text: str):
    assert Glob("root").wide(text)
    assert Regex("ro+t").wide(text)
    assert Glob("root").narrow(text) == Regex("root").narrow(text) == (text == "root")


@pytest.mark.rows("path", ["a", "a.b/c", "A/b-c", "a/b", "b/a", "other"])
@pytest.mark.rows("pattern", ["a", "a*", "/a", "A/", "a/b", "//a", "*.b", "b"])
def test_a_plain_path_matches_like_a_longer_spelling_of_it(pattern: str, path: str):
    assert PathGlob(pattern).wide(path) == PathGlob(pattern).wide(f"./{path}") == PathGlob(pattern).wide(f"x/../{path}")
