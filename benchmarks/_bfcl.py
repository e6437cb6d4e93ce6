"""The part of BFCL that the embedded model was not trained on, and whether a call is one of its possible answers.

The data comes from the package `bfcl-eval`, which is downloaded once into the cache and never installed. Functions are split
by the md5 of their name, 60 to 40, as for the training; a case belongs here if all functions of its answer do.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from callgate.embedded.weights import cache_folder

PACKAGE = "bfcl-eval==2026.3.23"
CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "live_simple", "live_multiple", "irrelevance",
)  # fmt: skip

_TYPES = {
    "dict": "object", "float": "number", "int": "integer", "str": "string", "bool": "boolean", "tuple": "array",
    "list": "array", "any": "string", "Any": "string", "String": "string", "long": "integer", "double": "number",
}  # fmt: skip


def cases(category: str) -> list[dict[str, Any]]:
    """The held-out cases of a category: `id`, `prompt`, `system`, `tools`, `answers`."""
    with zipfile.ZipFile(_wheel()) as archive:
        questions = _lines(archive, f"bfcl_eval/data/BFCL_v4_{category}.json")
        answers = {
            a["id"]: a["ground_truth"] for a in _lines(archive, f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json")
        }
    found: list[dict[str, Any]] = []
    for entry in questions:
        said = {role: [m["content"] for m in entry["question"][0] if m["role"] == role] for role in ("system", "user")}
        tools = [_tool(function) for function in entry["function"]]
        right = answers.get(entry["id"], [])
        names = [name for answer in right for name in answer] or [tool["name"] for tool in tools[:1]]
        if len(said["user"]) == 1 and tools and all(map(_held_out, names)):
            system = "".join(said["system"])[:600]
            found.append({"id": entry["id"], "prompt": said["user"][0], "system": system, "tools": tools, "answers": right})
    return found


def matches(calls: list[tuple[str, dict[str, Any]]], answers: list[dict[str, Any]]) -> bool:
    """Whether the calls are the expected ones, in any order, each argument one of its possible values."""
    left = list(answers)
    for name, args in calls:
        fitting = next((answer for answer in left if name in answer and _fits(args, answer[name])), None)
        if fitting is None:
            return False
        left.remove(fitting)
    return not left


def _fits(args: dict[str, Any], possible: dict[str, list[Any]]) -> bool:
    """`""` among the possible values means that the argument may be left out."""
    if not set(args) <= set(possible):
        return False
    return all(
        any(_same(args[key], value) for value in values) if key in args else "" in values for key, values in possible.items()
    )


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return value is wanted
    if isinstance(wanted, (int, float)):
        return isinstance(value, (int, float)) and abs(value - wanted) < 1e-9
    if isinstance(wanted, str):
        return isinstance(value, (str, int, float)) and _folded(value) == _folded(wanted)
    if isinstance(wanted, list):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_same, value, wanted))
    if isinstance(wanted, dict):
        listed = {key: options if isinstance(options, list) else [options] for key, options in wanted.items()}
        return isinstance(value, dict) and _fits(value, listed)
    return value == wanted


def _folded(value: Any) -> str:
    return re.sub(r"[\s,./\-_*^'\"]", "", str(value)).lower()


def _held_out(name: str) -> bool:
    return int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(), 16) % 10 >= 6


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function["description"],
        "parameters": _schema(function["parameters"]),
    }


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the types of JSON Schema in place of Python's and Java's."""
    kept = {key: value for key, value in schema.items() if key in ("description", "enum", "default", "required")}
    if kept.get("default") in (None, ""):
        kept.pop("default", None)
    kind = schema.get("type", "string")
    kept["type"] = _TYPES.get(kind, kind)
    if isinstance(schema.get("properties"), dict):
        kept["properties"] = {key: _schema(value) for key, value in schema["properties"].items() if isinstance(value, dict)}
    if isinstance(schema.get("items"), dict):
        kept["items"] = _schema(schema["items"])
    return kept


def _lines(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    if name not in archive.namelist():
        return []
    return [json.loads(line) for line in archive.read(name).decode().splitlines() if line.strip()]


def _wheel() -> Path:
    folder = cache_folder().parent / "benchmarks"
    found = sorted(folder.glob("bfcl_eval-*.whl"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--dest", str(folder), PACKAGE]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = sorted(folder.glob("bfcl_eval-*.whl"))
    return found[0]
