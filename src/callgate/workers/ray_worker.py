"""A worker on a Ray cluster as the program sees it: one actor, spoken to by frames, killed when its call must end.

Has the same interface as a worker process on this machine. A thread asks the actor for messages; readers wait for that
thread. Ray's own errors become the sentence on how the worker ended.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import ray as untyped_ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from callgate.errors import JsonError, UsageError
from callgate.workers.cluster import RayCluster
from callgate.workers.frames import Frames
from callgate.workers.job import Needs
from callgate.workers.protocol import WorkerDiedError
from callgate.workers.ray_actor import Keeper

__all__ = ["RayWorker"]

ray: Any = untyped_ray
"""Its types say less than they promise."""
END_S = 2.0
"""How long an actor may take to end its worker before it is killed itself."""
_GROUPS = {"begin": "in", "send": "in", "control": "past", "end": "past", "has_children": "past", "receive": "out"}
_NUMBERS = itertools.count(1)
_LOCK = threading.Lock()


def connect(cluster: RayCluster) -> None:
    """Join the cluster, unless this program has joined one already.

    Raises:
        UsageError: it cannot be reached.
    """
    with _LOCK:
        if ray.is_initialized():
            return
        joined: SimpleQueue[Exception | None] = SimpleQueue()
        threading.Thread(target=_join, args=(cluster, joined), name="callgate-ray-join", daemon=True).start()
        error = joined.get()
    if error is not None:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"the Ray cluster at {cluster.address or 'its own address'!r} cannot be used: {first}") from error


def _join(cluster: RayCluster, joined: SimpleQueue[Exception | None]) -> None:
    options: dict[str, Any] = {"namespace": cluster.namespace, "log_to_driver": False, "configure_logging": False}
    try:
        ray.init(address=cluster.address, **options | dict(cluster.init))
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        joined.put(error)
        return
    joined.put(None)
    # A Ray on this machine is killed when the thread that started it ends: the kernel is told to, and takes a thread for a
    # process. So this one stays as long as the program.
    threading.Event().wait()


class RayWorker:
    """One actor with one worker in it."""

    pid = None
    reader = None

    def __init__(self, cluster: RayCluster, pool: str, *, session: str | None, needs: Needs) -> None:
        connect(cluster)
        self.started, self.calls, self.gone = time.monotonic(), 0, False
        self.name = f"{pool}:{session or '-'}:{os.getpid()}-{next(_NUMBERS)}"
        amounts = dict(needs)
        options: dict[str, Any] = {
            "name": self.name,
            "namespace": cluster.namespace,
            "num_cpus": amounts.pop("CPU", 0),
            "num_gpus": amounts.pop("GPU", 0),
            "memory": amounts.pop("memory", None),
            "resources": amounts or None,
            "max_restarts": 0,
        }
        if cluster.runtime_env is not None:
            options["runtime_env"] = dict(cluster.runtime_env)
        self._actor: Any = _actor_class().options(**options).remote()
        self._news = threading.Event()
        self._lock = threading.Lock()
        self._frames = Frames()
        self._messages: list[dict[str, Any]] = []
        self._died: WorkerDiedError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="callgate-ray", daemon=True)

    def begin(self, modules: Sequence[tuple[str, str | None]], *, memory_bytes: int | None) -> None:
        """Tell the worker what to import. Files go along, for machines that do not have them."""
        found = [(name, file, Path(file).read_text("utf-8", "replace") if file else None) for name, file in modules]
        self._actor.begin.remote(found, [os.path.abspath(entry) for entry in sys.path], memory_bytes)
        self._thread.start()

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        with contextlib.suppress(RayError):  # The thread that listens finds out what is the matter.
            self._actor.send.remote(frame)

    def control(self, message: Mapping[str, Any]) -> None:
        """Send a message past the call that runs."""
        with contextlib.suppress(RayError):
            self._actor.control.remote(0, dict(message))

    def cancel(self, number: int) -> None:
        """Tell the call that runs that nobody wants it any more."""
        with contextlib.suppress(RayError):
            self._actor.control.remote(number, None)

    # Its answers ---------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._closed and self._died is None:
            try:
                data: bytes = ray.get(self._actor.receive.remote())
                messages = self._frames.feed(data)
                died = None
            except RayTaskError as error:
                messages, died = [], WorkerDiedError(f"its actor failed: {_first_line(error)}.")
            except RayActorError as error:
                messages, died = [], WorkerDiedError(f"its Ray actor is gone: {_first_line(error)}.")
            except (RayError, JsonError, RuntimeError) as error:
                messages, died = [], WorkerDiedError(f"Ray cannot reach it: {_first_line(error)}.")
            with self._lock:
                for message in messages:
                    if message.get("op") == "died":
                        died = WorkerDiedError(message["how"], message["output"], unread=message["unread"])
                    else:
                        self._messages.append(message)
                self._died = died
            if messages or died:
                self._news.set()

    def wake(self) -> None:
        """End a wait."""
        self._news.set()

    def wait(self, until: float, *, listen: bool) -> None:
        """Wait until something may have happened, or the time is reached."""
        if not self.gone:
            self._news.wait(max(0.0, until - time.monotonic()))
            self._news.clear()

    def messages(self) -> list[dict[str, Any]]:
        """What has come since the last time."""
        with self._lock:
            found, self._messages = self._messages, []
            self.gone = self.gone or self._died is not None
        return found

    def read_by(self, loop: object, look: Callable[[], None]) -> None:
        """There is nothing that an event loop could look at: the thread does it."""

    def read_by_none(self) -> None:
        """As for `read_by`."""

    # Its end -------------------------------------------------------------------------------------------------------------

    @property
    def has_children(self) -> bool:
        """Return whether something that a tool started is still running. If that cannot be found out: yes."""
        try:
            return bool(ray.get(self._actor.has_children.remote(), timeout=END_S))
        except (RayError, RuntimeError):
            return True

    def log_output(self) -> str:
        """What a worker printed stays on its machine; the end of it comes with the news of its death."""
        return ""

    def death(self) -> WorkerDiedError:
        """How it ended."""
        died = self._died or WorkerDiedError("its actor was killed.")
        self.kill()
        return died

    def kill(self) -> None:
        """End the worker and everything that it started, then its actor."""
        self._end(0.0)

    def close(self, *, grace_s: float = 0.0) -> None:
        """End the worker, in good order if it is quick enough, and its actor."""
        self._end(grace_s)

    def _end(self, grace_s: float) -> None:
        if self._closed:
            return
        self._closed = self.gone = True
        # The actor does it best, since it knows all that the worker started; but it may be gone, or out of reach.
        with contextlib.suppress(RayError, RuntimeError):
            ray.get(self._actor.end.remote(grace_s), timeout=END_S + grace_s)
        with contextlib.suppress(RayError, RuntimeError, ValueError):
            ray.kill(self._actor, no_restart=True)
        self._news.set()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0].rstrip(".")[:300]


@functools.cache
def _actor_class() -> Any:
    """The keeper as an actor, with a thread for each group of its methods."""
    for name, group in _GROUPS.items():
        ray.method(concurrency_group=group)(getattr(Keeper, name))
    return ray.remote(concurrency_groups=dict.fromkeys(_GROUPS.values(), 1))(Keeper)
