"""A function -> where another process finds it, and back again.

The program's side makes addresses, the worker's side follows them. This file runs no tool and starts no process.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

from callgate.errors import UsageError

__all__ = ["Address", "address_of", "is_worker", "load", "mark_as_worker", "resolve"]

MAIN = "__callgate_main__"
"""The name under which a worker loads the program's script, so that `if __name__ == "__main__"` stays false in it."""

_inside = False


def mark_as_worker() -> None:
    """Say that this process is a worker."""
    global _inside
    _inside = True


def is_worker() -> bool:
    """Return whether this process is a worker."""
    return _inside


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a function: its module, the module's file if it has one, and the path inside it."""

    module: str
    qualname: str
    file: str | None


def address_of(fn: Callable[..., Any], *, tool_name: str) -> Address:
    """Return the address at which a worker finds this function.

    Raises:
        UsageError: it cannot be found by name: a lambda, a function inside another one, a bound method.
    """
    module_name, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    module = sys.modules.get(module_name) if isinstance(module_name, str) else None
    found: Any = module
    for step in qualname.split(".") if isinstance(qualname, str) else ["?"]:
        found = getattr(found, step, None)
    if module is None or found is None or found != fn:
        raise UsageError(
            f"tool {tool_name!r}: isolation='process' needs a function that another process can import, and "
            f"{qualname or fn!r} cannot be found by its name in its module; define it with `def` at the top of a module "
            "(no lambda, no function inside a function, no bound method)"
        )
    name, file = cast("str", module_name), getattr(module, "__file__", None)
    if name == "__main__":
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.name != "__main__":
            name = spec.name  # python -m package.module
        elif file is None:
            raise UsageError(
                f"tool {tool_name!r}: isolation='process' needs a function that another process can import, and this one "
                "was typed into an interactive session; put it in a file and import it"
            )
        else:
            name = MAIN
    return Address(name, cast("str", qualname), os.path.abspath(file) if file else None)


def resolve(address: Address) -> Any:
    """The function at an address.

    Raises:
        UsageError: it is not there.
    """
    found: Any = load(address.module, address.file)
    for step in address.qualname.split("."):
        found = getattr(found, step, None)
    if found is None:
        raise UsageError(f"module {address.module!r} has no {address.qualname!r} when a worker imports it")
    return found


def load(name: str, file: str | None = None) -> ModuleType:
    """The module of this name; from its file where the name alone does not lead to that file."""
    if name in sys.modules and name != "__main__":
        return sys.modules[name]
    if file is None or (name != MAIN and _leads_to(name, file)):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file!r} is not a Python file that a worker can load")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _leads_to(name: str, file: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and os.path.abspath(spec.origin) == file
