"""What the site shows beside docs/: the pages of the repository's root, and the examples, as pages of their own.

A hook of mkdocs. Links that lead out of docs/ in the repository lead to these pages on the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<way>(?:\.\./)*)(?P<target>[\w./-]+)(?P<anchor>#[\w-]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=from_root((ROOT / source).read_text("utf-8"))))
    files.append(File.generated(config, "examples.md", content=examples_page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns links to files of the repository into links to pages."""
    depth = page.file.src_uri.count("/")

    def turned(found: re.Match[str]) -> str:
        way, target, anchor = found["way"], found["target"], found["anchor"] or ""
        if way.count("../") != depth + 1:
            return found[0]
        page_name = page_of(target)
        if page_name is None:
            return found["text"]  # A file of the repository that the site does not show.
        return f"[{found['text']}]({'../' * depth}{page_name}{anchor})"

    return _LINK.sub(turned, markdown)


def page_of(target: str) -> str | None:
    """The page of the site for a file of the repository, if there is one."""
    if target == "README.md":
        return "index.md"
    if example := re.fullmatch(r"examples/(\d\d_\w+)\.py", target):
        return f"examples.md#{example[1]}"
    return PAGES.get(target, "examples.md" if target.startswith("examples") else None)


def from_root(text: str) -> str:
    """A page of the repository's root with links as they are inside docs/."""
    text = re.sub(r"\]\(docs/([^)]+)\)", r"](\1)", text)
    return re.sub(
        r"\]\(((?:README|CHANGELOG|CODE_OF_CONDUCT|CONTRIBUTING|SECURITY)\.md)", lambda found: f"]({page_of(found[1])}", text
    )


def examples_page() -> str:
    """All examples, each with its code."""
    parts = ["# Examples\n\nEach one is a file in `examples/` that runs as it stands, without a key.\n"]
    for file in sorted((ROOT / "examples").glob("*.py")):
        parts.append(f"## {file.stem[3:].replace('_', ' ').capitalize()} {{ #{file.stem} }}\n")
        parts.append(f"```python\n{file.read_text('utf-8').strip()}\n```\n")
    return "\n".join(parts)
