"""A worker on a Ray cluster as the program sees it: one actor, spoken to by frames, killed when its call must end.

Has the same interface as a worker process on this machine. Frames go by a direct connection to the actor, or through Ray
where there is none; a thread reads them, and readers wait for that thread. Ray's own errors become the sentence on how the
worker ended.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import ray as untyped_ray
from ray.exceptions import RayActorError, RayTaskError

from callgate.errors import JsonError, UsageError
from callgate.workers.channel import CONTROL, FRAME, READ_BYTES, parcel
from callgate.workers.channel import connect as connect_directly
from callgate.workers.cluster import RayCluster
from callgate.workers.frames import Frames, pack
from callgate.workers.job import Needs
from callgate.workers.protocol import WorkerDiedError
from callgate.workers.ray_actor import GROUPS, Keeper

__all__ = ["RayWorker"]

logger = logging.getLogger("callgate.workers")

T = TypeVar("T")

ray: Any = untyped_ray
"""Module of Ray, untyped: its own types are incomplete."""
END_S = 2.0
"""Seconds that an actor may take to end its worker before it is killed itself."""
RELAY_S = 60.0
"""Seconds without a direct connection after one that failed: a firewall that drops packets costs each try seconds."""
STARTS_MAX = 3
"""The most actors that are tried if they end before they have begun: Ray puts some on a machine that has just died."""
JOINS_MAX = 4
"""Maximum attempts to join a head that has no server for this program, as a busy one."""
_NO_SERVER = (
    "Proxy failed to Connect to backend", "Starting Ray client server failed",
    "psutil.ZombieProcess", "psutil.NoSuchProcess",
)  # fmt: skip
"""The words of Ray's head if the server that it starts for a program by ray:// did not answer in time, by default 30 s, or
ended at once, as one does whose port another program has taken; the last two, if that was noticed while it was looked at."""
_ATTEMPTS: list[Future[None]] = []
"""The newest attempt to join."""
_RELAYED_UNTIL: dict[str | None, float] = {}
_NUMBERS = itertools.count(1)
_LOCK = threading.Lock()


def connect(cluster: RayCluster, *, is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Join the cluster, unless this program has joined one already. Tries again only where the head had no server for it.

    Raises:
        UsageError: it cannot be reached, or was not joined within `join_timeout_s`.
    """
    until = time.monotonic() + cluster.join_timeout_s
    where = repr(cluster.address or "its own address")
    late = f"the Ray cluster at {where} was not joined within {cluster.join_timeout_s:g} s; is its head overloaded?"
    if not _LOCK.acquire(timeout=cluster.join_timeout_s):
        raise UsageError(late)
    try:
        error = None if ray.is_initialized() else _joining_error(cluster, until, is_wanted)
    except TimeoutError:
        raise UsageError(late) from None
    finally:
        _LOCK.release()
    if error is not None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        said = f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and lines[1:] else lines[0]  # A traceback of the head.
        raise UsageError(f"the Ray cluster at {where} cannot be used: {said}{_token_hint()}") from error


def _joining_error(cluster: RayCluster, until: float, is_wanted: Callable[[], bool]) -> BaseException | None:
    """Join in a few attempts; return the error of the last one, None if it has joined.

    Raises:
        TimeoutError: the last attempt takes longer than there is time.
    """
    for number in range(1, JOINS_MAX + 1):
        error = _attempt(cluster).exception(max(0.0, until - time.monotonic()))
        why = next((words for words in _NO_SERVER if words in str(error)), None)
        if error is None or why is None or number == JOINS_MAX or not is_wanted():
            return error
        if time.monotonic() >= until:
            raise TimeoutError
        logger.warning(
            "the head of the Ray cluster at %s had no server for this program (attempt %d of %d): %s; trying again",
            cluster.address, number, JOINS_MAX, why,
        )  # fmt: skip
    raise AssertionError("the last attempt returns")


def _attempt(cluster: RayCluster) -> Future[None]:
    """Begin to join; an attempt that a caller has not waited for to its end goes on, and is the one to wait for."""
    if not _ATTEMPTS or _ATTEMPTS[-1].done():
        joined: Future[None] = Future()
        _ATTEMPTS[:] = [joined]
        threading.Thread(target=_join, args=(cluster, joined), name="callgate-ray-join", daemon=True).start()
    return _ATTEMPTS[-1]


