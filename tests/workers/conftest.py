"""Pools of the tools of these tests, and a way to see which processes are left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callgate.workers import RayCluster, WorkerPool, isolated
from callgate.workers.address import load

TOOLBOX = Path(__file__).parent / "toolbox.py"


def all_gone(pids: Iterable[int]) -> bool:
    """Whether the processes end; a kill takes a moment."""
    return all(map(_ends, pids))


def _ends(pid: int) -> bool:
    try:
        ending = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([ending], [], [], 60)[0])
    finally:
        os.close(ending)


@pytest.fixture(scope="module", autouse=True)
def shared_pool_is_closed() -> Iterator[None]:
    """The pool for functions that ask for a process serves the tests of one file."""
    yield
    while isolated._SHARED:
        isolated._SHARED.popitem()[1].close()


@pytest.fixture
def gone() -> Callable[[Iterable[int]], bool]:
    """`gone(pids)`: whether these processes are no more."""
    return all_gone


@pytest.fixture
def toolbox() -> ModuleType:
    """The tools of these tests as a module."""
    return load("toolbox", str(TOOLBOX))


@pytest.fixture
def use_pool() -> Callable[..., Any]:
    """`use_pool(story, **options)`: runs a coroutine function with a pool, and sees that no process of it is left."""

    def use(story: Callable[[WorkerPool], Coroutine[Any, Any, Any]], *, patience_s: float = 60, **options: Any) -> Any:
        pool = WorkerPool([TOOLBOX], **{"size": 1, **options})
        seen: list[int] = []

        async def told() -> Any:
            async with pool:
                seen.extend(pool.pids)
                try:
                    return await asyncio.wait_for(story(pool), patience_s)
                finally:
                    seen.extend(pool.pids)

        value = asyncio.run(told())
        assert all_gone(seen)
        return value

    return use


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A Ray cluster of one small node on this machine, joined by the first pool that uses it."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_DISABLE_IMPORT_WARNING": "1"}
    os.environ.update(settings)
    ray = pytest.importorskip("ray")
    init = {
        "num_cpus": 2,
        "num_gpus": 0,
        "resources": {"lathe": 1},
        "object_store_memory": 80 * 1024 * 1024,
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
    }
    yield RayCluster(init=init, resources={"pid": {"lathe": 1}, "spin": {}}, namespace="callgate-tests")
    with contextlib.suppress(Exception):
        ray.shutdown()
    for name in settings:
        del os.environ[name]
