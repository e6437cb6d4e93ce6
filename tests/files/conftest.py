"""What the tests of the file tools share: the table of attacks as a module, and tools in a folder of their own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callgate.files import FileTools
from callgate.files.beneath import has_openat2

HERE = Path(__file__).parent
BACK_ENDS = ("openat2", "walk")


def load(name: str) -> ModuleType:
    """A file of this folder as a module, whatever else has its name."""
    spec = importlib.util.spec_from_file_location(f"files_tests_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


attacks = load("attacks")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attack_name" in metafunc.fixturenames:
        metafunc.parametrize("attack_name", list(attacks.CASES))
    if "back_end" in metafunc.fixturenames:
        metafunc.parametrize("back_end", BACK_ENDS)


@pytest.fixture
def needs_back_end() -> Callable[[str], None]:
    """Ends the test where the kernel does not have the back end."""

    def need(back_end: str) -> None:
        if back_end == "openat2" and not has_openat2():
            pytest.skip("this kernel does not offer openat2; the walk was tested alone")

    return need


@pytest.fixture
def attack_table() -> ModuleType:
    return attacks


@pytest.fixture
def naive() -> Any:
    return load("naive").NaiveFileTools


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def files(root: Path, tmp_path: Path) -> FileTools:
    return FileTools(root, state_dir=tmp_path / "state")