def _token_hint() -> str:
    """Return what to do where tokens are missing: Ray refuses a program without one as if there were no cluster."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() in ("token", "disabled"):
        return ""
    return (
        "; see whether it runs, and if it asks for tokens, as clusters that `ray start` made do by default, set "
        "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or copy ~/.ray/auth_token from its head"
    )


def _join(cluster: RayCluster, joined: Future[None]) -> None:
    options: dict[str, Any] = {"namespace": cluster.namespace, "log_to_driver": False, "configure_logging": False}
    options |= cluster.init
    if not options["log_to_driver"]:
        _log_cluster_messages()
    try:
        ray.init(address=cluster.address, **options)
    except Exception as error:  # Ray's client raises bare ones too; nobody else could end the wait.
        joined.set_exception(error)
        return
    joined.set_result(None)
    # A Ray on this machine is killed when the thread that started it ends: the kernel is told to, and takes a thread for a
    # process. So this one stays as long as the program.
    threading.Event().wait()


def _log_cluster_messages() -> None:
    """Log Ray's messages about its cluster: it prints to our output that a machine died, whatever its log settings are."""
    from ray._private import worker  # No public name reaches it.

    def log(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
        for line in data["lines"]:
            logger.warning("Ray: %s", line)

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = log


class RayWorker:
    """One actor with one worker in it."""

    pid = None
    reader = None

    def __init__(
        self,
        cluster: RayCluster,
        pool: str,
        *,
        session: str | None,
        needs: Needs,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        connect(cluster, is_wanted=is_wanted)
        self.started, self.calls, self.gone = time.monotonic(), 0, False
        self._is_direct, self._cluster = cluster.direct, cluster.address
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
        self._options = options
        self._actor: Any = _actor_class().options(**options).remote()
        self._news = threading.Event()
        self._lock = threading.Lock()
        self._frames = Frames()
        self._messages: list[dict[str, Any]] = []
        self._died: WorkerDiedError | None = None
        self._closed = False
        self._outbox: SimpleQueue[tuple[bytes, bytes] | None] = SimpleQueue()
        """Kinds and frames for the actor. Whatever is in the way of them, nobody else is to wait with them."""
        self._sock: socket.socket | None = None
        self._life: threading.Thread | None = None
        """The thread that waits in Ray for the end of the actor."""
        self._reasons: SimpleQueue[WorkerDiedError] = SimpleQueue()
        """Deaths of the actor, as Ray reports them."""

    def begin(self, modules: Sequence[tuple[str, str | None]], *, memory_bytes: int | None) -> None:
        """Tell the worker what to import. Files go along, for machines that do not have them."""
        found = [(name, file, Path(file).read_text("utf-8", "replace") if file else None) for name, file in modules]
        path = [os.path.abspath(entry) for entry in sys.path]
        self._life = _in_thread("callgate-ray", lambda: self._live(found, path, memory_bytes))

    def _live(self, modules: Sequence[tuple[str, str | None, str | None]], path: list[str], memory: int | None) -> None:
        """Begin, and look after the worker until its end."""
        reads: threading.Thread | None = None
        try:
            self._begin_actor(modules, path, memory)
            self._sock = sock = self._connection()
            _in_thread("callgate-ray-send", self._send_all)
            if sock is None:
                self._listen()
            else:
                reads = _in_thread("callgate-ray-read", lambda: self._read(sock))
                _fetched(self._actor.ended.remote())
        except Exception as error:  # Ray's client raises errors of every kind when its head is gone, bare ones too.
            died = _ray_death(error)
            self._reasons.put(died)
            if reads is not None:
                reads.join(2 * END_S)  # What the worker sent before its end comes first.
            self._receive([], died)

    def _begin_actor(
        self, modules: Sequence[tuple[str, str | None, str | None]], path: list[str], memory: int | None
    ) -> None:
        """Begin the work of the actor, or of another one if it is gone: nothing has been asked of it yet."""
        for number in range(2, STARTS_MAX + 1):
            try:
                _fetched(self._actor.begin.remote(modules, path, memory))
            except RayActorError as error:
                if self._closed:
                    raise
                logger.warning("the actor of %s ended before it began, trying another: %s", self.name, _first_line(error))
                self._actor = _actor_class().options(**self._options | {"name": f"{self.name}.{number}"}).remote()
            else:
                return
        _fetched(self._actor.begin.remote(modules, path, memory))

    def _connection(self) -> socket.socket | None:
        """A direct connection to the actor; None where there can be none."""
        if not self._is_direct or time.monotonic() < _RELAYED_UNTIL.get(self._cluster, 0.0):
            return None
        offer = _fetched(self._actor.listen.remote(node=_own_node()))
        if offer is None:
            return None
        sock = connect_directly(offer)
        if sock is None:
            _RELAYED_UNTIL[self._cluster] = time.monotonic() + RELAY_S
            logger.warning(
                "the worker at %s:%d cannot be reached directly; calls go through Ray, which takes some milliseconds more",
                offer.host, offer.port,
            )  # fmt: skip
        return sock

    def send(self, frame: bytes) -> None:
        """Send a frame. Never waits."""
        self._outbox.put((FRAME, frame))

    def control(self, message: Mapping[str, Any]) -> None:
        """Send a message past the call that runs."""
        self._outbox.put((CONTROL, pack(dict(message))))

    def cancel(self, number: int) -> None:
        """Ask the running call to stop. Never waits."""
        self._outbox.put((CONTROL, pack({"op": "cancel", "id": number})))

    def _send_all(self) -> None:
        while (item := self._outbox.get()) is not None:
            kind, frame = item
            try:
                if self._sock is not None:
                    self._sock.sendall(parcel(kind, frame))
                elif kind == FRAME:
                    self._actor.send.remote(frame)
                else:
                    self._actor.control.remote(frame)
            except Exception as error:  # The thread that listens finds out what is the matter.
                logger.debug("a request to %s failed: %s", self.name, error)

    # Its answers ---------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Ask the actor for messages, through Ray."""
        while not self._closed and self._died is None:
            self._receive(self._frames.feed(_fetched(self._actor.receive.remote())))

    def _read(self, sock: socket.socket) -> None:
        """Read messages from the direct connection."""
        try:
            while data := sock.recv(READ_BYTES):
                self._receive(self._frames.feed(data))
            how = "the connection to it ended"
        except (OSError, JsonError) as error:
            how = f"the connection to it broke: {_first_line(error)}"
        if self._closed or self._died is not None:
            return
        try:  # Ray may know more.
            self._receive([], self._reasons.get(timeout=END_S))
        except Empty:
            self._receive([], WorkerDiedError(f"its Ray actor is gone: {how}."))

    def _receive(self, messages: list[dict[str, Any]], died: WorkerDiedError | None = None) -> None:
        with self._lock:
            for message in messages:
                if message.get("op") == "died":
                    died = WorkerDiedError(message["how"], message["output"], unread=message["unread"])
                else:
                    self._messages.append(message)
            self._died = self._died or died
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
        """Return the messages since the last call."""
        with self._lock:
            found, self._messages = self._messages, []
            self.gone = self.gone or self._died is not None
        return found

    def read_by(self, loop: object, look: Callable[[], None]) -> None:
        """There is nothing that an event loop could look at: the thread does it."""

    def read_by_none(self) -> None:
        """Like for `read_by`."""

    # Its end -------------------------------------------------------------------------------------------------------------

    @property
    def has_children(self) -> bool:
        """Return whether something that a tool started is still running. If that cannot be found out: yes."""
        return _within(END_S, lambda: bool(_fetched(self._actor.has_children.remote())), True)

    def log_output(self) -> str:
        """Return nothing: the output of a worker stays on its machine; the end of it comes with the report of its death."""
        return ""

    def death(self) -> WorkerDiedError:
        """Return how it ended."""
        died = self._died or WorkerDiedError("its actor was killed.")
        self.kill()
        return died

    def kill(self) -> None:
        """End the worker and everything that it started, then its actor."""
        self._end(0.0)

    def close(self, *, grace_s: float = 0.0) -> None:
        """End the worker, cleanly if it is quick enough, and its actor."""
        self._end(grace_s)

    def _end(self, grace_s: float) -> None:
        if self._closed:
            return
        self._closed = self.gone = True
        self._outbox.put(None)
        _within(2 * END_S + grace_s, lambda: self._end_actor(grace_s), None)
        if (sock := self._sock) is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._news.set()
        if self._life is not None and self._life is not threading.current_thread():
            self._life.join(2 * END_S)  # A program that ends while a thread of it waits in Ray may crash.

    def _end_actor(self, grace_s: float) -> None:
        # The actor does it best, since it knows all that the worker started; but it may be gone, or out of reach.
        _within(END_S + grace_s, lambda: _fetched(self._actor.end.remote(grace_s)), None)
        ray.kill(self._actor, no_restart=True)


def _own_node() -> str | None:
    """The node of the cluster on which this program runs; None for one that joined by ray://, from wherever it is."""
    return None if ray.util.client.ray.is_connected() else ray.get_runtime_context().get_node_id()


def _fetched(ref: Any) -> Any:
    """Return the value of a reference.

    By an address that begins with ray:// everything goes through one channel, in which a `get` of a value that is not there
    yet holds up all requests after it; the answer to a future comes by itself.
    """
    return ref.future().result() if ray.util.client.ray.is_connected() else ray.get(ref)


def _within(wait_s: float, work: Callable[[], T], otherwise: T) -> T:
    """Return the value of the work, or the other one if it fails or takes longer; it then goes on in its thread."""
    answers: SimpleQueue[T] = SimpleQueue()

    def run() -> None:
        try:
            answers.put(work())
        except Exception as error:
            logger.debug("a request to Ray failed: %s", error)
            answers.put(otherwise)

    _in_thread("callgate-ray-end", run)
    try:
        return answers.get(timeout=wait_s)
    except Empty:
        return otherwise


def _in_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _ray_death(error: Exception) -> WorkerDiedError:
    if isinstance(error, RayTaskError):
        return WorkerDiedError(f"its actor failed: {_first_line(error)}.")
    if isinstance(error, RayActorError):
        return WorkerDiedError(f"its Ray actor is gone: {_first_line(error)}.")
    return WorkerDiedError(f"Ray cannot reach it: {_first_line(error)}.")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0].rstrip(".")[:300]


@functools.cache
def _actor_class() -> Any:
    """The keeper as an actor, with a thread for each group of its methods."""
    return ray.remote(concurrency_groups=dict.fromkeys(GROUPS, 1))(Keeper)
