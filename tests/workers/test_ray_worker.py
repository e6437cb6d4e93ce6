"""A worker on a cluster as the program sees it, with actors of the test's own in the place of Ray's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from callgate.workers.cluster import RayCluster

ray_worker: Any = pytest.importorskip("callgate.workers.ray_worker", exc_type=ImportError)
SAID = "its Ray actor is gone: actor {}."


class Actors:
    """Makes actors: each ends at its first message, and the first few before they have begun."""

    def __init__(self, doomed: int) -> None:
        self.doomed = doomed
        self.names: list[str] = []

    def options(self, **options: Any) -> Any:
        self.names.append(options["name"])
        return SimpleNamespace(remote=lambda: self._actor(len(self.names)))

    def _actor(self, number: int) -> Any:
        def gone() -> None:
            raise ray_worker.RayActorError(error_msg=f"actor {number}")

        def remote(work: Any) -> Any:
            return SimpleNamespace(remote=lambda *_: work)

        begin = gone if number <= self.doomed else lambda: True
        return SimpleNamespace(begin=remote(begin), listen=remote(lambda: None), receive=remote(gone), end=remote(gone))


@pytest.mark.parametrize(("doomed", "actors"), [(0, 1), (1, 2), (2, 3), (3, 3), (9, 3)])
def test_an_actor_that_ends_before_it_began_is_replaced_twice(
    doomed: int, actors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Actors(doomed)
    monkeypatch.setattr(ray_worker, "connect", lambda cluster, **_: None)
    monkeypatch.setattr(ray_worker, "_actor_class", lambda: made)
    monkeypatch.setattr(ray_worker, "_fetched", lambda work: work())
    monkeypatch.setattr(ray_worker.ray, "kill", lambda actor, **_: None)
    worker = ray_worker.RayWorker(RayCluster(direct=False), "pool", session=None, needs={})
    worker.begin([], memory_bytes=None)
    worker._life.join()
    assert str(worker.death()) == SAID.format(actors)
    assert made.names == [worker.name, f"{worker.name}.2", f"{worker.name}.3"][:actors]
