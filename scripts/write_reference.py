"""Writes docs/reference/ from docstrings: python scripts/write_reference.py [--check]

Modules are imported, and their public names written down with signature and docstring. `--check` writes nothing, and ends
with 1 if a page is out of date.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"

PAGES: dict[str, tuple[str, str]] = {
    "callgate": ("callgate", "what most programs import"),
    "events": ("callgate.events", "what a run reports"),
    "errors": ("callgate.errors", "what can be raised"),
    "permission": ("callgate.permission", "policies, rules, limits, audit"),
    "adapters": ("callgate.adapters", "other frameworks, both ways"),
    "testing": ("callgate.testing", "models and servers for your tests"),
}
"""Page -> its module, and what it is for."""


def page_of(module_name: str) -> str:
    """The page of one module."""
    module = importlib.import_module(module_name)
    names = sorted(getattr(module, "__all__", None) or public_of(module), key=str.lower)
    parts = [f"# {module_name}\n", prose(module.__doc__)]
    parts += [entry(name, getattr(module, name), docs_of_fields(module)) for name in names]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def public_of(module: Any) -> list[str]:
    """The classes and functions that a module without `__all__` defines itself."""
    return [name for name, item in vars(module).items() if not name.startswith("_") and inspect.getmodule(item) is module]


def entry(name: str, item: Any, documented: dict[str, str]) -> str:
    """One name: heading, signature, docstring, and for a class its fields and methods."""
    if inspect.isclass(item):
        shown = signature_of(item).removesuffix(" -> None")
        lines = [f"## {name}\n", code(f"class {name}{shown}"), prose(item.__doc__)]
        members = [*fields_of(item), *methods_of(item)]
        return "\n".join([*lines, *members])
    if callable(item):
        return "\n".join([f"## {name}\n", code(f"{name}{signature_of(item)}"), prose(inspect.getdoc(item))])
    shown = re.sub(r"\s+", " ", repr(item))
    return "\n".join([f"## {name}\n", code(f"{name} = {shown[:300]}"), prose(documented.get(name))])


def docs_of_fields(source: Any) -> dict[str, str]:
    """Name -> the text that stands below its assignment, in a module or in a class."""
    try:
        text = inspect.getsource(source)
    except (OSError, TypeError):
        return {}
    found = re.findall(r'^ *(\w+)(?:\s*:[^\n=]+)?(?:\s*=[^\n]*)?\n\s*"""(.*?)"""', text, re.MULTILINE | re.DOTALL)
    return {name: inspect.cleandoc(words) for name, words in found}


def fields_of(item: Any) -> list[str]:
    """The fields of a dataclass, with what stands below them."""
    if not dataclasses.is_dataclass(item):
        return []
    told = docs_of_fields(item)
    rows = [
        f"| `{field.name}` | `{type_of(field.type)}` | {' '.join(told.get(field.name, '').split())} |"
        for field in dataclasses.fields(item)
        if not field.name.startswith("_")
    ]
    return ["| field | type | |", "|---|---|---|", *rows, ""] if rows else []


def methods_of(item: Any) -> list[str]:
    """The public methods and properties that a class defines itself."""
    found: list[str] = []
    for name, member in vars(item).items():
        inner = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name.startswith("_") or not (inspect.isfunction(inner) or isinstance(inner, property)):
            continue
        words = inspect.getdoc(inner)
        if not words:
            continue
        word = "async " if is_async(inner) else ""
        shown = name if isinstance(inner, property) else f"{word}{name}{signature_of(inner)}"
        found += [f"### {item.__name__}.{name}\n", *([] if isinstance(inner, property) else [code(shown)]), prose(words)]
    return found


def is_async(function: Any) -> bool:
    """Whether it must be awaited, or gone through with `async for`."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def signature_of(item: Any) -> str:
    """The signature without `self`, and without types that are no help."""
    try:
        signature = inspect.signature(item)
    except (TypeError, ValueError):
        return ""
    kept = [parameter for name, parameter in signature.parameters.items() if name not in ("self", "cls")]
    shown = str(signature.replace(parameters=kept, return_annotation=signature.return_annotation))
    shown = re.sub(r"<factory>|<(?:[^<>]|<lambda>)* at 0x[0-9a-f]+>", "...", shown)
    shown = re.sub(r"'([\w\[\], .|]+)'(?=[,)=\s]|$)", r"\1", shown) if "Literal" not in shown else shown
    if len(shown) <= 100:
        return shown
    inner = ",\n    ".join(re.split(r", (?=[\w*/]+(?::|=|,|\)|$))", shown[1 : shown.rindex(")")]))
    return f"(\n    {inner},\n{shown[shown.rindex(')') :]}"


def type_of(given: Any) -> str:
    """A type as it is written; a bar would end the cell of a table."""
    return (given if isinstance(given, str) else getattr(given, "__name__", str(given))).replace(" | ", " or ")


def code(text: str) -> str:
    """A block that is shown and not run: signatures are no programs."""
    return f"```text\n{text}\n```\n"


def prose(text: str | None) -> str:
    """A docstring as Markdown: its sections become lists, its programs stay programs."""
    lines: list[str] = []
    in_section = False
    for line in inspect.cleandoc(text or "").replace("```python", "```text").splitlines():
        if re.fullmatch(r"(Args|Raises|Returns|Yields):", line):
            lines += [f"**{line.rstrip(':')}**", ""]
            in_section = True
        elif in_section and (found := re.fullmatch(r"    (\w+): (.*)", line)):
            lines.append(f"- `{found[1]}`: {found[2]}")
        elif in_section and line.startswith("    "):
            lines.append(line)
        else:
            in_section = in_section and not line
            lines.append(line)
    return "\n".join(lines).strip() + "\n"


def index() -> str:
    """The page that leads to the others."""
    rows = [f"| [{module}]({page}.md) | {purpose} |" for page, (module, purpose) in PAGES.items()]
    return "\n".join([
        "# Reference\n",
        "Written from the docstrings by `scripts/write_reference.py`. For the command line, see `callgate --help`.\n",
        "| module | for |",
        "|---|---|",
        *rows,
    ]) + "\n"  # fmt: skip


def main(arguments: list[str]) -> int:
    """Writes all pages, or says which are out of date."""
    FOLDER.mkdir(exist_ok=True)
    pages = {"index.md": index(), **{f"{page}.md": page_of(module) for page, (module, _) in PAGES.items()}}
    stale = [n for n, t in pages.items() if not (FOLDER / n).is_file() or (FOLDER / n).read_text("utf-8") != t]
    if "--check" in arguments:
        if stale:
            print(f"out of date: {', '.join(stale)}; run python scripts/write_reference.py")
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).write_text(pages[name], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
