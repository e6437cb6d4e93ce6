"""The files that a project file makes run: its text comes in, paths of files that exist go out.

A command has many spellings (`--script=server.py`, `-rhook.py`, `python -m server`, `sh -c "..."`, a variable that leads to
a folder), and programs read them in their own ways. So no spelling is understood here: every part of every text counts
that is the name of a file, from the project's folder, the current one, or any folder that is named. A file too many is
looked at, never one too few.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from callgate.config.lines import toml_of
from callgate.types import JsonObject

__all__ = ["named_files"]

LIST_BYTES_MAX = 1024 * 1024
"""Larger files are no lists of servers or scripts."""
OPTION_CHARS_MAX = 32
"""Letters of an option that its value may follow without a sign between them: `-rhook.py`."""
FOLDERS_MAX, FOUND_BY_WILDCARD_MAX, STEPS_MAX = 64, 1_000, 64
_COMMAND_KEYS = ("mcpServers", "servers", "scripts", "bin", "main")

_WORD = re.compile(r"[^\s\"'`=:;,|&<>()\[\]{}@!#\0]+")
_QUOTED = re.compile(r"[\"'\\]")
_BRACES = re.compile(r"\{[^{}]*\}")
_VARIABLE = re.compile(r"\$\{[^}]*\}|\$[A-Za-z_][A-Za-z0-9_]*|\$\([^)]*\)|%[A-Za-z_][A-Za-z0-9_]*%")
_WILDCARD = re.compile(r"[*?\[]")
# Endings that interpreters add to a name, and the files of a folder that they start with.
_ENDINGS = ("", ".py", ".pyc", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh", ".pl", ".php", ".lua", ".exe", ".cmd", ".bat")
_STARTS = (
    "__init__.py", "__main__.py", "index.js", "index.mjs", "index.cjs", "index.ts", "main.py", "main.js", "main.go",
    "package.json", "go.mod", "Cargo.toml", "Dockerfile",
)  # fmt: skip
# Programs that read what they run from a file of the folder that nobody names.
_READ_BY: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun", "bunx", "node"), ("package.json", ".npmrc", ".yarnrc.yml")),
    **dict.fromkeys(("make", "gmake"), ("Makefile", "makefile", "GNUmakefile")),
    **dict.fromkeys(("uv", "uvx", "poetry", "pdm", "hatch", "pipx", "rye"), ("pyproject.toml", "uv.toml", "uv.lock")),
    **dict.fromkeys(("docker", "podman"), ("Dockerfile", "compose.yaml", "compose.yml", "docker-compose.yml")),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "cargo": ("Cargo.toml", "build.rs", "src/main.rs"),
    "go": ("go.mod", "main.go"),
    "deno": ("deno.json", "deno.jsonc"),
    "rake": ("Rakefile",),
    "bundle": ("Gemfile",),
    "mise": ("mise.toml", ".mise.toml"),
    "direnv": (".envrc",),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
}


def named_files(folder: Path, data: bytes) -> list[Path]:
    """The files that a project file names in any way, and those that lists of servers and scripts among them name."""
    found: dict[str, None] = {}
    waiting = list(_texts(_project(data)))
    while waiting:
        new = [path for path in _files_of(os.fspath(folder), waiting) if path not in found]
        found |= dict.fromkeys(new)
        waiting = [text for path in new if path.endswith(".json") for text in _texts(_commands(path))]
    return sorted(map(Path, found))


def _project(data: bytes) -> JsonObject:
    try:
        content = toml_of(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}
    return {key: value for key, value in content.items() if key != "system"}  # An instruction for the model runs nothing.


def _commands(path: str) -> JsonObject:
    """The parts of a JSON file that hold commands, as in `mcp.json` and `package.json`."""
    try:
        content: Any = json.loads(Path(path).read_bytes()) if os.path.getsize(path) <= LIST_BYTES_MAX else None
    except (OSError, ValueError, RecursionError):
        return {}
    table = cast("JsonObject", content) if isinstance(content, dict) else {}
    return {key: table[key] for key in _COMMAND_KEYS if key in table}


def _texts(content: JsonObject) -> Iterator[str]:
    """Every text in a table."""
    waiting: list[Any] = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += cast("dict[str, Any]", item).values()
        elif isinstance(item, list):
            waiting += cast("list[Any]", item)
        elif isinstance(item, str) and item:
            yield item


def _files_of(folder: str, texts: Iterable[str]) -> Iterator[str]:
    names = list(dict.fromkeys(name for text in texts for name in _names_in(text) if name))
    folders = list(dict.fromkeys(itertools.islice(_folders_of(folder, names), FOLDERS_MAX)))
    for name, place in itertools.product(names, folders):
        yield from _files_at(place, name)


def _folders_of(folder: str, names: Iterable[str]) -> Iterator[str]:
    """The folders that a name may start at: the project's, the current one inside of it, and all that are named."""
    yield folder
    for name in (os.getcwd(), *names):
        path = os.path.realpath(os.path.join(folder, os.path.expanduser(name))) if "\0" not in name else folder
        if os.path.isdir(path) and path.startswith(os.path.join(folder, "")):
            yield path


def _names_in(text: str) -> Iterator[str]:
    """Every part of a text that may be the name of a file, a folder or a module."""
    yield from (text, *(part for sign in "=:" for part in text.split(sign, maxsplit=1)))
    plain = _QUOTED.sub("", text)
    decoded = unquote(plain)
    for spelled in (text, plain, _VARIABLE.sub(" ", text), _BRACES.sub("*", plain), decoded, decoded.replace("?", " ")):
        for word in _WORD.findall(spelled):
            yield word
            if word.startswith("-"):
                yield from (word[start:] for start in range(1, min(len(word), OPTION_CHARS_MAX)))
            parts = word.split("/")
            yield from ("/".join(parts[start:]) for start in range(1, min(len(parts), STEPS_MAX)))


def _files_at(folder: str, name: str) -> Iterator[str]:
    path = os.path.join(folder, os.path.expanduser(name))
    places = [path, os.path.join(folder, name.replace(".", "/"))] if "/" not in name else [path]
    tried = [place + ending for place in places for ending in _ENDINGS]
    tried += [os.path.join(folder, read) for read in _READ_BY.get(os.path.basename(name), ())]
    tried += [os.path.join(place, start) for place in places if os.path.isdir(place) for start in _STARTS]
    if _WILDCARD.search(name):
        tried += itertools.islice(glob.iglob(path.replace("**", "*")), FOUND_BY_WILDCARD_MAX)
    yield from (os.path.normpath(file) for file in tried if os.path.isfile(file))
