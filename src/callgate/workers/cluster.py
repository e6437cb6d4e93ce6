"""Configuration of remote workers: a Ray cluster, from a program or its environment.

An address or a `RayCluster` comes in; what a tool needs goes out. Nothing here imports Ray or speaks to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from callgate.errors import UsageError
from callgate.workers.job import Needs

__all__ = ["CLUSTER", "RayCluster", "cluster_from"]

CLUSTER = "CALLGATE_CLUSTER"
"""The variable of the environment that says where pools run that say nothing themselves."""

_HERE = ("", "none")
_OWN_ADDRESS = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A Ray cluster, on which each session gets an actor of its own.

    ```python
    pool = WorkerPool(["my_tools"], cluster=RayCluster(address="ray://head:10001", resources={"train": {"GPU": 1}}))
    ```
    """

    address: str | None = None
    """Address of Ray: `ray://host:10001`, `host:6379`, `auto`. None: what `RAY_ADDRESS` says, else one on this machine."""
    namespace: str = "callgate"
    """Namespace in which the actors are listed, named after their pool and session."""
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    """Tool -> what its actor reserves: `{"CPU": 2, "GPU": 1, "memory": 2e9}`. A session has one actor for each such set of
    needs; tools with the same needs share its state."""
    default: Mapping[str, float] = field(default_factory=dict[str, float])
    """Resources that the actors of all other tools reserve. None by default: most sessions are idle most of the time."""
    runtime_env: Mapping[str, Any] | None = None
    """The runtime environment of Ray: packages, working directory and variables of the actors."""
    direct: bool = True
    """Calls go by a connection of their own to the machine of their actor, if it can be reached from here. It is not
    encrypted, and not used if Ray's own connections are."""
    join_timeout_s: float = 180.0
    """Seconds that a program may take to join. A head that starts no server for it, as a busy one, is asked again, up to
    three times within this time, with a warning in the log; anything else in the way is an error at once."""
    init: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of `ray.init`."""

    def __post_init__(self) -> None:
        for tool, amounts in (*self.resources.items(), ("default", self.default)):
            for name, amount in amounts.items():
                if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 < amount < float("inf"):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise UsageError(f"RayCluster: {tool!r} needs {amount!r} of {name!r}; give a number above 0")
        join_s = self.join_timeout_s
        if isinstance(join_s, bool) or not isinstance(join_s, (int, float)) or not 0 < join_s < float("inf"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"RayCluster(join_timeout_s={join_s!r}): give a number of seconds above 0")

    def needs_of(self, tool: str) -> Needs:
        """The resources that a tool needs of the machine that it runs on."""
        return tuple(sorted(self.resources.get(tool, self.default).items()))


def cluster_from(cluster: str | RayCluster | None) -> RayCluster | None:
    """Return the cluster of a pool: the one it asks for, else that of the environment, else this machine (None).

    `"none"` is this machine, `"ray"` is wherever Ray's own configuration points, anything else is an address.
    """
    if isinstance(cluster, RayCluster):
        return cluster
    text = (os.environ.get(CLUSTER, "") if cluster is None else cluster).strip()
    if text in _HERE:
        return None
    return RayCluster(address=None if text == _OWN_ADDRESS else text)
