"""Definitions of the file tools: names, descriptions and schemas as models see them.

Data only; what the tools do is in `tools.py`.
"""

from __future__ import annotations

from typing import Any

from callgate.types import ToolDefinition

__all__ = ["DEFINITIONS"]

PATHS_MAX = 50
"""Files of one `read_files`."""
_PATH = {"type": "string", "description": "Path below the root, such as 'src/main.py'."}


def _optional(kind: str, description: str) -> dict[str, Any]:
    return {"anyOf": [{"type": kind}, {"type": "null"}], "default": None, "description": description}


def _definition(name: str, description: str, properties: dict[str, Any], *, writes: bool = False) -> ToolDefinition:
    required = [key for key, schema in properties.items() if "default" not in schema]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    others = ("read_file",) if name == "read_files" else ()  # What is true of reading one file is true of several.
    return ToolDefinition(
        name=name, description=description, input_schema=schema, kind="file", read_only=not writes, other_names=others
    )


DEFINITIONS: dict[str, ToolDefinition] = {
    definition.name: definition
    for definition in (
        _definition(
            "list_files",
            "Lists the paths of all files below a folder, at any depth, in order. Ignored files (.gitignore) are left out.",
            {
                "path": {"type": "string", "default": ".", "description": "Folder below the root."},
                "pattern": _optional(
                    "string",
                    "Glob: '*.py' for file names at any depth, 'src/**/*.py' for paths below it, '{a,b}' for either.",
                ),
                "after": _optional("string", "Path to go on behind, where an earlier list was cut."),
            },
        ),
        _definition(
            "read_file",
            "Reads a text file, or some of its lines.",
            {
                "path": _PATH,
                "start_line": _optional("integer", "First line, counted from 1; negative counts from the end."),
                "end_line": _optional("integer", "Last line, included; negative counts from the end."),
            },
        ),
        _definition(
            "read_files",
            "Reads several text files at once: one part per file, with its text or the reason why it could not be read.",
            {
                "paths": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "maxItems": PATHS_MAX,
                    "description": "Paths below the root, such as ['src/main.py', 'README.md'].",
                },
            },
        ),
        _definition(
            "write_file",
            "Writes a text file: all of it, or at its end. Missing folders are made. The old content can be restored.",
            {
                "path": _PATH,
                "content": {"type": "string", "description": "The whole text, exactly as it shall be; nothing left out."},
                "mode": {
                    "type": "string",
                    "enum": ["overwrite", "append"],
                    "default": "overwrite",
                    "description": "overwrite: all of the file; append: behind what it holds.",
                },
            },
            writes=True,
        ),
        _definition(
            "edit_file",
            "Replaces a piece of a text file by another one. It must be in the file exactly once, unless replace_all.",
            {
                "path": _PATH,
                "old_string": {"type": "string", "description": "The text to replace, exactly as it is in the file."},
                "new_string": {"type": "string", "description": "The text to put in its place."},
                "replace_all": {"type": "boolean", "default": False, "description": "Replace it everywhere."},
            },
            writes=True,
        ),
        _definition(
            "search_files",
            "Finds lines in the text files below a folder by a regular expression (no look-around, no back references).",
            {
                "pattern": {"type": "string", "description": "Regular expression, tested on each line by itself."},
                "path": {"type": "string", "default": ".", "description": "Folder or file below the root."},
                "include": _optional("string", "Glob of the files to search, such as '*.py'."),
                "context": {
                    "type": "integer",
                    "default": 0,
                    "minimum": 0,
                    "maximum": 20,
                    "description": "Lines to show before and after each match.",
                },
                "ignore_case": {
                    "type": "boolean",
                    "default": False,
                    "description": "Ignore upper and lower case.",
                },
            },
        ),
    )
}
"""Name -> definition, in the order in which they are declared."""
