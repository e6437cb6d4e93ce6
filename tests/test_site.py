"""The site: its pictures and reference are up to date, it builds without a complaint, and no link of it leads nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    words = [sys.executable, *command]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "script", ["draw_figures.py", pytest.param("write_reference.py", marks=pytest.mark.slow), "write_interfaces.py"]
)
def test_what_scripts_write_into_the_docs_is_up_to_date(script: str):
    done = run(f"scripts/{script}", "--check")
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_every_picture_is_shown_with_words_for_those_who_cannot_see_it():
    shown = {
        name: words
        for page in DOCS.rglob("*.md")
        for words, name in re.findall(r"!\[([^\]]*)\]\((?:\.\./)?figures/([\w.]+)\)", page.read_text("utf-8"))
    }
    assert set(shown) == {path.name for path in (DOCS / "figures").glob("*.svg")}
    assert all(shown.values())


def anchors_of(html: str) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', html))


def dead_links(site: Path) -> list[str]:
    """Links and files of a built site that lead nowhere, and everything that would be loaded from another machine."""
    pages = {path: path.read_text("utf-8") for path in site.rglob("*.html") if path.name != "404.html"}
    found: list[str] = []
    for path, html in pages.items():
        place = path.relative_to(site).as_posix()
        for kind, target in re.findall(r'\b(href|src)="([^"]+)"', html):
            if re.match(r"https?://", target):
                loaded = kind == "src" or re.search(rf'<link[^>]+href="{re.escape(target)}"[^>]+stylesheet', html)
                found += [f"{place} loads {target}"] if loaded else []
                continue
            if target.startswith(("mailto:", "data:", "javascript:")):
                continue
            name, _, anchor = unquote(target).partition("#")
            aim = (path.parent / name).resolve() if name else path
            aim = aim / "index.html" if aim.is_dir() else aim
            if not aim.exists():
                found.append(f"{place} -> {target}")
            elif anchor and aim in pages and anchor not in anchors_of(pages[aim]):
                found.append(f"{place} -> {target}: no such place on that page")
    return found


@pytest.mark.slow
def test_the_site_builds_strictly_and_every_link_leads_somewhere(tmp_path: Path):
    done = run("-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert dead_links(tmp_path / "site") == []
    front = (tmp_path / "site/index.html").read_text("utf-8")
    assert "fonts.googleapis" not in front
    assert "tutorial.html" in front


def test_a_dead_link_and_a_remote_file_are_found(tmp_path: Path):
    (tmp_path / "a.html").write_text(
        '<p id="x"></p><a href="#x"></a><a href="#y"></a><a href="b.html"></a><a href="https://example.org"></a>'
        '<script src="https://example.org/a.js"></script>'
    )
    assert dead_links(tmp_path) == [
        "a.html -> #y: no such place on that page",
        "a.html -> b.html",
        "a.html loads https://example.org/a.js",
    ]


def test_every_field_of_the_reference_is_described() -> None:
    rows = [
        f"{page.stem}: {line}"
        for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("| `") and line.endswith("|  |")
    ]
    # A parameter of a path is named by the path.
    assert [row for row in rows if "| path, required |" not in row] == []


def test_every_entry_of_the_reference_says_what_it_is() -> None:
    generated = [page for page in (ROOT / "docs" / "reference").glob("*.md") if page.stem not in ("command", "http-api")]
    silent = [
        f"{page.stem}: {entry.partition(chr(10))[0]}"
        for page in generated
        for entry in re.split(r"^##+ ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]
        if not re.sub(r"```text.*?```", "", entry.partition("\n")[2], flags=re.DOTALL).strip()
    ]
    assert silent == []
