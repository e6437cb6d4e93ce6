"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, places: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: module of the package -> the names that are found there."""
    where = {name: module for module, names in places.items() for name in names}
    # A module of the package that has the name of something in it would hide that as soon as it is imported.
    assert not where.keys() & places.keys(), f"{package}: {sorted(where.keys() & places.keys())} are modules and names"

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(f"{package}.{where[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
