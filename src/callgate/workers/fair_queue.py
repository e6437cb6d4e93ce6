"""Jobs that wait for a worker, and who is next: the sessions take turns, however many calls one of them has sent.

Pure bookkeeping, under the lock of its owner.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from callgate.workers.job import Job

__all__ = ["FairQueue"]


class FairQueue:
    """A queue with one lane for each session; within a lane the order stays."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, deque[Job]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Job]:
        return (job for lane in self._lanes.values() for job in lane)

    def add(self, job: Job, *, first: bool = False) -> None:
        """Put a job at the end of its session's lane, or at its beginning."""
        lane = self._lanes.setdefault(_lane(job), deque())
        (lane.appendleft if first else lane.append)(job)
        self._size += 1

    def take(self, fits: Callable[[Job], bool]) -> Job | None:
        """The next job that fits. Its session goes to the end of the round."""
        for name, lane in self._lanes.items():
            if fits(lane[0]):
                job = lane.popleft()
                self._size -= 1
                if lane:
                    self._lanes.move_to_end(name)
                else:
                    del self._lanes[name]
                return job
        return None

    def remove(self, job: Job) -> bool:
        """Take a job out; returns whether it was in."""
        lane = self._lanes.get(_lane(job))
        if lane is None or job not in lane:
            return False
        lane.remove(job)
        self._size -= 1
        if not lane:
            del self._lanes[_lane(job)]
        return True


def _lane(job: Job) -> str:
    return job.session.id if job.session else ""
