"""Globs and ignore rules: what fits, judged by git where there is one, and in time that does not explode."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.errors import ToolError
from callgate.files import FileTools
from callgate.files.globs import Glob, glob_of, ignore_rules


def fits(pattern: str, path: str) -> bool:
    glob = glob_of(pattern, chars_max=512)
    *folders, name = path.split("/")
    state = glob.start()
    for folder in folders:
        state = glob.enter(state, folder)
    return glob.matches(state, name)


@pytest.mark.rows(
    ("pattern", "fitting", "others"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("a", ["a", "x/a"], ["b", "a/b"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/x/a.py", "x/src/a.py"]),
        ("./src/*.py", ["src/a.py"], ["a.py"]),
        ("**/a.py", ["a.py", "x/a.py", "x/y/a.py"], ["b.py"]),
        ("src/**/a.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "x/src/a.py"]),
        ("src/**", ["src/a", "src/x/y"], ["src", "a"]),
        ("src/", ["src/a", "src/x/y"], ["src"]),
        ("**", ["a", "x/y"], []),
        ("a?c", ["abc", "x/a.c"], ["ac", "abbc"]),
        ("[ab].c", ["a.c", "b.c"], ["c.c", "[ab].c"]),
        ("[!ab].c", ["c.c"], ["a.c"]),
        ("[^ab].c", ["c.c"], ["a.c"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
        ("[]]x", ["]x"], ["x"]),
        ("[", ["["], ["a"]),
        ("[a", ["[a"], ["a"]),
        ("[z-a]", [], ["a", "z", "-"]),
        ("*.{ts,tsx}", ["a.ts", "x/b.tsx"], ["a.js", "a.{ts,tsx}"]),
        ("{src,test}/{a,b{c,d}}", ["src/a", "test/bd"], ["src/b", "a"]),
        ("{a}", ["{a}"], ["a"]),
        ("a**b", ["ab", "axxb"], ["a/b"]),
        ("x/**/**/y", ["x/y", "x/1/2/y"], ["y"]),
        ("a.b", ["a.b"], ["axb"]),
        ("*a*b*c", ["abc", "xaxbxc", "aabbcc"], ["acb", "ab"]),
    ],
)
def test_a_pattern_fits_these_and_not_those(pattern: str, fitting: list[str], others: list[str]) -> None:
    assert [path for path in fitting if not fits(pattern, path)] == []
    assert [path for path in others if fits(pattern, path)] == []


def test_a_folder_where_nothing_can_fit_is_known_at_once() -> None:
    glob = glob_of("src/*.py", chars_max=512)
    assert Glob.can_match(glob.enter(glob.start(), "src"))
    assert not Glob.can_match(glob.enter(glob.start(), "other"))


@given(st.text("ab*?[]!-{},/.", max_size=40), st.text("ab.-", min_size=1, max_size=20))
def test_no_pattern_breaks_the_matcher(pattern: str, name: str) -> None:
    try:
        glob = glob_of(pattern, chars_max=512)
    except ToolError:
        return
    glob.matches(glob.start(), name)


@given(st.lists(st.text("ab*?[]!-\\ #/.é", max_size=12), max_size=8), st.text("ab.-é", min_size=1, max_size=12))
def test_no_ignore_file_breaks_the_rules(lines: list[str], name: str) -> None:
    rules, _ = ignore_rules("\n".join(lines), chars_max=512)
    rules.enter(name).verdict(name, folder=False)


PATHS = ("a", "b.o", "x/a", "x/b.o", "x/y/a", "x/y/b.c", "build/z", "x/build/z", "doc/a b", "doc/x/#c", "doc/!d")
RULES = st.sampled_from([
    "a", "/a", "*.o", "!b.o", "x/", "/x/a", "x/y", "build", "build/", "/build", "**/a", "x/**", "x/**/b.c", "!x/y/b.c",
    "*", "!*/", "doc/*", "!doc/x", "# note", "", "   ", "\\#c", "\\!d", "a b", "a b ", "[ab].?", "[!a]*", "y/b.c", "**",
    "/*", "!/x", "*.c ", "x/*/a", "**/build/**", "!a", "doc/", "/doc/x/", "\\a", "*\\",
])  # fmt: skip


@given(st.lists(RULES, max_size=6), st.lists(RULES, max_size=3))
@settings(max_examples=60)
def test_what_is_listed_is_what_git_does_not_ignore(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], inner: list[str]
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed; the rules of ignore files were not compared with it")
    root: Path = tmp_path_factory.mktemp("ignored") / "root"
    for path in PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / ".gitignore").write_text("\n".join(top) + "\n")
    (root / "x" / ".gitignore").write_text("\n".join(inner) + "\n")
    subprocess.run(["git", "init", "-q", root], check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(root.parent)})
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(root.parent)},
    )
    expected = sorted(path for path in listed.stdout.split("\0") if path)
    with FileTools(root, state_dir=root.parent / "state") as files:
        assert files.call_sync("list_files", {}).value == expected
