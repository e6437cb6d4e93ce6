"""A pytest plugin: the files in a random order, and the tests of each file too. CALLGATE_ORDER=SEED repeats one."""

from __future__ import annotations

import os
import random

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A fixture of a file is still set up once: its tests stay together."""
    dice = random.Random(os.environ.get("CALLGATE_ORDER", "0"))
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    names = sorted(files)
    dice.shuffle(names)
    for tests in files.values():
        dice.shuffle(tests)
    items[:] = [item for name in names for item in files[name]]
