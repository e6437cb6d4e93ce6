"""File tools as they are usually written: make the path real, compare it with the root, open it.

Only here so that the attacks can be seen to succeed against it. It is called as `FileTools` is.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


class NaiveFileTools:
    def __init__(self, root: str | os.PathLike[str], *, state_dir: Any = None, **_: Any) -> None:
        self._root = os.path.realpath(root)

    def call_sync(self, name: str, args: Mapping[str, Any]) -> Any:
        try:
            value = getattr(self, name)(**args)
        except Exception as error:
            return SimpleNamespace(status="failed", is_error=True, value=None, error=str(error) or "failed", notes=())
        return SimpleNamespace(status="finished", is_error=False, value=value, error=None, notes=())

    def _inside(self, path: str) -> str:
        full = os.path.realpath(os.path.join(self._root, path))
        if not full.startswith(self._root):
            raise PermissionError("the path is outside the root")
        return full

    def list_files(self, path: str = ".", pattern: str | None = None, after: str | None = None) -> list[str]:
        found = glob.glob(os.path.join(self._inside(path), "**", pattern or "*"), recursive=True)
        return sorted(os.path.relpath(file, self._root) for file in found if os.path.isfile(file))

    def read_file(self, path: str, start_line: int | None = None, end_line: int | None = None) -> str:
        with open(self._inside(path), encoding="utf-8") as file:
            return file.read(1024 * 1024)

    def write_file(self, path: str, content: str, mode: str = "overwrite") -> str:
        full = self._inside(path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if os.path.exists(full):
            shutil.copy(full, full + ".bak")
        with open(full, "a" if mode == "append" else "w", encoding="utf-8") as file:
            file.write(content)
        return "written"

    def edit_file(self, path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:
        return self.write_file(path, self.read_file(path).replace(old_string, new_string))

    def search_files(self, pattern: str, path: str = ".", **_: Any) -> list[Any]:
        import re

        files = self.list_files(path)
        return [file for file in files if re.search(pattern, self.read_file(file))]
